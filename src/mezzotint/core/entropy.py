"""Where random words come from: an AES-256-CTR keystream, keyed by the operating system for every call."""

from __future__ import annotations

import hashlib
import operator
import os
from typing import final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import Words
from mezzotint.core.mechanism import Seed

KEY_BYTES = 32
WORD_BYTES = 8
WORDS_PER_COUNT = 2
"""An AES block, one count of the counter, holds two words: a range of words must start on an even index."""

GCM_FIRST = 2
"""Low 32 bits of the counter that AES-GCM begins to encrypt with; the other 96 are its nonce. A range that starts there
comes from GCM: the same counter mode, which libraries run two or three times faster on processors with wide vectors.
Its tag is of no use here and never asked for."""

BLOCK = 1 << 18
"""Words drawn at a time (2 MiB): read again while still in a cache, and enough work that threads seldom meet at the
GIL."""

PART = BLOCK
"""Elements that share a range of the keystream."""

_ZEROS = memoryview(bytes(BLOCK * WORD_BYTES))


def fresh_key() -> bytes:
    """A key from the operating system. Drawn per call and kept nowhere, so no fork or thread can share one."""
    return os.urandom(KEY_BYTES)


def key_from(rng: Seed) -> bytes:
    """The 32 bytes of the keystream key that `rng` stands for.

    Arguments:
        rng: None for a fresh key of the operating system (private); an integer seed >= 0 or a
            `numpy.random.Generator` for a reproducible key, which is NOT private: whoever knows the seed
            knows every word.

    Guarantees:
        None never gives the same key twice; a seed always gives the same key; a Generator is advanced by
        exactly one draw of 32 bytes, whatever the number of inputs.
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
        raise ParameterError("rng", type(rng).__name__, "give None (private), an integer seed or a numpy Generator")
    if seed < 0:
        raise ParameterError("rng", seed, "a seed is an integer >= 0")
    return hashlib.sha256(b"mezzotint seed %d" % seed).digest()


def fast_start(part: int) -> int:
    """Index of the first word of part `part` >= 0 of a key's stream. A part has at most 2**33 - 4 words, after which
    the cipher refuses to continue."""
    return ((part << 32) + GCM_FIRST) * WORDS_PER_COUNT


@final
class Keystream:
    """Consecutive 64-bit words of the stream of one key, from a chosen word on.

    Word i is bytes 8 i to 8 i + 7 (little-endian) of AES-256 in counter mode on zeros, counter starting at 0.
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
        mode = modes.GCM(nonce.to_bytes(12, "big")) if low == GCM_FIRST else modes.CTR(count.to_bytes(16, "big"))
        self._encryptor = Cipher(algorithms.AES(key), mode).encryptor()

    def fill(self, words: Words) -> None:
        """Overwrites `words` (contiguous, at most BLOCK) with the next words of the stream. Releases the GIL."""
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

    Element i takes word i % PART of part number i // PART: parts can be drawn by themselves, and each is a range that
    starts where streams are fastest.

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
        """Overwrites `words` (contiguous, at most BLOCK) with the words of the next elements. Releases the GIL."""
        done = 0
        while done < words.size:
            place = self._next % PART
            if place == 0:
                self._stream = Keystream(self._key, fast_start(self._next // PART))
            size = min(words.size - done, PART - place)
            self._stream.fill(words[done : done + size])
            done, self._next = done + size, self._next + size
