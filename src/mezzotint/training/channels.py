"""Scales and levels of least squared error for the weights of a channel, by looking at every scale
of a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.types import ByteArray, Codes, Float32Array, FloatArray, IndexArray

LEAST_BITS = 4
"""Channels of fewer bits choose among the integers of this many, so that each model has integers of
4 or 8 bits.
"""

_SMALLEST_MAGNITUDE = 1e-30
"""The largest magnitude that a channel of zeros is taken to have."""

_FEWEST_CHANNELS = 8
"""From which on the mean square of an input's weights is known well enough to say how much it
matters.
"""

_SHRINKAGES = 2.0 ** (np.arange(2, -31, -1) / 10)
"""Scales that are tried, in units of the one at which no weight is cut off."""


def integers(bits: int) -> FloatArray:
    """(2**bits,) integers in a row, from 1 - 2**(bits - 1) on."""
    half_count = 2 ** (bits - 1)
    return np.arange(1 - half_count, half_count + 1, dtype=np.float64)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RoundedChannels:
    """Channels on levels of their own.

    Arguments:
        scales: (channels,) of the integers that are levels.
        codes: (channels, width) of the weights.
        chosen: (channels, 2**bits) which of the integers of LEAST_BITS each channel uses, or None
            where it uses all of them.
    """

    scales: Float32Array
    codes: Codes
    chosen: ByteArray | None


def round_channels(rows: FloatArray, bits: int) -> RoundedChannels:
    """Rounds each row to levels of its own.

    Arguments:
        rows: (channels, width) weights.
        bits: of a code.
    """
    channel_count, width = rows.shape
    importances = np.ones(width)
    if channel_count >= _FEWEST_CHANNELS:
        importances = np.mean(rows**2, axis=0)
    scales = np.empty(channel_count, dtype=np.float32)
    codes = np.empty(rows.shape, dtype=np.uint8)
    chosen = None
    if bits < LEAST_BITS:
        chosen = np.empty((channel_count, 2**bits), dtype=np.uint8)
    for channel_index, weights in enumerate(rows):
        best = _best_levels(weights, importances, bits)
        borders = _middles(best.levels)
        nearest = np.searchsorted(borders, weights)
        scales[channel_index] = best.scale
        if chosen is None:
            codes[channel_index] = best.positions[nearest]
        else:
            chosen[channel_index] = best.positions
            codes[channel_index] = nearest
    return RoundedChannels(scales=scales, codes=codes, chosen=chosen)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Levels:
    """Levels of a channel.

    Arguments:
        scale: not 0.
        positions: of those integers, among all, that times the scale are levels.
        levels: increasing.
    """

    scale: np.float32
    positions: IndexArray
    levels: FloatArray


def _best_levels(row: FloatArray, importances: FloatArray, bits: int) -> _Levels:
    """The levels of least error.

    Arguments:
        row: (width,) weights of a channel.
        importances: (width,) how much each weight's squared error counts.
        bits: of a code; below LEAST_BITS the levels are chosen among the integers of that many.
    """
    whole_numbers = integers(max(bits, LEAST_BITS))
    largest_magnitude = np.abs(row).max(initial=_SMALLEST_MAGNITUDE)
    uncut_scale = largest_magnitude / whole_numbers[-1]
    scale_sizes = uncut_scale * _SHRINKAGES
    rising_ladders = np.outer(scale_sizes, whole_numbers)
    mirrored_ladders = np.outer(-scale_sizes, whole_numbers[::-1])
    ladders = np.concatenate([rising_ladders, mirrored_ladders])
    channel = _Channel(row, importances)
    if bits < LEAST_BITS:
        ladder_index, positions = channel.choose(ladders, 2**bits)
    else:
        errors = channel.errors(ladders)
        ladder_index = int(errors.argmin())
        positions = np.arange(whole_numbers.size)
    scales = np.concatenate([scale_sizes, -scale_sizes])
    scale = np.float32(scales[ladder_index])
    if scale < 0:
        positions = whole_numbers.size - 1 - positions
    levels = float(scale) * whole_numbers[positions]
    return _Levels(scale=scale, positions=positions, levels=levels)


def _middles(ladders: FloatArray) -> FloatArray:
    """(..., L - 1) points halfway between neighbours among (..., L) levels."""
    lower_levels = ladders[..., :-1]
    upper_levels = ladders[..., 1:]
    return (upper_levels + lower_levels) / 2


@final
class _Channel:
    """Weights in order, and sums up to each, so that levels are judged without looking at every
    weight.
    """

    def __init__(self, row: FloatArray, importances: FloatArray) -> None:
        weight_order = np.argsort(row, kind="stable")
        weights = row[weight_order]
        counts = importances[weight_order]
        if not counts.any():
            counts = np.ones(len(counts))
        moments = np.stack([counts, counts * weights, counts * weights**2])
        running_sums = np.cumsum(moments, axis=1)
        nothing = np.zeros((3, 1))
        self._weights = weights
        self._sums = np.concatenate([nothing, running_sums], axis=1)
        self._totals = self._sums[:, -1]

    def _sums_below(self, points: FloatArray) -> FloatArray:
        """(3, ...) sums over the weights below each point."""
        positions = np.searchsorted(self._weights, points)
        return np.take(self._sums, positions, axis=1)

    def errors(self, ladders: FloatArray) -> FloatArray:
        """(n,) squared error of the nearest of n sets of increasing levels (n, L), weighed by
        importance.
        """
        inner_sums = self._sums_below(_middles(ladders))
        sums = np.pad(inner_sums, ((0, 0), (0, 0), (1, 1)))
        sums[:, :, -1] = self._totals[:, None]
        level_sums = np.diff(sums, axis=2)
        errors = _squared_error(level_sums, ladders)
        return errors.sum(axis=1)

    def choose(self, ladders: FloatArray, count: int) -> tuple[int, IndexArray]:
        """Of n sets of increasing levels (n, L) the index of one, and `count` levels of it, of
        least error.

        By dynamic programming over the last level that is chosen: what lies between two neighbours
        goes to the nearer.
        """
        between = self._errors_between(ladders)
        below_last = self._sums_below(ladders)
        errors = _squared_error(below_last, ladders)
        predecessors: list[IndexArray] = []
        for _ in range(count - 1):
            errors_to_previous = errors.T[:, :, None]
            through_previous = errors_to_previous + between
            predecessors.append(through_previous.argmin(axis=0))
            errors = through_previous.min(axis=0)
        above_last = self._totals[:, None, None] - below_last
        errors = errors + _squared_error(above_last, ladders)
        ladder_index, last_level = np.unravel_index(errors.argmin(), errors.shape)
        level = int(last_level)
        positions = [level]
        for predecessor in reversed(predecessors):
            level = int(predecessor[ladder_index, level])
            positions.append(level)
        positions.reverse()
        return int(ladder_index), np.array(positions)

    def _errors_between(self, ladders: FloatArray) -> FloatArray:
        """(L, n, L) error of the weights between two levels that are neighbours in a choice; inf in
        other orders.
        """
        size = ladders.shape[1]
        lower, upper = np.triu_indices(size, k=1)
        rising = np.argsort(lower + upper, kind="stable")  # middles in order are looked up faster
        lower = lower[rising]
        upper = upper[rising]
        lower_levels = ladders[:, lower]
        upper_levels = ladders[:, upper]
        level_sums = self._sums_below(ladders)
        sums_below_lower = np.take(level_sums, lower, axis=2)
        sums_below_upper = np.take(level_sums, upper, axis=2)
        middles = (lower_levels + upper_levels) / 2
        sums_below_middle = self._sums_below(middles)
        lower_half = sums_below_middle - sums_below_lower
        upper_half = sums_below_upper - sums_below_middle
        to_lower = _squared_error(lower_half, lower_levels)
        to_upper = _squared_error(upper_half, upper_levels)
        errors = to_lower + to_upper
        between = np.full((size, *ladders.shape), np.inf)
        between[lower, :, upper] = errors.T
        return between


def _squared_error(sums: FloatArray, levels: FloatArray) -> FloatArray:
    """Squared error around levels of weights, from sums of their counts, values and squares."""
    counts, values, squares = sums
    twice_products = 2 * levels * values
    return squares - twice_products + levels**2 * counts
