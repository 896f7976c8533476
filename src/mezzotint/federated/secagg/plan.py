"""What a round is: who adds up what, modulo what, and how many must be left. Signed into every message."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

from mezzotint.federated.secagg.errors import PlanRefused
from mezzotint.federated.secagg.wire import Reader, number

SESSION_BYTES = 16
DIGEST_BYTES = 32
MAX_CLIENTS = 2**16 - 1
MAX_BITS = 32
_VERSION = b"mezzotint secure sum 1"

Overflow = Literal["impossible", "modular"]
_OVERFLOWS: tuple[Overflow, ...] = ("impossible", "modular")


def bits_needed(clients: int, span: int) -> int:
    """Bits of the least power of two above clients * span, so that no sum of integers in [0, span] wraps around."""
    return max(1, (clients * span).bit_length())


def safe_threshold(neighbours: int, corrupted: int = 0) -> int:
    """The least threshold under which no client can be unmasked by telling its neighbours different things.

    An honest neighbour reveals one of a client's two secrets; `corrupted` ones reveal both. Both secrets need
    2 * threshold shares, and at most neighbours + corrupted can be had.
    """
    return (neighbours + corrupted) // 2 + 1


@final
@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """A round of secure aggregation.

    Arguments:
        session: 16 random bytes of the whole run.
        round: number within the session, 1 or more.
        clients: clients invited, at most 65535; an upper bound on the number of summands.
        neighbours: clients that each client shares masks and secrets with; even, or clients - 1.
        threshold: shares that restore a secret; at least `safe_threshold(neighbours)`.
        minimum: fewest summands; below it the sum is refused.
        coordinates: integers per client.
        span: largest integer that a client may send; the smallest is 0.
        bits: the modulus is 2**bits, 1 to 32.
        overflow: "impossible" requires clients * span < 2**bits; "modular" means that wrapping around is part of the
            mechanism (integer noise on vectors).
        binding: 32 bytes, SHA-256 of whatever else all must agree on (mechanism table, clipping, rotation).

    Raises:
        PlanRefused: anything out of range; sums that could overflow; a threshold at which a server that tells
            neighbours different stories learns both secrets of a client.

    Guarantees: under "impossible" the sum of any clients' integers in [0, span] is below the modulus.
    Edge cases: two clients are their only neighbours: the threshold 1 exceeds half of 1; privacy then rests on the
        other client. One client alone has nobody to hide behind and is refused.
    """

    session: bytes
    round: int
    clients: int
    neighbours: int
    threshold: int
    minimum: int
    coordinates: int
    span: int
    bits: int
    overflow: Overflow = "impossible"
    binding: bytes = bytes(DIGEST_BYTES)

    def __post_init__(self) -> None:
        checks = (
            (len(self.session) == SESSION_BYTES, f"session: {len(self.session)} bytes, need {SESSION_BYTES}"),
            (len(self.binding) == DIGEST_BYTES, f"binding: {len(self.binding)} bytes, need {DIGEST_BYTES}"),
            (1 <= self.round < 2**32, f"round={self.round}: rounds count from 1"),
            (2 <= self.clients <= MAX_CLIENTS, f"clients={self.clients}: need 2 to {MAX_CLIENTS}; one hides nothing"),
            (1 <= self.coordinates < 2**32, f"coordinates={self.coordinates}: need at least one"),
            (1 <= self.bits <= MAX_BITS, f"bits={self.bits}: need 1 to {MAX_BITS}"),
            (1 <= self.span < 2**self.bits, f"span={self.span}: integers lie below the modulus 2**{self.bits}"),
            (self.overflow in _OVERFLOWS, f"overflow={self.overflow!r}: use 'impossible' or 'modular'"),
            (2 <= self.minimum <= self.clients, f"minimum={self.minimum}: need 2 to {self.clients} summands"),
        )
        for holds, complaint in checks:
            if not holds:
                raise PlanRefused("plan", complaint)
        self._check_graph()
        if self.overflow == "impossible" and self.clients * self.span >> self.bits:
            raise PlanRefused(
                "plan",
                f"{self.clients} clients x {self.span} can reach 2**{self.bits}: "
                f"plan bits={bits_needed(self.clients, self.span)}",
            )

    def _check_graph(self) -> None:
        most = self.clients - 1
        if not (1 <= self.neighbours <= most and (self.neighbours % 2 == 0 or self.neighbours == most)):
            raise PlanRefused("plan", f"neighbours={self.neighbours}: need an even number up to {most}, or {most}")
        least = safe_threshold(self.neighbours)
        if not least <= self.threshold <= self.neighbours:
            raise PlanRefused(
                "plan", f"threshold={self.threshold}: need {least} to {self.neighbours} of {self.neighbours} neighbours"
            )

    @property
    def modulus(self) -> int:
        """2**bits."""
        return 1 << self.bits

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the plan: part of every signature, key and associated data of the round."""
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """The plan on the wire."""
        numbers = (
            (self.round, 4), (self.clients, 2), (self.neighbours, 2), (self.threshold, 2), (self.minimum, 2),
            (self.coordinates, 4), (self.span, 4), (self.bits, 1), (_OVERFLOWS.index(self.overflow), 1),
        )  # fmt: skip
        return _VERSION + self.session + b"".join(number(value, width) for value, width in numbers) + self.binding

    @classmethod
    def from_reader(cls, reader: Reader) -> RoundPlan:
        """Reads a plan, and checks it like any other."""
        if reader.take(len(_VERSION)) != _VERSION:
            raise PlanRefused("plan", "made by another protocol version")
        session = reader.take(SESSION_BYTES)
        names = ("round", "clients", "neighbours", "threshold", "minimum", "coordinates", "span", "bits")
        values = dict(zip(names, (reader.number(width) for width in (4, 2, 2, 2, 2, 4, 4, 1)), strict=True))
        overflow = reader.number(1)
        if overflow >= len(_OVERFLOWS):
            raise PlanRefused("plan", f"unknown overflow rule {overflow}")
        return cls(session=session, overflow=_OVERFLOWS[overflow], binding=reader.take(DIGEST_BYTES), **values)
