"""Drawing and training on a GPU: equal to the CPU's draws, how fast, and the RQM paper's training figures.

Run: python benchmarks/gpu.py [--all] [--out FILE] [--seconds S] [--femnist FILE]

Without --all, only the speed of `privatize` is measured. With --all every section below runs, one after another; what
a section found is written to the JSON file as soon as it is there, an error of one leaves the others alone, and the
training figures take what is left of the seconds. Each time is the median of device events around one call, after
warming up; inputs rotate among several buffers, so that no cache serves them twice. Without a GPU it says so and stops
(--cpu runs every section on the CPU at small sizes, to see that the script works).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from mezzotint import families
from mezzotint.core import gpu
from mezzotint.core.gpu import key_on, tables_on
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import round_rows
from mezzotint.core.sampler import codes_from_words, fresh_key

TESTS = Path(__file__).parents[1] / "tests"
LEVELS = 16
BUFFERS = 4
SMALL = 64
"""Sizes are divided by this on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where and how long to measure.

    Arguments:
        device: a CUDA device, or the CPU for a trial of the script.
        deadline: of `time.monotonic`.
        femnist: path of the npz file of FEMNIST by writer, or None.
        seeds, rate: of the training figures, where earlier runs are to be continued.
    """

    device: torch.device
    deadline: float
    femnist: Path | None
    seeds: tuple[int, ...] = (0, 1, 2)
    rate: float | None = None
    started: float = field(default_factory=time.monotonic)

    def scaled(self, size: int) -> int:
        return size if self.device.type == "cuda" else max(1, size // SMALL)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, run: Callable[[int], object], repetitions: int) -> float:
        """Median seconds of one call."""
        for turn in range(BUFFERS):
            run(turn)
        times = [self._once(run, turn) for turn in range(repetitions)]
        return statistics.median(times)

    def _once(self, run: Callable[[int], object], turn: int) -> float:
        if self.device.type != "cuda":
            begin = time.perf_counter()
            run(turn)
            return time.perf_counter() - begin
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run(turn)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3


def engines(device: torch.device) -> list[gpu.Engine]:
    on_device = device.type == "cuda" and find_spec("triton") is not None
    if not on_device:
        return ["plain"]
    return ["plain", "fused"]


def dense_table(knots: np.ndarray, levels: int, name: str) -> Mechanism:
    """A table without zeros: an exponential mechanism towards each knot."""
    values = np.linspace(-2, 2, levels)
    scores = np.exp(-np.abs(knots[:, None] - values))
    weights = round_rows(scores / scores.sum(axis=1, keepdims=True), levels=values)
    return Mechanism(knots=knots, levels=values, weights=weights, name=name)


def knots_of(spacing: str, count: int) -> np.ndarray:
    """Even knots, uneven ones that buckets hold apart, or clustered ones that must be searched for."""
    inner = np.sort(np.random.default_rng(0).uniform(-1, 1, count - 2))
    if spacing == "even":
        return np.linspace(-1, 1, count)
    if spacing == "clustered":
        inner = np.sort(inner**9)
    return np.unique(np.concatenate([[-1.0], inner, [1.0]]))


# What the device is ------------------------------------------------------------------------------------------


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def facts(bench: Bench) -> dict[str, Any]:
    names = ("torch", "triton", "numpy", "numba", "opacus")
    return {
        "device": device_name(bench.device),
        "python": platform.python_version(),
        **{name: installed(name) for name in names},
    }


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()


# Equal to the CPU --------------------------------------------------------------------------------------------


def words_of_draws(key: bytes, count: int, bits: int) -> np.ndarray:
    """(count,) uint64: the words of a draw (`mezzotint.core.gpu.draw` tells how they are put
    together), of ChaCha12 streams by the definition that the tests compare with others.
    """
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    from reference.gpu import chacha_blocks

    blocks = 32 * -(-count // 512)
    streams: list[np.ndarray] = []
    for nonce in (0, 1):
        words = chacha_blocks(key, 0, blocks, nonce, rounds=12)
        by_group = words.reshape(-1, 32, 4, 4).transpose(0, 2, 1, 3)
        streams.append(by_group.reshape(-1)[:count].astype(np.uint64))
    leading, trailing = streams
    one, high_bits, width = np.uint64(1), np.uint64((32 - bits) // 2), np.uint64(bits)
    rest = np.uint64(32) - high_bits
    cell = leading & ((one << width) - one)
    inverted = (leading >> width) & ((one << high_bits) - one)
    inverted = (inverted << rest) | (trailing >> high_bits)
    unit = leading >> (high_bits + width) << high_bits
    unit |= trailing & ((one << high_bits) - one)
    low = (cell << (np.uint64(32) - width)) | unit
    return ((np.uint64(2**32 - 1) - inverted) << np.uint64(32)) | low


def inputs(mechanism: Mechanism, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Inputs in and around the range, knots and their neighbours among them."""
    generator = np.random.default_rng(1)
    x = generator.uniform(mechanism.lower - 0.1, mechanism.upper + 0.1, size)
    knots = mechanism.knots[: size // 8]
    around = np.concatenate([knots, np.nextafter(knots, 9), np.nextafter(knots, -9)])
    x[: around.size] = around
    return torch.from_numpy(x).to(dtype)


def differences(
    mechanism: Mechanism, x: torch.Tensor, device: torch.device, engine: gpu.Engine
) -> int:
    """In how many codes or counts a draw on the device differs from the CPU's, for the same words."""
    key = fresh_key()
    codes, counts = gpu.draw(mechanism, x.to(device), key, engine)
    values = gpu.as_floats(x).contiguous()
    flat = values.numpy().reshape(-1)
    expected = codes_from_words(mechanism, flat, words_of_draws(key, flat.size, mechanism.bits))
    wrong = int((codes.cpu().numpy().reshape(-1) != expected).sum())
    wide = flat.astype(np.float64)
    outside = ((wide < mechanism.lower).sum(), (wide > mechanism.upper).sum(), 0)
    return wrong + int(counts != tuple(map(int, outside)))


def equality(bench: Bench) -> dict[str, Any]:
    """Tables of 2 to 65,536 levels, types, strides; "differences" must be 0 everywhere."""
    device, size = bench.device, bench.scaled(1 << 20) + 3
    rows: list[dict[str, Any]] = []

    def compare(what: str, mechanism: Mechanism, x: torch.Tensor, engine: gpu.Engine) -> None:
        found = differences(mechanism, x, device, engine)
        rows.append({"what": what, "engine": engine, "draws": x.numel(), "differences": found})

    for engine in engines(device):
        for spacing in ("even", "uneven", "clustered"):
            table = dense_table(knots_of(spacing, 16), LEVELS, spacing)
            for dtype in (torch.float32, torch.bfloat16, torch.float64):
                compare(f"{spacing} knots, {dtype}", table, inputs(table, size, dtype), engine)
        for levels in (2, 3, 255, 256, 257, 4096, 65536):
            table = dense_table(knots_of("even", 3), levels, f"{levels} levels")
            compare(f"{levels} levels", table, inputs(table, size, torch.float32), engine)
        ends = dense_table(1.1 * knots_of("even", 16), LEVELS, "ends between float32 numbers")
        compare("ends between float32 numbers", ends, inputs(ends, size, torch.float32), engine)
        table = dense_table(knots_of("even", 16), LEVELS, "strided")
        x = inputs(table, 4 * 1021 * 33, torch.float32).reshape(4, 1021, 33)
        compare("transposed", table, x.transpose(0, 2), engine)
        compare("every second", table, x[:, ::2], engine)
        for count in (0, 1, 7, 8, 9, 17):
            compare(f"{count} elements", table, inputs(table, 64, torch.float32)[:count], engine)
    wrong = sum(row["differences"] for row in rows)
    return {"differences": wrong, "draws": sum(row["draws"] for row in rows), "rows": rows}


def surroundings(bench: Bench) -> dict[str, Any]:
    """Streams, capture by a CUDA graph, and memory that runs out."""
    device = bench.device
    if device.type != "cuda":
        return {"skipped": "needs a CUDA device"}
    table = dense_table(knots_of("even", 16), LEVELS, "even")
    x = torch.rand(1 << 20, device=device)
    answers: dict[str, Any] = {}
    side = torch.cuda.Stream(device)
    with torch.cuda.stream(side):
        answers["on another stream, differences"] = differences(
            table, x.cpu(), device, gpu.engine_for(device)
        )
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            table.privatize(x)
        answers["captured by a graph"] = "recorded: a replay would repeat its noise"
    except RuntimeError as error:
        answers["captured by a graph"] = f"refused: {type(error).__name__}"
    torch.cuda.synchronize()
    try:
        free, _ = torch.cuda.mem_get_info(device)
        large = torch.zeros(int(free * 0.9) // 4, device=device)
        table.privatize(large)
        answers["memory runs out"] = "it did not"
    except torch.OutOfMemoryError:
        answers["memory runs out"] = "torch.OutOfMemoryError"
    large = None
    torch.cuda.empty_cache()
    answers["after both, differences"] = differences(table, x.cpu(), device, gpu.engine_for(device))
    return answers


def chi_square(bench: Bench) -> dict[str, Any]:
    """10^9 draws at 16 inputs, each against its law: 16 p-values, and how they compare with uniform ones."""
    from scipy import stats

    table = families.rqm(lower=-1, upper=1, levels=LEVELS, extension=1.0, q=0.42)
    points = np.linspace(-1, 1, 16)
    each = bench.scaled(62_500_000)
    p_values: list[float] = []
    for point in points:
        x = torch.full((each,), float(point), dtype=torch.float64, device=bench.device)
        codes = table.privatize(x)
        seen = torch.bincount(codes.int(), minlength=LEVELS).cpu().numpy()
        expected = table.pmf(float(point)) * each
        p_values.append(float(stats.chisquare(seen, expected * (each / expected.sum())).pvalue))
    together = float(stats.kstest(p_values, "uniform").pvalue)
    return {"draws": each * points.size, "least p": min(p_values), "uniform p": together}


# Speed -------------------------------------------------------------------------------------------------------


def drawer(
    table: Mechanism, buffers: list[torch.Tensor], draw: Callable[..., Any]
) -> Callable[[int], object]:
    """The draw alone: tables and key are on the device already, and nothing waits for the counts."""
    x = buffers[0]
    kind = np.dtype(np.float32 if x.dtype == torch.float32 else np.float64)
    tables = tables_on(table, kind, x.device)
    key = key_on(fresh_key(), x.device)
    codes = torch.empty(x.numel(), dtype=tables.code_type, device=x.device)
    return lambda turn: draw(tables, buffers[turn % BUFFERS], key, codes)


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """What is timed.

    Arguments:
        run: of the number of its turn.
        elements: of each turn.
        moved: bytes that must be read and written for an element.
    """

    run: Callable[[int], object]
    elements: int
    moved: int = 5
    repetitions: int = 30


def contestants(bench: Bench, elements: int) -> dict[str, Contestant]:
    device = bench.device
    buffers = [torch.rand(elements, device=device) * 2.2 - 1.1 for _ in range(BUFFERS)]
    out = torch.empty_like(buffers[0])
    bits = torch.empty(elements, dtype=torch.uint8, device=device)
    even = dense_table(knots_of("even", LEVELS), LEVELS, "even knots")
    tables = {
        "even knots": even,
        "clustered knots": dense_table(knots_of("clustered", LEVELS), LEVELS, "clustered knots"),
        "RQM": families.rqm(lower=-1.0, upper=1.0, levels=LEVELS, extension=1.0, q=0.42),
        "RQM, ends that float32 has not": families.rqm(
            lower=-1.1, upper=1.1, levels=LEVELS, extension=1.0, q=0.42
        ),
    }
    timed = partial(Contestant, elements=elements)
    few = [values[: elements // 16] for values in buffers]
    entries = {
        "copy on the device, float32": timed(
            run=lambda turn: out.copy_(buffers[turn % BUFFERS]), moved=8
        ),
        "torch.Tensor.normal_ float32": timed(run=lambda turn: out.normal_(), moved=4),
        "torch.Tensor.bernoulli_ uint8": timed(run=lambda turn: bits.bernoulli_(0.5), moved=1),
        "plain torch, even knots": Contestant(
            run=drawer(even, few, gpu.draw_plainly), elements=elements // 16, repetitions=5
        ),
        "privatize, even knots, all included": timed(
            run=lambda turn: even.privatize(buffers[turn % BUFFERS])
        ),
    }
    if "fused" in engines(device):
        from mezzotint.core import fused

        for name, table in tables.items():
            entries[f"fused kernels, {name}"] = timed(run=drawer(table, buffers, fused.draw))
        for rounds in (20, 8):
            other = partial(fused.draw, double_rounds=rounds // 2)
            name = f"fused kernels, even knots, ChaCha{rounds} (not used)"
            entries[name] = timed(run=drawer(even, buffers, other))
    return entries


def four_times(bench: Bench, elements: int) -> dict[str, Contestant]:
    """The same with tensors four times as large: what a call costs by itself matters less."""
    buffers = [torch.rand(4 * elements, device=bench.device) * 2.2 - 1.1 for _ in range(BUFFERS)]
    even = dense_table(knots_of("even", LEVELS), LEVELS, "even knots")
    timed = partial(Contestant, elements=4 * elements)
    entries = {
        "privatize, even knots, all included": timed(
            run=lambda turn: even.privatize(buffers[turn % BUFFERS])
        ),
    }
    if "fused" in engines(bench.device):
        from mezzotint.core import fused

        entries["fused kernels, even knots"] = timed(run=drawer(even, buffers, fused.draw))
    return entries


def speed(bench: Bench) -> dict[str, Any]:
    elements = bench.scaled(1 << 27)
    rows = _timed(bench, contestants(bench, elements))
    rows += _timed(bench, four_times(bench, elements))
    copied = 8 * rows[0]["rate"]
    for row in rows:
        row["share of copy bandwidth"] = row.pop("moved") * row["rate"] / copied
        row["against normal_"] = row["rate"] / rows[1]["rate"]
    return {"elements": elements, "levels": LEVELS, "copy, bytes/s": copied, "rows": rows}


def _timed(bench: Bench, entries: dict[str, Contestant]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, entry in entries.items():
        begin = time.monotonic()
        entry.run(0)
        bench.synchronize()
        first = time.monotonic() - begin
        taken = bench.seconds(entry.run, entry.repetitions)
        rows.append(
            {
                "what": name,
                "elements": entry.elements,
                "moved": entry.moved,
                "seconds": taken,
                "rate": entry.elements / taken,
                "first call": first,
            }
        )
    return rows


# A private step ----------------------------------------------------------------------------------------------


SIDE = 3_200
"""A dense layer of 3,200 x 3,200 has 10.2 million weights."""


def private_steps(bench: Bench) -> dict[str, Any]:
    """A step of a dense layer of ten million weights, by Opacus and by `make_private`."""
    import opacus
    from opacus.optimizers import DPOptimizer

    from mezzotint.training import make_private

    side = SIDE if bench.device.type == "cuda" else 64
    batch = 256 if bench.device.type == "cuda" else 16
    device = bench.device
    data = torch.randn(10 * batch, side), torch.randint(0, side, (10 * batch,))
    x, y = data[0][:batch].to(device), data[1][:batch].to(device)

    def steps_of(private: Callable[..., tuple[Any, ...]]) -> Callable[[int], object]:
        layer = torch.nn.Linear(side, side, bias=False).to(device)
        module, optimizer, *loader = private(layer, torch.optim.SGD(layer.parameters(), lr=0.1))

        def step(_: int) -> None:
            for entry in loader:  # a step without a batch of its own is refused
                next(iter(entry.batch_sampler))
                entry.batch_sampler.drawn.add(batch)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()

        return step

    def of_opacus(module: Any, inner: Any) -> tuple[Any, Any]:
        settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
        return opacus.GradSampleModule(module), DPOptimizer(inner, **settings)

    def ours(**settings: Any) -> Callable[..., tuple[Any, ...]]:
        rows = torch.utils.data.TensorDataset(*data)
        loader = torch.utils.data.DataLoader(rows, batch_size=batch)
        return lambda module, inner: make_private(
            module, inner, loader, noise_multiplier=1.0, delta=1e-5, **settings
        )[:3]

    contenders = {
        "SGD, not private": lambda module, inner: (module, inner),
        "Opacus DP-SGD": of_opacus,
        "DP-SGD": ours(),
        "projected, 4 bits": ours(bits=4),
        "RQP, q=.9, 4 bits": ours(method="rqp", q=0.9, bound=0.1),
    }
    taken: dict[str, Any] = {}
    for name, private in contenders.items():
        try:
            taken[name] = bench.seconds(steps_of(private), 20)
        except Exception as error:
            taken[name] = f"{type(error).__name__}: {error}"[:300]
    opacus_seconds = taken["Opacus DP-SGD"]
    ratios = {
        name: value / opacus_seconds
        for name, value in taken.items()
        if isinstance(value, float) and isinstance(opacus_seconds, float)
    }
    return {"weights": side * side, "batch": batch, "seconds": taken, "against Opacus": ratios}


def figures(bench: Bench) -> dict[str, Any]:
    """RQM's Figures 4 to 6 with the paper's network, clients, rounds and methods, as far as the seconds last."""
    from gpu_figures import run_all

    if bench.femnist is None:
        return {"skipped": "no file of FEMNIST was named"}
    return run_all(
        bench.femnist, bench.device, bench.deadline - 10, seeds=bench.seeds, rate=bench.rate
    )


SECTIONS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "facts": facts,
    "speed": speed,
    "equality": equality,
    "chi-square": chi_square,
    "private steps": private_steps,
    "figures": figures,
    "surroundings": surroundings,  # last: what fails there could harm what follows
}


def show(console: Console, found: dict[str, Any]) -> None:
    if "rows" not in found.get("speed", {}):
        return
    speeds = found["speed"]
    title = f"{found['facts']['device']}, {LEVELS} levels"
    table = Table(title=title)
    for column in (
        "",
        "elements",
        "elements/s",
        "share of copy bandwidth",
        "against normal_",
        "first call, s",
    ):
        table.add_column(column, justify="right" if column else "left")
    for row in speeds["rows"]:
        numbers = (row["share of copy bandwidth"], row["against normal_"], row["first call"])
        table.add_row(
            row["what"],
            f"{row['elements']:,}",
            f"{row['rate']:.3g}",
            *(f"{value:.3f}" for value in numbers),
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every section, not the speed alone")
    parser.add_argument("--only", default="", help="sections to run, separated by commas")
    parser.add_argument("--out", type=Path, default=None, help="JSON file of what was found")
    parser.add_argument("--seconds", type=float, default=460, help="after which nothing is begun")
    parser.add_argument("--femnist", type=Path, default=None, help="npz of FEMNIST by writer")
    parser.add_argument("--seeds", default="0,1,2", help="of the training figures, by commas")
    parser.add_argument("--rate", type=float, default=None, help="the figures' server rate")
    parser.add_argument("--cpu", action="store_true", help="try the script on a CPU")
    options = parser.parse_args()
    if not torch.cuda.is_available() and not options.cpu:
        print("no device here: torch finds no CUDA GPU, so nothing was measured")
        return
    device = torch.device("cpu" if options.cpu else "cuda:0")
    deadline = time.monotonic() + options.seconds
    bench = Bench(
        device=device, deadline=deadline, femnist=options.femnist, rate=options.rate,
        seeds=tuple(int(seed) for seed in options.seeds.split(",")),
    )  # fmt: skip
    chosen = list(SECTIONS) if options.all else ["facts", "speed"]
    if options.only:
        chosen = ["facts", *options.only.split(",")]
    found: dict[str, Any] = {}
    for name in chosen:
        begin = time.monotonic()
        if begin > deadline:
            print(f"== {name}: no time left")
            continue
        try:
            found[name] = SECTIONS[name](bench)
        except Exception:
            found[name] = {"error": traceback.format_exc()[-3000:]}
        found[name]["section seconds"] = round(time.monotonic() - begin, 1)
        printed = {key: value for key, value in found[name].items() if key not in ("rows", "runs")}
        print(f"== {name}: {json.dumps(printed, default=str)[:3000]}", flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
    show(Console(width=140), found)


if __name__ == "__main__":
    main()
