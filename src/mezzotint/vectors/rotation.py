"""Randomized Hadamard rotation: spreads any vector evenly over its coordinates, undone by its own transpose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import FloatArray

kernels: Any = LazyModule("mezzotint.vectors.kernels")

MAX_DIMENSION = 2**27
"""Largest padded dimension: one vector of it takes a GiB."""


def hadamard(values: FloatArray) -> FloatArray:
    """Orthonormal Walsh-Hadamard transform along the last axis, whose length is a power of two; its own inverse."""
    size = values.shape[-1]
    result = np.array(values, dtype=np.float64, order="C")
    kernels.transform(result.reshape(-1, size), 1.0)
    return result / math.sqrt(size)


@final
@dataclass(frozen=True, kw_only=True)
class Rotation:
    """The map x -> H D x / sqrt(p): random signs D, Hadamard H, zeros up to the next power of two p.

    Arguments:
        dimension: d >= 1.
        seed: of the signs; public, chosen by the server independently of the data (privacy does not rest on it).

    Guarantees: L2 norms and inner products are kept up to rounding; `undo(apply(x)) == x` up to 1e-12 relative.
    Source: Ailon and Chazelle 2006; Suresh et al. 2017.
    """

    dimension: int
    seed: int

    def __post_init__(self) -> None:
        if check_count("dimension", self.dimension) > MAX_DIMENSION:
            raise ParameterError("dimension", self.dimension, f"between 1 and {MAX_DIMENSION}; split longer vectors")
        check_count("seed", self.seed, least=0, most=2**64)

    @property
    def padded(self) -> int:
        """The next power of two: how many coordinates a rotated vector has."""
        return 1 << (int(self.dimension) - 1).bit_length()

    def _signs(self) -> FloatArray:
        # Raw words of a bit generator are the same in all releases of numpy; what is drawn from them may not be.
        words = np.random.Philox(np.random.SeedSequence(int(self.seed))).random_raw(-(-self.padded // 64))
        bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")[: self.padded]
        return bits.astype(np.float64) * 2.0 - 1.0

    def apply(self, vector: npt.ArrayLike) -> FloatArray:
        """(..., d) to (..., padded)."""
        values = np.asarray(vector, dtype=np.float64)
        if values.ndim == 0 or values.shape[-1] != self.dimension:
            raise ParameterError("vector", values.shape, f"need {self.dimension} coordinates in the last axis")
        room = [(0, 0)] * (values.ndim - 1) + [(0, self.padded - int(self.dimension))]
        return hadamard(np.pad(values, room) * self._signs())

    def undo(self, rotated: npt.ArrayLike) -> FloatArray:
        """(..., padded) to (..., d)."""
        values = np.asarray(rotated, dtype=np.float64)
        if values.ndim == 0 or values.shape[-1] != self.padded:
            raise ParameterError("rotated", values.shape, f"need {self.padded} coordinates in the last axis")
        return (hadamard(values) * self._signs())[..., : int(self.dimension)]
