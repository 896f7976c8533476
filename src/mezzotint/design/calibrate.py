"""`design.calibrate`: the member of a closed-form family, or of one's own, at an epsilon."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from mezzotint.core.arguments import Values, check_range
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import as_prior
from mezzotint.design.result import DesignResult, without_bound
from mezzotint.families.members import member, member_of


def calibrate(
    family: str | Callable[[float], Mechanism],
    *,
    epsilon: float,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: int | Values | None = None,
    loss: Literal["mse", "mae"] = "mse",
    prior: Any = None,
    max_level: float | None = None,
    knots: int = 65,
) -> DesignResult:
    """The member of a closed-form family with certified epsilon <= `epsilon`, near it, and the least loss found.

    Arguments:
        family: "rqm" (searches extension and q), "erm" (symmetric bins and gamma), "pbm" (theta), or
            "randomized_response" (one bit), "k_randomized_response": nothing left to search. Or a function of one
            number > 0 that returns a Mechanism, whose epsilon must not decrease (or not increase) with it: numbers
            from 2**-40 to 2**40 are tried, and the table with the largest certified epsilon up to `epsilon` is taken.
        epsilon: pure epsilon asked for, > 0 and finite.
        lower, upper: input range, data units.
        levels: number of levels (None: 4, or 2 for randomized response). "erm" also takes the bins themselves, "rqm"
            evenly spaced symmetric ones; then only gamma or q is searched.
        loss: "mse" or "mae", to be minimised. An MAE may keep falling as bins move out: see max_level.
        prior: of the inputs: None for uniform, a frozen scipy.stats distribution, or a 1-D sample. A sample of
            private data makes the parameters themselves a release about it.
        max_level: largest distance of a bin from the middle of the range, data units; None: 16 (or
            levels - 1, if more) times the least that an unbiased report at this epsilon needs. It limits "rqm" and
            "erm"; the other families have no choice and raise.
        knots: for "pbm": evenly spaced inputs at which the table has the exact pmf.

    Returns:
        DesignResult with status "calibrated", no lower bound and no gap: the search is local.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
        InfeasibleError: the family cannot reach epsilon (with these bins, or within max_level); says what it can.

    Guarantees:
        result.mechanism.epsilon <= epsilon, in its integers.
        result.loss is the mechanism's own loss under the prior, not the search's estimate.
    Edge cases: epsilon above log(2**32) = 22.2 gives a table below that; two levels are randomized response.
    """
    started = time.perf_counter()
    low, high = check_range(lower, upper)
    known = as_prior(prior, lower=low, upper=high)
    if callable(family):
        mechanism, evaluations = member_of(family, epsilon), 1
    else:
        mechanism, evaluations = member(
            family,
            epsilon=epsilon,
            lower=low,
            upper=high,
            levels=levels,
            loss=loss,
            prior=known,
            max_level=max_level,
            knots=knots,
        )
    value = mechanism.mse(known) if loss == "mse" else mechanism.mae(known)
    return without_bound(mechanism, loss=value, status="calibrated", started=started, iterations=evaluations)
