"""Encodings made of another one: what they share is asked of that one; and those that send a number more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.secagg.plan import Overflow
from mezzotint.privacy.claim import Claim


@dataclass(frozen=True, kw_only=True)
class WrappedEncoding(Encoding, ABC):
    """An encoding that makes another vector of an update, and has it encoded by an inner one.

    Arguments:
        inner: clips and encodes that vector.

    Guarantees: `claims` are the inner encoding's, for that vector.
    """

    inner: Encoding

    def __post_init__(self) -> None:
        if self.inner.bands > 1:
            raise ParameterError("inner", f"{self.inner.bands} bands", "a vector made of an update is not spread")

    @classmethod
    @abstractmethod
    def made_of(cls, inner: Encoding, values: JsonObject) -> WrappedEncoding:
        """From a description, whose inner encoding is made already.

        Raises:
            KeyError, TypeError: a field is missing, or of another type. FileFormatError: the wrong inner, or values.
        """

    @abstractmethod
    def _inside(self, size: int) -> int:
        """Coordinates of the inner vector for an update of `size`."""

    @property
    def span(self) -> int:
        return self.inner.span

    @property
    def overflow(self) -> Overflow:
        return self.inner.overflow

    def bits(self, clients: int) -> int:
        return self.inner.bits(clients)

    def length(self, size: int) -> int:
        return self.inner.length(self._inside(size))

    def claims(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> dict[str, Claim]:
        """The inner encoding's, for the vector that it encodes."""
        inside = self._inside(size)
        return self.inner.claims(rounds=rounds, clients=clients, size=inside, delta=delta, corrupted=corrupted)

    def central(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> Claim | None:
        inside = self._inside(size)
        return self.inner.central(rounds=rounds, clients=clients, size=inside, delta=delta, corrupted=corrupted)

    def mse(self) -> float:
        return self.inner.mse()

    @property
    def report_bits(self) -> int:
        return self.inner.report_bits

    @property
    def report_epsilon(self) -> float:
        return self.inner.report_epsilon

    @property
    def sha256(self) -> str:
        return self.inner.sha256

    @property
    def largest(self) -> float:
        return self.inner.largest

    @property
    def norm(self) -> float | None:
        return self.inner.norm

    def noise_multiplier(self, clients: int) -> float:
        return self.inner.noise_multiplier(clients)


@dataclass(frozen=True, kw_only=True)
class JoinedEncoding(WrappedEncoding, ABC):
    """An update of d coordinates and a number, through an encoding of d + 1: one vector and one sum.

    Guarantees: `claims` are the inner encoding's for d + 1 coordinates: the number costs no round of its own.
    """

    def _inside(self, size: int) -> int:
        return size + 1
