"""Groups that are private, too: two privatized columns of the same records.

Their covariance and slope, two-way tables, and means of one within the categories of the other.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.collect.counts import (
    BlockCounter,
    CodeCounts,
    codes_in,
    refuse_seeded,
    seeded_together,
    total_of,
)
from mezzotint.collect.intervals import (
    Interval,
    Sums,
    check_confidence,
    normal_quantile,
    target_of_mean,
    target_of_values,
    within,
)
from mezzotint.collect.shapes import CrossFitted
from mezzotint.collect.source import Block, open_columns
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Record
from mezzotint.core.search import bracket
from mezzotint.core.types import FloatArray

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
        columns = [np.asarray(codes, dtype=np.int64) for codes in (first, second)]
        sizes = [table.levels.size for table in tables]
        shapes = [codes.shape for codes in columns]
        listed = [
            not codes.size or 0 <= codes.min() <= codes.max() < size
            for codes, size in zip(columns, sizes, strict=True)
        ]
        if shapes[0] != shapes[1] or not all(listed):
            shown = f"{shapes[0]}, {shapes[1]}"
            raise ParameterError("codes", shown, "need as many codes of each table")
        cells = columns[0] * sizes[1] + columns[1]
        counts = np.bincount(cells, minlength=sizes[0] * sizes[1]).reshape(sizes)
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
            first, second = described[0].tables[columns[0]], described[1].tables[columns[1]]
            seeded = seeded_together(*(description.seeded for description in described))
            total = np.zeros((first.levels.size, second.levels.size), dtype=np.int64)
            rows = block.offset
            for batch in reader.batches(numeric=columns, groups=block.groups):
                codes = (
                    codes_in(batch.column(i), table.levels.size, columns[i], rows)
                    for i, table in enumerate((first, second))
                )
                total += PairCounts.from_codes(*codes, tables=(first, second)).counts
                rows += batch.num_rows
        return PairCounts(first=first, second=second, counts=total, seeded=seeded)

    return total_of(source, count, PairCounts.merge, column=" and ".join(columns))[0]


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
        names = {True: "categories", False: "numbers"}
        wanted = " and ".join(names[of_categories] for of_categories in categories)
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
    half_error = (1 + confidence) / 2
    spread = CrossFitted(pairs.margins()[0], confidence=half_error, edges=None).variance()
    slope = None
    if spread.low > 0 and spread.value > 0:
        wide = _covariance(pairs, half_error)
        ends = [end / spread.low for end in (wide.low, wide.high)]
        ends += [end / spread.high for end in (wide.low, wide.high)]
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
    shares = {}
    for row, row_decoder in _decoders(pairs.first):
        for column, column_decoder in _decoders(pairs.second):
            share = pairs.expectation(row_decoder, column_decoder, confidence=each)
            shares[row, column] = within(share.value, share.low, share.high, bounds=(0.0, 1.0))
    return shares


def _decoders(table: Mechanism) -> list[tuple[str, FloatArray]]:
    """Each category, and (m,) what the codes are decoded to for its frequency."""
    return list(zip(table.categories or (), table.frequency_decoders.T, strict=True))


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
    means = {}
    for name, decoder in _decoders(pairs.first):
        joint = float((pairs.counts * np.outer(decoder, table.levels)).sum())
        share = float(pairs.counts.sum(axis=1) @ decoder)
        value = float(np.clip(joint / share if share > 0 else math.inf, table.lower, table.upper))
        means[name] = within(value, *_possible_means(pairs, decoder, value, confidence))
    return means


def _possible_means(
    pairs: PairCounts, decoder: FloatArray, value: float, confidence: float
) -> tuple[float, float]:
    """The hull of the means that the reports do not rule out; where they rule out all, the full range."""
    table = pairs.second

    def possible(mean: float) -> bool:
        test = pairs.expectation(decoder, table.levels - mean, confidence=confidence)
        return test.low - table.max_bias <= 0 <= test.high + table.max_bias

    steps = np.union1d(np.linspace(table.lower, table.upper, RATIO_STEPS), [value]).tolist()
    inside = [index for index, mean in enumerate(steps) if possible(mean)]
    if not inside:
        return table.lower, table.upper
    below, above = max(inside[0] - 1, 0), min(inside[-1] + 1, len(steps) - 1)
    low = bracket(possible, steps[inside[0]], steps[below], steps=BISECTIONS)[1]
    high = bracket(possible, steps[inside[-1]], steps[above], steps=BISECTIONS)[1]
    return low, high
