"""Where a condition ends: the one search by halving that the whole house shares; and descent from many starts.

A root of a smooth function is `scipy.optimize.brentq`'s; the first of many integers is `bisect.bisect_left`'s. Here is
what neither gives: both ends of the interval, so that the caller takes the one that rounds against him; and, beside
`scipy.optimize.minimize`, many minimisations side by side, where each call of the function is one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mezzotint.core.loss import FloatArray

Objective = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""(B, n) points to (B,) values and (B, n) derivatives."""


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


def descend(objective: Objective, points: FloatArray, steps: int) -> tuple[FloatArray, FloatArray]:
    """(B,) values and (B, n) points after BFGS from each of the points, side by side."""
    values, slopes = objective(points)
    inverse = np.tile(np.eye(points.shape[1]), (len(points), 1, 1))
    active = np.ones(len(points), dtype=bool)
    for _ in range(steps):
        direction = -np.einsum("bij,bj->bi", inverse, slopes)
        fall = (direction * slopes).sum(axis=1)
        uphill = fall >= 0
        direction[uphill], inverse[uphill] = -slopes[uphill], np.eye(points.shape[1])
        fall = (direction * slopes).sum(axis=1)
        length = np.minimum(1.0, 2.0 / np.maximum(np.abs(direction).max(axis=1), 1e-300))
        waiting = np.flatnonzero(active)
        moved, at, by = points.copy(), values.copy(), slopes.copy()
        for _ in range(12):
            if not waiting.size:
                break
            tried = points[waiting] + length[waiting, None] * direction[waiting]
            value, slope = objective(tried)
            good = value <= values[waiting] + 1e-4 * length[waiting] * fall[waiting]
            done = waiting[good]
            moved[done], at[done], by[done] = tried[good], value[good], slope[good]
            waiting = waiting[~good]
            length[waiting] /= 3
        step, change = moved - points, by - slopes
        active &= (values - at) > 1e-11
        curved = np.einsum("bi,bi->b", step, change)
        update = curved > 1e-14 * (step**2).sum(axis=1)
        rho = np.where(update, 1 / np.where(update, curved, 1.0), 0.0)
        turned = np.einsum("bij,bj->bi", inverse, change)
        inner = (turned * change).sum(axis=1)
        outer = step[:, :, None] * turned[:, None, :]
        inverse = (
            inverse
            - rho[:, None, None] * (outer + outer.transpose(0, 2, 1))
            + (rho**2 * inner + rho)[:, None, None] * step[:, :, None] * step[:, None, :]
        )
        points, values, slopes = moved, at, by
        if not active.any():
            break
    return values, points
