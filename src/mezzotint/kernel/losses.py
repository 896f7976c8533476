"""Losses on a grid, in integers: from curves to pairs of distributions, their products, and their curve again.

Statements: K1, K2, E (docs/proofs/kernel.md), docs/proofs/privacy-composition.md. A curve h(c)
bounds hockey-stick divergences at c = e**epsilon; masses are units of 2**-BITS; what is missing is certain disclosure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, permutations
from typing import Any, TypeAlias, final

from mezzotint.kernel.claim import Claim, Release
from mezzotint.kernel.one import read_statement, released, table_rows
from mezzotint.kernel.real import Ball, ball, ball_polynomial, exp_floor, polynomial
from mezzotint.kernel.table import Table
from mezzotint.kernel.units import MAX_ENTRIES, TOTAL, Fields, Unreadable, ceil_div, require, tick

BITS, FINE = 160, 256
"""Masses are integers over 2**BITS, values of c = e**epsilon integers over 2**FINE."""

WHOLE, ONE = 1 << BITS, 1 << FINE

Curve: TypeAlias = Callable[[int, int], int]
"""(numerator, denominator) of c > 0 to an upper bound of the divergence, in units of 2**-BITS."""


@final
@dataclass(frozen=True)
class Measure:
    """A sub-measure on start, start + 1, ...: a polynomial of masses. `cut` bounds what each product may drop."""

    poly: Any
    start: int
    cut: int = 0

    @property
    def deficit(self) -> int:
        """What is missing to probability 1."""
        return WHOLE - int(self.poly(1))

    def __mul__(self, other: Measure) -> Measure:
        tick()
        size = len(self.poly) + len(other.poly)
        require(size <= MAX_ENTRIES, "size", "a product has too many entries", size, MAX_ENTRIES)
        return trimmed((self.poly * other.poly) // WHOLE, self.start + other.start, self.cut)

    def power(self, count: int) -> Measure:
        """The product of `count` copies, count >= 1, by squaring."""
        result: Measure | None = None
        square = self
        while True:
            if count & 1:
                result = square if result is None else result * square
            count >>= 1
            if not count:
                assert result is not None
                return result
            square = square * square


def trimmed(poly: Any, start: int, cut: int) -> Measure:
    """Without the entries at both ends that hold at most `cut` together at each end."""
    entries: list[Any] = poly.coeffs()
    first, last, low, high = 0, len(entries), 0, 0
    while first < last and low + entries[first] <= cut:
        low += entries[first]
        first += 1
    while last > first and high + entries[last - 1] <= cut:
        last -= 1
        high += entries[last]
    return Measure(polynomial(entries[first:last]), start + first, cut)


@final
@dataclass(frozen=True)
class Grid:
    """Losses index * step, index from low to high, and 2**FINE e**loss rounded down."""

    step: Fraction
    low: int
    points: list[int]

    @staticmethod
    def read(fields: Fields, step: Fraction) -> Grid:
        """From {"low", "high"}; the grid must be fine enough to tell its points apart."""
        low = fields.integer("low", -MAX_ENTRIES, MAX_ENTRIES)
        high = fields.integer("high", low, MAX_ENTRIES)
        fields.done()
        require(high - low <= MAX_ENTRIES, "size", "a grid has too many points", high - low, MAX_ENTRIES)
        require(low * step >= -100 and high * step <= 10**5, "grid", "losses outside [-100, 100000]")
        points = [exp_floor(index * step, FINE) for index in range(low, high + 1)]
        require(all(a < b for a, b in zip([0, *points], points, strict=False)), "grid", "the points do not increase")
        return Grid(step, low, points)


def read_step(proof: Fields) -> Fraction:
    """Of the grid, at least 2**-30."""
    step = proof.number("step")
    require(step >= Fraction(1, 2**30), "grid", "the step is too small", step)
    return step


def pair_values(grid: Grid, entries: Iterable[tuple[int, int]]) -> list[int]:
    """sum max(p - c q, 0) at every point c of the grid, times 2**FINE, exactly, for pairs of masses (p, q)."""
    size = len(grid.points)
    first, second = [0] * size, [0] * size
    for p, q in entries:
        index = bisect_right(grid.points, (p << FINE) // q) - 1 if q else size - 1
        if p and index >= 0:
            first[index] += p
            second[index] += q
    # p - c q is positive at the points up to the pair's own; these are suffix sums.
    up, down = list(accumulate(reversed(first))), list(accumulate(reversed(second)))
    return [(p << FINE) - c * q for p, q, c in zip(reversed(up), reversed(down), grid.points, strict=True)]


def measure_of(grid: Grid, values: Sequence[int], cut: int) -> Measure:
    """A loss distribution whose curve lies nowhere below a convex curve that is at most `values` at the grid's points.

    The curve is replaced by the lower convex envelope of (0, 1) and the values, which is not below its chords (E).
    Corners of the envelope are atoms; each is rounded down, and what is missing discloses.
    """
    hull = [(0, WHOLE)]
    floor = WHOLE
    for point, value in zip(grid.points, values, strict=True):
        floor = min(floor, value)
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], (point, floor)):
            hull.pop()
        hull.append((point, floor))
    require(floor >= 0, "curve", "a divergence is negative", floor)
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
    points = [exp_floor((measure.start + j) * step, FINE) for j in range(len(firsts))]
    # e**-s is more than 1 / (point + 1): the second masses are too small, the curve too large.
    seconds = [mass * ONE // (point + 1) for mass, point in zip(firsts, points, strict=True)]
    up = [*reversed(list(accumulate(reversed(firsts)))), 0]
    down = [*reversed(list(accumulate(reversed(seconds)))), 0]
    deficit = measure.deficit

    def curve(numerator: int, denominator: int) -> int:
        here = (numerator << FINE) // denominator
        above = bisect_right(points, here)
        total = deficit * denominator + up[above] * denominator - numerator * down[above]
        # Points are rounded down, so one that equals c may stand for a loss above it.
        while above and points[above - 1] == here:
            above -= 1
            total += max(0, firsts[above] * denominator - numerator * seconds[above])
        return ceil_div(total, denominator)

    return curve


def sampled_curves(release: Release, curve: Curve, far: Curve | None = None) -> list[Curve]:
    """Curves of a round with random participation, one per direction, from the symmetric curve of a certain one.

    `curve` is of a record against its absence; `far` of one against another, where that is more.
    Statement: docs/proofs/privacy-composition.md, "Taking part at random"; docs/proofs/training.md, "Sampling".
    """
    p, q = release.rate.numerator, release.rate.denominator

    def revealed(n: int, d: int) -> int:
        return ceil_div(p * curve(n, d) * d + (q - p) * max(0, d - n) * WHOLE, q * d)

    def above(n: int, d: int) -> int:
        return ceil_div(p * curve(d * p + (n - d) * q, d * p), q)

    def replace(n: int, d: int) -> int:
        if n < d:
            return ceil_div((d - n) * WHOLE + n * replace(d, n), d)
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


def check_delta_of(measure: Measure, step: Fraction, epsilon: Fraction, delta: Fraction) -> None:
    """deficit + sum over losses s > epsilon of mass (1 - e**(epsilon - s)) <= delta."""
    first = epsilon // step + 1
    entries: list[Any] = measure.poly.coeffs()[max(0, first - measure.start) :]
    low = max(first, measure.start)
    tilted: Ball = ball_polynomial(entries)((-ball(step)).exp()) * ball(epsilon - low * step).exp()
    total: Ball = measure.deficit + sum(int(entry) for entry in entries) - tilted
    bound = ball(delta) * WHOLE
    require(total <= bound, "delta", "delta is too small at this epsilon", total / WHOLE, delta)


def check_rounds(claim: Claim, proof: Fields, step: Fraction, cut: int, single: Measure) -> None:
    """Rounds that cost `single` each when everyone takes part, against the claim; sampled as the release says."""
    release = claim.release
    assert release is not None
    epsilon, delta, _ = read_statement(claim)
    if release.sampling == "none":
        check_delta_of(single.power(release.rounds), step, epsilon, delta)
        return
    check_sampled(claim, proof, step, cut, curve_of(single, step))


def check_sampled(
    claim: Claim, proof: Fields, step: Fraction, cut: int, curve: Curve, far: Curve | None = None
) -> None:
    """Rounds of sampled releases, each with this curve before sampling, against the claim."""
    release = claim.release
    assert release is not None
    grid = Grid.read(proof.fields("sampled"), step)
    epsilon, delta, _ = read_statement(claim)
    for sampled in sampled_curves(release, curve, far):
        values: list[int] = []
        for point in grid.points:
            tick()
            values.append(sampled(point, ONE))
        check_delta_of(measure_of(grid, values, cut).power(release.rounds), step, epsilon, delta)


def read_cut(proof: Fields) -> int:
    """What each product may drop at each end: 2**-tail."""
    return WHOLE >> proof.integer("tail", 0, BITS)


def check_losses(claim: Claim, proof: Fields, tables: dict[str, Table]) -> None:
    """(epsilon, delta) of many reports, all seen: coordinates are composed, then sampled, then the rounds."""
    release = released(claim, "reports", "dp")
    step, cut = read_step(proof), read_cut(proof)
    grids = proof.items("grids", len(release.tables))
    if len(grids) != len(release.tables):
        raise Unreadable("grids needs one grid per table")
    measures: list[Measure] = []
    for (digest, coordinates), raw in zip(release.tables, grids, strict=True):
        grid = Grid.read(Fields(raw, "grid"), step)
        values = [0] * len(grid.points)
        for first, second in permutations(table_rows(tables, digest), 2):
            tick()
            values = list(map(max, values, pair_values(grid, zip(first, second, strict=True))))
        scale = TOTAL << FINE
        whole = [ceil_div(value * WHOLE, scale) for value in values]
        measures.append(measure_of(grid, whole, cut).power(coordinates))
    total = measures[0]
    for measure in measures[1:]:
        total = total * measure
    check_rounds(claim, proof, step, cut, total)
