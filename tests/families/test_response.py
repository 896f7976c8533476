"""Randomized response and stochastic rounding."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import ParameterError, families
from tolerances import GRAIN, MANY, UNIT, printed

TOTAL = 2**32


@given(st.floats(1e-5, 21.0), st.floats(-50, 50), st.floats(0.01, 100))
def test_one_bit_is_unbiased_and_as_private_as_asked(
    epsilon: float, lower: float, width: float
) -> None:
    mechanism = families.randomized_response(lower=lower, upper=lower + width, epsilon=epsilon)
    assert mechanism.epsilon <= epsilon
    # The rarer weight is one of units of 2^-32: twice that over its probability, 1 / (e^epsilon + 1).
    assert mechanism.epsilon >= epsilon - 2.0**-31 * 2 * (math.exp(epsilon) + 2) * 1.01
    # 90 roundings of numbers of the size of levels.
    assert mechanism.max_bias <= 1e-14 * (abs(lower) + width) / math.tanh(epsilon / 2)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 1.5, 5.0])
def test_one_bit_levels_and_losses_in_closed_form(epsilon: float) -> None:
    mechanism = families.randomized_response(lower=-2.0, upper=2.0, epsilon=epsilon)
    reach = 2 / math.tanh(epsilon / 2)
    # Rounded down to weights: 2^-32 of a probability, over epsilon from .01 on.
    np.testing.assert_allclose(mechanism.levels, [-reach, reach], rtol=1e-6)
    assert mechanism.mse() == pytest.approx(reach**2 - 4 / 3, rel=1e-6)  # likewise


@pytest.mark.parametrize(
    ("epsilon", "mae", "mse"), [(0.5, 4.0013, 16.34), (1.0, 2.0099, 4.35), (1.5, 1.3627, 2.15)]
)
def test_one_bit_recorded_losses(epsilon: float, mae: float, mse: float) -> None:
    mechanism = families.randomized_response(epsilon=epsilon)
    assert mechanism.mae() == pytest.approx(mae, abs=printed(4))
    assert mechanism.mse() == pytest.approx(mse, abs=printed(2))


@pytest.mark.parametrize("levels", [2, 3, 4, 16, 256])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0, 20.0])
def test_k_ary_rows_levels_and_privacy(levels: int, epsilon: float) -> None:
    mechanism = families.k_randomized_response(levels=levels, epsilon=epsilon)
    own = math.exp(epsilon) / (math.exp(epsilon) + levels - 1)
    other = 1 / (math.exp(epsilon) + levels - 1)
    expected = np.full((levels, levels), other) + np.eye(levels) * (own - other)
    np.testing.assert_allclose(mechanism.probabilities, expected, rtol=0, atol=levels * GRAIN)
    assert mechanism.epsilon <= epsilon
    # The rarer weights are units of 2^-32, as above; the own one takes up what all of them lack. Bias: rounding alone.
    assert mechanism.epsilon >= epsilon - 2.0**-31 * levels * (math.exp(epsilon) + levels)
    assert mechanism.max_bias <= 900 * UNIT / (own - other)
    rounding = 2 * levels * 2.0**-32 / (own - other)
    np.testing.assert_allclose(
        mechanism.levels, np.linspace(-1, 1, levels) / (own - other), rtol=rounding
    )


def test_k_ary_on_given_points() -> None:
    mechanism = families.k_randomized_response(lower=0, upper=10, levels=[0, 1, 10], epsilon=2.0)
    np.testing.assert_array_equal(mechanism.knots, [0, 1, 10])
    assert mechanism.exact_max_bias < Fraction(1, 10**13)


def test_epsilon_beyond_the_units_keeps_one_unit() -> None:
    for epsilon in (22.0, 23.0, 30.0, 700.0, 1e6):
        mechanism = families.randomized_response(epsilon=epsilon)
        assert mechanism.weights.min() == max(
            1, math.ceil(TOTAL / (math.exp(min(epsilon, 50)) + 1))
        )
        assert mechanism.epsilon <= epsilon


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"epsilon": 1e-12}, "epsilon"),
        ({"epsilon": 1.0, "levels": 1}, "levels"),
        ({"epsilon": 1.0, "levels": [-1, 2]}, "levels"),
        ({"epsilon": 1.0, "levels": [-1, 1, 1]}, "levels"),
        ({"epsilon": 1.0, "lower": 2.0}, "lower"),
    ],
)
def test_k_ary_names_what_is_wrong(arguments: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        families.k_randomized_response(**arguments)
    assert caught.value.parameter == parameter


def test_stochastic_rounding_to_an_even_grid() -> None:
    mechanism = families.stochastic_rounding(lower=0.0, upper=3.0, levels=4)
    np.testing.assert_array_equal(mechanism.probabilities, np.eye(4))
    np.testing.assert_array_equal(mechanism.pmf(1.25), [0, 0.75, 0.25, 0])
    assert math.isinf(mechanism.epsilon)
    assert mechanism.max_bias == 0
    # Variance t (1 - t) h**2 averages to h**2 / 6.
    assert mechanism.mse() == pytest.approx(1 / 6, rel=1e-12)


def test_stochastic_rounding_to_given_levels() -> None:
    mechanism = families.stochastic_rounding(levels=[-2.0, -1.5, 0.0, 1.0, 4.0])
    np.testing.assert_array_equal(mechanism.knots, [-1.0, 0.0, 1.0])
    np.testing.assert_allclose(
        mechanism.probabilities,
        [[0, 2 / 3, 1 / 3, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]],
        atol=MANY,
    )
    assert mechanism.max_bias < MANY


def test_stochastic_rounding_with_two_outer_levels_is_randomized_response() -> None:
    mechanism = families.stochastic_rounding(levels=[-2.0, 2.0])
    # Weights of 2^-32 and more of a third: 13 of their units.
    assert mechanism.epsilon == pytest.approx(math.log(3), rel=1e-8)


@pytest.mark.parametrize(
    ("levels", "parameter"), [(1, "levels"), ([0.0, 1.0], "levels"), ("many", "levels")]
)
def test_stochastic_rounding_names_what_is_wrong(levels: Any, parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        families.stochastic_rounding(levels=levels)
    assert caught.value.parameter == parameter
