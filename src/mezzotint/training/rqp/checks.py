"""Checks of parameters shared by the accounting files."""

from __future__ import annotations

import math
from collections.abc import Callable

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


def bisect(holds: Callable[[float], bool], low: float, high: float, *, tolerance: float = 0.0) -> tuple[float, float]:
    """(a, b) around the point from which `holds` is true: false at a or a is low, true at b or b is high.

    Arguments:
        holds: false up to some point of [low, high], true from it on.
        tolerance: relative width to stop at; 0 for neighbouring floats. If `holds` is false everywhere, (high, high).
    """
    if not holds(high):
        return high, high
    while high - low > tolerance * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return low, high
