"""Reports from inputs: random words, lookup tables and the kernel put together, in threads when it
pays.

Words come from an AES-256-CTR keystream, keyed by the operating system for every call. Codes become
bytes.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, TypeVar, final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError, as_integer, wrong_kind
from mezzotint.core.table import Table
from mezzotint.core.types import BoolArray, ClipCounts, Codes, Floats, NumberArray, Seed, Words

if TYPE_CHECKING:
    import torch

    from mezzotint.core.kernels import Lookup  # at run time where it is used: numba is heavy


# Random words -------------------------------------------------------------------------------------

KEY_BYTES = 32
WORD_BYTES = 8
WORDS_PER_COUNT = 2
"""An AES block, one count of the counter, holds two words: a range of words must start on an even
index.
"""

GCM_FIRST = 2
"""Low 32 bits of the counter that AES-GCM begins to encrypt with; the other 96 are its nonce. A
range that starts there
comes from GCM: the same counter mode, which libraries run two or three times faster on processors
with wide vectors. Its tag has no use here and is never computed."""

BLOCK = 1 << 18
"""Words drawn at a time (2 MiB): read again while still in a cache, and enough work that threads
seldom meet at the GIL."""

PART = BLOCK
"""Elements that share a range of the keystream."""

_ZEROS = memoryview(bytes(BLOCK * WORD_BYTES))


def fresh_key() -> bytes:
    """A key from the operating system. Drawn per call and kept nowhere, so no fork or thread can
    share one.
    """
    return os.urandom(KEY_BYTES)


def key_from(rng: Seed) -> bytes:
    """The 32 bytes of the keystream key that `rng` stands for.

    Arguments:
        rng: None for a fresh key of the operating system (private); an integer seed >= 0 or a
            `numpy.random.Generator` for a reproducible key, which is NOT private: whoever knows the
            seed knows every word.

    Guarantees:
        None never gives the same key twice; a seed always gives the same key; a Generator is
        advanced by exactly one draw of 32 bytes, whatever the number of inputs.
    """
    if rng is None:
        return fresh_key()
    if isinstance(rng, np.random.Generator):
        return rng.bytes(KEY_BYTES)
    remedy = "give None (private), an integer seed or a numpy Generator"
    seed = as_integer(rng)
    if seed is None:
        raise ParameterError("rng", type(rng).__name__, remedy)
    if seed < 0:
        raise ParameterError("rng", seed, "a seed is an integer >= 0")
    return hashlib.sha256(b"mezzotint seed %d" % seed).digest()


def fast_start(part: int) -> int:
    """Index of the first word of part `part` >= 0 of a key's stream. A part has at most 2**33 - 4
    words, after which the cipher refuses to continue."""
    return ((part << 32) + GCM_FIRST) * WORDS_PER_COUNT


@final
class Keystream:
    """Consecutive 64-bit words of the stream of one key, from a chosen word on.

    Word i is bytes 8 i to 8 i + 7 (little-endian) of AES-256 in counter mode on zeros, counter
    starting at 0.
    So any range can be drawn by itself: threads and blocks share a key without sharing a word.

    Arguments:
        key: 32 bytes.
        start: index of the first word, even and >= 0. `fast_start(k)` makes the fastest streams.
    """

    __slots__ = ("_encryptor",)

    def __init__(self, key: bytes, start: int = 0) -> None:
        count, remainder = divmod(start, WORDS_PER_COUNT)
        if remainder or start < 0:
            raise ParameterError("start", start, "a range of words starts on an even index >= 0")
        nonce, counter = divmod(count, 2**32)
        if counter == GCM_FIRST:
            mode = modes.GCM(nonce.to_bytes(12, "big"))
        else:
            mode = modes.CTR(count.to_bytes(16, "big"))
        cipher = Cipher(algorithms.AES(key), mode)
        self._encryptor = cipher.encryptor()

    def fill(self, words: Words) -> None:
        """Overwrites `words` (contiguous, at most BLOCK) with the next words of the stream.
        Releases the GIL.
        """
        if words.size > BLOCK:
            raise ParameterError("words", words.size, f"at most {BLOCK} words are drawn at a time")
        zeros = _ZEROS[: words.nbytes]
        self._encryptor.update_into(zeros, words.data.cast("B"))


def draw_words(
    key: bytes,
    start: int,
    count: int,
) -> Words:
    """(count,) consecutive words of a key's stream from word `start`, even and >= 0, on."""
    words = np.empty(count, dtype=np.uint64)
    stream = Keystream(key, start)
    for block_start in range(0, count, BLOCK):
        stream.fill(words[block_start : block_start + BLOCK])
    return words


@final
class ElementWords:
    """One word per element of an array or a column, from a chosen element on.

    Element i takes word i % PART of part number i // PART: parts can be drawn by themselves, and
    each is a range that starts where streams are fastest.

    Arguments:
        key: 32 bytes.
        first: index of the first element, >= 0. Multiples of `PART` make the fastest streams.
    """

    __slots__ = ("_key", "_next", "_stream")

    def __init__(self, key: bytes, first: int = 0) -> None:
        if first < 0:
            raise ParameterError("first", first, "elements are counted from 0")
        self._key = key
        self._next = first
        range_number, skipped = divmod(first, PART)
        odd_words = skipped % WORDS_PER_COUNT
        even_start = fast_start(range_number) + skipped - odd_words
        self._stream = Keystream(key, even_start)
        if odd_words:
            unused_word = np.empty(1, dtype=np.uint64)
            self._stream.fill(unused_word)

    def fill(self, words: Words) -> None:
        """Overwrites `words` (contiguous) with the words of the next elements. Releases the GIL."""
        filled = 0
        while filled < words.size:
            range_number, position = divmod(self._next, PART)
            if position == 0:
                self._stream = Keystream(self._key, fast_start(range_number))
            word_count = min(words.size - filled, PART - position)
            self._stream.fill(words[filled : filled + word_count])
            filled += word_count
            self._next += word_count


# Reports ------------------------------------------------------------------------------------------

GPU = ("cuda",)
"""Types of torch devices that draw for themselves. They must compute in float64. (AMD's are called
"cuda" too.)
"""


T = TypeVar("T")

Problem: TypeAlias = Literal["nan", "outside"]

Index = tuple[int, ...]
"""Of an entry of an array; of no dimension, none."""

Find = Callable[[Problem], Index]
"""Index of the first input that is NaN, or that lies outside."""


@final
@dataclass(frozen=True, kw_only=True)
class PrivatizeStats:
    """How many inputs were clipped. These are counts over raw data: they are not private.

    Arguments:
        below: inputs below `lower` (-inf included).
        above: inputs above `upper` (+inf included).
        total: all inputs.
    """

    below: int
    above: int
    total: int


def privatize(
    table: Table,
    x: Any,
    *,
    rng: Seed = None,
    on_out_of_range: Literal["clip", "error"] = "clip",
    threads: int | None = None,
) -> tuple[Any, PrivatizeStats]:
    """`Mechanism.privatize`, the counts of clipped inputs, and at most `threads` threads (None: all
    that may be used).

    Guarantees:
        The probability of each code is a mixture of the two rows beside the input, in exact
        integers (T1, T5). The same seed gives the same codes, whatever the number of threads.
        No two calls, threads or forked processes share a word of the keystream.
        On a GPU the words are ChaCha12's instead of AES-256-CTR's (a seed gives other codes there
        than on the CPU); for the same words the codes are the same. Neither the tensor nor its
        codes leave it.

    Edge cases: empty gives empty; a scalar gives a numpy scalar; -0.0 is 0; +-inf clips; NaN
    raises.
    """
    check_choice("on_out_of_range", on_out_of_range, ("clip", "error"))
    if threads is not None and threads < 1:
        raise ParameterError("threads", threads, "need at least one thread; None uses all")
    if _is_tensor(x) and x.device.type in GPU:
        from mezzotint.core import gpu as device

        codes, clip_counts = device.draw(table, x, key_from(rng))
        stats = _checked_counts(
            table=table,
            total=x.numel(),
            counts=clip_counts,
            on_out_of_range=on_out_of_range,
            find=partial(device.find, table, x),
        )
        return codes, stats
    from mezzotint.core.kernels import compile_lookup

    values, wrap = _as_array(x)
    key = key_from(rng)
    lookup = compile_lookup(table, values.dtype)
    flat_values = np.ascontiguousarray(values).reshape(-1)
    codes = np.empty(values.size, dtype=lookup.code_dtype)
    clip_counts = _draw_all(lookup, flat_values, codes, key, threads)
    stats = _checked_counts(
        table=table,
        total=values.size,
        counts=clip_counts,
        on_out_of_range=on_out_of_range,
        find=partial(_find, table, values),
    )
    return wrap(codes.reshape(values.shape)), stats


def codes_from_words(
    table: Table,
    x: npt.ArrayLike,
    words: npt.ArrayLike,
) -> Codes:
    """The reports that given words lead to: `privatize` with the randomness in the caller's hands,
    for tests.

    The words are uint64, one per input; high halves choose rows, low halves levels.
    """
    from mezzotint.core.kernels import compile_lookup

    values, _wrap = _as_array(x)
    random_words = np.asarray(words)
    are_words = random_words.dtype == np.uint64
    if not are_words or random_words.shape != values.shape:
        description = f"{random_words.dtype} of shape {random_words.shape}"
        remedy = f"need uint64 of the shape of x, {values.shape}"
        raise ParameterError("words", description, remedy)
    lookup = compile_lookup(table, values.dtype)
    codes = np.empty(values.size, dtype=lookup.code_dtype)
    flat_values = np.ascontiguousarray(values).reshape(-1)
    flat_words = np.ascontiguousarray(random_words).reshape(-1)
    clip_counts = lookup.draw(flat_values, flat_words, codes)
    _checked_counts(
        table=table,
        total=values.size,
        counts=clip_counts,
        on_out_of_range="clip",
        find=partial(_find, table, values),
    )
    return codes.reshape(values.shape)


def _is_tensor(x: object) -> TypeGuard[torch.Tensor]:
    torch_module = sys.modules.get("torch")
    return torch_module is not None and isinstance(x, torch_module.Tensor)


# Inputs -------------------------------------------------------------------------------------------


def _as_array(x: object) -> tuple[Floats, Callable[[Codes], object]]:
    """x as float32 or float64, and what turns codes into the caller's kind of array."""
    if _is_tensor(x):
        if x.device.type != "cpu":
            remedy = f"draws on cpu, {', '.join(GPU)}; pass x.cpu()"
            raise ParameterError("x", f"tensor on {x.device}", remedy)
        from mezzotint.core.gpu import as_floats

        return as_floats(x).numpy(), _to_torch
    if np.ma.is_masked(x):
        remedy = "some inputs are masked; drop them or fill them in first"
        raise ParameterError("x", "masked array", remedy)
    try:
        numbers: NumberArray = np.asarray(x)
    except ValueError:
        remedy = "need numbers in an array of one shape"
        raise ParameterError("x", type(x).__name__, remedy) from None
    if numbers.dtype == object:
        numbers = _of_objects(numbers)
    if numbers.size and numbers.dtype.kind not in "fiu":
        raise wrong_kind("x", numbers, "fiu", "need real numbers; convert or drop the rest")
    is_single = numbers.dtype.kind == "f" and numbers.itemsize <= 4
    # The native dtype: asarray copies only what needs casting.
    float_type = np.float64
    if is_single:
        float_type = np.float32
    float_values: Floats = np.asarray(numbers, dtype=float_type)
    # An array of no dimension becomes a scalar, others stay.
    return float_values, lambda codes: codes[()]


def _of_objects(array: npt.NDArray[Any]) -> Floats:
    """Python numbers, as decimals, in the shape of the array; raises ParameterError for others, or
    a missing one.
    """
    from mezzotint.core.values import inputs

    listed = inputs(array.reshape(-1), None)
    if listed.present is not None:
        first_missing = _first_index(~listed.present, array.shape)
        label = _spelled(first_missing)
        raise ParameterError(f"x[{label}]", None, "is missing; drop it first")
    return listed.values.reshape(array.shape)


def _to_torch(codes: Codes) -> torch.Tensor:
    # Few torch operations know uint16, so wide codes come as int32.
    torch_module = sys.modules["torch"]
    if codes.dtype == np.uint8:
        return torch_module.from_numpy(codes)
    return torch_module.from_numpy(codes.astype(np.int32))


# Work ---------------------------------------------------------------------------------------------


def _draw_range(
    lookup: Lookup,
    x: Floats,
    codes: Codes,
    key: bytes,
    first: int,
) -> ClipCounts:
    """Elements from number `first` on: each has its own word, so seeded draws do not depend on how
    work is split.
    """
    element_words = ElementWords(key, first)
    buffer = np.empty(min(BLOCK, x.size), dtype=np.uint64)
    block_counts: list[ClipCounts] = []
    for block_start in range(0, x.size, BLOCK):
        block = slice(block_start, block_start + BLOCK)
        inputs = x[block]
        block_words = buffer[: inputs.size]
        element_words.fill(block_words)
        clip_counts = lookup.draw(inputs, block_words, codes[block])
        block_counts.append(clip_counts)
    return _added(block_counts)


def _added(all_counts: Iterable[ClipCounts]) -> ClipCounts:
    """The counts of all parts of an array, from those of each."""
    below_total = above_total = nan_total = 0
    for below_count, above_count, nan_count in all_counts:
        below_total += below_count
        above_total += above_count
        nan_total += nan_count
    return below_total, above_total, nan_total


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(tasks: Sequence[Callable[[], T]], *, threads: int) -> list[T]:
    """The tasks' results in order, at most `threads` at work at a time; with one, no thread is
    started.

    Tasks gain only where they release the interpreter. A pool per call costs some 0.1 ms and,
    unlike a lasting one, cannot be broken by a fork.
    """
    workers = min(threads, len(tasks))
    if workers < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(task) for task in tasks]
        return [future.result() for future in futures]


def _draw_all(
    lookup: Lookup,
    x: Floats,
    codes: Codes,
    key: bytes,
    threads: int | None,
) -> ClipCounts:
    """Draws a code for each input, in threads that share the keystream by whole parts, so that
    codes do not depend on their number; returns how many inputs were clipped or NaN.
    """
    workers = 1
    if x.size >= 2 * PART:
        workers = min(threads or usable_cores(), x.size // PART)
    if workers == 1:
        return _draw_range(lookup, x, codes, key, 0)
    # Whole ranges of the keystream, or fewer threads than asked for.
    parts_each = -(-x.size // (workers * PART))
    share = parts_each * PART
    tasks: list[Callable[[], ClipCounts]] = []
    for range_start in range(0, x.size, share):
        span = slice(range_start, range_start + share)
        task = partial(_draw_range, lookup, x[span], codes[span], key, range_start)
        tasks.append(task)
    return _added(in_threads(tasks, threads=workers))


def _checked_counts(
    table: Table,
    total: int,
    counts: ClipCounts,
    on_out_of_range: str,
    find: Find,
) -> PrivatizeStats:
    """The counts as a result; raises ParameterError for NaN, and for inputs out of range where
    those are errors. `find` gives the index of the first, which messages show instead of its value.
    """
    below_count, above_count, nan_count = counts
    if nan_count:
        label = _spelled(find("nan"))
        raise ParameterError("x", math.nan, f"input {label} is NaN; drop it first")
    if on_out_of_range == "error" and below_count + above_count:
        # The input itself is private, and messages go to logs.
        remedy = (
            f"lies outside [{table.lower:g}, {table.upper:g}]; "
            'widen the range or use on_out_of_range="clip"'
        )
        raise ParameterError("x", f"input {_spelled(find('outside'))}", remedy)
    return PrivatizeStats(
        below=below_count,
        above=above_count,
        total=total,
    )


def _find(
    table: Table,
    values: Floats,
    problem: Problem,
) -> Index:
    """The index of the first NaN, or of the first input out of range."""
    # In float64, as the kernels compare: numpy would round the limits to float32 for float32
    # values.
    inputs = values.astype(np.float64)
    if problem == "nan":
        has_problem = np.isnan(inputs)
    else:
        is_below = inputs < table.lower
        has_problem = is_below | (inputs > table.upper)
    return _first_index(has_problem, values.shape)


def _first_index(condition: BoolArray, shape: Index) -> Index:
    """Of the first entry of an array of this shape, in row-major order, for which it holds."""
    position = int(np.argmax(condition))
    return tuple(map(int, np.unravel_index(position, shape)))


def _spelled(index: Index) -> str:
    return ", ".join(map(str, index)) or "0"


MAX_BITS = 16
"""Of a code that `pack` takes."""

Buffer: TypeAlias = bytes | bytearray | memoryview

Integers = npt.NDArray[np.integer]


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` codes of `bits` bits take."""
    return -(-count * bits // 8)


def _checked_bits(bits: int) -> int:
    if bits not in range(1, MAX_BITS + 1):
        raise ParameterError("bits", bits, f"bits per code are an integer from 1 to {MAX_BITS}")
    return int(bits)


def pack(codes: npt.ArrayLike, bits: int) -> bytes:
    """Codes, integers from 0 to 2**bits - 1 of any shape in C order, as ceil(size * bits / 8)
    bytes; bits are 1 to 16.

    Bit j of code i is bit (i * bits + j) of the result, counted from the lowest bit of the first
    byte; the last byte is filled up with zeros.

    Raises:
        ParameterError: codes that are not integers or do not fit, bits out of range.

    Guarantees: unpack(pack(codes, bits), bits, codes.size) gives the codes back.
    """
    bits = _checked_bits(bits)
    code_array = np.asarray(codes)
    if code_array.size == 0:
        return b""
    are_integers = code_array.dtype.kind in "iu"
    fit = are_integers and int(code_array.min()) >= 0 and int(code_array.max()) >> bits == 0
    if not fit:
        remedy = f"codes of {bits} bits are integers from 0 to {2**bits - 1}"
        raise ParameterError("codes", str(code_array.dtype), remedy)
    return pack_words(code_array.ravel(), bits)


def unpack(
    data: Buffer,
    bits: int,
    count: int,
) -> Codes:
    """The `count` codes that `pack` put into `data`, 1-D; uint8 up to 8 bits, else uint16.

    Raises:
        ParameterError: data of the wrong length, or with bits set after the last code.
    """
    bits = _checked_bits(bits)
    if count < 0:
        raise ParameterError("count", count, "a number of codes is >= 0")
    size = packed_size(count, bits)
    if len(data) != size:
        remedy = f"{count} codes of {bits} bits take {size}"
        raise ParameterError("data", f"{len(data)} bytes", remedy)
    if surplus_bits(data, bits, count):
        remedy = "they must be zero; the data or `count` is wrong"
        raise ParameterError("data", "bits after the last code", remedy)
    return unpack_words(data, bits, count)


_BATCH = 2**16
"""Words that are packed together, so that they stay in the processor's cache; a multiple of
eight.
"""

_LANE_BITS = 64


def word_type(bits: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned little-endian type of at least `bits` bits, up to 32."""
    if bits <= 8:
        return np.dtype("u1")
    if bits <= 16:
        return np.dtype("<u2")
    return np.dtype("<u4")


def surplus_bits(
    data: Buffer,
    bits: int,
    count: int,
) -> int:
    """The value of the last byte's bits that belong to no word."""
    used_bits = count * bits % 8
    if used_bits == 0:
        return 0
    return data[-1] >> used_bits


def pack_words(words: Integers, bits: int) -> bytes:
    """1-D integers below 2**bits in the layout of `pack`, `bits` up to 32.

    Two neighbours become one integer of twice the width, until it has 64 bits; eight words fill
    whole bytes.
    """
    row_count = -(-words.size // 8)
    byte_rows = np.empty(row_count, dtype=f"V{bits}")  # a row of bytes for every eight words
    for batch_start in range(0, words.size, _BATCH):
        batch_words = words[batch_start : batch_start + _BATCH]
        batch = np.ascontiguousarray(batch_words, dtype=word_type(bits))
        padding = -batch.size % 8
        if padding:
            batch = np.pad(batch, (0, padding))
        joined, width = _joined_neighbours(batch, bits)
        integers = joined.reshape(-1, 8 * bits // width)
        lanes = np.empty((len(integers), _lane_count(bits)), dtype="<u8")
        lane_positions = _lane_positions(width, bits)
        for integer_column, (lane_index, shift) in zip(integers.T, lane_positions, strict=True):
            if shift:
                lanes[:, lane_index] |= integer_column << shift
            else:
                lanes[:, lane_index] = integer_column
            if shift + width > _LANE_BITS:
                lanes[:, lane_index + 1] = integer_column >> (_LANE_BITS - shift)
        batch_rows = np.ndarray(
            len(lanes),
            dtype=byte_rows.dtype,
            buffer=lanes,
            strides=lanes.strides[:1],
        )
        first_row = batch_start // 8
        byte_rows[first_row : first_row + len(lanes)] = batch_rows
    size = packed_size(words.size, bits)
    return byte_rows.tobytes()[:size]


def _lane_count(bits: int) -> int:
    """How many lanes of 64 bits hold eight words."""
    return -(-bits // 8)


def _joined_neighbours(words: Integers, bits: int) -> tuple[Integers, int]:
    """Integers of 64 bits that hold neighbours side by side, and how many bits each uses."""
    width = bits
    while words.itemsize < 8:
        half_bits = 8 * words.itemsize
        words = words.view(f"<u{2 * words.itemsize}")
        first_half = words & ((1 << half_bits) - 1)
        second_half = words >> half_bits
        second_half <<= width
        words = np.bitwise_or(second_half, first_half, out=second_half)
        width *= 2
    return words, width


def unpack_words(
    data: Buffer,
    bits: int,
    count: int,
) -> Codes:
    """The `count` integers that `pack_words` put into `data`, in the smallest `word_type`."""
    words = np.empty(count, dtype=word_type(bits))
    data_bytes = np.frombuffer(data, dtype=np.uint8)
    for batch_start in range(0, count, _BATCH):
        batch = words[batch_start : batch_start + _BATCH]
        row_count = -(-batch.size // 8)
        byte_count = row_count * bits
        batch_bytes = data_bytes[batch_start * bits // 8 :][:byte_count]
        padded = np.pad(batch_bytes, (0, byte_count - batch_bytes.size))
        lanes = np.zeros((row_count, _lane_count(bits)), dtype="<u8")
        lane_bytes = lanes.view(np.uint8)
        lane_bytes[:, :bits] = padded.reshape(row_count, bits)
        width = bits * 8 // words.itemsize
        joined = np.empty((row_count, 8 * bits // width), dtype="<u8")
        lane_positions = _lane_positions(width, bits)
        for integer_column, (lane_index, shift) in zip(joined.T, lane_positions, strict=True):
            integer_column[:] = lanes[:, lane_index] >> shift
            if shift + width > _LANE_BITS:
                integer_column |= lanes[:, lane_index + 1] << (_LANE_BITS - shift)
        separated = _separated_neighbours(joined, width, words.itemsize)
        batch_words = separated.ravel()[: batch.size]
        batch[:] = batch_words & (2**bits - 1)
    return words


def _separated_neighbours(
    joined: Integers,
    width: int,
    itemsize: int,
) -> Integers:
    """The integers that `_joined_neighbours` put side by side, each in a word of `itemsize`
    bytes.
    """
    while joined.itemsize > itemsize:
        half_bits = 4 * joined.itemsize
        width //= 2
        first_half = joined & ((1 << width) - 1)
        second_half = joined >> width
        joined = (second_half << half_bits) | first_half
        joined = joined.view(f"<u{joined.itemsize // 2}")
    return joined


def _lane_positions(width: int, bits: int) -> list[tuple[int, int]]:
    """Where the integers of `width` bits begin that together make eight words: lane of 64 bits, bit
    in it.
    """
    first_bits = range(0, 8 * bits, width)
    return [divmod(first_bit, _LANE_BITS) for first_bit in first_bits]
