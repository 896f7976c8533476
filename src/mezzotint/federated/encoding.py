"""From a client's real vector to the integers that are summed, and from the sum back to the mean."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import privatize
from mezzotint.federated.secagg.plan import Overflow, bits_needed
from mezzotint.privacy.sums.lattice import Lattice, find_lattice

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Encoding(ABC):
    """How updates become integers. Frozen; server and clients agree on it by its `binding`."""

    @property
    @abstractmethod
    def span(self) -> int:
        """The largest integer that a client sends."""

    @property
    @abstractmethod
    def overflow(self) -> Overflow:
        """Whether sums may wrap around."""

    @abstractmethod
    def encode(self, update: npt.ArrayLike, *, rng: Any = None) -> Integers:
        """(d,) integers in 0..span of a (d,) update; rng None is private, a seed is not."""

    @abstractmethod
    def decode(self, total: Integers, count: int) -> Vector:
        """The mean of `count` updates from the sum of their integers."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain values from which `encoding_from` makes it again."""

    def bits(self, clients: int) -> int:
        """Bits of the modulus for that many clients."""
        return bits_needed(clients, self.span)

    @property
    def binding(self) -> bytes:
        """SHA-256 of the description: what a round's plan carries."""
        return hashlib.sha256(canonical(self.as_dict()).encode()).digest()


def canonical(values: Mapping[str, Any]) -> str:
    """JSON with one spelling."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def clipped(update: npt.ArrayLike, l2_norm: float | None) -> Vector:
    """The update as a vector, scaled down to the L2 norm if it is longer.

    Raises:
        ParameterError: NaN or infinity, naming the first coordinate; no vector.
    """
    vector = np.asarray(update, dtype=np.float64)
    if vector.ndim != 1 or vector.size == 0:
        raise ParameterError("update", f"shape {vector.shape}", "need a vector of at least one coordinate")
    finite = np.isfinite(vector)
    if not finite.all():
        place = int(np.argmin(finite))
        raise ParameterError("update", float(vector[place]), f"coordinate {place} is not finite; training diverged")
    if l2_norm is None:
        return vector
    # A little below the bound: the rounding of norm and division must not end above it.
    norm = float(np.linalg.norm(vector)) * (1 + 1e-9)
    return vector if norm <= l2_norm else vector * (l2_norm / norm)


@final
@dataclass(frozen=True, kw_only=True)
class TableEncoding(Encoding):
    """Every coordinate through one mechanism table, whose levels stand on a lattice.

    Arguments:
        mechanism: its range is the clipping range of a coordinate, data units.
        l2_norm: clip the whole vector to this norm before; None does not.

    Raises:
        ParameterError: levels that stand on no lattice (sums of codes would not decode), an l2_norm that is not > 0.

    Guarantees: unbiased for updates within the clipping when the table is; decode(sum of integers) is the mean of the
        decoded reports to float precision.
    """

    mechanism: Mechanism
    l2_norm: float | None = None

    def __post_init__(self) -> None:
        if self.l2_norm is not None and not 0 < self.l2_norm < math.inf:
            raise ParameterError("l2_norm", self.l2_norm, "a clipping norm > 0, or None")
        find_lattice(self.mechanism.levels)  # a table that cannot be summed is refused at once

    @cached_property
    def lattice(self) -> Lattice:
        """The integers that stand for the levels."""
        return find_lattice(self.mechanism.levels)

    @property
    def span(self) -> int:
        return self.lattice.span

    @property
    def overflow(self) -> Overflow:
        return "impossible"

    def encode(self, update: npt.ArrayLike, *, rng: Any = None) -> Integers:
        codes, _ = privatize(self.mechanism, clipped(update, self.l2_norm), rng=rng)
        return self.lattice.integers[codes]

    def decode(self, total: Integers, count: int) -> Vector:
        return self.lattice.offset + self.lattice.step * (np.asarray(total, dtype=np.float64) / count)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "table", "mechanism": json.loads(self.mechanism.to_json()), "l2_norm": self.l2_norm}


@final
@dataclass(frozen=True, kw_only=True)
class FixedPointEncoding(Encoding):
    """Plain rounding to a fine grid: no privacy but that of the sum. For comparison, and for central noise.

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
        if self.l2_norm is not None and not 0 < self.l2_norm < math.inf:
            raise ParameterError("l2_norm", self.l2_norm, "a clipping norm > 0, or None")

    @property
    def span(self) -> int:
        return 2**self.grid_bits - 2

    @property
    def overflow(self) -> Overflow:
        return "impossible"

    @property
    def step(self) -> float:
        """Distance of two grid points, data units."""
        return 2 * self.clip / self.span

    def encode(self, update: npt.ArrayLike, *, rng: Any = None) -> Integers:
        vector = np.clip(clipped(update, self.l2_norm), -self.clip, self.clip)
        # Towards zero: rounding must not lengthen a vector that was clipped.
        return np.trunc(vector / self.step).astype(np.int64) + self.span // 2

    def decode(self, total: Integers, count: int) -> Vector:
        return self.step * (np.asarray(total, dtype=np.float64) / count - self.span // 2)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "fixed", "clip": self.clip, "grid_bits": self.grid_bits, "l2_norm": self.l2_norm}


def encoding_from(values: Mapping[str, Any]) -> Encoding:
    """The encoding of `as_dict`.

    Raises:
        ParameterError: an unknown kind. FileFormatError: a mechanism that is none.
    """
    if values.get("kind") == "table":
        return TableEncoding(mechanism=Mechanism.from_json(json.dumps(values["mechanism"])), l2_norm=values["l2_norm"])
    if values.get("kind") == "fixed":
        return FixedPointEncoding(clip=values["clip"], grid_bits=values["grid_bits"], l2_norm=values["l2_norm"])
    raise ParameterError("encoding", values.get("kind"), "this version knows 'table' and 'fixed'")
