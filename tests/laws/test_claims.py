"""Every claim of the house says who sees what, and who is trusted with what, in its fields and in its words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError, families
from mezzotint.federated import Sums
from mezzotint.federated.encoding import gaussian_encoding
from mezzotint.privacy import Charge, Release, account, report_claim
from mezzotint.privacy.claim import TRUSTED, Claim
from mezzotint.training.rqp import Phase, Poisson, training_release
from mezzotint.vectors import TableScheme
from tolerances import MANY

TABLE = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
SUMS = Sums(size=4, clients=9, rounds=2, delta=1e-5)


def encoded() -> dict[str, Claim]:
    encoding = gaussian_encoding(noise_multiplier=2.0, clip_norm=1.0, clients=9, size=4)
    return encoding.claims(SUMS)


CLAIMS: dict[str, tuple[Callable[[], Any], str]] = {
    "reports": (lambda: account(TABLE, rounds=3), "reports"),
    "records": (lambda: account(TABLE, sampling_rate=0.5, sampling="poisson"), "reports"),
    "secure sum": (lambda: account(TABLE, trust="secure_sum", clients=5), "secure_sum"),
    "table scheme": (lambda: TableScheme(mechanism=TABLE, size=2, clients=5).claim(clients=5), "secure_sum"),
    "clients' noise, seen": (lambda: encoded()["local"], "reports"),
    "clients' noise, summed": (lambda: encoded()["central"], "secure_sum"),
    "record": (lambda: report_claim({"age": TABLE}), "reports"),
    "longitudinal": (lambda: account(Release(mechanism=TABLE, rounds=5, distinct=2, delta=0.0)), "reports"),
    "training": (
        lambda: account(
            training_release(
                [Phase(noise_multiplier=1.0, kappa=1.0, sampling=Poisson(rate=0.01), steps=10)], delta=1e-5
            )
        ),
        "model",
    ),
}  # fmt: skip
OBSERVERS = {
    "reports": "every single report",
    "secure_sum": "secure sums alone",
    "model": "published",
}


@pytest.mark.parametrize("rate", [1 / 3, 2 / 3, 256 / 60_000, 1 - 1e-9])
def test_a_sentence_is_true_of_the_numbers_that_it_prints(rate: float) -> None:
    """Rates are printed rounded down and noise up: the release as printed costs no more."""
    noise, kappa = 4 / 3, 5 / 9
    phase = Phase(noise_multiplier=noise, kappa=kappa, sampling=Poisson(rate=rate), steps=10)
    sentence = str(account(training_release([phase], delta=1e-5)))
    pattern = (
        r"noise multiplier (\S+) contracted by kappa (\S+), Poisson sampling at rate ([\d.e-]+\d)"
    )
    printed = re.search(pattern, sentence)
    assert printed is not None, sentence
    assert float(printed[1]) >= noise
    assert float(printed[2]) <= kappa
    assert 0.99999 * rate <= float(printed[3]) <= rate
    for sampling in ("public", "poisson"):
        claim = replace(account(TABLE), sampling=sampling, sampling_rate=rate)
        printed = re.search(r"with probability ([\d.e-]+\d)[, ]", str(claim))
        assert printed is not None, str(claim)
        assert 0.99999 * rate <= float(printed[1]) <= rate


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_say_who_sees_what_and_who_is_trusted(name: str) -> None:
    make, observer = CLAIMS[name]
    claim = make()
    trust = {"reports": "local", "secure_sum": "secure_sum", "model": "central"}[observer]
    assert (claim.observer, claim.trust) == (observer, trust)
    fields = claim.as_dict()
    assert (fields["observer"], fields["trust"]) == (observer, trust)
    assert json.loads(json.dumps(fields))["trust"] == trust
    assert OBSERVERS[observer] in str(claim)
    assert not any(words in str(claim) for other, words in OBSERVERS.items() if other != observer)
    assert TRUSTED[trust] in str(claim)
    assert isinstance(claim, Claim)


def test_a_seeded_claim_is_called_a_simulation_and_has_no_price() -> None:
    claim = replace(account(TABLE), seeded=True)
    assert str(claim).startswith("Simulation; not private")
    assert claim.as_dict()["seeded"] is True
    with pytest.raises(ParameterError, match="seeded"):
        Charge.of(claim, identity="a")


def test_records_are_never_printed_with_less_than_they_cost() -> None:
    mechanism = families.randomized_response(lower=0, upper=1, epsilon=1.0000004)
    for claim in (report_claim({"a": mechanism}), account(mechanism, rounds=1, delta=0.0)):
        shown = [float(number) for number in re.findall(r"\d+\.\d+(?:e-?\d+)?", str(claim))]
        assert not np.isclose(shown, mechanism.epsilon, rtol=MANY).any()
        # Six digits, rounded up.
        assert any(mechanism.epsilon <= value <= mechanism.epsilon * (1 + 1e-5) for value in shown)
