"""A secure sum of 10,000 clients, or of 10,000,000 coordinates: processor time, bytes and memory of both sides.

Run: python benchmarks/federated_scale.py [--rows 0,1,2,3,4]

Every message of every client is made and answered, with its real shares, masks and signatures, and the server checks
all of them; the sum is compared. Of 10,000 clients one in twenty plays in full, of 1,000 one in ten, and the times of
clients are theirs: the others make the same answers without checking signatures and lists. The server is in one
process and all clients in a second one, so that time and memory of the two sides are apart. Clients' integers are 4
bits, random; training and quantizing are left out. A share of the clients drops out before the masked input, and the
parameters are those of clients who fear that as many are corrupted (40 bits for 1,024 rounds and any draw). Beside it
stands the plain sum of as many vectors of float32, added in float64 as they come, in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
    client as protocol,
    messages,
    plan_sum,
    read_introduction,
)
from mezzotint.federated.secagg.masks import sign

SPAN = 15


@dataclass(frozen=True, kw_only=True)
class Row:
    """Arguments: clients; coordinates; the share that is corrupted, and that drops out; one in `every` checks all."""

    clients: int
    coordinates: int
    share: float
    every: int = 1

    @property
    def survivors(self) -> list[int]:
        """Places of those who do not drop out: every so many is lost, of the committee as of the others."""
        spacing = round(1 / self.share)
        return [place for place in range(self.clients) if place % spacing != spacing - 1]

    @property
    def lost(self) -> int:
        return self.clients - len(self.survivors)

    @property
    def name(self) -> str:
        return f"{self.clients:,} clients, d = {self.coordinates:,}, {self.share:.0%} and {self.share:.0%}"

    @property
    def memory_allowed(self) -> int:
        """The target, bytes."""
        return 4 * 8 * self.coordinates + 1000 * self.clients

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
            drawn_bits=self.trust.drawn_bits(self.clients, self.clients),
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
    Row(clients=10_000, coordinates=1_000, share=0.05, every=20),
    Row(clients=100, coordinates=1_000_000, share=0.1),
    Row(clients=20, coordinates=10_000_000, share=0.05),
    Row(clients=100, coordinates=1_000, share=0.2),
    Row(clients=1_000, coordinates=1_000, share=0.2, every=10),
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
    Cohort(row, roster, clients).play(pipe)


class Cohort:
    """The clients of a round in the order drawn, and the processor time of those that check."""

    def __init__(self, row: Row, roster: Roster, clients: list[Client]) -> None:
        self.row = row
        self.cards = roster.cohort(1, row.clients)
        by_identity = {client.identity: client for client in clients}
        self.clients = [by_identity[card.identity] for card in self.cards]
        self.spent: dict[str, list[float]] = {stage: [] for stage in STAGES}

    def play(self, pipe: Connection) -> None:
        """Answers until it is told to stop; then tells each stage's seconds of a client."""
        while (asked := pipe.recv()) is not None:
            pipe.send_bytes(self.answer(*asked))
        pipe.send({stage: float(np.mean(found)) for stage, found in self.spent.items()})

    def answer(self, stage: str, place: int, message: bytes) -> bytes:
        client = self.clients[place]
        inputs = (values_of(place, self.row.coordinates),) if stage == "sum" else ()
        if place % self.row.every:
            with self.trusting():
                if stage == "agree":
                    return self.signature(client, message)
                return getattr(client, stage)(message, *inputs)
        begin = time.process_time()
        found = getattr(client, stage)(message, *inputs)
        self.spent[stage].append(time.process_time() - begin)
        return found

    @contextlib.contextmanager
    def trusting(self) -> Iterator[None]:
        """Meanwhile signatures are not checked, and the round's clients not drawn anew."""
        with (
            patch.object(protocol, "signed", lambda *_: True),
            patch.object(Trust, "place", lambda *_: self.cards),
        ):
            yield

    @staticmethod
    def signature(client: Client, proposal: bytes) -> bytes:
        """A member's answer to the survivors that it was told of."""
        (now,) = client._rounds.values()
        coins, said = messages.read_proposal(proposal, now.plan)
        tag = messages.tag_of(proposal)
        client._rounds[tag] = replace(
            now, survivors=frozenset(said), done=STAGES.index("agree") + 1
        )
        statement = messages.certificate_statement(now.plan, coins, said)
        return messages.agreement(now.plan, sign(client._identity, statement))


def resident(field: str) -> int:
    """Bytes of this process: now (VmRSS), or at its largest (VmHWM) since `forget_peak`; Linux alone tells."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split(f"{field}:")[1].split()[0])


def forget_peak() -> int:
    """Starts a new VmHWM; bytes now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


def plain_sum(row: Row) -> float:
    """Seconds of adding the survivors' vectors as float32; the vectors are made beforehand, one at a time."""
    spent, total = 0.0, np.zeros(row.coordinates)
    for client in row.survivors:
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
    other = multiprocessing.get_context("fork").Process(
        target=play_clients, args=(theirs, row), daemon=True
    )
    other.start()
    cards: bytes = pipe.recv()
    width = len(cards) // row.clients
    roster = Roster.drawn(
        read_introduction(cards[at : at + width]) for at in range(0, len(cards), width)
    )
    pipe.send_bytes(roster.to_bytes())
    del cards
    plain = plain_sum(row)
    plan = row.plan(roster)
    before, spent, opening = forget_peak(), 0.0, 0.0
    up, down = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    begin = time.process_time()
    server = Server(plan, roster)
    outbox: Any = server.invitations(range(row.clients))
    spent += time.process_time() - begin
    for stage in STAGES:
        asked = row.survivors if stage == "sum" else list(outbox)
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
    memory = resident("VmHWM") - before
    pipe.send(None)
    clients = pipe.recv()
    other.join()
    total = np.zeros(row.coordinates, dtype=np.int64)
    for place in row.survivors:
        total += values_of(place, row.coordinates)
    if not np.array_equal(found.values, total) or list(found.survivors) != row.survivors:
        raise AssertionError("the sum is wrong")
    return Outcome(
        plan=plan,
        server=spent,
        opening=opening,
        clients=clients,
        plain=plain,
        up=up,
        down=down,
        memory=memory,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", default=",".join(map(str, range(len(ROWS)))), help="numbers of the rows"
    )
    arguments = parser.parse_args()
    console = Console(width=140)
    rows = [ROWS[int(part)] for part in arguments.rows.split(",")]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for row, cost in zip(rows, pool.map(run_by_itself, rows), strict=True):
            console.print(show(row, cost))


def run_by_itself(row: Row) -> Outcome:
    """Plays a row in a fresh process, after a small one: nothing is loaded and compiled at the expense of the row."""
    run(Row(clients=10, coordinates=100, share=0.1))
    return run(row)


def show(row: Row, cost: Outcome) -> Table:
    """A row of the benchmark, as a column of its own."""
    found = row.parameters
    table = Table("", row.name, title="What a round costs")
    table.add_row(
        "members, quorum, picks, least",
        f"{found.members}, {found.quorum}, {found.picks}, {found.least}",
    )
    for name, measure in MEASURES.items():
        table.add_row(name, measure(row, cost))
    return table


def _three(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _most(bytes_of: dict[str, list[int]], *stages: str) -> int:
    """The most that one client has in these stages together."""
    return sum(max(bytes_of[stage]) for stage in stages)


MEASURES: dict[str, Callable[[Row, Outcome], str]] = {
    "server, ms a client": lambda row, cost: _three(1e3 * cost.server / row.clients),
    "of it at the end": lambda row, cost: _three(1e3 * cost.opening / row.clients),
    "server, ns a client and coordinate": lambda row, cost: _three(
        1e9 * cost.server / row.clients / row.coordinates
    ),
    "server over a plain float32 sum": lambda row, cost: _three(cost.server / cost.plain),
    "client, ms": lambda row, cost: _three(1e3 * (cost.clients["deal"] + cost.clients["sum"])),
    "a member besides, ms": lambda row, cost: _three(
        1e3 * (cost.clients["agree"] + cost.clients["open"])
    ),
    "bytes up": lambda row, cost: f"{_most(cost.up, 'deal', 'sum'):,}",
    "bytes up over float32": lambda row, cost: _three(
        _most(cost.up, "deal", "sum") / 4 / row.coordinates
    ),
    "bytes down, without the model": lambda row, cost: f"{_most(cost.down, 'deal', 'sum'):,}",
    "bytes down over float32": lambda row, cost: _three(
        _most(cost.down, "deal", "sum") / 4 / row.coordinates
    ),
    "a member besides, bytes up": lambda row, cost: f"{_most(cost.up, 'agree', 'open'):,}",
    "a member besides, bytes down": lambda row, cost: f"{_most(cost.down, 'agree', 'open'):,}",
    "server memory, MB": lambda row, cost: _three(cost.memory / 1e6),
    "of it dealings until the end": lambda row, cost: _three(sum(cost.up["deal"]) / 1e6),
    "server memory allowed, MB": lambda row, cost: _three(row.memory_allowed / 1e6),
}
"""What is shown of a row, by name."""


if __name__ == "__main__":
    main()
