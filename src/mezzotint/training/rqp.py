"""The cost of a run of RQP-SGD or DP-SGD: quantized weights, Gaussian noise, random replacement.
Works without torch.

Claims and proofs of runs.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from mezzotint import kernel
from mezzotint.core.arguments import (
    Neighboring,
    check_count,
    check_neighboring,
    check_positive,
)
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.records import JsonObject, above, exactly
from mezzotint.core.types import UNIT
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.propose import Outcome
from mezzotint.training.contraction import (
    contraction as contraction,
    table_contraction as table_contraction,
)
from mezzotint.training.proposals import model_release, propose_training as propose_training
from mezzotint.training.sampling import (
    Phase as Phase,
    Poisson as Poisson,
    Sampling,
    WithReplacement as WithReplacement,
)

PLD = "privacy loss distribution"

LEAST_DELTA = 1e-11
_CUT_ERROR = 1e-12
"""Mass that compositions cut off, and their roundings but for those that grow with the steps."""

_TAIL_ERROR = 4 * UNIT
_MASS_ERROR = 16 * UNIT
"""What a composition by FFT errs by, per participation: in small deltas absolutely, in all masses
relatively (docs/proofs/rounding.md). A power of a transform has the errors of its factors."""

_WIDEST = 700.0
"""Spacing of losses beyond which nothing is composed: dp-accounting takes e to its power."""

_GRID, _GRID_STEP = 20_000, 1e-3

_NOISE_RANGE = (1e-2, 1e4)
_CLOSE = 2e-5


@functools.lru_cache(maxsize=64)
def _step(
    noise: float, sampling: Sampling, neighboring: Neighboring, spacing: float, contracted: bool
) -> PrivacyLossDistribution:
    return sampling.step(noise, neighboring, spacing, contracted=contracted)


def _composed(lossy: Sequence[Phase], neighboring: Neighboring) -> PrivacyLossDistribution | None:
    """Loss of the complete run; None if no distribution on a grid holds it."""
    # Distributions compose only on one spacing of losses.
    spacing = max(
        phase.sampling.spacing(phase.effective_noise, neighboring, contracted=phase.kappa < 1)
        for phase in lossy
    )
    if not spacing <= _WIDEST:
        return None
    steps = [
        _step(phase.effective_noise, phase.sampling, neighboring, spacing, phase.kappa < 1)
        for phase in lossy
    ]
    # Moments of high orders overflow, and then bound no tail.
    with np.errstate(over="ignore"):
        runs = [
            step.self_compose(phase.participations)
            for step, phase in zip(steps, lossy, strict=True)
        ]
    return functools.reduce(lambda first, second: first.compose(second), runs)


def _delta_within(delta: float, participations: int) -> float:
    """The delta to read a composition at, so that with its error it is at most this one; may be
    negative, where none is.
    """
    tail_error = _CUT_ERROR + participations * _TAIL_ERROR
    return (delta - tail_error) / (1 + participations * _MASS_ERROR)


def _doubled(once: PrivacyLossDistribution, delta: float, participations: int) -> float:
    """Epsilon of replacing one record as removing it and adding another: (2 e, (1 + e^e) d) from
    (e, d).
    """
    # (1 + e^e) d(e) need not fall with e, so the least e that does is found on a grid.
    halves = np.arange(1, _GRID + 1) * _GRID_STEP
    read_deltas = np.asarray(once.get_delta_for_epsilon(halves.tolist()))
    tail_error = _CUT_ERROR + participations * _TAIL_ERROR
    deltas = read_deltas * (1 + participations * _MASS_ERROR) + tail_error
    doubled_deltas = deltas * (1 + np.exp(halves))
    sufficient = np.flatnonzero(doubled_deltas <= delta)
    if not sufficient.size:
        return math.inf
    return 2 * float(halves[sufficient[0]])


@functools.lru_cache(maxsize=256)
def _bounds(
    lossy: tuple[Phase, ...], neighboring: Neighboring, delta: float
) -> Mapping[str, float]:
    """Valid epsilons of phases; kept, as a run asks again for its ledger, its reports and its
    claim.
    """
    participations = sum(phase.participations for phase in lossy)
    read_delta = _delta_within(delta, participations)

    def cost(total: PrivacyLossDistribution | None) -> float:
        if total is None or read_delta <= 0:
            return math.inf
        return float(total.get_epsilon_for_delta(read_delta))

    bounds = {PLD: cost(_composed(lossy, neighboring))}
    if neighboring != "replace_one" or not any(map(_is_contracted, lossy)):
        return types.MappingProxyType(bounds)
    # What is known of contracted steps is less than of their noise, which may be the better bound.
    noise_alone = [replace(phase, kappa=1.0) for phase in lossy]
    bounds[PLD + " of the noise alone"] = cost(_composed(noise_alone, neighboring))
    if all(isinstance(phase.sampling, Poisson) for phase in lossy):
        single_change = _composed(lossy, "add_or_remove_one")
        doubled = math.inf
        if single_change is not None:
            doubled = _doubled(single_change, delta, participations)
        bounds[PLD + ", removal then addition"] = doubled
    return types.MappingProxyType(bounds)


def _is_contracted(phase: Phase) -> bool:
    return phase.kappa < 1 and phase.records_per_user == 1


@final
@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of a training run, every iterate of which is released: what
    `mezzotint.privacy.account` takes.

    Arguments:
        phases: the run, in any order.
        seeded: the draws of the run followed from a seed: it was a simulation.
    Guarantees: claims never understate; epsilon = 0 for no steps and for kappa = 0.
    Source: Theorem A and sampling lemmas (docs/proofs/training.md); Doroshenko et al. 2022 for the
        discretization.
    """

    phases: tuple[Phase, ...]
    seeded: bool = False

    def __post_init__(self) -> None:
        records = [phase.records_per_user for phase in self.phases]
        if len(set(records)) > 1:
            remedy = (
                "the phases are about users with different numbers of records; use the largest "
                "for all"
            )
            raise ParameterError("phases", records, remedy)

    @property
    def records_per_user(self) -> int:
        """Records that a user has at most, where the claim is about users; else 1."""
        if not self.phases:
            return 1
        return self.phases[0].records_per_user

    @property
    def facts(self) -> JsonObject:
        """Plain values for JSON."""
        facts: JsonObject = {"phases": [phase.facts for phase in self.phases]}
        if self.records_per_user > 1:
            facts["records_per_user"] = self.records_per_user
        return facts

    @property
    def released(self) -> str:
        """What a run publishes, in the words of a claim."""
        steps = " and ".join(str(phase) for phase in self.phases) or "no steps"
        return f"all iterates of {steps}"

    @property
    def between(self) -> str:
        """The data that a claim about users is limited to, in words; else empty."""
        if self.records_per_user <= 1:
            return ""
        return f"data in which a user has at most {self.records_per_user} records"

    def account(self, release: Release) -> Claim:
        """The claim about one record, against an observer of every iterate; delta in [1e-11, 1)."""
        return self.claim(release, self.bounds(release))

    def bounds(self, release: Release) -> dict[str, float]:
        """Valid epsilons by what they follow from; the least is claimed."""
        release.require_only("central", "neighboring")
        delta = release.delta
        neighboring = check_neighboring(release.neighboring)
        if not LEAST_DELTA <= delta < 1:
            raise ParameterError("delta", delta, f"must lie in [{LEAST_DELTA:g}, 1)")
        lossy_phases = tuple(phase for phase in self.phases if phase.steps > 0 and phase.kappa > 0)
        if not lossy_phases:
            return {PLD: 0.0}
        return dict(_bounds(lossy_phases, neighboring, delta))

    def claim(self, release: Release, bounds: Mapping[str, float]) -> Claim:
        """The claim made of valid bounds.

        Raises:
            ParameterError: what a run says by itself, such as its rounds, or somebody else trusted.
        """
        release.require_only("central", "neighboring")
        user_facts: dict[str, str] = {}
        if self.records_per_user > 1:
            user_facts = {"unit": "user"}
        sampling = "none"
        rate = 1.0
        common_rate = self._common_rate()
        if common_rate is not None:
            sampling = "poisson"
            rate = common_rate
        return release.claim(
            bounds,
            rounds=sum(phase.steps for phase in self.phases),
            sampling=sampling,
            sampling_rate=rate,
            seeded=self.seeded,
            **user_facts,
        )

    def _common_rate(self) -> float | None:
        """The rate of all phases' Poisson batches; None where they differ, or each holds all
        records.
        """
        rates: set[float] = set()
        for phase in self.phases:
            if not isinstance(phase.sampling, Poisson):
                return None
            rates.add(phase.sampling.rate)
        if len(rates) != 1 or rates == {1.0}:
            return None
        return rates.pop()

    def _single_poisson_phase(self) -> tuple[Phase, Poisson] | None:
        """The phase of a run that has one, with its Poisson batches."""
        if len(self.phases) != 1:
            return None
        (phase,) = self.phases
        if not isinstance(phase.sampling, Poisson):
            return None
        return phase, phase.sampling

    def exact(self, release: Release) -> kernel.ExactRelease | None:
        """One phase of Poisson batches as the kernel describes it, no code of which is replaced."""
        single = self._single_poisson_phase()
        if single is None:
            return None
        phase, sampling = single
        if phase.bands != 1:
            return None  # noise that is correlated over steps is no other noise of each
        try:
            release.require_only("central", "neighboring")
        except ParameterError:
            return None
        return model_release(
            noise_multiplier=phase.noise_multiplier,
            steps=phase.steps,
            sampling_rate=sampling.rate,
            neighboring=release.neighboring,
            records_per_user=self.records_per_user,
            seeded=self.seeded,
        )

    def propose(self, release: Release, claim: Claim, *, seconds: int) -> Outcome | str:
        """A proof, of runs of one phase with Poisson batches whose weights are rounded or free."""
        single = self._single_poisson_phase()
        if single is None:
            return "proofs are about runs of one phase with Poisson batches"
        phase, sampling = single
        if phase.bands != 1:
            return "proofs are about noise that is independent from step to step"
        if phase.kappa != 1:
            return (
                "proofs are about runs without random replacement of codes; propose_training has "
                "them by q and bits"
            )
        return propose_training(
            epsilon=claim.epsilon,
            delta=claim.delta,
            noise_multiplier=phase.noise_multiplier,
            steps=phase.steps,
            sampling_rate=sampling.rate,
            neighboring=release.neighboring,
            seeded=self.seeded,
            seconds=seconds,
            records_per_user=phase.records_per_user,
        )


def training_release(
    phases: Sequence[Phase],
    *,
    delta: float,
    neighboring: Neighboring = "add_or_remove_one",
    seeded: bool = False,
) -> Release:
    """The release of all iterates of a run, for `mezzotint.privacy.account` and `prove`."""
    steps = Steps(phases=tuple(phases), seeded=seeded)
    return Release(mechanism=steps, trust="central", neighboring=neighboring, delta=delta)


def _rule(sampling_rate: float | None, sampling: Sampling | None) -> Sampling:
    if sampling is not None and sampling_rate is None:
        return sampling
    if sampling_rate is None or sampling is not None:
        remedy = (
            "give one of the two: sampling_rate= of Poisson batches, or sampling= such as "
            "WithReplacement(...)"
        )
        raise ParameterError("sampling_rate", sampling_rate, remedy)
    return Poisson(rate=sampling_rate)


def epsilon(
    noise_multiplier: float,
    *,
    q: float = 1.0,
    bits: int = 4,
    steps: int,
    delta: float,
    sampling_rate: float | None = None,
    sampling: Sampling | None = None,
    neighboring: Neighboring = "add_or_remove_one",
) -> Claim:
    """The (epsilon, delta) of RQP-SGD: that of DP-SGD with noise multiplier z / kappa(q, bits).

    Arguments:
        noise_multiplier: z = sigma / rho > 0, noise of the summed clipped gradients over the clip
            norm.
        q: probability to keep a code, in [1/2**bits, 1]; 1 is DP-SGD, with or without rounding of
            the weights.
        bits: bits of one weight.
        steps: T >= 1.
        delta: in [1e-11, 1).
        sampling_rate: p in (0, 1] of Poisson batches: batch size over data size.
        sampling: instead of sampling_rate another rule: `WithReplacement` (the paper's), or
            `Poisson` with records_per_user, for a claim about all records of one user.
        neighboring: "add_or_remove_one" or "replace_one".
    Returns: the claim; `.epsilon` is its number, `str` its sentence.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    Guarantees: never understates; holds for all iterates, in any dimension, for any bound on the
        weights.
    Source: Theorem A (docs/proofs/training.md).
    """
    phase = Phase(
        noise_multiplier=noise_multiplier,
        kappa=contraction(q, bits),
        sampling=_rule(sampling_rate, sampling),
        steps=check_count("steps", steps),
    )
    return account(training_release([phase], delta=delta, neighboring=neighboring))


def noise_multiplier(
    target_epsilon: float,
    *,
    q: float = 1.0,
    bits: int = 4,
    steps: int,
    delta: float,
    sampling_rate: float | None = None,
    sampling: Sampling | None = None,
    neighboring: Neighboring = "add_or_remove_one",
) -> float:
    """The least noise multiplier whose claim is at most (target_epsilon, delta), within 1e-5
    relative, rounded up.

    Arguments: as for `epsilon`; target_epsilon > 0.
    Returns: z. It is kappa(q, bits) times what DP-SGD needs.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
        InfeasibleError: not even a noise multiplier of 10000 is enough.
    Guarantees: `epsilon(z, ...)` with the same settings is at most `target_epsilon`.
    Edge cases: q = 1/2**bits needs no noise; the smallest number searched, 0.01 kappa, is returned
        where it suffices.
    """
    check_positive("target_epsilon", target_epsilon)
    rule = _rule(sampling_rate, sampling)
    check_count("steps", steps)

    def spent(noise: float) -> float:
        phase = Phase(noise_multiplier=noise, kappa=1.0, sampling=rule, steps=steps)
        return account(training_release([phase], delta=delta, neighboring=neighboring)).epsilon

    dp_sgd_noise = _least_noise(spent, target_epsilon)
    kappa = contraction(q, bits)
    # Multiplying and dividing by kappa again may round; the margin keeps the claim below the
    # target.
    return max(dp_sgd_noise * kappa * (1 + 1e-12), math.ulp(1.0))


def _least_noise(spent: Callable[[float], float], target: float) -> float:
    """The noise at which `spent` (falling) reaches `target` or just less: false position in
    logarithms.
    """
    too_low, largest = _NOISE_RANGE
    noise = 1.0
    cost = spent(1.0)
    while cost > target and noise < largest:
        too_low = noise
        noise = min(noise * 2, largest)
        cost = spent(noise)
    if cost > target:
        raise InfeasibleError(
            f"target_epsilon={exactly(target)}: even a noise multiplier of {noise:g} gives epsilon "
            f"{above(cost)}; choose a larger target, fewer steps, smaller batches or a larger delta"
        )
    excess = math.inf
    while noise > too_low * (1 + _CLOSE) and cost < target * (1 - _CLOSE):
        noise_guess = math.sqrt(noise * too_low)
        if math.isfinite(excess) and cost > 0:
            logarithmic_share = math.log(target / cost) / math.log(excess / cost)
            # A little towards the safe side, and never out of the bracket.
            noise_guess = noise * (too_low / noise) ** min(
                max(0.999 * logarithmic_share, 0.01), 0.99
            )
        guess_cost = spent(noise_guess)
        if guess_cost <= target:
            noise = noise_guess
            cost = guess_cost
        else:
            too_low = noise_guess
            excess = guess_cost
    return noise
