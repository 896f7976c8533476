"""Scales and levels of least squared error for the weights of a channel, by looking at every scale
of a grid.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.types import ByteArray, Codes, FloatArray, IndexArray

Floats = FloatArray
Positions = IndexArray

LEAST_BITS = 4
"""Channels of fewer bits choose among the integers of this many, so that each model has integers of
4 or 8 bits.
"""

_SMALLEST_SIZE = 1e-30
"""Size that a channel of zeros is given."""

_FEWEST_CHANNELS = 8
"""From which on the mean square of an input's weights is known well enough to say how much it
matters.
"""

_SHRINKAGES = 2.0 ** (np.arange(2, -31, -1) / 10)
"""Scales that are tried, in units of the one at which no weight is cut off."""


def integers(bits: int) -> Floats:
    """(2**bits,) integers in a row, from 1 - 2**(bits - 1) on."""
    half_count = 2 ** (bits - 1)
    return np.arange(1 - half_count, half_count + 1, dtype=np.float64)


def round_channels(
    rows: Floats, bits: int
) -> tuple[npt.NDArray[np.float32], Codes, ByteArray | None]:
    """Rounds each row to levels of its own.

    Arguments:
        rows: (channels, width) weights.
        bits: of a code.
    Returns: (channels,) scales; (channels, width) codes; (channels, 2**bits) which of the integers
        of LEAST_BITS each channel uses, or None where it uses all of them.
    """
    importances = np.ones(rows.shape[1])
    if len(rows) >= _FEWEST_CHANNELS:
        importances = np.mean(rows**2, axis=0)
    scales = np.empty(len(rows), dtype=np.float32)
    codes = np.empty(rows.shape, dtype=np.uint8)
    chosen = None
    if bits < LEAST_BITS:
        chosen = np.empty((len(rows), 2**bits), dtype=np.uint8)
    whole_numbers = integers(max(bits, LEAST_BITS))
    for channel_index, weights in enumerate(rows):
        scale, positions = _best_levels(weights, importances, whole_numbers, bits)
        levels = float(scale) * whole_numbers[positions]
        middles = (levels[1:] + levels[:-1]) / 2
        nearest = np.searchsorted(middles, weights)
        scales[channel_index] = scale
        if chosen is None:
            codes[channel_index] = positions[nearest]
        else:
            chosen[channel_index] = positions
            codes[channel_index] = nearest
    return scales, codes, chosen


def _best_levels(
    row: Floats, importances: Floats, whole_numbers: Floats, bits: int
) -> tuple[np.float32, Positions]:
    """The scale of least error, and the integers that are levels, so that levels increase."""
    largest_weight = float(np.abs(row).max(initial=0.0))
    largest = max(largest_weight, _SMALLEST_SIZE)
    scale_sizes = largest / whole_numbers[-1] * _SHRINKAGES
    scales = np.concatenate([scale_sizes, -scale_sizes])
    ladders = scales[:, None] * whole_numbers
    is_falling = scales < 0
    ladders[is_falling] = ladders[is_falling, ::-1]
    channel = _Channel(row, importances)
    if bits < LEAST_BITS:
        best_ladder, positions = channel.choose(ladders, 2**bits)
    else:
        best_ladder = int(np.argmin(channel.errors(ladders)))
        positions = np.arange(len(whole_numbers))
    if scales[best_ladder] < 0:
        positions = len(whole_numbers) - 1 - positions
    return np.float32(scales[best_ladder]), positions


@final
class _Channel:
    """Weights in order, and sums up to each, so that levels are judged without looking at every
    weight.
    """

    def __init__(self, row: Floats, importances: Floats) -> None:
        weight_order = np.argsort(row, kind="stable")
        self._row = row[weight_order]
        counts = importances[weight_order]
        if not counts.any():
            counts = np.ones(len(counts))
        powers = np.stack([counts, counts * self._row, counts * self._row**2])
        running_sums = np.cumsum(powers, axis=1)
        self._sums = np.concatenate([np.zeros((3, 1)), running_sums], axis=1)

    def _sums_below(self, points: Floats) -> Floats:
        """(3, ...) sums over the weights below each point."""
        positions = np.searchsorted(self._row, points)
        return np.take(self._sums, positions, axis=1)

    def errors(self, ladders: Floats) -> Floats:
        """(n,) squared error of the nearest of n sets of increasing levels (n, L), weighed by
        importance.
        """
        middles = (ladders[:, 1:] + ladders[:, :-1]) / 2
        border_sums = np.pad(self._sums_below(middles), ((0, 0), (0, 0), (1, 1)))
        border_sums[:, :, -1] = self._sums[:, -1:]
        level_sums = np.diff(border_sums, axis=2)
        errors = _squared_error(level_sums, ladders)
        return errors.sum(axis=1)

    def choose(self, ladders: Floats, count: int) -> tuple[int, Positions]:
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
            through = errors.T[:, :, None] + between
            predecessors.append(through.argmin(axis=0))
            errors = through.min(axis=0)
        totals = self._sums[:, -1]
        above_last = totals[:, None, None] - below_last
        errors = errors + _squared_error(above_last, ladders)
        best_ladder, last_level = np.unravel_index(int(errors.argmin()), errors.shape)
        positions = [int(last_level)]
        for predecessor in reversed(predecessors):
            position = predecessor[best_ladder, positions[-1]]
            positions.append(int(position))
        return int(best_ladder), np.array(positions[::-1])

    def _errors_between(self, ladders: Floats) -> Floats:
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
        middles = (lower_levels + upper_levels) / 2
        middle_sums = self._sums_below(middles)
        lower_sums = middle_sums - np.take(level_sums, lower, axis=2)
        upper_sums = np.take(level_sums, upper, axis=2) - middle_sums
        to_lower = _squared_error(lower_sums, lower_levels)
        to_upper = _squared_error(upper_sums, upper_levels)
        between = np.full((size, *ladders.shape), np.inf)
        between[lower, :, upper] = (to_lower + to_upper).T
        return between


def _squared_error(sums: Floats, levels: Floats) -> Floats:
    """Squared error around levels of weights, from sums of their counts, values and squares."""
    count, first, second = sums
    return second - 2 * levels * first + levels**2 * count
