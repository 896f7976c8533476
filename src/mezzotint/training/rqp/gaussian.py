"""The two functions of the normal distribution that the accounting stands on, with their rounding errors bounded."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from mezzotint.core.loss import FloatArray

RELATIVE_ERROR = 1e-12
"""scipy's ndtr, ndtri and log_ndtr err by a few 1e-15 relative where they are used here; 1e-12 is given away."""


def isoperimetric(mass: FloatArray, rest: FloatArray) -> FloatArray:
    """I(m) = phi(Phi^-1(m)), the Gaussian isoperimetric function; concave, symmetric, 0 at both ends.

    Arguments:
        mass: m in [0, 1].
        rest: 1 - m, given as well because near 1 only it is accurate.
    """
    quantile = ndtri(np.minimum(mass, rest))
    return np.exp(-(quantile**2) / 2) / np.sqrt(2 * np.pi)


def slope(mass: FloatArray, rest: FloatArray) -> FloatArray:
    """I'(m) = -Phi^-1(m); +inf at 0, -inf at 1."""
    return np.where(mass <= rest, -ndtri(np.minimum(mass, rest)), ndtri(np.minimum(mass, rest)))


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
