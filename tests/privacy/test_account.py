"""Whole releases in the local view against enumeration in exact integers, and the traps on the way."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mezzotint import families
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from mezzotint.privacy import account, accounting, prove
from mezzotint.privacy.accounting import WORTHLESS
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.divergences import rdp_to_epsilon
from mezzotint.privacy.local import PLD, PURE
from mezzotint.privacy.sums.cost import account_sum
from mezzotint.vectors import TableScheme, ranked_codebook
from reference.mechanisms import FAMILIES
from reference.privacy import dominating_pair, product_delta, worst_releases
from strategies import random_table
from tolerances import FEW

SIZES = [(d, t) for d in range(1, 9) for t in range(1, 9) if d * t <= 8]
SPREADS = [0.3, 1.0, 2.0, 4.0]
STEPS = 64
"""A grid of losses has at least so many steps from 0 to the largest loss of a report."""


def small_table(seed: int) -> Mechanism:
    """Two rows and 2 to 4 levels, every tenth three rows and 2 levels; some with zeros."""
    rng = np.random.default_rng(seed)
    rows = 3 if seed % 10 == 0 else 2
    levels = 2 if rows == 3 else int(rng.integers(2, 5))
    spread = float(rng.choice(SPREADS))
    return random_table(
        seed, rows=rows, levels=levels, spread=spread, zeros=0.2 if seed % 10 == 5 else 0.0
    )


def assert_near(mechanism: Mechanism, coordinates: int, rounds: int, delta: float) -> None:
    claim = account(mechanism, dimension=coordinates, rounds=rounds, delta=delta)
    if math.isinf(claim.epsilon):
        assert worst_releases(mechanism.weights, coordinates, rounds, [Fraction(10**30)])[0] > delta
        return
    at = Fraction(math.exp(claim.epsilon)) * (1 + Fraction(1, 2**50))
    assert worst_releases(mechanism.weights, coordinates, rounds, [at])[0] <= Fraction(delta)
    # How far the truth lies below the composed dominating pair has no bound: one pair of rows may
    # have the largest divergence at small epsilons, another at large ones, and no sequence of
    # inputs both. What is claimed is that pair's epsilon, each loss raised by a step at most.
    pair = dominating_pair(mechanism.weights)
    largest = max(abs(math.log(p / q)) for p, q in pair if p > 0 and q > 0)
    releases = coordinates * rounds
    margin = releases * largest / STEPS + 2 * WORTHLESS * claim.epsilon
    if claim.epsilon > margin:
        under = Fraction(math.exp(claim.epsilon - margin))
        assert product_delta(pair, releases, under) > Fraction(delta), "far above the pair"


@pytest.mark.parametrize("seed", range(6))
def test_never_below_enumeration_and_near_the_dominating_pair(seed: int) -> None:
    mechanism = small_table(seed)
    for i, (coordinates, rounds) in enumerate(SIZES):
        if mechanism.knots.size == 2 or coordinates * rounds <= 5:
            assert_near(mechanism, coordinates, rounds, [1e-2, 1e-6, 1e-9][(seed + i) % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_never_below_enumeration_on_two_hundred_tables(seed: int) -> None:
    mechanism = small_table(1000 + seed)
    for i, (coordinates, rounds) in enumerate(SIZES):
        assert_near(mechanism, coordinates, rounds, [1e-2, 1e-6, 1e-9][(seed + i) % 3])


def test_a_lopsided_table_may_be_claimed_far_above_its_worst_sequence() -> None:
    # Eight reports of it cost .0583; eight of its dominating pair, which is claimed, .0794.
    weights = np.array([[171175392, 2741201465, 1382590439], [190240990, 2732929272, 1371797034]])
    mechanism = Mechanism(knots=[0.0, 1.0], levels=[0.0, 1.0, 2.0], weights=weights)
    claim = account(mechanism, dimension=8, delta=1e-2)
    ratio = Fraction(math.exp(claim.epsilon * 0.75))
    assert worst_releases(weights, 8, 1, [ratio])[0] < Fraction(1e-2)
    near = Fraction(math.exp(claim.epsilon * (1 - 1e-6)))
    assert product_delta(dominating_pair(weights), 8, near) > Fraction(1e-2)


def test_each_alternative_is_valid_by_itself() -> None:
    for seed in range(4):
        mechanism = small_table(seed)
        claim = account(mechanism, dimension=2, rounds=2, delta=1e-3)
        for _, epsilon in claim.alternatives:
            ratio = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
            assert worst_releases(mechanism.weights, 2, 2, [ratio])[0] <= Fraction(1e-3)
        assert {name for name, _ in claim.alternatives} <= {PLD, PURE}
        assert list(claim.alternatives) == sorted(claim.alternatives, key=lambda item: item[1])
        assert (claim.method, claim.epsilon) == claim.alternatives[0]


@pytest.mark.parametrize(
    "name",
    [
        *sorted(FAMILIES.keys() - {"rqm-shifted"}),
        pytest.param("rqm-shifted", marks=pytest.mark.slow),
    ],
)
def test_more_releases_cost_more_and_never_above_pure(name: str) -> None:
    mechanism = FAMILIES[name]()
    costs = [
        account(mechanism, dimension=d, rounds=t, delta=1e-5).epsilon
        for d, t in [(1, 1), (3, 1), (3, 4)]
    ]
    assert costs == sorted(costs)
    assert all(
        cost <= count * mechanism.epsilon * (1 + FEW)
        for cost, count in zip(costs, (1, 3, 12), strict=True)
    )
    delta = 1e-5
    assert math.isinf(costs[0]) or mechanism.delta(costs[0]) <= delta


def test_rounds_and_coordinates_compose_alike_for_a_symmetric_pair() -> None:
    mechanism = families.randomized_response(epsilon=0.5)
    together = account(mechanism, dimension=60, delta=1e-6).epsilon
    # The grid of losses, ten times.
    assert account(mechanism, dimension=6, rounds=10, delta=1e-6).epsilon == pytest.approx(
        together, abs=1e-3
    )
    assert account(mechanism, rounds=60, delta=1e-6).epsilon == pytest.approx(
        together, abs=1e-3
    )  # as above


def test_randomized_response_in_closed_form() -> None:
    # k answers with the truth being p likely: the loss is (2 j - k) epsilon0 with j binomial.
    mechanism = families.randomized_response(epsilon=1.0)
    base = Fraction(int(mechanism.weights.max()), int(mechanism.weights.min()))
    p = base / (1 + base)
    k = 50
    claim = account(mechanism, rounds=k, delta=1e-7)
    ratio = Fraction(math.exp(claim.epsilon)) * (1 + Fraction(1, 2**50))
    terms = [
        math.comb(k, j) * (p**j * (1 - p) ** (k - j) - ratio * p ** (k - j) * (1 - p) ** j)
        for j in range(k + 1)
    ]
    exact = sum(max(term, Fraction(0)) for term in terms)
    assert exact <= Fraction(1e-7)
    assert float(exact) >= 1e-7 * (1 - 1e-2)  # a hundredth of delta is a thousandth of epsilon here


def test_delta_zero_is_pure_composition() -> None:
    mechanism = families.rqm(levels=4, extension=1.0, q=0.3)
    claim = account(mechanism, dimension=3, rounds=2, delta=0.0)
    assert claim.method == PURE
    assert claim.epsilon == pytest.approx(6 * mechanism.epsilon, rel=FEW)
    assert claim.epsilon >= 6 * mechanism.epsilon


def test_an_unbounded_table_is_charged_its_escaping_mass() -> None:
    noise = families.discrete_gaussian(sigma=3.0).mechanism(lower=0, upper=1)
    assert noise.epsilon == math.inf
    claim = account(noise, rounds=20, delta=1e-5)
    assert math.isfinite(claim.epsilon)
    assert account(noise, rounds=20, delta=1e-12).epsilon == math.inf
    assert "No epsilon" in str(account(noise, rounds=20, delta=1e-12))
    assert account(noise, rounds=20, delta=0.0).as_dict()["epsilon"] == "inf"


def test_huge_releases_are_answered() -> None:
    mechanism = families.rqm(levels=16, extension=1.0, q=0.42)
    claim = account(mechanism, dimension=10**9, rounds=10**6)
    assert 10**15 < claim.epsilon <= 10**15 * mechanism.epsilon * (1 + FEW)
    assert account(mechanism, dimension=10**4, rounds=2000).epsilon < 2e7 * mechanism.epsilon


def test_very_private_tables_and_very_small_deltas() -> None:
    mechanism = families.randomized_response(epsilon=1e-4)
    claim = account(mechanism, rounds=10**6, delta=1e-12)
    # Nearly mu-GDP with mu = 1e-4 * 1000 = 0.1: epsilon(1e-12) of it, by the Gaussian profile.
    assert claim.epsilon == pytest.approx(_gaussian_epsilon(0.1, 1e-12), rel=5e-3)


def _gaussian_epsilon(mu: float, delta: float) -> float:
    from scipy.stats import norm

    low, high = 0.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        value = norm.cdf(mu / 2 - middle / mu) - math.exp(middle) * norm.cdf(-mu / 2 - middle / mu)
        low, high = (middle, high) if value > delta else (low, middle)
    return high


# Sampling ------------------------------------------------------------------------------------------------------


def _worst(
    pairs: list[tuple[list[Fraction], list[Fraction]]], rounds: int, ratio: Fraction
) -> Fraction:
    """Adaptive worst case over given pairs of distributions of one round."""
    if rounds == 0:
        return max(1 - ratio, Fraction(0))
    best = Fraction(0)
    for first, second in pairs:
        value = Fraction(0)
        for p, q in zip(first, second, strict=True):
            if p > 0:
                value += p * _worst(pairs, rounds - 1, ratio * q / p)
        best = max(best, value)
    return best


def _mix(rate: Fraction, first: list[Fraction], second: list[Fraction]) -> list[Fraction]:
    return [rate * p + (1 - rate) * q for p, q in zip(first, second, strict=True)]


def _rows(mechanism: Mechanism) -> list[list[Fraction]]:
    return [[Fraction(w, TOTAL) for w in row] for row in mechanism.weights.tolist()]


SAMPLED = [
    ("public", "replace_one"),
    ("poisson", "replace_one"),
    ("poisson", "add_or_remove_one"),
]


@pytest.mark.parametrize(("sampling", "neighboring"), SAMPLED)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_sampling_is_never_below_enumeration(
    sampling: str, neighboring: str, seed: int, rate: float
) -> None:
    mechanism = random_table(seed, rows=2 + seed % 2, levels=2, spread=2.0)
    rows, exact_rate = _rows(mechanism), Fraction(rate)
    pairs: list[tuple[list[Fraction], list[Fraction]]] = []
    for a in rows:
        for b in rows:
            if sampling == "public":
                absent = [*(Fraction(0) for _ in a), Fraction(1)]
                pairs.append(
                    (
                        _mix(exact_rate, [*a, Fraction(0)], absent),
                        _mix(exact_rate, [*b, Fraction(0)], absent),
                    )
                )
            elif neighboring == "replace_one":
                pairs += [(_mix(exact_rate, a, c), _mix(exact_rate, b, c)) for c in rows]
            else:
                pairs.append((_mix(exact_rate, a, b), b))
    for rounds, delta in [(1, 1e-3), (2, 1e-4)]:
        claim = account(
            mechanism,
            rounds=rounds,
            sampling_rate=rate,
            sampling=sampling,
            neighboring=neighboring,
            delta=delta,
        )
        ratio = Fraction(math.exp(claim.epsilon)) * (1 + Fraction(1, 2**50))
        if neighboring == "add_or_remove_one":
            # One record is there in all rounds of one world: the direction is the same throughout.
            swapped = [(second, first) for first, second in pairs]
            exact = max(_worst(pairs, rounds, ratio), _worst(swapped, rounds, ratio))
        else:
            exact = _worst(pairs, rounds, ratio)
        assert exact <= Fraction(delta)
        if rounds == 1 and sampling == "public" and claim.epsilon > 0:
            lower = Fraction(math.exp(claim.epsilon - min(claim.epsilon, 1e-3)))
            assert _worst(pairs, 1, lower) > Fraction(delta) * (1 - Fraction(1, 100))


def test_sampling_helps_and_rate_one_is_no_sampling() -> None:
    mechanism = families.randomized_response(epsilon=1.0)
    full = account(mechanism, rounds=50, delta=1e-6)
    for sampling, neighboring in SAMPLED:
        rare = account(
            mechanism,
            rounds=50,
            sampling_rate=0.05,
            sampling=sampling,
            neighboring=neighboring,
            delta=1e-6,
        )
        assert rare.epsilon < full.epsilon
        same = account(
            mechanism,
            rounds=50,
            sampling_rate=1.0,
            sampling=sampling,
            neighboring=neighboring,
            delta=1e-6,
        )
        assert same.epsilon == full.epsilon
        assert same.sampling == "none"


def test_poisson_pure_amplification() -> None:
    mechanism = families.randomized_response(epsilon=1.0)
    claim = account(mechanism, rounds=3, sampling_rate=0.1, sampling="poisson", delta=0.0)
    assert claim.epsilon == pytest.approx(
        3 * math.log1p(0.1 * math.expm1(mechanism.epsilon)), rel=FEW
    )


def test_seen_absence_does_not_amplify_epsilon() -> None:
    # Whoever sees the one report sees it in full: only the chance that there is one shrinks delta.
    mechanism = families.randomized_response(epsilon=1.0)
    claim = account(mechanism, sampling_rate=0.5, sampling="public", delta=1e-6)
    assert claim.epsilon > 0.999
    assert claim.unit == "client"


# Words and errors ----------------------------------------------------------------------------------------------


def test_the_claim_says_all_it_rests_on() -> None:
    mechanism = families.randomized_response(epsilon=1.0)
    claim = account(
        mechanism, dimension=2, rounds=5, sampling_rate=0.25, sampling="poisson", delta=1e-6
    )
    text = str(claim)
    for part in (
        "2 coordinates in 5 rounds",
        "0.25",
        "replace_one",
        "every single report",
        claim.method,
        "record",
    ):
        assert part in text
    shown = float(text[text.index("(") + 1 : text.index(",")])
    assert claim.epsilon <= shown <= claim.epsilon * (1 + 1e-5)  # six digits, rounded up
    assert (claim.trust, claim.unit, claim.honest_clients, claim.releases) == (
        "local",
        "record",
        None,
        10,
    )
    assert json.loads(json.dumps(claim.as_dict()))["epsilon"] == claim.epsilon
    assert claim.sha256 == mechanism.sha256


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"sampling_rate": math.nan}, "sampling_rate"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 1.5}, "dimension"),
        ({"rounds": -1}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-9}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"sampling": "sometimes"}, "sampling"),
        ({"sampling": "without_replacement"}, "sampling"),
        ({"neighboring": "bounded"}, "neighboring"),
        ({"neighboring": "add_or_remove_one"}, "neighboring"),
        ({"trust": "central"}, "trust"),
        ({"trust": "secure_sum"}, "clients"),
        ({"trust": "secure_sum", "clients": 10, "neighboring": "add_or_remove_one"}, "neighboring"),
        ({"clients": 10}, "clients"),
        ({"corrupted": 1}, "corrupted"),
        ({"clip_norm": 1.0}, "clip_norm"),
        ({"l2_norm": 1.0}, "l2_norm"),
        ({"dimension": 10**19}, "dimension"),
        ({"dimension": math.nan}, "dimension"),
        ({"rounds": math.inf}, "rounds"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=f"{named}="):
        account(families.randomized_response(epsilon=1.0), **arguments)


def test_secure_sums_are_at_hand() -> None:
    mechanism = families.rqm(levels=4, extension=1.0, q=0.42)
    claim = account(mechanism, trust="secure_sum", clients=1000, delta=1e-6)
    assert (claim.trust, claim.honest_clients) == ("secure_sum", 1000)
    assert claim.epsilon < mechanism.epsilon / 2
    assert "secure sums" in str(claim)


def test_formulas_alone() -> None:
    # Gaussian with sigma = 1: D_alpha = alpha / 2; the conversion at alpha = 6 by hand.
    assert rdp_to_epsilon(3.0, 6.0, 1e-5) == pytest.approx(
        3 + math.log(5 / 6) - math.log(6e-5) / 5, rel=1e-12
    )
    assert rdp_to_epsilon(0.0, 2.0, 0.9) == 0.0


COIN = families.randomized_response(epsilon=1.0)


@pytest.mark.parametrize(
    ("mechanism", "fields"),
    [
        (COIN, {}),
        (COIN, {"rounds": 3}),
        (COIN, {"sampling": "poisson", "sampling_rate": 0.3}),
        (COIN, {"trust": "secure_sum", "clients": 1}),
        (COIN, {"trust": "shuffler", "clients": 2}),
        (ranked_codebook(8, 2.0), {}),
        (TableScheme(mechanism=COIN, size=2, clients=5), {"trust": "secure_sum", "clients": 1}),
    ],
)
def test_a_delta_that_buys_nothing_is_not_spent(mechanism: Any, fields: Any) -> None:
    """The claim is the pure one, whoever is asked and whether delta is named or not."""
    claim = account(mechanism, **fields)
    pure = account(mechanism, delta=0.0, **fields)
    assert claim.delta == 0.0
    assert claim == pure
    assert claim.release == pure.release
    assert str(claim) == str(pure)
    assert claim == account(mechanism, delta=1e-12, **fields)
    certified, proof = prove(mechanism, **fields)
    assert certified.delta == 0.0
    assert (
        certified.certified
        == (proof is not None)
        == (prove(mechanism, delta=0.0, **fields)[1] is not None)
    )


def test_a_delta_that_is_not_spent_is_not_accounted_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deltas: list[float] = []

    def counting(release: Release) -> Claim:
        deltas.append(release.delta)
        return account_sum(release)

    monkeypatch.setattr(accounting, "account_sum", counting)
    claim = account(COIN, trust="secure_sum", clients=1, rounds=2, delta=1e-9)
    assert claim.delta == 0.0
    assert deltas == [1e-9]


@pytest.mark.parametrize("fields", [{"rounds": 60}, {"trust": "secure_sum", "clients": 100}])
def test_a_delta_that_buys_a_smaller_epsilon_is_spent(fields: Any) -> None:
    claim = account(COIN, delta=1e-5, **fields)
    assert claim.delta == 1e-5
    assert claim.epsilon * (1 + WORTHLESS) < account(COIN, delta=0.0, **fields).epsilon


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("trust", value) for value in (None, ["local"], {}, "sum")],
        *[("distinct", value) for value in (True, 2.5, "2", 0, 6)],
        *[("sampling", value) for value in (None, ["public"])],
        ("neighboring", [1]),
    ],
)
def test_what_is_no_word_and_no_count_is_refused_by_its_own_name(field: str, value: Any) -> None:
    with pytest.raises(ParameterError) as refused:
        account(COIN, **{"rounds": 5, "delta": 0.0, field: value})
    assert refused.value.parameter == field
