"""The loops that turn inputs and random words into reports: one for each way of finding an input's segment.

Per element: clip; find the segment and T = round(t 2^32); take the segment's right row if the high half of the word is
below T, else its left row; then the level that the low half names in that row's alias cells. Every element takes the
same steps and nothing branches on a value: conditional expressions compile to selects. NaN is counted and treated as
`lower`, so that no index leaves its table; the caller throws the reports away then. A test reads the machine code for
branches on floating-point comparisons.
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numba import types
from numba.extending import intrinsic

_intrinsic = cast(Any, intrinsic)
_types = cast(Any, types)

_TABLES, _STREAMS = "tables", "streams"


def _scope(module: Any, name: str) -> Any:
    domain = module.add_metadata(["mezzotint"])
    scope = module.add_metadata([name, domain])
    return module.add_metadata([scope])


def _mark(module: Any, access: Any, mine: str, other: str) -> None:
    access.set_metadata("alias.scope", _scope(module, mine))
    access.set_metadata("noalias", _scope(module, other))


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _reader(mine: str, other: str) -> Any:
    def read(_typing: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_address(context, builder, signature.args[0], *arguments))
            _mark(builder.module, value, mine, other)
            return value

        return array.dtype(array, index), generate

    return read


def _writer(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments[:2])
        _mark(builder.module, builder.store(arguments[2], address), _STREAMS, _TABLES)
        return context.get_dummy_value()

    return _types.void(array, index, array.dtype), generate


look_up: Any = _intrinsic(_reader(_TABLES, _STREAMS))
"""look_up(table, index): an entry of a contiguous 1-D table that no stream overlaps; index is int64, unchecked."""

take: Any = _intrinsic(_reader(_STREAMS, _TABLES))
"""take(stream, index): an element of a contiguous 1-D input; index is int64, unchecked."""

put: Any = _intrinsic(_writer)
"""put(stream, index, value): stores into a contiguous 1-D output."""


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


UNIT = 4294967296.0  # 2^32: what t is counted in
WHOLE = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@inlined
def _clip(value: Any, lower: Any, upper: Any) -> Any:
    # Written so that NaN fails the first comparison and becomes `lower`.
    value = value if value >= lower else lower
    return value if value <= upper else upper


@inlined
def _level(cells: Any, segment: Any, threshold: Any, word: Any, bits: Any) -> Any:
    row = (segment << 1) | (np.int64(word >> HALF) < threshold)
    low = word & WHOLE
    cell = low >> np.uint64(32 - bits)
    ones = np.uint64((1 << bits) - 1)
    entry = np.uint64(look_up(cells, (row << bits) | np.int64(cell)))
    # The entry is threshold above alias: u << b | ones < threshold << b | alias exactly when u < threshold.
    return cell if (((low << np.uint64(bits)) & WHOLE) | ones) < entry else entry & ones


@compiled
def draw_uniform(
    x: Any, words: Any, codes: Any, lower: Any, upper: Any, scale: Any, last: Any, cells: Any, bits: Any
) -> Any:
    """Evenly spaced knots: the segment and t are the whole and the broken part of one number. No table but the cells.

    Arguments:
        x, words, codes: contiguous, as many elements each; `codes` is overwritten.
        lower, upper: range of inputs.
        scale: segments per data unit.
        last: index of the last segment.
        cells: flat, 2**bits per row, left and right row of every segment.
        bits: bits of one report.

    Returns: how many inputs lay below, above, and were NaN.
    """
    below = above = nans = 0
    for i in range(x.size):
        given = np.float64(take(x, i))
        below += given < lower
        above += given > upper
        nans += given != given
        position = (_clip(given, lower, upper) - lower) * scale
        segment = np.int64(position)
        segment = segment if segment < last else last
        threshold = np.int64((position - segment) * UNIT + 0.5)
        put(codes, i, _level(cells, segment, threshold, take(words, i), bits))
    return below, above, nans


@compiled
def draw_bucketed(
    x: Any,
    words: Any,
    codes: Any,
    lower: Any,
    upper: Any,
    scale: Any,
    first: Any,
    split: Any,
    slope: Any,
    cells: Any,
    bits: Any,
) -> Any:
    """At most one knot in each of many even buckets: one compare with it tells the segment.

    Arguments, beyond those of `draw_uniform`:
        scale: buckets per data unit.
        split: per bucket the knot in it, or the left end of the only segment there.
        first: per bucket the segment on the left of `split`.
        slope: 2**32 / width, per segment.
    """
    below = above = nans = 0
    for i in range(x.size):
        given = np.float64(take(x, i))
        below += given < lower
        above += given > upper
        nans += given != given
        value = _clip(given, lower, upper)
        bucket = np.int64((value - lower) * scale)
        knot = look_up(split, bucket)
        right = value >= knot
        segment = np.int64(look_up(first, bucket)) + right
        # Counted from the knot: up from 0 on its right, down from 1 on its left.
        threshold = np.int64((value - knot) * look_up(slope, segment) + (0.5 if right else UNIT + 0.5))
        put(codes, i, _level(cells, segment, threshold, take(words, i), bits))
    return below, above, nans


@compiled
def draw_searched(
    x: Any,
    words: Any,
    codes: Any,
    lower: Any,
    upper: Any,
    steps: Any,
    start: Any,
    slope: Any,
    cells: Any,
    bits: Any,
) -> Any:
    """Any knots: a binary search of `steps` halvings, the same for every input.

    Arguments, beyond those of `draw_uniform`:
        steps: 2**steps >= number of segments.
        start: left ends of the segments, then inf up to 2**steps entries.
        slope: 2**32 / width, per segment.
    """
    below = above = nans = 0
    for i in range(x.size):
        given = np.float64(take(x, i))
        below += given < lower
        above += given > upper
        nans += given != given
        value = _clip(given, lower, upper)
        segment = np.int64(0)
        for step in range(steps - 1, -1, -1):
            # Arithmetic on the comparison: a conditional expression became a branch here.
            half = np.int64(1) << step
            segment += half * np.int64(value >= look_up(start, segment + half))
        threshold = np.int64((value - look_up(start, segment)) * look_up(slope, segment) + 0.5)
        put(codes, i, _level(cells, segment, threshold, take(words, i), bits))
    return below, above, nans


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(tasks: Sequence[Callable[[], R]], *, threads: int) -> list[R]:
    """The tasks' results in order, at most `threads` at work at a time; with one, no thread is started.

    Tasks gain only where they release the interpreter. A pool per call costs some 0.1 ms and, unlike a lasting one,
    cannot be broken by a fork.
    """
    if min(threads, len(tasks)) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(max_workers=min(threads, len(tasks))) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]
