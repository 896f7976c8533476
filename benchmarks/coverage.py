"""How often intervals hold the truth, and how wide they are: tables x columns x reports x levels.

Run: python benchmarks/coverage.py [--part mean,joint,two-way,pairs,widths] [--draws D]
     [--levels .8,.95] [--tables rr4,krr16e4] [--columns smooth] [--n 10,1000] [--json FILE]

mean, two-way: whether the interval of a decoded report's mean holds it, D draws of every cell.
joint: all cells of a two-way table, and the means of six groups, at once; D draws.
pairs: differences (of means, shares, medians), strata, totals, covariances and slopes, through the
    functions that users call. Quantities that missed in more than .4 of what some level allows of
    the first draws get more of them, and so on.
widths: of shares, beside those of "safe" and of the square wave.

Shares, medians and variances of one column: benchmarks/coverage_shapes.py. What sums over all
outcomes can say stands in benchmarks/outcomes.py.
"""

from __future__ import annotations

if __name__ == "coverage":  # numba looks for the package of this name, and this folder comes first
    raise ImportError("a script")

import argparse
import copy
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
from coverage_cells import (
    COLUMNS,
    EDGES,
    LEVELS,
    TABLES,
    Bet,
    Cell,
    Column,
    seeded,
    shares_of,
    store_cells,
    stored_cells,
    summarise,
)
from rich.console import Console
from rich.table import Table

from mezzotint import collect, families
from mezzotint.collect.answers import GroupEvidence
from mezzotint.collect.evidence import Request
from mezzotint.collect.groups import Group, parts_of
from mezzotint.collect.intervals import (
    Sums,
    clopper_pearson,
    normal_quantile,
    score_widths,
    target_of_mean,
)
from mezzotint.collect.spreads import Spread
from mezzotint.core.mechanism import Mechanism

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference.fits import fitted_together
from reference.outcomes import score_accepts

STAGES = ((40, 0.4), (160, 0.8), (600, math.inf))
"""Draws by the end of each look, and the misses, of those allowed, that call for the next one."""

ROUNDING = 1e-12
MARGIN = 0.05
"""Of its width, by which an interval that holds the truth leaves no doubt that those of higher levels
do.

They are wider, but not by proof: of 4,800 pairs of neighbouring levels 4 ends moved inwards, by .007
of the width at most.
"""

FEWEST_OF_TOTAL = 4
"""Reports that a survey must expect, for its total to be measured: 20 n people are asked with chance
.02 and more."""


# Draws that accept the truth, all at once ----------------------------------------------------------


def counted_cell(missed: np.ndarray, often: np.ndarray, confidence: float, **place: object) -> Cell:
    """The cell of draws of which some missed, each as often as stated."""
    bet, draws, misses = Bet(confidence), int(often.sum()), int(often[missed].sum())
    bet.add_many(draws, misses)
    return bet.cell(**place)


def mean_held(
    mechanism: Mechanism, counts: np.ndarray, truth: float, confidence: float
) -> np.ndarray:
    """(D,) whether the interval of the expected report, of each data set, holds it."""
    target = target_of_mean(mechanism)
    if target.event is None:
        return score_accepts(mechanism, counts, truth, confidence)[0]
    hits, n = counts[:, target.event.codes].sum(axis=1), int(counts[0].sum())
    low, high = clopper_pearson(hits, n, (1 - confidence) / 2)
    (offset, slope), rounding = target.event.lower, ROUNDING * target.spread.reach
    return (offset + slope * low <= truth + rounding) & (truth - rounding <= offset + slope * high)


def mean_cells(
    name: str, mechanism: Mechanism, label: str, n: int, draws: int, levels: Sequence[float]
) -> Iterator[Cell]:
    """The share of draws whose interval holds the expected report: it is the hull of what a score
    accepts, or Clopper and Pearson's.

    The expected report is off the inputs' mean by at most the table's bias, by which the interval is
    widened.
    """
    shares = shares_of(mechanism, COLUMNS[label])
    truth = float(shares @ mechanism.levels)
    drawn = seeded(1, n, name, label).multinomial(n, shares, size=draws)
    every, often = np.unique(drawn, axis=0, return_counts=True)
    for confidence in levels:
        held = mean_held(mechanism, every, truth, confidence)
        place = {"table": name, "column": label, "n": n, "what": "mean"}
        yield counted_cell(~held, often, confidence, **place)


def accepted(
    pmf: np.ndarray, values: np.ndarray, counts: np.ndarray, truth: float, confidence: float
) -> np.ndarray:
    """(D,) whether the score interval of the mean of decoded reports, (D, c) counts, accepts it."""
    spread = Spread(pmf=pmf, values=values)
    n = int(counts[0].sum())
    means = counts @ values / n
    widths = score_widths(
        spread,
        Sums.of_counts(counts[0]),
        np.full(len(counts), truth),
        counts @ (values - truth) ** 2 / n,
        quantiles=np.array(normal_quantile(confidence)),
        reports_above=means > truth,
    )
    return np.abs(means - truth) <= widths + ROUNDING * spread.reach


def two_way_cells(draws: int, levels: Sequence[float]) -> Iterator[Cell]:
    """Every cell of two-way tables by itself, and all of them at once."""
    for k, m, epsilon, n in (
        (4, 3, 2.0, 500),
        (3, 3, 8.0, 20),
        (3, 3, 12.0, 1),
        (3, 3, 0.5, 5),
        (2, 4, 4.0, 50),
        (6, 5, 6.0, 100),
        (6, 5, 1.0, 2000),
    ):
        tables = [families.categorical(categories=range(size), epsilon=epsilon) for size in (k, m)]
        shares = np.outer(np.arange(k, 0, -1.0), np.arange(m, 0, -1.0)) ** 2
        shares[-1, -1] = 0.0
        shares /= shares.sum()
        pmf = np.kron(tables[0].probabilities, tables[1].probabilities)
        counts = seeded(4, n, k, m).multinomial(n, shares.ravel() @ pmf, size=draws)
        once = np.ones(draws, dtype=np.int64)
        for confidence in levels:
            each = 1 - (1 - confidence) / (k * m)
            out = np.zeros(draws, dtype=bool)
            place = {"table": f"{k} x {m}, {epsilon:g}", "n": n}
            for i in range(k):
                for j in range(m):
                    decoders = [
                        table.frequency_decoders[:, index]
                        for table, index in zip(tables, (i, j), strict=True)
                    ]
                    values, truth = np.outer(*decoders).ravel(), float(shares[i, j])
                    held = accepted(pmf, values, counts, truth, confidence)
                    out |= ~accepted(pmf, values, counts, truth, each)
                    yield counted_cell(
                        ~held, once, confidence, column=f"{i}, {j}", what="two-way", **place
                    )
            yield counted_cell(
                out, once, confidence, column="uneven", what="two-way-joint", **place
            )


def joint_cells(draws: int, levels: Sequence[float]) -> Iterator[Cell]:
    """The means of six groups, of sizes n, n / 2, ..., at once: each at Bonferroni's level."""
    labels = ["all 0", "90/10", "smooth", "2 % outliers", "ends", "all 1"]
    for name in ("rr1", "rr4", "opt4e1", "krr8e1", "krr4e5", "round4", "krr3e8"):
        mechanism = TABLES[name]()
        for n in (3, 10, 100, 1000):
            for confidence in levels:
                rng = seeded(6, n, name)
                each = 1 - (1 - confidence) / len(labels)
                out = np.zeros(draws, dtype=bool)
                for i, label in enumerate(labels):
                    shares = shares_of(mechanism, COLUMNS[label])
                    counts = rng.multinomial(max(1, n >> i), shares, size=draws)
                    every, where = np.unique(counts, axis=0, return_inverse=True)
                    truth = float(shares @ mechanism.levels)
                    held = mean_held(mechanism, every, truth, each)
                    out |= ~held[where.ravel()]
                place = {"table": name, "column": "six groups", "n": n, "what": "groups-joint"}
                yield counted_cell(out, np.ones(draws, dtype=np.int64), confidence, **place)


# Draws through the functions that users call -------------------------------------------------------

Truths = Mapping[str, float]
Draw = Callable[[str, float], collect.Interval]
"""The interval of a quantity at a level, of one draw."""

Experiment = tuple[Truths, Callable[[np.random.Generator], Draw]]
"""What is true, and a function that draws data sets."""


def missed_levels(draw: Draw, what: str, truth: float, levels: Sequence[float]) -> Iterator[float]:
    """Levels whose interval misses the truth.

    Where one holds it by a margin the higher levels, whose intervals are wider, are not looked at.
    """
    for confidence in levels:
        interval = draw(what, confidence)
        if not interval.low - ROUNDING <= truth <= interval.high + ROUNDING:
            yield confidence
            continue
        margin = MARGIN * (interval.high - interval.low)
        # An end at the very truth was cut to what is possible.
        is_above = interval.low + margin <= truth or abs(interval.low - truth) <= ROUNDING
        is_below = truth <= interval.high - margin or abs(interval.high - truth) <= ROUNDING
        if is_above and is_below:
            return


def cells_of(
    place: Mapping[str, object], experiment: Experiment, levels: Sequence[float]
) -> Iterator[Cell]:
    """One cell per quantity and level, all of the same draws."""
    true, run = experiment
    bets = {(what, confidence): Bet(confidence) for what in true for confidence in levels}
    rng = seeded(2, place["n"], place["table"], place["column"])
    before, active = 0, list(true)
    for draws, suspicious in STAGES:
        for _ in range(draws - before):
            draw = run(rng)
            for what in active:
                missed = set(missed_levels(draw, what, true[what], levels))
                for confidence in levels:
                    bets[what, confidence].add(float(confidence in missed))
        before = draws
        active = [
            what
            for what in active
            if any(bets[what, confidence].missed > suspicious for confidence in levels)
        ]
        if not active:
            break
    for (what, _), bet in bets.items():
        yield bet.cell(**place, what=what)


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
    )


def codes_of(mechanism: Mechanism, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A code per input."""
    return (mechanism.pmf(x).cumsum(axis=1) < rng.random(x.size)[:, None]).sum(axis=1)


SHARE, MEDIAN = "share above 0.3", "quantile 0.5"

SHAPED = ("cdf12e1", "krr16e4", "cdf16e.25", "stepped10e4", "opt4e4", "krr3e8", "far3")
"""Tables of which shares are compared; medians of the first two, as they cost most."""


@dataclass(kw_only=True)
class Groups:
    """Two groups: each part of both, as users get it, computed once and only if needed."""

    groups: Sequence[Group]
    known: dict[tuple[str, float], list[collect.Part]] = field(default_factory=dict)
    fits: dict[tuple[str, int], GroupEvidence] = field(default_factory=dict)

    def parts(self, what: str, confidence: float) -> list[collect.Part]:
        """The parts of both."""
        key = what, confidence
        if key not in self.known and what == "mean":
            self.known[key] = [parts_of(one, confidence=confidence)[what] for one in self.groups]
        elif key not in self.known:
            self.known[key] = [
                self.evidence(what, index, confidence).parts()[what]
                for index in range(len(self.groups))
            ]
        return self.known[key]

    def evidence(self, what: str, index: int, confidence: float) -> GroupEvidence:
        """A share or the median of a group, whose fit is the same at every level."""
        group = self.groups[index]
        if (what, index) not in self.fits:
            above, quantiles = ([0.3], None) if what == SHARE else (None, [0.5])
            request = Request.of(
                group.counts.mechanism, above=above, histogram=None, quantiles=quantiles
            )
            self.fits[what, index] = GroupEvidence.of(group, request, confidence=confidence)
        fitted = self.fits[what, index]
        assert fitted.evidence.bases, "dealt and fitted once, for all levels"
        evidence = copy.copy(fitted.evidence)
        evidence.confidence = confidence
        evidence._known = {}
        return GroupEvidence(evidence=evidence, request=fitted.request)


def facts_of(column: Column) -> dict[str, float]:
    """True mean, share above .3 and median."""
    values, shares = column
    order = np.argsort(values)
    cumulated = np.cumsum(shares[order])
    return {
        "mean": float(values @ shares),
        SHARE: float(shares[values >= 0.3].sum()),
        MEDIAN: float(values[order][np.searchsorted(cumulated, 0.5 - ROUNDING)]),
    }


def of_groups(
    name: str,
    columns: tuple[Column, Column],
    sizes: tuple[int, int],
    wanted: Sequence[str],
) -> Experiment:
    """Two groups: differences, and the mean of strata."""
    mechanism = TABLES[name]()
    facts = [facts_of(column) for column in columns]
    true = {f"difference-{what}": facts[0][what] - facts[1][what] for what in wanted}
    if "mean" in wanted:
        true["stratified"] = 0.2 * facts[0]["mean"] + 0.8 * facts[1]["mean"]

    def run(rng: np.random.Generator) -> Draw:
        counts = [
            rng.multinomial(size, shares_of(mechanism, column))
            for size, column in zip(sizes, columns, strict=True)
        ]
        both = Groups(
            groups=[group_of(mechanism, np.repeat(np.arange(one.size), one)) for one in counts]
        )

        def draw(what: str, confidence: float) -> collect.Interval:
            if what == "stratified":
                parts = both.parts("mean", confidence)
                return collect.stratified({"a": parts[0], "b": parts[1]}, {"a": 0.2, "b": 0.8})
            return collect.difference(*both.parts(what.removeprefix("difference-"), confidence))

        return draw

    return true, run


def of_same_people(name: str, columns: tuple[Column, Column], n: int) -> Experiment:
    """Two waves of the same people, whose inputs keep their order."""
    mechanism = TABLES[name]()
    facts = [facts_of(column) for column in columns]
    true = {f"same-people-{what}": facts[0][what] - facts[1][what] for what in facts[0]}

    def run(rng: np.random.Generator) -> Draw:
        ranks, words = rng.random(n), rng.random(n)
        groups = []
        for values, shares in columns:
            order = np.argsort(values)
            inputs = values[order][np.searchsorted(np.cumsum(shares[order]), ranks * (1 - 1e-12))]
            codes = (mechanism.pmf(inputs).cumsum(axis=1) < words[:, None]).sum(axis=1)
            groups.append(group_of(mechanism, codes))
        both = Groups(groups=groups)

        def draw(what: str, confidence: float) -> collect.Interval:
            parts = both.parts(what.removeprefix("same-people-"), confidence)
            return collect.difference(*parts, same_people=True)

        return draw

    return true, run


def of_survey(name: str, column: Column, n: int) -> Experiment:
    """The total of a population of 20 n people, taken with unequal chances."""
    mechanism = TABLES[name]()
    population = seeded(9, n).choice(column[0], p=column[1], size=20 * n)
    chances = np.clip(0.02 + 0.06 * population, 0, 1)

    def run(rng: np.random.Generator) -> Draw:
        asked = rng.random(population.size) < chances
        while not asked.any():  # a total needs a report
            asked = rng.random(population.size) < chances
        codes = codes_of(mechanism, population[asked], rng)
        group = group_of(mechanism, codes, 1 / chances[asked])

        def draw(what: str, confidence: float) -> collect.Interval:
            del what
            return collect.total(group, confidence=confidence)

        return draw

    return {"total": float(population.sum())}, run


def of_pairs(one: str, other: str, joint: np.ndarray, n: int) -> Experiment:
    """Covariance and slope of two columns of numbers.

    Arguments:
        joint: (N, 2) inputs, equally likely.
    """
    first, second = TABLES[one](), TABLES[other]()
    covariance = float(np.cov(joint.T, bias=True)[0, 1])
    true = {"covariance": covariance}
    if joint[:, 0].var() > ROUNDING:
        true["slope"] = covariance / float(joint[:, 0].var())
    shares = np.einsum("ni,nj->ij", first.pmf(joint[:, 0]), second.pmf(joint[:, 1])) / len(joint)

    def run(rng: np.random.Generator) -> Draw:
        counts = rng.multinomial(n, shares.ravel()).reshape(shares.shape)
        pairs = collect.PairCounts(first=first, second=second, counts=counts)
        relations: dict[float, collect.Relation] = {}

        def draw(what: str, confidence: float) -> collect.Interval:
            if confidence not in relations:
                relations[confidence] = collect.relation(pairs, confidence=confidence)
            if what == "covariance":
                return relations[confidence].covariance
            # Where the variance may be 0 any slope is possible.
            anything = collect.Interval(value=0.0, low=-np.inf, high=np.inf)
            return relations[confidence].slope or anything

        return draw

    return true, run


def pair_cases() -> Iterator[tuple[str, str, int, Callable[[], Experiment]]]:
    """Table, column, reports and experiment of every case."""
    rng = seeded(5)
    x = rng.beta(2, 5, 2000)
    together = np.stack([x, np.clip(0.6 * x + 0.4 * rng.random(2000), 0, 1)], axis=1)
    constant = np.stack([np.full(2000, 0.3), rng.random(2000)], axis=1)
    couples = {
        "smooth, 90/10": (COLUMNS["smooth"], COLUMNS["90/10"]),
        "constants": (COLUMNS["all 0"], COLUMNS["all .5"]),
        "2 % outliers, zero-inflated": (COLUMNS["2 % outliers"], COLUMNS["zero-inflated"]),
    }
    for name in ("rr1", "opt4e1", "krr16e4"):
        for n in (2, 40, 400):
            for label, columns in couples.items():
                sizes = n, 5 * n
                yield name, label, n, partial(of_groups, name, columns, sizes, ["mean"])
        for n in (4, 40, 400):
            yield name, "survey", n, partial(of_survey, name, COLUMNS["smooth"], n)
        for n in (2, 40, 400, 4000):
            for label, inputs in {"related": together, "one constant": constant}.items():
                yield f"{name} x 2", label, n, partial(of_pairs, name, name, inputs, n)
    for sizes in ((40, 200), (10, 10), (1000, 1000)):
        for label, columns in couples.items():
            for name in SHAPED:
                plus = f"{label}, {sizes[0]}+{sizes[1]}"
                yield name, plus, sizes[0], partial(of_groups, name, columns, sizes, [SHARE])
    for name in SHAPED[:2]:
        for n in (10, 300):
            columns = couples["smooth, 90/10"]
            yield name, "same people", n, partial(of_same_people, name, columns, n)
            for label, columns in couples.items():
                asked = partial(of_groups, name, columns, (n, n), [MEDIAN])
                yield name, f"medians, {label}", n, asked


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
    ours, others = (list(fitted_together(sets, confidence=0.95, edges=edges)) for sets in many)
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


# All ---------------------------------------------------------------------------------------------


def cells(asked: argparse.Namespace, finished: set[tuple[str, str, int]]) -> Iterator[Cell]:
    """Every cell of the grid, but those of pairs that are finished."""
    parts, sizes = asked.part.split(","), [int(n) for n in asked.n.split(",")]
    levels = [float(confidence) for confidence in asked.levels.split(",")]
    if "mean" in parts:
        for name in asked.tables.split(","):
            mechanism = TABLES[name]()
            for label in asked.columns.split(","):
                for n in sizes:
                    yield from mean_cells(name, mechanism, label, n, asked.draws, levels)
    if "two-way" in parts:
        yield from two_way_cells(asked.draws, levels)
    if "joint" in parts:
        yield from joint_cells(asked.draws, levels)
    if "pairs" in parts:
        for name, label, n, experiment in pair_cases():
            if (name, label, n) not in finished:
                place = {"table": name, "column": label, "n": n}
                yield from cells_of(place, experiment(), levels)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default="mean,two-way,joint,pairs,widths")
    parser.add_argument("--draws", type=int, default=20_000, help="data sets per cell of the score")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--columns", default=",".join(COLUMNS))
    parser.add_argument("--n", default="1,3,10,15,20,30,40,100,1000")
    parser.add_argument(
        "--json",
        type=Path,
        help="a line per cell is added to this file, of one part; pairs that it holds are not drawn again",
    )
    asked = parser.parse_args()
    started, console = time.process_time(), Console(highlight=False, soft_wrap=True)
    known = stored_cells(asked.json)
    finished = {(cell.table, cell.column, cell.n) for cell in known}
    for _, group in groupby(cells(asked, finished), lambda cell: (cell.table, cell.column, cell.n)):
        place = list(group)
        known += place
        store_cells(asked.json, place)
    summarise(console, known)
    console.print(f"{time.process_time() - started:.0f} s of CPU time")
    if "widths" in asked.part.split(","):
        print_widths(console, 10, asked.tables.split(","))


if __name__ == "__main__":
    main()
