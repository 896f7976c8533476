"""How proposals are raised, lowered again, and left to another proof; the kernel's verdict is at its own tests."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint
import mpmath
import numpy as np
import pytest

from mezzotint import Mechanism, families, kernel
from mezzotint.privacy.accounting import prove
from mezzotint.privacy.claim import Release
from mezzotint.privacy.propose import (
    _CLOSE,
    Outcome,
    _closer,
    _lacking,
    accepted,
    pure_total,
    sealed,
)
from reference.kernel import release as kernel_release
from tolerances import FEW

TWO = Mechanism(
    knots=[0, 1], levels=[0, 1], weights=np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
)
"""Its epsilon is log 3 = 1.0986..."""


def ratio(claim: Any) -> Any:
    return sealed(claim, "ratio", tables=[TWO.canonical()])


def never(claim: Any) -> Any:
    raise AssertionError(f"nobody asked for a proof of {claim}")


def test_what_is_lacking_is_read_off_the_delta_that_was_found() -> None:
    found = _lacking(kernel.Refused("delta", "too large", Fraction(1, 10**5), Fraction(1, 10**6)))
    assert found == pytest.approx(math.log(10) / (2 * math.log(10**6)), rel=FEW)
    for step, have, want in (
        ("epsilon", 1, Fraction(1, 2)),
        ("delta", Fraction(1, 5), Fraction(1, 10)),
        ("delta", 1, 0),
    ):
        assert _lacking(kernel.Refused(step, "too large", Fraction(have), Fraction(want))) == 0.0
    assert _lacking(kernel.Unfinished()) == 0.0


@pytest.mark.parametrize(
    "have",
    ["[1.00000e-5 +/- 3.1e-12]", "[0.0000100000 +/- 3.1e-12]", "1.00000000000000e-5", "1/100000"],
)
def test_of_a_ball_the_midpoint_is_read(have: str) -> None:
    found = _lacking(kernel.Refused("delta", "too large", have, "[1.0000e-6 +/- 2e-13]"))
    assert found == pytest.approx(math.log(10) / (2 * math.log(10**6)), rel=FEW)


def test_balls_are_read_as_the_kernel_shows_them() -> None:
    for value, radius in ((2.5e-6, 1e-9), (2.5e-6, 1e-20), (2.5e-6, 0), (0.25, 1e-12)):
        found = _lacking(
            kernel.Refused("delta", "too large", flint.arb(value, radius), Fraction(1, 10**6))
        )
        # Some digits of the midpoint are shown, as many as the radius lets stand.
        assert found == pytest.approx(
            math.log(value * 1e6) / (2 * math.log(1e6)), abs=radius / value + FEW
        )


@pytest.mark.parametrize(
    "have", ["[+/- 1.01]", "nan", "[+/- inf]", "[1.0e-999999999999 +/- 1e-9999999999999]", ""]
)
def test_what_tells_no_number_lacks_nothing(have: str) -> None:
    assert _lacking(kernel.Refused("delta", "too large", have, Fraction(1, 10**6))) == 0.0
    # A ball whose midpoint is within bounds does not send epsilon down.
    assert (
        _lacking(kernel.Refused("delta", "too large", "[9.99e-7 +/- 1e-8]", Fraction(1, 10**6)))
        == 0.0
    )


def test_an_accepted_share_is_lowered_until_little_is_in_doubt() -> None:
    described, asked = kernel_release(TWO), list[float]()

    def at(share: float, good: bool) -> Outcome:
        statement = {"kind": "dp", "epsilon": repr(share), "delta": "0"}
        return Outcome(
            claim=kernel.ExactClaim(release=described, statement=statement),
            proof={} if good else None,
        )

    def attempt(_: Any, share: float) -> tuple[Outcome, float]:
        asked.append(share)
        return at(share, share >= 0.013), 0.0

    lowered = _closer(attempt, never, at(0.03, True), 0.0, 0.03, 60)
    assert lowered.proof == {}
    assert 0.013 <= float(lowered.claim.epsilon) <= 0.013 + _CLOSE
    assert len(asked) == math.ceil(math.log2(0.03 / _CLOSE))
    asked.clear()
    for share, seconds in ((_CLOSE, 60), (0.03, 0)):
        first = at(share, True)
        assert _closer(attempt, never, first, 0.0, share, seconds) is first
    assert asked == []


def test_epsilons_next_to_nothing_are_raised_too() -> None:
    table = families.randomized_response(epsilon=1e-4)

    def small(claim: Any) -> Any:
        return sealed(claim, "ratio", tables=[table.canonical()])

    outcome = accepted(kernel_release(table), 0.0, 0.0, small)
    assert outcome.proof is not None
    # The first raise that suffices of a table that loses next to nothing.
    assert table.epsilon <= float(outcome.claim.epsilon) <= 3e-4
    raised = accepted(kernel_release(TWO), 1.0, 0.0, ratio)
    assert math.log(3) <= float(raised.claim.epsilon) <= math.log(3) * (1 + _CLOSE)


def test_another_proof_is_kept_unless_a_smaller_epsilon_is_accepted() -> None:
    described = kernel_release(TWO)
    plain = accepted(described, 1.2, 0.0, ratio)
    assert plain.claim.epsilon == Fraction("1.2")
    for epsilon in (1.2, 1.3):
        assert accepted(described, epsilon, 0.0, never, otherwise=plain) is plain
    better = accepted(described, 1.11, 0.0, ratio, otherwise=plain)
    assert better.claim.epsilon == Fraction("1.11")
    refused = accepted(described, 0.5, 0.0, ratio)
    assert refused.proof is None
    assert accepted(described, 1.11, 0.0, ratio, otherwise=refused).proof is not None
    neither = accepted(described, 0.5, 0.0, ratio, raises=(0.0, 0.1), otherwise=refused)
    assert neither.proof is None
    assert neither.claim.epsilon == Fraction("0.5")
    assert accepted(described, 0.5, 0.0, ratio, raises=(0.0, 0.1), otherwise=plain) is plain


def test_a_proof_that_is_too_large_is_not_raised() -> None:
    described, asked = kernel_release(TWO), list[Any]()

    def large(claim: Any) -> Any:
        asked.append(claim)
        return {**ratio(claim), "precision": 10**9}

    outcome = accepted(described, 1.0, 0.0, large)
    assert outcome.proof is None
    assert outcome.too_large
    assert len(asked) == 1
    small = accepted(described, 0.5, 0.0, ratio)
    assert not small.too_large


def test_pure_totals_are_rounded_up() -> None:
    generator = np.random.default_rng(1)
    with mpmath.workdps(40):
        for _ in range(300):
            single, rate = float(generator.uniform(0, 2)), float(generator.random())
            coordinates, rounds = (int(n) for n in generator.integers(1, 50, 2))
            exact = mpmath.mpf(coordinates) * single
            every = Release(mechanism=TWO, dimension=coordinates, rounds=rounds, delta=0.0)
            # Up to 45 UNIT a product, and twice that through exp and log.
            assert rounds * exact <= pure_total(single, every) <= rounds * exact * (1 + 1e-14)
            secret = rounds * mpmath.log1p(rate * mpmath.expm1(exact))
            unseen = replace(every, sampling="poisson", sampling_rate=rate)
            # Ten times that.
            assert secret <= pure_total(single, unseen) <= secret * (1 + 1e-13)


def test_raises_that_cannot_do_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first prover lacks 1 % of epsilon 1 and the second 8 %: it is given up, less than 0.9 % skipped."""
    asked: list[tuple[str, float]] = []

    def check(claim: Any, proof: Any, *, seconds: int) -> Any:
        found, want = float(claim.epsilon) - 1, 1e-6
        asked.append((proof, round(found, 9)))
        share = {"near": 0.01, "far": 0.08, "flat": 0.0}[proof] - found
        have = want * (1 / want) ** (2 * share)
        if proof != "flat" and share <= 0:
            return claim
        raise kernel.Refused(
            "delta" if proof != "flat" else "epsilon", "too large", Fraction(have), Fraction(want)
        )

    monkeypatch.setattr(kernel, "check", check)
    described = kernel_release(TWO)
    outcome = accepted(described, 1.0, 1e-6, lambda claim: "near", lambda claim: "far")  # pyright: ignore
    assert asked[:3] == [("near", 0.0), ("far", 0.0), ("near", 0.01)]
    assert all(name == "near" for name, _ in asked[2:])
    assert 1.01 <= float(outcome.claim.epsilon) <= 1.01 + _CLOSE
    asked.clear()
    assert (
        accepted(described, 1.0, 1e-6, lambda claim: "flat", raises=(0.0, 1e-3, 2e-3)).proof is None
    )  # pyright: ignore
    assert [share for _, share in asked] == [0.0, 1e-3, 2e-3]


def test_an_infinite_epsilon_under_sampling_is_computed_and_says_why() -> None:
    # The second row shows a level that the first one never does, more often than delta allows.
    table = Mechanism(
        knots=[0, 1], levels=[0, 1], weights=[[2**32, 0], [2**31, 2**31]], name="one sided"
    )
    for sampling in ("public", "poisson"):
        claim, proof = prove(
            Release(mechanism=table, delta=0.01, rounds=2, sampling_rate=0.5, sampling=sampling)  # pyright: ignore
        )
        assert proof is None
        assert math.isinf(claim.epsilon)
        assert "no bound is finite" in claim.reason
