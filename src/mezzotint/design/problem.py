"""The problem that a design must solve, checked once, and the record of its result."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict, TypeVar, cast, final, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core import rounding
from mezzotint.core.arguments import check_choice, check_count, check_range
from mezzotint.core.errors import (
    InfeasibleError,
    MezzotintError,
    ParameterError,
    SolverError,
    as_real,
    as_reals,
)
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import Prior, as_prior, cost_matrix
from mezzotint.core.records import JsonObject, Record
from mezzotint.core.types import MAX_LEVELS, FloatArray, IndexArray
from mezzotint.design.constraints import Constraint, make_constraint

Loss = Literal["mse", "mae", "minimax", "cdf"]


class Span(TypedDict):
    """The range of the inputs, data units."""

    lower: float
    upper: float


@final
@dataclass(frozen=True, kw_only=True)
class Problem:
    """The privacy, loss and prior of a design, as `optimal` takes them; levels and knots are given
    separately.

    "minimax" ignores the prior.
    """

    constraint: Constraint
    lower: float
    upper: float
    loss: Loss
    prior: Prior
    max_bias: float = 0.0

    @property
    def epsilon(self) -> float:
        """The requested value of the constraint."""
        return self.constraint.epsilon

    @property
    def span(self) -> Span:
        """The range, for functions that take it by name."""
        return {"lower": self.lower, "upper": self.upper}

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
        return self.constraint.is_pure

    @property
    def is_met_by_pure(self) -> bool:
        """Whether it asks less than pure epsilon without bias: that implies (epsilon, delta) and a
        Renyi divergence of epsilon, but no limit that depends on distances.
        """
        is_strict = self.is_pure and self.max_bias == 0
        return not is_strict and not self.constraint.by_distance

    def centered(self, values: FloatArray) -> FloatArray:
        """Data units to units of half the range, centred."""
        return (values - self.center) / (self.width / 2)

    def costs(self, knots: FloatArray, levels: FloatArray) -> FloatArray:
        """(K+1, m) weights C with expected loss = sum(C * P), data units; for "minimax" those of
        the MSE.
        """
        loss = "mae" if self.loss == "mae" else "mse"
        return cost_matrix(
            knots=knots,
            levels=levels,
            prior=self.prior,
            loss=loss,
        )


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
    constraint = make_constraint(epsilon=epsilon, delta=delta, alpha=alpha, metric=metric)
    return pose(constraint, lower=lower, upper=upper, loss=loss, prior=prior, max_bias=max_bias)


def pose(
    constraint: Constraint,
    *,
    lower: float,
    upper: float,
    loss: str,
    prior: object,
    max_bias: float,
) -> Problem:
    """A checked `Problem` under this constraint."""
    lower, upper = check_range(lower, upper)
    remedy = "0 for unbiased, a bound in data units, or inf for no bound"
    max_bias = as_real("max_bias", max_bias, lambda value: value == 0 or value >= 1e-300, remedy)
    if _WIDEST_BIAS * (upper - lower) < max_bias < math.inf:
        raise ParameterError("max_bias", max_bias, "bounds nothing on so short a range; use inf")
    check_choice("loss", loss, get_args(Loss))
    return Problem(
        constraint=constraint,
        lower=lower,
        upper=upper,
        loss=cast(Loss, loss),
        prior=as_prior(prior, lower=lower, upper=upper),
        max_bias=max_bias,
    )


def ratio_above(epsilon: float) -> float:
    """A float at or above e**epsilon: bounds hold for every mechanism of this epsilon."""
    return math.exp(epsilon) * (1 + 2.0**-50)


def check_knots(
    knots: int | Sequence[float] | npt.ArrayLike,
    problem: Problem,
) -> FloatArray:
    """Knots as an array: a number of even knots, or the given ones, which must run from lower to
    upper.
    """
    if isinstance(knots, (int, np.integer)) and not isinstance(knots, bool):
        if knots < 2:
            remedy = "need at least 2 knots, lower and upper; try knots=65"
            raise ParameterError("knots", int(knots), remedy)
        knot_count = check_count("knots", knots, most=MAX_LEVELS)
        return np.linspace(problem.lower, problem.upper, knot_count)
    values = as_reals("knots", knots, "give None, a number of knots or a sorted sequence of inputs")
    is_sequence = values.ndim == 1 and values.size >= 2
    if not is_sequence or not np.isfinite(values).all() or (np.diff(values) < 0).any():
        remedy = "need a sorted 1-D sequence of at least 2 finite inputs"
        raise ParameterError("knots", values.tolist(), remedy)
    if values[0] != problem.lower or values[-1] != problem.upper:
        remedy = f"must run from lower={problem.lower!r} to upper={problem.upper!r}"
        raise ParameterError("knots", [values[0], values[-1]], remedy)
    return values


@final
@dataclass(frozen=True, kw_only=True)
class DesignResult(Record):
    """The full record of one design.

    Arguments:
        mechanism: the table; its certified value (epsilon, delta(epsilon), renyi(alpha) or
            metric_epsilon) is at most the requested one, and within 1e-5 of a pure epsilon that
            binds. Beyond epsilon = 12 a 32-bit weight is too
            coarse to come within 1e-5 of it; two fixed levels leave no freedom when unbiased, and
            epsilon may be far below. Bias: what was allowed, and of integers at most one unit of
            span / 2**32 at the ends of the range and at given knots, one rounding of the knot
            elsewhere; with searched levels float error only (pure, unbiased; levels then move by
            up to one part in 2**28).
        loss: expected loss of `mechanism` under the requested loss and prior, computed from its
            integers; squared data units for "mse", data units for "mae".
        lower_bound: no mechanism of the searched class can have a smaller loss than this; None
            where none is known.
        gap: loss - lower_bound, same units; None where no bound is known. It can be negative by
            `slack` at most, and is at most 1e-6 of the loss for fixed knots, averaged losses and
            pure epsilon up to 10; percents at Renyi orders near 1.
        status: how the result was reached: "optimal" (gap proven small), "calibrated" (parameters
            of a closed-form family searched for), or what a solver ended with.
        seconds: wall-clock time of the design.
        iterations: solver iterations, or evaluations of the family for a calibration.
        slack: how far the loss may lie below the bound, same units: the gain of the integers' bias,
            and float errors.
        proof: for a bound over all levels, the document of a claim file that the kernel checks
            (kind `dual`).
        scope: the class of mechanisms for which lower_bound holds, in words: all with these levels
            where knots are refined (pure, unbiased), tables on these knots, or with `prove` all
            with so many levels; empty where there is no bound.

    Example:
        >>> result = mz.design.optimal(epsilon=1.0, levels=4)
        >>> result.lower_bound <= result.loss, result.gap < 1e-4
        (True, True)
        >>> round(result.loss, 3)
        3.988
    """

    beside = ("table",)

    mechanism: Mechanism = field(repr=False)
    loss: float
    lower_bound: float | None
    gap: float | None
    status: str
    seconds: float
    iterations: int
    scope: str = ""
    slack: float = 0.0
    proof: JsonObject | None = field(default=None, repr=False)

    @property
    def table(self) -> str:
        """The mechanism in one line."""
        from mezzotint.privacy.accounting import table_line

        return table_line(self.mechanism)

    def percent_above(self, limit: DesignResult) -> float | None:
        """How far this loss is above the lower bound of `limit`, in percent; None where that bound
        is 0 or unknown.

        Arguments:
            limit: what `design.limit` returned for the same epsilon, range, prior and loss.
        """
        if not limit.lower_bound:
            return None
        return 100 * (self.loss / limit.lower_bound - 1)


def without_bound(
    mechanism: Mechanism,
    *,
    loss: float,
    status: str,
    started: float,
    iterations: int,
) -> DesignResult:
    """The record of a design that proves nothing about other mechanisms; `started` by
    `time.perf_counter`.
    """
    seconds = time.perf_counter() - started
    return DesignResult(
        mechanism=mechanism,
        loss=loss,
        lower_bound=None,
        gap=None,
        status=status,
        seconds=seconds,
        iterations=iterations,
    )


_WIDEST_BIAS = 1e6
"""Largest bound of a bias, in widths of the range: programs with larger ones are not solved."""

MARGINS = (rounding.MARGIN / 1024, rounding.MARGIN / 16, rounding.MARGIN, 8 * rounding.MARGIN)
"""Relative reductions of epsilon to try in turn, so that integers near the floats stay within what
was requested.
"""

_UNUSED = 1e-9
"""A level that no row uses more often than this is dropped (weight 0 in all rows): it would be less
than 5 units.
"""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FloatDesign:
    """A design in floats with its proof, before it becomes a record: `lower_bound` holds for
    competitors in `scope`.

    `price` is how much the bound may fall per unit of bias: the largest multiplier of a mean, in
    the loss's units.
    """

    lower_bound: float | None
    scope: str
    iterations: int
    price: float = 0.0
    floors: FloatArray = field(default_factory=lambda: np.zeros(0))
    """(m,) under pure epsilon at given levels."""

    pairs: IndexArray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.intp))
    """(P, 2) of knots that bind."""


def without_unused(rows: FloatArray) -> FloatArray:
    """Rows in which a level that is hardly ever used is never used."""
    is_used = rows.max(axis=0) > _UNUSED
    used_rows = np.where(is_used, rows, 0.0)
    return used_rows / used_rows.sum(axis=1, keepdims=True)


def achieved_loss(problem: Problem, mechanism: Mechanism) -> float:
    """The problem's loss of the integer table, data units."""
    if problem.loss == "minimax":
        return mechanism.worst_mse()
    costs = problem.costs(mechanism.knots, mechanism.levels)
    return float(np.sum(costs * mechanism.probabilities))


Made = TypeVar("Made")


def first_certified(build: Callable[[float], Made], *, epsilon: float) -> Made:
    """The first of `MARGINS` at which `build(epsilon * (1 - margin))` succeeds.

    Raises:
        InfeasibleError, SolverError: of the last margin, where none succeeds: a smaller epsilon may
            mend both. Any other error ends the search at once.
    """
    *first_margins, last_margin = MARGINS
    for margin in first_margins:
        with contextlib.suppress(InfeasibleError, SolverError):
            return build(epsilon * (1 - margin))
    return build(epsilon * (1 - last_margin))


class BoundError(MezzotintError, RuntimeError):
    """A table beats what was proven to be a lower bound: a fault of this package, not of the
    request.
    """


_PROVEN_GAP = 1e-5
"""Relative to the loss: a design with a smaller proven gap is called optimal."""

_LOSS_ROUNDING = 1e-10
_SPAN_ROUNDING = 1e-13
"""Relative to a loss, and to the largest error there is: sums of floats in a loss and its bound err
by a multiple of their terms' unit roundoff.
"""


def weighed(
    loss: float,
    bound: float | None,
    slack: float,
) -> JsonObject:
    """The fields of a result that say how a loss lies to its bound; BoundError if below it by more
    than `slack`.
    """
    gap = None if bound is None else loss - bound
    if gap is not None and gap < -slack:
        raise BoundError(
            f"loss {loss!r} is below its lower bound {bound!r}: please report this problem"
        )
    # "optimal" claims a proven gap; anything wider is said to be what it is. Relative, so that the
    # units of the data decide nothing.
    is_proven = gap is not None and abs(gap) <= _PROVEN_GAP * abs(loss)
    return {
        "lower_bound": bound,
        "gap": gap,
        "status": "optimal" if is_proven else "feasible",
        "slack": slack,
    }


def record(
    problem: Problem,
    draft: FloatDesign,
    mechanism: Mechanism,
    *,
    started: float,
    loss: float | None = None,
) -> DesignResult:
    """The result of a finished design; `started` is its time.perf_counter() at the beginning."""
    if loss is None:
        loss = achieved_loss(problem, mechanism)
    lower_bound = None if draft.lower_bound is None else float(draft.lower_bound)
    excess_bias = max(0.0, mechanism.max_bias - problem.max_bias)
    largest_error = 1.0
    if problem.loss != "cdf":
        largest_error = float(mechanism.levels[-1]) - float(mechanism.levels[0])
    if problem.loss != "mae":
        largest_error = largest_error**2
    rounding_error = _LOSS_ROUNDING * abs(loss) + _SPAN_ROUNDING * largest_error
    slack = draft.price * excess_bias + rounding_error
    return DesignResult(
        mechanism=mechanism,
        loss=loss,
        seconds=time.perf_counter() - started,
        scope=draft.scope,
        iterations=draft.iterations,
        **weighed(loss, lower_bound, slack),
    )
