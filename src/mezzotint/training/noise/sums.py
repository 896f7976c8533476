"""Sums over records of clipped gradients, in integers: no record moves a sum by more than its clip norm."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.training.noise.kernels import add_integer_squares, add_integers, add_squares
from mezzotint.training.quantized.sums import Gradients

IntArray = npt.NDArray[np.int64]

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
        factors = self.factors(gradients)
        narrow = len(factors) * self.units < 2**31
        totals = np.zeros(self.coordinates, dtype=np.int32 if narrow else np.int64)
        ends = itertools.accumulate(gradient.coordinates for gradient in gradients)
        for gradient, end in zip(gradients, ends, strict=True):
            part = totals[end - gradient.coordinates : end].reshape(gradient.gains.shape[1], gradient.rows.shape[1])
            add_integers(gradient.rows, gradient.gains, factors, self.units, part)
        return totals.astype(np.int64), int((factors == 0).sum())

    def factors(self, gradients: Sequence[Gradients]) -> npt.NDArray[np.float32]:
        """(n,) what the records' gradients are multiplied by before they are rounded; 0 leaves a record out."""
        squares: Any = sum(_squares(gradient.rows) * _squares(gradient.gains) for gradient in gradients)
        with np.errstate(invalid="ignore"):
            wanted = self.units * _ROOM / np.maximum(np.sqrt(squares), self.clip_norm)
        factors = np.where(np.isfinite(wanted) & np.isfinite(squares), wanted, 0).astype(np.float32)
        for _ in range(_ATTEMPTS):
            found = np.zeros(len(factors), dtype=np.int64)
            for gradient in gradients:
                add_integer_squares(gradient.rows, gradient.gains, factors, self.units, found)
            long = found > self.units**2
            if not long.any():
                return factors
            factors[long] *= np.float32(_SHORTER)
        factors[long] = 0
        return factors


def _squares(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    found = np.zeros(len(rows))
    add_squares(rows, found)
    return found
