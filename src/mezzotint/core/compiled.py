"""numba compilation that also works where the package may not write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` compiled to machine code that runs without the GIL; the code is kept on disk where that is possible.

    numba keeps it beside the module, else in the user's cache folder, and raises when it can write to neither
    (a read-only installation run by a user without a home): then each process compiles for itself.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    jit = cast(Any, numba).njit
    try:
        return jit(cache=True, **options)(function)
    except RuntimeError:
        return jit(**options)(function)
