"""From a designed table in floats to the record of a design, through integers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from mezzotint.core import rounding
from mezzotint.core.errors import InfeasibleError, MezzotintError
from mezzotint.core.mechanism import FloatArray, Mechanism
from mezzotint.design.problem import Problem
from mezzotint.design.result import DesignResult

MARGINS = (rounding.MARGIN / 1024, rounding.MARGIN / 16, rounding.MARGIN, 8 * rounding.MARGIN)
"""Relative reductions of epsilon to try in turn, so that integers near the floats stay within what was asked."""

_UNUSED = 1e-9
"""A level that no row uses more often than this is dropped (weight 0 in all rows): it would be less than 5 units."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Draft:
    """What a design proves before it is a record.

    Arguments:
        floors: (m,) under pure epsilon at given levels, in floats; empty for other designs.
        lower_bound: what no competitor can beat, data units; None if unknown.
        scope: over which competitors.
        price: by how much the bound may fall per unit of bias: the largest multiplier of a mean, in the loss's units.
    """

    lower_bound: float | None
    scope: str
    iterations: int
    price: float = 0.0
    floors: FloatArray = field(default_factory=lambda: np.zeros(0))


def without_unused(rows: FloatArray) -> FloatArray:
    """Rows in which a level that is hardly ever used is never used."""
    used = rows.max(axis=0) > _UNUSED
    kept = np.where(used, rows, 0.0)
    return kept / kept.sum(axis=1, keepdims=True)


def achieved_loss(problem: Problem, mechanism: Mechanism) -> float:
    """The problem's loss of the integer table, data units."""
    if problem.loss == "minimax":
        return mechanism.worst_mse()
    return float(np.sum(problem.costs(mechanism.knots, mechanism.levels) * mechanism.probabilities))


def first_certified(
    build: Callable[[float], Mechanism], *, epsilon: float, margins: tuple[float, ...] = MARGINS
) -> Mechanism:
    """The first of the margins at which `build(epsilon * (1 - margin))` succeeds.

    Raises:
        InfeasibleError: none does.
    """
    failure = InfeasibleError(f"epsilon={epsilon:g}: no margin for rounding was tried")
    for margin in margins:
        try:
            return build(epsilon * (1 - margin))
        except InfeasibleError as error:
            failure = error
    raise failure


class BoundError(MezzotintError, RuntimeError):
    """A table beats what was proven to be a lower bound: a fault of this package, not of the request."""


def _float_error(problem: Problem, mechanism: Mechanism, loss: float) -> float:
    """What sums of floats may err by in a loss and its bound: a multiple of the unit roundoff of their terms."""
    span = 1.0 if problem.loss == "cdf" else float(mechanism.levels[-1]) - float(mechanism.levels[0])
    terms = span if problem.loss == "mae" else span**2
    return 1e-10 * abs(loss) + 1e-13 * terms


def weighed(loss: float, bound: float | None, slack: float) -> dict[str, Any]:
    """The fields of a result that say how a loss lies to its bound.

    Raises:
        BoundError: the loss is below the bound by more than `slack`.
    """
    gap = None if bound is None else loss - bound
    if gap is not None and gap < -slack:
        raise BoundError(f"loss {loss!r} is below its lower bound {bound!r}: please report this problem")
    # "optimal" claims a proven gap; anything wider is said to be what it is.
    proven = gap is not None and abs(gap) <= 1e-5 * max(abs(loss), math.ulp(1.0))
    return {"lower_bound": bound, "gap": gap, "status": "optimal" if proven else "feasible", "slack": slack}


def record(
    problem: Problem, draft: Draft, mechanism: Mechanism, *, started: float, loss: float | None = None
) -> DesignResult:
    """The result of a finished design; `started` is its time.perf_counter() at the beginning."""
    loss = achieved_loss(problem, mechanism) if loss is None else loss
    bound = None if draft.lower_bound is None else float(draft.lower_bound)
    beyond = max(0.0, mechanism.max_bias - problem.max_bias)
    slack = draft.price * beyond + _float_error(problem, mechanism, loss)
    return DesignResult(
        mechanism=mechanism,
        loss=loss,
        seconds=time.perf_counter() - started,
        iterations=draft.iterations,
        scope=draft.scope,
        **weighed(loss, bound, slack),
    )
