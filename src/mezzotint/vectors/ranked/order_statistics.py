"""Order statistics of normal numbers, which say how close the closest of M random directions are.

Everything is a one-dimensional integral over a beta-binomial tail; nothing is simulated.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import FloatArray

special: Any = LazyModule("scipy.special")

_FARTHEST = 9.0
"""Beyond it lies a normal number with probability 2e-19."""

_NODES = 96
"""Gauss-Legendre nodes of each of the parts that an integral is cut into."""


@lru_cache(maxsize=1)
def _rule() -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def _grid(low: float, high: float, centre: float, spread: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [low, high], with two parts of their own where the integrand has its step."""
    cuts = sorted({low, high, *(min(max(centre + c * spread, low), high) for c in (-9.0, 0.0, 9.0))})
    nodes, weights = _rule()
    parts = [(0.5 * (b - a), 0.5 * (a + b)) for a, b in pairwise(cuts)]
    return (
        np.concatenate([middle + half * nodes for half, middle in parts]),
        np.concatenate([half * weights for half, _ in parts]),
    )


@lru_cache(maxsize=4096)
def top_normal(count: int, top: int) -> tuple[float, float]:
    """Expected sum, and expected sum of squares, of the `top` largest of `count` independent N(0, 1) numbers.

    Arguments:
        count: M >= 1.
        top: k, from 0 to M.

    Returns: (S_k(M), S2_k(M)), relative error about 1e-12.

    Source: the sum's integrand is M x phi(x) P(fewer than k of the other M - 1 are larger).
    """
    if top in (0, count):
        return 0.0, float(top)
    share = top / count
    centre = float(-special.ndtri(share))
    spread = math.sqrt(share * (1 - share) / count) / _density(centre)
    x, weights = _grid(-_FARTHEST, _FARTHEST, centre, spread)
    mass = count * weights * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    mass *= special.betainc(count - top, top, special.ndtr(x))
    return float(mass @ x), float(mass @ (x * x))


@lru_cache(maxsize=4096)
def top_folded(count: int, top: int) -> tuple[float, float]:
    """As `top_normal`, of the `top` largest of +-g_1 .. +-g_h, where `count` = 2 h.

    Arguments:
        count: M = 2 h, even.
        top: k, from 0 to M. For k <= h these are the largest absolute values.
    """
    half = count // 2
    if top > half:
        # The sum of all is 0, that of all squares 2 h: what is not on top mirrors what is.
        first, second = top_folded(count, count - top)
        return first, count - second
    if top == 0:
        return 0.0, 0.0
    if top == half:
        return half * math.sqrt(2 / math.pi), float(half)
    share = top / half
    centre = float(special.ndtri(1 - share / 2))
    spread = math.sqrt(share * (1 - share) / half) / (2 * _density(centre))
    x, weights = _grid(0.0, _FARTHEST, centre, spread)
    mass = half * weights * 2 * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    mass *= special.betainc(half - top, top, special.erf(x / math.sqrt(2)))
    return float(mass @ x), float(mass @ (x * x))


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def mean_norm(dimension: int) -> float:
    """Expected L2 norm of a vector of so many independent N(0, 1) numbers: sqrt(d - 1/2) up to O(d**-1.5)."""
    if dimension > 10**6:
        # sqrt(2) Gamma((d+1)/2) / Gamma(d/2) = sqrt(d) (1 - 1/(4 d) + 1/(32 d^2) + ...); the next term is below 1e-18.
        return math.sqrt(dimension) * (1 - 1 / (4 * dimension) + 1 / (32 * dimension**2))
    return math.sqrt(2) * math.exp(math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2))


@lru_cache(maxsize=256)
def gaussian_constant(epsilon: float) -> tuple[float, float]:
    """The error constant of PrivUnitG, the yardstick: E|error|^2 of a unit vector is A d, but for a constant.

    Arguments:
        epsilon: > 0, of the whole vector.

    Returns: (A, q): the least A over the share q of directions that count as close.

    Source: Asi, Feldman and Talwar 2022, section 4; the limit of ranked codebooks for many codewords.
    """

    # q e^eps / (1 - q) is searched on a log grid, then by golden section: A is unimodal in log q.
    def constant(log_share: float) -> float:
        share = math.exp(log_share)
        density = _density(float(-special.ndtri(share)))
        # (q e^eps + 1 - q) / (e^eps - 1), without overflow.
        ratio = (share + (1 - share) * math.exp(-epsilon)) / -math.expm1(-epsilon)
        return (ratio / density) ** 2

    low, high = -min(epsilon, 600.0) - 4.0, math.log(0.5)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if constant(left) < constant(right) else (left, high)
    best = (low + high) / 2
    return constant(best), math.exp(best)


def gaussian_error(dimension: int, epsilon: float) -> float:
    """Mean squared error of PrivUnitG for a unit vector, with the share that makes `gaussian_constant` least.

    Its inner product with the vector has the mean m = A**-0.5 and the mean square 1 + m Phi^-1(1 - q), before division
    by m; the other coordinates are N(0, 1).
    """
    constant, share = gaussian_constant(epsilon)
    square = 1 + float(-special.ndtri(share)) / math.sqrt(constant)
    return constant * (dimension - 1 + square) - 1
