"""The trade-off curve of one report: how well any attack can tell two inputs apart (f-DP), with exact corners.

The Gaussian mechanism's exact curve: delta at an epsilon, epsilon at a delta, and the shift that a pair allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import check_weights, float_above
from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray, Mechanism
from mezzotint.core.search import bracket


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TradeoffCurve:
    """A convex piecewise linear curve from (0, miss) to (1, 0): least miss probability at each false-alarm rate.

    Arguments:
        false_alarms: (c,) corners, in units of 2**-32, strictly increasing from 0 to 2**32.
        misses: (c,) the least probability, in units of 2**-32, that an attack with that false-alarm rate overlooks the
            other input; strictly decreasing until it reaches 0.

    Guarantees:
        No test between any two inputs lies below the curve, and every corner is reached by a test between two rows.
        The mechanism is f-DP for this f and for no larger convex f.
    Source: Dong, Roth and Su 2022, Definition 2.3 and Proposition 2.5; T2 (docs/proofs/tables.md).
    """

    false_alarms: IntArray
    misses: IntArray

    def exact_miss(self, false_alarm: Fraction) -> Fraction:
        """Least miss probability at a false-alarm rate, both rational."""
        if not 0 <= false_alarm <= 1:
            raise ParameterError("false_alarm", str(false_alarm), "a probability lies between 0 and 1")
        scaled = false_alarm * TOTAL
        corners = list(zip(self.false_alarms.tolist(), self.misses.tolist(), strict=True))
        # A convex piecewise linear curve is the largest of its chords.
        return max(_on_line(left, right, scaled) for left, right in pairwise(corners)) / TOTAL

    def power(self, false_alarm: float) -> float:
        """Largest probability, rounded up, that an attack detects the other input at this false-alarm rate in [0, 1].

        Raises:
            ParameterError: false_alarm outside [0, 1] or NaN.

        Guarantees: at most e**epsilon * false_alarm + delta(epsilon) for every epsilon.
        """
        if not 0 <= false_alarm <= 1:
            raise ParameterError("false_alarm", false_alarm, "a probability lies between 0 and 1")
        return float_above(1 - self.exact_miss(Fraction(false_alarm)))


def _on_line(left: tuple[int, int], right: tuple[int, int], x: Fraction) -> Fraction:
    return left[1] + (x - left[0]) * Fraction(right[1] - left[1], right[0] - left[0])


def _exact_order(first: list[int], other: list[int]) -> list[int]:
    """Levels by the ratio other / first, largest first, in rationals; levels that `first` never shows lead."""
    certain = [i for i, weight in enumerate(first) if weight == 0]
    finite = [i for i, weight in enumerate(first) if weight > 0]
    return certain + sorted(finite, key=lambda i: -Fraction(other[i], first[i]))


def _test_order(first: IntArray, others: IntArray) -> npt.NDArray[np.intp]:
    """(rows, m) levels sorted by the likelihood ratio others / first, largest first, exactly."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(others > 0, others / first, 0.0)
    order = np.argsort(-ratios, axis=1, kind="stable")
    p, q = first[order].astype(np.uint64), np.take_along_axis(others, order, axis=1).astype(np.uint64)
    sorted_ratios = np.take_along_axis(ratios, order, axis=1)
    before, after = sorted_ratios[:, :-1], sorted_ratios[:, 1:]
    # Rounding keeps order, but quotients that are equal as floats may differ as fractions. Their cross products then
    # differ by far less than 2**63, so that the difference modulo 2**64 is the exact one.
    difference = (q[:, 1:] * p[:, :-1] - q[:, :-1] * p[:, 1:]).astype(np.int64)
    wrong = np.isfinite(before) & (after == before) & (difference > 0)
    for row in np.flatnonzero(wrong.any(axis=1)):
        order[row] = _exact_order(first.tolist(), others[row].tolist())
    return order


def _corners(points: IntArray) -> IntArray:
    """(c, 2) lower convex hull, exactly, of (n, 2) integer points up to 2**32."""
    order = np.lexsort((points[:, 1], points[:, 0]))
    hull: list[tuple[int, int]] = []
    for x, y in points[order].tolist():
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2], hull[-1]
            if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0):
                break
            hull.pop()
        if not hull or x > hull[-1][0]:
            hull.append((x, y))
    return np.array(hull, dtype=np.int64)


def tradeoff(mechanism: Mechanism) -> TradeoffCurve:
    """The trade-off curve of one report, worst over all pairs of inputs, with exact integer corners.

    Arguments:
        mechanism: any table.

    Guarantees:
        delta(epsilon) is the largest 1 - miss - e**epsilon * false_alarm over the corners.
        Symmetric: swapping false alarms and misses gives the same curve.

    Edge cases: equal rows: the straight line from (0, 1) to (1, 0). Disjoint rows: miss 0 everywhere.
    Source: Neyman-Pearson; Dong, Roth and Su 2022. For mixtures of rows, revealing which rows were mixed can only
        lower a curve, and the mixture of curves lies on or above the convex hull of all of them.
    """
    table = np.unique(check_weights(mechanism.weights), axis=0)
    hull = np.array([[0, TOTAL], [TOTAL, 0]], dtype=np.int64)
    for first in table:
        order = _test_order(first, table)
        alarms = np.cumsum(first[order], axis=1).ravel()
        misses = TOTAL - np.cumsum(np.take_along_axis(table, order, axis=1), axis=1).ravel()
        # Points clearly above the hull so far cannot become corners.
        below = misses <= np.interp(alarms, hull[:, 0], hull[:, 1]) + 1e-3
        fresh = np.unique(np.stack([alarms[below], misses[below]], axis=1), axis=0)
        hull = _corners(np.concatenate([hull, fresh]))
    hull.setflags(write=False)
    return TradeoffCurve(false_alarms=hull[:, 0], misses=hull[:, 1])


RELATIVE_ERROR = 1e-12
"""scipy's ndtr, ndtri and log_ndtr err by a few 1e-15 relative where they are used here; 1e-12 is given away."""


def hockey_stick(mu: float, log_ratio: FloatArray) -> FloatArray:
    """sup_A of N(mu,1)(A) - e**log_ratio N(0,1)(A) for mu > 0, at any real log_ratio; never understated.

    Source: Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13.
    """
    # A is the half-line x >= log_ratio / mu + mu / 2.
    first = ndtr(mu / 2 - log_ratio / mu)
    second = np.exp(np.minimum(log_ratio + log_ndtr(-mu / 2 - log_ratio / mu), 0.0))
    # Both terms err relatively, so their difference errs by that much of the first, which is the larger one.
    exact = first * (1 + RELATIVE_ERROR) - second * (1 - RELATIVE_ERROR)
    return np.clip(exact, np.maximum(0.0, -np.expm1(np.minimum(log_ratio, 0.0))), 1.0)


def _delta(mu: float, epsilon: float) -> float:
    return float(hockey_stick(mu, np.array([epsilon]))[0])


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon >= 0 at which N(0, 1) and N(mu, 1) are (epsilon, delta)-close, rounded up; inf at delta 0.

    Releases of shifts mu_1, mu_2, ... under noise 1, chosen one after the other, cost what one of the root of the sum
    of their squares does (Dong, Roth and Su 2022, Corollary 3.3).

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 3)
        4.377
    """
    if not (mu < math.inf and delta > 0):
        return math.inf
    if mu == 0 or _delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * (mu / 2 + math.sqrt(2 * math.log(2 / delta)))
    while _delta(mu, high) > delta:
        high *= 2
    return bracket(lambda epsilon: _delta(mu, epsilon) <= delta, high, 0.0, tolerance=1e-12)[0]


def gaussian_shift(epsilon: float, delta: float) -> float:
    """The largest mu for which N(0, 1) and N(mu, 1) are (epsilon, delta)-close, rounded down."""
    low, high = 0.0, 1.0
    while _delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    return bracket(lambda mu: _delta(mu, epsilon) <= delta, low, high)[0]
