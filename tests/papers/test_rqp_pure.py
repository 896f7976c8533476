"""Pure loss of a step against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.papers.rqp_pure import coordinate_loss, pure_epsilon, step_loss
from reference import training as reference
from tolerances import FEW, MANY


def _parts(q: float, bits: int) -> tuple[float, float]:
    other = (1 - q) / (2**bits - 1)
    return q - other, other


@pytest.mark.parametrize(("q", "bits"), [(0.2, 4), (0.7, 4), (0.99, 4), (0.6, 1), (0.999, 8)])
@pytest.mark.parametrize("shift", [1e-3, 0.1, 1.0, 5.0, 60.0])
def test_coordinate_against_a_fine_grid(q: float, bits: int, shift: float) -> None:
    grid = reference.worst_ratio_on_a_grid(q, bits, shift)
    found = coordinate_loss(shift, *_parts(q, bits))
    assert grid - FEW <= found <= grid + 1e-6  # the grid's steps, squared, times the shift
    assert found <= math.log(q / ((1 - q) / (2**bits - 1))) + MANY


def test_equal_shares_are_worst() -> None:
    # No way to spread ||t||^2 over the coordinates costs more than equal shares (400 random ones).
    rng = np.random.default_rng(3)
    for q, bits in ((0.3, 4), (0.95, 4), (0.7, 2)):
        gap, other = _parts(q, bits)
        for shift in (0.3, 1.0, 6.0):
            bound = step_loss(shift, 4, gap, other)
            shares = rng.dirichlet([0.3] * 4, size=400)
            totals = [
                sum(coordinate_loss(shift * math.sqrt(v), gap, other) for v in row)
                for row in shares
            ]
            assert max(totals) <= bound + MANY
            assert step_loss(shift, 1, gap, other) <= bound + MANY


@pytest.mark.parametrize(
    ("noise", "q", "printed"), [(0.5, 0.198, 5.77), (1.0, 0.285, 3.93), (2.0, 0.678, 3.69)]
)
def test_a_step_on_the_published_curve(noise: float, q: float, printed: float) -> None:
    # 31 weights of 4 bits; math note 3.2, whose q are rounded to three digits.
    assert step_loss(1 / noise, 31, *_parts(q, 4)) == pytest.approx(printed, rel=0.01)


def test_no_shift_no_loss() -> None:
    assert step_loss(0.0, 31, *_parts(0.5, 4)) == 0.0
    assert step_loss(1.0, 31, 0.0, 1 / 16) == 0.0


def test_pure_epsilon() -> None:
    # Published curve of the Diagnostic set. Math note 3.2 prints 96, 34 and 28 for q rounded to three digits.
    for noise, q, printed in ((0.5, 0.198, 96), (1.0, 0.285, 34), (2.0, 0.678, 28)):
        epsilon = pure_epsilon(noise, q=q, bits=4, dimension=31, steps=46, sampling_rate=10 / 455)
        step = 31 * reference.worst_ratio_on_a_grid(q, 4, 1 / noise / math.sqrt(31))
        exact = 46 * math.log1p(10 / 455 * math.expm1(step))
        # The twin's grid misses the greatest ratio of 1426 by the square of its step each; ours is rounded up.
        assert exact - 1e-6 <= epsilon <= exact + 1e-3
        assert epsilon == pytest.approx(printed, rel=0.015)  # two printed digits
        twice = pure_epsilon(
            noise,
            q=q,
            bits=4,
            dimension=31,
            steps=46,
            sampling_rate=10 / 455,
            neighboring="replace_one",
        )
        assert twice > epsilon
    assert math.isinf(pure_epsilon(1.0, q=1.0, bits=4, dimension=31, steps=46, sampling_rate=0.1))
    # Large losses neither overflow nor lose their size.
    big = pure_epsilon(0.01, q=0.99, bits=4, dimension=10_000, steps=2, sampling_rate=0.5)
    assert math.isfinite(big)


def test_a_step_on_one_weight_costs_what_exact_arithmetic_says() -> None:
    # A code is at best kept and at worst replaced, on either side of one threshold.
    step = reference.worst_ratio_on_a_grid(0.3, 2, 10.0)
    found = pure_epsilon(0.1, q=0.3, bits=2, dimension=1, steps=1, sampling_rate=0.5)
    # The twin's grid misses the worst place by its step squared.
    assert found == pytest.approx(math.log1p(0.5 * math.expm1(step)), rel=1e-6)
    assert found < 0.14


def test_more_coordinates_and_steps_cost_more() -> None:
    def say(dimension: int, steps: int) -> float:
        return pure_epsilon(1.5, q=0.7, bits=2, dimension=dimension, steps=steps, sampling_rate=0.2)

    assert say(4, 4) > say(3, 4) > say(3, 3)
    with pytest.raises(ParameterError, match="dimension=0"):
        say(0, 1)
