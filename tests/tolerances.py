"""What tests allow, each with the bound it comes from; a tolerance that is none of these says its reason on the spot.

A tolerance is how far two right answers may lie apart on any CPU: sums in another order, another solver or logarithm.
`test_tolerances.py` holds all tests to it.
"""

from __future__ import annotations

UNIT = 2.0**-53
"""What one operation on floats errs by, relative to its result."""

FEW = 1e-12
"""Up to 9,000 roundings of numbers that do not cancel: sums over rows and levels of a table, a logarithm, a power."""

MANY = 1e-9
"""Up to 9,000,000 of them, as in convolutions and long sums; or 9,000 that a root or quotient enlarges 1,000 times."""

LOG_UP = 2.0**-49
"""What a logarithm of a ratio of integers, rounded up, may exceed the true one by: 16 units, as `core.loss` allows."""

GRAIN = 2.0**-32
"""One unit of a table's integer weights: what a probability may be off by after rounding to them."""

SINGLE = 1e-6
"""16 roundings of 32-bit floats (2^-24 each) of numbers of size 1: what torch computes with."""

SOLVED = 1e-6
"""What a design may miss its optimum by, relative to the loss: the gap that it promises at most."""

KEPT = 1e-5
"""Share of epsilon that a design may leave unused: it keeps 2^-20 in hand, and searches its parameter to 2^-18."""


def printed(digits: int) -> float:
    """Half a unit of the last of so many printed decimals, and a fifth of that for the figure's own rounding."""
    return 0.6 * 10.0**-digits
