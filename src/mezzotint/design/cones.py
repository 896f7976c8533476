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
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.types import FloatArray, IndexArray

Term = tuple[IndexArray, IndexArray, FloatArray | float]
"""Rows, columns and values (or the only value) of a matrix; equal positions add up."""


class Entries(NamedTuple):
    """Rows, columns and values of all terms, one after another, and for each entry its position in
    its term read backwards.
    """

    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    backwards: IndexArray


class Reserved(NamedTuple):
    """A group of variables of a part: how many they are, and what they sum to at most."""

    count: int
    cap: float


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
        width = 3 if self.cone == "power" else 1
        rows = np.arange(self.rhs.size).reshape(-1, width)
        first = rows[: self.split][::-1]
        second = rows[self.split :][::-1]
        return np.concatenate([first, second]).ravel()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """minimise objective @ x subject to the blocks; every variable is >= 0, and `entries` (R, m)
    are the table's.

    The table's come first, then each part's in turn. The largest error, where that is minimised, is
    the last, and alone has a cost.

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
        terms: list[Entries] = []
        first_row = 0
        entry_count = 0
        for block in self.blocks:
            for rows, columns, values in block.terms:
                backwards = np.arange(entry_count + rows.size - 1, entry_count - 1, -1)
                all_values = np.broadcast_to(np.asarray(values, dtype=np.float64), rows.shape)
                terms.append(
                    Entries(
                        rows=rows + first_row,
                        columns=columns,
                        values=all_values,
                        backwards=backwards,
                    )
                )
                entry_count += rows.size
            first_row += block.rhs.size
        entries = Entries(
            rows=np.concatenate([term.rows for term in terms]),
            columns=np.concatenate([term.columns for term in terms]),
            values=np.concatenate([term.values for term in terms]),
            backwards=np.concatenate([term.backwards for term in terms]),
        )
        return entries, np.concatenate([block.rhs for block in self.blocks])

    @property
    def ratio(self) -> int:
        """The index of the block of a `ratio_part` (its multipliers can be polished), -1 for
        none.
        """
        for index, block in enumerate(self.blocks):
            if block.cone == "ratio":
                return index
        return -1


Constraints = tuple[list[Reserved], list[ConeBlock]]
"""The groups of a part's variables, and its constraints."""

ProgramPart = Callable[[IndexArray, int], Constraints]
"""Makes constraints on the entries of a table, with variables of its own from a number on."""


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
    entries = np.arange(costs.size).reshape(costs.shape)
    entry_index = entries.ravel()
    entry_row = entry_index // levels.size
    variable_count = costs.size
    # Each row's entries sum to 1.
    groups = [Reserved(levels.size, 1.0)] * target_means.size
    part_blocks: list[ConeBlock] = []
    for constraint_part in parts:
        reserved, blocks = constraint_part(entries, variable_count)
        groups += reserved
        variable_count += sum(group.count for group in reserved)
        part_blocks += blocks
    blocks = [
        ConeBlock(
            terms=((entry_row, entry_index, 1.0),),
            rhs=np.ones(target_means.size),
            cone="zero",
        )
    ]
    if max_bias < math.inf:
        blocks.append(_mean_block(entries, target_means, levels, max_bias))
    if not any(block.cone == "ratio" for block in part_blocks):
        blocks.append(
            ConeBlock(
                terms=((entry_index, entry_index, -1.0),),
                rhs=np.zeros(entry_index.size),
            )
        )
    blocks += part_blocks
    objective = np.zeros(variable_count)
    if worst:
        objective[-1] = worst
    else:
        objective[: costs.size] = costs.ravel()
    counts = [group.count for group in groups]
    return Program(
        entries=entries,
        objective=objective,
        blocks=tuple(blocks),
        groups=np.repeat(np.arange(len(groups)), counts),
        caps=np.array([group.cap for group in groups]),
    )


def _mean_block(
    entries: IndexArray,
    target_means: FloatArray,
    levels: FloatArray,
    max_bias: float,
) -> ConeBlock:
    """Means equal to their targets, or within `max_bias` of them."""
    level_scale = max(1.0, float(np.abs(levels).max()))
    targets = target_means / level_scale
    entry_index = entries.ravel()
    entry_row = entry_index // levels.size
    entry_values = np.tile(levels / level_scale, target_means.size)
    if max_bias == 0:
        return ConeBlock(
            terms=((entry_row, entry_index, entry_values),),
            rhs=targets,
            cone="zero",
        )
    bias_budget = max_bias / level_scale
    rows = np.concatenate([entry_row, entry_row + target_means.size])
    both_values = np.concatenate([entry_values, -entry_values])
    term = (rows, np.tile(entry_index, 2), both_values)
    return ConeBlock(
        terms=(term,),
        rhs=np.concatenate([targets + bias_budget, bias_budget - targets]),
    )


def ratio_part(
    entries: IndexArray,
    first: int,
    *,
    epsilon: float,
) -> Constraints:
    """g_i e**(-epsilon/2) <= P[k, i] <= g_i e**(epsilon/2), with one variable g_i per level."""
    # g is the geometric middle between floor and ceiling: at large epsilon the floor itself would
    # be lost in the solver's tolerance. All pairs of rows obey epsilon iff such a g exists, and all
    # inputs do by T2.
    half_ratio = math.exp(epsilon / 2)
    entry_count = entries.size
    columns = entries.shape[1]
    entry_index = np.arange(entry_count)
    floors = first + entry_index % columns
    lower = (entry_index, entries.ravel(), -1.0), (entry_index, floors, 1 / half_ratio)
    upper = (
        (entry_count + entry_index, entries.ravel(), 1.0),
        (entry_count + entry_index, floors, -half_ratio),
    )
    block = ConeBlock(
        terms=(*lower, *upper),
        rhs=np.zeros(2 * entry_count),
        cone="ratio",
        split=entry_count,
    )
    # g_i <= e**(epsilon/2) min_k P[k, i], and the minima sum to at most 1.
    return [Reserved(columns, half_ratio)], [block]


def _differences(
    entries: IndexArray,
    pairs: IndexArray,
    ratios: npt.ArrayLike,
    *,
    excess: IndexArray | None = None,
    spare: float = 0.0,
) -> ConeBlock:
    """P[a, i] + spare - ratio (P[b, i] - spare) - excess <= 0 for each pair (a, b) of rows and each
    column i; `excess` are variables.
    """
    first = entries[pairs[:, 0]].ravel()
    second = entries[pairs[:, 1]].ravel()
    row = np.arange(first.size)
    factors = np.repeat(np.broadcast_to(ratios, len(pairs)), entries.shape[1])
    terms: list[Term] = [(row, first, 1.0), (row, second, -factors)]
    if excess is not None:
        terms.append((row, excess, -1.0))
    return ConeBlock(terms=tuple(terms), rhs=-spare * (1 + factors))


def _sums(variables: IndexArray, most: FloatArray) -> ConeBlock:
    """Equally many consecutive variables for each pair sum to at most so much."""
    row = np.repeat(np.arange(most.size), variables.size // most.size)
    return ConeBlock(terms=((row, variables, 1.0),), rhs=most)


def delta_part(
    entries: IndexArray,
    first: int,
    *,
    pairs: IndexArray,
    epsilon: float,
    delta: float,
) -> Constraints:
    """sum_i max(P[a, i] - e**epsilon P[b, i], 0) <= delta for each pair (a, b) of rows."""
    pair_count = len(pairs)
    columns = entries.shape[1]
    variable_index = np.arange(pair_count * columns)
    excess = first + variable_index
    nonnegative = ConeBlock(
        terms=((variable_index, excess, -1.0),),
        rhs=np.zeros(variable_index.size),
    )
    differences = _differences(entries, pairs, math.exp(epsilon), excess=excess)
    sums = _sums(excess, np.full(pair_count, delta))
    return [Reserved(columns, delta)] * pair_count, [differences, nonnegative, sums]


def pair_ratio_part(
    entries: IndexArray,
    first: int,
    *,
    pairs: IndexArray,
    ratios: FloatArray,
    spare: float = 0.0,
) -> Constraints:
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
) -> Constraints:
    """sum_i P[a, i]**alpha P[b, i]**(1 - alpha) <= e**((alpha - 1) epsilon) for each pair (a, b) of
    rows.

    It holds even where each probability is off by `spare`.
    """
    # With variables y_i = term_i / e**((alpha-1) epsilon) the terms are the power cones
    # y_i**(1/alpha) P[b,i]**(1-1/alpha) >= P[a,i] e**(-(1-1/alpha) epsilon), and sum_i y_i <= 1.
    pair_count = len(pairs)
    columns = entries.shape[1]
    variable_index = np.arange(pair_count * columns)
    shares = first + variable_index
    cone_row = 3 * variable_index
    shrinkage = math.exp(-(1 - 1 / alpha) * epsilon)
    first_entries = entries[pairs[:, 0]].ravel()
    second_entries = entries[pairs[:, 1]].ravel()
    terms = (
        (cone_row, shares, -1.0),
        (cone_row + 1, second_entries, -1.0),
        (cone_row + 2, first_entries, -shrinkage),
    )
    cone_offsets = spare * np.array([0.0, -1.0, shrinkage])
    offsets = np.tile(cone_offsets, variable_index.size)
    cones = ConeBlock(
        terms=terms,
        rhs=offsets,
        cone="power",
        power=1 / alpha,
    )
    sums = _sums(shares, np.ones(pair_count))
    return [Reserved(columns, 1.0)] * pair_count, [sums, cones]


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
) -> Constraints:
    """E(report - x)^2 <= z at all knots and at points between two; z / `largest_error` is the only
    variable.
    """
    knots = np.arange(target_means.size)
    columns = levels.size

    def errors(inputs: FloatArray) -> FloatArray:
        return (levels - inputs[:, None]) ** 2 / largest_error(levels)

    at_knots = np.repeat(knots, columns)
    terms: list[Term] = [(at_knots, entries.ravel(), errors(target_means).ravel())]
    row_count = knots.size
    inner_rows: list[IndexArray] = []
    inner_entries: list[IndexArray] = []
    inner_values: list[FloatArray] = []
    for position in between:
        inputs = (1 - position) * target_means[:-1] + position * target_means[1:]
        inner_errors = errors(inputs).ravel()
        inner_row = row_count + np.repeat(knots[:-1], columns)
        inner_rows += [inner_row, inner_row]
        inner_entries += [entries[:-1].ravel(), entries[1:].ravel()]
        inner_values += [(1 - position) * inner_errors, position * inner_errors]
        row_count += knots.size - 1
    if between:
        inner_term = (
            np.concatenate(inner_rows),
            np.concatenate(inner_entries),
            np.concatenate(inner_values),
        )
        terms.append(inner_term)
    for rows in (knots, np.arange(knots.size, row_count)):
        terms.append((rows, np.full(rows.size, first), -1.0))
    block = ConeBlock(
        terms=tuple(terms),
        rhs=np.zeros(row_count),
        split=knots.size,
    )
    return [Reserved(1, 1.0)], [block]
