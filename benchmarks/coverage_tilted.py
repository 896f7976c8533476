"""How often differences of means, means of strata and totals hold the truth at high levels.

Run: python benchmarks/coverage_tilted.py [--draws 280] [--tables opt4e1,krr3e8] [--json FILE]

Data sets are drawn in turn from the true law and from laws that are tilted so that the estimate
misses by a number of its standard errors, to either side; each is weighted by how much likelier the
true law makes it than all of them do on average. A miss that the level allows once in 10,000 is
then seen many times in a few hundred draws. Intervals are those of the functions that users call.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from coverage_cells import (
    COLUMNS,
    LEVELS,
    TABLES,
    Bet,
    Cell,
    seeded,
    shares_of,
    store_cells,
    stored_cells,
    summarise,
)
from rich.console import Console

from mezzotint import collect

TILTS = (0.0, 2.2, -2.2, 3.0, -3.0, 3.8, -3.8)
"""Standard errors by which each law moves the estimate; the first is the true one."""

ROUNDING = 1e-9
MARGIN = 0.05
"""Of its width, by which an interval that holds the truth shows that those of higher levels do."""

COUPLES = (("2 % outliers", "zero-inflated"), ("smooth", "90/10"), ("all 0", "all .5"))
SIZES = (40, 400)
SHARES = (0.2, 0.8)
"""Of the two strata."""


sys.path.append(str(Path(__file__).parents[1] / "tests"))
from modules import load  # noqa: E402

SWEEP = load(Path(__file__).with_name("coverage.py"))
"""The script beside this one: a package that measures tests has its name."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One data set: its interval at a level, and how much likelier the true law makes it."""

    interval: Callable[[float], collect.Interval]
    weight: float


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A quantity, its true value, and data sets of each of the laws of TILTS."""

    place: dict[str, object]
    truth: float
    draw: Callable[[int, np.random.Generator], Drawn]


def weight_of(log_ratios: Sequence[float]) -> float:
    """How much likelier the true law is than all laws on average, from the logarithms of how much
    likelier each is than the true one.
    """
    return 1 / float(np.mean(np.exp(log_ratios)))


def of_two_groups(
    name: str, labels: tuple[str, str], sizes: tuple[int, int], what: str
) -> Experiment:
    """The difference of the means of two groups, or the mean of two strata."""
    mechanism = TABLES[name]()
    factors = (1.0, -1.0) if what == "difference-mean" else SHARES
    columns = [COLUMNS[label] for label in labels]
    own = [shares_of(mechanism, column) for column in columns]
    means = [SWEEP.facts_of(column)["mean"] for column in columns]
    centred = [mechanism.levels - mechanism.levels @ shares for shares in own]
    variance = 0.0
    for factor, shares, values, size in zip(factors, own, centred, sizes, strict=True):
        variance += factor**2 * float(shares @ values**2) / size
    exponents: list[list[np.ndarray]] = []
    laws: list[list[np.ndarray]] = []
    constants: list[float] = []
    for tilt in TILTS:
        slopes = [tilt / math.sqrt(variance) * f / n for f, n in zip(factors, sizes, strict=True)]
        exponents.append([slope * values for slope, values in zip(slopes, centred, strict=True)])
        raised = [shares * np.exp(e) for shares, e in zip(own, exponents[-1], strict=True)]
        laws.append([one / one.sum() for one in raised])
        constants.append(sum(n * math.log(one.sum()) for n, one in zip(sizes, raised, strict=True)))

    def draw(law: int, rng: np.random.Generator) -> Drawn:
        counts = [rng.multinomial(n, one) for n, one in zip(sizes, laws[law], strict=True)]
        log_ratios = []
        for exponent, constant in zip(exponents, constants, strict=True):
            moved = sum(float(c @ e) for c, e in zip(counts, exponent, strict=True))
            log_ratios.append(moved - constant)
        groups = [SWEEP.group_of(mechanism, np.repeat(np.arange(c.size), c)) for c in counts]

        def interval(confidence: float) -> collect.Interval:
            first, second = [
                collect.parts_of(group, confidence=confidence)["mean"] for group in groups
            ]
            if what == "difference-mean":
                return collect.difference(first, second)
            shares = dict(zip("ab", SHARES, strict=True))
            return collect.stratified({"a": first, "b": second}, shares)

        return Drawn(interval=interval, weight=weight_of(log_ratios))

    return Experiment(
        place={"table": name, "column": ", ".join(labels), "n": sizes[0], "what": what},
        truth=sum(factor * mean for factor, mean in zip(factors, means, strict=True)),
        draw=draw,
    )


def of_survey(name: str, n: int) -> Experiment:
    """The total of a population of 20 n people, taken with unequal chances, as coverage.py draws it."""
    mechanism, column = TABLES[name](), COLUMNS["smooth"]
    population = seeded(9, n).choice(column[0], p=column[1], size=20 * n)
    chances = np.clip(0.02 + 0.06 * population, 0, 1)
    own = mechanism.pmf(population) * chances[:, None]
    values = mechanism.levels / chances[:, None]
    variances = (own * values**2).sum(axis=1) - (own * values).sum(axis=1) ** 2
    laws: list[tuple[float, np.ndarray, float]] = []
    for tilt in TILTS:
        slope = tilt / math.sqrt(float(variances.sum()))
        raised = own * np.exp(slope * values)
        sums = 1 - chances + raised.sum(axis=1)
        laws.append((slope, (raised / sums[:, None]).cumsum(axis=1), float(np.log(sums).sum())))

    def draw(law: int, rng: np.random.Generator) -> Drawn:
        cumulated = laws[law][1]
        words = rng.random(population.size)
        asked = words < cumulated[:, -1]
        codes = (cumulated[asked] < words[asked][:, None]).sum(axis=1)
        total = float((mechanism.levels[codes] / chances[asked]).sum())
        log_ratios = [slope * total - constant for slope, _, constant in laws]
        group = SWEEP.group_of(mechanism, codes, 1 / chances[asked])
        return Drawn(
            interval=lambda confidence: collect.total(group, confidence=confidence),
            weight=weight_of(log_ratios),
        )

    return Experiment(
        place={"table": name, "column": "survey", "n": n, "what": "total"},
        truth=float(population.sum()),
        draw=draw,
    )


def missed_levels(drawn: Drawn, truth: float, levels: Sequence[float]) -> Iterator[float]:
    """Levels, of increasing ones, whose interval does not hold the truth."""
    for confidence in levels:
        interval = drawn.interval(confidence)
        if not interval.low - ROUNDING <= truth <= interval.high + ROUNDING:
            yield confidence
            continue
        margin = MARGIN * (interval.high - interval.low)
        if interval.low + margin <= truth <= interval.high - margin:
            return


def cells_of(experiment: Experiment, draws: int, levels: Sequence[float]) -> Iterator[Cell]:
    """A cell per level, all of the same draws."""
    bets = {confidence: Bet(confidence) for confidence in levels}
    place = experiment.place
    rng = seeded(12, place["n"], place["table"], place["column"], place["what"])
    for index in range(draws):
        drawn = experiment.draw(index % len(TILTS), rng)
        missed = set(missed_levels(drawn, experiment.truth, levels))
        for confidence, bet in bets.items():
            bet.add(drawn.weight if confidence in missed else 0.0)
    for bet in bets.values():
        yield bet.cell(**place)


Case = tuple[str, str, int, str, Callable[[], Experiment]]
"""Table, column, reports and quantity, and the experiment, which is made when it is needed."""


def cases(tables: Sequence[str]) -> Iterator[Case]:
    """All of them."""
    for name in tables:
        for n in SIZES:
            yield name, "survey", n, "total", partial(of_survey, name, n)
            for labels in COUPLES:
                for what in ("difference-mean", "stratified"):
                    experiment = partial(of_two_groups, name, labels, (n, 5 * n), what)
                    yield name, ", ".join(labels), n, what, experiment


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=280)
    parser.add_argument("--tables", default="opt4e1,krr3e8,krr16e4")
    parser.add_argument("--json", type=Path, help="cells are kept there, and not made again")
    asked = parser.parse_args()
    started, console = time.process_time(), Console(highlight=False, soft_wrap=True)
    cells = stored_cells(asked.json)
    finished = {(cell.table, cell.column, cell.n, cell.what) for cell in cells}
    for *place, experiment in cases(asked.tables.split(",")):
        if tuple(place) in finished:
            continue
        made = list(cells_of(experiment(), asked.draws, LEVELS))
        cells += made
        store_cells(asked.json, made)
    summarise(console, cells)
    console.print(f"{time.process_time() - started:.0f} s of CPU time")


if __name__ == "__main__":
    main()
