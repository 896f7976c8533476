"""What travels: one frozen value per message, with its bytes."""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar, final

import numpy as np
import numpy.typing as npt

from mezzotint.federated.secagg import masks, wire
from mezzotint.federated.secagg.plan import DIGEST_BYTES, RoundPlan
from mezzotint.federated.secagg.roster import first_shuffled

T = TypeVar("T")
Clients = npt.NDArray[np.uint16]
Stage = Literal["deal", "sum", "agree", "open", "unite"]
STAGES: tuple[Stage, ...] = ("deal", "sum", "agree", "open")
"""In the order of a round. Where all dealers are in the sum, "unite" replaces the last two."""
_KINDS: tuple[Stage, ...] = (*STAGES, "unite")

TAG_BYTES = 8
COIN_BYTES = 16
SEALED_BYTES = 2 * masks.SHARE_BYTES + masks.TAG_BYTES


def header(stage: Stage, plan: RoundPlan) -> bytes:
    """Stage and round of a message."""
    return wire.number(_KINDS.index(stage), 1) + plan.base[:TAG_BYTES]


def tag_of(message: bytes) -> bytes:
    """The tag of the round that a message, or an answer, is about: the beginning of its plan's
    `base`.
    """
    return message[1 : 1 + TAG_BYTES]


def opened(data: bytes, stage: Stage, plan: RoundPlan) -> wire.Reader:
    """A reader behind the header; WrongStage or ReplayedRound for a message of another stage or
    round.
    """
    reader = wire.Reader(data, stage)
    stage_number = reader.number(1)
    if stage_number != _KINDS.index(stage):
        stage_name = _KINDS[stage_number] if stage_number < len(_KINDS) else "unknown"
        raise wire.WrongStage(stage, f"got a message of stage {stage_name!r}")
    if reader.take(TAG_BYTES) != plan.base[:TAG_BYTES]:
        raise wire.ReplayedRound(
            stage, f"the message belongs to another round than {plan.round} of this session"
        )
    return reader


def bitmap(clients: Collection[int] | Clients, plan: RoundPlan) -> bytes:
    """A set of the round's clients, one bit each."""
    membership = np.zeros(plan.clients, dtype=np.uint8)
    membership[np.fromiter(clients, np.intp, len(clients))] = 1
    return np.packbits(membership, bitorder="little").tobytes()


def _read_bitmap(reader: wire.Reader, plan: RoundPlan, stage: Stage) -> frozenset[int]:
    packed_bits = np.frombuffer(reader.take(-(-plan.clients // 8)), dtype=np.uint8)
    membership = np.unpackbits(packed_bits, bitorder="little")
    if membership[plan.clients :].any():
        raise wire.MalformedMessage(stage, "bits are set after the last client")
    return frozenset(np.flatnonzero(membership).tolist())


def picked(coins: bytes, plan: RoundPlan, index: int) -> frozenset[int]:
    """The mask partners that a client's coins pick among the others: all sets are equally likely."""
    key = hashlib.sha256(b"mezzotint picks" + plan.base + wire.number(index, 2) + coins).digest()
    others = plan.clients - 1
    places = range(others) if plan.picks == others else first_shuffled(others, key, plan.picks)
    return frozenset(position + (position >= index) for position in places)


# Deal ---------------------------------------------------------------------------------------------


def invitation(plan: RoundPlan, index: int, roster: bytes = b"") -> bytes:
    """Server to client: the plan, the client's place in it, and the roster for a client that holds
    none.
    """
    return plan.to_bytes() + wire.number(index, 2) + roster


def read_invitation(data: bytes) -> tuple[RoundPlan, int, bytes]:
    """The plan, the client's place, the roster's bytes."""
    reader = wire.Reader(data, "deal")
    plan = RoundPlan.from_reader(reader)
    index = reader.number(2)
    if index >= plan.clients:
        raise wire.MalformedMessage("deal", f"index {index} of {plan.clients} clients")
    return plan, index, reader.rest()


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
    def _said(self) -> bytes:
        return wire.number(self.index, 2) + self.mask + self.channel + self.coins + self.contents

    def statement(self, plan: RoundPlan) -> bytes:
        """What the identity signs."""
        return b"mezzotint deals" + plan.base + self._said

    def to_bytes(self) -> bytes:
        """Fixed width."""
        return self._said + self.signature

    @classmethod
    def from_reader(cls, reader: wire.Reader) -> Deal:
        """Read one."""
        index, widths = (
            reader.number(2),
            (masks.KEY_BYTES, masks.KEY_BYTES, COIN_BYTES, 32, masks.SIGNATURE_BYTES),
        )
        mask, channel, coins, contents, signature = map(reader.take, widths)
        return cls(
            index=index,
            mask=mask,
            channel=channel,
            coins=coins,
            contents=contents,
            signature=signature,
        )


class Portion(NamedTuple):
    """What a member of the committee is dealt: two shares, sealed, and the commitments that
    identify them later.
    """

    sealed: bytes
    of_self: bytes
    of_key: bytes


PORTION_BYTES = SEALED_BYTES + 2 * masks.COMMITMENT_BYTES
DEAL_BYTES = 2 + 2 * masks.KEY_BYTES + COIN_BYTES + 32 + masks.SIGNATURE_BYTES
CHANNEL = slice(2 + masks.KEY_BYTES, 2 + 2 * masks.KEY_BYTES)
"""The channel's key in a `Deal`."""
COINS = slice(CHANNEL.stop, CHANNEL.stop + COIN_BYTES)
_DEAL_BEGIN = 1 + TAG_BYTES
_PORTIONS_BEGIN = _DEAL_BEGIN + DEAL_BYTES + masks.COMMITMENT_BYTES


def portion(dealing: bytes, holder: int) -> Portion:
    """One member's portion of a dealing that `read_dealing` accepted."""
    offset = _PORTIONS_BEGIN + holder * PORTION_BYTES
    reader = wire.Reader(dealing[offset : offset + PORTION_BYTES], "deal")
    return Portion(
        *map(reader.take, (SEALED_BYTES, masks.COMMITMENT_BYTES, masks.COMMITMENT_BYTES))
    )


def contents(seed_commitment: bytes, portions: Sequence[Portion]) -> bytes:
    """The part of a dealing for server and committee: a commitment to the seed, then one portion
    for each member.
    """
    return seed_commitment + b"".join(itertools.chain.from_iterable(portions))


def dealing(plan: RoundPlan, deal: Deal, its_contents: bytes) -> bytes:
    """Client to server."""
    return header("deal", plan) + deal.to_bytes() + its_contents


def read_dealing(data: bytes, plan: RoundPlan) -> tuple[Deal, bytes]:
    """The public part, and the commitment to the self mask's seed; the contents are complete, and
    those signed.
    """
    reader = opened(data, "deal", plan)
    deal = Deal.from_reader(reader)
    sealed_contents = reader.rest()
    if hashlib.sha256(sealed_contents).digest() != deal.contents:
        raise wire.MalformedMessage(
            "deal", "the shares are not those that the public part speaks of"
        )
    with wire.Reader(sealed_contents, "deal") as reader:
        seed, _ = reader.take(masks.COMMITMENT_BYTES), reader.take(plan.members * PORTION_BYTES)
    return deal, seed


def parts(dealing: bytes) -> tuple[bytes, bytes]:
    """A dealing that `read_dealing` accepted, cut in two: the `Deal` with the commitment to the
    seed; the portions.
    """
    return dealing[_DEAL_BEGIN:_PORTIONS_BEGIN], dealing[_PORTIONS_BEGIN:]


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
    reader = opened(data, "sum", plan)
    bound = replace(plan, task=reader.take(DIGEST_BYTES))
    dealt = _read_bitmap(reader, plan, "sum")
    deals: dict[int, Deal] = {}
    while reader.left:
        deal = Deal.from_reader(reader)
        if deal.index >= plan.clients:
            raise wire.UnknownSender("sum", f"client {deal.index} has no part here", (deal.index,))
        if deal.index in deals:
            raise wire.DuplicateAnswer("sum", f"client {deal.index} is named twice", (deal.index,))
        deals[deal.index] = deal
    return Announcement(bound, dealt, deals)


def masks_statement(
    plan: RoundPlan, index: int, coins: bytes, dealt: bytes, partners: Collection[int]
) -> bytes:
    """What a client signs with its masked input: its picks, the dealers (a bitmap), and its mask
    partners.
    """
    content = (
        wire.number(index, 2) + coins + hashlib.sha256(dealt + bitmap(partners, plan)).digest()
    )
    return b"mezzotint masks" + plan.digest + content


def compact(clients: Collection[int]) -> Clients:
    """The numbers of clients in two bytes each; a Python set takes a hundred."""
    return np.fromiter(clients, np.uint16, len(clients))


def masked(plan: RoundPlan, signature: bytes, packed: bytes) -> bytes:
    """Client to server."""
    return header("sum", plan) + signature + packed


def read_masked(data: bytes, plan: RoundPlan) -> tuple[bytes, bytes]:
    """The signature and the packed words."""
    reader = opened(data, "sum", plan)
    return reader.take(masks.SIGNATURE_BYTES), reader.rest()


# Agree --------------------------------------------------------------------------------------------


def proposal(plan: RoundPlan, coins: Mapping[int, bytes], said: Mapping[int, bytes]) -> bytes:
    """Server to a member: the coins of all who dealt, and the signatures of the survivors among
    them.
    """
    words = b"".join(coins[client] for client in sorted(coins)) + b"".join(
        said[client] for client in sorted(said)
    )
    return header("agree", plan) + bitmap(coins, plan) + bitmap(said, plan) + words


def read_proposal(data: bytes, plan: RoundPlan) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """The coins of all who dealt; the survivors' signatures."""
    with opened(data, "agree", plan) as reader:
        dealt, survivors = _read_bitmap(reader, plan, "agree"), _read_bitmap(reader, plan, "agree")
        coins = {client: reader.take(COIN_BYTES) for client in sorted(dealt)}
        return coins, {client: reader.take(masks.SIGNATURE_BYTES) for client in sorted(survivors)}


def certificate_statement(
    plan: RoundPlan, dealt: Collection[int], survivors: Collection[int]
) -> bytes:
    """What a member signs, once a round."""
    bitmaps = bitmap(dealt, plan) + bitmap(survivors, plan)
    return b"mezzotint certifies" + plan.digest + hashlib.sha256(bitmaps).digest()


def agreement(plan: RoundPlan, signature: bytes) -> bytes:
    """Member to server."""
    return header("agree", plan) + signature


def read_agreement(data: bytes, plan: RoundPlan) -> bytes:
    """The signature."""
    with opened(data, "agree", plan) as reader:
        return reader.take(masks.SIGNATURE_BYTES)


# Open ---------------------------------------------------------------------------------------------


def opening(plan: RoundPlan, signatures: Mapping[int, bytes], sealed: bytes) -> bytes:
    """Server to a member: the members' signatures; then each dealer's channel and what it sealed
    for this member.
    """
    words = b"".join(
        wire.number(client, 2) + signature for client, signature in sorted(signatures.items())
    )
    return header("open", plan) + wire.number(len(signatures), 2) + words + sealed


def _read_portions(reader: wire.Reader, dealt: Collection[int]) -> dict[int, tuple[bytes, bytes]]:
    return {
        client: (reader.take(masks.KEY_BYTES), reader.take(SEALED_BYTES))
        for client in sorted(dealt)
    }


def read_opening(
    data: bytes, plan: RoundPlan, dealt: Collection[int]
) -> tuple[dict[int, bytes], dict[int, tuple[bytes, bytes]]]:
    """Signatures by member; channel and sealed shares by dealer."""
    signatures: dict[int, bytes] = {}
    with opened(data, "open", plan) as reader:
        for _ in range(reader.number(2)):
            client = reader.number(2)
            if client in signatures:
                raise wire.DuplicateAnswer("open", f"client {client} is named twice", (client,))
            signatures[client] = reader.take(masks.SIGNATURE_BYTES)
        return signatures, _read_portions(reader, dealt)


def union(
    plan: RoundPlan, coins: Mapping[int, bytes], said: Mapping[int, bytes], sealed: bytes
) -> bytes:
    """Server to a member, where all dealers are in the sum: their coins and signatures, then as
    `opening`.
    """
    words = b"".join(coins[client] + said[client] for client in sorted(coins))
    return header("unite", plan) + bitmap(coins, plan) + words + sealed


def read_union(
    data: bytes, plan: RoundPlan
) -> tuple[dict[int, bytes], dict[int, bytes], dict[int, tuple[bytes, bytes]]]:
    """Coins and signatures of all who dealt; channel and sealed shares by dealer."""
    coins: dict[int, bytes] = {}
    signatures: dict[int, bytes] = {}
    with opened(data, "unite", plan) as reader:
        for client in sorted(dealt := _read_bitmap(reader, plan, "unite")):
            coins[client], signatures[client] = (
                reader.take(COIN_BYTES),
                reader.take(masks.SIGNATURE_BYTES),
            )
        return coins, signatures, _read_portions(reader, dealt)


def shares(plan: RoundPlan, found: Mapping[int, bytes]) -> bytes:
    """Member to server: one share of each dealer whose shares it could open."""
    return (
        header("open", plan)
        + bitmap(found, plan)
        + b"".join(share for _, share in sorted(found.items()))
    )


def read_shares(data: bytes, plan: RoundPlan, dealt: Collection[int]) -> dict[int, bytes]:
    """dealer -> share."""
    with opened(data, "open", plan) as reader:
        owners = _read_bitmap(reader, plan, "open")
        if strangers := sorted(owners.difference(dealt)):
            raise wire.UnknownSender("open", f"clients {strangers} dealt nothing", tuple(strangers))
        return {client: reader.take(masks.SHARE_BYTES) for client in sorted(owners)}


class OfClients(Mapping[int, T], ABC):
    """A value for some of a round's clients, ascending, made on access; `there` says which clients
    have one.
    """

    def __init__(self, there: npt.NDArray[np.bool_]) -> None:
        self._there = there

    @abstractmethod
    def _of(self, index: int) -> T:
        """The value of a client that has one."""

    def __getitem__(self, index: int) -> T:
        if index not in self:
            raise KeyError(index)
        return self._of(index)

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and 0 <= index < self._there.size and bool(self._there[index])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._there).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._there))


@final
class Outbox(OfClients[bytes]):
    """A stage's messages by client, each made on access: all of them together can be larger than
    the sum.
    """

    def __init__(self, clients: Collection[int], make: Callable[[int], bytes]) -> None:
        super().__init__(np.zeros(1 + max(clients, default=-1), dtype=np.bool_))
        self._there[list(clients)] = True
        self._make = make

    def _of(self, index: int) -> bytes:
        return self._make(index)


@final
class Partners(OfClients[Clients]):
    """The mask partners of each dealer, ascending, computed on access: all together take three
    times as much memory.
    """

    def __init__(self, dealers: npt.NDArray[np.integer], picks: Clients) -> None:
        super().__init__(np.zeros(len(picks), dtype=np.bool_))
        self._there[dealers], self._picks = True, picks
        pairs = picks[dealers].astype("<u4")
        pairs <<= 16
        pairs |= dealers.astype(np.uint16)[:, None]
        pairs = pairs.reshape(-1)
        pairs.sort()  # by whom was picked, then by who did
        halves = pairs.view("<u2")
        self._pickers, picked = halves[::2].copy(), halves[1::2].copy()
        self._begins = np.searchsorted(picked, np.arange(len(picks) + 1, dtype=np.uint16))

    def _of(self, index: int) -> Clients:
        mine = self._picks[index]
        clients = np.append(
            mine[self._there[mine]], self._pickers[self._begins[index] : self._begins[index + 1]]
        )
        clients.sort()
        return clients[np.append(True, clients[1:] != clients[:-1])] if clients.size else clients
