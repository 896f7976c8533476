"""The problem that a design must solve, checked once; its result; and how floats become the
integers of a table.

Integer windows make a table with next to no bias, from integer floors instead of rounded rows. With
integer floors F, ceilings C = floor(e F) for a rational e <= e**epsilon and windows that start at
integers, every row is an integer row that sums to 2**32 and obeys epsilon, by construction. The
knots are the rows' means: the knot moves, not the weight. docs/proofs/design.md, "Integers".
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypedDict, TypeVar, cast, final, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core import rounding
from mezzotint.core.arguments import check_choice, check_count, check_finite
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError, as_real, as_reals
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import Prior, as_prior, cost_matrix
from mezzotint.core.records import JsonObject, Record, above
from mezzotint.core.rounding import ratio_below
from mezzotint.core.table import NARROWEST
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray, IndexArray, IntArray
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

    def centered(self, values: FloatArray) -> FloatArray:
        """Data units to units of half the range, centred."""
        return (values - self.center) / (self.width / 2)

    def costs(self, knots: FloatArray, levels: FloatArray) -> FloatArray:
        """(K+1, m) weights C with expected loss = sum(C * P), data units; for "minimax" those of
        the MSE.
        """
        loss = "mae" if self.loss == "mae" else "mse"
        return cost_matrix(knots=knots, levels=levels, prior=self.prior, loss=loss)


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
    epsilon, lower, upper = (
        check_finite("epsilon", epsilon),
        check_finite("lower", lower),
        check_finite("upper", upper),
    )
    delta = check_finite("delta", delta)
    remedy = "0 for unbiased, a bound in data units, or inf for no bound"
    max_bias = as_real("max_bias", max_bias, lambda value: value == 0 or value >= 1e-300, remedy)
    remedy = "the Renyi order must exceed 1; inf is pure epsilon"
    alpha = None if alpha is None else as_real("alpha", alpha, lambda order: order > 1, remedy)
    if not lower < upper or not math.isfinite(upper - lower):
        raise ParameterError("upper", upper, f"must exceed lower={lower:g}")
    constraint = make_constraint(epsilon=epsilon, delta=delta, alpha=alpha, metric=metric)
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


def check_knots(knots: int | Sequence[float] | npt.ArrayLike, problem: Problem) -> FloatArray:
    """Knots as an array: a number of even knots, or the given ones, which must run from lower to
    upper.
    """
    if isinstance(knots, (int, np.integer)) and not isinstance(knots, bool):
        if knots < 2:
            raise ParameterError(
                "knots", int(knots), "need at least 2 knots, lower and upper; try knots=65"
            )
        return np.linspace(
            problem.lower, problem.upper, check_count("knots", knots, most=MAX_LEVELS)
        )
    values = as_reals("knots", knots, "give None, a number of knots or a sorted sequence of inputs")
    if (
        values.ndim != 1
        or values.size < 2
        or not np.isfinite(values).all()
        or (np.diff(values) < 0).any()
    ):
        raise ParameterError(
            "knots", values.tolist(), "need a sorted 1-D sequence of at least 2 finite inputs"
        )
    if values[0] != problem.lower or values[-1] != problem.upper:
        raise ParameterError(
            "knots",
            [values[0], values[-1]],
            f"must run from lower={problem.lower!r} to upper={problem.upper!r}",
        )
    return values


@final
@dataclass(frozen=True, kw_only=True)
class DesignResult(Record):
    """The full record of one design.

    Arguments:
        mechanism: the table; its certified epsilon is at most the requested one.
        loss: expected loss of `mechanism` under the requested loss and prior, computed from its
            integers; squared data units for "mse", data units for "mae".
        lower_bound: no mechanism of the searched class can have a smaller loss than this; None
            where none is known.
        gap: loss - lower_bound, same units; None where no bound is known. It can be negative by
            `slack` at most.
        status: how the result was reached: "optimal" (gap proven small), "calibrated" (parameters
            of a closed-form family searched for), or what a solver ended with.
        seconds: wall-clock time of the design.
        iterations: solver iterations, or evaluations of the family for a calibration.
        slack: how far the loss may lie below the bound, same units: the gain of the integers' bias,
            and float errors.
        proof: for a bound over all levels, the document of a claim file that the kernel checks
            (kind `dual`).
        scope: the class of mechanisms for which lower_bound holds, in words; empty where there is
            no bound.

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
        from mezzotint.privacy.accounting import report_claim

        made = self.mechanism
        privacy = f"epsilon {above(made.epsilon)} ({report_claim(made).basis})"
        return f"{made.name}: {made.levels.size} levels, {privacy}, table {made.sha256[:12]}"

    def percent_above(self, limit: DesignResult) -> float | None:
        """How far this loss is above the lower bound of `limit`, in percent; None where that bound
        is 0 or unknown.

        Arguments:
            limit: what `design.limit` returned for the same epsilon, range, prior and loss.
        """
        return None if not limit.lower_bound else 100 * (self.loss / limit.lower_bound - 1)


def without_bound(
    mechanism: Mechanism, *, loss: float, status: str, started: float, iterations: int
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


_SHRINKS = (0.0, *(10.0 ** (k / 2) for k in range(-18, 0)), 1.0)
"""Shares of the inner floors that are given up, one after another, until the ends are reached."""

_NEARBY = (1, 8, 64)
"""Among how many units a floor is lowered to where its ceiling loses least to rounding."""

_ROUNDS = 60


@final
class IntegerWindows:
    """The rows of integer floors, of which those of levels never reported are 0; the ratio is at
    most e**epsilon.
    """

    def __init__(self, levels: FloatArray, floors: list[int], ratio: Fraction) -> None:
        self.floors, self.ratio = floors, ratio
        ceilings = [min(floor * ratio.numerator // ratio.denominator, TOTAL) for floor in floors]
        self.rooms = np.array(
            [top - floor for top, floor in zip(ceilings, floors, strict=True)], dtype=np.int64
        )
        self.ends = np.concatenate([[0], np.cumsum(self.rooms)])
        self.spare = TOTAL - sum(floors)
        self.last = int(self.ends[-1]) - self.spare
        # Floats are dyadic: over one power of two all means are integer sums.
        pairs = [float(level).as_integer_ratio() for level in levels]
        self.scale = max(denominator for _, denominator in pairs)
        self.integers = np.array(
            [numerator * (self.scale // below) for numerator, below in pairs], dtype=object
        )

    def rows(self, starts: IntArray) -> IntArray:
        """(n, m) rows of windows that start there."""
        a = starts[:, None]
        filled = np.minimum(a + self.spare, self.ends[1:]) - np.maximum(a, self.ends[:-1])
        return np.array(self.floors, dtype=np.int64) + np.clip(filled, 0, self.rooms)

    def means(self, rows: IntArray) -> list[Fraction]:
        """Their exact means, data units."""
        return [
            Fraction(int(total), self.scale * TOTAL)
            for total in rows.astype(object) @ self.integers
        ]

    def kinks(self) -> IntArray:
        """All starts at which an end of the window passes into another room, and the two
        outermost.
        """
        both = np.concatenate([self.ends, self.ends - self.spare])
        return np.unique(np.clip(both, 0, self.last))

    def start_of(self, target: Fraction, starts: IntArray, means: list[Fraction]) -> int:
        """The start whose mean is nearest to the target."""
        place = bisect.bisect_right(means, target)
        if place == 0:
            return int(starts[0])
        if place == len(means):
            return int(starts[-1])
        # Between two kinks means are linear: half of one step of the start is the farthest that
        # they miss.
        a, b, low, high = int(starts[place - 1]), int(starts[place]), means[place - 1], means[place]
        return a if high == low else a + round((target - low) / (high - low) * (b - a))


def _misses(
    levels: list[int], floors: list[int], ratio: Fraction, end: int
) -> Callable[[int], int]:
    """N times the mean nearest to the first (0) or last (-1) level, as a distance from it, by the
    floor of that level.

    The ceiling of the other outermost level does not count: the windows of the other end see to it.
    """
    order = range(1, len(floors)) if end == 0 else range(len(floors) - 2, -1, -1)
    others, apart = [floors[j] for j in order], [abs(levels[j] - levels[end]) for j in order]
    rooms = [
        *(floor * ratio.numerator // ratio.denominator - floor for floor in others[:-1]),
        2 * TOTAL,
    ]
    filled = [0, *itertools.accumulate(rooms)]
    base = sum(map(operator.mul, others, apart))
    moments = list(itertools.accumulate(map(operator.mul, rooms, apart), initial=base))
    rest = TOTAL - sum(others)

    def miss(floor: int) -> int:
        left = max(rest - floor * ratio.numerator // ratio.denominator, 0)
        place = bisect.bisect_right(filled, left) - 1
        return moments[place] + (left - filled[place]) * apart[place]

    return miss


def _reaching(
    levels: list[int], floors: list[int], ratio: Fraction, most: Sequence[int]
) -> list[int] | None:
    """The floors, the outer two raised by as little as makes both ends miss by at most `most`; None
    if nothing does.

    A larger floor of an outer level brings the means at both ends nearer to it: so raising both in
    turn by what their own ends need stops at the least pair, if there is one.
    """
    floors, settled = list(floors), 0
    for end in itertools.islice(itertools.cycle((0, -1)), _ROUNDS):
        miss, before, room = _misses(levels, floors, ratio, end), floors[end], TOTAL - sum(floors)
        if room < 0:
            return None
        tried = range(before, before + room + 1)
        floors[end] += bisect.bisect_left(
            tried, True, key=lambda floor, miss=miss, end=end: miss(floor) <= most[end]
        )
        settled = settled + 1 if floors[end] == before else 0
        if settled == 2:
            return floors
    return None


def _friendly(floor: int, ratio: Fraction, nearby: int) -> int:
    """The floor, or one a little below it, whose ceiling loses least to rounding."""
    lost, step = floor * ratio.numerator % ratio.denominator, ratio.numerator - ratio.denominator
    if nearby > 1 and step < ratio.denominator and lost // step < floor // 2:
        return floor - lost // step  # each unit less loses so much less
    tried = range(floor, max(floor - nearby, floor // 2, 0), -1)
    return min(tried, key=lambda one: one * ratio.numerator % ratio.denominator, default=floor)


def integer_windows(
    levels: FloatArray, floors: FloatArray, *, epsilon: float, lower: float, upper: float
) -> IntegerWindows:
    """Integer windows near real floors that reach both ends to within one unit of span / 2**32, if
    any do.

    docs/proofs/design.md, "Integers": they do if the levels reach.
    """
    ratio = ratio_below(epsilon)
    exact = [Fraction(level) for level in levels.tolist()]
    scale = math.lcm(*(value.denominator for value in exact))
    whole, span = [int(value * scale) for value in exact], exact[-1] - exact[0]
    aims = [(Fraction(lower) - exact[0]) * scale, (exact[-1] - Fraction(upper)) * scale]
    wanted = [value * TOTAL for value in floors.tolist()]
    for share in _SHRINKS:
        kept = [(1 - share) * value for value in wanted[1:-1]]
        inners = [[round(value) for value in kept]]
        inners.extend(
            [_friendly(math.floor(value), ratio, nearby) for value in kept] for nearby in _NEARBY
        )
        # Outer floors as found; then from below, where they are as small as may be.
        ways = inners, (Fraction(1, 2), 1), ((wanted[0], wanted[-1]), (0, 0))
        for inner, units, outer in itertools.product(*ways):
            most = tuple(math.floor(TOTAL * aim + units * span * scale) for aim in aims)
            found = _reaching(whole, [round(outer[0]), *inner, round(outer[1])], ratio, most)
            if found is not None:
                return IntegerWindows(levels, found, ratio)
    raise InfeasibleError(
        f"epsilon={epsilon:g}: integer weights of 2**-32 are too coarse for it on these levels"
    )


def refitted(windows: IntegerWindows, levels: FloatArray, lower: float, upper: float) -> FloatArray:
    """Levels moved by a map near the identity, so that two integer windows have the means `lower`
    and `upper`.
    """
    starts, ends = windows.kinks(), (Fraction(lower), Fraction(upper))
    means = windows.means(windows.rows(starts))
    chosen = np.array([windows.start_of(end, starts, means) for end in ends])
    low, high = windows.means(windows.rows(chosen))
    slope = (ends[1] - ends[0]) / (high - low)
    return np.array([float(ends[0] + slope * (Fraction(level) - low)) for level in levels.tolist()])


def table(
    windows: IntegerWindows,
    levels: FloatArray,
    *,
    lower: float,
    upper: float,
    knots: FloatArray | None = None,
) -> Mechanism:
    """The mechanism of integer windows, on the given knots (sorted, from lower to upper) or where
    its rows bend.

    |E[report] - x| at lower, upper and given knots is at most span / 2**33 if the windows reach
    there, at other knots one rounding of the knot to a float.
    """
    starts = windows.kinks()
    means = windows.means(windows.rows(starts))
    if knots is None:
        first, last = (windows.start_of(Fraction(end), starts, means) for end in (lower, upper))
        inside = [
            (start, float(mean))
            for start, mean in zip(starts.tolist(), means, strict=True)
            if first < start < last and lower < float(mean) < upper
        ]
        chosen = [(first, lower)]
        for start, knot in [*inside, (last, upper)]:
            # Rows whose means are one float are one knot.
            if knot - chosen[-1][1] >= NARROWEST:
                chosen.append((start, knot))
        starts, knots = (
            np.array([start for start, _ in chosen]),
            np.array([knot for _, knot in chosen]),
        )
    else:
        starts = np.array(
            [windows.start_of(Fraction(knot), starts, means) for knot in knots.tolist()]
        )
    return Mechanism(knots=knots, levels=levels, weights=windows.rows(starts), name="optimal")


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
    floors: FloatArray = field(
        default_factory=lambda: np.zeros(0)
    )  # (m,) under pure epsilon at given levels
    pairs: IndexArray = field(
        default_factory=lambda: np.zeros((0, 2), dtype=np.intp)
    )  # of knots that bind


def without_unused(rows: FloatArray) -> FloatArray:
    """Rows in which a level that is hardly ever used is never used."""
    used = rows.max(axis=0) > _UNUSED
    kept = np.where(used, rows, 0.0)
    return kept / kept.sum(axis=1, keepdims=True)


def achieved_loss(problem: Problem, mechanism: Mechanism) -> float:
    """The problem's loss of the integer table, data units."""
    if problem.loss == "minimax":
        return mechanism.worst_mse()
    return float(np.sum(problem.costs(mechanism.knots, mechanism.levels) * mechanism.probabilities))


Made = TypeVar("Made")


def first_certified(build: Callable[[float], Made], *, epsilon: float) -> Made:
    """The first of `MARGINS` at which `build(epsilon * (1 - margin))` succeeds; InfeasibleError
    where none does.
    """
    *most, last = MARGINS
    for margin in most:
        with contextlib.suppress(InfeasibleError):
            return build(epsilon * (1 - margin))
    return build(epsilon * (1 - last))


class BoundError(MezzotintError, RuntimeError):
    """A table beats what was proven to be a lower bound: a fault of this package, not of the
    request.
    """


def weighed(loss: float, bound: float | None, slack: float) -> JsonObject:
    """The fields of a result that say how a loss lies to its bound; BoundError if below it by more
    than `slack`.
    """
    gap = None if bound is None else loss - bound
    if gap is not None and gap < -slack:
        raise BoundError(
            f"loss {loss!r} is below its lower bound {bound!r}: please report this problem"
        )
    # "optimal" claims a proven gap; anything wider is said to be what it is.
    proven = gap is not None and abs(gap) <= 1e-5 * max(abs(loss), math.ulp(1.0))
    return {
        "lower_bound": bound,
        "gap": gap,
        "status": "optimal" if proven else "feasible",
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
    loss = achieved_loss(problem, mechanism) if loss is None else loss
    bound = None if draft.lower_bound is None else float(draft.lower_bound)
    beyond = max(0.0, mechanism.max_bias - problem.max_bias)
    span = (
        1.0 if problem.loss == "cdf" else float(mechanism.levels[-1]) - float(mechanism.levels[0])
    )
    # Sums of floats in a loss and its bound err by a multiple of their terms' unit roundoff.
    slack = draft.price * beyond + (
        1e-10 * abs(loss) + 1e-13 * (span if problem.loss == "mae" else span**2)
    )
    facts = weighed(loss, bound, slack) | {"scope": draft.scope, "iterations": draft.iterations}
    return DesignResult(
        mechanism=mechanism, loss=loss, seconds=time.perf_counter() - started, **facts
    )
