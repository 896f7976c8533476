"""Columns of files as a stream of Arrow record batches: each complete, in order, or an error that names file and row.

Arrow parses; what it must not be trusted with is done here and in `lexer`: records are counted before and after it,
columns are named by their position, types are stated and never guessed from a first block, checksums are verified, and
rows read are compared with the rows that a file says it has.
"""

from __future__ import annotations

import gzip
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mezzotint.collect.listing import (
    is_remote,
    open_binary,
)
from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError
from mezzotint.core.values import number_fault

compute: Any = pc  # its functions are made at import time, unseen by type checkers

BATCH_ROWS = 1 << 18
"""Rows in memory at a time."""

BLOCK_BYTES = 1 << 22
"""Bytes of text that are parsed at a time."""

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
    `member` is the file's name in a data set of several, for messages about rows; empty for a single file.
    """

    blank_end = False
    member = ""

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
                rows = batch.slice(begin, BATCH_ROWS)
                self.rows += rows.num_rows
                yield rows

    @abstractmethod
    def _batches(self, uses: Uses, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]: ...

    def kind_of(self, column: str) -> pa.DataType:
        """Type of a column that `batches` copies."""
        return self._schema.field(self.names.index(column)).type

    def require_numbers(self, column: str) -> None:
        """Raises ParameterError unless the column holds numbers; booleans and dates are not taken for numbers."""
        fault = number_fault(self.kind_of(column), column)
        if fault:
            where = f" ({self.member})" if self.member else ""
            raise ParameterError("column", column, f"{fault}{where}")

    def row_words(self, index: int) -> str:
        """The words for a row of the batch that is being read, in messages."""
        where = f" of {self.member}" if self.member else ""
        return f"data row {self.rows + index + 1}{where}"

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
        refuse_groups(self.name, groups)
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
        refuse_groups(self.name, groups)
        names, rows = uses.names, 0
        for i in range(self._file.nstripes):
            batch = self._file.read_stripe(i, columns=names)
            rows += batch.num_rows
            yield batch.select(names)
        self._require_rows(rows, self._file.nrows)

    def done(self) -> float:
        return self.rows / max(1, self._file.nrows)


def refuse_groups(name: str, groups: tuple[int, int] | None) -> None:
    """Raises ParameterError for row groups of a file that has none."""
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
        refuse_groups(self.name, groups)
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
            array = self._text(cells.combine_chunks(), column)
            if len(columns) < len(uses.numeric):
                array = self._numbers(array, column)
            columns.append(array)
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
                words = f"{self.row_words(first)} {fault}; other columns: {others}"
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
        return share_read(self._raw, self._size)


def share_read(raw: BinaryIO | None, size: int) -> float:
    """The share of a file of so many bytes that was read; 0 where its size is unknown."""
    return 0.0 if raw is None or size <= 0 else raw.tell() / size
