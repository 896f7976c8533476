"""numba compilation that also works where the package may not write, beside other processes, and when interrupted."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def uninterrupted() -> Generator[None]:
    """Puts an interrupt (Ctrl-C, a cancelled Ray task) off until the block has ended."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # only the main thread is interrupted, and only by a handler that raises
        return
    came: list[tuple[Any, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[-1])


# numba registers its types as a side effect of imports, of which it puts most off to the first compilation. Python
# forgets a module whose import was interrupted, numba's registries do not: the next try ends in "KeyError: duplicate
# registration", and so does every one after it, in a worker that is kept. Hence all of it at once and undisturbed.
with uninterrupted():
    import numba
    from numba.core import registry

    cast(Any, registry).cpu_target.typing_context.refresh()
    cast(Any, registry).cpu_target.target_context.refresh()

_jit = cast(Any, numba).njit
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "boundscheck": False}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` compiled to machine code that runs without the GIL; the code is kept on disk where that is possible.

    numba keeps it beside the module, else in the user's cache folder, and raises when it can write to neither
    (a read-only installation run by a user without a home): then each process compiles for itself.
    """
    try:
        dispatcher = _jit(cache=True, nogil=True, **_OPTIONS)(function)
    except RuntimeError:
        return _jit(nogil=True, **_OPTIONS)(function)
    _name_files_apart(dispatcher)
    return dispatcher


def inlined(function: Callable[P, R], *, reorder: bool = False) -> Callable[P, R]:
    """`function` for use inside compiled ones of the same file only (their files' caches do not watch other files).

    Arguments:
        reorder: sums may be taken in any order, which lets them run in lanes.
    """
    return _jit(**_OPTIONS, **({"fastmath": {"reassoc"}} if reorder else {}))(function)


def _name_files_apart(dispatcher: Any) -> None:
    """Code is kept under a name that no other process gives.

    numba numbers the files of one function's signatures by counting. Two processes that compile for two types at the
    same time both take the number 1, and later runs load the code of one type for the other.
    """
    file = dispatcher._cache._cache_file
    counted = file._data_name

    def apart(number: int) -> str:
        return f"{counted(number).removesuffix('.nbc')}.{uuid.uuid4().hex[:16]}.nbc"

    file._data_name = apart
