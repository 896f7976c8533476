"""The solver of programs, and lower bounds that do not trust it. Only this file calls Clarabel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import clarabel as untyped
import numpy as np
import scipy.sparse as sparse

from mezzotint.core.errors import SolverError
from mezzotint.core.rounding import SUM_TOLERANCE
from mezzotint.core.types import FloatArray, IndexArray
from mezzotint.design.cones import ConeBlock, Program

clarabel: Any = untyped  # the extension module carries no type information


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
            cone_count = size // 3
            cones.extend(clarabel.PowerConeT(block.power) for _ in range(cone_count))
        elif block.cone == "zero":
            cones.append(clarabel.ZeroConeT(size))
        else:
            cones.append(clarabel.NonnegativeConeT(size))
    return cones


_TOLERANCE = 1e-10
_INFEASIBLE_TOLERANCE = 1e-14
"""Feasibility is settled before: nothing is called infeasible."""

_MOST_ITERATIONS = 1000

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

    `half_variables` are which of the half's variables each variable is; `twins` are the mirror
    images of the `half_rows`, the constraints that stay, or their negatives by `signs`.
    """

    half_variables: IndexArray
    half_rows: IndexArray
    twins: IndexArray
    signs: FloatArray

    def multipliers(self, dual: FloatArray) -> FloatArray:
        """Those of all constraints: one that stays and its mirror image have half of it each."""
        multipliers = np.zeros(1 + int(self.twins.max()))
        multipliers[self.half_rows] = dual / 2
        multipliers[self.twins] += self.signs * dual / 2
        return multipliers


def nearly_equal(values: FloatArray, others: FloatArray) -> bool:
    """Whether arrays differ by the solver's tolerance at most, each relative to itself."""
    differences = np.abs(values - others)
    tolerances = _TOLERANCE * np.abs(others)
    return bool((differences <= tolerances).all())


def folding(program: Program) -> Folding | None:
    """How a program folds; None for one that is not its own mirror image, and for small ones: few
    levels, a metric.
    """
    if not _is_worth_folding(program):
        return None
    blocks = program.blocks
    image = _mirrored_variables(program)
    sizes = [block.rhs.size for block in blocks]
    starts = np.cumsum([0, *sizes])
    block_twins = [start + block.twins for start, block in zip(starts, blocks, strict=False)]
    twins = np.concatenate(block_twins)
    signs = np.ones(starts[-1])
    if blocks[1].cone == "zero":
        signs[starts[1] : starts[2]] = -1.0  # means change their sign
    if not _is_mirrored(program, image, twins, signs):
        return None
    row_number = np.arange(starts[-1])
    # Its own negative is 0 on mirrored tables.
    is_kept_twin = (row_number == twins) & (signs > 0)
    stays = (row_number < twins) | is_kept_twin
    variable = np.arange(program.objective.size)
    half_number = np.cumsum(variable <= image) - 1
    return Folding(
        half_variables=half_number[np.minimum(variable, image)],
        half_rows=row_number[stays],
        twins=twins[stays],
        signs=signs[stays],
    )


def _extra_variables(program: Program) -> tuple[int, bool]:
    """How many variables are no entries of the table, and whether the last of them is the largest
    error, which is its own mirror image.
    """
    count = program.objective.size - program.entries.size
    return count, count > 0 and program.objective[-1] != 0


def _is_worth_folding(program: Program) -> bool:
    if program.ratio < 0:
        count, has_largest_error = _extra_variables(program)
        return count != int(has_largest_error)
    if any(block.cone == "nonnegative" for block in program.blocks):
        return False
    return program.entries.shape[1] >= _FOLDED


def _mirrored_variables(program: Program) -> IndexArray:
    """The mirror image of each variable: the last is the first of the table's, and so on; likewise
    of the parts', but for the largest error (see `Program`).
    """
    index = np.arange(program.objective.size)
    table_size = program.entries.size
    _, has_largest_error = _extra_variables(program)
    stop = index.size - int(has_largest_error)
    mirrored_entries = index[:table_size][::-1]
    mirrored_extra = index[table_size:stop][::-1]
    return np.concatenate([mirrored_entries, mirrored_extra, index[stop:]])


def _is_mirrored(
    program: Program,
    image: IndexArray,
    twins: IndexArray,
    signs: FloatArray,
) -> bool:
    """Whether a program is its own mirror image."""
    entries, rhs = program.stacked
    rows, columns, values, backwards = entries
    if not nearly_equal(program.objective, program.objective[image]):
        return False
    limit_differences = np.abs(rhs - signs * rhs[twins])
    if limit_differences.max() > _TOLERANCE:
        return False
    if (twins[rows] != rows[backwards]).any():
        return False
    if (image[columns] != columns[backwards]).any():
        return False
    value_differences = np.abs(values - signs[rows] * values[backwards])
    return bool(value_differences.max() <= _TOLERANCE)


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


def _conic(
    program: Program,
    scale: float,
    fold: Folding | None,
) -> tuple[FloatArray, Any, FloatArray, list[object]]:
    """The program, its objective divided by `scale`, or the half of it that a fold leaves.

    Returns: objective, matrix, right-hand sides and cones: minimise objective @ x subject to
        matrix @ x + s = rhs, s in the cones.
    """
    sizes = [block.rhs.size for block in program.blocks]
    objective = program.objective / scale
    (rows, columns, values, _), rhs = program.stacked
    if fold is not None:
        number = np.full(rhs.size, -1)
        number[fold.half_rows] = np.arange(fold.half_rows.size)
        stays = (number[rows] >= 0) & (values != 0)
        rows = number[rows[stays]]
        columns = fold.half_variables[columns[stays]]
        values = values[stays]
        folded_objective = np.bincount(fold.half_variables, weights=objective)
        objective = np.asarray(folded_objective, dtype=np.float64)
        rhs = rhs[fold.half_rows]
        block_ends = np.cumsum([0, *sizes])
        boundaries = np.searchsorted(fold.half_rows, block_ends)
        sizes = np.diff(boundaries).tolist()
    shape = (rhs.size, objective.size)
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=shape)
    return objective, matrix, rhs, _cones(program.blocks, sizes)


def _settings() -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = _MOST_ITERATIONS
    settings.tol_infeas_abs = _INFEASIBLE_TOLERANCE
    settings.tol_infeas_rel = _INFEASIBLE_TOLERANCE
    return settings


def _attempted(program: Program, fold: Folding | None) -> Solution:
    """The program's solution from half of it or, without a fold, from all of it."""
    largest_cost = float(np.abs(program.objective).max())
    scale = largest_cost or 1.0
    conic = _conic(program, scale, fold)
    settings = _settings()
    quadratic = sparse.csc_matrix((conic[0].size, conic[0].size))
    iterations = 0
    solver_status = ""
    for tolerance_factor, longest_step in ATTEMPTS:
        settings.max_step_fraction = longest_step
        tolerance = _TOLERANCE * tolerance_factor
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        answer = clarabel.DefaultSolver(quadratic, *conic, settings).solve()
        iterations += int(answer.iterations)
        solver_status = str(answer.status)
        point = np.array(answer.x)
        if fold is not None:
            point = point[fold.half_variables]
        # "InsufficientProgress" and the like still end at a point: it is used if it is nearly a
        # table, since callers measure its loss and its bound anew.
        if "Infeasible" not in solver_status and _is_nearly_a_table(program, point):
            return _solution(program, fold, answer, point, scale, iterations)
    remedy = "use fewer knots or levels, or another epsilon"
    raise SolverError(f"no table was found: the solver ended with status {solver_status}; {remedy}")


def _is_nearly_a_table(program: Program, point: FloatArray) -> bool:
    if not np.isfinite(point).all():
        return False
    entries = np.maximum(point[program.entries], 0.0)
    misses = np.abs(entries.sum(axis=1) - 1)
    return bool((misses <= SUM_TOLERANCE).all())


def _solution(
    program: Program,
    fold: Folding | None,
    answer: Any,
    point: FloatArray,
    scale: float,
    iterations: int,
) -> Solution:
    table_rows = np.maximum(point[program.entries], 0.0)
    dual = np.array(answer.z) * scale
    if fold is not None:
        dual = fold.multipliers(dual)
    floors = np.zeros(table_rows.shape[1])
    if program.ratio >= 0:
        floors_stop = table_rows.size + floors.size
        floors = np.maximum(point[table_rows.size : floors_stop], 0.0)
    return Solution(
        rows=table_rows / table_rows.sum(axis=1, keepdims=True),
        floors=floors,
        value=float(answer.obj_val) * scale,
        dual=dual,
        iterations=iterations,
    )


def _project(block: ConeBlock, dual: FloatArray) -> FloatArray:
    """A nearby point of the block's dual cone."""
    if block.cone == "zero":
        return dual
    if block.cone != "power":
        return np.maximum(dual, 0.0)
    # Dual of {|z| <= x**a y**(1-a)}: {|w| <= (u/a)**a (v/(1-a))**(1-a), u, v >= 0}. Shrinking w
    # enters it.
    triples = dual.reshape(-1, 3).copy()
    sides = triples[:, :2]
    np.maximum(sides, 0.0, out=sides)
    power = block.power
    first_factor = (triples[:, 0] / power) ** power
    second_factor = (triples[:, 1] / (1 - power)) ** (1 - power)
    largest_magnitude = first_factor * second_factor * (1 - 1e-14)
    triples[:, 2] = np.clip(triples[:, 2], -largest_magnitude, largest_magnitude)
    return triples.ravel()


def _polish(
    program: Program,
    block: ConeBlock,
    dual: FloatArray,
) -> FloatArray:
    """Multipliers of a ratio block whose floor variables have no negative residual."""
    # Per level i the residual of g_i is e**(-epsilon/2) sum(alpha) - e**(epsilon/2) sum(beta). At
    # large epsilon an error of 1e-10 in beta would cost e**(epsilon/2) times that: shrinking beta
    # to the right sum costs only 1e-10.
    (_, floors, low_factor), (_, _, high_factor) = block.terms[1::2]
    floor_count = floors.size
    floor_level = floors - program.entries.size
    low_sums = np.bincount(floor_level, low_factor * dual[:floor_count])
    high_sums = np.bincount(floor_level, high_factor * -dual[floor_count:])
    shrinkage = low_sums / np.maximum(high_sums, 1e-300) * (1 - 1e-15)
    factor = np.where(high_sums > low_sums, shrinkage, 1.0)
    lower_duals, upper_duals = dual[:floor_count], dual[floor_count:]
    return np.concatenate([lower_duals, upper_duals * factor[floor_level]])


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
    sizes = [block.rhs.size for block in program.blocks]
    boundaries = np.cumsum(sizes)[:-1]
    duals = np.split(dual, boundaries)
    blocks_and_duals = zip(program.blocks, duals, strict=True)
    duals = [_project(block, block_dual) for block, block_dual in blocks_and_duals]
    if program.ratio >= 0:
        ratio_block = program.blocks[program.ratio]
        ratio_dual = duals[program.ratio]
        duals[program.ratio] = _polish(program, ratio_block, ratio_dual)
    point = np.concatenate(duals)
    (rows, columns, values, _), rhs = program.stacked
    shape = (rhs.size, program.objective.size)
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=shape)
    term_counts = np.diff(matrix.indptr)
    variable = np.repeat(np.arange(term_counts.size), term_counts)
    products = matrix.data * point[matrix.indices]
    prices = np.bincount(variable, products, term_counts.size)
    magnitudes = np.bincount(variable, np.abs(products), term_counts.size)
    residual = program.objective + prices
    unit_roundoff = np.finfo(np.float64).eps
    rounding_error = (
        (int(term_counts.max()) + 4) * unit_roundoff * (np.abs(program.objective) + magnitudes)
    )
    lowest = np.zeros(program.caps.size)
    np.minimum.at(lowest, program.groups, residual - rounding_error)
    products, floor_costs = -point * rhs, program.caps * lowest
    summands = [*products.tolist(), *floor_costs.tolist()]
    # Each product carries one rounding; fsum adds them exactly.
    magnitude = math.fsum(map(abs, summands))
    return math.fsum(summands) - 2 * unit_roundoff * magnitude
