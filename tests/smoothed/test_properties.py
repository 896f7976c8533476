"""Composition, post- and pre-processing against exact output distributions; hull reduction; published bounds."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction
from functools import partial

import mpmath
import pytest

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import (
    compose,
    expected,
    guarantee,
    hull_vertices,
    likely_ratio_probability,
    noisy_epsilon,
    post_process,
    pre_process,
    profile,
    published_equation2_probability,
    published_noise_ratio,
    published_remark8,
    published_table1_noise_epsilon,
    published_theorem5_worst_case,
)
from reference import smoothed_exact as exact
from tolerances import FEW

ODDS = Fraction(3, 2)


def _guarantee(
    n: int = 8, sampled: int = 6, vertices=(Fraction(1, 2), Fraction(1, 3)), ratio: Fraction = ODDS
):
    return guarantee(
        expected(n=n, vertices=vertices, sampled=sampled, ratio=ratio), vertices=vertices
    )


def _product(one: exact.Distribution, two: exact.Distribution) -> exact.Distribution:
    return {(*a, *b): p * q for (a, p), (b, q) in itertools.product(one.items(), two.items())}


def test_composition_bounds_two_independent_samples() -> None:
    n, first, second = 8, 2, 3
    one, two = _guarantee(sampled=first), _guarantee(sampled=second)
    both = compose([one, two], randomness="independent")
    assert both.epsilon >= one.epsilon + two.epsilon
    assert 10**both.log10_delta >= 10**one.log10_delta + 10**two.log10_delta
    assert both.log10_delta < 0.0

    def law(counts: tuple[int, ...]) -> exact.Distribution:
        return _product(
            exact.without_replacement(counts, first), exact.without_replacement(counts, second)
        )

    values = {h: exact.delta(h, ODDS * ODDS, law) for h in exact.histograms(n, 2)}
    for k in range(n + 1):
        mixed = [(k, (Fraction(1, 2), Fraction(1, 2))), (n - k, (Fraction(1, 3), Fraction(2, 3)))]
        assert exact.expected(n, mixed, values) <= 10**both.log10_delta


def test_sums_of_a_composition_are_rounded_up_and_no_delta_exceeds_one() -> None:
    one, rng = _guarantee(), random.Random(6)
    with mpmath.workdps(50):
        for _ in range(200):
            parts = [
                replace(one, epsilon=rng.uniform(0.1, 3), log10_delta=rng.uniform(-40, -1))
                for _ in range(rng.randint(2, 6))
            ]
            both = compose(parts, randomness="independent")
            epsilon = sum(Fraction(part.epsilon) for part in parts)
            assert epsilon <= Fraction(both.epsilon) <= epsilon * (1 + Fraction(FEW))
            deltas = (mpmath.mpf(10) ** mpmath.mpf(part.log10_delta) for part in parts)
            log10_delta = mpmath.log10(mpmath.fsum(deltas))
            assert log10_delta <= both.log10_delta <= log10_delta * (1 - FEW)
    large = replace(one, log10_delta=-0.1)
    assert compose([large, large], randomness="independent").log10_delta == 0.0


def test_composition_of_the_same_coins_would_be_wrong_and_is_refused() -> None:
    # Publishing one sample twice reveals no more, but two halves of one permutation reveal everything.
    one = _guarantee()
    with pytest.raises(ParameterError, match="independent"):
        compose([one, one], randomness="shared")
    n, half = 8, 4
    law = partial(exact.without_replacement, draws=half)

    def halves(counts: tuple[int, ...]) -> exact.Distribution:
        return {
            (*h, *(c - x for c, x in zip(counts, h, strict=True))): p
            for h, p in law(counts).items()
        }

    assert exact.delta((4, 4), ODDS * ODDS, halves) == 1
    single = _guarantee(n=n, sampled=half)
    assert 10 ** compose([single, single], randomness="independent").log10_delta < 1


def test_composition_needs_the_same_database_model() -> None:
    one = _guarantee()
    for other in (_guarantee(n=9), _guarantee(vertices=(Fraction(1, 2), Fraction(1, 4)))):
        with pytest.raises(ParameterError, match="same"):
            compose([one, other], randomness="independent")
    with pytest.raises(ParameterError, match="at least one"):
        compose([], randomness="independent")
    assert compose([one], randomness="independent").log10_delta >= one.log10_delta


def test_post_processing_keeps_the_parameters_and_is_recorded() -> None:
    one = _guarantee()
    winner = post_process(one, name="the winner")
    assert (winner.epsilon, winner.log10_delta) == (one.epsilon, one.log10_delta)
    assert "the winner" in winner.basis[-1]
    assert winner.neighboring == "replace_one"

    def law(counts: tuple[int, ...]) -> exact.Distribution:
        result: exact.Distribution = {}
        for h, p in exact.without_replacement(counts, 6).items():
            key = (int(h[0] > h[1]),)
            result[key] = result.get(key, Fraction(0)) + p
        return result

    for counts in exact.histograms(8, 2):
        assert exact.delta(counts, ODDS, law) <= exact.delta(
            counts, ODDS, partial(exact.without_replacement, draws=6)
        )


def test_pre_processing_maps_raw_types_to_features() -> None:
    features = _guarantee(n=6, sampled=5, vertices=(Fraction(1, 2), Fraction(1, 4)))
    raw = (
        (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)),
        (Fraction(1, 8), Fraction(1, 8), Fraction(3, 4)),
    )
    result = pre_process(features, feature_of_type=(0, 0, 1), vertices=raw)
    assert result.log10_delta == features.log10_delta
    assert set(result.distributions) == set(raw)

    def law(counts: tuple[int, ...]) -> exact.Distribution:
        return exact.without_replacement((counts[0] + counts[1], counts[2]), 5)

    values = {h: exact.delta(h, ODDS, law) for h in exact.histograms(6, 3)}
    for k in range(7):
        assert exact.expected(6, [(k, raw[0]), (6 - k, raw[1])], values) <= 10**result.log10_delta
    with pytest.raises(ParameterError, match="outside"):
        pre_process(features, feature_of_type=(0, 1, 1), vertices=raw)
    with pytest.raises(ParameterError, match="feature index"):
        pre_process(features, feature_of_type=(0, 2, 1), vertices=raw)


def test_a_guarantee_belongs_to_its_distributions() -> None:
    result = expected(n=8, vertices=(0.5,), sampled=6, epsilon=1.0)
    with pytest.raises(ParameterError, match="not the distributions"):
        guarantee(result, vertices=(0.4,))


def test_hull_reduction_drops_inner_points_only() -> None:
    rng = random.Random(4)
    corners = [(Fraction(1), Fraction(0), Fraction(0)), (Fraction(0), Fraction(1), Fraction(0))]
    corners.append((Fraction(1, 5), Fraction(1, 5), Fraction(3, 5)))
    inner = []
    for _ in range(20):
        weights = [Fraction(rng.randint(1, 30)) for _ in corners]
        total = sum(weights)
        inner.append(
            tuple(
                sum(w * c[i] for w, c in zip(weights, corners, strict=True)) / total
                for i in range(3)
            )
        )
    points = [*inner[:10], *corners, *inner[10:], corners[0]]
    assert set(hull_vertices(points)) == set(corners)
    edge = (Fraction(1, 2), Fraction(1, 2), Fraction(0))
    assert edge not in hull_vertices([*corners, edge])
    # Outside by a hair that no float shows is a corner: the decision is exact.
    hair = Fraction(1, 10**30)
    outside = (Fraction(3, 5) + hair, Fraction(1, 10) - hair, Fraction(3, 10))
    assert outside in hull_vertices([*corners, outside])
    shares = [(p, 1 - p) for p in (Fraction(1, 2), Fraction(1, 5), Fraction(4, 5))]
    assert hull_vertices(shares) == (shares[1], shares[2])


def test_hull_reduction_does_not_change_smoothed_delta() -> None:
    how = {"n": 9, "sampled": 7, "ratio": ODDS}
    ends = expected(vertices=(Fraction(1, 4), Fraction(2, 3)), **how)
    more = expected(
        vertices=(Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), Fraction(2, 3)), **how
    )
    assert ends.log10_delta == more.log10_delta


def test_remark_8_is_false_at_small_sampling_rates() -> None:
    # Section 4.5: n = 200, T = 2, epsilon = .02005, f = 1/2.
    bound = published_remark8(200, sampling_rate="1/100", smallest_chance="1/2", epsilon=0.02005)
    truth = expected(n=200, vertices=(0.5,), sampled=2, epsilon=0.02005)
    assert round(bound, 2) == -5.12
    assert round(truth.log10_delta, 2) == -3.53
    assert truth.log10_lower > bound


def test_remark_8_claims_nothing_at_the_elections_rate() -> None:
    with pytest.raises(ParameterError, match="needs epsilon above"):
        published_remark8(10**8, sampling_rate="0.998", smallest_chance="0.0554", epsilon=2.0)
    weak = published_remark8(10**8, sampling_rate="0.998", smallest_chance="0.0554", epsilon=7.0)
    assert weak > expected(n=10**8, vertices=(0.0554,), loss_rate=0.002, epsilon=7.0).log10_delta


def test_theorem_5s_worst_case_is_false_from_three_draws_on() -> None:
    for n in (50, 1000):
        exact_values = [1 - (1 - Fraction(1, n)) ** draws for draws in (1, 2, 3, 4)]
        claimed = [Fraction(draws, n + 1) for draws in (1, 2, 3, 4)]
        assert [value >= claim for value, claim in zip(exact_values, claimed, strict=True)] == [
            True,
            True,
            False,
            False,
        ]
        assert math.isclose(published_theorem5_worst_case(n, 3), 3 / (n + 1), rel_tol=FEW)


def test_equation_2_is_false_and_its_correction_holds() -> None:
    # P puts mass on outcomes that Q makes 2 E times likelier, and on outcomes that Q never shows.
    rng = random.Random(9)
    broken = 0
    for _ in range(4000):
        ratio = Fraction(rng.randint(100, 300), 100)
        size = rng.randint(2, 4)
        p = [Fraction(rng.randint(0, 12)) for _ in range(size)]
        q = [Fraction(rng.randint(0, 12)) for _ in range(size)]
        if not sum(p) or not sum(q):
            continue
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        left = {(i,): x for i, x in enumerate(p)}
        right = {(i,): x for i, x in enumerate(q)}
        delta = max(exact.divergence(left, right, ratio), exact.divergence(right, left, ratio))
        likely = sum(
            a for a, b in zip(p, q, strict=True) if b <= 2 * ratio * a and a <= 2 * ratio * b
        )
        assert likely >= likely_ratio_probability(float(delta), epsilon=math.log(ratio)) - FEW
        broken += float(likely) < published_equation2_probability(float(delta)) - FEW
    assert broken > 0


def test_table_1s_loss_of_the_noisy_histogram_is_false_at_small_rates() -> None:
    how = {"sampled": 1, "noise_ratio": published_noise_ratio(8.0)}
    published = published_table1_noise_epsilon(8.0, sampling_rate="1/10")
    assert published == pytest.approx(0.8, rel=FEW)
    assert profile((1, 9), epsilon=published, **how).log10_delta > -1.5
    assert (
        profile((1, 9), epsilon=noisy_epsilon(8.0, sampling_rate="1/10"), **how).log10_delta
        == -math.inf
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"smallest_chance": 2}, "smallest_chance"),
        ({"n": -1}, "at least 0"),
    ],
)
def test_published_bounds_check_their_input(change: dict, message: str) -> None:
    arguments = {"n": 100, "sampling_rate": 0.01, "smallest_chance": 0.5, "epsilon": 1.0, **change}
    with pytest.raises(ParameterError) as caught:
        published_remark8(arguments.pop("n"), **arguments)
    assert message in str(caught.value)
