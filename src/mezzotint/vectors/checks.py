"""What the room asks of its arguments; each refusal names the parameter, its value and the remedy."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import FloatArray, IntArray


def check_residues(total: npt.ArrayLike, length: int, modulus: int) -> IntArray:
    """(length,) residues 0 .. modulus - 1; ParameterError unless `total` is that many integers."""
    values = np.asarray(total)
    if values.dtype.kind not in "iu" or values.shape != (length,):
        raise ParameterError("total", f"{values.dtype}{values.shape}", f"need {length} integers")
    return (values % modulus).astype(np.int64)


def check_vector(vector: npt.ArrayLike, size: int | None = None, *, name: str = "vector") -> FloatArray:
    """(size,) float64; ParameterError unless it is one vector of so many finite numbers (None: at least one)."""
    wanted = "some" if size is None else size
    try:
        values = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(name, type(vector).__name__, f"need {wanted} real numbers") from None
    if values.shape != (values.size if size is None else size,) or values.size == 0:
        raise ParameterError(name, str(values.shape), f"need {wanted} coordinates in one dimension")
    if not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values)))
        raise ParameterError(name, float(values[place]), f"entry {place} is not finite; drop it first")
    return values


def check_count(name: str, value: Any, *, least: int = 1) -> int:
    """The number itself; ParameterError unless it is an integer from `least` to 2**40."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= 2**40:
        raise ParameterError(name, value, f"need an integer >= {least}, at most 2**40")
    return number


def check_probability(name: str, value: float) -> None:
    """ParameterError unless the value lies in (0, 1)."""
    if not isinstance(value, (int, float)) or not 0 < value < 1:
        raise ParameterError(name, value, "need a probability in (0, 1)")


def check_norm(name: str, value: float) -> None:
    """ParameterError unless the value is positive and finite."""
    if not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ParameterError(name, value, "need a positive, finite number of data units")
