"""Slow, obvious twins of the room `privacy`: fractions, 60-digit logarithms and enumeration."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement, pairwise, permutations, product

import mpmath
import numpy as np
import numpy.typing as npt

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL

Row = list[Fraction]
mpmath.mp.dps = 60


def rows_of(weights: npt.NDArray[np.int64]) -> list[Row]:
    """The table's rows as probabilities."""
    return [[Fraction(int(weight), TOTAL) for weight in row] for row in weights]


def pmf_at(mechanism: Mechanism, x: Fraction) -> Row:
    """The distribution of the report at x inside the range, as the definition says."""
    knots = [Fraction(knot) for knot in mechanism.knots.tolist()]
    rows = rows_of(mechanism.weights)
    for k in range(len(knots) - 1):
        if knots[k] <= x < knots[k + 1]:
            t = (x - knots[k]) / (knots[k + 1] - knots[k])
            return [(1 - t) * p + t * q for p, q in zip(rows[k], rows[k + 1], strict=True)]
    return rows[-1]


def hockey_stick(first: Row, second: Row, epsilon: float) -> mpmath.mpf:
    """sum of max(P - e**epsilon Q, 0), 60 digits."""
    ratio = mpmath.exp(mpmath.mpf(epsilon))
    terms = (_real(p) - ratio * _real(q) for p, q in zip(first, second, strict=True))
    return mpmath.fsum(term for term in terms if term > 0)


def divergence(first: Row, second: Row, alpha: float) -> mpmath.mpf:
    """Renyi divergence of order alpha > 0, 60 digits; Kullback-Leibler at 1, log of the largest ratio at inf."""
    if first == second:
        return mpmath.mpf(0)
    pairs = [(_real(p), _real(q)) for p, q in zip(first, second, strict=True) if p > 0]
    if alpha == mpmath.inf:
        return max(mpmath.log(p / q) if q > 0 else mpmath.inf for p, q in pairs)
    if alpha >= 1 and any(q == 0 for _, q in pairs):
        return mpmath.inf
    if alpha == 1:
        return mpmath.fsum(p * mpmath.log(p / q) for p, q in pairs)
    order = mpmath.mpf(alpha)
    total = mpmath.fsum(p**order * q ** (1 - order) for p, q in pairs if q > 0)
    return mpmath.log(total) / (order - 1) if total > 0 else mpmath.inf


def worst_hockey_stick(rows: list[Row], epsilon: float) -> mpmath.mpf:
    """Over all ordered pairs of rows."""
    return max(
        (hockey_stick(a, b, epsilon) for a, b in permutations(rows, 2)), default=mpmath.mpf(0)
    )


def worst_divergence(rows: list[Row], alpha: float) -> mpmath.mpf:
    """Over all ordered pairs of rows."""
    return max((divergence(a, b, alpha) for a, b in permutations(rows, 2)), default=mpmath.mpf(0))


def miss_of_best_test(first: Row, second: Row, false_alarm: Fraction) -> Fraction:
    """Neyman and Pearson, by hand: least miss probability of a test that raises at most this many false alarms."""
    order = sorted(
        range(len(first)), key=lambda i: (first[i] > 0, -second[i] / first[i] if first[i] else 0)
    )
    budget, miss = false_alarm, Fraction(1)
    for i in order:
        if first[i] <= budget:
            budget -= first[i]
            miss -= second[i]
        else:
            return miss - second[i] * budget / first[i]
    return miss


def product_row(rows: list[Row]) -> Row:
    """The joint distribution of independent reports, by enumeration."""
    joint = [Fraction(1)]
    for row in rows:
        joint = [p * q for p, q in product(joint, row)]
    return joint


def _real(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def dominating_pair(weights: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Masses of the outputs of the pair that dominates all pairs of rows, units of 2**-32, exactly.

    Every set of levels is a test, of every row against every other: its detections and false alarms are a
    point. The pair's own tests are the least concave curve above all points.
    """
    rows = np.unique(weights, axis=0).tolist()
    levels = range(len(rows[0]))
    points: set[tuple[int, int]] = {(0, 0), (sum(rows[0]), sum(rows[0]))}
    for size in levels:
        for chosen in combinations(levels, size):
            masses = [sum(row[level] for level in chosen) for row in rows]
            points.update((second, first) for first, second in permutations(masses, 2))
    corners: list[tuple[int, int]] = []
    for x, y in sorted(points):
        while len(corners) >= 2:
            (x0, y0), (x1, y1) = corners[-2:]
            if (y1 - y0) * (x - x0) > (y - y0) * (x1 - x0):
                break
            corners.pop()
        corners.append((x, y))
    return [(y1 - y0, x1 - x0) for (x0, y0), (x1, y1) in pairwise(corners)]


def product_delta(pair: list[tuple[int, int]], count: int, ratio: Fraction) -> Fraction:
    """Exact sum of max(P - ratio Q, 0) for `count` independent draws from a pair of distributions."""
    joint: Counter[tuple[int, int]] = Counter({(1, 1): 1})
    for _ in range(count):
        longer: Counter[tuple[int, int]] = Counter()
        for (p, q), times in joint.items():
            for a, b in pair:
                longer[p * a, q * b] += times
        joint = longer
    excess = sum(times * max(p - ratio * q, 0) for (p, q), times in joint.items())
    return Fraction(excess) / TOTAL**count


def worst_releases(
    weights: npt.NDArray[np.int64], coordinates: int, rounds: int, ratios: list[Fraction]
) -> list[Fraction]:
    """Exact worst delta of rounds x coordinates reports at every ratio e**epsilon, by going through everything.

    Inputs of one round are chosen together, those of the next in the light of all earlier reports. In integers: a
    history is the pair of its probabilities in both worlds, in units of 2**-32 per report.
    """
    rows = [tuple(row) for row in np.unique(weights, axis=0).tolist()]
    rounds_seen: list[Counter[tuple[int, int]]] = []
    for pairs in combinations_with_replacement(list(permutations(rows, 2)), coordinates):
        joint: Counter[tuple[int, int]] = Counter({(1, 1): 1})
        for first, second in pairs:
            longer: Counter[tuple[int, int]] = Counter()
            for (p, q), times in joint.items():
                for a, b in zip(first, second, strict=True):
                    longer[p * a, q * b] += times
            joint = longer
        rounds_seen.append(joint)

    @cache
    def value(left: int, p: int, q: int) -> tuple[int, ...]:
        if left == 0:
            return tuple(max(ratio.denominator * p - ratio.numerator * q, 0) for ratio in ratios)
        best = [0] * len(ratios)
        for joint in rounds_seen:
            sums = [0] * len(ratios)
            for (a, b), times in joint.items():
                for i, part in enumerate(value(left - 1, p * a, q * b)):
                    sums[i] += times * part
            best = [max(pair) for pair in zip(best, sums, strict=True)]
        return tuple(best)

    scale = TOTAL ** (coordinates * rounds)
    return [
        Fraction(part, scale * ratio.denominator)
        for part, ratio in zip(value(rounds, 1, 1), ratios, strict=True)
    ]
