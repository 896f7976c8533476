"""Work counted in calls, the same on every machine; seconds are measured in benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(work: Callable[[], Any]) -> int:
    """Calls of Python and C functions that `work` makes: loops written out in Python show, those in numpy do not."""
    counted, outer = 0, sys.getprofile()

    def see(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(outer)
    return counted
