"""Where files are: on this machine, or in an object store that fsspec knows; and which folders are tables of others."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast, final

from mezzotint.core.errors import FileFormatError, ParameterError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
_PAGE = 1 << 20
"""Bytes that are asked of a store at a time."""


def is_remote(name: str) -> bool:
    """Whether a name is an address, as `s3://bucket/key`."""
    return "://" in name


def filesystem(name: str, *, parameter: str = "source") -> tuple[AbstractFileSystem, str]:
    """The fsspec file system of an address, and the path in it.

    Raises:
        ParameterError: a store that is not installed, or not known.
    """
    try:
        import fsspec

        return fsspec.core.url_to_fs(name)
    except ImportError as error:
        remedy = f"needs a package that is not installed ({error}); pip install 'mezzotint[cloud]', or the store's own"
        raise ParameterError(parameter, name, remedy) from None
    except ValueError as error:
        raise ParameterError(parameter, name, f"is no address that fsspec knows ({error})") from None


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
        return cast(BinaryIO, io.BufferedReader(_Stored(name, files.open(path, "rb", block_size=_PAGE)), _PAGE))


@contextmanager
def _answering(name: str) -> Generator[None]:
    """Turns what a store's library raises into an OSError: their errors share no base."""
    try:
        yield
    except (OSError, ParameterError):
        raise
    except Exception as error:
        raise OSError(f"{name}: the store did not answer ({type(error).__name__}); try again later") from error


@final
class _Stored(io.RawIOBase):
    """A file of a store, whose failures are those of files."""

    def __init__(self, name: str, file: Any) -> None:
        self._name, self._file = name, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

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
    return int(known["size"]), str(known.get("ETag") or known.get("etag") or known.get("LastModified") or "")


def files_under(name: str, *, parameter: str) -> list[str]:
    """Addresses of the files that an address of a folder, or a glob, names in a store, sorted."""
    files, path = filesystem(name, parameter=parameter)
    if any(magic in path for magic in "*?["):
        found = [one for one in files.glob(path) if files.isfile(one)]
    else:
        refuse_tables_of_others(name, lambda inside: files.exists(f"{path.rstrip('/')}/{inside}"), parameter=parameter)
        if files.exists(f"{path.rstrip('/')}/_delta_log"):
            raise ParameterError(parameter, name, "is a Delta table in a store; copy it to this machine to read it")
        found = files.find(path)
    return sorted(str(files.unstrip_protocol(str(one))) for one in found)


# Tables of others ------------------------------------------------------------------------------------------------


def refuse_tables_of_others(name: str, there: Callable[[str], bool], *, parameter: str) -> None:
    """Raises ParameterError for folders whose files are not all rows of the table: deleted ones lie there, too.

    Arguments:
        there: tells of a path inside the folder whether it exists.
    """
    for mark, kind in ((".hoodie", "a Hudi"), ("metadata/version-hint.text", "an Iceberg")):
        if there(mark):
            remedy = f"is {kind} table, whose folder also holds rows that were deleted; export it to Parquet first"
            raise ParameterError(parameter, name, remedy)


def local_table(folder: str, *, parameter: str) -> list[str] | None:
    """The live files of a Delta table in a local folder, sorted; None where the folder is none.

    Raises:
        ParameterError: an Iceberg or Hudi table; a Delta table with features that change what its files mean.
        FileFormatError: a Delta table that cannot be read.
    """
    root = Path(folder)
    refuse_tables_of_others(folder, lambda inside: (root / inside).exists(), parameter=parameter)
    if any(root.glob("metadata/*.metadata.json")):
        refuse_tables_of_others(folder, lambda inside: "version-hint" in inside, parameter=parameter)
    if not (root / "_delta_log").is_dir():
        return None
    try:
        import deltalake

        table = deltalake.DeltaTable(folder)
    except ImportError:
        remedy = "is a Delta table; pip install 'mezzotint[delta]' to read it (its folder also holds deleted rows)"
        raise ParameterError(parameter, folder, remedy) from None
    except Exception as error:  # the library's errors share no base
        raise FileFormatError(f"{folder}: a Delta table that cannot be read ({str(error)[:200]})") from None
    features = sorted(set(table.protocol().reader_features or []) - {"timestampNtz"})
    if features or table.protocol().min_reader_version not in (1, 3):
        remedy = f"is a Delta table with {', '.join(features) or 'column mapping'}, which this release does not read"
        raise ParameterError(parameter, folder, f"{remedy}; export it to Parquet first")
    return sorted(str(Path(one.removeprefix("file://"))) for one in table.file_uris())
