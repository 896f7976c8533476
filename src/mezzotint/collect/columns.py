"""The files that a source names, wherever these are, and their columns as a stream of Arrow record batches.

`pyarrow.dataset` reads Arrow IPC, ORC and JSON lines, not Parquet and CSV: it says neither how far it is nor in which
row a value is no number, reads no stream and no reports' first line, finds no delimiter, and imports pandas before the
first row. Nor does it find the files: it knows no `**`, reads a file twice that is reached under two names, makes a
number of a folder's `day=07`, and takes deleted files of a Delta table for live ones.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import re
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast, final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mezzotint.core import not_installed
from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError
from mezzotint.core.values import arrow as arrow
from mezzotint.core.values import number_fault
from mezzotint.core.values import numbers as numbers
from mezzotint.core.values import plain as plain
from mezzotint.core.values import validity as validity

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_PAGE = 1 << 20
"""Bytes requested from a store at a time."""


def is_remote(name: str) -> bool:
    """Whether a name is an address, as `s3://bucket/key`."""
    return "://" in name


def filesystem(name: str) -> tuple[AbstractFileSystem, str]:
    """The fsspec file system of an address, and the path in it; raises ParameterError for an unknown store."""
    try:
        import fsspec

        return fsspec.core.url_to_fs(name)
    except ImportError as error:
        library = (error.name or "fsspec").split(".")[
            0
        ]  # fsspec says in words which package of a store it lacks
        said = f"{not_installed(library, 'cloud')}, or the store's own package"
        raise ParameterError("source", name, said if error.name else f"{said} ({error})") from None
    except ValueError as error:
        raise ParameterError(
            "source", name, f"is not an address that fsspec knows ({error}); try s3://"
        ) from None


def is_file(name: str) -> bool:
    """Whether a file is there."""
    if not is_remote(name):
        return Path(name).is_file()
    files, path = filesystem(name)
    try:
        with _answering(name):
            return files.info(path)["type"] == "file"
    except FileNotFoundError:
        return False


def open_binary(name: str) -> BinaryIO:
    """A file for reading; of a store, page by page."""
    if not is_remote(name):
        return Path(name).open("rb")
    files, path = filesystem(name)
    with _answering(name):
        return cast(
            BinaryIO,
            io.BufferedReader(_Stored(name, files.open(path, "rb", block_size=_PAGE)), _PAGE),
        )


@contextmanager
def _answering(name: str) -> Generator[None]:
    """Turns what a store's library raises into an OSError: their errors share no base."""
    try:
        yield
    except (OSError, ParameterError):
        raise
    except Exception as error:
        raise OSError(
            f"{name}: the store did not answer ({type(error).__name__}); try again later"
        ) from error


@final
class _Stored(io.RawIOBase):
    """A file of a store that fails as files do, with an OSError."""

    def __init__(self, name: str, file: Any) -> None:
        self._name, self._file = name, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def readinto(self, buffer: memoryview) -> int:
        with _answering(self._name):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def stamp(name: str) -> tuple[int, int | str]:
    """Size, and what changes when a file is written anew: its time, or what the store calls its version."""
    if not is_remote(name):
        found = os.stat(name)
        return found.st_size, found.st_mtime_ns
    files, path = filesystem(name)
    files.invalidate_cache()  # what the store says now, not what it said before
    with _answering(name):
        known = files.info(path)
    return int(known["size"]), str(
        known.get("ETag") or known.get("etag") or known.get("LastModified") or ""
    )


def files_under(name: str) -> list[str]:
    """Addresses of the files that an address of a folder, or a glob, names in a store, sorted."""
    files, path = filesystem(name)
    if any(magic in path for magic in "*?["):
        found = [one for one in files.glob(path) if files.isfile(one)]
    else:
        refuse_tables_of_others(name, lambda inside: files.exists(f"{path.rstrip('/')}/{inside}"))
        if files.exists(f"{path.rstrip('/')}/_delta_log"):
            raise ParameterError(
                "source", name, "is a Delta table in a store; copy it to this machine to read it"
            )
        found = files.find(path)
    return sorted(str(files.unstrip_protocol(str(one))) for one in found)


# Tables of others ------------------------------------------------------------------------------------------------


def refuse_tables_of_others(name: str, there: Callable[[str], bool]) -> None:
    """Raises ParameterError for a folder that also holds deleted rows; `there` says whether it has a path inside."""
    for mark, kind in ((".hoodie", "a Hudi"), ("metadata/version-hint.text", "an Iceberg")):
        if there(mark):
            remedy = f"is {kind} table, whose folder also holds rows that were deleted; export it to Parquet first"
            raise ParameterError("source", name, remedy)


def local_table(folder: str) -> list[str] | None:
    """The live files of a Delta table in a local folder, sorted; None where the folder is none.

    Raises:
        ParameterError: an Iceberg or Hudi table; a Delta table with features that change what its files mean.
        FileFormatError: a Delta table that cannot be read.
    """
    root = Path(folder)
    refuse_tables_of_others(folder, lambda inside: (root / inside).exists())
    if any(root.glob("metadata/*.metadata.json")):
        refuse_tables_of_others(folder, lambda inside: "version-hint" in inside)
    if not (root / "_delta_log").is_dir():
        return None
    try:
        import deltalake

        table = deltalake.DeltaTable(folder)
    except ImportError:
        remedy = f"is a Delta table, whose folder also holds deleted rows; {not_installed('deltalake', 'delta')}"
        raise ParameterError("source", folder, remedy) from None
    except Exception as error:  # the library's errors share no base
        raise FileFormatError(
            f"{folder}: a Delta table that cannot be read ({str(error)[:200]})"
        ) from None
    features = sorted(set(table.protocol().reader_features or []) - {"timestampNtz"})
    if features or table.protocol().min_reader_version not in (1, 3):
        remedy = f"is a Delta table with {', '.join(features) or 'column mapping'}, which this release does not read"
        raise ParameterError("source", folder, f"{remedy}; export it to Parquet first")
    return sorted(str(Path(one.removeprefix("file://"))) for one in table.file_uris())


compute: Any = pc  # its functions are made at import time, unseen by type checkers

FileKind = Literal["parquet", "csv", "csv.gz", "csv.zst", "arrow", "orc", "jsonl", "stream"]

_ENDINGS: dict[str, FileKind] = {
    "parquet": "parquet", "csv": "csv", "tsv": "csv", "csv.gz": "csv.gz", "tsv.gz": "csv.gz", "csv.zst": "csv.zst",
    "tsv.zst": "csv.zst", "arrow": "arrow", "feather": "arrow", "orc": "orc", "jsonl": "jsonl", "ndjson": "jsonl",
}  # fmt: skip

WRITTEN = ("parquet", "csv", "csv.gz")
"""Formats of reports."""

BATCH_ROWS = 1 << 18
"""Rows in memory at a time."""

METADATA_KEY = b"mezzotint"
COMMENT = b"# mezzotint: "
"""How a CSV of reports begins: this, then JSON, on the first line."""

_BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
_BAD_GZIP = "damaged or truncated gzip; compress it again"
_MAX_LINE = (
    1 << 28
)  # the first line may hold a table of 65536 levels, not a complete file without line ends


def file_kind(
    path: str | os.PathLike[str], *, parameter: str = "source", written: bool = False
) -> FileKind:
    """The format that a file name stands for, of reports to write if `written`; "-" is CSV on a standard stream.

    Raises:
        ParameterError: any other extension.
    """
    name, endings = os.fspath(path), WRITTEN if written else tuple(_ENDINGS)
    if name == "-":
        return "stream"
    for ending in endings:
        if name.lower().endswith(f".{ending}"):
            return _ENDINGS[ending]
    known = (
        "a .parquet, .csv or .csv.gz file"
        if written
        else f"a file whose name ends in one of {', '.join(endings)}"
    )
    raise ParameterError(parameter, name, f"name {known}, or - for CSV on a standard stream")


MARKERS = frozenset(
    ("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
     "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
)  # fmt: skip
"""Cells of CSV that mean a missing value, as for pandas; an empty cell is missing, too."""


class ColumnReader(ABC):
    """An open file of columns: its name for messages, their names, and the JSON text that a reports file carries."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        stored = (schema.metadata or {}).get(METADATA_KEY)
        self.name, self.names, self._schema = name, list(schema.names), schema
        self.markers: frozenset[str] = frozenset()
        self.description = None if stored is None else stored.decode("utf-8", errors="replace")

    @abstractmethod
    def batches(
        self,
        *,
        numeric: Sequence[str],
        keep: Sequence[str] = (),
        groups: tuple[int, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the `numeric` columns, then those of `keep`, at most `BATCH_ROWS` rows each where it can.

        `groups` confines a Parquet file to its row groups from the first number up to, not including, the second.
        """

    def kind_of(self, column: str) -> pa.DataType:
        """Type of a column that `batches` copies."""
        return self._schema.field(column).type

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
        found = self.names.count(column)
        if found != 1:
            listed = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
            wrong = (
                "no such column" if found == 0 else "stands more than once in the header, rename it"
            )
            raise ParameterError(parameter, column, f"{wrong}; {self.name} has: {listed}")


@final
class ParquetReader(ColumnReader):
    """A Parquet file, read row group by row group."""

    def __init__(self, *, name: str, file: pq.ParquetFile) -> None:
        super().__init__(name, file.schema_arrow)
        self._file, self._rows = file, 0

    def batches(
        self,
        *,
        numeric: Sequence[str],
        keep: Sequence[str] = (),
        groups: tuple[int, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        for column in numeric:
            self.require_numbers(column)
        try:
            chosen = None if groups is None else list(range(*groups))
            for batch in self._file.iter_batches(
                BATCH_ROWS, row_groups=chosen, columns=[*numeric, *keep]
            ):
                self._rows += batch.num_rows
                yield batch.select([*numeric, *keep])
        except pa.ArrowInvalid as error:
            raise FileFormatError(
                f"{self.name}: damaged Parquet ({_first_line(error)}); write it again"
            ) from None

    def done(self) -> float:
        return self._rows / max(1, self._file.metadata.num_rows)


@final
class DatasetReader(ColumnReader):
    """An Arrow IPC, ORC or JSON-lines file, as `pyarrow.dataset` reads it."""

    def __init__(self, *, name: str, kind: FileKind) -> None:
        from pyarrow import dataset

        files, path = filesystem(name) if is_remote(name) else (None, name)
        self._json = kind == "jsonl"
        try:
            formats = {"arrow": "ipc", "orc": "orc", "jsonl": "json"}
            self._open = partial(dataset.dataset, path, format=formats[kind], filesystem=files)
            self._file = self._open()
        except (pa.ArrowInvalid, OSError) as error:
            raise FileFormatError(
                f"{name}: not a complete {kind} file ({_first_line(error)})"
            ) from None
        super().__init__(name, self._file.schema)

    def batches(
        self,
        *,
        numeric: Sequence[str],
        keep: Sequence[str] = (),
        groups: tuple[int, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if groups is not None:
            raise ParameterError(
                "groups", groups, f"{self.name} is not a Parquet file and has no row groups"
            )
        found = self._file
        for column in numeric:
            kind = self.kind_of(column)
            if not (
                self._json and pa.types.is_null(kind)
            ):  # only missing values in the first block
                self.require_numbers(column)
        if self._json:  # types were guessed from the first block: whole numbers may end there
            fields = [
                pa.field(f.name, pa.float64()) if f.name in numeric else f for f in found.schema
            ]
            found = self._open(schema=pa.schema(fields))
        try:
            for batch in found.to_batches(
                columns=[*numeric, *keep], batch_size=BATCH_ROWS, use_threads=False
            ):
                for begin in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(begin, BATCH_ROWS)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FileFormatError(
                f"{self.name}: cannot be read any further ({_first_line(error)})"
            ) from None


@final
class CsvReader(ColumnReader):
    """A CSV stream with a header; other columns than the numeric one pass through as text, unchanged.

    Columns are separated by commas; where the header has none, by whichever of tab, semicolon and bar is most frequent.
    """

    def __init__(
        self, *, name: str, stream: BinaryIO, raw: BinaryIO | None = None, size: int = 0
    ) -> None:
        self.name, self._stream, self._raw, self._size = name, stream, raw, size
        line, description = self._line(), None
        if line.startswith(COMMENT):
            description = line[len(COMMENT) :]
            line = self._line()
        # A quoted name may hold line ends: the header lasts until its quotes balance.
        while line.count(b'"') % 2 and (more := self._line()):
            line += more
        self._delimiter = (
            "," if b"," in line else max("\t;|", key=lambda mark: line.count(mark.encode()))
        )
        try:
            names = next(csv.reader([line.decode("utf-8-sig")], delimiter=self._delimiter), [])
        except (UnicodeDecodeError, csv.Error):
            raise FileFormatError(
                f"{name}: the header is not UTF-8 CSV; is this a CSV file?"
            ) from None
        if not names:
            raise FileFormatError(
                f"{name}: is empty; a CSV file starts with a line of column names"
            )
        described = None if description is None else {METADATA_KEY: description}
        super().__init__(
            name, pa.schema([pa.field(one, pa.string()) for one in names], metadata=described)
        )
        self.markers = MARKERS

    def _line(self) -> bytes:
        try:
            line = self._stream.readline(_MAX_LINE)
        except _BROKEN_GZIP:
            raise FileFormatError(f"{self.name}: {_BAD_GZIP}") from None
        if len(line) >= _MAX_LINE:
            raise FileFormatError(f"{self.name}: its first line does not end; is this a CSV file?")
        return line

    def batches(
        self,
        *,
        numeric: Sequence[str],
        keep: Sequence[str] = (),
        groups: tuple[int, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if groups is not None:
            raise ParameterError("groups", groups, f"{self.name} is CSV and has no row groups")
        # Only the numeric columns are typed; types guessed from a first block would break on a later one.
        # `require` saw to it that the columns asked for stand once; any others get a name of their own.
        labels = [
            name if self.names.count(name) == 1 else f"{name}#{i}"
            for i, name in enumerate(self.names)
        ]
        types = {label: pa.float64() if label in numeric else pa.string() for label in labels}
        try:
            yield from pacsv.open_csv(
                self._stream,
                read_options=pacsv.ReadOptions(
                    column_names=labels, use_threads=False, block_size=1 << 22
                ),
                # In a file of one column an empty line is a missing value, not nothing.
                parse_options=pacsv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=len(labels) > 1,
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=types, include_columns=[*numeric, *keep], strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as error:
            if _first_line(error) != "Empty CSV file":  # a header without rows is an empty stream
                raise self._error(_first_line(error), numeric) from None
        except _BROKEN_GZIP:
            raise FileFormatError(f"{self.name}: {_BAD_GZIP}") from None

    def _error(self, text: str, columns: Sequence[str]) -> MezzotintError:
        if "CSV conversion error" not in text:
            return FileFormatError(f"{self.name}: not well-formed CSV ({text})")
        place = re.search(r"column #(\d+)", text)
        column = self.names[int(place[1])] if place and len(columns) > 1 else columns[0]
        row = re.search(r"Row #(\d+)", text)
        where = f"data row {row[1]}" if row else "a row"
        others = ", ".join(name for name in self.names[:20] if name != column) or "none"
        value = text.split("invalid value", 1)[-1].strip()
        return ParameterError(
            "column", column, f"{where} holds {value}, not a number; other columns: {others}"
        )

    def done(self) -> float:
        return self._raw.tell() / self._size if self._raw is not None and self._size > 0 else 0.0


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def whole_parquet(path: str) -> pq.ParquetFile:
    """An open Parquet file; raises FileFormatError unless it is complete."""
    source = open_binary(path) if is_remote(path) else path
    try:
        return pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise FileFormatError(
            f"{path}: not a complete Parquet file ({_first_line(error)})"
        ) from None


@contextmanager
def open_columns(path: str | os.PathLike[str]) -> Iterator[ColumnReader]:
    """Opens a file of columns by its extension, here or at an address, or "-"; closes it when the block ends.

    Raises:
        ParameterError: no such file, or an extension that says nothing.
        FileFormatError: the content is not what the extension says.

    Guarantees: memory stays constant in the number of rows.
    """
    kind, name = file_kind(path), os.fspath(path)
    if kind != "stream" and not is_file(name):
        raise ParameterError("source", name, "no such file; check the path")
    with ExitStack() as stack:
        if kind == "parquet":
            yield ParquetReader(name=name, file=stack.enter_context(whole_parquet(name)))
        elif kind == "stream":
            yield CsvReader(name="standard input", stream=sys.stdin.buffer, raw=None, size=0)
        elif kind in ("arrow", "orc", "jsonl"):
            yield DatasetReader(name=name, kind=kind)
        else:
            raw = stack.enter_context(open_binary(name))
            stream: Any = raw
            if kind == "csv.gz":
                stream = stack.enter_context(gzip.GzipFile(fileobj=raw))
            elif kind == "csv.zst":
                packed: Any = pa.CompressedInputStream(raw, "zstd")
                stream = stack.enter_context(io.BufferedReader(packed))
            yield CsvReader(name=name, stream=stream, raw=raw, size=stamp(name)[0])


# Sources -----------------------------------------------------------------------------------------------------

BLOCK_ROWS = 1 << 20
"""Rows of a block at least, where its file has as many: neighbouring row groups are joined until they have them."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How a folder spells a missing partition value."""

_MAGIC = frozenset("*?[")


@final
@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file of a data set.

    Arguments:
        path: where it is; "-" for standard input.
        name: the path within the data set, for messages and for a later run to recognise it.
        partition: (key, value) pairs that its folders spell (`day=7/`); None is a missing value.
    """

    path: str
    name: str
    partition: tuple[tuple[str, str | None], ...] = ()


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


def find_files(source: str | os.PathLike[str]) -> list[SourceFile]:
    """The files that a source names, in the order of their names; those that begin with "." or "_" are passed over.

    Arguments:
        source: a file, a folder (searched through all its folders; of a Delta table its live files), a glob (`**` for
            any folders), an address of either in a store (`s3://bucket/folder`), or "-".

    Raises:
        ParameterError: nothing there, files of several kinds, or one file reached under two names (its rows would be
            reported twice).
    """
    name = os.fspath(source)
    if name == "-" or is_file(name):
        file_kind(name)
        return [SourceFile(path=name, name=os.path.basename(name))]
    root = _fixed_part(name)
    found = files_under(name) if is_remote(name) else _local_files(name, root)
    files = [
        _source_file(path, root)
        for path in found
        if not _hidden(os.path.relpath(path, root or "."))
    ]
    if not files:
        place = "address" if is_remote(name) else "folder"
        raise ParameterError("source", name, f"names no files; check the {place} or the pattern")
    _check(files, name)
    return files


def _local_files(name: str, root: str) -> list[str]:
    if root == name:
        pattern = os.path.join(glob.escape(name), "**", "*")
    elif _MAGIC & set(name):
        pattern = name
    else:
        what = "file" if Path(name).suffix else "file or folder"
        raise ParameterError("source", name, f"no such {what}; check the path")
    live = local_table(name) if root == name else None
    return live or sorted(
        path for path in glob.glob(pattern, recursive=True) if Path(path).is_file()
    )


def _fixed_part(name: str) -> str:
    """A folder itself, or the folders of a pattern before its first wildcard."""
    if is_remote(name):
        parts = name.rstrip("/").split("/")
        return "/".join(
            parts[: next((i for i, part in enumerate(parts) if _MAGIC & set(part)), len(parts))]
        )
    if Path(name).is_dir():
        return name
    parts = Path(name).parts
    fixed = next((i for i, part in enumerate(parts) if _MAGIC & set(part)), len(parts) - 1)
    return os.path.join(*parts[:fixed]) if fixed else ""


def _hidden(relative: str) -> bool:
    parts = Path(relative).parts
    # A folder may spell a partition whose key begins with an underscore.
    return any(
        part[0] in "._" and not ("=" in part and i < len(parts) - 1) for i, part in enumerate(parts)
    )


def _source_file(path: str, root: str) -> SourceFile:
    relative = Path(os.path.relpath(path, root or "."))
    pairs = [part.split("=", 1) for part in relative.parts[:-1] if part.find("=") > 0]
    partition = tuple(
        (unquote(key), None if value == NO_VALUE else unquote(value)) for key, value in pairs
    )
    return SourceFile(path=path, name=relative.as_posix(), partition=partition)


def _check(files: Sequence[SourceFile], name: str) -> None:
    kinds: set[FileKind] = set()
    for file in files:
        try:
            kinds.add(file_kind(file.path))
        except ParameterError:
            remedy = f"{file.name} in it is not a file of columns; name a folder without it, or a pattern: *.parquet"
            raise ParameterError("source", name, remedy) from None
    if len(kinds) > 1:
        listed = ", ".join(sorted(kinds))
        remedy = (
            f"holds files of several kinds ({listed}); choose one with a pattern: DIR/**/*.parquet"
        )
        raise ParameterError("source", name, remedy)
    seen: dict[tuple[int, int], str] = {}
    for file in () if is_remote(name) else files:
        status = os.stat(file.path)
        other = seen.setdefault((status.st_dev, status.st_ino), file.name)
        if other != file.name:
            raise ParameterError(
                "source", name, f"{other} and {file.name} are one file; its rows would count twice"
            )


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
    """An open file of a data set: its own columns, and those that the names of its folders make.

    Arguments:
        numeric: columns to privatize; `labels` are those of them that hold categories, not numbers.
        extra: column to read beside them, of the file or of its folders -> the parameter that names it.
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
        self.reader = reader
        self._labels = list(labels)
        self._numeric, self._extra = list(numeric), list(extra)
        self._partition = dict(file.partition)
        for column in self._numeric:
            reader.require(column)
        for column, parameter in extra.items():
            if column not in self._partition:
                reader.require(column, parameter=parameter)
            elif column in reader.names:
                remedy = f"is a column of {file.name} and also in its folder's name; rename one"
                raise ParameterError(parameter, column, remedy)

    def kinds(self) -> list[pa.DataType]:
        """Types of the extra columns."""
        return [
            pa.string() if name in self._partition else self.reader.kind_of(name)
            for name in self._extra
        ]

    def batches(self, groups: tuple[int, int] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of the columns to privatize, then of the extra ones."""
        stored = [name for name in self._extra if name not in self._partition]
        names = [*self._numeric, *self._extra]
        typed = [name for name in self._numeric if name not in self._labels]
        for batch in self.reader.batches(
            numeric=typed, keep=[*self._labels, *stored], groups=groups
        ):
            if len(stored) == len(self._extra):
                yield batch.select(names)
                continue
            arrays = [
                batch.column(name)
                if name in batch.schema.names
                else pa.repeat(pa.scalar(self._partition[name], pa.string()), batch.num_rows)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


@contextmanager
def open_file(
    file: SourceFile,
    *,
    numeric: Sequence[str],
    extra: Mapping[str, str],
    labels: Sequence[str] = (),
) -> Iterator[OpenFile]:
    """Opens one file of a data set; raises ParameterError unless it has the columns. See `OpenFile`."""
    with open_columns(file.path) as reader:
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
