"""How often intervals hold the truth, and how wide they are: tables x columns x reports x levels.

Run: python benchmarks/coverage.py [--part mean,joint,shapes,pairs,widths] [--draws D]
     [--screen S] [--confirm C] [--settle T] [--levels .8,.95] [--tables rr4,krr16e4]
     [--columns smooth] [--n 10,1000] [--json FILE]

mean: whether the interval accepts the truth, D draws of every cell.
joint: all frequencies, all cells of a two-way table and all groups at once, S draws and C fresh ones.
shapes: shares, the distribution function, variance and median, through the functions that users call. Cells that missed
    in more than .4 of what their level allows of S draws are looked at again, with C fresh draws, and those in more
    than .8 of these once more, with T; only the last ones count.
pairs: groups, strata, totals, categories and two columns of one record, as shapes.
widths: of shares, beside those of "safe" and of the square wave.

A cell of draws alarms when its coverage is so low that a cell which truly holds at its level would show
it with chance 1e-4. What sums over all outcomes can say stands in benchmarks/outcomes.py.
"""

from __future__ import annotations

if __name__ == "coverage":  # numba looks for the package of this name, and this folder comes first
    raise ImportError("a script")

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from mezzotint import collect, design, families
from mezzotint.collect.groups import Group, parts_of
from mezzotint.collect.shapes import CrossFitted
from mezzotint.core.mechanism import Mechanism

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference.outcomes import score_accepts

LEVELS = (0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)
FALSE_ALARM = 1e-4
SUSPECT, CLOSE = 0.4, 0.8
"""Cells that missed in a larger share of what their level allows, of the first draws and of the second, are looked at
again."""

MARGIN = 0.05
"""Of its width, by which an interval that holds the truth leaves no doubt that those of higher levels do.

They are wider, but not by proof: of 4,800 pairs of neighbouring levels 4 ends moved inwards, by .007 of the width at most.
"""

Places = set[tuple[str, str, int, float]]
"""Table, column, reports and level of cells that are in the file already."""

Stages = tuple[tuple[int, float], ...]
"""Draws of each look at a cell, and the share of misses that calls for the next one."""

FEWEST_OF_TOTAL = 4
"""Reports that a survey must expect, for its total to be measured: 20 n people are asked with chance .02 and more."""

EDGES = (0.0, 0.1, 0.3, 1.0)


def free_levels(epsilon: float, levels: list[float]) -> Mechanism:
    """An optimal table on [-1, 1] with these levels, moved to [0, 1]."""
    found = design.optimal(
        epsilon=epsilon, lower=0, upper=1, levels=[(confidence + 1) / 2 for confidence in levels]
    )
    return found.mechanism


def stepped(cells: int, epsilon: float) -> Mechanism:
    """k-ary response of the cell that an input lies in: a table whose rows jump at the cells' edges."""
    response = families.k_randomized_response(
        lower=0, upper=1, levels=cells, epsilon=epsilon
    ).weights
    edges = np.linspace(0, 1, cells + 1)
    return Mechanism(
        knots=np.repeat(edges, 2)[1:-1],
        levels=(edges[1:] + edges[:-1]) / 2,
        weights=np.repeat(response, 2, axis=0),
        name=f"stepped {cells}, {epsilon:g}",
    )


def krr(levels: int, epsilon: float) -> Callable[[], Mechanism]:
    return lambda: families.k_randomized_response(lower=0, upper=1, levels=levels, epsilon=epsilon)


def best(levels: int, epsilon: float, **options: Any) -> Callable[[], Mechanism]:
    return lambda: (
        design.optimal(epsilon=epsilon, lower=0, upper=1, levels=levels, **options).mechanism
    )


TABLES: dict[str, Callable[[], Mechanism]] = {
    "rr.25": krr(2, 0.25),
    "rr1": krr(2, 1.0),
    "rr4": krr(2, 4.0),
    "krr3e.25": krr(3, 0.25),
    "krr3e8": krr(3, 8.0),
    "krr8e1": krr(8, 1.0),
    "krr16e1": krr(16, 1.0),
    "krr16e4": krr(16, 4.0),
    "opt3e.1": best(3, 0.1),
    "opt4e.25": best(4, 0.25),
    "opt4e1": best(4, 1.0),
    "opt4e4": best(4, 4.0),
    "opt8e4": best(8, 4.0),
    "mini4e1": best(4, 1.0, loss="minimax"),
    "mini3e4": best(3, 4.0, loss="minimax"),
    "cdf12e1": best(12, 1.0, loss="cdf", knots=9),
    "cdf16e.25": best(16, 0.25, loss="cdf"),
    "erm6": lambda: families.erm(lower=0, upper=1, bins=[-0.4, 0.0, 0.3, 0.7, 1.0, 1.4], gamma=1.0),
    "rqm16": lambda: families.rqm(lower=0, upper=1, levels=16, extension=0.5, q=0.42),
    "pbm15": lambda: families.pbm(lower=0, upper=1, trials=15, theta=0.3, knots=17),
    "wave16": lambda: families.square_wave(lower=0, upper=1, outputs=16, epsilon=1.0),
    "round4": lambda: families.stochastic_rounding(lower=0, upper=1, levels=4),
    "stepped10e4": lambda: stepped(10, 4.0),
    "krr4e5": krr(4, 5.0),
    "krr4e12": krr(4, 12.0),
    "far3": lambda: free_levels(3.0, [-1.11, -1.0, -0.5, 4.0]),
    "far3b": lambda: free_levels(3.0, [-1.11, -1.09, 0.0, 6.0]),
    "far5": lambda: free_levels(5.0, [-1.02, -0.9, 8.0]),
    "rows2": lambda: Mechanism(
        knots=np.array([0.0, 1.0]),
        levels=np.array([0.0, 0.01, 1.0]),
        weights=np.array([[2**32 - 2**20, 2**19, 2**19], [2**19, 2**19, 2**32 - 2**20]]),
    ),
}
"""The last five have rare far levels, on which a plain score interval covers 86 to 93 %."""

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
        confidence: the confidence that its intervals claim.
        draws: data sets drawn.
        misses: draws whose interval did not hold the truth.
        width: mean width of the interval.
        open_width: mean width of what infinitely many reports would leave open.
    """

    table: str
    column: str
    n: int
    what: str
    confidence: float
    draws: int
    misses: int
    width: float = 0.0
    open_width: float = 0.0

    @property
    def missed(self) -> float:
        """Chance of a miss, over that which the level allows."""
        return self.misses / self.draws / (1 - self.confidence)

    @property
    def alarm(self) -> float:
        """What `missed` exceeds with probability FALSE_ALARM at most, where the level holds."""
        allowed = 1 - self.confidence
        most = float(stats.binom(self.draws, allowed).isf(FALSE_ALARM))
        return most / self.draws / allowed

    def __str__(self) -> str:
        return (
            f"{self.table}, {self.column}, n={self.n}, {self.what} at {self.confidence:g}: missed {self.missed:.3f} of "
            f"what is allowed, {self.draws} draws, width {self.width:.4g}, open {self.open_width:.4g}"
        )


def seeded(*parts: Any) -> np.random.Generator:
    return np.random.default_rng(
        [part if isinstance(part, int) else sum(str(part).encode()) for part in parts]
    )


def shares_of(mechanism: Mechanism, column: Column) -> np.ndarray:
    return column[1] @ mechanism.pmf(column[0])


# The mean --------------------------------------------------------------------------------------------------------


def mean_cells(
    name: str, mechanism: Mechanism, label: str, n: int, draws: int, levels: Sequence[float]
) -> Iterator[Cell]:
    """The share of draws that accept the expected report; the interval, the hull of what is accepted, holds it then.

    The expected report is off the inputs' mean by at most the table's bias, by which the interval is widened.
    """
    shares = shares_of(mechanism, COLUMNS[label])
    truth = float(shares @ mechanism.levels)
    drawn = seeded(1, n, name, label).multinomial(n, shares, size=draws)
    every, often = np.unique(drawn, axis=0, return_counts=True)
    for confidence in levels:
        if draws * (1 - confidence) < 10:
            continue  # so few misses would be expected that they say nothing
        held, wide = score_accepts(mechanism, every, truth, confidence)
        yield Cell(
            table=name,
            column=label,
            n=n,
            what="mean",
            confidence=confidence,
            draws=draws,
            misses=int(often[~held].sum()),
            width=float(2 * often @ wide) / draws + 2 * mechanism.max_bias,
        )


# Shapes ----------------------------------------------------------------------------------------------------------

Truths = Mapping[str, float]
Found = Mapping[str, collect.Interval]


def truths(column: Column) -> dict[str, float]:
    """The quantities' true values."""
    values, shares = column
    mean = float(values @ shares)
    found = {"variance": float(shares @ (values - mean) ** 2)}
    for low, high in (*pairwise(EDGES), (0.0, 0.3)):
        inside = (values >= low) & ((values < high) | (high == 1))
        found[f"share {low:g}..{high:g}"] = float(shares[inside].sum())
    order = np.argsort(values)
    found["median"] = float(values[order][np.searchsorted(np.cumsum(shares[order]), 0.5 - 1e-12)])
    return found


def shapes(
    mechanism: Mechanism,
    column: Column,
    n: int,
    *,
    confidence: float,
    draws: int,
    rng: np.random.Generator,
) -> Iterator[CrossFitted]:
    """The estimates of as many data sets."""
    many = [
        collect.CodeCounts(mechanism=mechanism, counts=counts)
        for counts in rng.multinomial(n, shares_of(mechanism, column), size=draws)
    ]
    return CrossFitted.of_many(many, confidence=confidence, edges=np.array(EDGES))


def at_level(fit: CrossFitted, confidence: float) -> CrossFitted:
    """The same fit at another level."""
    other = CrossFitted(fit.counts, confidence=confidence, edges=fit.edges, masses=fit.masses)
    other._folds = fit._folds
    return other


def interval_of(fit: CrossFitted, what: str) -> collect.Interval:
    """A quantity by the name that `truths` gives it."""
    if what.startswith("share"):
        low, high = map(float, what.split()[1].split(".."))
        return fit.share(low, high)
    return fit.variance() if what == "variance" else fit.quantile(0.5)


def missed_levels(
    fit: CrossFitted, what: str, truth: float, levels: Sequence[float]
) -> tuple[list[float], collect.Interval]:
    """Levels whose interval misses the truth, and the interval at the least level.

    Where it holds the truth by a margin the higher levels, whose intervals are wider, are not looked at.
    """
    missed: list[float] = []
    first = interval_of(fit, what)
    interval = first
    for confidence in levels:
        if confidence != levels[0]:
            interval = interval_of(at_level(fit, confidence), what)
        if not interval.low - 1e-12 <= truth <= interval.high + 1e-12:
            missed.append(confidence)
            continue
        margin = MARGIN * (interval.high - interval.low)
        if interval.low + margin <= truth <= interval.high - margin:
            break
    return missed, first


def shape_cells(
    place: dict[str, Any],
    mechanism: Mechanism,
    column: Column,
    levels: Sequence[float],
    stages: Stages,
) -> Iterator[Cell]:
    """A cell per quantity and level, all levels of the same draws: of the first where they raise no suspicion.

    Else of fresh draws alone, for all levels of a quantity one of which is suspected.
    """
    true = truths(column)
    for stage, (draws, missing) in enumerate(stages, 2):
        misses = {(what, confidence): 0 for what in true for confidence in levels}
        widths = dict.fromkeys(true, 0.0)
        opened = dict.fromkeys(true, 0.0)
        rng = seeded(stage, place["n"], place["table"], place["column"])
        options = {"confidence": levels[0], "draws": draws, "rng": rng}
        for fit in shapes(mechanism, column, place["n"], **options):
            for what, truth in true.items():
                missed, interval = missed_levels(fit, what, truth, levels)
                for confidence in missed:
                    misses[what, confidence] += 1
                left_open = interval.identified or (interval.value, interval.value)
                widths[what] += (interval.high - interval.low) / draws
                opened[what] += (left_open[1] - left_open[0]) / draws
        suspects = {
            what
            for (what, confidence), count in misses.items()
            if count > missing * (1 - confidence) * draws
        }
        for (what, confidence), count in misses.items():
            if what not in suspects:
                width = widths[what] if confidence == levels[0] else 0.0
                yield Cell(
                    **place,
                    what=what,
                    confidence=confidence,
                    draws=draws,
                    misses=count,
                    width=width,
                    open_width=opened[what],
                )
        true = {what: value for what, value in true.items() if what in suspects}
        if not true:
            return


Experiment = Callable[[Sequence[str], int, np.random.Generator], Iterator[Found]]
"""Draws data sets and estimates these quantities from each."""


def cells_of(
    place: dict[str, Any], true: Truths, run: Experiment, stages: Stages
) -> Iterator[Cell]:
    """One cell per quantity: of the first draws where they raise no suspicion, else of fresh ones alone."""
    for stage, (draws, missing) in enumerate(stages, 2):
        rng = seeded(stage, place["n"], place["table"], place["column"])
        allowed = 1 - place["confidence"]
        hits, widths, opened = (dict.fromkeys(true, 0.0) for _ in range(3))
        for found in run(list(true), draws, rng):
            for what, one in found.items():
                left_open = one.identified or (one.value, one.value)
                hits[what] += one.low - 1e-12 <= true[what] <= one.high + 1e-12
                widths[what] += one.high - one.low
                opened[what] += left_open[1] - left_open[0]
        suspects = {what for what in true if draws - hits[what] > missing * allowed * draws}
        for what in true:
            if what not in suspects:
                width, left = widths[what] / draws, opened[what] / draws
                yield Cell(
                    **place,
                    what=what,
                    draws=draws,
                    misses=int(draws - hits[what]),
                    width=width,
                    open_width=left,
                )
        true = {what: value for what, value in true.items() if what in suspects}
        if not true:
            return


# Groups, categories, two columns -----------------------------------------------------------------------------------


def group_of(mechanism: Mechanism, codes: np.ndarray, weights: np.ndarray | None = None) -> Group:
    d = np.ones(codes.size) if weights is None else weights
    m = mechanism.levels.size
    counts = np.bincount(codes, minlength=m)
    sums = [
        np.bincount(codes, weights=d**power, minlength=m).astype(np.float64) for power in (1, 2)
    ]
    return Group(
        counts=collect.CodeCounts(mechanism=mechanism, counts=counts),
        weights=sums[0],
        squares=sums[1],
        memoised=False,
    )


def codes_of(mechanism: Mechanism, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A code per input."""
    return (mechanism.pmf(x).cumsum(axis=1) < rng.random(x.size)[:, None]).sum(axis=1)


def of_groups(
    mechanism: Mechanism, columns: tuple[Column, Column], n: int, confidence: float
) -> tuple[Truths, Experiment]:
    """Two groups, one five times as large: their difference, their stratified mean; a total of a survey."""
    means = [float(values @ shares) for values, shares in columns]
    population = seeded(9, n).choice(columns[0][0], p=columns[0][1], size=20 * n)
    chances = np.clip(0.02 + 0.06 * population, 0, 1)
    true = {
        "difference": means[0] - means[1],
        "stratified": 0.2 * means[0] + 0.8 * means[1],
    }
    if n >= FEWEST_OF_TOTAL:
        true["total"] = float(population.sum())

    def run(wanted: Sequence[str], draws: int, rng: np.random.Generator) -> Iterator[Found]:
        for _ in range(draws):
            counts = [
                rng.multinomial(size, shares_of(mechanism, c))
                for size, c in zip((n, 5 * n), columns, strict=True)
            ]
            groups = [group_of(mechanism, np.repeat(np.arange(one.size), one)) for one in counts]
            parts = [parts_of(one, confidence=confidence)["mean"] for one in groups]
            found = {
                "difference": collect.difference(parts[0], parts[1]),
                "stratified": collect.stratified(
                    {"a": parts[0], "b": parts[1]},
                    {"a": 0.2, "b": 0.8},
                ),
            }
            if "total" in wanted:
                asked = rng.random(population.size) < chances
                codes = codes_of(mechanism, population[asked], rng)
                found["total"] = collect.total(
                    group_of(mechanism, codes, 1 / chances[asked]), confidence=confidence
                )
            yield {what: found[what] for what in wanted}

    return true, run


def of_pairs(
    first: Mechanism, second: Mechanism, joint: np.ndarray, n: int, confidence: float
) -> tuple[Truths, Experiment]:
    """Covariance and slope of two columns of numbers.

    Arguments:
        joint: (N, 2) inputs, equally likely.
    """
    covariance = float(np.cov(joint.T, bias=True)[0, 1])
    true = {"covariance": covariance, "slope": covariance / float(joint[:, 0].var())}

    def run(wanted: Sequence[str], draws: int, rng: np.random.Generator) -> Iterator[Found]:
        shares = np.einsum("ni,nj->ij", first.pmf(joint[:, 0]), second.pmf(joint[:, 1])) / len(
            joint
        )
        for _ in range(draws):
            counts = rng.multinomial(n, shares.ravel()).reshape(shares.shape)
            found = collect.relation(
                collect.PairCounts(first=first, second=second, counts=counts), confidence=confidence
            )
            # Where the variance may be 0 any slope is possible.
            slope = found.slope or collect.Interval(value=0.0, low=-np.inf, high=np.inf)
            yield {what: found.covariance if what == "covariance" else slope for what in wanted}

    return true, run


def of_categories(
    mechanism: Mechanism, shares: np.ndarray, n: int, confidence: float
) -> tuple[Truths, Experiment]:
    """Frequencies, and the shares of the pairs of two independent columns, of the rarest and the commonest category."""
    names = mechanism.categories or ()
    watched = {
        names[int(np.argmin(shares))]: float(shares.min()),
        names[int(np.argmax(shares))]: float(shares.max()),
    }
    true = {f"frequency {value:g}": value for value in watched.values()}
    true |= {f"pair {value**2:g}": value**2 for value in watched.values()}

    def run(wanted: Sequence[str], draws: int, rng: np.random.Generator) -> Iterator[Found]:
        pmf = shares @ mechanism.probabilities
        for _ in range(draws):
            counts = rng.multinomial(n, np.outer(pmf, pmf).ravel()).reshape(pmf.size, pmf.size)
            one = collect.estimate(
                collect.CodeCounts(mechanism=mechanism, counts=counts.sum(axis=1)),
                confidence=confidence,
            )
            assert isinstance(one, collect.Frequencies)
            both = collect.two_way(
                collect.PairCounts(first=mechanism, second=mechanism, counts=counts),
                confidence=confidence,
            )
            found = {}
            for name, value in watched.items():
                found[f"frequency {value:g}"] = one.shares[names.index(name)]
                found[f"pair {value**2:g}"] = both[name, name]
            yield {what: found[what] for what in wanted}

    return true, run


def pair_cells(stages: Stages, confidence: float, finished: Places) -> Iterator[Cell]:
    letters = ["a", "b", "c", "d"]
    uneven, rng = np.array([0.7, 0.2, 0.09, 0.01]), seeded(5)
    x = rng.beta(2, 5, 2000)
    together = np.stack([x, np.clip(0.6 * x + 0.4 * rng.random(2000), 0, 1)], axis=1)
    constant = np.stack([np.full(2000, 0.3), rng.random(2000)], axis=1)
    cases: list[tuple[str, str, int, tuple[Truths, Experiment]]] = []
    for name in ("rr1", "opt4e1", "krr16e4"):
        table = TABLES[name]()
        for n in (2, 40, 400):
            for label, columns in {
                "smooth, 90/10": (COLUMNS["smooth"], COLUMNS["90/10"]),
                "constants": (COLUMNS["all 0"], COLUMNS["all .5"]),
            }.items():
                cases.append((name, label, n, of_groups(table, columns, n, confidence)))
        for n in (400, 4000):
            cases.append(
                (f"{name} x 2", "related", n, of_pairs(table, table, together, n, confidence))
            )
            cases.append(
                (f"{name} x 2", "one constant", n, of_pairs(table, table, constant, n, confidence))
            )
    for epsilon in (0.5, 1.0, 4.0):
        table = families.categorical(categories=letters, epsilon=epsilon)
        for n in (3, 30, 1000):
            for label, shares in {"uneven": uneven, "one": np.eye(4)[0]}.items():
                cases.append(
                    (
                        f"categories 4, {epsilon:g}",
                        label,
                        n,
                        of_categories(table, shares, n, confidence),
                    )
                )
    for name, label, n, (true, run) in cases:
        if (name, label, n, confidence) in finished:
            continue
        if "constant" in label and "slope" in true:
            true = {what: value for what, value in true.items() if what != "slope"}
        place = {"table": name, "column": label, "n": n, "confidence": confidence}
        yield from cells_of(place, true, run, stages)


# Widths ------------------------------------------------------------------------------------------------------------


WIDTHS = (
    (1.0, "cdf12e1", 12),
    (1.0, "krr16e1", 16),
    (4.0, "krr16e4", 16),
    (4.0, "stepped10e4", 10),
)
"""Epsilon, our table, outputs of the square wave."""


def widths(
    mechanism: Mechanism, wave: Mechanism, label: str, n: int, draws: int, rng: np.random.Generator
) -> list[list[str]]:
    """Mean widths of the intervals of three shares, as cells of a table: ours, left open, safe, of the wave."""
    column, edges = COLUMNS[label], np.array(EDGES)
    many = [
        [
            collect.CodeCounts(mechanism=one, counts=counts)
            for counts in rng.multinomial(n, shares_of(one, column), size=draws)
        ]
        for one in (mechanism, wave)
    ]
    ours, others = (list(CrossFitted.of_many(sets, confidence=0.95, edges=edges)) for sets in many)
    safe = collect.estimate(many[0][0], method="safe", histogram=EDGES)
    assert isinstance(safe, collect.Estimate)
    assert safe.histogram is not None
    rows = []
    for i, (low, high) in enumerate(pairwise(EDGES)):
        found, waves = ([one.share(low, high) for one in each] for each in (ours, others))
        opened = [one.identified or (0.0, 0.0) for one in found]
        numbers = [
            np.mean([one.high - one.low for one in found]),
            np.mean([b - a for a, b in opened]),
            safe.histogram.high[i] - safe.histogram.low[i],
            np.mean([one.high - one.low for one in waves]),
        ]
        rows.append([f"share {low:g}..{high:g}", *(f"{number:.3f}" for number in numbers)])
    return rows


def print_widths(console: Console, draws: int, tables: Sequence[str]) -> None:
    """One table per epsilon and table of ours."""
    for epsilon, ours, outputs in WIDTHS:
        if ours not in tables:
            continue
        table = Table(title=f"widths of 95 % intervals, epsilon {epsilon:g}")
        for head in (
            "reports",
            "column",
            "n",
            "quantity",
            "ours",
            "open",
            "safe",
            "square wave",
        ):
            table.add_column(head)
        mechanism = TABLES[ours]()
        wave = families.square_wave(lower=0, upper=1, outputs=outputs, epsilon=epsilon)
        for label in ("smooth", "zero-inflated", "90/10"):
            for n in (1000, 20_000):
                for row in widths(mechanism, wave, label, n, draws, seeded(7, n, ours, label)):
                    table.add_row(ours, label, str(n), *row)
        console.print(table)


# All at once ---------------------------------------------------------------------------------------


def at_once(true: Truths, run: Experiment) -> tuple[Truths, Experiment]:
    """One quantity: the worst excess of any interval over its truth, in its own width; 0 where all hold."""

    def together(wanted: Sequence[str], draws: int, rng: np.random.Generator) -> Iterator[Found]:
        for found in run(list(true), draws, rng):
            out = [
                not one.low - 1e-12 <= true[what] <= one.high + 1e-12 for what, one in found.items()
            ]
            width = float(np.mean([one.high - one.low for one in found.values()]))
            shift = 2 * width if any(out) else 0.0
            yield {
                wanted[0]: collect.Interval(
                    value=shift, low=shift - width / 2, high=shift + width / 2
                )
            }

    return {f"all {len(true)} at once": 0.0}, together


def of_two_way(
    k: int, m: int, epsilon: float, n: int, confidence: float
) -> tuple[Truths, Experiment]:
    """All cells of a two-way table."""
    tables = [families.categorical(categories=range(size), epsilon=epsilon) for size in (k, m)]
    shares = np.outer(np.arange(k, 0, -1.0), np.arange(m, 0, -1.0)) ** 2
    shares[-1, -1] = 0.0
    shares /= shares.sum()
    true = {f"{i},{j}": float(shares[i, j]) for i in range(k) for j in range(m)}
    pmf = tables[0].probabilities.T @ shares @ tables[1].probabilities

    def run(wanted: Sequence[str], draws: int, rng: np.random.Generator) -> Iterator[Found]:
        del wanted
        for counts in rng.multinomial(n, pmf.ravel(), size=draws):
            pairs = collect.PairCounts(
                first=tables[0], second=tables[1], counts=counts.reshape(pmf.shape)
            )
            found = collect.two_way(pairs, confidence=confidence, simultaneous=True)
            yield {f"{one},{other}": share for (one, other), share in found.items()}

    return at_once(true, run)


def of_all_groups(mechanism: Mechanism, n: int, confidence: float) -> tuple[Truths, Experiment]:
    """The means of all groups, of sizes n, n / 2, ..., each at Bonferroni's level."""
    columns = ["all 0", "90/10", "smooth", "2 % outliers", "ends", "all 1"]
    sizes = [max(1, n >> i) for i in range(len(columns))]
    true = {label: float(COLUMNS[label][0] @ COLUMNS[label][1]) for label in columns}
    each = 1 - (1 - confidence) / len(columns)

    def run(wanted: Sequence[str], draws: int, rng: np.random.Generator) -> Iterator[Found]:
        del wanted
        for _ in range(draws):
            found = {}
            for label, size in zip(columns, sizes, strict=True):
                counts = rng.multinomial(size, shares_of(mechanism, COLUMNS[label]))
                reports = collect.CodeCounts(mechanism=mechanism, counts=counts)
                group = Group(counts=reports, weights=counts, squares=counts)
                found[label] = parts_of(group, confidence=each)["mean"].interval
            yield found

    return at_once(true, run)


def joint_cells(stages: Stages, confidence: float) -> Iterator[Cell]:
    for k, m, epsilon, n in (
        (4, 3, 2.0, 500),
        (3, 3, 8.0, 20),
        (6, 5, 6.0, 100),
        (6, 5, 1.0, 2000),
    ):
        place = {
            "table": f"{k} x {m}, {epsilon:g}",
            "column": "uneven",
            "n": n,
            "confidence": confidence,
        }
        yield from cells_of(place, *of_two_way(k, m, epsilon, n, confidence), stages)
    for name in ("rr1", "rr4", "opt4e1", "krr8e1", "krr4e5"):
        for n in (10, 100):
            place = {"table": name, "column": "six groups", "n": n, "confidence": confidence}
            yield from cells_of(place, *of_all_groups(TABLES[name](), n, confidence), stages)


# All ---------------------------------------------------------------------------------------------------------------


def cells(asked: argparse.Namespace, finished: Places) -> Iterator[Cell]:
    """Every cell of the grid, but those of shapes and pairs that are finished."""
    parts, sizes = asked.part.split(","), [int(n) for n in asked.n.split(",")]
    levels = [float(confidence) for confidence in asked.levels.split(",")]
    stages = (asked.screen, SUSPECT), (asked.confirm, CLOSE), (asked.settle, np.inf)
    names = asked.tables.split(",") if {"mean", "shapes"} & set(parts) else []
    for name in names:
        mechanism = TABLES[name]()
        for label in asked.columns.split(","):
            for n in sizes:
                if "mean" in parts:
                    yield from mean_cells(name, mechanism, label, n, asked.draws, levels)
                if "shapes" in parts and (name, label, n, levels[0]) not in finished:
                    place = {"table": name, "column": label, "n": n}
                    yield from shape_cells(place, mechanism, COLUMNS[label], levels, stages)
    for confidence in levels:
        if "joint" in parts:
            yield from joint_cells(stages, confidence)
        if "pairs" in parts:
            yield from pair_cells(stages, confidence, finished)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default="mean,joint,shapes,pairs,widths")
    parser.add_argument("--draws", type=int, default=20_000, help="data sets per cell for the mean")
    parser.add_argument(
        "--screen", type=int, default=40, help="first draws per cell for everything else"
    )
    parser.add_argument(
        "--confirm", type=int, default=400, help="fresh draws per cell that looked suspicious"
    )
    parser.add_argument(
        "--settle", type=int, default=2000, help="fresh draws per cell that came close to the claim"
    )
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--columns", default=",".join(COLUMNS))
    parser.add_argument("--n", default="1,3,10,15,20,30,40,100,1000")
    parser.add_argument(
        "--json",
        type=Path,
        help="a line per cell is added to this file, of one part; shapes and pairs that it holds are not drawn again",
    )
    asked = parser.parse_args()
    started, console = time.process_time(), Console(highlight=False, soft_wrap=True)
    found = stored_cells(asked.json)
    finished = {(cell.table, cell.column, cell.n, cell.confidence) for cell in found}
    for _, group in groupby(cells(asked, finished), lambda cell: (cell.table, cell.column, cell.n)):
        place = list(group)
        found += place
        if asked.json:
            with asked.json.open("a") as lines:
                lines.writelines(json.dumps(asdict(cell)) + "\n" for cell in place)
    summarise(console, found)
    console.print(f"{time.process_time() - started:.0f} s of CPU time")
    if "widths" in asked.part.split(","):
        print_widths(console, 10, asked.tables.split(","))


def stored_cells(path: Path | None) -> list[Cell]:
    """Of an earlier call; a place is written when all its cells are known."""
    if path is None or not path.exists():
        return []
    return [Cell(**json.loads(line)) for line in path.read_text().splitlines()]


def summarise(console: Console, found: Sequence[Cell]) -> None:
    """Prints cells above the alarm line, and the worst of each quantity and level."""
    alarms = [cell for cell in found if cell.missed > cell.alarm]
    for cell in alarms:
        console.print(f"BELOW: {cell}")
    kinds = sorted({(cell.what.split(" ")[0], cell.confidence) for cell in found})
    for what, confidence in kinds:
        group = [
            cell
            for cell in found
            if (cell.what.split(" ")[0], cell.confidence) == (what, confidence)
        ]
        worst = max(group, key=lambda cell: cell.missed)
        draws = sum(cell.draws for cell in group)
        misses = sum(cell.misses for cell in group) / draws / (1 - confidence)
        console.print(
            f"{what} at {confidence:g}: {len(group)} cells, {draws} draws, all together missed {misses:.3f} of what is "
            f"allowed; worst: {worst}"
        )
    console.print(
        f"{len(alarms)} of {len(found)} cells above the alarm line; where the level holds each exceeds it with "
        f"chance {FALSE_ALARM:g}, some of them with {1 - (1 - FALSE_ALARM) ** len(found):.2g}."
    )


if __name__ == "__main__":
    main()
