"""Losses on a grid, in integers: curves, pairs of distributions that they belong to, products.

Statements: K1, K2, E (docs/proofs/kernel.md). A curve h(c) bounds hockey-stick divergences
H_c(P, Q) = sum max(P - c Q, 0) at c = e**epsilon; masses are in units of 2**-BITS, and missing
mass is disclosure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise, permutations, takewhile, zip_longest
from math import ceil
from typing import TypeAlias, final

from mezzotint.kernel.real import exp_ceil, exp_floor, polynomial
from mezzotint.kernel.table import Table
from mezzotint.kernel.units import (
    BITS,
    FACTOR,
    FINE,
    MAX_ENTRIES,
    ONE,
    TOTAL,
    WHOLE,
    Fields,
    ceil_div,
    increases,
    require,
    require_memory,
    tick,
)

MAX_LOSS = 10**5
"""Losses on grids are at most this, and at least MIN_LOSS."""

MIN_LOSS = -100


@final
@dataclass(frozen=True)
class Measure:
    """A sub-measure on start * step, (start + 1) * step, ...: a polynomial of masses >= 0.

    `cut` bounds what a product may drop at either end.
    """

    poly: polynomial
    start: int
    cut: int = 0
    step: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        # Signed, the number of bits is below 0 if any coefficient is.
        signed_bits = self.poly.height_bits(signed=True)
        require(signed_bits >= 0, "measure", "a mass is negative")
        require(self.deficit >= 0, "measure", "masses sum to more than 1")

    @property
    def deficit(self) -> int:
        """The mass that is missing from probability 1."""
        return WHOLE - int(self.poly(1))

    @property
    def trimmed(self) -> Measure:
        """Without the outermost entries, which together hold at most `cut` at either end."""
        positions = range(len(self.poly))
        lowest_count = self._negligible_count(positions)
        highest_count = self._negligible_count(reversed(positions))
        remaining_count = max(len(positions) - lowest_count - highest_count, 0)
        remaining = self.poly.right_shift(lowest_count).truncate(remaining_count)
        return replace(self, poly=remaining, start=self.start + lowest_count)

    def _negligible_count(self, positions: Iterable[int]) -> int:
        """How many of the first entries, in this order, hold at most `cut` together."""
        partial_sums = accumulate(self.poly[position] for position in positions)
        negligible = takewhile(lambda partial: partial <= self.cut, partial_sums)
        return len(list(negligible))

    def __mul__(self, other: Measure) -> Measure:
        tick()
        require(self.step == other.step, "measure", "losses on two grids")
        require_memory(len(self.poly) + len(other.poly), 2 * BITS)
        masses = (self.poly * other.poly) // WHOLE
        return Measure(masses, self.start + other.start, self.cut, self.step).trimmed

    def power(self, count: int) -> Measure:
        """The product of `count` copies."""
        return product_of_powers([self], [count])


SILENCE = Measure(polynomial([WHOLE]), 0)
"""The loss 0, or the noise 0, for certain."""


def product_of_powers(factors: Sequence[Measure], counts: Sequence[int]) -> Measure:
    """The product of `count` copies of every factor.

    Binary digit after digit of all counts, the highest first, the product of what is there is
    squared and then multiplied by the factors that have the digit.
    """
    require(all(count >= 0 for count in counts), "measure", "a number of copies is negative")
    product = SILENCE
    if factors:
        pattern = factors[0]
        product = replace(SILENCE, cut=pattern.cut, step=pattern.step)
    digits = max(counts, default=0).bit_length()
    for position in reversed(range(digits)):
        product *= product
        for factor, copies in zip(factors, counts, strict=True):
            has_digit = (copies >> position) & 1
            if has_digit:
                product = factor * product
    return product


Steps: TypeAlias = Iterable[tuple[int, Measure]]
"""Weights in units of 2**-BITS, and the noise that is there with this weight."""

Point: TypeAlias = tuple[int, int]
"""Of a curve: c in units of 2**-FINE, and a divergence in units of 2**-BITS."""

SILENT: Steps = ((WHOLE, SILENCE),)
"""No noise at all."""


@final
@dataclass(frozen=True)
class Grid:
    """Losses index * step, index from low on, and their points 2**FINE e**loss, rounded down."""

    low: int
    points: list[int]
    step: Fraction

    def __post_init__(self) -> None:
        positive_and_rising = increases([0, *self.points])
        require(positive_and_rising and len(self.points) > 0, "grid", "the points do not increase")

    @property
    def identity(self) -> list[int]:
        """The curve (1 - c)+ of two equal rows at the points, rounded up: no curve is below it."""
        return [ceil_div(max(ONE - point, 0) * WHOLE, ONE) for point in self.points]

    @staticmethod
    def read(fields: Fields, step: Fraction) -> Grid:
        """From {"low", "high"}; the grid must be fine enough to tell its points apart."""
        require(step >= Fraction(1, 2**30), "grid", "the step is too small", step)
        lowest = fields.integer("low", -MAX_ENTRIES, MAX_ENTRIES)
        highest = fields.integer("high", lowest, MAX_ENTRIES)
        fields.done()
        lowest_loss = lowest * step
        highest_loss = highest * step
        require(
            lowest_loss >= MIN_LOSS and highest_loss <= MAX_LOSS,
            "grid",
            f"losses outside [{MIN_LOSS}, {MAX_LOSS}]",
        )
        require_memory(highest - lowest + 1, point_bits(highest_loss))
        points: list[int] = []
        for multiple in range(lowest, highest + 1):
            tick()
            points.append(exp_floor(multiple * step, FINE))
        return Grid(lowest, points, step)


def point_bits(loss: Fraction) -> int:
    """No fewer than the bits of 2**FINE e**loss."""
    return FINE + 3 * max(0, ceil(loss)) // 2 + 2


def pair_values(grid: Grid, entries: Iterable[tuple[int, int]]) -> list[int]:
    """sum max(p - c q, 0) over masses (p, q), at all points c, times 2**FINE, exactly."""
    size = len(grid.points)
    first_masses = [0] * size
    second_masses = [0] * size
    for first, second in entries:
        position = size - 1
        if second > 0:
            ratio = (first << FINE) // second
            position = bisect_right(grid.points, ratio) - 1
        if first > 0 and position >= 0:
            first_masses[position] += first
            second_masses[position] += second
    # p - c q is positive at points up to that of the pair.
    first_sums = _suffix_sums(first_masses)
    second_sums = _suffix_sums(second_masses)
    sums = zip(first_sums, second_sums, grid.points, strict=True)
    return [(first << FINE) - point * second for first, second, point in sums]


def _suffix_sums(values: Sequence[int]) -> list[int]:
    """The sum of all values from each position on."""
    sums = list(accumulate(reversed(values)))
    return sums[::-1]


def divergences(table: Table, steps: Steps, factor: int, grid: Grid | None) -> list[int]:
    """The largest divergence over ordered pairs of rows, rounded up, in units of 2**-BITS.

    At c = `factor` / 2**FACTOR >= 1, or at the points of a grid. The weights of the steps sum to 1
    at least. Equal inputs are a pair, too: at c < 1 it costs 1 - c, also where there is no other
    pair.
    """
    identity = [0]
    fraction_bits = FACTOR
    largest_factor = factor
    if grid is not None:
        identity = grid.identity
        fraction_bits = FINE
        largest_factor = grid.points[-1]
    require(grid is not None or factor >= 2**FACTOR, "curve", "epsilon is negative")
    rows = [polynomial(list(row)) for row in table.rows]
    factor_bits = largest_factor.bit_length()
    require_memory(len(rows) ** 2 * len(identity), BITS + factor_bits)
    totals = {pair: [0] * len(identity) for pair in permutations(range(len(rows)), 2)}
    missing = covered = 0
    for weight, noise in steps:
        require(weight >= 0, "weights", "a weight is negative")
        covered += weight
        missing += weight * noise.deficit
        masses_of_row = len(table.rows[0]) + len(noise.poly)
        bits_of_mass = 2 * BITS + FACTOR
        if grid is None:
            bits_of_mass += factor_bits
        require_memory(len(rows) * masses_of_row, bits_of_mass)
        observed = _with_noise(rows, noise)
        lifted = scaled = observed
        if grid is None:
            lifted = [[mass << FACTOR for mass in masses] for masses in observed]
            scaled = [[factor * mass for mass in masses] for masses in observed]
        for (first, second), pair_total in totals.items():
            tick()
            masses = zip_longest(lifted[first], scaled[second], fillvalue=0)
            if grid is None:
                values = [sum(above - below for above, below in masses if above > below)]
            else:
                values = pair_values(grid, masses)
            for position, value in enumerate(values):
                pair_total[position] += weight * value
    require(
        covered >= WHOLE,
        "weights",
        "the weights do not sum to 1",
        covered,
        WHOLE,
    )
    disclosed = ceil_div(missing, WHOLE)
    unit = TOTAL << (BITS + fraction_bits)
    largest = list(identity)
    for pair_total in totals.values():
        for position, value in enumerate(pair_total):
            divergence = ceil_div(value, unit) + disclosed
            largest[position] = max(largest[position], divergence)
    return largest


def _with_noise(rows: Sequence[polynomial], noise: Measure) -> list[list[int]]:
    """The masses of what is observed of every row, in units of 2**-BITS / TOTAL."""
    observed: list[list[int]] = []
    for row in rows:
        tick()
        convolved = row * noise.poly
        observed.append([int(mass) for mass in convolved.coeffs()])
    return observed


def measure_of(grid: Grid, values: Sequence[int], cut: int) -> Measure:
    """A loss distribution whose curve lies nowhere below a convex curve of at most `values` (E)."""
    hull: list[Point] = [(0, WHOLE)]
    minimum = WHOLE
    for factor, value in zip(grid.points, values, strict=True):
        tick()
        minimum = min(minimum, value)
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], (factor, minimum)):
            hull.pop()
        hull.append((factor, minimum))
    require(minimum >= 0, "curve", "a divergence is negative")
    # The first slope is the steepest: below -1 the second masses would sum to more than 1.
    factor, value = hull[1]
    first_fall = (WHOLE - value) * ONE
    require(first_fall <= factor * WHOLE, "curve", "values lie below the curve of equal rows")
    masses = [0] * len(grid.points)
    positions = {factor: position for position, factor in enumerate(grid.points)}
    # Beyond the last point the envelope is constant.
    constant_end = (hull[-1][0] + 1, hull[-1][1])
    following = [*hull[2:], constant_end]
    for previous, current, after in zip(hull[:-1], hull[1:], following, strict=True):
        tick()
        before_width, before_rise = _difference(previous, current)
        after_width, after_rise = _difference(current, after)
        # The slope rises by this over both widths: the second mass here, and c times it the first.
        slope_rise = after_rise * before_width - before_rise * after_width
        factor = current[0]
        masses[positions[factor]] = factor * slope_rise // (after_width * before_width)
    return Measure(polynomial(masses), grid.low, cut, grid.step).trimmed


def _difference(start: Point, end: Point) -> Point:
    """How far the end lies to the right of the start, and above it."""
    return end[0] - start[0], end[1] - start[1]


def _turns_up(start: Point, middle: Point, end: Point) -> bool:
    """Whether the middle lies on or above the chord from start to end."""
    middle_width, middle_rise = _difference(start, middle)
    chord_width, chord_rise = _difference(start, end)
    return middle_rise * chord_width >= chord_rise * middle_width


@final
@dataclass(frozen=True)
class Curve:
    """An upper bound of a divergence by (numerator, denominator) of c > 0, in units of 2**-BITS.

    Each value that is read is checked against that of equal rows, which no curve is below.
    """

    bound: Callable[[int, int], int]

    def __call__(self, numerator: int, denominator: int) -> int:
        require(numerator > 0 and denominator > 0, "curve", "c is not positive")
        value = self.bound(numerator, denominator)
        equal_rows = max(denominator - numerator, 0) * WHOLE
        scaled = value * denominator
        require(scaled >= equal_rows, "curve", "a value lies below the curve of equal rows")
        return value


def curve_of(measure: Measure) -> Curve:
    """The curve deficit + sum mass (1 - c e**-s)+ of a loss distribution, rounded up."""
    first_masses = [int(mass) for mass in measure.poly.coeffs()]
    highest_loss = (measure.start + len(first_masses)) * measure.step
    require_memory(len(first_masses), point_bits(highest_loss))
    floors: list[int] = []
    ceilings: list[int] = []
    for index in range(len(first_masses)):
        tick()
        loss = (measure.start + index) * measure.step
        floors.append(exp_floor(loss, FINE))
        ceilings.append(exp_ceil(loss, FINE))
    for bounds in (floors, ceilings):
        never_falls = all(lower <= upper for lower, upper in pairwise(bounds))
        require(never_falls, "precision", "it does not tell the losses apart")
    # Second masses are rounded down, and the curve is rounded up.
    pairs = zip(first_masses, ceilings, strict=True)
    second_masses = [mass * ONE // ceiling for mass, ceiling in pairs]
    first_sums = [*_suffix_sums(first_masses), 0]
    second_sums = [*_suffix_sums(second_masses), 0]
    deficit = measure.deficit

    def bound(numerator: int, denominator: int) -> int:
        factor = (numerator << FINE) // denominator
        # From this position on losses are surely above log c.
        position = bisect_right(floors, factor)
        disclosed = deficit + first_sums[position]
        total = disclosed * denominator - numerator * second_sums[position]
        # Those just before it may be above log c.
        while position > 0 and ceilings[position - 1] > factor:
            tick()
            position -= 1
            difference = first_masses[position] * denominator
            difference -= numerator * second_masses[position]
            total += max(0, difference)
        return ceil_div(total, denominator)

    return Curve(bound)
