"""Two programs that only the OPTM paper's numbers need: the exact optimum on four bins, and one ratio for all outputs.

Cai, Zhang, Khalili 2024; docs/proofs/design.md, "OPTM".
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import cost_matrix
from mezzotint.design.optm import covering_bins, is_mirrored, table_of
from mezzotint.design.optm_program import Box, Tables, solve_rows, unit
from mezzotint.design.problem import Problem, make_problem
from mezzotint.design.result import DesignResult, without_bound
from mezzotint.design.rounding import achieved_loss, first_certified
from mezzotint.families.selection import pair_rows

FloatArray = npt.NDArray[np.float64]

_POINTS = 49


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
    axis = np.linspace(0, 1, _POINTS + 2)[1:-1]
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

    step = 1 / (_POINTS + 1)
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
        iterations=_POINTS,
    )


# What the paper's published program searches: boxes q_2(1) in [o, o + 0.01] on each side, all other q at least 1e-5.
_GRID = np.arange(1, 20) * 0.05
_WIDTH = 0.01
_LEAST = 1e-5
BIN_SETS = tuple(
    (-outer, *inner, outer) for outer in (2.0, 3.0, 4.0) for inner in itertools.combinations((-0.6, -0.2, 0.2, 0.6), 2)
)


def one_ratio(tables: Tables, low: FloatArray, epsilon: float) -> FloatArray:
    """Rows A of A y <= 0 that imply epsilon-DP for every y >= low: any p(x, i) <= exp(epsilon) times any p(x', i').

    i' runs over all outputs where privacy asks for i' = i alone: sufficient, and stricter than needed.
    """
    uppers: list[FloatArray] = []
    lowers: list[FloatArray] = []
    # No upper bounds u of q are used: u = 1.
    loose = Box(low=low, high=np.ones(tables.size))
    for i, (j, start, stop) in itertools.product(range(1, tables.bins.size + 1), tables.used()):
        near, far = (start, stop) if i <= j else (stop, start)
        own = unit(tables.size, tables.own(j, i))
        # p(B_i, i) is q itself.
        uppers.append(own if near == tables.bins[i - 1] else tables.most(loose, j, near, i))
        # A cell with one bin on a side is linear in y; elsewhere the other side's q is replaced by its lower bound.
        linear = min(j, tables.bins.size - j) == 1
        lowers.append(tables.least(loose, j, far, i) if linear else own * (tables.others(j, far, i) @ low))
    return np.array([upper - math.exp(epsilon) * lower for upper in uppers for lower in lowers])


@final
@dataclass(kw_only=True, eq=False)
class _Search:
    """The best box at one epsilon over all bin sets tried so far, by the bound of Theorem 4."""

    problem: Problem
    epsilon: float
    value: float = math.inf
    best: tuple[Tables, FloatArray] | None = field(default=None, init=False)
    programs: int = field(default=0, init=False)

    def add(self, bins: FloatArray) -> None:
        """Searches the boxes at these bins."""
        tables = Tables(bins=bins, lower=self.problem.lower, upper=self.problem.upper, sides=2)
        self._descend(tables, (0, 0), (_GRID.size - 1, _GRID.size - 1))

    def _descend(self, tables: Tables, first: tuple[int, int], last: tuple[int, int]) -> None:
        """Boxes first .. last of the two sides. Their union with the largest lower bound as factor is a relaxation."""
        target, constant = tables.proxy(self.problem.prior)
        box, factors = self._union(tables, first, last)
        self.programs += 1
        answer = solve_rows(tables, box, target, one_ratio(tables, factors, self.epsilon))
        if answer is None or answer[0] + constant >= self.value:
            return
        if first == last:
            self.value, self.best = answer[0] + constant, (tables, answer[1])
            return
        side = 0 if last[0] - first[0] >= last[1] - first[1] else 1
        middle = (first[side] + last[side]) // 2
        self._descend(tables, first, _replaced(last, side, middle))
        self._descend(tables, _replaced(first, side, middle + 1), last)

    def _union(self, tables: Tables, first: tuple[int, int], last: tuple[int, int]) -> tuple[Box, FloatArray]:
        low, high = np.full(tables.size, _LEAST), np.ones(tables.size)
        factors = low.copy()
        for side in (0, 1):
            low[tables.row(side, 1)] = factors[tables.row(side, 1)] = 1.0
            pinned = tables.start(side, 2)
            low[pinned], high[pinned] = _GRID[first[side]], _GRID[last[side]] + _WIDTH
            factors[pinned] = _GRID[last[side]]
        return Box(low=low, high=high), factors


def _replaced(pair: tuple[int, int], side: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if side == 0 else (pair[0], value)


def _four_bins(bins: Any, problem: Problem) -> FloatArray:
    values = covering_bins(bins, problem)
    if values.size != 4 or not problem.lower < values[1] < values[2] < problem.upper:
        raise ParameterError("bin_sets", values.tolist(), "each needs four bins, the inner two inside the range")
    return values


def optm_one_ratio(
    epsilon: float = 1.0, *, prior: Any = None, bin_sets: Sequence[Sequence[float]] = BIN_SETS
) -> DesignResult:
    """OPTM with separate sides, four bins and one ratio for all outputs, on the coarse grids of the paper's Table 2.

    Arguments:
        epsilon: pure epsilon per report, replace-one neighbours.
        prior: of inputs in [-1, 1]: None (uniform), a frozen scipy.stats distribution or a 1-D sample.
        bin_sets: output levels to choose among; the default is what the paper's published program searches.

    Returns:
        The mechanism of the box and bins with the least bound on the MAE (Theorem 4), and its exact MAE as `loss`;
        no lower bound. `iterations` counts linear programs.

    Raises:
        ParameterError: a bad value.
        InfeasibleError: no box has a solution.

    Guarantees: certified epsilon <= epsilon; unbiased. Never better than `optm_exact` at the same bins: for use beside
    the paper's numbers.
    Source: Cai, Zhang, Khalili 2024, Theorem 4, Table 2 and the program published with it; docs/proofs/design.md,
    "OPTM".
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=-1.0, upper=1.0, loss="mae", prior=prior)
    sets = [_four_bins(bins, problem) for bins in bin_sets]
    if not sets:
        raise ParameterError("bin_sets", bin_sets, "give at least one set of four bins")
    programs = 0

    def build(reduced: float) -> Mechanism:
        nonlocal programs
        search = _Search(problem=problem, epsilon=reduced)
        for bins in sets:
            search.add(bins)
        programs += search.programs
        if search.best is None:
            raise InfeasibleError(f"epsilon={epsilon:g}: no box has a solution; raise epsilon or use design.optimal")
        return table_of(problem, *search.best, name="OPTM (one ratio)", epsilon=problem.epsilon)

    mechanism = first_certified(build, epsilon=problem.epsilon)
    return without_bound(
        mechanism, loss=achieved_loss(problem, mechanism), status="heuristic", started=started, iterations=programs
    )
