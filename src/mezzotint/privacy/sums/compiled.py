"""Compiled inner loops of sums: imported when first needed, because numba is heavy."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from mezzotint.core.kernels import compiled, inlined
from mezzotint.core.types import FloatArray

Series = tuple[float, float, float, float, float, float]
"""What `geometry.series` returns: (alpha, small, a, b, c, UNIT)."""

_BLOCK = 2048
"""Numbers of a result that stay in a processor's nearest cache."""


@inlined
def _excess(ratio: float, series: Series) -> float:
    """h(u) = max(1 + u, 0)^alpha - 1 - alpha u, rounded up."""
    alpha, small, second, third, fourth, unit = series
    size = abs(ratio)
    if size <= small:
        return ratio * ratio * (second + ratio * (third + ratio * fourth))
    power = math.exp(alpha * math.log1p(ratio)) if ratio > -1 else 0.0
    # Every term errs by (alpha + 4) UNIT of its own size.
    error = (alpha * (1 + size) + 8) * 4 * unit * (power + 1 + alpha * size)
    return max(0.0, power - 1 - alpha * ratio + error)


@inlined
def _quotient(ratio: float, distance: float, series: Series) -> float:
    """h(t u) / t^2, at t = 0 of its limit; rounded up."""
    if distance == 0:
        return ratio * ratio * series[2]
    return _excess(distance * ratio, series) / (distance * distance)


@compiled
def mean_quotients(
    weights: FloatArray,
    low: FloatArray,
    high: FloatArray,
    distances: FloatArray,
    series: Series,
    totals: FloatArray,
) -> None:
    """Add to (bins,) `totals` the means of the largest h(t u) / t^2 inside each bin of distances.

    Monotone in t > 0 for each u but for one hump: both ends of a bin, and the hump, bound it. Below
    t u = -1 it is (alpha v - 1) / v^2 u^2 with v = -t u, which rises up to v = 2 / alpha: orders
    below 2 see it.

    Arguments:
        weights: (n,) >= 0; places with none are passed over.
        low, high: (n,) bounds of u: the end farther from 0 is the worse one, of both where 0 is
            inside.
        distances: (bins + 1,) increasing, >= 0.
    """
    alpha = series[0]
    unit = series[5]
    peak = 2 / alpha
    for position in range(weights.size):
        weight = weights[position]
        lowest = low[position]
        highest = high[position]
        if weight == 0:
            continue
        worst = highest if highest > 0 else lowest
        both_signs = lowest < 0 < highest
        nearer = 0.0
        for end in range(distances.size):
            value = _quotient(worst, distances[end], series)
            if both_signs:
                value = max(value, _quotient(lowest, distances[end], series))
            if end > 0:
                bound = max(nearer, value)
                if peak > 1 and -distances[end - 1] * lowest < peak < -distances[end] * lowest:
                    bound = max(bound, (lowest * alpha / 2) ** 2 * (1 + 8 * unit))
                totals[end - 1] += weight * bound
            nearer = value


@compiled
def quotients(
    points: FloatArray,
    distances: FloatArray,
    series: Series,
    result: FloatArray,
) -> None:
    """Add to (points, bins) `result` the bounds of `mean_quotients` of each point, weighing 1."""
    weight = np.ones(1)
    for index in range(points.size):
        point = points[index : index + 1]
        mean_quotients(weight, point, point, distances, series, result[index])


@compiled
def gather(
    weights: FloatArray,
    low: FloatArray,
    high: FloatArray,
    unit: float,
    parts: int,
    totals: FloatArray,
) -> None:
    """Add to (2, points) `totals` each weight at its `high` above 0, and at its `low` below 0.

    Those below 0 go to `totals[1]`. A weight is shared by the two points around |u| so that its
    mean stays. Points are 0, then 2^o (1 + k / parts) units for k < parts and o = 0, 1, ...; a unit
    and `parts` are powers of two, so that shares are exact.
    """
    for position in range(weights.size):
        for side in range(2):
            size = (high[position] if side == 0 else -low[position]) / unit
            if weights[position] == 0 or size <= 0:
                continue
            point = 0
            share = size
            if size >= 1:
                mantissa, octave = math.frexp(size)
                share = (2 * mantissa - 1) * parts
                point = 1 + (octave - 1) * parts + int(share)
                share -= int(share)
            totals[side, point] += weights[position] * (1 - share)
            totals[side, point + 1] += weights[position] * share


@compiled
def spread(pmfs: FloatArray, row: FloatArray, result: FloatArray) -> None:
    """Add to `result` each of the (cells, width) `pmfs` convolved with the row.

    Term by term as numpy would.
    """
    for cell in range(pmfs.shape[0]):
        for first in range(0, result.shape[1], _BLOCK):
            for shift in range(row.size):
                start = max(0, first - shift)
                end = min(pmfs.shape[1], first + _BLOCK - shift)
                if row[shift] != 0 and start < end:
                    source = pmfs[cell, start:end]
                    target = result[cell, start + shift : end + shift]
                    for position in range(source.size):
                        target[position] += row[shift] * source[position]


@partial(inlined, reorder=True)
def _sum_above(upper: FloatArray, lower: FloatArray) -> float:
    total = 0.0
    for position in range(upper.size):
        total += max(upper[position] - lower[position], 0.0)
    return total


@compiled
def excess(upper: FloatArray, lower: FloatArray, result: FloatArray) -> None:
    """Puts into (cells,) `result` what (cells, width) `upper` has above `lower`."""
    for cell in range(upper.shape[0]):
        result[cell] = _sum_above(upper[cell], lower[cell])
