"""Mean, variance, shares and quantiles of the inputs behind a set of reports: points, intervals, and what stays open.

A decoder a, one number per code, whose expected value from every input is at least v(input) has a mean report of at
least E v, whatever the inputs are. The best one for the reports at hand is a small cone program. It is chosen on some
of the reports and evaluated on others, four times over, so that no choice flatters itself (proofs/estimation.md, E4).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from scipy import special

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.intervals import (
    SAME_CHANCE,
    WIDER,
    Event,
    Interval,
    Spread,
    Sums,
    spread_of,
    target_of_mean,
    within,
)
from mezzotint.collect.nodes import (
    SupportPoints,
    clarabel,
    cone_program,
    nodes_of,
    quick_fit,
    smooth_fit,
)
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray

Method = Literal["asymptotic", "safe"]

# The mean ------------------------------------------------------------------------------------------------------


def report_moments(counts: CodeCounts) -> tuple[float, float]:
    """Mean of the decoded reports, and the unbiased variance of one, not less than the table's least.

    The second is at least the true least variance of a report whatever the inputs are, so few reports that happen to
    agree do not suggest that there is no noise. Of a single report it is the greatest variance of a row.
    """
    levels, n = counts.mechanism.levels, counts.n
    centre = float(levels[np.argmax(counts.counts)])
    mean = centre + float(counts.counts @ (levels - centre)) / n
    variances = spread_of(counts.mechanism).variances
    if n < 2:
        return mean, float(variances.max())
    variance = float(counts.counts @ (levels - mean) ** 2) / (n - 1)
    return mean, max(variance, float(variances.min()))


def mean_interval(counts: CodeCounts, *, confidence: float, method: Method) -> Interval:
    """The mean of the clipped inputs, unbiased up to the table's `max_bias`, which the interval includes.

    Of two levels it is Clopper and Pearson's interval, by either method: proved at every n. Of more
    it is the score interval, or by method "safe" that of Bernstein's inequality, proved at every n.
    """
    target, reports = target_of_mean(counts.mechanism), Sums.of_counts(counts.counts)
    value, bias = target.value(reports), counts.mechanism.max_bias
    if method == "asymptotic" or target.proved:
        low, high = target.interval(reports, confidence=confidence)
    else:
        width = bernstein(target.spread, n=counts.n, confidence=confidence)
        low, high = value - width, value + width
    return possible_mean(counts.mechanism, value, low - bias, high + bias)


def possible_mean(table: Mechanism, mean: float, low: float, high: float) -> Interval:
    """The interval within the range, where the mean of clipped inputs lies for sure; it keeps the unbiased estimate.

    What the bias of the table leaves open is `identified`, where it is more than rounding.
    """
    ends = np.clip([mean - table.max_bias, mean + table.max_bias], table.lower, table.upper)
    biased = table.max_bias > 1e-6 * (table.upper - table.lower)
    identified = (float(ends[0]), float(ends[1])) if biased else None
    return replace(
        within(mean, low, high, bounds=(table.lower, table.upper)), identified=identified
    )


def safe_half_width(mechanism: Mechanism, *, n: int, confidence: float) -> float:
    """Half the width that holds at every n >= 1, data units: known before any report is collected.

    Arguments:
        mechanism: a table of numbers.
        n: reports.
        confidence: in (0, 1).

    Returns: data units.

    Source: Bernstein's inequality for independent bounded variables.

    Example:
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> round(mz.collect.safe_half_width(mechanism, n=10_000, confidence=0.95), 3)
        0.03
    """
    return bernstein(spread_of(mechanism), n=n, confidence=confidence) + mechanism.max_bias


def bernstein(spread: Spread, *, n: int, confidence: float) -> float:
    """Half the width of an interval for the expected value of a decoded report, at every n >= 1."""
    # P(|mean - E mean| >= t) <= 2 exp(-n t^2 / (2 v + 2 R t / 3)) with v >= the average variance and R >= |B - E B|;
    # setting the right side to 1 - level gives a quadratic in t.
    lowest, highest = float(spread.means.min()), float(spread.means.max())
    reach = max(spread.top - lowest, highest - spread.bottom)
    log = math.log(2 / (1 - confidence))
    linear = reach * log / 3
    return (linear + math.sqrt(linear**2 + 2 * n * spread.greatest_of_all * log)) / n


FOLDS = 4
FOLD_SEED = 20240611
"""Part of the method: whoever tries several seeds and picks an interval cheats. Deals reports into folds."""

FLOOR = 0.02
"""Weight of the average row in the shares that a decoder is optimised for, so that no code is thought impossible."""

_CANDIDATES = 513
"""Expected values of a decoder that are tried against the reports."""

STEPS = 200
"""EM steps per fold. A worse fit makes a wider interval, never a wrong one."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """One part of the reports: (c,) counts, and its share of all. The other parts alone say the rest:

    (c,) expected shares of the codes, and the mean of the inputs, data units.
    """

    counts: npt.NDArray[np.int64]
    share: float
    expected: FloatArray
    centre: float


def folds_of(nodes: SupportPoints) -> list[tuple[Fold, ...]]:
    """Reports of each data set, (D, c) counts, dealt into FOLDS parts at random, one by one; empty parts left out.

    Guarantees: depends on a data set's counts alone; parts are independent of each other given their sizes.
    """
    deals = (
        np.random.default_rng(FOLD_SEED).multinomial(counts, [1 / FOLDS] * FOLDS)
        for counts in nodes.counts
    )
    parts = np.stack([deal.T for deal in deals])
    fitted = quick_fit(nodes.with_counts(nodes.counts[:, None] - parts), steps=STEPS)
    expected = (1 - FLOOR) * (fitted @ nodes.pmf) + FLOOR * nodes.pmf.mean(axis=0)
    shares = parts.sum(axis=-1) / nodes.counts.sum(axis=-1, keepdims=True)
    centres = fitted @ nodes.x
    return [
        tuple(
            Fold(counts=fold, share=float(share), expected=codes, centre=float(centre))
            for fold, share, codes, centre in zip(*of_set, strict=True)
            if share
        )
        for of_set in zip(parts, shares, expected, centres, strict=True)
    ]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Bounds:
    """Interval ends of expectations over the inputs, by all (c,) reports and their folds.

    `rows` is the (K, c) pmf at the knots, of which those at all inputs are mixtures.
    """

    counts: npt.NDArray[np.int64]
    folds: Sequence[Fold]
    rows: FloatArray

    @cached_property
    def _bases(self) -> list[FloatArray]:
        return [decoder_basis(self.rows, fold.expected) for fold in self.folds]

    def upper(
        self, pmf: FloatArray, function: Callable[[Fold], FloatArray], *, tail: float
    ) -> float:
        """Upper end of the interval of E v at one-sided error `tail`.

        Arguments:
            pmf: (J, c) codes from the inputs at which the decoder must dominate: v at any other input is at most what
                it is on the chord between two of them that lie in one segment of the table.
            function: (J,) v there; of a fold, where v follows from the other folds.
            tail: in (0, 1/2).

        Guarantees: each decoder dominates v, so that the mean of its reports is an upper estimate at every n; the
            normal width around it is verified by simulation (benchmarks/coverage.py), not proved.
        """
        n, z = int(self.counts.sum()), float(special.ndtri(1 - tail)) + WIDER
        total = largest = skewness = 0.0
        top, parts = -math.inf, []
        for fold, basis in zip(self.folds, self._bases, strict=True):
            wanted = function(fold)
            top = max(top, float(wanted.max()))
            decoder = dominating(pmf, wanted, fold.expected, width=z / math.sqrt(n), basis=basis)
            spread = Spread(pmf=self.rows, values=decoder)
            greatest = spread.greatest_of_all
            mean = float(self.counts @ decoder) / n
            seen = float(self.counts @ (decoder - mean) ** 2) / n
            total += float(fold.counts @ decoder) / n
            # Where no inputs make both ends of the decoder common, one is rare whatever the inputs are: its reports are
            # a Poisson count of jumps, k of which do not rule out k + z^2/2 + z sqrt(k + z^2/4).
            rare = 1 - 4 * greatest / spread.reach**2 if spread.reach > 0 else 0.0
            unseen = max(4 * greatest, rare * (z * spread.reach / 2) ** 2)
            parts.append((fold.share, spread, mean, seen, unseen))
            largest += fold.share * (n * max(seen, greatest) + unseen) / (n + 4)
            if greatest > 0:
                lopsided = spread.reach * (1 - float(spread.variances.min()) / greatest)
                skewness += fold.share * lopsided * (1 + rare * (z**2 / 2 - 1))
        # How far above its reports an expected value may lie; there a report varies by what the table demands at least.
        away = np.linspace(0.0, z * math.sqrt(largest / n) + skewness / n, _CANDIDATES)
        variance = np.zeros(_CANDIDATES)
        for share, spread, mean, seen, unseen in parts:
            variance += share * (n * np.maximum(seen, spread.least(mean + away)) + unseen) / (n + 4)
        widths = z * np.sqrt(variance / n) + skewness / n
        return min(top, total + max(float(widths[0]), float(away[away <= widths].max())))


def greatest_expectation(pmf: FloatArray, values: FloatArray, shares: FloatArray) -> float:
    """Greatest E v over all distributions of inputs that give the codes exactly these shares."""
    return min(float(values.max()), float(dominating(pmf, values, shares, width=0.0) @ shares))


def dominating(
    pmf: FloatArray,
    values: FloatArray,
    shares: FloatArray,
    *,
    width: float,
    basis: FloatArray | None = None,
) -> FloatArray:
    """The decoder a, pmf a >= values, of the least shares.a + width * (standard deviation of a under the shares).

    Arguments:
        pmf: (J, c) of the inputs that have these (J,) values.
        shares: (c,) >= 0, summing to 1.
        basis: `decoder_basis` of rows that those of the pmf are mixtures of; None for its own.

    Guarantees: pmf a >= values whatever the solver does: its answer is lifted until it holds, with a margin for
        rounding; where it has none the constant max(values) stands in. A failure costs width, never validity, and
        raises nothing.
    """
    top = float(values.max())
    constant = np.full(shares.size, top)
    scale = top - float(values.min())
    used = pmf.any(axis=0)
    if scale == 0:
        return constant
    if width > 0 and basis is None:
        basis = decoder_basis(pmf, shares)
    solution = _solve(
        pmf[:, used],
        (values - top) / scale,
        shares[used],
        width,
        None if basis is None else basis[used],
    )
    if solution is None:
        return constant
    decoder = constant.copy()
    decoder[used] += scale * solution
    shortfall = float((values - pmf @ decoder).max())
    decoder += max(0.0, shortfall) + 1e-12 * float(np.abs(decoder).max())
    return decoder if _cost(decoder, shares, width) <= top else constant


def decoder_basis(rows: FloatArray, shares: FloatArray) -> FloatArray:
    """(c, r) decoders whose combinations are all that their means tell apart, uncorrelated under the shares.

    The first is constant, of square 1, the others have mean 0 and variance 1 under the shares, and r <= c. No decoder
    with the same means from all (K, c) rows varies less, as the shares are a mixture of the rows.
    """
    root = np.sqrt(np.maximum(shares, 1e-24))
    return np.linalg.qr(np.vstack([root, rows / root]).T)[0] / root[:, None]


def _cost(decoder: FloatArray, shares: FloatArray, width: float) -> float:
    mean = float(shares @ decoder)
    return mean + width * math.sqrt(max(0.0, float(shares @ (decoder - mean) ** 2)))


def _solve(
    pmf: FloatArray, values: FloatArray, shares: FloatArray, width: float, basis: FloatArray | None
) -> FloatArray | None:
    cones = [clarabel.NonnegativeConeT(values.size)]
    if basis is None:
        solution, _ = cone_program(None, shares, -pmf, -values, cones)
        found = np.array(solution.x)
    else:
        # By its coordinates y in the basis, a decoder has mean +-y_0 and standard deviation |(y_1, ...)|.
        size = basis.shape[1]
        rows = np.zeros((values.size + size, size + 1))
        rows[: values.size, :size] = -pmf @ basis
        rows[values.size, size] = -1.0
        rows[values.size + 1 :, 1:size] = -np.identity(size - 1)
        right = np.append(-values, np.zeros(size))
        cones.append(clarabel.SecondOrderConeT(size))
        solution, _ = cone_program(None, np.append(shares @ basis, width), rows, right, cones)
        found = basis @ solution.x[:size]
    return found if np.isfinite(found).all() else None


Edges = tuple[float, float]


class Shapes(ABC):
    """The evidence of one set of reports about the distribution of the inputs.

    Points come from one fit that knows of no edges, so that they do not depend on what is requested. An interval holds
    its point, what the table leaves open at the fitted shares of the codes, and the bounds of the method.

    Arguments:
        edges: the edges of all shares that will be requested, inside [lower, upper], data units.
        masses: the fit, if it is known already.
    """

    strides: tuple[int, ...] = (8, 1)
    """Quantiles are searched for among every eighth break first."""

    def __init__(
        self,
        counts: CodeCounts,
        *,
        confidence: float,
        edges: FloatArray | None,
        masses: FloatArray | None = None,
    ) -> None:
        self.counts, self.confidence, self.edges = counts, confidence, edges
        self.base = nodes_of(counts)
        self.nodes = self.base if edges is None else nodes_of(counts, edges=edges)
        self.masses = smooth_fit(self.base) if masses is None else masses
        self.shares = self.masses @ self.base.pmf
        self.centre = float(self.masses @ self.base.x)
        self.cumulated = np.concatenate([[0.0], np.cumsum(self.base.mass_per_cell(self.masses))])
        self._known: dict[tuple[str, int, bool], float] = {}

    # Requests -------------------------------------------------------------------------------------------

    def variance(self) -> Interval:
        """Of the inputs, squared data units."""
        nodes, square = self.base, (self.base.x - self.centre) ** 2
        room = float((nodes.x[-1] - nodes.x[0]) ** 2) / 4
        left_open = (
            -greatest_expectation(nodes.pmf, -square, self.shares) - nodes.widest() ** 2 / 4,
            greatest_expectation(nodes.pmf, square, self.shares),
        )
        value = float(self.masses @ square)
        return _around(value, self._variance_ends(), left_open, (0.0, room))

    def share(self, low: float, high: float) -> Interval:
        """Of the inputs between two of the edges."""
        value = float(np.diff(np.interp([low, high], self.base.breaks, self.cumulated))[0])
        inner, outer = self.nodes.inside(low, high)
        left_open = (-self._open(-inner, (low, high)), self._open(outer, (low, high)))
        event = self.event_of_share(low, high)
        if event is None:
            ends = (-self._greatest(-inner, (low, high)), self._greatest(outer, (low, high)))
        else:
            reports = Sums.of_counts(self.nodes.counts)
            lower, upper = event.ends(reports, (1 - self.confidence) / 2)
            ends = (float(lower), float(upper))
        return _around(value, ends, left_open, (0.0, 1.0))

    def event_of_share(self, low: float, high: float) -> Event | None:
        """The codes whose chance alone decides the share between two edges, where the table jumps at both.

        Their chance is p from every input inside and q from every other one: Clopper and Pearson's
        interval is proved then, by either method. None where inputs on one side differ.
        """
        inner, outer = self.nodes.inside(low, high)
        inside = inner > 0
        if (inner != outer).any() or inside.all() or not inside.any():
            return None
        rows = self.nodes.pmf
        codes = rows[inside].mean(axis=0) > rows[~inside].mean(axis=0)
        chances = rows[:, codes].sum(axis=1)
        p_least, p_most = float(chances[inside].min()), float(chances[inside].max())
        q_least, q_most = float(chances[~inside].min()), float(chances[~inside].max())
        signal = p_least - q_most
        if signal <= 0 or max(p_most - p_least, q_most - q_least) >= SAME_CHANCE * signal:
            return None
        return Event(
            codes=codes,
            lower=(-q_most / (p_most - q_most), 1 / (p_most - q_most)),
            upper=(-q_least / (p_least - q_least), 1 / (p_least - q_least)),
        )

    def quantile(self, probability: float) -> Interval:
        """The input that this share of the inputs does not exceed, data units."""
        breaks, cells = self.base.breaks, self.cumulated
        index = int(np.clip(np.searchsorted(cells, probability) - 1, 0, breaks.size - 2))
        within = (probability - cells[index]) / max(cells[index + 1] - cells[index], 1e-300)
        value = float(breaks[index] + np.clip(within, 0, 1) * (breaks[index + 1] - breaks[index]))
        ends = self._quantile_ends(probability, self._greatest)
        left_open = self._quantile_ends(probability, self._open)
        return _around(value, ends, left_open, (float(breaks[0]), float(breaks[-1])))

    def _quantile_ends(
        self, probability: float, bound: Callable[[FloatArray, Edges], float]
    ) -> tuple[float, float]:
        # The quantile is at least any break up to which even the greatest P(X <= break) falls short, and at most any
        # break from which on even the least P(X < break) suffices. Both are searched for from outside.
        breaks = self.base.breaks
        inner = range(1, breaks.size - 1)
        low = _last_leading(
            inner,
            lambda i: self._cdf(bound, i, greatest=True) < probability,
            strides=self.strides,
        )
        high = _last_leading(
            inner[::-1],
            lambda i: self._cdf(bound, i, greatest=False) >= probability,
            strides=self.strides,
        )
        return float(breaks[0 if low is None else low]), float(breaks[-1 if high is None else high])

    def _cdf(self, bound: Callable[[FloatArray, Edges], float], i: int, *, greatest: bool) -> float:
        """Greatest or least share of the inputs up to a break, by `_greatest` or `_open`."""
        key = (bound.__name__, i, greatest)
        if key not in self._known:
            edges = (float(self.base.breaks[0]), float(self.base.breaks[i]))
            inner, outer = self.nodes.inside(*edges)
            self._known[key] = bound(outer, edges) if greatest else -bound(-inner, edges)
        return self._known[key]

    # Bounds --------------------------------------------------------------------------------------------------

    def corners(self, edges: Sequence[float]) -> npt.NDArray[np.bool_]:
        """(J,) the nodes at which a decoder must dominate a function that is constant between knots and these edges.

        Between two of them both the decoder's mean and the function's chord are linear.
        """
        return np.isin(self.nodes.x, self.counts.mechanism.knots) | np.isin(self.nodes.x, edges)

    def _open(self, values: FloatArray, edges: Edges) -> float:
        """Greatest expectation at exactly the fitted shares of the codes."""
        corners = self.corners(edges)
        return greatest_expectation(self.nodes.pmf[corners], values[corners], self.shares)

    @abstractmethod
    def _greatest(self, values: FloatArray, edges: Edges) -> float:
        """Upper end for the expectation of a function, (J,) at the nodes, that is constant between knots and edges."""

    @abstractmethod
    def _variance_ends(self) -> tuple[float, float]:
        """Both ends for the variance of the inputs."""


def _around(
    value: float,
    ends: tuple[float, float],
    left_open: tuple[float, float],
    possible: tuple[float, float],
) -> Interval:
    """The interval that holds the point, the ends and what is open, within what is possible at all."""
    low, high = (float(np.clip(end, *possible)) for end in left_open)
    identified = (min(low, value), max(high, value))
    low, high = (float(np.clip(end, *possible)) for end in ends)
    return Interval(
        value=value,
        low=min(low, identified[0]),
        high=max(high, identified[1]),
        identified=identified,
    )


def _last_leading(
    indices: range, holds: Callable[[int], bool], *, strides: tuple[int, ...]
) -> int | None:
    """The last index of the run, from the first on, for which a condition holds; None where it fails at once.

    Strides above 1 skip indices: the condition is one on functions that are monotone in truth.
    """
    start = 0
    for stride in strides:
        while start + stride <= len(indices) and holds(indices[start + stride - 1]):
            start += stride
    return indices[start - 1] if start else None


# Cross-fitted decoders ---------------------------------------------------------------------------------------


@final
class CrossFitted(Shapes):
    """Bounds by decoders that are chosen on some of the reports and evaluated on others."""

    @classmethod
    def of_many(
        cls, many: Sequence[CodeCounts], *, confidence: float, edges: FloatArray | None
    ) -> Iterator[CrossFitted]:
        """Those of equally large data sets of one table, whose fits are computed together: much faster than in turn."""
        nodes = nodes_of(many[0])
        nodes = nodes.with_counts(np.stack([nodes_of(counts).counts for counts in many]))
        for counts, masses, folds in zip(many, smooth_fit(nodes), folds_of(nodes), strict=True):
            shapes = cls(counts, confidence=confidence, edges=edges, masses=masses)
            shapes._folds = folds
            yield shapes

    @cached_property
    def _folds(self) -> tuple[Fold, ...]:
        return folds_of(self.base.with_counts(self.base.counts[None]))[0]

    @cached_property
    def _bounds(self) -> Bounds:
        knots = np.isin(self.base.x, self.counts.mechanism.knots)
        return Bounds(counts=self.base.counts, folds=self._folds, rows=self.base.pmf[knots])

    @property
    def _tail(self) -> float:
        return (1 - self.confidence) / 2

    def _greatest(self, values: FloatArray, edges: Edges) -> float:
        corners = self.corners(edges)
        return self._bounds.upper(
            self.nodes.pmf[corners], lambda _: values[corners], tail=self._tail
        )

    def _variance_ends(self) -> tuple[float, float]:
        # Var X <= E(X - c)^2 for every c, and Var X = E(X - c)^2 - (E X - c)^2: with c from the other folds both
        # expectations are those of a function that does not depend on the fold.
        bounds, corners = self._bounds, self.corners(())
        knots, x = self.nodes.x[corners], self.base.x
        upper = bounds.upper(
            self.nodes.pmf[corners], lambda fold: (knots - fold.centre) ** 2, tail=self._tail
        )
        lower = -bounds.upper(
            self.base.pmf, lambda fold: -((x - fold.centre) ** 2), tail=self._tail / 2
        )
        mean = mean_interval(self.counts, confidence=1 - self._tail, method="asymptotic")
        off = max(
            math.fsum(fold.share * (end - fold.centre) ** 2 for fold in bounds.folds)
            for end in (mean.low, mean.high)
        )
        return lower - off - self.base.widest() ** 2 / 4, upper
