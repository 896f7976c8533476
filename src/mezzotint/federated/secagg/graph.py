"""Who shares masks with whom: a random ring on which each client knows the nearest ones on both sides.

Source: Bell, Bonawitz, Gascon, Lepoint and Raykova 2020, Secure single-server aggregation with (poly)logarithmic
overhead, section 3 (Harary graphs on randomly placed clients).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from mezzotint.core.entropy import Keystream, key_from
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.federated.secagg.plan import safe_threshold

stats: Any = LazyModule("scipy.stats")


def neighbour_graph(members: Sequence[int], neighbours: int, *, rng: Any = None) -> dict[int, tuple[int, ...]]:
    """The neighbours of each member.

    Arguments:
        members: distinct indices.
        neighbours: wanted per member; all others when there are no more than that.
        rng: None for the operating system's randomness; a seed reproduces (tests).

    Returns: member -> its neighbours, ascending. Symmetric; nobody neighbours itself.
    """
    ring = _shuffled(list(members), rng)
    count = len(ring)
    if neighbours >= count - 1:
        everyone = sorted(ring)
        return {member: tuple(other for other in everyone if other != member) for member in everyone}
    half = neighbours // 2
    steps = [step for distance in range(1, half + 1) for step in (distance, -distance)]
    found = {member: tuple(sorted(ring[(place + step) % count] for step in steps)) for place, member in enumerate(ring)}
    return {member: found[member] for member in sorted(found)}


def _shuffled(members: list[int], rng: Any) -> list[int]:
    words = np.empty(2 * len(members), dtype=np.uint64)
    Keystream(key_from(rng)).fill(words)
    order = np.lexsort((words[1::2], words[::2]))  # 128-bit sort keys: ties have no chance
    return [members[place] for place in order.tolist()]


@final
@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """Neighbours and threshold, and how likely each of three accidents is.

    Arguments:
        neighbours, threshold: for `RoundPlan`.
        exposed: log2 of a bound on the probability that some client has `threshold` corrupted neighbours.
        split: log2 of a bound on the probability that corrupted and dropped clients cut the honest ones in two, so
            that two partial sums could be told apart.
        failed: log2 of a bound on the probability that too few neighbours of some client are left to unmask.
    """

    neighbours: int
    threshold: int
    exposed: float
    split: float
    failed: float


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else -math.inf


def _hypergeometric_tail(population: int, marked: int, drawn: int, least: int) -> float:
    """log2 P(at least `least` of `drawn` are marked)."""
    if least > min(marked, drawn):
        return -math.inf
    return float(stats.hypergeom.logsf(least - 1, population, marked, drawn)) / math.log(2)


def _cut(clients: int, gone: int, run: int) -> float:
    """log2 of clients * P(`run` consecutive places on the ring are all gone).

    A ring on which everyone knows the next k/2 falls apart only where k/2 consecutive ones are missing.
    """
    if gone < run:
        return -math.inf
    return _log2(clients) + sum(_log2((gone - i) / (clients - i)) for i in range(run))


def plan_graph(
    *, clients: int, corrupted: float, dropped: float, security_bits: float = 40.0, failure_bits: float = 20.0
) -> GraphPlan:
    """The fewest neighbours that protect against clients that collude with an honest-but-curious server.

    Arguments:
        clients: in the round.
        corrupted: share of clients that collude, fixed before the ring is drawn.
        dropped: share of clients that drop out, independently of the ring.
        security_bits: each accident that endangers privacy has probability at most 2**-security_bits.
        failure_bits: a round fails for lack of neighbours with probability at most 2**-failure_bits.

    Returns: the plan with the fewest neighbours; among its thresholds the highest that still unmasks.

    Raises:
        ParameterError: shares outside [0, 1), fewer than 2 clients.
        InfeasibleError: not even the complete graph protects that many.

    Source: Bell et al. 2020, Definition 3.1 and section 3.5; here with hypergeometric tails and union bounds.
    """
    if clients < 2:
        raise ParameterError("clients", clients, "need at least 2")
    for name, share in (("corrupted", corrupted), ("dropped", dropped)):
        if not 0 <= share < 1:
            raise ParameterError(name, share, "a share of the clients in [0, 1)")
    bad, lost = math.ceil(corrupted * clients), math.ceil(dropped * clients)
    for neighbours in [*range(2, clients - 1, 2), clients - 1]:
        if found := _at(clients, bad, lost, neighbours, security_bits, failure_bits):
            return found
    raise InfeasibleError(
        f"{clients} clients of whom {bad} collude and {lost} drop out cannot be protected to {security_bits:g} bits: "
        "the corrupted ones outnumber what any threshold allows; invite more clients or assume fewer corrupted ones"
    )


def _at(clients: int, bad: int, lost: int, neighbours: int, security: float, failure: float) -> GraphPlan | None:
    complete = neighbours == clients - 1
    split = -math.inf if complete else _cut(clients, min(bad + lost, clients), neighbours // 2)
    if split > -security:
        return None
    for threshold in range(neighbours, safe_threshold(neighbours) - 1, -1):
        exposed = _log2(clients) + _hypergeometric_tail(clients - 1, bad, neighbours, threshold)
        failed = _log2(clients) + _hypergeometric_tail(clients - 1, lost, neighbours, neighbours - threshold + 1)
        if exposed <= -security and failed <= -failure:
            return GraphPlan(neighbours=neighbours, threshold=threshold, exposed=exposed, split=split, failed=failed)
    return None
