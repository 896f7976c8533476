"""Constraints beyond pure epsilon: (epsilon, delta), metric privacy, Renyi divergence, and the worst-case error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.loss import FloatArray, IndexArray
from mezzotint.design.program import Block, Part, sparse_rows


def _differences(
    entries: IndexArray, pairs: IndexArray, size: int, ratios: npt.ArrayLike, *less: FloatArray, spare: float = 0.0
) -> Block:
    """P[a, i] + spare - ratio (P[b, i] - spare) - less <= 0 for each pair (a, b) of rows and each column i."""
    first, second = (entries[side].ravel() for side in pairs.T)
    row = np.arange(first.size)
    factors = np.repeat(np.broadcast_to(ratios, len(pairs)), entries.shape[1])
    own = [(row, variables, -1.0) for variables in less]
    matrix = sparse_rows((row.size, size), (row, first, 1.0), (row, second, -factors), *own)
    return Block(matrix=matrix, rhs=-spare * (1 + factors), cone="nonnegative")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DeltaPart(Part):
    """sum_i max(P[a, i] - e**epsilon P[b, i], 0) <= delta for each pair (a, b) of rows."""

    pairs: IndexArray
    epsilon: float
    delta: float

    def caps(self, columns: int) -> list[tuple[int, float]]:
        return [(columns, self.delta)] * len(self.pairs)

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[Block]:
        count, columns = len(self.pairs), entries.shape[1]
        own = offset + np.arange(count * columns)
        positive = sparse_rows((own.size, size), (np.arange(own.size), own, -1.0))
        total = sparse_rows((count, size), (np.repeat(np.arange(count), columns), own, 1.0))
        return [
            _differences(entries, self.pairs, size, math.exp(self.epsilon), own),
            Block(matrix=positive, rhs=np.zeros(own.size), cone="nonnegative"),
            Block(matrix=total, rhs=np.full(count, self.delta), cone="nonnegative"),
        ]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PairRatioPart(Part):
    """P[a, i] <= ratio * P[b, i] for each pair of rows, each with its own ratio (metric privacy).

    Arguments:
        spare: it holds even where each probability is off by so much.
    """

    pairs: IndexArray
    ratios: FloatArray
    spare: float = 0.0

    def caps(self, columns: int) -> list[tuple[int, float]]:
        return []

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[Block]:
        return [_differences(entries, self.pairs, size, self.ratios, spare=self.spare)]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RenyiPart(Part):
    """sum_i P[a, i]**alpha P[b, i]**(1 - alpha) <= e**((alpha - 1) epsilon) for each pair (a, b) of rows.

    Arguments:
        spare: it holds even where each probability is off by so much.
    """

    pairs: IndexArray
    alpha: float
    epsilon: float
    spare: float = 0.0

    def caps(self, columns: int) -> list[tuple[int, float]]:
        return [(columns, 1.0)] * len(self.pairs)

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[Block]:
        # With own variables y_i = term_i / e**((alpha-1) epsilon) the terms are the power cones
        # y_i**(1/alpha) P[b,i]**(1-1/alpha) >= P[a,i] e**(-(1-1/alpha) epsilon), and sum_i y_i <= 1.
        count, columns = len(self.pairs), entries.shape[1]
        own = offset + np.arange(count * columns)
        row = 3 * np.arange(count * columns)
        shrink = math.exp(-(1 - 1 / self.alpha) * self.epsilon)
        cones = sparse_rows(
            (3 * count * columns, size),
            (row, own, -1.0),
            (row + 1, entries[self.pairs[:, 1]].ravel(), -1.0),
            (row + 2, entries[self.pairs[:, 0]].ravel(), -shrink),
        )
        total = sparse_rows((count, size), (np.repeat(np.arange(count), columns), own, 1.0))
        off = self.spare * np.array([0.0, -1.0, shrink])
        return [
            Block(matrix=total, rhs=np.ones(count), cone="nonnegative"),
            Block(matrix=cones, rhs=np.tile(off, count * columns), cone="power", power=1 / self.alpha),
        ]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class WorstErrorPart(Part):
    """E(report - x)^2 <= z at every knot and at points between each two; z / `unit` is the only own variable."""

    aims: FloatArray
    levels: FloatArray
    between: tuple[float, ...] = (0.25, 0.5, 0.75)

    @property
    def unit(self) -> float:
        """The largest error there is: in its units a solver sees numbers near 1 however far the levels."""
        return float((np.abs(self.levels).max() + 1) ** 2)

    def caps(self, columns: int) -> list[tuple[int, float]]:
        return [(1, 1.0)]

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[Block]:
        columns = self.levels.size
        terms, count = [], 0
        for t in (0.0, *self.between):
            left, right = np.arange(self.aims.size - 1), np.arange(1, self.aims.size)
            if t == 0:
                left = right = np.arange(self.aims.size)
            error = (self.levels - ((1 - t) * self.aims[left] + t * self.aims[right])[:, None]) ** 2 / self.unit
            row = count + np.repeat(np.arange(left.size), columns)
            terms.append((row, entries[left].ravel(), (1 - t) * error.ravel()))
            terms.append((row, entries[right].ravel(), t * error.ravel()))
            count += left.size
        matrix = sparse_rows((count, size), *terms, (np.arange(count), np.full(count, offset), -1.0))
        return [Block(matrix=matrix, rhs=np.zeros(count), cone="nonnegative")]
