"""The ChaCha20 keystream in torch's 32-bit integers, on whatever device the key is."""

from __future__ import annotations

import numpy as np
import torch

from mezzotint.core.gpu.transfer import to_device

WORDS_PER_BLOCK = 8
"""A ChaCha block is 64 bytes: eight words of 64 bits."""

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k", little-endian


def key_on(key: bytes, device: torch.device) -> torch.Tensor:
    """The 32 bytes of a key as (8,) int32 on `device`. Whoever asks for it overwrites it after use."""
    return to_device(np.frombuffer(key, dtype="<i4").astype(np.int32), device)


# torch's unsigned types know few operations. Signed ones add and shift left modulo 2^32 just the same; only the shift
# right drags the sign along, and the mask takes it off.
def _rotate(x: torch.Tensor, count: int) -> torch.Tensor:
    return (x << count) | ((x >> (32 - count)) & ((1 << count) - 1))


def _quarters(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four quarter rounds at once, one per row of the (4, blocks) arguments (RFC 8439, 2.1)."""
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


def halves(key: torch.Tensor, first: int, blocks: int, nonce: tuple[int, int] = (0, 0)) -> torch.Tensor:
    """Consecutive words of the keystream, as pairs of halves.

    Arguments:
        key: (8,) int32, from `key_on`; its device does the work.
        first: number of the first block, 0 to 2**63 - 1: the 64-bit counter of the original ChaCha20. (The RFC's
            32-bit counter and first nonce word are its low and high half.)
        blocks: how many blocks, >= 0; 8 words each.
        nonce: the two words after the counter, below 2**31. Keys are used for one call only, so it stays 0.

    Returns: (8 * blocks, 2) int32: low and high half of each word, so that the bytes in memory are the keystream.

    Guarantees: the bytes equal those of the RFC's test vectors and of `cryptography`.

    Source: Bernstein (2008), ChaCha, a variant of Salsa20; RFC 8439, 2.3.
    """
    counters = torch.arange(first, first + blocks, dtype=torch.int64, device=key.device)
    halves_of_counter = counters.view(torch.int32).reshape(-1, 2).T
    fixed = torch.tensor([*_CONSTANTS, *nonce], dtype=torch.int32, device=key.device)[:, None].expand(-1, blocks)
    rows = (fixed[:4], key[:4, None].expand(-1, blocks), key[4:, None].expand(-1, blocks))
    start = (*rows, torch.cat([halves_of_counter, fixed[4:]]))
    a, b, c, d = start
    for _ in range(10):
        a, b, c, d = _quarters(a, b, c, d)
        # The diagonals of the 4 x 4 state become columns, and go back.
        a, b, c, d = _quarters(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    state = torch.cat([now + then for now, then in zip((a, b, c, d), start, strict=True)])
    return state.T.reshape(-1, 2)
