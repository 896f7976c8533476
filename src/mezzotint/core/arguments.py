"""Argument checks shared by the whole package; each error names the parameter, its value and the
remedy.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, ParamSpec, SupportsIndex, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError, as_array, as_real, as_reals, outside, wrong_kind
from mezzotint.core.types import MAX_LEVELS, MAX_PROBABILITIES, FloatArray, IntArray, NumberArray

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Word = TypeVar("Word", bound=str)

MOST = 10**18
"""Largest count: products of counts stay far within the floats."""

MAX_CLIENTS = 10**8
"""Larger numbers of clients are accounted for as this many, which is still a valid bound."""

Values = Sequence[float] | NumberArray
"""Accepted where a function takes one number per bin, knot or level."""

Neighboring = Literal["replace_one", "add_or_remove_one"]
"""The neighbouring relation of a claim: one record replaced by any other, or one added or
removed.
"""


OldWords = Mapping[str, Mapping[str, str]]
"""A parameter's name of before -> its words of before -> those of today."""


def with_keys_of_today(
    values: Mapping[str, Any], names: Mapping[str, str], old_words: OldWords | None = None
) -> dict[str, Any]:
    """The values by the names of today, whatever version wrote them.

    Arguments:
        names: of before -> of today.
        old_words: of values that are words and were renamed, too.

    Raises:
        ParameterError: a value by both names.
    """
    words_by_name = old_words or {}
    current_values: dict[str, Any] = {}
    for key, value in values.items():
        current_key = names.get(key, key)
        if current_key != key and current_key in values:
            remedy = f"is now called {current_key}, which is there too; give that name alone"
            raise ParameterError(key, value, remedy)
        if isinstance(value, str):
            current_words = words_by_name.get(key, {})
            value = current_words.get(value, value)
        current_values[current_key] = value
    return current_values


def with_old_names(
    old_words: OldWords | None = None, /, **names: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes a decorator: a function accepts parameters by the names that they had before.

    Arguments:
        old_words: of parameters whose values are words that were renamed, too.
        names: of before -> of today.
    Raises:
        ParameterError: when the function is called, for a value by both names.
    Warns:
        FutureWarning: at each use of an old name.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def accepting(*values: P.args, **options: P.kwargs) -> R:
            if names.keys().isdisjoint(options):
                return function(*values, **options)
            current_options = with_keys_of_today(options, names, old_words)
            for old_name, current_name in names.items():
                if old_name in options:
                    _warn_of(old_name, current_name)
            options.clear()
            options.update(current_options)
            return function(*values, **options)

        return accepting

    return decorate


def with_old_fields(
    old_words: OldWords | None = None, /, **names: str
) -> Callable[[type[T]], type[T]]:
    """Makes a decorator: a class accepts and has fields by the names that they had before.

    Arguments, errors and warnings: as in `with_old_names`.
    """

    def decorate(cls: type[T]) -> type[T]:
        accepting = with_old_names(old_words, **names)(cls.__init__)
        setattr(cls, "__init__", accepting)  # noqa: B010
        for old_name, current_name in names.items():
            current_words = (old_words or {}).get(old_name, {})
            current_field = functools.partial(
                _current_field,
                old_name=old_name,
                current_name=current_name,
                current_words=current_words,
            )
            setattr(cls, old_name, property(current_field))
        return cls

    return decorate


def _current_field(
    record: object,
    *,
    old_name: str,
    current_name: str,
    current_words: Mapping[str, str],
) -> object:
    """The value of a renamed field, in its word of before if that was renamed, too."""
    _warn_of(old_name, current_name)
    value = getattr(record, current_name)
    for old_word, current_word in current_words.items():
        if value == current_word:
            return old_word
    return value


def _warn_of(old_name: str, current_name: str) -> None:
    """Warns whoever called the library by an old name."""
    warnings.warn(f"{old_name} is now called {current_name}", FutureWarning, stacklevel=outside())


def check_options(
    options: Mapping[str, object], receiver: Callable[..., object], /, **reasons: str
) -> None:
    """Raises ParameterError for an option that whom it is passed on to cannot take.

    Arguments:
        options: of a function that passes them on.
        receiver: the function or class that takes them, by keyword.
        reasons: of its parameters that the function gives itself, why: trust="these are sums".
    """
    accepted: list[str] = []
    for parameter in inspect.signature(receiver).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in reasons:
            accepted.append(parameter.name)
    for name, value in options.items():
        if name in reasons:
            raise ParameterError(name, value, f"leave it out: {reasons[name]}")
        if name not in accepted:
            remedy = f"use {', '.join(accepted) or 'no such option'}"
            raise ParameterError(name, value, remedy)


def check_count(
    name: str,
    value: object,
    *,
    least: int = 1,
    most: int = MOST,
) -> int:
    """The number itself, as a plain integer; ParameterError unless it is an integer in [least,
    most].
    """
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        number = least - 1
    is_flag = type(value) in (bool, np.bool_)
    if is_flag or not least <= number <= most:
        limit = f"{most:,}" if most < 10**6 else f"{most:.4g}"
        raise ParameterError(name, value, f"need an integer >= {least}, at most {limit}")
    return number


def check_rules(record: object, *rules: tuple[str, bool, str]) -> None:
    """Raises ParameterError for the first violated rule; a rule is a field's name, whether it
    holds, and the remedy.
    """
    for name, holds, remedy in rules:
        if not holds:
            raise ParameterError(name, getattr(record, name), remedy)


def check_choice(
    name: str,
    value: object,
    known: Iterable[Word],
) -> Word:
    """The word itself; ParameterError unless it is one of these."""
    choices = list(known)
    if value not in choices:
        remedy = f"use one of {', '.join(choices)}"
        if len(choices) == 2:
            remedy = f'use "{choices[0]}" or "{choices[1]}"'
        raise ParameterError(name, value, remedy)
    return cast(Word, value)


def check_instance(
    name: str,
    value: object,
    kind: type[T],
) -> T:
    """The object itself; ParameterError unless it is one of this class."""
    if not isinstance(value, kind):
        raise ParameterError(name, value, f"need an object of the class {kind.__name__}")
    return value


def check_finite(name: str, value: object) -> float:
    """The number itself, as a float; ParameterError unless it is one finite number."""
    return as_real(name, value, math.isfinite, "need one finite number")


def check_positive(
    name: str,
    value: object,
    remedy: str = "need a finite number above 0",
) -> float:
    """The number itself, as a float; ParameterError unless it is finite and above 0."""
    return as_real(name, value, lambda number: 0 < number < math.inf, remedy)


def check_limit(
    name: str,
    value: object,
    remedy: str = "need a number >= 0; inf sets no limit",
) -> float:
    """The number itself, as a float; ParameterError unless it is a number >= 0: no comparison with
    NaN holds, so that it would limit nothing.
    """
    return as_real(name, value, lambda number: number >= 0, remedy)


SCALES = (1e-50, 1e50)
"""Limits for norms, ranges and steps, in data units: products, quotients and squares keep all their
digits.
"""


def check_scale(name: str, value: object) -> float:
    """The number itself, as a float; ParameterError unless it can be a norm, the width of a range
    or a step.
    """
    scale = check_positive(name, value)
    if not SCALES[0] <= scale <= SCALES[1]:
        raise ParameterError(name, scale, "use units in which it lies between 1e-50 and 1e50")
    return scale


def check_probability(name: str, value: object) -> float:
    """The number itself, as a float; ParameterError unless it lies in (0, 1)."""
    return as_real(name, value, lambda number: 0 < number < 1, "need a probability in (0, 1)")


def check_rate(sampling_rate: float) -> float:
    """The number itself; ParameterError unless it lies in (0, 1]."""
    remedy = "a probability in (0, 1]; leave out clients that never take part"
    return as_real("sampling_rate", sampling_rate, lambda rate: 0 < rate <= 1, remedy)


def check_neighboring(value: object) -> Neighboring:
    """The word itself; ParameterError unless it names a relation."""
    return cast(Neighboring, check_choice("neighboring", cast(str, value), get_args(Neighboring)))


def check_delta(delta: float) -> float:
    """The number itself; ParameterError unless it lies in [0, 1)."""
    remedy = "need 0 (pure epsilon) or a probability in [1e-300, 1); try delta=1e-6"
    return as_real("delta", delta, lambda value: value == 0 or 1e-300 <= value < 1, remedy)


def check_others(clients: int, corrupted: int) -> int:
    """How many other clients' noise counts: clients - 1 - corrupted, at most `MAX_CLIENTS`."""
    count = check_count("clients", clients)
    absent = check_count("corrupted", corrupted, least=0)
    if absent > count - 1:
        remedy = f"between 0 and clients - 1 = {count - 1} can be dishonest"
        raise ParameterError("corrupted", corrupted, remedy)
    return min(count - 1 - absent, MAX_CLIENTS)


def check_epsilon(epsilon: object) -> float:
    """The number itself, as a float; ParameterError unless it is finite and above 0."""
    return check_positive(
        "epsilon",
        check_finite("epsilon", epsilon),
        "must be above 0: at 0 a report says nothing about its input",
    )


NARROWEST_RANGE = 1e-12
"""Width of an input range, relative to its larger end."""


def check_range(lower: object, upper: object) -> tuple[float, float]:
    """The input range: finite, lower < upper, and neither too wide nor too narrow for float64."""
    lower_end = check_finite("lower", lower)
    upper_end = check_finite("upper", upper)
    if not lower_end < upper_end:
        remedy = f"must lie below upper={upper_end:g}; swap them, or widen the range"
        raise ParameterError("lower", lower_end, remedy)
    range_width = upper_end - lower_end
    narrowest = NARROWEST_RANGE * max(abs(lower_end), abs(upper_end))
    if not math.isfinite(range_width):
        raise ParameterError("upper", upper_end, f"upper - lower={lower_end:g} overflows float64")
    if range_width <= narrowest:
        remedy = (
            f"upper - lower = {range_width!r} is too narrow for float64; subtract a number near "
            "them from the data"
        )
        raise ParameterError("upper", upper_end, remedy)
    return lower_end, upper_end


def check_table_size(
    name: str,
    value: object,
    *,
    rows: int,
    levels: int,
) -> None:
    """Raises ParameterError for a table of more probabilities than are computed: before it takes
    the machine's memory.

    Arguments:
        name, value: of the parameter that makes the table large.
        rows, levels: of the table.
    """
    if rows * levels > MAX_PROBABILITIES:
        remedy = (
            f"makes {rows:,} rows of {levels:,} probabilities, more than {MAX_PROBABILITIES:,} "
            "in all; ask for fewer"
        )
        raise ParameterError(name, value, remedy)


def check_vector(
    vector: npt.ArrayLike,
    size: int | None = None,
    *,
    name: str = "vector",
) -> FloatArray:
    """(size,) float64; ParameterError unless it is one vector of `size` finite numbers (None: at
    least one).
    """
    size_text = "some" if size is None else size
    values = as_reals(name, vector, f"need {size_text} real numbers")
    expected_size = values.size if size is None else size
    if values.shape != (expected_size,) or values.size == 0:
        remedy = f"need {size_text} coordinates in one dimension"
        raise ParameterError(name, str(values.shape), remedy)
    is_finite = np.isfinite(values)
    if not is_finite.all():
        index = int(np.argmin(is_finite))
        remedy = f"entry {index} is not finite; drop it first"
        raise ParameterError(name, float(values[index]), remedy)
    return values


def check_indices(name: str, values: npt.ArrayLike, size: int) -> IntArray:
    """The values as an array of the same shape; ParameterError for one that is no integer from 0
    to `size` - 1.
    """
    remedy = f"{name} are integers from 0 to {size - 1}"
    array = as_array(name, values, remedy)
    if np.ma.is_masked(values) or (array.size and array.dtype.kind not in "iu"):
        raise wrong_kind(name, array, "iu", f"{remedy}, none masked")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < size:
        raise ParameterError(name, f"{array.min()} to {array.max()}", remedy)
    return array.astype(np.int64, copy=False)


def check_total(total: npt.ArrayLike, length: int) -> npt.NDArray[np.integer]:
    """(length,) sum of reports; ParameterError unless it is that many integers."""
    values = as_array("total", total, f"need {length} integers")
    are_integers = values.dtype.kind in "iu" and not np.ma.is_masked(total)
    if not are_integers or values.shape != (length,):
        raise wrong_kind("total", values, "iu", f"need {length} integers")
    return values


def check_residues(
    total: npt.ArrayLike,
    length: int,
    modulus: int,
) -> IntArray:
    """(length,) residues 0 .. modulus - 1; ParameterError unless `total` is that many integers."""
    residues = check_total(total, length) % modulus
    return residues.astype(np.int64)


def check_increasing(name: str, values: npt.ArrayLike) -> FloatArray:
    """`values` as a strictly increasing 1-D float array of 2 to 2**16 finite numbers, or
    ParameterError.
    """
    numbers = as_reals(name, values, "need a 1-D sequence of numbers").copy()
    if numbers.ndim != 1 or not 2 <= numbers.size <= MAX_LEVELS:
        raise ParameterError(
            name, numbers.shape, f"need a 1-D sequence of 2 to {MAX_LEVELS} numbers"
        )
    if not np.isfinite(numbers).all():
        raise ParameterError(name, numbers.tolist(), "every value must be finite")
    if (np.diff(numbers) <= 0).any():
        raise ParameterError(
            name, numbers.tolist(), "must increase strictly; sort the values, drop duplicates"
        )
    return numbers


def check_covering(
    name: str,
    values: npt.ArrayLike,
    *,
    lower: float,
    upper: float,
) -> FloatArray:
    """As `check_increasing`, and the values reach from `lower` or below to `upper` or above."""
    numbers = check_increasing(name, values)
    if numbers[0] > lower or numbers[-1] < upper:
        remedy = (
            f"must reach from lower={lower:g} or below to upper={upper:g} or above, "
            "or no report could be unbiased"
        )
        raise ParameterError(name, numbers.tolist(), remedy)
    return numbers


def grid_or_values(
    name: str,
    values: int | Values,
    *,
    lower: float,
    upper: float,
) -> FloatArray:
    """An int becomes that many even values from `lower` to `upper`; a sequence is checked as by
    `check_covering`.
    """
    if isinstance(values, Integral) or as_array(name, values, "need numbers").ndim == 0:
        size = check_count(name, values, least=2, most=MAX_LEVELS)
        return np.linspace(lower, upper, size)
    return check_covering(name, values, lower=lower, upper=upper)
