"""Keys, masks and shares.

Masks are words of a keystream, cut to the modulus. It is 2**bits, so they need no rejection:
addition is done modulo the width of the word (8, 16 or 32 bits), which 2**bits divides, and the
surplus bits are dropped once at the end. Integers of any width lie on the wire without gaps.

Shares are Shamir's, of 16-byte secrets over the integers modulo 2**130 - 5. A committee of hundreds
holds shares of every client's secrets. Libraries compute in GF(2**128), bit by bit: seconds for a
secret where a prime field takes milliseconds. Fewer shares than the threshold are uniform whatever
the field.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mezzotint.core.sampler import (
    BLOCK,
    WORD_BYTES,
    Keystream,
    fast_start,
    packed_size,
    surplus_bits,
    unpack_words,
    word_type,
)
from mezzotint.federated.secagg.wire import (
    MalformedMessage,
    OutOfRangeInteger,
    SwappedKey,
    client_number,
    number,
)

Words = npt.NDArray[np.unsignedinteger]


def add_mask(total: Words, key: bytes, *, sign: int) -> None:
    """Add (sign 1) or subtract (sign -1) the keystream of `key` in place; the key is used for this
    mask alone.
    """
    stream = Keystream(key, fast_start(0))
    per_block = BLOCK * WORD_BYTES // total.itemsize
    buffer_words = min(BLOCK, _word_count(total))
    buffer = np.empty(buffer_words, dtype=np.uint64)
    combine = np.subtract
    if sign > 0:
        combine = np.add
    for offset in range(0, total.size, per_block):
        block = total[offset : offset + per_block]
        words = buffer[: _word_count(block)]
        stream.fill(words)
        mask = words.view(total.dtype)
        combine(block, mask[: block.size], out=block)


def _word_count(block: Words) -> int:
    """64-bit words of a keystream that cover a block."""
    return math.ceil(block.nbytes / WORD_BYTES)


def pair_sign(mine: int, theirs: int) -> int:
    """The sign with which a client adds the mask of a pair: 1 for the client of the lower index, -1
    for the other.
    """
    if mine < theirs:
        return 1
    return -1


def checked_integers(
    values: npt.ArrayLike, *, coordinates: int, span: int, bits: int, stage: str
) -> Words:
    """A copy of the integers as words, after checking them.

    Raises:
        MalformedMessage: another number of coordinates, or not integers.
        OutOfRangeInteger: a value below 0 or above `span`; the message names neither the value nor
            its place, for it can travel and the integers are a client's data.
    """
    integers = np.asarray(values)
    if integers.shape != (coordinates,) or integers.dtype.kind not in "iu":
        description = f"{integers.dtype} of shape {integers.shape}"
        raise MalformedMessage(stage, f"need {coordinates} integers, got {description}")
    smallest = int(integers.min())
    largest = int(integers.max())
    if smallest < 0 or largest > span:
        raise OutOfRangeInteger(stage, f"an integer lies outside 0..{span}")
    return integers.astype(word_type(bits))


def reduced(total: Words, bits: int) -> Words:
    """The words modulo 2**bits."""
    modulus = 2**bits
    low_bits = total.dtype.type(modulus - 1)
    return np.bitwise_and(total, low_bits)


def read_words(data: bytes, bits: int, count: int, *, stage: str) -> Words:
    """The words of a message that `pack_words` packed; MalformedMessage for anything else."""
    expected_bytes = packed_size(count, bits)
    if len(data) != expected_bytes:
        complaint = f"but {count} words of {bits} bits take {expected_bytes}"
        raise MalformedMessage(stage, f"{len(data)} bytes, {complaint}")
    if surplus_bits(data, bits, count):
        raise MalformedMessage(stage, "bits are set after the last word")
    return unpack_words(data, bits, count)


KEY_BYTES = 32
SEED_BYTES = 16
SIGNATURE_BYTES = 64
TAG_BYTES = 16
_ONE_MESSAGE = bytes(12)
"""Nonce: every encryption key is derived for one message and used once."""


def derive(secret: bytes, *, plan: bytes, purpose: bytes) -> bytes:
    """32 bytes by HKDF-SHA256, salted with the plan's digest."""
    info = b"mezzotint " + purpose
    derivation = HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=plan, info=info)
    return derivation.derive(secret)


def public_bytes(key: X25519PrivateKey | Ed25519PrivateKey) -> bytes:
    """The raw public key."""
    return key.public_key().public_bytes_raw()


def agree(
    private: X25519PrivateKey, public: bytes, *, plan: bytes, purpose: bytes, stage: str = "sum"
) -> bytes:
    """The key that two clients share for one purpose in one round; SwappedKey for a public key of
    small order.
    """
    try:
        public_key = X25519PublicKey.from_public_bytes(public)
        shared = private.exchange(public_key)
    except ValueError:
        raise SwappedKey(
            stage, "a public key has no large order; nobody honest makes such a key"
        ) from None
    return derive(shared, plan=plan, purpose=purpose)


_ANYBODY = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))
"""No secret. Its scalar is 2**254, which leads points of small order to zero, and none of large
order.
"""


def has_large_order(public: bytes) -> bool:
    """Whether an X25519 public key has large order; with the few others everybody agrees on the
    same secret.
    """
    try:
        public_key = X25519PublicKey.from_public_bytes(public)
        _ANYBODY.exchange(public_key)
    except ValueError:
        return False
    return True


def pair_purpose(name: bytes, first: int, second: int) -> bytes:
    """Purpose of a key between two clients, in the given order."""
    return name + client_number(first) + client_number(second)


def seal(key: bytes, text: bytes, *, about: bytes) -> bytes:
    """Encrypt one message under a key used for nothing else."""
    cipher = ChaCha20Poly1305(key)
    return cipher.encrypt(_ONE_MESSAGE, text, about)


def unseal(key: bytes, sealed: bytes, *, about: bytes) -> bytes | None:
    """Decrypt; None if the message was cut, changed, or meant for somebody else."""
    try:
        cipher = ChaCha20Poly1305(key)
        return cipher.decrypt(_ONE_MESSAGE, sealed, about)
    except (InvalidTag, ValueError):
        return None


def sign(identity: Ed25519PrivateKey, statement: bytes) -> bytes:
    """64 bytes of Ed25519."""
    return identity.sign(statement)


_EIGHTH = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc"
_OTHER_EIGHTH = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03"
SMALL_IDENTITIES = frozenset(
    bytes.fromhex(point)
    for point in (
        # y = 1, -1, 0, with either sign of x, and the same with y + p where that fits.
        *(first + "00" * 30 + last for first in ("00", "01") for last in ("00", "80")),
        *(first + "ff" * 30 + last for first in ("ec", "ed", "ee") for last in ("7f", "ff")),
        *(_EIGHTH + last for last in ("05", "85")),
        *(_OTHER_EIGHTH + last for last in ("7a", "fa")),
    )
)
"""All encodings of the eight Ed25519 points of small order: under such a key anybody signs
anything.
"""


def signed(identity: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of `identity` signed the statement; nobody owns a point of small order."""
    if identity in SMALL_IDENTITIES:
        return False
    try:
        public_key = Ed25519PublicKey.from_public_bytes(identity)
        public_key.verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


PRIME = 2**130 - 5
SECRET_BYTES = 16
SHARE_BYTES = 17
COMMITMENT_BYTES = 16


def split(secret: bytes, holders: int, threshold: int) -> list[bytes]:
    """One share per holder; any `threshold` of them restore the secret of 16 bytes, fewer reveal
    nothing about it.
    """
    polynomial = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    polynomial.append(int.from_bytes(secret, "little"))
    shares: list[bytes] = []
    for abscissa in range(1, holders + 1):
        ordinate = 0
        for coefficient in polynomial:  # Horner, highest power first
            ordinate = (ordinate * abscissa + coefficient) % PRIME
        shares.append(number(ordinate, SHARE_BYTES))
    return shares


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """The secret from the first `threshold` shares, by their holders' places; None if they are
    inconsistent.
    """
    holders = sorted(shares)[:threshold]
    weights = _weights(tuple(holders))
    weighted_sum = 0
    for holder, weight in zip(holders, weights, strict=True):
        share = int.from_bytes(shares[holder], "little")
        weighted_sum += weight * share
    secret_number = weighted_sum % PRIME
    if secret_number >= 2 ** (8 * SECRET_BYTES):
        return None
    return number(secret_number, SECRET_BYTES)


@lru_cache(maxsize=64)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights of the values at places + 1 for the value at 0."""
    abscissas = [holder + 1 for holder in places]
    weights: list[int] = []
    for abscissa in abscissas:
        numerator = 1
        denominator = 1
        for neighbour in abscissas:
            if neighbour != abscissa:
                numerator = numerator * neighbour % PRIME
                denominator = denominator * (neighbour - abscissa) % PRIME
        inverse = pow(denominator, -1, PRIME)
        weight = numerator * inverse % PRIME
        weights.append(weight)
    return tuple(weights)


def commitment(share: bytes, *, plan: bytes, owner: int, holder: int, kind: bytes) -> bytes:
    """16 bytes that identify the share later; it has 128 bits of entropy, and so stays hidden."""
    context = pair_purpose(plan + kind, owner, holder)
    digest = hashlib.sha256(b"mezzotint share" + context + share).digest()
    return digest[:COMMITMENT_BYTES]
