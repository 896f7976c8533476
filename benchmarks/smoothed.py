"""Smoothed DP: seconds of the exact sums against Algorithm 1 of the paper, written as it stands, in one run.

Run: python benchmarks/smoothed.py [--repetitions R]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import gammaln
from scipy.stats import binom

from mezzotint.smoothed import average_profile, expected, profile, quantized_gaussian

ODDS = Fraction(51, 49)
TWO = (81_283_501, 74_223_975)
THREE = (81_283_501, 74_223_975, 1_870_000)
DC, NE3 = Fraction(554, 10_000), Fraction(22_863, 100_000)
SMALL = 1600


def best_of(call: Callable[[], object], repetitions: int) -> float:
    """Seconds of the fastest of several calls, after one that warms up."""
    call()
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def algorithm_1(n: int, sampled: int, ratio: float, p: float, q: float) -> float:
    """Algorithm 1 for two types: delta of every histogram from all outcomes, then every composition by convolution."""
    choose = gammaln(np.arange(n + 2) + 1.0)

    def law(count: int) -> np.ndarray:
        h = np.arange(sampled + 1)
        possible = (h <= count) & (sampled - h <= n - count)
        x = h[possible]
        logs = choose[count] - choose[x] - choose[count - x]
        logs = logs + choose[n - count] - choose[sampled - x] - choose[n - count - sampled + x]
        result = np.zeros(sampled + 1)
        result[possible] = np.exp(logs - (choose[n] - choose[sampled] - choose[n - sampled]))
        return result

    laws = [law(count) for count in range(n + 1)]
    deltas = np.zeros(n + 1)
    for count in range(n + 1):
        for other in (count - 1, count + 1):
            if 0 <= other <= n:
                one = np.maximum(0.0, laws[count] - ratio * laws[other]).sum()
                two = np.maximum(0.0, laws[other] - ratio * laws[count]).sum()
                deltas[count] = max(deltas[count], one, two)
    best = 0.0
    for k in range(n + 1):
        first = binom.pmf(np.arange(k + 1), k, p)
        second = binom.pmf(np.arange(n - k + 1), n - k, q)
        best = max(best, float(np.convolve(first, second) @ deltas))
    return best


def rows(repetitions: int) -> list[tuple[str, float, str]]:
    """Name, seconds and the target of each measurement."""
    vertices = (1 - DC, NE3)
    entries = [
        ("delta, m = 2, n = 1.555e8", lambda: profile(TWO, loss_rate=0.002, ratio=ODDS), "< 1 ms"),
        (
            "delta, m = 3, n = 1.57e8",
            lambda: profile(THREE, loss_rate=0.002, ratio=ODDS),
            "< 0.5 s",
        ),
        ("delta, m = 2, n = 1.555e8, with replacement", _replacement, ""),
        (
            "delta, m = 2, n = 1.555e8, Poisson",
            lambda: profile(TWO, loss_rate=0.002, ratio=ODDS, poisson=True),
            "",
        ),
        (
            "smoothed, districts, n = 1e6",
            lambda: expected(n=10**6, vertices=vertices, loss_rate=0.002, epsilon=1),
            "< 0.5 s",
        ),
        (
            "smoothed, districts, n = 1e8",
            lambda: expected(n=10**8, vertices=vertices, loss_rate=0.002, epsilon=1),
            "< 10 s",
        ),
    ]
    three = (("0.5", "0.3", "0.2"), ("0.2", "0.5", "0.3"), ("0.3", "0.2", "0.5"))
    how = {"n": 100, "vertices": three, "sampled": 95, "epsilon": 1.0, "mechanism": "winner"}
    entries.append(("smoothed, plurality of 3, n = 100", lambda: expected(**how), ""))
    codes = np.random.default_rng(0).choice(256, size=1000, p=quantized_gaussian(0.0, 0.12))
    entries.append(
        ("delta, 1000 8-bit gradients", lambda: average_profile(codes, sampled=32, epsilon=1.0), "")
    )
    return [(name, best_of(call, repetitions), target) for name, call, target in entries]


def _replacement() -> object:
    return profile(TWO, loss_rate=0.002, epsilon=1e-4, replacement=True)


def against_algorithm_1(repetitions: int) -> tuple[float, float]:
    """Seconds of both at 1600 records, after checking that they agree."""
    sampled = math.ceil(Fraction(998, 1000) * SMALL)
    how = {"n": SMALL, "vertices": (DC, 1 - NE3), "sampled": sampled, "ratio": Fraction(3, 2)}
    started = time.perf_counter()
    naive = algorithm_1(SMALL, sampled, 1.5, float(DC), float(1 - NE3))
    seconds = time.perf_counter() - started
    ours = expected(**how)
    if abs(10**ours.log10_delta / naive - 1.0) > 1e-6:
        raise SystemExit(f"disagreement: {10**ours.log10_delta} against {naive}")
    return seconds, best_of(lambda: expected(**how), repetitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    table = Table(title="Smoothed DP, warm, best of several", title_justify="left")
    for column in ("what", "seconds", "target"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, seconds, target in rows(repetitions):
        table.add_row(name, f"{seconds:.3g}", target)
    naive, ours = against_algorithm_1(repetitions)
    table.add_row(f"Algorithm 1 as printed, n = {SMALL}", f"{naive:.3g}", "")
    table.add_row(f"the same, n = {SMALL}", f"{ours:.3g}", "")
    table.add_row("ratio", f"{naive / ours:,.0f} x", ">= 500 x")
    Console().print(table)


if __name__ == "__main__":
    main()
