"""Who takes part: all clients, whose turn it is, and what a client demands of a plan before it
answers.

A client that lets the server name the others can be surrounded by clients that the server invented.
A roster is a file that clients hold themselves. Its beacon is drawn by the file's author, after the
members are known; from it everybody computes the same order of the members for every round. The
first in this order take part, and the first of those are the committee: the server chooses neither.
Rounds of all members of a small roster need no honest author: their committees are so large that no
order of the members could do harm.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from mezzotint.core.arguments import check_count, check_rules
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_bytes, read_object, write_text
from mezzotint.core.kinds import checked
from mezzotint.core.sampler import draw_words
from mezzotint.federated.secagg import masks
from mezzotint.federated.secagg.plan import (
    CORRUPTED,
    SECURITY_BITS,
    Draw,
    RoundPlan,
    corrupted_in,
    forked,
    split,
)
from mezzotint.federated.secagg.wire import (
    MalformedMessage,
    PlanRefused,
    Reader,
    SwappedKey,
    number,
)

Sampling = Literal["fixed", "cyclic"]
SAMPLINGS: tuple[Sampling, ...] = ("fixed", "cyclic")

RISK = 0.01
"""Probability that some client is drawn for more rounds than `most_participations` returns, for
random draws.
"""


def turn(number_of_round: int, clients: int, population: int) -> list[int]:
    """The places, in a fixed order of the population, whose turn it is in a round of the given
    size.

    Guarantees: after T rounds nobody has been in fewer than floor(T clients / population) of them,
        nobody in more than one more, and two turns of one client are at least floor(population /
        clients) rounds apart.

    >>> turn(1, 2, 5), turn(2, 2, 5), turn(3, 2, 5)
    ([0, 1], [2, 3], [4, 0])
    """
    beginning = (number_of_round - 1) * clients
    end = beginning + clients
    return [position % population for position in range(beginning, end)]


def most_participations(
    sampling: Sampling, *, rounds: int, clients_per_round: int, population: int
) -> int:
    """The largest number of rounds in which one client takes part.

    For random draws some client exceeds it with probability at most `RISK`, by a union bound.

    >>> most_participations("cyclic", rounds=20, clients_per_round=100, population=1000)
    2
    >>> most_participations("fixed", rounds=20, clients_per_round=100, population=1000)
    9
    """
    if clients_per_round >= population:
        return rounds
    if sampling == "cyclic":
        return -(-rounds * clients_per_round // population)
    from scipy.special import bdtrc  # the tails of a binomial

    chance = clients_per_round / population
    excesses = bdtrc(np.arange(rounds), rounds, chance)
    tails = np.append(excesses, 0.0)
    rare = np.flatnonzero(population * tails <= RISK)
    return int(rare[0])


_FORMAT = "mezzotint roster"
_CARD = b"mezzotint card"
_OWNER = b"owner of a card"
INTRODUCTION_BYTES = 2 * masks.KEY_BYTES + masks.SIGNATURE_BYTES


def shuffled(count: int, key: bytes) -> list[int]:
    """0..count-1 in a uniformly random order determined by the key."""
    sort_keys = draw_words(key, 0, 2 * count)
    # 128-bit sort keys: ties are negligible.
    order = np.lexsort((sort_keys[1::2], sort_keys[::2]))
    return order.tolist()


def first_shuffled(count: int, key: bytes, wanted: int) -> list[int]:
    """The first `wanted` < count of `shuffled`, in any order: 40 times as fast as sorting
    10,000.
    """
    words = draw_words(key, 0, 2 * count)
    # Ties of 64 bits at the border are negligible, too.
    sort_keys = words[::2]
    order = np.argpartition(sort_keys, wanted)
    return order[:wanted].tolist()


def channel_key(identity: bytes) -> X25519PrivateKey:
    """The long-term X25519 key that goes with an identity, both from the same 32 bytes."""
    return X25519PrivateKey.from_private_bytes(
        masks.derive(identity, plan=b"", purpose=b"channel of an identity")
    )


@final
@dataclass(frozen=True, kw_only=True)
class Card:
    """A client's public keys: of its signatures (Ed25519), and of secrets sealed for it (X25519);
    32 bytes each.
    """

    identity: bytes
    channel: bytes

    def to_bytes(self) -> bytes:
        """64 bytes."""
        return self.identity + self.channel

    @property
    def statement(self) -> bytes:
        """What its owner signs."""
        return _CARD + self.to_bytes()

    @classmethod
    def from_reader(cls, reader: Reader) -> Card:
        """Reads one."""
        identity = reader.take(masks.KEY_BYTES)
        channel = reader.take(masks.KEY_BYTES)
        return cls(identity=identity, channel=channel)


def read_identity(path: str | Path, *, parameter: str = "identity") -> bytes:
    """The Ed25519 private key in a file; ParameterError, naming the parameter, unless it holds 32
    bytes.
    """
    key = read_bytes(path)
    if len(key) != masks.KEY_BYTES:
        raise ParameterError(
            parameter,
            str(path),
            "not a file of an identity; make one with: mezzotint roster identity FILE --records FOLDER",
        )
    return key


def introduce(identity: bytes) -> bytes:
    """The signed card of the client with this Ed25519 private key: 128 bytes."""
    private = Ed25519PrivateKey.from_private_bytes(identity)
    channel = masks.public_bytes(channel_key(identity))
    card = Card(identity=masks.public_bytes(private), channel=channel)
    signature = masks.sign(private, card.statement)
    return card.to_bytes() + signature


def read_introduction(data: bytes) -> Card:
    """The card of `introduce`; SwappedKey if its owner did not sign it, or the channel's key has
    small order.
    """
    with Reader(data, "card") as reader:
        card = Card.from_reader(reader)
        signature = reader.take(masks.SIGNATURE_BYTES)
    is_signed = masks.signed(card.identity, signature, card.statement)
    if not is_signed or not masks.has_large_order(card.channel):
        raise SwappedKey(
            "card",
            "the owner of this identity did not sign this channel's key, or it has small order",
        )
    return card


def show(identity: bytes, question: bytes, held: bytes) -> bytes:
    """A client's card for one server, a proof that it holds both of its keys, and the digest of its
    roster, if any.

    The question is that of a `Challenge`; SwappedKey for one that nobody honest asks.
    """
    introduction = introduce(identity)
    shared = _owner_secret(channel_key(identity), question)
    private = Ed25519PrivateKey.from_private_bytes(identity)
    statement = _owner_statement(question, shared, introduction, held)
    signature = masks.sign(private, statement)
    return introduction + signature + held


def _owner_secret(private: X25519PrivateKey, public: bytes) -> bytes:
    """The secret that the owner of a channel's key and the asking server agree on."""
    return masks.agree(private, public, plan=b"", purpose=_OWNER, stage="card")


def _owner_statement(question: bytes, shared: bytes, introduction: bytes, held: bytes) -> bytes:
    return b"mezzotint " + _OWNER + question + shared + introduction + held


@final
class Challenge:
    """The question that a node answers before its card is accepted: a public key made for this node
    alone.

    Cards are public. To answer, a node needs the card's channel key to agree on a secret, and its
    identity key to sign
    it: neither another's card nor an own card with another's channel key will do.
    """

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()

    @property
    def question(self) -> bytes:
        """32 bytes, sent to the node."""
        return masks.public_bytes(self._private)

    def read(self, answer: bytes) -> tuple[Card, bytes]:
        """The card of `show`, and the digest of the client's roster, if any; SwappedKey without its
        keys.
        """
        reader = Reader(answer, "card")
        introduction = reader.take(INTRODUCTION_BYTES)
        signature = reader.take(masks.SIGNATURE_BYTES)
        digest = reader.rest()
        card = read_introduction(introduction)
        if len(digest) not in (0, masks.KEY_BYTES):
            raise MalformedMessage("card", "what follows the card is not a roster's digest")
        shared = _owner_secret(self._private, card.channel)
        statement = _owner_statement(self.question, shared, introduction, digest)
        if not masks.signed(card.identity, signature, statement):
            raise SwappedKey("card", "whoever shows this card does not hold its keys")
        return card, digest


@final
@dataclass(frozen=True, kw_only=True)
class Roster:
    """All clients, and the beacon that draws among them.

    Arguments:
        members: sorted by identity, no key twice.
        beacon: 32 bytes, drawn after the members were known.

    Raises:
        ParameterError: fewer than 2 members, a key twice, keys of another length, another order.

    Guarantees: one digest, one list of members, one draw for every round.

    Example:
        >>> import os
        >>> from mezzotint.federated.secagg import Client
        >>> from mezzotint.federated.secagg.roster import read_introduction
        >>> cards = [read_introduction(Client(identity=os.urandom(32)).card()) for _ in range(3)]
        >>> roster = mz.federated.Roster.drawn(cards)
        >>> len(roster.members), len(roster.digest)
        (3, 32)
    """

    members: tuple[Card, ...]
    beacon: bytes

    def __post_init__(self) -> None:
        identities = [card.identity for card in self.members]
        channels = [card.channel for card in self.members]
        public_keys = identities + channels
        population = len(self.members)
        in_order = identities == sorted(identities)
        widths = {len(public_key) for public_key in (*public_keys, self.beacon)}
        small_keys = masks.SMALL_IDENTITIES & set(public_keys)
        for holds, culprit, remedy in (
            (2 <= population < 2**16, population, "need 2 to 65535 clients"),
            (widths == {masks.KEY_BYTES}, "a key", f"keys and beacon have {masks.KEY_BYTES} bytes"),
            (
                len(set(public_keys)) == len(public_keys),
                "a key",
                "is listed twice; every client has keys of its own",
            ),
            (
                not small_keys,
                "a key",
                "has small order, so that anybody signs for it; leave it out",
            ),
            (in_order, "their order", "sort them by identity"),
        ):
            if not holds:
                raise ParameterError("members", culprit, remedy)

    @classmethod
    def drawn(cls, cards: Iterable[Card]) -> Roster:
        """A roster of these members with a fresh beacon."""
        members = sorted(cards, key=lambda card: card.identity)
        return cls(members=tuple(members), beacon=os.urandom(masks.KEY_BYTES))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the roster: part of every plan."""
        content = _FORMAT.encode() + self.to_bytes()
        return hashlib.sha256(content).digest()

    def check_drawn(self, clients: int, *, parameter: str) -> None:
        """ParameterError, naming the parameter, for a round of no clients or of more clients than
        members.
        """
        if not 1 <= clients <= len(self.members):
            raise ParameterError(parameter, clients, f"the roster has {len(self.members)} members")

    @cached_property
    def _cycle(self) -> list[int]:
        """The order in which members take turns."""
        key = hashlib.sha256(b"mezzotint cycle" + self.digest)
        return shuffled(len(self.members), key.digest())

    def cohort(self, number_of_round: int, clients: int, draw: Draw = "anew") -> tuple[Card, ...]:
        """The clients of a round, in the order drawn.

        Arguments:
            number_of_round, clients: of the round.
            draw: "anew" takes the first of a fresh order. "cyclic" repeats one order of all members
                (`turn`), so that all take part equally often, and each as evenly as possible; a
                round's clients are in a fresh order.

        Raises:
            ParameterError: more clients than members.
        """
        self.check_drawn(clients, parameter="clients")
        population = len(self.members)
        encoded_round = number(number_of_round, 4)
        draw_key = hashlib.sha256(b"mezzotint draw" + self.digest + encoded_round).digest()
        if draw == "anew":
            positions = shuffled(population, draw_key)[:clients]
        else:
            places = turn(number_of_round, clients, population)
            positions = [self._cycle[places[position]] for position in shuffled(clients, draw_key)]
        cards = [self.members[position] for position in positions]
        return tuple(cards)

    def to_bytes(self) -> bytes:
        """The roster on the wire."""
        cards = [card.to_bytes() for card in self.members]
        return self.beacon + number(len(cards), 2) + b"".join(cards)

    @classmethod
    def from_bytes(cls, data: bytes) -> Roster:
        """The roster of `to_bytes`; MalformedMessage for anything else."""
        with Reader(data, "deal") as reader:
            beacon = reader.take(masks.KEY_BYTES)
            member_count = reader.number(2)
            members = [Card.from_reader(reader) for _ in range(member_count)]
        try:
            return cls(members=tuple(members), beacon=beacon)
        except ParameterError:
            raise MalformedMessage(
                "deal", "the roster holds a key twice, is not sorted, or is too short"
            ) from None

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the file that clients name in their policy."""
        write_text(path, self.to_json(), overwrite=overwrite)

    def to_json(self) -> str:
        """The text of the file."""
        members = [[card.identity.hex(), card.channel.hex()] for card in self.members]
        document = {"format": _FORMAT, "beacon": self.beacon.hex(), "members": members}
        return json.dumps(document, indent=0)

    @classmethod
    def load(cls, path: str | Path) -> Roster:
        """The roster in a file.

        Raises:
            FileFormatError: no such file, or not a roster.
        """
        document = read_object(path)
        try:
            if document.get("format") != _FORMAT:
                raise ValueError("another format")
            key_pairs: Sequence[tuple[str, str]] = document["members"]
            cards: list[Card] = []
            for identity, channel in key_pairs:
                card = Card(identity=bytes.fromhex(identity), channel=bytes.fromhex(channel))
                cards.append(card)
            beacon = bytes.fromhex(document["beacon"])
            return cls(members=tuple(cards), beacon=beacon)
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{Path(path).name}: not a roster ({error})") from None


ROUNDS = 1024
"""Largest round number that a client answers, unless its policy says otherwise."""

WHOLE_ROSTER = 300
"""Most members of a roster whose rounds of all members need no honest beacon; larger committees
would cost too much.
"""

DEALINGS = 1 << 14
"""Most rounds that a client deals in, of all sessions together, unless its policy says otherwise.
"""


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Trust:
    """The conditions on which a client answers.

    Arguments:
        roster: all clients; None trusts the server not to invent clients, with which it could learn
            anything.
        corrupted: largest share of the roster that colludes with the server.
        minimum: fewest summands that a plan may allow.
        rounds: largest round number. A server can look ahead for the number whose draw suits it
            best, so more rounds demand more security of each.
        dealings: most rounds that this client deals in, of all sessions. A server can let rounds
            fail until the coins suit it, so more dealings demand more mask partners.
        security_bits: all rounds together protect less than promised with probability at most
            2**-security_bits.

    Raises:
        ParameterError: values out of their ranges.
    """

    roster: Roster | None = None
    corrupted: float = CORRUPTED
    minimum: int = 2
    rounds: int = ROUNDS
    dealings: int = DEALINGS
    security_bits: float = SECURITY_BITS

    def __post_init__(self) -> None:
        check_rules(
            self,
            ("corrupted", 0 <= self.corrupted < 1, "need a share of the clients in [0, 1)"),
            ("minimum", self.minimum >= 2, "a sum of fewer than 2 hides nobody"),
            ("rounds", self.rounds >= 1, "need at least one round"),
            ("dealings", self.dealings >= 1, "need at least one round dealt in"),
        )
        for limit in ("minimum", "rounds", "dealings"):
            check_count(limit, getattr(self, limit))

    @property
    def bits(self) -> float:
        """Security of one draw of clients: `rounds` of them have `security_bits` together."""
        return self.security_bits + math.log2(self.rounds)

    @property
    def dealing_bits(self) -> float:
        """Security of one dealing's coins: `dealings` of them, in any sessions, have
        `security_bits` together.
        """
        return self.security_bits + math.log2(self.dealings)

    def drawn_bits(self, population: int, clients: int) -> float:
        """Security of one draw: the server may choose one of two, and the sizes of round and
        committee.

        Of a round of the whole roster nothing has to be drawn honestly: infinite, which `plan_sum`
        and `check` take for committees that fork with probability 0, whatever the order of the
        members.

        >>> trust = Trust()
        >>> trust.drawn_bits(100, 100), round(trust.drawn_bits(100, 50), 1)
        (inf, 64.3)
        """
        if clients == population <= WHOLE_ROSTER:
            return math.inf
        return self.bits + 1 + 2 * math.log2(population)

    def roster_of(self, plan: RoundPlan, shipped: bytes) -> Roster:
        """The plan's roster: this client's own, or the one shipped to a client without; PlanRefused
        for another one.
        """
        roster = self.roster
        if roster is None:
            roster = Roster.from_bytes(shipped)
        if plan.roster != roster.digest:
            complaint = "the plan is about other clients than this client's roster lists"
            raise PlanRefused("plan", f"roster: {complaint}")
        if plan.clients > len(roster.members):
            complaint = f"the roster has {len(roster.members)}"
            raise PlanRefused("plan", f"clients={plan.clients}: {complaint}")
        return roster

    def corrupted_of(self, plan: RoundPlan, population: int | None = None) -> int:
        """The number of clients of the round whose noise and honesty are not relied upon."""
        if population is None:
            population = plan.clients
            if self.roster is not None:
                population = max(population, len(self.roster.members))
        bits = self.drawn_bits(population, plan.clients)
        return corrupted_in(
            population=population, share=self.corrupted, clients=plan.clients, bits=bits
        )

    def check(self, plan: RoundPlan, population: int) -> None:
        """Raise PlanRefused if the plan protects less than this client requires."""
        if plan.round > self.rounds:
            complaint = f"this client answers rounds up to {self.rounds}"
            raise PlanRefused("plan", f"round={plan.round}: {complaint}")
        if plan.minimum < self.minimum:
            raise PlanRefused(
                "plan",
                f"minimum={plan.minimum}: this client wants at least {self.minimum} summands",
            )
        corrupted_clients = self.corrupted_of(plan, population)
        if plan.minimum <= corrupted_clients:
            raise PlanRefused(
                "plan",
                f"minimum={plan.minimum}: {corrupted_clients} of {plan.clients} may collude with the server (corrupted, "
                "server.colluding), too few are left",
            )
        round_sizes = {"clients": plan.clients, "corrupted": corrupted_clients}
        drawn_bits = self.drawn_bits(population, plan.clients)
        fork_risk = forked(**round_sizes, members=plan.members, quorum=plan.quorum)
        if fork_risk > -drawn_bits:
            complaint = "two sets of survivors could both get one"
            raise PlanRefused("plan", f"quorum={plan.quorum}: {complaint}")
        split_risk = split(**round_sizes, minimum=plan.minimum, picks=plan.picks, least=plan.least)
        if split_risk > -self.dealing_bits:
            complaint = "too few masks connect the clients"
            raise PlanRefused("plan", f"picks={plan.picks}, least={plan.least}: {complaint}")

    def place(
        self, plan: RoundPlan, roster: Roster, index: int, identity: bytes
    ) -> tuple[Card, ...]:
        """The round's clients in the order drawn; SwappedKey unless this one is at `index`."""
        cohort = roster.cohort(plan.round, plan.clients, plan.draw)
        if cohort[index].identity != identity:
            raise SwappedKey("deal", f"another client is drawn for place {index} of this round")
        return cohort
