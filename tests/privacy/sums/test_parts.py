"""Parts of the accountants of sums, one at a time: exact enumeration, slow twins, and inputs chosen by hand."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest

from mezzotint import Mechanism, ParameterError
from mezzotint.core.loss import pure_epsilon
from mezzotint.core.types import TOTAL
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Release
from mezzotint.privacy.divergences import rdp_public_sampling, rdp_to_epsilon
from mezzotint.privacy.local import _CUT
from mezzotint.privacy.profile import TAIL, Profile
from mezzotint.privacy.sums import (
    convolution,
    cost,
    counts,
    find_lattice,
    geometry,
    noise as noises,
)
from mezzotint.privacy.sums.blanket import Component, common_blanket
from mezzotint.privacy.sums.candidates import solve_dyads, variance_blanket
from mezzotint.privacy.sums.convolution import sum_pmf
from mezzotint.privacy.sums.cost import central_epsilon, dominating_profile
from mezzotint.privacy.sums.cover import cover, division, find_groups
from mezzotint.privacy.sums.noise import NoiseMixture, no_noise
from mezzotint.vectors import tables
from reference.sums import random_rows
from strategies import random_table
from tolerances import FEW, MANY, UNIT

BITS = np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
TABLE = Mechanism(knots=np.arange(2.0), levels=np.arange(2.0), weights=BITS)


def _release(**words: Any) -> Release:
    return Release(
        **{"mechanism": TABLE, "trust": "secure_sum", "clients": 30, "delta": 1e-3, **words}
    )


# A release as a whole -------------------------------------------------------------------------------------------------

SIMPLE = Profile.of_curve(np.array([0.0, 1.0]), np.array([0.3, 0.0]))


@pytest.fixture
def _simple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cost,
        "_single",
        lambda run, delta: (SIMPLE, 1e-4 if run.participation == "poisson" else 0.0),
    )
    monkeypatch.setattr(
        cost, "central_epsilon", lambda rows, **words: SimpleNamespace(epsilon=0.125)
    )


@pytest.mark.usefixtures("_simple")
def test_curves_are_composed_as_people_take_part() -> None:
    delta = 1e-3
    assert cost._composed(_release()) == 0.125
    assert cost._composed(_release(delta=0.0)) == math.inf

    def many(pair: Profile, count: int, left: float) -> float:
        tail = min(TAIL, _CUT * left)
        return pair.compose(count, cost.PRECISION, tail=tail).epsilon(left)

    for words in ({"rounds": 6}, {"dimension": 6}, {"dimension": 2, "rounds": 3}):
        assert cost._composed(_release(**words)) == many(SIMPLE, 6, delta)
    for sampling, seen, left in (
        ("public", True, delta), ("without_replacement", False, delta),
        ("poisson", False, delta - 3 * 1e-4),
    ):  # fmt: skip
        words = {"dimension": 2, "rounds": 3, "sampling": sampling, "sampling_rate": 0.5}
        tail = min(TAIL, _CUT * left) / 3
        one_round = SIMPLE.compose(2, cost.PRECISION / 1.5, tail=tail)
        (sampled,) = one_round.sampled(0.5, seen=seen, neighboring="replace_one")
        assert cost._composed(_release(**words)) == many(sampled, 3, left)
    # Where too few come more often than delta, nothing is promised.
    assert cost._composed(_release(sampling="poisson", sampling_rate=0.5, rounds=20)) == math.inf


@pytest.mark.parametrize("clients", [1, 2, 4, 300])
def test_so_many_others_come_but_for_a_chance_that_is_counted(
    monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    asked: list[dict[str, Any]] = []

    def curve(rows: Any, **words: Any) -> Profile:
        asked.append(words)
        return SIMPLE

    monkeypatch.setattr(cost, "dominating_profile", curve)
    rate = Fraction(3, 4)
    release = _release(clients=clients, sampling="poisson", sampling_rate=float(rate))
    _, missed = cost._single(release, 1e-3)
    (words,) = asked
    sure, others = words["clients"] - 1, clients - 1
    chances = [
        math.comb(others, k) * rate**k * (1 - rate) ** (others - k) for k in range(others + 1)
    ]
    fewer = sum(chances[:sure], Fraction(0))
    assert fewer <= Fraction(missed) <= fewer * Fraction(1 + 1e-8)
    # As many as the share of delta that is set aside allows, and no more than that.
    assert fewer < Fraction(release.delta) / 2000 <= fewer + chances[sure]
    assert words["silent"] == 0


def test_silence_is_an_integer_of_the_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "dominating_profile", lambda rows, **words: words["silent"])

    def silent(levels: list[float]) -> Any:
        rows = np.array([[2**30, 2**31, 2**30], [2**31, 2**30, 2**30]])
        knots = np.array([levels[0], levels[-1]])
        table = Mechanism(knots=knots, levels=np.array(levels), weights=rows)
        return cost._single(_release(mechanism=table, sampling="poisson", sampling_rate=0.5), 1e-3)[
            0
        ]

    assert [
        silent(levels) for levels in ([0.0, 1.0, 2.0], [-1.0, 0.0, 1.0], [-2.0, -1.0, 0.0])
    ] == [0, 1, 2]
    for levels in ([1.0, 2.0, 3.0], [-3.0, -2.0, -1.0], [-0.5, 0.5, 1.5], [-1.0, 1e-6, 1.0 + 2e-6]):
        with pytest.raises(ParameterError, match="absent"):
            silent(levels)


@pytest.mark.parametrize("delta", [1e-12, 1e-3, 0.3])
@pytest.mark.parametrize("rounds", [1, 40, 10**4])
def test_the_best_order_is_found_without_looking_at_all(
    monkeypatch: pytest.MonkeyPatch, delta: float, rounds: int
) -> None:
    # The constant of a Gaussian, alpha times a half: every end of the list of orders is somewhere the best.
    monkeypatch.setattr(cost, "others_noise", lambda mechanism, others: no_noise())
    monkeypatch.setattr(cost, "quadratic_renyi", lambda table, noise, alpha: 2e-3 * alpha)
    run = _release(delta=delta, rounds=rounds, clip_norm=0.5)
    square = geometry.squared_distance(TABLE, coordinates=1, clip_norm=0.5)
    each = [
        rdp_to_epsilon(
            rounds * rdp_public_sampling(square * 2e-3 * alpha, alpha, 1.0), alpha, delta
        )
        for alpha in cost._ORDERS
    ]
    assert cost._renyi_l2(run) == min(each)
    for words in ({"delta": 0.0}, {"sampling": "poisson"}, {"sampling": "without_replacement"}):
        changed = {
            "delta": delta,
            "rounds": rounds,
            "clip_norm": 0.5,
            "sampling_rate": 0.5,
            **words,
        }
        assert cost._renyi_l2(_release(**changed)) == math.inf


@pytest.mark.parametrize("sampling", ["public", "without_replacement", "poisson"])
@pytest.mark.parametrize("rate", [1.0, 0.5, 1e-3])
def test_renyi_bounds_count_the_noise_of_those_alone_who_surely_take_part(
    monkeypatch: pytest.MonkeyPatch, sampling: str, rate: float
) -> None:
    # Of 29 others, 4 of them corrupted, nobody is certain to come where each decides by chance.
    by_chance = sampling == "poisson" and rate < 1
    certain = 0 if by_chance else 25
    counted: list[int] = []

    def noise_of(mechanism: Mechanism, others: int) -> NoiseMixture:
        counted.append(others)
        return no_noise()

    monkeypatch.setattr(cost, "others_noise", noise_of)
    monkeypatch.setattr(tables, "others_noise", noise_of)
    monkeypatch.setattr(cost, "_composed", lambda run: math.inf)
    words = {"sampling": sampling, "sampling_rate": rate, "clip_norm": 0.5, "corrupted": 4}
    run = _release(**words)
    assert cost.all_others_take_part(run) is not by_chance
    cost._renyi_l2(run)
    scheme = tables.TableScheme(mechanism=TABLE, size=1, clients=30, clip_norm=0.5)
    del words["clip_norm"]
    account(_release(mechanism=scheme, **words))
    assert max(counted, default=0) <= certain
    if rate == 1:
        assert set(counted) == {25}


def test_pure_losses_of_rounds_are_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    single = 0.3
    monkeypatch.setattr(cost, "pure_epsilon_l2", lambda table, **words: single)
    for rounds in range(1, 80):
        exact = rounds * Fraction(single)
        ours = Fraction(cost._pure_l2(_release(rounds=rounds, clip_norm=0.3, delta=0.0)))
        assert exact <= ours <= exact * Fraction(1 + FEW)


# Cells, cases, blankets -----------------------------------------------------------------------------------------------


def _binomial(trials: int, chance: Fraction, count: int) -> Fraction:
    return math.comb(trials, count) * chance**count * (1 - chance) ** (trials - count)


@pytest.mark.parametrize("chance", [Fraction(1, 2), Fraction(1, 16), Fraction(15, 16)])
def test_masses_of_intervals_far_into_both_tails(chance: Fraction) -> None:
    edges = np.unique(np.append(np.arange(0, 60, 3), np.arange(20, 30)))
    trials = np.repeat([60, 58], edges.size)
    twice, last = np.append(edges, edges), np.append(np.diff(trials) != 0, True)
    ours = counts._interval_mass(trials, float(chance), twice, last).reshape(2, -1)
    for count, masses in zip((60, 58), ours.tolist(), strict=True):
        for low, end, mass in zip(
            edges.tolist(), [*edges[1:].tolist(), count + 1], masses, strict=True
        ):
            exact = sum(_binomial(count, chance, drawn) for drawn in range(low, end))
            assert exact <= Fraction(mass) <= exact * Fraction(1 + 1e-8)


def test_cells_of_few_draws_are_all_ways_to_draw() -> None:
    masses = np.array([0.5, 0.3125])
    found = counts.multinomial_cells(4, masses, np.array([1.0, 1.0]), budget=10**4, tail=1e-12)
    ours = {
        tuple(count): mass
        for count, mass in zip(found.counts.tolist(), found.probability.tolist(), strict=True)
    }
    rest = 1 - masses.sum()
    exact = {
        (a, b): math.factorial(4) / math.prod(map(math.factorial, (a, b, 4 - a - b)))
        * masses[0]**a * masses[1]**b * rest**(4 - a - b)
        for a in range(5) for b in range(5 - a)
    }  # fmt: skip
    assert ours.keys() == exact.keys()
    for count, mass in exact.items():
        assert mass <= ours[count] * (1 + FEW)
        assert ours[count] <= mass * (1 + MANY)


@pytest.mark.parametrize("boxes", [0, 2])
def test_components_on_a_ladder_keep_their_draws(boxes: int) -> None:
    found = counts._bundled(10**4, np.full(5, 0.15), np.ones(5), boxes, 48, 1e-9)
    kept = found.probability @ found.counts / 1500
    assert (kept[boxes:] > 0.9).all()
    assert (kept[:boxes] > 0.7).all()


def test_more_than_a_processor_cache_of_places() -> None:
    summed = sum_pmf([np.array([0.5, 0.5])], [[10**9]])
    assert summed.pmf.shape[1] > convolution._MEMORY
    assert summed.pmf.max() == pytest.approx(
        math.sqrt(2 / math.pi / 10**9), rel=1e-3
    )  # of 10**9 draws' own allowances


def test_transforms_hold_every_window_and_tilts_stay_moderate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows: list[Any] = []
    families: list[tuple[Any, int]] = []
    errors: list[tuple[Any, int, Any]] = []
    edges, spectrum, powers = convolution._edges, convolution._spectrum, convolution._powers

    def _edges(*given: Any) -> Any:
        windows.append(edges(*given))
        return windows[-1]

    def _spectrum(family: Any, length: int, powers: Any) -> Any:
        families.append((family, length))
        return spectrum(family, length, powers)

    def _powers(*given: Any) -> Any:
        found = powers(*given)
        errors.append((given[1], given[3], found[1]))
        return found

    monkeypatch.setattr(convolution, "_edges", _edges)
    monkeypatch.setattr(convolution, "_spectrum", _spectrum)
    monkeypatch.setattr(convolution, "_powers", _powers)
    coin, wide = np.array([0.9, 0.1]), np.full(41, 1 / 41)
    for shapes, draws in (
        ([coin], [[50], [3]]),
        ([coin, wide], [[50, 0]]),
        ([coin, wide], [[40, 10], [0, 0]]),
        ([coin], [[2000]]),
    ):
        for found in (windows, families, errors):
            found.clear()
        summed = sum_pmf(shapes, draws, tail=1e-3)
        widest = max(int((b - a).max()) + 1 for a, b in windows[1:])
        for family, length in families:
            assert length >= max(widest, summed.pmf.shape[1])
            assert abs(family.theta) * (max(shape.size for shape in shapes) - 1) <= 60 * (1 + FEW)
            assert abs(family.theta) * summed.pmf.shape[1] <= 300 * (1 + FEW)
        # Of no draws at all the transform is 1: only its rotation and the way back can err.
        for numbers, length, error in errors:
            silent = numbers.sum(axis=1) == 0
            assert (error[silent] >= (24 + 8 * math.log2(length)) * UNIT).all()
        # Of each draw the tilted weight and the cumulant err by m + 12 UNIT, doubled.
        by_draw = [2 * (np.count_nonzero(shape) + 12) for shape in shapes]
        assert summed.error >= 2 * max(np.array(draws) @ np.array(by_draw)) * UNIT


def test_windows_are_wider_by_what_logarithms_may_err(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = sum_pmf([np.array([0.5, 0.5])], [[5000]])
    monkeypatch.setattr(
        convolution, "_cumulant_error", lambda shapes, counts: np.full(len(counts), 20.0)
    )
    wide = sum_pmf([np.array([0.5, 0.5])], [[5000]])
    # The tail at the ends is smaller by e**-40: from 9.6 to 13.2 deviations, of 35 each.
    assert wide.start[0] + 100 < narrow.start[0]
    assert wide.pmf.shape[1] > narrow.pmf.shape[1] + 200


@pytest.mark.parametrize("length", [64, 1000, 26244])
def test_transforms_term_by_term_err_by_less_than_they_say(length: int) -> None:
    """Least where angles are small, which is where the powers of many draws are."""
    shape = np.random.default_rng(length).dirichlet(np.ones(7))
    values, errors = convolution._transform(shape, convolution._roots(length))
    assert errors[0] == (7 + 6) * UNIT
    frequencies = np.unique(np.geomspace(1, length // 2, 40).astype(int))
    with mpmath.workdps(40):
        for frequency in [0, *frequencies.tolist()]:
            turn = -2j * mpmath.pi * frequency / length
            exact = mpmath.fsum(
                mpmath.mpf(float(weight)) * mpmath.exp(turn * place)
                for place, weight in enumerate(shape)
            )
            value = complex(values[frequency])
            assert abs(mpmath.mpc(value) - exact) <= float(errors[frequency])


def test_shapes_that_wrap_around_very_often() -> None:
    length, times = 512, 300
    shape = np.append(
        np.full(length, 1 / length), np.full(length * (times - 1), 0.999 * UNIT / length)
    )
    values, errors = convolution._transform(shape, convolution._roots(length))
    # Every later turn is lost beside the first one.
    exact = length * (Fraction(1 / length) + (times - 1) * Fraction(0.999 * UNIT / length))
    assert abs(Fraction(float(values[0].real)) - exact) <= Fraction(float(errors[0]))


def test_cases_are_divided_until_they_are_data_sets() -> None:
    root = find_groups(BITS)
    assert root is not None
    groups = tuple(root.all_groups())
    start = np.where(np.arange(len(groups)) == 0, 20, 0)
    divided = division(groups, start)
    node, cuts, parts = divided.node, divided.cuts, divided.cases
    assert (node, cuts[0], cuts[-1], len(parts)) == (0, 0, 21, 4)
    for (low, above), part in zip(pairwise(cuts), parts, strict=True):
        assert int(part.sum()) == 20
        assert int(part[0]) == above - 1 - low
    singles = [i for i, group in enumerate(groups) if not group.parts]
    assert division(groups, np.where(np.arange(len(groups)) == singles[0], 20, 0)).cases == []


def test_cases_of_inputs_are_used_where_they_are_better() -> None:
    bound = central_epsilon(BITS, clients=40, delta=1e-4)
    cases = cover(BITS, others=39, delta=1e-4, limit=pure_epsilon(BITS))
    assert cases is not None
    assert (bound.method, bound.epsilon) == ("cases of inputs", cases.epsilon)


def test_curves_at_no_delta_are_those_at_a_tiny_one() -> None:
    none, tiny = (dominating_profile(BITS, clients=4, delta=delta) for delta in (0.0, 1e-25))
    assert none.losses.tolist() == tiny.losses.tolist()
    assert none.masses.tolist() == tiny.masses.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_groups_keep_the_most_variance_of_what_is_tried(seed: int) -> None:
    rows = random_rows(np.random.default_rng(seed), rows=2, levels=4)
    best = variance_blanket(rows)
    for tried in (common_blanket(rows), solve_dyads(rows, range(1, 4))):
        if tried is not None and not tried.leaks:
            assert best is not None
            assert best.variance >= tried.variance


def test_components_have_no_negative_entries() -> None:
    with pytest.raises(ParameterError, match="shape"):
        Component(shape=np.array([3, -1]), shifts=np.array([[1]]))
    with pytest.raises(ParameterError, match="shifts"):
        Component(shape=np.array([1, 1]), shifts=np.array([[2, -1], [0, 1]]))


def test_decoding_errors_of_levels_are_rounded_up() -> None:
    generator = np.random.default_rng(0)
    for step in generator.uniform(0.01, 1, 60).tolist():
        # Beside a first level so near to 0 the error has more digits than a float.
        levels = np.append(generator.uniform(1e-21, 1e-20), step * np.arange(1, 8))
        lattice = find_lattice(levels)
        steps = [Fraction(lattice.offset) + Fraction(lattice.step) * i for i in range(8)]
        exact = max(
            abs(Fraction(level) - place)
            for level, place in zip(levels.tolist(), steps, strict=True)
        )
        assert exact <= Fraction(lattice.decode_error) <= exact * Fraction(1 + FEW)


# Distances of inputs --------------------------------------------------------------------------------------------------


def test_least_distances_of_segments() -> None:
    # From an input in a segment beside knot k to one in segment j, by hand.
    expected = [[0, 0, 2, 6], [0, 0, 0, 4], [0, 0, 0, 0], [2, 0, 0, 0], [6, 4, 0, 0]]
    ours = geometry._least_distances(np.array([0.0, 1.0, 3.0, 7.0, 9.0]))
    np.testing.assert_allclose(ours, expected, rtol=0, atol=FEW)
    assert (ours <= np.array(expected)).all()


def test_knots_that_repeat_a_row_are_one_knot() -> None:
    rows = np.array([[2**30, 3 * 2**30], [2**31, 2**31], [2**31, 2**31], [3 * 2**30, 2**30]])
    table = Mechanism(knots=np.array([0.0, 1.0, 1.0, 2.0]), levels=np.arange(2.0), weights=rows)
    knots, kept = geometry._segments(table)
    assert knots.tolist() == [0.0, 1.0, 2.0]
    assert kept.tolist() == (rows[[0, 1, 3]] / TOTAL).tolist()


def test_a_level_that_one_row_lacks_has_no_finite_quotient() -> None:
    row, slope, distances = np.array([0.0, 1.0]), np.array([0.5, -0.5]), np.linspace(0, 1, 5)
    assert (
        geometry.pair_quotients(no_noise(), row, slope, distances, 2.0).tolist() == [math.inf] * 4
    )


def test_largest_values_of_windows() -> None:
    generator = np.random.default_rng(1)
    values = generator.random((40, 3))
    first = generator.integers(0, 39, 40)
    last = np.minimum(first + generator.integers(1, 41, 40), 40)
    ours = geometry._window_maxima(values, first, last)
    for row, start, end in zip(ours, first, last, strict=True):
        assert row.tolist() == values[start:end].max(axis=0).tolist()
    assert (
        geometry._window_maxima(values[:4], np.arange(4), np.arange(1, 5)).tolist()
        == values[:4].tolist()
    )


def test_rows_between_knots_and_the_whole_range_of_distances() -> None:
    mechanism = random_table(3, rows=4, levels=3)
    places = np.linspace(mechanism.lower, mechanism.upper, 12)[1:-1]
    slow = np.stack(
        [np.interp(places, mechanism.knots, column) for column in mechanism.probabilities.T], axis=1
    )
    np.testing.assert_allclose(geometry._between(mechanism, places), slow, rtol=FEW)
    distances, losses = geometry.loss_profile(mechanism)
    assert distances.tolist() == [
        (mechanism.upper - mechanism.lower) * j / 64 for j in range(1, 65)
    ]
    assert mechanism.epsilon <= losses[-1] * (1 + 4 * UNIT)
    # Here a knot and a distance add up to the last knot exactly.
    assert geometry.loss_profile(TABLE)[1][-1] == pytest.approx(math.log(3), rel=FEW)


@pytest.mark.parametrize("seed", range(3))
def test_compiled_loops_do_what_numpy_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.dirichlet(np.ones(6), size=4) * (generator.random((4, 6)) > 0.2)
    pmf = generator.dirichlet(np.ones(50), size=3)
    noise = NoiseMixture(probability=np.array([0.5, 0.3, 0.2]), pmf=pmf, outside=1e-9, error=0.0)
    monkeypatch.setattr(noises, "_COMPILED", 10**9)
    plain = noises.spread(pmf, rows[0]), noises.screen(noise, rows, 0.1)
    monkeypatch.setattr(noises, "_COMPILED", 0)
    assert np.array_equal(noises.spread(pmf, rows[0]), plain[0])
    # Sums of 55 terms in another order.
    assert noises.screen(noise, rows, 0.1) == pytest.approx(plain[1], rel=64 * UNIT)
