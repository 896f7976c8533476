"""Runs that `killing.Runs` forks: the app's server with its clients in one process, a client, its own records."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from federated.grids import LocalGrid, charge_sum
from mezzotint.cli import run
from mezzotint.federated import simulation
from mezzotint.federated.app import run_server
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_app import make_client_app
from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.flower_records import RECORD
from mezzotint.federated.lifetime_ledger import LifetimeLedger
from mezzotint.federated.secagg import ReplayedRound, Server
from mezzotint.federated.settings import RunSettings


def serve(words: Sequence[str]) -> int:
    """Trains with the settings of one JSON object; prints the ledger's charges.

    With a stage and a number, the process dies there in its first round: after so many answers, or all (null).
    """
    settings = RunSettings(**json.loads(words[0]))
    stage, after = (words[1], json.loads(words[2])) if len(words) > 1 else ("", 0)
    if stage in ("agree", "open"):  # as if somebody who dealt were missing
        Server.everybody = False  # type: ignore[assignment, method-assign]
    seen: list[Message] = []

    def hand(message: Message, reply: Message) -> Message:
        if message.content.config_records[RECORD]["stage"] == stage:
            seen.append(reply)
            if len(seen) == (settings.population if after is None else after):
                os.kill(os.getpid(), signal.SIGKILL)
        return reply

    grid = LocalGrid([make_client_app(observer=settings.observer)] * settings.population, hand=hand)
    push = grid.push_messages

    def pushed(messages):
        batch = list(messages)
        if after == 0 and any(
            one.content.config_records[RECORD]["stage"] == stage for one in batch
        ):
            os.kill(os.getpid(), signal.SIGKILL)
        return push(batch)

    grid.push_messages = pushed  # type: ignore[method-assign]
    report = run_server(grid, settings)
    print("\n" + json.dumps(report.ledger["charges"]))
    return 0


def in_process(server: ServerApp, clients: ClientApp, population: int) -> None:
    """In place of `simulation._run_engine`: the same apps without Flower's engine."""
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    server(LocalGrid([clients] * population), context)


def command(words: Sequence[str]) -> int:
    """A command line, its clients in this process."""
    simulation._run_engine = in_process
    return run(list(words))


def serve_for(words: Sequence[str]) -> int:
    """Trains as `serve`, and dies after so many seconds of this process's time (0: never); prints how many it took."""
    signal.setitimer(signal.ITIMER_PROF, float(words[1]))  # whose signal nobody handles
    grid = LocalGrid([make_client_app()] * json.loads(words[0])["population"])
    run_server(grid, RunSettings(**json.loads(words[0])))
    print(f"\n{time.process_time()}")
    return 0


class Answers:
    """What a client lets out."""

    def leave(self) -> None:
        """A masked input."""


def note(words: Sequence[str]) -> int:
    """A client that notes a sum in the ledger of its life, and answers; 3 if it refuses, for it may have answered."""
    path, number = Path(words[0]), int(words[1])
    encoding = FixedPointEncoding(clip=1.0)
    try:
        single_sum = Sums(size=3, clients=4, corrupted=1, delta=1e-6)
        charge_sum(LifetimeLedger(path, identity="me"), encoding, single_sum, number)
    except ReplayedRound:
        return 3
    Answers().leave()
    return 0
