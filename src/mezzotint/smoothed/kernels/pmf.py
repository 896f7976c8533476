"""Logarithms of binomial and hypergeometric probabilities, accurate in the far tails at 2**53 records.

Loader's saddle-point form: every large quantity is a deviance `x log(x/m) + m - x >= 0` computed from the exact
difference `x - m`, so nothing cancels (a difference of log-factorials loses 7 digits already at 1.6e8).
Every function returns the value and its magnitude, the sum of the absolute parts, from which callers bound the
rounding error: relative to a unit roundoff u, each part is good to 24 u.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np

from mezzotint.core.compiled import compiled
from mezzotint.smoothed.kernels.doubledouble import product_difference

#: Unit roundoffs per unit of magnitude that bound the error of a log-probability below.
ROUNDOFFS = 24.0 * 2.0**-53
_LOG_TWO_PI = math.log(2.0 * math.pi)


def _stirling_table(size: int) -> np.ndarray:
    # log(n!) - log(sqrt(2 pi n) (n/e)^n) in 40 digits; the asymptotic series below takes over at n = 16.
    with localcontext() as context:
        context.prec = 40
        two_pi = 2 * Decimal("3.141592653589793238462643383279502884197")
        rows = [Decimal(0)]
        for n in range(1, size):
            factorial = Decimal(math.factorial(n)).ln()
            rows.append(factorial - (two_pi * n).ln() / 2 - n * Decimal(n).ln() + n)
    return np.array([float(row) for row in rows])


_STIRLING = _stirling_table(16)


@compiled
def stirling_error(n: float) -> float:
    """log(n!) minus Stirling's leading terms, for integers n >= 0 (0 at 0 by convention)."""
    if n < 16.0:
        return _STIRLING[int(n)]
    square = n * n
    series = 1.0 / 1260.0 - (1.0 / 1680.0 - (1.0 / 1188.0) / square) / square
    return (1.0 / 12.0 - (1.0 / 360.0 - series / square) / square) / n


@compiled
def deviance(x: float, mean: float, difference: float) -> float:
    """`x log(x / mean) + mean - x` from the exact `difference = x - mean`."""
    if x == 0.0:
        return mean
    ratio = difference / (x + mean)
    if abs(ratio) > 0.5:
        return x * math.log(x / mean) - difference
    # x log((1 + v)/(1 - v)) - d with d = v (x + mean) is d v + 2 x (v^3/3 + v^5/5 + ...).
    total = difference * ratio
    power = 2.0 * x * ratio
    square = ratio * ratio
    for j in range(1, 64):
        power *= square
        updated = total + power / (2 * j + 1)
        if updated == total:
            break
        total = updated
    return total


@compiled
def log_binomial(x: float, n: float, difference: float, p: float, q: float) -> tuple[float, float]:
    """log Bin(x; n, p) with `difference = x - n p` and `q = 1 - p` given exactly, and its magnitude."""
    if n == 0.0:
        return 0.0, 0.0
    if x == 0.0:
        value = n * (math.log1p(-p) if p < 0.5 else math.log(q))
        return value, -value
    if x == n:
        value = n * (math.log1p(-q) if q < 0.5 else math.log(p))
        return value, -value
    deviances = deviance(x, n * p, difference) + deviance(n - x, n * q, -difference)
    scale = 0.5 * (math.log(n / (x * (n - x))) - _LOG_TWO_PI)
    errors = stirling_error(n) - stirling_error(x) - stirling_error(n - x)
    return errors - deviances + scale, deviances + abs(scale) + 1.0


@compiled
def log_binomial_fraction(x: float, n: float, part: float, whole: float) -> tuple[float, float]:
    """log Bin(x; n, part / whole) for integers `part <= whole`, and its magnitude."""
    if part == 0.0 or part == whole:
        certain = x == 0.0 if part == 0.0 else x == n
        return (0.0 if certain else -math.inf), 0.0
    difference = product_difference(x, whole, n, part) / whole
    return log_binomial(x, n, difference, part / whole, (whole - part) / whole)


@compiled
def log_hypergeometric(x: float, special: float, ordinary: float, draws: float) -> tuple[float, float]:
    """log-probability of x special records among `draws` from special + ordinary ones, and its magnitude.

    Bin(x; special, p) Bin(draws - x; ordinary, p) / Bin(draws; all, p) at p = draws / all, where the deviance of
    the denominator vanishes.
    """
    whole = special + ordinary
    if draws == 0.0 or draws == whole or special == 0.0 or ordinary == 0.0:
        return 0.0, 0.0
    difference = product_difference(x, whole, special, draws) / whole
    p = draws / whole
    q = (whole - draws) / whole
    first, first_size = log_binomial(x, special, difference, p, q)
    second, second_size = log_binomial(draws - x, ordinary, -difference, p, q)
    third, third_size = log_binomial(draws, whole, 0.0, p, q)
    return first + second - third, first_size + second_size + third_size
