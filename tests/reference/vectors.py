"""Slow, obvious twins for private vectors: dense transforms, enumerated reports, convolutions by definition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL


def hadamard(size: int) -> np.ndarray:
    """Entry (i, j) is (-1)**(number of common ones of i and j) / sqrt(size)."""
    signs = [[(-1) ** bin(i & j).count("1") for j in range(size)] for i in range(size)]
    return np.array(signs) / math.sqrt(size)


def summed_pmf(weights: np.ndarray, clients: int) -> np.ndarray:
    """The sum of `clients` draws, one convolution after the other."""
    pmf = np.ones(1)
    for _ in range(clients):
        pmf = np.convolve(pmf, weights / float(TOTAL))
    return pmf


def shifted(pmf: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """The pmf and its copy moved by `shift` >= 0, on common places."""
    return np.append(pmf, np.zeros(shift)), np.append(np.zeros(shift), pmf)


def hockey_stick(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """sum max(first - e**epsilon second, 0)."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def moved_vector_delta(pmf: np.ndarray, steps: Iterable[int], epsilon: float) -> float:
    """Hockey-stick divergence of noise on several coordinates, moved by `steps`: the product, enumerated."""
    first, second = np.ones(1), np.ones(1)
    for step in steps:
        one, other = shifted(pmf, abs(step))
        if step < 0:
            one, other = other, one
        first, second = np.outer(first, one).ravel(), np.outer(second, other).ravel()
    return hockey_stick(first, second, epsilon)


def integer_ball(dimension: int, radius: float, reach: int) -> list[tuple[int, ...]]:
    """Integer vectors of L2 norm at most `radius` with coordinates of size at most `reach`."""
    along = range(-reach, reach + 1)
    return [
        v
        for v in itertools.product(along, repeat=dimension)
        if sum(c * c for c in v) <= radius**2 * (1 + 1e-12)
    ]


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


def ddg_epsilon(sigma: float, reach: float, clients: int, dimension: int, delta: float) -> float:
    """Kairouz, Liu and Steinke 2021, Theorem 1 (concentrated DP of distributed discrete Gaussians), converted.

    `reach` is the L2 distance of neighbouring integer vectors.
    """
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, clients))
    rho = min(
        reach**2 / (clients * sigma**2) + tau * dimension / 2,
        (reach / (math.sqrt(clients) * sigma) + tau * math.sqrt(dimension)) ** 2,
    )
    alphas = 1 + np.geomspace(1e-2, 1e3, 4000)
    return float(
        min(rho / 2 * a + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in alphas)
    )


def skellam_epsilon(variance: float, l1: float, l2: float, delta: float) -> float:
    """Agarwal, Kairouz and Liu 2021, Theorem 3.5 (Renyi), of L1 and L2 distances of neighbours; converted."""

    def renyi(a: float) -> float:
        extra = min(((2 * a - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        return a * l2**2 / (2 * variance) + extra

    alphas = 1 + np.geomspace(1e-2, 1e3, 4000)
    return float(min(renyi(a) + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in alphas))
