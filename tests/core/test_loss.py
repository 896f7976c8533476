"""Losses of one table against 60-digit twins, and their edge cases."""

from __future__ import annotations

import decimal
import math
import random
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from counting import calls
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import (
    delta,
    exp_below,
    float_above,
    log_ratio,
    pure_epsilon,
    renyi,
    renyi_pairs,
    worst_ratio,
)
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from reference.privacy import divergence, rows_of, worst_divergence, worst_hockey_stick
from strategies import random_weights, tables
from tolerances import FEW, LOG_UP, MANY, UNIT

ORDERS = [1e-9, 0.3, 0.5, 0.999999999, 1.0, 1.0 + 1e-12, 1.5, 2.0, 17.0, 1e3, 1e6, 1e15]
HALF = TOTAL // 2


def table(*rows: list[int]) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


@given(tables())
def test_pure_epsilon_is_the_exact_log_ratio_rounded_up(mechanism: Mechanism) -> None:
    exact = worst_divergence(rows_of(mechanism.weights), mpmath.inf)
    ours = pure_epsilon(mechanism.weights)
    if math.isinf(ours):
        assert exact == mpmath.inf
    else:
        assert exact <= ours <= exact * (1 + LOG_UP)


def test_pure_epsilon_of_the_smallest_difference() -> None:
    weights = table([HALF, HALF], [HALF + 1, HALF - 1])
    exact = mpmath.log(mpmath.mpf(HALF) / (HALF - 1))
    assert exact <= pure_epsilon(weights) <= exact * (1 + LOG_UP)


def test_pure_epsilon_of_the_largest_finite_ratio() -> None:
    weights = table([TOTAL - 1, 1], [1, TOTAL - 1])
    assert pure_epsilon(weights) == pytest.approx(math.log(TOTAL - 1), rel=FEW)
    assert delta(weights, 22.0) > 0
    assert delta(weights, 22.2) == 0


def test_worst_ratio_tells_apart_quotients_that_floats_cannot() -> None:
    # (a+1)/a against (a+2)/(a+1): relative difference 2**-61.
    a = 2**30
    weights = table(
        [a + 1, a + 1, TOTAL - 2 * a - 2],
        [a + 2, a, TOTAL - 2 * a - 2],
    )
    worst = worst_ratio(weights)
    assert (worst.numerator, worst.denominator, worst.level) == (a + 1, a, 1)
    assert (worst.row_high, worst.row_low) == (0, 1)


def test_equal_rows_lose_nothing() -> None:
    weights = table([1, TOTAL - 1, 0], [1, TOTAL - 1, 0], [1, TOTAL - 1, 0])
    assert pure_epsilon(weights) == 0.0
    assert delta(weights, 0.0) == 0.0
    assert all(renyi(weights, order) == 0.0 for order in [*ORDERS, math.inf])


def test_a_level_without_mass_is_dropped_and_one_with_a_zero_is_not() -> None:
    dropped = table([HALF, HALF, 0], [HALF + 9, HALF - 9, 0])
    assert pure_epsilon(dropped) == pure_epsilon(dropped[:, :2])
    escaping = table([HALF, HALF - 4, 4], [HALF, HALF, 0])
    assert pure_epsilon(escaping) == math.inf
    assert delta(escaping, math.inf) == delta(escaping, 800.0) == 4 / TOTAL
    assert renyi(escaping, 1.0) == renyi(escaping, 2.0) == renyi(escaping, math.inf) == math.inf
    assert renyi(escaping, 0.999) < 1e-5  # some units of weight, over 1 - 0.999


def test_disjoint_rows() -> None:
    weights = table([TOTAL, 0], [0, TOTAL])
    assert renyi(weights, 0.5) == math.inf
    assert delta(weights, 5.0) == 1.0


@given(
    tables(max_rows=4, max_levels=5), st.sampled_from([0.0, 1e-9, 0.01, 0.5, 1.0, 3.0, 10.0, 50.0])
)
def test_delta_is_the_exact_hockey_stick_rounded_up(mechanism: Mechanism, epsilon: float) -> None:
    exact = worst_hockey_stick(rows_of(mechanism.weights), epsilon)
    ours = delta(mechanism.weights, epsilon)
    # 32 UNIT: what `delta` gives away for exp and the sum.
    assert exact <= ours <= exact + min(1.0, math.exp(epsilon)) * 2.0**-48


@given(tables())
def test_delta_at_zero_is_total_variation_exactly(mechanism: Mechanism) -> None:
    rows = rows_of(mechanism.weights)
    exact = max(sum(abs(p - q) for p, q in zip(a, b, strict=True)) / 2 for a in rows for b in rows)
    assert Fraction(delta(mechanism.weights, 0.0)) == exact or 0 < Fraction(
        delta(mechanism.weights, 0.0)
    ) - exact <= Fraction(1, 2**53)


@given(tables(zeros=False))
def test_delta_vanishes_exactly_from_pure_epsilon_on(mechanism: Mechanism) -> None:
    epsilon = pure_epsilon(mechanism.weights)
    assert delta(mechanism.weights, epsilon) == 0.0
    assert delta(mechanism.weights, math.inf) == 0.0
    if epsilon > 1e-3:
        assert delta(mechanism.weights, epsilon * (1 - 1e-4)) > 0.0


def test_delta_with_more_ties_than_are_recomputed() -> None:
    k = 40
    rare = TOTAL // 100
    weights = np.full((k, k), rare, dtype=np.int64)
    np.fill_diagonal(weights, TOTAL - (k - 1) * rare)
    exact = worst_hockey_stick(rows_of(weights[:2]), 1.0)
    # A sum of 40 terms and 8 for exp, each an ulp.
    assert exact <= delta(weights, 1.0) <= exact + 48 * 2.0**-52


def test_delta_holds_where_the_worst_of_many_near_ties_is_not_recomputed() -> None:
    # 380 pairs within the margin. Those of the row that is sorted last are the worst, by less than the margin:
    # their level has 2000 units less in all rows, and e**epsilon counts each of the other row's units twice, nearly.
    k, epsilon = 20, 2.0**-30
    weights = np.full((k, k + 1), TOTAL // 30, dtype=np.int64)
    weights[np.arange(k), np.arange(k)] += TOTAL // 10
    weights[:, 0] -= 2000
    weights[:, k] = 0
    weights[:, k] = TOTAL - weights.sum(axis=1)
    ratio = exp_below(epsilon)

    def exact(a: list[int], b: list[int]) -> Fraction:
        return (
            sum((max(p - ratio * q, Fraction(0)) for p, q in zip(a, b, strict=True)), Fraction(0))
            / TOTAL
        )

    ordered = [
        [exact(a, b) for b in weights[::-1].tolist() if a != b] for a in weights[::-1].tolist()
    ]
    assert max(ordered[-1]) > max(map(max, ordered[:-1])) + Fraction(1, 2**52)
    assert (
        max(ordered[-1])
        <= Fraction(delta(weights, epsilon))
        <= max(ordered[-1]) + (k + 9) * Fraction(1, 2**51)
    )


def test_delta_with_just_as_many_ties_as_are_recomputed_is_exact() -> None:
    # 16 rows with half of their mass on level 0 against 16 with a quarter; other levels matter the other way round.
    weights = np.zeros((32, 17), dtype=np.int64)
    weights[:16, 0], weights[16:, 0] = TOTAL // 2, TOTAL // 4
    for k, row in enumerate(weights):
        rest = TOTAL - int(row[0])
        row[1:] = rest // 16
        row[1] += k
        row[2] -= k
        row[16] += TOTAL - int(row.sum())
    ratio = exp_below(0.4)
    exact = (Fraction(TOTAL // 2) - ratio * (TOTAL // 4)) / TOTAL
    assert exact == max(
        sum(max(p - ratio * q, Fraction(0)) for p, q in zip(a, b, strict=True)) / TOTAL
        for a in weights.tolist() for b in weights.tolist()
    )  # fmt: skip
    ours = Fraction(delta(weights, 0.4))
    assert exact <= ours < exact + Fraction(1, 2**54)


@pytest.mark.parametrize("epsilon", [-1e-9, -math.inf, math.nan])
def test_delta_refuses(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon="):
        delta(table([HALF, HALF]), epsilon)


@given(tables(max_rows=4, max_levels=5), st.sampled_from(ORDERS))
def test_renyi_is_exact_rounded_up(mechanism: Mechanism, order: float) -> None:
    weights = mechanism.weights
    exact = worst_divergence(rows_of(weights), order)
    ours = renyi(weights, order)
    if exact == mpmath.inf:
        assert ours == math.inf
        return
    spread = (
        max(1.0, float(mpmath.log(TOTAL)))
        if math.isinf(pure_epsilon(weights))
        else pure_epsilon(weights)
    )
    # As the docstring promises: below order 1 the division by 1 - order makes rounding relative to the value as well.
    size = spread + (float(exact) if order < 1 else 0.0)
    assert exact <= ours <= exact + 128 * (weights.shape[1] + 128) * UNIT * size


BELOW = [1e-300, 1e-17, 1e-3, 0.3, 0.5, 0.99, 0.999999, 1 - 1e-12, 1 - 2.0**-53]


@st.composite
def holed(draw: st.DrawFn) -> np.ndarray:
    """Tables whose rows may have little or nothing in common: weights from 1 to 2**32, and zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, levels = draw(st.integers(2, 3)), draw(st.integers(2, 5))
    weights = np.floor(
        2.0 ** (31 * rng.random((rows, levels))) * (rng.random((rows, levels)) < 0.7)
    ).astype(np.int64)
    weights = weights // levels + (weights > 0)
    kept = rng.integers(0, levels, rows)
    weights[np.arange(rows), kept] += TOTAL - weights.sum(axis=1)
    return weights


@given(holed(), st.sampled_from([*BELOW, 1.0, 1 + 2.0**-52, 1.5, 64.0]))
def test_renyi_of_rows_with_little_in_common_is_never_below_the_truth(
    weights: np.ndarray, order: float
) -> None:
    exact = worst_divergence(rows_of(weights), order)
    ours = renyi(weights, order)
    assert ours >= exact
    if exact < mpmath.inf:
        unit = 128 * (weights.shape[1] + 128) * 2.0**-53
        assert ours <= exact + unit * (float(mpmath.log(TOTAL)) + (exact if order < 1 else 0))


@given(holed(), st.sampled_from([0.25, 0.5, 0.99]))
def test_renyi_pairs_below_one_obey_skew_symmetry(weights: np.ndarray, order: float) -> None:
    # (1 - alpha) D_alpha(P || Q) = alpha D_{1 - alpha}(Q || P), on the matrix whose rows are ordered pairs.
    forth, back = renyi_pairs(weights, order), renyi_pairs(weights, 1 - order)
    # Rounded up by up to 128 (m + 128) UNIT of log(T) = 22 nats: 5e-11 each with few levels.
    np.testing.assert_allclose(forth * (1 - order), back.T * order, rtol=MANY, atol=1e-10)


@given(holed(), st.sampled_from([1.0, 1.5, 3.0, 40.0, 1e6]))
def test_renyi_of_every_pair_of_rows_with_zeros(weights: np.ndarray, order: float) -> None:
    rows, ours = rows_of(weights), renyi_pairs(weights, order)
    unit = 128 * (weights.shape[1] + 128) * 2.0**-53 * float(mpmath.log(TOTAL))
    for a, b in np.ndindex(ours.shape):
        exact = divergence(rows[a], rows[b], order)
        assert exact <= ours[a, b]
        assert ours[a, b] == math.inf if exact == mpmath.inf else ours[a, b] <= exact + unit


def test_renyi_below_one_where_hardly_anything_is_common() -> None:
    weights = table([TOTAL - 5, 3, 2], [0, TOTAL, 0])
    exact = worst_divergence(rows_of(weights), 0.99)
    # 128 (3 + 128) UNIT, 2^-38.96, of log(T), a hundredth of the result, and its share 1 / (1 - 0.99) again.
    assert exact <= renyi(weights, 0.99) <= exact * (1 + mpmath.mpf(2) ** -36)
    assert renyi(table([HALF, HALF, 0, 0], [0, 0, HALF, HALF]), 0.5) == math.inf


def test_renyi_at_infinity_and_beyond_every_order_is_pure_epsilon() -> None:
    weights = random_weights(np.random.default_rng(1), 4, 5, 2.0)
    assert renyi(weights, math.inf) == renyi(weights, 1e300) == pure_epsilon(weights)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, -math.inf])
def test_renyi_refuses(alpha: float) -> None:
    with pytest.raises(ParameterError, match="alpha="):
        renyi(table([HALF, HALF]), alpha)


@pytest.mark.parametrize(
    "weights",
    [
        np.array([[0.5, 0.5]]),
        np.array([TOTAL]),
        np.zeros((0, 2), dtype=np.int64),
        np.array([[TOTAL - 1, 0]]),
        np.array([[TOTAL + 1, -1]]),
    ],
)
def test_only_tables_are_accepted(weights: np.ndarray) -> None:
    for loss in (pure_epsilon, lambda w: delta(w, 1.0), lambda w: renyi(w, 2.0)):
        with pytest.raises(ParameterError, match="weights="):
            loss(weights)


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-5, 0.3, 1.0, 20.0, 40.0, 1e6, math.inf])
def test_exp_below_is_below_and_near(epsilon: float) -> None:
    low = exp_below(epsilon)
    exact = mpmath.exp(min(epsilon, 40.0))
    assert mpmath.mpf(low.numerator) / low.denominator <= exact
    # 32 UNIT are given away for exp.
    assert float(low) == pytest.approx(float(exact), rel=2.0**-48)
    assert low >= 1


def test_large_tables_are_read_by_numpy() -> None:
    rows, levels = 357, 256
    weights = random_weights(np.random.default_rng(0), rows, levels, 1.0)
    for loss in (
        pure_epsilon,
        lambda w: delta(w, 0.5),
        lambda w: renyi(w, 8.0),
        lambda w: renyi(w, 1e5),
    ):
        # A dozen calls for each row or level at most; one for each pair of rows would be 127,449.
        assert calls(lambda loss=loss: loss(weights)) < 12 * (rows + levels)


def test_negative_weights_with_the_right_sum_are_no_table() -> None:
    with pytest.raises(ParameterError, match="weights"):
        pure_epsilon(np.array([[TOTAL + 1, -1], [TOTAL // 2, TOTAL // 2]]))


def test_weights_whose_sum_is_right_only_modulo_two_to_the_64_are_no_table() -> None:
    with pytest.raises(ParameterError, match="weights"):
        pure_epsilon(table([2**62, 2**62, 2**62, 2**62, TOTAL]))
    with pytest.raises(ParameterError, match="weights"):
        pure_epsilon(table([TOTAL, 1, -1]))


def test_of_unbounded_levels_the_heaviest_is_named() -> None:
    worst = worst_ratio(table([HALF, HALF - 4, 4, 0], [HALF, 0, 0, HALF]))
    assert (worst.level, worst.numerator, worst.denominator) == (3, HALF, 0)


def test_the_float_above_is_the_least() -> None:
    for value in (Fraction(1, 3), Fraction(2, 3), Fraction(1, 2), Fraction(2**60 + 1), Fraction(0)):
        above = float_above(value)
        assert Fraction(above) >= value
        assert Fraction(math.nextafter(above, -math.inf)) < value


def test_delta_of_few_near_ties_is_the_exact_worst_rounded_up() -> None:
    # 56 pairs within the margin of the floats, each with another delta in the last digits.
    k = 8
    weights = np.full((k, k + 1), TOTAL // 30, dtype=np.int64)
    weights[np.arange(k), np.arange(k)] += TOTAL // 10
    weights[:, 0] -= 2000
    weights[:, k] = 0
    weights[:, k] = TOTAL - weights.sum(axis=1)
    rows = weights.tolist()
    for j in range(8):
        epsilon = 2.0**-30 + j * 2.0**-34
        up, down = exp_below(epsilon).as_integer_ratio()
        exact = [
            sum(max(down * p - up * q, 0) for p, q in zip(a, b, strict=True))
            for a in rows
            for b in rows
        ]
        worst = Fraction(max(exact), down * TOTAL)
        assert worst <= Fraction(delta(weights, epsilon)) < worst + Fraction(1, 2**54)


def test_epsilon_is_the_least_float_at_or_above_the_logarithm() -> None:
    """Against logarithms of 80 decimal digits, which no library of this package computes."""
    generator = random.Random(5)
    pairs = [(2**32, 2**32 - 1), (2**32, 1), (3, 1), (2, 1), (2**31 + 1, 2**31)]
    for _ in range(500):
        low, high = sorted(generator.randrange(1, 2 ** generator.randrange(1, 33)) for _ in "ab")
        pairs.append((high, low))
    with decimal.localcontext(decimal.Context(prec=80)):
        for high, low in pairs:
            exact = Decimal(high).ln() - Decimal(low).ln()
            stated = log_ratio(high, low)
            assert Decimal(stated) >= exact
            assert high == low or Decimal(math.nextafter(stated, 0.0)) < exact
    assert log_ratio(7, 7) == 0.0
    assert log_ratio(1, 0) == math.inf
