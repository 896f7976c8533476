"""Lower bounds over every mechanism at given levels, not only over tables on some knots."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.design.problem import Problem
from mezzotint.design.program import Program, price_of_means, pure_program
from mezzotint.design.solver import Solution, safe_bound, solve

FloatArray = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Averages of the prior over cells of inputs: what any mechanism at all must satisfy on average.

    Arguments:
        aims: (R,) mean input of each average, data units; the first and last are lower and upper, with weight 0.
        weights: (R,) prior mass of each average; sums to 1.
        points: (R,) input at which the (linear) loss of the average is taken, data units.
        shifts: (R,) what to subtract from that loss: the squared width where an MSE is linearised.
        constant: part of the expected loss that no mechanism can change.
    """

    aims: FloatArray
    weights: FloatArray
    points: FloatArray
    shifts: FloatArray
    constant: float

    def costs(self, levels: FloatArray, loss: str) -> FloatArray:
        """(R, m) objective coefficients, data units."""
        distance = np.abs(levels - self.points[:, None])
        value = distance if loss == "mae" else distance**2
        return self.weights[:, None] * (value - self.shifts[:, None])


def make_cells(problem: Problem, edges: FloatArray) -> Cells:
    """Averages on the cells between `edges` (strictly increasing, lower to upper); docs/proofs/design.md, "Cells".

    For the MAE no level may lie inside a cell.
    """
    moments = problem.prior.moments(edges)
    build = _whole_cells if problem.loss != "mae" and problem.max_bias == 0 else _split_cells
    aims, weights, points, shifts, constant = build(problem, edges, moments)
    keep = weights > 0
    ends = np.array([problem.lower, problem.upper])

    def framed(values: FloatArray, outer: FloatArray) -> FloatArray:
        return np.concatenate([outer[:1], values[keep], outer[1:]])

    return Cells(
        aims=np.clip(framed(aims, ends), problem.lower, problem.upper),
        weights=framed(weights, np.zeros(2)),
        points=framed(points, ends),
        shifts=framed(shifts, np.zeros(2)),
        constant=constant,
    )


_Averages = tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]


def _whole_cells(problem: Problem, edges: FloatArray, moments: FloatArray) -> _Averages:
    """One average per cell, at its centroid c: all that an unbiased MSE needs."""
    # (B - x)^2 = (B - c)^2 - 2 (B - c)(x - c) + (x - c)^2, and E[B | x] = x turns the middle term into
    # -2 (x - c)^2 on average.
    with np.errstate(divide="ignore", invalid="ignore"):
        offset = np.nan_to_num(moments[:, 1] / moments[:, 0])
    aims = edges[:-1] + offset
    inside = moments[:, 2] - offset * moments[:, 1]
    return aims, moments[:, 0], aims, np.zeros_like(aims), -math.fsum(inside)


def _split_cells(problem: Problem, edges: FloatArray, moments: FloatArray) -> _Averages:
    """Two averages per cell, weighted by 1 - t and t, t the position in the cell: for losses linear in x there."""
    width, left, right = np.diff(edges), edges[:-1], edges[1:]
    to_right = moments[:, 1] / width
    to_left = moments[:, 0] - to_right
    with np.errstate(divide="ignore", invalid="ignore"):
        right_aim = left + moments[:, 2] / moments[:, 1]
        left_aim = left + (moments[:, 1] - moments[:, 2] / width) / to_left
    # (B - x)^2 - (x - left)^2 is linear in x, with values (B - left)^2 and (B - right)^2 - width^2 at the ends.
    squared = problem.loss != "mae"
    shift = width**2 if squared else np.zeros_like(width)

    def both(first: FloatArray, second: FloatArray) -> FloatArray:
        return np.stack([first, second], axis=1).ravel()

    constant = math.fsum(moments[:, 2]) if squared else 0.0
    return (
        both(left_aim, right_aim),
        both(to_left, to_right),
        both(left, right),
        both(np.zeros_like(width), shift),
        constant,
    )


def cell_program(problem: Problem, cells: Cells, levels: FloatArray) -> Program:
    """The relaxation of the design problem to averages over cells, pure epsilon, at the asked epsilon."""
    half = problem.width / 2
    return pure_program(
        aims=(cells.aims - problem.center) / half,
        levels=(levels - problem.center) / half,
        costs=cells.costs(levels, problem.loss),
        epsilon=math.nextafter(problem.epsilon, math.inf),
        max_bias=problem.max_bias / half,
    )


def bound_at_levels(problem: Problem, levels: FloatArray, edges: FloatArray) -> tuple[float, Solution, float]:
    """A lower bound of the expected loss of every pure-epsilon mechanism with these levels, whatever its form.

    Returns: the bound, the program's solution, and what the bound may lose per unit of bias.

    Arguments:
        edges: cells of inputs, strictly increasing from lower to upper; the breakpoints of a good table make the
            bound tight. Levels inside the range are added for the MAE.

    Guarantees: no mechanism (measurable in x) with these levels, this epsilon and this bias bound has a smaller
        loss, up to the rounding of the prior's moments.
    """
    if problem.loss == "mae":
        inside = levels[(levels > problem.lower) & (levels < problem.upper)]
        edges = np.unique(np.concatenate([edges, inside]))
    cells = make_cells(problem, edges)
    program = cell_program(problem, cells, levels)
    solution = solve(program)
    price = price_of_means(program, solution.dual, (levels - problem.center) / (problem.width / 2))
    return safe_bound(program, solution.dual) + cells.constant, solution, price / (problem.width / 2)
