"""OPTM's linear program (Cai et al. 2024): selection probabilities within boxes, so that privacy is linear in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.core.priors import Prior
from mezzotint.families.selection import cells

FloatArray = npt.NDArray[np.float64]
Found = tuple[float, FloatArray]
Constraints = Literal["theorem5", "theorem6", "published_theorem5"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Box:
    """o <= y <= u, entrywise."""

    low: FloatArray
    high: FloatArray


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

    def start(self, side: int, n: int) -> int:
        """Where q_n of a side (0 left, 1 right) begins; it has n entries, the outermost bin first."""
        return (side % self.sides) * self.half + n * (n - 1) // 2

    def row(self, side: int, n: int) -> slice:
        start = self.start(side, n)
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
        return self.start(0, j) + i - 1 if i <= j else self.start(1, m - j) + m - i

    def others(self, j: int, x: float, i: int) -> FloatArray:
        """(size,) coefficients c with p(x, i) = y[own(j, i)] * (c @ y) at x in the closed cell j."""
        m, bins = self.bins.size, self.bins
        result = np.zeros(self.size)
        if i <= j:
            for r in range(j + 1, m + 1):
                result[self.start(1, m - j) + m - r] += (bins[r - 1] - x) / (bins[r - 1] - bins[i - 1])
        else:
            for left in range(1, j + 1):
                result[self.start(0, j) + left - 1] += (x - bins[left - 1]) / (bins[i - 1] - bins[left - 1])
        return result

    def is_linear(self, j: int, i: int) -> bool:
        """Whether p(., i) on cell j is linear in y: the other side has one bin only, drawn for certain."""
        return (self.bins.size - j if i <= j else j) == 1

    def least(self, box: Box, j: int, x: float, i: int) -> FloatArray:
        """A linear form of y that bounds p(x, i) from below within the box; eq. (12)."""
        return self._form(box.low, j, x, i)

    def most(self, box: Box, j: int, x: float, i: int) -> FloatArray:
        """A linear form of y that bounds p(x, i) from above within the box; eq. (11)."""
        return self._form(box.high, j, x, i)

    def _form(self, side: FloatArray, j: int, x: float, i: int) -> FloatArray:
        own, others = self.own(j, i), self.others(j, x, i)
        # q_1(1) = 1: with a single bin on the other side no box is needed.
        return unit(self.size, own) * others.sum() if self.is_linear(j, i) else side[own] * others

    def masses(self, prior: Prior) -> FloatArray:
        """Prior mass of each used cell."""
        edges = np.array([start for _, start, _ in self.used()] + [self.upper])
        return prior.moments(edges)[:, 0]

    def proxy(self, prior: Prior) -> tuple[FloatArray, float]:
        """Coefficients and constant of the bound on the MAE (Lemma 1, Theorem 3; Theorem 4 for two sides)."""
        m, result, constant = self.bins.size, np.zeros(self.size), 0.0
        for (j, _, _), mass in zip(self.used(), self.masses(prior).tolist(), strict=True):
            result[self.row(0, j)] += mass / 2 * (self.bins[j - 1] - self.bins[:j])
            # Right bins are counted from the outermost: B_m - B_{j+1}, ..., 0.
            result[self.row(1, m - j)] += mass / 2 * (self.bins[j:][::-1] - self.bins[j])
            constant += mass / 2 * float(self.bins[j] - self.bins[j - 1])
        return result, constant


def unit(size: int, index: int) -> FloatArray:
    result = np.zeros(size)
    result[index] = 1.0
    return result


def _bounds_of_level(tables: Tables, box: Box, i: int) -> tuple[list[FloatArray], list[FloatArray]]:
    """Linear forms that bound p(., i) from above at its candidates for the maximum, from below for the minimum."""
    uppers: list[FloatArray] = []
    lowers: list[FloatArray] = []
    inner = tables.lower <= tables.bins[i - 1] <= tables.upper
    for j, start, stop in tables.used():
        near, far = (start, stop) if i <= j else (stop, start)
        own = tables.own(j, i)
        lowers.append(tables.least(box, j, far, i))
        # p <= q_j(i) <= q_i(i) for an inner bin (the second by constraint); z of eq. (11) for an outer one.
        if not inner:
            uppers.append(tables.most(box, j, near, i))
        elif i in (j, j + 1):
            uppers.append(unit(tables.size, own))
    return uppers, lowers


def theorem5(tables: Tables, box: Box, epsilon: float) -> FloatArray:
    """Rows A of A y <= 0 that imply epsilon-DP for every y in the box: Theorem 5, corrected and for any bins.

    As printed the theorem leaves outputs without constraints (see `published_theorem5`). Here every candidate for
    the maximum of p(., i) over the range is held against every candidate for its minimum: in each cell p(., i) is
    monotone, so these are the two ends of each cell.
    """
    ratio = math.exp(epsilon)
    rows: list[FloatArray] = []
    for i in range(1, tables.bins.size + 1):
        uppers, lowers = _bounds_of_level(tables, box, i)
        rows += [upper - ratio * lower for upper in uppers for lower in lowers]
        rows += _largest_at_own_bin(tables, i)
    return np.array(rows)


def _largest_at_own_bin(tables: Tables, i: int) -> list[FloatArray]:
    """q_j(i) - q_i(i) <= 0 on both sides, for inner bins."""
    if not tables.lower <= tables.bins[i - 1] <= tables.upper:
        return []
    rows = []
    for j, _, _ in tables.used():
        nearest = tables.own(i, i) if i <= j else tables.own(i - 1, i)
        own = tables.own(j, i)
        if own != nearest:
            rows.append(unit(tables.size, own) - unit(tables.size, nearest))
    return rows


def published_theorem5(tables: Tables, box: Box, epsilon: float) -> FloatArray:
    """Theorem 5 as printed: NO guarantee. Bin t has no constraint at all, and outer bins lack pairs of cells.

    Its mechanisms can exceed the nominal epsilon; they are certified at what they truly have.
    """
    ratio, last = math.exp(epsilon), tables.used()[-1]
    inside = {j: start for j, start, _ in tables.used() if start == tables.bins[j - 1]}
    rows: list[FloatArray] = []
    for i in range(1, tables.bins.size + 1):
        if tables.bins[i - 1] > tables.upper:
            continue
        at_end = tables.least(box, last[0], tables.upper, i)
        for k, x in inside.items():
            if k <= i:
                continue
            limit = tables.least(box, k - 1, x, i)
            if tables.bins[i - 1] >= tables.lower:
                uppers = [unit(tables.size, tables.own(i, i)), unit(tables.size, tables.own(i - 1, i))]
            else:
                first = tables.used()[0]
                uppers = [
                    tables.most(box, k, x, i),
                    tables.most(box, first[0], tables.lower, i),
                ]
            rows += [upper - ratio * lower for upper in uppers for lower in (limit, at_end)]
        rows += _largest_at_own_bin(tables, i)
    return np.array(rows) if rows else np.zeros((1, tables.size))


def theorem6(tables: Tables, box: Box, epsilon: float) -> FloatArray:
    """Rows A of A y <= 0 of Theorem 6, its indices as its proof uses them; symmetric bins only.

    One ratio for all outputs at once: the largest p is p(lower, s-1) or q_s(s), the least p(., 1) at B_t or at
    upper. Since q_1(1) = 1 it forces epsilon > ln 2, and on many bins it is infeasible at every epsilon.
    """
    m, size, bins, ratio = tables.bins.size, tables.size, tables.bins, math.exp(epsilon)
    first, last = tables.used()[0][0], tables.used()[-1][0]
    s, t = first + 1, last

    def q(n: int, i: int) -> FloatArray:
        return unit(size, tables.start(0, n) + i - 1)

    rows = [q(j + 1, i) - q(j, i) for j in range(1, m - 1) for i in range(1, j + 1)]
    rows += [q(j, i) - q(j, i + 1) for j in range(2, m) for i in range(1, j)]
    rows += [q(i + 1, i + 1) - q(i, i) for i in range(s, min(t, m - 2) + 1)]
    for k in range(s, t + 1):
        for r in range(k + 2, m + 1):
            wide, narrow = float(bins[r - 1] - bins[k - 1]), float(bins[r - 1] - bins[k])
            for n in (m - k, m - k - 1):
                if m - r + 1 <= n and n + 1 <= m - 1:
                    rows.append(narrow * q(n, m - r + 1) - wide * q(n + 1, m - r + 1))
    z = tables.most(box, first, tables.lower, first)
    lowers = [tables.least(box, last, tables.upper, 1)]
    if s <= t:
        lowers.append(tables.least(box, t - 1, float(bins[t - 1]), 1))
    uppers = [z] + ([q(s, s)] if s <= t else [])
    rows += [upper - ratio * lower for upper in uppers for lower in lowers]
    return np.array(rows)


BUILDERS = {"theorem5": theorem5, "theorem6": theorem6, "published_theorem5": published_theorem5}


def solve_box(tables: Tables, box: Box, epsilon: float, target: FloatArray, constraints: Constraints) -> Found | None:
    """(value, y) of the box's linear program, or None if it has no solution."""
    return solve_rows(tables, box, target, BUILDERS[constraints](tables, box, epsilon))


def solve_rows(tables: Tables, box: Box, target: FloatArray, rows: FloatArray) -> Found | None:
    """(value, y): the least target @ y for selection probabilities in the box with rows @ y <= 0, or None (HiGHS)."""
    sums = np.zeros((tables.sides * (tables.bins.size - 1), tables.size))
    for side in range(tables.sides):
        for n in range(1, tables.bins.size):
            sums[side * (tables.bins.size - 1) + n - 1, tables.row(side, n)] = 1.0
    answer = optimize.linprog(
        target,
        A_ub=rows,
        b_ub=np.zeros(len(rows)),
        A_eq=sums,
        b_eq=np.ones(len(sums)),
        bounds=np.stack([box.low, box.high], axis=1),
        method="highs",
    )
    return (float(answer.fun), np.asarray(answer.x)) if answer.status == 0 else None
