"""Programs of the OPTM paper beside `design.optm`: the family of four bins solved globally, and two
as published.

Cai, Zhang, Khalili 2024, "Privacy-Aware Randomized Quantization via Linear Programming";
docs/proofs/design.md, "OPTM".
"""

from __future__ import annotations

import heapq
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
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import table
from mezzotint.core.types import FloatArray
from mezzotint.design.pair_selection import SelectionTables, best_pairs, solve_rows, table_of
from mezzotint.design.problem import (
    DesignResult,
    FloatDesign,
    Problem,
    achieved_loss,
    first_certified,
    make_problem,
    record,
    without_bound,
)

# Four bins, exactly -------------------------------------------------------------------------------

_PROBABILITIES = ("1", "x", "y", "z", "a1", "a2", "a3", "b1", "b2", "b3")
"""Variables of the program, before the four floors: the constant; q_2(1) of the left and of the
right side and their product; q_3 of the left side (outermost bin first), used in the last cell; q_3
of the right side, used in the first.
"""

_PAIRS: tuple[dict[tuple[int, int], dict[str, int]], ...] = (
    {(0, 3): {"b1": 1}, (0, 2): {"b2": 1}, (0, 1): {"b3": 1}},
    {
        (0, 3): {"z": 1},
        (0, 2): {"x": 1, "z": -1},
        (1, 3): {"y": 1, "z": -1},
        (1, 2): {"1": 1, "x": -1, "y": -1, "z": 1},
    },
    {(0, 3): {"a1": 1}, (1, 3): {"a2": 1}, (2, 3): {"a3": 1}},
)
"""For each of the three cells: pair of bins -> how likely it is selected, as a linear form in the
variables.
"""

_BINS = 4
_SIZE = len(_PROBABILITIES) + _BINS
_GAP = 1e-7
"""Relative distance of the best table found from the bound at which the search ends."""
_MOST_BOXES = 4000
_SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}

Box = tuple[float, float, float, float]
"""Least and largest x, least and largest y."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Relaxation:
    """What the linear program of one box found: a lower bound of the loss there, and the
    variables.
    """

    bound: float
    loss: float
    values: FloatArray


@final
@dataclass(kw_only=True, eq=False)
class FourBins:
    """The pair selections on four bins, two of them inside the range, as one bilinear program.

    Every output's probability at both ends of every cell is linear in the variables but for z = x
    y. Over a box of x and y McCormick's four inequalities enclose that product, and the linear
    program with them bounds every member of the family in the box from below. With x and y fixed it
    is the family itself.

    Arguments:
        problem: range, prior, loss and epsilon; bins: (4,) increasing.
    """

    problem: Problem
    bins: FloatArray
    programs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        lower, upper = self.problem.lower, self.problem.upper
        second, third = self.bins[1], self.bins[2]
        self.knots = np.array([lower, second, second, third, third, upper])
        self.forms = np.zeros((self.knots.size, _BINS, _SIZE))
        for place, knot in enumerate(self.knots.tolist()):
            for (low, high), form in _PAIRS[place // 2].items():
                share = (knot - self.bins[low]) / (self.bins[high] - self.bins[low])
                for name, coefficient in form.items():
                    column = _PROBABILITIES.index(name)
                    self.forms[place, low, column] += coefficient * (1 - share)
                    self.forms[place, high, column] += coefficient * share
        costs = self.problem.costs(self.knots, self.bins)
        self.target = np.einsum("kmn,km->n", self.forms, costs)

    def relaxed(self, box: Box, epsilon: float) -> _Relaxation | None:
        """The linear program over a box, or None where it has no solution."""
        self.programs += 1
        rows, limits = self._inequalities(box, epsilon)
        sums = np.zeros((2, _SIZE))
        sums[0, 4:7] = sums[1, 7:10] = 1.0
        lows, highs = np.zeros(_SIZE), np.ones(_SIZE)
        lows[0] = 1.0
        lows[1], highs[1], lows[2], highs[2] = box
        answer = optimize.linprog(
            self.target, rows, limits, sums, np.ones(2), np.stack([lows, highs], axis=1),
            method="highs", options=_SOLVER,
        )  # fmt: skip
        if answer.status != 0:
            return None
        # Weak duality: any multipliers bound the optimum from below, however exactly the solver
        # found them.
        slopes, levels = np.minimum(answer.ineqlin.marginals, 0.0), answer.eqlin.marginals
        left = self.target - rows.T @ slopes - sums.T @ levels
        bound = slopes @ limits + levels.sum() + np.minimum(left * lows, left * highs).sum()
        return _Relaxation(
            bound=float(bound),
            loss=float(answer.fun),
            values=np.asarray(answer.x),
        )

    def _inequalities(self, box: Box, epsilon: float) -> tuple[FloatArray, FloatArray]:
        """Rows A and limits b of A v <= b: privacy of every output at every limit, and McCormick's
        four.
        """
        flat = self.forms.reshape(-1, _SIZE)
        floors = np.zeros((flat.shape[0], _SIZE))
        floors[:, len(_PROBABILITIES) :] = np.tile(np.eye(_BINS), (self.knots.size, 1))
        least_x, most_x, least_y, most_y = box
        hull = np.zeros((4, _SIZE))
        # Columns 1 to 3: x, y, z. Below z: both ends of the box alike; above it: opposite ends.
        hull[0, 1:4] = least_y, least_x, -1
        hull[1, 1:4] = most_y, most_x, -1
        hull[2, 1:4] = -least_y, -most_x, 1
        hull[3, 1:4] = -most_y, -least_x, 1
        corners = [least_x * least_y, most_x * most_y, -most_x * least_y, -least_x * most_y]
        rows = np.concatenate([floors - flat, flat - math.exp(epsilon) * floors, hull])
        return rows, np.concatenate([np.zeros(2 * flat.shape[0]), corners])

    def member(self, x: float, y: float, epsilon: float) -> _Relaxation | None:
        """The best member of the family with these two probabilities."""
        return self.relaxed((x, x, y, y), epsilon)

    def solve(self, epsilon: float) -> tuple[float, FloatArray]:
        """(lower bound of the family, variables of its best member), by branching on the box of x
        and y.
        """
        best, variables = math.inf, np.zeros(_SIZE)
        whole: Box = (0.0, 1.0, 0.0, 1.0)
        first = self.relaxed(whole, epsilon)
        heap: list[tuple[float, Box, FloatArray]] = []
        if first is not None:
            heap.append((first.bound, whole, first.values))
        while heap and heap[0][0] < (1 - _GAP) * best and len(heap) < _MOST_BOXES:
            _, box, values = heapq.heappop(heap)
            x, y = float(values[1]), float(values[2])
            member = self.member(x, y, epsilon)
            if member is not None and member.loss < best:
                best, variables = member.loss, member.values
            for half in _halves(box, x, y):
                answer = self.relaxed(half, epsilon)
                if answer is not None and answer.bound < best:
                    heapq.heappush(heap, (answer.bound, half, answer.values))
        if not math.isfinite(best):
            raise InfeasibleError(
                f"bins={self.bins.tolist()}: no pair selection reaches epsilon={epsilon:g} on them"
            )
        remaining = heap[0][0] if heap else math.inf
        return min(best, remaining), variables

    def table(self, budget: float) -> Mechanism:
        """The certified table of the best member at `budget`, a little less than the problem's
        epsilon.
        """
        _, variables = self.solve(budget)
        rows = np.clip(self.forms @ variables, 0.0, 1.0)
        rows /= rows.sum(axis=1, keepdims=True)
        return table(
            knots=self.knots,
            levels=self.bins,
            probabilities=rows,
            name="OPTM (exact)",
            epsilon=self.problem.epsilon,
        )


def _halves(box: Box, x: float, y: float) -> tuple[Box, Box]:
    """The box in two, across its longer side: where the relaxation lies, or in the middle if that
    is near an end.
    """
    least_x, most_x, least_y, most_y = box
    if most_x - least_x >= most_y - least_y:
        cut = _cut(least_x, most_x, x)
        return (least_x, cut, least_y, most_y), (cut, most_x, least_y, most_y)
    cut = _cut(least_y, most_y, y)
    return (least_x, most_x, least_y, cut), (least_x, most_x, cut, most_y)


def _cut(low: float, high: float, at: float) -> float:
    margin = 0.2 * (high - low)
    return at if low + margin < at < high - margin else (low + high) / 2


def optm_exact(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    bins: npt.ArrayLike,
    loss: Literal["mse", "mae"] = "mae",
    prior: object = None,
) -> DesignResult:
    """The best pair selection on four bins with the two in the middle inside the range, and how
    near to best it is.

    Arguments: as `design.optm`; `bins` are four, two of them inside the range; `loss` "mae" or
    "mse".

    Returns:
        The certified table, its exact loss, and `lower_bound`: no pair selection on these bins with
        the same epsilon has a smaller loss, up to rounding. Its loss is that of the repaired
        integer table, so `gap` includes the repair.

    Raises:
        ParameterError: not four bins, or not two inside the range.
        InfeasibleError: the family has no member at this epsilon on these bins.

    Guarantees: certified epsilon <= epsilon. The bound is computed: sums of floats, from
    multipliers of linear programs.
    Source: docs/proofs/design.md, "OPTM with four bins": branch and bound over one product of two
    probabilities. Example:
        >>> found = mz.papers.optm_exact(1.0, bins=[-3, -0.5, 0.5, 3])
        >>> round(found.loss, 5), found.status
        (1.87714, 'optimal')
    """
    started = time.perf_counter()
    problem = make_problem(
        epsilon=epsilon,
        lower=lower,
        upper=upper,
        loss=loss,
        prior=prior,
    )
    search = FourBins(problem=problem, bins=_four_bins(bins, problem, "bins"))
    bound, _ = search.solve(problem.epsilon)
    mechanism = first_certified(search.table, epsilon=problem.epsilon)
    draft = FloatDesign(
        lower_bound=bound,
        scope="pair selections on these four bins",
        iterations=search.programs,
        price=float(np.ptp(search.bins)),
    )
    return record(problem, draft, mechanism, started=started)


# Programs as published ----------------------------------------------------------------------------


def _largest_at_own_bin(tables: SelectionTables, i: int) -> list[FloatArray]:
    """q_j(i) - q_i(i) <= 0 on both sides, for inner bins (1-based)."""
    if not tables.lower <= tables.bins[i - 1] <= tables.upper:
        return []
    pairs = [
        (tables.index_of(j, i), tables.index_of(i, i) if i <= j else tables.index_of(i - 1, i))
        for j, _, _ in tables.cells
    ]
    return [tables.unit(own) - tables.unit(nearest) for own, nearest in pairs if own != nearest]


def published_theorem5(
    tables: SelectionTables,
    forms: FloatArray,
    epsilon: float,
) -> FloatArray:
    """Theorem 5 as printed: NO guarantee. Bin t has no constraint at all, and outer bins lack pairs
    of cells.

    Arguments: as the constraints of `design.optm`, see `design.pair_selection.theorem5`.
    """
    cells = {j: place for place, (j, _, _) in enumerate(tables.cells)}
    first = min(cells)
    rows: list[FloatArray] = []
    for i in range(1, tables.bins.size + 1):
        if tables.bins[i - 1] > tables.upper:
            continue
        at_end = forms[-1, 1, i - 1]
        # The bins k inside the range, to the right of bin i.
        for k in range(max(first, i) + 1, max(cells) + 1):
            if tables.bins[i - 1] >= tables.lower:
                uppers = [
                    tables.unit(tables.index_of(i, i)),
                    tables.unit(tables.index_of(i - 1, i)),
                ]
            else:
                uppers = [forms[cells[k], 0, i - 1], forms[0, 0, i - 1]]
            lowers = (forms[cells[k - 1], 1, i - 1], at_end)
            rows += [upper - math.exp(epsilon) * lower for upper in uppers for lower in lowers]
        rows += _largest_at_own_bin(tables, i)
    return np.array(rows) if rows else np.zeros((1, tables.size))


def optm_as_printed(
    epsilon: float = 1.0, *, bins: npt.ArrayLike, prior: object = None, boxes: int = 99
) -> DesignResult:
    """`design.optm` with the constraints of Theorem 5 as printed: its tables can exceed the nominal
    epsilon.

    Arguments: as `design.optm`, for inputs in [-1, 1].

    Returns: the design, of status "no guarantee".

    Raises:
        ParameterError, InfeasibleError: as `design.optm`.

    Guarantees: none but the certificate of the mechanism, at the epsilon that it truly has.

    Example:
        >>> from scipy import stats
        >>> bins, prior = (-4.0, -0.2, 0.3, 4.0), stats.norm(0.5, 0.2)
        >>> printed = mz.papers.optm_as_printed(1.0, bins=bins, prior=prior, boxes=8)
        >>> printed.status, printed.mechanism.epsilon > 2
        ('no guarantee', True)

    Source: Cai, Zhang, Khalili 2024, Theorem 5; docs/proofs/design.md, "OPTM".
    """
    started = time.perf_counter()
    problem = make_problem(
        epsilon=epsilon,
        lower=-1.0,
        upper=1.0,
        loss="mae",
        prior=prior,
    )
    sets = [check_covering("bins", bins, lower=problem.lower, upper=problem.upper)]
    best = best_pairs(
        problem, sets, published_theorem5, boxes=boxes, started=started, is_private=False
    )
    if best is None:
        raise InfeasibleError(
            f"bins={bins}: no selection probabilities satisfy the constraints at "
            f"epsilon={epsilon:g}"
        )
    return best


# What the paper's published program searches: boxes q_2(1) in [o, o + 0.01] on each side, all other
# q at least 1e-5.
_GRID = np.arange(1, 20) * 0.05
_WIDTH = 0.01
_LEAST = 1e-5
BIN_SETS = tuple(
    (-outer, *inner, outer)
    for outer in (2.0, 3.0, 4.0)
    for inner in itertools.combinations((-0.6, -0.2, 0.2, 0.6), 2)
)


def _others(
    tables: SelectionTables,
    j: int,
    x: float,
    i: int,
) -> FloatArray:
    """(size,) coefficients c with p(x, i) = y[own(j, i)] * (c @ y) at x in the closed cell j; bins
    count from 1.
    """
    m, bins = tables.bins.size, tables.bins
    result = np.zeros(tables.size)
    if i <= j:
        result[tables.row(1, m - j)] += ((bins[j:] - x) / (bins[j:] - bins[i - 1]))[::-1]
    else:
        result[tables.row(0, j)] += (x - bins[:j]) / (bins[i - 1] - bins[:j])
    return result


def one_ratio(
    tables: SelectionTables,
    low: FloatArray,
    epsilon: float,
) -> FloatArray:
    """Rows A of A y <= 0 that imply epsilon-DP for every y >= low: any p(x, i) <= exp(epsilon)
    times any p(x', i').

    i' runs over all outputs where privacy asks for i' = i alone: sufficient, and stricter than
    needed.
    """
    uppers: list[FloatArray] = []
    lowers: list[FloatArray] = []
    for i, (j, start, stop) in itertools.product(range(1, tables.bins.size + 1), tables.cells):
        near, far = (start, stop) if i <= j else (stop, start)
        own = tables.unit(tables.index_of(j, i))
        at_near, at_far = _others(tables, j, near, i), _others(tables, j, far, i)
        # With a single bin on the other side, drawn for certain, p is linear in y.
        certain = (tables.bins.size - j if i <= j else j) == 1
        # p(B_i, i) is q itself; no upper bounds of q are used, that is u = 1.
        uppers.append(
            own if near == tables.bins[i - 1] else own * at_near.sum() if certain else at_near
        )
        # A cell with one bin on a side is linear in y; elsewhere the other side's q is replaced by
        # its lower bound.
        if certain:
            lowers.append(own * at_far.sum())
        else:
            alone = min(j, tables.bins.size - j) == 1
            lowers.append(low[tables.index_of(j, i)] * at_far if alone else own * (at_far @ low))
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
        tables = SelectionTables(
            bins=bins, lower=self.problem.lower, upper=self.problem.upper, sides=2
        )
        self._descend(tables, (0, 0), (_GRID.size - 1, _GRID.size - 1))

    def _descend(
        self, tables: SelectionTables, first: tuple[int, int], last: tuple[int, int]
    ) -> None:
        """Boxes first .. last of the two sides. Their union with the largest lower bound as factor
        is a relaxation.
        """
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


def _four_bins(
    bins: npt.ArrayLike,
    problem: Problem,
    parameter: str,
) -> FloatArray:
    values = check_covering(parameter, bins, lower=problem.lower, upper=problem.upper)
    if values.size != _BINS or not problem.lower < values[1] < values[2] < problem.upper:
        raise ParameterError(
            parameter, values.tolist(), "need four bins, the inner two inside the range"
        )
    return values


def optm_one_ratio(
    epsilon: float = 1.0, *, prior: object = None, bin_sets: Sequence[Sequence[float]] = BIN_SETS
) -> DesignResult:
    """OPTM with separate sides, four bins and one ratio for all outputs, on the coarse grids of the
    paper's Table 2.

    Arguments:
        epsilon: pure epsilon per report, replace-one neighbours.
        prior: of inputs in [-1, 1]: None (uniform), a frozen scipy.stats distribution or a 1-D
            sample.
        bin_sets: output levels to choose among; the default is what the paper's published program
            searches.

    Returns:
        The mechanism of the box and bins with the least bound on the MAE (Theorem 4), and its exact
        MAE as `loss`; no lower bound. `iterations` counts linear programs.

    Raises:
        ParameterError: a bad value.
        InfeasibleError: no box has a solution.

    Guarantees: certified epsilon <= epsilon; unbiased. Never better than `optm_exact` at the same
    bins: for use beside the paper's numbers.

    Example:
        >>> searched = mz.papers.optm_one_ratio(2.0, bin_sets=[(-2.0, -0.2, 0.2, 2.0)])
        >>> searched.mechanism.epsilon <= 2.0, round(searched.loss, 2)
        (True, 0.92)

    Source: Cai, Zhang, Khalili 2024, Theorem 4, Table 2 and the program published with it;
    docs/proofs/design.md, "OPTM".
    """
    started = time.perf_counter()
    problem = make_problem(
        epsilon=epsilon,
        lower=-1.0,
        upper=1.0,
        loss="mae",
        prior=prior,
    )
    sets = [_four_bins(bins, problem, "bin_sets") for bins in bin_sets]
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
            raise InfeasibleError(
                f"epsilon={epsilon:g}: no box has a solution; raise epsilon or use design.optimal"
            )
        return table_of(problem, *search.best, name="OPTM (one ratio)", epsilon=problem.epsilon)

    mechanism = first_certified(build, epsilon=problem.epsilon)
    return without_bound(
        mechanism,
        loss=achieved_loss(problem, mechanism),
        status="heuristic",
        started=started,
        iterations=programs,
    )
