"""A source: files of columns, what is wanted of them, and their rows in batches; the first of `Source -> Encoder -> Sink`."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.columns import (
    STANDARD,
    ArrowReader,
    ColumnReader,
    CsvReader,
    Dialect,
    OrcReader,
    ParquetReader,
    reading,
    whole_parquet,
)
from mezzotint.collect.dates import Derived, derive, parse_derived, part_fault
from mezzotint.collect.json_lines import JsonReader
from mezzotint.collect.listing import (
    STREAM,
    STREAMS,
    AnyPath,
    FileKind,
    SourceFile,
    file_kind,
    is_file,
    open_binary,
    stamp,
)
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.values import category_fault, numbers

BLOCK_ROWS = 1 << 20
"""Rows of a block at least, where its file has as many: neighbouring row groups are joined until they have them."""


@contextmanager
def open_columns(path: AnyPath, *, dialect: Dialect = STANDARD) -> Iterator[ColumnReader]:
    """Opens a file of columns by its extension, here or at an address, or "-"; closes it when the block ends.

    Raises:
        ParameterError: no such file, or an extension that says nothing.
        FileFormatError: the content is not what the extension says.

    Guarantees: memory stays constant in the number of rows.
    """
    name = os.fspath(path)
    if name in (STREAM, *STREAMS):
        yield CsvReader(name="standard input", stream=sys.stdin.buffer, dialect=dialect)
        return
    kind = file_kind(name)
    if not is_file(name):
        raise ParameterError("source", name, "no such file; check the path")
    with ExitStack() as stack:
        if kind == "parquet":
            yield ParquetReader(name=name, file=stack.enter_context(whole_parquet(name)))
            return
        with reading(name):
            raw: Any = stack.enter_context(open_binary(name))
            stream = _unpacked(raw, kind, stack)
            size = stamp(name)[0]
        if kind == "arrow":
            yield ArrowReader(name=name, source=raw)
        elif kind == "orc":
            yield OrcReader(name=name, source=raw)
        elif kind == "jsonl":
            yield JsonReader(name=name, stream=stream, raw=raw, size=size)
        else:
            prefer = "\t" if ".tsv" in name.lower()[-8:] else ""
            options: dict[str, Any] = {"dialect": dialect, "prefer": prefer}
            yield CsvReader(name=name, stream=stream, raw=raw, size=size, **options)


def _unpacked(raw: Any, kind: FileKind, stack: ExitStack) -> Any:
    """The text of a file, in buffers."""
    if kind == "csv.gz":
        return stack.enter_context(gzip.GzipFile(fileobj=raw))
    if kind == "csv.zst":
        packed: Any = pa.CompressedInputStream(raw, "zstd")
        return stack.enter_context(io.BufferedReader(packed))
    if kind in ("csv", "jsonl") and not isinstance(raw, io.BufferedReader):
        return io.BufferedReader(raw)
    return raw


# Rows ------------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The columns to read.

    Arguments:
        columns: whose values are taken as inputs of tables, or as numbers.
        labels: those of them that hold categories, not numbers.
        others: column to read beside them, of the file or of its folders -> the parameter that names it.
        reports_missing: whether a missing value is reported as a category. An empty line at the end of a file of one
            column is refused then: it would be a report of nobody.
    """

    columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    reports_missing: bool = False

    @property
    def names(self) -> list[str]:
        """All of them, in order."""
        return [*self.columns, *self.others]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """The rows of a data set that are kept, at most K for each person and period.

    Arguments:
        bits: a bit per row, in the order of the files.
        starts: name of a file in the data set -> the number of its first row.
        rows, kept: rows in all, and kept. Counted on raw data: not private.
        shift: total variation between the rows and those kept, in [0, 1]: times the range of a column it
            bounds how far the mean of the kept rows may be from that of all, on average. Not private.
    """

    bits: npt.NDArray[np.uint8]
    starts: Mapping[str, int]
    rows: int
    kept: int
    shift: float

    def mask(self, file: SourceFile, row: int, count: int) -> npt.NDArray[np.bool_]:
        """Which of these rows of a file, from a row on, are kept."""
        first = self.starts[file.name] + row
        start, stop = first // 8, (first + count + 7) // 8
        bits = np.unpackbits(self.bits[start:stop], bitorder="little")
        return bits[first - 8 * start :][:count].astype(bool)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows of a file as they were read.

    Arguments:
        values: the wanted columns.
        file: that they are from.
        row: number of the first one in its file.
        first: number of the first one in the run, or in its part: which words it takes.
        markers: texts that mean a missing value, unless they are categories.
        selected: (n,) rows that may become reports; None for all.
        where: words that name the file in messages; none where there is one file.
        done: the share of the source that was read with it; 0 where that is unknown.
    """

    values: pa.RecordBatch
    file: SourceFile
    row: int
    first: int
    markers: frozenset[str] = frozenset()
    selected: npt.NDArray[np.bool_] | None = None
    where: str = ""
    done: float = 0.0

    @property
    def rows(self) -> int:
        """Their number."""
        return self.values.num_rows

    def row_words(self, index: int) -> str:
        """The words for one of them, in messages."""
        return f"data row {self.row + index + 1}{self.where}"


@final
@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows that are privatized together: row groups of a Parquet file (first, one past the last), or a complete file.

    `index` is its number in the run; before it are `offset` rows of its file; `rows` is None where only reading tells.
    """

    index: int
    file: SourceFile
    groups: tuple[int, int] | None
    offset: int
    rows: int | None


def blocks_of(files: Sequence[SourceFile], *, block_rows: int = BLOCK_ROWS) -> list[Block]:
    """The blocks of a data set, in order: the same of the same files. Only the ends of Parquet files are read."""
    blocks: list[Block] = []
    for file in files:
        if file_kind(file.path) != "parquet":
            blocks.append(Block(index=len(blocks), file=file, groups=None, offset=0, rows=None))
            continue
        with whole_parquet(file.path) as opened:
            metadata = opened.metadata
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        first = before = rows = 0
        for group, size in enumerate(sizes):
            rows += size
            if rows and (rows >= block_rows or group == len(sizes) - 1):
                groups = (first, group + 1)
                blocks.append(
                    Block(index=len(blocks), file=file, groups=groups, offset=before, rows=rows)
                )
                first, before, rows = group + 1, before + rows, 0
    return blocks


@final
class OpenFile:
    """An open file of a data set: its own columns, parts of its dates, and what the names of its folders make.

    Arguments:
        where: the words that name it in messages.

    Raises:
        ParameterError: a column that is missing, stands twice, or is of a type that its use cannot take.
    """

    def __init__(
        self, *, file: SourceFile, reader: ColumnReader, wanted: Wanted, where: str = ""
    ) -> None:
        self.file, self.reader, self.wanted = file, reader, wanted
        self._where = where
        self._partition = dict(file.partition)
        self._derived: dict[str, Derived] = {}
        for column in wanted.columns:
            self._require(column, "column")
            self._require_kind(column)
        for column, parameter in wanted.others.items():
            self._require(column, parameter)

    def _require(self, column: str, parameter: str) -> None:
        derived = None if column in self.reader.names else parse_derived(column)
        stored = column
        if derived is not None:
            self._derived[column] = derived
            stored = derived.column
        if stored not in self._partition:
            self.reader.require(stored, parameter=parameter)
        elif stored in self.reader.names:
            remedy = f"is a column of {self.file.name} and also in its folder's name; rename one"
            raise ParameterError(parameter, stored, remedy)
        if derived is not None:
            fault = part_fault(derived, self._stored_kind(stored))
            if fault:
                raise ParameterError(parameter, column, f"{fault} ({self.file.name})")

    def _require_kind(self, column: str) -> None:
        if column in self._derived:
            return
        if column in self._partition:
            if column not in self.wanted.labels:
                remedy = "is spelled by the folders, as text; use a table of categories"
                raise ParameterError("column", column, remedy)
        elif column in self.wanted.labels:
            fault = category_fault(self.reader.kind_of(column), column)
            if fault:
                raise ParameterError("column", column, fault)
        else:
            self.reader.require_numbers(column)

    def _stored_kind(self, column: str) -> pa.DataType:
        return pa.string() if column in self._partition else self.reader.kind_of(column)

    def kinds(self) -> dict[str, pa.DataType]:
        """Types of the other columns."""
        kinds: dict[str, pa.DataType] = {}
        for column in self.wanted.others:
            derived = self._derived.get(column)
            if derived is None:
                kinds[column] = self._stored_kind(column)
            else:
                kinds[column] = pa.string() if derived.part == "date" else pa.float64()
        return kinds

    def batches(
        self,
        *,
        first: int = 0,
        row: int = 0,
        groups: tuple[int, int] | None = None,
        selection: Selection | None = None,
    ) -> Iterator[Batch]:
        """Batches of the wanted columns.

        Arguments:
            first, row: numbers of the first row, in the run and in the file.
            groups: row groups of a Parquet file; None for all of any file.
            selection: the rows that may become reports; None for all.
        """
        rows = 0
        for stored in self._stored_batches(groups):
            count = stored.num_rows
            selected = None
            if selection is not None:
                selected = selection.mask(self.file, row + rows, count)
            yield Batch(
                values=self._combined(stored, rows),
                file=self.file,
                row=row + rows,
                first=first + rows,
                markers=self.reader.markers,
                selected=selected,
                where=self._where,
                done=self.reader.done(),
            )
            rows += count
        if self.wanted.reports_missing and self.reader.blank_end:
            remedy = "ends in an empty line, which would count as a missing value; remove that line"
            raise FileFormatError(f"{self.reader.name}: {remedy}")

    def _stored_batches(self, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        """Batches of the columns of the file that make the wanted ones."""
        stored = [name for name in self.wanted.names if name not in self._derived]
        stored += [derived.column for derived in self._derived.values()]
        stored = [name for name in dict.fromkeys(stored) if name not in self._partition]
        private = [name for name in self.wanted.columns if name in stored]
        numeric = [name for name in private if name not in self.wanted.labels]
        others = [name for name in stored if name not in numeric]
        return self.reader.batches(
            numeric=numeric, keep=others, labels=self.wanted.labels, groups=groups
        )

    def _combined(self, stored: pa.RecordBatch, before: int) -> pa.RecordBatch:
        names = self.wanted.names
        arrays = [self._array(stored, name, before) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _array(self, batch: pa.RecordBatch, name: str, before: int) -> pa.Array:
        derived = self._derived.get(name)
        stored = name if derived is None else derived.column
        if stored in self._partition:
            value = pa.scalar(self._partition[stored], pa.string())
            array: pa.Array = pa.repeat(value, batch.num_rows)
        else:
            array = batch.column(stored)
        if derived is None:
            return array
        return derive(
            array,
            derived,
            row=lambda index: f"data row {before + index + 1} of {self.file.name}",
            markers=sorted(self.reader.markers),
        )


@final
@dataclass(frozen=True, kw_only=True)
class Source:
    """Files, and the columns that are wanted of each.

    Arguments:
        files: in the order in which their rows count.
        wanted: the columns.
        dialect: how text files are spelled.
        selection: the rows that may become reports; None for all.
    """

    files: tuple[SourceFile, ...]
    wanted: Wanted
    dialect: Dialect = STANDARD
    selection: Selection | None = None

    @property
    def is_stream(self) -> bool:
        """Whether it is standard input, which is read once."""
        return self.files[0].path == STREAM

    @property
    def name(self) -> str:
        """The words for it in messages."""
        if self.is_stream:
            return "standard input"
        count = len(self.files)
        return self.files[0].path if count == 1 else f"{count} files"

    @contextmanager
    def open(self, file: SourceFile) -> Iterator[OpenFile]:
        """Opens one of the files; raises ParameterError unless it has the columns."""
        member = file.name if len(self.files) > 1 else ""
        where = f" of {member}" if member else ""
        with open_columns(file.path, dialect=self.dialect) as reader:
            reader.member = member
            yield OpenFile(file=file, reader=reader, wanted=self.wanted, where=where)

    def batches(self) -> Iterator[Batch]:
        """The rows of all files in turn."""
        rows = 0
        for index, file in enumerate(self.files):
            with self.open(file) as opened:
                for batch in opened.batches(first=rows, selection=self.selection):
                    yield replace(batch, done=(index + batch.done) / len(self.files))
                    rows = batch.first + batch.rows


def read_values(path: str | os.PathLike[str], *, column: str) -> npt.NDArray[np.floating]:
    """All present values of one column, in memory: for priors and small data, not for privatizing.

    Arguments:
        path: as `open_columns`.
        column: integers, floats or decimals; missing values are left out.

    Returns: (n,) floats, data units, in the order of the file.

    Raises:
        ParameterError: no such column, not numbers, or no values in it.

    Example:
        >>> with mz.datasets.flights() as path:
        ...     values = mz.collect.read_values(path, column="air_time")
        >>> values.size
        327346
    """
    with open_columns(path) as reader:
        reader.require(column)
        pieces = [numbers(batch.column(0))[0] for batch in reader.batches(numeric=[column])]
    values = np.concatenate(pieces) if pieces else np.empty(0)
    if values.size == 0:
        raise ParameterError("column", column, f"is empty in {os.fspath(path)}; name another")
    return values
