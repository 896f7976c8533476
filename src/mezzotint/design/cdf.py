"""Tables for distributions: which reports are most informative about the shares of cells of inputs.

A column of an epsilon-private table on cells is a mixture of columns with two values 1 :
e**epsilon. For given such columns the Fisher information is linear in how often they are used, so
that the variances of the shares are convex in it: one program, no local optima.
docs/proofs/design.md, "Distributions".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism, cdf_variance
from mezzotint.core.rounding import round_rows
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray
from mezzotint.design.problem import (
    DesignResult,
    FloatDesign,
    Problem,
    check_knots,
    first_certified,
    record,
)

Sets = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]

MOST_CELLS = 64

_ALL_SETS_UP_TO = 12
_PAIRS_UP_TO = 24
"""Up to these numbers of cells all columns are tried, or all that favour one or two intervals."""

_STEPS = 200
_TARGET = 1e-9
"""Relative gap at which the interior-point method stops."""

_FEASIBLE = 1e-10
"""By how much sums of rows may be off 1."""

RARE = 1e-6
"""Reports less frequent than this are left out."""

_DROPPED_SHARE = 0.08
"""Of the reports that are left out at a time."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Use:
    """How often (n,) each column is used, prices (K,) of the rows' sums, Fisher information (K, K),
    a bound.
    """

    often: FloatArray
    prices: FloatArray
    information: FloatArray
    bound: float
    steps: int


@final
class ColumnProgram:
    """How often each column is used: minimises the mean variance, by a primal-dual interior-point
    method.

    Arguments:
        sets: (n, K) which cells are likelier under each column.
        shares: (K,) of the inputs.
        known: (K, K) information about the shares from elsewhere, per report, such as a prior's;
            None for none.
    """

    def __init__(
        self,
        sets: Sets,
        shares: FloatArray,
        epsilon: float,
        known: FloatArray | None = None,
    ) -> None:
        self.sets = sets
        # Symmetric around 1: the same columns, scaled.
        exponents = np.where(sets, epsilon / 2, -epsilon / 2)
        self.columns = np.exp(exponents)
        self.chances = self.columns @ shares
        scales = np.sqrt(self.chances)
        self.scaled = self.columns / scales[:, None]
        self.below = np.tri(shares.size)[:-1]
        squares = (self.below @ shares) ** 2
        self.offset = float(squares.sum()) / len(self.below)
        self.known = np.zeros((shares.size, shares.size)) if known is None else known

    def slopes(self, information: FloatArray) -> FloatArray:
        """(n,) derivatives of the mean second moment by the use of each column."""
        half_solved = np.linalg.solve(information, self.below.T)
        squares = (self.scaled @ half_solved) ** 2
        return -squares.sum(axis=1) / len(self.below)

    def bound(
        self,
        constant: float,
        slopes: FloatArray,
        prices: FloatArray,
    ) -> float:
        """A lower bound that no use of these columns can beat, from any multipliers of the rows'
        sums.

        The second moment is convex: at least its tangent constant + slopes @ often, whose least
        value over all tables is a linear program with `prices` for its dual.
        """
        reduced = self.columns @ prices - slopes
        per_mass = reduced / self.columns.sum(axis=1)
        excess = max(0.0, float(per_mass.max()))
        return constant + float(prices.sum()) - prices.size * excess - self.offset

    def information(self, often: FloatArray) -> FloatArray:
        """(K, K) Fisher information of columns used so often."""
        weighted = self.scaled * often[:, None]
        return self.known + weighted.T @ self.scaled

    def _second_moment(self, information: FloatArray) -> float:
        decoded = np.linalg.solve(information, self.below.T)
        variances = self.below.T * decoded
        return float(variances.sum()) / len(self.below)

    def _curvature(self, information: FloatArray) -> FloatArray:
        """(n, n) second derivatives of the mean second moment."""
        half_solved = np.linalg.solve(information, self.scaled.T)
        decoded = (self.below @ half_solved).T
        return 2 * (self.scaled @ half_solved) * (decoded @ decoded.T) / len(self.below)

    def solve(self) -> Use:
        """The best use of these columns; InfeasibleError if no mixture has rows that sum to 1 and
        tell cells apart.
        """
        columns = self.columns
        column_count = len(columns)
        even_share = columns.shape[1] / columns.sum()
        often: FloatArray = np.full(column_count, even_share)
        prices: FloatArray = np.zeros(columns.shape[1])
        slack: FloatArray = np.ones(column_count)
        best_bound = -math.inf
        for step in range(_STEPS):
            information = self.information(often)
            try:
                slopes = self.slopes(information)
                second_moment = self._second_moment(information)
                if step == 0:
                    slack = np.full(column_count, second_moment / often.sum())
                missing = 1 - columns.T @ often
                largest_miss = float(np.abs(missing).max())
                is_feasible = largest_miss < _FEASIBLE
                tangent = second_moment - float(slopes @ often)
                best_bound = max(best_bound, self.bound(tangent, slopes, prices))
                if (
                    is_feasible
                    and second_moment - self.offset - best_bound <= _TARGET * second_moment
                ):
                    return Use(
                        often=often,
                        prices=prices,
                        information=information,
                        bound=best_bound,
                        steps=step,
                    )
                shrinkage = 0.3
                if is_feasible:
                    shrinkage = 0.1
                slack_target = shrinkage * float(slack @ often) / column_count
                right_side = columns @ prices - slopes + slack_target / often
                curvature = self._curvature(information) + np.diag(slack / often)
                change, price_change = _newton(curvature, columns, right_side, missing)
            except np.linalg.LinAlgError:
                break
            if not np.isfinite(change).all():
                break
            slack_change = slack_target / often - slack - slack / often * change
            largest_fall = float((-change / often).max())
            largest_slack_fall = float((-slack_change / slack).max())
            steepest = max(largest_fall, largest_slack_fall)
            step_length = min(1.0, 0.95 / max(1e-300, steepest))
            often = often + step_length * change
            slack = slack + step_length * slack_change
            prices = prices + step_length * price_change
        raise InfeasibleError(
            f"levels={column_count}: these columns make no table that tells the cells apart; "
            "allow more"
        )

    def rows(self, rare: float = -1.0) -> FloatArray:
        """(K, n) the pmf of a report from each cell, without the reports that are no more frequent
        than `rare`.
        """
        often = self.solve().often
        is_frequent = often * self.chances > rare
        weighted = self.columns * often[:, None]
        rows = weighted[is_frequent].T
        return rows / rows.sum(axis=1, keepdims=True)


def _newton(
    curvature: Floats,
    columns: Floats,
    right: Floats,
    missing: Floats,
) -> tuple[Floats, Floats]:
    """(change, price_change) with curvature @ change = right + columns @ price_change and
    columns.T @ change = missing.
    """
    right_sides = np.column_stack([right, columns])
    solved = np.linalg.solve(curvature, right_sides)
    by_right = solved[:, 0]
    by_columns = solved[:, 1:]
    still_missing = missing - columns.T @ by_right
    price_change = np.linalg.solve(columns.T @ by_columns, still_missing)
    return by_right + by_columns @ price_change, price_change


def intervals(cells: int) -> Sets:
    """(n, cells) which cells are likelier under a report: every interval but the full range; single
    cells first.
    """
    index = np.arange(cells)
    sets: list[Sets] = []
    for length in range(1, cells):
        for start in range(cells - length + 1):
            is_inside = (index >= start) & (index < start + length)
            sets.append(is_inside)
    return np.array(sets)


def candidates(cells: int) -> tuple[Sets, str]:
    """The columns to choose among, and the class of tables that they make."""
    if cells <= _ALL_SETS_UP_TO:
        numbers = np.arange(1, 2**cells - 1)
        every_set = (numbers[:, None] >> np.arange(cells)) & 1 > 0
        return every_set, "all mechanisms on these cells"
    single = intervals(cells)
    if cells > _PAIRS_UP_TO:
        return single, "tables on these cells whose reports each favour an interval of cells"
    pairs = [single | second for second in single]
    scope = "tables on these cells whose reports each favour one or two intervals of cells"
    return np.unique(np.concatenate(pairs), axis=0), scope


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CellProblem:
    """(K,) shares of the cells between (K + 1,) edges, and what a table for them must keep.

    Arguments:
        levels: reports at most, >= K.
        known: (K, K) information about the shares from elsewhere, as in `ColumnProgram`.
    """

    shares: FloatArray
    edges: FloatArray
    epsilon: float
    levels: int
    known: FloatArray | None = None

    def program(
        self,
        sets: Sets,
        epsilon: float | None = None,
    ) -> ColumnProgram:
        """The program of these columns, at the problem's epsilon unless another is given."""
        chosen_epsilon = self.epsilon if epsilon is None else epsilon
        return ColumnProgram(
            sets=sets, shares=self.shares, epsilon=chosen_epsilon, known=self.known
        )


def informative_table(problem: CellProblem) -> tuple[Mechanism, FloatDesign]:
    """The most informative table about the cells' shares, and a bound over others."""
    best_columns = _best_columns(problem)
    sets, more_steps = _fewer_columns(problem, best_columns)
    mechanism = stepped(
        rows_at=lambda epsilon: problem.program(sets, epsilon).rows(),
        shares=problem.shares,
        edges=problem.edges,
        epsilon=problem.epsilon,
    )
    design = FloatDesign(
        lower_bound=best_columns.bound,
        scope=best_columns.scope,
        iterations=best_columns.steps + more_steps,
    )
    return mechanism, design


class _Columns(NamedTuple):
    """Columns and how often each is used, a bound over all candidates, its scope, and steps."""

    sets: Sets
    often: FloatArray
    bound: float
    scope: str
    steps: int


def _best_columns(problem: CellProblem) -> _Columns:
    """The best of all candidate columns: those that would improve on the last ones are added."""
    cell_count = problem.shares.size
    pool, scope = candidates(cell_count)
    everything = problem.program(pool)
    sets = intervals(cell_count)
    best_bound = -math.inf
    total_steps = 0
    while True:
        program = problem.program(sets)
        column_use = program.solve()
        total_steps += column_use.steps
        slopes = everything.slopes(column_use.information)
        slope_sum = program.slopes(column_use.information) @ column_use.often
        second_moment = -float(slope_sum)
        bound = everything.bound(2 * second_moment, slopes, column_use.prices)
        best_bound = max(best_bound, bound)
        excess = everything.columns @ column_use.prices - slopes
        worst_columns = np.argsort(-excess)[: 3 * cell_count]
        worst_columns = worst_columns[excess[worst_columns] > 1e-12 * second_moment]
        bound_gap = second_moment - everything.offset - best_bound
        if bound_gap <= _TARGET * 10 * second_moment or not worst_columns.size:
            return _Columns(
                sets=sets, often=column_use.often, bound=best_bound, scope=scope, steps=total_steps
            )
        stays = column_use.often * program.chances > 1e-3 * RARE
        stays[:cell_count] = True
        kept_sets, worst_sets = sets[stays], pool[worst_columns]
        sets = np.concatenate([kept_sets, worst_sets])


def _fewer_columns(problem: CellProblem, best: _Columns) -> tuple[Sets, int]:
    """At most `levels` of the columns: the least used are left out, a few at a time; and steps."""
    cell_count = problem.shares.size
    single_cells = intervals(cell_count)[:cell_count]
    sets = best.sets
    often = best.often
    total_steps = 0
    # A report too rare for its units of 2**-32 to show the ratio is left out.
    integer_share = 64 * math.exp(problem.epsilon) / TOTAL
    least_frequency = max(RARE, integer_share)
    try:
        while True:
            frequency = often * problem.program(sets).chances
            stays = _frequent_columns(frequency, least_frequency, problem.levels)
            if stays.all():
                break
            if stays.sum() < cell_count:
                return single_cells, total_steps
            sets = sets[stays]
            column_use = problem.program(sets).solve()
            often = column_use.often
            total_steps += column_use.steps
    except InfeasibleError:
        return single_cells, total_steps
    bound = problem.program(sets).solve().bound
    response_bound = problem.program(single_cells).solve().bound
    if bound < response_bound:
        return sets, total_steps
    return single_cells, total_steps


def _frequent_columns(
    frequency: FloatArray,
    least: float,
    most: int,
) -> npt.NDArray[np.bool_]:
    """(n,) columns more frequent than `least`, without the rarest ones where there are more than
    `most`.
    """
    stays = frequency > least
    count = int(stays.sum())
    if count <= most:
        return stays
    droppable = int(_DROPPED_SHARE * count)
    dropped = min(droppable, count - most - 1)
    ascending = np.sort(frequency[stays])
    return stays & (frequency > ascending[dropped])


def _levels(
    rows: FloatArray,
    shares: FloatArray,
    centres: FloatArray,
) -> FloatArray:
    """Decoded values, unbiased for the middle of the input's cell, with the least variance."""
    # Of all that decode the middles, by the singular values of rows scaled to unit variances.
    scale = np.sqrt(shares @ rows)
    solution, *_ = np.linalg.lstsq(rows / scale, centres)
    return solution / scale


def stepped(
    rows_at: Callable[[float], FloatArray],
    shares: FloatArray,
    edges: FloatArray,
    epsilon: float,
    *,
    name: str = "optimal for distributions",
) -> Mechanism:
    """The certified table with rows constant in the cells between edges, decoded without bias for
    the cells' middles.

    `rows_at` gives (K, n) rows for an epsilon, which is lowered until the rounded rows keep the one
    requested.
    """
    centres = (edges[1:] + edges[:-1]) / 2

    def build(reduced_epsilon: float) -> Mechanism:
        rows = rows_at(reduced_epsilon)
        values = _levels(rows, shares, centres)
        value_order = np.argsort(values, kind="stable")
        # Reports whose values are the same stay different reports.
        distance = 1e-9 * float(np.ptp(values))
        offsets = distance * np.arange(value_order.size, dtype=np.float64)
        # Means are nothing to keep: any values with distances of 1 do.
        weights = round_rows(
            rows[:, value_order],
            levels=np.arange(value_order.size),
            epsilon=epsilon,
        )
        raised = values[value_order] - offsets
        outputs = np.maximum.accumulate(raised) + 2 * offsets
        jumps = np.repeat(edges[1:-1], 2)
        return Mechanism(
            knots=np.concatenate([edges[:1], jumps, edges[-1:]]),
            levels=np.asarray(outputs, dtype=np.float64),
            weights=np.repeat(weights, 2, axis=0),
            name=name,
        )

    return first_certified(build, epsilon=epsilon)


def design_cells(
    problem: Problem,
    levels: npt.ArrayLike,
    knots: npt.ArrayLike | None,
    *,
    started: float,
) -> DesignResult:
    """The table for the distribution of its inputs: see `optimal`, loss "cdf"."""
    if not problem.is_pure or problem.max_bias:
        remedy = "tables for distributions are for pure epsilon, without max_bias"
        raise ParameterError("loss", "cdf", remedy)
    level_count = 0
    if isinstance(levels, int | np.integer) and not isinstance(levels, bool):
        level_count = int(levels)
    if not 2 <= level_count <= MAX_LEVELS:
        remedy = 'with loss="cdf" give the largest number of different reports'
        raise ParameterError("levels", levels, remedy)
    if knots is None:
        is_many = math.exp(problem.epsilon) >= 3 * level_count
        cell_count = level_count if is_many else level_count // 2
        knots = min(MOST_CELLS, max(2, cell_count)) + 1
    edges = np.unique(check_knots(knots, problem))
    cell_count = edges.size - 1
    most_cells = min(level_count, MOST_CELLS)
    if not 2 <= cell_count <= most_cells:
        remedy = f"need the edges of 2 to {most_cells} cells: fewer reports do not tell them apart"
        raise ParameterError("knots", cell_count + 1, remedy)
    # A cell without inputs must still be distinguished.
    moments = problem.prior.moments(edges)
    shares = np.maximum(moments[:, 0], RARE)
    shares /= shares.sum()
    cell_problem = CellProblem(
        shares=shares,
        edges=edges,
        epsilon=problem.epsilon,
        levels=level_count,
    )
    mechanism, draft = informative_table(cell_problem)
    loss = cdf_variance(mechanism.probabilities[::2], shares)
    if not math.isfinite(loss):
        raise InfeasibleError(
            f"epsilon={problem.epsilon:g}: weights of 2**-32 do not tell the cells apart; raise it"
        )
    return record(problem, draft, mechanism, started=started, loss=loss)
