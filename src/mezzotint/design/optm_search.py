"""Algorithm 2 of Cai et al. 2024: the search over boxes of selection probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.design.optm_program import Box, Constraints, Found, Tables, solve_box
from mezzotint.families.selection import erm_choices, rqm_choices

FloatArray = npt.NDArray[np.float64]

_MOST_BOXES = 2000


@final
@dataclass(kw_only=True, eq=False)
class BoxSearch:
    """One run of the box search at fixed bins.

    Arguments:
        target: (size,) objective, linear in the selection probabilities.
        points: grid points per free probability in the exhaustive pass.
        finest: the refinement after the grid stops at moves of this size; 1 for no refinement.
    """

    tables: Tables
    epsilon: float
    target: FloatArray
    constraints: Constraints
    points: int
    finest: float
    programs: int = field(default=0, init=False)

    def free_rows(self) -> list[slice]:
        """The q_n whose products with one another occur: only they need boxes."""
        tables = self.tables
        rows = set()
        for j, _, _ in tables.used():
            if min(j, tables.bins.size - j) >= 2:
                rows |= {(0, j), (1 % tables.sides, tables.bins.size - j)}
        return [tables.row(side, n) for side, n in sorted(rows)]

    def at(self, pinned: FloatArray, rows: list[slice]) -> Found | None:
        """The linear program with these rows in the box o = u = their value, everything else free."""
        # With o = u the bounds z and w are exact, so the smallest boxes are the best ones.
        low, high = self._widest()
        for row in rows:
            low[row] = high[row] = pinned[row]
        self.programs += 1
        return solve_box(self.tables, Box(low=low, high=high), self.epsilon, self.target, self.constraints)

    def _widest(self) -> tuple[FloatArray, FloatArray]:
        """[0, 1] everywhere but at q_1(1) = 1."""
        low, high = np.zeros(self.tables.size), np.ones(self.tables.size)
        for side in range(self.tables.sides):
            low[self.tables.row(side, 1)] = 1.0
        return low, high

    def run(self) -> Found | None:
        """The best point of the grid, improved by smaller and smaller moves of the pinned probabilities."""
        if self.constraints == "theorem6":
            return self.three_boxes()
        rows = self.free_rows()
        candidates = (self.at(pinned, rows) for pinned in self._grid(rows))
        found = min((answer for answer in candidates if answer is not None), key=_value, default=None)
        return None if found is None else self._improved(found, rows)

    def _grid(self, rows: list[slice]) -> Iterator[FloatArray]:
        counts = [row.stop - row.start for row in rows]
        total = math.prod(math.comb(self.points, count - 1) for count in counts)
        if total > _MOST_BOXES:
            yield from self._published_shapes()
            return
        lattices = [list(_simplex(count, self.points + 1)) for count in counts]
        for choice in itertools.product(*lattices):
            pinned = np.zeros(self.tables.size)
            for row, values in zip(rows, choice, strict=True):
                pinned[row] = values
            yield pinned

    def _published_shapes(self) -> Iterator[FloatArray]:
        """Where there are too many boxes for a grid: the shapes of RQM and ERM, by their one parameter."""
        bins = self.tables.bins
        for q in np.linspace(0.01, 0.7, 30).tolist():
            yield self._joined(rqm_choices(bins.size, q), rqm_choices(bins.size, q))
        for gamma in np.linspace(-6, 6, 30).tolist():
            yield self._joined(erm_choices(bins, gamma), erm_choices(-bins[::-1], gamma))

    def _joined(self, left: list[FloatArray], right: list[FloatArray]) -> FloatArray:
        return np.concatenate([*left, *right][: self.tables.sides * (self.tables.bins.size - 1)])

    def _improved(self, found: Found, rows: list[slice]) -> Found:
        step = 1 / (self.points + 1)
        while step > self.finest:
            better = self._one_round(found, rows, step)
            if better[0] >= found[0] - 1e-12:
                step /= 2
            found = min(found, better, key=_value)
        return found

    def _one_round(self, found: Found, rows: list[slice], step: float) -> Found:
        best = found
        for row in rows:
            for gives, takes in itertools.permutations(range(row.start, row.stop), 2):
                moved = best[1].copy()
                amount = min(step, moved[gives])
                moved[gives] -= amount
                moved[takes] += amount
                answer = self.at(moved, rows) if amount > 0 else None
                if answer is not None and answer[0] < best[0]:
                    best = answer
        return best

    def three_boxes(self) -> Found | None:
        """Theorem 6 needs three numbers only, whatever m: an upper bound on q at lower, lower bounds on two q(1)."""
        tables = self.tables
        first, last = tables.used()[0][0], tables.used()[-1][0]
        high_at = tables.own(first, first)
        low_at = {tables.own(last, 1), tables.own(last - 1, 1)}
        found: Found | None = None
        values = np.arange(1, 11) / 10
        for top in values.tolist():
            for bottoms in itertools.product((values - 0.1).tolist(), repeat=len(low_at)):
                low, high = self._widest()
                high[high_at] = max(top, 1.0 if first == 1 else 0.0)
                for index, value in zip(sorted(low_at), bottoms, strict=True):
                    low[index] = max(value, low[index])
                if (low > high).any():
                    continue
                self.programs += 1
                answer = solve_box(tables, Box(low=low, high=high), self.epsilon, self.target, self.constraints)
                found = min((a for a in (found, answer) if a is not None), key=_value, default=None)
        return found


def _value(found: Found) -> float:
    return found[0]


def _simplex(count: int, total: int) -> Iterator[FloatArray]:
    """Points of the simplex with positive multiples of 1/total as coordinates."""
    for cuts in itertools.combinations(range(1, total), count - 1):
        yield np.diff([0, *cuts, total]) / total
