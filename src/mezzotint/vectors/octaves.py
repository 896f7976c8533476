"""The layout of the table of normal quantiles that words are looked up in: octaves cut into cells.

The low 63 bits of a word, as a float, have an exponent (the octave) and a mantissa whose upper bits
name the cell; the cell's polynomial gives the quantile (docs/proofs/training.md).
"""

from __future__ import annotations

UNDECIDED = -(2**63)
"""Marks a draw that its first word does not decide."""

LOWEST_OCTAVE = 38
"""Words are looked up if their low 63 bits w are at least 2^38; a draw further out, one in 2^25, is
undecided."""

CELLS = 16
"""Cells of an octave 2^e <= w < 2^(e+1)."""

TERMS = 8
"""Coefficients of a cell's polynomial."""

MAGNITUDE = 2**63 - 1
"""The bits of a word below its sign."""

SHIFT = 48
"""Of the 52 bits of a float's mantissa, those from this one on name the cell."""

IN_CELL = 2**SHIFT - 1
"""The bits of the mantissa below the cell's."""

ONE = 1023 << 52
"""The bits of the float 1.0: with `IN_CELL` of a mantissa, a float from 1 to 1 + 1 / CELLS."""

FIRST_CELL = (1023 + LOWEST_OCTAVE) << 4
"""Exponent and cell of the lowest word that is looked up."""

MIDDLE = 1 + 1 / (2 * CELLS)
"""The middle of the floats that `ONE` makes."""
