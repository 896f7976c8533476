"""What a round is: who adds up what, modulo what, and how many must be left. Signed into every message."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

import numpy as np

from mezzotint.core.entropy import Keystream, key_from
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.federated.secagg.errors import PlanRefused
from mezzotint.federated.secagg.wire import Reader, number

SESSION_BYTES = 16
DIGEST_BYTES = 32
MAX_CLIENTS = 2**16 - 1
MAX_BITS = 32
_VERSION = b"mezzotint secure sum 2"

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
        task: 32 bytes, SHA-256 of what each client is asked to do (the model and the configuration it trains with),
            so that no two summands answer different questions.

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
    task: bytes = bytes(DIGEST_BYTES)

    def __post_init__(self) -> None:
        checks = (
            (len(self.session) == SESSION_BYTES, f"session: {len(self.session)} bytes, need {SESSION_BYTES}"),
            (len(self.binding) == DIGEST_BYTES, f"binding: {len(self.binding)} bytes, need {DIGEST_BYTES}"),
            (len(self.task) == DIGEST_BYTES, f"task: {len(self.task)} bytes, need {DIGEST_BYTES}"),
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
        fixed = b"".join(number(value, width) for value, width in numbers)
        return _VERSION + self.session + fixed + self.binding + self.task

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
        binding, task = reader.take(DIGEST_BYTES), reader.take(DIGEST_BYTES)
        return cls(session=session, overflow=_OVERFLOWS[overflow], binding=binding, task=task, **values)


stats: Any = LazyModule("scipy.stats")


def neighbour_graph(members: Sequence[int], neighbours: int, *, rng: Any = None) -> dict[int, tuple[int, ...]]:
    """The neighbours of each member.

    Arguments:
        members: distinct indices.
        neighbours: wanted per member; all others when there are no more than that.
        rng: None for the operating system's randomness; a seed reproduces (tests).

    Returns: member -> its neighbours, ascending. Symmetric; nobody neighbours itself.
    """
    ring = _shuffled(list(members), rng)
    count = len(ring)
    if neighbours >= count - 1:
        everyone = sorted(ring)
        return {member: tuple(other for other in everyone if other != member) for member in everyone}
    half = neighbours // 2
    steps = [step for distance in range(1, half + 1) for step in (distance, -distance)]
    found = {member: tuple(sorted(ring[(place + step) % count] for step in steps)) for place, member in enumerate(ring)}
    return {member: found[member] for member in sorted(found)}


def _shuffled(members: list[int], rng: Any) -> list[int]:
    words = np.empty(2 * len(members), dtype=np.uint64)
    Keystream(key_from(rng)).fill(words)
    order = np.lexsort((words[1::2], words[::2]))  # 128-bit sort keys: ties have no chance
    return [members[place] for place in order.tolist()]


@final
@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """Neighbours and threshold, and how likely each of three accidents is.

    Arguments:
        neighbours, threshold: for `RoundPlan`.
        exposed: log2 of a bound on the probability that some client has `threshold` corrupted neighbours.
        split: log2 of a bound on the probability that corrupted and dropped clients cut the honest ones in two, so
            that two partial sums could be told apart.
        failed: log2 of a bound on the probability that too few neighbours of some client are left to unmask.
    """

    neighbours: int
    threshold: int
    exposed: float
    split: float
    failed: float


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else -math.inf


def _hypergeometric_tail(population: int, marked: int, drawn: int, least: int) -> float:
    """log2 P(at least `least` of `drawn` are marked)."""
    if least > min(marked, drawn):
        return -math.inf
    return float(stats.hypergeom.logsf(least - 1, population, marked, drawn)) / math.log(2)


def _cut(clients: int, gone: int, run: int) -> float:
    """log2 of clients * P(`run` consecutive places on the ring are all gone).

    A ring on which everyone knows the next k/2 falls apart only where k/2 consecutive ones are missing.
    """
    if gone < run:
        return -math.inf
    return _log2(clients) + sum(_log2((gone - i) / (clients - i)) for i in range(run))


def plan_graph(
    *, clients: int, corrupted: float, dropped: float, security_bits: float = 40.0, failure_bits: float = 20.0
) -> GraphPlan:
    """The fewest neighbours that protect against clients that collude with an honest-but-curious server.

    Arguments:
        clients: in the round.
        corrupted: share of clients that collude, fixed before the ring is drawn.
        dropped: share of clients that drop out, independently of the ring.
        security_bits: each accident that endangers privacy has probability at most 2**-security_bits.
        failure_bits: a round fails for lack of neighbours with probability at most 2**-failure_bits.

    Returns: the plan with the fewest neighbours; among its thresholds the highest that still unmasks.

    Raises:
        ParameterError: shares outside [0, 1), fewer than 2 clients.
        InfeasibleError: not even the complete graph protects that many.

    Source: Bell et al. 2020, Definition 3.1 and section 3.5; here with hypergeometric tails and union bounds.
    """
    if clients < 2:
        raise ParameterError("clients", clients, "need at least 2")
    for name, share in (("corrupted", corrupted), ("dropped", dropped)):
        if not 0 <= share < 1:
            raise ParameterError(name, share, "a share of the clients in [0, 1)")
    bad, lost = math.ceil(corrupted * clients), math.ceil(dropped * clients)
    for neighbours in [*range(2, clients - 1, 2), clients - 1]:
        if found := _at(clients, bad, lost, neighbours, security_bits, failure_bits):
            return found
    raise InfeasibleError(
        f"{clients} clients of whom {bad} collude and {lost} drop out cannot be protected to {security_bits:g} bits: "
        "the corrupted ones outnumber what any threshold allows; invite more clients or assume fewer corrupted ones"
    )


def _at(clients: int, bad: int, lost: int, neighbours: int, security: float, failure: float) -> GraphPlan | None:
    complete = neighbours == clients - 1
    split = -math.inf if complete else _cut(clients, min(bad + lost, clients), neighbours // 2)
    if split > -security:
        return None
    for threshold in range(neighbours, safe_threshold(neighbours) - 1, -1):
        exposed = _log2(clients) + _hypergeometric_tail(clients - 1, bad, neighbours, threshold)
        failed = _log2(clients) + _hypergeometric_tail(clients - 1, lost, neighbours, neighbours - threshold + 1)
        if exposed <= -security and failed <= -failure:
            return GraphPlan(neighbours=neighbours, threshold=threshold, exposed=exposed, split=split, failed=failed)
    return None
