"""Columns of files as a stream of Arrow record batches: each complete, in order, or an error that names file and row.

Arrow parses; what it must not be trusted with is done here and in `lexer`: records are counted before and after it,
columns are named by their position, types are stated and never guessed from a first block, checksums are verified, and
rows read are compared with the rows that a file says it has.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from mezzotint.collect.dates import Derived, derive, parse_derived, part_fault
from mezzotint.collect.listing import (
    STREAM,
    STREAMS,
    AnyPath,
    FileKind,
    SourceFile,
    file_kind,
    is_file,
    is_remote,
    open_binary,
    stamp,
)
from mezzotint.collect.listing import find_files as find_files
from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError
from mezzotint.core.values import NOT_WHOLE, category_fault, number_fault
from mezzotint.core.values import arrow as arrow
from mezzotint.core.values import numbers as numbers
from mezzotint.core.values import plain as plain
from mezzotint.core.values import validity as validity

compute: Any = pc  # its functions are made at import time, unseen by type checkers

BATCH_ROWS = 1 << 18
"""Rows in memory at a time."""

BLOCK_BYTES = 1 << 22
"""Bytes of text that are parsed at a time."""

NAMES_BYTES = 1 << 19
"""Bytes of lines of JSON whose keys are the columns of a file."""

METADATA_KEY = b"mezzotint"
COMMENT = b"# mezzotint: "
"""How a CSV of reports begins: this, then JSON, on the first line."""

MARKERS = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""Cells of CSV that mean a missing value, as for pandas; an empty cell is missing, too."""


@final
@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How text files spell what they hold.

    Arguments:
        delimiter: one character between the cells of CSV; None for the most frequent of comma, tab, semicolon and bar
            in the header.
        missing_values: cells of CSV that mean a missing value, beside the empty one; None for `MARKERS`.
        decimal: the decimal mark of numbers in CSV: "." or ",".
        backslash_is_text: a backslash before a quote inside quotes is a character like any other. Without it such cells
            are refused, because another dialect reads them differently.

    Raises:
        ParameterError: a mark of another length or kind.
    """

    delimiter: str | None = None
    missing_values: tuple[str, ...] | None = None
    decimal: str = "."
    backslash_is_text: bool = False

    def __post_init__(self) -> None:
        mark = self.delimiter
        usable = mark is None or (len(mark) == 1 and mark.isascii() and mark not in '"\r\n\0')
        if not usable:
            remedy = (
                "is one ASCII character, not a quote or a line end; for a tab: $'\\t' or \"\\t\""
            )
            raise ParameterError("delimiter", mark, remedy)
        if self.decimal not in (".", ",") or self.decimal == mark:
            remedy = 'is "." or ",", and not the delimiter'
            raise ParameterError("decimal", self.decimal, remedy)

    @property
    def markers(self) -> tuple[str, ...]:
        """Cells that mean a missing value, beside the empty one."""
        return MARKERS if self.missing_values is None else self.missing_values


STANDARD = Dialect()
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
EXACT = 2**53
"""Floats of smaller magnitude hold every integer exactly."""


REASON = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)*(?= *(?:$|\n|[.:;,(]))")
"""Words of a library before it quotes anything: values stand behind a colon, between quotes, or are digits."""

QUOTING = ("Could not convert", "Failed to parse", "Unexpected")
"""How reasons begin that hold a value without any mark."""


def reason_of(error: BaseException) -> str:
    """The reason that a library gives, without what it may quote of the file: its values are private."""
    words = REASON.match(str(error))
    if words is None or words[0].startswith(QUOTING):
        return type(error).__name__
    return words[0][:120]


@contextmanager
def reading(name: str, columns: Sequence[str] = (), row: int | None = None) -> Generator[None]:
    """Turn what the reading libraries and the operating system raise into an error that names the file.

    Raises:
        FileFormatError: naming file, columns and the last good row, with the remedy of a reader.
    """
    where = f" columns {', '.join(columns)}:" if columns else ""
    after = "" if not row else f" after data row {row:,}"
    try:
        yield
    except MezzotintError:
        raise
    except (pa.ArrowNotImplementedError, NotImplementedError) as error:
        remedy = "it holds a type or an encoding that cannot be read; write it without that"
        raise FileFormatError(f"{name}:{where} {remedy} ({reason_of(error)})") from None
    except OSError as error:
        if error.errno is None or isinstance(error, gzip.BadGzipFile):
            raise _damaged(f"{name}:{where}", after, error) from None
        reason = error.strerror or reason_of(error)
        if is_remote(name):
            remedy = "the store did not answer; try again later"
            raise StoreError(error.errno, f"{name}: {remedy} ({reason[:200]})") from None
        raise FileFormatError(f"{name}: cannot be read ({reason}); make it readable") from None
    except (pa.ArrowException, EOFError, zlib.error, ValueError, IndexError, KeyError) as error:
        raise _damaged(f"{name}:{where}", after, error) from None


class StoreError(OSError):
    """An object store did not answer."""


def _damaged(where: str, after: str, error: BaseException) -> FileFormatError:
    reason = reason_of(error)
    return FileFormatError(f"{where} damaged or cut{after} ({reason}); fetch or write it again")


@final
@dataclass(frozen=True, kw_only=True)
class Uses:
    """The columns that are wanted of a file: numbers, then others as they are; `labels` are those that hold categories."""

    numeric: tuple[str, ...]
    keep: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """All of them, in order."""
        return [*self.numeric, *self.keep]


class ColumnReader(ABC):
    """An open file of columns: its name for messages, their names, and the JSON text that a reports file carries.

    `rows` counts what has been read; `markers` are the cells that mean a missing value, none where values have types.
    `blank_end` says whether a file of one column of text ends in an empty line, which then is a row.
    """

    blank_end = False

    def __init__(self, name: str, schema: pa.Schema) -> None:
        stored = (schema.metadata or {}).get(METADATA_KEY)
        self.name, self.names, self._schema = name, list(schema.names), schema
        self.description = None if stored is None else stored.decode("utf-8", errors="replace")
        self.markers: frozenset[str] = frozenset()
        self.rows = 0

    def batches(
        self,
        *,
        numeric: Sequence[str],
        keep: Sequence[str] = (),
        labels: Sequence[str] = (),
        groups: tuple[int, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the `numeric` columns, then of those of `keep`, at most `BATCH_ROWS` rows each.

        Arguments:
            labels: columns of `keep` that hold categories.
            groups: the row groups of a Parquet file from the first number up to, not including, the second.

        Raises:
            ParameterError: a numeric column that holds no numbers.
            FileFormatError: a damaged file, or one that has other rows than it says.
        """
        uses = Uses(numeric=tuple(numeric), keep=tuple(keep), labels=tuple(labels))
        for column in numeric:
            self.require_numbers(column)
        stream = self._batches(uses, groups)
        while True:
            with reading(self.name, uses.names, self.rows):
                batch = next(stream, None)
            if batch is None:
                return
            for begin in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(begin, BATCH_ROWS)
                self.rows += part.num_rows
                yield part

    @abstractmethod
    def _batches(self, uses: Uses, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]: ...

    def kind_of(self, column: str) -> pa.DataType:
        """Type of a column that `batches` copies."""
        return self._schema.field(self.names.index(column)).type

    def require_numbers(self, column: str) -> None:
        """Raises ParameterError unless the column holds numbers; booleans and dates are not taken for numbers."""
        fault = number_fault(self.kind_of(column), column)
        if fault:
            raise ParameterError("column", column, fault)

    def done(self) -> float:
        """Fraction read so far, 0 when the length is unknown."""
        return 0.0

    def require(self, column: str, *, parameter: str = "column") -> None:
        """Raises ParameterError, listing the columns, unless there is exactly one of that name."""
        count = self.names.count(column)
        if count == 1:
            return
        listed = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        wrong = "stands more than once in the header, rename it"
        if count == 0:
            wrong = "no such column"
        raise ParameterError(parameter, column, f"{wrong}; {self.name} has: {listed}")

    def _require_rows(self, rows: int, expected: int) -> None:
        if rows != expected:
            words = f"{rows:,} rows were read, the file says {expected:,}; fetch or write it again"
            raise FileFormatError(f"{self.name}: {words}")


# Files with types ------------------------------------------------------------------------------------------------


@final
class ParquetReader(ColumnReader):
    """A Parquet file, read row group by row group."""

    def __init__(self, *, name: str, file: pq.ParquetFile) -> None:
        super().__init__(name, file.schema_arrow)
        self._file = file

    def _batches(self, uses: Uses, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        metadata = self._file.metadata
        chosen = list(range(metadata.num_row_groups)) if groups is None else list(range(*groups))
        expected, rows = sum(metadata.row_group(i).num_rows for i in chosen), 0
        names = uses.names
        for batch in self._file.iter_batches(BATCH_ROWS, row_groups=chosen, columns=names):
            rows += batch.num_rows
            yield batch.select(names)
        self._require_rows(rows, expected)

    def done(self) -> float:
        return self.rows / max(1, self._file.metadata.num_rows)


def whole_parquet(path: str) -> pq.ParquetFile:
    """An open Parquet file, whose pages are checked by their checksums where they have any.

    Raises:
        FileFormatError: it is not complete, or has a column of a type that Arrow cannot read.
    """
    with reading(path):
        source = open_binary(path) if is_remote(path) else path
        options: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
        return pq.ParquetFile(source, page_checksum_verification=True, **options)


@final
class ArrowReader(ColumnReader):
    """An Arrow IPC file, or a stream in a file."""

    def __init__(self, *, name: str, source: Any) -> None:
        self._source = source
        with reading(name):
            self._random_access = source.read(6) == b"ARROW1"
            super().__init__(name, self._open(None).schema)

    def _open(self, fields: list[int] | None) -> Any:
        self._source.seek(0)
        chosen = (
            pa.ipc.IpcReadOptions()
            if fields is None
            else pa.ipc.IpcReadOptions(included_fields=fields)
        )
        opened: Any = pa.ipc.open_file if self._random_access else pa.ipc.open_stream
        return opened(self._source, options=chosen)

    def _batches(self, uses: Uses, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        _refuse_groups(self.name, groups)
        names = uses.names
        reader = self._open(sorted(self.names.index(column) for column in set(names)))
        batches: Any = reader
        if self._random_access:
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        for batch in batches:
            batch.validate(full=True)
            yield batch.select(names)


@final
class OrcReader(ColumnReader):
    """An ORC file, read stripe by stripe."""

    def __init__(self, *, name: str, source: Any) -> None:
        from pyarrow import orc

        with reading(name):
            self._file = orc.ORCFile(source)
            super().__init__(name, self._file.schema)

    def _batches(self, uses: Uses, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        _refuse_groups(self.name, groups)
        names, rows = uses.names, 0
        for i in range(self._file.nstripes):
            batch = self._file.read_stripe(i, columns=names)
            rows += batch.num_rows
            yield batch.select(names)
        self._require_rows(rows, self._file.nrows)

    def done(self) -> float:
        return self.rows / max(1, self._file.nrows)


def _refuse_groups(name: str, groups: tuple[int, int] | None) -> None:
    if groups is not None:
        raise ParameterError(
            "groups", groups, f"{name} is not a Parquet file: it has no row groups"
        )


# Text ------------------------------------------------------------------------------------------------------------


@final
class CsvReader(ColumnReader):
    """A CSV stream with a header; other columns than the numeric ones pass through as text, unchanged.

    Arguments:
        stream: of text; `raw` is the file beneath it, of `size` bytes.
        prefer: the delimiter that its name stands for; "" for none.
    """

    def __init__(
        self,
        *,
        name: str,
        stream: BinaryIO,
        dialect: Dialect = STANDARD,
        prefer: str = "",
        raw: BinaryIO | None = None,
        size: int = 0,
    ) -> None:
        from mezzotint.collect.lexer import Records, read_header  # heavy: numba

        self._raw, self._size, self._dialect = raw, size, dialect
        with reading(name):
            header = read_header(
                stream, name=name, comment=COMMENT, delimiter=dialect.delimiter, prefer=prefer
            )
        described = None if header.comment is None else {METADATA_KEY: header.comment}
        fields = [pa.field(column, pa.string()) for column in header.names]
        super().__init__(name, pa.schema(fields, metadata=described))
        self.markers = frozenset(dialect.markers)
        self._parsing = pacsv.ParseOptions(
            delimiter=header.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(header.names) > 1,
        )
        self._records = Records(
            stream,
            header,
            name=name,
            backslash_is_text=dialect.backslash_is_text
            or described is not None,  # ours double quotes
            block_bytes=BLOCK_BYTES,
        )

    def require_numbers(self, column: str) -> None:
        del column  # of text: each cell is parsed

    def _batches(self, uses: Uses, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        _refuse_groups(self.name, groups)
        for block, records in self._records.blocks():
            if not records:
                continue
            try:
                table = self._parse(block, uses, pa.float64(), pa.string())
                columns = table.columns
            except pa.ArrowInvalid:
                # Some cell is no number, or no text: read them as bytes, and name the first one at fault.
                table = self._parse(block, uses, pa.binary(), pa.binary())
                columns = self._convert(table, uses)
            if table.num_rows != records:
                self._require_rows(self.rows + table.num_rows, self.rows + records)
            self.blank_end = self._records.blank_end
            yield from pa.table(columns, names=uses.names).combine_chunks().to_batches()

    def _parse(
        self,
        block: bytes,
        uses: Uses,
        number: pa.DataType,
        text: pa.DataType,
    ) -> pa.Table:
        """The wanted columns of a block of complete records; columns are named by their position."""
        labels = [str(index) for index in range(len(self.names))]
        types = {str(self.names.index(column)): number for column in uses.numeric}
        types |= {str(self.names.index(column)): text for column in uses.keep}
        return pacsv.read_csv(
            pa.BufferReader(block),
            read_options=pacsv.ReadOptions(
                column_names=labels, use_threads=False, block_size=len(block) + 1
            ),
            parse_options=self._parsing,
            convert_options=pacsv.ConvertOptions(
                column_types=types,
                include_columns=[str(self.names.index(column)) for column in uses.names],
                null_values=["", *self._dialect.markers],
                strings_can_be_null=False,
                decimal_point=self._dialect.decimal,
            ),
        )

    def _convert(self, table: pa.Table, uses: Uses) -> list[pa.Array]:
        """The columns of bytes as numbers and text, cell by cell."""
        columns: list[pa.Array] = []
        for column, cells in zip(uses.names, table.columns, strict=True):
            text = self._text(cells.combine_chunks(), column)
            number = len(columns) < len(uses.numeric)
            columns.append(self._numbers(text, column) if number else text)
        return columns

    def _text(self, array: pa.Array, column: str) -> pa.Array:
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            for index, cell in enumerate(array.to_pylist()):
                try:
                    cell.decode("utf-8")
                except UnicodeDecodeError:
                    remedy = "is not UTF-8; convert the file, as with iconv -f LATIN1 -t UTF-8"
                    row = self.rows + index + 1
                    raise FileFormatError(
                        f"{self.name}: column {column}, data row {row:,} {remedy}"
                    ) from None
            raise

    def _numbers(self, text: pa.Array, column: str) -> pa.Array:
        """Cells as float64; markers and blank cells are null."""
        trimmed = compute.utf8_trim_whitespace(text)
        markers = pa.array(["", *self._dialect.markers], pa.string())
        cells = compute.if_else(
            compute.is_in(trimmed, markers), pa.scalar(None, pa.string()), trimmed
        )
        if self._dialect.decimal == ",":
            # A point would be a separator of thousands, which no cell may have.
            cells = compute.replace_substring(cells, ".", "?")
            cells = compute.replace_substring(cells, ",", ".")
        try:
            return cells.cast(pa.float64())
        except pa.ArrowInvalid:
            self._refuse_cell(text, cells, column)

    def _refuse_cell(self, text: pa.Array, cells: pa.Array, column: str) -> NoReturn:
        distinct = cells.dictionary_encode()
        for index, cell in enumerate(distinct.dictionary):
            try:
                cell.cast(pa.float64())
            except pa.ArrowInvalid:
                first = compute.index(distinct.indices, pa.scalar(index, pa.int32())).as_py()
                others = ", ".join(name for name in self.names[:20] if name != column) or "none"
                fault = self._number_fault(text[first].as_py().strip())
                words = f"data row {self.rows + first + 1} {fault}; other columns: {others}"
                raise ParameterError("column", column, words) from None
        raise FileFormatError(f"{self.name}: column {column} cannot be read as numbers")

    def _number_fault(self, cell: str) -> str:
        """The words for a cell that is not a number; never the cell, which is private."""
        if cell in MARKERS:
            return "holds a mark of a missing value that --missing-values does not list"
        if DECIMAL_COMMA.fullmatch(cell) and self._dialect.decimal == ".":
            return "holds a number with a decimal comma; say so with --decimal ,"
        return "holds text, not a number"

    def done(self) -> float:
        return self._raw.tell() / self._size if self._raw is not None and self._size > 0 else 0.0


class _Number(str):
    """A number of JSON, as it is spelled."""

    __slots__ = ()


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


@final
class JsonReader(ColumnReader):
    """A file of one JSON object per line. Numbers to privatize are numbers; all other values are read as text.

    The columns are the keys of the first lines (`NAMES_BYTES`).
    """

    def __init__(
        self, *, name: str, stream: BinaryIO, raw: BinaryIO | None = None, size: int = 0
    ) -> None:
        self.name, self.rows = name, 0
        self._stream, self._raw, self._size = stream, raw, size
        with reading(name):
            self._first = self._block(b"")
            head = self._first[: self._first.rfind(b"\n", 0, NAMES_BYTES) + 1] or self._first
            try:
                names = list(pajson.read_json(pa.BufferReader(head)).schema.names)
            except pa.ArrowInvalid:
                names = list(dict.fromkeys(key for row in self._objects(head) for key in row))
        super().__init__(name, pa.schema([pa.field(key, pa.string()) for key in names]))

    def require_numbers(self, column: str) -> None:
        del column  # each value is looked at

    def _block(self, pending: bytes) -> bytes:
        """The next bytes up to and with a line end: no string of JSON holds one. Empty at the end of the file."""
        pieces = [pending]
        while data := self._stream.read(BLOCK_BYTES):
            pieces.append(data)
            if b"\n" in data:
                pieces.append(self._stream.readline())
                break
        return b"".join(pieces)

    def _batches(self, uses: Uses, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        from mezzotint.collect.lexer import count_lines  # heavy: numba

        _refuse_groups(self.name, groups)
        fields = [pa.field(column, pa.float64()) for column in uses.numeric]
        fields += [pa.field(column, pa.string()) for column in uses.keep]
        schema, block = pa.schema(fields), self._first
        self._first = b""
        while block:
            lines = count_lines(np.frombuffer(block, dtype=np.uint8))
            table = self._parsed(block, schema)
            if lines and (table is None or table.num_rows != lines):
                table = self._by_line(block, schema, uses)
            if lines:
                assert table is not None, "read line by line"
                yield from table.combine_chunks().to_batches()
            block = self._block(b"")

    def _parsed(self, block: bytes, schema: pa.Schema) -> pa.Table | None:
        """The columns as Arrow reads them; None where it cannot, or they hold text that is not UTF-8."""
        try:
            table = pajson.read_json(
                pa.BufferReader(block),
                read_options=pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pajson.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore"
                ),
            )
            table.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return table

    def _by_line(self, block: bytes, schema: pa.Schema, uses: Uses) -> pa.Table:
        columns: dict[str, list[Any]] = {column: [] for column in schema.names}
        for index, row in enumerate(self._objects(block)):
            for column in uses.numeric:
                columns[column].append(self._number(row.get(column), column, index))
            for column in uses.keep:
                value = row.get(column)
                columns[column].append(self._text(value, column, index, column in uses.labels))
        return pa.table(columns, schema=schema)

    def _objects(self, block: bytes) -> Iterator[dict[str, Any]]:
        """The object of each line; raises FileFormatError for a line that holds none."""
        hooks: dict[str, Any] = {"parse_int": _Number, "parse_float": _Number}
        index = 0
        for line in block.split(b"\n"):
            if not line.strip():
                continue
            try:
                row = json.loads(line, object_pairs_hook=_distinct, parse_constant=_Number, **hooks)
            except (ValueError, RecursionError) as error:
                raise self._fault(index, f"is not JSON in UTF-8 ({reason_of(error)})") from None
            if not isinstance(row, dict):
                raise self._fault(index, "is not a JSON object")
            yield row
            index += 1

    def _number(self, value: Any, column: str, index: int) -> float | None:
        if value is None:
            return None
        if not isinstance(value, _Number):
            raise self._refused(column, index, f"holds {_kind(value)}, not a number")
        return float(value)

    def _text(self, value: Any, column: str, index: int, label: bool) -> str | None:
        if value is None or isinstance(value, bool):
            return {None: None, True: "true", False: "false"}[value]
        if isinstance(value, dict | list):
            raise self._refused(column, index, f"holds {_kind(value)}, not text")
        if label and isinstance(value, _Number):
            return self._digits(value, column, index)
        return str(value)

    def _digits(self, value: str, column: str, index: int) -> str | None:
        """The spelling of a number that names a category: its digits; NaN is missing."""
        number = float(value)
        if number != number:
            return None
        whole = math.isfinite(number) and number == int(number)
        if not whole or (abs(number) >= EXACT and not value.lstrip("-").isdigit()):
            raise self._refused(column, index, NOT_WHOLE)
        return value if value.lstrip("-").isdigit() else str(int(number))

    def _refused(self, column: str, index: int, words: str) -> ParameterError:
        return ParameterError("column", column, f"data row {self.rows + index + 1} {words}")

    def _fault(self, index: int, words: str) -> FileFormatError:
        return FileFormatError(f"{self.name}: data row {self.rows + index + 1:,} {words}")

    def done(self) -> float:
        return self._raw.tell() / self._size if self._raw is not None and self._size > 0 else 0.0


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    return {dict: "an object", list: "a list"}.get(type(value), "text")


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


# Data sets -------------------------------------------------------------------------------------------------------

BLOCK_ROWS = 1 << 20
"""Rows of a block at least, where its file has as many: neighbouring row groups are joined until they have them."""


@final
@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows that are privatized together: row groups of a Parquet file (first, one past the last), or a complete file.

    `index` is its place in the run; before it are `offset` rows of its file; `rows` is None where only reading tells.
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
            sizes = [
                opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)
            ]
        first = before = rows = 0
        for i, size in enumerate(sizes):
            rows += size
            if rows and (rows >= block_rows or i == len(sizes) - 1):
                groups = (first, i + 1)
                blocks.append(
                    Block(index=len(blocks), file=file, groups=groups, offset=before, rows=rows)
                )
                first, before, rows = i + 1, before + rows, 0
    return blocks


@final
class OpenFile:
    """An open file of a data set: its own columns, parts of its dates, and what the names of its folders make.

    Arguments:
        numeric: columns to privatize; `labels` are those of them that hold categories, not numbers.
        extra: column to read beside them, of the file or of its folders -> the parameter that names it.

    Raises:
        ParameterError: a column that is missing, stands twice, or is of a type that its use cannot take.
    """

    def __init__(
        self,
        *,
        file: SourceFile,
        reader: ColumnReader,
        numeric: Sequence[str],
        extra: Mapping[str, str],
        labels: Sequence[str] = (),
    ) -> None:
        self.reader, self.name = reader, file.name
        self._labels = list(labels)
        self._numeric, self._extra = list(numeric), list(extra)
        self._partition = dict(file.partition)
        self._derived: dict[str, Derived] = {}
        for column in self._numeric:
            self._require(column, "column")
            self._require_kind(column)
        for column, parameter in extra.items():
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
            remedy = f"is a column of {self.name} and also in its folder's name; rename one"
            raise ParameterError(parameter, stored, remedy)
        if derived is not None:
            fault = part_fault(derived, self._stored_kind(stored))
            if fault:
                raise ParameterError(parameter, column, f"{fault} ({self.name})")

    def _require_kind(self, column: str) -> None:
        if column in self._derived:
            return
        if column in self._partition:
            if column not in self._labels:
                remedy = "is spelled by the folders, as text; use a table of categories"
                raise ParameterError("column", column, remedy)
        elif column in self._labels:
            fault = category_fault(self.reader.kind_of(column), column)
            if fault:
                raise ParameterError("column", column, fault)
        else:
            self.reader.require_numbers(column)

    def _stored_kind(self, column: str) -> pa.DataType:
        return pa.string() if column in self._partition else self.reader.kind_of(column)

    def kinds(self) -> list[pa.DataType]:
        """Types of the extra columns."""
        kinds: list[pa.DataType] = []
        for column in self._extra:
            derived = self._derived.get(column)
            if derived is None:
                kinds.append(self._stored_kind(column))
            else:
                kinds.append(pa.string() if derived.part == "date" else pa.float64())
        return kinds

    def batches(self, groups: tuple[int, int] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of the columns to privatize, then of the extra ones."""
        names = [*self._numeric, *self._extra]
        stored = [name for name in names if name not in self._derived]
        stored += [derived.column for derived in self._derived.values()]
        stored = [name for name in dict.fromkeys(stored) if name not in self._partition]
        typed = [name for name in self._numeric if name in stored and name not in self._labels]
        others = [name for name in stored if name not in typed]
        rows = 0
        for batch in self.reader.batches(
            numeric=typed, keep=others, labels=self._labels, groups=groups
        ):
            arrays = [self._array(batch, name, rows) for name in names]
            rows += batch.num_rows
            yield pa.RecordBatch.from_arrays(arrays, names=names)

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
            row=lambda index: f"data row {before + index + 1} of {self.name}",
            markers=sorted(self.reader.markers),
        )


@contextmanager
def open_file(
    file: SourceFile,
    *,
    numeric: Sequence[str],
    extra: Mapping[str, str],
    labels: Sequence[str] = (),
    dialect: Dialect = STANDARD,
) -> Iterator[OpenFile]:
    """Opens one file of a data set; raises ParameterError unless it has the columns. See `OpenFile`."""
    with open_columns(file.path, dialect=dialect) as reader:
        yield OpenFile(file=file, reader=reader, numeric=numeric, extra=extra, labels=labels)


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
        parts = [numbers(batch.column(0))[0] for batch in reader.batches(numeric=[column])]
    values = np.concatenate(parts) if parts else np.empty(0)
    if values.size == 0:
        raise ParameterError("column", column, f"is empty in {os.fspath(path)}; name another")
    return values
