"""The optimum at given levels: pure epsilon, with knots given or refined until nothing is left to gain."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import SamplePrior
from mezzotint.design.bound import bound_at_levels
from mezzotint.design.problem import Problem
from mezzotint.design.program import Program, pure_program
from mezzotint.design.reach import two_levels_hold
from mezzotint.design.rounding import Draft, achieved_loss, first_certified, pure_table
from mezzotint.design.solver import Solution, SolverError, safe_bound, solve
from mezzotint.design.windows import around, breakpoints, merged

FloatArray = npt.NDArray[np.float64]

ON_KNOTS = "tables with these levels on these knots"
AT_LEVELS = "all mechanisms with these levels"

_FIRST_KNOTS = 33
_TARGET = 2e-7
_ROUNDS = 11
_MOST_ENTRIES = 60_000
_MOST_ATOMS = 400
_LARGE_EPSILON = 4.0
"""Beyond, the bends of an optimal row stand in close pairs around each level: cells of inputs are cut there too."""


def centered(problem: Problem, values: FloatArray) -> FloatArray:
    """Data units to units of half the range, centred."""
    return (values - problem.center) / (problem.width / 2)


def from_centered(problem: Problem, values: FloatArray) -> FloatArray:
    """Back to data units; -1 and 1 become lower and upper exactly."""
    knots = problem.center + values * (problem.width / 2)
    return np.where(values == -1, problem.lower, np.where(values == 1, problem.upper, knots))


def program_on(problem: Problem, levels: FloatArray, knots: FloatArray, epsilon: float) -> Program:
    """The table program at these levels and knots (data units) and this pure epsilon."""
    return pure_program(
        aims=centered(problem, knots),
        levels=centered(problem, levels),
        costs=problem.costs(knots, levels),
        epsilon=epsilon,
        max_bias=problem.max_bias / (problem.width / 2),
    )


def two_level_rows(problem: Problem, levels: FloatArray, knots: FloatArray) -> FloatArray:
    """The unbiased table that uses the two outer levels only."""
    rows = np.zeros((knots.size, levels.size))
    rows[:, -1] = (knots - levels[0]) / (levels[-1] - levels[0])
    rows[:, 0] = 1 - rows[:, -1]
    return rows


def _is_tight(problem: Problem, levels: FloatArray, knots: FloatArray) -> bool:
    """Whether the outer levels reach so barely far enough that a solver would find no interior."""
    reduced = problem.with_epsilon(problem.epsilon * (1 - 1e-5))
    return problem.max_bias == 0 and not two_levels_hold(reduced, float(levels[0]), float(levels[-1]), knots)


def _at_atoms(problem: Problem, levels: FloatArray) -> tuple[FloatArray, float, int] | None:
    """`_refined` for a prior of few point masses: only the rows at these inputs matter, so one program is exact."""
    if not isinstance(problem.prior, SamplePrior):
        return None
    points = np.unique(np.concatenate([[problem.lower], problem.prior.points, [problem.upper]]))
    if points.size > _MOST_ATOMS or points.size * levels.size > _MOST_ENTRIES:
        return None
    program = program_on(problem, levels, points, problem.epsilon)
    solution = solve(program)
    floors = solution.floors * math.exp(-problem.epsilon / 2)
    bends = merged(breakpoints(floors, centered(problem, levels), problem.epsilon), symmetric=program.view.is_symmetric)
    return from_centered(problem, bends), _bound_on(problem, levels, points, solution), solution.iterations


def _refined(problem: Problem, levels: FloatArray) -> tuple[FloatArray, float, int]:
    """Knots (data units) of an optimal table, the bound over all mechanisms at these levels, iterations."""
    units, step = centered(problem, levels), 2 / (_FIRST_KNOTS - 1)
    sides = 2 if levels.size <= 96 else 1
    knots = np.linspace(-1.0, 1.0, _FIRST_KNOTS)
    bends, bound, iterations = knots, -math.inf, 0
    for index in range(_ROUNDS):
        program = program_on(problem, levels, from_centered(problem, knots), problem.epsilon)
        solution = solve(program)
        iterations += solution.iterations
        floors = solution.floors * math.exp(-problem.epsilon / 2)
        symmetric = program.view.is_symmetric
        bends = merged(breakpoints(floors, units, problem.epsilon), symmetric=symmetric)
        knots = around(bends, step, symmetric=symmetric, sides=sides)
        step /= 4
        if index >= 3:
            value, relaxed = bound_at_levels(problem, levels, from_centered(problem, _edges(problem, bends, units)))
            bound, iterations = max(bound, value), iterations + relaxed.iterations
            if solution.value - bound <= _TARGET * abs(solution.value) or knots.size * levels.size > _MOST_ENTRIES:
                break
    if bound < solution.value - _TARGET * abs(solution.value):
        value, relaxed = bound_at_levels(problem, levels, from_centered(problem, _edges(problem, knots, units)))
        bound, iterations = max(bound, value), iterations + relaxed.iterations
    return from_centered(problem, bends), bound, iterations


def _edges(problem: Problem, knots: FloatArray, units: FloatArray) -> FloatArray:
    """Where to cut the range into cells for the bound (centred units)."""
    return merged(np.concatenate([knots, units]), symmetric=False) if problem.epsilon > _LARGE_EPSILON else knots


def _bound_on(problem: Problem, levels: FloatArray, knots: FloatArray, solution: Solution) -> float:
    """The table program's bound at the asked epsilon, from multipliers found at a slightly smaller one."""
    return safe_bound(program_on(problem, levels, knots, math.nextafter(problem.epsilon, math.inf)), solution.dual)


def _tight(problem: Problem, levels: FloatArray, knots: FloatArray) -> tuple[Draft, Mechanism]:
    """The design when the outer levels reach exactly as far as they must: all mass is on them."""
    rows, bound = two_level_rows(problem, levels, knots), None
    for excess in (0.0, 1e-7, 1e-6, 1e-5, 1e-4):
        wider = problem.with_epsilon(problem.epsilon * (1 + excess))
        try:
            solution = solve(program_on(wider, levels, knots, wider.epsilon))
        except SolverError:
            continue
        bound = _bound_on(wider, levels, knots, solution)
        break
    draft = Draft(knots=knots, levels=levels, rows=rows, lower_bound=bound, scope=ON_KNOTS, iterations=1)
    return draft, pure_table(problem, draft, name="optimal", epsilon=problem.epsilon)


def design_fixed(problem: Problem, levels: FloatArray, knots: FloatArray | None) -> tuple[Draft, Mechanism]:
    """The optimal pure-epsilon table at these levels; feasibility is settled already.

    Arguments:
        knots: data units; None refines them (unbiased problems with loss "mse" or "mae").
    """
    ends = np.array([problem.lower, problem.upper])
    if _is_tight(problem, levels, ends if knots is None else knots):
        return _tight(problem, levels, ends if knots is None else knots)
    bound, scope, iterations = None, ON_KNOTS, 0
    if knots is None:
        knots, bound, iterations = _at_atoms(problem, levels) or _refined(problem, levels)
        scope = AT_LEVELS
    found = [_built(problem, levels, knots, bound, scope, iterations)]
    if scope == AT_LEVELS and not _is_proven(problem, *found[0]):
        # Floors near the solver's tolerance place bends badly: levels and even knots may serve better.
        spread = np.concatenate([centered(problem, knots), centered(problem, levels), np.linspace(-1, 1, _FIRST_KNOTS)])
        wider = from_centered(problem, merged(spread, symmetric=False))
        found.append(_built(problem, levels, wider, bound, scope, iterations))
    return min(found, key=lambda pair: achieved_loss(problem, pair[1]))


def _is_proven(problem: Problem, draft: Draft, mechanism: Mechanism) -> bool:
    loss = achieved_loss(problem, mechanism)
    return draft.lower_bound is not None and loss - draft.lower_bound <= 1e-5 * loss


def _built(
    problem: Problem, levels: FloatArray, knots: FloatArray, bound: float | None, scope: str, iterations: int
) -> tuple[Draft, Mechanism]:
    """The best table on these knots as integers; without a bound, that of its own program."""
    drafts: list[Draft] = []

    def build(epsilon: float) -> Mechanism:
        solution = solve(program_on(problem, levels, knots, epsilon))
        draft = Draft(
            knots=knots,
            levels=levels,
            rows=solution.rows,
            lower_bound=bound if bound is not None else _bound_on(problem, levels, knots, solution),
            scope=scope,
            iterations=iterations + solution.iterations,
        )
        drafts.append(draft)
        return pure_table(problem, draft, name="optimal", epsilon=problem.epsilon)

    mechanism = first_certified(build, epsilon=problem.epsilon)
    return drafts[-1], mechanism
