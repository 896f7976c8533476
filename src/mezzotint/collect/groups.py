"""Reports by public groups and with public weights: means and frequencies of each, differences, strata, totals."""

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
    targets_of_categories,
    within,
)
from mezzotint.collect.nodes import MAX_CODES, nodes_of
from mezzotint.collect.settings import Settings
from mezzotint.collect.shapes import dominating
from mezzotint.collect.source import Block, OpenFile, Wanted, open_columns
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
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
    return [_order_of(label) for label in name.split(", ")]


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
        groups = {
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
        return self.merge({}, groups)

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
    names = tuple(str(column_index) for column_index in range(len(columns)))
    batch = pa.record_batch(columns, names=list(names))
    counted = np.ones(array.size)
    if weights is not None:
        counted = _weights(pa.array(np.asarray(weights, dtype=np.float64)), "weights", 0)
    if counted.size != array.size:
        raise ParameterError("weights", counted.size, f"need one for each of {array.size} codes")
    labels, places = _labels(batch, names)
    size = mechanism.levels.size
    groups = {}
    for column_index, name in enumerate(labels):
        mine = places == column_index
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
    for weight, stratum in strata:
        below = largest_sums(below, weight * stratum.below)
        above = largest_sums(above, weight * stratum.above)
    low = math.fsum(weight * stratum.bounds[0] for weight, stratum in strata)
    high = math.fsum(weight * stratum.bounds[1] for weight, stratum in strata)
    return Part(
        value=math.fsum(weight * stratum.value for weight, stratum in strata),
        below=below,
        above=above,
        bias=math.fsum(weight * stratum.bias for weight, stratum in strata),
        bounds=(low, high),
        n=sum(stratum.n for _, stratum in strata),
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
        ParameterError: a table of categories, no reports, or weights below 1 on average.

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
    if group.counts.n == 0:
        raise ParameterError("group", "no reports", "a total needs a report; nobody was asked")
    if group.weights.sum() < group.counts.n:
        raise ParameterError(
            "weights", "below 1", "a weight is 1 / the probability of inclusion, so at least 1"
        )
    levels, spread = mechanism.levels, spread_of(mechanism)
    squares = np.zeros(levels.size)
    if levels.size <= MAX_CODES:
        nodes = nodes_of(group.counts)
        lower_bounds = (
            nodes.x**2 - nodes.widest() ** 2 / 4
        )  # between nodes the chord of x^2 lies above it by no more
        squares = -dominating(
            nodes.pmf, -lower_bounds, group.weights / group.weights.sum(), width=0.0
        )
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
