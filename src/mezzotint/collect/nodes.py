"""What a distribution of inputs does to the codes, exactly, although inputs form a continuum; and the likelihood.

Between two breakpoints the pmf of a table is linear in x (T1), so any mass inside such a cell acts like masses on
the cell's two ends. A distribution on finitely many nodes therefore reaches exactly the code probabilities that
all distributions on [lower, upper] reach (docs/proofs/estimation.md, E3). Nothing here is a grid approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from mezzotint.collect.counts import CodeCounts
from mezzotint.core.loss import IndexArray
from mezzotint.core.mechanism import FloatArray, Mechanism

FINE_CELLS = 128
"""Cells of equal width laid over [lower, upper], besides the knots and the edges asked for."""

MAX_CODES = 64
"""More levels than this are merged into groups of neighbours first: fewer statistics, still a likelihood."""

REPORTS_PER_CODE = 20
"""Where a bound pays for every code, more levels than n / REPORTS_PER_CODE are merged, too."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes:
    """Extreme points of what inputs can do.

    Arguments:
        breaks: (S+1,) cell borders, increasing; no knot lies inside a cell.
        x: (J,) positions, data units; a jump of the table stands twice.
        first_cell, last_cell: (J,) the cells that each node is an end of.
        pmf: (J, c) probabilities of the codes (or groups of codes) from each node.
        counts: (c,) reports per code or group.
    """

    breaks: FloatArray
    x: FloatArray
    first_cell: IndexArray
    last_cell: IndexArray
    pmf: FloatArray
    counts: npt.NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.counts.sum())

    def with_counts(self, counts: npt.NDArray[np.int64]) -> Self:
        """The same nodes for other reports."""
        return replace(self, counts=counts)

    def widest(self) -> float:
        """Width of the widest cell, data units."""
        return float(np.diff(self.breaks).max())

    def inside(self, low: float, high: float) -> tuple[FloatArray, FloatArray]:
        """(J,) weights that bound the mass of the cells between two breaks from below and from above.

        Mass on a node may stand for mass of any cell that the node ends: it counts below only where all of them lie
        between `low` and `high`, above where any does.
        """
        start, stop = np.searchsorted(self.breaks, [low, high])
        all_in = (self.first_cell >= start) & (self.last_cell < stop)
        any_in = (self.last_cell >= start) & (self.first_cell < stop)
        return all_in.astype(np.float64), any_in.astype(np.float64)

    def mass_per_cell(self, masses: FloatArray) -> FloatArray:
        """(S,) the masses of the nodes, shared evenly by the cells they end."""
        cells = np.zeros(self.breaks.size - 1)
        np.add.at(cells, self.first_cell, masses / 2)
        np.add.at(cells, self.last_cell, masses / 2)
        return cells


def nodes_of(counts: CodeCounts, *, edges: FloatArray | None = None, sparing: bool = False) -> Nodes:
    """The nodes for one set of reports.

    Arguments:
        counts: the reports.
        edges: further breakpoints inside [lower, upper], data units.
        sparing: merge codes until every group has REPORTS_PER_CODE reports on average.
    """
    mechanism = counts.mechanism
    grid = np.linspace(mechanism.lower, mechanism.upper, FINE_CELLS + 1)
    breaks = np.unique(np.concatenate([grid, mechanism.knots, np.empty(0) if edges is None else edges]))
    breaks = breaks[(breaks >= mechanism.lower) & (breaks <= mechanism.upper)]
    left, right = breaks[:-1], breaks[1:]
    at_left, at_right = _ends(mechanism, left, right)
    cells = np.arange(left.size)
    # Where the table is continuous the right end of a cell and the left end of the next are one node.
    joined = np.append((at_right[:-1] == at_left[1:]).all(axis=1), False)
    starts = np.insert(~joined[:-1], 0, True)
    x = np.concatenate([left[starts], right])
    first = np.concatenate([cells[starts], cells])
    last = np.concatenate([cells[starts], np.where(joined, cells + 1, cells)])
    order = np.lexsort((first + last, x))
    group = _groups(counts, counts.n // REPORTS_PER_CODE if sparing else MAX_CODES)
    pmf = np.add.reduceat(np.concatenate([at_left[starts], at_right])[order], group, axis=1)
    return Nodes(
        breaks=breaks,
        x=x[order],
        first_cell=first[order],
        last_cell=last[order],
        pmf=pmf,
        counts=np.add.reduceat(counts.counts, group),
    )


def _ends(mechanism: Mechanism, left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    """pmf at the two ends of each cell, as limits from inside the cell: (S, m) each."""
    segment, _ = mechanism.locate((left + right) / 2)
    start, stop = mechanism.knots[segment], mechanism.knots[segment + 1]
    low, high = mechanism.probabilities[segment], mechanism.probabilities[segment + 1]

    def at(x: FloatArray) -> FloatArray:
        t = ((x - start) / (stop - start))[:, None]
        return (1 - t) * low + t * high

    return at(left), at(right)


def _groups(counts: CodeCounts, wanted: int) -> IndexArray:
    """First code of each group, chosen by the table alone: neighbours with about equal shares of the average row."""
    size = counts.mechanism.levels.size
    allowed = int(np.clip(wanted, 4, MAX_CODES))
    if size <= allowed:
        return np.arange(size)
    share = np.cumsum(counts.mechanism.probabilities.mean(axis=0))
    place = np.minimum((share - share[0]) / (share[-1] - share[0]) * allowed, allowed - 1).astype(np.intp)
    return np.flatnonzero(np.diff(place, prepend=-1))


# Likelihood --------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A distribution of inputs of (nearly) maximum likelihood.

    Arguments:
        masses: (J,) on the nodes, summing to 1.
        deviance: 2 n KL(observed shares || fitted shares) >= 0: how far the best fit is from the reports.
        gap: at most so far above the least possible deviance.
        iterations: steps of EM.
    """

    masses: FloatArray
    deviance: float
    gap: float
    iterations: int


def deviance(nodes: Nodes, masses: FloatArray) -> float:
    """2 n KL(observed shares || shares under `masses`), inf where an observed code is impossible."""
    observed, fitted = nodes.counts / nodes.n, masses @ nodes.pmf
    if (fitted[observed > 0] <= 0).any():
        return float("inf")
    # sum p log(p/q) = sum p log(p/q) - p + q, whose terms are >= 0 each: no cancellation at large n.
    ratio = np.divide(fitted, observed, out=np.ones_like(fitted), where=observed > 0)
    terms = observed * (ratio - 1 - np.log1p(ratio - 1)) + np.where(observed > 0, 0.0, fitted)
    return 2 * nodes.n * max(0.0, float(np.sum(terms)))


def smooth_fit(nodes: Nodes, *, gain: float = 1e-8, window: int = 50, max_iterations: int = 50_000) -> FloatArray:
    """(..., J) masses: plain EM from the uniform density, until the log-likelihood per report gains next to nothing.

    Stopping early is what keeps the density smooth where reports say little; the tolerance is that of the comparison in
    docs/proofs/estimation.md (E4). It depends on the shares of the codes alone, and does not overfit them.
    """
    shares = nodes.counts / nodes.counts.sum(axis=-1, keepdims=True)
    whole = _uniform(nodes)
    masses, left = np.atleast_2d(whole).copy(), np.arange(whole.size // nodes.x.size)
    observed = np.atleast_2d(shares)
    before = _log_likelihood(nodes.pmf, observed, masses)
    for _ in range(0, max_iterations, window):
        part = masses[left]
        for _ in range(window):
            part = _em(nodes.pmf, observed[left], part)
        masses[left] = part
        after = _log_likelihood(nodes.pmf, observed[left], part)
        gained = after - before[left] >= gain
        before[left] = after
        left = left[gained]
        if not left.size:
            break
    return masses.reshape(whole.shape)


def quick_fit(nodes: Nodes, *, steps: int) -> FloatArray:
    """(..., J) masses near the greatest likelihood, after so many steps of accelerated EM from the uniform density."""
    shares = nodes.counts / np.maximum(1, nodes.counts.sum(axis=-1, keepdims=True))
    masses = _uniform(nodes)
    for _ in range(0, steps, SQUAREM_STEPS):
        masses = _squarem(nodes.pmf, shares, masses)
    return masses


def _uniform(nodes: Nodes) -> FloatArray:
    """(..., J) masses of the uniform density, on the nodes that can have given any of these reports."""
    width = np.diff(nodes.breaks)
    masses = (width[nodes.first_cell] + width[nodes.last_cell]) / 2
    masses = np.where(nodes.first_cell == nodes.last_cell, masses / 2, masses)
    seen = (nodes.counts > 0).astype(np.float64)
    possible = (seen @ (nodes.pmf > 0).T > 0) | ~seen.any(axis=-1, keepdims=True)
    masses = np.where(possible, masses, 0.0)
    return masses / masses.sum(axis=-1, keepdims=True)


def fit(nodes: Nodes, *, tolerance: float = 1e-3, max_iterations: int = 5_000) -> Fit:
    """Maximum likelihood by EM from the uniform density, accelerated (SQUAREM), stopped by a bound on the gap.

    Arguments:
        nodes: with one set of reports.
        tolerance: stop when the deviance is provably within this of the least.
        max_iterations: EM steps at most; the result says what gap is left.

    Guarantees: the likelihood never decreases; `gap` is a true bound, whatever the number of steps.
    Edge cases: where the reports cannot tell two distributions apart, the one reached from the uniform density stands.

    Source: Dempster, Laird, Rubin 1977; Varadhan and Roland 2008 (SQUAREM); the bound: Lindsay 1983.
    """
    masses, shares = _uniform(nodes), nodes.counts / nodes.n
    steps, gap = 0, float("inf")
    while steps < max_iterations:
        masses = _squarem(nodes.pmf, shares, masses)
        steps += SQUAREM_STEPS
        gap = gap_at(nodes, masses)
        if gap <= tolerance:
            break
    return Fit(masses=masses, deviance=deviance(nodes, masses), gap=gap, iterations=steps)


def score(nodes: Nodes, masses: FloatArray) -> FloatArray:
    """(J,) derivative of the log-likelihood per report in each mass; at the maximum none exceeds 1."""
    return _score(nodes.pmf, nodes.counts / nodes.n, masses)


def gap_at(nodes: Nodes, masses: FloatArray) -> float:
    """Bound on how far the deviance of `masses` is above the least possible."""
    # The log-likelihood is concave: no distribution gains more than the steepest slope at this one.
    return max(0.0, 2 * nodes.n * (float(score(nodes, masses).max()) - 1))


# Steps of EM for any number of data sets at once: pmf (J, c), shares (..., c), masses (..., J).


def _score(pmf: FloatArray, shares: FloatArray, masses: FloatArray) -> FloatArray:
    return np.divide(shares, masses @ pmf, out=np.zeros_like(shares), where=shares > 0) @ pmf.T


def _em(pmf: FloatArray, shares: FloatArray, masses: FloatArray) -> FloatArray:
    moved = masses * _score(pmf, shares, masses)
    total = moved.sum(axis=-1, keepdims=True)
    return np.divide(moved, total, out=masses.copy(), where=total > 0)


def _log_likelihood(pmf: FloatArray, shares: FloatArray, masses: FloatArray) -> FloatArray:
    return xlogy(shares, masses @ pmf).sum(axis=-1)


SQUAREM_STEPS = 3
"""Steps of EM in one accelerated step."""


def _squarem(pmf: FloatArray, shares: FloatArray, start: FloatArray) -> FloatArray:
    one = _em(pmf, shares, start)
    two = _em(pmf, shares, one)
    first, second = one - start, two - 2 * one + start
    size = np.linalg.norm(second, axis=-1, keepdims=True)
    speed = np.linalg.norm(first, axis=-1, keepdims=True)
    length = -np.maximum(1.0, np.divide(speed, size, out=np.ones_like(size), where=size > 0))
    leap = start - 2 * length * first + length**2 * second
    # A leap out of the simplex is pulled back to where it stays inside, keeping every mass positive.
    leap = np.maximum(leap, two * 1e-3)
    leap = _em(pmf, shares, leap / leap.sum(axis=-1, keepdims=True))
    better = _log_likelihood(pmf, shares, leap) >= _log_likelihood(pmf, shares, two)
    return np.where(better[..., None], leap, two)
