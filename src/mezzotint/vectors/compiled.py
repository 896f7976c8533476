"""Compiled inner loops of the room: imported when first needed, because numba is heavy."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.kernels import compiled, inlined, look_up, put, take
from mezzotint.core.types import FloatArray, IntArray, Words
from mezzotint.vectors import octaves
from mezzotint.vectors.octaves import UNDECIDED


@compiled
def transform(values: np.ndarray, scale: float) -> None:
    """Walsh-Hadamard transform in place of every row of (n, 2**m), then times `scale`.

    Two levels a pass; sums are those of the plain algorithm in its order, so the bits are the same.
    """
    size = values.shape[1]
    for row in range(values.shape[0]):
        x = values[row]
        half = 1
        while 2 * half < size:
            for start in range(0, size, 4 * half):
                for i in range(start, start + half):
                    a, b, c, d = x[i], x[i + half], x[i + 2 * half], x[i + 3 * half]
                    s, t, u, v = a + b, a - b, c + d, c - d
                    x[i], x[i + half], x[i + 2 * half], x[i + 3 * half] = s + u, t + v, s - u, t - v
            half *= 4
        if half < size:
            for i in range(half):
                a, b = x[i], x[i + half]
                x[i], x[i + half] = a + b, a - b
        for i in range(size):
            x[i] *= scale


@compiled
def pick_distinct(numbers: np.ndarray, taken: np.ndarray, found: np.ndarray, have: int) -> int:
    """Appends to `found` the numbers modulo taken.size (a power of two) not `taken` yet; returns how many it has."""
    mask = np.uint32(taken.size - 1)
    for number in numbers:
        if have == found.size:
            break
        place = number & mask
        if taken[place] == 0:
            taken[place] = 1
            found[have] = place
            have += 1
    return have


@inlined
def _normal(word: np.uint32, table: np.ndarray, octave_bits: int) -> int:
    """Units of a normal number: the top bit is its sign, the others its place in the tail."""
    place = np.int64(word & np.uint32(0x7FFFFFFF))
    # How far the place reaches beyond the first pieces: the exponent of the float that it is (exact below 2**53).
    shift = 0
    top = place >> (octave_bits + 1)
    while top > 0:
        top >>= 1
        shift += 1
    piece = (shift << octave_bits) + (place >> shift)
    left = table[piece]
    size = left - (((left - table[piece + 1]) * (place & ((1 << shift) - 1))) >> shift)
    return -size if word >> np.uint32(31) else size


@compiled
def normal_numbers(
    numbers: np.ndarray,
    table: np.ndarray,
    stride: int,
    octave_bits: int,
    unit: float,
    rows: np.ndarray,
) -> None:
    """Fills (n, width) rows from n * stride words."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            rows[i, j] = _normal(numbers[i * stride + j], table, octave_bits) * unit


@compiled
def normal_products(
    numbers: np.ndarray,
    table: np.ndarray,
    stride: int,
    octave_bits: int,
    unit: float,
    vector: np.ndarray,
    products: np.ndarray,
) -> None:
    """Inner products of the rows, never stored, with a vector."""
    for i in range(products.size):
        total = 0.0
        for j in range(vector.size):
            total += _normal(numbers[i * stride + j], table, octave_bits) * vector[j]
        products[i] = total * unit


@compiled
def lift(
    values: np.ndarray, clip_norm: float, slack: bool, normalize: bool, lifted: np.ndarray
) -> float:
    """Writes values / clip_norm, at most of norm 1, into `lifted` (longer, zeros), and returns its norm.

    Arguments:
        values: (d,); entries that are not finite count as 0.
        slack: entry d becomes what is missing to norm 1.
        normalize: what is written has norm 1 (or 0), whatever the norm returned.
    """
    largest = 0.0
    for i in range(values.size):
        value = np.float64(values[i])
        finite = abs(value) < np.inf
        lifted[i] = value if finite else 0.0
        largest = max(largest, abs(lifted[i]))
    largest = largest if largest > 0 else 1.0
    squares = 0.0
    for i in range(values.size):
        # Divided first, so that no square overflows or vanishes.
        lifted[i] /= largest
        squares += lifted[i] * lifted[i]
    size = math.sqrt(squares)
    # size is 0 or at least 1, so that only 0 times infinity needs care.
    norm = min(1.0, size * (largest / clip_norm)) if size > 0 else 0.0
    factor = (1.0 if normalize else norm) / (size if size > 0 else 1.0)
    for i in range(values.size):
        lifted[i] *= factor
    if slack:
        lifted[values.size] = math.sqrt(max(0.0, 1.0 - norm * norm))
    return norm


@compiled
def draw(
    words: Words,
    centres: FloatArray,
    table: FloatArray,
    sigma: float,
    margin: float,
    noise: IntArray,
) -> int:
    """Draws integers where words decide them.

    Arguments:
        words: (n,) contiguous uint64: a sign, then 63 bits w of a uniform number u = w / 2^64 < 1/2.
        centres: (n,) contiguous float64, what the noise is added to before it is rounded; or (1,), one for all.
        table: cells' polynomials in contiguous rows; the last row is zero and stands for u = 1/2.
        sigma: standard deviation.
        margin: how near to a rounding boundary centre + sigma * z(u) is not trusted.
        noise: (n,) contiguous int64 output.

    Returns: how many are undecided.
    """
    missing, step = 0, np.int64(centres.size > 1)
    entries = table.ravel()
    for i in range(words.size):
        word = np.int64(take(words, i))
        bits = np.float64(word & octaves.MAGNITUDE).view(np.int64)
        cell = (bits >> octaves.SHIFT) - octaves.FIRST_CELL
        row = (cell if cell > 0 else 0) * 8
        t = np.int64((bits & octaves.IN_CELL) | octaves.ONE).view(np.float64) - octaves.MIDDLE
        z = look_up(entries, row + 7)
        z = z * t + look_up(entries, row + 6)
        z = z * t + look_up(entries, row + 5)
        z = z * t + look_up(entries, row + 4)
        z = z * t + look_up(entries, row + 3)
        z = z * t + look_up(entries, row + 2)
        z = z * t + look_up(entries, row + 1)
        z = z * t + look_up(entries, row)
        spread = sigma * z
        raised = take(centres, i * step) + (-spread if word < 0 else spread) + 0.5
        whole = np.floor(raised)
        rest = raised - whole
        decided = (cell >= 0) & (rest > margin) & (rest < 1 - margin)
        missing += not decided
        put(noise, i, np.int64(whole) if decided else UNDECIDED)
    return missing
