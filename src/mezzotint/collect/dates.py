"""Numbers and categories derived from dates and times: `started_at:hour`,
`started_at:date@Europe/Vienna`.

| part | value |
|---|---|
| hour, minute_of_day | 0 to 23, 0 to 1439, of the clock |
| weekday | 1 to 7, Monday 1 (ISO 8601) |
| month, year, day | 1 to 12; the year; days since 1970-01-01 |
| date | text, 2026-10-05: for tables of categories and groups |
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
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.collect.columns import first_misfit
from mezzotint.core.errors import ParameterError
from mezzotint.core.values import (
    of,
    plain,
    stripped,
    stripped_type,
    validity,
)

compute: Any = pc

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Present = npt.NDArray[np.bool_]

CLOCK_PARTS = ("hour", "minute_of_day")


CALENDAR_PARTS = ("weekday", "month", "year", "day", "date")


PARTS = (*CLOCK_PARTS, *CALENDAR_PARTS, "epoch", "seconds")


CLOCK_SECONDS = {"hour": 3600, "minute_of_day": 60}
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
        return pa.string() if self.part == "date" else pa.float64()


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
    inner, part_name = stripped_type(kind), derived.part
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
    """The part of each value: float64, or text for `date`; missing values are null.

    Arguments:
        row: the words for a row of the array, for messages.
        markers: cells of text that are missing, beside blank ones; none for typed values.

    Raises:
        ParameterError: a type without that part, text that is no complete ISO 8601 date or time, a
            time outside the years 1 to 9999, or one that its zone's clock skips or shows twice.
    """
    array = stripped(array)
    arrow_type: Any = array.type
    column_place = _Place(derived=derived, row=row)
    problem = part_fault(derived, arrow_type)
    if problem:
        raise column_place.error(problem)
    if of.is_null(arrow_type):
        return pa.nulls(len(array), derived.kind)
    if of.is_duration(arrow_type) or of.is_time(arrow_type):
        return _amounts(array, derived.part)
    if _is_text(arrow_type):
        moments = _from_text(array, column_place, markers)
    elif of.is_date(arrow_type):
        days, present = _integers(array.cast(pa.date32()).cast(pa.int32()))
        moments = _Moments(clock=days * DAY_SECONDS, present=present)
    else:
        moments = _from_timestamps(array, column_place)
    return _part(moments, derived.part)


@final
@dataclass(frozen=True, kw_only=True)
class _Place:
    """The words of messages about one derived column."""

    derived: Derived
    row: Row

    def error(self, remedy: str, index: int | None = None) -> ParameterError:
        column_name = f"{self.derived.column}:{self.derived.part}"
        if index is not None:
            remedy = f"{self.row(index)} {remedy}"
        return ParameterError("column", column_name, remedy)

    def require(self, valid: Present, remedy: str) -> None:
        """Raises ParameterError for the first row that is not valid."""
        if not valid.all():
            raise self.error(remedy, int(np.argmin(valid)))


@final
@dataclass(frozen=True, kw_only=True)
class _Moments:
    """Times of a column.

    Arguments:
        clock: (n,) seconds that the clock shows since 1970-01-01T00:00 on it; 0 where missing.
        present: (n,) which are there.
        offset: (n,) seconds that the clock is ahead of UTC; None where it is not known.
        fraction: (n,) of a second, or 0.
    """

    clock: Integers
    present: npt.NDArray[np.bool_]
    offset: Integers | None = None
    fraction: npt.NDArray[np.float64] | float = 0.0


def _integers(array: pa.Array) -> tuple[Integers, Present]:
    filled = compute.fill_null(array.cast(pa.int64()), 0)
    return plain(filled), validity(array)


def _units(array: pa.Array) -> tuple[Integers, Floats, Present]:
    """Whole seconds of times or durations, the fraction of a second besides, and which are
    present.
    """
    unit = UNITS[array.type.unit]
    stored = {32: pa.int32(), 64: pa.int64()}[array.type.bit_width]
    values, present = _integers(array.cast(stored))
    return values // unit, (values % unit) / unit, present


def _amounts(array: pa.Array, part: str) -> pa.Array:
    """Seconds of durations; hours or minutes of times of a day."""
    seconds, fraction, present = _units(array)
    if part == "seconds":
        return _array(seconds + fraction, present)
    return _array(seconds // CLOCK_SECONDS[part], present)


def _from_timestamps(array: pa.Array, place: _Place) -> _Moments:
    """Times on the clock of `@Zone`, else of their own zone, else on a clock without a place."""
    seconds, fraction, present = _units(array)
    _require_years(seconds, present, place)
    if array.type.tz is None:
        return _placed(seconds, present, fraction, place)
    offset = _offsets(seconds, present, place.derived.zone or array.type.tz)
    return _Moments(
        clock=seconds + offset,
        offset=offset,
        present=present,
        fraction=fraction,
    )


def _require_years(seconds: Integers, present: Present, place: _Place) -> None:
    inside = (seconds >= FIRST_SECOND) & (seconds <= LAST_SECOND)
    place.require(inside | ~present, "lies outside the years 1 to 9999")


def _placed(clock: Integers, present: Present, fraction: Floats, place: _Place) -> _Moments:
    """Times without a zone; for `epoch`, read on the clock of the zone."""
    zone = place.derived.zone
    if place.derived.part != "epoch" or zone is None:
        return _Moments(clock=clock, present=present, fraction=fraction)
    # The two offsets that may have held: those in force a day before and a day after.
    early = _offsets(clock - DAY_SECONDS, present, zone)
    late = _offsets(clock + DAY_SECONDS, present, zone)
    early_fits = _offsets(clock - early, present, zone) == early
    late_fits = _offsets(clock - late, present, zone) == late
    once = (early_fits != late_fits) | (early_fits & (early == late))
    place.require(
        once | ~present,
        f"is skipped or shown twice by the clock of {zone}",
    )
    offset = np.where(early_fits, early, late)
    return _Moments(clock=clock, offset=offset, present=present, fraction=fraction)


def _offsets(seconds: Integers, present: Present, zone: str) -> Integers:
    """(n,) seconds that the clock of a zone is ahead of UTC at these instants."""
    clock = _clock(zone)
    bins, bin_of_row = np.unique(
        np.where(present, seconds, 0) // _BIN_SECONDS,
        return_inverse=True,
    )
    starts = (bins * _BIN_SECONDS).tolist()
    first = np.array([_offset(clock, start) for start in starts])
    last = np.array([_offset(clock, start + _BIN_SECONDS - 1) for start in starts])
    offsets = first[bin_of_row]
    for index in np.flatnonzero((first != last)[bin_of_row] & present):
        offsets[index] = _offset(clock, int(seconds[index]))
    return offsets


@lru_cache(maxsize=1 << 17)
def _offset(clock: datetime.tzinfo, second: int) -> int:
    """Seconds that a clock is ahead of UTC at an instant."""
    inside = min(max(second, FIRST_SECOND), LAST_SECOND)
    instant = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    instant += datetime.timedelta(seconds=inside)
    offset = instant.astimezone(clock).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _from_text(array: pa.Array, place: _Place, markers: Sequence[str]) -> _Moments:
    """Times that text spells in ISO 8601: all with a zone, or none; null, and markers of text
    files, are missing.
    """
    derived = place.derived
    spelled_text = _without_markers(array.cast(pa.string()), markers)
    present = validity(spelled_text)
    matches = compute.extract_regex(spelled_text, _ISO)
    place.require(validity(matches) | ~present, _NOT_ISO)
    date, minute, second, zones = (
        compute.fill_null(compute.struct_field(matches, group_name), "")
        for group_name in ("date", "minute", "second", "zone")
    )
    seconds, fraction = _clock_of(date, minute, second, place)
    _require_years(seconds, present, place)
    has_time, has_zone = _is_filled(minute), _is_filled(zones)
    if derived.part in CLOCK_PARTS:
        place.require(
            has_time | ~present,
            f"holds a date, which has no {derived.part}",
        )
    if not (has_zone & present).any():
        if (has_time & present).any() or derived.zone is not None:
            problem = _timestamp_fault(derived, has_zone=False)
            if problem:
                raise place.error(problem)
        return _placed(seconds, present, fraction, place)
    place.require(
        has_zone | ~present,
        "holds a time without a zone, other rows have one",
    )
    clock, offset = seconds, _spelled_offsets(zones)
    if derived.zone is not None:
        instants = seconds - offset
        offset = _offsets(instants, present, derived.zone)
        clock = instants + offset
    return _Moments(clock=clock, offset=offset, present=present, fraction=fraction)


def _without_markers(text: pa.Array, markers: Sequence[str]) -> pa.Array:
    """Trimmed cells, null where they mean a missing value; typed values as they are."""
    if not markers:
        return text
    trimmed = compute.utf8_trim_whitespace(text)
    is_missing = compute.is_in(trimmed, pa.array(["", *markers], pa.string()))
    return compute.if_else(is_missing, pa.scalar(None, pa.string()), trimmed)


def _is_filled(text: pa.Array) -> Present:
    return plain(compute.binary_length(text)) > 0


def _or_else(text: pa.Array, otherwise: str) -> pa.Array:
    """Text, and a default where it is empty."""
    return compute.if_else(compute.equal(text, ""), otherwise, text)


def _clock_of(
    date: pa.Array, minute: pa.Array, second: pa.Array, place: _Place
) -> tuple[Integers, Floats]:
    """Whole seconds that a clock shows since 1970-01-01T00:00 on it, and the fraction of a second
    besides.
    """
    dates, minutes = _or_else(date, "1970-01-01"), _or_else(minute, "00:00")
    times = compute.binary_join_element_wise(dates, minutes, "T")
    try:
        clock, _ = _integers(times.cast(pa.timestamp("s")))
    except pa.ArrowInvalid:
        raise place.error(_NOT_ISO, first_misfit(times, pa.timestamp("s"))) from None
    digits = compute.utf8_slice_codeunits(_or_else(second, ":0"), 1)
    seconds = plain(digits.cast(pa.float64()))
    place.require(seconds < 60, _NOT_ISO)
    whole_seconds = np.floor(seconds)
    return clock + whole_seconds.astype(np.int64), seconds - whole_seconds


def _spelled_offsets(zones: pa.Array) -> Integers:
    """(n,) seconds of offsets that are spelled, as +02:00; Z and nothing are 0."""
    coded = zones.dictionary_encode()
    spelled = coded.dictionary.to_pylist()
    offsets = [_offset(_clock(zone or "Z"), 0) for zone in spelled]
    return np.array(offsets, dtype=np.int64)[plain(coded.indices)]


def _part(moments: _Moments, part: str) -> pa.Array:
    """A part of times as an Arrow array, null where they are missing; years and months by the
    proleptic calendar.
    """
    clock = moments.clock
    days, seconds = clock // DAY_SECONDS, clock % DAY_SECONDS
    if part == "date":
        return _dates(days, moments.present)
    if part == "epoch":
        if moments.offset is not None:
            clock = clock - moments.offset
        return _array(clock + moments.fraction, moments.present)
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    numbers: dict[str, Callable[[], Integers]] = {
        "hour": lambda: seconds // 3600,
        "minute_of_day": lambda: seconds // 60,
        "weekday": lambda: (days + 3) % 7 + 1,
        "month": lambda: months % 12 + 1,
        "year": lambda: months // 12 + 1970,
        "day": lambda: days,
    }
    return _array(numbers[part](), moments.present)


def _dates(days: Integers, present: Present) -> pa.Array:
    distinct, index_of_row = np.unique(days, return_inverse=True)
    spelled = np.datetime_as_string(distinct.astype("datetime64[D]")).tolist()
    spelled_text = pa.array(spelled, pa.string()).take(pa.array(index_of_row))
    return compute.if_else(pa.array(present), spelled_text, pa.scalar(None, pa.string()))


def _array(values: npt.NDArray[Any], present: Present) -> pa.Array:
    return pa.array(values.astype(np.float64), pa.float64(), mask=~present)
