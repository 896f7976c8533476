"""The mean of a column from reports, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from scipy import special

from mezzotint.collect.counts import CodeCounts
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import FloatArray, Mechanism
from mezzotint.core.records import Record

Method = Literal["asymptotic", "safe"]

WIDER = 0.09
"""Added to normal quantiles, as variances are seen and not known (docs/proofs/estimation.md, E1)."""


@final
@dataclass(frozen=True, kw_only=True)
class Interval(Record):
    """An estimate and the interval around it, in the unit of what is estimated.

    Arguments:
        value, low, high: the estimate, and the ends of its interval.
        identified: least and greatest value that even infinitely many reports with these shares would leave open; None
            where they would leave one value. Where it fills the interval, the table and not the number of reports is to
            blame for the width.
    """

    value: float
    low: float
    high: float
    identified: tuple[float, float] | None = None


def within(value: float, low: float, high: float, *, bounds: tuple[float, float] = (-math.inf, math.inf)) -> Interval:
    """The interval, cut to what is possible, but never so that it loses the estimate."""
    return Interval(value=value, low=min(value, max(low, bounds[0])), high=max(value, min(high, bounds[1])))


def check_level(level: float) -> float:
    """The level, checked to lie inside (0, 1)."""
    if not 0 < level < 1:
        raise ParameterError("level", level, "a confidence level lies between 0 and 1; try level=0.95")
    return float(level)


# What a table says about the variance of a decoded report ------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Bounds on the variance of one decoded report, given its mean, over all distributions of the input.

    With mu = E[B] and S = E[B^2], a distribution of inputs reaches any point of the convex hull of the rows' (mu, S):
    the variance S - mu^2 lies between the lower and the upper hull at mu.

    Arguments:
        pmf: (K, c) probabilities of the codes from each row.
        values: (c,) what the codes are decoded to.
    """

    pmf: FloatArray
    values: FloatArray

    @cached_property
    def used(self) -> FloatArray:
        """Values that can occur."""
        return self.values[self.pmf.any(axis=0)]

    @cached_property
    def reach(self) -> float:
        """Greatest used value less the least."""
        return float(self.used.max() - self.used.min())

    @cached_property
    def means(self) -> FloatArray:
        """(K,) expected value from each row."""
        return self._centre + self.pmf @ (self.values - self._centre)

    @cached_property
    def _centre(self) -> float:
        return float(self.used.min() + self.used.max()) / 2

    @cached_property
    def _points(self) -> FloatArray:
        # About the centre, so that values far from 0 do not cancel.
        centred = self.values - self._centre
        return np.stack([self.pmf @ centred, self.pmf @ centred**2], axis=1)

    @cached_property
    def variances(self) -> FloatArray:
        """(K,) variance of the report from each row; at no input is it below the least of these."""
        deviation = self.values - self.means[:, None]
        return np.einsum("ki,ki->k", self.pmf, deviation**2)

    @cached_property
    def _hulls(self) -> tuple[FloatArray, FloatArray]:
        return _hull(self._points, sign=-1), _hull(self._points, sign=1)

    def least(self, mean: FloatArray) -> FloatArray:
        """Least variance at each mean (outside the rows' means: at the nearest)."""
        return self._at(mean, self._hulls[0])

    def greatest(self, mean: FloatArray) -> FloatArray:
        """Greatest variance at each mean."""
        return self._at(mean, self._hulls[1])

    def _at(self, mean: FloatArray, hull: FloatArray) -> FloatArray:
        inside = np.clip(mean - self._centre, hull[0, 0], hull[-1, 0])
        return np.maximum(np.interp(inside, hull[:, 0], hull[:, 1]) - inside**2, 0.0)

    @cached_property
    def greatest_of_all(self) -> float:
        """Greatest variance over all distributions of the input: on the upper hull, edge by edge."""
        hull = self._hulls[1]
        best = float((hull[:, 1] - hull[:, 0] ** 2).max())
        for (x0, y0), (x1, y1) in pairwise(hull):
            slope = (y1 - y0) / (x1 - x0)
            top = min(max(slope / 2, x0), x1)  # of y0 + slope (x - x0) - x^2
            best = max(best, float(y0 + slope * (top - x0) - top**2))
        return best

    @cached_property
    def lattice(self) -> float:
        """What the discreteness of the values costs an interval around the mean, times n.

        Half the smallest distance of two values, where the reports form a lattice; more where rare far values make the
        reports skewed.
        """
        gaps = np.diff(np.unique(self.used))
        # Values that rounding alone tells apart are one, or the step between the others would be overlooked.
        step = float(gaps[gaps > 1e-9 * self.reach].min(initial=self.reach))
        deviation = self.values - self.means[:, None]
        third = np.abs(np.einsum("ki,ki->k", self.pmf, deviation**3))
        noisy = self.variances > 1e-12 * self.reach**2
        return max(step / 2, 0.6 * float((third[noisy] / self.variances[noisy]).max(initial=0.0)))


def _hull(points: FloatArray, *, sign: int) -> FloatArray:
    """Vertices of the lower (-1) or upper (1) hull of points in the plane, left to right."""
    hull: list[FloatArray] = []
    for point in points[np.lexsort((sign * points[:, 1], points[:, 0]))]:
        while hull and (hull[-1][0] == point[0] or (len(hull) > 1 and sign * _turn(hull[-2], hull[-1], point) >= 0)):
            hull.pop()
        hull.append(point)
    return np.array(hull)


def _turn(a: FloatArray, b: FloatArray, c: FloatArray) -> float:
    return float((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]))


def spread_of(mechanism: Mechanism) -> Spread:
    """The spread of the table's own decoded reports."""
    return Spread(pmf=mechanism.probabilities, values=mechanism.levels)


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


def mean_interval(counts: CodeCounts, *, level: float, method: Method) -> Interval:
    """The mean of the clipped inputs, unbiased up to the table's `max_bias`, which the interval includes.

    Arguments:
        counts: n >= 1 reports.
        level: confidence, in (0, 1).
        method: "asymptotic": the score interval (`score_interval`). "safe": Bernstein's inequality with the table's
            greatest variance, right at every n.
    """
    mean, _ = report_moments(counts)
    if method == "safe":
        width = safe_half_width(counts.mechanism, n=counts.n, level=level)
        return _possible(counts.mechanism, mean, mean - width, mean + width)
    low, high = score_interval(counts.counts, spread_of(counts.mechanism), mean=mean, level=level)
    bias = counts.mechanism.max_bias
    return _possible(counts.mechanism, mean, low - bias, high + bias)


def _possible(table: Mechanism, mean: float, low: float, high: float) -> Interval:
    """The interval within the range, where the mean of clipped inputs lies for sure; it keeps the unbiased estimate.

    What the bias of the table leaves open is `identified`, where it is more than rounding.
    """
    ends = np.clip([mean - table.max_bias, mean + table.max_bias], table.lower, table.upper)
    biased = table.max_bias > 1e-6 * (table.upper - table.lower)
    identified = (float(ends[0]), float(ends[1])) if biased else None
    return replace(within(mean, low, high, bounds=(table.lower, table.upper)), identified=identified)


_CANDIDATES = 1025


def score_interval(counts: npt.NDArray[np.int64], spread: Spread, *, mean: float, level: float) -> tuple[float, float]:
    """All expected values of a decoded report that its table does not find too far from the observed mean.

    Under a mean mu the variance of a report lies between known bounds; the observed spread, corrected by mu and by a
    few pseudo-reports for what was not seen, says where between. The widths of discreteness and skewness are added.

    Arguments:
        counts: (c,) reports per code.
        spread: of the decoder.
        mean: of the decoded reports.
        level: confidence, in (0, 1).

    Guarantees: none proved at finite n; coverage is measured (benchmarks/coverage.py). At level 0.95 the least that all
        outcomes of 10 to 2000 reports gave was 0.948 (three levels at epsilon .25, 10 reports).
    Source: docs/proofs/estimation.md, E1.
    """
    n, z = int(counts.sum()), float(special.ndtri((1 + level) / 2))
    seen = float(counts @ (spread.values - mean) ** 2) / n
    bottom, top = float(spread.means.min()), float(spread.means.max())
    lattice = spread.lattice / n
    farthest = (z + 0.14) * math.sqrt(spread.greatest_of_all / n) + lattice
    means = np.linspace(max(bottom, mean - farthest), min(top, mean + farthest), _CANDIDATES)
    if means[0] > means[-1]:  # beyond what the table can give: the nearer end is all that is left
        end = float(np.clip(mean, bottom, top))
        return end, end
    means = np.append(means, np.clip(mean, means[0], means[-1]))
    kept = means[np.abs(mean - means) <= score_widths(spread, means, seen + (mean - means) ** 2, n=n, z=z)]
    step = 2 * farthest / (_CANDIDATES - 1)  # what lies between two candidates is given away
    low, high = (kept.min() - step, kept.max() + step) if kept.size else (means[-1], means[-1])
    rounding = 1e-12 * float(np.abs(spread.values).max())
    return max(float(low), bottom) - rounding, min(float(high), top) + rounding


def score_widths(spread: Spread, means: FloatArray, second: FloatArray, *, n: float, z: float) -> FloatArray:
    """How far the mean of n decoded reports may be from each expected value, given their mean square about it."""
    least, greatest = spread.least(means), spread.greatest(means)
    believed = np.clip(second, least, greatest) + min(1.0, 8 / n) * (greatest - least)
    flat = np.divide(least, greatest, out=np.ones_like(least), where=greatest > 0)
    usual = (z + WIDER) * np.sqrt(np.minimum(believed, greatest) / n) + 2 * spread.reach * (1 - flat) / n
    return np.minimum(usual, (z + 0.14) * np.sqrt(greatest / n)) + spread.lattice / n


def half_width(spread: Spread, *, mean: float, variance: float, n: float, level: float) -> float:
    """Half the width of the score interval at its own centre, not cut to what the table can give.

    Such widths may be combined: of a sum of independent parts the square is the sum of their squares. Those of
    intervals that were cut may not.

    Arguments:
        mean, variance: of the decoded reports, of which there are n, or as many as weighted ones are worth.
    """
    centre = np.clip([mean], spread.means.min(), spread.means.max())
    z = float(special.ndtri((1 + level) / 2))
    return float(score_widths(spread, centre, variance + (mean - centre) ** 2, n=n, z=z)[0])


def score_sides(spread: Spread, *, mean: float, variance: float, n: float, level: float) -> tuple[float, float]:
    """How far below and above an observed mean the expected one may lie, not cut to what the table can give.

    Such distances may be combined, each with that of the side to which it errs (Zou and Donner 2008): intervals are
    lopsided where a table's noise depends on its input. Those of intervals that were cut may not.

    Returns: the distances to the ends of the score interval, each at least 0; arguments as `half_width`.
    Source: docs/proofs/estimation.md, E1 and E10.
    """
    z = float(special.ndtri((1 + level) / 2))
    farthest = (z + 0.14) * math.sqrt(spread.greatest_of_all / n) + spread.lattice / n
    away, step = np.linspace(0.0, farthest, _CANDIDATES, retstep=True)
    below, above = (
        float(
            away[away <= score_widths(spread, mean + sign * away, variance + away**2, n=n, z=z)].max(initial=0.0) + step
        )
        for sign in (-1, 1)
    )
    return below, above


def safe_half_width(mechanism: Mechanism, *, n: int, level: float) -> float:
    """Half the width that holds at every n >= 1, data units: known before any report is collected.

    Source: Bernstein's inequality for independent bounded variables.
    """
    return bernstein(spread_of(mechanism), n=n, level=level) + mechanism.max_bias


def bernstein(spread: Spread, *, n: int, level: float) -> float:
    """Half the width of an interval for the expected value of a decoded report, at every n >= 1."""
    # P(|mean - E mean| >= t) <= 2 exp(-n t^2 / (2 v + 2 R t / 3)) with v >= the average variance and R >= |B - E B|;
    # setting the right side to 1 - level gives a quadratic in t.
    reach = max(float(spread.used.max() - spread.means.min()), float(spread.means.max() - spread.used.min()))
    log = math.log(2 / (1 - level))
    linear = reach * log / 3
    return (linear + math.sqrt(linear**2 + 2 * n * spread.greatest_of_all * log)) / n
