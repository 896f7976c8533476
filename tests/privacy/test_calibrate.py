"""From a budget for a whole release to a parameter, or to the reasons why there is none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from laws.registry import judges
from mezzotint import families
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.privacy import Calibration, Claim, Release, account, calibrate, calibration


def response(epsilon: float) -> Mechanism:
    return families.randomized_response(lower=-1, upper=1, epsilon=epsilon)


def gaussian(sigma: float) -> Mechanism:
    return families.discrete_gaussian(sigma=sigma).mechanism(lower=0, upper=1)


@dataclass(frozen=True)
class Plan:
    """The words of a release whose mechanism is still to be found."""

    words: dict[str, Any]

    def release(self, mechanism: Mechanism) -> Release:
        return Release(**{"mechanism": mechanism, "delta": 1e-6, **self.words})

    def account(self, mechanism: Mechanism) -> Claim:
        return account(self.release(mechanism))


@dataclass(frozen=True)
class Claimed:
    """Of a claim, the price alone."""

    epsilon: float


def planned(**words: Any) -> Plan:
    return Plan(words)


def calibrated(build: Callable[[float], Mechanism], *, plan: Plan, **asked: float) -> Calibration:
    return calibrate(lambda parameter: plan.release(build(parameter)), **asked)  # pyright: ignore[reportArgumentType]


@judges("privacy.calibration.calibrate")
@pytest.mark.parametrize(
    "plan",
    [planned(dimension=3, rounds=10), planned(rounds=50, delta=1e-9), planned(rounds=7, delta=0.0)],
)
def test_the_local_budget_is_used_up(plan: Plan) -> None:
    found = calibrated(response, epsilon=2.0, plan=plan, least_noise_at=5.0, most_noise_at=1e-3)
    # The parameter is found to a thousandth, along which epsilon grows by up to five times that.
    assert 2.0 * (1 - 5e-3) <= found.claim.epsilon <= 2.0
    assert found.claim == plan.account(found.release.mechanism)
    assert found.release.mechanism.sha256 == response(found.parameter).sha256
    assert plan.account(response(found.parameter * 1.003)).epsilon > 2.0
    assert found.tried[0] == (5.0, plan.account(response(5.0)).epsilon)


def test_pure_composition_in_closed_form() -> None:
    found = calibrated(
        response,
        epsilon=2.0,
        plan=planned(rounds=8, delta=0.0),
        least_noise_at=5.0,
        most_noise_at=1e-3,
        tolerance=1e-9,
    )
    assert found.parameter == pytest.approx(0.25, rel=1e-6)  # asked for 1e-9


def test_sums_and_a_parameter_that_grows_with_the_noise() -> None:
    plan = planned(rounds=5, trust="secure_sum", clients=100, delta=1e-6)
    found = calibrated(gaussian, epsilon=1.0, plan=plan, least_noise_at=0.5, most_noise_at=50.0)
    assert 0.99 <= found.claim.epsilon <= 1.0
    assert found.claim.trust == "secure_sum"
    # mu = sqrt(rounds / clients) / sigma of a Gaussian, at (1, 1e-6): sigma = 0.95 by its profile.
    mu = math.sqrt(5 / 100) / found.parameter
    # Epsilon is used up to 1 %; delta moves by a few percent with that.
    assert _gaussian_delta(mu, 1.0) == pytest.approx(1e-6, rel=0.05)


def _gaussian_delta(mu: float, epsilon: float) -> float:
    from scipy.stats import norm

    return float(
        norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


def test_a_budget_that_the_quiet_end_meets_needs_no_search() -> None:
    found = calibrated(
        response, epsilon=100.0, plan=planned(), least_noise_at=5.0, most_noise_at=1e-3
    )
    assert found.parameter == 5.0
    assert len(found.tried) == 1


@pytest.mark.slow
def test_what_would_do_does() -> None:
    plan = planned(dimension=300, rounds=40, delta=1e-6)
    with pytest.raises(InfeasibleError) as caught:
        calibrated(response, epsilon=1.0, plan=plan, least_noise_at=5.0, most_noise_at=0.2)
    message = str(caught.value)
    loudest, target = response(0.2), 1.0
    assert f"{plan.account(loudest).epsilon:.6g}" in message
    # 40 rounds of a single coordinate cost more than 1 already, so only rounds and coordinates together, or clients.
    assert "more noise than parameter=0.2" in message
    assert account(loudest, rounds=40, delta=1e-6).epsilon > target
    assert "dimension=" not in message
    crowd = re.search(r"trust='secure_sum' with clients=(\d+)", message)
    assert crowd is not None
    within = account(
        loudest, dimension=300, rounds=40, trust="secure_sum", clients=int(crowd[1]), delta=1e-6
    )
    assert within.epsilon <= target


def test_each_way_out_is_computed() -> None:
    plan = planned(dimension=30, trust="secure_sum", clients=300, delta=1e-6)
    with pytest.raises(InfeasibleError) as caught:
        calibrated(response, epsilon=1.0, plan=plan, least_noise_at=5.0, most_noise_at=1.0)
    message = str(caught.value)
    few = re.search(r"dimension=(\d+) instead of 30", message)
    crowd = re.search(r"clients=(\d+)", message)
    assert few is not None
    assert crowd is not None
    loudest, shared = response(1.0), {"trust": "secure_sum", "delta": 1e-6}
    most, many = int(few[1]), int(crowd[1])
    assert account(loudest, dimension=most, clients=300, **shared).epsilon <= 1.0
    assert (
        account(loudest, dimension=most + max(2, most // 40), clients=300, **shared).epsilon > 1.0
    )
    assert account(loudest, dimension=30, clients=many, **shared).epsilon <= 1.0
    assert account(loudest, dimension=30, clients=300, **shared).epsilon > 1.0
    assert "rounds=" not in message


def test_the_local_view_is_pointed_to_sums_when_they_would_do() -> None:
    with pytest.raises(
        InfeasibleError, match=r"rounds=\d+ instead of 400; or trust='secure_sum' with clients=\d+"
    ):
        calibrated(
            response, epsilon=1.0, plan=planned(rounds=400), least_noise_at=5.0, most_noise_at=0.2
        )
    with pytest.raises(InfeasibleError) as caught:
        calibrated(
            response,
            epsilon=0.1,
            plan=planned(sampling="poisson", sampling_rate=0.9),
            least_noise_at=5.0,
            most_noise_at=2.0,
        )
    assert "clients" not in str(caught.value)


def test_tables_off_every_lattice_are_not_pointed_to_sums() -> None:
    def uneven(epsilon: float) -> Mechanism:
        p = int(2**32 / (1 + math.exp(epsilon)) / 2) * 2
        row = np.array([2**32 - p, p // 2, p // 2])
        return Mechanism(
            knots=[-1, 1], levels=[-2.0, 0.1234567891, 2.0], weights=np.stack([row, row[::-1]])
        )

    with pytest.raises(InfeasibleError) as caught:
        calibrated(
            uneven, epsilon=0.5, plan=planned(rounds=50), least_noise_at=5.0, most_noise_at=1.0
        )
    assert "clients" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"least_noise_at": -1.0}, "least_noise_at"),
        ({"most_noise_at": 0.0}, "most_noise_at"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"plan": planned(delta=1.0)}, "delta"),
        ({"plan": planned(rounds=0)}, "rounds"),
        ({"plan": planned(trust="secure_sum")}, "clients"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, float], named: str) -> None:
    usual = {"epsilon": 1.0, "plan": planned(), "least_noise_at": 5.0, "most_noise_at": 0.1}
    with pytest.raises(ParameterError, match=f"{named}="):
        calibrated(response, **{**usual, **arguments})


def test_a_budget_that_an_end_meets_exactly_is_met() -> None:
    plan = planned(rounds=3, delta=0.0)
    quiet, loud = plan.account(response(2.0)).epsilon, plan.account(response(0.5)).epsilon
    assert calibrated(
        response, epsilon=quiet, plan=plan, least_noise_at=2.0, most_noise_at=0.5
    ).tried == ((2.0, quiet),)
    found = calibrated(response, epsilon=loud, plan=plan, least_noise_at=2.0, most_noise_at=0.5)
    assert found.parameter == pytest.approx(0.5, rel=1e-3)  # the tolerance of the search
    assert found.claim.epsilon <= loud


def test_ways_out_are_the_largest_numbers_and_crowds_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a release that costs one nat a round, and sums that cost the inverse root of their clients."""

    def priced(release: Release) -> Any:
        cost = (
            release.rounds
            if release.trust == "local"
            else 1e3 / math.sqrt(int(release.clients or 1))
        )
        return Claimed(epsilon=float(cost))

    monkeypatch.setattr(calibration, "account", priced)
    table = response(1.0)
    for rounds in range(2, 40):
        for budget in range(1, rounds):
            release = Release(mechanism=table, rounds=rounds, delta=0.0)
            assert calibration._largest_count("rounds", release, budget + 0.5) == budget
    far = calibration._largest_count(
        "rounds", Release(mechanism=table, rounds=10**9, delta=0.0), 123456.0
    )
    assert far is not None
    assert 123456 * 0.99 - 1 <= far <= 123456
    assert (
        calibration._largest_count("rounds", Release(mechanism=table, rounds=5, delta=0.0), 0.5)
        is None
    )
    for budget in (1.5, 7.0, 400.0):
        crowd = calibration._enough_clients(Release(mechanism=table, delta=0.0), budget)
        assert crowd is not None
        assert 1e3 / math.sqrt(crowd) <= budget
    assert calibration._enough_clients(Release(mechanism=table, delta=0.0), 1e-3) is None
