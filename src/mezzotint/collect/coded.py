"""Reports in files as codes: which fields hold them, which tables made them, and which runs they
are of.
"""

from __future__ import annotations

import os
from collections.abc import (
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.columns import ColumnReader
from mezzotint.collect.folders import MANIFEST, STATE, read_manifest
from mezzotint.collect.listing import STREAM, SourceFile, find_files
from mezzotint.collect.provenance import Provenance, refuse_two_runs
from mezzotint.collect.reports import (
    Description,
    Origin,
    code_field,
    origin_of,
    read_description,
)
from mezzotint.collect.settings import Settings
from mezzotint.collect.source import (
    Batch,
    Block,
    OpenFile,
    Wanted,
    blocks_of,
    open_columns,
)
from mezzotint.collect.workers import each_block
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import AnyPath
from mezzotint.core.values import numbers, plain

Codes = npt.NDArray[np.integer]

ONE_THREAD = Settings(threads=1)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class OpenReports:
    """The reports of one block of an open file.

    Arguments:
        fields: names of the fields of codes.
        tables: that drew them, one for each field.
        seeded, memoised: as in `Description`, of all fields together.
        block: which rows.
        reader: of its file.
    """

    fields: tuple[str, ...]
    tables: tuple[Mechanism, ...]
    seeded: bool | None
    memoised: bool | None
    block: Block
    reader: ColumnReader

    @property
    def provenance(self) -> Provenance:
        """Of a file of memoised reports the first block alone says so; runs are named by
        `total_of`.
        """
        begins = self.block.groups is None or self.block.groups[0] == 0
        return Provenance(memoised=int(begins and bool(self.memoised)))

    def batches(
        self,
        *,
        numeric: Sequence[str] = (),
        others: Mapping[str, str] | None = None,
    ) -> Iterator[tuple[list[Codes], Batch]]:
        """The codes of each field, batch by batch, and the batch with the columns beside them.

        Arguments:
            numeric, others: columns to read beside the codes, as in `Wanted`.
        """
        wanted = Wanted(columns=(*self.fields, *numeric), others=others or {})
        opened = OpenFile(file=self.block.file, reader=self.reader, wanted=wanted)
        sizes = [mechanism.levels.size for mechanism in self.tables]
        for record_batch in opened.batches(row=self.block.offset):
            codes: list[Codes] = []
            for field, level_count in zip(self.fields, sizes, strict=True):
                codes.append(codes_in(record_batch, field, level_count))
            yield codes, record_batch


@contextmanager
def open_reports(
    block: Block,
    *,
    columns: Sequence[str | None],
    mechanism: Mechanism | None = None,
) -> Iterator[OpenReports]:
    """Opens a block of a file of reports.

    Arguments:
        block: which rows.
        columns: fields of codes, or the columns that were privatized into them; None for the only
            one that the file describes.
        mechanism: of bare codes without a description. A file that does describe the field must
            agree.

    Raises:
        ParameterError: no such field of codes, several, or another mechanism than the file's.
        FileFormatError: a missing or edited description.
    """
    with open_columns(block.file.path, groups=block.groups) as reader:
        described = Description(tables={}, seeded=None, origin=Origin())
        if reader.description is not None or mechanism is None:
            described = read_description(reader.description, name=reader.name)
        fields = [_field(column, described) for column in columns]
        tables = [_table(field, described, mechanism, reader) for field in fields]
        yield OpenReports(
            fields=tuple(fields),
            tables=tuple(tables),
            seeded=described.seeded,
            memoised=described.origin.memoised,
            block=block,
            reader=reader,
        )


def _field(column: str | None, described: Description) -> str:
    """The name of the field of codes, which is also found by the column that it is of."""
    if column is not None:
        if column not in described.tables and code_field(column) in described.tables:
            return code_field(column)
        return column
    if len(described.tables) == 1:
        return next(iter(described.tables))
    listed = ", ".join(described.tables) or "none described"
    remedy = f"name the field that holds the codes; candidates: {listed}"
    raise ParameterError("column", None, remedy)


def _table(
    field: str,
    described: Description,
    mechanism: Mechanism | None,
    reader: ColumnReader,
) -> Mechanism:
    """The table that drew the codes of a field."""
    described_table = described.tables.get(field, mechanism)
    if described_table is None:
        remedy = f"no such column of codes; the file has: {', '.join(described.tables)}"
        raise ParameterError("column", field, remedy)
    if mechanism is not None and mechanism != described_table:
        remedy = f"{reader.name} was made by another table: {described_table!r}"
        raise ParameterError("mechanism", mechanism.name, remedy)
    reader.require(field)
    return described_table


def codes_in(batch: Batch, field: str, size: int) -> Codes:
    """The codes, or the hashes, of a field, checked to be integers below `size`."""
    array = batch.values.column(field)
    if array.type in (pa.uint8(), pa.uint16()) and not array.null_count:
        codes = plain(array)
        if codes.size == 0 or int(codes.max()) < size:
            return codes
    values, present = numbers(array)
    if present is not None:
        report = batch.row + int(np.argmin(present)) + 1
        message = "is missing; a reports file has one code per row"
        raise FileFormatError(f"{field}: report {report} {message}")
    invalid = (values < 0) | (values >= size) | (values != np.floor(values))
    if invalid.any():
        index = int(np.argmax(invalid))
        message = f"is {float(values[index]):g}; codes are integers from 0 to {size - 1}"
        raise FileFormatError(f"{field}: report {batch.row + index + 1} {message}")
    return values.astype(np.int64)


# All reports of a source --------------------------------------------------------------------------


class Mergeable(Protocol):
    """Counts of reports that add up."""

    @property
    def n(self) -> int: ...

    @property
    def provenance(self) -> Provenance: ...

    def merge(self, other: Self) -> Self: ...


Counted = TypeVar("Counted", bound=Mergeable)


@final
@dataclass(frozen=True, kw_only=True)
class Total(Generic[Counted]):
    """The counts of all reports of a source, and where these come from.

    Arguments:
        run_of_file: name of a file in the source -> the run of its reports, where it says so.
    """

    counted: Counted
    provenance: Provenance
    run_of_file: Mapping[str, str]


def total_of(
    source: AnyPath,
    count: Callable[[Block], Counted],
    *,
    column: str | None,
    settings: Settings = ONE_THREAD,
) -> Total[Counted]:
    """The counts of all blocks of a source merged.

    Raises:
        ParameterError: a source without reports; two of its files hold the same ones, or reports
            about the same rows.
        FileFormatError: a folder that lacks some of them.
    """
    source_name = os.fspath(source)
    expected = expected_reports(source)
    files = find_files(source)
    if files[0].path == STREAM:
        settings = replace(settings, threads=1)
    blocks = blocks_of(files)
    total: Counted | None = None
    reports = 0
    with closing(each_block(count, blocks, settings)) as parts:
        for index, counted_part in enumerate(parts, start=1):
            reports += counted_part.n
            if total is not None:
                counted_part = total.merge(counted_part)
            total = counted_part
            settings.report_progress(reports, share=index / len(blocks))
    if total is None or not reports:
        remedy = f"is empty: {source_name} holds no reports"
        raise ParameterError("column", column or "codes", remedy)
    if expected is not None and reports != expected["reports"]:
        message = f"its parts hold {reports} reports, its manifest says {expected['reports']}"
        raise FileFormatError(f"{source_name}: {message}")
    provenance, run_of_file = _named_runs(files, memoised=total.provenance.memoised)
    if expected is not None:  # one run's folder is one release, in many parts
        others = provenance.run_names - {expected.get("run")}
        if others and "run" in expected:
            message = f"holds reports of run {min(others)}, which its manifest does not name"
            raise FileFormatError(f"{source_name}: {message}")
        provenance = replace(provenance, memoised=min(provenance.memoised, 1))
    return Total(counted=total, provenance=provenance, run_of_file=run_of_file)


def _named_runs(files: Sequence[SourceFile], *, memoised: int) -> tuple[Provenance, dict[str, str]]:
    """The runs and the sources of the reports in files, and the run of each file, as far as they
    say; raises ParameterError for any twice.
    """
    file_of_run: dict[str, str] = {}
    sources: set[tuple[str, str]] = set()
    several_rows = False
    for source_file in files:
        if source_file.path == STREAM:
            continue
        with open_columns(source_file.path) as reader:
            origin = origin_of(reader.description)
        several_rows |= origin.limit is not None and not origin.limit.one_row
        run_name = origin.run
        if run_name is None:
            continue
        first_name = file_of_run.setdefault(run_name, source_file.name)
        if first_name != source_file.name:
            message = f"{first_name} and {source_file.name} hold the same reports"
            remedy = "which would count twice; give one of them"
            raise ParameterError("source", run_name, f"{message}, {remedy}")
        if origin.source is not None:
            sources.add((origin.source, run_name.partition("/")[0]))
    refuse_two_runs(sources, parameter="source")
    provenance = Provenance(
        runs=frozenset(file_of_run),
        sources=frozenset(sources),
        memoised=memoised,
        several_rows=several_rows,
    )
    return provenance, {file_name: run_name for run_name, file_name in file_of_run.items()}


def expected_reports(source: AnyPath) -> JsonObject | None:
    """What a folder that we made must hold; None for other sources."""
    folder = Path(source)
    if (folder / MANIFEST).is_file():
        return read_manifest(folder)
    if (folder / STATE).is_file():
        remedy = "holds an unfinished run; continue it with: mezzotint privatize --resume"
        raise ParameterError("source", str(folder), remedy)
    return None
