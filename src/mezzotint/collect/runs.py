"""Columns of any length in, one private report per row and column out: into one file, or a folder
of parts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from mezzotint.collect.charging import (
    Payment,
    check_budget,
    counting,
    counts_along,
    ledger_of,
    people_along,
    refuse_ledger_as_output,
    selection_of,
)
from mezzotint.collect.encoder import Encoder, Tally
from mezzotint.collect.folders import (
    FolderRun,
    is_folder,
    origin_and_charge,
)
from mezzotint.collect.listing import (
    FileKind,
    SourcePath,
    file_kind,
    find_files,
    is_remote,
)
from mezzotint.collect.reports import describe
from mezzotint.collect.results import PrivatizeResult
from mezzotint.collect.settings import Settings
from mezzotint.collect.sink import (
    check_schema,
    check_source,
    open_output,
    require_schema,
)
from mezzotint.collect.source import Batch, Source
from mezzotint.core.arguments import check_options
from mezzotint.core.errors import ParameterError, StorageError
from mezzotint.core.files import refuse_existing, resolved
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import AnyPath
from mezzotint.privacy.people import PersonCounter

if TYPE_CHECKING:
    from mezzotint.families.hashing import HashedDomain

Item = TypeVar("Item")


def privatize(
    source: SourcePath,
    out: AnyPath,
    *,
    column: str,
    mechanism: Mechanism | HashedDomain,
    **options: Any,
) -> PrivatizeResult:
    """Privatizes one column of a file or data set into reports, in constant memory.

    Arguments:
        source, out: as `privatize_columns`. The codes go into the field `<column>_code`; the
            mechanism and its hash go along (docs/collect.md).
        column: integers, floats or decimals in data units.
        mechanism: the table; inputs are clipped to its [lower, upper]. Or a `families.hashed`
            domain, whose hashes go into the field `<column>_hash`.
        options: see `Settings`.

    Raises, Guarantees: as `privatize_columns`.

    Returns: what was written: rows, clipped and missing values, and the claim.

    Example:
        >>> table = mz.families.randomized_response(lower=20, upper=700, epsilon=1.0)
        >>> with mz.datasets.flights() as path:
        ...     result = mz.collect.privatize(
        ...         path, "out.csv", column="air_time", mechanism=table, missing="drop"
        ...     )
        >>> result.reports
        327346
    """
    check_options(options, Settings)
    return privatize_columns(source, out, mechanisms={column: mechanism}, **options)


def _check_tables(mechanisms: object) -> None:
    from mezzotint.families.hashing import HashedDomain  # slow to load

    if not isinstance(mechanisms, Mapping):
        remedy = "need a mapping of columns to their tables"
        raise ParameterError("mechanisms", type(mechanisms).__name__, remedy)
    for table in cast("Mapping[object, object]", mechanisms).values():
        if not isinstance(table, Mechanism | HashedDomain):
            remedy = "need a Mechanism or a HashedDomain"
            raise ParameterError("mechanism", type(table).__name__, remedy)


def privatize_columns(
    source: SourcePath,
    out: AnyPath,
    *,
    mechanisms: Mapping[str, Mechanism | HashedDomain],
    **options: Any,
) -> PrivatizeResult:
    """Privatizes columns of a file or data set in one pass, each by its own table, in constant
    memory.

    Arguments:
        source: a file (Parquet, CSV, Arrow IPC, ORC, JSON lines by its ending), "-" for CSV on
            standard input, a folder of such files, a glob, or an address of any of these in a store
            (`s3://bucket/key`).
        out: .parquet, .csv, .csv.gz, "-" for CSV on standard output; or a folder (a name that ends
            in "/", or has no extension), which gets one part per block of rows and can be resumed.
        mechanisms: column -> its table. Every column draws from a keystream of its own.
        options: see `Settings`.

    Returns: what was written, column by column, and the claim about one record.

    Raises:
        ParameterError: missing, empty or non-numeric column, a missing value under "error" (naming
            its row), a value out of range under "error", an existing `out`, an unknown option, a
            resumed run that is another one.
        FileFormatError: a damaged source, or files that do not fit together.
        OSError: reading or writing failed; `out` is as it was, a folder holds whole parts and can
            be resumed.

    Guarantees:
        A file `out` appears whole or not at all; so does each part of a folder, and its manifest
        last. Rows keep their order; each value is used for exactly one report in the output,
        interruptions or not. Without `keep`, nothing of the source but one code per row and column
        reaches a finished `out`.
        The claim is about a complete record: all its reports together. A seeded draw has none, and
        result and output say that it was seeded.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x,y\\n" + "1,0\\n0,1\\n" * 50)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> tables = {"x": table, "y": table}
        >>> result = mz.collect.privatize_columns("in.csv", "out.csv", mechanisms=tables)
        >>> result.reports, round(result.claim.epsilon, 6)
        (100, 4.0)
    """
    check_options(options, Settings)
    _check_tables(mechanisms)
    settings = Settings(**options)
    encoder = Encoder.of(mechanisms, settings)
    files = tuple(find_files(source))
    rows_source = Source(files=files, wanted=encoder.wanted, dialect=settings.dialect)
    _refuse_inside(source, out)
    refuse_ledger_as_output(out, settings)
    if is_folder(out):
        run = FolderRun(
            encoder=encoder,
            source=rows_source,
            out=Path(out),
            settings=settings,
        )
        return run.execute()
    _check_one_file(rows_source, out, settings)
    return _one_file(encoder, rows_source, out, settings)


def _refuse_inside(source: SourcePath, out: AnyPath) -> None:
    """Raises ParameterError for an output inside a folder that is the source: a later run would
    take it for data.
    """
    if not isinstance(source, str | os.PathLike) or os.fspath(out) == "-":
        return
    folder = Path(source)
    if folder.is_dir() and _is_inside(out, folder):
        remedy = f"lies inside the source {os.fspath(source)}; name another place"
        raise ParameterError("out", os.fspath(out), remedy)


def _is_inside(out: AnyPath, folder: Path) -> bool:
    place = resolved(out, parameter="out")
    return place.is_relative_to(resolved(folder, parameter="source"))


def _check_one_file(source: Source, out: AnyPath, settings: Settings) -> None:
    """Raises ParameterError for options that one file of reports cannot have, and for an output
    that is an input.
    """
    out_name = os.fspath(out)
    if is_remote(out_name):
        remedy = "reports are written to this machine, whole or not at all; copy them"
        raise ParameterError("out", out_name, remedy)
    if settings.resume:
        remedy = "only an output folder (NAME/) can be resumed; a single file is complete or absent"
        raise ParameterError("resume", True, remedy)
    if settings.engine == "ray":
        remedy = "writes a folder of parts; end the name of the output with /"
        raise ParameterError("engine", "ray", remedy)
    if out_name == "-" or not Path(out).exists():
        return
    for source_file in source.files:
        if Path(source_file.path).exists() and Path(out).samefile(source_file.path):
            raise ParameterError(
                "out",
                out_name,
                "is the source itself; name another file",
            )


# One file -----------------------------------------------------------------------------------------


Coded = tuple[pa.RecordBatch, float]
"""Codes, and the share of the source that was read with them."""


def _one_file(
    encoder: Encoder, source: Source, out: AnyPath, settings: Settings
) -> PrivatizeResult:
    """Privatizes into one file or standard output; nothing is charged or named before the last
    check has passed.
    """
    payment = Payment()
    with payment.remembered(settings):
        return _written(encoder, source, out, settings, payment)


def _written(
    encoder: Encoder, source: Source, out: AnyPath, settings: Settings, payment: Payment
) -> PrivatizeResult:
    started = time.perf_counter()
    file_format: FileKind = file_kind(out, parameter="out", written=True)
    target = None if file_format == "stream" else Path(out)
    if target is not None:
        refuse_existing(target, overwrite=settings.overwrite)
    check_budget(encoder, settings)
    if not source.is_stream:
        check_source(encoder, source, file_format)
    run_name = encoder.new_run()
    source = replace(source, selection=selection_of(settings, source, run_name))
    tally = Tally()
    with ExitStack() as stack, ThreadPoolExecutor(max_workers=2) as pool:
        counter = None
        if counts_along(encoder, settings, source, target):
            counter = stack.enter_context(counting(ledger_of(settings)))
        batches = _batches(source, settings, counter)
        coded = _coded(encoder, source, batches, tally, settings, pool)
        first = _first(coded, encoder.columns[0], source, tally)
        schema = first[0].schema
        check_schema(schema, file_format)
        origin, charge = origin_and_charge(encoder, source, settings, run=run_name, counter=counter)
        description = describe(encoder.mechanisms, seeded=encoder.seeded, origin=origin)
        with open_output(target, file_format, schema, description, encoder.columns) as output:
            if counter is not None and output.early:
                remedy = "has room for no file without a name any more; make some, and run again"
                raise StorageError("out", os.fspath(out), remedy)
            if output.early:
                payment.make(charge)
            for record_batch, share in chain([first], coded):
                output.writer.write(record_batch)
                settings.report_progress(tally.rows, share=share)
            output.writer.close()
            payment.make(charge)
            if not output.publish(overwrite=settings.overwrite):
                refuse_existing(out, parameter="out")
            payment.published = out
    facts = {"charged": payment.receipt(charge), "shift": source.shift, "lot": settings.lot}
    return PrivatizeResult.of(encoder, tally, out=out, started=started, **facts)


def _batches(source: Source, settings: Settings, counter: PersonCounter | None) -> Iterator[Batch]:
    """The rows of a source; with a counter their people are counted as they pass."""
    if counter is None or settings.charge_by is None:
        return source.batches()
    others = {settings.charge_by: "people", **source.wanted.others}
    both = replace(source, wanted=replace(source.wanted, others=others))
    return people_along(both.batches(), counter, settings.charge_by)


def _coded(
    encoder: Encoder,
    source: Source,
    batches: Iterator[Batch],
    tally: Tally,
    settings: Settings,
    pool: Executor,
) -> Iterator[Coded]:
    """The codes of all batches; reading and encoding go ahead in threads of the pool where there
    may be several.
    """
    # A thread that waits for a terminal could not be interrupted.
    if settings.workers == 1 or source.is_stream:
        return _encoded(encoder, batches, tally)
    return ahead(pool, _encoded(encoder, ahead(pool, batches), tally))


def _encoded(encoder: Encoder, batches: Iterator[Batch], tally: Tally) -> Iterator[Coded]:
    schema = None
    for record_batch in batches:
        coded = encoder.encode(record_batch, tally)
        schema = schema or coded.schema
        require_schema(coded.schema, schema, record_batch.file)
        yield coded, record_batch.done


def _first(coded: Iterator[Coded], column: str, source: Source, tally: Tally) -> Coded:
    """The first batch with reports in it; before it nothing is written."""
    for record_batch, done in coded:
        if record_batch.num_rows:
            return record_batch, done
    raise tally.empty_error(column, source.name)


def ahead(pool: Executor, items: Iterator[Item]) -> Iterator[Item]:
    """The same items, the next one being made by a thread of the pool while this one is worked on.

    The pool is the caller's: a generator that an error leaves unfinished is closed by the collector
    of garbage, in any thread and at any moment, even while that thread holds the lock that the end
    of a pool waits for.
    """
    pending = pool.submit(next, items, None)
    while (item := pending.result()) is not None:
        pending = pool.submit(next, items, None)
        yield item
