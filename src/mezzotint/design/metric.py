"""Metric privacy of a table: epsilon per unit of distance, for all real inputs and not only for the knots."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import float_above, log_ratio
from mezzotint.core.mechanism import Mechanism

FloatArray = npt.NDArray[np.float64]


def spacing_of(knots: FloatArray) -> float:
    """The distance of evenly spaced knots; ParameterError if they are not."""
    steps = np.diff(knots)
    if np.ptp(steps) > 1e-9 * steps.max():
        raise ParameterError("knots", knots.tolist(), "the squared metric needs evenly spaced knots; give their number")
    return float(knots[-1] - knots[0]) / (knots.size - 1)


def metric_epsilon(mechanism: Mechanism, metric: str) -> float:
    """The least epsilon of metric privacy that the integers guarantee, per unit (or squared unit) of the data.

    Arguments:
        metric: "absolute": P(report | x) <= exp(epsilon |x - x'|) P(report | x') for all real x, x' in the range.
            "squared": P(report | x) <= exp(epsilon (h ceil(|x - x'| / h))**2) P(report | x'), h the distance of the
            evenly spaced knots: |x - x'| rounded up to the grid, exact for inputs on the grid. Without rounding up no
            mechanism but a constant one has a finite epsilon (docs/proofs/design.md, "Metrics").

            In both, inputs that are not on knots count as up to 2**-31 of their segment farther apart than they are:
            the row is drawn for a position rounded to 2**-32 of it (docs/proofs/sampling.md, S1).

    Returns: epsilon, rounded up; inf if there is none.

    Raises:
        ParameterError: an unknown metric, or "squared" with uneven knots.
    """
    if metric == "absolute":
        return _absolute(mechanism)
    if metric != "squared":
        raise ParameterError("metric", metric, 'use "absolute" or "squared"')
    spacing, losses = Fraction(spacing_of(mechanism.knots)), row_losses(mechanism)
    if np.isinf(losses).any():
        return math.inf
    return float_above(max(Fraction(loss) / (apart * spacing) ** 2 for apart, loss in enumerate(losses.tolist(), 1)))


def row_losses(mechanism: Mechanism) -> FloatArray:
    """(K,) entry j-1: the largest log-ratio of two rows j knots apart, rounded up; inf where a row misses a level."""
    rows, result = mechanism.weights, np.zeros(len(mechanism.weights) - 1)
    for apart in range(1, rows.shape[0]):
        high, low = np.maximum(rows[apart:], rows[:-apart]), np.minimum(rows[apart:], rows[:-apart])
        used = high > 0
        if (low[used] == 0).any():
            result[apart - 1] = math.inf
            continue
        ratios = np.where(used, high / np.maximum(low, 1), 0.0)
        # The float quotient picks the largest up to rounding; 2**-50 covers that.
        where = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
        top, bottom = int(high[where]), int(low[where])
        if top > bottom:
            result[apart - 1] = float_above(Fraction(log_ratio(top, bottom)) + Fraction(1, 2**50))
    return result


def _absolute(mechanism: Mechanism) -> float:
    # Between two knots p is linear, so |d log p / dx| is largest at the smaller end: |b - a| / (h min(a, b)). A
    # supremum of slopes is the supremum of all difference quotients of log p.
    worst = Fraction(0)
    knots = [Fraction(knot) for knot in mechanism.knots.tolist()]
    for k, (row, following) in enumerate(zip(mechanism.weights[:-1], mechanism.weights[1:], strict=True)):
        low, difference = np.minimum(row, following), np.abs(following - row)
        changed = difference > 0
        if not changed.any():
            continue
        if knots[k] == knots[k + 1] or (low[changed] == 0).any():
            return math.inf
        quotient = np.where(changed, difference / np.maximum(low, 1), 0.0)
        near = np.flatnonzero(quotient >= quotient.max() * (1 - 2.0**-50))
        slope = max(Fraction(int(difference[i]), int(low[i])) for i in near.tolist())
        worst = max(worst, slope / (knots[k + 1] - knots[k]))
    return float_above(worst)
