"""How proposals are raised, lowered again, and left to another proof; the kernel's verdict is at its own tests."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from mezzotint import Mechanism, families, kernel
from mezzotint.privacy import propose
from mezzotint.privacy.accounting import account, prove
from mezzotint.privacy.claim import Release
from mezzotint.privacy.propose import (
    _FINE_PRECISION,
    _PRECISION,
    _RAISES,
    accepted,
    binary_text,
    sealed,
)
from reference.kernel import release as kernel_release

TWO = Mechanism(
    knots=[0, 1], levels=[0, 1], weights=np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
)
"""Its epsilon is log 3 = 1.0986..."""


def ratio(claim: Any) -> Any:
    return sealed(claim, "ratio", tables=[TWO.canonical()])


def never(claim: Any) -> Any:
    raise AssertionError(f"nobody asked for a proof of {claim}")


def test_epsilons_next_to_nothing_are_raised_too() -> None:
    table = families.randomized_response(epsilon=1e-4)

    def small(claim: Any) -> Any:
        return sealed(claim, "ratio", tables=[table.canonical()])

    outcome = accepted(kernel_release(table), 0.0, 0.0, small)
    assert outcome.proof is not None
    # Raises are shares of a thousandth where epsilon is smaller.
    assert table.epsilon <= float(outcome.claim.epsilon) <= table.epsilon + 1e-3 * _PRECISION
    raised = accepted(kernel_release(TWO), 1.0, 0.0, ratio)
    assert math.log(3) <= float(raised.claim.epsilon) <= math.log(3) * (1 + _PRECISION)


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
    neither = accepted(described, 0.5, 0.0, ratio, largest=0.1, otherwise=refused)
    assert neither.proof is None
    assert neither.claim.epsilon == Fraction("0.5")
    assert accepted(described, 0.5, 0.0, ratio, largest=0.1, otherwise=plain) is plain


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
            one_round, rate = float(generator.uniform(0, 60)), float(generator.random())
            rounds = int(generator.integers(1, 50))
            exact = mpmath.mpf(one_round)
            every = Release(mechanism=TWO, rounds=rounds, delta=0.0)
            # One rounding, and 16 UNIT of exp and log.
            assert rounds * exact <= every.over_rounds(one_round) <= rounds * exact * (1 + 1e-15)
            secret = rounds * mpmath.log1p(rate * mpmath.expm1(exact))
            unseen = replace(every, sampling="poisson", sampling_rate=rate)
            # Ten times that.
            assert secret <= unseen.over_rounds(one_round) <= secret * (1 + 1e-14)


def _judge(monkeypatch: pytest.MonkeyPatch, enough: dict[str, float]) -> list[tuple[str, float]]:
    """A kernel that accepts each prover's proof from some share of epsilon 1 on; returns what it is asked."""
    asked: list[tuple[str, float]] = []

    def check(claim: Any, proof: Any, *, seconds: int) -> Any:
        share = float(claim.epsilon) - 1
        asked.append((proof, share))
        if share >= enough[proof]:
            return claim
        raise kernel.Refused("delta", "too large", Fraction(1, 10), Fraction(1, 100))

    monkeypatch.setattr(kernel, "check", check)
    return asked


@pytest.mark.parametrize("enough", [0.0, 1e-9, 1e-4, 0.013, 0.2])
def test_a_raise_is_halved_until_little_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, enough: float
) -> None:
    asked = _judge(monkeypatch, {"one": enough})
    outcome = accepted(kernel_release(TWO), 1.0, 1e-6, lambda claim: "one")  # pyright: ignore
    assert enough <= float(outcome.claim.epsilon) - 1 <= enough + _FINE_PRECISION + 2e-9
    raises = [share for share in _RAISES if share < enough]
    above = _RAISES[len(raises)]
    doubt = above - (raises or [0.0])[-1]
    halved = 0
    for precision in (_PRECISION, _FINE_PRECISION):
        steps = math.ceil(math.log2(max(doubt / precision, 1)))
        doubt /= 2**steps
        halved += steps
    assert len(asked) == len(raises) + 1 + halved


def test_slow_checks_are_not_halved_to_a_fine_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of six seconds leaves nothing of a twentieth of a minute: it is not halved beyond 4e-4."""
    asked = _judge(monkeypatch, {"one": 1e-4})
    clock = itertools.count(0, 6)
    monkeypatch.setattr(propose.time, "process_time", lambda: next(clock))
    outcome = accepted(kernel_release(TWO), 1.0, 1e-6, lambda claim: "one")  # pyright: ignore
    assert float(outcome.claim.epsilon) - 1 == pytest.approx(2e-4)
    assert len(asked) == 4


def test_provers_are_tried_each_by_itself_and_the_least_epsilon_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enough = {"near": 0.01, "far": 0.08, "never": 1.0}
    for order in (("near", "far"), ("far", "near"), ("never", "near"), ("near", "never")):
        _judge(monkeypatch, enough)
        provers: list[Any] = [lambda claim, name=name: name for name in order]
        outcome = accepted(kernel_release(TWO), 1.0, 1e-6, *provers)
        assert outcome.proof == "near"
        assert 1.01 <= float(outcome.claim.epsilon) <= 1.01 + _PRECISION
    asked = _judge(monkeypatch, enough)
    outcome = accepted(kernel_release(TWO), 1.0, 1e-6, lambda claim: "never", largest=1e-3)  # pyright: ignore
    assert outcome.proof is None
    assert outcome.claim.epsilon == 1
    assert "too large" in outcome.reason
    # Raised epsilons are written with nine digits.
    assert [share for _, share in asked] == pytest.approx([0.0, 1e-9, 2e-5, 2e-4, 8e-4], abs=1e-8)


def test_an_epsilon_between_a_refused_raise_and_another_proof_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least epsilon of the second prover lies between two raises, above both of which the first proves."""
    _judge(monkeypatch, {"coarse": 0.037, "fine": 0.024})
    provers: list[Any] = [lambda claim, name=name: name for name in ("coarse", "fine")]
    outcome = accepted(kernel_release(TWO), 1.0, 1e-6, *provers)
    assert outcome.proof == "fine"
    assert 1.024 <= float(outcome.claim.epsilon) <= 1.024 + _PRECISION


def test_a_known_least_epsilon_is_tried_first_and_raised_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prover: Any = lambda claim: "one"  # noqa: E731
    asked = _judge(monkeypatch, {"one": 0.0123})
    exact = accepted(kernel_release(TWO), 1.0, 1e-6, prover, least_epsilon=1.0123)
    assert len(asked) <= 2
    # Raised epsilons are written with nine digits.
    assert 0 <= float(exact.claim.epsilon) - 1.0123 <= 1e-8
    near = accepted(kernel_release(TWO), 1.0, 1e-6, prover, least_epsilon=1.01229)
    # A float that is a little too small costs a step of 2e-5, not the way to the next raise; nine digits.
    assert 1.0123 <= float(near.claim.epsilon) <= 1.01229 + 2e-5 + 1e-8
    # One below the claim's own epsilon changes nothing.
    monkeypatch.undo()
    for least in (0.0, 0.5):
        _judge(monkeypatch, {"one": 0.01})
        same = accepted(kernel_release(TWO), 1.0, 1e-6, prover, least_epsilon=least)
        assert 1.01 <= float(same.claim.epsilon) <= 1.01 + _PRECISION


@pytest.mark.parametrize(
    "words", [{}, {"sampling_rate": 0.5}, {"sampling": "poisson", "sampling_rate": 0.5}]
)
def test_refused_losses_show_the_least_epsilon(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, Any]
) -> None:
    """Of both directions the worse one counts; 1e-8 less is refused, by nine digits and what floats lose."""
    release = Release(mechanism=TWO, rounds=20, delta=1e-6, **words)
    shape = propose.losses_shape(release, 1.0)

    def losses(claim: Any) -> Any:
        return sealed(claim, "losses", tables=[TWO.canonical()], **shape)

    exact = propose.exact_release(release)
    asked: list[Any] = []
    check = kernel.check

    def counted(claim: Any, proof: Any, *, seconds: int) -> Any:
        asked.append(claim)
        return check(claim, proof, seconds=seconds)

    monkeypatch.setattr(kernel, "check", counted)
    start = 0.98 * account(release).epsilon
    outcome = accepted(exact, start, 1e-6, losses)
    assert outcome.proof is not None
    assert len(asked) <= 3
    epsilon = float(outcome.claim.epsilon)
    assert start < epsilon
    lower = accepted(exact, epsilon * (1 - 1e-8), 1e-6, losses, largest=0.0)
    assert lower.proof is None
    # Nine digits: the claim's are at most 1e-8 above the least.
    assert epsilon * (1 - 1e-8) < (lower.sufficient or 0.0) <= epsilon


@pytest.mark.parametrize(
    "shape", [{"dimension": 3, "rounds": 10}, {"rounds": 30, "sampling_rate": 0.9}]
)
def test_large_losses_of_few_reports_are_proved_at_one_renyi_order(shape: dict[str, Any]) -> None:
    """No pair of the 16 rows is the worst at every epsilon; at the best order one is: less by .04 % and more."""
    table = families.rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.42)
    release = Release(mechanism=table, delta=1e-6, **shape)
    claim, proof = prove(release)
    assert proof is not None
    assert (proof["kind"], claim.method) == ("renyi", "Renyi divergence")
    assert claim.certified
    # The .04 % of the first line.
    assert claim.epsilon < account(release).epsilon * (1 - 4e-4)
    order = float(proof["order"])
    divergence = shape.get("dimension", 1) * table.renyi(order)
    rate = shape.get("sampling_rate", 1.0)
    single = math.log1p(rate * math.expm1((order - 1) * divergence)) / (order - 1)
    converted = math.log(1 - 1 / order) - (math.log(1e-6) + math.log(order)) / (order - 1)
    # The first raise of a proposal is 1e-9; floats lose less.
    assert claim.epsilon == pytest.approx(shape["rounds"] * single + converted, rel=1e-8)


def test_losses_accepted_on_a_finer_grid_are_claimed() -> None:
    """The accountant's grid may cost 1e-4 of epsilon; a proof begins at what a grid four times as fine finds."""
    table = families.rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.42)
    release = Release(mechanism=table, delta=1e-6, rounds=1000)
    claim, proof = prove(release)
    assert proof is not None
    assert proof["kind"] == "losses"
    # What the first line says that the grid may cost, and that it costs something.
    assert account(release).epsilon * (1 - 1e-4) <= claim.epsilon
    # The same.
    assert claim.epsilon < account(release).epsilon * (1 - 1e-5)


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


def test_the_decimal_of_a_float_is_not_below_it_and_reads_back_as_it() -> None:
    rng = np.random.default_rng(1)
    for value in [0.1, 1e-300, 1000.0, 1e17, *np.exp(rng.uniform(-9, 9, 300)).tolist()]:
        text = binary_text(value)
        assert Fraction(text) >= Fraction(value)
        assert float(text) == value
