"""delta(x): against exact fractions, 60 digits, and the published numbers."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from laws.registry import judges
from mezzotint.core.errors import ParameterError
from mezzotint.datasets import national_elections, state_elections
from mezzotint.smoothed import noisy_epsilon, profile, published_noise_ratio
from reference import smoothed_exact as exact, smoothed_mpmath as slow
from tolerances import FEW, MANY

RATIOS = [
    Fraction(51, 49),
    Fraction(101, 100),
    Fraction(3, 2),
    Fraction(2),
    Fraction(1),
    Fraction(5),
]
ODDS = Fraction(51, 49)


def _random_counts(rng: random.Random, types: int, records: int) -> tuple[int, ...]:
    cuts = sorted(rng.randint(0, records) for _ in range(types - 1))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, records], strict=True))


def _case(rng: random.Random, kind: str):
    types = rng.choice([2, 2, 3, 3, 4])
    records = rng.randint(2, {2: 24, 3: 12, 4: 8}[types])
    if kind == "noise":
        types, records = rng.choice([2, 3]), rng.randint(2, 8)
    if kind == "poisson":
        records = min(records, 10)
    counts = _random_counts(rng, types, records)
    draws = rng.randint(1, records)
    if kind == "without":
        return counts, partial(exact.without_replacement, draws=draws), {"sampled": draws}
    if kind == "with":
        draws = rng.randint(1, records + 3) if types == 2 else min(draws, 8)
        return (
            counts,
            partial(exact.with_replacement, draws=draws),
            {"sampled": draws, "replacement": True},
        )
    if kind == "poisson":
        rate = Fraction(rng.randint(1, 19), 20)
        return counts, partial(exact.poisson, rate=rate), {"loss_rate": 1 - rate, "poisson": True}
    draws, noise = min(draws, 4), Fraction(rng.randint(1, 9), 10)
    return (
        counts,
        partial(exact.noisy, draws=draws, ratio=noise),
        {"sampled": draws, "noise_ratio": noise},
    )


@judges(
    "smoothed.logarithms.log_delta",
    "smoothed.logarithms.log_delta_window",
    "smoothed.logarithms.log_deltas",
)
@pytest.mark.parametrize(
    ("kind", "cases"), [("without", 260), ("with", 150), ("poisson", 120), ("noise", 30)]
)
def test_equals_exact_fractions_over_all_neighbours_and_directions(kind: str, cases: int) -> None:
    rng = random.Random(f"profiles {kind}")
    positive = 0
    for _ in range(cases):
        counts, law, how = _case(rng, kind)
        ratio = rng.choice([*RATIOS, Fraction(rng.randint(100, 400), 100)])
        truth = exact.delta(counts, ratio, law)
        result = profile(counts, ratio=ratio, **how)
        where = (counts, ratio, how, result)
        if truth == 0:
            assert result.log10_delta == -math.inf, where
            continue
        positive += 1
        assert abs(Fraction(10**result.log10_delta) / truth - 1) < Fraction(1, 10**12), where
        assert Fraction(result.delta) >= truth, where
        assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= slow.number(truth), where
    assert positive > cases / 2


# Section 4.4: loss of 0.2 %, e^epsilon = 51/49, top two candidates.
@pytest.mark.parametrize(
    ("year", "printed"), [("1920", -7.79), ("1964", -15.94), ("2000", -22.33), ("2020", -31.92)]
)
def test_figure_1_to_the_printed_digits(year: str, printed: float) -> None:
    election = next(one for one in national_elections() if one.name == year).top(2)
    result = profile(election.counts, loss_rate=0.002, ratio=ODDS)
    assert round(result.log10_delta, 2) == printed
    assert result.status == "closed"
    assert (
        abs(result.log10_worst_case - math.log10(0.998)) < 1e-7
    )  # 1 - .998 is left as it is but for a tail


def _relative_error(log10: float, truth: mp.mpf) -> float:
    return float(abs(mp.mpf(10) ** mp.mpf(log10) / truth - 1))


@pytest.mark.parametrize("name", ["1920", "2020", "DC", "WY"])
def test_relative_error_on_real_elections_is_below_1e_9(name: str) -> None:
    election = next(
        one for one in (*national_elections(), *state_elections()) if one.name == name
    ).top(2)
    sampled = math.ceil(Fraction(998, 1000) * election.records)
    for ratio in (ODDS, Fraction(3, 2)):
        truth = slow.delta_two_types(election.counts, sampled, slow.number(ratio))
        result = profile(election.counts, loss_rate=0.002, ratio=ratio)
        assert _relative_error(result.log10_delta, truth) < MANY
        assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= truth


def test_noise_that_is_purely_private_is_answered_at_any_size() -> None:
    large = {"counts": (10**5, 10**5), "loss_rate": 0.01, "noise_ratio": 0.5}
    assert profile(**large, epsilon=9.0).log10_upper == -math.inf
    with pytest.raises(ParameterError, match="grid"):
        profile(**large, epsilon=0.1)


def test_a_noisy_delta_is_closed_where_its_error_is_1e_10_of_it() -> None:
    for epsilon, status in ((2.0, "closed"), (3.0, "bracketed"), (5.0, "bracketed")):
        result = profile((60, 30), sampled=30, noise_ratio=0.02, epsilon=epsilon)
        assert result.status == status
        is_near = result.log10_upper - result.log10_delta <= 1e-10
        assert is_near == (status == "closed")


def test_an_irrational_ratio_is_rounded_down_and_stays_accurate() -> None:
    counts = (81283501, 74223975)
    truth = slow.delta_two_types(counts, 155196462, mp.exp(mp.mpf(0.25)))
    result = profile(counts, loss_rate=0.002, epsilon=0.25)
    assert result.log10_delta < -1000
    assert _relative_error(result.log10_delta, truth) < MANY
    assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= truth


def test_with_replacement_on_a_real_election() -> None:
    counts, ratio = (317323, 18586), Fraction(1001, 1000)
    truth = slow.delta_two_types(counts, 335000, slow.number(ratio), replacement=True)
    result = profile(counts, sampled=335000, ratio=ratio, replacement=True)
    assert _relative_error(result.log10_delta, truth) < MANY
    assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= truth


@pytest.mark.slow
def test_three_types_of_a_real_election() -> None:
    counts = (73491, 193559, 5768)  # Wyoming 2020: Biden, Trump, Jorgensen
    sampled = math.ceil(Fraction(9995, 10000) * sum(counts))
    truth = slow.delta_three_types(counts, sampled, slow.number(Fraction(3, 2)))
    result = profile(counts, sampled=sampled, ratio=Fraction(3, 2))
    assert _relative_error(result.log10_delta, truth) < MANY
    assert mp.mpf(10) ** mp.mpf(result.log10_upper) >= truth


def test_a_third_party_changes_everything() -> None:
    pair = profile((81283501, 74223975), loss_rate=0.002, ratio=ODDS)
    three = profile((81283501, 74223975, 1_870_000), loss_rate=0.002, ratio=ODDS)
    assert round(pair.log10_delta) == -32
    assert round(three.log10_delta, 1) == -4.3


def test_delta_of_two_types_is_not_monotone_in_the_count() -> None:
    values = [
        10 ** profile((c, 9 - c), sampled=7, ratio=Fraction(101, 100)).log10_delta for c in (3, 4)
    ]
    assert [round(value, 4) for value in values] == [0.4167, 0.4417]


def test_each_of_the_four_orders_of_the_two_rarest_types_is_needed() -> None:
    seen = set()
    for records in range(4, 26):
        for rare in range(2, records // 2 + 1):
            for sampled in (1, records // 2, records - 1, records - 2):
                for ratio in (Fraction(101, 100), Fraction(3, 2), Fraction(3)):
                    common = records - rare
                    pair = profile((rare, common), sampled=sampled, ratio=ratio).pair
                    if pair is not None and rare < common - 1:
                        orders = [
                            (rare, common + 1),
                            (rare + 1, common),
                            (common, rare + 1),
                            (common + 1, rare),
                        ]
                        seen.add(orders.index(pair))
    assert seen == {0, 1, 2, 3}


@given(
    st.lists(st.integers(0, 10**6), min_size=2, max_size=5).filter(lambda c: sum(c) > 2), st.data()
)
def test_delta_never_exceeds_the_worst_case_nor_grows_with_epsilon(
    counts: list[int], data: st.DataObject
) -> None:
    draws = data.draw(st.integers(max(1, sum(counts) - 500), sum(counts)))
    low, high = (
        profile(counts, sampled=draws, epsilon=0.1),
        profile(counts, sampled=draws, epsilon=0.4),
    )
    assert low.log10_upper <= low.log10_worst_case + FEW
    assert high.log10_delta <= low.log10_upper
    assert low.log10_delta <= low.log10_upper


def test_order_of_the_types_does_not_matter() -> None:
    values = {
        profile(c, sampled=50, epsilon=0.5).log10_delta
        for c in ((5, 30, 40), (40, 5, 30), (30, 40, 5))
    }
    assert len(values) == 1


def test_merging_types_never_increases_delta() -> None:
    rng = random.Random(3)
    for _ in range(60):
        counts = _random_counts(rng, 4, rng.randint(6, 400))
        draws = rng.randint(1, sum(counts))
        for how in ({}, {"replacement": True}):
            fine = profile(counts, sampled=draws, ratio=Fraction(6, 5), **how)
            coarse = profile(
                (counts[0], counts[1], counts[2] + counts[3]),
                sampled=draws,
                ratio=Fraction(6, 5),
                **how,
            )
            assert coarse.log10_delta <= fine.log10_upper


def test_nothing_lost_says_delta_is_one_and_why() -> None:
    for how in (
        {"loss_rate": 0},
        {"loss_rate": 0.002},
        {"sampled": 400},
        {"loss_rate": 0, "poisson": True},
    ):
        result = profile((150, 250), epsilon=1.0, **how)  # 0.2 % of 400 is less than one record
        assert result.log10_delta == result.log10_upper == result.log10_worst_case == 0.0
        assert "No record is lost" in result.reason
    assert profile((150, 250), loss_rate=0, epsilon=1.0).delta == 1.0


def test_a_type_with_one_record_or_none_reaches_the_worst_case() -> None:
    for counts in ((0, 50, 50), (1, 99), (1, 60, 39)):
        result = profile(counts, sampled=90, epsilon=2.0)
        assert abs(result.log10_delta - math.log10(0.9)) < FEW
        assert "reveals" in result.reason


def test_with_replacement_delta_is_exactly_zero_when_no_outcome_is_telling() -> None:
    # T ln(A / (A - 1)) <= epsilon: 10 draws, at least 1000 records of each type.
    result = profile((1000, 1500), sampled=10, epsilon=0.02, replacement=True)
    assert result.log10_delta == result.log10_upper == -math.inf
    assert result.delta == 0.0
    assert profile((1000, 1500), sampled=30, epsilon=0.02, replacement=True).log10_delta > -math.inf


def test_worst_case_with_replacement_is_the_exact_one_not_theorem_5() -> None:
    for n, draws in ((1000, 3), (10, 4), (7, 7)):
        truth = 1 - (1 - Fraction(1, n)) ** draws
        result = profile((1, n - 1), sampled=draws, epsilon=1.0, replacement=True)
        assert math.isclose(10**result.log10_worst_case, truth, rel_tol=FEW)
        assert result.log10_delta == result.log10_worst_case


def test_a_float_loss_rate_is_read_by_its_decimal() -> None:
    # 0.002 is a little more than 1/500 in binary: ceil(n * (1 - 0.002)) in floats would lose one record less or more.
    for n in (500, 1000, 155_507_476, 25_283_754):
        assert profile((n // 3, n - n // 3), loss_rate=0.002, epsilon=1.0).sampled == -(
            -n * 998 // 1000
        )
    assert profile((5, 5), loss_rate="1/3", epsilon=1.0).sampled == 7


@judges("smoothed.model.noise_bound")
def test_noise_makes_the_histogram_purely_private_at_the_proved_loss() -> None:
    for epsilon, rate in ((0.5, Fraction(9, 10)), (4.0, Fraction(1, 10)), (8.0, Fraction(1, 2))):
        loss = noisy_epsilon(epsilon, sampling_rate=rate)
        for counts in ((0, 10), (1, 9), (5, 5), (2, 3, 5)):
            how = {"sampled": int(10 * rate), "noise_ratio": published_noise_ratio(epsilon)}
            result = profile(counts, epsilon=loss, **how)
            assert result.log10_delta == result.log10_upper == -math.inf
            weaker = profile(counts, epsilon=0.2 * loss, **how)
            assert weaker.log10_delta <= weaker.log10_upper <= weaker.log10_worst_case


BAD = [
    ({"counts": (5, -1)}, "counts[1]=-1"),
    ({"counts": (5, 2.5)}, "counts[1]=2.5"),
    ({"counts": (5,)}, "two types"),
    ({"counts": (0, 0)}, "at least one record"),
    ({"counts": (2**53, 1)}, "2**53"),
    ({"counts": (2**54, 1)}, "2**53"),
    ({"loss_rate": 1}, "[0, 1)"),
    ({"loss_rate": -0.1}, "[0, 1)"),
    ({"loss_rate": math.nan}, "need a number"),
    ({"loss_rate": "a lot"}, "finite number"),
    ({"sampled": 5}, "exactly one"),
    ({"loss_rate": None}, "exactly one"),
    ({"loss_rate": None, "sampled": 21}, "more than the 20 records"),
    ({"loss_rate": None, "sampled": 0}, "at least 1"),
    ({"loss_rate": None, "sampled": 5, "poisson": True}, "random under Poisson"),
    ({"epsilon": 0.0}, "above 0"),
    ({"epsilon": -1.0}, "above 0"),
    ({"epsilon": math.inf}, "above 0"),
    ({"epsilon": math.nan}, "need a number"),
    ({"epsilon": 800.0}, "at most 700"),
    ({"epsilon": None}, "exactly one"),
    ({"ratio": 2}, "exactly one"),
    ({"epsilon": None, "ratio": "49/51"}, "at least 1"),
    ({"replacement": True, "poisson": True}, "excludes"),
    ({"noise_ratio": 0}, "strictly between"),
    ({"noise_ratio": 1}, "strictly between"),
    ({"noise_ratio": 0.5, "poisson": True}, "without replacement only"),
    ({"counts": (10**5, 10**5), "noise_ratio": 0.5}, "grid"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_names_parameter_value_and_remedy(change: dict, message: str) -> None:
    given_arguments = {"counts": (8, 12), "loss_rate": 0.1, "epsilon": 1.0, **change}
    with pytest.raises(ParameterError) as caught:
        profile(**given_arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("scale", [2**20, 2**40, 2**52 - 3])
def test_extreme_sizes_stay_within_bounds(scale: int) -> None:
    for counts in ((scale, scale + 1), (2, scale), (scale // 3, scale // 3, scale // 3)):
        result = profile(counts, sampled=sum(counts) - 3, epsilon=0.01)
        assert -math.inf < result.log10_delta <= result.log10_upper <= 0.0
        assert result.log10_upper - result.log10_delta < MANY


@pytest.mark.parametrize("epsilon", [5e-324, 1e-17, 1e-15, 1e-6, 1e-3, 0.1, 1.0, 8.0, 100.0, 700.0])
@pytest.mark.parametrize("rate", ["1", "0.5", "1e-9"])
def test_the_noises_loss_is_rounded_up_however_small(epsilon: float, rate: str) -> None:
    found = noisy_epsilon(epsilon, sampling_rate=rate)
    with mp.workdps(400):
        ratio = mp.exp(-mp.mpf(epsilon) / 4)
        exact = mp.log(1 + mp.mpf(rate) * ((1 + ratio - ratio**2) / ratio**2 - 1))
        # A few roundings, each raised; and the least float above 0.
        assert exact <= mp.mpf(found) <= exact * (1 + mp.mpf(10) ** -13) + mp.mpf(2) ** -1073
    for wrong in ("0", "-1", "5"):
        with pytest.raises(ParameterError, match="sampling_rate"):
            noisy_epsilon(1.0, sampling_rate=wrong)


@pytest.mark.parametrize(
    "ratio",
    [
        Fraction(1),
        Fraction(51, 49),
        Fraction(3),
        Fraction(8),
        Fraction(27, 8),
        1 + Fraction(1, 10**30),
    ],
)
def test_the_epsilon_of_a_ratio_is_the_least_float_above_its_logarithm(ratio: Fraction) -> None:
    found = profile((5, 5), sampled=3, ratio=ratio).epsilon
    with mp.workdps(60):
        exact = mp.log(mp.mpf(ratio.numerator) / ratio.denominator)
        assert mp.mpf(math.nextafter(found, -math.inf)) < exact <= mp.mpf(found)


def _exact_pair(first: int, second: int, lost: int, ratio: Fraction) -> Fraction:
    """D(A, B) when `lost` of the A + B - 1 records are lost, as a sum of rationals."""
    total = Fraction(0)
    size = first + second - 1
    for of_first in range(max(0, lost - second + 1), min(first, lost) + 1):
        p = math.comb(first, of_first) * math.comb(second - 1, lost - of_first)
        # The same sample, where one record less is of the first type: one less of them is lost.
        q = 0
        if of_first >= 1 and lost - of_first + 1 <= second:
            q = math.comb(first - 1, of_first - 1) * math.comb(second, lost - of_first + 1)
        total += max(Fraction(0), p - ratio * q)
    return total / math.comb(size, lost)


@pytest.mark.slow
def test_the_stated_error_on_a_thousand_databases() -> None:
    """Relative error of delta at most 1e-9, and never below the truth: against rationals, down to 1e-30 and beyond."""
    rng = np.random.default_rng(17)
    smallest = Fraction(1)
    for case in range(1000):
        n = int(rng.integers(4, 400))
        count = int(rng.integers(2, max(3, n - 2)))
        lost = int(rng.integers(1, max(2, n // int(rng.integers(2, 40)) + 1)))
        ratio = 1 + Fraction(int(rng.integers(1, 400)), 100)
        if case % 20 == 0:  # small deltas need many records
            n, ratio = int(rng.integers(1000, 3000)), ratio + 3
            count, lost = n // int(rng.integers(2, 5)), n // 8
        pairs = {(count, n + 1 - count), (count + 1, n - count)}
        pairs |= {(b, a) for a, b in pairs}
        worst = max(_exact_pair(a, b, lost, ratio) for a, b in pairs if min(a, b) >= 1)
        found = profile((count, n - count), sampled=n - lost, ratio=ratio)
        if worst == 0:
            assert found.log10_delta == -math.inf
            continue
        smallest = min(smallest, worst)
        truth = math.log10(worst.numerator) - math.log10(worst.denominator)
        # Differences of log10 by logarithms of big integers: 2^-50 of their size, far below the bound.
        assert found.log10_upper >= truth - 1e-13 * abs(truth)
        # And the stated relative error of 1e-9, as a logarithm.
        assert abs(found.log10_delta - truth) <= 1e-9 / math.log(10) + 1e-13 * abs(truth)
    assert smallest < Fraction(1, 10**30)
