"""What a distribution of inputs does to the codes, exactly, and all distributions that the reports do not rule out.

Between two breakpoints the pmf of a table is linear in x (T1), so any mass inside such a cell acts like masses on
the cell's two ends. A distribution on finitely many nodes therefore reaches exactly the code probabilities that
all distributions on [lower, upper] reach (docs/proofs/estimation.md, E3). Nothing here is a grid approximation.

An interval here is [least, greatest] of a quantity over the distributions whose deviance stays below a threshold.
What the table cannot tell apart stays apart in the interval: nothing is assumed smooth.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse
from scipy.special import xlogy

from mezzotint.collect.counts import CodeCounts
from mezzotint.core.errors import InfeasibleError
from mezzotint.core.loss import FloatArray, IndexArray
from mezzotint.core.mechanism import Mechanism

BoolArray = npt.NDArray[np.bool_]

FINE_CELLS = 128
"""Cells of equal width laid over [lower, upper], besides the knots and the edges requested."""

MAX_CODES = 64
"""More levels than this are merged into groups of neighbours first: fewer statistics, still a likelihood."""

REPORTS_PER_CODE = 20
"""Where a bound pays for every code, more levels than n / REPORTS_PER_CODE are merged, too."""


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


def nodes_of(
    counts: CodeCounts, *, edges: FloatArray | None = None, sparing: bool = False
) -> SupportPoints:
    """The nodes for one set of reports.

    Arguments:
        edges: further breakpoints inside [lower, upper], data units.
        sparing: merge codes until every group has REPORTS_PER_CODE reports on average.
    """
    mechanism = counts.mechanism
    grid = np.linspace(mechanism.lower, mechanism.upper, FINE_CELLS + 1)
    breaks = np.unique(
        np.concatenate([grid, mechanism.knots, np.empty(0) if edges is None else edges])
    )
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


def _groups(counts: CodeCounts, wanted: int) -> IndexArray:
    """First code of each group, chosen by the table alone: neighbours with about equal shares of the average row."""
    size = counts.mechanism.levels.size
    allowed = int(np.clip(wanted, 4, MAX_CODES))
    if size <= allowed:
        return np.arange(size)
    share = np.cumsum(counts.mechanism.probabilities.mean(axis=0))
    place = np.minimum((share - share[0]) / (share[-1] - share[0]) * allowed, allowed - 1).astype(
        np.intp
    )
    return np.flatnonzero(np.diff(place, prepend=-1))


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
    whole = _uniform(nodes)
    masses, left = np.atleast_2d(whole).copy(), np.arange(len(shares))
    before = _log_likelihood(nodes.pmf, shares, masses)
    for _ in range(0, max_iterations, _WINDOW):
        masses[left] = part = _em(nodes.pmf, shares[left], masses[left], steps=_WINDOW)
        after = _log_likelihood(nodes.pmf, shares[left], part)
        gained = after - before[left] >= _GAIN
        before[left] = after
        left = left[gained]
        if not left.size:
            break
    return masses.reshape(whole.shape)


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
    for steps in (0, 60, 600, 5_000):
        masses = _newton(nodes, quick_fit(nodes, steps=steps, start=masses))
        if gap_at(nodes, masses) <= _NEAR:
            break
    return masses


def _newton(nodes: SupportPoints, masses: FloatArray) -> FloatArray:
    best = deviance(nodes, masses)
    for _ in range(20):
        move = _newton_move(nodes, masses)
        if move is None:
            break
        trials = [np.maximum(masses + step * move, 0.0) for step in 0.5 ** np.arange(12)]
        values = [deviance(nodes, trial / trial.sum()) for trial in trials]
        place = int(np.argmin(values))
        gained = best - values[place]
        if not gained > 0:
            break
        masses, best = trials[place] / trials[place].sum(), values[place]
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


def _excess(x: float) -> float:
    return x - np.log1p(x)


def _reach(room: float) -> tuple[float, float]:
    """The two roots of x - log(1 + x) = room, one in (-1, 0), one above 0."""

    def short(x: float) -> float:
        return _excess(x) - room

    high = optimize.root_scalar(short, bracket=(1e-13, 4 * room + 4 * np.sqrt(room))).root
    nearest = -1 + 1e-16
    return optimize.root_scalar(short, bracket=(nearest, -1e-13)).root if short(
        nearest
    ) > 0 else -1.0, high


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ConfidenceSet:
    """Distributions whose deviance exceeds that of the best fit by at most `threshold`, and very few more.

    Arguments:
        nodes: what inputs can do.
        centre: (J,) masses of the best fit; `gap_at` of them widens the region, so a poor one only costs width.
        threshold: > 0, in units of deviance (twice the log-likelihood ratio).

    Guarantees: holds every distribution of deviance <= deviance(centre) + threshold, at any number of reports.
    """

    nodes: SupportPoints
    centre: FloatArray
    threshold: float

    @cached_property
    def _constraints(self) -> tuple[Any, FloatArray, list[object]]:
        # With y = fitted / best - 1 and f(y) = y - log(1 + y):
        #   (deviance - deviance(best)) / 2 = sum_i N_i f(y_i) - sum_i N_i y_i <= threshold / 2.
        # The second sum is at most gap / 2 as no distribution beats the best fit by more, so that every N_i f(y_i) is
        # at most (threshold + gap) / 2, hence low_i <= y_i <= high_i. There f(y) >= y^2 f(high) / high^2, as f(y) / y^2
        # falls in y: a second-order cone which holds the region, touches it at its extremes and is it at large N_i.
        nodes, size, gap = self.nodes, self.nodes.x.size, gap_at(self.nodes, self.centre)
        seen = nodes.counts > 0
        count = nodes.counts[seen].astype(np.float64)
        room = (self.threshold + gap) / (2 * count)
        low, high = np.array([_reach(float(r)) for r in room]).T
        weight = np.sqrt(count * 2 * room / self.threshold) / high
        ratio = (nodes.pmf[:, seen] / (self.centre @ nodes.pmf[:, seen])).T
        # Variables: the move d of the masses away from the centre, z = weight y = weight (ratio d), of order 1, and
        # spent = -2 sum N_i y_i / threshold = 2 n sum_j (1 - score_j) d_j / threshold, as the moves sum to 0.
        # The cone sum z^2 <= 1 - spent reads |(2 z, spent)| <= 2 - spent. Moves instead of masses keep digits at
        # large n, where the region is thin.
        codes = count.size
        lost = 2 * nodes.n / self.threshold * (1 - score(nodes, self.centre))
        tall, column = sparse.identity(codes), sparse.csc_matrix((codes, 1))
        blocks = [
            [np.ones((1, size)), None, None],
            [weight[:, None] * ratio, -tall, column],
            [lost[None], None, -np.ones((1, 1))],
            [-sparse.identity(size), None, None],
            [None, tall, None],
            [None, -tall, None],
            [None, None, np.ones((1, 1))],
            [None, None, -np.ones((1, 1))],
            [None, -2 * tall, None],
        ]
        right = [
            np.zeros(2 + codes),
            self.centre,
            weight * high,
            -weight * low,
            [2.0, 0.0],
            np.zeros(codes),
        ]
        cones = [
            clarabel.ZeroConeT(2 + codes),
            clarabel.NonnegativeConeT(size + 2 * codes),
            clarabel.SecondOrderConeT(codes + 2),
        ]
        return sparse.csc_matrix(sparse.bmat(blocks)), np.concatenate(right), cones

    def greatest(self, values: FloatArray, *, corners: BoolArray | None = None) -> float:
        """Greatest expectation of a function, (J,) at the nodes; raises InfeasibleError where the solver fails.

        Arguments:
            corners: (J,) nodes that suffice, as the function is nowhere above its chord from one to the next; None for
                all. Between them the table must be linear.
        """
        return self._maximise(values, None, corners)

    def least(self, values: FloatArray, *, corners: BoolArray | None = None) -> float:
        """Least expectation, as `greatest`."""
        return -self._maximise(-values, None, corners)

    def greatest_variance(self, *, corners: BoolArray | None = None) -> float:
        """Greatest variance of the input, squared data units: a concave quadratic, maximised as such."""
        return self._maximise(self._centred() ** 2, self._centred(), corners)

    def least_variance(self, *, corners: BoolArray | None = None) -> float:
        """A lower bound on the variance of the input, squared data units, short of the least by next to nothing.

        var X = min_c E(X - c)^2. On a ladder of c over the means in the region the least is missed by at most
        (half a rung)^2, and moving mass to the ends of its cell adds at most (half a cell)^2: both are given away.
        """
        x = self._centred()
        ladder = np.linspace(self.least(x, corners=corners), self.greatest(x, corners=corners), 9)
        rung = float(ladder[1] - ladder[0])
        found = min(self.least((x - c) ** 2) for c in ladder)
        return max(0.0, found - rung**2 / 4 - self.nodes.widest() ** 2 / 4)

    def _centred(self) -> FloatArray:
        return self.nodes.x - (self.nodes.x[0] + self.nodes.x[-1]) / 2

    def _at(self, corners: BoolArray) -> tuple[Any, FloatArray, list[object], FloatArray]:
        """The constraints, and the centre, of masses on some nodes alone, to which those between them are moved."""
        rows, right, cones = self._constraints
        seen, kept, x = int((self.nodes.counts > 0).sum()), np.flatnonzero(corners), self.nodes.x
        after = np.clip(np.searchsorted(kept, np.arange(x.size)), 1, kept.size - 1)
        start, width = x[kept[after - 1]], x[kept[after]] - x[kept[after - 1]]
        last = (kept[after] == np.arange(x.size)).astype(np.float64)
        share = np.divide(x - start, width, out=last, where=width > 0)
        centre = np.zeros(kept.size)
        np.add.at(centre, after, self.centre * share)
        np.add.at(centre, after - 1, self.centre * (1 - share))
        used = np.ones(rows.shape[0], dtype=bool)
        used[2 + seen : 2 + seen + x.size] = corners
        right = right[used]
        right[2 + seen : 2 + seen + kept.size] = centre
        fewer = clarabel.NonnegativeConeT(kept.size + 2 * seen)
        columns = np.append(kept, np.arange(x.size, rows.shape[1]))
        return rows[:, columns][used], right, [cones[0], fewer, cones[2]], centre

    def _maximise(
        self, values: FloatArray, square: FloatArray | None, corners: BoolArray | None = None
    ) -> float:
        """max of values.w - (square.w)^2 over the region."""
        (rows, right, cones), centre = self._constraints, self.centre
        if corners is not None:
            rows, right, cones, centre = self._at(corners)
            values, square = values[corners], None if square is None else square[corners]
        spare = rows.shape[1] - values.size
        offset, mean = float(values @ centre), 0.0 if square is None else float(square @ centre)
        # With w = centre + d: values.d - 2 mean (square.d) - (square.d)^2, and what it is at the centre.
        values = values if square is None else values - 2 * mean * square
        scale = float(np.abs(values).max()) or 1.0
        linear = np.append(-values / scale, np.zeros(spare))
        quadratic = None
        if square is not None:
            # One more variable, square.d / sqrt(scale), whose square is subtracted.
            defined = sparse.csc_matrix(
                np.concatenate([square / np.sqrt(scale), np.zeros(spare), [-1.0]])[None, :]
            )
            rows = sparse.vstack(
                [defined, sparse.hstack([rows, sparse.csc_matrix((rows.shape[0], 1))])]
            )
            right = np.append(0.0, right)
            cones = [clarabel.ZeroConeT(1), *cones]
            linear = np.append(linear, 0.0)
            quadratic = sparse.diags(np.append(np.zeros(linear.size - 1), 2.0))
        solution, status = cone_program(quadratic, linear, rows, right, cones)
        if status not in _SOLVED:
            raise InfeasibleError(
                f"estimate: the solver stopped ({status}); ask for fewer bins or another level"
            )
        # The dual value bounds the maximum from above.
        return offset - mean**2 - scale * min(solution.obj_val, solution.obj_val_dual)
