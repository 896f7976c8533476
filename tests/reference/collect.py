"""Slow and obvious twins of the room `collect`: loops, exact fractions, enumeration, a general optimiser."""

from __future__ import annotations

import csv
import gzip
import hashlib
import hmac
import itertools
import math
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.core.mechanism import Mechanism
from reference.sampler import codes_from_words, element_words


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, plain or gzipped, comment lines left out, by the standard library."""
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(line for line in handle if not line.startswith("# mezzotint")))


def exact_mean(counts: list[int], levels: list[float]) -> Fraction:
    """Mean of the decoded reports as a rational."""
    total = sum(
        (Fraction(level) * count for level, count in zip(levels, counts, strict=True)), Fraction(0)
    )
    return total / sum(counts)


def exact_variance(counts: list[int], levels: list[float]) -> Fraction:
    """Unbiased variance of the decoded reports as a rational."""
    mean = exact_mean(counts, levels)
    spread = sum(
        ((Fraction(b) - mean) ** 2 * c for b, c in zip(levels, counts, strict=True)), Fraction(0)
    )
    return spread / (sum(counts) - 1)


def deviance(counts: np.ndarray, shares: np.ndarray) -> float:
    """2 n KL(observed || shares), term by term."""
    n = int(counts.sum())
    return 2 * sum(
        int(c) * math.log(int(c) / n / float(p)) for c, p in zip(counts, shares, strict=True) if c
    )


def _maximum_likelihood(pmf: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Plain EM, many steps."""
    masses = np.full(pmf.shape[0], 1 / pmf.shape[0])
    share = counts / counts.sum()
    for _ in range(20_000):
        masses = masses * (pmf @ (share / (masses @ pmf)))
        masses /= masses.sum()
    return masses


def least_deviance(mechanism: Mechanism, counts: np.ndarray, points: np.ndarray) -> float:
    """Deviance of the best distribution on `points`, by plain EM."""
    pmf = mechanism.pmf(points)
    return deviance(counts, _maximum_likelihood(pmf, counts) @ pmf)


def greatest_variance(mechanism: Mechanism, *, steps: int = 400) -> float:
    """Greatest variance of a report over inputs that take one or two values, on a grid of pairs and weights."""
    rows = mechanism.probabilities
    best = 0.0
    for first, second in itertools.combinations_with_replacement(range(len(rows)), 2):
        for share in np.linspace(0, 1, steps + 1):
            p = (1 - share) * rows[first] + share * rows[second]
            mean = p @ mechanism.levels
            best = max(best, float(p @ (mechanism.levels - mean) ** 2))
    return best


def block_codes(mechanism: Mechanism, values: list[float], *, key: bytes, index: int) -> list[int]:
    """The codes of one block of a folder of parts in a seeded run: key by hashing, words one by one."""
    derived = hashlib.sha256(b"mezzotint block " + str(index).encode() + b" " + key).digest()
    return codes_from_words(
        mechanism, np.array(values), element_words(derived, 0, len(values))
    ).tolist()


def memo_code(mechanism: Mechanism, value: float, user: str, *, key: bytes, column: str) -> int:
    """One memoised report: AES in CBC mode over the two blocks of user and value."""
    purpose = b"mezzotint memo\0" + bytes.fromhex(mechanism.sha256) + column.encode()
    derived = hmac.new(key, purpose, hashlib.sha256).digest()
    text = user.encode()
    if len(text) <= 15:
        identity = bytes([len(text)]) + text + bytes(15 - len(text))
    else:
        identity = b"\xff" + hashlib.blake2b(text, key=derived, digest_size=15).digest()
    clipped = min(max(float(value), mechanism.lower), mechanism.upper)
    message = identity + struct.pack("<d", 0.0 if clipped == 0 else clipped) + bytes(8)
    cbc = Cipher(algorithms.AES(derived), modes.CBC(bytes(16))).encryptor()
    word = int.from_bytes(cbc.update(message)[16:24], "little")
    return int(
        codes_from_words(mechanism, np.array([clipped]), np.array([word], dtype=np.uint64))[0]
    )


def plain_em(pmf: np.ndarray, counts: np.ndarray, *, start: np.ndarray, gain: float) -> np.ndarray:
    """EM as in the textbook, until 50 steps gain less than `gain` in the log-likelihood per report."""
    masses, share, before = start.copy(), counts / counts.sum(), -np.inf
    while True:
        after = float(np.sum(share[share > 0] * np.log((masses @ pmf)[share > 0])))
        if after - before < gain:
            return masses
        before = after
        for _ in range(50):
            responsibilities = masses[:, None] * pmf / (masses @ pmf)
            masses = responsibilities @ share


def gap_at(pmf: np.ndarray, counts: np.ndarray, masses: np.ndarray) -> float:
    """Bound on how far the deviance of masses is above the least possible: the log-likelihood is concave."""
    shares = counts / counts.sum()
    seen = shares > 0
    slopes = pmf[:, seen] @ (shares[seen] / (masses @ pmf[:, seen]))
    return max(0.0, 2 * counts.sum() * (float(slopes.max()) - 1))
