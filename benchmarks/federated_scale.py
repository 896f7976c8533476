"""A secure sum of 10,000 clients, or of 10,000,000 coordinates: processor time, bytes and memory of both sides.

Run: python benchmarks/federated_scale.py [--rows 0,1,2,3]

Every client of a row is played in full, each message of the protocol made, checked and answered: the server in this
process, all clients in a second one, so that time and memory of the two sides are apart. Clients' integers are 4 bits,
random; training and quantizing are left out. A share of the clients drops out before the masked input, and the
parameters are those of clients who fear that as many are corrupted (40 bits for 1,024 rounds and any draw). Beside it
stands the plain sum of as many vectors of float32, added in float64 as they come, in the same run.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import resource
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from mezzotint.federated.secagg import (
    STAGES,
    Client,
    Roster,
    RoundPlan,
    Server,
    SumParameters,
    Trust,
    bits_needed,
    plan_sum,
    read_introduction,
)

SPAN = 15


@dataclass(frozen=True, kw_only=True)
class Row:
    """Arguments: clients; coordinates; the share of clients that is corrupted, and the share that drops out."""

    clients: int
    coordinates: int
    share: float

    @property
    def lost(self) -> int:
        return int(self.share * self.clients)

    @property
    def name(self) -> str:
        return f"{self.clients:,} clients, d = {self.coordinates:,}, {self.share:.0%} and {self.share:.0%}"

    @property
    def trust(self) -> Trust:
        """What the clients insist on, but for the roster."""
        return Trust(corrupted=self.share)

    @property
    def parameters(self) -> SumParameters:
        corrupted = -(-self.clients * round(100 * self.share) // 100)
        return plan_sum(
            clients=self.clients,
            corrupted=corrupted,
            dropped=self.lost,
            minimum=self.clients // 2 + 1,
            security_bits=self.trust.bits,
            drawn_bits=self.trust.drawn_bits(self.clients),
        )

    def plan(self, roster: Roster) -> RoundPlan:
        found = self.parameters
        return RoundPlan(
            session=os.urandom(16),
            round=1,
            clients=self.clients,
            members=found.members,
            quorum=found.quorum,
            picks=found.picks,
            least=found.least,
            minimum=self.clients // 2 + 1,
            coordinates=self.coordinates,
            span=SPAN,
            bits=bits_needed(self.clients, SPAN),
            roster=roster.digest,
        )


ROWS = (
    Row(clients=1_000, coordinates=10_000, share=0.2),
    Row(clients=10_000, coordinates=1_000, share=0.05),
    Row(clients=100, coordinates=1_000_000, share=0.1),
    Row(clients=20, coordinates=10_000_000, share=0.05),
)


def values_of(client: int, coordinates: int) -> np.ndarray:
    """The integers of one client, the same whenever they are asked for."""
    return np.random.default_rng(client).integers(0, SPAN + 1, coordinates, dtype=np.uint8)


def play_clients(pipe: Connection, row: Row) -> None:
    """The other process: makes the clients, then answers (stage, place, message) until it is told to stop."""
    clients = [Client() for _ in range(row.clients)]
    pipe.send(b"".join(client.card() for client in clients))
    roster = Roster.from_bytes(pipe.recv_bytes())
    for client in clients:
        client.trust = replace(row.trust, roster=roster)
    by_identity = {client.identity: client for client in clients}
    cohort = [by_identity[card.identity] for card in roster.cohort(1, row.clients)]
    spent: dict[str, float] = defaultdict(float)
    while (asked := pipe.recv()) is not None:
        stage, place, message = asked
        inputs = (values_of(place, row.coordinates),) if stage == "sum" else ()
        begin = time.process_time()
        answer = getattr(cohort[place], stage)(message, *inputs)
        spent[stage] += time.process_time() - begin
        pipe.send_bytes(answer)
    pipe.send(dict(spent))


def peak() -> int:
    """Bytes of this process at its largest so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def plain_sum(row: Row) -> float:
    """Processor time of adding the survivors' vectors as float32; the vectors are made beforehand, one at a time."""
    spent, total = 0.0, np.zeros(row.coordinates)
    for client in range(row.clients - row.lost):
        sent = values_of(client, row.coordinates).astype(np.float32).tobytes()
        begin = time.process_time()
        total += np.frombuffer(sent, dtype=np.float32)
        spent += time.process_time() - begin
    return spent


@dataclass(kw_only=True)
class Outcome:
    """What a row took: seconds of processor time, bytes."""

    plan: RoundPlan
    server: float
    opening: float
    clients: dict[str, float]
    plain: float
    up: dict[str, list[int]]
    down: dict[str, list[int]]
    memory: int


def run(row: Row) -> Outcome:
    """Plays a row.

    Raises:
        AssertionError: the sum is wrong.
    """
    pipe, theirs = multiprocessing.Pipe()
    other = multiprocessing.get_context("fork").Process(target=play_clients, args=(theirs, row), daemon=True)
    other.start()
    cards: bytes = pipe.recv()
    width = len(cards) // row.clients
    roster = Roster.drawn(read_introduction(cards[at : at + width]) for at in range(0, len(cards), width))
    pipe.send_bytes(roster.to_bytes())
    del cards
    plain = plain_sum(row)
    plan = row.plan(roster)
    gc.collect()
    before, spent, opening = peak(), 0.0, 0.0
    up, down = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    begin = time.process_time()
    server = Server(plan, roster)
    outbox: Any = server.invitations(range(row.clients))
    spent += time.process_time() - begin
    for stage in STAGES:
        asked = list(outbox)[row.lost :] if stage == "sum" else list(outbox)
        for place in asked:
            begin = time.process_time()
            message = outbox[place]
            spent += time.process_time() - begin
            pipe.send((stage, place, message))
            answer = pipe.recv_bytes()
            begin = time.process_time()
            server.receive(place, answer)
            spent += time.process_time() - begin
            up[stage].append(len(answer))
            down[stage].append(len(message))
        begin = time.process_time()
        if stage == "open":
            found = server.result()
            opening = time.process_time() - begin
        else:
            outbox = server.advance()
        spent += time.process_time() - begin
    memory = peak() - before
    pipe.send(None)
    clients = pipe.recv()
    other.join()
    total = np.zeros(row.coordinates, dtype=np.int64)
    for place in range(row.lost, row.clients):
        total += values_of(place, row.coordinates)
    if not np.array_equal(found.values, total) or len(found.survivors) != row.clients - row.lost:
        raise AssertionError("the sum is wrong")
    return Outcome(
        plan=plan, server=spent, opening=opening, clients=clients, plain=plain, up=up, down=down, memory=memory
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default=",".join(map(str, range(len(ROWS)))), help="numbers of the rows")
    arguments = parser.parse_args()
    console = Console(width=140)
    for row in [ROWS[int(part)] for part in arguments.rows.split(",")]:
        console.print(show(row, run(row)))


def show(row: Row, cost: Outcome) -> Table:
    """One row of the benchmark as a table of its own."""
    plan, n, d = cost.plan, row.clients, row.coordinates
    table = Table(title=f"{row.name}: members {plan.members}, quorum {plan.quorum}, picks {plan.picks}, "
                  f"least {plan.least}, {plan.bits} bits")  # fmt: skip
    for name in ("what", "measured"):
        table.add_column(name, justify="right")
    ordinary = sum(cost.clients[stage] for stage in ("deal", "sum")) / n
    member = sum(cost.clients[stage] for stage in ("agree", "open")) / plan.members
    bound = 4 * 8 * d + 1000 * n
    dealings = sum(cost.up["deal"])
    for what, value in (
        ("server, ms a client", f"{1e3 * cost.server / n:.3g}"),
        ("of it at the end, ms a client", f"{1e3 * cost.opening / n:.3g}"),
        ("server, ns a client and coordinate", f"{1e9 * cost.server / n / d:.3g}"),
        ("server, x the plain float32 sum", f"{cost.server / cost.plain:.3g}"),
        ("client, ms", f"{1e3 * ordinary:.3g}"),
        ("more for a member of the committee, ms", f"{1e3 * member:.3g}"),
        ("bytes up", f"{_most(cost.up, 'deal', 'sum'):,}"),
        ("bytes up / float32", f"{_most(cost.up, 'deal', 'sum') / (4 * d):.3f}"),
        ("bytes down, without the model", f"{_most(cost.down, 'deal', 'sum'):,}"),
        ("bytes down / float32", f"{_most(cost.down, 'deal', 'sum') / (4 * d):.3f}"),
        (
            "more for a member, bytes up and down",
            f"{_most(cost.up, 'agree', 'open'):,} and {_most(cost.down, 'agree', 'open'):,}",
        ),
        ("server memory, MB", f"{cost.memory / 1e6:.4g}"),
        ("of it dealings that wait for the end, MB", f"{dealings / 1e6:.4g}"),
        ("4 x 8 d bytes + 1 kB a client, MB", f"{bound / 1e6:.4g}"),
    ):
        table.add_row(what, value)
    return table


def _most(bytes_of: dict[str, list[int]], *stages: str) -> int:
    """The most that one client has in these stages together."""
    return sum(max(bytes_of[stage]) for stage in stages)


if __name__ == "__main__":
    main()
