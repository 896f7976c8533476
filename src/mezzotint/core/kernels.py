"""The loops that turn inputs and random words into reports: one for each way of finding an input's
segment.

Per element: clip; find the segment and T = round(t 2^32); take the segment's right row if the high
half of the word is below T, else its left row; then the level that the low half names in that row's
alias cells. Every element takes the same steps and nothing branches on a value: conditional
expressions compile to selects. NaN is counted and treated as `lower`, so that no index leaves its
table; the caller throws the reports away then. A test reads the machine code for branches on
floating-point comparisons.

A mechanism compiled for sampling: how to find an input's segment, and what to draw there, as flat
tables.
"""

from __future__ import annotations

import math
import signal
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.table import Table
from mezzotint.core.types import TOTAL, Codes, FloatArray, Floats, IndexArray, IntArray, Words

Cells = npt.NDArray[np.uint32]

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def uninterrupted() -> Generator[None]:
    """Defers an interrupt (Ctrl-C, a cancelled Ray task) until the block has ended."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # only the main thread is interrupted, and only by a handler that raises
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[-1])


# numba registers its types as a side effect of imports, of which it puts most off to the first
# compilation. Python forgets a module whose import was interrupted, numba's registries do not: the
# next try ends in "KeyError: duplicate registration", and so does every one after it, in a worker
# that is kept. Hence all of it at once and undisturbed.
with uninterrupted():
    import numba
    from numba import types
    from numba.core import registry
    from numba.extending import intrinsic

    cast(Any, registry).cpu_target.typing_context.refresh()
    cast(Any, registry).cpu_target.target_context.refresh()

_jit, _intrinsic, _void = cast(Any, numba).njit, cast(Any, intrinsic), cast(Any, types).void
_OPTIONS = {"error_model": "numpy", "boundscheck": False}


_TABLES, _STREAMS = "tables", "streams"


def _scope(module: Any, name: str) -> object:
    domain = module.add_metadata(["mezzotint"])
    scope = module.add_metadata([name, domain])
    return module.add_metadata([scope])


def _mark(module: Any, access: Any, mine: str, other: str) -> None:
    access.set_metadata("alias.scope", _scope(module, mine))
    access.set_metadata("noalias", _scope(module, other))


def _address(
    context: Any, builder: Any, array_type: object, array: object, index: object
) -> object:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _reader(mine: str, other: str) -> Callable[..., object]:
    def read(_typing: object, array: Any, index: object) -> tuple[object, Callable[..., object]]:
        def generate(
            context: Any, builder: Any, signature: Any, arguments: Sequence[object]
        ) -> object:
            value = builder.load(_address(context, builder, signature.args[0], *arguments))
            _mark(builder.module, value, mine, other)
            return value

        return array.dtype(array, index), generate

    return read


def _writer(
    _typing: object, array: Any, index: object, value: object
) -> tuple[object, Callable[..., object]]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Sequence[object]) -> object:
        address = _address(context, builder, signature.args[0], *arguments[:2])
        _mark(builder.module, builder.store(arguments[2], address), _STREAMS, _TABLES)
        return context.get_dummy_value()

    return _void(array, index, array.dtype), generate


look_up: Any = _intrinsic(_reader(_TABLES, _STREAMS))
"""look_up(table, index): an entry of a contiguous 1-D table that no stream overlaps; index is
int64, unchecked.
"""

take: Any = _intrinsic(_reader(_STREAMS, _TABLES))
"""take(stream, index): an element of a contiguous 1-D input; index is int64, unchecked."""

put: Any = _intrinsic(_writer)
"""put(stream, index, value): stores into a contiguous 1-D output."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` compiled to machine code that runs without the GIL; the code is kept on disk where
    that is possible.

    numba keeps it beside the module, else in the user's cache folder, and raises when it can write
    to neither (a read-only installation run by a user without a home): then each process compiles
    for itself.
    """
    try:
        dispatcher = _jit(cache=True, nogil=True, **_OPTIONS)(function)
    except RuntimeError:
        return _jit(nogil=True, **_OPTIONS)(function)
    _name_files_apart(dispatcher)
    return dispatcher


def inlined(function: Callable[P, R], *, reorder: bool = False) -> Callable[P, R]:
    """`function` for use inside compiled ones of the same file only (their files' caches do not
    watch other files).

    Arguments:
        reorder: sums may be taken in any order, which lets them run in lanes.
    """
    return _jit(**_OPTIONS, **({"fastmath": {"reassoc"}} if reorder else {}))(function)


def _name_files_apart(dispatcher: Any) -> None:
    """Code is kept under a name that no other process gives.

    numba numbers the files of one function's signatures by counting. Two processes that compile for
    two types at the same time both take the number 1, and later runs load the code of one type for
    the other.
    """
    file = dispatcher._cache._cache_file
    counted = file._data_name

    def apart(number: int) -> str:
        return f"{counted(number).removesuffix('.nbc')}.{uuid.uuid4().hex[:16]}.nbc"

    file._data_name = apart


UNIT = 4294967296.0  # 2^32: what t is counted in
WHOLE = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@inlined
def _level(
    cells: Cells, segment: np.int64 | int, threshold: np.int64, word: np.uint64, bits: int
) -> np.uint64:
    row = (segment << 1) | (np.int64(word >> HALF) < threshold)
    low = word & WHOLE
    cell = low >> np.uint64(32 - bits)
    ones = np.uint64((1 << bits) - 1)
    entry = np.uint64(look_up(cells, (row << bits) | np.int64(cell)))
    # The entry is threshold above alias: u << b | ones < threshold << b | alias exactly when u <
    # threshold.
    return cell if (((low << np.uint64(bits)) & WHOLE) | ones) < entry else entry & ones


CHUNK = 1024
"""Elements that go through the steps together: what lies between the steps stays in the first-level
cache.
"""

FIXED = 2.0**33
"""Positions are counted in these parts of a segment: one bit more than t has, to round t by."""

_PARTS, _WHOLE = (1 << 33) - 1, (1 << 32) - 1

# numba computes with integers in 64 bits; naming the type after each operation makes vectors of
# 32-bit lanes of it.
U32 = np.uint32
_SHIFTS = U32(31)  # amounts known to lie below 32
_POSITIVE = U32(0x7FFFFFFF)
Lanes = npt.NDArray[np.uint32]


@inlined
def _pick_rows(
    x: Floats,
    start: int,
    size: int,
    words: Words,
    numbers: tuple[float, ...],
    rows: Lanes,
    lows: Lanes,
) -> Any:
    """The row that each input's word picks, and the word's low half; how many inputs lay below,
    above, and were NaN.
    """
    lower, upper, origin, scale, last, first_stretch, last_stretch = numbers
    below = above = nans = 0
    for i in range(size):
        given = np.float64(take(x, start + i))
        below += given < lower
        above += given > upper
        nans += given != given
        # NaN fails the comparison and becomes `lower`, so that no index leaves its table.
        value = given if given > lower else lower
        position = ((value if value < upper else upper) - origin) * scale
        before, after = position - FIXED, position - last
        before, after = before if before < 0.0 else 0.0, after if after > 0.0 else 0.0
        fixed = np.int64(position + before * first_stretch + after * last_stretch)
        # Rounded to 2^-32, and not carried into the next segment: there may be a jump between.
        threshold = ((fixed & _PARTS) + 1) >> 1
        word = np.int64(take(words, start + i))
        put(rows, i, U32((fixed >> 33 << 1) | (((word >> 32) & _WHOLE) < threshold)))
        put(lows, i, U32(word & _WHOLE))
    return below, above, nans


@inlined
def _pick_levels(
    rows: Lanes, lows: Lanes, size: int, cells: Cells, bits: np.uint32, codes: Codes, start: int
) -> None:
    """The level that a word's low half names in its row's alias cells: as `_level`, in 32 bits."""
    ones = U32((1 << bits) - 1)
    for i in range(size):
        low = take(lows, i)
        cell = U32(low >> U32(U32(32 - bits) & _SHIFTS))
        entry = look_up(
            cells,
            np.int64(U32(U32(U32(take(rows, i) << U32(U32(bits) & _SHIFTS)) | cell) & _POSITIVE)),
        )
        own = U32(U32(low << U32(U32(bits) & _SHIFTS)) | ones) < entry
        put(codes, start + i, cell if own else U32(entry & ones))


@compiled
def draw_uniform(
    x: Floats, words: Words, codes: Codes, lower: float, upper: float, origin: float, scale: float, last: float,
    first_stretch: float, last_stretch: float, cells: Cells, bits: int,
) -> Any:  # fmt: skip
    """Evenly spaced knots, of which the first and the last may be cut short by the range. No table
    but the cells.

    An input v lies at p = (v - origin) * scale, counted in FIXED parts of a segment, origin one
    whole segment below the second knot. Where an end is cut short, p is stretched so that its
    segment is whole again: p + first_stretch * min(p - FIXED, 0) + last_stretch * max(p - last, 0).
    Stretching moves no position across a knot.

    Arguments:
        x, words, codes: contiguous, as many elements each; `codes` is overwritten.
        last: position of the last segment's left end.
        first_stretch, last_stretch: whole over present width of that segment, less 1; >= 0.
        cells: flat, 2**bits per row, left and right row of every segment, then of one more behind
            the last, which is the last row twice: where the upper end itself may fall.

    Returns: how many inputs lay below, above, and were NaN.
    """
    rows, lows = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32)
    numbers = (lower, upper, origin, scale, last, first_stretch, last_stretch)
    below = above = nans = 0
    for start in range(0, x.size, CHUNK):
        size = min(CHUNK, x.size - start)
        under, over, missing = _pick_rows(x, start, size, words, numbers, rows, lows)
        below, above, nans = below + under, above + over, nans + missing
        _pick_levels(rows, lows, size, cells, U32(bits), codes, start)
    return below, above, nans


@inlined
def _clip(value: float, lower: float, upper: float) -> float:
    value = value if value >= lower else lower  # NaN fails this comparison and becomes `lower`
    return value if value <= upper else upper


@compiled
def draw_bucketed(
    x: Floats, words: Words, codes: Codes, lower: float, upper: float, scale: float,
    first: npt.NDArray[np.int32], split: FloatArray, slope: FloatArray, cells: Cells, bits: int,
) -> Any:  # fmt: skip
    """At most one knot in each of many even buckets: one compare with it tells the segment.

    Arguments, beyond those of `draw_uniform` that it shares:
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
        threshold = np.int64(
            (value - knot) * look_up(slope, segment) + (0.5 if right else UNIT + 0.5)
        )
        put(codes, i, _level(cells, segment, threshold, take(words, i), bits))
    return below, above, nans


@compiled
def draw_searched(
    x: Floats, words: Words, codes: Codes, lower: float, upper: float, steps: int,
    start: FloatArray, slope: FloatArray, cells: Cells, bits: int,
) -> Any:  # fmt: skip
    """Any knots: a binary search of `steps` halvings among the left ends of the segments, then inf
    to 2**steps entries.

    `slope` as in `draw_bucketed`.
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


# A row of weights sums to 2^32 units. They are shared out to 2^b cells (b = bits of a report) of
# 2^(32-b) units each, every cell holding units of at most two levels: the first `threshold` units
# belong to the level that has the cell's own number, the others to the cell's `alias`. A uniform
# 32-bit word names a cell by its high b bits and a unit in it by the rest, so level i is drawn for
# exactly weights[i] of the 2^32 words.
#
# One sweep shares them out. While the current heavy level (more units than a cell holds) still has
# more than a cellful, it tops up the cell of the next light level; else its own cell takes what it
# has left and the next heavy level tops that up. Units are conserved, so the levels that remain
# when no heavy one does fill their cells exactly.
#
# A threshold below the capacity takes 32-b bits and an alias takes b: a cell is one uint32,
# threshold above alias. A full cell would need threshold = capacity; it is stored as threshold 0
# with itself as alias, which is the same.
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
    """(rows, 2**bits) alias cells of every row of a table with at most 2**bits levels: threshold <<
    bits | alias.

    Guarantees: over all 2**32 words level i is drawn exactly weights[row, i] times; no mass, never
    drawn.

    Source: Walker (1977), Vose (1991); the sweep is that of Huebschle-Schneider and Sanders (2022).
    """
    cells = np.empty((weights.shape[0], 1 << bits), dtype=np.uint32)
    _fill_cells(weights, bits, cells)
    return cells


MAX_BUCKETS = 1024
"""Tables of 1024 buckets stay in the first-level cache; knots closer than that are searched for."""

EVEN = 2.0**-36
"""Knots count as evenly spaced when none is further off than this part of a segment: 1/16 of the
unit of t.
"""

MOST_SEGMENTS, MOST_STRETCHED = 2**16, 2**12
"""Largest number of even segments, and that times how much the ends are stretched where they are
cut short: keeps the rounding of positions below EVEN."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup:
    """One of the kernels above and what it takes after (x, words, codes), for one mechanism."""

    kernel: Callable[..., tuple[int, int, int]]
    arguments: tuple[Any, ...]
    code_dtype: np.dtype[np.unsignedinteger]

    def draw(self, x: Floats, words: Words, codes: Codes) -> tuple[int, int, int]:
        """Overwrites `codes`; returns how many inputs lay below, above, and were NaN. All arrays
        1-D, contiguous.
        """
        return self.kernel(x, words, codes, *self.arguments)


_Way: TypeAlias = tuple[Callable[..., tuple[int, int, int]], tuple[object, ...]]
"""A kernel, and what it takes between `upper` and `cells`."""


@lru_cache(maxsize=32)
def compile_lookup(table: Table, dtype: np.dtype[np.floating], *, cut: bool = False) -> Lookup:
    """The tables to draw from `table` for inputs of type float32 or float64; the 32 used last are
    kept.

    With `cut` knots also count as even where an end is cut short: faster, but no device draws in
    that way.
    """
    rows = np.flatnonzero(np.diff(table.knots) > 0)  # a jump has no width: no input falls into it
    edges = np.append(table.knots[rows], table.upper)
    cells = alias_cells(table.weights, table.bits)
    end = cells[-1:, None, :].repeat(2, axis=1)
    flat = np.concatenate([np.stack([cells[rows], cells[rows + 1]], axis=1), end]).reshape(-1)
    jump = np.flatnonzero(np.diff(rows) > 1) + 1
    even = _uniform(edges, jump, dtype) or (_uniform(edges, jump, dtype, cut=True) if cut else None)
    even = (
        even if flat.size <= 2**31 else None
    )  # cells are counted in lanes of 32 bits, one of them a sign
    kernel, tables = even or _bucketed(edges) or _searched(edges)
    return Lookup(
        kernel=kernel,
        arguments=(table.lower, table.upper, *tables, flat, table.bits),
        code_dtype=np.dtype(np.uint8 if table.levels.size <= 256 else np.uint16),
    )


# Evenly spaced knots: x lies in segment floor(p), p = (x - origin) * scale. What floats make of p
# must be right where it matters. (1) t: the knots' own unevenness and the rounding of p (S * 2^-52)
# are far below the unit 2^-32; where ends are cut short, stretching magnifies them. (2) At a knot
# without a jump, p on the wrong side of the whole number gives t = 1 in one segment instead of 0 in
# the next: the same row. (3) At a jump those are two rows: there, the smallest input of this type
# from the knot on must land in its segment and the largest below it must not. A last-digit change
# of `scale` often helps.
def _uniform(
    edges: FloatArray, jump: IndexArray, dtype: np.dtype[np.floating], *, cut: bool = False
) -> _Way | None:
    count, origin, first, last = edges.size - 1, float(edges[0]), 0.0, 0.0
    scale = count / float(edges[-1] - edges[0])
    if cut:
        widths = np.diff(edges)
        pitch = float(widths.max() if count < 3 else (edges[-2] - edges[1]) / (count - 2))
        scale, origin, first = 1 / pitch, float(edges[1]) - pitch, max(0.0, pitch / widths[0] - 1)
        last = max(0.0, pitch / widths[-1] - 1) if count > 1 else 0.0
    stretched = 1 + max(first, last)
    if count * stretched > (MOST_STRETCHED if cut else MOST_SEGMENTS) or not math.isfinite(
        FIXED * scale
    ):
        return None
    off = (edges - origin) * scale - np.arange(count + 1)
    # An end may fall short of its place, but not lie beyond it.
    if np.abs(off[1:-1]).max(initial=0.0) * stretched > EVEN or off[0] < -EVEN or off[-1] > EVEN:
        return None
    at = edges[jump].astype(dtype)
    at = np.where(at < edges[jump], np.nextafter(at, dtype.type(np.inf)), at)
    before = np.nextafter(at, dtype.type(-np.inf)).astype(np.float64)
    for digits in (0, 1, -1, 2, -2, 4, -4):
        tried = FIXED * scale * (1 + digits * 2.0**-52)
        right, left = (at.astype(np.float64) - origin) * tried, (before - origin) * tried
        if ((right >= jump * FIXED) & (left < jump * FIXED)).all():
            return draw_uniform, (
                origin,
                float(tried),
                (count - 1) * FIXED,
                float(first),
                float(last),
            )
    return None


# Even buckets: bucket(x) = floor((x - lower) * scale) is monotone in x as floats compute it, and
# knots are put into buckets by the same expression. So a knot in an earlier bucket lies below x and
# one in a later bucket above x: only one in x's own bucket needs a compare. Buckets are doubled
# until none holds two knots.
def _bucketed(edges: FloatArray) -> _Way | None:
    start, count = edges[:-1], 1
    while count <= MAX_BUCKETS:
        scale = count / float(edges[-1] - edges[0])
        # upper * scale may round to `count`, hence one bucket more.
        bucket = ((start - edges[0]) * scale).astype(np.int64)
        if np.unique(bucket[1:]).size == bucket.size - 1:
            last = np.searchsorted(bucket, np.arange(count + 1), side="right") - 1
            return draw_bucketed, (
                scale,
                (last - 1).astype(np.int32),
                start[last],
                TOTAL / np.diff(edges),
            )
        count *= 2
    return None


def _searched(edges: FloatArray) -> _Way:
    steps = (edges.size - 2).bit_length()
    start = np.full(1 << steps, np.inf)
    start[: edges.size - 1] = edges[:-1]
    return draw_searched, (steps, start, TOTAL / np.diff(edges))
