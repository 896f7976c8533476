"""The square wave as a table: the paper's density, integrated over bins; certificates; and when it is chosen."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate

from mezzotint import ParameterError, design, families
from mezzotint.privacy import verify


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("outputs", [3, 16, 100])
def test_bins_hold_the_density_of_the_paper(epsilon: float, outputs: int) -> None:
    table = families.square_wave(lower=10, upper=30, outputs=outputs, epsilon=epsilon)
    odds = math.exp(epsilon)
    half = (epsilon * odds - odds + 1) / (2 * odds * (odds - 1 - epsilon))
    near, far = odds / (2 * half * odds + 1), 1 / (2 * half * odds + 1)
    bins = np.linspace(-half, 1 + half, outputs + 1)
    for x in (0.0, 0.137, 0.5, 0.981, 1.0):
        edges = [x - half, x + half]

        def density(y: float, x: float = x) -> float:
            return near if abs(y - x) <= half else far

        expected = [
            integrate.quad(density, a, b, points=np.clip(edges, a, b))[0] for a, b in pairwise(bins)
        ]
        assert table.pmf(np.array([10 + 20 * x]))[0] == pytest.approx(
            expected, abs=1e-6
        )  # quad's 1.5e-8 across two jumps, and weights of 2^-32
    assert verify(table).valid
    assert table.epsilon <= epsilon
    # Only where no cell lies whole inside the wave is the ratio of the densities not reached.
    assert table.epsilon >= epsilon - 1e-3 or 2 * half < 2 * (bins[1] - bins[0])


def test_what_cannot_be() -> None:
    for options, words in (
        ({"outputs": 1}, "outputs=1"),
        ({"epsilon": 1e-8}, "too small"),
        ({"epsilon": 0}, "eps"),
    ):
        with pytest.raises(ParameterError, match=words):
            families.square_wave(**{"epsilon": 1.0, **options})  # type: ignore[arg-type]


def test_the_error_of_shapes_is_that_of_linear_estimates() -> None:
    """Against draws: shapes from the prior, reports about each, and the best linear estimate of both."""
    table = families.square_wave(lower=0, upper=1, outputs=16, epsilon=2.0)
    rng = np.random.default_rng(3)
    rows = table.pmf((np.arange(128) + 0.5) / 128)
    shares = rng.dirichlet(np.full(128, 100 / 128), size=20_000)
    seen = np.array([rng.multinomial(5000, one @ rows) for one in shares]) / 5000
    known = np.cumsum(shares, axis=1)[:, :-1]
    centred = np.column_stack([seen[:, :-1], np.ones(len(seen))])
    left = known - centred @ np.linalg.lstsq(centred, known, rcond=None)[0]
    # Errors are nearly normal; their mean absolute value is the root of 2 / pi of their standard deviation.
    found = math.sqrt(2 / math.pi) * left.std(axis=0).mean()
    # 20,000 draws: deviations of 127 correlated errors by 0.5 % each; four of them.
    assert design.shape_error(table, reports=5000) == pytest.approx(found, rel=0.02)


@pytest.mark.slow
def test_the_table_for_a_shape_is_the_best_of_those_that_are_known() -> None:
    wave = families.square_wave(lower=0, upper=1, outputs=16, epsilon=1.0)
    chosen = design.for_shape(1.0, lower=0, upper=1, levels=16)
    assert chosen.epsilon <= 1
    assert chosen.levels.size <= 16
    assert design.shape_error(chosen) < 0.95 * design.shape_error(wave)
    # Many levels at a small epsilon: waves of several widths say more than one wave, and than few cells.
    many = design.for_shape(1.0, lower=0, upper=1, levels=256)
    assert many.name.startswith("waves of 3 widths")
    assert many.epsilon <= 1
    assert many.levels.size <= 256
    finest = families.square_wave(lower=0, upper=1, outputs=256, epsilon=1.0)
    assert design.shape_error(many) < 0.95 * design.shape_error(finest)
    cells = design.interpolated(
        design.optimal(1.0, lower=0, upper=1, levels=256, knots=17, loss="cdf").mechanism
    )
    assert design.shape_error(many) < design.shape_error(cells)
    # Many levels at a large epsilon: the square wave says more.
    assert design.for_shape(4.0, lower=0, upper=1, levels=32).name.startswith("square wave of 32")
    # More reports, less error; the range does not matter.
    assert design.shape_error(chosen, reports=10**6) < design.shape_error(chosen)
    moved = families.square_wave(lower=100, upper=300, outputs=16, epsilon=1.0)
    assert design.shape_error(moved) == pytest.approx(
        design.shape_error(wave), rel=1e-6
    )  # knots of the range moved: weights differ by units
    with pytest.raises(ParameterError, match="levels=2"):
        design.for_shape(1.0, levels=2)
