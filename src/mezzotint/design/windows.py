"""Windows: for given levels and floors the best mechanism of all is known in closed form.

Lay the rooms (E - 1) f_i of the levels side by side on a line. The best row is the floors plus one window of the spare
mass 1 - sum f on that line; sliding it makes the mean grow. So a mechanism is its levels and its floors, no more, its
knots are where an end of the window passes from one room to the next, and its loss is a sum over the pieces between.
Everything here is in centred units (inputs in [-1, 1]) and takes leading batch axes. docs/proofs/design.md, "Windows".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.laws import Law
from mezzotint.core.loss import FloatArray, IndexArray


def error(loss: str, levels: FloatArray, x: FloatArray) -> FloatArray:
    """The loss of reporting `levels` for inputs `x`, broadcast."""
    return np.abs(levels - x) if loss == "mae" else (levels - x) ** 2


def _slope(loss: str, levels: FloatArray, x: FloatArray) -> FloatArray:
    """Its derivative in the level."""
    return np.sign(levels - x) if loss == "mae" else 2 * (levels - x)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The best rows of given floors: pieces on which they are linear in the input.

    Arguments:
        levels, floors: (..., m).
        starts: (..., K) where the window starts at the ends of the pieces.
        rows: (..., K, m) the rows there.
        means: (..., K) their means, not decreasing: the mechanism covers inputs from the first to the last.
        left, right: (..., K-1) on each piece, the levels in whose rooms the window starts and ends.
    """

    levels: FloatArray
    floors: FloatArray
    ratio: float
    starts: FloatArray
    rows: FloatArray
    means: FloatArray
    left: IndexArray
    right: IndexArray


def make_windows(levels: FloatArray, floors: FloatArray, ratio: float, *, split: bool = False) -> Windows:
    """The windows of floors with 1/ratio <= sum(floors) <= 1.

    Arguments:
        split: whether pieces end at levels too, as losses with a kink at the level need.
    """
    rooms = (ratio - 1) * floors
    ends = np.concatenate([np.zeros_like(rooms[..., :1]), np.cumsum(rooms, axis=-1)], axis=-1)
    spare = 1 - floors.sum(axis=-1, keepdims=True)
    last = np.maximum(ends[..., -1:] - spare, 0.0)
    base = (floors * levels).sum(axis=-1, keepdims=True)

    def rows_at(starts: FloatArray) -> FloatArray:
        a = starts[..., None]
        filled = np.minimum(a + spare[..., None], ends[..., None, 1:]) - np.maximum(a, ends[..., None, :-1])
        return np.clip(filled, 0.0, rooms[..., None, :])

    candidates = np.clip(np.concatenate([ends, ends - spare], axis=-1), 0.0, last)
    if split:
        known = np.sort(candidates, axis=-1)
        means = base + np.einsum("...km,...m->...k", rows_at(known), levels)
        place = (means[..., None, :] <= levels[..., None]).sum(axis=-1) - 1
        place = np.clip(place, 0, known.shape[-1] - 2)
        x0, x1 = (np.take_along_axis(means, place + i, axis=-1) for i in (0, 1))
        a0, a1 = (np.take_along_axis(known, place + i, axis=-1) for i in (0, 1))
        share = np.clip((levels - x0) / np.where(x1 > x0, x1 - x0, 1.0), 0.0, 1.0)
        candidates = np.concatenate([candidates, a0 + share * (a1 - a0)], axis=-1)
    order = np.argsort(candidates, axis=-1, kind="stable")
    starts = np.take_along_axis(candidates, order, axis=-1)
    # Counting what was passed tells the rooms of the window's ends even where several kinks coincide.
    count = floors.shape[-1]
    left = np.cumsum(order <= count, axis=-1)[..., :-1] - 1
    right = np.cumsum((order > count) & (order < 2 * count + 2), axis=-1)[..., :-1] - 1
    extra = rows_at(starts)
    return Windows(
        levels=levels,
        floors=floors,
        ratio=ratio,
        starts=starts,
        rows=floors[..., None, :] + extra,
        means=base + np.einsum("...km,...m->...k", extra, levels),
        left=np.clip(left, 0, count - 1),
        right=np.clip(right, 0, count - 1),
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Prices:
    """What the best rows at some inputs pay: the line through the errors of the two levels at the window's ends.

    Arguments:
        x: (...,) inputs; the other fields belong to them.
        line, tilt: (...,) the line's height at level 0, and its slope in the level.
        errors: (..., m) loss of each level.
        reduced: (..., m) errors above the line: negative only for levels inside the window.
    """

    x: FloatArray
    line: FloatArray
    tilt: FloatArray
    errors: FloatArray
    reduced: FloatArray


def _tilt(loss: str, low: FloatArray, high: FloatArray, x: FloatArray) -> FloatArray:
    """Slope in the level of the line through the errors of two levels."""
    apart = high > low
    rise = error(loss, high, x) - error(loss, low, x)
    return np.where(apart, rise / np.where(apart, high - low, 1.0), _slope(loss, low, x))


def prices(levels: FloatArray, x: FloatArray, left: IndexArray, right: IndexArray, loss: str) -> Prices:
    """Multipliers of mass and mean at inputs `x` (...,) with windows that end in the rooms `left`, `right` (...,).

    `levels` has a leading axis for each of x's, or none at all.
    """
    levels = np.broadcast_to(levels, (*x.shape, levels.shape[-1]))
    errors = error(loss, levels, x[..., None])

    def at(values: FloatArray, index: IndexArray) -> FloatArray:
        return np.take_along_axis(values, index[..., None], axis=-1)[..., 0]

    low, high = at(levels, left), at(levels, right)
    tilt = _tilt(loss, low, high, x)
    line = error(loss, low, x) - tilt * low
    return Prices(
        x=x, line=line, tilt=tilt, errors=errors, reduced=errors - (line[..., None] + tilt[..., None] * levels)
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Value:
    """An expected loss (...,) and its derivatives (..., m) in levels and floors, the other held fixed."""

    loss: FloatArray
    by_level: FloatArray
    by_floor: FloatArray


def _values(windows: Windows, x: FloatArray, loss: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Losses (..., P) at one input of each piece, and derivatives (..., P, m) by levels and floors."""
    levels, left, right = windows.levels[..., None, :], windows.left, windows.right
    paid = prices(levels, x, left, right, loss)
    start, stop = windows.means[..., :-1], windows.means[..., 1:]
    t = np.clip((x - start) / np.where(stop > start, stop - start, 1.0), 0.0, 1.0)[..., None]
    rows = (1 - t) * windows.rows[..., :-1, :] + t * windows.rows[..., 1:, :]
    index = np.arange(windows.levels.shape[-1])
    full = (index > left[..., None]) & (index < right[..., None])
    # Where windows end short of an input, what is missing of its mean counts at its price, as in the bound.
    losses = (rows * paid.errors).sum(axis=-1) + paid.tilt * (x - (rows * levels).sum(axis=-1))
    by_level = rows * (_slope(loss, levels, x[..., None]) - paid.tilt[..., None])
    return losses, by_level, np.where(full, windows.ratio, 1.0) * paid.reduced


def average(windows: Windows, law: Law, loss: str) -> Value:
    """The expected loss over `law` of windows that cover [-1, 1]."""
    edges = np.clip(windows.means, -1.0, 1.0)
    # The outermost pieces take what rounding leaves uncovered.
    edges[..., 0], edges[..., -1] = -1.0, 1.0
    start, stop = edges[..., :-1], edges[..., 1:]
    mass, first, second = np.moveaxis(np.diff(law.integrals(edges), axis=-2), -1, 0)
    mass = np.maximum(mass, 0.0)
    # On a short piece the last digits of integrals over its mass would be any number: kept to what moments may be.
    safe = np.where(mass > 0, mass, 1.0)
    x = np.clip(first / safe, start, stop)
    spread = np.clip(second - first**2 / safe, 0.0, mass * (x - start) * (stop - x))
    losses, by_level, by_floor = _values(windows, x, loss)
    by_level = np.einsum("...p,...pm->...m", mass, by_level)
    # On a piece losses bend downwards, and no derivative bends but this one.
    if loss == "mae":
        low, high = (np.take_along_axis(windows.levels, side, axis=-1) for side in (windows.left, windows.right))
        spread = spread * np.where((low < x) & (x < high), 2 / np.where(high > low, high - low, 1.0), 0.0)
        wide = np.diff(windows.means, axis=-1)
        turn = spread / np.where(wide > 0, wide, 1.0)
        by_level = by_level + np.einsum("...p,...pm->...m", turn, np.diff(windows.rows, axis=-2))
    total = (mass * losses - spread).sum(axis=-1)
    return Value(loss=total, by_level=by_level, by_floor=np.einsum("...p,...pm->...m", mass, by_floor))


def peaks(windows: Windows) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Per piece (..., P) the input of the largest MSE and that MSE (0 where no piece peaks), and its derivatives."""
    edges = np.clip(windows.means, -1.0, 1.0)
    middle = (
        np.take_along_axis(windows.levels, windows.left, axis=-1)
        + np.take_along_axis(windows.levels, windows.right, axis=-1)
    ) / 2
    x = np.clip(middle, edges[..., :-1], edges[..., 1:])
    losses, by_level, by_floor = _values(windows, x, "mse")
    # Errors bend upwards at kinks: what is largest is inside a piece or at an end of the range.
    nowhere = (x != middle) & (np.abs(x) < 1 - 1e-9)
    losses[nowhere | (np.diff(windows.starts, axis=-1) <= 0)] = 0.0
    return x, losses, by_level, by_floor


def curvature(windows: Windows, law: Law, loss: str) -> FloatArray:
    """(m, m) second derivative by the floors, no batch axes: one rank-one term for each kink inside the range."""
    x = windows.means[1:-1]
    levels, index = windows.levels, np.arange(windows.levels.size)
    before, after = (windows.left[:-1], windows.right[:-1]), (windows.left[1:], windows.right[1:])
    passes_left = before[0] != after[0]
    pivot = np.where(passes_left, before[1], before[0])
    low, high = before[0][:, None], np.where(passes_left, before[1], after[1])[:, None]
    full = (index > low) & (index < high)
    direction = np.where(full, windows.ratio, 1.0) * (levels - levels[pivot][:, None])
    old, new = (_tilt(loss, levels[sides[0]], levels[sides[1]], x) for sides in (before, after))
    inside = (x > -1) & (x < 1) & ((before[0] != after[0]) | (before[1] != after[1]))
    weight = np.where(inside, law.density_at(x) * np.maximum(new - old, 0.0), 0.0)
    return (direction * weight[:, None]).T @ direction
