"""The sampler once more, slow and plain: numpy and Python integers, no numba, no packed tables."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint import Mechanism

TOTAL = 2**32


def alias_row(weights: list[int], bits: int) -> list[tuple[int, int]]:
    """(threshold, alias) of every cell of one row, by the sweep that docs/proofs/sampling.md describes."""
    size, capacity = 2**bits, 2 ** (32 - bits)
    units = weights + [0] * (size - len(weights))
    cells: list[tuple[int, int]] = [(capacity, cell) for cell in range(size)]
    light = [cell for cell in range(size) if units[cell] < capacity]
    heavy = [cell for cell in range(size) if units[cell] > capacity]
    while heavy:
        giver = heavy[0]
        if units[giver] > capacity:
            filled = light.pop(0)
            cells[filled] = (units[filled], giver)
            units[giver] -= capacity - units[filled]
        else:
            heavy.pop(0)
            if units[giver] < capacity:
                cells[giver] = (units[giver], heavy[0])
                units[heavy[0]] -= capacity - units[giver]
    return cells


def exact_threshold(mechanism: Mechanism, x: float) -> tuple[int, Fraction]:
    """Left row and t * 2^32 of one input, in rationals."""
    clipped = min(max(x, mechanism.lower), mechanism.upper)
    knots = mechanism.knots
    row = max(k for k in range(knots.size - 1) if knots[k] <= clipped and knots[k] < knots[k + 1])
    left, right = Fraction(knots[row]), Fraction(knots[row + 1])
    return row, (Fraction(clipped) - left) / (right - left) * TOTAL


def threshold(mechanism: Mechanism, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left rows and t * 2^32 rounded to integers, in float64."""
    clipped = np.clip(np.asarray(x, dtype=np.float64), mechanism.lower, mechanism.upper)
    knots = mechanism.knots
    row = np.minimum(np.searchsorted(knots, clipped, side="right") - 1, knots.size - 2)
    t = (clipped - knots[row]) / (knots[row + 1] - knots[row])
    return row, np.rint(t * TOTAL).astype(np.int64)


def codes_from_words(mechanism: Mechanism, x: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The codes that words lead to, high halves against t, low halves through the alias cells."""
    row, limit = threshold(mechanism, x)
    high, low = (
        (words >> np.uint64(32)).astype(np.int64),
        (words & np.uint64(TOTAL - 1)).astype(np.int64),
    )
    row = row + (high < limit)
    cells = np.array([alias_row(weights, mechanism.bits) for weights in mechanism.weights.tolist()])
    cell, unit = low >> (32 - mechanism.bits), low & (2 ** (32 - mechanism.bits) - 1)
    first, alias = cells[row, cell, 0], cells[row, cell, 1]
    return np.where(unit < first, cell, alias)


def keystream(key: bytes, start: int, count: int) -> np.ndarray:
    """Words start..start+count-1 of AES-256-CTR from counter 0, by encrypting the counters one by one."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    first, last = start // 2, (start + count + 1) // 2
    stream = b"".join(
        encryptor.update(counter.to_bytes(16, "big")) for counter in range(first, last)
    )
    return np.frombuffer(stream, dtype="<u8")[start - 2 * first :][:count]


def element_words(key: bytes, first: int, count: int, part: int = 2**18) -> np.ndarray:
    """The words of elements first..first+count-1: element i takes word i % part of AES counter blocks from
    2**32 (i // part) + 2 on, two words a block; every part is drawn from its beginning."""
    words = [
        keystream(key, 2 * (2**32 * k + 2), part)
        for k in range(first // part, (first + count - 1) // part + 1)
    ]
    return np.concatenate(words)[first % part :][:count]


def telltale(knots: np.ndarray) -> Mechanism:
    """Row k always reports level k: the code tells which row was drawn."""
    return Mechanism(
        knots=knots,
        levels=np.arange(knots.size, dtype=np.float64),
        weights=TOTAL * np.eye(knots.size, dtype=np.int64),
    )


def inputs_for(mechanism: Mechanism, generator: np.random.Generator, count: int) -> np.ndarray:
    """Inputs all over the range and beyond it, at knots, next to knots, infinite."""
    knots, width = mechanism.knots, mechanism.upper - mechanism.lower
    inside = mechanism.lower + width * generator.uniform(-0.1, 1.1, count)
    close = generator.choice(knots, count) + width * 1e-7 * generator.standard_normal(count)
    exact = generator.choice(
        np.concatenate(
            [knots, np.nextafter(knots, np.inf), np.nextafter(knots, -np.inf), [np.inf, -np.inf]]
        ),
        count,
    )
    return generator.choice(np.stack([inside, inside, close, exact]), axis=0)
