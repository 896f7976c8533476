"""The pinned public stream: signs, positions and normal numbers that every implementation draws bit for bit alike.

The words are AES-256 in counter mode; the map from words to normal numbers is integer arithmetic on a table of 6,145
integers. docs/file-format.md writes both down; clients/vectors holds what an implementation must reproduce. Nothing
here is secret, and privacy does not rest on it: a client that draws other numbers than the server spoils the estimate,
not the claim.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from mezzotint.core.entropy import draw_words
from mezzotint.core.errors import MezzotintError
from mezzotint.core.mechanism import FloatArray, IntArray

VERSION = 1
"""Of generator and map; it stands in every file, and another version is refused."""

UNIT = 2.0**-24
"""Normal numbers are integers times this."""

OCTAVE_BITS = 8
"""Each doubling of the tail's probability is cut into 2**8 equal pieces."""

TABLE_SHA256 = "1c01ef181ebc01d52a5966ba4319f900d9d7e0c716ed0f1c2507284adf60e7ed"

_ROWS_START = 1 << 33
"""Index of the 64-bit word that the rows of normal numbers start at; positions are drawn from word 0 on."""


@lru_cache(maxsize=1)
def normal_table() -> IntArray:
    """(6145,) quantiles of the upper tail, units of 2**-24, at the left ends of the pieces of [0, 2**31].

    Piece n < 2**8 is n itself; piece n = 2**8 (e + 1) + i starts at (2**8 + i) 2**e. The entry of a start v is the
    integer nearest to 2**24 times the N(0, 1) quantile of 1 - (v + 1/2) / 2**32.

    Guarantees: the integers have the pinned hash. None lies within 1e-4 of a tie, so that any inverse of the normal
    distribution function that is good to 1e-12 finds the same ones.
    """
    octaves = 31 - OCTAVE_BITS
    first = np.arange(2**OCTAVE_BITS, dtype=np.float64)
    later = [(first + 2**OCTAVE_BITS) * 2.0**e for e in range(octaves)]
    starts = np.concatenate([first, *later, [2.0**31]])
    entries = np.rint(-scipy.special.ndtri((starts + 0.5) / 2.0**32) / UNIT).astype(np.int64)
    entries[-1] = 0
    if hashlib.sha256(entries.astype("<i4").tobytes()).hexdigest() != TABLE_SHA256:
        raise MezzotintError("stream: this machine's inverse normal distribution does not give the pinned table")
    entries.setflags(write=False)
    return entries


def stream_key(purpose: str, beacon: str, *numbers: int) -> bytes:
    """32 bytes: SHA-256 of "mezzotint public stream 1", purpose, beacon and numbers, separated by zero bytes.

    Arguments:
        purpose: "signs" (numbered by the round) or "report" (numbered by the seed and the place in the report).
        beacon: public text of the scheme, without zero characters.
        numbers: written in decimal.
    """
    fields = [f"mezzotint public stream {VERSION}", purpose, beacon, *map(str, numbers)]
    return hashlib.sha256("\0".join(fields).encode()).digest()


def _halves(key: bytes, start: int, count: int) -> npt.NDArray[np.uint32]:
    """`count` 32-bit numbers, the low half of each 64-bit word first; `count` is even."""
    return draw_words(key, start, count // 2).astype("<u8", copy=False).view("<u4")


def signs(beacon: str, group: int, size: int) -> FloatArray:
    """(size,) numbers +-1 of a round: bit j of the stream, low bits first, 1 for +1."""
    words = draw_words(stream_key("signs", beacon, group), 0, -(-size // 64))
    bits = np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), bitorder="little")[:size]
    return bits.astype(np.float64) * 2.0 - 1.0


def positions(key: bytes, count: int, among: int) -> IntArray:
    """(count,) distinct numbers below `among`, a power of two, in the order drawn: 32-bit numbers from word 0 on, taken
    modulo `among`, and skipped when they stand already."""
    from mezzotint.vectors import compiled as kernels

    taken = np.zeros(among, dtype=np.uint8)
    found = np.empty(count, dtype=np.int64)
    have, start = 0, 0
    while have < count:
        # Twice what is still missing at worst; the number of draws depends on the public stream alone.
        size = 4 * -(-2 * (count - have) // 4)
        have = kernels.pick_distinct(_halves(key, start, size), taken, found, have)
        start += size // 2
    return found


def row_stride(width: int) -> int:
    """32-bit numbers from the start of one row to that of the next: rows start with an AES block."""
    return 4 * -(-width // 4)


def normal_rows(key: bytes, first: int, count: int, width: int) -> FloatArray:
    """(count, width) normal numbers: rows `first`, `first` + 1, ... of a report's matrix."""
    from mezzotint.vectors import compiled as kernels

    stride = row_stride(width)
    numbers = _halves(key, _ROWS_START + first * (stride // 2), count * stride)
    rows = np.empty((count, width))
    kernels.normal_numbers(numbers, normal_table(), stride, OCTAVE_BITS, UNIT, rows)
    return rows


def normal_products(key: bytes, count: int, vector: FloatArray) -> FloatArray:
    """(count,) inner products of the first `count` rows with a vector; the rows are never stored."""
    from mezzotint.vectors import compiled as kernels

    stride = row_stride(vector.size)
    products = np.empty(count)
    # So many rows at a time that their words stay in a cache.
    block = max(1, (1 << 16) // stride)
    for done in range(0, count, block):
        part = products[done : done + block]
        numbers = _halves(key, _ROWS_START + done * (stride // 2), part.size * stride)
        kernels.normal_products(numbers, normal_table(), stride, OCTAVE_BITS, UNIT, vector, part)
    return products
