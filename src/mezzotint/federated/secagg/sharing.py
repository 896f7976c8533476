"""Secrets of 128 bits in shares: Shamir over GF(2^128), by PyCryptodome.

PyCryptodome's `Shamir` shares exactly 16 bytes with share numbers from 1, draws its coefficients from the operating
system, is maintained, and comes with Flower already. Other packages on the registry either share over a prime field
without constant care for lengths or have had no release for years.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from Crypto.Protocol.SecretSharing import Shamir

from mezzotint.federated.secagg.wire import number

SHARE_BYTES = 16
COMMITMENT_BYTES = 16


def split(secret: bytes, holders: tuple[int, ...], threshold: int) -> dict[int, bytes]:
    """One share of a 16-byte secret per holder; any `threshold` of them restore it, fewer say nothing.

    Holder number i, in the given order, holds the polynomial's value at i + 1.
    """
    if threshold == 1:
        return dict.fromkeys(holders, secret)
    points = dict(Shamir.split(threshold, len(holders), secret, False))
    return {holder: points[place] for place, holder in enumerate(holders, start=1)}


def combine(shares: Mapping[int, bytes], holders: tuple[int, ...], threshold: int) -> bytes:
    """The secret from shares of at least `threshold` of the holders (the first ones are used).

    Arguments:
        shares: holder -> share.
        holders: all holders, in the order in which the secret was split.
    """
    place = {holder: point for point, holder in enumerate(holders, start=1)}
    chosen = sorted(shares)[:threshold]
    if threshold == 1:
        return shares[chosen[0]]
    return bytes(Shamir.combine([(place[holder], shares[holder]) for holder in chosen], False))


def commitment(share: bytes, *, plan: bytes, owner: int, holder: int, kind: bytes) -> bytes:
    """16 bytes by which the server recognises the share later; a share has 128 bits of entropy, so it stays hidden."""
    about = plan + kind + number(owner, 2) + number(holder, 2)
    return hashlib.sha256(b"mezzotint share" + about + share).digest()[:COMMITMENT_BYTES]
