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

if TYPE_CHECKING:
    # `gpu.Tables`: that file imports this one.
    Tables: TypeAlias = Any
    # Triton carries no types, and it is there only where torch has it for its devices.
    triton: Any = ...
    tl: Any = ...
    constexpr: TypeAlias = Any
    tensor: TypeAlias = Any
    as_constant: Any = ...
else:
    import triton
    import triton.language as tl
    from triton.language import constexpr, tensor

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
def _rotate(x: tensor, count: constexpr) -> tensor:
    return (x << count) | (x >> (32 - count))


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
        a, b = state[i], state[4 + (i + shift) % 4]
        c, d = state[8 + (i + 2 * shift) % 4], state[12 + (i + 3 * shift) % 4]
        quarters = quarters + (_quarter(a, b, c, d),)  # noqa: RUF005 (Triton knows no stars)
    words = ()
    for row in tl.static_range(4):
        for i in tl.static_range(4):
            words = words + (quarters[(i - row * shift) % 4][row],)  # noqa: RUF005
    return words


@triton.jit
def _load(numbers: tensor, first: constexpr, stop: constexpr) -> tensor:
    loaded = ()
    for index in tl.static_range(first, stop):
        loaded = loaded + (tl.load(numbers + index),)  # noqa: RUF005
    return loaded


@triton.jit
def _load_bits(numbers: tensor, first: constexpr, stop: constexpr) -> tensor:
    """The bits of numbers of 32 bits, as uint32."""
    words = ()
    for index in tl.static_range(first, stop):
        word = tl.load(numbers + index).to(tl.uint32, bitcast=True)
        words = words + (word,)  # noqa: RUF005
    return words


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
    zero = tl.zeros([LANES], tl.uint32)
    # "expand 32-byte k"
    initial = (zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574)
    for index in tl.static_range(8):
        initial = initial + (zero + key_words[index],)  # noqa: RUF005
    initial = initial + (low, zero + high, zero + nonce, zero)  # noqa: RUF005
    # The first stands alone: most of its first half is the same for every block.
    state = _round(_round(initial, 0), 1)
    for _double_round in range(double_rounds - 1):
        state = _round(_round(state, 0), 1)
    words = ()
    for index in tl.static_range(16):
        words = words + (state[index] + initial[index],)  # noqa: RUF005
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
        return tl.minimum(tl.maximum(inputs, least), greatest).to(tl.float64)
    value = tl.where(inputs >= least, inputs.to(tl.float64), lower)
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
        fixed_point = position.to(tl.int64)
        segment = (fixed_point >> 32).to(tl.int32)
        if rounded:
            # Not carried into the next segment: there may be a jump between.
            twice = (position * 2.0).to(tl.int64)
            threshold = ((twice & 0x1FFFFFFFF) + 1) >> 1
        else:
            threshold = fixed_point.to(tl.uint32)
    elif search == "bucketed":
        half = tl.load(numbers + 3)
        whole_and_half = tl.load(numbers + 4)
        bucket = ((value - lower) * scale).to(tl.int32)
        knot = tl.load(knots + bucket)
        is_right = value >= knot
        segment = tl.load(first + bucket) + is_right.to(tl.int32)
        segment_slope = tl.load(slopes + segment)
        position = (value - knot) * segment_slope + tl.where(is_right, half, whole_and_half)
        threshold = position.to(tl.int64)
    else:
        half = tl.load(numbers + 3)
        segment = tl.zeros(value.shape, tl.int32)
        for step in tl.static_range(steps):
            further = segment + (1 << (steps - 1 - step))
            segment = tl.where(value >= tl.load(knots + further), further, segment)
        distance = value - tl.load(knots + segment)
        position = distance * tl.load(slopes + segment) + half
        threshold = position.to(tl.int64)
    return segment, threshold


@triton.jit
def _entry(cells: tensor, segment: tensor, right: tensor, cell: tensor, bits: constexpr) -> tensor:
    """The alias cell (uint32) of a segment's left or right row."""
    left_start = (segment << (bits + 1)).to(tl.uint32)
    row_start = left_start | tl.where(right, 1 << bits, 0).to(tl.uint32)
    return tl.load(cells + (row_start | cell)).to(tl.uint32, bitcast=True)


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
    unit_bits: constexpr = 32 - bits - (32 - bits) // 2
    value = _clip(inputs, bounds, exact_ends)
    segment, threshold = _locate(value, bounds, tables, search, steps, False)
    high_half = (~(leading << unit_bits)).to(threshold.dtype)
    row_distance = high_half ^ threshold
    if threshold.dtype != tl.uint32:
        # A threshold of 2^32 lies beyond every word.
        row_distance = tl.minimum(row_distance, 0xFFFFFFFF).to(tl.uint32)
    entry = _entry(cells, segment, high_half < threshold, leading & level_mask, bits)
    level_distance = leading ^ entry
    nearest = tl.minimum(nearest, tl.minimum(row_distance, level_distance))
    return tl.minimum(leading, entry), nearest


@triton.jit
def _share(inputs: tensor, slope: tensor, intercept: tensor, ptx: constexpr) -> tensor:
    """How far inputs lie between the ends, 0 to 1; NaN counts as 0."""
    if ptx:
        return tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, $2, $3;",
            "=f,f,f,f",
            [inputs, slope, intercept],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return tl.minimum(tl.maximum(inputs * slope + intercept, 0.0), 1.0)


@triton.jit
def _entries(cells: tensor, index: tensor, entry_size: tensor, ptx: constexpr) -> tensor:
    """cells[index]. The unit that multiplies finds the address: the one that adds is busy."""
    if ptx:
        offset = tl.inline_asm_elementwise(
            "mul.wide.u32 $0, $1, $2;",
            "=l,r,r",
            [index, entry_size],
            dtype=tl.int64,
            is_pure=True,
            pack=1,
        )
        first_byte = cells.to(tl.pointer_type(tl.int8))
        pointer = (first_byte + offset).to(cells.dtype)
    else:
        pointer = cells + index
    return tl.load(pointer).to(tl.uint32, bitcast=True)


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
    fraction = ((leading & fraction_mask) | room).to(tl.float32, bitcast=True)
    share = _share(inputs, slope, intercept, ptx)
    position = tl.fma(share, stretch, fraction)
    row = tl.fma(position, row_scale, row_start).to(tl.uint32, bitcast=True)
    index = (row & row_mask) | (leading & level_mask)
    entry = _entries(cells, index, entry_size, ptx)
    # edge - (position << (32 - r - b)): small from the margin above a row's start down to the
    # margin and the bits that do not lead, before it.
    from_edge = position.to(tl.uint32, bitcast=True) * weight + edge
    nearest = tl.minimum(tl.minimum(nearest, entry - leading), from_edge)
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
    value = _clip(inputs, bounds, exact_ends)
    segment, threshold = _locate(value, bounds, tables, search, steps, True)
    trailing_bits = 32 - high_bits
    leading_part = leading << unit_bits >> trailing_bits << trailing_bits
    high_half = ~(leading_part | (trailing >> high_bits))
    cell = leading & level_mask
    unit_start = leading >> (32 - unit_bits) << high_bits
    unit = unit_start | (trailing & ((1 << high_bits) - 1))
    picks_right = high_half.to(tl.int64) < threshold
    entry = _entry(cells, segment, picks_right, cell, bits)
    return tl.where(unit < (entry >> bits), cell, entry & level_mask)


@triton.jit
def _load_four(pointers: tensor) -> tensor:
    """Four neighbours, (lanes,) each, of (lanes, 4)."""
    pairs = tl.reshape(tl.load(pointers), [LANES, 2, 2])
    even, odd = tl.split(pairs)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _load_block(tile: tensor, lanes: tensor) -> tensor:
    """The 16 inputs, (lanes,) each, of every lane of a tile: four times four neighbours."""
    pointers = tile + (lanes[:, None] * 4 + tl.arange(0, 4)[None, :])
    first_groups = _load_four(pointers) + _load_four(pointers + 128)
    last_groups = _load_four(pointers + 256) + _load_four(pointers + 384)
    return first_groups + last_groups


@triton.jit
def _nan_counts(inputs: tensor) -> tensor:
    """How many of the 16 inputs of every lane are NaN."""
    nans = tl.zeros([LANES], tl.int32)
    for element in tl.static_range(16):
        nans += (inputs[element] != inputs[element]).to(tl.int32)
    return nans


@triton.jit
def _store_four(pointers: tensor, levels: tensor, bits: constexpr) -> None:
    """Stores four neighbours, the levels that these numbers, (lanes,) uint32 each, end in."""
    first, second, third, fourth = levels
    level_mask: constexpr = (1 << bits) - 1
    if pointers.dtype.element_ty == tl.uint8:
        # In one register: what stands before a level gives way to its neighbour.
        early_pair = (first & level_mask) | (second << 8)
        late_pair = (third & level_mask) | (fourth << 8)
        packed = (early_pair & (level_mask * 0x101)) | (late_pair << 16)
        words = pointers.to(tl.pointer_type(tl.uint32))
        tl.store(words, packed & (level_mask * 0x01010101))
    else:
        for position in tl.static_range(4):
            level = levels[position] & level_mask
            tl.store(pointers + position, level.to(pointers.dtype.element_ty))


@triton.jit
def _add(counts: tensor, index: constexpr, by_lane: tensor) -> None:
    total = tl.sum(by_lane.to(tl.int64), axis=0)
    tl.atomic_add(counts + index, total)


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
    bounds = _load(ends, 0, 2) + _load(numbers, 0, 3)
    tables = (numbers, first, knots, slope)
    coefficients = _load(line, 0, 5) + _load_bits(line, 5, 9)
    open_below = _open_below(coefficients[6], bits)
    # A row's first cell is counted from the bits of 2^23, and from 2^b on (`gpu.Line`).
    row_cells -= 0x4B000000 + (1 << bits)
    key_words = _load_bits(key, 0, 8)
    # A span starts at a multiple of 2^18 tiles: no sum of block numbers carries within it.
    span_start = first_tile.to(tl.int64)
    first_block = span_start * LANES
    block_low = first_block.to(tl.uint32)
    block_high = (first_block >> 32).to(tl.uint32)
    lanes = tl.arange(0, LANES)
    below = tl.zeros([LANES], tl.float32)
    above = below
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_start = (span_start + tile) * TILE
        # Read before words are made: memory is far.
        inputs = _load_block(x + tile_start, lanes)
        targets = codes + tile_start + lanes * 4
        block = lanes + tile * LANES
        leading = _words(key_words, block_low + block.to(tl.uint32), block_high, 0, double_rounds)
        nearest = tl.full([LANES], 0xFFFFFFFF, tl.uint32)
        mixture = tl.zeros([LANES], x.dtype.element_ty)
        for group in tl.static_range(4):
            levels = ()
            for element in tl.static_range(4 * group, 4 * group + 4):
                value = inputs[element]
                below += tl.where(value < bounds[0], 1.0, 0.0)
                above += tl.where(value > bounds[1], 1.0, 0.0)
                mixture += value
                if on_line:
                    level, nearest = _even_level(
                        value, leading[element], nearest, coefficients, row_cells, bits, ptx
                    )
                else:
                    level, nearest = _leading_level(
                        value, leading[element], nearest, bounds, tables, cells,
                        search, steps, bits, exact_ends,
                    )  # fmt: skip
                levels = levels + (level,)  # noqa: RUF005
            _store_four(targets + group * 128, levels, bits)
        is_open = nearest < open_below
        # A sum with a NaN is one (one with both infinities too).
        is_unusual = is_open | (mixture != mixture)
        if tl.max(is_unusual.to(tl.int32), axis=0) > 0:
            _add(counts, 2, _nan_counts(inputs))
            position = tl.atomic_add(counts + slot + lanes * 0, 1, mask=is_open)
            tl.store(open_blocks + position, block, mask=is_open)
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
    bounds = _load(ends, 0, 2) + _load(numbers, 0, 3)
    tables = (numbers, first, knots, slope)
    key_words = _load_bits(key, 0, 8)
    span_start = first_tile.to(tl.int64)
    lanes = tl.arange(0, LANES)
    noted_count = tl.load(counts + slot).to(tl.int32)
    below = tl.zeros([LANES], tl.int32)
    above = below
    nans = below
    block_count = noted_count + last_blocks
    for start in range(tl.program_id(0) * LANES, block_count, tl.num_programs(0) * LANES):
        position = lanes + start
        is_noted = position < noted_count
        noted_block = tl.load(open_blocks + position, mask=is_noted, other=0)
        last_block = tiles * LANES + position - noted_count
        block = tl.where(is_noted, noted_block, last_block) + span_start * LANES
        block_low = block.to(tl.uint32)
        block_high = (block >> 32).to(tl.uint32)
        leading = _words(key_words, block_low, block_high, 0, double_rounds)
        trailing = _words(key_words, block_low, block_high, 1, double_rounds)
        first_element = block // LANES * TILE + block % LANES * 4
        inputs = ()
        for number in tl.static_range(16):
            element = first_element + number // 4 * 128 + number % 4
            is_present = (position < block_count) & (element < size)
            value = tl.load(x + element, mask=is_present, other=0)
            inputs = inputs + (value,)  # noqa: RUF005
        # One after another: sixteen copies of this would take minutes to compile.
        for number in range(16):
            element = first_element + number // 4 * 128 + number % 4
            is_present = (position < block_count) & (element < size)
            value = _choose(inputs, number)
            is_counted = is_present & (position >= noted_count)
            below += (is_counted & (value < bounds[0])).to(tl.int32)
            above += (is_counted & (value > bounds[1])).to(tl.int32)
            nans += (is_counted & (value != value)).to(tl.int32)
            level = _whole_level(
                value, _choose(leading, number), _choose(trailing, number), bounds, tables, cells,
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
    x, key, codes, *_ = cast("tuple[torch.Tensor, ...]", arguments)
    is_aligned = x.data_ptr() % ALIGNMENT == 0 and codes.data_ptr() % ALIGNMENT == 0
    description = (key.device, x.dtype, codes.dtype, is_aligned, *constants)
    compiled = _compiled.get(description)
    if compiled is None:  # so it stays where Triton interprets
        _compiled[description] = _draw_kernel[(count,)](*arguments, *constants, **OPTIONS)
    else:
        compiled[(count, 1, 1)](*arguments, *constants)


def draw(
    tables: Tables,
    x: torch.Tensor,
    key: torch.Tensor,
    codes: torch.Tensor,
    double_rounds: int = DRAW_DOUBLE_ROUNDS,
) -> torch.Tensor:
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
            _settle_kernel[(settling_programs,)](
                *common, *numbers, *constants, double_rounds, **OPTIONS
            )
    return counts[:3]


@triton.jit
def _words_kernel(
    key: tensor,
    words: tensor,
    first: tensor,
    count: tensor,
    double_rounds: constexpr,
) -> None:
    program_start = tl.program_id(0).to(tl.int64) * LANES
    block_number = program_start + tl.arange(0, LANES)
    block = first + block_number
    block_low = block.to(tl.uint32)
    block_high = (block >> 32).to(tl.uint32)
    halves = _words(_load_bits(key, 0, 8), block_low, block_high, 0, double_rounds)
    for position in tl.static_range(8):
        low_half = halves[2 * position].to(tl.uint64)
        high_half = halves[2 * position + 1].to(tl.uint64)
        word = low_half | (high_half << 32)
        index = block_number * 8 + position
        tl.store(words + index, word.to(tl.int64, bitcast=True), mask=index < count)


def draw_words(key: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """As `gpu.draw_words`, in one kernel."""
    words = torch.empty(count, dtype=torch.int64, device=key.device)
    if count > 0:
        with torch.cuda.device_of(key):
            _words_kernel[(triton.cdiv(count, 8 * LANES.value),)](
                key, words, first, count, double_rounds=DOUBLE_ROUNDS, **OPTIONS
            )
    return words
