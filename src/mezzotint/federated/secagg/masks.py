"""Masks: the words of a keystream, cut to the modulus; and integers of any width without gaps on the wire.

The modulus is 2**bits, so masks are plain truncated words and need no rejection: addition is done modulo the width of
the word (8, 16 or 32 bits), which 2**bits divides, and the surplus bits are dropped once at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.core.compiled import compiled
from mezzotint.core.entropy import BLOCK, WORD_BYTES, Keystream, fast_start
from mezzotint.core.packing import packed_size
from mezzotint.federated.secagg.errors import MalformedMessage, OutOfRangeInteger

Words = npt.NDArray[Any]


def word_type(bits: int) -> np.dtype[Any]:
    """The smallest unsigned little-endian type of at least `bits` bits."""
    return np.dtype("u1" if bits <= 8 else "<u2" if bits <= 16 else "<u4")


def add_mask(total: Words, key: bytes, *, sign: int) -> None:
    """Adds (sign 1) or subtracts (sign -1) the keystream of `key`, modulo the width of the words, in place.

    Arguments:
        total: 1-D contiguous array of `word_type`.
        key: 32 bytes used for this mask alone.
    """
    stream = Keystream(key, fast_start(0))
    per_block = BLOCK * WORD_BYTES // total.itemsize
    buffer = np.empty(min(BLOCK, -(-total.nbytes // WORD_BYTES)), dtype=np.uint64)
    combine = np.add if sign > 0 else np.subtract
    for begin in range(0, total.size, per_block):
        part = total[begin : begin + per_block]
        words = buffer[: -(-part.nbytes // WORD_BYTES)]
        stream.fill(words)
        combine(part, words.view(total.dtype)[: part.size], out=part)


def checked_integers(values: npt.ArrayLike, *, coordinates: int, span: int, bits: int, stage: str) -> Words:
    """A copy of the integers as words, after checking them.

    Raises:
        MalformedMessage: another number of coordinates, or no integers.
        OutOfRangeInteger: a value below 0 or above `span`; neither the value nor its place is told, for the text of an
            error can travel and the integers are a client's data.
    """
    array = np.asarray(values)
    if array.shape != (coordinates,) or array.dtype.kind not in "iu":
        raise MalformedMessage(stage, f"need {coordinates} integers, got {array.dtype} of shape {array.shape}")
    if int(array.min()) < 0 or int(array.max()) > span:
        raise OutOfRangeInteger(stage, f"an integer lies outside 0..{span}")
    return array.astype(word_type(bits))


def reduced(total: Words, bits: int) -> Words:
    """The words modulo 2**bits."""
    return np.bitwise_and(total, total.dtype.type((1 << bits) - 1))


@compiled
def _pack(words: Words, bits: int, out: npt.NDArray[np.uint8]) -> None:
    held = np.uint64(0)
    count = np.uint64(0)
    place = 0
    for i in range(words.size):
        held |= np.uint64(words[i]) << count
        count += np.uint64(bits)
        while count >= np.uint64(8):
            out[place] = np.uint8(held & np.uint64(255))
            held >>= np.uint64(8)
            count -= np.uint64(8)
            place += 1
    if count > np.uint64(0):
        out[place] = np.uint8(held & np.uint64(255))


@compiled
def _unpack(data: npt.NDArray[np.uint8], bits: int, out: Words) -> None:
    held = np.uint64(0)
    count = np.uint64(0)
    keep = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    place = 0
    for i in range(out.size):
        while count < np.uint64(bits):
            held |= np.uint64(data[place]) << count
            count += np.uint64(8)
            place += 1
        out[i] = held & keep
        held >>= np.uint64(bits)
        count -= np.uint64(bits)


def pack_words(words: Words, bits: int) -> bytes:
    """Words below 2**bits as bytes, `bits` bits each, in the layout of `mezzotint.core.packing` but up to 32 bits."""
    out = np.zeros(packed_size(words.size, bits), dtype=np.uint8)
    _pack(np.ascontiguousarray(words), bits, out)
    return out.tobytes()


def unpack_words(data: bytes, bits: int, count: int, *, stage: str) -> Words:
    """The words that `pack_words` packed.

    Raises:
        MalformedMessage: another length, or bits set after the last word.
    """
    if len(data) != packed_size(count, bits):
        raise MalformedMessage(
            stage, f"{len(data)} bytes, but {count} words of {bits} bits take {packed_size(count, bits)}"
        )
    spare = 8 * len(data) - count * bits
    if spare and data[-1] >> (8 - spare):
        raise MalformedMessage(stage, "bits are set after the last word")
    out = np.empty(count, dtype=word_type(bits))
    _unpack(np.frombuffer(data, dtype=np.uint8), bits, out)
    return out
