"""The optimum at given levels under pure epsilon: floors found to a proven gap, then integer windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import SamplePrior
from mezzotint.design.bound import bound_at_levels
from mezzotint.design.floors import best_floors, lower_bound
from mezzotint.design.integers import IntegerWindows, integer_windows, refitted, table
from mezzotint.design.parts import WorstErrorPart
from mezzotint.design.problem import Problem
from mezzotint.design.program import Program, RatioPart, assemble, price_of_means, pure_program, view_of
from mezzotint.design.rounding import Draft, first_certified, pure_table
from mezzotint.design.solver import Solution, SolverError, safe_bound, solve
from mezzotint.design.windows import average, exact_law, law_of, make_windows, peaks

FloatArray = npt.NDArray[np.float64]

ON_KNOTS = "tables with these levels on these knots"
AT_LEVELS = "all mechanisms with these levels"

_MOST_ENTRIES = 60_000
_NEAR = 4
_ROUNDS = 12
_TARGET = 1e-8
_SPREAD = 1e-3


def centered(problem: Problem, values: FloatArray) -> FloatArray:
    """Data units to units of half the range, centred."""
    return (values - problem.center) / (problem.width / 2)


def from_centered(problem: Problem, values: FloatArray) -> FloatArray:
    """Back to data units; -1 and 1 become lower and upper exactly."""
    knots = problem.center + values * (problem.width / 2)
    return np.where(values == -1, problem.lower, np.where(values == 1, problem.upper, knots))


def ratio_above(epsilon: float) -> float:
    """A float at or above e**epsilon: bounds hold for every mechanism of this epsilon."""
    return math.exp(epsilon) * (1 + 2.0**-50)


def program_on(problem: Problem, levels: FloatArray, knots: FloatArray, epsilon: float) -> Program:
    """The table program at these levels and knots (data units) and this pure epsilon."""
    return pure_program(
        aims=centered(problem, knots),
        levels=centered(problem, levels),
        costs=problem.costs(knots, levels),
        epsilon=epsilon,
        max_bias=problem.max_bias / (problem.width / 2),
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Floors:
    """Floors (m,) in floats with a bound in data units on every competitor of `scope`."""

    floors: FloatArray
    bound: float
    scope: str
    iterations: int
    price: float


def _floors_of(problem: Problem, solution: Solution) -> FloatArray:
    return solution.floors * math.exp(-problem.epsilon / 2)


def _by_newton(problem: Problem, levels: FloatArray) -> Floors:
    """For priors without point masses inside the range, and as a last resort for all."""
    units, ratio, half = centered(problem, levels), ratio_above(problem.epsilon), problem.width / 2
    loss = "mae" if problem.loss == "mae" else "mse"
    law = law_of(problem.prior, problem.lower, problem.upper, spread=_SPREAD)
    optimum = best_floors(units, ratio, law, loss)
    windows = make_windows(units, optimum.floors, ratio, split=loss == "mae")
    # The multipliers are the law's; what they bound is the prior's own loss.
    edges = np.unique(np.clip(np.concatenate([[-1.0], windows.means, [1.0]]), -1.0, 1.0))
    exact = exact_law(problem.prior, problem.lower, problem.upper, edges)
    bound, _ = lower_bound(average(windows, exact, loss), optimum.floors, units, optimum.ends, ratio)
    scale = half if loss == "mae" else half**2
    # Per piece the multiplier of the mean is a sum of two levels (MSE), or at most 1 (MAE).
    price = (1.0 if loss == "mae" else 2 * float(np.ptp(units))) + float(np.abs(optimum.ends[:, 1]).sum())
    return Floors(
        floors=optimum.floors,
        bound=bound * scale,
        scope=AT_LEVELS,
        iterations=optimum.iterations,
        price=price * scale / half,
    )


def _by_atoms(problem: Problem, levels: FloatArray, prior: SamplePrior) -> Floors:
    """For point masses: a linear program over averages of them, single ones near the kinks of the windows."""
    points = np.unique(np.concatenate([[problem.lower], prior.points, [problem.upper]]))
    cuts = (points[:-1] + points[1:]) / 2
    best: Floors | None = None
    if cuts.size * levels.size > _MOST_ENTRIES:
        best, cuts = _by_newton(problem, levels), cuts[:0]
    for _ in range(1 if best is None else _ROUNDS):
        if best is not None:
            kinks = make_windows(centered(problem, levels), best.floors, ratio_above(problem.epsilon)).means
            place = np.searchsorted(points, from_centered(problem, np.clip(kinks, -1, 1)))
            near = np.unique(np.clip(place[:, None] + np.arange(-_NEAR, _NEAR + 1), 1, points.size - 1))
            cuts = np.union1d(cuts, (points[near] + points[near - 1]) / 2)
        edges = np.unique(np.concatenate([[problem.lower], cuts, [problem.upper]]))
        bound, solution, price = bound_at_levels(problem, levels, edges)
        gained = best is None or bound > best.bound * (1 + _TARGET)
        best = Floors(
            floors=_floors_of(problem, solution),
            bound=bound if best is None else max(bound, best.bound),
            scope=AT_LEVELS,
            iterations=solution.iterations + (0 if best is None else best.iterations),
            price=max(price, 0.0 if best is None else best.price),
        )
        if not gained:
            break
    assert best is not None
    return best


def _by_worst_inputs(problem: Problem, levels: FloatArray) -> Floors:
    """For the largest error over the inputs: rows at some inputs, and at the worst of windows until none is worse."""
    units, half, ratio = centered(problem, levels), problem.width / 2, ratio_above(problem.epsilon)
    epsilon = math.nextafter(problem.epsilon, math.inf)
    inputs = np.unique(np.concatenate([np.linspace(-1.0, 1.0, 9), units[np.abs(units) < 1]]))
    best = np.zeros(units.size)
    least, bound, price, iterations = math.inf, -math.inf, 0.0, 0
    for _ in range(_ROUNDS):
        costs = np.zeros((inputs.size, units.size))
        parts = [RatioPart(epsilon=epsilon), WorstErrorPart(aims=inputs, levels=units, between=())]
        view = view_of(inputs, units, costs)
        program = assemble(aims=inputs, levels=units, costs=costs, view=view, parts=parts, worst=True)
        solution = solve(program)
        bound, iterations = max(bound, safe_bound(program, solution.dual)), iterations + solution.iterations
        price = max(price, price_of_means(program, solution.dual, units))
        floors = _floors_of(problem, solution)
        worst, errors, _, _ = peaks(make_windows(units, floors, ratio))
        if errors.max() < least:
            least, best = float(errors.max()), floors
        if least - bound <= _TARGET * least:
            break
        inputs = np.union1d(inputs, worst[errors > bound])
    return Floors(floors=best, bound=bound * half**2, scope=AT_LEVELS, iterations=iterations, price=price * half)


def _on_knots(problem: Problem, levels: FloatArray, knots: FloatArray) -> Floors:
    """The table program on these knots."""
    solution = solve(program_on(problem, levels, knots, problem.epsilon))
    asked = program_on(problem, levels, knots, math.nextafter(problem.epsilon, math.inf))
    return Floors(
        floors=_floors_of(problem, solution),
        bound=safe_bound(asked, solution.dual),
        scope=ON_KNOTS,
        iterations=solution.iterations,
        price=price_of_means(asked, solution.dual, centered(problem, levels)) / (problem.width / 2),
    )


def floors_at(problem: Problem, levels: FloatArray, knots: FloatArray | None) -> Floors:
    """The best floors of an unbiased design under pure epsilon; feasibility is settled already."""
    try:
        if knots is not None:
            return _on_knots(problem, levels, knots)
        if problem.loss == "minimax":
            return _by_worst_inputs(problem, levels)
        if isinstance(problem.prior, SamplePrior):
            return _by_atoms(problem, levels, problem.prior)
    except SolverError:
        pass  # levels that reach barely far enough leave a cone solver no interior
    return _by_newton(problem, levels)


def design_fixed(
    problem: Problem, levels: FloatArray, knots: FloatArray | None, *, free: bool = False
) -> tuple[Draft, Mechanism]:
    """The optimal pure-epsilon table at these levels; feasibility is settled already.

    Arguments:
        knots: data units; None puts them where the best rows bend (unbiased problems).
        free: whether the levels may be moved by a little, so that nothing but float error is left of the bias.
    """
    if problem.max_bias > 0:
        assert knots is not None
        return _biased(problem, levels, knots)
    found = floors_at(problem, levels, knots)
    span = {"lower": problem.lower, "upper": problem.upper}
    windows = integer_windows(levels, found.floors, epsilon=problem.epsilon, **span)
    if free and knots is None:
        levels = refitted(windows, levels, problem.lower, problem.upper)
        windows = IntegerWindows(levels, windows.floors, windows.ratio)
        found = floors_at(problem, levels, None)
    mechanism = table(windows, levels, knots=knots, **span)
    draft = Draft(lower_bound=found.bound, scope=found.scope, iterations=found.iterations, price=found.price)
    return draft, mechanism


def _biased(problem: Problem, levels: FloatArray, knots: FloatArray) -> tuple[Draft, Mechanism]:
    """The best table on these knots whose means may differ from them."""
    drafts: list[Draft] = []

    def build(epsilon: float) -> Mechanism:
        solution = solve(program_on(problem, levels, knots, epsilon))
        asked = program_on(problem, levels, knots, math.nextafter(problem.epsilon, math.inf))
        bound = safe_bound(asked, solution.dual)
        price = 0.0
        if math.isfinite(problem.max_bias):
            price = price_of_means(asked, solution.dual, centered(problem, levels)) / (problem.width / 2)
        drafts.append(Draft(lower_bound=bound, scope=ON_KNOTS, iterations=solution.iterations, price=price))
        return pure_table(problem, knots, levels, solution.rows)

    mechanism = first_certified(build, epsilon=problem.epsilon)
    return drafts[-1], mechanism
