"""The steps of a training run that share all settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from mezzotint.core.arguments import check_count, check_positive
from mezzotint.core.errors import ParameterError
from mezzotint.training.rqp.sampling import Sampling


def participations(steps: int, bands: int) -> int:
    """How often a record takes part at most that does so in one of `bands` steps in a row, the same one each time."""
    return -(-steps // bands)


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
        bands: steps that the noise is correlated over, at least 1. Of so many steps in a row a record takes part in one
            at most, and `sampling` is the rule by which it does.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    noise_multiplier: float
    kappa: float
    sampling: Sampling
    steps: int
    bands: int = 1

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)
        if not 0 <= self.kappa <= 1:
            raise ParameterError("kappa", self.kappa, "a contraction lies in [0, 1]")
        if self.steps != 0:
            check_count("steps", self.steps)
        if check_count("bands", self.bands) > 1 and self.kappa != 1:
            raise ParameterError(
                "bands", self.bands, "replaced codes hide nothing of noise that is correlated: kappa=1"
            )

    @property
    def participations(self) -> int:
        """How often a record takes part at most."""
        return participations(self.steps, self.bands)

    @property
    def effective_noise(self) -> float:
        """z / kappa: the noise multiplier of the DP-SGD that is as private; inf at kappa = 0."""
        return self.noise_multiplier / self.kappa if self.kappa > 0 else math.inf

    def __str__(self) -> str:
        contracted = "" if self.kappa == 1 else f" contracted by kappa {self.kappa:.6g}"
        noise = f"noise multiplier {self.noise_multiplier:.6g}{contracted}"
        if self.bands > 1:
            noise += f" correlated over {self.bands} steps, one of which may use a record"
        return f"{self.steps} step(s) with {noise}, {self.sampling.words()}"

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        bands = {"bands": self.bands} if self.bands > 1 else {}
        return {"noise_multiplier": self.noise_multiplier, "kappa": self.kappa, "steps": self.steps, **bands}
