"""Smoothed delta: certified search against all splits, exact fractions, and the published numbers."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from laws.registry import judges
from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import asymptotic_rate, expected, profile
from mezzotint.smoothed.many_types import search
from mezzotint.smoothed.model import read_loss, read_sample, read_vertices
from mezzotint.smoothed.monte_carlo import summary
from reference import smoothed_exact as exact, smoothed_mpmath as slow
from strategies import examples
from tolerances import FEW, MANY, printed

# Section 4.4: DC has p = .0554, 0.2 % lost; epsilon .5, 1, 2, 7.
FIGURE_2 = {
    10**3: (-0.050, -0.050, -0.050, -0.050),
    10**4: (-0.495, -0.495, -0.495, -0.495),
    10**5: (-1.777, -2.722, -4.224, -4.950),
    10**6: (-6.813, -15.468, -31.797, -49.504),
    10**7: (-46.35, -130.66, -294.04, -493.17),
    10**8: (-428.71, -1269.28, -2903.56, -4917.48),
}
DC, NE3 = Fraction(554, 10_000), Fraction(22_863, 100_000)


@pytest.mark.parametrize(
    "n", [pytest.param(n, marks=pytest.mark.slow) if n == 10**8 else n for n in FIGURE_2]
)
def test_figure_2_left_to_the_printed_digits(n: int) -> None:
    digits = 3 if n < 10**7 else 2
    for epsilon, value in zip((0.5, 1.0, 2.0, 7.0), FIGURE_2[n], strict=True):
        one = expected(n=n, vertices=(DC,), loss_rate=0.002, epsilon=epsilon)
        assert abs(one.log10_delta - value) <= printed(digits)
        assert one.certified
        assert one.status == "closed"
        # All districts: the hull runs from NE-3 to DC, and all votes from DC are the worst.
        both = expected(n=n, vertices=(1 - DC, NE3, "1/2"), loss_rate=0.002, epsilon=epsilon)
        assert both.certified
        assert both.split == (n, 0)
        assert abs(both.log10_delta - one.log10_delta) < MANY
        assert both.log10_upper - both.log10_lower < MANY


def test_below_500_votes_nothing_is_lost() -> None:
    result = expected(n=499, vertices=(DC,), loss_rate=0.002, epsilon=1.0)
    assert result.log10_delta == result.log10_upper == result.log10_lower == 0.0
    assert "No record is lost" in result.reason


def _random_instance(rng: random.Random):
    n = rng.choice([rng.randint(4, 40), rng.randint(20, 90)])
    lost = rng.randint(1, min(n - 1, rng.choice([2, 5, 20, n - 1])))
    ratio = Fraction(rng.randint(1001, rng.choice([1100, 2000, 8000])), 1000)
    low = Fraction(rng.randint(0, 999), 1000)
    high = min(Fraction(1), low + Fraction(rng.randint(1, rng.choice([10, 100, 1000])), 1000))
    return (
        read_sample(n, loss_rate=None, sampled=n - lost),
        read_loss(epsilon=None, ratio=ratio),
        (low, high),
    )


def test_certified_search_equals_all_splits_on_2000_instances_of_the_certificate_branch() -> None:
    rng = random.Random("certificate")
    closed, inner, tried = 0, 0, 0
    while closed < 2000:
        sample, loss, ends = _random_instance(rng)
        tried += 1
        found = search(sample, loss, ends, "certificate")
        every = search(sample, loss, ends, "all_splits")
        where = (sample, loss.ratio, ends, found, every)
        # Sound in every case, closed or not, up to the twin's own roundings: logarithms of up to 50.
        assert every.log_value <= found.log_upper + 10 * FEW, where
        assert found.log_lower <= every.log_value + 10 * FEW, where
        if found.status == "closed" and found.checked <= sample.records:
            closed += 1
            assert abs(found.log_value - every.log_value) < MANY, where
            assert found.log_upper - found.log_value < MANY, where
            inner += 0 < every.split[0] < sample.records
    assert tried < 2300
    assert inner > 0


def test_all_splits_equal_exact_fractions() -> None:
    rng = random.Random("fractions")
    for _ in range(12):
        n = rng.randint(4, 12)
        sampled = rng.randint(1, n - 1)
        ratio = Fraction(rng.randint(101, 300), 100)
        p, q = Fraction(rng.randint(0, 20), 20), Fraction(rng.randint(0, 20), 20)
        law = partial(exact.without_replacement, draws=sampled)
        values = {h: exact.delta(h, ratio, law) for h in exact.histograms(n, 2)}
        truth = max(
            exact.expected(n, [(k, (p, 1 - p)), (n - k, (q, 1 - q))], values) for k in range(n + 1)
        )
        result = expected(n=n, vertices=(p, q), sampled=sampled, ratio=ratio)
        assert abs(Fraction(10**result.log10_delta) / truth - 1) < Fraction(1, 10**11)
        assert (
            mp.mpf(10) ** mp.mpf(result.log10_lower)
            <= slow.number(truth)
            <= mp.mpf(10) ** mp.mpf(result.log10_upper)
        )


def test_an_inner_split_can_be_the_worst() -> None:
    # Section 4.2: lattice bumps break the V shape of delta, and 22 of 33 beat both ends.
    how = {"n": 33, "sampled": 31, "ratio": Fraction(1012, 1000)}
    result = expected(vertices=(Fraction(52, 100), Fraction(46, 100)), **how)
    assert result.split == (22, 11)
    assert round(10**result.log10_delta, 7) == 0.4743439
    ends = [round(10 ** expected(vertices=(p,), **how).log10_delta, 7) for p in (0.46, 0.52)]
    assert ends == [0.4741284, 0.4742661]


def test_against_60_digits_at_ten_thousand_records() -> None:
    # Every count with weight, each delta from the four pairs: slow, so few counts matter here (R = 20, p = .002).
    n, sampled, p, ratio = 10_000, 9_980, Fraction(2, 1000), Fraction(3, 2)
    truth = mp.mpf(0)
    for j in range(90):
        weight = mp.exp(
            slow.log_choose(n, j)
            + j * mp.log(slow.number(p))
            + (n - j) * mp.log(slow.number(1 - p))
        )
        delta = slow.number(Fraction(sampled, n))
        if j > 1:
            delta = slow.delta_two_types((j, n - j), sampled, slow.number(ratio))
        truth += weight * delta
    result = expected(n=n, vertices=(p,), sampled=sampled, ratio=ratio)
    assert abs(mp.mpf(10) ** mp.mpf(result.log10_delta) / truth - 1) < MANY
    # The twin's own digits.
    assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= truth * (1 - mp.mpf(10) ** -30)


def test_rare_loss_has_a_closed_form() -> None:
    for n in (1000, 2000, 5000):
        lost = n - math.ceil(Fraction(998, 1000) * n)
        result = expected(n=n, vertices=(DC,), loss_rate=0.002, epsilon=7.0)
        # Only outcomes that lose no record of the rarer type count: (1 - p)^R - (1 - eta) (1 - p)^n.
        missed = mp.mpf(1) - mp.mpf(DC.numerator) / DC.denominator
        truth = mp.log10(missed**lost - mp.mpf(lost) / n * missed**n)
        assert abs(result.log10_delta - float(truth)) < MANY


def test_the_rate_is_approached() -> None:
    for epsilon in (0.5, 1.0, 2.0, 7.0):
        how = {"vertices": (DC, NE3), "loss_rate": Fraction(1, 500), "epsilon": epsilon}
        rate = asymptotic_rate(**how)
        gaps = [-expected(n=n, **how).log10_delta / n - rate for n in (10**6, 10**7, 10**8)]
        assert gaps[0] > gaps[1] > gaps[2] > 0.0
        assert gaps[2] < 1e-7  # the correction is of order log n / n


def test_ends_that_nearly_coincide_are_bracketed_soundly() -> None:
    how = {"loss_rate": 0.002, "epsilon": 0.04}
    result = expected(n=100_000, vertices=(0.4, 0.400001), **how)
    alone = expected(n=100_000, vertices=(0.4,), **how)
    assert result.log10_lower <= alone.log10_delta + MANY
    assert alone.log10_delta <= result.log10_upper + MANY
    assert result.status == ("closed" if result.certified else "bracketed")


def test_a_type_that_may_be_absent_is_the_worst_case() -> None:
    for vertices in ((0,), (1,), (0, 0.5), (0.5, 1)):
        result = expected(n=1000, vertices=vertices, sampled=900, epsilon=1.0)
        assert abs(result.log10_delta - math.log10(0.9)) < FEW
        assert result.log10_upper >= math.log10(0.9) - FEW


THREE = (
    (Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)),
    (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)),
)


@judges(
    "smoothed.many_types.histogram_deltas",
    "smoothed.many_types.log_rarest_bound",
    "smoothed.monte_carlo.monte_carlo",
    "smoothed.monte_carlo.summary",
)
@pytest.mark.parametrize("sampled", [3, 8])
def test_three_types_by_enumeration_bracket_and_sampling(sampled: int) -> None:
    n, ratio = 10, Fraction(3, 2)
    law = partial(exact.without_replacement, draws=sampled)
    values = {h: exact.delta(h, ratio, law) for h in exact.histograms(n, 3)}
    truth, split = max(
        (exact.expected(n, [(k, THREE[0]), (n - k, THREE[1])], values), k) for k in range(n + 1)
    )
    how = {"n": n, "vertices": THREE, "sampled": sampled, "ratio": ratio}
    result = expected(method="enumeration", **how)
    assert abs(Fraction(10**result.log10_delta) / truth - 1) < Fraction(1, 10**12)
    assert result.split == (split, n - split)
    assert result.certified
    bounds = expected(method="bracket", **how)
    assert bounds.status == "bracketed"
    assert 10**bounds.log10_lower <= truth * (1 + Fraction(1, 10**9))
    assert 10**bounds.log10_upper >= truth * (1 - Fraction(1, 10**12))
    draw = expected(method="monte_carlo", draws=2000, seed=5, **how)
    assert draw.status == "sampled"
    pure = exact.expected(n, [(draw.split[0], THREE[0]), (draw.split[1], THREE[1])], values)
    assert draw.confidence is not None
    # One interval of level 99 % at a fixed seed: false alarm 1 %, drawn once and for all.
    assert 10 ** draw.confidence[1] <= pure <= 10 ** draw.confidence[2]
    assert draw.log10_upper == bounds.log10_upper


def test_the_bracket_of_three_types_contains_the_estimate_at_many_records() -> None:
    how = {
        "n": 20_000,
        "vertices": [(0.48, 0.5, 0.02), (0.3, 0.6, 0.1)],
        "loss_rate": 0.01,
        "epsilon": 1.0,
    }
    bounds = expected(**how)
    assert bounds.method == "bracket"
    assert bounds.log10_upper - bounds.log10_lower < 0.5
    draw = expected(method="monte_carlo", draws=100, seed=1, **how)
    assert draw.confidence is not None
    assert (
        bounds.log10_lower - MANY
        <= draw.confidence[1]
        <= draw.confidence[2]
        <= bounds.log10_upper + MANY
    )


def test_a_point_mass_equals_the_profile() -> None:
    # Three certain types in equal numbers: the expectation is delta of one database.
    corners = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    how = {"sampled": 9, "ratio": Fraction(3, 2)}
    result = expected(n=12, vertices=corners, **how)
    worst = max(
        profile((a, b, 12 - a - b), **how).log10_delta for a in range(13) for b in range(13 - a)
    )
    assert abs(result.log10_delta - worst) < FEW


BAD = [
    ({"n": 0}, "at least 1"),
    ({"n": 2**53 + 2}, "2**53"),
    ({"n": -5}, "at least 1"),
    ({"vertices": ()}, "one or more"),
    ({"vertices": (1.5,)}, "[0, 1]"),
    ({"vertices": (-0.1, 0.5)}, "[0, 1]"),
    ({"vertices": ((0.5, 0.6),)}, "summing to 1"),
    ({"vertices": (("0.999999999", 0),)}, "summing to 1 exactly"),
    ({"vertices": ((0.999999999, 0.0),)}, "summing to 1 exactly"),
    ({"vertices": ((Fraction(1, 3), "0.6666666666666667"),)}, "summing to 1 exactly"),
    ({"vertices": ((1,),)}, "two or more types"),
    ({"vertices": ((0.5, 0.5), (0.2, 0.3, 0.5))}, "same number of types"),
    ({"vertices": (math.nan,)}, "number"),
    ({"loss_rate": 1.5}, "[0, 1)"),
    ({"epsilon": 0}, "above 0"),
    ({"draws": 50}, "is for method="),
    ({"seed": 0}, "is for method="),
    ({"method": "all_splits", "mechanism": "winner"}, "is for the histogram"),
    ({"method": "guess"}, "choose one of"),
    ({"method": "bracket"}, "choose one of"),
    ({"vertices": (0.3, 0.4), "n": 10**6, "method": "all_splits"}, "needs n <="),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_names_parameter_value_and_remedy(change: dict, message: str) -> None:
    given_arguments = {"n": 100, "vertices": (0.3,), "loss_rate": 0.1, "epsilon": 1.0, **change}
    with pytest.raises(ParameterError) as caught:
        expected(**given_arguments)
    assert message in str(caught.value)


@settings(max_examples=examples(60))
@given(
    weights=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12).filter(
        lambda row: sum(row) > 0.1
    )
)
def test_floats_are_completed_by_rounding_alone_and_types_of_chance_zero_stay_so(
    weights: list[float],
) -> None:
    """An impossible type given a chance of 1e-9 made delta .0823 of 5e9 records, where it is .5."""
    floats = [weight / sum(weights) for weight in weights]
    (distribution,) = read_vertices([floats])
    assert sum(distribution) == 1
    assert [chance == 0 for chance in distribution] == [value == 0 for value in floats]
    moved = [
        abs(chance - Fraction(repr(value)))
        for chance, value in zip(distribution, floats, strict=True)
    ]
    assert max(moved) <= len(floats) * Fraction(1, 2**52)
    assert sum(difference > 0 for difference in moved) <= 1


def test_rationals_are_taken_as_they_are() -> None:
    thirds = ("1/3", Fraction(1, 3), "1/3")
    assert read_vertices([thirds, (0, 1, 0)]) == (
        (Fraction(1, 3),) * 3,
        (Fraction(0), Fraction(1), Fraction(0)),
    )


@pytest.mark.parametrize(
    "vertices",
    [
        ({0: "0.5", 1: "0.5"}, {1: "0.25", 0: "0.75"}),
        (frozenset({0, 1}),),
        {0: 0.5, 1: 0.5},
        {0.5, 0.25},
    ],
)
def test_distributions_without_an_order_are_refused(vertices: Any) -> None:
    """The keys of a mapping could sum to 1, as if they were its probabilities."""
    with pytest.raises(ParameterError, match="vertices"):
        expected(n=10, vertices=vertices, loss_rate=0.1, epsilon=1.0)


@pytest.mark.parametrize("values", [[-2.0, -2.0], [-math.inf] * 5])
def test_draws_that_are_all_alike_give_no_interval_without_width(values):
    """Five deltas of 0 do not show that none is positive."""
    estimate = summary(np.array(values))
    assert (estimate.log_low, estimate.log_high) == (-math.inf, math.inf)
    assert estimate.log_value == values[0]


def test_an_interval_takes_thirty_draws_and_student_s_quantile():
    values = np.log(np.linspace(0.1, 0.4, 30))
    few = summary(values[:29])
    assert (few.log_low, few.log_high) == (-math.inf, math.inf)
    interval = summary(values)
    # 2.756386: the .995 quantile of Student's t with 29 degrees of freedom, from tables.
    half_width = 2.756386 * np.exp(values).std(ddof=1) / math.sqrt(30)
    assert math.exp(interval.log_high) == pytest.approx(0.25 + half_width, abs=printed(6))
    assert math.exp(interval.log_low) == pytest.approx(0.25 - half_width, abs=printed(6))


def test_intervals_of_skewed_deltas_cover_nearly_as_often_as_they_say():
    """Deltas of a binomial's tail, thirty to an interval of 99 %: 98 % is the least that is borne."""
    generator = np.random.default_rng(7)
    deltas = np.array([0.0, 0.05, 0.3, 0.6])
    chances = np.array([0.4, 0.3, 0.2, 0.1])
    mean = float(deltas @ chances)
    runs = 3000
    missed = 0
    with np.errstate(divide="ignore"):
        log_values = np.log(generator.choice(deltas, size=(runs, 30), p=chances))
    for row in log_values:
        interval = summary(row)
        missed += not math.exp(interval.log_low) <= mean <= math.exp(interval.log_high)
    # Three standard deviations of a count at 2 %.
    assert missed <= runs * 0.02 + 3 * math.sqrt(runs * 0.02)


def test_an_interval_ends_at_the_rigorous_bounds():
    """Of two equal draws it is as wide as these; the truth, from the enumeration, lies within."""
    question = {"n": 12, "vertices": [["0.5", "0.3", "0.2"]], "sampled": 5, "epsilon": 1.0}
    truth = expected(**question, method="enumeration")
    alike = 0
    for seed in range(8):
        drawn = expected(**question, method="monte_carlo", draws=2, seed=seed)
        assert drawn.confidence is not None
        _, low, high = drawn.confidence
        assert drawn.log10_lower - FEW <= low <= high <= drawn.log10_upper + FEW
        alike += low <= drawn.log10_lower + FEW and high >= drawn.log10_upper - FEW
        assert drawn.log10_lower <= truth.log10_delta + FEW
        assert truth.log10_delta <= drawn.log10_upper + FEW
    assert alike
