"""A convex program in conic form: the table's entries, the blocks of its constraints, and their
cones.

Inputs and levels are in units of half the range, centred, so that the solver sees numbers near 1
whatever the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.types import FloatArray, IndexArray

Term = tuple[IndexArray, IndexArray, FloatArray | float]
"""Rows, columns and values (or the only value) of a matrix; equal places add up."""

Entries = tuple[IndexArray, IndexArray, FloatArray, IndexArray]
"""Rows, columns and values of all terms, one after another, and for each entry its place in its
term read backwards.
"""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ConeBlock:
    """Rows A x + s = b with s in a cone: "zero", "nonnegative" ("ratio" where `ratio_part` made
    it), or "power" cones.

    Power cones have three rows each. Where a program is its own mirror image, each term of A read
    backwards is its own, and so are the rows, but for those that come before the row `split`: they
    are on their own.
    """

    terms: tuple[Term, ...]
    rhs: FloatArray
    cone: str = "nonnegative"
    power: float = math.nan
    split: int = 0

    @property
    def twins(self) -> IndexArray:
        """The mirror image of each row."""
        rows = np.arange(self.rhs.size).reshape(-1, 3 if self.cone == "power" else 1)
        return np.concatenate([rows[: self.split][::-1], rows[self.split :][::-1]]).ravel()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """minimise objective @ x subject to the blocks; every variable is >= 0, and `entries` (R, m)
    are the table's.

    The variables of group g (`groups` has one for each) sum to at most caps[g] at any optimum: that
    makes a lower bound out of any dual point (`safe_bound`).
    """

    entries: IndexArray
    objective: FloatArray
    blocks: tuple[ConeBlock, ...]
    groups: IndexArray
    caps: FloatArray

    @cached_property
    def stacked(self) -> tuple[Entries, FloatArray]:
        """The entries of all blocks, one below another, and their right-hand sides."""
        found, first, size = list[Entries](), 0, 0
        for block in self.blocks:
            for rows, columns, values in block.terms:
                values = values if isinstance(values, np.ndarray) else np.full(rows.size, values)
                found.append(
                    (rows + first, columns, values, np.arange(size + rows.size - 1, size - 1, -1))
                )
                size += rows.size
            first += block.rhs.size
        rows, columns, values, backwards = (
            np.concatenate(parts) for parts in zip(*found, strict=True)
        )
        return (rows, columns, values, backwards), np.concatenate(
            [block.rhs for block in self.blocks]
        )

    @property
    def ratio(self) -> int:
        """The index of the block of a `ratio_part` (its multipliers can be polished), -1 for
        none.
        """
        return next((i for i, one in enumerate(self.blocks) if one.cone == "ratio"), -1)


Made = tuple[list[tuple[int, float]], list[ConeBlock]]
"""Per group of a part's own variables how many they are and what they sum to at most; and the
constraints.
"""

ProgramPart = Callable[[IndexArray, int], Made]
"""Makes constraints on the entries of a table, with own variables from a number on."""


def assemble(
    *,
    target_means: FloatArray,
    levels: FloatArray,
    costs: FloatArray,
    parts: Sequence[ProgramPart],
    max_bias: float = 0.0,
    worst: float = 0.0,
) -> Program:
    """Mass, means and parts as one program, in centred units.

    Arguments:
        target_means: (R,) means that the rows must have, up to `max_bias`; inf drops the
            constraint.
        costs: (R, m) objective coefficients of the table.
        worst: price of the last part's only variable, to be minimised instead of the costs; 0 for
            the costs.
    """
    entries, size = np.arange(costs.size).reshape(costs.shape), costs.size
    index, row = entries.ravel(), np.arange(size) // levels.size
    caps, added = (
        [(levels.size, 1.0)] * target_means.size,
        list[ConeBlock](),
    )  # each row's entries sum to 1
    for part in parts:
        own, made = part(entries, size)
        caps += own
        size += sum(count for count, _ in own)
        added += made
    if not any(one.cone == "ratio" for one in added):
        added.insert(0, ConeBlock(terms=((index, index, -1.0),), rhs=np.zeros(index.size)))
    blocks = [ConeBlock(terms=((row, index, 1.0),), rhs=np.ones(target_means.size), cone="zero")]
    if max_bias < math.inf:
        scale = max(1.0, float(np.abs(levels).max()))
        aim, budget, means = (
            target_means / scale,
            max_bias / scale,
            np.tile(levels / scale, target_means.size),
        )
        if max_bias == 0:
            blocks.append(ConeBlock(terms=((row, index, means),), rhs=aim, cone="zero"))
        else:
            rows, values = (
                np.concatenate([row, row + target_means.size]),
                np.concatenate([means, -means]),
            )
            both = (rows, np.tile(index, 2), values)
            blocks.append(
                ConeBlock(terms=(both,), rhs=np.concatenate([aim + budget, budget - aim]))
            )
    blocks += added
    target = np.append(
        costs.ravel() if worst == 0 else np.zeros(costs.size), np.zeros(size - costs.size)
    )
    if worst:
        target[-1] = worst
    counts, most = zip(*caps, strict=True)
    groups = np.repeat(np.arange(len(caps)), counts)
    return Program(
        entries=entries, objective=target, blocks=tuple(blocks), groups=groups, caps=np.array(most)
    )


def ratio_part(entries: IndexArray, first: int, *, epsilon: float) -> Made:
    """g_i e**(-epsilon/2) <= P[k, i] <= g_i e**(epsilon/2), with one own variable g_i per level."""
    # g is the geometric middle between floor and ceiling: at large epsilon the floor itself would
    # be lost in the solver's tolerance. All pairs of rows obey epsilon iff such a g exists, and all
    # inputs do by T2.
    root, count, columns = math.exp(epsilon / 2), entries.size, entries.shape[1]
    index, floors = np.arange(count), first + np.arange(count) % columns
    low = (index, entries.ravel(), -1.0), (index, floors, 1 / root)
    high = (count + index, entries.ravel(), 1.0), (count + index, floors, -root)
    # g_i <= e**(epsilon/2) min_k P[k, i], and the minima sum to at most 1.
    return [(columns, root)], [
        ConeBlock(terms=(*low, *high), rhs=np.zeros(2 * count), cone="ratio", split=count)
    ]


def _differences(
    entries: IndexArray,
    pairs: IndexArray,
    ratios: npt.ArrayLike,
    *own: IndexArray,
    spare: float = 0.0,
) -> ConeBlock:
    """P[a, i] + spare - ratio (P[b, i] - spare) - own <= 0 for each pair (a, b) of rows and each
    column i.
    """
    above, below = (entries[side].ravel() for side in pairs.T)
    row, factors = (
        np.arange(above.size),
        np.repeat(np.broadcast_to(ratios, len(pairs)), entries.shape[1]),
    )
    less = [(row, variables, -1.0) for variables in own]
    return ConeBlock(
        terms=((row, above, 1.0), (row, below, -factors), *less), rhs=-spare * (1 + factors)
    )


def _sums(own: IndexArray, most: FloatArray) -> ConeBlock:
    """Equally many consecutive own variables for each pair sum to at most so much."""
    return ConeBlock(
        terms=((np.repeat(np.arange(most.size), own.size // most.size), own, 1.0),), rhs=most
    )


def delta_part(
    entries: IndexArray, first: int, *, pairs: IndexArray, epsilon: float, delta: float
) -> Made:
    """sum_i max(P[a, i] - e**epsilon P[b, i], 0) <= delta for each pair (a, b) of rows."""
    count, columns = len(pairs), entries.shape[1]
    own = first + np.arange(count * columns)
    positive = ConeBlock(terms=((np.arange(own.size), own, -1.0),), rhs=np.zeros(own.size))
    less = _differences(entries, pairs, math.exp(epsilon), own)
    return [(columns, delta)] * count, [less, positive, _sums(own, np.full(count, delta))]


def pair_ratio_part(
    entries: IndexArray, first: int, *, pairs: IndexArray, ratios: FloatArray, spare: float = 0.0
) -> Made:
    """P[a, i] <= ratio * P[b, i] for each pair of rows, each with its own ratio (metric privacy).

    It holds even where each probability is off by `spare`.
    """
    return [], [_differences(entries, pairs, ratios, spare=spare)]


def renyi_part(
    entries: IndexArray,
    first: int,
    *,
    pairs: IndexArray,
    alpha: float,
    epsilon: float,
    spare: float = 0.0,
) -> Made:
    """sum_i P[a, i]**alpha P[b, i]**(1 - alpha) <= e**((alpha - 1) epsilon) for each pair (a, b) of
    rows.

    It holds even where each probability is off by `spare`.
    """
    # With own variables y_i = term_i / e**((alpha-1) epsilon) the terms are the power cones
    # y_i**(1/alpha) P[b,i]**(1-1/alpha) >= P[a,i] e**(-(1-1/alpha) epsilon), and sum_i y_i <= 1.
    count, columns = len(pairs), entries.shape[1]
    own, row = first + np.arange(count * columns), 3 * np.arange(count * columns)
    shrink = math.exp(-(1 - 1 / alpha) * epsilon)
    above, below = (entries[side].ravel() for side in pairs.T)
    terms = (row, own, -1.0), (row + 1, below, -1.0), (row + 2, above, -shrink)
    off = np.tile(spare * np.array([0.0, -1.0, shrink]), own.size)
    cones = ConeBlock(terms=terms, rhs=off, cone="power", power=1 / alpha)
    return [(columns, 1.0)] * count, [_sums(own, np.ones(count)), cones]


def largest_error(levels: FloatArray) -> float:
    """The largest squared error there is: in its units a solver sees numbers near 1 however far the
    levels.
    """
    return float((np.abs(levels).max() + 1) ** 2)


def worst_error_part(
    entries: IndexArray,
    first: int,
    *,
    target_means: FloatArray,
    levels: FloatArray,
    between: tuple[float, ...],
) -> Made:
    """E(report - x)^2 <= z at all knots and at points between two; z / `largest_error` is the only
    own variable.
    """
    knots, columns = np.arange(target_means.size), levels.size

    def errors(at: FloatArray) -> FloatArray:
        return (levels - at[:, None]) ** 2 / largest_error(levels)

    terms, count = (
        [(np.repeat(knots, columns), entries.ravel(), errors(target_means).ravel())],
        knots.size,
    )
    inside = list[Term]()
    for t in between:
        error = errors((1 - t) * target_means[:-1] + t * target_means[1:])
        row = count + np.repeat(knots[:-1], columns)
        inside += [
            (row, entries[:-1].ravel(), (1 - t) * error.ravel()),
            (row, entries[1:].ravel(), t * error.ravel()),
        ]
        count += knots.size - 1
    if inside:
        rows, places, values = (np.concatenate(parts) for parts in zip(*inside, strict=True))
        terms.append((rows, places, values))
    terms += [
        (rows, np.full(rows.size, first), -1.0) for rows in (knots, np.arange(knots.size, count))
    ]
    return [(1, 1.0)], [ConeBlock(terms=tuple(terms), rhs=np.zeros(count), split=knots.size)]
