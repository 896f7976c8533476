"""Reports by public groups and with public weights: means and frequencies of each, differences,
strata, totals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.intervals import (
    LADDER,
    WIDER,
    Interval,
    Sums,
    Target,
    check_confidence,
    largest_sums,
    normal_quantile,
    target_of_mean,
    targets_of_categories,
    within,
)
from mezzotint.collect.spreads import spread_of
from mezzotint.collect.support_points import MAX_CODES, dominating, nodes_of
from mezzotint.core.errors import ParameterError
from mezzotint.core.types import FloatArray

EQUAL_WEIGHTS = 1e-12
"""Variances of weights below this share of their squared mean are those of rounding alone."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The reports of one group.

    Arguments:
        counts: per code.
        weights, squares: (m,) sums of the reports' weights and of their squares, by code. Without
            weights every report weighs 1.
        heaviest: greatest weight of a report; None where it is not known: it is bounded by the
            sums.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> counts = mz.collect.CodeCounts(mechanism=table, counts=np.array([30, 70]))
        >>> weights, squares = np.array([30, 140]), np.array([30, 280])
        >>> mz.collect.Group(counts=counts, weights=weights, squares=squares).size
        93.2...
    """

    counts: CodeCounts
    weights: FloatArray
    squares: FloatArray
    heaviest: float | None = None

    @property
    def size(self) -> float:
        """How many equally weighted reports these are worth: (sum d)^2 / sum d^2."""
        return self.sums.size

    def to_frame(self) -> Any:
        """A pandas data frame with a row per code: reports, weights."""
        return self.counts.to_frame().assign(weight=self.weights)

    @cached_property
    def sums(self) -> Sums:
        """What the mean of a decoded report needs."""
        heaviest = self.heaviest
        if heaviest is None:
            heaviest = self._most_possible()
        return Sums(
            weights=np.asarray(self.weights, dtype=np.float64),
            squares=np.asarray(self.squares, dtype=np.float64),
            heaviest=heaviest,
        )

    def _most_possible(self) -> float:
        """Bound on the greatest weight: mean + sd * sqrt(n - 1) of the reports of each code
        (Samuelson 1968).
        """
        used = self.counts.counts > 0
        reports = self.counts.counts[used]
        means = self.weights[used] / reports
        variances = np.maximum(self.squares[used] / reports - means**2, 0.0)
        variances[variances < EQUAL_WEIGHTS * means**2] = 0.0
        return float((means + np.sqrt(variances * (reports - 1))).max())

    def merge(self, other: Group) -> Group:
        """The reports of both as one group."""
        return Group(
            counts=self.counts.merge(other.counts),
            weights=self.weights + other.weights,
            squares=self.squares + other.squares,
            heaviest=max(self.sums.heaviest, other.sums.heaviest),
        )


# Estimates ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A mean with the two sides of its interval at many levels, which sums and differences combine.

    Arguments:
        value: the mean, or the frequency of a category.
        below, above: (65,) how far below and above it the truth may lie at the quantiles z * LADDER
            of the normal law, z that of the level, before it is cut to what is possible; bias of
            the table not included. The last entry is the side of its own interval.
        bias: by how much the value may be off besides.
        bounds: what is possible at all.
        n: reports.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> counts = mz.collect.CodeCounts(mechanism=table, counts=np.array([0, 10]))
        >>> group = mz.collect.Group(counts=counts, weights=counts.counts, squares=counts.counts)
        >>> round(mz.collect.parts_of(group)["mean"].interval.low, 2)
        0.91
    """

    value: float
    below: FloatArray
    above: FloatArray
    bias: float
    bounds: tuple[float, float]
    n: int

    @classmethod
    def of(
        cls,
        target: Target,
        reports: Sums,
        *,
        confidence: float,
        bias: float,
        bounds: tuple[float, float],
        n: int,
    ) -> Part:
        """The estimate of a target and its sides, for an interval of this confidence."""
        below, above = target.sides(reports, normal_quantile(confidence) * LADDER)
        return cls(
            value=target.value(reports),
            below=below,
            above=above,
            bias=bias,
            bounds=bounds,
            n=n,
        )

    @property
    def interval(self) -> Interval:
        """Cut to what is possible."""
        lower_end = self.value - float(self.below[-1]) - self.bias
        upper_end = self.value + float(self.above[-1]) + self.bias
        return within(self.value, lower_end, upper_end, bounds=self.bounds)


def parts_of(group: Group, *, confidence: float = 0.95) -> dict[str, Part]:
    """The mean of a group, under "mean", or the frequency of each category, under its name;
    weighted where it is.

    Arguments:
        group: from `read_groups`.
        confidence: of each interval, in (0, 1).

    Returns: {"mean": part}, or a part for each category.

    Guarantees: values are unbiased up to the table's bias (weighted: the ratio of two unbiased
        sums). Sides are those of `estimate`'s intervals: proved where one event decides and weights
        are equal, else verified; of weighted reports with as many as they are worth, (sum d)^2 /
        sum d^2, and wider where weights differ. People of a weight that is not in the sample are
        unknown to them (see `total`).
    Source: docs/proofs/estimation.md, E1, E9, E10.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> counts = mz.collect.CodeCounts(mechanism=table, counts=np.array([300, 700]))
        >>> group = mz.collect.Group(counts=counts, weights=counts.counts, squares=counts.counts)
        >>> round(mz.collect.parts_of(group)["mean"].value, 2)
        0.93
    """
    mechanism = group.counts.mechanism
    check_confidence(confidence)
    targets = {"mean": target_of_mean(mechanism)}
    bias = mechanism.max_bias
    bounds = (mechanism.lower, mechanism.upper)
    if mechanism.categories is not None:
        by_category = targets_of_categories(mechanism)
        targets = dict(zip(mechanism.categories, by_category, strict=True))
        bias = 0.0
        bounds = (0.0, 1.0)
    parts: dict[str, Part] = {}
    for quantity, target in targets.items():
        parts[quantity] = Part.of(
            target,
            group.sums,
            confidence=confidence,
            bias=bias,
            bounds=bounds,
            n=group.counts.n,
        )
    return parts


def difference(one: Part, other: Part, *, same_people: bool = False) -> Interval:
    """One mean less another, with an interval at the same level.

    Arguments:
        one, other: of two groups.
        same_people: True where both groups are about the same people, as rounds are, or the reports
            were memoised: the errors may then agree in whatever way, and their sizes add up. False:
            they are independent, and the sides are the greatest sums of a side of each whose
            quantiles' squares add up to that of the level.

    Returns: the difference and its interval, data units or shares, within what is possible.

    Source: docs/proofs/estimation.md, E10.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> parts = []
        >>> for counts in (np.array([300, 700]), np.array([500, 500])):
        ...     reports = mz.collect.CodeCounts(mechanism=table, counts=counts)
        ...     group = mz.collect.Group(counts=reports, weights=counts, squares=counts)
        ...     parts.append(mz.collect.parts_of(group)["mean"])
        >>> gap = mz.collect.difference(*parts)
        >>> round(gap.value, 2), gap.low > 0.3
        (0.43, True)
    """
    if same_people:
        below = one.below + other.above
        above = one.above + other.below
    else:
        below = largest_sums(one.below, other.above)
        above = largest_sums(one.above, other.below)
    estimated = one.value - other.value
    bias = one.bias + other.bias
    return within(
        estimated,
        estimated - float(below[-1]) - bias,
        estimated + float(above[-1]) + bias,
        bounds=(one.bounds[0] - other.bounds[1], one.bounds[1] - other.bounds[0]),
    )


def stratified(
    parts: Mapping[str, Part], shares: Mapping[str, float], *, same_people: bool = False
) -> Interval:
    """The mean of a population of strata whose shares are known: sum of share times mean.

    Arguments:
        parts: stratum -> its mean.
        shares: stratum -> its share of the population, or its size: they are divided by their sum.
        same_people: as in `difference`: sides then add up, and no average is sharper than its
            strata.

    Returns: the mean of the population and its interval, data units.

    Raises:
        ParameterError: strata that differ, or invalid shares.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> parts = {}
        >>> for name, counts in {"a": np.array([300, 700]), "b": np.array([500, 500])}.items():
        ...     reports = mz.collect.CodeCounts(mechanism=table, counts=counts)
        ...     group = mz.collect.Group(counts=reports, weights=counts, squares=counts)
        ...     parts[name] = mz.collect.parts_of(group)["mean"]
        >>> round(mz.collect.stratified(parts, {"a": 300, "b": 100}).value, 2)
        0.82
    """
    if set(parts) != set(shares):
        unmatched = ", ".join(sorted(set(parts) ^ set(shares))[:10])
        raise ParameterError(
            "sizes",
            unmatched,
            "give the size of every group, and of no other",
        )
    sizes = np.array([float(shares[stratum_name]) for stratum_name in parts])
    size_sum = sum(sizes.tolist())
    if not (sizes >= 0).all() or not 0 < size_sum < math.inf:
        raise ParameterError(
            "sizes",
            sizes.tolist(),
            "sizes must not be negative, nor all 0, nor beyond the floats together",
        )
    weights = (sizes / sizes.sum()).tolist()
    strata = list(zip(weights, parts.values(), strict=True))
    below = np.zeros(LADDER.size)
    above = np.zeros(LADDER.size)
    for weight, stratum in strata:
        if same_people:
            below, above = below + weight * stratum.below, above + weight * stratum.above
            continue
        below = largest_sums(below, weight * stratum.below)
        above = largest_sums(above, weight * stratum.above)
    lower_end = math.fsum(weight * stratum.bounds[0] for weight, stratum in strata)
    upper_end = math.fsum(weight * stratum.bounds[1] for weight, stratum in strata)
    return Part(
        value=math.fsum(weight * stratum.value for weight, stratum in strata),
        below=below,
        above=above,
        bias=math.fsum(weight * stratum.bias for weight, stratum in strata),
        bounds=(lower_end, upper_end),
        n=sum(stratum.n for stratum in parts.values()),
    ).interval


def total(group: Group, *, confidence: float = 0.95) -> Interval:
    """The total over a population from which people were drawn independently with known chances,
    weight = 1 / chance.

    Arguments:
        group: of `read_groups` with weights, each at least 1.
        confidence: in (0, 1).

    Returns: Horvitz-Thompson: the sum of weight times decoded report. The interval is that of a
        Poisson count of jumps of the largest size, around a variance that is over-estimated: sum of
        d^2 B^2 less sum of d a(B), where E a(B) is at most x^2 whatever x is.

    Raises:
        ParameterError: a table of categories, no reports, or weights below 1 on average.

    Guarantees: unbiased up to bias times the sum of the weights. Coverage is measured, from 2
        expected reports on, not proved. People of a weight that is not in the sample are unknown to
        it: expect at least 4 reports of every weight that matters, as there are none with chance
        exp(-4) then.
    Source: docs/proofs/estimation.md, E10.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> counts = mz.collect.CodeCounts(mechanism=table, counts=np.array([30, 70]))
        >>> weights, squares = counts.counts * 10, counts.counts * 100
        >>> group = mz.collect.Group(counts=counts, weights=weights, squares=squares)
        >>> round(mz.collect.total(group).value)
        933
    """
    mechanism = group.counts.mechanism
    if mechanism.categories is not None:
        remedy = "categories have no total; multiply frequencies by the size"
        raise ParameterError("mechanism", mechanism.name, remedy)
    if group.counts.n == 0:
        raise ParameterError("group", "no reports", "a total needs a report; nobody was asked")
    if group.weights.sum() < group.counts.n:
        remedy = "a weight is 1 / the probability of inclusion, so at least 1"
        raise ParameterError("weights", "below 1", remedy)
    levels = mechanism.levels
    spread = spread_of(mechanism)
    estimated = float(group.weights @ levels)
    quantile = normal_quantile(check_confidence(confidence)) + WIDER
    variance = float(group.squares @ levels**2 - group.weights @ _squares_below(group))
    least_variance = float(group.squares.sum() * spread.variances.min())
    # A count K of jumps b has variance b^2 K, and (K - k)^2 <= z^2 k for all k up to K + z^2/2 + z
    # sqrt(K + z^2/4).
    typical = float(group.squares.sum() / group.weights.sum())
    below = typical * max(0.0, -spread.bottom)
    above = typical * max(0.0, spread.top)
    jumps = (quantile * max(below, above) / 2) ** 2
    half = quantile * math.sqrt(max(variance, least_variance) + jumps)
    bias = mechanism.max_bias * float(group.weights.sum())
    return Interval(
        value=estimated,
        low=estimated - half - below * quantile**2 / 2 - bias,
        high=estimated + half + above * quantile**2 / 2 + bias,
    )


def _squares_below(group: Group) -> FloatArray:
    """(m,) a decoder whose expected value is at most the square of the input, whatever that is.

    It is close to the square on average over the range. One chosen by these reports would be high
    where they lie by chance: shares that no inputs have would leave its mean unbounded.
    """
    levels = group.counts.mechanism.levels
    if levels.size > MAX_CODES:
        return np.zeros(levels.size)
    nodes = nodes_of(group.counts)
    # Between nodes the chord of x^2 lies above it by no more than this.
    sagitta = nodes.widest() ** 2 / 4
    even_shares = nodes.pmf.mean(axis=0)
    negated_square = sagitta - nodes.x**2
    return -dominating(nodes.pmf, negated_square, even_shares, width=0.0)
