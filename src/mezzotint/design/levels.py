"""Which levels? Whether given ones are feasible at all, and the search: by windows, or with
gradients of a program.

Searching levels and floors together, windows make a mechanism 2m numbers without constraints: the
affine map of the levels that makes the windows reach exactly from -1 to 1 is applied to whatever is
tried, so every point is feasible. Many starts go downhill together, in one batch.

Feasibility is settled in closed form before any solver runs. Send each level of a feasible
mechanism at random to the lowest or the highest level so that its mean is kept. That is
post-processing, so the privacy holds, and the means hold. Hence levels B_1 < ... < B_m are feasible
iff the two-level mechanism on {B_1, B_m} is, which its means determine.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple, final

import numpy as np
from scipy import optimize
from scipy.linalg import block_diag

from mezzotint.core.arguments import check_finite
from mezzotint.core.errors import InfeasibleError, ParameterError, SolverError, outside
from mezzotint.core.laws import Law, cell_means, law_of
from mezzotint.core.priors import SamplePrior, UniformPrior
from mezzotint.core.search import Objective, bracket, descend
from mezzotint.core.types import TOTAL, FloatArray
from mezzotint.design.floor_search import overhang
from mezzotint.design.problem import Problem
from mezzotint.design.program import KnottedProblem, solve_pairs
from mezzotint.design.windows import Value, Windows, average, make_windows, outer_rows, peaks

_MOST_STARTS = 16
_STEPS = (60, 40, 40)
"""Steps downhill: from all starts, then from around the best; the last round for "minimax" only."""
_AROUND = 4
_NOISE = 0.25
_NEARBY_NOISE = 0.02
_SHARPNESS = (100.0, 2000.0, 30000.0)
"""How closely a smooth maximum follows the largest error over the inputs, in each round."""
_TOO_FAR = 1e3
"""Price of the squared distance by which levels lie beyond the largest."""

_MOST_SPLITS = 60
_LARGEST_LOG_GAP = 12.0


class _Unpacked(NamedTuple):
    """Levels up to an affine map, floors, and the derivative of their sum by its logit, relative to
    the sum.
    """

    levels: FloatArray
    floors: FloatArray
    growth: FloatArray


class _AffineMap(NamedTuple):
    """Levels above the least mean, the (B, 1) slope that makes the means reach 2 far, the (B, 2, m)
    outer rows.
    """

    above: FloatArray
    slope: FloatArray
    outer_rows: FloatArray

    @property
    def levels(self) -> FloatArray:
        """Levels whose windows reach exactly from -1 to 1."""
        return self.slope * self.above - 1


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """The search space: m logits of the floors' shares, one of their sum, m - 1 logarithms of gaps.

    Levels farther from the middle than `largest` are penalised; the `sharpness` is that of a smooth
    maximum.
    """

    count: int
    law: Law
    ratio: float
    loss: str
    largest: float
    sharpness: float

    def unpack(self, points: FloatArray) -> _Unpacked:
        """Levels from 0 on, floors that sum to between 1 / ratio and 1, and the sum's relative
        growth, of (n, 2 m) points without bounds.
        """
        level_count = self.count
        logits = points[:, :level_count]
        largest_logits = logits.max(axis=1, keepdims=True)
        floor_shares = np.exp(logits - largest_logits)
        floor_shares /= floor_shares.sum(axis=1, keepdims=True)
        least_sum = 1 / self.ratio
        sum_logits = points[:, level_count : level_count + 1]
        logistic = 1 / (1 + np.exp(-sum_logits))
        floor_sum = least_sum + (1 - least_sum) * logistic
        raw_gaps = points[:, level_count + 1 :]
        log_gaps = np.clip(raw_gaps, -_LARGEST_LOG_GAP, _LARGEST_LOG_GAP)
        positions = np.cumsum(np.exp(log_gaps), axis=1)
        origin = np.zeros((len(points), 1))
        unit_levels = np.concatenate([origin, positions], axis=1)
        growth = (1 - least_sum) * logistic * (1 - logistic) / floor_sum
        return _Unpacked(unit_levels, floor_sum * floor_shares, growth)

    def _map(self, unpacked: _Unpacked) -> _AffineMap:
        rows, means = outer_rows(unpacked.levels, unpacked.floors, self.ratio)
        least_means = means[:, :1]
        reach = np.maximum(means[:, 1:] - least_means, 1e-12)
        return _AffineMap(unpacked.levels - least_means, 2 / reach, rows)

    def levels(self, points: FloatArray) -> FloatArray:
        return self._map(self.unpack(points)).levels

    def __call__(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The logarithm of the loss, and its derivatives."""
        unpacked = self.unpack(points)
        affine = self._map(unpacked)
        split = self.loss == "mae"
        windows = make_windows(affine.levels, unpacked.floors, self.ratio, split=split)
        value = self._loss(windows)
        distances = np.abs(affine.levels)
        beyond = np.maximum(distances - self.largest, 0.0)
        squares = (beyond**2).sum(axis=1)
        penalty = 1 + 0.5 * _TOO_FAR * squares
        outward = np.sign(affine.levels)
        penalty_slope = _TOO_FAR * beyond * outward / penalty[:, None]
        by_level = value.by_level / value.loss[:, None] + penalty_slope
        by_floor = value.by_floor / value.loss[:, None]
        # Through the affine map: both ends of the reach move with levels and floors.
        low_by_floor, high_by_floor = self._end_slopes(unpacked)
        stretched = (by_level * affine.above).sum(axis=1, keepdims=True)
        turn = 0.5 * affine.slope**2 * stretched
        shift = affine.slope * by_level.sum(axis=1, keepdims=True)
        low_row = affine.outer_rows[:, 0]
        high_row = affine.outer_rows[:, 1]
        low_turn = turn - shift
        by_level = affine.slope * by_level + low_turn * low_row - turn * high_row
        by_floor = by_floor + low_turn * low_by_floor - turn * high_by_floor
        # Through the logits of the floors and the logarithms of the gaps.
        floors = unpacked.floors
        by_sum = (floors * by_floor).sum(axis=1, keepdims=True)
        floor_sum = floors.sum(axis=1, keepdims=True)
        by_logit = floors * (by_floor - by_sum / floor_sum)
        sums_from_above = np.cumsum(by_level[:, ::-1], axis=1)
        by_all_above = sums_from_above[:, ::-1]
        gaps = np.diff(unpacked.levels, axis=1)
        by_gap = gaps * by_all_above[:, 1:]
        by_total = by_sum * unpacked.growth
        slopes = np.concatenate([by_logit, by_total, by_gap], axis=1)
        return np.log(value.loss * penalty), slopes

    def _end_slopes(self, unpacked: _Unpacked) -> tuple[FloatArray, FloatArray]:
        """(B, m) derivatives by the floors of the least and of the largest mean."""
        levels, floors, _ = unpacked
        level_index = np.arange(self.count)
        segments = (self.ratio - 1) * floors
        ends = np.cumsum(segments, axis=1)
        spare = 1 - floors.sum(axis=1, keepdims=True)
        # The segments in which the first window ends and the last one starts.
        first_segment = (ends <= spare).sum(axis=1, keepdims=True)
        first_segment = np.minimum(first_segment, self.count - 1)
        last_start = ends[:, -1:] - spare
        last_segment = (ends <= last_start).sum(axis=1, keepdims=True)
        last_segment = np.minimum(last_segment, self.count - 1)
        low_weight = np.where(level_index < first_segment, self.ratio, 1.0)
        high_weight = np.where(level_index > last_segment, self.ratio, 1.0)
        low_pivot = np.take_along_axis(levels, first_segment, axis=1)
        high_pivot = np.take_along_axis(levels, last_segment, axis=1)
        low_slope = low_weight * (levels - low_pivot)
        high_slope = high_weight * (levels - high_pivot)
        return low_slope, high_slope

    def _loss(self, windows: Windows) -> Value:
        """The loss; for "minimax" a smooth maximum of the largest errors of the pieces."""
        if self.loss != "minimax":
            return average(windows, self.law, self.loss)
        _, peak = peaks(windows)
        errors = peak.loss
        largest = errors.max(axis=1, keepdims=True)
        weights = np.exp(self.sharpness * (errors / largest - 1))
        total = weights.sum(axis=1, keepdims=True)
        log_mean = np.log(total[:, 0] / errors.shape[1])
        smooth = largest[:, 0] * (1 + log_mean / self.sharpness)
        weights /= total
        # The sharpness is relative to the largest error, which moves with it.
        piece = errors.argmax(axis=1)
        weighted_errors = (weights * errors).sum(axis=1)
        by_largest = (smooth - weighted_errors) / largest[:, 0]
        weights[np.arange(len(errors)), piece] += by_largest
        weights = weights[:, :, None]
        return Value(
            loss=smooth,
            by_level=(weights * peak.by_level).sum(axis=1),
            by_floor=(weights * peak.by_floor).sum(axis=1),
        )


def _cluster_sizes(count: int) -> list[tuple[int, int, int]]:
    """Numbers of levels low, in the middle, and high; of very many only some that differ little."""
    sizes: list[tuple[int, int, int]] = []
    for low_count, high_count in itertools.product(range(1, count), repeat=2):
        if low_count + high_count <= count:
            sizes.append((low_count, count - low_count - high_count, high_count))
    if len(sizes) <= _MOST_SPLITS:
        return sizes
    balanced = [
        cluster_size for cluster_size in sizes if abs(cluster_size[0] - cluster_size[2]) <= 1
    ]
    return balanced[:: max(1, count // _MOST_SPLITS)]


def _starts(
    count: int,
    ratio: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Clusters of levels around the two least far ones and in the middle, of all sizes; and noisy
    copies.
    """
    outermost = 1 + overhang(ratio)
    points: list[FloatArray] = []
    for low_count, middle_count, high_count in _cluster_sizes(count):
        cluster_counts = [low_count, middle_count, high_count]
        sizes = np.repeat(cluster_counts, cluster_counts)
        shares = np.repeat([0.42, 0.16, 0.42], cluster_counts) / sizes
        low_levels = -outermost * np.linspace(0.65, 1.35, low_count)
        high_levels = outermost * np.linspace(0.65, 1.35, high_count)
        middle_levels = np.linspace(-0.3, 0.3, middle_count)
        all_levels = [low_levels, middle_levels, high_levels]
        levels = np.sort(np.concatenate(all_levels))
        gaps = np.maximum(np.diff(levels), 1e-2)
        logits = np.log(shares / shares.sum())
        point = np.concatenate([logits, [0.0], np.log(gaps)])
        points.append(point)
    exact_points = np.array(points)
    noisy_points = exact_points + _NOISE * rng.normal(size=exact_points.shape)
    # Mirror images too: the search must not prefer a side.
    mirrored = [
        noisy_points[:, :count][:, ::-1],
        noisy_points[:, count : count + 1],
        noisy_points[:, count + 1 :][:, ::-1],
    ]
    mirrored_points = np.concatenate(mirrored, axis=1)
    return np.concatenate([exact_points, noisy_points, mirrored_points])


def _mirrored(count: int) -> FloatArray:
    """(2m, n) what makes symmetric points of the numbers of one half."""
    blocks = []
    for size in (count, 1, count - 1):
        index = np.arange(size)
        fold = np.minimum(index, index[::-1])
        half_identity = np.eye(size)[:, : (size + 1) // 2]
        blocks.append(half_identity[fold])
    return np.asarray(block_diag(*blocks))


def search(
    count: int,
    law: Law,
    ratio: float,
    loss: str,
    *,
    largest: float = np.inf,
    symmetric: bool = False,
) -> FloatArray:
    """The best `count` levels found (centred units), from all sizes of clusters; symmetric ones
    alone, or others too.

    A deterministic multistart that proves nothing; mirrored inputs have mirrored levels.
    """
    law, side = law.leaning_left()
    rng = np.random.default_rng(count)
    shapes = [np.eye(2 * count), _mirrored(count)]
    if symmetric:
        shapes = [_mirrored(count)]
    elif count < 5:
        shapes = [np.eye(2 * count)]
    space = Space(
        count=count,
        law=law,
        ratio=ratio,
        loss=loss,
        largest=largest,
        sharpness=_SHARPNESS[0],
    )
    results = [_searched_shape(space, shape, rng) for shape in shapes]
    _, levels = min(results, key=itemgetter(0))
    return side * levels[::side]


def _searched_shape(
    space: Space,
    shape: FloatArray,
    rng: np.random.Generator,
) -> tuple[float, FloatArray]:
    """The least value found among points that `shape` makes of fewer numbers, and its levels."""
    start_count = _MOST_STARTS if space.count < 5 else 3 * _MOST_STARTS // 2
    starts = _starts(space.count, space.ratio, rng)
    points = starts @ np.linalg.pinv(shape).T
    best_levels = (math.inf, np.zeros(space.count))
    round_count = 3 if space.loss == "minimax" else 2
    rounds = zip(_STEPS[:round_count], _SHARPNESS[:round_count], strict=True)
    for steps, sharpness in rounds:
        objective = _shaped(replace(space, sharpness=sharpness), shape)
        point_values, _ = objective(points)
        value_order = np.argsort(point_values)[:start_count]
        point_values, points = descend(objective, points[value_order], steps)
        value_order = np.argsort(point_values)
        winners = points[value_order[:3]]
        best_levels = (
            float(point_values[value_order[0]]),
            space.levels(points[value_order[:1]] @ shape.T)[0],
        )
        nearby = [winners + _NEARBY_NOISE * rng.normal(size=winners.shape) for _ in range(_AROUND)]
        points = np.concatenate([winners, *nearby])
    return best_levels


def _shaped(space: Space, shape: FloatArray) -> Objective:
    """A space's objective in fewer numbers: `shape` (2m, n) makes points of them."""

    def objective(numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
        values, slopes = space(numbers @ shape.T)
        return values, slopes @ shape

    return objective


def two_levels_hold(
    problem: Problem,
    bottom: float,
    top: float,
    knots: FloatArray,
) -> bool:
    """Whether reports of two levels can have the means that the problem asks for, privately."""
    if problem.constraint.by_distance:
        return problem.constraint.holds(bottom, top, knots)
    # With a bias budget the two ends may lean towards each other.
    low_aim = min(problem.lower + problem.max_bias, top)
    high_aim = max(problem.upper - problem.max_bias, bottom)
    if low_aim < bottom or high_aim > top:
        return False
    if low_aim >= high_aim:
        return True
    aims = np.array([low_aim, high_aim])
    return problem.constraint.holds(bottom, top, aims)


def required_overhang(problem: Problem, knots: FloatArray) -> float:
    """How far the outer levels must reach beyond the range, the same on both sides, data units; inf
    if no reach does.

    For pure epsilon and no bias it is (upper - lower) / (e**epsilon - 1) on each side.
    """

    def holds(overhang: float) -> bool:
        return two_levels_hold(
            problem=problem,
            bottom=problem.lower - overhang,
            top=problem.upper + overhang,
            knots=knots,
        )

    if problem.is_pure and problem.max_bias == 0:
        return problem.width / math.expm1(problem.epsilon)
    within = -problem.width / 2 * (1 - 1e-12)
    reach = problem.width
    if holds(within):
        return within
    while not holds(reach):
        reach *= 4
        if reach > 1e12 * problem.width:
            return math.inf
    smallest_reach, _ = bracket(holds, reach, within)
    return smallest_reach


def unit_effect(levels: FloatArray) -> float:
    """What one unit of 2**-32 moves a mean of these levels by, at most."""
    lowest = float(levels[0])
    highest = float(levels[-1])
    return highest / TOTAL - lowest / TOTAL


def most_unit_effect(problem: Problem) -> float:
    """The largest such effect for which integers tell inputs apart: an eighth of the range."""
    return problem.width / 8


def check_units(problem: Problem, levels: FloatArray) -> None:
    """Raises InfeasibleError for levels so far apart that integers do not tell inputs apart."""
    effect = unit_effect(levels)
    if effect > most_unit_effect(problem):
        raise InfeasibleError(
            f"levels=[{levels[0]:g} .. {levels[-1]:g}]: one unit of 2**-32 moves a mean by "
            f"{effect:.2g}, more than an eighth of the range "
            f"[{problem.lower:g}, {problem.upper:g}]; bring the levels nearer, or raise epsilon"
        )


def check_reach(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray,
) -> None:
    """Raises InfeasibleError, saying what is missing, if no mechanism on these levels meets the
    problem.
    """
    check_units(problem, levels)
    lowest = float(levels[0])
    highest = float(levels[-1])
    range_text = f"[{problem.lower:g}, {problem.upper:g}]"
    if math.isinf(problem.max_bias) or two_levels_hold(
        problem=problem, bottom=lowest, top=highest, knots=knots
    ):
        return
    needed = required_overhang(problem, knots)
    kind = "unbiased" if problem.max_bias == 0 else f"within a bias of {problem.max_bias:g}"
    problem_text = (
        f"levels=[{lowest:g} .. {highest:g}]: no mechanism on them is {kind} at "
        f"epsilon={problem.epsilon:g}"
    )
    if math.isinf(needed):
        raise InfeasibleError(
            f"{problem_text}, however far they reach; raise epsilon, use fewer knots or allow "
            "max_bias"
        )
    reach_below = problem.lower - lowest
    reach_above = highest - problem.upper
    extensions: list[str] = []
    if reach_below < needed:
        extensions.append(f"{needed - reach_below:.6g} more below lower")
    if reach_above < needed:
        extensions.append(f"{needed - reach_above:.6g} more above upper")
    raise InfeasibleError(
        f"{problem_text}: the outer levels must reach {needed:.6g} beyond the range {range_text} "
        f"on both sides, but reach {reach_below:.6g} below and {reach_above:.6g} above; extend "
        f"them by {' and '.join(extensions) or 'a little'}, raise epsilon or allow max_bias"
    )


_FEW_KNOTS = 9
_MANY_POINTS = 4096
_CLOSEST = 1e-4
"""Levels stay this far apart (units of half the range) during the search."""

_NO_SOLUTION = 1e9
"""The value of levels on which the solver finds no table."""


class UnboundedLevelsWarning(UserWarning):
    """The loss keeps falling as the outer levels grow: a bound was assumed. Give `max_level` to
    choose it.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     result = mz.design.optimal(epsilon=1.0, levels=2, loss="mae")
        >>> caught[0].category.__name__
        'UnboundedLevelsWarning'
    """


def level_bounds(
    problem: Problem,
    max_level: float | None,
    knots: FloatArray | None = None,
) -> tuple[float, float]:
    """Least and largest distance of the outer levels from the middle of the range, centred units.

    For loss "mae" without `max_level` twice the required overhang is assumed, with an
    UnboundedLevelsWarning. Knots matter for metrics only.
    """
    half_range = problem.width / 2
    inputs = knots
    if inputs is None:
        inputs = np.array([problem.lower, problem.upper])
    overhang = 0.0
    if not math.isinf(problem.max_bias):
        overhang = required_overhang(problem, inputs) / half_range
    if math.isinf(overhang):
        raise InfeasibleError(
            f"epsilon={problem.epsilon:g}: no levels, however far, are enough; use fewer knots"
        )
    nearest = 1 + overhang
    if max_level is not None:
        farthest = check_finite("max_level", max_level) / half_range
        if not farthest >= nearest * (1 + 1e-9):
            remedy = (
                f"levels must reach {nearest * half_range:.6g} from the middle of the range at "
                f"epsilon={problem.epsilon:g}"
            )
            raise ParameterError("max_level", max_level, remedy)
        return nearest, farthest
    if problem.loss != "mae" or math.isinf(problem.max_bias):
        return nearest, max(4 * nearest, 8.0)
    farthest = 1 + 2 * max(overhang, 0.5)
    warnings.warn(
        "the mean absolute error keeps falling as the outer levels go to infinity with vanishing "
        f"probability; levels are kept within {farthest * half_range:.6g} of the middle of the "
        "range: set max_level (--max-level), or use loss='mse' (--loss mse)",
        UnboundedLevelsWarning,
        stacklevel=outside(),
    )
    return nearest, farthest


def value_and_gradient(
    problem: Problem,
    knots: FloatArray,
    levels: FloatArray,
) -> tuple[float, FloatArray]:
    """Optimal loss on these knots and its gradient in the levels, data units; minimax has its value
    only.

    Envelope theorem: at an optimum the derivative of the value is that of the Lagrangian,
    dV/dB_i = sum_k P[k, i] (dC[k, i]/dB_i + v_k), with v_k the multiplier of row k's mean.
    """
    half_range = problem.width / 2
    costs = problem.costs(knots, levels)
    setting = KnottedProblem(
        problem=problem,
        levels=levels,
        knots=knots,
        costs=costs,
    )
    solution, _ = solve_pairs(setting, problem.epsilon)
    if problem.loss == "minimax":
        return solution.value * half_range**2, np.zeros_like(levels)
    # Costs are quadratic in the level for the MSE, so central differences are exact; for the MAE
    # they are once differentiable wherever the prior has no point mass.
    narrowest_gap = float(np.diff(levels).min())
    level_step = min(1e-5 * problem.width, narrowest_gap / 4)
    costs_above = problem.costs(knots, levels + level_step)
    costs_below = problem.costs(knots, levels - level_step)
    slopes = (costs_above - costs_below) / (2 * level_step)
    gradient = (solution.rows * slopes).sum(axis=0)
    if problem.max_bias < math.inf:
        knot_count = knots.size
        multipliers = solution.dual[knot_count : 2 * knot_count]
        if problem.max_bias > 0:
            multipliers = multipliers - solution.dual[2 * knot_count : 3 * knot_count]
        units = problem.centered(levels)
        farthest = float(np.abs(units).max())
        mean_scale = half_range * max(1.0, farthest)
        gradient = gradient + multipliers @ solution.rows / mean_scale
    return solution.value, gradient


def symmetric_levels(
    epsilon: float,
    count: int,
    *,
    lower: float,
    upper: float,
) -> FloatArray:
    """The best `count` levels found that are their own mirror image, for the largest MSE; data
    units.
    """
    law = law_of(UniformPrior(), lower, upper)
    half_range = (upper - lower) / 2
    units = search(count=count, law=law, ratio=math.exp(epsilon), loss="minimax", symmetric=True)
    nearest = (1 + 2 / math.expm1(epsilon)) * (1 + 1e-12)
    units[0] = min(units[0], -nearest)
    units[-1] = max(units[-1], nearest)
    return lower + half_range + units * half_range


def _descended(
    problem: Problem,
    knots: FloatArray,
    start: FloatArray,
    least: float,
    largest: float,
) -> tuple[float, FloatArray]:
    """Best (value, levels in centred units) that SLSQP finds from `start`; the value is in units of
    half the range.
    """
    half_range = problem.width / 2
    loss_unit = half_range if problem.loss == "mae" else half_range**2
    best_result = (math.inf, start)

    def evaluate(units: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best_result
        levels = problem.center + units * half_range
        try:
            value, gradient = value_and_gradient(problem, knots, levels)
        except SolverError:
            return _NO_SOLUTION, np.zeros_like(units)
        if value / loss_unit < best_result[0]:
            best_result = (value / loss_unit, units.copy())
        return value / loss_unit, gradient * (half_range / loss_unit)

    constraints = [_ordered_within(start.size, least, largest)]
    options: dict[str, float] = {"maxiter": 25, "ftol": 1e-10}
    minimize = partial(
        optimize.minimize, x0=start, method="SLSQP", constraints=constraints, options=options
    )
    if problem.loss == "minimax":
        # The multipliers of the largest error weigh the levels too: its slopes are differences.
        options["eps"] = 1e-6
        minimize(lambda units: evaluate(units)[0], jac="2-point")
    else:
        minimize(evaluate, jac=True)
    return best_result


def _ordered_within(count: int, least: float, largest: float) -> dict[str, object]:
    """SLSQP's constraint on levels in order, the outer ones between these distances."""
    identity = np.eye(count)
    signs = np.array([[-1.0], [1.0]])
    outer = identity[[0, -1]] * signs
    gaps = np.diff(identity, axis=0)
    slopes = np.concatenate([gaps, outer, -outer])
    order_offset = np.full(count - 1, -_CLOSEST)
    nearest_offset = np.full(2, -least * (1 + 1e-7))
    farthest_offset = np.full(2, largest)
    offsets = np.concatenate([order_offset, nearest_offset, farthest_offset])
    return {
        "type": "ineq",
        "fun": lambda units: slopes @ units + offsets,
        "jac": lambda units: slopes,
    }


def search_levels(
    problem: Problem,
    count: int,
    *,
    max_level: float | None,
    knots: FloatArray | None = None,
) -> FloatArray:
    """The best `count` levels found, up to `max_level` from the middle of the range; a search
    proves nothing.

    `knots` are the inputs that the design will use; None lets the search choose.
    """
    inputs = np.linspace(problem.lower, problem.upper, _FEW_KNOTS)
    if problem.constraint.by_distance and knots is not None:
        inputs = knots
    half_range = problem.width / 2
    nearest, farthest = level_bounds(problem, max_level, inputs)
    if problem.is_pure and problem.max_bias == 0:
        return problem.center + _pure_levels(problem, count, nearest, farthest) * half_range
    if isinstance(problem.prior, SamplePrior) and problem.prior.points.size > _MANY_POINTS:
        means = cell_means(problem.prior, problem.lower, problem.upper)
        problem = replace(problem, prior=means)
    # Levels that reach barely far enough leave the solver no interior.
    nearest *= 1 + 1e-4
    results: list[tuple[float, FloatArray]] = []
    for stretch in (1.1, 1.5):
        outermost = min(stretch * nearest, farthest)
        start_units = np.linspace(-1, 1, count) * outermost
        results.append(
            _descended(
                problem=problem, knots=inputs, start=start_units, least=nearest, largest=farthest
            )
        )
    _, units = min(results, key=itemgetter(0))
    return problem.center + units * half_range


def _pure_levels(
    problem: Problem,
    count: int,
    nearest: float,
    farthest: float,
) -> FloatArray:
    """Levels (centred units) for pure epsilon without bias."""
    units = np.array([-nearest, nearest])
    # Two levels a, b: the errors (b - x)(x - a) and 2 (b - x)(x - a) / (b - a) grow as either level
    # moves out.
    if count > 2:
        law = law_of(problem.prior, problem.lower, problem.upper)
        units = search(
            count=count,
            law=law,
            ratio=math.exp(problem.epsilon),
            loss=problem.loss,
            largest=farthest,
        )
        units = np.clip(units, -farthest, farthest)
    # The search meets its bounds up to its own tolerance only; outer levels must reach far enough
    # in floats too.
    largest_input = max(abs(problem.lower), abs(problem.upper))
    grain = 8 * math.ulp(largest_input) / (problem.width / 2)
    needed = nearest + 1e-9 * (nearest - 1) + grain
    units[0] = min(units[0], -needed)
    units[-1] = max(units[-1], needed)
    return units
