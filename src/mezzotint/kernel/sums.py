"""Secure sums: how well the noise that others are certain to add hides one client's report.

Statements: Theorem S', Cover (docs/proofs/sums.md), K1, Ladder, Boxes (docs/proofs/kernel.md). A
proof lists blankets of groups of rows, divides the data sets into cases by the number of clients
with rows of each group, and gives each case boxes and ladders: counts of draws that its noise
reaches with a probability that is bounded here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise
from math import comb
from typing import TypeAlias, final

from mezzotint.kernel.claim import ExactClaim, ExactRelease, Target
from mezzotint.kernel.losses import check_cases, read_tail
from mezzotint.kernel.measures import SILENCE, Measure, Steps, product_of_powers
from mezzotint.kernel.real import (
    Ball,
    ball,
    ceil_scaled,
    log_binomial,
    polynomial,
    rational_polynomial,
)
from mezzotint.kernel.table import Table, Tables, summed_table
from mezzotint.kernel.units import (
    BITS,
    MAX_INTEGER,
    TOTAL,
    WHOLE,
    Fields,
    ceil_div,
    require,
    require_memory,
    tick,
)

_Counts: TypeAlias = dict[int, int]
"""Clients by group."""

_GUARD = 64
"""Further bits of the terms of a binomial sum."""

MAX_DEPTH = 200
"""Cases within cases, and components to divide."""

MAX_COMBINATIONS = 10**4
"""Combinations of rows in a block."""


@final
@dataclass(frozen=True)
class _Component:
    """Noise that a draw adds with probability `chance`, and the shape of that noise."""

    chance: Fraction
    shape: Measure

    def __post_init__(self) -> None:
        require(0 <= self.chance <= 1, "blanket", "a chance is no probability")


@final
@dataclass(frozen=True)
class _Blanket:
    """Noise drawn by every `block` clients with rows of the group, by component."""

    rows: frozenset[int]
    block: int
    components: list[_Component]


_Placed: TypeAlias = tuple[list[int], list[list[int]]]
"""The shape of a component, and for every combination of rows the weights of its places."""


def _read_component(fields: Fields, combinations: int) -> _Placed:
    shape = fields.integers("shape")
    places = fields.lists("places")
    fields.done()
    require(sum(shape) > 0, "blanket", "a shape has no mass")
    require(len(places) == combinations, "blanket", "a group's rows are not all served")
    for entry in places:
        require_memory(2 * (len(shape) + len(entry)), 2 * MAX_INTEGER.bit_length())
    masses = {sum(entry) for entry in places}
    require(len(masses) == 1, "blanket", "rows give a component unequal masses")
    return shape, places


def _read_blanket(fields: Fields, table: Table, cut: int) -> _Blanket:
    """The blanket, once it fits under every combination of the rows of its group."""
    chosen = fields.integers("rows")
    block = fields.integer("block", 1, 16)
    require(
        len(chosen) > 0 and max(chosen) < len(table.rows), "blanket", "a group has no such rows"
    )
    require(
        comb(len(chosen) + block - 1, block) <= MAX_COMBINATIONS,
        "size",
        "a block has too many combinations of rows",
    )
    groups = list(combinations_with_replacement(chosen, block))
    components = fields.items("components", 64)
    placed = [_read_component(Fields(entry, "component"), len(groups)) for entry in components]
    fields.done()
    for index, group in enumerate(groups):
        tick()
        served = [(shape, places[index]) for shape, places in placed]
        _require_fit([table.rows[row] for row in group], served)
    drawn: list[_Component] = []
    for shape, places in placed:
        masses = [WHOLE * weight // sum(shape) for weight in shape]
        chance = Fraction(sum(places[0]), TOTAL)
        drawn.append(_Component(chance, Measure(polynomial(masses), 0, cut)))
    return _Blanket(frozenset(chosen), block, drawn)


def _require_fit(group: list[Sequence[int]], served: list[tuple[list[int], list[int]]]) -> None:
    """sum of shape * places <= the convolution of the group's rows, entry by entry, in integers."""
    remaining = rational_polynomial([TOTAL])
    for row in group:
        tick()
        remaining = remaining * polynomial(list(row)) / TOTAL
    for shape, places in served:
        tick()
        taken = rational_polynomial(shape) * polynomial(places) / sum(shape)
        remaining = remaining - taken
    require(
        all(entry >= 0 for entry in remaining.coeffs()),
        "blanket",
        "a row holds less than its blanket takes",
    )


def _cases(
    node: Fields, counts: _Counts, blankets: list[_Blanket], depth: int
) -> Iterator[tuple[_Counts, Fields]]:
    """(Counts of clients by group, their draws) of every leaf.

    The parts of a division together hold what it held: some cut lies below every count.
    """
    require(depth <= MAX_DEPTH, "size", "cases are nested too deeply")
    if not node.has("cuts"):
        yield counts, node
        return
    last = len(blankets) - 1
    group, first, second = (node.integer(key, 0, last) for key in ("group", "first", "second"))
    cuts = node.integers("cuts")
    children = node.items("children")
    node.done()
    require(
        blankets[group].rows <= blankets[first].rows | blankets[second].rows,
        "cases",
        "a row of the divided group is in neither part",
    )
    count = counts.get(group, 0)
    require(len(cuts) == len(children) + 1 and cuts[0] == 0, "cases", "the parts do not begin at 0")
    require(
        cuts[-1] == count + 1,
        "cases",
        "the parts do not hold all counts",
        cuts[-1],
        count + 1,
    )
    for (least, after), child in zip(pairwise(cuts), children, strict=True):
        require(least < after, "cases", "a part is empty")
        # At least so many have rows of the first part, and of the second; others stay.
        part = {**counts, group: after - 1 - least}
        part[first] = part.get(first, 0) + least
        part[second] = part.get(second, 0) + count - (after - 1)
        yield from _cases(Fields(child, "case"), part, blankets, depth + 1)


def binomial_below(trials: int, chance: Fraction, edge: int) -> int:
    """An upper bound of P(N < edge), N binomial, in units of 2**-BITS.

    From edge - 1 downwards the ratio of successive terms falls; once it is below 1, a geometric sum
    bounds the rest.
    """
    require(trials >= 0, "binomial", "a number of trials is negative")
    require(0 <= chance <= 1, "binomial", "a chance is no probability")
    if edge <= 0 or (chance == 1 and edge <= trials):
        return 0
    if edge > trials or chance in (0, 1):
        return WHOLE
    k = edge - 1
    hit = chance.numerator
    miss = chance.denominator - hit
    log: Ball = log_binomial(trials, k)
    log += k * ball(chance).log() + (trials - k) * ball(1 - chance).log()
    term = ceil_scaled(log.exp(), BITS + _GUARD)
    total = term
    while k > 0 and (term >> (_GUARD // 2) or k * miss >= (trials - k + 1) * hit):
        tick()
        term = ceil_div(term * k * miss, (trials - k + 1) * hit)
        total += term
        k -= 1
    up = k * miss
    down = (trials - k + 1) * hit
    return min(WHOLE, ceil_div(total + ceil_div(term * up, down - up), 1 << _GUARD))


@final
@dataclass(frozen=True)
class _Part:
    """A component with the group that it belongs to, and in how many draws it may come."""

    group: int
    draws: int
    chance: Fraction
    shape: Measure


def _steps(node: Fields, parts: list[_Part], weight: int, noise: Measure) -> Steps:
    """(Weight, noise) of every box of counts and of the part without noise; they hold `weight`."""
    tick()
    if node.has("corners"):
        corners = node.lists("corners")
        node.done()
        yield from _ladder(corners, parts, weight, noise)
        return
    edges = node.integers("edges")
    children = node.items("children")
    node.done()
    require(0 < len(parts) <= MAX_DEPTH, "boxes", "nothing to divide, or too much")
    require(edges[:1] == [0], "boxes", "the counts are not from 0 on")
    require(len(edges) == len(children), "boxes", "not one part per edge")
    divided, *others = parts
    require(divided.chance < 1, "boxes", "a component that is drawn for sure is not divided")
    for low, after, child in zip(edges, [*edges[1:], divided.draws + 1], children, strict=True):
        require(low < after, "boxes", "a part is empty")
        below = binomial_below(divided.draws, divided.chance, after)
        above = binomial_below(divided.draws, 1 - divided.chance, divided.draws + 1 - low)
        share = below + above - WHOLE
        remaining: list[_Part] = []
        for part in others:
            if part.group == divided.group:
                # The other components come in the draws that are left, by chances given that.
                chance = part.chance / (1 - divided.chance)
                part = _Part(part.group, part.draws + 1 - after, chance, part.shape)
            remaining.append(part)
        box = divided.shape.power(low) * noise
        yield from _steps(
            Fields(child, "box"),
            remaining,
            ceil_div(weight * share, WHOLE),
            box,
        )


def _ladder(corners: list[list[int]], parts: list[_Part], weight: int, noise: Measure) -> Steps:
    """What every corner adds to the noise, from the last, then the weight of what misses all."""
    require(
        {len(corner) for corner in corners} == {len(parts)}, "ladder", "a corner has too few counts"
    )
    missed = [WHOLE]
    for corner in corners:
        tick()
        chance = 0
        for part, edge in zip(parts, corner, strict=True):
            chance += binomial_below(part.draws, part.chance, edge)
        missed.append(min(missed[-1], chance))
    yield ceil_div(weight * missed[-1], WHOLE), Measure(polynomial([]), 0)
    shapes = [part.shape for part in parts]
    before = [0] * len(parts)
    for position in range(len(corners) - 1, -1, -1):
        draws: list[int] = []
        for edge, reached in zip(corners[position], before, strict=True):
            require(edge >= reached, "ladder", "corners do not fall")
            draws.append(edge - reached)
        added_noise = product_of_powers(shapes, draws)
        noise = added_noise * noise
        before = corners[position]
        yield (
            ceil_div(weight * (missed[position] - missed[position + 1]), WHOLE),
            noise,
        )


def _noises(release: ExactRelease, proof: Fields, table: Table, cut: int) -> Iterator[Steps]:
    """The noise that others are certain to add, in every case of their data."""
    entries = proof.items("blankets", 1000)
    blankets = [_read_blanket(Fields(entry, "blanket"), table, cut) for entry in entries]
    others = proof.integer("others", 0, release.clients - 1 - release.corrupted)
    everyone = frozenset(range(len(table.rows)))
    require(
        len(blankets) > 0 and blankets[0].rows == everyone,
        "cases",
        "the first group is not all rows",
    )
    for counts, leaf in _cases(proof.fields("cases"), {0: others}, blankets, 0):
        parts: list[_Part] = []
        for group, count in sorted(counts.items()):
            draws = count // blankets[group].block
            if draws > 0:
                components = blankets[group].components
                parts += [_Part(group, draws, each.chance, each.shape) for each in components]
        yield _steps(leaf, parts, WHOLE, SILENCE)


def check_sum(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) of secure sums; coordinates and rounds are composed as losses."""
    target = Target.read(claim, "secure_sum", "dp")
    release = target.release
    require(
        release.sampling != "poisson", "sum", "nothing is proved here about secret participation"
    )
    cut = read_tail(proof)
    table = summed_table(release, tables)
    cases = ((table, steps) for steps in _noises(release, proof, table, cut))
    check_cases(target, proof, cut, cases)
