"""All inputs that the other clients may have, covered by finitely many cases.

A blanket of all rows keeps only what every row has. If it is known how many of the other clients
have a row of one group, they add that group's blanket, which is more; a client whose row is known
adds all of its randomness. A case states how many clients, at least, have a row of each group of a
tree. Its bound is Theorem S' with each group's own blanket. The cases together hold every data set,
so the worst of them bounds the worst data set (docs/proofs/sums.md, "Cover").
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import combinations, count, pairwise
from typing import final

import numpy as np

from mezzotint.core.types import TOTAL, FloatArray, IntArray
from mezzotint.privacy.sums.blanket import Blanket, Component, additive_blanket, as_probabilities
from mezzotint.privacy.sums.candidates import variance_blanket
from mezzotint.privacy.sums.convolution import sum_pmf
from mezzotint.privacy.sums.counts import CountBounds, monotone_corners
from mezzotint.privacy.sums.noise import (
    NoiseMixture,
    mixture,
    no_noise,
    pair_profile,
    screen,
    widest_epsilon,
)

MAX_ROWS = 8
"""Tables with more different rows have too many ways to sort clients into groups."""

_MAX_LEVELS = 16
"""Largest span plus 1 for which groups are sought: every pair of groups costs two linear
programs."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RowGroup:
    """Some rows of a table and the noise that a client with one of them is sure to add.

    `members` are their indices, increasing. The blanket fits these rows in exact integers; None
    when they share nothing. `parts` are the two groups that make it up; none of a single row.
    """

    members: tuple[int, ...]
    blanket: Blanket | None
    parts: tuple[RowGroup, ...]

    @property
    def components(self) -> tuple[Component, ...]:
        """The blanket's components; none when there is no blanket."""
        if self.blanket is None:
            return ()
        return self.blanket.components

    @property
    def variance(self) -> float:
        """Variance that a client in the group is sure to add, squared lattice steps."""
        if self.blanket is None:
            return 0.0
        return self.blanket.variance

    @property
    def least_variance(self) -> float:
        """The least variance that a client adds whose row of the group is known."""
        if not self.parts:
            return self.variance
        return min(subgroup.least_variance for subgroup in self.parts)

    def all_groups(self) -> list[RowGroup]:
        """This group and all below it, parents first."""
        groups: list[RowGroup] = [self]
        for subgroup in self.parts:
            groups += subgroup.all_groups()
        return groups


def find_groups(rows: IntArray) -> RowGroup | None:
    """A binary tree over a table's distinct rows, grouped by a heuristic.

    None when they are too many, or one.
    """
    row_count, level_count = rows.shape
    if not 2 <= row_count <= MAX_ROWS or level_count > _MAX_LEVELS:
        return None
    return _tree(rows.shape, rows.tobytes())


@lru_cache(maxsize=32)
def _tree(shape: tuple[int, int], raw: bytes) -> RowGroup:
    """The tree of rows as bytes, which can be cached: the two groups whose common blanket keeps the
    largest share of variance are joined, until one is left.
    """
    rows = np.frombuffer(raw, dtype=np.int64).reshape(shape)
    groups: list[RowGroup] = []
    for index, row in enumerate(rows):
        blanket = additive_blanket(row[None])
        group = RowGroup(members=(index,), blanket=blanket, parts=())
        groups.append(group)

    @cache
    def joined(first: RowGroup, second: RowGroup) -> RowGroup:
        members = sorted(first.members + second.members)
        blanket = variance_blanket(rows[members])
        return RowGroup(members=tuple(members), blanket=blanket, parts=(first, second))

    while len(groups) > 1:
        candidates = [joined(first, second) for first, second in combinations(groups, 2)]
        parent = max(candidates, key=_variance_share)
        groups = [group for group in groups if group not in parent.parts]
        groups.append(parent)
    return groups[0]


def _variance_share(group: RowGroup) -> float:
    """Share that a group keeps of the variance which its rows have at least."""
    return group.variance / max(group.least_variance, 1e-300)


_LADDER_STEPS = 10
"""Cells of a case: how many clients of each group drew what."""

_DIVISIONS = 4
"""Cases that a case is divided into."""

_BATCH = 8
"""Cases whose noise is computed at a time."""

_NEAR_OPTIMAL = 1.003
"""Cases are divided no more when the worst of them is this near to a data set's own epsilon."""

_MOST_CASES = 180
_LEAST_CASES = 48
"""Cases that are computed, at most and at least."""

_WORK = 2.5e5
"""Cases times window that a search may cost, about."""

_CUT_SHARE = 1e-4
"""Share of delta that the noise of a case may cut off."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Cover:
    """Cases that hold all data sets of the other clients, and the epsilon that serves them all.

    Arguments:
        epsilon: worst over all pairs of rows, at the delta they were divided for.
        groups: of rows, parents first.
        cases: (cases, groups) clients known to have a row of each group (and not counted in a group
            below it); the worst case first.
        epsilons: of each case that was computed, by its bytes, divided ones too; of the two rows
            furthest apart.
    """

    epsilon: float
    groups: tuple[RowGroup, ...]
    cases: IntArray
    epsilons: dict[bytes, float]

    def noises(self, tail: float) -> Iterator[NoiseMixture]:
        """The noise of every case; `tail` is mass that may be cut off each (it counts as
        disclosure)."""
        for first in range(0, len(self.cases), _BATCH):
            batch = self.cases[first : first + _BATCH]
            yield from case_noises(self.groups, batch, tail)


def group_components(
    groups: Sequence[RowGroup],
    indices: Sequence[int],
) -> tuple[list[Component], list[int]]:
    """Components of the blankets of some groups, and the index of each one's group."""
    components: list[Component] = []
    owners: list[int] = []
    for index in indices:
        group = groups[index]
        components += group.components
        owners += [index] * len(group.components)
    return components, owners


def case_ladder(
    components: Sequence[Component],
    clients: IntArray,
    *,
    steps: int,
    tail: float,
) -> CountBounds:
    """Counts of draws of each component, of which so many clients may have one."""
    masses = np.array([component.mass / TOTAL for component in components])
    variances = np.array([component.variance for component in components])
    return monotone_corners(clients, masses, variances, steps=steps, tail=tail)


def case_noises(
    groups: Sequence[RowGroup],
    cases: IntArray,
    tail: float,
) -> list[NoiseMixture]:
    """The noise that clients sorted into groups are sure to add, case by case.

    Each may cut off a mass of `tail`.
    """
    is_used = cases.any(axis=0)
    used_groups: list[int] = np.flatnonzero(is_used).tolist()
    components, owners = group_components(groups, used_groups)
    if not components:
        return [no_noise()] * len(cases)
    ladders = [
        case_ladder(components, clients, steps=_LADDER_STEPS, tail=tail / 2)
        for clients in cases[:, owners]
    ]
    counts = np.concatenate([ladder.counts for ladder in ladders])
    pmfs = [component.pmf for component in components]
    sums = sum_pmf(pmfs, counts, tail=1e-3 * tail)
    noises: list[NoiseMixture] = []
    first = 0
    for ladder in ladders:
        last = first + ladder.probability.size
        noises.append(mixture(ladder, sums, slice(first, last)))
        first = last
    return noises


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Division:
    """How a case is divided by the clients of one group.

    Arguments:
        node: index of the group.
        first, second: indices of its two parts.
        cuts: of how many of them are in the first part, increasing.
        cases: one for each interval between cuts; none of a single data set.
    """

    node: int
    first: int
    second: int
    cuts: list[int]
    cases: list[IntArray]


def division(groups: Sequence[RowGroup], case: IntArray) -> Division:
    """The division of a case by the group whose uncertainty costs most variance."""
    lost_variances = np.array([group.least_variance - group.variance for group in groups])
    costs = case * lost_variances
    node = int(costs.argmax())
    clients = int(case[node])
    if costs[node] <= 0:
        return Division(
            node=node,
            first=node,
            second=node,
            cuts=[],
            cases=[],
        )
    identities = [id(group) for group in groups]
    first, second = (identities.index(id(subgroup)) for subgroup in groups[node].parts)
    even_cuts = np.linspace(0, clients + 1, _DIVISIONS + 1)
    whole_cuts = even_cuts.round().astype(int)
    cuts: list[int] = np.unique(whole_cuts).tolist()
    cases: list[IntArray] = []
    for fewest, end in pairwise(cuts):
        # From `fewest` to `largest` of them are in the first part.
        largest = end - 1
        divided = case.copy()
        divided[node] = largest - fewest
        divided[first] += fewest
        divided[second] += clients - largest
        cases.append(divided)
    return Division(
        node=node,
        first=first,
        second=second,
        cuts=cuts,
        cases=cases,
    )


@final
@dataclass(kw_only=True)
class _Search:
    """Best first: the case with the largest epsilon is divided until it is near a data set's
    own."""

    rows: FloatArray
    groups: tuple[RowGroup, ...]
    delta: float
    limit: float
    epsilons: dict[bytes, float] = field(default_factory=dict[bytes, float])

    def computed(self, cases: Sequence[IntArray]) -> list[float]:
        """The bounds of some cases for the two rows furthest apart."""
        epsilons: list[float] = []
        noises = case_noises(self.groups, np.array(cases), _CUT_SHARE * self.delta)
        for case, noise in zip(cases, noises, strict=True):
            epsilon = min(self.limit, widest_epsilon(noise, self.rows, self.delta))
            self.epsilons[case.tobytes()] = epsilon
            epsilons.append(epsilon)
        return epsilons

    def _all_in(self, group: int, others: int) -> IntArray:
        """The case of all clients in one group."""
        case = np.zeros(len(self.groups), dtype=np.int64)
        case[group] = others
        return case

    def run(self, others: int, known: float) -> tuple[float, list[IntArray]] | None:
        """The worst epsilon and the cases.

        None when a data set shows that `known` is as good as it gets.
        """
        everyone = self._all_in(0, others)
        data_sets: list[IntArray] = []
        for index, group in enumerate(self.groups):
            if not group.parts:
                data_sets.append(self._all_in(index, others))
        epsilon, *single_epsilons = self.computed([everyone, *data_sets])
        near_optimal = _NEAR_OPTIMAL * max(single_epsilons)
        if near_optimal >= known:
            return None
        ticket = count()  # no two entries of the heap are equal
        heap = [(-epsilon, next(ticket), everyone)]
        remaining = self._affordable(others)
        while -heap[0][0] > near_optimal and remaining > 0:
            negative_worst, _, case = heap[0]
            smaller_cases = division(self.groups, case).cases
            if not smaller_cases:
                break
            heapq.heappop(heap)
            smaller_epsilons = self.computed(smaller_cases)
            for smaller_case, smaller_epsilon in zip(smaller_cases, smaller_epsilons, strict=True):
                # A part holds fewer data sets than the case, so the case's bound holds for it too.
                negative_bound = max(-smaller_epsilon, negative_worst)
                entry = (negative_bound, next(ticket), smaller_case)
                heapq.heappush(heap, entry)
            remaining -= len(smaller_cases)
        return -heap[0][0], [case for _, _, case in heap]

    def _affordable(self, others: int) -> int:
        """Cases that may be computed."""
        variance = max(group.variance for group in self.groups)
        total_variance = max(others * variance, 1.0)
        width = 15 * math.sqrt(total_variance)
        case_count = max(_LEAST_CASES, _WORK / width)
        return int(min(_MOST_CASES, case_count))


def cover(
    rows: IntArray,
    *,
    others: int,
    delta: float,
    limit: float,
    known: float = math.inf,
) -> Cover | None:
    """Cases for all inputs of `others` clients, divided until the worst is near the truth or work
    runs out.

    Arguments:
        rows: distinct.
        others: clients that add honest noise, >= 1.
        delta: > 0.
        limit: the pure epsilon of one report, or inf.
        known: an epsilon that holds already.

    Returns: None when the table has too many rows, or `known` cannot be bettered. Its epsilon is
        never below the exact worst case over all inputs of all clients.
    """
    root = find_groups(rows)
    if root is None:
        return None
    table = as_probabilities(rows)
    groups = tuple(root.all_groups())
    search = _Search(rows=table, groups=groups, delta=delta, limit=limit)
    worst = search.run(others, known)
    if worst is None:
        return None
    epsilon, cases = worst
    result = Cover(
        epsilon=epsilon,
        groups=groups,
        cases=np.array(cases),
        epsilons=search.epsilons,
    )
    if len(table) == 2:
        return result
    for noise in result.noises(_CUT_SHARE * delta):
        if epsilon >= min(limit, known):
            break
        divergences = screen(noise, table, epsilon)
        for first, second in np.argwhere(divergences > delta).tolist():
            profile = pair_profile(noise, table[first], table[second])
            epsilon = max(epsilon, profile.epsilon(delta))
    return replace(result, epsilon=min(epsilon, limit))
