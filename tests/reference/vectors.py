"""Slow, obvious twins for private vectors: dense transforms, enumerated reports, convolutions by definition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from mezzotint.core.mechanism import Mechanism


def hadamard(size: int) -> np.ndarray:
    """Entry (i, j) is (-1)**(number of common ones of i and j) / sqrt(size)."""
    signs = [[(-1) ** bin(i & j).count("1") for j in range(size)] for i in range(size)]
    return np.array(signs) / math.sqrt(size)


def hockey_stick(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """sum max(first - e**epsilon second, 0)."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def reports(mechanism: Mechanism, vector: Iterable[float]) -> np.ndarray:
    """Probabilities of all combinations of levels for the coordinates of a vector, flat."""
    product = np.ones(1)
    for x in vector:
        product = np.outer(product, mechanism.pmf(x)).ravel()
    return product


def grid_ball(dimension: int, radius: float, count: int) -> list[tuple[float, ...]]:
    """Points of an even grid inside the ball, and the grid's directions pushed to its surface."""
    along = np.linspace(-radius, radius, count)
    inside = [v for v in itertools.product(along, repeat=dimension) if math.hypot(*v) <= radius]
    pushed = [
        tuple(float(c) * radius / math.hypot(*v) for c in v)
        for v in itertools.product(along, repeat=dimension)
        if math.hypot(*v) > 0
    ]
    return sorted({*inside, *pushed})
