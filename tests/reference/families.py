"""The published sampling algorithms, run over every outcome of their coins: slow, obvious, exact in rationals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import mpmath


def round_between(x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Probabilities of the lower and of the higher of two bins around x, unbiased."""
    return (high - x) / (high - low), (x - low) / (high - low)


def sides(x: Any, bins: Sequence[Any], limit: str) -> tuple[list[int], list[int]]:
    """Bins to the left and to the right of x; on a bin, `limit` says whether x comes from below or is there."""
    if limit == "below":
        return [i for i, b in enumerate(bins) if b < x], [i for i, b in enumerate(bins) if b >= x]
    return [i for i, b in enumerate(bins) if b <= x], [i for i, b in enumerate(bins) if b > x]


def rqm_pmf(
    x: Fraction, bins: Sequence[Fraction], q: Fraction, limit: str = "at"
) -> list[Fraction]:
    """Algorithm 2 of the RQM paper over all subsets of inner bins."""
    m = len(bins)
    result = [Fraction(0)] * m
    left, right = sides(x, bins, limit)
    for size in range(m - 1):
        for inner in combinations(range(1, m - 1), size):
            kept = {0, *inner, m - 1}
            chance = q**size * (1 - q) ** (m - 2 - size)
            a, b = max(i for i in left if i in kept), min(i for i in right if i in kept)
            down, up = round_between(x, bins[a], bins[b])
            result[a] += chance * down
            result[b] += chance * up
    return result


def pair_pmf(
    x: Any,
    bins: Sequence[Any],
    left: Sequence[Sequence[Any]],
    right: Sequence[Sequence[Any]],
    limit: str = "at",
    choose: Callable[[Any, Any, Any], tuple[Any, Any]] = round_between,
) -> list[Any]:
    """Algorithm 1 of Cai et al. over all pairs of bins, with any rule that decides between the two."""
    m = len(bins)
    result = [bins[0] * 0] * m
    below, above = sides(x, bins, limit)
    j = len(below)
    for a, b in product(below, above):
        chance = left[j - 1][a] * right[m - j - 1][m - 1 - b]
        down, up = choose(x, bins[a], bins[b])
        result[a] += chance * down
        result[b] += chance * up
    return result


def erm_tables(bins: Sequence[float], gamma: float) -> tuple[list[list[Any]], list[list[Any]]]:
    """Selection probabilities of ERM, left and right, from the distances that eq. (2) names."""
    m = len(bins)
    exact = [mpmath.mpf(b) for b in bins]
    left, right = [], []
    for j in range(1, m):
        width = exact[j - 1] - exact[0]
        weights = [
            mpmath.exp(gamma * (exact[i] - exact[j - 1]) / (2 * width)) if j > 1 else mpmath.mpf(1)
            for i in range(j)
        ]
        left.append([w / mpmath.fsum(weights) for w in weights])
        # The j outermost bins on the right, outermost first; the nearest is bin m - j (0-based).
        width = exact[-1] - exact[m - j]
        weights = [
            mpmath.exp(gamma * (exact[m - j] - exact[m - 1 - i]) / (2 * width))
            if j > 1
            else mpmath.mpf(1)
            for i in range(j)
        ]
        right.append([w / mpmath.fsum(weights) for w in weights])
    return left, right


def binomial_pmf(trials: int, coin: Fraction) -> list[Fraction]:
    """Binomial probabilities by tossing all coins one after the other."""
    result = [Fraction(1)]
    for _ in range(trials):
        shorter, longer = [*result, Fraction(0)], [Fraction(0), *result]
        result = [(1 - coin) * a + coin * b for a, b in zip(shorter, longer, strict=True)]
    return result


def log_ratio(rows: Sequence[Sequence[Any]]) -> float:
    """Pure epsilon: the largest log ratio of two rows at one level; levels without mass are dropped."""
    worst = mpmath.mpf(0)
    for column in zip(*rows, strict=True):
        if max(column) == 0:
            continue
        if min(column) == 0:
            return math.inf
        worst = max(worst, mpmath.log(_real(max(column)) / _real(min(column))))
    return float(worst)


def renyi(first: Sequence[Any], second: Sequence[Any], alpha: Any) -> float:
    """Renyi divergence of one ordered pair, 50 digits; levels empty in both are dropped."""
    with mpmath.workdps(50):
        pairs = [(_real(p), _real(q)) for p, q in zip(first, second, strict=True) if p or q]
        order = mpmath.mpf(alpha)
        if order == 1:
            return float(mpmath.fsum(p * mpmath.log(p / q) for p, q in pairs if p))
        return float(
            mpmath.log(mpmath.fsum(p**order * q ** (1 - order) for p, q in pairs)) / (order - 1)
        )


def hockey_stick(first: Sequence[Any], second: Sequence[Any], epsilon: Any) -> float:
    """sum max(p - e**epsilon q, 0) of one ordered pair."""
    with mpmath.workdps(50):
        factor = mpmath.exp(epsilon)
        terms = [_real(p) - factor * _real(q) for p, q in zip(first, second, strict=True)]
        return float(mpmath.fsum(max(t, 0) for t in terms))


def _real(value: Any) -> Any:
    return (
        mpmath.mpf(value.numerator) / value.denominator
        if isinstance(value, Fraction)
        else mpmath.mpf(value)
    )
