"""The reports file: codes, and the mechanism that made them, in one file.

A Parquet file carries a description under the metadata key `mezzotint`; a CSV file carries the same JSON on a
first line that begins with `# mezzotint: `. The mechanism stands in it as its own file's text, byte for byte, so
that every check of a mechanism file holds here too. Reports that were drawn from a seed are not private: their
description holds the bare table, without the certificate and its epsilon.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, final

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mezzotint.collect.columns import COMMENT, METADATA_KEY
from mezzotint.collect.dates import output_name
from mezzotint.collect.listing import file_kind
from mezzotint.core.document import read_table, write_table
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import parse_json, replacing
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Json, JsonObject

FORMAT = "mezzotint-reports"
VERSION = 1
COUNTS_KEY = b"mezzotint.raw_counts"
_ENTRY_KEYS = {"column", "field", "sha256"}


@final
@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of its reports that a reports file carries.

    Arguments:
        tables: field of codes -> the mechanism that drew them.
        seeded: whether the draw was reproducible and therefore NOT private; None where the file does not say.
        memoised: whether equal values of a user got equal reports; None where the file does not say.
        run: names these very reports, so that nobody counts them twice: the run that drew them, and the part of its
            folder they are in. None where the file does not say, and for memoised reports.
        source: names what they are about (`results.fingerprint`); None where the file does not say.
    """

    tables: Mapping[str, Mechanism]
    seeded: bool | None
    memoised: bool | None
    run: str | None = None
    source: str | None = None


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


def describe(
    reports: Mapping[str, Mechanism],
    *,
    seeded: bool,
    memoised: bool,
    run: str | None = None,
    source: str | None = None,
) -> str:
    """The description of a reports file, of the columns' mechanisms, as one line of JSON; see `Description`."""
    entries = [
        {
            "column": name,
            "field": code_field(name),
            **embedded(table, seeded=seeded),
            "sha256": table.sha256,
        }
        for name, table in reports.items()
    ]
    said = {name: value for name, value in (("run", run), ("source", source)) if value is not None}
    drawn = {"seeded": seeded, "memoised": memoised, **said}
    document = {"format": FORMAT, "version": VERSION, **drawn, "reports": entries}
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
    tables = dict(_entry(entry, name, seeded) for entry in entries)
    return Description(tables=tables, seeded=seeded, memoised=memoised, run=run, source=source)


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


# Writing -----------------------------------------------------------------------------------------------------


@final
class ReportsWriter:
    """An open file of reports, in a block that ends it with `close`; after an error further failures do not matter.

    Arguments:
        place: the path of a Parquet file, whose codes are dictionary-encoded and bit-packed: about `bits` bits each; or
            a stream of CSV, which begins with the description as a comment line.
        columns: those that the codes are of.
    """

    def __init__(
        self, place: Path | BinaryIO, schema: pa.Schema, description: str, columns: Sequence[str]
    ) -> None:
        if isinstance(place, Path):
            described = schema.with_metadata({METADATA_KEY: description})
            coded: Any = [
                code_field(column) for column in columns
            ]  # pyarrow's own annotation knows only a bool
            self._writer: Any = pq.ParquetWriter(
                place, described, compression="zstd", use_dictionary=coded
            )
        else:
            place.write(COMMENT + description.encode() + b"\n")
            place.flush()
            self._writer = pacsv.CSVWriter(place, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends a batch."""
        self._writer.write_batch(batch)

    def close(self, raw_counts: JsonObject | None) -> None:
        """Ends the file; `raw_counts` go into the metadata of Parquet when given.

        Raises:
            ParameterError: counts for a CSV, which has no place for them.
        """
        if raw_counts is not None:
            if isinstance(self._writer, pacsv.CSVWriter):
                raise ParameterError(
                    "record_counts", True, "a CSV of reports has no place for counts; write Parquet"
                )
            self._writer.add_key_value_metadata({COUNTS_KEY: json.dumps(dict(raw_counts)).encode()})
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()


@contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """A name beside the target, hidden and new; what is there at the end is removed."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def open_reports(
    out: str | os.PathLike[str],
    schema: pa.Schema,
    description: str,
    columns: Sequence[str],
    *,
    overwrite: bool,
) -> Iterator[ReportsWriter]:
    """Opens a reports file (.parquet, .csv, .csv.gz, or "-" for standard output); the caller ends it with `close`.

    Raises:
        ParameterError: an unknown extension, a missing folder, an existing file.
        OSError: the disk is full or fails; nothing is left behind.

    Guarantees: a file under the name `out` is whole or was there before (`core.files`).
    """
    kind = file_kind(out, parameter="out", written=True)
    if kind == "stream":
        yield ReportsWriter(sys.stdout.buffer, schema, description, columns)
        sys.stdout.buffer.flush()
        return
    with replacing(out, overwrite=overwrite) as temporary, ExitStack() as stack:
        place: Any = temporary if kind == "parquet" else stack.enter_context(temporary.open("wb"))
        if kind == "csv.gz":
            place = gzip.GzipFile(fileobj=place, mode="wb", compresslevel=6, filename="", mtime=0)
            stack.enter_context(place)
        yield stack.enter_context(ReportsWriter(place, schema, description, columns))
