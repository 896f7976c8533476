"""From values to the inputs of a table: the one function behind files, frames, engines, streams and
lists.

The same value gives the same input whatever brings it, or is refused by name (docs/collect.md,
"Values").
Storage is stripped first: dictionaries, run-end encoding, extensions and views hold what they hold.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.core.errors import ParameterError
from mezzotint.core.table import MISSING, OTHER, Table
from mezzotint.core.types import BoolArray, Floats, IntArray

compute: Any = pc  # its functions are made at import time, unseen by type checkers
of: Any = pa.types

Refusal = Callable[[int | None, str], ParameterError]
"""The error for an entry, by its index, or for all of them; and words about it."""

Markers = frozenset[str]
"""Texts that mean a missing value."""

EXACT_INTEGERS = {pa.float16(): 2**11, pa.float32(): 2**24, pa.float64(): 2**53}
"""Floats of smaller magnitude hold every integer exactly; a larger one may have been another
integer.
"""

STORED_AS = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
    pa.float16(): np.float16,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}
"""numpy's type of the numbers in an array's buffer; pyarrow's own answer needs pandas before
version 21."""

NOT_WHOLE = "holds a fraction, which is no category; categories are text or integers"
"""Messages never show a value: they go to logs, and the value is private."""

UNLISTED = -1
ABSENT = -2
"""Positions of values that no category names, and of missing values."""

_RESPELLED = r"^[\s\pZ]|[\s\pZ]$|\.0+$|^-0$|^(?i:true|false)$"
"""Unlisted text that may be a category in another spelling."""

_ZERO_FRACTION = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")


@final
@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Inputs of a table.

    Arguments:
        values: (k,) float32 or float64 without NaN, one per present value; positions for
            categories.
        present: (n,) a mask of the present values; None when all n are.
        unlisted: how many were counted as `(other)`, because no category names them.
        respelled: how many name a category only in another spelling (" a", "1.0", "True").
    """

    values: Floats
    present: BoolArray | None
    unlisted: int = 0
    respelled: int = 0


def inputs(
    values: Any,
    categories: Sequence[str] | None,
    *,
    parameter: str = "x",
    name: str | None = None,
    row: Callable[[int], str] = lambda index: f"value {index}",
    markers: Markers = frozenset(),
) -> Inputs:
    """Inputs that values stand for.

    Arguments:
        values: Arrow array, or anything that `arrow_array` takes.
        categories: those of the table; None for a table about numbers.
        parameter, name: for messages: the parameter, and its value (the column).
        row: for messages: the words for a row, by its index.
        markers: texts that mean a missing value, unless they are categories (cells of CSV).

    Raises:
        ParameterError: values of another kind, or a value that no category names in a table without
            `(other)`.
    """
    column = _ColumnName(
        parameter=parameter,
        name=name,
        row=row,
    )
    array = stripped(arrow_array(values, parameter=parameter, name=name))
    if categories is None:
        fault = number_fault(array.type, name)
        if fault:
            raise column.error(fault)
        present_values, present = numbers(array)
        return Inputs(values=present_values, present=present)
    return _positions(array, tuple(categories), column, markers)


def inputs_of(mechanism: Table, values: Any, **names: Any) -> Inputs:
    """`inputs` for the categories of a table, or for its numbers."""
    return inputs(values, mechanism.categories, **names)


@final
@dataclass(frozen=True, kw_only=True)
class _ColumnName:
    """The words of messages about one column."""

    parameter: str
    name: str | None
    row: Callable[[int], str]

    def error(self, remedy: str) -> ParameterError:
        return ParameterError(self.parameter, self.name or "given", remedy)


# Arrow arrays -------------------------------------------------------------------------------------


def arrow_array(
    values: Any,
    *,
    parameter: str = "x",
    name: str | None = None,
) -> pa.Array:
    """Values of a list, a NumPy array, a series or an Arrow array, as one Arrow array.

    Raises:
        ParameterError: Python values of several kinds, or of a kind that Arrow does not hold.
    """
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    type_name = type(values).__name__
    try:
        if hasattr(values, "to_arrow"):  # a Polars series
            return values.to_arrow()
        if hasattr(values, "iloc"):  # a pandas series
            return arrow_array(pa.array(values, from_pandas=True))
        if isinstance(values, np.ndarray | np.generic):
            numpy_column = _numpy_column(values)
            kind = numpy_column.dtype.kind
            if kind != "O":
                may_miss = kind in "fmM"
                return pa.array(numpy_column, from_pandas=may_miss)
            return _from_entries(numpy_column.tolist())
        return _from_entries(_entries(values))
    except _UNCONVERTIBLE:
        raise _mixed(values, parameter, name or type_name) from None


_UNCONVERTIBLE = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises for values that are no column."""


def _from_entries(entries: list[Any]) -> pa.Array:
    """An array of Python values, in which None and NaN are missing."""
    return pa.array(entries, from_pandas=True)


def _entries(values: Any) -> list[Any]:
    """The Python values of a list or an array; a single one is a list of itself."""
    if isinstance(values, np.ndarray | np.generic):
        return list(_numpy_column(values))
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        return [values]
    return list(values)


def _numpy_column(values: Any) -> npt.NDArray[Any]:
    """An array of one dimension at least, its bytes in the order of this machine, as Arrow's."""
    column: npt.NDArray[Any] = np.atleast_1d(values)
    if column.dtype.isnative:
        return column
    return column.astype(column.dtype.newbyteorder("="))


def _mixed(
    values: Any,
    parameter: str,
    name: str,
) -> ParameterError:
    """The error for values that are no column: the place and type of the first at fault, never a
    value.

    Reasons of Arrow quote the value, which is private.
    """
    remedy = "values of several kinds, or of a kind that no column has; convert this one or drop it"
    entries = _entries(values)
    if not entries:
        return ParameterError(parameter, name, remedy)
    # So many of the first entries are a column, and so many are none.
    column_size = 0
    mixed_size = len(entries)
    while mixed_size - column_size > 1:
        middle = (column_size + mixed_size) // 2
        try:
            _from_entries(entries[:middle])
            column_size = middle
        except _UNCONVERTIBLE:
            mixed_size = middle
    first_at_fault = entries[column_size]
    type_name = type(first_at_fault).__name__
    return ParameterError(f"{parameter}[{column_size}]", type_name, remedy)


def stripped(array: pa.Array) -> pa.Array:
    """The array without dictionary, run-end, extension and view storage."""
    while True:
        outer_type: Any = array.type
        if isinstance(outer_type, pa.BaseExtensionType):
            array = array.storage
        elif of.is_dictionary(outer_type):
            dictionary = stripped(array.dictionary)
            array = dictionary.take(array.indices)
        elif of.is_run_end_encoded(outer_type):
            array = compute.run_end_decode(array)
        elif of.is_string_view(outer_type):
            array = array.cast(pa.large_string())
        else:
            return array


# Ids of people ------------------------------------------------------------------------------------

MOST_BLANKS = 8
"""Bytes of white space that are taken for a missing id; longer texts are not looked at."""

NO_ID = "has no id"
"""What is said of a missing one."""

_SPELLED_ID = r"^[\s\pZ]|[\s\pZ]$|^[+-]?[0-9]+\.0*$"
"""Text that another source may spell otherwise: with blanks around it, or an integer as a float."""

_POINT, _ZERO, _BLANK = b".0 "
_ASCII_END = 0x80


def identities(
    ids: pa.Array,
    refuse: Refusal,
    *,
    markers: Markers = frozenset(),
) -> pa.Array:
    """Ids as integers or text: one person has one spelling, whatever type a file stores it in.

    Arguments:
        ids: integers, text, or floats and decimals that are integers.
        refuse: makes the error that is raised.
        markers: texts that mean a missing value (cells of CSV).

    Raises:
        ParameterError: a missing id, another type, or a spelling that could be taken for another
            person's.
    """
    array = stripped(ids)
    kind = array.type
    is_text = _is_text(kind)
    is_id = is_text or of.is_integer(kind) or of.is_null(kind)
    if of.is_floating(kind) or of.is_decimal(kind):
        array = _whole_ids(array, refuse)
        is_text = of.is_decimal(kind)
    elif not is_id:
        raise refuse(None, f"holds {kind}; ids are integers or text, convert them first")
    missing = first_without_id(array, markers)
    if missing is not None:
        raise refuse(missing, NO_ID)
    misspelled = None
    if is_text:
        misspelled = _first_spelled(array)
    if misspelled is not None:
        remedy = (
            "has an id with blanks around it, or an integer spelled as a float, which would count "
            "as another person; write each id in one way"
        )
        raise refuse(misspelled, remedy)
    return array


def _whole_ids(array: pa.Array, refuse: Refusal) -> pa.Array:
    """Floats or decimals that are integers, as integers or their digits; missing ones are null."""

    def row(index: int) -> str:
        raise refuse(index, "has an id with a fraction; ids are integers or text")

    column = _ColumnName(parameter="ids", name=None, row=row)
    if of.is_decimal(array.type):
        return _whole_decimals(array, column)
    return _whole_floats(array, column)


def _first_spelled(ids: pa.Array) -> int | None:
    """The first of some texts, none empty, that `_SPELLED_ID` is about; None for none."""
    texts = ids.cast(pa.large_string())
    _, raw_offsets, raw_text = texts.buffers()
    all_offsets = np.frombuffer(raw_offsets, dtype=np.int64)
    last_offset = texts.offset + len(texts)
    starts = all_offsets[texts.offset : last_offset]
    ends = all_offsets[texts.offset + 1 : last_offset + 1]
    octets = np.frombuffer(raw_text or b"", dtype=np.uint8)
    used = octets[all_offsets[texts.offset] : all_offsets[last_offset]]
    if not used.size:
        return None
    is_plain = used.min() > _BLANK and used.max() < _ASCII_END
    if is_plain and not (used == _POINT).any():
        return None
    first = octets[starts]
    last = octets[ends - 1]
    doubtful = (last == _POINT) | (last == _ZERO)
    for end in (first, last):
        doubtful |= (end <= _BLANK) | (end >= _ASCII_END)
    rows = np.flatnonzero(doubtful)
    doubtful_texts = texts.take(arrow(rows))
    matches = compute.match_substring_regex(doubtful_texts, _SPELLED_ID)
    found = compute.indices_nonzero(matches)
    if not len(found):
        return None
    first_found = plain(found)[0]
    return int(rows[first_found])


def _missing_words(markers: Markers, kind: pa.DataType) -> pa.Array:
    """The texts that mean a missing value, the empty one first."""
    return texts_of(["", *sorted(markers)], kind)


def first_without_id(ids: pa.Array, markers: Markers = frozenset()) -> int | None:
    """The first of some ids that is missing: null, blank text, or a text that means a missing value.

    None where all are there. Ids are stripped of their storage.
    """
    if ids.null_count:
        return int(np.argmin(validity(ids)))
    if not _is_text(ids.type):
        return None
    marker_lengths = [len(marker.encode()) for marker in markers]
    longest = max([MOST_BLANKS, *marker_lengths])
    id_lengths = plain(compute.binary_length(ids))
    short_rows = np.flatnonzero(id_lengths <= longest)
    if not short_rows.size:
        return None
    short_ids = ids.take(arrow(short_rows))
    trimmed = compute.utf8_trim_whitespace(short_ids)
    is_missing = compute.is_in(trimmed, _missing_words(markers, trimmed.type))
    missing_positions = compute.indices_nonzero(is_missing)
    if not len(missing_positions):
        return None
    first_missing = plain(missing_positions)[0]
    return int(short_rows[first_missing])


def stripped_type(kind: Any) -> pa.DataType:
    """The type that `stripped` gives arrays of a type."""
    inner_type: Any = kind
    while True:
        if isinstance(inner_type, pa.BaseExtensionType):
            inner_type = inner_type.storage_type
        elif of.is_dictionary(inner_type) or of.is_run_end_encoded(inner_type):
            inner_type = inner_type.value_type
        elif of.is_string_view(inner_type):
            return pa.large_string()
        else:
            return inner_type


# By buffers, not by `to_numpy` and `pa.array`, which import pandas wherever it is installed (half a
# second for nothing), and which fail in older versions of pyarrow where it is not.


def plain(array: pa.Array) -> npt.NDArray[Any]:
    """A view of the numbers of an array without nulls, whose type is one of `STORED_AS`."""
    dtype = np.dtype(STORED_AS[array.type])
    _nulls, data = array.buffers()
    if data is None or not len(array):
        return np.empty(0, dtype=dtype)
    return np.frombuffer(
        data,
        dtype=dtype,
        count=len(array),
        offset=array.offset * dtype.itemsize,
    )


def validity(array: pa.Array) -> BoolArray:
    """A mask of the entries that are not null."""
    size = len(array)
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.full(size, not of.is_null(array.type))
    bitmap_bytes = np.frombuffer(bitmap, dtype=np.uint8)
    all_bits = np.unpackbits(bitmap_bytes, bitorder="little")
    array_bits = all_bits[array.offset :][:size]
    return array_bits.astype(bool)


def arrow(
    values: npt.NDArray[np.generic],
    present: BoolArray | None = None,
) -> pa.Array:
    """An Arrow array over the memory of integers, with nulls where they are not present; or of
    booleans, copied.
    """
    bitmap = None
    if present is not None:
        bitmap = _bitmap(present)
    if values.dtype == np.bool_:
        data = _bitmap(values)
    else:
        data = pa.py_buffer(values)
    arrow_type = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(arrow_type, values.size, [bitmap, data])


def _bitmap(flags: npt.NDArray[np.generic]) -> pa.Buffer:
    packed_bits = np.packbits(cast(BoolArray, flags), bitorder="little")
    return pa.py_buffer(packed_bits)


def texts_of(words: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Some words as an array of strings or large strings."""
    encoded = [word.encode() for word in words]
    lengths = [len(word) for word in encoded]
    offset_type = np.int64
    if of.is_string(kind):
        offset_type = np.int32
    offsets = np.cumsum([0, *lengths], dtype=offset_type)
    text = b"".join(encoded)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(kind, len(encoded), buffers)


# Numbers ------------------------------------------------------------------------------------------


def number_fault(kind: pa.DataType, name: str | None = None) -> str:
    """The remedy for a type that holds no numbers; empty for a type that does."""
    value_type = stripped_type(kind)
    if of.is_temporal(value_type):
        return f"holds {kind}, not numbers; {derived_remedy(value_type, name)}"
    if _is_numeric(value_type) or of.is_null(value_type):
        return ""
    return f"holds {kind}, not numbers; convert it first or choose another column"


def _is_numeric(kind: pa.DataType) -> bool:
    return of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind)


def _is_text(kind: pa.DataType) -> bool:
    return of.is_string(kind) or of.is_large_string(kind)


def category_fault(kind: pa.DataType, name: str | None = None) -> str:
    """The remedy for a type that holds no categories; empty for a type that does."""
    value_type = stripped_type(kind)
    if of.is_temporal(value_type):
        return f"holds {kind}, not categories; {derived_remedy(value_type, name)}"
    is_flag = of.is_boolean(value_type) or of.is_null(value_type)
    if _is_text(value_type) or is_flag or _is_numeric(value_type):
        return ""
    return f"holds {kind}, not categories (text, integers, true and false); convert it first"


def derived_remedy(kind: pa.DataType, name: str | None) -> str:
    """The words that name the derived columns of a temporal type."""
    column = name or "NAME"
    if of.is_duration(kind):
        return f"use {column}:seconds"
    if of.is_time(kind):
        return f"use {column}:hour or {column}:minute_of_day"
    return (
        f"use a derived column, as {column}:weekday, {column}:month, {column}:date, {column}:hour"
    )


def numbers(array: pa.Array) -> tuple[Floats, BoolArray | None]:
    """The present values as float32 or float64, and which entries are present (None when all are).

    Arguments:
        array: integers, floats or decimals; null and NaN both count as missing.

    Guarantees: floats without missing values are a view of Arrow's own memory, not a copy; every
    other number becomes
        the nearest float64 (Arrow's own cast of decimals does not give the nearest).
    """
    plain_array = stripped(array)
    if of.is_decimal(plain_array.type):
        plain_array = plain_array.cast(pa.string())
    if plain_array.type not in (pa.float32(), pa.float64()):
        plain_array = plain_array.cast(pa.float64(), safe=False)
    present = None
    if plain_array.null_count:
        present = validity(plain_array)
        plain_array = plain_array.drop_null()
    values = plain(plain_array)
    missing = np.isnan(values)
    if not missing.any():
        return values, present
    values = values[~missing]
    if present is None:
        return values, ~missing
    present_rows = np.flatnonzero(present)
    present[present_rows[missing]] = False
    return values, present


# Categories ---------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _listed(categories: tuple[str, ...]) -> tuple[pa.Array, dict[str, int]]:
    """Categories that values can name, for Arrow and for Python. `(other)` and `(missing)` are not
    among them.
    """
    nameable: list[str | None] = []
    positions: dict[str, int] = {}
    for index, name in enumerate(categories):
        if name in (OTHER, MISSING):
            nameable.append(None)
        else:
            nameable.append(name)
            positions[name] = index
    return pa.array(nameable, pa.large_string()), positions


def _positions(
    array: pa.Array,
    categories: tuple[str, ...],
    column: _ColumnName,
    markers: Markers,
) -> Inputs:
    """Inputs of a table of categories: positions of the names, where `(other)` takes values without
    one and `(missing)` those that are missing, if the table has these.
    """
    listed_names, positions = _listed(categories)
    text = category_text(array, column)
    matches = compute.index_in(text, value_set=listed_names, skip_nulls=True)
    indices = _numbered(matches, otherwise=UNLISTED)
    indices[~validity(text)] = ABSENT
    respelled = _respell(text, indices, positions, markers)
    is_unlisted = indices == UNLISTED
    unlisted_count = int(is_unlisted.sum())
    if unlisted_count and OTHER not in categories:
        first_unlisted = int(np.argmax(is_unlisted))
        remedy = (
            f"{column.row(first_unlisted)} holds a value that is no category of the table; "
            "make the table with other=True (mezzotint design --other), or add that category"
        )
        if pa.types.is_boolean(array.type):
            remedy = (
                f"{column.row(first_unlisted)} is true or false, and the table lacks such a "
                "category; name them so (mezzotint design --categories true,false)"
            )
        raise column.error(remedy)
    if unlisted_count:
        indices[is_unlisted] = categories.index(OTHER)
    is_present: BoolArray = indices != ABSENT
    if MISSING in categories:
        indices[~is_present] = categories.index(MISSING)
        is_present = np.ones_like(is_present)
    present = None
    if not is_present.all():
        present = is_present
        indices = indices[is_present]
    return Inputs(
        values=indices.astype(np.float64),
        present=present,
        unlisted=unlisted_count,
        respelled=respelled,
    )


def _numbered(indices: pa.Array, *, otherwise: int) -> IntArray:
    """(n,) integers of an Arrow array, with a number in place of its nulls."""
    integers = indices.cast(pa.int64())
    filled = compute.fill_null(integers, otherwise)
    return plain(filled).copy()


def _respell(
    text: pa.Array,
    indices: IntArray,
    positions: dict[str, int],
    markers: Markers,
) -> int:
    """Give unlisted values the position that another spelling names; returns how many had one."""
    pending = np.flatnonzero(indices == UNLISTED)
    if not pending.size:
        return 0
    pending_text = text.take(pa.array(pending))
    pending_cells = pending_text.dictionary_encode()
    distinct = pending_cells.dictionary
    may_respell = compute.match_substring_regex(distinct, _RESPELLED)
    is_missing = compute.is_in(distinct, _missing_words(markers, text.type))
    may_respell = compute.or_(may_respell, is_missing)
    position_of_spelling = np.full(len(distinct), UNLISTED)
    for spelling_index in plain(compute.indices_nonzero(may_respell)):
        spelling = distinct[int(spelling_index)].as_py()
        position_of_spelling[spelling_index] = _other_spelling(spelling, positions, markers)
    respelled = position_of_spelling[plain(pending_cells.indices)]
    indices[pending] = respelled
    is_listed = respelled >= 0
    return int(is_listed.sum())


def _other_spelling(
    cell: str,
    positions: dict[str, int],
    markers: Markers,
) -> int:
    """The position that a cell names when it is trimmed, without a zero fraction, or in lower case."""
    trimmed = cell.strip()
    if trimmed in positions:
        return positions[trimmed]
    if not trimmed or trimmed in markers:
        return ABSENT
    candidates: list[str] = []
    if trimmed.lower() in ("true", "false"):
        candidates.append(trimmed.lower())
    integer = _ZERO_FRACTION.fullmatch(trimmed)
    digits = integer[1] if integer else trimmed
    if digits == "-0":
        candidates.append("0")
    elif integer:
        candidates.append(digits)
    for candidate in candidates:
        if candidate in positions:
            return positions[candidate]
    return UNLISTED


def category_text(array: pa.Array, column: _ColumnName) -> pa.Array:
    """The spelling of each value: text as it is, digits of integers, `true` and `false`; null is
    missing.
    """
    array = stripped(array)
    fault = category_fault(array.type, column.name)
    if fault:
        raise column.error(fault)
    if of.is_floating(array.type):
        array = _whole_floats(array, column)
    elif of.is_decimal(array.type):
        return _whole_decimals(array, column)
    return array.cast(pa.large_string())


def _whole_floats(array: pa.Array, column: _ColumnName) -> pa.Array:
    """Floats that are integers, as integers; NaN is null."""
    as_doubles = array.cast(pa.float64())
    values = plain(compute.fill_null(as_doubles, np.nan))
    is_missing = np.isnan(values)
    with np.errstate(invalid="ignore"):
        is_exact = np.abs(values) < EXACT_INTEGERS[array.type]
        is_whole = np.floor(values) == values
    is_category = is_missing | (is_exact & is_whole)
    if not is_category.all():
        first_row = int(np.argmin(is_category))
        raise column.error(f"{column.row(first_row)} {NOT_WHOLE}")
    whole_values = np.where(is_missing, 0.0, values)
    return arrow(whole_values.astype(np.int64), ~is_missing)


def _whole_decimals(array: pa.Array, column: _ColumnName) -> pa.Array:
    """Digits of decimals that are integers; through text, because every conversion to floats
    rounds.

    Not Arrow's own text: it has the zeros of a scale above 0, and exponents of one below.
    """
    text = array.cast(pa.string())
    distinct_cells = text.dictionary_encode()
    spellings: list[str | None] = []
    for cell_index, cell_text in enumerate(distinct_cells.dictionary.to_pylist()):
        decimal_number = decimal.Decimal(cell_text)
        if decimal_number != decimal_number.to_integral_value():
            row_cells = _numbered(distinct_cells.indices, otherwise=-1)
            first_row = int(np.argmax(row_cells == cell_index))
            raise column.error(f"{column.row(first_row)} {NOT_WHOLE}")
        spellings.append(str(int(decimal_number)))
    distinct_text = pa.array(spellings, pa.large_string())
    return distinct_text.take(distinct_cells.indices)
