"""Minimum variance unbiased mechanisms (MVU, I-MVU): inputs dithered onto an even grid."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from mezzotint.core import rounding
from mezzotint.core.arguments import (
    check_count,
)
from mezzotint.core.errors import InfeasibleError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import MAX_LEVELS, FloatArray
from mezzotint.design.optimum import optimal
from mezzotint.design.problem import (
    DesignResult,
    achieved_loss,
    make_problem,
    without_bound,
)


def mvu(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: npt.ArrayLike = 4,
    input_bits: int = 2,
) -> DesignResult:
    """The minimum variance unbiased mechanism: inputs dithered onto an even grid, matrix and
    alphabet optimised.

    Its objective, the variances at the grid points added up, is the MSE of a uniform prior on the
    grid: so it is `optimal` with this prior and these knots, and its alphabet is searched by
    windows.

    Arguments:
        epsilon, lower, upper: as in `optimal`, pure.
        levels: size of the alphabet, or the alphabet itself (data units; then only the matrix is
            optimised).
        input_bits: the grid has 2**input_bits points; 1 to 8.

    Returns:
        The table on the grid: dithering is what a table does between knots. `loss` is the mean
            variance over the
        grid points (MVU's objective); `mechanism.mse()` is the loss over the range. The bound is
        over matrices for the alphabet found.

    Raises:
        ParameterError, InfeasibleError: as `optimal`.

    Guarantees: certified epsilon <= epsilon; unbiased at every real input up to integer rounding.
    Source: Chaudhuri, Guo, Rabbat 2022, "Privacy-aware compression for federated data analysis".

    Example:
        >>> result = mz.design.mvu(1.0, levels=4)
        >>> result.loss >= mz.design.optimal(1.0, levels=4).loss
        True
    """
    started = time.perf_counter()
    input_bits = check_count("input_bits", input_bits, most=8)
    problem = make_problem(
        epsilon=epsilon,
        lower=lower,
        upper=upper,
    )
    inputs = np.linspace(problem.lower, problem.upper, 2**input_bits)
    result = optimal(
        epsilon,
        lower=lower,
        upper=upper,
        levels=levels,
        prior=inputs,
        knots=inputs,
    )
    mechanism = replace(result.mechanism, name="MVU")
    return replace(
        result,
        mechanism=mechanism,
        seconds=time.perf_counter() - started,
    )


def _between(rows: FloatArray, positions: FloatArray) -> FloatArray:
    """Rows whose natural parameters are (1 - t) times the first's plus t times the second's."""
    is_used = (rows > 0).all(axis=0)
    log_first, log_second = np.log(rows[:, is_used])
    logits = np.full((positions.size, is_used.size), -np.inf)
    logits[:, is_used] = np.outer(1 - positions, log_first) + np.outer(positions, log_second)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


_SHORTFALLS = (0.0, *(1e-7 * 2.0 ** np.arange(30)))
"""By how much (relative) the ends stay below epsilon, one after another, until the integers do not
exceed it.
"""


def imvu(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: npt.ArrayLike = 4,
    knots: int = 65,
) -> DesignResult:
    """Interpolated MVU: between the two ends of the range the natural parameters of the pmf are
    interpolated.

    Arguments:
        epsilon, lower, upper: as `mvu`.
        levels: size of the alphabet or the alphabet itself, for the table at the two ends.
        knots: even inputs at which the table has the interpolated pmf exactly; linear in between.

    Returns:
        A table that is unbiased at the ends of the range and BIASED in between:
        `mechanism.max_bias` says by how much (about 0.031 half-ranges at epsilon 1). No bound is
        known; `loss` is its MSE under a uniform prior.
    Raises:
        ParameterError, InfeasibleError: as `mvu`.
    Guarantees: certified epsilon <= epsilon.
    Source: Guo, Chaudhuri, Stock, Rabbat 2023, "Privacy-aware compression for federated learning
        through numerical mechanism design".
    Example:
        >>> result = mz.design.imvu(1.0, levels=4)
        >>> result.mechanism.epsilon <= 1.0
        True
    """
    started = time.perf_counter()
    knots = check_count("knots", knots, least=2, most=MAX_LEVELS)
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper)
    inputs = np.linspace(problem.lower, problem.upper, knots)
    solve_ends = partial(mvu, levels=levels, input_bits=1, **problem.span)
    mechanism = _interpolated(solve_ends, problem.epsilon, inputs)
    loss = achieved_loss(problem, mechanism)
    return without_bound(mechanism, loss=loss, status="heuristic", started=started, iterations=1)


def _interpolated(
    solve_ends: Callable[[float], DesignResult],
    epsilon: float,
    inputs: FloatArray,
) -> Mechanism:
    """The table at the inputs between those of its ends, which lose the most; their integers may
    exceed epsilon.
    """
    positions = (inputs - inputs[0]) / (inputs[-1] - inputs[0])
    for shortfall in _SHORTFALLS:
        end_table = solve_ends(epsilon * (1 - shortfall)).mechanism
        with contextlib.suppress(InfeasibleError):
            return rounding.table(
                knots=inputs,
                levels=end_table.levels,
                probabilities=_between(end_table.probabilities, positions),
                name="I-MVU",
                epsilon=epsilon,
                unbiased=False,
            )
    raise InfeasibleError(
        f"epsilon={epsilon:g}: no interpolated table within it was found; use design.optimal"
    )
