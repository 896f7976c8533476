"""`design.mvu` and `design.imvu`: the minimum variance unbiased mechanism and its interpolated form."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse
from scipy import optimize

from mezzotint.core import rounding
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.design.fixed import centered, design_fixed
from mezzotint.design.levels import value_and_gradient
from mezzotint.design.problem import Problem, check_levels, make_problem
from mezzotint.design.program import RatioPart, assemble, plain_view
from mezzotint.design.reach import check_reach, required_overhang
from mezzotint.design.result import DesignResult, without_bound
from mezzotint.design.rounding import achieved_loss, record
from mezzotint.design.solver import SolverError, solve

FloatArray = npt.NDArray[np.float64]

_APART = 1e-3
_PENALTIES = tuple(2.0 ** (k / 2) for k in range(-4, 24))


def _grid_problem(epsilon: float, lower: float, upper: float, points: int) -> tuple[Problem, FloatArray]:
    """MVU's objective: the variances at the grid points, added up; that is the MSE of a uniform prior on the grid."""
    grid = np.linspace(lower, upper, points)
    return make_problem(epsilon=epsilon, lower=lower, upper=upper, loss="mse", prior=grid), grid


def _ordered(variables: npt.NDArray[Any], least: float) -> FloatArray:
    """Increasing levels, apart, the outer ones at least `least` from the middle (centred units)."""
    result = np.sort(variables)
    result[0], result[-1] = min(result[0], -least), max(result[-1], least)
    for index in range(1, result.size):
        result[index] = max(result[index], result[index - 1] + _APART)
    return result


def _trust_region(problem: Problem, grid: FloatArray, start: FloatArray, least: float) -> FloatArray:
    """Alphabet (centred units) from a trust-region method on the value of the best matrix for each alphabet."""
    half = problem.width / 2

    def evaluate(units: FloatArray) -> tuple[float, FloatArray]:
        try:
            value, gradient = value_and_gradient(problem, grid, problem.center + half * _ordered(units, least))
        except SolverError:
            return 1e9, np.zeros_like(units)
        return value / half**2, gradient / half

    apart = np.diff(np.eye(start.size), axis=0)
    outer = np.stack([-np.eye(start.size)[0], np.eye(start.size)[-1]])
    floor: Any = np.array([_APART] * len(apart) + [least] * 2)
    constraints = optimize.LinearConstraint(np.concatenate([apart, outer]), floor, np.inf)
    with warnings.catch_warnings():
        # Between two alphabets that order to the same one the gradient does not change; scipy then keeps its Hessian.
        warnings.filterwarnings("ignore", message="delta_grad == 0.0", category=UserWarning)
        answer = optimize.minimize(
            evaluate,
            start,
            jac=True,
            hess=optimize.BFGS(),
            method="trust-constr",
            constraints=[constraints],
            options={"maxiter": 150, "gtol": 1e-9, "xtol": 1e-9},
        )
    return _ordered(np.asarray(answer.x), least)


def _alternating(problem: Problem, grid: FloatArray, start: FloatArray, least: float) -> FloatArray:
    """Alphabet from alternating exact minimisation in the matrix and in the alphabet, bias penalised ever harder.

    With the bias as a constraint a square matrix would determine the alphabet and nothing would move; so each half
    step minimises sum_k [sum_i P_ki (a_i - x_k)^2 + penalty (sum_i P_ki a_i - x_k)^2].
    """
    x, units = centered(problem, grid), start
    for penalty in _PENALTIES:
        costs = (units - x[:, None]) ** 2
        view = plain_view(x.size, units.size)
        # penalty (a'p - x)^2 = penalty (p' a a' p - 2 x a'p + x^2).
        program = assemble(
            aims=x,
            levels=units,
            costs=costs - 2 * penalty * x[:, None] * units,
            view=view,
            parts=[RatioPart(epsilon=problem.epsilon)],
            max_bias=math.inf,
        )
        outer = sparse.kron(sparse.eye(x.size), sparse.triu(2 * penalty * np.outer(units, units)), format="csc")
        extra = program.objective.size - x.size * units.size
        quadratic = sparse.block_diag([outer, sparse.csc_matrix((extra, extra))], format="csc")
        rows = solve(program, tolerance=1e-9, quadratic=quadratic).rows
        # In the alphabet: (diag(sum_k P_k) + penalty P'P) a = (1 + penalty) P'x.
        normal = np.diag(rows.sum(axis=0)) + penalty * rows.T @ rows
        units = _ordered(np.linalg.pinv(normal) @ ((1 + penalty) * rows.T @ x), least)
    return units


def _alphabet(problem: Problem, grid: FloatArray, levels: Any, solver: str) -> FloatArray:
    if not isinstance(levels, int | np.integer) or isinstance(levels, bool):
        return check_levels(levels)
    if not 2 <= levels <= 256:
        raise ParameterError("levels", int(levels), "MVU's joint search is meant for 2 to 256 levels; try 4")
    ends = np.array([problem.lower, problem.upper])
    least = (1 + required_overhang(problem, ends) / (problem.width / 2)) * (1 + 1e-6)
    if levels == 2:
        return problem.center + np.array([-least, least]) * problem.width / 2
    start = np.linspace(-1.2 * least, 1.2 * least, int(levels))
    method = _trust_region if solver == "trust-region" else _alternating
    return problem.center + method(problem, grid, start, least) * (problem.width / 2)


def mvu(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: Any = 4,
    input_bits: int = 2,
    solver: Literal["trust-region", "alternating"] = "trust-region",
) -> DesignResult:
    """The minimum variance unbiased mechanism: inputs dithered onto an even grid, matrix and alphabet optimised.

    Arguments:
        epsilon: pure epsilon per report, replace-one neighbours.
        lower, upper: range of the inputs, data units.
        levels: size of the alphabet, or the alphabet itself (data units; then only the matrix is optimised).
        input_bits: the grid has 2**input_bits points; 1 to 8.
        solver: how matrix and alphabet are optimised jointly: "trust-region" (over alphabets, each with its best
            matrix) or "alternating" (penalised bias). Both are local searches.

    Returns:
        The table on the grid: dithering is what a table does between knots. `loss` is the mean variance over the
        grid points (MVU's objective); `mechanism.mse()` is the loss over the range. The bound is over matrices for
        the alphabet found.

    Raises:
        ParameterError, InfeasibleError: as `optimal`.

    Guarantees: certified epsilon <= epsilon; unbiased at every real input up to integer rounding.
    Source: Chaudhuri, Guo, Rabbat 2022, "Privacy-aware compression for federated data analysis".
    """
    started = time.perf_counter()
    if isinstance(input_bits, bool) or not isinstance(input_bits, int) or not 1 <= input_bits <= 8:
        raise ParameterError("input_bits", input_bits, "need 1 to 8 bits of input grid; try 2")
    if solver not in ("trust-region", "alternating"):
        raise ParameterError("solver", solver, 'use "trust-region" or "alternating"')
    problem, grid = _grid_problem(epsilon, lower, upper, 2**input_bits)
    alphabet = _alphabet(problem, grid, levels, solver)
    check_reach(problem, alphabet, grid)
    draft, mechanism = design_fixed(problem, alphabet, grid)
    named = Mechanism(knots=mechanism.knots, levels=mechanism.levels, weights=mechanism.weights, name=f"MVU ({solver})")
    return record(problem, draft, named, started=started)


def _between(rows: FloatArray, t: FloatArray) -> FloatArray:
    """Rows whose natural parameters are (1 - t) times the first's plus t times the second's."""
    used = (rows > 0).all(axis=0)
    with np.errstate(divide="ignore"):
        logs = np.log(rows)
    logs = np.where(used, logs, -np.inf)
    logits = np.where(
        used, (1 - t)[:, None] * np.where(used, logs[0], 0) + t[:, None] * np.where(used, logs[1], 0), -np.inf
    )
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def imvu(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: Any = 4,
    knots: int = 65,
) -> DesignResult:
    """Interpolated MVU: between the two ends of the range the natural parameters of the pmf are interpolated.

    Arguments:
        epsilon, lower, upper: as `mvu`.
        levels: size of the alphabet or the alphabet itself, for the table at the two ends.
        knots: even inputs at which the table has the interpolated pmf exactly; linear in between.

    Returns:
        A table that is unbiased at the ends of the range and BIASED in between: `mechanism.max_bias` says by how
        much (about 0.031 half-ranges at epsilon 1). No bound is known; `loss` is its MSE under a uniform prior.

    Raises:
        ParameterError, InfeasibleError: as `mvu`.

    Guarantees: certified epsilon <= epsilon.
    Source: Guo, Chaudhuri, Stock, Rabbat 2023, "Privacy-aware compression for federated learning through numerical
        mechanism design".
    """
    started = time.perf_counter()
    if isinstance(knots, bool) or not isinstance(knots, int) or knots < 2:
        raise ParameterError("knots", knots, "need at least 2 even knots; try 65")
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper)
    inputs = np.linspace(lower, upper, knots)
    t = (inputs - lower) / (upper - lower)
    budget = problem.epsilon
    for _ in range(60):
        ends = mvu(budget, lower=lower, upper=upper, levels=levels, input_bits=1).mechanism
        mechanism = rounding.table(
            knots=inputs,
            levels=ends.levels,
            probabilities=_between(ends.probabilities, t),
            name="I-MVU",
            unbiased=False,
        )
        if mechanism.epsilon <= problem.epsilon:
            return without_bound(
                mechanism, loss=achieved_loss(problem, mechanism), status="heuristic", started=started, iterations=1
            )
        # Interpolation may exceed the ends' epsilon: ask the ends for that much less.
        budget *= min(problem.epsilon / mechanism.epsilon, 1 - 1e-7)
    raise InfeasibleError(f"epsilon={epsilon:g}: no interpolated table within it was found; use design.optimal")
