"""Columns of any length in, one private report per row and column out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, final

import pyarrow as pa

from mezzotint.collect.claim import RecordClaim, record_claim
from mezzotint.collect.columns import ColumnReader, file_kind, open_columns
from mezzotint.collect.drawing import Plan, Tally, plan
from mezzotint.collect.reports import code_field, open_reports
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism

Progress = Callable[[float | None, int], None]
"""Called after each batch with the fraction done (None when unknown) and the rows so far."""

RAW_COUNTS_REMARK = "these counts were computed on the raw data and are not private; do not publish them"


@final
@dataclass(frozen=True, kw_only=True)
class ColumnResult:
    """What became of one column.

    Arguments:
        column, field: the input column, and the field of the output that holds its codes.
        below, above: inputs clipped to lower and upper. Counted on raw data: not private.
        epsilon: pure epsilon of one report, rounded up.
        bits: bits of one report.
        sha256: hash of the table used.
    """

    column: str
    field: str
    below: int
    above: int
    epsilon: float
    bits: int
    sha256: str


@final
@dataclass(frozen=True, kw_only=True)
class ColumnsResult:
    """What a run over several columns wrote, and what it saw.

    Arguments:
        out: the file or folder written.
        columns: one entry per column.
        claim: what one record pays for all its reports.
        reports: rows written.
        missing: rows dropped because a value was missing. Counted on raw data; who is missing is visible.
        seeded: True when the draw was reproducible and therefore NOT private.
        seconds: wall time.
        blocks, resumed: of a folder, its parts, and how many of them an earlier run had finished; the counts here
            (reports, missing, below, above) are of the other parts only.
    """

    out: str
    columns: tuple[ColumnResult, ...]
    claim: RecordClaim
    reports: int
    missing: int
    seeded: bool
    seconds: float
    blocks: int = 1
    resumed: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the remark that the raw counts need."""
        return {**asdict(self), "claim": self.claim.as_dict(), "remark": RAW_COUNTS_REMARK}


@final
@dataclass(frozen=True, kw_only=True)
class PrivatizeResult:
    """What `privatize` wrote, and what it saw.

    Arguments:
        column, field: the input column, and the field of the output that holds its codes.
        out: the file written.
        reports: rows written, one report each.
        below, above: inputs clipped to lower and upper. Counted on raw data: not private.
        missing: rows dropped because the value was missing. Counted on raw data; who is missing is visible to whoever
            sees the number of reports.
        epsilon: pure epsilon of one report, rounded up.
        bits: bits of one report.
        sha256: hash of the table used.
        seeded: True when the draw was reproducible and therefore NOT private.
        seconds: wall time.
    """

    column: str
    field: str
    out: str
    reports: int
    below: int
    above: int
    missing: int
    epsilon: float
    bits: int
    sha256: str
    seeded: bool
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the remark that the raw counts need."""
        return {**asdict(self), "remark": RAW_COUNTS_REMARK}


def privatize(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    column: str,
    mechanism: Mechanism,
    keep: Sequence[str] = (),
    missing: Literal["error", "drop"] = "error",
    on_out_of_range: Literal["clip", "error"] = "clip",
    record_counts: bool = False,
    overwrite: bool = False,
    rng: Any = None,
    progress: Progress | None = None,
) -> PrivatizeResult:
    """Privatizes one column of a file into a reports file, in constant memory.

    Arguments:
        source: .parquet, .csv, .csv.gz, or "-" for CSV on standard input.
        out: .parquet, .csv, .csv.gz, or "-" for CSV on standard output. The codes go into the field
            `<column>_code`; the mechanism and its hash go along (docs/collect.md).
        column: integers, floats or decimals in data units.
        mechanism: the table; inputs are clipped to its [lower, upper].
        keep: other columns to copy. They are published as they are.
        missing: what a null or NaN does: "error", or "drop" its row. It is never filled in.
        on_out_of_range: "clip", or "error".
        record_counts: put the clipped and missing counts into the file's metadata (Parquet only; not private).
        overwrite: False refuses an existing `out`.
        rng: None for the cryptographic generator; a seed or numpy Generator is reproducible and NOT private.
        progress: told how far it is.

    Raises:
        ParameterError: missing, empty or non-numeric column, a missing value under "error" (naming its row), a value
            out of range under "error", an existing `out`, an unknown option.
        FileFormatError: a damaged source.
        OSError: reading or writing failed; `out` is as it was before.

    Guarantees:
        `out` appears whole or not at all, whatever happens half-way.
        Rows keep their order; each value is used for exactly one report.
        Without `keep`, nothing of the source but one code per row reaches `out`.
    """
    result = privatize_columns(
        source,
        out,
        mechanisms={column: mechanism},
        keep=keep,
        missing=missing,
        on_out_of_range=on_out_of_range,
        record_counts=record_counts,
        overwrite=overwrite,
        rng=rng,
        progress=progress,
    )
    return PrivatizeResult(
        **asdict(result.columns[0]),
        out=result.out,
        reports=result.reports,
        missing=result.missing,
        seeded=result.seeded,
        seconds=result.seconds,
    )


def privatize_columns(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    mechanisms: Mapping[str, Mechanism],
    keep: Sequence[str] = (),
    missing: Literal["error", "drop"] = "error",
    on_out_of_range: Literal["clip", "error"] = "clip",
    record_counts: bool = False,
    overwrite: bool = False,
    rng: Any = None,
    progress: Progress | None = None,
) -> ColumnsResult:
    """Privatizes several columns of a file in one pass, each by its own table; otherwise as `privatize`.

    Arguments:
        mechanisms: column -> its table. Every column draws from a keystream of its own.
        missing: "drop" leaves a row out when any of the columns lacks its value.

    Guarantees: the claim is that of a whole record: all its reports together.
    """
    work = plan(mechanisms, keep=keep, missing=missing, on_out_of_range=on_out_of_range, rng=rng)
    _check_files(source, out, record_counts)
    started, tally = time.perf_counter(), Tally()
    with open_columns(source) as reader:
        for name in (*work.columns, *keep):
            reader.require(name, parameter="column" if name in work.columns else "keep")
        batches = reader.batches(numeric=work.columns, keep=keep)
        if os.fspath(source) != "-":  # a thread that waits for a terminal could not be interrupted
            batches = ahead(batches)
        coded = (work.coded(batch, first=tally.rows, tally=tally) for batch in batches)
        first = _first(coded, work.columns[0], reader, tally)
        with open_reports(out, schema=first.schema, reports=mechanisms, overwrite=overwrite) as writer:
            writer.write(first)
            _tell(progress, reader, tally)
            for batch in coded:
                writer.write(batch)
                _tell(progress, reader, tally)
            writer.close(tally.as_dict() if record_counts else None)
    return result_of(work, tally, out=os.fspath(out), seconds=time.perf_counter() - started)


def result_of(
    work: Plan, tally: Tally, *, out: str, seconds: float, blocks: int = 1, resumed: int = 0
) -> ColumnsResult:
    """The result of a finished run."""
    claim = record_claim(work.mechanisms)
    columns = tuple(
        ColumnResult(
            column=column,
            field=code_field(column),
            below=tally.below.get(column, 0),
            above=tally.above.get(column, 0),
            epsilon=epsilon,
            bits=work.mechanisms[column].bits,
            sha256=work.mechanisms[column].sha256,
        )
        for column, epsilon in claim.columns
    )
    return ColumnsResult(
        out=out,
        columns=columns,
        claim=claim,
        reports=tally.reports,
        missing=tally.missing,
        seeded=work.seeded,
        seconds=seconds,
        blocks=blocks,
        resumed=resumed,
    )


def ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, the next one being read by another thread while this one is worked on."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(next, batches, None)
        while (batch := pending.result()) is not None:
            pending = pool.submit(next, batches, None)
            yield batch


def _check_files(source: str | os.PathLike[str], out: str | os.PathLike[str], record_counts: bool) -> None:
    if file_kind(out, parameter="out") != "parquet" and record_counts:
        raise ParameterError("record_counts", True, "a CSV of reports has no place for counts; write Parquet")
    same = os.fspath(out) != "-" and Path(out).exists() and Path(source).exists() and Path(out).samefile(source)
    if same:
        raise ParameterError("out", os.fspath(out), "is the source itself; name another file")


def _first(coded: Iterator[pa.RecordBatch], column: str, reader: ColumnReader, tally: Tally) -> pa.RecordBatch:
    """The first batch with reports in it; before it nothing is written."""
    for batch in coded:
        if batch.num_rows:
            return batch
    why = f"all {tally.missing} values are missing" if tally.missing else "it has no rows"
    raise ParameterError("column", column, f"is empty: {why} in {reader.name}")


def _tell(progress: Progress | None, reader: ColumnReader, tally: Tally) -> None:
    if progress is not None:
        progress(reader.done(), tally.rows)
