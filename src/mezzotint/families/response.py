"""Responses to a number: k-ary randomized response, stochastic rounding and the square wave."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mezzotint.core.arguments import (
    Values,
    check_count,
    check_epsilon,
    check_range,
    check_table_size,
    grid_or_values,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import exp_below
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import table
from mezzotint.core.types import TOTAL, FloatArray, IntArray

LARGEST_EPSILON = 64 * math.log(2)
"""Weights of 2**32 units have no ratio above 2**32: beyond its square nothing changes."""


LARGEST_WAVE_EPSILON = 700.0
"""Of the square wave: e**epsilon is a float."""

SMALL_WAVE_EPSILON = 1e-3
"""Below it the window's width is its limit, whose formula cancels there."""

SAME_KNOT = 1e-9
"""Knots on [0, 1] closer than this are one."""


def k_randomized_response(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: int | Values = 4,
    epsilon: float,
) -> Mechanism:
    """k-ary randomized response: dither the input onto k points, report that point or, at random,
    another one.

    Arguments:
        lower, upper: input range, data units.
        levels: k >= 2 evenly spaced points from lower to upper, or the k points themselves,
            increasing, the first equal to lower and the last to upper. The decoded levels follow
            from them and lie further out.
        epsilon: pure epsilon requested, > 0 and finite.
    Returns: the table, unbiased.
    Raises: ParameterError, naming the parameter; also an epsilon so small that 2**32 units cannot
    show it. Guarantees:
        The certified epsilon is at most `epsilon`, and within 2**-31 * k * (e**epsilon + k) of it
        while below 22. Unbiased up to the rounding of the levels to floats.
    Edge cases: epsilon above log(2**32): the rarest report keeps one unit and the certified epsilon
    stays below.
    Source: Kairouz, Oh, Viswanath 2014 (k-ary randomized response), debiased for a numeric mean.
    Example:
        >>> mechanism = mz.families.k_randomized_response(levels=4, epsilon=1.0)
        >>> mechanism.epsilon <= 1.0, mechanism.bits
        (True, 2)
    """
    low, high = check_range(lower, upper)
    points = grid_or_values("levels", levels, lower=low, upper=high)
    if points[0] != low or points[-1] != high:
        remedy = f"must run from lower={low:g} to upper={high:g} exactly"
        raise ParameterError("levels", points.tolist(), remedy)
    epsilon = check_epsilon(epsilon)
    check_table_size("levels", points.size, rows=points.size, levels=points.size)
    capped_epsilon = min(epsilon, LARGEST_EPSILON)
    other_units, same_units = _response_units(points.size, capped_epsilon)

    # A report is j with probability r, the input's own point i with p = r + s. Debiasing needs
    # levels v with r * sum(v) + s * v_i = b_i for every i; summed over i this gives
    # sum(v) = sum(b), as k r + s = 1. The units are chosen first and the levels from them, so that
    # rounding leaves no bias.
    slope = (same_units - other_units) / TOTAL
    centre = float(points.mean())
    rows = np.full((points.size, points.size), other_units / TOTAL)
    np.fill_diagonal(rows, same_units / TOTAL)
    return table(
        knots=points,
        levels=centre + (points - centre) / slope,
        probabilities=rows,
        name=f"{points.size}-ary randomized response(epsilon={epsilon:g})",
        epsilon=capped_epsilon,
    )


def _response_units(point_count: int, epsilon: float) -> tuple[int, int]:
    """Units of 2**-32 of every other point, and of the input's own: the largest ratio that is at
    most e**epsilon.
    """
    balanced_units = TOTAL / (exp_below(epsilon) + point_count - 1)
    other_units = max(1, math.ceil(balanced_units))
    same_units = TOTAL - (point_count - 1) * other_units
    if same_units <= other_units:
        remedy = f"too small for {point_count} points in units of 2**-32; ask for a larger one"
        raise ParameterError("epsilon", epsilon, remedy)
    return other_units, same_units


def randomized_response(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    epsilon: float,
) -> Mechanism:
    """Unbiased one-bit response: two levels at (e**epsilon + 1) / (e**epsilon - 1) half ranges from
    the middle.

    Arguments:
        lower, upper: input range, data units.
        epsilon: pure epsilon requested, > 0 and finite; the certified one is at most this.
    Raises, Guarantees, Edge cases: as `k_randomized_response` with two points.
    Returns: the table, one bit.
    Source: Warner 1965; Duchi, Jordan, Wainwright 2018 for a bounded mean.
    Example:
        >>> mechanism = mz.families.randomized_response(lower=0, upper=10, epsilon=1.0)
        >>> mechanism.levels.round(3).tolist(), mechanism.bits
        ([-5.82, 15.82], 1)
    """
    return k_randomized_response(
        lower=lower,
        upper=upper,
        levels=2,
        epsilon=epsilon,
    )


def stochastic_rounding(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: int | Values = 4,
) -> Mechanism:
    """Plain stochastic rounding to the two nearest levels: unbiased, and not private.

    Arguments:
        lower, upper: input range, data units.
        levels: that many evenly spaced levels from lower to upper, or the levels themselves,
            increasing, reaching from lower or below to upper or above.
    Returns: the table; its epsilon is infinite.
    Raises: ParameterError, naming the parameter.
    Guarantees: epsilon is inf whenever some level cannot be reported from every input.
    Edge cases: two levels strictly outside [lower, upper] are randomized response, with a finite
        epsilon; a level that no input can report stays, with probability 0.
    Example:
        >>> mz.families.stochastic_rounding(levels=4).epsilon
        inf
    """
    low, high = check_range(lower, upper)
    outputs = grid_or_values("levels", levels, lower=low, upper=high)
    is_inner = (outputs > low) & (outputs < high)
    inner_levels = outputs[is_inner]
    knots = np.concatenate([[low], inner_levels, [high]])
    check_table_size("levels", outputs.size, rows=knots.size, levels=outputs.size)
    levels_below = np.searchsorted(outputs, knots, side="right")
    level_below = np.clip(levels_below - 1, 0, outputs.size - 2)
    spacing = outputs[level_below + 1] - outputs[level_below]
    share_above = (knots - outputs[level_below]) / spacing
    row_index = np.arange(knots.size)
    rows = np.zeros((knots.size, outputs.size))
    rows[row_index, level_below] = 1 - share_above
    rows[row_index, level_below + 1] = share_above
    return table(
        knots=knots,
        levels=outputs,
        probabilities=rows,
        name=f"stochastic rounding to {outputs.size} levels",
    )


def square_wave(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    outputs: int = 32,
    epsilon: float,
) -> Mechanism:
    """The square wave: a report near the input is e**epsilon times as probable as one far from it.

    For distributions, not for means: reports reach beyond the range by half a window and are not
    decoded to the input. `collect.estimate` gives histograms and quantiles from them as from any
    table.

    Arguments:
        lower, upper: input range, data units.
        outputs: equal bins, 2 to 4096, into which the continuous output is cut.
        epsilon: pure epsilon requested, > 0 and finite; the certified one is at most this.
    Returns: the table; what it decodes to is biased, `collect.estimate` is not.
    Raises: ParameterError, naming the parameter; also an epsilon so small that 2**32 units cannot
    show it.
    Guarantees: between the knots, at which the window meets an edge of a bin, the pmf is that of
        the continuous mechanism's bins, up to integer rounding.
    Edge cases: where the window is narrower than two bins none lies inside it, and the certified
    epsilon is smaller.
    Source: Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020, "Estimating numerical distributions under
        local differential privacy".
    Example:
        >>> mechanism = mz.families.square_wave(outputs=8, epsilon=1.0)
        >>> mechanism.epsilon <= 1.0, mechanism.levels.size
        (True, 8)
    """
    low, high = check_range(lower, upper)
    epsilon = check_epsilon(epsilon)
    outputs = check_count("outputs", outputs, least=2, most=4096)
    if epsilon > LARGEST_WAVE_EPSILON:
        remedy = f"at most {LARGEST_WAVE_EPSILON:g}: reports that hide less hide nothing"
        raise ParameterError("epsilon", epsilon, remedy)
    rows = _wave(epsilon, outputs).rows
    # Rounding takes up to a unit from each probability and gives them all to the greatest one of
    # its row.
    smallest_probability = float(rows.min())
    row_peaks = rows.max(axis=1)
    smallest_peak = float(row_peaks.min())
    rounding_loss = (2 / smallest_probability + outputs / smallest_peak) / TOTAL
    if rounding_loss > epsilon / 8:
        remedy = f"is too small for {outputs} outputs in units of 2**-32"
        raise ParameterError("epsilon", epsilon, remedy)
    wave = _wave(epsilon - rounding_loss, outputs)
    edge_sums = wave.edges[1:] + wave.edges[:-1]
    bin_centres = edge_sums / 2
    return Mechanism(
        knots=low + wave.knots * (high - low),
        levels=low + bin_centres * (high - low),
        weights=_integer_rows(wave.rows),
        name=f"square wave of {outputs} outputs(epsilon={epsilon:g})",
    )


def _integer_rows(rows: FloatArray) -> IntArray:
    """Probabilities in whole units, rounded down; the greatest of a row takes the remainder."""
    real_weights = rows * TOTAL
    weights = np.floor(real_weights).astype(np.int64)
    peaks = rows.argmax(axis=1)
    remainders = TOTAL - weights.sum(axis=1)
    weights[np.arange(len(weights)), peaks] += remainders
    return weights


class _Wave(NamedTuple):
    """Edges of the bins, knots, and pmf at the knots, inputs on [0, 1]."""

    edges: FloatArray
    knots: FloatArray
    rows: FloatArray


def _half_window(epsilon: float) -> float:
    """Half the window, by the paper's choice; its limit is 1/2 at epsilon 0."""
    if epsilon <= SMALL_WAVE_EPSILON:
        return 0.5
    odds = math.exp(epsilon)
    gain = epsilon * odds - odds + 1
    return gain / (2 * odds * (odds - 1 - epsilon))


def _wave(epsilon: float, outputs: int) -> _Wave:
    odds = math.exp(epsilon)
    half_window = _half_window(epsilon)
    far_density = 1 / (2 * half_window * odds + 1)
    near_density = odds / (2 * half_window * odds + 1)
    edges = np.linspace(-half_window, 1 + half_window, outputs + 1)
    # The window [x - half, x + half] meets an edge of a bin at these inputs x.
    starts, stops = edges - half_window, edges + half_window
    meetings = np.concatenate([starts, stops, [0.0, 1.0]])
    knots = np.unique(np.clip(meetings, 0, 1))
    is_apart = np.diff(knots) > SAME_KNOT
    is_distinct = np.append(is_apart, True)
    knots = knots[is_distinct]
    knots[0] = 0.0
    window_start = knots[:, None] - half_window
    window_stop = knots[:, None] + half_window
    overlap_start = np.maximum(edges[:-1], window_start)
    overlap_stop = np.minimum(edges[1:], window_stop)
    overlap = overlap_stop - overlap_start
    bin_width = edges[1] - edges[0]
    density_rise = near_density - far_density
    rows = far_density * bin_width + density_rise * np.maximum(overlap, 0)
    row_sums = rows.sum(axis=1, keepdims=True)
    return _Wave(edges, knots, rows / row_sums)
