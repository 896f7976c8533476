"""Integer noise in secure sums: the n-fold convolution beside the papers' bounds, rationals and dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from mezzotint import families
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from mezzotint.papers import published_discrete_gaussian_renyi, published_skellam_renyi
from mezzotint.privacy import account
from mezzotint.privacy.divergences import rdp_to_epsilon
from mezzotint.privacy.sums import lattice_rows
from mezzotint.privacy.sums.blanket import additive_blanket
from mezzotint.privacy.sums.candidates import candidate_blankets
from reference.sums import exact_delta_fraction

ORDERS = 1 + np.geomspace(1e-2, 1e4, 2000)


def discrete_gaussian(sigma: float, sensitivity: int = 1) -> Mechanism:
    return families.discrete_gaussian(sigma=sigma).mechanism(lower=0, upper=sensitivity)


def skellam(variance: float, sensitivity: int = 1) -> Mechanism:
    return families.skellam(variance=variance).mechanism(lower=0, upper=sensitivity)


def published_sum_renyi(sigma: float, clients: int, alpha: float, sensitivity: int) -> float:
    """Kairouz, Liu and Steinke 2021, Theorem 1, one coordinate: the sum of discrete Gaussians is nearly one."""
    ladder = np.arange(1, clients)
    tau = 10 * float(np.exp(-2 * math.pi**2 * sigma**2 * ladder / (ladder + 1)).sum())
    ratio = sensitivity / (math.sqrt(clients) * sigma)
    return alpha / 2 * min(ratio**2 + tau / 2, (ratio + tau) ** 2)


@pytest.mark.parametrize(
    ("sigma", "clients", "sensitivity"), [(2.0, 10, 1), (1.0, 100, 2), (0.5, 50, 1), (3.0, 1000, 4)]
)
@pytest.mark.parametrize("rounds", [1, 20])
def test_the_convolution_is_below_both_papers_bounds(
    sigma: float, clients: int, sensitivity: int, rounds: int
) -> None:
    for delta in (1e-6, 1e-9):
        gaussian = min(
            rdp_to_epsilon(
                rounds * published_sum_renyi(sigma, clients, alpha, sensitivity), alpha, delta
            )
            for alpha in ORDERS.tolist()
        )
        variance = clients * sigma**2
        poisson = min(
            rdp_to_epsilon(
                rounds
                * published_skellam_renyi(variance=variance, alpha=alpha, sensitivity=sensitivity),
                alpha,
                delta,
            )
            for alpha in ORDERS.tolist()
        )
        asked = {"trust": "secure_sum", "clients": clients, "rounds": rounds, "delta": delta}
        ours = account(discrete_gaussian(sigma, sensitivity), **asked).epsilon
        assert 0.5 * gaussian < ours <= gaussian or sigma < 1
        assert 0 < ours <= gaussian
        assert 0.5 * poisson < account(skellam(sigma**2, sensitivity), **asked).epsilon <= poisson


@pytest.mark.parametrize("clients", [1, 2, 4])
def test_never_below_the_convolution_in_rationals_and_near_it(clients: int) -> None:
    for mechanism in (
        families.discrete_gaussian(sigma=0.8, bound=4).mechanism(lower=0, upper=1),
        families.skellam(variance=1.5, bound=5).mechanism(lower=0, upper=1),
        families.discrete_laplace(scale=1.0, bound=5).mechanism(lower=0, upper=2),
    ):
        rows, _ = lattice_rows(mechanism)
        for delta in (1e-2, 1e-3):
            epsilon = account(mechanism, trust="secure_sum", clients=clients, delta=delta).epsilon
            if math.isinf(epsilon):
                assert exact_delta_fraction(rows, clients, Fraction(10**30)) > Fraction(delta)
                continue
            exact = exact_delta_fraction(rows, clients, Fraction(math.exp(epsilon)))
            assert exact <= Fraction(delta)
            before = exact_delta_fraction(
                rows, clients, Fraction(math.exp(max(epsilon - 1e-3, 0.0)))
            )
            assert before > Fraction(delta)


@pytest.mark.parametrize("sigma", [1.0, 2.5])
@pytest.mark.parametrize("rounds", [1, 12])
def test_one_report_agrees_with_dp_accountings_discrete_gaussian(sigma: float, rounds: int) -> None:
    theirs = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        sigma, sensitivity=1, value_discretization_interval=1e-4
    ).self_compose(rounds)
    for delta in (1e-4, 1e-6):
        ours = account(discrete_gaussian(sigma), rounds=rounds, delta=delta).epsilon
        # Our table is rounded to 2**-32 and cut at 7 sigma: 3e-12 of escaping mass, as certain disclosure.
        assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=2e-3)


@pytest.mark.parametrize(("sigma", "clients"), [(1.0, 25), (2.0, 400)])
def test_sums_agree_with_dp_accountings_discrete_gaussian_of_their_variance(
    sigma: float, clients: int
) -> None:
    # From sigma = 1 on, sums of discrete Gaussians are discrete Gaussians up to e**-19.
    theirs = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        sigma * math.sqrt(clients), sensitivity=1, value_discretization_interval=1e-5
    )
    for delta in (1e-4, 1e-6):
        ours = account(
            discrete_gaussian(sigma), trust="secure_sum", clients=clients, delta=delta
        ).epsilon
        # Theirs discretizes losses by 1e-5, and ours cuts the tail.
        assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=2e-3)


def test_single_rows_of_the_renyi_bounds() -> None:
    # The paper's bound of one discrete Gaussian is its n = 1 case.
    assert published_sum_renyi(2.0, 1, 3.0, 1) == pytest.approx(
        published_discrete_gaussian_renyi(sigma=2.0, alpha=3.0, sensitivity=1)
    )


def test_the_whole_noise_is_found_where_it_is_additive_and_nowhere_else() -> None:
    rows, _ = lattice_rows(discrete_gaussian(1.0, 3))
    (blanket,) = candidate_blankets(rows)
    assert blanket.components[0].mass == TOTAL
    assert blanket.is_valid_for(rows)
    other, _ = lattice_rows(families.rqm(levels=4, lower=-1, upper=1, extension=1.0, q=0.42))
    assert additive_blanket(other) is None
    # The same support, another shape.
    assert additive_blanket(np.array([[1, TOTAL - 1, 0], [0, 2, TOTAL - 2]])) is None
    pushed = additive_blanket(np.array([[TOTAL, 0], [0, TOTAL]]))
    assert pushed is not None
    assert pushed.variance == 0
