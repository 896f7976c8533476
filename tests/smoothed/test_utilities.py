"""The adversary's utility: against the definition in exact fractions, 60 digits, and the published numbers."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from functools import partial

import mpmath as mp
import pytest

from mezzotint.core.errors import ParameterError
from mezzotint.datasets import national_elections
from mezzotint.smoothed import profile, utility
from reference import smoothed_exact as exact, smoothed_mpmath as slow
from tolerances import FEW, MANY


def _case(rng: random.Random):
    types = rng.choice([2, 2, 3, 4])
    records = rng.randint(2, {2: 18, 3: 8, 4: 5}[types])
    cuts = sorted(rng.randint(0, records) for _ in range(types - 1))
    counts = tuple(b - a for a, b in zip([0, *cuts], [*cuts, records], strict=True))
    draws = rng.randint(1, records)
    kind = rng.choice(["without", "with", "poisson"])
    if kind == "without":
        return counts, partial(exact.without_replacement, draws=draws), {"sampled": draws}
    if kind == "with":
        draws = min(draws + 2, 7)
        return (
            counts,
            partial(exact.with_replacement, draws=draws),
            {"sampled": draws, "replacement": True},
        )
    rate = Fraction(rng.randint(1, 19), 20)
    return counts, partial(exact.poisson, rate=rate), {"loss_rate": 1 - rate, "poisson": True}


def test_equals_the_definition_in_exact_fractions() -> None:
    rng = random.Random("utility")
    certified = 0
    for _ in range(350):
        counts, law, how = _case(rng)
        threshold = rng.choice([Fraction(1, 2), Fraction(51, 100), Fraction(3, 5), Fraction(9, 10)])
        truth = exact.utility(counts, threshold, law)
        result = utility(counts, threshold=threshold, **how)
        where = (counts, threshold, how, result)
        # The twin's own digits.
        assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= slow.number(truth) * (
            1 - mp.mpf(10) ** -15
        ), where
        if result.status == "closed":
            certified += 1
            if truth == 0:
                assert 10**result.log10 < 10 * FEW, where
            else:
                assert abs(Fraction(10**result.log10) / truth - 1) < Fraction(1, 10**11), where
    assert certified > 150


@pytest.mark.parametrize("odds", [10**9, 10**12, 10**17, 10**30, 10**200])
def test_thresholds_next_to_one_are_not_rounded_to_it(odds: int) -> None:
    """Three and more types too, where only guesses that are next to certain count, also where one is exactly enough."""
    rng = random.Random(odds)
    seen = 0
    for _ in range(60):
        counts, law, how = _case(rng)
        threshold = Fraction(odds, odds + 1)
        truth, result = (
            exact.utility(counts, threshold, law),
            utility(counts, threshold=threshold, **how),
        )
        seen += truth > 0
        # The twin's own digits, and what is said of closed forms above.
        assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= slow.number(truth) * (
            1 - mp.mpf(10) ** -15
        ), (counts, how)
        if result.status == "closed" and truth > 0:
            # A hundred times what probabilities are good to.
            assert result.log10_upper == pytest.approx(
                float(mp.log10(slow.number(truth))), abs=1e-9
            ), (counts, how)
    assert seen > 20


def test_a_guess_exactly_at_the_threshold_counts_nothing() -> None:
    found = utility((0, 2), threshold=Fraction(2, 3), sampled=1, replacement=True)
    assert found.log10 == pytest.approx(math.log10(0.5), rel=FEW)
    assert math.log10(0.5) <= found.log10_upper <= math.log10(0.5) + FEW


# Section 4.4.
@pytest.mark.parametrize(
    ("year", "printed"), [("1920", -7.82), ("1964", -16.00), ("2000", -22.33), ("2020", -31.95)]
)
def test_figure_1_to_the_printed_digits(year: str, printed: float) -> None:
    election = next(one for one in national_elections() if one.name == year).top(2)
    result = utility(election.counts, loss_rate=0.002, threshold=0.51)
    assert round(result.log10, 2) == printed
    assert result.status == "closed"


def test_relative_error_on_a_real_election() -> None:
    counts, sampled = (317323, 18586), 335000  # District of Columbia 2020
    truth = slow.utility_two_types(counts, sampled, mp.mpf(51) / 100, window=200)
    result = utility(counts, sampled=sampled, threshold=0.51)
    assert abs(mp.mpf(10) ** mp.mpf(result.log10) / truth - 1) < MANY


@pytest.mark.parametrize("ratio", [Fraction(51, 49), Fraction(3, 2), Fraction(4)])
def test_two_sided_identity_of_two_types(ratio: Fraction) -> None:
    # u(x, x') + u(x', x) = d(x, x') + d(x', x) at t = E / (1 + E), so the factor 3 of Lemma 10 can be 2.
    threshold = ratio / (1 + ratio)
    for a, b, draws in ((4, 7, 6), (2, 12, 13), (6, 6, 3)):
        law = partial(exact.without_replacement, draws=draws)
        left, right = law((a, b)), law((a - 1, b + 1))
        divergences = exact.divergence(left, right, ratio) + exact.divergence(right, left, ratio)
        utilities = Fraction(0)
        for outcome in left.keys() | right.keys():
            p, q = left.get(outcome, Fraction(0)), right.get(outcome, Fraction(0))
            utilities += (
                (p + q) * max(Fraction(0), max(p, q) / (p + q) - threshold) / (1 - threshold)
            )
        assert utilities == divergences


def test_utility_is_at_most_twice_delta_and_at_least_half() -> None:
    rng = random.Random(8)
    for _ in range(100):
        counts = (rng.randint(2, 5000), rng.randint(2, 5000))
        draws = rng.randint(1, sum(counts) - 1)
        delta = profile(counts, sampled=draws, ratio=Fraction(51, 49)).log10_delta
        gain = utility(counts, sampled=draws, threshold="51/100").log10
        if delta > -math.inf:
            assert delta - math.log10(2) - MANY <= gain <= delta + math.log10(2) + MANY


def test_nothing_lost_is_certainty() -> None:
    assert utility((5, 9), loss_rate=0, threshold=0.51).log10 == 0.0


@pytest.mark.parametrize("threshold", [0.49, 1, -1, "x", math.nan])
def test_bad_thresholds(threshold: float) -> None:
    with pytest.raises(ParameterError, match="threshold"):
        utility((5, 9), loss_rate=0.1, threshold=threshold)
