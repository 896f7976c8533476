"""`design.optm`: the optimal pair-selection mechanism as published (Cai et al. 2024, Algorithm 2),
by linear programs.

Selection probabilities of inner cells are pinned, the others free.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import itemgetter
from typing import Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.core.arguments import check_count, check_covering
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import Prior, UniformPrior
from mezzotint.core.records import Progress, ticks
from mezzotint.core.rounding import table
from mezzotint.core.types import FloatArray
from mezzotint.design.levels import check_units, most_unit_effect, unit_effect
from mezzotint.design.problem import (
    DesignResult,
    Problem,
    achieved_loss,
    first_certified,
    make_problem,
    without_bound,
)
from mezzotint.families.numeric import Cell, cells, erm_choices, pair_rows, rqm_choices


class SelectionPoint(NamedTuple):
    """A value of the bound that is minimised, and the selection probabilities that have it."""

    value: float
    probabilities: FloatArray


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SelectionTables:
    """The layout of the selection probabilities in one vector y: q_1, q_2, ... of the left, then of
    the right side.

    There is one side where both are mirror images (symmetric bins and prior); the bins cover
    [lower, upper].
    """

    bins: FloatArray
    lower: float
    upper: float
    sides: int

    @property
    def half(self) -> int:
        """Length of one side's vector."""
        count = self.bins.size
        return count * (count - 1) // 2

    @property
    def size(self) -> int:
        return self.sides * self.half

    def row(self, side: int, n: int) -> slice:
        """The slice of q_n of a side (0 left, 1 right); it has n entries, the outermost bin
        first.
        """
        side_start = (side % self.sides) * self.half
        start = side_start + n * (n - 1) // 2
        return slice(start, start + n)

    def choices(self, y: FloatArray, side: int) -> list[FloatArray]:
        """q_1 .. q_{m-1} of one side, normalised."""
        lengths = range(1, self.bins.size)
        slices = [self.row(side, length) for length in lengths]
        rows = [np.maximum(y[row], 0.0) for row in slices]
        return [row / row.sum() for row in rows]

    @cached_property
    def cells(self) -> list[Cell]:
        """Cells that meet the range: (bins to the left, left end, right end)."""
        return cells(self.bins, lower=self.lower, upper=self.upper)

    def index_of(self, cell: int, level: int) -> int:
        """Index of the probability with which a bin (1-based) is drawn on its side in a cell."""
        count = self.bins.size
        if level <= cell:
            return self.row(0, cell).start + level - 1
        right_row = self.row(1, count - cell)
        return right_row.start + count - level

    @cached_property
    def pinned_rows(self) -> list[slice]:
        """The q_n whose products with one another occur: where these are pinned, every probability
        is linear in y.
        """
        rows: set[tuple[int, int]] = set()
        for bins_below, _, _ in self.cells:
            bins_above = self.bins.size - bins_below
            if min(bins_below, bins_above) >= 2:
                right_side = 1 % self.sides
                rows |= {(0, bins_below), (right_side, bins_above)}
        return [self.row(side, length) for side, length in sorted(rows)]

    @cached_property
    def free(self) -> npt.NDArray[np.bool_]:
        """(size,) which entries are neither pinned nor certain, as q_1(1) = 1 is."""
        free = np.ones(self.size, dtype=bool)
        certain_rows = (self.row(0, 1), self.row(1, 1))
        for row in (*self.pinned_rows, *certain_rows):
            free[row] = False
        return free

    def box(self, pinned: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bounds (size,) of y from below and above with the pinned entries of `pinned` (size,)."""
        low = np.where(self.free, 0.0, 1.0)
        high = np.ones(self.size)
        for row in self.pinned_rows:
            low[row] = pinned[row]
            high[row] = pinned[row]
        return low, high

    def forms(self, pinned: FloatArray) -> FloatArray:
        """(cells, 2, m, size) coefficients on y of the probabilities at both ends of the used
        cells.

        q_1(1) = 1 carries the constants. Only the pinned entries of `pinned` (size,) matter.
        """
        free = np.flatnonzero(self.free)
        points = np.zeros((1 + free.size, self.size))
        free_points = 1 + np.arange(free.size)
        points[free_points, free] = 1.0
        for row in self.pinned_rows:
            points[:, row] = pinned[row]
        for side in range(self.sides):
            points[:, self.row(side, 1)] = 1.0
        lengths = range(1, self.bins.size)
        left = [points[:, self.row(0, length)] for length in lengths]
        right = [points[:, self.row(1, length)] for length in lengths]
        _, values = pair_rows(
            self.bins,
            left,
            right,
            lower=self.lower,
            upper=self.upper,
        )
        coefficients = np.zeros((self.size, *values.shape[1:]))
        coefficients[0] = values[0]
        coefficients[free] = values[1:] - values[0]
        by_knot = np.moveaxis(coefficients, 0, -1)
        return by_knot.reshape(-1, 2, self.bins.size, self.size)

    def proxy(self, prior: Prior) -> tuple[FloatArray, float]:
        """Coefficients and constant of the bound on the MAE (Lemma 1, Theorem 3; Theorem 4 for two
        sides).
        """
        bins = self.bins
        coefficients = np.zeros(self.size)
        constant = 0.0
        starts = [cell.start for cell in self.cells]
        moments = prior.moments(np.array([*starts, self.upper]))
        cell_masses: list[float] = moments[:, 0].tolist()
        for cell, cell_mass in zip(self.cells, cell_masses, strict=True):
            half_mass = cell_mass / 2
            bins_below = cell.bins_below
            left_distances = bins[bins_below - 1] - bins[:bins_below]
            coefficients[self.row(0, bins_below)] += half_mass * left_distances
            # Right bins are counted from the outermost: B_m - B_{j+1}, ..., 0.
            bins_above = bins[bins_below:]
            right_distances = bins_above[::-1] - bins[bins_below]
            coefficients[self.row(1, bins_above.size)] += half_mass * right_distances
            gap = float(bins[bins_below] - bins[bins_below - 1])
            constant += half_mass * gap
        return coefficients, constant

    def unit(self, index: int) -> FloatArray:
        """(size,) the coefficients of one entry of y."""
        coefficients = np.zeros(self.size)
        coefficients[index] = 1.0
        return coefficients


Constraints = Callable[[SelectionTables, FloatArray, float], FloatArray]
"""Rows A of A y <= 0 that stand for epsilon-DP, from the tables, the `forms` of the pinned entries,
and epsilon.
"""


def theorem5(
    tables: SelectionTables,
    forms: FloatArray,
    epsilon: float,
) -> FloatArray:
    """Theorem 5, corrected and for any bins.

    As printed the theorem leaves outputs without constraints
    (`papers.optm_programs.published_theorem5`). In each cell p(., i) is monotone; here its larger
    end in every cell is held against its smaller end in every cell. With pinned entries the boxes
    [o, u] have no width, the bounds (11) and (12) are the probabilities themselves, and this is
    privacy itself: that q_i(i) be the largest q_j(i) need not be required.
    """
    ratio = math.exp(epsilon)
    bins_below = np.array([cell.bins_below for cell in tables.cells])
    cell = np.arange(bins_below.size)
    constraint_rows: list[FloatArray] = []
    for level in range(tables.bins.size):
        larger_end = np.where(level < bins_below, 0, 1)
        larger = forms[cell, larger_end, level]
        smaller = forms[cell, 1 - larger_end, level]
        differences = larger[:, None] - ratio * smaller
        constraint_rows.append(differences.reshape(-1, tables.size))
    return np.concatenate(constraint_rows)


def theorem6(
    tables: SelectionTables,
    forms: FloatArray,
    epsilon: float,
) -> FloatArray:
    """Theorem 6, its indices as its proof uses them; symmetric bins only.

    One ratio for all outputs at once: the largest p is p(lower, s-1) or q_s(s), the least p(., 1)
    at B_t or at upper. Since q_1(1) = 1 it forces epsilon > ln 2, and on many bins it is infeasible
    at every epsilon.
    """
    first_bin = tables.cells[0].bins_below + 1
    last_bin = tables.cells[-1].bins_below
    rows = _monotone_rows(tables, first_bin, last_bin)
    rows += _spacing_rows(tables, first_bin, last_bin)
    smallest_rows = [forms[-1, 1, 0]]
    largest_rows = [forms[0, 0, first_bin - 2]]
    if first_bin <= last_bin:
        smallest_rows.append(forms[last_bin - first_bin, 1, 0])
        largest_rows.append(_selection(tables, first_bin, first_bin))
    for largest, smallest in itertools.product(largest_rows, smallest_rows):
        rows.append(largest - math.exp(epsilon) * smallest)
    return np.array(rows)


def _selection(
    tables: SelectionTables,
    length: int,
    index: int,
) -> FloatArray:
    """(size,) the coefficients of q_length(index)."""
    row = tables.row(0, length)
    return tables.unit(row.start + index - 1)


def _monotone_rows(
    tables: SelectionTables,
    first: int,
    last: int,
) -> list[FloatArray]:
    """q_{j+1}(i) <= q_j(i), q_j(i) <= q_j(i+1), and q_{i+1}(i+1) <= q_i(i) from the first bin on."""
    bin_count = tables.bins.size
    q = partial(_selection, tables)
    rows: list[FloatArray] = []
    for length in range(1, bin_count - 1):
        for index in range(1, length + 1):
            rows.append(q(length + 1, index) - q(length, index))
    for length in range(2, bin_count):
        for index in range(1, length):
            rows.append(q(length, index) - q(length, index + 1))
    stop = min(last, bin_count - 2) + 1
    for index in range(first, stop):
        rows.append(q(index + 1, index + 1) - q(index, index))
    return rows


def _spacing_rows(
    tables: SelectionTables,
    first: int,
    last: int,
) -> list[FloatArray]:
    """What the probability of a bin loses to the spacing of the bins on the other side."""
    bins = tables.bins
    bin_count = bins.size
    q = partial(_selection, tables)
    rows: list[FloatArray] = []
    for left_bin in range(first, last + 1):
        for right_bin in range(left_bin + 2, bin_count + 1):
            wide_gap = float(bins[right_bin - 1] - bins[left_bin - 1])
            narrow_gap = float(bins[right_bin - 1] - bins[left_bin])
            bin_index = bin_count - right_bin + 1
            for row_length in (bin_count - left_bin, bin_count - left_bin - 1):
                if bin_index <= row_length and row_length + 1 <= bin_count - 1:
                    rows.append(
                        narrow_gap * q(row_length, bin_index)
                        - wide_gap * q(row_length + 1, bin_index)
                    )
    return rows


def solve_rows(
    tables: SelectionTables,
    low: FloatArray,
    high: FloatArray,
    target: FloatArray,
    rows: FloatArray,
) -> SelectionPoint | None:
    """The least target @ y for selection probabilities low <= y <= high with rows @ y <= 0; None
    where there are none.

    Columns of `target` and `rows` beyond those of y are numbers >= 0 that are free otherwise.
    """
    lengths = range(1, tables.bins.size)
    sides = range(tables.sides)
    slices = [tables.row(side, length) for side in sides for length in lengths]
    sums = np.zeros((len(slices), target.size))
    for total, row in zip(sums, slices, strict=True):
        total[row] = 1.0
    lower_bounds = np.zeros(target.size)
    upper_bounds = np.full(target.size, np.inf)
    lower_bounds[: tables.size] = low
    upper_bounds[: tables.size] = high
    unbounded = np.full(len(rows), -np.inf)
    ones = np.ones(len(sums))
    lower_limits = np.concatenate([unbounded, ones])
    upper_limits = np.maximum(lower_limits, 0.0)
    coefficients = np.concatenate([rows, sums])
    constraints = (coefficients, lower_limits, upper_limits)
    # Without integrality this is HiGHS on the same program as linprog's, with less work around it:
    # these are tiny.
    answer = optimize.milp(
        target,
        constraints=constraints,
        bounds=(lower_bounds, upper_bounds),
    )
    if answer.status != 0:
        return None
    variables = np.asarray(answer.x)
    return SelectionPoint(float(answer.fun), variables[: tables.size])


BUILDERS: dict[str, Constraints] = {"theorem5": theorem5, "theorem6": theorem6}

_OUTER = (1.05, 1.15, 1.3, 1.5, 1.75, 2.0, 2.4, 2.8, 3.4, 4.0)
_INNER = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
_FINEST = 1e-4
"""Size at which the moves of a box search stop."""

_FEW_BOXES = 9
_FINALISTS = 3
"""Grid points per free probability in a first pass, and how many bin sets go on to the second."""

_MOST_BOXES = 2000
"""Of a grid; where there are more, the shapes of RQM and ERM are taken."""

_SAME_BIN = 1e-12
_SAME_MASS = 1e-9
"""By how much mirror images of bins (relative) and of a prior's masses may differ."""

_LEAST_GAIN = 1e-12
"""Moves that gain less count as none."""


def is_mirrored(bins: FloatArray, problem: Problem) -> bool:
    """Whether bins and prior are symmetric about the middle of the range: then one table of q
    serves both sides.
    """
    pair_sums = bins + bins[::-1]
    asymmetry = np.abs(pair_sums - 2 * problem.center).max()
    largest_bin = np.abs(bins).max()
    if asymmetry > _SAME_BIN * max(1.0, largest_bin):
        return False
    if isinstance(problem.prior, UniformPrior):
        return True
    edges = np.linspace(problem.lower, problem.upper, 65)
    masses = problem.prior.moments(edges)[:, 0]
    differences = np.abs(masses - masses[::-1])
    return bool(differences.max() <= _SAME_MASS)


def bin_sets(problem: Problem, levels: int) -> list[FloatArray]:
    """Symmetric bin sets: 10 outer distances times up to 11 inner spreads, about as many as the
    paper's code has.

    Those too wide for integers are left out.

    Raises:
        InfeasibleError: all of them are.
    """
    half_range = problem.width / 2
    needed = 1 + 2 / math.expm1(problem.epsilon)
    spreads = [spread for spread in _INNER if spread > 0 or levels <= 3]
    if levels <= 3:
        spreads = spreads[:1]
    sets: list[FloatArray] = []
    for outer, spread in itertools.product(_OUTER, spreads):
        inner_bins = np.linspace(-spread, spread, levels - 2)
        outermost = outer * needed
        unit_bins = np.concatenate([[-outermost], inner_bins, [outermost]])
        sets.append(problem.center + half_range * unit_bins)
    check_units(problem, sets[0])
    return [bins for bins in sets if unit_effect(bins) <= most_unit_effect(problem)]


def table_of(
    problem: Problem,
    tables: SelectionTables,
    probabilities: FloatArray,
    *,
    name: str,
    epsilon: float,
) -> Mechanism:
    """The certified table of selection probabilities."""
    knots, rows = pair_rows(
        tables.bins,
        tables.choices(probabilities, 0),
        tables.choices(probabilities, 1),
        lower=problem.lower,
        upper=problem.upper,
    )
    return table(
        knots=knots,
        levels=tables.bins,
        probabilities=rows,
        name=name,
        epsilon=epsilon,
    )


@final
@dataclass(kw_only=True, eq=False)
class BoxSearch:
    """The search over the pinned selection probabilities: a grid, then smaller and smaller moves
    from its best point.

    The paper's boxes bound products of two probabilities; the smallest boxes, points, are the best
    ones. The grid has `points` per free probability, the moves stop at the size `finest`, 1 for
    none, and `programs` counts.
    """

    tables: SelectionTables
    problem: Problem
    epsilon: float
    constraints: Constraints
    points: int
    finest: float = 1.0
    programs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rows = self.tables.pinned_rows
        self.target, _ = self.tables.proxy(self.problem.prior)

    def at(self, pinned: FloatArray) -> SelectionPoint | None:
        """The solution of the linear program with these pinned probabilities, or None if it has
        none.
        """
        self.programs += 1
        forms = self.tables.forms(pinned)
        constraints = self.constraints(self.tables, forms, self.epsilon)
        low, high = self.tables.box(pinned)
        return solve_rows(
            tables=self.tables, low=low, high=high, target=self.target, rows=constraints
        )

    def _best_of(self, pinned_points: Iterator[FloatArray]) -> SelectionPoint | None:
        best_point: SelectionPoint | None = None
        for pinned in pinned_points:
            point = self.at(pinned)
            if point is None:
                continue
            if best_point is None or point.value < best_point.value:
                best_point = point
        return best_point

    def run(self) -> SelectionPoint | None:
        """The best point found, or None where no point of the grid has a solution."""
        best_point = self._best_of(self._grid())
        move_size = 1 / (self.points + 1)
        while best_point is not None and move_size > self.finest:
            moves = self._moves(best_point.probabilities, move_size)
            moved = self._best_of(moves)
            if moved is None or moved.value >= best_point.value - _LEAST_GAIN:
                move_size /= 2
            if moved is not None and moved.value < best_point.value:
                best_point = moved
        return best_point

    def _grid(self) -> Iterator[FloatArray]:
        """Positive multiples of 1 / (points + 1); where they are too many, the shapes of RQM and
        ERM.
        """
        counts = [row.stop - row.start for row in self.rows]
        row_counts = [math.comb(self.points, count - 1) for count in counts]
        box_count = math.prod(row_counts)
        if box_count > _MOST_BOXES:
            yield from self._family_shapes()
            return
        point_total = self.points + 1
        inner_points = range(1, point_total)
        row_cuts = [itertools.combinations(inner_points, count - 1) for count in counts]
        for cuts in itertools.product(*row_cuts):
            pinned = np.zeros(self.tables.size)
            for row, row_cut in zip(self.rows, cuts, strict=True):
                steps = np.diff([0, *row_cut, point_total])
                pinned[row] = steps / point_total
            yield pinned

    def _family_shapes(self) -> Iterator[FloatArray]:
        bins = self.tables.bins
        keep_probabilities = np.linspace(0.01, 0.7, 30)
        for keep in keep_probabilities.tolist():
            choices = rqm_choices(bins.size, keep)
            yield self._joined([choices, choices])
        gammas = np.linspace(-6, 6, 30)
        for gamma in gammas.tolist():
            left_choices = erm_choices(bins, gamma)
            right_choices = erm_choices(-bins[::-1], gamma)
            yield self._joined([left_choices, right_choices])

    def _joined(self, sides: list[list[FloatArray]]) -> FloatArray:
        used_sides = sides[: self.tables.sides]
        return np.concatenate([row for side in used_sides for row in side])

    def _moves(self, y: FloatArray, step: float) -> Iterator[FloatArray]:
        for row in self.rows:
            entries = range(row.start, row.stop)
            for giver, taker in itertools.permutations(entries, 2):
                amount = min(step, y[giver])
                if amount > 0:
                    moved = y.copy()
                    moved[giver] -= amount
                    moved[taker] += amount
                    yield moved


def optm(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    bins: npt.ArrayLike | None = None,
    levels: int = 4,
    prior: object = None,
    constraints: Literal["theorem5", "theorem6"] = "theorem5",
    boxes: int = 99,
    progress: Progress | None = None,
) -> DesignResult:
    """OPTM as published (Algorithm 2): a linear program per box of selection probabilities, an
    upper bound of the MAE minimised; `papers.optm_exact` is the best of the family for four bins.

    Arguments:
        epsilon, lower, upper: as in `optimal`, pure.
        bins: output levels, data units, covering the range; symmetric bins with a symmetric prior
            use one table for both sides, others one table per side (Theorem 4). None searches 100
            symmetric bin sets or so.
        levels: how many bins to search when `bins` is None.
        prior: as in `optimal`; only the masses of cells enter.
        constraints: "theorem5" (corrected: every pair of candidates) or "theorem6" (one ratio for
            all outputs; needs epsilon > ln 2 and is often infeasible).
        boxes: grid points per free probability in the exhaustive pass of the box search.
        progress: called as progress(done, total) after each bin set.

    Returns: the mechanism, its exact MAE as `loss`, no bound; `iterations` counts linear programs.
    Raises:
        ParameterError: a bad value.
        InfeasibleError: no box has a solution; names the constraints.
    Guarantees: certified epsilon <= epsilon; unbiased.
    Source: Cai, Zhang, Khalili 2024, Algorithm 2, Theorems 3-6; corrections in
        docs/proofs/design.md, "OPTM".
    Example:
        >>> result = mz.design.optm(epsilon=1.0, levels=4)
        >>> result.mechanism.epsilon <= 1.0
        True
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, loss="mae", prior=prior)
    boxes = check_count("boxes", boxes, most=10_000)
    levels = check_count("levels", levels, least=3, most=64)
    bin_choices = _bin_choices(problem, bins, levels)
    if constraints == "theorem6" and not is_mirrored(bin_choices[0], problem):
        remedy = "Theorem 6 is about symmetric bins and priors; use theorem5"
        raise ParameterError("constraints", constraints, remedy)
    build = BUILDERS[constraints]
    best_design = best_pairs(
        problem, bin_choices, build, boxes=boxes, started=started, progress=progress
    )
    if best_design is None:
        raise _infeasible(problem, bins, constraints)
    return best_design


def _bin_choices(
    problem: Problem,
    bins: npt.ArrayLike | None,
    levels: int,
) -> list[FloatArray]:
    """The bins given, or the sets that are searched."""
    if bins is None:
        return bin_sets(problem, levels)
    chosen = check_covering("bins", bins, lower=problem.lower, upper=problem.upper)
    check_units(problem, chosen)
    return [chosen]


def _infeasible(
    problem: Problem,
    bins: npt.ArrayLike | None,
    constraints: str,
) -> InfeasibleError:
    hint = ""
    if constraints == "theorem6":
        hint = "; it always needs epsilon > ln 2"
    return InfeasibleError(
        f"bins={bins}: no selection probabilities satisfy {constraints} at "
        f"epsilon={problem.epsilon:g}{hint}; move the outer bins out, raise epsilon, or use "
        "design.optimal"
    )


@final
@dataclass(kw_only=True, eq=False)
class _BinSearch:
    """The search over sets of bins: the tables found so far, by their losses.

    `set_done` is called after each set; `programs` counts linear programs.
    """

    problem: Problem
    constraints: Constraints
    is_private: bool
    set_done: Callable[[], None]
    results: list[tuple[float, Mechanism]] = field(default_factory=list[tuple[float, Mechanism]])
    programs: int = 0

    def _table(
        self,
        tables: SelectionTables,
        points: int,
        finest: float,
    ) -> Mechanism | None:
        """The certified table of the best point; None where there is none."""

        def build(epsilon: float) -> Mechanism | None:
            search = BoxSearch(
                tables=tables,
                problem=self.problem,
                epsilon=epsilon,
                constraints=self.constraints,
                points=points,
                finest=finest,
            )
            point = search.run()
            self.programs += search.programs
            if point is None:
                return None
            allowed = self.problem.epsilon if self.is_private else math.inf
            return table_of(
                self.problem,
                tables,
                point.probabilities,
                name="OPTM",
                epsilon=allowed,
            )

        try:
            return first_certified(build, epsilon=self.problem.epsilon)
        except InfeasibleError:
            return None

    def try_sets(
        self,
        sets: list[FloatArray],
        points: int,
        finest: float,
    ) -> None:
        """Try bins one after another."""
        problem = self.problem
        for bins in sets:
            sides = 1 if is_mirrored(bins, problem) else 2
            tables = SelectionTables(
                bins=bins,
                lower=problem.lower,
                upper=problem.upper,
                sides=sides,
            )
            side_points = points
            if sides != 1:
                side_points = max(3, round(math.sqrt(points)))
            mechanism = self._table(tables, side_points, finest)
            if mechanism is not None:
                loss = achieved_loss(problem, mechanism)
                self.results.append((loss, mechanism))
            self.set_done()


def best_pairs(
    problem: Problem,
    sets: list[FloatArray],
    constraints: Constraints,
    *,
    boxes: int,
    started: float,
    progress: Progress | None = None,
    is_private: bool = True,
) -> DesignResult | None:
    """The best pair selection on any of these bins: all sets with few boxes, the best few with all;
    None if none is.

    Unless the constraints imply epsilon (`is_private`), the table is certified at whatever it has.
    """
    finalists = min(_FINALISTS, len(sets)) if len(sets) > 1 else 0
    search = _BinSearch(
        problem=problem,
        constraints=constraints,
        is_private=is_private,
        set_done=ticks(progress, len(sets) + finalists),
    )
    if len(sets) > 1:
        search.try_sets(sets, min(boxes, _FEW_BOXES), 1.0)
        by_loss = sorted(search.results, key=itemgetter(0))
        best_results = by_loss[:_FINALISTS]
        sets = [mechanism.levels for _, mechanism in best_results]
    search.try_sets(sets, boxes, _FINEST)
    if not search.results:
        return None
    loss, mechanism = min(search.results, key=itemgetter(0))
    return without_bound(
        mechanism,
        loss=loss,
        status="heuristic" if is_private else "no guarantee",
        started=started,
        iterations=search.programs,
    )
