"""Drawing for tensors on a device, in plain torch: tables once on each, words from a ChaCha
keystream there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, wraps
from importlib.util import find_spec
from math import ceil
from typing import Any, Literal, ParamSpec, TypeVar, cast, final

import numpy as np
import torch
from torch import Tensor

from mezzotint.core.errors import ParameterError
from mezzotint.core.kernels import (
    FIXED,
    THRESHOLD_SCALE,
    Lookup,
    compile_lookup,
    draw_bucketed,
    draw_uniform,
)
from mezzotint.core.table import Table
from mezzotint.core.types import ClipCounts, NumberArray

FloatType = np.dtype[np.floating]

_torch = cast(Any, torch)


def to_device(array: NumberArray, device: torch.device) -> Tensor:
    """A copy of `array` on `device`; torch has no read-only tensors.

    It is queued, not waited for: memory that is not pinned has been read when this returns.
    """
    tensor = _torch.from_numpy(array.copy())
    return tensor.to(device, non_blocking=True)


def to_integers(x: Tensor) -> tuple[int, ...]:
    """The elements of a 1-D integer tensor. Waits for the device."""
    values: list[int] = cast(Any, x).tolist()
    return tuple(values)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """The tables that a draw reads, on one device.

    Arguments:
        search: how the segment of an input is found; as the CPU's kernel for this table and input
            type.
        ends: (2,) of the inputs' type: the least input that is not below `lower`, the largest that
            is not above `upper`.
        exact_ends: whether these are `lower` and `upper` themselves.
        numbers: (5,) float64: lower, upper, scale (0 for "searched"), 1/2, 2**32 + 1/2. The scale
            of "uniform" counts 2**-32 parts of a segment, that of "bucketed" buckets.
        steps: halvings of the search ("searched"), else 0.
        first, knots, slope: "bucketed": `first`, `split`, `slope`; "searched": unused, `start`,
            `slope`; else unused.
        cells: int32 with the bits of the CPU's uint32 alias cells.
        bits: bits of one report.
        code_type: uint8 up to 256 levels, else int32.
        on_line: whether the fused kernel finds rows in float32: `Line`, of which the next two are.
        line: (9,) float32, see `Line`; zeros without one.
        row_cells: int32 with the bits of uint32, see `Line`; one zero without one.
    """

    search: Literal["uniform", "bucketed", "searched"]
    ends: Tensor
    exact_ends: bool
    numbers: Tensor
    steps: int
    first: Tensor
    knots: Tensor
    slope: Tensor
    cells: Tensor
    bits: int
    code_type: torch.dtype
    on_line: bool
    line: Tensor
    row_cells: Tensor


def _ends_of_type(lower: float, upper: float, dtype: FloatType) -> NumberArray:
    """(2,) of `dtype`: the least number from `lower` on, and the largest up to `upper`."""
    infinity = dtype.type(np.inf)
    first = dtype.type(lower)
    last = dtype.type(upper)
    # numpy would round a Python number to `dtype` before it compares.
    if float(first) < lower:
        first = np.nextafter(first, infinity)
    if float(last) > upper:
        last = np.nextafter(last, -infinity)
    return np.array([first, last], dtype=dtype)


_WHOLE = 0xFFFFFFFF
"""The largest word of 32 bits."""

CELL_BYTES = 4
"""Of an alias cell, a word of 32 bits."""


def high_bits(bits: int) -> int:
    """How many leading bits the first stream gives to the high half of a word, for reports of this
    many bits. The rest of its 32 bits go to the low half.
    """
    return (32 - bits) // 2


ROOM = 2**23
"""A float32 from here on, to twice as much, counts in whole numbers, which its last bits are."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """Even knots without jumps, for a first draw in float32.

    With r = `high_bits` and b = `bits`, points are 2**-(r + b) parts of a segment. An input's place
    is a whole number of points: its position, and the r random bits for the row in front of b
    zeros. Its row is the number of whole segments in that, unless it lies so near to a whole
    segment that the bits that follow, or errors of its position, could carry it across.

    Arguments:
        numbers: (9,) float32. slope and intercept: of the input's share of the range. stretch:
            points of the range. Scale and start of a row's first cell, from the place, half a cell
            early: what is rounded to a whole number has then been cut. ROOM. As the bits of
            integers: by how much a place may be off, a point being 2**(32 - r - b); a point,
            negative; 4, the bytes of an entry.
        cells: (knots * 2**b,) uint32: of every knot's row the entry that the leading word is
            compared with. It starts with the first r' = 32 - b - r bits of the cell's threshold,
            rounded up, and ends with the other level.
    """

    numbers: NumberArray
    cells: NumberArray


HALF_DIGIT = Fraction(1, 2**24)
"""The most by which rounding to float32 moves a number, as a part of it."""


Rounded = tuple[np.float32, Fraction]
"""A number as float32, and exactly."""


def _error_of_places(
    mechanism: Table,
    slope: Rounded,
    intercept: Rounded,
    points: int,
) -> Fraction:
    """By how many points an input's position on a `Line` is off at most, against that of the
    kernels in float64.

    Arguments:
        slope, intercept: of the `Line`.
        points: of the whole range.
    """
    farthest = max(abs(mechanism.lower), abs(mechanism.upper))
    largest_input = Fraction(farthest)
    float_slope, exact_slope = slope
    float_intercept, exact_intercept = intercept
    used_slope = Fraction(float(float_slope))
    used_intercept = Fraction(float(float_intercept))
    slope_error = abs(used_slope - exact_slope)
    intercept_error = abs(used_intercept - exact_intercept)
    share_error = largest_input * slope_error + intercept_error
    # A device may round the product as well as the sum. (What is above 1 is cut.)
    share_error += HALF_DIGIT * (largest_input * used_slope + 1)
    is_power_of_two = points & (points - 1) == 0
    product_error = points * HALF_DIGIT
    if is_power_of_two:
        product_error = 0
    # The place is rounded to a whole point; in float64 positions are good to 2 units of 2^-32.
    rounding_error = Fraction(1, 2) + Fraction(2 * points, 2**32)
    return points * share_error + product_error + rounding_error


def _leading_cells(
    flat_cells: NumberArray,
    bits: int,
) -> NumberArray:
    """The entries of a `Line`."""
    level_count = 1 << bits
    row_pairs = flat_cells.reshape(-1, 2, level_count)
    left_rows = row_pairs[:, 0]
    row_cells = left_rows.ravel().astype(np.int64)
    alias = row_cells & (level_count - 1)
    trailing_bits = high_bits(bits)
    whole_thresholds = row_cells >> bits
    thresholds = -(-whole_thresholds >> trailing_bits)  # rounded up
    unit_bits = 32 - bits - trailing_bits
    entries = (thresholds << (32 - unit_bits)) | alias
    # 2^32 has no room, and a word that is as great as this is left open.
    is_largest = thresholds == 1 << unit_bits
    entries = np.where(is_largest, _WHOLE, entries)
    return entries.astype(np.uint32)


def _line_of(mechanism: Table, lookup: Lookup, dtype: FloatType) -> Line | None:
    """None where float32 does not tell rows apart closely enough, or the rows are not alone at
    their knots.
    """
    bits = mechanism.bits
    fraction_bits = high_bits(bits) + bits
    segment_count = mechanism.knots.size - 1
    if lookup.kernel is not draw_uniform or dtype != np.float32 or bits > 8:
        return None
    row_points = (segment_count + 1) << fraction_bits
    spacings = np.diff(mechanism.knots)
    has_jumps = not spacings.all()
    if has_jumps or row_points > ROOM:
        return None
    lower = Fraction(mechanism.lower)
    exact_slope = 1 / (Fraction(mechanism.upper) - lower)
    exact_intercept = -lower * exact_slope
    slope = np.float32(float(exact_slope))
    intercept = np.float32(float(exact_intercept))
    if not (0 < slope < np.inf and np.isfinite(intercept)):
        return None
    points = segment_count << fraction_bits
    rounded_slope = (slope, exact_slope)
    rounded_intercept = (intercept, exact_intercept)
    error = _error_of_places(mechanism, rounded_slope, rounded_intercept, points)
    margin = ceil(error)
    level_count = 1 << bits
    if margin >= level_count:  # a place could reach the row after the last
        return None
    row_scale = 2.0 ** -high_bits(bits)
    row_start = ROOM - ROOM * row_scale + level_count - 0.5
    point = 1 << (32 - fraction_bits)
    floats = np.array([slope, intercept, points, row_scale, row_start, ROOM], dtype=np.float32)
    integers = np.array([margin * point, -point, CELL_BYTES], dtype=np.int32)
    words = np.append(floats.view(np.int32), integers)
    flat_cells = lookup.arguments[-2]
    return Line(
        numbers=words.view(np.float32),
        cells=_leading_cells(flat_cells, bits),
    )


@lru_cache(maxsize=32)
def tables_on(
    mechanism: Table,
    dtype: FloatType,
    device: torch.device,
) -> Tables:
    """The tables for inputs of type float32 or float64; the 32 used last are kept, on their
    devices.
    """
    lookup = compile_lookup(mechanism, dtype)
    lower_end, upper_end, *arguments, cells, bits = lookup.arguments
    first = np.zeros(1, dtype=np.int32)
    knots = slope = np.zeros(1)
    scale = 0.0
    steps = 0
    search: Literal["uniform", "bucketed", "searched"]
    if lookup.kernel is draw_uniform:
        search = "uniform"
        (fixed_scale,) = arguments
        scale = fixed_scale / (FIXED / THRESHOLD_SCALE)
    elif lookup.kernel is draw_bucketed:
        search = "bucketed"
        scale, first, knots, slope = arguments
    else:
        search = "searched"
        steps, knots, slope = arguments
    whole_and_half = THRESHOLD_SCALE + 0.5
    numbers = np.array([lower_end, upper_end, scale, 0.5, whole_and_half])
    ends = _ends_of_type(lower_end, upper_end, dtype)
    line = _line_of(mechanism, lookup, dtype)
    line_numbers: NumberArray = np.zeros(9, dtype=np.float32)
    row_cells: NumberArray = np.zeros(1, dtype=np.uint32)
    if line is not None:
        line_numbers = line.numbers
        row_cells = line.cells
    code_type = torch.int32
    if lookup.code_dtype == np.uint8:
        code_type = torch.uint8
    return Tables(
        search=search,
        ends=to_device(ends, device),
        exact_ends=ends.tolist() == [lower_end, upper_end],
        numbers=to_device(numbers, device),
        steps=int(steps),
        first=to_device(first, device),
        knots=to_device(knots, device),
        slope=to_device(slope, device),
        cells=to_device(cells.view(np.int32), device),
        bits=bits,
        code_type=code_type,
        on_line=line is not None,
        line=to_device(line_numbers, device),
        row_cells=to_device(row_cells.view(np.int32), device),
    )


P = ParamSpec("P")
R = TypeVar("R")

EXACT = {"emulate_precision_casts": True}
"""Of torch's compiler: no product is fused with a sum, which would round differently from the CPU.
"""


@lru_cache(maxsize=1)
def compiler_works() -> bool:
    """Whether torch can compile for a CUDA device here: it does so by Triton."""
    return torch.cuda.is_available() and find_spec("triton") is not None


def compiled_on_devices(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which torch compiles when its first argument is a tensor on a CUDA device.

    Elsewhere, or where the compiler is missing, it runs step by step, with the same result bit for
    bit.
    """

    @lru_cache(maxsize=1)
    def compiled() -> Callable[P, R]:  # torch takes seconds to import its compiler
        return _torch.compile(
            function,
            dynamic=True,
            fullgraph=True,
            options=EXACT,
        )

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        first_tensor: Any = arguments[0]
        on_device = first_tensor.device.type == "cuda"
        if on_device and compiler_works():
            compiled_function = compiled()
            return compiled_function(*arguments, **options)
        return function(*arguments, **options)

    return run


WORDS_PER_BLOCK = 8
"""A ChaCha block is 64 bytes: eight words of 64 bits."""

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k", little-endian

DOUBLE_ROUNDS = 10
"""ChaCha20: ten times a round over the columns and one over the diagonals."""

DRAW_DOUBLE_ROUNDS = 6
"""ChaCha12, of which draws take their words: docs/gpu.md says why, and what is given up."""

_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def key_on(key: bytes, device: torch.device) -> Tensor:
    """The 32 bytes of a key as (8,) int32 on `device`. The caller overwrites it after use."""
    words = np.frombuffer(key, dtype="<i4")
    return to_device(words.astype(np.int32), device)


# torch's unsigned types know few operations. Signed ones add and shift left modulo 2^32 just the
# same; only the shift right drags the sign along, and the mask takes it off.
def _rotate(x: Tensor, count: int) -> Tensor:
    mask = (1 << count) - 1
    return (x << count) | ((x >> (32 - count)) & mask)


def _quarter_round(
    state: list[Tensor],
    indices: tuple[int, int, int, int],
) -> None:
    """Change four entries of the state (RFC 8439, 2.1)."""
    a, b, c, d = indices
    state[a] = state[a] + state[b]
    state[d] = _rotate(state[d] ^ state[a], 16)
    state[c] = state[c] + state[d]
    state[b] = _rotate(state[b] ^ state[c], 12)
    state[a] = state[a] + state[b]
    state[d] = _rotate(state[d] ^ state[a], 8)
    state[c] = state[c] + state[d]
    state[b] = _rotate(state[b] ^ state[c], 7)


def _keystream(
    key: Tensor,
    counters: Tensor,
    nonce: tuple[int, int],
    double_rounds: int,
) -> list[Tensor]:
    """The 16 words of 32 bits of each ChaCha block: a list of int32 tensors like `counters`.

    One tensor for each word, so that a compiler makes one loop over blocks of it.
    """
    zero = torch.zeros_like(counters, dtype=torch.int32)
    initial = [zero + constant for constant in _CONSTANTS]
    initial += [zero + key[index] for index in range(8)]
    high_halves = counters >> 32
    initial += [counters.to(torch.int32), high_halves.to(torch.int32)]
    initial += [zero + word for word in nonce]
    state = list(initial)
    for _double_round in range(double_rounds):
        for indices in _COLUMNS + _DIAGONALS:
            _quarter_round(state, indices)
    pairs = zip(state, initial, strict=True)
    return [final_word + initial_word for final_word, initial_word in pairs]


def halves(
    key: Tensor,
    first: int,
    blocks: int,
    nonce: tuple[int, int] = (0, 0),
    double_rounds: int = DOUBLE_ROUNDS,
) -> Tensor:
    """Consecutive words of the keystream: (8 * blocks, 2) int32, whose bytes in memory are the
    keystream.

    Arguments:
        key: from `key_on`; its device does the work.
        first: number of the first block, 0 to 2**63 - 1: the 64-bit counter of the original
            ChaCha20. (The RFC's
            32-bit counter and first nonce word are its low and high half.)
        nonce: the two words after the counter, below 2**31. Keys are used for one call only, so it
            stays 0.
        double_rounds: half the rounds of ChaCha.

    Source: Bernstein (2008), ChaCha, a variant of Salsa20; RFC 8439, 2.3.
    """
    counters = torch.arange(first, first + blocks, dtype=torch.int64, device=key.device)
    words = _keystream(key, counters, nonce, double_rounds)
    return torch.stack(words, dim=1).reshape(-1, 2)


def draw_words(
    key: Tensor,
    first: int,
    count: int,
) -> Tensor:
    """(count,) int64 words of the keystream, from the first word of block number `first` on; key as
    in `halves`.
    """
    if engine_for(key.device) == "fused":
        from mezzotint.core import fused

        return fused.draw_words(key, first, count)
    block_count = -(-count // WORDS_PER_BLOCK)
    pairs = halves(key, first, block_count)
    words = pairs.contiguous().view(torch.int64)
    return words.flatten()[:count]


CHUNK = 1 << 20
"""Elements at a time: the scratch tensors take some 100 bytes for each of them."""

LANES = 32
"""ChaCha blocks of a tile."""

TILE = 512
"""Elements of a tile: a draw takes 32 bits of each of two streams, a block has 16 times as many."""

_FIXED_MASK = 2 * _WHOLE + 1

Pair = tuple[Tensor, Tensor]
"""Of each input the segment and the threshold of its left row, or the halves of a word."""


def _even(
    tables: Tables,
    value: Tensor,
) -> Pair:
    lower, _upper, scale, _half, _whole_and_half = tables.numbers
    position = (value - lower) * scale
    # Rounded, and not carried into the next segment: there may be a jump between.
    twice = (2 * position).long()
    threshold = ((twice & _FIXED_MASK) + 1) >> 1
    return position.long() >> 32, threshold


def _bucketed(
    tables: Tables,
    value: Tensor,
) -> Pair:
    lower, _upper, scale, half, whole_and_half = tables.numbers
    bucket_position = (value - lower) * scale
    bucket = bucket_position.long()
    knot = tables.knots[bucket]
    is_right = value >= knot
    first_segment = tables.first[bucket].long()
    segment = first_segment + is_right
    base = torch.where(is_right, half, whole_and_half)
    distance = value - knot
    threshold = distance * tables.slope[segment] + base
    return segment, threshold.long()


def _searched(
    tables: Tables,
    value: Tensor,
) -> Pair:
    segment = torch.zeros_like(value, dtype=torch.int64)
    for step in reversed(range(tables.steps)):
        is_beyond = value >= tables.knots[segment + (1 << step)]
        segment = segment + (is_beyond.long() << step)
    half = tables.numbers[3]
    distance = value - tables.knots[segment]
    threshold = distance * tables.slope[segment] + half
    return segment, threshold.long()


_LOCATE = {"uniform": _even, "bucketed": _bucketed, "searched": _searched}


def _level(
    tables: Tables,
    rows: Tensor,
    low: Tensor,
) -> Tensor:
    bits = tables.bits
    alias_mask = (1 << bits) - 1
    cell = low >> (32 - bits)
    index = (rows << bits) | cell
    entry = tables.cells[index].long() & _WHOLE
    cell_unit = ((low << bits) & _WHOLE) | alias_mask
    return torch.where(cell_unit < entry, cell, entry & alias_mask)


def _in_tiles(stream: Tensor) -> Tensor:
    """The 32-bit words of whole tiles' blocks, as int64 in the order of the elements that take
    them: a tile's elements are 4 groups of 4 for each lane, a lane's block their 16 words.
    """
    by_lane = stream.reshape(-1, LANES, 4, 4)
    by_group = by_lane.transpose(1, 2)
    return by_group.reshape(-1).long() & _WHOLE


def _words_of_draws(
    key: Tensor,
    first_tile: int,
    size: int,
    bits: int,
) -> Pair:
    """High and low halves, (size,) int64 each, of the words of consecutive draws from a tile on:
    put together as `draw` says.
    """
    block_count = -(-size // TILE) * LANES
    blocks = (key, first_tile * LANES, block_count)
    leading = _in_tiles(halves(*blocks, (0, 0), DRAW_DOUBLE_ROUNDS))[:size]
    trailing = _in_tiles(halves(*blocks, (1, 0), DRAW_DOUBLE_ROUNDS))[:size]
    share = high_bits(bits)
    share_mask = (1 << share) - 1
    cell_mask = (1 << bits) - 1
    first_bits = (leading >> bits) & share_mask
    inverted = first_bits << (32 - share) | (trailing >> share)
    cell = leading & cell_mask
    first_unit_bits = leading >> (share + bits)
    unit = first_unit_bits << share | (trailing & share_mask)
    return _WHOLE - inverted, (cell << (32 - bits)) | unit


def _draw_chunk(
    tables: Tables,
    x: Tensor,
    words: Pair,
    codes: Tensor,
) -> Tensor:
    """Overwrites `codes`; returns (3,) how many inputs lay below, above, and were NaN, on the
    device.
    """
    lower = tables.numbers[0]
    upper = tables.numbers[1]
    inputs = x.double()
    below_count = (inputs < lower).sum()
    above_count = (inputs > upper).sum()
    nan_count = inputs.isnan().sum()
    clip_counts = torch.stack([below_count, above_count, nan_count])
    # NaN fails the first comparison and becomes `lower`: no index leaves its table.
    clipped = torch.where(inputs >= lower, inputs, lower)
    clipped = torch.where(clipped <= upper, clipped, upper)
    segment, threshold = _LOCATE[tables.search](tables, clipped)
    high, low = words
    chosen_rows = (segment << 1) | (high < threshold)
    codes.copy_(_level(tables, chosen_rows, low))
    return clip_counts


def draw_plainly(
    tables: Tables,
    x: Tensor,
    key: Tensor,
    codes: Tensor,
) -> Tensor:
    """Overwrites `codes` with draws for the 1-D, contiguous x, whose words `draw` describes.

    Returns: (3,) int64 on the device: how many inputs lay below, above, and were NaN.
    """
    clip_counts = torch.zeros(3, dtype=torch.int64, device=x.device)
    for chunk_start in range(0, x.numel(), CHUNK):
        span = slice(chunk_start, chunk_start + CHUNK)
        inputs = x[span]
        first_tile = chunk_start // TILE
        random_words = _words_of_draws(key, first_tile, inputs.numel(), tables.bits)
        clip_counts += _draw_chunk(tables, inputs, random_words, codes[span])
    return clip_counts


Engine = Literal["plain", "fused"]

FUSED_SINCE = (2, 7)
"""From this torch on, the Triton that comes with it (3.3) compiles the kernel."""


FUSED_CELLS = 2**32
"""The fused kernel counts cells in 32 bits; larger tables are drawn from in plain torch."""


def as_floats(x: Tensor) -> Tensor:
    """x as every sampler reads it: floating types of up to 32 bits as float32, all others as
    float64; detached.

    It stays on its device, and in its own memory where nothing needs casting.
    """
    if x.is_complex() or x.layout != torch.strided or x.is_quantized:
        remedy = "need a dense tensor of real numbers"
        raise ParameterError("x", f"tensor of {x.dtype}, {x.layout}", remedy)
    is_single = x.is_floating_point() and x.element_size() <= 4
    float_type = torch.float64
    if is_single:
        float_type = torch.float32
    # resolve_neg: `z.conj().imag` is a view of z.imag with a mark to negate it, which raw memory
    # does not show.
    return x.detach().resolve_neg().to(float_type)


def engine_for(device: torch.device) -> Engine:
    """The fused kernel on CUDA devices where a Triton that compiles it is installed, plain torch
    elsewhere.
    """
    major, minor, *_ = torch.__version__.split(".")
    is_recent = (int(major), int(minor)) >= FUSED_SINCE
    compiles = is_recent and find_spec("triton") is not None
    if device.type == "cuda" and compiles:
        return "fused"
    return "plain"


def draw(
    mechanism: Table,
    x: Tensor,
    key: bytes,
    engine: Engine | None = None,
) -> tuple[Tensor, ClipCounts]:
    """One report per element, drawn where x lies.

    Arguments:
        key: 32 bytes, used for this call only. Each element takes 32 bits, little-endian, of the
            same place in two ChaCha streams of this key, counter from 0: A of nonce 0, B of nonce
            1. With b = bits and h = (32 - b) // 2, A is from its first bit on
            32 - b - h bits of the unit, h bits of the high half, b bits of the cell;
            B is 32 - h bits of the high half, then h bits of the unit. The high half of the word of
            64 bits is made of bits of A, then of B, all inverted; its low half is the cell, then
            the unit's bits of A, then of B. Element i in row-major order,
            i = 512 t + 128 g + 4 l + j, takes word 4 g + j of block 32 t + l.
        engine: None for `engine_for` the device; a test names one.

    Returns: codes of the shape of x on its device (uint8 up to 256 levels, else int32), and how
    many inputs lay
        below, above, and were NaN. Fetching these three numbers waits for the device; x and codes
        never leave it.

    Guarantees: the codes are those of `codes_from_words` for the same words, bit for bit; both
    engines agree.

    Edge cases: empty gives empty. With NaN among the inputs the codes mean nothing: the caller must
    not release them.
    """
    values = as_floats(x)
    device = values.device
    flat_values = values.contiguous().reshape(-1)
    input_type = np.dtype(np.float64)
    if values.dtype == torch.float32:
        input_type = np.dtype(np.float32)
    device_tables = tables_on(mechanism, input_type, device)
    codes = torch.empty(
        flat_values.numel(),
        dtype=device_tables.code_type,
        device=device,
    )
    device_key = key_on(key, device)
    chosen_engine = engine or engine_for(device)
    if chosen_engine == "fused" and device_tables.cells.numel() <= FUSED_CELLS:
        from mezzotint.core import fused

        clip_counts = fused.draw(device_tables, flat_values, device_key, codes)
    else:
        clip_counts = draw_plainly(device_tables, flat_values, device_key, codes)
    # Queued after the draw; the allocator would hand the key's memory on as it is.
    device_key.zero_()
    below_count, above_count, nan_count = to_integers(clip_counts)
    return codes.reshape(values.shape), (below_count, above_count, nan_count)


def find(
    mechanism: Table,
    x: Tensor,
    problem: Literal["nan", "outside"],
) -> tuple[int, ...]:
    """Index of the first input, in row-major order, that is NaN or lies outside; there must be
    one.
    """
    inputs = as_floats(x).double()
    if problem == "nan":
        has_problem = inputs.isnan()
    else:
        is_below = inputs < mechanism.lower
        has_problem = is_below | (inputs > mechanism.upper)
    first_index = has_problem.nonzero()[0]
    return to_integers(first_index)
