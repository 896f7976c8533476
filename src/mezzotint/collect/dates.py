"""Numbers and categories derived from dates and times: `started_at:hour`, `started_at:date@Europe/Vienna`.

| part | value |
|---|---|
| hour, minute_of_day | 0 to 23, 0 to 1439, of the clock |
| weekday | 1 to 7, Monday 1 (ISO 8601) |
| month, year, day | 1 to 12; the year; days since 1970-01-01 |
| date | text, 2026-10-05: for tables of categories and groups |
| epoch | seconds since 1970-01-01T00:00:00Z, with their fraction |
| seconds | of a duration |

A time with a zone is read on the clock of `@Zone`, else of its own zone. A time without a zone has a clock and no
place: its clock parts take no `@Zone`, and its `epoch` needs one, meaning that the clock is there.
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

from mezzotint.core.errors import ParameterError
from mezzotint.core.values import of, plain, stripped, stripped_type, validity

compute: Any = pc

Integers = npt.NDArray[np.int64]

CLOCK_PARTS = ("hour", "minute_of_day")
CALENDAR_PARTS = ("weekday", "month", "year", "day", "date")
PARTS = (*CLOCK_PARTS, *CALENDAR_PARTS, "epoch", "seconds")

DAY_SECONDS = 86_400
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FIRST_SECOND = -62_135_596_800 + DAY_SECONDS
LAST_SECOND = 253_402_300_799 - DAY_SECONDS
"""The years 1 to 9999, without the day at either end that a zone may move beyond them."""

_BIN = 900
"""Seconds: offsets of zones nearly always change at multiples of this."""

_ISO = (
    r"^(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
    r"(?P<zone>Z|[+-]\d{2}:?\d{2})?)?$"
)
_FIXED_ZONE = re.compile(r"([+-])(\d{2}):?(\d{2})")


@final
@dataclass(frozen=True, kw_only=True)
class Derived:
    """A part of a column of dates or times: `column:part`, read on the clock of `zone` if there is one."""

    column: str
    part: str
    zone: str | None

    @property
    def field(self) -> str:
        """The name of the part in an output."""
        return f"{self.column}_{self.part}"


def parse_derived(name: str) -> Derived | None:
    """The derived column that a name spells; None for any other name.

    Raises:
        ParameterError: a zone that this machine does not know.
    """
    column, colon, end = name.rpartition(":")
    part_name, separator, zone = end.partition("@")
    if not colon or not column or part_name not in PARTS:
        return None
    if separator:
        _clock(zone, name)
    return Derived(column=column, part=part_name, zone=zone if separator else None)


def output_name(column: str) -> str:
    """The name of a column in an output: its own, or that of a derived one without colon and zone."""
    derived = parse_derived(column)
    return column if derived is None else derived.field


@lru_cache(maxsize=32)
def _clock(zone: str, name: str = "") -> datetime.tzinfo:
    fixed = _FIXED_ZONE.fullmatch(zone)
    if fixed:
        minutes = int(fixed[2]) * 60 + int(fixed[3])
        return datetime.timezone(
            datetime.timedelta(minutes=minutes if fixed[1] == "+" else -minutes)
        )
    try:
        return zoneinfo.ZoneInfo("UTC" if zone == "Z" else zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        remedy = f"{zone!r} is no time zone that this machine knows; name one, as Europe/Vienna"
        raise ParameterError("column", name or zone, remedy) from None


def part_fault(derived: Derived, kind: pa.DataType) -> str:
    """The remedy where a column's type has no such part; empty where it has."""
    inner, part_name = stripped_type(kind), derived.part
    text = of.is_string(inner) or of.is_large_string(inner)
    if of.is_timestamp(inner):
        return _timestamp_fault(derived, inner.tz is not None)
    if text or of.is_null(inner):
        return "" if part_name != "seconds" else "holds text; seconds are those of a duration"
    if of.is_date(inner):
        if part_name in (*CLOCK_PARTS, "seconds"):
            return f"holds dates, which have no {part_name}"
        return "" if derived.zone is None else "holds dates, which lie in no zone; leave out @Zone"
    if of.is_time(inner) and part_name in CLOCK_PARTS:
        return "" if derived.zone is None else "holds times of day without a zone; leave out @Zone"
    if of.is_duration(inner) and part_name == "seconds":
        return ""
    return f"holds {kind}, which has no part {part_name}"


def _timestamp_fault(derived: Derived, has_zone: bool) -> str:
    if derived.part == "seconds":
        return "holds times; seconds are those of a duration"
    if has_zone or derived.part == "epoch":
        if has_zone or derived.zone is not None:
            return ""
        return "holds times without a zone; say where their clock is, as :epoch@Europe/Vienna"
    if derived.zone is not None:
        return "holds times without a zone, which cannot be moved to another one; leave out @Zone"
    return ""


Row = Callable[[int], str]


def number_of(text: str) -> float:
    """The number that a date or time stands for as a bound: days since 1970-01-01, or seconds for a time with a zone.

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


def derive(array: pa.Array, derived: Derived, *, row: Row, markers: Sequence[str] = ()) -> pa.Array:
    """The part of each value: float64, or text for `date`; missing values are null.

    Arguments:
        row: the words for a row of the array, for messages.
        markers: cells of text that are missing, beside blank ones; none for typed values.

    Raises:
        ParameterError: a type without that part, text that is no complete ISO 8601 date or time, a time outside the
            years 1 to 9999, or one that its zone's clock skips or shows twice.
    """
    array = stripped(array)
    fault = part_fault(derived, array.type)
    column = _Place(derived=derived, row=row)
    if fault:
        raise column.error(fault)
    kind: Any = array.type
    if of.is_null(kind):
        return pa.nulls(len(array), pa.string() if derived.part == "date" else pa.float64())
    if of.is_duration(kind) or of.is_time(kind):
        return _amounts(array, derived.part)
    if of.is_string(kind) or of.is_large_string(kind):
        moments = _from_text(array, column, markers)
    elif of.is_date(kind):
        days, present = _integers(array.cast(pa.date32()).cast(pa.int32()))
        moments = _Moments(clock=days * DAY_SECONDS, present=present)
    else:
        moments = _from_timestamps(array, column)
    return _part(moments, column)


@final
@dataclass(frozen=True, kw_only=True)
class _Place:
    derived: Derived
    row: Row

    def error(self, remedy: str, index: int | None = None) -> ParameterError:
        name = f"{self.derived.column}:{self.derived.part}"
        where = "" if index is None else f"{self.row(index)} "
        return ParameterError("column", name, where + remedy)

    def require(self, good: npt.NDArray[np.bool_], remedy: str) -> None:
        if not good.all():
            raise self.error(remedy, int(np.argmin(good)))


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


def _integers(array: pa.Array) -> tuple[Integers, npt.NDArray[np.bool_]]:
    filled = compute.fill_null(array.cast(pa.int64()), 0)
    return plain(filled), validity(array)


def _amounts(array: pa.Array, part: str) -> pa.Array:
    unit = UNITS[array.type.unit]
    values, present = _integers(
        array.cast(pa.int64() if array.type.bit_width == 64 else pa.int32())
    )
    amounts: npt.NDArray[Any] = values // unit + (values % unit) / unit
    if part != "seconds":
        amounts = np.floor(amounts / (3600 if part == "hour" else 60))
    return _array(amounts, present)


def _from_timestamps(array: pa.Array, place: _Place) -> _Moments:
    unit = UNITS[array.type.unit]
    values, present = _integers(array.cast(pa.int64()))
    seconds, fraction = values // unit, (values % unit) / unit
    _require_years(seconds, present, place)
    if array.type.tz is None:
        return _placed(seconds, present, fraction, place)
    zone = place.derived.zone or array.type.tz
    offset = _offsets(seconds, present, zone)
    return _Moments(clock=seconds + offset, offset=offset, present=present, fraction=fraction)


def _require_years(seconds: Integers, present: npt.NDArray[np.bool_], place: _Place) -> None:
    inside = (seconds >= FIRST_SECOND) & (seconds <= LAST_SECOND)
    place.require(inside | ~present, "lies outside the years 1 to 9999")


def _placed(
    clock: Integers, present: npt.NDArray[np.bool_], fraction: Any, place: _Place
) -> _Moments:
    """Times without a zone; for `epoch`, read on the clock of the zone."""
    if place.derived.part != "epoch" or place.derived.zone is None:
        return _Moments(clock=clock, present=present, fraction=fraction)
    zone = place.derived.zone
    # The two offsets that may have held: those in force a day before and a day after.
    early = _offsets(clock - DAY_SECONDS, present, zone)
    late = _offsets(clock + DAY_SECONDS, present, zone)
    early_fits = _offsets(clock - early, present, zone) == early
    late_fits = _offsets(clock - late, present, zone) == late
    once = (early_fits != late_fits) | (early_fits & (early == late))
    place.require(once | ~present, f"is skipped or shown twice by the clock of {zone}")
    offset = np.where(early_fits, early, late)
    return _Moments(clock=clock, offset=offset, present=present, fraction=fraction)


def _offsets(seconds: Integers, present: npt.NDArray[np.bool_], zone: str) -> Integers:
    """(n,) seconds that the clock of a zone is ahead of UTC at these instants."""
    clock = _clock(zone)
    bins, where = np.unique(np.where(present, seconds, 0) // _BIN, return_inverse=True)
    first = np.array([_offset(clock, int(each) * _BIN) for each in bins])
    last = np.array([_offset(clock, int(each) * _BIN + _BIN - 1) for each in bins])
    offsets = first[where]
    for index in np.flatnonzero((first != last)[where] & present):
        offsets[index] = _offset(clock, int(seconds[index]))
    return offsets


@lru_cache(maxsize=1 << 17)
def _offset(clock: datetime.tzinfo, second: int) -> int:
    second = min(max(second, FIRST_SECOND), LAST_SECOND)
    utc = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=second)
    offset = utc.astimezone(clock).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _from_text(array: pa.Array, place: _Place, markers: Sequence[str]) -> _Moments:
    text = array.cast(pa.string())
    if markers:
        text = compute.utf8_trim_whitespace(text)
        missing = compute.is_in(text, pa.array(["", *markers], pa.string()))
        text = compute.if_else(missing, pa.scalar(None, pa.string()), text)
    present = validity(text)
    matches = compute.extract_regex(text, _ISO)
    remedy = (
        "holds no complete date or time of ISO 8601, as 2026-10-05 or 2026-10-05T12:30:00+02:00"
    )
    place.require(validity(matches) | ~present, remedy)
    pieces = {name: compute.struct_field(matches, name) for name in _names(matches)}
    seconds = _clock_seconds(pieces, present, place, remedy)
    _require_years(seconds, present, place)
    fraction = _number(pieces["fraction"]) / 10.0 ** _lengths(pieces["fraction"])
    zones = compute.fill_null(pieces["zone"], "")
    timed = _lengths(pieces["hour"]) > 0
    if place.derived.part in CLOCK_PARTS:
        place.require(timed | ~present, f"holds a date, which has no {place.derived.part}")
    zoned = _lengths(zones) > 0
    if not (zoned & present).any():
        derived = place.derived
        if (timed & present).any() or derived.zone is not None:
            fault = _timestamp_fault(derived, has_zone=False)
            if fault:
                raise place.error(fault)
        return _placed(seconds, present, fraction, place)
    place.require(zoned | ~present, "holds a time without a zone, other rows have one")
    offset = _offsets_of(zones)
    if place.derived.zone is None:
        return _Moments(clock=seconds, offset=offset, present=present, fraction=fraction)
    instants = seconds - offset
    moved = _offsets(instants, present, place.derived.zone)
    return _Moments(clock=instants + moved, offset=moved, present=present, fraction=fraction)


def _names(found: pa.Array) -> list[str]:
    return [found.type.field(i).name for i in range(found.type.num_fields)]


def _lengths(text: pa.Array) -> Integers:
    return plain(compute.fill_null(compute.utf8_length(text), 0)).astype(np.int64)


def _number(text: pa.Array) -> Integers:
    filled = compute.if_else(compute.equal(compute.fill_null(text, ""), ""), "0", text)
    return plain(compute.fill_null(filled, "0").cast(pa.int64()))


def _clock_seconds(
    pieces: dict[str, pa.Array], present: npt.NDArray[np.bool_], place: _Place, remedy: str
) -> Integers:
    dates = compute.fill_null(pieces["date"], "1970-01-01").dictionary_encode()
    days = np.zeros(len(dates.dictionary), dtype=np.int64)
    valid = np.ones(len(days), dtype=bool)
    for index, spelled in enumerate(dates.dictionary.to_pylist()):
        try:
            days[index] = datetime.date.fromisoformat(spelled).toordinal() - _EPOCH_DAY
        except ValueError:
            valid[index] = False
    where = plain(dates.indices)
    hour, minute, second = (_number(pieces[name]) for name in ("hour", "minute", "second"))
    fits = valid[where] & (hour < 24) & (minute < 60) & (second < 60)
    place.require(fits | ~present, remedy)
    return days[where] * DAY_SECONDS + hour * 3600 + minute * 60 + second


_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()


def _offsets_of(zones: pa.Array) -> Integers:
    encoded = zones.dictionary_encode()
    seconds = [
        0 if zone in ("", "Z") else _offset(_clock(zone), 0)
        for zone in encoded.dictionary.to_pylist()
    ]
    return np.array(seconds, dtype=np.int64)[plain(encoded.indices)]


def _part(moments: _Moments, place: _Place) -> pa.Array:
    part_name, clock = place.derived.part, moments.clock
    days, seconds = clock // DAY_SECONDS, clock % DAY_SECONDS
    if part_name == "date":
        return _dates(days, moments.present)
    if part_name == "epoch":
        offset = 0 if moments.offset is None else moments.offset
        return _array((clock - offset) + moments.fraction, moments.present)
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    numbers: dict[str, Callable[[], npt.NDArray[Any]]] = {
        "hour": lambda: seconds // 3600,
        "minute_of_day": lambda: seconds // 60,
        "weekday": lambda: (days + 3) % 7 + 1,
        "month": lambda: months % 12 + 1,
        "year": lambda: months // 12 + 1970,
        "day": lambda: days,
    }
    return _array(numbers[part_name](), moments.present)


def _dates(days: Integers, present: npt.NDArray[np.bool_]) -> pa.Array:
    distinct, where = np.unique(days, return_inverse=True)
    spelled = np.datetime_as_string(distinct.astype("datetime64[D]")).tolist()
    text = pa.array(spelled, pa.string()).take(pa.array(where))
    return compute.if_else(pa.array(present), text, pa.scalar(None, pa.string()))


def _array(values: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values.astype(np.float64), pa.float64(), mask=~present)
