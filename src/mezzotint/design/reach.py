"""Is a design feasible at all? Settled in closed form before any solver runs, and said by how much it is missed.

Collapse: send each level of a feasible mechanism at random to the lowest or the highest level so that its mean is
kept. That is post-processing, so the privacy holds, and the means hold. Hence levels B_1 < ... < B_m are feasible
iff the two-level mechanism on {B_1, B_m} is, and that one is determined by its means.
"""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.loss import FloatArray
from mezzotint.core.mechanism import TOTAL
from mezzotint.core.search import bracket
from mezzotint.design.problem import Problem


def _renyi(these: FloatArray, those: FloatArray, alpha: float) -> float:
    """Renyi divergence of order alpha of one distribution on two outcomes from another."""
    exponents = []  # of the terms p (p / q)^(alpha - 1), which overflow at large orders
    for p, q in zip(these.tolist(), those.tolist(), strict=True):
        if p > 0:
            if q <= 0:
                return math.inf
            exponents.append(math.log(p) + (alpha - 1) * math.log(p / q))
    largest = max(exponents)
    return (largest + math.log(sum(math.exp(exponent - largest) for exponent in exponents))) / (alpha - 1)


def _pair_holds(problem: Problem, bottom: float, top: float, low: float, high: float) -> bool:
    """Whether reports of mean `low` and of mean `high` are as close as the problem asks, both ways, both outcomes.

    Every probability is a distance of two given numbers over the span: none is one minus another, which would
    lose the digits of a level just outside the range. One rounding each is what the allowance is for.
    """
    span = top - bottom
    at_low, at_high = np.array([[low - bottom, top - low], [high - bottom, top - high]])
    if problem.alpha is not None:
        order = problem.alpha
        both = max(_renyi(at_low / span, at_high / span, order), _renyi(at_high / span, at_low / span, order))
        return both <= problem.epsilon * (1 + 1e-14)
    ratio, delta = math.exp(problem.epsilon) * (1 + 1e-14), problem.delta * span
    return bool(at_high[0] - ratio * at_low[0] <= delta and at_low[1] - ratio * at_high[1] <= delta)


def two_levels_hold(problem: Problem, bottom: float, top: float, knots: FloatArray) -> bool:
    if problem.metric is not None:
        if knots[0] <= bottom or knots[-1] >= top:
            return False
        tilt = np.array([knots - bottom, top - knots]) / (top - bottom)
        if problem.metric == "absolute":
            # Between knots the chance is linear: its slope may be at most epsilon times its smaller end.
            slope = 1 / (top - bottom)
            return bool(slope <= problem.epsilon * (1 + 1e-14) * tilt.min())
        loss = np.abs(np.log(tilt[:, :, None] / tilt[:, None, :])).max(axis=0)
        return bool((loss <= problem.epsilon * (1 + 1e-14) * (knots[:, None] - knots) ** 2).all())
    # With a bias budget the two ends may lean towards each other.
    low_aim = min(problem.lower + problem.max_bias, top)
    high_aim = max(problem.upper - problem.max_bias, bottom)
    if low_aim < bottom or high_aim > top:
        return False
    if low_aim >= high_aim:
        return True
    return _pair_holds(problem, bottom, top, low_aim, high_aim)


def required_overhang(problem: Problem, knots: FloatArray) -> float:
    """How far the outer levels must reach beyond the range, the same on both sides, data units; inf if no reach does.

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
    """Raises InfeasibleError, saying what is missing, if no mechanism on these levels meets the problem."""
    grain = float(levels[-1] / TOTAL - levels[0] / TOTAL)
    if grain > problem.width / 8:
        raise InfeasibleError(
            f"levels=[{levels[0]:g} .. {levels[-1]:g}]: one unit of 2**-32 moves a mean by {grain:.2g}, more than an "
            f"eighth of the range [{problem.lower:g}, {problem.upper:g}]; bring the levels nearer, or raise epsilon"
        )
    if math.isinf(problem.max_bias) or two_levels_hold(problem, float(levels[0]), float(levels[-1]), knots):
        return
    needed = required_overhang(problem, knots)
    below, above = problem.lower - float(levels[0]), float(levels[-1]) - problem.upper
    kind = "unbiased" if problem.max_bias == 0 else f"within a bias of {problem.max_bias:g}"
    asked = f"levels=[{levels[0]:g} .. {levels[-1]:g}]: no mechanism on them is {kind} at epsilon={problem.epsilon:g}"
    if math.isinf(needed):
        raise InfeasibleError(f"{asked}, however far they reach; raise epsilon, use fewer knots or allow max_bias")
    missing = " and ".join(
        f"{needed - reach:.6g} more {side}"
        for reach, side in ((below, "below lower"), (above, "above upper"))
        if reach < needed
    )
    raise InfeasibleError(
        f"{asked}: the outer levels must reach {needed:.6g} beyond the range [{problem.lower:g}, {problem.upper:g}] "
        f"on both sides, they reach {below:.6g} below and {above:.6g} above; extend them by {missing or 'a little'}, "
        "raise epsilon or allow max_bias"
    )
