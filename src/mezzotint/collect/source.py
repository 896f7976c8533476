"""A source: files of columns, what is wanted of them, and their rows in batches; the first of
`Source -> Encoder -> Sink`.
"""

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
import pyarrow as pa

from mezzotint.collect.columns import (
    STANDARD,
    ArrowReader,
    ColumnReader,
    CsvReader,
    Dialect,
    OrcReader,
    ParquetReader,
    Role,
    TextFile,
    Uses,
    reading,
    whole_parquet,
)
from mezzotint.collect.dates import (
    Derived,
    derive,
    parse_derived,
    part_fault,
    require_part,
)
from mezzotint.collect.json_lines import JsonReader
from mezzotint.collect.listing import (
    STREAM,
    STREAMS,
    FileKind,
    SourceFile,
    SourcePath,
    file_kind,
    find_files,
    is_file,
    open_binary,
    stamp,
)
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.types import AnyPath, BoolArray, ByteArray, Floats
from mezzotint.core.values import (
    category_fault,
    number_fault,
    numbers,
)

BLOCK_ROWS = 1 << 20
"""Rows of a block at least, where its file has as many: neighbouring row groups are joined until
they have them.
"""


@contextmanager
def open_columns(
    path: AnyPath,
    *,
    dialect: Dialect = STANDARD,
    groups: tuple[int, int] | None = None,
) -> Iterator[ColumnReader]:
    """Opens a file of columns by its extension, here or at an address, or "-"; closes it when the
    block ends.

    Arguments:
        groups: row groups of a Parquet file, from the first number up to, not including, the
            second; None for all.

    Raises:
        ParameterError: no such file, or an extension that says nothing.
        FileFormatError: the content is not what the extension says.

    Guarantees: memory stays constant in the number of rows.
    """
    file_name = os.fspath(path)
    if file_name in (STREAM, *STREAMS):
        text_file = TextFile(name="standard input", stream=sys.stdin.buffer)
        yield CsvReader(text_file, dialect=dialect)
        return
    format_name = file_kind(file_name)
    if not is_file(file_name):
        raise ParameterError("source", file_name, "no such file; check the path")
    with ExitStack() as stack:
        if format_name == "parquet":
            parquet = stack.enter_context(whole_parquet(file_name))
            yield ParquetReader(name=file_name, file=parquet, groups=groups)
            return
        with reading(file_name):
            raw: Any = stack.enter_context(open_binary(file_name))
            stream = _unpacked(raw, format_name, stack)
            file_bytes = stamp(file_name)[0]
        text_file = TextFile(name=file_name, stream=stream, raw=raw, size=file_bytes)
        if format_name == "arrow":
            yield ArrowReader(name=file_name, source=raw)
        elif format_name == "orc":
            yield OrcReader(name=file_name, source=raw)
        elif format_name == "jsonl":
            yield JsonReader(text_file)
        else:
            is_tabbed = ".tsv" in file_name.lower()[-8:]
            yield CsvReader(text_file, dialect=dialect, prefer="\t" * is_tabbed)


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


# Rows ---------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The columns to read.

    Arguments:
        columns: whose values are taken as inputs of tables, or as numbers.
        labels: those of them that hold categories, not numbers.
        others: column to read beside them, of the file or of its folders -> the parameter that
            names it.
        reports_missing: whether a missing value is reported as a category. An empty line at the end
            of a file of one column is refused then: it would be a report of nobody.
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
    """The rows of a data set that are kept: at most K for each person and period, of people whom a
    lot asks.

    Arguments:
        bits: a bit per row, in the order of the files.
        starts: name of a file in the data set -> the number of its first row.
        asked: a bit per row: whether the lot asks its person; None without a lot.
        shift: total variation between the rows and those kept, in [0, 1]: times the range of a
            column it bounds how far the mean of the kept rows may be from that of all, on average.
            Not private; None where no limit on rows but a lot decides.
    """

    bits: ByteArray
    starts: Mapping[str, int]
    shift: float | None
    asked: ByteArray | None = None

    def mask(self, file: SourceFile, row: int, count: int) -> BoolArray:
        """Which of these rows of a file, from a row on, are kept."""
        return self._bits_of(self.bits, file, row, count)

    def unasked(self, file: SourceFile, row: int, count: int) -> int:
        """How many of these rows are of people whom the lot asks another question."""
        if self.asked is None:
            return 0
        return count - int(self._bits_of(self.asked, file, row, count).sum())

    def _bits_of(self, bits: ByteArray, file: SourceFile, row: int, count: int) -> BoolArray:
        first = self.starts[file.name] + row
        start = first // 8
        stop = (first + count + 7) // 8
        unpacked = np.unpackbits(bits[start:stop], bitorder="little")
        return unpacked[first - 8 * start :][:count].astype(bool)


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
        unasked: how many of the others are of people whom the run's lot asks another question.
        where: words that name the file in messages; none where there is one file.
        done: the share of the source that was read with it; 0 where that is unknown.
    """

    values: pa.RecordBatch
    file: SourceFile
    row: int
    first: int
    markers: frozenset[str] = frozenset()
    selected: BoolArray | None = None
    unasked: int = 0
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
    """Rows that are privatized together: row groups of a Parquet file (first, one past the last),
    or a complete file.

    `index` is its number in the run; before it are `offset` rows of its file.
    """

    index: int
    file: SourceFile
    groups: tuple[int, int] | None = None
    offset: int = 0


def blocks_of(files: Sequence[SourceFile], *, block_rows: int = BLOCK_ROWS) -> list[Block]:
    """The blocks of a data set, in order: the same of the same files. Only the ends of Parquet
    files are read.
    """
    blocks: list[Block] = []
    for source_file in files:
        if file_kind(source_file.path) != "parquet":
            blocks.append(Block(index=len(blocks), file=source_file))
            continue
        with whole_parquet(source_file.path) as opened:
            metadata = opened.metadata
        offset = first = row_count = 0
        for group in range(metadata.num_row_groups):
            row_count += metadata.row_group(group).num_rows
            stop = group + 1
            if row_count and (stop == metadata.num_row_groups or row_count >= block_rows):
                groups = (first, stop)
                blocks.append(
                    Block(index=len(blocks), file=source_file, groups=groups, offset=offset)
                )
                offset += row_count
                first = stop
                row_count = 0
    return blocks


@final
@dataclass(frozen=True, kw_only=True)
class _Column:
    """A wanted column of a file.

    Arguments:
        name: as it is wanted.
        stored: the column that it is read from, of the file or of its folders.
        derived: the part that is taken of it, if any.
        kind: its type.
    """

    name: str
    stored: str
    derived: Derived | None
    kind: pa.DataType


@final
class OpenFile:
    """An open file of a data set: its own columns, parts of its dates, and what the names of its
    folders make.

    Raises:
        ParameterError: a column that is missing, stands twice, or is of a type that its use cannot
            take.
    """

    def __init__(self, *, file: SourceFile, reader: ColumnReader, wanted: Wanted) -> None:
        self.file = file
        self.reader = reader
        self.wanted = wanted
        self._partition = dict(file.partition)
        self._columns: list[_Column] = []
        for column_name in wanted.columns:
            column = self._column(column_name, "column")
            self._require_kind(column)
            self._columns.append(column)
        for column_name, parameter in wanted.others.items():
            self._columns.append(self._column(column_name, parameter))

    def _column(self, name: str, parameter: str) -> _Column:
        """Where a wanted column comes from; ParameterError, of this parameter, where the file
        and its folders lack it.
        """
        arrow_type: pa.DataType = pa.string()
        derived = None
        stored = name
        if name not in self.reader.names:
            derived = parse_derived(name)
        if derived is not None:
            stored = derived.column
        if stored not in self._partition:
            require_part(name, columns=self.reader.names, parameter=parameter)
            self.reader.require(stored, parameter=parameter)
            arrow_type = self.reader.kind_of(stored)
        elif stored in self.reader.names:
            remedy = f"is a column of {self.file.name} and also in its folder's name; rename one"
            raise ParameterError(parameter, stored, remedy)
        if derived is not None:
            problem = part_fault(derived, arrow_type)
            if problem:
                raise ParameterError(parameter, name, f"{problem} ({self.file.name})")
            arrow_type = derived.kind
        return _Column(name=name, stored=stored, derived=derived, kind=arrow_type)

    def _require_kind(self, column: _Column) -> None:
        """Raises ParameterError for a column of a type that no table of its use takes."""
        is_label = column.name in self.wanted.labels
        problem = ""
        if column.derived is not None:
            if not is_label:
                problem = number_fault(column.kind, column.name)
        elif column.stored in self._partition:
            if not is_label:
                problem = "is spelled by the folders, as text; use a table of categories"
        elif is_label:
            problem = category_fault(column.kind, column.name)
        elif self.reader.is_typed:
            problem = number_fault(column.kind, column.name)
            if problem and self.reader.where:
                problem += f" ({self.file.name})"
        if problem:
            raise ParameterError("column", column.name, problem)

    def kinds(self) -> dict[str, pa.DataType]:
        """Types of the other columns."""
        others = self._columns[len(self.wanted.columns) :]
        return {column.name: column.kind for column in others}

    def batches(
        self,
        *,
        first: int = 0,
        row: int = 0,
        selection: Selection | None = None,
    ) -> Iterator[Batch]:
        """Batches of the wanted columns.

        Arguments:
            first, row: numbers of the first row, in the run and in the file.
            selection: the rows that may become reports; None for all.
        """
        row_count = 0
        for stored in self.reader.batches(self._uses()):
            selected = None
            unasked = 0
            if selection is not None:
                selected = selection.mask(self.file, row + row_count, stored.num_rows)
                unasked = selection.unasked(self.file, row + row_count, stored.num_rows)
            arrays = [self._array(stored, column, row_count) for column in self._columns]
            yield Batch(
                values=pa.RecordBatch.from_arrays(arrays, names=self.wanted.names),
                file=self.file,
                row=row + row_count,
                first=first + row_count,
                markers=self.reader.markers,
                selected=selected,
                unasked=unasked,
                where=self.reader.where,
                done=self.reader.done(),
            )
            row_count += stored.num_rows
        if self.wanted.reports_missing and self.reader.blank_end:
            remedy = "ends in an empty line, which would count as a missing value; remove that line"
            raise FileFormatError(f"{self.reader.name}: {remedy}")

    def _uses(self) -> Uses:
        """The columns of the file that make the wanted ones."""
        uses: dict[str, Role] = {}
        for column in self._columns:
            if column.stored in self._partition:
                continue
            role: Role = "text"
            if column.name in self.wanted.labels and column.derived is None:
                role = "label"
            elif column.name in self.wanted.columns and column.derived is None:
                role = "number"
            if uses.get(column.stored, "text") == "text":
                uses[column.stored] = role
        return uses

    def _array(self, batch: pa.RecordBatch, column: _Column, before: int) -> pa.Array:
        """The values of a wanted column in a batch, before which so many rows of the file stand."""
        if column.stored in self._partition:
            folder_value = pa.scalar(self._partition[column.stored], pa.string())
            array: pa.Array = pa.repeat(folder_value, batch.num_rows)
        else:
            array = batch.column(column.stored)
        if column.derived is None:
            return array
        return derive(
            array,
            column.derived,
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
        if len(self.files) == 1:
            return self.files[0].path
        return f"{len(self.files)} files"

    @property
    def shift(self) -> float | None:
        """As in `Selection`; None without one."""
        return None if self.selection is None else self.selection.shift

    @contextmanager
    def open(
        self,
        file: SourceFile,
        *,
        groups: tuple[int, int] | None = None,
    ) -> Iterator[OpenFile]:
        """Opens one of the files, or row groups of it; raises ParameterError unless it has the
        columns.
        """
        with open_columns(file.path, dialect=self.dialect, groups=groups) as reader:
            if len(self.files) > 1:
                reader.where = f" of {file.name}"
            yield OpenFile(file=file, reader=reader, wanted=self.wanted)

    def batches(self) -> Iterator[Batch]:
        """The rows of all files in turn."""
        row_count = 0
        for index, source_file in enumerate(self.files):
            with self.open(source_file) as opened:
                for record_batch in opened.batches(first=row_count, selection=self.selection):
                    yield replace(
                        record_batch,
                        done=(index + record_batch.done) / len(self.files),
                    )
                    row_count = record_batch.first + record_batch.rows


def read_values(path: SourcePath, *, column: str) -> Floats:
    """All present values of one column, in memory: for priors and small data, not for privatizing.

    Arguments:
        path: a source, as of `privatize`.
        column: integers, floats or decimals, or a part of dates or times; missing values are left
            out.

    Returns: (n,) floats, data units, in the order of the file.

    Raises:
        ParameterError: no such column, not numbers, or no values in it.

    Example:
        >>> with mz.datasets.flights() as path:
        ...     values = mz.collect.read_values(path, column="air_time")
        >>> values.size
        327346
    """
    source = Source(
        files=tuple(find_files(path)),
        wanted=Wanted(columns=(column,)),
    )
    pieces = [numbers(record_batch.values.column(0))[0] for record_batch in source.batches()]
    values = np.concatenate([np.empty(0), *pieces])
    if values.size == 0:
        raise ParameterError(
            "column",
            column,
            f"is empty in {source.name}; name another",
        )
    return values
