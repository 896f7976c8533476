"""Real numbers enclosed in balls, and their rounding to integers in a given direction.

The proof sets the precision (`precision`); too little makes balls wide, and the check fails.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import flint

from mezzotint.kernel.units import Refused

Ball: TypeAlias = flint.arb
Rational: TypeAlias = flint.fmpq

# Integers, rationals and balls.
polynomial = flint.fmpz_poly
rational_polynomial = flint.fmpq_poly
ball_polynomial = flint.arb_poly


def rational(value: Fraction | int) -> Rational:
    """The number itself as a rational of FLINT, which are fast."""
    return flint.fmpq(value.numerator, value.denominator)


def ball(value: Fraction | int) -> Ball:
    """A ball that encloses the number."""
    return flint.arb(rational(value))


def floor_scaled(value: Ball, bits: int) -> int:
    """An integer at or below value * 2**bits."""
    if value.is_finite() is not True:
        raise Refused("precision", "a number could not be enclosed", value)
    mantissa, exponent = value.lower().man_exp()
    shift = int(exponent) + bits
    return int(mantissa) << max(shift, 0) >> max(-shift, 0)


def ceil_scaled(value: Ball, bits: int) -> int:
    """An integer at or above value * 2**bits."""
    return -floor_scaled(-value, bits)


def exp_floor(exponent: Fraction, bits: int) -> int:
    """An integer at or below 2**bits * e**exponent, and 2**bits itself at 0."""
    return floor_scaled(ball(exponent).exp(), bits)


def exp_ceil(exponent: Fraction, bits: int) -> int:
    """An integer at or above 2**bits * e**exponent: floor plus one is none, as a ball may be wider than 1."""
    return ceil_scaled(ball(exponent).exp(), bits)


def log_fraction(value: Fraction) -> Ball:
    """The logarithm of a positive rational; exactly 0 at 1."""
    return ball(value.numerator).log() - ball(value.denominator).log()
