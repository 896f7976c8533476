"""All inputs that the other clients may have, covered by finitely many cases (docs/proofs/sums.md,
"Cover").

A blanket of all rows keeps only what every row has. If it is known how many of the other clients
have a row of one group, they add that group's blanket, which is more; a client whose row is known
adds all of its randomness. A case states how many clients, at least, have a row of each group of a
tree. Its bound is Theorem S' with each group's own blanket. The cases together hold every data set,
so the worst of them bounds the worst data set.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import combinations, pairwise
from itertools import count as numbers
from typing import final

import numpy as np

from mezzotint.core.types import TOTAL, FloatArray, IntArray
from mezzotint.privacy.sums.blanket import (
    Blanket,
    Component,
    NoiseMixture,
    additive_blanket,
    as_probabilities,
    mixture,
    no_noise,
    pair_profile,
    pairs_by_gap,
    screen,
    variance_blanket,
)
from mezzotint.privacy.sums.convolution import monotone_corners, sum_pmf

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
        return () if self.blanket is None else self.blanket.components

    @property
    def variance(self) -> float:
        """Variance that a client in the group is sure to add, squared lattice steps."""
        return 0.0 if self.blanket is None else self.blanket.variance

    def all_groups(self) -> list[RowGroup]:
        """This group and all below it, parents first."""
        found: list[RowGroup] = [self]
        for part in self.parts:
            found += part.all_groups()
        return found


def find_groups(rows: IntArray) -> RowGroup | None:
    """A binary tree over a table's distinct rows, grouped by a heuristic; None when they are too
    many, or one."""
    if not 2 <= rows.shape[0] <= MAX_ROWS or rows.shape[1] > _MAX_LEVELS:
        return None
    return _tree(rows.shape, np.ascontiguousarray(rows).tobytes())


@lru_cache(maxsize=32)
def _tree(shape: tuple[int, int], raw: bytes) -> RowGroup:
    rows = np.frombuffer(raw, dtype=np.int64).reshape(shape)
    groups = (
        RowGroup(members=(k,), blanket=additive_blanket(rows[k : k + 1]), parts=())
        for k in range(len(rows))
    )
    left: list[RowGroup] = [*groups]

    @cache
    def joined(first: RowGroup, second: RowGroup) -> RowGroup:
        members = tuple(sorted(first.members + second.members))
        return RowGroup(
            members=members, blanket=variance_blanket(rows[list(members)]), parts=(first, second)
        )

    def kept(group: RowGroup) -> float:
        """Share of the parts' variance that is left when it is not known in which of them a client
        is."""
        return group.variance / max(min(part.variance for part in group.parts), 1e-300)

    while len(left) > 1:
        best = max((joined(*pair) for pair in combinations(left, 2)), key=kept)
        others: list[RowGroup] = [group for group in left if group not in best.parts]
        left = [*others, best]
    return left[0]


_STEPS = 10
"""Cells of a case: how many clients of each group drew what."""

_PARTS = 4
"""Cases that a case is divided into."""

_BATCH = 8
"""Cases whose noise is computed at a time."""

_NEAR = 1.003
"""Cases are divided no more when the worst of them is this near to a data set's own epsilon."""

_CASES = 150
"""Most cases that are computed."""

_WORK = 2.5e5
"""Cases times window that a search may cost, about."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Cover:
    """Cases that hold all data sets of the other clients, and the epsilon that serves them all.

    Arguments:
        epsilon: worst over all pairs of rows, at the delta they were divided for.
        groups: of rows, parents first.
        cases: (cases, groups) clients known to have a row of each group (and not counted in a group
            below it); the worst case first.
        own: the epsilon of each case that was computed, by its bytes, divided ones too; of the two
            rows furthest apart.
    """

    epsilon: float
    groups: tuple[RowGroup, ...]
    cases: IntArray
    own: dict[bytes, float]

    def noises(self, tail: float) -> Iterator[NoiseMixture]:
        """The noise of every case; `tail` is mass that may be cut off each (it counts as
        disclosure)."""
        for first in range(0, len(self.cases), _BATCH):
            yield from case_noises(self.groups, self.cases[first : first + _BATCH], tail)


def case_noises(groups: Sequence[RowGroup], cases: IntArray, tail: float) -> list[NoiseMixture]:
    """The noise that clients sorted into groups are sure to add, case by case; each may cut off a
    mass of `tail`."""
    used: list[int] = np.flatnonzero(cases.any(axis=0)).tolist()
    drawn = [(component, i) for i in used for component in groups[i].components]
    if not drawn:
        return [no_noise()] * len(cases)
    clients = cases[:, [i for _, i in drawn]]
    masses = np.array([component.mass / TOTAL for component, _ in drawn])
    variances = np.array([component.variance for component, _ in drawn])
    ladders = [
        monotone_corners(row, masses, variances, steps=_STEPS, tail=tail / 2) for row in clients
    ]
    counts = np.concatenate([ladder.counts for ladder in ladders])
    sums = sum_pmf([component.pmf for component, _ in drawn], counts, tail=1e-3 * tail)
    found: list[NoiseMixture] = []
    first = 0
    for ladder in ladders:
        part = slice(first, first + ladder.probability.size)
        found.append(mixture(ladder, sums, part))
        first = part.stop
    return found


def division(
    groups: Sequence[RowGroup], case: IntArray
) -> tuple[int, tuple[int, int], list[int], list[IntArray]]:
    """How a case is divided: the group, its two parts, the cuts of how many are in the first, and
    the cases.

    The group is the one whose uncertainty costs most variance. No cases when there is none: a
    single data set.
    """
    place = {id(group): i for i, group in enumerate(groups)}
    lost = [min(part.variance for part in g.parts) - g.variance if g.parts else 0.0 for g in groups]
    worth = case * np.array(lost)
    node = int(worth.argmax())
    clients = int(case[node])
    if worth[node] <= 0:
        return node, (node, node), [], []
    left, right = (place[id(part)] for part in groups[node].parts)
    cuts: list[int] = np.unique(
        np.linspace(0, clients + 1, _PARTS + 1).round().astype(int)
    ).tolist()
    found: list[IntArray] = []
    for low, above in pairwise(cuts):
        # From `low` to above - 1 of them are in the left part.
        part = case.copy()
        part[node] = above - 1 - low
        part[left] += low
        part[right] += clients - (above - 1)
        found.append(part)
    return node, (left, right), cuts, found


@final
@dataclass(kw_only=True)
class _Search:
    """Best first: the case with the largest epsilon is divided until it is near a data set's
    own."""

    rows: FloatArray
    groups: tuple[RowGroup, ...]
    delta: float
    limit: float

    def __post_init__(self) -> None:
        self._pairs = pairs_by_gap(self.rows)[:2]
        self.own: dict[bytes, float] = {}

    def epsilons(self, cases: Sequence[IntArray]) -> list[float]:
        """The bounds of some cases for the two rows furthest apart."""
        noises = case_noises(self.groups, np.array(cases), 1e-4 * self.delta)
        found = [
            min(
                self.limit,
                max(
                    pair_profile(noise, self.rows[i], self.rows[j]).epsilon(self.delta)
                    for i, j in self._pairs
                ),
            )
            for noise in noises
        ]
        self.own |= {case.tobytes(): epsilon for case, epsilon in zip(cases, found, strict=True)}
        return found

    def run(self, others: int, known: float) -> tuple[float, list[IntArray]] | None:
        """The worst epsilon and the cases; None when a data set shows that `known` is as good as it
        gets."""
        singles = [i for i, group in enumerate(self.groups) if not group.parts]
        pure = [np.where(np.arange(len(self.groups)) == i, others, 0) for i in singles]
        start = np.where(np.arange(len(self.groups)) == 0, others, 0)
        whole, *single = self.epsilons([start, *pure])
        enough = _NEAR * max(single)
        if enough >= known:
            return None
        ticket = numbers()
        heap = [(-whole, next(ticket), start)]
        widest = max(group.variance for group in self.groups)
        width = 15 * math.sqrt(max(others * widest, 1.0))
        left = int(min(_CASES, max(24, _WORK / width)))
        while -heap[0][0] > enough and left > 0:
            worst = heap[0]
            parts = division(self.groups, worst[2])[3]
            if not parts:
                break
            heapq.heappop(heap)
            for part, epsilon in zip(parts, self.epsilons(parts), strict=True):
                # A part holds fewer data sets than the whole, so the whole's bound holds for it
                # too.
                heapq.heappush(heap, (max(-epsilon, worst[0]), next(ticket), part))
            left -= len(parts)
        return -heap[0][0], [case for _, _, case in heap]


def cover(
    rows: IntArray, *, others: int, delta: float, limit: float, known: float = math.inf
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
    searched = search.run(others, known)
    if searched is None:
        return None
    epsilon, cases = searched
    found = Cover(epsilon=epsilon, groups=groups, cases=np.array(cases), own=search.own)
    if len(table) == 2:
        return found
    for noise in found.noises(1e-4 * delta):
        if epsilon >= min(limit, known):
            break
        above = screen(noise, table, epsilon)
        for i, j in np.argwhere(above > delta).tolist():
            epsilon = max(epsilon, pair_profile(noise, table[i], table[j]).epsilon(delta))
    return replace(found, epsilon=min(epsilon, limit))
