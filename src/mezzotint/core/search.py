"""Where a condition ends: the one search by halving that the whole house shares.

A root of a smooth function is `scipy.optimize.brentq`'s; the first of many integers is `bisect.bisect_left`'s. Here is
what neither gives: both ends of the interval, so that the caller takes the one that rounds against him.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def bracket(
    holds: Callable[[float], bool],
    good: float,
    bad: float,
    *,
    tolerance: float = 0.0,
    steps: int = 100,
    geometric: bool = False,
) -> tuple[float, float]:
    """The end of the points at which a condition holds, between two neighbours of it.

    Arguments:
        holds: the condition; true near `good`, false near `bad`, with one change between them.
        good: an end at which it holds, not asked again; above or below `bad`.
        bad: the other end, not asked either.
        tolerance: width to stop at, relative to the larger end; 0 goes on to neighbouring floats.
        steps: halvings at most.
        geometric: halve the ratio instead of the difference; both ends are positive.

    Returns: (good, bad), nearer to each other. Each is an end that was given or a point that was asked: the first held,
        the second did not, whatever the condition does elsewhere.

    Example:
        >>> bracket(lambda x: x * x <= 2, 0.0, 2.0, tolerance=1e-3)
        (1.4140625, 1.4150390625)
    """
    for _ in range(steps):
        if abs(bad - good) <= tolerance * max(abs(good), abs(bad)):
            break
        middle = math.sqrt(good) * math.sqrt(bad) if geometric else good + (bad - good) / 2
        if middle in (good, bad):
            break
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good, bad
