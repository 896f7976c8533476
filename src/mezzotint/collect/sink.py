"""Where reports go: a file that has no name before it is whole, checked and paid for.

On Linux a draft is a file without a name: nothing of it is left after a kill, so no complete set of
reports that nobody was charged for can end up in a backup. It is charged for when it is complete,
and named at once. Elsewhere a draft has a hidden name, and the charge comes before its first byte.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, final

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mezzotint.collect.columns import COMMENT, METADATA_KEY
from mezzotint.collect.encoder import Encoder
from mezzotint.collect.listing import FileKind, SourceFile
from mezzotint.collect.reports import code_field
from mezzotint.collect.source import Source
from mezzotint.core.errors import (
    FileFormatError,
    ParameterError,
    StorageError,
)
from mezzotint.core.files import draft_name, publish, sync_folder

PRIVATE = 0o600
"""Mode of a draft: its owner may read the raw rows, too."""


@final
class ReportsWriter:
    """An open file of reports, in a block that ends it with `close`; after an error further
    failures do not matter.

    Arguments:
        stream: for Parquet, whose codes are dictionary-encoded and bit-packed (about `bits` bits
            each) and whose pages carry checksums, or for CSV, which begins with the description as
            a comment line.
        columns: those that the codes are of.
    """

    def __init__(
        self,
        stream: BinaryIO,
        kind: FileKind,
        schema: pa.Schema,
        description: str,
        columns: Sequence[str],
    ) -> None:
        self._packed: gzip.GzipFile | None = None
        if kind == "parquet":
            options: dict[str, Any] = {
                "compression": "zstd",
                "write_page_checksum": True,
                "use_dictionary": [code_field(column) for column in columns],
            }
            described = schema.with_metadata({METADATA_KEY: description})
            self._writer: Any = pq.ParquetWriter(stream, described, **options)
            return
        text_stream: Any = stream
        if kind == "csv.gz":
            self._packed = text_stream = gzip.GzipFile(
                fileobj=stream,
                mode="wb",
                compresslevel=6,
                filename="",
                mtime=0,
            )
        text_stream.write(COMMENT + description.encode() + b"\n")
        text_stream.flush()
        self._writer = pacsv.CSVWriter(text_stream, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends a batch."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()
        if self._packed is not None:
            self._packed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()


@final
@dataclass(frozen=True, kw_only=True)
class Output:
    """An open output of one file: its writer, whether it is charged for before its first byte, and
    its publication.
    """

    writer: ReportsWriter
    early: bool
    publish: Callable[..., bool]


@contextmanager
def open_output(
    out: Path | None,
    kind: FileKind,
    schema: pa.Schema,
    description: str,
    columns: Sequence[str],
) -> Iterator[Output]:
    """Opens an output for reports; None is standard output."""
    if out is None:
        with standard_output(schema, description, columns) as writer:
            yield Output(writer=writer, early=True, publish=lambda **_: True)
        return
    with (
        Draft(out) as draft,
        ReportsWriter(draft.file, kind, schema, description, columns) as writer,
    ):
        yield Output(
            writer=writer,
            early=draft.hidden is not None,
            publish=draft.publish,
        )


def check_source(encoder: Encoder, source: Source, kind: FileKind) -> None:
    """Looks at every file of a source before any of its rows is read.

    Raises:
        ParameterError: a file without a column, or with one of a type that its use, or the output,
            cannot take.
        FileFormatError: a kept column that has other types in other files.
    """
    expected: pa.Schema | None = None
    for source_file in source.files:
        with source.open(source_file) as opened:
            schema = encoder.schema(opened.kinds())
        if expected is None:
            check_schema(schema, kind)
            expected = schema
        require_schema(schema, expected, source_file)


def require_schema(schema: pa.Schema, expected: pa.Schema, file: SourceFile) -> None:
    """Raises FileFormatError for a file whose reports would have other types than those before
    it.
    """
    for field, before in zip(schema, expected, strict=True):
        if field != before:
            message = f"column {field.name} holds {field.type}, in files before it {before.type}"
            raise FileFormatError(f"{file.path}: {message}; write the files with one type")


def check_schema(schema: pa.Schema, kind: FileKind) -> None:
    """Raises ParameterError for a kept column that the writer of an output cannot take, tried on a
    row of nulls.
    """
    for field in schema:
        alone = pa.schema([field])
        try:
            if kind != "parquet" and _is_binary(field.type):
                raise pa.ArrowNotImplementedError("bytes are not text")
            record_batch = pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], schema=alone)
            with ReportsWriter(io.BytesIO(), kind, alone, "{}", ()) as writer:
                writer.write(record_batch)
                writer.close()
        except (
            pa.ArrowException,
            ValueError,
            TypeError,
            NotImplementedError,
        ) as error:
            reason = str(error).partition("\n")[0][:120]
            problem = f"holds {field.type}, which the output cannot hold ({reason})"
            raise ParameterError(
                "keep",
                field.name,
                f"{problem}; leave it out or convert it",
            ) from None


def _is_binary(kind: Any) -> bool:
    types: Any = pa.types
    checks = "binary", "large_binary", "binary_view", "fixed_size_binary"
    return any(getattr(types, f"is_{check}")(kind) for check in checks)


@final
class Draft:
    """A file in the making in the folder of its target; nothing of it is left unless `publish`
    names it.

    Attributes:
        file: open for writing.
        hidden: its name until then; None where it has none.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.hidden: Path | None = None
        descriptor = unnamed_draft(target.parent)
        if descriptor is None:
            self.hidden = draft_name(target)
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
            descriptor = os.open(self.hidden, flags, PRIVATE)
        self.file: Any = os.fdopen(descriptor, "w+b")

    def publish(self, *, overwrite: bool = False) -> bool:
        """Give the complete file its name, durably; False where the name is taken and is not to be
        overwritten.
        """
        self.file.flush()
        os.fsync(self.file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self.hidden or self.file.fileno(), 0o666 & ~mask)
        if self.hidden is not None and not overwrite:
            return publish(self.hidden, self.target)
        link_path = self.hidden
        if link_path is None:
            link_path = draft_name(self.target) if overwrite else self.target
            if not self._link(link_path):
                return False
        if overwrite:
            os.replace(link_path, self.target)
        try:
            sync_folder(self.target.parent)
        except OSError as error:
            remedy = (
                f"is written and whole, but its folder cannot be synced ({error.strerror}), and a "
                "power cut may lose it; copy it to another disk"
            )
            raise StorageError("out", str(self.target), remedy) from None
        return True

    def _link(self, name: Path) -> bool:
        """Give the file without a name this one; False where it is taken."""
        folder = os.open(self.target.parent, os.O_RDONLY)
        try:
            # With a folder given, the system follows the link in /proc to the file without a name.
            os.link(
                f"/proc/self/fd/{self.file.fileno()}",
                name.absolute(),
                src_dir_fd=folder,
            )
        except FileExistsError:
            return False
        finally:
            os.close(folder)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # of a full disk: nothing of it is wanted
            self.file.close()
        if self.hidden is not None:
            self.hidden.unlink(missing_ok=True)


def unnamed_draft(folder: Path) -> int | None:
    """A descriptor of a file without a name in a folder; None where the system has no such
    files.
    """
    flag = getattr(os, "O_TMPFILE", 0)
    if not flag or not os.path.exists("/proc/self/fd"):
        return None
    try:
        return os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, PRIVATE)
    except OSError:
        return None


def is_unnamed(target: Path) -> bool:
    """Whether the draft of a target has no name: nothing of it can be read before it is
    published.
    """
    descriptor = unnamed_draft(target.parent)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


@contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """A name beside the target, hidden and new; what is there at the end is removed."""
    draft = draft_name(target)
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def standard_output(
    schema: pa.Schema, description: str, columns: Sequence[str]
) -> Iterator[ReportsWriter]:
    """A writer of CSV to standard output.

    Raises:
        StorageError: whoever read it went away before the end: reports that were paid for are lost.
    """
    stream: Any = sys.stdout.buffer
    try:
        with ReportsWriter(stream, "csv", schema, description, columns) as writer:
            yield writer
        stream.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # the exit flushes it
        remedy = (
            "its reader went away before all reports were written; write a file, then read that"
        )
        raise StorageError("out", "-", remedy) from None
