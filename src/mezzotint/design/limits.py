"""Bounds that no mechanism can beat: `design.limit`, for any number of bits; `prove`, for m levels
wherever they are.

One solved design gives a bound for all sets of levels at once: a set Y can have a loss below tau
only if some level of it lies where a function g of the level is below a number (a cut). So tau is a
lower bound once no m points meet every cut. docs/proofs/design.md, "Any m levels".
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core import priors
from mezzotint.core.arguments import by_name
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject, Progress
from mezzotint.core.types import FloatArray
from mezzotint.design.cones import assemble, ratio_part
from mezzotint.design.floors import (
    ConvergenceError,
    best_floors,
    design_fixed,
    make_windows,
    overhang,
)
from mezzotint.design.levels import level_bounds
from mezzotint.design.problem import (
    DesignResult,
    Problem,
    check_knots,
    make_problem,
    ratio_above,
    record,
)
from mezzotint.design.program import design_general
from mezzotint.design.solver import safe_bound, solve
from mezzotint.privacy.propose import bound_document

_CELLS = 480
_POINTS = 40
"""Levels in the program of one box."""

_SCALE = 44
"""Numbers of a proof are integers over 2**44."""

_GAPS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.0025, 0.0015, 0.001)
"""Relative gaps tried one after another: each is proven or the time ends."""


def least_of_quadratics(
    coefficients: FloatArray, roots: FloatArray, axis: FloatArray, ratio: float
) -> tuple[FloatArray, FloatArray]:
    """The least sum_k h(r_k(B)) in each cell of the axis and where it is; r_k a quadratic, h(t) =
    min(t, ratio t).

    Between two of all real `roots` of the r_k the sum is one quadratic, least at an end or its
    vertex. The axis may end at infinity; `coefficients` (3, n) are those of 1, B and B**2, the
    latter >= 0.
    """
    c, b, a = coefficients
    points = np.unique(np.concatenate([axis, roots[(roots > axis[0]) & (roots < axis[-1])]]))
    starts, stops = points[:-1], points[1:]
    # On an unbounded piece any point tells the signs.
    finite = np.clip(
        points, points[np.isfinite(points)].min() - 1e3, points[np.isfinite(points)].max() + 1e3
    )
    middle = (finite[1:] + finite[:-1]) / 2
    factor = np.where((a[:, None] * middle + b[:, None]) * middle + c[:, None] < 0, ratio, 1.0)
    total = np.stack([c, b, a]) @ factor
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = np.nan_to_num(-total[1] / (2 * total[2]))
    best = np.clip(vertex, starts, stops)
    cell = np.clip(np.searchsorted(axis, middle) - 1, 0, axis.size - 2)
    result, place = np.full(axis.size - 1, np.inf), np.zeros(axis.size - 1)
    for at in (starts, stops, best):
        known = np.isfinite(at)
        safe = np.where(known, at, 0.0)
        value = np.where(known, (total[2] * safe + total[1]) * safe + total[0], np.inf)
        # Unbounded pieces on which the sum falls for ever.
        value[~known & (total[2] == 0) & (total[1] * np.sign(at) < 0)] = -np.inf
        order = np.argsort(-value, kind="stable")
        better = order[value[order] < result[cell[order]]]
        result[cell[better]], place[cell[better]] = value[better], safe[better]
    return result, place


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """Multipliers for averages over cells of inputs and for the rows at -1 and 1 (centred
    units).
    """

    edges: FloatArray  # (n+1,) of the cells, from -1 to 1
    roots: FloatArray  # (n, 2) levels L, R at which the reduced cost of a cell vanishes: mass (B - L)(B - R)
    ends: FloatArray  # (2, 2) coefficients (constant, slope) in B of the reduced costs of the two rows
    moments: FloatArray  # (n, 3) integrals of 1, x, x**2 over the cells

    def constant(self) -> float:
        """The bound on the loss when no level has a negative g."""
        mass, mean, square = self.moments.T
        low, high = self.roots.T
        rows = self.ends[0, 0] - self.ends[0, 1] + self.ends[1].sum()
        return float(mean @ (low + high) - mass @ (low * high) - square.sum() - rows)

    def variance(self) -> float:
        """That of the inputs."""
        _, mean, square = self.moments.sum(axis=0)
        return max(float(square - mean**2), 1e-300)

    def least(self, axis: FloatArray, ratio: float) -> tuple[FloatArray, FloatArray]:
        """The least g in each cell of levels and where it is, exact but for floats."""
        low, high = self.roots.T
        mass = self.moments[:, 0]
        cells = np.stack([mass * low * high, -mass * (low + high), mass])
        rows = np.concatenate([self.ends.T, np.zeros((1, 2))])
        with np.errstate(divide="ignore", invalid="ignore"):
            turns = -self.ends[:, 0] / self.ends[:, 1]
        roots = np.concatenate([self.roots.ravel(), turns[np.isfinite(turns)]])
        return least_of_quadratics(np.concatenate([cells, rows], axis=1), roots, axis, ratio)

    def mirrored(self) -> Cut:
        """The same cut for inputs and levels with their signs changed."""
        flip = np.array([1.0, -1.0])
        return Cut(
            edges=-self.edges[::-1],
            roots=-self.roots[::-1, ::-1],
            ends=self.ends[::-1] * flip,
            moments=self.moments[::-1] * np.array([1.0, -1.0, 1.0]),
        )


def cut_at(
    levels: FloatArray, ratio: float, problem: Problem, *, doubt: float | None = None
) -> tuple[Cut, FloatArray]:
    """The cut of the best design on these levels (centred units) for the problem's prior, and its
    floors (m,).
    """
    span, spread = (problem.lower, problem.upper), 1e-4
    prior, between = priors.condensed(problem.prior, *span)
    law = priors.law_of(prior, *span, spread=spread)
    optimum = best_floors(levels, ratio, law, "mse", doubt=doubt)
    windows = make_windows(levels, optimum.floors, ratio)
    means = np.clip(windows.means, -1.0, 1.0)
    means[0], means[-1] = -1.0, 1.0
    wide = np.diff(means) > 0
    pairs = np.stack([levels[windows.left], levels[windows.right]], axis=1)[wide]
    edges = np.concatenate([means[:-1][wide], [1.0]])
    if isinstance(prior, priors.SamplePrior) and priors.has_few_atoms(prior):
        # Any split of the point masses gives a bound; that of the law does so with these
        # multipliers.
        points, masses = priors.centred_atoms(prior, *span)
        moments = priors.split_atoms(points, masses, edges, spread) @ points[:, None] ** np.arange(
            3
        )
    else:
        moments = np.diff(priors.exact_law(prior, *span, edges).integrals(edges), axis=0)
    moments[0, 2] += between / (problem.width / 2) ** 2
    return Cut(
        edges=edges, roots=np.sort(pairs, axis=1), ends=optimum.ends, moments=moments
    ), optimum.floors


Box = tuple[tuple[int, int], ...]


@final
@dataclass(kw_only=True, eq=False)
class Prover:
    """Boxes of levels (cells of an axis), emptied by cuts; depth first, for one target after
    another.
    """

    count: int
    ratio: float
    problem: Problem
    deadline: float
    progress: Progress | None = None
    cuts: list[Cut] = field(default_factory=list[Cut])
    programs: int = 0
    target: float = 0.0

    def __post_init__(self) -> None:
        self.needed = 1 + overhang(self.ratio)
        reach = 2.5 * self.needed + 0.5
        # Its own mirror image to the last bit: the kernel reads mirrored cuts off mirrored cells.
        half = np.append(np.linspace(0, reach, _CELLS // 2 + 1), 1e5)
        self.axis = np.concatenate([-half[:0:-1], half])
        self.constants, self.values = np.zeros(0), np.zeros((0, self.axis.size - 1))
        self.aim(0.0)

    def add(self, cut: Cut) -> float:
        """Keeps a cut and its mirror image; its constant."""
        both = (cut, cut.mirrored())
        self.cuts.extend(both)
        self.constants = np.append(self.constants, [one.constant() for one in both])
        known = len(self.cuts) - 2
        for name in ("values", "after", "before"):
            rows = getattr(self, name)
            if len(rows) < known + 2:  # room for twice as many
                setattr(
                    self,
                    name,
                    np.concatenate([rows, np.zeros((known + 2, rows.shape[1]), dtype=rows.dtype)]),
                )
        # Beyond the axis g only grows: its slope there is that of the outermost quadratics.
        self.values[known : known + 2] = [one.least(self.axis, self.ratio)[0] for one in both]
        self.programs += 1
        self._meet(known)
        return float(self.constants[-1])

    def aim(self, target: float) -> None:
        """The cells that a level of a set below the target may be in."""
        self.target = target
        self.after = np.zeros((len(self.values), self.axis.size), dtype=np.int16)
        self.before = self.after.copy()
        self._meet(0)

    def _meet(self, first: int) -> None:
        """Of each cut from the `first` on, per cell: the next cell that meets it, and one more than
        the last before.
        """
        last, target, cells = len(self.cuts), self.target, self.axis.size - 1
        # A float error of a bound is far below 1e-11 of its terms.
        # A loss below the target leaves the floors no more mass than this: "Rare floors" in the
        # proofs.
        share = target / (target + 1 / 3) * (1 + 1e-12)
        values = np.minimum(self.values[first:last], 0.0)
        meets = self.constants[first:, None] + share * values < target + 1e-11 * abs(target)
        index = np.arange(cells)
        after = np.where(meets, index, cells)[:, ::-1]
        self.after[first:last, :-1], self.after[first:last, -1] = (
            np.minimum.accumulate(after, axis=1)[:, ::-1],
            cells,
        )
        self.before[first:last, 1:] = np.maximum.accumulate(np.where(meets, index + 1, 0), axis=1)

    def shrunk(self, box: Box) -> Box | None:
        """The box less what no set of levels below the target can be in; None if nothing is
        left.
        """
        count = len(self.cuts)
        low, high = (np.array(side) for side in zip(*box, strict=True))
        while True:
            known = low, high
            low, high = np.maximum.accumulate(low), np.minimum.accumulate(high[::-1])[::-1]
            high[0] = min(high[0], int(np.searchsorted(self.axis, -self.needed, side="right")))
            low[-1] = max(low[-1], int(np.searchsorted(self.axis, self.needed, side="left")) - 1)
            # Of two mirror images the one with y_1 + y_m <= 0 is enough.
            if (low >= high).any() or self.axis[low[0]] + self.axis[low[-1]] > 0:
                return None
            first = self.after[:count, low]
            inside = first < high
            able = inside.sum(axis=1)
            if not able.all():
                return None
            # Where only one level can meet a cut, it lies where it does.
            alone = inside & (able == 1)[:, None]
            low = np.where(alone, first, low).max(axis=0)
            high = np.where(alone, self.before[:count, high], high).min(axis=0)
            if (low == known[0]).all() and (high == known[1]).all():
                return tuple(zip(low.tolist(), high.tolist(), strict=True))

    def program(self, box: Box) -> tuple[FloatArray, FloatArray]:
        """Adds the cut of the best design on levels all over the box; these levels and their
        floors.
        """
        spans = sorted(set(box))
        each = max(3, _POINTS // len(spans))
        parts = []
        for low, high in spans:
            start, stop = self.axis[low], self.axis[high]
            if high == self.axis.size - 1:
                parts.append(np.geomspace(max(start, 0.5), 3 * max(start, self.needed), each))
            elif low == 0:
                parts.append(-np.geomspace(max(-stop, 0.5), 3 * max(-stop, self.needed), each))
            else:
                parts.append(np.linspace(start, stop, each))
        levels = np.unique(np.concatenate(parts))
        outer = self.needed * (1 + 1e-9)
        levels = np.unique(
            np.concatenate([[min(levels[0], -outer)], levels, [max(levels[-1], outer)]])
        )
        levels = levels[np.concatenate([[True], np.diff(levels) > 1e-6])]
        cut, floors = cut_at(levels, self.ratio, self.problem, doubt=self.target)
        self.add(cut)
        return levels, floors

    def halves(self, box: Box, levels: FloatArray, floors: FloatArray) -> tuple[Box, Box] | None:
        """The box cut in two where the design on it spreads one level most; None if it is one set
        of cells.
        """
        spreads: list[tuple[float, int, float]] = []
        for j, (low, high) in enumerate(box):
            if high - low >= 2:
                weights = (
                    np.where((levels >= self.axis[low]) & (levels <= self.axis[high]), floors, 0.0)
                    + 1e-12
                )
                mean = float(np.average(levels, weights=weights))
                spreads.append((float(weights @ (levels - mean) ** 2), -j, mean))
        if not spreads:
            return None
        _, j, mean = max(spreads)
        low, high = box[j := -j]
        middle = int(np.clip(np.searchsorted(self.axis, mean), low + 1, high - 1))
        middle = int(np.clip(middle, low + (high - low) // 4, high - (high - low) // 4))
        one, other = ((*box[:j], side, *box[j + 1 :]) for side in ((low, middle), (middle, high)))
        return one, other

    def proves(self, target: float) -> bool:
        """Whether every box is emptied at this target before the time ends."""
        self.aim(target)
        boxes: list[tuple[Box, float]] = [(((0, self.axis.size - 1),) * self.count, 1.0)]
        done = 0.0
        while boxes:
            if time.monotonic() > self.deadline:
                return False
            box, share = boxes.pop()
            small, solved = self.shrunk(box), (np.zeros(0), np.zeros(0))
            if small is not None:
                with contextlib.suppress(ConvergenceError, np.linalg.LinAlgError):
                    solved = self.program(small)
                small = self.shrunk(small)
            if small is None:
                done += share
                if self.progress is not None:
                    self.progress(done, 1.0)
                continue
            halves = self.halves(small, *solved)
            if halves is None:
                return False
            boxes.extend((half, share / 2) for half in halves)
        return True


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Proven:
    """A lower bound on the loss (centred units) of all mechanisms with this many levels, and how
    many programs it took.

    `proof` is the document of a claim file, for `mezzotint verify` (docs/proofs/design.md, "A proof
    on paper").
    """

    bound: float
    proof: JsonObject
    programs: int


def check_provable(problem: Problem) -> None:
    """Refuses a problem that the theorem over all levels does not cover; says why, and what bounds
    it instead.
    """
    wrong = [
        *([] if problem.is_pure else ["ask for pure epsilon (no delta, alpha, metric)"]),
        *(["allow no bias"] if problem.max_bias else []),
        *([] if problem.loss == "mse" else ["use loss mse"]),
        *([] if isinstance(problem.prior, priors.UniformPrior) else ["leave the prior out"]),
    ]
    if wrong:
        remedy = "or take a bound for any number of levels instead (design.limit; --limit), where there is one"
        about = "proofs over all levels are for pure epsilon, no bias, uniform inputs and loss mse"
        raise ParameterError("prove", True, f"{about}: {', '.join(wrong)}, {remedy}")


def prove(
    problem: Problem,
    count: int,
    loss: float,
    *,
    seconds: float,
    progress: Progress | None = None,
    least: float = 0.0,
) -> Proven:
    """The largest lower bound found within `seconds`, for all mechanisms with `count` levels; see
    `check_provable`.

    Bounds near the loss of the best known design (centred units) are tried, until the relative gap
    is `least`. While a target is tried, `progress` is called with (share of the boxes emptied, 1).
    """
    check_provable(problem)
    ratio = ratio_above(problem.epsilon)
    prover = Prover(
        count=count,
        ratio=ratio,
        problem=problem,
        deadline=time.monotonic() + seconds,
        progress=progress,
    )
    # Dense levels: what no number of levels can beat is a bound too, and the first cut.
    reach = 1.6 * prover.needed + 0.4
    best = prover.add(cut_at(np.linspace(-reach, reach, 161), ratio, problem)[0])
    best += min(0.0, float(prover.values[1].min()))
    needed = 2
    for gap in _GAPS:
        target = loss * (1 - gap)
        if target <= best:
            continue
        if best >= loss * (1 - least):
            break
        if not prover.proves(target):
            break
        best, needed = target, len(prover.cuts)
    return Proven(
        bound=best, proof=proof_of(prover, problem.epsilon, best, needed), programs=prover.programs
    )


def proof_of(prover: Prover, epsilon: float, bound: float, needed: int) -> JsonObject:
    """The claim file of a bound (kind `dual`, docs/proofs/design.md): one of each two mirrored cuts
    needed, rounded.
    """

    def whole(values: FloatArray) -> npt.NDArray[np.object_]:
        return np.array(
            [int(one) for one in np.rint(np.ldexp(values, _SCALE)).flat], dtype=object
        ).reshape(values.shape)

    def cut_of(cut: Cut) -> JsonObject:
        edges, roots = whole(cut.edges), whole(cut.roots)
        wide = np.append(np.diff(edges) > 0, True)
        return {
            "edges": edges[wide].tolist(),
            "roots": roots[wide[:-1]].tolist(),
            "ends": whole(cut.ends).tolist(),
        }

    return bound_document(
        levels=prover.count, epsilon=Fraction(epsilon), scale=_SCALE, axis=whole(prover.axis[1:-1]).tolist(),
        # Rounded cuts and float errors cost far less than this.
        value=f"{bound * (1 - 1e-8):.10f}", cuts=[cut_of(cut) for cut in itertools.islice(prover.cuts, 0, needed, 2)],
    )  # fmt: skip


EVERY_MECHANISM = "all mechanisms, any number of levels anywhere"
_LEVELS = 81
_MOST_LEVELS = 160
_CLOSE = 1e-4
_USED = 1e-3
"""Levels with less than this share of the largest floor are left out of the next round."""
_SHOWN_LEVELS = 65
_INPUT_CELLS = 64


def _mse_limit(problem: Problem, least: float, largest: float) -> tuple[float, FloatArray]:
    """The limit of the unbiased MSE, and levels on which it is nearly attained (centred units).

    Designs on more and more levels: those where the last one's cut is lowest are added, unused ones
    are left out.
    """
    half, ratio = problem.width / 2, ratio_above(problem.epsilon)
    reach = min(1.6 * least + 0.4, largest)
    levels, bound = (
        np.linspace(-reach, reach, _LEVELS if problem.epsilon <= 5 else 2 * _LEVELS - 1),
        0.0,
    )
    while True:
        cut, floors = cut_at(levels, ratio, problem)
        values, places = cut.least(np.concatenate([[-np.inf], levels, [np.inf]]), ratio)
        height, lowest = cut.constant(), min(0.0, float(values.min()))
        # Floors of mass S cost S times the prior's variance at least: rare where the loss is small.
        bound = max(bound, height + lowest, height * cut.variance() / (cut.variance() - lowest))
        kept = floors > _USED * floors.max()
        if bound >= height * (1 - _CLOSE) or levels.size > _MOST_LEVELS * (
            1 + (problem.epsilon > 5)
        ):
            error = 1e-13 * ratio * float((levels[[0, -1]] ** 2).sum())
            return (bound * (1 - 1e-11) - error) * half**2, levels[kept]
        kept[[0, -1]] = True
        levels = np.unique(np.concatenate([levels[kept], places[values < 1e-3 * lowest]]))
        levels = levels[np.concatenate([[True], np.diff(levels) > 1e-7])]


# With a bias budget, or for the MAE: programs over averages ---------------------------------------


def averages(
    problem: Problem, edges: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Two averages of reports per cell of inputs, weighted by 1 - t and t, t the position in the
    cell; centred units.

    Any mechanism's averages satisfy the constraints of a table with these target means.
    docs/proofs/design.md, "Cells". For the MAE no level may lie inside a cell. Returns (R,) each:
    the mean input of each average; its prior mass; the input, an end of the cell, at which a loss
    linear in the input on the cell is taken; the number of the cell. The first and the last row are
    those at the ends of the range, with mass 0 and cell -1.
    """
    half = problem.width / 2
    moments = problem.prior.moments(edges)[:, :3] / half ** np.arange(3)
    edges = (edges - problem.center) / half
    width, left = np.diff(edges), edges[:-1]
    to_right = moments[:, 1] / width
    to_left = moments[:, 0] - to_right
    with np.errstate(divide="ignore", invalid="ignore"):
        right_aim = left + moments[:, 2] / moments[:, 1]
        left_aim = left + (moments[:, 1] - moments[:, 2] / width) / to_left
    used = np.stack([to_left, to_right], axis=1).ravel() > 0

    def framed(first: FloatArray, second: FloatArray, low: float, high: float) -> FloatArray:
        """Both averages of each cell, between the rows at the two ends of the range."""
        return np.concatenate([[low], np.stack([first, second], axis=1).ravel()[used], [high]])

    number = np.arange(width.size, dtype=np.float64)
    target_means = np.clip(framed(left_aim, right_aim, -1.0, 1.0), -1.0, 1.0)
    return (
        target_means,
        framed(to_left, to_right, 0.0, 0.0),
        framed(left, edges[1:], -1.0, 1.0),
        framed(number, number, -1, -1),
    )


def _biased_limit(problem: Problem, reach: float) -> float:
    """The limit of the MSE with a bias budget: multipliers from dense levels, the least over all
    real ones.
    """
    half, ratio = problem.width / 2, ratio_above(problem.epsilon)
    budget = problem.max_bias / half
    target_means, weights, points, _ = averages(
        problem, np.linspace(problem.lower, problem.upper, _INPUT_CELLS + 1)
    )
    levels, count = np.linspace(-reach, reach, 2 * _SHOWN_LEVELS - 1), target_means.size
    # (B - x)^2 - x^2 is linear in x; no mechanism can change the mean of x^2.
    coefficients = np.stack([np.zeros(count), -2 * weights * points, weights])
    program = assemble(
        target_means=target_means,
        levels=levels,
        costs=coefficients.T @ levels ** np.arange(3)[:, None],
        parts=[partial(ratio_part, epsilon=problem.epsilon)],
        max_bias=budget,
    )
    dual = solve(program).dual
    mass, mean = -dual[:count], np.zeros(count)
    if budget < math.inf:
        mean = (dual[2 * count : 3 * count] - dual[count : 2 * count]) / max(1.0, reach)
    height = math.fsum([*mass, *(mean * target_means)]) - (
        float(budget * np.abs(mean).sum()) if mean.any() else 0.0
    )
    coefficients = coefficients - np.stack([mass, mean, np.zeros(count)])
    line = np.array([-np.inf, np.inf])
    lowest = min(
        0.0, float(least_of_quadratics(coefficients, real_roots(coefficients), line, ratio)[0][0])
    )
    error = 1e-13 * ratio * float(np.abs(coefficients).sum())
    _, first, second = problem.prior.moments(np.array([problem.lower, problem.upper]))[0, :3]
    constant = float(second / half**2 - 2 * first / half + 1)
    return (height + constant + lowest - error) * half**2


def real_roots(coefficients: FloatArray) -> FloatArray:
    """All real roots of quadratics (3, n)."""
    c, b, a = coefficients
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.sqrt(b**2 - 4 * a * c)
        near = -(b + np.where(b >= 0, root, -root)) / 2
        roots = np.concatenate([near / a, c / near, -c / b])
    return np.unique(np.append(roots[np.abs(roots) < 1e100], 0.0))


def _mae_limit(problem: Problem, largest: float) -> float:
    """The certified limit of the MAE over levels within `largest` (centred units) of the middle.

    For a level B inside a cell the loss there is replaced by 0, which is smaller. Then every r_k is
    linear in B on each cell and on each side of the range, so g is concave there and its least
    values are at the ends of these
    pieces: a finite program whose columns are those ends bounds all real levels.
    """
    half, edges = problem.width / 2, np.linspace(-1.0, 1.0, 3 * _INPUT_CELLS // 2 + 1)
    inside = np.clip(problem.center + half * edges, problem.lower, problem.upper)
    target_means, weights, points, number = averages(problem, inside)
    levels = np.concatenate([[-largest, -1.0], np.repeat(edges, 2)[1:-1], [1.0, largest]])
    cells = np.concatenate([[-2, -2], np.repeat(np.arange(edges.size - 1), 2), [-2, -2]])
    costs = weights[:, None] * np.abs(levels - points[:, None])
    costs[number[:, None] == cells] = 0.0
    program = assemble(
        target_means=target_means,
        levels=levels,
        costs=costs,
        parts=[partial(ratio_part, epsilon=math.nextafter(problem.epsilon, math.inf))],
        max_bias=problem.max_bias / half,
    )
    return safe_bound(program, solve(program).dual) * half


def limit_of(problem: Problem, max_level: float | None) -> tuple[float, FloatArray]:
    """The certified limit of a pure-epsilon problem, and dense levels (data units) on which it is
    nearly attained.
    """
    if not problem.is_pure or problem.loss not in ("mse", "mae"):
        raise ParameterError(
            "loss", problem.loss, 'limits are known for pure epsilon and loss "mse" or "mae"'
        )
    least, largest = level_bounds(problem, max_level)
    reach, half = min(1.6 * least + 0.4, largest), problem.width / 2
    if problem.loss == "mae":
        shown = np.concatenate([[-largest], np.linspace(-1, 1, 2 * _SHOWN_LEVELS - 3), [largest]])
        bound = _mae_limit(problem, largest)
    elif problem.max_bias:
        shown, bound = np.linspace(-reach, reach, _SHOWN_LEVELS), _biased_limit(problem, reach)
    else:
        bound, shown = _mse_limit(problem, least, largest)
    return max(0.0, bound), problem.center + shown * half


@by_name
def limit(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    loss: str = "mse",
    prior: object = None,
    max_bias: float = 0.0,
    max_level: float | None = None,
) -> DesignResult:
    """The best loss that any number of bits can reach under pure epsilon: a certified lower bound.

    Arguments:
        epsilon, lower, upper, prior: as in `optimal`, pure.
        loss: "mse" (squared data units) or "mae" (data units).
        max_bias: 0 for unbiased mechanisms, else the bias allowed, data units.
        max_level: largest distance of a level from the middle of the range. For "mae" the loss
            keeps falling as levels grow, so a bound is needed: without one, 1 + 2 max(overhang,
            1/2) half-ranges are assumed.

    Returns:
        `lower_bound` is the limit. `mechanism` is a table of many levels that nearly attains it,
        `loss` its loss: the truth lies between the two.

    Raises:
        ParameterError: a bad value; loss "minimax".

    Warns:
        UnboundedLevelsWarning: loss "mae" without `max_level`.

    Guarantees: every mechanism with real-valued reports, whatever their number, that is epsilon-DP
        over all pairs of inputs and within `max_bias`, has an expected loss of at least
        `lower_bound` (docs/proofs/design.md, "Limit").

    Edge cases: for uniform inputs the bound is within 0.2 % of `loss` for epsilon up to 4, within 1
        % at 8; with a bias budget it is loose from 5 on, at worst 0.

    Example:
        >>> round(mz.design.limit(3.0).lower_bound, 3)
        0.26
    """
    started = time.perf_counter()
    problem = make_problem(
        epsilon=epsilon, lower=lower, upper=upper, loss=loss, prior=prior, max_bias=max_bias
    )
    bound, levels = limit_of(problem, max_level)
    if max_bias:
        draft, mechanism = design_general(problem, levels, check_knots(_SHOWN_LEVELS, problem))
    else:
        draft, mechanism = design_fixed(problem, levels, None)
    draft = replace(draft, lower_bound=bound, scope=EVERY_MECHANISM)
    return record(problem, draft, mechanism, started=started)
