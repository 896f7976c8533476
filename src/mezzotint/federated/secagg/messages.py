"""What travels: one frozen value per message, with its bytes.

Every message starts with its stage and the first bytes of the plan's digest, so that one of another round is
recognised before anything else is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from mezzotint.federated.secagg.errors import DuplicateAnswer, MalformedMessage, ReplayedRound, WrongStage
from mezzotint.federated.secagg.masks import COMMITMENT_BYTES, KEY_BYTES, SHARE_BYTES, SIGNATURE_BYTES, TAG_BYTES
from mezzotint.federated.secagg.plan import RoundPlan
from mezzotint.federated.secagg.wire import Reader, number

Stage = Literal["advertise", "share", "mask", "confirm", "unmask"]
STAGES: tuple[Stage, ...] = ("advertise", "share", "mask", "confirm", "unmask")

_TAG = 8
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES


def header(stage: Stage, plan: RoundPlan) -> bytes:
    """Stage and round of a message."""
    return number(STAGES.index(stage), 1) + plan.digest[:_TAG]


def opened(data: bytes, stage: Stage, plan: RoundPlan) -> Reader:
    """A reader behind the header.

    Raises:
        WrongStage: a message of another stage.
        ReplayedRound: a message of another round.
    """
    reader = Reader(data, stage)
    found = reader.number(1)
    if found != STAGES.index(stage):
        name = STAGES[found] if found < len(STAGES) else "unknown"
        raise WrongStage(stage, f"got a message of stage {name!r}")
    if reader.take(_TAG) != plan.digest[:_TAG]:
        raise ReplayedRound(stage, f"the message belongs to another round than {plan.round} of this session")
    return reader


def _distinct(indices: Sequence[int], stage: Stage) -> tuple[int, ...]:
    repeated = sorted(index for index, times in Counter(indices).items() if times > 1)
    if repeated:
        raise DuplicateAnswer(stage, f"clients {repeated} are named twice", tuple(repeated))
    return tuple(indices)


def _write_indices(indices: Sequence[int]) -> bytes:
    return number(len(indices), 2) + b"".join(number(index, 2) for index in indices)


def _read_indices(reader: Reader, stage: Stage) -> tuple[int, ...]:
    return _distinct([reader.number(2) for _ in range(reader.number(2))], stage)


def invitation(plan: RoundPlan, index: int) -> bytes:
    """Server to client, stage advertise: the plan, and the client's index in it."""
    return plan.to_bytes() + number(index, 2)


def read_invitation(data: bytes) -> tuple[RoundPlan, int]:
    """The plan and the client's index."""
    reader = Reader(data, "advertise")
    plan = RoundPlan.from_reader(reader)
    index = reader.number(2)
    reader.end()
    if index >= plan.clients:
        raise MalformedMessage("advertise", f"index {index} of {plan.clients} clients")
    return plan, index


@final
@dataclass(frozen=True, kw_only=True)
class Advertisement:
    """A client's public keys of the round, signed by its identity.

    Arguments:
        index: of the client in the round.
        channel: X25519 key for the channels between clients.
        mask: X25519 key for the masks between clients.
        identity: Ed25519 key of the client.
        signature: of `statement` by the identity.
    """

    index: int
    channel: bytes
    mask: bytes
    identity: bytes
    signature: bytes = b""

    def statement(self, plan: RoundPlan) -> bytes:
        """What the identity signs."""
        keys = self.channel + self.mask + self.identity
        return b"mezzotint advertises" + plan.digest + number(self.index, 2) + keys

    def to_bytes(self) -> bytes:
        """Fixed width."""
        return number(self.index, 2) + self.channel + self.mask + self.identity + self.signature

    @classmethod
    def from_reader(cls, reader: Reader) -> Advertisement:
        """Reads one."""
        return cls(
            index=reader.number(2),
            channel=reader.take(KEY_BYTES),
            mask=reader.take(KEY_BYTES),
            identity=reader.take(KEY_BYTES),
            signature=reader.take(SIGNATURE_BYTES),
        )


def roster(plan: RoundPlan, neighbours: Sequence[Advertisement]) -> bytes:
    """Server to client, stage share: the neighbours' keys."""
    return header("share", plan) + number(len(neighbours), 2) + b"".join(one.to_bytes() for one in neighbours)


def read_roster(data: bytes, plan: RoundPlan) -> tuple[Advertisement, ...]:
    """The neighbours' keys, in the order sent."""
    reader = opened(data, "share", plan)
    found = tuple(Advertisement.from_reader(reader) for _ in range(reader.number(2)))
    reader.end()
    _distinct([one.index for one in found], "share")
    return found


@final
@dataclass(frozen=True, kw_only=True)
class SealedShare:
    """Client to server, stage share: one neighbour's shares, sealed, and what the server recognises them by later."""

    holder: int
    sealed: bytes
    of_self: bytes
    of_key: bytes

    def to_bytes(self) -> bytes:
        """Fixed width."""
        return number(self.holder, 2) + self.sealed + self.of_self + self.of_key


def shares(plan: RoundPlan, seed_commitment: bytes, sealed: Sequence[SealedShare]) -> bytes:
    """Client to server, stage share."""
    body = seed_commitment + number(len(sealed), 2) + b"".join(one.to_bytes() for one in sealed)
    return header("share", plan) + body


def read_shares(data: bytes, plan: RoundPlan) -> tuple[bytes, tuple[SealedShare, ...]]:
    """The commitment to the self mask's seed, and the sealed shares."""
    reader = opened(data, "share", plan)
    seed = reader.take(COMMITMENT_BYTES)
    found = tuple(
        SealedShare(
            holder=reader.number(2),
            sealed=reader.take(SEALED_BYTES),
            of_self=reader.take(COMMITMENT_BYTES),
            of_key=reader.take(COMMITMENT_BYTES),
        )
        for _ in range(reader.number(2))
    )
    reader.end()
    _distinct([one.holder for one in found], "share")
    return seed, found


def delivery(plan: RoundPlan, sealed: Sequence[tuple[int, bytes]]) -> bytes:
    """Server to client, stage mask: what neighbours sealed for this client."""
    return header("mask", plan) + number(len(sealed), 2) + b"".join(number(i, 2) + text for i, text in sealed)


def read_delivery(data: bytes, plan: RoundPlan) -> tuple[tuple[int, bytes], ...]:
    """(neighbour, sealed shares), in the order sent."""
    reader = opened(data, "mask", plan)
    found = tuple((reader.number(2), reader.take(SEALED_BYTES)) for _ in range(reader.number(2)))
    reader.end()
    _distinct([index for index, _ in found], "mask")
    return found


def lists(plan: RoundPlan, survivors: Sequence[int], dropped: Sequence[int]) -> bytes:
    """Server to client, stage confirm: which neighbours sent their masked input, and which did not."""
    return header("confirm", plan) + _write_indices(survivors) + _write_indices(dropped)


def read_lists(data: bytes, plan: RoundPlan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Survivors and drop-outs."""
    reader = opened(data, "confirm", plan)
    found = _read_indices(reader, "confirm"), _read_indices(reader, "confirm")
    reader.end()
    return found


@final
@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """A client's signed word on who of its neighbours survived; `survivors` includes the client itself."""

    index: int
    survivors: tuple[int, ...]
    dropped: tuple[int, ...]
    signature: bytes = b""

    def statement(self, plan: RoundPlan) -> bytes:
        """What the identity signs."""
        said = _write_indices(self.survivors) + _write_indices(self.dropped)
        return b"mezzotint confirms" + plan.digest + number(self.index, 2) + said

    def to_bytes(self) -> bytes:
        """Index, both lists, signature."""
        said = _write_indices(self.survivors) + _write_indices(self.dropped)
        return number(self.index, 2) + said + self.signature

    @classmethod
    def from_reader(cls, reader: Reader, stage: Stage) -> Confirmation:
        """Reads one."""
        return cls(
            index=reader.number(2),
            survivors=_read_indices(reader, stage),
            dropped=_read_indices(reader, stage),
            signature=reader.take(SIGNATURE_BYTES),
        )


def confirmations(plan: RoundPlan, said: Sequence[Confirmation]) -> bytes:
    """Server to client, stage unmask: what the neighbours signed."""
    return header("unmask", plan) + number(len(said), 2) + b"".join(one.to_bytes() for one in said)


def read_confirmations(data: bytes, plan: RoundPlan) -> tuple[Confirmation, ...]:
    """The neighbours' signed lists."""
    reader = opened(data, "unmask", plan)
    found = tuple(Confirmation.from_reader(reader, "unmask") for _ in range(reader.number(2)))
    reader.end()
    _distinct([one.index for one in found], "unmask")
    return found


def reveal(plan: RoundPlan, of_self: Sequence[tuple[int, bytes]], of_key: Sequence[tuple[int, bytes]]) -> bytes:
    """Client to server, stage unmask: shares of survivors' self masks and of drop-outs' mask keys."""
    parts = (number(len(part), 2) + b"".join(number(i, 2) + share for i, share in part) for part in (of_self, of_key))
    return header("unmask", plan) + b"".join(parts)


def read_reveal(data: bytes, plan: RoundPlan) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """owner -> share, for self masks and for mask keys."""
    reader = opened(data, "unmask", plan)
    parts = [[(reader.number(2), reader.take(SHARE_BYTES)) for _ in range(reader.number(2))] for _ in range(2)]
    reader.end()
    _distinct([index for part in parts for index, _ in part], "unmask")
    return dict(parts[0]), dict(parts[1])
