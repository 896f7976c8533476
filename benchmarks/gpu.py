"""Elements per second of `privatize` on a GPU against a copy on the device and `torch.Tensor.normal_`, in one run.

Each time is the median of device events around one call, after warming up; the inputs rotate among several buffers, so
that no cache serves them twice. Without a GPU it says so and stops.

Run: python benchmarks/gpu.py [--elements N] [--repetitions R]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from mezzotint.core import gpu
from mezzotint.core.gpu import key_on, tables_on
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import round_rows
from mezzotint.core.sampler import fresh_key

LEVELS = 16
BUFFERS = 4


def mechanism(knots: np.ndarray, name: str) -> Mechanism:
    """A dense table of 16 levels on these knots: an exponential mechanism towards each knot."""
    levels = np.linspace(-2, 2, LEVELS)
    scores = np.exp(-np.abs(knots[:, None] - levels))
    weights = round_rows(scores / scores.sum(axis=1, keepdims=True), levels=levels)
    return Mechanism(knots=knots, levels=levels, weights=weights, name=name)


def drawer(
    table: Mechanism, inputs: list[torch.Tensor], draw: Callable[..., Any]
) -> Callable[[int], object]:
    """The draw alone: tables and key are on the device already, and nothing waits for the counts."""
    x = inputs[0]
    tables = tables_on(
        table, np.dtype(np.float32 if x.dtype == torch.float32 else np.float64), x.device
    )
    key = key_on(fresh_key(), x.device)
    codes = torch.empty(x.numel(), dtype=tables.code_type, device=x.device)
    return lambda turn: draw(tables, inputs[turn % BUFFERS], key, codes)


def contestants(elements: int, device: torch.device) -> dict[str, Callable[[int], object]]:
    generator = np.random.default_rng(0)
    inputs = [torch.rand(elements, device=device) * 2.2 - 1.1 for _ in range(BUFFERS)]
    wide = [x.double() for x in inputs]
    out = torch.empty_like(inputs[0])
    even = mechanism(np.linspace(-1, 1, LEVELS), "even knots")
    uneven = mechanism(
        np.concatenate([[-1], np.sort(generator.uniform(-1, 1, LEVELS - 2)), [1]]), "uneven knots"
    )
    entries: dict[str, Callable[[int], object]] = {
        "copy on the device, float32": lambda turn: out.copy_(inputs[turn % BUFFERS]),
        "torch.Tensor.normal_ float32": lambda turn: out.normal_(),
        "privatize, even knots, all included": lambda turn: even.privatize(inputs[turn % BUFFERS]),
        "plain torch, even knots": drawer(even, inputs, gpu.draw_plainly),
    }
    if find_spec("triton") is not None:
        from mezzotint.core import fused

        entries["fused kernel, even knots"] = drawer(even, inputs, fused.draw)
        entries["fused kernel, uneven knots"] = drawer(uneven, inputs, fused.draw)
        entries["fused kernel, even knots, float64"] = drawer(even, wide, fused.draw)
    return entries


def seconds(run: Callable[[int], object], repetitions: int) -> float:
    """Median seconds of one call, by events on the device."""
    for turn in range(BUFFERS):
        run(turn)
    times: list[float] = []
    for turn in range(repetitions):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run(turn)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def check(device: torch.device) -> None:
    """Both engines draw the same codes here, before anything is timed."""
    table = mechanism(np.linspace(-1, 1, LEVELS), "even knots")
    x = torch.rand(1_000_003, device=device) * 2.2 - 1.1
    key = fresh_key()
    codes = [gpu.draw(table, x, key, engine)[0] for engine in ("plain", gpu.engine_for(device))]
    print(f"engine: {gpu.engine_for(device)}; same codes as plain torch: {torch.equal(*codes)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=1 << 27)
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no device here: torch finds no CUDA GPU, so nothing was measured")
        return
    device = torch.device("cuda", torch.cuda.current_device())
    check(device)
    entries = contestants(options.elements, device)
    rate = {
        name: options.elements / seconds(run, options.repetitions) for name, run in entries.items()
    }
    copied, normal = rate["copy on the device, float32"], rate["torch.Tensor.normal_ float32"]
    table = Table(
        title=f"{torch.cuda.get_device_name(device)}: {options.elements} elements, {LEVELS} levels"
    )
    for column in ("", "elements/s", "against the copy", "against normal_"):
        table.add_column(column, justify="right" if column else "left")
    for name, value in rate.items():
        table.add_row(name, f"{value:.3g}", f"{value / copied:.2f}x", f"{value / normal:.2f}x")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
