"""Lists and signatures of other rounds: what names anybody else, or was signed about anything else, opens nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from federated.rounds import LENIENT, answer, people, plan, roster
from mezzotint.federated.secagg import (
    STAGES,
    Client,
    ProtocolError,
    RoundPlan,
    Server,
    SwappedKey,
    messages,
)
from mezzotint.federated.secagg.plan import DIGEST_BYTES

CLIENTS, ABSENT = 6, 5
KNOWN = plan(CLIENTS, session=bytes(16), task=b"1" * 32)
ZEROS = np.zeros(40, dtype=np.int64)


def _at(
    wanted: str, of_plan: RoundPlan, silent_from: str
) -> tuple[Server, dict[int, Client], dict[int, bytes]]:
    """Server, clients and messages of a stage; one client gives no answer from a stage on."""
    clients = people(of_plan)
    server = Server(replace(of_plan, task=bytes(32)), roster(CLIENTS))
    outbox = server.invitations()
    for stage in STAGES[: STAGES.index(wanted)]:  # type: ignore[arg-type]
        is_silent = STAGES.index(stage) >= STAGES.index(silent_from)  # type: ignore[arg-type]
        for index, message in outbox.items():
            if index != ABSENT or not is_silent:
                server.receive(index, answer(clients[index], stage, message, ZEROS))
        if stage == "deal":
            server.bind(of_plan.task)
        outbox = server.advance()
    return server, clients, dict(outbox)


@pytest.mark.parametrize("stage", ["sum", "agree", "open"])
def test_whoever_a_list_names_clients_refuse_by_name(stage: str) -> None:
    """Lists of dealers, survivors or signers with a client more or less, in messages of every length that fits."""
    server, clients, outbox = _at(stage, KNOWN, "deal")
    beginning = messages.HEADER_BYTES + (DIGEST_BYTES if stage == "sum" else 0)
    for index, message in outbox.items():
        state = clients[index].save()
        for place, bit, more in itertools.product(range(2), range(8), (0, 16, 64, 80, 112)):
            changed = bytearray(message + bytes(more))
            changed[beginning + place] ^= 1 << bit
            client = Client.load(state, trust=LENIENT)
            with pytest.raises(ProtocolError):
                answer(client, stage, bytes(changed), ZEROS)
        server.receive(index, answer(clients[index], stage, message, ZEROS))


OTHERS: list[dict[str, Any]] = [
    {"session": b"2" * 16},
    {"task": b"3" * 32},
    {"round": 2},
    {"binding": b"4" * 32},
    {"minimum": 3},
]


@pytest.mark.parametrize("changes", OTHERS, ids=[next(iter(change)) for change in OTHERS])
def test_a_certificate_of_another_plan_opens_nothing(changes: dict[str, Any]) -> None:
    """Signed by the same committee about the same clients: of another run, model, round, encoding or size."""
    server, clients, _ = _at("open", KNOWN, "sum")
    other, _, _ = _at("open", replace(KNOWN, **changes), "sum")
    places = {card.identity: place for place, card in enumerate(server.cohort)}
    signatures = {
        places[card.identity]: other._agreed[place]
        for place, card in enumerate(other.cohort)
        if place in other._agreed
    }
    for index in range(ABSENT):
        state = clients[index].save()
        own = messages.opening(KNOWN, server._agreed, b"")
        Client.load(state, trust=LENIENT).open(server._dealt.sealed(index, own))
        foreign = messages.opening(KNOWN, signatures, b"")
        with pytest.raises(SwappedKey):
            Client.load(state, trust=LENIENT).open(server._dealt.sealed(index, foreign))
