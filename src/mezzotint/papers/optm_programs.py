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
from mezzotint.core.errors import InfeasibleError, ParameterError, SolverError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import SUM_TOLERANCE, table
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
        for knot_number, knot in enumerate(self.knots.tolist()):
            output_forms = self.forms[knot_number]
            for (lower_bin, upper_bin), linear_form in _PAIRS[knot_number // 2].items():
                distance = self.bins[upper_bin] - self.bins[lower_bin]
                upper_share = (knot - self.bins[lower_bin]) / distance
                for variable_name, coefficient in linear_form.items():
                    column = _PROBABILITIES.index(variable_name)
                    output_forms[lower_bin, column] += coefficient * (1 - upper_share)
                    output_forms[upper_bin, column] += coefficient * upper_share
        costs = self.problem.costs(self.knots, self.bins)
        self.target = np.einsum("kmn,km->n", self.forms, costs)

    def relaxed(self, box: Box, epsilon: float) -> _Relaxation | None:
        """The linear program over a box, or None where it has no solution."""
        self.programs += 1
        constraint_rows, row_limits = self._inequalities(box, epsilon)
        sum_rows = np.zeros((2, _SIZE))
        sum_rows[0, 4:7] = sum_rows[1, 7:10] = 1.0
        least_values, largest_values = np.zeros(_SIZE), np.ones(_SIZE)
        least_values[0] = 1.0
        least_values[1], largest_values[1], least_values[2], largest_values[2] = box
        solution = optimize.linprog(
            self.target,
            A_ub=constraint_rows,
            b_ub=row_limits,
            A_eq=sum_rows,
            b_eq=np.ones(2),
            bounds=np.stack([least_values, largest_values], axis=1),
            method="highs",
            options=_SOLVER,
        )
        if solution.status != 0:
            return None
        # Weak duality: any multipliers bound the optimum from below, however exactly the solver
        # found them.
        row_multipliers = np.minimum(solution.ineqlin.marginals, 0.0)
        sum_multipliers = solution.eqlin.marginals
        row_prices = constraint_rows.T @ row_multipliers
        reduced_costs = self.target - row_prices - sum_rows.T @ sum_multipliers
        least_costs = np.minimum(reduced_costs * least_values, reduced_costs * largest_values)
        multiplier_bound = row_multipliers @ row_limits + sum_multipliers.sum()
        return _Relaxation(
            bound=float(multiplier_bound + least_costs.sum()),
            loss=float(solution.fun),
            values=np.asarray(solution.x),
        )

    def _inequalities(self, box: Box, epsilon: float) -> tuple[FloatArray, FloatArray]:
        """Rows A and limits b of A v <= b: privacy of every output at every limit, and McCormick's
        four.
        """
        output_forms = self.forms.reshape(-1, _SIZE)
        floor_rows = np.zeros((output_forms.shape[0], _SIZE))
        floor_rows[:, len(_PROBABILITIES) :] = np.tile(np.eye(_BINS), (self.knots.size, 1))
        least_x, largest_x, least_y, largest_y = box
        product_rows = np.zeros((4, _SIZE))
        # Columns 1 to 3: x, y, z. Below z: both ends of the box alike; above it: opposite ends.
        product_rows[0, 1:4] = least_y, least_x, -1
        product_rows[1, 1:4] = largest_y, largest_x, -1
        product_rows[2, 1:4] = -least_y, -largest_x, 1
        product_rows[3, 1:4] = -largest_y, -least_x, 1
        product_limits = np.array(
            [
                least_x * least_y,
                largest_x * largest_y,
                -largest_x * least_y,
                -least_x * largest_y,
            ]
        )
        above_floors = floor_rows - output_forms
        below_ratios = output_forms - math.exp(epsilon) * floor_rows
        constraint_rows = np.concatenate([above_floors, below_ratios, product_rows])
        privacy_limits = np.zeros(2 * len(output_forms))
        return constraint_rows, np.concatenate([privacy_limits, product_limits])

    def member(self, x: float, y: float, epsilon: float) -> _Relaxation | None:
        """The best member of the family with these two probabilities."""
        return self.relaxed((x, x, y, y), epsilon)

    def solve(self, epsilon: float) -> tuple[float, FloatArray]:
        """(lower bound of the family, variables of its best member), by branching on the box of x
        and y.
        """
        smallest_loss, variables = math.inf, np.zeros(_SIZE)
        unit_box: Box = (0.0, 1.0, 0.0, 1.0)
        root_relaxation = self.relaxed(unit_box, epsilon)
        open_boxes: list[tuple[float, Box, FloatArray]] = []
        if root_relaxation is not None:
            open_boxes.append((root_relaxation.bound, unit_box, root_relaxation.values))
        while open_boxes and len(open_boxes) < _MOST_BOXES:
            smallest_bound = open_boxes[0][0]
            if smallest_bound >= (1 - _GAP) * smallest_loss:
                break
            _, box, relaxed_values = heapq.heappop(open_boxes)
            left_inner, right_inner = float(relaxed_values[1]), float(relaxed_values[2])
            best_member = self.member(left_inner, right_inner, epsilon)
            if best_member is not None and best_member.loss < smallest_loss:
                smallest_loss, variables = best_member.loss, best_member.values
            for half_box in _halves(box, left_inner, right_inner):
                relaxation = self.relaxed(half_box, epsilon)
                if relaxation is not None and relaxation.bound < smallest_loss:
                    heapq.heappush(open_boxes, (relaxation.bound, half_box, relaxation.values))
        if not math.isfinite(smallest_loss):
            raise InfeasibleError(
                f"bins={self.bins.tolist()}: no pair selection reaches epsilon={epsilon:g} on them"
            )
        open_bounds = (bound for bound, _, _ in open_boxes)
        return min([smallest_loss, *open_bounds]), variables

    def certified(self, budget: float) -> Mechanism:
        """The certified table of the best member at `budget`, a little less than the problem's
        epsilon.

        Called by `first_certified`, which tries the next margin below epsilon.

        Raises:
            InfeasibleError: no member at `budget`, or its integers exceed the problem's epsilon.
            SolverError: rows that miss a sum of 1 by more than a solver's tolerance.
        """
        _, variables = self.solve(budget)
        probabilities = np.clip(self.forms @ variables, 0.0, 1.0)
        miss = float(np.abs(probabilities.sum(axis=1) - 1).max())
        if not miss <= SUM_TOLERANCE:
            raise SolverError(f"no table was found: rows miss a sum of 1 by {miss:g}")
        return table(
            knots=self.knots,
            levels=self.bins,
            probabilities=probabilities,
            name="OPTM (exact)",
            epsilon=self.problem.epsilon,
        )


def _halves(box: Box, x: float, y: float) -> tuple[Box, Box]:
    """The box in two, across its longer side: where the relaxation lies, or in the middle if that
    is near an end.
    """
    least_x, largest_x, least_y, largest_y = box
    if largest_x - least_x >= largest_y - least_y:
        division = _cut(least_x, largest_x, x)
        return (least_x, division, least_y, largest_y), (division, largest_x, least_y, largest_y)
    division = _cut(least_y, largest_y, y)
    return (least_x, largest_x, least_y, division), (least_x, largest_x, division, largest_y)


def _cut(low: float, high: float, at: float) -> float:
    margin = 0.2 * (high - low)
    if low + margin < at < high - margin:
        return at
    return (low + high) / 2


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
        >>> best = mz.papers.optm_exact(1.0, bins=[-3, -0.5, 0.5, 3])
        >>> round(best.loss, 5), best.status
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
    lower_bound, _ = search.solve(problem.epsilon)
    mechanism = first_certified(search.certified, epsilon=problem.epsilon)
    draft = FloatDesign(
        lower_bound=lower_bound,
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
    constraint_rows: list[FloatArray] = []
    for bins_left, _, _ in tables.cells:
        nearest_cell = i - 1
        if i <= bins_left:
            nearest_cell = i
        output_index = tables.index_of(bins_left, i)
        nearest_index = tables.index_of(nearest_cell, i)
        if output_index != nearest_index:
            constraint_rows.append(tables.unit(output_index) - tables.unit(nearest_index))
    return constraint_rows


def published_theorem5(
    tables: SelectionTables,
    forms: FloatArray,
    epsilon: float,
) -> FloatArray:
    """Theorem 5 as printed: NO guarantee. Bin t has no constraint at all, and outer bins lack pairs
    of cells.

    Arguments: as the constraints of `design.optm`, see `design.pair_selection.theorem5`.
    """
    ratio = math.exp(epsilon)
    bins_left = [cell[0] for cell in tables.cells]
    first_cell, last_cell = bins_left[0], bins_left[-1]
    constraint_rows: list[FloatArray] = []
    for output_bin, bin_value in enumerate(tables.bins.tolist(), start=1):
        if bin_value > tables.upper:
            continue
        output_forms = forms[:, :, output_bin - 1]
        # The bins k inside the range, to the right of bin i.
        for inner_bin in range(max(first_cell, output_bin) + 1, last_cell + 1):
            upper_forms = [output_forms[bins_left.index(inner_bin), 0], output_forms[0, 0]]
            if bin_value >= tables.lower:
                indices = [
                    tables.index_of(cell, output_bin) for cell in (output_bin, output_bin - 1)
                ]
                upper_forms = [tables.unit(index) for index in indices]
            lower_forms = [output_forms[bins_left.index(inner_bin - 1), 1], output_forms[-1, 1]]
            pairs = itertools.product(upper_forms, lower_forms)
            constraint_rows += [upper - ratio * lower for upper, lower in pairs]
        constraint_rows += _largest_at_own_bin(tables, output_bin)
    if not constraint_rows:
        return np.zeros((1, tables.size))
    return np.array(constraint_rows)


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
    bin_sets = [check_covering("bins", bins, lower=problem.lower, upper=problem.upper)]
    best_design = best_pairs(
        problem, bin_sets, published_theorem5, boxes=boxes, started=started, is_private=False
    )
    if best_design is None:
        raise InfeasibleError(
            f"bins={bins}: no selection probabilities satisfy the constraints at "
            f"epsilon={epsilon:g}"
        )
    return best_design


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
    bins_below, bins_above = tables.bins[:j], tables.bins[j:]
    output_value = tables.bins[i - 1]
    coefficients = np.zeros(tables.size)
    if i <= j:
        shares = (bins_above - x) / (bins_above - output_value)
        coefficients[tables.row(1, bins_above.size)] += shares[::-1]
    else:
        shares = (x - bins_below) / (output_value - bins_below)
        coefficients[tables.row(0, j)] += shares
    return coefficients


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
    upper_forms: list[FloatArray] = []
    lower_forms: list[FloatArray] = []
    output_bins = range(1, tables.bins.size + 1)
    for output_bin, (bins_left, cell_start, cell_end) in itertools.product(
        output_bins, tables.cells
    ):
        bins_right = tables.bins.size - bins_left
        near_end, far_end, other_bins = cell_end, cell_start, bins_left
        if output_bin <= bins_left:
            near_end, far_end, other_bins = cell_start, cell_end, bins_right
        output_index = tables.index_of(bins_left, output_bin)
        own_form = tables.unit(output_index)
        near_coefficients = _others(tables, bins_left, near_end, output_bin)
        far_coefficients = _others(tables, bins_left, far_end, output_bin)
        # A single bin on the other side is drawn for certain, and p is linear in y. p(B_i, i) is q
        # itself; no upper bounds of q are used, that is u = 1.
        if near_end == tables.bins[output_bin - 1]:
            upper_forms.append(own_form)
        elif other_bins == 1:
            upper_forms.append(own_form * near_coefficients.sum())
        else:
            upper_forms.append(near_coefficients)
        # A cell with one bin on a side is linear in y; elsewhere the other side's q is replaced by
        # its lower bound.
        if other_bins == 1:
            lower_forms.append(own_form * far_coefficients.sum())
        elif min(bins_left, bins_right) == 1:
            lower_forms.append(low[output_index] * far_coefficients)
        else:
            lower_forms.append(own_form * (far_coefficients @ low))
    ratio = math.exp(epsilon)
    pairs = itertools.product(upper_forms, lower_forms)
    return np.array([upper_form - ratio * lower_form for upper_form, lower_form in pairs])


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
        last_box = _GRID.size - 1
        self._descend(tables, (0, 0), (last_box, last_box))

    def _descend(
        self, tables: SelectionTables, first: tuple[int, int], last: tuple[int, int]
    ) -> None:
        """Boxes first .. last of the two sides. Their union with the largest lower bound as factor
        is a relaxation.
        """
        objective, constant = tables.proxy(self.problem.prior)
        lower_bounds, upper_bounds, factors = self._union(tables, first, last)
        self.programs += 1
        privacy_rows = one_ratio(tables, factors, self.epsilon)
        solution = solve_rows(tables, lower_bounds, upper_bounds, objective, privacy_rows)
        if solution is None:
            return
        smallest_value, variables = solution
        union_bound = smallest_value + constant
        if union_bound >= self.value:
            return
        if first == last:
            self.value, self.best = union_bound, (tables, variables)
            return
        split_side = int(last[0] - first[0] < last[1] - first[1])
        last_of_half = (first[split_side] + last[split_side]) // 2
        self._descend(tables, first, _replaced(last, split_side, last_of_half))
        self._descend(tables, _replaced(first, split_side, last_of_half + 1), last)

    def _union(
        self, tables: SelectionTables, first: tuple[int, int], last: tuple[int, int]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        lower_bounds, upper_bounds = np.full(tables.size, _LEAST), np.ones(tables.size)
        factors = lower_bounds.copy()
        for side in (0, 1):
            single_bin = tables.row(side, 1)
            lower_bounds[single_bin] = factors[single_bin] = 1.0
            inner_index = tables.row(side, 2).start
            largest_factor = _GRID[last[side]]
            lower_bounds[inner_index] = _GRID[first[side]]
            upper_bounds[inner_index] = largest_factor + _WIDTH
            factors[inner_index] = largest_factor
        return lower_bounds, upper_bounds, factors


def _replaced(pair: tuple[int, int], side: int, value: int) -> tuple[int, int]:
    if side == 0:
        return value, pair[1]
    return pair[0], value


def _four_bins(
    bins: npt.ArrayLike,
    problem: Problem,
    parameter: str,
) -> FloatArray:
    bin_values = check_covering(parameter, bins, lower=problem.lower, upper=problem.upper)
    if (
        bin_values.size != _BINS
        or not problem.lower < bin_values[1] < bin_values[2] < problem.upper
    ):
        raise ParameterError(
            parameter, bin_values.tolist(), "need four bins, the inner two inside the range"
        )
    return bin_values


def optm_one_ratio(
    epsilon: float = 1.0, *, prior: object = None, bin_sets: Sequence[Sequence[float]] = BIN_SETS
) -> DesignResult:
    """OPTM with separate sides, four bins and one ratio for all outputs, on the coarse grids of the
    paper's Table 2.

    Arguments:
        epsilon, prior: as of `design.optm`, for inputs in [-1, 1].
        bin_sets: output levels to choose among; the default is what the paper's published program
            searches.

    Returns:
        The mechanism of the box and bins with the least bound on the MAE (Theorem 4), its exact MAE
        as `loss`, no lower bound. `iterations` counts linear programs.

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
    problem = make_problem(epsilon=epsilon, lower=-1.0, upper=1.0, loss="mae", prior=prior)
    checked_sets = [_four_bins(bin_values, problem, "bin_sets") for bin_values in bin_sets]
    if not checked_sets:
        raise ParameterError("bin_sets", bin_sets, "give at least one set of four bins")
    programs = 0

    def build(reduced: float) -> Mechanism:
        nonlocal programs
        search = _OneRatioSearch(problem=problem, epsilon=reduced)
        for bin_values in checked_sets:
            search.add(bin_values)
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
