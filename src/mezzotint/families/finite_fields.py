"""Finite fields as tables of integers: powers of x over GF(2), sums, products, and points of
projective spaces.
"""

from __future__ import annotations

import numpy as np

from mezzotint.core.types import IntArray


def powers_of_x(polynomial: int, degree: int) -> list[int]:
    """The powers of x modulo a polynomial over GF(2), as bits, until they are 1 again."""
    leading_bit = 1 << (degree - 1)
    elements = [1]
    while True:
        element = elements[-1] << 1
        if elements[-1] & leading_bit:
            element ^= polynomial
        if element == 1:
            return elements
        elements.append(element)


def primitive(degree: int) -> int:
    """A polynomial of this degree over GF(2), as bits, modulo which the powers of x are all
    elements but 0.
    """
    element_count = 2**degree
    for polynomial in range(element_count + 1, 2 * element_count, 2):
        if len(powers_of_x(polynomial, degree)) == element_count - 1:
            return polynomial
    raise AssertionError(f"no primitive polynomial of degree {degree}")


def prime_power(order: int) -> tuple[int, int] | None:
    """The prime and its power, at most the third, that a number is; None where it is none."""
    divisors = range(2, order + 1)
    prime = next(divisor for divisor in divisors if order % divisor == 0)
    for power in (1, 2, 3):
        if prime**power == order:
            return prime, power
    return None


def _reduction(prime: int, power: int) -> IntArray:
    """(power,) coefficients c, lowest first, of the first irreducible x^power - (c_0 + c_1 x + ..).

    Of degree 2 or 3 a polynomial without a root is irreducible; of degree 1 every one is.
    """
    elements = np.arange(prime)
    exponents = np.arange(power)
    for number in range(prime**power):
        coefficients = number // prime**exponents % prime
        polynomial_part = coefficients @ elements ** exponents[:, None]
        values = elements**power - polynomial_part
        if power == 1 or (values % prime).all():
            return coefficients
    raise AssertionError(f"no irreducible polynomial of degree {power} modulo {prime}")


def field_tables(order: int) -> tuple[IntArray, IntArray]:
    """Tables of sums and of products of the field of this order; 0 and 1 are its zero and its one.

    Elements are polynomials over the prime field, their coefficients the digits of a number, lowest
    first. Products are taken modulo the polynomial of `_reduction`.
    """
    prime, power = prime_power(order) or (order, 1)
    place_values = prime ** np.arange(power)
    numbers = np.arange(order)[:, None]
    digits = numbers // place_values % prime
    reduction = _reduction(prime, power)
    product = np.zeros((order, order, 2 * power - 1), dtype=np.int64)
    for first in range(power):
        for second in range(power):
            digit_products = digits[:, None, first] * digits[None, :, second]
            product[:, :, first + second] += digit_products
    for degree in range(2 * power - 2, power - 1, -1):
        leading = product[:, :, degree, None] % prime
        product[:, :, degree - power : degree] += leading * reduction
    digit_sums = (digits[:, None] + digits) % prime
    remainders = product[:, :, :power] % prime
    return digit_sums @ place_values, remainders @ place_values


def projective_points(order: int, dimension: int) -> IntArray:
    """(points, dimension + 1) one vector per line through 0: its first entry other than 0 is 1."""
    blocks: list[IntArray] = []
    for zero_count in range(dimension + 1):
        free_count = dimension - zero_count
        vector_count = order**free_count
        numbers = np.arange(vector_count)
        vectors = np.zeros((vector_count, dimension + 1), dtype=np.int64)
        vectors[:, zero_count] = 1
        for digit in range(free_count):
            column = zero_count + 1 + digit
            vectors[:, column] = numbers // order**digit % order
        blocks.append(vectors)
    return np.concatenate(blocks)
