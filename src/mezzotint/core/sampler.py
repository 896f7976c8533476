"""Reports from inputs: random words, lookup tables and the kernel put together, in threads when it
pays.

Words come from an AES-256-CTR keystream, keyed by the operating system for every call. Codes become
bytes.
"""

from __future__ import annotations

import hashlib
import math
import operator
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar, final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError, wrong_kind
from mezzotint.core.table import Table
from mezzotint.core.types import Codes, Floats, NumberArray, Seed, Words

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
    try:
        seed = operator.index(rng)
    except TypeError:
        seed = None
    if seed is None or isinstance(rng, bool):
        raise ParameterError(
            "rng", type(rng).__name__, "give None (private), an integer seed or a numpy Generator"
        )
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
        count, odd = divmod(start, WORDS_PER_COUNT)
        if odd or start < 0:
            raise ParameterError("start", start, "a range of words starts on an even index >= 0")
        nonce, low = divmod(count, 2**32)
        mode = (
            modes.GCM(nonce.to_bytes(12, "big"))
            if low == GCM_FIRST
            else modes.CTR(count.to_bytes(16, "big"))
        )
        self._encryptor = Cipher(algorithms.AES(key), mode).encryptor()

    def fill(self, words: Words) -> None:
        """Overwrites `words` (contiguous, at most BLOCK) with the next words of the stream.
        Releases the GIL.
        """
        if words.size > BLOCK:
            raise ParameterError("words", words.size, f"at most {BLOCK} words are drawn at a time")
        self._encryptor.update_into(_ZEROS[: words.nbytes], words.data.cast("B"))


def draw_words(key: bytes, start: int, count: int) -> Words:
    """(count,) consecutive words of a key's stream from word `start`, even and >= 0, on."""
    words = np.empty(count, dtype=np.uint64)
    stream = Keystream(key, start)
    for done in range(0, count, BLOCK):
        stream.fill(words[done : done + BLOCK])
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
        self._key, self._next = key, first
        part, skipped = divmod(first, PART)
        self._stream = Keystream(key, fast_start(part) + skipped - skipped % WORDS_PER_COUNT)
        if skipped % WORDS_PER_COUNT:
            self._stream.fill(np.empty(1, dtype=np.uint64))

    def fill(self, words: Words) -> None:
        """Overwrites `words` (contiguous, at most BLOCK) with the words of the next elements.
        Releases the GIL.
        """
        done = 0
        while done < words.size:
            place = self._next % PART
            if place == 0:
                self._stream = Keystream(self._key, fast_start(self._next // PART))
            size = min(words.size - done, PART - place)
            self._stream.fill(words[done : done + size])
            done, self._next = done + size, self._next + size


# Reports ------------------------------------------------------------------------------------------

GPU = ("cuda",)
"""Types of torch devices that draw for themselves. They must compute in float64. (AMD's are called
"cuda" too.)
"""


T = TypeVar("T")

Find = Callable[[Literal["nan", "outside"]], tuple[int, ...]]
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
        On a GPU the words are ChaCha20's instead of AES-256-CTR's (a seed gives other codes there
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

        codes, counts = device.draw(table, x, key_from(rng))
        return codes, _check(
            table, x.numel(), counts, on_out_of_range, partial(device.find, table, x)
        )
    from mezzotint.core.kernels import compile_lookup

    values, wrap = _as_array(x)
    key = key_from(rng)
    lookup = compile_lookup(table, values.dtype)
    flat = np.ascontiguousarray(values).reshape(-1)
    codes = np.empty(flat.size, dtype=lookup.code_dtype)
    counts = _draw_all(lookup, flat, codes, key, threads)
    stats = _check(table, values.size, counts, on_out_of_range, partial(_find, table, values))
    return wrap(codes.reshape(values.shape)), stats


def codes_from_words(table: Table, x: npt.ArrayLike, words: npt.ArrayLike) -> Codes:
    """The reports that given words lead to: `privatize` with the randomness in the caller's hands,
    for tests.

    The words are uint64, one per input; high halves choose rows, low halves levels.
    """
    from mezzotint.core.kernels import compile_lookup

    values, _ = _as_array(x)
    given = np.asarray(words)
    if given.dtype != np.uint64 or given.shape != values.shape:
        raise ParameterError(
            "words",
            f"{given.dtype} of shape {given.shape}",
            f"need uint64 of the shape of x, {values.shape}",
        )
    lookup = compile_lookup(table, values.dtype)
    codes = np.empty(values.size, dtype=lookup.code_dtype)
    flat = np.ascontiguousarray(values).reshape(-1)
    counts = lookup.draw(flat, np.ascontiguousarray(given).reshape(-1), codes)
    _check(table, values.size, counts, "clip", partial(_find, table, values))
    return codes.reshape(values.shape)


def _is_tensor(x: object) -> TypeGuard[torch.Tensor]:
    torch_module = sys.modules.get("torch")
    return torch_module is not None and isinstance(x, torch_module.Tensor)


# Inputs -------------------------------------------------------------------------------------------


def _as_array(x: object) -> tuple[Floats, Callable[[Codes], object]]:
    """x as float32 or float64, and what turns codes into the caller's kind of array."""
    if _is_tensor(x):
        if x.device.type != "cpu":
            raise ParameterError(
                "x", f"tensor on {x.device}", f"draws on cpu, {', '.join(GPU)}; pass x.cpu()"
            )
        from mezzotint.core.gpu import as_floats

        return as_floats(x).numpy(), _to_torch
    if np.ma.is_masked(x):
        raise ParameterError(
            "x", "masked array", "some inputs are masked; drop them or fill them in first"
        )
    try:
        array: NumberArray = np.asarray(x)
    except ValueError:
        raise ParameterError(
            "x", type(x).__name__, "need numbers in an array of one shape"
        ) from None
    if array.dtype == object:
        array = _of_objects(array)
    if array.size and array.dtype.kind not in "fiu":
        raise wrong_kind("x", array, "fiu", "need real numbers; convert or drop the rest")
    small = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    # The native dtype: asarray copies only what needs casting.
    # An array of no dimension becomes a scalar, others stay.
    return np.asarray(array, dtype=np.float32 if small else np.float64), lambda codes: codes[()]


def _of_objects(array: npt.NDArray[Any]) -> Floats:
    """Python numbers, as decimals, in the shape of the array; raises ParameterError for others, or
    a missing one.
    """
    from mezzotint.core.values import inputs

    found = inputs(array.reshape(-1), None)
    if found.present is not None:
        index = np.unravel_index(int(np.argmin(found.present)), array.shape)
        place = _spelled(tuple(map(int, index)))
        raise ParameterError(f"x[{place}]", None, "is missing; drop it first")
    return found.values.reshape(array.shape)


def _to_torch(codes: Codes) -> torch.Tensor:
    # Few torch operations know uint16, so wide codes come as int32.
    return sys.modules["torch"].from_numpy(
        codes if codes.dtype == np.uint8 else codes.astype(np.int32)
    )


# Work ---------------------------------------------------------------------------------------------


def _draw_range(
    lookup: Lookup, x: Floats, codes: Codes, key: bytes, first: int
) -> tuple[int, int, int]:
    """Elements from number `first` on: each has its own word, so seeded draws do not depend on how
    work is split.
    """
    words = ElementWords(key, first)
    buffer = np.empty(min(BLOCK, x.size), dtype=np.uint64)
    below = above = nans = 0
    for begin in range(0, x.size, BLOCK):
        drawn = buffer[: min(BLOCK, x.size - begin)]
        words.fill(drawn)
        part = slice(begin, begin + drawn.size)
        counts = lookup.draw(x[part], drawn, codes[part])
        below, above, nans = below + counts[0], above + counts[1], nans + counts[2]
    return below, above, nans


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(tasks: Sequence[Callable[[], T]], *, threads: int) -> list[T]:
    """The tasks' results in order, at most `threads` at work at a time; with one, no thread is
    started.

    Tasks gain only where they release the interpreter. A pool per call costs some 0.1 ms and,
    unlike a lasting one, cannot be broken by a fork.
    """
    if min(threads, len(tasks)) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(max_workers=min(threads, len(tasks))) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


def _draw_all(
    lookup: Lookup, x: Floats, codes: Codes, key: bytes, threads: int | None
) -> tuple[int, int, int]:
    workers = min(threads or usable_cores(), x.size // PART) if x.size >= 2 * PART else 1
    if workers == 1:
        return _draw_range(lookup, x, codes, key, 0)
    # Whole parts of the keystream, or fewer threads than asked for.
    share = -(-x.size // (workers * PART)) * PART
    parts = [slice(begin, begin + share) for begin in range(0, x.size, share)]
    tasks = [partial(_draw_range, lookup, x[part], codes[part], key, part.start) for part in parts]
    below, above, nans = (
        sum(counts) for counts in zip(*in_threads(tasks, threads=workers), strict=True)
    )
    return below, above, nans


def _check(
    table: Table, total: int, counts: tuple[int, int, int], on_out_of_range: str, find: Find
) -> PrivatizeStats:
    below, above, nans = counts
    if nans:
        raise ParameterError("x", math.nan, f"input {_spelled(find('nan'))} is NaN; drop it first")
    if on_out_of_range == "error" and below + above:
        remedy = (
            f"lies outside [{table.lower:g}, {table.upper:g}]; "
            'widen the range or use on_out_of_range="clip"'
        )  # the input itself is private, and messages go to logs
        raise ParameterError("x", f"input {_spelled(find('outside'))}", remedy)
    return PrivatizeStats(below=below, above=above, total=total)


def _find(table: Table, values: Floats, what: Literal["nan", "outside"]) -> tuple[int, ...]:
    # In float64, as the kernels compare: numpy would round the limits to float32 for float32
    # values.
    given = values.astype(np.float64)
    bad = np.isnan(given) if what == "nan" else (given < table.lower) | (given > table.upper)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), values.shape))


def _spelled(index: tuple[int, ...]) -> str:
    return ", ".join(map(str, index)) or "0"


MAX_BITS = 16


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
    array = np.asarray(codes)
    if array.size == 0:
        return b""
    if array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) >> bits:
        raise ParameterError(
            "codes", str(array.dtype), f"codes of {bits} bits are integers from 0 to {2**bits - 1}"
        )
    return pack_words(array.ravel(), bits)


def unpack(
    data: bytes | bytearray | memoryview, bits: int, count: int
) -> npt.NDArray[np.unsignedinteger]:
    """The `count` codes that `pack` put into `data`, 1-D; uint8 up to 8 bits, else uint16.

    Raises:
        ParameterError: data of the wrong length, or with bits set after the last code.
    """
    bits = _checked_bits(bits)
    if count < 0:
        raise ParameterError("count", count, "a number of codes is >= 0")
    if len(data) != packed_size(count, bits):
        raise ParameterError(
            "data",
            f"{len(data)} bytes",
            f"{count} codes of {bits} bits take {packed_size(count, bits)}",
        )
    if surplus_bits(data, bits, count):
        raise ParameterError(
            "data", "bits after the last code", "they must be zero; the data or `count` is wrong"
        )
    return unpack_words(data, bits, count)


_AT_ONCE = 2**16
"""Words that are packed together, so that they stay in the processor's cache; a multiple of
eight.
"""


def word_type(bits: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned little-endian type of at least `bits` bits, up to 32."""
    return np.dtype("u1" if bits <= 8 else "<u2" if bits <= 16 else "<u4")


def surplus_bits(data: bytes | bytearray | memoryview, bits: int, count: int) -> int:
    """The value of the last byte's bits that belong to no word."""
    used = count * bits % 8
    return data[-1] >> used if used else 0


def pack_words(words: npt.NDArray[np.integer], bits: int) -> bytes:
    """1-D integers below 2**bits in the layout of `pack`, `bits` up to 32.

    Two neighbours become one integer of twice the width, until it has 64 bits; eight words fill
    whole bytes.
    """
    eights = np.empty(-(-words.size // 8), dtype=f"V{bits}")  # a row of bytes for every eight words
    for begin in range(0, words.size, _AT_ONCE):
        held = np.ascontiguousarray(words[begin : begin + _AT_ONCE], dtype=word_type(bits))
        held = np.pad(held, (0, -held.size % 8)) if held.size % 8 else held
        width = bits
        while held.itemsize < 8:
            half = 8 * held.itemsize
            held = held.view(f"<u{2 * held.itemsize}")
            second = held >> half
            second <<= width
            held = np.bitwise_or(second, held & ((1 << half) - 1), out=second)
            width *= 2
        held = held.reshape(-1, 8 * bits // width)
        lanes = np.empty((len(held), -(-bits // 8)), dtype="<u8")
        for column, (lane, shift) in zip(held.T, _places(width, bits), strict=True):
            if shift:
                lanes[:, lane] |= column << shift
            else:
                lanes[:, lane] = column
            if shift + width > 64:
                lanes[:, lane + 1] = column >> (64 - shift)
        rows = np.ndarray(len(lanes), dtype=eights.dtype, buffer=lanes, strides=lanes.strides[:1])
        eights[begin // 8 :][: len(lanes)] = rows
    return eights.tobytes()[: packed_size(words.size, bits)]


def unpack_words(
    data: bytes | bytearray | memoryview, bits: int, count: int
) -> npt.NDArray[np.unsignedinteger]:
    """The `count` integers that `pack_words` put into `data`, in the smallest `word_type`."""
    result = np.empty(count, dtype=word_type(bits))
    for begin in range(0, count, _AT_ONCE):
        part = result[begin : begin + _AT_ONCE]
        eights = -(-part.size // 8)
        source = np.frombuffer(data, dtype=np.uint8)[begin * bits // 8 :][: eights * bits]
        lanes = np.zeros((eights, -(-bits // 8)), dtype="<u8")
        lanes.view(np.uint8)[:, :bits] = np.pad(source, (0, eights * bits - source.size)).reshape(
            eights, bits
        )
        width = bits * 8 // result.itemsize
        held: npt.NDArray[np.integer] = np.empty((eights, 8 * bits // width), dtype="<u8")
        for column, (lane, shift) in zip(held.T, _places(width, bits), strict=True):
            column[:] = lanes[:, lane] >> shift
            if shift + width > 64:
                column |= lanes[:, lane + 1] << (64 - shift)
        while held.itemsize > result.itemsize:
            half = 4 * held.itemsize
            width //= 2
            held = (held >> width << half) | (held & ((1 << width) - 1))
            held = held.view(f"<u{held.itemsize // 2}")
        part[:] = held.ravel()[: part.size] & (2**bits - 1)
    return result


def _places(width: int, bits: int) -> list[tuple[int, int]]:
    """The places of the eight integers of `width` bits that together make eight words: lane of 64
    bits, bit in it.
    """
    return [divmod(begin, 64) for begin in range(0, 8 * bits, width)]
