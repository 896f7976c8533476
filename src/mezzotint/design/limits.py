"""Bounds that no mechanism can beat, whatever its number of bits: `design.limit`."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.types import FloatArray
from mezzotint.design.cones import assemble, ratio_part
from mezzotint.design.floors import design_fixed
from mezzotint.design.level_proofs import (
    BOUND_ROUNDING,
    cut_at,
    distinct,
)
from mezzotint.design.levels import level_bounds
from mezzotint.design.problem import (
    DesignResult,
    Problem,
    make_problem,
    ratio_above,
    record,
)
from mezzotint.design.solver import safe_bound, solve

EVERY_MECHANISM = "all mechanisms, any number of levels anywhere"
_LEVELS = 81
_MOST_LEVELS = 160
"""At first and at last; twice as many at a large epsilon."""

_LARGE_EPSILON = 5.0

_CLOSE = 1e-4
"""Relative gap of a limit that is good enough."""

_USED = 1e-3
"""Levels with less than this share of the largest floor are left out of the next round."""

_SUM_ROUNDING = 1e-13
"""Relative to the terms of a bound: what sums of floats may err by."""
_SHOWN_LEVELS = 65
_INPUT_CELLS = 64


def _mse_limit(
    problem: Problem,
    least: float,
    largest: float,
) -> tuple[float, FloatArray]:
    """The limit of the unbiased MSE, and levels on which it is nearly attained (centred units).

    Designs on more and more levels: those where the last one's cut is lowest are added, unused ones
    are left out.
    """
    half_range = problem.width / 2
    ratio = ratio_above(problem.epsilon)
    level_reach = min(1.6 * least + 0.4, largest)
    level_count = _LEVELS
    most_levels = _MOST_LEVELS
    if problem.epsilon > _LARGE_EPSILON:
        level_count = 2 * _LEVELS - 1
        most_levels = 2 * _MOST_LEVELS
    levels = np.linspace(-level_reach, level_reach, level_count)
    best_bound = 0.0
    while True:
        cut, floors = cut_at(levels, ratio, problem)
        axis = np.concatenate([[-np.inf], levels, [np.inf]])
        values, positions = cut.least(axis, ratio)
        constant = cut.constant()
        lowest = min(0.0, float(values.min()))
        # Floors of mass S cost S times the prior's variance at least: rare where the loss is small.
        variance = cut.variance()
        variance_bound = constant * variance / (variance - lowest)
        best_bound = max(best_bound, constant + lowest, variance_bound)
        is_used = floors > _USED * floors.max()
        is_close = best_bound >= constant * (1 - _CLOSE)
        if is_close or levels.size > most_levels:
            end_squares = levels[[0, -1]] ** 2
            largest_square = float(end_squares.sum())
            rounding_error = _SUM_ROUNDING * ratio * largest_square
            rounded_bound = best_bound * (1 - BOUND_ROUNDING) - rounding_error
            return rounded_bound * half_range**2, levels[is_used]
        is_used[[0, -1]] = True
        new_levels = positions[values < 1e-3 * lowest]
        kept_levels = levels[is_used]
        levels = np.unique(np.concatenate([kept_levels, new_levels]))
        levels = distinct(levels, 1e-7)


# For the MAE: a program over averages -------------------------------------------------------------


def _averages(problem: Problem, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean inputs and prior masses (cells, 2) of two averages of reports per cell of inputs,
    weighted by 1 - t and t, t the position in the cell; centred units, edges too. Without mass the
    mean is NaN.

    Any mechanism's averages satisfy the constraints of a table with these target means.
    docs/proofs/design.md, "Cells". For the MAE no level may lie inside a cell.
    """
    half_range = problem.width / 2
    inputs = problem.center + half_range * edges
    inputs = np.clip(inputs, problem.lower, problem.upper)
    data_moments = problem.prior.moments(inputs)[:, :3]
    unit_powers = half_range ** np.arange(3)
    centred_moments = data_moments / unit_powers
    mass, first_moment, second_moment = centred_moments.T
    cell_width = np.diff(problem.centered(inputs))
    mass_right = first_moment / cell_width
    mass_left = mass - mass_right
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_right = second_moment / first_moment
        first_moment_left = first_moment - second_moment / cell_width
        mean_left = first_moment_left / mass_left
    distances = np.stack([mean_left, mean_right], axis=1)
    starts = problem.centered(inputs[:-1])
    masses = np.stack([mass_left, mass_right], axis=1)
    return starts[:, None] + distances, masses


def _mae_limit(problem: Problem, largest: float) -> float:
    """The certified limit of the MAE over levels within `largest` (centred units) of the middle.

    For a level B inside a cell the loss there is replaced by 0, which is smaller. Then every r_k is
    linear in B on each cell and on each side of the range, so g is concave there and its least
    values are at the ends of these
    pieces: a finite program whose columns are those ends bounds all real levels.
    """
    cell_count = 3 * _INPUT_CELLS // 2
    edges = np.linspace(-1.0, 1.0, cell_count + 1)
    cell_means, cell_masses = _averages(problem, edges)
    means = cell_means.ravel()
    masses = cell_masses.ravel()
    has_mass = masses > 0
    # The rows at the ends of the range have no mass, and so cost nothing.
    inner_means = np.clip(means[has_mass], -1.0, 1.0)
    cell_ends = np.repeat(edges, 2)[1:-1]
    cells = np.repeat(np.arange(cell_count), 2)
    levels = np.concatenate([[-largest, -1.0], cell_ends, [1.0, largest]])
    level_cells = np.pad(cells, 2, constant_values=-1)
    distances = np.abs(levels - cell_ends[has_mass, None])
    costs = masses[has_mass, None] * distances
    is_inside = cells[has_mass, None] == level_cells
    costs[is_inside] = 0.0
    epsilon_above = math.nextafter(problem.epsilon, math.inf)
    program = assemble(
        target_means=np.pad(inner_means, 1, constant_values=(-1.0, 1.0)),
        levels=levels,
        costs=np.pad(costs, ((1, 1), (0, 0))),
        parts=[partial(ratio_part, epsilon=epsilon_above)],
    )
    solution = solve(program)
    return safe_bound(program, solution.dual) * problem.width / 2


def limit_of(
    problem: Problem,
    max_level: float | None,
) -> tuple[float, FloatArray]:
    """The certified limit of an unbiased pure-epsilon problem, and dense levels (data units) on which it is
    nearly attained.
    """
    is_pure = problem.is_pure and problem.max_bias == 0
    if not is_pure or problem.loss not in ("mse", "mae"):
        remedy = 'limits are known for pure epsilon, no bias and loss "mse" or "mae"'
        raise ParameterError("loss", problem.loss, remedy)
    least, largest = level_bounds(problem, max_level)
    if problem.loss == "mae":
        inner_levels = np.linspace(-1, 1, 2 * _SHOWN_LEVELS - 3)
        levels = np.concatenate([[-largest], inner_levels, [largest]])
        limit_bound = _mae_limit(problem, largest)
    else:
        limit_bound, levels = _mse_limit(problem, least, largest)
    scaled_levels = levels * problem.width / 2
    return max(0.0, limit_bound), problem.center + scaled_levels


def limit(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    loss: str = "mse",
    prior: object = None,
    max_level: float | None = None,
) -> DesignResult:
    """The best loss that unbiased mechanisms of any number of bits can reach under pure epsilon: a
    certified lower bound.

    Arguments:
        epsilon, lower, upper, prior: as in `optimal`, pure.
        loss: "mse" (squared data units) or "mae" (data units).
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

    Guarantees: every unbiased mechanism with real-valued reports, whatever their number, that is
        epsilon-DP over all pairs of inputs has an expected loss of at least `lower_bound`
        (docs/proofs/design.md, "Limit").

    Edge cases: for uniform inputs the bound is within 0.2 % of `loss` for epsilon up to 4, within 1
        % at 8. A prior with hardly any mass in parts of the range determines no multipliers there, and
        the search ends at some: the bound holds, but may lie far below `loss` (inputs at one end of
        the range: 10 % at epsilon 1, 18 % at 2; a normal one of deviation 0.3: 28 % at 8, and
        nothing is left at 20, after a minute).

    Example:
        >>> round(mz.design.limit(3.0).lower_bound, 3)
        0.26
    """
    started = time.perf_counter()
    problem = make_problem(
        epsilon=epsilon,
        lower=lower,
        upper=upper,
        loss=loss,
        prior=prior,
    )
    bound, levels = limit_of(problem, max_level)
    draft, mechanism = design_fixed(problem, levels, None)
    draft = replace(draft, lower_bound=bound, scope=EVERY_MECHANISM)
    return record(problem, draft, mechanism, started=started)
