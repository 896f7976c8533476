"""Planned half widths beside those that the estimators realise, and how often these hold.

Run: python benchmarks/planning.py [--draws 100] [--cells mean,share]

Twelve cells, one for each estimand and more: the planned half width, the mean of the realised ones, their
ratio, and the share of draws whose interval holds the truth. All draws are seeded: simulations.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from mezzotint import Mechanism, collect, design, families
from mezzotint.collect.groups import Group, parts_of
from mezzotint.collect.pairs import PairCounts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference.mechanisms import stepped

BETA = stats.beta(2, 5).ppf((np.arange(4000) + 0.5) / 4000)
Draw = Callable[[np.random.Generator], collect.Interval]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One setting: how it is planned, how an interval is drawn, and the truth."""

    name: str
    asked: dict[str, Any]
    draw: Draw
    truth: float


def shares_of(table: Mechanism, inputs: np.ndarray) -> np.ndarray:
    return table.pmf(inputs).mean(axis=0)


def counts_of(table: Mechanism, inputs: np.ndarray, n: int, rng: Any) -> collect.CodeCounts:
    return collect.CodeCounts(mechanism=table, counts=rng.multinomial(n, shares_of(table, inputs)))


def mean_cell(name: str, table: Mechanism, inputs: np.ndarray, n: int) -> Cell:
    def draw(rng: np.random.Generator) -> collect.Interval:
        return collect.estimate(counts_of(table, inputs, n, rng)).mean  # type: ignore[union-attr]

    asked = {"mechanism": table, "inputs": inputs, "people": n}
    return Cell(name=name, asked=asked, draw=draw, truth=float(inputs.mean()))


def share_cell(name: str, table: Mechanism, n: int, edge: float) -> Cell:
    def draw(rng: np.random.Generator) -> collect.Interval:
        found = collect.estimate(counts_of(table, BETA, n, rng), above=[edge])
        return next(iter(found.shares_above.values()))  # type: ignore[union-attr]

    asked = {"estimand": "share", "above": edge, "mechanism": table, "inputs": BETA, "people": n}
    return Cell(name=name, asked=asked, draw=draw, truth=float((edge < BETA).mean()))


def quantile_cell(name: str, table: Mechanism, n: int, probability: float) -> Cell:
    def draw(rng: np.random.Generator) -> collect.Interval:
        found = collect.estimate(counts_of(table, BETA, n, rng), quantiles=[probability])
        return next(iter(found.quantiles.values()))  # type: ignore[union-attr]

    asked = {"estimand": "quantile", "probability": probability, "mechanism": table}
    asked |= {"inputs": BETA, "people": n}
    return Cell(name=name, asked=asked, draw=draw, truth=float(np.quantile(BETA, probability)))


def frequency_cell(name: str, table: Mechanism, n: int, share: float) -> Cell:
    k = len(table.categories or ())
    shares = np.append(share, np.full(k - 1, (1 - share) / (k - 1)))

    def draw(rng: np.random.Generator) -> collect.Interval:
        counts = rng.multinomial(n, shares @ table.probabilities)
        found = collect.estimate(collect.CodeCounts(mechanism=table, counts=counts))
        return found.shares[0]  # type: ignore[union-attr]

    asked = {"estimand": "frequency", "categories": k, "share": share, "mechanism": table}
    return Cell(name=name, asked={**asked, "people": n}, draw=draw, truth=share)


def part_of(table: Mechanism, counts: np.ndarray) -> collect.Part:
    reports = collect.CodeCounts(mechanism=table, counts=counts)
    return parts_of(Group(counts=reports, weights=counts, squares=counts))["mean"]


def difference_cell(name: str, table: Mechanism, n: int) -> Cell:
    second = np.clip(BETA - 0.06, 0, 1)

    def draw(rng: np.random.Generator) -> collect.Interval:
        return collect.difference(
            *(part_of(table, rng.multinomial(n, shares_of(table, x))) for x in (BETA, second))
        )

    asked = {"estimand": "difference", "mechanism": table, "inputs": BETA, "second": second}
    truth = float(BETA.mean() - second.mean())
    return Cell(name=name, asked={**asked, "people": 2 * n}, draw=draw, truth=truth)


def total_cell(name: str, table: Mechanism, population: int) -> Cell:
    weights = np.repeat([5.0, 20.0], BETA.size // 2)
    people = round(population * float(np.mean(1 / weights)))
    members = np.resize(BETA, population)
    each = np.resize(weights, population)

    def draw(rng: np.random.Generator) -> collect.Interval:
        asked = rng.random(population) < 1 / each
        cumulated = table.pmf(members[asked]).cumsum(axis=1)
        codes = (rng.random(asked.sum())[:, None] > cumulated).sum(axis=1)
        (group,) = collect.groups_of(
            codes, by=[["all"] * codes.size], mechanism=table, weights=each[asked]
        ).values()
        return collect.total(group)

    asked: dict[str, Any] = {"estimand": "total", "mechanism": table, "inputs": BETA}
    asked |= {"weights": weights, "population": population, "people": people}
    return Cell(name=name, asked=asked, draw=draw, truth=float(members.sum()))


def cell_cell(name: str, n: int, share: float) -> Cell:
    tables = [families.categorical(categories=range(k), epsilon=2.0) for k in (4, 3)]
    shares = np.append(share, np.full(11, (1 - share) / 11)).reshape(4, 3)
    pmf = tables[0].probabilities.T @ shares @ tables[1].probabilities

    def draw(rng: np.random.Generator) -> collect.Interval:
        counts = rng.multinomial(n, pmf.ravel()).reshape(pmf.shape)
        pairs = PairCounts(first=tables[0], second=tables[1], counts=counts)
        return collect.two_way(pairs)["0", "0"]

    asked = {"estimand": "cell", "categories": (4, 3), "share": share, "epsilon": 4.0, "people": n}
    return Cell(name=name, asked=asked, draw=draw, truth=share)


def slope_cell(name: str, table: Mechanism, n: int) -> Cell:
    x = np.where(np.arange(4000) < 2000, 0.0, 1.0)
    y = 0.2 + 0.496 * x
    joint = table.pmf(x).T @ table.pmf(y) / x.size

    def draw(rng: np.random.Generator) -> collect.Interval:
        counts = rng.multinomial(n, joint.ravel()).reshape(joint.shape)
        slope = collect.relation(PairCounts(first=table, second=table, counts=counts)).slope
        return slope or collect.Interval(value=0.0, low=-np.inf, high=np.inf)

    asked = {"estimand": "slope", "mechanism": table, "inputs": x, "second": y, "people": n}
    return Cell(name=name, asked={**asked, "epsilon": 8.0}, draw=draw, truth=0.496)


def cells() -> Iterator[Cell]:
    def best(levels: int, epsilon: float) -> Mechanism:
        return design.optimal(epsilon, lower=0, upper=1, levels=levels).mechanism

    def response(levels: int, epsilon: float) -> Mechanism:
        return families.k_randomized_response(lower=0, upper=1, levels=levels, epsilon=epsilon)

    def krr(epsilon: float) -> Mechanism:
        return families.categorical(categories=range(10), epsilon=epsilon, method="krr")

    subset = families.categorical(categories=range(10), epsilon=1.0, method="subset")
    bit = collect.threshold_table(1.0, lower=0, upper=1, threshold=0.3)
    yield mean_cell("mean, one bit, eps 1", response(2, 1.0), BETA, 2000)
    yield mean_cell("mean, optimal 8, eps 4", best(8, 4.0), BETA, 500)
    yield share_cell("share above .3, one bit, eps 1", bit, 5000, 0.3)
    yield frequency_cell("frequency .05, k-RR 10, eps 2", krr(2.0), 2000, 0.05)
    yield frequency_cell("frequency .1, subsets of 10, eps 1", subset, 5000, 0.1)
    yield difference_cell("difference .06, optimal 4, eps 1", best(4, 1.0), 6000)
    yield total_cell("total of 20,000, one bit, eps 1", response(2, 1.0), 20_000)
    yield cell_cell("cell .02 of 4 x 3, eps 2 + 2", 5000, 0.02)
    yield quantile_cell("quantile .9, stepped 10, eps 4", stepped(10, 4.0), 2000, 0.9)
    yield share_cell("share above .3, k-RR 8, eps 1", response(8, 1.0), 2000, 0.3)
    yield slope_cell("slope .496, optimal 4, eps 4 + 4", best(4, 4.0), 20_000)
    yield mean_cell("mean of ends, k-RR 16, eps 1", response(16, 1.0), np.array([0.0, 1.0]), 1000)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--cells", default="", help="only those whose names hold this text")
    asked = parser.parse_args()
    started = time.process_time()
    table = Table(title=f"planned and realised half widths at 95 %, {asked.draws} draws")
    for head in ("cell", "planned", "realised", "planned / realised", "held"):
        table.add_column(head, justify="left" if head == "cell" else "right")
    for cell in cells():
        if asked.cells not in cell.name:
            continue
        planned = collect.plan(**cell.asked).half_width
        rng = np.random.default_rng(1)
        found = [cell.draw(rng) for _ in range(asked.draws)]
        realised = float(np.mean([(one.high - one.low) / 2 for one in found]))
        held = np.mean([one.low <= cell.truth <= one.high for one in found])
        ratio = f"{planned / realised:.3f}"
        table.add_row(cell.name, f"{planned:.5g}", f"{realised:.5g}", ratio, f"{held:.3f}")
    console = Console(width=120)
    console.print(table)
    console.print(f"{time.process_time() - started:.0f} s of CPU time")


if __name__ == "__main__":
    main()
