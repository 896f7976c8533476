"""Mean, variance, shares and quantiles of the inputs behind a set of reports: points, intervals,
and what stays open.

A decoder a, one number per code, whose expected value from every input is at least v(input) has a
mean report of at least E v, whatever the inputs are. The best one for the reports at hand is a
small cone program. It is chosen on some of the reports and evaluated on others, four times over, so
that no choice flatters itself (proofs/estimation.md, E4).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Self, final

import numpy as np
import numpy.typing as npt
from scipy import special

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.intervals import (
    WIDER,
    Interval,
    Sums,
    mean_interval,
)
from mezzotint.collect.spreads import Spread
from mezzotint.collect.support_points import (
    SupportPoints,
    decoder_basis,
    dominating,
    greatest_expectation,
    nodes_of,
    quick_fit,
    smooth_fit,
)
from mezzotint.core.errors import (
    ParameterError,
    as_reals,
)
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray

FOLDS = 4
FOLD_SEED = 20240611
"""Part of the method: whoever tries several seeds and picks an interval cheats. Deals reports into
folds.
"""


FLOOR = 0.02
"""Weight of the average row in the shares that a decoder is optimised for, so that no code is
thought impossible.
"""


_CANDIDATES = 513
"""Expected values of a decoder that are tried against the reports."""


STEPS = 200
"""EM steps per fold. A worse fit makes a wider interval, never a wrong one."""


PSEUDO_VARIANCES = 4
"""Reports of the greatest variance that few do not show; at high levels z^2, which is more."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """One part of the reports: (c,) counts, and its share of all. The other parts alone say the
    rest:

    (c,) expected shares of the codes, and the mean of the inputs, data units.
    """

    counts: npt.NDArray[np.int64]
    share: float
    expected: FloatArray
    centre: float


def expected_shares(nodes: SupportPoints, masses: FloatArray) -> FloatArray:
    """(..., c) shares of the codes that decoders are chosen for, where masses were fitted."""
    return (1 - FLOOR) * (masses @ nodes.pmf) + FLOOR * nodes.pmf.mean(axis=0)


def dealt(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(FOLDS, c) reports dealt into parts at random, one by one.

    Guarantees: depends on the counts alone; parts are independent of each other given their sizes.
    """
    return np.random.default_rng(FOLD_SEED).multinomial(counts, [1 / FOLDS] * FOLDS).T


def folds_of(
    nodes: SupportPoints, parts: npt.NDArray[np.int64], fitted: FloatArray
) -> tuple[Fold, ...]:
    """The parts of reports that are not empty, each with what a fit to the others says."""
    folds: list[Fold] = []
    columns = zip(parts, expected_shares(nodes, fitted), (fitted @ nodes.x).tolist(), strict=True)
    for counts, expected, centre in columns:
        share = float(counts.sum() / nodes.n)
        if share:
            folds.append(Fold(counts=counts, share=share, expected=expected, centre=centre))
    return tuple(folds)


# Requests ----------------------------------------------------------------------------------------

MOST_BINS = 1000


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Shares and quantiles that are asked of numbers.

    Arguments:
        above: thresholds of shares above them, data units.
        histogram: edges of bins, data units; none for no histogram.
        quantiles: probabilities.
        lower, upper: range of the inputs.
    """

    above: tuple[float, ...]
    histogram: tuple[float, ...]
    quantiles: tuple[float, ...]
    lower: float
    upper: float

    @classmethod
    def of(
        cls,
        table: Mechanism,
        *,
        above: Sequence[float] | None,
        histogram: int | Sequence[float] | None,
        quantiles: Sequence[float] | None,
    ) -> Self:
        """The request, checked against the table; raises ParameterError for what it cannot
        answer.
        """
        requested = {
            "above": above,
            "histogram": histogram,
            "quantiles": quantiles,
        }
        for argument, requested_value in requested.items():
            if table.categories is not None and requested_value is not None:
                remedy = "categories have frequencies, and no order; leave it out"
                raise ParameterError(argument, requested_value, remedy)
        thresholds = edges = probabilities = ()
        if above is not None:
            thresholds = _thresholds(above, table.lower, table.upper)
        if histogram is not None:
            edges = _edges(histogram, table.lower, table.upper)
        if quantiles is not None:
            probabilities = _probabilities(quantiles)
        return cls(
            above=thresholds,
            histogram=edges,
            quantiles=probabilities,
            lower=table.lower,
            upper=table.upper,
        )

    @property
    def bins(self) -> list[tuple[float, float]]:
        """Both edges of each bin."""
        return list(pairwise(self.histogram))

    @property
    def size(self) -> int:
        """Intervals asked for."""
        return len(self.above) + len(self.bins) + len(self.quantiles)

    @property
    def edges(self) -> FloatArray | None:
        """All edges of shares; None for none."""
        edges = {*self.above, *self.histogram}
        if not edges:
            return None
        if self.above:
            edges |= {self.lower, self.upper}
        return np.array(sorted(edges))


def _thresholds(above: Sequence[float], lower: float, upper: float) -> tuple[float, ...]:
    remedy = f"list values inside ({lower:g}, {upper:g}); try [{(lower + upper) / 2:g}]"
    values = as_reals("above", above, remedy)
    if values.ndim != 1 or not ((values > lower) & (values < upper)).all():
        raise ParameterError("above", values.tolist(), remedy)
    return tuple(values.tolist())


def _edges(histogram: int | Sequence[float], lower: float, upper: float) -> tuple[float, ...]:
    """Edges of bins within the range: equal ones for a number of bins, at most `MOST_BINS`, or
    those that are listed.
    """
    if isinstance(histogram, (int, np.integer, np.bool_)):
        if isinstance(histogram, (bool, np.bool_)) or not 1 <= histogram <= MOST_BINS:
            raise ParameterError("histogram", histogram, f"use 1 to {MOST_BINS} bins")
        return tuple(np.linspace(lower, upper, int(histogram) + 1).tolist())
    remedy = "edges must increase strictly, at least 2 of them"
    edges = as_reals("histogram", histogram, remedy)
    if edges.ndim != 1 or edges.size < 2 or not (np.diff(edges) > 0).all():
        raise ParameterError("histogram", edges.tolist(), remedy)
    if edges[0] < lower or edges[-1] > upper:
        remedy = f"edges must lie inside [{lower:g}, {upper:g}]"
        raise ParameterError("histogram", edges.tolist(), remedy)
    return tuple(edges.tolist())


def _probabilities(quantiles: Sequence[float]) -> tuple[float, ...]:
    remedy = "list probabilities strictly between 0 and 1; try [0.5]"
    values = as_reals("quantiles", quantiles, remedy)
    if values.ndim != 1 or not values.size or not ((values > 0) & (values < 1)).all():
        raise ParameterError("quantiles", values.tolist(), remedy)
    return tuple(values.tolist())


# Evidence -----------------------------------------------------------------------------------------

Edges = tuple[float, float]

Bound = Callable[[FloatArray, Edges], npt.ArrayLike]
"""Bounds from above, one for each of some levels or a single one, on the expectation of a function:
(J,) at the nodes, constant between knots and edges.
"""


class Evidence(ABC):
    """The evidence of one set of reports about the distribution of the inputs.

    Points come from one fit that knows of no edges, so that they do not depend on what is
    requested. An interval holds its point, what the table leaves open at the fitted shares of the
    codes, and the bounds of the method.

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
        self.counts = counts
        self.confidence = confidence
        self.edges = edges
        self.base = nodes_of(counts)
        self.nodes = self.base if edges is None else nodes_of(counts, edges=edges)
        self.masses = smooth_fit(self.base) if masses is None else masses
        self.shares = self.masses @ self.base.pmf
        self.centre = float(self.masses @ self.base.x)
        self.cumulated = np.concatenate([[0.0], np.cumsum(self.base.mass_per_cell(self.masses))])
        self._known: dict[tuple[Bound, int, bool], npt.NDArray[np.float64]] = {}

    @property
    def tail(self) -> float:
        """Error of one side of an interval."""
        return (1 - self.confidence) / 2

    # Requests -------------------------------------------------------------------------------------

    def variance(self) -> Interval:
        """Of the inputs, squared data units."""
        nodes = self.base
        square = (self.base.x - self.centre) ** 2
        greatest = float(np.ptp(nodes.x) ** 2) / 4
        identified = (
            -greatest_expectation(nodes.pmf, -square, self.shares) - nodes.widest() ** 2 / 4,
            greatest_expectation(nodes.pmf, square, self.shares),
        )
        return _around(
            float(self.masses @ square),
            (self.variance_end(upper=False), self.variance_end(upper=True)),
            identified,
            (0.0, greatest),
        )

    def share(self, low: float, high: float) -> Interval:
        """Of the inputs between two of the edges."""
        edges = (low, high)
        estimated = float(np.diff(np.interp(edges, self.base.breaks, self.cumulated))[0])
        identified = [
            float(self._bound_of_share(edges, self.open_expectation, upper=upper))
            for upper in (False, True)
        ]
        ends = [self.share_end(low, high, upper=upper) for upper in (False, True)]
        return _around(estimated, ends, identified, (0.0, 1.0))

    def share_end(self, low: float, high: float, *, upper: bool) -> float:
        """One end of the interval of a share, before it is made to hold its point."""
        return float(self._ends_of_share((low, high), self.greatest, self.tail, upper=upper))

    def _ends_of_share(
        self, edges: Edges, bound: Bound, errors: npt.ArrayLike, *, upper: bool
    ) -> FloatArray:
        """The ends on one side: of the event that decides the share, each with its one-sided error,
        else by a bound at the same levels.
        """
        event = self.nodes.event_of_share(*edges)
        if event is not None:
            return event.ends(Sums.of_counts(self.nodes.counts), errors)[int(upper)]
        return self._bound_of_share(edges, bound, upper=upper)

    def _bound_of_share(self, edges: Edges, bound: Bound, *, upper: bool) -> FloatArray:
        """Greatest or least share of the inputs between two of the edges, by a bound."""
        inner, outer = self.nodes.inside(*edges)
        if upper:
            return np.asarray(bound(outer, edges))
        return -np.asarray(bound(-inner, edges))

    def quantile(self, probability: float) -> Interval:
        """The input that this share of the inputs does not exceed, data units."""
        breaks = self.base.breaks
        cumulated = self.cumulated
        cell = int(
            np.clip(
                np.searchsorted(cumulated, probability) - 1,
                0,
                breaks.size - 2,
            )
        )
        mass = max(cumulated[cell + 1] - cumulated[cell], 1e-300)
        position = np.clip((probability - cumulated[cell]) / mass, 0, 1)
        estimated = float(breaks[cell] + position * (breaks[cell + 1] - breaks[cell]))
        ends = self.quantile_ends(probability, self.greatest)
        identified = self.quantile_ends(probability, self.open_expectation)
        return _around(
            estimated,
            ends,
            identified,
            (float(breaks[0]), float(breaks[-1])),
        )

    def quantile_ends(
        self, probability: float, bound: Bound, level: int | tuple[()] = ()
    ) -> tuple[float, float]:
        """Both ends for a quantile, by a bound on expectations, of which this level counts."""
        # The quantile is at least any break up to which even the greatest P(X <= break) falls
        # short, and at most any break from which on even the least P(X < break) suffices. Both are
        # searched for from outside.
        breaks = self.base.breaks
        inner = range(1, breaks.size - 1)

        def falls_short(index: int) -> bool:
            return bool(self._cdf(bound, index, greatest=True)[level] < probability)

        def suffices(index: int) -> bool:
            return bool(self._cdf(bound, index, greatest=False)[level] >= probability)

        lower_end = self._last_leading(inner, falls_short, otherwise=0)
        upper_end = self._last_leading(inner[::-1], suffices, otherwise=-1)
        return float(breaks[lower_end]), float(breaks[upper_end])

    def _last_leading(
        self,
        indices: range,
        holds: Callable[[int], bool],
        *,
        otherwise: int,
    ) -> int:
        """The last index of the run, from the first on, for which a condition holds; `otherwise`
        where it fails at once.

        Strides above 1 skip indices: the condition is one on functions that are monotone in truth.
        """
        start = 0
        for stride in self.strides:
            while start + stride <= len(indices) and holds(indices[start + stride - 1]):
                start += stride
        if start == 0:
            return otherwise
        return indices[start - 1]

    def _cdf(self, bound: Bound, index: int, *, greatest: bool) -> FloatArray:
        """Greatest or least share of the inputs up to a break, by a bound."""
        key = (bound, index, greatest)
        if key not in self._known:
            edges = float(self.base.breaks[0]), float(self.base.breaks[index])
            self._known[key] = self._bound_of_share(edges, bound, upper=greatest)
        return self._known[key]

    # Bounds ---------------------------------------------------------------------------------------

    def corners(self, edges: Sequence[float]) -> npt.NDArray[np.bool_]:
        """(J,) the nodes at which a decoder must dominate a function that is constant between knots
        and these edges.

        Between two of them both the decoder's mean and the function's chord are linear.
        """
        return np.isin(self.nodes.x, self.counts.mechanism.knots) | np.isin(self.nodes.x, edges)

    def open_expectation(self, values: FloatArray, edges: Edges) -> float:
        """Greatest expectation at exactly the fitted shares of the codes."""
        corners = self.corners(edges)
        return greatest_expectation(self.nodes.pmf[corners], values[corners], self.shares)

    def greatest(self, values: FloatArray, edges: Edges) -> float:
        """Upper end for the expectation of a function, (J,) at the nodes, that is constant between
        knots and edges.
        """
        corners = self.corners(edges)
        wanted = values[corners]
        pmf = self.nodes.pmf[corners]
        return self.upper_end(
            pmf,
            [wanted] * len(self.folds),
            least=float(wanted.min()),
            tail=self.tail,
        )

    def variance_end(self, *, upper: bool) -> float:
        """One end of the interval of the variance, before it is made to hold its point."""
        # Var X <= E(X - c)^2 for every c, and Var X = E(X - c)^2 - (E X - c)^2: with c from other
        # reports than those of a fold, both expectations are those of a function that does not
        # depend on the fold.
        inputs = self.base.x
        if upper:
            corners = self.corners(())
            knots = self.nodes.x[corners]
            return self.upper_end(
                self.nodes.pmf[corners],
                [(knots - fold.centre) ** 2 for fold in self.folds],
                least=0.0,
                tail=self.tail,
            )
        # No square is larger, wherever a centre lies: a stake may not know the centres of later
        # folds.
        largest_square = float(np.ptp(inputs)) ** 2
        lower = -self.upper_end(
            self.base.pmf,
            [-((inputs - fold.centre) ** 2) for fold in self.folds],
            least=-largest_square,
            tail=self.tail / 2,
        )
        return lower - self._centre_error() - self.base.widest() ** 2 / 4

    @cached_property
    def knot_rows(self) -> FloatArray:
        """(K, c) pmf at the knots, of which those at all inputs are mixtures."""
        return self.base.pmf[np.isin(self.base.x, self.counts.mechanism.knots)]

    @cached_property
    def bases(self) -> list[FloatArray]:
        """`decoder_basis` for each fold."""
        return [decoder_basis(self.knot_rows, fold.expected) for fold in self.folds]

    @property
    @abstractmethod
    def folds(self) -> Sequence[Fold]:
        """Parts of the reports, each with what others suggest."""

    @abstractmethod
    def upper_end(
        self,
        pmf: FloatArray,
        wanted: Sequence[FloatArray],
        *,
        least: float,
        tail: float,
    ) -> float:
        """Upper end of the interval of E v at one-sided error `tail`.

        Arguments:
            pmf: (J, c) codes from the inputs at which the decoder must dominate: v at any other
                input is at most what it is on the chord between two of them that lie in one segment
                of the table.
            wanted: (J,) v there for each fold, where it follows from other reports than the fold's.
            least: a number that E v is surely not below.
            tail: in (0, 1/2).
        """

    @abstractmethod
    def _centre_error(self) -> float:
        """Bound on (E X - c)^2, c the centres of the folds, at the error that `variance_end`
        leaves.
        """


def _around(
    value: float, ends: Sequence[float], identified: Sequence[float], possible: Edges
) -> Interval:
    """The interval that holds the point, the ends and what is open, within what is possible at
    all.
    """
    open_low, open_high = np.clip(identified, *possible).tolist()
    open_low = min(open_low, value)
    open_high = max(open_high, value)
    lower_end, upper_end = np.clip(ends, *possible).tolist()
    return Interval(
        value=value,
        low=min(lower_end, open_low),
        high=max(upper_end, open_high),
        identified=(open_low, open_high),
    )


def _sides(
    estimated: Interval, lows: FloatArray, highs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """How far ends lie below and above a point; at least as far as what the table leaves open."""
    open_low, open_high = estimated.identified or (estimated.value, estimated.value)
    below = estimated.value - np.minimum(lows, open_low)
    above = np.maximum(highs, open_high) - estimated.value
    return below, above


# Cross-fitted decoders ----------------------------------------------------------------------------

RUNG_STRIDE = 4
"""Of the normal quantiles at which sides are known, those at which quantiles are searched for."""


@final
class CrossFitted(Evidence):
    """Bounds by decoders that are chosen on some of the reports and evaluated on others.

    Each decoder dominates, so that the mean of its reports is an upper estimate at every n; the
    normal width around it is verified by simulation (benchmarks/coverage.py), not proved.
    """

    @cached_property
    def folds(self) -> tuple[Fold, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        parts = dealt(self.base.counts)
        others = self.base.with_counts(self.base.counts - parts)
        return folds_of(self.base, parts, quick_fit(others, steps=STEPS))

    def upper_end(
        self,
        pmf: FloatArray,
        wanted: Sequence[FloatArray],
        *,
        least: float,
        tail: float,
    ) -> float:
        """As in `Evidence`, verified: the mean of the decoded reports and the normal width
        around it, at the largest variance that reports and table leave possible.
        """
        del least
        quantile = float(special.ndtri(1 - tail))
        decoders = self._decoders(pmf, wanted, quantile=quantile)
        top = max(float(values.max()) for values in wanted)
        return min(top, float(self._ends_of(decoders, np.array([quantile]))[0]))

    def greatest_at(self, values: FloatArray, edges: Edges, quantiles: FloatArray) -> FloatArray:
        """Upper ends as `greatest` gives them, not cut to what is possible, at many normal
        quantiles.

        Arguments:
            quantiles: (Z,) >= 0, increasing. All use the decoders of the last one over sqrt(2),
                which serves the difference of two such expectations best.
        """
        corners = self.corners(edges)
        wanted = [values[corners]] * len(self.folds)
        middle = float(quantiles[-1]) / math.sqrt(2)
        decoders = self._decoders(self.nodes.pmf[corners], wanted, quantile=middle)
        return self._ends_of(decoders, quantiles)

    def sides_of_share(
        self, share: Interval, edges: Edges, quantiles: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """How far below and above its point the share between two edges may lie, at many levels.

        Arguments:
            share: `share` of these edges.
            quantiles: (Z,) >= 0 of the normal law, increasing.

        Returns: (Z,) each, not cut to what is possible, so that sums and differences of independent
            estimates may combine them; what the table leaves open is in each of them.
        """
        bound = partial(self.greatest_at, quantiles=quantiles)
        lows, highs = (
            self._ends_of_share(edges, bound, special.ndtr(-quantiles), upper=upper)
            for upper in (False, True)
        )
        return _sides(share, lows, highs)

    def sides_of_quantile(
        self, quantile: Interval, probability: float, quantiles: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The same for a quantile of the inputs.

        Ends are searched for at every fourth of the normal quantiles: between two of them the
        farther end stands in.
        """
        rungs = quantiles[::RUNG_STRIDE]
        following = -(-np.arange(quantiles.size) // RUNG_STRIDE)
        bound = partial(self.greatest_at, quantiles=rungs)
        ends = [self.quantile_ends(probability, bound, rung) for rung in range(rungs.size)]
        lows, highs = np.array(ends)[following].T
        return _sides(quantile, lows, highs)

    def _decoders(
        self,
        pmf: FloatArray,
        wanted: Sequence[FloatArray],
        *,
        quantile: float,
    ) -> list[FloatArray]:
        """The decoder of each fold, best for an interval of so many standard errors."""
        width = (quantile + WIDER) / math.sqrt(self.base.n)
        decoders: list[FloatArray] = []
        for fold, values, basis in zip(self.folds, wanted, self.bases, strict=True):
            decoders.append(dominating(pmf, values, fold.expected, width=width, basis=basis))
        return decoders

    def _ends_of(self, decoders: Sequence[FloatArray], quantiles: FloatArray) -> FloatArray:
        """(Z,) upper ends by these decoders, one of each fold, at these normal quantiles."""
        report_count = self.base.n
        widened = quantiles + WIDER
        total = 0.0
        largest = np.zeros(widened.size)
        skewness = np.zeros(widened.size)
        parts: list[_FoldSpread] = []
        for fold, decoder in zip(self.folds, decoders, strict=True):
            fold_spread = _FoldSpread(self.knot_rows, decoder, self.base.counts, widened)
            parts.append(fold_spread)
            total += float(fold.counts @ decoder) / report_count
            largest += fold.share * fold_spread.variance(
                max(fold_spread.seen, fold_spread.spread.greatest_of_all)
            )
            skewness += fold.share * fold_spread.skewness
        # How far above its reports an expected value may lie; there a report varies by what the
        # table demands at least.
        farthest = widened * np.sqrt(largest / report_count) + skewness / report_count
        away = np.linspace(np.zeros(widened.size), farthest, _CANDIDATES)
        variance = np.zeros(away.shape)
        for fold, fold_spread in zip(self.folds, parts, strict=True):
            least_there = fold_spread.spread.least(fold_spread.mean + away)
            variance += fold.share * fold_spread.variance(np.maximum(fold_spread.seen, least_there))
        widths = widened * np.sqrt(variance / report_count) + skewness / report_count
        accepted = np.where(away <= widths, away, 0.0).max(axis=0)
        return total + np.maximum(widths[0], accepted)

    def _centre_error(self) -> float:
        interval = mean_interval(
            self.counts.mechanism,
            Sums.of_counts(self.counts.counts),
            confidence=1 - self.tail,
        )
        errors: list[float] = []
        for interval_end in (interval.low, interval.high):
            errors.append(
                math.fsum(fold.share * (interval_end - fold.centre) ** 2 for fold in self.folds)
            )
        return max(errors)


@final
class _FoldSpread:
    """How the reports vary under the decoder of a fold, for intervals of some standard errors.

    Attributes:
        spread: of the decoder.
        mean, seen: of the decoded reports, and their variance.
        skewness: (Z,) what rare far values cost an interval, times n.
    """

    def __init__(
        self,
        rows: FloatArray,
        decoder: FloatArray,
        counts: npt.NDArray[np.int64],
        quantiles: FloatArray,
    ) -> None:
        self.spread = Spread(pmf=rows, values=decoder)
        greatest = self.spread.greatest_of_all
        reach = self.spread.reach
        self._n = int(counts.sum())
        self.mean = float(counts @ decoder) / self._n
        self.seen = float(counts @ (decoder - self.mean) ** 2) / self._n
        # Where no inputs make both ends of the decoder common, one is rare whatever the inputs are:
        # its reports are a Poisson count of jumps, k of which do not rule out k + z^2/2 + z sqrt(k
        # + z^2/4).
        rare = 0.0
        self.skewness = np.zeros(quantiles.size)
        if reach > 0:
            rare = 1 - 4 * greatest / reach**2
        if greatest > 0:
            lopsided = reach * (1 - float(self.spread.variances.min()) / greatest)
            self.skewness = lopsided * (1 + rare * (quantiles**2 / 2 - 1))
        # Reports that are added, at each quantile, and the variance that few do not show, in all.
        self._pseudo_reports = np.maximum(PSEUDO_VARIANCES, (quantiles - WIDER) ** 2)
        jumps = rare * (quantiles * reach / 2) ** 2
        self._unseen = np.maximum(self._pseudo_reports * greatest, jumps)

    def variance(self, believed: npt.ArrayLike) -> FloatArray:
        """The variance to reckon with, of that which is believed and of what few reports do not
        show.
        """
        return (self._n * np.asarray(believed) + self._unseen) / (self._n + self._pseudo_reports)
