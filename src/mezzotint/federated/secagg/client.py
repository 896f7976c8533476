"""The client's side of a round: five messages answered once each, in order, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from mezzotint.federated.secagg import messages
from mezzotint.federated.secagg.errors import (
    DuplicateAnswer,
    InconsistentLists,
    OverlappingLists,
    PlanRefused,
    ProtocolError,
    ReplayedRound,
    SwappedKey,
    TooFewClients,
    UnknownSender,
    WrongStage,
)
from mezzotint.federated.secagg.masks import (
    SEED_BYTES,
    SHARE_BYTES,
    add_mask,
    agree,
    checked_integers,
    commitment,
    derive,
    pack_words,
    pair_purpose,
    private_from_seed,
    public_bytes,
    reduced,
    seal,
    sign,
    signed,
    split,
    unseal,
)
from mezzotint.federated.secagg.messages import Advertisement, Confirmation, SealedShare, Stage
from mezzotint.federated.secagg.plan import RoundPlan, safe_threshold
from mezzotint.federated.secagg.wire import number

_SESSIONS = 256
"""Sessions whose last round is remembered."""


@final
@dataclass(frozen=True, kw_only=True)
class Trust:
    """What a client insists on before it answers.

    Arguments:
        directory: identities (Ed25519 public keys) that neighbours must have; None trusts the server to pass on the
            keys of real clients (an honest-but-curious server).
        corrupted: neighbours that may collude with a server that lies about drop-outs; raises the threshold asked for.
        minimum: fewest summands that a plan may ask for.
    """

    directory: frozenset[bytes] | None = None
    corrupted: int = 0
    minimum: int = 2

    def check(self, plan: RoundPlan) -> None:
        """Raises PlanRefused when the plan protects less."""
        if plan.minimum < self.minimum:
            raise PlanRefused("plan", f"minimum={plan.minimum}: this client wants at least {self.minimum} summands")
        least = safe_threshold(plan.neighbours, self.corrupted)
        if plan.threshold < least:
            raise PlanRefused("plan", f"threshold={plan.threshold}: this client wants at least {least}")


@final
@dataclass(frozen=True, kw_only=True)
class _Round:
    """A client's secrets of one round. Lives from the invitation to the last answer."""

    plan: RoundPlan
    index: int
    done: int
    channel: bytes
    mask_seed: bytes
    self_seed: bytes
    neighbours: dict[int, Advertisement] = field(default_factory=dict)
    held: dict[int, bytes] = field(default_factory=dict)
    survivors: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


@final
class Client:
    """One client over many rounds.

    Each stage's method takes the server's message and returns the answer; called out of order or twice it refuses.
    After any other refusal the round is over for this client and its secrets of the round are gone.

    Arguments:
        identity: 32 bytes, the raw Ed25519 private key; None makes a new one.
        trust: what it insists on.

    Guarantees:
        Of each neighbour at most one of the two secrets is revealed.
        Nothing is revealed unless `threshold` neighbours signed lists that agree with this client's.
        A round is answered once, also across `save` and `load`.
    """

    def __init__(self, *, identity: bytes | None = None, trust: Trust | None = None) -> None:
        self._identity = Ed25519PrivateKey.from_private_bytes(os.urandom(32) if identity is None else identity)
        self.trust = Trust() if trust is None else trust
        self._last: dict[str, int] = {}
        self._round: _Round | None = None

    @property
    def identity(self) -> bytes:
        """The public identity, 32 bytes: what a directory lists."""
        return public_bytes(self._identity)

    @property
    def plan(self) -> RoundPlan | None:
        """The plan of the round in progress."""
        return None if self._round is None else self._round.plan

    # Stages ------------------------------------------------------------------------------------------------------

    def advertise(self, invitation: bytes) -> bytes:
        """Answers an invitation with fresh, signed public keys.

        Raises:
            PlanRefused: an unsafe plan, or one that protects less than `trust` asks for.
            ReplayedRound: this or a later round of the session was answered already.
        """
        plan, index = messages.read_invitation(invitation)
        self.trust.check(plan)
        session = plan.session.hex()
        if plan.round <= self._last.get(session, 0):
            raise ReplayedRound("advertise", f"round {plan.round} of this session was answered already")
        self._last.pop(session, None)
        self._last = {**dict(list(self._last.items())[1 - _SESSIONS :]), session: plan.round}
        started = _Round(
            plan=plan,
            index=index,
            done=0,
            channel=os.urandom(32),
            mask_seed=os.urandom(SEED_BYTES),
            self_seed=os.urandom(SEED_BYTES),
        )
        self._round = replace(started, done=1)
        unsigned = Advertisement(
            index=index,
            channel=public_bytes(X25519PrivateKey.from_private_bytes(started.channel)),
            mask=public_bytes(_mask_key(started)),
            identity=self.identity,
        )
        advert = replace(unsigned, signature=sign(self._identity, unsigned.statement(plan)))
        return messages.header("advertise", plan) + advert.to_bytes()

    def share(self, roster: bytes) -> bytes:
        """Answers the neighbours' keys with shares of both secrets, sealed for each.

        Raises:
            SwappedKey: a key that its owner did not sign, an unknown identity, one identity twice.
            TooFewClients, UnknownSender, DuplicateAnswer, MalformedMessage: what they say.
        """
        return self._stage("share", lambda now: self._share(now, roster))

    def mask(self, delivery: bytes, values: npt.ArrayLike) -> bytes:
        """Answers the neighbours' sealed shares with the masked input.

        Arguments:
            delivery: the message.
            values: (coordinates,) integers in 0..span.

        Raises:
            OutOfRangeInteger: naming the first coordinate.
            TamperedShare: a share that was cut or changed.
        """
        return self._stage("mask", lambda now: self._mask(now, delivery, values))

    def confirm(self, lists: bytes) -> bytes:
        """Answers the lists of survivors and drop-outs by signing them.

        Raises:
            OverlappingLists: a neighbour on both lists or on none.
        """
        return self._stage("confirm", lambda now: self._confirm(now, lists))

    def unmask(self, confirmations: bytes) -> bytes:
        """Answers the neighbours' signed lists with one share per neighbour; the round's secrets are forgotten.

        Raises:
            InconsistentLists: a neighbour was told something else, or did not sign what it is said to have signed.
        """
        answer = self._stage("unmask", lambda now: self._unmask(now, confirmations))
        self._round = None
        return answer

    def abandon(self) -> None:
        """Forgets the round in progress."""
        self._round = None

    def _stage(self, stage: Stage, act: Callable[[_Round], tuple[_Round, bytes]]) -> bytes:
        now = self._round
        place = messages.STAGES.index(stage)
        if now is None or now.done != place:
            told = "no round is in progress" if now is None else f"stage {messages.STAGES[now.done]!r} comes next"
            raise WrongStage(stage, told)
        try:
            after, answer = act(now)
        except ReplayedRound:
            raise  # a message of another round changes nothing in this one
        except ProtocolError:
            self._round = None
            raise
        self._round = replace(after, done=place + 1)
        return answer

    def _share(self, now: _Round, roster: bytes) -> tuple[_Round, bytes]:
        found = messages.read_roster(roster, now.plan)
        self._check_roster(now, found)
        neighbours = {one.index: one for one in sorted(found, key=lambda one: one.index)}
        holders = tuple(neighbours)
        of_self = split(now.self_seed, holders, now.plan.threshold)
        of_key = split(now.mask_seed, holders, now.plan.threshold)
        plan = now.plan.digest
        sealed = [
            SealedShare(
                holder=holder,
                sealed=seal(
                    _channel_key(now, neighbours[holder], now.index, holder),
                    of_self[holder] + of_key[holder],
                    about=plan + number(now.index, 2) + number(holder, 2),
                ),
                of_self=commitment(of_self[holder], plan=plan, owner=now.index, holder=holder, kind=b"self"),
                of_key=commitment(of_key[holder], plan=plan, owner=now.index, holder=holder, kind=b"key"),
            )
            for holder in holders
        ]
        seed = commitment(now.self_seed, plan=plan, owner=now.index, holder=now.index, kind=b"seed")
        return replace(now, neighbours=neighbours), messages.shares(now.plan, seed, sealed)

    def _check_roster(self, now: _Round, found: tuple[Advertisement, ...]) -> None:
        _check_members(now, [one.index for one in found], range(now.plan.clients), "share")
        if len(found) > now.plan.neighbours:
            raise UnknownSender("share", f"{len(found)} neighbours, but the plan has {now.plan.neighbours}")
        for one in found:
            if not signed(one.identity, one.signature, one.statement(now.plan)):
                raise SwappedKey("share", f"client {one.index} did not sign these keys", (one.index,))
            if self.trust.directory is not None and one.identity not in self.trust.directory:
                raise SwappedKey("share", f"the directory does not know client {one.index}", (one.index,))
        if len({one.identity for one in found} | {self.identity}) <= len(found):
            raise SwappedKey("share", "one identity stands for two clients")

    def _mask(self, now: _Round, delivery: bytes, values: npt.ArrayLike) -> tuple[_Round, bytes]:
        plan = now.plan
        total = checked_integers(values, coordinates=plan.coordinates, span=plan.span, bits=plan.bits, stage="mask")
        sealed = messages.read_delivery(delivery, plan)
        _check_members(now, [index for index, _ in sealed], now.neighbours, "mask")
        held = {
            index: unseal(
                _channel_key(now, now.neighbours[index], index, now.index),
                text,
                about=plan.digest + number(index, 2) + number(now.index, 2),
                sender=index,
            )
            for index, text in sealed
        }
        add_mask(total, self_mask_key(now.self_seed, plan, now.index), sign=1)
        private = _mask_key(now)
        for index in held:
            key = pair_mask_key(private, now.neighbours[index].mask, plan, now.index, index)
            add_mask(total, key, sign=1 if now.index < index else -1)
        packed = pack_words(reduced(total, plan.bits), plan.bits)
        return replace(now, held=held), messages.header("mask", plan) + packed

    def _confirm(self, now: _Round, lists: bytes) -> tuple[_Round, bytes]:
        survivors, dropped = messages.read_lists(lists, now.plan)
        both = sorted(set(survivors) & set(dropped))
        if both or now.index in dropped:
            culprits = tuple(both) or (now.index,)
            raise OverlappingLists("confirm", f"clients {list(culprits)} are survivors and drop-outs", culprits)
        neither = sorted(set(now.held) - set(survivors) - set(dropped))
        if neither:
            raise OverlappingLists("confirm", f"clients {neither} are neither survivors nor drop-outs", tuple(neither))
        _check_members(now, survivors, now.held, "confirm")
        strangers = sorted(set(dropped) - set(now.held))
        if strangers:
            raise UnknownSender("confirm", f"clients {strangers} share no mask with this one", tuple(strangers))
        unsigned = Confirmation(
            index=now.index, survivors=tuple(sorted((*survivors, now.index))), dropped=tuple(sorted(dropped))
        )
        said = replace(unsigned, signature=sign(self._identity, unsigned.statement(now.plan)))
        after = replace(now, survivors=tuple(sorted(survivors)), dropped=tuple(sorted(dropped)))
        return after, messages.header("confirm", now.plan) + said.to_bytes()

    def _unmask(self, now: _Round, confirmations: bytes) -> tuple[_Round, bytes]:
        said = messages.read_confirmations(confirmations, now.plan)
        _check_members(now, [one.index for one in said], now.survivors, "unmask")
        mine = {**dict.fromkeys((*now.survivors, now.index), True), **dict.fromkeys(now.dropped, False)}
        for one in said:
            if not signed(now.neighbours[one.index].identity, one.signature, one.statement(now.plan)):
                raise InconsistentLists("unmask", f"client {one.index} did not sign this list", (one.index,))
            theirs = {**dict.fromkeys(one.survivors, True), **dict.fromkeys(one.dropped, False)}
            differ = sorted(index for index in mine.keys() & theirs.keys() if mine[index] is not theirs[index])
            if differ or not theirs.get(now.index, False):
                raise InconsistentLists(
                    "unmask", f"client {one.index} was told another story about {differ or [now.index]}", (one.index,)
                )
        of_self = [(index, now.held[index][:SHARE_BYTES]) for index in now.survivors]
        of_key = [(index, now.held[index][SHARE_BYTES:]) for index in now.dropped]
        return now, messages.reveal(now.plan, of_self, of_key)

    # Between messages --------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Everything as bytes, secrets included: keep them where only this client reads."""
        return json.dumps(
            {
                "identity": self._identity.private_bytes_raw().hex(),
                "last": self._last,
                "round": None if self._round is None else _to_plain(self._round),
            }
        ).encode()

    @classmethod
    def load(cls, saved: bytes, *, trust: Trust | None = None) -> Client:
        """A client as it was saved."""
        plain = json.loads(saved)
        client = cls(identity=bytes.fromhex(plain["identity"]), trust=trust)
        client._last = plain["last"]
        client._round = None if plain["round"] is None else _from_plain(plain["round"])
        return client


def self_mask_key(seed: bytes, plan: RoundPlan, index: int) -> bytes:
    """Key of a client's own mask."""
    return derive(seed, plan=plan.digest, purpose=b"self mask" + number(index, 2))


def pair_mask_key(private: X25519PrivateKey, public: bytes, plan: RoundPlan, mine: int, theirs: int) -> bytes:
    """Key of the mask that two clients share; the lower index adds it, the higher one subtracts it."""
    low, high = sorted((mine, theirs))
    return agree(private, public, plan=plan.digest, purpose=pair_purpose(b"pair mask", low, high))


def mask_key_from_seed(seed: bytes, plan: RoundPlan, index: int) -> X25519PrivateKey:
    """A client's mask key."""
    return private_from_seed(seed, plan=plan.digest, index=index, purpose=b"mask key")


def _mask_key(now: _Round) -> X25519PrivateKey:
    return mask_key_from_seed(now.mask_seed, now.plan, now.index)


def _channel_key(now: _Round, other: Advertisement, sender: int, receiver: int) -> bytes:
    private = X25519PrivateKey.from_private_bytes(now.channel)
    return agree(private, other.channel, plan=now.plan.digest, purpose=pair_purpose(b"channel", sender, receiver))


def _check_members(now: _Round, found: Collection[int], known: Collection[int], stage: Stage) -> None:
    if now.index in found:
        raise DuplicateAnswer(stage, "this client is named as its own neighbour", (now.index,))
    strangers = sorted(set(found) - set(known))
    if strangers:
        raise UnknownSender(stage, f"clients {strangers} have no part here", tuple(strangers))
    if len(found) < now.plan.threshold:
        raise TooFewClients(stage, f"{len(found)} neighbours are left, the threshold is {now.plan.threshold}")


def _to_plain(now: _Round) -> dict[str, Any]:
    return {
        "invitation": messages.invitation(now.plan, now.index).hex(),
        "done": now.done,
        "secrets": [now.channel.hex(), now.mask_seed.hex(), now.self_seed.hex()],
        "roster": messages.roster(now.plan, tuple(now.neighbours.values())).hex(),
        "held": {str(index): text.hex() for index, text in now.held.items()},
        "survivors": now.survivors,
        "dropped": now.dropped,
    }


def _from_plain(plain: dict[str, Any]) -> _Round:
    plan, index = messages.read_invitation(bytes.fromhex(plain["invitation"]))
    channel, mask_seed, self_seed = (bytes.fromhex(text) for text in plain["secrets"])
    return _Round(
        plan=plan,
        index=index,
        done=plain["done"],
        channel=channel,
        mask_seed=mask_seed,
        self_seed=self_seed,
        neighbours={one.index: one for one in messages.read_roster(bytes.fromhex(plain["roster"]), plan)},
        held={int(i): bytes.fromhex(text) for i, text in plain["held"].items()},
        survivors=tuple(plain["survivors"]),
        dropped=tuple(plain["dropped"]),
    )
