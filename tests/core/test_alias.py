from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint.core.kernels import alias_cells
from reference.sampler import alias_row
from strategies import random_weights

TOTAL = 2**32


def units_per_level(cells: np.ndarray, bits: int) -> np.ndarray:
    """How many of the 2^32 words lead to each level, counted from the packed cells of one row."""
    capacity = 2 ** (32 - bits)
    units = np.zeros(2**bits, dtype=np.int64)
    for cell, entry in enumerate(cells.tolist()):
        threshold, alias = entry >> bits, entry & (2**bits - 1)
        units[cell] += threshold
        units[alias] += capacity - threshold
    return units


@given(
    levels=st.integers(2, 300),
    seed=st.integers(0, 2**32 - 1),
    zeros=st.sampled_from([0.0, 0.3, 0.95]),
)
def test_every_level_gets_exactly_its_weight(levels: int, seed: int, zeros: float) -> None:
    weights = random_weights(np.random.default_rng(seed), 3, levels, 6.0, zeros)
    bits = (levels - 1).bit_length()
    cells = alias_cells(weights, bits)
    for row, packed in zip(weights, cells, strict=True):
        units = units_per_level(packed, bits)
        np.testing.assert_array_equal(units[:levels], row)
        assert not units[levels:].any()


@pytest.mark.parametrize(
    "weights",
    [
        [0, TOTAL],
        [TOTAL, 0],
        [1, TOTAL - 1],
        [TOTAL // 2, TOTAL // 2],
        [TOTAL // 4] * 4,
        [0, 0, TOTAL],
        [TOTAL - 2, 1, 1],
        [TOTAL // 4 + 1, TOTAL // 4 - 1, TOTAL // 4 + 1, TOTAL // 4 - 1],
        [TOTAL // 4, TOTAL // 4 + 5, TOTAL // 4 - 5, TOTAL // 4, 0],
        [0] * 100 + [TOTAL],
        [2**16] * 2**16,
        [0, 2**17] * 2**15,
        [2**32 - 2**16 + 1] + [1] * (2**16 - 1),
    ],
    ids=lambda weights: f"{len(weights)} levels, first {weights[0]}",
)
def test_extreme_rows(weights: list[int]) -> None:
    bits = (len(weights) - 1).bit_length()
    cells = alias_cells(np.array([weights], dtype=np.int64), bits)[0]
    units = units_per_level(cells, bits)
    assert units[: len(weights)].tolist() == weights
    assert not units[len(weights) :].any()


@given(levels=st.integers(2, 40), seed=st.integers(0, 2**32 - 1), zeros=st.sampled_from([0.0, 0.5]))
def test_same_cells_as_the_reference_sweep(levels: int, seed: int, zeros: float) -> None:
    weights = random_weights(np.random.default_rng(seed), 2, levels, 6.0, zeros)
    bits = (levels - 1).bit_length()
    capacity = 2 ** (32 - bits)
    for row, packed in zip(weights.tolist(), alias_cells(weights, bits).tolist(), strict=True):
        expected = [
            (0 if threshold == capacity else threshold) << bits | alias
            for threshold, alias in alias_row(row, bits)
        ]
        assert packed == expected


def test_rows_may_be_read_only_and_wide() -> None:
    weights = np.full((2, 2**16), 2**16, dtype=np.int64)
    weights.setflags(write=False)
    cells = alias_cells(weights, 16)
    assert cells.dtype == np.uint32
    np.testing.assert_array_equal(cells[1], np.arange(2**16))
