"""The shipped votes, and CSV files of users."""

from __future__ import annotations

import csv
import gzip
import io
from fractions import Fraction
from pathlib import Path

import pytest

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.datasets import (
    Election,
    district_elections,
    national_elections,
    party_shares,
    read_elections,
    state_elections,
)


def test_national_elections_run_from_1920_to_2024() -> None:
    elections = national_elections()
    assert [one.name for one in elections] == [str(year) for year in range(1920, 2025, 4)]
    by_year = {one.name: one for one in elections}
    assert by_year["2020"].top(2).counts == (81283501, 74223975)
    assert by_year["2020"].records == 158429631
    # The largest share of the period: 61.05 % for Johnson (no candidate above 70 %, as the paper says).
    assert max(one.counts[0] / one.records for one in elections) == pytest.approx(0.6105, abs=5e-4)


def test_states_and_districts_of_2020() -> None:
    states = {one.name: one for one in state_elections()}
    assert len(states) == 51
    assert {len(name) for name in states} == {2}
    assert {one.name for one in district_elections()} == {"ME-1", "ME-2", "NE-1", "NE-2", "NE-3"}
    assert round(float(states["DC"].share("Biden")), 5) == 0.94467
    everyone = [*states.values(), *district_elections()]
    lowest = min(everyone, key=lambda one: one.share("Biden"))
    assert (lowest.name, round(float(lowest.share("Biden")), 5)) == ("NE-3", 0.22863)
    # The states sum to the national vote.
    assert abs(sum(one.counts[0] for one in states.values()) - 81283501) < 5000


def test_the_shipped_votes_are_the_reference_data(shared_data: Path) -> None:
    with (shared_data / "presidential_popular_vote.csv").open() as stream:
        rows = {row["year"]: row for row in csv.DictReader(stream)}
    for one in national_elections():
        row = rows[one.name]
        assert one.counts[:2] == (int(row["votes_1"]), int(row["votes_2"]))
        assert one.records == int(row["total"])
    with (shared_data / "presidential_2020_districts.csv").open() as stream:
        districts = {
            row["district"]: (int(row["biden"]), int(row["trump"]))
            for row in csv.DictReader(stream)
        }
    assert {
        one.name: one.counts for one in (*state_elections(), *district_elections())
    } == districts


def test_party_shares_name_the_winners_party() -> None:
    shares = party_shares()
    democrats = {year for year, share in shares.items() if share > Fraction(1, 2)}
    # Popular votes won by Democrats, from the history of the presidency.
    years = (
        1932,
        1936,
        1940,
        1944,
        1948,
        1960,
        1964,
        1976,
        1992,
        1996,
        2000,
        2008,
        2012,
        2016,
        2020,
    )
    assert democrats == {str(year) for year in years}


def test_any_csv_with_counts(tmp_path: Path) -> None:
    text = "town,ann,bob,cy,total\nOslo,10,20,3,33\nRoma,5,6,7,18\n"
    path = tmp_path / "votes.csv"
    path.write_text(text)
    packed = tmp_path / "votes.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    named = ("ann", "bob", "cy")
    for source in (path, str(path), packed, io.StringIO(text)):
        assert read_elections(source, columns=named)[1] == Election(
            name="Roma", candidates=("ann", "bob", "cy"), counts=(5, 6, 7)
        )
    assert read_elections(path, columns=("bob", "cy"))[0].counts == (20, 3)
    assert read_elections(io.StringIO("a,b\n1,2\n"))[0].name == "line 2"


def test_names_of_elections_may_be_numbers_and_words_are_no_candidates() -> None:
    text = "when,a,b,note\n2020,1,2,calm\n2024 (again),3,4,loud\n"
    assert [one.name for one in read_elections(io.StringIO(text))] == ["2020", "2024 (again)"]
    assert read_elections(io.StringIO("when,a,b,year,total\n1,1,2,2020,3\n"), label="when")[
        0
    ].counts == (1, 2)


BAD = [
    ("town,a\nX,1\n", {}, ParameterError, "two columns"),
    (
        "town,registered,a,b\nX,9,1,2\n",
        {},
        ParameterError,
        "columns=registered, a, b: all hold whole numbers",
    ),
    ('town,a,b,c\nX,"12,345",2,3\n', {}, FileFormatError, "line 2, column a: '12,345'"),
    ("town,a,b,c\nX,1,2,3\nY,4,5,6.0\n", {}, FileFormatError, "line 3, column c: '6.0'"),
    ("town,a,b,c\nX,1,2,3\nY,4,5,\n", {}, FileFormatError, "line 3, column c: ''"),
    ("town,a,b,c\nX,1,2,3\nY,4,5,n/a\n", {}, FileFormatError, "line 3, column c: 'n/a'"),
    ("a,b,c\n1 234,2,3\n", {}, FileFormatError, "line 2, column a: '1 234'"),
    ("town,a,b\nX,1,'7'000\n", {"columns": ("a", "b")}, FileFormatError, "line 2, column b"),
    ("town,a,b\nX,1,-2\n", {}, FileFormatError, "line 2, column b"),
    ("town,a,b\nX,1,2\nY,1,many\n", {"columns": ("a", "b")}, FileFormatError, "line 3, column b"),
    ("town,a,b\nX,1\n", {"columns": ("a", "b")}, FileFormatError, "line 2, column b"),
    ("town,a,b\nX,1_0,2\n", {"columns": ("a", "b")}, FileFormatError, "line 2, column a"),
    ("town,a,b\n", {}, FileFormatError, "no rows"),
    ("", {}, FileFormatError, "no rows"),
    ("town,a,b\nX,1,2\n", {"columns": ("a", "z")}, ParameterError, "z"),
    ("town,a,b\nX,1,2\n", {"label": "z"}, ParameterError, "z"),
]


@pytest.mark.parametrize(("text", "how", "error", "message"), BAD)
def test_bad_files_say_where(text: str, how: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        read_elections(io.StringIO(text), **how)
    assert message in str(caught.value)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no such file"):
        read_elections(tmp_path / "none.csv")
    (tmp_path / "broken.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(FileFormatError, match=r"broken\.csv\.gz"):
        read_elections(tmp_path / "broken.csv.gz")
    (tmp_path / "latin.csv").write_bytes(b"town,a,b\nK\xf6ln,1,2\n")
    with pytest.raises(FileFormatError, match="UTF-8"):
        read_elections(tmp_path / "latin.csv")


def test_shares_need_a_candidate() -> None:
    with pytest.raises(ParameterError, match="candidate"):
        state_elections()[0].share("Nixon")
