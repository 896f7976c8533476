"""Integer windows: a table with no bias to speak of, built from integer floors instead of rounded rows.

With integer floors F, ceilings C = floor(e F) for a rational e <= e**epsilon and windows that start at integers,
every row is an integer row that sums to 2**32 and obeys epsilon, by construction. The knots are the rows' means: the
knot moves, not the weight. docs/proofs/design.md, "Integers".
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.mechanism import NARROWEST, TOTAL, Mechanism
from mezzotint.core.rounding import ratio_below

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_MIXES = (0.0, *(10.0 ** (k / 2) for k in range(-18, -3)))
"""Shares of the two-level mechanism of the longest reach that are mixed in until the ends are reached."""

_RARE = 64
"""Units below which a level may be given up where that helps to reach the ends."""

_TRIED = 40
_POLISHES = 6
_NEAR_ENOUGH = 0.9
"""Units of span / 2**32 by which an end may be missed."""


@final
class IntegerWindows:
    """The rows of integer floors.

    Arguments:
        levels: (m,) data units, exact as they stand.
        floors: (m,) integers >= 0; a level with floor 0 is never reported.
        ratio: rational, at most e**epsilon.
    """

    def __init__(self, levels: FloatArray, floors: list[int], ratio: Fraction) -> None:
        self.floors, self.ratio = floors, ratio
        ceilings = [min(floor * ratio.numerator // ratio.denominator, TOTAL) for floor in floors]
        self.rooms = np.array([top - floor for top, floor in zip(ceilings, floors, strict=True)], dtype=np.int64)
        self.ends = np.concatenate([[0], np.cumsum(self.rooms)])
        self.spare = TOTAL - sum(floors)
        self.last = int(self.ends[-1]) - self.spare
        # Floats are dyadic: over one power of two all means are integer sums.
        pairs = [float(level).as_integer_ratio() for level in levels]
        self.scale = max(denominator for _, denominator in pairs)
        self.integers = np.array([numerator * (self.scale // below) for numerator, below in pairs], dtype=object)

    @property
    def is_valid(self) -> bool:
        return self.spare >= 0 and self.last >= 0

    def rows(self, starts: IntArray) -> IntArray:
        """(n, m) rows of windows that start there."""
        a = starts[:, None]
        filled = np.minimum(a + self.spare, self.ends[1:]) - np.maximum(a, self.ends[:-1])
        return np.array(self.floors, dtype=np.int64) + np.clip(filled, 0, self.rooms)

    def means(self, rows: IntArray) -> list[Fraction]:
        """Their exact means, data units."""
        return [Fraction(int(total), self.scale * TOTAL) for total in rows.astype(object) @ self.integers]

    def kinks(self) -> IntArray:
        """All starts at which an end of the window passes into another room, and the two outermost."""
        both = np.concatenate([self.ends, self.ends - self.spare])
        return np.unique(np.clip(both, 0, self.last))

    def start_of(self, target: Fraction, starts: IntArray, means: list[Fraction]) -> int:
        """The start whose mean is nearest to the target."""
        place = bisect.bisect_right(means, target)
        if place == 0:
            return int(starts[0])
        if place == len(means):
            return int(starts[-1])
        # Between two kinks means are linear: half of one step of the start is the farthest that they miss.
        a, b, low, high = int(starts[place - 1]), int(starts[place]), means[place - 1], means[place]
        return a if high == low else a + round((target - low) / (high - low) * (b - a))

    def reach(self) -> tuple[Fraction, Fraction]:
        """Smallest and largest mean."""
        low, high = self.means(self.rows(np.array([0, self.last])))
        return low, high


def _candidates(floors: FloatArray, ratio: float) -> Iterator[list[int]]:
    """Integer floors near the real ones; later ones reach farther."""
    farthest = np.zeros_like(floors)
    farthest[[0, -1]] = 1 / (1 + ratio)
    for share in _MIXES:
        mixed = ((1 - share) * floors + share * farthest) * TOTAL
        for rarest in (0.5, _RARE):
            yield [round(value) if value >= rarest else 0 for value in mixed.tolist()]


def _missing(windows: IntegerWindows, lower: Fraction, upper: Fraction, unit: Fraction) -> tuple[float, float]:
    """By how many units of span / 2**32 the windows miss the two ends; negative where they reach beyond."""
    if not windows.is_valid:
        return math.inf, math.inf
    low, high = windows.reach()
    return float((low - lower) / unit), float((upper - high) / unit)


def _effects(windows: IntegerWindows, levels: FloatArray, end: int) -> FloatArray:
    """(m, 2 * _TRIED + 1) what changes of each floor do to the mean of the first (0) or last (1) window, in units."""
    start = 0 if end == 0 else windows.last
    # The room in which the window's free end lies takes up what the others gain.
    free = start + windows.spare if end == 0 else start
    pivot = int(np.clip(np.searchsorted(windows.ends, free, side="right" if end else "left") - 1, 0, levels.size - 1))
    distance = (levels - levels[pivot]) / (levels[-1] - levels[0])
    result = np.zeros((levels.size, 2 * _TRIED + 1))
    for j, floor in enumerate(windows.floors):
        if floor == 0 or j == pivot:
            continue
        full = j < pivot if end == 0 else j > pivot
        top = int(windows.rooms[j]) + floor
        for column, change in enumerate(range(-_TRIED, _TRIED + 1)):
            if floor + change < 1:
                result[j, column] = math.nan
                continue
            ceiling = (floor + change) * windows.ratio.numerator // windows.ratio.denominator
            result[j, column] = distance[j] * ((ceiling - top) if full else change)
    return result


def _polished(windows: IntegerWindows, levels: FloatArray, lower: Fraction, upper: Fraction) -> IntegerWindows:
    """Floors moved by a few units, two at a time, while that brings the farther end nearer."""
    unit = (Fraction(float(levels[-1])) - Fraction(float(levels[0]))) / TOTAL
    best = max(_missing(windows, lower, upper, unit))
    original = windows.floors
    for first, last in itertools.product((0, 1, -1, 2, 3), repeat=2):
        if best <= _NEAR_ENOUGH:
            break
        tried = IntegerWindows(levels, [original[0] + first, *original[1:-1], original[-1] + last], windows.ratio)
        miss = max(_missing(tried, lower, upper, unit))
        if miss < best:
            windows, best = tried, miss
    for _ in range(_POLISHES):
        if best <= _NEAR_ENOUGH or not windows.is_valid:
            break
        low, high = _missing(windows, lower, upper, unit)
        on_low = _effects(windows, levels, 0)
        on_high = -_effects(windows, levels, 1)
        used = np.argsort(-np.abs(on_high).max(axis=1, initial=0.0, where=~np.isnan(on_high)))[:12]
        one, other = low + on_low[used].ravel(), high + on_high[used].ravel()
        after = np.maximum(one[:, None] + on_low[used].ravel(), other[:, None] + on_high[used].ravel())
        which, moved = np.divmod(np.arange(one.size), 2 * _TRIED + 1)
        moved = np.abs(moved - _TRIED)
        after[(which[:, None] == which) | np.isnan(after)] = math.inf
        # Of the moves that come near enough, the smallest changes the loss least.
        after = np.where(after <= _NEAR_ENOUGH, 1e-3 * (moved[:, None] + moved) - 1, after)
        improved = False
        for place in np.argsort(after, axis=None)[:24]:
            floors = list(windows.floors)
            for index in np.unravel_index(int(place), after.shape):
                floors[int(used[index // (2 * _TRIED + 1)])] += int(index) % (2 * _TRIED + 1) - _TRIED
            tried = IntegerWindows(levels, floors, windows.ratio)
            miss = max(_missing(tried, lower, upper, unit))
            if miss < best:
                windows, best, improved = tried, miss, True
                break
        if not improved:
            break
    return windows


def integer_windows(
    levels: FloatArray, floors: FloatArray, *, epsilon: float, lower: float, upper: float
) -> IntegerWindows:
    """Integer windows near real floors that reach both ends to within one unit of span / 2**32, if any do."""
    ratio = ratio_below(epsilon)
    low, high = Fraction(lower), Fraction(upper)
    unit = (Fraction(float(levels[-1])) - Fraction(float(levels[0]))) / TOTAL
    best, least = None, math.inf
    for candidate in _candidates(floors, float(ratio)):
        windows = _polished(IntegerWindows(levels, candidate, ratio), levels, low, high)
        missing = max(_missing(windows, low, high, unit))
        if missing < least:
            best, least = windows, missing
        if least <= 1:
            break
    if best is None:
        raise InfeasibleError(f"epsilon={epsilon:g}: integer weights of 2**-32 are too coarse for it on these levels")
    return best


def refitted(windows: IntegerWindows, levels: FloatArray, lower: float, upper: float) -> FloatArray:
    """Levels moved by a map near the identity, so that two integer windows have the means `lower` and `upper`."""
    starts, ends = windows.kinks(), (Fraction(lower), Fraction(upper))
    means = windows.means(windows.rows(starts))
    chosen = np.array([windows.start_of(end, starts, means) for end in ends])
    low, high = windows.means(windows.rows(chosen))
    slope = (ends[1] - ends[0]) / (high - low)
    return np.array([float(ends[0] + slope * (Fraction(level) - low)) for level in levels.tolist()])


def table(
    windows: IntegerWindows, levels: FloatArray, *, lower: float, upper: float, knots: FloatArray | None = None
) -> Mechanism:
    """The mechanism of integer windows.

    Arguments:
        levels: (m,) data units.
        lower, upper: range of the inputs, data units.
        knots: None puts them where rows bend; else inputs, sorted, from lower to upper, data units.

    Guarantees: |E[report] - x| at lower, upper and given knots is at most span / 2**33 if the windows reach there, at
        other knots one rounding of the knot to a float.
    """
    starts = windows.kinks()
    means = windows.means(windows.rows(starts))
    if knots is None:
        first, last = (windows.start_of(Fraction(end), starts, means) for end in (lower, upper))
        inside = [
            (start, float(mean))
            for start, mean in zip(starts.tolist(), means, strict=True)
            if first < start < last and lower < float(mean) < upper
        ]
        chosen = [(first, lower)]
        for start, knot in [*inside, (last, upper)]:
            # Rows whose means are one float are one knot.
            if knot - chosen[-1][1] >= NARROWEST:
                chosen.append((start, knot))
        starts, knots = np.array([start for start, _ in chosen]), np.array([knot for _, knot in chosen])
    else:
        starts = np.array([windows.start_of(Fraction(knot), starts, means) for knot in knots.tolist()])
    return Mechanism(knots=knots, levels=levels, weights=windows.rows(starts), name="optimal")
