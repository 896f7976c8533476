"""The optimum at given levels under pure epsilon: floors found to a proven gap, then integer windows.

The optimum at given levels and knots beyond pure epsilon: constraints on pairs of rows, added as they are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import cast, final

import numpy as np
from scipy.special import logsumexp

from mezzotint.core import rounding
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.loss import IndexArray
from mezzotint.core.mechanism import TOTAL, FloatArray, Mechanism
from mezzotint.core.priors import (
    SamplePrior,
    UniformPrior,
    centred_atoms,
    condensed,
    exact_law,
    has_few_atoms,
    law_of,
    split_atoms,
)
from mezzotint.design import program as programs
from mezzotint.design.floors import (
    CLOSE,
    average,
    best_ends,
    best_floors,
    bound_with,
    costs_of_atoms,
    make_windows,
    peaks,
)
from mezzotint.design.problem import (
    FloatDesign,
    IntegerWindows,
    Problem,
    integer_windows,
    refitted,
    table,
    without_unused,
)
from mezzotint.design.program import Program, ProgramPart, Solution, SolverError, price_of_means, safe_bound, solve
from mezzotint.privacy.tradeoff import metric_epsilon, spacing_of

ON_KNOTS = "tables with these levels on these knots"
AT_LEVELS = "all mechanisms with these levels"

_BETWEEN = (0.25, 0.5, 0.75)
_ROUNDS = 12
_WORST = 32
"""Inputs at first, and new ones a round at most."""
_TARGET = 1e-7
_BINDING = 1 - 1e-6
"""Share of the largest error from which on an input's error counts as one that binds."""
_SPREADS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Over how much of half the range point masses are spread, one after another."""
_FEW_ENTRIES = 4000
"""Point masses times levels up to which a linear program is solved at the masses."""


def centered(problem: Problem, values: FloatArray) -> FloatArray:
    """Data units to units of half the range, centred."""
    return (values - problem.center) / (problem.width / 2)


def ratio_above(epsilon: float) -> float:
    """A float at or above e**epsilon: bounds hold for every mechanism of this epsilon."""
    return math.exp(epsilon) * (1 + 2.0**-50)


def program_on(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray,
    privacy: ProgramPart,
    *,
    costs: FloatArray | None = None,
    between: tuple[float, ...] = _BETWEEN,
) -> Program:
    """The table program of docs/proofs/design.md at these levels and knots, data units.

    Arguments:
        privacy: `ratio_part` for pure epsilon.
        costs: those of the problem, where they are known.
        between: where else between two knots the largest error counts, for loss "minimax".
    """
    target_means, units = centered(problem, knots), centered(problem, levels)
    errors = partial(programs.worst_error_part, target_means=target_means, levels=units, between=between)
    return programs.assemble(
        target_means=target_means,
        levels=units,
        costs=problem.costs(knots, levels) if costs is None else costs,
        parts=[privacy, errors] if problem.loss == "minimax" else [privacy],
        max_bias=problem.max_bias / (problem.width / 2),
        worst=programs.largest_error(units) if problem.loss == "minimax" else 0.0,
    )


def _reaching(units: FloatArray, solution: Solution, epsilon: float) -> FloatArray:
    """A cone solver's floors (m,), moved as little as it takes towards such whose windows reach both ends of the range.

    They may miss the ends by its tolerance, which is nothing beside far levels and much beside the range. Floors that
    reach are a convex set.
    """
    ratio, floors = math.exp(epsilon), solution.floors * math.exp(-epsilon / 2)
    if _misses(units, floors, ratio) <= CLOSE:
        return floors
    reached = _inside(tuple(units.tolist()), ratio)
    for share in np.geomspace(1e-9, 1.0, 46):
        mixed = (1 - share) * floors + share * reached
        if _misses(units, mixed, ratio) <= CLOSE:
            return mixed
    return reached


@lru_cache(maxsize=16)
def _inside(units: tuple[float, ...], ratio: float) -> FloatArray:
    """The floors of the best average error."""
    return best_floors(np.array(units), ratio, law_of(UniformPrior(), -1.0, 1.0), "mse").floors


def _misses(units: FloatArray, floors: FloatArray, ratio: float) -> float:
    """By how much windows fail to reach the ends of the range, in half ranges."""
    means = make_windows(units, floors, ratio).means
    return max(float(means[0]) + 1, 1 - float(means[-1]))


def _by_newton(problem: Problem, levels: FloatArray) -> FloatDesign:
    """The best floors for the average over the prior, whose point masses are spread less and less."""
    units, ratio, half = centered(problem, levels), ratio_above(problem.epsilon), problem.width / 2
    loss, span = "mae" if problem.loss == "mae" else "mse", (problem.lower, problem.upper)
    prior, between = condensed(problem.prior, *span)
    few = has_few_atoms(prior)
    optimum, floors, least, bound, price, iterations = None, np.zeros(units.size), math.inf, -math.inf, 0.0, 0
    for spread in _SPREADS if few else _SPREADS[:1]:
        law, share = law_of(prior, *span, spread=spread), 1.0 if optimum is None else spread
        optimum = best_floors(units, ratio, law, loss, near=optimum, share=share)
        windows = make_windows(units, optimum.floors, ratio, split=loss == "mae")
        # The multipliers are the law's; what they bound is the prior's own loss.
        edges = np.unique(np.clip(np.concatenate([[-1.0], windows.means, [1.0]]), -1.0, 1.0))
        value = average(windows, exact_law(prior, *span, edges), loss)
        if few:
            points, masses = centred_atoms(cast(SamplePrior, prior), *span)
            parts = split_atoms(points, masses, np.clip(windows.means, -1.0, 1.0), spread)
            constant, cost = costs_of_atoms(points, parts, windows, loss)
        else:
            constant, cost = float(value.loss - optimum.floors @ value.by_floor), value.by_floor
        ends, height = optimum.ends, bound_with(constant, cost, units, optimum.ends, ratio)
        if value.loss - height > _TARGET * value.loss:
            exact = best_ends(cost, units, ratio)
            better = bound_with(constant, cost, units, exact, ratio)
            ends, height = (exact, better) if better > height else (ends, height)
        # Per piece the multiplier of the mean is a sum of two levels (MSE), or at most 1 (MAE).
        price = (1.0 if loss == "mae" else 2 * float(np.ptp(units))) + float(np.abs(ends[:, 1]).sum())
        bound, iterations, before = max(bound, height), iterations + optimum.iterations, least
        if value.loss < least:
            least, floors = float(value.loss), optimum.floors
        if least - bound <= _TARGET * least or least > before * (1 - 1e-12):
            break
    scale, less = (half, math.sqrt(between)) if loss == "mae" else (half**2, between)
    bound, price = bound * scale - less, price * scale / half
    return FloatDesign(floors=floors, lower_bound=bound, scope=AT_LEVELS, iterations=iterations, price=price)


def _on_knots(
    problem: Problem, levels: FloatArray, knots: FloatArray, between: tuple[float, ...] = _BETWEEN
) -> FloatDesign:
    """The table program on these knots."""
    least, above = problem.epsilon, math.nextafter(problem.epsilon, math.inf)
    given, asked = (
        program_on(problem, levels, knots, partial(programs.ratio_part, epsilon=epsilon), between=between)
        for epsilon in (least, above)
    )
    solution = solve(given)
    floors = _reaching(centered(problem, levels), solution, problem.epsilon)
    return replace(_draft(problem, asked, levels, solution), floors=floors)


def _draft(problem: Problem, asked: Program, levels: FloatArray, solution: Solution) -> FloatDesign:
    """The design that a solution's multipliers prove: with some pairs of rows a bound of the program with all."""
    half = problem.width / 2
    unit = half**2 if problem.loss == "minimax" else 1.0
    price = price_of_means(asked, solution.dual, centered(problem, levels)) if problem.max_bias < math.inf else 0.0
    bound = safe_bound(asked, solution.dual) * unit
    return FloatDesign(lower_bound=bound, scope=ON_KNOTS, iterations=solution.iterations, price=price * unit / half)


def _by_worst_inputs(problem: Problem, levels: FloatArray) -> FloatDesign:
    """For the largest error over the inputs: rows at some inputs, and at the worst of windows until none is worse."""
    half = problem.width / 2
    inputs = np.linspace(problem.lower, problem.upper, _WORST + 1)
    floors, least, bound, price, iterations = np.zeros(levels.size), math.inf, -math.inf, 0.0, 0
    for _ in range(_ROUNDS):
        draft = _on_knots(problem, levels, inputs, between=())
        bound, price = max(bound, draft.lower_bound or bound), max(price, draft.price)
        iterations += draft.iterations
        windows = make_windows(centered(problem, levels), draft.floors, ratio_above(problem.epsilon))
        worst, errors = (part * scale for part, scale in zip(peaks(windows), (half, half**2), strict=False))
        if errors.max() < least:
            least, floors = float(errors.max()), draft.floors
        if least - bound <= 10 * _TARGET * least:
            break
        # Of neighbours that are as bad the worst are enough; inputs that do not bind (but the ends) are let go.
        order, units = np.argsort(-errors, kind="stable")[:_WORST], centered(problem, inputs)
        worst = problem.center + worst[order[errors[order] > bound]]
        moments = np.interp(units, windows.means, windows.rows @ windows.levels**2)
        kept = ((moments - units**2) * half**2 >= _BINDING * bound) | (np.abs(units) == 1)
        inputs = np.union1d(inputs[kept], np.clip(worst, problem.lower, problem.upper))
    return FloatDesign(floors=floors, lower_bound=bound, scope=AT_LEVELS, iterations=iterations, price=price)


def floors_at(problem: Problem, levels: FloatArray, knots: FloatArray | None) -> FloatDesign:
    """The best floors of an unbiased design under pure epsilon; feasibility is settled already."""
    try:
        if knots is not None:
            return _on_knots(problem, levels, knots)
        if problem.loss == "minimax":
            return _by_worst_inputs(problem, levels)
        prior = problem.prior
        if isinstance(prior, SamplePrior) and prior.points.size * levels.size <= _FEW_ENTRIES:
            # Only the rows at these inputs matter: the bound is one for all mechanisms.
            points = np.unique(np.concatenate([[problem.lower], prior.points, [problem.upper]]))
            return replace(_on_knots(problem, levels, points), scope=AT_LEVELS)
    except SolverError:
        pass  # levels that reach barely far enough leave a cone solver no interior
    return _by_newton(problem, levels)


def design_fixed(
    problem: Problem, levels: FloatArray, knots: FloatArray | None, *, free: bool = False
) -> tuple[FloatDesign, Mechanism]:
    """The optimal pure-epsilon table at these levels; feasibility is settled already.

    Arguments:
        knots: data units; None puts them where the best rows bend (unbiased problems).
        free: whether the levels may be moved by a little, so that nothing but float error is left of the bias.
    """
    draft = floors_at(problem, levels, knots)
    span = {"lower": problem.lower, "upper": problem.upper}
    windows = integer_windows(levels, draft.floors, epsilon=problem.epsilon, **span)
    if free and knots is None:
        levels = refitted(windows, levels, problem.lower, problem.upper)
        windows = IntegerWindows(levels, windows.floors, windows.ratio)
        draft = floors_at(problem, levels, None)
    return draft, table(windows, levels, knots=knots, **span)


_UNITS = (0, 0, 0, 0, *(2 * 4**k for k in range(11)))
"""Units by which rounding may move a weight, one try after another, until the integers are certified."""

_MARGIN, _MOST = 2.0**-30, 1e-2
"""Least and largest relative reduction of epsilon, for solver and rounding."""

_SMALL = 1e-4
"""What is overspent by so little (relative) is made up for by asking for less."""

_VIOLATION, _SLACK = 1e-8, 1e-5
_PAIR_ROUNDS = 30
_BESIDE = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
"""Steps from a pair of knots to itself and its neighbours."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class KnottedProblem:
    """A problem at fixed levels and knots, with what its program is made of.

    Arguments:
        spare_rounding: whether delta is reduced by what rounding may add: for a table; a bound uses all of it.
        spare: by how much any probability may be off while metrics and Renyi divergences still hold.
    """

    problem: Problem
    levels: FloatArray
    knots: FloatArray
    spare_rounding: bool = True
    spare: float = 0.0

    @cached_property
    def costs(self) -> FloatArray:
        """(K, m) of the problem."""
        return self.problem.costs(self.knots, self.levels)

    def part(self, pairs: IndexArray, epsilon: float) -> ProgramPart:
        """The privacy constraint, on these pairs of rows unless it is pure."""
        problem = self.problem
        if problem.is_pure:
            return partial(programs.ratio_part, epsilon=epsilon)
        if problem.delta > 0:
            delta = self.delta if self.spare_rounding else problem.delta
            return partial(programs.delta_part, pairs=pairs, epsilon=epsilon, delta=delta)
        if problem.alpha is not None:
            return partial(programs.renyi_part, pairs=pairs, alpha=problem.alpha, epsilon=epsilon, spare=self.spare)
        distance = np.abs(self.knots[pairs[:, 0]] - self.knots[pairs[:, 1]])
        is_absolute = problem.metric == "absolute"
        ratios = 1 + epsilon * distance if is_absolute else np.exp(np.minimum(epsilon * distance**2, 40.0))
        return partial(programs.pair_ratio_part, pairs=pairs, ratios=ratios, spare=self.spare)

    @property
    def delta(self) -> float:
        """delta less what rounding to integers can add to the hockey-stick divergence of two rows."""
        room = 2 * self.levels.size * (1 + math.exp(self.problem.epsilon)) / TOTAL
        if self.problem.delta <= 2 * room:
            least = "no delta at this epsilon" if 2 * room >= 1 else f"no delta up to {2 * room:.2g}"
            raise ParameterError("delta", self.problem.delta, f"a 32-bit table resolves {least}; use delta=0")
        return self.problem.delta - room

    def excess(self, rows: FloatArray, epsilon: float) -> FloatArray:
        """(R, R) how far each ordered pair of rows is beyond its constraint (<= 0: within)."""
        problem = self.problem
        if problem.delta > 0:
            ratio = math.exp(epsilon)
            sticks = np.stack([np.maximum(rows - ratio * row, 0).sum(axis=1) for row in rows], axis=1)
            return sticks - self.delta
        low = np.log(np.maximum(rows - self.spare, 1e-15))
        losses = np.log(np.maximum(rows + self.spare, 1e-15))[:, None] - low
        if problem.alpha is not None:
            return logsumexp(problem.alpha * losses + low, axis=2) / (problem.alpha - 1) - epsilon
        return losses.max(axis=2) - epsilon * (self.knots[:, None] - self.knots) ** 2

    @property
    def is_complete(self) -> bool:
        """Whether the first pairs are all that is needed."""
        return self.problem.is_pure or self.problem.metric == "absolute"

    def binding(self, pairs: IndexArray, rows: FloatArray, epsilon: float) -> IndexArray:
        """Those of the pairs whose constraint these rows all but violate."""
        return pairs if self.is_complete else pairs[self.excess(rows, epsilon)[pairs[:, 0], pairs[:, 1]] > -_SLACK]

    def program(self, pairs: IndexArray, epsilon: float) -> Program:
        return program_on(self.problem, self.levels, self.knots, self.part(pairs, epsilon), costs=self.costs)


def solve_pairs(
    setting: KnottedProblem, epsilon: float, known: IndexArray | None = None
) -> tuple[Solution, IndexArray]:
    """Solves with few pairs of rows, `known` ones and their neighbours, adding each row's worst until none is violated.

    Returns: the optimum over all pairs, and the pairs that bind or may.
    """
    knots = setting.knots.size
    index = np.arange(knots)
    pairs = np.array([[0, knots - 1], [knots - 1, 0]], dtype=np.intp)
    if setting.problem.metric is not None:  # neighbours, which are all that "absolute" needs
        pairs = np.concatenate([np.stack([index[:-1], index[1:]], axis=1), np.stack([index[1:], index[:-1]], axis=1)])
    if known is not None and not setting.is_complete:
        beside = (known[:, None] + _BESIDE).reshape(-1, 2)
        inside = ((beside >= 0) & (beside < knots)).all(axis=1) & (beside[:, 0] != beside[:, 1])
        pairs = np.unique(np.concatenate([pairs, beside[inside]]), axis=0)
    solution = solve(setting.program(pairs, epsilon))
    for _ in range(0 if setting.is_complete else _PAIR_ROUNDS):
        excess = setting.excess(solution.rows, epsilon)
        firsts, seconds = np.append(index, excess.argmax(axis=0)), np.append(excess.argmax(axis=1), index)
        violated = np.stack([firsts, seconds], axis=1)[excess[firsts, seconds] > _VIOLATION]
        fresh = np.unique(np.concatenate([pairs, violated]), axis=0)
        if len(fresh) == len(np.unique(pairs, axis=0)):
            break
        pairs = fresh
        solution = solve(setting.program(pairs, epsilon))
    return solution, pairs


def spent(problem: Problem, mechanism: Mechanism) -> float:
    """The certified privacy of the integers in the problem's own currency: at most `epsilon` when it is met."""
    if problem.delta > 0:
        return 0.0 if mechanism.delta(problem.epsilon) <= problem.delta else math.inf
    if problem.alpha is not None:
        return mechanism.renyi(problem.alpha)
    if problem.metric is not None:
        return metric_epsilon(mechanism, problem.metric)
    return mechanism.epsilon


def _rounded(setting: KnottedProblem, rows: FloatArray) -> Mechanism:
    """The integer table."""
    problem, rows = setting.problem, without_unused(rows)
    if problem.max_bias == 0:
        # What the solver's tolerance left of the means is nothing beside far levels, but many units.
        ends = np.flatnonzero(rows.any(axis=0))[[0, -1]]
        missing = (setting.knots - rows @ setting.levels) / np.diff(setting.levels[ends])
        rows[:, ends] = np.maximum(rows[:, ends] + missing[:, None] * [-1, 1], 0.0)
    return rounding.table(
        knots=setting.knots,
        levels=setting.levels,
        probabilities=rows,
        name="optimal",
        epsilon=problem.epsilon if problem.is_pure else math.inf,
        unbiased=problem.max_bias == 0,
        most=TOTAL if problem.is_pure else setting.levels.size + 16,
    )


def design_general(
    problem: Problem, levels: FloatArray, knots: FloatArray, known: IndexArray | None = None
) -> tuple[FloatDesign, Mechanism]:
    """The optimal table at these levels and knots for any of the constraints and losses.

    Arguments:
        known: (P, 2) pairs of knots whose constraints are expected to bind: a start, on which no result depends.
    """
    if problem.metric == "squared":
        spacing_of(knots)  # refuses uneven knots
    setting = KnottedProblem(problem=problem, levels=levels, knots=knots)
    rows, drafts, used = np.zeros((knots.size, levels.size)), list[FloatDesign](), np.ones(levels.size, dtype=bool)
    known = np.zeros((0, 2), dtype=np.intp) if known is None else known
    failure: MezzotintError = InfeasibleError(
        f"epsilon={problem.epsilon:g}: the rows found, as integers, spend more; use fewer knots or levels, or raise it"
    )
    margin, grain = _MARGIN, float(np.ptp(levels)) / TOTAL
    for units in _UNITS:
        # Levels that are hardly ever used have no probability to spare: they are left out.
        less = max(problem.max_bias - (2 + units) * grain, problem.max_bias / 2)
        tried = KnottedProblem(
            problem=replace(problem, max_bias=less), levels=levels[used], knots=knots, spare=units / TOTAL
        )
        try:
            solution, pairs = solve_pairs(tried, problem.epsilon * (1 - margin), known)
            known = tried.binding(pairs, solution.rows, problem.epsilon * (1 - margin))
            rows[:] = 0.0
            rows[:, used] = solution.rows
            if used.all():
                asked = replace(setting, spare_rounding=False).program(pairs, problem.epsilon)
                drafts.append(_draft(problem, asked, levels, solution))
            mechanism = _rounded(setting, rows)
        except (InfeasibleError, SolverError) as error:
            failure, margin = failure if drafts else error, min(8 * margin, _MOST)
            continue
        beyond = spent(problem, mechanism) / problem.epsilon - 1
        if beyond <= 0 and mechanism.max_bias <= max(problem.max_bias, grain):
            # The multipliers of the least margin bound best, those of rare levels' rounding far worse.
            return replace(max(drafts, key=lambda draft: draft.lower_bound or -math.inf), pairs=known), mechanism
        used = without_unused(rows).any(axis=0)
        margin = min(margin + (1.5 * max(beyond, 0.0) if beyond < _SMALL else margin), _MOST)
    raise failure


def refine_even(problem: Problem, levels: FloatArray) -> tuple[FloatDesign, Mechanism]:
    """Even knots, doubled until the bound of the program stalls or the program grows large."""
    most = 4000 if problem.is_pure else 260
    best: tuple[FloatDesign, Mechanism] | None = None
    previous = math.inf
    for count in (9, 17, 33, 65, 129, 257):
        if best is not None and count * levels.size > most:
            break
        known = None if best is None else 2 * best[0].pairs  # every other knot is one of the last grid
        best = design_general(problem, levels, np.linspace(problem.lower, problem.upper, count), known)
        value = best[0].lower_bound or 0.0
        if previous - value <= 1e-5 * abs(value):
            break
        previous = value
    if best is None:
        raise ParameterError("levels", levels.size, "too many for this constraint; use fewer")
    return best
