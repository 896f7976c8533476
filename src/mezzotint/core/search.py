"""Where a condition stops holding: the one bisection that all subpackages share; and descent from
many starts.

For a root of a smooth function use `scipy.optimize.brentq`; for the first of many integers,
`bisect.bisect_left`. This module adds what they lack: both ends of the interval, so that callers
can take the one that rounds against them; and, unlike `scipy.optimize.minimize`, many minimisations
side by side, in which each call of the function is one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mezzotint.core.types import BoolArray, FloatArray

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
        largest = max(abs(good), abs(bad))
        if abs(bad - good) <= tolerance * largest:
            break
        midpoint = good + (bad - good) / 2
        if geometric:
            midpoint = math.sqrt(good) * math.sqrt(bad)
        if midpoint in (good, bad):
            break
        if holds(midpoint):
            good = midpoint
        else:
            bad = midpoint
    return good, bad


LONGEST_STEP = 2.0
"""Of a coordinate in one step of `descend`."""

SUFFICIENT_DECREASE = 1e-4
"""Share of the linear prediction by which a step must lower the value (Armijo)."""

SHRINKAGE = 3.0
MAX_SHRINKAGES = 12
"""A step that does not lower the value enough is divided by this, so often at most."""

SAME_VALUE = 1e-11
"""A point is done when a step lowers its value by no more."""

FLAT_CURVATURE = 1e-14
"""Below this much of a squared step the inverse Hessian is not updated."""


class _Points(NamedTuple):
    """(B, n) points with their (B,) values and (B, n) slopes."""

    points: FloatArray
    values: FloatArray
    slopes: FloatArray


def descend(
    objective: Objective,
    points: FloatArray,
    steps: int,
) -> tuple[FloatArray, FloatArray]:
    """(B,) values and (B, n) points after BFGS from each of the points, side by side."""
    current = _Points(points, *objective(points))
    identity = np.eye(points.shape[1])
    shape = (len(points), 1, 1)
    inverse = np.tile(identity, shape)
    active = np.ones(len(points), dtype=bool)
    for _ in range(steps):
        direction = -np.einsum("bij,bj->bi", inverse, current.slopes)
        uphill = _directional_slopes(current, direction) >= 0
        direction[uphill] = -current.slopes[uphill]
        inverse[uphill] = identity
        moved = _line_search(objective, current, direction, active)
        decrease = current.values - moved.values
        active &= decrease > SAME_VALUE
        step = moved.points - current.points
        change = moved.slopes - current.slopes
        inverse = _updated_inverse(inverse, step, change)
        current = moved
        if not active.any():
            break
    return current.values, current.points


def _directional_slopes(current: _Points, direction: FloatArray) -> FloatArray:
    """(B,) how the values grow along the directions."""
    return (direction * current.slopes).sum(axis=1)


def _line_search(
    objective: Objective,
    current: _Points,
    direction: FloatArray,
    active: BoolArray,
) -> _Points:
    """Each active point moved along its direction by the first length that lowers its value enough;
    the others as they are.
    """
    count, dimension = current.points.shape
    slopes = _directional_slopes(current, direction)
    largest = np.abs(direction).max(axis=1)
    largest = np.maximum(largest, 1e-300)
    next_length = np.minimum(1.0, LONGEST_STEP / largest)
    waiting = np.flatnonzero(active)
    moved = _Points(*map(np.copy, current))
    remaining = MAX_SHRINKAGES
    while waiting.size and remaining:
        # As many lengths at once as a call for all points would take: the first good one counts.
        batch = min(remaining, count // waiting.size)
        column = waiting[:, None]
        shrinkages = SHRINKAGE ** np.arange(batch)
        lengths = next_length[column] / shrinkages
        steps = lengths[:, :, None] * direction[column]
        trials = current.points[column] + steps
        flat_trials = trials.reshape(-1, dimension)
        flat_values, flat_slopes = objective(flat_trials)
        trial_values = flat_values.reshape(lengths.shape)
        trial_slopes = flat_slopes.reshape(trials.shape)
        predicted = SUFFICIENT_DECREASE * lengths * slopes[column]
        is_good = trial_values <= current.values[column] + predicted
        settled = is_good.any(axis=1)
        first_good = is_good.argmax(axis=1)[settled]
        settled_points = waiting[settled]
        moved.points[settled_points] = trials[settled, first_good]
        moved.values[settled_points] = trial_values[settled, first_good]
        moved.slopes[settled_points] = trial_slopes[settled, first_good]
        waiting = waiting[~settled]
        remaining -= batch
        last_lengths = lengths[:, -1]
        next_length[waiting] = last_lengths[~settled] / SHRINKAGE
    return moved


def _updated_inverse(
    inverse: FloatArray,
    step: FloatArray,
    change: FloatArray,
) -> FloatArray:
    """The BFGS update of inverse Hessians; where the curvature is not positive, they stay.

    Source: Nocedal and Wright 2006, eq. (6.17), multiplied out.
    """
    curvature = np.einsum("bi,bi->b", step, change)
    squared_lengths = (step**2).sum(axis=1)
    is_curved = curvature > FLAT_CURVATURE * squared_lengths
    divisors = np.where(is_curved, curvature, 1.0)
    rho = np.where(is_curved, 1 / divisors, 0.0)
    image = np.einsum("bij,bj->bi", inverse, change)
    inner = (image * change).sum(axis=1)
    outer = step[:, :, None] * image[:, None, :]
    symmetric = outer + outer.transpose(0, 2, 1)
    scale = rho**2 * inner + rho
    column_step = step[:, :, None]
    scaled_step = scale[:, None, None] * column_step
    row_step = step[:, None, :]
    return inverse - rho[:, None, None] * symmetric + scaled_step * row_step
