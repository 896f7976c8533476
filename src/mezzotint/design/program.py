"""The design of a table as a convex program in conic form, symmetric problems on half of their rows.

Inputs and levels are in units of half the range, centred, so that the solver sees numbers near 1 whatever the data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from mezzotint.core.loss import FloatArray, IndexArray


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """Which variable of the program is which entry of the table.

    Arguments:
        entries: (R, m) variable index of P[k, i]; mirrored entries of a symmetric problem share one.
        floors: (m,) index, from 0, of the level's own variable (its floor); mirrored levels share one.
        rows: indices of the rows that carry constraints of their own; the others are their mirror images.
        centered: index of the row that is its own mirror image (its mean needs no constraint), or -1.
    """

    entries: IndexArray
    floors: IndexArray
    rows: IndexArray
    centered: int

    @property
    def entry_count(self) -> int:
        return int(self.entries.max()) + 1

    @property
    def floor_count(self) -> int:
        return int(self.floors.max()) + 1

    @property
    def is_symmetric(self) -> bool:
        return self.rows.size < self.entries.shape[0]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Rows A x + s = b with s in one cone: "zero", "nonnegative", or three-dimensional "power" cones."""

    matrix: Any
    rhs: FloatArray
    cone: str
    power: float = math.nan


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """minimise objective @ x subject to the blocks; every variable is >= 0.

    Arguments:
        groups: (n,) group of each variable; the variables of group g sum to at most caps[g] at any optimum. They make
            a lower bound out of any dual point (`solver.safe_bound`).
        caps: (groups,) those sums.
        ratio: which block is a `ratio_block` (its multipliers can be polished), -1 for none.
    """

    view: View
    objective: FloatArray
    blocks: tuple[Block, ...]
    groups: IndexArray
    caps: FloatArray
    ratio: int = -1


def plain_view(rows: int, columns: int) -> View:
    """Every entry its own variable."""
    return View(
        entries=np.arange(rows * columns).reshape(rows, columns),
        floors=np.arange(columns),
        rows=np.arange(rows),
        centered=-1,
    )


def mirrored_view(rows: int, columns: int) -> View:
    """P[R-1-k, m-1-i] = P[k, i]: half the variables."""
    # A convex symmetric problem has a symmetric optimum: the mean of any optimum and its mirror image.
    half = rows // 2
    mirror = np.arange(columns)[::-1]
    floors = np.minimum(np.arange(columns), mirror)
    entries = np.empty((rows, columns), dtype=np.intp)
    entries[:half] = np.arange(half * columns).reshape(half, columns)
    entries[rows - half :] = entries[:half][::-1, mirror]
    kept = np.arange(half)
    if rows % 2:
        entries[half] = half * columns + floors
        kept = np.arange(half + 1)
    return View(entries=entries, floors=floors, rows=kept, centered=half if rows % 2 else -1)


def is_symmetric(aims: FloatArray, levels: FloatArray, costs: FloatArray) -> bool:
    """Whether centred aims and levels and the costs map onto themselves under x -> -x."""
    scale = np.abs(costs).max()
    return bool(
        np.allclose(aims, -aims[::-1], rtol=0, atol=1e-12)
        and np.allclose(levels, -levels[::-1], rtol=1e-13, atol=1e-13)
        and np.allclose(costs, costs[::-1, ::-1], rtol=0, atol=1e-13 * scale)
    )


def sparse_rows(shape: tuple[int, int], *terms: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]) -> Any:
    """A sparse matrix from (rows, columns, values) triples; equal places add up."""
    rows, columns, values = (
        np.concatenate([np.ravel(np.broadcast_to(np.asarray(term[j]), np.shape(term[0]))) for term in terms])
        for j in range(3)
    )
    return sparse.csc_matrix((values.astype(np.float64), (rows, columns)), shape=shape)


def mass_block(view: View, size: int) -> Block:
    """sum_i P[k, i] = 1."""
    entries = view.entries[view.rows]
    row = np.broadcast_to(np.arange(entries.shape[0])[:, None], entries.shape)
    matrix = sparse_rows((entries.shape[0], size), (row, entries, 1.0))
    return Block(matrix=matrix, rhs=np.ones(entries.shape[0]), cone="zero")


def price_of_means(program: Program, dual: FloatArray, levels: FloatArray) -> float:
    """By how much the program's value can fall per unit (centred) by which all means may miss their aims."""
    mean, start = program.blocks[1], program.blocks[0].rhs.size
    scale = max(1.0, float(np.abs(levels).max()))
    # A kept row of a symmetric problem stands for itself and its mirror image.
    return 2 * float(np.abs(dual[start : start + mean.rhs.size]).sum()) / scale


def mean_blocks(view: View, size: int, levels: FloatArray, aims: FloatArray, max_bias: float) -> list[Block]:
    """sum_i P[k, i] B_i = aim_k, or within max_bias of it, or nothing at all."""
    if math.isinf(max_bias):
        return []
    kept = view.rows[view.rows != view.centered]
    entries = view.entries[kept]
    scale = max(1.0, float(np.abs(levels).max()))
    row = np.broadcast_to(np.arange(kept.size)[:, None], entries.shape)
    matrix = sparse_rows((kept.size, size), (row, entries, np.broadcast_to(levels / scale, entries.shape)))
    aim = aims[kept] / scale
    if max_bias == 0:
        return [Block(matrix=matrix, rhs=aim, cone="zero")]
    budget = max_bias / scale
    stacked = sparse.vstack([matrix, -matrix], format="csc")
    return [Block(matrix=stacked, rhs=np.concatenate([aim + budget, budget - aim]), cone="nonnegative")]


class Part(ABC):
    """Constraints with variables of their own, added to mass and means."""

    @abstractmethod
    def caps(self, view: View) -> list[tuple[int, float]]:
        """Per group of own variables: how many they are, and what they sum to at most."""

    @abstractmethod
    def blocks(self, view: View, size: int, offset: int) -> list[Block]:
        """The constraints; own variables start at `offset`, the program has `size`."""


@final
@dataclass(frozen=True, kw_only=True)
class RatioPart(Part):
    """g_i e**(-epsilon/2) <= P[k, i] <= g_i e**(epsilon/2), with one own variable g_i per level."""

    epsilon: float

    def caps(self, view: View) -> list[tuple[int, float]]:
        # g_i <= e**(epsilon/2) min_k P[k, i], and the minima sum to at most 1.
        return [(view.floor_count, math.exp(self.epsilon / 2))]

    def blocks(self, view: View, size: int, offset: int) -> list[Block]:
        # g is the geometric middle between floor and ceiling: at large epsilon the floor itself would be lost in the
        # solver's tolerance. All pairs of rows obey epsilon iff such a g exists, and all inputs do by T2.
        root = math.exp(self.epsilon / 2)
        entries = view.entries[view.rows].ravel()
        floors = offset + np.tile(view.floors, view.rows.size)
        pairs = np.unique(np.stack([entries, floors]), axis=1)
        count = pairs.shape[1]
        index = np.arange(count)
        matrix = sparse_rows(
            (2 * count, size),
            (index, pairs[0], -1.0),
            (index, pairs[1], 1 / root),
            (count + index, pairs[0], 1.0),
            (count + index, pairs[1], -root),
        )
        return [Block(matrix=matrix, rhs=np.zeros(2 * count), cone="nonnegative")]


def assemble(
    *,
    aims: FloatArray,
    levels: FloatArray,
    costs: FloatArray,
    parts: Sequence[Part],
    view: View | None = None,
    max_bias: float = 0.0,
    worst: bool = False,
) -> Program:
    """Mass, means and parts as one program.

    Arguments:
        aims: (R,) means that the rows must have, centred units.
        levels: (m,) increasing, centred units.
        costs: (R, m) objective coefficients of P.
        parts: the first is a `RatioPart` if there is one.
        view: None for half of the rows of a symmetric problem, all of them otherwise.
        max_bias: allowed distance between row mean and aim, centred units; inf drops the constraint.
        worst: minimise the last part's only variable instead of the costs.
    """
    view = view or view_of(aims, levels, costs)
    offsets, size = list[int](), view.entry_count
    # Each kept row's entries sum to 1.
    caps, groups = [1.0] * view.rows.size, [np.zeros(size, dtype=np.intp)]
    for group, row in enumerate(view.rows.tolist()):
        groups[0][view.entries[row]] = group
    for part in parts:
        offsets.append(size)
        for count, cap in part.caps(view):
            groups.append(np.full(count, len(caps), dtype=np.intp))
            caps.append(cap)
            size += count
    blocks = [mass_block(view, size), *mean_blocks(view, size, levels, aims, max_bias)]
    ratio = len(blocks) if parts and isinstance(parts[0], RatioPart) else -1
    if ratio < 0:
        index = np.arange(view.entry_count)
        matrix = sparse_rows((index.size, size), (index, index, -1.0))
        blocks.append(Block(matrix=matrix, rhs=np.zeros(index.size), cone="nonnegative"))
    for part, offset in zip(parts, offsets, strict=True):
        blocks += part.blocks(view, size, offset)
    target = np.bincount(view.entries.ravel(), weights=costs.ravel(), minlength=size).astype(np.float64)
    if worst:
        target = np.append(np.zeros(size - 1), 1.0)
    return Program(
        view=view,
        objective=target,
        blocks=tuple(blocks),
        groups=np.concatenate(groups),
        caps=np.array(caps),
        ratio=ratio,
    )


def view_of(aims: FloatArray, levels: FloatArray, costs: FloatArray) -> View:
    """Half of the rows for a symmetric problem, all of them otherwise."""
    view = mirrored_view if is_symmetric(aims, levels, costs) else plain_view
    return view(aims.size, levels.size)


def stack(blocks: tuple[Block, ...]) -> tuple[Any, FloatArray]:
    """All rows of the blocks as one matrix and right-hand side."""
    return (
        sparse.vstack([block.matrix for block in blocks], format="csc"),
        np.concatenate([block.rhs for block in blocks]),
    )
