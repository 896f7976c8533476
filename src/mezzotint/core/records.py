"""What results share: plain values for JSON, readable numbers, records that print themselves,
progress.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from itertools import chain, count
from math import inf, isfinite, isinf
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Progress = Callable[[float, float], None]
"""Called as progress(done, total): how much of how much is done."""

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value as JSON has it."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object of ours, whose keys determine the types of their values: facts of a result, a line
of a log, a file.
"""


def ticks(progress: Progress | None, total: int) -> Callable[[], None]:
    """A function to call after each of `total` steps; it tells `progress` how many are done."""
    if progress is None:
        return lambda: None
    step_numbers = count(1)
    return lambda: progress(next(step_numbers), total)


def plain(value: object) -> Json:
    """The value as JSON has it: records and mappings as objects, arrays and tuples as lists,
    infinities as text.
    """
    if isinstance(value, Record):
        return value.as_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        mapping = cast("Mapping[object, object]", value)
        return {str(key): plain(inner) for key, inner in mapping.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in cast("list[object]", value)]
    to_list = getattr(value, "tolist", None)
    if to_list is not None:  # numpy scalars and arrays
        return plain(to_list())
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if value is None or isinstance(value, (int, float, str)):
        return value
    return str(value)


def escaped(text: str) -> str:
    """Text of others as it can be printed: what controls a terminal, or has no encoding, is spelled
    out.

    >>> escaped("a\\x1b[2Jb\\ud800"), escaped("two\\nlines")
    ('a\\\\x1b[2Jb\\\\ud800', 'two\\nlines')
    """
    if text.isprintable():
        return text
    letters: list[str] = []
    for letter in text:
        if letter.isprintable() or letter in "\n\t":
            letters.append(letter)
        else:
            quoted = ascii(letter)
            letters.append(quoted[1:-1])
    return "".join(letters)


def number(value: float | None, digits: int = 6) -> str:
    """A number to this many significant digits; a dash for None, a word for infinity."""
    if value is None:
        return "-"
    if isinf(value):
        return "unbounded" if value > 0 else "-unbounded"
    return f"{value + 0.0:.{digits}g}"


def above(value: float, digits: int = 6) -> str:
    """As `number`, rounded up, for privacy losses; a value that has so few digits is printed as it
    is.

    >>> above(1.2345671), above(1e-05), above(0.1)
    ('1.23457', '1e-05', '0.1')
    """
    if isinf(value):
        return number(value)
    # The shortest decimal, not the binary one: 1e-05 lies just above a hundred-thousandth, and
    # would read 1.00001e-05.
    upwards = Context(prec=digits, rounding=ROUND_CEILING)
    shortest_decimal = repr(float(value))
    rounded = upwards.create_decimal(shortest_decimal)
    return number(float(rounded), digits)


def below(value: float, digits: int = 6) -> str:
    """As `above`, rounded down: for what is left of a budget, and for lower bounds.

    >>> below(0.4999999), below(0.1), below(-0.4999999)
    ('0.499999', '0.1', '-0.5')
    """
    if value == 0:
        return "0"
    negated = above(-value, digits)
    if negated.startswith("-"):
        return negated.removeprefix("-")
    return f"-{negated}"


def exactly(value: float) -> str:
    """A limit, or what is held against it, with all its digits: rounded to six, 0.50000001 would be
    refused as 0.5 where 0.5 is allowed.

    >>> exactly(0.50000001), exactly(2.0)
    ('0.50000001', '2')
    """
    return repr(float(value)).removesuffix(".0")


EXACTLY_ZERO = "-infinity: exactly 0"
"""What is printed of the logarithm of 0."""


def log10_shown(name: str, value: float | None, digits: int = 8) -> str:
    """A logarithm of a result, bounds rounded so that they hold as printed; None, as JSON has it, is
    that of 0.

    >>> log10_shown("log10_upper", -1.23456789012), log10_shown("log10_lower", -1.23456789012)
    ('-1.2345678', '-1.2345679')
    >>> log10_shown("log10_delta", -inf), log10_shown("log10_delta", -0.0)
    ('-infinity: exactly 0', '0')
    """
    if value is None or value == -inf:
        return EXACTLY_ZERO
    if name in ("log10_upper", "log10_worst_case"):
        return above(value + 0.0, digits)
    if name == "log10_lower":
        return below(value, digits)
    return number(value, digits)


def counted(number: int, noun: str) -> str:
    """The number with its noun, in the plural but for 1."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}s"


def percent(value: float) -> str:
    """A share as a percentage, never less than the value."""
    return f"{above(100 * value, 3)} %"


def confidence_percent(confidence: float) -> str:
    """The confidence of an interval as a percentage with all its digits: .99999 is not 100 %."""
    shortest_decimal = repr(float(confidence))
    percentage = 100 * Decimal(shortest_decimal)
    return f"{percentage.normalize():f} %"


TERMINAL_COLUMNS = 80

SHOWN_ENTRIES = 6
"""Of a list that is printed; of a longer one the middle is left out."""


class Record:
    """Base of frozen results. Fields with repr=False are not shown, nor is None where it is the
    default.

    `beside` names properties that are shown after the fields.
    """

    beside: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> JsonObject:
        """Plain values for JSON."""
        values: JsonObject = {}
        for field in fields(cast("DataclassInstance", self)):
            field_value = getattr(self, field.name)
            is_absent = field_value is None and field.default is None
            if field.repr and not is_absent:
                values[field.name] = field_value
        for field_name in self.beside:
            values[field_name] = getattr(self, field_name)
        return {name: plain(value) for name, value in values.items()}

    def to_json(self) -> str:
        """One line of JSON."""
        content = plain(self.as_dict())
        return json.dumps(content, allow_nan=False)

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each item it holds, or with the record itself as its
        one row.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return _frame(self._rows())

    def _rows(self) -> Sequence[Json]:
        return [self.as_dict()]

    def __str__(self) -> str:
        cells = self._cells()
        longest_name = max(map(len, cells), default=0)
        width = longest_name + 2
        wrapper = textwrap.TextWrapper(
            TERMINAL_COLUMNS,
            subsequent_indent=" " * width,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines: list[str] = []
        for name, text in cells.items():
            line = name.ljust(width) + text
            lines.append(wrapper.fill(line))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_of(self._told())

    def _cells(self) -> dict[str, str]:
        return _cells_of(self._told())

    def _told(self) -> JsonObject:
        """The fields that are printed: all of `as_dict`, or fewer where that would be no small
        table.
        """
        return self.as_dict()


Item = TypeVar("Item", bound=Record)


@dataclass(frozen=True, kw_only=True)
class _TextTable:
    """Headings and rows, and the text of what all rows have in common."""

    names: list[str]
    rows: list[list[str]]
    shared: str


class Records(list[Item]):
    """A list of results that prints itself as a table; what all of them have in common stands below
    it.
    """

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return _frame([record.as_dict() for record in self])

    def __str__(self) -> str:
        table = self._table()
        text_rows = [table.names, *table.rows]
        columns = zip(*text_rows, strict=True)
        widths: list[int] = []
        for column in columns:
            widths.append(max(map(len, column)))
        lines: list[str] = []
        for text_row in text_rows:
            padded_row = map(str.ljust, text_row, widths)
            line = "  ".join(padded_row)
            lines.append(line.rstrip())
        if table.shared:
            lines.append(table.shared)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        import html

        table = self._table()
        tagged_rows = [[("th", name) for name in table.names]]
        for row in table.rows:
            tagged_rows.append([("td", text) for text in row])
        markup = _html(tagged_rows)
        if table.shared:
            markup += f"<p>{html.escape(table.shared)}</p>"
        return markup

    def _table(self) -> _TextTable:
        records = [_cells_of(record.as_dict()) for record in self]
        field_names = dict.fromkeys(chain.from_iterable(records))
        shared: list[str] = []
        names: list[str] = []
        for field_name in field_names:
            texts = {cells.get(field_name, "") for cells in records}
            if len(records) == 1 or len(texts) > 1:
                names.append(field_name)
                continue
            (text,) = texts
            if text:
                shared.append(f"{field_name} {text}")
        rows: list[list[str]] = []
        for cells in records:
            rows.append([cells.get(name, "") for name in names])
        return _TextTable(
            names=names,
            rows=rows,
            shared=", ".join(shared),
        )


def _frame(rows: Sequence[Json]) -> Any:
    from mezzotint.core import brought_by

    with brought_by("pandas"):
        import pandas  # pyright: ignore[reportMissingTypeStubs]
    return pandas.DataFrame(rows)


def html_of(facts: JsonObject) -> str:
    """The table that notebooks show of these facts."""
    cells = _cells_of(facts)
    return _html([("th", name), ("td", text)] for name, text in cells.items())


def _html(rows: Iterable[Iterable[tuple[str, str]]]) -> str:
    """A table of cells, each with its tag."""
    import html

    table_lines: list[str] = []
    for table_row in rows:
        row_cells: list[str] = []
        for tag, cell_text in table_row:
            escaped_text = html.escape(cell_text)
            row_cells.append(f"<{tag}>{escaped_text}</{tag}>")
        cells = "".join(row_cells)
        table_lines.append(f"<tr>{cells}</tr>")
    lines = "".join(table_lines)
    return f"<table>{lines}</table>"


def _cells_of(facts: JsonObject) -> dict[str, str]:
    cells: dict[str, str] = {}
    for name, value in facts.items():
        heading = name.replace("_", " ")
        cells[heading] = _field_text(name, value)
    return cells


def _field_text(name: str, value: Json) -> str:
    if isinstance(value, float) and name in _UPWARDS:
        return above(value)
    if isinstance(value, float) and name in _DOWNWARDS:
        return below(value)
    return _cell(value)


_UPWARDS = ("epsilon", "delta", "log10_delta", "log10_upper")
_DOWNWARDS = ("lower_bound", "log10_lower")
"""Fields that are rounded against us where a record is printed: bounds from above, and from
below.
"""


def _cell(value: Json) -> str:
    """One line, cut in the middle of what would not fit a terminal of 80 columns, never within a
    number.
    """
    if isinstance(value, float) or value is None:
        return number(value)
    if isinstance(value, list):
        texts = [_cell(inner) for inner in value]
        if len(texts) > SHOWN_ENTRIES:
            texts[3:-2] = ["..."]
        return ", ".join(texts)
    if isinstance(value, dict):
        texts = {name: _cell(inner) for name, inner in value.items()}
        if value.keys() >= {"value", "low", "high"}:  # an interval
            return "{value} ({low} to {high})".format(**texts)
        return ", ".join(map(" ".join, texts.items()))
    return str(value)
