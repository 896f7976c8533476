"""The reports file: codes, and the mechanism that made them, in one file.

A Parquet file carries a description under the metadata key `mezzotint`; a CSV file carries the same JSON on a
first line that begins with `# mezzotint: `. The mechanism stands in it as its own file's text, byte for byte, so
that every check of a mechanism file holds here too. Reports that were drawn from a seed are not private: their
description holds the bare table, without the certificate and its epsilon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, final

from mezzotint.collect.dates import output_name
from mezzotint.collect.listing import STREAM, SourcePath, find_files
from mezzotint.collect.settings import Settings
from mezzotint.collect.source import open_columns
from mezzotint.core.document import read_table, write_table
from mezzotint.core.errors import FileFormatError
from mezzotint.core.files import parse_json
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Json, JsonObject
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.claim import Claim

FORMAT = "mezzotint-reports"
VERSION = 1
COUNTS_KEY = b"mezzotint.raw_counts"
_ENTRY_KEYS = {"column", "field", "sha256"}


@final
@dataclass(frozen=True, kw_only=True)
class Limit:
    """The rows that one person gives, where people are charged for their own rows.

    Arguments:
        at_most: of a person; None where all rows of a person were reported.
        per: the column of the period that this is meant for; None for all rows together.
    """

    at_most: int | None
    per: str | None

    @property
    def one_row(self) -> bool:
        """Whether each person gives one row in all."""
        return self.at_most == 1 and self.per is None

    def __str__(self) -> str:
        if self.at_most is None:
            return "all rows of each person"
        period = "" if self.per is None else f" and {self.per}"
        return f"at most {self.at_most} rows of each person{period}"


@final
@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the reports of a file come from.

    Arguments:
        run: names these very reports, so that nobody counts them twice: the run that drew them, and the part of its
            folder they are in.
        source: names what they are about (`charging.fingerprint`).
        memoised: whether equal values of a user got equal reports: such reports name no run, as another one draws the
            same.
        limit: where people were charged for their own rows, how many those are.
    """

    run: str | None = None
    source: str | None = None
    memoised: bool = False
    limit: Limit | None = None

    @classmethod
    def of(cls, settings: Settings, *, run: str, source: str | None) -> Self:
        """The origin of a run under these settings."""
        limit = None
        if settings.charge_by is not None:
            limit = Limit(at_most=settings.at_most, per=settings.per)
        return cls(run=run, source=source, memoised=settings.memo is not None, limit=limit)

    def part(self, index: int) -> Origin:
        """The origin of one part of a folder."""
        return replace(self, run=f"{self.run}/{index}")

    def as_dict(self) -> JsonObject:
        """What the description of a file says of it."""
        values: JsonObject = {"memoised": self.memoised}
        if not self.memoised:
            values |= {"run": self.run, "source": self.source}
        if self.limit is not None:
            values["people"] = {"at_most": self.limit.at_most, "per": self.limit.per}
        return {name: value for name, value in values.items() if value is not None}


@final
@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of its reports that a reports file carries.

    Arguments:
        tables: field of codes -> the mechanism that drew them.
        seeded: whether the draw was reproducible and therefore NOT private; None where the file does not say.
        memoised: whether equal values of a user got equal reports; None where the file does not say.
        run, source, limit: as in `Origin`; None where the file does not say, the first two for memoised reports.
    """

    tables: Mapping[str, Mechanism]
    seeded: bool | None
    memoised: bool | None
    run: str | None = None
    source: str | None = None
    limit: Limit | None = None


def code_field(column: str) -> str:
    """The name under which the codes of a column are written; not the column's own, as codes are not its values."""
    return f"{output_name(column)}_code"


def hash_field(column: str) -> str:
    """The name under which the hashes of a column of a large domain are written."""
    return f"{output_name(column)}_hash"


def embedded(mechanism: Mechanism, *, seeded: bool | None) -> dict[str, str]:
    """The mechanism as it stands in other files: its own file's text, or the bare table beside a seeded draw."""
    if seeded:
        return {"table": write_table(mechanism)}
    return {"mechanism": mechanism.to_json()}


def extracted(values: JsonObject, *, seeded: bool | None) -> Mechanism:
    """The description that `embedded` wrote; raises FileFormatError for anything else."""
    text = values.get("table" if seeded else "mechanism")
    if not isinstance(text, str):
        raise FileFormatError("holds no mechanism; it was edited or damaged")
    if seeded:
        return Mechanism.of(read_table(text))
    return Mechanism.from_json(text)


def describe(reports: Mapping[str, Mechanism], *, seeded: bool, origin: Origin) -> str:
    """The description of a reports file, of the columns' mechanisms, as one line of JSON; see `Description`."""
    entries: list[JsonObject] = []
    for column, mechanism in reports.items():
        entry = {"column": column, "field": code_field(column)}
        entries.append(entry | embedded(mechanism, seeded=seeded) | {"sha256": mechanism.sha256})
    document: JsonObject = {"format": FORMAT, "version": VERSION, "seeded": seeded}
    document |= origin.as_dict() | {"reports": entries}
    return json.dumps(document, separators=(",", ":"))


def read_description(text: str | None, *, name: str) -> Description:
    """What the text that a reports file carries says of it; raises FileFormatError for none, or one that was edited."""
    if text is None:
        raise FileFormatError(
            f"{name}: contains no mechanism; give its file (--mechanism) and the column of codes (--column)"
        )
    document = parse_json(text, name=f"{name}: its description")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileFormatError(f'{name}: its description is not of format "{FORMAT}"')
    if document.get("version") != VERSION:
        raise FileFormatError(
            f"{name}: description version={document.get('version')!r}: this release reads version {VERSION}; "
            "upgrade mezzotint or privatize again"
        )
    entries = document.get("reports")
    if not isinstance(entries, list) or not entries:
        raise FileFormatError(f"{name}: its description lists no reports")
    seeded, memoised = document.get("seeded"), document.get("memoised")
    if not isinstance(seeded, bool | None) or not isinstance(memoised, bool | None):
        raise FileFormatError(f"{name}: its description must say true or false: seeded, memoised")
    run, source = names_in(document, name=name)
    return Description(
        tables=dict(_entry(entry, name, seeded) for entry in entries),
        seeded=seeded,
        memoised=memoised,
        run=run,
        source=source,
        limit=_limit_in(document, name=name),
    )


def _limit_in(document: Mapping[str, Json], *, name: str) -> Limit | None:
    people = document.get("people")
    if people is None:
        return None
    remedy = f"{name}: its description must say how many rows of a person it holds"
    if not isinstance(people, dict):
        raise FileFormatError(remedy)
    at_most, per = people.get("at_most"), people.get("per")
    if not isinstance(at_most, int | None) or not isinstance(per, str | None):
        raise FileFormatError(remedy)
    return Limit(at_most=at_most, per=per)


def names_in(document: Mapping[str, Json], *, name: str) -> tuple[str | None, str | None]:
    """`run` and `source` of a description; raises FileFormatError where they are not text."""
    run, source = document.get("run"), document.get("source")
    if not isinstance(run, str | None) or not isinstance(source, str | None):
        raise FileFormatError(f"{name}: its description must name its run and its source as text")
    return run, source


def run_of(text: str | None) -> tuple[str | None, str | None]:
    """`run` and `source` of a description that `read_description` reads, without its mechanisms."""
    try:
        document = None if text is None else parse_json(text, name="")
        return names_in(document, name="") if isinstance(document, dict) else (None, None)
    except FileFormatError:
        return None, None


def descriptions_of(source: SourcePath) -> list[Description | None]:
    """What each file of a source says of its reports, None where it says nothing; empty for standard input.

    Raises:
        FileFormatError: a description that was edited.
    """
    files = find_files(source)
    if files[0].path == STREAM:
        return []
    descriptions: list[Description | None] = []
    for file in files:
        with open_columns(file.path) as reader:
            text, name = reader.description, reader.name
        descriptions.append(None if text is None else read_description(text, name=name))
    return descriptions


def limits_of(source: SourcePath) -> set[Limit]:
    """How many rows of a person the files of a source hold, where people were charged for their own rows."""
    described = [description for description in descriptions_of(source) if description is not None]
    return {description.limit for description in described if description.limit is not None}


def row_claim(source: SourcePath) -> Claim | None:
    """The claim about a complete row of a source, all columns of its reports together.

    Of a source of several files it is the claim of the costliest row: a folder may hold files whose other columns
    were reported under other mechanisms.

    Arguments:
        source: as of `estimate`; standard input is read once, and not here.

    Returns: None where every file reports one column, or where any of them says nothing of its reports, or holds
        seeded ones.

    Raises:
        FileFormatError: a description that was edited.
    """
    descriptions = descriptions_of(source)
    if any(described is None or described.seeded for described in descriptions):
        return None
    rows: dict[tuple[str, ...], Mapping[str, Mechanism]] = {}
    for described in descriptions:
        assert described is not None, "refused above"
        hashes = sorted(table.sha256 for table in described.tables.values())
        rows[tuple(hashes)] = described.tables
    if all(len(tables) < 2 for tables in rows.values()):
        return None
    return max(map(report_claim, rows.values()), key=lambda claim: claim.epsilon)


def _entry(entry: Json, name: str, seeded: bool | None) -> tuple[str, Mechanism]:
    keys = _ENTRY_KEYS | {"table" if seeded else "mechanism"}
    if (
        not isinstance(entry, dict)
        or set(entry) != keys
        or not all(isinstance(value, str) for value in entry.values())
    ):
        raise FileFormatError(
            f"{name}: an entry of its description must hold: {', '.join(sorted(keys))}"
        )
    try:
        mechanism = extracted(entry, seeded=seeded)
    except FileFormatError as error:
        raise FileFormatError(f"{name}: {error}") from None
    if mechanism.sha256 != entry["sha256"]:
        raise FileFormatError(
            f"{name}: the mechanism is not the one its sha256 names; the file was edited"
        )
    return str(entry["field"]), mechanism
