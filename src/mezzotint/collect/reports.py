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
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast, final

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mezzotint.collect.columns import COMMENT, METADATA_KEY, FileKind, file_kind
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import parse_json, replacing
from mezzotint.core.mechanism import Mechanism, dumps, loads
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
    return f"{column}_code"


def hash_field(column: str) -> str:
    """The name under which the hashes of a column of a large domain are written."""
    return f"{column}_hash"


def embedded(mechanism: Mechanism, *, seeded: bool | None) -> dict[str, str]:
    """The mechanism as it stands in other files: its own file's text, or the bare table beside a seeded draw."""
    if seeded:
        return {"table": dumps(mechanism, certified=False)}
    return {"mechanism": mechanism.to_json()}


def extracted(values: JsonObject, *, seeded: bool | None) -> Mechanism:
    """The description that `embedded` wrote; raises FileFormatError for anything else."""
    text = values.get("table" if seeded else "mechanism")
    if not isinstance(text, str):
        raise FileFormatError("holds no mechanism; it was edited or damaged")
    return loads(text, certified=not seeded)


def describe(
    reports: Mapping[str, Mechanism], *, seeded: bool, memoised: bool, run: str | None, source: str | None = None
) -> str:
    """The description of a reports file, of the columns' mechanisms, as one line of JSON; see `Description`."""
    entries = [
        {
            "column": column,
            "field": code_field(column),
            **embedded(mechanism, seeded=seeded),
            "sha256": mechanism.sha256,
        }
        for column, mechanism in reports.items()
    ]
    drawn = {"seeded": seeded, "memoised": memoised, **_said(run=run, source=source)}
    document = {"format": FORMAT, "version": VERSION, **drawn, "reports": entries}
    return json.dumps(document, separators=(",", ":"))


def _said(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def read_description(text: str | None, *, name: str) -> Description:
    """The mechanisms of a reports file by the field that holds their codes, and how the codes were drawn.

    Arguments:
        text: what the file carries; None when it carries nothing.
        name: the file, for messages.

    Raises:
        FileFormatError: no description, an edited one, another version, or a mechanism that fails its own checks.
    """
    if text is None:
        raise FileFormatError(f"{name}: carries no mechanism; give one with its own file (--mechanism, --column)")
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
    if not isinstance(entry, dict) or set(entry) != keys or not all(isinstance(value, str) for value in entry.values()):
        raise FileFormatError(f"{name}: an entry of its description must hold: {', '.join(sorted(keys))}")
    try:
        mechanism = extracted(entry, seeded=seeded)
    except FileFormatError as error:
        raise FileFormatError(f"{name}: {error}") from None
    if mechanism.sha256 != entry["sha256"]:
        raise FileFormatError(f"{name}: the mechanism is not the one its sha256 names; the file was edited")
    return str(entry["field"]), mechanism


# Writing -----------------------------------------------------------------------------------------------------


class ReportsWriter(ABC):
    """An open reports file."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Appends a batch."""

    @abstractmethod
    def close(self, raw_counts: JsonObject | None) -> None:
        """Ends the file; `raw_counts` go into its metadata when given."""

    @abstractmethod
    def abandon(self) -> None:
        """Lets go of the file after a failure elsewhere; further failures no longer matter."""


@final
class ParquetReports(ReportsWriter):
    """Codes in dictionary-encoded, bit-packed pages: about `bits` bits each on disk."""

    def __init__(self, *, path: Path, schema: pa.Schema, description: str, codes: Sequence[str]) -> None:
        described = schema.with_metadata({METADATA_KEY: description})
        coded: Any = list(codes)  # pyarrow's own annotation knows only a bool
        self._writer = pq.ParquetWriter(path, described, compression="zstd", use_dictionary=coded)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self, raw_counts: JsonObject | None) -> None:
        if raw_counts is not None:
            self._writer.add_key_value_metadata({COUNTS_KEY: json.dumps(dict(raw_counts)).encode()})
        self._writer.close()

    def abandon(self) -> None:
        with suppress(OSError, pa.ArrowException):
            self._writer.close()


@final
class CsvReports(ReportsWriter):
    """The description as a comment line, then plain CSV."""

    def __init__(self, *, stream: BinaryIO, schema: pa.Schema, description: str) -> None:
        stream.write(COMMENT + description.encode() + b"\n")
        stream.flush()
        self._writer = pacsv.CSVWriter(stream, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self, raw_counts: JsonObject | None) -> None:
        if raw_counts is not None:
            raise ParameterError("record_counts", True, "a CSV of reports has no place for counts; write Parquet")
        self._writer.close()

    def abandon(self) -> None:
        with suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()


def _open(
    kind: FileKind, path: Path, schema: pa.Schema, description: str, codes: Sequence[str], stack: ExitStack
) -> ReportsWriter:
    if kind == "parquet":
        return ParquetReports(path=path, schema=schema, description=description, codes=codes)
    raw = stack.enter_context(path.open("wb"))
    if kind == "csv":
        return CsvReports(stream=raw, schema=schema, description=description)
    packed = stack.enter_context(gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, filename="", mtime=0))
    return CsvReports(stream=cast(BinaryIO, packed), schema=schema, description=description)


@contextmanager
def open_reports(
    out: str | os.PathLike[str],
    *,
    schema: pa.Schema,
    reports: Mapping[str, Mechanism],
    seeded: bool,
    memoised: bool,
    run: str | None,
    source: str | None = None,
    overwrite: bool = False,
) -> Iterator[ReportsWriter]:
    """Opens a reports file (.parquet, .csv, .csv.gz, or "-" for standard output); the caller ends it with `close`.

    Raises:
        ParameterError: an unknown extension, a missing folder, an existing file.
        OSError: the disk is full or fails; nothing is left behind.

    Guarantees: a file under the name `out` is whole or was there before (`core.files`).
    """
    kind = file_kind(out, parameter="out", written=True)
    description = describe(reports, seeded=seeded, memoised=memoised, run=run, source=source)
    codes = [code_field(column) for column in reports]
    if kind == "stream":
        yield CsvReports(stream=sys.stdout.buffer, schema=schema, description=description)
        sys.stdout.buffer.flush()
        return
    with replacing(out, overwrite=overwrite) as temporary, ExitStack() as stack:
        writer = _open(kind, temporary, schema, description, codes, stack)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
