"""A whole round in one process: who drops out where, and hands that may change any message on its way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from mezzotint.federated.secagg import (
    STAGES,
    Client,
    Roster,
    RoundPlan,
    SecureSum,
    Server,
    Trust,
    bits_needed,
    messages,
    read_introduction,
)
from mezzotint.federated.secagg.messages import Deal

LENIENT = Trust(corrupted=0.0, security_bits=-24.0)
"""Takes sparse rounds of few clients, which could not be kept from falling apart."""


def secret(number: int) -> bytes:
    """A client's long-term secret."""
    return hashlib.sha256(b"client" + number.to_bytes(4, "little")).digest()


@cache
def card(number: int):
    return read_introduction(Client(identity=secret(number)).card())


@cache
def roster(count: int) -> Roster:
    """So many clients."""
    members = sorted((card(number) for number in range(count)), key=lambda one: one.identity)
    return Roster(members=tuple(members), beacon=bytes(32))


def plan(clients: int, *, population: int | None = None, **others: Any) -> RoundPlan:
    """A round in which all mask with all, and a committee of all bears as many drop-outs as it can, unless told."""
    span = others.pop("span", 15)
    members = others.get("members", clients)
    settings: dict[str, Any] = {
        "session": os.urandom(16), "round": 1, "minimum": 2, "coordinates": 40, "bits": bits_needed(clients, span),
        "members": members, "quorum": members // 2 + 1, "picks": clients - 1, "least": 1,
        "roster": roster(population or clients).digest,
    } | others  # fmt: skip
    return RoundPlan(clients=clients, span=span, **settings)


def roster_of(the_plan: RoundPlan) -> Roster:
    """The roster that a plan of `plan` is about."""
    return next(
        one for one in map(roster, range(the_plan.clients, 200)) if one.digest == the_plan.roster
    )


def people(the_plan: RoundPlan, *, trust: Trust | None = None) -> dict[int, Client]:
    """The clients of a round, by place."""
    secrets = {
        card(number).identity: secret(number) for number in range(len(roster_of(the_plan).members))
    }
    cohort = roster_of(the_plan).cohort(the_plan.round, the_plan.clients)
    return {
        place: Client(identity=secrets[one.identity], trust=trust or LENIENT)
        for place, one in enumerate(cohort)
    }


def told(the_plan: RoundPlan, dealt: Collection[int], deals: Iterable[Deal]) -> bytes:
    """What a server tells a client before it masks: who dealt, and with whom to mask."""
    return messages.partners(
        the_plan, messages.bitmap(dealt, the_plan), b"".join(deal.to_bytes() for deal in deals)
    )


EXCHANGES = (*STAGES, "unite")
"""All there are in rounds; "unite" stands for the last two where all who dealt are in the sum."""


def apart(patch: pytest.MonkeyPatch, stage: str) -> None:
    """Members agree before they open, if a test is about one of these stages; else they may do both at once."""
    if stage in ("agree", "open"):
        patch.setattr(Server, "everybody", False)


def answer(client: Client, stage: str, message: bytes, values: Any) -> bytes:
    """One client's answer."""
    method: Callable[..., bytes] = getattr(client, stage)
    return method(message, values) if stage == "sum" else method(message)


def run_round(
    the_plan: RoundPlan,
    inputs: Mapping[int, Any],
    *,
    gone: Mapping[str, set[int]] | None = None,
    clients: Mapping[int, Client] | None = None,
    down: Callable[[str, int, bytes], bytes] = lambda stage, index, message: message,
    up: Callable[[str, int, bytes], bytes] = lambda stage, index, message: message,
    seen: dict[tuple[str, int], bytes] | None = None,
    trust: Trust | None = None,
) -> SecureSum:
    """Runs all stages; errors of clients and server come through as they are.

    gone: stage -> clients that give no answer from this stage on. down, up: what becomes of messages. seen: filled
    with what the server received.
    """
    server = Server(the_plan, roster_of(the_plan))
    everybody = people(the_plan, trust=trust) if clients is None else clients
    lost: set[int] = set()
    outbox = server.invitations()
    for stage in STAGES:
        lost |= (gone or {}).get(stage, set())
        for index, message in outbox.items():
            if index in lost:
                continue
            reply = up(
                stage,
                index,
                answer(everybody[index], stage, down(stage, index, message), inputs[index]),
            )
            if seen is not None:
                seen[stage, index] = reply
            server.receive(index, reply)
        if stage != "open":
            outbox = server.advance()
    return server.result()


def random_inputs(the_plan: RoundPlan, seed: int) -> dict[int, np.ndarray]:
    """Integers in the plan's range, both ends included."""
    rng = np.random.default_rng(seed)
    size = (the_plan.clients, the_plan.coordinates)
    values = rng.integers(0, the_plan.span, size=size, endpoint=True)
    values[:, 0] = the_plan.span  # the largest sum there is
    return dict(enumerate(values))


def plain_sum(inputs: Mapping[int, np.ndarray], survivors: tuple[int, ...]) -> np.ndarray:
    """What secure aggregation must give."""
    return np.sum([inputs[index] for index in survivors], axis=0, dtype=np.int64)
