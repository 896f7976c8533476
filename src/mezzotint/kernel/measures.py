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
        # Signed, the height is below 0 if any coefficient is.
        height = self.poly.height_bits(signed=True)
        require(height >= 0, "measure", "a mass is negative")
        require(self.deficit >= 0, "measure", "masses sum to more than 1")

    @property
    def deficit(self) -> int:
        """The mass that is missing from probability 1."""
        return WHOLE - int(self.poly(1))

    @property
    def trimmed(self) -> Measure:
        """Without the outermost entries, which together hold at most `cut` at either end."""
        size = len(self.poly)
        first = self._dropped(range(size))
        last = size - self._dropped(range(size - 1, -1, -1))
        kept = self.poly.right_shift(first).truncate(max(last - first, 0))
        return replace(self, poly=kept, start=self.start + first)

    def _dropped(self, positions: Iterable[int]) -> int:
        """How many entries hold at most `cut` together, in this order."""
        sums = accumulate(self.poly[position] for position in positions)
        return sum(1 for _ in takewhile(lambda total: total <= self.cut, sums))

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
        cut = factors[0].cut
        step = factors[0].step
        product = replace(
            SILENCE,
            cut=cut,
            step=step,
        )
    digits = max((count.bit_length() for count in counts), default=0)
    for digit in reversed(range(digits)):
        product *= product
        for factor, count in zip(factors, counts, strict=True):
            has_digit = (count >> digit) & 1
            if has_digit:
                product = factor * product
    return product


Steps: TypeAlias = Iterable[tuple[int, Measure]]
"""Weights in units of 2**-BITS, and the noise that is there with this weight."""

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
        require(
            increases([0, *self.points]) and len(self.points) > 0,
            "grid",
            "the points do not increase",
        )

    @property
    def identity(self) -> list[int]:
        """The curve (1 - c)+ of two equal rows at the points, rounded up: no curve is below it."""
        return [ceil_div(max(ONE - point, 0) * WHOLE, ONE) for point in self.points]

    @staticmethod
    def read(fields: Fields, step: Fraction) -> Grid:
        """From {"low", "high"}; the grid must be fine enough to tell its points apart."""
        require(step >= Fraction(1, 2**30), "grid", "the step is too small", step)
        low = fields.integer("low", -MAX_ENTRIES, MAX_ENTRIES)
        high = fields.integer("high", low, MAX_ENTRIES)
        fields.done()
        require(
            low * step >= MIN_LOSS and high * step <= MAX_LOSS,
            "grid",
            f"losses outside [{MIN_LOSS}, {MAX_LOSS}]",
        )
        require_memory(high - low + 1, point_bits(high * step))
        points: list[int] = []
        for index in range(low, high + 1):
            tick()
            points.append(exp_floor(index * step, FINE))
        return Grid(low, points, step)


def point_bits(loss: Fraction) -> int:
    """No fewer than the bits of 2**FINE e**loss."""
    return FINE + 3 * max(0, ceil(loss)) // 2 + 2


def pair_values(grid: Grid, entries: Iterable[tuple[int, int]]) -> list[int]:
    """sum max(p - c q, 0) over masses (p, q), at all points c, times 2**FINE, exactly."""
    size = len(grid.points)
    first = [0] * size
    second = [0] * size
    for p, q in entries:
        index = size - 1
        if q > 0:
            index = bisect_right(grid.points, (p << FINE) // q) - 1
        if p > 0 and index >= 0:
            first[index] += p
            second[index] += q
    # p - c q is positive at points up to that of the pair, so these are suffix sums.
    first_sums = list(accumulate(reversed(first)))
    second_sums = list(accumulate(reversed(second)))
    sums = zip(reversed(first_sums), reversed(second_sums), grid.points, strict=True)
    return [(p << FINE) - c * q for p, q, c in sums]


def divergences(table: Table, steps: Steps, factor: int, grid: Grid | None) -> list[int]:
    """The largest divergence over ordered pairs of rows, rounded up, in units of 2**-BITS.

    At c = `factor` / 2**FACTOR >= 1, or at the points of a grid. The weights of the steps sum to 1
    at least. Equal inputs are a pair, too: at c < 1 it costs 1 - c, also where there is no other
    pair.
    """
    identity, scale = [0], (TOTAL << BITS) << FACTOR
    if grid is not None:
        identity, scale = grid.identity, (TOTAL << BITS) << FINE
    require(grid is not None or factor >= 2**FACTOR, "curve", "epsilon is negative")
    rows = [polynomial(list(row)) for row in table.rows]
    largest_factor = factor if grid is None else grid.points[-1]
    require_memory(len(rows) ** 2 * len(identity), BITS + largest_factor.bit_length())
    totals = {pair: [0] * len(identity) for pair in permutations(range(len(rows)), 2)}
    missing = covered = 0
    for weight, noise in steps:
        require(weight >= 0, "weights", "a weight is negative")
        covered += weight
        missing += weight * noise.deficit
        masses_of_row = len(table.rows[0]) + len(noise.poly)
        bits_of_mass = 2 * BITS + FACTOR
        if grid is None:
            bits_of_mass += largest_factor.bit_length()
        require_memory(len(rows) * masses_of_row, bits_of_mass)
        seen: list[list[int]] = []
        for row in rows:
            tick()
            seen.append([int(mass) for mass in (row * noise.poly).coeffs()])
        lifted = scaled = seen
        if grid is None:
            lifted = [[mass << FACTOR for mass in masses] for masses in seen]
            scaled = [[factor * mass for mass in masses] for masses in seen]
        for (i, j), sums in totals.items():
            tick()
            pairs = zip_longest(lifted[i], scaled[j], fillvalue=0)
            values = [0]
            if grid is None:
                values = [sum(p - q for p, q in pairs if p > q)]
            if grid is not None:
                values = pair_values(grid, pairs)
            for index, value in enumerate(values):
                sums[index] += weight * value
    require(
        covered >= WHOLE,
        "weights",
        "the weights do not sum to 1",
        covered,
        WHOLE,
    )
    disclosed = ceil_div(missing, WHOLE)
    largest = list(identity)
    for sums in totals.values():
        for index, value in enumerate(sums):
            largest[index] = max(largest[index], ceil_div(value, scale) + disclosed)
    return largest


def measure_of(grid: Grid, values: Sequence[int], cut: int) -> Measure:
    """A loss distribution whose curve lies nowhere below a convex curve of at most `values` (E)."""
    hull = [(0, WHOLE)]
    floor = WHOLE
    for point, value in zip(grid.points, values, strict=True):
        floor = min(floor, value)
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], (point, floor)):
            hull.pop()
        hull.append((point, floor))
    require(floor >= 0, "curve", "a divergence is negative")
    # The first slope is the steepest: below -1 the second masses would sum to more than 1.
    point, value = hull[1]
    require(
        (WHOLE - value) * ONE <= point * WHOLE, "curve", "values lie below the curve of equal rows"
    )
    masses = [0] * len(grid.points)
    index = {point: position for position, point in enumerate(grid.points)}
    for position in range(1, len(hull)):
        (a, u), (b, v) = hull[position - 1 : position + 1]
        c, w = b + 1, v
        if position + 1 < len(hull):
            c, w = hull[position + 1]
        # The slope rises by (w - v)/(c - b) - (v - u)/(b - a) at b: the second mass there, and b
        # times it the first.
        rise = (w - v) * (b - a) - (v - u) * (c - b)
        masses[index[b]] = b * rise // ((c - b) * (b - a))
    return Measure(polynomial(masses), grid.low, cut, grid.step).trimmed


def _turns_up(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether b lies on or above the chord from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


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
        require(
            value * denominator >= equal_rows, "curve", "a value lies below the curve of equal rows"
        )
        return value


def curve_of(measure: Measure) -> Curve:
    """The curve deficit + sum mass (1 - c e**-s)+ of a loss distribution, rounded up."""
    firsts = [int(mass) for mass in measure.poly.coeffs()]
    highest = (measure.start + len(firsts)) * measure.step
    require_memory(len(firsts), point_bits(highest))
    points: list[int] = []
    tops: list[int] = []
    for index in range(len(firsts)):
        tick()
        loss = (measure.start + index) * measure.step
        points.append(exp_floor(loss, FINE))
        tops.append(exp_ceil(loss, FINE))
    for bounds in (points, tops):
        require(
            all(lower <= upper for lower, upper in pairwise(bounds)),
            "precision",
            "it does not tell the losses apart",
        )
    # Second masses are rounded down, and the curve is rounded up.
    seconds = [mass * ONE // top for mass, top in zip(firsts, tops, strict=True)]
    first_sums = [*reversed(list(accumulate(reversed(firsts)))), 0]
    second_sums = [*reversed(list(accumulate(reversed(seconds)))), 0]
    deficit = measure.deficit

    def bound(numerator: int, denominator: int) -> int:
        here = (numerator << FINE) // denominator
        above = bisect_right(points, here)  # from here on losses are surely above log c
        total = (deficit + first_sums[above]) * denominator - numerator * second_sums[above]
        while above > 0 and tops[above - 1] > here:  # these may be above it
            tick()
            above -= 1
            total += max(0, firsts[above] * denominator - numerator * seconds[above])
        return ceil_div(total, denominator)

    return Curve(bound)
