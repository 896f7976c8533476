"""One interface for private vectors: encode to integers, add them up, decode the sum, say what it costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy.typing as npt

from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.privacy.account import account
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.release import Release


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
    def account(self, release: Release) -> Claim:
        """What secure sums cost one client who takes part in all of them; called by `mezzotint.privacy.account`."""

    def claim(self, *, clients: int, **options: Any) -> Claim:
        """The claim of secure sums of `clients` vectors; `options` are fields of `Release`, delta=1e-6 if not given."""
        fields: dict[str, Any] = {"delta": 1e-6, **options, "trust": "secure_sum", "clients": clients}
        return account(Release(mechanism=self, **fields))

    @property
    def bits(self) -> int:
        """Bits on the wire per integer."""
        return (self.modulus - 1).bit_length()
