"""Compiled inner loops of sums: imported when first needed, because numba is heavy."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from mezzotint.core.kernels import compiled, inlined
from mezzotint.core.types import FloatArray
from mezzotint.privacy.sums.series import Series

_BLOCK = 2048
"""Numbers of a result that stay in a processor's nearest cache."""


@inlined
def _excess(ratio: float, series: Series) -> float:
    """h(u) = max(1 + u, 0)^alpha - 1 - alpha u, rounded up."""
    alpha = series.alpha
    size = abs(ratio)
    if size <= series.reach:
        tail = series.third + ratio * series.fourth
        return ratio * ratio * (series.second + ratio * tail)
    power = 0.0
    if ratio > -1:
        power = math.exp(alpha * math.log1p(ratio))
    # Every term errs by (alpha + 4) UNIT of its own size.
    relative_error = (alpha * (1 + size) + 8) * 4 * series.unit
    error = relative_error * (power + 1 + alpha * size)
    return max(0.0, power - 1 - alpha * ratio + error)


@inlined
def _quotient(ratio: float, distance: float, series: Series) -> float:
    """h(t u) / t^2, at t = 0 of its limit; rounded up."""
    if distance == 0:
        return ratio * ratio * series.second
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
    peak = 2 / series.alpha
    rounding = 1 + 8 * series.unit
    for position in range(weights.size):
        weight = weights[position]
        lowest = low[position]
        highest = high[position]
        if weight == 0:
            continue
        worst = lowest
        if highest > 0:
            worst = highest
        both_signs = lowest < 0 < highest
        hump = (lowest * series.alpha / 2) ** 2 * rounding
        near_value = 0.0
        near_size = 0.0
        for end in range(distances.size):
            distance = distances[end]
            size = -distance * lowest
            value = _quotient(worst, distance, series)
            if both_signs:
                value = max(value, _quotient(lowest, distance, series))
            if end > 0:
                bound = max(near_value, value)
                if peak > 1 and near_size < peak < size:
                    bound = max(bound, hump)
                totals[end - 1] += weight * bound
            near_value = value
            near_size = size


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
        weight = weights[position]
        for side in range(2):
            bound = high[position]
            if side == 1:
                bound = -low[position]
            size = bound / unit
            if weight == 0 or size <= 0:
                continue
            point = 0
            share = size
            if size >= 1:
                mantissa, octave = math.frexp(size)
                share = (2 * mantissa - 1) * parts
                octave_start = 1 + (octave - 1) * parts
                point = octave_start + int(share)
                share -= int(share)
            totals[side, point] += weight * (1 - share)
            totals[side, point + 1] += weight * share


@compiled
def spread(pmfs: FloatArray, row: FloatArray, result: FloatArray) -> None:
    """Add to `result` each of the (cells, width) `pmfs` convolved with the row.

    Term by term as numpy would.
    """
    cell_count, width = pmfs.shape
    for cell in range(cell_count):
        for first in range(0, result.shape[1], _BLOCK):
            for shift in range(row.size):
                weight = row[shift]
                start = max(0, first - shift)
                end = min(width, first + _BLOCK - shift)
                if weight != 0 and start < end:
                    source = pmfs[cell, start:end]
                    target = result[cell, start + shift : end + shift]
                    for position in range(source.size):
                        target[position] += weight * source[position]


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
