"""What is asked of a design, checked once, and what it returns: the mechanism and everything needed to judge it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, SupportsFloat, cast, final, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_finite
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import FloatArray
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import Prior, as_prior, cost_matrix
from mezzotint.core.records import JsonObject

Loss = Literal["mse", "mae", "minimax", "cdf"]
Metric = Literal["absolute", "squared"]

_LARGEST_EPSILON = 22.0
"""e**22 is 2**31.7: beyond it a 32-bit table cannot express the ratio, and a design would be the same as at 22."""

_LARGEST_ORDER = 1e4


@final
@dataclass(frozen=True, kw_only=True)
class Problem:
    """The privacy, loss and prior that a design must meet, as `optimal` takes them; levels and knots are chosen beside.

    `alpha` is None, or the Renyi order (> 1) in which `epsilon` is meant; "minimax" ignores the prior.
    """

    epsilon: float
    lower: float
    upper: float
    loss: Loss
    prior: Prior
    delta: float
    alpha: float | None
    metric: Metric | None
    max_bias: float

    @property
    def width(self) -> float:
        """upper - lower, data units."""
        return self.upper - self.lower

    @property
    def center(self) -> float:
        """Middle of the range, data units."""
        return self.lower + self.width / 2

    @property
    def is_pure(self) -> bool:
        """Whether the constraint is pure epsilon-DP over all pairs of inputs."""
        return self.delta == 0 and self.alpha is None and self.metric is None

    def costs(self, knots: FloatArray, levels: FloatArray) -> FloatArray:
        """(K+1, m) weights C with expected loss = sum(C * P), data units; for "minimax" those of the MSE."""
        loss = "mae" if self.loss == "mae" else "mse"
        return cost_matrix(knots=knots, levels=levels, prior=self.prior, loss=loss)


def _number(parameter: str, value: SupportsFloat | str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ParameterError(parameter, value, "give a number") from None


def _check_privacy(epsilon: float, delta: float, alpha: float | None, metric: str | None) -> None:
    if not epsilon > 0:
        raise ParameterError("epsilon", epsilon, "must be positive; try epsilon=1.0")
    if metric is None and epsilon > _LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"a table of 32-bit weights tells apart epsilon up to {22:g} only")
    if not 0 <= delta < 1:
        raise ParameterError("delta", delta, "must be in [0, 1); 0 is pure differential privacy")
    if metric not in (None, "absolute", "squared"):
        raise ParameterError("metric", metric, 'use "absolute" or "squared", or leave it out')
    if alpha is not None and not alpha > 1:
        raise ParameterError("alpha", alpha, "the Renyi order must exceed 1; inf is pure epsilon")
    if alpha is not None and not (1 + 1e-5 <= alpha <= _LARGEST_ORDER or alpha == math.inf):
        remedy = f"{1 + 1e-5!r} implies it" if alpha < 2 else "inf, pure epsilon, implies it"
        raise ParameterError("alpha", alpha, f"no order for a solver; {remedy}")
    if (delta > 0) + (alpha is not None) + (metric is not None) > 1:
        raise ParameterError("delta", delta, "delta, alpha and metric are three different guarantees: give one")


def make_problem(
    *,
    epsilon: float,
    lower: float,
    upper: float,
    loss: str = "mse",
    prior: object = None,
    delta: float = 0.0,
    alpha: float | None = None,
    metric: str | None = None,
    max_bias: float = 0.0,
) -> Problem:
    """A checked `Problem` from a caller's values; alpha=inf becomes pure epsilon."""
    epsilon, lower, upper = check_finite("epsilon", epsilon), check_finite("lower", lower), check_finite("upper", upper)
    delta, max_bias = check_finite("delta", delta), _number("max_bias", max_bias)
    alpha = None if alpha is None else _number("alpha", alpha)
    if not lower < upper or not math.isfinite(upper - lower):
        raise ParameterError("upper", upper, f"must exceed lower={lower:g}")
    _check_privacy(epsilon, delta, alpha, metric)
    if loss not in get_args(Loss):
        raise ParameterError("loss", loss, f"use one of {', '.join(get_args(Loss))}")
    if math.isnan(max_bias) or max_bias < 0:
        raise ParameterError("max_bias", max_bias, "0 for unbiased, a bound in data units, or inf for no bound")
    return Problem(
        epsilon=epsilon,
        lower=lower,
        upper=upper,
        loss=cast(Loss, loss),
        prior=as_prior(prior, lower=lower, upper=upper),
        delta=delta,
        alpha=None if alpha == math.inf else alpha,
        metric=cast("Metric | None", metric),
        max_bias=max_bias,
    )


def check_knots(knots: int | Sequence[float] | npt.ArrayLike, problem: Problem) -> FloatArray:
    """Knots as an array: a number of even knots, or the given ones, which must run from lower to upper."""
    if isinstance(knots, (int, np.integer)) and not isinstance(knots, bool):
        if knots < 2:
            raise ParameterError("knots", int(knots), "need at least 2 knots, lower and upper; try knots=65")
        return np.linspace(problem.lower, problem.upper, int(knots))
    try:
        values = np.asarray(knots, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("knots", knots, "give None, a number of knots or a sorted sequence of inputs") from None
    if values.ndim != 1 or values.size < 2 or not np.isfinite(values).all() or (np.diff(values) < 0).any():
        raise ParameterError("knots", values.tolist(), "need a sorted 1-D sequence of at least 2 finite inputs")
    if values[0] != problem.lower or values[-1] != problem.upper:
        raise ParameterError(
            "knots", [values[0], values[-1]], f"must run from lower={problem.lower!r} to upper={problem.upper!r}"
        )
    return values


@final
@dataclass(frozen=True, kw_only=True)
class DesignResult:
    """The full record of one design.

    Arguments:
        mechanism: the table; its certified epsilon is at most the one asked for.
        loss: expected loss of `mechanism` under the asked loss and prior, computed from its integers; squared data
            units for "mse", data units for "mae".
        lower_bound: no mechanism of the searched class can have a smaller loss than this; None where none is known.
        gap: loss - lower_bound, same units; None where no bound is known. It can be negative by `slack` at most.
        status: how the result was reached: "optimal" (gap proven small), "calibrated" (parameters of a closed-form
            family searched for), or what a solver ended with.
        seconds: wall-clock time of the design.
        iterations: solver iterations, or evaluations of the family for a calibration.
        slack: by how much the loss may lie below the bound, same units: what the integers' bias can gain, and floats.
        proof: of a bound over all levels: the document of a claim file, which the kernel checks (kind `dual`).
        scope: the class of mechanisms that lower_bound speaks about, in words; empty where there is no bound.
    """

    mechanism: Mechanism
    loss: float
    lower_bound: float | None
    gap: float | None
    status: str
    seconds: float
    iterations: int
    scope: str = ""
    slack: float = 0.0
    proof: JsonObject | None = None

    def percent_above(self, limit: DesignResult) -> float | None:
        """How far this loss is above the lower bound of `limit`, in percent; None where that bound is 0 or unknown.

        Arguments:
            limit: what `design.limit` returned for the same epsilon, range, prior and loss.
        """
        return None if not limit.lower_bound else 100 * (self.loss / limit.lower_bound - 1)


def without_bound(mechanism: Mechanism, *, loss: float, status: str, started: float, iterations: int) -> DesignResult:
    """The record of a design that proves nothing about other mechanisms; `started` by `time.perf_counter`."""
    return DesignResult(
        mechanism=mechanism,
        loss=loss,
        lower_bound=None,
        gap=None,
        status=status,
        seconds=time.perf_counter() - started,
        iterations=iterations,
    )
