"""The mean of the inputs behind a set of reports: its point and its interval."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.intervals import (
    Interval,
    Sums,
    target_of_mean,
    within,
)
from mezzotint.collect.spreads import Spread, spread_of
from mezzotint.core.mechanism import Mechanism

Method = Literal["asymptotic", "safe"]


def report_moments(counts: CodeCounts) -> tuple[float, float]:
    """Mean of the decoded reports, and the unbiased variance of one, not less than the table's
    least.

    The second is at least the true least variance of a report whatever the inputs are, so few
    reports that happen to agree do not suggest that there is no noise. Of a single report it is the
    greatest variance of a row.
    """
    levels = counts.mechanism.levels
    report_count = counts.n
    centre = float(levels[np.argmax(counts.counts)])
    mean_report = centre + float(counts.counts @ (levels - centre)) / report_count
    variances = spread_of(counts.mechanism).variances
    if report_count < 2:
        return mean_report, float(variances.max())
    variance = float(counts.counts @ (levels - mean_report) ** 2) / (report_count - 1)
    return mean_report, max(variance, float(variances.min()))


def mean_interval(counts: CodeCounts, *, confidence: float, method: Method) -> Interval:
    """The mean of the clipped inputs, unbiased up to the table's `max_bias`, which the interval
    includes.

    Of two levels it is Clopper and Pearson's interval, by either method: proved at every n. Of more
    it is the score interval, or by method "safe" that of Bernstein's inequality, proved at every n.
    """
    target = target_of_mean(counts.mechanism)
    reports = Sums.of_counts(counts.counts)
    estimated = target.value(reports)
    bias = counts.mechanism.max_bias
    if method == "asymptotic" or target.proved:
        lower_end, upper_end = target.interval(reports, confidence=confidence)
    else:
        width = bernstein(target.spread, n=counts.n, confidence=confidence)
        lower_end = estimated - width
        upper_end = estimated + width
    return possible_mean(
        counts.mechanism,
        estimated,
        lower_end - bias,
        upper_end + bias,
    )


def possible_mean(table: Mechanism, mean: float, low: float, high: float) -> Interval:
    """The interval within the range, where the mean of clipped inputs lies for sure; it keeps the
    unbiased estimate.

    What the bias of the table leaves open is `identified`, where it is more than rounding.
    """
    identified = None
    if table.max_bias > 1e-6 * (table.upper - table.lower):
        ends = np.clip(
            [mean - table.max_bias, mean + table.max_bias],
            table.lower,
            table.upper,
        )
        identified = (float(ends[0]), float(ends[1]))
    interval = within(mean, low, high, bounds=(table.lower, table.upper))
    return replace(interval, identified=identified)


def bernstein(spread: Spread, *, n: int, confidence: float) -> float:
    """Half the width of an interval for the expected value of a decoded report, at every n >= 1."""
    # P(|mean - E mean| >= t) <= 2 exp(-n t^2 / (2 v + 2 R t / 3)) with v >= the average variance
    # and R >= |B - E B|; setting the right side to 1 - level gives a quadratic in t.
    lowest = float(spread.means.min())
    highest = float(spread.means.max())
    reach = max(spread.top - lowest, highest - spread.bottom)
    log = math.log(2 / (1 - confidence))
    linear = reach * log / 3
    return (linear + math.sqrt(linear**2 + 2 * n * spread.greatest_of_all * log)) / n
