"""Replacing one record under Poisson sampling: the worst pair, by enumeration, closed forms and known numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import flint
import numpy as np
import pytest
from scipy.stats import norm

from laws.registry import judges
from mezzotint.kernel.gaussian import replaced_curve
from mezzotint.kernel.units import WHOLE
from mezzotint.training import rqp
from tolerances import FEW, MANY, printed

AXIS = np.arange(-9, 9.0001, 0.05)


def pair_on_a_grid(rate: float, shift: float, alpha: float) -> float:
    """H_alpha of the pair, summed over half-lines' complement: the best threshold of a fine grid."""
    t = np.linspace(-12 - shift, 12 + shift, 200_001)
    first = (1 - rate) * norm.sf(t) + rate * norm.sf(t - shift)
    second = (1 - rate) * norm.sf(t) + rate * norm.sf(t + shift)
    return float(max(np.max(first - alpha * second), 1 - alpha))


def in_the_plane(
    rate: float, u: np.ndarray, v: np.ndarray, others: list[np.ndarray], alpha: float
) -> float:
    """H_alpha of two records in the plane, the others Poisson sampled as well, by sums over the cells of a grid."""

    def density(mean: np.ndarray) -> np.ndarray:
        return np.outer(norm.pdf(AXIS - mean[0]), norm.pdf(AXIS - mean[1])) * 0.05**2

    first = second = np.zeros((AXIS.size, AXIS.size))
    for chosen in range(2 ** len(others)):
        members = [bool(chosen >> i & 1) for i in range(len(others))]
        chance = math.prod(rate if member else 1 - rate for member in members)
        mean = sum(
            (one for one, member in zip(others, members, strict=True) if member), np.zeros(2)
        )
        first = first + chance * ((1 - rate) * density(mean) + rate * density(mean + u))
        second = second + chance * ((1 - rate) * density(mean) + rate * density(mean + v))
    return float(np.maximum(first - alpha * second, 0).sum())


@judges("training.rqp.Steps.account", "kernel.gaussian.replaced_curve")
def test_no_pair_of_records_exceeds_the_pair() -> None:
    # Any two records in the plane, alone and beside two others, at ratios on both sides of 1.
    rng, tight = np.random.default_rng(0), 0
    for _ in range(40):
        rate, shift, alpha = (
            rng.uniform(0.05, 1),
            rng.uniform(0.2, 2.5),
            math.exp(rng.uniform(-2, 2)),
        )
        worst = pair_on_a_grid(rate, shift, alpha)
        angles = rng.uniform(0, 2 * math.pi, 4)
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        lengths = shift * rng.choice([0.0, 0.3, 0.8, 1.0], 2)
        others = list(directions[2:] * shift)
        for aside in ([], others):
            found = in_the_plane(
                rate, lengths[0] * directions[0], lengths[1] * directions[1], aside, alpha
            )
            # A smooth density is summed over a grid of 1/20 to within far less than 1e-6.
            assert found <= worst + 1e-6
        opposite = in_the_plane(rate, shift * directions[0], -shift * directions[0], [], alpha)
        assert opposite == pytest.approx(worst, abs=1e-3)  # corners of the kink at the event's edge
        tight += opposite > 0.99 * worst
    assert tight > 30


@judges("kernel.gaussian.replaced_curve")
@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(2, 5), Fraction(1)])
@pytest.mark.parametrize("shift", [0.1, 1.0, 4.0])
def test_the_kernel_s_curve_is_that_of_the_best_threshold(rate: Fraction, shift: float) -> None:
    with flint.ctx.workprec(128):
        curve = replaced_curve(flint.arb(shift), rate)
        for alpha in (1.0, 1.001, 1.5, 20.0):
            ratio = Fraction(alpha)
            found = curve(ratio.numerator, ratio.denominator) / WHOLE
            # The best of 2e5 thresholds lies below the best of all by the square of their distance.
            assert -1e-12 <= found - pair_on_a_grid(float(rate), shift, alpha) <= 1e-7


def test_the_pair_is_never_below_its_closed_form_and_composes_to_the_known_number() -> None:
    for noise, rate in ((1.0, 0.01), (0.5, 0.3), (4.0, 1.0)):
        step = rqp.Poisson(rate=rate)
        loss = step.step(noise, "replace_one", step.spacing(noise, "replace_one"))
        for epsilon in (0.0, 0.1, 1.0, 2.0):
            exact = pair_on_a_grid(rate, 1 / noise, math.exp(epsilon))
            # The twin's own errors below, the grid's step above.
            assert exact * (1 - MANY) - FEW <= loss.get_delta_for_epsilon(epsilon) <= exact + 1e-4
    claim = rqp.epsilon(1.0, sampling_rate=0.01, steps=100, delta=1e-5, neighboring="replace_one")
    assert claim.epsilon == pytest.approx(0.895, abs=printed(3))
    removed = rqp.epsilon(1.0, sampling_rate=0.01, steps=100, delta=1e-5)
    assert removed.epsilon == pytest.approx(0.718, abs=printed(3))


def test_replaced_codes_take_the_smallest_of_three_bounds() -> None:
    def run(noise: float, **more: float) -> float:
        settings = {"bits": 4, "steps": 20, "sampling_rate": 0.1, "delta": 1e-5, **more}
        return rqp.epsilon(noise, neighboring="replace_one", **settings).epsilon  # type: ignore[arg-type]

    # A little replacement: the pair of the noise alone is the best that is known.
    assert run(1.0, q=0.999) == pytest.approx(run(1.0), rel=MANY)
    # Much: noise z / kappa by the formula for contracted steps, below the pair at z and above that at z / kappa.
    kappa = rqp.contraction(0.3, 4)
    assert run(1.0 / kappa) < run(1.0, q=0.3) < run(1.0)
