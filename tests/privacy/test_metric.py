"""Metric privacy against exact fractions and 60-digit logarithms, where the last bit and the least distance matter."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import Mechanism
from mezzotint.privacy.tradeoffs import metric_epsilon, row_losses, vector_epsilon
from strategies import random_table
from tolerances import LOG_UP, UNIT

TOTAL = 2**32
HALF = TOTAL // 2


def _table(rows: list[list[int]], spacing: float = 1.0) -> Mechanism:
    knots, levels = spacing * np.arange(len(rows)), np.arange(float(len(rows[0])))
    return Mechanism(
        knots=knots, levels=levels, weights=np.array(rows, dtype=np.int64), name="hand"
    )


def _ratio(first: list[int], second: list[int]) -> Fraction:
    """The largest ratio of two weights of a level, either way."""
    return max(Fraction(max(p, q), min(p, q)) for p, q in zip(first, second, strict=True) if p or q)


def _slope(mechanism: Mechanism) -> Fraction:
    """The largest |d log p / dx|, exactly."""
    knots, rows = [Fraction(knot) for knot in mechanism.knots.tolist()], mechanism.weights.tolist()
    return max(
        Fraction(abs(p - q), min(p, q)) / (last - first)
        for (first, last), (a, b) in zip(pairwise(knots), pairwise(rows), strict=True)
        for p, q in zip(a, b, strict=True) if p or q
    )  # fmt: skip


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 6.0]))
def test_the_absolute_metric_is_the_largest_slope_rounded_up_once(seed: int, spread: float) -> None:
    mechanism = random_table(seed, rows=5, levels=4, spread=spread)
    ours, exact = metric_epsilon(mechanism, "absolute"), _slope(mechanism)
    assert Fraction(math.nextafter(ours, 0.0)) < exact <= Fraction(ours)


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 1, 0]])
def test_slopes_that_floats_cannot_tell_apart(order: list[int]) -> None:
    # 2**28 / (2**29 + 1) is a 2**-59th part larger than (2**29 - 1) / 2**30, which is a float.
    first, second = [2**29 + 1, 2**30], [2**29 + 1 + 2**28, 2**30 + 2**29 - 1]
    rows = [[*row, TOTAL - sum(row)] for row in (first, second)]
    table = _table([[row[k] for k in order] for row in rows])
    largest = Fraction(2**28, 2**29 + 1)
    assert float(largest) == (2**29 - 1) / 2**30
    assert _slope(table) == largest
    assert metric_epsilon(table, "absolute") == math.nextafter(float(largest), 1.0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.1, 1.0, 6.0]))
def test_losses_by_distance_are_the_largest_logarithms_rounded_up(seed: int, spread: float) -> None:
    rows = random_table(seed, rows=5, levels=4, spread=spread).weights.tolist()
    losses = row_losses(_table(rows))
    assert losses.shape == (4,)
    for apart, loss in enumerate(losses.tolist(), 1):
        ratio = max(_ratio(a, b) for a, b in zip(rows, rows[apart:], strict=False))
        exact = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert exact <= loss <= exact * (1 + 16 * UNIT) + LOG_UP


def test_rows_that_miss_a_level_lose_everything_and_equal_ones_nothing() -> None:
    there_and_back = [[HALF, HALF, 0], [TOTAL, 0, 0], [HALF, HALF, 0]]
    assert row_losses(_table(there_and_back)).tolist() == [math.inf, 0.0]
    assert row_losses(_table([[HALF, HALF, 0]] * 3)).tolist() == [0.0, 0.0]
    for metric in ("absolute", "squared"):
        assert metric_epsilon(_table(there_and_back), metric) == math.inf
    assert vector_epsilon(_table(there_and_back), dimension=2, l2_distance=1.0) == math.inf
    # A level that no row shows is no level.
    rows = [[HALF, HALF], [HALF + 9, HALF - 9], [HALF + 9, HALF - 9]]
    for metric in ("absolute", "squared"):
        with_empty = metric_epsilon(_table([[*row, 0] for row in rows]), metric)
        assert 0 < with_empty == metric_epsilon(_table(rows), metric) < math.inf


@pytest.mark.parametrize("spacing", [0.1, 0.3, 0.7, 1.1, 1 / 3, 1e-3, 17.3, 0.9])
def test_the_squared_metric_holds_exactly_for_every_number_of_knots(spacing: float) -> None:
    rows = [[HALF + shift, HALF - shift] for shift in (0, 10**6, 10**7, 10**9)]
    table = _table(rows, spacing)
    ours, width = Fraction(metric_epsilon(table, "squared")), Fraction(float(table.knots[-1]) / 3)
    promised = [
        Fraction(loss) / (apart * width) ** 2
        for apart, loss in enumerate(row_losses(table).tolist(), 1)
    ]
    assert max(promised) <= ours <= max(promised) * (1 + Fraction(1, 2**52))


def test_vectors_at_the_least_and_the_largest_distance() -> None:
    # Each step multiplies the weight of the rare level by the same small factor, nearly.
    rare = [round(2**31 * math.exp(-k / 1000)) for k in range(4)]
    table = _table([[weight, TOTAL - weight] for weight in rare])
    losses = row_losses(table)

    def bound(distance: float, inputs: str) -> float:
        return vector_epsilon(table, dimension=1, l2_distance=distance, inputs=inputs)  # type: ignore[arg-type]

    assert bound(0.0, "grid") == 0.0
    nothing = 1e-15
    assert (
        bound(0.0, "real") <= nothing
    )  # equal vectors are drawn from equal rows, however positions are rounded
    # Neighbouring floats may be rounded to positions a whole step of 2^-32 of a segment apart.
    step = Fraction(rare[2] - rare[3], 2**32) / rare[3]
    assert (
        bound(1e-300, "grid")
        <= nothing
        < math.log1p(float(step))
        <= bound(1e-300, "real")
        < 5 * float(step)
    )
    for inputs in ("grid", "real"):
        # A step of 2^-32 of a segment at both ends, over losses of a tenth.
        assert losses[-1] <= bound(3.0, inputs) <= losses[-1] * (1 + 2e-8)
        assert bound(100.0, inputs) <= losses[-1] * (1 + 2e-8)  # likewise
    # In between, a real input costs as much as one at the next knot, or less.
    assert losses[0] <= bound(1.0, "real") <= 1.1 * losses[0]
