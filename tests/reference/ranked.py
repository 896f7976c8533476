"""Slow, obvious twins of ranked codebooks: the stream by scalar integers, codewords as one dense matrix."""

from __future__ import annotations

import hashlib
import itertools
import math
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import special

from reference.vectors import hadamard


def key(*fields: object) -> bytes:
    return hashlib.sha256(
        "\0".join(["mezzotint public stream 1", *map(str, fields)]).encode()
    ).digest()


def numbers(stream_key: bytes, block: int, count: int) -> list[int]:
    """32-bit numbers from AES block `block` on."""
    encryptor = Cipher(algorithms.AES(stream_key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
    raw = encryptor.update(bytes(4 * count))
    return [int.from_bytes(raw[4 * i : 4 * i + 4], "little") for i in range(count)]


def tail(place: int) -> float:
    """The N(0, 1) quantile of 1 - (place + 1/2) / 2**32."""
    return -float(special.ndtri((place + 0.5) / 2.0**32))


def node(piece: int) -> int:
    """Where a piece of the tail starts."""
    return piece if piece < 256 else (256 + piece % 256) << (piece // 256 - 1)


def normal(word: int) -> int:
    """Units of 2**-24: linear between the ends of the piece, found by search instead of shifts."""
    place = word & 0x7FFFFFFF
    low, high = 0, 6144
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if node(middle) <= place else (low, middle)
    start, end = node(low), node(low + 1)
    first, last = round(tail(start) * 2**24), 0 if low + 1 == 6144 else round(tail(end) * 2**24)
    size = first - (first - last) * (place - start) // (end - start)
    return -size if word >> 31 else size


def normal_row(stream_key: bytes, row: int, width: int) -> np.ndarray:
    blocks = -(-width // 4)
    words = numbers(stream_key, 2**32 + row * blocks, 4 * blocks)
    return np.array([normal(word) for word in words[:width]]) * 2.0**-24


def distinct(stream_key: bytes, count: int, among: int) -> list[int]:
    found: list[int] = []
    for number in numbers(stream_key, 0, 4096):
        if number % among not in found and len(found) < count:
            found.append(number % among)
    return found


def codewords(scheme, seed: int, place: int = 0) -> np.ndarray:
    """(M, d or d + 1) codewords as they are multiplied with the (lifted) vector, in its own coordinates."""
    size = scheme.dimension + (scheme.norms == "slack")
    count = scheme.table.codewords
    report = key("report", scheme.beacon, seed, place)
    width = size if scheme.subspace is None else scheme.subspace
    if scheme.kind in ("S", "X"):
        half = count - 1 if scheme.kind == "S" else count // 2
        basis: list[np.ndarray] = []
        for row in range(half):
            vector = normal_row(report, row, size)
            for other in basis:
                vector = vector - (vector @ other) * other
            basis.append(vector / np.linalg.norm(vector))
        rows = np.array(basis)
        if scheme.kind == "X":
            return np.vstack([rows, -rows])
        vertices = np.array(
            [
                [1.0 if m < j else -float(j) if m == j else 0.0 for j in range(1, count)]
                for m in range(count)
            ]
        )
        vertices /= np.linalg.norm(vertices, axis=0)
        return math.sqrt(count / (count - 1)) * vertices @ rows
    rows = np.array(
        [
            normal_row(report, row, width)
            for row in range(count if scheme.kind == "G" else count // 2)
        ]
    )
    rows = rows - rows.mean(axis=0) if scheme.kind == "G" else np.vstack([rows, -rows])
    if scheme.subspace is None:
        return rows
    padded = 1 << (size - 1).bit_length()
    bits = numbers(key("signs", scheme.beacon, seed >> 32), 0, 4 * -(-padded // 128))
    signs = np.array([1.0 if bits[j // 32] >> (j % 32) & 1 else -1.0 for j in range(padded)])
    matrix = (hadamard(padded) * signs)[distinct(report, width, padded)]
    return rows @ matrix[:, :size]


def all_orders(weights: list[int], fixed: list[int]) -> np.ndarray:
    """(M!, M + ...) the table over all orders of M codewords; `fixed` weights stand behind them in every row."""
    return np.array([[*order, *fixed] for order in itertools.permutations(weights)], dtype=np.int64)


def worst_ratio(table: np.ndarray) -> Fraction:
    return max(Fraction(int(column.max()), int(column.min())) for column in table.T)
