"""Pure loss of a step against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mezzotint.training.contraction import coordinate_loss, step_loss
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
