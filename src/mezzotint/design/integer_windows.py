"""How floors in floats become the integers of a table.

Integer windows make a table with next to no bias, from integer floors instead of rounded rows. With
integer floors F, ceilings C = floor(e F) for a rational e <= e**epsilon and windows that start at
integers, every row is an integer row that sums to 2**32 and obeys epsilon, by construction. The
knots are the rows' means: the knot moves, not the weight. docs/proofs/design.md, "Integers".
"""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import final

import numpy as np

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.loss import exp_below
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.table import NARROWEST
from mezzotint.core.types import TOTAL, FloatArray, IntArray

_SHRINKS = (0.0, *(10.0 ** (exponent / 2) for exponent in range(-18, 0)), 1.0)
"""Shares of the inner floors that are given up, one after another, until the ends are reached."""

_NEARBY = (1, 8, 64)
"""Among how many units a floor is lowered to where its ceiling loses least to rounding."""

_ROUNDS = 60


def scaled_floor(value: int, ratio: Fraction) -> int:
    """floor(ratio * value)."""
    return value * ratio.numerator // ratio.denominator


@final
class IntegerWindows:
    """The rows of integer floors, of which those of levels never reported are 0; the ratio is at
    most e**epsilon.
    """

    def __init__(
        self,
        levels: FloatArray,
        floors: list[int],
        ratio: Fraction,
    ) -> None:
        self.floors = floors
        self.ratio = ratio
        ceilings = [min(scaled_floor(floor, ratio), TOTAL) for floor in floors]
        integer_floors = np.array(floors, dtype=np.int64)
        self.segments = np.array(ceilings, dtype=np.int64) - integer_floors
        segment_ends = np.cumsum(self.segments)
        self.ends = np.concatenate([[0], segment_ends])
        self.spare = TOTAL - sum(floors)
        self.last = int(self.ends[-1]) - self.spare
        # Floats are dyadic: over one power of two all means are integer sums.
        ratios = [float(level).as_integer_ratio() for level in levels]
        self.scale = max(denominator for _, denominator in ratios)
        scaled_levels = [numerator * (self.scale // below) for numerator, below in ratios]
        self.integers = np.array(scaled_levels, dtype=object)

    def rows(self, starts: IntArray) -> IntArray:
        """(n, m) rows of windows that start there."""
        window_starts = starts[:, None]
        window_stops = window_starts + self.spare
        overlap = np.minimum(window_stops, self.ends[1:]) - np.maximum(
            window_starts, self.ends[:-1]
        )
        extra = np.clip(overlap, 0, self.segments)
        return np.array(self.floors, dtype=np.int64) + extra

    def means(self, rows: IntArray) -> list[Fraction]:
        """Their exact means, data units."""
        totals = rows.astype(object) @ self.integers
        return [Fraction(int(total), self.scale * TOTAL) for total in totals]

    def kinks(self) -> IntArray:
        """All starts at which an end of the window passes into another segment, and the two
        outermost.
        """
        starts = np.concatenate([self.ends, self.ends - self.spare])
        return np.unique(np.clip(starts, 0, self.last))

    def start_of(
        self,
        target: Fraction,
        starts: IntArray,
        means: list[Fraction],
    ) -> int:
        """The start whose mean is nearest to the target."""
        index = bisect.bisect_right(means, target)
        if index == 0:
            return int(starts[0])
        if index == len(means):
            return int(starts[-1])
        # Between two kinks means are linear: half of one step of the start is the farthest that
        # they miss.
        start_below = int(starts[index - 1])
        start_above = int(starts[index])
        rise = means[index] - means[index - 1]
        if rise == 0:
            return start_below
        share = (target - means[index - 1]) / rise
        return start_below + round(share * (start_above - start_below))


def end_misses(
    levels: list[int],
    floors: list[int],
    ratio: Fraction,
    end: int,
) -> Callable[[int], int]:
    """N times the mean nearest to the first (0) or last (-1) level, as a distance from it, by the
    floor of that level.

    The ceiling of the other outermost level does not count: the windows of the other end see to it.
    """
    level_order = range(len(floors) - 2, -1, -1)
    if end == 0:
        level_order = range(1, len(floors))
    other_floors = [floors[index] for index in level_order]
    distances = [abs(levels[index] - levels[end]) for index in level_order]
    segments = [scaled_floor(floor, ratio) - floor for floor in other_floors[:-1]]
    segments.append(2 * TOTAL)
    segment_starts = [0, *itertools.accumulate(segments)]
    floor_moment = sum(map(operator.mul, other_floors, distances))
    segment_moments = map(operator.mul, segments, distances)
    moments = list(itertools.accumulate(segment_moments, initial=floor_moment))
    free_units = TOTAL - sum(other_floors)

    def miss(floor: int) -> int:
        window_length = max(free_units - scaled_floor(floor, ratio), 0)
        index = bisect.bisect_right(segment_starts, window_length) - 1
        beyond_segment = window_length - segment_starts[index]
        return moments[index] + beyond_segment * distances[index]

    return miss


def reaching_floors(
    levels: list[int],
    floors: list[int],
    ratio: Fraction,
    most: Sequence[int],
) -> list[int] | None:
    """The floors, the outer two raised by as little as makes both ends miss by at most `most`; None
    if nothing does.

    A larger floor of an outer level brings the means at both ends nearer to it: so raising both in
    turn by what their own ends need stops at the least pair, if there is one.
    """
    floors = list(floors)
    settled = 0
    ends = itertools.cycle((0, -1))
    for end in itertools.islice(ends, _ROUNDS):
        floor_before = floors[end]
        free_units = TOTAL - sum(floors)
        if free_units < 0:
            return None
        miss = end_misses(levels, floors, ratio, end)
        candidates = range(floor_before, floor_before + free_units + 1)
        floors[end] += bisect.bisect_left(
            candidates, True, key=lambda floor, miss=miss, end=end: miss(floor) <= most[end]
        )
        if floors[end] != floor_before:
            settled = 0
            continue
        settled += 1
        if settled == 2:
            return floors
    return None


def _friendly(
    floor: int,
    ratio: Fraction,
    nearby: int,
) -> int:
    """The floor, or one a little below it, whose ceiling loses least to rounding."""

    def loss(candidate: int) -> int:
        return candidate * ratio.numerator % ratio.denominator

    step = ratio.numerator - ratio.denominator
    if nearby > 1 and step < ratio.denominator:
        # Each unit less loses so much less.
        decrease = loss(floor) // step
        if decrease < floor // 2:
            return floor - decrease
    lowest = max(floor - nearby, floor // 2, 0)
    candidates = range(floor, lowest, -1)
    return min(candidates, key=loss, default=floor)


def integer_windows(
    levels: FloatArray,
    floors: FloatArray,
    *,
    epsilon: float,
    lower: float,
    upper: float,
) -> IntegerWindows:
    """Integer windows near real floors that reach both ends to within one unit of span / 2**32, if
    any do.

    docs/proofs/design.md, "Integers": they do if the levels reach.
    """
    ratio = exp_below(epsilon)
    exact_levels = [Fraction(level) for level in levels.tolist()]
    level_scale = math.lcm(*(level.denominator for level in exact_levels))
    scaled_levels = [int(level * level_scale) for level in exact_levels]
    span = exact_levels[-1] - exact_levels[0]
    reach_below = (Fraction(lower) - exact_levels[0]) * level_scale
    reach_above = (exact_levels[-1] - Fraction(upper)) * level_scale
    floor_units = [value * TOTAL for value in floors.tolist()]
    for shrunk_share in _SHRINKS:
        inner_units = [(1 - shrunk_share) * value for value in floor_units[1:-1]]
        inner_floors = [[round(value) for value in inner_units]]
        for nearby in _NEARBY:
            inner_floors.append(
                [_friendly(math.floor(value), ratio, nearby) for value in inner_units]
            )
        # Outer floors as in the design; then from below, where they are as small as may be.
        designed = (round(floor_units[0]), round(floor_units[-1]))
        outer_floors = (designed, (0, 0))
        tolerances = (Fraction(1, 2), 1)
        for inner_choice, tolerance, outer_choice in itertools.product(
            inner_floors, tolerances, outer_floors
        ):
            most_below = math.floor(TOTAL * reach_below + tolerance * span * level_scale)
            most_above = math.floor(TOTAL * reach_above + tolerance * span * level_scale)
            start = [outer_choice[0], *inner_choice, outer_choice[1]]
            reaching = reaching_floors(
                levels=scaled_levels, floors=start, ratio=ratio, most=(most_below, most_above)
            )
            if reaching is not None:
                return IntegerWindows(levels, reaching, ratio)
    raise InfeasibleError(
        f"epsilon={epsilon:g}: integer weights of 2**-32 are too coarse for it on these levels"
    )


def refitted(
    windows: IntegerWindows,
    levels: FloatArray,
    lower: float,
    upper: float,
) -> FloatArray:
    """Levels moved by a map near the identity, so that two integer windows have the means `lower`
    and `upper`.
    """
    starts = windows.kinks()
    means = windows.means(windows.rows(starts))
    exact_lower = Fraction(lower)
    exact_upper = Fraction(upper)
    outer_starts = [
        windows.start_of(exact_lower, starts, means),
        windows.start_of(exact_upper, starts, means),
    ]
    outer_rows = windows.rows(np.array(outer_starts))
    low, high = windows.means(outer_rows)
    slope = (exact_upper - exact_lower) / (high - low)
    distances = [Fraction(level) - low for level in levels.tolist()]
    moved = [exact_lower + slope * distance for distance in distances]
    return np.array([float(level) for level in moved])


def table(
    windows: IntegerWindows,
    levels: FloatArray,
    *,
    lower: float,
    upper: float,
    knots: FloatArray | None = None,
) -> Mechanism:
    """The mechanism of integer windows, on the given knots (sorted, from lower to upper) or where
    its rows bend.

    |E[report] - x| at lower, upper and given knots is at most span / 2**33 if the windows reach
    there, at other knots one rounding of the knot to a float.
    """
    starts = windows.kinks()
    means = windows.means(windows.rows(starts))
    if knots is None:
        starts, knots = _bending_knots(windows, starts, means, lower, upper)
    else:
        targets = [Fraction(knot) for knot in knots.tolist()]
        starts = np.array([windows.start_of(target, starts, means) for target in targets])
    return Mechanism(
        knots=knots,
        levels=levels,
        weights=windows.rows(starts),
        name="optimal",
    )


def _bending_knots(
    windows: IntegerWindows,
    starts: IntArray,
    means: list[Fraction],
    lower: float,
    upper: float,
) -> tuple[IntArray, FloatArray]:
    """Starts of windows, and the inputs that are their means: the two ends, and the kinks between."""
    first_start = windows.start_of(Fraction(lower), starts, means)
    last_start = windows.start_of(Fraction(upper), starts, means)
    candidates: list[tuple[int, float]] = []
    for start, mean in zip(starts.tolist(), means, strict=True):
        if first_start < start < last_start and lower < float(mean) < upper:
            candidates.append((start, float(mean)))
    candidates.append((last_start, upper))
    knot_starts = [first_start]
    knots = [lower]
    for start, knot in candidates:
        # Rows whose means are one float are one knot.
        if knot - knots[-1] >= NARROWEST:
            knot_starts.append(start)
            knots.append(knot)
    return np.array(knot_starts), np.array(knots)
