"""Counts of votes: US presidential elections, which ship with the package, and CSV files of
users.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import IO

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.types import AnyPath


@dataclass(frozen=True, kw_only=True)
class Election:
    """Votes of one election.

    Arguments:
        name: year, state or any label.
        candidates: one name per count.
        counts: votes.
    """

    name: str
    candidates: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def records(self) -> int:
        """All votes counted here."""
        return sum(self.counts)

    def top(self, candidates: int) -> Election:
        """The same election with the given number of strongest candidates, in the order of their
        votes.
        """
        positions = range(len(self.counts))
        by_votes = sorted(positions, key=lambda position: -self.counts[position])
        strongest = by_votes[:candidates]
        return Election(
            name=self.name,
            candidates=tuple(self.candidates[position] for position in strongest),
            counts=tuple(self.counts[position] for position in strongest),
        )

    def share(self, candidate: str) -> Fraction:
        """A candidate's share of the votes counted here, exactly.

        Raises:
            ParameterError: if there is no such candidate.
        """
        check_choice("candidate", candidate, self.candidates)
        position = self.candidates.index(candidate)
        return Fraction(self.counts[position], self.records)


# Elections that ship ------------------------------------------------------------------------------


def national_elections() -> tuple[Election, ...]:
    """The popular vote of the US presidential elections 1920 to 2024: the top two candidates, then
    all others.

    Sources: the file SOURCES.md beside the data.
    """
    elections: list[Election] = []
    for table_row in _shipped("presidential_popular_vote.csv"):
        first = int(table_row["votes_1"])
        second = int(table_row["votes_2"])
        others = int(table_row["total"]) - first - second
        election = Election(
            name=table_row["year"],
            candidates=(table_row["candidate_1"], table_row["candidate_2"], "others"),
            counts=(first, second, others),
        )
        elections.append(election)
    return tuple(elections)


def party_shares() -> dict[str, Fraction]:
    """The Democratic share of the two-party popular vote by year, 1920 to 2024."""
    shares: dict[str, Fraction] = {}
    for table_row in _shipped("presidential_popular_vote.csv"):
        party_votes = {
            table_row["party_1"]: int(table_row["votes_1"]),
            table_row["party_2"]: int(table_row["votes_2"]),
        }
        democratic, republican = party_votes["D"], party_votes["R"]
        shares[table_row["year"]] = Fraction(democratic, democratic + republican)
    return shares


def state_elections() -> tuple[Election, ...]:
    """Biden's and Trump's votes of 2020 in the 50 states and the District of Columbia."""
    return _two_party("presidential_2020_states.csv")


def district_elections() -> tuple[Election, ...]:
    """The same for the five congressional districts of Maine and Nebraska that choose an elector of
    their own.
    """
    return _two_party("presidential_2020_districts.csv")


def _two_party(name: str) -> tuple[Election, ...]:
    return tuple(
        Election(
            name=table_row["district"],
            candidates=("Biden", "Trump"),
            counts=(int(table_row["biden"]), int(table_row["trump"])),
        )
        for table_row in _shipped(name)
    )


def _shipped(name: str) -> list[dict[str, str]]:
    folder = resources.files("mezzotint.datasets")
    path = folder.joinpath("elections", name)
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


# Elections of users -------------------------------------------------------------------------------


def read_elections(
    source: AnyPath | IO[str], *, columns: Sequence[str] | None = None, label: str | None = None
) -> tuple[Election, ...]:
    """Elections from a CSV file with a header: one election per row, one column of counts per
    candidate.

    Arguments:
        source: path (.csv or .csv.gz) or an open text stream.
        columns: the columns of counts, one per candidate; by default the two columns, apart from
            the label, `year` and `total`, that hold whole numbers in all rows.
        label: the column that names the election; by default the first column that is not a count.

    Raises:
        ParameterError: if there is no such file or column; without `columns`, unless exactly two of
            them hold counts.
        FileFormatError: if the file is empty, a count is not a whole number, or, without `columns`,
            a column looks like numbers in some rows and is none ("12,345", "3.0", an empty cell);
            with column, line and value.

    Guarantees: no column that might have been a candidate is left out or taken in silently.
    Edge cases:
        Negative counts are reported with the line; a row of zeros is an error only when it is
        evaluated.
    """
    if not isinstance(source, (str, os.PathLike)):
        return _parse(source, columns, label)
    file_path = Path(source)
    if not file_path.is_file():
        raise ParameterError("source", str(source), "no such file; give a CSV file with a header")
    open_text = open
    if file_path.suffix == ".gz":
        open_text = gzip.open
    try:
        with open_text(file_path, "rt", encoding="utf-8-sig", newline="") as stream:
            return _parse(stream, columns, label)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, csv.Error) as error:
        problem = f"{file_path.name}: not a CSV file in UTF-8 ({error}); save it as CSV again"
        raise FileFormatError(problem) from None


def _parse(
    stream: IO[str], columns: Sequence[str] | None, label: str | None
) -> tuple[Election, ...]:
    reader = csv.DictReader(stream)
    table_rows = list(reader)
    header = list(reader.fieldnames or [])
    if not table_rows or not header:
        problem = "the CSV file has no rows below its header; give one row per election"
        raise FileFormatError(problem)
    for election_name in (*(columns or ()), label):
        if election_name is not None and election_name not in header:
            raise ParameterError(
                "columns", election_name, f"is not in the header: {', '.join(header)}"
            )
    candidates = _candidates(table_rows, header, columns, label)
    others = [election_name for election_name in header if election_name not in candidates]
    label = label or next(iter(others), None)
    elections: list[Election] = []
    for line_number, table_row in enumerate(table_rows, start=2):
        election_name = f"line {line_number}"
        if label is not None:
            election_name = table_row[label] or ""
        counts = tuple(
            _count(table_row[candidate], candidate, line_number) for candidate in candidates
        )
        elections.append(Election(name=election_name, candidates=candidates, counts=counts))
    return tuple(elections)


def _candidates(
    rows: list[dict[str, str]],
    header: list[str],
    columns: Sequence[str] | None,
    label: str | None,
) -> tuple[str, ...]:
    """The columns of counts: those asked for, or the only two that hold whole numbers."""
    if columns is not None:
        candidates = list(columns)
    else:
        candidates = _whole_columns(rows, header, label)
    if len(candidates) < 2:
        remedy = "needs at least two columns of counts; name them with columns= (--columns)"
        raise ParameterError("columns", candidates, remedy)
    if len(candidates) > 2 and columns is None:
        remedy = "all hold whole numbers; name those that are candidates with columns= (--columns)"
        raise ParameterError("columns", ", ".join(candidates), remedy)
    return tuple(candidates)


def _whole_columns(
    rows: list[dict[str, str]],
    header: list[str],
    label: str | None,
) -> list[str]:
    whole_columns: list[str] = []
    is_first_word = label is None
    for column_name in header:
        if column_name in {label, "year", "total"}:
            continue
        column_cells = [table_row[column_name] or "" for table_row in rows]
        if all(map(_WHOLE.fullmatch, column_cells)):
            whole_columns.append(column_name)
            continue
        matches = map(_NUMERIC.fullmatch, column_cells)
        numeric = sum(match is not None for match in matches)
        # The first column of words names the elections, and up to half of these names may be
        # numbers.
        tolerated = len(column_cells) // 2 if is_first_word else 0
        if numeric > tolerated:
            _refuse_near_numbers(column_name, column_cells)
        is_first_word = False
    return whole_columns


_WHOLE = re.compile(r"\s*-?[0-9]+\s*")
_NUMERIC = re.compile(r"\s*[-+(]?[$€£]?\s*[0-9][0-9.,'_\s]*(e[-+]?[0-9]+)?[%)]?\s*", re.IGNORECASE)


def _refuse_near_numbers(name: str, cells: list[str]) -> None:
    bad_lines = [
        line_number
        for line_number, cell_text in enumerate(cells, start=2)
        if not _WHOLE.fullmatch(cell_text)
    ]
    raise FileFormatError(
        f"line {bad_lines[0]}, column {name}: {cells[bad_lines[0] - 2]!r} is not a whole number of votes, "
        f"although other cells of "
        "the column look like numbers; write plain digits (12345), or name the columns of counts "
        "with columns= (--columns)"
    )


def _count(text: str | None, name: str, line: int) -> int:
    try:
        digits = (text or "").strip()
        vote_count = int(digits.replace("_", "x"))
    except ValueError:
        problem = f"line {line}, column {name}: {text!r} is not a whole number of votes"
        raise FileFormatError(problem) from None
    if vote_count < 0:
        problem = f"line {line}, column {name}: {vote_count} votes; counts must not be negative"
        raise FileFormatError(problem)
    return vote_count
