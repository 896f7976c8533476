"""The draw as two Triton kernels: key and inputs in, codes out, no random word ever in the device's
memory.

The same steps as `core/kernels.py` and `core/gpu.py`, in the same types. Triton must not fuse a
product and a sum of floats into one operation unasked: it would round differently from the CPU.
Hence `OPTIONS`.

Random words are dear, and the leading bits of a word nearly always settle a draw. So a word is put
together of two streams (`gpu.draw` says how): 32 bits of the first give the leading bits of both
halves, the second the others. The first kernel, which draws, makes the first stream only; where
leading bits equal those of a threshold it leaves the draw open and notes the block. The second
kernel, which settles, draws such blocks anew from whole words. The codes are those of the whole
words, bit for bit (docs/proofs/sampling.md, S6).

The leading word is compared as it is, because its fields lie where tables have theirs:

    [first bits of the unit | first bits of the high half, inverted | cell]

`min(word, entry)` then ends in the level: it is the word, which ends in the cell, where the unit is
below the cell's threshold, else the entry, which ends in the other level. What lies behind the unit
in either cannot decide a draw whose leading bits differ.

A tile is what 32 threads draw at a time, 16 elements each, four times four that lie side by side:
so every load and store is of adjacent memory, and a thread's block of 16 words is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    # `gpu.Tables`: that file imports this one.
    Tables: TypeAlias = Any
    # Triton carries no types, and it is there only where torch has it for its devices.
    triton: Any = ...
    tl: Any = ...
    constexpr: TypeAlias = Any
    tensor: TypeAlias = Any
    as_constant: Any = ...
    float32: Any = ...
    float64: Any = ...
    int32: Any = ...
    int64: Any = ...
    uint32: Any = ...
    uint64: Any = ...
else:
    import triton
    import triton.language as tl
    from triton.language import (
        constexpr,
        float32,
        float64,
        int32,
        int64,
        tensor,
        uint32,
        uint64,
    )

    as_constant = constexpr

LANES: Any = as_constant(32)
"""Threads of a warp, each with a ChaCha block of its own. Equal to `gpu.LANES`."""

TILE: Any = as_constant(512)
"""Elements of a tile: 16 words of every lane. Equal to `gpu.TILE`."""

PROGRAMS = 16384
"""At most this many programs are started; each goes on until no tile is left."""

SETTLING_PROGRAMS = 1056
"""As `PROGRAMS`, of the second kernel: eight for each multiprocessor of an H100."""

SPAN_TILES = 1 << 18
"""Tiles whose open blocks are noted before they are settled: 2^27 elements, 32 MiB of numbers."""

DOUBLE_ROUNDS = 10
"""Of ChaCha20. Equal to `gpu.DOUBLE_ROUNDS`."""

DRAW_DOUBLE_ROUNDS = 6
"""Of ChaCha12, for draws. Equal to `gpu.DRAW_DOUBLE_ROUNDS`."""

ALIGNMENT = 16
"""Bytes. Triton compiles for tensors that begin at multiples of it, or do not."""

OPTIONS: dict[str, Any] = {"enable_fp_fusion": False, "num_warps": 1}
"""How the kernels are compiled: a program is one warp."""


@triton.jit
def _bits_of(numbers: tensor) -> tensor:
    """The bits of numbers of 32 bits, as uint32."""
    return numbers.to(uint32, bitcast=True)


@triton.jit
def _rotate(x: tensor, count: constexpr) -> tensor:
    upper = x << count
    lower = x >> (32 - count)
    return upper | lower


@triton.jit
def _quarter(a: tensor, b: tensor, c: tensor, d: tensor) -> tensor:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _round(state: tensor, shift: constexpr) -> tensor:
    """A round over the columns of the state's 4 rows of 4 words (shift 0), or its diagonals (1)."""
    quarters = ()
    for i in tl.static_range(4):
        a = state[i]
        b = state[4 + (i + shift) % 4]
        c = state[8 + (i + 2 * shift) % 4]
        d = state[12 + (i + 3 * shift) % 4]
        quarter = _quarter(a, b, c, d)
        quarters = quarters + (quarter,)  # noqa: RUF005 (Triton knows no stars)
    words = ()
    for row in tl.static_range(4):
        for i in tl.static_range(4):
            quarter = quarters[(i - row * shift) % 4]
            words = words + (quarter[row],)  # noqa: RUF005
    return words


@triton.jit
def _load(numbers: tensor, first: constexpr, stop: constexpr) -> tensor:
    loaded = ()
    for index in tl.static_range(first, stop):
        number = tl.load(numbers + index)
        loaded = loaded + (number,)  # noqa: RUF005
    return loaded


@triton.jit
def _load_bits(numbers: tensor, first: constexpr, stop: constexpr) -> tensor:
    """The bits of numbers of 32 bits, as uint32."""
    words = ()
    for index in tl.static_range(first, stop):
        word = _bits_of(tl.load(numbers + index))
        words = words + (word,)  # noqa: RUF005
    return words


@triton.jit
def _halves(numbers: tensor) -> tensor:
    """The low and the high half, uint32, of numbers of 64 bits."""
    low = numbers.to(uint32)
    high = (numbers >> 32).to(uint32)
    return low, high


@triton.jit
def _words(
    key_words: tensor,
    low: tensor,
    high: tensor,
    nonce: constexpr,
    double_rounds: constexpr,
) -> tensor:
    """The 16 words, (lanes,) uint32 each, of the ChaCha blocks of these numbers: (lanes,) uint32,
    their low and high half (RFC 8439, 2.3).
    """
    zero = tl.zeros([LANES], uint32)
    # "expand 32-byte k"
    initial = (zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574)
    for index in tl.static_range(8):
        key_word = zero + key_words[index]
        initial = initial + (key_word,)  # noqa: RUF005
    initial = initial + (low, zero + high, zero + nonce, zero)  # noqa: RUF005
    # The first stands alone: most of its first half is the same for every block.
    state = _round(_round(initial, 0), 1)
    for _double_round in range(double_rounds - 1):
        state = _round(_round(state, 0), 1)
    words = ()
    for index in tl.static_range(16):
        word = state[index] + initial[index]
        words = words + (word,)  # noqa: RUF005
    return words


@triton.jit
def _choose(values: tensor, j: tensor) -> tensor:
    """values[j] of 16, for a j that is known only when it runs."""
    chosen = values[0]
    for position in tl.static_range(1, 16):
        chosen = tl.where(j == position, values[position], chosen)
    return chosen


@triton.jit
def _clip(inputs: tensor, bounds: tensor, exact_ends: constexpr) -> tensor:
    """Inputs as float64, clipped. NaN becomes `lower`: no index leaves its table.

    `bounds` are the ends as inputs have them, the ends, and the scale of `_locate`.
    """
    least, greatest, lower, upper, _scale = bounds
    if exact_ends:
        raised = tl.maximum(inputs, least)
        clipped = tl.minimum(raised, greatest)
        return clipped.to(float64)
    is_inside = inputs >= least
    value = tl.where(is_inside, inputs.to(float64), lower)
    return tl.where(inputs > greatest, upper, value)


@triton.jit
def _locate(
    value: tensor,
    bounds: tensor,
    tables: tensor,
    search: constexpr,
    steps: constexpr,
    rounded: constexpr,
) -> tensor:
    """Segments (int32) and thresholds of clipped inputs (float64); see `core/kernels.py` for each
    way. Even ones may be 1 too small unless `rounded`.
    """
    _least, _greatest, lower, _upper, scale = bounds
    numbers, first, knots, slopes = tables
    if search == "uniform":
        position = (value - lower) * scale
        fixed_point = position.to(int64)
        segment = (fixed_point >> 32).to(int32)
        if rounded:
            # Not carried into the next segment: there may be a jump between.
            twice = (position * 2.0).to(int64)
            threshold = ((twice & 0x1FFFFFFFF) + 1) >> 1
        else:
            threshold = fixed_point.to(uint32)
    elif search == "bucketed":
        half = tl.load(numbers + 3)
        whole_and_half = tl.load(numbers + 4)
        bucket_position = (value - lower) * scale
        bucket = bucket_position.to(int32)
        knot = tl.load(knots + bucket)
        is_right = value >= knot
        segment = tl.load(first + bucket)
        segment += is_right.to(int32)
        segment_slope = tl.load(slopes + segment)
        distance = (value - knot) * segment_slope
        position = distance + tl.where(is_right, half, whole_and_half)
        threshold = position.to(int64)
    else:
        half = tl.load(numbers + 3)
        segment = tl.zeros(value.shape, int32)
        for step in tl.static_range(steps):
            further = segment + (1 << (steps - 1 - step))
            further_knot = tl.load(knots + further)
            segment = tl.where(value >= further_knot, further, segment)
        distance = value - tl.load(knots + segment)
        segment_slope = tl.load(slopes + segment)
        position = distance * segment_slope + half
        threshold = position.to(int64)
    return segment, threshold


@triton.jit
def _entry(cells: tensor, segment: tensor, right: tensor, cell: tensor, bits: constexpr) -> tensor:
    """The alias cell (uint32) of a segment's left or right row."""
    left_start = segment << (bits + 1)
    to_right = tl.where(right, 1 << bits, 0)
    row_start = left_start.to(uint32) | to_right.to(uint32)
    pointers = cells + (row_start | cell)
    return _bits_of(tl.load(pointers))


@triton.jit
def _leading_level(
    inputs: tensor,
    leading: tensor,
    nearest: tensor,
    bounds: tensor,
    tables: tensor,
    cells: tensor,
    search: constexpr,
    steps: constexpr,
    bits: constexpr,
    exact_ends: constexpr,
) -> tensor:
    """A number (uint32) that ends in the level which the leading bits name, and how near they, or
    those before (`nearest`), come to a threshold.
    """
    level_mask: constexpr = (1 << bits) - 1
    high_bits: constexpr = (32 - bits) // 2
    unit_bits: constexpr = 32 - bits - high_bits
    value = _clip(inputs, bounds, exact_ends)
    segment, threshold = _locate(value, bounds, tables, search, steps, False)
    inverted = leading << unit_bits
    high_half = (~inverted).to(threshold.dtype)
    row_distance = high_half ^ threshold
    if threshold.dtype != uint32:
        # A threshold of 2^32 lies beyond every word.
        row_distance = tl.minimum(row_distance, 0xFFFFFFFF)
        row_distance = row_distance.to(uint32)
    picks_right = high_half < threshold
    cell = leading & level_mask
    entry = _entry(cells, segment, picks_right, cell, bits)
    level_distance = leading ^ entry
    distance = tl.minimum(row_distance, level_distance)
    nearest = tl.minimum(nearest, distance)
    return tl.minimum(leading, entry), nearest


@triton.jit
def _share(inputs: tensor, slope: tensor, intercept: tensor, ptx: constexpr) -> tensor:
    """How far inputs lie between the ends, 0 to 1; NaN counts as 0."""
    if ptx:
        return tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, $2, $3;",
            "=f,f,f,f",
            [inputs, slope, intercept],
            dtype=float32,
            is_pure=True,
            pack=1,
        )
    share = inputs * slope + intercept
    share = tl.maximum(share, 0.0)
    return tl.minimum(share, 1.0)


@triton.jit
def _entries(cells: tensor, index: tensor, entry_size: tensor, ptx: constexpr) -> tensor:
    """cells[index]. The unit that multiplies finds the address: the one that adds is busy."""
    if ptx:
        offset = tl.inline_asm_elementwise(
            "mul.wide.u32 $0, $1, $2;",
            "=l,r,r",
            [index, entry_size],
            dtype=int64,
            is_pure=True,
            pack=1,
        )
        bytes_of_cells = tl.pointer_type(tl.int8)
        first_byte = cells.to(bytes_of_cells)
        entry_byte = first_byte + offset
        pointer = entry_byte.to(cells.dtype)
    else:
        pointer = cells + index
    return _bits_of(tl.load(pointer))


@triton.jit
def _even_level(
    inputs: tensor,
    leading: tensor,
    nearest: tensor,
    line: tensor,
    cells: tensor,
    bits: constexpr,
    ptx: constexpr,
) -> tensor:
    """As `_leading_level`, in float32, between even knots without jumps (`gpu.Line`)."""
    level_mask: constexpr = (1 << bits) - 1
    row_mask: constexpr = 0xFFFFFFFF - level_mask
    high_bits: constexpr = (32 - bits) // 2
    fraction_mask: constexpr = ((1 << high_bits) - 1) << bits
    slope, intercept, stretch, row_scale, row_start, room, edge, weight, entry_size = line
    # The number of the row is rounded at random: what the high half's bits carry into it.
    fraction_bits = (leading & fraction_mask) | room
    fraction = fraction_bits.to(float32, bitcast=True)
    share = _share(inputs, slope, intercept, ptx)
    position = tl.fma(share, stretch, fraction)
    row = _bits_of(tl.fma(position, row_scale, row_start))
    cell = leading & level_mask
    index = (row & row_mask) | cell
    entry = _entries(cells, index, entry_size, ptx)
    # edge - (position << (32 - r - b)): small from the margin above a row's start down to the
    # margin and the bits that do not lead, before it.
    from_edge = _bits_of(position) * weight + edge
    nearest = tl.minimum(nearest, entry - leading)
    nearest = tl.minimum(nearest, from_edge)
    return tl.minimum(leading, entry), nearest


@triton.jit
def _whole_level(
    inputs: tensor,
    leading: tensor,
    trailing: tensor,
    bounds: tensor,
    tables: tensor,
    cells: tensor,
    search: constexpr,
    steps: constexpr,
    bits: constexpr,
    exact_ends: constexpr,
) -> tensor:
    """The level that the whole word names, as in `core/kernels.py`."""
    high_bits: constexpr = (32 - bits) // 2
    unit_bits: constexpr = 32 - bits - high_bits
    level_mask: constexpr = (1 << bits) - 1
    unit_mask: constexpr = (1 << high_bits) - 1
    value = _clip(inputs, bounds, exact_ends)
    segment, threshold = _locate(value, bounds, tables, search, steps, True)
    trailing_bits = 32 - high_bits
    leading_part = leading << unit_bits >> trailing_bits << trailing_bits
    trailing_part = trailing >> high_bits
    high_half = ~(leading_part | trailing_part)
    cell = leading & level_mask
    unit_start = leading >> (32 - unit_bits) << high_bits
    unit = unit_start | (trailing & unit_mask)
    picks_right = high_half.to(int64) < threshold
    entry = _entry(cells, segment, picks_right, cell, bits)
    picks_cell = unit < (entry >> bits)
    other_level = entry & level_mask
    return tl.where(picks_cell, cell, other_level)


@triton.jit
def _load_four(pointers: tensor) -> tensor:
    """Four neighbours, (lanes,) each, of (lanes, 4)."""
    neighbours = tl.load(pointers)
    pairs = tl.reshape(neighbours, [LANES, 2, 2])
    even, odd = tl.split(pairs)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _load_block(tile: tensor, lanes: tensor) -> tensor:
    """The 16 inputs, (lanes,) each, of every lane of a tile: four times four neighbours."""
    lane_starts = lanes[:, None] * 4
    neighbours = tl.arange(0, 4)
    pointers = tile + (lane_starts + neighbours[None, :])
    first_groups = _load_four(pointers) + _load_four(pointers + 128)
    last_groups = _load_four(pointers + 256) + _load_four(pointers + 384)
    return first_groups + last_groups


@triton.jit
def _nan_counts(inputs: tensor) -> tensor:
    """How many of the 16 inputs of every lane are NaN."""
    nans = tl.zeros([LANES], int32)
    for element in tl.static_range(16):
        value = inputs[element]
        is_nan = value != value
        nans += is_nan.to(int32)
    return nans


@triton.jit
def _store_four(pointers: tensor, levels: tensor, bits: constexpr) -> None:
    """Stores four neighbours, the levels that these numbers, (lanes,) uint32 each, end in."""
    first, second, third, fourth = levels
    level_mask: constexpr = (1 << bits) - 1
    pair_mask: constexpr = level_mask * 0x101
    word_mask: constexpr = level_mask * 0x01010101
    code_type = pointers.dtype.element_ty
    if code_type == tl.uint8:
        # In one register: what stands before a level gives way to its neighbour.
        early_pair = (first & level_mask) | (second << 8)
        late_pair = (third & level_mask) | (fourth << 8)
        packed = (early_pair & pair_mask) | (late_pair << 16)
        words = pointers.to(tl.pointer_type(uint32))
        tl.store(words, packed & word_mask)
    else:
        for position in tl.static_range(4):
            level = levels[position] & level_mask
            tl.store(pointers + position, level.to(code_type))


@triton.jit
def _add(counts: tensor, index: constexpr, by_lane: tensor) -> None:
    by_lane = by_lane.to(int64)
    total = tl.sum(by_lane, axis=0)
    tl.atomic_add(counts + index, total)


@triton.jit
def _note(open_blocks: tensor, slots: tensor, block: tensor, is_open: tensor) -> None:
    """Appends the open ones of some blocks, and counts them in the slot that all lanes share."""
    position = tl.atomic_add(slots, 1, mask=is_open)
    tl.store(open_blocks + position, block, mask=is_open)


@triton.jit
def _element_of(
    first_element: tensor,
    number: tensor,
    position: tensor,
    block_count: tensor,
    size: tensor,
) -> tensor:
    """The element that takes word `number` of each block, and whether there is one.

    The first of a block's elements, and the block's position among those to be drawn, are given.
    """
    element = first_element + number // 4 * 128 + number % 4
    is_present = (position < block_count) & (element < size)
    return element, is_present


@triton.jit
def _open_below(edge: tensor, bits: constexpr) -> tensor:
    """A draw is open whose distance to a threshold is below this (`_leading_level`, `_even_level`).

    Its leading bits equal the threshold's, or its position is nearer to a row's start than twice
    the edge; the other summand lets the lower ends of words be compared too.
    """
    trailing_bits: constexpr = 32 - (32 - bits) // 2
    return 2 * edge + (1 << trailing_bits) + (1 << bits)


@triton.jit(do_not_specialize=["first_tile", "tiles", "slot"])
def _draw_kernel(
    x: tensor, key: tensor, codes: tensor, counts: tensor, open_blocks: tensor,
    ends: tensor, numbers: tensor, first: tensor, knots: tensor, slope: tensor, cells: tensor,
    line: tensor, row_cells: tensor, first_tile: tensor, tiles: tensor, slot: tensor,
    search: constexpr, steps: constexpr, bits: constexpr, exact_ends: constexpr,
    on_line: constexpr, ptx: constexpr, double_rounds: constexpr,
) -> None:  # fmt: skip
    """Draws what the leading bits settle in `tiles` whole tiles from `first_tile` on, and notes the
    other blocks, numbered from there: how many in `counts[slot]`.
    """
    least, greatest = _load(ends, 0, 2)
    bounds = (least, greatest) + _load(numbers, 0, 3)  # noqa: RUF005
    tables = (numbers, first, knots, slope)
    terms = _load(line, 0, 5) + _load_bits(line, 5, 9)
    open_below = _open_below(terms[6], bits)
    # A row's first cell is counted from the bits of 2^23, and from 2^b on (`gpu.Line`).
    row_cells -= 0x4B000000 + (1 << bits)
    key_words = _load_bits(key, 0, 8)
    # A span starts at a multiple of 2^18 tiles: no sum of block numbers carries within it.
    span_start = first_tile.to(int64)
    block_low, block_high = _halves(span_start * LANES)
    lanes = tl.arange(0, LANES)
    below = tl.zeros([LANES], float32)
    above = below
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_start = (span_start + tile) * TILE
        # Read before words are made: memory is far.
        inputs = _load_block(x + tile_start, lanes)
        targets = codes + tile_start + lanes * 4
        block = lanes + tile * LANES
        low = block_low + block.to(uint32)
        leading = _words(key_words, low, block_high, 0, double_rounds)
        nearest = tl.full([LANES], 0xFFFFFFFF, uint32)
        mixture = tl.zeros([LANES], x.dtype.element_ty)
        for group in tl.static_range(4):
            levels = ()
            for element in tl.static_range(4 * group, 4 * group + 4):
                value = inputs[element]
                word = leading[element]
                below += tl.where(value < least, 1.0, 0.0)
                above += tl.where(value > greatest, 1.0, 0.0)
                mixture += value
                if on_line:
                    level, nearest = _even_level(value, word, nearest, terms, row_cells, bits, ptx)
                else:
                    level, nearest = _leading_level(
                        value, word, nearest, bounds, tables, cells, search, steps, bits, exact_ends
                    )
                levels = levels + (level,)  # noqa: RUF005
            _store_four(targets + group * 128, levels, bits)
        is_open = nearest < open_below
        # A sum with a NaN is one (one with both infinities too).
        has_nan = mixture != mixture
        is_unusual = (is_open | has_nan).to(int32)
        if tl.max(is_unusual, axis=0) > 0:
            _add(counts, 2, _nan_counts(inputs))
            slots = counts + slot + lanes * 0
            _note(open_blocks, slots, block, is_open)
    _add(counts, 0, below)
    _add(counts, 1, above)


@triton.jit(do_not_specialize=["first_tile", "tiles", "last_blocks", "size", "slot"])
def _settle_kernel(
    x: tensor, key: tensor, codes: tensor, counts: tensor, open_blocks: tensor,
    ends: tensor, numbers: tensor, first: tensor, knots: tensor, slope: tensor, cells: tensor,
    first_tile: tensor, tiles: tensor, last_blocks: tensor, size: tensor, slot: tensor,
    search: constexpr, steps: constexpr, bits: constexpr, exact_ends: constexpr,
    double_rounds: constexpr,
) -> None:  # fmt: skip
    """Draws the blocks that `_draw_kernel` noted, and `last_blocks` after its tiles, of `size`
    elements in all, from whole words.
    """
    least, greatest = _load(ends, 0, 2)
    bounds = (least, greatest) + _load(numbers, 0, 3)  # noqa: RUF005
    tables = (numbers, first, knots, slope)
    key_words = _load_bits(key, 0, 8)
    span_start = first_tile.to(int64)
    lanes = tl.arange(0, LANES)
    noted_count = tl.load(counts + slot).to(int32)
    below = tl.zeros([LANES], int32)
    above = below
    nans = below
    block_count = noted_count + last_blocks
    first_start = tl.program_id(0) * LANES
    stride = tl.num_programs(0) * LANES
    for start in range(first_start, block_count, stride):
        position = lanes + start
        is_noted = position < noted_count
        noted_block = tl.load(open_blocks + position, mask=is_noted, other=0)
        last_block = tiles * LANES + position - noted_count
        span_block = tl.where(is_noted, noted_block, last_block)
        block = span_block + span_start * LANES
        block_low, block_high = _halves(block)
        leading = _words(key_words, block_low, block_high, 0, double_rounds)
        trailing = _words(key_words, block_low, block_high, 1, double_rounds)
        first_element = block // LANES * TILE + block % LANES * 4
        inputs = ()
        for number in tl.static_range(16):
            element, is_present = _element_of(first_element, number, position, block_count, size)
            value = tl.load(x + element, mask=is_present, other=0)
            inputs = inputs + (value,)  # noqa: RUF005
        # One after another: sixteen copies of this would take minutes to compile.
        for number in range(16):
            element, is_present = _element_of(first_element, number, position, block_count, size)
            value = _choose(inputs, number)
            is_counted = is_present & (position >= noted_count)
            is_below = is_counted & (value < least)
            below += is_below.to(int32)
            is_above = is_counted & (value > greatest)
            above += is_above.to(int32)
            is_nan = is_counted & (value != value)
            nans += is_nan.to(int32)
            first_word = _choose(leading, number)
            second_word = _choose(trailing, number)
            level = _whole_level(
                value, first_word, second_word, bounds, tables, cells,
                search, steps, bits, exact_ends,
            )  # fmt: skip
            tl.store(codes + element, level.to(codes.dtype.element_ty), mask=is_present)
    _add(counts, 0, below)
    _add(counts, 1, above)
    _add(counts, 2, nans)


_compiled: dict[tuple[object, ...], Any] = {}
"""Kernels as Triton compiled them, by all that it compiles them for."""


def _start(count: int, arguments: tuple[object, ...], constants: tuple[object, ...]) -> None:
    """Starts `count` programs of `_draw_kernel`.

    Triton finds the compiled kernel anew at each call, which takes some 40 microseconds; all that
    it looks at is in the key here: other tensors are whole and of one type each, and integers are
    below 2^31.
    """
    x, key, codes, *_ = cast("tuple[Tensor, ...]", arguments)
    is_aligned = _is_aligned(x) and _is_aligned(codes)
    description = (key.device, x.dtype, codes.dtype, is_aligned, *constants)
    compiled = _compiled.get(description)
    if compiled is None:  # so it stays where Triton interprets
        kernel = _draw_kernel[(count,)]
        _compiled[description] = kernel(*arguments, *constants, **OPTIONS)
    else:
        kernel = compiled[(count, 1, 1)]
        kernel(*arguments, *constants)


def _is_aligned(numbers: Tensor) -> bool:
    return numbers.data_ptr() % ALIGNMENT == 0


def draw(
    tables: Tables,
    x: Tensor,
    key: Tensor,
    codes: Tensor,
    double_rounds: int = DRAW_DOUBLE_ROUNDS,
) -> Tensor:
    """As `gpu.draw_plainly`, in two kernels. All but x begins where the allocator puts tensors."""
    size = x.numel()
    whole_tiles: int = size // TILE.value
    tile_count = -(-size // TILE.value)
    span_count = -(-tile_count // SPAN_TILES)
    counts = torch.zeros(3 + span_count, dtype=torch.int64, device=x.device)
    span_blocks = min(tile_count, SPAN_TILES) * LANES.value
    open_blocks = torch.empty(span_blocks, dtype=torch.int32, device=x.device)
    common = (
        x,
        key,
        codes,
        counts,
        open_blocks,
        tables.ends,
        tables.numbers,
        tables.first,
        tables.knots,
        tables.slope,
        tables.cells,
    )
    constants = (tables.search, tables.steps, tables.bits, tables.exact_ends)
    has_ptx = x.device.type == "cuda" and torch.version.hip is None
    settling_programs = min(tile_count, SETTLING_PROGRAMS)
    # Triton starts kernels on the current device, which need not be that of x.
    with torch.cuda.device_of(x):
        for slot, first_tile in enumerate(range(0, tile_count, SPAN_TILES), start=3):
            span_tiles = min(tile_count - first_tile, SPAN_TILES)
            full_tiles = min(whole_tiles - first_tile, SPAN_TILES)
            last_blocks = (span_tiles - full_tiles) * LANES.value
            if full_tiles > 0:
                _start(
                    min(full_tiles, PROGRAMS),
                    (*common, tables.line, tables.row_cells, first_tile, full_tiles, slot),
                    (*constants, tables.on_line, has_ptx, double_rounds),
                )
            numbers = (first_tile, full_tiles, last_blocks, size, slot)
            settle = _settle_kernel[(settling_programs,)]
            settle(*common, *numbers, *constants, double_rounds, **OPTIONS)
    return counts[:3]


@triton.jit
def _words_kernel(
    key: tensor,
    words: tensor,
    first: tensor,
    count: tensor,
    double_rounds: constexpr,
) -> None:
    program = tl.program_id(0).to(int64)
    block_number = program * LANES + tl.arange(0, LANES)
    block = first + block_number
    block_low, block_high = _halves(block)
    key_words = _load_bits(key, 0, 8)
    halves = _words(key_words, block_low, block_high, 0, double_rounds)
    for position in tl.static_range(8):
        low_half = halves[2 * position]
        high_half = halves[2 * position + 1]
        word = low_half.to(uint64) | (high_half.to(uint64) << 32)
        word = word.to(int64, bitcast=True)
        index = block_number * 8 + position
        tl.store(words + index, word, mask=index < count)


def draw_words(key: Tensor, first: int, count: int) -> Tensor:
    """As `gpu.draw_words`, in one kernel."""
    words = torch.empty(count, dtype=torch.int64, device=key.device)
    if count > 0:
        program_count = triton.cdiv(count, 8 * LANES.value)
        with torch.cuda.device_of(key):
            fill = _words_kernel[(program_count,)]
            fill(key, words, first, count, double_rounds=DOUBLE_ROUNDS, **OPTIONS)
    return words
