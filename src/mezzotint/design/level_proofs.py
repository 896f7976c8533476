"""Bounds for m levels wherever they are: `prove`.

One solved design gives a bound for all sets of levels at once: a set Y can have a loss below tau
only if some level of it lies where a function g of the level is below a number (a cut). So tau is a
lower bound once no m points meet every cut. docs/proofs/design.md, "Any m levels".
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core import laws, priors
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject, Progress
from mezzotint.core.types import FloatArray
from mezzotint.design.floor_search import ConvergenceError, FloorProblem, best_floors, overhang
from mezzotint.design.problem import (
    Problem,
    ratio_above,
)
from mezzotint.design.windows import make_windows
from mezzotint.privacy.propose import bound_document

_CELLS = 480
_POINTS = 40
"""Levels in the program of one box."""

_SCALE = 44
"""Numbers of a proof are integers over 2**44."""

_SPREAD = 1e-4
"""Over how much of half the range point masses are spread."""

_FARTHEST = 1e5
"""Where the axis of levels ends, in half ranges."""

BOUND_ROUNDING = 1e-11
"""Relative: float errors of a bound are far below it."""

_PROOF_ROUNDING = 1e-8
"""Relative: rounded cuts and float errors of a proof cost far less."""

_GAPS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.0025, 0.0015, 0.001)
"""Relative gaps tried one after another: each is proven or the time ends."""


def least_of_quadratics(
    coefficients: FloatArray,
    roots: FloatArray,
    axis: FloatArray,
    ratio: float,
) -> tuple[FloatArray, FloatArray]:
    """The least sum_k h(r_k(B)) in each cell of the axis and where it is; r_k a quadratic, h(t) =
    min(t, ratio t).

    Between two of all real `roots` of the r_k the sum is one quadratic, least at an end or its
    vertex. The axis may end at infinity; `coefficients` (3, n) are those of 1, B and B**2, the
    latter >= 0.
    """
    constant, slopes, square = coefficients
    is_inner = (roots > axis[0]) & (roots < axis[-1])
    inner_roots = roots[is_inner]
    points = np.unique(np.concatenate([axis, inner_roots]))
    piece_starts = points[:-1]
    piece_stops = points[1:]
    # On an unbounded piece any point tells the signs.
    finite_points = points[np.isfinite(points)]
    nearest, farthest = finite_points.min() - 1e3, finite_points.max() + 1e3
    nearby = np.clip(points, nearest, farthest)
    middles = (nearby[1:] + nearby[:-1]) / 2
    tilts = square[:, None] * middles + slopes[:, None]
    values = tilts * middles + constant[:, None]
    ratio_factors = np.where(values < 0, ratio, 1.0)
    totals = np.stack([constant, slopes, square]) @ ratio_factors
    total_constant, total_slope, total_square = totals
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = np.nan_to_num(-total_slope / (2 * total_square))
    cells_below = np.searchsorted(axis, middles)
    cell = np.clip(cells_below - 1, 0, axis.size - 2)
    least_values = np.full(axis.size - 1, np.inf)
    position = np.zeros(axis.size - 1)
    vertices = np.clip(vertex, piece_starts, piece_stops)
    for candidates in (piece_starts, piece_stops, vertices):
        is_finite = np.isfinite(candidates)
        inputs = np.where(is_finite, candidates, 0.0)
        sums = (total_square * inputs + total_slope) * inputs + total_constant
        sums = np.where(is_finite, sums, np.inf)
        # Unbounded pieces on which the sum falls for ever.
        outward_slope = total_slope * np.sign(candidates)
        is_falling = (total_square == 0) & (outward_slope < 0)
        sums[~is_finite & is_falling] = -np.inf
        value_order = np.argsort(-sums, kind="stable")
        better = value_order[sums[value_order] < least_values[cell[value_order]]]
        least_values[cell[better]] = sums[better]
        position[cell[better]] = inputs[better]
    return least_values, position


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """Multipliers for averages over cells of inputs and for the rows at -1 and 1 (centred
    units).
    """

    edges: FloatArray
    """(n+1,) of the cells, from -1 to 1."""

    roots: FloatArray
    """(n, 2) levels L, R at which the reduced cost of a cell vanishes: mass (B - L)(B - R)."""

    ends: FloatArray
    """(2, 2) coefficients (constant, slope) in B of the reduced costs of the two rows."""

    moments: FloatArray
    """(n, 3) integrals of 1, x, x**2 over the cells."""

    def constant(self) -> float:
        """The bound on the loss when no level has a negative g."""
        mass, mean, square = self.moments.T
        low, high = self.roots.T
        first_row = self.ends[0, 0] - self.ends[0, 1]
        rows = first_row + self.ends[1].sum()
        means = mean @ (low + high)
        products = mass @ (low * high)
        return float(means - products - square.sum() - rows)

    def variance(self) -> float:
        """That of the inputs."""
        _, mean, square = self.moments.sum(axis=0)
        return max(float(square - mean**2), 1e-300)

    def least(
        self,
        axis: FloatArray,
        ratio: float,
    ) -> tuple[FloatArray, FloatArray]:
        """The least g in each cell of levels and where it is, exact but for floats."""
        low, high = self.roots.T
        mass = self.moments[:, 0]
        products, sums = mass * low * high, low + high
        cells = np.stack([products, -mass * sums, mass])
        no_squares = np.zeros((1, 2))
        rows = np.concatenate([self.ends.T, no_squares])
        with np.errstate(divide="ignore", invalid="ignore"):
            turns = -self.ends[:, 0] / self.ends[:, 1]
        finite_turns = turns[np.isfinite(turns)]
        roots = np.append(self.roots.ravel(), finite_turns)
        coefficients = np.concatenate([cells, rows], axis=1)
        return least_of_quadratics(coefficients, roots, axis, ratio)

    def mirrored(self) -> Cut:
        """The same cut for inputs and levels with their signs changed."""
        flip = np.array([1.0, -1.0, 1.0])
        return Cut(
            edges=-self.edges[::-1],
            roots=-self.roots[::-1, ::-1],
            ends=self.ends[::-1] * flip[:2],
            moments=self.moments[::-1] * flip,
        )


def cut_at(
    levels: FloatArray,
    ratio: float,
    problem: Problem,
    *,
    doubt: float | None = None,
) -> tuple[Cut, FloatArray]:
    """The cut of the best design on these levels (centred units) for the problem's prior, and its
    floors (m,).
    """
    lower = problem.lower
    upper = problem.upper
    prior, between = laws.condensed(problem.prior, lower, upper)
    spread_law = laws.law_of(prior, lower, upper, spread=_SPREAD)
    floor_problem = FloorProblem(
        levels=levels,
        ratio=ratio,
        law=spread_law,
        loss="mse",
        doubt=doubt,
    )
    optimum = best_floors(floor_problem)
    windows = make_windows(levels, optimum.floors, ratio)
    window_means = np.clip(windows.means, -1.0, 1.0)
    window_means[0] = -1.0
    window_means[-1] = 1.0
    is_wide = np.diff(window_means) > 0
    low_levels, high_levels = levels[windows.left], levels[windows.right]
    outer_levels = np.stack([low_levels, high_levels], axis=1)
    roots = outer_levels[is_wide]
    wide_starts = window_means[:-1][is_wide]
    edges = np.append(wide_starts, 1.0)
    if isinstance(prior, priors.SamplePrior) and laws.has_few_atoms(prior):
        # Any split of the point masses gives a bound; that of the law does so with these
        # multipliers.
        points, masses = laws.centred_atoms(prior, lower, upper)
        shares = laws.split_atoms(points, masses, edges, _SPREAD)
        moments = shares @ points[:, None] ** np.arange(3)
    else:
        cell_law = laws.exact_law(prior, lower, upper, edges)
        moments = np.diff(cell_law.integrals(edges), axis=0)
    moments[0, 2] += between / (problem.width / 2) ** 2
    cut = Cut(
        edges=edges,
        roots=np.sort(roots, axis=1),
        ends=optimum.ends,
        moments=moments,
    )
    return cut, optimum.floors


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
        inner_edges = np.linspace(0, reach, _CELLS // 2 + 1)
        positive = np.append(inner_edges, _FARTHEST)
        self.axis = np.concatenate([-positive[:0:-1], positive])
        self.constants = np.zeros(0)
        self.values = np.zeros((0, self.axis.size - 1))
        self.after = self.before = np.zeros((0, self.axis.size), dtype=np.int16)

    def add(self, cut: Cut) -> float:
        """Keeps a cut and its mirror image; its constant."""
        new_cuts = (cut, cut.mirrored())
        constants = [new.constant() for new in new_cuts]
        # Beyond the axis g only grows: its slope there is that of the outermost quadratics.
        least_values = [new.least(self.axis, self.ratio)[0] for new in new_cuts]
        self.cuts.extend(new_cuts)
        self.constants = np.append(self.constants, constants)
        self.values = np.concatenate([self.values, least_values])
        self.programs += 1
        self._meet(len(self.after))
        return float(self.constants[-1])

    def aim(self, target: float) -> None:
        """The cells that a level of a set below the target may be in."""
        self.target = target
        self._meet(0)

    def _meet(self, first: int) -> None:
        """Of each cut from the `first` on, per cell: the next cell that meets it, and one more than
        the last before.
        """
        cell_count = self.axis.size - 1
        # A loss below the target leaves the floors no more mass than this: "Rare floors" in the
        # proofs.
        mass_share = self.target / (self.target + 1 / 3)
        floor_share = mass_share * (1 + 1e-12)
        values = np.minimum(self.values[first:], 0.0)
        value_limit = self.target + BOUND_ROUNDING * abs(self.target)
        meets = self.constants[first:, None] + floor_share * values < value_limit
        cell_index = np.arange(cell_count)
        next_meeting = np.where(meets, cell_index, cell_count)
        last_meeting = np.where(meets, cell_index + 1, 0)
        next_cells = np.minimum.accumulate(next_meeting[:, ::-1], axis=1)[:, ::-1]
        last_cells = np.maximum.accumulate(last_meeting, axis=1)
        after = np.pad(next_cells, ((0, 0), (0, 1)), constant_values=cell_count)
        before = np.pad(last_cells, ((0, 0), (1, 0)))
        self.after = np.concatenate([self.after[:first], after], dtype=np.int16)
        self.before = np.concatenate([self.before[:first], before], dtype=np.int16)

    def shrunk(self, box: Box) -> Box | None:
        """The box less what no set of levels below the target can be in; None if nothing is
        left.
        """
        low_cells, high_cells = np.array(box).T
        first_outer = int(np.searchsorted(self.axis, -self.needed, side="right"))
        last_outer = int(np.searchsorted(self.axis, self.needed, side="left")) - 1
        while True:
            low_before = low_cells
            high_before = high_cells
            low_cells = np.maximum.accumulate(low_cells)
            high_cells = np.minimum.accumulate(high_cells[::-1])[::-1]
            high_cells[0] = min(high_cells[0], first_outer)
            low_cells[-1] = max(low_cells[-1], last_outer)
            # Of two mirror images the one with y_1 + y_m <= 0 is enough.
            if (low_cells >= high_cells).any() or self.axis[low_cells[0]] + self.axis[
                low_cells[-1]
            ] > 0:
                return None
            first_cells = self.after[:, low_cells]
            is_able = first_cells < high_cells
            able_count = is_able.sum(axis=1)
            if not able_count.all():
                return None
            # Where only one level can meet a cut, it lies where it does.
            is_alone = is_able & (able_count == 1)[:, None]
            low_cells = np.where(is_alone, first_cells, low_cells).max(axis=0)
            high_cells = np.where(is_alone, self.before[:, high_cells], high_cells).min(axis=0)
            if (low_cells == low_before).all() and (high_cells == high_before).all():
                return tuple(zip(low_cells.tolist(), high_cells.tolist(), strict=True))

    def program(self, box: Box) -> tuple[FloatArray, FloatArray]:
        """Adds the cut of the best design on levels all over the box; these levels and their
        floors.
        """
        spans = sorted(set(box))
        points_per_span = max(3, _POINTS // len(spans))
        span_levels: list[FloatArray] = []
        for low_cell, high_cell in spans:
            span_levels.append(self._levels_in(low_cell, high_cell, points_per_span))
        levels = np.unique(np.concatenate(span_levels))
        outer = self.needed * (1 + 1e-9)
        ends = [min(levels[0], -outer), max(levels[-1], outer)]
        levels = np.unique(np.concatenate([ends, levels]))
        levels = distinct(levels, 1e-6)
        cut, floors = cut_at(levels, self.ratio, self.problem, doubt=self.target)
        self.add(cut)
        return levels, floors

    def _levels_in(
        self,
        low: int,
        high: int,
        count: int,
    ) -> FloatArray:
        """Levels all over the cells from `low` to `high`; in an outermost cell far out, too."""
        start = self.axis[low]
        stop = self.axis[high]
        if high == self.axis.size - 1:
            nearest = max(start, self.needed)
            return np.geomspace(max(start, 0.5), 3 * nearest, count)
        if low == 0:
            nearest = max(-stop, self.needed)
            return -np.geomspace(max(-stop, 0.5), 3 * nearest, count)
        return np.linspace(start, stop, count)

    def halves(
        self,
        box: Box,
        levels: FloatArray,
        floors: FloatArray,
    ) -> tuple[Box, Box] | None:
        """The box cut in two where the design on it spreads one level most; None if it is one set
        of cells.
        """
        widest = -1
        widest_spread = -math.inf
        split_level = 0.0
        for level_index, (low_cell, high_cell) in enumerate(box):
            if high_cell - low_cell < 2:
                continue
            above_start = levels >= self.axis[low_cell]
            is_inside = above_start & (levels <= self.axis[high_cell])
            weights = np.where(is_inside, floors, 0.0) + 1e-12
            level_mean = float(np.average(levels, weights=weights))
            spread = float(weights @ (levels - level_mean) ** 2)
            if spread > widest_spread:
                widest, widest_spread, split_level = level_index, spread, level_mean
        if widest < 0:
            return None
        low_cell, high_cell = box[widest]
        margin = (high_cell - low_cell) // 4
        middle_cell = int(np.searchsorted(self.axis, split_level))
        middle_cell = min(max(middle_cell, low_cell + 1), high_cell - 1)
        middle_cell = min(max(middle_cell, low_cell + margin), high_cell - margin)
        boxes_before = box[:widest]
        boxes_after = box[widest + 1 :]
        low_half, high_half = (low_cell, middle_cell), (middle_cell, high_cell)
        return (*boxes_before, low_half, *boxes_after), (*boxes_before, high_half, *boxes_after)

    def proves(self, target: float) -> bool:
        """Whether every box is emptied at this target before the time ends."""
        self.aim(target)
        everything = ((0, self.axis.size - 1),) * self.count
        boxes: list[tuple[Box, float]] = [(everything, 1.0)]
        emptied_share = 0.0
        while boxes:
            if time.monotonic() > self.deadline:
                return False
            box, box_share = boxes.pop()
            box_levels = box_floors = np.zeros(0)
            smaller = self.shrunk(box)
            if smaller is not None:
                with contextlib.suppress(ConvergenceError, np.linalg.LinAlgError):
                    box_levels, box_floors = self.program(smaller)
                smaller = self.shrunk(smaller)
            if smaller is None:
                emptied_share += box_share
                if self.progress is not None:
                    self.progress(emptied_share, 1.0)
                continue
            halves = self.halves(smaller, box_levels, box_floors)
            if halves is None:
                return False
            boxes.extend((half, box_share / 2) for half in halves)
        return True


def distinct(levels: FloatArray, distance: float) -> FloatArray:
    """Of increasing levels those farther than this from the one before."""
    steps = np.diff(levels, prepend=-math.inf)
    is_apart = steps > distance
    return levels[is_apart]


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
    if problem.loss == "cdf":
        remedy = 'with loss="cdf" every bound is proven, see scope: leave prove out'
        raise ParameterError("prove", True, remedy)
    rules = (
        (problem.is_pure, "ask for pure epsilon (no delta, alpha, metric)"),
        (not problem.max_bias, "allow no bias"),
        (problem.loss == "mse", "use loss mse"),
        (isinstance(problem.prior, priors.UniformPrior), "leave the prior out"),
    )
    changes = [change for holds, change in rules if not holds]
    if changes:
        remedy = (
            "proofs over all levels are for pure epsilon, no bias, uniform inputs and loss mse: "
            f"{', '.join(changes)}, or take a bound for any number of levels instead "
            "(design.limit; mezzotint compare), where there is one"
        )
        raise ParameterError("prove", True, remedy)


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
    level_reach = 1.6 * prover.needed + 0.4
    dense_levels = np.linspace(-level_reach, level_reach, 161)
    dense_cut, _ = cut_at(dense_levels, ratio, problem)
    best_bound = prover.add(dense_cut)
    least_value = float(prover.values[1].min())
    best_bound += min(0.0, least_value)
    cut_count = 2
    for relative_gap in _GAPS:
        target = loss * (1 - relative_gap)
        if target <= best_bound:
            continue
        if best_bound >= loss * (1 - least):
            break
        if not prover.proves(target):
            break
        best_bound, cut_count = target, len(prover.cuts)
    return Proven(
        bound=best_bound,
        proof=proof_of(prover=prover, epsilon=problem.epsilon, bound=best_bound, needed=cut_count),
        programs=prover.programs,
    )


def _scaled_integers(values: FloatArray) -> npt.NDArray[np.object_]:
    """The integers next to values * 2**_SCALE."""
    scaled = np.rint(np.ldexp(values, _SCALE))
    integers = [int(value) for value in scaled.flat]
    return np.array(integers, dtype=object).reshape(values.shape)


def _document_of(cut: Cut) -> JsonObject:
    edges = _scaled_integers(cut.edges)
    roots = _scaled_integers(cut.roots)
    is_wide = np.append(np.diff(edges) > 0, True)
    return {
        "edges": edges[is_wide].tolist(),
        "roots": roots[is_wide[:-1]].tolist(),
        "ends": _scaled_integers(cut.ends).tolist(),
    }


def proof_of(
    prover: Prover,
    epsilon: float,
    bound: float,
    needed: int,
) -> JsonObject:
    """The claim file of a bound (kind `dual`, docs/proofs/design.md): one of each two mirrored cuts
    needed, rounded.
    """
    cuts = itertools.islice(prover.cuts, 0, needed, 2)
    return bound_document(
        levels=prover.count,
        epsilon=Fraction(epsilon),
        scale=_SCALE,
        axis=_scaled_integers(prover.axis[1:-1]).tolist(),
        value=f"{bound * (1 - _PROOF_ROUNDING):.10f}",
        cuts=[_document_of(cut) for cut in cuts],
    )
