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
from functools import cached_property
from operator import itemgetter
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.core.arguments import by_name, check_choice, check_count, check_covering
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import Prior, UniformPrior
from mezzotint.core.records import Progress
from mezzotint.core.rounding import table
from mezzotint.core.types import FloatArray
from mezzotint.design.problem import (
    DesignResult,
    Problem,
    achieved_loss,
    first_certified,
    make_problem,
    without_bound,
)
from mezzotint.families.numeric import cells, erm_choices, pair_rows, rqm_choices

Found = tuple[float, FloatArray]


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
        return self.bins.size * (self.bins.size - 1) // 2

    @property
    def size(self) -> int:
        return self.sides * self.half

    def row(self, side: int, n: int) -> slice:
        """The slice of q_n of a side (0 left, 1 right); it has n entries, the outermost bin
        first.
        """
        start = (side % self.sides) * self.half + n * (n - 1) // 2
        return slice(start, start + n)

    def choices(self, y: FloatArray, side: int) -> list[FloatArray]:
        """q_1 .. q_{m-1} of one side, normalised."""
        rows = [np.maximum(y[self.row(side, n)], 0.0) for n in range(1, self.bins.size)]
        return [row / row.sum() for row in rows]

    @cached_property
    def used(self) -> list[tuple[int, float, float]]:
        """Cells that meet the range: (bins to the left, left end, right end)."""
        return cells(self.bins, lower=self.lower, upper=self.upper)

    def own(self, j: int, i: int) -> int:
        """Index of the probability with which bin i (1-based) is drawn on its side in cell j."""
        m = self.bins.size
        return self.row(0, j).start + i - 1 if i <= j else self.row(1, m - j).start + m - i

    @cached_property
    def pinned_rows(self) -> list[slice]:
        """The q_n whose products with one another occur: where these are pinned, every probability
        is linear in y.
        """
        inner = [j for j, _, _ in self.used if min(j, self.bins.size - j) >= 2]
        rows = {(0, j) for j in inner} | {(1 % self.sides, self.bins.size - j) for j in inner}
        return [self.row(side, n) for side, n in sorted(rows)]

    @cached_property
    def free(self) -> npt.NDArray[np.bool_]:
        """(size,) which entries are neither pinned nor certain, as q_1(1) = 1 is."""
        free = np.ones(self.size, dtype=bool)
        for row in (*self.pinned_rows, self.row(0, 1), self.row(1, 1)):
            free[row] = False
        return free

    def box(self, pinned: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bounds (size,) of y from below and above with the pinned entries of `pinned` (size,)."""
        low, high = np.where(self.free, 0.0, 1.0), np.ones(self.size)
        for row in self.pinned_rows:
            low[row] = high[row] = pinned[row]
        return low, high

    def forms(self, pinned: FloatArray) -> FloatArray:
        """(cells, 2, m, size) coefficients on y of the probabilities at both ends of the used
        cells.

        q_1(1) = 1 carries the constants. Only the pinned entries of `pinned` (size,) matter.
        """
        free = np.flatnonzero(self.free)
        y = np.zeros((1 + free.size, self.size))
        y[1 + np.arange(free.size), free] = 1.0
        for row in self.pinned_rows:
            y[:, row] = pinned[row]
        for side in range(self.sides):
            y[:, self.row(side, 1)] = 1.0
        left, right = (
            [y[:, self.row(side, n)] for n in range(1, self.bins.size)] for side in (0, 1)
        )
        values = pair_rows(self.bins, left, right, lower=self.lower, upper=self.upper)[1]
        result = np.zeros((self.size, *values.shape[1:]))
        result[0], result[free] = values[0], values[1:] - values[0]
        return np.moveaxis(result, 0, -1).reshape(-1, 2, self.bins.size, self.size)

    def proxy(self, prior: Prior) -> tuple[FloatArray, float]:
        """Coefficients and constant of the bound on the MAE (Lemma 1, Theorem 3; Theorem 4 for two
        sides).
        """
        m, result, constant, used = self.bins.size, np.zeros(self.size), 0.0, self.used
        edges = np.array([start for _, start, _ in used] + [self.upper])
        for (j, _, _), mass in zip(used, prior.moments(edges)[:, 0].tolist(), strict=True):
            result[self.row(0, j)] += mass / 2 * (self.bins[j - 1] - self.bins[:j])
            # Right bins are counted from the outermost: B_m - B_{j+1}, ..., 0.
            result[self.row(1, m - j)] += mass / 2 * (self.bins[j:][::-1] - self.bins[j])
            constant += mass / 2 * float(self.bins[j] - self.bins[j - 1])
        return result, constant

    def unit(self, index: int) -> FloatArray:
        """(size,) the coefficients of one entry of y."""
        result = np.zeros(self.size)
        result[index] = 1.0
        return result


Constraints = Callable[[SelectionTables, FloatArray, float], FloatArray]
"""Rows A of A y <= 0 that stand for epsilon-DP, from the tables, the `forms` of the pinned entries,
and epsilon.
"""


def theorem5(tables: SelectionTables, forms: FloatArray, epsilon: float) -> FloatArray:
    """Theorem 5, corrected and for any bins.

    As printed the theorem leaves outputs without constraints
    (`papers.optm_programs.published_theorem5`). In each cell p(., i) is monotone; here its larger
    end in every cell is held against its smaller end in every cell. With pinned entries the boxes
    [o, u] have no width, the bounds (11) and (12) are the probabilities themselves, and this is
    privacy itself: that q_i(i) be the largest q_j(i) need not be required.
    """
    numbers, rows = np.array([j for j, _, _ in tables.used]), list[FloatArray]()
    for i in range(tables.bins.size):
        cell, near = np.arange(numbers.size), np.where(i < numbers, 0, 1)
        larger, smaller = forms[cell, near, i], forms[cell, 1 - near, i]
        rows.append((larger[:, None] - math.exp(epsilon) * smaller).reshape(-1, tables.size))
    return np.concatenate(rows)


def theorem6(tables: SelectionTables, forms: FloatArray, epsilon: float) -> FloatArray:
    """Theorem 6, its indices as its proof uses them; symmetric bins only.

    One ratio for all outputs at once: the largest p is p(lower, s-1) or q_s(s), the least p(., 1)
    at B_t or at upper. Since q_1(1) = 1 it forces epsilon > ln 2, and on many bins it is infeasible
    at every epsilon.
    """
    m, bins, used = tables.bins.size, tables.bins, tables.used
    s, t = used[0][0] + 1, used[-1][0]

    def q(n: int, i: int) -> FloatArray:
        return tables.unit(tables.row(0, n).start + i - 1)

    rows = [q(j + 1, i) - q(j, i) for j in range(1, m - 1) for i in range(1, j + 1)]
    rows += [q(j, i) - q(j, i + 1) for j in range(2, m) for i in range(1, j)]
    rows += [q(i + 1, i + 1) - q(i, i) for i in range(s, min(t, m - 2) + 1)]
    for k in range(s, t + 1):
        for r in range(k + 2, m + 1):
            wide, narrow = float(bins[r - 1] - bins[k - 1]), float(bins[r - 1] - bins[k])
            for n in (m - k, m - k - 1):
                if m - r + 1 <= n and n + 1 <= m - 1:
                    rows.append(narrow * q(n, m - r + 1) - wide * q(n + 1, m - r + 1))
    lowers, uppers = [forms[-1, 1, 0]], [forms[0, 0, s - 2]]
    if s <= t:
        lowers, uppers = [*lowers, forms[t - s, 1, 0]], [*uppers, q(s, s)]
    rows += [upper - math.exp(epsilon) * lower for upper in uppers for lower in lowers]
    return np.array(rows)


def solve_rows(
    tables: SelectionTables, low: FloatArray, high: FloatArray, target: FloatArray, rows: FloatArray
) -> Found | None:
    """(value, y): the least target @ y for selection probabilities low <= y <= high with rows @ y
    <= 0; or None.

    Columns of `target` and `rows` beyond those of y are numbers >= 0 that are free otherwise.
    """
    slices = [
        tables.row(side, n) for side in range(tables.sides) for n in range(1, tables.bins.size)
    ]
    sums = np.zeros((len(slices), target.size))
    for total, row in zip(sums, slices, strict=True):
        total[row] = 1.0
    least, most = np.zeros(target.size), np.full(target.size, np.inf)
    least[: tables.size], most[: tables.size] = low, high
    values = np.concatenate([np.full(len(rows), -np.inf), np.ones(len(sums))])
    limits = (np.concatenate([rows, sums]), values, np.maximum(values, 0.0))
    # Without integrality this is HiGHS on the same program as linprog's, with less work around it:
    # these are tiny.
    answer = optimize.milp(target, constraints=limits, bounds=(least, most))
    return (float(answer.fun), np.asarray(answer.x)[: tables.size]) if answer.status == 0 else None


BUILDERS: dict[str, Constraints] = {"theorem5": theorem5, "theorem6": theorem6}

_OUTER = (1.05, 1.15, 1.3, 1.5, 1.75, 2.0, 2.4, 2.8, 3.4, 4.0)
_INNER = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
_FINEST = 1e-4
_FEW_BOXES = 9
_FINALISTS = 3
_MOST_BOXES = 2000


def is_mirrored(bins: FloatArray, problem: Problem) -> bool:
    """Whether bins and prior are symmetric about the middle of the range: then one table of q
    serves both sides.
    """
    if np.abs(bins + bins[::-1] - 2 * problem.center).max() > 1e-12 * max(1.0, np.abs(bins).max()):
        return False
    if isinstance(problem.prior, UniformPrior):
        return True
    masses = problem.prior.moments(np.linspace(problem.lower, problem.upper, 65))[:, 0]
    return bool(np.abs(masses - masses[::-1]).max() <= 1e-9)


def bin_sets(problem: Problem, levels: int) -> list[FloatArray]:
    """Symmetric bin sets: 10 outer distances times up to 11 inner spreads, about as many as the
    paper's code has.
    """
    half, needed = problem.width / 2, 1 + 2 / math.expm1(problem.epsilon)
    spreads = [inner for inner in _INNER if inner > 0 or levels <= 3]
    inside = [
        np.linspace(-inner, inner, levels - 2) for inner in (spreads if levels > 3 else spreads[:1])
    ]
    return [
        problem.center + half * np.concatenate([[-outer * needed], middle, [outer * needed]])
        for outer, middle in itertools.product(_OUTER, inside)
    ]


def table_of(
    problem: Problem, tables: SelectionTables, y: FloatArray, *, name: str, epsilon: float
) -> Mechanism:
    """The certified table of selection probabilities y."""
    knots, rows = pair_rows(
        tables.bins,
        tables.choices(y, 0),
        tables.choices(y, 1),
        lower=problem.lower,
        upper=problem.upper,
    )
    return table(knots=knots, levels=tables.bins, probabilities=rows, name=name, epsilon=epsilon)


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

    def at(self, pinned: FloatArray) -> Found | None:
        """(value, y) of the linear program with these pinned probabilities, or None if it has no
        solution.
        """
        self.programs += 1
        constraints = self.constraints(self.tables, self.tables.forms(pinned), self.epsilon)
        return solve_rows(self.tables, *self.tables.box(pinned), self.target, constraints)

    def run(self) -> Found | None:
        """The best point found, or None where no point of the grid has a solution."""
        answers = (self.at(pinned) for pinned in self._grid())
        found = min(
            (answer for answer in answers if answer is not None), key=itemgetter(0), default=None
        )
        step = 1 / (self.points + 1)
        while found is not None and step > self.finest:
            moved = (self.at(pinned) for pinned in self._moves(found[1], step))
            better = min(
                [found, *(answer for answer in moved if answer is not None)], key=itemgetter(0)
            )
            if better[0] >= found[0] - 1e-12:
                step /= 2
            found = better
        return found

    def _grid(self) -> Iterator[FloatArray]:
        """Positive multiples of 1 / (points + 1); where they are too many, the shapes of RQM and
        ERM.
        """
        tables, counts = self.tables, [row.stop - row.start for row in self.rows]
        if math.prod(math.comb(self.points, count - 1) for count in counts) > _MOST_BOXES:
            for q in np.linspace(0.01, 0.7, 30).tolist():
                yield self._joined([rqm_choices(tables.bins.size, q)] * 2)
            for gamma in np.linspace(-6, 6, 30).tolist():
                yield self._joined(
                    [erm_choices(tables.bins, gamma), erm_choices(-tables.bins[::-1], gamma)]
                )
            return
        total = self.points + 1
        cuts = [itertools.combinations(range(1, total), count - 1) for count in counts]
        for choice in itertools.product(*cuts):
            pinned = np.zeros(tables.size)
            for row, cut in zip(self.rows, choice, strict=True):
                pinned[row] = np.diff([0, *cut, total]) / total
            yield pinned

    def _joined(self, sides: list[list[FloatArray]]) -> FloatArray:
        return np.concatenate([row for side in sides[: self.tables.sides] for row in side])

    def _moves(self, y: FloatArray, step: float) -> Iterator[FloatArray]:
        for row in self.rows:
            for gives, takes in itertools.permutations(range(row.start, row.stop), 2):
                moved, amount = y.copy(), min(step, y[gives])
                moved[gives], moved[takes] = y[gives] - amount, y[takes] + amount
                if amount > 0:
                    yield moved


@by_name
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
    """OPTM as published: a linear program per box of selection probabilities, an upper bound of the
    MAE minimised.

    It is Algorithm 2: it minimises the bound of Theorem 3 over a grid, so its result is not the
    best of the family. `papers.optm_exact` is that for four bins.

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

    Returns:
        The mechanism and its exact MAE as `loss`; no bound (`optimal` at the same levels has one).
        `iterations` counts linear programs.

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
    epsilon = problem.epsilon
    check_choice("constraints", constraints, BUILDERS)
    boxes, levels = (
        check_count("boxes", boxes, most=10_000),
        check_count("levels", levels, least=3, most=64),
    )
    sets = (
        bin_sets(problem, levels)
        if bins is None
        else [check_covering("bins", bins, lower=problem.lower, upper=problem.upper)]
    )
    if constraints == "theorem6" and not is_mirrored(sets[0], problem):
        raise ParameterError(
            "constraints", constraints, "Theorem 6 is about symmetric bins and priors; use theorem5"
        )
    best = best_pairs(
        problem, sets, BUILDERS[constraints], boxes=boxes, started=started, progress=progress
    )
    if best is None:
        hint = "; it always needs epsilon > ln 2" if constraints == "theorem6" else ""
        raise InfeasibleError(
            f"bins={bins}: no selection probabilities satisfy {constraints} at epsilon={epsilon:g}{hint}; "
            "move the outer bins out, raise epsilon, or use design.optimal"
        )
    return best


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
    found: list[tuple[float, Mechanism]] = []
    programs, total = 0, len(sets) + (min(_FINALISTS, len(sets)) if len(sets) > 1 else 0)

    def at(bins: FloatArray, points: int, finest: float) -> None:
        sides = 1 if is_mirrored(bins, problem) else 2
        tables = SelectionTables(bins=bins, lower=problem.lower, upper=problem.upper, sides=sides)
        points = points if sides == 1 else max(3, round(math.sqrt(points)))

        def build(epsilon: float) -> Mechanism | None:
            nonlocal programs
            search = BoxSearch(
                tables=tables,
                problem=problem,
                epsilon=epsilon,
                constraints=constraints,
                points=points,
                finest=finest,
            )
            answer, programs = search.run(), programs + search.programs
            allowed = problem.epsilon if is_private else math.inf
            return answer and table_of(problem, tables, answer[1], name="OPTM", epsilon=allowed)

        try:
            mechanism = first_certified(build, epsilon=problem.epsilon)
        except InfeasibleError:
            return
        if mechanism is not None:
            found.append((achieved_loss(problem, mechanism), mechanism))

    def each(chosen: list[FloatArray], points: int, finest: float, before: int = 0) -> None:
        for done, bins in enumerate(chosen, start=before + 1):
            at(bins, points, finest)
            if progress is not None:
                progress(done, total)

    if len(sets) > 1:
        each(sets, min(boxes, _FEW_BOXES), 1.0)
        sets = [mechanism.levels for _, mechanism in sorted(found, key=itemgetter(0))[:_FINALISTS]]
    each(sets, boxes, _FINEST, before=total - len(sets) if found else 0)
    if not found:
        return None
    loss, mechanism = min(found, key=itemgetter(0))
    status = "heuristic" if is_private else "no guarantee"
    return without_bound(mechanism, loss=loss, status=status, started=started, iterations=programs)
