"""Reports by public groups and with public weights: means and frequencies of each, differences, strata, totals.

Groups that are private, too: two privatized columns of the same records, with their covariance, slope, two-way tables
and means by a category.
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

from mezzotint.collect.counts import (
    BlockCounter,
    CodeCounts,
    codes_in,
    refuse_seeded,
    seeded_together,
    total_of,
)
from mezzotint.collect.intervals import (
    LADDER,
    WIDER,
    Interval,
    Sums,
    Target,
    check_confidence,
    largest_sums,
    normal_quantile,
    spread_of,
    target_of_mean,
    target_of_values,
    targets_of_categories,
    within,
)
from mezzotint.collect.nodes import MAX_CODES, nodes_of
from mezzotint.collect.settings import Settings
from mezzotint.collect.shapes import CrossFitted, dominating
from mezzotint.collect.source import Block, OpenFile, Wanted, open_columns
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Record
from mezzotint.core.search import bracket
from mezzotint.core.table import MISSING
from mezzotint.core.types import FloatArray
from mezzotint.core.values import numbers, plain

compute: Any = pc  # its functions are made at import time, unseen by type checkers


MAX_GROUPS = 10_000


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The reports of one group.

    Arguments:
        counts: per code.
        weights, squares: (m,) sums of the reports' weights and of their squares, by code. Without weights every report
            weighs 1.
        heaviest: greatest weight of a report; None where it is not known: it is bounded by the sums.
        memoised: whether equal values of a user gave equal reports; None where the files do not say.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> counts = mz.collect.CodeCounts(mechanism=table, counts=np.array([30, 70]))
        >>> mz.collect.Group(counts=counts, weights=np.array([30, 140]), squares=np.array([30, 280])).size
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
        heaviest = self._most_possible() if self.heaviest is None else self.heaviest
        return Sums(
            weights=np.asarray(self.weights, dtype=np.float64),
            squares=np.asarray(self.squares, dtype=np.float64),
            heaviest=heaviest,
        )

    def _most_possible(self) -> float:
        """Bound on the greatest weight: mean + sd * sqrt(n - 1) of the reports of each code (Samuelson 1968)."""
        counts = self.counts.counts
        used = counts > 0
        means = self.weights[used] / counts[used]
        variances = np.maximum(self.squares[used] / counts[used] - means**2, 0.0)
        variances[variances < 1e-12 * means**2] = 0.0  # of rounding alone
        return float((means + np.sqrt(variances * (counts[used] - 1))).max())

    def merge(self, other: Group) -> Group:
        """The reports of both as one group."""
        return Group(
            counts=self.counts.merge(other.counts),
            weights=self.weights + other.weights,
            squares=self.squares + other.squares,
            heaviest=max(self.sums.heaviest, other.sums.heaviest),
            memoised=self.memoised if self.memoised == other.memoised else None,
        )


def read_groups(
    source: str | os.PathLike[str],
    *,
    by: str | Sequence[str] | None,
    weights: str | None = None,
    column: str | None = None,
    mechanism: Mechanism | None = None,
    threads: int | None = None,
) -> dict[str, Group]:
    """Counts the reports of a file or data set, by the values of a public column that was kept beside them.

    Arguments:
        source: as `read_counts`.
        by: column of groups (also one spelled by folders, `day=7/`), or several, for a cross table of groups named
            "a, b"; missing values are the group "(missing)". None takes all reports as one group, "".
        weights: column of positive numbers, a weight per report. They must be public: a weight that was computed from
            the private value gives it away.
        column, mechanism, threads: as `read_counts`.

    Returns: group -> its reports, in the order of the names; numbers first, by their size.

    Raises:
        ParameterError, FileFormatError: as `read_counts`; no such column, a missing or non-positive weight, or more
            than 10,000 groups.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x,town\\n" + "1,a\\n0,b\\n" * 50)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> written = mz.collect.privatize("in.csv", "out.csv", column="x", mechanism=table, keep=["town"])
        >>> {name: group.counts.n for name, group in mz.collect.read_groups("out.csv", by="town").items()}
        {'a': 50, 'b': 50}
    """
    columns = (by,) if isinstance(by, str) else tuple(by or ())
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise ParameterError("by", twice[0], "is named twice; name each column once")
    counter = _GroupCounter(
        reader=BlockCounter(column=column, mechanism=mechanism), by=columns, weights=weights
    )
    label = ", ".join(columns)
    total, runs, sources = total_of(
        source, counter.count, counter.merge, column=column, chosen=Settings(threads=threads),
        rows=lambda groups: sum(group.counts.n for group in groups.values()),
    )  # fmt: skip
    return {
        name: _named(total[name], label, name, runs, sources) for name in sorted(total, key=_order)
    }


def _named(
    group: Group,
    by: str,
    name: str,
    runs: frozenset[str],
    sources: frozenset[tuple[str, str]],
) -> Group:
    """The group under its own name: reports of other groups of the same run are different reports."""
    named = frozenset(f"{run} where {by} is {name}" for run in runs) if by else runs
    return replace(group, counts=replace(group.counts, runs=named, sources=sources))


def _order(name: str) -> list[tuple[bool, float, str]]:
    """Numbers by their size, before everything else: rounds 2 and 10 in their order; dates are in it as text."""
    return [_order_of(part) for part in name.split(", ")]


def _order_of(name: str) -> tuple[bool, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (True, 0.0, name) if math.isnan(number) else (False, number, name)


@final
@dataclass(frozen=True, kw_only=True)
class _GroupCounter:
    """The work order of a thread that counts the reports of a block by groups."""

    reader: BlockCounter
    by: tuple[str, ...]
    weights: str | None

    def count(self, block: Block) -> dict[str, Group]:
        extra = dict.fromkeys(self.by, "by")
        sums: dict[str, FloatArray] = {}
        heaviest: dict[str, float] = {}
        with open_columns(block.file.path) as reader:
            field, described = self.reader.field(reader)
            table = described.tables[field]
            numeric = (field,) if self.weights is None else (field, self.weights)
            wanted = Wanted(columns=numeric, others=extra)
            opened = OpenFile(file=block.file, reader=reader, wanted=wanted)
            for batch in opened.batches(row=block.offset, groups=block.groups):
                self._add(sums, heaviest, batch.values, table.levels.size, field, batch.row)
        found = {
            name: Group(
                counts=CodeCounts(
                    mechanism=table, counts=parts[0].astype(np.int64), seeded=described.seeded
                ),
                weights=parts[1],
                squares=parts[2],
                heaviest=heaviest[name],
                memoised=described.memoised,
            )
            for name, parts in sums.items()
        }
        return self.merge({}, found)

    def merge(self, total: dict[str, Group], part: dict[str, Group]) -> dict[str, Group]:
        """Adds the groups of a part to the total; raises ParameterError for too many."""
        for name, group in part.items():
            total[name] = total[name].merge(group) if name in total else group
        if len(total) > MAX_GROUPS:
            raise ParameterError(
                "by",
                ", ".join(self.by),
                f"has more than {MAX_GROUPS:,} values; choose a column of groups",
            )
        return total

    def _add(
        self,
        sums: dict[str, FloatArray],
        heaviest: dict[str, float],
        batch: pa.RecordBatch,
        size: int,
        field: str,
        rows: int,
    ) -> None:
        codes = codes_in(batch.column(field), size, field, rows).astype(np.int64)
        weights = np.ones(codes.size)
        if self.weights is not None:
            weights = _weights(batch.column(self.weights), self.weights, rows)
        names, places = _labels(batch, self.by)
        cells, shape = places * size + codes, (len(names), size)
        counts, totals, squares = (
            np.bincount(cells, weights=weights**power, minlength=len(names) * size).reshape(shape)
            for power in range(3)
        )
        greatest = np.zeros(len(names))
        np.maximum.at(greatest, places, weights)
        for i, name in enumerate(names):
            if counts[i].any():
                sums[name] = sums.get(name, 0.0) + np.stack([counts[i], totals[i], squares[i]])
                heaviest[name] = max(heaviest.get(name, 0.0), float(greatest[i]))


def _weights(array: pa.Array, column: str, before: int) -> FloatArray:
    values, present = numbers(array)
    if present is not None:
        raise ParameterError(
            "weights", column, f"report {before + int(np.argmin(present)) + 1} has none: give one"
        )
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        raise ParameterError(
            "weights", column, f"report {before + int(np.argmax(bad)) + 1} needs a positive number"
        )
    return values.astype(np.float64)


def _labels(batch: pa.RecordBatch, by: tuple[str, ...]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The groups of a batch, and which of them each row is in."""
    names, places = [""], np.zeros(batch.num_rows, dtype=np.int64)
    for column in by:
        text = compute.cast(batch.column(column), pa.string())
        coded = compute.fill_null(text, MISSING).dictionary_encode()
        values = coded.dictionary.to_pylist()
        names = [f"{name}, {value}" if name else value for name in names for value in values]
        places = places * len(values) + plain(coded.indices).astype(np.int64)
    return names, places


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
        by: (n,) labels of any kind, or several such columns; missing ones (None, NaN) are "(missing)".
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
    labelled: Any = by
    several = isinstance(by, (tuple, list)) and len(by) > 0 and not np.isscalar(by[0])
    columns = [pa.array(column) for column in (labelled if several else [labelled])]
    if any(len(column) != array.size for column in columns):
        lengths = [len(column) for column in columns]
        raise ParameterError("by", lengths, f"need a label for each of {array.size} codes")
    names = tuple(str(place) for place in range(len(columns)))
    batch = pa.record_batch(columns, names=list(names))
    counted = np.ones(array.size)
    if weights is not None:
        counted = _weights(pa.array(np.asarray(weights, dtype=np.float64)), "weights", 0)
    if counted.size != array.size:
        raise ParameterError("weights", counted.size, f"need one for each of {array.size} codes")
    labels, places = _labels(batch, names)
    size = mechanism.levels.size
    groups = {}
    for place, name in enumerate(labels):
        mine = places == place
        if not mine.any():
            continue
        sums: list[FloatArray] = []
        for power in range(3):
            summed: Any = np.bincount(array[mine], counted[mine] ** power, minlength=size)
            sums.append(summed)
        counts = CodeCounts(mechanism=mechanism, counts=sums[0].astype(np.int64), seeded=seeded)
        heaviest = float(counted[mine].max())
        groups[name] = Group(counts=counts, weights=sums[1], squares=sums[2], heaviest=heaviest)
    return {name: groups[name] for name in sorted(groups, key=_order)}


# Estimates -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A mean with the two sides of its interval at many levels, which sums and differences combine.

    Arguments:
        value: the mean, or the frequency of a category.
        below, above: (65,) how far below and above it the truth may lie at the quantiles z * LADDER
            of the normal law, z that of the level, before it is cut to what is possible; bias of the
            table not included. The last entry is the side of its own interval.
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

    @property
    def interval(self) -> Interval:
        """Cut to what is possible."""
        low = self.value - float(self.below[-1]) - self.bias
        high = self.value + float(self.above[-1]) + self.bias
        return within(self.value, low, high, bounds=self.bounds)


def parts_of(group: Group, *, confidence: float = 0.95) -> dict[str, Part]:
    """The mean of a group, under "mean", or the frequency of each category, under its name; weighted where it is.

    Arguments:
        group: from `read_groups`.
        confidence: of each interval, in (0, 1).

    Returns: {"mean": part}, or a part for each category.

    Guarantees: values are unbiased up to the table's bias (weighted: the ratio of two unbiased sums). Sides are those
        of `estimate`'s intervals: proved where one event decides and weights are equal, else verified;
        of weighted reports with as many as they are worth, (sum d)^2 / sum d^2, and wider where
        weights differ. People of a weight that is not in the sample are unknown to them (see `total`).
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
    if mechanism.categories is None:
        bounds = (mechanism.lower, mechanism.upper)
        target = target_of_mean(mechanism)
        return {"mean": _part(group, target, confidence, mechanism.max_bias, bounds)}
    targets = zip(mechanism.categories, targets_of_categories(mechanism), strict=True)
    return {name: _part(group, target, confidence, 0.0, (0.0, 1.0)) for name, target in targets}


def _part(
    group: Group, target: Target, confidence: float, bias: float, bounds: tuple[float, float]
) -> Part:
    below, above = target.sides(group.sums, normal_quantile(confidence) * LADDER)
    return Part(
        value=target.value(group.sums),
        below=below,
        above=above,
        bias=bias,
        bounds=bounds,
        n=group.counts.n,
    )


def difference(one: Part, other: Part, *, same_people: bool = False) -> Interval:
    """One mean less another, with an interval at the same level.

    Arguments:
        one, other: of two groups.
        same_people: True where both groups are about the same people, as rounds are, or the reports were memoised: the
            errors may then agree in whatever way, and their sizes add up. False: they are independent,
            and the sides are the greatest sums of a side of each whose quantiles' squares add up to
            that of the level.

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
    value, bias = one.value - other.value, one.bias + other.bias
    if same_people:
        below = float(one.below[-1] + other.above[-1])
        above = float(one.above[-1] + other.below[-1])
    else:
        below = float(largest_sums(one.below, other.above)[-1])
        above = float(largest_sums(one.above, other.below)[-1])
    return Interval(value=value, low=value - below - bias, high=value + above + bias)


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
        odd = ", ".join(sorted(set(parts) ^ set(shares))[:10])
        raise ParameterError("sizes", odd, "give the size of every group, and of no other")
    sizes = np.array([float(shares[name]) for name in parts])
    if not (np.isfinite(sizes) & (sizes >= 0)).all() or sizes.sum() <= 0:
        raise ParameterError("sizes", sizes.tolist(), "sizes must not be negative, nor all 0")
    weights = (sizes / sizes.sum()).tolist()
    strata = list(zip(weights, parts.values(), strict=True))
    below, above = np.zeros(LADDER.size), np.zeros(LADDER.size)
    for weight, part in strata:
        below = largest_sums(below, weight * part.below)
        above = largest_sums(above, weight * part.above)
    low = math.fsum(weight * part.bounds[0] for weight, part in strata)
    high = math.fsum(weight * part.bounds[1] for weight, part in strata)
    return Part(
        value=math.fsum(weight * part.value for weight, part in strata),
        below=below,
        above=above,
        bias=math.fsum(weight * part.bias for weight, part in strata),
        bounds=(low, high),
        n=sum(part.n for _, part in strata),
    ).interval


def total(group: Group, *, confidence: float = 0.95) -> Interval:
    """The total over a population from which people were drawn independently with known chances, weight = 1 / chance.

    Arguments:
        group: of `read_groups` with weights, each at least 1.
        confidence: in (0, 1).

    Returns: Horvitz-Thompson: the sum of weight times decoded report. The interval is that of a Poisson count of jumps
        of the largest size, around a variance that is over-estimated: sum of d^2 B^2 less sum of d a(B), where
        E a(B) is at most x^2 whatever x is.

    Raises:
        ParameterError: a table of categories, or weights below 1 on average.

    Guarantees: unbiased up to bias times the sum of the weights. Coverage is measured, from 2 expected reports on, not
        proved. People of a weight that is not in the sample are unknown to it: expect at least 4 reports of every
        weight that matters, as there are none with chance exp(-4) then.
    Source: docs/proofs/estimation.md, E10.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> counts = mz.collect.CodeCounts(mechanism=table, counts=np.array([30, 70]))
        >>> group = mz.collect.Group(counts=counts, weights=counts.counts * 10, squares=counts.counts * 100)
        >>> round(mz.collect.total(group).value)
        933
    """
    mechanism = group.counts.mechanism
    if mechanism.categories is not None:
        raise ParameterError(
            "mechanism",
            mechanism.name,
            "categories have no total; multiply frequencies by the size",
        )
    if group.weights.sum() < group.counts.n:
        raise ParameterError(
            "weights", "below 1", "a weight is 1 / the probability of inclusion, so at least 1"
        )
    levels, spread = mechanism.levels, spread_of(mechanism)
    squares = np.zeros(levels.size)
    if levels.size <= MAX_CODES:
        nodes = nodes_of(group.counts)
        least = (
            nodes.x**2 - nodes.widest() ** 2 / 4
        )  # between nodes the chord of x^2 lies above it by no more
        squares = -dominating(nodes.pmf, -least, group.weights / group.weights.sum(), width=0.0)
    value = float(group.weights @ levels)
    z = normal_quantile(check_confidence(confidence)) + WIDER
    variance = float(group.squares @ levels**2 - group.weights @ squares)
    floor = float(group.squares.sum() * spread.variances.min())
    # A count K of jumps b has variance b^2 K, and (K - k)^2 <= z^2 k for all k up to K + z^2/2 + z sqrt(K + z^2/4).
    typical = float(group.squares.sum() / group.weights.sum())
    below, above = typical * max(0.0, -spread.bottom), typical * max(0.0, spread.top)
    half = z * math.sqrt(max(variance, floor) + (z * max(below, above) / 2) ** 2)
    bias = mechanism.max_bias * float(group.weights.sum())
    return Interval(
        value=value,
        low=value - half - below * z**2 / 2 - bias,
        high=value + half + above * z**2 / 2 + bias,
    )


MAX_CELLS = 1 << 22
"""Pairs of inputs times pairs of codes."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PairCounts:
    """How often each pair of codes was reported about one record.

    The two reports of a record were drawn independently, so that together they are one report of a product table.

    Arguments:
        first, second: the tables.
        counts: (m1, m2) records per pair.
        seeded: as in `CodeCounts`.

    Example:
        >>> words = mz.families.categorical(categories=["a", "b"], epsilon=2.0)
        >>> numbers = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> first, second = words.privatize(["a", "b"] * 500, rng=0), numbers.privatize([0.2, 0.8] * 500, rng=1)
        >>> pairs = mz.collect.PairCounts.from_codes(first, second, tables=(words, numbers))
        >>> int(pairs.counts.sum())
        1000
    """

    first: Mechanism
    second: Mechanism
    counts: npt.NDArray[np.int64]
    seeded: bool | None = None

    def __post_init__(self) -> None:
        shape = (self.first.levels.size, self.second.levels.size)
        if self.counts.shape != shape or (self.counts < 0).any():
            raise ParameterError(
                "counts",
                self.counts.shape,
                f"need integers from 0 on, one per pair of codes: {shape}",
            )
        if self.first.weights.size * self.second.weights.size > MAX_CELLS:
            raise ParameterError(
                "counts",
                shape,
                "these tables are too large together; use tables of fewer levels or categories",
            )

    @classmethod
    def from_codes(
        cls, first: npt.ArrayLike, second: npt.ArrayLike, *, tables: tuple[Mechanism, Mechanism]
    ) -> PairCounts:
        """Counts pairs of codes, (n,) each, of the same records in the same order."""
        one, other = (np.asarray(codes, dtype=np.int64) for codes in (first, second))
        sizes = [table.levels.size for table in tables]
        if one.shape != other.shape or any(
            c.size and not 0 <= c.min() <= c.max() < m
            for c, m in zip((one, other), sizes, strict=True)
        ):
            raise ParameterError(
                "codes", f"{one.shape}, {other.shape}", "need as many codes of each table"
            )
        counts = np.bincount(one * sizes[1] + other, minlength=sizes[0] * sizes[1]).reshape(sizes)
        return cls(first=tables[0], second=tables[1], counts=counts)

    @property
    def n(self) -> int:
        """Records."""
        return int(self.counts.sum())

    def merge(self, other: PairCounts) -> PairCounts:
        """The counts of both; raises ParameterError when their tables differ."""
        if (self.first, self.second) != (other.first, other.second):
            raise ParameterError(
                "mechanism", other.first.name, "estimate reports of different tables apart"
            )
        return replace(
            self,
            counts=self.counts + other.counts,
            seeded=seeded_together(self.seeded, other.seeded),
        )

    @cached_property
    def _pmf(self) -> FloatArray:
        return np.asarray(
            np.kron(self.first.probabilities, self.second.probabilities), dtype=np.float64
        )

    def expectation(self, first: FloatArray, second: FloatArray, *, confidence: float) -> Interval:
        """The mean of a(first code) times b(second code): of E a given x times E b given y over the records.

        Arguments:
            first, second: (m1,) and (m2,) what the codes are decoded to.
            confidence: of the score interval, in (0, 1).
        """
        values = np.outer(first, second).ravel()
        # Within a pair of segments the product table mixes its four corners' rows.
        target, reports = target_of_values(self._pmf, values), Sums.of_counts(self.counts.ravel())
        return within(target.value(reports), *target.interval(reports, confidence=confidence))

    def margins(self) -> tuple[CodeCounts, CodeCounts]:
        """The reports of each column by themselves."""
        return (
            CodeCounts(mechanism=self.first, counts=self.counts.sum(axis=1), seeded=self.seeded),
            CodeCounts(mechanism=self.second, counts=self.counts.sum(axis=0), seeded=self.seeded),
        )


def read_pairs(source: str | os.PathLike[str], *, columns: tuple[str, str]) -> PairCounts:
    """Counts the pairs of reports about each record of a file or data set.

    Arguments:
        source: as `read_counts`.
        columns: the two fields of codes, which the file describes.

    Returns: the counts of pairs of codes.

    Raises:
        ParameterError, FileFormatError: as `read_counts`.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x,y\\n" + "1,0\\n0,1\\n" * 50)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> result = mz.collect.privatize_columns("in.csv", "out.csv", mechanisms={"x": table, "y": table})
        >>> int(mz.collect.read_pairs("out.csv", columns=("x_code", "y_code")).counts.sum())
        100
    """
    if columns[0] == columns[1]:
        raise ParameterError(
            "column", columns[0], "is named twice; name two columns of the same records"
        )

    def count(block: Block) -> PairCounts:
        with open_columns(block.file.path) as reader:
            described = [
                BlockCounter(column=name, mechanism=None).field(reader)[1] for name in columns
            ]
            first, second = (one.tables[name] for one, name in zip(described, columns, strict=True))
            seeded = seeded_together(*(one.seeded for one in described))
            total, rows = (
                np.zeros((first.levels.size, second.levels.size), dtype=np.int64),
                block.offset,
            )
            for batch in reader.batches(numeric=columns, groups=block.groups):
                codes = (
                    codes_in(batch.column(i), table.levels.size, columns[i], rows)
                    for i, table in enumerate((first, second))
                )
                total += PairCounts.from_codes(*codes, tables=(first, second)).counts
                rows += batch.num_rows
        return PairCounts(first=first, second=second, counts=total, seeded=seeded)

    return total_of(source, count, PairCounts.merge, column=" and ".join(columns))[0]


# Estimates -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Relation(Record):
    """The covariance and regression of two columns of numbers.

    Arguments:
        n: records.
        confidence: of each interval.
        covariance: of the clipped inputs, in the product of their units.
        slope: of the second column's regression on the first; None where the reports leave its variance open down to 0.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> first, second = (table.privatize([0.0, 1.0] * 500, rng=seed) for seed in (0, 1))
        >>> relation = mz.collect.relation(mz.collect.PairCounts.from_codes(first, second, tables=(table, table)))
        >>> relation.n, relation.slope is not None
        (1000, False)
    """

    n: int
    confidence: float
    covariance: Interval
    slope: Interval | None


def _check(
    pairs: PairCounts, confidence: float, allow_seeded: bool, categories: tuple[bool, bool]
) -> None:
    check_confidence(confidence)
    if pairs.n < 2:
        raise ParameterError("counts", pairs.n, "two columns need at least two records")
    refuse_seeded(pairs.seeded, allowed=allow_seeded)
    kinds = tuple(table.categories is not None for table in (pairs.first, pairs.second))
    if kinds != categories:
        wanted = " and ".join("categories" if one else "numbers" for one in categories)
        raise ParameterError(
            "column", pairs.first.name, f"this needs columns of {wanted}, in this order"
        )


def relation(
    pairs: PairCounts, *, confidence: float = 0.95, allow_seeded: bool = False
) -> Relation:
    """Covariance and regression slope of two columns of numbers.

    Arguments:
        pairs: `read_pairs`, or `PairCounts.from_codes`.
        confidence: of each interval, in (0, 1).
        allow_seeded: as in `estimate`.

    Returns: covariance, product of the two columns' units, and slope, their quotient.

    Guarantees:
        The covariance is unbiased up to the tables' bias: the noises of the two reports are independent, so that they
        add nothing to it. Its interval is the score interval of the product, widened by what the two means may be off.
        The slope, a ratio, is consistent; its interval holds every ratio of a covariance and a variance that their
        intervals, at half the error each, leave possible.
    Source: docs/proofs/estimation.md, E10.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> first, second = (table.privatize([0.0, 1.0] * 500, rng=seed) for seed in (0, 1))
        >>> pairs = mz.collect.PairCounts.from_codes(first, second, tables=(table, table))
        >>> mz.collect.relation(pairs).covariance.value > 0
        True
    """
    _check(pairs, confidence, allow_seeded, (False, False))
    covariance = _covariance(pairs, confidence)
    spread, slope = (
        CrossFitted(pairs.margins()[0], confidence=(1 + confidence) / 2, edges=None).variance(),
        None,
    )
    if spread.low > 0 and spread.value > 0:
        wide = _covariance(pairs, (1 + confidence) / 2)
        ends = [c / v for c in (wide.low, wide.high) for v in (spread.low, spread.high)]
        slope = Interval(value=covariance.value / spread.value, low=min(ends), high=max(ends))
    return Relation(n=pairs.n, confidence=confidence, covariance=covariance, slope=slope)


def _covariance(pairs: PairCounts, confidence: float) -> Interval:
    tables, n = (pairs.first, pairs.second), pairs.n
    means, halves = [], []
    for table, counts in zip(tables, pairs.margins(), strict=True):
        target, reports = target_of_mean(table), Sums.of_counts(counts.counts)
        # A twentieth of the error for each mean: what they may be off is of second order.
        quantile = np.array([normal_quantile(1 - (1 - confidence) / 20)])
        means.append(target.value(reports))
        halves.append(float(np.max(target.sides(reports, quantile))) + table.max_bias)
    deviations = [table.levels - mean for table, mean in zip(tables, means, strict=True)]
    product = pairs.expectation(deviations[0], deviations[1], confidence=1 - 0.9 * (1 - confidence))
    reach = [
        max(table.upper - mean, mean - table.lower)
        for table, mean in zip(tables, means, strict=True)
    ]
    bias = tables[0].max_bias * (reach[1] + tables[1].max_bias) + tables[1].max_bias * reach[0]
    off = halves[0] * halves[1] + bias
    value = product.value * n / (n - 1)
    return within(value, product.low - off, product.high + off)


def two_way(
    pairs: PairCounts,
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
    allow_seeded: bool = False,
) -> dict[tuple[str, str], Interval]:
    """The shares of the pairs of categories of two columns, unbiased.

    Arguments:
        pairs, confidence, allow_seeded: as `relation`; both tables of categories.
        simultaneous: make `confidence` that of all cells together (Bonferroni), not of each.

    Returns: (category of the first, of the second) -> its share of all records.

    Example:
        >>> words = mz.families.categorical(categories=["a", "b"], epsilon=2.0)
        >>> first, second = (words.privatize(["a", "b"] * 500, rng=seed) for seed in (0, 1))
        >>> shares = mz.collect.two_way(mz.collect.PairCounts.from_codes(first, second, tables=(words, words)))
        >>> shares["a", "a"].value > shares["a", "b"].value
        True
    """
    _check(pairs, confidence, allow_seeded, (True, True))
    cells = len(pairs.first.categories or ()) * len(pairs.second.categories or ())
    each = 1 - (1 - confidence) / cells if simultaneous else confidence
    found = {}
    for name, one in zip(
        pairs.first.categories or (), pairs.first.frequency_decoders.T, strict=True
    ):
        for other, two in zip(
            pairs.second.categories or (), pairs.second.frequency_decoders.T, strict=True
        ):
            share = pairs.expectation(one, two, confidence=each)
            found[name, other] = within(share.value, share.low, share.high, bounds=(0.0, 1.0))
    return found


RATIO_STEPS, BISECTIONS = 33, 10
"""Means that are tried, and halvings of the steps at both ends of the possible ones."""


def means_within(
    pairs: PairCounts, *, confidence: float = 0.95, allow_seeded: bool = False
) -> dict[str, Interval]:
    """The mean of a column of numbers within each category of another: the groups are as private as the numbers.

    Arguments:
        pairs, confidence, allow_seeded: as `relation`; the first table of categories, the second of numbers.

    Returns: category -> the mean within it. The interval holds every mean r for which the reports do not rule out that
        E [category] (y - r) is 0 (Fieller's); it is the full range where the category may be empty.

    Example:
        >>> words = mz.families.categorical(categories=["a", "b"], epsilon=2.0)
        >>> numbers = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> first, second = words.privatize(["a", "b"] * 500, rng=0), numbers.privatize([0.2, 0.8] * 500, rng=1)
        >>> pairs = mz.collect.PairCounts.from_codes(first, second, tables=(words, numbers))
        >>> within = mz.collect.means_within(pairs)
        >>> within["a"].value < within["b"].value
        True
    """
    _check(pairs, confidence, allow_seeded, (True, False))
    table = pairs.second
    found = {}
    for name, decoder in zip(
        pairs.first.categories or (), pairs.first.frequency_decoders.T, strict=True
    ):
        joint = float((pairs.counts * np.outer(decoder, table.levels)).sum())
        share = float(pairs.counts.sum(axis=1) @ decoder)
        value = float(np.clip(joint / share if share > 0 else math.inf, table.lower, table.upper))
        found[name] = within(value, *_possible_means(pairs, decoder, value, confidence))
    return found


def _possible_means(
    pairs: PairCounts, decoder: FloatArray, value: float, confidence: float
) -> tuple[float, float]:
    """The hull of the means that the reports do not rule out; where they rule out all, the full range."""
    table = pairs.second

    def possible(r: float) -> bool:
        test = pairs.expectation(decoder, table.levels - r, confidence=confidence)
        return test.low - table.max_bias <= 0 <= test.high + table.max_bias

    tried = np.union1d(np.linspace(table.lower, table.upper, RATIO_STEPS), [value]).tolist()
    left = [i for i, r in enumerate(tried) if possible(r)]
    if not left:
        return table.lower, table.upper
    ends = []
    for inside, outside in ((left[0], left[0] - 1), (left[-1], left[-1] + 1)):
        far = tried[min(max(outside, 0), len(tried) - 1)]
        ends.append(bracket(possible, tried[inside], far, steps=BISECTIONS)[1])
    return ends[0], ends[1]
