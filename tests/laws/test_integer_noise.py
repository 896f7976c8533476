"""Laws of integer noise: mirrored, moved, and against every shift and every coordinate gone through."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from laws.registry import judges
from mezzotint.core.types import TOTAL
from mezzotint.families import IntegerNoise
from strategies import examples, random_weights

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
