"""Intervals for the expected value of a decoded report, at every confidence from .8 to .9999.

Where one event decides (two levels, or a set of codes that a category makes likelier), the interval
is that of Clopper and Pearson: proved. Elsewhere it is a score interval whose constants are
verified, not proved (benchmarks/coverage.py). Both give the two sides at any normal quantile, which
sums and differences of independent estimates combine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, final

import numpy as np
import numpy.typing as npt
from scipy import special

from mezzotint.collect.spreads import ROUNDING, Spread
from mezzotint.core.errors import as_real
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Record, confidence_percent
from mezzotint.core.types import FloatArray

BoolArray = npt.NDArray[np.bool_]

Method = Literal["asymptotic", "safe"]

WIDER = 0.09
"""Added to normal quantiles, as variances are seen and not known (docs/proofs/estimation.md, E1).
"""

WIDEST = 0.14
"""The same where the largest variance that the table can have stands in for the one seen."""

PSEUDO_REPORTS = 8.0
"""Reports of the largest variance that are added to those seen, for what few reports do not show.
"""


SAME_CHANCE = 1e-6
"""Chances of a category's codes from two other categories that differ by a smaller share of the
signal are one.
"""


@final
@dataclass(frozen=True, kw_only=True)
class Interval(Record):
    """An estimate and the interval around it, in the unit of what is estimated.

    Arguments:
        value, low, high: the estimate, and the ends of its interval.
        identified: least and greatest value that even infinitely many reports with these shares
            would leave open; None where they would leave one value. Where it fills the interval,
            the table and not the number of reports is to blame for the width.

    Example:
        >>> print(mz.collect.Interval(value=4.0, low=3.9, high=4.2))
        value  4
        low    3.9
        high   4.2
    """

    value: float
    low: float
    high: float
    identified: tuple[float, float] | None = None

    @property
    def ends(self) -> dict[str, float]:
        """The estimate and both ends."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
        }


def within(
    value: float,
    low: float,
    high: float,
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """The interval, cut to what is possible, but never so that it loses the estimate."""
    return Interval(
        value=value,
        low=min(value, max(low, bounds[0])),
        high=max(value, min(high, bounds[1])),
    )


def check_confidence(confidence: float) -> float:
    """The level, checked to lie inside (0, 1)."""
    remedy = "a confidence level lies between 0 and 1; try confidence=0.95"
    return as_real(
        "confidence",
        confidence,
        lambda number: 0 < number < 1,
        remedy,
    )


def confidence_words(confidence: float, *, simultaneous: bool) -> str:
    """What a level is of: of each interval, or of all together."""
    intervals = "all intervals together" if simultaneous else "each interval"
    return f"{confidence_percent(confidence)} of {intervals}"


def each_confidence(confidence: float, number: int, *, simultaneous: bool) -> float:
    """The level of each of some intervals: that of all together (Bonferroni), or of each."""
    return 1 - (1 - confidence) / number if simultaneous else confidence


def normal_quantile(confidence: float) -> float:
    """The quantile z of the normal law with P(|Z| <= z) = level."""
    return float(special.ndtri((1 + confidence) / 2))


# Reports, and what one event says -----------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Sums:
    """Reports with weights, as far as the mean of a decoded report needs them.

    Arguments:
        weights, squares: (c,) sums of the weights and of their squares, by code.
        heaviest: greatest weight of a report.
    """

    weights: FloatArray
    squares: FloatArray
    heaviest: float

    @classmethod
    def of_counts(cls, counts: npt.ArrayLike) -> Self:
        """Reports of weight 1; expected counts may be fractions."""
        numbers = np.asarray(counts, dtype=np.float64)
        return cls(weights=numbers, squares=numbers, heaviest=1.0)

    @cached_property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self.weights.sum())

    @cached_property
    def size(self) -> float:
        """How many equally weighted reports these are worth: (sum d)^2 / sum d^2."""
        return self.total**2 / float(self.squares.sum())

    @cached_property
    def step(self) -> float:
        """What one report moves the mean by, per unit of its value, at most: 1/n without
        weights.
        """
        return self.heaviest / self.total

    @cached_property
    def stretch(self) -> float:
        """How much more often the heaviest reports count in the variance than in the mean, >= 1."""
        return max(
            1.0,
            self.heaviest * self.total / float(self.squares.sum()),
        )

    @property
    def equal(self) -> bool:
        """Whether all reports weigh the same."""
        return self.stretch <= 1 + 1e-9

    def mean(self, values: FloatArray) -> float:
        """Weighted mean of the decoded reports."""
        centre = float(values[np.argmax(self.weights)])  # equal reports give exactly their value
        return centre + float(self.weights @ (values - centre)) / self.total

    def variance(self, values: FloatArray, mean: float) -> float:
        """Mean square about a number, weighted as in the variance of the mean."""
        return float(self.squares @ (values - mean) ** 2) / float(self.squares.sum())


def clopper_pearson(
    supports: npt.ArrayLike, n: float, tail: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Both ends of the interval of a chance, each with one-sided error `tail`.

    Arguments:
        supports: how many of n independent trials succeeded; expected numbers may be fractions.

    Source: Clopper and Pearson 1934.
    """
    hits, error = np.broadcast_arrays(
        np.asarray(supports, dtype=np.float64),
        np.asarray(tail, dtype=np.float64),
    )
    misses = n - hits
    tiny = np.finfo(np.float64).tiny
    lower_end = special.betaincinv(np.maximum(hits, tiny), misses + 1, error)
    upper_end = special.betaincinv(hits + 1, np.maximum(misses, tiny), 1 - error)
    return np.where(hits > 0, lower_end, 0.0), np.where(misses > 0, upper_end, 1.0)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Event:
    """A set of codes whose chance alone decides what is estimated.

    The chance l of the set, estimated by Clopper and Pearson, is mapped to offset + slope * l, with
    one line for the lower end and one for the upper end.

    Arguments:
        codes: (c,) which codes are in the set.
        lower, upper: (offset, slope > 0) of each line.
    """

    codes: BoolArray
    lower: tuple[float, float]
    upper: tuple[float, float]

    def ends(self, reports: Sums, tail: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Both ends for reports of equal weights, each with one-sided error `tail`."""
        counts = reports.weights / reports.heaviest
        lower_end, upper_end = clopper_pearson(counts[self.codes].sum(), float(counts.sum()), tail)
        return self.lower[0] + self.lower[1] * lower_end, self.upper[0] + self.upper[1] * upper_end


def event_of_values(spread: Spread) -> Event | None:
    """The event that the greater of two values is reported; None for more or fewer values."""
    if spread.used.size != 2:
        return None
    line = (spread.bottom, spread.reach)
    return Event(
        codes=spread.values > spread.bottom + spread.reach / 2,
        lower=line,
        upper=line,
    )


def event_of_category(mechanism: Mechanism, category: int) -> Event | None:
    """The event that a code is reported which the category makes likelier than the average one
    does.
    """
    row_chances = mechanism.probabilities
    codes = row_chances[category] > row_chances.mean(axis=0)
    chances = row_chances[:, codes].sum(axis=1)
    others = np.delete(chances, category)
    if not others.size:
        return None
    return event_of_chances(codes, chances[[category]], others)


def event_of_chances(codes: BoolArray, inside: FloatArray, outside: FloatArray) -> Event | None:
    """The event of a set of codes, whose chance alone decides the share of some inputs.

    None where its chance depends on more than that share. The chance of the set is p, between the
    least and the greatest from inputs `inside`, and q from those outside. Then the chance of a
    report is l = f p + (1 - f) q, and f = (l - q)/(p - q) falls in both.
    """
    least_inside = float(inside.min())
    greatest_inside = float(inside.max())
    least_outside = float(outside.min())
    greatest_outside = float(outside.max())
    signal = least_inside - greatest_outside
    spread = max(
        greatest_inside - least_inside,
        greatest_outside - least_outside,
    )
    if signal <= 0 or spread >= SAME_CHANCE * signal:
        return None
    lower_signal = greatest_inside - greatest_outside
    upper_signal = least_inside - least_outside
    return Event(
        codes=codes,
        lower=(-greatest_outside / lower_signal, 1 / lower_signal),
        upper=(-least_outside / upper_signal, 1 / upper_signal),
    )


# The expected value of a decoded report -----------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A number that is the expected value of a decoded report.

    Arguments:
        spread: of the decoder whose mean is the estimate.
        event: that decides it, where there is one.
    """

    spread: Spread
    event: Event | None

    def value(self, reports: Sums) -> float:
        """The unbiased estimate."""
        return reports.mean(self.spread.values)

    def sides(self, reports: Sums, quantiles: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far below and above the estimate the truth may lie, not cut to what is possible.

        Arguments:
            quantiles: (Z,) >= 0 of the normal law: the error of each side is P(N > quantile).

        Guarantees: proved at every n for reports of equal weights where an event decides; verified
            elsewhere. Such distances may be combined (`largest_sums`), those of intervals that were
            cut to what is possible may not.
        Source: docs/proofs/estimation.md, E1 and E10.
        """
        if self.event is None or not reports.equal:
            return score_sides(self.spread, reports, quantiles)
        estimated = self.value(reports)
        lower_end, upper_end = self.event.ends(reports, special.ndtr(-quantiles))
        return np.maximum(estimated - lower_end, 0.0), np.maximum(upper_end - estimated, 0.0)

    def interval(
        self,
        reports: Sums,
        *,
        confidence: float,
        method: Method = "asymptotic",
        bias: float = 0.0,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ) -> Interval:
        """The estimate with its interval, within the expected values that the table can give.

        Where an event decides it is Clopper and Pearson's by either method: proved at every n for
        reports of equal weights. Elsewhere it is the score interval, or by method "safe" that of
        Bernstein's inequality, proved at every n.

        Arguments:
            bias: by which either end may be off besides.
            bounds: what is possible at all.
        """
        estimated = self.value(reports)
        if method == "safe" and not self.proved:
            width = bernstein(self.spread, n=reports.total, confidence=confidence)
            ends = (estimated - width, estimated + width)
        else:
            below, above = self.sides(reports, np.array([normal_quantile(confidence)]))
            row_means = self.spread.means
            cut = np.clip(
                [estimated - float(below[0]), estimated + float(above[0])],
                row_means.min(),
                row_means.max(),
            ).tolist()
            rounding = ROUNDING * float(np.abs(self.spread.values).max())
            ends = (cut[0] - rounding, cut[1] + rounding)
        return within(estimated, ends[0] - bias, ends[1] + bias, bounds=bounds)

    @property
    def proved(self) -> bool:
        """Whether its interval, of reports of equal weights, is proved at every n."""
        return self.event is not None


def target_of_mean(mechanism: Mechanism) -> Target:
    """The mean of the inputs of a table of numbers, up to its bias."""
    return target_of_values(mechanism.probabilities, mechanism.levels)


def target_of_values(pmf: FloatArray, values: FloatArray) -> Target:
    """The expected value of what the codes are decoded to."""
    spread = Spread(pmf=pmf, values=values)
    return Target(spread=spread, event=event_of_values(spread))


def targets_of_categories(mechanism: Mechanism) -> list[Target]:
    """The share of each category of a table of categories."""
    decoders = mechanism.frequency_decoders.T
    return [
        Target(
            spread=Spread(pmf=mechanism.probabilities, values=decoder),
            event=event_of_category(mechanism, category),
        )
        for category, decoder in enumerate(decoders)
    ]


def mean_interval(
    mechanism: Mechanism, reports: Sums, *, confidence: float, method: Method = "asymptotic"
) -> Interval:
    """The mean of the clipped inputs, unbiased up to the table's `max_bias`, which the interval
    includes; within the range, where it lies for sure.

    What the bias of the table leaves open is `identified`, where it is more than rounding.
    """
    bias = mechanism.max_bias
    bounds = (mechanism.lower, mechanism.upper)
    interval = target_of_mean(mechanism).interval(
        reports, confidence=confidence, method=method, bias=bias, bounds=bounds
    )
    if bias <= 1e-6 * (mechanism.upper - mechanism.lower):
        return interval
    open_low, open_high = np.clip([interval.value - bias, interval.value + bias], *bounds)
    return replace(interval, identified=(float(open_low), float(open_high)))


def bernstein(spread: Spread, *, n: float, confidence: float) -> float:
    """Half the width of an interval for the expected value of a decoded report, at every n >= 1."""
    # P(|mean - E mean| >= t) <= 2 exp(-n t^2 / (2 v + 2 R t / 3)) with v >= the average variance
    # and R >= |B - E B|; setting the right side to 1 - level gives a quadratic in t.
    lowest = float(spread.means.min())
    highest = float(spread.means.max())
    reach = max(spread.top - lowest, highest - spread.bottom)
    log = math.log(2 / (1 - confidence))
    linear = reach * log / 3
    return (linear + math.sqrt(linear**2 + 2 * n * spread.greatest_of_all * log)) / n


# The score interval -------------------------------------------------------------------------------

_STEPS, _FINER_STEPS = 256, 64
"""Distances that are tried, and parts of the one step in which acceptance ends."""


def score_sides(
    spread: Spread, reports: Sums, quantiles: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """How far below and above the mean of the reports the expected one may lie, at each quantile.

    Guarantees: none proved at finite n; coverage is measured (benchmarks/coverage.py).
    """
    mean_report = reports.mean(spread.values)
    variance = reports.variance(spread.values, mean_report)
    z = quantiles[:, None]
    discreteness = np.maximum(
        max(spread.lattice, spread.reach / 2),
        _skewness(z) * spread.reach,
    )
    farthest = (z + WIDEST) * math.sqrt(spread.greatest_of_all / reports.size)
    farthest = farthest + discreteness * reports.step

    def side(direction: int) -> FloatArray:
        def accepts(away: FloatArray) -> BoolArray:
            widths = score_widths(
                spread,
                reports,
                mean_report + direction * away,
                variance + away**2,
                quantiles=z,
                reports_above=direction < 0,
            )
            return away <= widths

        def last_accepted(away: FloatArray) -> FloatArray:
            index = away.shape[1] - 1 - np.argmax(accepts(away)[:, ::-1], axis=1)
            return np.take_along_axis(away, index[:, None], axis=1)

        step = farthest / _STEPS
        fine = step / _FINER_STEPS
        start = last_accepted(step * np.arange(_STEPS + 1))
        interval_end = last_accepted(start + fine * np.arange(_FINER_STEPS + 1))
        # Where the noise is far greater than the range, a step passes over means that a table
        # answers with more variance than those beside them.
        turns = np.maximum(direction * (spread.turns - mean_report), 0.0)
        candidates = np.tile(turns, (quantiles.size, 1))
        passed = np.where(accepts(candidates), candidates, 0.0).max(axis=1)[:, None]
        if (passed > interval_end).any():
            start = np.where(passed > interval_end, passed, start)
            interval_end = last_accepted(start + fine * np.arange(_FINER_STEPS + 1))
        return (interval_end + fine)[:, 0]  # what lies between two candidates is given away

    return side(-1), side(1)


def _skewness(z: FloatArray) -> FloatArray:
    """Coefficient of third moment / variance / n in a quantile: Cornish and Fisher's, and a
    quarter.
    """
    return (z**2 - 1) / 6 + 0.25


def _unseen_jumps(z: FloatArray) -> FloatArray:
    """Reports of a rare far value that none seen does not rule out: of a Poisson count, at
    least 2.
    """
    return np.maximum(2.0, z**2 / 2 + 0.08)


TWO_FAR_VALUES = 1 / 4
"""Of the reach, where nothing but the inputs decides between two far values: a lattice of that
step.
"""


def _discreteness(
    spread: Spread,
    variance: FloatArray,
    to_bottom: FloatArray,
    to_top: FloatArray,
) -> FloatArray:
    """The cost of discrete reports, times n: of their lattice, of gaps, and of values in two
    clusters.

    Where the variance comes near the product of both distances, reports are at the two ends alone.
    """
    product = to_top * to_bottom
    filled = np.divide(
        2 * variance,
        product,
        out=np.zeros_like(product),
        where=product > 0,
    )
    clustered = spread.reach / 2 * np.clip(filled - 1, 0.0, 1.0)
    return np.maximum(max(spread.lattice, spread.widest_gap / 3), clustered)


def _third_moment(variance: FloatArray, distance: FloatArray) -> FloatArray:
    """Greatest third moment / variance of a report that is at most so far above its mean.

    By Cauchy's inequality for Y (distance - Y), with equality where there are two values.
    """
    ratio = np.divide(
        variance,
        distance,
        out=np.zeros_like(variance),
        where=distance > 0,
    )
    return np.maximum(distance - ratio, 0.0)


def score_widths(
    spread: Spread,
    reports: Sums,
    means: FloatArray,
    seconds: FloatArray,
    *,
    quantiles: FloatArray,
    reports_above: bool | BoolArray,
) -> FloatArray:
    """How far the mean of the reports may be from each expected value, on one side of it.

    Arguments:
        means: hypothetical expected values.
        seconds: mean squares of the reports about them.
        quantiles: of the normal law, broadcast against the means.
        reports_above: whether the mean of the reports lies above the hypothetical one.

    Source: docs/proofs/estimation.md, E1.
    """
    z = quantiles
    effective_size = reports.size
    smallest, greatest = _variance_range(spread, reports, means)
    to_top = np.maximum(spread.top - means, 0.0)
    to_bottom = np.maximum(means - spread.bottom, 0.0)
    distance = np.where(reports_above, to_top, to_bottom)
    unseen = np.minimum(1.0, np.maximum(PSEUDO_REPORTS, 2 * z**2) / effective_size)
    believed = np.clip(seconds, smallest, greatest) + unseen * (greatest - smallest)
    believed = np.minimum(greatest, believed)
    clear = 1 - np.divide(
        smallest,
        greatest,
        out=np.ones_like(smallest),
        where=greatest > 0,
    )
    far = spread.reach * clear

    skewed = _skewness(z) * _third_moment(greatest, distance)
    lattice = _discreteness(spread, greatest, to_bottom, to_top)
    steps = np.maximum(np.maximum(lattice, TWO_FAR_VALUES * far), skewed)
    by_table = (z + WIDEST) * np.sqrt(greatest / effective_size) + steps * reports.step

    skewed = _skewness(z) * _third_moment(believed, distance)
    lattice = _discreteness(spread, believed, to_bottom, to_top)
    steps = np.maximum(_unseen_jumps(z) * far + lattice, skewed)
    by_reports = (z + WIDER) * np.sqrt(believed / effective_size) + steps * reports.step
    return np.minimum(by_table, by_reports)


def _variance_range(
    spread: Spread, reports: Sums, means: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds on the variance that counts in the mean of the reports, at each expected value.

    With weights the inputs of heavy reports count more often in the variance than in the mean:
    their own mean is one that the expected value, its distance from each end stretched, does not
    rule out.
    """
    if reports.equal:
        return spread.least(means), spread.greatest(means)
    bottom = float(spread.means.min())
    top = float(spread.means.max())
    inside = np.clip(means, bottom, top)
    lower_end = np.maximum(top - reports.stretch * (top - inside), bottom)
    upper_end = np.minimum(bottom + reports.stretch * (inside - bottom), top)
    return spread.least_between(lower_end, upper_end), spread.greatest_between(lower_end, upper_end)


# Sums of independent estimates --------------------------------------------------------------------

LADDER = np.sqrt(np.linspace(0.0, 1.0, 65))
"""Shares of a normal quantile, of equal steps in their squares, at which sides are known."""


def largest_sums(first: FloatArray, second: FloatArray) -> FloatArray:
    """The sides of a sum of two independent estimates, from those of its terms.

    Arguments:
        first, second: (65,) sides at the quantiles z * LADDER, for the same z.

    Returns: (65,) at the same quantiles: the greatest sum of a side of one at t and of the other at
        u over t^2 + u^2 = quantile^2. Where sides are linear in the quantile this is the root of
        the sum of squares; near a boundary they are not.

    Source: docs/proofs/estimation.md, E10.
    """
    ladder_size = LADDER.size
    together = first[:, None] + second[None, :]
    index = np.add.outer(np.arange(ladder_size), np.arange(ladder_size))
    best = np.full(2 * ladder_size - 1, -math.inf)
    np.maximum.at(best, index.ravel(), together.ravel())
    return best[:ladder_size]
