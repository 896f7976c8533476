"""The reports file: codes, and the mechanism that made them, in one file.

A Parquet file carries a description under the metadata key `mezzotint`; a CSV file carries the same
JSON on a first line that begins with `# mezzotint: `. The mechanism stands in it as its own file's
text, byte for byte, so that every check of a mechanism file holds here too. Reports that were drawn
from a seed are not private: their description holds the bare table, without the certificate and its
epsilon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self, final

from mezzotint.collect.dates import output_name
from mezzotint.collect.listing import STREAM, SourcePath, find_files
from mezzotint.collect.people import Lot
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

    @classmethod
    def read(cls, people: Json) -> Self | None:
        """The limit that a description states; None where it states nothing."""
        if people is None:
            return None
        message = "its description must say how many rows of a person it holds"
        if not isinstance(people, dict):
            raise FileFormatError(message)
        at_most = people.get("at_most")
        per = people.get("per")
        if at_most is not None and (type(at_most) is not int or at_most < 1):
            raise FileFormatError(message)
        if not isinstance(per, str | None):
            raise FileFormatError(message)
        return cls(at_most=at_most, per=per)

    @property
    def one_row(self) -> bool:
        """Whether each person gives one row in all."""
        return self.at_most == 1 and self.per is None

    @property
    def note(self) -> str:
        """What estimates from such reports are about."""
        if self.one_row:
            return "the reports are of one row of each person: estimates are about people"
        return (
            f"the reports are of {self}: estimates are about rows, and whoever has more rows "
            "counts more often"
        )

    def __str__(self) -> str:
        if self.at_most is None:
            return "all rows of each person"
        message = f"at most {self.at_most} rows of each person"
        if self.per is not None:
            message += f" and {self.per}"
        return message


@final
@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the reports of a file come from.

    Arguments:
        run: names these very reports, so that nobody counts them twice: the run that drew them, and
            the part of its folder they are in.
        source: names what they are about (`charging.fingerprint`).
        memoised: whether equal values of a user got equal reports: such reports name no run, as
            another one draws the same. None where the file does not say.
        limit: where people were charged for their own rows, how many those are.
        lot: the question, and whom it asked; None for everybody.
    """

    run: str | None = None
    source: str | None = None
    memoised: bool | None = None
    limit: Limit | None = None
    lot: Lot | None = None

    @classmethod
    def of(cls, settings: Settings, *, run: str, source: str | None) -> Self:
        """The origin of a run under these settings."""
        limit = None
        if settings.charge_by is not None:
            limit = Limit(at_most=settings.at_most, per=settings.per)
        return cls(
            run=run,
            source=source,
            memoised=settings.memo is not None,
            limit=limit,
            lot=settings.lot,
        )

    @classmethod
    def read(cls, document: JsonObject) -> Self:
        """The origin that a description states; raises FileFormatError for one that was edited."""
        run_name = document.get("run")
        source = document.get("source")
        if not isinstance(run_name, str | None) or not isinstance(source, str | None):
            raise FileFormatError("its description must name its run and its source as text")
        memoised = document.get("memoised")
        if not isinstance(memoised, bool | None):
            raise FileFormatError("its description must say true or false: memoised")
        limit = Limit.read(document.get("people"))
        return cls(run=run_name, source=source, memoised=memoised, limit=limit)

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
        if self.lot is not None:
            values["lot"] = self.lot.as_dict()
        return {
            field_name: entry_value
            for field_name, entry_value in values.items()
            if entry_value is not None
        }


@final
@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of its reports that a reports file carries.

    Arguments:
        tables: field of codes -> the mechanism that drew them.
        seeded: whether the draw was reproducible and therefore NOT private; None where the file
            does not say.
        origin: of the reports.
    """

    tables: Mapping[str, Mechanism]
    seeded: bool | None
    origin: Origin


def code_field(column: str) -> str:
    """The name under which the codes of a column are written; not the column's own, as codes are
    not its values.
    """
    return f"{output_name(column)}_code"


def hash_field(column: str) -> str:
    """The name under which the hashes of a column of a large domain are written."""
    return f"{output_name(column)}_hash"


def embedded_key(seeded: bool | None) -> str:
    """The key under which `embedded` writes."""
    return "table" if seeded else "mechanism"


def embedded(mechanism: Mechanism, *, seeded: bool | None) -> dict[str, str]:
    """The mechanism as it stands in other files: its own file's text, or the bare table beside a
    seeded draw.
    """
    mechanism_text = write_table(mechanism) if seeded else mechanism.to_json()
    return {embedded_key(seeded): mechanism_text}


def extracted(values: JsonObject, *, seeded: bool | None) -> Mechanism:
    """The description that `embedded` wrote; raises FileFormatError for anything else."""
    mechanism_text = values.get(embedded_key(seeded))
    if not isinstance(mechanism_text, str):
        raise FileFormatError("holds no mechanism; it was edited or damaged")
    if seeded:
        return Mechanism.of(read_table(mechanism_text))
    return Mechanism.from_json(mechanism_text)


def describe(reports: Mapping[str, Mechanism], *, seeded: bool, origin: Origin) -> str:
    """The description of a reports file, of the columns' mechanisms, as one line of JSON; see
    `Description`.
    """
    entries: list[JsonObject] = []
    for column, mechanism in reports.items():
        entry = {"column": column, "field": code_field(column)}
        entries.append(entry | embedded(mechanism, seeded=seeded) | {"sha256": mechanism.sha256})
    document: JsonObject = {
        "format": FORMAT,
        "version": VERSION,
        "seeded": seeded,
    }
    document |= origin.as_dict() | {"reports": entries}
    return json.dumps(document, separators=(",", ":"))


def read_description(text: str | None, *, name: str) -> Description:
    """What the text that a reports file carries says of it; raises FileFormatError for none, or one
    that was edited.
    """
    if text is None:
        remedy = "give its file (--mechanism) and the column of codes (--column)"
        raise FileFormatError(f"{name}: contains no mechanism; {remedy}")
    try:
        return _read(parse_json(text, name="its description"))
    except FileFormatError as error:
        raise FileFormatError(f"{name}: {error}") from None


def _read(document: Json) -> Description:
    """The description that a document is; raises FileFormatError for any other one."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileFormatError(f'its description is not of format "{FORMAT}"')
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        remedy = f"this release reads version {VERSION}; upgrade mezzotint or privatize again"
        raise FileFormatError(f"description version={version!r}: {remedy}")
    entries = document.get("reports")
    if not isinstance(entries, list) or not entries:
        raise FileFormatError("its description lists no reports")
    seeded = document.get("seeded")
    if not isinstance(seeded, bool | None):
        raise FileFormatError("its description must say true or false: seeded")
    tables = dict(_entry(entry, seeded) for entry in entries)
    if len(tables) != len(entries):
        raise FileFormatError("its description names a field twice")
    return Description(tables=tables, seeded=seeded, origin=Origin.read(document))


def origin_of(text: str | None) -> Origin:
    """The origin in a description that `read_description` reads, without its mechanisms."""
    if text is not None:
        with suppress(FileFormatError):
            document = parse_json(text, name="")
            if isinstance(document, dict):
                return Origin.read(document)
    return Origin()


def descriptions_of(source: SourcePath) -> list[Description | None]:
    """What each file of a source says of its reports, None where it says nothing; empty for
    standard input.

    Raises:
        FileFormatError: a description that was edited.
    """
    files = find_files(source)
    if files[0].path == STREAM:
        return []
    descriptions: list[Description | None] = []
    for source_file in files:
        with open_columns(source_file.path) as reader:
            description = reader.description
            reader_name = reader.name
        descriptions.append(
            None if description is None else read_description(description, name=reader_name)
        )
    return descriptions


def limits_of(source: SourcePath) -> set[Limit]:
    """How many rows of a person the files of a source hold, where people were charged for their own
    rows.
    """
    described = filter(None, descriptions_of(source))
    return set(filter(None, (description.origin.limit for description in described)))


def row_claim(source: SourcePath) -> Claim | None:
    """The claim about a complete row of a source, all columns of its reports together.

    Of a source of several files it is the claim of the costliest row: a folder may hold files whose
    other columns were reported under other mechanisms.

    Arguments:
        source: as of `estimate`; standard input is read once, and not here.

    Returns: None where every file reports one column, or where any of them says nothing of its
        reports, or holds seeded ones.

    Raises:
        FileFormatError: a description that was edited.
    """
    tables_by_hashes: dict[tuple[str, ...], Mapping[str, Mechanism]] = {}
    for described in descriptions_of(source):
        if described is None or described.seeded:
            return None
        hashes = sorted(mechanism.sha256 for mechanism in described.tables.values())
        tables_by_hashes[tuple(hashes)] = described.tables
    if all(len(hashes) < 2 for hashes in tables_by_hashes):
        return None
    claims = map(report_claim, tables_by_hashes.values())
    return max(claims, key=lambda claim: claim.epsilon)


def _entry(entry: Json, seeded: bool | None) -> tuple[str, Mechanism]:
    """The field of codes that an entry of a description is about, and its mechanism."""
    keys = _ENTRY_KEYS | {embedded_key(seeded)}
    values: JsonObject = dict(entry) if isinstance(entry, dict) else {}
    if values.keys() != keys or not all(
        isinstance(entry_value, str) for entry_value in values.values()
    ):
        listed = ", ".join(sorted(keys))
        raise FileFormatError(f"an entry of its description must hold: {listed}")
    mechanism = extracted(values, seeded=seeded)
    if mechanism.sha256 != values["sha256"]:
        message = "the mechanism is not the one its sha256 names; the file was edited"
        raise FileFormatError(message)
    return values["field"], mechanism
