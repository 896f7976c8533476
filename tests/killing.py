"""Runs that die before their k-th change of a file, or in the middle of a write: every k can be tried.

Or whose k-th change fails, as on a full disk.

A process of its own loads the package once and forks for every run: what dies there is a fresh run each time.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run ended.

    Arguments:
        status: its exit status; None when it was killed.
        changes: of files, that it made when it was not.
        output: what it printed.
    """

    status: int | None
    changes: int
    output: str


class Runs:
    """Forks runs of one function.

    Arguments:
        call: "module:function", called with a run's words. Its return value is the exit status.
        counted: "module:Class.method" of which every call adds a byte to the file `marks`, before it is made.
        loads: modules that runs would import, loaded once instead.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextlib.contextmanager
    def of(
        cls, call: str, *, counted: str = "", marks: Path | None = None, loads: Sequence[str] = ()
    ) -> Iterator[Runs]:
        command = [sys.executable, __file__, call, counted, str(marks or ""), *loads]
        path = os.pathsep.join([*filter(None, sys.path)])
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        ) as process:
            yield cls(process)
            assert process.stdin is not None
            process.stdin.close()

    def __call__(self, *words: object, at: int = 0, torn: bool = False, fails: int = 0) -> Ended:
        """Runs to the end, or until its `at`-th change (from 1 on); `torn`: half of it is made if it is a write.

        With an error number in `fails` the run is not killed there, but that change fails with it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps([[str(word) for word in words], at, torn, fails]) + "\n"
        )
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


def _found(name: str) -> tuple[Any, str]:
    module, _, path = name.partition(":")
    *owners, last = path.split(".")
    return functools.reduce(getattr, owners, importlib.import_module(module)), last


def _count(name: str, marks: str) -> None:
    owner, last = _found(name)
    method, descriptor = (
        getattr(owner, last),
        os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
    )
    write = os.write

    @functools.wraps(method)
    def marked(*args: Any, **words: Any) -> Any:
        write(descriptor, b"x")
        return method(*args, **words)

    setattr(owner, last, marked)


def _watched(run: Callable[[], int], at: int, torn: bool, fails: int) -> None:
    """Makes the run in this process, and ends it."""
    write, sync, changes = os.write, os.fsync, 0

    def change() -> None:
        nonlocal changes
        changes += 1
        if changes == at and fails:
            raise OSError(fails, os.strerror(fails))
        if changes == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def see(event: str, words: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(words[0], (str, bytes, os.PathLike))
        if event in CHANGES or (opened and isinstance(words[2], int) and words[2] & WRITING):
            change()

    def watched_write(descriptor: int, data: Any) -> int:
        if descriptor > 2:
            if torn and changes + 1 == at:
                write(descriptor, bytes(data)[: max(1, len(data) // 2)])
            change()
        return write(descriptor, data)

    def watched_sync(descriptor: int) -> None:
        change()
        sync(descriptor)

    os.write, os.fsync = watched_write, watched_sync  # pyright: ignore[reportAttributeAccessIssue]
    sys.addaudithook(see)
    status = 99
    try:
        status = run()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # the parent shows it
        traceback.print_exc()
    at = 0  # what the interpreter writes at its end is no change
    sys.stdout.flush()
    sys.stderr.flush()
    write(1, f"\n{changes}".encode())
    os._exit(int(status or 0))


def _fork(run: Callable[[], int], at: int, torn: bool, fails: int) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        _watched(run, at, torn, fails)
    os.close(writing)
    with open(reading, "rb") as file:
        output = file.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"status": None, "changes": at, "output": output}
    output, _, changes = output.rpartition("\n")
    return {"status": os.WEXITSTATUS(status), "changes": int(changes), "output": output}


def _serve(call: str, counted: str, marks: str, *loads: str) -> None:
    owner, last = _found(call)
    for name in loads:
        importlib.import_module(name)
    if counted:
        _count(counted, marks)
    for line in sys.stdin:
        words, at, torn, fails = json.loads(line)
        print(
            json.dumps(_fork(lambda words=words: getattr(owner, last)(words), at, torn, fails)),
            flush=True,
        )


if __name__ == "__main__":
    _serve(*sys.argv[1:])
