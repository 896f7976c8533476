"""Which levels? Bounds on them, and the search: by windows, or with exact gradients of a program's value."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
from scipy import optimize

from mezzotint.core.arguments import check_finite
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.laws import law_of
from mezzotint.core.loss import FloatArray
from mezzotint.core.priors import SamplePrior, UniformPrior, cell_means
from mezzotint.design.fixed import centered
from mezzotint.design.general import Setting, solve_pairs
from mezzotint.design.problem import Problem
from mezzotint.design.reach import required_overhang
from mezzotint.design.search import search
from mezzotint.design.solver import SolverError

_FEW_KNOTS = 9
_MANY_POINTS = 4096
_CLOSEST = 1e-4
"""Levels stay this far apart (units of half the range) during the search."""


class UnboundedLevelsWarning(UserWarning):
    """The loss keeps falling as the outer levels grow: a bound was assumed. Give `max_level` to choose it."""


def level_bounds(problem: Problem, max_level: float | None, knots: FloatArray | None = None) -> tuple[float, float]:
    """Least and largest distance of the outer levels from the middle of the range, centred units.

    `knots` matter for metrics only.

    Warns:
        UnboundedLevelsWarning: loss "mae" and no `max_level`: twice the required overhang is assumed.
    """
    half = problem.width / 2
    ends = np.array([problem.lower, problem.upper]) if knots is None else knots
    overhang = 0.0 if math.isinf(problem.max_bias) else required_overhang(problem, ends) / half
    if math.isinf(overhang):
        raise InfeasibleError(f"epsilon={problem.epsilon:g}: no levels, however far, are enough; use fewer knots")
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
            stacklevel=4,
        )
        return least, largest
    return least, max(4 * least, 8.0)


def value_and_gradient(problem: Problem, knots: FloatArray, levels: FloatArray) -> tuple[float, FloatArray]:
    """Optimal loss on these knots and its gradient in the levels, data units; minimax has its value only.

    Envelope theorem: at an optimum the derivative of the value is that of the Lagrangian,
    dV/dB_i = sum_k P[k, i] (dC[k, i]/dB_i + v_k), with v_k the multiplier of row k's mean.

    Guarantees: equals finite differences of the value wherever that is differentiable.
    """
    setting, half = Setting(problem=problem, levels=levels, knots=knots), problem.width / 2
    solution, _ = solve_pairs(setting, problem.epsilon)
    if problem.loss == "minimax":
        return solution.value * half**2, np.zeros_like(levels)
    # Costs are quadratic in the level for the MSE, so central differences are exact; for the MAE they are once
    # differentiable wherever the prior has no point mass.
    step = min(1e-5 * problem.width, float(np.diff(levels).min()) / 4)
    slopes = (problem.costs(knots, levels + step) - problem.costs(knots, levels - step)) / (2 * step)
    gradient = (solution.rows * slopes).sum(axis=0)
    if problem.max_bias < math.inf:
        multipliers = solution.dual[knots.size : 2 * knots.size]
        if problem.max_bias > 0:
            multipliers = multipliers - solution.dual[2 * knots.size : 3 * knots.size]
        scale = half * max(1.0, float(np.abs(centered(problem, levels)).max()))
        gradient = gradient + multipliers @ solution.rows / scale
    return solution.value, gradient


def symmetric_levels(epsilon: float, count: int, *, lower: float, upper: float) -> FloatArray:
    """The best `count` levels found that are their own mirror image, for the largest MSE; data units."""
    law, half = law_of(UniformPrior(), lower, upper), (upper - lower) / 2
    units = search(count, law, math.exp(epsilon), "minimax", symmetric=True)
    least = (1 + 2 / math.expm1(epsilon)) * (1 + 1e-12)
    units[0], units[-1] = min(units[0], -least), max(units[-1], least)
    return lower + half + units * half


def _descended(
    problem: Problem, knots: FloatArray, start: FloatArray, least: float, largest: float
) -> tuple[float, FloatArray]:
    """Best (value, levels in centred units) that SLSQP finds from `start`; the value is in units of half the range."""
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
        constraints=[{"type": "ineq", "fun": lambda v: linear @ v + offset, "jac": lambda v: linear}],
        options={"maxiter": 25, "ftol": 1e-10} | ({} if smooth else {"eps": 1e-6}),
    )
    return best


def search_levels(
    problem: Problem, count: int, *, max_level: float | None, knots: FloatArray | None = None
) -> FloatArray:
    """The best `count` levels found, data units. A search: it proves nothing.

    Arguments:
        max_level: largest distance of a level from the middle of the range, data units.
        knots: inputs that the design will use, data units; None lets the search choose.
    """
    grid = np.linspace(problem.lower, problem.upper, _FEW_KNOTS)
    if problem.metric is not None and knots is not None:
        grid = knots
    half = problem.width / 2
    least, largest = level_bounds(problem, max_level, grid)
    if problem.is_pure and problem.max_bias == 0:
        units = np.array([-least, least])
        # Two levels a, b: the errors (b - x)(x - a) and 2 (b - x)(x - a) / (b - a) grow as either level moves out.
        if count > 2:
            law = law_of(problem.prior, problem.lower, problem.upper)
            units = search(count, law, math.exp(problem.epsilon), problem.loss, largest=largest)
            units = np.clip(units, -largest, largest)
        # The search meets its bounds up to its own tolerance only; outer levels must reach far enough in floats too.
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
