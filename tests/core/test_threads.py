"""Work over threads: every result, in order; none started for one."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from mezzotint.core.sampler import in_threads, usable_cores


def late(seconds: float, value: int) -> int:
    time.sleep(seconds)
    return value


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_tasks(threads: int) -> None:
    assert in_threads(
        [partial(late, 0.02 / (i + 1), i) for i in range(5)], threads=threads
    ) == list(range(5))


def test_one_thread_or_one_task_starts_none() -> None:
    here = threading.get_ident()
    assert in_threads([threading.get_ident] * 3, threads=1) == [here] * 3
    assert in_threads([threading.get_ident], threads=4) == [here]
    assert here not in in_threads([threading.get_ident] * 2, threads=2)
    assert in_threads([], threads=3) == []


def test_errors_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads([lambda: 1 // 0, lambda: 1], threads=2)


def test_there_is_a_core() -> None:
    assert usable_cores() >= 1
