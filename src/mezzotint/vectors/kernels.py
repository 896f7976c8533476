"""Compiled inner loops of the room: imported when first needed, because numba is heavy."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.compiled import compiled, inlined


@inlined
def _excess(u: float, alpha: float, small: float, a: float, b: float, c: float, unit: float) -> float:
    """(1 + u)^alpha - 1 - alpha u for u >= -1, rounded up: u^2 (a + b u + c u^2) bounds it for |u| <= small."""
    if abs(u) <= small:
        return u * u * (a + u * (b + c * u))
    power = math.exp(alpha * math.log1p(u)) if u > -1 else 0.0
    size = abs(u)
    # Every term errs by (alpha + 4) UNIT of its own size.
    return max(0.0, power - 1 - alpha * u + (alpha * (1 + size) + 8) * 4 * unit * (power + 1 + alpha * size))


@compiled
def mean_excess(
    high: np.ndarray,
    low: np.ndarray,
    copy_high: np.ndarray,
    copy_low: np.ndarray,
    alpha: float,
    small: float,
    a: float,
    b: float,
    c: float,
    unit: float,
) -> float:
    """Sum of copy_high h(u), u at the worse end of [low / copy_high - 1, high / copy_low - 1], place by place."""
    total = 0.0
    for k in range(high.size):
        above = (high[k] - copy_low[k]) / copy_low[k]
        below = (low[k] - copy_high[k]) / copy_high[k]
        first = _excess(above, alpha, small, a, b, c, unit)
        second = _excess(below, alpha, small, a, b, c, unit)
        total += copy_high[k] * max(first, second)
    return total
