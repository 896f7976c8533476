"""Public random codewords: how a seed makes them, their inner products with a vector, and sums of chosen ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, final

import numpy as np

from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.vectors.ranked import stream
from mezzotint.vectors.ranked.rank_tables import mean_norm, top_folded, top_normal

Kind = Literal["S", "X", "G", "GX"]

KINDS = {
    "S": "simplex, rotated",
    "X": "cross-polytope, rotated",
    "G": "Gaussian directions about their mean",
    "GX": "Gaussian directions and their opposites",
}

Moments = tuple[float, float, float]
"""Of the codeword reported for a unit vector: E<c, x>, E<c, x>^2 and E|c|^2."""


@final
@dataclass(frozen=True, kw_only=True)
class Codebook:
    """M codewords for every seed.

    Arguments:
        kind: "S": a simplex, at most size + 1 codewords; "X": +- an orthonormal basis, at most 2 size; both rotated
            by a uniformly random rotation and of norm 1. "G": Gaussian rows minus their mean; "GX": +- Gaussian rows.
        codewords: M; even for "X" and "GX".
        size: coordinates of the vectors that are ranked.
        subspace: coordinates that the codewords live in, after public random signs, a Hadamard transform and a public
            choice of so many of its outputs ("G" and "GX" only). None: the vectors' own.
        beacon: public text, mixed into all that is drawn.
    """

    kind: Kind
    codewords: int
    size: int
    subspace: int | None
    beacon: str

    @property
    def padded(self) -> int:
        """Length of the vectors that inner products are taken with: `size`, or the next power of two for transforms."""
        return self.size if self.subspace is None else 1 << (self.size - 1).bit_length()

    @property
    def width(self) -> int:
        """Coordinates of a codeword."""
        return self.size if self.subspace is None else self.subspace

    # What is known in closed form ------------------------------------------------------------------------------

    def moments(self, row: IntArray) -> Moments:
        """Moments under weights by place, up to their scale: E<c, x>, E<c, x>^2 and E|c|^2 times the weights' sum.

        Arguments:
            row: (M,) weights, falling.

        Source: docs/proofs/vectors.md; inner products of rotated codewords are order statistics of normal numbers over
            the norm of a Gaussian vector, which is independent of them.
        """
        folded = self.kind in ("X", "GX")
        first = second = 0.0
        # Summation by parts: a weight counts all places down to where it falls.
        for place in np.flatnonzero(np.diff(row, append=0)):
            fall = float(row[place] - (row[place + 1] if place + 1 < row.size else 0))
            mean, square = (top_folded if folded else top_normal)(self.codewords, int(place) + 1)
            first += fall * mean
            # About their own mean, independent of the differences, M numbers lose 1 / M of their squares.
            second += fall * (square - (0 if folded else (place + 1) / self.codewords))
        total = float(row.sum())
        spread = 1.0 if folded else 1 - 1 / self.codewords
        if self.kind in ("G", "GX"):
            return first, second, total * (self.width - 1) * spread + second
        return first / math.sqrt(spread) / mean_norm(self.width), second / spread / self.width, total

    @cached_property
    def compression(self) -> float:
        """What the subspace does to a unit vector's estimate: 1 / E|projection|, 1 without one."""
        return mean_norm(self.padded) / mean_norm(self.width) if self.subspace is not None else 1.0

    # What a seed makes -----------------------------------------------------------------------------------------

    def signs(self, group: int) -> FloatArray:
        """(padded,) signs that all seeds of a round share."""
        return _signs(self.beacon, group, self.padded)

    def transform(self, vectors: FloatArray, group: int) -> None:
        """Signs, then Hadamard, in place of the (n, padded) rows; nothing without a subspace."""
        from mezzotint.vectors import compiled as kernels

        if self.subspace is not None:
            vectors *= self.signs(group)
            kernels.transform(vectors, 1 / math.sqrt(self.padded))

    def undo(self, vector: FloatArray, group: int) -> FloatArray:
        """(padded,) estimate to the (size,) vector."""
        from mezzotint.vectors import compiled as kernels

        if self.subspace is None:
            return vector
        values = vector[None, :].copy()
        kernels.transform(values, 1 / math.sqrt(self.padded))
        return (values[0] * self.signs(group))[: self.size]

    def _key(self, seed: int, place: int) -> bytes:
        return stream.stream_key("report", self.beacon, seed, place)

    def products(self, vector: FloatArray, seed: int, place: int) -> FloatArray:
        """(M,) inner products of a transformed (padded,) vector with the codewords of a report's index `place`."""
        key = self._key(seed, place)
        if self.subspace is not None:
            vector = vector[stream.positions(key, self.subspace, self.padded)]
        if self.kind == "S":
            return _simplex(self.codewords) @ (self._basis(key, self.codewords - 1) @ vector)
        if self.kind == "X":
            half = self._basis(key, self.codewords // 2) @ vector
            return np.concatenate([half, -half])
        if self.kind == "GX":
            half = stream.normal_products(key, self.codewords // 2, vector)
            return np.concatenate([half, -half])
        rows = stream.normal_products(key, self.codewords, vector)
        return rows - rows.mean()

    def add(self, total: FloatArray, index: int, seed: int, place: int, weight: float) -> None:
        """Adds `weight` times a codeword to the (padded,) total; the index of no codeword adds nothing."""
        if index >= self.codewords:
            return
        key = self._key(seed, place)
        codeword = self._codeword(key, index) * weight
        if self.subspace is None:
            total += codeword
        else:
            total[stream.positions(key, self.subspace, self.padded)] += codeword

    def _codeword(self, key: bytes, index: int) -> FloatArray:
        half = self.codewords // 2
        if self.kind == "S":
            return _simplex(self.codewords)[index] @ self._basis(key, self.codewords - 1)
        if self.kind == "X":
            return self._basis(key, half)[index % half] * (1.0 if index < half else -1.0)
        if self.kind == "GX":
            return stream.normal_rows(key, index % half, 1, self.width)[0] * (1.0 if index < half else -1.0)
        rows = stream.normal_rows(key, 0, self.codewords, self.width)
        return rows[index] - rows.mean(axis=0)

    def _basis(self, key: bytes, count: int) -> FloatArray:
        """(count, size) orthonormal rows, uniformly distributed: Gram and Schmidt's of Gaussian ones."""
        columns, triangle = np.linalg.qr(stream.normal_rows(key, 0, count, self.size).T)
        return (columns * np.sign(np.diag(triangle))).T


@lru_cache(maxsize=2)
def _signs(beacon: str, group: int, size: int) -> FloatArray:
    return stream.signs(beacon, group, size)


@lru_cache(maxsize=8)
def _simplex(count: int) -> FloatArray:
    """(M, M - 1) unit vectors with inner products -1 / (M - 1): Helmert's rows, turned round."""
    columns = np.zeros((count, count - 1))
    for j in range(1, count):
        columns[:j, j - 1] = 1.0
        columns[j, j - 1] = -j
    columns /= np.sqrt((columns**2).sum(axis=0))
    return columns * math.sqrt(count / (count - 1))


def groups(seeds: Sequence[int]) -> dict[int, list[int]]:
    """Places of the seeds of each round: those whose upper 32 bits agree."""
    found: dict[int, list[int]] = {}
    for place, seed in enumerate(seeds):
        found.setdefault(seed >> 32, []).append(place)
    return found
