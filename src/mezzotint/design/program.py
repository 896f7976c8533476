"""The design of a table as a convex program in conic form.

Inputs and levels are in units of half the range, centred, so that the solver sees numbers near 1 whatever the data.

Constraints beyond pure epsilon: (epsilon, delta), metric privacy, Renyi divergence, and the worst-case error.

Clarabel behind one door, and lower bounds that do not trust it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import clarabel as untyped
import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from mezzotint.core.errors import MezzotintError
from mezzotint.core.loss import FloatArray, IndexArray


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ConeBlock:
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
    blocks: tuple[ConeBlock, ...]
    groups: IndexArray
    caps: FloatArray
    ratio: int = -1


def sparse_rows(
    shape: tuple[int, int], *terms: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
) -> sparse.csc_matrix:
    """A sparse matrix from (rows, columns, values) triples; equal places add up."""
    rows, columns, values = (
        np.concatenate([np.ravel(np.broadcast_to(np.asarray(term[j]), np.shape(term[0]))) for term in terms])
        for j in range(3)
    )
    return sparse.csc_matrix((values.astype(np.float64), (rows, columns)), shape=shape)


def mass_block(entries: IndexArray, size: int) -> ConeBlock:
    """sum_i P[k, i] = 1."""
    matrix = sparse_rows((len(entries), size), (np.arange(entries.size) // entries.shape[1], entries.ravel(), 1.0))
    return ConeBlock(matrix=matrix, rhs=np.ones(len(entries)), cone="zero")


def price_of_means(program: Program, dual: FloatArray, levels: FloatArray) -> float:
    """By how much the program's value can fall per unit (centred) by which all means may miss their aims."""
    mean, start = program.blocks[1], program.blocks[0].rhs.size
    return float(np.abs(dual[start : start + mean.rhs.size]).sum()) / max(1.0, float(np.abs(levels).max()))


def mean_blocks(
    entries: IndexArray, size: int, levels: FloatArray, aims: FloatArray, max_bias: float
) -> list[ConeBlock]:
    """sum_i P[k, i] B_i = aim_k, or within max_bias of it, or nothing at all."""
    if math.isinf(max_bias):
        return []
    scale = max(1.0, float(np.abs(levels).max()))
    row = np.arange(entries.size) // levels.size
    matrix = sparse_rows((aims.size, size), (row, entries.ravel(), np.tile(levels / scale, aims.size)))
    aim = aims / scale
    if max_bias == 0:
        return [ConeBlock(matrix=matrix, rhs=aim, cone="zero")]
    budget = max_bias / scale
    stacked = sparse.vstack([matrix, -matrix], format="csc")
    return [ConeBlock(matrix=stacked, rhs=np.concatenate([aim + budget, budget - aim]), cone="nonnegative")]


class ProgramPart(ABC):
    """Constraints with variables of their own, added to mass and means."""

    @abstractmethod
    def caps(self, columns: int) -> list[tuple[int, float]]:
        """Per group of own variables: how many they are, and what they sum to at most."""

    @abstractmethod
    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[ConeBlock]:
        """The constraints; own variables start at `offset`, the program has `size`."""


@final
@dataclass(frozen=True, kw_only=True)
class RatioPart(ProgramPart):
    """g_i e**(-epsilon/2) <= P[k, i] <= g_i e**(epsilon/2), with one own variable g_i per level."""

    epsilon: float

    def caps(self, columns: int) -> list[tuple[int, float]]:
        # g_i <= e**(epsilon/2) min_k P[k, i], and the minima sum to at most 1.
        return [(columns, math.exp(self.epsilon / 2))]

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[ConeBlock]:
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
        return [ConeBlock(matrix=matrix, rhs=np.zeros(2 * count), cone="nonnegative")]


def assemble(
    *,
    aims: FloatArray,
    levels: FloatArray,
    costs: FloatArray,
    parts: Sequence[ProgramPart],
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
        blocks.append(ConeBlock(matrix=matrix, rhs=np.zeros(index.size), cone="nonnegative"))
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


def stack(blocks: tuple[ConeBlock, ...]) -> tuple[Any, FloatArray]:
    """All rows of the blocks as one matrix and right-hand side."""
    return (
        sparse.vstack([block.matrix for block in blocks], format="csc"),
        np.concatenate([block.rhs for block in blocks]),
    )


def _differences(
    entries: IndexArray, pairs: IndexArray, size: int, ratios: npt.ArrayLike, *less: FloatArray, spare: float = 0.0
) -> ConeBlock:
    """P[a, i] + spare - ratio (P[b, i] - spare) - less <= 0 for each pair (a, b) of rows and each column i."""
    first, second = (entries[side].ravel() for side in pairs.T)
    row = np.arange(first.size)
    factors = np.repeat(np.broadcast_to(ratios, len(pairs)), entries.shape[1])
    own = [(row, variables, -1.0) for variables in less]
    matrix = sparse_rows((row.size, size), (row, first, 1.0), (row, second, -factors), *own)
    return ConeBlock(matrix=matrix, rhs=-spare * (1 + factors), cone="nonnegative")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DeltaPart(ProgramPart):
    """sum_i max(P[a, i] - e**epsilon P[b, i], 0) <= delta for each pair (a, b) of rows."""

    pairs: IndexArray
    epsilon: float
    delta: float

    def caps(self, columns: int) -> list[tuple[int, float]]:
        return [(columns, self.delta)] * len(self.pairs)

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[ConeBlock]:
        count, columns = len(self.pairs), entries.shape[1]
        own = offset + np.arange(count * columns)
        positive = sparse_rows((own.size, size), (np.arange(own.size), own, -1.0))
        total = sparse_rows((count, size), (np.repeat(np.arange(count), columns), own, 1.0))
        return [
            _differences(entries, self.pairs, size, math.exp(self.epsilon), own),
            ConeBlock(matrix=positive, rhs=np.zeros(own.size), cone="nonnegative"),
            ConeBlock(matrix=total, rhs=np.full(count, self.delta), cone="nonnegative"),
        ]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PairRatioPart(ProgramPart):
    """P[a, i] <= ratio * P[b, i] for each pair of rows, each with its own ratio (metric privacy).

    Arguments:
        spare: it holds even where each probability is off by so much.
    """

    pairs: IndexArray
    ratios: FloatArray
    spare: float = 0.0

    def caps(self, columns: int) -> list[tuple[int, float]]:
        return []

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[ConeBlock]:
        return [_differences(entries, self.pairs, size, self.ratios, spare=self.spare)]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RenyiPart(ProgramPart):
    """sum_i P[a, i]**alpha P[b, i]**(1 - alpha) <= e**((alpha - 1) epsilon) for each pair (a, b) of rows.

    Arguments:
        spare: it holds even where each probability is off by so much.
    """

    pairs: IndexArray
    alpha: float
    epsilon: float
    spare: float = 0.0

    def caps(self, columns: int) -> list[tuple[int, float]]:
        return [(columns, 1.0)] * len(self.pairs)

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[ConeBlock]:
        # With own variables y_i = term_i / e**((alpha-1) epsilon) the terms are the power cones
        # y_i**(1/alpha) P[b,i]**(1-1/alpha) >= P[a,i] e**(-(1-1/alpha) epsilon), and sum_i y_i <= 1.
        count, columns = len(self.pairs), entries.shape[1]
        own = offset + np.arange(count * columns)
        row = 3 * np.arange(count * columns)
        shrink = math.exp(-(1 - 1 / self.alpha) * self.epsilon)
        cones = sparse_rows(
            (3 * count * columns, size),
            (row, own, -1.0),
            (row + 1, entries[self.pairs[:, 1]].ravel(), -1.0),
            (row + 2, entries[self.pairs[:, 0]].ravel(), -shrink),
        )
        total = sparse_rows((count, size), (np.repeat(np.arange(count), columns), own, 1.0))
        off = self.spare * np.array([0.0, -1.0, shrink])
        return [
            ConeBlock(matrix=total, rhs=np.ones(count), cone="nonnegative"),
            ConeBlock(matrix=cones, rhs=np.tile(off, count * columns), cone="power", power=1 / self.alpha),
        ]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class WorstErrorPart(ProgramPart):
    """E(report - x)^2 <= z at every knot and at points between each two; z / `unit` is the only own variable."""

    aims: FloatArray
    levels: FloatArray
    between: tuple[float, ...] = (0.25, 0.5, 0.75)

    @property
    def unit(self) -> float:
        """The largest error there is: in its units a solver sees numbers near 1 however far the levels."""
        return float((np.abs(self.levels).max() + 1) ** 2)

    def caps(self, columns: int) -> list[tuple[int, float]]:
        return [(1, 1.0)]

    def blocks(self, entries: IndexArray, size: int, offset: int) -> list[ConeBlock]:
        columns = self.levels.size
        terms, count = [], 0
        for t in (0.0, *self.between):
            left, right = np.arange(self.aims.size - 1), np.arange(1, self.aims.size)
            if t == 0:
                left = right = np.arange(self.aims.size)
            error = (self.levels - ((1 - t) * self.aims[left] + t * self.aims[right])[:, None]) ** 2 / self.unit
            row = count + np.repeat(np.arange(left.size), columns)
            terms.append((row, entries[left].ravel(), (1 - t) * error.ravel()))
            terms.append((row, entries[right].ravel(), t * error.ravel()))
            count += left.size
        matrix = sparse_rows((count, size), *terms, (np.arange(count), np.full(count, offset), -1.0))
        return [ConeBlock(matrix=matrix, rhs=np.zeros(count), cone="nonnegative")]


clarabel: Any = untyped  # the extension module carries no type information


class SolverError(MezzotintError, RuntimeError):
    """The numerical solver gave no usable answer to a problem that has one; the message holds its status."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """What the solver returned, as a table.

    Arguments:
        rows: (R, m) probabilities, clipped at 0 and normalised.
        floors: (m,) per level, the variable of its `RatioPart`; zeros without one.
        value: objective at the solver's point.
        dual: (constraints,) the solver's multipliers, in the order of the blocks.
    """

    rows: FloatArray
    floors: FloatArray
    value: float
    dual: FloatArray
    iterations: int


def _cones(blocks: tuple[ConeBlock, ...]) -> list[object]:
    cones: list[object] = []
    for block in blocks:
        if block.cone == "zero":
            cones.append(clarabel.ZeroConeT(block.rhs.size))
        elif block.cone == "nonnegative":
            cones.append(clarabel.NonnegativeConeT(block.rhs.size))
        else:
            cones.extend(clarabel.PowerConeT(block.power) for _ in range(block.rhs.size // 3))
    return cones


_TOLERANCE = 1e-10
_FOLDED = 8
"""Levels from which on half a program is worth the work of folding it."""

ATTEMPTS = ((1.0, 0.99), (1.0, 0.7), (1.0, 0.5), (1.0, 0.25), (1e2, 0.99), (1e4, 0.99))
"""Factor of the tolerance and longest step, as a fraction of the way to the cones' boundary, one attempt after another.

Power cones stall the solver when a step ends too near their boundary: shorter steps do not. A tolerance that the
conditioning does not allow stalls it too, and a looser one does not; what is lost shows in the gap.
"""


def _settings(tolerance: float, step: float) -> object:
    settings = clarabel.DefaultSettings()
    settings.max_step_fraction = step
    settings.verbose, settings.max_iter = False, 1000
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.tol_infeas_abs = settings.tol_infeas_rel = 1e-14  # feasibility is settled: nothing is called infeasible
    return settings


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Fold:
    """One half of a program that is its own mirror image: the mean of an optimum and its mirror image is one, too.

    Arguments:
        spread: (variables, kept variables) 0 and 1: what all variables are.
        kept, twins: (kept constraints,) those of the half, and their mirror images.
        signs: (kept constraints,) -1 where the mirror image is the negative.
    """

    spread: Any
    kept: IndexArray
    twins: IndexArray
    signs: FloatArray

    def blocks(self, blocks: tuple[ConeBlock, ...]) -> tuple[ConeBlock, ...]:
        """The constraints of the half."""
        ends = np.cumsum([block.rhs.size for block in blocks])
        parts = np.split(self.kept, np.searchsorted(self.kept, ends[:-1]))
        found: list[ConeBlock] = []
        for block, part, end in zip(blocks, parts, ends, strict=True):
            rows = part - (end - block.rhs.size)
            found.append(replace(block, matrix=(block.matrix @ self.spread)[rows], rhs=block.rhs[rows]))
        return tuple(found)

    def multipliers(self, dual: FloatArray, count: int) -> FloatArray:
        """(count,) of all constraints: a kept one and its mirror image have half of it each."""
        found = np.zeros(count)
        np.add.at(found, self.kept, dual / 2)
        np.add.at(found, self.twins, self.signs * dual / 2)
        return found


def _folded(program: Program) -> _Fold | None:
    """How a program of mass, exact means and ratios folds; None for others, small ones, and such without a mirror."""
    entries, blocks = program.entries, program.blocks
    *exact, ratios = blocks
    if program.ratio != len(exact) or any(block.cone != "zero" for block in exact) or entries.shape[1] < _FOLDED:
        return None
    floors = np.arange(entries.size, program.objective.size)
    image = np.concatenate([entries[::-1, ::-1].ravel(), floors[::-1]])
    sizes = [*(block.rhs.size for block in exact), *[ratios.rhs.size // 2] * 2]
    twins = np.concatenate([end - 1 - np.arange(size) for end, size in zip(np.cumsum(sizes), sizes, strict=True)])
    signs = np.repeat([1.0, *[-1.0] * (len(exact) - 1), 1.0, 1.0], sizes)  # means change their sign
    matrix, rhs = stack(blocks)
    mirrored = sparse.diags_array(signs) @ matrix[twins][:, image]
    if (
        not np.allclose(program.objective, program.objective[image], rtol=_TOLERANCE, atol=0.0)
        or not np.allclose(rhs, signs * rhs[twins], rtol=0.0, atol=_TOLERANCE)
        or abs(matrix - mirrored).max() > _TOLERANCE
    ):
        return None
    index, rows = np.arange(image.size), np.arange(rhs.size)
    _, places = np.unique(np.minimum(index, image), return_inverse=True)
    kept = rows[(rows < twins) | ((rows == twins) & (signs > 0))]  # what is its own negative is 0 on mirrored tables
    spread = sparse_rows((image.size, int(places.max()) + 1), (index, places, 1.0))
    return _Fold(spread=spread, kept=kept, twins=twins[kept], signs=signs[kept])


def solve(program: Program) -> Solution:
    """Solves the program.

    Raises:
        SolverError: the solver ended without an approximate solution. Feasibility is settled before (`reach`), so
            this is never read as "infeasible".
    """
    scale = float(np.abs(program.objective).max()) or 1.0
    fold, objective, blocks = _folded(program), program.objective / scale, program.blocks
    if fold is not None:
        objective, blocks = fold.spread.T @ objective, fold.blocks(blocks)
    matrix, rhs = stack(blocks)
    status, iterations = "", 0
    for factor, step in ATTEMPTS:
        answer = clarabel.DefaultSolver(
            sparse.csc_matrix((objective.size, objective.size)),
            objective,
            matrix,
            rhs,
            _cones(blocks),
            _settings(_TOLERANCE * factor, step),
        ).solve()
        point, status, iterations = np.array(answer.x), str(answer.status), iterations + int(answer.iterations)
        point = point if fold is None else fold.spread @ point
        # "InsufficientProgress" and the like still end at a point: it is used if it is nearly a table, since whoever
        # asked measures its loss and its bound anew.
        rows = np.maximum(point[program.entries], 0.0)
        sums = rows.sum(axis=1, keepdims=True)
        if "Infeasible" not in status and np.isfinite(point).all() and (np.abs(sums - 1) <= 1e-6).all():
            break
    else:
        remedy = "use fewer knots or levels, or another epsilon"
        raise SolverError(f"no table was found: the solver ended with status {status}; {remedy}")
    dual, floors = np.array(answer.z) * scale, np.zeros(rows.shape[1])
    if fold is not None:
        dual = fold.multipliers(dual, sum(block.rhs.size for block in program.blocks))
    if program.ratio >= 0:
        floors = np.maximum(point[rows.size : rows.size + floors.size], 0.0)
    return Solution(
        rows=rows / sums,
        floors=floors,
        value=float(answer.obj_val) * scale,
        dual=dual,
        iterations=iterations,
    )


def _project(block: ConeBlock, dual: FloatArray) -> FloatArray:
    """A nearby point of the block's dual cone."""
    if block.cone == "zero":
        return dual
    if block.cone == "nonnegative":
        return np.maximum(dual, 0.0)
    # Dual of {|z| <= x**a y**(1-a)}: {|w| <= (u/a)**a (v/(1-a))**(1-a), u, v >= 0}. Shrinking w enters it.
    triples = dual.reshape(-1, 3).copy()
    triples[:, :2] = np.maximum(triples[:, :2], 0.0)
    a = block.power
    reach = (triples[:, 0] / a) ** a * (triples[:, 1] / (1 - a)) ** (1 - a) * (1 - 1e-14)
    triples[:, 2] = np.clip(triples[:, 2], -reach, reach)
    return triples.ravel()


def _polish(program: Program, block: ConeBlock, dual: FloatArray) -> FloatArray:
    """Multipliers of a ratio block whose floor variables have no negative residual."""
    # Per level i the residual of g_i is e**(-epsilon/2) sum(alpha) - e**(epsilon/2) sum(beta). At large epsilon an
    # error of 1e-10 in beta would cost e**(epsilon/2) times that: shrinking beta to the right sum costs only 1e-10.
    offset, count = program.entries.size, dual.size // 2
    floors = block.matrix[:, offset : offset + program.entries.shape[1]].tocsr()
    low, high = floors[:count].T @ dual[:count], -(floors[count:].T @ dual[count:])
    factor = np.where(high > low, low / np.maximum(high, 1e-300) * (1 - 1e-15), 1.0)
    # Each of these rows has one floor variable.
    return np.concatenate([dual[:count], dual[count:] * factor[floors[count:].indices]])


def safe_bound(program: Program, dual: FloatArray) -> float:
    """A lower bound of the program's value from any dual point, however inexact.

    For every feasible x and every z in the dual cone, with residual r = objective + A'z,
        objective @ x = r @ x - z @ (b - s) >= -z @ b + sum over groups of cap * min(0, min r),
    since x >= 0 and the variables of a group sum to at most its cap. Float errors of r and of the sums are bounded
    by a multiple of the unit roundoff and subtracted.

    Guarantees: never above the optimal value of `program` (its coefficients as stored).
    Source: Neumaier and Shcherbina, Safe bounds in linear and mixed-integer linear programming, 2004.
    """
    parts = np.split(dual, np.cumsum([block.rhs.size for block in program.blocks])[:-1])
    parts = [_project(block, part) for block, part in zip(program.blocks, parts, strict=True)]
    if program.ratio >= 0:
        parts[program.ratio] = _polish(program, program.blocks[program.ratio], parts[program.ratio])
    point = np.concatenate(parts)
    matrix, rhs = stack(program.blocks)
    residual = program.objective + matrix.T @ point
    terms = int(np.diff(matrix.indptr).max()) + 4
    unit = np.finfo(np.float64).eps
    error = terms * unit * (np.abs(program.objective) + np.abs(matrix).T @ np.abs(point))
    lowest = np.zeros(program.caps.size)
    np.minimum.at(lowest, program.groups, residual - error)
    summands = [*(-point * rhs).tolist(), *(program.caps * lowest).tolist()]
    # Each product carries one rounding; fsum adds them exactly.
    return math.fsum(summands) - 2 * unit * math.fsum(map(abs, summands))
