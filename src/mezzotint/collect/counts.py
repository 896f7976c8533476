"""Reports as counts per code: all that an estimate needs, and what any number of machines can add
up; and how they are read: which fields of files hold codes, which tables made them, which runs they
are of.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.columns import ColumnReader
from mezzotint.collect.folders import MANIFEST, STATE, read_manifest
from mezzotint.collect.listing import STREAM, SourceFile, find_files
from mezzotint.collect.provenance import UNKNOWN, Provenance, refuse_two_runs
from mezzotint.collect.reports import (
    Description,
    Origin,
    code_field,
    embedded,
    embedded_key,
    extracted,
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
from mezzotint.core.errors import (
    FileFormatError,
    ParameterError,
    as_array,
    wrong_kind,
)
from mezzotint.core.files import read_object, write_text
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Progress, Record
from mezzotint.core.types import AnyPath, IntArray
from mezzotint.core.values import numbers, plain
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.claim import Claim

# Codes in files -----------------------------------------------------------------------------------

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


COUNTS_FORMAT = "mezzotint-counts"
VERSION = 1
_OPTIONAL_KEYS = {"seeded", "runs", "sources", "memoised", "several_rows"}


COUNTS_REMARK = (
    "saved counts are of one column: they do not say what a complete row of the reports costs, nor "
    "how many rows a person gave; the reports and the ledger do"
)
"""What is said beside estimates from them."""


MOST_REPORTS = 2**53
"""Sums of so many are exact, as integers and as floats."""


def check_counts(values: npt.ArrayLike, shape: tuple[int, ...], remedy: str) -> IntArray:
    """A copy of the counts that nobody can change; ParameterError unless they are integers from 0
    on, in an array of this shape, whose sum is exact.
    """
    counts = as_array("counts", values, remedy)
    if counts.dtype.kind not in "iu" or counts.shape != shape:
        raise wrong_kind("counts", counts, "iu", remedy)
    if (counts < 0).any():
        raise ParameterError("counts", int(counts.min()), "a count cannot be negative")
    if int(counts.max()) > MOST_REPORTS // counts.size:
        total = sum(counts.ravel().tolist())  # in integers of any size
        if total > MOST_REPORTS:
            raise ParameterError("counts", total, f"more than {MOST_REPORTS:,} reports in all")
    owned = counts.astype(np.int64, copy=True)
    owned.setflags(write=False)
    return owned


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts(ABC):
    """How often each outcome was reported; what two sources say adds up.

    Arguments:
        counts: integers >= 0, reports per outcome.
        seeded: whether any of the draws was reproducible and therefore NOT private; None where that
            is unknown, as for bare codes and for files written before they said so.
        provenance: which runs drew the reports, as far as their files say.
    """

    counts: IntArray
    seeded: bool | None = None
    provenance: Provenance = UNKNOWN

    def __post_init__(self) -> None:
        shape = self.shape
        remedy = f"need {math.prod(shape)} integers from 0 on, one per outcome of a report: {shape}"
        object.__setattr__(self, "counts", check_counts(self.counts, shape, remedy))

    @property
    @abstractmethod
    def tables(self) -> tuple[Mechanism, ...]:
        """The tables that drew the reports."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the counts: the codes of each table."""
        return tuple(table.levels.size for table in self.tables)

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.counts.sum())

    def merge(self, other: Self) -> Self:
        """The counts of both; raises ParameterError when other tables drew them, or reports would
        count twice.
        """
        if self.tables != other.tables:
            remedy = "reports of different tables cannot be added; estimate them apart"
            raise ParameterError("mechanism", other.tables[0].name, remedy)
        return replace(
            self,
            counts=self.counts + other.counts,
            seeded=seeded_together([self.seeded, other.seeded]),
            provenance=self.provenance.merge(other.provenance),
        )


AnyCounts = TypeVar("AnyCounts", bound=Counts)


def counts_of(
    source: AnyPath,
    count: Callable[[Block], AnyCounts],
    *,
    column: str | None,
    settings: Settings = ONE_THREAD,
) -> AnyCounts:
    """The counts of all reports of a source, from those of each block; as `total_of`."""
    total = total_of(source, count, column=column, settings=settings)
    return replace(total.counted, provenance=total.provenance)


@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class CodeCounts(Counts, Record):
    """How often each code was reported under one mechanism: a sufficient statistic of the reports.

    Arguments:
        mechanism: the table that made the reports.
        counts: (m,) integers >= 0, reports per code.
        seeded, provenance: as in `Counts`.

    Raises:
        ParameterError: another shape, negative or non-integer counts.

    Guarantees: `a.merge(b)` of two parts equals the counts of the whole, exactly.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> counts.n, counts.counts.size
        (10000, 4)
    """

    mechanism: Mechanism

    @property
    def tables(self) -> tuple[Mechanism, ...]:
        return (self.mechanism,)

    @classmethod
    def from_codes(
        cls,
        codes: npt.ArrayLike,
        *,
        mechanism: Mechanism,
        seeded: bool | None = None,
    ) -> Self:
        """Counts the codes of an array of any shape; raises ParameterError for a code that names no
        level.
        """
        checked = mechanism.check_codes(codes)
        counts = np.bincount(checked.ravel(), minlength=mechanism.levels.size)
        return cls(mechanism=mechanism, counts=counts, seeded=seeded)

    def as_dict(self) -> JsonObject:
        """Plain values for JSON: all that another machine needs to add these counts to its own."""
        document: JsonObject = {
            **embedded(self.mechanism, seeded=self.seeded),
            "counts": self.counts.tolist(),
        }
        if self.seeded is not None:
            document["seeded"] = self.seeded
        provenance = self.provenance
        if provenance.runs:
            document["runs"] = sorted(provenance.runs)
        if provenance.sources:
            document["sources"] = sorted(map(list, provenance.sources))
        if provenance.memoised:
            document["memoised"] = provenance.memoised
        if provenance.several_rows:
            document["several_rows"] = True
        return document

    @classmethod
    def from_dict(cls, values: JsonObject) -> Self:
        """The counts that `as_dict` described; raises FileFormatError for anything else."""
        seeded = values.get("seeded")
        memoised = values.get("memoised", 0)
        several_rows = values.get("several_rows", False)
        runs = values.get("runs", [])
        sources = values.get("sources", [])
        well_formed = (
            values.keys() - _OPTIONAL_KEYS == {embedded_key(seeded), "counts"}
            and isinstance(seeded, bool | None)
            and type(memoised) is int
            and memoised >= 0
            and isinstance(several_rows, bool)
            and _is_texts(runs)
            and isinstance(sources, list)
            and all(_is_texts(pair) and len(pair) == 2 for pair in sources)
        )
        if not well_formed:
            raise FileFormatError("counts: need the keys that CodeCounts.as_dict writes")
        return cls(
            mechanism=extracted(values, seeded=seeded),
            counts=np.asarray(values["counts"]),
            seeded=seeded,
            provenance=Provenance(
                runs=frozenset(runs),
                sources=frozenset((source, run_name) for source, run_name in sources),
                memoised=memoised,
                several_rows=several_rows,
            ),
        )

    def _rows(self) -> list[JsonObject]:
        entries: list[JsonObject] = []
        levels = self.mechanism.levels.tolist()
        for code, reports in enumerate(self.counts.tolist()):
            entries.append(
                {
                    "code": code,
                    "level": levels[code],
                    "reports": reports,
                }
            )
        return entries

    def _told(self) -> JsonObject:
        mechanism = self.mechanism
        return {
            "reports": self.n,
            "of each code": self.counts.tolist(),
            "table": mechanism.name,
        }


def _is_texts(value: Any) -> bool:
    """Whether a value of JSON is a list of texts."""
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def save_counts(
    counts: CodeCounts,
    path: AnyPath,
    *,
    overwrite: bool = False,
) -> None:
    """Writes counts to a .json file, whole or not at all.

    Arguments:
        counts: to write.
        path: a .json file.
        overwrite: replace a file that is there.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> mz.collect.save_counts(counts, "counts.json")
        >>> bool((mz.collect.load_counts("counts.json").counts == counts.counts).all())
        True
    """
    if not os.fspath(path).endswith(".json"):
        raise ParameterError("save_counts", os.fspath(path), "name a .json file")
    document = {
        "format": COUNTS_FORMAT,
        "version": VERSION,
        **counts.as_dict(),
    }
    checksum = _checksum(document)
    sealed = document | {"sha256": checksum}
    write_text(
        path,
        json.dumps(sealed) + "\n",
        overwrite=overwrite,
        parameter="save_counts",
    )


def _checksum(document: JsonObject) -> str:
    text = json.dumps(document, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load_counts(path: AnyPath) -> CodeCounts:
    """Reads what `save_counts` wrote; raises ParameterError for no file, FileFormatError for
    another one.

    Arguments:
        path: a .json file.

    Returns: the counts.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> mz.collect.save_counts(counts, "counts.json")
        >>> mz.collect.load_counts("counts.json").n
        10000
    """
    file_name = os.fspath(path)
    if not Path(path).is_file():
        raise ParameterError("source", file_name, "no such file; check the path")
    document = read_object(path)
    stated = document.pop("sha256", None)
    checksum = _checksum(document)
    if document.pop("format", None) != COUNTS_FORMAT or document.pop("version", 0) != VERSION:
        problem = f'not a file of counts ("{COUNTS_FORMAT}", version {VERSION})'
        remedy = "name reports, or counts that save_counts or --save-counts wrote"
        raise FileFormatError(f"{file_name}: {problem}; {remedy}")
    try:
        counts = CodeCounts.from_dict(document)
    except (FileFormatError, ParameterError) as error:
        raise FileFormatError(f"{file_name}: {error}") from None
    if stated not in (None, checksum):  # those of before state none
        remedy = "was damaged or edited, as its checksum is of other counts; save them again"
        raise FileFormatError(f"{file_name}: {remedy}")
    return counts


def read_counts(
    source: AnyPath,
    *,
    column: str | None = None,
    mechanism: Mechanism | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CodeCounts:
    """Counts the reports of a file or data set, in constant memory.

    Arguments:
        source: a reports file (.parquet, .csv, .csv.gz, or "-" for CSV on standard input), a
            folder, or a glob.
        column: the field that holds the codes; None where the file describes exactly one.
        mechanism: for files of bare codes without a description; `column` is needed then. A file
            that does describe the field must agree.
        engine, address, threads: as in `Settings`. Counts add up exactly, whoever counts.
        progress: as in `Settings`.

    Returns: the counts, of all reports in the source.

    Raises:
        ParameterError: no such column, an empty one, a mechanism that is not the file's, files of
            different tables, or a folder whose run is unfinished.
        FileFormatError: a missing or edited description, invalid codes, or a folder that lacks
            parts.

    Example:
        >>> table = mz.families.randomized_response(lower=20, upper=700, epsilon=1.0)
        >>> with mz.datasets.flights() as path:
        ...     written = mz.collect.privatize(
        ...         path, "out.csv", column="air_time", mechanism=table, missing="drop"
        ...     )
        >>> mz.collect.read_counts("out.csv").n
        327346
    """
    settings = Settings(
        engine=engine,
        address=address,
        threads=threads,
        progress=progress,
    )
    count = partial(_count_block, column=column, mechanism=mechanism)
    return counts_of(source, count, column=column, settings=settings)


def _count_block(block: Block, *, column: str | None, mechanism: Mechanism | None) -> CodeCounts:
    """The counts of one block."""
    with open_reports(block, columns=[column], mechanism=mechanism) as reports:
        (code_table,) = reports.tables
        counts = np.zeros(code_table.levels.size, dtype=np.int64)
        for codes, _ in reports.batches():
            counts += np.bincount(codes[0], minlength=counts.size)
    return CodeCounts(
        mechanism=code_table,
        counts=counts,
        seeded=reports.seeded,
        provenance=reports.provenance,
    )


def seeded_together(flags: Iterable[bool | None]) -> bool | None:
    """Whether reports that are counted together were drawn from a seed: if any were; None where
    some do not say.
    """
    distinct = set(flags)
    for answer in (True, None):
        if answer in distinct:
            return answer
    return False


def claim_of(mechanism: Mechanism, *, seeded: bool | None) -> Claim | None:
    """The claim of one report; None where it was drawn from a seed, and is not private."""
    if seeded:
        return None
    return report_claim(mechanism)


def refuse_seeded(seeded: bool | None, *, allowed: bool) -> None:
    """Raises ParameterError for reports that are not private, unless they are allowed."""
    if seeded and not allowed:
        remedy = "they are NOT private; for tests, use allow_seeded=True (--allow-seeded)"
        raise ParameterError("counts", "reports drawn from a seed", remedy)
