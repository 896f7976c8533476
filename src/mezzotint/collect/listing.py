"""The files that a source names, on this machine or in an object store; every one of them, or an
error.

Folders are listed here, not by `glob` or by a library: those pass over links without a target,
folders that cannot be listed and files under two names without a word. Patterns filter the listing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias, final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.types import AnyPath

SourcePath: TypeAlias = "AnyPath | Sequence[AnyPath]"
Parts: TypeAlias = tuple[str, ...]
"""A path, cut between its folders."""

STREAM = "-"


STREAMS = ("/dev/stdin", "/dev/fd/0")
"""Other names of standard input."""


FileKind = Literal[
    "parquet",
    "csv",
    "csv.gz",
    "csv.zst",
    "arrow",
    "orc",
    "jsonl",
    "stream",
]


ENDINGS: dict[str, FileKind] = {
    "parquet": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "csv.gz": "csv.gz",
    "tsv.gz": "csv.gz",
    "csv.zst": "csv.zst",
    "tsv.zst": "csv.zst",
    "arrow": "arrow",
    "feather": "arrow",
    "orc": "orc",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
}

WRITTEN = ("parquet", "csv", "csv.gz")
"""Formats of reports."""


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How a folder spells a missing partition value."""


WILDCARDS = frozenset("*?[")

TABLES = {
    ".hoodie": ("a Hudi", "export it to Parquet first"),
    "metadata/version-hint.text": (
        "an Iceberg",
        "export it to Parquet first",
    ),
    "_delta_log": (
        "a Delta",
        "give the list of its live files: DeltaTable(...).file_uris()",
    ),
}
"""What a folder holds -> its format, and the remedy: such folders also hold rows that were deleted.
"""


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
    """The format that a file name stands for, of reports to write if `written`; "-" is CSV on a
    standard stream.

    Raises:
        ParameterError: any other extension.
    """
    file_name = os.fspath(path)
    if file_name == STREAM:
        return "stream"
    endings = WRITTEN if written else tuple(ENDINGS)
    for ending in endings:
        if file_name.lower().endswith(f".{ending}"):
            return ENDINGS[ending]
    accepted = f"a file whose name ends in one of {', '.join(endings)}"
    if written:
        accepted = "a .parquet, .csv or .csv.gz file"
    remedy = f"name {accepted}, or - for CSV on a standard stream"
    raise ParameterError(parameter, file_name, remedy)


# Stores -------------------------------------------------------------------------------------------


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
    store, stored_path = filesystem(name)
    return store.get_file_info(stored_path)


def is_file(name: str) -> bool:
    """Whether a file is there."""
    if is_remote(name):
        return stored(name).type == fs.FileType.File
    return Path(name).is_file()


def open_binary(name: str) -> Any:
    """A file for reading, here or in a store."""
    if not is_remote(name):
        return Path(name).open("rb")
    store, stored_path = filesystem(name)
    return store.open_input_file(stored_path)


def stamp(name: str) -> tuple[int, int]:
    """Size, and the time of the last change, which changes when a file is written anew."""
    if is_remote(name):
        information = stored(name)
        return int(information.size), int(information.mtime_ns or 0)
    status = os.stat(name)
    return status.st_size, status.st_mtime_ns


# Sources ------------------------------------------------------------------------------------------


def find_files(source: SourcePath) -> list[SourceFile]:
    """The files that a source names, in the order of their names; those that begin with "." or "_"
    are passed over.

    Arguments:
        source: a file, a folder (searched through all its folders), a pattern (`**` for any
            folders; a folder that it names is read with all that is in it), an address of either in
            a store (`s3://bucket/folder`), "-" for standard input, or a list of files.

    Raises:
        ParameterError: nothing there, files of several kinds, a link without a target, a folder
            that cannot be listed, or one file reached under two names (its rows would be reported
            twice).
    """
    if not isinstance(source, str | os.PathLike):
        return _listed_files([os.fspath(file_path) for file_path in source])
    source_name = os.fspath(source)
    if source_name in (STREAM, *STREAMS):
        return [SourceFile(path=STREAM, name=STREAM)]
    if is_file(source_name):
        file_kind(source_name)
        return [SourceFile(path=source_name, name=os.path.basename(source_name))]
    root, pattern = _split(source_name)
    if is_remote(source_name):
        paths = _stored_files(source_name, root, pattern)
    else:
        paths = _local_files(source_name, root, pattern)
    files = [_source_file(root, parts) for parts in sorted(paths)]
    if not files:
        raise ParameterError(
            "source",
            source_name,
            "names no files; check the path or the pattern",
        )
    _check(files, source_name)
    return files


def _listed_files(paths: Sequence[str]) -> list[SourceFile]:
    """The files of a list, in its order; raises ParameterError for one that is not there, or
    stands twice.
    """
    files: list[SourceFile] = []
    for file_path in paths:
        if not is_file(file_path):
            raise ParameterError("source", file_path, "no such file; a list names files")
        partition = _partition(PurePosixPath(file_path).parts[:-1])
        files.append(SourceFile(path=file_path, name=file_path, partition=partition))
    if not files:
        raise ParameterError("source", "[]", "names no files")
    _check(files, ", ".join(paths[:3]))
    return files


def _split(name: str) -> tuple[str, Parts]:
    """A folder and the parts of a pattern below it, none where the name is that of a folder."""
    if is_remote(name):
        scheme, _, stored_path = name.rstrip("/").partition("://")
        folders, pattern = _cut_at_wildcard(stored_path.split("/"))
        return f"{scheme}://{'/'.join(folders)}", pattern
    if Path(name).is_dir():
        return name, ()
    folders, pattern = _cut_at_wildcard(Path(name).parts)
    if pattern:
        return os.path.join("", *folders), pattern
    if stat_of(name) is not None:
        raise ParameterError(
            "source",
            name,
            "is neither a file nor a folder; name a file",
        )
    missing_kind = "file or folder"
    if Path(name).suffix:
        missing_kind = "file"
    raise ParameterError("source", name, f"no such {missing_kind}; check the path")


def _cut_at_wildcard(parts: Sequence[str]) -> tuple[Parts, Parts]:
    """The parts before the first wildcard, and those from it on."""
    for index, folder_part in enumerate(parts):
        if WILDCARDS & set(folder_part):
            return tuple(parts[:index]), tuple(parts[index:])
    return tuple(parts), ()


def stat_of(name: str) -> os.stat_result | None:
    """The status of a path; None where nothing is there."""
    try:
        return os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None


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


def _is_hidden_folder(name: str) -> bool:
    # A folder may spell a partition whose key begins with an underscore.
    return name[0] in "._" and "=" not in name


def _local_files(name: str, root: str, pattern: Parts) -> list[Parts]:
    """The files below a folder of this machine that a pattern names, as parts of their paths
    from it.
    """
    folder = Path(root)
    if not pattern:
        _refuse_tables(name, lambda inside: (folder / inside).exists())
        if any(folder.glob("metadata/*.metadata.json")):
            _refuse_tables(name, lambda inside: "version-hint" in inside)
    try:
        return list(_walk(root, (), pattern, (os.stat(root or "."),)))
    except OSError as error:
        where = error.filename or root
        remedy = f"{where} cannot be listed ({error.strerror}); make it readable"
        raise ParameterError("source", name, remedy) from None


def _walk(
    root: str,
    parts: Parts,
    pattern: Parts,
    above: tuple[os.stat_result, ...],
) -> Iterator[Parts]:
    """The files below a folder, as parts of their paths; `above` are the folders on the way, itself
    included.
    """
    folder = os.path.join(root, *parts)
    with os.scandir(folder or ".") as entries:
        names = sorted(entry.name for entry in entries)
    for entry_name in names:
        inner = (*parts, entry_name)
        file_path = os.path.join(folder, entry_name)
        if _is_hidden_folder(entry_name):
            continue
        status = stat_of(file_path)
        if status is None:
            if matches(inner, pattern):
                remedy = (
                    f"{file_path} is a link without a target; fetch the file or remove the link"
                )
                raise ParameterError("source", root, remedy)
        elif stat.S_ISDIR(status.st_mode):
            if any(os.path.samestat(status, parent) for parent in above):
                continue  # a link back to a folder on the way: its files are read already
            if _leads_to_matches(inner, pattern):
                yield from _walk(root, inner, pattern, (*above, status))
        elif entry_name[0] not in "._" and matches(inner, pattern):
            if not stat.S_ISREG(status.st_mode):
                remedy = f"{file_path} is no regular file; name a folder without it, or a pattern"
                raise ParameterError("source", root, remedy)
            yield inner


def _stored_files(name: str, root: str, pattern: Parts) -> list[Parts]:
    """The same of a folder in a store."""
    store, folder = filesystem(root)

    def is_there(inside: str) -> bool:
        file_path = f"{folder.rstrip('/')}/{inside}"
        return store.get_file_info(file_path).type != fs.FileType.NotFound

    if not pattern:
        _refuse_tables(name, is_there)
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    listed: list[Parts] = []
    for information in store.get_file_info(selector):
        parts = PurePosixPath(information.path).relative_to(folder).parts
        *folders, file_name = parts
        is_hidden = file_name[0] in "._" or any(map(_is_hidden_folder, folders))
        is_regular = information.type == fs.FileType.File
        if is_regular and not is_hidden and matches(parts, pattern):
            listed.append(parts)
    return listed


def _refuse_tables(name: str, holds: Callable[[str], bool]) -> None:
    """Raises ParameterError for a folder that also holds deleted rows; `holds` says whether it has
    a path inside.
    """
    for mark, (table_kind, remedy) in TABLES.items():
        if holds(mark):
            message = (
                f"is {table_kind} table, whose folder also holds rows that were deleted; {remedy}"
            )
            raise ParameterError("source", name, message)


def _source_file(root: str, parts: Parts) -> SourceFile:
    """The file of these parts below a folder, with what the names of its folders spell."""
    data_name = "/".join(parts)
    file_path = f"{root}/{data_name}" if is_remote(root) else os.path.join(root, *parts)
    return SourceFile(path=file_path, name=data_name, partition=_partition(parts[:-1]))


def _partition(
    folders: Sequence[str],
) -> tuple[tuple[str, str | None], ...]:
    """The keys and values that folders spell."""
    partition: dict[str, str | None] = {}
    for folder in folders:
        spelled_key, separator, spelled = folder.partition("=")
        if not spelled_key or not separator:
            continue
        partition_key = unquote(spelled_key)
        if partition_key in partition:
            message = "two folders spell the same key; rename one"
            raise FileFormatError(f"{'/'.join(folders)}: {message}")
        partition[partition_key] = None if spelled == NO_VALUE else unquote(spelled)
    return tuple(partition.items())


def _check(files: Sequence[SourceFile], name: str) -> None:
    """Refuses files of several kinds, files of other kinds than columns, and one file under two
    names.
    """
    kinds: set[FileKind] = set()
    name_of_file: dict[object, str] = {}
    for source_file in files:
        file_name = source_file.name
        try:
            kinds.add(file_kind(source_file.path))
        except ParameterError:
            remedy = "is not a file of columns; name a folder without it, or a pattern: *.parquet"
            raise ParameterError("source", name, f"{file_name} in it {remedy}") from None
        identity: object = source_file.path
        if not is_remote(source_file.path):
            status = os.stat(source_file.path)
            identity = (status.st_dev, status.st_ino)
        if identity in name_of_file:
            first_name = name_of_file[identity]
            remedy = f"{first_name} and {file_name} are one file; its rows would count twice"
            raise ParameterError("source", name, remedy)
        name_of_file[identity] = file_name
    if len(kinds) > 1:
        listed = ", ".join(sorted(kinds))
        remedy = "choose one with a pattern: DIR/**/*.parquet"
        raise ParameterError(
            "source",
            name,
            f"holds files of several kinds ({listed}); {remedy}",
        )
