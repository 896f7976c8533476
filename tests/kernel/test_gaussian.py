"""Training runs: closed forms, dp-accounting as the twin, the contraction, forgeries."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from laws.registry import judges
from mezzotint import kernel
from mezzotint.kernel.gaussian import check_contraction, gaussian_curve, replaced_curve
from mezzotint.kernel.losses import sampled_curves
from mezzotint.kernel.units import WHOLE, set_deadline
from mezzotint.training.contraction import contraction
from mezzotint.training.rqp import epsilon as float_epsilon, propose_training
from reference.kernel import accepts, claim, decimal_text, forgeries, resealed, sealed
from tolerances import FEW, SOLVED


@pytest.fixture(autouse=True)
def _time() -> None:
    set_deadline(600)


@functools.cache  # a case is asked for in turn by several tests
def _outcome(z: float, steps: int, rate: float, **more: Any) -> tuple[float, Any]:
    claim = float_epsilon(z, steps=steps, sampling_rate=rate, delta=1e-5, **more)
    return claim.epsilon, propose_training(
        epsilon=claim.epsilon,
        delta=1e-5,
        noise_multiplier=z,
        steps=steps,
        sampling_rate=rate,
        fineness=512,
        **more,
    )


@judges("kernel.gaussian.gaussian_curve")
@given(shift=st.floats(0.05, 4), epsilon=st.floats(-3, 6))
@settings(max_examples=40)
def test_the_gaussian_curve_is_the_closed_form(shift: float, epsilon: float) -> None:
    c = Fraction(math.exp(epsilon))
    with flint.ctx.workprec(256):
        value = gaussian_curve(flint.arb(shift))(c.numerator, c.denominator)
    exact = norm.cdf(shift / 2 - math.log(c) / shift) - float(c) * norm.cdf(
        -shift / 2 - math.log(c) / shift
    )
    assert abs(value / WHOLE - exact) < FEW * (1 + float(c))


def secretly_sampled(rate: Fraction, neighboring: str) -> kernel.ExactRelease:
    """A model's release of Gaussian noise over a Poisson sample."""
    return kernel.ExactRelease(
        observer="model",
        sampling="poisson",
        rate=rate,
        neighboring=neighboring,
        noise_multiplier=Fraction(1),
    )


@pytest.mark.parametrize(
    ("shift", "rate"),
    [(0.5, Fraction(1, 10)), (2.0, Fraction(1, 2)), (0.25, Fraction(1))],
    ids=["rare", "often", "always"],
)
def test_replacing_in_secret_mixes_a_near_and_a_far_pair(shift: float, rate: Fraction) -> None:
    """As the formula has it, and never below the exact curve of the pair itself."""
    release = secretly_sampled(rate, "replace_one")
    with flint.ctx.workprec(256):
        near, far = gaussian_curve(flint.arb(shift)), gaussian_curve(flint.arb(2 * shift))
        exact = replaced_curve(flint.arb(shift), rate)
        (mixed,) = sampled_curves(release, near, far)
        for ratio in (Fraction(1), Fraction(11, 10), Fraction(3, 2), Fraction(20)):
            numerator, denominator = ratio.as_integer_ratio()
            inner = 1 + (ratio - 1) / rate
            share = ratio / inner
            near_value, far_value = (curve(*inner.as_integer_ratio()) for curve in (near, far))
            expected = math.ceil(rate * ((1 - share) * near_value + share * far_value))
            value = mixed(numerator, denominator)
            assert value == expected
            assert value >= exact(numerator, denominator)
            # The curve of a pair and its mirror image: h(1/c) = 1 - 1/c + h(c) / c.
            assert mixed(denominator, numerator) == math.ceil(((ratio - 1) * WHOLE + value) / ratio)


@pytest.mark.parametrize("rate", [Fraction(1, 10), Fraction(1, 2), Fraction(1)])
def test_adding_and_removing_in_secret_are_rounded_up_to_the_last_unit(rate: Fraction) -> None:
    """h of p P + (1 - p) Q to Q at c, and of Q to it: p h(s) and t h(p c / t) from h of P to Q."""
    release = secretly_sampled(rate, "add_or_remove_one")
    with flint.ctx.workprec(256):
        curve = gaussian_curve(flint.arb(1))
        add, remove = sampled_curves(release, curve)
        for ratio in (Fraction(1, 3), Fraction(20, 21), Fraction(1), Fraction(7, 5), Fraction(30)):
            inner = 1 + (ratio - 1) / rate
            added = (1 - ratio) * WHOLE
            if inner > 0:
                added = rate * curve(*inner.as_integer_ratio())
            rest = 1 - (1 - rate) * ratio
            removed = Fraction(0)
            if rest > 0:
                removed = rest * curve(*(rate * ratio / rest).as_integer_ratio())
            assert add(*ratio.as_integer_ratio()) == math.ceil(added)
            assert remove(*ratio.as_integer_ratio()) == math.ceil(removed)


def test_one_step_without_sampling_is_the_closed_form() -> None:
    for neighboring, shift in (("add_or_remove_one", 0.5), ("replace_one", 1.0)):
        exact = norm.cdf(shift / 2 - 1.5 / shift) - math.exp(1.5) * norm.cdf(
            -shift / 2 - 1.5 / shift
        )
        outcome = propose_training(
            epsilon=1.5, delta=exact * 1.001, noise_multiplier=2.0, steps=1, neighboring=neighboring
        )
        assert outcome.proof is not None, outcome.reason
        low = kernel.ExactClaim(
            release=outcome.claim.release,
            statement={**outcome.claim.statement, "epsilon": "1.5", "delta": repr(exact * 0.999)},
        )
        assert not accepts(low, resealed(low, outcome.proof))


CASES: list[dict[str, Any]] = [
    {"z": 1.0, "steps": 200, "rate": 0.02},
    {"z": 1.0, "steps": 200, "rate": 0.02, "q": 0.9, "bits": 2},
    {"z": 2.0, "steps": 10, "rate": 1.0},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_certified_epsilon_is_that_of_dp_accounting_within_one_percent(
    case: dict[str, Any],
) -> None:
    float_value, outcome = _outcome(**case)
    assert outcome.proof is not None, outcome.reason
    # dp-accounting's bound is pessimistic by its buckets, so the kernel's may be a little below it.
    assert 0.99 * float_value <= float(outcome.claim.epsilon) <= 1.0101 * float_value
    assert "gaussian noise is ideal" in kernel.words(outcome.claim)


@pytest.mark.parametrize(("levels", "fits"), [(2, True), (3, False)])
def test_the_other_codes_share_what_is_not_kept(levels: int, fits: bool) -> None:
    # Kept with 3/4, of two codes the other takes 1/4: that contracts to 11/20. Of three, each of two takes 1/8: less.
    described = kernel.ExactRelease(
        observer="model", noise_multiplier=Fraction(1), kept=Fraction(3, 4), levels=levels
    )
    said = claim(described, "3", "1/10")
    grid = {"low": -64, "high": 64}
    content = {
        "kappa": "11/20",
        "range": "4",
        "depth": 30,
        "step": "1/16",
        "tail": 160,
        "sampled": grid,
    }
    assert accepts(said, sealed(said, "gaussian", **content)) == fits


@judges("training.proposals.propose_training")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param({**CASES[0], "steps": 20}, marks=pytest.mark.slow),
        {**CASES[1], "steps": 20},
        CASES[2],
    ],
    ids=str,
)
def test_stronger_claims_are_refused(case: dict[str, Any]) -> None:
    _, outcome = _outcome(**case)
    said = outcome.claim
    described = vars(said.release)
    changes: list[dict[str, Any]] = [
        {"rounds": 2 * said.rounds},
        {"noise_multiplier": said.noise_multiplier * Fraction(9, 10)},
        {"neighboring": "replace_one"},
    ]
    if said.sampling == "poisson":
        changes += [{"rate": 2 * said.rate}, {"rate": Fraction(1), "sampling": "none"}]
    if said.kept < 1:
        changes += [{"kept": Fraction(99, 100)}, {"levels": 2**8}]
    for change in changes:
        stronger = kernel.ExactClaim(
            release=kernel.ExactRelease(**{**described, **change}), statement=said.statement
        )
        assert not accepts(stronger, resealed(stronger, outcome.proof)), change
    for field, factor in (("epsilon", Fraction(95, 100)), ("delta", Fraction(1, 2))):
        text = decimal_text(Fraction(said.statement[field]) * factor)
        better = kernel.ExactClaim(release=said.release, statement={**said.statement, field: text})
        assert not accepts(better, resealed(better, outcome.proof))


def test_no_change_of_one_field_proves_a_false_claim() -> None:
    _, outcome = _outcome(1.0, 5, 0.05, q=0.9, bits=2)
    low = decimal_text(outcome.claim.epsilon * Fraction(95, 100))
    false = kernel.ExactClaim(
        release=outcome.claim.release, statement={**outcome.claim.statement, "epsilon": low}
    )
    for path, forged in forgeries(outcome.proof, skip=["claim_sha256"]):
        assert not accepts(false, resealed(false, forged)), path


@pytest.mark.parametrize(("q", "bits"), [(0.7, 1), (0.9, 2), (0.99, 4), (0.3, 3)])
def test_kappa_is_accepted_just_above_the_supremum_and_refused_below(q: float, bits: int) -> None:
    kept = Fraction(repr(q))
    other = (1 - kept) / (2**bits - 1)
    true = contraction(q, bits)  # an upper bound to a relative 1e-9

    def check(kappa: float, depth: int = 30, reach: int = 8) -> None:
        with flint.ctx.workprec(128):
            check_contraction(other, kept, Fraction(kappa), Fraction(reach), depth)

    check(true * (1 + 1e-3))
    for bad in (
        {"kappa": true * (1 - 1e-6)},
        {"kappa": true * 1.001, "depth": 1},
        {"kappa": true * 1.001, "reach": -1},
    ):
        with pytest.raises(kernel.Refused):
            check(**bad)
    # Refuted by a point, not only unproved: some m has a larger ratio than the kappa that is refused.
    grid = np.arange(1, 4000) / 4000
    width = float(kept - other)
    ratio = (
        width * norm.pdf(norm.ppf(grid)) / norm.pdf(norm.ppf(float(other) + width * grid))
    ).max()
    # Its greatest value over a grid of 1/4000: the peak is missed by the square of a step, times its curvature.
    assert true * (1 - 1e-4) <= ratio <= true * (1 + SOLVED)


def test_codes_that_are_replaced_more_often_than_kept_are_refused() -> None:
    with pytest.raises(kernel.Refused), flint.ctx.workprec(128):
        check_contraction(Fraction(6, 10), Fraction(4, 10), Fraction(1), Fraction(8), 30)
    with pytest.raises(kernel.Refused), flint.ctx.workprec(128):
        check_contraction(Fraction(0), Fraction(4, 10), Fraction(99, 100), Fraction(8), 30)


def test_a_kappa_below_one_needs_a_proof() -> None:
    _, outcome = _outcome(1.0, 50, 0.05)
    said = outcome.claim
    low = kernel.ExactClaim(
        release=said.release,
        statement={**said.statement, "epsilon": decimal_text(said.epsilon * Fraction(1, 2))},
    )
    assert not accepts(low, {**resealed(low, outcome.proof), "kappa": "1/3"})


def test_replacing_one_of_all_records_moves_the_sum_by_two_clip_norms() -> None:
    """One step of everyone, noise 4: the closed form's delta at distance 2 / 4, and not the one at 1 / 4."""
    once, noise = 0.7, 4.0
    deltas = [
        norm.cdf(s / 2 - once / s) - math.exp(once) * norm.cdf(-s / 2 - once / s)
        for s in (1 / noise, 2 / noise)
    ]
    shape = {"noise_multiplier": noise, "steps": 1, "neighboring": "replace_one"}
    held = propose_training(epsilon=once, delta=deltas[1] * 1.01, **shape)  # type: ignore[arg-type]
    assert held.proof is not None, held.reason
    assert float(held.claim.epsilon) < once * 1.01
    for delta in math.sqrt(deltas[0] * deltas[1]), deltas[1] * 0.99:
        low = kernel.ExactClaim(
            release=held.claim.release, statement={**held.claim.statement, "delta": repr(delta)}
        )
        assert not accepts(low, resealed(low, held.proof))


def test_replacing_a_record_costs_more_than_removing_one() -> None:
    removed, _ = _outcome(2.0, 20, 0.1)
    outcome = propose_training(
        epsilon=2.5 * removed,
        delta=1e-5,
        noise_multiplier=2.0,
        steps=20,
        sampling_rate=0.1,
        neighboring="replace_one",
        fineness=256,
    )
    assert outcome.proof is not None, outcome.reason
    low = kernel.ExactClaim(
        release=outcome.claim.release,
        statement={**outcome.claim.statement, "epsilon": decimal_text(Fraction(removed))},
    )
    assert not accepts(low, resealed(low, outcome.proof))


def test_replacing_as_removing_and_adding_takes_half_of_epsilon_and_less_than_half_of_delta() -> (
    None
):
    """One step that everyone takes part in: (2 e, (1 + exp e) d) from the closed form's (e, d), and nothing below."""
    once, shift = 0.7, 0.5
    exact = norm.cdf(shift / 2 - once / shift) - math.exp(once) * norm.cdf(
        -shift / 2 - once / shift
    )
    shape = {"noise_multiplier": 2.0, "steps": 1, "neighboring": "replace_one", "way": "removal"}
    delta = exact * (1 + math.exp(once))
    outcome = propose_training(epsilon=2 * once, delta=delta * 1.001, **shape)  # type: ignore[arg-type]
    assert outcome.proof is not None, outcome.reason
    assert outcome.proof["by"] == "removal"
    stated = {**outcome.claim.statement, "epsilon": repr(2 * once), "delta": repr(delta * 0.999)}
    low = kernel.ExactClaim(release=outcome.claim.release, statement=stated)
    assert not accepts(low, resealed(low, outcome.proof))
    # The direct way, with two clip norms, is never above the truth of the same pair either.
    true = norm.cdf(shift - once / shift) - math.exp(2 * once) * norm.cdf(-shift - once / shift)
    assert true <= delta
    assert not accepts(outcome.claim, {**outcome.proof, "by": "addition"})


@pytest.mark.parametrize(
    ("kept", "kappa_is_used", "by"),
    [({}, False, None), ({"q": 0.5, "bits": 4}, True, "removal")],
    ids=["pair", "half"],
)
def test_a_sampled_run_is_certified_the_way_that_costs_least(
    kept: dict[str, Any], kappa_is_used: bool, by: str | None
) -> None:
    found, outcome = _outcome(2.0, 20, 0.1, neighboring="replace_one", **kept)
    assert outcome.proof is not None, outcome.reason
    assert outcome.proof.get("by") == by
    assert ("range" in outcome.proof) == kappa_is_used
    assert float(outcome.claim.epsilon) <= 1.0101 * found


@pytest.mark.slow
def test_hardly_any_replacement_is_certified_by_the_noise_alone() -> None:
    found, outcome = _outcome(2.0, 20, 0.1, neighboring="replace_one", q=0.999, bits=4)
    assert outcome.proof is not None, outcome.reason
    assert "range" not in outcome.proof
    assert float(outcome.claim.epsilon) <= 1.0101 * found
    # The worst pair is that of Gaussian noise: no proof with a kappa below 1 has it.
    again = resealed(
        outcome.claim, {**outcome.proof, "kappa": "999/1000", "range": "8", "depth": 40}
    )
    assert not accepts(outcome.claim, again)
