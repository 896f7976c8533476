"""Sums of clipped gradients in integers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.kernels import compiled, inlined
from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.training.quantized import Gradients

Totals = npt.NDArray[np.signedinteger]

EXACT = 2**53
"""Floats count to here."""


@partial(inlined, reorder=True)
def _sum_of_squares(values: npt.NDArray[np.float32]) -> float:
    total = 0.0
    for j in range(values.size):
        total += np.float64(values[j]) * values[j]
    return total


@compiled
def add_squares(rows: npt.NDArray[np.float32], squares: FloatArray) -> None:
    """Adds each row's sum of squares, in an order that depends on its length alone.

    Arguments:
        rows: (n, width) contiguous float32.
        squares: (n,) float64, added to.
    """
    for i in range(rows.shape[0]):
        squares[i] += _sum_of_squares(rows[i])


@inlined
def _integer(value: np.float32, limit: np.float32) -> np.int32:
    """The value without its fraction, never outside [-limit, limit]; NaN becomes -limit."""
    value = value if value > -limit else -limit
    return np.int32(value if value < limit else limit)


@partial(inlined, reorder=True)
def _add(values: npt.NDArray[np.float32], gain: np.float32, limit: np.float32, totals: Totals) -> float:
    squares = 0.0  # of integers, whose sum stays below 2^53, which no order of addition rounds
    for j in range(values.size):
        number = _integer(values[j] * gain, limit)
        totals[j] += number
        squares += np.float64(number) * np.float64(number)
    return squares


BLOCK = 4096
"""Totals that stay in the innermost cache while all records are added to them."""


@compiled
def add_integers(
    rows: npt.NDArray[np.float32],
    gains: npt.NDArray[np.float32],
    factors: npt.NDArray[np.float32],
    units: int,
    totals: Totals,
    squares: IntArray,
) -> None:
    """Adds the records' scaled gradients, rounded toward zero, and each record's sum of squares of what it adds.

    Arguments:
        rows, gains: (n, width) and (n, repeat) contiguous float32: a record's gradient is their outer product, flat.
        factors: (n,) float32: multiplies a record's gradient; records with 0 are left out.
        units: no coordinate counts as more than units + 1.
        totals: (repeat, width) int32 or int64, added to.
        squares: (n,) int64, added to; a sum that exceeds units^2 grows no further.
    """
    limit, enough = np.float32(units + 1), units * units
    width = rows.shape[1]
    chunk = max(1, min(BLOCK, EXACT // ((units + 1) * (units + 1))))
    for r in range(gains.shape[1]):
        for start in range(0, width, chunk):
            end = min(start + chunk, width)
            for i in range(rows.shape[0]):
                if factors[i] == 0:
                    continue
                found = _add(rows[i, start:end], gains[i, r] * factors[i], limit, totals[r, start:end])
                if squares[i] <= enough:
                    squares[i] += np.int64(found)


_MANY = 10**6
"""Coordinates from which on the grid is finer, as every one of them may lose a unit."""

_ROOM = 1 - 2.0**-18
"""Gradients are scaled to a norm slightly shorter than allowed, as floats round."""

_SHORTER = 1 - 2.0**-10
_ATTEMPTS = 4


@final
@dataclass(frozen=True, kw_only=True)
class ClippedSums:
    """Clips every record's gradient to an L2 norm, rounds it toward zero on a public grid, and adds up integers.

    Arguments:
        clip_norm: C > 0.
        coordinates: D, of a record's gradient in all tensors.

    Guarantees:
        The integers that a record adds have an L2 norm of at most `units`: each record's sum of squares is computed
        in integers, and a record that exceeds it is shortened or left out. No rounding of a float has a say in it.
        Sums are exact, in whatever order records come.
    """

    clip_norm: float
    coordinates: int

    @property
    def units(self) -> int:
        """Units of the grid in a clip norm: 2^16, from a million coordinates on 2^20."""
        return 2**20 if self.coordinates >= _MANY else 2**16

    @property
    def unit(self) -> float:
        """Width of the grid."""
        return self.clip_norm / self.units

    def __call__(self, gradients: Sequence[Gradients]) -> tuple[IntArray, int]:
        """The sums, and how many records were left out as their gradients are not finite.

        Arguments:
            gradients: of the records in each parameter tensor.

        Returns: (D,) int64 sums in units, for the coordinates of all tensors in order; the number.
        """
        totals, factors = self._settled(gradients)
        return totals.astype(np.int64, copy=False), int((factors == 0).sum())

    def factors(self, gradients: Sequence[Gradients]) -> npt.NDArray[np.float32]:
        """(n,) what the records' gradients are multiplied by before they are rounded; 0 leaves a record out."""
        return self._settled(gradients)[1]

    def _settled(self, gradients: Sequence[Gradients]) -> tuple[Totals, npt.NDArray[np.float32]]:
        squares = sum(_squares(gradient.rows) * _squares(gradient.gains) for gradient in gradients)
        with np.errstate(invalid="ignore"):
            wanted = self.units * _ROOM / np.maximum(np.sqrt(squares), self.clip_norm)
        factors = np.where(np.isfinite(wanted) & np.isfinite(squares), wanted, 0).astype(np.float32)
        for _ in range(_ATTEMPTS):
            totals, found = self._added(gradients, factors)
            long = found > self.units**2
            if not long.any():
                return totals, factors
            factors[long] *= np.float32(_SHORTER)
        factors[long] = 0
        return self._added(gradients, factors)[0], factors

    def _added(self, gradients: Sequence[Gradients], factors: npt.NDArray[np.float32]) -> tuple[Totals, IntArray]:
        """(D,) sums, and (n,) sums of squares of what each record has added."""
        narrow = len(factors) * (self.units + 1) < 2**31
        totals = np.zeros(self.coordinates, dtype=np.int32 if narrow else np.int64)
        squares = np.zeros(len(factors), dtype=np.int64)
        ends = itertools.accumulate(gradient.coordinates for gradient in gradients)
        for gradient, end in zip(gradients, ends, strict=True):
            part = totals[end - gradient.coordinates : end].reshape(gradient.gains.shape[1], gradient.rows.shape[1])
            add_integers(gradient.rows, gradient.gains, factors, self.units, part, squares)
        return totals, squares


def _squares(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    found = np.zeros(len(rows))
    add_squares(rows, found)
    return found
