"""What runs cost: known noise multipliers, samplers, both neighbouring relations, composition."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy
from dp_accounting.pld import common, privacy_loss_distribution as pld

from mezzotint import InfeasibleError, ParameterError, privacy
from mezzotint.privacy.tradeoffs import gaussian_epsilon, hockey_stick
from mezzotint.training import rqp
from reference import training as reference
from tolerances import MANY

DIAGNOSTIC = {"sampling_rate": 10 / 455, "steps": 46, "delta": 1e-7}


@pytest.mark.parametrize(
    ("settings", "noise"),
    [
        (DIAGNOSTIC, 1.279),
        pytest.param(
            {"sampling_rate": 64 / 60_000, "steps": 938, "delta": 1e-7},
            0.756,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"sampling_rate": 1 / 445, "steps": 445, "delta": 1e-7}, 0.833, marks=pytest.mark.slow
        ),
    ],
)
def test_noise_for_one_and_a_ten_millionth(settings: dict[str, float], noise: float) -> None:
    found = rqp.noise_multiplier(1.0, **settings)
    assert found == pytest.approx(noise, abs=1e-3)  # three printed decimals, and the grid of losses
    assert 1 - 1e-4 <= rqp.epsilon(found, **settings).epsilon <= 1


def test_replacement_lowers_the_noise_by_kappa_and_no_more() -> None:
    plain = rqp.noise_multiplier(1.0, **DIAGNOSTIC)
    # Math note 3.2 prints 1.198 and .814, from factors rounded to three digits.
    for q, printed in ((0.9, 1.198), (0.5, 0.814)):
        found = rqp.noise_multiplier(1.0, q=q, bits=4, **DIAGNOSTIC)
        # Half a unit of the factor, times a multiplier of up to 2, and of the product.
        assert found == pytest.approx(printed, abs=1.5e-3)
        assert found == pytest.approx(plain * rqp.contraction(q, 4), rel=MANY)
        assert rqp.epsilon(found, q=q, bits=4, **DIAGNOSTIC).epsilon <= 1


def test_the_paper_s_sampler_costs_far_more() -> None:
    # m draws with replacement, one record replaced, at the noise that Poisson sampling needs for (1, 1e-7).
    first = rqp.epsilon(
        1.279, steps=46, delta=1e-7, sampling=rqp.WithReplacement(batch_size=10, dataset_size=455)
    )
    second = rqp.epsilon(
        0.756,
        steps=938,
        delta=1e-7,
        sampling=rqp.WithReplacement(batch_size=64, dataset_size=60_000),
    )
    assert first.epsilon == pytest.approx(21.1, abs=0.05)  # one printed decimal
    assert second.epsilon == pytest.approx(27.3, abs=0.05)  # one printed decimal


def test_full_batches_are_the_plain_gaussian() -> None:
    # T full-batch steps are (sqrt(T)/z)-GDP; replacing one record twice that.
    for relation, factor in (("add_or_remove_one", 1), ("replace_one", 2)):
        claim = rqp.epsilon(2.0, sampling_rate=1.0, steps=4, delta=1e-5, neighboring=relation)
        mu = factor * 2 / 2.0
        low, high = 0.0, 50.0
        for _ in range(60):
            middle = (low + high) / 2
            exceeds = hockey_stick(mu, np.array([middle]))[0] > 1e-5
            low, high = (middle, high) if exceeds else (low, middle)
        assert high <= claim.epsilon <= high * 1.001


def test_sum_of_phases_is_their_composition() -> None:
    poisson = rqp.Poisson(rate=0.1)
    one = rqp.Phase(noise_multiplier=1.0, kappa=1.0, sampling=poisson, steps=10)
    two = replace(one, steps=5)
    whole = privacy.account(rqp.training_release([one], delta=1e-6)).epsilon
    assert privacy.account(rqp.training_release([two, two], delta=1e-6)).epsilon == pytest.approx(
        whole, rel=MANY
    )
    # Noise so different that the grids of losses differ, and a phase that costs nothing.
    loud = replace(one, noise_multiplier=0.15, steps=1)
    free = replace(one, kappa=0.0)
    mixed = privacy.account(rqp.training_release([one, loud, free], delta=1e-6)).epsilon
    assert max(whole, privacy.account(rqp.training_release([loud], delta=1e-6)).epsilon) < mixed
    assert mixed < whole + privacy.account(rqp.training_release([loud], delta=1e-7)).epsilon + 1


def test_curves_dominate_brute_force_mixtures() -> None:
    # Records with gradients +1, -1 or 0 against the curves for replacing and for drawing with replacement, one step.
    noise, rate, delta = 1.1, 0.2, 1e-3
    grid = np.linspace(-12, 12, 24_001)
    poisson = rqp.epsilon(
        noise, sampling_rate=rate, steps=1, delta=delta, neighboring="replace_one"
    ).epsilon
    drawn = rqp.epsilon(
        noise,
        steps=1,
        delta=delta,
        sampling=rqp.WithReplacement(batch_size=3, dataset_size=10),
        neighboring="replace_one",
    ).epsilon
    for others in (-1.0, 0.0, 1.0):
        for first, second in ((1.0, -1.0), (1.0, 0.0), (-1.0, 1.0)):
            p = reference.mixture_on_a_grid([0, first], [1 - rate, rate], noise, grid)
            r = reference.mixture_on_a_grid([0, second], [1 - rate, rate], noise, grid)
            assert reference.hockey_stick_on_a_grid(p, r, poisson) <= delta
            copies = [math.comb(3, k) * 0.1**k * 0.9 ** (3 - k) for k in range(4)]
            p = reference.mixture_on_a_grid(
                [others * (3 - k) + first * k for k in range(4)], copies, noise, grid
            )
            r = reference.mixture_on_a_grid(
                [others * (3 - k) + second * k for k in range(4)], copies, noise, grid
            )
            assert reference.hockey_stick_on_a_grid(p, r, drawn) <= delta


def test_poisson_replacement_is_never_below_the_symmetric_pair() -> None:
    # dp-accounting's own pair for replacing one record; ours must not fall below it.
    from dp_accounting import NeighboringRelation

    theirs = pld.from_gaussian_mechanism(
        1.0, sampling_prob=0.1, neighboring_relation=NeighboringRelation.REPLACE_ONE
    ).self_compose(5)
    ours = rqp.epsilon(1.0, sampling_rate=0.1, steps=5, delta=1e-5, neighboring="replace_one")
    assert theirs.get_epsilon_for_delta(1e-5) <= ours.epsilon


def test_the_sentence() -> None:
    claim = rqp.epsilon(1.1967, q=0.9, bits=4, **DIAGNOSTIC)
    sentence = str(claim)
    for part in (
        "adding or removing one record",
        "all iterates",
        "46 step(s)",
        "1.1967",
        "Poisson",
        "0.935955",
        "1e-07",
    ):
        assert part in sentence
    assert claim.unit == "record"
    assert (claim.observer, claim.trust) == ("model", "central")
    assert claim.releases == 46
    facts = claim.as_dict()
    assert facts["neighboring"] == "add_or_remove_one"
    assert facts["phases"] == [
        {"noise_multiplier": 1.1967, "kappa": rqp.contraction(0.9, 4), "steps": 46}
    ]
    paper = rqp.epsilon(
        1.0,
        steps=1,
        delta=1e-5,
        sampling=rqp.WithReplacement(batch_size=10, dataset_size=455),
        neighboring="replace_one",
    )
    assert "with replacement" in str(paper)
    assert "replacing one record" in str(paper)


def test_edges() -> None:
    assert rqp.epsilon(1.0, q=1 / 16, bits=4, **DIAGNOSTIC).epsilon == 0.0
    assert privacy.account(rqp.training_release([], delta=1e-5)).epsilon == 0.0
    assert rqp.epsilon(1e4, **DIAGNOSTIC).epsilon < 0.01
    tiny = rqp.epsilon(0.02, **DIAGNOSTIC).epsilon
    assert 46 / (2 * 0.02**2) * 0.02 < tiny < math.inf


def test_bad_input() -> None:
    with pytest.raises(ParameterError, match="noise_multiplier=0"):
        rqp.epsilon(0.0, **DIAGNOSTIC)
    with pytest.raises(ParameterError, match="delta=0"):
        rqp.epsilon(1.0, sampling_rate=0.1, steps=1, delta=0.0)
    with pytest.raises(ParameterError, match="sampling_rate=None"):
        rqp.epsilon(1.0, steps=1, delta=1e-6)
    with pytest.raises(ParameterError, match=r"sampling_rate=1\.5"):
        rqp.epsilon(1.0, sampling_rate=1.5, steps=1, delta=1e-6)
    with pytest.raises(ParameterError, match=r"sampling_rate=0\.1: give one"):
        rqp.epsilon(1.0, steps=1, delta=1e-6, sampling=rqp.Poisson(rate=0.1), sampling_rate=0.1)
    with pytest.raises(ParameterError, match="batch_size=0"):
        rqp.WithReplacement(batch_size=0, dataset_size=10)
    with pytest.raises(ParameterError, match="neighboring=both"):
        rqp.epsilon(1.0, neighboring="both", **DIAGNOSTIC)
    with pytest.raises(ParameterError, match="steps=0"):
        rqp.epsilon(1.0, sampling_rate=0.1, steps=0, delta=1e-6)
    with pytest.raises(ParameterError, match="target_epsilon=nan"):
        rqp.noise_multiplier(math.nan, **DIAGNOSTIC)
    with pytest.raises(InfeasibleError, match="10000"):
        rqp.noise_multiplier(1e-7, sampling_rate=1.0, steps=1, delta=1e-11)


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize(
    "sampling", [rqp.Poisson(rate=0.1), rqp.WithReplacement(batch_size=3, dataset_size=20)]
)
def test_next_to_no_noise_has_a_claim_that_says_so(neighboring: Any, sampling: Any) -> None:
    """Losses in the millions and more: a number that falls with the noise, or infinity; never a failed exponential."""
    spent = [
        privacy.account(
            rqp.training_release(
                [rqp.Phase(noise_multiplier=noise, kappa=1.0, sampling=sampling, steps=2)],
                delta=1e-5,
                neighboring=neighboring,
            )
        ).epsilon
        for noise in (0.5, 1e-2, 1e-5, 1e-160, 5e-324)
    ]
    assert spent == sorted(spent)
    assert math.isinf(spent[-1])


@pytest.mark.parametrize(
    ("steps", "shift", "delta"),
    [
        (300_000, 0.9973851298368424, 1.9723029060200124e-10),
        (300_000, 0.8099929315686306, 3.121710205571822e-11),
        (100_000, 2.0, 1e-10),
        (300_000, 0.5, 1e-6),
    ],
)
def test_many_steps_never_cost_less_than_their_gaussian(
    steps: int, shift: float, delta: float
) -> None:
    """Errors of a composition by FFT grow with the steps: the first two were claimed below the truth.

    All records in each of `steps` steps, with noise sqrt(steps) / shift, are shift-GDP, exactly.
    """
    claim = rqp.epsilon(math.sqrt(steps) / shift, sampling_rate=1.0, steps=steps, delta=delta)
    assert claim.epsilon >= gaussian_epsilon(shift, delta)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [300, 3000, 30_000, 300_000])
@pytest.mark.parametrize("rate", [1.0, 0.01])
def test_errors_of_a_composition_are_within_those_stated(steps: int, rate: float) -> None:
    """Against the same powers in 64 bits of mantissa, at every epsilon."""
    if np.finfo(np.longdouble).nmant <= np.finfo(np.float64).nmant:
        pytest.skip("no longer floats on this machine")
    for shift in (0.1, 0.5, 1.0, 3.0):
        noise = math.sqrt(steps) * rate / shift
        sampling = rqp.Poisson(rate=rate)
        if noise < 0.5:
            continue
        step = sampling.step(
            noise, "add_or_remove_one", sampling.spacing(noise, "add_or_remove_one")
        )
        single = step._pmf_remove.to_dense_pmf()
        offset, composed = common.self_convolve(single._probs, steps, 1e-15)
        length = scipy.fft.next_fast_len(max(composed.size, single._probs.size))
        power = np.ones(length, dtype=np.clongdouble)
        factor = scipy.fft.fft(single._probs.astype(np.longdouble), length)
        for bit in f"{steps:b}":
            power = power * power
            if bit == "1":
                power = power * factor
        closer = np.roll(scipy.fft.ifft(power).real, -offset)[: composed.size]
        spacing = single._discretization
        deltas = _deltas(composed, spacing)
        closer_deltas = _deltas(closer.astype(np.float64), spacing)
        stated = steps * (rqp._TAIL_ERROR + rqp._MASS_ERROR * closer_deltas)
        assert (np.abs(deltas - closer_deltas) <= stated).all()


def _deltas(masses: np.ndarray, spacing: float) -> np.ndarray:
    """At each loss of a grid: the sum over larger ones of masses times 1 - exp(-distance)."""
    shares = scipy.signal.lfilter([1.0], [1.0, -math.exp(-spacing)], masses[::-1])
    return np.cumsum(masses[::-1]) - shares
