"""Compositions of releases by their losses, with participation drawn at random.

Statements: K2, E, "Taking part at random", "One report" (docs/proofs/kernel.md),
docs/proofs/privacy-composition.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from mezzotint.kernel.claim import ExactClaim, ExactRelease, Target
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
    p = release.rate.numerator
    q = release.rate.denominator
    require(0 < p <= q, "sampling", "the rate is not a probability above 0")

    def public(n: int, d: int) -> int:
        """p h(c) + (1 - p) (1 - c)+."""
        absent = max(0, d - n) * WHOLE
        return ceil_div(p * certain(n, d) * d + (q - p) * absent, q * d)

    def replace_one(n: int, d: int) -> int:
        """p ((1 - b) h(s) + b far(s)) with s = 1 + (c - 1)/p, b = c/s at c >= 1; mirrored below."""
        if n < d:
            return ceil_div((d - n) * WHOLE + n * replace_one(d, n), d)
        if pair is not None:
            return pair(n, d)
        inner = d * p + (n - d) * q
        near = certain(inner, d * p)
        away = near if far is None else far(inner, d * p)
        return ceil_div(p * ((inner - n * p) * near + n * p * away), q * inner)

    def add(n: int, d: int) -> int:
        """p h(s) with s = 1 + (c - 1)/p where s > 0, else 1 - c."""
        inner = d * p + (n - d) * q
        if inner <= 0:
            return ceil_div((d - n) * WHOLE, d)
        return ceil_div(p * certain(inner, d * p), q)

    def remove(n: int, d: int) -> int:
        """t h(p c / t) with t = 1 - (1 - p) c where t > 0, else 0."""
        rest = d * q - n * (q - p)
        if rest <= 0:
            return 0
        return ceil_div(rest * certain(n * p, rest), d * q)

    if release.sampling == "none":
        return [certain]
    if release.sampling == "public":
        return [Curve(public)]
    require(release.sampling == "poisson", "sampling", "nothing is proved about this sampling")
    if release.neighboring == "replace_one":
        return [Curve(replace_one)]
    require(release.neighboring == "add_or_remove_one", "sampling", "unknown relation")
    return [Curve(add), Curve(remove)]


def check_delta_of(measure: Measure, target: Target) -> None:
    """deficit + sum over losses s > epsilon of mass (1 - e**(epsilon - s)) <= delta."""
    epsilon = target.epsilon
    step = measure.step
    require(step > 0, "grid", "the step is not positive")
    first = epsilon // step + 1
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
        for point in grid.points:
            tick()
            values.append(curve(point, ONE))
        single = measure_of(grid, values, cut)
        check_delta_of(single.power(target.release.independent_rounds), target)


def check_cases(
    target: Target,
    proof: Fields,
    cut: int,
    cases: Iterable[tuple[Table, Steps]],
) -> None:
    """Check a coordinate of a round, which costs at most what its rows do in the worst case."""
    release = target.release
    _, coordinates = release.only_table
    once = release.independent_rounds * coordinates == 1 and release.sampling != "poisson"
    grid = None
    worst = [0]
    if not once:
        grid = Grid.read(proof.fields("grid"), proof.number("step"))
        worst = grid.identity
    factor = exp_floor(target.epsilon, FACTOR)
    count = 0
    for table, steps in cases:
        count += 1
        worst = list(map(max, worst, divergences(table, steps, factor, grid)))
    require(count > 0, "cases", "there is none")
    if grid is None:
        # Seen absence, with probability 1 - rate, costs nothing.
        total = release.rate * Fraction(worst[0], WHOLE)
        require(
            total <= target.delta,
            "delta",
            "delta is too small at this epsilon",
            total,
            target.delta,
        )
    else:
        check_rounds(target, proof, measure_of(grid, worst, cut).power(coordinates))


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
    total = replace(SILENCE, cut=cut, step=step)
    for (digest, coordinates), entry in zip(described, grids, strict=True):
        grid = Grid.read(Fields(entry, "grid"), step)
        values = divergences(find_table(tables, digest), SILENT, 2**FACTOR, grid)
        total *= measure_of(grid, values, cut).power(coordinates)
    check_rounds(target, proof, total)
