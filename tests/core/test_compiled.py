"""Compilation survives interrupts and other processes."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from mezzotint.core.kernels import uninterrupted

INTERRUPTED = """
import signal, sys, _thread
signal.signal(signal.SIGINT, signal.default_int_handler)

def lines(frame, event, argument):
    if event == "line" and frame.f_lineno > 300 and not hits:
        hits.append(frame.f_lineno)
        _thread.interrupt_main()
    return lines

def calls(frame, event, argument):
    module = frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__")
    return lines if module == sys.argv[1] else None

hits = []
sys.settrace(calls)
for attempt in range(2):
    try:
        from mezzotint import families
        mechanism = families.randomized_response(lower=0, upper=1, epsilon=1.0)
        print(len(mechanism.privatize([0.5] * 10)), len(hits))
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize(
    "module", ["numba.np.arraymath", "numba.cpython.unicode"]
)  # with numba itself, and later
def test_an_interrupted_first_use_does_not_spoil_later_ones(module: str) -> None:
    """numba's imports, cut off half-way, could never be repeated: KeyError, duplicate registration."""
    words = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["interrupted", "10 1"], done.stderr


def test_an_interrupt_comes_after_the_block_and_the_handler_is_back() -> None:
    reached = []

    def interrupted() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end")

    # A shell that starts the tests in the background has told them to ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached == ["the end"]


def test_threads_other_than_the_main_one_leave_handlers_alone() -> None:
    seen = []

    def inside() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_processes_that_compile_at_once_do_not_take_each_others_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "doubling.py"
    path.write_text(
        "from mezzotint.core.kernels import compiled\n\n@compiled\ndef double(x):\n    return 2 * x\n"
    )
    ints, floats = _module(path).double, _module(path).double
    # As if each had read the index before the other wrote it.
    for one in (ints, floats):
        monkeypatch.setattr(one._cache._cache_file, "_load_index", dict)
    assert ints(3) == 6
    assert floats(1.5) == 3.0
    later = _module(path).double
    assert later(1.5) == 3.0
    assert later(3) == 6
    assert (
        sum(later.stats.cache_hits.values()) == 1
    )  # of one of the two; the other's entry in the index was lost
