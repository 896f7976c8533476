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


@final
@dataclass(frozen=True, kw_only=True)
class Variance:
    """An unbiased report on inputs u in [-1, 1]: its variance is `constant + square * u**2`."""

    constant: float
    square: float = 0.0
    note: str = "continuous output"

    def mse(self, *, lower: float, upper: float, prior: object = None) -> float:
        """Averaged over a prior on [lower, upper], squared data units."""
        moments = as_prior(prior, lower=lower, upper=upper).moments(np.array([lower, upper]))[0]
        half = (upper - lower) / 2
        second = float(moments[2] / half**2 - 2 * moments[1] / half + moments[0])
        return half**2 * (self.constant + self.square * second)

    def worst(self, *, lower: float, upper: float) -> float:
        """The largest over inputs, squared data units."""
        return ((upper - lower) / 2) ** 2 * (self.constant + max(0.0, self.square))


def _duchi(epsilon: float) -> Variance:
    return Variance(
        constant=1 / math.tanh(epsilon / 2) ** 2,
        square=-1.0,
        note="two outputs: randomized_response",
    )


def _piecewise(epsilon: float) -> Variance:
    root = math.expm1(epsilon / 2)
    return Variance(constant=(root + 4) / (3 * root**2), square=1 / root)


def _hybrid(epsilon: float) -> Variance:
    # Below epsilon = 0.61 the piecewise mechanism is never drawn.
    share = -math.expm1(-epsilon / 2) if epsilon > 0.61 else 0.0
    one, other = _piecewise(epsilon), _duchi(epsilon)
    return Variance(
        constant=share * one.constant + (1 - share) * other.constant,
        square=share * one.square + (1 - share) * other.square,
    )


def _staircase(epsilon: float) -> Variance:
    b = math.exp(-epsilon)
    return Variance(constant=4 * (2 ** (-2 / 3) * (b * (1 + b)) ** (2 / 3) + b) / (1 - b) ** 2)


def _gaussian(epsilon: float) -> Variance:
    def excess(log_sigma: float) -> float:
        ratio = 2 / math.exp(log_sigma)
        near, far = ratio / 2 - epsilon / ratio, -ratio / 2 - epsilon / ratio
        return float(ndtr(near) - math.exp(epsilon) * ndtr(far)) - DELTA

    root = cast(float, brentq(excess, math.log(1e-3), math.log(1e9), xtol=1e-12))
    return Variance(
        constant=math.exp(2 * root),
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
    if not 1e-6 <= epsilon <= 600:
        raise ParameterError("epsilon", epsilon, "need an epsilon from 1e-6 to 600")
    return _VARIANCES[name](epsilon)
