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
import re
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.collect.columns import first_misfit
from mezzotint.core.errors import ParameterError
from mezzotint.core.types import BoolArray, FloatArray, IntArray
from mezzotint.core.values import (
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
    r"(?:[T ](?P<minute>\d{2}:\d{2})(?P<second>:\d{2}(?:\.\d{1,9})?)?"
    r"(?P<zone>Z|[+-]\d{2}:?\d{2})?)?$"
)
_NOT_ISO = "holds no complete date or time of ISO 8601, as 2026-10-05 or 2026-10-05T12:30:00+02:00"
ZONE_NAMES = {"Z": "UTC"}
_FIXED_ZONE = re.compile(r"([+-])(\d{2}):?(\d{2})")


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
    fixed = _FIXED_ZONE.fullmatch(zone)
    if fixed:
        sign, hours, minutes = fixed.groups()
        minutes_ahead = int(f"{sign}1") * (60 * int(hours) + int(minutes))
        return datetime.timezone(datetime.timedelta(minutes=minutes_ahead))
    try:
        return zoneinfo.ZoneInfo(ZONE_NAMES.get(zone, zone))
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
        array = _without_markers(array.cast(pa.string()), markers)
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
        return column.of_instants(seconds, fraction, arrow_type.tz)
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

    def of_instants(self, seconds: IntArray, fraction: FloatArray, zone: str | None) -> pa.Array:
        """Times on the clock of `@Zone`, else of their own zone, else on a clock without a
        place.
        """
        self.require_years(seconds)
        if zone is None:
            return self.of_clock(seconds, fraction)
        offset = self.offsets(seconds, self.derived.zone or zone)
        return self.part_of(seconds + offset, offset=offset, fraction=fraction)

    def of_clock(self, clock: IntArray, fraction: FloatArray) -> pa.Array:
        """Times without a zone; for `epoch`, read on the clock of the zone."""
        zone = self.derived.zone
        if self.derived.part != "epoch" or zone is None:
            return self.part_of(clock, fraction=fraction)
        # The two offsets that may have held: those in force a day before and a day after.
        early = self.offsets(clock - DAY_SECONDS, zone)
        late = self.offsets(clock + DAY_SECONDS, zone)
        early_fits = self.offsets(clock - early, zone) == early
        late_fits = self.offsets(clock - late, zone) == late
        once = (early_fits != late_fits) | (early_fits & (early == late))
        self.require(once, f"is skipped or shown twice by the clock of {zone}")
        return self.part_of(clock, offset=np.where(early_fits, early, late), fraction=fraction)

    def offsets(self, seconds: IntArray, zone: str) -> IntArray:
        """(n,) seconds that the clock of a zone is ahead of UTC at these instants."""
        clock = _clock(zone)
        instants = np.where(self.present, seconds, 0)
        bins, bin_of_row = np.unique(instants // _BIN_SECONDS, return_inverse=True)
        starts = (bins * _BIN_SECONDS).tolist()
        first = np.array([_offset(clock, start) for start in starts])
        last = np.array([_offset(clock, start + _BIN_SECONDS - 1) for start in starts])
        offsets = first[bin_of_row]
        for index in np.flatnonzero((first != last)[bin_of_row]):
            offsets[index] = _offset(clock, int(instants[index]))
        return offsets

    def of_text(self, text: pa.Array) -> pa.Array:
        """Times that text spells in ISO 8601: all with a zone, or none."""
        part_name = self.derived.part
        zone = self.derived.zone
        matches = compute.extract_regex(text, _ISO)
        self.require(validity(matches), _NOT_ISO)
        date, minute, second, zones = (
            compute.fill_null(compute.struct_field(matches, group_name), "")
            for group_name in ("date", "minute", "second", "zone")
        )
        seconds, fraction = self.clock_of(date, minute, second)
        self.require_years(seconds)
        has_time = _is_filled(minute)
        has_zone = _is_filled(zones)
        if part_name in CLOCK_PARTS:
            self.require(has_time, f"holds a date, which has no {part_name}")
        if not has_zone.any():
            problem = ""
            if has_time.any() or zone is not None:
                problem = _timestamp_fault(self.derived, has_zone=False)
            if problem:
                raise self.error(problem)
            return self.of_clock(seconds, fraction)
        self.require(has_zone, "holds a time without a zone, other rows have one")
        clock = seconds
        offset = _spelled_offsets(zones)
        if zone is not None:
            instants = seconds - offset
            offset = self.offsets(instants, zone)
            clock = instants + offset
        return self.part_of(clock, offset=offset, fraction=fraction)

    def clock_of(
        self, date: pa.Array, minute: pa.Array, second: pa.Array
    ) -> tuple[IntArray, FloatArray]:
        """Whole seconds that a clock shows, and the fraction of a second besides."""
        dates = _or_else(date, "1970-01-01")
        minutes = _or_else(minute, "00:00")
        times = compute.binary_join_element_wise(dates, minutes, "T")
        try:
            clock = _integers(times.cast(pa.timestamp("s")))
        except pa.ArrowInvalid:
            raise self.error(_NOT_ISO, first_misfit(times, pa.timestamp("s"))) from None
        digits = compute.utf8_slice_codeunits(_or_else(second, ":0"), 1)
        seconds = plain(digits.cast(pa.float64()))
        self.require(seconds < 60, _NOT_ISO)
        whole_seconds = np.floor(seconds)
        return clock + whole_seconds.astype(np.int64), seconds - whole_seconds

    def part_of(
        self, clock: IntArray, *, offset: IntArray | int = 0, fraction: FloatArray | float = 0.0
    ) -> pa.Array:
        """The part as an Arrow array, null where it is missing; years and months by the proleptic
        calendar.

        Arguments:
            offset: seconds that the clock is ahead of UTC.
            fraction: (n,) of a second.
        """
        days = clock // DAY_SECONDS
        seconds = clock % DAY_SECONDS
        if self.derived.part == "date":
            return _dates(days, self.present)
        if self.derived.part == "week":
            return _weeks(days, self.present)
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        parts: dict[str, Any] = {
            "hour": seconds // 3600,
            "minute_of_day": seconds // 60,
            "weekday": (days + 3) % 7 + 1,
            "month": months % 12 + 1,
            "year": months // 12 + 1970,
            "day": days,
            "epoch": clock - offset + fraction,
            "seconds": clock + fraction,
        }
        values = parts[self.derived.part].astype(np.float64)
        return pa.array(values, pa.float64(), mask=~self.present)


def _integers(array: pa.Array) -> IntArray:
    """Integers, 0 where they are missing."""
    return plain(compute.fill_null(array.cast(pa.int64()), 0))


@lru_cache(maxsize=1 << 17)
def _offset(clock: datetime.tzinfo, second: int) -> int:
    """Seconds that a clock is ahead of UTC at an instant."""
    inside = min(max(second, FIRST_SECOND), LAST_SECOND)
    instant = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    instant += datetime.timedelta(seconds=inside)
    offset = instant.astimezone(clock).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _without_markers(text: pa.Array, markers: Sequence[str]) -> pa.Array:
    """Trimmed cells, null where they mean a missing value; typed values as they are."""
    if not markers:
        return text
    trimmed = compute.utf8_trim_whitespace(text)
    is_missing = compute.is_in(trimmed, pa.array(["", *markers], pa.string()))
    return compute.if_else(is_missing, pa.scalar(None, pa.string()), trimmed)


def _is_filled(text: pa.Array) -> BoolArray:
    return plain(compute.binary_length(text)) > 0


def _or_else(text: pa.Array, otherwise: str) -> pa.Array:
    """Text, and a default where it is empty."""
    return compute.if_else(compute.equal(text, ""), otherwise, text)


def _spelled_offsets(zones: pa.Array) -> IntArray:
    """(n,) seconds of offsets that are spelled, as +02:00; Z and nothing are 0."""
    coded = zones.dictionary_encode()
    spelled = coded.dictionary.to_pylist()
    offsets = [_offset(_clock(zone or "Z"), 0) for zone in spelled]
    return np.array(offsets, dtype=np.int64)[plain(coded.indices)]


def _dates(days: IntArray, present: BoolArray) -> pa.Array:
    distinct, index_of_row = np.unique(days, return_inverse=True)
    spelled = np.datetime_as_string(distinct.astype("datetime64[D]")).tolist()
    spelled_text = pa.array(spelled, pa.string()).take(pa.array(index_of_row))
    return compute.if_else(pa.array(present), spelled_text, pa.scalar(None, pa.string()))


def _weeks(days: IntArray, present: BoolArray) -> pa.Array:
    """Weeks of ISO 8601: from Monday on, of the year that holds their Thursday."""
    mondays, index_of_row = np.unique(days - (days + 3) % 7, return_inverse=True)
    thursdays = (mondays + 3).astype("datetime64[D]")
    years = thursdays.astype("datetime64[Y]")
    weeks = (thursdays - years.astype("datetime64[D]")).astype(np.int64) // 7 + 1
    spelled_years = np.datetime_as_string(years).tolist()
    spelled = [
        f"{year}-W{week:02d}" for year, week in zip(spelled_years, weeks.tolist(), strict=True)
    ]
    spelled_text = pa.array(spelled, pa.string()).take(pa.array(index_of_row))
    return compute.if_else(pa.array(present), spelled_text, pa.scalar(None, pa.string()))
