"""The checks that all families share: each rejects a value by name, with the remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import MAX_LEVELS

FloatArray = npt.NDArray[np.float64]

Values = Sequence[float] | npt.NDArray[Any]
"""What a caller may give where one number per bin, knot or level is wanted."""


def finite(parameter: str, value: Any) -> float:
    """`value` as a finite float, or ParameterError."""
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_) or not math.isfinite(value):
        raise ParameterError(parameter, value, "need one finite number")
    return float(value)


def bounded_range(lower: Any, upper: Any) -> tuple[float, float]:
    """The input range: finite, lower < upper, and not so wide or narrow that floats give way."""
    low, high = finite("lower", lower), finite("upper", upper)
    if not low < high:
        raise ParameterError("lower", low, f"must lie below upper={high:g}; swap them, or widen the range")
    if not math.isfinite(high - low) or high - low <= 1e-12 * max(abs(low), abs(high)):
        raise ParameterError(
            "upper", high, f"upper - lower = {high - low!r} leaves no room for floats; rescale the data"
        )
    return low, high


def count(parameter: str, value: Any, *, least: int, most: int = MAX_LEVELS) -> int:
    """`value` as an int between `least` and `most`, or ParameterError."""
    if not isinstance(value, Integral) or isinstance(value, bool | np.bool_):
        raise ParameterError(parameter, value, f"need a whole number from {least} to {most}")
    number = int(value)
    if not least <= number <= most:
        raise ParameterError(parameter, number, f"need a whole number from {least} to {most}; try {max(least, 4)}")
    return number


def positive_epsilon(epsilon: Any) -> float:
    """A finite epsilon > 0, or ParameterError."""
    value = finite("epsilon", epsilon)
    if value <= 0:
        raise ParameterError("epsilon", value, "must be above 0: at 0 a report says nothing about its input")
    return value


def increasing(parameter: str, values: Any, *, least: int = 2) -> FloatArray:
    """`values` as a strictly increasing 1-D float array of at least `least` finite numbers, or ParameterError."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(parameter, values, "need a 1-D sequence of numbers") from None
    if array.ndim != 1 or not least <= array.size <= MAX_LEVELS:
        raise ParameterError(parameter, array.shape, f"need a 1-D sequence of {least} to {MAX_LEVELS} numbers")
    if not np.isfinite(array).all():
        raise ParameterError(parameter, array.tolist(), "every value must be finite")
    if (np.diff(array) <= 0).any():
        raise ParameterError(parameter, array.tolist(), "must increase strictly; sort the values, drop duplicates")
    return array


def covering(parameter: str, values: Any, *, lower: float, upper: float) -> FloatArray:
    """As `increasing`, and the values reach from `lower` or below to `upper` or above."""
    array = increasing(parameter, values)
    if array[0] > lower or array[-1] < upper:
        raise ParameterError(
            parameter,
            array.tolist(),
            f"must reach from lower={lower:g} or below to upper={upper:g} or above, or no report could be unbiased",
        )
    return array


def grid_or_values(parameter: str, values: int | Values, *, lower: float, upper: float) -> FloatArray:
    """An int becomes that many evenly spaced values from `lower` to `upper`; a sequence is checked as `covering`."""
    if isinstance(values, Integral) or np.ndim(values) == 0:
        return np.linspace(lower, upper, count(parameter, values, least=2))
    return covering(parameter, values, lower=lower, upper=upper)
