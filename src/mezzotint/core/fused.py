"""The draw as one Triton kernel: key and inputs in, codes out, no random word ever in the device's
memory.

The same steps as `core/kernels.py` and `core/gpu.py`, in the same types. Triton must not fuse a
product and a sum of
floats into one operation: it would round differently from the CPU. Hence `options_for`.

ChaCha20 takes more time than all else, and half of a word nearly always settles a draw: 16 leading
bits of its high
half say on which side of the row's threshold it lies, and 16 leading bits of its low half on which
side of the
level's, unless they equal those of the threshold. So a word is put together of two streams: the
first gives both
leading halves; the second, which is made only where a program has a draw that is not settled, gives
the others. The
codes are those of the whole words, bit for bit.
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
else:
    import triton
    import triton.language as tl
    from triton.language import constexpr, tensor

BLOCKS = 32
"""ChaCha blocks that one program makes at a time, one for each of its threads: the fewer, the fewer
draws wait for one
that is not settled."""

PROGRAMS = 16384
"""At most this many programs are started; each goes on until no chunk is left."""

DOUBLE_ROUNDS = 10
"""Of ChaCha20."""

THREADS = 32
"""Of a warp."""


def options_for(blocks: int) -> dict[str, Any]:
    """How a kernel is compiled for so many blocks: a thread for each."""
    return {"enable_fp_fusion": False, "num_warps": max(1, blocks // THREADS)}


@triton.jit
def _rotate(x: tensor, count: constexpr) -> tensor:
    return (x << count) | (x >> (32 - count))


@triton.jit
def _quarter(
    a: tensor,
    b: tensor,
    c: tensor,
    d: tensor,
) -> tensor:
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
def _word(
    key: tensor,
    index: constexpr,
    zero: tensor,
) -> tensor:
    return zero + tl.load(key + index).to(tl.uint32, bitcast=True)


@triton.jit
def _eight(
    w0: tensor, w1: tensor, w2: tensor, w3: tensor, w4: tensor, w5: tensor, w6: tensor, w7: tensor, blocks: constexpr,
) -> tensor:  # fmt: skip
    """(blocks, 8) of eight (blocks,): what is joined last changes fastest."""
    even = tl.join(tl.join(w0, w4), tl.join(w2, w6))
    odd = tl.join(tl.join(w1, w5), tl.join(w3, w7))
    return tl.reshape(tl.join(even, odd), [blocks, 8])


@triton.jit
def _words(
    key: tensor,
    counter: tensor,
    nonce: constexpr,
    blocks: constexpr,
    double_rounds: constexpr,
) -> tensor:
    """Even and odd words, (blocks, 8) uint32 each, of the ChaCha blocks of these numbers (int64)."""
    zero = tl.zeros([blocks], tl.uint32)
    n0, n1 = zero + 0x61707865, zero + 0x3320646E  # "expand 32-byte k"
    n2, n3 = zero + 0x79622D32, zero + 0x6B206574
    k0, k1, k2, k3 = (
        _word(key, 0, zero),
        _word(key, 1, zero),
        _word(key, 2, zero),
        _word(key, 3, zero),
    )
    k4, k5, k6, k7 = (
        _word(key, 4, zero),
        _word(key, 5, zero),
        _word(key, 6, zero),
        _word(key, 7, zero),
    )
    t0, t1, t2 = counter.to(tl.uint32), (counter >> 32).to(tl.uint32), zero + nonce
    a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = _rounds(
        n0, n1, n2, n3, k0, k1, k2, k3, k4, k5, k6, k7, t0, t1, t2, zero, double_rounds
    )
    even = _eight(a0 + n0, a2 + n2, b0 + k0, b2 + k2, c0 + k4, c2 + k6, d0 + t0, d2 + t2, blocks)
    odd = _eight(a1 + n1, a3 + n3, b1 + k1, b3 + k3, c1 + k5, c3 + k7, d1 + t1, d3, blocks)
    return even, odd


@triton.jit
def _stream(
    key: tensor,
    counter: tensor,
    nonce: constexpr,
    blocks: constexpr,
    double_rounds: constexpr,
) -> tensor:
    """(blocks, 16) uint32: the words of these blocks, in order."""
    even, odd = _words(key, counter, nonce, blocks, double_rounds)
    return tl.reshape(tl.join(even, odd), [blocks, 16])


@triton.jit
def _locate(
    value: tensor, numbers: tensor, first: tensor, knots: tensor, slope: tensor, last: tensor,
    search: constexpr, steps: constexpr,
) -> tensor:  # fmt: skip
    """Segments and thresholds (int64) of clipped inputs (float64); see `core/kernels.py` for each
    way.
    """
    lower, scale = tl.load(numbers), tl.load(numbers + 2)
    half, down = tl.load(numbers + 3), tl.load(numbers + 4)
    if search == "uniform":
        position = (value - lower) * scale
        segment = tl.minimum(position.to(tl.int64), last)
        threshold = (position - segment.to(tl.float64)) * 4294967296.0 + half
    elif search == "bucketed":
        bucket = ((value - lower) * scale).to(tl.int64)
        knot = tl.load(knots + bucket)
        right = value >= knot
        segment = tl.load(first + bucket).to(tl.int64) + right.to(tl.int64)
        threshold = (value - knot) * tl.load(slope + segment) + tl.where(right, half, down)
    else:
        segment = tl.zeros(value.shape, tl.int64)
        for step in tl.static_range(steps):
            further = segment + (1 << (steps - 1 - step))
            segment = tl.where(value >= tl.load(knots + further), further, segment)
        threshold = (value - tl.load(knots + segment)) * tl.load(slope + segment) + half
    return segment, threshold.to(tl.int64)


@triton.jit
def _entry(
    cells: tensor,
    row: tensor,
    cell: tensor,
    bits: constexpr,
) -> tensor:
    return tl.load(cells + ((row << bits) | cell.to(tl.int64))).to(tl.uint32, bitcast=True)


@triton.jit
def _level(
    cells: tensor,
    row: tensor,
    low: tensor,
    bits: constexpr,
) -> tensor:
    """The level that the low half of a word names, as in `core/kernels.py`."""
    ones: constexpr = (1 << bits) - 1
    cell = low >> (32 - bits)
    entry = _entry(cells, row, cell, bits)
    return tl.where(((low << bits) | ones) < entry, cell, entry & ones)


@triton.jit
def _leading_level(
    cells: tensor,
    segment: tensor,
    threshold: tensor,
    leading: tensor,
    bits: constexpr,
) -> tensor:
    """The level by the leading halves alone, and whether they leave it open."""
    ones: constexpr = (1 << bits) - 1
    high = (leading >> 16).to(tl.int64)
    turn = threshold >> 16
    row = (segment << 1) | (high < turn).to(tl.int64)
    low = leading & 0xFFFF
    cell = low >> (16 - bits)
    entry = _entry(cells, row, cell, bits)
    # The low half counts the cell's units; those below the entry's threshold are the cell's own
    # level.
    unit = low & ((1 << (16 - bits)) - 1)
    limit = entry >> bits
    open_row = (high == turn) & ((threshold & 0xFFFF) != 0)
    open_level = (unit == (limit >> 16)) & ((limit & 0xFFFF) != 0)
    return tl.where(unit < (limit >> 16), cell, entry & ones), open_row | open_level


@triton.jit
def _count(flags: tensor) -> tensor:
    return tl.sum(flags.to(tl.int32), axis=1)


@triton.jit
def _kernel(
    x: tensor, key: tensor, codes: tensor, counts: tensor,
    numbers: tensor, first: tensor, knots: tensor, slope: tensor, cells: tensor,
    size: tensor, chunks: tensor, last: tensor,
    search: constexpr, steps: constexpr, bits: constexpr, blocks: constexpr, double_rounds: constexpr,
) -> None:  # fmt: skip
    lower, upper = tl.load(numbers), tl.load(numbers + 1)
    below = tl.zeros([blocks], tl.int32)
    above = tl.zeros([blocks], tl.int32)
    nans = tl.zeros([blocks], tl.int32)
    for chunk in range(tl.program_id(0), chunks, tl.num_programs(0)):
        # Numbers of elements may need more than 32 bits. (The interpreter's loop counter is not a
        # tensor to convert.)
        counter = (tl.zeros([blocks], tl.int64) + chunk) * blocks + tl.arange(0, blocks)
        index = counter[:, None] * 16 + tl.arange(0, 16)[None, :]
        inside = index < size
        given = tl.load(x + index, mask=inside, other=0).to(tl.float64)
        below += _count(inside & (given < lower))
        above += _count(inside & (given > upper))
        nans += _count(inside & (given != given))
        # NaN fails the first comparison and becomes `lower`: no index leaves its table.
        value = tl.where(given >= lower, given, lower)
        value = tl.where(value <= upper, value, upper)
        segment, threshold = _locate(value, numbers, first, knots, slope, last, search, steps)
        leading = _stream(key, counter, 0, blocks, double_rounds)
        level, left_open = _leading_level(cells, segment, threshold, leading, bits)
        if tl.sum(_count(inside & left_open), axis=0) > 0:
            trailing = _stream(key, counter, 1, blocks, double_rounds)
            high = ((leading >> 16) << 16) | (trailing >> 16)
            low = (leading << 16) | (trailing & 0xFFFF)
            row = (segment << 1) | (high.to(tl.int64) < threshold).to(tl.int64)
            level = _level(cells, row, low, bits)
        tl.store(codes + index, level.to(codes.dtype.element_ty), mask=inside)
    tl.atomic_add(counts, tl.sum(below.to(tl.int64)))
    tl.atomic_add(counts + 1, tl.sum(above.to(tl.int64)))
    tl.atomic_add(counts + 2, tl.sum(nans.to(tl.int64)))


def draw(
    tables: Tables,
    x: torch.Tensor,
    key: torch.Tensor,
    codes: torch.Tensor,
    blocks: int = BLOCKS,
    double_rounds: int = DOUBLE_ROUNDS,
) -> torch.Tensor:
    """As `gpu.draw_plainly`, in one kernel; `blocks`, a power of 2, changes how work is shared out
    and nothing else.
    """
    counts = torch.zeros(3, dtype=torch.int64, device=x.device)
    chunks = triton.cdiv(x.numel(), 16 * blocks)
    if chunks == 0:
        return counts
    # Triton starts kernels on the current device, which need not be that of x.
    with torch.cuda.device_of(x):
        _kernel[(min(chunks, PROGRAMS),)](
            x, key, codes, counts,
            tables.numbers, tables.first, tables.knots, tables.slope, tables.cells,
            x.numel(), chunks, tables.last,
            search=tables.search, steps=tables.steps, bits=tables.bits, blocks=blocks,
            double_rounds=double_rounds, **options_for(blocks),
        )  # fmt: skip
    return counts


@triton.jit
def _words_kernel(
    key: tensor, words: tensor, first: tensor, count: tensor,
    blocks: constexpr, double_rounds: constexpr,
) -> None:  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * blocks + tl.arange(0, blocks)
    even, odd = _words(key, first + number, 0, blocks, double_rounds)
    index = number[:, None] * 8 + tl.arange(0, 8)[None, :]
    word = even.to(tl.uint64) | (odd.to(tl.uint64) << 32)
    tl.store(words + index, word.to(tl.int64, bitcast=True), mask=index < count)


def draw_words(
    key: torch.Tensor,
    first: int,
    count: int,
    blocks: int = BLOCKS,
) -> torch.Tensor:
    """As `gpu.draw_words`, in one kernel."""
    words = torch.empty(count, dtype=torch.int64, device=key.device)
    if count > 0:
        with torch.cuda.device_of(key):
            _words_kernel[(triton.cdiv(count, 8 * blocks),)](
                key, words, first, count,
                blocks=blocks, double_rounds=DOUBLE_ROUNDS, **options_for(blocks),
            )  # fmt: skip
    return words
