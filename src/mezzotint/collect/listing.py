"""The files that a source names, on this machine or in an object store; every one of them, or an error.

Folders are listed here, not by `glob` or by a library: those pass over links without a target, folders that cannot be
listed and files under two names without a word. Patterns filter the listing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias, final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from mezzotint.core.errors import FileFormatError, ParameterError

AnyPath: TypeAlias = str | os.PathLike[str]
SourcePath: TypeAlias = "AnyPath | Sequence[AnyPath]"

STREAM = "-"
STREAMS = ("/dev/stdin", "/dev/fd/0")
"""Other names of standard input."""

FileKind = Literal["parquet", "csv", "csv.gz", "csv.zst", "arrow", "orc", "jsonl", "stream"]

ENDINGS: dict[str, FileKind] = {
    "parquet": "parquet", "csv": "csv", "tsv": "csv", "csv.gz": "csv.gz", "tsv.gz": "csv.gz", "csv.zst": "csv.zst",
    "tsv.zst": "csv.zst", "arrow": "arrow", "feather": "arrow", "orc": "orc", "jsonl": "jsonl", "ndjson": "jsonl",
}  # fmt: skip

WRITTEN = ("parquet", "csv", "csv.gz")
"""Formats of reports."""

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


def file_kind(path: AnyPath, *, parameter: str = "source", written: bool = False) -> FileKind:
    """The format that a file name stands for, of reports to write if `written`; "-" is CSV on a standard stream.

    Raises:
        ParameterError: any other extension.
    """
    name = os.fspath(path)
    if name == STREAM:
        return "stream"
    endings = WRITTEN if written else tuple(ENDINGS)
    for ending in endings:
        if name.lower().endswith(f".{ending}"):
            return ENDINGS[ending]
    accepted = "a .parquet, .csv or .csv.gz file"
    if not written:
        accepted = f"a file whose name ends in one of {', '.join(endings)}"
    remedy = f"name {accepted}, or - for CSV on a standard stream"
    raise ParameterError(parameter, name, remedy)


# Stores ----------------------------------------------------------------------------------------------------------


def is_remote(name: str) -> bool:
    """Whether a name is an address, as `s3://bucket/key`."""
    return "://" in name


def filesystem(name: str) -> tuple[fs.FileSystem, str]:
    """The file system of an address, and the path in it.

    Raises:
        ParameterError: a store that Arrow does not know.
        OSError: the store does not answer.
    """
    try:
        return fs.FileSystem.from_uri(name)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).partition("\n")[0][:120]
        remedy = (
            f"is not an address of a store that Arrow reads ({reason}); try s3://, gs:// or abfs://"
        )
        raise ParameterError("source", name, remedy) from None


def stored(name: str) -> fs.FileInfo:
    """What a store says of an address: its type, size and time."""
    store, path = filesystem(name)
    return store.get_file_info(path)


def is_file(name: str) -> bool:
    """Whether a file is there."""
    if is_remote(name):
        return stored(name).type == fs.FileType.File
    return Path(name).is_file()


def open_binary(name: str) -> Any:
    """A file for reading, here or in a store."""
    if not is_remote(name):
        return Path(name).open("rb")
    store, path = filesystem(name)
    return store.open_input_file(path)


def stamp(name: str) -> tuple[int, int]:
    """Size, and the time of the last change, which changes when a file is written anew."""
    if is_remote(name):
        information = stored(name)
        return int(information.size), int(information.mtime_ns or 0)
    status = os.stat(name)
    return status.st_size, status.st_mtime_ns


# Sources ---------------------------------------------------------------------------------------------------------


def find_files(source: SourcePath) -> list[SourceFile]:
    """The files that a source names, in the order of their names; those that begin with "." or "_" are passed over.

    Arguments:
        source: a file, a folder (searched through all its folders), a pattern (`**` for any folders; a folder that it
            names is read with all that is in it), an address of either in a store (`s3://bucket/folder`), "-" for
            standard input, or a list of files.

    Raises:
        ParameterError: nothing there, files of several kinds, a link without a target, a folder that cannot be listed,
            or one file reached under two names (its rows would be reported twice).
    """
    if not isinstance(source, str | os.PathLike):
        return _listed_files([os.fspath(path) for path in source])
    name = os.fspath(source)
    if name == STREAM or name in STREAMS:
        return [SourceFile(path=STREAM, name=STREAM)]
    if is_file(name):
        file_kind(name)
        return [SourceFile(path=name, name=os.path.basename(name))]
    root, pattern = _split(name)
    listed = _stored_files if is_remote(name) else _local_files
    paths = listed(name, root, pattern)
    files = [_source_file(root, parts) for parts in sorted(paths)]
    if not files:
        raise ParameterError("source", name, "names no files; check the path or the pattern")
    _check(files, name)
    return files


def _listed_files(paths: Sequence[str]) -> list[SourceFile]:
    for path in paths:
        if not is_file(path):
            raise ParameterError("source", path, "no such file; a list names files")
    names = ", ".join(paths[:3])
    if not paths:
        raise ParameterError("source", "[]", "names no files")
    files = [
        SourceFile(path=path, name=path, partition=_partition(PurePosixPath(path).parts[:-1]))
        for path in paths
    ]
    if len(set(paths)) != len(paths):
        raise ParameterError("source", names, "a file is listed twice; its rows would count twice")
    _check(files, names)
    return files


def _split(name: str) -> tuple[str, tuple[str, ...]]:
    """A folder and the parts of a pattern below it, none where the name is that of a folder."""
    if is_remote(name):
        scheme, _, path = name.rstrip("/").partition("://")
        parts = tuple(path.split("/"))
        fixed = _fixed(parts)
        return f"{scheme}://{'/'.join(parts[:fixed])}", parts[fixed:]
    if Path(name).is_dir():
        return name, ()
    parts = Path(name).parts
    fixed = _fixed(parts)
    if fixed == len(parts):
        kind = "file" if Path(name).suffix else "file or folder"
        if stat_of(name) is not None:
            raise ParameterError("source", name, "is neither a file nor a folder; name a file")
        raise ParameterError("source", name, f"no such {kind}; check the path")
    return os.path.join(*parts[:fixed]) if fixed else "", parts[fixed:]


def stat_of(name: str) -> os.stat_result | None:
    """The status of a path; None where nothing is there."""
    try:
        return os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _fixed(parts: Sequence[str]) -> int:
    """How many parts stand before the first wildcard."""
    wild = (index for index, folder in enumerate(parts) if _MAGIC & set(folder))
    return next(wild, len(parts))


def matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path, or a folder above it, is named by a pattern."""
    if not pattern:
        return True
    if not parts:
        return False
    if pattern[0] == "**":
        return matches(parts, pattern[1:]) or matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and matches(parts[1:], pattern[1:])


def _leads_to_matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a folder may hold paths that a pattern names."""
    if not parts or not pattern or pattern[0] == "**":
        return True
    return fnmatchcase(parts[0], pattern[0]) and _leads_to_matches(parts[1:], pattern[1:])


def _hidden(part: str, *, folder: bool) -> bool:
    # A folder may spell a partition whose key begins with an underscore.
    return part[0] in "._" and not (folder and "=" in part)


def _local_files(name: str, root: str, pattern: tuple[str, ...]) -> list[tuple[str, ...]]:
    if not pattern:
        _refuse_tables(name, lambda inside: (Path(root) / inside).exists())
        if any(Path(root).glob("metadata/*.metadata.json")):
            _refuse_tables(name, lambda inside: "version-hint" in inside)
    try:
        return list(_walk(root, (), pattern, (os.stat(root or "."),)))
    except OSError as error:
        where = error.filename or root
        raise ParameterError(
            "source", name, f"{where} cannot be listed ({error.strerror}); make it readable"
        ) from None


def _walk(
    root: str,
    parts: tuple[str, ...],
    pattern: tuple[str, ...],
    above: tuple[os.stat_result, ...],
) -> Iterator[tuple[str, ...]]:
    """The files below a folder, as parts of their paths; `above` are the folders on the way, itself included."""
    folder = os.path.join(root, *parts)
    with os.scandir(folder or ".") as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        inner = (*parts, name)
        path = os.path.join(folder, name)
        if _hidden(name, folder=False) and "=" not in name:
            continue
        status = stat_of(path)
        if status is None:
            if matches(inner, pattern):
                remedy = f"{path} is a link without a target; fetch the file or remove the link"
                raise ParameterError("source", root, remedy)
        elif stat.S_ISDIR(status.st_mode):
            if any(os.path.samestat(status, parent) for parent in above):
                continue  # a link back to a folder on the way: its files are read already
            if _leads_to_matches(inner, pattern):
                yield from _walk(root, inner, pattern, (*above, status))
        elif not _hidden(name, folder=False) and matches(inner, pattern):
            if not stat.S_ISREG(status.st_mode):
                remedy = f"{path} is no regular file; name a folder without it, or a pattern"
                raise ParameterError("source", root, remedy)
            yield inner


def _stored_files(name: str, root: str, pattern: tuple[str, ...]) -> list[tuple[str, ...]]:
    store, folder = filesystem(root)
    if not pattern:
        base = folder.rstrip("/")
        _refuse_tables(
            name,
            lambda inside: store.get_file_info(f"{base}/{inside}").type != fs.FileType.NotFound,
        )
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    listed: list[tuple[str, ...]] = []
    for information in store.get_file_info(selector):
        if information.type != fs.FileType.File:
            continue
        parts = PurePosixPath(information.path).relative_to(folder).parts
        visible = not _hidden(parts[-1], folder=False)
        visible = visible and not any(
            _hidden(folder_name, folder=True) for folder_name in parts[:-1]
        )
        if visible and matches(parts, pattern):
            listed.append(parts)
    return listed


def _refuse_tables(name: str, holds: Any) -> None:
    """Raises ParameterError for a folder that also holds deleted rows; `holds` says whether it has a path inside."""
    tables = {
        ".hoodie": ("a Hudi", "export it to Parquet first"),
        "metadata/version-hint.text": ("an Iceberg", "export it to Parquet first"),
        "_delta_log": ("a Delta", "give the list of its live files: DeltaTable(...).file_uris()"),
    }
    for mark, (kind, remedy) in tables.items():
        if holds(mark):
            words = f"is {kind} table, whose folder also holds rows that were deleted; {remedy}"
            raise ParameterError("source", name, words)


def _source_file(root: str, parts: tuple[str, ...]) -> SourceFile:
    path = f"{root}/{'/'.join(parts)}" if is_remote(root) else os.path.join(root, *parts)
    return SourceFile(path=path, name="/".join(parts), partition=_partition(parts[:-1]))


def _partition(folders: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """The keys and values that folders spell."""
    pairs = [folder.split("=", 1) for folder in folders if folder.find("=") > 0]
    partition: list[tuple[str, str | None]] = []
    for key, value in pairs:
        partition.append((unquote(key), None if value == NO_VALUE else unquote(value)))
    keys = [key for key, _ in partition]
    if len(set(keys)) != len(keys):
        raise FileFormatError(f"{'/'.join(folders)}: two folders spell the same key; rename one")
    return tuple(partition)


def _check(files: Sequence[SourceFile], name: str) -> None:
    """Refuses files of several kinds, files of other kinds than columns, and one file under two names."""
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
    for file in files:
        if is_remote(file.path):
            continue
        status = os.stat(file.path)
        first_name = seen.setdefault((status.st_dev, status.st_ino), file.name)
        if first_name != file.name:
            remedy = f"{first_name} and {file.name} are one file; its rows would count twice"
            raise ParameterError("source", name, remedy)
