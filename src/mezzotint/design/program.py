"""The design of a table on knots as a convex program: every constraint, loss and bias budget.

Constraints beyond pure epsilon are about pairs of rows: they are added as they are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from mezzotint.core import rounding
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError, SolverError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, FloatArray, IndexArray
from mezzotint.design.cones import (
    Program,
    ProgramPart,
    assemble,
    largest_error,
    worst_error_part,
)
from mezzotint.design.constraints import PairConstraint, Rows
from mezzotint.design.problem import FloatDesign, Problem, without_unused
from mezzotint.design.solver import Solution, nearly_equal, safe_bound, solve

ON_KNOTS = "tables with these levels on these knots"
BETWEEN = (0.25, 0.5, 0.75)


def program_on(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray,
    privacy: ProgramPart,
    *,
    costs: FloatArray | None = None,
    between: tuple[float, ...] = BETWEEN,
) -> Program:
    """The table program of docs/proofs/design.md at these levels and knots, data units.

    `costs` are those of the problem, where they are known; `between` two knots the largest error
    counts, too.
    """
    units = problem.centered(levels)
    target_means = problem.centered(knots)
    parts = [privacy]
    worst = 0.0
    if problem.loss == "minimax":
        worst = largest_error(units)
        parts.append(
            partial(
                worst_error_part,
                target_means=target_means,
                levels=units,
                between=between,
            )
        )
    return assemble(
        target_means=target_means,
        levels=units,
        costs=problem.costs(knots, levels) if costs is None else costs,
        parts=parts,
        max_bias=problem.max_bias / (problem.width / 2),
        worst=worst,
    )


def proven_design(
    problem: Problem,
    program: Program,
    levels: FloatArray,
    solution: Solution,
) -> FloatDesign:
    """The design that a solution's multipliers prove: with some pairs of rows a bound of the
    program with all.
    """
    half_range = problem.width / 2
    loss_unit = half_range**2 if problem.loss == "minimax" else 1.0
    bias_price = 0.0
    if problem.max_bias < math.inf:
        # How much the value can fall per unit (centred) by which all means may miss their targets.
        mean_start = program.blocks[0].rhs.size
        mean_stop = mean_start + program.blocks[1].rhs.size
        total_price = float(np.abs(solution.dual[mean_start:mean_stop]).sum())
        farthest = float(np.abs(problem.centered(levels)).max())
        bias_price = total_price / max(1.0, farthest)
    return FloatDesign(
        lower_bound=safe_bound(program, solution.dual) * loss_unit,
        scope=ON_KNOTS,
        iterations=solution.iterations,
        price=bias_price * loss_unit / half_range,
    )


_UNITS = (0, 0, 0, 0, *(2 * 4**exponent for exponent in range(11)))
"""Units by which rounding may move a weight, one try after another, until the integers are
certified.
"""

_LEAST_MARGIN = 2.0**-30
_LARGEST_MARGIN = 1e-2
"""Least and largest relative reduction of epsilon, for solver and rounding."""

_SMALL = 1e-4
"""What is overspent by so little (relative) is made up for by asking for less."""

_VIOLATION = 1e-8
_SLACK = 1e-5
"""From which excess a pair is violated, and within which slack it may bind."""

_PAIR_ROUNDS = 30

_EXTRA_UNITS = 16
"""Units per row, beside one for each level, by which rounding may move a weight where the
constraint is not a ratio.
"""

_GRIDS = (9, 17, 33, 65, 129, 257)
_MOST_ENTRIES_PURE = 4000
_MOST_ENTRIES = 260
"""Of a table on a refined grid, under pure epsilon and otherwise."""

_STALLED_BOUND = 1e-5
"""Relative: a finer grid that gains no more is the last."""
_BESIDE = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
"""Steps from a pair of knots to itself and its neighbours."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class KnottedProblem(Rows):
    """A problem at fixed levels and knots, with what its program is made of.

    For a table delta is less what rounding may add (`spare_rounding`), while a bound uses all of
    it; metrics and Renyi divergences still hold when any probability is off by `spare`.
    """

    problem: Problem
    costs: FloatArray
    """(K, m) of the problem."""

    def binding(
        self,
        pairs: IndexArray,
        rows: FloatArray,
        epsilon: float,
    ) -> IndexArray:
        """The pairs whose constraint `rows` nearly violate; for a metric, their neighbours, too."""
        constraint = self.problem.constraint
        if not isinstance(constraint, PairConstraint):
            return pairs
        excess = constraint.excess(self, rows, epsilon)[pairs[:, 0], pairs[:, 1]]
        binding_pairs = pairs[excess > -_SLACK]
        if constraint.by_distance:
            return _beside(binding_pairs, self.knots.size)
        return binding_pairs

    def ordered(self, pairs: IndexArray) -> IndexArray:
        """Sort the pairs, with their mirror images if the problem is its own: then it folds."""
        knot_count = self.knots.size
        is_mirrored = nearly_equal(self.costs, self.costs[::-1, ::-1])
        if is_mirrored and not self.problem.constraint.by_distance:
            pairs = np.concatenate([pairs, knot_count - 1 - pairs])
        numbers = np.unique(pairs @ [knot_count, 1])
        return np.stack(np.divmod(numbers, knot_count), axis=1)

    def program(self, pairs: IndexArray, epsilon: float) -> Program:
        """The program whose privacy constraint is on these pairs of rows, unless it is pure."""
        privacy = self.problem.constraint.part(self, pairs, epsilon)
        return program_on(
            problem=self.problem,
            levels=self.levels,
            knots=self.knots,
            privacy=privacy,
            costs=self.costs,
        )


def _beside(pairs: IndexArray, knots: int) -> IndexArray:
    """The pairs of so many knots, and their neighbours."""
    neighbours = (pairs[:, None] + _BESIDE).reshape(-1, 2)
    is_inside = ((neighbours >= 0) & (neighbours < knots)).all(axis=1)
    return neighbours[is_inside & (neighbours[:, 0] != neighbours[:, 1])]


def _first_pairs(
    setting: KnottedProblem,
    known: IndexArray | None,
) -> IndexArray:
    """Neighbours, which are all that "absolute" needs; else the ends, and what is far from them."""
    constraint = setting.problem.constraint
    knot_count = setting.knots.size
    knot_index = np.arange(knot_count)
    if constraint.by_distance:
        pairs = np.stack([knot_index[:-1], knot_index[1:]], axis=1)
    else:
        far_knots = knot_index[knot_count // 2 :]
        if known is not None and known.size:
            far_knots = knot_index[-1:]
        pairs = np.stack([0 * far_knots, far_knots], axis=1)
        pairs = np.concatenate([pairs, knot_count - 1 - pairs[:, ::-1]])
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    if constraint.by_distance and (known is None or not isinstance(constraint, PairConstraint)):
        return pairs
    if known is not None:
        pairs = np.concatenate([pairs, known])
    return setting.ordered(pairs)


def solve_pairs(
    setting: KnottedProblem,
    epsilon: float,
    known: IndexArray | None = None,
) -> tuple[Solution, IndexArray]:
    """The optimum over all pairs of rows, and the pairs that it took.

    It begins with few pairs, and those `known` to bind or may, and adds each row's worst until none
    is violated.
    """
    pairs = _first_pairs(setting, known)
    solution = solve(setting.program(pairs, epsilon))
    constraint = setting.problem.constraint
    if not isinstance(constraint, PairConstraint):
        return solution, pairs
    knot_index = np.arange(setting.knots.size)
    for _ in range(_PAIR_ROUNDS):
        excess = constraint.excess(setting, solution.rows, epsilon)
        first_rows = np.append(knot_index, excess.argmax(axis=0))
        second_rows = np.append(excess.argmax(axis=1), knot_index)
        is_violated = excess[first_rows, second_rows] > _VIOLATION
        violated_pairs = np.stack([first_rows, second_rows], axis=1)[is_violated]
        more_pairs = setting.ordered(np.concatenate([pairs, violated_pairs]))
        if len(more_pairs) == len(pairs):
            break
        pairs = more_pairs
        solution = solve(setting.program(pairs, epsilon))
    return solution, pairs


def _rounded(setting: KnottedProblem, rows: FloatArray) -> Mechanism:
    """The integer table."""
    problem = setting.problem
    is_unbiased = problem.max_bias == 0
    rows = without_unused(rows)
    if is_unbiased:
        # What the solver's tolerance left of the means is nothing beside far levels, but many
        # units.
        outer_levels = np.flatnonzero(rows.any(axis=0))[[0, -1]]
        missing_means = setting.knots - rows @ setting.levels
        moved = missing_means / np.diff(setting.levels[outer_levels])
        outer_rows = rows[:, outer_levels] + moved[:, None] * [-1, 1]
        rows[:, outer_levels] = np.maximum(outer_rows, 0.0)
    return rounding.table(
        knots=setting.knots,
        levels=setting.levels,
        probabilities=rows,
        name="optimal",
        epsilon=problem.epsilon if problem.is_pure else math.inf,
        unbiased=is_unbiased,
        most=TOTAL if problem.is_pure else setting.levels.size + _EXTRA_UNITS,
    )


def design_general(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray,
    known: IndexArray | None = None,
) -> tuple[FloatDesign, Mechanism]:
    """The optimal table at these levels and knots for any of the constraints and losses.

    `known` (P, 2) pairs of knots are expected to bind: a start, on which no result depends.
    """
    problem.constraint.check_knots(knots)
    costs = problem.costs(knots, levels)
    setting = KnottedProblem(
        problem=problem,
        levels=levels,
        knots=knots,
        costs=costs,
    )
    search = _MarginSearch(setting, known)
    for units in _UNITS:
        design = search.attempt(units)
        if design is not None:
            return design
    raise search.failure


@final
class _MarginSearch:
    """Programs at smaller and smaller epsilons, until the integers of their solution are
    certified.
    """

    def __init__(
        self,
        setting: KnottedProblem,
        known: IndexArray | None,
    ) -> None:
        self.setting = setting
        self.known = np.zeros((0, 2), dtype=np.intp) if known is None else known
        self.margin = _LEAST_MARGIN
        self.unit_effect = float(np.ptp(setting.levels)) / TOTAL
        self.is_used = np.ones(setting.levels.size, dtype=bool)
        self.drafts: list[FloatDesign] = []
        self.failure: MezzotintError = InfeasibleError(
            f"epsilon={setting.problem.epsilon:g}: the rows found, as integers, spend more; use "
            "fewer knots or levels, or raise it"
        )

    def attempt(self, units: int) -> tuple[FloatDesign, Mechanism] | None:
        """The design and its certified table, where every weight may be moved by so many units."""
        problem = self.setting.problem
        try:
            rows = self._solved_rows(units)
            mechanism = _rounded(self.setting, rows)
        except (InfeasibleError, SolverError) as error:
            if not self.drafts:
                self.failure = error
            self.margin = min(8 * self.margin, _LARGEST_MARGIN)
            return None
        excess = problem.constraint.spent(mechanism) / problem.epsilon - 1
        if excess <= 0 and mechanism.max_bias <= max(problem.max_bias, self.unit_effect):
            # The multipliers of the least margin bound best, those of rare levels' rounding far
            # worse.
            draft = max(self.drafts, key=lambda draft: draft.lower_bound or -math.inf)
            return replace(draft, pairs=self.known), mechanism
        self.is_used = without_unused(rows).any(axis=0)
        self.margin = min(self.margin + self._more_margin(excess), _LARGEST_MARGIN)
        return None

    def _solved_rows(self, units: int) -> FloatArray:
        """(K, m) the rows of the program's solution; its bound becomes a draft."""
        setting = self.setting
        problem = setting.problem
        epsilon = problem.epsilon * (1 - self.margin)
        # Levels that are hardly ever used have no probability to spare: they are left out.
        spare_bias = (2 + units) * self.unit_effect
        max_bias = max(problem.max_bias - spare_bias, problem.max_bias / 2)
        reduced = replace(
            setting,
            problem=replace(problem, max_bias=max_bias),
            levels=setting.levels[self.is_used],
            costs=setting.costs[:, self.is_used],
            spare=units / TOTAL,
        )
        solution, pairs = solve_pairs(reduced, epsilon, self.known)
        self.known = reduced.binding(pairs, solution.rows, epsilon)
        rows = np.zeros((setting.knots.size, setting.levels.size))
        rows[:, self.is_used] = solution.rows
        if self.is_used.all():
            bound_setting = replace(setting, spare_rounding=False)
            program = bound_setting.program(pairs, problem.epsilon)
            self.drafts.append(proven_design(problem, program, setting.levels, solution))
        return rows

    def _more_margin(self, excess: float) -> float:
        """What an excess (relative) is made up for by."""
        if excess >= _SMALL:
            return self.margin
        if excess <= 0:
            return 0.0
        by_distance = self.setting.problem.constraint.by_distance
        return 1.5 * excess + (0.0 if by_distance else _LEAST_MARGIN)


def refine_even(
    problem: Problem,
    levels: FloatArray,
) -> tuple[FloatDesign, Mechanism]:
    """Even knots, doubled until the bound of the program stalls or the program grows large."""
    most_entries = _MOST_ENTRIES_PURE if problem.is_pure else _MOST_ENTRIES
    best_design: tuple[FloatDesign, Mechanism] | None = None
    previous = math.inf
    for knot_count in _GRIDS:
        if best_design is not None and knot_count * levels.size > most_entries:
            break
        likely_pairs = None
        if best_design is not None:
            # Every other knot is one of the last grid.
            likely_pairs = _beside(2 * best_design[0].pairs, knot_count)
        knots = np.linspace(problem.lower, problem.upper, knot_count)
        best_design = design_general(problem, levels, knots, likely_pairs)
        grid_bound = best_design[0].lower_bound or 0.0
        if previous - grid_bound <= _STALLED_BOUND * abs(grid_bound):
            break
        previous = grid_bound
    if best_design is None:
        raise ParameterError("levels", levels.size, "too many for this constraint; use fewer")
    return best_design
