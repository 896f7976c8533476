"""A whole round in one process: who drops out where, and hands that may change any message on its way."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mezzotint.federated.secagg import STAGES, Client, RoundPlan, SecureSum, Server, Trust, bits_needed, safe_threshold


def plan(clients: int, *, neighbours: int | None = None, threshold: int | None = None, **others: Any) -> RoundPlan:
    """A plan with everything filled in."""
    degree = clients - 1 if neighbours is None else neighbours
    span = others.pop("span", 15)
    settings: dict[str, Any] = {
        "session": os.urandom(16),
        "round": 1,
        "minimum": 2,
        "coordinates": 40,
        "bits": bits_needed(clients, span),
    } | others
    return RoundPlan(
        clients=clients,
        neighbours=degree,
        threshold=safe_threshold(degree) if threshold is None else threshold,
        span=span,
        **settings,
    )


def answer(client: Client, stage: str, message: bytes, values: Any) -> bytes:
    """One client's answer."""
    method: Callable[..., bytes] = getattr(client, stage)
    return method(message, values) if stage == "mask" else method(message)


def run_round(
    the_plan: RoundPlan,
    inputs: Mapping[int, Any],
    *,
    gone: Mapping[str, set[int]] | None = None,
    clients: Mapping[int, Client] | None = None,
    down: Callable[[str, int, bytes], bytes] = lambda stage, index, message: message,
    up: Callable[[str, int, bytes], bytes] = lambda stage, index, message: message,
    seen: dict[tuple[str, int], bytes] | None = None,
    rng: Any = None,
    trust: Trust | None = None,
) -> SecureSum:
    """Runs all stages; errors of clients and server come through as they are.

    gone: stage -> clients that give no answer from this stage on. down, up: what becomes of messages. seen: filled
    with what the server received.
    """
    server = Server(the_plan, rng=rng)
    people = {index: Client(trust=trust) for index in range(the_plan.clients)} if clients is None else clients
    lost: set[int] = set()
    outbox = server.invitations()
    for stage in STAGES:
        lost |= (gone or {}).get(stage, set())
        for index, message in outbox.items():
            if index in lost:
                continue
            reply = up(stage, index, answer(people[index], stage, down(stage, index, message), inputs[index]))
            if seen is not None:
                seen[stage, index] = reply
            server.receive(index, reply)
        if stage != "unmask":
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
