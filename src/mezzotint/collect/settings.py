"""The options of a run."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, final

import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.collect.memo import Memo
from mezzotint.collect.sources import BLOCK_ROWS, SourceFile, open_file
from mezzotint.core.errors import ParameterError
from mezzotint.core.kernels import usable_cores
from mezzotint.privacy import Ledger
from mezzotint.privacy.ledger import Charge
from mezzotint.privacy.prove import report_claim

if TYPE_CHECKING:
    from mezzotint.collect.drawing import Plan

compute: Any = pc  # its functions are made at import time, unseen by type checkers

Progress = Callable[[float | None, int], None]
"""Called after each batch with the fraction done (None when unknown) and the rows so far."""


class Options(TypedDict, total=False):
    """Names and types of the options; `Settings` says what they do."""

    keep: Sequence[str]
    missing: Literal["error", "drop"]
    on_out_of_range: Literal["clip", "error"]
    record_counts: bool
    overwrite: bool
    resume: bool
    memo: Memo | None
    engine: Literal["local", "ray"]
    address: str | None
    threads: int | None
    block_rows: int
    rng: Any
    progress: Progress | None
    ledger: str | os.PathLike[str] | Ledger | None
    budget: float | None
    people: str | None


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """How `privatize` and `privatize_columns` work.

    Arguments:
        keep: other columns to copy, also those spelled by folders (`day=7/`). They are published as they are.
        missing: what a null or NaN does: "error", or "drop" its row (any column's does). It is never filled in.
        on_out_of_range: "clip", or "error".
        record_counts: put the clipped and missing counts into the file's metadata (Parquet only; not private).
        overwrite: False refuses an existing `out`. Folders are never overwritten.
        resume: go on with the unfinished run in the folder `out`; a new run where there is none.
        memo: same user and value, same report (`Memo`); None for a fresh draw per row.
        engine: "local", or "ray": a Ray cluster works on the blocks, and `out` is a folder that all its machines see.
        address: of the Ray cluster; None for the one that this process is connected to, or that RAY_ADDRESS names, else
            one started on this machine and stopped at the end.
        threads: at most this many on this machine; None for as many as the process may use.
        block_rows: least rows of a part of a folder, where its file has as many; row groups are never cut.
        rng: None for the cryptographic generator; a seed or numpy Generator is reproducible and NOT private.
        progress: told how far it is.
        ledger: file of a `privacy.Ledger`, or one: the claim is charged to everybody before anything is written. A
            folder's run is charged once, however often it is resumed; privatizing the data again is another charge.
        budget: epsilon that everybody's charges in the ledger may not exceed together; None charges without asking.
        people: column of ids: the ledger charges each person for the rows that are theirs, instead of everybody for
            one. It is read before anything is drawn, and not copied; the ledger names the ids, so keep it as safe.

    Raises:
        ParameterError: an option that cannot be.
    """

    keep: Sequence[str] = ()
    missing: Literal["error", "drop"] = "error"
    on_out_of_range: Literal["clip", "error"] = "clip"
    record_counts: bool = False
    overwrite: bool = False
    resume: bool = False
    memo: Memo | None = None
    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    threads: int | None = None
    block_rows: int = BLOCK_ROWS
    rng: Any = None
    progress: Progress | None = None
    ledger: str | os.PathLike[str] | Ledger | None = None
    budget: float | None = None
    people: str | None = None

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray"):
            raise ParameterError("engine", self.engine, 'use "local" or "ray"')
        if self.address is not None and self.engine != "ray":
            raise ParameterError(
                "address", self.address, 'is that of a Ray cluster; choose engine="ray" (--engine ray)'
            )
        if self.threads is not None and self.threads < 1:
            raise ParameterError("threads", self.threads, "need at least one thread; None uses all")
        if self.budget is not None and self.ledger is None:
            raise ParameterError("budget", self.budget, "needs the ledger that knows what was spent (--ledger)")
        if self.people is not None and self.ledger is None:
            raise ParameterError("people", self.people, "says whom the ledger charges; name it (--ledger)")
        if self.ledger is not None and self.rng is not None:
            raise ParameterError("ledger", str(self.ledger), "a seeded draw is not private and has no price")
        if self.block_rows < 1:
            raise ParameterError("block_rows", self.block_rows, "a block has at least one row")

    @property
    def workers(self) -> int:
        """Threads to use on this machine."""
        return self.threads or usable_cores()


def charge(work: Plan, chosen: Settings, *, files: Sequence[SourceFile], run: str, once: bool = False) -> None:
    """Charges a run to the ledger of its settings, BEFORE anything is written; nothing where there is none.

    Arguments:
        files: the source.
        run: its name.
        once: the run's parts are the same bits whenever it is resumed: it pays once.

    Raises:
        BudgetError: the claim does not fit the budget; nothing was charged or written.
        ParameterError: a row without the id of a person.
    """
    if chosen.ledger is None:
        return
    ledger = chosen.ledger if isinstance(chosen.ledger, Ledger) else Ledger(chosen.ledger)
    fingerprint = hashlib.sha256(b"mezzotint run " + run.encode()).hexdigest() if once else ""
    claim, identity = report_claim(work.mechanisms), f"privatize {run}"
    if chosen.people is None:
        releases = [Charge.of(claim, identity=identity, fingerprint=fingerprint)]
    else:
        priced = Charge.of(claim, identity=identity, fingerprint=fingerprint)
        # Reports of one person's rows add up; the product is rounded up.
        releases = [
            replace(
                priced,
                identity=f"{identity} of {person}",
                client=person,
                epsilon=priced.epsilon if rows == 1 else math.nextafter(rows * priced.epsilon, math.inf),
            )
            for person, rows in rows_of_people(files, chosen.people).items()
        ]
    budget = math.inf if chosen.budget is None else chosen.budget
    if chosen.budget is None and len(releases) == 1:
        ledger.charge(releases[0])
    else:
        ledger.reserve_all(releases, budget=(budget, 0.0))


def rows_of_people(files: Sequence[SourceFile], column: str) -> dict[str, int]:
    """How many rows of a data set each person has, by the ids of a column; raises ParameterError for a missing one."""
    found: Counter[str] = Counter()
    for file in files:
        if file.path == "-":
            raise ParameterError("people", column, "is read before the rows are; name a file, not standard input")
        rows = 0
        with open_file(file, numeric=(), extra={column: "people"}) as opened:
            for batch in opened.batches():
                counted = compute.value_counts(compute.cast(batch.column(0), pa.string()))
                for one in counted.to_pylist():
                    if one["values"] is None:
                        raise ParameterError("people", column, f"has no id in {file.name}, after data row {rows}")
                    found[one["values"]] += one["counts"]
                rows += batch.num_rows
    return dict(found)
