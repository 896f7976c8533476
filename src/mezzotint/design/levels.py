"""Which levels? Local search with exact gradients of the optimal value, from several starts."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.priors import SamplePrior
from mezzotint.design.fixed import centered, from_centered, program_on
from mezzotint.design.general import make_setting, solve_pairs
from mezzotint.design.problem import Problem, finite
from mezzotint.design.program import Program, mean_offset
from mezzotint.design.reach import required_overhang
from mezzotint.design.solver import Solution, SolverError, solve
from mezzotint.design.windows import around, breakpoints, merged

FloatArray = npt.NDArray[np.float64]

_SEARCH_KNOTS = 33
_FEW_KNOTS = 9
_DENSE_LEVELS = 121
_MIDDLES = 4
_CELLS = 2048
_CLOSEST = 1e-4
"""Levels stay this far apart (units of half the range) during the search."""


class UnboundedLevelsWarning(UserWarning):
    """The loss keeps falling as the outer levels grow: a bound was assumed. Give `max_level` to choose it."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Shape:
    """How search variables become levels: all of them, or the positive half of symmetric ones.

    Arguments:
        matrix: (m, variables) levels = matrix @ variables, centred units.
    """

    matrix: FloatArray

    @staticmethod
    def of(count: int, *, symmetric: bool) -> Shape:
        if not symmetric:
            return Shape(matrix=np.eye(count))
        half = count // 2
        matrix = np.zeros((count, half))
        matrix[count - half :] = np.eye(half)
        matrix[:half] = -np.eye(half)[::-1]
        return Shape(matrix=matrix)

    def pull(self, levels: FloatArray) -> FloatArray:
        """The variables that give these levels, or the nearest that can."""
        return np.asarray(np.linalg.lstsq(self.matrix, levels, rcond=None)[0], dtype=np.float64)


def level_bounds(problem: Problem, max_level: float | None, knots: FloatArray | None = None) -> tuple[float, float]:
    """Least and largest distance of the outer levels from the middle of the range, centred units.

    `knots` matter for metrics only.

    Warns:
        UnboundedLevelsWarning: loss "mae" and no `max_level`: twice the required overhang is assumed.
    """
    half = problem.width / 2
    ends = np.array([problem.lower, problem.upper]) if knots is None else knots
    overhang = 0.0 if math.isinf(problem.max_bias) else required_overhang(problem, ends) / half
    if math.isinf(overhang):
        raise InfeasibleError(f"epsilon={problem.epsilon:g}: no levels, however far, are enough; use fewer knots")
    least = 1 + overhang
    if max_level is not None:
        largest = finite("max_level", max_level) / half
        if not largest >= least * (1 + 1e-9):
            raise ParameterError(
                "max_level",
                max_level,
                f"levels must reach {least * half:.6g} from the middle of the range at epsilon={problem.epsilon:g}",
            )
        return least, largest
    if problem.loss == "mae" and problem.max_bias < math.inf:
        largest = 1 + 2 * max(overhang, 0.5)
        warnings.warn(
            "the mean absolute error keeps falling as the outer levels go to infinity with vanishing probability; "
            f"levels are kept within {largest * half:.6g} of the middle of the range: set max_level, or use loss='mse'",
            UnboundedLevelsWarning,
            stacklevel=4,
        )
        return least, largest
    return least, max(4 * least, 8.0)


def loss_slopes(problem: Problem, knots: FloatArray, levels: FloatArray) -> FloatArray:
    """(K+1, m) derivatives of the cost matrix in the level of its column, data units."""
    # Costs are quadratic in the level for the MSE, so central differences are exact; for the MAE they are once
    # differentiable wherever the prior has no point mass.
    step = 1e-5 * problem.width
    order = np.diff(levels).min()
    step = min(step, order / 4)
    return (problem.costs(knots, levels + step) - problem.costs(knots, levels - step)) / (2 * step)


def _solved(problem: Problem, knots: FloatArray, levels: FloatArray) -> tuple[Program, Solution]:
    if problem.is_pure and problem.loss != "minimax":
        program = program_on(problem, levels, knots, problem.epsilon)
        return program, solve(program, tolerance=1e-9)
    setting = make_setting(problem, levels, knots)
    solution, pairs = solve_pairs(setting, problem.epsilon)
    return setting.program(pairs, problem.epsilon), solution


def _by_differences(problem: Problem, knots: FloatArray, levels: FloatArray) -> tuple[float, FloatArray]:
    """The same by forward differences: for the worst-case loss, whose multipliers also weigh the levels."""
    half = problem.width / 2
    step = 1e-6 * half
    value = _solved(problem, knots, levels)[1].value * half**2
    moved = [_solved(problem, knots, levels + step * unit)[1].value * half**2 for unit in np.eye(levels.size)]
    return value, (np.array(moved) - value) / step


def value_and_gradient(problem: Problem, knots: FloatArray, levels: FloatArray) -> tuple[float, FloatArray]:
    """Optimal loss on these knots and its gradient in the levels, data units.

    Envelope theorem: at an optimum the derivative of the value is that of the Lagrangian,
    dV/dB_i = sum_k P[k, i] (dC[k, i]/dB_i + v_k), with v_k the multiplier of row k's mean.

    Guarantees: equals finite differences of the value wherever that is differentiable.
    """
    if problem.loss == "minimax":
        return _by_differences(problem, knots, levels)
    program, solution = _solved(problem, knots, levels)
    gradient = (solution.rows * loss_slopes(problem, knots, levels)).sum(axis=0)
    kept = program.view.rows[program.view.rows != program.view.centered]
    if problem.max_bias < math.inf:
        units = centered(problem, levels)
        start = mean_offset(program.view)
        scale = max(1.0, float(np.abs(units).max()))
        multipliers = solution.dual[start : start + kept.size] / scale
        if problem.max_bias > 0:
            multipliers = multipliers - solution.dual[start + kept.size : start + 2 * kept.size] / scale
        gradient = gradient + multipliers @ solution.rows[kept] / (problem.width / 2)
    if program.view.is_symmetric:
        # Only half of the rows had multipliers: each level has its own share and its mirror image's.
        gradient = (gradient - gradient[::-1]) / 2
    return solution.value, gradient


def _search(
    problem: Problem, shape: Shape, knots: FloatArray, start: FloatArray, least: float, largest: float, rounds: int
) -> tuple[float, FloatArray]:
    """Best (value, levels in centred units) that SLSQP finds from `start`; the value is in units of half the range."""
    half = problem.width / 2
    unit = half if problem.loss == "mae" else half**2
    best = (math.inf, start)

    def evaluate(variables: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        units = shape.matrix @ variables
        try:
            value, gradient = value_and_gradient(problem, knots, problem.center + units * half)
        except SolverError:
            return 1e9, np.zeros_like(variables)
        value /= unit
        if value < best[0]:
            best = (value, units)
        return value, shape.matrix.T @ gradient * (half / unit)

    # Levels in order, the outer ones within their bounds.
    difference = np.diff(np.eye(shape.matrix.shape[0]), axis=0) @ shape.matrix
    outer = np.stack([-shape.matrix[0], shape.matrix[-1]])
    linear = np.concatenate([difference, outer, -outer])
    offset = np.concatenate([np.full(len(difference), -_CLOSEST), np.full(2, -least * (1 + 1e-7)), np.full(2, largest)])
    optimize.minimize(
        evaluate,
        shape.pull(start),
        jac=True,
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda v: linear @ v + offset, "jac": lambda v: linear}],
        options={"maxiter": rounds, "ftol": 1e-10},
    )
    return best


def _quantiles(points: FloatArray, masses: FloatArray, count: int) -> FloatArray:
    """`count` points that split the mass evenly; none for count 0."""
    middle = (np.cumsum(masses) - masses / 2) / masses.sum()
    return np.interp((np.arange(count) + 0.5) / max(count, 1), middle, points)


def _spread(units: FloatArray, least: float, largest: float) -> FloatArray:
    """The levels moved as little as it takes to be in order, apart, and within their bounds."""
    result = np.clip(np.sort(units), -largest, largest)
    result[0], result[-1] = min(result[0], -least * 1.001), max(result[-1], least * 1.001)
    apart = 20 * _CLOSEST
    for index in range(1, result.size):
        result[index] = max(result[index], result[index - 1] + apart)
    excess = result[-1] - largest
    return result if excess <= 0 else np.linspace(-largest, largest, result.size)


def _dense_masses(problem: Problem, least: float, largest: float) -> tuple[FloatArray, FloatArray]:
    """Levels (centred units) that the best table on a dense grid of them uses, and how often."""
    units = np.linspace(-1, 1, _DENSE_LEVELS) * min(largest, 1.6 * least + 0.4)
    knots = from_centered(problem, np.linspace(-1.0, 1.0, _SEARCH_KNOTS))
    program = program_on(problem, problem.center + units * problem.width / 2, knots, problem.epsilon)
    rows = solve(program, tolerance=1e-7).rows
    weights = problem.prior.moments(knots)[:, 0]
    masses = weights @ (rows[1:] + rows[:-1]) / 2
    used = masses > 1e-4
    return units[used], masses[used]


def _starts(problem: Problem, count: int, least: float, largest: float) -> list[FloatArray]:
    """Levels to start from: even ones, and condensations of the best table on a dense grid of levels."""
    starts = [np.linspace(-1, 1, count) * min(1.1 * least, largest)]
    try:
        points, masses = _dense_masses(problem, least, largest)
    except SolverError:
        return starts
    starts.append(_quantiles(points, masses, count))
    # The dense optimum has clusters: an outer one on each side, often one in the middle. How many of few levels
    # belong to the middle is the combinatorial part of the search: several counts are tried.
    reach = np.abs(points)
    order = np.argsort(reach)
    gap = int(np.argmax(np.diff(reach[order])))
    split = reach[order][gap : gap + 2].mean()
    inner, above, below = reach < split, points > split, points < -split
    share = masses[inner].sum() / masses.sum()
    middles = sorted(range(count % 2, count - 1, 2), key=lambda middle: abs(middle - share * count))[:_MIDDLES]
    for middle in middles:
        outer = (count - middle) // 2
        parts = [(below, outer), (inner, middle), (above, outer)]
        if all(mask.any() or number == 0 for mask, number in parts):
            starts.append(np.concatenate([_quantiles(points[mask], masses[mask], n) for mask, n in parts if n]))
    return starts


def _local_knots(problem: Problem, units: FloatArray, symmetric: bool) -> FloatArray:
    """Knots near the bends of the best table at these levels."""
    knots = from_centered(problem, np.linspace(-1.0, 1.0, 2 * _SEARCH_KNOTS - 1))
    program = program_on(problem, problem.center + units * problem.width / 2, knots, problem.epsilon)
    floors = solve(program).floors * math.exp(-problem.epsilon / 2)
    bends = merged(breakpoints(floors, units, problem.epsilon), symmetric=symmetric)
    return from_centered(problem, around(bends, 1 / 64, symmetric=symmetric, sides=2))


def search_levels(
    problem: Problem, count: int, *, max_level: float | None, knots: FloatArray | None = None
) -> FloatArray:
    """The best `count` levels found, data units: multistart SLSQP on the optimal value. A local search: no bound.

    Arguments:
        max_level: largest distance of a level from the middle of the range, data units.
        knots: inputs that the design will use, data units; None lets the search choose.
    """
    problem = thinned(problem)
    plain = problem.is_pure and problem.loss != "minimax"
    grid = np.linspace(problem.lower, problem.upper, _SEARCH_KNOTS if plain else _FEW_KNOTS)
    if problem.metric is not None and knots is not None:
        grid = knots
    least, largest = level_bounds(problem, max_level, grid)
    if plain and count == 2 and problem.max_bias == 0:
        # Two levels a, b: the errors (b - x)(x - a) and 2 (b - x)(x - a) / (b - a) grow as either level moves out.
        return problem.center + np.array([-1, 1]) * _surely(problem, least) * (problem.width / 2)
    if not plain:
        # Levels that reach barely far enough leave the solver no interior.
        least *= 1 + 1e-4
    symmetric = _is_symmetric_prior(problem, grid)
    shape = Shape.of(count, symmetric=symmetric)

    def run(start: FloatArray, inputs: FloatArray, rounds: int) -> tuple[float, FloatArray]:
        return _search(problem, shape, inputs, start, least, largest, rounds)

    proposals = _starts(problem, count, least, largest) if plain else _even_starts(count, least, largest)
    starts = [_spread(start, least, largest) for start in proposals]
    found = sorted((run(start, grid, 25) for start in starts), key=_value)
    if not plain:
        return problem.center + found[0][1] * (problem.width / 2)
    units = run(found[0][1], grid, 60)[1]
    if problem.max_bias == 0:
        units = run(units, _local_knots(problem, units, symmetric), 40)[1]
    # The search meets its bounds up to its own tolerance only.
    least = _surely(problem, least)
    units[0], units[-1] = min(units[0], -least), max(units[-1], least)
    return problem.center + units * (problem.width / 2)


def _surely(problem: Problem, least: float) -> float:
    """`least` so much larger that outer levels reach far enough in floats too."""
    grain = 8 * math.ulp(max(abs(problem.lower), abs(problem.upper))) / (problem.width / 2)
    return least + 1e-9 * (least - 1) + grain


def thinned(problem: Problem) -> Problem:
    """The problem with a large sample replaced by its cells' masses and means: a search needs no more."""
    prior = problem.prior
    if not isinstance(prior, SamplePrior) or prior.points.size <= 2 * _CELLS:
        return problem
    edges = np.linspace(problem.lower, problem.upper, _CELLS + 1)
    moments = prior.moments(edges)
    used = moments[:, 0] > 0
    points = edges[:-1][used] + moments[used, 1] / moments[used, 0]
    return replace(problem, prior=SamplePrior(points=points, masses=moments[used, 0]))


def _even_starts(count: int, least: float, largest: float) -> list[FloatArray]:
    return [np.linspace(-1, 1, count) * min(stretch * least, largest) for stretch in (1.1, 1.5)]


def _value(found: tuple[float, FloatArray]) -> float:
    return found[0]


def _is_symmetric_prior(problem: Problem, knots: FloatArray) -> bool:
    levels = problem.center + np.linspace(-1.5, 1.5, 4) * problem.width
    costs = problem.costs(knots, levels)
    return bool(np.allclose(costs, costs[::-1, ::-1], rtol=0, atol=1e-12 * costs.max()))
