"""One interface for private vectors: encode to integers, add them up, decode the sum, say what it costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy.typing as npt

from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.privacy.claim import Claim


class VectorScheme(ABC):
    """How clients turn vectors into integers that may be added. Integers are residues modulo `modulus`."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Coordinates of a client's vector."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Integers that one client sends."""

    @property
    @abstractmethod
    def modulus(self) -> int:
        """Integers are added modulo this."""

    @abstractmethod
    def encode(self, vector: npt.ArrayLike, rng: Any = None) -> IntArray:
        """(d,) vector to (length,) residues; rng None draws from the keystream, a seed is not private."""

    @abstractmethod
    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """(length,) sum of residues, modulo `modulus`, to the (d,) estimate of the sum of `clients` clipped vectors."""

    @abstractmethod
    def claim(self, *, clients: int, rounds: int = 1, corrupted: int = 0, delta: float = 1e-6) -> Claim:
        """What `rounds` secure sums of `clients` vectors cost one client who takes part in all of them."""

    @property
    def bits(self) -> int:
        """Bits on the wire per integer."""
        return (self.modulus - 1).bit_length()
