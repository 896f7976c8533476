"""The Gaussian mechanism's exact curve: delta at an epsilon, epsilon at a delta, and the shift that a pair allows."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.mechanism import FloatArray
from mezzotint.core.search import bracket

RELATIVE_ERROR = 1e-12
"""scipy's ndtr, ndtri and log_ndtr err by a few 1e-15 relative where they are used here; 1e-12 is given away."""


def hockey_stick(mu: float, log_ratio: FloatArray) -> FloatArray:
    """sup_A of N(mu,1)(A) - e**log_ratio N(0,1)(A) for mu > 0, at any real log_ratio; never understated.

    Source: Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13.
    """
    # A is the half-line x >= log_ratio / mu + mu / 2.
    first = ndtr(mu / 2 - log_ratio / mu)
    second = np.exp(np.minimum(log_ratio + log_ndtr(-mu / 2 - log_ratio / mu), 0.0))
    # Both terms err relatively, so their difference errs by that much of the first, which is the larger one.
    exact = first * (1 + RELATIVE_ERROR) - second * (1 - RELATIVE_ERROR)
    return np.clip(exact, np.maximum(0.0, -np.expm1(np.minimum(log_ratio, 0.0))), 1.0)


def _delta(mu: float, epsilon: float) -> float:
    return float(hockey_stick(mu, np.array([epsilon]))[0])


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon >= 0 at which N(0, 1) and N(mu, 1) are (epsilon, delta)-close, rounded up; inf at delta 0.

    Releases of shifts mu_1, mu_2, ... under noise 1, chosen one after the other, cost what one of the root of the sum
    of their squares does (Dong, Roth and Su 2022, Corollary 3.3).

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 3)
        4.377
    """
    if not (mu < math.inf and delta > 0):
        return math.inf
    if mu == 0 or _delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * (mu / 2 + math.sqrt(2 * math.log(2 / delta)))
    while _delta(mu, high) > delta:
        high *= 2
    return bracket(lambda epsilon: _delta(mu, epsilon) <= delta, high, 0.0, tolerance=1e-12)[0]


def gaussian_shift(epsilon: float, delta: float) -> float:
    """The largest mu for which N(0, 1) and N(mu, 1) are (epsilon, delta)-close, rounded down."""
    low, high = 0.0, 1.0
    while _delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    return bracket(lambda mu: _delta(mu, epsilon) <= delta, low, high)[0]
