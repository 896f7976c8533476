"""Files that survive crashes: written completely or not at all, or extended line by line under a
lock.

A rename or a new file is durable only once its folder is synced too; both tools here do that.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import stat
import threading
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import FileFormatError, ParameterError, StorageError
from mezzotint.core.records import Json, JsonObject

if os.name == "posix":
    import fcntl

Append = Callable[..., None]
"""Of `AppendLog.transaction`: appends the lines given, all with one write and one sync."""

WAIT = 60.0
"""Seconds that a writer waits for others' locks before it gives up."""

PRIVATE_FILE = 0o600
"""Mode of a new log: what it holds concerns its owner alone, whatever the umask allows others."""

LARGEST = 1 << 28
"""Largest size, in bytes, of a text file that is read."""

_PAUSE = 0.002
"""Seconds between two attempts at a lock."""

_CHECKSUM_DIGITS = 16
"""Hexadecimal digits of a line's checksum."""

_CHAIN_KEY = b',"chain":"'

_LOG_LINE = re.compile(rb',"chain":"[0-9a-f]{16}"}\n\Z')
_KEY_LINE = re.compile(rb"[0-9a-f]{64}\n?")
_LONGEST_HEADER = 1 << 16

_DRAFT_LETTERS = 50
"""Of a target's name, in that of its draft."""

_RECORDED_BYTES = 4096
"""Of a torn line, put on record."""

LARGEST_UNPACKED = 16 * LARGEST
"""Largest size, in bytes, of the arrays of one file."""


# Reading: the one boundary for text and JSON from outside -----------------------------------------


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; FileFormatError where it is missing, a folder or larger than `LARGEST`
    bytes.
    """
    try:
        with Path(path).open("rb") as file:
            body = file.read(LARGEST + 1)
    except OSError as error:
        raise FileFormatError(
            f"{path}: cannot be read ({error.strerror}); check the path"
        ) from None
    if len(body) > LARGEST:
        raise FileFormatError(f"{path}: larger than {LARGEST >> 20} MB, which no such file is")
    return body


def read_text(path: str | os.PathLike[str]) -> str:
    """The content of a text file; FileFormatError as by `read_bytes`, or where it is not UTF-8."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: not a text file in UTF-8") from None


def _distinct(pairs: list[tuple[str, Json]]) -> JsonObject:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key occurs twice; two readers could see two documents")
    return document


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number that JSON can hold")


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse_constant)
_OWN_DECODER = json.JSONDecoder(object_pairs_hook=_distinct)
"""The only decoders of this package but for those of `kernel.units`, which shares no code, and of
`collect.json_lines`, which keeps how numbers are spelled.
"""


def parse_json(
    text: str | bytes,
    *,
    name: str,
    finite: bool = True,
) -> Json:
    """The value of a JSON text; FileFormatError, under this name, where it is not complete, not in
    UTF-8, too deep or too long, or a key occurs twice in an object.

    `finite` refuses NaN and infinities, which JSON lacks; only files that nobody but this package
    reads hold them.
    """
    decoder = _DECODER if finite else _OWN_DECODER
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return decoder.decode(text)
    except RecursionError:
        raise FileFormatError(f"{name}: nested too deeply to be a file of ours") from None
    except ValueError as error:
        raise FileFormatError(
            f"{name}: not valid JSON ({error}); the file may be truncated or edited; write it again"
        ) from None


def parse_object(text: str | bytes, *, name: str, finite: bool = True) -> JsonObject:
    """The JSON object of a text; FileFormatError as by `parse_json`, or for any other value."""
    value = parse_json(text, name=name, finite=finite)
    if not isinstance(value, dict):
        raise FileFormatError(f"{name}: not a whole JSON object; it was cut or edited")
    return cast("JsonObject", value)


def read_object(path: str | os.PathLike[str], *, finite: bool = True) -> JsonObject:
    """The JSON object that a file holds; FileFormatError as by `read_text` and `parse_object`."""
    return parse_object(read_text(path), name=os.fspath(path), finite=finite)


def read_arrays(
    source: Path | io.BytesIO,
    *,
    name: str,
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an npz file; FileFormatError, under this name, where it is damaged, or not of
    plain arrays.
    """
    import zipfile  # slow to load
    import zlib

    damaged = (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    )
    try:
        with zipfile.ZipFile(source) as archive:
            # Its index states sizes, and zipfile unpacks no more than that.
            unpacked_size = sum(member.file_size for member in archive.infolist())
            if unpacked_size > LARGEST_UNPACKED:
                raise FileFormatError(f"{name}: unpacks to more than {LARGEST_UNPACKED >> 20} MB")
        with np.load(source, allow_pickle=False) as file:
            return dict(file)
    except FileFormatError:
        raise
    except damaged as error:
        raise FileFormatError(f"{name}: not a readable npz file ({error})") from None


# Whole files --------------------------------------------------------------------------------------


def refuse_existing(
    path: str | os.PathLike[str],
    *,
    overwrite: bool | None = False,
    parameter: str = "out",
) -> Path:
    """The path, checked: its folder exists, and nothing is there yet unless `overwrite`; None never
    offers that. Logs and keys are not overwritten by anybody: what was spent would be forgotten.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise ParameterError(
            parameter, str(target), f"folder {str(target.parent)!r} does not exist; create it first"
        )
    if target.is_dir():
        raise ParameterError(parameter, str(target), "is a folder; name a file")
    if target.exists() and not overwrite:
        offer = "" if overwrite is None else ", or overwrite=True (--overwrite)"
        raise ParameterError(parameter, str(target), f"exists already; name another file{offer}")
    if target.is_file() and _is_irreplaceable(target):
        remedy = "holds a ledger or a key, which nothing overwrites; name another file"
        raise ParameterError(parameter, str(target), remedy)
    return target


def _is_irreplaceable(path: Path) -> bool:
    """Whether a file is a log, by the end of its first line, or a key."""
    with path.open("rb") as file:
        first_line = file.readline(_LONGEST_HEADER)
    return bool(_LOG_LINE.search(first_line) or _KEY_LINE.fullmatch(first_line))


def resolved(path: str | os.PathLike[str], *, parameter: str) -> Path:
    """The path where links lead; ParameterError where one leads back to itself."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError):  # as one release of Python or the other has it
        remedy = "a link in it leads back to itself; remove that link"
        raise ParameterError(parameter, os.fspath(path), remedy) from None


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable: without it a power cut may undo a rename, or forget a
    new file.
    """
    if os.name != "posix":
        return  # Windows cannot open folders; its file systems journal names
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call for folders; their servers keep names in step
        # themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def write_text(
    path: str | os.PathLike[str],
    text: str,
    *,
    overwrite: bool = False,
    parameter: str = "out",
) -> None:
    """Writes a text file, completely or not at all; see `replacing`."""
    with replacing(path, overwrite=overwrite, parameter=parameter) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    parameter: str = "out",
) -> Generator[Path]:
    """A temporary path beside `path`; renamed to it when the block ends well, removed when it does
    not.

    Guarantees: a reader sees the old file or the complete new one, never a part; a kill leaves at
    most a hidden temporary file, never a half-written `path`. Once the block has ended the new file
    survives a power cut: its bytes and its folder are synced. Without `overwrite`, a file that
    appeared meanwhile is kept.
    """
    target = refuse_existing(path, overwrite=overwrite, parameter=parameter)
    temporary = draft_name(target)
    try:
        yield temporary
        if overwrite:
            _sync_file(temporary)
            os.replace(temporary, target)
            sync_folder(target.parent)
        elif not publish(temporary, target):
            refuse_existing(target, parameter=parameter)
    finally:
        temporary.unlink(missing_ok=True)


def draft_name(target: Path) -> Path:
    """A new, hidden name beside a target, which file systems allow however long that one's is."""
    return target.with_name(f".{target.name[:_DRAFT_LETTERS]}.{os.urandom(6).hex()}.partial")


def publish(draft: Path, target: Path) -> bool:
    """Renames a complete draft durably; returns False and changes nothing if the name is taken.

    Guarantees: of any number of attempts, in whatever processes, exactly one returns True (where
    the file system has hard links; elsewhere all but those of the same instant are told apart).
    """
    _sync_file(draft)
    try:
        os.link(draft, target)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        if target.exists():
            return False
        os.replace(draft, target)
    sync_folder(target.parent)
    return True


def _sync_file(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


# Locks --------------------------------------------------------------------------------------------


@contextmanager
def locked(
    descriptor: int,
    path: Path,
    *,
    wait: float = WAIT,
    parameter: str = "path",
    busy: str = "is in use by another process; wait for its end",
) -> Generator[None]:
    """Holds the exclusive lock of an open file; no other descriptor, in this process or another,
    gets it meanwhile.

    It ends with the block, or with the process. `path`, `parameter` and `busy` are for messages.

    Raises:
        StorageError: somebody else holds it after `wait` seconds; the file system, or the system,
            has no locks.
    """
    if os.name != "posix":
        raise StorageError(parameter, str(path), "needs POSIX file locks, which this system lacks")
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                remedy = (
                    f"its file system gives no locks ({error.strerror}); keep it on a local disk"
                )
                raise StorageError(parameter, str(path), remedy) from None
            if time.monotonic() >= deadline:
                raise StorageError(parameter, str(path), busy) from None
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        # By hand, for a child that was forked meanwhile shares the descriptor and would keep the
        # lock.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


# Logs ---------------------------------------------------------------------------------------------


class RepairWarning(UserWarning):
    """A log ended in a line cut by a crash; the message says what was done about it."""


@final
class AppendLog:
    """A file of JSON objects, one per line, to which any number of processes append in turn.

    Every line carries a checksum over itself and the line before, which reveals lines that were
    edited, lost or
    inserted by accident (not by intent: anyone can recompute the checksums).

    Arguments:
        path: the file, made when absent; None keeps everything in memory.
        header: the first line; a file with another one is refused.
        take: called with every line after the header in turn, whichever process wrote it. Lines
            replayed from the file and lines appended live take this one path, so that they cannot
            differ in effect.
        what: the kind of file, for error messages.
        wait: seconds to wait while other processes write.

    Raises:
        ParameterError: the folder does not exist, or the path names no regular file.
        FileFormatError: it is a different file, or damaged in a way that no crash explains.
        StorageError: it cannot be opened, read or locked.

    Guarantees:
        A line is on disk, and the file's name in its folder, when `append` returns. When it raises,
        the line counts as not written; should a part of it have stayed, the next opening repairs or
        counts it. Between `transaction`'s begin and end nobody else writes, and all that others
        wrote before has been taken. Cut at any byte, as by a crash, the file opens with all lines
        whose `append` had returned. The rest of a cut line is set aside, on record in the file and
        in `repairs`, and a RepairWarning says so. That is safe for records that are written before
        the event they describe: nothing had yet relied on an incomplete line.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        header: JsonObject,
        take: Callable[[JsonObject], None],
        what: str = "log",
        wait: float = WAIT,
    ) -> None:
        # Absolute, whatever becomes of the working directory.
        self.path = None if path is None else Path(path).absolute()
        self.what = what
        self.repairs: list[str] = []
        self._header = dict(header)
        self._take = take
        self._wait = wait
        self._mutex = threading.Lock()
        self._last = b""  # the last complete line read, newline included
        self._chain = ""
        self._count = 0
        self._size = 0
        self._identity: tuple[int, int] | None = None  # device and inode of the file that was read
        if self.path is not None:
            if not self.path.parent.is_dir():
                raise ParameterError(
                    "path", str(self.path), "its folder does not exist; create it first"
                )
            if self.path.exists() and not self.path.is_file():
                raise ParameterError("path", str(self.path), f"a {what} must be a regular file")
            self.refresh()

    def __reduce__(self) -> NoReturn:
        remedy = "an open file is neither copied nor sent; open it again there, by its path"
        raise ParameterError("path", str(self.path), f"{self.what}: {remedy}")

    def refresh(self) -> None:
        """Reads the lines that other processes have appended."""
        with self.transaction():
            pass

    @contextmanager
    def transaction(self) -> Generator[Append]:
        """Holds the lock and is up to date; gives the function that appends lines. Transactions do
        not nest.
        """
        # Not for ever: a signal handler that comes back here would wait for the very thread that it
        # interrupts.
        if not self._mutex.acquire(timeout=self._wait):
            raise StorageError(
                "path", str(self.path), "is in use by this process; wait for its end"
            )
        try:
            if self.path is None:
                yield self._remember
                return
            with self._opened(self.path) as descriptor:
                yield lambda *lines: self._append(descriptor, *lines)
        finally:
            self._mutex.release()

    def _remember(self, *lines: JsonObject) -> None:
        for line in lines:
            self._take(_plain(line))

    # Reading --------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, path: Path) -> Generator[int]:
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        deadline = time.monotonic() + self._wait
        while True:
            try:
                # Made only before anything was read: a ledger that vanished must not come back
                # empty.
                creates = os.O_CREAT if self._identity is None else 0
                descriptor = os.open(path, flags | creates, PRIVATE_FILE)
            except OSError as error:
                raise self._failed(error) from None
            try:
                with locked(descriptor, path, wait=max(0.0, deadline - time.monotonic())):
                    if self._is_current(descriptor, path):
                        yield descriptor
                        return
            finally:
                os.close(descriptor)

    def _is_current(self, descriptor: int, path: Path) -> bool:
        """Whether the open file still has its name; then all lines in it are taken."""
        try:
            is_in_place = self._in_place(descriptor, path)
            if is_in_place:
                self._catch_up(descriptor)
        except OSError as error:
            raise self._failed(error) from None
        return is_in_place

    def _in_place(self, descriptor: int, path: Path) -> bool:
        """Whether the open file still has its name, now that it is locked."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(path))
        except FileNotFoundError:
            if self._identity is None:
                return False
            raise self._damaged("has disappeared since it was read; restore it") from None

    def _catch_up(self, descriptor: int) -> None:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise ParameterError("path", str(self.path), f"a {self.what} must be a regular file")
        is_new = self._identity is None
        if not is_new:
            self._check_same_file(descriptor, file_status)
        new_bytes = self._read(descriptor, self._size, file_status.st_size)
        *whole_lines, torn_line = new_bytes.split(b"\n")
        if whole_lines and not torn_line and b"\0" in whole_lines[-1]:
            # Blocks that a power cut left unwritten read as zeros.
            torn_line = whole_lines.pop() + b"\n"
        for whole_line in whole_lines:
            self._take_whole(whole_line)
        if self._count == 0:
            self._begin(descriptor, torn_line)
        elif torn_line:
            self._repair(descriptor, torn_line)
        if is_new:
            # Whoever made the file may have crashed before its name was durable.
            assert self.path is not None
            sync_folder(self.path.parent)
            self._identity = (file_status.st_dev, file_status.st_ino)

    def _check_same_file(self, descriptor: int, status: os.stat_result) -> None:
        """Raise FileFormatError unless the file is the one that was read, with all its lines."""
        if (status.st_dev, status.st_ino) != self._identity:
            raise self._damaged("was replaced by another file since it was read")
        last_line = self._read(descriptor, self._size - len(self._last))
        if status.st_size < self._size or last_line != self._last:
            raise self._damaged("lost or changed lines since it was read; restore them")

    def _read(
        self,
        descriptor: int,
        start: int,
        end: int | None = None,
    ) -> bytes:
        stop = self._size if end is None else end
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(start)
            return file.read(stop - start)

    def _take_whole(self, raw: bytes) -> None:
        log_line, line_chain = self._checked(raw)
        if self._count == 0:
            if log_line != _plain(self._header):
                raise self._damaged(
                    "is of another run, kind or version, or damaged in its first line; name "
                    "another place, or run it as it began"
                )
        elif log_line is None:
            raise self._damaged(
                f"line {self._count + 1} was edited or damaged; restore a copy of the file"
            )
        elif "repaired" not in log_line:
            try:
                self._take(log_line)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self._damaged(
                    f"line {self._count + 1} is unknown to this version ({error})"
                ) from None
        self._advance(raw + b"\n", line_chain)

    def _advance(self, raw: bytes, chain: str) -> None:
        self._last = raw
        self._chain = chain
        self._count += 1
        self._size += len(raw)

    def _checked(self, raw: bytes) -> tuple[JsonObject | None, str]:
        """The object of a line and its checksum; None when they do not fit."""
        # A line ends in ,"chain":"<checksum>"}.
        checksum_start = len(raw) - _CHECKSUM_DIGITS - 2
        key_start = checksum_start - len(_CHAIN_KEY)
        if key_start < 0 or raw[key_start:checksum_start] != _CHAIN_KEY or raw[-2:] != b'"}':
            return None, ""
        line_body = raw[:key_start] + b"}"
        line_chain = raw[checksum_start:-2].decode("ascii", "replace")
        if line_chain != _checksum(self._chain, line_body):
            return None, ""
        try:
            return parse_object(line_body, name=self.what), line_chain
        except FileFormatError:
            return None, ""

    # Writing --------------------------------------------------------------------------------------

    def _begin(self, descriptor: int, torn: bytes) -> None:
        header_bytes, header_chain = _encoded(self._header, self._chain)
        if torn:
            if not header_bytes.startswith(torn.rstrip(b"\0")):
                raise self._damaged("this is some other file")
            self._truncate(descriptor)
        self._write(descriptor, header_bytes)
        self._advance(header_bytes, header_chain)

    def _repair(self, descriptor: int, torn: bytes) -> None:
        """A crash cut the last line. Whole but for its newline, it counts; else nobody ever relied
        on it.
        """
        if self._checked(torn)[0] is not None:
            self._write(descriptor, b"\n")
            self._take_whole(torn)
            self._say(f"the last line lacked its end; it counts ({len(torn)} bytes)")
            return
        self._truncate(descriptor)
        self._say(
            f"a crash had cut its last line ({len(torn)} bytes, kept on record); it is set aside, "
            "for whatever wrote it was still waiting and had released nothing on it"
        )
        text = torn[:_RECORDED_BYTES].decode("ascii", "backslashreplace")
        self._append(descriptor, {"repaired": len(torn), "text": text})

    def _say(self, text: str) -> None:
        self.repairs.append(text)
        warnings.warn(
            f"{self.what} {Path(self.path or '').name}: {text}", RepairWarning, stacklevel=2
        )

    def _append(self, descriptor: int, *lines: JsonObject) -> None:
        encoded: list[tuple[bytes, str]] = []
        line_chain = self._chain
        for log_line in lines:
            line_bytes, line_chain = _encoded(log_line, line_chain)
            encoded.append((line_bytes, line_chain))
        try:
            self._write(descriptor, b"".join(line_bytes for line_bytes, _ in encoded))
        except StorageError:
            self._truncate(descriptor)
            raise
        for log_line, (line_bytes, line_chain) in zip(lines, encoded, strict=True):
            if "repaired" not in log_line:
                self._take(_plain(log_line))
            self._advance(line_bytes, line_chain)

    def _write(self, descriptor: int, raw: bytes) -> None:
        try:
            remaining = memoryview(raw)
            while remaining:
                written = os.write(descriptor, remaining)
                remaining = remaining[written:]
            os.fsync(descriptor)
        except OSError as error:
            raise self._failed(error) from None

    def _truncate(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, self._size)
            os.fsync(descriptor)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> StorageError:
        remedy = (
            f"the {self.what} cannot be written ({error.strerror}); "
            "nothing may be released until it can"
        )
        return StorageError("path", str(self.path), remedy)

    def _damaged(self, why: str) -> FileFormatError:
        return FileFormatError(f"{self.what} {Path(self.path or '').name}: {why}")


def _plain(line: JsonObject) -> JsonObject:
    """The line as it will be read back."""
    return parse_object(json.dumps(line, allow_nan=False), name="line")


def _checksum(chain: str, body: bytes) -> str:
    return hashlib.sha256(chain.encode() + body).hexdigest()[:_CHECKSUM_DIGITS]


def _encoded(line: JsonObject, chain: str) -> tuple[bytes, str]:
    """The bytes of a line that follows the one with that checksum, and its own checksum."""
    body = json.dumps(
        line,
        allow_nan=False,
        separators=(",", ":"),
    ).encode("ascii")
    checksum = _checksum(chain, body)
    return body[:-1] + _CHAIN_KEY + checksum.encode("ascii") + b'"}\n', checksum
