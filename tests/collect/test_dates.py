"""Parts of dates and times against Python's own `datetime` and `zoneinfo`, and the cells of a hand-made table."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, strategies as st

import mezzotint as mz
from mezzotint import collect, families
from mezzotint.cli import run
from mezzotint.collect.dates import PARTS, derive, number_of, parse_derived
from mezzotint.core.errors import ParameterError

VIENNA = "Europe/Vienna"


def part(array: pa.Array, name: str) -> list[Any]:
    derived = parse_derived(f"t:{name}")
    assert derived is not None
    return derive(array, derived, row=lambda index: f"row {index}").to_pylist()


def utc(*spelled: str, unit: str = "us") -> pa.Array:
    times = [datetime.datetime.fromisoformat(each) for each in spelled]
    return pa.array(times, pa.timestamp(unit, "UTC"))


def clock(*spelled: str) -> pa.Array:
    return pa.array([datetime.datetime.fromisoformat(each) for each in spelled], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("array", "name", "expected"),
    [
        (utc("2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"), f"hour@{VIENNA}", [1, 3]),
        (utc("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"), f"hour@{VIENNA}", [2, 2]),
        (utc("1969-12-31T23:59:59.5Z"), "epoch", [-0.5]),
        (utc("1969-12-31T23:59:59.5Z"), f"date@{VIENNA}", ["1970-01-01"]),
        (utc("1969-12-31T23:59:59.5Z"), f"minute_of_day@{VIENNA}", [59]),
        (utc("2026-12-31T23:30:00Z"), f"weekday@{VIENNA}", [5]),
        (utc("2026-12-31T23:30:00Z"), f"month@{VIENNA}", [1]),
        (utc("2040-07-01T12:00:00Z"), f"hour@{VIENNA}", [14]),
        (utc("1893-03-31T22:54:38Z", "1893-03-31T22:54:40Z"), f"hour@{VIENNA}", [23, 23]),
        (pa.array([datetime.date(2026, 10, 5), None]), "weekday", [1, None]),
        (pa.array([datetime.date(2026, 10, 5)]), "epoch", [1791158400]),
        (pa.array([datetime.date(2026, 10, 5)], pa.date64()), "date", ["2026-10-05"]),
        (clock("2026-10-05T23:59:59"), "hour", [23]),
        (clock("2026-07-01T12:00:00"), f"epoch@{VIENNA}", [1782900000]),
        (pa.array([datetime.time(13, 45)]), "minute_of_day", [825]),
        (pa.array([datetime.timedelta(seconds=90, milliseconds=250)]), "seconds", [90.25]),
        (pa.array(["2026-10-05", None]), "weekday", [1, None]),
        (
            pa.array(["2024-12-30", "2021-01-03", "2020-12-31", None]),
            "week",
            ["2025-W01", "2020-W53", "2020-W53", None],
        ),
        (pa.array(["0001-01-02", "9999-12-30"]), "week", ["0001-W01", "9999-W52"]),
        (pa.array(["2026-10-05T23:30:00+02:00"]), "hour", [23]),
        (pa.array(["2026-10-05T23:30:00Z"]), f"hour@{VIENNA}", [1]),
        (pa.array(["2026-10-05 23:30:00.25+0200"]), "epoch", [1791235800.25]),
        (pa.array(["2026-10-05T23:30"]), f"epoch@{VIENNA}", [1791235800]),
        (pa.nulls(2), "hour", [None, None]),
    ],
    ids=str,
)
def test_reference_cells(array: pa.Array, name: str, expected: list[Any]) -> None:
    assert part(array, name) == expected


@pytest.mark.parametrize(
    ("array", "name", "words"),
    [
        (clock("2026-03-29T02:30:00"), f"epoch@{VIENNA}", "row 0 is skipped or shown twice"),
        (clock("2026-10-25T02:30:00"), f"epoch@{VIENNA}", "row 0 is skipped or shown twice"),
        (clock("2026-10-25T02:30:00"), "epoch", "say where their clock is"),
        (clock("2026-10-25T02:30:00"), f"hour@{VIENNA}", "leave out @Zone"),
        (pa.array([datetime.date(2026, 10, 5)]), "hour", "have no hour"),
        (pa.array([datetime.date(2026, 10, 5)]), f"weekday@{VIENNA}", "leave out @Zone"),
        (pa.array(["2026-10-05"]), "hour", "row 0 holds a date"),
        (pa.array(["2026-10-05", "5.10.2026"]), "date", "row 1 holds no complete date"),
        (pa.array(["2026-02-30"]), "date", "row 0 holds no complete date"),
        (pa.array(["2026-10-05T12:00+99:99"]), "day", "row 0 holds no complete date"),
        (pa.array(["2026-10-05T12:00Z", "2026-10-05T12:00"]), "hour", "row 1 holds a time without"),
        (pa.array([1.0]), "hour", "has no part hour"),
        (pa.array([2**62], pa.timestamp("s", "UTC")), "year", "outside the years"),
        (utc("2026-10-05T12:00:00Z"), "seconds", "those of a duration"),
    ],
    ids=str,
)
def test_what_has_no_such_part_is_refused(array: pa.Array, name: str, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        part(array, name)


def test_names() -> None:
    for each in PARTS:
        assert parse_derived(f"a:b:{each}@UTC") is not None
    for each in ("a", "a:", ":hour", "a:hours", "a@UTC"):
        assert parse_derived(each) is None
    with pytest.raises(ParameterError, match="no time zone"):
        parse_derived("a:hour@Europe/Wien")


def test_a_part_that_is_text_holds_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("t\n2026-10-05\n")
    with pytest.raises(ParameterError, match=r"column=t:week: holds string, not numbers"):
        collect.read_values(tmp_path / "in.csv", column="t:week")
    assert collect.read_values(tmp_path / "in.csv", column="t:month").tolist() == [10.0]


def test_an_ending_that_is_no_part_is_answered_with_the_parts(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("t,x\n2026-10-05,1\n")
    table = families.randomized_response(epsilon=1.0)
    with pytest.raises(ParameterError, match=r"no part 'quarter'; use one of: .*month.*week, date"):
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "o.csv", column="x", mechanism=table, keep=["t:quarter"]
        )


@given(
    second=st.integers(-3_000_000_000, 5_000_000_000),
    zone=st.sampled_from([VIENNA, "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]),
)
@example(second=1_774_746_000, zone=VIENNA)
def test_clocks_are_those_of_zoneinfo(second: int, zone: str) -> None:
    array = pa.array([second], pa.timestamp("s", "UTC"))
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    there = (start + datetime.timedelta(seconds=second)).astimezone(ZoneInfo(zone))
    wanted = {
        "hour": there.hour, "minute_of_day": 60 * there.hour + there.minute, "weekday": there.isoweekday(),
        "month": there.month, "year": there.year, "date": there.date().isoformat(), "epoch": second,
        "week": "{:04d}-W{:02d}".format(*there.isocalendar()[:2]),
        "day": there.date().toordinal() - datetime.date(1970, 1, 1).toordinal(),
    }  # fmt: skip
    assert {name: part(array, f"{name}@{zone}")[0] for name in wanted} == wanted
    spelled = pa.array([there.isoformat()])
    if "." not in there.isoformat() and len(there.isoformat()) == 25:  # offsets of whole minutes
        assert {name: part(spelled, name)[0] for name in wanted} == wanted


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_parts_are_privatized_and_kept(tmp_path: Path, ending: str) -> None:
    times = [f"2026-10-{day:02d}T{hour:02d}:15:00+02:00" for day in (5, 6) for hour in range(24)]
    lines = {"csv": "t\n" + "\n".join(times) + "\n",
             "jsonl": "".join(f'{{"t": "{each}"}}\n' for each in times)}  # fmt: skip
    source = tmp_path / f"in.{ending}"
    if ending == "parquet":
        moments = [datetime.datetime.fromisoformat(each) for each in times]
        pq.write_table(pa.table({"t": pa.array(moments, pa.timestamp("us", "+02:00"))}), source)
    else:
        source.write_text(lines[ending])
    table = families.categorical(categories=list(range(24)), epsilon=60.0, method="krr")
    out = tmp_path / "out.parquet"
    collect.privatize(source, out, column="t:hour", mechanism=table, keep=["t:date"])
    found = pq.read_table(out)
    assert found["t_hour_code"].to_pylist() == [*range(24)] * 2
    assert found["t_date"].to_pylist() == ["2026-10-05"] * 24 + ["2026-10-06"] * 24
    groups = collect.read_groups(out, by="t_date")
    assert {name: group.counts.n for name, group in groups.items()} == {
        "2026-10-05": 24, "2026-10-06": 24,
    }  # fmt: skip
    for kept in ("t", "t:epoch", "t:minute_of_day"):
        with pytest.raises(ParameterError, match="would reveal"):
            collect.privatize(source, out, column="t:hour", mechanism=table, keep=[kept])


# Bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1970-01-01", 0),
        ("2026-10-05", (datetime.date(2026, 10, 5) - datetime.date(1970, 1, 1)).days),
        ("2026-10-05T02:00:00+02:00", 1791158400),
    ],
)
def test_bounds_that_are_dates_are_the_values_of_their_parts(text: str, number: float) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize("text", ["2026-10-5", "tomorrow", "2026-13-01", "2026-10-05T12:00:00"])
def test_bounds_that_are_no_complete_dates_are_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        number_of(text)


def test_a_table_is_designed_between_two_dates(tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    dates = ["--lower", "2026-01-01", "--upper", "2026-12-31"]
    assert run(["design", "--epsilon", "1", *dates, "--levels", "2", "--out", str(out)]) == 0
    table = mz.Mechanism.load(out)
    days = [number_of(text) for text in ("2026-01-01", "2026-12-31")]
    assert [table.lower, table.upper] == days
    assert run(["design", "--epsilon", "1", "--lower", "soon", "--out", str(out)]) == 2
