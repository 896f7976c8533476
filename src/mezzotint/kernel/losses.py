"""Compositions of releases by their losses, with participation drawn at random.

Statements: K2, E, "Taking part at random", "One report" (docs/proofs/kernel.md),
docs/proofs/privacy-composition.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from mezzotint.kernel.claim import NEIGHBORINGS, ExactClaim, ExactRelease, Target
from mezzotint.kernel.measures import (
    SILENCE,
    SILENT,
    Curve,
    Grid,
    Measure,
    Steps,
    curve_of,
    divergences,
    measure_of,
)
from mezzotint.kernel.real import Ball, ball, ball_polynomial, exp_floor
from mezzotint.kernel.table import Table, Tables, find_table, single_table
from mezzotint.kernel.units import (
    BITS,
    FACTOR,
    ONE,
    WHOLE,
    Fields,
    ceil_div,
    require,
    tick,
)


def sampled_curves(
    release: ExactRelease,
    certain: Curve,
    far: Curve | None = None,
    pair: Curve | None = None,
) -> list[Curve]:
    """Curves of a round with random participation, one per direction.

    Arguments:
        release: its sampling, rate p and relation of neighbours.
        certain: a curve, the same in both directions, of a round in which the protected one surely
            is.
        far: for replacing a record, that of two such rounds with different records, if it is
            another one.
        pair: for replacing a record, the curve of the sampled round itself at c >= 1, if it is
            known.
    """
    present = release.rate.numerator
    total = release.rate.denominator
    require(0 < present <= total, "sampling", "the rate is not a probability above 0")

    def public(numerator: int, denominator: int) -> int:
        """p h(c) + (1 - p) (1 - c)+, p = present / total, c = numerator / denominator."""
        equal_rows = max(0, denominator - numerator) * WHOLE
        reported = certain(numerator, denominator) * denominator
        mixed = present * reported + (total - present) * equal_rows
        return ceil_div(mixed, total * denominator)

    if release.sampling == "none":
        return [certain]
    if release.sampling == "public":
        return [Curve(public)]
    require(release.sampling == "poisson", "sampling", "nothing is proved about this sampling")
    require(release.neighboring in NEIGHBORINGS, "sampling", "unknown relation")
    return _secret_curves(release, certain, far, pair)


def _secret_curves(
    release: ExactRelease,
    certain: Curve,
    far: Curve | None,
    pair: Curve | None,
) -> list[Curve]:
    """`sampled_curves` of a round in which nobody sees who takes part."""
    present = release.rate.numerator
    total = release.rate.denominator

    def replace_one(numerator: int, denominator: int) -> int:
        """p ((1 - b) h(s) + b far(s)) with s = 1 + (c - 1)/p, b = c/s at c >= 1; mirrored below."""
        excess = numerator - denominator
        if excess < 0:
            mirrored = numerator * replace_one(denominator, numerator)
            return ceil_div(mirrored - excess * WHOLE, denominator)
        if pair is not None:
            return pair(numerator, denominator)
        scaled = denominator * present
        inner = scaled + excess * total
        near_value = certain(inner, scaled)
        far_value = near_value if far is None else far(inner, scaled)
        far_weight = numerator * present
        mixed = (inner - far_weight) * near_value + far_weight * far_value
        return ceil_div(present * mixed, total * inner)

    def add(numerator: int, denominator: int) -> int:
        """p h(s) with s = 1 + (c - 1)/p where s > 0, else 1 - c."""
        excess = numerator - denominator
        scaled = denominator * present
        inner = scaled + excess * total
        if inner <= 0:
            return ceil_div(-excess * WHOLE, denominator)
        return ceil_div(present * certain(inner, scaled), total)

    def remove(numerator: int, denominator: int) -> int:
        """t h(p c / t) with t = 1 - (1 - p) c where t > 0, else 0."""
        whole = denominator * total
        remaining = whole - numerator * (total - present)
        if remaining <= 0:
            return 0
        return ceil_div(remaining * certain(numerator * present, remaining), whole)

    if release.neighboring == "replace_one":
        return [Curve(replace_one)]
    return [Curve(add), Curve(remove)]


def check_delta_of(measure: Measure, target: Target) -> None:
    """deficit + sum over losses s > epsilon of mass (1 - e**(epsilon - s)) <= delta."""
    epsilon = target.epsilon
    step = measure.step
    require(step > 0, "grid", "the step is not positive")
    first_above = epsilon // step + 1
    lowest = max(first_above, measure.start)
    masses = measure.poly.coeffs()[lowest - measure.start :]
    decay = (-ball(step)).exp()
    lowest_factor = ball(epsilon - lowest * step).exp()
    tilted: Ball = ball_polynomial(masses)(decay) * lowest_factor
    total: Ball = measure.deficit + sum(int(mass) for mass in masses) - tilted
    require(
        total <= ball(target.delta) * WHOLE,
        "delta",
        "delta is too small at this epsilon",
        total / WHOLE,
        target.delta,
        (epsilon, measure),
    )


def read_tail(proof: Fields) -> int:
    """What products may drop at either end, in units of 2**-BITS, from its number of bits."""
    return WHOLE >> proof.integer("tail", 0, BITS)


def check_rounds(target: Target, proof: Fields, single: Measure) -> None:
    """Rounds that cost `single` each when everyone takes part; sampled as the release says."""
    if target.release.sampling == "none":
        check_delta_of(single.power(target.release.independent_rounds), target)
    else:
        curves = sampled_curves(target.release, curve_of(single))
        check_curves(target, proof, curves, single.step, single.cut)


def check_curves(
    target: Target,
    proof: Fields,
    curves: list[Curve],
    step: Fraction,
    cut: int,
) -> None:
    """Rounds of which each has one of these curves, the same one in all rounds."""
    require(len(curves) > 0, "curve", "there is none")
    grid = Grid.read(proof.fields("sampled"), step)
    for curve in curves:
        values: list[int] = []
        for factor in grid.points:
            tick()
            values.append(curve(factor, ONE))
        single_round = measure_of(grid, values, cut)
        check_delta_of(single_round.power(target.release.independent_rounds), target)


def check_cases(
    target: Target,
    proof: Fields,
    cut: int,
    cases: Iterable[tuple[Table, Steps]],
) -> None:
    """Check a coordinate of a round, which costs at most what its rows do in the worst case."""
    release = target.release
    coordinates = release.only_table[1]
    reports = release.independent_rounds * coordinates
    grid = None
    largest = [0]
    if reports > 1 or release.sampling == "poisson":
        grid = Grid.read(proof.fields("grid"), proof.number("step"))
        largest = grid.identity
    factor = exp_floor(target.epsilon, FACTOR)
    case_count = 0
    for table, steps in cases:
        case_count += 1
        values = divergences(table, steps, factor, grid)
        largest = list(map(max, largest, values))
    require(case_count > 0, "cases", "there is none")
    if grid is None:
        # Seen absence, with probability 1 - rate, costs nothing.
        total = release.rate * Fraction(largest[0], WHOLE)
        require(
            total <= target.delta,
            "delta",
            "delta is too small at this epsilon",
            total,
            target.delta,
        )
    else:
        coordinate = measure_of(grid, largest, cut)
        check_rounds(target, proof, coordinate.power(coordinates))


def check_delta(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) of one report, in integers."""
    target = Target.read(claim, "reports memoised", "dp")
    check_cases(target, proof, 0, [(single_table(target.release, tables), SILENT)])


def check_losses(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) of many reports, all seen: coordinates, then sampling, then rounds."""
    target = Target.read(claim, "reports memoised", "dp")
    step = proof.number("step")
    grids = proof.items("grids")
    described = target.release.tables
    cut = read_tail(proof)
    require(len(grids) == len(described), "grids", "not one grid per table")
    single_round = replace(SILENCE, cut=cut, step=step)
    for (digest, coordinates), document in zip(described, grids, strict=True):
        grid = Grid.read(Fields(document, "grid"), step)
        values = divergences(find_table(tables, digest), SILENT, 2**FACTOR, grid)
        coordinate = measure_of(grid, values, cut)
        single_round *= coordinate.power(coordinates)
    check_rounds(target, proof, single_round)
