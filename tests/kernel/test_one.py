"""One report: pure, (epsilon, delta), Renyi, ranks; laws and forgeries."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from laws.registry import judges
from mezzotint import Mechanism, kernel
from mezzotint.kernel.units import canonical, sha256
from reference.kernel import (
    accepts,
    claim,
    decimal_text,
    forgeries,
    hockey_stick,
    probabilities,
    release,
    resealed,
    sealed,
)
from strategies import mechanisms

SMALL = mechanisms(max_levels=5, max_segments=4, spacings=("even",))


def _mechanism(rows: list[list[int]]) -> Mechanism:
    knots, levels = np.arange(float(len(rows))), np.arange(float(len(rows[0])))
    return Mechanism(
        knots=knots, levels=levels, weights=np.array(rows, dtype=np.int64), name="hand"
    )


TWO = _mechanism([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])


def _proof(said: kernel.ExactClaim, kind: str, mechanism: Mechanism, **more: Any) -> dict[str, Any]:
    return sealed(said, kind, tables=[mechanism.canonical()], **more)


def _check(
    kind: str, mechanism: Mechanism, epsilon: object, delta: object = "0", **more: Any
) -> bool:
    described = {
        key: more.pop(key)
        for key in list(more)
        if key in {"rounds", "sampling", "rate", "neighboring"}
    }
    said = claim(release(mechanism, more.pop("coordinates", 1), **described), epsilon, delta)
    return accepts(said, _proof(said, kind, mechanism, **more))


@given(mechanism=SMALL)
@settings(max_examples=40)
def test_pure_epsilon_is_accepted_up_to_the_last_place(mechanism: Mechanism) -> None:
    if math.isinf(mechanism.epsilon):
        assert not _check("ratio", mechanism, 1000)
        return
    exact = Fraction(mechanism.epsilon)
    assert _check("ratio", mechanism, exact)
    below = exact * (1 - Fraction(1, 2**40))
    assert _check("ratio", mechanism, below) == (exact == 0)
    assert _check("ratio", mechanism, 6 * exact, coordinates=2, rounds=3)
    assert _check("ratio", mechanism, 6 * below, coordinates=2, rounds=3) == (exact == 0)


def test_pure_epsilon_with_secret_participation() -> None:
    assert _check(
        "ratio", TWO, math.log(1 + 0.5 * 2) + 1e-12, sampling="poisson", rate=Fraction(1, 2)
    )
    assert not _check(
        "ratio", TWO, math.log(1 + 0.5 * 2) - 1e-12, sampling="poisson", rate=Fraction(1, 2)
    )
    # Seen participation changes nothing about the pure loss.
    assert not _check("ratio", TWO, math.log(3) - 1e-12, sampling="public", rate=Fraction(1, 2))


@given(mechanism=SMALL, epsilon=st.sampled_from(["0", "0.3", "1", "2.5"]))
@settings(max_examples=40)
def test_delta_is_that_of_the_worst_pair_of_rows(mechanism: Mechanism, epsilon: str) -> None:
    pairs = permutations(probabilities(mechanism), 2)
    exact = max((hockey_stick(p, q, epsilon) for p, q in pairs), default=Fraction(0))
    assert _check("delta", mechanism, epsilon, decimal_text(exact + Fraction(1, 10**15)))
    if exact > 0:
        assert not _check(
            "delta", mechanism, epsilon, decimal_text(exact * (1 - Fraction(1, 10**12)))
        )
        assert not _check("delta", mechanism, epsilon, decimal_text(exact), coordinates=2)
        assert not _check("delta", mechanism, epsilon, decimal_text(exact), rounds=2)


def test_delta_of_visible_participation() -> None:
    assert _check("delta", TWO, 0, "1/8", sampling="public", rate=Fraction(1, 4))
    assert not _check("delta", TWO, 0, "0.1249", sampling="public", rate=Fraction(1, 4))
    assert not _check("delta", TWO, 0, "1/8", sampling="poisson", rate=Fraction(1, 4))


@given(mechanism=SMALL, order=st.sampled_from(["3/2", "2", "5", "33/10"]))
@settings(max_examples=30)
def test_renyi_agrees_with_the_float_that_rounds_up(mechanism: Mechanism, order: str) -> None:
    assume(math.isfinite(mechanism.epsilon) and mechanism.epsilon < 60)
    value = mechanism.renyi(alpha=float(Fraction(order)))

    def certified(epsilon: float, **more: Any) -> bool:
        said = claim(release(mechanism, **more), Fraction(epsilon), order=order)
        return accepts(said, _proof(said, "renyi", mechanism, order=order))

    assert certified(value * (1 + 1e-9) + 1e-12)
    if value > 1e-6:
        assert not certified(value * (1 - 1e-6) - 1e-9)
        assert not certified(value * (1 + 1e-9), rounds=2)
        assert certified(2 * value * (1 + 1e-9), rounds=2)


def test_renyi_becomes_epsilon_and_delta() -> None:
    said = claim(release(TWO, 5), "5", "1/100")
    proof = _proof(said, "renyi", TWO, order="4")
    divergence = math.log((0.75**4 * 0.25**-3) + (0.25**4 * 0.75**-3)) / 3
    delta = math.exp(3 * (5 * divergence - 5)) / 3 * (1 - 1 / 4) ** 4
    assert accepts(
        claim(release(TWO, 5), "5", delta * (1 + 1e-9)),
        resealed(claim(release(TWO, 5), "5", delta * (1 + 1e-9)), proof),
    )
    low = claim(release(TWO, 5), "5", delta * (1 - 1e-9))
    assert not accepts(low, resealed(low, proof))


@judges("kernel.checker.check")
@given(mechanism=SMALL)
@settings(max_examples=15)
def test_rows_columns_and_mirrors_change_nothing(mechanism: Mechanism) -> None:
    """Mirrored, with levels permuted, with a row doubled: the same claims are accepted, stronger ones refused."""
    assume(math.isfinite(mechanism.epsilon) and mechanism.epsilon > 0)
    weights = mechanism.weights
    order = np.random.default_rng(7).permutation(weights.shape[1])
    for rows in (weights[::-1], weights[:, ::-1], weights[:, order], np.repeat(weights, 2, axis=0)):
        other = _mechanism(rows.tolist())
        assert _check("ratio", other, Fraction(mechanism.epsilon))
        assert not _check("ratio", other, Fraction(mechanism.epsilon) * (1 - Fraction(1, 2**40)))
        delta = decimal_text(Fraction(mechanism.delta(epsilon=0.2)) + Fraction(1, 10**15))
        assert _check("delta", other, "0.2", delta)


RANKS = {"M": 16, "k": 6, "T": 2**32, "w_hi": 443750234, "w_lo": 163246589, "r": 2}


def _ranked(entry: dict[str, int], epsilon: object, **more: Any) -> bool:
    described = kernel.ExactRelease(
        observer="reports", tables=((sha256(canonical(entry)), 1),), **more
    )
    said = claim(described, epsilon)
    return accepts(said, sealed(said, "ratio", ranks=[entry]))


def test_ranks() -> None:
    exact = math.log(443750234 / 163246589)
    assert _ranked(RANKS, Fraction(exact) + Fraction(1, 10**12))
    assert not _ranked(RANKS, Fraction(exact) - Fraction(1, 10**12))
    assert _ranked(RANKS, 3 * Fraction(exact) + Fraction(1, 10**12), rounds=3)
    assert not _ranked(RANKS, 3 * Fraction(exact) - Fraction(1, 10**12), rounds=3)


@pytest.mark.parametrize(
    "change",
    [
        *({key: RANKS[key] + step} for key in RANKS for step in (1, -1)),
        {"M": 16, "k": 16}, {"w_lo": 0}, {"r": 11}, {"r": -1},
        # The sum holds, the counts do not: one rank of the others would stand a negative number of times.
        {"M": 4, "k": 3, "T": 100, "w_hi": 27, "w_lo": 17, "r": 2},
    ],
)  # fmt: skip
def test_ranks_that_are_no_distribution_are_refused(change: dict[str, int]) -> None:
    assert not _ranked({**RANKS, **change}, 50)


def test_the_lesser_weight_must_not_exceed_the_larger() -> None:
    assert not _ranked({"M": 4, "k": 1, "T": 100, "w_hi": 24, "w_lo": 25, "r": 1}, 50)
    assert not _ranked({"M": 4, "k": 1, "T": 101, "w_hi": 25, "w_lo": 25, "r": 1}, 50)


def _cases() -> list[tuple[kernel.ExactClaim, dict[str, Any], kernel.ExactClaim]]:
    """(true claim, its proof, a false claim of the same release)."""
    made: list[tuple[kernel.ExactClaim, dict[str, Any], kernel.ExactClaim]] = []
    for kind, true, false, more in (
        (
            "ratio",
            claim(release(TWO, 3, rounds=2), "6.6"),
            claim(release(TWO, 3, rounds=2), "6.5"),
            {},
        ),
        ("delta", claim(release(TWO), "0.5", "0.338"), claim(release(TWO), "0.5", "0.337"), {}),
        (
            "renyi",
            claim(release(TWO), "0.85", order="2"),
            claim(release(TWO), "0.84", order="2"),
            {"order": "2"},
        ),
    ):
        made.append((true, _proof(true, kind, TWO, **more), false))
    ranked = kernel.ExactRelease(observer="reports", tables=((sha256(canonical(RANKS)), 1),))
    true = claim(ranked, "1.0001")
    made.append((true, sealed(true, "ratio", ranks=[RANKS]), claim(ranked, "0.9999")))
    return made


@pytest.mark.parametrize(
    ("true", "proof", "false"), _cases(), ids=["ratio", "delta", "renyi", "ranks"]
)
def test_no_change_of_one_field_proves_a_false_claim(
    true: kernel.ExactClaim, proof: dict[str, Any], false: kernel.ExactClaim
) -> None:
    assert accepts(true, proof)
    assert not accepts(false, proof)
    for path, forged in forgeries(proof, skip=["claim_sha256"]):
        assert not accepts(false, resealed(false, forged)), path


@pytest.mark.parametrize(
    ("true", "proof", "false"), _cases(), ids=["ratio", "delta", "renyi", "ranks"]
)
def test_a_proof_serves_its_own_claim_only(
    true: kernel.ExactClaim, proof: dict[str, Any], false: kernel.ExactClaim
) -> None:
    assert not accepts(false, proof)
    unsealed = {key: value for key, value in proof.items() if key != "claim_sha256"}
    assert not accepts(true, unsealed)
    assert not accepts(true, {**proof, "more": 1})
    assert not accepts(true, {**proof, "version": 2})


def test_only_check_certifies() -> None:
    said = claim(release(TWO), "1.1")
    assert not said.certified
    assert kernel.words(said, "no proof").startswith("computed: ")
    checked = kernel.check(said, _proof(said, "ratio", TWO))
    assert checked.certified
    assert kernel.words(checked).startswith(
        "certified: (1.1, 0)-differential privacy for replacing all data of one client"
    )


def test_a_simulation_is_called_one_even_when_it_is_checked() -> None:
    said = claim(release(TWO, seeded=True), "1.1")
    assert kernel.words(kernel.check(said, _proof(said, "ratio", TWO))).startswith(
        "simulation; no privacy"
    )


@judges("kernel.checker.read_claim")
@pytest.mark.parametrize(
    "change",
    [
        {"unit": "record"}, {"trust": "central"}, {"assumptions": []}, {"neighboring": "add_or_remove_one"},
        {"more": 1}, {"observer": "nobody"}, {"rounds": 0}, {"rounds": True}, {"randomness": "good"}, {"tables": []},
        {"sampling": {"kind": "none", "rate": "1/2"}}, {"sampling": {"kind": "poisson", "rate": "1"}},
        {"sampling": {"kind": "poisson", "rate": "0"}},
    ],
)  # fmt: skip
def test_documents_that_contradict_themselves_are_refused(change: dict[str, Any]) -> None:
    said = claim(release(TWO), "1.1")
    text = kernel.write_claim(said, _proof(said, "ratio", TWO))
    document = {**said.document(), "proof": _proof(said, "ratio", TWO)}
    assert canonical(document) == text
    document["release"] = {**said.document()["release"], **change}  # type: ignore[dict-item]
    with pytest.raises(kernel.Unreadable):
        kernel.read_claim(canonical(document))


@pytest.mark.parametrize("text", ["1.5", "NaN", "[1,", '{"a":1,"a":2}', "[Infinity]", "[" * 10**5])
def test_json_with_floats_duplicates_or_no_end_is_unreadable(text: str) -> None:
    with pytest.raises(kernel.Unreadable):
        kernel.units.read_json(text)


def test_a_proof_that_takes_too_long_is_not_a_pass() -> None:
    said = claim(release(TWO), "1.1", "1")
    with pytest.raises(kernel.Unfinished):
        kernel.check(said, _proof(said, "delta", TWO), seconds=0)


@pytest.mark.parametrize("precision", [64, 128, 512])
@pytest.mark.parametrize("order", ["1e18", "1e25", "1e40", "1e160", "1e320"])
@pytest.mark.parametrize(
    "sampled", [{}, {"sampling": "public", "rate": Fraction(1, 3)}], ids=["all", "public"]
)
def test_orders_beyond_the_precision_prove_nothing(
    order: str, precision: int, sampled: dict[str, Any]
) -> None:
    """Their balls are too wide for a logarithm; log 3 is the divergence in the limit, and log 2 is below it."""
    described = release(TWO, **sampled)
    for said in (claim(described, "0", order=order), claim(described, "0.69", order=order)):
        assert not accepts(said, _proof(said, "renyi", TWO, order=order, precision=precision))
    said = claim(described, "0.01", "1e-9")
    assert not accepts(said, _proof(said, "renyi", TWO, order=order, precision=precision))


def test_a_refusal_prints_numbers_of_any_length() -> None:
    for order in ("1e9999", "1e-9999", "-1e9999"):
        said = claim(release(TWO), "0", order=order)
        assert not accepts(said, _proof(said, "renyi", TWO, order=order))


def test_a_claim_that_was_changed_is_certified_no_longer() -> None:
    said = claim(release(TWO), "1.1")
    checked = kernel.check(said, _proof(said, "ratio", TWO))
    assert checked.certified
    assert not replace(checked, statement={**checked.statement, "epsilon": "0.1"}).certified
    checked.statement["epsilon"] = "0.1"
    assert not checked.certified
