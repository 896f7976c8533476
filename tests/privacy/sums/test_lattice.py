"""The lattice that secure sums need."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import Mechanism, ParameterError
from mezzotint.privacy.sums import MAX_SPAN, TOLERANCE, find_lattice, lattice_rows


@given(
    lower=st.floats(-1e6, 1e6),
    step=st.floats(1e-6, 1e3),
    count=st.integers(2, 300),
)
def test_even_grids_in_floats_are_lattices_although_no_float_grid_is_even(lower, step, count):
    levels = np.linspace(lower, lower + step * (count - 1), count)
    if (np.diff(levels) <= 0).any() or np.abs(levels).max() > 1e3 * step:
        return
    lattice = find_lattice(levels)
    assert lattice.integers.tolist() == list(range(count))
    exact = max(
        abs(Fraction(float(b)) - Fraction(lattice.offset) - Fraction(lattice.step) * i)
        for i, b in enumerate(levels)
    )
    assert Fraction(lattice.decode_error) >= exact
    assert lattice.decode_error <= TOLERANCE * (levels[-1] - levels[0])


@pytest.mark.parametrize(
    ("levels", "integers"),
    [
        ([-3.0, -0.5, 0.5, 3.0], [0, 5, 7, 12]),
        ([-1.0, 0.0, 1.0], [0, 1, 2]),
        ([-0.3, -0.1, 0.1, 0.3], [0, 1, 2, 3]),
        ([0.1, 0.7], [0, 1]),
        ([0.0, 1 / 3, 1.0], [0, 1, 3]),
    ],
)
def test_sparse_lattices_are_found_with_the_coarsest_step(levels, integers):
    assert find_lattice(np.array(levels)).integers.tolist() == integers


@pytest.mark.parametrize(
    "levels", [[0.0, 1.0, np.sqrt(2)], [-1.0, -0.1234567891, 0.3, 1.0], [0.0, np.pi, 10.0]]
)
def test_levels_off_every_lattice_are_refused_with_the_remedy(levels):
    with pytest.raises(ParameterError, match="even grid or a sparse subset"):
        find_lattice(np.array(sorted(levels)))


def test_unused_levels_do_not_count_and_repeated_rows_are_dropped():
    weights = np.array([[2**31, 0, 2**31], [2**31, 0, 2**31], [2**30, 0, 3 * 2**30]])
    mechanism = Mechanism(knots=[-1, 0, 1], levels=[-1, np.sqrt(0.1), 1], weights=weights)
    rows, lattice = lattice_rows(mechanism)
    assert rows.tolist() == [[2**31, 2**31], [2**30, 3 * 2**30]]
    assert (lattice.modulus(1), lattice.modulus(10)) == (2, 11)
    assert lattice.decode_error == 0
    with pytest.raises(ParameterError, match="clients"):
        lattice.modulus(0)


def test_a_constant_report_is_no_sum():
    weights = np.array([[2**32, 0], [2**32, 0]])
    with pytest.raises(ParameterError, match="only one level"):
        lattice_rows(Mechanism(knots=[-1, 1], levels=[-1, 1], weights=weights))


def test_the_largest_span_is_a_lattice_and_one_more_is_not():
    assert find_lattice(np.array([0.0, 1.0, 2.0, MAX_SPAN])).integers.tolist() == [
        0,
        1,
        2,
        MAX_SPAN,
    ]
    with pytest.raises(ParameterError, match="even grid or a sparse subset"):
        find_lattice(np.array([0.0, 1.0, 2.0, MAX_SPAN + 1.0]))


def test_levels_that_coincide_or_nearly_so_are_refused():
    with pytest.raises(ParameterError, match="strictly increasing"):
        find_lattice(np.array([0.0, 0.0, 1.0]))
    with pytest.raises(ParameterError, match="even grid or a sparse subset"):
        find_lattice(np.array([0.0, 1e-3 * TOLERANCE, 1.0]))


def test_a_miss_of_just_the_tolerance_is_allowed():
    assert find_lattice(np.array([0.0, 1 + 2 * TOLERANCE, 2.0])).integers.tolist() == [0, 1, 2]
