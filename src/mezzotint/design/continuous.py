"""Published mechanisms with continuous outputs, by their variances: rivals of a table of few
bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast, final

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.core.priors import as_prior

DELTA = 1e-6
"""The Gaussian mechanism has no pure epsilon: it is held to this delta."""

PIECEWISE_FROM = 0.61
"""Below this epsilon the hybrid mechanism never draws the piecewise one."""

LEAST_EPSILON = 1e-6
LARGEST_EPSILON = 600.0


@final
@dataclass(frozen=True, kw_only=True)
class Variance:
    """An unbiased report on inputs u in [-1, 1]: its variance is `constant + square * u**2`."""

    constant: float
    square: float = 0.0
    note: str = "continuous output"

    def mse(
        self,
        *,
        lower: float,
        upper: float,
        prior: object = None,
    ) -> float:
        """Averaged over a prior on [lower, upper], squared data units."""
        moments = as_prior(
            prior,
            lower=lower,
            upper=upper,
        ).moments(np.array([lower, upper]))[0]
        half_range = (upper - lower) / 2
        centred_square = moments[2] / half_range**2 - 2 * moments[1] / half_range
        second_moment = float(centred_square + moments[0])
        return half_range**2 * (self.constant + self.square * second_moment)

    def worst(self, *, lower: float, upper: float) -> float:
        """The largest over inputs, squared data units."""
        half_range = (upper - lower) / 2
        largest_square = max(0.0, self.square)
        return half_range**2 * (self.constant + largest_square)


def _duchi(epsilon: float) -> Variance:
    return Variance(
        constant=1 / math.tanh(epsilon / 2) ** 2,
        square=-1.0,
        note="two outputs: randomized_response",
    )


def _piecewise(epsilon: float) -> Variance:
    root = math.expm1(epsilon / 2)
    constant = (root + 4) / (3 * root**2)
    return Variance(constant=constant, square=1 / root)


def _hybrid(epsilon: float) -> Variance:
    share = 0.0
    if epsilon > PIECEWISE_FROM:
        share = -math.expm1(-epsilon / 2)
    piecewise = _piecewise(epsilon)
    duchi = _duchi(epsilon)
    return Variance(
        constant=share * piecewise.constant + (1 - share) * duchi.constant,
        square=share * piecewise.square + (1 - share) * duchi.square,
    )


def _staircase(epsilon: float) -> Variance:
    decay = math.exp(-epsilon)
    # At the best share of a stair.
    steps = (decay * (1 + decay)) ** (2 / 3)
    stair = 2 ** (-2 / 3) * steps
    return Variance(constant=4 * (stair + decay) / (1 - decay) ** 2)


def _gaussian(epsilon: float) -> Variance:
    def excess(log_sigma: float) -> float:
        """The hockey-stick divergence of two Gaussians 2 apart, less delta (Balle and Wang 2018)."""
        distance_ratio = 2 / math.exp(log_sigma)
        near_end = distance_ratio / 2 - epsilon / distance_ratio
        far_end = -distance_ratio / 2 - epsilon / distance_ratio
        return float(ndtr(near_end) - math.exp(epsilon) * ndtr(far_end)) - DELTA

    lowest, highest = math.log(1e-3), math.log(1e9)
    log_sigma = cast(float, brentq(excess, lowest, highest, xtol=1e-12))
    return Variance(
        constant=math.exp(2 * log_sigma),
        note=f"continuous output; (epsilon, {DELTA:g}), no pure epsilon",
    )


_VARIANCES: dict[str, Callable[[float], Variance]] = {
    "duchi": _duchi,
    "piecewise": _piecewise,
    "hybrid": _hybrid,
    "laplace": lambda epsilon: Variance(constant=8 / epsilon**2),
    "staircase": _staircase,
    "gaussian": _gaussian,
}
CONTINUOUS = tuple(_VARIANCES)


def variance(name: str, epsilon: float) -> Variance:
    """The variance of a continuous mechanism on [-1, 1] at this epsilon, pure except for
    "gaussian".

    "duchi" (Duchi, Jordan, Wainwright 2018; two outputs), "piecewise" and "hybrid" (PM and HM, Wang
    et al. 2019), "laplace", "staircase" (Geng and Viswanath 2014, least variance for a query of any
    range), "gaussian" (analytic, Balle and Wang 2018, delta = 1e-6).
    """
    check_choice("family", name, CONTINUOUS)
    if not LEAST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, "need an epsilon from 1e-6 to 600")
    return _VARIANCES[name](epsilon)
