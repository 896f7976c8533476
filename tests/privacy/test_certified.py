"""A certificate says nothing about any release but its own: no field may differ, stronger or weaker."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mezzotint import Mechanism, ParameterError, families, kernel, vectors
from mezzotint.core.types import TOTAL
from mezzotint.kernel.claim import stamp
from mezzotint.privacy import Claim, Release, account, prove
from mezzotint.training import rqp
from mezzotint.training.sampling import WithReplacement
from mezzotint.vectors.gaussian import GaussianScheme

TABLE = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
OTHER = families.randomized_response(lower=-1, upper=1, epsilon=0.5)
UNEVEN = Mechanism(
    knots=np.array([-1.0, 5.0]),
    levels=np.array([-1.0, 0.0, 5.0]),
    weights=np.array([[TOTAL // 2, TOTAL // 4, TOTAL // 4], [TOTAL // 4, TOTAL // 4, TOTAL // 2]]),
)


def _run(records: int = 1, rate: float = 0.5, steps: int = 2) -> Release:
    phase = rqp.Phase(
        noise_multiplier=2.0,
        kappa=1.0,
        sampling=rqp.Poisson(rate=rate, records_per_user=records),
        steps=steps,
    )
    return rqp.training_release([phase], delta=1e-3)


def _sum(**more: Any) -> Release:
    return Release(mechanism=UNEVEN, trust="secure_sum", clients=3, delta=0.0, **more)


RELEASES: dict[str, Release] = {
    "reports": Release(mechanism=TABLE, delta=0.0, dimension=2, rounds=3),
    "public": Release(mechanism=TABLE, delta=0.0, sampling_rate=0.5),
    "secret records": Release(mechanism=TABLE, delta=0.0, sampling="poisson", sampling_rate=0.5),
    "memoised": Release(mechanism=TABLE, delta=0.0, rounds=4, distinct=2),
    "columns": Release(mechanism={"a": TABLE, "b": OTHER, "c": TABLE}, delta=0.0),
    "sums": _sum(rounds=2),
    "ranks": Release(mechanism=vectors.ranked_codebook(8, 2.0, 4), delta=0.0, rounds=2),
    "training": _run(),
    "full batches": _run(rate=1.0),
    "users": _run(records=2),
}

# Of every field of a kernel's release, values that no honest certificate above has.
CHANGES: dict[str, tuple[Any, ...]] = {
    "observer": ("reports", "secure_sum", "model"),
    "tables": (((OTHER.sha256, 1),), ((UNEVEN.sha256, 7),)),
    "rounds": (1, 5),
    "sampling": ("none", "public", "poisson"),
    "rate": (Fraction(1, 4), Fraction(3, 4)),
    "neighboring": ("replace_one", "add_or_remove_one"),
    "distinct": (0, 1, 3),
    "clients": (2, 4),
    "corrupted": (1, 2),
    "lattice": ((0, 1, 2), (0, 2, 12), ()),
    "noise_multiplier": (Fraction(1), Fraction(3)),
    "kept": (Fraction(1, 2),),
    "levels": (4,),
    "records_per_user": (1, 3),
    "seeded": (True,),
}


@pytest.fixture(scope="module", params=RELEASES)
def honest(request: pytest.FixtureRequest) -> Claim:
    claim, proof = prove(RELEASES[request.param])
    assert proof is not None, claim.reason
    assert claim.certified
    return claim


def _forged(claim: Claim, exact: kernel.ExactRelease) -> Claim:
    """The claim with what the kernel would say of another release, had it been proved."""
    assert claim.checked is not None
    said = kernel.ExactClaim(release=exact, statement=claim.checked.statement)
    return replace(claim, checked=stamp(said))


def test_a_certificate_that_differs_in_one_field_certifies_nothing(honest: Claim) -> None:
    checked = honest.checked
    assert checked is not None
    exact = checked.release
    assert exact is not None
    assert _forged(honest, exact).certified
    assert CHANGES.keys() == {field.name for field in fields(kernel.ExactRelease)}
    for name, values in CHANGES.items():
        others = [value for value in values if value != getattr(exact, name)]
        assert others, name
        for value in others:
            other = replace(exact, **{name: value})
            assert not _forged(honest, other).certified, (name, value)


_SHOWN: dict[str, tuple[Any, ...]] = {
    "epsilon": (0.01, float("inf"), float("nan")),
    "delta": (-1.0, float("nan")),
    "neighboring": ("replace_one", "add_or_remove_one"),
    "unit": ("client", "user"),
    "observer": ("reports", "secure_sum", "model", "shuffled"),
    "honest_clients": (None, 1, 9),
    "sampling": ("none", "public", "poisson", "without_replacement"),
    "sampling_rate": (0.25, 0.75, float("nan")),
    "dimension": (5, 7),
    "rounds": (1, 7),
    "seeded": (True,),
    "release": (None, Release(mechanism=TABLE, delta=0.0, rounds=9)),
    "checked": (None,),
    "sha256": ("", OTHER.sha256),
    "released": ("", "nothing", "one bit of which nobody learns anything"),
    "between": ("", "some"),
    "parts": ((), (("a", 0.0),), (("noise", 0.01), ("everything else", 0.0))),
}
# What was not checked: how a number was computed, and other numbers. No certified sentence has any of it.
_UNCHECKED = {
    "method": "a check of everything by everybody",
    "alternatives": (("magic", 1e-9),),
    "reason": "it is free",
}


def test_a_claim_that_says_otherwise_than_its_release_is_not_certified(honest: Claim) -> None:
    assert _SHOWN.keys() | _UNCHECKED.keys() == {field.name for field in fields(Claim)}
    for name, values in _SHOWN.items():
        others = [value for value in values if value != getattr(honest, name)]
        assert others, name
        for value in others:
            other = replace(honest, **{name: value})
            assert not other.certified, (name, value)
            assert not str(other).startswith("Certified"), (name, value)
    assert replace(honest, epsilon=2 * honest.epsilon).certified


def test_a_certified_sentence_holds_no_word_that_was_not_checked(honest: Claim) -> None:
    """Whatever may be replaced while the claim stays certified changes no more than what it claims."""
    sentence = str(honest)
    assert sentence.startswith(("Certified: ", "Simulation"))
    for name, value in _UNCHECKED.items():
        other = replace(honest, **{name: value})
        assert other.certified
        assert str(other) == sentence, name
    for name in ("epsilon", "delta"):
        weaker = replace(honest, **{name: 2 * getattr(honest, name) + 0.5})
        assert weaker.certified
        assert str(weaker) != sentence


def test_a_release_states_nothing_that_its_accounting_does_not_count() -> None:
    """Ten runs, a shuffler of what is summed, a norm that nobody clips to: each would cost too little."""
    run = _run()
    vectors_summed = (
        GaussianScheme.planned(noise_multiplier=2.0, size=4, clip_norm=1.0, clients=50),
        vectors.TableScheme(mechanism=TABLE, size=4, clip_norm=1.0, clients=50),
    )
    summed = [
        Release(mechanism=scheme, trust="secure_sum", clients=50, delta=1e-3)
        for scheme in vectors_summed
    ]
    changes: dict[str, tuple[Any, list[Release]]] = {
        "rounds": (10, [run]),
        "dimension": (10, [run, *summed]),
        "sampling": ("poisson", [run]),
        "sampling_rate": (0.5, [run]),
        "clients": (10, [run]),
        "corrupted": (10, [run]),
        "clip_norm": (0.01, [run, *summed]),
        "trust": ("shuffler", summed),
    }
    for name, (value, releases) in changes.items():
        for release in releases:
            with pytest.raises(ParameterError, match=name):
                account(replace(release, **{name: value}))
    for trust in ("local", "secure_sum", "shuffler"):
        clients = None if trust == "local" else 9
        with pytest.raises(ParameterError, match="trust"):
            account(replace(run, trust=trust, neighboring="replace_one", clients=clients))
    for release in summed:
        with pytest.raises(ParameterError, match="trust"):
            account(replace(release, trust="central"))
        with pytest.raises(ParameterError, match="trust"):
            account(replace(release, trust="local", clients=None))


def test_a_renyi_certificate_is_no_epsilon() -> None:
    release = kernel.ExactRelease(observer="reports", tables=((TABLE.sha256, 1),))
    said = kernel.ExactClaim(
        release=release, statement={"kind": "renyi", "order": "101/100", "epsilon": "0.4661"}
    )
    proof = {
        "kind": "renyi",
        "version": 1,
        "claim_sha256": said.sha256,
        "precision": 128,
        "tables": [TABLE.canonical()],
        "order": "101/100",
    }
    checked = kernel.check(said, proof)
    computed = account(TABLE, delta=0.0)
    assert not replace(computed, epsilon=0.4662, checked=checked).certified


def _model(**more: Any) -> kernel.ExactClaim:
    """A certificate of one step with much noise."""
    release = kernel.ExactRelease(observer="model", **more)
    return stamp(
        kernel.ExactClaim(
            release=release, statement={"kind": "dp", "epsilon": "0.01", "delta": "0"}
        )
    )


def test_batches_that_are_no_poisson_samples_have_no_certificate() -> None:
    for sampling, bands in (
        (WithReplacement(batch_size=20, dataset_size=2), 1),
        (rqp.Poisson(rate=1.0), 2),
    ):
        phase = rqp.Phase(noise_multiplier=1.0, kappa=1.0, sampling=sampling, steps=1, bands=bands)
        release = rqp.training_release([phase], delta=0.01, neighboring="replace_one")
        assert release.exact is None
        computed = account(release)
        certificate = _model(noise_multiplier=Fraction(1))
        assert not replace(computed, epsilon=8.0, checked=certificate).certified


def test_what_the_kernel_has_no_words_for_is_never_certified() -> None:
    scheme = GaussianScheme.planned(noise_multiplier=2.0, size=4, clip_norm=1.0, clients=50)
    summed = Release(mechanism=scheme, trust="secure_sum", clients=50, delta=1e-3)
    assert summed.exact is None
    computed = account(summed)
    certificate = _model(noise_multiplier=Fraction(10**9))
    assert not replace(computed, epsilon=1.0, checked=certificate).certified
    shuffled = Release(mechanism=TABLE, trust="shuffler", clients=9, delta=1e-3)
    assert shuffled.exact is None
    uneven = Mechanism(
        knots=np.array([0.0, 1.0]),
        levels=np.array([0.0, 1e-9, 1.0, 7.1]),
        weights=np.full((2, 4), TOTAL // 4),
    )
    assert Release(mechanism=uneven, trust="secure_sum", clients=9, delta=1e-3).exact is None


def test_memoised_ranks_are_computed() -> None:
    scheme = vectors.ranked_codebook(8, 2.0, 4)
    claim, proof = prove(scheme, delta=0.0, rounds=10)
    assert proof is not None
    exact = claim.release.exact if claim.release else None
    assert exact is not None
    memoised = _forged(claim, replace(exact, distinct=1))
    assert not replace(memoised, epsilon=claim.epsilon / 10).certified
