"""Bounds on pmfs of sums against exact binomials and direct convolution."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from laws.registry import judges
from mezzotint import ParameterError
from mezzotint.privacy.sums.convolution import sum_bounds
from tolerances import FEW, MANY


@pytest.mark.parametrize("count", [1, 7, 100, 10**4, 10**6])
def test_binomial_probabilities_lie_between_the_bounds_far_into_the_tails(count):
    bounds = sum_bounds([np.array([0.25, 0.75])], [[count]])
    places = np.unique(np.linspace(0, bounds.high.shape[1] - 1, 300).astype(int))
    with mpmath.workdps(60):
        for i in places.tolist():
            k = int(bounds.start[0]) + i
            exact = (
                mpmath.binomial(count, k) * mpmath.mpf(3) ** k / mpmath.mpf(4) ** count
                if 0 <= k <= count
                else 0
            )
            assert (
                mpmath.mpf(float(bounds.low[0, i])) <= exact <= mpmath.mpf(float(bounds.high[0, i]))
            )
            if exact > 1e-15:
                # Six deviations out the tilted transforms still know the probability well.
                assert bounds.high[0, i] - bounds.low[0, i] <= 1e-5 * float(exact)


def test_mass_outside_the_window_is_bounded():
    count = 5000
    bounds = sum_bounds([np.array([0.5, 0.5])], [[count]], tail=1e-6)
    with mpmath.workdps(40):
        first, last = int(bounds.start[0]), int(bounds.start[0]) + bounds.high.shape[1] - 1
        inside = (
            mpmath.fsum(mpmath.binomial(count, k) for k in range(first, last + 1))
            / mpmath.mpf(2) ** count
        )
        assert 0 < 1 - inside <= bounds.outside[0]


def test_nothing_is_outside_a_window_that_holds_all():
    half = np.array([0.5, 0.5])
    assert sum_bounds([half], [[2]]).outside.tolist() == [0.0]
    assert sum_bounds([half, np.array([0.25, 0.75])], [[2, 3]]).outside.tolist() == [0.0]
    cut = sum_bounds([half], [[2], [5000]], tail=1e-6)
    assert cut.outside.tolist() == [0.0, 1e-6]


@judges("privacy.sums.convolution.sum_bounds")
def test_several_shapes_and_cells_agree_with_direct_convolution():
    rng = np.random.default_rng(3)
    shapes = [rng.dirichlet(np.ones(4)), np.array([0.5, 0, 0, 0.5]), np.array([0.0, 1.0])]
    counts = np.array([[0, 0, 0], [3, 0, 1], [1, 4, 0], [5, 5, 5]])
    bounds = sum_bounds(shapes, counts)
    for cell, row in enumerate(counts):
        direct = np.ones(1)
        for shape, times in zip(shapes, row, strict=True):
            for _ in range(times):
                direct = np.convolve(direct, shape)
        for i in range(bounds.high.shape[1]):
            k = int(bounds.start[cell]) + i
            exact = direct[k] if 0 <= k < direct.size else 0.0
            # Transforms err absolutely, by UNIT / 100 of sums to 1 after the tilt.
            assert bounds.low[cell, i] <= exact * (1 + FEW) + 1e-18
            assert exact <= bounds.high[cell, i] * (1 + FEW)
        assert bounds.high[cell].sum() == pytest.approx(1, abs=MANY)
        assert bounds.low[cell].sum() == pytest.approx(1, abs=MANY)


def test_shapes_much_wider_than_the_window_of_their_sum_keep_their_mass():
    # 3,079 places have mass, all but 1e-13 of it within 300 of the middle: the window of the sum is the shorter one.
    places = np.arange(-2500, 2501)
    shape = np.exp(-0.5 * (places / 40.0) ** 2)
    shape /= shape.sum()
    bounds = sum_bounds([shape], [[3]], tail=1e-9)
    assert bounds.high.shape[1] < shape.size
    direct = np.convolve(np.convolve(shape, shape), shape)
    inside = direct[int(bounds.start[0]) :][: bounds.high.shape[1]]
    # The twin's own absolute error, as above.
    assert (bounds.high[0] >= inside * (1 - MANY) - 1e-18).all()
    assert (bounds.low[0] <= inside * (1 + MANY) + 1e-18).all()  # likewise
    assert bounds.high[0].sum() + bounds.outside[0] >= 1 - FEW
    assert bounds.high[0].sum() == pytest.approx(
        1, abs=1e-8
    )  # every cell is rounded up, by its error bound


def test_shapes_that_hardly_vary_do_not_overflow():
    bounds = sum_bounds([np.array([1 - 1e-9, 1e-9])], [[10**4]])
    with mpmath.workdps(40):
        exact = mpmath.mpf(1 - 1e-9) ** (10**4)
        place = -int(bounds.start[0])
        assert bounds.low[0, place] <= exact <= bounds.high[0, place]


@pytest.mark.parametrize(
    ("shapes", "counts", "match"),
    [
        ([np.array([0.5, 0.4])], [[1]], "pmf"),
        ([np.array([1.5, -0.5])], [[1]], "pmf"),
        ([np.array([0.5, 0.5])], [[-1]], "count"),
        ([np.array([0.5, 0.5])], [[1, 1]], "count"),
        ([np.array([0.5, 0.5])], [[10**18]], "window"),
    ],
)
def test_bad_input_is_named(shapes, counts, match):
    with pytest.raises(ParameterError, match=match):
        sum_bounds(shapes, counts)
