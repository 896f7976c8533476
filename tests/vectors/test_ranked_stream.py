"""The pinned public stream: against a scalar twin, exact quantiles, and what is published for other implementations."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint.vectors import codewords as codebooks, compiled
from reference import ranked as twin
from tolerances import FEW, MANY


def normals(words):
    rows = np.empty((1, len(words)))
    numbers = np.array(words, dtype=np.uint32)
    compiled.normal_numbers(
        numbers, codebooks.normal_table(), len(words), codebooks.OCTAVE_BITS, 1.0, rows
    )
    return rows[0]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_normal_numbers_are_those_of_the_scalar_twin(words):
    assert normals(words).tolist() == [twin.normal(word) for word in words]


def test_normal_numbers_at_all_ends_of_pieces():
    starts = [twin.node(piece) for piece in range(6144)]
    words = [min(max(start + step, 0), 2**31 - 1) for start in starts for step in (-1, 0, 1)]
    assert normals(words).tolist() == [twin.normal(word) for word in words]
    assert normals([word | 2**31 for word in words]).tolist() == [
        -twin.normal(word) for word in words
    ]


def test_the_table_is_that_of_exact_quantiles_and_far_from_ties():
    table = codebooks.normal_table()
    assert table.size == 6145
    margin = 1.0
    with mpmath.workdps(30):
        for piece in [*range(0, 6144, 37), 6143]:
            tail = (mpmath.mpf(twin.node(piece)) + 0.5) / 2**32
            exact = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * tail) * 2**24
            assert table[piece] == int(mpmath.nint(exact))
            margin = min(margin, float(abs(abs(exact - mpmath.floor(exact)) - 0.5)))
    assert margin > 1e-4
    assert (np.diff(table) < 0).all()


def test_normal_numbers_are_quantiles_up_to_a_millionth():
    places = np.random.default_rng(3).integers(0, 2**31, 20000).tolist() + list(range(600))
    exact = np.array([twin.tail(place) for place in places])
    # Linear between quantiles, which are convex: never below but for rounding, at most 2e-6 above.
    error = normals(places) * codebooks.UNIT - exact
    assert error.min() > -1.5 * codebooks.UNIT
    assert error.max() < 2e-6  # as said


def test_moments_of_all_normal_numbers():
    """Mean square over all 2**31 sizes: piece by piece, within 2e-6 of 1."""
    table = codebooks.normal_table().astype(float) * codebooks.UNIT
    starts = np.array([twin.node(piece) for piece in range(6145)], dtype=float)
    counts, left, right = np.diff(starts), table[:-1], table[1:]
    # The sum of squares of count points from left towards right, evenly spaced.
    step = (right - left) / counts
    squares = (
        counts * left**2
        + left * step * counts * (counts - 1)
        + step**2 * (counts - 1) * counts * (2 * counts - 1) / 6
    )
    assert squares.sum() / 2**31 == pytest.approx(
        1.0, abs=2e-6
    )  # what linear interpolation adds, as above


@pytest.mark.parametrize("width", [1, 4, 7, 1000])
def test_rows_positions_and_signs_are_those_of_the_twin(width):
    key = codebooks.stream_key("report", "beacon", 2**64 - 1, 1)
    assert key == twin.key("report", "beacon", 2**64 - 1, 1)
    rows = codebooks.normal_rows(key, 3, 2, width)
    assert np.array_equal(rows, [twin.normal_row(key, row, width) for row in (3, 4)])
    vector = np.random.default_rng(4).normal(size=width)
    assert codebooks.normal_products(key, 5, vector)[3:] == pytest.approx(rows @ vector, abs=FEW)
    among = 1 << width.bit_length()
    assert codebooks.positions(key, width, among).tolist() == twin.distinct(key, width, among)


def test_products_of_long_rows_and_many():
    # More words than are drawn at a time, in rows and over rows.
    key = codebooks.stream_key("report", "", 1, 0)
    for count, width in ((3, 2**19 + 5), (700, 1000)):
        vector = np.zeros(width)
        vector[[0, width // 2, width - 1]] = (1.0, -2.0, 0.5)
        assert codebooks.normal_products(key, count, vector) == pytest.approx(
            codebooks.normal_rows(key, 0, count, width) @ vector, abs=MANY
        )


def test_positions_are_uniform():
    # 4,000 choices of 8 of 32: every place within 5 standard deviations (32 places: 2e-5).
    keys = [codebooks.stream_key("report", "", seed, 0) for seed in range(4000)]
    counts = np.bincount(
        np.concatenate([codebooks.positions(key, 8, 32) for key in keys]), minlength=32
    )
    assert (np.abs(counts - 1000) < 5 * np.sqrt(4000 * 0.25 * 0.75)).all()


def test_normal_numbers_pass_for_normal():
    # 200,000 numbers: Kolmogorov and Smirnov's test at a rate of 1e-4; fixed key.
    from scipy import stats

    rows = codebooks.normal_rows(codebooks.stream_key("report", "", 3, 0), 0, 200, 1000).ravel()
    assert stats.kstest(rows, "norm").pvalue > 1e-4
