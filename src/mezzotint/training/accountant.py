"""Counts the steps of a script, and claims what they have cost so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from mezzotint.core.arguments import Neighboring, check_positive
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim
from mezzotint.training.models import IAccountant
from mezzotint.training.noise import Fresh, Noise
from mezzotint.training.optimizers import NoisyOptimizer
from mezzotint.training.rqp import training_release
from mezzotint.training.sampling import Phase, Poisson

Steps = tuple[float, float, int]
"""Noise multiplier, sampling rate, and number of steps that share them."""


@final
class BudgetSpentError(MezzotintError, RuntimeError):
    """A step beyond the planned ones; it has not been taken."""


@final
class Accountant(IAccountant):
    """Counts steps, and claims what they cost.

    Arguments:
        sampling: how records enter a batch.
        delta: of the claim; None where each claim names its own.
        neighboring: "add_or_remove_one" or "replace_one".
        steps: planned; one more is refused. None for no limit.
        seeded: the run is a simulation, and its claim says so.
        noise: how the noise of steps hangs together.
    Guarantees: a step is counted before its noise is drawn; the claim covers every released
        iterate, with the noise multiplier of each step and the worst contraction that held in any.
        Deep copies of an optimizer are counted here as well. What was pickled makes claims, and
        counts nothing: the run that it comes from would not know.
    """

    _pickled = False

    def __init__(
        self,
        *,
        sampling: Poisson,
        delta: float | None,
        neighboring: Neighboring = "add_or_remove_one",
        steps: int | None = None,
        seeded: bool = False,
        noise: Noise | None = None,
    ) -> None:
        self.history: list[Steps] = []
        self.noise: Noise = noise or Fresh()
        self.sampling = sampling
        self.delta = delta
        self.steps = steps
        self.seeded = seeded
        self.neighboring: Neighboring = neighboring
        self.contraction = 0.0
        self._goes_on = False

    def record(self, optimizer: NoisyOptimizer) -> None:
        """Counts a step of a `NoisyOptimizer` that is about to release.

        Raises:
            BudgetSpentError: beyond the planned steps.
            ParameterError: an accountant out of a pickle.
        """
        if self._pickled:
            remedy = (
                "the run would not count its steps; call make_private, and load_state_dict of "
                "what was saved"
            )
            raise ParameterError("optimizer", "a pickled copy", remedy)
        if self.steps is not None and len(self) >= self.steps:
            raise BudgetSpentError(
                f"all {self.steps} planned steps are taken, and another would cost more than the "
                "target; plan more epochs, or give noise_multiplier instead of target_epsilon"
            )
        self.contraction = max(self.contraction, optimizer.contraction)
        self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=self.sampling.rate)

    def __deepcopy__(self, _: object) -> Accountant:
        return self

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_pickled": True}

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step."""
        check_positive("noise_multiplier", noise_multiplier)
        if self._goes_on and self.history:
            earlier_noise, earlier_rate, earlier_steps = self.history[-1]
            if earlier_noise == noise_multiplier and earlier_rate == sample_rate:
                # In one assignment: an interrupt between two would lose all these steps.
                self.history[-1] = (earlier_noise, earlier_rate, earlier_steps + 1)
                return
        self.history.append((noise_multiplier, sample_rate, 1))
        self._goes_on = True

    def count_earlier(self, steps: int, optimizer: NoisyOptimizer) -> None:
        """Counts steps of the same run that another process took or may have taken.

        Arguments:
            steps: of all processes, those counted here included; fewer than are counted change
                nothing.
            optimizer: of this process, whose settings all of them share.
        """
        missing = steps - len(self)
        if missing <= 0:
            return
        self.contraction = max(self.contraction, optimizer.contraction)
        self.history.append((optimizer.noise_multiplier, self.sampling.rate, missing))
        self._goes_on = False  # a block of correlated noise that another began is not gone on with

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    def claim(self, delta: float | None = None) -> Claim:
        """What all steps so far cost one record, at the run's delta or another."""
        phases = [self._phase(steps, self.contraction) for steps in self.history]
        if delta is None:
            delta = self.delta
        return self._claim(phases, delta)

    def claim_of(self, steps: int, optimizer: NoisyOptimizer) -> Claim:
        """What a run of this many steps in all costs, if each is made as the optimizer is now."""
        contraction = max(self.contraction, optimizer.contraction)
        planned = (optimizer.noise_multiplier, self.sampling.rate, steps)
        phase = self._phase(planned, contraction)
        return self._claim([phase], self.delta)

    def _phase(self, steps: Steps, contraction: float) -> Phase:
        noise_multiplier, sample_rate, step_count = steps
        return self.noise.phase(
            noise_multiplier=noise_multiplier,
            kappa=contraction,
            sampling=replace(self.sampling, rate=sample_rate),
            steps=step_count,
        )

    def _claim(self, phases: Sequence[Phase], delta: float | None) -> Claim:
        if delta is None:
            raise ParameterError("delta", None, "name the delta of the claim")
        release = training_release(
            phases, delta=delta, neighboring=self.neighboring, seeded=self.seeded
        )
        return account(release)

    def get_epsilon(self, delta: float, *_: object, **__: object) -> float:
        """Epsilon of all steps so far; 0 before the first, inf where nothing can be claimed."""
        return self.claim(delta).epsilon

    @classmethod
    def mechanism(cls) -> str:
        """The name that Opacus stores beside an accountant's history."""
        return "mezzotint"

    def state_dict(self, destination: Any = None) -> Any:
        state_dict = super().state_dict(destination)
        state_dict["contraction"] = self.contraction
        return state_dict | self._identity()

    def _identity(self) -> dict[str, int]:
        """What a run that goes on must share with the one before."""
        return {
            "bands": self.noise.steps_shared,
            "records_per_user": self.sampling.records_per_user,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from the steps that another accountant counted, or this one did.

        Raises:
            ParameterError: a run of other bands or users; fewer steps than are counted here. To go
                back to earlier weights, load module and optimizer alone: the later ones are
                released.
        """
        for name, present_value in self._identity().items():
            earlier = int(state_dict.get(name, 1))
            if earlier != present_value:
                raise ParameterError(name, present_value, f"the run so far had {earlier}")
        history = [
            (float(noise_multiplier), float(sample_rate), int(steps))
            for noise_multiplier, sample_rate, steps in state_dict["history"]
        ]
        totals = _totals(history)
        if not _totals(self.history) <= totals:
            remedy = (
                "released steps stay counted; to go back to earlier weights, load module and "
                "optimizer alone"
            )
            step_counts = f"{totals.total()} steps, {len(self)} counted"
            raise ParameterError("state_dict", step_counts, remedy)
        super().load_state_dict(state_dict)
        self.history = history
        self.contraction = max(self.contraction, float(state_dict["contraction"]))
        self._goes_on = False  # a run that goes on begins anew


def _totals(history: Sequence[Steps]) -> Counter[tuple[float, float]]:
    """Steps by noise multiplier and sampling rate."""
    totals: Counter[tuple[float, float]] = Counter()
    for noise_multiplier, sample_rate, steps in history:
        totals[noise_multiplier, sample_rate] += steps
    return totals
