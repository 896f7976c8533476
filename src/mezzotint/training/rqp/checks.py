"""Checks of parameters shared by the accounting files."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.errors import ParameterError


def check_bits(bits: int) -> int:
    """Number of levels 2**bits; ParameterError unless bits is an integer from 1 to 16."""
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer) or not 1 <= bits <= 16:
        raise ParameterError("bits", bits, "need an integer from 1 to 16; try bits=4")
    return 2 ** int(bits)


def check_q(q: float, levels: int) -> float:
    """The number itself; ParameterError outside [1/levels, 1]."""
    value = float(q)
    if not 1 / levels <= value <= 1:
        raise ParameterError("q", value, f"the probability to keep a code lies in [1/levels, 1] = [{1 / levels:g}, 1]")
    return value


def positive(name: str, value: float) -> float:
    """The number itself; ParameterError unless it is finite and above 0."""
    number = float(value)
    if not 0 < number < math.inf:
        raise ParameterError(name, number, "need a finite number above 0")
    return number
