"""Columns of any length in, one private report per row and column out: into one file, or a folder of parts.

A folder has one part per block of rows, each whole or absent, made by a run that can be interrupted. While a run is
unfinished its folder holds a hidden record of what it works on; at the end that record, which names the source, gives
way to a manifest, which does not.

Why a resumed run releases nothing twice. A part is drawn from keys of its own (`Plan.for_block`), made in memory when
the part is begun and never written down: no keystream outlives its part, so none meets other rows. A part gets its name
only when it is whole, by a step that fails where the name is taken; rows of a named part are never drawn again. What an
interruption leaves of a part in the making has no name, and is deleted.

Blocks are worked on in threads or on a Ray cluster, where rows never pass through the driver and each block is a task.
A worker that dies has its task run again by Ray, possibly while the first attempt still lives somewhere. Attempts draw
from keys of their own, so two of them make two different sets of reports about the same rows; `PartWriter` sees to it
that one of these at most ever gets a name in the output.

Plain tasks, not Ray Data's `map_batches`: when one block fails, the threads that Ray Data left behind asked the cluster
for more after it was shut down, and Ray then ends the whole process without a word.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, final

import pyarrow as pa
import pyarrow.parquet as pq

from mezzotint.collect.columns import STANDARD, Block, Dialect, blocks_of, open_file
from mezzotint.collect.drawing import Hashing, Plan, Tally, plan
from mezzotint.collect.listing import (
    STREAM,
    AnyPath,
    FileKind,
    SourceFile,
    SourcePath,
    file_kind,
    find_files,
    is_remote,
    stamp,
)
from mezzotint.collect.people import Selection
from mezzotint.collect.results import (
    Charged,
    ColumnsResult,
    Options,
    PrivatizeResult,
    Settings,
    charge,
    check_budget,
    fingerprint,
    of_one_column,
    result_of,
    selection,
)
from mezzotint.collect.sink import Draft, ReportsWriter, check_schema, standard_output
from mezzotint.core import not_installed
from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError
from mezzotint.core.files import (
    locked,
    parse_json,
    read_object,
    refuse_existing,
    sync_folder,
    write_text,
)
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Json, JsonObject
from mezzotint.privacy.accounting import report_claim

if TYPE_CHECKING:
    import ray


T = TypeVar("T")


def privatize(
    source: SourcePath,
    out: AnyPath,
    *,
    column: str,
    mechanism: Mechanism | Hashing,
    **options: Unpack[Options],
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

    Returns: what was written: rows, clipped and missing values, and the claim.

    Example:
        >>> table = mz.families.randomized_response(lower=20, upper=700, epsilon=1.0)
        >>> with mz.datasets.flights() as path:
        ...     mz.collect.privatize(path, "out.csv", column="air_time", mechanism=table, missing="drop").reports
        327346
    """
    return of_one_column(privatize_columns(source, out, mechanisms={column: mechanism}, **options))


def privatize_columns(
    source: SourcePath,
    out: AnyPath,
    *,
    mechanisms: Mapping[str, Mechanism | Hashing],
    **options: Unpack[Options],
) -> ColumnsResult:
    """Privatizes columns of a file or data set in one pass, each by its own table, in constant memory.

    Arguments:
        source: a file (Parquet, CSV, Arrow IPC, ORC, JSON lines by its ending), "-" for CSV on standard input, a folder
            of such files, a glob, or an address of any of these in a store (`s3://bucket/key`).
        out: .parquet, .csv, .csv.gz, "-" for CSV on standard output; or a folder (a name that ends in "/", or has no
            extension), which gets one part per block of rows and can be resumed.
        mechanisms: column -> its table. Every column draws from a keystream of its own.
        options: see `Settings`.

    Returns: what was written, column by column, and the claim about one record.

    Raises:
        ParameterError: missing, empty or non-numeric column, a missing value under "error" (naming its row), a value
            out of range under "error", an existing `out`, an unknown option, a resumed run that is another one.
        FileFormatError: a damaged source, or files that do not fit together.
        OSError: reading or writing failed; `out` is as it was, a folder holds whole parts and can be resumed.

    Guarantees:
        A file `out` appears whole or not at all; so does each part of a folder, and its manifest last.
        Rows keep their order; each value is used for exactly one report in the output, interruptions or not.
        Without `keep`, nothing of the source but one code per row and column reaches a finished `out`.
        The claim is about a complete record: all its reports together. A seeded draw has none, neither in the result
        nor in the output, and both say that it was seeded.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x,y\\n" + "1,0\\n0,1\\n" * 50)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> result = mz.collect.privatize_columns("in.csv", "out.csv", mechanisms={"x": table, "y": table})
        >>> result.reports, round(result.claim.epsilon, 6)
        (100, 4.0)
    """
    chosen = Settings(**options)
    how = ("keep", "missing", "on_out_of_range", "memo", "rng")
    work, files = (
        plan(mechanisms, **{name: getattr(chosen, name) for name in how}),
        find_files(source),
    )
    _refuse_inside(source, out)
    if is_folder(out):
        return Run(work=work, files=tuple(files), out=Path(out), settings=chosen).execute()
    _check_one_file(files, out, chosen)
    return _one_file(work, files, out, chosen)


def _refuse_inside(source: SourcePath, out: AnyPath) -> None:
    """Raises ParameterError for an output inside a folder that is the source: a later run would take it for data."""
    if not isinstance(source, str | os.PathLike) or os.fspath(out) == "-":
        return
    folder = Path(source)
    if folder.is_dir() and Path(out).resolve().is_relative_to(folder.resolve()):
        remedy = f"lies inside the source {os.fspath(source)}; name another place"
        raise ParameterError("out", os.fspath(out), remedy)


def _check_one_file(files: Sequence[SourceFile], out: AnyPath, chosen: Settings) -> None:
    if is_remote(os.fspath(out)):
        raise ParameterError(
            "out",
            os.fspath(out),
            "reports are written to this machine, whole or not at all; copy them",
        )
    if file_kind(out, parameter="out", written=True) != "parquet" and chosen.record_counts:
        raise ParameterError(
            "record_counts", True, "a CSV of reports has no place for counts; write Parquet"
        )
    if chosen.resume:
        raise ParameterError(
            "resume",
            True,
            "only an output folder (NAME/) can be resumed; a single file is complete or absent",
        )
    if chosen.engine == "ray":
        raise ParameterError(
            "engine", "ray", "writes a folder of parts; end the name of the output with /"
        )
    if os.fspath(out) == "-" or not Path(out).exists():
        return
    if any(Path(file.path).exists() and Path(out).samefile(file.path) for file in files):
        raise ParameterError("out", os.fspath(out), "is the source itself; name another file")


# One file ----------------------------------------------------------------------------------------------------


def _one_file(
    work: Plan, files: Sequence[SourceFile], out: AnyPath, chosen: Settings
) -> ColumnsResult:
    started, tally = time.perf_counter(), Tally()
    kind: FileKind = file_kind(out, parameter="out", written=True)
    if kind != "stream":
        refuse_existing(out, overwrite=chosen.overwrite)
    check_budget(work, chosen)
    if files[0].path != STREAM:
        check_source(work, files, chosen, kind)
    # A thread that waits for a terminal could not be interrupted.
    several = chosen.workers > 1 and files[0].path != STREAM
    with ThreadPoolExecutor(max_workers=2) as pool:
        stage = partial(ahead, pool) if several else iter
        run = work.new_run()
        selected = selection(chosen, files, run)
        reads = stage(_read(work, files, chosen.dialect))
        coded = stage(_code(work, reads, tally, len(files), selected))
        first = _first(coded, work.columns[0], files, tally)
        check_schema(first[0].schema, kind)
        source = fingerprint(chosen, files)
        pay = partial(charge, work, chosen, files=files, run=run, source=source, selected=selected)
        with _output(out, kind, first[0].schema, work.describe(run, source), work) as output:
            charged = pay() if output.early else None
            for batch, done in chain([first], coded):
                output.writer.write(batch)
                chosen.tell(tally.rows, share=done)
            output.writer.close(tally.as_dict() if chosen.record_counts else None)
            if not output.early:
                charged = pay()
            if not output.publish(overwrite=chosen.overwrite):
                refuse_existing(out, parameter="out")
    shift = None if selected is None else selected.shift
    return replace(result_of(work, tally, out=out, started=started), charged=charged, shift=shift)


@final
@dataclass(frozen=True, kw_only=True)
class _Output:
    """An open output of one file: its writer, whether it is charged for before its first byte, and its publication."""

    writer: ReportsWriter
    early: bool
    publish: Callable[..., bool]


@contextmanager
def _output(
    out: AnyPath, kind: FileKind, schema: pa.Schema, description: str, work: Plan
) -> Iterator[_Output]:
    if kind == "stream":
        with standard_output(schema, description, work.columns) as writer:
            yield _Output(writer=writer, early=True, publish=lambda **_: True)
        return
    with (
        Draft(Path(out)) as draft,
        ReportsWriter(draft.file, kind, schema, description, work.columns) as writer,
    ):
        yield _Output(writer=writer, early=draft.hidden is not None, publish=draft.publish)


def check_source(
    work: Plan, files: Sequence[SourceFile], chosen: Settings, kind: FileKind
) -> pa.Schema:
    """The schema of the reports of a source, before any of its rows is read.

    Raises:
        ParameterError: a file without a column, or with one of a type that its use, or the output, cannot take.
        FileFormatError: a kept column that has other types in other files.
    """
    schema: pa.Schema | None = None
    names = {"numeric": work.columns, "extra": work.extra, "labels": work.labels}
    for file in files:
        with open_file(file, dialect=chosen.dialect, **names) as opened:  # type: ignore[arg-type]
            found = work.schema(opened.kinds())
        if schema is None:
            check_schema(found, kind)
            schema = found
        _require_schema(found, schema, file)
    assert schema is not None
    return schema


def _require_schema(schema: pa.Schema, expected: pa.Schema, file: SourceFile) -> None:
    if schema == expected:
        return
    odd = next(field for field in schema if field != expected.field(field.name))
    before = expected.field(odd.name).type
    words = f"column {odd.name} holds {odd.type}, in files before it {before}"
    raise FileFormatError(f"{file.path}: {words}; write the files with one type")


@final
@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Rows of a file as they were read; `first` is the number of the first one in the run, `row` in its file."""

    values: pa.RecordBatch
    file: SourceFile
    first: int
    row: int
    done: float
    markers: frozenset[str]


def _read(work: Plan, files: Sequence[SourceFile], dialect: Dialect) -> Iterator[_Batch]:
    rows = 0
    for i, file in enumerate(files):
        before = 0
        names = {"numeric": work.columns, "extra": work.extra, "labels": work.labels}
        with open_file(file, dialect=dialect, **names) as opened:  # type: ignore[arg-type]
            for values in opened.batches():
                done = (i + opened.reader.done()) / len(files)
                yield _Batch(
                    values=values,
                    file=file,
                    first=rows,
                    row=before,
                    done=done,
                    markers=opened.reader.markers,
                )
                rows, before = rows + values.num_rows, before + values.num_rows
            work.check_end(opened.reader)


def _code(
    work: Plan, reads: Iterator[_Batch], tally: Tally, files: int, selected: Selection | None
) -> Iterator[tuple[pa.RecordBatch, float]]:
    schema = None
    for batch in reads:
        where = f" of {batch.file.name}" if files > 1 else ""
        names: dict[str, Any] = {"offset": batch.row - batch.first, "where": where}
        if selected is not None:
            path, rows = str(batch.file.path), batch.values.num_rows
            names["kept"] = selected.mask(path, batch.row, rows)
        coded = work.encode(
            batch.values, first=batch.first, tally=tally, markers=batch.markers, **names
        )
        schema = schema or coded.schema
        _require_schema(coded.schema, schema, batch.file)
        yield coded, batch.done


def _first(
    coded: Iterator[tuple[pa.RecordBatch, float]],
    column: str,
    files: Sequence[SourceFile],
    tally: Tally,
) -> tuple[pa.RecordBatch, float]:
    """The first batch with reports in it; before it nothing is written."""
    for batch, done in coded:
        if batch.num_rows:
            return batch, done
    name = "standard input" if files[0].path == STREAM else files[0].path
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


# Parts of a folder -------------------------------------------------------------------------------------------------

STATE = ".mezzotint-run.json"
MANIFEST = "_mezzotint.json"
"""Readers of data sets pass over names with a leading dot or underscore."""

RUN_FORMAT = "mezzotint-run"
MANIFEST_FORMAT = "mezzotint-data-set"
VERSION = 1


def is_folder(out: str | os.PathLike[str]) -> bool:
    """Whether an output is a folder: by what is there, a final slash, or a name without an extension."""
    name = os.fspath(out)
    if is_remote(name):
        return False
    return name != "-" and (
        name.endswith(("/", os.sep)) or Path(name).is_dir() or not Path(name).suffix
    )


def part_name(index: int) -> str:
    """The file name of a part."""
    return f"part-{index:06d}.parquet"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class PartWriter:
    """The work order of a process that writes parts. It is sent whole and holds no key but a seed's or a memo's."""

    work: Plan
    folder: Path
    run: str
    source: str | None
    record_counts: bool
    dialect: Dialect = STANDARD
    selected: Selection | None = None

    def write(self, block: Block, pay: Callable[[], object] | None = None) -> Tally | None:
        """Makes the part of one block; None where it is there already, possibly since a moment ago.

        Arguments:
            pay: called before the part gets its name, if it holds reports; None where they are paid for.

        Guarantees: of any number of attempts, in whatever processes, exactly one leaves reports in the folder.
        """
        target = self.folder / part_name(block.index)
        if target.exists():
            return None
        work, tally = self.work.for_block(block.index), Tally()
        description = work.describe(f"{self.run}/{block.index}", self.source)
        names = {"numeric": work.columns, "extra": work.extra, "labels": work.labels}
        with (
            open_file(block.file, dialect=self.dialect, **names) as opened,  # type: ignore[arg-type]
            Draft(target) as draft,
            ReportsWriter(
                draft.file, "parquet", work.schema(opened.kinds()), description, work.columns
            ) as writer,
        ):
            place: dict[str, Any] = {"offset": block.offset, "where": f" of {block.file.name}"}
            for batch in opened.batches(block.groups):
                if self.selected is not None:
                    row = block.offset + tally.rows
                    place["kept"] = self.selected.mask(str(block.file.path), row, batch.num_rows)
                coded = work.encode(
                    batch, first=tally.rows, tally=tally, markers=opened.reader.markers, **place
                )
                if draft.hidden is not None and pay is not None and coded.num_rows:
                    pay()
                writer.write(coded)
            work.check_end(opened.reader)
            writer.close(tally.as_dict() if self.record_counts else None)
            if pay is not None and tally.reports:
                pay()
            return tally if draft.publish() else None


# Runs --------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """One privatization of a data set into a folder."""

    work: Plan
    files: tuple[SourceFile, ...]
    out: Path
    settings: Settings

    def execute(self) -> ColumnsResult:
        """Begins or continues the run and ends it; see `privatize_columns`."""
        if self.settings.overwrite:
            raise ParameterError(
                "overwrite", True, "a folder of reports is never overwritten; delete it yourself"
            )
        if any(file.path == "-" for file in self.files):
            raise ParameterError(
                "source", "-", "standard input cannot be read again by a resumed run; name one file"
            )
        started = time.perf_counter()
        finished = self._finished()
        if finished is not None:
            return finished
        if not self.settings.resume:  # of a run that goes on the charge knows that it is paid for
            check_budget(self.work, self.settings)
        check_source(self.work, self.files, self.settings, "parquet")
        with self._state() as state:
            blocks = blocks_of(self.files, block_rows=state["block_rows"])
            left = [block for block in blocks if not (self.out / part_name(block.index)).exists()]
            run, source = state["run"], fingerprint(self.settings, self.files)
            selected = selection(self.settings, self.files, run)
            names: dict[str, Any] = {
                "files": self.files,
                "run": run,
                "source": source,
                "selected": selected,
            }
            paid = _Once(partial(charge, self.work, self.settings, once=True, **names))
            tally = self._write(run, source, left, len(blocks), paid, selected)
            reports = self._finish(run, source, blocks, tally)
            charged = paid()
        result = result_of(self.work, tally, out=self.out, started=started)
        return replace(
            result,
            reports=reports,
            blocks=len(blocks),
            resumed=len(blocks) - len(left),
            charged=charged,
            shift=None if selected is None else selected.shift,
        )

    def _finished(self) -> ColumnsResult | None:
        """The result of a resumed run that had ended: nothing is left to do, to draw or to charge."""
        manifest = self.out / MANIFEST
        if not self.settings.resume or (self.out / STATE).exists() or not manifest.exists():
            return None
        try:
            found = read_object(manifest)
            parts, reports = int(found["parts"]), int(found["reports"])
        except (ValueError, TypeError, KeyError):
            raise FileFormatError(
                f"{manifest}: is damaged; the parts beside it may still be whole"
            ) from None
        wanted = self._manifest("", [])
        for name in ("tables", "seeded", "memoised"):
            if found.get(name) != wanted[name]:
                remedy = f"is not what the run began with: {self.out} holds a finished run; name another folder"
                raise ParameterError(name, "what was given", remedy)
        result = result_of(self.work, Tally(), out=self.out, started=time.perf_counter())
        return replace(result, reports=reports, blocks=parts, resumed=parts)

    def _write(
        self,
        run: str,
        source: str | None,
        blocks: list[Block],
        total: int,
        pay: _Once,
        selected: Selection | None,
    ) -> Tally:
        tally, before = Tally(), total - len(blocks)
        work = (
            self.work if self.work.seeded else replace(self.work, keys=(b"",) * len(self.work.keys))
        )
        counted = self.settings.record_counts
        writer = PartWriter(
            work=work,
            folder=self.out.absolute(),
            run=run,
            source=source,
            record_counts=counted,
            dialect=self.settings.dialect,
            selected=selected,
        )
        write: Callable[[Block], Tally | None] = partial(writer.write, pay=pay)
        if self.settings.engine == "ray":
            pay()  # workers elsewhere cannot: before the first of them begins
            write = writer.write
        with closing(each_block(write, blocks, self.settings)) as finished:
            for count, part in enumerate(finished, start=before + 1):
                if part is not None:
                    tally.add(part)
                self.settings.tell(tally.rows, share=count / total)
        return tally

    def _finish(self, run: str, source: str | None, blocks: list[Block], tally: Tally) -> int:
        """Replaces the record by the manifest; returns the reports in all parts."""
        sizes = [pq.read_metadata(self.out / part_name(block.index)).num_rows for block in blocks]
        if not sum(sizes):
            for name in (*(part_name(block.index) for block in blocks), STATE):
                (self.out / name).unlink(missing_ok=True)
            with suppress(OSError):  # the folder may have been there before, with more in it
                self.out.rmdir()
            raise tally.nothing(self.work.columns[0], f"{len(self.files)} files")
        if not (self.out / MANIFEST).exists():
            write_text(
                self.out / MANIFEST, json.dumps(self._manifest(run, sizes, source), indent=1) + "\n"
            )
        (self.out / STATE).unlink()
        return sum(sizes)

    def _manifest(self, run: str, sizes: list[int], source: str | None = None) -> JsonObject:
        manifest = {
            "format": MANIFEST_FORMAT,
            "version": VERSION,
            "run": run,
            **({} if source is None or self.work.memo is not None else {"source": source}),
            "reports": sum(sizes),
            "parts": len(sizes),
            "seeded": self.work.seeded,
            "memoised": self.work.memo is not None,
            "tables": {
                column: mechanism.sha256 for column, mechanism in self.work.mechanisms.items()
            },
        }
        if self.work.seeded:  # reproducible, hence not private: there is nothing to claim
            return manifest
        return {**manifest, "claim": report_claim(self.work.mechanisms).as_dict()}

    # What an unfinished run works on -------------------------------------------------------------------------

    @contextmanager
    def _state(self) -> Iterator[JsonObject]:
        """The record of this run, made or found again, and locked; checked to be that of the same run."""
        wanted, path = self._record(), self.out / STATE
        self._check_folder(path)
        fresh = not self.out.exists()
        self.out.mkdir(exist_ok=True)
        sync_folder(self.out.parent)
        if not path.exists():
            write_text(path, json.dumps(wanted))
        busy = {"parameter": "out", "busy": "is being written by another run; wait for its end"}
        # If the system has locks: whoever comes second is turned away at once.
        with (
            path.open("r+b") as handle,
            locked(handle.fileno(), self.out, wait=0.0, **busy)
            if os.name == "posix"
            else nullcontext(),
        ):
            record = self._agreed(handle, wanted)
            for left in self.out.glob(".*.partial"):
                left.unlink(missing_ok=True)
            try:
                yield record
            except BaseException:
                if not self._drawn():  # a run that drew nothing is no run
                    path.unlink(missing_ok=True)
                    if fresh:
                        with suppress(OSError):
                            self.out.rmdir()
                raise

    def _agreed(self, handle: Any, wanted: JsonObject) -> JsonObject:
        """The record in the folder, checked to be that of this run; of a run that drew nothing, this run's own."""
        path = self.out / STATE
        try:
            return _compare(_record_in(handle, path), wanted, self.out)
        except (FileFormatError, ParameterError):
            if self._drawn():
                raise
        handle.seek(0)
        handle.truncate()
        handle.write(json.dumps(wanted).encode())
        handle.flush()
        os.fsync(handle.fileno())
        return wanted

    def _drawn(self) -> bool:
        """Whether the folder holds a part."""
        return any(self.out.glob("part-*.parquet"))

    def _check_folder(self, state: Path) -> None:
        out = str(self.out)
        if self.out.exists() and not self.out.is_dir():
            raise ParameterError(
                "out", out, "is a file; end a folder's name with / or give a file an extension"
            )
        if not self.out.parent.is_dir():
            raise ParameterError(
                "out", out, f"folder {str(self.out.parent)!r} does not exist; create it first"
            )
        if state.exists():
            if self._drawn() and not self.settings.resume:
                remedy = "holds an unfinished run; continue it with resume=True (--resume), whose claim covers both"
                raise ParameterError("out", out, remedy)
            return
        if (self.out / MANIFEST).exists():
            raise ParameterError("out", out, "holds a finished run; name another folder")
        if self.out.is_dir() and any(
            not name.endswith(".partial") for name in os.listdir(self.out)
        ):
            raise ParameterError("out", out, "is a folder with other files in it; name a new one")

    def _record(self) -> JsonObject:
        work, seeds = self.work, b"".join(self.work.keys)
        memo = None if work.memo is None else [work.memo.users, _fingerprint(work.memo.key)]
        return {
            "format": RUN_FORMAT,
            "version": VERSION,
            "run": work.new_run(),
            "mechanisms": {
                column: mechanism.sha256 for column, mechanism in work.mechanisms.items()
            },
            "keep": list(work.keep),
            "rng": _fingerprint(seeds) if work.seeded else None,
            "memo": memo,
            "record_counts": self.settings.record_counts,
            "block_rows": self.settings.block_rows,
            "dialect": asdict(self.settings.dialect),
            "limit": [self.settings.charge_by, self.settings.at_most, self.settings.per],
            "source": [[file.name, *stamp(file.path)] for file in self.files],
        }


@final
class _Once:
    """A charge that several threads ask for, made once."""

    def __init__(self, charge: Callable[[], Charged | None]) -> None:
        self._charge, self._lock = charge, threading.Lock()
        self._made: list[Charged | None] = []

    def __call__(self) -> Charged | None:
        with self._lock:
            if not self._made:
                self._made.append(self._charge())
            return self._made[0]


_FREE = {"run", "block_rows"}
"""What a resumed run takes over from the record instead of having to bring it."""


def _record_in(handle: Any, path: Path) -> Json:
    try:
        return parse_json(handle.read(), name=str(path))
    except FileFormatError:
        raise FileFormatError(f"{path}: is damaged; the run cannot be continued") from None


def _compare(found: Json, wanted: JsonObject, out: Path) -> JsonObject:
    if (
        not isinstance(found, dict)
        or found.get("format") != RUN_FORMAT
        or found.get("version") != VERSION
    ):
        raise FileFormatError(
            f"{out / STATE}: is not the record of a run that this release can continue"
        )
    if not isinstance(found.get("block_rows"), int) or not isinstance(found.get("run"), str):
        raise FileFormatError(f"{out / STATE}: is damaged; the run cannot be continued")
    for name, value in wanted.items():
        if name not in _FREE and found.get(name) != value:
            what = "changed since then" if name == "source" else "is not what the run began with"
            shown = "the files" if name == "source" else "what was given"
            remedy = f"{what}: {out} holds an unfinished run; continue it as it was begun, or name another folder"
            raise ParameterError(name, shown, remedy)
    return found


def _fingerprint(key: bytes) -> str:
    # Of 32 random bytes, or of a seed, which is not secret.
    return hashlib.sha256(b"mezzotint fingerprint" + key).hexdigest()


# Workers -----------------------------------------------------------------------------------------------------------

AHEAD = 4
"""Blocks at the cluster at a time, per core."""

PATIENCE = 10.0
"""Seconds that cancelled blocks have to end."""


def each_block(
    work: Callable[[Block], T], blocks: Sequence[Block], chosen: Settings
) -> Generator[T]:
    """The results of `work` for each block, as they come; the first failure stops the rest. The caller closes it."""
    if chosen.engine == "ray":
        return on_cluster(work, blocks, chosen.address)
    return in_threads(work, blocks, chosen.workers)


def in_threads(work: Callable[[Block], T], blocks: Sequence[Block], threads: int) -> Generator[T]:
    """The same on this machine."""
    if threads == 1:
        yield from map(work, blocks)
        return
    with ThreadPoolExecutor(max_workers=threads) as pool:
        tasks = [pool.submit(work, block) for block in blocks]
        try:
            for task in as_completed(tasks):
                yield task.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def on_cluster(
    work: Callable[[Block], T], blocks: Sequence[Block], address: str | None
) -> Generator[T]:
    """The same on a cluster."""
    if importlib.util.find_spec("ray") is None:
        raise ParameterError("engine", "ray", not_installed("ray", "ray"))
    import ray

    if not blocks:
        return
    with _cluster(address):
        # As Ray Data does: a dead worker's block is begun again, however often that takes.
        remote = ray.remote(max_retries=-1)(_outcome)
        shared = ray.put(work)
        waiting = iter(blocks)
        running: list[ray.ObjectRef] = []
        try:
            while True:
                # Some wait at the cluster for each core, which also tells one that can grow to.
                room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(running)
                for block in islice(waiting, max(0, room)):
                    file = replace(
                        block.file, path=os.path.abspath(block.file.path)
                    )  # workers have another folder
                    running.append(remote.remote(shared, replace(block, file=file)))
                if not running:
                    return
                (ready, *_), running = ray.wait(running)
                outcome = ray.get(ready)
                if isinstance(outcome, MezzotintError):
                    raise outcome
                yield outcome
        finally:
            for task in running:  # nobody waits for them any more
                ray.cancel(task)
            if running:
                ray.wait(running, num_returns=len(running), timeout=PATIENCE, fetch_local=False)


def _outcome(work: Callable[[Block], T], block: Block) -> T | MezzotintError:
    """A worker's task. What the user has to mend is returned: the driver raises it as it is, not as Ray's error."""
    try:
        return work(block)
    except MezzotintError as error:
        return error


def _knock(address: str) -> None:
    """Raises ParameterError unless something listens at an address of host and port; Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto" and the like, which Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ParameterError(
            "address", address, f"no Ray cluster answers there ({error}); start it"
        ) from None


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """The cluster that this process is connected to, else the one named, else one started here and stopped after."""
    import ray

    if ray.is_initialized():
        yield
        return
    named = address or os.environ.get("RAY_ADDRESS")
    if named is not None:
        _knock(named)
    try:
        with warnings.catch_warnings():  # advice about devices, of which none are used
            warnings.simplefilter("ignore", FutureWarning)
            # Of a cluster that runs already, Ray takes no such option at all.
            board = None if named else False
            ray.init(
                address=named or "local",
                include_dashboard=board,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except ConnectionError as error:
        raise ParameterError(
            "address", str(named), f"no Ray cluster answers there ({error}); start it"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()
