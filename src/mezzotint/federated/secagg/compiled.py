"""Compiled inner loops of the protocol: imported when vectors are packed, because numba is heavy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mezzotint.core.kernels import compiled


@compiled
def pack(words: npt.NDArray[np.unsignedinteger], bits: int, out: npt.NDArray[np.uint8]) -> None:
    """Words below 2**bits one after the other, without gaps, into bytes that are all zero."""
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
def unpack(data: npt.NDArray[np.uint8], bits: int, out: npt.NDArray[np.unsignedinteger]) -> None:
    """The words that `pack` packed."""
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
