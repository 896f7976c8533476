"""Programs that only the OPTM paper's numbers need: Theorem 5 as printed, four bins exactly, one ratio for all outputs.

Cai, Zhang, Khalili 2024; docs/proofs/design.md, "OPTM".
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.core.arguments import check_covering
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import FloatArray, Mechanism
from mezzotint.core.priors import cost_matrix
from mezzotint.design.optm import SelectionTables, best_pairs, is_mirrored, solve_rows, table_of
from mezzotint.design.problem import DesignResult, Problem, achieved_loss, first_certified, make_problem, without_bound

_POINTS = 49


def _largest_at_own_bin(tables: SelectionTables, i: int) -> list[FloatArray]:
    """q_j(i) - q_i(i) <= 0 on both sides, for inner bins (1-based)."""
    if not tables.lower <= tables.bins[i - 1] <= tables.upper:
        return []
    pairs = [(tables.own(j, i), tables.own(i, i) if i <= j else tables.own(i - 1, i)) for j, _, _ in tables.used]
    return [tables.unit(own) - tables.unit(nearest) for own, nearest in pairs if own != nearest]


def published_theorem5(tables: SelectionTables, forms: FloatArray, epsilon: float) -> FloatArray:
    """Theorem 5 as printed: NO guarantee. Bin t has no constraint at all, and outer bins lack pairs of cells.

    Arguments: as the constraints of `design.optm`, see `design.optm.theorem5`.
    """
    cells = {j: place for place, (j, _, _) in enumerate(tables.used)}
    first = min(cells)
    rows: list[FloatArray] = []
    for i in range(1, tables.bins.size + 1):
        if tables.bins[i - 1] > tables.upper:
            continue
        at_end = forms[-1, 1, i - 1]
        # The bins k inside the range, to the right of bin i.
        for k in range(max(first, i) + 1, max(cells) + 1):
            if tables.bins[i - 1] >= tables.lower:
                uppers = [tables.unit(tables.own(i, i)), tables.unit(tables.own(i - 1, i))]
            else:
                uppers = [forms[cells[k], 0, i - 1], forms[0, 0, i - 1]]
            lowers = (forms[cells[k - 1], 1, i - 1], at_end)
            rows += [upper - math.exp(epsilon) * lower for upper in uppers for lower in lowers]
        rows += _largest_at_own_bin(tables, i)
    return np.array(rows) if rows else np.zeros((1, tables.size))


def optm_as_printed(
    epsilon: float = 1.0, *, bins: npt.ArrayLike, prior: object = None, boxes: int = 99
) -> DesignResult:
    """`design.optm` with the constraints of Theorem 5 as printed: its tables can exceed the nominal epsilon.

    Arguments: as `design.optm`, for inputs in [-1, 1].

    Raises:
        ParameterError, InfeasibleError: as `design.optm`.

    Guarantees: none but the certificate of the mechanism, at the epsilon that it truly has.
    Source: Cai, Zhang, Khalili 2024, Theorem 5; docs/proofs/design.md, "OPTM".
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=-1.0, upper=1.0, loss="mae", prior=prior)
    sets = [check_covering("bins", bins, lower=problem.lower, upper=problem.upper)]
    best = best_pairs(problem, sets, published_theorem5, boxes=boxes, started=started, is_private=False)
    if best is None:
        raise InfeasibleError(f"bins={bins}: no selection probabilities satisfy the constraints at epsilon={epsilon:g}")
    return best


def _best_thirds(
    problem: Problem, tables: SelectionTables, middle: FloatArray, epsilon: float
) -> tuple[float, FloatArray]:
    """(loss, y): the best q_3 for these q_2(1) of each side by one linear program; loss inf if there is none.

    Cells 1 and 3 pair q_3 with q_1 = 1, cell 2 pairs q_2 with q_2: with q_2 fixed every probability, hence the true
    epsilon and the true loss, is linear in q_3.
    """
    pinned, m = np.zeros(tables.size), tables.bins.size
    for side in range(tables.sides):
        pinned[tables.row(side, 2)] = middle[side], 1 - middle[side]
    forms = tables.forms(pinned).reshape(-1, m, tables.size)
    knots = np.array([end for _, *ends in tables.used for end in ends])
    costs = cost_matrix(
        knots=knots, levels=tables.bins, prior=problem.prior, loss="mae" if problem.loss == "mae" else "mse"
    )
    # Beside y stand the floors of the levels.
    flat, floors = forms.reshape(-1, tables.size), np.tile(np.eye(m), (knots.size, 1))
    private = np.concatenate([np.hstack([-flat, floors]), np.hstack([flat, -math.exp(epsilon) * floors])])
    target = np.concatenate([np.einsum("kmn,km->n", forms, costs), np.zeros(m)])
    answer = solve_rows(tables, *tables.box(pinned), target, private)
    return (math.inf, pinned) if answer is None else answer


def _best_middle(problem: Problem, tables: SelectionTables, epsilon: float) -> tuple[float, FloatArray]:
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
    bins: npt.ArrayLike,
    loss: Literal["mse", "mae"] = "mae",
    prior: object = None,
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
    levels = check_covering("bins", bins, lower=problem.lower, upper=problem.upper)
    inside = (levels > problem.lower) & (levels < problem.upper)
    if levels.size != 4 or inside.sum() != 2:
        raise ParameterError("bins", levels.tolist(), "need four bins, the inner two inside the range")
    tables = SelectionTables(
        bins=levels, lower=problem.lower, upper=problem.upper, sides=1 if is_mirrored(levels, problem) else 2
    )

    def build(budget: float) -> Mechanism:
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


def _others(tables: SelectionTables, j: int, x: float, i: int) -> FloatArray:
    """(size,) coefficients c with p(x, i) = y[own(j, i)] * (c @ y) at x in the closed cell j; bins count from 1."""
    m, bins = tables.bins.size, tables.bins
    result = np.zeros(tables.size)
    if i <= j:
        result[tables.row(1, m - j)] += ((bins[j:] - x) / (bins[j:] - bins[i - 1]))[::-1]
    else:
        result[tables.row(0, j)] += (x - bins[:j]) / (bins[i - 1] - bins[:j])
    return result


def one_ratio(tables: SelectionTables, low: FloatArray, epsilon: float) -> FloatArray:
    """Rows A of A y <= 0 that imply epsilon-DP for every y >= low: any p(x, i) <= exp(epsilon) times any p(x', i').

    i' runs over all outputs where privacy asks for i' = i alone: sufficient, and stricter than needed.
    """
    uppers: list[FloatArray] = []
    lowers: list[FloatArray] = []
    for i, (j, start, stop) in itertools.product(range(1, tables.bins.size + 1), tables.used):
        near, far = (start, stop) if i <= j else (stop, start)
        own = tables.unit(tables.own(j, i))
        at_near, at_far = _others(tables, j, near, i), _others(tables, j, far, i)
        # With a single bin on the other side, drawn for certain, p is linear in y.
        certain = (tables.bins.size - j if i <= j else j) == 1
        # p(B_i, i) is q itself; no upper bounds of q are used, that is u = 1.
        uppers.append(own if near == tables.bins[i - 1] else own * at_near.sum() if certain else at_near)
        # A cell with one bin on a side is linear in y; elsewhere the other side's q is replaced by its lower bound.
        if certain:
            lowers.append(own * at_far.sum())
        else:
            alone = min(j, tables.bins.size - j) == 1
            lowers.append(low[tables.own(j, i)] * at_far if alone else own * (at_far @ low))
    return np.array([upper - math.exp(epsilon) * lower for upper in uppers for lower in lowers])


@final
@dataclass(kw_only=True, eq=False)
class _OneRatioSearch:
    """The best box at one epsilon over all bin sets tried so far, by the bound of Theorem 4."""

    problem: Problem
    epsilon: float
    value: float = math.inf
    best: tuple[SelectionTables, FloatArray] | None = field(default=None, init=False)
    programs: int = field(default=0, init=False)

    def add(self, bins: FloatArray) -> None:
        """Searches the boxes at these bins."""
        tables = SelectionTables(bins=bins, lower=self.problem.lower, upper=self.problem.upper, sides=2)
        self._descend(tables, (0, 0), (_GRID.size - 1, _GRID.size - 1))

    def _descend(self, tables: SelectionTables, first: tuple[int, int], last: tuple[int, int]) -> None:
        """Boxes first .. last of the two sides. Their union with the largest lower bound as factor is a relaxation."""
        target, constant = tables.proxy(self.problem.prior)
        low, high, factors = self._union(tables, first, last)
        self.programs += 1
        answer = solve_rows(tables, low, high, target, one_ratio(tables, factors, self.epsilon))
        if answer is None or answer[0] + constant >= self.value:
            return
        if first == last:
            self.value, self.best = answer[0] + constant, (tables, answer[1])
            return
        side = 0 if last[0] - first[0] >= last[1] - first[1] else 1
        middle = (first[side] + last[side]) // 2
        self._descend(tables, first, _replaced(last, side, middle))
        self._descend(tables, _replaced(first, side, middle + 1), last)

    def _union(
        self, tables: SelectionTables, first: tuple[int, int], last: tuple[int, int]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        low, high = np.full(tables.size, _LEAST), np.ones(tables.size)
        factors = low.copy()
        for side in (0, 1):
            low[tables.row(side, 1)] = factors[tables.row(side, 1)] = 1.0
            pinned = tables.row(side, 2).start
            low[pinned], high[pinned] = _GRID[first[side]], _GRID[last[side]] + _WIDTH
            factors[pinned] = _GRID[last[side]]
        return low, high, factors


def _replaced(pair: tuple[int, int], side: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if side == 0 else (pair[0], value)


def _four_bins(bins: npt.ArrayLike, problem: Problem) -> FloatArray:
    values = check_covering("bins", bins, lower=problem.lower, upper=problem.upper)
    if values.size != 4 or not problem.lower < values[1] < values[2] < problem.upper:
        raise ParameterError("bin_sets", values.tolist(), "each needs four bins, the inner two inside the range")
    return values


def optm_one_ratio(
    epsilon: float = 1.0, *, prior: object = None, bin_sets: Sequence[Sequence[float]] = BIN_SETS
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
        search = _OneRatioSearch(problem=problem, epsilon=reduced)
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
