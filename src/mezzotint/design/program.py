"""The design of a table on knots as a convex program in conic form: every constraint, loss and bias budget.

Inputs and levels are in units of half the range, centred, so that the solver sees numbers near 1 whatever the data.
Only this file calls Clarabel, and the lower bounds do not trust it. Constraints beyond pure epsilon are about pairs of
rows ((epsilon, delta), metric privacy, Renyi divergence): they are added as they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, final

import clarabel as untyped
import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from mezzotint.core import rounding
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, FloatArray, IndexArray
from mezzotint.design.problem import FloatDesign, Problem, without_unused
from mezzotint.privacy.tradeoffs import metric_epsilon, spacing_of

Term = tuple[IndexArray, IndexArray, FloatArray | float]
"""Rows, columns and values (or the only value) of a matrix; equal places add up."""

Entries = tuple[IndexArray, IndexArray, FloatArray, IndexArray]
"""Rows, columns and values of all terms, one after another, and for each entry its place in its term read backwards."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ConeBlock:
    """Rows A x + s = b with s in a cone: "zero", "nonnegative" ("ratio" where `ratio_part` made it), or "power" cones.

    Power cones have three rows each. Where a program is its own mirror image, each term of A read backwards is its own,
    and so are the rows, but for those that come before the row `split`: they are on their own.
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
    """minimise objective @ x subject to the blocks; every variable is >= 0, and `entries` (R, m) are the table's.

    The variables of group g (`groups` has one for each) sum to at most caps[g] at any optimum: that makes a lower bound
    out of any dual point (`safe_bound`).
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

    @cached_property
    def fold(self) -> Folding | None:
        """How it is folded, if it is."""
        return _folded(self)

    @property
    def ratio(self) -> int:
        """The index of the block of a `ratio_part` (its multipliers can be polished), -1 for none."""
        return next((i for i, one in enumerate(self.blocks) if one.cone == "ratio"), -1)


Made = tuple[list[tuple[int, float]], list[ConeBlock]]
"""Per group of a part's own variables how many they are and what they sum to at most; and the constraints."""

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
        target_means: (R,) means that the rows must have, up to `max_bias`; inf drops the constraint.
        costs: (R, m) objective coefficients of the table.
        worst: price of the last part's only variable, to be minimised instead of the costs; 0 for the costs.
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
    # g is the geometric middle between floor and ceiling: at large epsilon the floor itself would be lost in the
    # solver's tolerance. All pairs of rows obey epsilon iff such a g exists, and all inputs do by T2.
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
    """P[a, i] + spare - ratio (P[b, i] - spare) - own <= 0 for each pair (a, b) of rows and each column i."""
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
    """sum_i P[a, i]**alpha P[b, i]**(1 - alpha) <= e**((alpha - 1) epsilon) for each pair (a, b) of rows.

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
    """The largest squared error there is: in its units a solver sees numbers near 1 however far the levels."""
    return float((np.abs(levels).max() + 1) ** 2)


def worst_error_part(
    entries: IndexArray,
    first: int,
    *,
    target_means: FloatArray,
    levels: FloatArray,
    between: tuple[float, ...],
) -> Made:
    """E(report - x)^2 <= z at all knots and at points between two; z / `largest_error` is the only own variable."""
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


clarabel: Any = untyped  # the extension module carries no type information


class SolverError(MezzotintError, RuntimeError):
    """The numerical solver gave no usable answer to a problem that has one; the message holds its status."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """The solver's answer as a table, clipped at 0 and normalised, with the objective's value at the solver's point.

    `floors` are the variables of a `ratio_part`, zeros without one; `dual` its multipliers in the order of the blocks.
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
"""Factor of the tolerance and longest step, as a fraction of the way to the cones' boundary, one attempt after another.

Power cones stall the solver when a step ends too near their boundary: shorter steps do not. A tolerance that the
conditioning does not allow stalls it too, and a looser one does not; what is lost shows in the gap.
"""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Folding:
    """One half of a program that is its own mirror image: the mean of an optimum and its mirror image is one, too.

    `places` are which of the half's variables each variable is; `twins` are the mirror images of the `kept`
    constraints, or their negatives by `signs`.
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


def _same(values: FloatArray, others: FloatArray) -> bool:
    """Whether they differ by the solver's tolerance at most, each relative to itself."""
    return bool((np.abs(values - others) <= _TOLERANCE * np.abs(others)).all())


def _folded(program: Program) -> Folding | None:
    """How a program folds; None for one that is not its own mirror image, and for small ones: few levels, a metric."""
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
        not _same(program.objective, program.objective[image])
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
    """Solves a program known to be feasible; SolverError if the solver ends without an approximate solution."""
    try:
        return _attempted(program, program.fold)
    except SolverError:
        if program.fold is None:
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
        # "InsufficientProgress" and the like still end at a point: it is used if it is nearly a table, since callers
        # measure its loss and its bound anew.
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
    (_, floors, low), (_, _, high) = block.terms[1::2]
    count, level = floors.size, floors - program.entries.size
    low, high = np.bincount(level, low * dual[:count]), np.bincount(level, high * -dual[count:])
    factor = np.where(high > low, low / np.maximum(high, 1e-300) * (1 - 1e-15), 1.0)
    return np.concatenate([dual[:count], dual[count:] * factor[level]])


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


ON_KNOTS = "tables with these levels on these knots"
BETWEEN = (0.25, 0.5, 0.75)


def program_on(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray,
    privacy: ProgramPart,
    *,
    costs: FloatArray | None = None,
    between: tuple[float, ...] = BETWEEN,
) -> Program:
    """The table program of docs/proofs/design.md at these levels and knots, data units.

    `costs` are those of the problem, where they are known; `between` two knots the largest error counts, too.
    """
    target_means, units = problem.centered(knots), problem.centered(levels)
    errors = partial(worst_error_part, target_means=target_means, levels=units, between=between)
    return assemble(
        target_means=target_means,
        levels=units,
        costs=problem.costs(knots, levels) if costs is None else costs,
        parts=[privacy, errors] if problem.loss == "minimax" else [privacy],
        max_bias=problem.max_bias / (problem.width / 2),
        worst=largest_error(units) if problem.loss == "minimax" else 0.0,
    )


def proven_design(
    problem: Problem, asked: Program, levels: FloatArray, solution: Solution
) -> FloatDesign:
    """The design that a solution's multipliers prove: with some pairs of rows a bound of the program with all."""
    half = problem.width / 2
    unit, price = half**2 if problem.loss == "minimax" else 1.0, 0.0
    if problem.max_bias < math.inf:
        # How much the value can fall per unit (centred) by which all means may miss their targets.
        mean, start = asked.blocks[1], asked.blocks[0].rhs.size
        prices = np.abs(solution.dual[start : start + mean.rhs.size]).sum()
        price = float(prices) / max(1.0, float(np.abs(problem.centered(levels)).max()))
    bound = safe_bound(asked, solution.dual) * unit
    return FloatDesign(
        lower_bound=bound, scope=ON_KNOTS, iterations=solution.iterations, price=price * unit / half
    )


_UNITS = (0, 0, 0, 0, *(2 * 4**k for k in range(11)))
"""Units by which rounding may move a weight, one try after another, until the integers are certified."""

_MARGIN, _MOST = 2.0**-30, 1e-2
"""Least and largest relative reduction of epsilon, for solver and rounding."""

_SMALL = 1e-4
"""What is overspent by so little (relative) is made up for by asking for less."""

_VIOLATION, _SLACK = 1e-8, 1e-5
_PAIR_ROUNDS = 30
_BESIDE = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
"""Steps from a pair of knots to itself and its neighbours."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class KnottedProblem:
    """A problem at fixed levels and knots, with what its program is made of.

    For a table delta is less what rounding may add (`spare_rounding`), while a bound uses all of it; metrics and Renyi
    divergences still hold when any probability is off by `spare`.
    """

    problem: Problem
    levels: FloatArray
    knots: FloatArray
    costs: FloatArray  # (K, m) of the problem
    spare_rounding: bool = True
    spare: float = 0.0

    def part(self, pairs: IndexArray, epsilon: float) -> ProgramPart:
        """The privacy constraint, on these pairs of rows unless it is pure."""
        problem = self.problem
        if problem.is_pure:
            return partial(ratio_part, epsilon=epsilon)
        if problem.delta > 0:
            delta = self.delta if self.spare_rounding else problem.delta
            return partial(delta_part, pairs=pairs, epsilon=epsilon, delta=delta)
        if problem.alpha is not None:
            return partial(
                renyi_part, pairs=pairs, alpha=problem.alpha, epsilon=epsilon, spare=self.spare
            )
        distance = np.abs(self.knots[pairs[:, 0]] - self.knots[pairs[:, 1]])
        is_absolute = problem.metric == "absolute"
        ratios = (
            1 + epsilon * distance
            if is_absolute
            else np.exp(np.minimum(epsilon * distance**2, 40.0))
        )
        return partial(pair_ratio_part, pairs=pairs, ratios=ratios, spare=self.spare)

    @property
    def delta(self) -> float:
        """delta less what rounding to integers can add to the hockey-stick divergence of two rows."""
        room = 2 * self.levels.size * (1 + math.exp(self.problem.epsilon)) / TOTAL
        if self.problem.delta <= 2 * room:
            least = (
                "no delta at this epsilon" if 2 * room >= 1 else f"no delta up to {2 * room:.2g}"
            )
            raise ParameterError(
                "delta", self.problem.delta, f"a 32-bit table resolves {least}; use delta=0"
            )
        return self.problem.delta - room

    def excess(self, rows: FloatArray, epsilon: float) -> FloatArray:
        """(R, R) how far each ordered pair of rows is beyond its constraint (<= 0: within)."""
        problem = self.problem
        if problem.delta > 0:
            ratio = math.exp(epsilon)
            sticks = np.stack(
                [np.maximum(rows - ratio * row, 0).sum(axis=1) for row in rows], axis=1
            )
            return sticks - self.delta
        low = np.log(np.maximum(rows - self.spare, 1e-15))
        losses = np.log(np.maximum(rows + self.spare, 1e-15))[:, None] - low
        if problem.alpha is not None:
            terms = problem.alpha * losses + low
            most = terms.max(axis=2)
            moments = most + np.log(np.exp(terms - most[:, :, None]).sum(axis=2))
            return moments / (problem.alpha - 1) - epsilon
        return losses.max(axis=2) - epsilon * (self.knots[:, None] - self.knots) ** 2

    @property
    def is_complete(self) -> bool:
        """Whether the first pairs are all that is needed."""
        return self.problem.is_pure or self.problem.metric == "absolute"

    def binding(self, pairs: IndexArray, rows: FloatArray, epsilon: float) -> IndexArray:
        """Those of the pairs whose constraint these rows all but violate, and for a metric those beside them."""
        if self.is_complete:
            return pairs
        pairs = pairs[self.excess(rows, epsilon)[pairs[:, 0], pairs[:, 1]] > -_SLACK]
        return pairs if self.problem.metric is None else _beside(pairs, self.knots.size)

    def ordered(self, pairs: IndexArray) -> IndexArray:
        """The pairs in order, with their mirror images where the problem is its own: then the program folds."""
        knots = self.knots.size
        if self.problem.metric is None and _same(self.costs, self.costs[::-1, ::-1]):
            pairs = np.concatenate([pairs, knots - 1 - pairs])
        return np.stack(np.divmod(np.unique(pairs @ [knots, 1]), knots), axis=1)

    def program(self, pairs: IndexArray, epsilon: float) -> Program:
        return program_on(
            self.problem, self.levels, self.knots, self.part(pairs, epsilon), costs=self.costs
        )


def _beside(pairs: IndexArray, knots: int) -> IndexArray:
    """The pairs of so many knots, and their neighbours."""
    beside = (pairs[:, None] + _BESIDE).reshape(-1, 2)
    return beside[((beside >= 0) & (beside < knots)).all(axis=1) & (beside[:, 0] != beside[:, 1])]


def solve_pairs(
    setting: KnottedProblem, epsilon: float, known: IndexArray | None = None
) -> tuple[Solution, IndexArray]:
    """The optimum over all pairs of rows, and the pairs that it took.

    It begins with few pairs, and those `known` to bind or may, and adds each row's worst until none is violated.
    """
    index, last = np.arange(setting.knots.size), setting.knots.size - 1
    if setting.problem.metric is None:  # the ends, and what is far from them
        far = index[-1:] if known is not None and known.size else index[setting.knots.size // 2 :]
        pairs = np.stack([0 * far, far], axis=1)
        pairs = np.concatenate([pairs, last - pairs[:, ::-1]])
    else:  # neighbours, which are all that "absolute" needs
        pairs = np.stack([index[:-1], index[1:]], axis=1)
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    if setting.problem.metric is None or (known is not None and not setting.is_complete):
        pairs = setting.ordered(pairs if known is None else np.concatenate([pairs, known]))
    solution = solve(setting.program(pairs, epsilon))
    for _ in range(0 if setting.is_complete else _PAIR_ROUNDS):
        excess = setting.excess(solution.rows, epsilon)
        firsts, seconds = (
            np.append(index, excess.argmax(axis=0)),
            np.append(excess.argmax(axis=1), index),
        )
        violated = np.stack([firsts, seconds], axis=1)[excess[firsts, seconds] > _VIOLATION]
        fresh = setting.ordered(np.concatenate([pairs, violated]))
        if len(fresh) == len(pairs):
            break
        pairs = fresh
        solution = solve(setting.program(pairs, epsilon))
    return solution, pairs


def spent(problem: Problem, mechanism: Mechanism) -> float:
    """The certified privacy of the integers in the problem's own currency: at most `epsilon` when it is met."""
    if problem.delta > 0:
        return 0.0 if mechanism.delta(problem.epsilon) <= problem.delta else math.inf
    if problem.alpha is not None:
        return mechanism.renyi(problem.alpha)
    if problem.metric is not None:
        return metric_epsilon(mechanism, problem.metric)
    return mechanism.epsilon


def _rounded(setting: KnottedProblem, rows: FloatArray) -> Mechanism:
    """The integer table."""
    problem, rows = setting.problem, without_unused(rows)
    if problem.max_bias == 0:
        # What the solver's tolerance left of the means is nothing beside far levels, but many units.
        ends = np.flatnonzero(rows.any(axis=0))[[0, -1]]
        missing = (setting.knots - rows @ setting.levels) / np.diff(setting.levels[ends])
        rows[:, ends] = np.maximum(rows[:, ends] + missing[:, None] * [-1, 1], 0.0)
    return rounding.table(
        knots=setting.knots,
        levels=setting.levels,
        probabilities=rows,
        name="optimal",
        epsilon=problem.epsilon if problem.is_pure else math.inf,
        unbiased=problem.max_bias == 0,
        most=TOTAL if problem.is_pure else setting.levels.size + 16,
    )


def design_general(
    problem: Problem, levels: FloatArray, knots: FloatArray, known: IndexArray | None = None
) -> tuple[FloatDesign, Mechanism]:
    """The optimal table at these levels and knots for any of the constraints and losses.

    `known` (P, 2) pairs of knots are expected to bind: a start, on which no result depends.
    """
    if problem.metric == "squared":
        spacing_of(knots)  # refuses uneven knots
    setting = KnottedProblem(
        problem=problem, levels=levels, knots=knots, costs=problem.costs(knots, levels)
    )
    rows, drafts, used = (
        np.zeros((knots.size, levels.size)),
        list[FloatDesign](),
        np.ones(levels.size, dtype=bool),
    )
    known = np.zeros((0, 2), dtype=np.intp) if known is None else known
    failure: MezzotintError = InfeasibleError(
        f"epsilon={problem.epsilon:g}: the rows found, as integers, spend more; use fewer knots or levels, or raise it"
    )
    margin, grain = _MARGIN, float(np.ptp(levels)) / TOTAL
    for units in _UNITS:
        # Levels that are hardly ever used have no probability to spare: they are left out.
        less = max(problem.max_bias - (2 + units) * grain, problem.max_bias / 2)
        asked, costs = replace(problem, max_bias=less), setting.costs[:, used]
        tried = replace(
            setting, problem=asked, levels=levels[used], costs=costs, spare=units / TOTAL
        )
        try:
            solution, pairs = solve_pairs(tried, problem.epsilon * (1 - margin), known)
            known = tried.binding(pairs, solution.rows, problem.epsilon * (1 - margin))
            rows[:] = 0.0
            rows[:, used] = solution.rows
            if used.all():
                program = replace(setting, spare_rounding=False).program(pairs, problem.epsilon)
                drafts.append(proven_design(problem, program, levels, solution))
            mechanism = _rounded(setting, rows)
        except (InfeasibleError, SolverError) as error:
            failure, margin = failure if drafts else error, min(8 * margin, _MOST)
            continue
        beyond = spent(problem, mechanism) / problem.epsilon - 1
        if beyond <= 0 and mechanism.max_bias <= max(problem.max_bias, grain):
            # The multipliers of the least margin bound best, those of rare levels' rounding far worse.
            return replace(
                max(drafts, key=lambda draft: draft.lower_bound or -math.inf), pairs=known
            ), mechanism
        used = without_unused(rows).any(axis=0)
        more = 1.5 * beyond + (_MARGIN if problem.metric is None else 0.0)
        margin = min(margin + (margin if beyond >= _SMALL else more if beyond > 0 else 0.0), _MOST)
    raise failure


def refine_even(problem: Problem, levels: FloatArray) -> tuple[FloatDesign, Mechanism]:
    """Even knots, doubled until the bound of the program stalls or the program grows large."""
    most = 4000 if problem.is_pure else 260
    best: tuple[FloatDesign, Mechanism] | None = None
    previous = math.inf
    for count in (9, 17, 33, 65, 129, 257):
        if best is not None and count * levels.size > most:
            break
        known = (
            None if best is None else _beside(2 * best[0].pairs, count)
        )  # every other knot is one of the last grid
        best = design_general(
            problem, levels, np.linspace(problem.lower, problem.upper, count), known
        )
        value = best[0].lower_bound or 0.0
        if previous - value <= 1e-5 * abs(value):
            break
        previous = value
    if best is None:
        raise ParameterError("levels", levels.size, "too many for this constraint; use fewer")
    return best
