"""What results share: plain values for JSON, readable numbers, records that print themselves,
progress.
"""

from __future__ import annotations

import itertools
import json
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import ROUND_CEILING, Context
from fractions import Fraction
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
    done = itertools.count(1)
    return (lambda: None) if progress is None else lambda: progress(next(done), total)


def plain(value: object) -> Json:
    """The value as JSON has it: records and mappings as objects, arrays and tuples as lists,
    infinities as text.
    """
    if isinstance(value, Record):
        return value.as_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {
            str(key): plain(inner) for key, inner in cast("Mapping[object, object]", value).items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in cast("list[object]", value)]
    array = getattr(value, "tolist", None)
    if array is not None:  # numpy scalars and arrays
        return plain(array())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def escaped(text: str) -> str:
    """Text of others as it can be printed: what controls a terminal, or has no encoding, is spelled
    out.

    >>> escaped("a\\x1b[2Jb\\ud800"), escaped("two\\nlines")
    ('a\\\\x1b[2Jb\\\\ud800', 'two\\nlines')
    """
    if text.isprintable():
        return text
    letters = []
    for letter in text:
        if letter.isprintable() or letter in "\n\t":
            letters.append(letter)
        else:
            letters.append(ascii(letter)[1:-1])
    return "".join(letters)


def number(value: float | None, digits: int = 6) -> str:
    """A number to this many significant digits; a dash for None, a word for infinity."""
    if value is None:
        return "-"
    return "unbounded" if math.isinf(value) else f"{value:.{digits}g}"


def above(value: float, digits: int = 6) -> str:
    """As `number`, rounded up, for privacy losses; a value that has so few digits is printed as it
    is.

    >>> above(1.2345671), above(1e-05), above(0.1)
    ('1.23457', '1e-05', '0.1')
    """
    if math.isinf(value):
        return "unbounded"
    # The shortest decimal, not the binary one: 1e-05 lies just above a hundred-thousandth, and
    # would read 1.00001e-05.
    return number(
        float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))),
        digits,
    )


def below(value: float, digits: int = 6) -> str:
    """As `above`, rounded down: for what is left of a budget, and for lower bounds.

    >>> below(0.4999999), below(0.1), below(-0.4999999)
    ('0.499999', '0.1', '-0.5')
    """
    turned = above(-value, digits) if value else "-0"
    return turned[1:] if turned[0] == "-" else f"-{turned}"


def percent(value: float) -> str:
    """A share as a percentage, never less than the value."""
    return f"{above(100 * value, 3)} %"


class Record:
    """Base of frozen results. Fields with repr=False are not shown, nor is None where it is the
    default.

    `beside` names properties that are shown after the fields.
    """

    beside: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> JsonObject:
        """Plain values for JSON."""
        known = [field for field in fields(cast("DataclassInstance", self)) if field.repr]
        values = {field.name: getattr(self, field.name) for field in known}
        absent = {
            field.name for field in known if field.default is None and values[field.name] is None
        }
        shown = {name: value for name, value in values.items() if name not in absent}
        shown |= {name: getattr(self, name) for name in self.beside}
        return {name: plain(value) for name, value in shown.items()}

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(plain(self.as_dict()), allow_nan=False)

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
        width = max(map(len, cells), default=0) + 2
        lines = textwrap.TextWrapper(
            80, subsequent_indent=" " * width, break_long_words=False, break_on_hyphens=False
        )
        return "\n".join(lines.fill(f"{name:<{width}}{text}") for name, text in cells.items())

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
        rows, shared = self._table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (map(str.ljust, row, widths) for row in rows)
        return "\n".join([*("  ".join(line).rstrip() for line in lines), *[shared] * bool(shared)])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        import html

        (names, *rows), shared = self._table()
        table = _html(
            [[("th", name) for name in names], *([("td", text) for text in row] for row in rows)]
        )
        return f"{table}<p>{html.escape(shared)}</p>" if shared else table

    def _table(self) -> tuple[list[list[str]], str]:
        """Headings and rows, and what all rows have in common."""
        rows = [_cells_of(record.as_dict()) for record in self]
        names = list(dict.fromkeys(name for row in rows for name in row))
        alike = [
            name
            for name in names
            if len(rows) > 1 and len({row.get(name, "") for row in rows}) == 1
        ]
        told = [name for name in names if name not in alike]
        shared = ", ".join(f"{name} {rows[0][name]}" for name in alike if rows[0][name])
        return [told, *([row.get(name, "") for name in told] for row in rows)], shared


def _frame(rows: Sequence[Json]) -> Any:
    from mezzotint.core import brought_by

    with brought_by("pandas"):
        import pandas  # pyright: ignore[reportMissingTypeStubs]
    return pandas.DataFrame(rows)


def html_of(told: JsonObject) -> str:
    """The table that notebooks show of these facts."""
    return _html([("th", name), ("td", text)] for name, text in _cells_of(told).items())


def _html(rows: Iterable[Iterable[tuple[str, str]]]) -> str:
    """A table of cells, each with its tag."""
    import html

    lines = ("".join(f"<{tag}>{html.escape(text)}</{tag}>" for tag, text in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cells_of(told: JsonObject) -> dict[str, str]:
    rounded = {**dict.fromkeys(_UPWARDS, above), **dict.fromkeys(_DOWNWARDS, below)}
    return {
        name.replace("_", " "): rounded.get(name, _cell)(value)
        if isinstance(value, float)
        else _cell(value)
        for name, value in told.items()
    }


_UPWARDS, _DOWNWARDS = (
    ("epsilon", "delta", "log10_delta", "log10_upper"),
    ("lower_bound", "log10_lower"),
)
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
        shown = [_cell(inner) for inner in value]
        kept = shown if len(shown) <= 6 else [*shown[:3], "...", *shown[-2:]]
        return ", ".join(kept)
    if isinstance(value, dict):
        if value.keys() >= {"value", "low", "high"}:  # an interval
            ends = (_cell(value[name]) for name in ("low", "high"))
            return f"{_cell(value['value'])} ({' to '.join(ends)})"
        return ", ".join(f"{name} {_cell(inner)}" for name, inner in value.items())
    return str(value)
