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
from mezzotint.core.types import (
    TOTAL,
    ClipCounts,
    Codes,
    FloatArray,
    Floats,
    IndexArray,
    IntArray,
    Words,
)

Cells = npt.NDArray[np.uint32]

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def uninterrupted() -> Generator[None]:
    """Defers an interrupt (Ctrl-C, a cancelled Ray task) until the block has ended."""
    handler = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not callable(handler):
        yield  # only the main thread is interrupted, and only by a handler that raises
        return
    interrupts: list[tuple[int, FrameType | None]] = []

    def note_interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append((number, frame))

    signal.signal(signal.SIGINT, note_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupts:
            handler(*interrupts[-1])


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

_jit = cast(Any, numba).njit
_intrinsic = cast(Any, intrinsic)
_void = cast(Any, types).void
_OPTIONS = {"error_model": "numpy", "boundscheck": False}


_TABLES = "tables"
_STREAMS = "streams"
"""Two scopes of memory that never overlap: what is looked up, and what runs past it."""


def _scope(module: Any, name: str) -> object:
    domain = module.add_metadata(["mezzotint"])
    scope = module.add_metadata([name, domain])
    return module.add_metadata([scope])


def _mark(
    module: Any,
    access: Any,
    scope: str,
    other_scope: str,
) -> None:
    access.set_metadata("alias.scope", _scope(module, scope))
    access.set_metadata("noalias", _scope(module, other_scope))


def _address(
    context: Any,
    builder: Any,
    array_type: object,
    array: object,
    index: object,
) -> object:
    compiled_array = context.make_array(array_type)(context, builder, array)
    return builder.gep(compiled_array.data, [index])


def _reader(scope: str, other_scope: str) -> Callable[..., object]:
    def read(
        _typing: object,
        array: Any,
        index: object,
    ) -> tuple[object, Callable[..., object]]:
        def generate(
            context: Any,
            builder: Any,
            signature: Any,
            arguments: Sequence[object],
        ) -> object:
            address = _address(context, builder, signature.args[0], *arguments)
            value = builder.load(address)
            _mark(builder.module, value, scope, other_scope)
            return value

        return array.dtype(array, index), generate

    return read


def _writer(
    _typing: object,
    array: Any,
    index: object,
    value: object,
) -> tuple[object, Callable[..., object]]:
    def generate(
        context: Any,
        builder: Any,
        signature: Any,
        arguments: Sequence[object],
    ) -> object:
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


def inlined(
    function: Callable[P, R],
    *,
    reorder: bool = False,
) -> Callable[P, R]:
    """`function` for use inside compiled ones of the same file only (their files' caches do not
    watch other files).

    Arguments:
        reorder: sums may be taken in any order, which lets them run in lanes.
    """
    options: dict[str, Any] = dict(_OPTIONS)
    if reorder:
        options["fastmath"] = {"reassoc"}
    return _jit(**options)(function)


def _name_files_apart(dispatcher: Any) -> None:
    """Code is kept under a name that no other process gives.

    numba numbers the files of one function's signatures by counting. Two processes that compile for
    two types at the same time both take the number 1, and later runs load the code of one type for
    the other.
    """
    cache_file = dispatcher._cache._cache_file
    numbered_name = cache_file._data_name

    def unique_name(number: int) -> str:
        stem = numbered_name(number).removesuffix(".nbc")
        return f"{stem}.{uuid.uuid4().hex[:16]}.nbc"

    cache_file._data_name = unique_name


THRESHOLD_SCALE = 2.0**32
"""What a position t within a segment is counted in: the units of a row."""

LOW_HALF = np.uint64(0xFFFFFFFF)
HALF_BITS = np.uint64(32)


@inlined
def _level(
    cells: Cells,
    segment: np.int64 | int,
    threshold: np.int64,
    word: np.uint64,
    bits: int,
) -> np.uint64:
    row = (segment << 1) | (np.int64(word >> HALF_BITS) < threshold)
    low_half = word & LOW_HALF
    cell = low_half >> np.uint64(32 - bits)
    alias_mask = np.uint64((1 << bits) - 1)
    entry = np.uint64(look_up(cells, (row << bits) | np.int64(cell)))
    # The entry is threshold above alias: u << b | ones < threshold << b | alias exactly when u <
    # threshold.
    cell_unit = ((low_half << np.uint64(bits)) & LOW_HALF) | alias_mask
    return cell if cell_unit < entry else entry & alias_mask


CHUNK = 1024
"""Elements that go through the steps together: what lies between the steps stays in the first-level
cache.
"""

FIXED = 2.0**33
"""Positions are counted in these parts of a segment: one bit more than t has, to round t by."""

_POSITION_MASK = (1 << 33) - 1
_WORD_MASK = (1 << 32) - 1

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
    lower, upper, scale = numbers
    below_count = above_count = nan_count = 0
    for index in range(size):
        raw_value = np.float64(take(x, start + index))
        below_count += raw_value < lower
        above_count += raw_value > upper
        nan_count += raw_value != raw_value
        # NaN fails the comparison and becomes `lower`, so that no index leaves its table.
        clipped = raw_value if raw_value > lower else lower
        clipped = clipped if clipped < upper else upper
        position = np.int64((clipped - lower) * scale)
        # Rounded to 2^-32, and not carried into the next segment: there may be a jump between.
        threshold = ((position & _POSITION_MASK) + 1) >> 1
        word = np.int64(take(words, start + index))
        picks_right = ((word >> 32) & _WORD_MASK) < threshold
        put(rows, index, U32((position >> 33 << 1) | picks_right))
        put(lows, index, U32(word & _WORD_MASK))
    return below_count, above_count, nan_count


@inlined
def _pick_levels(
    rows: Lanes,
    lows: Lanes,
    size: int,
    cells: Cells,
    bits: np.uint32,
    codes: Codes,
    start: int,
) -> None:
    """The level that a word's low half names in its row's alias cells: as `_level`, in 32 bits."""
    alias_mask = U32((1 << bits) - 1)
    for index in range(size):
        low_half = take(lows, index)
        cell = U32(low_half >> U32(U32(32 - bits) & _SHIFTS))
        row_start = U32(take(rows, index) << U32(U32(bits) & _SHIFTS))
        entry = look_up(cells, np.int64(U32(U32(row_start | cell) & _POSITIVE)))
        is_cell_level = U32(U32(low_half << U32(U32(bits) & _SHIFTS)) | alias_mask) < entry
        put(codes, start + index, cell if is_cell_level else U32(entry & alias_mask))


@compiled
def draw_uniform(
    x: Floats,
    words: Words,
    codes: Codes,
    lower: float,
    upper: float,
    scale: float,
    cells: Cells,
    bits: int,
) -> Any:
    """Evenly spaced knots: no table but the cells.

    An input v lies at (v - lower) * scale, counted in FIXED parts of a segment.

    Arguments:
        x, words, codes: contiguous, as many elements each; `codes` is overwritten.
        scale: FIXED times the segments per data unit.
        cells: flat, 2**bits per row, left and right row of every segment, then of one more behind
            the last, which is the last row twice: where the upper end itself may fall.

    Returns: how many inputs lay below, above, and were NaN.
    """
    rows = np.empty(CHUNK, np.uint32)
    lows = np.empty(CHUNK, np.uint32)
    numbers = (lower, upper, scale)
    below_count = above_count = nan_count = 0
    for start in range(0, x.size, CHUNK):
        size = min(CHUNK, x.size - start)
        chunk_counts = _pick_rows(x, start, size, words, numbers, rows, lows)
        below_count += chunk_counts[0]
        above_count += chunk_counts[1]
        nan_count += chunk_counts[2]
        _pick_levels(rows, lows, size, cells, U32(bits), codes, start)
    return below_count, above_count, nan_count


@inlined
def _clip(
    value: float,
    lower: float,
    upper: float,
) -> float:
    value = value if value >= lower else lower  # NaN fails this comparison and becomes `lower`
    return value if value <= upper else upper


@compiled
def draw_bucketed(
    x: Floats,
    words: Words,
    codes: Codes,
    lower: float,
    upper: float,
    scale: float,
    first: npt.NDArray[np.int32],
    split: FloatArray,
    slope: FloatArray,
    cells: Cells,
    bits: int,
) -> Any:
    """At most one knot in each of many even buckets: one compare with it tells the segment.

    Arguments, beyond those of `draw_uniform` that it shares:
        scale: buckets per data unit.
        split: per bucket the knot in it, or the left end of the only segment there.
        first: per bucket the segment on the left of `split`.
        slope: 2**32 / width, per segment.
    """
    below_count = above_count = nan_count = 0
    for index in range(x.size):
        raw_value = np.float64(take(x, index))
        below_count += raw_value < lower
        above_count += raw_value > upper
        nan_count += raw_value != raw_value
        clipped = _clip(raw_value, lower, upper)
        bucket = np.int64((clipped - lower) * scale)
        knot = look_up(split, bucket)
        is_right = clipped >= knot
        segment = np.int64(look_up(first, bucket)) + is_right
        # Counted from the knot: up from 0 on its right, down from 1 on its left.
        base = 0.5 if is_right else THRESHOLD_SCALE + 0.5
        threshold = np.int64((clipped - knot) * look_up(slope, segment) + base)
        put(codes, index, _level(cells, segment, threshold, take(words, index), bits))
    return below_count, above_count, nan_count


@compiled
def draw_searched(
    x: Floats,
    words: Words,
    codes: Codes,
    lower: float,
    upper: float,
    steps: int,
    start: FloatArray,
    slope: FloatArray,
    cells: Cells,
    bits: int,
) -> Any:
    """Any knots: a binary search of `steps` halvings among the left ends of the segments, then inf
    to 2**steps entries.

    `slope` as in `draw_bucketed`.
    """
    below_count = above_count = nan_count = 0
    for index in range(x.size):
        raw_value = np.float64(take(x, index))
        below_count += raw_value < lower
        above_count += raw_value > upper
        nan_count += raw_value != raw_value
        clipped = _clip(raw_value, lower, upper)
        segment = np.int64(0)
        for step in range(steps - 1, -1, -1):
            # Arithmetic on the comparison: a conditional expression became a branch here.
            stride = np.int64(1) << step
            segment += stride * np.int64(clipped >= look_up(start, segment + stride))
        distance = clipped - look_up(start, segment)
        threshold = np.int64(distance * look_up(slope, segment) + 0.5)
        put(codes, index, _level(cells, segment, threshold, take(words, index), bits))
    return below_count, above_count, nan_count


# A row of weights sums to 2^32 units. They are shared out to 2^b cells (b = bits of a report) of
# 2^(32-b) units each, every cell holding units of at most two levels: the first `threshold` units
# belong to the level that has the cell's own number, the others to the cell's `alias`. A uniform
# 32-bit word names a cell by its high b bits and a unit in it by the rest, so level i is drawn for
# exactly weights[i] of the 2^32 words.
#
# One sweep shares them out. While the current heavy level (more units than a cell holds) still has
# more than a cellful, it tops up the cell of the next light level; else its own cell takes its
# remaining units and the next heavy level tops that up. Units are conserved, so the levels that
# remain when no heavy one does fill their cells exactly.
#
# A threshold below the capacity takes 32-b bits and an alias takes b: a cell is one uint32,
# threshold above alias. A full cell would need threshold = capacity; it is stored as threshold 0
# with itself as alias, which is the same.
@inlined
def _next_heavy(
    weights: IntArray,
    row: int,
    candidate: int,
    capacity: int,
) -> int:
    """The first level from `candidate` on with more units than a cell holds; else the number of
    levels.
    """
    while candidate < weights.shape[1] and weights[row, candidate] <= capacity:
        candidate += 1
    return candidate


@compiled
def _fill_cells(
    weights: IntArray,
    bits: int,
    cells: Cells,
) -> None:
    """Fills the alias cells of each row, exactly: a threshold in the upper bits, below which a cell
    stands for its own level, and the level above it in the lower `bits`. A cell holds 2**(32 -
    bits) units: what a light level leaves of its cell a heavy one takes.
    """
    cell_count = 1 << bits
    level_count = weights.shape[1]
    capacity = 1 << (32 - bits)
    for row_index in range(weights.shape[0]):
        for cell in range(cell_count):
            cells[row_index, cell] = cell
        light = -1
        heavy = _next_heavy(weights, row_index, 0, capacity)
        heavy_units = weights[row_index, heavy] if heavy < level_count else 0
        while heavy < level_count:
            if heavy_units > capacity:
                light += 1
                while light < level_count and weights[row_index, light] > capacity:
                    light += 1
                threshold = weights[row_index, light] if light < level_count else 0
                if threshold < capacity:
                    cells[row_index, light] = (threshold << bits) | heavy
                    heavy_units -= capacity - threshold
            else:
                full_level = heavy
                threshold = heavy_units
                heavy = _next_heavy(weights, row_index, heavy + 1, capacity)
                heavy_units = weights[row_index, heavy] if heavy < level_count else 0
                if threshold < capacity:
                    cells[row_index, full_level] = (threshold << bits) | heavy
                    heavy_units -= capacity - threshold


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

MOST_SEGMENTS = 2**16
"""Largest number of even segments: keeps the rounding of positions below EVEN."""

MAX_CELLS = 2**31
"""Of the even way: cells are counted in lanes of 32 bits, one of them a sign."""

SCALE_DIGITS = (0, 1, -1, 2, -2, 4, -4)
"""Last-digit changes of a scale that are tried to put inputs beside a jump on its right side."""


Kernel: TypeAlias = Callable[..., ClipCounts]
"""A loop over inputs, words and codes, such as `draw_uniform`."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup:
    """One of the kernels above and what it takes after (x, words, codes), for one mechanism."""

    kernel: Kernel
    arguments: tuple[Any, ...]
    code_dtype: np.dtype[np.unsignedinteger]

    def draw(
        self,
        x: Floats,
        words: Words,
        codes: Codes,
    ) -> ClipCounts:
        """Overwrites `codes`; returns how many inputs lay below, above, and were NaN. All arrays
        1-D, contiguous.
        """
        return self.kernel(x, words, codes, *self.arguments)


_Way: TypeAlias = tuple[Kernel, tuple[object, ...]]
"""A kernel, and what it takes between `upper` and `cells`."""


@lru_cache(maxsize=32)
def compile_lookup(
    table: Table,
    dtype: np.dtype[np.floating],
) -> Lookup:
    """The tables to draw from `table` for inputs of type float32 or float64; the 32 used last are
    kept.
    """
    # A jump has no width: no input falls into it.
    starting_rows = np.flatnonzero(np.diff(table.knots) > 0)
    segment_edges = np.append(table.knots[starting_rows], table.upper)
    row_cells = alias_cells(table.weights, table.bits)
    left_cells = row_cells[starting_rows]
    right_cells = row_cells[starting_rows + 1]
    segment_pairs = np.stack([left_cells, right_cells], axis=1)
    end_pair = row_cells[-1:, None, :].repeat(2, axis=1)
    flat_cells = np.concatenate([segment_pairs, end_pair]).reshape(-1)
    jumps = np.flatnonzero(np.diff(starting_rows) > 1) + 1
    way = None
    if flat_cells.size <= MAX_CELLS:
        way = _uniform(segment_edges, jumps, dtype)
    kernel, arguments = way or _bucketed(segment_edges) or _searched(segment_edges)
    code_type = np.uint8 if table.levels.size <= 256 else np.uint16
    return Lookup(
        kernel=kernel,
        arguments=(table.lower, table.upper, *arguments, flat_cells, table.bits),
        code_dtype=np.dtype(code_type),
    )


# Evenly spaced knots: x lies in segment floor(p), p = (x - lower) * scale. What floats make of p
# must be right where it matters. (1) t: the knots' own unevenness and the rounding of p (S * 2^-52)
# are far below the unit 2^-32. (2) At a knot without a jump, p on the wrong side of the whole
# number gives t = 1 in one segment instead of 0 in the next: the same row. (3) At a jump those are
# two rows: there, the smallest input of this type from the knot on must land in its segment and the
# largest below it must not. A last-digit change of `scale` often helps.
def _uniform(
    edges: FloatArray,
    jumps: IndexArray,
    dtype: np.dtype[np.floating],
) -> _Way | None:
    segment_count = edges.size - 1
    segments_per_unit = segment_count / float(edges[-1] - edges[0])
    if segment_count > MOST_SEGMENTS or not math.isfinite(FIXED * segments_per_unit):
        return None
    positions = (edges - edges[0]) * segments_per_unit
    unevenness = positions - np.arange(segment_count + 1)
    largest_inside = np.abs(unevenness[1:-1]).max(initial=0.0)
    if largest_inside > EVEN or unevenness[-1] > EVEN:
        return None
    scale = _scale_at_jumps(edges, jumps, dtype, segments_per_unit)
    if scale is None:
        return None
    return draw_uniform, (scale,)


def _scale_at_jumps(
    edges: FloatArray,
    jumps: IndexArray,
    dtype: np.dtype[np.floating],
    segments_per_unit: float,
) -> float | None:
    """FIXED parts per data unit that put the inputs beside every jump on its right side; None if
    none does.
    """
    lower = edges[0]
    knots = edges[jumps]
    first_inside = knots.astype(dtype)
    next_float = np.nextafter(first_inside, dtype.type(np.inf))
    first_inside = np.where(first_inside < knots, next_float, first_inside)
    last_outside = np.nextafter(first_inside, dtype.type(-np.inf)).astype(np.float64)
    first_inside = first_inside.astype(np.float64)
    positions = jumps * FIXED
    for digits in SCALE_DIGITS:
        scale = FIXED * segments_per_unit * (1 + digits * 2.0**-52)
        lands_inside = (first_inside - lower) * scale >= positions
        stays_outside = (last_outside - lower) * scale < positions
        if (lands_inside & stays_outside).all():
            return float(scale)
    return None


# Even buckets: bucket(x) = floor((x - lower) * scale) is monotone in x as floats compute it, and
# knots are put into buckets by the same expression. So a knot in an earlier bucket lies below x and
# one in a later bucket above x: only one in x's own bucket needs a compare. Buckets are doubled
# until none holds two knots.
def _bucketed(edges: FloatArray) -> _Way | None:
    starts = edges[:-1]
    bucket_count = 1
    while bucket_count <= MAX_BUCKETS:
        scale = bucket_count / float(edges[-1] - edges[0])
        # upper * scale may round to `count`, hence one bucket more.
        buckets = ((starts - edges[0]) * scale).astype(np.int64)
        inner_buckets = buckets[1:]
        if np.unique(inner_buckets).size == inner_buckets.size:
            all_buckets = np.arange(bucket_count + 1)
            last_segment = np.searchsorted(buckets, all_buckets, side="right") - 1
            first = (last_segment - 1).astype(np.int32)
            slopes = TOTAL / np.diff(edges)
            return draw_bucketed, (scale, first, starts[last_segment], slopes)
        bucket_count *= 2
    return None


def _searched(edges: FloatArray) -> _Way:
    steps = (edges.size - 2).bit_length()
    starts = np.full(1 << steps, np.inf)
    starts[: edges.size - 1] = edges[:-1]
    return draw_searched, (steps, starts, TOTAL / np.diff(edges))
