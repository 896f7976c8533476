"""Shamir's scheme on 16-byte secrets, over the integers modulo 2**130 - 5.

A committee of hundreds holds shares of every client's secrets. Libraries compute in GF(2**128), bit by bit: seconds for
a secret where a prime field takes milliseconds. Fewer shares than the threshold are uniform whatever the field.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from functools import lru_cache

from mezzotint.federated.secagg.wire import number

PRIME = 2**130 - 5
SECRET_BYTES = 16
SHARE_BYTES = 17
COMMITMENT_BYTES = 16


def split(secret: bytes, holders: int, threshold: int) -> list[bytes]:
    """One share per holder; any `threshold` of them restore the secret, fewer say nothing about it.

    Arguments:
        secret: 16 bytes.
        holders, threshold: numbers.

    Returns: the polynomial's values at 1, 2, ..., holders.
    """
    polynomial = [*(secrets.randbelow(PRIME) for _ in range(threshold - 1)), int.from_bytes(secret, "little")]
    shares: list[bytes] = []
    for point in range(1, holders + 1):
        value = 0
        for coefficient in polynomial:  # Horner, highest power first
            value = (value * point + coefficient) % PRIME
        shares.append(number(value, SHARE_BYTES))
    return shares


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """The secret from at least `threshold` shares, of which the first are used; None if they are not of one secret.

    Arguments:
        shares: place of the holder, from 0 -> its share.
    """
    chosen = tuple(sorted(shares)[:threshold])
    weights = _weights(chosen)
    total = sum(weight * int.from_bytes(shares[place], "little") for place, weight in zip(chosen, weights, strict=True))
    value = total % PRIME
    return number(value, SECRET_BYTES) if value < 2 ** (8 * SECRET_BYTES) else None


@lru_cache(maxsize=64)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights of the values at places + 1 for the value at 0."""
    points = [place + 1 for place in places]
    weights: list[int] = []
    for one in points:
        above, below = 1, 1
        for other in points:
            if other != one:
                above = above * other % PRIME
                below = below * (other - one) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)


def commitment(share: bytes, *, plan: bytes, owner: int, holder: int, kind: bytes) -> bytes:
    """16 bytes by which the server recognises the share later; a share has 128 bits of entropy, so it stays hidden."""
    about = plan + kind + number(owner, 2) + number(holder, 2)
    return hashlib.sha256(b"mezzotint share" + about + share).digest()[:COMMITMENT_BYTES]
