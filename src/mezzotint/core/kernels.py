"""The loops that turn inputs and random words into reports: one for each way of finding an input's segment.

Per element: clip; find the segment and T = round(t 2^32); take the segment's right row if the high half of the word is
below T, else its left row; then the level that the low half names in that row's alias cells. Every element takes the
same steps and nothing branches on a value: conditional expressions compile to selects. NaN is counted and treated as
`lower`, so that no index leaves its table; the caller throws the reports away then. A test reads the machine code for
branches on floating-point comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mezzotint.core.compiled import compiled, inlined
from mezzotint.core.scoped import look_up, put, take

UNIT = 4294967296.0  # 2^32: what t is counted in
WHOLE = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@inlined
def _clip(value: Any, lower: Any, upper: Any) -> Any:
    # Written so that NaN fails the first comparison and becomes `lower`.
    value = value if value >= lower else lower
    return value if value <= upper else upper


@inlined
def _level(cells: Any, segment: Any, threshold: Any, word: Any, bits: Any) -> Any:
    row = (segment << 1) | (np.int64(word >> HALF) < threshold)
    low = word & WHOLE
    cell = low >> np.uint64(32 - bits)
    ones = np.uint64((1 << bits) - 1)
    entry = np.uint64(look_up(cells, (row << bits) | np.int64(cell)))
    # The entry is threshold above alias: u << b | ones < threshold << b | alias exactly when u < threshold.
    return cell if (((low << np.uint64(bits)) & WHOLE) | ones) < entry else entry & ones


@compiled
def draw_uniform(
    x: Any, words: Any, codes: Any, lower: Any, upper: Any, scale: Any, last: Any, cells: Any, bits: Any
) -> Any:
    """Evenly spaced knots: the segment and t are the whole and the broken part of one number. No table but the cells.

    Arguments:
        x, words, codes: contiguous, as many elements each; `codes` is overwritten.
        lower, upper: range of inputs.
        scale: segments per data unit.
        last: index of the last segment.
        cells: flat, 2**bits per row, left and right row of every segment.
        bits: bits of one report.

    Returns: how many inputs lay below, above, and were NaN.
    """
    below = above = nans = 0
    for i in range(x.size):
        given = np.float64(take(x, i))
        below += given < lower
        above += given > upper
        nans += given != given
        position = (_clip(given, lower, upper) - lower) * scale
        segment = np.int64(position)
        segment = segment if segment < last else last
        threshold = np.int64((position - segment) * UNIT + 0.5)
        put(codes, i, _level(cells, segment, threshold, take(words, i), bits))
    return below, above, nans


@compiled
def draw_bucketed(
    x: Any,
    words: Any,
    codes: Any,
    lower: Any,
    upper: Any,
    scale: Any,
    first: Any,
    split: Any,
    slope: Any,
    cells: Any,
    bits: Any,
) -> Any:
    """At most one knot in each of many even buckets: one compare with it tells the segment.

    Arguments, beyond those of `draw_uniform`:
        scale: buckets per data unit.
        split: per bucket the knot in it, or the left end of the only segment there.
        first: per bucket the segment on the left of `split`.
        slope: 2**32 / width, per segment.
    """
    below = above = nans = 0
    for i in range(x.size):
        given = np.float64(take(x, i))
        below += given < lower
        above += given > upper
        nans += given != given
        value = _clip(given, lower, upper)
        bucket = np.int64((value - lower) * scale)
        knot = look_up(split, bucket)
        right = value >= knot
        segment = np.int64(look_up(first, bucket)) + right
        # Counted from the knot: up from 0 on its right, down from 1 on its left.
        threshold = np.int64((value - knot) * look_up(slope, segment) + (0.5 if right else UNIT + 0.5))
        put(codes, i, _level(cells, segment, threshold, take(words, i), bits))
    return below, above, nans


@compiled
def draw_searched(
    x: Any,
    words: Any,
    codes: Any,
    lower: Any,
    upper: Any,
    steps: Any,
    start: Any,
    slope: Any,
    cells: Any,
    bits: Any,
) -> Any:
    """Any knots: a binary search of `steps` halvings, the same for every input.

    Arguments, beyond those of `draw_uniform`:
        steps: 2**steps >= number of segments.
        start: left ends of the segments, then inf up to 2**steps entries.
        slope: 2**32 / width, per segment.
    """
    below = above = nans = 0
    for i in range(x.size):
        given = np.float64(take(x, i))
        below += given < lower
        above += given > upper
        nans += given != given
        value = _clip(given, lower, upper)
        segment = np.int64(0)
        for step in range(steps - 1, -1, -1):
            # Arithmetic on the comparison: a conditional expression became a branch here.
            half = np.int64(1) << step
            segment += half * np.int64(value >= look_up(start, segment + half))
        threshold = np.int64((value - look_up(start, segment)) * look_up(slope, segment) + 0.5)
        put(codes, i, _level(cells, segment, threshold, take(words, i), bits))
    return below, above, nans
