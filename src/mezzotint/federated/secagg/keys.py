"""Keys of one round: X25519 agreements, HKDF derivations, authenticated encryption, Ed25519 signatures.

All come from `cryptography`; nothing here computes on secrets itself. Every derivation is salted with the plan's
digest (which holds 16 random bytes and the round), so no key serves two rounds or two purposes.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mezzotint.federated.secagg.errors import SwappedKey, TamperedShare
from mezzotint.federated.secagg.wire import number

KEY_BYTES = 32
SEED_BYTES = 16
SIGNATURE_BYTES = 64
TAG_BYTES = 16
_ONE_MESSAGE = bytes(12)
"""Nonce: every encryption key is derived for one message and used once."""


def derive(secret: bytes, *, plan: bytes, purpose: bytes) -> bytes:
    """32 bytes by HKDF-SHA256, salted with the plan's digest."""
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=plan, info=b"mezzotint " + purpose).derive(secret)


def private_from_seed(seed: bytes, *, plan: bytes, index: int, purpose: bytes) -> X25519PrivateKey:
    """The X25519 key of a 128-bit seed. X25519 itself offers 128 bits; the salt rules out shared searches."""
    return X25519PrivateKey.from_private_bytes(derive(seed, plan=plan, purpose=purpose + number(index, 2)))


def public_bytes(key: X25519PrivateKey | Ed25519PrivateKey) -> bytes:
    """The raw public key."""
    return key.public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes, *, plan: bytes, purpose: bytes) -> bytes:
    """The key that two clients share for one purpose in one round.

    Raises:
        SwappedKey: a public key that is no point of large order.
    """
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise SwappedKey("share", "a public key has no large order; nobody honest makes such a key") from None
    return derive(shared, plan=plan, purpose=purpose)


def has_large_order(public: bytes) -> bool:
    """Whether an X25519 public key can be agreed with; the few points of small order lead everybody to one secret."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def pair_purpose(name: bytes, first: int, second: int) -> bytes:
    """Purpose of a key between two clients, in the given order."""
    return name + number(first, 2) + number(second, 2)


def seal(key: bytes, text: bytes, *, about: bytes) -> bytes:
    """Encrypts one message under a key used for nothing else."""
    return ChaCha20Poly1305(key).encrypt(_ONE_MESSAGE, text, about)


def unseal(key: bytes, sealed: bytes, *, about: bytes, sender: int) -> bytes:
    """Decrypts, or raises TamperedShare."""
    try:
        return ChaCha20Poly1305(key).decrypt(_ONE_MESSAGE, sealed, about)
    except (InvalidTag, ValueError):
        raise TamperedShare("mask", f"the shares of client {sender} were cut or changed", (sender,)) from None


def sign(identity: Ed25519PrivateKey, statement: bytes) -> bytes:
    """64 bytes of Ed25519."""
    return identity.sign(statement)


def signed(identity: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of `identity` signed the statement."""
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True
