"""Clipped integer sums: no record moves one by more than the clip norm, whatever floats do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from tolerances import MANY

pytest.importorskip("torch")
pytest.importorskip("opacus")

from mezzotint.training import clipped
from mezzotint.training.clipped import ClippedSums, Gradients, add_integers

F32 = np.float32


def plain(rows: Any) -> Gradients:
    """Gradients that are no outer products."""
    given_rows = np.ascontiguousarray(rows, dtype=F32)
    return Gradients(rows=given_rows, gains=np.ones((len(given_rows), 1), dtype=F32))


def codes(gradients: list[Gradients], factors: Any) -> np.ndarray:
    """(n, D) each record's integers, one number at a time."""
    found = []
    for i, factor in enumerate(factors):
        record = []
        for gradient in gradients:
            for gain in gradient.gains[i]:
                record += [
                    int(F32(x * F32(gain * factor))) if factor else 0 for x in gradient.rows[i]
                ]
        found.append(record)
    return np.array(found, dtype=object)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-6, 0.5, 1.0, 300.0]),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e3, 1e30]),
)
def test_no_record_exceeds_its_clip_norm(seed: int, clip: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    tensors = [
        Gradients(
            rows=(size * rng.standard_t(1, (6, 9))).astype(F32),
            gains=rng.normal(size=(6, 3)).astype(F32),
        ),
        plain(size * rng.standard_cauchy((6, 5))),
    ]
    summed = ClippedSums(clip_norm=clip, coordinates=32)
    factors = summed.factors(tensors)
    each = codes(tensors, factors)
    assert max((record**2).sum() for record in each) <= summed.units**2
    total, left_out = summed(tensors)
    assert left_out == 0
    np.testing.assert_array_equal(total, each.sum(axis=0).astype(np.int64))
    # Clipping as it is meant: at most 2^-18 and the units lost shorter, and each coordinate towards zero.
    whole = np.concatenate(
        [(t.gains[:, :, None] * t.rows[:, None, :].astype(float)).reshape(6, -1) for t in tensors],
        axis=1,
    )
    norms = np.linalg.norm(whole, axis=1, keepdims=True)
    wanted = whole / np.maximum(norms, clip) * summed.units
    # A unit of the sum, and four times the shortening for norms in 32-bit floats.
    assert (np.abs(each - wanted) <= 1 + np.abs(wanted) * 2.0**-16).all()
    assert (np.abs(each) <= np.abs(wanted) + MANY).all()


@pytest.mark.parametrize("coordinates", [20, 10**6])
def test_floats_that_lie_about_the_norm_change_nothing(
    coordinates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The norm is a hint. Where it comes out too small, integers find out: a little, shortened; far too small, left out.
    rows = np.random.default_rng(3).normal(size=(8, 20))
    summed, true = ClippedSums(clip_norm=0.1, coordinates=coordinates), clipped.squares
    for share, survivors in ((1 - 2.0**-10, 8), (0.25, 0)):
        monkeypatch.setattr(clipped, "squares", lambda rows, share=share: share * true(rows))
        factors = summed.factors([plain(rows)])
        each = codes([plain(rows)], factors)
        assert (factors > 0).sum() == survivors
        assert summed([plain(rows)])[1] == 8 - survivors
        assert max((record**2).sum() for record in each) <= summed.units**2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_records_that_are_not_finite_are_left_out(bad: float) -> None:
    # NaN turned into an integer is -2^63, whose square is 0 in 64 bits: a check of the norm alone would let it pass.
    rows = np.full((3, 40), 0.25)
    rows[1, 7] = bad
    summed = ClippedSums(clip_norm=1.0, coordinates=40)
    total, left_out = summed([plain(rows)])
    if bad == 3e38:  # finite: its direction is kept
        assert left_out == 0
        assert total[7] == pytest.approx(2 * 2**16 / 40**0.5 + 2**16, abs=3)
    else:
        assert left_out == 1
        np.testing.assert_array_equal(
            total, ClippedSums(clip_norm=1.0, coordinates=40)([plain(rows[[0, 2]])])[0]
        )
    everything = np.full((2, 40), bad if bad != 3e38 else np.nan)
    assert summed([plain(everything)])[1] == 2


def test_kernels_bound_what_they_add_even_unasked() -> None:
    rows, gains, factors = (
        np.array([[np.nan, 1e30, -1e30, 3.7]], F32),
        np.ones((1, 1), F32),
        np.ones(1, F32),
    )
    totals, squares = np.zeros((1, 4), np.int64), np.zeros(1, np.int64)
    add_integers(rows, gains, factors, 2**16, totals, squares)
    assert totals.tolist() == [[-(2**16) - 1, 2**16 + 1, -(2**16) - 1, 3]]
    assert squares[0] > 2**32


def test_squares_do_not_overflow() -> None:
    # 2^24 coordinates of 2^20 units: the sum of squares is beyond 64 bits, and stops as soon as it is too large.
    rows, squares, totals = (
        np.ones((1, 2**24), F32),
        np.zeros(1, np.int64),
        np.zeros((1, 2**24), np.int32),
    )
    add_integers(rows, np.ones((1, 1), F32), np.full(1, 2.0**20, F32), 2**20, totals, squares)
    assert 2**40 < squares[0] < 2**55


@given(arrays(F32, (4, 37), elements=st.floats(-8, 8, width=32)))
def test_a_record_counts_the_same_in_every_batch(rows: np.ndarray) -> None:
    # The sensitivity is that of one record: the integers of the others must not depend on who is with them.
    summed = ClippedSums(clip_norm=1.0, coordinates=37)
    alone = sum(summed([plain(rows[i : i + 1])])[0] for i in range(4))
    np.testing.assert_array_equal(summed([plain(rows)])[0], alone)


def test_wide_sums_and_empty_batches() -> None:
    summed = ClippedSums(clip_norm=1.0, coordinates=1)
    many = plain(np.ones((2**15 + 10, 1)))  # more than 2^31 units in all
    factor = int(summed.factors([many])[0])
    assert summed([many])[0].tolist() == [(2**15 + 10) * factor]
    assert factor == 2**16 - 1
    assert summed([plain(np.zeros((0, 1)))])[0].tolist() == [0]
