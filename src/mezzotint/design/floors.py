"""The optimum at given levels under pure epsilon: floors found to a proven gap, then integer
windows.

For given levels and floors the best mechanism of all is known in closed form. Lay the rooms (E - 1)
f_i of the levels side by side on a line. The best row is the floors plus one window of the spare
mass 1 - sum f on that line; sliding it makes the mean grow. So a mechanism is its levels and its
floors, no more, its knots are where an end of the window passes from one room to the next, and its
loss is a sum over the pieces between. docs/proofs/design.md, "Windows".

That loss is convex in the floors and known with two derivatives; what remains are the rows of the
two ends of the range, which say that the windows reach there: a convex program with two rows,
whatever the inputs, solved by Newton's method. The multipliers that come out bound every mechanism
at these levels. Centred units (inputs in [-1, 1]).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast, final

import numpy as np
from scipy import optimize

from mezzotint.core import priors
from mezzotint.core.errors import MezzotintError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import Law, SamplePrior
from mezzotint.core.types import FloatArray, IndexArray
from mezzotint.design import problem as designs
from mezzotint.design.cones import ratio_part
from mezzotint.design.problem import FloatDesign, Problem, ratio_above
from mezzotint.design.program import BETWEEN, program_on, proven_design
from mezzotint.design.solver import SolverError, solve


def error(loss: str, levels: FloatArray, x: FloatArray) -> FloatArray:
    """The loss of reporting `levels` for inputs `x`, broadcast."""
    return np.abs(levels - x) if loss == "mae" else (levels - x) ** 2


def _slope(loss: str, levels: FloatArray, x: FloatArray) -> FloatArray:
    """Its derivative in the level."""
    return np.sign(levels - x) if loss == "mae" else 2 * (levels - x)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The best rows of (..., m) floors: pieces on which they are linear in the input, with leading
    batch axes.

    At the ends of the pieces the windows start at `starts` (..., K), with the `rows` (..., K, m)
    and their `means`, not
    decreasing: inputs from the first to the last are covered. On each piece the window starts and
    ends in the rooms of the levels `left` and `right` (..., K-1).
    """

    levels: FloatArray
    floors: FloatArray
    ratio: float
    starts: FloatArray
    rows: FloatArray
    means: FloatArray
    left: IndexArray
    right: IndexArray


@final
class _Rooms:
    """What windows can add to the floors: rooms laid side by side, the windows' length, and their
    last start.
    """

    def __init__(self, levels: FloatArray, floors: FloatArray, ratio: float) -> None:
        self.levels, self.floors, self.rooms = levels, floors, (ratio - 1) * floors
        before = np.zeros_like(self.rooms[..., :1])
        self.ends = np.concatenate([before, np.cumsum(self.rooms, axis=-1)], axis=-1)
        self.spare = 1 - floors.sum(axis=-1, keepdims=True)
        self.last = np.maximum(self.ends[..., -1:] - self.spare, 0.0)

    def rows(self, starts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The rows (..., K, m) of windows from `starts` (..., K), and their means (..., K)."""
        a, ends = starts[..., None], self.ends[..., None, :]
        filled = np.minimum(a + self.spare[..., None], ends[..., 1:]) - np.maximum(
            a, ends[..., :-1]
        )
        extra = np.minimum(np.maximum(filled, 0.0), self.rooms[..., None, :])
        base = (self.floors * self.levels).sum(axis=-1, keepdims=True)
        return self.floors[..., None, :] + extra, base + np.einsum(
            "...km,...m->...k", extra, self.levels
        )


def outer_rows(
    levels: FloatArray, floors: FloatArray, ratio: float
) -> tuple[FloatArray, FloatArray]:
    """The rows (..., 2, m) of the first window and of the last one, and their means (..., 2)."""
    rooms = _Rooms(levels, floors, ratio)
    return rooms.rows(np.concatenate([np.zeros_like(rooms.last), rooms.last], axis=-1))


def make_windows(
    levels: FloatArray, floors: FloatArray, ratio: float, *, split: bool = False
) -> Windows:
    """The windows of floors with 1/ratio <= sum(floors) <= 1, `split` at levels too for a loss that
    has kinks there.
    """
    rooms = _Rooms(levels, floors, ratio)
    ends, spare, last = rooms.ends, rooms.spare, rooms.last
    candidates = np.clip(np.concatenate([ends, ends - spare], axis=-1), 0.0, last)
    if split:
        known = np.sort(candidates, axis=-1)
        _, means = rooms.rows(known)
        place = (means[..., None, :] <= levels[..., None]).sum(axis=-1) - 1
        place = np.clip(place, 0, known.shape[-1] - 2)
        x0, x1 = (np.take_along_axis(means, place + i, axis=-1) for i in (0, 1))
        a0, a1 = (np.take_along_axis(known, place + i, axis=-1) for i in (0, 1))
        share = np.clip((levels - x0) / np.where(x1 > x0, x1 - x0, 1.0), 0.0, 1.0)
        candidates = np.concatenate([candidates, a0 + share * (a1 - a0)], axis=-1)
    order = np.argsort(candidates, axis=-1, kind="stable")
    starts = np.take_along_axis(candidates, order, axis=-1)
    # Counting what was passed tells the rooms of the window's ends even where several kinks
    # coincide.
    count = floors.shape[-1]
    left = np.cumsum(order <= count, axis=-1)[..., :-1] - 1
    right = np.cumsum((order > count) & (order < 2 * count + 2), axis=-1)[..., :-1] - 1
    rows, means = rooms.rows(starts)
    left, right = np.clip(left, 0, count - 1), np.clip(right, 0, count - 1)
    return Windows(
        levels=levels,
        floors=floors,
        ratio=ratio,
        starts=starts,
        rows=rows,
        means=means,
        left=left,
        right=right,
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Prices:
    """What the best rows at some inputs pay: the line through the errors of the two levels at the
    window's ends.

    Its height at level 0, `line`, and its slope, `tilt`; each level's loss, `errors` (..., m), and
    how far that is
    above the line, `reduced`: negative only for levels inside the window.
    """

    line: FloatArray
    tilt: FloatArray
    errors: FloatArray
    reduced: FloatArray


def _tilt(loss: str, low: FloatArray, high: FloatArray, x: FloatArray) -> FloatArray:
    """Slope in the level of the line through the errors of two levels."""
    apart = high > low
    rise = error(loss, high, x) - error(loss, low, x)
    return np.where(apart, rise / np.where(apart, high - low, 1.0), _slope(loss, low, x))


def prices(
    levels: FloatArray, x: FloatArray, left: IndexArray, right: IndexArray, loss: str
) -> Prices:
    """Multipliers of mass and mean at inputs `x` (...,) with windows that end in the rooms `left`,
    `right` (...,).
    """
    levels = np.broadcast_to(levels, (*x.shape, levels.shape[-1]))
    errors = error(loss, levels, x[..., None])

    def at(values: FloatArray, index: IndexArray) -> FloatArray:
        return np.take_along_axis(values, index[..., None], axis=-1)[..., 0]

    low, high = at(levels, left), at(levels, right)
    tilt = _tilt(loss, low, high, x)
    line = error(loss, low, x) - tilt * low
    reduced = errors - (line[..., None] + tilt[..., None] * levels)
    return Prices(line=line, tilt=tilt, errors=errors, reduced=reduced)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Value:
    """An expected loss (...,) and its derivatives (..., m) in levels and floors, the other held
    fixed.
    """

    loss: FloatArray
    by_level: FloatArray
    by_floor: FloatArray


def _values(
    windows: Windows, x: FloatArray, loss: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Losses (..., P) at one input of each piece, and derivatives (..., P, m) by levels and
    floors.
    """
    levels, left, right = windows.levels[..., None, :], windows.left, windows.right
    paid = prices(levels, x, left, right, loss)
    start, stop = windows.means[..., :-1], windows.means[..., 1:]
    t = np.clip((x - start) / np.where(stop > start, stop - start, 1.0), 0.0, 1.0)[..., None]
    rows = (1 - t) * windows.rows[..., :-1, :] + t * windows.rows[..., 1:, :]
    index = np.arange(windows.levels.shape[-1])
    full = (index > left[..., None]) & (index < right[..., None])
    # Where windows end short of an input, what is missing of its mean counts at its price, as in
    # the bound.
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
    # On a short piece the last digits of integrals over its mass would be any number: kept to what
    # moments may be.
    safe = np.where(mass > 0, mass, 1.0)
    x = np.clip(first / safe, start, stop)
    spread = np.clip(second - first**2 / safe, 0.0, mass * (x - start) * (stop - x))
    losses, by_level, by_floor = _values(windows, x, loss)
    by_level = np.einsum("...p,...pm->...m", mass, by_level)
    # On a piece losses bend downwards, and no derivative bends but this one.
    if loss == "mae":
        low, high = (
            np.take_along_axis(windows.levels, side, axis=-1)
            for side in (windows.left, windows.right)
        )
        spread = spread * np.where(
            (low < x) & (x < high), 2 / np.where(high > low, high - low, 1.0), 0.0
        )
        wide = np.diff(windows.means, axis=-1)
        turn = spread / np.where(wide > 0, wide, 1.0)
        by_level = by_level + np.einsum("...p,...pm->...m", turn, np.diff(windows.rows, axis=-2))
    total = (mass * losses - spread).sum(axis=-1)
    return Value(
        loss=total, by_level=by_level, by_floor=np.einsum("...p,...pm->...m", mass, by_floor)
    )


def peaks(windows: Windows) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Per piece (..., P) the input of the largest MSE and that MSE (0 where no piece peaks), and
    its derivatives.
    """
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
    """(m, m) second derivative by the floors, no batch axes: one rank-one term for each kink inside
    the range.
    """
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


_TARGET = 1e-9
"""Relative gap at which Newton's method stops."""

_STEPS = 100
_HALVINGS = 12
_THINNEST = 1e-7
"""An outer level that reaches no farther than this (relative) beyond what is needed counts as just
reaching.
"""

_LEAST = 1e-10
"""Where both outer levels just reach, the solver sees them so much (relative) farther out."""

_CLOSE = 1e-6
"""Of half the range: what floors may miss the ends by, before integers are made of them, which do
not.
"""

_ROOM = 1e-13
"""Of ratios between rows: what floats need to distinguish the inside of windows of such levels from
its edge.
"""


class ConvergenceError(MezzotintError, RuntimeError):
    """Newton's method found no floors for levels that have some."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Optimum:
    """The best (m,) floors; (2, 2) multipliers (mass, mean) of the rows at -1 and 1; where Newton's
    steps ended.
    """

    floors: FloatArray
    ends: FloatArray
    iterations: int
    point: FloatArray


def overhang(ratio: float) -> float:
    """How far the outer levels must reach beyond [-1, 1]."""
    return 2 / (ratio - 1)


def _rows_inside(levels: FloatArray, ratio: float, tilt: float) -> tuple[float, FloatArray]:
    """Mass of the inner levels, and rows (2, m) at -1 and 1 strictly within the ratio, inner levels
    tilted.
    """
    target_means = np.array([-1.0, 1.0])
    inner = np.ones(levels.size)
    inner[[0, -1]] = 0.0
    mass = 0.5 / levels.size
    for _ in range(110):
        # The outer two levels take the rest so that the means hold.
        rows = mass * inner * np.array([[min(1.0, 1 / tilt)], [min(1.0, tilt)]])
        rest, moment = 1 - rows.sum(axis=1), target_means - rows @ levels
        rows[:, -1] = (moment - rest * levels[0]) / (levels[-1] - levels[0])
        rows[:, 0] = rest - rows[:, -1]
        low, high = rows.min(axis=0), rows.max(axis=0)
        if (low > 0).all() and (high < low * ratio * (1 - 1e-14)).all():
            return mass, rows
        mass /= 2
    return 0.0, rows


def _interior(levels: FloatArray, ratio: float) -> tuple[FloatArray, FloatArray]:
    """Floors (m,) and rows (2, m) at -1 and 1 strictly between floors and ratio * floors."""
    mass, rows = _rows_inside(levels, ratio, 1.0)
    if mass < 1e-3:
        # Where one outer level reaches barely far enough, the inner ones must be (nearly) as unlike
        # as they may.
        tilts = [ratio ** (sign * (1 - 10.0**-k)) for k in range(1, 13) for sign in (1, -1)]
        found = [(mass, rows), *(_rows_inside(levels, ratio, tilt) for tilt in tilts)]
        most = max(mass for mass, _ in found)
        mass, rows = next(pair for pair in found if pair[0] >= most / 10)
    if mass == 0.0:
        raise ConvergenceError("these levels do not reach far enough")
    return np.sqrt(rows.min(axis=0) * rows.max(axis=0) / ratio), rows


@final
class _TwoRows:
    """Levels that reach farther than they must on both sides: rows at -1 and 1 between floors and
    ratio * floors.
    """

    def __init__(self, levels: FloatArray, ratio: float) -> None:
        # Where outer levels just reach there is no interior: the rows see them a little farther
        # out.
        least = 1 + overhang(ratio) * (1 + max(_LEAST, _ROOM / (ratio - 1))) + 1e-15
        self.levels, self.ratio = levels.copy(), ratio
        self.levels[[0, -1]] = min(levels[0], -least), max(levels[-1], least)
        floors, rows = _interior(self.levels, ratio)
        self.point = np.concatenate([floors, rows.ravel()])

    def slacks(self, point: FloatArray, *, change: bool = False) -> FloatArray:
        """(2, 2, m) rows - floors and ratio * floors - rows, positive inside; `change`: of a change
        of the point.
        """
        floors, rows = point[: self.levels.size], point[self.levels.size :].reshape(2, -1)
        return np.stack([rows - floors, self.ratio * floors - rows])

    def newton(
        self,
        gradient: FloatArray,
        hessian: FloatArray,
        point: FloatArray,
        weights: FloatArray,
        pulls: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """The step for the loss's derivatives by floors and a barrier's on the slacks; (2, 2)
        multipliers of the ends.

        Arguments:
            weights: multiplier over slack, of each slack.
            pulls: target over slack.
        """
        levels, ratio = self.levels, self.ratio
        rows = point[levels.size :].reshape(2, -1)
        matrix, right = hessian.copy(), -gradient - (pulls[0] - ratio * pulls[1]).sum(axis=0)
        eliminated = []
        for end, aim in enumerate((-1.0, 1.0)):
            low, high = weights[:, end]
            own, cross, pull = low + high, -(low + ratio * high), pulls[1, end] - pulls[0, end]
            # Around this centre mass and mean do not interact, however few levels are free to move.
            centre = float((levels / own).sum() / (1 / own).sum())
            equal = np.stack([np.ones(levels.size), levels - centre])
            missing = np.array([1.0, aim - centre]) - equal @ rows[end]
            moment = (equal**2 / own).sum(axis=1)
            share = equal * (cross / own)
            # own - cross**2 / own without cancellation, and what the two equations take back.
            matrix[np.diag_indices_from(matrix)] += (ratio - 1) ** 2 * low * high / own
            matrix += (share.T / moment) @ share
            right += cross * (pull - ((equal @ (pull / own) + missing) / moment) @ equal) / own
            eliminated.append((own, cross, pull, centre, equal, missing, moment))
        d_floors = _solve(matrix, right)
        d_rows, ends = np.empty_like(rows), np.empty((2, 2))
        for end, (own, cross, pull, centre, equal, missing, moment) in enumerate(eliminated):
            free = -pull - cross * d_floors
            mass, mean = (equal @ (free / own) - missing) / moment
            d_rows[end] = (free - mass - mean * equal[1]) / own
            ends[end] = mass - mean * centre, mean
        return np.concatenate([d_floors, d_rows.ravel()]), ends


@final
class _JustReaching:
    """One outer level just reaches: then all other levels are at their floor at its end and full at
    the other one.

    docs/proofs/design.md, "Levels that just reach".
    """

    def __init__(self, levels: FloatArray, ratio: float, outer: int) -> None:
        self.levels, self.ratio, self.outer = levels, ratio, outer
        near, far = (-1.0, 1.0) if outer == 0 else (1.0, -1.0)
        self.distance = np.abs(levels - levels[outer])
        self.moment = math.sqrt(abs(levels[outer] - near) * abs(levels[outer] - far) / ratio)
        others = np.arange(levels.size) != outer
        # Slacks: the other floors, what the far row leaves to the outer level, and its ceiling at
        # the near row.
        count = levels.size - 1
        self.matrix, self.constant = np.zeros((count + 2, levels.size)), np.zeros(count + 2)
        self.matrix[:count, others] = np.eye(count)
        self.matrix[count] = np.where(others, -ratio, -1.0)
        self.matrix[count + 1] = np.where(others, 1.0, ratio)
        self.constant[count:] = 1.0, -1.0
        last = levels.size - 1 - outer
        share = 0.5
        while True:
            floors = np.where(
                others, share * self.moment / (count * np.maximum(self.distance, 1e-300)), 0.0
            )
            floors[last] += (1 - share) * self.moment / self.distance[last]
            rest = float(floors.sum())
            if (
                rest * (ratio + 1)
                < 1 - 1e-3 * (1 - self.moment / self.distance[last] * (ratio + 1))
                or share < 1e-15
            ):
                break
            share /= 2
        floors[outer] = (1 - ratio * rest + (1 - rest) / ratio) / 2
        self.point = floors

    def slacks(self, point: FloatArray, *, change: bool = False) -> FloatArray:
        return self.matrix @ point + (0.0 if change else self.constant)

    def newton(
        self,
        gradient: FloatArray,
        hessian: FloatArray,
        point: FloatArray,
        weights: FloatArray,
        pulls: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        matrix = hessian + (self.matrix.T * weights) @ self.matrix
        both = _solve(matrix, np.stack([pulls @ self.matrix - gradient, -self.distance], axis=1))
        missing = self.moment - float(self.distance @ point)
        price = (missing - float(self.distance @ both[:, 0])) / float(self.distance @ both[:, 1])
        step = both[:, 0] + price * both[:, 1]
        duals = pulls - weights * (self.matrix @ step)
        at_far, at_near = max(0.0, float(duals[-2])), -max(0.0, float(duals[-1]))
        # Any multiple of (ratio, -1) may be added to the rows' prices of the mean: enough for their
        # signs.
        others = np.arange(self.levels.size) != self.outer
        least = float(self.distance[others].min())
        far = max(at_far / least, (-at_near / least - price) / self.ratio, 0.0)
        near, sign, anchor = (
            price + self.ratio * far,
            1.0 if self.outer == 0 else -1.0,
            self.levels[self.outer],
        )
        rows = [
            (at_near - near * sign * anchor, near * sign),
            (at_far + far * sign * anchor, -far * sign),
        ]
        return step, np.array(rows if self.outer == 0 else rows[::-1])


_Reach = _TwoRows | _JustReaching
"""What makes windows reach -1 and 1, as slacks that are linear in a point; the floors come first in
it.
"""


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Barrier terms differ by many orders of magnitude: scaled to a unit diagonal they do not hide
    each other.
    """
    scale = 1 / np.sqrt(np.maximum(matrix.diagonal(), 1e-300))
    solved = np.linalg.solve(matrix * scale * scale[:, None], (right.T * scale).T)
    return (solved.T * scale).T


def best_floors(
    levels: FloatArray,
    ratio: float,
    law: Law,
    loss: str,
    *,
    near: Optimum | None = None,
    share: float = 1.0,
    doubt: float | None = None,
) -> Optimum:
    """Minimises the expected loss of windows over the floors of these levels (centred units,
    increasing).

    Nothing here needs to be trusted: `lower_bound` holds for any floors and multipliers.

    Arguments:
        near, share: the optimum for a law that differs a little: the search starts so (relatively)
            far from it.
        doubt: a loss whose distance from the optimum is enough to know, without the optimum's last
            digits.

    Raises:
        ConvergenceError: the levels reach less far than `overhang`, or numbers are beyond floats.
    """
    excess = (np.abs(levels[[0, -1]]) - 1) / overhang(ratio) - 1
    ways: list[Callable[[], _Reach]] = [partial(_TwoRows, levels, ratio)]
    if excess.min() < _THINNEST:
        just = partial(
            _JustReaching, levels, ratio, 0 if excess[0] < excess[1] else levels.size - 1
        )
        ways.insert(0 if excess.max() > 100 * _THINNEST else 1, just)
    found: list[tuple[float, Optimum]] = []
    for way in ways:
        with contextlib.suppress(ConvergenceError):
            reach, start = way(), None
            if near is not None and near.point.size == reach.point.size:  # a point of the same kind
                start = near.point, share
            found.append(_newton(reach, start, levels, ratio, law, loss, doubt))
            if doubt is not None or found[-1][0] < 1e-6:
                break
    if not found:
        raise ConvergenceError(
            f"no floors were found for {levels.size} levels at a ratio of {ratio:g}"
        )
    return min(found, key=lambda pair: pair[0])[1]


def _newton(
    reach: _Reach, near: tuple[FloatArray, float] | None, levels: FloatArray, ratio: float, law: Law, loss: str,
    doubt: float | None,
) -> tuple[float, Optimum]:  # fmt: skip
    """A primal-dual interior-point method: the relative gap that it proves, and where it ends."""
    count, point, share = levels.size, reach.point, 1.0
    if near is not None:
        point, share = near[1] * point + (1 - near[1]) * near[0], near[1]

    def at(point: FloatArray) -> tuple[Windows, Value]:
        windows = make_windows(levels, point[:count], ratio, split=loss == "mae")
        return windows, average(windows, law, loss)

    windows, value, slacks = *at(point), reach.slacks(point)
    if not slacks.min() > 0:
        raise ConvergenceError("between floats there is no room inside these levels' reach")
    duals, ends = share * float(value.loss) / slacks.size / slacks, np.zeros((2, 2))
    bound, multipliers, least, floors = -math.inf, ends, math.inf, point[:count]
    step, stalled = 0, 0
    while step < _STEPS:
        step, height, slacks = step + 1, float(value.loss), reach.slacks(point)
        gap, found = (
            float((duals * slacks).sum()),
            lower_bound(value, point[:count], levels, ends, ratio),
        )
        stalled = 0 if found > bound else stalled + 1
        bound, multipliers = (found, ends) if found > bound else (bound, multipliers)
        # Before the equations are met windows may end short of the range: then their loss is not
        # that of a mechanism.
        if (
            height < least
            and max(float(windows.means[0]) + 1, 1 - float(windows.means[-1])) <= _CLOSE
        ):
            least, floors = height, point[:count]
        # Of what lies far from the loss in doubt a tenth of the distance is enough to know.
        relative = _TARGET if doubt is None else min(max(1e-6, 0.1 * abs(least / doubt - 1)), 1e-2)
        if (
            least - bound <= relative * least
            or (stalled > 8 and gap < relative * least)
            or not (slacks > 0).all()
        ):
            break
        centre = gap / duals.size
        # How centred the point is decides how far ahead to aim.
        ahead = 0.1 if float((duals * slacks).min()) > 0.1 * centre else 0.5
        target = max(ahead * centre, 0.05 * relative * least / duals.size)
        weights, pulls = duals / slacks, target / slacks
        try:
            with np.errstate(all="ignore"):
                change, ends = reach.newton(
                    value.by_floor, curvature(windows, law, loss), point, weights, pulls
                )
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(change).all():
            break
        d_slacks = reach.slacks(change, change=True)
        d_duals = pulls - duals - weights * d_slacks
        length, along = (
            min(1.0, 0.99 * _longest(v, d)) for v, d in ((slacks, d_slacks), (duals, d_duals))
        )
        # Where the loss is flat on one side and curved on the other, full steps would swing to and
        # fro.
        merit = height - target * float(np.log(slacks).sum())
        for _ in range(_HALVINGS):
            windows, value = at(point + length * change)
            after = float(value.loss) - target * float(
                np.log(np.maximum(slacks + length * d_slacks, 1e-300)).sum()
            )
            if after <= merit + 1e-9 * abs(target) + 1e-13 * height:
                break
            length /= 2
        point, duals = point + length * change, duals + along * d_duals
    if math.isinf(least):
        raise ConvergenceError("no windows were found that reach both ends of the range")
    return (least - bound) / least, Optimum(
        floors=floors, ends=multipliers, iterations=step, point=point
    )


def _longest(values: FloatArray, change: FloatArray) -> float:
    falling = change < 0
    return float((values[falling] / -change[falling]).min()) if falling.any() else math.inf


def lower_bound(
    value: Value, floors: FloatArray, levels: FloatArray, ends: FloatArray, ratio: float
) -> float:
    """A lower bound on the loss of all mechanisms at these levels, from the value of the windows of
    any floors.

    Their prices are multipliers of averages over inputs; `ends` (2, 2) are any of mass and mean of
    the rows at -1, 1.
    """
    return bound_with(
        float(value.loss - floors @ value.by_floor), value.by_floor, levels, ends, ratio
    )


def bound_with(
    constant: float, cost: FloatArray, levels: FloatArray, ends: FloatArray, ratio: float
) -> float:
    """`lower_bound` from what averages over inputs cost: a constant, and for each floor (m,)."""
    reduced = ends[:, :1] + ends[:, 1:] * levels
    cost = cost + np.minimum(reduced, ratio * reduced).sum(axis=0)
    constant += float(ends[0, 1] - ends[0, 0] - ends[1].sum())
    return constant + (1 - 2 / float(levels[-1] - levels[0])) * min(0.0, float(cost.min()))


def best_ends(cost: FloatArray, levels: FloatArray, ratio: float) -> FloatArray:
    """The multipliers (2, 2) of the rows at -1 and 1 that make the most of `bound_with`, by a
    linear program.

    Where levels just reach, those of `best_floors` may depend on its last bits, and with them the
    entire bound.
    """
    # Of (mass, mean) at -1 and at 1, the least cost where it is below 0, and h(r) = min(r, ratio r)
    # of each row.
    count = levels.size
    one, none = np.eye(count), np.zeros((count, count))
    reduced = np.stack([np.ones(count), levels], axis=1)
    rows = [
        np.hstack([np.zeros((count, 4)), np.ones((count, 1)), -one, -one]),
        *(
            np.hstack([np.kron(np.eye(2)[[side]], -factor * reduced), np.zeros((count, 1)), *parts])
            for factor in (1.0, ratio)
            for side, parts in enumerate(((one, none), (none, one)))
        ),
    ]
    limits = np.concatenate([cost, np.zeros(4 * count)])
    value = np.array(
        [-1.0, 1.0, -1.0, -1.0, 1 - 2 / float(levels[-1] - levels[0]), *np.zeros(2 * count)]
    )
    free = [(None, None)] * 4 + [(None, 0.0)] + [(None, None)] * (2 * count)
    found = optimize.linprog(-value, A_ub=np.vstack(rows), b_ub=limits, bounds=free)
    return found.x[:4].reshape(2, 2) if found.status == 0 else np.zeros((2, 2))


def costs_of_atoms(
    points: FloatArray, parts: FloatArray, windows: Windows, loss: str
) -> tuple[float, FloatArray]:
    """The costs of point masses, each priced at the lines of the pieces among which `parts` (P, n)
    splits it.

    Any split is right: see `bound_with`.
    """
    piece, atom = np.nonzero(parts)
    weight, x, levels = parts[piece, atom], points[atom], windows.levels
    paid = prices(levels, x, windows.left[piece], windows.right[piece], loss)
    cost = weight @ np.minimum(paid.reduced, windows.ratio * paid.reduced)
    return float(weight @ (paid.line + paid.tilt * x)), cost


AT_LEVELS = "all mechanisms with these levels"

_ROUNDS = 12
_WORST = 32
"""Inputs at first, and new ones a round at most."""
_ENOUGH = 1e-7
"""Relative gap at which a design at given levels is good enough."""
_BINDING = 1 - 1e-6
"""Share of the largest error from which on an input's error counts as one that binds."""
_SPREADS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Over how much of half the range point masses are spread, one after another."""
_FEW_ENTRIES = 4000
"""Point masses times levels up to which a linear program is solved at the masses."""


def _reaching(units: FloatArray, geometric: FloatArray, epsilon: float) -> FloatArray:
    """A cone solver's floors (m,), moved as little as it takes towards such whose windows reach
    both ends of the range.

    They may miss the ends by its tolerance, which is nothing beside far levels and much beside the
    range. Floors that reach are a convex set.
    """
    ratio, floors = math.exp(epsilon), geometric * math.exp(-epsilon / 2)
    if _misses(units, floors, ratio) <= _CLOSE:
        return floors
    # Those of the best average error.
    reached = best_floors(
        units, ratio, priors.law_of(priors.UniformPrior(), -1.0, 1.0), "mse"
    ).floors
    for share in np.geomspace(1e-9, 1.0, 46):
        mixed = (1 - share) * floors + share * reached
        if _misses(units, mixed, ratio) <= _CLOSE:
            return mixed
    return reached


def _misses(units: FloatArray, floors: FloatArray, ratio: float) -> float:
    """By how much windows fail to reach the ends of the range, in half ranges."""
    means = make_windows(units, floors, ratio).means
    return max(float(means[0]) + 1, 1 - float(means[-1]))


def _by_newton(problem: Problem, levels: FloatArray) -> FloatDesign:
    """The best floors for the average over the prior, whose point masses are spread less and
    less.
    """
    units, ratio, half = problem.centered(levels), ratio_above(problem.epsilon), problem.width / 2
    loss, span = "mae" if problem.loss == "mae" else "mse", (problem.lower, problem.upper)
    prior, between = priors.condensed(problem.prior, *span)
    few = priors.has_few_atoms(prior)
    optimum, floors, least, bound, price, iterations = (
        None,
        np.zeros(units.size),
        math.inf,
        -math.inf,
        0.0,
        0,
    )
    for spread in _SPREADS if few else _SPREADS[:1]:
        law, share = priors.law_of(prior, *span, spread=spread), 1.0 if optimum is None else spread
        optimum = best_floors(units, ratio, law, loss, near=optimum, share=share)
        windows = make_windows(units, optimum.floors, ratio, split=loss == "mae")
        # The multipliers are the law's; what they bound is the prior's own loss.
        edges = np.unique(np.clip(np.concatenate([[-1.0], windows.means, [1.0]]), -1.0, 1.0))
        value = average(windows, priors.exact_law(prior, *span, edges), loss)
        if few:
            points, masses = priors.centred_atoms(cast(SamplePrior, prior), *span)
            parts = priors.split_atoms(points, masses, np.clip(windows.means, -1.0, 1.0), spread)
            constant, cost = costs_of_atoms(points, parts, windows, loss)
        else:
            constant, cost = float(value.loss - optimum.floors @ value.by_floor), value.by_floor
        ends, height = optimum.ends, bound_with(constant, cost, units, optimum.ends, ratio)
        if value.loss - height > _ENOUGH * value.loss:
            exact = best_ends(cost, units, ratio)
            better = bound_with(constant, cost, units, exact, ratio)
            ends, height = (exact, better) if better > height else (ends, height)
        # Per piece the multiplier of the mean is a sum of two levels (MSE), or at most 1 (MAE).
        price = (1.0 if loss == "mae" else 2 * float(np.ptp(units))) + float(
            np.abs(ends[:, 1]).sum()
        )
        bound, iterations, before = max(bound, height), iterations + optimum.iterations, least
        if value.loss < least:
            least, floors = float(value.loss), optimum.floors
        if least - bound <= _ENOUGH * least or least > before * (1 - 1e-12):
            break
    scale, less = (half, math.sqrt(between)) if loss == "mae" else (half**2, between)
    bound, price = bound * scale - less, price * scale / half
    return FloatDesign(
        floors=floors, lower_bound=bound, scope=AT_LEVELS, iterations=iterations, price=price
    )


def _on_knots(
    problem: Problem, levels: FloatArray, knots: FloatArray, between: tuple[float, ...] = BETWEEN
) -> FloatDesign:
    """The table program on these knots."""
    given, above = (
        program_on(problem, levels, knots, partial(ratio_part, epsilon=epsilon), between=between)
        for epsilon in (problem.epsilon, math.nextafter(problem.epsilon, math.inf))
    )
    solution = solve(given)
    floors = _reaching(problem.centered(levels), solution.floors, problem.epsilon)
    return replace(proven_design(problem, above, levels, solution), floors=floors)


def _by_worst_inputs(problem: Problem, levels: FloatArray) -> FloatDesign:
    """For the largest error over the inputs: rows at some inputs, and at the worst of windows until
    none is worse.
    """
    half = problem.width / 2
    inputs = np.linspace(problem.lower, problem.upper, _WORST + 1)
    floors, least, bound, price, iterations = np.zeros(levels.size), math.inf, -math.inf, 0.0, 0
    for _ in range(_ROUNDS):
        draft = _on_knots(problem, levels, inputs, between=())
        bound, price = max(bound, draft.lower_bound or bound), max(price, draft.price)
        iterations += draft.iterations
        windows = make_windows(problem.centered(levels), draft.floors, ratio_above(problem.epsilon))
        worst, errors = (
            part * scale for part, scale in zip(peaks(windows), (half, half**2), strict=False)
        )
        if errors.max() < least:
            least, floors = float(errors.max()), draft.floors
        if least - bound <= 10 * _ENOUGH * least:
            break
        # Of neighbours that are as bad the worst are enough; inputs that do not bind (but the ends)
        # are let go.
        order, units = np.argsort(-errors, kind="stable")[:_WORST], problem.centered(inputs)
        worst = problem.center + worst[order[errors[order] > bound]]
        moments = np.interp(units, windows.means, windows.rows @ windows.levels**2)
        kept = ((moments - units**2) * half**2 >= _BINDING * bound) | (np.abs(units) == 1)
        inputs = np.union1d(inputs[kept], np.clip(worst, problem.lower, problem.upper))
    return FloatDesign(
        floors=floors, lower_bound=bound, scope=AT_LEVELS, iterations=iterations, price=price
    )


def floors_at(problem: Problem, levels: FloatArray, knots: FloatArray | None) -> FloatDesign:
    """The best floors of an unbiased design under pure epsilon; feasibility is settled already."""
    try:
        if knots is not None:
            return _on_knots(problem, levels, knots)
        if problem.loss == "minimax":
            return _by_worst_inputs(problem, levels)
        prior = problem.prior
        if isinstance(prior, SamplePrior) and prior.points.size * levels.size <= _FEW_ENTRIES:
            # Only the rows at these inputs matter: the bound is one for all mechanisms.
            points = np.unique(np.concatenate([[problem.lower], prior.points, [problem.upper]]))
            return replace(_on_knots(problem, levels, points), scope=AT_LEVELS)
    except SolverError:
        pass  # levels that reach barely far enough leave a cone solver no interior
    return _by_newton(problem, levels)


def design_fixed(
    problem: Problem, levels: FloatArray, knots: FloatArray | None, *, free: bool = False
) -> tuple[FloatDesign, Mechanism]:
    """The optimal pure-epsilon table at these levels, on these knots or where the best rows bend.

    Feasibility is settled already. Levels that are `free` may move a little, so that only float
    error is left as bias.
    """
    draft = floors_at(problem, levels, knots)
    span = {"lower": problem.lower, "upper": problem.upper}
    windows = designs.integer_windows(levels, draft.floors, epsilon=problem.epsilon, **span)
    if free and knots is None:
        levels = designs.refitted(windows, levels, problem.lower, problem.upper)
        windows = designs.IntegerWindows(levels, windows.floors, windows.ratio)
        draft = floors_at(problem, levels, None)
    return draft, designs.table(windows, levels, knots=knots, **span)
