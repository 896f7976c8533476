"""How often intervals miss, by sums over all outcomes: no draws, from one report on, at six levels.

Run: python benchmarks/outcomes.py [--part bits,few,differences,frequencies] [--levels .8,.95]

bits: two levels, inputs drawn and fixed. few: tables of three and four levels. differences: of two groups
of bits. frequencies: all categories at once, the sum of the chances of missing each.

Printed is the worst chance of a miss over that which the level allows, per part and level: at most 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from scipy import stats

from mezzotint import Mechanism, collect, design, families
from mezzotint.collect.groups import Group, parts_of
from mezzotint.collect.intervals import (
    Sums,
    clopper_pearson,
    target_of_mean,
    targets_of_categories,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference.outcomes import ones_of_fixed, outcomes, probabilities, score_accepts

LEVELS = (0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One setting.

    Arguments:
        misses: chance that the interval misses the truth.
        width: its expected width.
    """

    table: str
    column: str
    n: int
    what: str
    confidence: float
    misses: float
    width: float = 0.0

    @property
    def missed(self) -> float:
        """Chance of a miss, over that which the level allows."""
        return self.misses / (1 - self.confidence)

    def __str__(self) -> str:
        return f"{self.table}, {self.column}, n={self.n}: {self.missed:.3f}, width {self.width:.4g}"


SHARES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 0.97, 0.99, 1.0)


def bit_cells(levels: Sequence[float]) -> Iterator[Cell]:
    """Two levels: every n from 1 on, drawn inputs and fixed ones."""
    for epsilon in (0.25, 1.0, 2.0, 4.0, 8.0, 12.0):
        table = families.randomized_response(lower=0, upper=1, epsilon=epsilon)
        target = target_of_mean(table)
        for n in (1, 2, 3, 5, 10, 30, 100, 1000):
            every = outcomes(n, 2)
            for confidence in levels:
                found = [
                    target.interval(Sums.of_counts(counts), confidence=confidence)
                    for counts in every
                ]
                low, high = np.array([(interval.low, interval.high) for interval in found]).T
                for share in SHARES:
                    place = {
                        "table": f"rr{epsilon:g}",
                        "n": n,
                        "what": "bits",
                        "confidence": confidence,
                    }
                    law = stats.binom.pmf(every[:, 1], n, float(table.pmf(share)[1]))
                    held = (low <= share + 1e-12) & (share - 1e-12 <= high)
                    width = float(2 * law @ (high - low)) / 2
                    missed = float(law[~held].sum())
                    yield Cell(**place, column=f"{share:g} ones", misses=missed, width=width)
                    ones = round(share * n)
                    law = ones_of_fixed(table, n, ones)[every[:, 1]]
                    held = (low <= ones / n + 1e-12) & (ones / n - 1e-12 <= high)
                    missed = float(law[~held].sum())
                    yield Cell(**place, column=f"fixed, {share:g} ones", misses=missed)


def krr(levels: int, epsilon: float) -> Mechanism:
    return families.k_randomized_response(lower=0, upper=1, levels=levels, epsilon=epsilon)


def best(levels: int | list[float], epsilon: float) -> Mechanism:
    return design.optimal(epsilon=epsilon, lower=0, upper=1, levels=levels).mechanism


TABLES: dict[str, Callable[[], Mechanism]] = {
    "k-RR 3, eps .25": lambda: krr(3, 0.25),
    "k-RR 3, eps 8": lambda: krr(3, 8.0),
    "k-RR 4, eps 5": lambda: krr(4, 5.0),
    "optimal 3, eps .1": lambda: best(3, 0.1),
    "optimal 4, eps 1": lambda: best(4, 1.0),
    "optimal 4, eps 4": lambda: best(4, 4.0),
    "no noise": lambda: families.stochastic_rounding(lower=0, upper=1, levels=4),
    "far 3": lambda: best([-0.055, 0.0, 0.25, 2.5], 3.0),
    "far 5": lambda: best([-0.01, 0.05, 4.5], 5.0),
    "two rows": lambda: Mechanism(
        knots=np.array([0.0, 1.0]),
        levels=np.array([0.0, 0.01, 1.0]),
        weights=np.array([[2**32 - 2**20, 2**19, 2**19], [2**19, 2**19, 2**32 - 2**20]]),
    ),
}

COLUMNS = {
    "all 0": ([0.0], [1.0]),
    "all .03": ([0.03], [1.0]),
    "all .5": ([0.5], [1.0]),
    "all 1": ([1.0], [1.0]),
    "90/10": ([0.0, 1.0], [0.9, 0.1]),
    "1 % ones": ([0.0, 1.0], [0.99, 0.01]),
    "2 % outliers": ([0.2, 1.0], [0.98, 0.02]),
    "ends": ([0.0, 1.0], [0.5, 0.5]),
}


def enumerated_cells(levels: Sequence[float]) -> Iterator[Cell]:
    """Tables of three and four levels, all outcomes of up to 200 and 40 reports."""
    for name, table in TABLES.items():
        mechanism = table()
        codes = mechanism.levels.size
        for n in (1, 2, 3, 5, 10, 18, 40, *((150,) if codes == 3 else ())):
            every = outcomes(n, codes)
            for label, column in COLUMNS.items():
                pmf = np.array(column[1]) @ mechanism.pmf(np.array(column[0]))
                truth, law = float(pmf @ mechanism.levels), probabilities(every, pmf)
                for confidence in levels:
                    held, wide = score_accepts(mechanism, every, truth, confidence)
                    yield Cell(
                        table=name, column=label, n=n, what="few", confidence=confidence,
                        misses=float(law[~held].sum()), width=float(2 * law @ wide),
                    )  # fmt: skip


def difference_cells(levels: Sequence[float]) -> Iterator[Cell]:
    """Differences of two groups of bits."""
    for epsilon in (0.25, 1.0, 4.0, 8.0):
        table = families.randomized_response(lower=0, upper=1, epsilon=epsilon)
        for sizes in ((10, 10), (3, 30), (40, 40), (30, 300)):
            for confidence in levels:
                parts = [[of_bits(table, n, k, confidence) for k in range(n + 1)] for n in sizes]
                gaps = [[collect.difference(one, other) for other in parts[1]] for one in parts[0]]
                low, high = (
                    np.array([[getattr(gap, end) for gap in row] for row in gaps])
                    for end in ("low", "high")
                )
                for pair in (
                    (0.0, 0.0),
                    (0.97, 0.01),
                    (0.5, 0.5),
                    (0.1, 0.03),
                    (1.0, 0.3),
                    (0.003, 0.99),
                ):
                    laws = [
                        stats.binom.pmf(range(n + 1), n, float(table.pmf(share)[1]))
                        for n, share in zip(sizes, pair, strict=True)
                    ]
                    law, truth = np.outer(*laws), pair[0] - pair[1]
                    held = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
                    yield Cell(
                        table=f"rr{epsilon:g}", column=f"{pair[0]:g} less {pair[1]:g}, {sizes[0]}+{sizes[1]}",
                        n=sum(sizes), what="differences", confidence=confidence,
                        misses=float(law[~held].sum()), width=float((law * (high - low)).sum()),
                    )  # fmt: skip


def of_bits(table: Mechanism, n: int, ones: int, confidence: float) -> collect.Part:
    counts = np.array([n - ones, ones])
    reports = collect.CodeCounts(mechanism=table, counts=counts)
    group = Group(counts=reports, weights=counts, squares=counts)
    return parts_of(group, confidence=confidence)["mean"]


def frequency_cells(levels: Sequence[float]) -> Iterator[Cell]:
    """All frequencies at once: the sum of the exact chances of missing each."""
    for k, method in (
        (10, "krr"),
        (30, "krr"),
        (50, "krr"),
        (100, "krr"),
        (10, "subset"),
        (31, "projective"),
    ):
        for epsilon in (1.0, 2.0, 6.0, 8.0, 12.0):
            table = families.categorical(categories=range(k), epsilon=epsilon, method=method)
            events = [target.event for target in targets_of_categories(table)]
            if None in events:
                continue
            rare = np.r_[0.9, np.full(k - 1, 0.1 / (k - 1))]
            columns = {"one": np.eye(k)[0], "even": np.full(k, 1 / k), "rare": rare}
            for n in (1, 5, 20, 100, 1000):
                for confidence in levels:
                    supports = np.arange(n + 1)
                    low, high = clopper_pearson(supports, n, (1 - confidence) / k / 2)
                    for label, shares in columns.items():
                        pmf, missed = shares @ table.probabilities, 0.0
                        for share, event in zip(shares, events, strict=True):
                            assert event is not None
                            least = event.lower[0] + event.lower[1] * low
                            most = event.upper[0] + event.upper[1] * high
                            out = (least > share + 1e-12) | (most < share - 1e-12)
                            law = stats.binom.pmf(supports[out], n, pmf[event.codes].sum())
                            missed += float(law.sum())
                        yield Cell(
                            table=f"{method} {k}, {epsilon:g}", column=label, n=n, what="frequencies",
                            confidence=confidence, misses=missed,
                        )  # fmt: skip


PARTS = {
    "bits": bit_cells,
    "few": enumerated_cells,
    "differences": difference_cells,
    "frequencies": frequency_cells,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default=",".join(PARTS))
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    asked = parser.parse_args()
    started, console = time.process_time(), Console(highlight=False, soft_wrap=True)
    levels, over = [float(confidence) for confidence in asked.levels.split(",")], 0
    for part in asked.part.split(","):
        found = list(PARTS[part](levels))
        for confidence in levels:
            group = [cell for cell in found if cell.confidence == confidence]
            worst = max(group, key=lambda cell: cell.missed)
            over += sum(cell.missed > 1 + 1e-9 for cell in group)
            console.print(f"{part} at {confidence:g}: {len(group)} cells; worst: {worst}")
    console.print(f"{over} cells miss too often. {time.process_time() - started:.0f} s of CPU time")


if __name__ == "__main__":
    main()
