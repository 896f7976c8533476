"""How often shares, medians and variances hold the truth: tables x columns x reports x levels.

Run: python benchmarks/coverage_shapes.py [--method asymptotic|safe] [--levels .8,.95]
     [--tables rr4,krr16e4] [--columns smooth] [--n 10,1000] [--json FILE]

Where few outcomes are likely all of them are summed: exact at every level. Else data sets are drawn,
half of them from a column's own law and half from laws tilted towards a miss, weighted by how much
likelier the own law makes them: so that high levels are tested by few draws. A quantity that missed
in more than .4 of what some level allows of the first draws gets more of them, and so on.

Only the end on the truth's side of the point is computed, as an interval holds its point. Where it
misses, the interval that users get decides.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
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
from scipy import special

from mezzotint import collect
from mezzotint.collect.bets import Betting
from mezzotint.collect.evidence import Evidence
from mezzotint.collect.support_points import SupportPoints, decoder_basis, dominating, nodes_of
from mezzotint.core.mechanism import Mechanism

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference.fits import fitted_together
from reference.outcomes import outcomes, probabilities

ROUNDING = 1e-12
MARGIN = 0.05
"""Of its length, by which a side that holds the truth leaves no doubt that those of higher levels
do.

They are longer, but not by proof: of 4,800 pairs of neighbouring levels 4 ends moved inwards, by .007
of the width at most.
"""

STAGES = ((40, 0.4), (160, 0.8), (600, math.inf))
"""Draws by the end of each look, and the misses, of those allowed, that call for the next one."""

MOST_SUMMED, MOST_SUMMED_OF_MANY = 700, 300
"""Outcomes that are summed, of two codes and of more."""

NEGLIGIBLE = 1e-9
"""Chance of an outcome that is not looked at, and counts as a miss."""

TILTS = (1.5, 2.5, 3.5)
"""Standard errors by which a tilted law moves the mean of a decoder."""

MOST_SLACK = 3.0
"""Standard errors between a decoder's mean and the truth, beyond which no law is tilted."""

OWN_SHARE = 0.5
"""Of the draws, from the column's own law."""


# Truths and verdicts -------------------------------------------------------------------------------


def truths(column: Column) -> dict[str, float]:
    """The quantities' true values."""
    values, shares = column
    mean = float(values @ shares)
    true = {"variance": float(shares @ (values - mean) ** 2)}
    for low, high in pairwise(EDGES):
        inside = (values >= low) & ((values < high) | (high == 1))
        true[f"share {low:g}..{high:g}"] = float(shares[inside].sum())
    order = np.argsort(values)
    true["median"] = float(values[order][np.searchsorted(np.cumsum(shares[order]), 0.5 - 1e-12)])
    return true


def edges_of(what: str) -> tuple[float, float]:
    low, high = what.split()[1].split("..")
    return float(low), float(high)


def interval_of(fit: Evidence, what: str) -> collect.Interval:
    """A quantity by the name that `truths` gives it."""
    if what.startswith("share"):
        return fit.share(*edges_of(what))
    if what == "variance":
        return fit.variance()
    return fit.quantile(0.5)


@dataclass(kw_only=True)
class FittedReports:
    """One data set: ends of its intervals at every level, each computed once and only if needed."""

    fit: Evidence
    fits: dict[float, Evidence] = field(default_factory=dict)
    points: dict[str, float] = field(default_factory=dict)
    ends: dict[tuple[str, bool, float], float] = field(default_factory=dict)

    def at(self, confidence: float) -> Evidence:
        """The same fit at a level."""
        if confidence not in self.fits:
            assert self.fit.bases, "dealt and fitted once, for all levels"
            other = copy.copy(self.fit)
            other.confidence = confidence
            other._known = {}
            self.fits[confidence] = other
        return self.fits[confidence]

    def point(self, what: str) -> float:
        if what not in self.points:
            self.points[what] = point_of(self.fit, what)
        return self.points[what]

    def end(self, what: str, confidence: float, *, upper: bool) -> float:
        """One end of a share or of the variance, before it holds the point."""
        key = what, upper, confidence
        if key not in self.ends:
            fit = self.at(confidence)
            if what == "variance":
                self.ends[key] = fit.variance_end(upper=upper)
            else:
                self.ends[key] = fit.share_end(*edges_of(what), upper=upper)
        return self.ends[key]

    def missed_levels(self, what: str, truth: float, levels: Sequence[float]) -> list[float]:
        """Levels, of increasing ones, whose interval does not hold the truth."""
        distance = truth - self.point(what)
        if abs(distance) <= ROUNDING:
            return []
        upper = distance > 0
        missed: list[float] = []
        for confidence in levels:
            fit = self.at(confidence)
            if what == "median":
                farther = truth - distance + distance / (1 - MARGIN)
                if not may_pass(fit, farther, upper=upper):
                    break
                passed = may_pass(fit, truth, upper=upper)
            else:
                side = abs(self.end(what, confidence, upper=upper) - truth + distance)
                outside = (self.end(what, confidence, upper=upper) < truth) == upper
                if not outside and side * (1 - MARGIN) >= abs(distance):
                    break
                passed = outside
            if not passed:
                continue
            interval = interval_of(fit, what)
            if not interval.low - ROUNDING <= truth <= interval.high + ROUNDING:
                missed.append(confidence)
        return missed


def point_of(fit: Evidence, what: str) -> float:
    """The point of an interval, without the interval."""
    if what == "variance":
        return float(fit.masses @ (fit.base.x - fit.centre) ** 2)
    if what.startswith("share"):
        cumulated = np.interp(edges_of(what), fit.base.breaks, fit.cumulated)
        return float(cumulated[1] - cumulated[0])
    breaks, cumulated = fit.base.breaks, fit.cumulated
    cell = int(np.clip(np.searchsorted(cumulated, 0.5) - 1, 0, breaks.size - 2))
    mass = max(cumulated[cell + 1] - cumulated[cell], 1e-300)
    position = np.clip((0.5 - cumulated[cell]) / mass, 0, 1)
    return float(breaks[cell] + position * (breaks[cell + 1] - breaks[cell]))


def may_pass(fit: Evidence, truth: float, *, upper: bool) -> bool:
    """Whether an end for the median may lie on the wrong side of a value.

    The search from outside gets beyond it only by a break whose test says so: the first beyond the
    value, or the first there that a stride leads to.
    """
    breaks = fit.base.breaks
    inner = np.arange(1, breaks.size - 1)
    beyond = breaks[inner] > truth
    if upper:
        inner = inner[::-1]
        beyond = breaks[inner] < truth
    if not beyond.any():
        return False
    first = int(np.argmax(beyond))
    for stride in sorted(set(fit.strides)):
        position = -(-(first + 1) // stride) * stride - 1
        if position >= inner.size:
            continue
        bound = fit._cdf(fit.greatest, int(inner[position]), greatest=not upper)
        if (bound >= 0.5) == upper:
            return True
    return False


# Sums over all outcomes ----------------------------------------------------------------------------


def summed_cells(
    name: str, mechanism: Mechanism, n: int, labels: Sequence[str], levels: Sequence[float]
) -> list[Cell] | None:
    """The cells of all columns, exactly; None where too many outcomes are likely."""
    codes = mechanism.levels.size
    if math.comb(n + codes - 1, codes - 1) > 2000:
        return None
    every = outcomes(n, codes)
    laws = {label: probabilities(every, shares_of(mechanism, COLUMNS[label])) for label in labels}
    likely = np.any([law > NEGLIGIBLE for law in laws.values()], axis=0)
    if likely.sum() > (MOST_SUMMED if codes == 2 else MOST_SUMMED_OF_MANY):
        return None
    many = [collect.CodeCounts(mechanism=mechanism, counts=counts) for counts in every[likely]]
    fits = fitted_together(many, confidence=levels[0], edges=np.array(EDGES))
    evidence = [FittedReports(fit=fit) for fit in fits]
    cells: list[Cell] = []
    for label, law in laws.items():
        chances = law[likely]
        for what, truth in truths(COLUMNS[label]).items():
            misses = dict.fromkeys(levels, 1 - float(chances[chances > NEGLIGIBLE].sum()))
            for outcome, chance in zip(evidence, chances.tolist(), strict=True):
                if chance <= NEGLIGIBLE:
                    continue
                for confidence in outcome.missed_levels(what, truth, levels):
                    misses[confidence] += chance
            cells += [
                Cell.summed(
                    table=name, column=label, n=n, what=what,
                    misses=misses[confidence], confidence=confidence,
                )
                for confidence in levels
            ]  # fmt: skip
    return cells


# Draws ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Laws of a report, and the share of the draws that each has: the first is the column's own."""

    laws: np.ndarray
    shares: np.ndarray

    def draw(self, n: int, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(D, c) counts, and (D,) how much likelier the column's own law makes them."""
        chosen = rng.choice(len(self.laws), p=self.shares, size=draws)
        counts = np.stack([rng.multinomial(n, self.laws[law]) for law in chosen])
        logs = special.xlogy(counts[:, None, :], self.laws[None]).sum(axis=2)
        mixed = special.logsumexp(logs + np.log(self.shares), axis=1)
        return counts, np.exp(logs[:, 0] - mixed)


def tilted(mechanism: Mechanism, column: Column, n: int, wanted: Sequence[str]) -> Mixture:
    """Laws under which the mean of a decoder, one for each quantity and side, is too small."""
    own = shares_of(mechanism, column)
    empty = collect.CodeCounts(mechanism=mechanism, counts=np.ones(own.size, dtype=np.int64))
    nodes = nodes_of(empty, edges=np.array(EDGES))
    laws = [own]
    if nodes.pmf.shape[1] == own.size:
        for what in wanted:
            for upper in (False, True):
                laws += towards_a_miss(nodes, column, own, n, what, upper=upper)
    shares = np.full(len(laws), (1 - OWN_SHARE) / max(1, len(laws) - 1))
    shares[0] = 1 - shares[1:].sum()
    return Mixture(laws=np.array(laws), shares=shares)


def towards_a_miss(
    nodes: SupportPoints,
    column: Column,
    own: np.ndarray,
    n: int,
    what: str,
    *,
    upper: bool,
) -> Iterator[np.ndarray]:
    """The law tilted against the decoder of one side, by each of TILTS."""
    true, (values, shares) = truths(column), column
    sign = 1 if upper else -1
    if what == "variance":
        centre = float(values @ shares)
        function, expected = sign * (nodes.x - centre) ** 2, sign * true["variance"]
    else:
        low, high = (0.0, true["median"]) if what == "median" else edges_of(what)
        index = min(int(np.searchsorted(nodes.breaks, high)), nodes.breaks.size - 1)
        inner, outer = nodes.inside(low, float(nodes.breaks[index]))
        function = outer if upper else -inner
        inside = (values >= low) & ((values < high) | (high == 1) | (what == "median"))
        expected = sign * float(shares[inside].sum())
    basis = decoder_basis(nodes.pmf, np.maximum(own, 1e-12))
    decoder = dominating(nodes.pmf, function, own, width=2 / math.sqrt(n), basis=basis)
    mean = float(own @ decoder)
    deviation = math.sqrt(max(0.0, float(own @ (decoder - mean) ** 2)))
    slack = (mean - expected) * math.sqrt(n) / deviation if deviation > ROUNDING else math.inf
    if slack > MOST_SLACK:
        return
    for tilt in TILTS:
        strength = (tilt + max(0.0, slack)) / (deviation * math.sqrt(n))
        exponents = -strength * (decoder - mean)
        law = own * np.exp(exponents - exponents.max())
        yield law / law.sum()


def drawn_cells(
    place: Mapping[str, object],
    mechanism: Mechanism,
    column: Column,
    n: int,
    levels: Sequence[float],
    method: str,
) -> Iterator[Cell]:
    """A cell per quantity and level, all of the same draws."""
    true = truths(column)
    bets = {(what, confidence): Bet(confidence) for what in true for confidence in levels}
    rng = seeded(11, n, str(place["table"]), str(place["column"]), method)
    before, active = 0, list(true)
    for draws, suspicious in STAGES:
        mixture = tilted(mechanism, column, n, active)
        counts, weights = mixture.draw(n, draws - before, rng)
        for fit, weight in zip(
            fits_of(mechanism, counts, levels[0], method, rng), weights, strict=True
        ):
            evidence = FittedReports(fit=fit)
            for what in active:
                missed = set(evidence.missed_levels(what, true[what], levels))
                for confidence in levels:
                    bets[what, confidence].add(float(weight) if confidence in missed else 0.0)
        before = draws
        active = [
            what
            for what in active
            if any(bets[what, confidence].missed > suspicious for confidence in levels)
        ]
        if not active:
            break
    for (what, _), bet in bets.items():
        yield bet.cell(**place, n=n, what=what)


def fits_of(
    mechanism: Mechanism,
    counts: np.ndarray,
    confidence: float,
    method: str,
    rng: np.random.Generator,
) -> Iterator[Evidence]:
    """The estimates of many data sets."""
    many = [collect.CodeCounts(mechanism=mechanism, counts=one) for one in counts]
    edges = np.array(EDGES)
    if method == "asymptotic":
        yield from fitted_together(many, confidence=confidence, edges=edges)
        return
    for one in many:
        deal = int(rng.integers(2**62))
        yield Betting(one, confidence=confidence, edges=edges, deal=deal)


# All -----------------------------------------------------------------------------------------------


def places(asked: argparse.Namespace, finished: set[tuple[str, str, int]]) -> Iterator[list[Cell]]:
    """The cells of each place that is not finished: by sums of all columns, or by draws of one."""
    levels = [float(confidence) for confidence in asked.levels.split(",")]
    labels = asked.columns.split(",")
    for n in map(int, asked.n.split(",")):
        for name in asked.tables.split(","):
            open_labels = [label for label in labels if (name, label, n) not in finished]
            if not open_labels:
                continue
            mechanism = TABLES[name]()
            summed = None
            if asked.method == "asymptotic":
                summed = summed_cells(name, mechanism, n, open_labels, levels)
            if summed is not None:
                yield summed
                continue
            for label in open_labels:
                place = {"table": name, "column": label}
                column = COLUMNS[label]
                yield list(drawn_cells(place, mechanism, column, n, levels, asked.method))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", choices=("asymptotic", "safe"), default="asymptotic")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--columns", default=",".join(COLUMNS))
    parser.add_argument("--n", default="1,3,10,30,100,1000")
    parser.add_argument("--json", type=Path, help="cells are kept there, and not made again")
    asked = parser.parse_args()
    started, console = time.process_time(), Console(highlight=False, soft_wrap=True)
    cells = stored_cells(asked.json)
    finished = {(cell.table, cell.column, cell.n) for cell in cells}
    for place in places(asked, finished):
        cells += place
        store_cells(asked.json, place)
    summarise(console, cells)
    console.print(f"{time.process_time() - started:.0f} s of CPU time")


if __name__ == "__main__":
    main()
