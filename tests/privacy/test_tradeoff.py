"""The trade-off curve against Neyman and Pearson by hand."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, permutations, product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from mezzotint.privacy import tradeoff
from mezzotint.privacy.hulls import _exact_order, tradeoff_corners
from reference.privacy import miss_of_best_test, pmf_at, rows_of, worst_hockey_stick
from strategies import random_table, tables
from tolerances import FEW

RATES = [
    Fraction(0),
    Fraction(1, 1000),
    Fraction(1, 7),
    Fraction(1, 2),
    Fraction(9, 10),
    Fraction(1),
]


class Corners:
    """The exact curve, through the integer corners."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.false_alarms, self.misses = tradeoff_corners(mechanism.weights)

    def exact_miss(self, false_alarm: Fraction) -> Fraction:
        """Least miss probability at a false-alarm rate: a convex piecewise linear curve is its largest chord."""
        corners = list(zip(self.false_alarms.tolist(), self.misses.tolist(), strict=True))
        chords = (
            y + (false_alarm * TOTAL - x) * Fraction(v - y, u - x)
            for (x, y), (u, v) in pairwise(corners)
        )
        return max(chords) / TOTAL


@given(tables(max_rows=4))
def test_no_test_between_rows_is_better_and_every_corner_is_reached(mechanism: Mechanism) -> None:
    curve = Corners(mechanism)
    rows = rows_of(mechanism.weights)
    for a, b in permutations(rows, 2):
        assert all(curve.exact_miss(rate) <= miss_of_best_test(a, b, rate) for rate in RATES)
    corners = zip(curve.false_alarms.tolist(), curve.misses.tolist(), strict=True)
    for alarm, miss in list(corners)[1:-1]:
        best = min(
            miss_of_best_test(a, b, Fraction(alarm, TOTAL)) for a, b in permutations(rows, 2)
        )
        assert best == Fraction(miss, TOTAL)


@given(tables(max_rows=4, max_levels=4), st.integers(0, 2**20))
@settings(max_examples=30)
def test_no_test_between_other_inputs_is_better(mechanism: Mechanism, seed: int) -> None:
    curve = Corners(mechanism)
    low, width = Fraction(mechanism.lower), Fraction(mechanism.upper) - Fraction(mechanism.lower)
    places = [Fraction(int(i), 1000) for i in np.random.default_rng(seed).integers(0, 1001, size=4)]
    pmfs = [pmf_at(mechanism, low + place * width) for place in places]
    for a, b, rate in product(pmfs, pmfs, RATES):
        assert curve.exact_miss(rate) <= miss_of_best_test(a, b, rate)


@given(tables(max_rows=4, max_levels=5), st.sampled_from([0.0, 0.1, 1.0, 5.0]))
def test_the_curve_and_the_profile_are_dual(mechanism: Mechanism, epsilon: float) -> None:
    curve = Corners(mechanism)
    with mpmath.workdps(40):
        ratio = mpmath.exp(mpmath.mpf(epsilon))
        corners = zip(curve.misses.tolist(), curve.false_alarms.tolist(), strict=True)
        from_curve = max((TOTAL - miss - ratio * alarm) / TOTAL for miss, alarm in corners)
        # 40 digits here, 30 there.
        assert (
            abs(max(from_curve, 0) - worst_hockey_stick(rows_of(mechanism.weights), epsilon))
            < mpmath.mpf(10) ** -30
        )


@given(tables())
def test_convex_decreasing_and_symmetric(mechanism: Mechanism) -> None:
    curve = Corners(mechanism)
    xs, ys = curve.false_alarms.tolist(), curve.misses.tolist()
    assert (xs[0], xs[-1], ys[-1]) == (0, TOTAL, 0)
    slopes = [Fraction(ys[i + 1] - ys[i], xs[i + 1] - xs[i]) for i in range(len(xs) - 1)]
    assert slopes == sorted(set(slopes))
    assert all(curve.exact_miss(curve.exact_miss(rate)) <= rate for rate in RATES)


def test_randomized_response_by_hand() -> None:
    weights = [[TOTAL // 4, 3 * TOTAL // 4], [3 * TOTAL // 4, TOTAL // 4]]
    curve = tradeoff(Mechanism(knots=[0, 1], levels=[0, 1], weights=weights))
    for alarm, detection in ((0.25, 0.75), (0.125, 0.375), (0.0, 0.0), (1.0, 1.0)):
        assert detection <= curve.power(alarm) <= detection * (1 + FEW)
    alarms, detections = curve.corners
    np.testing.assert_allclose(alarms, [0.0, 0.25, 1.0], atol=FEW)
    np.testing.assert_allclose(detections, [0.0, 0.75, 1.0], atol=FEW)


def test_equal_rows_and_disjoint_rows() -> None:
    same = Mechanism(knots=[0, 1], levels=[0, 1], weights=[[5, TOTAL - 5], [5, TOTAL - 5]])
    assert tradeoff(same).power(0.3) == pytest.approx(0.3, rel=FEW)
    assert tradeoff_corners(same.weights)[0].tolist() == [0, TOTAL]
    apart = Mechanism(knots=[0, 1], levels=[0, 1], weights=[[TOTAL, 0], [0, TOTAL]])
    assert tradeoff(apart).power(0.0) == 1.0
    assert [part.tolist() for part in tradeoff(apart).corners] == [[0.0, 1.0], [1.0, 1.0]]


def test_a_level_that_two_rows_never_show_hides_no_order_of_the_others() -> None:
    rows = [
        [TOTAL // 2, 0, TOTAL // 2],
        [TOTAL // 4, 0, 3 * TOTAL // 4],
        [TOTAL // 2 - 1, 1, TOTAL // 2],
    ]
    curve = Corners(Mechanism(knots=[0, 1, 2], levels=[0, 1, 2], weights=rows))
    pairs = list(permutations(rows_of(np.array(rows)), 2))
    for rate in (*RATES, Fraction(1, 4), Fraction(3, 4)):
        assert curve.exact_miss(rate) <= min(miss_of_best_test(a, b, rate) for a, b in pairs)
    assert curve.exact_miss(Fraction(1, 2)) <= Fraction(1, 4)


def test_the_exact_order_of_levels() -> None:
    # Ratios: none, 2, 0, 1/2, and a level that neither shows.
    assert _exact_order([0, 1, 3, 4, 0], [1, 2, 0, 2, 0]) == [0, 4, 1, 3, 2]


def test_quotients_that_floats_cannot_tell_apart_are_ordered_exactly() -> None:
    # Likelihood ratios (a+2)/(a+1) and (a+1)/a with a = 2**29 round to the same double; the second must come first.
    a = 2**29
    rows = [[a + 1, a, TOTAL - 2 * a - 1], [a + 2, a + 1, TOTAL - 2 * a - 3]]
    assert rows[1][0] / rows[0][0] == rows[1][1] / rows[0][1]
    curve = Corners(Mechanism(knots=[0, 1], levels=[0, 1, 2], weights=rows))
    assert (a, TOTAL - a - 1) in zip(
        curve.false_alarms.tolist(), curve.misses.tolist(), strict=True
    )


def test_power_is_rounded_up() -> None:
    for seed in range(30):
        mechanism = random_table(seed, rows=2, levels=3, spread=2.0)
        rate = float(np.random.default_rng(seed).random())
        exact = 1 - Corners(mechanism).exact_miss(Fraction(rate))
        assert exact <= Fraction(tradeoff(mechanism).power(rate)) < exact * Fraction(1 + FEW)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_rates_are_probabilities(rate: float) -> None:
    with pytest.raises(ParameterError, match="false_alarm"):
        tradeoff(random_table(1, rows=2, levels=2)).power(rate)
