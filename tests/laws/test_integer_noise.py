"""Laws of integer noise: mirrored, moved, and against every shift and every coordinate gone through."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laws.registry import judges
from mezzotint.core.types import TOTAL
from mezzotint.families import IntegerNoise, discrete_gaussian
from mezzotint.families.numeric import pbm_exact
from mezzotint.vectors import NoiseScheme, summed_noise
from reference.vectors import hockey_stick, moved_vector_delta, shifted, summed_pmf
from strategies import examples, random_weights
from tolerances import FEW, MANY

UNIT = 2.0**-53
DELTA = 1e-2
ORDERS = (0.5, 1.0, 2.0, 20.0)
NOTHING = IntegerNoise(offsets=np.array([0]), weights=np.array([TOTAL]), truncated_mass=0.0)


@st.composite
def noises(draw: st.DrawFn, *, width: int = 9) -> IntegerNoise:
    """Lopsided noise on few integers, inner ones without mass among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = random_weights(
        rng, 1, draw(st.integers(3, width)), 4.0, draw(st.sampled_from([0.0, 0.3]))
    )[0]
    weights[[0, -1]] += 1 + weights.max() // 100
    weights[weights.argmax()] += TOTAL - weights.sum()
    first = draw(st.integers(-9, 3))
    return IntegerNoise(
        offsets=np.arange(weights.size) + first, weights=weights, truncated_mass=0.0
    )


def mirrored(noise: IntegerNoise) -> IntegerNoise:
    return IntegerNoise(
        offsets=-noise.offsets[::-1],
        weights=noise.weights[::-1],
        truncated_mass=0.0,
        modulus=noise.modulus,
    )


def moved(noise: IntegerNoise) -> IntegerNoise:
    return IntegerNoise(
        offsets=noise.offsets + 5, weights=noise.weights, truncated_mass=0.0, modulus=noise.modulus
    )


def wrapped(noise: IntegerNoise) -> IntegerNoise:
    return IntegerNoise(offsets=noise.offsets, weights=noise.weights, truncated_mass=0.0, modulus=5)


@judges(
    "families.noise.IntegerNoise.epsilon",
    "families.noise.IntegerNoise.delta",
    "families.noise.IntegerNoise.renyi",
)
@settings(max_examples=examples(7))
@given(noise=noises(), wraps=st.booleans(), sensitivity=st.integers(1, 3))
def test_noise_has_no_direction_and_no_place(
    noise: IntegerNoise, wraps: bool, sensitivity: int
) -> None:
    noise = wrapped(noise) if wraps else noise
    for image in (mirrored(noise), moved(noise)):
        assert image.epsilon(sensitivity=sensitivity) == noise.epsilon(sensitivity=sensitivity)
        assert image.delta(0.4, sensitivity=sensitivity) == noise.delta(
            0.4, sensitivity=sensitivity
        )
        for order in ORDERS:
            here, there = (one.renyi(order, sensitivity=sensitivity) for one in (noise, image))
            # The same at most 12 terms in another order, each with an allowance of (m + 8) 4 UNIT.
            assert here == there or abs(here - there) <= 1e-12 * (1 + here)
    # Wrapping is post-processing, and a wider sensitivity holds the narrower one.
    assert wrapped(noise).delta(0.4, sensitivity=sensitivity) <= IntegerNoise(
        offsets=noise.offsets, weights=noise.weights, truncated_mass=0.0
    ).delta(0.4, sensitivity=sensitivity)
    assert noise.delta(0.4, sensitivity=sensitivity) <= noise.delta(
        0.4, sensitivity=sensitivity + 1
    )


@judges(
    "vectors.integers.summed_noise",
    "vectors.integers.SummedNoise.epsilon",
    "vectors.integers.SummedNoise.quadratic_renyi",
)
@settings(max_examples=examples(7))
@given(noise=noises(), clients=st.integers(1, 3), shift=st.integers(1, 2))
def test_summed_noise_against_every_shift(noise: IntegerNoise, clients: int, shift: int) -> None:
    pmf = summed_pmf(noise.weights, clients)
    summed, image = summed_noise(noise, clients), summed_noise(mirrored(noise), clients)
    epsilon = summed.epsilon(DELTA, shift=shift)
    other = image.epsilon(DELTA, shift=shift)
    assert epsilon == other or math.isclose(
        epsilon, other, rel_tol=1e-6
    )  # a bisection each, to 1e-7
    kappa, cut = summed.quadratic_renyi(2.0, shift=shift, lost=1e-3)
    kappa_there, cut_there = image.quadratic_renyi(2.0, shift=shift, lost=1e-3)
    # Sums of 25 floats in another order; without a kappa, the cut is that of whichever side was looked at first.
    assert kappa == kappa_there or math.isclose(kappa, kappa_there, rel_tol=1e-12)
    assert math.isinf(kappa) or math.isclose(cut, cut_there, rel_tol=FEW, abs_tol=8 * UNIT)
    for s in range(1, shift + 1):
        for one, two in (shifted(pmf, s), shifted(pmf, s)[::-1]):
            if math.isfinite(epsilon):
                # Three convolutions of at most 25 floats: 100 roundings of numbers below 1, and e^epsilon of the other.
                assert hockey_stick(one, two, epsilon) <= DELTA + 100 * UNIT * (
                    1 + math.exp(epsilon)
                )


@judges(
    "vectors.tables.ModularScheme.account",
    "vectors.tables.VectorScheme.claim",
)
@settings(max_examples=examples(3))
@given(noise=noises(width=7), clients=st.integers(1, 2))
def test_vectors_with_noise_against_every_pair_of_vectors(
    noise: IntegerNoise, clients: int
) -> None:
    """One and two coordinates: every move of an integer vector within the claimed norm, of both directions."""
    for size in (1, 2):
        scheme = NoiseScheme(
            noise=noise, size=size, l2_norm=1.0, granularity=1.0, clients=clients, modulus_bits=16
        )
        image = NoiseScheme(
            noise=mirrored(noise),
            size=size,
            l2_norm=1.0,
            granularity=1.0,
            clients=clients,
            modulus_bits=16,
        )
        epsilon, other = (
            one.claim(clients=clients, delta=DELTA).epsilon for one in (scheme, image)
        )
        assert epsilon == other or math.isclose(
            epsilon, other, rel_tol=1e-6
        )  # a bisection each, to 1e-7
        if math.isinf(epsilon):
            continue
        pmf = summed_pmf(noise.weights, clients)
        most = math.floor(2 * scheme.rounded_norm)
        for steps in product(range(-most, most + 1), repeat=size):
            if any(steps) and math.hypot(*steps) <= 2 * scheme.rounded_norm:
                truth = moved_vector_delta(pmf, steps, epsilon)
                assert truth <= DELTA + 1000 * UNIT * (
                    1 + math.exp(epsilon)
                )  # products of two sums of 13 floats


@judges(
    "families.numeric.PoissonBinomial.epsilon", "families.numeric.PoissonBinomial.delta",
    "families.numeric.PoissonBinomial.renyi", "families.numeric.pbm_exact.epsilon",
    "families.numeric.pbm_exact.delta", "families.numeric.pbm_exact.renyi",
)  # fmt: skip
def test_poisson_binomial_reports_have_no_direction_and_no_unit() -> None:
    for trials, theta in ((1, 0.25), (5, 0.1), (8, 0.4)):
        here, there = (
            pbm_exact(lower=a, upper=b, trials=trials, theta=theta) for a, b in ((-1, 1), (3, 40))
        )
        assert here.epsilon == there.epsilon
        assert here.delta(0.3) == there.delta(0.3)
        assert here.renyi(3.0) == there.renyi(3.0)
        inputs = np.linspace(-1, 1, 9)
        pmf = here.pmf(inputs)
        for first in pmf:
            for second in pmf:
                assert hockey_stick(first, second, 0.3) <= here.delta(0.3) + 100 * UNIT
                assert np.log(first / second).max() <= here.epsilon + 100 * UNIT


# The whole way of a vector: clipped, rotated, rounded until it meets its norm, summed with noise, modulo M -----------


def rounded(scheme: NoiseScheme, vector: np.ndarray) -> dict[tuple[int, ...], float]:
    """Chance of every rounding, given that it meets both bounds."""
    steps = (
        np.clip(scheme._rotation.apply(vector), -scheme._limit, scheme._limit) / scheme.granularity
    )
    below, chances = np.floor(steps), {}
    for coins in product((0, 1), repeat=steps.size):
        found = below + coins
        if found @ found <= scheme.rounded_norm**2 and np.abs(found).max() <= scheme.reach:
            chance = float(np.where(coins, steps - below, 1 - steps + below).prod())
            chances[tuple(found.astype(int))] = chances.get(tuple(found.astype(int)), 0.0) + chance
    whole = sum(chances.values())
    return {found: chance / whole for found, chance in chances.items() if chance}


def seen(scheme: NoiseScheme, vector: np.ndarray, draws: int) -> np.ndarray:
    """(M,) or (M, M) chances of the sum of one vector and so many draws of noise, as residues."""
    wrapped = np.zeros(scheme.modulus)
    for k, chance in enumerate(summed_pmf(scheme.noise.weights, draws)):
        wrapped[(draws * int(scheme.noise.offsets[0]) + k) % scheme.modulus] += chance
    total = np.zeros((scheme.modulus,) * scheme.length)
    for place, chance in rounded(scheme, vector).items():
        moved = [np.roll(wrapped, step) for step in place]
        total += chance * (moved[0] if len(moved) == 1 else np.multiply.outer(*moved))
    return total


@judges("vectors.tables.ModularScheme.account")
@pytest.mark.parametrize("size", [1, 2])
def test_the_whole_way_of_a_vector_by_enumeration(size: int) -> None:
    vectors = [
        np.array([math.cos(t), math.sin(t)])[:size] * r
        for t in (0.0, 0.8, 2.2, 3.9)
        for r in (1.0, 0.5)
    ]
    tried = 0
    for deviation, granularity, delta in product((1.5, 3.0), (0.5, 1.0, 2.0), (1e-2, 1e-5)):
        scheme = NoiseScheme(
            noise=discrete_gaussian(sigma=deviation),
            size=size,
            l2_norm=1.0,
            granularity=granularity,
            modulus_bits=6,
        )
        epsilon = scheme.claim(clients=2, corrupted=1, delta=delta).epsilon
        if not epsilon < 700:  # nothing is claimed, or nothing that e^epsilon could be taken of
            continue
        tried += 1
        found = [seen(scheme, vector, 1) for vector in vectors]
        for one, other in permutations(found, 2):
            assert np.maximum(one - math.exp(epsilon) * other, 0).sum() <= delta * (1 + MANY)
    assert tried >= 4


def test_no_rounding_leaves_the_bounds_that_claims_rest_on() -> None:
    rng = np.random.default_rng(0)
    for size, granularity in product((1, 2, 7, 50), (0.01, 0.3, 1.0, 5.0)):
        scheme = NoiseScheme(
            noise=NOTHING, size=size, l2_norm=1.0, granularity=granularity, modulus_bits=30
        )
        for _ in range(20):
            vector = rng.normal(size=size)
            residues = scheme.encode(
                vector / np.linalg.norm(vector) * rng.choice([0.3, 1.0, 5.0]), rng
            )
            steps = (residues + 2**29) % 2**30 - 2**29
            assert int(steps @ steps) <= scheme.rounded_norm**2
            assert np.abs(steps).max() <= scheme.reach
