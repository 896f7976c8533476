"""Encodings that send one number more beside each update, in the same vector and so in the same sum."""

from __future__ import annotations

from dataclasses import dataclass

from mezzotint.core.errors import ParameterError
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.secagg.plan import Overflow
from mezzotint.privacy.claim import Claim


@dataclass(frozen=True, kw_only=True)
class JoinedEncoding(Encoding):
    """An update of d coordinates and a number, through an encoding of d + 1.

    Arguments:
        inner: clips and encodes the vector of d + 1 coordinates.

    Guarantees: `claims` are the inner encoding's for d + 1 coordinates: the number costs no round of its own.
    """

    inner: Encoding

    def __post_init__(self) -> None:
        if self.inner.bands > 1:
            raise ParameterError("inner", f"{self.inner.bands} bands", "the number that joins an update is not spread")

    @property
    def span(self) -> int:
        return self.inner.span

    @property
    def overflow(self) -> Overflow:
        return self.inner.overflow

    def bits(self, clients: int) -> int:
        return self.inner.bits(clients)

    def length(self, size: int) -> int:
        return self.inner.length(size + 1)

    def claims(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> dict[str, Claim]:
        """The inner encoding's, for the number's coordinate as well."""
        return self.inner.claims(rounds=rounds, clients=clients, size=size + 1, delta=delta, corrupted=corrupted)

    def central(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> Claim | None:
        return self.inner.central(rounds=rounds, clients=clients, size=size + 1, delta=delta, corrupted=corrupted)

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
