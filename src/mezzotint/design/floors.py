"""The best floors for given levels: a convex program with two rows, whatever the inputs, solved by Newton's method.

The loss of windows is convex in the floors and known with two derivatives; what is left are the rows of the two ends of
the range, which say that the windows reach there. The multipliers that come out bound every mechanism at these levels.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from mezzotint.core.errors import MezzotintError
from mezzotint.core.laws import Law
from mezzotint.core.loss import FloatArray
from mezzotint.design.windows import Value, Windows, average, curvature, make_windows, prices

_TARGET = 1e-9
"""Relative gap at which Newton's method stops."""

_STEPS = 100
_HALVINGS = 12
_THINNEST = 1e-7
"""An outer level that reaches no farther than this (relative) beyond what is needed counts as just reaching."""

_LEAST = 1e-10
"""Where both outer levels just reach, the solver sees them so much (relative) farther out."""

CLOSE = 1e-6
"""Of half the range: what floors may miss the ends by, before integers are made of them, which do not."""

_ROOM = 1e-13
"""Of ratios between rows: what floats need to tell the inside of such levels' windows from its edge."""


class ConvergenceError(MezzotintError, RuntimeError):
    """Newton's method found no floors for levels that have some."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Optimum:
    """The best floors found.

    Arguments:
        floors: (m,)
        ends: (2, 2) multipliers (mass, mean) of the rows at -1 and at 1.
        iterations: Newton steps.
        point: where they ended, the floors first.
    """

    floors: FloatArray
    ends: FloatArray
    iterations: int
    point: FloatArray


def overhang(ratio: float) -> float:
    """How far the outer levels must reach beyond [-1, 1]."""
    return 2 / (ratio - 1)


def _rows_inside(levels: FloatArray, ratio: float, tilt: float) -> tuple[float, FloatArray]:
    """Mass of the inner levels, and rows (2, m) at -1 and 1 strictly within the ratio, inner levels tilted."""
    aims = np.array([-1.0, 1.0])
    inner = np.ones(levels.size)
    inner[[0, -1]] = 0.0
    mass = 0.5 / levels.size
    for _ in range(110):
        # The outer two levels take the rest so that the means hold.
        rows = mass * inner * np.array([[min(1.0, 1 / tilt)], [min(1.0, tilt)]])
        rest, moment = 1 - rows.sum(axis=1), aims - rows @ levels
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
        # Where one outer level reaches barely far enough, the inner ones must be (nearly) as unlike as they may.
        tilts = [ratio ** (sign * (1 - 10.0**-k)) for k in range(1, 13) for sign in (1, -1)]
        found = [(mass, rows), *(_rows_inside(levels, ratio, tilt) for tilt in tilts)]
        most = max(mass for mass, _ in found)
        mass, rows = next(pair for pair in found if pair[0] >= most / 10)
    if mass == 0.0:
        raise ConvergenceError("these levels do not reach far enough")
    return np.sqrt(rows.min(axis=0) * rows.max(axis=0) / ratio), rows


@final
class _TwoRows:
    """Levels that reach farther than they must on both sides: rows at -1 and 1 between floors and ratio * floors."""

    def __init__(self, levels: FloatArray, ratio: float) -> None:
        # Where outer levels just reach there is no interior: the rows see them a little farther out.
        least = 1 + overhang(ratio) * (1 + max(_LEAST, _ROOM / (ratio - 1))) + 1e-15
        self.levels, self.ratio = levels.copy(), ratio
        self.levels[[0, -1]] = min(levels[0], -least), max(levels[-1], least)
        floors, rows = _interior(self.levels, ratio)
        self.point = np.concatenate([floors, rows.ravel()])

    def slacks(self, point: FloatArray, *, change: bool = False) -> FloatArray:
        """(2, 2, m) rows - floors and ratio * floors - rows, positive inside; `change`: of a change of the point."""
        floors, rows = point[: self.levels.size], point[self.levels.size :].reshape(2, -1)
        return np.stack([rows - floors, self.ratio * floors - rows])

    def newton(
        self, gradient: FloatArray, hessian: FloatArray, point: FloatArray, weights: FloatArray, pulls: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The step for the loss's derivatives by floors and a barrier's on the slacks; (2, 2) multipliers of the ends.

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
    """One outer level just reaches: then all other levels are at their floor at its end and full at the other one.

    docs/proofs/design.md, "Levels that just reach".
    """

    def __init__(self, levels: FloatArray, ratio: float, outer: int) -> None:
        self.levels, self.ratio, self.outer = levels, ratio, outer
        near, far = (-1.0, 1.0) if outer == 0 else (1.0, -1.0)
        self.distance = np.abs(levels - levels[outer])
        self.moment = math.sqrt(abs(levels[outer] - near) * abs(levels[outer] - far) / ratio)
        others = np.arange(levels.size) != outer
        # Slacks: the other floors, what the far row leaves to the outer level, and its ceiling at the near row.
        count = levels.size - 1
        self.matrix, self.constant = np.zeros((count + 2, levels.size)), np.zeros(count + 2)
        self.matrix[:count, others] = np.eye(count)
        self.matrix[count] = np.where(others, -ratio, -1.0)
        self.matrix[count + 1] = np.where(others, 1.0, ratio)
        self.constant[count:] = 1.0, -1.0
        last = levels.size - 1 - outer
        share = 0.5
        while True:
            floors = np.where(others, share * self.moment / (count * np.maximum(self.distance, 1e-300)), 0.0)
            floors[last] += (1 - share) * self.moment / self.distance[last]
            rest = float(floors.sum())
            if rest * (ratio + 1) < 1 - 1e-3 * (1 - self.moment / self.distance[last] * (ratio + 1)) or share < 1e-15:
                break
            share /= 2
        floors[outer] = (1 - ratio * rest + (1 - rest) / ratio) / 2
        self.point = floors

    def slacks(self, point: FloatArray, *, change: bool = False) -> FloatArray:
        return self.matrix @ point + (0.0 if change else self.constant)

    def newton(
        self, gradient: FloatArray, hessian: FloatArray, point: FloatArray, weights: FloatArray, pulls: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        matrix = hessian + (self.matrix.T * weights) @ self.matrix
        both = _solve(matrix, np.stack([pulls @ self.matrix - gradient, -self.distance], axis=1))
        missing = self.moment - float(self.distance @ point)
        price = (missing - float(self.distance @ both[:, 0])) / float(self.distance @ both[:, 1])
        step = both[:, 0] + price * both[:, 1]
        duals = pulls - weights * (self.matrix @ step)
        at_far, at_near = max(0.0, float(duals[-2])), -max(0.0, float(duals[-1]))
        # Any multiple of (ratio, -1) may be added to the rows' prices of the mean: enough for their signs.
        others = np.arange(self.levels.size) != self.outer
        least = float(self.distance[others].min())
        far = max(at_far / least, (-at_near / least - price) / self.ratio, 0.0)
        near, sign, anchor = price + self.ratio * far, 1.0 if self.outer == 0 else -1.0, self.levels[self.outer]
        rows = [(at_near - near * sign * anchor, near * sign), (at_far + far * sign * anchor, -far * sign)]
        return step, np.array(rows if self.outer == 0 else rows[::-1])


_Reach = _TwoRows | _JustReaching
"""What makes windows reach -1 and 1, as slacks that are linear in a point; the floors come first in it."""


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Barrier terms differ by many orders of magnitude: scaled to a unit diagonal they do not hide each other."""
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
    """Minimises the expected loss of windows over the floors of these levels (centred units, increasing).

    Arguments:
        near, share: the optimum for a law that differs a little: the search starts so (relatively) far from it.
        doubt: a loss from which the optimum's distance is asked for, not its digits: the search stops once it is told.

    Guarantees: none that a caller needs to trust: `lower_bound` holds for any floors and multipliers.

    Raises:
        ConvergenceError: the levels reach less far than `overhang`, or numbers are beyond floats.
    """
    excess = (np.abs(levels[[0, -1]]) - 1) / overhang(ratio) - 1
    ways: list[Callable[[], _Reach]] = [partial(_TwoRows, levels, ratio)]
    if excess.min() < _THINNEST:
        just = partial(_JustReaching, levels, ratio, 0 if excess[0] < excess[1] else levels.size - 1)
        ways.insert(0 if excess.max() > 100 * _THINNEST else 1, just)
    found: list[tuple[float, Optimum]] = []
    for way in ways:
        with contextlib.suppress(ConvergenceError):
            found.append(_newton(way(), levels, ratio, law, loss, near, share, doubt))
            if doubt is not None or found[-1][0] < 1e-6:
                break
    if not found:
        raise ConvergenceError(f"no floors were found for {levels.size} levels at a ratio of {ratio:g}")
    return min(found, key=lambda pair: pair[0])[1]


def _newton(
    reach: _Reach,
    levels: FloatArray,
    ratio: float,
    law: Law,
    loss: str,
    near: Optimum | None,
    share: float,
    doubt: float | None,
) -> tuple[float, Optimum]:
    """A primal-dual interior-point method: the relative gap that it proves, and where it ends."""
    count, point = levels.size, reach.point
    if near is None or near.point.size != point.size:
        share = 1.0  # what was near is a point of the other kind
    else:
        point = share * point + (1 - share) * near.point

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
        gap, found = float((duals * slacks).sum()), lower_bound(value, point[:count], levels, ends, ratio)
        stalled = 0 if found > bound else stalled + 1
        bound, multipliers = (found, ends) if found > bound else (bound, multipliers)
        # Before the equations are met windows may end short of the range: then their loss is none of a mechanism.
        if height < least and max(float(windows.means[0]) + 1, 1 - float(windows.means[-1])) <= CLOSE:
            least, floors = height, point[:count]
        # Of what lies far from the loss in doubt a tenth of the distance is enough to know.
        relative = _TARGET if doubt is None else min(max(1e-6, 0.1 * abs(least / doubt - 1)), 1e-2)
        if least - bound <= relative * least or (stalled > 8 and gap < relative * least) or not (slacks > 0).all():
            break
        centre = gap / duals.size
        # How centred the point is decides how far ahead to aim.
        ahead = 0.1 if float((duals * slacks).min()) > 0.1 * centre else 0.5
        target = max(ahead * centre, 0.05 * relative * least / duals.size)
        weights, pulls = duals / slacks, target / slacks
        try:
            with np.errstate(all="ignore"):
                change, ends = reach.newton(value.by_floor, curvature(windows, law, loss), point, weights, pulls)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(change).all():
            break
        d_slacks = reach.slacks(change, change=True)
        d_duals = pulls - duals - weights * d_slacks
        length, along = (min(1.0, 0.99 * _longest(v, d)) for v, d in ((slacks, d_slacks), (duals, d_duals)))
        # Where the loss is flat on one side and curved on the other, full steps would swing to and fro.
        merit = height - target * float(np.log(slacks).sum())
        for _ in range(_HALVINGS):
            windows, value = at(point + length * change)
            after = float(value.loss) - target * float(np.log(np.maximum(slacks + length * d_slacks, 1e-300)).sum())
            if after <= merit + 1e-9 * abs(target) + 1e-13 * height:
                break
            length /= 2
        point, duals = point + length * change, duals + along * d_duals
    if math.isinf(least):
        raise ConvergenceError("no windows were found that reach both ends of the range")
    return (least - bound) / least, Optimum(floors=floors, ends=multipliers, iterations=step, point=point)


def _longest(values: FloatArray, change: FloatArray) -> float:
    falling = change < 0
    return float((values[falling] / -change[falling]).min()) if falling.any() else math.inf


def lower_bound(value: Value, floors: FloatArray, levels: FloatArray, ends: FloatArray, ratio: float) -> float:
    """What no mechanism at these levels can beat.

    Arguments:
        value: that of the windows of any floors: their prices are multipliers of averages over inputs.
        ends: (2, 2) any multipliers of mass and mean of the rows at -1 and 1.
    """
    return _bound(float(value.loss - floors @ value.by_floor), value.by_floor, levels, ends, ratio)


def _bound(constant: float, cost: FloatArray, levels: FloatArray, ends: FloatArray, ratio: float) -> float:
    """From what averages over inputs cost, a constant and for each floor (m,), the bound with the rows at -1 and 1."""
    reduced = ends[:, :1] + ends[:, 1:] * levels
    cost = cost + np.minimum(reduced, ratio * reduced).sum(axis=0)
    constant += float(ends[0, 1] - ends[0, 0] - ends[1].sum())
    return constant + (1 - 2 / float(levels[-1] - levels[0])) * min(0.0, float(cost.min()))


def bound_for_atoms(points: FloatArray, parts: FloatArray, windows: Windows, ends: FloatArray, loss: str) -> float:
    """`lower_bound` for inputs at point masses, each priced at the lines of the pieces that it is split among.

    Arguments:
        points: (n,) centred units.
        parts: (P, n) how much of each is priced at the line of each piece: any split is right.
        ends: (2, 2) multipliers of mass and mean of the rows at -1 and 1.
    """
    piece, atom = np.nonzero(parts)
    weight, x, levels = parts[piece, atom], points[atom], windows.levels
    paid = prices(levels, x, windows.left[piece], windows.right[piece], loss)
    cost = weight @ np.minimum(paid.reduced, windows.ratio * paid.reduced)
    return _bound(float(weight @ (paid.line + paid.tilt * x)), cost, levels, ends, windows.ratio)
