"""The optimum at given levels under pure epsilon: the best floors, then integer windows.

A mechanism at given levels is its floors (`windows`). For an average over inputs they are searched
for by `floor_search`; for the largest error, or at given knots, by the table program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast, final

import numpy as np

from mezzotint.core import laws, priors
from mezzotint.core.errors import SolverError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import SamplePrior
from mezzotint.core.types import FloatArray
from mezzotint.design.cones import ratio_part
from mezzotint.design.floor_search import (
    REACH_TOLERANCE,
    FloorProblem,
    Optimum,
    best_floors,
    missing_reach,
)
from mezzotint.design.integer_windows import (
    IntegerWindows,
    integer_windows,
    refitted,
    table as table_of_windows,
)
from mezzotint.design.problem import FloatDesign, Problem, ratio_above
from mezzotint.design.program import BETWEEN, program_on, proven_design
from mezzotint.design.solver import solve
from mezzotint.design.windows import (
    average,
    best_ends,
    bound_with,
    costs_of_atoms,
    make_windows,
    peaks,
)

AT_LEVELS = "all mechanisms with these levels"

_ROUNDS = 12
_WORST = 32
"""Inputs at first, and new ones a round at most."""

_ENOUGH = 1e-7
"""Relative gap at which a design at given levels is good enough."""
_BINDING = 1 - 1e-6
"""Share of the largest error from which on an input's error counts as one that binds."""
_SPREADS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Over how much of half the range point masses are spread, one after another."""
_FEW_ENTRIES = 4000
"""Point masses times levels up to which a linear program is solved at the masses."""


def _reaching(
    units: FloatArray,
    geometric: FloatArray,
    epsilon: float,
) -> FloatArray:
    """A cone solver's floors (m,), moved as little as it takes towards such whose windows reach
    both ends of the range.

    They may miss the ends by its tolerance, which is nothing beside far levels and much beside the
    range. Floors that reach are a convex set.
    """
    ratio = math.exp(epsilon)
    floors = geometric * math.exp(-epsilon / 2)
    if missing_reach(make_windows(units, floors, ratio)) <= REACH_TOLERANCE:
        return floors
    # Those of the best average error.
    law = laws.law_of(priors.UniformPrior(), -1.0, 1.0)
    average_problem = FloorProblem(
        levels=units,
        ratio=ratio,
        law=law,
        loss="mse",
    )
    reaching_floors = best_floors(average_problem).floors
    for reaching_share in np.geomspace(1e-9, 1.0, 46):
        mixed_floors = (1 - reaching_share) * floors + reaching_share * reaching_floors
        if missing_reach(make_windows(units, mixed_floors, ratio)) <= REACH_TOLERANCE:
            return mixed_floors
    return reaching_floors


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _SpreadBound:
    """What an optimum for a spread prior says of the prior itself: the loss of its windows, a lower
    bound, and the multipliers of the ends behind it.
    """

    loss: float
    bound: float
    ends: FloatArray


AVERAGES: dict[str, Literal["mse", "mae"]] = {"mse": "mse", "mae": "mae", "minimax": "mse"}
"""Loss of a problem -> the average that bounds it from below: a worst squared error is no less than
the average one. Cells have a design of their own, and any other loss is an error.
"""


@final
class _PriorBound:
    """A prior in centred units, and the bounds that optima for its spread laws give."""

    def __init__(self, problem: Problem, units: FloatArray) -> None:
        self.lower = problem.lower
        self.upper = problem.upper
        self.loss = AVERAGES[problem.loss]
        self.units = units
        self.ratio = ratio_above(problem.epsilon)
        self.prior, self.between = laws.condensed(problem.prior, self.lower, self.upper)
        self.has_few_atoms = laws.has_few_atoms(self.prior)

    def floor_problem(self, spread: float) -> FloorProblem:
        law = laws.law_of(self.prior, self.lower, self.upper, spread=spread)
        return FloorProblem(
            levels=self.units,
            ratio=self.ratio,
            law=law,
            loss=self.loss,
        )

    def bound(self, optimum: Optimum, spread: float) -> _SpreadBound:
        """The multipliers are the law's; what they bound is the prior's own loss."""
        split = self.loss == "mae"
        windows = make_windows(self.units, optimum.floors, self.ratio, split=split)
        means = np.concatenate([[-1.0], windows.means, [1.0]])
        edges = np.unique(np.clip(means, -1.0, 1.0))
        law = laws.exact_law(prior=self.prior, lower=self.lower, upper=self.upper, edges=edges)
        value = average(windows, law, self.loss)
        if self.has_few_atoms:
            sample = cast(SamplePrior, self.prior)
            atoms = laws.centred_atoms(sample, self.lower, self.upper)
            cuts = np.clip(windows.means, -1.0, 1.0)
            shares = laws.split_atoms(*atoms, cuts, spread)
            constant, cost = costs_of_atoms(
                points=atoms[0], parts=shares, windows=windows, loss=self.loss
            )
        else:
            constant = float(value.loss - optimum.floors @ value.by_floor)
            cost = value.by_floor
        loss = float(value.loss)
        ends = optimum.ends
        bound = bound_with(constant, cost, self.units, ends, self.ratio)
        if loss - bound > _ENOUGH * loss:
            exact_ends = best_ends(cost, self.units, self.ratio)
            exact_bound = bound_with(
                constant=constant, cost=cost, levels=self.units, ends=exact_ends, ratio=self.ratio
            )
            if exact_bound > bound:
                ends, bound = exact_ends, exact_bound
        return _SpreadBound(
            loss=loss,
            bound=bound,
            ends=ends,
        )

    def price(self, ends: FloatArray) -> float:
        """The largest price of a unit of bias: per piece the multiplier of the mean is a sum of two
        levels (MSE), or at most 1 (MAE).
        """
        by_pieces = 2 * float(np.ptp(self.units))
        if self.loss == "mae":
            by_pieces = 1.0
        mean_prices = np.abs(ends[:, 1])
        return by_pieces + float(mean_prices.sum())


def _by_newton(problem: Problem, levels: FloatArray) -> FloatDesign:
    """The best floors for the average over the prior, whose point masses are spread less and
    less.
    """
    units = problem.centered(levels)
    prior = _PriorBound(problem, units)
    optimum = None
    chosen_floors = np.zeros(units.size)
    least_loss = math.inf
    best_bound = -math.inf
    price = 0.0
    iterations = 0
    for spread in _SPREADS if prior.has_few_atoms else _SPREADS[:1]:
        start_share = 1.0 if optimum is None else spread
        optimum = best_floors(
            prior.floor_problem(spread),
            near=optimum,
            distance=start_share,
        )
        iterations += optimum.iterations
        spread_bound = prior.bound(optimum, spread)
        price = prior.price(spread_bound.ends)
        best_bound = max(best_bound, spread_bound.bound)
        is_no_better = min(least_loss, spread_bound.loss) > least_loss * (1 - 1e-12)
        if spread_bound.loss < least_loss:
            least_loss = spread_bound.loss
            chosen_floors = optimum.floors
        if least_loss - best_bound <= _ENOUGH * least_loss or is_no_better:
            break
    half_range = problem.width / 2
    if problem.loss == "mae":
        loss_scale = half_range
        condensed_loss = math.sqrt(prior.between)
    else:
        loss_scale = half_range**2
        condensed_loss = prior.between
    return FloatDesign(
        floors=chosen_floors,
        lower_bound=best_bound * loss_scale - condensed_loss,
        scope=AT_LEVELS,
        iterations=iterations,
        price=price * loss_scale / half_range,
    )


def _on_knots(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray,
    between: tuple[float, ...] = BETWEEN,
) -> FloatDesign:
    """The table program on these knots."""
    next_epsilon = math.nextafter(problem.epsilon, math.inf)
    part = partial(ratio_part, epsilon=problem.epsilon)
    next_part = partial(ratio_part, epsilon=next_epsilon)
    program = program_on(problem, levels, knots, part, between=between)
    program_above = program_on(problem, levels, knots, next_part, between=between)
    solution = solve(program)
    floors = _reaching(problem.centered(levels), solution.floors, problem.epsilon)
    proven = proven_design(problem, program_above, levels, solution)
    return replace(proven, floors=floors)


def _by_worst_inputs(problem: Problem, levels: FloatArray) -> FloatDesign:
    """For the largest error over the inputs: rows at some inputs, and at the worst of windows until
    none is worse.
    """
    half_range = problem.width / 2
    ratio = ratio_above(problem.epsilon)
    inputs = np.linspace(problem.lower, problem.upper, _WORST + 1)
    chosen_floors = np.zeros(levels.size)
    least_loss = math.inf
    best_bound = -math.inf
    price = 0.0
    iterations = 0
    for _ in range(_ROUNDS):
        draft = _on_knots(problem, levels, inputs, between=())
        best_bound = max(best_bound, draft.lower_bound or best_bound)
        price = max(price, draft.price)
        iterations += draft.iterations
        windows = make_windows(problem.centered(levels), draft.floors, ratio)
        unit_peaks, value = peaks(windows)
        errors = value.loss * half_range**2
        if errors.max() < least_loss:
            least_loss = float(errors.max())
            chosen_floors = draft.floors
        if least_loss - best_bound <= 10 * _ENOUGH * least_loss:
            break
        # Of neighbours that are as bad the worst are enough; inputs that do not bind (but the ends)
        # are let go.
        by_error = np.argsort(-errors, kind="stable")
        peak_order = by_error[:_WORST]
        worst_peaks = peak_order[errors[peak_order] > best_bound]
        new_inputs = problem.center + unit_peaks[worst_peaks] * half_range
        units = problem.centered(inputs)
        window_moments = windows.rows @ windows.levels**2
        second_moments = np.interp(units, windows.means, window_moments)
        input_errors = (second_moments - units**2) * half_range**2
        is_binding = input_errors >= _BINDING * best_bound
        is_end = np.abs(units) == 1
        binding_inputs = inputs[is_binding | is_end]
        clipped_inputs = np.clip(new_inputs, problem.lower, problem.upper)
        inputs = np.union1d(binding_inputs, clipped_inputs)
    return FloatDesign(
        floors=chosen_floors,
        lower_bound=best_bound,
        scope=AT_LEVELS,
        iterations=iterations,
        price=price,
    )


def floors_at(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray | None,
) -> FloatDesign:
    """The best floors of an unbiased design under pure epsilon; feasibility is settled already."""
    try:
        if knots is not None:
            return _on_knots(problem, levels, knots)
        if problem.loss == "minimax":
            return _by_worst_inputs(problem, levels)
        prior = problem.prior
        if isinstance(prior, SamplePrior) and prior.points.size * levels.size <= _FEW_ENTRIES:
            # Only the rows at these inputs matter: the bound is one for all mechanisms.
            ends = ([problem.lower], [problem.upper])
            points = np.concatenate([ends[0], prior.points, ends[1]])
            points = np.unique(points)
            return replace(_on_knots(problem, levels, points), scope=AT_LEVELS)
    except SolverError:
        pass  # levels that reach barely far enough leave a cone solver no interior
    return _by_newton(problem, levels)


def design_fixed(
    problem: Problem,
    levels: FloatArray,
    knots: FloatArray | None,
    *,
    free: bool = False,
) -> tuple[FloatDesign, Mechanism]:
    """The optimal pure-epsilon table at these levels, on these knots or where the best rows bend.

    Feasibility is settled already. Levels that are `free` may move a little, so that only float
    error is left as bias.
    """
    draft = floors_at(problem, levels, knots)
    lower = problem.lower
    upper = problem.upper
    windows = integer_windows(
        levels,
        draft.floors,
        epsilon=problem.epsilon,
        lower=lower,
        upper=upper,
    )
    if free and knots is None:
        levels = refitted(windows, levels, lower, upper)
        windows = IntegerWindows(levels, windows.floors, windows.ratio)
        draft = floors_at(problem, levels, None)
    return draft, table_of_windows(
        windows,
        levels,
        knots=knots,
        lower=lower,
        upper=upper,
    )
