"""Levels in place: every coin leads where exact arithmetic says, none is used twice, and the law is the table's."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from mezzotint.core.sampler import ElementWords
from mezzotint.training.projection import (
    Projection,
    coin_type,
    coins_for,
    onto_levels,
    place,
    projection,
)

F32 = np.float32
KINDS = [
    pytest.param(bits, rounding, q, id=f"{bits} bits, {rounding}, {q}")
    for bits, q in ((1, 1.0), (2, 0.5), (4, 1.0), (4, 0.9), (8, 0.99), (8, 1 / 256))
    for rounding in ("nearest", "stochastic")
]


def others(projected: Projection) -> int:
    """Coins that lead to each other level, read off the table."""
    return int(projected.table.weights[0, 1]) if projected.q < 1 else 0


def twin(
    weight: float, bound: float, projected: Projection, rounding_coin: int, replacing_coin: int
) -> F32:
    """One weight, in fractions."""
    top = projected.table.levels.size - 1
    position = min(
        max(Fraction(weight) / Fraction(bound), Fraction(-1)), Fraction(1)
    ) * top / 2 + Fraction(top, 2)
    size = 8 * np.dtype(coin_type(projected)).itemsize
    shift = (
        Fraction(2 * rounding_coin + 1, 2 ** (size + 1))
        if projected.rounding == "stochastic"
        else Fraction(1, 2)
    )
    code, other = (position + shift).__floor__(), others(projected)
    if replacing_coin < other * top:
        code = (code + 1 + replacing_coin // other) % (top + 1)
    return F32(projected.table.levels[code] * bound)


def weights_of(rng: Any, size: int, bound: float) -> np.ndarray:
    """Within and beyond the bound, and on levels."""
    found = rng.uniform(-1.3, 1.3, size) * bound
    found[:4] = (-bound, bound, np.inf, -np.inf)
    found[2:4] = (3e38, -3e38)
    return found.astype(F32)


@pytest.mark.parametrize(("bits", "rounding", "q"), KINDS)
@pytest.mark.parametrize("bound", [0.1, 1.0, 0.75])
def test_coins_lead_where_fractions_say(bits: int, rounding: Any, q: float, bound: float) -> None:
    rng, projected = np.random.default_rng(bits), projection(bits=bits, rounding=rounding, q=q)
    given, other = weights_of(rng, 600, bound), others(projected)
    kind = coin_type(projected)
    assert kind == (np.uint32 if other else np.uint16)
    last = np.iinfo(kind).max
    coins = rng.integers(0, last, 1200, dtype=kind, endpoint=True)
    coins[:2], coins[600:602] = (0, last), (last, 0)
    # Where the level that a coin leads to changes, floats must be exact.
    edges = [
        k * other + d
        for k in range(projected.table.levels.size)
        for d in (-1, 0)
        if 0 <= k * other + d < 2**32
    ]
    if other:
        coins[1200 - len(edges[:500]) :] = edges[:500]
    found = given.copy()
    top = projected.table.levels.size - 1
    assert onto_levels(found, coins, 600, rounding == "stochastic", other, top, bound) == 0
    expected = [
        twin(float(x), bound, projected, int(coins[i]), int(coins[600 + i]))
        for i, x in enumerate(given)
    ]
    # Positions are floats of 53 bits: one within 2^-40 of a boundary may fall on its other side, and none here is.
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("bits", "rounding", "q"), KINDS)
def test_no_coin_is_used_twice(
    bits: int, rounding: Any, q: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Parts of 8 words, cut across tensors; the coins of each are words of its own range of the stream.
    monkeypatch.setattr("mezzotint.training.projection.PART", 8)
    rng, projected = np.random.default_rng(1), projection(bits=bits, rounding=rounding, q=q)
    each, bounds = coins_for(projected), (0.5, 1.0, 2.0, 1.0)
    given = [
        weights_of(rng, size, bound) for size, bound in zip((21, 5, 40, 4), bounds, strict=True)
    ]
    found, words = [one.copy() for one in given], np.empty(400, dtype=np.uint64)
    assert place(found, bounds, projected, bytes(range(32))) == 0
    ElementWords(bytes(range(32))).fill(words)
    coins, total, used = words.view(coin_type(projected)), 70, []
    most = 8 * 8 // coins.itemsize
    length = most // max(each, 1)
    number = 0
    for before, after, bound in zip(given, found, bounds, strict=True):
        for weight, value in zip(before, after, strict=True):
            part, place_in = divmod(number, length)
            first = most * part + place_in
            second = first + (min(length, total - part * length) if each == 2 else 0)
            assert value == twin(
                float(weight), bound, projected, int(coins[first]), int(coins[second])
            )
            used += [first, second][:each]
            number += 1
    assert len(used) == len(set(used)) == each * total


@pytest.mark.parametrize(("bits", "rounding", "q"), KINDS)
def test_the_law_is_the_tables(bits: int, rounding: Any, q: float) -> None:
    # Chi-square at three weights; a false alarm in one of a million keys each.
    projected = projection(bits=bits, rounding=rounding, q=q)
    for weight in (-0.31, 0.02, 0.9):
        found = np.full(200_000, weight, dtype=F32)
        assert place([found], [1.0], projected, b"law of the levels".ljust(32)) == 0
        numbers = np.rint((found + 1) * (projected.table.levels.size - 1) / 2).astype(int)
        expected = projected.table.pmf(np.array([float(F32(weight))]))[0] * found.size
        observed = np.bincount(numbers, minlength=expected.size)
        assert observed[expected == 0].sum() == 0
        if (expected > 0).sum() > 1:
            assert (
                chisquare(observed[expected > 0], expected[expected > 0], sum_check=False).pvalue
                > 1e-6
            )


def test_weights_that_are_not_numbers_are_counted() -> None:
    weights = np.array([0.1, np.nan, -0.2, np.nan], dtype=F32)
    assert place([weights[:3], weights[3:]], [1.0, 1.0], projection(bits=4), bytes(32)) == 2
    assert place([], [], projection(bits=4), bytes(32)) == 0
