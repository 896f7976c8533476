"""Compiled inner loops of vectors: imported when first needed, because numba is heavy."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.kernels import compiled, inlined, look_up, put, take
from mezzotint.core.types import FloatArray, IntArray, Words
from mezzotint.vectors import octaves
from mezzotint.vectors.octaves import UNDECIDED

SIGN_BIT = 31
"""Of the 32-bit numbers that normal numbers are made from."""

MAGNITUDE_BITS = np.uint32(2**SIGN_BIT - 1)
"""The bits below the sign."""


@compiled
def transform(values: np.ndarray, scale: float) -> None:
    """Walsh-Hadamard transform in place of every row of (n, 2**m), then times `scale`.

    Two levels a pass; sums are those of the plain algorithm in its order, so the bits are the same.
    """
    size = values.shape[1]
    for row in range(values.shape[0]):
        entries = values[row]
        half = 1
        while 2 * half < size:
            for start in range(0, size, 4 * half):
                for index in range(start, start + half):
                    sum_low = entries[index] + entries[index + half]
                    difference_low = entries[index] - entries[index + half]
                    sum_high = entries[index + 2 * half] + entries[index + 3 * half]
                    difference_high = entries[index + 2 * half] - entries[index + 3 * half]
                    entries[index] = sum_low + sum_high
                    entries[index + half] = difference_low + difference_high
                    entries[index + 2 * half] = sum_low - sum_high
                    entries[index + 3 * half] = difference_low - difference_high
            half *= 4
        if half < size:
            for index in range(half):
                lower = entries[index]
                upper = entries[index + half]
                entries[index] = lower + upper
                entries[index + half] = lower - upper
        for index in range(size):
            entries[index] *= scale


@compiled
def pick_distinct(
    numbers: np.ndarray,
    taken: np.ndarray,
    distinct: np.ndarray,
    count: int,
) -> int:
    """Append to the first `count` of `distinct` the numbers modulo taken.size that are not `taken`
    yet.

    taken.size is a power of two. Returns how many `distinct` then holds.
    """
    mask = np.uint32(taken.size - 1)
    for number in numbers:
        if count == distinct.size:
            break
        residue = number & mask
        if taken[residue] == 0:
            taken[residue] = 1
            distinct[count] = residue
            count += 1
    return count


@inlined
def _normal(word: np.uint32, table: np.ndarray, octave_bits: int) -> int:
    """Units of a normal number: the top bit is its sign, the others its position in the tail."""
    position = np.int64(word & MAGNITUDE_BITS)
    # How far the position reaches beyond the first pieces: the exponent of the float that it is
    # (exact below 2**53).
    shift = 0
    excess = position >> (octave_bits + 1)
    while excess > 0:
        excess >>= 1
        shift += 1
    piece = (shift << octave_bits) + (position >> shift)
    start = table[piece]
    offset = position & ((1 << shift) - 1)
    size = start - (((start - table[piece + 1]) * offset) >> shift)
    return -size if word >> np.uint32(SIGN_BIT) else size


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
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            rows[row, column] = _normal(numbers[row * stride + column], table, octave_bits) * unit


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
    for row in range(products.size):
        product = 0.0
        for column in range(vector.size):
            product += _normal(numbers[row * stride + column], table, octave_bits) * vector[column]
        products[row] = product * unit


@compiled
def lift(
    values: np.ndarray,
    clip_norm: float,
    slack: bool,
    normalize: bool,
    lifted: np.ndarray,
) -> float:
    """Writes values / clip_norm, at most of norm 1, into `lifted` (longer, zeros), and returns its
    norm.

    Arguments:
        values: (d,); entries that are not finite count as 0.
        slack: entry d becomes what is missing to norm 1.
        normalize: what is written has norm 1 (or 0), whatever the norm returned.
    """
    largest = 0.0
    for index in range(values.size):
        value = np.float64(values[index])
        lifted[index] = value if abs(value) < np.inf else 0.0
        largest = max(largest, abs(lifted[index]))
    if largest == 0:
        largest = 1.0
    squares = 0.0
    for index in range(values.size):
        # Divided first, so that no square overflows or vanishes.
        lifted[index] /= largest
        squares += lifted[index] * lifted[index]
    # 0 or at least 1, so that only 0 times infinity needs care.
    scaled_norm = math.sqrt(squares)
    norm = 0.0
    factor = 1.0
    if scaled_norm > 0:
        norm = min(1.0, scaled_norm * (largest / clip_norm))
        factor = (1.0 if normalize else norm) / scaled_norm
    for index in range(values.size):
        lifted[index] *= factor
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
        words: (n,) contiguous uint64: a sign, then 63 bits w of a uniform number u = w / 2^64 <
            1/2.
        centres: (n,) contiguous float64, what the noise is added to before it is rounded; or (1,),
            one for all.
        table: cells' polynomials in contiguous rows; the last row is zero and stands for u = 1/2.
        sigma: standard deviation.
        margin: how near to a rounding boundary centre + sigma * z(u) is not trusted.
        noise: (n,) contiguous int64 output.

    Returns: how many are undecided.
    """
    undecided_count = 0
    stride = np.int64(centres.size > 1)
    coefficients = table.ravel()
    for index in range(words.size):
        word = np.int64(take(words, index))
        float_bits = np.float64(word & octaves.MAGNITUDE).view(np.int64)
        cell = (float_bits >> octaves.SHIFT) - octaves.FIRST_CELL
        row = (cell if cell > 0 else 0) * octaves.TERMS
        mantissa = np.int64((float_bits & octaves.IN_CELL) | octaves.ONE).view(np.float64)
        offset = mantissa - octaves.MIDDLE
        quantile = 0.0
        for power in range(octaves.TERMS - 1, -1, -1):
            quantile = quantile * offset + look_up(coefficients, row + power)
        deviation = sigma * quantile
        raised = take(centres, index * stride) + (-deviation if word < 0 else deviation) + 0.5
        rounded = np.floor(raised)
        fraction = raised - rounded
        is_decided = (cell >= 0) & (fraction > margin) & (fraction < 1 - margin)
        undecided_count += not is_decided
        put(noise, index, np.int64(rounded) if is_decided else UNDECIDED)
    return undecided_count
