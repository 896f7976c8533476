"""Secure aggregation: bytes per client and round, seconds per stage, masking speed, and what others need.

Run: python benchmarks/federated.py [--clients 10,100,500] [--coordinates 10000,100000] [--messages 10000,1000000]
     python benchmarks/federated.py --engine: rounds on Flower's own engine, beside plain averaging
     python benchmarks/federated.py --advice: processor time of `mezzotint advise`

Targets (one thread, d = 1,000,000 and 20 masks): masks at 200 million coordinates/s, quantize + mask + pack below one
second; advice in ten seconds of processor time; on the wire at most 11 bits a coordinate for 4-bit reports of 100
clients, and below 50 kB of protocol for a member of the committee (a fifth of the clients corrupted, the server lying);
on the engine a secure round at most 1.5 times a plain one.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.compat.common.recorddict_compat import parameters_to_arrayrecord
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from rich.console import Console
from rich.table import Table

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import round_rows
from mezzotint.core.sampler import pack_words, privatize, word_type
from mezzotint.families import discrete_gaussian
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import TableEncoding, gaussian_encoding
from mezzotint.federated.policy import Policy
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
from mezzotint.federated.secagg.masks import add_mask, reduced
from mezzotint.federated.secure_strategy import SecureStrategy
from mezzotint.privacy.tradeoffs import gaussian_epsilon
from mezzotint.vectors.gaussian import RoundedGaussian

LEVELS = 16
NEIGHBOURS = 20  # masks of the speed table, and of Flower's own protocol


def sizes(clients: int) -> SumParameters:
    """For a fifth corrupted and as many drop-outs as there is room for, up to a fifth; as safe as clients ask for."""
    asked = Trust()
    for dropped in range(clients // 5, -1, -1):
        with contextlib.suppress(InfeasibleError):
            return plan_sum(
                clients=clients,
                corrupted=-(-clients // 5),
                dropped=dropped,
                minimum=clients // 2 + 1,
                security_bits=asked.bits,
                drawn_bits=asked.drawn_bits(clients, clients),
            )
    raise AssertionError("a committee of all always will do")


def plan(clients: int, coordinates: int, roster: Roster) -> RoundPlan:
    found = sizes(clients)
    return RoundPlan(
        session=os.urandom(16),
        round=1,
        clients=clients,
        members=found.members,
        quorum=found.quorum,
        picks=found.picks,
        least=found.least,
        minimum=clients // 2 + 1,
        coordinates=coordinates,
        span=LEVELS - 1,
        bits=bits_needed(clients, LEVELS - 1),
        roster=roster.digest,
    )


@dataclass
class Cost:
    """What one round took."""

    up: int = 0
    down: int = 0
    client: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    server: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def run_round(count: int, coordinates: int, dropped: int) -> tuple[RoundPlan, Cost]:
    """A round in one process; `dropped` clients vanish before they send their masked input. Costs per client."""
    rng = np.random.default_rng(0)
    cost = Cost()
    made = [Client() for _ in range(count)]
    roster = Roster.drawn(read_introduction(client.card()) for client in made)
    the_plan = plan(count, coordinates, roster)
    server = Server(the_plan, roster)
    by_identity = {client.identity: client for client in made}
    clients = [by_identity[card.identity] for card in server.cohort]
    outbox = server.invitations(range(count))
    for client in clients:
        client.trust = replace(client.trust, roster=roster)
    total = np.zeros(the_plan.coordinates, dtype=np.int64)
    up, down = np.zeros(the_plan.clients), np.zeros(the_plan.clients)
    for stage in STAGES:
        if stage == "sum":
            outbox = dict(list(outbox.items())[dropped:])
        for index, message in outbox.items():
            values = rng.integers(0, LEVELS, the_plan.coordinates) if stage == "sum" else None
            start = time.perf_counter()
            method = getattr(clients[index], stage)
            reply = method(message) if values is None else method(message, values)
            middle = time.perf_counter()
            server.receive(index, reply)
            cost.client[stage] += (middle - start) / len(outbox)
            cost.server[stage] += time.perf_counter() - middle
            total += 0 if values is None else values
            up[index] += len(reply)
            down[index] += len(message)
        start = time.perf_counter()
        if stage == "open":
            result = server.result()
        else:
            outbox = server.advance()
        cost.server[stage] += time.perf_counter() - start
    if not np.array_equal(result.values, total):
        raise AssertionError("the sum is wrong")
    cost.up, cost.down = int(up.max()), int(down.max())
    return the_plan, cost


def targets(console: Console) -> None:
    """4-bit reports of 100 clients, 10,000 coordinates: what is asked for, and what is measured."""
    the_plan, cost = run_round(100, 10_000, 0)
    payload = -(-the_plan.coordinates * the_plan.bits // 8)
    protocol = cost.up + cost.down - payload
    mask, upload = SPEEDS["mask"], SPEEDS["upload"]
    table = Table(title="Targets")
    for name in ("what", "target", "measured", "met"):
        table.add_column(name)
    for what, target, measured, met in (
        (
            "bits a coordinate on the wire",
            "<= 11",
            f"{8 * payload / the_plan.coordinates:.2f}",
            the_plan.bits <= 11,
        ),
        ("protocol, up and down, bytes", "< 50,000", f"{protocol:,}", protocol < 50_000),
        (
            "masks at 11 bits, million coordinates/s a thread",
            ">= 200",
            f"{1 / mask:,.0f}",
            mask <= 1 / 200,
        ),
        ("quantize, 21 masks, pack, seconds", "< 1", f"{upload:.3f}", upload < 1),
    ):
        table.add_row(what, target, measured, "yes" if met else "NO")
    console.print(table)


SPEEDS: dict[str, float] = {}
"""Seconds for 1,000,000 coordinates, filled by `speed`."""


def rounds(clients: list[int], coordinates: list[int], console: Console) -> None:
    bytes_table = Table(
        title=f"Bytes per client and round, {LEVELS} levels, the largest (protocol only)"
    )
    for name in (
        "clients",
        "coordinates",
        "bits each",
        "masked input",
        "protocol up",
        "protocol down",
        "float32 FedAvg",
    ):
        bytes_table.add_column(name, justify="right")
    time_table = Table(
        title="Seconds: per client and stage, and the server's opening (one in ten drops out)"
    )
    for name in ("clients", "coordinates", *STAGES, "server: open", "server: rest"):
        time_table.add_column(name, justify="right")
    for count in clients:
        for d in coordinates:
            the_plan, cost = run_round(count, d, count // 10)
            payload = -(-d * the_plan.bits // 8)
            row = (count, d, the_plan.bits, payload, cost.up - payload, cost.down, 4 * d)
            bytes_table.add_row(*(f"{value:,}" for value in row))
            rest = sum(cost.server.values()) - cost.server["open"]
            seconds = (*(cost.client[stage] for stage in STAGES), cost.server["open"], rest)
            time_table.add_row(f"{count:,}", f"{d:,}", *(f"{value:.4f}" for value in seconds))
    console.print(bytes_table)
    console.print(time_table)


def best(
    action: Callable[[], object],
    repetitions: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    times = []
    for _ in range(repetitions):
        start = clock()
        action()
        times.append(clock() - start)
    return min(times)


def speed(console: Console) -> None:
    table = Table(title="One thread, d = 1,000,000")
    table.add_column("what")
    table.add_column("seconds", justify="right")
    table.add_column("million coordinates/s", justify="right")
    d = 1_000_000
    for bits in (8, 11, 16, 20):
        total = np.zeros(d, dtype=word_type(bits))
        key = os.urandom(32)
        seconds = best(lambda total=total, key=key: add_mask(total, key, sign=1))
        if bits == 11:
            SPEEDS["mask"] = seconds
        table.add_row(f"one mask, modulus 2**{bits}", f"{seconds:.4f}", f"{d / seconds / 1e6:,.0f}")
    levels = np.linspace(-1, 1, LEVELS)
    mechanism = Mechanism(
        knots=levels, levels=levels, weights=round_rows(np.eye(LEVELS), levels=levels), name="even"
    )
    x = np.random.default_rng(0).uniform(-1, 1, d)
    keys = [os.urandom(32) for _ in range(NEIGHBOURS + 1)]

    def upload() -> bytes:
        total = privatize(mechanism, x, threads=1)[0].astype(word_type(11))
        for key in keys:
            add_mask(total, key, sign=1)
        return pack_words(reduced(total, 11), 11)

    seconds = SPEEDS["upload"] = best(upload)
    table.add_row(
        f"quantize, {NEIGHBOURS + 1} masks, pack", f"{seconds:.4f}", f"{d / seconds / 1e6:,.0f}"
    )
    console.print(table)


# Flower's messages ---------------------------------------------------------------------------------------------------


class CountingGrid(Grid):
    """Hands messages to client apps in this process and counts the bytes of what Flower would serialize."""

    def __init__(self, apps: list[ClientApp]) -> None:
        self.apps = dict(enumerate(apps, start=10))
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.up: dict[int, int] = defaultdict(int)
        self.down: dict[int, int] = defaultdict(int)
        self.numbers = itertools.count()
        self.replies: dict[str, Message] = {}
        self.contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config={"partition-id": node - 10},
                state=RecordDict(),
                run_config={},
            )
            for node in self.apps
        }

    def set_run(self, run) -> None: ...

    @property
    def run(self): ...

    def create_message(self, *args, **kwargs): ...

    def push_messages(self, messages) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        node, number = message.metadata.dst_node_id, str(next(self.numbers))
        message.metadata.__dict__["_message_id"] = number
        self.down[node] += _over_the_wire(message)
        self.replies[number] = reply = self.apps[node](message, self.contexts[node])
        self.up[node] += _over_the_wire(reply)
        return number

    def pull_messages(self, message_ids) -> list[Message]:
        return [self.replies.pop(number) for number in message_ids]

    def get_node_ids(self) -> list[int]:
        return list(self.apps)

    def send_and_receive(self, messages, *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))


def _over_the_wire(message: Message) -> int:
    """Serializes and parses the content, as sending it would; its bytes."""
    text = recorddict_to_proto(message.content).SerializeToString()
    message.content = recorddict_from_proto(ProtoRecordDict.FromString(text))
    return len(text)


def _trained(mods: list) -> ClientApp:
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = next(iter(message.content.array_records.values()))
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def ours(clients: int, d: int) -> CountingGrid:
    levels = np.linspace(-1, 1, LEVELS)
    weights = round_rows(np.eye(LEVELS), levels=levels)
    encoding = TableEncoding(
        mechanism=Mechanism(knots=levels, levels=levels, weights=weights, name="even")
    )
    grid = CountingGrid([_trained([SecureUpdates(Policy())]) for _ in range(clients)])
    strategy = SecureStrategy(encoding=encoding, clients_per_round=clients)
    strategy.start(grid=grid, initial_arrays=_model(d), num_rounds=1)
    if strategy.last_sum is None:
        raise AssertionError(strategy.incidents)
    return grid


def plain(clients: int, d: int) -> CountingGrid:
    grid = CountingGrid([_trained([]) for _ in range(clients)])
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    strategy.start(grid=grid, initial_arrays=_model(d), num_rounds=1)
    return grid


def _model(d: int) -> ArrayRecord:
    return ArrayRecord({"a": Array(np.zeros(d, dtype=np.float32))})


class _Returns(NumPyClient):
    """The legacy client of the comparison: returns what it was given."""

    def fit(self, parameters, config):
        return parameters, 1, {}


def legacy(clients: int, d: int) -> CountingGrid:
    """One round of Flower's SecAgg+ with its defaults and 20 neighbours."""
    app = [
        ClientApp(client_fn=lambda context: _Returns().to_client(), mods=[secaggplus_mod])
        for _ in range(clients)
    ]
    grid = CountingGrid(app)
    manager = SimpleClientManager()
    for node in grid.apps:
        manager.register(GridClientProxy(node_id=node, grid=grid, run_id=1))
    start = ndarrays_to_parameters([np.zeros(d, dtype=np.float32)])
    context = LegacyContext(
        context=Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        config=ServerConfig(num_rounds=1),
        strategy=LegacyFedAvg(
            min_fit_clients=clients, min_available_clients=clients, initial_parameters=start
        ),
        client_manager=manager,
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = parameters_to_arrayrecord(
        start, keep_input=True
    )
    shares = min(NEIGHBOURS + 1, clients)
    SecAggPlusWorkflow(shares - (shares % 2 == 0), shares // 2)(grid, context)
    return grid


def messages(clients: int, coordinates: list[int], console: Console) -> None:
    """Serialized bytes of all messages of a round, the model's way down included."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    table = Table(
        title=f"One round of {clients} clients over Flower: bytes per client (largest), seconds in one process"
    )
    for name in (
        "coordinates",
        "what",
        "up",
        "bits/coordinate up",
        "down",
        "up / float32",
        "seconds",
    ):
        table.add_column(name, justify="right")
    for d in coordinates:
        float32 = None
        for name, action in (
            ("float32 FedAvg", plain),
            ("this: 4 bits", ours),
            ("legacy SecAgg+", legacy),
        ):
            start = time.perf_counter()
            grid = action(clients, d)
            seconds = time.perf_counter() - start
            up, down = max(grid.up.values()), max(grid.down.values())
            float32 = up if float32 is None else float32
            table.add_row(
                f"{d:,}",
                name,
                f"{up:,}",
                f"{8 * up / d:.2f}",
                f"{down:,}",
                f"{up / float32:.3f}",
                f"{seconds:.1f}",
            )
    console.print(table)


def engine(nodes: int, coordinates: int, rounds: int, console: Console) -> None:
    """Plain averaging and secure sums by turns, in one run of a SuperLink and SuperNodes over TLS on this machine.

    Training takes no time. Plain rounds are Flower's own strategy and client processes without anything of ours. The
    first of each is left out: it waits for nodes to connect, and asks them who they are.
    """
    tests = Path(__file__).parents[1] / "tests"
    # Of this script's folder, `federated` would be this script, and not the folder of tests.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(tests), *(entry for entry in sys.path if Path(entry).resolve() != here)]
    from modules import load

    deployed = load(tests / "federated" / "deployed.py")
    settings = {
        "nodes": nodes, "minimum": nodes - 1, "corrupted": 0.0, "dropped": 0.0, "plain": rounds, "rounds": rounds,
        "coordinates": coordinates, "stage-timeout": 900.0,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        deployment = deployed.Deployment(Path(folder), nodes, {})
        try:
            deployment.submit(" ".join(f"{key}={value}" for key, value in settings.items()))
            outcome = json.loads(deployment.await_file("outcome.json", 900.0 * rounds).read_text())
            starts = [
                (Path(folder) / f"marker-{place}-starts").read_text().split()[1::2]
                for place in range(nodes)
            ]
        finally:
            deployment.close()
    if set(outcome["rounds"].values()) != {"released"}:
        raise AssertionError(outcome["incidents"])
    plain, secure = (np.array(outcome["seconds"][name][1:]) for name in ("plain", "secure"))
    ratios = np.sort(secure / plain)
    processor = {name: np.array(values[1:]) for name, values in outcome["processor"].items()}
    work = np.sort(processor["secure"] / processor["plain"])
    asked = sorted(sum(stage not in ("plain", "card") for stage in one) / rounds for one in starts)
    table = Table(title=f"Flower's engine, {nodes} nodes on {len(os.sched_getaffinity(0))} cores, d = {coordinates:,}, "
                        f"training takes no time, {rounds - 1} pairs of rounds")  # fmt: skip
    table.add_column("what")
    table.add_column("measured", justify="right")
    stages = {
        name: float(np.median([one[name] for one in outcome["stages"][1:]]))
        for name in outcome["stages"][-1]
    }
    p, s = float(np.median(plain)), float(np.median(secure))
    for what, measured in (
        ("secure round over plain round, median of pairs", f"{np.median(ratios):.2f}"),
        ("the same, least and largest", f"{ratios[0]:.2f}, {ratios[-1]:.2f}"),
        ("the same of processor time, median of pairs", f"{np.median(work):.2f}"),
        (
            "the same of processor time, of all pairs together",
            f"{processor['secure'].sum() / processor['plain'].sum():.2f}",
        ),
        (
            "processes a node and round: ordinary, member of the committee",
            f"{asked[0]:g}, {asked[-1]:g}",
        ),
        ("plain round, median seconds", f"{p:.1f}"),
        ("secure round, median seconds", f"{s:.1f}"),
        *(
            (f"its stage {name!r}, median seconds", f"{spent:.2f}")
            for name, spent in stages.items()
        ),
        (
            "training seconds from which the ratio is at most 1.5",
            f"{max(0.0, 2 * (s - 1.5 * p)):.0f}",
        ),
    ):
        table.add_row(what, measured)
    console.print(table)


def encodings(console: Console) -> None:
    """Noise of eight norms on the sum of 1.1 million parameters: bits, epsilon, and the time to encode an update."""
    d, rounds, delta = 1_100_000, 10, 1e-5
    table = Table(
        title=f"d = {d:,}, noise multiplier 8, {rounds} rounds, delta {delta:g}: one client's update"
    )
    for name in (
        "clients",
        "bits",
        "bytes",
        "x float32",
        "epsilon",
        "+ at equal error",
        "ns/coordinate",
    ):
        table.add_column(name, justify="right")
    update = np.random.default_rng(0).normal(size=d)
    for clients in (100, 1000, 10_000):
        wanted = {"noise_multiplier": 8.0, "clip_norm": 1.0, "clients": clients, "size": d}
        encoding = gaussian_encoding(**wanted)
        sums = Sums(size=d, clients=clients, rounds=rounds, delta=delta)
        epsilon = encoding.central(sums).epsilon
        # What continuous noise of the error that is really there would cost.
        error = math.sqrt(encoding.mse() * clients) / encoding.clip_norm
        excess = epsilon / gaussian_epsilon(2 * math.sqrt(rounds) / error, delta) - 1
        seconds = best(partial(encoding.encode, update), 3, clock=time.process_time)
        table.add_row(
            f"{clients:,}",
            str(encoding.report_bits),
            f"{d * encoding.report_bits / 8:,.0f}",
            f"{encoding.report_bits / 32:.3f}",
            f"{epsilon:.4f}",
            f"{excess:.2%}",
            f"{seconds / d * 1e9:.0f}",
        )
    console.print(table)
    centres, law = np.full(d, 0.3), RoundedGaussian(sigma=2.0)
    drawn = best(lambda: law.draw(os.urandom(32), d, centres), clock=time.process_time)
    discrete = discrete_gaussian(sigma=2.0)
    sampled = best(lambda: discrete.sample(d), clock=time.process_time)
    console.print(f"Draws alone, processor time: rounded Gaussian {drawn / d * 1e9:.1f} ns, "
                  f"discrete Gaussian from its table {sampled / d * 1e9:.1f} ns")  # fmt: skip


def legacy_masking(console: Console) -> None:
    """Flower's own mask: 32-bit seeds of numpy's Mersenne twister."""
    d = 1_000_000
    seconds = best(lambda: pseudo_rand_gen(os.urandom(32), 1 << 32, [(d,)]), 3)
    console.print(
        f"Flower's legacy SecAgg+ (weak seeds): {d / seconds / 1e6:,.0f} million mask coordinates/s, 8 bytes each"
    )


ADVICE = (
    "--clients-per-round 1000 --dimension 10000 --rounds 20 --epsilon 8",
    "--clients-per-round 100 --population 10000 --dimension 1100000 --rounds 1000 --epsilon 1",
    "--clients-per-round 200 --dimension 50 --epsilon 8",
    "--clients-per-round 1000000 --epsilon 1 --delta 1e-6",
    "--clients-per-round 5000 --dimension 200 --rounds 3 --epsilon 2 --delta 1e-7",
    "--clients-per-round 300 --dimension 4096 --rounds 50 --population 2500 --epsilon 3",
    "--clients-per-round 77 --dimension 3 --rounds 400 --corrupted 15 --bits 16 --epsilon 6 --delta 1e-5",
)
"""Questions to `mezzotint advise`: many clients, a large model, few coordinates with a large budget, one number, and
settings in between."""


def advice(console: Console) -> None:
    """Processor time of whole processes, start and imports included."""
    for question in ADVICE:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        script = "from mezzotint.cli.application import main; main()"
        asked = [sys.executable, "-c", script, "advise", *question.split(), "--json"]
        best = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)["options"][
            0
        ]["name"]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        console.print(
            f"advise {question}: {seconds:.1f} s of processor time, {best} is best", soft_wrap=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default="10,100,500", help="for the seconds per stage")
    parser.add_argument(
        "--coordinates", default="10000,100000", help="for the seconds per stage; 0 leaves them out"
    )
    parser.add_argument(
        "--messages",
        default="10000,100000,1000000",
        help="coordinates over Flower; 0 leaves them out",
    )
    parser.add_argument("--message-clients", type=int, default=100)
    parser.add_argument(
        "--encodings", action="store_true", help="the table of noise encodings alone"
    )
    parser.add_argument(
        "--advice", action="store_true", help="processor time of advice alone; left out otherwise"
    )
    parser.add_argument(
        "--engine", action="store_true", help="rounds on Flower's engine alone; left out otherwise"
    )
    parser.add_argument("--nodes", type=int, default=4, help="of the engine")
    parser.add_argument(
        "--rounds", type=int, default=6, help="of each kind on the engine, at least 2"
    )
    parser.add_argument(
        "--parameters", type=int, default=100_000, help="of the model on the engine"
    )
    arguments = parser.parse_args()
    console = Console(width=140)
    if arguments.engine:
        engine(arguments.nodes, arguments.parameters, arguments.rounds, console)
        return
    if arguments.advice:
        advice(console)
        return
    encodings(console)
    if arguments.encodings:
        return
    warnings.simplefilter("ignore")
    numbers = {
        name: [int(part) for part in getattr(arguments, name).split(",") if part != "0"]
        for name in ("clients", "coordinates", "messages")
    }
    speed(console)
    legacy_masking(console)
    if numbers["messages"]:
        messages(arguments.message_clients, numbers["messages"], console)
    if numbers["clients"] and numbers["coordinates"]:
        rounds(numbers["clients"], numbers["coordinates"], console)
    targets(console)


if __name__ == "__main__":
    main()
