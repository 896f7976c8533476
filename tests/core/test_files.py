"""Files that survive: folders synced, locks that exclude, logs cut at every byte."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mezzotint import FileFormatError, ParameterError
from mezzotint.core import files
from mezzotint.core.errors import StorageError
from mezzotint.core.files import AppendLog, RepairWarning, locked, publish, replacing

HEADER = {"format": "test", "version": 1}


class Numbers:
    """A log of numbers."""

    def __init__(self, path: Path | None, header: dict[str, Any] = HEADER, **options: Any) -> None:
        self.seen: list[int] = []
        self.log = AppendLog(
            path, header=header, take=lambda line: self.seen.append(line["number"]), **options
        )

    def add(self, *numbers: int) -> None:
        with self.log.transaction() as append:
            for number in numbers:
                append({"number": number})


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, in turn: "file" or "folder"."""
    kinds: list[str] = []
    whole = os.fsync

    def spy(descriptor: int) -> None:
        kinds.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        whole(descriptor)

    monkeypatch.setattr(files.os, "fsync", spy)
    return kinds


@contextmanager
def repaired() -> Iterator[None]:
    with pytest.warns(RepairWarning):
        yield


# Whole files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_file_is_durable_only_with_its_folder(
    tmp_path: Path, synced: list[str], overwrite: bool
) -> None:
    for _ in range(1 + overwrite):
        synced.clear()
        with replacing(tmp_path / "a", overwrite=overwrite) as temporary:
            temporary.write_text("x")
        assert synced == ["file", "folder"]


@pytest.mark.parametrize("letter", ["a", "\u00fc", "\U0001f980"])
def test_a_file_may_have_the_longest_name_that_there_is(tmp_path: Path, letter: str) -> None:
    """Its draft then has a shorter one."""
    name = letter * (os.pathconf(tmp_path, "PC_NAME_MAX") // len(os.fsencode(letter)))
    for text in ("first", "second"):
        with replacing(tmp_path / name, overwrite=True) as temporary:
            temporary.write_text(text)
        assert [path.read_text() for path in tmp_path.iterdir()] == [text]


def test_folders_that_cannot_be_synced_are_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, answer = os.fsync, errno.EINVAL

    def refuse(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(answer, os.strerror(answer))
        whole(descriptor)

    monkeypatch.setattr(files.os, "fsync", refuse)
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("x")
    answer = errno.EIO
    with pytest.raises(OSError, match="Input/output"), replacing(tmp_path / "b") as temporary:
        temporary.write_text("x")


def test_of_many_drafts_one_gets_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, linked in enumerate([True, False]):
        if not linked:  # as on a file system without hard links
            monkeypatch.setattr(
                files.os, "link", lambda *_: (_ for _ in ()).throw(PermissionError())
            )
        drafts = [tmp_path / f"{number}-draft-{place}" for place in range(3)]
        for draft in drafts:
            draft.write_text(draft.name)
        assert [publish(draft, tmp_path / f"{number}") for draft in drafts] == [True, False, False]
        assert (tmp_path / f"{number}").read_text() == drafts[0].name


# Locks -----------------------------------------------------------------------------------------------------------


def test_a_lock_excludes_other_descriptors_of_the_same_process_too(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    with path.open("rb") as first, path.open("rb") as second:
        busy = pytest.raises(StorageError, match="in use by another process")
        with locked(first.fileno(), path), busy, locked(second.fileno(), path, wait=0):
            pass
        with locked(second.fileno(), path, wait=0):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_without_locks_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    # As a network file system without a lock daemon answers.
    numbers = Numbers(tmp_path / "log")
    before = (tmp_path / "log").read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.fcntl, "flock", fail)
    with pytest.raises(StorageError, match=r"no locks.*local disk"):
        numbers.add(1)
    assert (tmp_path / "log").read_bytes() == before
    assert numbers.seen == []


def test_a_forked_child_does_not_keep_a_lock(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "log", wait=0.5)
    with numbers.log.transaction():
        child = os.fork()
        if child == 0:  # shares the descriptor, and the lock with it
            signal.pause()
            os._exit(0)
    try:
        numbers.add(1)
        assert Numbers(tmp_path / "log", wait=0.5).seen == [1]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_whoever_waits_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, second = Numbers(path), Numbers(path, wait=0.05)
    with first.log.transaction() as append:
        append({"number": 1})
        with pytest.raises(StorageError, match="in use"):
            second.add(2)
    second.add(2)
    first.log.refresh()
    assert first.seen == second.seen == [1, 2]


# Logs ------------------------------------------------------------------------------------------------------------


def test_lines_are_durable_before_append_returns_and_so_is_the_name(
    tmp_path: Path, synced: list[str]
) -> None:
    numbers = Numbers(tmp_path / "log")
    assert synced == ["file", "folder"]
    numbers.add(1)
    assert synced == ["file", "folder", "file"]
    # A file that another process made and crashed over: its name may not be durable yet.
    synced.clear()
    Numbers(tmp_path / "log")
    assert synced == ["folder"]


def test_writers_take_turns_and_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logs = [Numbers(path) for _ in range(3)]
    for number in range(30):
        logs[number % 3].add(number)
    for one in logs:
        one.log.refresh()
        assert one.seen == list(range(30))
    assert Numbers(path).seen == list(range(30))


def test_threads_lose_nothing(tmp_path: Path) -> None:
    path, shared = tmp_path / "log", Numbers(tmp_path / "log")

    def work(start: int) -> None:
        own = Numbers(path)
        for number in range(start, start + 20):
            (own if number % 2 else shared).add(number)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 80, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(Numbers(path).seen) == list(range(80))


def test_cut_at_every_byte_it_keeps_what_was_synced_says_so_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    numbers, sizes = Numbers(path), []
    for number in range(5):
        numbers.add(number)
        sizes.append(path.stat().st_size)
    raw = path.read_bytes()
    ends = {raw.index(b"\n") + 1, *sizes}
    for zeros in (0, 7):  # a file system may have lengthened the file before it wrote the blocks
        for point in range(0, len(raw) + 1, 5 if zeros else 1):
            path.write_bytes(raw[:point] + bytes(zeros))
            due = list(range(sum(size <= point for size in sizes)))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                cut = Numbers(path)
            # The newline alone may be missing: then the line counts too.
            assert cut.seen in (due, [*due, len(due)] if zeros == 0 and point + 1 in sizes else due)
            whole = point in ends or (point == 0) or (point < min(ends))
            assert [one.category for one in caught] == (
                [] if whole and not zeros else [RepairWarning] * len(caught)
            )
            assert len(cut.log.repairs) == len(caught)
            if point > min(ends) and not (whole and not zeros):
                assert caught
            again = Numbers(path)  # repaired once, for good
            assert (again.seen, again.log.repairs) == (cut.seen, [])
            again.add(99)
            assert Numbers(path).seen == [*cut.seen, 99]


def test_a_block_that_a_power_cut_left_as_zeros_is_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    numbers = Numbers(path)
    numbers.add(1)
    before = path.stat().st_size
    numbers.add(2)
    raw = bytearray(path.read_bytes())
    raw[before : before + 10] = bytes(10)
    path.write_bytes(raw)
    with repaired():
        assert Numbers(path).seen == [1]


def test_the_torn_text_is_kept_on_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Numbers(path).add(1)
    with path.open("ab") as file:
        file.write(b'{"number":7')
    with repaired():
        Numbers(path)
    line = json.loads(path.read_bytes().splitlines()[-1])
    assert (line["repaired"], line["text"]) == (11, '{"number":7')


def test_edits_lost_lines_and_lines_put_in_by_hand_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Numbers(path).add(10, 20, 30)
    lines = path.read_bytes().split(b"\n")
    for spoiled in (
        [lines[0], lines[1].replace(b"10", b"11"), *lines[2:]],
        [*lines[:3], lines[3].replace(b"30", b"03"), b""],
        [lines[0], *lines[2:]],
        [lines[0], lines[2], lines[1], *lines[3:]],
        [*lines[:2], lines[1], *lines[2:]],
        [*lines[:4], b'{"number":40}', b""],
        [*lines[:2], b"", *lines[2:]],
        [lines[0].replace(b"test", b"tset"), *lines[1:]],
        [b"not a log"],
        [b"not a log", b""],
    ):
        path.write_bytes(b"\n".join(spoiled))
        with pytest.raises(FileFormatError, match="log"):
            Numbers(path)
        assert path.read_bytes() == b"\n".join(spoiled)
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(FileFormatError, match="another run, kind or version"):
        Numbers(path, {"format": "test", "version": 2})


def test_a_line_of_unknown_meaning_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    numbers = Numbers(path)
    numbers.add(1)
    other = AppendLog(path, header=HEADER, take=lambda line: None)
    with other.transaction() as append:
        append({"letter": "a"})
    with pytest.raises(FileFormatError, match="line 3 is unknown"):
        Numbers(path)


@pytest.mark.parametrize("what", ["shorter", "edited", "gone", "replaced"])
def test_a_file_that_changes_under_its_reader_is_not_written_on(tmp_path: Path, what: str) -> None:
    path = tmp_path / "log"
    numbers = Numbers(path)
    numbers.add(10)
    numbers.add(20)
    raw = path.read_bytes()
    if what == "gone":
        path.unlink()
    elif what == "replaced":
        (tmp_path / "copy").write_bytes(raw)
        os.replace(tmp_path / "copy", path)
    else:
        path.write_bytes(raw[:-60] if what == "shorter" else raw.replace(b"20", b"02"))
    with pytest.raises(ParameterError if what == "gone" else FileFormatError):
        numbers.add(30)
    assert not path.exists() or b"30}" not in path.read_bytes()


def test_an_empty_file_is_a_new_log_and_other_things_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    Numbers(tmp_path / "log").add(1)
    with pytest.raises(ParameterError, match="create it first"):
        Numbers(tmp_path / "no" / "log")
    with pytest.raises(ParameterError, match="regular file"):
        Numbers(tmp_path)
    with pytest.raises(ParameterError, match="regular file"):
        Numbers(Path("/dev/full"))


def test_in_memory_it_is_the_same_log_without_a_file() -> None:
    numbers = Numbers(None)
    numbers.add(1, 2)
    numbers.log.refresh()
    assert numbers.seen == [1, 2]


@contextmanager
def room(size: int) -> Iterator[None]:
    """Files cannot grow beyond a size: a disk that is full after so many bytes, in the middle of a line too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_has_a_name_and_leaves_a_sound_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    numbers = Numbers(path)
    numbers.add(1)
    size = path.stat().st_size
    for left in range(0, 30, 3):
        with room(size + left), pytest.raises(StorageError, match="nothing may be released"):
            numbers.add(2)
        assert path.stat().st_size == size
    assert numbers.seen == [1]
    numbers.add(3)
    assert Numbers(path).seen == numbers.seen == [1, 3]
    with room(5), pytest.raises(StorageError):
        Numbers(tmp_path / "new")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepairWarning)
        assert Numbers(tmp_path / "new").seen == []


def failing(*codes: int | None) -> Callable[[int], None]:
    """An fsync that fails with the codes in turn, None succeeding."""
    left, whole = list(codes), os.fsync

    def fsync(descriptor: int) -> None:
        code = left.pop(0) if left else None
        if code is not None:
            raise OSError(code, os.strerror(code))
        whole(descriptor)

    return fsync


def test_a_disk_that_fails_to_sync_counts_the_line_or_forgets_it_but_never_says_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    numbers = Numbers(path)
    numbers.add(1)
    monkeypatch.setattr(files.os, "fsync", failing(errno.EIO))
    with pytest.raises(StorageError, match="Input/output"):
        numbers.add(2)
    assert Numbers(path).seen == [1]
    # Not even the cut works: the line stays, and is counted from then on.
    monkeypatch.undo()
    monkeypatch.setattr(files.os, "fsync", failing(errno.EIO))
    monkeypatch.setattr(
        files.os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken"))
    )
    with pytest.raises(StorageError):
        numbers.add(2)
    monkeypatch.undo()
    numbers.add(3)
    assert numbers.seen == Numbers(path).seen == [1, 2, 3]


def test_a_read_only_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The superuser, who may run the tests, writes into any folder; a file system mounted read-only stops him too.
    def refuse(*_: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files.os, "open", refuse)
    with pytest.raises(StorageError, match=r"cannot be written \(Read-only"):
        Numbers(tmp_path / "log")


WORK = """
import os, sys
from mezzotint.core.files import AppendLog
start, seen = int(sys.argv[2]), []
log = AppendLog(sys.argv[1], header={"format": "test", "version": 1}, take=lambda line: seen.append(line["number"]))
for number in range(start, start + int(sys.argv[3])):
    with log.transaction() as append:
        append({"number": number})
    os.write(1, b"%d\\n" % number)
"""


def start(path: Path, first: int, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", "-c", WORK, str(path), str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    workers = [start(path, first, 100) for first in range(0, 400, 100)]
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    assert sorted(Numbers(path).seen) == list(range(400))


def test_killed_processes_keep_what_they_were_told_was_written(tmp_path: Path) -> None:
    path, told, first = tmp_path / "log", set[int](), 0
    for kill in range(12):
        workers = [start(path, first + 10**6 * place, 10**6) for place in range(2)]
        first += 10**7
        for place, worker in enumerate(workers):
            assert worker.stdout is not None
            heard = b"".join(worker.stdout.readline() for _ in range(1 + (7 * kill + place) % 9))
            worker.send_signal(signal.SIGKILL)
            heard += worker.stdout.read()
            worker.wait()
            worker.stdout.close()
            told |= {int(number) for number in heard.split(b"\n")[:-1]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepairWarning)
        seen = Numbers(path).seen
    assert len(told) >= 24
    assert told <= set(seen)
    assert len(seen) == len(set(seen))


def test_a_signal_handler_that_comes_back_is_turned_away(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "log", wait=0.05)

    def interrupt(*_: Any) -> None:
        numbers.add(2)

    def work() -> None:
        with numbers.log.transaction() as append:
            append({"number": 1})
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(StorageError, match="by this process"):
            work()
    finally:
        signal.signal(signal.SIGUSR1, before)
    numbers.add(3)
    assert Numbers(tmp_path / "log").seen == [1, 3]


def test_many_lines_are_one_write(tmp_path: Path, synced: list[str]) -> None:
    numbers = Numbers(tmp_path / "log")
    synced.clear()
    with numbers.log.transaction() as append:
        append(*({"number": number} for number in range(1000)))
    assert synced == ["file"]
    assert Numbers(tmp_path / "log").seen == numbers.seen == list(range(1000))
