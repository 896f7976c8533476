"""The exact optimum of the pair-selection family with four bins: no boxes, no bound on the loss."""

from __future__ import annotations

import math
import time
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.core.cost import cost_matrix
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.design.optm import covering_bins, is_mirrored, table_of
from mezzotint.design.optm_program import Tables
from mezzotint.design.problem import Problem, make_problem
from mezzotint.design.result import DesignResult, without_bound
from mezzotint.design.rounding import achieved_loss, first_certified
from mezzotint.families.selection import pair_rows

FloatArray = npt.NDArray[np.float64]

_GRID = 49


def _corners(problem: Problem, tables: Tables, middle: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Knots, and the rows as a linear function of q_3: (knots,), (sides, 3, knots, m), (knots, m) constant part.

    `middle` holds q_2(1) of each side. Cells 1 and 3 pair q_3 with q_1 = 1, cell 2 pairs q_2 with q_2: with q_2
    fixed every probability, hence the true epsilon and the true loss, is linear in q_3.
    """
    y = np.zeros(tables.size)

    def rows_at(thirds: FloatArray) -> tuple[FloatArray, FloatArray]:
        for side in range(tables.sides):
            y[tables.row(side, 1)] = 1.0
            y[tables.row(side, 2)] = [middle[side], 1 - middle[side]]
            y[tables.row(side, 3)] = thirds[side]
        sides = [[y[tables.row(s % tables.sides, n)] for n in (1, 2, 3)] for s in (0, 1)]
        return pair_rows(tables.bins, sides[0], sides[1], lower=problem.lower, upper=problem.upper)

    knots, constant = rows_at(np.zeros((tables.sides, 3)))
    parts = np.zeros((tables.sides, 3, knots.size, tables.bins.size))
    for side in range(tables.sides):
        for entry in range(3):
            thirds = np.zeros((tables.sides, 3))
            thirds[side, entry] = 1.0
            parts[side, entry] = rows_at(thirds)[1] - constant
    return knots, parts, constant


def _best_thirds(problem: Problem, tables: Tables, middle: FloatArray, epsilon: float) -> tuple[float, FloatArray]:
    """(loss, y): the best q_3 for this q_2 by one linear program; loss inf if there is none."""
    knots, parts, constant = _corners(problem, tables, middle)
    costs = cost_matrix(
        knots=knots, levels=tables.bins, prior=problem.prior, loss="mae" if problem.loss == "mae" else "mse"
    )
    flat = parts.reshape(tables.sides * 3, -1)
    count, m = len(flat), tables.bins.size
    floors = np.tile(np.eye(m), (knots.size, 1))
    upper = np.concatenate([np.hstack([-flat.T, floors]), np.hstack([flat.T, -math.exp(epsilon) * floors])])
    limits = np.concatenate([constant.ravel(), -constant.ravel()])
    sums = np.zeros((tables.sides, count + m))
    for side in range(tables.sides):
        sums[side, 3 * side : 3 * side + 3] = 1.0
    answer = optimize.linprog(
        np.concatenate([flat @ costs.ravel(), np.zeros(m)]),
        A_ub=upper,
        b_ub=limits,
        A_eq=sums,
        b_eq=np.ones(tables.sides),
        method="highs",
    )
    y = np.zeros(tables.size)
    if answer.status != 0:
        return math.inf, y
    for side in range(tables.sides):
        y[tables.row(side, 1)] = 1.0
        y[tables.row(side, 2)] = [middle[side], 1 - middle[side]]
        y[tables.row(side, 3)] = answer.x[3 * side : 3 * side + 3]
    return float(answer.fun) + float((costs * constant).sum()), y


def _best_middle(problem: Problem, tables: Tables, epsilon: float) -> tuple[float, FloatArray]:
    """The search over q_2(1): a grid, then a local refinement, one linear program per point."""
    axis = np.linspace(0, 1, _GRID + 2)[1:-1]
    axes = [axis] if tables.sides == 1 else [axis[::3], axis[::3]]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, tables.sides)
    values = [_best_thirds(problem, tables, middle, epsilon)[0] for middle in grid]
    best = grid[int(np.argmin(values))]
    if not math.isfinite(min(values)):
        return math.inf, np.zeros(tables.size)

    def evaluate(middle: FloatArray) -> float:
        inside = np.clip(middle, 0, 1)
        value = _best_thirds(problem, tables, inside, epsilon)[0]
        return min(value, 1e12)

    step = 1 / (_GRID + 1)
    simplex = np.concatenate([[best], best + step * np.eye(tables.sides)])
    options = {"initial_simplex": simplex, "xatol": 1e-10, "fatol": 1e-13, "maxiter": 200}
    refined = optimize.minimize(evaluate, best, method="Nelder-Mead", options=options)
    return _best_thirds(problem, tables, np.clip(refined.x, 0, 1), epsilon)


def optm_exact(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    bins: Any,
    loss: Literal["mse", "mae"] = "mae",
    prior: Any = None,
) -> DesignResult:
    """The best pair-selection mechanism on four bins: its true loss minimised under its true epsilon.

    Arguments: as `optm`; `bins` are four, two of them inside the range; `loss` "mae" or "mse".

    Raises:
        ParameterError: not four bins, or not two inside the range.
        InfeasibleError: the family has no member at this epsilon on these bins.

    Guarantees: never worse than `optm` on the same bins (same loss), up to the refinement of one number per side.
    Source: docs/proofs/design.md, "OPTM with four bins".
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, loss=loss, prior=prior)
    levels = covering_bins(bins, problem)
    inside = (levels > problem.lower) & (levels < problem.upper)
    if levels.size != 4 or inside.sum() != 2:
        raise ParameterError("bins", levels.tolist(), "need four bins, the inner two inside the range")
    tables = Tables(
        bins=levels, lower=problem.lower, upper=problem.upper, sides=1 if is_mirrored(levels, problem) else 2
    )

    def build(budget: float) -> Any:
        value, y = _best_middle(problem, tables, budget)
        if not math.isfinite(value):
            raise InfeasibleError(f"bins={levels.tolist()}: no pair selection reaches epsilon={epsilon:g} on them")
        return table_of(problem, tables, y, name="OPTM (exact)", epsilon=problem.epsilon)

    mechanism = first_certified(build, epsilon=problem.epsilon)
    return without_bound(
        mechanism,
        loss=achieved_loss(problem, mechanism),
        status="optimal in its family",
        started=started,
        iterations=_GRID,
    )
