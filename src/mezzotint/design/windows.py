"""The best rows at given levels and floors under pure epsilon: windows, their loss, and its bounds.

For given levels and floors the best mechanism of all is known in closed form. Lay segments of the
lengths (E - 1) f_i, E = e**epsilon, of the levels side by side on a line. The best row is the
floors
plus one window of the spare mass 1 - sum f on that line; sliding it makes the mean grow. So a
mechanism is its levels and its floors, no more, its knots are where an end of the window passes
from
one segment to the next, and its loss is a sum over the pieces between. docs/proofs/design.md,
"Windows". Centred units (inputs in [-1, 1]).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import optimize

from mezzotint.core.laws import Law
from mezzotint.core.types import FloatArray, Floats, IndexArray


def error(
    loss: str,
    levels: FloatArray,
    x: FloatArray,
) -> FloatArray:
    """The loss of reporting `levels` for inputs `x`, broadcast."""
    distances = levels - x
    if loss == "mae":
        return np.abs(distances)
    return distances**2


def _slope(
    loss: str,
    levels: FloatArray,
    x: FloatArray,
) -> FloatArray:
    """Its derivative in the level."""
    distances = levels - x
    if loss == "mae":
        return np.sign(distances)
    return 2 * distances


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The best rows of (..., m) floors: pieces on which they are linear in the input, with leading
    batch axes.

    At the ends of the pieces the windows start at `starts` (..., K), with the `rows` (..., K, m)
    and their `means`, not
    decreasing: inputs from the first to the last are covered. On each piece the window starts and
    ends in the segments of the levels `left` and `right` (..., K-1).
    """

    levels: FloatArray
    floors: FloatArray
    ratio: float
    starts: FloatArray
    rows: FloatArray
    means: FloatArray
    left: IndexArray
    right: IndexArray

    @property
    def end_levels(self) -> tuple[FloatArray, FloatArray]:
        """(..., K-1) levels in whose segments the window of each piece starts and ends."""
        low_levels = np.take_along_axis(self.levels, self.left, axis=-1)
        high_levels = np.take_along_axis(self.levels, self.right, axis=-1)
        return low_levels, high_levels


class _Line:
    """What windows can add to the floors: segments laid side by side, the windows' length `spare`,
    and their last start.
    """

    def __init__(
        self,
        levels: FloatArray,
        floors: FloatArray,
        ratio: float,
    ) -> None:
        self.levels = levels
        self.floors = floors
        self.segments = (ratio - 1) * floors
        origin = np.zeros_like(self.segments[..., :1])
        stops = np.cumsum(self.segments, axis=-1)
        self.ends = np.concatenate([origin, stops], axis=-1)
        floor_total = floors.sum(axis=-1, keepdims=True)
        self.spare = 1 - floor_total
        line_end = self.ends[..., -1:]
        self.last = np.maximum(line_end - self.spare, 0.0)

    def rows(self, starts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The rows (..., K, m) of windows from `starts` (..., K), and their means (..., K)."""
        window_start = starts[..., None]
        window_stop = window_start + self.spare[..., None]
        segment_start = self.ends[..., None, :-1]
        segment_stop = self.ends[..., None, 1:]
        overlap_stop = np.minimum(window_stop, segment_stop)
        overlap_start = np.maximum(window_start, segment_start)
        overlap = np.maximum(overlap_stop - overlap_start, 0.0)
        extra = np.minimum(overlap, self.segments[..., None, :])
        floor_moments = self.floors * self.levels
        floor_mean = floor_moments.sum(axis=-1, keepdims=True)
        means = floor_mean + np.einsum("...km,...m->...k", extra, self.levels)
        return self.floors[..., None, :] + extra, means


def outer_rows(
    levels: FloatArray,
    floors: FloatArray,
    ratio: float,
) -> tuple[FloatArray, FloatArray]:
    """The rows (..., 2, m) of the first window and of the last one, and their means (..., 2)."""
    line = _Line(levels, floors, ratio)
    first_start = np.zeros_like(line.last)
    starts = np.concatenate([first_start, line.last], axis=-1)
    return line.rows(starts)


def make_windows(
    levels: FloatArray,
    floors: FloatArray,
    ratio: float,
    *,
    split: bool = False,
) -> Windows:
    """The windows of floors with 1/ratio <= sum(floors) <= 1, `split` at levels too for a loss that
    has kinks there.
    """
    line = _Line(levels, floors, ratio)
    starts = np.concatenate([line.ends, line.ends - line.spare], axis=-1)
    starts = np.clip(starts, 0.0, line.last)
    if split:
        level_starts = _starts_at_levels(line, starts)
        starts = np.concatenate([starts, level_starts], axis=-1)
    start_order = np.argsort(starts, axis=-1, kind="stable")
    starts = np.take_along_axis(starts, start_order, axis=-1)
    # Counting what was passed tells the segments of the window's ends even where several kinks
    # coincide.
    level_count = floors.shape[-1]
    passes_left = start_order <= level_count
    passes_right = (start_order > level_count) & (start_order < 2 * level_count + 2)
    passed_left = np.cumsum(passes_left, axis=-1)
    passed_right = np.cumsum(passes_right, axis=-1)
    left = passed_left[..., :-1] - 1
    right = passed_right[..., :-1] - 1
    window_rows, window_means = line.rows(starts)
    return Windows(
        levels=levels,
        floors=floors,
        ratio=ratio,
        starts=starts,
        rows=window_rows,
        means=window_means,
        left=np.clip(left, 0, level_count - 1),
        right=np.clip(right, 0, level_count - 1),
    )


def _starts_at_levels(line: _Line, starts: FloatArray) -> FloatArray:
    """Starts of the windows whose means are the levels, as far as they reach them."""
    ordered = np.sort(starts, axis=-1)
    _, means = line.rows(ordered)
    is_below = means[..., None, :] <= line.levels[..., None]
    start_index = is_below.sum(axis=-1) - 1
    start_index = np.clip(start_index, 0, ordered.shape[-1] - 2)
    mean_below = np.take_along_axis(means, start_index, axis=-1)
    mean_above = np.take_along_axis(means, start_index + 1, axis=-1)
    start_below = np.take_along_axis(ordered, start_index, axis=-1)
    start_above = np.take_along_axis(ordered, start_index + 1, axis=-1)
    rise = np.where(mean_above > mean_below, mean_above - mean_below, 1.0)
    progress = (line.levels - mean_below) / rise
    position = np.clip(progress, 0.0, 1.0)
    return start_below + position * (start_above - start_below)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Prices:
    """What the best rows at some inputs pay: the line through the errors of the two levels at the
    window's ends.

    Its height at level 0, `line`, and its slope, `tilt`; each level's loss, `errors` (..., m), and
    how far that is above the line, `reduced`: negative only for levels inside the window.
    """

    line: FloatArray
    tilt: FloatArray
    errors: FloatArray
    reduced: FloatArray


def _tilt(
    loss: str,
    low: FloatArray,
    high: FloatArray,
    x: FloatArray,
) -> FloatArray:
    """Slope in the level of the line through the errors of two levels."""
    is_apart = high > low
    low_error = error(loss, low, x)
    rise = error(loss, high, x) - low_error
    run = np.where(is_apart, high - low, 1.0)
    slope_at_low = _slope(loss, low, x)
    return np.where(is_apart, rise / run, slope_at_low)


def _at(values: FloatArray, index: IndexArray) -> FloatArray:
    """(...,) entries of (..., m) values."""
    entries = np.take_along_axis(values, index[..., None], axis=-1)
    return entries[..., 0]


def prices(
    levels: FloatArray,
    x: FloatArray,
    left: IndexArray,
    right: IndexArray,
    loss: str,
) -> Prices:
    """Multipliers of mass and mean at inputs `x` (...,) with windows that end in the segments of
    the levels `left`, `right` (...,).
    """
    batch_shape = (*x.shape, levels.shape[-1])
    levels = np.broadcast_to(levels, batch_shape)
    errors = error(loss, levels, x[..., None])
    low_level = _at(levels, left)
    high_level = _at(levels, right)
    tilt = _tilt(loss, low_level, high_level, x)
    line = error(loss, low_level, x) - tilt * low_level
    line_heights = line[..., None] + tilt[..., None] * levels
    reduced = errors - line_heights
    return Prices(
        line=line,
        tilt=tilt,
        errors=errors,
        reduced=reduced,
    )


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
    windows: Windows,
    x: FloatArray,
    loss: str,
) -> Value:
    """Losses (..., P) at one input of each piece, and derivatives (..., P, m)."""
    levels = windows.levels[..., None, :]
    price = prices(levels, x, windows.left, windows.right, loss)
    piece_start = windows.means[..., :-1]
    piece_stop = windows.means[..., 1:]
    piece_width = np.where(piece_stop > piece_start, piece_stop - piece_start, 1.0)
    progress = (x - piece_start) / piece_width
    position = np.clip(progress, 0.0, 1.0)[..., None]
    start_rows = windows.rows[..., :-1, :]
    stop_rows = windows.rows[..., 1:, :]
    rows = (1 - position) * start_rows + position * stop_rows
    level_index = np.arange(windows.levels.shape[-1])
    starts_below = level_index > windows.left[..., None]
    ends_above = level_index < windows.right[..., None]
    is_full = starts_below & ends_above
    # Where windows end short of an input, what is missing of its mean counts at its price, as in
    # the bound.
    missing_mean = x - (rows * levels).sum(axis=-1)
    error_slopes = _slope(loss, levels, x[..., None])
    row_losses = (rows * price.errors).sum(axis=-1)
    return Value(
        loss=row_losses + price.tilt * missing_mean,
        by_level=rows * (error_slopes - price.tilt[..., None]),
        by_floor=np.where(is_full, windows.ratio, 1.0) * price.reduced,
    )


def average(
    windows: Windows,
    law: Law,
    loss: str,
) -> Value:
    """The expected loss over `law` of windows that cover [-1, 1]."""
    edges = np.clip(windows.means, -1.0, 1.0)
    # The outermost pieces take what rounding leaves uncovered.
    edges[..., 0] = -1.0
    edges[..., -1] = 1.0
    piece_start = edges[..., :-1]
    piece_stop = edges[..., 1:]
    moments = np.diff(law.integrals(edges), axis=-2)
    mass, first_moment, second_moment = np.moveaxis(moments, -1, 0)
    mass = np.maximum(mass, 0.0)
    # On a short piece the last digits of integrals over its mass would be any number: kept to what
    # moments may be.
    divisor = np.where(mass > 0, mass, 1.0)
    x = np.clip(first_moment / divisor, piece_start, piece_stop)
    spread = np.clip(
        second_moment - first_moment**2 / divisor, 0.0, mass * (x - piece_start) * (piece_stop - x)
    )
    at_means = _values(windows, x, loss)
    by_level = np.einsum("...p,...pm->...m", mass, at_means.by_level)
    # On a piece losses bend downwards, and no derivative bends but this one.
    if loss == "mae":
        spread = spread * _kink_density(windows, x)
        piece_width = np.diff(windows.means, axis=-1)
        turn = spread / np.where(piece_width > 0, piece_width, 1.0)
        row_changes = np.diff(windows.rows, axis=-2)
        by_level = by_level + np.einsum("...p,...pm->...m", turn, row_changes)
    return Value(
        loss=(mass * at_means.loss - spread).sum(axis=-1),
        by_level=by_level,
        by_floor=np.einsum("...p,...pm->...m", mass, at_means.by_floor),
    )


def _kink_density(windows: Windows, x: FloatArray) -> FloatArray:
    """Per piece how much an absolute error bends at x, for each unit of spread."""
    low_level, high_level = windows.end_levels
    distance = np.where(high_level > low_level, high_level - low_level, 1.0)
    is_between = (low_level < x) & (x < high_level)
    return np.where(is_between, 2 / distance, 0.0)


_END_TOLERANCE = 1e-9
"""Inputs closer than this to an end of the range count as that end."""


def peaks(windows: Windows) -> tuple[FloatArray, Value]:
    """Per piece (..., P) the input of the largest MSE; that MSE (0 where no piece peaks), and its
    derivatives.
    """
    edges = np.clip(windows.means, -1.0, 1.0)
    low_level, high_level = windows.end_levels
    middle = (low_level + high_level) / 2
    piece_start, piece_stop = edges[..., :-1], edges[..., 1:]
    x = np.clip(middle, piece_start, piece_stop)
    value = _values(windows, x, "mse")
    # Errors bend upwards at kinks: what is largest is inside a piece or at an end of the range.
    is_inside = np.abs(x) < 1 - _END_TOLERANCE
    is_no_peak = (x != middle) & is_inside
    is_empty = np.diff(windows.starts, axis=-1) <= 0
    value.loss[is_no_peak | is_empty] = 0.0
    return x, value


def curvature(
    windows: Windows,
    law: Law,
    loss: str,
) -> FloatArray:
    """(m, m) second derivative by the floors, no batch axes: one rank-one term for each kink inside
    the range.
    """
    x = windows.means[1:-1]
    levels = windows.levels
    level_index = np.arange(levels.size)
    left_before, left_after = windows.left[:-1], windows.left[1:]
    right_before, right_after = windows.right[:-1], windows.right[1:]
    passes_left = left_before != left_after
    passes_right = right_before != right_after
    pivot = np.where(passes_left, right_before, left_before)
    low_index = left_before[:, None]
    high_index = np.where(passes_left, right_before, right_after)[:, None]
    is_full = (level_index > low_index) & (level_index < high_index)
    weights = np.where(is_full, windows.ratio, 1.0)
    direction = weights * (levels - levels[pivot][:, None])
    tilt_before = _tilt(loss, levels[left_before], levels[right_before], x)
    tilt_after = _tilt(loss, levels[left_after], levels[right_after], x)
    in_range = (x > -1) & (x < 1)
    is_inside = in_range & (passes_left | passes_right)
    bend = np.maximum(tilt_after - tilt_before, 0.0)
    bend_density = law.density_at(x) * bend
    kink_weight = np.where(is_inside, bend_density, 0.0)
    return (direction * kink_weight[:, None]).T @ direction


def lower_bound(
    value: Value,
    floors: FloatArray,
    levels: FloatArray,
    ends: FloatArray,
    ratio: float,
) -> float:
    """A lower bound on the loss of all mechanisms at these levels, from the value of the windows of
    any floors.

    Their prices are multipliers of averages over inputs; `ends` (2, 2) are any of mass and mean of
    the rows at -1, 1.
    """
    constant = float(value.loss - floors @ value.by_floor)
    return bound_with(constant, value.by_floor, levels, ends, ratio)


def bound_with(
    constant: float,
    cost: FloatArray,
    levels: FloatArray,
    ends: FloatArray,
    ratio: float,
) -> float:
    """`lower_bound` from what averages over inputs cost: a constant, and for each floor (m,)."""
    mass_prices, mean_prices = ends[:, :1], ends[:, 1:]
    reduced = mass_prices + mean_prices * levels
    row_costs = np.minimum(reduced, ratio * reduced)
    cost = cost + row_costs.sum(axis=0)
    first_mean = ends[0, 1] - ends[0, 0]
    constant += float(first_mean - ends[1].sum())
    span = float(levels[-1] - levels[0])
    inner_share = 1 - 2 / span
    return constant + inner_share * min(0.0, float(cost.min()))


def best_ends(
    cost: FloatArray,
    levels: FloatArray,
    ratio: float,
) -> FloatArray:
    """The multipliers (2, 2) of the rows at -1 and 1 that make the most of `bound_with`, by a
    linear program.

    Where levels just reach, those of `best_floors` may depend on its last bits, and with them the
    entire bound.
    """
    # Variables: (mass, mean) at -1 and at 1, the least cost where it is below 0, and h(r) = min(r,
    # ratio r) of each row.
    level_count = levels.size
    identity = np.eye(2 * level_count)
    ones = np.ones((level_count, 1))
    both_h = identity[:level_count] + identity[level_count:]
    blocks: list[Floats] = [np.hstack([np.zeros((level_count, 4)), ones, -both_h])]
    reduced = np.kron(np.eye(2), np.column_stack([ones, levels]))
    for ratio_factor in (1.0, ratio):
        no_least = np.zeros((2 * level_count, 1))
        blocks.append(np.hstack([-ratio_factor * reduced, no_least, identity]))
    limits = np.append(cost, np.zeros(4 * level_count))
    span = float(levels[-1] - levels[0])
    total_share = 1 - 2 / span
    price_weights = [-1.0, 1.0, -1.0, -1.0, total_share]
    objective = np.append(price_weights, np.zeros(2 * level_count))
    unbounded = (None, None)
    row_bounds = [unbounded] * (2 * level_count)
    bounds = [*[unbounded] * 4, (None, 0.0), *row_bounds]
    solution = optimize.linprog(
        -objective,
        A_ub=np.vstack(blocks),
        b_ub=limits,
        bounds=bounds,
    )
    if solution.status != 0:
        return np.zeros((2, 2))
    return solution.x[:4].reshape(2, 2)


def costs_of_atoms(
    points: FloatArray,
    parts: FloatArray,
    windows: Windows,
    loss: str,
) -> tuple[float, FloatArray]:
    """The costs of point masses, each priced at the lines of the pieces among which `parts` (P, n)
    splits it.

    Any split is right: see `bound_with`.
    """
    piece, atom = np.nonzero(parts)
    weight = parts[piece, atom]
    x = points[atom]
    left, right = windows.left[piece], windows.right[piece]
    price = prices(windows.levels, x, left, right, loss)
    reduced = np.minimum(price.reduced, windows.ratio * price.reduced)
    line_heights = price.line + price.tilt * x
    return float(weight @ line_heights), weight @ reduced
