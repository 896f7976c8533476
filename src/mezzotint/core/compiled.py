"""numba compilation that also works where the package may not write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")

_jit = cast(Any, numba).njit
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "boundscheck": False}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` compiled to machine code that runs without the GIL; the code is kept on disk where that is possible.

    numba keeps it beside the module, else in the user's cache folder, and raises when it can write to neither
    (a read-only installation run by a user without a home): then each process compiles for itself.
    """
    try:
        return _jit(cache=True, nogil=True, **_OPTIONS)(function)
    except RuntimeError:
        return _jit(nogil=True, **_OPTIONS)(function)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """`function` for use inside compiled ones of the same file only (their files' caches do not watch other files)."""
    return _jit(**_OPTIONS)(function)
