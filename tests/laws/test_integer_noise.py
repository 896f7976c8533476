"""Laws of integer noise: mirrored, moved, and against every shift and every coordinate gone through."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from laws.registry import judges
from mezzotint.core.types import TOTAL
from mezzotint.families import IntegerNoise
from mezzotint.families.numeric import pbm_exact
from reference.vectors import hockey_stick
from strategies import examples, random_weights

UNIT = 2.0**-53
DELTA = 1e-2
ORDERS = (0.5, 1.0, 2.0, 20.0)


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
    return IntegerNoise(offsets=np.arange(weights.size) + first, weights=weights)


def mirrored(noise: IntegerNoise) -> IntegerNoise:
    return IntegerNoise(
        offsets=-noise.offsets[::-1],
        weights=noise.weights[::-1],
    )


def moved(noise: IntegerNoise) -> IntegerNoise:
    return IntegerNoise(offsets=noise.offsets + 5, weights=noise.weights)


@judges(
    "families.noise.IntegerNoise.delta",
    "families.noise.IntegerNoise.renyi",
)
@settings(max_examples=examples(7))
@given(noise=noises(), sensitivity=st.integers(1, 3))
def test_noise_has_no_direction_and_no_place(noise: IntegerNoise, sensitivity: int) -> None:
    for image in (mirrored(noise), moved(noise)):
        assert image.delta(0.4, sensitivity=sensitivity) == noise.delta(
            0.4, sensitivity=sensitivity
        )
        for order in ORDERS:
            here, there = (one.renyi(order, sensitivity=sensitivity) for one in (noise, image))
            # The same at most 12 terms in another order, each with an allowance of (m + 8) 4 UNIT.
            assert here == there or abs(here - there) <= 1e-12 * (1 + here)
    # A wider sensitivity holds the narrower one.
    assert noise.delta(0.4, sensitivity=sensitivity) <= noise.delta(
        0.4, sensitivity=sensitivity + 1
    )


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
