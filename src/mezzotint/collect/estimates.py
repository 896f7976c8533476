"""Estimates about the column that reports came from, with intervals that include what the reports
leave open.

Frequencies of categories; mean, spread, histogram and quantiles of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np

from mezzotint.collect.bets import Betting
from mezzotint.collect.counts import (
    CodeCounts,
    claim_of,
    refuse_seeded,
)
from mezzotint.collect.evidence import CrossFitted, Evidence, Request
from mezzotint.collect.intervals import (
    Interval,
    Method,
    Sums,
    check_confidence,
    confidence_words,
    each_confidence,
    mean_interval,
    targets_of_categories,
)
from mezzotint.collect.spreads import spread_of
from mezzotint.collect.support_points import deviance, least_deviance
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
        return _keyed("category", dict(zip(self.categories, self.shares, strict=True)))

    def _rows(self) -> list[JsonObject]:
        return self.frequencies


def _keyed(name: str, intervals: Mapping[Any, Interval]) -> list[JsonObject]:
    """A row for each interval, with its key under a name."""
    return [{name: entry_key, **share.as_dict()} for entry_key, share in intervals.items()]


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
    from mezzotint.families.hashing import is_of_cells

    mechanism = counts.mechanism
    reports = Sums.of_counts(counts.counts)
    categories = mechanism.categories or ()
    each = each_confidence(confidence, len(categories), simultaneous=simultaneous)
    shares = [
        target.interval(reports, confidence=each, method=method, bounds=(0.0, 1.0))
        for target in targets_of_categories(mechanism)
    ]
    notes = counts.provenance.notes
    if is_of_cells(mechanism):
        notes = (*notes, CELLS_OF_A_DOMAIN)
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
        notes=notes,
    )


CELLS_OF_A_DOMAIN = (
    "these categories are cells of a large domain, each with many of its values; for the values "
    "themselves use heavy_hitters (--domain with the list)"
)
"""What is said of shares of cells."""


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
        values = dict(vars(self))
        edges = values.pop("edges")
        columns: dict[str, FloatArray] = {"from": edges[:-1], "to": edges[1:], **values}
        entries = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, entry, strict=True)) for entry in entries]


@final
@dataclass(frozen=True, kw_only=True)
class Estimate(Claimed):
    """The estimate that one set of reports gives of its clipped inputs.

    Guarantees: the mean is unbiased up to `max_bias` and needs no solver; its interval is about the
    mean of the population and that of the rows. Intervals of variance, histogram and quantiles
    bound all that reports leave open: no smoothness is assumed, only independent reports of
    independent rows. Where a solver fails, they become wider. Coverage is measured
    (benchmarks/coverage.py).

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
        notes: one sentence each of what the intervals rely on (`Provenance.notes`).
        histogram: where requested.
        quantiles: probability -> its quantile, data units, where requested.
        shares_above: threshold -> share of the clipped inputs above it, where requested. A value on
            a threshold may count to either side in the interval.

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
    quantiles: Mapping[float, Interval] | None = None
    shares_above: Mapping[float, Interval] | None = None

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
        if self.quantiles is not None:
            facts["quantiles"] = _keyed("probability", self.quantiles)
        if self.shares_above is not None:
            facts["shares_above"] = _keyed("above", self.shares_above)
        return {**first, **facts}

    @property
    def intervals(self) -> dict[str, Interval]:
        """All of them, by the names of what they are about."""
        named = {"mean": self.mean, "variance": self.input_variance}
        for probability, quantile in (self.quantiles or {}).items():
            named[f"quantile {probability:g}"] = quantile
        for threshold, share in (self.shares_above or {}).items():
            named[f"share above {threshold:g}"] = share
        if self.histogram is not None:
            for bin_row in self.histogram._rows():
                label = f"share in {bin_row['from']:.4g} to {bin_row['to']:.4g}"
                named[label] = Interval(
                    value=bin_row["share"],
                    low=bin_row["low"],
                    high=bin_row["high"],
                    identified=(bin_row["identified_low"], bin_row["identified_high"]),
                )
        return named

    def _rows(self) -> list[JsonObject]:
        """An interval per row."""
        return [
            {"quantity": quantity, **interval.ends} for quantity, interval in self.intervals.items()
        ]

    def _told(self) -> JsonObject:
        """What is printed: counts, intervals with their confidence, the epsilon or why there
        is none, and notes.
        """
        facts = super().as_dict()
        words = confidence_words(self.confidence, simultaneous=self.simultaneous)
        named = self.intervals.items()
        shown: JsonObject = {
            "reports": self.n,
            **{quantity: interval.as_dict() for quantity, interval in named},
            "standard error of the mean": self.standard_error,
            "confidence": f"{words}, {self.method}",
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
    """Mean, variance and, on request, shares and quantiles of the clipped inputs behind reports;
    of a table of categories (`families.categorical`) their frequencies.

    Arguments:
        counts: reports per code (`read_counts`, `CodeCounts.from_codes`).
        confidence: of each interval, in (0, 1).
        method: "asymptotic": right in the limit of many reports, and by simulation from few on.
            "safe": proved at every n (Bernstein's inequality, and bets); wider. Where one event
            decides (two levels, most tables of categories) both are Clopper and Pearson's: proved.
        histogram: number of equal bins over [lower, upper], or the edges.
        quantiles: probabilities in (0, 1).
        above: thresholds inside the range, data units, for the shares of inputs above each.
        simultaneous: make `confidence` that of all intervals together (Bonferroni).
        allow_seeded: take reports that were drawn from a seed, too, for tests: they are not
            private, and the result states no epsilon.
        deal: seed by which "safe" deals the reports into chunks, to repeat a result, which records
            it; None for a fresh one. One chosen after looking at intervals proves nothing.

    Returns: an `Estimate` for a table of numbers, `Frequencies` for one of categories.

    Raises:
        ParameterError: seeded reports unless allowed; a level, method, bin or probability that
            cannot be; no reports.
        InfeasibleError: the reports cannot have come from this table.

    Guarantees: see `Estimate`. Points do not depend on what else is requested. Costs no privacy.

    Edge cases: two levels identify nothing but the mean: other intervals show the rest as open.
    Source: docs/proofs/estimation.md.

    Example:
        >>> table = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = table.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=table)
        >>> mz.collect.estimate(counts).mean.low < 4.0
        True
    """
    confidence = _check(counts, confidence, method, allow_seeded)
    shared: JsonObject = {
        "confidence": confidence,
        "method": method,
        "simultaneous": simultaneous,
    }
    requested = {"above": above, "histogram": histogram, "quantiles": quantiles}
    request = Request.of(counts.mechanism, **requested)
    if counts.mechanism.categories is not None:
        return frequencies(counts, **shared)
    return _of_numbers(counts, request, deal=deal, **shared)


def _of_numbers(
    counts: CodeCounts,
    request: Request,
    *,
    confidence: float,
    method: Method,
    simultaneous: bool,
    deal: int | None,
) -> Estimate:
    """The estimate for a table of numbers."""
    mechanism = counts.mechanism
    each = each_confidence(confidence, 2 + request.size, simultaneous=simultaneous)
    if method == "asymptotic":
        deal = None
        evidence: Evidence = CrossFitted(counts, confidence=each, edges=request.edges)
    else:
        betting = Betting(counts, confidence=each, edges=request.edges, deal=deal)
        deal = betting.deal
        evidence = betting
    reports = Sums.of_counts(counts.counts)
    report_variance = variance_of_report(counts)
    variance = evidence.variance()
    likeliest = least_deviance(evidence.base, start=evidence.masses)
    histogram = None
    if request.bins:
        bins = [evidence.share(*edges) for edges in request.bins]
        histogram = Histogram.of(request.histogram, bins)
    quantiles = {probability: evidence.quantile(probability) for probability in request.quantiles}
    above = {threshold: evidence.share(threshold, request.upper) for threshold in request.above}
    return Estimate(
        n=counts.n,
        confidence=confidence,
        method=method,
        simultaneous=simultaneous,
        mean=mean_interval(mechanism, reports, confidence=each, method=method),
        input_variance=variance,
        report_variance=report_variance,
        privacy_variance=_added(report_variance, variance, mechanism),
        max_bias=mechanism.max_bias,
        claim=claim_of(mechanism, seeded=counts.seeded),
        seeded=counts.seeded,
        sha256=mechanism.sha256,
        deviance=deviance(evidence.base, likeliest),
        deal=deal,
        notes=counts.provenance.notes,
        histogram=histogram,
        quantiles=quantiles or None,
        shares_above=above or None,
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
        raise ParameterError("counts", 0, "no reports; there is nothing to estimate from")
    is_drawn = counts.mechanism.weights.any(axis=0)
    impossible = np.flatnonzero((counts.counts > 0) & ~is_drawn)
    if impossible.size:
        message = f"code {int(impossible[0])} was reported, which this table never draws"
        raise InfeasibleError(f"estimate: {message}; were the reports made by another one?")
    return check_confidence(confidence)


def variance_of_report(counts: CodeCounts) -> float:
    """The unbiased variance of a decoded report, not less than the table's least; of a single
    report the greatest variance of a row.

    It is at least the true least variance of a report whatever the inputs are, so few reports that
    happen to agree do not suggest that there is no noise.
    """
    levels = counts.mechanism.levels
    variances = spread_of(counts.mechanism).variances
    if counts.n < 2:
        return float(variances.max())
    mean_report = Sums.of_counts(counts.counts).mean(levels)
    variance = float(counts.counts @ (levels - mean_report) ** 2) / (counts.n - 1)
    return max(variance, float(variances.min()))


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
