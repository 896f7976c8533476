"""Claims of whole releases of secure sums: composition, participation, the L2 geometry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mezzotint import Mechanism, ParameterError, privacy, vectors
from mezzotint.families import pbm, randomized_response, rqm
from mezzotint.privacy.sums import lattice_rows
from mezzotint.privacy.sums.candidates import candidate_blankets
from mezzotint.privacy.sums.geometry import (
    _mean_quotients,
    pair_quotients,
    quadratic_renyi,
)
from mezzotint.privacy.sums.noise import blanket_noise, no_noise
from reference.sums import exact_renyi, random_rows, sum_pmf
from tolerances import FEW


def account_sum(mechanism: Any, **words: Any) -> privacy.Claim:
    return privacy.account(mechanism, trust="secure_sum", **words)


QUIET = rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
BITS = randomized_response(lower=-1, upper=1, epsilon=1.8)


def two_sums(rows: np.ndarray, clients: int, epsilon: float) -> float:
    """Exact worst delta of two sums of binary tables, every data set and pair of rows free in both (floats)."""
    table = rows / 2.0**32
    worst = 0.0
    outputs = []
    for share in range(clients):
        shared = sum_pmf([np.ones(1), *[table[0]] * share, *[table[1]] * (clients - 1 - share)])
        outputs += [
            (np.convolve(shared, table[a]), np.convolve(shared, table[b]))
            for a, b in ((0, 1), (1, 0))
        ]
    for first in outputs:
        for second in outputs:
            p, q = np.outer(first[0], second[0]), np.outer(first[1], second[1])
            worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0).sum()))
    return worst


@pytest.mark.parametrize("seed", range(6))
def test_two_rounds_are_never_below_the_exact_worst_case(seed):
    rows = random_rows(np.random.default_rng(seed), rows=2, levels=2)
    mechanism = Mechanism(knots=[-1, 1], levels=[-1, 1], weights=rows)
    for clients in (1, 2, 5):
        claim = account_sum(mechanism, clients=clients, rounds=2, delta=1e-3)
        assert two_sums(rows, clients, claim.epsilon) <= claim.delta
        assert (
            account_sum(mechanism, clients=clients, dimension=2, delta=1e-3).epsilon
            == claim.epsilon
        )


@pytest.mark.slow
def test_a_million_quiet_releases_are_nearly_gaussian():
    # 10^4 coordinates, 100 rounds, 10^6 clients with one bit each: a shift by 2 p - 1 in noise of deviation 500.
    mechanism = randomized_response(lower=-1, upper=1, epsilon=0.1)
    claim = account_sum(mechanism, clients=10**6, dimension=10**4, rounds=100, delta=1e-6)
    p = float(mechanism.probabilities.max())
    mu = (2 * p - 1) / math.sqrt(10**6 * p * (1 - p)) * 10**3
    # The Gaussian's own tail by erfc, whose relative error grows with the exponent.
    assert gaussian_delta(mu, claim.epsilon) <= 1e-6 * (1 + 1e-6)
    assert gaussian_delta(mu, claim.epsilon * 0.97) > 1e-6


def gaussian_delta(mu: float, epsilon: float) -> float:
    from scipy.stats import norm

    return float(
        norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


def test_claims_say_what_they_rest_on():
    claim = account_sum(QUIET, clients=1000, corrupted=10, rounds=3, delta=1e-6)
    assert (claim.trust, claim.honest_clients, claim.unit, claim.rounds) == (
        "secure_sum",
        990,
        "client",
        3,
    )
    assert "990 clients" in str(claim)
    assert claim.epsilon <= 3 * QUIET.epsilon
    assert claim.sha256 == QUIET.sha256


def test_more_releases_cost_more_and_more_clients_cost_less():
    costs = [
        account_sum(BITS, clients=300, rounds=rounds, delta=1e-6).epsilon for rounds in (1, 2, 8)
    ]
    assert costs == sorted(costs)
    assert costs[2] < 8 * costs[0]
    assert account_sum(BITS, clients=600, rounds=2, delta=1e-6).epsilon < costs[1]


def test_participation():
    common = {"clients": 300, "rounds": 8, "delta": 1e-6}
    always = account_sum(BITS, **common).epsilon
    seen = account_sum(BITS, **common, sampling_rate=0.25)
    secret = account_sum(BITS, **common, sampling_rate=0.25, sampling="without_replacement")
    assert secret.epsilon < seen.epsilon < always
    assert secret.sampling == "without_replacement"
    assert (
        account_sum(BITS, clients=300, sampling="without_replacement", delta=1e-6).sampling
        == "none"
    )


def test_secret_poisson_participation_counts_only_those_who_came():
    # Exact: one round, absence adds the integer of value 0, each of the others is absent with probability 1/2.
    mechanism = Mechanism(
        knots=[-1, 1],
        levels=[-1, 0, 1],
        weights=np.array([[5 * 2**29, 2**30, 2**29], [2**29, 2**30, 5 * 2**29]]),
    )
    claim = account_sum(mechanism, clients=400, sampling_rate=0.5, sampling="poisson", delta=1e-2)
    table = mechanism.probabilities
    absent = np.array([0.0, 1.0, 0.0])
    mixed = 0.5 * absent + 0.5 * table
    rows = np.round(mixed * 2**32).astype(np.int64)
    shared = sum_pmf([np.ones(1), *[rows[0] / 2**32] * 200, *[rows[1] / 2**32] * 199])
    gain = np.convolve(shared, mixed[0]) - math.exp(claim.epsilon) * np.convolve(shared, mixed[1])
    assert np.maximum(gain, 0).sum() <= 1e-2
    assert claim.epsilon < account_sum(mechanism, clients=400, delta=1e-2).epsilon
    with pytest.raises(ParameterError, match="absent"):
        account_sum(QUIET, clients=40, sampling_rate=0.5, sampling="poisson", delta=1e-2)


def test_excess_is_right_from_tiny_to_large():
    import mpmath

    for alpha in (1.1, 2.0, 3.5, 20.0):
        for u in (-1.5, -1.0, -0.5, -1e-3, -1e-6, -1e-12, 0.0, 1e-12, 1e-6, 1e-4, 1e-2, 0.5, 3.0):
            with mpmath.workdps(60):
                exact = max(1 + mpmath.mpf(u), 0) ** alpha - 1 - mpmath.mpf(alpha) * u
            one, cell = np.ones(1), np.array([u])
            value = float(_mean_quotients(one, cell, cell, np.ones(2), alpha)[0])  # t = 1
            assert value >= exact
            assert (
                value <= float(exact) * (1 + 4e-3) + 1e-300
            )  # the series errs by 1e-4 of itself where it is used


@pytest.mark.parametrize("alpha", [1.05, 1.25, 1.5, 2.0, 3.0])
def test_quotients_bound_every_distance_within_their_bin(alpha):
    # Slopes so steep against the row that bins hold t u from -0.1 to -10: an order below 2 peaks inside a bin.
    row = np.array([0.02, 0.5, 0.48])
    slope = np.array([-1.0, 0.4, 0.6])
    distances = np.append(0.0, np.geomspace(1 / 32, 1, 6))
    bounds = pair_quotients(no_noise(), row, slope, distances, alpha)
    for near, far, bound in zip(distances[:-1], distances[1:], bounds, strict=True):
        inside = np.linspace(max(near, 1e-3), far, 400)
        exact = [float(row @ (np.maximum(1 + t * slope / row, 0) ** alpha - 1 - alpha * t * slope / row)) / t**2
                 for t in (*inside, *-inside)]  # fmt: skip
        assert max(exact) <= bound * (1 + 1e-9)
        assert bound <= 3 * max(exact)


@pytest.mark.parametrize("alpha", [1.5, 2.0, 6.0])
def test_quadratic_renyi_of_one_report_bounds_every_pair_of_inputs(alpha):
    for mechanism in (QUIET, pbm(lower=-1, upper=1, trials=4, theta=0.25, knots=9)):
        kappa = quadratic_renyi(mechanism, no_noise(), alpha)
        worst = 0.0
        inputs = np.linspace(-1, 1, 41)
        pmfs = mechanism.pmf(inputs)
        for i in range(41):
            for j in range(41):
                if i != j:
                    value = exact_renyi(pmfs[i], pmfs[j], [], alpha)
                    worst = max(worst, value / (inputs[i] - inputs[j]) ** 2)
        assert worst <= kappa <= 4 * worst


def test_quadratic_renyi_of_sums_bounds_every_data_set():
    rows, _ = lattice_rows(QUIET)
    blanket = max(candidate_blankets(rows), key=lambda b: b.variance)
    kappa = quadratic_renyi(QUIET, blanket_noise(blanket, 4, budget=300), 4.0)
    alone = quadratic_renyi(QUIET, no_noise(), 4.0)
    inputs = np.linspace(-1, 1, 9)
    pmfs = QUIET.pmf(inputs)
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(60):
        others = [pmfs[k] for k in rng.integers(0, 9, 4)]
        i, j = rng.choice(9, 2, replace=False)
        worst = max(
            worst, exact_renyi(pmfs[i], pmfs[j], others, 4.0) / (inputs[i] - inputs[j]) ** 2
        )
    assert worst <= kappa < alone


@pytest.mark.parametrize(
    "mechanism", [BITS, pytest.param(QUIET, marks=pytest.mark.slow)], ids=["bits", "rqm"]
)
def test_l2_vectors_cost_less_than_their_coordinates(mechanism):
    dimension, clip = 100, 1.0
    arguments = {"clients": 2000, "dimension": dimension, "rounds": 10, "delta": 1e-6}
    plain = account_sum(mechanism, **arguments)
    norm = account_sum(mechanism, **arguments, clip_norm=math.sqrt(dimension) * clip / 4)
    assert norm.epsilon < plain.epsilon / 3
    assert norm.method.startswith("Renyi")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"clients": 0}, "clients"),
        ({"clients": 10, "sampling_rate": 0.0}, "sampling_rate"),
        ({"clients": 10, "sampling_rate": 1.5}, "sampling_rate"),
        ({"clients": 10, "sampling": "shuffled"}, "sampling"),
        ({"clients": 10, "dimension": 0}, "dimension"),
        ({"clients": 10, "rounds": 1.5}, "rounds"),
        ({"clients": 10, "clip_norm": 0.0}, "clip_norm"),
        ({"clients": 10, "l2_norm": 1.0}, "l2_norm"),
        ({"clients": 10, "delta": -1e-6}, "delta"),
        ({"clients": 10, "delta": 1.0}, "delta"),
        ({"clients": 10, "delta": math.nan}, "delta"),
        ({"clients": 10, "sampling_rate": math.nan}, "sampling_rate"),
        ({"clients": math.nan}, "clients"),
        ({"clients": 10.5}, "clients"),
        ({"clients": True}, "clients"),
        ({"clients": 10**30}, "clients"),
        ({"clients": 10, "corrupted": 10}, "corrupted"),
        ({"clients": 10, "corrupted": 0.5}, "corrupted"),
        ({"clients": 10, "rounds": 10**400}, "rounds"),
    ],
)
def test_bad_input_is_named(arguments, match):
    with pytest.raises(ParameterError, match=match):
        account_sum(QUIET, **arguments)


def test_levels_off_every_lattice_and_huge_runs_get_clear_answers():
    off = Mechanism(
        knots=[-1, 1], levels=[-1, 0.123456789, 1], weights=np.array([[2**31, 2**30, 2**30]] * 2)
    )
    with pytest.raises(ParameterError, match="trust='local'"):
        account_sum(off, clients=10)
    table = randomized_response(lower=-1, upper=1, epsilon=1.0)
    assert account_sum(table, clients=1, delta=0.0).epsilon == table.epsilon
    huge = account_sum(table, clients=100, dimension=10**9, rounds=10**9, delta=1e-6)
    assert huge.epsilon <= 10**18 * table.epsilon * (1 + FEW)


def test_noise_of_clients_who_come_by_chance_is_not_counted_on() -> None:
    """Of a hundred clients who come with 1 in 10 only some ten add noise: the claim of a hundred would be too small."""
    shape: dict[str, Any] = {
        "delta": 1e-6,
        "trust": "secure_sum",
        "clients": 100,
        "sampling": "poisson",
    }
    scheme = vectors.GaussianScheme.planned(
        noise_multiplier=1.0, size=16, clip_norm=1.0, clients=100
    )
    with pytest.raises(ParameterError, match="absent clients add no noise"):
        privacy.account(privacy.Release(mechanism=scheme, sampling_rate=0.1, **shape))
    scheme = vectors.TableScheme(mechanism=QUIET, size=40, clip_norm=1.0, clients=100)
    release = privacy.Release(mechanism=scheme, sampling_rate=1.0, **shape)
    assert any("L2" in name for name, _ in privacy.account(release).alternatives)
    chance = privacy.Release(mechanism=scheme, sampling_rate=0.1, **shape)
    with pytest.raises(ParameterError, match="absent client adds 0"):
        privacy.account(chance)
