"""Messages of any size: read in linear time, and no further than a plan or a format says that they go."""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from counting import calls
from federated.rounds import told
from mezzotint.core.errors import MezzotintError
from mezzotint.federated.encoding_files import LARGEST, unpacked
from mezzotint.federated.secagg import Roster, RoundPlan, messages
from mezzotint.federated.secagg.masks import COMMITMENT_BYTES, read_words
from mezzotint.federated.secagg.messages import Deal, Portion
from mezzotint.federated.secagg.roster import Card


@functools.cache
def _plan(clients: int) -> RoundPlan:
    return RoundPlan(
        session=bytes(16), round=1, clients=clients, members=clients, quorum=clients * 3 // 4, picks=clients // 2,
        least=2, minimum=clients // 2, coordinates=clients, span=1, bits=16,
    )  # fmt: skip


def _deal(index: int, contents: bytes = b"") -> Deal:
    key, digest = bytes(32), hashlib.sha256(contents).digest()
    return Deal(
        index=index, mask=key, channel=key, coins=bytes(16), contents=digest, signature=bytes(64)
    )


def _invitation(clients: int) -> tuple[bytes, Callable[[bytes], Any]]:
    keys = [hashlib.sha256(b"%d" % number).digest() for number in range(2 * clients)]
    cards = [
        Card(identity=one, channel=two) for one, two in zip(keys[::2], keys[1::2], strict=True)
    ]
    body = messages.invitation(_plan(clients), 0, Roster.drawn(cards).to_bytes())
    return body, lambda data: Roster.from_bytes(messages.read_invitation(data)[2])


def _dealing(clients: int) -> tuple[bytes, Callable[[bytes], Any]]:
    plan = _plan(clients)
    portion = Portion(
        sealed=bytes(messages.SEALED_BYTES),
        of_self=bytes(COMMITMENT_BYTES),
        of_key=bytes(COMMITMENT_BYTES),
    )
    contents = messages.contents(bytes(COMMITMENT_BYTES), [portion] * plan.members)
    body = messages.dealing(plan, _deal(0, contents), contents)
    return body, lambda data: messages.read_dealing(data, plan)


def _partners(clients: int) -> tuple[bytes, Callable[[bytes], Any]]:
    plan = _plan(clients)
    body = told(plan, range(clients), [_deal(index) for index in range(clients)])
    return body, lambda data: messages.read_partners(data, plan)


def _masked(clients: int) -> tuple[bytes, Callable[[bytes], Any]]:
    plan = _plan(clients)

    def read(data: bytes) -> None:
        _, words = messages.read_masked(data, plan)
        read_words(words, plan.bits, plan.coordinates, stage="sum")

    return messages.masked(plan, bytes(64), bytes(2 * clients)), read


def _proposal(clients: int) -> tuple[bytes, Callable[[bytes], Any]]:
    plan = _plan(clients)
    coins, said = dict.fromkeys(range(clients), bytes(16)), dict.fromkeys(range(clients), bytes(64))
    return messages.proposal(plan, coins, said), lambda data: messages.read_proposal(data, plan)


def _agreement(clients: int) -> tuple[bytes, Callable[[bytes], Any]]:
    plan = _plan(clients)
    return messages.agreement(plan, bytes(64)), lambda data: messages.read_agreement(data, plan)


def _opening(clients: int) -> tuple[bytes, Callable[[bytes], Any]]:
    plan = _plan(clients)
    sealed = bytes(clients * (32 + messages.SEALED_BYTES))
    body = messages.opening(plan, dict.fromkeys(range(clients), bytes(64)), sealed)
    return body, lambda data: messages.read_opening(data, plan, range(clients))


def _shares(clients: int) -> tuple[bytes, Callable[[bytes], Any]]:
    plan = _plan(clients)
    body = messages.shares(plan, dict.fromkeys(range(clients), bytes(17)))
    return body, lambda data: messages.read_shares(data, plan, range(clients))


MESSAGES = [_invitation, _dealing, _partners, _masked, _proposal, _agreement, _opening, _shares]


@pytest.mark.parametrize("made", MESSAGES, ids=lambda made: made.__name__.strip("_"))
def test_messages_are_read_in_linear_time(
    made: Callable[[int], tuple[bytes, Callable[[bytes], Any]]],
) -> None:
    """Calls are counted: with twice the clients less than three times as many, at any size."""
    counted = []
    for clients in (500, 1_000, 2_000):
        body, read = made(clients)
        read(body)  # in order; whatever is made once is made now
        counted.append(calls(lambda body=body, read=read: read(body)))
    assert counted[1] < 3 * counted[0]
    assert counted[2] < 3 * counted[1]
    assert counted[2] < 20 * 2_000


@pytest.mark.parametrize("made", MESSAGES, ids=lambda made: made.__name__.strip("_"))
@pytest.mark.parametrize(
    "what", ["cut", "one more byte", "its end many times", "zeros behind it", "ones behind it"]
)
def test_a_message_of_another_size_is_refused_for_no_more_work(made: Any, what: str) -> None:
    """A megabyte behind a message costs no more calls than the message, but for those that word an error."""
    body, read = made(500)
    other = {
        "cut": body[:-1],
        "one more byte": body + b"x",
        "its end many times": body + 1000 * body[-1000:],
        "zeros behind it": body + bytes(2**20),
        "ones behind it": body + b"\xff" * 2**20,
    }[what]

    def refused() -> None:
        with pytest.raises(MezzotintError):
            read(other)

    assert calls(refused) < calls(lambda: read(body)) + 200


def test_a_small_description_of_an_endless_encoding_is_refused() -> None:
    """16 kB that unpack to 16 MB and more: what is read ends at the limit."""
    packed = zlib.compress(b" " * (LARGEST + 1), 9)
    assert len(packed) < 20_000
    with pytest.raises(MezzotintError, match="encoding"):
        unpacked(packed)
