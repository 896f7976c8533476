"""The solver of programs, and lower bounds that do not trust it. Only this file calls Clarabel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import clarabel as untyped
import numpy as np
import scipy.sparse as sparse

from mezzotint.core.errors import MezzotintError
from mezzotint.core.types import FloatArray, IndexArray
from mezzotint.design.cones import ConeBlock, Program

clarabel: Any = untyped  # the extension module carries no type information


class SolverError(MezzotintError, RuntimeError):
    """The numerical solver gave no usable answer to a problem that has one; the message holds its
    status.
    """


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """The solver's answer as a table, clipped at 0 and normalised, with the objective's value at
    the solver's point.

    `floors` are the variables of a `ratio_part`, zeros without one; `dual` its multipliers in the
    order of the blocks.
    """

    rows: FloatArray
    floors: FloatArray
    value: float
    dual: FloatArray
    iterations: int


def _cones(blocks: Sequence[ConeBlock], sizes: Sequence[int]) -> list[object]:
    """The cones of so many rows of each block."""
    cones: list[object] = []
    for block, size in zip(blocks, sizes, strict=True):
        if block.cone == "power":
            cones.extend(clarabel.PowerConeT(block.power) for _ in range(size // 3))
        else:
            kind = clarabel.ZeroConeT if block.cone == "zero" else clarabel.NonnegativeConeT
            cones.append(kind(size))
    return cones


_TOLERANCE = 1e-10
_FOLDED = 4
"""Levels from which on half a program under pure epsilon is worth the work of folding it."""

ATTEMPTS = ((1.0, 0.99), (1.0, 0.7), (1.0, 0.5), (1.0, 0.25), (1e2, 0.99), (1e4, 0.99))
"""Factor of the tolerance and longest step, as a fraction of the way to the cones' boundary, one
attempt after another.

Power cones stall the solver when a step ends too near their boundary: shorter steps do not. A
tolerance that the conditioning does not allow stalls it too, and a looser one does not; what is
lost shows in the gap.
"""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Folding:
    """One half of a program that is its own mirror image: the mean of an optimum and its mirror
    image is one, too.

    `places` are which of the half's variables each variable is; `twins` are the mirror images of
    the `kept` constraints, or their negatives by `signs`.
    """

    places: IndexArray
    kept: IndexArray
    twins: IndexArray
    signs: FloatArray

    def multipliers(self, dual: FloatArray) -> FloatArray:
        """Those of all constraints: a kept one and its mirror image have half of it each."""
        found = np.zeros(1 + int(self.twins.max()))
        found[self.kept] = dual / 2
        found[self.twins] += self.signs * dual / 2
        return found


def nearly_equal(values: FloatArray, others: FloatArray) -> bool:
    """Whether arrays differ by the solver's tolerance at most, each relative to itself."""
    return bool((np.abs(values - others) <= _TOLERANCE * np.abs(others)).all())


def folding(program: Program) -> Folding | None:
    """How a program folds; None for one that is not its own mirror image, and for small ones: few
    levels, a metric.
    """
    blocks, table = program.blocks, program.entries.size
    index, own = np.arange(program.objective.size), np.arange(table, program.objective.size)
    lone = int(
        own.size > 0 and program.objective[-1] != 0
    )  # the largest error is its own mirror image
    small = own.size == lone if program.ratio < 0 else program.entries.shape[1] < _FOLDED
    if small or (program.ratio >= 0 and any(block.cone == "nonnegative" for block in blocks)):
        return None
    image = np.concatenate(
        [index[:table][::-1], own[: own.size - lone][::-1], own[own.size - lone :]]
    )
    starts = np.cumsum([0, *(block.rhs.size for block in blocks)])
    twins = np.concatenate(
        [start + block.twins for start, block in zip(starts, blocks, strict=False)]
    )
    signs = np.ones(starts[-1])
    if blocks[1].cone == "zero":
        signs[starts[1] : starts[2]] = -1.0  # means change their sign
    (rows, columns, values, backwards), rhs = program.stacked
    if (
        not nearly_equal(program.objective, program.objective[image])
        or np.abs(rhs - signs * rhs[twins]).max() > _TOLERANCE
        or (twins[rows] != rows[backwards]).any()
        or (image[columns] != columns[backwards]).any()
        or np.abs(values - signs[rows] * values[backwards]).max() > _TOLERANCE
    ):
        return None
    every = np.arange(rhs.size)
    kept = every[
        (every < twins) | ((every == twins) & (signs > 0))
    ]  # its own negative is 0 on mirrored tables
    places = (np.cumsum(index <= image) - 1)[np.minimum(index, image)]
    return Folding(places=places, kept=kept, twins=twins[kept], signs=signs[kept])


def solve(program: Program) -> Solution:
    """Solves a program known to be feasible; SolverError if the solver ends without an approximate
    solution.
    """
    fold = folding(program)
    try:
        return _attempted(program, fold)
    except SolverError:
        if fold is None:
            raise
        return _attempted(program, None)  # where half a program stalls the whole need not


def _attempted(program: Program, fold: Folding | None) -> Solution:
    """The program's solution from half of it or, without a fold, from all of it."""
    scale, blocks = float(np.abs(program.objective).max()) or 1.0, program.blocks
    objective, sizes = program.objective / scale, [block.rhs.size for block in blocks]
    (rows, columns, values, _), rhs = program.stacked
    if fold is not None:
        number = np.full(rhs.size, -1)
        number[fold.kept] = np.arange(fold.kept.size)
        inside = (number[rows] >= 0) & (values != 0)
        rows, columns, values = number[rows[inside]], fold.places[columns[inside]], values[inside]
        objective, rhs = np.bincount(fold.places, weights=objective), rhs[fold.kept]
        sizes = np.diff(np.searchsorted(fold.kept, np.cumsum([0, *sizes]))).tolist()
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(rhs.size, objective.size))
    status, iterations, settings = "", 0, clarabel.DefaultSettings()
    settings.verbose, settings.max_iter = False, 1000
    settings.tol_infeas_abs = settings.tol_infeas_rel = (
        1e-14  # feasibility is settled: nothing is called infeasible
    )
    quadratic = sparse.csc_matrix((objective.size, objective.size))
    for factor, step in ATTEMPTS:
        settings.max_step_fraction = step
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _TOLERANCE * factor
        answer = clarabel.DefaultSolver(
            quadratic, objective, matrix, rhs, _cones(blocks, sizes), settings
        ).solve()
        point, status, iterations = (
            np.array(answer.x),
            str(answer.status),
            iterations + int(answer.iterations),
        )
        point = point if fold is None else point[fold.places]
        # "InsufficientProgress" and the like still end at a point: it is used if it is nearly a
        # table, since callers measure its loss and its bound anew.
        found = np.maximum(point[program.entries], 0.0)
        sums = found.sum(axis=1, keepdims=True)
        if (
            "Infeasible" not in status
            and np.isfinite(point).all()
            and (np.abs(sums - 1) <= 1e-6).all()
        ):
            break
    else:
        remedy = "use fewer knots or levels, or another epsilon"
        raise SolverError(f"no table was found: the solver ended with status {status}; {remedy}")
    dual, floors = np.array(answer.z) * scale, np.zeros(found.shape[1])
    if fold is not None:
        dual = fold.multipliers(dual)
    if program.ratio >= 0:
        floors = np.maximum(point[found.size : found.size + floors.size], 0.0)
    value = float(answer.obj_val) * scale
    return Solution(rows=found / sums, floors=floors, value=value, dual=dual, iterations=iterations)


def _project(block: ConeBlock, dual: FloatArray) -> FloatArray:
    """A nearby point of the block's dual cone."""
    if block.cone == "zero":
        return dual
    if block.cone != "power":
        return np.maximum(dual, 0.0)
    # Dual of {|z| <= x**a y**(1-a)}: {|w| <= (u/a)**a (v/(1-a))**(1-a), u, v >= 0}. Shrinking w
    # enters it.
    triples = dual.reshape(-1, 3).copy()
    triples[:, :2] = np.maximum(triples[:, :2], 0.0)
    a = block.power
    reach = (triples[:, 0] / a) ** a * (triples[:, 1] / (1 - a)) ** (1 - a) * (1 - 1e-14)
    triples[:, 2] = np.clip(triples[:, 2], -reach, reach)
    return triples.ravel()


def _polish(program: Program, block: ConeBlock, dual: FloatArray) -> FloatArray:
    """Multipliers of a ratio block whose floor variables have no negative residual."""
    # Per level i the residual of g_i is e**(-epsilon/2) sum(alpha) - e**(epsilon/2) sum(beta). At
    # large epsilon an error of 1e-10 in beta would cost e**(epsilon/2) times that: shrinking beta
    # to the right sum costs only 1e-10.
    (_, floors, low), (_, _, high) = block.terms[1::2]
    count, level = floors.size, floors - program.entries.size
    low, high = np.bincount(level, low * dual[:count]), np.bincount(level, high * -dual[count:])
    factor = np.where(high > low, low / np.maximum(high, 1e-300) * (1 - 1e-15), 1.0)
    return np.concatenate([dual[:count], dual[count:] * factor[level]])


def safe_bound(program: Program, dual: FloatArray) -> float:
    """A lower bound of the program's value from any dual point, however inexact.

    For every feasible x and every z in the dual cone, with residual r = objective + A'z,
        objective @ x = r @ x - z @ (b - s) >= -z @ b + sum over groups of cap * min(0, min r),
    since x >= 0 and the variables of a group sum to at most its cap. Float errors of r and of the
    sums are bounded by a multiple of the unit roundoff and subtracted.

    Guarantees: never above the optimal value of `program` (its coefficients as stored).
    Source: Neumaier and Shcherbina, Safe bounds in linear and mixed-integer linear programming,
    2004.
    """
    parts = np.split(dual, np.cumsum([block.rhs.size for block in program.blocks])[:-1])
    parts = [_project(block, part) for block, part in zip(program.blocks, parts, strict=True)]
    if program.ratio >= 0:
        parts[program.ratio] = _polish(program, program.blocks[program.ratio], parts[program.ratio])
    point = np.concatenate(parts)
    (rows, columns, values, _), rhs = program.stacked
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(rhs.size, program.objective.size))
    many = np.diff(matrix.indptr)
    columns, products = np.repeat(np.arange(many.size), many), matrix.data * point[matrix.indices]
    priced, sizes = (
        np.bincount(columns, weights, many.size) for weights in (products, np.abs(products))
    )
    residual, unit = program.objective + priced, np.finfo(np.float64).eps
    error = (int(many.max()) + 4) * unit * (np.abs(program.objective) + sizes)
    lowest = np.zeros(program.caps.size)
    np.minimum.at(lowest, program.groups, residual - error)
    summands = [*(-point * rhs).tolist(), *(program.caps * lowest).tolist()]
    # Each product carries one rounding; fsum adds them exactly.
    return math.fsum(summands) - 2 * unit * math.fsum(map(abs, summands))
