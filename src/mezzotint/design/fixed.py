"""The optimum at given levels under pure epsilon: floors found to a proven gap, then integer windows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import cast

import numpy as np

from mezzotint.core.laws import centred_atoms, condensed, exact_law, has_few_atoms, law_of, split_atoms
from mezzotint.core.mechanism import FloatArray, Mechanism
from mezzotint.core.priors import SamplePrior, UniformPrior
from mezzotint.design.floors import CLOSE, best_floors, bound_for_atoms, lower_bound
from mezzotint.design.integers import IntegerWindows, integer_windows, refitted, table
from mezzotint.design.parts import WorstErrorPart
from mezzotint.design.problem import Problem
from mezzotint.design.program import Part, Program, RatioPart, assemble, price_of_means
from mezzotint.design.rounding import Draft
from mezzotint.design.solver import Solution, SolverError, safe_bound, solve
from mezzotint.design.windows import average, make_windows, peaks

ON_KNOTS = "tables with these levels on these knots"
AT_LEVELS = "all mechanisms with these levels"

_BETWEEN = (0.25, 0.5, 0.75)
_ROUNDS = 12
_WORST = 32
"""Inputs at first, and new ones a round at most."""
_TARGET = 1e-7
_BINDING = 1 - 1e-6
"""Share of the largest error from which on an input's error counts as one that binds."""
_SPREADS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Over how much of half the range point masses are spread, one after another."""
_FEW_ENTRIES = 4000
"""Point masses times levels up to which a linear program is solved at the masses."""


def centered(problem: Problem, values: FloatArray) -> FloatArray:
    """Data units to units of half the range, centred."""
    return (values - problem.center) / (problem.width / 2)


def ratio_above(epsilon: float) -> float:
    """A float at or above e**epsilon: bounds hold for every mechanism of this epsilon."""
    return math.exp(epsilon) * (1 + 2.0**-50)


def program_on(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray,
    privacy: Part,
    *,
    costs: FloatArray | None = None,
    between: tuple[float, ...] = _BETWEEN,
) -> Program:
    """The table program of docs/proofs/design.md at these levels and knots, data units.

    Arguments:
        privacy: `RatioPart` for pure epsilon.
        costs: those of the problem, where they are known.
        between: where else between two knots the largest error counts, for loss "minimax".
    """
    aims, units = centered(problem, knots), centered(problem, levels)
    errors = WorstErrorPart(aims=aims, levels=units, between=between)
    return assemble(
        aims=aims,
        levels=units,
        costs=problem.costs(knots, levels) if costs is None else costs,
        parts=[privacy, errors] if problem.loss == "minimax" else [privacy],
        max_bias=problem.max_bias / (problem.width / 2),
        worst=errors.unit if problem.loss == "minimax" else 0.0,
    )


def _reaching(units: FloatArray, solution: Solution, epsilon: float) -> FloatArray:
    """A cone solver's floors (m,), moved as little as it takes towards such whose windows reach both ends of the range.

    They may miss the ends by its tolerance, which is nothing beside far levels and much beside the range. Floors that
    reach are a convex set.
    """
    ratio, floors = math.exp(epsilon), solution.floors * math.exp(-epsilon / 2)
    if _misses(units, floors, ratio) <= CLOSE:
        return floors
    reached = _inside(tuple(units.tolist()), ratio)
    for share in np.geomspace(1e-9, 1.0, 46):
        mixed = (1 - share) * floors + share * reached
        if _misses(units, mixed, ratio) <= CLOSE:
            return mixed
    return reached


@lru_cache(maxsize=16)
def _inside(units: tuple[float, ...], ratio: float) -> FloatArray:
    """The floors of the best average error."""
    return best_floors(np.array(units), ratio, law_of(UniformPrior(), -1.0, 1.0), "mse").floors


def _misses(units: FloatArray, floors: FloatArray, ratio: float) -> float:
    """By how much windows fail to reach the ends of the range, in half ranges."""
    means = make_windows(units, floors, ratio).means
    return max(float(means[0]) + 1, 1 - float(means[-1]))


def _by_newton(problem: Problem, levels: FloatArray) -> Draft:
    """The best floors for the average over the prior, whose point masses are spread less and less."""
    units, ratio, half = centered(problem, levels), ratio_above(problem.epsilon), problem.width / 2
    loss, span = "mae" if problem.loss == "mae" else "mse", (problem.lower, problem.upper)
    prior, between = condensed(problem.prior, *span)
    few = has_few_atoms(prior)
    optimum, floors, least, bound, price, iterations = None, np.zeros(units.size), math.inf, -math.inf, 0.0, 0
    for spread in _SPREADS if few else _SPREADS[:1]:
        law, share = law_of(prior, *span, spread=spread), 1.0 if optimum is None else spread
        optimum = best_floors(units, ratio, law, loss, near=optimum, share=share)
        windows = make_windows(units, optimum.floors, ratio, split=loss == "mae")
        # The multipliers are the law's; what they bound is the prior's own loss.
        edges = np.unique(np.clip(np.concatenate([[-1.0], windows.means, [1.0]]), -1.0, 1.0))
        value = average(windows, exact_law(prior, *span, edges), loss)
        if few:
            points, masses = centred_atoms(cast(SamplePrior, prior), *span)
            parts = split_atoms(points, masses, np.clip(windows.means, -1.0, 1.0), spread)
            height = bound_for_atoms(points, parts, windows, optimum.ends, loss)
        else:
            height = lower_bound(value, optimum.floors, units, optimum.ends, ratio)
        # Per piece the multiplier of the mean is a sum of two levels (MSE), or at most 1 (MAE).
        price = (1.0 if loss == "mae" else 2 * float(np.ptp(units))) + float(np.abs(optimum.ends[:, 1]).sum())
        bound, iterations, before = max(bound, height), iterations + optimum.iterations, least
        if value.loss < least:
            least, floors = float(value.loss), optimum.floors
        if least - bound <= _TARGET * least or least > before * (1 - 1e-12):
            break
    scale, less = (half, math.sqrt(between)) if loss == "mae" else (half**2, between)
    bound, price = bound * scale - less, price * scale / half
    return Draft(floors=floors, lower_bound=bound, scope=AT_LEVELS, iterations=iterations, price=price)


def _on_knots(problem: Problem, levels: FloatArray, knots: FloatArray, between: tuple[float, ...] = _BETWEEN) -> Draft:
    """The table program on these knots."""
    solution = solve(program_on(problem, levels, knots, RatioPart(epsilon=problem.epsilon), between=between))
    above = RatioPart(epsilon=math.nextafter(problem.epsilon, math.inf))
    asked = program_on(problem, levels, knots, above, between=between)
    units, half = centered(problem, levels), problem.width / 2
    scale = half**2 if problem.loss == "minimax" else 1.0
    return Draft(
        floors=_reaching(units, solution, problem.epsilon),
        lower_bound=safe_bound(asked, solution.dual) * scale,
        scope=ON_KNOTS,
        iterations=solution.iterations,
        price=price_of_means(asked, solution.dual, units) * scale / half,
    )


def _by_worst_inputs(problem: Problem, levels: FloatArray) -> Draft:
    """For the largest error over the inputs: rows at some inputs, and at the worst of windows until none is worse."""
    half = problem.width / 2
    inputs = np.linspace(problem.lower, problem.upper, _WORST + 1)
    floors, least, bound, price, iterations = np.zeros(levels.size), math.inf, -math.inf, 0.0, 0
    for _ in range(_ROUNDS):
        draft = _on_knots(problem, levels, inputs, between=())
        bound, price, iterations = (
            max(bound, draft.lower_bound or bound),
            max(price, draft.price),
            iterations + draft.iterations,
        )
        windows = make_windows(centered(problem, levels), draft.floors, ratio_above(problem.epsilon))
        worst, errors = (part * scale for part, scale in zip(peaks(windows), (half, half**2), strict=False))
        if errors.max() < least:
            least, floors = float(errors.max()), draft.floors
        if least - bound <= 10 * _TARGET * least:
            break
        # Of neighbours that are as bad the worst are enough; inputs that do not bind (but the ends) are let go.
        order, units = np.argsort(-errors, kind="stable")[:_WORST], centered(problem, inputs)
        worst = problem.center + worst[order[errors[order] > bound]]
        moments = np.interp(units, windows.means, windows.rows @ windows.levels**2)
        kept = ((moments - units**2) * half**2 >= _BINDING * bound) | (np.abs(units) == 1)
        inputs = np.union1d(inputs[kept], np.clip(worst, problem.lower, problem.upper))
    return Draft(floors=floors, lower_bound=bound, scope=AT_LEVELS, iterations=iterations, price=price)


def floors_at(problem: Problem, levels: FloatArray, knots: FloatArray | None) -> Draft:
    """The best floors of an unbiased design under pure epsilon; feasibility is settled already."""
    try:
        if knots is not None:
            return _on_knots(problem, levels, knots)
        if problem.loss == "minimax":
            return _by_worst_inputs(problem, levels)
        prior = problem.prior
        if isinstance(prior, SamplePrior) and prior.points.size * levels.size <= _FEW_ENTRIES:
            # Only the rows at these inputs matter: the bound is one for all mechanisms.
            points = np.unique(np.concatenate([[problem.lower], prior.points, [problem.upper]]))
            return replace(_on_knots(problem, levels, points), scope=AT_LEVELS)
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
    draft = floors_at(problem, levels, knots)
    span = {"lower": problem.lower, "upper": problem.upper}
    windows = integer_windows(levels, draft.floors, epsilon=problem.epsilon, **span)
    if free and knots is None:
        levels = refitted(windows, levels, problem.lower, problem.upper)
        windows = IntegerWindows(levels, windows.floors, windows.ratio)
        draft = floors_at(problem, levels, None)
    return draft, table(windows, levels, knots=knots, **span)
