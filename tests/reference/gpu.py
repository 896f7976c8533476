"""What the device's draw is compared with, and a process in which Triton interprets its kernel."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from unittest import mock

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from mezzotint import Mechanism
from mezzotint.core.gpu import key_on, tables_on

CPU = torch.device("cpu")


COLUMNS = np.arange(16).reshape(4, 4)
DIAGONALS = np.stack([np.roll(row, -shift) for shift, row in enumerate(COLUMNS)])


def chacha_blocks(key: bytes, first: int, count: int, nonce: int, rounds: int) -> np.ndarray:
    """(count, 16) uint32: ChaCha by the definition (Bernstein 2008), over rows of the state that are turned for every
    second round."""
    counters = first + np.arange(count, dtype=np.uint64)
    start = np.empty((16, count), dtype=np.uint32)
    start[:4] = np.frombuffer(b"expand 32-byte k", dtype="<u4")[:, None]
    start[4:12] = np.frombuffer(key, dtype="<u4")[:, None]
    start[12], start[13] = counters & np.uint64(2**32 - 1), counters >> np.uint64(32)
    start[14:] = np.frombuffer(nonce.to_bytes(8, "little"), dtype="<u4")[:, None]
    state = start.copy()
    for step in range(rounds):
        a, b, c, d = COLUMNS if step % 2 == 0 else DIAGONALS
        for changed, added, mixed, turn in (
            (a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7),
        ):  # fmt: skip
            state[changed] += state[added]
            state[mixed] ^= state[changed]
            state[mixed] = state[mixed] << np.uint32(turn) | state[mixed] >> np.uint32(32 - turn)
    return (state + start).T


def chacha_words(key: bytes, first: int, count: int, nonce: int = 0) -> np.ndarray:
    """Words 8 first, 8 first + 1, ... of the ChaCha20 stream, by OpenSSL, every block from its own counter."""
    blocks = range(first, first + -(-count // 8))
    stream = b"".join(
        Cipher(
            algorithms.ChaCha20(key, block.to_bytes(8, "little") + nonce.to_bytes(8, "little")),
            mode=None,
        )
        .encryptor()
        .update(bytes(64))
        for block in blocks
    )
    return np.frombuffer(stream, dtype="<u8")[:count]


def words_of_draws(key: bytes, count: int, bits: int) -> np.ndarray:
    """(count,) uint64: what the elements of one draw take, put together of two streams of 32-bit words."""
    element = np.arange(count)
    tile, lane = element // 512, element % 128 // 4
    block, word = 32 * tile + lane, 4 * (element % 512 // 128) + element % 4
    block_count = 32 * -(-count // 512)
    leading, trailing = (
        chacha_blocks(key, 0, block_count, nonce, 12)[block, word].astype(object)
        for nonce in (0, 1)
    )
    high_bits = (32 - bits) // 2
    # From the leading word's end: the cell, the first bits of the high half, those of the unit.
    cell, rest = leading % 2**bits, leading // 2**bits
    inverted, unit = rest % 2**high_bits, rest // 2**high_bits
    inverted = inverted * 2 ** (32 - high_bits) + trailing // 2**high_bits
    unit = unit * 2**high_bits + trailing % 2**high_bits
    high, low = 2**32 - 1 - inverted, cell * 2 ** (32 - bits) + unit
    return (high * 2**32 + low).astype(np.uint64)


def outside(mechanism: Mechanism, x: np.ndarray) -> tuple[int, int]:
    """How many inputs lie below and above, float32 ones compared in float64 as the samplers do."""
    given = x.astype(np.float64)
    return int((given < mechanism.lower).sum()), int((given > mechanism.upper).sum())


def fused_codes(
    mechanism: Mechanism, x: np.ndarray, key: bytes, programs: int = 4096
) -> tuple[np.ndarray, list[int]]:
    """What the fused kernel makes of a flat float array, on this process' CPU; needs TRITON_INTERPRET=1."""
    from mezzotint.core import fused  # Triton decides on import whether to interpret

    tensor = torch.from_numpy(x)
    tables = tables_on(mechanism, x.dtype, tensor.device)
    codes = torch.full((x.size,), 77, dtype=tables.code_type)
    with mock.patch.object(fused, "PROGRAMS", programs):
        counts = fused.draw(tables, tensor, key_on(key, tensor.device), codes)
    return codes.numpy(), counts.tolist()


def levels_of(
    mechanism: Mechanism, x: np.ndarray, leading: np.ndarray, trailing: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `reference.levels.levels_of`; needs TRITON_INTERPRET=1."""
    from reference import levels

    return levels.levels_of(mechanism, x, leading, trailing)


def fused_words(key: bytes, first: int, count: int) -> np.ndarray:
    """Words as the kernel makes them, on this process' CPU; needs TRITON_INTERPRET=1."""
    from mezzotint.core import fused

    return fused.draw_words(key_on(key, CPU), first, count).numpy()


def interpreter() -> ProcessPoolExecutor:
    """A pool of one fresh process in which Triton interprets; warnings are errors there too."""
    with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
        pool = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=warnings.simplefilter,
            initargs=("error",),
        )
        pool.submit(os.getpid).result()  # it has started, with this environment
    return pool
