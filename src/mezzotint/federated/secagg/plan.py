"""The plan of a round: who adds up what, modulo what; how many must hold shares, sign and mask for
it to protect.

Clients deal under a plan without its task (`base`), and mask and sign under the whole of it
(`digest`). Three probabilities are bounded, over coins that the adversary does not toss (proofs in
docs/proofs/secure-sum.md):

- forked: a quorum of the committee signs each of two different sets of survivors;
- split: some set of survivors that the committee would sign has honest members not connected by
  masks, so that sums over parts of them could be told apart;
- failed: accidental drop-outs leave too few to go on.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal, final, get_args

import numpy as np

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import InfeasibleError
from mezzotint.core.records import JsonObject
from mezzotint.core.types import FloatArray, IntArray
from mezzotint.federated.secagg.wire import PlanRefused, Reader, number

SESSION_BYTES = 16
DIGEST_BYTES = 32
MAX_CLIENTS = 2**16 - 1
MAX_BITS = 32
_VERSION = b"mezzotint secure sum 6"

Overflow = Literal["impossible", "modular"]
Draw = Literal["anew", "cyclic"]
Purpose = Literal["train", "evaluate"]
_RULES: dict[str, tuple[str, ...]] = {
    "overflow": get_args(Overflow),
    "draw": get_args(Draw),
    "purpose": get_args(Purpose),
}
"""One byte each on the wire: the index of the word."""
_WIDTHS = {
    "round": 4,
    "clients": 2,
    "members": 2,
    "quorum": 2,
    "picks": 2,
    "least": 2,
    "minimum": 2,
    "coordinates": 4,
    "span": 4,
    "bits": 1,
}
"""Bytes of the numbers of a plan, in their order on the wire."""
_DIGESTS = ("binding", "task", "roster")


def bits_needed(clients: int, span: int) -> int:
    """Bits of the modulus with which no sum of integers in [0, span] wraps around."""
    return max(1, (clients * span).bit_length())


@final
@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """A round of secure aggregation.

    Arguments:
        session: 16 random bytes naming the run.
        round: number within the session, 1 or more.
        clients: clients invited, at most 65535; an upper bound on the number of summands.
        members: of the committee, the first of the round's clients, which hold shares of
            everybody's secrets.
        quorum: members that must sign one set of survivors, and shares that restore a secret; more
            than half of them.
        picks: mask partners that each client picks.
        least: own picks that a survivor must have among the survivors.
        minimum: fewest summands; below it no honest member of the committee signs.
        coordinates: integers per client.
        span: largest integer that a client may send; the smallest is 0.
        bits: the modulus is 2**bits, 1 to 32.
        overflow: "impossible" requires clients * span < 2**bits; "modular" makes wrapping around
            part of the mechanism (integer noise on vectors).
        draw: how the roster chooses participants: "anew" for every round, or "cyclic", all of them
            in turn.
        purpose: what is summed: updates of a model ("train") or clients' metrics of it
            ("evaluate").
        binding: 32 bytes, SHA-256 of the encoding that all must agree on (mechanism table,
            clipping, rotation).
        task: 32 bytes, SHA-256 of each client's task (the model and its training configuration), so
            that no two summands answer different questions. Zeros until the round is announced to
            those who dealt.
        roster: 32 bytes, SHA-256 of the list from which the round's clients are drawn
            (`Roster.digest`).

    Raises:
        PlanRefused: anything out of range; sums that could overflow; a quorum that honest members
            could give to two sets of survivors.

    Guarantees: under "impossible" the sum of any clients' integers in [0, span] is below the
        modulus.
    Edge cases: of two clients each hides only behind the other; one client alone is refused.
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
        lengths: dict[str, int] = {"session": SESSION_BYTES}
        lengths |= dict.fromkeys(_DIGESTS, DIGEST_BYTES)
        for field_name, length in lengths.items():
            content: bytes = getattr(self, field_name)
            if len(content) != length:
                raise PlanRefused("plan", f"{field_name}: {len(content)} bytes, need {length}")
        for field_name, choices in _RULES.items():
            choice = getattr(self, field_name)
            if choice not in choices:
                words = " or ".join(map(repr, choices))
                raise PlanRefused("plan", f"{field_name}={choice!r}: use {words}")
        ranges = {
            "round": (1, 2**32 - 1, "rounds count from 1"),
            "clients": (2, MAX_CLIENTS, "one alone hides nothing"),
            "coordinates": (1, 2**32 - 1, "integers of each client"),
            "bits": (1, MAX_BITS, "of the modulus"),
            "span": (1, 2**self.bits - 1, "integers lie below the modulus"),
            "minimum": (2, self.clients, "summands"),
            "members": (1, self.clients, "a committee of the round's clients"),
            "quorum": (self.members // 2 + 1, self.members, "more than half of the members"),
            "picks": (1, self.clients - 1, "each client picks others"),
            "least": (1, self.picks, "of its picks"),
        }
        for field_name, (lowest, highest, why) in ranges.items():
            value = getattr(self, field_name)
            if not lowest <= value <= highest:
                raise PlanRefused(
                    "plan", f"{field_name}={value}: need {lowest} to {highest} ({why})"
                )
        if self.overflow == "impossible" and self.clients * self.span >> self.bits:
            excess = f"{self.clients} clients x {self.span} can reach 2**{self.bits}"
            raise PlanRefused("plan", f"{excess}: plan bits={bits_needed(self.clients, self.span)}")

    def __str__(self) -> str:
        """The plan in words, with digests shortened to their first digits."""
        digests = {"encoding": self.binding, "task": self.task, "roster": self.roster}
        bindings: list[str] = []
        for field_name, digest in digests.items():
            if any(digest):
                bindings.append(f"{field_name} {digest.hex()[:16]}")
        drawing = "in turn"
        if self.draw == "anew":
            drawing = "anew"
        return (
            f"round {self.round} of session {self.session.hex()[:16]} ({self.purpose}): {self.clients} clients, drawn "
            f"{drawing}, send {self.coordinates} integers up to {self.span} modulo 2**{self.bits}; each "
            f"masks with {self.picks} of its own choice, {self.least} of them or more in the sum; {self.minimum} "
            f"summands or more; a committee of {self.members}, of whom {self.quorum} sign who is in the sum; bound to "
            f"{', '.join(bindings) or 'nothing else'}"
        )

    @cached_property
    def base(self) -> bytes:
        """SHA-256 of the plan without its task: part of all that is dealt, and of every message's
        header.

        Picks follow from it, not from `digest`: a server that has seen the coins may still choose
        the task.
        """
        without_task = replace(self, task=bytes(DIGEST_BYTES))
        content = b"mezzotint base" + without_task.to_bytes()
        return hashlib.sha256(content).digest()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the plan: part of every mask, and of every signature on a sum."""
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """The plan on the wire."""
        parts = [_VERSION, self.session]
        for field_name, width in _WIDTHS.items():
            parts.append(number(getattr(self, field_name), width))
        for field_name, choices in _RULES.items():
            choice = choices.index(getattr(self, field_name))
            parts.append(number(choice, 1))
        for field_name in _DIGESTS:
            parts.append(getattr(self, field_name))
        return b"".join(parts)

    @classmethod
    def from_reader(cls, reader: Reader) -> RoundPlan:
        """Read a plan, and check it like any other."""
        if reader.take(len(_VERSION)) != _VERSION:
            raise PlanRefused("plan", "made by another protocol version")
        values: JsonObject = {"session": reader.take(SESSION_BYTES)}
        for field_name, width in _WIDTHS.items():
            values[field_name] = reader.number(width)
        for field_name, choices in _RULES.items():
            choice = reader.number(1)
            if choice >= len(choices):
                raise PlanRefused("plan", f"unknown {field_name} {choice}")
            values[field_name] = choices[choice]
        for field_name in _DIGESTS:
            values[field_name] = reader.take(DIGEST_BYTES)
        return cls(**values)


SECURITY_BITS = 40.0
FAILURE_BITS = 20.0
CORRUPTED = 0.2
DROPPED = 0.2


@final
@dataclass(frozen=True, kw_only=True)
class SumParameters:
    """Sizes for a `RoundPlan`, and the bounds behind them.

    Arguments:
        members, quorum, picks, least: as of `RoundPlan`.
        forked, split, failed: log2 of bounds on the probabilities of the three accidents, in one
            round.
    """

    members: int
    quorum: int
    picks: int
    least: int
    forked: float
    split: float
    failed: float


def plan_sum(
    *,
    clients: int,
    corrupted: int,
    dropped: int,
    minimum: int,
    security_bits: float = SECURITY_BITS,
    drawn_bits: float | None = None,
    failure_bits: float = FAILURE_BITS,
) -> SumParameters:
    """The smallest committee and the fewest mask partners that protect and do not fail.

    Arguments:
        clients: in the round.
        corrupted: clients that collude with the server (which may do anything), fixed before
            anybody picks.
        dropped: clients that drop out by accident, independently of committee and partners.
        minimum: fewest survivors: the server may choose which others to drop, having seen who masks
            with whom.
        security_bits: forked and split have probability at most 2**-security_bits each.
        drawn_bits: the same for forked alone, where a server can choose among committees; None: as
            security_bits.
        failure_bits: the round fails with probability at most 2**-failure_bits, for want of quorum
            or partners.

    Raises:
        ParameterError: values out of their ranges.
        InfeasibleError: not even a committee of all clients, or masks between all, suffice.

    Source: committee as in Ma et al. 2023 (Flamingo), partners as in Bell et al. 2020, section 4;
        hypergeometric tails.
    """
    check_count("clients", clients, least=2)
    check_count("corrupted", corrupted, least=0, most=clients - 1)
    check_count("dropped", dropped, least=0, most=clients - 1)
    check_count("minimum", minimum, least=2, most=clients)
    committee_bits = security_bits
    if drawn_bits is not None:
        committee_bits = drawn_bits
    half_failure_bits = failure_bits + 1
    members, quorum = _committee(clients, corrupted, dropped, committee_bits, half_failure_bits)
    picks, least = _partners(clients, corrupted, dropped, minimum, security_bits, half_failure_bits)
    fatal_drop_outs = members - quorum + 1
    absent = _tail(clients, dropped, members, fatal_drop_outs)
    isolating_drop_outs = picks - least + 1
    lonely_client = _tail(clients - 1, dropped, picks, isolating_drop_outs)
    lonely = math.log2(clients) + lonely_client
    return SumParameters(
        members=members,
        quorum=quorum,
        picks=picks,
        least=least,
        forked=forked(clients=clients, corrupted=corrupted, members=members, quorum=quorum),
        split=split(
            clients=clients, corrupted=corrupted, minimum=minimum, picks=picks, least=least
        ),
        failed=float(np.logaddexp2(absent, lonely)),
    )


@cache
def forked(*, clients: int, corrupted: int, members: int, quorum: int) -> float:
    """log2 P(a random committee has enough corrupted members for two quorums to share no honest
    one).
    """
    return _tail(clients, corrupted, members, 2 * quorum - members)


@cache
def split(*, clients: int, corrupted: int, minimum: int, picks: int, least: int) -> float:
    """log2 of a bound on P(some certifiable set of survivors has honest members not connected by
    masks).

    Every honest client picks `picks` of the others at random; the server sees all picks and then
    drops any clients, down to `minimum` survivors each of whom has `least` of its own picks among
    them.
    """
    honest = clients - corrupted
    half = honest // 2
    smaller = np.arange(1, half + 1)  # size of the smaller of two unconnected parts
    if smaller.size == 0:
        return -math.inf
    log_chances = _cut_off(clients, corrupted, minimum, picks, least, smaller)
    return float(np.logaddexp2.reduce(log_chances))


def _cut_off(
    clients: int, corrupted: int, minimum: int, picks: int, least: int, smaller: IntArray
) -> FloatArray:
    """log2 of a bound on P(some part of each size can be cut off from a part at least as large)."""
    honest = clients - corrupted
    others = clients - 1
    tails: list[float] = []
    for size in smaller.tolist():
        pickable = corrupted + size - 1
        tails.append(_tail(others, pickable, picks, least))
    # All honest clients outside that pick into the part must be dropped, but not the larger part.
    avoidance = _choose(others - smaller, picks) - _choose(others, picks)
    droppable = np.minimum(clients - minimum, honest - 2 * smaller)
    isolated = _few(honest - smaller, droppable, avoidance)
    parts = _choose(honest, smaller)
    picks_inside = smaller * np.array(tails)
    return parts + picks_inside + isolated


@cache
def corrupted_in(*, population: int, share: float, clients: int, bits: float) -> int:
    """The largest number of corrupted clients in a random draw, except with probability 2**-bits.

    Arguments:
        population: members of the roster.
        share: of them, at most this share is corrupted.
        clients: drawn at random; all of them when as many as the population.
        bits: of the chance that more are drawn.
    """
    marked = math.ceil(share * population)
    tails = _tails(population, marked, clients)
    rare = np.flatnonzero(tails <= -bits)
    return int(rare[0]) - 1


@cache
def _committee(
    clients: int, corrupted: int, dropped: int, security: float, failure: float
) -> tuple[int, int]:
    """The fewest members, and the quorum of them: with chance at most 2**-security two quorums
    share no honest member, with at most 2**-failure too few of them stay (`security` and `failure`
    in bits).
    """
    for members in range(1, clients + 1):
        # The first entry that is rare enough: that many corrupted members must not suffice to fork.
        tails = _tails(clients, corrupted, members)
        rare = np.flatnonzero(tails <= -security)
        honest_needed = int(rare[0])
        majority = members // 2 + 1
        quorum = max((members + honest_needed + 1) // 2, majority)
        if quorum > members:
            continue
        fatal_drop_outs = members - quorum + 1
        if _tail(clients, dropped, members, fatal_drop_outs) <= -failure:
            return members, quorum
    raise _infeasible(clients, corrupted, dropped, "no committee keeps them apart from the rest")


@cache
def _partners(
    clients: int, corrupted: int, dropped: int, minimum: int, security: float, failure: float
) -> tuple[int, int]:
    """The fewest picks of a client, and how many of them must stay in the sum: both with the
    chances of `_committee`, for masks that split and for clients that lose too many picks. Bits, as
    there.
    """
    for picks in range(1, clients):
        lonely = math.log2(clients) + _tails(clients - 1, dropped, picks)
        rare = np.flatnonzero(lonely <= -failure)
        least = picks + 1 - int(rare[0])
        if least < 1:
            continue
        single_client = np.array([1])
        (of_one_client,) = _cut_off(clients, corrupted, minimum, picks, least, single_client)
        if of_one_client > -security:
            continue  # one client alone is too easily cut off already
        of_any_part = split(
            clients=clients, corrupted=corrupted, minimum=minimum, picks=picks, least=least
        )
        if of_any_part <= -security:
            return picks, least
    raise _infeasible(clients, corrupted, dropped, "masks do not connect the rest")


def _infeasible(clients: int, corrupted: int, dropped: int, why: str) -> InfeasibleError:
    remedy = "invite more clients, or assume that fewer collude or drop out"
    return InfeasibleError(
        f"of {clients} clients {corrupted} collude and {dropped} drop out: {why}; {remedy}"
    )


@cache
def _log_factorials(count: int) -> FloatArray:
    """log2 of 0!, 1!, ..., (count - 1)!; SciPy has them too, but its import takes a client as long
    as all else that it imports.
    """
    logs = np.array([math.lgamma(number + 1) for number in range(count)])
    return logs / math.log(2)


def _choose(total: int | IntArray, chosen: int | IntArray) -> FloatArray:
    """log2 of the binomial coefficient; -inf where more are chosen than there are, or less
    than 0.
    """
    total, chosen = np.broadcast_arrays(total, chosen)
    is_possible = (chosen >= 0) & (chosen <= total)
    total = np.where(is_possible, total, 0)
    chosen = np.where(is_possible, chosen, 0)
    # Tables of a few sizes, each up to a power of 2.
    table_size = 1 << int(total.max()).bit_length()
    logs = _log_factorials(table_size)
    coefficients = logs[total] - logs[chosen] - logs[total - chosen]
    return np.where(is_possible, coefficients, -math.inf)


def _tails(population: int, marked: int, drawn: int) -> FloatArray:
    """log2 P(at least k of `drawn` are marked) for k = 0..drawn + 1; never above 0."""
    counts = np.arange(drawn + 1)
    log_odds = (
        _choose(marked, counts)
        + _choose(population - marked, drawn - counts)
        - _choose(population, drawn)
    )
    from_the_end = np.logaddexp2.accumulate(log_odds[::-1])
    tail_sums = from_the_end[::-1]
    tails = np.append(tail_sums, -math.inf)
    return np.minimum(0.0, tails)


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """log2 P(at least `least` of `drawn` are marked)."""
    tails = _tails(population, marked, drawn)
    last_index = drawn + 1
    index = min(max(0, least), last_index)
    return float(tails[index])


def _few(trials: IntArray, most: IntArray, miss: FloatArray) -> FloatArray:
    """log2 of Chernoff's bound on P(at most `most` of `trials` hit), each of which misses with
    probability 2**miss.
    """
    hit_chance = -np.expm1(miss * math.log(2))
    hit_share = most / np.maximum(trials, 1)
    miss_share = 1 - hit_share
    with np.errstate(divide="ignore", invalid="ignore"):
        miss_excess = np.log2(miss_share) - miss
        hit_excess = np.log2(hit_share) - np.log2(hit_chance)
        miss_cost = miss_share * miss_excess
        hit_cost = hit_share * hit_excess
        # Both are 0 in the limit of a share of 0.
        divergence = np.where(miss_share > 0, miss_cost, 0.0)
        divergence += np.where(hit_share > 0, hit_cost, 0.0)
        log_bound = np.where(hit_share < hit_chance, -trials * divergence, 0.0)
    return np.where(most < 0, -math.inf, log_bound)
