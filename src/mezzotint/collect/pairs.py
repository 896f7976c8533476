"""Two privatized columns of the same records: their covariance and slope, and two-way tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.collect.counts import (
    CodeCounts,
    Counts,
    counts_of,
    open_reports,
    refuse_seeded,
)
from mezzotint.collect.evidence import CrossFitted
from mezzotint.collect.intervals import (
    Interval,
    Sums,
    check_confidence,
    each_confidence,
    normal_quantile,
    target_of_mean,
    target_of_values,
    within,
)
from mezzotint.collect.source import Block
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Record
from mezzotint.core.types import AnyPath, FloatArray

MAX_CELLS = 1 << 22
"""Pairs of inputs times pairs of codes."""


MEANS_ERROR = 0.1
"""Share of the error of a covariance that is left to the two means: what they may be off is of
second order.
"""


@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class PairCounts(Counts):
    """How often each pair of codes was reported about one record.

    The two reports of a record were drawn independently, so that together they are one report of a
    product table.

    Arguments:
        first, second: the tables.
        counts: (m1, m2) records per pair.
        seeded, provenance: as in `Counts`.

    Example:
        >>> words = mz.families.categorical(categories=["a", "b"], epsilon=2.0)
        >>> first, second = (words.privatize(["a", "b"] * 500, rng=seed) for seed in (0, 1))
        >>> pairs = mz.collect.PairCounts.from_codes(first, second, tables=(words, words))
        >>> int(pairs.counts.sum())
        1000
    """

    first: Mechanism
    second: Mechanism

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first.weights.size * self.second.weights.size > MAX_CELLS:
            remedy = "these tables are too large together; use tables of fewer levels or categories"
            raise ParameterError("counts", self.counts.shape, remedy)

    @property
    def tables(self) -> tuple[Mechanism, ...]:
        return self.first, self.second

    @classmethod
    def from_codes(
        cls,
        first: npt.ArrayLike,
        second: npt.ArrayLike,
        *,
        tables: tuple[Mechanism, Mechanism],
    ) -> PairCounts:
        """Counts pairs of codes, (n,) each, of the same records in the same order."""
        first_codes = tables[0].check_codes(first)
        second_codes = tables[1].check_codes(second)
        if first_codes.shape != second_codes.shape:
            shown = f"{first_codes.shape}, {second_codes.shape}"
            raise ParameterError("codes", shown, "need as many codes of each table")
        shape = (tables[0].levels.size, tables[1].levels.size)
        cells = first_codes * shape[1] + second_codes
        counts = np.bincount(cells, minlength=math.prod(shape)).reshape(shape)
        return cls(first=tables[0], second=tables[1], counts=counts)

    @cached_property
    def _pmf(self) -> FloatArray:
        pmf = np.kron(self.first.probabilities, self.second.probabilities)
        return np.asarray(pmf, dtype=np.float64)

    def expectation(
        self,
        first: FloatArray,
        second: FloatArray,
        *,
        confidence: float,
    ) -> Interval:
        """The mean of a(first code) times b(second code): of E a given x times E b given y over the
        records.

        Arguments:
            first, second: (m1,) and (m2,) what the codes are decoded to.
            confidence: of the score interval, in (0, 1).
        """
        values = np.outer(first, second).ravel()
        # Within a pair of segments the product table mixes its four corners' rows.
        target = target_of_values(self._pmf, values)
        return target.interval(Sums.of_counts(self.counts.ravel()), confidence=confidence)

    def margins(self) -> tuple[CodeCounts, CodeCounts]:
        """The reports of each column by themselves."""
        rows = self.counts.sum(axis=1)
        columns = self.counts.sum(axis=0)
        origin: dict[str, Any] = {"seeded": self.seeded, "provenance": self.provenance}
        return (
            CodeCounts(mechanism=self.first, counts=rows, **origin),
            CodeCounts(mechanism=self.second, counts=columns, **origin),
        )


def read_pairs(source: AnyPath, *, columns: tuple[str, str]) -> PairCounts:
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
        >>> tables = {"x": table, "y": table}
        >>> result = mz.collect.privatize_columns("in.csv", "out.csv", mechanisms=tables)
        >>> int(mz.collect.read_pairs("out.csv", columns=("x_code", "y_code")).counts.sum())
        100
    """
    if columns[0] == columns[1]:
        remedy = "is named twice; name two columns of the same records"
        raise ParameterError("column", columns[0], remedy)

    def count(block: Block) -> PairCounts:
        with open_reports(block, columns=columns) as reports:
            first, second = reports.tables
            shape = (first.levels.size, second.levels.size)
            total = np.zeros(shape, dtype=np.int64)
            for codes, _ in reports.batches():
                total += PairCounts.from_codes(*codes, tables=(first, second)).counts
        return PairCounts(
            first=first,
            second=second,
            counts=total,
            seeded=reports.seeded,
            provenance=reports.provenance,
        )

    return counts_of(source, count, column=" and ".join(columns))


@final
@dataclass(frozen=True, kw_only=True)
class Relation(Record):
    """The covariance and regression of two columns of numbers.

    Arguments:
        n: records.
        confidence: of each interval, or of both together.
        simultaneous: whether it is that of both together.
        covariance: of the clipped inputs, in the product of their units.
        slope: of the second column's regression on the first; None where the reports leave its
            variance open down to 0.
        notes: as in `Estimate`.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> first, second = (table.privatize([0.0, 1.0] * 500, rng=seed) for seed in (0, 1))
        >>> pairs = mz.collect.PairCounts.from_codes(first, second, tables=(table, table))
        >>> relation = mz.collect.relation(pairs)
        >>> relation.n, relation.slope is not None
        (1000, False)
    """

    n: int
    confidence: float
    simultaneous: bool
    covariance: Interval
    slope: Interval | None
    notes: tuple[str, ...] = ()


def _check(
    pairs: PairCounts,
    confidence: float,
    allow_seeded: bool,
    *,
    kind: Literal["numbers", "categories"],
) -> None:
    """Raises ParameterError for pairs of columns of another kind, or too few."""
    check_confidence(confidence)
    if pairs.n < 2:
        raise ParameterError("counts", pairs.n, "two columns need at least two records")
    refuse_seeded(pairs.seeded, allowed=allow_seeded)
    for mechanism in (pairs.first, pairs.second):
        if (mechanism.categories is not None) != (kind == "categories"):
            remedy = f"this needs two columns of {kind}"
            raise ParameterError("column", mechanism.name, remedy)


def relation(
    pairs: PairCounts,
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
    allow_seeded: bool = False,
) -> Relation:
    """Covariance and regression slope of two columns of numbers.

    Arguments:
        pairs: `read_pairs`, or `PairCounts.from_codes`.
        confidence: of each interval, in (0, 1).
        simultaneous: make `confidence` that of both together (Bonferroni), not of each.
        allow_seeded: as in `estimate`.

    Returns: covariance, product of the two columns' units, and slope, their quotient.

    Guarantees:
        The covariance is unbiased up to the tables' bias: the noises of the two reports are
        independent, so that they add nothing to it. Its interval is the score interval of the
        product, widened by what the two means may be off. The slope, a ratio, is consistent; its
        interval holds every ratio of a covariance and a variance that their intervals, at half the
        error each, leave possible.
    Source: docs/proofs/estimation.md, E10.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> first, second = (table.privatize([0.0, 1.0] * 500, rng=seed) for seed in (0, 1))
        >>> pairs = mz.collect.PairCounts.from_codes(first, second, tables=(table, table))
        >>> mz.collect.relation(pairs).covariance.value > 0
        True
    """
    _check(pairs, confidence, allow_seeded, kind="numbers")
    each = each_confidence(confidence, 2, simultaneous=simultaneous)
    covariance = _covariance(pairs, each)
    half_error = (1 + each) / 2
    spread = CrossFitted(pairs.margins()[0], confidence=half_error, edges=None).variance()
    slope = None
    if spread.low > 0 and spread.value > 0:
        wide = _covariance(pairs, half_error)
        corners = np.divide.outer([wide.low, wide.high], [spread.low, spread.high])
        slope = Interval(
            value=covariance.value / spread.value,
            low=float(corners.min()),
            high=float(corners.max()),
        )
    return Relation(
        n=pairs.n,
        confidence=confidence,
        simultaneous=simultaneous,
        covariance=covariance,
        slope=slope,
        notes=pairs.provenance.notes,
    )


def _covariance(pairs: PairCounts, confidence: float) -> Interval:
    """The covariance of the inputs, unbiased up to the bias of the tables, and its interval."""
    report_count = pairs.n
    error = 1 - confidence
    tables = (pairs.first, pairs.second)
    quantile = np.array([normal_quantile(1 - MEANS_ERROR / 2 * error)])
    deviations: list[FloatArray] = []
    halves: list[float] = []
    reaches: list[float] = []
    for mechanism, counts in zip(tables, pairs.margins(), strict=True):
        target = target_of_mean(mechanism)
        reports = Sums.of_counts(counts.counts)
        mean_report = target.value(reports)
        deviations.append(mechanism.levels - mean_report)
        halves.append(float(np.max(target.sides(reports, quantile))) + mechanism.max_bias)
        reaches.append(
            max(
                mechanism.upper - mean_report,
                mean_report - mechanism.lower,
            )
        )
    product = pairs.expectation(*deviations, confidence=1 - (1 - MEANS_ERROR) * error)
    first_bias, second_bias = (mechanism.max_bias for mechanism in tables)
    bias = first_bias * (reaches[1] + second_bias) + second_bias * reaches[0]
    off = halves[0] * halves[1] + bias
    estimated = product.value * report_count / (report_count - 1)
    return within(estimated, product.low - off, product.high + off)


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
        >>> pairs = mz.collect.PairCounts.from_codes(first, second, tables=(words, words))
        >>> shares = mz.collect.two_way(pairs)
        >>> shares["a", "a"].value > shares["a", "b"].value
        True
    """
    _check(pairs, confidence, allow_seeded, kind="categories")
    row_decoders = _decoders(pairs.first)
    column_decoders = _decoders(pairs.second)
    cells = len(row_decoders) * len(column_decoders)
    each = each_confidence(confidence, cells, simultaneous=simultaneous)
    shares: dict[tuple[str, str], Interval] = {}
    for row_category, row_decoder in row_decoders.items():
        for (
            column_category,
            column_decoder,
        ) in column_decoders.items():
            share = pairs.expectation(row_decoder, column_decoder, confidence=each)
            shares[row_category, column_category] = within(
                share.value, share.low, share.high, bounds=(0.0, 1.0)
            )
    return shares


def _decoders(table: Mechanism) -> dict[str, FloatArray]:
    """Category -> (m,) what the codes are decoded to for its frequency."""
    return dict(
        zip(
            table.categories or (),
            table.frequency_decoders.T,
            strict=True,
        )
    )
