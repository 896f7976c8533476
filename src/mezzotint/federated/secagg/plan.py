"""What a round is: who adds up what, modulo what, and how many must be left. Signed into every message."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

from mezzotint.core.records import JsonObject
from mezzotint.federated.secagg.wire import PlanRefused, Reader, number

SESSION_BYTES = 16
DIGEST_BYTES = 32
MAX_CLIENTS = 2**16 - 1
MAX_BITS = 32
_VERSION = b"mezzotint secure sum 5"

Overflow = Literal["impossible", "modular"]
_OVERFLOWS: tuple[Overflow, ...] = ("impossible", "modular")
Draw = Literal["anew", "cyclic"]
_DRAWN: dict[Draw, str] = {"anew": "anew", "cyclic": "in turn"}
_DRAWS = tuple(_DRAWN)
Purpose = Literal["train", "evaluate"]
_PURPOSES: tuple[Purpose, ...] = ("train", "evaluate")


def bits_needed(clients: int, span: int) -> int:
    """Bits of the least power of two above clients * span, so that no sum of integers in [0, span] wraps around."""
    return max(1, (clients * span).bit_length())


@final
@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """A round of secure aggregation.

    Arguments:
        session: 16 random bytes of the whole run.
        round: number within the session, 1 or more.
        clients: clients invited, at most 65535; an upper bound on the number of summands.
        members: of the committee, the first of the round's clients: they hold shares of everybody's secrets.
        quorum: members who must sign one set of survivors, and shares that restore a secret; more than half of them.
        picks: clients that each client picks to mask with.
        least: own picks among the survivors that a survivor must have.
        minimum: fewest summands; below it no honest member of the committee signs.
        coordinates: integers per client.
        span: largest integer that a client may send; the smallest is 0.
        bits: the modulus is 2**bits, 1 to 32.
        overflow: "impossible" requires clients * span < 2**bits; "modular" means that wrapping around is part of the
            mechanism (integer noise on vectors).
        draw: how the roster decides who takes part: "anew" for every round, or "cyclic", all of them in turn.
        purpose: what is summed: updates of a model ("train"), or what clients measure of it ("evaluate").
        binding: 32 bytes, SHA-256 of whatever else all must agree on (mechanism table, clipping, rotation).
        task: 32 bytes, SHA-256 of what each client is asked to do (the model and the configuration it trains with),
            so that no two summands answer different questions.
        roster: 32 bytes, SHA-256 of the list of all clients that the round's are drawn from (`Roster.digest`).

    Raises:
        PlanRefused: anything out of range; sums that could overflow; a quorum that two sets of survivors could both
            get from honest members.

    Guarantees: under "impossible" the sum of any clients' integers in [0, span] is below the modulus.
    Edge cases: of two clients each is all that the other hides behind. One client alone is refused.
    """

    session: bytes
    round: int
    clients: int
    members: int
    quorum: int
    picks: int
    least: int
    minimum: int
    coordinates: int
    span: int
    bits: int
    overflow: Overflow = "impossible"
    draw: Draw = "anew"
    purpose: Purpose = "train"
    binding: bytes = bytes(DIGEST_BYTES)
    task: bytes = bytes(DIGEST_BYTES)
    roster: bytes = bytes(DIGEST_BYTES)

    def __post_init__(self) -> None:
        checks = (
            (len(self.session) == SESSION_BYTES, f"session: {len(self.session)} bytes, need {SESSION_BYTES}"),
            (len(self.binding) == DIGEST_BYTES, f"binding: {len(self.binding)} bytes, need {DIGEST_BYTES}"),
            (len(self.roster) == DIGEST_BYTES, f"roster: {len(self.roster)} bytes, need {DIGEST_BYTES}"),
            (len(self.task) == DIGEST_BYTES, f"task: {len(self.task)} bytes, need {DIGEST_BYTES}"),
            (1 <= self.round < 2**32, f"round={self.round}: rounds count from 1"),
            (2 <= self.clients <= MAX_CLIENTS, f"clients={self.clients}: need 2 to {MAX_CLIENTS}; one hides nothing"),
            (1 <= self.coordinates < 2**32, f"coordinates={self.coordinates}: need at least one"),
            (1 <= self.bits <= MAX_BITS, f"bits={self.bits}: need 1 to {MAX_BITS}"),
            (1 <= self.span < 2**self.bits, f"span={self.span}: integers lie below the modulus 2**{self.bits}"),
            (self.overflow in _OVERFLOWS, f"overflow={self.overflow!r}: use 'impossible' or 'modular'"),
            (self.draw in _DRAWS, f"draw={self.draw!r}: use 'anew' or 'cyclic'"),
            (self.purpose in _PURPOSES, f"purpose={self.purpose!r}: use 'train' or 'evaluate'"),
            (2 <= self.minimum <= self.clients, f"minimum={self.minimum}: need 2 to {self.clients} summands"),
            (1 <= self.members <= self.clients, f"members={self.members}: a committee of 1 to {self.clients} clients"),
            (
                self.members // 2 < self.quorum <= self.members,
                f"quorum={self.quorum}: need {self.members // 2 + 1} to {self.members} of {self.members} members",
            ),
            (1 <= self.picks < self.clients, f"picks={self.picks}: each client picks 1 to {self.clients - 1} others"),
            (1 <= self.least <= self.picks, f"least={self.least}: need 1 to {self.picks} of {self.picks} picks"),
        )
        for holds, complaint in checks:
            if not holds:
                raise PlanRefused("plan", complaint)
        if self.overflow == "impossible" and self.clients * self.span >> self.bits:
            raise PlanRefused(
                "plan",
                f"{self.clients} clients x {self.span} can reach 2**{self.bits}: "
                f"plan bits={bits_needed(self.clients, self.span)}",
            )

    def __str__(self) -> str:
        """In words, what is bound by its first digits."""
        binding = {"encoding": self.binding, "task": self.task, "roster": self.roster}
        bound = [f"{name} {digest.hex()[:16]}" for name, digest in binding.items() if any(digest)]
        return (
            f"round {self.round} of session {self.session.hex()[:16]} ({self.purpose}): {self.clients} clients, drawn "
            f"{_DRAWN[self.draw]}, send {self.coordinates} integers up to {self.span} modulo 2**{self.bits}; each "
            f"masks with {self.picks} of its own choice, {self.least} of them or more in the sum; {self.minimum} "
            f"summands or more; a committee of {self.members}, of whom {self.quorum} sign who is in the sum; bound to "
            f"{', '.join(bound) or 'nothing else'}"
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
            (self.round, 4), (self.clients, 2), (self.members, 2), (self.quorum, 2), (self.picks, 2), (self.least, 2),
            (self.minimum, 2), (self.coordinates, 4), (self.span, 4), (self.bits, 1),
            (_OVERFLOWS.index(self.overflow), 1), (_DRAWS.index(self.draw), 1),
            (_PURPOSES.index(self.purpose), 1),
        )  # fmt: skip
        fixed = b"".join(number(value, width) for value, width in numbers)
        return _VERSION + self.session + fixed + self.binding + self.task + self.roster

    @classmethod
    def from_reader(cls, reader: Reader) -> RoundPlan:
        """Reads a plan, and checks it like any other."""
        if reader.take(len(_VERSION)) != _VERSION:
            raise PlanRefused("plan", "made by another protocol version")
        session = reader.take(SESSION_BYTES)
        names = ("round", "clients", "members", "quorum", "picks", "least", "minimum", "coordinates", "span", "bits")
        values = dict(zip(names, (reader.number(width) for width in (4, 2, 2, 2, 2, 2, 2, 4, 4, 1)), strict=True))
        overflow, draw, purpose = (reader.number(1) for _ in range(3))
        if overflow >= len(_OVERFLOWS) or draw >= len(_DRAWS) or purpose >= len(_PURPOSES):
            raise PlanRefused("plan", f"unknown overflow rule {overflow}, draw {draw} or purpose {purpose}")
        binding, task, roster = (reader.take(DIGEST_BYTES) for _ in range(3))
        rules: JsonObject = {"overflow": _OVERFLOWS[overflow], "draw": _DRAWS[draw], "purpose": _PURPOSES[purpose]}
        return cls(session=session, binding=binding, task=task, roster=roster, **rules, **values)
