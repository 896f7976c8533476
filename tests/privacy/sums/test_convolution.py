"""Pmfs of sums against exact binomials and direct convolution."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from laws.registry import judges
from mezzotint import ParameterError
from mezzotint.privacy.sums.convolution import sum_pmf
from tolerances import FEW, MANY


@pytest.mark.parametrize("count", [1, 7, 100, 10**4, 10**6])
def test_binomial_probabilities_are_known_far_into_the_tails(count):
    summed = sum_pmf([np.array([0.25, 0.75])], [[count]])
    places = np.unique(np.linspace(0, summed.pmf.shape[1] - 1, 300).astype(int))
    with mpmath.workdps(60):
        for i in places.tolist():
            k = int(summed.start[0]) + i
            exact = (
                mpmath.binomial(count, k) * mpmath.mpf(3) ** k / mpmath.mpf(4) ** count
                if 0 <= k <= count
                else 0
            )
            ours = mpmath.mpf(float(summed.pmf[0, i]))
            assert ours == 0 or abs(ours - exact) <= summed.error * ours
            # Six deviations out the tilted transforms still know the probability well.
            assert ours > 0 or exact < 1e-15
    # It grows with the draws, up to 2**-20 of a million: far below the coarsest that is taken, 2**-10.
    assert summed.error < 1e-5


def test_mass_outside_the_window_is_bounded():
    count = 5000
    for above in (False, True):
        summed = sum_pmf([np.array([0.5, 0.5])], [[count]], tail=1e-6, from_above=above)
        with mpmath.workdps(40):
            first = int(summed.start[0])
            known = first + np.flatnonzero(summed.pmf[0])
            inside = mpmath.fsum(mpmath.binomial(count, int(k)) for k in known)
            assert 0 < 1 - inside / mpmath.mpf(2) ** count <= summed.outside[0]


def test_nothing_is_outside_a_window_that_holds_all():
    half = np.array([0.5, 0.5])
    assert sum_pmf([half], [[2]]).outside.tolist() == [0.0]
    assert sum_pmf([half, np.array([0.25, 0.75])], [[2, 3]]).outside.tolist() == [0.0]
    cut = sum_pmf([half], [[2], [5000]], tail=1e-6, from_above=True)
    assert cut.outside.tolist() == [0.0, 1e-6]


@judges("privacy.sums.convolution.sum_pmf")
@pytest.mark.parametrize("above", [False, True])
def test_several_shapes_and_cells_agree_with_direct_convolution(above):
    rng = np.random.default_rng(3)
    shapes = [rng.dirichlet(np.ones(4)), np.array([0.5, 0, 0, 0.5]), np.array([0.0, 1.0])]
    counts = np.array([[0, 0, 0], [3, 0, 1], [1, 4, 0], [5, 5, 5]])
    summed = sum_pmf(shapes, counts, from_above=above)
    for cell, row in enumerate(counts):
        direct = np.ones(1)
        for shape, times in zip(shapes, row, strict=True):
            for _ in range(times):
                direct = np.convolve(direct, shape)
        for i in range(summed.pmf.shape[1]):
            k = int(summed.start[cell]) + i
            exact = direct[k] if 0 <= k < direct.size else 0.0
            ours = summed.pmf[cell, i]
            # Transforms err absolutely, by UNIT / 100 of sums to 1 after the tilt.
            assert ours <= exact * (1 + summed.error + FEW) + 1e-18 or above
            assert exact <= ours * (1 + summed.error + FEW) or (ours == 0 and not above)
        assert summed.pmf[cell].sum() == pytest.approx(1, abs=MANY)


def test_shapes_much_wider_than_the_window_of_their_sum_keep_their_mass():
    # 3,079 places have mass, all but 1e-13 of it within 300 of the middle: the window of the sum is the shorter one.
    places = np.arange(-2500, 2501)
    shape = np.exp(-0.5 * (places / 40.0) ** 2)
    shape /= shape.sum()
    summed = sum_pmf([shape], [[3]], tail=1e-9, from_above=True)
    assert summed.pmf.shape[1] < shape.size
    direct = np.convolve(np.convolve(shape, shape), shape)
    inside = direct[int(summed.start[0]) :][: summed.pmf.shape[1]]
    # The twin's own absolute error, as above.
    assert (summed.pmf[0] >= inside * (1 - MANY) - 1e-18).all()
    assert summed.pmf[0].sum() + summed.outside[0] >= 1 - FEW
    # Every cell is rounded up, by its error bound.
    assert summed.pmf[0].sum() == pytest.approx(1, abs=1e-8)


def test_shapes_that_hardly_vary_do_not_overflow():
    summed = sum_pmf([np.array([1 - 1e-9, 1e-9])], [[10**4]])
    with mpmath.workdps(40):
        exact = mpmath.mpf(1 - 1e-9) ** (10**4)
        place = -int(summed.start[0])
        assert abs(summed.pmf[0, place] - exact) <= summed.error


def test_skewed_sums_are_known_between_their_peaks():
    # 30 events in 1,000 draws on average: nine deviations up there are 85, and every one of them is known.
    summed = sum_pmf([np.array([0.97, 0.03])], [[1000]], tail=1e-18)
    assert (summed.pmf[0] > 0).sum() >= 85
    # 2**-28 here: peaks stand every 5.5 deviations.
    assert summed.error < 1e-8


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
        sum_pmf(shapes, counts)
