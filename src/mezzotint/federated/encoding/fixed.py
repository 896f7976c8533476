"""Plain rounding to a fine grid: noise-free sums, for comparison."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_positive, check_vector
from mezzotint.core.errors import ParameterError
from mezzotint.federated.encoding.base import Encoding, Integers, Vector
from mezzotint.federated.secagg.plan import Overflow, bits_needed
from mezzotint.privacy.claim import Claim
from mezzotint.vectors import clip


@final
@dataclass(frozen=True, kw_only=True)
class FixedPointEncoding(Encoding):
    """Plain rounding to a fine grid: no privacy but that of the sum. For comparison.

    Arguments:
        clip: coordinates are clipped to [-clip, clip], data units.
        grid_bits: the grid has 2**grid_bits - 1 points, 0 among them; 2 to 24.
        l2_norm: clip the whole vector to this norm before; None does not.
    """

    clip: float
    grid_bits: int = 16
    l2_norm: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise ParameterError("clip", self.clip, "a clipping range > 0")
        if not 2 <= self.grid_bits <= 24:
            raise ParameterError("grid_bits", self.grid_bits, "2 to 24 bits")
        if self.l2_norm is not None:
            check_positive("l2_norm", self.l2_norm)

    @property
    def span(self) -> int:
        return 2**self.grid_bits - 2

    @property
    def overflow(self) -> Overflow:
        return "impossible"

    def bits(self, clients: int) -> int:
        return bits_needed(clients, self.span)

    def length(self, size: int) -> int:
        return size

    @property
    def step(self) -> float:
        """Distance of two grid points, data units."""
        return 2 * self.clip / self.span

    def encode(self, update: npt.ArrayLike, *, rng: Any = None) -> Integers:
        vector = check_vector(update, name="update")
        if self.l2_norm is not None:
            vector = clip(vector, norm="l2", bound=self.l2_norm)
        vector = np.clip(vector, -self.clip, self.clip)
        # Towards zero: rounding must not lengthen a vector that was clipped.
        return np.trunc(vector / self.step).astype(np.int64) + self.span // 2

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        return self.step * (np.asarray(total, dtype=np.float64) / count - self.span // 2)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "fixed", "clip": self.clip, "grid_bits": self.grid_bits, "l2_norm": self.l2_norm}

    def claims(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> dict[str, Claim]:
        """Nothing: rounding towards zero has no randomness."""
        return {}

    def mse(self) -> float:
        return math.nan

    @property
    def report_bits(self) -> int:
        return self.grid_bits

    @property
    def report_epsilon(self) -> float:
        return math.inf

    @property
    def sha256(self) -> str:
        return "fixed"

    @property
    def largest(self) -> float:
        return self.clip

    @property
    def norm(self) -> float | None:
        return self.l2_norm

    def noise_multiplier(self, clients: int) -> float:
        return 0.0
