"""Losses on a grid, in integers: from curves to pairs of distributions, to their products, and back to a curve.

Statements: K1, K2, E (docs/proofs/kernel.md), docs/proofs/privacy-composition.md. A curve h(c)
bounds hockey-stick divergences at c = e**epsilon; masses are in units of 2**-BITS, and missing mass is disclosure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise, permutations, zip_longest
from typing import TypeAlias, final

from mezzotint.kernel.claim import ExactClaim, ExactRelease, Target
from mezzotint.kernel.real import Ball, ball, ball_polynomial, exp_ceil, exp_floor, polynomial
from mezzotint.kernel.table import Rows, Tables, single_table, summed_rows, table_rows
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
    require,
    tick,
)

Curve: TypeAlias = Callable[[int, int], int]
"""(numerator, denominator) of c > 0 to an upper bound of the divergence, in units of 2**-BITS."""


@final
@dataclass(frozen=True)
class Measure:
    """A sub-measure on start, start + 1, ... as a polynomial of masses. `cut` bounds what a product may drop."""

    poly: polynomial
    start: int
    cut: int = 0

    @property
    def deficit(self) -> int:
        """The mass that is missing from probability 1."""
        return WHOLE - int(self.poly(1))

    def __mul__(self, other: Measure) -> Measure:
        tick()
        size = len(self.poly) + len(other.poly)
        require(size <= MAX_ENTRIES, "size", "a product has too many entries", size, MAX_ENTRIES)
        return trimmed((self.poly * other.poly) // WHOLE, self.start + other.start, self.cut)

    def power(self, count: int) -> Measure:
        """The product of `count` copies."""
        if not count:
            return replace(SILENCE, cut=self.cut)
        half = self.power(count // 2)
        return half * half * self if count % 2 else half * half


def trimmed(poly: polynomial, start: int, cut: int) -> Measure:
    """Without the outermost entries, which together hold at most `cut` at either end."""
    entries = poly.coeffs()
    first = bisect_right(list(accumulate(entries)), cut)
    last = len(entries) - bisect_right(list(accumulate(reversed(entries))), cut)
    return Measure(polynomial(entries[first:last]), start + first, cut)


def summed_noise(release: ExactRelease, tables: Tables, cut: int) -> Measure:
    """The sum of what all honest clients add, each drawn from the only row of a table."""
    rows = summed_rows(release, tables)
    require(len(rows) == 1, "noise", "the noise depends on an input")
    single = Measure(polynomial([weight * (WHOLE // TOTAL) for weight in rows[0]]), 0, cut)
    return single.power(release.clients - release.corrupted)


@final
@dataclass(frozen=True)
class Grid:
    """Losses index * step, index from low to high, and 2**FINE e**loss rounded down."""

    low: int
    points: list[int]

    @property
    def identity(self) -> list[int]:
        """The curve (1 - c)+ of two equal rows at the points, rounded up: every curve is at least this."""
        return [ceil_div(max(ONE - point, 0) * WHOLE, ONE) for point in self.points]

    @staticmethod
    def read(fields: Fields, step: Fraction) -> Grid:
        """From {"low", "high"}; the grid must be fine enough to tell its points apart."""
        require(step >= Fraction(1, 2**30), "grid", "the step is too small", step)
        low = fields.integer("low", -MAX_ENTRIES, MAX_ENTRIES)
        high = fields.integer("high", low, MAX_ENTRIES)
        fields.done()
        require(
            high - low <= MAX_ENTRIES, "size", "a grid has too many points", high - low, MAX_ENTRIES
        )
        require(
            low * step >= -100 and high * step <= 10**5, "grid", "losses outside [-100, 100000]"
        )
        points = [exp_floor(index * step, FINE) for index in range(low, high + 1)]
        require(
            all(a < b for a, b in zip([0, *points], points, strict=False)),
            "grid",
            "the points do not increase",
        )
        return Grid(low, points)


def pair_values(grid: Grid, entries: Iterable[tuple[int, int]]) -> list[int]:
    """sum max(p - c q, 0) at every point c of the grid, times 2**FINE, exactly, for pairs of masses (p, q)."""
    size = len(grid.points)
    first, second = [0] * size, [0] * size
    for p, q in entries:
        index = bisect_right(grid.points, (p << FINE) // q) - 1 if q else size - 1
        if p and index >= 0:
            first[index] += p
            second[index] += q
    # p - c q is positive at points up to that of the pair, so these are suffix sums.
    up, down = list(accumulate(reversed(first))), list(accumulate(reversed(second)))
    return [
        (p << FINE) - c * q
        for p, q, c in zip(reversed(up), reversed(down), grid.points, strict=True)
    ]


Steps: TypeAlias = Iterable[tuple[int, Measure]]
"""Weights in units of 2**-BITS, and the noise that is there with this weight."""

SILENCE = Measure(polynomial([WHOLE]), 0)
SILENT: Steps = ((WHOLE, SILENCE),)


def divergences(rows: Rows, steps: Steps, factor: int, grid: Grid | None) -> list[int]:
    """The largest divergence over ordered pairs of rows, at c = `factor` / 2**FACTOR or at the points of a grid."""
    size = 1 if grid is None else len(grid.points)
    totals = {pair: [0] * size for pair in permutations(range(len(rows)), 2)}
    missing = 0
    for weight, noise in steps:
        missing += weight * noise.deficit
        seen = [
            [int(mass) for mass in (polynomial(list(row)) * noise.poly).coeffs()] for row in rows
        ]
        above, below = (
            [[by * mass for mass in masses] for masses in seen] for by in (2**FACTOR, factor)
        )
        for (i, j), sums in totals.items():
            tick()
            if grid is None:
                pairs = zip_longest(above[i], below[j], fillvalue=0)
                sums[0] += weight * sum(p - q for p, q in pairs if p > q)
            else:
                values = pair_values(grid, zip_longest(seen[i], seen[j], fillvalue=0))
                sums[:] = [
                    total + weight * value for total, value in zip(sums, values, strict=True)
                ]
    scale = (TOTAL << BITS) << (FACTOR if grid is None else FINE)
    largest = [max(column) for column in zip([0] * size, *totals.values(), strict=True)]
    values = [ceil_div(value, scale) + ceil_div(missing, WHOLE) for value in largest]
    # Equal inputs are a pair, too, also where all rows are equal and there is no other: at c < 1 it costs 1 - c.
    return values if grid is None else list(map(max, grid.identity, values))


def measure_of(grid: Grid, values: Sequence[int], cut: int) -> Measure:
    """A loss distribution whose curve lies nowhere below a convex curve of at most `values` at the points (E)."""
    hull, floor = [(0, WHOLE)], WHOLE
    for point, value in zip(grid.points, values, strict=True):
        floor = min(floor, value)
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], (point, floor)):
            hull.pop()
        hull.append((point, floor))
    require(floor >= 0, "curve", "a divergence is negative", floor)
    # A slope below -1 is no pair's: second masses would sum to more than 1, and the first slope is the steepest.
    (b, v) = hull[1]
    require((WHOLE - v) * ONE <= b * WHOLE, "curve", "values lie below the curve of equal rows", v)
    masses = [0] * len(grid.points)
    index = {point: position for position, point in enumerate(grid.points)}
    for position in range(1, len(hull)):
        (a, u), (b, v) = hull[position - 1 : position + 1]
        c, w = hull[position + 1] if position + 1 < len(hull) else (b + 1, v)
        # The slope rises by (w - v)/(c - b) - (v - u)/(b - a) at b: the second mass there, and b times it the first.
        masses[index[b]] = b * ((w - v) * (b - a) - (v - u) * (c - b)) // ((c - b) * (b - a))
    require(all(mass >= 0 for mass in masses), "curve", "an atom is negative")
    return trimmed(polynomial(masses), grid.low, cut)


def _turns_up(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether b lies on or above the chord from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def curve_of(measure: Measure, step: Fraction) -> Curve:
    """The curve deficit + sum mass (1 - c e**-s)+ of a loss distribution, rounded up."""
    firsts = [int(mass) for mass in measure.poly.coeffs()]
    losses = [(measure.start + index) * step for index in range(len(firsts))]
    points = [exp_floor(loss, FINE) for loss in losses]
    tops = [exp_ceil(loss, FINE) for loss in losses]
    for bounds in (points, tops):
        rising = all(a <= b for a, b in pairwise(bounds))
        require(rising, "precision", "it does not tell the losses apart")
    # Second masses are rounded down, and the curve is rounded up.
    seconds = [mass * ONE // top for mass, top in zip(firsts, tops, strict=True)]
    first_sums = [*reversed(list(accumulate(reversed(firsts)))), 0]
    second_sums = [*reversed(list(accumulate(reversed(seconds)))), 0]
    deficit = measure.deficit

    def curve(numerator: int, denominator: int) -> int:
        here = (numerator << FINE) // denominator
        above = bisect_right(points, here)  # from here on losses are surely above log c
        total = (deficit + first_sums[above]) * denominator - numerator * second_sums[above]
        while above and tops[above - 1] > here:  # these may be above it
            tick()
            above -= 1
            total += max(0, firsts[above] * denominator - numerator * seconds[above])
        return ceil_div(total, denominator)

    return curve


def sampled_curves(
    release: ExactRelease, curve: Curve, far: Curve | None = None, replaced: Curve | None = None
) -> list[Curve]:
    """Curves of a round with random participation, one per direction, from the symmetric curve of a certain one."""
    p, q = release.rate.numerator, release.rate.denominator

    def revealed(n: int, d: int) -> int:
        return ceil_div(p * curve(n, d) * d + (q - p) * max(0, d - n) * WHOLE, q * d)

    def above(n: int, d: int) -> int:
        return ceil_div(p * curve(d * p + (n - d) * q, d * p), q)

    def replace(n: int, d: int) -> int:
        if n < d:
            return ceil_div((d - n) * WHOLE + n * replace(d, n), d)
        if replaced:
            return replaced(n, d)
        inner = d * p + (n - d) * q
        near = curve(inner, d * p)
        away = far(inner, d * p) if far else near
        return ceil_div(p * ((inner - n * p) * near + n * p * away), q * inner)

    def add(n: int, d: int) -> int:
        return above(n, d) if n * q > d * (q - p) else ceil_div((d - n) * WHOLE, d)

    def remove(n: int, d: int) -> int:
        rest = d * q - n * (q - p)
        return ceil_div(rest * curve(n * p, rest), d * q) if rest > 0 else 0

    if release.sampling == "none":
        return [curve]
    if release.sampling == "revealed":
        return [revealed]
    return [add, remove] if release.neighboring == "add_or_remove_one" else [replace]


def check_delta_of(measure: Measure, step: Fraction, target: Target) -> None:
    """deficit + sum over losses s > epsilon of mass (1 - e**(epsilon - s)) <= delta."""
    epsilon, first = target.epsilon, target.epsilon // step + 1
    entries = measure.poly.coeffs()[max(0, first - measure.start) :]
    low = max(first, measure.start)
    tilted: Ball = ball_polynomial(entries)((-ball(step)).exp()) * ball(epsilon - low * step).exp()
    total: Ball = measure.deficit + sum(int(entry) for entry in entries) - tilted
    require(
        total <= ball(target.delta) * WHOLE,
        "delta",
        "delta is too small at this epsilon",
        total / WHOLE,
        target.delta,
    )


def check_rounds(target: Target, proof: Fields, step: Fraction, cut: int, single: Measure) -> None:
    """Rounds that cost `single` each when everyone takes part; sampled as the release says."""
    if target.release.sampling == "none":
        check_delta_of(single.power(target.release.rounds), step, target)
    else:
        check_sampled(target, proof, step, cut, curve_of(single, step))


def check_sampled(
    target: Target, proof: Fields, step: Fraction, cut: int, curve: Curve, *others: Curve | None
) -> None:
    """Rounds of sampled releases, each with this curve (or these, see `sampled_curves`) before sampling."""
    grid = Grid.read(proof.fields("sampled"), step)
    for sampled in sampled_curves(target.release, curve, *others):
        values: list[int] = []
        for point in grid.points:
            tick()
            values.append(sampled(point, ONE))
        check_delta_of(measure_of(grid, values, cut).power(target.release.rounds), step, target)


def check_cases(
    target: Target, proof: Fields, cut: int, cases: Iterable[tuple[Rows, Steps]]
) -> None:
    """Check a coordinate of a round, which costs at most what its rows do in the worst case, each with its noise."""
    release, coordinates = target.release, target.release.tables[0][1]
    single = release.rounds * coordinates == 1 and release.sampling != "poisson"
    step = Fraction(0) if single else proof.number("step")
    grid = None if single else Grid.read(proof.fields("grid"), step)
    worst = [0] if grid is None else grid.identity
    for rows, steps in cases:
        worst = list(
            map(max, worst, divergences(rows, steps, exp_floor(target.epsilon, FACTOR), grid))
        )
    if grid is None:
        shown = release.rate * Fraction(worst[0], WHOLE)
        require(
            shown <= target.delta,
            "delta",
            "delta is too small at this epsilon",
            shown,
            target.delta,
        )
    else:
        check_rounds(target, proof, step, cut, measure_of(grid, worst, cut).power(coordinates))


def check_delta(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) of one report, in integers."""
    target = Target.read(claim, "reports", "dp")
    check_cases(target, proof, 0, [(single_table(target.release, tables), SILENT)])


def check_losses(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) of many reports, all seen: composes coordinates, then sampling, then rounds."""
    target, step, grids = (
        Target.read(claim, "reports", "dp"),
        proof.number("step"),
        proof.items("grids"),
    )
    described, cut = target.release.tables, WHOLE >> proof.integer("tail", 0, BITS)
    require(len(grids) == len(described), "grids", "not one grid per table")
    total = replace(SILENCE, cut=cut)
    for (digest, coordinates), raw in zip(described, grids, strict=True):
        grid = Grid.read(Fields(raw, "grid"), step)
        values = divergences(table_rows(tables, digest), SILENT, 0, grid)
        total *= measure_of(grid, values, cut).power(coordinates)
    check_rounds(target, proof, step, cut, total)
