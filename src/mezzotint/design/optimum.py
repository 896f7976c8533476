"""The provably best table for a problem, at fixed or searched levels."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    check_count,
    check_increasing,
    check_positive,
)
from mezzotint.core.errors import InfeasibleError, ParameterError, SolverError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Progress
from mezzotint.core.types import FloatArray
from mezzotint.design.cdf import design_cells
from mezzotint.design.constraints import make_constraint
from mezzotint.design.floors import design_fixed
from mezzotint.design.level_proofs import check_provable, prove as prove_levels
from mezzotint.design.levels import (
    UnboundedLevelsWarning,
    check_reach,
    search_levels,
)
from mezzotint.design.problem import (
    DesignResult,
    FloatDesign,
    Problem,
    achieved_loss,
    check_knots,
    pose,
    record,
    weighed,
)
from mezzotint.design.program import design_general, refine_even

MOST_SEARCHED = 128
"""Levels whose places are searched: the search takes about a minute."""

MOST_GIVEN = 2048
"""Levels that are given: their program takes about a minute."""


def optimal(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: npt.ArrayLike = 4,
    loss: Literal["mse", "mae", "minimax", "cdf"] = "mse",
    prior: object = None,
    knots: npt.ArrayLike | None = None,
    delta: float = 0.0,
    max_bias: float = 0.0,
    alpha: float | None = None,
    metric: Literal["absolute", "squared"] | None = None,
    max_level: float | None = None,
    prove: bool = False,
    seconds: float = 60.0,
    progress: Progress | None = None,
) -> DesignResult:
    """The best possible table: a convex program solved to a proven gap, as certified integers.

    Arguments:
        epsilon: of one report, replace-one neighbours: pure; with `delta` in [0, 1) of (epsilon,
            delta); with `alpha` > 1 the Renyi divergence of this order, nats; with `metric` per
            unit of distance: "absolute", or "squared" (between even knots rounded up to these).
        lower, upper: range of the inputs, data units; inputs outside are clipped.
        levels: output values (data units), or their number: then they are searched, at most
            `max_level` (data units) from the middle of the range.
        loss: "mse", "mae" (data units), "minimax" (largest MSE over the inputs) or "cdf" (n times
            the mean variance of the distribution function at the inner knots, from n reports, at
            most `levels` different ones; `knots` are edges of cells; None: even ones).
        prior: None (uniform), a frozen scipy.stats distribution, or a 1-D sample; private data in
            it are released.
        knots: None refines them until nothing is gained; a number of even ones; or a sequence, in
            which a repeated knot allows a jump.
        max_bias: bound on |E[report] - x|, data units; 0: unbiased; math.inf: no bound.
        prove: bound the loss of every mechanism with so many levels (pure, unbiased, uniform
            inputs, "mse"), in at most `seconds`; `progress`: called as progress(share, 1).

    Returns: a table with its loss, a lower bound and its scope, as `DesignResult` says.
    Raises:
        ParameterError: a value that cannot be used. InfeasibleError: no mechanism on these levels
            meets the constraints. MezzotintError: the solver ended without a table.
    Warns: UnboundedLevelsWarning: "mae", searched levels and no `max_level`; see `limit`.
    Guarantees: the certified value is at most the requested one.
    Source: docs/proofs/design.md; generalises Cai et al. 2024, Theorem 5.
    Example:
        >>> result = mz.design.optimal(epsilon=1.0, lower=0, upper=100, levels=4)
        >>> result.mechanism.epsilon <= 1.0, result.mechanism.bits, round(result.loss, 1)
        (True, 2, 9969.9)
    """
    started = time.perf_counter()
    constraint = make_constraint(epsilon=epsilon, delta=delta, alpha=alpha, metric=metric)
    problem = pose(constraint, lower=lower, upper=upper, loss=loss, prior=prior, max_bias=max_bias)
    if prove:
        check_provable(problem)
        check_positive("seconds", seconds)
    result = _designed(problem, levels, knots, max_level, started)
    if prove:
        return _proven(problem, result, seconds, progress, started)
    return result


def _proven(
    problem: Problem,
    result: DesignResult,
    seconds: float,
    progress: Progress | None,
    started: float,
) -> DesignResult:
    """The result with a bound over all levels in place of that at its levels."""
    level_count = result.mechanism.levels.size
    loss_unit = (problem.width / 2) ** 2
    scaled_loss = result.loss / loss_unit
    proven = prove_levels(problem, level_count, scaled_loss, seconds=seconds, progress=progress)
    return replace(
        result,
        **weighed(result.loss, proven.bound * loss_unit, result.slack),
        scope=f"all mechanisms with {level_count} levels, wherever they are",
        proof=proven.proof,
        seconds=time.perf_counter() - started,
    )


def _designed(
    problem: Problem,
    levels: npt.ArrayLike,
    knots: npt.ArrayLike | None,
    max_level: float | None,
    started: float,
) -> DesignResult:
    """The design of a checked problem; where pure tables meet a looser constraint as well, the best
    of both searches.
    """
    if problem.loss == "cdf":
        return design_cells(problem, levels, knots, started=started)
    inputs = None if knots is None else check_knots(knots, problem)
    solve = partial(_solved, levels=levels, inputs=inputs, max_level=max_level, started=started)
    if not problem.is_met_by_pure:
        return solve(problem)
    results: list[DesignResult] = []
    failure = InfeasibleError("no table was found")
    try:
        results.append(solve(problem))
    except InfeasibleError as error:
        failure = error
    # The pure table may need levels beyond `max_level`, or its program may fail: then the looser
    # problem's own result stands.
    with contextlib.suppress(InfeasibleError, ParameterError, SolverError):
        pure_mechanism = _pure(problem, solve)
        results += _at_levels_of(pure_mechanism, problem, solve, started)
    if not results:
        raise failure
    return min(results, key=lambda result: result.loss)


def _pure(problem: Problem, solve: Callable[[Problem], DesignResult]) -> Mechanism:
    """The best pure and unbiased table, which meets a looser problem, too."""
    strict = replace(problem, constraint=make_constraint(epsilon=problem.epsilon), max_bias=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedLevelsWarning)  # the looser problem warned
        mechanism = solve(strict).mechanism
    if problem.constraint.spent(mechanism) > problem.epsilon:
        raise InfeasibleError("the certified value of the pure table is rounded beyond the request")
    return mechanism


def _at_levels_of(
    mechanism: Mechanism,
    problem: Problem,
    solve: Callable[..., DesignResult],
    started: float,
) -> Iterator[DesignResult]:
    """A table that meets the problem, and the best ones on its levels: searches of levels end in
    other places for one problem than for another.
    """
    draft = FloatDesign(lower_bound=None, scope="", iterations=0)
    with contextlib.suppress(InfeasibleError, SolverError):
        draft, looser = design_general(problem, mechanism.levels, mechanism.knots)
        mechanism = min(mechanism, looser, key=partial(achieved_loss, problem))
    yield record(problem, draft, mechanism, started=started)
    with contextlib.suppress(InfeasibleError, SolverError):
        yield solve(problem, levels=mechanism.levels, max_level=None)


def _solved(
    problem: Problem,
    *,
    levels: npt.ArrayLike,
    inputs: FloatArray | None,
    max_level: float | None,
    started: float,
) -> DesignResult:
    """The best table whose levels are searched (a number of them) or given, for the problem as it
    is.
    """
    is_searched = isinstance(levels, int | np.integer) and not isinstance(levels, bool)
    if is_searched:
        level_count = check_count("levels", levels, least=2, most=MOST_SEARCHED)
        values = search_levels(
            problem,
            level_count,
            max_level=max_level,
            knots=inputs,
        )
    elif max_level is not None:
        remedy = "leave it out: these levels are fixed, not searched"
        raise ParameterError("max_level", max_level, remedy)
    else:
        values = check_increasing("levels", levels)
        if values.size > MOST_GIVEN:
            remedy = f"at most {MOST_GIVEN:,} levels; more gain next to nothing"
            raise ParameterError("levels", values.size, remedy)
    range_ends = np.array([problem.lower, problem.upper])
    check_reach(problem, values, range_ends if inputs is None else inputs)
    if problem.is_pure and problem.max_bias == 0:
        draft, mechanism = design_fixed(problem, values, inputs, free=is_searched)
    elif inputs is not None:
        draft, mechanism = design_general(problem, values, inputs)
    elif problem.constraint.needs_knots:
        remedy = "the squared metric speaks about a grid of inputs: give the number of knots"
        raise ParameterError("knots", None, remedy)
    else:
        draft, mechanism = refine_even(problem, values)
    return record(problem, draft, mechanism, started=started)
