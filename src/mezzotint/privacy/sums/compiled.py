"""Compiled inner loops of sums: imported when first needed, because numba is heavy."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from mezzotint.core.kernels import compiled, inlined
from mezzotint.core.types import FloatArray

Series = tuple[float, float, float, float, float, float]
"""What `geometry.series` returns: (alpha, small, a, b, c, UNIT)."""


@inlined
def _excess(u: float, series: Series) -> float:
    """h(u) = max(1 + u, 0)^alpha - 1 - alpha u, rounded up."""
    alpha, small, a, b, c, unit = series
    if abs(u) <= small:
        return u * u * (a + u * (b + c * u))
    power = math.exp(alpha * math.log1p(u)) if u > -1 else 0.0
    size = abs(u)
    # Every term errs by (alpha + 4) UNIT of its own size.
    return max(
        0.0,
        power - 1 - alpha * u + (alpha * (1 + size) + 8) * 4 * unit * (power + 1 + alpha * size),
    )


@compiled
def mean_excess(
    high: FloatArray, low: FloatArray, copy_high: FloatArray, copy_low: FloatArray, series: Series
) -> float:
    """Sum of copy_high h(u), u at the worse end of [low / copy_high - 1, high / copy_low - 1],
    place by place."""
    total = 0.0
    for k in range(high.size):
        above = (high[k] - copy_low[k]) / copy_low[k]
        below = (low[k] - copy_high[k]) / copy_high[k]
        total += copy_high[k] * max(_excess(above, series), _excess(below, series))
    return total


@inlined
def _quotient(u: float, distance: float, series: Series) -> float:
    """h(t u) / t^2, at t = 0 of its limit; rounded up."""
    if distance == 0:
        return u * u * series[2]
    return _excess(distance * u, series) / (distance * distance)


@compiled
def mean_quotients(
    weights: FloatArray,
    low: FloatArray,
    high: FloatArray,
    distances: FloatArray,
    series: Series,
    totals: FloatArray,
) -> None:
    """Adds to (bins,) `totals` the means of the largest h(t u) / t^2 inside each bin of distances.

    Monotone in t > 0 for each u but for one hump: both ends of a bin, and the hump, bound it. Below
    t u = -1 it is (alpha v - 1) / v^2 u^2 with v = -t u, which rises up to v = 2 / alpha: orders
    below 2 see it.

    Arguments:
        weights: (n,) >= 0; places with none are passed over.
        low, high: (n,) bounds of u: the end farther from 0 is the worse one, of both where 0 is
            inside.
        distances: (bins + 1,) increasing, >= 0.
    """
    alpha, unit = series[0], series[5]
    peak = 2 / alpha
    for i in range(weights.size):
        weight, least, most = weights[i], low[i], high[i]
        if weight == 0:
            continue
        worst = most if most > 0 else least
        both = least < 0 < most
        nearer = 0.0
        for j in range(distances.size):
            value = _quotient(worst, distances[j], series)
            if both:
                value = max(value, _quotient(least, distances[j], series))
            if j > 0:
                bound = max(nearer, value)
                if peak > 1 and -distances[j - 1] * least < peak < -distances[j] * least:
                    bound = max(bound, (least * alpha / 2) ** 2 * (1 + 8 * unit))
                totals[j - 1] += weight * bound
            nearer = value


@compiled
def quotients(
    points: FloatArray, distances: FloatArray, series: Series, result: FloatArray
) -> None:
    """Puts into (points, bins) `result` the bounds of `mean_quotients` for one place where u is the
    point."""
    one = np.ones(1)
    for i in range(points.size):
        u = points[i : i + 1]
        mean_quotients(one, u, u, distances, series, result[i])


@compiled
def gather(
    weights: FloatArray,
    low: FloatArray,
    high: FloatArray,
    unit: float,
    parts: int,
    totals: FloatArray,
) -> None:
    """Adds to (2, points) `totals` each weight at its `high` above 0, and at its `low` below 0, in
    `totals[1]`.

    A weight is shared by the two points around |u| so that its mean stays. Points are 0, then 2^o
    (1 + k / parts) units for k < parts and o = 0, 1, ...; a unit and `parts` are powers of two, so
    that shares are exact.
    """
    for i in range(weights.size):
        for side in range(2):
            size = (high[i] if side == 0 else -low[i]) / unit
            if weights[i] == 0 or size <= 0:
                continue
            place, share = 0, size
            if size >= 1:
                part, octave = math.frexp(size)
                share = (2 * part - 1) * parts
                place = 1 + (octave - 1) * parts + int(share)
                share -= int(share)
            totals[side, place] += weights[i] * (1 - share)
            totals[side, place + 1] += weights[i] * share


@compiled
def spread(pmfs: FloatArray, row: FloatArray, result: FloatArray) -> None:
    """Adds to `result` each of the (cells, width) `pmfs` convolved with the row, term by term as
    numpy would."""
    for cell in range(pmfs.shape[0]):
        # A block of the result stays in a processor's nearest cache while every entry of the row
        # adds to it.
        for first in range(0, result.shape[1], 2048):
            for i in range(row.size):
                start, end = max(0, first - i), min(pmfs.shape[1], first + 2048 - i)
                if row[i] != 0 and start < end:
                    source, target = pmfs[cell, start:end], result[cell, start + i : end + i]
                    for place in range(source.size):
                        target[place] += row[i] * source[place]


@partial(inlined, reorder=True)
def _sum_above(upper: FloatArray, lower: FloatArray) -> float:
    total = 0.0
    for place in range(upper.size):
        total += max(upper[place] - lower[place], 0.0)
    return total


@compiled
def excess(upper: FloatArray, lower: FloatArray, result: FloatArray) -> None:
    """Puts into (cells,) `result` what (cells, width) `upper` has above `lower`."""
    for cell in range(upper.shape[0]):
        result[cell] = _sum_above(upper[cell], lower[cell])
