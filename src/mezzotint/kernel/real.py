"""Real numbers enclosed in balls, and their rounding to integers in a given direction.

The proof sets the precision (`precision`); too little makes balls wide, and the check fails.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import flint

from mezzotint.kernel.units import require

Ball: TypeAlias = flint.arb
Rational: TypeAlias = flint.fmpq

# Integers, rationals and balls.
polynomial = flint.fmpz_poly
rational_polynomial = flint.fmpq_poly
ball_polynomial = flint.arb_poly

MAX_SHIFT = 2**24
"""Bits that a number is shifted by at most: more belong to no guarantee, and need memory."""


def rational(value: Fraction | int) -> Rational:
    """The number itself as a rational of FLINT, which are fast."""
    return flint.fmpq(value.numerator, value.denominator)


def ball(value: Fraction | int) -> Ball:
    """A ball that encloses the number."""
    return flint.arb(rational(value))


def floor_scaled(value: Ball, bits: int) -> int:
    """An integer at or below value * 2**bits."""
    require(value.is_finite(), "precision", "a number could not be enclosed")
    lower_end = value.lower()
    mantissa, exponent = lower_end.man_exp()
    left_shift = int(exponent) + bits
    require(left_shift <= MAX_SHIFT, "size", "a number is too large")
    if left_shift >= 0:
        return int(mantissa) << left_shift
    return int(mantissa) >> min(-left_shift, MAX_SHIFT)


def ceil_scaled(value: Ball, bits: int) -> int:
    """An integer at or above value * 2**bits."""
    return -floor_scaled(-value, bits)


def exp_floor(exponent: Fraction, bits: int) -> int:
    """An integer at or below 2**bits * e**exponent, and 2**bits itself at 0."""
    return floor_scaled(ball(exponent).exp(), bits)


def exp_ceil(exponent: Fraction, bits: int) -> int:
    """An integer at or above 2**bits * e**exponent, however wide the ball is."""
    return ceil_scaled(ball(exponent).exp(), bits)


def log_fraction(value: Fraction) -> Ball:
    """The logarithm of a positive rational; exactly 0 at 1."""
    require(value > 0, "logarithm", "a number is not positive")
    log_numerator = ball(value.numerator).log()
    log_denominator = ball(value.denominator).log()
    return log_numerator - log_denominator


def log_binomial(total: int, chosen: int) -> Ball:
    """The logarithm of the number of choices of `chosen` from `total` things."""
    require(0 <= chosen <= total, "binomial", "more are chosen than there are")
    return _log_factorial(total) - (_log_factorial(chosen) + _log_factorial(total - chosen))


def _log_factorial(count: int) -> Ball:
    return ball(count + 1).lgamma()
