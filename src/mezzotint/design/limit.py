"""`design.limit`: what no mechanism can beat, whatever its number of bits, with a certificate over all real levels."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import FloatArray
from mezzotint.design.drafts import record
from mezzotint.design.fixed import design_fixed, design_general, ratio_above
from mezzotint.design.floors import cut_at, least_of_quadratics
from mezzotint.design.levels import level_bounds
from mezzotint.design.problem import DesignResult, Problem, check_knots, make_problem
from mezzotint.design.program import RatioPart, assemble, safe_bound, solve

EVERY_MECHANISM = "all mechanisms, any number of levels anywhere"
_LEVELS = 81
_MOST_LEVELS = 160
_CLOSE = 1e-4
_USED = 1e-3
"""Levels with less than this share of the largest floor are left out of the next round."""
_SHOWN_LEVELS = 65
_CELLS = 64


def _mse_limit(problem: Problem, least: float, largest: float) -> tuple[float, FloatArray]:
    """The limit of the unbiased MSE, and levels on which it is nearly attained (centred units).

    Designs on more and more levels: those where the last one's cut is lowest are added, unused ones are left out.
    """
    half, ratio = problem.width / 2, ratio_above(problem.epsilon)
    reach = min(1.6 * least + 0.4, largest)
    levels, bound = np.linspace(-reach, reach, _LEVELS if problem.epsilon <= 5 else 2 * _LEVELS - 1), 0.0
    while True:
        cut, floors = cut_at(levels, ratio, problem)
        values, places = cut.least(np.concatenate([[-np.inf], levels, [np.inf]]), ratio)
        height, lowest = cut.constant(), min(0.0, float(values.min()))
        # Floors of mass S cost S times the prior's variance at least: rare where the loss is small.
        bound = max(bound, height + lowest, height * cut.variance() / (cut.variance() - lowest))
        kept = floors > _USED * floors.max()
        if bound >= height * (1 - _CLOSE) or levels.size > _MOST_LEVELS * (1 + (problem.epsilon > 5)):
            error = 1e-13 * ratio * float((levels[[0, -1]] ** 2).sum())
            return (bound * (1 - 1e-11) - error) * half**2, levels[kept]
        kept[[0, -1]] = True
        levels = np.unique(np.concatenate([levels[kept], places[values < 1e-3 * lowest]]))
        levels = levels[np.concatenate([[True], np.diff(levels) > 1e-7])]


# With a bias budget, or for the MAE: programs over averages -----------------------------------------------------


def averages(problem: Problem, edges: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Two averages of reports per cell of inputs, weighted by 1 - t and t, t the position in the cell; centred units.

    Any mechanism's averages satisfy the constraints of a table with these aims. docs/proofs/design.md, "Cells".

    Arguments:
        edges: of the cells, data units; for the MAE no level may lie inside a cell.

    Returns: (R,) each: the mean input of each average; its prior mass; the input, an end of the cell, at which a loss
        linear in the input on the cell is taken; the number of the cell. The first and the last row are those at the
        ends of the range, with mass 0 and cell -1.
    """
    half = problem.width / 2
    moments = problem.prior.moments(edges)[:, :3] / half ** np.arange(3)
    edges = (edges - problem.center) / half
    width, left = np.diff(edges), edges[:-1]
    to_right = moments[:, 1] / width
    to_left = moments[:, 0] - to_right
    with np.errstate(divide="ignore", invalid="ignore"):
        right_aim = left + moments[:, 2] / moments[:, 1]
        left_aim = left + (moments[:, 1] - moments[:, 2] / width) / to_left
    used = np.stack([to_left, to_right], axis=1).ravel() > 0

    def framed(first: FloatArray, second: FloatArray, low: float, high: float) -> FloatArray:
        """Both averages of each cell, between the rows at the two ends of the range."""
        return np.concatenate([[low], np.stack([first, second], axis=1).ravel()[used], [high]])

    number = np.arange(width.size, dtype=np.float64)
    aims = np.clip(framed(left_aim, right_aim, -1.0, 1.0), -1.0, 1.0)
    return aims, framed(to_left, to_right, 0.0, 0.0), framed(left, edges[1:], -1.0, 1.0), framed(number, number, -1, -1)


def _biased_limit(problem: Problem, reach: float) -> float:
    """The limit of the MSE with a bias budget: multipliers from dense levels, the least over all real ones."""
    half, ratio = problem.width / 2, ratio_above(problem.epsilon)
    budget = problem.max_bias / half
    aims, weights, points, _ = averages(problem, np.linspace(problem.lower, problem.upper, _CELLS + 1))
    levels, count = np.linspace(-reach, reach, 2 * _SHOWN_LEVELS - 1), aims.size
    # (B - x)^2 - x^2 is linear in x; no mechanism can change the mean of x^2.
    coefficients = np.stack([np.zeros(count), -2 * weights * points, weights])
    program = assemble(
        aims=aims,
        levels=levels,
        costs=coefficients.T @ levels ** np.arange(3)[:, None],
        parts=[RatioPart(epsilon=problem.epsilon)],
        max_bias=budget,
    )
    dual = solve(program).dual
    mass, mean = -dual[:count], np.zeros(count)
    if budget < math.inf:
        mean = (dual[2 * count : 3 * count] - dual[count : 2 * count]) / max(1.0, reach)
    height = math.fsum([*mass, *(mean * aims)]) - (float(budget * np.abs(mean).sum()) if mean.any() else 0.0)
    coefficients = coefficients - np.stack([mass, mean, np.zeros(count)])
    line = np.array([-np.inf, np.inf])
    lowest = min(0.0, float(least_of_quadratics(coefficients, real_roots(coefficients), line, ratio)[0][0]))
    error = 1e-13 * ratio * float(np.abs(coefficients).sum())
    _, first, second = problem.prior.moments(np.array([problem.lower, problem.upper]))[0, :3]
    constant = float(second / half**2 - 2 * first / half + 1)
    return (height + constant + lowest - error) * half**2


def real_roots(coefficients: FloatArray) -> FloatArray:
    """All real roots of quadratics (3, n)."""
    c, b, a = coefficients
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.sqrt(b**2 - 4 * a * c)
        near = -(b + np.where(b >= 0, root, -root)) / 2
        roots = np.concatenate([near / a, c / near, -c / b])
    return np.unique(np.append(roots[np.abs(roots) < 1e100], 0.0))


def _mae_limit(problem: Problem, largest: float) -> float:
    """The certified limit of the MAE over levels within `largest` (centred units) of the middle.

    For a level B inside a cell the loss there is replaced by 0, which is smaller. Then every r_k is linear in B on
    each cell and on each side of the range, so g is concave there and its least values are at the ends of these
    pieces: a finite program whose columns are those ends bounds all real levels.
    """
    half, edges = problem.width / 2, np.linspace(-1.0, 1.0, 3 * _CELLS // 2 + 1)
    inside = np.clip(problem.center + half * edges, problem.lower, problem.upper)
    aims, weights, points, number = averages(problem, inside)
    levels = np.concatenate([[-largest, -1.0], np.repeat(edges, 2)[1:-1], [1.0, largest]])
    cells = np.concatenate([[-2, -2], np.repeat(np.arange(edges.size - 1), 2), [-2, -2]])
    costs = weights[:, None] * np.abs(levels - points[:, None])
    costs[number[:, None] == cells] = 0.0
    program = assemble(
        aims=aims,
        levels=levels,
        costs=costs,
        parts=[RatioPart(epsilon=math.nextafter(problem.epsilon, math.inf))],
        max_bias=problem.max_bias / half,
    )
    return safe_bound(program, solve(program).dual) * half


def limit_of(problem: Problem, max_level: float | None) -> tuple[float, FloatArray]:
    """The certified limit of a pure-epsilon problem, and dense levels (data units) on which it is nearly attained."""
    if not problem.is_pure or problem.loss not in ("mse", "mae"):
        raise ParameterError("loss", problem.loss, 'limits are known for pure epsilon and loss "mse" or "mae"')
    least, largest = level_bounds(problem, max_level)
    reach, half = min(1.6 * least + 0.4, largest), problem.width / 2
    if problem.loss == "mae":
        shown = np.concatenate([[-largest], np.linspace(-1, 1, 2 * _SHOWN_LEVELS - 3), [largest]])
        bound = _mae_limit(problem, largest)
    elif problem.max_bias:
        shown, bound = np.linspace(-reach, reach, _SHOWN_LEVELS), _biased_limit(problem, reach)
    else:
        bound, shown = _mse_limit(problem, least, largest)
    return max(0.0, bound), problem.center + shown * half


def limit(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    loss: str = "mse",
    prior: object = None,
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
        `lower_bound` is the limit. `mechanism` is a table of many levels that nearly attains it, `loss` its loss:
        the truth lies between the two.

    Raises:
        ParameterError: a bad value; loss "minimax".

    Warns:
        UnboundedLevelsWarning: loss "mae" without `max_level`.

    Guarantees: every mechanism with real-valued reports, whatever their number, that is epsilon-DP over all pairs of
        inputs and within `max_bias`, has an expected loss of at least `lower_bound` (docs/proofs/design.md, "Limit").

    Edge cases: for uniform inputs the bound is within 0.2 % of `loss` for epsilon up to 4, within 1 % at 8; with a bias
        budget it is loose from 5 on, at worst 0.
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, loss=loss, prior=prior, max_bias=max_bias)
    bound, levels = limit_of(problem, max_level)
    if max_bias:
        draft, mechanism = design_general(problem, levels, check_knots(_SHOWN_LEVELS, problem))
    else:
        draft, mechanism = design_fixed(problem, levels, None)
    draft = replace(draft, lower_bound=bound, scope=EVERY_MECHANISM)
    return record(problem, draft, mechanism, started=started)
