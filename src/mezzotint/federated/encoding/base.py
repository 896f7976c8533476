"""What every encoding offers: integers to sum, the mean of the updates back, and what it costs."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.federated.secagg.plan import Overflow
from mezzotint.privacy.claim import Claim

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
    def bits(self, clients: int) -> int:
        """Bits of the modulus for that many clients."""

    @abstractmethod
    def length(self, size: int) -> int:
        """Integers that stand for an update of `size` coordinates."""

    @abstractmethod
    def encode(self, update: npt.ArrayLike, *, rng: Any = None) -> Integers:
        """(length,) integers in 0..span of a (d,) update; rng None is private, a seed is not.

        Raises:
            ParameterError: no vector, or a coordinate that is not finite.
        """

    @abstractmethod
    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        """(size,) mean of `count` clipped updates from the (length,) sum of their integers.

        Arguments:
            total: the sum.
            count: summands.
            size: coordinates of an update.
            release: names the sum, such as its session and round, for encodings whose server adds the noise: under one
                name noise is drawn for one sum, once. Others take no notice of it.

        Raises:
            ParameterError: noise would be drawn a second time, which would be a second release that nobody charged.
        """

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain values from which `encoding_from` makes it again."""

    @abstractmethod
    def claims(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> dict[str, Claim]:
        """What a client pays that is in `rounds` sums of `clients` updates each.

        Returns: "local" (its reports seen alone) and "central" (the sums seen), as far as there is something to claim.
        """

    @abstractmethod
    def mse(self) -> float:
        """Mean squared error of one coordinate of one report, data units squared; NaN where rounding is all."""

    @property
    @abstractmethod
    def report_bits(self) -> int:
        """Bits of one coordinate's report by itself."""

    @property
    @abstractmethod
    def report_epsilon(self) -> float:
        """Pure epsilon of one coordinate's report, seen alone; inf when there is none."""

    @property
    @abstractmethod
    def sha256(self) -> str:
        """Hash of the mechanism's table; the kind of encoding where there is none."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """Largest absolute value of a coordinate that is told apart, data units."""

    @property
    @abstractmethod
    def norm(self) -> float | None:
        """L2 norm that updates are clipped to; None does not clip."""

    @abstractmethod
    def noise_multiplier(self, clients: int) -> float:
        """Standard deviation of the noise that clients add to a sum, over the clipping norm; 0 without such noise."""

    @property
    def binding(self) -> bytes:
        """SHA-256 of the description: what a round's plan carries."""
        return hashlib.sha256(canonical(self.as_dict()).encode()).digest()


def canonical(values: Mapping[str, Any]) -> str:
    """JSON with one spelling."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
