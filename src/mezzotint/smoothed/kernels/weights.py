"""Whole arrays of log-probabilities, and expectations over windows of counts."""

from __future__ import annotations

import numpy as np

from mezzotint.core.compiled import compiled
from mezzotint.smoothed.kernels.doubledouble import add, multiply
from mezzotint.smoothed.kernels.pmf import ROUNDOFFS, log_binomial, log_binomial_fraction, log_hypergeometric


@compiled
def hypergeometrics(x: np.ndarray, special: float, ordinary: float, draws: float):
    """`log_hypergeometric` of every entry, with error bounds."""
    values = np.empty(x.size)
    errors = np.empty(x.size)
    for i in range(x.size):
        values[i], errors[i] = log_hypergeometric(x[i], special, ordinary, draws)
    return values, ROUNDOFFS * errors


@compiled
def binomials(x: np.ndarray, n: float, p: tuple[float, float]):
    """log Bin(x; n, p) of every entry for p in two floats, with error bounds."""
    values = np.empty(x.size)
    errors = np.empty(x.size)
    mean_high, mean_low = multiply(n, 0.0, p[0], p[1])
    q = (1.0 - p[0]) - p[1]
    for i in range(x.size):
        if p[0] == 0.0 or q == 0.0:
            certain = x[i] == (0.0 if p[0] == 0.0 else n)
            values[i], errors[i] = 0.0 if certain else -np.inf, 0.0
            continue
        high, low = add(x[i], 0.0, -mean_high, -mean_low)
        values[i], errors[i] = log_binomial(x[i], n, high + low, p[0], q)
    return values, ROUNDOFFS * errors


@compiled
def binomial_fractions(x: np.ndarray, n: float, part: float, whole: float):
    """log Bin(x; n, part / whole) of every entry, with error bounds."""
    values = np.empty(x.size)
    errors = np.empty(x.size)
    for i in range(x.size):
        values[i], errors[i] = log_binomial_fraction(x[i], n, part, whole)
    return values, ROUNDOFFS * errors
