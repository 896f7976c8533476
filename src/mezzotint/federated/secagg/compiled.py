"""Compiled inner loops of the protocol: imported when servers unpack, because numba is heavy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mezzotint.core.kernels import compiled


@compiled
def unpack(data: npt.NDArray[np.uint8], bits: int, out: npt.NDArray[np.unsignedinteger]) -> None:
    """Words of `bits` bits that lie in bytes one after the other, without gaps."""
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
