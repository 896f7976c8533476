"""How often intervals of estimates hold the truth, and how wide they are: tables x columns x numbers of reports.

Run: python benchmarks/coverage.py [--draws D] [--shape-draws S] [--tables rr4,krr16] [--n 10,1000] [--json FILE]

A cell is one table, column and n; each interval's coverage in it is a share of draws at the nominal level 0.95. With D
draws a cell whose true coverage is exactly 0.945 falls below the alarm line with probability 1e-4 (stated at the end).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from scipy import stats

from mezzotint import collect, design, families
from mezzotint.collect.mean import mean_interval
from mezzotint.core.mechanism import Mechanism

LEVEL = 0.95
CLAIMED = 0.945
FALSE_ALARM = 1e-4
EDGES = (0.0, 0.1, 0.3, 1.0)


def free_levels(epsilon: float, levels: list[float]) -> Mechanism:
    """An optimal table on [-1, 1] with these levels, moved to [0, 1]."""
    found = design.optimal(epsilon=epsilon, lower=0, upper=1, levels=[(level + 1) / 2 for level in levels])
    return found.mechanism


def stepped(cells: int, epsilon: float) -> Mechanism:
    """k-ary response of the cell that an input lies in: a table whose rows jump at the cells' edges."""
    response = families.k_randomized_response(lower=0, upper=1, levels=cells, epsilon=epsilon).weights
    edges = np.linspace(0, 1, cells + 1)
    return Mechanism(
        knots=np.repeat(edges, 2)[1:-1],
        levels=(edges[1:] + edges[:-1]) / 2,
        weights=np.repeat(response, 2, axis=0),
        name=f"stepped {cells}, {epsilon:g}",
    )


TABLES: dict[str, Callable[[], Mechanism]] = {
    "rr.25": lambda: families.randomized_response(lower=0, upper=1, epsilon=0.25),
    "rr1": lambda: families.randomized_response(lower=0, upper=1, epsilon=1.0),
    "rr4": lambda: families.randomized_response(lower=0, upper=1, epsilon=4.0),
    "opt4e1": lambda: design.optimal(epsilon=1.0, lower=0, upper=1, levels=4).mechanism,
    "opt4e4": lambda: design.optimal(epsilon=4.0, lower=0, upper=1, levels=4).mechanism,
    "opt8e4": lambda: design.optimal(epsilon=4.0, lower=0, upper=1, levels=8).mechanism,
    "krr8e1": lambda: families.k_randomized_response(lower=0, upper=1, levels=8, epsilon=1.0),
    "krr16e4": lambda: families.k_randomized_response(lower=0, upper=1, levels=16, epsilon=4.0),
    "krr16e1": lambda: families.k_randomized_response(lower=0, upper=1, levels=16, epsilon=1.0),
    "rqm16": lambda: families.rqm(lower=0, upper=1, levels=16, extension=0.5, q=0.42),
    "pbm15": lambda: families.pbm(lower=0, upper=1, trials=15, theta=0.3),
    "round4": lambda: families.stochastic_rounding(lower=0, upper=1, levels=4),
    "stepped10e4": lambda: stepped(10, 4.0),
    "krr4e5": lambda: families.k_randomized_response(lower=0, upper=1, levels=4, epsilon=5.0),
    "far3": lambda: free_levels(3.0, [-1.11, -1.0, -0.5, 4.0]),
    "far3b": lambda: free_levels(3.0, [-1.11, -1.09, 0.0, 6.0]),
    "far5": lambda: free_levels(5.0, [-1.02, -0.9, 8.0]),
}
"""The last four have rare far levels, on which a plain score interval covers 87 to 93 %."""

Column = tuple[np.ndarray, np.ndarray]
"""Inputs and their shares."""


def smooth(a: float, b: float) -> Column:
    points = (np.arange(4000) + 0.5) / 4000
    return stats.beta(a, b).ppf(points), np.full(4000, 1 / 4000)


COLUMNS: dict[str, Column] = {
    "all 0": (np.array([0.0]), np.array([1.0])),
    "all .03": (np.array([0.03]), np.array([1.0])),
    "all .5": (np.array([0.5]), np.array([1.0])),
    "all 1": (np.array([1.0]), np.array([1.0])),
    "90/10": (np.array([0.03, 0.97]), np.array([0.9, 0.1])),
    "2 % outliers": (np.array([0.2, 1.0]), np.array([0.98, 0.02])),
    "ends": (np.array([0.0, 1.0]), np.array([0.5, 0.5])),
    "zero-inflated": (np.append(0.0, smooth(2, 5)[0]), np.append(0.7, 0.3 * smooth(2, 5)[1])),
    "skewed": smooth(0.6, 6),
    "smooth": smooth(2, 5),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one cell showed.

    Arguments:
        draws: data sets drawn.
        hits: draws whose interval held the truth.
        width: mean width of the interval.
        open_width: mean width of what infinitely many reports would leave open.
    """

    table: str
    column: str
    n: int
    what: str
    draws: int
    hits: int
    width: float
    open_width: float

    @property
    def coverage(self) -> float:
        return self.hits / self.draws

    @property
    def alarm(self) -> float:
        """Coverage below which a true coverage of CLAIMED would fall with probability FALSE_ALARM."""
        return float(stats.binom(self.draws, CLAIMED).ppf(FALSE_ALARM)) / self.draws


def drawn(mechanism: Mechanism, column: Column, n: int, rng: np.random.Generator) -> collect.CodeCounts:
    """Counts of n reports about independent draws of the column."""
    values, shares = column
    return collect.CodeCounts(mechanism=mechanism, counts=rng.multinomial(n, shares @ mechanism.pmf(values)))


def truths(column: Column) -> dict[str, tuple[float, float]]:
    """Each quantity's least and greatest true value (a quantile of atoms may be an interval)."""
    values, shares = column
    mean = float(values @ shares)
    found = {"variance": (float(shares @ (values - mean) ** 2),) * 2}
    for low, high in pairwise(EDGES):
        inside = (values >= low) & ((values < high) | (high == 1))
        found[f"share {low:g}..{high:g}"] = (float(shares[inside].sum()),) * 2
    order = np.argsort(values)
    place = np.searchsorted(np.cumsum(shares[order]), 0.5 - 1e-12)
    found["median"] = (float(values[order][place]),) * 2
    return found


def mean_cells(name: str, mechanism: Mechanism, label: str, n: int, draws: int) -> Iterator[Cell]:
    rng = np.random.default_rng([1, n, len(name), len(label)])
    values, shares = COLUMNS[label]
    truth, hits, width = float(values @ shares), 0, 0.0
    counts = rng.multinomial(n, shares @ mechanism.pmf(values), size=draws)
    # Equal counts give equal intervals: few reports of few codes have few outcomes.
    unique, often = np.unique(counts, axis=0, return_counts=True)
    for one, times in zip(unique, often.tolist(), strict=True):
        found = mean_interval(collect.CodeCounts(mechanism=mechanism, counts=one), level=LEVEL, method="asymptotic")
        hits += times * (found.low <= truth <= found.high)
        width += times * (found.high - found.low)
    yield Cell(table=name, column=label, n=n, what="mean", draws=draws, hits=hits, width=width / draws, open_width=0.0)


def shape_cells(name: str, mechanism: Mechanism, label: str, n: int, draws: int) -> Iterator[Cell]:
    rng = np.random.default_rng([2, n, len(name), len(label)])
    wanted = truths(COLUMNS[label])
    hits, widths, opened = (dict.fromkeys(wanted, 0.0) for _ in range(3))
    for _ in range(draws):
        counts = drawn(mechanism, COLUMNS[label], n, rng)
        result = collect.estimate(counts, level=LEVEL, histogram=EDGES, quantiles=[0.5])
        assert isinstance(result, collect.Estimate)
        assert result.histogram is not None
        assert result.quantiles is not None
        bins = result.histogram
        found = {"variance": result.input_variance, "median": result.quantiles.values[0]}
        for i, (low, high) in enumerate(pairwise(EDGES)):
            found[f"share {low:g}..{high:g}"] = collect.Interval(
                value=bins.share[i],
                low=bins.low[i],
                high=bins.high[i],
                identified=(bins.identified_low[i], bins.identified_high[i]),
            )
        for what, (least, greatest) in wanted.items():
            interval = found[what]
            hits[what] += interval.low <= greatest + 1e-12 and least - 1e-12 <= interval.high
            widths[what] += interval.high - interval.low
            opened[what] += (interval.identified or (0, 0))[1] - (interval.identified or (0, 0))[0]
    for what in wanted:
        yield Cell(
            table=name,
            column=label,
            n=n,
            what=what,
            draws=draws,
            hits=int(hits[what]),
            width=widths[what] / draws,
            open_width=opened[what] / draws,
        )


def cells(tables: list[str], columns: list[str], sizes: list[int], draws: int, shape_draws: int) -> Iterator[Cell]:
    """Every cell of the grid."""
    for name in tables:
        mechanism = TABLES[name]()
        for label in columns:
            for n in sizes:
                # A table that jumps states shares, and the mean only up to half a cell: its bias is in the interval.
                if draws:
                    yield from mean_cells(name, mechanism, label, n, draws)
                if shape_draws and n >= 100:
                    yield from shape_cells(name, mechanism, label, n, shape_draws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="data sets per cell for the mean")
    parser.add_argument("--shape-draws", type=int, default=100, help="data sets per cell for everything else")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--columns", default=",".join(COLUMNS))
    parser.add_argument("--n", default="10,30,100,1000")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    started, console = time.perf_counter(), Console()
    names, labels = asked.tables.split(","), asked.columns.split(",")
    found: list[Cell] = []
    for cell in cells(names, labels, [int(n) for n in asked.n.split(",")], asked.draws, asked.shape_draws):
        found.append(cell)
        console.print(
            f"{cell.table}, {cell.column}, n={cell.n}, {cell.what}: {cell.coverage:.4f} of {cell.draws}, "
            f"width {cell.width:.4g}",
            highlight=False,
            style="dim",
        )
        if cell.coverage < CLAIMED:
            mark = "BELOW" if cell.coverage < cell.alarm else "low"
            console.print(
                f"{mark}: {cell.table}, {cell.column}, n={cell.n}, {cell.what}: {cell.coverage:.4f} of {cell.draws}, "
                f"width {cell.width:.4g}, open {cell.open_width:.4g}",
                highlight=False,
            )
    for what in sorted({cell.what for cell in found}):
        group = [cell for cell in found if cell.what == what]
        worst = min(group, key=lambda cell: cell.coverage)
        console.print(
            f"{what}: {len(group)} cells, least coverage {worst.coverage:.4f} ({worst.table}, {worst.column}, "
            f"n={worst.n}), pooled {sum(cell.hits for cell in group) / sum(cell.draws for cell in group):.4f}",
            highlight=False,
        )
    alarms = [cell for cell in found if cell.coverage < cell.alarm]
    console.print(
        f"{len(alarms)} of {len(found)} cells below the alarm line; at a true coverage of {CLAIMED} each falls below "
        f"it with probability {FALSE_ALARM:g}. {time.perf_counter() - started:.0f} s",
        highlight=False,
    )
    if asked.json:
        asked.json.write_text(json.dumps([asdict(cell) for cell in found]))


if __name__ == "__main__":
    main()
