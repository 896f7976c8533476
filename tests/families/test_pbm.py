"""The Poisson binomial mechanism: raw moments and losses against rational arithmetic, and the interpolated table."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import ParameterError, families, papers
from reference.families import binomial_pmf, hockey_stick, renyi
from tolerances import FEW, GRAIN, MANY

CASES = [
    (1, Fraction(1, 4)),
    (3, Fraction(1, 10)),
    (15, Fraction(3, 20)),
    (15, Fraction(7, 20)),
    (63, Fraction(49, 100)),
]
HALF = Fraction(1, 2)


@pytest.mark.parametrize(("trials", "theta"), CASES)
def test_raw_pmf_mean_and_mse(trials: int, theta: Fraction) -> None:
    raw = families.pbm_exact(lower=1.0, upper=4.0, trials=trials, theta=float(theta))
    for u in (Fraction(-1), Fraction(-1, 3), Fraction(0), Fraction(1, 2), Fraction(1)):
        pmf = binomial_pmf(trials, HALF + theta * u)
        x = Fraction(5, 2) + Fraction(3, 2) * u
        np.testing.assert_allclose(raw.pmf(float(x)), [float(p) for p in pmf], rtol=MANY, atol=0)
        levels = [
            Fraction(5, 2) + Fraction(3, 2) * (Fraction(z, trials) - HALF) / theta
            for z in range(trials + 1)
        ]
        np.testing.assert_allclose(
            raw.levels, [float(level) for level in levels], rtol=FEW, atol=FEW
        )
        assert sum(p * level for p, level in zip(pmf, levels, strict=True)) == x
        assert raw.mean(float(x)) == pytest.approx(float(x), rel=FEW)
        mse = sum(p * (level - x) ** 2 for p, level in zip(pmf, levels, strict=True))
        assert raw.mse(float(x)) == pytest.approx(float(mse), rel=FEW)


def test_the_published_error_is_that_of_the_middle() -> None:
    raw = families.pbm_exact(lower=-3.0, upper=5.0, trials=7, theta=0.3)
    bound = papers.published_pbm_mse(lower=-3.0, upper=5.0, trials=7, theta=0.3)
    assert raw.mse(1.0) == pytest.approx(bound, rel=FEW)
    assert (raw.mse(np.linspace(-3, 5, 9)) <= bound * (1 + FEW)).all()


@pytest.mark.parametrize(("trials", "theta"), CASES)
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.999, 1, 1.0001, 1.5, 2, 30, 1000])
def test_raw_renyi_is_rounded_up_and_tight(trials: int, theta: Fraction, alpha: float) -> None:
    raw = families.pbm_exact(trials=trials, theta=float(theta))
    high = Fraction(float(theta)) + HALF
    exact = renyi(binomial_pmf(trials, high), binomial_pmf(trials, 1 - high), alpha)
    assert exact <= raw.renyi(alpha) <= exact * (1 + 2 * FEW / min(alpha, 1))


@given(st.floats(1e-7, 0.4999), st.floats(0.01, 100), st.floats(-1, 1), st.floats(-1, 1))
def test_raw_renyi_covers_every_pair_of_inputs(
    theta: float, alpha: float, u: float, v: float
) -> None:
    raw = families.pbm_exact(trials=1, theta=theta)
    a, b = (HALF + Fraction(theta) * Fraction(w) for w in (u, v))
    assert renyi([a, 1 - a], [b, 1 - b], alpha) <= raw.renyi(alpha) + sys.float_info.min


@pytest.mark.parametrize(("trials", "theta"), CASES)
def test_raw_epsilon_is_the_limit_of_renyi_and_where_delta_ends(
    trials: int, theta: Fraction
) -> None:
    raw = families.pbm_exact(trials=trials, theta=float(theta))
    high = mpmath.mpf(float(theta)) + mpmath.mpf(1) / 2
    exact = trials * mpmath.log(high / (1 - high))
    assert exact <= raw.epsilon <= exact * (1 + 2 * FEW)
    assert raw.renyi(math.inf) == raw.epsilon
    # Of order 1e9 it is within a nat over 1e9 of the limit, times log 2^32.
    assert raw.renyi(1e9) == pytest.approx(raw.epsilon, rel=1e-6)
    assert raw.delta(raw.epsilon) == 0.0


@pytest.mark.parametrize(("trials", "theta"), CASES)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_raw_delta_is_rounded_up_and_tight(trials: int, theta: Fraction, share: float) -> None:
    raw = families.pbm_exact(trials=trials, theta=float(theta))
    high = Fraction(float(theta)) + HALF
    epsilon = share * raw.epsilon
    exact = hockey_stick(binomial_pmf(trials, high), binomial_pmf(trials, 1 - high), epsilon)
    assert exact <= raw.delta(epsilon) <= exact * (1 + MANY)


@pytest.mark.parametrize("knots", [2, 9, 65])
def test_table_is_unbiased_and_costs_what_is_promised(knots: int) -> None:
    raw = families.pbm_exact(lower=-2.0, upper=2.0, trials=15, theta=0.25)
    mechanism = families.pbm(lower=-2.0, upper=2.0, trials=15, theta=0.25, knots=knots)
    assert mechanism.knots.size == knots
    assert mechanism.max_bias <= np.ptp(mechanism.levels) * GRAIN
    x = np.linspace(-2, 2, 1001)
    rise = mechanism.variance(x) - raw.mse(x)
    most = (1 - 1 / 15) * (4 / (knots - 1) / 2) ** 2
    # Weights are rounded: units of 2^-32 at 16 levels, of squares of up to 36.
    assert rise.min() > -1e-7
    # A grid of 1001 inputs misses the peak by a fraction of its curvature; weights are rounded.
    assert rise.max() == pytest.approx(most, rel=1e-2, abs=1e-7)
    assert rise.max() < most + 1e-7  # as above
    assert mechanism.epsilon == pytest.approx(
        raw.epsilon, rel=1e-4
    )  # rare reports of some thousand units of 2^-32
    for alpha in (0.5, 1.0, 2.0):
        # Rounding to 2^-32, which common reports do not notice.
        assert mechanism.renyi(alpha) == pytest.approx(raw.renyi(alpha), rel=1e-6)


def test_theta_one_half_tells_the_ends_apart() -> None:
    raw = families.pbm_exact(trials=4, theta=0.5)
    assert math.isinf(raw.epsilon)
    assert math.isinf(raw.renyi(0.5))
    assert raw.delta(3.0) == 1.0
    assert math.isinf(families.pbm(trials=4, theta=0.5).epsilon)


def test_many_trials_do_not_overflow() -> None:
    raw = families.pbm_exact(trials=65535, theta=0.4)
    assert 0 <= raw.delta(5000.0) <= 1
    assert raw.delta(raw.epsilon * 0.999) >= 0
    assert raw.pmf(0.3).sum() == pytest.approx(1, abs=FEW)
    # 256 levels of some units of 2^-32 each, times a range of 2.
    assert families.pbm(trials=255, theta=0.25, knots=9).max_bias < 1e-7


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        ({"trials": 0}, "trials"),
        ({"trials": 1.5}, "trials"),
        ({"trials": 65536}, "trials"),
        ({"theta": 0.0}, "theta"),
        ({"theta": 0.51}, "theta"),
        ({"theta": math.nan}, "theta"),
        ({"knots": 1}, "knots"),
        ({"lower": 1.0}, "lower"),
    ],
)
def test_pbm_names_what_is_wrong(arguments: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        families.pbm(**arguments)
    assert caught.value.parameter == parameter


def test_raw_losses_name_what_is_wrong() -> None:
    raw = families.pbm_exact()
    for call, parameter in (
        (lambda: raw.renyi(0.0), "alpha"),
        (lambda: raw.renyi(math.nan), "alpha"),
        (lambda: raw.delta(-0.1), "epsilon"),
        (lambda: raw.pmf([0.0, math.nan]), "x"),
    ):
        with pytest.raises(ParameterError) as caught:
            call()
        assert caught.value.parameter == parameter
