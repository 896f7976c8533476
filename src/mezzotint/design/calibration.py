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
from typing import Literal, NamedTuple, cast, final

import numpy as np
from scipy.optimize import brentq

from mezzotint.core.arguments import (
    Values,
    check_choice,
    check_count,
    check_covering,
    check_epsilon,
    check_finite,
    check_range,
)
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError, as_array
from mezzotint.core.laws import cell_means
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import Prior, SamplePrior, UniformPrior, as_prior
from mezzotint.core.rounding import MARGIN, table
from mezzotint.core.search import bracket
from mezzotint.core.types import MAX_LEVELS, FloatArray
from mezzotint.design.constraints import LEAST_EPSILON, Pure
from mezzotint.design.family_search import (
    FamilySearch,
    Member,
    SearchedFamily,
    erm_family,
    float_epsilon,
    rqm_family,
)
from mezzotint.design.problem import DesignResult, Problem, without_bound
from mezzotint.families.numeric import PoissonBinomial, pbm_exact
from mezzotint.families.response import k_randomized_response

_MARGINS = tuple(MARGIN * 4.0**exponent for exponent in range(9))
"""How far below epsilon a search aims: the first for which the rounded table is certified is
taken.
"""

_WIDEST = 16.0
"""Bins are searched this many times as far out as unbiased reports need, or levels - 1 times where
that is more: so far out the two innermost bins of an even grid alone are randomized response."""

_MOST_POINTS = 1024
"""Of k-ary response."""

_MOST_SEARCHED = 256
"""Levels of a family whose shape is searched: each member takes their number cubed."""

_REACH_TOLERANCE = 1e-9
"""Relative: by how much levels may lie beyond `max_level`."""

_MOST_VISIBLE_EPSILON = 32 * math.log(2)
"""The largest that a table of 2**32 units can show."""

_DEFAULT_LEVELS = 4

_LARGEST_THETA = 0.5 - 1e-10
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
        return SamplePrior(
            points=problem.centered(cells.points),
            masses=cells.masses,
        )


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
            "randomized_response" (one bit) or "k_randomized_response": nothing left to search. Or a
            function from a number > 0 to a Mechanism, whose epsilon must not decrease (or not
            increase) with it: the largest certified epsilon up to `epsilon` is taken.
        epsilon: pure, of one report, > 0 and finite.
        levels: their number (None: 4, or 2 for randomized response). "erm" also takes the bins
            themselves, "rqm" evenly spaced symmetric ones; then only gamma or q is searched.
        loss: "mse" or "mae"; an MAE may keep falling as bins move out: see max_level.
        lower, upper, prior: as in `optimal`; a prior from private data is a release here, too.
        max_level: for "rqm" and "erm" the largest distance of a bin from the middle of the range,
            data units; None: 16 (or levels - 1, if more) times what an unbiased report needs.
        knots: for "pbm": evenly spaced inputs at which the table has the exact pmf.

    Returns: status "calibrated", no lower bound and no gap: the search is local.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
        InfeasibleError: the family cannot reach epsilon; says what it can.
    Guarantees: result.mechanism.epsilon <= epsilon, in its integers; result.loss is the mechanism's
        own loss under the prior, not the search's estimate.
    Edge cases: epsilon above log(2**32) = 22.2 gives a table below that.
    Example:
        >>> result = mz.design.calibrate("rqm", epsilon=1.0, levels=4)
        >>> 0.999 < result.mechanism.epsilon <= 1.0
        True
    """
    started = time.perf_counter()
    low, high = check_range(lower, upper)
    inputs = as_prior(prior, lower=low, upper=high)
    constraint = Pure(epsilon=check_epsilon(epsilon))
    check_choice("loss", loss, ("mse", "mae"))
    problem = Problem(constraint=constraint, lower=low, upper=high, loss=loss, prior=inputs)
    if callable(family):
        mechanism, evaluations = _of_function(family, problem, max_level), 1
    else:
        mechanism, evaluations = _of_name(family, problem, levels, max_level, knots)
    measures = {"mse": mechanism.mse, "mae": mechanism.mae}
    return without_bound(
        mechanism,
        loss=measures[loss](inputs),
        status="calibrated",
        started=started,
        iterations=evaluations,
    )


def _of_function(
    family: Callable[[float], Mechanism],
    problem: Problem,
    max_level: float | None,
) -> Mechanism:
    if max_level is not None:
        remedy = "a function has no levels to limit; omit it"
        raise ParameterError("max_level", max_level, remedy)
    return member_of(family, problem.epsilon)


def _of_name(
    family: str,
    problem: Problem,
    levels: int | Values | None,
    max_level: float | None,
    knots: int,
) -> tuple[Mechanism, int]:
    """The table of a family by name, and how many were evaluated."""
    if family not in _FAMILIES:
        raise ParameterError("family", family, f"known families: {', '.join(_FAMILIES)}")
    if levels is None:
        levels = _DEFAULT_LEVELS
        if family == "randomized_response":
            levels = 2
    request = _checked_request(problem, levels, max_level, knots)
    return _within_reach(family, request)


def _checked_request(
    problem: Problem,
    levels: int | Values,
    max_level: float | None,
    knots: int,
) -> _Calibration:
    """The request of a family, data units: a number of levels, or (m,) increasing ones that cover
    the range, and the number of knots; a `max_level` of None sets no limit.
    """
    bins = None
    if as_array("levels", levels, "need a number of levels, or numbers").ndim != 0:
        bins = check_covering(
            "levels",
            levels,
            lower=problem.lower,
            upper=problem.upper,
        )
    if problem.epsilon < LEAST_EPSILON:
        remedy = "2**32 units cannot tell inputs so little apart; ask for 1e-8 or more"
        raise ParameterError("epsilon", problem.epsilon, remedy)
    if bins is None:
        level_count = check_count("levels", levels, least=2, most=MAX_LEVELS)
    else:
        level_count = bins.size
    farthest = math.inf
    if max_level is not None:
        farthest = check_finite("max_level", max_level)
    return _Calibration(
        problem=problem,
        count=level_count,
        bins=bins,
        max_level=farthest,
        knots=check_count("knots", knots, least=2, most=MAX_LEVELS),
    )


def _within_reach(family: str, request: _Calibration) -> tuple[Mechanism, int]:
    """The member of a family, whose levels reach no farther than allowed, and how many evaluations
    the search took.
    """
    problem = request.problem
    farthest = request.max_level
    # E[B | upper] - E[B | lower] = 2 c is at most 2 R tanh(epsilon / 2), the most that two
    # distributions with likelihood ratio e**epsilon can differ in mean on [-R, R].
    needed = problem.width / 2 / math.tanh(problem.epsilon / 2)
    if farthest < needed:
        raise InfeasibleError(
            f"max_level={farthest:g}: an unbiased report at epsilon={problem.epsilon:g} needs "
            f"levels {needed:.6g} from the middle of the range; raise max_level or epsilon"
        )
    mechanism, evaluations = _FAMILIES[family](request)
    reach = float(np.abs(mechanism.levels - problem.center).max())
    if reach > farthest * (1 + _REACH_TOLERANCE):
        raise InfeasibleError(
            f"max_level={farthest:g}: {family} at epsilon={problem.epsilon:g} has levels up to "
            f"{reach:.6g} from the middle of the range; raise max_level or epsilon, or choose "
            "another family"
        )
    return mechanism, evaluations


_DOUBLINGS = 40
"""A user's family is tried at up to this many doublings and halvings of the requested epsilon."""

_BISECTIONS = 45
"""Of the last doubling."""


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
    tables_within: list[Mechanism] = []

    def spent(number: float) -> float:
        """The epsilon of the table of a number; inf where there is no table."""
        table = _table_or_none(build, number)
        if table is None:
            return math.inf
        if table.epsilon <= epsilon:
            tables_within.append(table)
        return table.epsilon

    crossing = _first_crossing(spent, epsilon)
    if crossing is not None:
        bracket(
            lambda number: spent(number) <= epsilon,
            crossing.within,
            crossing.beyond,
            steps=_BISECTIONS,
            geometric=True,
        )
    if not tables_within:
        raise InfeasibleError(
            f"epsilon={epsilon:g}: no number from epsilon / 2**{_DOUBLINGS} to epsilon * "
            f"2**{_DOUBLINGS} gives a table within it"
        )
    return max(tables_within, key=attrgetter("epsilon"))


def _table_or_none(
    build: Callable[[float], Mechanism],
    number: float,
) -> Mechanism | None:
    """The table that a user's function builds from a number; None where it refuses the number."""
    try:
        with np.errstate(all="ignore"):
            table = build(number)
    except (MezzotintError, ValueError, ArithmeticError):
        return None
    if not isinstance(cast(object, table), Mechanism):
        remedy = "the function must return a Mechanism"
        raise ParameterError("family", type(table).__name__, remedy)
    return table


class _Crossing(NamedTuple):
    """Two neighbouring numbers, one within epsilon and the other beyond."""

    within: float
    beyond: float


class _Trial(NamedTuple):
    """A number and the epsilon of its table; inf where there is no table."""

    number: float
    epsilon: float


def _first_crossing(
    spent: Callable[[float], float],
    epsilon: float,
) -> _Crossing | None:
    """Find neighbouring numbers within and beyond epsilon, nearest to `epsilon` itself.

    A finite epsilon beyond goes before a number without a table, which may only lie outside the
    domain of the function. A direction ends where tables end.
    """
    start = _Trial(epsilon, spent(epsilon))
    last_trials = {2.0: start, 0.5: start}
    domain_edge: _Crossing | None = None
    for _ in range(_DOUBLINGS):
        for factor, last in list(last_trials.items()):
            number = last.number * factor
            trial = _Trial(number, spent(number))
            last_trials[factor] = trial
            if (last.epsilon <= epsilon) == (trial.epsilon <= epsilon):
                continue
            crossing = _Crossing(trial.number, last.number)
            if last.epsilon <= epsilon:
                crossing = _Crossing(last.number, trial.number)
            if math.isfinite(last.epsilon) and math.isfinite(trial.epsilon):
                return crossing
            domain_edge = domain_edge or crossing
            if math.isfinite(last.epsilon):
                del last_trials[factor]
    return domain_edge


def _aims(epsilon: float) -> list[float]:
    """Epsilons to aim at, just below the requested one and then further; a table shows no more than
    log(2**32).
    """
    visible_epsilon = min(epsilon, _MOST_VISIBLE_EPSILON)
    return [visible_epsilon * (1 - margin) for margin in _MARGINS]


def _searched(
    request: _Calibration,
    build: Callable[..., SearchedFamily],
) -> tuple[Mechanism, int]:
    """Searches at epsilon; then lowers the privacy parameter little by little until the rounded
    table is certified.
    """
    if request.count > _MOST_SEARCHED:
        remedy = f"at most {_MOST_SEARCHED} where a family is searched; use fewer"
        raise ParameterError("levels", request.count, remedy)
    problem = request.problem
    aims = _aims(problem.epsilon)
    half_range = problem.width / 2
    nearest = (1 + 1e-9) / math.tanh(aims[0] / 2)
    farthest = min(nearest * max(_WIDEST, request.count - 1), request.max_level / half_range)
    family = build(request.count, nearest, max(nearest, farthest), request.unit_bins)
    search = FamilySearch(
        family,
        epsilon=aims[0],
        loss="mae" if problem.loss == "mae" else "mse",
        prior=request.unit_prior(),
    )
    best_member = search.run()
    for aim in aims:
        search.epsilon = aim
        member = best_member if aim == aims[0] else search.best(best_member.shape)
        if member.loss == math.inf:
            best_member = search.run()  # this shape is out of reach at the lower aim
            member = best_member
        try:
            mechanism = _table_of(request, family, member)
        except InfeasibleError:
            continue
        return mechanism, search.evaluations
    raise InfeasibleError(
        f"epsilon={problem.epsilon:g}: no member of this family survives rounding to 2**32 units; "
        "use fewer levels"
    )


def _table_of(
    request: _Calibration,
    family: SearchedFamily,
    member: Member,
) -> Mechanism:
    """The rounded table of a member, in data units; InfeasibleError where it exceeds epsilon."""
    problem = request.problem
    half_range = problem.width / 2
    parameter = member.privacy_parameter
    unit_levels, unit_knots, rows = family.batch(member.shape, np.array([parameter]))
    # Given bins and the ends of the range stay as they are.
    levels = request.bins
    if levels is None:
        levels = problem.center + half_range * unit_levels
    inner_knots = problem.center + half_range * unit_knots[1:-1]
    return table(
        knots=np.concatenate([[problem.lower], inner_knots, [problem.upper]]),
        levels=levels,
        probabilities=rows[0],
        name=family.name(member.shape, parameter, half_range),
        epsilon=problem.epsilon,
    )


def _rqm(request: _Calibration) -> tuple[Mechanism, int]:
    bins = request.unit_bins
    if bins is not None:
        even_bins = np.linspace(-bins[-1], bins[-1], bins.size)
        if np.abs(bins - even_bins).max() > 1e-9 * bins[-1]:
            remedy = "RQM needs evenly spaced bins around the middle of the range"
            raise ParameterError("levels", bins.tolist(), remedy)
    return _searched(request, rqm_family)


def _counted(request: _Calibration, family: str) -> int:
    if request.bins is not None:
        remedy = f"the levels of {family} follow from epsilon: give an int"
        raise ParameterError("levels", request.bins.tolist(), remedy)
    return request.count


def _pbm(request: _Calibration) -> tuple[Mechanism, int]:
    """The Poisson binomial mechanism whose table, once rounded, keeps within the epsilon, and how
    many aims that took.
    """
    problem = request.problem
    trials = _counted(request, "pbm") - 1

    def raw_mechanism(theta: float) -> PoissonBinomial:
        return pbm_exact(
            lower=problem.lower,
            upper=problem.upper,
            trials=trials,
            theta=theta,
        )

    def excess(theta: float, aim: float) -> float:
        end_rows = raw_mechanism(theta).pmf(np.array([[problem.lower, problem.upper]]))
        return float(float_epsilon(end_rows)[0]) - aim

    for attempt, aim in enumerate(_aims(problem.epsilon), start=1):
        # epsilon = n log((1/2 + theta) / (1/2 - theta)) = 2 n atanh(2 theta), while no report is
        # rarer than one unit.
        theta = math.tanh(aim / (2 * trials)) / 2
        if excess(theta, aim) < -MARGIN * aim and excess(_LARGEST_THETA, aim) > 0:
            theta = cast(
                float,
                brentq(
                    excess,
                    theta,
                    _LARGEST_THETA,
                    args=(aim,),
                    xtol=1e-12,
                ),
            )
        raw_table = raw_mechanism(min(theta, _LARGEST_THETA))
        inputs = np.linspace(problem.lower, problem.upper, request.knots)
        with contextlib.suppress(InfeasibleError):
            mechanism = table(
                knots=inputs,
                levels=raw_table.levels,
                probabilities=raw_table.pmf(inputs),
                name=f"PBM(trials={trials}, theta={raw_table.theta:.6g})",
                epsilon=problem.epsilon,
            )
            return mechanism, attempt
    raise InfeasibleError(
        f"epsilon={problem.epsilon:g}: PBM does not survive rounding to 2**32 units; "
        "use fewer levels"
    )


def _response(request: _Calibration, family: str) -> tuple[Mechanism, int]:
    """k-randomized response at the epsilon; nothing is searched, so it is the first attempt."""
    levels = _counted(request, family)
    if family == "randomized_response" and levels != 2:
        remedy = "one-bit response has 2 levels; try k_randomized_response"
        raise ParameterError("levels", levels, remedy)
    if levels > _MOST_POINTS:
        remedy = f"rounding levels**2 cells takes too long beyond {_MOST_POINTS}"
        raise ParameterError("levels", levels, remedy)
    problem = request.problem
    mechanism = k_randomized_response(
        lower=problem.lower,
        upper=problem.upper,
        levels=levels,
        epsilon=problem.epsilon,
    )
    return mechanism, 1


_FAMILIES: dict[str, Callable[[_Calibration], tuple[Mechanism, int]]] = {
    "rqm": _rqm,
    "erm": lambda request: _searched(request, erm_family),
    "pbm": _pbm,
    "randomized_response": partial(_response, family="randomized_response"),
    "k_randomized_response": partial(_response, family="k_randomized_response"),
}
