"""Central bounds of one sum against enumeration of every other client's input."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from laws.registry import judges
from mezzotint import ParameterError
from mezzotint.core.loss import delta as local_delta, pure_epsilon
from mezzotint.families import rqm
from mezzotint.privacy.sums import lattice_rows
from mezzotint.privacy.sums.blanket import as_probabilities
from mezzotint.privacy.sums.candidates import candidate_blankets
from mezzotint.privacy.sums.cost import central_epsilon, dominating_profile
from mezzotint.privacy.sums.noise import blanket_noise, pair_profile, screen
from reference.sums import exact_delta, exact_delta_fraction, random_rows, sum_pmf
from reference.witness import find_witness
from tolerances import FEW

EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0])


def check_one_table(seed: int) -> list[float]:
    """Every blanket, the curve and the epsilon of one random table against enumeration; ratios of the curve."""
    rng = np.random.default_rng(seed)
    rows, clients = random_rows(rng), int(rng.integers(2, 7))
    exact = np.array([exact_delta(rows, clients, epsilon) for epsilon in EPSILONS])
    table = as_probabilities(rows)
    pairs = [(i, j) for i in range(len(rows)) for j in range(len(rows)) if i != j]
    for blanket in candidate_blankets(rows):
        noise = blanket_noise(blanket, clients - 1, budget=300)
        bound = np.max(
            [pair_profile(noise, table[i], table[j]).deltas(EPSILONS) for i, j in pairs], axis=0
        )
        assert (bound >= exact * (1 - FEW)).all(), (seed, blanket.name)
        each = max(pair_profile(noise, table[i], table[j]).epsilon(1e-2) for i, j in pairs)
        if math.isfinite(each):
            assert exact_delta(rows, clients, each) <= 1e-2 * (1 + FEW), (seed, blanket.name)
        assert screen(noise, table, 0.5).max() >= exact[2] * (1 - FEW)
    curve = dominating_profile(rows, clients=clients, delta=1e-9).deltas(EPSILONS)
    assert (curve >= exact * (1 - FEW)).all(), seed
    local = np.array([local_delta(rows, epsilon) for epsilon in EPSILONS])
    # Chords between the points of the curve lie above the local curve by no more.
    assert (curve <= local * (1 + 1e-3) + FEW).all(), seed
    for target in (1e-2, 1e-4):
        bound = central_epsilon(rows, clients=clients, delta=target)
        witness = find_witness(rows, clients=clients, delta=target)
        assert witness.epsilon <= bound.epsilon
        if math.isfinite(bound.epsilon):
            assert exact_delta(rows, clients, bound.epsilon) <= target * (1 + FEW), seed
        # Within a hair below the witness's epsilon the data set still exceeds delta.
        if witness.epsilon > 0:
            assert exact_delta(rows, clients, max(0.0, witness.epsilon - 1e-9)) > target
    return [c / e for c, e in zip(curve, exact, strict=True) if e > 1e-6]


@judges(
    "privacy.profile.Profile.of_pair",
    "privacy.sums.noise.blanket_noise",
    "privacy.sums.noise.mixture",
    "privacy.sums.noise.pair_profile",
)
@pytest.mark.parametrize("seed", range(12))
def test_never_below_the_exact_worst_case(seed):
    check_one_table(seed)


@pytest.mark.slow
def test_never_below_the_exact_worst_case_on_200_tables_and_usually_near_it():
    ratios = [ratio for seed in range(200) for ratio in check_one_table(1000 + seed)]
    assert np.median(ratios) < 1.3


@pytest.mark.parametrize("seed", range(3))
def test_the_float_reference_agrees_with_rationals(seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, rows=2, levels=3)
    ratio = Fraction(math.exp(0.5))
    assert float(exact_delta_fraction(rows, 3, ratio)) == pytest.approx(
        exact_delta(rows, 3, 0.5), rel=FEW
    )


def test_one_client_is_the_local_view():
    rows = random_rows(np.random.default_rng(7), rows=3, levels=4)
    for target in (0.0, 1e-6, 0.05):
        bound = central_epsilon(rows, clients=1, delta=target)
        assert local_delta(rows, bound.epsilon) <= target
        if bound.epsilon > 1e-3:
            assert local_delta(rows, bound.epsilon * (1 - 1e-3)) > target


def test_delta_zero_is_pure_epsilon_and_corrupted_clients_add_nothing():
    rows, _ = lattice_rows(rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42))
    assert central_epsilon(rows, clients=1000, delta=0.0).epsilon == pure_epsilon(rows)
    for few in (1, 50):
        alone = central_epsilon(rows, clients=few, delta=1e-6).epsilon
        assert central_epsilon(rows, clients=100 + few, corrupted=100, delta=1e-6).epsilon == alone


# Table of the sums note: epsilon at delta = 1e-6 of the best bound and of the witness data set.
REFERENCE = [
    pytest.param(16, 40, 3.97, 3.16, marks=pytest.mark.slow),
    pytest.param(16, 10**3, 0.646, 0.576, marks=pytest.mark.slow),
    pytest.param(16, 10**5, 0.0503, 0.0481, marks=pytest.mark.slow),
    pytest.param(16, 10**6, 0.01425, 0.0138, marks=pytest.mark.slow),
    (4, 40, 1.43, 1.32),
    pytest.param(4, 10**3, 0.224, 0.202, marks=pytest.mark.slow),
    pytest.param(4, 10**5, 0.0184, 0.0162, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("levels", "clients", "upper", "lower"), REFERENCE)
def test_reference_table(levels, clients, upper, lower):
    rows, _ = lattice_rows(rqm(lower=-1, upper=1, levels=levels, extension=1.0, q=0.42))
    bound = central_epsilon(rows, clients=clients, delta=1e-6).epsilon
    witness = find_witness(rows, clients=clients, delta=1e-6)
    assert bound <= upper
    assert witness.epsilon == pytest.approx(lower, rel=5e-3)  # of the three printed digits
    assert witness.epsilon <= bound


def test_the_witness_is_what_it_says():
    rows, _ = lattice_rows(rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42))
    witness = find_witness(rows, clients=40, delta=1e-6)
    table = rows / 2.0**32
    shared = sum_pmf([table[k] for k, count in enumerate(witness.others) for _ in range(count)])
    first = np.convolve(shared, table[witness.row_first])
    second = np.convolve(shared, table[witness.row_second])
    assert sum(witness.others) == 39
    # The witness ends its bisection there.
    assert np.maximum(first - math.exp(witness.epsilon) * second, 0).sum() == pytest.approx(
        1e-6, rel=1e-6
    )


def test_small_deltas_stay_accurate():
    # Two-level randomized response: given the others, the sum is a shifted binomial; the bound is near its witness.
    weights = np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
    epsilons = []
    for target in (1e-6, 1e-9, 1e-12):
        bound = central_epsilon(weights, clients=10**4, delta=target).epsilon
        witness = find_witness(weights, clients=10**4, delta=target).epsilon
        assert witness <= bound <= 1.35 * witness
        epsilons.append(bound)
    assert epsilons == sorted(epsilons)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"clients": 0, "delta": 1e-6}, "clients"),
        ({"clients": 2.5, "delta": 1e-6}, "clients"),
        ({"clients": 10, "delta": 1e-6, "corrupted": 10}, "corrupted"),
        ({"clients": 10, "delta": 1e-6, "corrupted": -1}, "corrupted"),
        ({"clients": 10, "delta": 1.0}, "delta"),
        ({"clients": 10, "delta": float("nan")}, "delta"),
    ],
)
def test_bad_input_is_named(arguments, match):
    with pytest.raises(ParameterError, match=match):
        central_epsilon(np.array([[2**31, 2**31], [2**30, 3 * 2**30]]), **arguments)
