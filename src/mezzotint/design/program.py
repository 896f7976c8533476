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
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, FloatArray, IndexArray
from mezzotint.design.cones import (
    Program,
    ProgramPart,
    assemble,
    largest_error,
    worst_error_part,
)
from mezzotint.design.constraints import Rows
from mezzotint.design.problem import FloatDesign, Problem, without_unused
from mezzotint.design.solver import Solution, SolverError, nearly_equal, safe_bound, solve

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
    target_means, units = problem.centered(knots), problem.centered(levels)
    errors = partial(worst_error_part, target_means=target_means, levels=units, between=between)
    return assemble(
        target_means=target_means,
        levels=units,
        costs=problem.costs(knots, levels) if costs is None else costs,
        parts=[privacy, errors] if problem.loss == "minimax" else [privacy],
        max_bias=problem.max_bias / (problem.width / 2),
        worst=largest_error(units) if problem.loss == "minimax" else 0.0,
    )


def proven_design(
    problem: Problem, asked: Program, levels: FloatArray, solution: Solution
) -> FloatDesign:
    """The design that a solution's multipliers prove: with some pairs of rows a bound of the
    program with all.
    """
    half = problem.width / 2
    unit, price = half**2 if problem.loss == "minimax" else 1.0, 0.0
    if problem.max_bias < math.inf:
        # How much the value can fall per unit (centred) by which all means may miss their targets.
        mean, start = asked.blocks[1], asked.blocks[0].rhs.size
        prices = np.abs(solution.dual[start : start + mean.rhs.size]).sum()
        price = float(prices) / max(1.0, float(np.abs(problem.centered(levels)).max()))
    bound = safe_bound(asked, solution.dual) * unit
    return FloatDesign(
        lower_bound=bound, scope=ON_KNOTS, iterations=solution.iterations, price=price * unit / half
    )


_UNITS = (0, 0, 0, 0, *(2 * 4**k for k in range(11)))
"""Units by which rounding may move a weight, one try after another, until the integers are
certified.
"""

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

    For a table delta is less what rounding may add (`spare_rounding`), while a bound uses all of
    it; metrics and Renyi divergences still hold when any probability is off by `spare`.
    """

    problem: Problem
    levels: FloatArray
    knots: FloatArray
    costs: FloatArray  # (K, m) of the problem
    spare_rounding: bool = True
    spare: float = 0.0

    @property
    def rows(self) -> Rows:
        """The rows of the table, as constraints see them."""
        return Rows(
            knots=self.knots,
            levels=self.levels.size,
            spare=self.spare,
            spare_rounding=self.spare_rounding,
        )

    def excess(self, rows: FloatArray, epsilon: float) -> FloatArray:
        """(R, R) how far each ordered pair of rows is beyond its constraint (<= 0: within)."""
        return self.problem.constraint.excess(self.rows, rows, epsilon)

    def binding(self, pairs: IndexArray, rows: FloatArray, epsilon: float) -> IndexArray:
        """The pairs whose constraint `rows` nearly violate; for a metric, their neighbours, too."""
        constraint = self.problem.constraint
        if constraint.is_complete:
            return pairs
        near = self.excess(rows, epsilon)[pairs[:, 0], pairs[:, 1]] > -_SLACK
        if constraint.by_distance:
            return _beside(pairs[near], self.knots.size)
        return pairs[near]

    def ordered(self, pairs: IndexArray) -> IndexArray:
        """Sort the pairs, with their mirror images if the problem is its own: then it folds."""
        knots = self.knots.size
        mirrored = nearly_equal(self.costs, self.costs[::-1, ::-1])
        if mirrored and not self.problem.constraint.by_distance:
            pairs = np.concatenate([pairs, knots - 1 - pairs])
        return np.stack(np.divmod(np.unique(pairs @ [knots, 1]), knots), axis=1)

    def program(self, pairs: IndexArray, epsilon: float) -> Program:
        """The program whose privacy constraint is on these pairs of rows, unless it is pure."""
        privacy = self.problem.constraint.part(self.rows, pairs, epsilon)
        return program_on(self.problem, self.levels, self.knots, privacy, costs=self.costs)


def _beside(pairs: IndexArray, knots: int) -> IndexArray:
    """The pairs of so many knots, and their neighbours."""
    beside = (pairs[:, None] + _BESIDE).reshape(-1, 2)
    return beside[((beside >= 0) & (beside < knots)).all(axis=1) & (beside[:, 0] != beside[:, 1])]


def solve_pairs(
    setting: KnottedProblem, epsilon: float, known: IndexArray | None = None
) -> tuple[Solution, IndexArray]:
    """The optimum over all pairs of rows, and the pairs that it took.

    It begins with few pairs, and those `known` to bind or may, and adds each row's worst until none
    is violated.
    """
    constraint = setting.problem.constraint
    index, last = np.arange(setting.knots.size), setting.knots.size - 1
    if not constraint.by_distance:  # the ends, and what is far from them
        far = index[-1:] if known is not None and known.size else index[setting.knots.size // 2 :]
        pairs = np.stack([0 * far, far], axis=1)
        pairs = np.concatenate([pairs, last - pairs[:, ::-1]])
    else:  # neighbours, which are all that "absolute" needs
        pairs = np.stack([index[:-1], index[1:]], axis=1)
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    if not constraint.by_distance or (known is not None and not constraint.is_complete):
        pairs = setting.ordered(pairs if known is None else np.concatenate([pairs, known]))
    solution = solve(setting.program(pairs, epsilon))
    for _ in range(0 if constraint.is_complete else _PAIR_ROUNDS):
        excess = setting.excess(solution.rows, epsilon)
        firsts, seconds = (
            np.append(index, excess.argmax(axis=0)),
            np.append(excess.argmax(axis=1), index),
        )
        violated = np.stack([firsts, seconds], axis=1)[excess[firsts, seconds] > _VIOLATION]
        fresh = setting.ordered(np.concatenate([pairs, violated]))
        if len(fresh) == len(pairs):
            break
        pairs = fresh
        solution = solve(setting.program(pairs, epsilon))
    return solution, pairs


def _rounded(setting: KnottedProblem, rows: FloatArray) -> Mechanism:
    """The integer table."""
    problem, rows = setting.problem, without_unused(rows)
    if problem.max_bias == 0:
        # What the solver's tolerance left of the means is nothing beside far levels, but many
        # units.
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

    `known` (P, 2) pairs of knots are expected to bind: a start, on which no result depends.
    """
    problem.constraint.check_knots(knots)
    setting = KnottedProblem(
        problem=problem, levels=levels, knots=knots, costs=problem.costs(knots, levels)
    )
    rows, drafts, used = (
        np.zeros((knots.size, levels.size)),
        list[FloatDesign](),
        np.ones(levels.size, dtype=bool),
    )
    known = np.zeros((0, 2), dtype=np.intp) if known is None else known
    failure: MezzotintError = InfeasibleError(
        f"epsilon={problem.epsilon:g}: the rows found, as integers, spend more; use fewer knots or "
        "levels, or raise it"
    )
    margin, grain = _MARGIN, float(np.ptp(levels)) / TOTAL
    for units in _UNITS:
        # Levels that are hardly ever used have no probability to spare: they are left out.
        less = max(problem.max_bias - (2 + units) * grain, problem.max_bias / 2)
        asked, costs = replace(problem, max_bias=less), setting.costs[:, used]
        tried = replace(
            setting, problem=asked, levels=levels[used], costs=costs, spare=units / TOTAL
        )
        try:
            solution, pairs = solve_pairs(tried, problem.epsilon * (1 - margin), known)
            known = tried.binding(pairs, solution.rows, problem.epsilon * (1 - margin))
            rows[:] = 0.0
            rows[:, used] = solution.rows
            if used.all():
                program = replace(setting, spare_rounding=False).program(pairs, problem.epsilon)
                drafts.append(proven_design(problem, program, levels, solution))
            mechanism = _rounded(setting, rows)
        except (InfeasibleError, SolverError) as error:
            failure, margin = failure if drafts else error, min(8 * margin, _MOST)
            continue
        beyond = problem.constraint.spent(mechanism) / problem.epsilon - 1
        if beyond <= 0 and mechanism.max_bias <= max(problem.max_bias, grain):
            # The multipliers of the least margin bound best, those of rare levels' rounding far
            # worse.
            return replace(
                max(drafts, key=lambda draft: draft.lower_bound or -math.inf), pairs=known
            ), mechanism
        used = without_unused(rows).any(axis=0)
        more = 1.5 * beyond + (0.0 if problem.constraint.by_distance else _MARGIN)
        margin = min(margin + (margin if beyond >= _SMALL else more if beyond > 0 else 0.0), _MOST)
    raise failure


def refine_even(problem: Problem, levels: FloatArray) -> tuple[FloatDesign, Mechanism]:
    """Even knots, doubled until the bound of the program stalls or the program grows large."""
    most = 4000 if problem.is_pure else 260
    best: tuple[FloatDesign, Mechanism] | None = None
    previous = math.inf
    for count in (9, 17, 33, 65, 129, 257):
        if best is not None and count * levels.size > most:
            break
        known = (
            None if best is None else _beside(2 * best[0].pairs, count)
        )  # every other knot is one of the last grid
        best = design_general(
            problem, levels, np.linspace(problem.lower, problem.upper, count), known
        )
        value = best[0].lower_bound or 0.0
        if previous - value <= 1e-5 * abs(value):
            break
        previous = value
    if best is None:
        raise ParameterError("levels", levels.size, "too many for this constraint; use fewer")
    return best
