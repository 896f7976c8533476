"""Clipped gradients, scaled, drawn from a table or rounded to integers, and added in one pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.entropy import BLOCK, Keystream, fast_start, key_from
from mezzotint.core.kernels import (
    Cells,
    alias_cells,
    compile_lookup,
    compiled,
    inlined,
    look_up,
    put,
    take,
)
from mezzotint.core.loss import Codes, Words
from mezzotint.core.mechanism import FloatArray, IntArray, Mechanism, Seed
from mezzotint.core.sampler import in_threads, usable_cores

CHUNK = 1024
"""Coordinates that go through the steps together: what lies between the steps stays in the first-level cache."""

UNIT = 2.0**33
"""Positions are counted in these parts of a segment: one bit more than t has, to round t by."""

PARTS = (1 << 33) - 1
Rows = npt.NDArray[np.float32]
Totals = npt.NDArray[np.signedinteger]

WHOLE = 0xFFFFFFFF

# numba computes with integers in 64 bits; naming the type after each operation makes vectors of 32-bit lanes of it.
U32 = np.uint32
SHIFTS = U32(31)  # amounts known to lie below 32
POSITIVE = U32(0x7FFFFFFF)


@inlined
def _pick_rows(
    x: Rows, start: int, size: int, gain: np.float32, factor: np.float32, words: Words, first: int,
    grid: tuple[float, ...], rows: npt.NDArray[np.uint32], lows: npt.NDArray[np.uint32],
) -> int:  # fmt: skip
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
        below, above = position - UNIT, position - last
        below, above = below if below < 0.0 else 0.0, above if above > 0.0 else 0.0
        fixed = np.int64(position + below * first_stretch + above * last_stretch)
        # Rounded to 2^-32, and not carried into the next segment: there may be a jump between.
        threshold = ((fixed & PARTS) + 1) >> 1
        word = np.int64(take(words, first + i))
        put(rows, i, U32((fixed >> 33 << 1) | (((word >> 32) & WHOLE) < threshold)))
        put(lows, i, U32(word & WHOLE))
    return nans


@inlined
def _pick_levels(
    rows: npt.NDArray[np.uint32], lows: npt.NDArray[np.uint32], size: int, cells: Cells, bits: np.uint32, reports: Codes
) -> None:
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
def _add(
    reports: Codes, start: int, size: int, totals: Totals, column: int, integers: npt.NDArray[np.int32], levels: int
) -> None:
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
    x: Rows, gains: Rows, factors: Rows, begin: int, end: int, words: Words, totals: Totals,
    integers: npt.NDArray[np.int32], levels: int, grid: tuple[float, ...], cells: Cells, bits: np.uint32,
) -> int:  # fmt: skip
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
def form(x: Rows, gains: Rows, factors: Rows, begin: int, out: Rows) -> None:
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
def add_codes(
    codes: Codes, begin: int, width: int, totals: Totals, integers: npt.NDArray[np.int32], levels: int
) -> None:
    """Adds codes drawn for the elements from `begin` on of records of `width`; the rest as in `add_drawn`."""
    at = 0
    while at < codes.size:
        column = (begin + at) % width
        size = min(width - column, codes.size - at)
        _add(codes, at, size, totals, column, integers, levels)
        at += size


EVEN = 2.0**-36
"""Knots count as evenly spaced when none is further off than this part of a segment: 1/16 of the unit of t."""

MAX_STRETCHED = 2**12
"""Largest number of segments times how much the ends are stretched: keeps the rounding of positions below EVEN."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class EvenGrid:
    """An even grid of segments, of which the first and the last may be cut short by the range.

    An input v lies at p = (v - origin) * scale, counted in UNIT parts of a segment, origin one whole segment below the
    second knot. Where an end is cut short, p is stretched so that its segment is whole again:
    p + first_stretch * min(p - UNIT, 0) + last_stretch * max(p - last, 0). Stretching moves no position across a knot.

    Arguments:
        lower, upper: range of inputs.
        origin, scale: see above.
        last: position of the last segment's left end.
        first_stretch, last_stretch: whole over present width of that segment, less 1; >= 0.
        cells: (rows * 2**bits,) alias cells as `alias_cells` makes them, for the left and right row of every segment
            and of one more behind the last, which is the last row twice: where the upper end itself may fall.
        bits: bits of one report.
    """

    lower: float
    upper: float
    origin: float
    scale: float
    last: float
    first_stretch: float
    last_stretch: float
    cells: Cells
    bits: int

    @property
    def arguments(self) -> tuple[tuple[float, ...], Cells, np.uint32]:
        """What the loop takes, in its order."""
        ends = (self.first_stretch, self.last_stretch)
        where = (self.lower, self.upper, self.origin, self.scale, self.last, *ends)
        return where, self.cells, np.uint32(self.bits)  # 32 bits wide, for lanes of 32 bits


def find_grid(mechanism: Mechanism) -> EvenGrid | None:
    """The even grid that the table's knots lie on, for float32 inputs; None if there is none.

    Guarantees: every float32 input falls on the side of a jump on which it lies; t is off by less than its unit 2**-32.
    """
    rows = np.flatnonzero(np.diff(mechanism.knots) > 0)
    knots = mechanism.knots[np.append(rows, mechanism.knots.size - 1)]
    count = rows.size
    widths = np.diff(knots)
    pitch = float(widths.max() if count < 3 else (knots[-2] - knots[1]) / (count - 2))
    first, last = max(0.0, pitch / widths[0] - 1), max(0.0, pitch / widths[-1] - 1) if count > 1 else 0.0
    stretched = 1 + max(first, last)
    if count * stretched > MAX_STRETCHED or not math.isfinite(UNIT / pitch):
        return None
    origin = float(knots[1]) - pitch
    at = (knots - origin) / pitch - np.arange(count + 1)
    # An end may fall short of its place, but not lie beyond it. Stretching magnifies what the others are off by.
    if np.abs(at[1:-1]).max(initial=0.0) * stretched > EVEN or at[0] < -EVEN or at[-1] > EVEN:
        return None
    jumps = np.flatnonzero(np.diff(rows) > 1) + 1
    scale = _scale(origin, pitch, jumps, knots[jumps])
    if scale is None:
        return None
    cells = alias_cells(mechanism.weights, mechanism.bits)
    end = cells[-1:, None, :].repeat(2, axis=1)
    flat = np.concatenate([np.stack([cells[rows], cells[rows + 1]], axis=1), end]).reshape(-1)
    return EvenGrid(
        lower=mechanism.lower, upper=mechanism.upper, origin=origin, scale=scale, last=(count - 1) * UNIT,
        first_stretch=first, last_stretch=last, cells=flat, bits=mechanism.bits,
    )  # fmt: skip


# The side of a jump must be right for each float32 input: the smallest from the knot on, and the largest below it. A
# last-digit change of `scale` often helps where rounding gets it wrong. (At a knot without a jump the wrong side gives
# t = 1 in one segment for t = 0 in the next: the same row.)
def _scale(origin: float, pitch: float, jumps: npt.NDArray[np.intp], knots: FloatArray) -> float | None:
    at = knots.astype(np.float32)
    at = np.where(at < knots, np.nextafter(at, np.float32(np.inf)), at)
    before = np.nextafter(at, np.float32(-np.inf)).astype(np.float64)
    for digits in (0, 1, -1, 2, -2, 4, -4):
        scale = UNIT / pitch * (1 + digits * 2.0**-52)
        if (
            ((at.astype(np.float64) - origin) * scale >= jumps * UNIT) & ((before - origin) * scale < jumps * UNIT)
        ).all():
            return scale
    return None


PART = 1 << 21
"""Elements that one thread works through (some 3 ms); which they are does not depend on how many threads there are."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients:
    """The gradients of n records in one parameter tensor, as outer products.

    A record's gradient is gains[:, None] * rows, flat. Of a dense layer's weight, these are what the layer sends back
    and what it was given; they need not be multiplied out. Any gradients are outer products with a single 1.

    Arguments:
        rows: (n, width) contiguous float32.
        gains: (n, repeat) contiguous float32.
    """

    rows: Rows
    gains: Rows

    @property
    def coordinates(self) -> int:
        """Coordinates of one record's gradient."""
        return self.rows.shape[1] * self.gains.shape[1]


@final
class RecordSums:
    """Draws a code for every coordinate of every record from a table and adds up what the codes stand for.

    Arguments:
        table: the mechanism.
        integers: (m,) integers >= 0, what each level adds; None counts levels instead.
    Guarantees:
        A coordinate's code is the one that its own word of the cryptographic keystream leads to, as in
        `table.privatize`: of the same probabilities, in exact integers.
        Sums are exact. The same seed gives the same sums, whatever the number of threads.
    """

    def __init__(self, table: Mechanism, integers: IntArray | None) -> None:
        self.table = table
        self.levels = table.levels.size if integers is None else 0
        self.largest = 1 if integers is None else int(integers.max())
        plain = integers is None or np.array_equal(integers, np.arange(integers.size))
        self.integers = np.empty(0, dtype=np.int32) if plain else np.asarray(integers, dtype=np.int32)
        self.grid, self.lookup = find_grid(table), compile_lookup(table, np.dtype(np.float32))
        # Lent to a part while it is worked on, then taken back: fresh pages at every step cost more than their use.
        self._memory: list[_Memory] = []

    def __call__(self, gradients: Sequence[Gradients], factors: Rows, rng: Seed = None) -> tuple[IntArray, int]:
        """The sums over the records of their gradients.

        Arguments:
            gradients: the records' gradients of each parameter tensor.
            factors: (n,) float32: a record's coordinates times its factor are in the table's units. What then lies
                outside its range is clipped.
            rng: None (private), a seed or a numpy Generator, as in `Mechanism.privatize`.
        Returns: (D,) int64 sums or (D, m) counts for the D coordinates of all tensors, in order; and the number of
            NaNs: with any, the sums mean nothing.
        Edge cases: no records or no coordinates give zeros.
        """
        key = key_from(rng)
        narrow = np.int32 if len(factors) * self.largest < 2**31 else np.int64
        columns = [0, *itertools.accumulate(gradient.coordinates for gradient in gradients)]
        shape = (columns[-1], max(1, self.levels))

        def work(number: int, part: list[_Piece]) -> tuple[Totals, int]:
            try:
                memory = self._memory.pop()
            except IndexError:
                memory = _Memory(self.lookup.code_dtype)
            stream, totals, nans = Keystream(key, fast_start(number)), np.zeros(shape, dtype=narrow), 0
            for piece in part:
                mine = totals[columns[piece.tensor] : columns[piece.tensor + 1]].reshape(-1)
                nans += self._draw(gradients[piece.tensor], factors, piece, stream, memory, mine)
            self._memory.append(memory)
            return totals, nans

        parts = _parts([len(factors) * gradient.coordinates for gradient in gradients])
        found = in_threads([partial(work, number, part) for number, part in enumerate(parts)], threads=usable_cores())
        sums = np.zeros(shape, dtype=np.int64)
        for totals, _ in found:
            sums += totals
        return sums if self.levels else sums[:, 0], sum(nans for _, nans in found)

    def _draw(
        self, gradients: Gradients, factors: Rows, piece: _Piece, stream: Keystream, memory: _Memory, totals: Totals
    ) -> int:
        """Draws for the elements of a piece, a word each, and adds to the totals; the number of NaNs."""
        given, into, nans = (gradients.rows, gradients.gains, factors), (totals, self.integers, self.levels), 0
        for begin in range(piece.begin, piece.end, BLOCK):
            end = min(begin + BLOCK, piece.end)
            words = memory.words[: end - begin]
            stream.fill(words)
            if self.grid is not None:
                nans += add_drawn(*given, begin, end, words, *into, *self.grid.arguments)
            else:
                inputs, codes = memory.inputs[: words.size], memory.codes[: words.size]
                form(*given, begin, inputs)
                nans += self.lookup.draw(inputs, words, codes)[2]
                add_codes(codes, begin, gradients.coordinates, *into)
        return nans


class _Piece(NamedTuple):
    """Elements begin to end - 1 of all records' gradients of the tensor of a number."""

    tensor: int
    begin: int
    end: int


@final
class _Memory:
    """What a part is worked on with: words, inputs, codes."""

    def __init__(self, code_dtype: np.dtype[np.unsignedinteger]) -> None:
        self.words = np.empty(BLOCK, dtype=np.uint64)
        self.inputs, self.codes = np.empty(BLOCK, dtype=np.float32), np.empty(BLOCK, dtype=code_dtype)


def _parts(sizes: list[int]) -> list[list[_Piece]]:
    """Pieces of at most PART elements, as many to a part as fit; in order."""
    parts: list[list[_Piece]] = []
    room = 0
    for tensor, size in enumerate(sizes):
        for begin in range(0, size, PART):
            piece = _Piece(tensor, begin, min(size, begin + PART))
            if piece.end - begin > room:
                parts.append([])
                room = PART
            parts[-1].append(piece)
            room -= piece.end - begin
    return parts
