"""A mechanism compiled for sampling: how to find an input's segment, and what to draw there, as flat tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.kernels import compiled, draw_bucketed, draw_searched, draw_uniform
from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray, Mechanism

Cells = npt.NDArray[np.uint32]


# A row of weights sums to 2^32 units. They are shared out to 2^b cells (b = bits of a report) of 2^(32-b) units each,
# every cell holding units of at most two levels: the first `threshold` units belong to the level that has the cell's
# own number, the others to the cell's `alias`. A uniform 32-bit word names a cell by its high b bits and a unit in it
# by the rest, so level i is drawn for exactly weights[i] of the 2^32 words.
#
# One sweep shares them out. While the current heavy level (more units than a cell holds) still has more than a
# cellful, it tops up the cell of the next light level; else its own cell takes what it has left and the next heavy
# level tops that up. Units are conserved, so the levels that remain when no heavy one does fill their cells exactly.
#
# A threshold below the capacity takes 32-b bits and an alias takes b: a cell is one uint32, threshold above alias.
# A full cell would need threshold = capacity; it is stored as threshold 0 with itself as alias, which is the same.
@compiled
def _fill_cells(weights: IntArray, bits: int, cells: Cells) -> None:
    size = 1 << bits
    levels = weights.shape[1]
    capacity = 1 << (32 - bits)
    for row in range(weights.shape[0]):
        for cell in range(size):
            cells[row, cell] = cell
        light = -1
        heavy = 0
        while heavy < levels and weights[row, heavy] <= capacity:
            heavy += 1
        rest = weights[row, heavy] if heavy < levels else 0
        while heavy < levels:
            if rest > capacity:
                light += 1
                while light < levels and weights[row, light] > capacity:
                    light += 1
                threshold = weights[row, light] if light < levels else 0
                if threshold < capacity:
                    cells[row, light] = (threshold << bits) | heavy
                    rest -= capacity - threshold
            else:
                own, threshold = heavy, rest
                heavy += 1
                while heavy < levels and weights[row, heavy] <= capacity:
                    heavy += 1
                rest = weights[row, heavy] if heavy < levels else 0
                if threshold < capacity:
                    cells[row, own] = (threshold << bits) | heavy
                    rest -= capacity - threshold


def alias_cells(weights: IntArray, bits: int) -> Cells:
    """The alias cells of every row of a table.

    Arguments:
        weights: (rows, m) integers >= 0, every row summing to 2**32, m <= 2**bits.
        bits: 1 to 16; the number of cells per row is 2**bits.

    Returns: (rows, 2**bits) uint32: threshold << bits | alias; see the derivation above.

    Guarantees: over all 2**32 words level i is drawn exactly weights[row, i] times; no mass, never drawn.

    Source: Walker (1977), Vose (1991); the sweep is that of Huebschle-Schneider and Sanders (2022).
    """
    cells = np.empty((weights.shape[0], 1 << bits), dtype=np.uint32)
    _fill_cells(weights, bits, cells)
    return cells


MAX_BUCKETS = 1024
"""Tables of 1024 buckets stay in the first-level cache; knots closer than that are searched for."""

EVEN = 2.0**-36
"""Knots count as evenly spaced when none is further off than this part of a segment: 1/16 of the unit of t."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup:
    """What one draw needs.

    Arguments:
        kernel: one of `draw_uniform`, `draw_bucketed`, `draw_searched`.
        arguments: what the kernel takes after (x, words, codes).
        code_dtype: uint8 up to 256 levels, else uint16.
    """

    kernel: Callable[..., tuple[int, int, int]]
    arguments: tuple[Any, ...]
    code_dtype: np.dtype[Any]

    def draw(self, x: npt.NDArray[Any], words: npt.NDArray[np.uint64], codes: npt.NDArray[Any]) -> tuple[int, int, int]:
        """Overwrites `codes`; returns how many inputs lay below, above, and were NaN. All arrays 1-D, contiguous."""
        return self.kernel(x, words, codes, *self.arguments)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Segments:
    """The S segments between distinct knots: `start` and `width` (S,); `jumps` (S-1,) tells which starts are jumps."""

    lower: float
    upper: float
    start: FloatArray
    width: FloatArray
    jumps: npt.NDArray[np.bool_]


@lru_cache(maxsize=32)
def compile_lookup(mechanism: Mechanism, dtype: np.dtype[Any]) -> Lookup:
    """The tables to draw from `mechanism` for inputs of type float32 or float64; the 32 used last are kept."""
    rows = np.flatnonzero(np.diff(mechanism.knots) > 0)  # a jump has no width: no input falls into it
    start = mechanism.knots[rows]
    segments = _Segments(
        lower=mechanism.lower,
        upper=mechanism.upper,
        start=start,
        width=mechanism.knots[rows + 1] - start,
        jumps=np.diff(rows) > 1,
    )
    cells = alias_cells(mechanism.weights, mechanism.bits)
    flat = np.stack([cells[rows], cells[rows + 1]], axis=1).reshape(-1)
    kernel, tables = _uniform(segments, dtype) or _bucketed(segments) or _searched(segments)
    return Lookup(
        kernel=kernel,
        arguments=(mechanism.lower, mechanism.upper, *tables, flat, mechanism.bits),
        code_dtype=np.dtype(np.uint8 if mechanism.levels.size <= 256 else np.uint16),
    )


# Evenly spaced knots: x lies in segment floor(p), p = (x - lower) * scale. What floats make of p must be right where
# it matters. (1) t: the knots' own unevenness and the rounding of p (S * 2^-52) are far below the unit 2^-32.
# (2) At a knot without a jump, p on the wrong side of the whole number gives t = 1 in one segment instead of 0 in
# the next: the same row. (3) At a jump those are two rows: there, the smallest input of this type from the knot on
# must land in its segment and the largest below it must not. A last-digit change of `scale` often helps.
def _uniform(segments: _Segments, dtype: np.dtype[Any]) -> tuple[Any, tuple[Any, ...]] | None:
    count = segments.start.size
    index = np.arange(count)
    scale = count / (segments.upper - segments.lower)
    uneven = np.abs((segments.start - segments.lower) * scale - index)
    if count > 2**16 or float(uneven.max()) > EVEN:
        return None
    jump = np.flatnonzero(segments.jumps) + 1
    at = segments.start[jump].astype(dtype)
    at = np.where(at < segments.start[jump], np.nextafter(at, dtype.type(np.inf)), at)
    before = np.nextafter(at, dtype.type(-np.inf)).astype(np.float64)
    for digits in (0, 1, -1, 2, -2, 4, -4):
        tried = scale * (1 + digits * 2.0**-52)
        right = (at.astype(np.float64) - segments.lower) * tried
        left = (before - segments.lower) * tried
        if ((right >= jump) & (left < jump)).all():
            return draw_uniform, (tried, count - 1)
    return None


# Even buckets: bucket(x) = floor((x - lower) * scale) is monotone in x as floats compute it, and knots are put into
# buckets by the same expression. So a knot in an earlier bucket lies below x and one in a later bucket above x: only
# one in x's own bucket needs a compare. Buckets are doubled until none holds two knots.
def _bucketed(segments: _Segments) -> tuple[Any, tuple[Any, ...]] | None:
    count = 1
    while count <= MAX_BUCKETS:
        scale = count / (segments.upper - segments.lower)
        # upper * scale may round to `count`, hence one bucket more.
        bucket = ((segments.start - segments.lower) * scale).astype(np.int64)
        if np.unique(bucket[1:]).size == bucket.size - 1:
            last = np.searchsorted(bucket, np.arange(count + 1), side="right") - 1
            return draw_bucketed, (
                scale,
                (last - 1).astype(np.int32),
                segments.start[last],
                TOTAL / segments.width,
            )
        count *= 2
    return None


def _searched(segments: _Segments) -> tuple[Any, tuple[Any, ...]]:
    steps = (segments.start.size - 1).bit_length()
    start = np.full(1 << steps, np.inf)
    start[: segments.start.size] = segments.start
    return draw_searched, (steps, start, TOTAL / segments.width)
