"""Warnings about settings that are allowed and rarely wanted."""

from __future__ import annotations

import math
import warnings

from mezzotint.training.projection import Projection


class TrainingWarning(UserWarning):
    """Base of the warnings about training settings."""


class DeadZoneWarning(TrainingWarning):
    """Nearest rounding never moves a weight whose step is shorter than half a cell."""


class MemoryLossWarning(TrainingWarning):
    """So many codes are replaced over the run that little of what was learned survives."""


class ContractionWarning(TrainingWarning):
    """Replacing codes lowers the noise needed only by kappa, and costs accuracy."""


class LeftOutWarning(TrainingWarning):
    """Records whose gradients are not finite count as zero."""


def warn_about(
    projection: Projection,
    *,
    bound: float,
    step_size: float,
    clip_norm: float,
    weight_noise: float,
    steps: int,
    contraction: float | None = None,
    stacklevel: int = 3,
) -> None:
    """Warns where a projection harms training (docs/training.md).

    Arguments:
        projection: what follows each step.
        bound: largest weight, M; h = half_cell * bound.
        step_size: eta.
        clip_norm: rho, the longest averaged gradient.
        weight_noise: s, standard deviation of the noise on one weight, weight units.
        steps: of the whole run.
        contraction: what may be claimed, if that is not the projection's kappa.
        stacklevel: of the warnings, as in `warnings.warn`: 3 points at the caller's caller.

    Warns:
        DeadZoneWarning: nearest rounding with eta rho < h, or with s < h / 2.
        MemoryLossWarning: lambda T > 1, lambda the probability that a code is drawn afresh.
        ContractionWarning: q < 1.
    """
    half = projection.half_cell * bound
    if projection.rounding == "nearest" and (step_size * clip_norm < half or weight_noise < half / 2):
        warnings.warn(
            f"nearest rounding has a dead zone: steps of at most {step_size * clip_norm:.3g} with noise "
            f"{weight_noise:.3g} against half a cell of {half:.3g}; use stochastic rounding",
            DeadZoneWarning,
            stacklevel=stacklevel,
        )
    fresh = projection.replacement * steps
    if fresh > 1:
        least, most = 1 - (1 - projection.q) / fresh, 1 / projection.replacement
        warnings.warn(
            f"a weight is drawn afresh {fresh:.3g} times over {steps} steps: most of what is learned is lost; take "
            f"q=1, or q of at least {least:.6g}, or at most {most:.0f} steps",
            MemoryLossWarning,
            stacklevel=stacklevel,
        )
    if projection.q < 1 and not math.isclose(projection.q, 1.0):
        kappa = projection.kappa if contraction is None else contraction
        effect = f"lowers the noise needed by a factor of {kappa:.3f} only"
        if kappa == 1:
            effect = "buys nothing around an optimizer that may remember gradients, or where weights stay floats"
        warnings.warn(
            f"q={projection.q:.4g} {effect}; stochastic rounding with q=1 usually learns more at the same epsilon",
            ContractionWarning,
            stacklevel=stacklevel,
        )
