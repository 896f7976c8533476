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
    for weights in places:
        require_memory(2 * (len(shape) + len(weights)), 2 * MAX_INTEGER.bit_length())
    masses = {sum(weights) for weights in places}
    require(len(masses) == 1, "blanket", "rows give a component unequal masses")
    return shape, places


def _read_blanket(fields: Fields, table: Table, cut: int) -> _Blanket:
    """The blanket, once it fits under every combination of the rows of its group."""
    members = fields.integers("rows")
    block = fields.integer("block", 1, 16)
    require(
        len(members) > 0 and max(members) < len(table.rows), "blanket", "a group has no such rows"
    )
    require(
        comb(len(members) + block - 1, block) <= MAX_COMBINATIONS,
        "size",
        "a block has too many combinations of rows",
    )
    combinations = list(combinations_with_replacement(members, block))
    served: list[_Placed] = []
    for document in fields.items("components", 64):
        component = Fields(document, "component")
        served.append(_read_component(component, len(combinations)))
    fields.done()
    for position, combination in enumerate(combinations):
        tick()
        taken = [(shape, places[position]) for shape, places in served]
        _require_fit([table.rows[row] for row in combination], taken)
    components: list[_Component] = []
    for shape, places in served:
        total = sum(shape)
        masses = [WHOLE * weight // total for weight in shape]
        chance = Fraction(sum(places[0]), TOTAL)
        components.append(_Component(chance, Measure(polynomial(masses), 0, cut)))
    return _Blanket(frozenset(members), block, components)


def _require_fit(rows: list[Sequence[int]], served: list[tuple[list[int], list[int]]]) -> None:
    """sum of shape * places <= the convolution of the rows, entry by entry, in integers."""
    remaining = rational_polynomial([TOTAL])
    for row in rows:
        tick()
        remaining = remaining * polynomial(list(row)) / TOTAL
    for shape, places in served:
        tick()
        component = rational_polynomial(shape) * polynomial(places) / sum(shape)
        remaining = remaining - component
    fits = all(weight >= 0 for weight in remaining.coeffs())
    require(fits, "blanket", "a row holds less than its blanket takes")


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
    last_group = len(blankets) - 1
    divided = node.integer("group", 0, last_group)
    first_group = node.integer("first", 0, last_group)
    second_group = node.integer("second", 0, last_group)
    cuts = node.integers("cuts")
    children = node.items("children")
    node.done()
    covered = blankets[first_group].rows | blankets[second_group].rows
    require(
        blankets[divided].rows <= covered, "cases", "a row of the divided group is in neither part"
    )
    clients = counts.get(divided, 0)
    end = clients + 1
    require(len(cuts) == len(children) + 1 and cuts[0] == 0, "cases", "the parts do not begin at 0")
    require(
        cuts[-1] == end,
        "cases",
        "the parts do not hold all counts",
        cuts[-1],
        end,
    )
    for (fewest, beyond), child in zip(pairwise(cuts), children, strict=True):
        require(fewest < beyond, "cases", "a part is empty")
        # From `fewest` to `highest` clients of the group have rows of the first part: so many at
        # least have rows of the first, and of the second; the others stay.
        highest = beyond - 1
        divided_counts = {**counts, divided: highest - fewest}
        divided_counts[first_group] = divided_counts.get(first_group, 0) + fewest
        divided_counts[second_group] = divided_counts.get(second_group, 0) + clients - highest
        yield from _cases(Fields(child, "case"), divided_counts, blankets, depth + 1)


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
    count = edge - 1
    success = chance.numerator
    failure = chance.denominator - success
    log_term: Ball = log_binomial(trials, count)
    log_term += count * ball(chance).log()
    log_term += (trials - count) * ball(1 - chance).log()
    term = ceil_scaled(log_term.exp(), BITS + _GUARD)
    total = term
    # The term of count - 1 is the one of count times numerator / denominator.
    numerator = count * failure
    denominator = (trials - count + 1) * success
    while count > 0 and (term >> (_GUARD // 2) or numerator >= denominator):
        tick()
        term = ceil_div(term * numerator, denominator)
        total += term
        count -= 1
        numerator = count * failure
        denominator = (trials - count + 1) * success
    remainder = ceil_div(term * numerator, denominator - numerator)
    return min(WHOLE, ceil_div(total + remainder, 1 << _GUARD))


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
    draws = divided.draws
    require(divided.chance < 1, "boxes", "a component that is drawn for sure is not divided")
    beyond_edges = [*edges[1:], draws + 1]
    for fewest, beyond, child in zip(edges, beyond_edges, children, strict=True):
        require(fewest < beyond, "boxes", "a part is empty")
        not_beyond = binomial_below(draws, divided.chance, beyond)
        not_below = binomial_below(draws, 1 - divided.chance, draws + 1 - fewest)
        box_chance = not_beyond + not_below - WHOLE
        remaining: list[_Part] = []
        for other in others:
            if other.group == divided.group:
                # The other components come in the draws that are left, by chances given that.
                chance = other.chance / (1 - divided.chance)
                fewer_draws = other.draws + 1 - beyond
                remaining.append(_Part(other.group, fewer_draws, chance, other.shape))
            else:
                remaining.append(other)
        box_weight = ceil_div(weight * box_chance, WHOLE)
        box_noise = divided.shape.power(fewest) * noise
        yield from _steps(Fields(child, "box"), remaining, box_weight, box_noise)


def _ladder(corners: list[list[int]], parts: list[_Part], weight: int, noise: Measure) -> Steps:
    """What every corner adds to the noise, from the last, then the weight of what misses all."""
    lengths = {len(corner) for corner in corners}
    require(lengths == {len(parts)}, "ladder", "a corner has too few counts")
    # The chance to miss the corner, at most: U(z - 1) at position z.
    missing_chances = [WHOLE]
    for corner in corners:
        tick()
        missing_chance = 0
        for component, required in zip(parts, corner, strict=True):
            missing_chance += binomial_below(component.draws, component.chance, required)
        missing_chances.append(min(missing_chances[-1], missing_chance))
    yield ceil_div(weight * missing_chances[-1], WHOLE), Measure(polynomial([]), 0)
    shapes = [part.shape for part in parts]
    reached = [0] * len(parts)
    for position in reversed(range(len(corners))):
        draws: list[int] = []
        for required, present in zip(corners[position], reached, strict=True):
            require(required >= present, "ladder", "corners do not fall")
            draws.append(required - present)
        noise = product_of_powers(shapes, draws) * noise
        reached = corners[position]
        corner_chance = missing_chances[position] - missing_chances[position + 1]
        yield ceil_div(weight * corner_chance, WHOLE), noise


def _noises(release: ExactRelease, proof: Fields, table: Table, cut: int) -> Iterator[Steps]:
    """The noise that others are certain to add, in every case of their data."""
    documents = proof.items("blankets", 1000)
    blankets = [_read_blanket(Fields(document, "blanket"), table, cut) for document in documents]
    honest_others = proof.integer("others", 0, release.clients - 1 - release.corrupted)
    all_rows = frozenset(range(len(table.rows)))
    require(
        len(blankets) > 0 and blankets[0].rows == all_rows,
        "cases",
        "the first group is not all rows",
    )
    for counts, leaf in _cases(proof.fields("cases"), {0: honest_others}, blankets, 0):
        parts: list[_Part] = []
        for group, clients in sorted(counts.items()):
            blanket = blankets[group]
            draws = clients // blanket.block
            if draws <= 0:
                continue
            for component in blanket.components:
                parts.append(_Part(group, draws, component.chance, component.shape))
        yield _steps(leaf, parts, WHOLE, SILENCE)


def check_sum(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) of secure sums; coordinates and rounds are composed as losses."""
    target = Target.read(claim, "secure_sum", "dp")
    release = target.release
    visible = release.sampling != "poisson"
    require(visible, "sum", "nothing is proved here about secret participation")
    cut = read_tail(proof)
    table = summed_table(release, tables)
    cases = ((table, steps) for steps in _noises(release, proof, table, cut))
    check_cases(target, proof, cut, cases)
