"""The search by halving: both ends answer what they promise, for any condition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from mezzotint.core.search import bracket

POINTS = st.floats(1e-100, 1e100)


@given(POINTS, POINTS, POINTS, st.booleans())
def test_both_ends_are_neighbours_of_the_change(
    one: float, other: float, third: float, geometric: bool
) -> None:
    low, change, high = sorted((one, other, third))
    good, bad = bracket(lambda x: x <= change, low, high, steps=2000, geometric=geometric)
    assert good <= change
    assert bad > change or bad == high
    if (
        high > change
    ):  # neighbouring floats; the root of a product is two roundings, so it may end a few before
        assert bad - good <= (8 if geometric else 1) * math.ulp(bad)


@given(POINTS, POINTS, st.floats(1e-12, 0.5), st.booleans())
def test_the_width_is_what_was_asked_for(
    one: float, other: float, tolerance: float, geometric: bool
) -> None:
    low, high = sorted((one, other))
    good, bad = bracket(
        lambda x: x > (low + high) / 2,
        high,
        low,
        tolerance=tolerance,
        steps=2000,
        geometric=geometric,
    )
    assert good >= bad
    assert good - bad <= tolerance * good


def test_ends_are_answers_whatever_the_condition_does() -> None:
    asked: dict[float, bool] = {0.0: True, 1.0: False}

    def holds(x: float) -> bool:
        asked[x] = int(x * 1e6) % 3 == 0
        return asked[x]

    good, bad = bracket(holds, 0.0, 1.0)
    assert asked[good]
    assert not asked[bad]


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_no_more_steps_than_allowed(steps: int) -> None:
    asked: list[float] = []
    good, bad = bracket(lambda x: bool(asked.append(x)), 0.0, 1.0, steps=steps)
    assert len(asked) == steps
    assert (bad - good) * 2**steps == 1
