"""A column of any length in, one private report per row out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.columns import ColumnReader, file_kind, numbers, open_columns
from mezzotint.collect.reports import code_field, open_reports
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism

Progress = Callable[[float | None, int], None]
"""Called after each batch with the fraction done (None when unknown) and the rows so far."""

RAW_COUNTS_REMARK = "these counts were computed on the raw data and are not private; do not publish them"


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


class _Tally:
    """Running counts of one run."""

    def __init__(self) -> None:
        self.rows = self.reports = self.below = self.above = self.missing = 0

    def dropped_and_clipped(self) -> dict[str, int]:
        return {"below": self.below, "above": self.above, "missing": self.missing}

    def raw_counts(self) -> dict[str, int]:
        return {**self.dropped_and_clipped(), "rows": self.rows}


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
    _check_options(source, out, column, keep, missing, on_out_of_range, record_counts)
    generator = np.random.default_rng(rng) if isinstance(rng, (int, np.integer)) else rng
    started, tally = time.perf_counter(), _Tally()
    with open_columns(source) as reader:
        for name in (column, *keep):
            reader.require(name, parameter="column" if name == column else "keep")
        batches = reader.batches(numeric=column, keep=keep)
        coded = _coded(batches, column, mechanism, missing, on_out_of_range, generator, tally)
        first = _first(coded, column, reader, tally)
        with open_reports(out, schema=first.schema, reports={column: mechanism}, overwrite=overwrite) as writer:
            writer.write(first)
            _tell(progress, reader, tally)
            for batch in coded:
                writer.write(batch)
                _tell(progress, reader, tally)
            writer.close(tally.raw_counts() if record_counts else None)
    return PrivatizeResult(
        column=column,
        field=code_field(column),
        out=os.fspath(out),
        reports=tally.reports,
        **tally.dropped_and_clipped(),
        epsilon=mechanism.epsilon,
        bits=mechanism.bits,
        sha256=mechanism.sha256,
        seeded=rng is not None,
        seconds=time.perf_counter() - started,
    )


def _check_options(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    column: str,
    keep: Sequence[str],
    missing: str,
    on_out_of_range: str,
    record_counts: bool,
) -> None:
    if missing not in ("error", "drop"):
        raise ParameterError("missing", missing, 'use "error" or "drop"')
    if on_out_of_range not in ("clip", "error"):
        raise ParameterError("on_out_of_range", on_out_of_range, 'use "clip" or "error"')
    if column in keep:
        raise ParameterError("keep", column, "the raw column beside its reports would undo them; leave it out")
    if code_field(column) in keep:
        raise ParameterError("keep", code_field(column), "the reports take this name; rename that column first")
    if len(set(keep)) != len(keep):
        raise ParameterError("keep", ", ".join(keep), "names a column twice")
    if file_kind(out, parameter="out") != "parquet" and record_counts:
        raise ParameterError("record_counts", True, "a CSV of reports has no place for counts; write Parquet")
    same = os.fspath(out) != "-" and Path(out).exists() and Path(source).exists() and Path(out).samefile(source)
    if same:
        raise ParameterError("out", os.fspath(out), "is the source itself; name another file")


def _first(coded: Iterator[pa.RecordBatch], column: str, reader: ColumnReader, tally: _Tally) -> pa.RecordBatch:
    """The first batch with reports in it; before it nothing is written."""
    for batch in coded:
        if batch.num_rows:
            return batch
    why = f"all {tally.missing} values are missing" if tally.missing else "it has no rows"
    raise ParameterError("column", column, f"is empty: {why} in {reader.name}")


def _coded(
    batches: Iterator[pa.RecordBatch],
    column: str,
    mechanism: Mechanism,
    missing: str,
    on_out_of_range: str,
    generator: np.random.Generator | None,
    tally: _Tally,
) -> Iterator[pa.RecordBatch]:
    """Batches with the codes in place of the column."""
    for batch in batches:
        values, present = numbers(batch.column(0))
        if present is not None and missing == "error":
            row = tally.rows + int(np.argmin(present)) + 1
            remedy = 'missing="drop" (--missing drop) leaves such rows out'
            raise ParameterError("column", column, f"data row {row} is missing; {remedy}")
        if on_out_of_range == "error":
            _refuse_outside(values, present, column, mechanism, tally.rows)
        codes, stats = mechanism.privatize_with_stats(values, generator)
        tally.rows += batch.num_rows
        tally.reports += codes.size
        tally.missing += batch.num_rows - codes.size
        tally.below += stats.below
        tally.above += stats.above
        others = batch.select(batch.schema.names[1:])
        if present is not None:
            others = others.filter(pa.array(present))
        arrays = [pa.array(codes), *others.columns]
        yield pa.RecordBatch.from_arrays(arrays, names=[code_field(column), *others.schema.names])


def _refuse_outside(
    values: npt.NDArray[np.floating],
    present: npt.NDArray[np.bool_] | None,
    column: str,
    mechanism: Mechanism,
    before: int,
) -> None:
    outside = np.flatnonzero((values < mechanism.lower) | (values > mechanism.upper))
    if outside.size:
        place = int(outside[0]) if present is None else int(np.flatnonzero(present)[outside[0]])
        raise ParameterError(
            "column",
            column,
            f"data row {before + place + 1} holds {float(values[outside[0]]):g}, outside "
            f"[{mechanism.lower:g}, {mechanism.upper:g}]; widen the mechanism's range or clip",
        )


def _tell(progress: Progress | None, reader: ColumnReader, tally: _Tally) -> None:
    if progress is not None:
        progress(reader.done(), tally.rows)
