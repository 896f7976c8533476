"""Where a condition stops holding: the one bisection that all rooms share; and descent from many
starts.

For a root of a smooth function use `scipy.optimize.brentq`; for the first of many integers,
`bisect.bisect_left`. This
module adds what they lack: both ends of the interval, so that callers can take the one that rounds
against them; and, unlike `scipy.optimize.minimize`, many minimisations side by side, in which each
call of the function is one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mezzotint.core.types import FloatArray

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
    """Narrows down where a condition stops holding.

    Arguments:
        holds: the condition; true near `good`, false near `bad`, with one change between them.
        good: an end at which it holds, not evaluated again; above or below `bad`.
        bad: the other end, not evaluated either.
        tolerance: width to stop at, relative to the larger end; 0 goes on to neighbouring floats.
        steps: halvings at most.
        geometric: halve the ratio instead of the difference; both ends are positive.

    Returns: (good, bad), closer together. Each is a given end or an evaluated point: the condition
        held at the first and not at the second, whatever it does elsewhere.

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
        tries = 12
        while waiting.size and tries:
            # As many lengths at once as a call for all points would take: the first that is good
            # counts.
            ahead = min(tries, len(points) // waiting.size)
            lengths = length[waiting, None] / 3.0 ** np.arange(ahead)
            tried = points[waiting, None] + lengths[:, :, None] * direction[waiting, None]
            value, slope = (
                found.reshape(*lengths.shape, *found.shape[1:])
                for found in objective(tried.reshape(-1, points.shape[1]))
            )
            good = value <= values[waiting, None] + 1e-4 * lengths * fall[waiting, None]
            found, first = good.any(axis=1), good.argmax(axis=1)[:, None]
            done, first = waiting[found], first[found, 0]
            moved[done], at[done], by[done] = (
                tried[found, first],
                value[found, first],
                slope[found, first],
            )
            waiting, tries = waiting[~found], tries - ahead
            length[waiting] = lengths[~found, -1] / 3
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
