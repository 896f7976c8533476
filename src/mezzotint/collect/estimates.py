"""Estimates about the column that reports came from, with intervals that include what the reports
leave open.

Frequencies of categories; mean, spread, histogram and quantiles of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np

from mezzotint.collect.bets import Betting
from mezzotint.collect.counts import (
    REPEATED_REPORTS,
    SAME_PEOPLE,
    CodeCounts,
    claim_of,
    refuse_seeded,
)
from mezzotint.collect.intervals import (
    Interval,
    Sums,
    check_confidence,
    each_confidence,
    targets_of_categories,
    within,
)
from mezzotint.collect.means import Method, bernstein, mean_interval, report_moments
from mezzotint.collect.nodes import deviance, least_deviance
from mezzotint.collect.requests import Request
from mezzotint.collect.shapes import CrossFitted, Shapes
from mezzotint.collect.spreads import spread_of
from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import (
    InfeasibleError,
    ParameterError,
)
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Record
from mezzotint.core.types import FloatArray
from mezzotint.privacy.claim import Claim, Claimed


@final
@dataclass(frozen=True, kw_only=True)
class Frequencies(Claimed):
    """The estimated share of each category among the inputs.

    Arguments:
        n: reports.
        confidence: of every interval, or of all together.
        method: as in `Estimate`.
        simultaneous: whether it is that of all together (Bonferroni).
        categories: names.
        shares: one interval per category. Points are unbiased, so that they may lie below 0 or
            above 1; they sum to 1.
        claim: of one report; None when the reports were drawn from a seed, which are not private.
        seeded: whether they were; None where their files do not say.
        sha256: hash of the table.
        notes: as in `Estimate`.

    Example:
        >>> table = mz.families.categorical(categories=["no", "yes"], epsilon=1.0)
        >>> codes = table.privatize(["yes"] * 9_000 + ["no"] * 1_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=table)
        >>> found = mz.collect.estimate(counts)
        >>> found.categories, round(found.shares[1].value, 1)
        (('no', 'yes'), 0.9)
    """

    beside = ("frequencies",)

    n: int
    confidence: float
    method: Method
    simultaneous: bool
    categories: tuple[str, ...] = field(repr=False)
    shares: tuple[Interval, ...] = field(repr=False)
    claim: Claim | None = field(repr=False)
    seeded: bool | None
    sha256: str
    notes: tuple[str, ...] = ()

    @property
    def frequencies(self) -> list[JsonObject]:
        """Each category with its share."""
        return _keyed("category", self.categories, self.shares)

    def _rows(self) -> list[JsonObject]:
        return self.frequencies


def _keyed(
    name: str,
    keys: Sequence[float | str],
    intervals: Sequence[Interval],
) -> list[JsonObject]:
    """A row for each interval, with its key under a name."""
    pairs = zip(keys, intervals, strict=True)
    return [{name: entry_key, **interval.as_dict()} for entry_key, interval in pairs]


def frequencies(
    counts: CodeCounts,
    *,
    confidence: float,
    method: Method,
    simultaneous: bool,
) -> Frequencies:
    """The frequencies behind reports of a table for categories; see `estimate`.

    Where one set of codes decides a share (k-ary response, subsets, hyperplanes) its interval is
    that of Clopper and Pearson, by either method; elsewhere the score interval, or Bernstein's.
    """
    mechanism, reports = counts.mechanism, Sums.of_counts(counts.counts)
    categories = mechanism.categories or ()
    each = each_confidence(confidence, len(categories), simultaneous=simultaneous)
    shares: list[Interval] = []
    for target in targets_of_categories(mechanism):
        estimated = target.value(reports)
        if method == "asymptotic" or target.proved:
            lower_end, upper_end = target.interval(reports, confidence=each)
        else:
            width = bernstein(target.spread, n=counts.n, confidence=each)
            lower_end, upper_end = estimated - width, estimated + width
        shares.append(within(estimated, lower_end, upper_end, bounds=(0.0, 1.0)))
    return Frequencies(
        n=counts.n,
        confidence=confidence,
        method=method,
        simultaneous=simultaneous,
        categories=categories,
        shares=tuple(shares),
        claim=claim_of(mechanism, seeded=counts.seeded),
        seeded=counts.seeded,
        sha256=mechanism.sha256,
        notes=_notes(counts),
    )


def _notes(counts: CodeCounts) -> tuple[str, ...]:
    """One sentence each of what limits the intervals."""
    notes = []
    if counts.releases > 1:
        notes.append(SAME_PEOPLE)
    if counts.memoised:
        notes.append(REPEATED_REPORTS)
    return tuple(notes)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram(Record):
    """Shares of the clipped inputs between edges.

    Arguments:
        edges: (B+1,) data units.
        share, low, high: (B,) estimated share of each bin and its interval. A value on an edge may
            count to either side in the interval. Shares do not depend on the other bins requested.
        identified_low, identified_high: (B,) what even infinitely many reports with these shares
            would leave open.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> histogram = mz.collect.estimate(counts, histogram=[0, 5, 10]).histogram
        >>> histogram.share.round(1).tolist()
        [0.7, 0.3]
    """

    edges: FloatArray
    share: FloatArray
    low: FloatArray
    high: FloatArray
    identified_low: FloatArray
    identified_high: FloatArray

    @classmethod
    def of(cls, edges: Sequence[float], shares: Sequence[Interval]) -> Self:
        """The histogram of the shares between edges."""
        identified = [share.identified or (share.value, share.value) for share in shares]
        open_low, open_high = np.array(identified).T
        return cls(
            edges=np.array(edges),
            share=np.array([share.value for share in shares]),
            low=np.array([share.low for share in shares]),
            high=np.array([share.high for share in shares]),
            identified_low=open_low,
            identified_high=open_high,
        )

    def _rows(self) -> list[JsonObject]:
        columns: dict[str, FloatArray] = {
            **vars(self),
            "from": self.edges[:-1],
            "to": self.edges[1:],
        }
        del columns["edges"]
        names = [
            "from",
            "to",
            *(column_name for column_name in columns if column_name not in ("from", "to")),
        ]
        entries = zip(
            *(columns[column_name].tolist() for column_name in names),
            strict=True,
        )
        return [dict(zip(names, entry, strict=True)) for entry in entries]


@final
@dataclass(frozen=True, kw_only=True)
class Quantiles(Record):
    """Quantiles of the clipped inputs, data units, one `Interval` per probability.

    Arguments:
        probabilities: (k,) increasing, in [0, 1].
        values: (k,) intervals, data units.

    Example:
        >>> median = mz.collect.Interval(value=4.0, low=3.9, high=4.2)
        >>> mz.collect.Quantiles(probabilities=(0.5,), values=(median,)).values[0].low
        3.9
    """

    probabilities: tuple[float, ...]
    values: tuple[Interval, ...]

    def _rows(self) -> list[JsonObject]:
        return _keyed("probability", self.probabilities, self.values)


@final
@dataclass(frozen=True, kw_only=True)
class SharesAbove(Record):
    """Shares of the clipped inputs above thresholds.

    Arguments:
        thresholds: (k,) data units. A value on a threshold may count to either side in the
            interval.
        values: (k,) intervals.

    Example:
        >>> share = mz.collect.Interval(value=0.4, low=0.3, high=0.5)
        >>> mz.collect.SharesAbove(thresholds=(140.0,), values=(share,)).values[0].low
        0.3
    """

    thresholds: tuple[float, ...]
    values: tuple[Interval, ...]

    def _rows(self) -> list[JsonObject]:
        return _keyed("above", self.thresholds, self.values)


@final
@dataclass(frozen=True, kw_only=True)
class Estimate(Claimed):
    """The estimate that one set of reports gives of its clipped inputs.

    Arguments:
        n: reports.
        confidence: of every interval.
        method: "asymptotic" or "safe" (see `estimate`).
        mean: data units; the point is unbiased up to `max_bias`, which the interval includes.
        input_variance: of the clipped inputs, squared data units.
        report_variance: of one decoded report, squared data units.
        privacy_variance: what the mechanism added to one report on average, squared data units: the
            rest of report_variance. Where the table cannot tell input spread from its own noise,
            this interval is wide.
        max_bias: of the mechanism, data units.
        claim: of one report; None when the reports were drawn from a seed, which are not private.
        seeded: whether they were; None where their files do not say. The claim then holds if they
            were not.
        sha256: hash of the table.
        deviance: how far the best fit is from the reports; large against a chi-square of (codes -
            1) degrees means that the reports were not made by this table.
        simultaneous: whether `confidence` is that of all intervals together.
        deal: the seed that dealt the reports into chunks, by method "safe"; None by the other.
        notes: one sentence each of what limits the intervals: `SAME_PEOPLE`, `REPEATED_REPORTS`.
        histogram, quantiles, shares_above: where requested.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> estimate = mz.collect.estimate(counts)
        >>> estimate.n, estimate.mean.low < 4.0 < estimate.mean.high
        (10000, True)
    """

    beside = ("standard_error", "sampling_error", "privacy_error")

    n: int
    confidence: float
    method: Method
    simultaneous: bool
    mean: Interval
    input_variance: Interval
    report_variance: float
    privacy_variance: Interval
    max_bias: float
    claim: Claim | None = field(repr=False)
    seeded: bool | None
    sha256: str
    deviance: float
    deal: int | None = None
    notes: tuple[str, ...] = ()
    histogram: Histogram | None = None
    quantiles: Quantiles | None = None
    shares_above: SharesAbove | None = None

    @property
    def standard_error(self) -> float:
        """Of the mean, data units: sampling of the rows and privacy together."""
        return math.sqrt(self.report_variance / self.n)

    @property
    def sampling_error(self) -> Interval:
        """Standard error, data units, that the mean would have without privacy: the rows are a
        sample themselves.
        """
        return _per_mean(self.input_variance, self.n)

    @property
    def privacy_error(self) -> Interval:
        """Standard error, data units, that the mechanism alone adds to the mean of these very
        rows.
        """
        return _per_mean(self.privacy_variance, self.n)

    def as_dict(self) -> JsonObject:
        """Plain values for JSON: n, mean, ci_low and ci_high first."""
        facts = super().as_dict()
        mean = facts.pop("mean")
        first = {
            "n": self.n,
            "mean": mean["value"],
            "ci_low": mean["low"],
            "ci_high": mean["high"],
        }
        for requested_name in ("quantiles", "shares_above"):
            requested: Record | None = getattr(self, requested_name)
            if requested is not None:
                facts[requested_name] = requested._rows()
        return {**first, **facts}

    def _rows(self) -> list[JsonObject]:
        """An interval per row."""
        entries: list[JsonObject] = []
        intervals = {
            "mean": self.mean,
            "variance": self.input_variance,
            **self._requested(),
        }
        for quantity, interval in intervals.items():
            entries.append({"quantity": quantity, **interval.ends})
        return entries

    def _requested(self) -> dict[str, Interval]:
        """Shares and quantiles, by their names."""
        intervals: dict[str, Interval] = {}
        if self.quantiles is not None:
            quantiles = zip(
                self.quantiles.probabilities,
                self.quantiles.values,
                strict=True,
            )
            intervals |= {
                f"quantile {probability:g}": estimated for probability, estimated in quantiles
            }
        if self.shares_above is not None:
            shares = zip(
                self.shares_above.thresholds,
                self.shares_above.values,
                strict=True,
            )
            intervals |= {
                f"share above {threshold:g}": estimated for threshold, estimated in shares
            }
        if self.histogram is not None:
            for bin_row in self.histogram._rows():
                label = f"share in {bin_row['from']:.4g} to {bin_row['to']:.4g}"
                intervals[label] = Interval(
                    value=bin_row["share"],
                    low=bin_row["low"],
                    high=bin_row["high"],
                )
        return intervals

    def _told(self) -> JsonObject:
        """What is printed: counts, intervals with their confidence, the epsilon or why there
        is none, and notes.
        """
        facts = super().as_dict()
        intervals = "each interval"
        if self.simultaneous:
            intervals = "all intervals together"
        requested = {
            quantity: interval.as_dict() for quantity, interval in self._requested().items()
        }
        shown: JsonObject = {
            "reports": self.n,
            "mean": facts["mean"],
            "variance": facts["input_variance"],
            **requested,
            "standard error": self.standard_error,
            "confidence": f"{self.confidence:g} of {intervals}, {self.method}",
        }
        if self.claim is None:
            shown["epsilon"] = "none: drawn from a seed, which is not private"
        else:
            shown |= {
                quantity: facts[quantity] for quantity in ("epsilon", "certified", "observer")
            }
        if self.notes:
            shown["notes"] = " ".join(self.notes)
        return shown


def _per_mean(variance: Interval, n: int) -> Interval:
    middle, lower_end, upper_end = (
        math.sqrt(interval_end / n) for interval_end in variance.ends.values()
    )
    return Interval(value=middle, low=lower_end, high=upper_end)


def estimate(
    counts: CodeCounts,
    *,
    confidence: float = 0.95,
    method: Method = "asymptotic",
    histogram: int | Sequence[float] | None = None,
    quantiles: Sequence[float] | None = None,
    above: Sequence[float] | None = None,
    simultaneous: bool = False,
    allow_seeded: bool = False,
    deal: int | None = None,
) -> Estimate | Frequencies:
    """Mean, variance and, on request, histogram and quantiles of the clipped inputs behind a set of
    reports.

    For a table of categories (`families.categorical`): their frequencies.

    Arguments:
        counts: reports per code (`read_counts`, `CodeCounts.from_codes`).
        confidence: of each interval, in (0, 1).
        method: "asymptotic": right in the limit of many reports, and by simulation from few on (the
            score interval for the mean, cross-fitted decoders for the rest). "safe": proved at
            every n (Bernstein's inequality for the mean, bets for the rest); wider. Where one event
            decides (two levels, most tables of categories), means and frequencies are Clopper and
            Pearson's by either method: proved at every n.
        histogram: number of equal bins over [lower, upper], or the edges; None for none.
        quantiles: probabilities in (0, 1); None for none.
        above: thresholds inside the range, data units, for the shares of inputs above each; None
            for none.
        simultaneous: make `confidence` that of all intervals of the result together (Bonferroni),
            not of each.
        allow_seeded: estimate from reports that were drawn from a seed, too: for tests, as such
            reports are not private. The result says so, and states no epsilon.
        deal: seed by which method "safe" deals the reports into chunks, to repeat a result; None
            for a fresh one, which the result records. A seed chosen after looking at intervals
            proves nothing.

    Returns: an `Estimate` for a table of numbers, `Frequencies` for one of categories.

    Raises:
        ParameterError: seeded reports unless allowed; a level, method, bin or probability that
            cannot be; no reports.
        InfeasibleError: the reports cannot have come from this table.

    Guarantees:
        The mean is unbiased up to `max_bias` and needs no solver; its interval is about the mean of
        the population and that of the rows. Where a solver fails on other intervals, they become
        wider.
        Intervals of variance, histogram and quantiles bound everything the reports leave open: no
            smoothness is
        assumed, only independent reports of independent rows. Coverage is measured
        (benchmarks/coverage.py).
        Points do not depend on what else is requested. Costs no privacy: reports are already
            private.

    Edge cases: two levels identify nothing but the mean: other intervals show everything else as
        open.

    Source: docs/proofs/estimation.md.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> estimate = mz.collect.estimate(counts, quantiles=[0.5])
        >>> estimate.mean.low < 4.0 < estimate.mean.high
        True
    """
    confidence = _check(counts, confidence, method, allow_seeded)
    mechanism = counts.mechanism
    request = Request.of(
        mechanism,
        above=above,
        histogram=histogram,
        quantiles=quantiles,
    )
    if mechanism.categories is not None:
        return frequencies(
            counts,
            confidence=confidence,
            method=method,
            simultaneous=simultaneous,
        )
    each = each_confidence(confidence, 2 + request.size, simultaneous=simultaneous)
    if method == "asymptotic":
        deal = None
        shapes: Shapes = CrossFitted(counts, confidence=each, edges=request.edges)
    else:
        betting = Betting(counts, confidence=each, edges=request.edges, deal=deal)
        deal, shapes = betting.deal, betting
    _, report_variance = report_moments(counts)
    variance = shapes.variance()
    likeliest = least_deviance(shapes.base, start=shapes.masses)
    return Estimate(
        n=counts.n,
        confidence=confidence,
        method=method,
        simultaneous=simultaneous,
        mean=mean_interval(counts, confidence=each, method=method),
        input_variance=variance,
        report_variance=report_variance,
        privacy_variance=_added(report_variance, variance, mechanism),
        max_bias=mechanism.max_bias,
        claim=claim_of(mechanism, seeded=counts.seeded),
        seeded=counts.seeded,
        sha256=mechanism.sha256,
        deviance=deviance(shapes.base, likeliest),
        deal=deal,
        notes=_notes(counts),
        histogram=_histogram(shapes, request),
        quantiles=_quantiles(shapes, request),
        shares_above=_shares_above(shapes, request),
    )


def _check(
    counts: CodeCounts,
    confidence: float,
    method: str,
    allow_seeded: bool,
) -> float:
    """The confidence, checked; raises for seeded reports, none, or codes that the table never
    draws.
    """
    refuse_seeded(counts.seeded, allowed=allow_seeded)
    check_choice("method", method, ("asymptotic", "safe"))
    if counts.n == 0:
        raise ParameterError("counts", 0, "there are no reports to estimate from")
    is_drawn = counts.mechanism.weights.any(axis=0)
    impossible = np.flatnonzero((counts.counts > 0) & ~is_drawn)
    if impossible.size:
        message = f"code {int(impossible[0])} was reported, which this table never draws"
        raise InfeasibleError(f"estimate: {message}; were the reports made by another one?")
    return check_confidence(confidence)


def _added(total: float, inputs: Interval, mechanism: Mechanism) -> Interval:
    """The variance that the table added: what that of the inputs leaves of a report's, not below
    the table's least.
    """
    least_variance = float(spread_of(mechanism).variances.min())
    shares = [inputs.high, inputs.value, inputs.low]
    lower_end, middle, upper_end = (
        min(max(total - share, least_variance), total) for share in shares
    )
    return Interval(value=middle, low=lower_end, high=upper_end)


def _histogram(shapes: Shapes, request: Request) -> Histogram | None:
    if not request.histogram:
        return None
    return Histogram.of(
        request.histogram,
        [shapes.share(*edges) for edges in request.bins],
    )


def _quantiles(shapes: Shapes, request: Request) -> Quantiles | None:
    if not request.quantiles:
        return None
    values = tuple(shapes.quantile(probability) for probability in request.quantiles)
    return Quantiles(probabilities=request.quantiles, values=values)


def _shares_above(shapes: Shapes, request: Request) -> SharesAbove | None:
    if not request.above:
        return None
    values = tuple(shapes.share(threshold, request.upper) for threshold in request.above)
    return SharesAbove(thresholds=request.above, values=values)
