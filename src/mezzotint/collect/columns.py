"""Columns of files as a stream of Arrow record batches: each complete, in order, or an error that
names file and row.

Arrow parses; what it must not be trusted with is done here and in `lexer`: records are counted
before and after it, columns are named by their position, types are stated and never guessed from a
first block, checksums are verified, and rows read are compared with the rows that a file says it
has.
"""

from __future__ import annotations

import gzip
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Literal, NoReturn, TypeAlias, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mezzotint.collect.listing import is_remote, open_binary
from mezzotint.core.errors import (
    FileFormatError,
    MezzotintError,
    ParameterError,
)

compute: Any = pc  # its functions are made at import time, unseen by type checkers


BATCH_ROWS = 1 << 18
"""Rows in memory at a time."""


BLOCK_BYTES = 1 << 22
"""Bytes of text that are parsed at a time."""


METADATA_KEY = b"mezzotint"


COMMENT = b"# mezzotint: "
"""How a CSV of reports begins: this, then JSON, on the first line."""


MARKERS = (
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
)
"""Cells of CSV that mean a missing value, as for pandas; an empty cell is missing, too."""


@final
@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How text files spell what they hold.

    Arguments:
        delimiter: one character between the cells of CSV; None for the most frequent of comma, tab,
            semicolon and bar in the header.
        missing_values: cells of CSV that mean a missing value, beside the empty one; None for
            `MARKERS`.
        decimal: the decimal mark of numbers in CSV: "." or ",".
        backslash_is_text: a backslash before a quote inside quotes is a character like any other.
            Without it such cells are refused, because another dialect reads them differently.

    Raises:
        ParameterError: a mark of another length or kind.
    """

    # Fields are keys of the records of folders of a run, which refuse a run with others.
    delimiter: str | None = None
    missing_values: tuple[str, ...] | None = None
    decimal: str = "."
    backslash_is_text: bool = False

    def __post_init__(self) -> None:
        mark = self.delimiter
        is_usable = mark is None or (len(mark) == 1 and mark.isascii() and mark not in '"\r\n\0')
        if not is_usable:
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
"""Words of a library before it quotes anything: values stand behind a colon, between quotes, or are
digits.
"""


QUOTING = ("Could not convert", "Failed to parse", "Unexpected")
"""How reasons begin that hold a value without any mark."""


def reason_of(error: BaseException) -> str:
    """The reason that a library gives, without what it may quote of the file: its values are
    private.
    """
    first_words = REASON.match(str(error))
    if first_words is None or first_words[0].startswith(QUOTING):
        return type(error).__name__
    return first_words[0][:120]


@contextmanager
def reading(name: str, columns: Sequence[str] = (), row: int = 0) -> Generator[None]:
    """Turn what the reading libraries and the operating system raise into an error that names the
    file.

    Raises:
        FileFormatError: naming file, columns and the last good row, with the remedy of a reader.
    """
    where = f"{name}:"
    if columns:
        where = f"{name}: columns {', '.join(columns)}:"
    try:
        yield
    except MezzotintError:
        raise
    except (
        pa.ArrowNotImplementedError,
        NotImplementedError,
    ) as error:
        remedy = "it holds a type or an encoding that cannot be read; write it without that"
        raise FileFormatError(f"{where} {remedy} ({reason_of(error)})") from None
    except OSError as error:
        if error.errno is None or isinstance(error, gzip.BadGzipFile):
            raise _damaged(where, row, error) from None
        reason = error.strerror or reason_of(error)
        if is_remote(name):
            remedy = "the store did not answer; try again later"
            raise StoreError(error.errno, f"{name}: {remedy} ({reason[:200]})") from None
        raise FileFormatError(f"{name}: cannot be read ({reason}); make it readable") from None
    except (
        pa.ArrowException,
        EOFError,
        zlib.error,
        ValueError,
        IndexError,
        KeyError,
    ) as error:
        raise _damaged(where, row, error) from None


class StoreError(OSError):
    """An object store did not answer."""


def _damaged(where: str, row: int, error: BaseException) -> FileFormatError:
    message = f"{where} damaged or cut"
    if row:
        message += f" after data row {row:,}"
    return FileFormatError(f"{message} ({reason_of(error)}); fetch or write it again")


Role = Literal["number", "label", "text"]
"""What is wanted of a column: numbers, names of categories, or its values as they are."""

Uses: TypeAlias = Mapping[str, Role]
"""The columns that are wanted of a file, in order."""


class ColumnReader(ABC):
    """An open file of columns: its name for messages, their names, and the JSON text that a reports
    file carries.

    `rows` counts what has been read; `markers` are the cells that mean a missing value, none where
    values have types. `blank_end` says whether a file of one column of text ends in an empty line,
    which then is a row. `is_typed` says whether the file knows types; of text each cell is parsed.
    `where` are the words that name the file in messages about rows; none where it is the only one.
    """

    blank_end = False
    where = ""
    is_typed: ClassVar[bool] = True

    def __init__(self, name: str, schema: pa.Schema) -> None:
        described = (schema.metadata or {}).get(METADATA_KEY)
        self.name = name
        self.names = list(schema.names)
        self._schema = schema
        self.description: str | None = None
        if described is not None:
            self.description = described.decode("utf-8", errors="replace")
        self.markers: frozenset[str] = frozenset()
        self.rows = 0

    def batches(self, uses: Uses) -> Iterator[pa.RecordBatch]:
        """Batches of the wanted columns, at most `BATCH_ROWS` rows each.

        Raises:
            ParameterError: a cell of a numeric column that is no number.
            FileFormatError: a damaged file, or one that has other rows than it says.
        """
        stream = self._batches(uses)
        while True:
            with reading(self.name, list(uses), self.rows):
                record_batch = next(stream, None)
            if record_batch is None:
                return
            for begin in range(0, record_batch.num_rows, BATCH_ROWS):
                row_slice = record_batch.slice(begin, BATCH_ROWS)
                self.rows += row_slice.num_rows
                yield row_slice

    @abstractmethod
    def _batches(self, uses: Uses) -> Iterator[pa.RecordBatch]: ...

    def kind_of(self, column: str) -> pa.DataType:
        """Type of a column that `batches` copies."""
        return self._schema.field(self.names.index(column)).type

    def row_words(self, index: int) -> str:
        """The words for a row of the batch that is being read, in messages."""
        return f"data row {self.rows + index + 1}{self.where}"

    def done(self) -> float:
        """Fraction read so far, 0 when the length is unknown."""
        return 0.0

    def require(self, column: str, *, parameter: str = "column") -> None:
        """Raises ParameterError, listing the columns, unless there is exactly one of that name."""
        count = self.names.count(column)
        if count == 1:
            return
        listed = ", ".join(self.names[:20])
        if len(self.names) > 20:
            listed += ", ..."
        problem = "stands more than once in the header, rename it"
        if count == 0:
            problem = "no such column"
        raise ParameterError(parameter, column, f"{problem}; {self.name} has: {listed}")

    def _require_rows(self, rows: int, expected: int) -> None:
        if rows != expected:
            message = (
                f"{rows:,} rows were read, the file says {expected:,}; fetch or write it again"
            )
            raise FileFormatError(f"{self.name}: {message}")


# Files with types ---------------------------------------------------------------------------------


@final
class ParquetReader(ColumnReader):
    """A Parquet file, read row group by row group: those from a first number up to, not including,
    a second.
    """

    def __init__(
        self,
        *,
        name: str,
        file: pq.ParquetFile,
        groups: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(name, file.schema_arrow)
        self._file = file
        first, stop = groups or (0, file.metadata.num_row_groups)
        self._groups = range(first, stop)

    def _batches(self, uses: Uses) -> Iterator[pa.RecordBatch]:
        metadata = self._file.metadata
        names = list(uses)
        expected = sum(metadata.row_group(group).num_rows for group in self._groups)
        row_count = 0
        for record_batch in self._file.iter_batches(
            BATCH_ROWS, row_groups=list(self._groups), columns=names
        ):
            row_count += record_batch.num_rows
            yield record_batch.select(names)
        self._require_rows(row_count, expected)

    def done(self) -> float:
        return self.rows / max(1, self._file.metadata.num_rows)


def whole_parquet(path: str) -> pq.ParquetFile:
    """An open Parquet file, whose pages are checked by their checksums where they have any.

    Raises:
        FileFormatError: it is not complete, or has a column of a type that Arrow cannot read.
    """
    with reading(path):
        source = open_binary(path) if is_remote(path) else path
        options: dict[str, Any] = {
            "buffer_size": 1 << 20,
            "pre_buffer": False,
        }
        return pq.ParquetFile(source, page_checksum_verification=True, **options)


@final
class ArrowReader(ColumnReader):
    """An Arrow IPC file, or a stream in a file."""

    def __init__(self, *, name: str, source: Any) -> None:
        self._source = source
        with reading(name):
            self._random_access = source.read(6) == b"ARROW1"
            super().__init__(name, self._open().schema)

    def _open(self, **options: Any) -> Any:
        self._source.seek(0)
        open_any: Any = pa.ipc.open_file if self._random_access else pa.ipc.open_stream
        return open_any(self._source, options=pa.ipc.IpcReadOptions(**options))

    def _batches(self, uses: Uses) -> Iterator[pa.RecordBatch]:
        indices = {self.names.index(column) for column in uses}
        batches: Any = self._open(included_fields=sorted(indices))
        if self._random_access:
            batches = map(batches.get_batch, range(batches.num_record_batches))
        for record_batch in batches:
            record_batch.validate(full=True)
            yield record_batch.select(list(uses))


@final
class OrcReader(ColumnReader):
    """An ORC file, read stripe by stripe."""

    def __init__(self, *, name: str, source: Any) -> None:
        from pyarrow import orc

        with reading(name):
            self._file = orc.ORCFile(source)
            super().__init__(name, self._file.schema)

    def _batches(self, uses: Uses) -> Iterator[pa.RecordBatch]:
        row_count = 0
        for stripe in range(self._file.nstripes):
            record_batch = self._file.read_stripe(stripe, columns=list(uses))
            row_count += record_batch.num_rows
            yield record_batch.select(list(uses))
        self._require_rows(row_count, self._file.nrows)

    def done(self) -> float:
        return self.rows / max(1, self._file.nrows)


# Text ---------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file of text.

    Arguments:
        name: for messages.
        stream: of its text.
        raw: the file beneath it, of `size` bytes; None for standard input.
    """

    name: str
    stream: BinaryIO
    raw: BinaryIO | None = None
    size: int = 0


class TextReader(ColumnReader):
    """Base of readers of text, whose columns have no types."""

    is_typed = False

    def __init__(
        self,
        file: TextFile,
        names: Sequence[str],
        description: bytes | None,
    ) -> None:
        metadata = None
        if description is not None:
            metadata = {METADATA_KEY: description}
        fields = [pa.field(column, pa.string()) for column in names]
        super().__init__(file.name, pa.schema(fields, metadata=metadata))
        self._file = file

    def done(self) -> float:
        if self._file.raw is None or not self._file.size:
            return 0.0
        return self._file.raw.tell() / self._file.size


@final
class CsvReader(TextReader):
    """A CSV stream with a header; other columns than the numeric ones pass through as text,
    unchanged.

    Arguments:
        prefer: the delimiter that the file's name stands for; "" for none.
    """

    def __init__(
        self,
        file: TextFile,
        *,
        dialect: Dialect = STANDARD,
        prefer: str = "",
    ) -> None:
        from mezzotint.collect.lexer import (
            Records,
            read_header,
        )  # heavy: numba

        with reading(file.name):
            header = read_header(
                file.stream,
                name=file.name,
                comment=COMMENT,
                delimiter=dialect.delimiter,
                prefer=prefer,
            )
        super().__init__(file, header.names, header.comment)
        self._decimal = dialect.decimal
        self.markers = frozenset(dialect.markers)
        self._nulls = ["", *dialect.markers]
        self._parsing = pacsv.ParseOptions(
            delimiter=header.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(header.names) > 1,
        )
        is_ours = header.comment is not None  # whose cells double quotes
        self._records = Records(
            file.stream,
            header,
            name=file.name,
            backslash_is_text=dialect.backslash_is_text or is_ours,
            block_bytes=BLOCK_BYTES,
        )

    def _batches(self, uses: Uses) -> Iterator[pa.RecordBatch]:
        for block, records in self._records.blocks():
            if not records:
                continue
            try:
                arrow_table = self._parse(block, uses, pa.float64(), pa.string())
            except pa.ArrowInvalid:
                # Some cell is no number, or no text: read them as bytes, and name the first one at
                # fault.
                raw_cells = self._parse(block, uses, pa.binary(), pa.binary())
                arrow_table = self._convert(raw_cells, uses)
            self._require_rows(self.rows + arrow_table.num_rows, self.rows + records)
            self.blank_end = self._records.blank_end
            yield from arrow_table.combine_chunks().to_batches()

    def _parse(
        self,
        block: bytes,
        uses: Uses,
        number: pa.DataType,
        text: pa.DataType,
    ) -> pa.Table:
        """The wanted columns of a block of complete records, which the parser knows by their
        positions.
        """
        labels = [str(self.names.index(column)) for column in uses]
        type_of_role = {"number": number}
        types = [type_of_role.get(role, text) for role in uses.values()]
        arrow_table = pacsv.read_csv(
            pa.BufferReader(block),
            read_options=pacsv.ReadOptions(
                column_names=[str(index) for index in range(len(self.names))],
                use_threads=False,
                block_size=len(block) + 1,
            ),
            parse_options=self._parsing,
            convert_options=pacsv.ConvertOptions(
                column_types=dict(zip(labels, types, strict=True)),
                include_columns=labels,
                null_values=self._nulls,
                strings_can_be_null=False,
                decimal_point=self._decimal,
            ),
        )
        return arrow_table.rename_columns(list(uses))

    def _convert(self, table: pa.Table, uses: Uses) -> pa.Table:
        """The columns of bytes as numbers and text, cell by cell."""
        columns: dict[str, pa.Array] = {}
        for column, role in uses.items():
            columns[column] = self._text(table.column(column).combine_chunks(), column)
            if role == "number":
                columns[column] = self._numbers(columns[column], column)
        return pa.table(columns)

    def _text(self, cells: pa.Array, column: str) -> pa.Array:
        """Cells of bytes as text; FileFormatError names the first row that is not UTF-8."""
        try:
            return cells.cast(pa.string())
        except pa.ArrowInvalid:
            row_number = self.rows + first_misfit(cells, pa.string()) + 1
            remedy = "is not UTF-8; convert the file, as with iconv -f LATIN1 -t UTF-8"
            message = f"column {column}, data row {row_number:,} {remedy}"
            raise FileFormatError(f"{self.name}: {message}") from None

    def _numbers(self, text: pa.Array, column: str) -> pa.Array:
        """Cells as float64; markers and blank cells are null."""
        cells = without_markers(text, self._nulls)
        spelled = cells
        if self._decimal == ",":
            # A point would be a separator of thousands, which no cell may have.
            cells = compute.replace_substring(cells, ".", "?")
            cells = compute.replace_substring(cells, ",", ".")
        try:
            return cells.cast(pa.float64())
        except pa.ArrowInvalid:
            index = first_misfit(cells, pa.float64())
            self._refuse_cell(spelled[index].as_py(), index, column)

    def _refuse_cell(self, cell: str, index: int, column: str) -> NoReturn:
        """Raises ParameterError for a cell that is not a number; never with the cell, which is
        private.
        """
        problem = "holds text, not a number"
        if cell in MARKERS:
            problem = "holds a mark of a missing value that --missing-values does not list"
        elif DECIMAL_COMMA.fullmatch(cell) and self._decimal == ".":
            problem = (
                "holds a number with a comma; where commas are decimal points, say so with "
                "--decimal , and where they group thousands, take them out"
            )
        others = (
            ", ".join(column_name for column_name in self.names[:20] if column_name != column)
            or "none"
        )
        message = f"{self.row_words(index)} {problem}; other columns: {others}"
        raise ParameterError("column", column, message)


def without_markers(text: pa.Array, markers: Sequence[str]) -> pa.Array:
    """Trimmed cells, null where they mean a missing value; without markers the text as it is."""
    if not markers:
        return text
    trimmed = compute.utf8_trim_whitespace(text)
    is_missing = compute.is_in(trimmed, pa.array(["", *markers], pa.string()))
    return compute.if_else(is_missing, pa.scalar(None, pa.string()), trimmed)


def first_misfit(cells: pa.Array, kind: pa.DataType) -> int:
    """Index of the first cell that cannot be cast to a type; there must be one."""
    distinct = cells.dictionary_encode()
    for code in range(len(distinct.dictionary)):
        try:
            distinct.dictionary.slice(code, 1).cast(kind)
        except pa.ArrowInvalid:
            return compute.index(distinct.indices, pa.scalar(code, pa.int32())).as_py()
    raise AssertionError("all cells can be cast one by one, not together")
