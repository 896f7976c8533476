"""What a distribution of inputs does to the codes, exactly, and the distributions that fit reports best.

Between two breakpoints the pmf of a table is linear in x (T1), so any mass inside such a cell acts like masses on
the cell's two ends. A distribution on finitely many nodes therefore reaches exactly the code probabilities that
all distributions on [lower, upper] reach (docs/proofs/estimation.md, E3). Nothing here is a grid approximation.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import xlogy

from mezzotint.collect.counts import CodeCounts
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray, IndexArray

FINE_CELLS = 128
"""Cells of equal width laid over [lower, upper], besides the knots and the edges requested."""

MAX_CODES = 64
"""More levels than this are merged into groups of neighbours first: fewer statistics, still a likelihood."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SupportPoints:
    """Extreme points of what inputs can do.

    Arguments:
        breaks: (S+1,) cell borders, increasing; no knot lies inside a cell.
        x: (J,) positions, data units; a jump of the table occurs twice.
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


def nodes_of(counts: CodeCounts, *, edges: FloatArray | None = None) -> SupportPoints:
    """The nodes for one set of reports.

    Arguments:
        edges: further breakpoints inside [lower, upper], data units.
    """
    mechanism = counts.mechanism
    grid = np.linspace(mechanism.lower, mechanism.upper, FINE_CELLS + 1)
    breaks = np.unique(
        np.concatenate([grid, mechanism.knots, np.empty(0) if edges is None else edges])
    )
    breaks = breaks[(breaks >= mechanism.lower) & (breaks <= mechanism.upper)]
    remaining, right = breaks[:-1], breaks[1:]
    at_left, at_right = _ends(mechanism, remaining, right)
    cells = np.arange(remaining.size)
    # Where the table is continuous the right end of a cell and the left end of the next are one node.
    joined = np.append((at_right[:-1] == at_left[1:]).all(axis=1), False)
    starts = np.insert(~joined[:-1], 0, True)
    x = np.concatenate([remaining[starts], right])
    first = np.concatenate([cells[starts], cells])
    last = np.concatenate([cells[starts], np.where(joined, cells + 1, cells)])
    order = np.lexsort((first + last, x))
    group = _groups(counts)
    pmf = np.add.reduceat(np.concatenate([at_left[starts], at_right])[order], group, axis=1)
    return SupportPoints(
        breaks=breaks,
        x=x[order],
        first_cell=first[order],
        last_cell=last[order],
        pmf=pmf,
        counts=np.add.reduceat(counts.counts, group),
    )


def _ends(
    mechanism: Mechanism, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """pmf at the two ends of each cell, as limits from inside the cell: (S, m) each."""
    segment, _ = mechanism.locate(
        left
    )  # not of the middle: between neighbouring floats that may be the next knot
    start, stop = mechanism.knots[segment], mechanism.knots[segment + 1]
    low, high = mechanism.probabilities[segment], mechanism.probabilities[segment + 1]

    def at(x: FloatArray) -> FloatArray:
        t = ((x - start) / (stop - start))[:, None]
        return (1 - t) * low + t * high

    return at(left), at(right)


def _groups(counts: CodeCounts) -> IndexArray:
    """First code of each group, chosen by the table alone: neighbours with about equal shares of the average row."""
    size = counts.mechanism.levels.size
    if size <= MAX_CODES:
        return np.arange(size)
    share = np.cumsum(counts.mechanism.probabilities.mean(axis=0))
    position = (share - share[0]) / (share[-1] - share[0]) * MAX_CODES
    index = np.minimum(position, MAX_CODES - 1).astype(np.intp)
    return np.flatnonzero(np.diff(index, prepend=-1))


# Likelihood --------------------------------------------------------------------------------------------------


def deviance(nodes: SupportPoints, masses: FloatArray) -> float:
    """2 n KL(observed shares || shares under `masses`), inf where an observed code is impossible."""
    observed, fitted = nodes.counts / nodes.n, masses @ nodes.pmf
    if (fitted[observed > 0] <= 0).any():
        return float("inf")
    # sum p log(p/q) = sum p log(p/q) - p + q, whose terms are >= 0 each: no cancellation at large n.
    ratio = np.divide(fitted, observed, out=np.ones_like(fitted), where=observed > 0)
    terms = observed * (ratio - 1 - np.log1p(ratio - 1)) + np.where(observed > 0, 0.0, fitted)
    return 2 * nodes.n * max(0.0, float(np.sum(terms)))


_GAIN, _WINDOW = 1e-8, 50
"""Plain EM stops when that many steps raise the log-likelihood per report by less."""


def smooth_fit(nodes: SupportPoints, *, max_iterations: int = 50_000) -> FloatArray:
    """(..., J) masses: plain EM from the uniform density, until the log-likelihood per report gains next to nothing.

    Stopping early is what keeps the density smooth where reports say little; the tolerance is that of the comparison in
    docs/proofs/estimation.md (E4). It depends on the shares of the codes alone, and does not overfit them.
    """
    shares = np.atleast_2d(nodes.counts / nodes.counts.sum(axis=-1, keepdims=True))
    total = _uniform(nodes)
    masses, remaining = np.atleast_2d(total).copy(), np.arange(len(shares))
    before = _log_likelihood(nodes.pmf, shares, masses)
    for _ in range(0, max_iterations, _WINDOW):
        masses[remaining] = portion = _em(
            nodes.pmf, shares[remaining], masses[remaining], steps=_WINDOW
        )
        after = _log_likelihood(nodes.pmf, shares[remaining], portion)
        gained = after - before[remaining] >= _GAIN
        before[remaining] = after
        remaining = remaining[gained]
        if not remaining.size:
            break
    return masses.reshape(total.shape)


def quick_fit(nodes: SupportPoints, *, steps: int, start: FloatArray | None = None) -> FloatArray:
    """(..., J) masses nearer the maximum likelihood, after `steps` steps of accelerated EM (SQUAREM).

    It starts from the uniform density, or other masses. The likelihood never decreases.

    Source: Dempster, Laird, Rubin 1977; Varadhan and Roland 2008 (SQUAREM).
    """
    shares = nodes.counts / np.maximum(1, nodes.counts.sum(axis=-1, keepdims=True))
    masses = _uniform(nodes) if start is None else start
    for _ in range(0, steps, SQUAREM_STEPS):
        masses = _squarem(nodes.pmf, shares, masses)
    return masses


def _uniform(nodes: SupportPoints) -> FloatArray:
    """(..., J) masses of the uniform density, on the nodes that can have given any of these reports."""
    width = np.diff(nodes.breaks)
    masses = (width[nodes.first_cell] + width[nodes.last_cell]) / 2
    masses = np.where(nodes.first_cell == nodes.last_cell, masses / 2, masses)
    seen = (nodes.counts > 0).astype(np.float64)
    possible = (seen @ (nodes.pmf > 0).T > 0) | ~seen.any(axis=-1, keepdims=True)
    masses = np.where(possible, masses, 0.0)
    return masses / masses.sum(axis=-1, keepdims=True)


def score(nodes: SupportPoints, masses: FloatArray) -> FloatArray:
    """(J,) derivative of the log-likelihood per report in each mass; at the maximum none exceeds 1."""
    shares = nodes.counts / nodes.n
    return (
        np.divide(shares, masses @ nodes.pmf, out=np.zeros_like(shares), where=shares > 0)
        @ nodes.pmf.T
    )


def gap_at(nodes: SupportPoints, masses: FloatArray) -> float:
    """Bound on how far the deviance of `masses` is above the least possible."""
    # The log-likelihood is concave: no distribution gains more than the steepest slope at this one.
    return max(0.0, 2 * nodes.n * (float(score(nodes, masses).max()) - 1))


# Steps of EM for any number of data sets at once: pmf (J, c), shares (..., c), masses (..., J).


def _em(pmf: FloatArray, shares: FloatArray, masses: FloatArray, *, steps: int = 1) -> FloatArray:
    # Arrays are made once, not in every step: they are so small that making them costs more than the arithmetic.
    masses, codes = masses.copy(), pmf.T
    seen, some = (
        True if which.all() else which for which in (shares > 0, shares.any(axis=-1, keepdims=True))
    )
    fitted, ratio, moved = np.empty(shares.shape), np.zeros_like(shares), np.empty(masses.shape)
    for _ in range(steps):
        np.matmul(masses, pmf, out=fitted)
        np.divide(shares, fitted, out=ratio, where=seen)
        np.matmul(ratio, codes, out=moved)
        np.multiply(masses, moved, out=moved)
        np.divide(moved, np.add.reduce(moved, axis=-1, keepdims=True), out=masses, where=some)
    return masses


def _log_likelihood(pmf: FloatArray, shares: FloatArray, masses: FloatArray) -> FloatArray:
    return xlogy(shares, masses @ pmf).sum(axis=-1)


SQUAREM_STEPS = 3
"""Steps of EM in one accelerated step."""


def _squarem(pmf: FloatArray, shares: FloatArray, start: FloatArray) -> FloatArray:
    one = _em(pmf, shares, start)
    two = _em(pmf, shares, one)
    first, second = one - start, two - 2 * one + start
    size, speed = (
        np.sqrt(np.add.reduce(move * move, axis=-1, keepdims=True)) for move in (second, first)
    )
    length = -np.maximum(1.0, np.divide(speed, size, out=np.ones_like(size), where=size > 0))
    leap = start - 2 * length * first + length**2 * second
    # A leap out of the simplex is pulled back to where it stays inside, keeping every mass positive.
    leap = np.maximum(leap, two * 1e-3)
    leap = _em(pmf, shares, leap / leap.sum(axis=-1, keepdims=True))
    better = _log_likelihood(pmf, shares, leap) >= _log_likelihood(pmf, shares, two)
    return np.where(better[..., None], leap, two)


clarabel: Any = importlib.import_module("clarabel")  # a compiled module without type information

_SOLVED = ("Solved", "AlmostSolved")


def cone_program(
    quadratic: sparse.spmatrix | None,
    linear: FloatArray,
    rows: Any,
    right: FloatArray,
    cones: list[object],
) -> tuple[Any, str]:
    """min 1/2 z'Pz + q'z with right - rows z in the cones; rows are dense, or sparse by columns."""
    square = _no_quadratic(linear.size) if quadratic is None else sparse.csc_matrix(quadratic)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    solution = clarabel.DefaultSolver(
        square, linear, _by_columns(rows), right, cones, settings
    ).solve()
    return solution, str(solution.status)


@lru_cache(maxsize=32)
def _no_quadratic(size: int) -> sparse.csc_matrix:
    return sparse.csc_matrix((size, size))


def _by_columns(rows: Any) -> sparse.csc_matrix:
    if sparse.issparse(rows):
        return sparse.csc_matrix(rows)
    columns, used = rows.T, rows.T != 0  # made by hand in half of scipy's time
    starts = np.append(np.int32(0), np.cumsum(used.sum(axis=1), dtype=np.int32))
    return sparse.csc_matrix(
        (columns[used], np.nonzero(used)[1].astype(np.int32), starts), shape=rows.shape
    )


_NEAR = 1e-3
"""Newton steps that end at a greater `gap_at` than this have stalled."""


def least_deviance(nodes: SupportPoints, *, start: FloatArray | None = None) -> FloatArray:
    """Node masses of maximum likelihood, by Newton steps on the simplex; where these stall, EM takes some between.

    Arguments:
        start: masses to begin with; None for a few steps of EM.

    Edge cases: where the reports cannot tell two distributions apart, any of them.

    Source: Kim, Carbonetto, Stephens, Anitescu 2020 (mix-SQP), each step a quadratic program with the fitted shares
    as variables of their own.
    """
    masses = quick_fit(nodes, steps=60) if start is None else start
    nearest, smallest = masses, math.inf
    for steps in (0, 60, 600, 5_000):
        climbed = quick_fit(nodes, steps=steps, start=masses)
        masses = _newton(nodes, climbed)
        # Next to the peak the solver's error may cost a step more than it gains: the one proved nearest counts.
        for candidate in (climbed, masses):
            gap = gap_at(nodes, candidate)
            if gap < smallest:
                nearest, smallest = candidate, gap
        if smallest <= _NEAR:
            break
    return nearest


def _newton(nodes: SupportPoints, masses: FloatArray) -> FloatArray:
    best = deviance(nodes, masses)
    for _ in range(20):
        move = _newton_move(nodes, masses)
        if move is None:
            break
        trials = [np.maximum(masses + step * move, 0.0) for step in 0.5 ** np.arange(12)]
        values = [deviance(nodes, trial / trial.sum()) for trial in trials]
        index = int(np.argmin(values))
        gained = best - values[index]
        if not gained > 0:
            break
        masses, best = trials[index] / trials[index].sum(), values[index]
        if gained < 1e-6:
            break
    return masses


def _newton_move(nodes: SupportPoints, masses: FloatArray) -> FloatArray | None:
    """The move d of the masses that is best for the likelihood's second-order model; None when the solver fails."""
    # With fitted / current - 1 = y = ratio d, the log-likelihood gains sum N_i (y_i - y_i^2 / 2) to second order.
    # z = sqrt(N) y is of order 1 at the scale that matters, and sum N_i y_i = n sum_j (score_j - 1) d_j as moves sum
    # to 0: no large numbers that cancel.
    seen, size = nodes.counts > 0, masses.size
    root = np.sqrt(nodes.counts[seen].astype(np.float64))
    ratio = (nodes.pmf[:, seen] / (masses @ nodes.pmf[:, seen])).T
    codes = root.size
    rows = sparse.bmat(
        [
            [root[:, None] * ratio, -sparse.identity(codes)],
            [np.ones((1, size)), None],
            [-sparse.identity(size), None],
        ]
    )
    quadratic = sparse.block_diag([sparse.csc_matrix((size, size)), sparse.identity(codes)])
    linear = np.concatenate([-nodes.n * (score(nodes, masses) - 1), np.zeros(codes)])
    right = np.concatenate([np.zeros(codes + 1), masses])
    cones = [clarabel.ZeroConeT(codes + 1), clarabel.NonnegativeConeT(size)]
    scale = max(1.0, float(np.abs(linear).max()) / 1e3)
    solution, status = cone_program(quadratic / scale, linear / scale, rows, right, cones)
    return np.array(solution.x[:size]) if status in _SOLVED else None
