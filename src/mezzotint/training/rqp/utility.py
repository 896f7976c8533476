"""What projecting onto levels costs in optimization: Theorem 2 of the RQP-SGD paper, as corrected and as printed."""

from __future__ import annotations

from typing import Literal

from mezzotint.core.errors import ParameterError
from mezzotint.training.rqp.contraction import check_q
from mezzotint.training.rqp.published import PublishedValue, RQPSettings

Rounding = Literal["nearest", "stochastic"]

DROPPED_TERM = (
    "the proof drops the cross term of the projection error, and a run whose steps are shorter than half a cell "
    "stays above it for ever"
)


def utility_bound(
    settings: RQPSettings, *, q: float = 1.0, rounding: Rounding = "stochastic", start_distance: float
) -> float:
    """Expected excess loss of an iterate drawn evenly from all steps: an upper bound for convex, rho-Lipschitz losses.

    Arguments:
        settings: see `RQPSettings`; `sampling="poisson"` means sums divided by the expected batch size.
        q: probability to keep a code, in [1/2**bits, 1].
        rounding: how a weight is projected before codes are replaced.
        start_distance: L2 distance from the first iterate to a minimizer within [-M, M]^d, >= 0; 2 M sqrt(d) always
            bounds it.

    Returns: the bound, in units of the loss.

    Raises:
        ParameterError: a rounding that is not known, q or distance outside its range.

    Guarantees: for a minimizer in the box; the average of the iterates is bounded too, but is not quantized.
    Source: corrected Theorem 2 (docs/proofs/training.md).
    """
    if rounding not in ("nearest", "stochastic"):
        raise ParameterError("rounding", rounding, 'use "nearest" or "stochastic"')
    if not start_distance >= 0:
        raise ParameterError("start_distance", start_distance, "a distance is 0 or more")
    keep, levels = check_q(q, settings.levels), settings.levels
    h, bound, eta = settings.half_cell, settings.bound, settings.step_size
    # Per coordinate E[(w' - w*)^2 - (v - w*)^2], v clipped. Nearest: |w' - v| <= h and |w' + v - 2 w*| <= 4M + h.
    # Stochastic: unbiased with variance at most h^2. Replaced by an even level, w' has mean 0, variance
    # M^2 (L+1) / (3 (L-1)), and w*^2 <= M^2.
    rounded = h**2 if rounding == "stochastic" else 4 * bound * h + h**2
    replaced = bound**2 * (1 + (levels + 1) / (3 * (levels - 1)))
    evenly = levels * (1 - keep) / (levels - 1)
    projection = settings.dimension * ((1 - evenly) * rounded + evenly * replaced)
    # A Poisson batch has |B|^2 / m^2 = 1 + (1-p)/m on average; a batch of fixed size 1.
    spread = 1 + 1 / settings.batch_size if settings.sampling == "poisson" else 1.0
    sigma = settings.noise_multiplier * settings.clip_norm
    return (
        start_distance**2 / (2 * eta * settings.steps)
        + eta * settings.clip_norm**2 * spread / 2
        + eta * settings.dimension * sigma**2 / (2 * settings.batch_size**2)
        + projection / (2 * eta)
    )


def published_utility_bound(settings: RQPSettings, *, q: float) -> PublishedValue:
    """Theorem 2 of the RQP-SGD paper as printed. NOT a bound: it drops a term.

    Arguments:
        settings: see `RQPSettings`.
        q: probability to keep a code, in [1/2**bits, 1].

    Source: Feng and Venkitasubramaniam, RQP-SGD, Theorem 2, eq. (11).
    """
    keep, levels, d = check_q(q, settings.levels), settings.levels, settings.dimension
    squares = keep / (levels - 1) ** 2 + 2 * levels * (2 * levels - 1) / (3 * (levels - 1) ** 2) * (1 - keep)
    sigma = settings.noise_multiplier * settings.clip_norm
    value = (
        settings.bound**2 / (2 * settings.step_size * settings.steps)
        + d * settings.bound**2 * squares
        + settings.step_size * settings.clip_norm**2 / 2
        + settings.step_size * sigma**2 * d
    )
    return PublishedValue(value=value, meaning="the published excess loss of RQP-SGD", reasons=(DROPPED_TERM,))
