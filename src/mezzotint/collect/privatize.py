"""Columns of any length in, one private report per row and column out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar, Unpack, final

import pyarrow as pa

from mezzotint.collect import columns
from mezzotint.collect.columns import file_kind
from mezzotint.collect.drawing import Hashing, Plan, Tally, plan
from mezzotint.collect.reports import open_reports
from mezzotint.collect.results import (
    Charged,
    ColumnsResult,
    Options,
    PrivatizeResult,
    Settings,
    charge,
    fingerprint,
    of_one_column,
    result_of,
)
from mezzotint.collect.runs import Run, is_folder
from mezzotint.collect.sources import SourceFile, find_files, open_file
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import refuse_existing
from mezzotint.core.mechanism import Mechanism

T = TypeVar("T")
AnyPath = str | os.PathLike[str]


def privatize(
    source: AnyPath, out: AnyPath, *, column: str, mechanism: Mechanism | Hashing, **options: Unpack[Options]
) -> PrivatizeResult:
    """Privatizes one column of a file or data set into reports, in constant memory.

    Arguments:
        source, out: as `privatize_columns`. The codes go into the field `<column>_code`; the mechanism and its hash go
            along (docs/collect.md).
        column: integers, floats or decimals in data units.
        mechanism: the table; inputs are clipped to its [lower, upper]. Or a `families.hashed` domain, whose hashes go
            into the field `<column>_hash`.
        options: see `Settings`.

    Raises, Guarantees: as `privatize_columns`.
    """
    return of_one_column(privatize_columns(source, out, mechanisms={column: mechanism}, **options))


def privatize_columns(
    source: AnyPath, out: AnyPath, *, mechanisms: Mapping[str, Mechanism | Hashing], **options: Unpack[Options]
) -> ColumnsResult:
    """Privatizes columns of a file or data set in one pass, each by its own table, in constant memory.

    Arguments:
        source: a file (Parquet, CSV, Arrow IPC, ORC, JSON lines by its ending), "-" for CSV on standard input, a folder
            of such files, a glob, or an address of any of these in a store (`s3://bucket/key`).
        out: .parquet, .csv, .csv.gz, "-" for CSV on standard output; or a folder (a name that ends in "/", or has no
            extension), which gets one part per block of rows and can be resumed.
        mechanisms: column -> its table. Every column draws from a keystream of its own.
        options: see `Settings`.

    Raises:
        ParameterError: missing, empty or non-numeric column, a missing value under "error" (naming its row), a value
            out of range under "error", an existing `out`, an unknown option, a resumed run that is another one.
        FileFormatError: a damaged source, or files that do not fit together.
        OSError: reading or writing failed; `out` is as it was, a folder holds whole parts and can be resumed.

    Guarantees:
        A file `out` appears whole or not at all; so does each part of a folder, and its manifest last.
        Rows keep their order; each value is used for exactly one report in the output, interruptions or not.
        Without `keep`, nothing of the source but one code per row and column reaches a finished `out`.
        The claim is that of a whole record: all its reports together. A seeded draw has none, neither in the result
        nor in the output, and both say that it was seeded.
    """
    chosen = Settings(**options)
    work = plan(
        mechanisms,
        keep=chosen.keep,
        missing=chosen.missing,
        on_out_of_range=chosen.on_out_of_range,
        memo=chosen.memo,
        rng=chosen.rng,
    )
    files = find_files(source)
    _keep_apart(source, out)
    if is_folder(out):
        return Run(work=work, files=tuple(files), out=Path(out), settings=chosen).execute()
    _check_one_file(files, out, chosen)
    return _one_file(work, files, out, chosen)


def _keep_apart(source: AnyPath, out: AnyPath) -> None:
    """Refuses an output among its own sources: a later run would take reports for data."""
    if os.fspath(out) != "-" and Path(source).is_dir() and Path(out).resolve().is_relative_to(Path(source).resolve()):
        raise ParameterError("out", os.fspath(out), f"lies inside the source {os.fspath(source)}; name another place")


def _check_one_file(files: Sequence[SourceFile], out: AnyPath, chosen: Settings) -> None:
    if columns.is_remote(os.fspath(out)):
        raise ParameterError(
            "out", os.fspath(out), "reports are written to this machine, whole or not at all; copy them"
        )
    if file_kind(out, parameter="out", written=True) != "parquet" and chosen.record_counts:
        raise ParameterError("record_counts", True, "a CSV of reports has no place for counts; write Parquet")
    if chosen.resume:
        raise ParameterError("resume", True, "a file is written whole or not at all; a folder (name/) can be resumed")
    if chosen.engine == "ray":
        raise ParameterError("engine", "ray", "writes a folder of parts; end the name of the output with /")
    if os.fspath(out) == "-" or not Path(out).exists():
        return
    if any(Path(file.path).exists() and Path(out).samefile(file.path) for file in files):
        raise ParameterError("out", os.fspath(out), "is the source itself; name another file")


# One file ----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class _Read:
    """A batch of values and where it stands: index in the run, rows before it in its file, fraction read."""

    batch: pa.RecordBatch
    first: int
    before: int
    file: SourceFile
    done: float


def _one_file(work: Plan, files: Sequence[SourceFile], out: AnyPath, chosen: Settings) -> ColumnsResult:
    started, tally = time.perf_counter(), Tally()
    # A thread that waits for a terminal could not be interrupted.
    several = chosen.workers > 1 and files[0].path != "-"
    with ThreadPoolExecutor(max_workers=2) as pool:
        stage = partial(ahead, pool) if several else iter
        coded = stage(_code(work, stage(_read(work, files)), tally, len(files)))
        charged = _write(work, coded, files, out, chosen, tally)
    return replace(result_of(work, tally, out=out, seconds=time.perf_counter() - started), charged=charged)


def _write(
    work: Plan,
    coded: Iterator[tuple[pa.RecordBatch, float]],
    files: Sequence[SourceFile],
    out: AnyPath,
    chosen: Settings,
    tally: Tally,
) -> Charged | None:
    """Charges the run and writes its reports; returns what was charged."""
    first = _first(coded, work.columns[0], files, tally)
    if os.fspath(out) != "-":
        refuse_existing(out, overwrite=chosen.overwrite)  # a run that cannot be written is not charged
    run, source = work.new_run(), fingerprint(chosen, files)
    charged = charge(work, chosen, files=files, run=run, source=source)
    memoised = work.memo is not None  # the same value gives the same report: such reports have no run
    with open_reports(
        out,
        schema=first[0].schema,
        reports=work.mechanisms,
        seeded=work.seeded,
        memoised=memoised,
        run=None if memoised else run,
        source=None if memoised else source,
        overwrite=chosen.overwrite,
    ) as writer:
        for batch, done in chain([first], coded):
            writer.write(batch)
            chosen.tell(tally.rows, share=done)
        writer.close(tally.as_dict() if chosen.record_counts else None)
    return charged


def _read(work: Plan, files: Sequence[SourceFile]) -> Iterator[_Read]:
    rows = 0
    for i, file in enumerate(files):
        before = 0
        with open_file(file, numeric=work.columns, extra=work.extra, labels=work.labels) as opened:
            for batch in opened.batches():
                done = (i + opened.reader.done()) / len(files)
                yield _Read(batch=batch, first=rows, before=before, file=file, done=done)
                rows, before = rows + batch.num_rows, before + batch.num_rows


def _code(work: Plan, reads: Iterator[_Read], tally: Tally, files: int) -> Iterator[tuple[pa.RecordBatch, float]]:
    schema = None
    for read in reads:
        where = f" of {read.file.name}" if files > 1 else ""
        batch = work.coded(read.batch, first=read.first, tally=tally, offset=read.before - read.first, where=where)
        schema = schema or batch.schema
        if batch.schema != schema:
            odd = next(field for field in batch.schema if field != schema.field(field.name))
            was = schema.field(odd.name).type
            raise FileFormatError(f"{read.file.path}: column {odd.name} holds {odd.type}, in files before it {was}")
        yield batch, read.done


def _first(
    coded: Iterator[tuple[pa.RecordBatch, float]], column: str, files: Sequence[SourceFile], tally: Tally
) -> tuple[pa.RecordBatch, float]:
    """The first batch with reports in it; before it nothing is written."""
    for batch, done in coded:
        if batch.num_rows:
            return batch, done
    name = "standard input" if files[0].path == "-" else files[0].path
    raise tally.nothing(column, name if len(files) == 1 else f"{len(files)} files")


def ahead(pool: Executor, items: Iterator[T]) -> Iterator[T]:
    """The same items, the next one being made by a thread of the pool while this one is worked on.

    The pool is the caller's: a generator that an error leaves unfinished is closed by the collector of garbage, in any
    thread and at any moment, even while that thread holds the lock that the end of a pool waits for.
    """
    pending = pool.submit(next, items, None)
    while (item := pending.result()) is not None:
        pending = pool.submit(next, items, None)
        yield item
