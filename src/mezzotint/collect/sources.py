"""Which files a source names - one file, a folder, or a glob - and the blocks of rows that they fall into.

Not `pyarrow.dataset`'s discovery: it knows no `**`, reads a file twice that is reached under two names, makes a number
of a folder's `day=07`, and takes deleted files of a Delta table for live ones.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final
from urllib.parse import unquote

import pyarrow as pa

from mezzotint.collect import columns
from mezzotint.collect.columns import ColumnReader, file_kind, open_columns, whole_parquet
from mezzotint.core.errors import ParameterError

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
    """Rows that are privatized together: some row groups of a Parquet file (first, one past the last), or a whole file.

    `index` is its place in the run; before it are `offset` rows of its file; `rows` is None where only reading tells.
    """

    index: int
    file: SourceFile
    groups: tuple[int, int] | None
    offset: int
    rows: int | None


def find_files(source: str | os.PathLike[str]) -> list[SourceFile]:
    """The files that a source names, in the order of their names.

    Arguments:
        source: a file, a folder (searched through all its folders; of a Delta table its live files), a glob (`**` for
            any folders), an address of either in a store (`s3://bucket/folder`), or "-".

    Raises:
        ParameterError: nothing there, files of several kinds, or one file reached under two names (its rows would be
            reported twice).

    Edge cases: names that begin with "." or "_" are passed over, as other readers of data sets do.
    """
    name = os.fspath(source)
    if columns.is_remote(name):
        return _in_store(name)
    if name == "-" or Path(name).is_file():
        file_kind(name)
        return [SourceFile(path=name, name=name if name == "-" else Path(name).name)]
    root = name if Path(name).is_dir() else _fixed_part(name)
    if root == name:
        pattern = os.path.join(glob.escape(name), "**", "*")
    elif _MAGIC & set(name):
        pattern = name
    else:
        what = "file" if Path(name).suffix else "file or folder"
        raise ParameterError("source", name, f"no such {what}; check the path")
    live = columns.local_table(name) if root == name else None
    found = live or sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
    files = [_source_file(path, root) for path in found if not _hidden(os.path.relpath(path, root or "."))]
    if not files:
        raise ParameterError("source", name, "names no files; check the folder or the pattern")
    _check(files, name)
    return files


def _in_store(name: str) -> list[SourceFile]:
    """The same for an address."""
    if columns.is_file(name):
        file_kind(name)
        return [SourceFile(path=name, name=name.rsplit("/", 1)[-1])]
    parts = name.rstrip("/").split("/")
    root = "/".join(parts[: next((i for i, part in enumerate(parts) if _MAGIC & set(part)), len(parts))])
    found = columns.files_under(name)
    files = [_source_file(path, root) for path in found if not _hidden(os.path.relpath(path, root))]
    if not files:
        raise ParameterError("source", name, "names no files; check the address or the pattern")
    _check_kinds(files, name)
    return files


def _fixed_part(pattern: str) -> str:
    """The folders of a pattern before its first wildcard."""
    parts = Path(pattern).parts
    fixed = next((i for i, part in enumerate(parts) if _MAGIC & set(part)), len(parts) - 1)
    return os.path.join(*parts[:fixed]) if fixed else ""


def _hidden(relative: str) -> bool:
    parts = Path(relative).parts
    # A folder may spell a partition whose key begins with an underscore.
    return any(part[0] in "._" and not ("=" in part and i < len(parts) - 1) for i, part in enumerate(parts))


def _source_file(path: str, root: str) -> SourceFile:
    relative = Path(os.path.relpath(path, root or "."))
    pairs = [part.split("=", 1) for part in relative.parts[:-1] if part.find("=") > 0]
    partition = tuple((unquote(key), None if value == NO_VALUE else unquote(value)) for key, value in pairs)
    return SourceFile(path=path, name=relative.as_posix(), partition=partition)


def _check_kinds(files: Sequence[SourceFile], name: str) -> None:
    kinds = {file_kind(file.path) for file in files}
    if len(kinds) > 1:
        remedy = (
            f"holds files of several kinds ({', '.join(sorted(kinds))}); choose one with a pattern: DIR/**/*.parquet"
        )
        raise ParameterError("source", name, remedy)


def _check(files: Sequence[SourceFile], name: str) -> None:
    _check_kinds(files, name)
    seen: dict[tuple[int, int], str] = {}
    for file in files:
        status = os.stat(file.path)
        other = seen.setdefault((status.st_dev, status.st_ino), file.name)
        if other != file.name:
            raise ParameterError("source", name, f"{other} and {file.name} are one file; its rows would count twice")


def blocks_of(files: Sequence[SourceFile], *, block_rows: int = BLOCK_ROWS) -> list[Block]:
    """The blocks of a data set, in order. Only the ends of Parquet files are read.

    Arguments:
        files: what `find_files` gave.
        block_rows: row groups of a file are joined until a block has this many rows.

    Guarantees: the same files give the same blocks, and each row group is in exactly one.
    """
    if block_rows < 1:
        raise ParameterError("block_rows", block_rows, "a block has at least one row")
    blocks: list[Block] = []
    for file in files:
        if file_kind(file.path) != "parquet":
            blocks.append(Block(index=len(blocks), file=file, groups=None, offset=0, rows=None))
            continue
        with whole_parquet(file.path) as opened:
            sizes = [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
        first = before = rows = 0
        for i, size in enumerate(sizes):
            rows += size
            if rows and (rows >= block_rows or i == len(sizes) - 1):
                groups = (first, i + 1)
                blocks.append(Block(index=len(blocks), file=file, groups=groups, offset=before, rows=rows))
                first, before, rows = i + 1, before + rows, 0
    return blocks


# Reading -----------------------------------------------------------------------------------------------------


@final
class OpenFile:
    """An open file of a data set: its own columns, and those that the names of its folders make.

    Arguments:
        file: which.
        reader: of its own columns.
        numeric: columns to privatize.
        labels: those of them that hold categories, not numbers.
        extra: column to read beside them, of the file or of its folders -> the parameter that asked for it.
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
        return [pa.string() if name in self._partition else self.reader.kind_of(name) for name in self._extra]

    def batches(self, groups: tuple[int, int] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of the columns to privatize, then of the extra ones."""
        stored = [name for name in self._extra if name not in self._partition]
        names = [*self._numeric, *self._extra]
        typed = [name for name in self._numeric if name not in self._labels]
        for batch in self.reader.batches(numeric=typed, keep=[*self._labels, *stored], groups=groups):
            if len(stored) == len(self._extra):
                yield batch.select(names)
                continue
            arrays = [
                batch.column(name) if name in batch.schema.names else self._constant(name, batch.num_rows)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _constant(self, name: str, rows: int) -> pa.Array:
        return pa.repeat(pa.scalar(self._partition[name], pa.string()), rows)


@contextmanager
def open_file(
    file: SourceFile, *, numeric: Sequence[str], extra: Mapping[str, str], labels: Sequence[str] = ()
) -> Iterator[OpenFile]:
    """Opens one file of a data set; raises ParameterError unless it has the columns. See `OpenFile`."""
    with open_columns(file.path) as reader:
        yield OpenFile(file=file, reader=reader, numeric=numeric, extra=extra, labels=labels)
