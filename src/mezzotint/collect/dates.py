"""Numbers and categories derived from dates and times: `started_at:hour`,
`started_at:date@Europe/Vienna`.

| part | value |
|---|---|
| hour, minute_of_day | 0 to 23, 0 to 1439, of the clock |
| weekday | 1 to 7, Monday 1 (ISO 8601) |
| month, year, day | 1 to 12; the year; days since 1970-01-01 |
| date | text, 2026-10-05: for tables of categories and groups |
| week | text, 2026-W41, of ISO 8601, from Monday on: likewise |
| epoch | seconds since 1970-01-01T00:00:00Z, with their fraction |
| seconds | of a duration |

A time with a zone is read on the clock of `@Zone`, else of its own zone. A time without a zone has
a clock and no place: its clock parts take no `@Zone`, and its `epoch` needs one, meaning that the
clock is there.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.collect.columns import first_misfit, without_markers
from mezzotint.core.errors import ParameterError
from mezzotint.core.types import BoolArray, FloatArray, IntArray
from mezzotint.core.values import (
    arrow,
    of,
    plain,
    stripped,
    stripped_type,
    validity,
)

compute: Any = pc

CLOCK_PARTS = ("hour", "minute_of_day")


TEXT_PARTS = ("week", "date")


CALENDAR_PARTS = ("weekday", "month", "year", "day", *TEXT_PARTS)


PARTS = (*CLOCK_PARTS, *CALENDAR_PARTS, "epoch", "seconds")


DAY_SECONDS = 86_400


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


FIRST_SECOND = -62_135_596_800 + DAY_SECONDS


LAST_SECOND = 253_402_300_799 - DAY_SECONDS
"""The years 1 to 9999, without the day at either end that a zone may move beyond them."""


_BIN_SECONDS = 900
"""Offsets of zones nearly always change at multiples of this."""

_ISO = (
    r"^(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:(?P<minute>[T ]\d{2}:\d{2})(?:(?P<second>:\d{2})(?P<fraction>\.\d{1,9})?)?"
    r"(?P<zone>Z|[+-]\d{2}:?\d{2})?)?$"
)
_NOT_ISO = "holds no complete date or time of ISO 8601, as 2026-10-05 or 2026-10-05T12:30:00+02:00"


@final
@dataclass(frozen=True, kw_only=True)
class Derived:
    """A part of a column of dates or times: `column:part`, read on the clock of `zone` if there is
    one.
    """

    column: str
    part: str
    zone: str | None

    @property
    def field(self) -> str:
        """The name of the part in an output."""
        return f"{self.column}_{self.part}"

    @property
    def kind(self) -> pa.DataType:
        """The type of the part."""
        return pa.string() if self.part in TEXT_PARTS else pa.float64()


def parse_derived(name: str) -> Derived | None:
    """The derived column that a name spells; None for any other name.

    Raises:
        ParameterError: a zone that this machine does not know.
    """
    column, _, ending = name.rpartition(":")
    part_name, separator, zone = ending.partition("@")
    if not column or part_name not in PARTS:
        return None
    if not separator:
        return Derived(column=column, part=part_name, zone=None)
    _clock(zone, name)
    return Derived(column=column, part=part_name, zone=zone)


def require_part(name: str, *, columns: Sequence[str], parameter: str) -> None:
    """Raises ParameterError, listing the parts, for a name such as `started_at:quarter`: that of a
    column with an ending that is no part.
    """
    column, _, ending = name.rpartition(":")
    part_name = ending.partition("@")[0]
    if name not in columns and column in columns and part_name not in PARTS:
        remedy = f"dates and times have no part {part_name!r}; use one of: {', '.join(PARTS)}"
        raise ParameterError(parameter, name, remedy)


def output_name(column: str) -> str:
    """The name of a column in an output: its own, or that of a derived one without colon and
    zone.
    """
    derived = parse_derived(column)
    if derived is None:
        return column
    return derived.field


@lru_cache(maxsize=32)
def _clock(zone: str, name: str = "") -> datetime.tzinfo:
    """The clock of a zone; `name` is the column's, for messages."""
    with suppress(ValueError):
        fixed = datetime.datetime.strptime(zone, "%z").tzinfo  # as +02:00, or Z
        assert fixed is not None
        return fixed
    try:
        return zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        remedy = f"{zone!r} is no time zone that this machine knows; name one, as Europe/Vienna"
        raise ParameterError("column", name or zone, remedy) from None


def part_fault(derived: Derived, kind: pa.DataType) -> str:
    """The remedy where a column's type has no such part; empty where it has."""
    inner = stripped_type(kind)
    part_name = derived.part
    if of.is_timestamp(inner):
        return _timestamp_fault(derived, has_zone=inner.tz is not None)
    if _is_text(inner) or of.is_null(inner):
        if part_name == "seconds":
            return "holds text; seconds are those of a duration"
        return ""
    if of.is_date(inner):
        if part_name in (*CLOCK_PARTS, "seconds"):
            return f"holds dates, which have no {part_name}"
        return _zone_fault(derived, "dates, which lie in no zone")
    if of.is_time(inner) and part_name in CLOCK_PARTS:
        return _zone_fault(derived, "times of day without a zone")
    if of.is_duration(inner) and part_name == "seconds":
        return ""
    return f"holds {kind}, which has no part {part_name}"


def _zone_fault(derived: Derived, kind: str) -> str:
    if derived.zone is None:
        return ""
    return f"holds {kind}; leave out @Zone"


def _is_text(kind: pa.DataType) -> bool:
    return of.is_string(kind) or of.is_large_string(kind)


def _timestamp_fault(derived: Derived, *, has_zone: bool) -> str:
    """The remedy where timestamps, with or without zones of their own, have no such part;
    empty where they have.
    """
    if derived.part == "seconds":
        return "holds times; seconds are those of a duration"
    if has_zone:
        return ""
    if derived.part == "epoch" and derived.zone is None:
        return "holds times without a zone; say where their clock is, as :epoch@Europe/Vienna"
    if derived.part != "epoch" and derived.zone is not None:
        return "holds times without a zone, which cannot be moved to another one; leave out @Zone"
    return ""


Row = Callable[[int], str]


def number_of(text: str) -> float:
    """The number that a date or time stands for as a bound: days since 1970-01-01, or seconds for a
    time with a zone.

    These are the values of its parts `day` and `epoch`.

    Raises:
        ParameterError: text that is no complete ISO 8601 date or time with a zone.

    Example:
        >>> from mezzotint.collect.dates import number_of
        >>> number_of("1970-01-11"), number_of("1970-01-01T01:00:00+01:00")
        (10.0, 0.0)
    """
    part_name = "day" if len(text) == len("2026-10-05") else "epoch"
    derived = Derived(column=text, part=part_name, zone=None)
    return float(derive(pa.array([text]), derived, row=lambda _: "it")[0].as_py())


def derive(
    array: pa.Array,
    derived: Derived,
    *,
    row: Row,
    markers: Sequence[str] = (),
) -> pa.Array:
    """The part of each value: float64, or text for `week` and `date`; missing values are null.

    Arguments:
        row: the words for a row of the array, for messages.
        markers: cells of text that are missing, beside blank ones; none for typed values.

    Raises:
        ParameterError: a type without that part, text that is no complete ISO 8601 date or time, a
            time outside the years 1 to 9999, or one that its zone's clock skips or shows twice.
    """
    array = stripped(array)
    arrow_type: Any = array.type
    if _is_text(arrow_type):
        array = without_markers(array.cast(pa.string()), markers)
    column = _Column(derived=derived, row=row, present=validity(array))
    problem = part_fault(derived, arrow_type)
    if problem:
        raise column.error(problem)
    if of.is_null(arrow_type):
        return pa.nulls(len(array), derived.kind)
    if _is_text(arrow_type):
        return column.of_text(array)
    if of.is_date(arrow_type):
        days = _integers(array.cast(pa.date32()).cast(pa.int32()))
        return column.part_of(days * DAY_SECONDS)
    unit = UNITS[arrow_type.unit]
    stored = _integers(array.cast({32: pa.int32(), 64: pa.int64()}[arrow_type.bit_width]))
    seconds = stored // unit
    fraction = (stored % unit) / unit
    if of.is_timestamp(arrow_type):
        column.require_years(seconds)
        if arrow_type.tz is None:
            return column.of_clock(seconds, fraction)
        return column.of_instants(seconds, fraction, derived.zone or arrow_type.tz)
    return column.part_of(seconds, fraction=fraction)


@final
@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of dates or times: what is taken of it, the words for its rows, and (n,) which of
    them are present.

    Clocks are (n,) seconds that they show since 1970-01-01T00:00 on them; 0 where missing.
    """

    derived: Derived
    row: Row
    present: BoolArray

    def error(self, remedy: str, index: int | None = None) -> ParameterError:
        column_name = f"{self.derived.column}:{self.derived.part}"
        if index is not None:
            remedy = f"{self.row(index)} {remedy}"
        return ParameterError("column", column_name, remedy)

    def require(self, valid: BoolArray, remedy: str) -> None:
        """Raises ParameterError for the first row that is present and not valid."""
        valid = valid | ~self.present
        if not valid.all():
            raise self.error(remedy, int(np.argmin(valid)))

    def require_years(self, seconds: IntArray) -> None:
        inside = (seconds >= FIRST_SECOND) & (seconds <= LAST_SECOND)
        self.require(inside, "lies outside the years 1 to 9999")

    def of_instants(self, seconds: IntArray, fraction: FloatArray, zone: str) -> pa.Array:
        """Times on the clock of a zone."""
        offset = self.offsets(seconds, zone)
        return self.part_of(seconds + offset, offset=offset, fraction=fraction)

    def of_clock(self, clock: IntArray, fraction: FloatArray) -> pa.Array:
        """Times without a zone; for `epoch`, read on the clock of the zone."""
        zone = self.derived.zone
        if self.derived.part != "epoch" or zone is None:
            return self.part_of(clock, fraction=fraction)
        first, second = (self.offsets(clock, zone, fold=fold) for fold in (0, 1))
        self.require(first == second, f"is skipped or shown twice by the clock of {zone}")
        return self.part_of(clock, offset=first, fraction=fraction)

    def offsets(self, seconds: IntArray, zone: str, *, fold: int | None = None) -> IntArray:
        """(n,) `_offset` at these seconds."""
        bins, bin_of_row = np.unique(seconds // _BIN_SECONDS, return_inverse=True)
        starts = (bins * _BIN_SECONDS).tolist()
        first = np.array([_offset(zone, start, fold) for start in starts])
        last = np.array([_offset(zone, start + _BIN_SECONDS - 1, fold) for start in starts])
        offsets = first[bin_of_row]
        for index in np.flatnonzero((first != last)[bin_of_row]):
            offsets[index] = _offset(zone, int(seconds[index]), fold)
        return offsets

    def of_text(self, text: pa.Array) -> pa.Array:
        """Times that text spells in ISO 8601: all with a zone, or none."""
        matches = compute.extract_regex(text, _ISO)
        self.require(validity(matches), _NOT_ISO)
        date, minute, second, fraction, zone = matches.flatten()
        fractions = compute.binary_join_element_wise("0", fraction, "").cast(pa.float64())
        fraction_of_second = plain(compute.fill_null(fractions, 0.0))
        clock = self.parsed("", date, minute, second)
        self.require_years(clock)
        has_time = _is_filled(minute)
        has_zone = _is_filled(zone)
        if self.derived.part in CLOCK_PARTS:
            self.require(has_time, f"holds a date, which has no {self.derived.part}")
        if not has_zone.any():
            problem = ""
            if has_time.any() or self.derived.zone is not None:
                problem = _timestamp_fault(self.derived, has_zone=False)
            if problem:
                raise self.error(problem)
            return self.of_clock(clock, fraction_of_second)
        self.require(has_zone, "holds a time without a zone, other rows have one")
        instants = self.parsed("UTC", date, minute, second, zone)
        if self.derived.zone is not None:
            return self.of_instants(instants, fraction_of_second, self.derived.zone)
        return self.part_of(clock, offset=clock - instants, fraction=fraction_of_second)

    def parsed(self, zone: str, *pieces: pa.Array) -> IntArray:
        """Whole seconds that pieces of text spell together, on a clock or, with a zone, of UTC."""
        spelled = compute.binary_join_element_wise(*pieces, "")
        kind = pa.timestamp("s", zone)
        try:
            return _integers(spelled.cast(kind))
        except pa.ArrowInvalid:
            raise self.error(_NOT_ISO, first_misfit(spelled, kind)) from None

    def part_of(
        self, clock: IntArray, *, offset: IntArray | int = 0, fraction: FloatArray | float = 0.0
    ) -> pa.Array:
        """The part as an Arrow array, null where it is missing; years and months by the proleptic
        calendar.

        Arguments:
            offset: seconds that the clock is ahead of UTC.
            fraction: (n,) of a second.
        """
        part_name = self.derived.part
        if part_name in ("epoch", "seconds"):
            return pa.array(clock - offset + fraction, pa.float64(), mask=~self.present)
        times = arrow(clock, self.present).view(pa.timestamp("s"))
        return _CALENDAR[part_name](times).cast(self.derived.kind)


def _days(times: pa.Array) -> pa.Array:
    return times.cast(pa.date32())


def _minute_of_day(times: pa.Array) -> pa.Array:
    return compute.add(compute.multiply(compute.hour(times), 60), compute.minute(times))


def _week(times: pa.Array) -> pa.Array:
    """Weeks of ISO 8601: from Monday on, of the year that holds their Thursday."""
    year, week, _ = compute.iso_calendar(times).flatten()
    years = compute.utf8_lpad(year.cast(pa.string()), 4, "0")
    weeks = compute.utf8_lpad(week.cast(pa.string()), 2, "0")
    return compute.binary_join_element_wise(years, weeks, "-W")


_CALENDAR: dict[str, Callable[[pa.Array], pa.Array]] = {
    "hour": compute.hour,
    "minute_of_day": _minute_of_day,
    "weekday": partial(compute.day_of_week, count_from_zero=False, week_start=1),
    "month": compute.month,
    "year": compute.year,
    "day": lambda times: _days(times).cast(pa.int32()),
    "date": _days,
    "week": _week,
}
"""Part of what a clock shows -> its values."""


def _integers(array: pa.Array) -> IntArray:
    """Integers, 0 where they are missing."""
    return plain(compute.fill_null(array.cast(pa.int64()), 0))


@lru_cache(maxsize=1 << 17)
def _offset(zone: str, second: int, fold: int | None) -> int:
    """Seconds that the clock of a zone is ahead of UTC at an instant; with a fold, where the clock
    shows these seconds, for the first (0) or the second (1) time.
    """
    inside = min(max(second, FIRST_SECOND), LAST_SECOND)
    instant = datetime.datetime.fromtimestamp(0, datetime.UTC)
    instant += datetime.timedelta(seconds=inside)
    if fold is None:
        local = instant.astimezone(_clock(zone))
    else:
        local = instant.replace(tzinfo=_clock(zone), fold=fold)
    offset = local.utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _is_filled(text: pa.Array) -> BoolArray:
    return plain(compute.fill_null(compute.binary_length(text), 0)) > 0
