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
import sys
import warnings
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from scipy import optimize
from scipy.linalg import block_diag

from mezzotint.core.arguments import check_finite
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.priors import Law, SamplePrior, UniformPrior, cell_means, law_of
from mezzotint.core.search import bracket, descend
from mezzotint.core.types import TOTAL, FloatArray
from mezzotint.design.floors import Windows, average, make_windows, outer_rows, overhang, peaks
from mezzotint.design.problem import Problem
from mezzotint.design.program import KnottedProblem, solve_pairs
from mezzotint.design.solver import SolverError

_MOST_STARTS = 16
_STEPS = (60, 40, 40)
"""Steps downhill: from all starts, then from around the best; the last round for "minimax" only."""
_AROUND = 4
_NOISE = 0.25
_NEAR = 0.02
_SHARPNESS = (100.0, 2000.0, 30000.0)
"""How closely a smooth maximum follows the largest error over the inputs, in each round."""
_TOO_FAR = 1e3


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

    def unpack(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Levels up to an affine map, floors, and the derivative of their sum by its logit,
        relative to the sum.
        """
        m = self.count
        share = np.exp(points[:, :m] - points[:, :m].max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        logistic = 1 / (1 + np.exp(-points[:, m : m + 1]))
        total = 1 / self.ratio + (1 - 1 / self.ratio) * logistic
        gaps = np.exp(np.clip(points[:, m + 1 :], -12, 12))
        levels = np.concatenate([np.zeros((len(points), 1)), np.cumsum(gaps, axis=1)], axis=1)
        return levels, total * share, (1 - 1 / self.ratio) * logistic * (1 - logistic) / total

    def _reach(
        self, levels: FloatArray, floors: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Levels above the least mean, the (B, 1) slope that makes the means reach 2 far, the (B,
        2, m) outer rows.
        """
        rows, means = outer_rows(levels, floors, self.ratio)
        return levels - means[:, :1], 2 / np.maximum(means[:, 1:] - means[:, :1], 1e-12), rows

    def levels(self, points: FloatArray) -> FloatArray:
        levels, floors, _ = self.unpack(points)
        above, slope, _ = self._reach(levels, floors)
        return slope * above - 1

    def __call__(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The logarithm of the loss, and its derivatives."""
        levels, floors, growth = self.unpack(points)
        above, slope, rows = self._reach(levels, floors)
        mapped = slope * above - 1
        loss, by_level, by_floor = self._loss(
            make_windows(mapped, floors, self.ratio, split=self.loss == "mae")
        )
        beyond = np.maximum(np.abs(mapped) - self.largest, 0.0)
        factor = 1 + 0.5 * _TOO_FAR * (beyond**2).sum(axis=1)
        by_level = by_level / loss[:, None] + _TOO_FAR * beyond * np.sign(mapped) / factor[:, None]
        loss, by_floor = loss * factor, by_floor / loss[:, None]
        # Through the affine map: both ends of the reach move with levels and floors.
        low, high = rows[:, 0], rows[:, 1]
        index, total = np.arange(self.count), floors.sum(axis=1, keepdims=True)
        ends, spare = np.cumsum((self.ratio - 1) * floors, axis=1), 1 - total
        # The rooms in which the first window ends and the last one starts.
        first, last = (
            np.minimum((ends <= place).sum(axis=1, keepdims=True), self.count - 1)
            for place in (spare, ends[:, -1:] - spare)
        )
        low_by_floor = np.where(index < first, self.ratio, 1.0) * (
            levels - np.take_along_axis(levels, first, axis=1)
        )
        high_by_floor = np.where(index > last, self.ratio, 1.0) * (
            levels - np.take_along_axis(levels, last, axis=1)
        )
        turn = 0.5 * slope**2 * (by_level * above).sum(axis=1, keepdims=True)
        shift = slope * by_level.sum(axis=1, keepdims=True)
        by_level = slope * by_level + (turn - shift) * low - turn * high
        by_floor = by_floor + (turn - shift) * low_by_floor - turn * high_by_floor
        pull = (floors * by_floor).sum(axis=1, keepdims=True)
        after = np.cumsum(by_level[:, ::-1], axis=1)[:, ::-1]
        return np.log(loss), np.concatenate(
            [
                floors * (by_floor - pull / total),
                pull * growth,
                np.diff(levels, axis=1) * after[:, 1:],
            ],
            axis=1,
        )

    def _loss(self, windows: Windows) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self.loss != "minimax":
            value = average(windows, self.law, self.loss)
            return value.loss, value.by_level, value.by_floor
        _, errors, by_level, by_floor = peaks(windows)
        most = errors.max(axis=1, keepdims=True)
        weights = np.exp(self.sharpness * (errors / most - 1))
        total = weights.sum(axis=1, keepdims=True)
        smooth = most[:, 0] * (1 + np.log(total[:, 0] / errors.shape[1]) / self.sharpness)
        weights /= total
        # The sharpness is relative to the largest error, which moves with it.
        top, rows = errors.argmax(axis=1), np.arange(len(errors))
        weights[rows, top] += (smooth - (weights * errors).sum(axis=1)) / most[:, 0]
        weights = weights[:, :, None]
        return smooth, (weights * by_level).sum(axis=1), (weights * by_floor).sum(axis=1)


def _starts(count: int, ratio: float, rng: np.random.Generator) -> FloatArray:
    """Clusters of levels around the two least far ones and in the middle, of all sizes; and noisy
    copies.
    """
    far = 1 + overhang(ratio)
    rows = []
    splits = [
        (low, count - low - high, high)
        for low, high in itertools.product(range(1, count), repeat=2)
    ]
    splits = [split for split in splits if split[1] >= 0]
    if len(splits) > 60:  # many levels: sizes that differ little
        splits = [split for split in splits if abs(split[0] - split[2]) <= 1][
            :: max(1, count // 60)
        ]
    for low, middle, high in splits:
        sizes = np.repeat([low, max(middle, 1), high], [low, middle, high])
        share = np.repeat([0.42, 0.16, 0.42], [low, middle, high]) / sizes
        outer = [
            centre * far * np.linspace(0.65, 1.35, size) for centre, size in ((-1, low), (1, high))
        ]
        levels = np.sort(np.concatenate([outer[0], np.linspace(-0.3, 0.3, middle), outer[1]]))
        gaps = np.maximum(np.diff(levels), 1e-2)
        rows.append(np.concatenate([np.log(share / share.sum()), [0.0], np.log(gaps)]))
    plain = np.array(rows)
    noisy = plain + _NOISE * rng.normal(size=plain.shape)
    # Mirror images too: the search must not prefer a side.
    mirrored = [
        noisy[:, :count][:, ::-1],
        noisy[:, count : count + 1],
        noisy[:, count + 1 :][:, ::-1],
    ]
    return np.concatenate([plain, noisy, np.concatenate(mirrored, axis=1)])


def _mirrored(count: int) -> FloatArray:
    """(2m, n) what makes symmetric points of the numbers of one half."""
    blocks = []
    for size in (count, 1, count - 1):
        fold = np.minimum(np.arange(size), np.arange(size)[::-1])
        blocks.append(np.eye(size)[:, : (size + 1) // 2][fold])
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
    best: list[tuple[float, FloatArray]] = []
    shapes = [np.eye(2 * count)] if count < 5 else [np.eye(2 * count), _mirrored(count)]
    for shape in [_mirrored(count)] if symmetric else shapes:
        points = _starts(count, ratio, rng) @ np.linalg.pinv(shape).T
        for steps, sharpness in list(zip(_STEPS, _SHARPNESS, strict=True))[
            : 3 if loss == "minimax" else 2
        ]:
            space = Space(
                count=count, law=law, ratio=ratio, loss=loss, largest=largest, sharpness=sharpness
            )

            def objective(
                at: FloatArray, space: Space = space, shape: FloatArray = shape
            ) -> tuple[FloatArray, FloatArray]:
                values, slopes = space(at @ shape.T)
                return values, slopes @ shape

            values = objective(points)[0]
            order = np.argsort(values)[: _MOST_STARTS if count < 5 else 3 * _MOST_STARTS // 2]
            values, points = descend(objective, points[order], steps)
            order = np.argsort(values)
            near = [
                points[order[:3]] + _NEAR * rng.normal(size=points[order[:3]].shape)
                for _ in range(_AROUND)
            ]
            winner = (float(values[order[0]]), space.levels(points[order[:1]] @ shape.T)[0])
            points = np.concatenate([points[order[:3]], *near])
        best.append(winner)
    return side * min(best, key=lambda pair: pair[0])[1][::side]


def two_levels_hold(problem: Problem, bottom: float, top: float, knots: FloatArray) -> bool:
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
    return problem.constraint.holds(bottom, top, np.array([low_aim, high_aim]))


def required_overhang(problem: Problem, knots: FloatArray) -> float:
    """How far the outer levels must reach beyond the range, the same on both sides, data units; inf
    if no reach does.

    For pure epsilon and no bias it is (upper - lower) / (e**epsilon - 1) on each side.
    """

    def holds(overhang: float) -> bool:
        return two_levels_hold(problem, problem.lower - overhang, problem.upper + overhang, knots)

    if problem.is_pure and problem.max_bias == 0:
        return problem.width / math.expm1(problem.epsilon)
    low, high = -problem.width / 2 * (1 - 1e-12), problem.width
    if holds(low):
        return low
    while not holds(high):
        high *= 4
        if high > 1e12 * problem.width:
            return math.inf
    return bracket(holds, high, low)[0]


def check_reach(problem: Problem, levels: FloatArray, knots: FloatArray) -> None:
    """Raises InfeasibleError, saying what is missing, if no mechanism on these levels meets the
    problem.
    """
    grain = float(levels[-1] / TOTAL - levels[0] / TOTAL)
    if grain > problem.width / 8:
        raise InfeasibleError(
            f"levels=[{levels[0]:g} .. {levels[-1]:g}]: one unit of 2**-32 moves a mean by {grain:.2g}, more than an "
            f"eighth of the range [{problem.lower:g}, {problem.upper:g}]; bring the levels nearer, or raise epsilon"
        )
    if math.isinf(problem.max_bias) or two_levels_hold(
        problem, float(levels[0]), float(levels[-1]), knots
    ):
        return
    needed = required_overhang(problem, knots)
    below, above = problem.lower - float(levels[0]), float(levels[-1]) - problem.upper
    kind = "unbiased" if problem.max_bias == 0 else f"within a bias of {problem.max_bias:g}"
    refused = f"levels=[{levels[0]:g} .. {levels[-1]:g}]: no mechanism on them is {kind} at epsilon={problem.epsilon:g}"
    if math.isinf(needed):
        raise InfeasibleError(
            f"{refused}, however far they reach; raise epsilon, use fewer knots or allow max_bias"
        )
    missing = " and ".join(
        f"{needed - reach:.6g} more {side}"
        for reach, side in ((below, "below lower"), (above, "above upper"))
        if reach < needed
    )
    raise InfeasibleError(
        f"{refused}: the outer levels must reach {needed:.6g} beyond the range [{problem.lower:g}, {problem.upper:g}] "
        f"on both sides, but reach {below:.6g} below and {above:.6g} above; extend them by {missing or 'a little'}, "
        "raise epsilon or allow max_bias"
    )


_FEW_KNOTS = 9
_MANY_POINTS = 4096
_CLOSEST = 1e-4
"""Levels stay this far apart (units of half the range) during the search."""


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


def _outside() -> int:
    """The level of a warning by the caller that points at the first line outside this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("mezzotint."):
        frame, level = frame.f_back, level + 1
    return level


def level_bounds(
    problem: Problem, max_level: float | None, knots: FloatArray | None = None
) -> tuple[float, float]:
    """Least and largest distance of the outer levels from the middle of the range, centred units.

    For loss "mae" without `max_level` twice the required overhang is assumed, with an
    UnboundedLevelsWarning. Knots matter for metrics only.
    """
    half = problem.width / 2
    ends = np.array([problem.lower, problem.upper]) if knots is None else knots
    overhang = 0.0 if math.isinf(problem.max_bias) else required_overhang(problem, ends) / half
    if math.isinf(overhang):
        raise InfeasibleError(
            f"epsilon={problem.epsilon:g}: no levels, however far, are enough; use fewer knots"
        )
    least = 1 + overhang
    if max_level is not None:
        largest = check_finite("max_level", max_level) / half
        if not largest >= least * (1 + 1e-9):
            raise ParameterError(
                "max_level",
                max_level,
                f"levels must reach {least * half:.6g} from the middle of the range at epsilon={problem.epsilon:g}",
            )
        return least, largest
    if problem.loss == "mae" and problem.max_bias < math.inf:
        largest = 1 + 2 * max(overhang, 0.5)
        warnings.warn(
            "the mean absolute error keeps falling as the outer levels go to infinity with vanishing probability; "
            f"levels are kept within {largest * half:.6g} of the middle of the range: set max_level, or use loss='mse'",
            UnboundedLevelsWarning,
            stacklevel=_outside(),
        )
        return least, largest
    return least, max(4 * least, 8.0)


def value_and_gradient(
    problem: Problem, knots: FloatArray, levels: FloatArray
) -> tuple[float, FloatArray]:
    """Optimal loss on these knots and its gradient in the levels, data units; minimax has its value
    only.

    Envelope theorem: at an optimum the derivative of the value is that of the Lagrangian,
    dV/dB_i = sum_k P[k, i] (dC[k, i]/dB_i + v_k), with v_k the multiplier of row k's mean.
    """
    half, costs = problem.width / 2, problem.costs(knots, levels)
    setting = KnottedProblem(problem=problem, levels=levels, knots=knots, costs=costs)
    solution, _ = solve_pairs(setting, problem.epsilon)
    if problem.loss == "minimax":
        return solution.value * half**2, np.zeros_like(levels)
    # Costs are quadratic in the level for the MSE, so central differences are exact; for the MAE
    # they are once differentiable wherever the prior has no point mass.
    step = min(1e-5 * problem.width, float(np.diff(levels).min()) / 4)
    slopes = (problem.costs(knots, levels + step) - problem.costs(knots, levels - step)) / (
        2 * step
    )
    gradient = (solution.rows * slopes).sum(axis=0)
    if problem.max_bias < math.inf:
        multipliers = solution.dual[knots.size : 2 * knots.size]
        if problem.max_bias > 0:
            multipliers = multipliers - solution.dual[2 * knots.size : 3 * knots.size]
        scale = half * max(1.0, float(np.abs(problem.centered(levels)).max()))
        gradient = gradient + multipliers @ solution.rows / scale
    return solution.value, gradient


def symmetric_levels(epsilon: float, count: int, *, lower: float, upper: float) -> FloatArray:
    """The best `count` levels found that are their own mirror image, for the largest MSE; data
    units.
    """
    law, half = law_of(UniformPrior(), lower, upper), (upper - lower) / 2
    units = search(count, law, math.exp(epsilon), "minimax", symmetric=True)
    least = (1 + 2 / math.expm1(epsilon)) * (1 + 1e-12)
    units[0], units[-1] = min(units[0], -least), max(units[-1], least)
    return lower + half + units * half


def _descended(
    problem: Problem, knots: FloatArray, start: FloatArray, least: float, largest: float
) -> tuple[float, FloatArray]:
    """Best (value, levels in centred units) that SLSQP finds from `start`; the value is in units of
    half the range.
    """
    half = problem.width / 2
    unit = half if problem.loss == "mae" else half**2
    best = (math.inf, start)

    def evaluate(units: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        try:
            value, gradient = value_and_gradient(problem, knots, problem.center + units * half)
        except SolverError:
            return 1e9, np.zeros_like(units)
        if value / unit < best[0]:
            best = (value / unit, units.copy())
        return value / unit, gradient * (half / unit)

    # Levels in order, the outer ones within their bounds.
    outer = np.eye(start.size)[[0, -1]] * np.array([[-1.0], [1.0]])
    linear = np.concatenate([np.diff(np.eye(start.size), axis=0), outer, -outer])
    apart = np.full(start.size - 1, -_CLOSEST)
    offset = np.concatenate([apart, np.full(2, -least * (1 + 1e-7)), np.full(2, largest)])
    # The multipliers of the largest error weigh the levels too: its slopes are differences.
    smooth = problem.loss != "minimax"
    optimize.minimize(
        evaluate if smooth else lambda units: evaluate(units)[0],
        start,
        jac=True if smooth else "2-point",
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda v: linear @ v + offset, "jac": lambda v: linear}
        ],
        options={"maxiter": 25, "ftol": 1e-10} | ({} if smooth else {"eps": 1e-6}),
    )
    return best


def search_levels(
    problem: Problem, count: int, *, max_level: float | None, knots: FloatArray | None = None
) -> FloatArray:
    """The best `count` levels found, up to `max_level` from the middle of the range; a search
    proves nothing.

    `knots` are the inputs that the design will use; None lets the search choose.
    """
    grid = np.linspace(problem.lower, problem.upper, _FEW_KNOTS)
    if problem.constraint.by_distance and knots is not None:
        grid = knots
    half = problem.width / 2
    least, largest = level_bounds(problem, max_level, grid)
    if problem.is_pure and problem.max_bias == 0:
        units = np.array([-least, least])
        # Two levels a, b: the errors (b - x)(x - a) and 2 (b - x)(x - a) / (b - a) grow as either
        # level moves out.
        if count > 2:
            law = law_of(problem.prior, problem.lower, problem.upper)
            units = search(count, law, math.exp(problem.epsilon), problem.loss, largest=largest)
            units = np.clip(units, -largest, largest)
        # The search meets its bounds up to its own tolerance only; outer levels must reach far
        # enough in floats too.
        grain = 8 * math.ulp(max(abs(problem.lower), abs(problem.upper))) / half
        least += 1e-9 * (least - 1) + grain
        units[0], units[-1] = min(units[0], -least), max(units[-1], least)
        return problem.center + units * half
    if isinstance(problem.prior, SamplePrior) and problem.prior.points.size > _MANY_POINTS:
        problem = replace(problem, prior=cell_means(problem.prior, problem.lower, problem.upper))
    least *= 1 + 1e-4  # levels that reach barely far enough leave the solver no interior
    starts = [np.linspace(-1, 1, count) * min(stretch * least, largest) for stretch in (1.1, 1.5)]
    found = [_descended(problem, grid, start, least, largest) for start in starts]
    return problem.center + min(found, key=lambda pair: pair[0])[1] * half
