"""Convex hulls: of curves of a profile, and of the trade-off of a table's rows, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mezzotint.core.table import check_weights
from mezzotint.core.types import TOTAL, IndexArray, IntArray

Number = TypeVar("Number", int, float, Fraction)
Entry = TypeVar("Entry", np.int64, np.float64)
Fractions = list[Fraction]

_FLOAT_MARGIN = 1e-3
"""By which a point may lie above the hull so far, units of 2**-32, and still become a corner."""


def hull(across: Sequence[Number], values: Sequence[Number]) -> list[int]:
    """Indices of the lower convex hull of points, in the numbers' own arithmetic.

    The points are in the order of `across`. Of points at the same place the last one counts, which
    must be the lowest.
    """
    vertices: list[int] = []
    for point in range(len(across)):
        while len(vertices) >= 2:
            start, vertex = vertices[-2:]
            chord_run = across[point] - across[start]
            chord_rise = values[point] - values[start]
            vertex_run = across[vertex] - across[start]
            vertex_rise = values[vertex] - values[start]
            # Below the chord from the vertex before it to the point, the last vertex stays.
            if vertex_rise * chord_run < chord_rise * vertex_run:
                break
            vertices.pop()
        if vertices:
            vertex = vertices[-1]
            if across[vertex] == across[point]:
                vertices.pop()
        vertices.append(point)
    return vertices


def symmetric_hull(ratios: Fractions, deltas: Fractions) -> tuple[list[int], Fraction]:
    """Indices of the lower hull of the curve together with its mirror image.

    And the slope before the first of them. With every pair its swap is covered, so the bound holds
    below c = 1 as 1 - c + c h(1/c). The true curve is convex throughout: where the two branches
    meet in a concave kink, the chord between them bounds it too. (Probabilities that are the same
    in both worlds, but for rounding, would otherwise count as losses of both signs.)
    """
    # Neighbouring grid points may share one float exponential: the later, smaller bound stands for
    # both.
    vertices = hull(ratios, deltas)
    while True:
        vertex = vertices[0]
        ratio = ratios[vertex]
        delta = deltas[vertex]
        # From (1/c, 1 - 1/c + h/c) to (c, h).
        mirror_slope = (delta - 1) / (1 + ratio)
        if len(vertices) == 1:
            return vertices, mirror_slope
        next_vertex = vertices[1]
        next_run = ratios[next_vertex] - ratio
        next_rise = deltas[next_vertex] - delta
        next_slope = next_rise / next_run
        if mirror_slope <= next_slope:
            return vertices, mirror_slope
        vertices.pop(0)


def _exact_order(first: list[int], second: list[int]) -> list[int]:
    """Levels by the ratio second / first, largest first, in rationals.

    Levels that `first` never shows lead.
    """

    def negative_ratio(level: int) -> float | Fraction:
        if first[level] == 0:
            return -math.inf
        return -Fraction(second[level], first[level])

    levels = range(len(first))
    return sorted(levels, key=negative_ratio)


def _test_order(first: IntArray, others: IntArray) -> IndexArray:
    """(rows, m) levels sorted by the likelihood ratio others / first, largest first, exactly."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = others / first
    ratios = np.where(others > 0, quotients, 0.0)
    order = np.argsort(-ratios, axis=1, kind="stable")
    ordered_first = first[order]
    ordered_others = _in_order(others, order)
    ordered_ratios = _in_order(ratios, order)
    denominators = ordered_first.astype(np.uint64)
    numerators = ordered_others.astype(np.uint64)
    earlier = np.s_[:, :-1]
    later = np.s_[:, 1:]
    # Rounding keeps order, but quotients that are equal as floats may differ as fractions. Their
    # cross products then differ by far less than 2**63, so that the difference modulo 2**64 is the
    # exact one.
    cross_later = numerators[later] * denominators[earlier]
    cross_earlier = numerators[earlier] * denominators[later]
    difference = (cross_later - cross_earlier).astype(np.int64)
    earlier_ratios = ordered_ratios[earlier]
    is_equal = ordered_ratios[later] == earlier_ratios
    are_tied = np.isfinite(earlier_ratios) & is_equal
    misordered = are_tied & (difference > 0)
    misordered_rows = misordered.any(axis=1)
    for row in np.flatnonzero(misordered_rows):
        second = others[row]
        order[row] = _exact_order(first.tolist(), second.tolist())
    return order


def _in_order(rows: npt.NDArray[Entry], order: IndexArray) -> npt.NDArray[Entry]:
    """The entries of each row in the order of its own."""
    return np.take_along_axis(rows, order, axis=1)


def _corners(points: IntArray) -> IntArray:
    """(c, 2) lower convex hull, exactly, of (n, 2) integer points up to 2**32."""
    across, values = points.T
    order = np.lexsort((-values, across))
    ordered_points = points[order]
    across, values = ordered_points.T.tolist()
    vertices = hull(across, values)
    return ordered_points[vertices]


def tradeoff_corners(weights: IntArray) -> tuple[IntArray, IntArray]:
    """False alarms and misses at the corners of a table's trade-off curve; exact.

    Worst over all pairs of rows.

    Arguments:
        weights: (K, m) integer rows that sum to 2**32.

    Returns: (c,) false alarms that increase from 0 to 2**32, and (c,) misses that decrease to 0,
        units of 2**-32.
    """
    table = np.unique(check_weights(weights), axis=0)
    corners = np.array([[0, TOTAL], [TOTAL, 0]], dtype=np.int64)
    for first in table:
        order = _test_order(first, table)
        ordered_first = first[order]
        ordered_rows = _in_order(table, order)
        alarm_rows = np.cumsum(ordered_first, axis=1)
        detection_rows = np.cumsum(ordered_rows, axis=1)
        alarms = alarm_rows.ravel()
        misses = TOTAL - detection_rows.ravel()
        points = np.stack([alarms, misses], axis=1)
        # Points clearly above the hull so far cannot become corners.
        hull_misses = np.interp(alarms, corners[:, 0], corners[:, 1])
        is_low = misses <= hull_misses + _FLOAT_MARGIN
        candidates = np.unique(points[is_low], axis=0)
        all_points = np.concatenate([corners, candidates])
        corners = _corners(all_points)
    corners.setflags(write=False)
    return corners[:, 0], corners[:, 1]
