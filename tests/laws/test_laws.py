"""The algebra that every mechanism obeys, over one table of every family and over random tables."""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mezzotint import families, privacy
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import pack, unpack
from mezzotint.core.types import TOTAL
from reference.mechanisms import BIASED, FAMILIES, is_bounded
from reference.privacy import divergence, hockey_stick, pmf_at
from strategies import random_table, tables
from tolerances import FEW, GRAIN, LOG_UP

ORDERS = [0.25, 0.5, 1.0, 1.5, 2.0, 8.0, 64.0, 1e3, 1e6, math.inf]
EPSILONS = [0.0, 0.1, 0.5, 1.0, 3.0]
RANDOM = {
    f"random-{seed}": functools.partial(random_table, seed, rows=4, levels=6) for seed in range(4)
}
RANDOM["random-zeros"] = functools.partial(random_table, 9, rows=5, levels=6, zeros=0.3)
EVERY = {**FAMILIES, **RANDOM}


@functools.cache
def built(name: str) -> Mechanism:
    return EVERY[name]()


@pytest.fixture(params=EVERY)
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    return built(request.param)


def losses(mechanism: Mechanism) -> Iterator[float]:
    """A sample of every kind of loss, in a fixed order."""
    yield from (mechanism.renyi(order) for order in ORDERS)
    yield from (mechanism.delta(epsilon) for epsilon in EPSILONS)
    yield mechanism.epsilon


def replaced(mechanism: Mechanism, **changes: object) -> Mechanism:
    parts = {
        "knots": mechanism.knots,
        "levels": mechanism.levels,
        "weights": mechanism.weights,
    } | changes
    return Mechanism(**parts)  # pyright: ignore[reportArgumentType]


# The table -----------------------------------------------------------------------------------------------------


def test_every_family_is_in_the_catalogue() -> None:
    functions = {name for name in dir(families) if inspect.isfunction(getattr(families, name))}
    # `pbm_exact`, `hashed` and `frequency_variance` return no table; categories have no numbers to be unbiased for.
    # The square wave is biased on purpose: it is for distributions.
    other = {"pbm_exact", "hashed", "categorical", "frequency_variance", "square_wave"}
    constructors = {name for name in functions if not name.startswith("published_")} - other
    named = {key.replace("-", "_") for key in FAMILIES}
    assert not [name for name in constructors if not any(key.startswith(name) for key in named)]


def test_rows_sum_to_exactly_one(mechanism: Mechanism) -> None:
    assert (mechanism.weights.sum(axis=1) == TOTAL).all()
    assert (mechanism.weights >= 0).all()
    inputs = np.linspace(mechanism.lower, mechanism.upper, 101)
    np.testing.assert_allclose(mechanism.pmf(inputs).sum(axis=1), 1.0, rtol=0, atol=FEW)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in BIASED])
def test_families_are_unbiased_up_to_rounding(name: str) -> None:
    mechanism = built(name)
    span = max(mechanism.upper, float(mechanism.levels[-1])) - min(
        mechanism.lower, float(mechanism.levels[0])
    )
    assert mechanism.exact_max_bias <= Fraction(mechanism.levels.size * span) / TOTAL


def test_bias_is_largest_at_a_knot(mechanism: Mechanism) -> None:
    inputs = np.random.default_rng(0).uniform(mechanism.lower, mechanism.upper, 10_000)
    size = float(np.abs(mechanism.levels).max() + np.abs(mechanism.knots).max())
    assert np.abs(mechanism.mean(inputs) - inputs).max() <= mechanism.max_bias + FEW * size


# Losses --------------------------------------------------------------------------------------------------------


def test_certified_epsilon_bounds_ten_thousand_random_pairs(mechanism: Mechanism) -> None:
    rng = np.random.default_rng(1)
    inputs = rng.uniform(mechanism.lower, mechanism.upper, size=(10_000, 2))
    first, second = mechanism.pmf(inputs[:, 0]), mechanism.pmf(inputs[:, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(first > 0, np.log(first / second), -math.inf)
    assert ratios.max() <= mechanism.epsilon * (1 + FEW) + FEW


def test_certified_epsilon_bounds_random_pairs_in_fractions(mechanism: Mechanism) -> None:
    if not is_bounded(mechanism):
        return
    certificate = mechanism.certificate()
    bound = Fraction(certificate.numerator, certificate.denominator)
    low, span = Fraction(mechanism.lower), Fraction(mechanism.upper) - Fraction(mechanism.lower)
    places = np.random.default_rng(2).integers(0, 2**40, size=(20, 2)).tolist()
    for a, b in places:
        first, second = (pmf_at(mechanism, low + span * Fraction(place, 2**40)) for place in (a, b))
        assert all(p <= bound * q for p, q in zip(first, second, strict=True))


def test_certified_epsilon_is_attained_by_rows(mechanism: Mechanism) -> None:
    if not is_bounded(mechanism):
        return
    certificate = mechanism.certificate()
    rows = [
        [Fraction(w, TOTAL) for w in mechanism.weights[k].tolist()]
        for k in (certificate.row_high, certificate.row_low)
    ]
    attained = divergence(rows[0], rows[1], math.inf)
    assert attained <= mechanism.epsilon <= attained * (1 + LOG_UP)


def test_delta_and_renyi_bound_random_pairs(mechanism: Mechanism) -> None:
    low, span = Fraction(mechanism.lower), Fraction(mechanism.upper) - Fraction(mechanism.lower)
    places = np.random.default_rng(3).integers(0, 2**40, size=(5, 2)).tolist()
    pairs = [
        [pmf_at(mechanism, low + span * Fraction(place, 2**40)) for place in pair]
        for pair in places
    ]
    for first, second in pairs:
        assert all(
            hockey_stick(first, second, epsilon) <= mechanism.delta(epsilon) for epsilon in EPSILONS
        )
        assert all(
            divergence(first, second, order) <= mechanism.renyi(order)
            for order in (0.5, 1.0, 2.0, 30.0)
        )


def test_renyi_grows_with_the_order_towards_epsilon(mechanism: Mechanism) -> None:
    values = [mechanism.renyi(order) for order in ORDERS]
    # Each is rounded up by at most 128 (m + 128) 2^-53 of the largest log-ratio, 22.
    assert all(a <= b + 1e-11 for a, b in pairwise(values) if b < math.inf)
    assert values[-1] == mechanism.epsilon
    if is_bounded(mechanism):
        # D_alpha >= epsilon + log(p) / (alpha - 1) with p the smallest positive probability, at least 2**-32.
        assert mechanism.epsilon - 22.2 / (1e6 - 1) <= mechanism.renyi(1e6) <= mechanism.epsilon


def test_the_profile_falls_to_zero_at_epsilon(mechanism: Mechanism) -> None:
    grid = np.linspace(0, min(mechanism.epsilon, 25.0), 12).tolist()
    profile = [mechanism.delta(epsilon) for epsilon in grid]
    assert all(b <= a for a, b in pairwise(profile))
    rows = mechanism.weights.astype(object)
    variation = max(sum(abs(a - b)) for a in rows for b in rows)
    assert Fraction(mechanism.delta(0.0)) == Fraction(variation, 2 * TOTAL)
    if is_bounded(mechanism):
        assert mechanism.delta(mechanism.epsilon) == 0.0


# Equalities ----------------------------------------------------------------------------------------------------


def test_a_knot_with_the_interpolated_row_changes_nothing(mechanism: Mechanism) -> None:
    # Half-way, so that the interpolated integers are exact up to one half.
    k = int(np.argmax(np.diff(mechanism.knots)))
    middle = (mechanism.knots[k] + mechanism.knots[k + 1]) / 2
    total = mechanism.weights[k] + mechanism.weights[k + 1]
    row = total // 2
    odd = np.flatnonzero(total % 2)
    row[odd[: odd.size // 2]] += 1
    finer = replaced(
        mechanism,
        knots=np.insert(mechanism.knots, k + 1, middle),
        weights=np.insert(mechanism.weights, k + 1, row, axis=0),
    )
    grid = np.linspace(mechanism.lower, mechanism.upper, 1001)
    # Half a unit of the inserted row, rounded.
    np.testing.assert_allclose(finer.pmf(grid), mechanism.pmf(grid), rtol=0, atol=0.51 * GRAIN)
    both = (mechanism.weights[k] > 0) & (mechanism.weights[k + 1] > 0)
    if (both | (total == 0)).all():
        # Half a unit in weights that may be a few hundredths of 2^32: the inserted row is none of the worst.
        np.testing.assert_allclose(
            list(losses(finer)), list(losses(mechanism)), rtol=1e-8, atol=FEW
        )


def test_the_order_and_the_values_of_levels_do_not_count(mechanism: Mechanism) -> None:
    order = np.random.default_rng(4).permutation(mechanism.levels.size)
    shuffled = replaced(
        mechanism, levels=np.arange(order.size) * 0.5 - 3, weights=mechanism.weights[:, order]
    )
    np.testing.assert_allclose(list(losses(shuffled)), list(losses(mechanism)), rtol=FEW, atol=FEW)
    assert shuffled.epsilon == mechanism.epsilon


def test_the_order_of_rows_and_their_places_do_not_count(mechanism: Mechanism) -> None:
    order = np.random.default_rng(5).permutation(mechanism.knots.size)
    moved = replaced(mechanism, knots=np.arange(order.size) * 2.0, weights=mechanism.weights[order])
    np.testing.assert_allclose(list(losses(moved)), list(losses(mechanism)), rtol=FEW, atol=FEW)


@given(tables(max_levels=8), st.data())
def test_merging_levels_never_raises_a_loss(mechanism: Mechanism, data: st.DataObject) -> None:
    size = mechanism.levels.size
    target = np.array(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    weights = np.stack(
        [mechanism.weights[:, target == label].sum(axis=1) for label in range(3)], axis=1
    )
    merged = replaced(mechanism, levels=[0.0, 1.0, 2.0], weights=weights)
    slack = 1e-10 * (1 + min(mechanism.epsilon, 25.0))
    assert all(
        after <= before + slack
        for after, before in zip(losses(merged), losses(mechanism), strict=True)
    )
    assert merged.epsilon <= mechanism.epsilon


@given(tables(max_rows=4))
@settings(max_examples=50)
def test_dropping_a_row_never_raises_a_loss(mechanism: Mechanism) -> None:
    fewer = replaced(mechanism, knots=mechanism.knots[[0, -1]], weights=mechanism.weights[[0, -1]])
    # Each is rounded up by its own error bound, below 1e-11 of 22 nats.
    assert all(
        after <= before + 1e-10
        for after, before in zip(losses(fewer), losses(mechanism), strict=True)
    )


# Storage and reports -------------------------------------------------------------------------------------------


def test_saved_loaded_verified(mechanism: Mechanism, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    mechanism.save(path)
    again = Mechanism.load(path)
    assert again == mechanism
    assert again.certificate() == mechanism.certificate()
    report = privacy.verify(path)
    assert report.problems == ()
    assert report.epsilon_upper <= mechanism.epsilon
    if is_bounded(mechanism):
        assert mechanism.epsilon <= report.epsilon_upper * (1 + LOG_UP)


def test_tampering_is_caught(mechanism: Mechanism, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    path = tmp_path / "m.json"
    for _ in range(10):
        document = json.loads(mechanism.to_json())
        rows, row = document["weights"], int(rng.integers(mechanism.knots.size))
        source = int(np.argmax(mechanism.weights[row]))
        target = int((source + rng.integers(1, mechanism.levels.size)) % mechanism.levels.size)
        rows[row][source], rows[row][target] = rows[row][source] - 1, rows[row][target] + 1
        path.write_text(json.dumps(document), encoding="utf-8")
        assert not privacy.verify(path).valid


def test_codes_survive_packing_and_decode_to_levels(mechanism: Mechanism) -> None:
    inputs = np.linspace(mechanism.lower, mechanism.upper, 1003)
    codes = mechanism.privatize(inputs, rng=7)
    packed = pack(codes, mechanism.bits)
    assert len(packed) == math.ceil(1003 * mechanism.bits / 8)
    again = unpack(packed, mechanism.bits, 1003)
    np.testing.assert_array_equal(again, codes)
    np.testing.assert_array_equal(mechanism.decode(again), mechanism.levels[codes.astype(np.intp)])
