"""Codes of b bits as bytes, without gaps: what a report costs on the wire."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError

MAX_BITS = 16


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` codes of `bits` bits take."""
    return -(-count * bits // 8)


def _checked_bits(bits: int) -> int:
    if bits not in range(1, MAX_BITS + 1):
        raise ParameterError("bits", bits, f"bits per code are an integer from 1 to {MAX_BITS}")
    return int(bits)


def pack(codes: npt.ArrayLike, bits: int) -> bytes:
    """Codes as a string of bytes, `bits` bits each.

    Bit j of code i is bit (i * bits + j) of the result, counted from the lowest bit of the first byte; the last
    byte is filled up with zeros.

    Arguments:
        codes: integers from 0 to 2**bits - 1, any shape; packed in C order.
        bits: 1 to 16.

    Returns: ceil(size * bits / 8) bytes.

    Raises:
        ParameterError: codes that are no integers or do not fit, bits out of range.

    Guarantees: unpack(pack(codes, bits), bits, codes.size) gives the codes back.
    Edge cases: no codes give b"".
    """
    bits = _checked_bits(bits)
    array = np.asarray(codes)
    if array.size == 0:
        return b""
    if array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) >> bits:
        raise ParameterError("codes", str(array.dtype), f"codes of {bits} bits are integers from 0 to {2**bits - 1}")
    flat = array.astype("<u2").reshape(-1, 1)
    planes = np.unpackbits(flat.view(np.uint8), axis=1, count=bits, bitorder="little")
    return np.packbits(planes.reshape(-1), bitorder="little").tobytes()


def unpack(data: bytes | bytearray | memoryview, bits: int, count: int) -> npt.NDArray[np.unsignedinteger]:
    """The `count` codes that `pack` put into `data`, 1-D; uint8 up to 8 bits, else uint16.

    Raises:
        ParameterError: data of the wrong length, or with bits set after the last code.
    """
    bits = _checked_bits(bits)
    if count < 0:
        raise ParameterError("count", count, "a number of codes is >= 0")
    if len(data) != packed_size(count, bits):
        raise ParameterError(
            "data", f"{len(data)} bytes", f"{count} codes of {bits} bits take {packed_size(count, bits)}"
        )
    stream = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if stream[count * bits :].any():
        raise ParameterError("data", "bits after the last code", "they must be zero; the data or `count` is wrong")
    planes = stream[: count * bits].reshape(count, bits)
    packed = np.packbits(planes, axis=1, bitorder="little")
    if bits <= 8:
        return packed.reshape(-1)
    return packed.view("<u2").reshape(-1).astype(np.uint16)
