"""Secure sums: how well the noise that others are certain to add hides one client's report.

Statements: Theorem S', Cover (docs/proofs/sums.md), K1, Ladder, Boxes (docs/proofs/kernel.md). A proof lists blankets
of groups of rows, divides the data sets into cases by the number of clients with rows of each group, and gives each
case boxes and ladders: counts of draws that its noise reaches with a probability that is bounded here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise
from math import comb
from typing import TypeAlias, final

from mezzotint.kernel.claim import ExactClaim, ExactRelease, Target
from mezzotint.kernel.losses import SILENCE, Measure, Steps, check_cases, summed_noise
from mezzotint.kernel.real import Ball, ball, ceil_scaled, polynomial, rational_polynomial
from mezzotint.kernel.table import Tables, summed_rows
from mezzotint.kernel.units import BITS, TOTAL, WHOLE, Fields, ceil_div, require, tick

_Counts: TypeAlias = dict[int, int]  # of clients, by group
_GUARD = 64  # further bits of the terms of a binomial sum


@final
@dataclass(frozen=True)
class _Blanket:
    """Noise drawn by every `block` clients with rows of the group: the probabilities and shapes of its components."""

    rows: frozenset[int]
    block: int
    components: list[tuple[Fraction, Measure]]


def _read_blanket(fields: Fields, rows: list[list[int]], cut: int) -> _Blanket:
    chosen, block = fields.integers("rows"), fields.integer("block", 1, 16)
    require(
        bool(chosen) and all(index < len(rows) for index in chosen),
        "blanket",
        "a group has no such rows",
    )
    require(
        comb(len(chosen) + block - 1, block) <= 10**4,
        "size",
        "a block has too many combinations of rows",
    )
    groups = list(combinations_with_replacement(chosen, block))
    placed: list[tuple[list[int], list[list[int]]]] = []
    for raw in fields.items("components", 64):
        component = Fields(raw, "component")
        shape, places = component.integers("shape"), component.lists("places")
        component.done()
        require(sum(shape) > 0, "blanket", "a shape has no mass")
        require(
            len(places) == len(groups),
            "blanket",
            "a group's rows are not all served",
            len(places),
            len(groups),
        )
        require(
            len({sum(entry) for entry in places}) == 1,
            "blanket",
            "rows give a component unequal masses",
        )
        placed.append((shape, places))
    fields.done()
    for index, group in enumerate(groups):
        tick()
        _require_fit(
            [rows[row] for row in group], [(shape, places[index]) for shape, places in placed]
        )
    shapes = [
        Measure(polynomial([WHOLE * w // sum(shape) for w in shape]), 0, cut) for shape, _ in placed
    ]
    chances = [Fraction(sum(places[0]), TOTAL) for _, places in placed]
    return _Blanket(frozenset(chosen), block, list(zip(chances, shapes, strict=True)))


def _require_fit(group: list[list[int]], placed: list[tuple[list[int], list[int]]]) -> None:
    """sum of shape * places <= the convolution of the group's rows, entry by entry, in integers."""
    rest = rational_polynomial([TOTAL])
    for row in group:
        rest = rest * polynomial(row) / TOTAL
    for shape, places in placed:
        rest = rest - rational_polynomial(shape) * polynomial(places) / sum(shape)
    require(
        all(entry >= 0 for entry in rest.coeffs()),
        "blanket",
        "a row holds less than its blanket takes",
    )


def _cases(
    node: Fields, counts: _Counts, blankets: list[_Blanket], depth: int
) -> Iterator[tuple[_Counts, Fields]]:
    """(Counts of clients by group, their draws) of every leaf; the parts of a division together hold what it held."""
    require(depth <= 200, "size", "cases are nested too deeply")
    if not node.has("cuts"):
        yield counts, node
        return
    group, first, second = (
        node.integer(key, 0, len(blankets) - 1) for key in ("group", "first", "second")
    )
    cuts, children = node.integers("cuts"), node.items("children")
    node.done()
    covered = blankets[first].rows | blankets[second].rows
    require(
        blankets[group].rows <= covered, "cases", "a row of the divided group is in neither part"
    )
    count = counts.get(group, 0)
    require(len(cuts) == len(children) + 1 and cuts[0] == 0, "cases", "the parts do not begin at 0")
    require(cuts[-1] == count + 1, "cases", "the parts do not hold all counts", cuts[-1], count + 1)
    for (least, after), child in zip(pairwise(cuts), children, strict=True):
        require(least < after, "cases", "a part is empty", least, after)
        part = {**counts, group: after - 1 - least}
        part[first] = part.get(first, 0) + least
        part[second] = part.get(second, 0) + count - (after - 1)
        yield from _cases(Fields(child, "case"), part, blankets, depth + 1)


def binomial_below(trials: int, chance: Fraction, edge: int) -> int:
    """An upper bound of P(N < edge), N binomial, in units of 2**-BITS.

    From edge - 1 downwards the ratio of successive terms falls; once it is below 1, a geometric sum bounds the rest.
    """
    if edge <= 0 or (chance == 1 and edge <= trials):
        return 0
    if not (edge <= trials and 0 < chance < 1):
        return WHOLE
    k, hit, miss = edge - 1, chance.numerator, chance.denominator - chance.numerator
    log: Ball = ball(trials + 1).lgamma() - ball(k + 1).lgamma() - ball(trials - k + 1).lgamma()
    log += k * ball(chance).log() + (trials - k) * ball(1 - chance).log()
    term = ceil_scaled(log.exp(), BITS + _GUARD)
    total = term
    while k and (term >> (_GUARD // 2) or k * miss >= (trials - k + 1) * hit):
        term = ceil_div(term * k * miss, (trials - k + 1) * hit)
        total += term
        k -= 1
    up, down = k * miss, (trials - k + 1) * hit
    return min(WHOLE, ceil_div(total + ceil_div(term * up, down - up), 1 << _GUARD))


_Part: TypeAlias = tuple[int, int, Fraction, Measure]
"""A component: its group, in how many draws it may come, with what chance in each, and its noise."""


def _steps(node: Fields, parts: list[_Part], weight: int, noise: Measure) -> Steps:
    """(Weight, noise) of every box of counts and of the part without noise; together they hold `weight`."""
    if node.has("corners"):
        yield from _ladder(node.lists("corners"), parts, weight, noise)
    else:
        edges, children = node.integers("edges"), node.items("children")
        require(
            0 < len(parts) <= 200 and edges[:1] == [0],
            "boxes",
            "nothing to divide, or the counts not from 0 on",
        )
        require(
            len(edges) == len(children), "boxes", "not one part per edge", len(edges), len(children)
        )
        group, draws, chance, shape = parts[0]
        require(chance < 1, "boxes", "a component that is drawn for sure is not divided")
        for low, after, child in zip(edges, [*edges[1:], draws + 1], children, strict=True):
            require(low < after, "boxes", "a part is empty", low, after)
            share = (
                binomial_below(draws, chance, after)
                + binomial_below(draws, 1 - chance, draws + 1 - low)
                - WHOLE
            )
            rest = [
                (g, d + 1 - after, c / (1 - chance), s) if g == group else (g, d, c, s)
                for g, d, c, s in parts[1:]
            ]
            here = ceil_div(weight * share, WHOLE)
            yield from _steps(Fields(child, "box"), rest, here, shape.power(low) * noise)
    node.done()


def _ladder(corners: list[list[int]], parts: list[_Part], weight: int, noise: Measure) -> Steps:
    """What every corner adds to the noise, in increasing order, then the weight of what misses all corners."""
    require(
        {len(corner) for corner in corners} == {len(parts)}, "ladder", "a corner has too few counts"
    )
    missed = [WHOLE]
    for corner in corners:
        tick()
        chance = sum(
            binomial_below(draws, g, edge)
            for (_, draws, g, _), edge in zip(parts, corner, strict=True)
        )
        missed.append(min(missed[-1], chance))
    before = [0] * len(parts)
    yield ceil_div(weight * missed[-1], WHOLE), Measure(polynomial([]), 0)
    for position in range(len(corners) - 1, -1, -1):
        for (_, _, _, shape), edge, reached in zip(parts, corners[position], before, strict=True):
            require(edge >= reached, "ladder", "corners do not fall", edge, reached)
            noise = shape.power(edge - reached) * noise
        before = corners[position]
        yield ceil_div(weight * (missed[position] - missed[position + 1]), WHOLE), noise


def _noises(
    release: ExactRelease, proof: Fields, spread: list[list[int]], cut: int
) -> Iterator[Steps]:
    """The noise that others are certain to add, in every case of their data."""
    blankets = [
        _read_blanket(Fields(raw, "blanket"), spread, cut) for raw in proof.items("blankets", 1000)
    ]
    others = proof.integer("others", 0, release.clients - 1 - release.corrupted)
    require(
        bool(blankets) and len(blankets[0].rows) == len(spread),
        "cases",
        "the first group is not all rows",
    )
    for counts, leaf in _cases(proof.fields("cases"), {0: others}, blankets, 0):
        parts = [
            (group, count // blankets[group].block, chance, shape)
            for group, count in sorted(counts.items())
            for chance, shape in blankets[group].components
            if count >= blankets[group].block
        ]
        yield _steps(leaf, parts, WHOLE, SILENCE)


def check_sum(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) of secure sums; several coordinates or rounds are composed as losses."""
    target = Target.read(claim, "secure_sum noisy_sum", "dp")
    release = target.release
    require(
        release.sampling != "poisson", "sum", "nothing is proved here about secret participation"
    )
    cut = WHOLE >> proof.integer("tail", 0, BITS)
    if release.shift:
        # Each integer moves by at most the shift, under everyone's noise; sums are as far apart as two such reports.
        noise = ((WHOLE, summed_noise(release, tables, cut)),)
        cases = (([[TOTAL], [0] * move + [TOTAL]], noise) for move in range(1, release.shift + 1))
    else:
        spread = summed_rows(release, tables)
        cases = ((spread, steps) for steps in _noises(release, proof, spread, cut))
    check_cases(target, proof, cut, cases)
