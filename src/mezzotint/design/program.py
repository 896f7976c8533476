"""The design of a table as a convex program in conic form.

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
        entries: (R, m) which variable is which entry of the table.
        groups: (n,) group of each variable; the variables of group g sum to at most caps[g] at any optimum. They make
            a lower bound out of any dual point (`solver.safe_bound`).
        caps: (groups,) those sums.
        ratio: which block is a `ratio_block` (its multipliers can be polished), -1 for none.
    """

    entries: IndexArray
    objective: FloatArray
    blocks: tuple[Block, ...]
    groups: IndexArray
    caps: FloatArray
    ratio: int = -1


def sparse_rows(shape: tuple[int, int], *terms: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]) -> Any:
    """A sparse matrix from (rows, columns, values) triples; equal places add up."""
    rows, columns, values = (
        np.concatenate([np.ravel(np.broadcast_to(np.asarray(term[j]), np.shape(term[0]))) for term in terms])
        for j in range(3)
    )
    return sparse.csc_matrix((values.astype(np.float64), (rows, columns)), shape=shape)


def mass_block(entries: IndexArray, size: int) -> Block:
    """sum_i P[k, i] = 1."""
    matrix = sparse_rows((len(entries), size), (np.arange(entries.size) // entries.shape[1], entries.ravel(), 1.0))
    return Block(matrix=matrix, rhs=np.ones(len(entries)), cone="zero")


def price_of_means(program: Program, dual: FloatArray, levels: FloatArray) -> float:
    """By how much the program's value can fall per unit (centred) by which all means may miss their aims."""
    mean, start = program.blocks[1], program.blocks[0].rhs.size
    return float(np.abs(dual[start : start + mean.rhs.size]).sum()) / max(1.0, float(np.abs(levels).max()))


def mean_blocks(entries: IndexArray, size: int, levels: FloatArray, aims: FloatArray, max_bias: float) -> list[Block]:
    """sum_i P[k, i] B_i = aim_k, or within max_bias of it, or nothing at all."""
    if math.isinf(max_bias):
        return []
    scale = max(1.0, float(np.abs(levels).max()))
    row = np.arange(entries.size) // levels.size
    matrix = sparse_rows((aims.size, size), (row, entries.ravel(), np.tile(levels / scale, aims.size)))
    aim = aims / scale
    if max_bias == 0:
        return [Block(matrix=matrix, rhs=aim, cone="zero")]
    budget = max_bias / scale
    stacked = sparse.vstack([matrix, -matrix], format="csc")
    return [Block(matrix=stacked, rhs=np.concatenate([aim + budget, budget - aim]), cone="nonnegative")]


class Part(ABC):
    """Constraints with variables of their own, added to mass and means."""

    @abstractmethod
    def caps(self, columns: int) -> list[tuple[int, float]]:
        """Per group of own variables: how many they are, and what they sum to at most."""

    @abstractmethod
    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[Block]:
        """The constraints; own variables start at `offset`, the program has `size`."""


@final
@dataclass(frozen=True, kw_only=True)
class RatioPart(Part):
    """g_i e**(-epsilon/2) <= P[k, i] <= g_i e**(epsilon/2), with one own variable g_i per level."""

    epsilon: float

    def caps(self, columns: int) -> list[tuple[int, float]]:
        # g_i <= e**(epsilon/2) min_k P[k, i], and the minima sum to at most 1.
        return [(columns, math.exp(self.epsilon / 2))]

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[Block]:
        # g is the geometric middle between floor and ceiling: at large epsilon the floor itself would be lost in the
        # solver's tolerance. All pairs of rows obey epsilon iff such a g exists, and all inputs do by T2.
        root = math.exp(self.epsilon / 2)
        count, index = entries.size, np.arange(entries.size)
        floors = offset + index % entries.shape[1]
        matrix = sparse_rows(
            (2 * count, size),
            (index, entries.ravel(), -1.0),
            (index, floors, 1 / root),
            (count + index, entries.ravel(), 1.0),
            (count + index, floors, -root),
        )
        return [Block(matrix=matrix, rhs=np.zeros(2 * count), cone="nonnegative")]


def assemble(
    *,
    aims: FloatArray,
    levels: FloatArray,
    costs: FloatArray,
    parts: Sequence[Part],
    max_bias: float = 0.0,
    worst: float = 0.0,
) -> Program:
    """Mass, means and parts as one program.

    Arguments:
        aims: (R,) means that the rows must have, centred units.
        levels: (m,) increasing, centred units.
        costs: (R, m) objective coefficients of P.
        parts: the first is a `RatioPart` if there is one.
        max_bias: allowed distance between row mean and aim, centred units; inf drops the constraint.
        worst: price of the last part's only variable, to be minimised instead of the costs; 0 for the costs.
    """
    entries = np.arange(costs.size).reshape(costs.shape)
    offsets, size = list[int](), costs.size
    # Each row's entries sum to 1.
    caps, groups = [1.0] * aims.size, [np.arange(size) // levels.size]
    for part in parts:
        offsets.append(size)
        for count, cap in part.caps(levels.size):
            groups.append(np.full(count, len(caps), dtype=np.intp))
            caps.append(cap)
            size += count
    blocks = [mass_block(entries, size), *mean_blocks(entries, size, levels, aims, max_bias)]
    ratio = len(blocks) if parts and isinstance(parts[0], RatioPart) else -1
    if ratio < 0:
        index = entries.ravel()
        matrix = sparse_rows((index.size, size), (index, index, -1.0))
        blocks.append(Block(matrix=matrix, rhs=np.zeros(index.size), cone="nonnegative"))
    for part, offset in zip(parts, offsets, strict=True):
        blocks += part.blocks(entries, size, offset)
    target = np.zeros(size)
    if worst:
        target[-1] = worst
    else:
        target[: costs.size] = costs.ravel()
    return Program(
        entries=entries,
        objective=target,
        blocks=tuple(blocks),
        groups=np.concatenate(groups),
        caps=np.array(caps),
        ratio=ratio,
    )


def stack(blocks: tuple[Block, ...]) -> tuple[Any, FloatArray]:
    """All rows of the blocks as one matrix and right-hand side."""
    return (
        sparse.vstack([block.matrix for block in blocks], format="csc"),
        np.concatenate([block.rhs for block in blocks]),
    )
