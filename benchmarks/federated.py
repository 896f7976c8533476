"""Secure aggregation: bytes per client and round, seconds per stage, masking speed, and what others need.

Run: python benchmarks/federated.py [--clients 10,100,500] [--coordinates 10000,100000] [--no-legacy]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.table import Table

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import round_rows
from mezzotint.core.sampler import privatize
from mezzotint.federated.secagg import STAGES, Client, RoundPlan, Server, bits_needed, safe_threshold
from mezzotint.federated.secagg.masks import add_mask, pack_words, reduced, word_type

LEVELS = 16
NEIGHBOURS = 20


def plan(clients: int, coordinates: int) -> RoundPlan:
    neighbours = min(NEIGHBOURS, clients - 1)
    return RoundPlan(
        session=os.urandom(16),
        round=1,
        clients=clients,
        neighbours=neighbours,
        threshold=safe_threshold(neighbours),
        minimum=2,
        coordinates=coordinates,
        span=LEVELS - 1,
        bits=bits_needed(clients, LEVELS - 1),
    )


@dataclass
class Cost:
    """What one round took."""

    up: int = 0
    down: int = 0
    client: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    server: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def run_round(the_plan: RoundPlan, dropped: int) -> Cost:
    """A round in one process; `dropped` clients vanish before they send their masked input. Costs per client."""
    rng = np.random.default_rng(0)
    cost = Cost()
    clients = [Client() for _ in range(the_plan.clients)]
    server = Server(the_plan)
    outbox = server.invitations()
    total = np.zeros(the_plan.coordinates, dtype=np.int64)
    up, down = np.zeros(the_plan.clients), np.zeros(the_plan.clients)
    for stage in STAGES:
        if stage == "mask":
            outbox = dict(list(outbox.items())[dropped:])
        for index, message in outbox.items():
            values = rng.integers(0, LEVELS, the_plan.coordinates) if stage == "mask" else None
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
        if stage == "unmask":
            result = server.result()
        else:
            outbox = server.advance()
        cost.server[stage] += time.perf_counter() - start
    if not np.array_equal(result.values, total):
        raise AssertionError("the sum is wrong")
    cost.up, cost.down = int(up.max()), int(down.max())
    return cost


def rounds(clients: list[int], coordinates: list[int], console: Console) -> None:
    bytes_table = Table(title=f"Bytes per client and round, {LEVELS} levels, {NEIGHBOURS} neighbours (protocol only)")
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
    time_table = Table(title="Seconds: per client and stage, and the server's unmasking (one in ten drops out)")
    for name in ("clients", "coordinates", *STAGES, "server: unmask", "server: rest"):
        time_table.add_column(name, justify="right")
    for count in clients:
        for d in coordinates:
            the_plan = plan(count, d)
            cost = run_round(the_plan, count // 10)
            payload = -(-d * the_plan.bits // 8)
            row = (count, d, the_plan.bits, payload, cost.up - payload, cost.down, 4 * d)
            bytes_table.add_row(*(f"{value:,}" for value in row))
            rest = sum(cost.server.values()) - cost.server["unmask"]
            seconds = (*(cost.client[stage] for stage in STAGES), cost.server["unmask"], rest)
            time_table.add_row(f"{count:,}", f"{d:,}", *(f"{value:.4f}" for value in seconds))
    console.print(bytes_table)
    console.print(time_table)


def best(action: Callable[[], object], repetitions: int = 5) -> float:
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
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
        table.add_row(f"one mask, modulus 2**{bits}", f"{seconds:.4f}", f"{d / seconds / 1e6:,.0f}")
    levels = np.linspace(-1, 1, LEVELS)
    mechanism = Mechanism(knots=levels, levels=levels, weights=round_rows(np.eye(LEVELS), levels=levels), name="even")
    x = np.random.default_rng(0).uniform(-1, 1, d)
    keys = [os.urandom(32) for _ in range(NEIGHBOURS + 1)]

    def upload() -> bytes:
        total = privatize(mechanism, x, threads=1)[0].astype(word_type(11))
        for key in keys:
            add_mask(total, key, sign=1)
        return pack_words(reduced(total, 11), 11)

    seconds = best(upload)
    table.add_row(f"quantize, {NEIGHBOURS + 1} masks, pack", f"{seconds:.4f}", f"{d / seconds / 1e6:,.0f}")
    console.print(table)


def legacy_masking(console: Console) -> None:
    """Flower's own mask: 32-bit seeds of numpy's Mersenne twister."""
    if importlib.util.find_spec("flwr") is None:
        console.print("Flower is not installed: its legacy SecAgg+ is left out.")
        return
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    d = 1_000_000
    seconds = best(lambda: pseudo_rand_gen(os.urandom(32), 1 << 32, [(d,)]), 3)
    console.print(
        f"Flower's legacy SecAgg+ (weak seeds): {d / seconds / 1e6:,.0f} million mask coordinates/s, 8 bytes each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default="10,100,500")
    parser.add_argument("--coordinates", default="10000,100000")
    parser.add_argument("--legacy", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    console = Console(width=140)
    speed(console)
    if arguments.legacy:
        legacy_masking(console)
    clients, coordinates = (
        [int(part) for part in text.split(",")] for text in (arguments.clients, arguments.coordinates)
    )
    rounds(clients, coordinates, console)


if __name__ == "__main__":
    main()
