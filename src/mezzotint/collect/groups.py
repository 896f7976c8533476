"""Reports by public groups and with public weights: means and frequencies of each, differences,
strata, totals.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.collect.coded import Total, open_reports, total_of
from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.decoders import dominating
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
from mezzotint.collect.nodes import MAX_CODES, nodes_of
from mezzotint.collect.settings import Settings
from mezzotint.collect.source import Block
from mezzotint.collect.spreads import spread_of
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.table import MISSING
from mezzotint.core.types import FloatArray
from mezzotint.core.values import numbers, plain

compute: Any = pc  # its functions are made at import time, unseen by type checkers


MAX_GROUPS = 10_000

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
        memoised: whether equal values of a user gave equal reports; None where the files do not
            say.

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
    memoised: bool | None = None

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
        memoised = None
        if self.memoised == other.memoised:
            memoised = self.memoised
        return Group(
            counts=self.counts.merge(other.counts),
            weights=self.weights + other.weights,
            squares=self.squares + other.squares,
            heaviest=max(self.sums.heaviest, other.sums.heaviest),
            memoised=memoised,
        )


@final
@dataclass(frozen=True, kw_only=True)
class _Groups:
    """The reports of a part of a source, by the values of columns."""

    by: tuple[str, ...]
    groups: Mapping[str, Group]

    @property
    def n(self) -> int:
        return sum(group.counts.n for group in self.groups.values())

    def merge(self, other: _Groups) -> _Groups:
        """Both; raises ParameterError for too many groups."""
        groups = dict(self.groups)
        for group_name, group in other.groups.items():
            if group_name in groups:
                groups[group_name] = groups[group_name].merge(group)
            else:
                groups[group_name] = group
        if len(groups) > MAX_GROUPS:
            remedy = f"has more than {MAX_GROUPS:,} values; choose a column of groups"
            raise ParameterError("by", ", ".join(self.by), remedy)
        return _Groups(by=self.by, groups=groups)


def read_groups(
    source: str | os.PathLike[str],
    *,
    by: str | Sequence[str] | None,
    weights: str | None = None,
    column: str | None = None,
    mechanism: Mechanism | None = None,
    threads: int | None = None,
) -> dict[str, Group]:
    """Counts the reports of a file or data set, by the values of a public column that was kept
    beside them.

    Arguments:
        source: as `read_counts`.
        by: column of groups (also one spelled by folders, `day=7/`), or several, for a cross table
            of groups named "a, b"; missing values are the group "(missing)". None takes all reports
            as one group, "".
        weights: column of positive numbers, a weight per report. They must be public: a weight that
            was computed from the private value gives it away.
        column, mechanism, threads: as `read_counts`.

    Returns: group -> its reports, in the order of the names; numbers first, by their size.

    Raises:
        ParameterError, FileFormatError: as `read_counts`; no such column, a missing or non-positive
            weight, or more than 10,000 groups.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x,town\\n" + "1,a\\n0,b\\n" * 50)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> written = mz.collect.privatize(
        ...     "in.csv", "out.csv", column="x", mechanism=table, keep=["town"]
        ... )
        >>> groups = mz.collect.read_groups("out.csv", by="town")
        >>> {name: group.counts.n for name, group in groups.items()}
        {'a': 50, 'b': 50}
    """
    labels = (by,) if isinstance(by, str) else tuple(by or ())
    for entry_name in labels:
        if labels.count(entry_name) > 1:
            raise ParameterError(
                "by",
                entry_name,
                "is named twice; name each column once",
            )

    def count(block: Block) -> _Groups:
        total = _Groups(by=labels, groups={})
        numeric = [] if weights is None else [weights]
        with open_reports(block, columns=[column], mechanism=mechanism) as reports:
            others = dict.fromkeys(labels, "by")
            for (codes,), record_batch in reports.batches(numeric=numeric, others=others):
                counted = _counted(
                    codes,
                    labels=[record_batch.values.column(entry_name) for entry_name in labels],
                    weights=_weights(record_batch.values, weights, record_batch.row),
                    table=reports.tables[0],
                    seeded=reports.seeded,
                    memoised=reports.memoised,
                )
                total = total.merge(_Groups(by=labels, groups=counted))
        return total

    total = total_of(
        source,
        count,
        column=column,
        settings=Settings(threads=threads),
    )
    groups = total.counted.groups
    return {
        entry_name: _named(groups[entry_name], labels, entry_name, total)
        for entry_name in sorted(groups, key=_order)
    }


def _named(
    group: Group,
    by: tuple[str, ...],
    name: str,
    total: Total[_Groups],
) -> Group:
    """The group under its own name: reports of other groups of the same run are different
    reports.
    """
    runs = total.runs
    if by:
        runs = frozenset(f"{run_name} where {', '.join(by)} is {name}" for run_name in runs)
    return replace(
        group,
        counts=replace(group.counts, runs=runs, sources=total.sources),
    )


def _order(name: str) -> list[tuple[bool, float, str]]:
    """Numbers by their size, before everything else: rounds 2 and 10 in their order; dates are in
    it as text.
    """
    return [_order_of(label) for label in name.split(", ")]


def _order_of(name: str) -> tuple[bool, float, str]:
    """A key by which numbers come first, in their order, then all other text."""
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        return True, 0.0, name
    return False, number, name


def _counted(
    codes: npt.NDArray[np.integer],
    *,
    labels: Sequence[pa.Array],
    weights: FloatArray | None,
    table: Mechanism,
    seeded: bool | None,
    memoised: bool | None = None,
) -> dict[str, Group]:
    """Counts codes by groups.

    Arguments:
        codes: (n,) of the table.
        labels: (n,) each, of any type that is text when it is written.
        weights: (n,), positive; None for equal ones.
    """
    names, group_of_row = _labelled(labels, codes.size)
    level_count = table.levels.size
    cells = group_of_row * level_count + codes
    shape = (len(names), level_count)

    def sums(summed: FloatArray | None) -> npt.NDArray[Any]:
        return np.bincount(cells, weights=summed, minlength=math.prod(shape)).reshape(shape)

    counts = sums(None)
    totals = squares = counts.astype(np.float64)
    heaviest = np.ones(len(names))
    if weights is not None:
        totals, squares = sums(weights), sums(weights**2)
        heaviest = np.zeros(len(names))
        np.maximum.at(heaviest, group_of_row, weights)
    groups: dict[str, Group] = {}
    for index, group_name in enumerate(names):
        groups[group_name] = Group(
            counts=CodeCounts(mechanism=table, counts=counts[index], seeded=seeded),
            weights=totals[index],
            squares=squares[index],
            heaviest=float(heaviest[index]),
            memoised=memoised,
        )
    return groups


def _labelled(labels: Sequence[pa.Array], rows: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The groups that rows are in, and the index of each row's."""
    if not labels:
        return [""], np.zeros(rows, dtype=np.int64)
    texts = [
        compute.fill_null(compute.cast(label, pa.string()), pa.scalar(MISSING)) for label in labels
    ]
    coded = compute.binary_join_element_wise(*texts, ", ").dictionary_encode()
    return coded.dictionary.to_pylist(), plain(coded.indices).astype(np.int64)


def _weights(batch: pa.RecordBatch, column: str | None, before: int) -> FloatArray | None:
    """The weights of reports, positive and none missing."""
    if column is None:
        return None
    values, present = numbers(batch.column(column))
    if present is not None:
        report = before + int(np.argmin(present)) + 1
        raise ParameterError("weights", column, f"report {report} has none: give one")
    is_weight = np.isfinite(values) & (values > 0)
    if not is_weight.all():
        report = before + int(np.argmin(is_weight)) + 1
        raise ParameterError(
            "weights",
            column,
            f"report {report} needs a positive number",
        )
    return values.astype(np.float64)


def groups_of(
    codes: npt.ArrayLike,
    *,
    by: npt.ArrayLike | Sequence[npt.ArrayLike],
    mechanism: Mechanism,
    weights: npt.ArrayLike | None = None,
    seeded: bool | None = None,
) -> dict[str, Group]:
    """Counts the codes of an array or a column of a frame by public groups.

    Arguments:
        codes: (n,) codes of one table.
        by: (n,) labels of any kind, or several such columns; missing ones (None, NaN) are
            "(missing)".
        mechanism: the table.
        weights: (n,) public weights, positive; None for equal ones.
        seeded: as in `CodeCounts`.

    Returns: group -> its reports, as `read_groups`.

    Raises:
        ParameterError: columns of different lengths, or a weight that is none.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> codes = table.privatize([0.0, 1.0] * 50)
        >>> groups = mz.collect.groups_of(codes, by=(["a", "b"] * 50, [1] * 100), mechanism=table)
        >>> {name: group.counts.n for name, group in groups.items()}
        {'a, 1': 50, 'b, 1': 50}
    """
    array = mechanism.check_codes(codes).ravel().astype(np.int64)
    columns: Any = [by]
    if isinstance(by, (tuple, list)) and len(by) and not np.isscalar(by[0]):
        columns = by
    labels = [pa.array(column) for column in columns]
    lengths = [len(label) for label in labels]
    if any(length != array.size for length in lengths):
        raise ParameterError(
            "by",
            lengths,
            f"need a label for each of {array.size} codes",
        )
    counted = None
    if weights is not None:
        weight_array = pa.array(np.asarray(weights, dtype=np.float64).ravel())
        counted = _weights(pa.record_batch([weight_array], names=["weights"]), "weights", 0)
        if len(weight_array) != array.size:
            raise ParameterError(
                "weights",
                len(weight_array),
                f"need one for each of {array.size} codes",
            )
    groups = _counted(
        array,
        labels=labels,
        weights=counted,
        table=mechanism,
        seeded=seeded,
    )
    return {group_name: groups[group_name] for group_name in sorted(groups, key=_order)}


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
    bias, bounds = mechanism.max_bias, (mechanism.lower, mechanism.upper)
    if mechanism.categories is not None:
        by_category = targets_of_categories(mechanism)
        targets = dict(zip(mechanism.categories, by_category, strict=True))
        bias, bounds = 0.0, (0.0, 1.0)
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

    Returns: the difference and its interval, data units or shares.

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
        below, above = one.below + other.above, one.above + other.below
    else:
        below = largest_sums(one.below, other.above)
        above = largest_sums(one.above, other.below)
    estimated, bias = one.value - other.value, one.bias + other.bias
    return Interval(
        value=estimated,
        low=estimated - float(below[-1]) - bias,
        high=estimated + float(above[-1]) + bias,
    )


def stratified(parts: Mapping[str, Part], shares: Mapping[str, float]) -> Interval:
    """The mean of a population of strata whose shares are known: sum of share times mean.

    Arguments:
        parts: stratum -> its mean.
        shares: stratum -> its share of the population, or its size: they are divided by their sum.

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
    if not (np.isfinite(sizes) & (sizes >= 0)).all() or sizes.sum() <= 0:
        raise ParameterError(
            "sizes",
            sizes.tolist(),
            "sizes must not be negative, nor all 0",
        )
    weights = (sizes / sizes.sum()).tolist()
    strata = list(zip(weights, parts.values(), strict=True))
    below, above = np.zeros(LADDER.size), np.zeros(LADDER.size)
    for weight, stratum in strata:
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
    levels, spread = mechanism.levels, spread_of(mechanism)
    estimated = float(group.weights @ levels)
    quantile = normal_quantile(check_confidence(confidence)) + WIDER
    variance = float(group.squares @ levels**2 - group.weights @ _squares_below(group))
    least_variance = float(group.squares.sum() * spread.variances.min())
    # A count K of jumps b has variance b^2 K, and (K - k)^2 <= z^2 k for all k up to K + z^2/2 + z
    # sqrt(K + z^2/4).
    typical = float(group.squares.sum() / group.weights.sum())
    below, above = typical * max(0.0, -spread.bottom), typical * max(0.0, spread.top)
    jumps = (quantile * max(below, above) / 2) ** 2
    half = quantile * math.sqrt(max(variance, least_variance) + jumps)
    bias = mechanism.max_bias * float(group.weights.sum())
    return Interval(
        value=estimated,
        low=estimated - half - below * quantile**2 / 2 - bias,
        high=estimated + half + above * quantile**2 / 2 + bias,
    )


def _squares_below(group: Group) -> FloatArray:
    """(m,) a decoder whose expected value is at most the square of the input, whatever that is."""
    levels = group.counts.mechanism.levels
    if levels.size > MAX_CODES:
        return np.zeros(levels.size)
    nodes = nodes_of(group.counts)
    # Between nodes the chord of x^2 lies above it by no more than this.
    sagitta = nodes.widest() ** 2 / 4
    shares = group.weights / group.weights.sum()
    return -dominating(nodes.pmf, sagitta - nodes.x**2, shares, width=0.0)
