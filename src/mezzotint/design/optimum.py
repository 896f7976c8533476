"""The provably best table for a problem, at fixed or searched levels."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    by_name,
    check_count,
    check_increasing,
    check_positive,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import Progress
from mezzotint.core.types import MAX_LEVELS
from mezzotint.design.cdf import design_cells
from mezzotint.design.floors import design_fixed
from mezzotint.design.level_proofs import check_provable
from mezzotint.design.level_proofs import prove as prove_levels
from mezzotint.design.levels import (
    check_reach,
    search_levels,
)
from mezzotint.design.problem import (
    DesignResult,
    Problem,
    check_knots,
    make_problem,
    record,
    weighed,
)
from mezzotint.design.program import design_general, refine_even


@by_name
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
    """The best possible table: a convex program solved to a proven gap, then rounded to certified
    integers.

    Arguments:
        epsilon: the budget of one report, replace-one neighbours: pure; with `delta` that of
            (epsilon, delta); with `alpha` the Renyi divergence (nats); with `metric` the rate per
            (squared) unit of distance of inputs.
        lower, upper: range of the inputs, data units; inputs outside are clipped.
        levels: a sequence of output values (data units), or their number: then they are searched
            from many starts, and the bound holds for the levels found (with `prove`, for all
            levels).
        loss: "mse" (squared data units), "mae" (data units), "minimax" (largest MSE over the
            inputs), or "cdf": n times the variance of the distribution function's values at the
            inner knots, averaged, estimated from n reports. Then `levels` is the largest number of
            different reports, and `knots` are the edges of the cells between
            which the table tells apart (None: even cells, half as many as levels, or as many where
                epsilon is large).
        prior: None (uniform), a frozen scipy.stats distribution, or a 1-D sample; the loss is
            averaged over it. A prior computed from private data is itself a release of those data
            and must be paid for.
        knots: None places and refines them until nothing more is gained; an integer gives that many
            evenly spaced ones; a sequence is used as it is, and a repeated knot allows a jump.
        delta, alpha: delta in [0, 1), 0 for pure; a Renyi order > 1 or None.
        max_bias: 0 for unbiased reports; a bound on |E[report] - x| in data units; math.inf for no
            constraint.
        metric: None, "absolute" (epsilon |x - x'|, for all real inputs) or "squared" (epsilon |x -
            x'|**2 on the grid of even knots; between them |x - x'| counts as rounded up to the
            grid).
        prove: also bound the loss of every mechanism with this many levels, wherever they are: pure
            epsilon, unbiased, uniform inputs, "mse". It takes up to `seconds` of wall-clock time,
            less if nothing more can be proven.
        progress: called as progress(share, 1) while bounds are tried one after another.
        max_level: when levels are searched, their largest distance from the middle of the range,
            data units. (Levels that are moved to leave no bias may lie up to one part in 2^28
            farther out.)

    Returns:
        The mechanism with its loss, a lower bound that no mechanism of `scope` can beat, and the
        gap. `scope` is "all mechanisms with these levels" when knots are refined (pure, unbiased),
        else "tables ... on these knots"; with `prove` "all mechanisms with ... levels", and `proof`
        holds what checks it.

    Raises:
        ParameterError: a value that cannot be used, or more than one of delta, alpha and metric.
        InfeasibleError: no mechanism on these levels meets the constraints; the message says how
            far they must reach.
        MezzotintError: the solver ended without a table, as it may at Renyi orders in the hundreds
            and small epsilon.

    Warns:
        UnboundedLevelsWarning: loss "mae", levels searched and no `max_level`: see `limit`.

    Guarantees:
        The certified value (`mechanism.epsilon`, `.delta(epsilon)`, `.renyi(alpha)` or
        `metric_epsilon`) is at most what was requested.
        A pure epsilon that binds is met from below to a relative 1e-5, up to the resolution of
        32-bit weights. loss - lower_bound = gap >= -slack (what the integers' bias may gain). For
        fixed knots, averaged losses and pure epsilon up to 10, gap <= 1e-6 * loss; else the gap is
        what it says: percents at Renyi orders near 1. Bias at most one unit of span / 2**32 at the
            ends of the range and at given knots, one
        rounding of the knot elsewhere; with searched levels float error only (pure, unbiased).
        Worse by at most `gap` than any table on the same levels and knots with the same guarantee.

    Edge cases: 2 fixed levels leave no freedom when unbiased: epsilon may be far below what was
        requested. Beyond epsilon = 12 a 32-bit weight is too coarse to come within 1e-5 of it.
    Source: docs/proofs/design.md; the program generalises Cai et al. 2024, Theorem 5.

    Example:
        >>> result = mz.design.optimal(epsilon=1.0, lower=0, upper=100, levels=4)
        >>> result.mechanism.epsilon <= 1.0, result.mechanism.bits
        (True, 2)
        >>> round(result.loss, 1), result.gap < 1e-3 * result.loss
        (9969.9, True)
    """
    started = time.perf_counter()
    problem = make_problem(
        epsilon=epsilon,
        lower=lower,
        upper=upper,
        loss=loss,
        prior=prior,
        delta=delta,
        alpha=alpha,
        metric=metric,
        max_bias=max_bias,
    )
    if problem.loss == "cdf":
        if prove:
            remedy = 'with loss="cdf" every bound is proven, see scope: leave prove out'
            raise ParameterError("prove", True, remedy)
        return design_cells(problem, levels, knots, started=started)
    if prove:
        check_provable(problem)
    result = _designed(problem, levels, knots, max_level, started)
    if not prove:
        return result
    level_count = result.mechanism.levels.size
    loss_unit = (problem.width / 2) ** 2
    proven = prove_levels(
        problem,
        level_count,
        result.loss / loss_unit,
        seconds=check_positive("seconds", seconds),
        progress=progress,
    )
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
    inputs = None if knots is None else check_knots(knots, problem)
    is_searched = isinstance(levels, int | np.integer) and not isinstance(levels, bool)
    if is_searched:
        level_count = check_count("levels", levels, least=2, most=MAX_LEVELS)
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
