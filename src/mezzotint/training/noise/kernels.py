"""The loops over coordinates: draws of rounded Gaussians, norms of records, and sums of their integers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mezzotint.core.compiled import compiled, inlined

UNDECIDED = -(2**63)
"""Stands for a draw that its first word does not decide."""

LOWEST_OCTAVE = 38
"""Words are looked up where their low 63 bits w are at least 2^38; a draw further out, one in 2^25, is undecided."""

CELLS = 16
"""Cells of an octave 2^e <= w < 2^(e+1)."""

TERMS = 8
"""Coefficients of a cell's polynomial."""

_BELOW_SIGN = 2**63 - 1
_SHIFT = 48  # of the 52 bits of a float's mantissa, the upper 4 name the cell
_WITHIN = 2**_SHIFT - 1
_ONE = 1023 << 52
_FIRST_CELL = (1023 + LOWEST_OCTAVE) << 4
_MIDDLE = 1 + 1 / 32

EXACT = 2**53
"""Floats count to here."""


@compiled
def draw(words: Any, table: Any, sigma: Any, margin: Any, noise: Any) -> Any:
    """Draws integers where words decide them.

    Arguments:
        words: (n,) uint64: a sign, then 63 bits w of a uniform number u = w / 2^64 < 1/2.
        table: cells' polynomials in rows; the last row is zero and stands for u = 1/2.
        sigma: standard deviation.
        margin: how near to a rounding boundary sigma * z(u) is not trusted.
        noise: (n,) int64 output.

    Returns: how many are undecided.
    """
    missing = 0
    for i in range(words.size):
        word = np.int64(words[i])
        bits = np.float64(word & _BELOW_SIGN).view(np.int64)
        cell = (bits >> _SHIFT) - _FIRST_CELL
        row = cell if cell > 0 else 0
        t = np.int64((bits & _WITHIN) | _ONE).view(np.float64) - _MIDDLE
        z = table[row, 7]
        z = z * t + table[row, 6]
        z = z * t + table[row, 5]
        z = z * t + table[row, 4]
        z = z * t + table[row, 3]
        z = z * t + table[row, 2]
        z = z * t + table[row, 1]
        z = z * t + table[row, 0]
        raised = sigma * z + 0.5
        whole = np.int64(raised)
        rest = raised - whole
        decided = (cell >= 0) & (rest > margin) & (rest < 1 - margin)
        missing += not decided
        noise[i] = (-whole if word < 0 else whole) if decided else UNDECIDED
    return missing


@partial(inlined, reorder=True)
def _sum_of_squares(values: Any) -> Any:
    total = 0.0
    for j in range(values.size):
        total += np.float64(values[j]) * values[j]
    return total


@compiled
def add_squares(rows: Any, squares: Any) -> None:
    """Adds each row's sum of squares, in an order that depends on its length alone.

    Arguments:
        rows: (n, width) contiguous float32.
        squares: (n,) float64, added to.
    """
    for i in range(rows.shape[0]):
        squares[i] += _sum_of_squares(rows[i])


@inlined
def _integer(value: Any, limit: Any) -> Any:
    """The value without its fraction, never outside [-limit, limit]; NaN becomes -limit."""
    value = value if value > -limit else -limit
    return np.int32(value if value < limit else limit)


@partial(inlined, reorder=True)
def _sum_of_integer_squares(values: Any, gain: Any, limit: Any) -> Any:
    total = 0.0  # of integers below 2^53, which no order of addition rounds
    for j in range(values.size):
        number = np.float64(_integer(values[j] * gain, limit))
        total += number * number
    return total


@compiled
def add_integer_squares(rows: Any, gains: Any, factors: Any, units: Any, squares: Any) -> None:
    """Adds each record's sum of squares of what `add_integers` would add; more than units^2 stops the sum.

    Arguments: as there; squares: (n,) int64, added to.
    """
    limit, enough = np.float32(units + 1), units * units
    chunk = max(1, EXACT // ((units + 1) * (units + 1)))
    for i in range(rows.shape[0]):
        if factors[i] == 0:
            continue
        for r in range(gains.shape[1]):
            gain = gains[i, r] * factors[i]
            for start in range(0, rows.shape[1], chunk):
                if squares[i] > enough:
                    break
                part = rows[i, start : start + chunk]
                squares[i] += np.int64(_sum_of_integer_squares(part, gain, limit))


@compiled
def add_integers(rows: Any, gains: Any, factors: Any, units: Any, totals: Any) -> None:
    """Adds the records' scaled gradients, rounded toward zero.

    Arguments:
        rows, gains: (n, width) and (n, repeat) contiguous float32: a record's gradient is their outer product, flat.
        factors: (n,) float32: multiplies a record's gradient; records with 0 are left out.
        units: no coordinate counts as more than units + 1.
        totals: (repeat, width) int32 or int64, added to.
    """
    limit = np.float32(units + 1)
    for i in range(rows.shape[0]):
        if factors[i] == 0:
            continue
        for r in range(gains.shape[1]):
            gain = gains[i, r] * factors[i]
            for j in range(rows.shape[1]):
                totals[r, j] += _integer(rows[i, j] * gain, limit)
