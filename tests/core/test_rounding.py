from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import InfeasibleError, ParameterError
from mezzotint.core.loss import exp_below
from mezzotint.core.rounding import MARGIN, round_rows, table
from tolerances import FEW

TOTAL = 2**32


def exp_exact(epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.exp(mpmath.mpf(epsilon))


def assert_private(weights: np.ndarray, epsilon: float) -> None:
    """Row sums exact; max <= e^epsilon min for every level with mass, by 60-digit arithmetic on integers."""
    assert weights.dtype == np.int64
    assert (weights >= 0).all()
    assert weights.sum(axis=1).tolist() == [TOTAL] * len(weights)
    bound = exp_exact(epsilon)
    for top, bottom in zip(weights.max(axis=0).tolist(), weights.min(axis=0).tolist(), strict=True):
        with mpmath.workdps(60):
            assert top <= bound * bottom


def residuals(
    weights: np.ndarray, levels: np.ndarray, target_means: list[Fraction]
) -> list[Fraction]:
    exact = [Fraction(level) for level in levels.tolist()]
    return [
        abs(
            sum(Fraction(weight, TOTAL) * level for weight, level in zip(row, exact, strict=True))
            - aim
        )
        for row, aim in zip(weights.tolist(), target_means, strict=True)
    ]


def private_rows(seed: int, rows: int, levels: int, epsilon: float, smallest: float) -> np.ndarray:
    """Random rows whose ratios stay within e^(epsilon (1 - MARGIN)): tilts of one row by half of it at most."""
    generator = np.random.default_rng(seed)
    base = generator.dirichlet(np.ones(levels)) + smallest
    tilts = np.exp(generator.uniform(0, epsilon * (1 - MARGIN) / 2, (rows, levels)))
    return base * tilts / (base * tilts).sum(axis=1, keepdims=True)


CASES = st.tuples(
    st.integers(0, 2**32 - 1),
    st.integers(2, 9),
    st.integers(2, 20),
    st.sampled_from([1e-3, 0.1, 1.0, 5.0]),
)


@given(case=CASES)
def test_private_unbiased_and_summing(case: tuple[int, int, int, float]) -> None:
    seed, rows, levels, epsilon = case
    probabilities = private_rows(seed, rows, levels, epsilon, 1e-3)
    values = np.cumsum(np.random.default_rng(seed).uniform(0.1, 1, levels)) - levels / 3
    weights = round_rows(probabilities, levels=values, epsilon=epsilon)
    assert_private(weights, epsilon)
    # Close to what was asked for: a few units per level, and the row means within the stated residual.
    assert np.abs(weights - probabilities * TOTAL).max() < 20 * levels
    means = [Fraction(mean) for mean in (probabilities @ values).tolist()]
    bound = Fraction(levels) * Fraction(values[-1] - values[0]) / TOTAL
    assert max(residuals(weights, values, means)) < bound + Fraction(1, 2**50)


@given(case=CASES)
def test_poor_levels_stay_private_or_are_refused(case: tuple[int, int, int, float]) -> None:
    """Levels of a few units: no integers may fit epsilon; then it is an error, never a table beyond epsilon."""
    seed, rows, levels, epsilon = case
    generator = np.random.default_rng(seed)
    probabilities = private_rows(seed, rows, levels, epsilon, 0.0)
    probabilities[:, 0] *= 1e-9 * generator.random()
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    try:
        weights = round_rows(probabilities, levels=np.arange(levels, dtype=float), epsilon=epsilon)
    except InfeasibleError:
        return
    assert_private(weights, epsilon)


@pytest.mark.parametrize("levels", [2, 3, 4, 16, 64, 256])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 10.0])
def test_extremal_rows_use_up_epsilon_and_no_more(levels: int, epsilon: float) -> None:
    """k-ary randomized response meets e^epsilon with equality: no slack but the MARGIN."""
    ratio = math.exp(epsilon * (1 - MARGIN))
    rows = (np.ones((levels, levels)) + (ratio - 1) * np.eye(levels)) / (ratio + levels - 1)
    values = np.linspace(-1, 1, levels)
    weights = round_rows(rows, levels=values, epsilon=epsilon)
    assert_private(weights, epsilon)
    spent = math.log(Fraction(int(weights.max()), int(weights.min())))
    # A unit per small entry, all taken from the one large entry of the row, is what integers can cost.
    assert epsilon * (1 - 3 * MARGIN) - levels / float(weights.min()) <= spent <= epsilon
    bound = Fraction(levels) * 2 / TOTAL
    assert (
        max(residuals(weights, values, [Fraction(mean) for mean in (rows @ values).tolist()]))
        < bound
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    levels=st.integers(2, 50),
    zeros=st.sampled_from([0.0, 0.5, 0.9]),
)
def test_without_a_limit_positive_stays_positive_and_zero_stays_zero(
    seed: int, levels: int, zeros: float
) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.dirichlet(np.full(levels, 0.05), 4) * (generator.random((4, levels)) >= zeros)
    rows[np.arange(4), generator.integers(0, levels, 4)] += 0.1
    rows /= rows.sum(axis=1, keepdims=True)
    weights = round_rows(rows, levels=np.arange(levels, dtype=float))
    assert weights.sum(axis=1).tolist() == [TOTAL] * 4
    np.testing.assert_array_equal(weights > 0, rows > 0)
    assert np.abs(weights - rows * TOTAL).max() <= 4 * levels


def test_exact_rows_stay_as_they_are() -> None:
    weights = np.array([[2**31, 2**30, 2**30], [1, TOTAL - 2, 1], [0, TOTAL, 0]])
    np.testing.assert_array_equal(round_rows(weights / TOTAL, levels=[-1, 0, 1]), weights)


def test_target_means_are_met_where_they_differ_from_the_rows() -> None:
    rows = np.array([[0.6, 0.4], [0.4, 0.6]]) + 1e-8 * np.array([[1, -1], [-1, 1]])
    weights = round_rows(rows, levels=[-5, 5], target_means=[-1.0, 1.0])
    assert max(residuals(weights, np.array([-5.0, 5.0]), [Fraction(-1), Fraction(1)])) < Fraction(
        20, TOTAL
    )


@pytest.mark.parametrize("epsilon", [709.0, 710.0, 1e4, 1e308])
def test_an_epsilon_beyond_every_ratio_of_weights_limits_nothing(epsilon: float) -> None:
    # e**710 is no float any more; the ratio stays above all that integers of 32 bits can have.
    assert exp_below(epsilon) > TOTAL
    rows = [[0.75, 0.25], [1 / TOTAL, 1 - 1 / TOTAL]]
    assert (
        round_rows(rows, levels=[0, 1], epsilon=epsilon) == round_rows(rows, levels=[0, 1])
    ).all()
    mechanism = table(
        knots=[-1, 1],
        levels=[-2, 2],
        probabilities=[[0.75, 0.25], [0.25, 0.75]],
        name="t",
        epsilon=epsilon,
    )
    assert mechanism.epsilon == pytest.approx(math.log(3), rel=FEW)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0.5, 0.5], "2-D"),
        ([[0.5, 0.6]], "sum to 1"),
        ([[math.nan, 0.5]], "finite"),
        ([[math.inf, 0.5]], "finite"),
        ([[1.1, -0.1]], ">= 0"),
        ([[0.0, 0.0]], "sum to 1"),
        ([], "2-D"),
        ([[0.5, 0.5], [1.0]], "one length"),
        (np.empty((0, 2)), "at least one row"),
        ([["a", "b"]], "numbers"),
    ],
)
def test_what_is_no_probability_is_refused(rows: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        round_rows(rows, levels=[0, 1])  # pyright: ignore


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_epsilon_must_be_positive_or_rows_equal(epsilon: float) -> None:
    if epsilon == 0.0:
        weights = round_rows([[0.3, 0.7], [0.3, 0.7]], levels=[0, 1], epsilon=0.0)
        assert weights[0].tolist() == weights[1].tolist()
    else:
        with pytest.raises(ParameterError, match="epsilon="):
            round_rows([[0.3, 0.7], [0.3, 0.7]], levels=[0, 1], epsilon=epsilon)


@pytest.mark.parametrize(
    "bad", [{"levels": [0.0, 1.0, 2.0]}, {"levels": [0.0, 1.0], "target_means": [0.0, 1.0]}]
)
def test_lengths_must_agree(bad: dict[str, list[float]]) -> None:
    with pytest.raises(ParameterError, match=r"levels=|target_means="):
        round_rows([[0.3, 0.7]], **bad)


def test_rows_far_beyond_epsilon_are_infeasible() -> None:
    with pytest.raises(InfeasibleError):
        round_rows([[0.999, 0.001], [0.001, 0.999]], levels=[0, 1], epsilon=0.1)
    with pytest.raises(InfeasibleError):
        round_rows([[1.0, 0.0], [0.5, 0.5]], levels=[0, 1], epsilon=1.0)


def test_table_is_certified_at_or_below_epsilon() -> None:
    ratio = math.exp(1.0 * (1 - MARGIN))
    level = (ratio + 1) / (ratio - 1)
    rows = np.array([[ratio, 1], [1, ratio]]) / (ratio + 1)
    mechanism = table(
        knots=[-1, 1], levels=[-level, level], probabilities=rows, name="response", epsilon=1.0
    )
    assert 1 - 3 * MARGIN < mechanism.epsilon <= 1.0
    assert mechanism.exact_max_bias < Fraction(2) * Fraction(2 * level) / TOTAL
    assert mechanism.name == "response"


def test_levels_that_nearly_coincide_do_not_take_each_others_mass() -> None:
    levels = np.array([-1.3, 1.3, 1.3 + 1e-9, 1.3 + 2e-9])
    ends = np.array([[0.88, 0.06, 0.05, 0.01], [0.12, 0.45, 0.42, 0.01]])
    rows = np.array([(1 - t) * ends[0] + t * ends[1] for t in np.linspace(0, 1, 9)])
    weights = round_rows(rows, levels=levels)
    assert np.abs(weights - rows * TOTAL).max() <= 8
    # One unit of the span, 2^-32 of it: that is what a table's means are good to.
    assert (
        np.abs(weights / TOTAL @ levels - rows @ levels).max()
        <= (levels[-1] - levels[0]) * 2.0**-32
    )
