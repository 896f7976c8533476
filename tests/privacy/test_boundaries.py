"""Comparisons of the accountants at equality, and the words of claims, where the mutants of each differ."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from mezzotint import Mechanism, ParameterError, families
from mezzotint.core.types import TOTAL
from mezzotint.privacy import Release, account
from mezzotint.privacy.accounting import prove, report_words
from mezzotint.privacy.charges import GLOBAL, Charge, Total
from mezzotint.privacy.claim import Claim, nameless
from mezzotint.privacy.local import (
    PURE,
)
from mezzotint.privacy.propose import Outcome, accepted, propose_local, sealed
from mezzotint.privacy.sums.cost import _single
from reference.kernel import claim as kernel_claim, release as kernel_release
from tolerances import FEW


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        *[("epsilon", value, "number >= 0") for value in (-1.0, True, "1", None)],
        *[("delta", value, "in \\[0, 1]") for value in (2.0, False, "0", None)],
    ],
)
def test_prices_say_what_they_must_be(field: str, value: Any, remedy: str) -> None:
    with pytest.raises(ParameterError, match=remedy):
        Charge(
            **{
                "identity": "a",
                "client": GLOBAL,
                "epsilon": 1.0,
                "delta": 0.0,
                "description": "",
                field: value,
            }
        )


def test_columns_of_one_table_have_its_hash_and_others_have_none() -> None:
    one, other = (
        families.randomized_response(epsilon=1.0),
        families.randomized_response(epsilon=2.0),
    )
    assert account({"a": one, "b": one}, delta=0.0).sha256 == one.sha256
    assert account({"a": one, "b": other}, delta=0.0).sha256 == ""
    assert account({"a": one, "b": other}, delta=0.0).epsilon == pytest.approx(
        3.0, rel=1e-8
    )  # the two tables' weights: units of 2^-32 over probabilities of a tenth


def _sum_claim(clients: int) -> Claim:
    return account(
        families.randomized_response(epsilon=1.0), trust="secure_sum", clients=clients, delta=1e-6
    )


def test_claims_say_who_adds_randomness_and_what_is_seen() -> None:
    assert "if no client but the one protected adds honest randomness" in str(_sum_claim(1))
    assert "if 7 clients add honest randomness" in str(_sum_claim(7))
    local = str(account(families.randomized_response(epsilon=1.0), rounds=3))
    assert "in 3 rounds" in local
    assert "honest randomness" not in local
    seen = {"sampling_rate": 0.5, "delta": 1e-6}
    everybody = "without the record a report is sent all the same"
    response = families.randomized_response(epsilon=1.0)
    assert everybody not in str(account(response, **seen))
    assert everybody in str(account(response, sampling="poisson", **seen))


TWO = Mechanism(knots=[0, 1], levels=[0, 1], weights=[[3 * 2**30, 2**30], [2**30, 3 * 2**30]])  # pyright: ignore[reportArgumentType]


def test_what_the_kernel_refuses_has_no_file_and_a_reason() -> None:
    described = kernel_release(TWO)

    def ratio(claim: Any) -> Any:
        return sealed(claim, "ratio", tables=[TWO.canonical()])

    refused = accepted(described, 0.5, 0.0, ratio)
    assert refused.proof is None
    assert refused.text is None
    assert "epsilon is too small" in refused.reason
    held = accepted(described, 1.1, 0.0, ratio)
    assert '"proof"' in (held.text or "")
    assert isinstance(held, Outcome)
    assert "no bound is finite" in accepted(described, math.inf, 0.0, ratio).reason
    assert kernel_claim(described, "1.1").sha256 == held.claim.sha256


@pytest.mark.parametrize(
    ("release", "kind"),
    [
        ({"delta": 0.0, "epsilon": 1.1}, "ratio"),
        # Near the least epsilons, log 2 and 0: above them one Renyi order proves less than is asked for.
        ({"delta": 0.25, "epsilon": 0.6932}, "delta"),
        ({"delta": 0.25, "epsilon": 1e-6, "sampling_rate": 0.5}, "delta"),
        ({"delta": 0.25, "epsilon": 0.4, "sampling": "poisson", "sampling_rate": 0.5}, "losses"),
        ({"delta": 0.25, "epsilon": 1.4, "rounds": 2}, "losses"),
        ({"delta": 1e-9, "epsilon": 2.19, "rounds": 2}, "ratio"),
        ({"delta": 1e-9, "epsilon": 2.2, "rounds": 2}, "ratio"),
        (
            {
                "delta": 1e-9,
                "epsilon": 90.0,
                "rounds": 2,
                "sampling": "poisson",
                "sampling_rate": 0.5,
            },
            "ratio",
        ),
    ],
)
def test_each_release_has_the_proof_that_suits_it(release: dict[str, Any], kind: str) -> None:
    epsilon = release.pop("epsilon")
    proof = propose_local(Release(mechanism=TWO, **release), epsilon).proof
    assert proof is not None
    assert proof["kind"] == kind


def test_pure_composition_is_certified_where_it_costs_less_than_losses() -> None:
    """A hundred reports at a delta that no loss is worth: 100 epsilon, and not the grid's more."""
    response = families.randomized_response(lower=-1, upper=1, epsilon=0.45)
    for computed in (45.0446, 44.9999, 44.99):
        outcome = propose_local(Release(mechanism=response, delta=1e-30, rounds=100), computed)
        assert outcome.proof is not None
        assert outcome.proof["kind"] == "ratio"
        assert float(outcome.claim.epsilon) <= 100 * response.epsilon * (1 + FEW)
    claim, proof = prove(response, rounds=100, delta=1e-30)
    assert proof is not None
    assert claim.certified
    assert claim.epsilon <= 100 * response.epsilon * (1 + FEW)


def test_what_is_in_doubt_between_two_raises_is_halved() -> None:
    """One report of epsilon log 2 at delta 1/4, computed 0.3 to 2 % too low: found again to 0.06 %."""
    for short in (0.997, 0.993, 0.98):
        outcome = propose_local(Release(mechanism=TWO, delta=0.25), math.log(2) * short)
        assert outcome.proof is not None
        # As said.
        assert math.log(2) <= float(outcome.claim.epsilon) <= math.log(2) * (1 + 6e-4)


def test_pure_totals_of_sampled_reports() -> None:
    """In secret: log(1 + r (e^E - 1)) a round; seen to be absent: nothing off."""
    every = Release(mechanism=TWO, dimension=3, rounds=2, delta=0.0)
    seen = replace(every, sampling_rate=0.1)
    unseen = replace(seen, sampling="poisson")
    for release in (every, seen):
        assert release.over_rounds(1.5) == 3.0
    secret = 2 * math.log(1 + 0.1 * (math.exp(1.5) - 1))
    assert secret <= unseen.over_rounds(1.5) <= secret * (1 + FEW)
    assert unseen.over_rounds(3e3) == 6e3
    assert every.over_rounds(math.inf) == math.inf


def test_a_budget_that_is_just_met_is_kept() -> None:
    total = Total()
    for k in range(100):
        total.add(Charge(identity=str(k), client=GLOBAL, epsilon=0.01, delta=0.0, description=""))
    least = total._advanced(1e-6)
    assert least < 1
    assert total.within(least, 1e-6, 1e-6)
    assert not total.within(math.nextafter(least, 0), 1e-6, 1e-6)
    assert not total.within(least, math.nextafter(1e-6, 0), 1e-6)
    assert total.within(math.nextafter(float(total.epsilon), 2), 0.0, 0.0)
    assert not total.within(math.nextafter(float(total.epsilon), 0), 0.0, 0.0)


def test_norms_and_distinct_values_at_the_edge() -> None:
    crowd = {"mechanism": TWO, "trust": "secure_sum", "clients": 5, "delta": 1e-6}
    assert Release(**crowd, clip_norm=1.0).clip_norm == 1.0
    for norm in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ParameterError, match="clip_norm"):
            Release(**crowd, clip_norm=norm)
    with pytest.raises(ParameterError, match="per coordinate"):
        Release(**{**crowd, "trust": "shuffler"}, clip_norm=1.0)
    for distinct in (1, 3):
        assert Release(mechanism=TWO, rounds=3, distinct=distinct, delta=0.0).distinct == distinct
    for distinct in (0, 4):
        with pytest.raises(ParameterError, match="distinct"):
            Release(mechanism=TWO, rounds=3, distinct=distinct, delta=0.0)


@pytest.mark.parametrize("levels", [[0.0, 1.0], [-1.0, 0.0]])
def test_silence_may_be_the_first_or_the_last_level_and_few_others_are_allowed_for(
    levels: list[float],
) -> None:
    mechanism = Mechanism(knots=[0, 1], levels=levels, weights=TWO.weights)  # pyright: ignore[reportArgumentType]
    run = Release(
        mechanism=mechanism,
        trust="secure_sum",
        clients=60,
        sampling="poisson",
        sampling_rate=0.5,
        delta=1e-6,
    )
    curve, missed = _single(run, 1e-6)
    # So few others that this is as rare as a thousandth of delta at most, and not never.
    assert 0 < missed <= 1e-9
    assert 0 < float(curve.delta(0.0)) < 1


def test_silence_that_is_no_level_is_refused() -> None:
    for levels in ([1.0, 2.0], [-2.0, -1.0], [-0.5, 1.0]):
        mechanism = Mechanism(knots=[0, 1], levels=levels, weights=TWO.weights)  # pyright: ignore[reportArgumentType]
        run = Release(
            mechanism=mechanism,
            trust="secure_sum",
            clients=10,
            sampling="poisson",
            sampling_rate=0.5,
            delta=1e-6,
        )
        with pytest.raises(ParameterError, match="an absent client adds 0"):
            _single(run, 1e-6)


def test_certificates_say_whether_there_is_an_epsilon() -> None:
    never = Mechanism(knots=[0, 1], levels=[0, 1], weights=[[TOTAL, 0], [2**31, 2**31]])  # pyright: ignore[reportArgumentType]
    assert "has no pure epsilon: level 1 has mass in row 1 and none in row 0" in str(
        never.certificate()
    )
    assert "epsilon = log(3221225472/1073741824)" in str(TWO.certificate())
    assert report_words(never) == str(never.certificate())
    assert f" of table {TWO.sha256[:12]}. " in report_words(TWO)


def test_what_a_model_shows_names_no_rounds_and_what_reports_show_does() -> None:
    claim = account(TWO, rounds=3, sampling_rate=0.5, delta=1e-6)
    assert "in 3 rounds, taking part in each round with probability 0.5" in str(claim)
    assert "in 3 rounds" in str(replace(claim, released="copies"))
    model = str(replace(claim, released="one model", observer="model"))
    assert "one model, to an observer of what is published alone" in model
    assert "round" not in model.split(" by ")[0]


def test_proofs_are_about_tables_without_names() -> None:
    named = families.categorical(categories=["a", "b", "c"], epsilon=1.0)
    plain = nameless(named)
    assert plain.categories is None
    assert (plain.weights == named.weights).all()
    assert nameless(plain) is plain


def test_pure_costs_of_many_reports_add_up_rounded_up() -> None:
    table = families.randomized_response(epsilon=0.7)
    for rounds in range(2, 80):
        run = Release(mechanism=table, rounds=rounds, delta=0.0)
        secret = replace(run, sampling="poisson", sampling_rate=0.3)
        assert Fraction(run.pure) >= rounds * Fraction(table.epsilon)
        single = replace(secret, rounds=1).pure
        assert Fraction(secret.pure) >= rounds * Fraction(single)


def test_a_certified_claim_names_the_method_of_its_proof() -> None:
    for delta, kind in ((0.0, "ratio"), (0.25, "delta")):
        claim, proof = prove(TWO, delta=delta)
        assert proof is not None
        assert proof["kind"] == kind
        assert (claim.method == PURE) == (kind == "ratio")
        assert claim.checked is not None
        assert claim.checked.statement["delta"] == ("0" if delta == 0 else "0.25")


def test_a_table_without_pure_epsilon_is_proposed_by_its_delta() -> None:
    never = Mechanism(knots=[0, 1], levels=[0, 1], weights=[[TOTAL, 0], [2**31, 2**31]])  # pyright: ignore[reportArgumentType]
    outcome = propose_local(Release(mechanism=never, delta=0.5), 0.25)
    assert outcome.proof is not None
    assert outcome.proof["kind"] == "delta"
