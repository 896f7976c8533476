"""Elements per second of the sampler against its rivals, interleaved in one run; best of several repetitions.

Run: python benchmarks/sampler.py [--elements N] [--repetitions R]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from rich.console import Console
from rich.table import Table

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import round_rows
from mezzotint.core.sampler import BLOCK, Keystream, fast_start, fresh_key, privatize

LEVELS = 16


def mechanism(knots: np.ndarray, name: str) -> Mechanism:
    """A dense table of 16 levels on these knots: an exponential mechanism towards each knot."""
    levels = np.linspace(-2, 2, LEVELS)
    scores = np.exp(-np.abs(knots[:, None] - levels))
    weights = round_rows(scores / scores.sum(axis=1, keepdims=True), levels=levels)
    return Mechanism(knots=knots, levels=levels, weights=weights, name=name)


def inverse_cdf(table: Mechanism, x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """What one writes in numpy: pick a row, then count the cumulative probabilities below a uniform number."""
    segment, t = table.locate(x)
    rows = segment + (generator.random(x.size, dtype=np.float32) < t)
    cumulative = np.cumsum(table.probabilities, axis=1)
    flat = (cumulative + np.arange(cumulative.shape[0])[:, None]).ravel()
    return (np.searchsorted(flat, rows + generator.random(x.size)) - rows * LEVELS).astype(np.uint8)


def keystream(words: np.ndarray) -> None:
    stream = Keystream(fresh_key(), fast_start(0))
    for _ in range(0, words.size, BLOCK):
        stream.fill(words[:BLOCK])


def contestants(elements: int) -> dict[str, Callable[[], object]]:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1.1, 1.1, elements).astype(np.float32)
    wide = x.astype(np.float64)
    out = np.empty_like(x)
    words = np.empty(elements, dtype=np.uint64)
    even = mechanism(np.linspace(-1, 1, LEVELS), "even knots")
    uneven = mechanism(
        np.concatenate([[-1], np.sort(generator.uniform(-1, 1, LEVELS - 2)), [1]]), "uneven knots"
    )
    part = x[: max(1, elements // 16)]
    entries: dict[str, Callable[[], object]] = {
        "mezzotint, even knots, 1 thread": lambda: privatize(even, x, threads=1),
        "mezzotint, even knots, 2 threads": lambda: privatize(even, x, threads=2),
        "mezzotint, uneven knots, 1 thread": lambda: privatize(uneven, x, threads=1),
        "mezzotint, uneven knots, 2 threads": lambda: privatize(uneven, x, threads=2),
        "mezzotint, even knots, float64, 1 thread": lambda: privatize(even, wide, threads=1),
        "AES-256-CTR keystream alone, 1 thread": lambda: keystream(words),
        "numpy.copyto float32": lambda: np.copyto(out, x),
        "numpy standard_normal float32": lambda: generator.standard_normal(
            out=out, dtype=np.float32
        ),
        "numpy inverse CDF (1/16 of the elements)": lambda: [inverse_cdf(uneven, part, generator)],
    }
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
        tensor = torch.empty(elements)
        entries["torch.Tensor.normal_ float32, 1 thread"] = lambda: tensor.normal_()
    return entries


def measure(entries: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Best seconds of each; the contestants take turns, so that a busy machine hurts all alike."""
    best = dict.fromkeys(entries, float("inf"))
    for _ in range(repetitions):
        for name, run in entries.items():
            begin = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    best = measure(contestants(options.elements), options.repetitions)
    sizes = {name: options.elements // 16 if "1/16" in name else options.elements for name in best}
    rate = {name: sizes[name] / seconds for name, seconds in best.items()}
    rival = next(
        (name for name in rate if name.startswith("torch")), "numpy standard_normal float32"
    )
    table = Table(
        title=f"{options.elements} elements, {LEVELS} levels, best of {options.repetitions}"
    )
    for column in ("", "elements/s", "ns/element", f"against {rival}"):
        table.add_column(column, justify="right" if column else "left")
    for name, value in rate.items():
        table.add_row(name, f"{value:.3g}", f"{1e9 / value:.2f}", f"{value / rate[rival]:.2f}x")
    Console(width=120).print(table)
    for knots in ("even", "uneven"):
        ratio = (
            rate[f"mezzotint, {knots} knots, 2 threads"]
            / rate[f"mezzotint, {knots} knots, 1 thread"]
        )
        print(f"two threads against one, {knots} knots: {ratio:.2f}x")


if __name__ == "__main__":
    main()
