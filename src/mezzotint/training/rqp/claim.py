"""What a training run costs, in one record that hides none of its assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, final

from mezzotint.core.errors import ParameterError
from mezzotint.privacy.claim import plain, rounded_up
from mezzotint.training.rqp.checks import count, positive
from mezzotint.training.rqp.sampling import Neighboring, Sampling

_CHANGE = {
    "replace_one": "replacing one record",
    "add_or_remove_one": "adding or removing one record",
}


SIMULATION = "Simulation; not private: its noise and batches follow from a seed. Without one it would be"


@final
@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps of a run that share all settings.

    Arguments:
        noise_multiplier: z, noise of the summed clipped gradients over the clip norm, > 0.
        kappa: contraction of what follows the noise, in [0, 1]: 1 for post-processing (plain, nearest or stochastic
            rounding), `contraction(q, bits)` or `table_contraction(table)` for random replacement.
        sampling: how records enter a batch.
        steps: number of steps, at least 0.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    noise_multiplier: float
    kappa: float
    sampling: Sampling
    steps: int

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        if not 0 <= self.kappa <= 1:
            raise ParameterError("kappa", self.kappa, "a contraction lies in [0, 1]")
        if self.steps != 0:
            count("steps", self.steps)

    @property
    def effective_noise(self) -> float:
        """z / kappa: the noise multiplier of the DP-SGD that is as private; inf at kappa = 0."""
        return self.noise_multiplier / self.kappa if self.kappa > 0 else math.inf

    def __str__(self) -> str:
        contracted = "" if self.kappa == 1 else f" contracted by kappa {self.kappa:.6g}"
        noise = f"noise multiplier {self.noise_multiplier:.6g}{contracted}"
        return f"{self.steps} step(s) with {noise}, {self.sampling.words()}"


@final
@dataclass(frozen=True, kw_only=True)
class TrainingClaim:
    """(epsilon, delta) of all iterates of a training run, with everything it rests on.

    Arguments:
        epsilon, delta: rounded against us; epsilon is inf when nothing can be claimed at this delta.
        neighboring: "replace_one" or "add_or_remove_one".
        phases: the steps: noise, contraction, sampling.
        method: the accounting.
        seeded: the draws of the run followed from a seed. It was a simulation, and epsilon and delta are what the run
            would cost without the seed.
        observer, trust: somebody who sees all iterates; whoever trains holds the records and draws the noise.
    """

    epsilon: float
    delta: float
    neighboring: Neighboring
    phases: tuple[Phase, ...]
    method: str
    observer: Literal["model"] = "model"
    trust: Literal["central"] = "central"
    unit: Literal["record"] = "record"
    view: Literal["iterates"] = "iterates"
    honest_clients: None = None
    seeded: bool = False

    @property
    def releases(self) -> int:
        """Iterates that are released: all steps."""
        return sum(phase.steps for phase in self.phases)

    @property
    def sampling(self) -> str:
        """How records enter the batches, in words."""
        return "; ".join(dict.fromkeys(phase.sampling.words() for phase in self.phases))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon as "inf"."""
        return {
            "epsilon": plain(self.epsilon),
            "delta": self.delta,
            "neighboring": self.neighboring,
            "unit": self.unit,
            "view": self.view,
            "observer": self.observer,
            "trust": self.trust,
            "honest_clients": self.honest_clients,
            "sampling": self.sampling,
            "releases": self.releases,
            "phases": [
                {"noise_multiplier": phase.noise_multiplier, "kappa": phase.kappa, "steps": phase.steps}
                for phase in self.phases
            ],
            "method": self.method,
            "seeded": self.seeded,
            "certified": False,
        }

    def __str__(self) -> str:
        change = f"{_CHANGE[self.neighboring]} ({self.neighboring})"
        steps = " and ".join(str(phase) for phase in self.phases) or "no steps"
        where = f"to an observer of all iterates, for {steps}; whoever trains is trusted with the records"
        if math.isinf(self.epsilon):
            # Neither with a seed nor without one.
            return f"No epsilon can be claimed at delta={self.delta:g} for {change}, {where}."
        return (f"{SIMULATION} computed" if self.seeded else "Computed") + (
            f": ({rounded_up(self.epsilon)}, {rounded_up(self.delta)})-differential privacy for {change}, {where}; "
            f"accounted by {self.method}."
        )
