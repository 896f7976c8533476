"""Reports counted by public groups, with public weights."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.collect.counts import CodeCounts, OpenReports, Total, open_reports, total_of
from mezzotint.collect.groups import Group
from mezzotint.collect.provenance import UNKNOWN, Provenance
from mezzotint.collect.settings import Settings
from mezzotint.collect.source import Block
from mezzotint.core.errors import ParameterError, as_reals
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.table import MISSING
from mezzotint.core.types import AnyPath, FloatArray, IntArray
from mezzotint.core.values import numbers, plain

compute: Any = pc  # its functions are made at import time, unseen by type checkers

MAX_GROUPS = 10_000


@final
@dataclass(frozen=True, kw_only=True)
class _Groups:
    """The reports of a part of a source, by the values of columns.

    Arguments:
        files: group -> names of the files that its reports are in.
    """

    by: tuple[str, ...]
    groups: Mapping[str, Group]
    files: Mapping[str, frozenset[str]]
    provenance: Provenance = UNKNOWN

    @property
    def n(self) -> int:
        return sum(group.counts.n for group in self.groups.values())

    def merge(self, other: _Groups) -> _Groups:
        """Both; raises ParameterError for too many groups."""
        groups = dict(self.groups)
        files = dict(self.files)
        for group_name, group in other.groups.items():
            if group_name in groups:
                groups[group_name] = groups[group_name].merge(group)
            else:
                groups[group_name] = group
            files[group_name] = files.get(group_name, frozenset()) | other.files[group_name]
        if len(groups) > MAX_GROUPS:
            remedy = f"has more than {MAX_GROUPS:,} values; choose a column of groups"
            raise ParameterError("by", ", ".join(self.by), remedy)
        provenance = self.provenance.merge(other.provenance)
        return _Groups(by=self.by, groups=groups, files=files, provenance=provenance)


def read_groups(
    source: AnyPath,
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
            of groups named "a, b"; missing values are the group "(missing)". A label that would
            be taken for another one stands in quotes. None takes all reports as one group, "".
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
            raise ParameterError("by", entry_name, "is named twice; name each column once")

    def count(block: Block) -> _Groups:
        with open_reports(block, columns=[column], mechanism=mechanism) as reports:
            return _grouped(reports, labels, weights)

    total = total_of(source, count, column=column, settings=Settings(threads=threads))
    names = sorted(total.counted.groups, key=_order)
    return {group_name: _named(group_name, total) for group_name in names}


def _grouped(reports: OpenReports, by: tuple[str, ...], weights: str | None) -> _Groups:
    """The groups of one block."""
    numeric = [] if weights is None else [weights]
    others = dict.fromkeys(by, "by")
    total = _Groups(by=by, groups={}, files={}, provenance=reports.provenance)
    file_name = frozenset([reports.block.file.name])
    for (codes,), record_batch in reports.batches(numeric=numeric, others=others):
        counted = _counted(
            codes,
            labels=[record_batch.values.column(entry_name) for entry_name in by],
            weights=_weights(record_batch.values, weights, record_batch.row),
            table=reports.tables[0],
            seeded=reports.seeded,
        )
        files = dict.fromkeys(counted, file_name)
        total = total.merge(_Groups(by=by, groups=counted, files=files))
    return total


def _named(name: str, total: Total[_Groups]) -> Group:
    """The group under its own name: reports of other groups of the same run are different reports,
    and other runs may have none in it.
    """
    by, group = total.counted.by, total.counted.groups[name]
    runs: set[str] = set()
    for file_name in total.counted.files[name]:
        run_name = total.run_of_file.get(file_name)
        if run_name is not None and by:
            run_name = f"{run_name} where {', '.join(by)} is {name}"
        if run_name is not None:
            runs.add(run_name)
    provenance = replace(total.provenance, runs=frozenset(runs))
    return replace(group, counts=replace(group.counts, provenance=provenance))


UNQUOTED = '^([^",][^,]*)?$'
"""Labels that are told apart from others in a name of several columns as they are."""

_MISSING_TEXT = '^"*' + re.escape(MISSING) + '"*$'
"""Labels that are text, and look like those of missing values, or like such labels quoted."""


def _quoted(label: pa.Array, *, alone: bool) -> pa.Array:
    """The same texts; in quotes, as in CSV, where they would be taken for another label."""
    quoted = compute.replace_substring(label, '"', '""')
    quoted = compute.binary_join_element_wise('"', quoted, '"', "")
    is_doubtful = compute.match_substring_regex(label, _MISSING_TEXT)
    if not alone:
        is_plain = compute.match_substring_regex(label, UNQUOTED)
        is_doubtful = compute.or_(is_doubtful, compute.invert(is_plain))
    return compute.if_else(is_doubtful, quoted, label)


def _order(name: str) -> list[tuple[bool, float, str]]:
    """Numbers by their size, before everything else: rounds 2 and 10 in their order; dates are in
    it as text.
    """
    order: list[tuple[bool, float, str]] = []
    for label in name.split(", "):
        number = math.nan
        with suppress(ValueError):
            number = float(label)
        is_text = math.isnan(number)
        order.append((is_text, 0.0 if is_text else number, label))
    return order


def _counted(
    codes: npt.NDArray[np.integer],
    *,
    labels: Sequence[pa.Array],
    weights: FloatArray | None,
    table: Mechanism,
    seeded: bool | None,
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
        totals = sums(weights)
        squares = sums(weights**2)
        heaviest = np.zeros(len(names))
        np.maximum.at(heaviest, group_of_row, weights)
    groups: dict[str, Group] = {}
    for index, group_name in enumerate(names):
        groups[group_name] = Group(
            counts=CodeCounts(mechanism=table, counts=counts[index], seeded=seeded),
            weights=totals[index],
            squares=squares[index],
            heaviest=float(heaviest[index]),
        )
    return groups


def _labelled(labels: Sequence[pa.Array], rows: int) -> tuple[list[str], IntArray]:
    """The groups that rows are in, and the index of each row's."""
    if not labels:
        return [""], np.zeros(rows, dtype=np.int64)
    texts: list[pa.Array] = []
    for label in labels:
        text = _quoted(compute.cast(label, pa.string()), alone=len(labels) == 1)
        texts.append(compute.fill_null(text, pa.scalar(MISSING)))
    coded = compute.binary_join_element_wise(*texts, ", ").dictionary_encode()
    return coded.dictionary.to_pylist(), plain(coded.indices).astype(np.int64)


def _weights(batch: pa.RecordBatch, column: str | None, before: int) -> FloatArray | None:
    """The weights of reports, positive and none missing."""
    if column is None:
        return None
    values, present = numbers(batch.column(column))
    is_weight = np.ones(batch.num_rows, dtype=bool) if present is None else present
    is_weight[is_weight] = np.isfinite(values) & (values > 0)
    if not is_weight.all():
        report = before + int(np.argmin(is_weight)) + 1
        raise ParameterError("weights", column, f"report {report} needs a positive number")
    return values.astype(np.float64)


def _labels(by: npt.ArrayLike | Sequence[npt.ArrayLike], count: int) -> list[pa.Array]:
    """The columns of labels of so many codes."""
    columns: Any = [by]
    if isinstance(by, (tuple, list)) and len(by) and not np.isscalar(by[0]):
        columns = by
    try:
        labels = [pa.array(column) for column in columns]
    except (pa.ArrowException, TypeError, ValueError):
        raise ParameterError("by", type(by).__name__, "need a label for each code") from None
    lengths = [len(label) for label in labels]
    if any(length != count for length in lengths):
        raise ParameterError("by", lengths, f"need a label for each of {count} codes")
    return labels


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
    labels = _labels(by, array.size)
    counted = None
    if weights is not None:
        positive = "need a positive number for each code"
        weight_array = pa.array(as_reals("weights", weights, positive).ravel())
        counted = _weights(pa.record_batch([weight_array], names=["weights"]), "weights", 0)
        if len(weight_array) != array.size:
            remedy = f"need one for each of {array.size} codes"
            raise ParameterError("weights", len(weight_array), remedy)
    groups = _counted(
        array,
        labels=labels,
        weights=counted,
        table=mechanism,
        seeded=seeded,
    )
    return {group_name: groups[group_name] for group_name in sorted(groups, key=_order)}
