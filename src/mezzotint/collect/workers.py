"""Blocks of a data set, worked on by threads of this machine or by tasks of a Ray cluster.

A worker that dies has its task run again by Ray, possibly while the first attempt still lives
somewhere.

Plain tasks, not Ray Data's `map_batches`: when one block fails, the threads that Ray Data left
behind asked the cluster for more after it was shut down, and Ray then ends the whole process
without a word.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from mezzotint.collect.listing import is_remote
from mezzotint.collect.settings import Settings
from mezzotint.collect.source import Block
from mezzotint.core import not_installed
from mezzotint.core.errors import MezzotintError, ParameterError

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds that cancelled blocks have to end."""


def each_block(
    work: Callable[[Block], T],
    blocks: Sequence[Block],
    settings: Settings,
) -> Generator[T]:
    """The results of `work` for each block, as they come; the first failure stops the rest. The
    caller closes it.
    """
    if settings.engine == "ray":
        return on_cluster(work, blocks, settings.address)
    return in_threads(work, blocks, settings.workers)


def in_threads(work: Callable[[Block], T], blocks: Sequence[Block], threads: int) -> Generator[T]:
    """The same on this machine."""
    if threads == 1:
        yield from map(work, blocks)
        return
    with ThreadPoolExecutor(max_workers=threads) as pool:
        tasks = [pool.submit(work, block) for block in blocks]
        try:
            for task in as_completed(tasks):
                yield task.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def on_cluster(
    work: Callable[[Block], T],
    blocks: Sequence[Block],
    address: str | None,
) -> Generator[T]:
    """The same on a cluster."""
    if importlib.util.find_spec("ray") is None:
        raise ParameterError("engine", "ray", not_installed("ray", "ray"))
    import ray

    if not blocks:
        return
    with _cluster(address):
        # As Ray Data does: a dead worker's block is begun again, however often that takes.
        remote = ray.remote(max_retries=-1)(outcome_of)
        shared = ray.put(work)
        running = [remote.remote(shared, _wherever(block)) for block in blocks]
        try:
            while running:
                (ready, *_), running = ray.wait(running)
                outcome = ray.get(ready)
                if isinstance(outcome, MezzotintError):
                    raise outcome
                yield outcome
        finally:
            for task in running:  # nobody waits for them any more
                ray.cancel(task)
            if running:
                ray.wait(
                    running,
                    num_returns=len(running),
                    timeout=PATIENCE,
                    fetch_local=False,
                )


def _wherever(block: Block) -> Block:
    """The block, for workers that have another working folder."""
    if is_remote(block.file.path):
        return block
    file_path = os.path.abspath(block.file.path)
    return replace(block, file=replace(block.file, path=file_path))


def outcome_of(work: Callable[[Block], T], block: Block) -> T | MezzotintError:
    """A worker's task. What the user has to mend is returned: the driver raises it as it is, not as
    Ray's error.
    """
    try:
        return work(block)
    except MezzotintError as error:
        return error


def _require_listener(address: str) -> None:
    """Raises ParameterError unless something listens at an address of host and port; Ray would try
    for minutes.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto" and the like, which Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        remedy = f"no Ray cluster answers there ({error}); start it"
        raise ParameterError("address", address, remedy) from None


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """The cluster that this process is connected to, else the one named, else one started here and
    stopped after.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    named = address or os.environ.get("RAY_ADDRESS")
    if named is not None:
        _require_listener(named)
    try:
        with warnings.catch_warnings():  # advice about devices, of which none are used
            warnings.simplefilter("ignore", FutureWarning)
            # Of a cluster that runs already, Ray takes no such option at all.
            dashboard = None if named else False
            ray.init(
                address=named or "local",
                include_dashboard=dashboard,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except ConnectionError as error:
        remedy = f"no Ray cluster answers there ({error}); start it"
        raise ParameterError("address", str(named), remedy) from None
    try:
        yield
    finally:
        ray.shutdown()
