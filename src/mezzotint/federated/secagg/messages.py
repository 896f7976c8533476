"""What travels: one frozen value per message, with its bytes."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, final

import numpy as np

from mezzotint.federated.secagg import masks
from mezzotint.federated.secagg.client_values import Clients
from mezzotint.federated.secagg.masks import COMMITMENT_BYTES, KEY_BYTES, SIGNATURE_BYTES
from mezzotint.federated.secagg.plan import DIGEST_BYTES, RoundPlan
from mezzotint.federated.secagg.roster import first_shuffled
from mezzotint.federated.secagg.wire import (
    INDEX_BYTES,
    DuplicateAnswer,
    MalformedMessage,
    Reader,
    ReplayedRound,
    UnknownSender,
    WrongStage,
    client_number,
    number,
)

Stage = Literal["deal", "sum", "agree", "open", "unite"]
STAGES: tuple[Stage, ...] = ("deal", "sum", "agree", "open")
"""In the order of a round. Where all dealers are in the sum, "unite" replaces the last two."""
_KINDS: tuple[Stage, ...] = (*STAGES, "unite")

BytesByClient = Mapping[int, bytes]
"""Coins, signatures or shares, by the client's index in the round."""

TAG_BYTES = 8
HEADER_BYTES = 1 + TAG_BYTES
COIN_BYTES = 16
SEALED_BYTES = 2 * masks.SHARE_BYTES + masks.TAG_BYTES


def header(stage: Stage, plan: RoundPlan) -> bytes:
    """Stage and round of a message."""
    stage_number = _KINDS.index(stage)
    return number(stage_number, 1) + _round_tag(plan)


def _round_tag(plan: RoundPlan) -> bytes:
    return plan.base[:TAG_BYTES]


def tag_of(message: bytes) -> bytes:
    """The tag of the round that a message, or an answer, is about: the beginning of its plan's
    `base`.
    """
    return message[1:HEADER_BYTES]


def body_reader(data: bytes, stage: Stage, plan: RoundPlan) -> Reader:
    """A reader behind the header; WrongStage or ReplayedRound for a message of another stage or
    round.
    """
    reader = Reader(data, stage)
    stage_number = reader.number(1)
    if stage_number != _KINDS.index(stage):
        stage_name = "unknown"
        if stage_number < len(_KINDS):
            stage_name = _KINDS[stage_number]
        raise WrongStage(stage, f"got a message of stage {stage_name!r}")
    if reader.take(TAG_BYTES) != _round_tag(plan):
        raise ReplayedRound(
            stage, f"the message belongs to another round than {plan.round} of this session"
        )
    return reader


def bitmap(clients: Collection[int] | Clients, plan: RoundPlan) -> bytes:
    """A set of the round's clients, one bit each."""
    indices = np.fromiter(clients, np.intp, len(clients))
    membership = np.zeros(plan.clients, dtype=np.uint8)
    membership[indices] = 1
    packed_bits = np.packbits(membership, bitorder="little")
    return packed_bits.tobytes()


def _read_bitmap(reader: Reader, plan: RoundPlan, stage: Stage) -> frozenset[int]:
    byte_count = math.ceil(plan.clients / 8)
    packed_bits = np.frombuffer(reader.take(byte_count), dtype=np.uint8)
    membership = np.unpackbits(packed_bits, bitorder="little")
    if membership[plan.clients :].any():
        raise MalformedMessage(stage, "bits are set after the last client")
    members = np.flatnonzero(membership)
    return frozenset(members.tolist())


def _ascending(values: BytesByClient) -> bytes:
    """Values of clients one after the other, by the clients' indices."""
    ordered_values = [values[client] for client in sorted(values)]
    return b"".join(ordered_values)


def _read_ascending(reader: Reader, clients: Collection[int], width: int) -> dict[int, bytes]:
    return {client: reader.take(width) for client in sorted(clients)}


def picked(coins: bytes, plan: RoundPlan, index: int) -> frozenset[int]:
    """The mask partners that a client's coins pick among the others: all sets are equally
    likely.
    """
    client = client_number(index)
    key = hashlib.sha256(b"mezzotint picks" + plan.base + client + coins).digest()
    other_count = plan.clients - 1
    positions = range(other_count)
    if plan.picks != other_count:
        positions = first_shuffled(other_count, key, plan.picks)
    # Positions count the others alone: from the client's own index on, they are one behind.
    return frozenset(position + (position >= index) for position in positions)


# Deal ---------------------------------------------------------------------------------------------


class Invitation(NamedTuple):
    """What a client is invited to: the plan, its place in it, and the roster's bytes, empty for a
    client that holds one.
    """

    plan: RoundPlan
    index: int
    roster: bytes


def invitation(plan: RoundPlan, index: int, roster: bytes = b"") -> bytes:
    """Server to client."""
    return plan.to_bytes() + client_number(index) + roster


def read_invitation(data: bytes) -> Invitation:
    """The invitation to a place that the plan has."""
    reader = Reader(data, "deal")
    plan = RoundPlan.from_reader(reader)
    index = reader.client_number()
    if index >= plan.clients:
        raise MalformedMessage("deal", f"index {index} of {plan.clients} clients")
    return Invitation(plan, index, reader.rest())


@final
@dataclass(frozen=True, kw_only=True)
class Deal:
    """A client's public part of the round, signed by its identity.

    Arguments:
        index: of the client in the round.
        mask: X25519 key for the masks between clients.
        channel: X25519 key with which its shares are sealed.
        coins: 16 bytes that determine its picks.
        contents: SHA-256 of the sealed shares and commitments.
        signature: of `statement` by the identity.
    """

    index: int
    mask: bytes
    channel: bytes
    coins: bytes
    contents: bytes
    signature: bytes = b""

    @property
    def _unsigned(self) -> bytes:
        client = client_number(self.index)
        return client + self.mask + self.channel + self.coins + self.contents

    def statement(self, plan: RoundPlan) -> bytes:
        """What the identity signs."""
        return b"mezzotint deals" + plan.base + self._unsigned

    def to_bytes(self) -> bytes:
        """Fixed width."""
        return self._unsigned + self.signature

    @classmethod
    def from_reader(cls, reader: Reader) -> Deal:
        """Read one: fields in the order of their bytes."""
        return cls(
            index=reader.client_number(),
            mask=reader.take(KEY_BYTES),
            channel=reader.take(KEY_BYTES),
            coins=reader.take(COIN_BYTES),
            contents=reader.take(DIGEST_BYTES),
            signature=reader.take(SIGNATURE_BYTES),
        )


class Portion(NamedTuple):
    """What a member of the committee is dealt: two shares, sealed, and the commitments that
    identify them later.
    """

    sealed: bytes
    of_self: bytes
    of_key: bytes


PORTION_BYTES = SEALED_BYTES + 2 * COMMITMENT_BYTES
DEAL_BYTES = INDEX_BYTES + 2 * KEY_BYTES + COIN_BYTES + DIGEST_BYTES + SIGNATURE_BYTES
_CHANNEL_BEGIN = INDEX_BYTES + KEY_BYTES
CHANNEL = slice(_CHANNEL_BEGIN, _CHANNEL_BEGIN + KEY_BYTES)
"""The channel's key in a `Deal`."""
COINS = slice(CHANNEL.stop, CHANNEL.stop + COIN_BYTES)
PORTIONS_BEGIN = HEADER_BYTES + DEAL_BYTES + COMMITMENT_BYTES


def portion(dealing: bytes, holder: int) -> Portion:
    """One member's portion of a dealing that `read_dealing` accepted."""
    start = PORTIONS_BEGIN + holder * PORTION_BYTES
    end = start + PORTION_BYTES
    return read_portion(dealing[start:end])


def read_portion(data: bytes) -> Portion:
    """The portion in PORTION_BYTES bytes."""
    reader = Reader(data, "deal")
    return Portion(
        sealed=reader.take(SEALED_BYTES),
        of_self=reader.take(COMMITMENT_BYTES),
        of_key=reader.take(COMMITMENT_BYTES),
    )


def contents(seed_commitment: bytes, portions: Sequence[Portion]) -> bytes:
    """The part of a dealing for server and committee: a commitment to the seed, then one portion
    for each member.
    """
    portion_fields = itertools.chain.from_iterable(portions)
    return seed_commitment + b"".join(portion_fields)


def dealing(plan: RoundPlan, deal: Deal, its_contents: bytes) -> bytes:
    """Client to server."""
    return header("deal", plan) + deal.to_bytes() + its_contents


def read_dealing(data: bytes, plan: RoundPlan) -> tuple[Deal, bytes]:
    """The public part, and the commitment to the self mask's seed; the contents are complete, and
    those signed.
    """
    reader = body_reader(data, "deal", plan)
    deal = Deal.from_reader(reader)
    sealed_contents = reader.rest()
    contents_digest = hashlib.sha256(sealed_contents).digest()
    if contents_digest != deal.contents:
        raise MalformedMessage("deal", "the shares are not those that the public part speaks of")
    with Reader(sealed_contents, "deal") as contents_reader:
        seed_commitment = contents_reader.take(COMMITMENT_BYTES)
        contents_reader.take(plan.members * PORTION_BYTES)
    return deal, seed_commitment


# Sum ----------------------------------------------------------------------------------------------


def partners(plan: RoundPlan, dealt: bytes, deals: bytes) -> bytes:
    """Server to client: the task, who dealt (a bitmap), and the public parts of those with whom the
    client masks.
    """
    return header("sum", plan) + plan.task + dealt + deals


class Announcement(NamedTuple):
    """What a client is told before it masks: the plan with its task, who dealt, the partners'
    public parts by index.
    """

    plan: RoundPlan
    dealt: frozenset[int]
    deals: dict[int, Deal]


def read_partners(data: bytes, plan: RoundPlan) -> Announcement:
    """The announcement of a round that was dealt under this plan."""
    reader = body_reader(data, "sum", plan)
    task = reader.take(DIGEST_BYTES)
    bound_plan = replace(plan, task=task)
    dealt = _read_bitmap(reader, plan, "sum")
    deals: dict[int, Deal] = {}
    while reader.left:
        deal = Deal.from_reader(reader)
        index = deal.index
        if index >= plan.clients:
            raise UnknownSender("sum", f"client {index} has no part here", (index,))
        if index in deals:
            raise DuplicateAnswer("sum", f"client {index} is named twice", (index,))
        deals[index] = deal
    return Announcement(plan=bound_plan, dealt=dealt, deals=deals)


def masks_statement(
    plan: RoundPlan, index: int, coins: bytes, dealt: bytes, partners: Collection[int]
) -> bytes:
    """What a client signs with its masked input: its picks, the dealers (a bitmap), and its mask
    partners.
    """
    bitmaps = dealt + bitmap(partners, plan)
    lists_digest = hashlib.sha256(bitmaps).digest()
    client = client_number(index)
    return b"mezzotint masks" + plan.digest + client + coins + lists_digest


class MaskedInput(NamedTuple):
    """A client's signature of `masks_statement`, and its masked integers, packed."""

    signature: bytes
    packed: bytes


def masked(plan: RoundPlan, signature: bytes, packed: bytes) -> bytes:
    """Client to server."""
    return header("sum", plan) + signature + packed


def read_masked(data: bytes, plan: RoundPlan) -> MaskedInput:
    """The masked input; the words are not looked at."""
    reader = body_reader(data, "sum", plan)
    signature = reader.take(SIGNATURE_BYTES)
    return MaskedInput(signature, reader.rest())


# Agree --------------------------------------------------------------------------------------------


class Proposal(NamedTuple):
    """What a member is asked to sign: the coins of all who dealt, and the survivors' signatures of
    `masks_statement`.
    """

    coins: BytesByClient
    signatures: BytesByClient


def proposal(plan: RoundPlan, coins: BytesByClient, signatures: BytesByClient) -> bytes:
    """Server to a member."""
    bitmaps = bitmap(coins, plan) + bitmap(signatures, plan)
    values = _ascending(coins) + _ascending(signatures)
    return header("agree", plan) + bitmaps + values


def read_proposal(data: bytes, plan: RoundPlan) -> Proposal:
    """The proposal; survivors need not have dealt."""
    with body_reader(data, "agree", plan) as reader:
        dealt = _read_bitmap(reader, plan, "agree")
        survivors = _read_bitmap(reader, plan, "agree")
        coins = _read_ascending(reader, dealt, COIN_BYTES)
        signatures = _read_ascending(reader, survivors, SIGNATURE_BYTES)
    return Proposal(coins, signatures)


def certificate_statement(
    plan: RoundPlan, dealt: Collection[int], survivors: Collection[int]
) -> bytes:
    """What a member signs, once a round."""
    bitmaps = bitmap(dealt, plan) + bitmap(survivors, plan)
    lists_digest = hashlib.sha256(bitmaps).digest()
    return b"mezzotint certifies" + plan.digest + lists_digest


def agreement(plan: RoundPlan, signature: bytes) -> bytes:
    """Member to server."""
    return header("agree", plan) + signature


def read_agreement(data: bytes, plan: RoundPlan) -> bytes:
    """The signature."""
    with body_reader(data, "agree", plan) as reader:
        return reader.take(SIGNATURE_BYTES)


# Open ---------------------------------------------------------------------------------------------


class SealedShares(NamedTuple):
    """What a dealer sealed for one member, and its channel's public key."""

    channel: bytes
    shares: bytes


SealedByDealer = Mapping[int, SealedShares]


def opening(plan: RoundPlan, signatures: BytesByClient, sealed: bytes) -> bytes:
    """Server to a member: the members' signatures; then each dealer's channel and what it sealed
    for this member.
    """
    entries = client_number(len(signatures))
    for member, signature in sorted(signatures.items()):
        entries += client_number(member)
        entries += signature
    return header("open", plan) + entries + sealed


def _read_sealed(reader: Reader, dealt: Collection[int]) -> SealedByDealer:
    sealed: dict[int, SealedShares] = {}
    for dealer in sorted(dealt):
        channel = reader.take(KEY_BYTES)
        sealed_shares = reader.take(SEALED_BYTES)
        sealed[dealer] = SealedShares(channel, sealed_shares)
    return sealed


def read_opening(
    data: bytes, plan: RoundPlan, dealt: Collection[int]
) -> tuple[BytesByClient, SealedByDealer]:
    """Signatures by member; channel and sealed shares by dealer."""
    signatures: dict[int, bytes] = {}
    with body_reader(data, "open", plan) as reader:
        signature_count = reader.client_number()
        for _ in range(signature_count):
            member = reader.client_number()
            if member in signatures:
                raise DuplicateAnswer("open", f"client {member} is named twice", (member,))
            signatures[member] = reader.take(SIGNATURE_BYTES)
        sealed = _read_sealed(reader, dealt)
    return signatures, sealed


def union(plan: RoundPlan, coins: BytesByClient, signatures: BytesByClient, sealed: bytes) -> bytes:
    """Server to a member, where all dealers are in the sum: their coins and signatures, then as
    `opening`.
    """
    values = [coins[client] + signatures[client] for client in sorted(coins)]
    return header("unite", plan) + bitmap(coins, plan) + b"".join(values) + sealed


class Union(NamedTuple):
    """Coins and signatures of all who dealt, and what is sealed by dealer."""

    coins: BytesByClient
    signatures: BytesByClient
    sealed: SealedByDealer


def read_union(data: bytes, plan: RoundPlan) -> Union:
    """The union of a round in which all dealers are in the sum."""
    coins: dict[int, bytes] = {}
    signatures: dict[int, bytes] = {}
    with body_reader(data, "unite", plan) as reader:
        dealt = _read_bitmap(reader, plan, "unite")
        for client in sorted(dealt):
            coins[client] = reader.take(COIN_BYTES)
            signatures[client] = reader.take(SIGNATURE_BYTES)
        sealed = _read_sealed(reader, dealt)
    return Union(coins, signatures, sealed)


def shares(plan: RoundPlan, opened: BytesByClient) -> bytes:
    """Member to server: one share of each dealer whose shares it could open."""
    return header("open", plan) + bitmap(opened, plan) + _ascending(opened)


def read_shares(data: bytes, plan: RoundPlan, dealt: Collection[int]) -> dict[int, bytes]:
    """dealer -> share."""
    with body_reader(data, "open", plan) as reader:
        owners = _read_bitmap(reader, plan, "open")
        strangers = sorted(owners.difference(dealt))
        if strangers:
            raise UnknownSender("open", f"clients {strangers} dealt nothing", tuple(strangers))
        return _read_ascending(reader, owners, masks.SHARE_BYTES)
