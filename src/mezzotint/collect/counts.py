"""Reports as counts per code: all that an estimate needs, and what any number of machines can add up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self, final

import numpy as np
import numpy.typing as npt

from mezzotint.collect.columns import numbers, open_columns
from mezzotint.collect.privatize import Progress
from mezzotint.collect.reports import read_description
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.mechanism import Mechanism


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CodeCounts:
    """How often each code was reported under one mechanism: a sufficient statistic of the reports.

    Arguments:
        mechanism: the table that made the reports.
        counts: (m,) integers >= 0, reports per code.

    Raises:
        ParameterError: another shape, negative or non-integer counts.

    Guarantees: `a.merge(b)` of two parts equals the counts of the whole, exactly.
    """

    mechanism: Mechanism
    counts: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        raw = np.asarray(self.counts)
        if raw.dtype.kind not in "iu" or raw.shape != self.mechanism.levels.shape:
            need = f"need {self.mechanism.levels.size} integers, one per level"
            raise ParameterError("counts", f"{raw.dtype} of shape {raw.shape}", need)
        if (raw < 0).any():
            raise ParameterError("counts", int(raw.min()), "a count cannot be negative")
        owned = raw.astype(np.int64, copy=True)
        owned.setflags(write=False)
        object.__setattr__(self, "counts", owned)

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.counts.sum())

    @classmethod
    def from_codes(cls, codes: npt.ArrayLike, *, mechanism: Mechanism) -> Self:
        """Counts the codes of an array of any shape; raises ParameterError for a code that names no level."""
        array = np.asarray(codes)
        if array.size == 0:
            array = array.astype(np.int64)
        size = mechanism.levels.size
        if array.dtype.kind not in "iu" or (array.size and not 0 <= int(array.min()) <= int(array.max()) < size):
            raise ParameterError("codes", str(array.dtype), f"codes are integers from 0 to {size - 1}")
        return cls(mechanism=mechanism, counts=np.bincount(array.ravel(), minlength=size))

    def merge(self, other: Self) -> Self:
        """The counts of both; raises ParameterError when the mechanisms differ."""
        if other.mechanism != self.mechanism:
            raise ParameterError(
                "mechanism", other.mechanism.name, "reports of different tables cannot be added; estimate them apart"
            )
        return type(self)(mechanism=self.mechanism, counts=self.counts + other.counts)


def read_counts(
    source: str | os.PathLike[str],
    *,
    column: str | None = None,
    mechanism: Mechanism | None = None,
    progress: Progress | None = None,
) -> CodeCounts:
    """Counts the reports of a file, in constant memory.

    Arguments:
        source: a reports file (.parquet, .csv, .csv.gz, or "-" for CSV on standard input).
        column: the field that holds the codes; None where the file describes exactly one.
        mechanism: for a file of bare codes without a description; `column` is needed then. A file that does
            describe the field must agree.
        progress: told how far it is.

    Raises:
        ParameterError: no such column, an empty one, or a mechanism that is not the file's.
        FileFormatError: no description, an edited one, or codes that are none.
    """
    with open_columns(source) as reader:
        described: dict[str, Mechanism] = {}
        if reader.description is not None or mechanism is None:
            described = read_description(reader.description, name=reader.name)
        field = _choose(column, described)
        table = described.get(field, mechanism)
        if table is None:
            raise ParameterError("column", field, f"the file describes only: {', '.join(described)}")
        if mechanism is not None and mechanism != table:
            raise ParameterError("mechanism", mechanism.name, f"{reader.name} was made by another table: {table!r}")
        reader.require(field)
        total, rows = np.zeros(table.levels.size, dtype=np.int64), 0
        for batch in reader.batches(numeric=field):
            total += _count(batch.column(0), table.levels.size, field, rows)
            rows += batch.num_rows
            if progress is not None:
                progress(reader.done(), rows)
        if rows == 0:
            raise ParameterError("column", field, f"is empty: {reader.name} holds no reports")
    return CodeCounts(mechanism=table, counts=total)


def _choose(column: str | None, described: dict[str, Mechanism]) -> str:
    if column is not None:
        return column
    if len(described) != 1:
        listed = ", ".join(described) or "none described"
        raise ParameterError("column", "none given", f"name the field that holds the codes; candidates: {listed}")
    return next(iter(described))


def _count(array: object, size: int, field: str, before: int) -> npt.NDArray[np.int64]:
    values, present = numbers(array)
    if present is not None:
        row = before + int(np.argmin(present)) + 1
        raise FileFormatError(f"{field}: report {row} is missing; a reports file has one code per row")
    bad = (values < 0) | (values >= size) | (values != np.floor(values))
    if bad.any():
        row = before + int(np.argmax(bad)) + 1
        value = float(values[np.argmax(bad)])
        raise FileFormatError(f"{field}: report {row} is {value:g}; codes are integers from 0 to {size - 1}")
    return np.bincount(values.astype(np.int64), minlength=size)
