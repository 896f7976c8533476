"""`design.limit`: what no mechanism can beat, whatever its number of bits, with a certificate over all real levels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.design.bound import Cells, make_cells
from mezzotint.design.fixed import design_fixed
from mezzotint.design.levels import level_bounds
from mezzotint.design.problem import Problem, check_knots, make_problem
from mezzotint.design.program import mean_offset, pure_program
from mezzotint.design.result import DesignResult
from mezzotint.design.rounding import record
from mezzotint.design.solver import safe_bound, solve

FloatArray = npt.NDArray[np.float64]

EVERY_MECHANISM = "all mechanisms, any number of levels anywhere"
_LEVELS = 401
_SHOWN_LEVELS = 129
_CELLS = 96
_MAE_CELLS = 96
_FARTHEST_ROOT = 1e300
"""Levels beyond, in units of half the range, are no floats worth the name: roots there are left out."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Multipliers:
    """A dual point of the cell program: per average k the prices u_k of mass and v_k of the mean (centred units).

    Weak duality. Write r_k(B) = cost_k(B) - u_k - v_k B and g(B) = sum_k [r_k(B)^+ - e**epsilon r_k(B)^-]. Any
    mechanism has averages P_k with densities between floor and e**epsilon * floor of one measure `floor` of total
    mass at most 1, so its cost is at least sum_k (u_k + v_k aim_k - max_bias |v_k|) + integral of g d(floor)
    >= that sum + min(0, inf g). So only inf g over all levels B is to be found, and any (u, v) gives a bound.
    """

    mass: FloatArray
    mean: FloatArray

    def value(self, aims: FloatArray, max_bias: float) -> tuple[float, float]:
        """The sum above, and the sum of the absolute values of its terms (for the float error)."""
        terms = [*self.mass.tolist(), *(self.mean * aims).tolist()]
        if 0 < max_bias < math.inf:
            terms += (-max_bias * np.abs(self.mean)).tolist()
        return math.fsum(terms), math.fsum(map(abs, terms))


def _multipliers(aims: FloatArray, levels: FloatArray, costs: FloatArray, problem: Problem) -> Multipliers:
    """Solves the cell program on these levels (centred units); multipliers of all averages."""
    budget = problem.max_bias / (problem.width / 2)
    program = pure_program(aims=aims, levels=levels, costs=costs, epsilon=problem.epsilon, max_bias=budget)
    solution, view = solve(program), program.view
    dual, kept = solution.dual, view.rows[view.rows != view.centered]
    mass, mean = np.zeros(aims.size), np.zeros(aims.size)
    mass[view.rows] = -dual[: view.rows.size]
    if budget < math.inf:
        start, scale = mean_offset(view), max(1.0, float(np.abs(levels).max()))
        prices = dual[start : start + kept.size]
        if budget > 0:
            prices = prices - dual[start + kept.size : start + 2 * kept.size]
        mean[kept] = -prices / scale
    if view.is_symmetric:
        # A kept row stands for itself and its mirror image, the centred one for itself.
        mass, mean = mass + mass[::-1], mean - mean[::-1]
        mass, mean = mass / 2, mean / 2
    return Multipliers(mass=mass, mean=mean)


def least_of_quadratics(quadratic: FloatArray, linear: FloatArray, constant: FloatArray, ratio: float) -> float:
    """The infimum over all real B of sum_k [r_k^+ - ratio r_k^-], r_k = a_k B^2 + b_k B + c_k, a_k >= 0.

    Between two neighbouring roots of the r_k every sign is fixed and the sum is one quadratic: its least value is at
    an end or at its vertex. Exact up to float rounding, over the whole line.
    """
    roots = _real_roots(quadratic, linear, constant)
    # The first and the last piece are unbounded: any point of theirs tells the signs, and their vertex may be far.
    outer = 1 + 4 * np.abs(roots[[0, -1]])
    starts, stops = np.concatenate([[-np.inf], roots]), np.concatenate([roots, [np.inf]])
    inside = np.concatenate([[roots[0] - outer[0]], (roots[:-1] + roots[1:]) / 2, [roots[-1] + outer[1]]])
    with np.errstate(over="ignore"):  # infinities keep their sign, and heights of +inf are no candidates for the least
        values = (quadratic * inside[:, None] + linear) * inside[:, None] + constant
        slope = np.where(values < 0, ratio, 1.0)
        a, b, c = slope @ quadratic, slope @ linear, slope @ constant
        # Beyond the last root the sum grows if a > 0; with a = 0 it is linear there and must not fall.
        if (a[-1] == 0 and b[-1] < 0) or (a[0] == 0 and b[0] > 0):
            return -math.inf
        curved = a > 0
        vertex = np.clip(-b[curved] / (2 * a[curved]), starts[curved], stops[curved])
        at_vertices = (a[curved] * vertex + b[curved]) * vertex + c[curved]
        at_roots = (a[1:] * roots + b[1:]) * roots + c[1:]  # the sum is continuous: either side of a root will do
    return float(np.concatenate([at_vertices, at_roots]).min())


def _real_roots(quadratic: FloatArray, linear: FloatArray, constant: FloatArray) -> FloatArray:
    """All real roots of a B^2 + b B + c, sorted; 0 if there are none."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.sqrt(linear**2 - 4 * quadratic * constant)
        near = -(linear + np.where(linear >= 0, root, -root)) / 2
        roots = np.concatenate([near / quadratic, constant / near, -constant / linear])
    roots = np.unique(roots[np.abs(roots) < _FARTHEST_ROOT])
    return roots if roots.size else np.zeros(1)


def _certified_mse(problem: Problem, cells: Cells, levels: FloatArray) -> float:
    """A bound over all real levels (data units), from multipliers that are good at `levels` (centred units)."""
    half = problem.width / 2
    aims, points = (cells.aims - problem.center) / half, (cells.points - problem.center) / half
    costs = cells.costs(problem.center + levels * half, problem.loss) / half**2
    dual = _multipliers(aims, levels, costs, problem)
    # cost_k(B) = w_k ((B - point_k)^2 - shift_k) in units of half the range.
    quadratic = cells.weights
    linear = -2 * cells.weights * points - dual.mean
    constant = cells.weights * (points**2 - cells.shifts / half**2) - dual.mass
    ratio = math.exp(math.nextafter(problem.epsilon, math.inf)) * (1 + 1e-15)
    least = least_of_quadratics(quadratic, linear, constant, ratio)
    # Lowering every u_k by w_k * shift costs `shift` and raises g by at least that, by much more where r_k < 0.
    shift = _smallest_shift(lambda s: least_of_quadratics(quadratic, linear, constant + s * quadratic, ratio), least)
    least = least_of_quadratics(quadratic, linear, constant + shift * quadratic, ratio)
    value, size = dual.value(aims, problem.max_bias / half)
    error = 1e-13 * (size + ratio * float(np.abs(constant).sum() + np.abs(linear).sum()))
    return (value - shift * float(quadratic.sum()) + min(0.0, least) - error) * half**2 + cells.constant


def _smallest_shift(least: Callable[[float], float], at_zero: float) -> float:
    """A shift at which `least` is not negative (or nearly so), within 0.1 % of the smallest, by bisection."""
    low, high = 0.0, max(0.0, -at_zero)
    if not math.isfinite(high):
        return 0.0
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (low, middle) if least(middle) >= 0 else (middle, high)
    return high


def _mse_limit(problem: Problem, levels: FloatArray) -> float:
    """The certified limit of the MSE, from multipliers that are good at `levels` (centred units)."""
    count = _CELLS if problem.epsilon <= 3 else 2 * _CELLS
    cells = make_cells(problem, np.linspace(problem.lower, problem.upper, count + 1))
    return _certified_mse(problem, cells, levels)


def _mae_limit(problem: Problem, largest: float) -> float:
    """The certified limit of the MAE over levels within `largest` (centred units) of the middle.

    For a level B inside a cell the loss there is replaced by 0, which is smaller. Then every r_k is linear in B on
    each cell and on each side of the range, so g is concave there and its least values are at the ends of these
    pieces: a finite program whose columns are those ends bounds all real levels.
    """
    half = problem.width / 2
    edges = np.linspace(problem.lower, problem.upper, _MAE_CELLS + 1)
    cells = make_cells(problem, edges)
    beyond = problem.center + np.array([-largest * half, largest * half])
    ends = np.repeat(edges, 2)[1:-1]
    levels = np.concatenate([beyond[:1], edges[:1], ends, edges[-1:], beyond[1:]])
    costs = cells.costs(levels, problem.loss)
    # Rows and columns of the same cell: the loss is dropped.
    row_cell = _row_cells(problem, edges)
    column_cell = np.concatenate([[-1, -1], np.repeat(np.arange(_MAE_CELLS), 2), [-1, -1]])
    costs[(row_cell[:, None] == column_cell) & (row_cell[:, None] >= 0)] = 0.0
    program = pure_program(
        aims=(cells.aims - problem.center) / half,
        levels=(levels - problem.center) / half,
        costs=costs,
        epsilon=math.nextafter(problem.epsilon, math.inf),
        max_bias=problem.max_bias / half,
    )
    return safe_bound(program, solve(program).dual) + cells.constant


def _row_cells(problem: Problem, edges: FloatArray) -> npt.NDArray[np.intp]:
    """The cell of each row of `make_cells`, -1 for the two rows at the ends of the range."""
    moments = problem.prior.moments(edges)
    to_right = moments[:, 1] / np.diff(edges)
    weights = np.stack([moments[:, 0] - to_right, to_right], axis=1).ravel()
    return np.concatenate([[-1], np.repeat(np.arange(edges.size - 1), 2)[weights > 0], [-1]])


def limit_of(problem: Problem, max_level: float | None) -> tuple[float, FloatArray]:
    """The certified limit of a pure-epsilon problem, and dense levels (data units) on which it is nearly attained."""
    if not problem.is_pure or problem.loss not in ("mse", "mae"):
        raise ParameterError("loss", problem.loss, 'limits are known for pure epsilon and loss "mse" or "mae"')
    least, largest = level_bounds(problem, max_level)
    reach = min(1.6 * least + 0.4, largest)
    levels = np.linspace(-reach, reach, _LEVELS)
    half = problem.width / 2
    if problem.loss == "mae":
        inner = np.linspace(-1, 1, _SHOWN_LEVELS - 2)
        shown = np.concatenate([[-largest], inner, [largest]])
        return max(0.0, _mae_limit(problem, largest)), problem.center + shown * half
    shown = np.linspace(-reach, reach, _SHOWN_LEVELS)
    return max(0.0, _mse_limit(problem, levels)), problem.center + shown * half


def limit(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    loss: str = "mse",
    prior: Any = None,
    max_bias: float = 0.0,
    max_level: float | None = None,
) -> DesignResult:
    """The best loss that any number of bits can reach under pure epsilon: a certified lower bound.

    Arguments:
        epsilon: pure epsilon per report, replace-one neighbours.
        lower, upper: range of the inputs, data units.
        loss: "mse" (squared data units) or "mae" (data units).
        prior: None (uniform), a frozen scipy.stats distribution or a 1-D sample, as in `optimal`.
        max_bias: 0 for unbiased mechanisms, else the bias allowed, data units.
        max_level: largest distance of a level from the middle of the range. For "mae" the loss keeps falling as
            levels grow, so a bound is needed: without one, 1 + 2 max(overhang, 1/2) half-ranges are assumed.

    Returns:
        `lower_bound` is the limit. `mechanism` is a table of 129 levels that nearly attains it, `loss` its loss:
        the truth lies between the two.

    Raises:
        ParameterError: a bad value; loss "minimax".

    Warns:
        UnboundedLevelsWarning: loss "mae" without `max_level`.

    Guarantees: every mechanism with real-valued reports, whatever their number, that is epsilon-DP over all pairs of
        inputs and within `max_bias`, has an expected loss of at least `lower_bound` (docs/proofs/design.md, "Limit").

    Edge cases: the bound is within 0.5 % of `loss` for epsilon from 0.1 to 5; beyond 8 it is loose, at worst 0.
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, loss=loss, prior=prior, max_bias=max_bias)
    bound, levels = limit_of(problem, max_level)
    draft, mechanism = design_fixed(problem, levels, check_knots(_SHOWN_LEVELS, problem))
    draft = replace(draft, lower_bound=bound, scope=EVERY_MECHANISM)
    return record(problem, draft, mechanism, started=started)
