"""Where the few levels of a channel of weights should lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_LEAST = 1e-30
"""Size that a channel of zeros is given."""

LEAST_BITS = 4
"""Channels of fewer bits choose among the integers of this many, so that each model has integers of 4 or 8 bits."""

_FEWEST = 8
"""Channels from which on the mean square of an input's weights is known well enough to say how much it matters."""

_SHRINKING = 2.0 ** (np.arange(2, -31, -1) / 10)
"""Scales that are tried, in units of the one at which no weight is cut off."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rounded:
    """Channels of weights on integers: weight = scale * integers[code], or scale * integers[chosen[code]].

    Arguments:
        codes: (channels, fan) uint8.
        scales: (channels,) float32, not 0.
        chosen: (channels, 2**bits) uint8, places among the integers of 4 bits; None from 4 bits on.
    """

    codes: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.float32]
    chosen: npt.NDArray[np.uint8] | None


def integers(bits: int) -> Floats:
    """(2**bits,) integers in a row, from 1 - 2**(bits - 1) on."""
    return np.arange(1 - 2 ** (bits - 1), 2 ** (bits - 1) + 1, dtype=np.float64)


def rounded(rows: Floats, bits: int) -> Rounded:
    """Rounds channels (channels, fan) to 2**bits levels each, 1 to 8 bits, as `packed.pack_weights` says."""
    counts = np.mean(rows**2, axis=0) if len(rows) >= _FEWEST else np.ones(rows.shape[1])
    whole = integers(max(bits, LEAST_BITS))
    scales, codes = np.empty(len(rows), dtype=np.float32), np.empty(rows.shape, dtype=np.uint8)
    chosen = np.empty((len(rows), 2**bits), dtype=np.uint8) if bits < LEAST_BITS else None
    for i, row in enumerate(rows):
        largest = max(float(np.abs(row).max(initial=0.0)), _LEAST)
        tried = np.concatenate([largest / whole[-1] * _SHRINKING, -largest / whole[-1] * _SHRINKING])
        ladders = tried[:, None] * whole
        ladders[tried < 0] = ladders[tried < 0, ::-1]  # increasing
        channel = _Channel(row, counts)
        if chosen is None:
            best, places = int(np.argmin(channel.errors(ladders))), np.arange(len(whole))
        else:
            best, places = channel.choose(ladders, 2**bits)
        scales[i] = tried[best]
        if tried[best] < 0:
            places = len(whole) - 1 - places
        found = nearest(row, float(scales[i]) * whole[places])
        if chosen is None:
            codes[i] = places[found]
        else:
            chosen[i], codes[i] = places, found
    return Rounded(codes=codes, scales=scales, chosen=chosen)


def nearest(row: Floats, levels: Floats) -> npt.NDArray[np.intp]:
    """Places of the nearest of increasing levels."""
    return np.searchsorted((levels[1:] + levels[:-1]) / 2, row)


@final
class _Channel:
    """Weights in order, and the sums up to each, so that a set of levels is judged without looking at every weight."""

    def __init__(self, row: Floats, counts: Floats) -> None:
        order = np.argsort(row, kind="stable")
        self.row = row[order]
        given = counts[order]
        if not given.any():
            given = np.ones(len(given))
        powers = np.stack([given, given * self.row, given * self.row**2])
        self.sums = np.concatenate([np.zeros((3, 1)), np.cumsum(powers, axis=1)], axis=1)

    def _upto(self, points: Floats) -> Floats:
        """(3, ...) sums over the weights below each point."""
        return self.sums[:, np.searchsorted(self.row, points)]

    def errors(self, levels: Floats) -> Floats:
        """(n,) squared error of the nearest of n sets of increasing levels (n, L), weight by weight as they count."""
        ends = np.pad(self._upto((levels[:, 1:] + levels[:, :-1]) / 2), ((0, 0), (0, 0), (1, 1)))
        ends[:, :, -1] = self.sums[:, -1:]
        return _spread(np.diff(ends, axis=2), levels).sum(axis=1)

    def choose(self, levels: Floats, count: int) -> tuple[int, npt.NDArray[np.intp]]:
        """Of n sets of increasing levels (n, L) the one, and the `count` levels of it, with the least error of all.

        By dynamic programming over the last level that is chosen: what lies between two neighbours goes to the nearer.
        """
        low, high = levels[:, :, None], levels[:, None, :]
        middle, ends = self._upto((low + high) / 2), self._upto(levels)
        between = _spread(middle - ends[:, :, :, None], low) + _spread(ends[:, :, None, :] - middle, high)
        between[:, np.tril_indices(levels.shape[1])[0], np.tril_indices(levels.shape[1])[1]] = np.inf
        least, came = _spread(ends, levels), []
        for _ in range(count - 1):
            through = least[:, :, None] + between
            came.append(through.argmin(axis=1))
            least = through.min(axis=1)
        least = least + _spread(self.sums[:, -1][:, None, None] - ends, levels)
        best, last = np.unravel_index(int(least.argmin()), least.shape)
        places = [int(last)]
        for before in reversed(came):
            places.append(int(before[best, places[-1]]))
        return int(best), np.array(places[::-1])


def _spread(sums: Floats, levels: Floats) -> Floats:
    """Squared error around levels, of weights of which these are the sums of counts, weights and squares."""
    count, first, second = sums
    return second - 2 * levels * first + levels**2 * count
