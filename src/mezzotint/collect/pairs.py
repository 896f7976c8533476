"""Two privatized columns of the same records: covariance, slope, two-way tables, means by a private category."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.collect.columns import open_columns
from mezzotint.collect.counts import (
    BlockCounter,
    CodeCounts,
    check_whole,
    codes_in,
    expected_reports,
    refuse_seeded,
    runs_of,
    seeded_together,
)
from mezzotint.collect.mean import Interval, Spread, check_level, half_width, score_interval, spread_of
from mezzotint.collect.shapes import CrossFitted
from mezzotint.collect.sources import blocks_of, find_files
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import FloatArray, Mechanism
from mezzotint.core.records import Record
from mezzotint.core.search import bracket

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
    """

    first: Mechanism
    second: Mechanism
    counts: npt.NDArray[np.int64]
    seeded: bool | None = None

    def __post_init__(self) -> None:
        shape = (self.first.levels.size, self.second.levels.size)
        if self.counts.shape != shape or (self.counts < 0).any():
            raise ParameterError(
                "counts", self.counts.shape, f"need integers from 0 on, one per pair of codes: {shape}"
            )
        if self.first.weights.size * self.second.weights.size > MAX_CELLS:
            raise ParameterError("counts", shape, "tables too large together; use tables of fewer levels or categories")

    @classmethod
    def from_codes(
        cls, first: npt.ArrayLike, second: npt.ArrayLike, *, tables: tuple[Mechanism, Mechanism]
    ) -> PairCounts:
        """Counts pairs of codes, (n,) each, of the same records in the same order."""
        one, other = (np.asarray(codes, dtype=np.int64) for codes in (first, second))
        sizes = [table.levels.size for table in tables]
        if one.shape != other.shape or any(
            c.size and not 0 <= c.min() <= c.max() < m for c, m in zip((one, other), sizes, strict=True)
        ):
            raise ParameterError("codes", f"{one.shape}, {other.shape}", "need as many codes of each table")
        counts = np.bincount(one * sizes[1] + other, minlength=sizes[0] * sizes[1]).reshape(sizes)
        return cls(first=tables[0], second=tables[1], counts=counts)

    @property
    def n(self) -> int:
        """Records."""
        return int(self.counts.sum())

    @cached_property
    def _pmf(self) -> FloatArray:
        return np.asarray(np.kron(self.first.probabilities, self.second.probabilities), dtype=np.float64)

    def expectation(self, first: FloatArray, second: FloatArray, *, level: float) -> Interval:
        """The mean of a(first code) times b(second code): of E a given x times E b given y over the records.

        Arguments:
            first, second: (m1,) and (m2,) what the codes are decoded to.
            level: confidence of the score interval, in (0, 1).
        """
        values = np.outer(first, second).ravel()
        # Within a pair of segments the product table mixes its four corners' rows.
        spread, counts = Spread(pmf=self._pmf, values=values), self.counts.ravel()
        mean = float(counts @ values) / self.n
        low, high = score_interval(counts, spread, mean=mean, level=level)
        return Interval(value=mean, low=min(low, mean), high=max(high, mean))

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

    Raises:
        ParameterError, FileFormatError: as `read_counts`.
    """
    if columns[0] == columns[1]:
        raise ParameterError("column", columns[0], "is named twice; name two columns of the same records")
    files, expected = find_files(source), expected_reports(source)
    found: PairCounts | None = None
    for block in blocks_of(files):
        with open_columns(block.file.path) as reader:
            described = [BlockCounter(column=name, mechanism=None).field(reader)[1] for name in columns]
            tables = [one.tables[name] for one, name in zip(described, columns, strict=True)]
            rows, parts = block.offset, []
            for batch in reader.batches(numeric=columns, groups=block.groups):
                codes = [
                    codes_in(batch.column(i), table.levels.size, columns[i], rows) for i, table in enumerate(tables)
                ]
                parts.append(PairCounts.from_codes(*codes, tables=(tables[0], tables[1])).counts)
                rows += batch.num_rows
        if found is not None and (found.first, found.second) != tuple(tables):
            raise ParameterError("mechanism", tables[0].name, "estimate reports of different tables apart")
        counts = sum(parts, start=np.zeros([table.levels.size for table in tables], dtype=np.int64))
        total = counts if found is None else counts + found.counts
        seeded = seeded_together(*(one.seeded for one in (*described, found) if one is not None))
        found = PairCounts(first=tables[0], second=tables[1], counts=total, seeded=seeded)
    rows = 0 if found is None else found.n
    check_whole(source, rows, expected=expected, column=" and ".join(columns))
    assert found is not None
    runs_of(files)  # refuses the same reports twice
    return found


# Estimates -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Relation(Record):
    """How two columns of numbers go together.

    Arguments:
        n: records.
        level: confidence of each interval.
        covariance: of the clipped inputs, in the product of their units.
        slope: of the second column's regression on the first; None where the reports leave its variance open down to 0.
    """

    n: int
    level: float
    covariance: Interval
    slope: Interval | None


def _check(pairs: PairCounts, level: float, allow_seeded: bool, categories: tuple[bool, bool]) -> None:
    check_level(level)
    if pairs.n < 2:
        raise ParameterError("counts", pairs.n, "two columns need at least two records")
    refuse_seeded(pairs.seeded, allowed=allow_seeded)
    kinds = tuple(table.categories is not None for table in (pairs.first, pairs.second))
    if kinds != categories:
        wanted = " and ".join("categories" if one else "numbers" for one in categories)
        raise ParameterError("column", pairs.first.name, f"this needs columns of {wanted}, in this order")


def relation(pairs: PairCounts, *, level: float = 0.95, allow_seeded: bool = False) -> Relation:
    """Covariance and regression slope of two columns of numbers.

    Arguments:
        pairs: `read_pairs`, or `PairCounts.from_codes`.
        level: confidence of each interval, in (0, 1).
        allow_seeded: as in `estimate`.

    Guarantees:
        The covariance is unbiased up to the tables' bias: the noises of the two reports are independent, so that they
        add nothing to it. Its interval is the score interval of the product, widened by what the two means may be off.
        The slope, a ratio, is consistent; its interval holds every ratio of a covariance and a variance that their
        intervals, at half the error each, leave possible.
    Source: docs/proofs/estimation.md, E10.
    """
    _check(pairs, level, allow_seeded, (False, False))
    covariance = _covariance(pairs, level)
    spread, slope = CrossFitted(pairs.margins()[0], level=(1 + level) / 2, edges=None).variance(), None
    if spread.low > 0 and spread.value > 0:
        wide = _covariance(pairs, (1 + level) / 2)
        ends = [c / v for c in (wide.low, wide.high) for v in (spread.low, spread.high)]
        slope = Interval(value=covariance.value / spread.value, low=min(ends), high=max(ends))
    return Relation(n=pairs.n, level=level, covariance=covariance, slope=slope)


def _covariance(pairs: PairCounts, level: float) -> Interval:
    tables, n = (pairs.first, pairs.second), pairs.n
    means, halves = [], []
    for table, counts in zip(tables, pairs.margins(), strict=True):
        mean = float(counts.counts @ table.levels) / n
        variance = float(counts.counts @ (table.levels - mean) ** 2) / n
        # A twentieth of the error for each mean: what they may be off is of second order.
        narrow = half_width(spread_of(table), mean=mean, variance=variance, n=n, level=1 - (1 - level) / 20)
        means.append(mean)
        halves.append(narrow + table.max_bias)
    deviations = [table.levels - mean for table, mean in zip(tables, means, strict=True)]
    product = pairs.expectation(deviations[0], deviations[1], level=1 - 0.9 * (1 - level))
    reach = [max(table.upper - mean, mean - table.lower) for table, mean in zip(tables, means, strict=True)]
    bias = tables[0].max_bias * (reach[1] + tables[1].max_bias) + tables[1].max_bias * reach[0]
    off = halves[0] * halves[1] + bias
    value = product.value * n / (n - 1)
    return Interval(value=value, low=min(product.low - off, value), high=max(product.high + off, value))


def two_way(pairs: PairCounts, *, level: float = 0.95, allow_seeded: bool = False) -> dict[tuple[str, str], Interval]:
    """The shares of the pairs of categories of two columns, unbiased.

    Arguments:
        pairs, level, allow_seeded: as `relation`; both tables of categories.

    Returns: (category of the first, of the second) -> its share of all records.
    """
    _check(pairs, level, allow_seeded, (True, True))
    found = {}
    for name, one in zip(pairs.first.categories or (), pairs.first.frequency_decoders.T, strict=True):
        for other, two in zip(pairs.second.categories or (), pairs.second.frequency_decoders.T, strict=True):
            share = pairs.expectation(one, two, level=level)
            low, high = min(share.value, max(share.low, 0.0)), max(share.value, min(share.high, 1.0))
            found[name, other] = Interval(value=share.value, low=low, high=high)
    return found


RATIO_STEPS, BISECTIONS = 33, 10
"""Means that are tried, and halvings of the steps at both ends of the possible ones."""


def means_within(pairs: PairCounts, *, level: float = 0.95, allow_seeded: bool = False) -> dict[str, Interval]:
    """The mean of a column of numbers within each category of another: the groups are as private as the numbers.

    Arguments:
        pairs, level, allow_seeded: as `relation`; the first table of categories, the second of numbers.

    Returns: category -> the mean within it. The interval holds every mean r for which the reports do not rule out that
        E [category] (y - r) is 0 (Fieller's); it is the whole range where the category may be empty.
    """
    _check(pairs, level, allow_seeded, (True, False))
    table = pairs.second
    found = {}
    for name, decoder in zip(pairs.first.categories or (), pairs.first.frequency_decoders.T, strict=True):
        joint = float((pairs.counts * np.outer(decoder, table.levels)).sum())
        share = float(pairs.counts.sum(axis=1) @ decoder)
        value = float(np.clip(joint / share if share > 0 else math.inf, table.lower, table.upper))
        low, high = _possible_means(pairs, decoder, value, level)
        found[name] = Interval(value=value, low=min(low, value), high=max(high, value))
    return found


def _possible_means(pairs: PairCounts, decoder: FloatArray, value: float, level: float) -> tuple[float, float]:
    """The hull of the means that the reports do not rule out; where they rule out all, the whole range."""
    table = pairs.second

    def possible(r: float) -> bool:
        test = pairs.expectation(decoder, table.levels - r, level=level)
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
