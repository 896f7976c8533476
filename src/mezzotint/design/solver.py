"""Clarabel behind one door, and lower bounds that do not trust it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sparse

from mezzotint.core.errors import MezzotintError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.loss import FloatArray
from mezzotint.design.program import Block, Program, stack

# Typed Any: the extension module carries no type information.
clarabel: Any = LazyModule("clarabel")


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


def _cones(blocks: tuple[Block, ...]) -> list[object]:
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

ATTEMPTS = ((1.0, 0.99), (1.0, 0.7), (1.0, 0.5), (1.0, 0.25), (1e2, 0.99), (1e4, 0.99))
"""Factor of the tolerance and longest step, as a fraction of the way to the cones' boundary, one attempt after another.

Power cones stall the solver when a step ends too near their boundary: shorter steps do not. A tolerance that the
conditioning does not allow stalls it too, and a looser one does not; what is lost shows in the gap.
"""


def _settings(tolerance: float, step: float) -> Any:
    settings = clarabel.DefaultSettings()
    settings.max_step_fraction = step
    settings.verbose, settings.max_iter = False, 1000
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.tol_infeas_abs = settings.tol_infeas_rel = 1e-14  # feasibility is settled: nothing is called infeasible
    return settings


def solve(program: Program) -> Solution:
    """Solves the program.

    Raises:
        SolverError: the solver ended without an approximate solution. Feasibility is settled before (`reach`), so
            this is never read as "infeasible".
    """
    scale = float(np.abs(program.objective).max()) or 1.0
    matrix, rhs = stack(program.blocks)
    size = program.objective.size
    status, iterations = "", 0
    for factor, step in ATTEMPTS:
        answer = clarabel.DefaultSolver(
            sparse.csc_matrix((size, size)),
            program.objective / scale,
            matrix,
            rhs,
            _cones(program.blocks),
            _settings(_TOLERANCE * factor, step),
        ).solve()
        point, status, iterations = np.array(answer.x), str(answer.status), iterations + int(answer.iterations)
        # "InsufficientProgress" and the like still end at a point: it is used if it is nearly a table, since whoever
        # asked measures its loss and its bound anew.
        rows = np.maximum(point[program.entries], 0.0)
        sums = rows.sum(axis=1, keepdims=True)
        if "Infeasible" not in status and np.isfinite(point).all() and (np.abs(sums - 1) <= 1e-6).all():
            break
    else:
        remedy = "use fewer knots or levels, or another epsilon"
        raise SolverError(f"no table was found: the solver ended with status {status}; {remedy}")
    floors = np.zeros(rows.shape[1])
    if program.ratio >= 0:
        floors = np.maximum(point[rows.size : rows.size + floors.size], 0.0)
    return Solution(
        rows=rows / sums,
        floors=floors,
        value=float(answer.obj_val) * scale,
        dual=np.array(answer.z) * scale,
        iterations=iterations,
    )


def _project(block: Block, dual: FloatArray) -> FloatArray:
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


def _polish(program: Program, block: Block, dual: FloatArray) -> FloatArray:
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
