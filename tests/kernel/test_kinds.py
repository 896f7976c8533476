"""Users in training runs, memoised reports, smoothed profiles: against other arithmetic and enumeration."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import comb
from pathlib import Path
from typing import Any

import flint
import mpmath
import pytest

import mezzotint
from laws.registry import judges
from mezzotint import kernel
from mezzotint.kernel import gaussian, smoothed
from mezzotint.kernel.units import FACTOR, WHOLE, canonical, set_deadline, sha256
from mezzotint.privacy.propose import propose_profile
from reference.kernel import accepts, claim, sealed

TOTAL = 2**32


@pytest.fixture(autouse=True)
def _time() -> None:
    set_deadline(600)


# Users ----------------------------------------------------------------------------------------------------------


def _best_half_line(first: Sequence[Any], second: Sequence[Any], shift: Any, c: Any) -> Any:
    """The largest P(x > t) - c Q(x > t) over t, by thirds, 40 digits."""

    def value(t: Any) -> Any:
        ahead = sum(w * mpmath.ncdf(j * shift - t) for j, w in enumerate(first))
        behind = sum(w * mpmath.ncdf(-j * shift - t) for j, w in enumerate(second))
        return ahead - c * behind

    starts = [mpmath.mpf(k) / 2 for k in range(-24, 25)]
    best = max(range(1, len(starts) - 1), key=lambda k: value(starts[k]))
    low, high = starts[best - 1], starts[best + 1]
    for _ in range(110):
        third = (high - low) / 3
        if value(low + third) < value(high - third):
            low += third
        else:
            high -= third
    return max(value(low), 1 - c, mpmath.mpf(0))


@judges("kernel.gaussian.mixture_curve")
@pytest.mark.parametrize("records", [1, 2, 7])
@pytest.mark.parametrize("rate", [Fraction(1, 50), Fraction(2, 5), Fraction(1)])
def test_the_curve_of_a_user_is_that_of_the_best_half_line(records: int, rate: Fraction) -> None:
    shift = Fraction(3, 4)
    with flint.ctx.workprec(256), mpmath.workdps(40):
        ball, exact = flint.arb(3) / 4, mpmath.mpf(3) / 4
        weights = gaussian.binomial_weights(records, rate)
        p = mpmath.mpf(rate.numerator) / rate.denominator
        binomial = [comb(records, j) * p**j * (1 - p) ** (records - j) for j in range(records + 1)]
        nobody, alone = [flint.arb(1)], [mpmath.mpf(1)]
        for (first, second), (ours, theirs) in (
            ((weights, nobody), (binomial, alone)),
            ((nobody, weights), (alone, binomial)),
            ((weights, weights), (binomial, binomial)),
        ):
            curve = gaussian.mixture_curve(first, second, ball)
            for c in (Fraction(1, 2), Fraction(1), Fraction(3, 2)):
                value = mpmath.mpf(curve(c.numerator, c.denominator)) / WHOLE
                best = _best_half_line(ours, theirs, exact, mpmath.mpf(c.numerator) / c.denominator)
                # The curve is rounded up: mpmath's own roundings alone may put the half line above it.
                assert best <= value + mpmath.mpf(2) ** -150
                # 110 thirds leave (2/3)^110 of a bracket, squared at a maximum: below 1e-25.
                assert value <= best + mpmath.mpf(10) ** -25
    assert shift > 0


@pytest.mark.parametrize(
    ("records", "value"), [(1, 6.149810035986e-7), (10, 0.0041330482168), (100, 0.2484383908)]
)
def test_known_values_of_a_user(records: int, value: float) -> None:
    """Noise multiplier 1, rate 1/100, c = 3/2; of one record the closed form p H_s with s = 1 + (c - 1)/p."""
    with flint.ctx.workprec(256):
        weights = gaussian.binomial_weights(records, Fraction(1, 100))
        curve = gaussian.mixture_curve(weights, [flint.arb(1)], flint.arb(1))
        # The values are printed to ten digits or more.
        assert curve(3, 2) / WHOLE == pytest.approx(value, rel=1e-9)
        closed = gaussian.gaussian_curve(flint.arb(1))
        if records == 1:
            assert abs(curve(3, 2) - closed(51, 1) // 100) <= WHOLE >> 90


def test_what_is_not_bracketed_counts_as_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points on the wrong sides of the root, or anywhere, only overstate."""
    with flint.ctx.workprec(128):
        weights = gaussian.binomial_weights(3, Fraction(1, 3))
        true = gaussian.mixture_curve(weights, [flint.arb(1)], flint.arb(1))(3, 2)
        for low, high in ((-3, 5), (5, -3), (0, 0), (60, 60), (-60, -60), (2, 1)):
            monkeypatch.setattr(gaussian, "_bracket", lambda *_: (flint.arb(low), flint.arb(high)))  # noqa: B023
            assert gaussian.mixture_curve(weights, [flint.arb(1)], flint.arb(1))(3, 2) >= true


def _users(records: int, delta: str, **more: Any) -> bool:
    release = kernel.ExactRelease(
        observer="model", sampling="poisson", rate=Fraction(1, 10), neighboring="add_or_remove_one",
        noise_multiplier=Fraction(1), records_per_user=records, **more,
    )  # fmt: skip
    stated = claim(release, "1", delta)
    assert release.unit == ("user" if records > 1 else "record")
    proof = sealed(
        stated, "gaussian", kappa="1", step="1/64", tail=160, sampled={"low": -256, "high": 640}
    )
    return accepts(stated, proof)


def test_claims_about_users_are_certified_near_their_truth() -> None:
    """One step, epsilon 1: the worse direction of the two, by 50 digits."""
    with mpmath.workdps(40):
        p = mpmath.mpf(1) / 10
        binomial = [comb(4, j) * p**j * (1 - p) ** (4 - j) for j in range(5)]
        pairs = ((binomial, [mpmath.mpf(1)]), ([mpmath.mpf(1)], binomial))
        truth = max(_best_half_line(*pair, mpmath.mpf(1), mpmath.e) for pair in pairs)
    assert _users(4, str(Fraction(float(truth)) * Fraction(1001, 1000)))
    assert not _users(4, str(Fraction(float(truth)) * Fraction(999, 1000)))
    assert not _users(5, str(Fraction(float(truth)) * Fraction(1001, 1000)))


def test_of_users_no_contraction_counts() -> None:
    release = kernel.ExactRelease(
        observer="model", noise_multiplier=Fraction(1), records_per_user=2, kept=Fraction(9, 10), levels=4,
        sampling="poisson", rate=Fraction(1, 10), neighboring="add_or_remove_one",
    )  # fmt: skip
    stated = claim(release, "1", "1")
    content: dict[str, Any] = {"step": "1/16", "tail": 160, "sampled": {"low": -64, "high": 160}}
    assert accepts(stated, sealed(stated, "gaussian", kappa="1", **content))
    contracted = sealed(stated, "gaussian", kappa="0.9", range="8", depth=40, **content)
    with pytest.raises(kernel.Refused, match="several records"):
        kernel.check(stated, contracted)


# Memoised reports -----------------------------------------------------------------------------------------------


TABLE = canonical(
    {"knots": [0, 1], "levels": [0, 1], "weights": [[3 * 2**30, 2**30], [2**30, 3 * 2**30]]}
)


def _memoised(distinct: int, rounds: int) -> kernel.ExactRelease:
    return kernel.ExactRelease(
        observer="reports", tables=((sha256(TABLE), 1),), rounds=rounds, distinct=distinct
    )


def test_memoised_reports_cost_what_their_distinct_values_do() -> None:
    """Randomized response with ratio 3: at most 2 distinct values in 9 rounds have epsilon 2 log 3 = 2.1972..."""
    for distinct, epsilon in ((2, 2 * math.log(3)), (3, 3 * math.log(3)), (1, math.log(3))):
        for change, holds in ((1e-9, True), (-1e-9, False)):
            stated = claim(_memoised(distinct, 9), repr(epsilon + change))
            assert accepts(stated, sealed(stated, "ratio", tables=[TABLE])) == holds


def _truth(distinct: int, rounds: int, c: Fraction) -> Fraction:
    """The worst divergence over all pairs of histories that are equal in the same rounds, by enumeration."""
    rows = [[Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]]
    worst = Fraction(0)
    for pattern in product(range(distinct), repeat=rounds):
        values = sorted(set(pattern))
        for ours in product(range(2), repeat=len(values)):
            for theirs in product(range(2), repeat=len(values)):
                # The view is determined by one report for each distinct value.
                total = Fraction(0)
                for codes in product(range(2), repeat=len(values)):
                    p = math.prod(rows[v][code] for v, code in zip(ours, codes, strict=True))
                    q = math.prod(rows[v][code] for v, code in zip(theirs, codes, strict=True))
                    total += max(p - c * q, Fraction(0))
                worst = max(worst, total)
    return worst


def test_deltas_of_memoised_reports_are_those_of_all_histories() -> None:
    truth = _truth(2, 3, Fraction(1))
    assert truth == Fraction(1, 2)
    grid = {"low": -110, "high": 110}
    for delta, holds in (("0.51", True), ("0.4999", False)):
        stated = claim(_memoised(2, 3), "0", delta)
        proof = sealed(stated, "losses", tables=[TABLE], step="1/50", tail=160, grids=[grid])
        assert accepts(stated, proof) == holds
    once = claim(_memoised(1, 3), "0", "1/2")
    assert accepts(once, sealed(once, "delta", tables=[TABLE]))


def test_memoised_claims_say_what_they_assume_and_refuse_what_is_not_proved() -> None:
    stated = claim(_memoised(2, 9), "3")
    sentence = kernel.words(stated)
    assert "memoised for at most 2 distinct values" in sentence
    assert "neighbours have equal values in the same rounds" in sentence
    document = _memoised(2, 9).document()
    assert kernel.ExactRelease.read(document) == _memoised(2, 9)
    for change in (
        {"distinct": 10},
        {"distinct": 0},
        {"sampling": {"kind": "public", "rate": "1/2"}},
    ):
        with pytest.raises(kernel.Unreadable):
            kernel.ExactRelease.read({**document, **change})
    fresh = claim(_memoised(0, 9), "3")
    assert not accepts(fresh, sealed(fresh, "ratio", tables=[TABLE]))


# Smoothed profiles ----------------------------------------------------------------------------------------------


def _hypergeometric(first: int, second: int, sampled: int) -> dict[int, Fraction]:
    """The law of the number of sampled records of the first type."""
    total = comb(first + second, sampled)
    law: dict[int, Fraction] = {}
    for count in range(max(0, sampled - second), min(first, sampled) + 1):
        law[count] = Fraction(comb(first, count) * comb(second, sampled - count), total)
    return law


def _profile_truth(first: int, second: int, sampled: int, c: Fraction) -> Fraction:
    """The largest divergence of the database from its neighbours, in both directions, from the definition."""
    here, worst = _hypergeometric(first, second, sampled), Fraction(0)
    for move in (-1, 1):
        if first + move < 0 or second - move < 0:
            continue
        there = _hypergeometric(first + move, second - move, sampled)
        for p, q in ((here, there), (there, here)):
            parts = (max(mass - c * q.get(h, Fraction(0)), Fraction(0)) for h, mass in p.items())
            worst = max(worst, sum(parts, Fraction(0)))
    return worst


def _profile(first: int, second: int, sampled: int, epsilon: str, log10: str) -> bool:
    statement = {
        "kind": "profile", "first": first, "second": second, "sampled": sampled, "epsilon": epsilon,
        "log10_delta": log10,
    }  # fmt: skip
    stated = kernel.ExactClaim(release=None, statement=statement)
    return accepts(stated, sealed(stated, "profile"))


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(1, 100), Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize(
    ("first", "second"),
    [(1, 1), (0, 3), (3, 0), (1, 6), (2, 5), (4, 4), (7, 2), (30, 11), (100, 60)],
)
def test_profiles_are_the_divergences_of_neighbours(
    first: int, second: int, epsilon: Fraction
) -> None:
    total = first + second
    for sampled in sorted(
        {0, 1, 2, total // 2, total - 2, total - 1, total} & set(range(total + 1))
    ):
        with mpmath.workdps(60):
            c = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
            scaled = Fraction(int(c * 2**180), 2**180)
            truth = _profile_truth(first, second, sampled, scaled)
            if truth == 0:
                assert _profile(first, second, sampled, str(epsilon), "-1000")
                continue
            log10 = mpmath.log10(mpmath.mpf(truth.numerator) / truth.denominator)
            above, below = (Fraction(mpmath.nstr(log10 + step, 30)) for step in (1e-12, -1e-12))
        assert _profile(first, second, sampled, str(epsilon), str(above))
        assert not _profile(first, second, sampled, str(epsilon), str(below))


def test_the_profile_of_millions_of_votes() -> None:
    """81,283,501 and 74,223,975 votes, of which two in a thousand are lost: the number of the README."""
    votes = (81_283_501, 74_223_975)
    sampled = 155_196_462
    epsilon = math.log(51 / 49)
    computed = mezzotint.smoothed.profile(counts=votes, loss_rate=0.002, epsilon=epsilon)
    assert computed.sampled == sampled
    # The README prints four places.
    assert computed.log10_delta == pytest.approx(-31.9218, abs=1e-4)
    assert _profile(*votes, sampled, str(Fraction(epsilon)), repr(computed.log10_delta + 1e-6))
    assert not _profile(*votes, sampled, str(Fraction(epsilon)), repr(computed.log10_delta - 1e-6))


def test_profiles_never_understate_when_terms_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The geometric remainder counts: cut at a large term, the bound only grows."""
    factor = 2**FACTOR
    with flint.ctx.workprec(256):
        exact = smoothed.log_divergence(3000, 2001, 2500, factor)
        monkeypatch.setattr(smoothed, "_NEGLIGIBLE", smoothed.ONE >> 3)
        early = smoothed.log_divergence(3000, 2001, 2500, factor)
    assert (exact <= early) is True
    assert (early <= exact + flint.arb(2)) is True


def test_profiles_fall_with_what_is_lost() -> None:
    with flint.ctx.workprec(256):
        logs = [smoothed.log_divergence(40, 31, lost, 2**FACTOR + 2**60) for lost in range(1, 60)]
    known = [log for log in logs if log is not None]
    assert all((later <= earlier) is True for earlier, later in pairwise(known))
    assert len(known) > 20


@pytest.mark.parametrize("log10", ["-30/100", "-0.3", "-3e-1"])
def test_the_exponent_of_a_profile_reads_as_it_was_checked(log10: str) -> None:
    """10**-30/100 is 10**-32 to whoever reads powers before fractions; what was checked is 10**-0.3."""
    statement = {"kind": "profile", "first": 5, "second": 5, "sampled": 5, "epsilon": "1"}
    unchecked = kernel.ExactClaim(release=None, statement={**statement, "log10_delta": log10})
    checked = kernel.check(unchecked, sealed(unchecked, "profile"))
    (power,) = re.findall(r"10\*\*\((.*?)\)\)-indistinguishability", kernel.words(checked))
    assert Fraction(power) == Fraction(-3, 10)


@judges("privacy.propose.propose_profile")
def test_a_computed_profile_is_proposed_and_certified() -> None:
    """At the float's upper end; a hundredth below it the kernel refuses, and says why."""
    votes, epsilon = (81_283_501, 74_223_975), math.log(51 / 49)
    computed = mezzotint.smoothed.profile(counts=votes, loss_rate=0.002, epsilon=epsilon)
    for change, holds in ((0.0, True), (-0.01, False)):
        outcome = propose_profile(
            *votes,
            sampled=computed.sampled,
            epsilon=epsilon,
            log10_delta=computed.log10_upper + change,
        )
        assert outcome.claim.certified == holds
        assert (outcome.proof is not None) == holds
        assert "log10_delta is too small" in outcome.reason or holds
    assert "the histogram of 155196462 records" in kernel.words(outcome.claim)


@judges("privacy.propose.propose_profile")
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 2.0])
@pytest.mark.parametrize(("first", "second"), [(1, 6), (4, 4), (30, 11)])
def test_proposals_of_profiles_are_about_the_float_itself_and_bound_all_neighbours(
    first: int, second: int, epsilon: float
) -> None:
    """At the definition's divergence for the binary fraction of epsilon: a little above it holds, below it does not."""
    exact, sampled = Fraction(epsilon), (first + second) // 2
    with mpmath.workdps(60):
        c = mpmath.exp(mpmath.mpf(exact.numerator) / exact.denominator)
        truth = _profile_truth(first, second, sampled, Fraction(int(c * 2**180), 2**180))
        assert truth > 0
        log10 = float(mpmath.log10(mpmath.mpf(truth.numerator) / truth.denominator))
    for change, holds in ((1e-9, True), (-1e-9, False)):
        outcome = propose_profile(
            first, second, sampled=sampled, epsilon=epsilon, log10_delta=log10 + change
        )
        assert outcome.claim.certified == holds
        assert outcome.claim.statement["epsilon"] == str(exact)
        assert (outcome.proof is not None) == holds


# What no proof can show ------------------------------------------------------------------------------------------

CODES_ALONE = "steps_depend_on_earlier_ones_by_released_codes_alone"
ALL_REPORT = "absent_records_leave_reports_as_if_drawn_for_others"
_TABLES = ((sha256("a"), 1),)
_SECRET: dict[str, Any] = {"sampling": "poisson", "rate": Fraction(1, 2)}
_RELEASES = {
    "reports": kernel.ExactRelease(observer="reports", tables=_TABLES),
    "secret reports": kernel.ExactRelease(observer="reports", tables=_TABLES, **_SECRET),
    "memoised": kernel.ExactRelease(observer="reports", tables=_TABLES, rounds=3, distinct=2),
    "sums": kernel.ExactRelease(
        observer="secure_sum",
        tables=_TABLES,
        clients=9,
        lattice=(0, 1, 6),
        sampling="public",
        rate=Fraction(1, 2),
    ),
    "wide sums": kernel.ExactRelease(
        observer="secure_sum", tables=_TABLES, clients=9, lattice=tuple(range(0, 3000, 3))
    ),
    "model": kernel.ExactRelease(observer="model", noise_multiplier=Fraction(1), **_SECRET),
    "replaced codes": kernel.ExactRelease(
        observer="model",
        noise_multiplier=Fraction(1),
        kept=Fraction(3, 5),
        records_per_user=3,
        **_SECRET,
    ),
}


@pytest.mark.parametrize("name", _RELEASES)
def test_a_claim_says_what_no_proof_can_show(name: str) -> None:
    """Lists it, prints it, and cannot be read without it; the page of the format explains each name."""
    described = _RELEASES[name]
    sentence = kernel.words(claim(described, "1", "0.1"))
    assert (CODES_ALONE in described.assumptions) == (name == "replaced codes")
    assert (ALL_REPORT in described.assumptions) == (name == "secret reports")
    page = (Path(__file__).parents[2] / "docs" / "file-format.md").read_text(encoding="utf-8")
    for assumption in described.assumptions:
        printed = assumption.replace("_", " ")
        printed = printed.replace(">=", " at least ").replace("<=", " at most ")
        assert printed in sentence
        assert re.sub("=[0-9]+$", "=", assumption) in page
        without = [other for other in described.assumptions if other != assumption]
        with pytest.raises(kernel.Unreadable):
            kernel.ExactRelease.read({**described.document(), "assumptions": without})
    assert kernel.ExactRelease.read(described.document()) == described


def test_the_sentence_of_a_sum_names_the_integers_of_its_levels() -> None:
    """Levels -1, 0, 5 stand for 0, 1, 6; a certificate of 0, 1, 2 reads otherwise."""
    summed, many = _RELEASES["sums"], _RELEASES["wide sums"]
    sentence = kernel.words(claim(summed, "1", "0.1"))
    assert "whose 3 levels stand for the integers (0, 1, 6), the last one for 6" in sentence
    wide = kernel.words(claim(many, "1", "0.1"))
    assert "whose 1000 levels stand for the integers (0, 3, 6, " in wide
    assert "297), the last one for 2997, in 1 round" in wide
    assert len(wide) < 2500
