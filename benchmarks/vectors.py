"""One unit vector under pure local DP: error, bits and time of ranked codebooks and of what is published.

Run: python benchmarks/vectors.py [--dimensions D ...] [--epsilons E ...] [--runs N] [--json] [--targets]

Rivals are short implementations of our own, each checked against its closed form in the same run (columns "error" and
"measured"): PrivUnitG (Asi, Feldman and Talwar 2022); FastProjUnit, the same in 1,024 coordinates of a randomized
Hadamard transform (Asi et al. 2023; ProjUnit has the same error); SQKR (Chen, Kairouz and Ozgur 2020); the one-bit
mechanism of Duchi, Jordan and Wainwright, which is PrivHS, and its repetition (RePrivHS); MMRC (Shah et al. 2022),
whose candidates are weighted by a cap and whose probabilities are clipped to a ratio of e**epsilon. Their epsilons hold
in exact arithmetic; ranked codebooks' are exact integers. Times are of one vector, milliseconds of processor time;
decoding is that of a single report, its transform included. --targets prints what ranked codebooks are held to.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import special, stats

from mezzotint.vectors import RankedCodebook, ranked_codebook
from mezzotint.vectors.codewords import gaussian_constant, gaussian_error, mean_norm
from mezzotint.vectors.rotation import hadamard

FLOAT_BITS = 32
PROJECTED = 1024


def density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def unit(dimension: int, rng: np.random.Generator) -> np.ndarray:
    vector = rng.normal(size=dimension)
    return vector / np.linalg.norm(vector)


class Rival(ABC):
    """A mechanism: `error` is its closed form, `encode` and `decode` do it."""

    name: str
    bits: float
    error: float

    @abstractmethod
    def encode(self, x: np.ndarray, seed: int, rng: np.random.Generator) -> Any: ...

    @abstractmethod
    def decode(self, message: Any, seed: int) -> np.ndarray: ...


class PrivUnitG(Rival):
    """The vector plus Gaussian noise, with the inner product drawn beyond a threshold with probability p."""

    name = "PrivUnitG"

    def __init__(self, dimension: int, epsilon: float) -> None:
        _, share = gaussian_constant(epsilon)
        self.threshold = float(special.ndtri(1 - share))
        self.share, self.dimension = share, dimension
        self.chance = share / (share + (1 - share) * math.exp(-epsilon))
        self.scale = density(self.threshold) * (
            self.chance / share - (1 - self.chance) / (1 - share)
        )
        self.square = 1 + self.threshold * self.scale
        self.bits = FLOAT_BITS * dimension
        self.error = (dimension - 1 + self.square) / self.scale**2 - 1

    def encode(self, x: np.ndarray, seed: int, rng: np.random.Generator) -> np.ndarray:
        below = 1 - self.share
        inside = rng.random() < self.chance
        along = float(special.ndtri(rng.uniform(below, 1) if inside else rng.uniform(0, below)))
        noise = rng.normal(size=x.size)
        return noise + (along - noise @ x) * x

    def decode(self, message: np.ndarray, seed: int) -> np.ndarray:
        return message / self.scale


class FastProjUnit(Rival):
    """PrivUnitG in `PROJECTED` coordinates of a randomized Hadamard transform."""

    name = "FastProjUnit"

    def __init__(self, dimension: int, epsilon: float) -> None:
        self.dimension = dimension
        self.padded = 1 << (dimension - 1).bit_length()
        self.inner = PrivUnitG(PROJECTED, epsilon)
        self.factor = mean_norm(self.padded) / mean_norm(PROJECTED)
        self.bits = FLOAT_BITS * PROJECTED
        whole = self.factor**2 * (self.inner.error + 1)
        along = self.factor**2 * self.inner.square / self.inner.scale**2 * PROJECTED / self.padded
        self.error = along + (whole - along) * (dimension - 1) / (self.padded - 1) - 1

    def _public(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        return rng.integers(0, 2, self.padded) * 2.0 - 1, rng.choice(
            self.padded, PROJECTED, replace=False
        )

    def encode(self, x: np.ndarray, seed: int, rng: np.random.Generator) -> np.ndarray:
        signs, places = self._public(seed)
        inside = hadamard(np.pad(x, (0, self.padded - x.size)) * signs)[places]
        return self.inner.encode(inside / np.linalg.norm(inside), seed, rng)

    def decode(self, message: np.ndarray, seed: int) -> np.ndarray:
        signs, places = self._public(seed)
        spread = np.zeros(self.padded)
        spread[places] = self.inner.decode(message, seed) * self.factor
        return (hadamard(spread) * signs)[: self.dimension]


class Djw(Rival):
    """The sign of an inner product with a random direction, by randomized response; `times` of them at epsilon / times.

    One bit is PrivHS; several are RePrivHS.
    """

    def __init__(self, dimension: int, epsilon: float, times: int) -> None:
        self.name = "DJW = PrivHS" if times == 1 else f"RePrivHS, {times} times"
        self.dimension, self.times, self.bits = dimension, times, times
        self.keep = 1 / (1 + math.exp(-epsilon / times))
        self.scale = math.sqrt(math.pi / 2) * mean_norm(dimension) / math.tanh(epsilon / times / 2)
        self.error = (self.scale**2 - 1) / times

    def _directions(self, seed: int) -> np.ndarray:
        rows = np.random.default_rng(seed).normal(size=(self.times, self.dimension))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def encode(self, x: np.ndarray, seed: int, rng: np.random.Generator) -> np.ndarray:
        true = self._directions(seed) @ x >= 0
        return np.where(rng.random(self.times) < self.keep, true, ~true) * 2.0 - 1

    def decode(self, message: np.ndarray, seed: int) -> np.ndarray:
        return message @ self._directions(seed) * (self.scale / self.times)


class Sqkr(Rival):
    """One bit each of b random coordinates of a Kashin representation, by 2**b-ary randomized response."""

    def __init__(self, dimension: int, epsilon: float, count: int) -> None:
        self.name = "SQKR, 1 coordinate" if count == 1 else f"SQKR, {count} coordinates"
        self.dimension, self.count, self.bits = dimension, count, count
        self.frame = 2 << (dimension - 1).bit_length()
        self.level = math.sqrt(3.472 / self.frame)
        outputs = 2.0**count
        self.keep = math.exp(epsilon) / (math.exp(epsilon) + outputs - 1)
        self.factor = (math.exp(epsilon) + outputs - 1) / math.expm1(epsilon)
        self.error = dimension * 3.472 * self.factor**2 / count - 1

    def _signs(self) -> np.ndarray:
        return np.random.default_rng(7).integers(0, 2, self.frame) * 2.0 - 1

    def _kashin(self, x: np.ndarray) -> np.ndarray:
        """Coefficients of size at most `level` whose synthesis is x: clip and represent the rest, again and again."""
        signs = self._signs()
        found, rest = np.zeros(self.frame), x
        for _ in range(60):
            coefficients = hadamard(np.pad(rest, (0, self.frame - x.size)) * signs)
            found = np.clip(found + coefficients, -self.level, self.level)
            rest = x - (hadamard(found) * signs)[: x.size]
        return found

    def encode(self, x: np.ndarray, seed: int, rng: np.random.Generator) -> np.ndarray:
        places = np.random.default_rng(seed).integers(0, self.frame, self.count)
        chances = (1 + self._kashin(x)[places] / self.level) / 2
        true = (rng.random(self.count) < chances) * 2.0 - 1
        if rng.random() < self.keep:
            return true
        while True:  # one of the other strings, evenly
            other = rng.integers(0, 2, self.count) * 2.0 - 1
            if (other != true).any():
                return other

    def decode(self, message: np.ndarray, seed: int) -> np.ndarray:
        places = np.random.default_rng(seed).integers(0, self.frame, self.count)
        spread = np.zeros(self.frame)
        np.add.at(spread, places, message * (self.frame * self.level * self.factor / self.count))
        return (hadamard(spread) * self._signs())[: self.dimension]


class Mmrc(Rival):
    """One of M Gaussian candidates; those in a cap weigh e**epsilon times the others, clipped to that ratio overall."""

    def __init__(self, dimension: int, epsilon: float, bits: int) -> None:
        self.name, self.bits, self.dimension, self.epsilon = (
            f"MMRC, {bits} bits",
            bits,
            dimension,
            epsilon,
        )
        self.candidates = 2**bits
        counts = np.arange(self.candidates + 1)
        best: tuple[float, float, float] | None = None
        for share in np.exp(
            np.linspace(math.log(max(0.3 / self.candidates, 1e-4)), math.log(0.5), 60)
        ):
            law = stats.binom.pmf(counts, self.candidates, share)
            inside = float(law @ (counts * self._chances(counts, share)[0]))
            threshold = float(special.ndtri(1 - share))
            lift = density(threshold) * (inside / share - (1 - inside) / (1 - share))
            error = (dimension - 1 + 1 + threshold * lift) / lift**2 - 1 if lift > 0 else math.inf
            if best is None or error < best[0]:
                best = error, float(share), lift
        assert best is not None
        self.error, self.share, self.scale = best

    def _chances(self, counts: Any, share: float) -> tuple[Any, Any]:
        """Probability of each candidate inside and outside the cap, when so many are inside."""
        total, ratio = self.candidates, math.exp(self.epsilon)
        unit_weight = 1 / (total * (share * ratio + 1 - share))
        most, least = ratio * unit_weight, unit_weight
        with np.errstate(divide="ignore", invalid="ignore"):
            few = counts <= share * total
            inside = np.where(few, most, (1 - (total - counts) * least) / counts)
            outside = np.where(few, (1 - counts * most) / (total - counts), least)
        return inside, outside

    def _candidates(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).normal(size=(self.candidates, self.dimension))

    def encode(self, x: np.ndarray, seed: int, rng: np.random.Generator) -> int:
        inside = self._candidates(seed) @ x >= special.ndtri(1 - self.share)
        high, low = self._chances(np.array(inside.sum()), self.share)
        chances = np.where(inside, high, low)
        return int(np.searchsorted(np.cumsum(chances), rng.random() * chances.sum()))

    def decode(self, message: int, seed: int) -> np.ndarray:
        return self._candidates(seed)[message] / self.scale


class Ranked(Rival):
    """Ours."""

    def __init__(self, scheme: RankedCodebook) -> None:
        self.name = f"ranked, {scheme.kind}, M = {scheme.table.codewords}"
        self.scheme, self.bits, self.error = scheme, scheme.bits, scheme.mse

    def encode(self, x: np.ndarray, seed: int, rng: np.random.Generator) -> int:
        return self.scheme.encode(x, seed)

    def decode(self, message: int, seed: int) -> np.ndarray:
        return self.scheme.decode(message, seed)


def rivals(dimension: int, epsilon: float) -> Iterator[Rival]:
    """All of them, the yardstick first."""
    yield PrivUnitG(dimension, epsilon)
    if dimension > 2 * PROJECTED:
        yield FastProjUnit(dimension, epsilon)
    for bits in sorted({1, 4, ranked_codebook(dimension, epsilon).bits, 8, 12}):
        yield Ranked(ranked_codebook(dimension, epsilon, bits, norms="unit"))
    yield Djw(dimension, epsilon, 1)
    if epsilon >= 2:
        yield min(
            (Djw(dimension, epsilon, times) for times in range(2, 9)), key=lambda one: one.error
        )
    yield min(
        (Sqkr(dimension, epsilon, count) for count in range(1, 17)), key=lambda one: one.error
    )
    yield Mmrc(dimension, epsilon, 8)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table."""

    dimension: int
    epsilon: float
    name: str
    bits: float
    error: float
    ratio: float
    measured: float | None
    encode_ms: float
    decode_ms: float


def measure(rival: Rival, dimension: int, epsilon: float, yardstick: float, runs: int) -> Line:
    """Errors are measured where that is quick; the matrices of MMRC are too large for long vectors."""
    rng = np.random.default_rng(3)
    x = unit(dimension, rng)
    large = isinstance(rival, Mmrc) and dimension > 10_000
    seeds = range(0 if large else runs)
    for seed in seeds[:1]:
        rival.decode(rival.encode(x, seed, rng), seed)  # compiles, and draws what is drawn once
    started = time.process_time()
    messages = [rival.encode(x, seed, rng) for seed in seeds]
    encoded = time.process_time()
    decoded = [rival.decode(message, seed) for message, seed in zip(messages, seeds, strict=True)]
    ended = time.process_time()
    errors = [float(((one - x) ** 2).sum()) for one in decoded]
    return Line(
        dimension=dimension, epsilon=epsilon, name=rival.name, bits=rival.bits, error=rival.error,
        ratio=rival.error / yardstick, measured=float(np.mean(errors)) if errors else None,
        encode_ms=math.nan if large else 1e3 * (encoded - started) / runs,
        decode_ms=math.nan if large else 1e3 * (ended - encoded) / runs,
    )  # fmt: skip


def show(lines: list[Line]) -> None:
    """Prints the table."""
    table = Table(
        title="mean squared error of one unit vector, all coordinates; ratio to PrivUnitG's"
    )
    for heading in (
        "d",
        "epsilon",
        "scheme",
        "bits",
        "error",
        "ratio",
        "measured/error",
        "encode ms",
        "decode ms",
    ):
        table.add_column(heading, justify="left" if heading == "scheme" else "right")
    last = None
    for line in lines:
        if last not in (None, (line.dimension, line.epsilon)):
            table.add_section()
        last = (line.dimension, line.epsilon)
        share = "-" if line.measured is None else f"{line.measured / line.error:.3f}"
        times = (
            "-" if math.isnan(one) else f"{one:.3f}" for one in (line.encode_ms, line.decode_ms)
        )
        table.add_row(
            f"{line.dimension:,}", f"{line.epsilon:g}", line.name, f"{line.bits:,}", f"{line.error:.5g}",
            f"{line.ratio:.4f}", share, *times,
        )  # fmt: skip
    Console(width=130).print(table)


def targets() -> list[tuple[str, float, float]]:
    """What is held, the limit, and what is found, at 100,000 coordinates unless it says otherwise."""
    found: list[tuple[str, float, float]] = []
    for epsilon, bits, limit, more in (
        (1.0, 4, 1.05, {}), (2.0, 5, 1.05, {}), (4.0, 6, 1.05, {"codebook": "G", "subspace": 4096, "norms": "unit"}),
        (8.0, 10, 1.05, {}), (0.5, 8, 1.01, {}), (1.0, 8, 1.01, {}), (2.0, 8, 1.01, {}),
        (4.0, 8, 1.02, {"norms": "unit"}),
    ):  # fmt: skip
        scheme = ranked_codebook(10**5, epsilon, bits, **more)
        words = ", ".join(f"{name} {value}" for name, value in more.items())
        name = f"error / PrivUnitG's, epsilon {epsilon:g}, {bits} bits" + (
            f" ({words})" if words else ""
        )
        found.append((name, limit, scheme.mse / scheme.optimum))
        found.append(
            (
                f"epsilon given away, epsilon {epsilon:g}, {bits} bits",
                4e-6,
                epsilon - scheme.epsilon,
            )
        )
    rng = np.random.default_rng(1)
    for dimension, encoding in ((10**5, 5.0), (10**6, 100.0)):
        scheme = ranked_codebook(dimension, 4.0, 8)
        vectors = rng.normal(size=(10, dimension))
        scheme.encode(vectors, range(10))
        started = time.process_time()
        scheme.encode(vectors, range(10))
        found.append(
            (f"encode, d = {dimension:,}, ms", encoding, 100 * (time.process_time() - started))
        )
        tracemalloc.start()
        scheme.encode(vectors[0], 0)
        found.append(
            (
                f"encode, d = {dimension:,}, peak MiB",
                40 * dimension / 2**20,
                tracemalloc.get_traced_memory()[1] / 2**20,
            )
        )
        tracemalloc.stop()
        reports = rng.integers(0, scheme.table.outputs, size=2000)
        seconds = []
        for count in (1, 2000):
            started = time.process_time()
            scheme.mean(reports[:count], range(count))
            seconds.append(time.process_time() - started)
        found.append(
            (f"decode, d = {dimension:,}, ms a report", 0.1, 1e3 * (seconds[1] - seconds[0]) / 1999)
        )
    started = time.process_time()
    ranked_codebook(10**5, 3.3)
    found.append(("design, ms", 50.0, 1e3 * (time.process_time() - started)))
    return found


def show_targets(found: list[tuple[str, float, float]]) -> None:
    """Prints the table."""
    table = Table("what", "at most", "found", "held", title="what ranked codebooks are held to")
    for name, limit, value in found:
        table.add_row(name, f"{limit:.4g}", f"{value:.4g}", "yes" if value <= limit else "NO")
    Console(width=130).print(table)


def main() -> None:
    """Parses, measures, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dimensions", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--targets", action="store_true")
    options = parser.parse_args()
    if options.targets:
        show_targets(targets())
        return
    lines: list[Line] = []
    for dimension in options.dimensions:
        for epsilon in options.epsilons:
            yardstick = gaussian_error(dimension, epsilon)
            lines += [
                measure(one, dimension, epsilon, yardstick, options.runs)
                for one in rivals(dimension, epsilon)
            ]
    if options.json:
        print(json.dumps([asdict(line) for line in lines]))
    else:
        show(lines)


if __name__ == "__main__":
    main()
