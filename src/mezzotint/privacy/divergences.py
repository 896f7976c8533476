"""Renyi divergences of releases, turned into an epsilon at a delta."""

from __future__ import annotations

import math

from mezzotint.core.types import UNIT

_LARGEST_POWER = 700
"""e to this power is a float."""


def rdp_to_epsilon(divergence: float, alpha: float, delta: float) -> float:
    """Epsilon at `delta` > 0 of a Renyi divergence of order `alpha` > 1, rounded up.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12:
        epsilon = D + log(1 - 1 / alpha) - (log(delta) + log(alpha)) / (alpha - 1).
    """
    log_complement = math.log1p(-1 / alpha)
    log_delta = math.log(delta)
    log_alpha = math.log(alpha)
    excess = alpha - 1
    # Near order 1 the roundings of 1 / alpha and of the logarithms count 1 / (alpha - 1) times.
    logarithm_size = abs(log_delta) + log_alpha + 1
    size = abs(divergence) + abs(log_complement) + logarithm_size / excess
    epsilon = divergence + log_complement - (log_delta + log_alpha) / excess
    return max(0.0, epsilon + size * 8 * UNIT)


def rdp_public_sampling(divergence: float, alpha: float, rate: float) -> float:
    """Renyi divergence of a release that happens with probability `rate`, visibly; rounded up.

    An absence that everybody sees has likelihood ratio 1:
        log(1 - rate + rate e**((alpha - 1) D)) / (alpha - 1).
    """
    # Rounded up itself: where rate * e**power is about 1, its error counts `power` times.
    excess = alpha - 1
    power = excess * divergence * (1 + 4 * UNIT)
    if rate == 1 or power >= _LARGEST_POWER:
        return divergence
    log_mean = math.log1p(rate * math.expm1(power))
    return log_mean / excess * (1 + 16 * UNIT)
