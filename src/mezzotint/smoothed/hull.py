"""Which distributions matter: smoothed delta depends on the convex hull of the set only (Proposition 7)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.smoothed.inputs import Rational, read_rational

optimize = LazyModule("scipy.optimize")

Distribution = tuple[Fraction, ...]


def read_vertices(vertices: Sequence[Rational | Sequence[Rational]]) -> tuple[Distribution, ...]:
    """Distributions over the types, exactly: each a share of the first of two types, or one chance per type.

    Raises:
        ParameterError: if there is none, a chance lies outside [0, 1], chances do not sum to 1, or lengths differ.
    """
    if isinstance(vertices, (int, float, str, Fraction)) or len(vertices) == 0:
        raise ParameterError("vertices", vertices, "needs a sequence of one or more distributions; try (0.0554,)")
    rows = []
    for i, vertex in enumerate(vertices):
        single = isinstance(vertex, (int, float, str, Fraction))
        given = [vertex] if single else list(vertex)
        row = [read_rational(f"vertices[{i}]", value) for value in given]
        if single:
            row.append(1 - row[0])
        if any(not 0 <= value <= 1 for value in row):
            raise ParameterError(f"vertices[{i}]", vertex, "must lie in [0, 1]: the chance of a type")
        if len(row) < 2 or abs(sum(row) - 1) > Fraction(1, 10**9):
            raise ParameterError(f"vertices[{i}]", vertex, "needs one chance per type, summing to 1")
        rows.append(_normalized(row))
    if len({len(row) for row in rows}) > 1:
        raise ParameterError("vertices", vertices, "must all have the same number of types")
    return tuple(rows)


def _normalized(row: list[Fraction]) -> Distribution:
    # Decimal thirds do not sum to 1 exactly; the last chance takes the difference, and stays in [0, 1].
    rest = 1 - sum(row[:-1], Fraction(0))
    if rest < 0:
        total = sum(row, Fraction(0))
        return tuple(value / total for value in row)
    return (*row[:-1], rest)


def hull_vertices(points: Sequence[Distribution]) -> tuple[Distribution, ...]:
    """The points that are not convex combinations of the others, decided in exact rationals.

    Arguments:
        points: distributions over the same types.
    Returns:
        The corners, in the order given, without repetitions. A point is dropped only with an exact combination
        in hand, so a true corner is never lost.
    Source: "Smoothed Differential Privacy", Proposition 7.
    """
    kept = list(dict.fromkeys(points))
    if len(kept[0]) == 2:
        ends = (min(kept), max(kept))
        return tuple(point for point in kept if point in ends)
    for point in list(kept):
        others = [other for other in kept if other != point]
        if others and in_hull(point, others):
            kept = others
    return tuple(kept)


def in_hull(point: Distribution, others: Sequence[Distribution]) -> bool:
    """Whether a point is exactly a convex combination of others; False when no combination could be proved."""
    if point in others:
        return True
    matrix = np.array([[float(value) for value in other] for other in others]).T
    target = np.array([float(value) for value in point])
    # A vertex solution of the linear program uses at most one point per type; those are solved for exactly.
    found = optimize.linprog(np.zeros(len(others)), A_eq=matrix, b_eq=target, method="highs-ds")
    if found.status != 0:
        return False
    chosen = [other for other, weight in zip(others, found.x, strict=True) if weight > 1e-12]
    weights = _solve([list(row) for row in zip(*chosen, strict=True)], list(point))
    return weights is not None and min(weights) >= 0


def _solve(matrix: list[list[Fraction]], target: list[Fraction]) -> list[Fraction] | None:
    # Gauss-Jordan elimination in rationals; None unless there is exactly one solution.
    rows = [[*row, value] for row, value in zip(matrix, target, strict=True)]
    columns = len(matrix[0])
    for column in range(columns):
        pivot = next((i for i in range(column, len(rows)) if rows[i][column] != 0), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for i, row in enumerate(rows):
            if i != column and row[column] != 0:
                rows[i] = [a - row[column] * b for a, b in zip(row, rows[column], strict=True)]
    if any(row[-1] != 0 for row in rows[columns:]):
        return None
    return [row[-1] for row in rows[:columns]]
