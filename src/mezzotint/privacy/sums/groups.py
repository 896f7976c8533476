"""Rows that are sure to add much noise together: a tree of groups, each with a blanket of its own.

A blanket of all rows keeps only what every row has. If it is known how many of the other clients have a row of one
group, they add that group's blanket, which is more; a client whose row is known adds all of its randomness.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import final

import numpy as np

from mezzotint.core.mechanism import IntArray
from mezzotint.privacy.sums.blanket import Blanket, Component, additive_blanket
from mezzotint.privacy.sums.search import variance_blanket

MAX_ROWS = 8
"""Tables with more different rows have too many ways to sort clients into groups."""

_MAX_LEVELS = 16
"""Largest span plus 1 for which groups are sought: every pair of groups costs two linear programs."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Some rows of a table and the noise that a client with one of them is sure to add.

    Arguments:
        members: row indices, increasing.
        blanket: fits these rows; None when they share nothing.
        parts: the two groups that make it up; empty for a single row.
    """

    members: tuple[int, ...]
    blanket: Blanket | None
    parts: tuple[Group, ...]

    @property
    def components(self) -> tuple[Component, ...]:
        """The blanket's components; none when there is no blanket."""
        return () if self.blanket is None else self.blanket.components

    @property
    def variance(self) -> float:
        """Variance that a client in the group is sure to add, squared lattice steps."""
        return 0.0 if self.blanket is None else self.blanket.variance

    def all_groups(self) -> list[Group]:
        """This group and all below it, parents first."""
        found: list[Group] = [self]
        for part in self.parts:
            found += part.all_groups()
        return found


def find_groups(rows: IntArray) -> Group | None:
    """A binary tree over the rows of a table that has few of them; None when it has too many, or one.

    Arguments:
        rows: (rows, span + 1) integers that sum to 2**32, distinct.

    Guarantees: every group's blanket fits its rows in exact integers. Which rows stand together is a heuristic.
    """
    if not 2 <= rows.shape[0] <= MAX_ROWS or rows.shape[1] > _MAX_LEVELS:
        return None
    return _tree(rows.shape, np.ascontiguousarray(rows).tobytes())


@lru_cache(maxsize=32)
def _tree(shape: tuple[int, int], raw: bytes) -> Group:
    rows = np.frombuffer(raw, dtype=np.int64).reshape(shape)
    left: list[Group] = [_single(rows, k) for k in range(rows.shape[0])]
    known: dict[tuple[int, ...], Group] = {}
    while len(left) > 1:
        joined = [_joined(rows, first, second, known) for first, second in combinations(left, 2)]
        best = max(joined, key=_kept)
        others: list[Group] = [group for group in left if group not in best.parts]
        left = [*others, best]
    return left[0]


def _single(rows: IntArray, k: int) -> Group:
    return Group(members=(k,), blanket=additive_blanket(rows[k : k + 1]), parts=())


def _kept(group: Group) -> float:
    """Share of the parts' variance that is left when it is not known in which of them a client is."""
    return group.variance / max(min(part.variance for part in group.parts), 1e-300)


def _joined(rows: IntArray, first: Group, second: Group, known: dict[tuple[int, ...], Group]) -> Group:
    members = tuple(sorted(first.members + second.members))
    if members not in known:
        known[members] = Group(members=members, blanket=variance_blanket(rows[list(members)]), parts=(first, second))
    return known[members]
