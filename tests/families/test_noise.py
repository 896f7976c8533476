"""Integer noise: weights against the named distributions, losses against brute force, draws against weights."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2

from mezzotint import ParameterError, families, papers
from mezzotint.families import IntegerNoise
from reference.families import hockey_stick, log_ratio, renyi
from tolerances import FEW, MANY

TOTAL = 2**32


def laplace(scale: float, k: int) -> Any:
    return mpmath.exp(-abs(k) / mpmath.mpf(scale)) * mpmath.tanh(1 / (2 * mpmath.mpf(scale)))


def gaussian(sigma: float, k: int) -> Any:
    # Poisson summation turns the slow normaliser into a fast one.
    s = mpmath.mpf(sigma)
    if sigma < 0.5:
        norm = mpmath.nsum(lambda n: mpmath.exp(-(n**2) / (2 * s**2)), [-mpmath.inf, mpmath.inf])
    else:
        norm = s * mpmath.sqrt(2 * mpmath.pi) * (1 + 2 * mpmath.fsum(
            mpmath.exp(-2 * (mpmath.pi * s * n) ** 2) for n in range(1, 20)
        ))  # fmt: skip
    return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s**2)) / norm


def skellam(variance: float, k: int) -> Any:
    return mpmath.exp(-mpmath.mpf(variance)) * mpmath.besseli(abs(k), variance)


NOISES = [
    (lambda: families.discrete_laplace(scale=0.3), lambda k: laplace(0.3, k)),
    (lambda: families.discrete_laplace(scale=2.5), lambda k: laplace(2.5, k)),
    (lambda: families.discrete_laplace(scale=2.5, bound=4), lambda k: laplace(2.5, k)),
    (lambda: families.discrete_gaussian(sigma=0.4), lambda k: gaussian(0.4, k)),
    (lambda: families.discrete_gaussian(sigma=3.0), lambda k: gaussian(3.0, k)),
    (lambda: families.discrete_gaussian(sigma=3.0, bound=7), lambda k: gaussian(3.0, k)),
    (lambda: families.skellam(variance=0.7), lambda k: skellam(0.7, k)),
    (lambda: families.skellam(variance=9.0), lambda k: skellam(9.0, k)),
    (lambda: families.skellam(variance=9.0, bound=3), lambda k: skellam(9.0, k)),
]


@pytest.mark.parametrize(("build", "pmf"), NOISES)
def test_weights_are_the_named_distribution_rounded(build: Any, pmf: Any) -> None:
    noise = build()
    reach = int(noise.offsets[-1])
    np.testing.assert_array_equal(noise.weights, noise.weights[::-1])
    assert int(noise.weights.sum()) == TOTAL
    assert noise.mean == 0
    for k in range(1, reach + 1):
        # Half a unit, and a thousandth for floats: 2^-53 of 2^32 is far below.
        assert abs(int(noise.weights[reach + k]) - pmf(k) * TOTAL) <= 0.5 + 1e-3
    beyond = 2 * mpmath.fsum(pmf(k) for k in range(reach + 1, reach + 400))
    # What is cut off, and the roundings, go to the middle: all noise is accounted as drawn.
    middle = pmf(0) + beyond
    assert (
        abs(int(noise.weights[reach]) - middle * TOTAL) <= 0.5 * (2 * reach + 1) + 1e-3
    )  # half a unit each, as above


@pytest.mark.parametrize(
    ("build", "pmf"), [case for i, case in enumerate(NOISES) if i not in (2, 5, 8)]
)
def test_without_a_bound_only_offsets_below_half_a_unit_are_cut(build: Any, pmf: Any) -> None:
    noise = build()
    assert pmf(int(noise.offsets[-1]) + 1) * TOTAL <= 0.5 + 1e-3  # as above


def test_variance_is_exact() -> None:
    noise = IntegerNoise(offsets=np.arange(-1, 3), weights=np.array([2**30] * 4))
    assert noise.mean == Fraction(1, 2)
    assert noise.variance == Fraction(5, 4)
    # Half a unit of 2^-32 at each of 40 offsets of up to 20.
    assert float(families.skellam(variance=9.0).variance) == pytest.approx(9.0, rel=1e-6)
    # Likewise.
    assert float(families.discrete_laplace(scale=2.5).variance) == pytest.approx(
        2 * math.exp(-0.4) / (1 - math.exp(-0.4)) ** 2, rel=1e-6
    )


def _reports(noise: IntegerNoise, x: int) -> dict[int, Fraction]:
    """Every report of x and its probability, one offset at a time."""
    result: dict[int, Fraction] = {}
    for offset, weight in zip(noise.offsets.tolist(), noise.weights.tolist(), strict=True):
        result[x + offset] = Fraction(weight, TOTAL)
    return result


def _pairs(noise: IntegerNoise, sensitivity: int) -> list[tuple[list[Fraction], list[Fraction]]]:
    pairs = []
    for x in range(3):
        for y in range(-sensitivity, sensitivity + 3):
            if 0 < abs(x - y) <= sensitivity:
                first, second = _reports(noise, x), _reports(noise, y)
                keys = sorted(first.keys() | second.keys())
                pairs.append(
                    (
                        [first.get(k, Fraction(0)) for k in keys],
                        [second.get(k, Fraction(0)) for k in keys],
                    )
                )
    return pairs


LOSSES = [
    lambda: families.discrete_laplace(scale=1.0, bound=6),
    lambda: families.discrete_gaussian(sigma=1.5, bound=3),
    lambda: families.skellam(variance=2.0, bound=4),
    lambda: IntegerNoise(offsets=np.arange(3), weights=np.array([2**31, 0, 2**31])),
]


@pytest.mark.parametrize("build", LOSSES)
@pytest.mark.parametrize("sensitivity", [1, 2, 3])
def test_losses_equal_brute_force_over_inputs(build: Any, sensitivity: int) -> None:
    noise = build()
    pairs = _pairs(noise, sensitivity)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = max(hockey_stick(p, q, epsilon) for p, q in pairs)
        assert exact <= noise.delta(epsilon, sensitivity=sensitivity) * (1 + FEW)
        assert noise.delta(epsilon, sensitivity=sensitivity) == pytest.approx(
            exact, rel=MANY, abs=FEW
        )
    assert all(math.isinf(log_ratio(pair)) for pair in pairs)  # so that there is no epsilon
    exact = max(
        renyi(p, q, 0.5) for p, q in pairs
    )  # below order 1 only disjoint reports are infinite
    assert noise.renyi(0.5, sensitivity=sensitivity) == pytest.approx(exact, rel=1e-9)


def test_truncation_is_in_delta() -> None:
    # Two Laplace values one apart: at the nominal epsilon the ideal delta is 0, the cut noise's is not.
    noise = families.discrete_laplace(scale=1.0, bound=5)
    nominal = papers.published_discrete_laplace_epsilon(scale=1.0)
    assert nominal == 1.0
    assert math.isinf(noise.pair(1).epsilon)
    assert noise.delta(nominal) >= noise.weights[-1] / TOTAL
    assert noise.delta(1e9) == pytest.approx(noise.weights[-1] / TOTAL, rel=FEW)


@pytest.mark.parametrize("sigma", [0.6, 2.0, 5.0])
@pytest.mark.parametrize("alpha", [1.5, 4.0, 20.0])
def test_published_renyi_bounds_hold_for_the_ideal_noise(sigma: float, alpha: float) -> None:
    wide = range(-int(14 * sigma + 14), int(14 * sigma + 15))
    for s in (1, 2):
        normal = [gaussian(sigma, k) for k in wide], [gaussian(sigma, k - s) for k in wide]
        assert renyi(*normal, alpha) <= papers.published_discrete_gaussian_renyi(
            sigma=sigma, alpha=alpha, sensitivity=s
        ) * (1 + MANY)
        difference = [skellam(sigma**2, k) for k in wide], [skellam(sigma**2, k - s) for k in wide]
        bound = papers.published_skellam_renyi(variance=sigma**2, alpha=alpha, sensitivity=s)
        assert renyi(*difference, alpha) <= bound


# Draws --------------------------------------------------------------------------------------------------------------


def test_draws_follow_the_weights() -> None:
    # False alarm rate 1e-6 for a right sampler; the seed makes the outcome fixed.
    noise = families.discrete_gaussian(sigma=2.0)
    draws = noise.sample((200, 1000), rng=7)
    assert draws.shape == (200, 1000)
    assert draws.dtype == np.int64
    expected = noise.weights / TOTAL * draws.size
    counts = np.bincount(draws.ravel() - noise.offsets[0], minlength=noise.offsets.size)
    rare = expected < 20
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    assert statistic < chi2.isf(1e-6, observed.size - 1)


def test_default_draws_differ_and_seeded_draws_repeat() -> None:
    noise = families.skellam(variance=100.0)
    x = np.arange(1000)
    assert (noise.privatize(x, rng=3) == noise.privatize(x, rng=3)).all()
    assert (noise.privatize(x) != noise.privatize(x)).any()


def test_privatize_adds_noise() -> None:
    x = np.array([[0, 5], [-3, 100]])
    noise = families.discrete_laplace(scale=2.0)
    added = noise.privatize(x, rng=1) - x
    assert (np.abs(added) <= noise.offsets[-1]).all()
    assert noise.privatize(np.zeros(0, dtype=int)).shape == (0,)


def test_noise_without_spread_returns_its_input() -> None:
    noise = families.discrete_gaussian(sigma=0.1)
    assert noise.offsets.tolist() == [0]
    np.testing.assert_array_equal(noise.privatize([1, 2, 3]), [1, 2, 3])
    assert noise.delta(5.0) == 1.0


def test_mechanism_is_rounding_followed_by_noise() -> None:
    noise = families.discrete_laplace(scale=1.0, bound=3)
    mechanism = noise.mechanism(lower=2, upper=5)
    assert mechanism.max_bias == 0
    np.testing.assert_array_equal(mechanism.levels, np.arange(-1, 9))
    for x in range(2, 6):
        reports = _reports(noise, x)
        np.testing.assert_array_equal(
            mechanism.pmf(x), [float(reports.get(v, 0)) for v in range(-1, 9)]
        )
    for epsilon in (0.5, 1.0):
        assert mechanism.delta(epsilon) == noise.delta(epsilon, sensitivity=3)


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda: families.discrete_laplace(scale=0.0), "scale"),
        (lambda: families.discrete_laplace(scale=math.inf), "scale"),
        (lambda: families.discrete_laplace(scale=1e6), "scale"),
        (lambda: families.discrete_laplace(scale=1.0, bound=0), "bound"),
        (lambda: families.discrete_gaussian(sigma=-1.0), "sigma"),
        (lambda: families.discrete_gaussian(sigma=math.nan), "sigma"),
        (lambda: families.skellam(variance="4"), "variance"),
        (lambda: families.skellam(variance=4.0).delta(1.0, sensitivity=0), "sensitivity"),
        (lambda: families.skellam(variance=4.0).delta(-1.0), "epsilon"),
        (lambda: families.skellam(variance=4.0).privatize([0.5]), "x"),
        (lambda: families.skellam(variance=4.0).privatize([2**62]), "x"),
        (lambda: families.skellam(variance=4.0).mechanism(lower=3, upper=3), "lower"),
        (lambda: families.discrete_laplace(scale=1300.0).pair(65000), "shift"),
        (
            lambda: IntegerNoise(offsets=[0, 2], weights=[2**31, 2**31]),
            "offsets",
        ),
        (
            lambda: IntegerNoise(offsets=[0, 1], weights=[2**31, 2**30]),
            "weights",
        ),
        (lambda: IntegerNoise(offsets=[0, 1], weights=[2**32, 0]), "weights"),
        (lambda: IntegerNoise(offsets=[0, 1], weights=[0.5, 0.5]), "weights"),
        (lambda: papers.published_skellam_renyi(variance=1.0, alpha=1.0), "alpha"),
    ],
)
def test_noise_names_what_is_wrong(call: Any, parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.parameter == parameter
    assert caught.value.remedy


def test_noise_arrays_cannot_be_written() -> None:
    noise = families.skellam(variance=4.0)
    with pytest.raises(ValueError, match="read-only"):
        noise.weights[0] = 1


def test_weights_and_offsets_that_overflow_are_refused() -> None:
    with pytest.raises(ParameterError, match="offsets"):
        IntegerNoise(
            offsets=np.array([2**63 - 1, -(2**63)]),
            weights=np.array([1, TOTAL - 1]),
        )
    weights = np.array([2**62, 2**62, 2**62, 2**62 + TOTAL])
    with pytest.raises(ParameterError, match="weights"):
        IntegerNoise(offsets=np.arange(4), weights=weights)
