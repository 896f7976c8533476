"""The loops that draw a report for each coordinate of each record and add it to that coordinate's sum.

The draw is the one of `core.kernels`, word for word: of a word's high half H and low half L, H < T = t 2^32 picks the
right row, L names an alias cell and a unit in it. It goes in two steps, for the sake of the processor's vectors: what
needs 64 bits first, then what needs 32. Nothing branches on a value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mezzotint.core.compiled import compiled, inlined
from mezzotint.core.scoped import look_up, put, take

CHUNK = 1024
"""Coordinates that go through the steps together: what lies between the steps stays in the first-level cache."""

ONE = 2.0**33  # what positions are counted in, `grid.UNIT`
PARTS = (1 << 33) - 1
WHOLE = 0xFFFFFFFF

# numba computes with integers in 64 bits; naming the type after each operation makes vectors of 32-bit lanes of it.
U32 = np.uint32
SHIFTS = U32(31)  # amounts known to lie below 32
POSITIVE = U32(0x7FFFFFFF)


@inlined
def _pick_rows(
    x: Any, start: Any, size: Any, gain: Any, factor: Any, words: Any, first: Any, grid: Any, rows: Any, lows: Any
) -> Any:
    """The row that each input's word picks, and the word's low half; the number of NaNs."""
    lower, upper, origin, scale, last, first_stretch, last_stretch = grid
    nans = 0
    for i in range(size):
        given = take(x, start + i) * gain * factor
        nans += given != given
        value = np.float64(given)
        # NaN fails the comparison and becomes `lower`, so that no index leaves its table.
        value = value if value > lower else lower
        value = value if value < upper else upper
        position = (value - origin) * scale
        below, above = position - ONE, position - last
        below = below if below < 0.0 else 0.0
        above = above if above > 0.0 else 0.0
        fixed = np.int64(position + below * first_stretch + above * last_stretch)
        # Rounded to 2^-32, and not carried into the next segment: there may be a jump between.
        threshold = ((fixed & PARTS) + 1) >> 1
        word = np.int64(take(words, first + i))
        put(rows, i, U32((fixed >> 33 << 1) | (((word >> 32) & WHOLE) < threshold)))
        put(lows, i, U32(word & WHOLE))
    return nans


@inlined
def _pick_levels(rows: Any, lows: Any, size: Any, cells: Any, bits: Any, reports: Any) -> None:
    """The level that a word's low half names in its row's alias cells."""
    ones = U32((1 << bits) - 1)
    for i in range(size):
        low = take(lows, i)
        cell = U32(low >> U32(U32(32 - bits) & SHIFTS))
        entry = look_up(cells, np.int64(U32(U32(U32(take(rows, i) << U32(U32(bits) & SHIFTS)) | cell) & POSITIVE)))
        # The entry is threshold above alias: u << b | ones < threshold << b | alias exactly when u < threshold.
        own = U32(U32(low << U32(U32(bits) & SHIFTS)) | ones) < entry
        put(reports, i, np.uint16(cell if own else U32(entry & ones)))


@inlined
def _add(reports: Any, start: Any, size: Any, totals: Any, column: Any, integers: Any, levels: Any) -> Any:
    """Adds reports to the totals of their columns: as they are, by their integers, or as counts per level."""
    if levels > 0:
        for i in range(size):
            totals[(column + i) * levels + np.int64(reports[start + i])] += 1
    elif integers.size > 0:
        for i in range(size):
            sent = look_up(integers, np.int64(take(reports, start + i)))
            put(totals, column + i, take(totals, column + i) + sent)
    else:
        for i in range(size):
            put(totals, column + i, take(totals, column + i) + np.int64(take(reports, start + i)))


@compiled
def add_drawn(
    x: Any,
    gains: Any,
    factors: Any,
    begin: Any,
    end: Any,
    words: Any,
    totals: Any,
    integers: Any,
    levels: Any,
    grid: Any,
    cells: Any,
    bits: Any,
) -> Any:
    """Draws for elements begin to end - 1 of the records' gradients and adds up.

    Arguments:
        x: (n, width) contiguous float32, one record per row.
        gains: (n, repeat) float32: a record's gradient is the outer product of its gains and its row of x, flat.
        factors: (n,) float32: multiplies a record's gradient.
        begin, end: range of elements, of n * repeat * width.
        words: uint64, one per element of the range.
        totals: (repeat * width,) sums, or (repeat * width * levels,) counts; added to.
        integers: what each code adds; empty for the code itself.
        levels: 0 for sums; else the number of levels to count.
        grid, cells, bits: see `EvenGrid`.

    Returns: the number of NaNs.
    """
    rows, lows, reports = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint16)
    width, repeat = x.shape[1], gains.shape[1]
    flat = x.reshape(-1)
    nans = 0
    at = begin
    while at < end:
        record, column = divmod(at, repeat * width)
        which, first = divmod(column, width)
        size = min(CHUNK, width - first, end - at)
        gain, start = gains[record, which], record * width + first
        nans += _pick_rows(flat, start, size, gain, factors[record], words, at - begin, grid, rows, lows)
        _pick_levels(rows, lows, size, cells, bits, reports)
        _add(reports, 0, size, totals, column, integers, levels)
        at += size
    return nans


@compiled
def form(x: Any, gains: Any, factors: Any, begin: Any, out: Any) -> None:
    """Elements of the records' gradients from `begin` on, into `out`; the rest as in `add_drawn`."""
    width, repeat = x.shape[1], gains.shape[1]
    flat = x.reshape(-1)
    at = 0
    while at < out.size:
        record, column = divmod(begin + at, repeat * width)
        which, first = divmod(column, width)
        size = min(width - first, out.size - at)
        gain, factor, start = gains[record, which], factors[record], record * width + first
        for i in range(size):
            put(out, at + i, take(flat, start + i) * gain * factor)
        at += size


@compiled
def add_codes(codes: Any, begin: Any, width: Any, totals: Any, integers: Any, levels: Any) -> None:
    """Adds codes drawn for the elements from `begin` on of records of `width`; the rest as in `add_drawn`."""
    at = 0
    while at < codes.size:
        column = (begin + at) % width
        size = min(width - column, codes.size - at)
        _add(codes, at, size, totals, column, integers, levels)
        at += size
