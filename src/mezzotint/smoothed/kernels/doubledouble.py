"""Numbers of 106 bits as unevaluated sums of two floats, for the few differences that cancel.

The boundary `A (s + 1 - l) - E B l` is a difference of products of counts up to 2**53; in plain floats nothing
would be left of it. Dekker's and Knuth's error-free transformations keep it; numba never contracts them.
"""

from __future__ import annotations

from mezzotint.core.compiled import compiled

# 2**27 + 1 splits a 53-bit significand in two halves whose products are exact.
_SPLIT = 134217729.0


@compiled
def two_sum(a: float, b: float) -> tuple[float, float]:
    """The rounded sum and its exact error."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


@compiled
def two_product(a: float, b: float) -> tuple[float, float]:
    """The rounded product and its exact error, for |a|, |b| below 2**970."""
    product = a * b
    scaled = _SPLIT * a
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = _SPLIT * b
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@compiled
def add(a_high: float, a_low: float, b_high: float, b_low: float) -> tuple[float, float]:
    """Sum of two double-doubles, relative error below 2**-103."""
    high, error = two_sum(a_high, b_high)
    low, rest = two_sum(a_low, b_low)
    high, error = two_sum(high, error + low)
    return two_sum(high, error + rest)


@compiled
def multiply(a_high: float, a_low: float, b_high: float, b_low: float) -> tuple[float, float]:
    """Product of two double-doubles, relative error below 2**-102."""
    high, error = two_product(a_high, b_high)
    return two_sum(high, error + (a_high * b_low + a_low * b_high))


@compiled
def product_difference(a: float, b: float, c: float, d: float) -> float:
    """`a b - c d` for integers below 2**53, to one rounding of the result."""
    first, first_error = two_product(a, b)
    second, second_error = two_product(c, d)
    high, error = two_sum(first, -second)
    return high + (error + (first_error - second_error))
