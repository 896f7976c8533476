"""The same blocks on a Ray cluster: Ray Data hands them to workers, and rows never pass through the driver.

Each block is one task. A worker that dies has its task run again by Ray, possibly while the first attempt still lives
somewhere. Attempts draw from keys of their own, so two of them make two different sets of reports about the same
rows; `PartWriter` sees to it that one of these at most ever gets a name in the output.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pickle
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from mezzotint.collect.counts import CodeCounts, Counter
from mezzotint.collect.drawing import Tally
from mezzotint.collect.runs import PartWriter
from mezzotint.collect.sources import Block
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.lazy import LazyModule

ray: Any = LazyModule("ray")
ray_data: Any = LazyModule("ray.data")
T = TypeVar("T")

RESULT = "result"
MAX_TASKS = 10_000
"""More blocks than this share tasks."""


def write_parts(writer: PartWriter, blocks: Sequence[Block], *, address: str | None) -> Iterator[Tally | None]:
    """`writer.write` of each block, on a cluster; results as they come."""
    yield from _each(writer.write, blocks, address)


def count_parts(counter: Counter, blocks: Sequence[Block], *, address: str | None) -> Iterator[CodeCounts]:
    """`counter.count` of each block, on a cluster; results as they come."""
    yield from _each(counter.count, blocks, address)


def _each(work: Callable[[Block], T], blocks: Sequence[Block], address: str | None) -> Iterator[T]:
    if importlib.util.find_spec("ray") is None:
        raise ParameterError("engine", "ray", "needs the extra: pip install 'mezzotint[ray]'")
    if not blocks:
        return
    with _cluster(address):
        described = ray_data.from_arrow(pa.table({"block": [pickle.dumps(_anywhere(block)) for block in blocks]}))
        tasks = described.repartition(min(len(blocks), MAX_TASKS)).map_batches(
            _Worker(work), batch_size=1, batch_format="pyarrow", zero_copy_batch=True
        )
        for batch in tasks.iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=0):
            outcome = pickle.loads(batch.column(RESULT)[0].as_py())
            if isinstance(outcome, MezzotintError):
                raise outcome
            yield outcome


def _anywhere(block: Block) -> Block:
    """The same block for a process with another working directory."""
    return replace(block, file=replace(block.file, path=os.path.abspath(block.file.path)))


class _Worker:
    """A function from blocks to results, as Ray Data wants it.

    What the user has to mend is handed back as a result: it would fail again on every retry, and the driver raises it
    as it is, instead of inside Ray's own error.
    """

    def __init__(self, work: Callable[[Block], Any]) -> None:
        self._work = work

    def __call__(self, batch: pa.Table) -> pa.Table:
        outcomes = []
        for description in batch.column("block").to_pylist():
            try:
                outcomes.append(self._work(pickle.loads(description)))
            except MezzotintError as error:
                outcomes.append(error)
        return pa.table({RESULT: pa.array([pickle.dumps(outcome) for outcome in outcomes], pa.binary())})


def _knock(address: str) -> None:
    """Raises ParameterError unless something listens at an address of host and port; Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto" and the like, which Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ParameterError("address", address, f"no Ray cluster answers there ({error})") from None


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """The cluster that this process is connected to, else the one named, else one started here and stopped after."""
    if ray.is_initialized():
        yield
        return
    named = address or os.environ.get("RAY_ADDRESS")
    if named is not None:
        _knock(named)
    options: dict[str, Any] = {"address": named} if named else {"address": "local", "include_dashboard": False}
    try:
        with warnings.catch_warnings():  # advice about devices, of which none are used
            warnings.simplefilter("ignore", FutureWarning)
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except ConnectionError as error:
        raise ParameterError("address", str(named), f"no Ray cluster answers there ({error})") from None
    context = ray_data.DataContext.get_current()
    logs = logging.getLogger("ray.data")
    before = context.enable_progress_bars, logs.level
    try:
        context.enable_progress_bars = False
        logs.setLevel(logging.ERROR)
        yield
    finally:
        context.enable_progress_bars = before[0]
        logs.setLevel(before[1])
        ray.shutdown()
