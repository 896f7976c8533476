"""The sampling average: quantized records against all subsets, 8-bit distributions, continuous records."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from laws.registry import judges
from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import (
    average_profile,
    continuous_average,
    expected_gradients,
    profile,
    quantized_gaussian,
    quantized_laplace,
)
from reference import smoothed_subsets
from reference.smoothed_mpmath import number
from tolerances import FEW, MANY, UNIT


def test_equals_every_subset_in_exact_fractions() -> None:
    rng = random.Random("subsets")
    positive = 0
    for _ in range(120):
        levels = rng.choice([2, 3, 5, 9])
        records = [rng.randrange(levels) for _ in range(rng.randint(2, 7))]
        draws = rng.randint(1, len(records))
        ratio = rng.choice(
            [Fraction(3, 2), Fraction(1), Fraction(2), Fraction(51, 49), Fraction(5)]
        )
        truth = smoothed_subsets.delta(records, draws, ratio, levels)
        result = average_profile(records, sampled=draws, ratio=ratio, levels=levels)
        where = (records, draws, ratio, levels, result)
        if truth == 0:
            assert result.log10_delta == -math.inf, where
            continue
        positive += 1
        assert abs(Fraction(10**result.log10_delta) / truth - 1) < Fraction(1, 10**12), where
        assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= number(truth), where
        assert result.log10_delta <= result.log10_upper <= result.log10_worst_case + 100 * UNIT
    assert positive > 80


def test_two_levels_are_the_histogram() -> None:
    # With two levels the sum of the sample is its histogram.
    records = [0] * 30 + [1] * 45
    average = average_profile(records, sampled=60, epsilon=0.3, levels=2)
    histogram = profile((30, 45), sampled=60, epsilon=0.3)
    assert abs(average.log10_delta - histogram.log10_delta) < MANY


def test_the_histogram_of_256_levels_would_be_no_use() -> None:
    rng = np.random.default_rng(0)
    codes = rng.choice(256, size=400, p=quantized_gaussian(0.0, 0.12))
    histogram = profile(np.bincount(codes, minlength=256).tolist(), sampled=20, epsilon=1.0)
    assert histogram.log10_delta == histogram.log10_worst_case
    assert average_profile(codes, sampled=20, epsilon=1.0).log10_delta < -3.5


# Section 4.3: typical log10 delta for N8bit(0, .12^2), T = sqrt(n), at epsilon .5 / 1 / 2.
@pytest.mark.parametrize(
    ("n", "typical"),
    [
        (100, (-1.8, -2.2, -3.3)),
        pytest.param(400, (-3.7, -5.5, -8.0), marks=pytest.mark.slow),
        pytest.param(1000, (-6.6, -9.5, -14.0), marks=pytest.mark.slow),
    ],
)
def test_typical_databases_of_gradients(n: int, typical: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(11)
    draws = 5 if n == 100 else 3
    databases = [rng.choice(256, size=n, p=quantized_gaussian(0.0, 0.12)) for _ in range(draws)]
    for epsilon, value in zip((0.5, 1.0, 2.0), typical, strict=True):
        found = [
            average_profile(x, sampled=math.isqrt(n), epsilon=epsilon).log10_delta
            for x in databases
        ]
        # Databases differ by about a tenth of the exponent.
        assert abs(float(np.median(found)) - value) < 0.3 + 0.1 * abs(value)


def test_all_records_sampled_is_exact_publication() -> None:
    result = average_profile([3, 200, 90], sampled=3, epsilon=2.0)
    assert result.log10_delta == result.log10_upper == 0.0


def _exact_gaussian(i: int, mean: float, deviation: float) -> mp.mpf:
    return mp.ncdf((mp.mpf(i - 127) / 256 - mean) / deviation) - mp.ncdf(
        (mp.mpf(i - 128) / 256 - mean) / deviation
    )


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.12), (0.2, 0.12), (-0.4, 0.05)])
def test_quantized_distributions_follow_definition_5(mean: float, deviation: float) -> None:
    gaussian = quantized_gaussian(mean, deviation)
    with mp.workdps(150):
        truth = [_exact_gaussian(i, mean, deviation) for i in range(256)]
        total = mp.fsum(truth)
    assert gaussian.shape == (256,)
    assert (
        max(
            abs(float(p / (t / total)) - 1)
            for p, t in zip(gaussian, truth, strict=True)
            if t > 1e-80
        )
        < MANY
    )
    scale = mp.mpf(deviation) / mp.sqrt(2)

    def cdf(x: mp.mpf) -> mp.mpf:
        return mp.exp(x / scale) / 2 if x < 0 else 1 - mp.exp(-x / scale) / 2

    laplace = quantized_laplace(mean, deviation)
    exact = [
        cdf(mp.mpf(i - 127) / 256 - mean) - cdf(mp.mpf(i - 128) / 256 - mean) for i in range(256)
    ]
    whole = mp.fsum(exact)
    assert max(abs(float(p / (t / whole)) - 1) for p, t in zip(laplace, exact, strict=True)) < MANY


@judges("smoothed.averages.expected_gradients")
def test_expected_gradients_is_the_mean_of_exact_values() -> None:
    chances = np.array([0.25, 0.5, 0.25])
    result = expected_gradients(
        n=6, distributions=[chances], sampled=3, ratio=Fraction(3, 2), draws=400, seed=2
    )
    truth = Fraction(0)
    for index in range(3**6):
        records = [index // 3**k % 3 for k in range(6)]
        weight = Fraction(1)
        for record in records:
            weight *= Fraction(1, 2) if record == 1 else Fraction(1, 4)
        key = tuple(sorted(records))
        truth += weight * _cached(key)
    assert result.status == "sampled"
    assert result.confidence is not None
    # A 99 % interval at a fixed seed: false alarm 1 %, drawn once and for all.
    assert 10 ** result.confidence[1] <= truth <= 10 ** result.confidence[2]
    assert result.log10_upper >= math.log10(0.5)


_CACHE: dict[tuple[int, ...], Fraction] = {}


def _cached(records: tuple[int, ...]) -> Fraction:
    if records not in _CACHE:
        _CACHE[records] = smoothed_subsets.delta(records, 3, Fraction(3, 2), 3)
    return _CACHE[records]


def test_the_default_batch_is_the_square_root() -> None:
    result = expected_gradients(
        n=50, distributions=[quantized_gaussian(0.0, 0.1)] * 2, epsilon=1.0, draws=2
    )
    assert result.sampled == 8
    assert sum(result.split) == 50


@judges("smoothed.averages.continuous_average")
def test_continuous_records_are_not_hidden_at_all() -> None:
    for epsilon in (0.1, 10.0):
        result = continuous_average(1000, sampled=32, epsilon=epsilon)
        assert abs(result.log10_delta - math.log10(0.032)) < FEW
        assert result.log10_delta == result.log10_worst_case <= result.log10_upper
        assert "replace one record" in result.reason


BAD = [
    (lambda: average_profile([], sampled=1, epsilon=1.0), "non-empty"),
    (lambda: average_profile([0, 256], sampled=1, epsilon=1.0), "between 0 and"),
    (lambda: average_profile([-1, 2], sampled=1, epsilon=1.0), "between 0 and"),
    (lambda: average_profile([0.5, 1.0], sampled=1, epsilon=1.0), "integer"),
    (lambda: average_profile([1, 2], sampled=3, epsilon=1.0), "more than the 2 records"),
    (lambda: average_profile([0] * 5000, sampled=2500, epsilon=1.0), "subsets"),
    (lambda: quantized_gaussian(0.0, 0.0), "deviation"),
    (lambda: quantized_laplace(math.nan, 0.1), "mean"),
    (lambda: quantized_gaussian(50.0, 0.1), "no mass"),
    (lambda: expected_gradients(n=10, distributions=[], epsilon=1.0), "distributions"),
    (
        lambda: expected_gradients(n=10, distributions=[np.array([0.5, 0.6])], epsilon=1.0),
        "sum to 1",
    ),
    (
        lambda: expected_gradients(
            n=10, distributions=[np.array([0.5, 0.5])], epsilon=1.0, split=(3,)
        ),
        "sum to n",
    ),
    (
        lambda: expected_gradients(
            n=10, distributions=[np.array([0.5, 0.5])], epsilon=1.0, draws=1
        ),
        "at least 2",
    ),
    (lambda: continuous_average(0, sampled=1, epsilon=1.0), "at least 1"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_names_parameter_value_and_remedy(call, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()
    assert message in str(caught.value)
