"""OPTM's linear programs (Cai et al. 2024): selection probabilities, those of inner cells pinned, the others free."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.core.loss import FloatArray
from mezzotint.core.priors import Prior
from mezzotint.families.selection import cells, pair_rows

Found = tuple[float, FloatArray]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """Where the selection probabilities stand in one vector y: q_1, q_2, ... of the left, then of the right side.

    Arguments:
        bins: (m,) increasing, data units, covering [lower, upper].
        sides: 1 for mirrored sides (symmetric bins and prior), 2 for separate ones.
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
        """Where q_n of a side (0 left, 1 right) stands; it has n entries, the outermost bin first."""
        start = (side % self.sides) * self.half + n * (n - 1) // 2
        return slice(start, start + n)

    def choices(self, y: FloatArray, side: int) -> list[FloatArray]:
        """q_1 .. q_{m-1} of one side, normalised."""
        rows = [np.maximum(y[self.row(side, n)], 0.0) for n in range(1, self.bins.size)]
        return [row / row.sum() for row in rows]

    def used(self) -> list[tuple[int, float, float]]:
        """Cells that meet the range: (bins to the left, left end, right end)."""
        return cells(self.bins, lower=self.lower, upper=self.upper)

    def own(self, j: int, i: int) -> int:
        """Index of the probability with which bin i (1-based) is drawn on its side in cell j."""
        m = self.bins.size
        return self.row(0, j).start + i - 1 if i <= j else self.row(1, m - j).start + m - i

    def pinned_rows(self) -> list[slice]:
        """The q_n whose products with one another occur: where these are pinned, every probability is linear in y."""
        inner = [j for j, _, _ in self.used() if min(j, self.bins.size - j) >= 2]
        rows = {(0, j) for j in inner} | {(1 % self.sides, self.bins.size - j) for j in inner}
        return [self.row(side, n) for side, n in sorted(rows)]

    def free(self) -> npt.NDArray[np.bool_]:
        """(size,) which entries are neither pinned nor certain, as q_1(1) = 1 is."""
        free = np.ones(self.size, dtype=bool)
        for row in (*self.pinned_rows(), self.row(0, 1), self.row(1, 1)):
            free[row] = False
        return free

    def box(self, pinned: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bounds (size,) of y from below and above with the pinned entries of `pinned` (size,)."""
        low, high = np.where(self.free(), 0.0, 1.0), np.ones(self.size)
        for row in self.pinned_rows():
            low[row] = high[row] = pinned[row]
        return low, high

    def forms(self, pinned: FloatArray) -> FloatArray:
        """(cells, 2, m, size) coefficients on y of the probabilities at both ends of the used cells.

        q_1(1) = 1 carries the constants. Only the pinned entries of `pinned` (size,) matter.
        """
        free = np.flatnonzero(self.free())
        y = np.zeros((1 + free.size, self.size))
        y[1 + np.arange(free.size), free] = 1.0
        for row in self.pinned_rows():
            y[:, row] = pinned[row]
        for side in range(self.sides):
            y[:, self.row(side, 1)] = 1.0
        left, right = ([y[:, self.row(side, n)] for n in range(1, self.bins.size)] for side in (0, 1))
        values = pair_rows(self.bins, left, right, lower=self.lower, upper=self.upper)[1]
        result = np.zeros((self.size, *values.shape[1:]))
        result[0], result[free] = values[0], values[1:] - values[0]
        return np.moveaxis(result, 0, -1).reshape(-1, 2, self.bins.size, self.size)

    def proxy(self, prior: Prior) -> tuple[FloatArray, float]:
        """Coefficients and constant of the bound on the MAE (Lemma 1, Theorem 3; Theorem 4 for two sides)."""
        m, result, constant, used = self.bins.size, np.zeros(self.size), 0.0, self.used()
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


Constraints = Callable[[Tables, FloatArray, float], FloatArray]
"""Rows A of A y <= 0 that stand for epsilon-DP, from the tables, the `forms` of the pinned entries, and epsilon."""


def theorem5(tables: Tables, forms: FloatArray, epsilon: float) -> FloatArray:
    """Theorem 5, corrected and for any bins.

    As printed the theorem leaves outputs without constraints (`papers.optm_programs.published_theorem5`). In each cell
    p(., i) is monotone; here its larger end in every cell is held against its smaller end in every cell. With pinned
    entries the boxes [o, u] have no width, the bounds (11) and (12) are the probabilities themselves, and this is
    privacy itself: that q_i(i) be the largest q_j(i) need not be asked for.
    """
    numbers, rows = np.array([j for j, _, _ in tables.used()]), list[FloatArray]()
    for i in range(tables.bins.size):
        cell, near = np.arange(numbers.size), np.where(i < numbers, 0, 1)
        larger, smaller = forms[cell, near, i], forms[cell, 1 - near, i]
        rows += [upper - math.exp(epsilon) * lower for upper in larger for lower in smaller]
    return np.array(rows)


def theorem6(tables: Tables, forms: FloatArray, epsilon: float) -> FloatArray:
    """Theorem 6, its indices as its proof uses them; symmetric bins only.

    One ratio for all outputs at once: the largest p is p(lower, s-1) or q_s(s), the least p(., 1) at B_t or at
    upper. Since q_1(1) = 1 it forces epsilon > ln 2, and on many bins it is infeasible at every epsilon.
    """
    m, bins, used = tables.bins.size, tables.bins, tables.used()
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


def solve_rows(tables: Tables, low: FloatArray, high: FloatArray, target: FloatArray, rows: FloatArray) -> Found | None:
    """(value, y): the least target @ y for selection probabilities low <= y <= high with rows @ y <= 0; or None.

    Columns of `target` and `rows` beyond those of y are numbers >= 0 that are free otherwise.
    """
    slices = [tables.row(side, n) for side in range(tables.sides) for n in range(1, tables.bins.size)]
    sums = np.zeros((len(slices), target.size))
    for total, row in zip(sums, slices, strict=True):
        total[row] = 1.0
    bounds = np.tile([0.0, np.inf], (target.size, 1))
    bounds[: tables.size] = np.stack([low, high], axis=1)
    limits, ones = np.zeros(len(rows)), np.ones(len(sums))
    answer = optimize.linprog(target, A_ub=rows, b_ub=limits, A_eq=sums, b_eq=ones, bounds=bounds, method="highs")
    return (float(answer.fun), np.asarray(answer.x)[: tables.size]) if answer.status == 0 else None
