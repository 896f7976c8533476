"""From an epsilon to a member: the parameters of a closed-form family with the requested certified
epsilon, least loss.

One privacy parameter meets epsilon, a few shape numbers lower the loss. All of it happens in floats
on the range
[-1, 1] and is only a search: what it finds becomes a table by integer rounding, whose own integers
say what its epsilon is.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Literal, cast, final

import numpy as np
from scipy.optimize import brentq, minimize

from mezzotint.core.arguments import (
    Values,
    check_choice,
    check_count,
    check_covering,
    check_epsilon,
    check_finite,
    check_range,
)
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import (
    Prior,
    SamplePrior,
    UniformPrior,
    as_prior,
    cell_means,
    cost_matrix,
)
from mezzotint.core.rounding import MARGIN, table
from mezzotint.core.search import bracket
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray
from mezzotint.design.constraints import Pure
from mezzotint.design.problem import DesignResult, Problem, without_bound
from mezzotint.families.categories import k_randomized_response
from mezzotint.families.numeric import PoissonBinomial, erm_rows, pbm_exact, rqm_rows

_MARGINS = tuple(MARGIN * 4.0**k for k in range(9))
"""How far below epsilon a search aims: the first for which the rounded table is certified is
taken.
"""

_WIDEST = 16.0
"""Bins are searched this many times as far out as unbiased reports need, or levels - 1 times where
that is more: so far out the two innermost bins of an even grid alone are randomized response."""

_MOST_POINTS = 1024

_THETA = 0.5 - 1e-10
"""The largest slope tried for PBM: at 1/2 an end of the range would be certain from some
reports.
"""


@final
@dataclass(frozen=True, kw_only=True)
class _Calibration:
    """A checked request; `count` levels, or the bins themselves in data units."""

    problem: Problem
    count: int
    bins: FloatArray | None
    max_level: float
    knots: int

    @property
    def unit_bins(self) -> FloatArray | None:
        """The bins in half ranges."""
        return None if self.bins is None else self.problem.centered(self.bins)

    def unit_prior(self) -> Prior:
        """The prior on [-1, 1], as point masses unless uniform: one pass over the data, then each
        loss is cheap.
        """
        problem = self.problem
        if isinstance(problem.prior, UniformPrior):
            return problem.prior
        cells = cell_means(problem.prior, problem.lower, problem.upper)
        return SamplePrior(points=problem.centered(cells.points), masses=cells.masses)


def calibrate(
    family: str | Callable[[float], Mechanism],
    *,
    epsilon: float,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: int | Values | None = None,
    loss: Literal["mse", "mae"] = "mse",
    prior: object = None,
    max_level: float | None = None,
    knots: int = 65,
) -> DesignResult:
    """The member of a closed-form family with the least loss found; its certified epsilon is just
    below `epsilon`.

    Arguments:
        family: "rqm" (searches extension and q), "erm" (symmetric bins and gamma), "pbm" (theta),
            or "randomized_response" (one bit), "k_randomized_response": nothing left to search. Or
            a function of one number > 0 that returns a Mechanism, whose epsilon must not decrease
            (or not increase) with it: numbers are tried from `epsilon` outwards, and the table with
                the largest certified epsilon up to it is taken.
        epsilon: pure epsilon requested, > 0 and finite.
        levels: number of levels (None: 4, or 2 for randomized response). "erm" also takes the bins
            themselves, "rqm" evenly spaced symmetric ones; then only gamma or q is searched.
        loss: "mse" or "mae", to be minimised. An MAE may keep falling as bins move out: see
            max_level.
        lower, upper, prior: as in `optimal`; a prior from private data is a release here, too.
        max_level: largest distance of a bin from the middle of the range, data units; None: 16 (or
            levels - 1, if more) times the least that an unbiased report at this epsilon needs. It
            limits "rqm" and "erm"; the other families have no choice and raise.
        knots: for "pbm": evenly spaced inputs at which the table has the exact pmf.

    Returns:
        DesignResult with status "calibrated", no lower bound and no gap: the search is local.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
        InfeasibleError: the family cannot reach epsilon (with these bins, or within max_level);
            says what it can.

    Guarantees:
        result.mechanism.epsilon <= epsilon, in its integers.
        result.loss is the mechanism's own loss under the prior, not the search's estimate.
    Edge cases: epsilon above log(2**32) = 22.2 gives a table below that; two levels are randomized
    response.

    Example:
        >>> result = mz.design.calibrate("rqm", epsilon=1.0, levels=4)
        >>> 0.999 < result.mechanism.epsilon <= 1.0
        True
    """
    started = time.perf_counter()
    low, high = check_range(lower, upper)
    known = as_prior(prior, lower=low, upper=high)
    asked = check_epsilon(epsilon)
    if callable(family):
        mechanism, evaluations = member_of(family, asked), 1
    else:
        if family not in _FAMILIES:
            raise ParameterError("family", family, f"known families: {', '.join(_FAMILIES)}")
        if levels is None:
            levels = 2 if family == "randomized_response" else 4
        check_choice("loss", loss, ("mse", "mae"))
        bins = (
            None
            if np.ndim(levels) == 0
            else check_covering("levels", levels, lower=low, upper=high)
        )
        if asked < 1e-8:
            remedy = "2**32 units cannot tell inputs so little apart; ask for 1e-8 or more"
            raise ParameterError("epsilon", asked, remedy)
        request = _Calibration(
            problem=Problem(
                constraint=Pure(epsilon=asked), lower=low, upper=high, loss=loss, prior=known
            ),
            count=check_count("levels", levels, least=2, most=MAX_LEVELS)
            if bins is None
            else bins.size,
            bins=bins,
            max_level=math.inf if max_level is None else check_finite("max_level", max_level),
            knots=check_count("knots", knots, least=2, most=MAX_LEVELS),
        )
        mechanism, evaluations = _within_reach(family, request)
    value = mechanism.mse(known) if loss == "mse" else mechanism.mae(known)
    return without_bound(
        mechanism, loss=value, status="calibrated", started=started, iterations=evaluations
    )


def _within_reach(family: str, request: _Calibration) -> tuple[Mechanism, int]:
    """The member of a family, whose levels reach no farther than allowed, and how many evaluations
    found it.
    """
    problem, farthest = request.problem, request.max_level
    # E[B | upper] - E[B | lower] = 2 c is at most 2 R tanh(epsilon / 2), the most that two
    # distributions with likelihood ratio e**epsilon can differ in mean on [-R, R].
    needed = problem.width / 2 / math.tanh(problem.epsilon / 2)
    if farthest < needed:
        raise InfeasibleError(
            f"max_level={farthest:g}: an unbiased report at epsilon={problem.epsilon:g} needs levels {needed:.6g} from "
            "the middle of the range; raise max_level or epsilon"
        )
    mechanism, evaluations = _FAMILIES[family](request)
    reach = float(np.abs(mechanism.levels - problem.center).max())
    if reach > farthest * (1 + 1e-9):
        raise InfeasibleError(
            f"max_level={farthest:g}: {family} at epsilon={problem.epsilon:g} has levels up to {reach:.6g} "
            "from the middle of the range; raise max_level or epsilon, or choose another family"
        )
    return mechanism, evaluations


_DOUBLINGS = 40
"""A user's family is tried at up to this many doublings and halvings of the requested epsilon."""


def member_of(build: Callable[[float], Mechanism], epsilon: float) -> Mechanism:
    """Find the table of a function of one number with the largest certified epsilon up to
    `epsilon`.

    The number starts at `epsilon` and moves outwards by factors of 2, to the first neighbours of
    which one is within `epsilon` and the other beyond; a bisection follows. Numbers at which the
    function has no table (it raises InfeasibleError, ParameterError, ValueError or ArithmeticError,
    as an overflow is) count as beyond, where no table is.

    Arguments:
        build: the function; its tables' epsilon must not decrease, or not increase, with the
            number.
        epsilon: above 0.

    Raises:
        InfeasibleError: no number that was tried gives a table within `epsilon`.
        ParameterError: the function returns something else than a Mechanism.

    >>> from mezzotint import families
    >>> def response(number): return families.randomized_response(epsilon=math.exp(number) - 1)
    >>> 0.999 < member_of(response, 1.0).epsilon <= 1.0
    True
    """
    within: list[Mechanism] = []

    def spent(number: float) -> float:
        """The epsilon of the table of a number; inf where there is no table."""
        table = _table_or_none(build, number)
        if table is None:
            return math.inf
        if table.epsilon <= epsilon:
            within.append(table)
        return table.epsilon

    inside, beyond = _first_crossing(spent, epsilon)
    if inside is not None and beyond is not None:
        bracket(lambda number: spent(number) <= epsilon, inside, beyond, steps=45, geometric=True)
    if not within:
        raise InfeasibleError(
            f"epsilon={epsilon:g}: no number from epsilon / 2**{_DOUBLINGS} to epsilon * "
            f"2**{_DOUBLINGS} gives a table within it"
        )
    return max(within, key=attrgetter("epsilon"))


def _table_or_none(build: Callable[[float], Mechanism], number: float) -> Mechanism | None:
    try:
        with np.errstate(all="ignore"):
            table = build(number)
    except (MezzotintError, ValueError, ArithmeticError):
        return None
    if not isinstance(cast(object, table), Mechanism):
        remedy = "the function must return a Mechanism"
        raise ParameterError("family", type(table).__name__, remedy)
    return table


def _first_crossing(
    spent: Callable[[float], float], epsilon: float
) -> tuple[float | None, float | None]:
    """Find neighbouring numbers within and beyond epsilon, nearest to `epsilon` itself.

    A finite epsilon beyond goes before a number without a table, which may only lie outside the
    domain of the function. A direction ends where tables end.
    """
    start = spent(epsilon)
    last = {2.0: (epsilon, start), 0.5: (epsilon, start)}
    edge: tuple[float | None, float | None] = (None, None)
    for _ in range(_DOUBLINGS):
        for factor, (number, loss) in list(last.items()):
            moved, moved_loss = number * factor, spent(number * factor)
            last[factor] = moved, moved_loss
            if (loss <= epsilon) == (moved_loss <= epsilon):
                continue
            pair = (number, moved) if loss <= epsilon else (moved, number)
            if math.isfinite(loss) and math.isfinite(moved_loss):
                return pair
            edge = pair if edge == (None, None) else edge
            if math.isfinite(loss):
                del last[factor]
    return edge


def _aims(epsilon: float) -> list[float]:
    """Epsilons to aim at, just below the requested one and then further; a table shows no more than
    log(2**32).
    """
    return [min(epsilon, 32 * math.log(2)) * (1 - margin) for margin in _MARGINS]


def _searched(request: _Calibration, build: Callable[..., SearchedFamily]) -> tuple[Mechanism, int]:
    """Searches at epsilon; then lowers the privacy parameter little by little until the rounded
    table is certified.
    """
    problem, aims = request.problem, _aims(request.problem.epsilon)
    center, half = problem.center, problem.width / 2
    least = (1 + 1e-9) / math.tanh(aims[0] / 2)
    most = min(least * max(_WIDEST, request.count - 1), request.max_level / half)
    family = build(request.count, least, max(least, most), request.unit_bins)
    search = FamilySearch(
        family,
        epsilon=aims[0],
        loss="mae" if problem.loss == "mae" else "mse",
        prior=request.unit_prior(),
    )
    best = search.run()
    for aim in aims:
        search.epsilon = aim
        setting = best if aim == aims[0] else search.best(best.shape)
        if setting.loss == math.inf:
            best = search.run()  # this shape is out of reach at the lower aim
            setting = best
        levels, knots, rows = family.batch(setting.shape, np.array([setting.privacy_parameter]))
        # In data units, with given bins and the ends of the range as they are.
        knots = np.concatenate([[problem.lower], center + half * knots[1:-1], [problem.upper]])
        try:
            mechanism = table(
                knots=knots,
                levels=center + half * levels if request.bins is None else request.bins,
                probabilities=rows[0],
                name=family.name(setting.shape, setting.privacy_parameter, half),
                epsilon=problem.epsilon,
            )
        except InfeasibleError:
            continue
        return mechanism, search.evaluations
    raise InfeasibleError(
        f"epsilon={problem.epsilon:g}: no member of this family survives rounding to 2**32 units; use fewer levels"
    )


def _rqm(request: _Calibration) -> tuple[Mechanism, int]:
    unit = request.unit_bins
    if (
        unit is not None
        and np.abs(unit - np.linspace(-unit[-1], unit[-1], unit.size)).max() > 1e-9 * unit[-1]
    ):
        raise ParameterError(
            "levels", unit.tolist(), "RQM needs evenly spaced bins around the middle of the range"
        )
    return _searched(request, rqm_family)


def _counted(request: _Calibration, family: str) -> int:
    if request.bins is not None:
        remedy = f"the levels of {family} follow from epsilon: give an int"
        raise ParameterError("levels", request.bins.tolist(), remedy)
    return request.count


def _pbm(request: _Calibration) -> tuple[Mechanism, int]:
    problem, trials = request.problem, _counted(request, "pbm") - 1

    def at(theta: float) -> PoissonBinomial:
        return pbm_exact(lower=problem.lower, upper=problem.upper, trials=trials, theta=theta)

    def excess(theta: float, aim: float) -> float:
        return (
            float(float_epsilon(at(theta).pmf(np.array([[problem.lower, problem.upper]])))[0]) - aim
        )

    for tries, aim in enumerate(_aims(problem.epsilon), start=1):
        # epsilon = n log((1/2 + theta) / (1/2 - theta)) = 2 n atanh(2 theta), while no report is
        # rarer than one unit.
        theta = math.tanh(aim / (2 * trials)) / 2
        if excess(theta, aim) < -MARGIN * aim and excess(_THETA, aim) > 0:
            theta = cast(float, brentq(excess, theta, _THETA, args=(aim,), xtol=1e-12))
        raw = at(min(theta, _THETA))
        grid = np.linspace(problem.lower, problem.upper, request.knots)
        rows = raw.pmf(grid)
        name = f"PBM(trials={trials}, theta={raw.theta:.6g})"
        with contextlib.suppress(InfeasibleError):
            return table(
                knots=grid,
                levels=raw.levels,
                probabilities=rows,
                name=name,
                epsilon=problem.epsilon,
            ), tries
    raise InfeasibleError(
        f"epsilon={problem.epsilon:g}: PBM does not survive rounding to 2**32 units; use fewer levels"
    )


def _response(request: _Calibration, family: str) -> tuple[Mechanism, int]:
    levels = _counted(request, family)
    if family == "randomized_response" and levels != 2:
        raise ParameterError(
            "levels", levels, "one-bit response has 2 levels; try k_randomized_response"
        )
    if levels > _MOST_POINTS:
        raise ParameterError(
            "levels", levels, f"rounding levels**2 cells takes too long beyond {_MOST_POINTS}"
        )
    problem = request.problem
    return k_randomized_response(
        lower=problem.lower, upper=problem.upper, levels=levels, epsilon=problem.epsilon
    ), 1


_FAMILIES: dict[str, Callable[[_Calibration], tuple[Mechanism, int]]] = {
    "rqm": _rqm,
    "erm": lambda request: _searched(request, erm_family),
    "pbm": _pbm,
    **{
        name: partial(_response, family=name)
        for name in ("randomized_response", "k_randomized_response")
    },
}


Batch = tuple[FloatArray, FloatArray, FloatArray]
"""Levels (m,), knots (K,) and the rows (D, K, m) of D privacy parameters."""

_MANY_LEVELS = 32
"""Beyond this many levels the arithmetic of a row costs more than the call: fewer positions are
tried at once.
"""

_CLOSEST = 1e-4


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SearchedFamily:
    """A family with one privacy parameter: the rows at many of its values at once, for given shape
    numbers, on [-1, 1].

    The search scans the privacy parameters and refines in between; it starts on the grid of shape
    numbers that `axes` make, and there is only the privacy parameter without one. A large family
    has so long rows that it tries fewer.
    """

    is_large: bool
    privacy_parameters: FloatArray  # (D,) increasing
    axes: list[FloatArray]
    batch: Callable[[FloatArray, FloatArray], Batch]  # of shape numbers and privacy parameters
    name: Callable[
        [FloatArray, float, float], str
    ]  # of shape, privacy parameter and half the range, data units


def rqm_family(levels: int, least: float, most: float, bins: FloatArray | None) -> SearchedFamily:
    """RQM: the privacy parameter is q, the shape number the log of the outermost bin, `least` to
    `most` half ranges.
    """
    is_large = levels > _MANY_LEVELS
    inner = 1 / (1 + np.exp(-np.linspace(-9, 9, 13 if is_large else 37)))
    axis = np.linspace(math.log(least), math.log(most), 12 if is_large else 32)

    def extension(shape: FloatArray) -> float:
        return max((math.exp(shape[0]) if bins is None else float(bins[-1])) - 1, 0.0)

    return SearchedFamily(
        is_large=is_large,
        privacy_parameters=np.concatenate([[0.0], inner, [1.0]]),
        axes=[axis] if bins is None else [],
        batch=lambda shape, q: rqm_rows(
            lower=-1.0, upper=1.0, levels=levels, extension=extension(shape), q=q
        ),
        name=lambda shape, q, half: (
            f"RQM(levels={levels}, extension={extension(shape) * half:.6g}, q={q:.6g})"
        ),
    )


def erm_family(levels: int, least: float, most: float, bins: FloatArray | None) -> SearchedFamily:
    """ERM on symmetric bins +-R u**p, u even on [0, 1]: the privacy parameter is gamma, the shape
    (log R, log p).
    """
    even, axes = np.linspace(-1, 1, levels), [np.linspace(math.log(least), math.log(most), 12)]
    if levels >= 4:  # there is an inner bin to move
        # Bins closer together than this share of R would only be one bin twice, and are beyond
        # rounding.
        first = 2 / (levels - 1) if levels % 2 else 1 / (levels - 1)
        axes.append(
            np.linspace(math.log(0.25), math.log(min(8.0, math.log(_CLOSEST) / math.log(first))), 9)
        )

    def batch(shape: FloatArray, gamma: FloatArray) -> Batch:
        chosen = bins
        if chosen is None:
            power = math.exp(shape[1]) if len(shape) > 1 else 1.0
            chosen = math.exp(shape[0]) * np.sign(even) * np.abs(even) ** power
        return chosen, *erm_rows(chosen, lower=-1.0, upper=1.0, gamma=gamma)

    return SearchedFamily(
        is_large=levels > _MANY_LEVELS,
        privacy_parameters=np.sinh(
            np.linspace(-math.asinh(400), math.asinh(400), 21 if levels > _MANY_LEVELS else 41)
        ),
        axes=axes if bins is None else [],
        batch=batch,
        name=lambda shape, gamma, half: f"ERM(levels={levels}, gamma={gamma:.6g})",
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """The best member found: its shape numbers, privacy parameter and float loss on [-1, 1]."""

    loss: float
    epsilon: float
    shape: FloatArray
    privacy_parameter: float


def float_epsilon(rows: FloatArray) -> FloatArray:
    """(D,) pure epsilons of batched rows as a table would have them: what is possible has one unit
    at least.
    """
    kept = np.where(rows > 0, np.maximum(rows, 1.0 / TOTAL), 0.0)
    high, low = kept.max(axis=-2), kept.min(axis=-2)
    with np.errstate(divide="ignore"):
        ratios = np.log(np.where(high > 0, high, 1.0)) - np.log(np.where(high > 0, low, 1.0))
    return ratios.max(axis=-1)


def _apart(members: list[Member], axes: list[FloatArray], most: int) -> list[Member]:
    """The first feasible members of a sorted list that are no neighbours of each other on the
    grid.
    """
    steps = np.array([axis[1] - axis[0] for axis in axes])
    chosen: list[Member] = []
    for member in members:
        distances = [np.abs(member.shape - other.shape) for other in chosen]
        is_apart = all((distance > 1.5 * steps).any() for distance in distances)
        if member.loss < math.inf and is_apart and len(chosen) < most:
            chosen.append(member)
    return chosen


_STARTS = 2
"""Places on the grid of shapes from which a simplex search starts; one for large families."""

_HALVINGS = 26
"""Of an interval between two scanned privacy parameters."""


@final
class FamilySearch:
    """Minimise the loss of a family's members whose float epsilon is at most `epsilon`.

    Shapes are minimised over by scipy, and for each shape the privacy parameter by a scan and
    bisections. `evaluations` counts shapes.
    """

    def __init__(
        self, family: SearchedFamily, *, epsilon: float, loss: Literal["mse", "mae"], prior: Prior
    ) -> None:
        self.family = family
        self.epsilon = epsilon
        self.loss: Literal["mse", "mae"] = loss
        self.prior = prior
        self.evaluations = 0

    def _evaluate(self, shape: FloatArray, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(D,) losses and epsilons."""
        levels, knots, rows = self.family.batch(shape, parameters)
        costs = cost_matrix(knots=knots, levels=levels, prior=self.prior, loss=self.loss)
        return np.einsum("dkm,km->d", rows, costs), float_epsilon(rows)

    def _edge(self, shape: FloatArray, inside: float, outside: float) -> float:
        """The parameter next to `outside` that still meets epsilon."""

        def meets(parameter: float) -> bool:
            _, _, rows = self.family.batch(shape, np.array([parameter]))
            return bool(float_epsilon(rows)[0] <= self.epsilon)

        return bracket(meets, inside, outside, steps=_HALVINGS)[0]

    def best(self, shape: FloatArray) -> Member:
        """The best member of a shape; loss inf, with the least epsilon, if none meets epsilon.

        Epsilon need not be monotone in the privacy parameter: the best scanned one that meets it is
        a candidate, and so is every place where it crosses, unless both ends are worse than that.
        """
        self.evaluations += 1
        parameters = self.family.privacy_parameters
        losses, epsilons = self._evaluate(shape, parameters)
        meets = epsilons <= self.epsilon
        if not meets.any():
            least = int(np.argmin(epsilons))
            return Member(
                loss=math.inf,
                epsilon=float(epsilons[least]),
                shape=shape,
                privacy_parameter=float(parameters[least]),
            )
        best = int(np.argmin(np.where(meets, losses, np.inf)))
        promising = np.minimum(losses[:-1], losses[1:]) <= losses[best]
        candidates = [float(parameters[best])]
        for left in np.flatnonzero((meets[:-1] != meets[1:]) & promising).tolist():
            ends = float(parameters[left]), float(parameters[left + 1])
            inside, outside = ends if meets[left] else ends[::-1]
            candidates.append(self._edge(shape, inside, outside))
        losses, epsilons = self._evaluate(shape, np.array(candidates))
        best = int(np.argmin(losses))
        return Member(
            loss=float(losses[best]),
            epsilon=float(epsilons[best]),
            shape=shape,
            privacy_parameter=candidates[best],
        )

    def run(self) -> Member:
        """The best member found: a grid of shapes, then scipy's simplex search from the best.

        Raises:
            InfeasibleError: no shape of the grid meets epsilon.
        """
        axes = self.family.axes
        shapes = np.zeros((1, 0))
        if axes:
            shapes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        members = sorted((self.best(shape) for shape in shapes), key=attrgetter("loss"))
        if axes:
            starts = _apart(members, axes, 1 if self.family.is_large else _STARTS)
            members += [self._improve(start) for start in starts]
        best = min(members, key=attrgetter("loss"))
        if best.loss == math.inf:
            least = min(member.epsilon for member in members)
            raise InfeasibleError(
                f"epsilon={self.epsilon:g}: this family reaches no less than epsilon={least:.6g} on "
                "these levels; ask for a larger epsilon, give an int to have the levels chosen, or "
                "raise max_level"
            )
        return best

    def _improve(self, start: Member) -> Member:
        """The best member that a simplex search from `start` meets."""
        tried = [start]

        def loss(shape: FloatArray) -> float:
            tried.append(self.best(np.array(shape)))
            return min(tried[-1].loss, 1e300)

        lows, highs, steps = np.transpose(
            [(axis[0], axis[-1], axis[1] - axis[0]) for axis in self.family.axes]
        )
        corners = np.stack([start.shape, *(start.shape + np.diag(steps) / 2)])
        options = {
            "initial_simplex": np.clip(corners, lows, highs),
            "xatol": 1e-4,
            "fatol": 1e-7 * start.loss,
            "maxfev": 30 * lows.size,
        }
        bounds = list(zip(lows, highs, strict=True))
        minimize(loss, start.shape, method="Nelder-Mead", bounds=bounds, options=options)
        return min(tried, key=attrgetter("loss"))
