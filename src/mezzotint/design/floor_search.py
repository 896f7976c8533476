"""The best floors at given levels for an average loss: Newton's method on a convex program.

The loss of windows is convex in their floors and known with two derivatives (`windows`); what
remains are the rows of the two ends of the range, which say that the windows reach there: two rows,
whatever the inputs. The multipliers that come out bound every mechanism at these levels. Centred
units (inputs in [-1, 1]).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import final

import numpy as np

from mezzotint.core.errors import MezzotintError
from mezzotint.core.laws import Law
from mezzotint.core.types import FloatArray
from mezzotint.design.windows import (
    Value,
    Windows,
    average,
    curvature,
    lower_bound,
    make_windows,
)

_TARGET = 1e-9
"""Relative gap at which Newton's method stops."""

_STEPS = 100
_HALVINGS = 12
_STALLED_STEPS = 8
"""Steps without a better bound after which a small enough gap ends the method."""

_THINNEST = 1e-7
"""An outer level that reaches no farther than this (relative) beyond what is needed counts as just
reaching.
"""

_LEAST = 1e-10
"""Where both outer levels just reach, the solver sees them so much (relative) farther out."""

REACH_TOLERANCE = 1e-6
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


_LEAST_INNER_MASS = 1e-3
"""Of the mass of inner levels: with less, rows are tried whose inner levels are unlike."""


def _rows_inside(
    levels: FloatArray,
    ratio: float,
    tilt: float,
) -> tuple[float, FloatArray]:
    """Mass of each inner level in the larger row, and rows (2, m) at -1 and 1 strictly within the ratio, inner levels
    tilted.
    """
    target_means = np.array([-1.0, 1.0])
    is_inner = np.ones(levels.size)
    is_inner[[0, -1]] = 0.0
    first_tilt, last_tilt = min(1.0, 1 / tilt), min(1.0, tilt)
    tilts = np.array([[first_tilt], [last_tilt]])
    inner_mass = 0.5 / levels.size
    for _ in range(110):
        # The outer two levels take the remaining mass so that the means hold.
        rows = inner_mass * is_inner * tilts
        outer_mass = 1 - rows.sum(axis=1)
        outer_moment = target_means - rows @ levels
        span = levels[-1] - levels[0]
        last_moment = outer_moment - outer_mass * levels[0]
        rows[:, -1] = last_moment / span
        rows[:, 0] = outer_mass - rows[:, -1]
        smallest = rows.min(axis=0)
        largest = rows.max(axis=0)
        limit = smallest * ratio * (1 - 1e-14)
        is_positive = (smallest > 0).all()
        if is_positive and (largest < limit).all():
            return inner_mass, rows
        inner_mass /= 2
    return 0.0, rows


def _interior(
    levels: FloatArray,
    ratio: float,
) -> tuple[FloatArray, FloatArray]:
    """Floors (m,) and rows (2, m) at -1 and 1 strictly between floors and ratio * floors."""
    inner_mass, rows = _rows_inside(levels, ratio, 1.0)
    if inner_mass < _LEAST_INNER_MASS:
        # Where one outer level reaches barely far enough, the inner ones must be (nearly) as unlike
        # as they may.
        candidates = [(inner_mass, rows)]
        for digit_count in range(1, 13):
            for sign in (1, -1):
                row_tilt = ratio ** (sign * (1 - 10.0**-digit_count))
                candidates.append(_rows_inside(levels, ratio, row_tilt))
        largest_mass = max(candidate_mass for candidate_mass, _ in candidates)
        large_enough = (pair for pair in candidates if pair[0] >= largest_mass / 10)
        inner_mass, rows = next(large_enough)
    if inner_mass == 0.0:
        raise ConvergenceError("these levels do not reach far enough")
    products = rows.min(axis=0) * rows.max(axis=0)
    return np.sqrt(products / ratio), rows


@final
class _EliminatedRow:
    """The Newton equations of the row at one end of the range, solved for the row's change.

    With own = w_low + w_high and cross = -(w_low + ratio w_high) the row's change is
    (-pull - cross d_floors - mass - mean (levels - centre)) / own, where mass and mean are the
    multipliers of its sum and its mean.
    """

    def __init__(
        self,
        levels: FloatArray,
        ratio: float,
        row: FloatArray,
        target_mean: float,
        weights: FloatArray,
        pulls: FloatArray,
    ) -> None:
        low, high = weights
        self.own = low + high
        self.cross = -(low + ratio * high)
        self.pull = pulls[1] - pulls[0]
        # Around this centre mass and mean do not interact, however few levels are free to move.
        inverse = 1 / self.own
        weighted_levels = levels / self.own
        self.centre = float(weighted_levels.sum() / inverse.sum())
        deviations = levels - self.centre
        self.equations = np.stack([np.ones(levels.size), deviations])
        targets = np.array([1.0, target_mean - self.centre])
        self.missing = targets - self.equations @ row
        moments = self.equations**2 / self.own
        self.moments = moments.sum(axis=1)
        # own - cross**2 / own without cancellation.
        self.diagonal = (ratio - 1) ** 2 * low * high / self.own

    def matrix(self) -> FloatArray:
        """What the two equations add to the matrix of the floors, beside the diagonal."""
        share = self.equations * (self.cross / self.own)
        return (share.T / self.moments) @ share

    def right(self) -> FloatArray:
        """What they add to the right-hand side."""
        pulled = self.equations @ (self.pull / self.own)
        residual = (pulled + self.missing) / self.moments
        remaining_pull = self.pull - residual @ self.equations
        return self.cross * remaining_pull / self.own

    def step(self, floor_change: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The change of the row, and the multipliers of its mass and mean."""
        free = -self.pull - self.cross * floor_change
        moved = self.equations @ (free / self.own)
        mass, mean = (moved - self.missing) / self.moments
        priced = free - mass - mean * self.equations[1]
        multipliers = np.array([mass - mean * self.centre, mean])
        return priced / self.own, multipliers


@final
class _TwoRows:
    """Levels that reach farther than they must on both sides: rows at -1 and 1 between floors and
    ratio * floors.
    """

    def __init__(self, levels: FloatArray, ratio: float) -> None:
        # Where outer levels just reach there is no interior: the rows see them a little farther
        # out.
        excess = max(_LEAST, _ROOM / (ratio - 1))
        nearest = 1 + overhang(ratio) * (1 + excess) + 1e-15
        self.ratio = ratio
        self.levels = levels.copy()
        self.levels[0] = min(levels[0], -nearest)
        self.levels[-1] = max(levels[-1], nearest)
        floors, rows = _interior(self.levels, ratio)
        self.point = np.concatenate([floors, rows.ravel()])

    def slacks(self, point: FloatArray, *, change: bool = False) -> FloatArray:
        """(2, 2, m) rows - floors and ratio * floors - rows, positive inside; `change`: of a change
        of the point.
        """
        floors = point[: self.levels.size]
        rows = point[self.levels.size :].reshape(2, -1)
        return np.stack([rows - floors, self.ratio * floors - rows])

    def newton(
        self,
        point: FloatArray,
        gradient: FloatArray,
        hessian: FloatArray,
        weights: FloatArray,
        pulls: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """The step, and (2, 2) multipliers of the ends.

        Arguments:
            gradient, hessian: (m,) and (m, m) of the loss by the floors, at the point.
            weights: multiplier over slack, of each slack.
            pulls: target over slack.
        """
        levels = self.levels
        rows = point[levels.size :].reshape(2, -1)
        matrix = hessian.copy()
        floor_pulls = pulls[0] - self.ratio * pulls[1]
        right = -gradient - floor_pulls.sum(axis=0)
        ends: list[_EliminatedRow] = []
        for end, target_mean in enumerate((-1.0, 1.0)):
            eliminated = _EliminatedRow(
                levels=levels,
                ratio=self.ratio,
                row=rows[end],
                target_mean=target_mean,
                weights=weights[:, end],
                pulls=pulls[:, end],
            )
            matrix[np.diag_indices_from(matrix)] += eliminated.diagonal
            matrix += eliminated.matrix()
            right += eliminated.right()
            ends.append(eliminated)
        floor_change = _solve(matrix, right)
        row_changes = np.empty_like(rows)
        multipliers = np.empty((2, 2))
        for end, eliminated in enumerate(ends):
            row_changes[end], multipliers[end] = eliminated.step(floor_change)
        return np.concatenate([floor_change, row_changes.ravel()]), multipliers


@final
class _JustReaching:
    """One outer level just reaches: then all other levels are at their floor at its end and full at
    the other one.

    docs/proofs/design.md, "Levels that just reach".
    """

    def __init__(
        self,
        levels: FloatArray,
        ratio: float,
        outer: int,
    ) -> None:
        self.levels = levels
        self.ratio = ratio
        self.outer = outer
        near_end, far_end = 1.0, -1.0
        if outer == 0:
            near_end, far_end = -1.0, 1.0
        self.distance = np.abs(levels - levels[outer])
        reach_near = abs(levels[outer] - near_end)
        reach_far = abs(levels[outer] - far_end)
        self.moment = math.sqrt(reach_near * reach_far / ratio)
        self.others = np.arange(levels.size) != outer
        # Slacks: the other floors, what the far row leaves to the outer level, and its ceiling at
        # the near row.
        other_count = levels.size - 1
        self.matrix = np.zeros((other_count + 2, levels.size))
        self.matrix[:other_count, self.others] = np.eye(other_count)
        self.matrix[other_count] = np.where(self.others, -ratio, -1.0)
        self.matrix[other_count + 1] = np.where(self.others, 1.0, ratio)
        self.constant = np.zeros(other_count + 2)
        self.constant[other_count:] = 1.0, -1.0
        self.point = self._starting_floors()

    def _starting_floors(self) -> FloatArray:
        """Floors with this moment inside the slacks: the more on the farthest level, the less mass
        they take.
        """
        other_count = self.levels.size - 1
        farthest = other_count - self.outer
        least_mass = self.moment / self.distance[farthest]
        spare_mass = 1 - least_mass * (self.ratio + 1)
        limit = 1 - 1e-3 * spare_mass
        even_share = 0.5
        while True:
            denominators = other_count * np.maximum(self.distance, 1e-300)
            even_floors = even_share * self.moment / denominators
            floors = np.where(self.others, even_floors, 0.0)
            floors[farthest] += (1 - even_share) * least_mass
            floor_total = float(floors.sum())
            if floor_total * (self.ratio + 1) < limit or even_share < 1e-15:
                break
            even_share /= 2
        near_share = 1 - self.ratio * floor_total
        far_share = (1 - floor_total) / self.ratio
        floors[self.outer] = (near_share + far_share) / 2
        return floors

    def slacks(self, point: FloatArray, *, change: bool = False) -> FloatArray:
        slacks = self.matrix @ point
        return slacks if change else slacks + self.constant

    def newton(
        self,
        point: FloatArray,
        gradient: FloatArray,
        hessian: FloatArray,
        weights: FloatArray,
        pulls: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """The Newton step after which `distance @ point` is `moment`, and the multipliers there."""
        matrix = hessian + (self.matrix.T * weights) @ self.matrix
        gradient_side = pulls @ self.matrix - gradient
        right = np.stack([gradient_side, -self.distance], axis=1)
        by_gradient, by_price = _solve(matrix, right).T
        missing = self.moment - float(self.distance @ point)
        gradient_moment = float(self.distance @ by_gradient)
        price = (missing - gradient_moment) / float(self.distance @ by_price)
        step = by_gradient + price * by_price
        duals = pulls - weights * (self.matrix @ step)
        return step, self._multipliers(price, duals)

    def _multipliers(self, price: float, duals: FloatArray) -> FloatArray:
        """(2, 2) of mass and mean of the rows at -1 and 1, from the price of the moment."""
        far_mass = max(0.0, float(duals[-2]))
        near_mass = -max(0.0, float(duals[-1]))
        # Any multiple of (ratio, -1) may be added to the rows' prices of the mean: enough for their
        # signs.
        nearest = float(self.distance[self.others].min())
        near_need = -near_mass / nearest - price
        far_mean = max(far_mass / nearest, near_need / self.ratio, 0.0)
        near_mean = price + self.ratio * far_mean
        sign = 1.0 if self.outer == 0 else -1.0
        anchor = self.levels[self.outer]
        near_row = (near_mass - near_mean * sign * anchor, near_mean * sign)
        far_row = (far_mass + far_mean * sign * anchor, -far_mean * sign)
        if self.outer == 0:
            return np.array([near_row, far_row])
        return np.array([far_row, near_row])


_Reach = _TwoRows | _JustReaching
"""What makes windows reach -1 and 1, as slacks that are linear in a point; the floors come first in
it.
"""


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Barrier terms differ by many orders of magnitude: scaled to a unit diagonal they do not hide
    each other.
    """
    diagonal = np.maximum(matrix.diagonal(), 1e-300)
    scale = 1 / np.sqrt(diagonal)
    scaled_matrix = matrix * scale * scale[:, None]
    scaled_right = (right.T * scale).T
    solved = np.linalg.solve(scaled_matrix, scaled_right)
    return (solved.T * scale).T


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FloorProblem:
    """The floors of levels (centred units, increasing) for the expected loss over a law.

    Arguments:
        doubt: a loss whose distance from the optimum is enough to know, without the optimum's last
            digits.
    """

    levels: FloatArray
    ratio: float
    law: Law
    loss: str
    doubt: float | None = None

    def value(self, floors: FloatArray) -> tuple[Windows, Value]:
        """The windows of floors and their expected loss."""
        has_kinks = self.loss == "mae"
        windows = make_windows(self.levels, floors, self.ratio, split=has_kinks)
        return windows, average(windows, self.law, self.loss)

    def relative_target(self, loss: float) -> float:
        """The relative gap to stop at: of a loss far from the one in doubt a tenth of the distance
        is enough to know.
        """
        if self.doubt is None:
            return _TARGET
        distance = abs(loss / self.doubt - 1)
        return min(max(1e-6, 0.1 * distance), 1e-2)


def best_floors(
    problem: FloorProblem,
    *,
    near: Optimum | None = None,
    distance: float = 1.0,
) -> Optimum:
    """Minimises the expected loss of windows over the floors of these levels.

    Nothing here needs to be trusted: `lower_bound` holds for any floors and multipliers.

    Arguments:
        near, distance: the optimum for a law that differs a little: the search starts so (relatively)
            far from it.

    Raises:
        ConvergenceError: the levels reach less far than `overhang`, or numbers are beyond floats.
    """
    results: list[tuple[float, Optimum]] = []
    for make_reach in _ways_to_reach(problem.levels, problem.ratio):
        with contextlib.suppress(ConvergenceError):
            reach = make_reach()
            start = reach.point
            start_distance = 1.0
            if near is not None and near.point.size == reach.point.size:  # a point of the same kind
                start = distance * start + (1 - distance) * near.point
                start_distance = distance
            method = _NewtonMethod(problem, reach, start, start_distance)
            gap, optimum = method.run()
            results.append((gap, optimum))
            if problem.doubt is not None or gap < 1e-6:
                break
    if not results:
        raise ConvergenceError(
            f"no floors were found for {problem.levels.size} levels at a ratio of {problem.ratio:g}"
        )
    return min(results, key=itemgetter(0))[1]


def _ways_to_reach(
    levels: FloatArray,
    ratio: float,
) -> list[Callable[[], _Reach]]:
    """The likeliest first."""
    outer_distances = np.abs(levels[[0, -1]])
    excess = (outer_distances - 1) / overhang(ratio) - 1
    ways: list[Callable[[], _Reach]] = [partial(_TwoRows, levels, ratio)]
    if excess.min() < _THINNEST:
        outer, position = levels.size - 1, 1
        if excess[0] < excess[1]:
            outer = 0
        if excess.max() > 100 * _THINNEST:
            position = 0
        just_reaching = partial(_JustReaching, levels, ratio, outer)
        ways.insert(position, just_reaching)
    return ways


@final
class _NewtonMethod:
    """A primal-dual interior-point method for a `FloorProblem`, with the best bound and floors met
    on the way.
    """

    def __init__(
        self,
        problem: FloorProblem,
        reach: _Reach,
        start: FloatArray,
        start_distance: float,
    ) -> None:
        self.problem = problem
        self.reach = reach
        self.count = problem.levels.size
        self.point = start
        self.windows, self.value = problem.value(start[: self.count])
        slacks = reach.slacks(start)
        if not slacks.min() > 0:
            raise ConvergenceError("between floats there is no room inside these levels' reach")
        loss = float(self.value.loss)
        self.duals = start_distance * loss / slacks.size / slacks
        self.ends: FloatArray = np.zeros((2, 2))
        self.bound = -math.inf
        self.bound_ends = self.ends
        self.least = math.inf
        self.floors = start[: self.count]
        self.stalled_steps = 0

    def run(self) -> tuple[float, Optimum]:
        """The relative gap that it proves, and where it ends."""
        step = 0
        while step < _STEPS:
            step += 1
            slacks = self.reach.slacks(self.point)
            self._keep_best()
            relative = self.problem.relative_target(self.least)
            gap = float((self.duals * slacks).sum())
            is_stalled = self.stalled_steps > _STALLED_STEPS and gap < relative * self.least
            is_proven = self.least - self.bound <= relative * self.least
            if is_proven or is_stalled or not (slacks > 0).all():
                break
            if not self._step(slacks, relative):
                break
        if math.isinf(self.least):
            raise ConvergenceError("no windows were found that reach both ends of the range")
        optimum = Optimum(
            floors=self.floors,
            ends=self.bound_ends,
            iterations=step,
            point=self.point,
        )
        return (self.least - self.bound) / self.least, optimum

    def _keep_best(self) -> None:
        """Keeps the best bound and the best floors so far, and counts steps that raise no bound."""
        problem = self.problem
        floors = self.point[: self.count]
        bound = lower_bound(
            value=self.value,
            floors=floors,
            levels=problem.levels,
            ends=self.ends,
            ratio=problem.ratio,
        )
        if bound > self.bound:
            self.bound = bound
            self.bound_ends = self.ends
            self.stalled_steps = 0
        else:
            self.stalled_steps += 1
        # Before the equations are met windows may end short of the range: then their loss is not
        # that of a mechanism.
        loss = float(self.value.loss)
        if loss < self.least and missing_reach(self.windows) <= REACH_TOLERANCE:
            self.least = loss
            self.floors = floors

    def _step(self, slacks: FloatArray, relative: float) -> bool:
        """Move the point and the multipliers; False where the equations have no solution."""
        problem = self.problem
        products = self.duals * slacks
        centre = float(products.sum()) / self.duals.size
        # How centred the point is decides how far ahead to aim.
        ahead = 0.5
        if float(products.min()) > 0.1 * centre:
            ahead = 0.1
        least_target = 0.05 * relative * self.least / self.duals.size
        target = max(ahead * centre, least_target)
        weights = self.duals / slacks
        pulls = target / slacks
        try:
            with np.errstate(all="ignore"):
                hessian = curvature(self.windows, problem.law, problem.loss)
                change, self.ends = self.reach.newton(
                    self.point, self.value.by_floor, hessian, weights, pulls
                )
        except np.linalg.LinAlgError:
            return False
        if not np.isfinite(change).all():
            return False
        slack_change = self.reach.slacks(change, change=True)
        dual_change = pulls - self.duals - weights * slack_change
        dual_length = min(1.0, 0.99 * _longest(self.duals, dual_change))
        step_length = self._search(change, slacks, slack_change, target)
        self.point = self.point + step_length * change
        self.duals = self.duals + dual_length * dual_change
        return True

    def _search(
        self,
        change: FloatArray,
        slacks: FloatArray,
        slack_change: FloatArray,
        target: float,
    ) -> float:
        """The length of a step that does not raise the merit; it leaves the value there.

        Where the loss is flat on one side and curved on the other, full steps would swing to and
        fro.
        """
        step_length = min(1.0, 0.99 * _longest(slacks, slack_change))
        loss = float(self.value.loss)
        log_slacks = float(np.log(slacks).sum())
        merit = loss - target * log_slacks
        for _ in range(_HALVINGS):
            point = self.point + step_length * change
            self.windows, self.value = self.problem.value(point[: self.count])
            new_slacks = np.maximum(slacks + step_length * slack_change, 1e-300)
            log_slacks = float(np.log(new_slacks).sum())
            new_merit = float(self.value.loss) - target * log_slacks
            if new_merit <= merit + 1e-9 * abs(target) + 1e-13 * loss:
                break
            step_length /= 2
        return step_length


def missing_reach(windows: Windows) -> float:
    """By how much windows fail to reach the ends of the range, in half ranges."""
    first_mean = float(windows.means[0])
    last_mean = float(windows.means[-1])
    return max(first_mean + 1, 1 - last_mean)


def _longest(values: FloatArray, change: FloatArray) -> float:
    is_falling = change < 0
    if not is_falling.any():
        return math.inf
    lengths = values[is_falling] / -change[is_falling]
    return float(lengths.min())
