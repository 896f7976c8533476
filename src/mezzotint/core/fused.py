"""The draw as one Triton kernel: key and inputs in, codes out, no random word ever in the device's
memory.

The same steps as `core/kernels.py` and `core/gpu.py`, in the same types. Triton must not fuse a
product and a sum of floats into one operation: it would round differently from the CPU. Hence
`OPTIONS`.

Random words are dear, and the leading bits of a word nearly always settle a draw: h of its high
half say on which side of the row's threshold it lies, and some of its low half which level's cell
it names and on which side of the cell's threshold, unless they equal those of the threshold: a
number whose leading bits are below those of another is below it, whatever follows. So a word is put
together of two streams: 32 bits of the first give the leading bits of both halves; the second,
which is made only where a tile has a draw that is not settled, gives the others. The codes are
those of the whole words, bit for bit.

A tile is what 32 threads draw at a time, 16 elements each, four times four that lie side by side:
so every load and store is of adjacent memory, and a thread's block of 16 words is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

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

DOUBLE_ROUNDS = 10
"""Of ChaCha20."""

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
def _rounds(
    a0: tensor, a1: tensor, a2: tensor, a3: tensor, b0: tensor, b1: tensor, b2: tensor, b3: tensor,
    c0: tensor, c1: tensor, c2: tensor, c3: tensor, d0: tensor, d1: tensor, d2: tensor, d3: tensor,
    double_rounds: constexpr,
) -> tensor:  # fmt: skip
    for _ in range(double_rounds):
        a0, b0, c0, d0 = _quarter(a0, b0, c0, d0)
        a1, b1, c1, d1 = _quarter(a1, b1, c1, d1)
        a2, b2, c2, d2 = _quarter(a2, b2, c2, d2)
        a3, b3, c3, d3 = _quarter(a3, b3, c3, d3)
        a0, b1, c2, d3 = _quarter(a0, b1, c2, d3)
        a1, b2, c3, d0 = _quarter(a1, b2, c3, d0)
        a2, b3, c0, d1 = _quarter(a2, b3, c0, d1)
        a3, b0, c1, d2 = _quarter(a3, b0, c1, d2)
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


@triton.jit
def _key_word(key: tensor, index: constexpr) -> tensor:
    return tl.load(key + index).to(tl.uint32, bitcast=True)


@triton.jit
def _four(first: tensor, second: tensor, third: tensor, fourth: tensor) -> tensor:
    """(lanes, 4) of four (lanes,): what is joined last changes fastest."""
    even, odd = tl.join(first, third), tl.join(second, fourth)
    return tl.reshape(tl.join(even, odd), [LANES, 4])


@triton.jit
def _words(key: tensor, counter: tensor, nonce: constexpr, double_rounds: constexpr) -> tensor:
    """Words 0 to 3, 4 to 7, 8 to 11 and 12 to 15, (lanes, 4) uint32 each, of the ChaCha blocks of
    these numbers, (lanes,) int64.
    """
    zero = tl.zeros([LANES], tl.uint32)
    n0, n1 = zero + 0x61707865, zero + 0x3320646E  # "expand 32-byte k"
    n2, n3 = zero + 0x79622D32, zero + 0x6B206574
    k0, k1, k2, k3 = _key_word(key, 0), _key_word(key, 1), _key_word(key, 2), _key_word(key, 3)
    k4, k5, k6, k7 = _key_word(key, 4), _key_word(key, 5), _key_word(key, 6), _key_word(key, 7)
    k0, k1, k2, k3 = zero + k0, zero + k1, zero + k2, zero + k3
    k4, k5, k6, k7 = zero + k4, zero + k5, zero + k6, zero + k7
    t0, t1, t2 = counter.to(tl.uint32), (counter >> 32).to(tl.uint32), zero + nonce
    a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = _rounds(
        n0, n1, n2, n3, k0, k1, k2, k3, k4, k5, k6, k7, t0, t1, t2, zero, double_rounds
    )
    constants = _four(a0 + n0, a1 + n1, a2 + n2, a3 + n3)
    first_key = _four(b0 + k0, b1 + k1, b2 + k2, b3 + k3)
    second_key = _four(c0 + k4, c1 + k5, c2 + k6, c3 + k7)
    counters = _four(d0 + t0, d1 + t1, d2 + t2, d3)
    return constants, first_key, second_key, counters


@triton.jit
def _clip(inputs: tensor, bounds: tensor, exact_ends: constexpr) -> tensor:
    """Inputs as float64, clipped. NaN becomes `lower`: no index leaves its table.

    `bounds` are the ends as inputs have them, the ends, and the scale of `_locate`.
    """
    least, greatest, lower, upper, _ = bounds
    if exact_ends:
        return tl.minimum(tl.maximum(inputs, least), greatest).to(tl.float64)
    value = tl.where(inputs >= least, inputs.to(tl.float64), lower)
    return tl.where(inputs > greatest, upper, value)


@triton.jit
def _locate(
    value: tensor, bounds: tensor, tables: tensor,
    search: constexpr, steps: constexpr, rounded: constexpr,
) -> tensor:  # fmt: skip
    """Segments (int32) and thresholds of clipped inputs (float64); see `core/kernels.py` for each
    way. Even ones may be 1 too small unless `rounded`.
    """
    _, _, lower, _, scale = bounds
    numbers, first, knots, slope = tables
    if search == "uniform":
        position = (value - lower) * scale
        fixed = position.to(tl.int64)
        segment = (fixed >> 32).to(tl.int32)
        if rounded:
            # Not carried into the next segment: there may be a jump between.
            threshold = (((position * 2.0).to(tl.int64) & 0x1FFFFFFFF) + 1) >> 1
        else:
            threshold = fixed.to(tl.uint32)
    elif search == "bucketed":
        half, down = tl.load(numbers + 3), tl.load(numbers + 4)
        bucket = ((value - lower) * scale).to(tl.int32)
        knot = tl.load(knots + bucket)
        right = value >= knot
        segment = tl.load(first + bucket) + right.to(tl.int32)
        threshold = (value - knot) * tl.load(slope + segment) + tl.where(right, half, down)
        threshold = threshold.to(tl.int64)
    else:
        half = tl.load(numbers + 3)
        segment = tl.zeros(value.shape, tl.int32)
        for step in tl.static_range(steps):
            further = segment + (1 << (steps - 1 - step))
            segment = tl.where(value >= tl.load(knots + further), further, segment)
        threshold = (value - tl.load(knots + segment)) * tl.load(slope + segment) + half
        threshold = threshold.to(tl.int64)
    return segment, threshold


@triton.jit
def _entry(cells: tensor, segment: tensor, right: tensor, cell: tensor, bits: constexpr) -> tensor:
    """The alias cell (uint32) of a segment's left or right row."""
    row_start = (segment << (bits + 1)).to(tl.uint32) | tl.where(right, 1 << bits, 0).to(tl.uint32)
    return tl.load(cells + (row_start | cell)).to(tl.uint32, bitcast=True)


@triton.jit
def _leading_level(
    inputs: tensor, leading: tensor, bounds: tensor, tables: tensor, cells: tensor,
    search: constexpr, steps: constexpr, bits: constexpr, exact_ends: constexpr,
) -> tensor:  # fmt: skip
    """The level by the leading bits alone, and how near they come to a threshold (uint32): below
    2^(32 - h) they leave it open.
    """
    high_bits: constexpr = (32 - bits) // 2
    ones: constexpr = (1 << bits) - 1
    value = _clip(inputs, bounds, exact_ends)
    segment, threshold = _locate(value, bounds, tables, search, steps, False)
    wide = leading.to(threshold.dtype)
    row_distance = wide ^ threshold
    if threshold.dtype != tl.uint32:
        # A threshold of 2^32 lies beyond every word.
        row_distance = tl.minimum(row_distance, 0xFFFFFFFF).to(tl.uint32)
    cells_and_units = leading >> (32 - high_bits - bits)
    entry = _entry(cells, segment, wide < threshold, cells_and_units & ones, bits)
    unit = leading << (high_bits + bits)
    level = tl.where(unit < entry, cells_and_units, entry) & ones
    return level, tl.minimum(row_distance, unit ^ entry)


@triton.jit
def _whole_level(
    inputs: tensor, leading: tensor, trailing: tensor, bounds: tensor, tables: tensor, cells: tensor,
    search: constexpr, steps: constexpr, bits: constexpr, exact_ends: constexpr,
) -> tensor:  # fmt: skip
    """The level that the whole word names, as in `core/kernels.py`."""
    high_bits: constexpr = (32 - bits) // 2
    ones: constexpr = (1 << bits) - 1
    value = _clip(inputs, bounds, exact_ends)
    segment, threshold = _locate(value, bounds, tables, search, steps, True)
    high = (leading >> (32 - high_bits) << (32 - high_bits)) | (trailing >> high_bits)
    low = (leading << high_bits) | (trailing & ((1 << high_bits) - 1))
    cell = low >> (32 - bits)
    entry = _entry(cells, segment, high.to(tl.int64) < threshold, cell, bits)
    return tl.where(((low << bits) | ones) < entry, cell, entry & ones)


@triton.jit
def _load(x: tensor, index: tensor, size: tensor, missing: tensor, partial: constexpr) -> tensor:
    if partial:
        return tl.where(index < size, tl.load(x + index, mask=index < size, other=0), missing)
    return tl.load(x + index)


@triton.jit
def _load_tile(
    x: tensor, start: tensor, size: tensor, missing: tensor, partial: constexpr,
) -> tensor:  # fmt: skip
    return (
        _load(x, start, size, missing, partial),
        _load(x, start + 128, size, missing, partial),
        _load(x, start + 256, size, missing, partial),
        _load(x, start + 384, size, missing, partial),
    )


@triton.jit
def _store_tile(
    codes: tensor, start: tensor, levels: tensor, size: tensor, partial: constexpr,
) -> None:  # fmt: skip
    for group in tl.static_range(4):
        index = start + group * 128
        code = levels[group].to(codes.dtype.element_ty)
        if partial:
            tl.store(codes + index, code, mask=index < size)
        else:
            tl.store(codes + index, code)


@triton.jit
def _leading_levels(
    inputs: tensor, leading: tensor, bounds: tensor, tables: tensor, cells: tensor,
    search: constexpr, steps: constexpr, bits: constexpr, exact_ends: constexpr,
) -> tensor:  # fmt: skip
    """The levels of a tile by the leading bits alone, and how near any comes to a threshold."""
    level_0, near_0 = _leading_level(
        inputs[0], leading[0], bounds, tables, cells, search, steps, bits, exact_ends
    )
    level_1, near_1 = _leading_level(
        inputs[1], leading[1], bounds, tables, cells, search, steps, bits, exact_ends
    )
    level_2, near_2 = _leading_level(
        inputs[2], leading[2], bounds, tables, cells, search, steps, bits, exact_ends
    )
    level_3, near_3 = _leading_level(
        inputs[3], leading[3], bounds, tables, cells, search, steps, bits, exact_ends
    )
    nearest = tl.minimum(tl.minimum(near_0, near_1), tl.minimum(near_2, near_3))
    return (level_0, level_1, level_2, level_3), tl.min(tl.min(nearest, axis=1), axis=0)


@triton.jit
def _whole_levels(
    inputs: tensor, leading: tensor, trailing: tensor, bounds: tensor, tables: tensor, cells: tensor,
    search: constexpr, steps: constexpr, bits: constexpr, exact_ends: constexpr,
) -> tensor:  # fmt: skip
    """The levels of a tile by the whole words."""
    return (
        _whole_level(
            inputs[0], leading[0], trailing[0], bounds, tables, cells, search, steps, bits, exact_ends
        ),
        _whole_level(
            inputs[1], leading[1], trailing[1], bounds, tables, cells, search, steps, bits, exact_ends
        ),
        _whole_level(
            inputs[2], leading[2], trailing[2], bounds, tables, cells, search, steps, bits, exact_ends
        ),
        _whole_level(
            inputs[3], leading[3], trailing[3], bounds, tables, cells, search, steps, bits, exact_ends
        ),
    )  # fmt: skip


@triton.jit
def _add(counts: tensor, index: constexpr, by_thread: tensor) -> None:
    tl.atomic_add(counts + index, tl.sum(tl.sum(by_thread.to(tl.int64), axis=1), axis=0))


@triton.jit
def _kernel(
    x: tensor, key: tensor, codes: tensor, counts: tensor,
    ends: tensor, numbers: tensor, first: tensor, knots: tensor, slope: tensor, cells: tensor,
    first_tile: tensor, tiles: tensor, size: tensor,
    search: constexpr, steps: constexpr, bits: constexpr, exact_ends: constexpr, partial: constexpr,
    double_rounds: constexpr,
) -> None:  # fmt: skip
    """Tiles from `first_tile` to `tiles`; `partial` when the elements end within the last one."""
    least, greatest = tl.load(ends), tl.load(ends + 1)
    bounds = (least, greatest, tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2))
    tables = (numbers, first, knots, slope)
    open_below: constexpr = 1 << (32 - (32 - bits) // 2)
    below = tl.zeros([LANES, 4], tl.int32)
    above, nans = below, below
    lane = tl.arange(0, LANES)[:, None] * 4 + tl.arange(0, 4)[None, :]
    for tile in range(first_tile + tl.program_id(0), tiles, tl.num_programs(0)):
        # Numbers of elements may need more than 32 bits. (The interpreter's loop counter is not a
        # tensor to convert.)
        start = (tl.zeros([LANES, 4], tl.int64) + tile) * TILE + lane
        # Read before words are made, and written after all is read: memory is far.
        inputs = _load_tile(x, start, size, least, partial)
        counter = (tl.zeros([LANES], tl.int64) + tile) * LANES + tl.arange(0, LANES)
        leading = _words(key, counter, 0, double_rounds)
        for group in tl.static_range(4):
            below += (inputs[group] < least).to(tl.int32)
            above += (inputs[group] > greatest).to(tl.int32)
            nans += (inputs[group] != inputs[group]).to(tl.int32)
        levels, nearest = _leading_levels(
            inputs, leading, bounds, tables, cells, search, steps, bits, exact_ends
        )
        _store_tile(codes, start, levels, size, partial)
        if nearest < open_below:
            trailing = _words(key, counter, 1, double_rounds)
            settled = _whole_levels(
                inputs, leading, trailing, bounds, tables, cells, search, steps, bits, exact_ends
            )
            _store_tile(codes, start, settled, size, partial)
    _add(counts, 0, below)
    _add(counts, 1, above)
    _add(counts, 2, nans)


def draw(
    tables: Tables,
    x: torch.Tensor,
    key: torch.Tensor,
    codes: torch.Tensor,
    double_rounds: int = DOUBLE_ROUNDS,
) -> torch.Tensor:
    """As `gpu.draw_plainly`, in one kernel."""
    counts = torch.zeros(3, dtype=torch.int64, device=x.device)
    size = x.numel()
    full_tiles: int = size // TILE.value
    tiles: int = triton.cdiv(size, TILE.value)
    spans = [(0, full_tiles, False), (full_tiles, tiles, True)]
    # Triton starts kernels on the current device, which need not be that of x.
    with torch.cuda.device_of(x):
        for first_tile, end_tile, partial in spans:
            if first_tile == end_tile:
                continue
            _kernel[(min(end_tile - first_tile, PROGRAMS),)](
                x, key, codes, counts,
                tables.ends, tables.numbers, tables.first, tables.knots, tables.slope, tables.cells,
                first_tile, end_tile, size,
                search=tables.search, steps=tables.steps, bits=tables.bits, exact_ends=tables.exact_ends,
                partial=partial, double_rounds=double_rounds, **OPTIONS,
            )  # fmt: skip
    return counts


@triton.jit
def _words_kernel(
    key: tensor, words: tensor, first: tensor, count: tensor, double_rounds: constexpr,
) -> None:  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    quarters = _words(key, first + number, 0, double_rounds)
    for quarter in tl.static_range(4):
        low, high = tl.split(tl.reshape(quarters[quarter], [LANES, 2, 2]))
        word = low.to(tl.uint64) | (high.to(tl.uint64) << 32)
        index = number[:, None] * 8 + 2 * quarter + tl.arange(0, 2)[None, :]
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
