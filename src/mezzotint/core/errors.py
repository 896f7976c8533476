"""The errors that Mezzotint raises deliberately: each names the problem, the value and the
remedy.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from decimal import Decimal
from numbers import Integral, Rational, Real
from typing import Any, cast

import numpy as np
import numpy.typing as npt


def outside() -> int:
    """The level of a warning by the caller that points at the first line outside this package."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    level = 1
    # Code that `exec` runs may have no name.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mezzotint."):
        frame = frame.f_back
        level += 1
    return level


class MezzotintError(Exception):
    """Base of every error that this package raises deliberately."""


def _is_numeral(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return not text
    return True


_LONGEST_VALUE = 120
"""Characters of a value that a message shows."""


class ParameterError(MezzotintError, ValueError):
    """A parameter has a value that cannot be used.

    Arguments:
        parameter: the public name of the parameter.
        value: the offending value, shown in the message (shortened when long).
        remedy: what is wrong and what to do about it, in one sentence.
    """

    def __init__(
        self,
        parameter: str,
        value: object,
        remedy: str,
    ) -> None:
        self.parameter = parameter
        self.value = value
        self.remedy = remedy
        # Words and paths stand as they are; text that reads as a number is quoted, or nobody could
        # see that it is text.
        is_word = isinstance(value, str) and not _is_numeral(value)
        is_path = hasattr(value, "__fspath__")
        text = str(value) if is_word or is_path else repr(value)
        if len(text) > _LONGEST_VALUE:
            text = text[: _LONGEST_VALUE - 3] + "..."
        super().__init__(f"{parameter}={text}: {remedy}")

    def __reduce__(self) -> tuple[type[ParameterError], tuple[str, object, str]]:
        # So that other processes can send it back.
        return type(self), (self.parameter, self.value, self.remedy)


def as_scalar(value: object) -> object:
    """The truth value, number or text that an array without a dimension, or a scalar of another
    library, holds; anything else as it is.
    """
    if type(value) in (int, float, str) or getattr(value, "ndim", None) != 0:
        return value
    if np.ma.is_masked(value):  # of which NumPy makes 0
        return value
    array = cast(Any, value)
    if getattr(array.dtype, "kind", "") in ("m", "M"):  # of times, which would count their units
        return value
    try:
        scalar = array.item()
    except Exception:  # as each library has it
        return value
    return scalar if isinstance(scalar, Real | str) else value


def as_number(value: object) -> int | float | None:
    """The number that a value is, as Python's own; None for what is none, NaN, a truth value and
    integers beyond the floats.
    """
    scalar = as_scalar(value)
    if isinstance(scalar, bool) or not isinstance(scalar, Real | Decimal):
        return None
    try:
        number = float(scalar)
    except (OverflowError, ValueError):  # beyond the floats, or a signalling NaN
        return None
    if math.isnan(number):
        return None
    return operator.index(scalar) if isinstance(scalar, Integral) else number


def as_integer(value: object) -> int | None:
    """The integer that a value is, also one written as 1e4, as a fraction or a decimal number;
    floats are exact below 2**53.
    """
    scalar = cast(Any, as_scalar(value))
    if isinstance(scalar, bool):
        return None
    if isinstance(scalar, Integral):
        return operator.index(scalar)
    number = as_number(scalar)
    if number is None or math.isinf(number):
        return None
    whole_number = int(scalar)
    is_exact = abs(number) < 2**53 or isinstance(scalar, Rational | Decimal)
    return whole_number if is_exact and whole_number == scalar else None


def as_real(
    parameter: str,
    value: object,
    holds: Callable[[float], bool],
    remedy: str,
) -> float:
    """The value as a float; ParameterError unless it is one real number, not text that reads like
    one nor a truth value, and this holds for it, as it does for no NaN.
    """
    number = as_number(value)
    if number is None or not holds(number):
        raise ParameterError(parameter, value, remedy)
    return float(number)


def as_array(
    parameter: str,
    values: npt.ArrayLike,
    remedy: str,
) -> npt.NDArray[Any]:
    """The values as an array of whatever kind; ParameterError for rows of several lengths."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise ParameterError(parameter, type(values).__name__, remedy) from None


def as_reals(
    parameter: str,
    values: npt.ArrayLike,
    remedy: str,
) -> npt.NDArray[np.float64]:
    """The values as float64; ParameterError for anything but an array of numbers, naming the first
    that is missing.
    """
    try:
        entries = np.asarray(values)
        if np.ma.is_masked(values) or not _are_numbers(entries):
            raise TypeError
        array = entries.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(parameter, type(values).__name__, remedy) from None
    if np.isnan(array).any():  # as numpy reads None
        for index, value in np.ndenumerate(np.asarray(values, dtype=object)):
            if value is None:
                raise ParameterError(_entry_name(parameter, index), None, remedy)
    return array


def _are_numbers(entries: npt.NDArray[Any]) -> bool:
    """Whether entries are real: numpy reads numbers off text, and drops what is imaginary."""
    if entries.dtype.kind != "O":
        return entries.dtype.kind in "biuf"
    return not any(isinstance(entry, str | bytes | complex) for entry in entries.flat)


def _entry_name(parameter: str, index: tuple[int, ...]) -> str:
    if not index:
        return parameter
    return f"{parameter}[{', '.join(map(str, index))}]"


def wrong_kind(
    parameter: str,
    array: npt.NDArray[Any],
    kinds: str,
    remedy: str,
) -> ParameterError:
    """The error for an array whose dtype is not one of `kinds`; among objects it names the first
    one at fault.
    """
    if array.dtype == object:
        for index, value in np.ndenumerate(array):
            if np.asarray(value).dtype.kind in kinds:
                continue
            # An input of a privatization stays out of messages.
            description = None if value is None else type(value).__name__
            return ParameterError(_entry_name(parameter, index), description, remedy)
    return ParameterError(parameter, f"{array.dtype} of shape {array.shape}", remedy)


def refuse_nan(
    parameter: str,
    values: npt.NDArray[np.float64],
    noun: str = "input",
) -> None:
    """Raises ParameterError for the first NaN, in row-major order."""
    missing = np.isnan(values)
    if missing.any():
        raise ParameterError(
            parameter, math.nan, f"{noun} {int(np.argmax(missing))} is NaN; drop it first"
        )


class StorageError(ParameterError):
    """A file that must survive cannot be written, read or locked: full disk, read-only folder,
    another process.
    """


class BudgetError(MezzotintError, ValueError):
    """A release does not fit into the budget; it was not charged and must not happen."""


class FileFormatError(MezzotintError, ValueError):
    """A file is truncated, edited, of an unknown schema, or not ours at all."""


class InfeasibleError(MezzotintError, ValueError):
    """No mechanism satisfies the constraints; the message says by how much they are missed and what
    would help.
    """


class SolverError(MezzotintError, RuntimeError):
    """The numerical solver gave no usable answer to a problem that has one; the message holds its
    status.

    A search for a table that can be certified goes on at the next, smaller epsilon after this error
    as after InfeasibleError, and after no other.
    """


class MissingExtraError(MezzotintError, ImportError):
    """An optional library is not installed; the message names the extra that provides it."""
