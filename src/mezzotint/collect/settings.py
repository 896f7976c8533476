"""The options of a run."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, final

import numpy as np

from mezzotint.collect.memo import Memo
from mezzotint.collect.sources import BLOCK_ROWS
from mezzotint.core.errors import ParameterError
from mezzotint.core.kernels import usable_cores
from mezzotint.core.records import Progress
from mezzotint.privacy import Ledger


class Options(TypedDict, total=False):
    """Names and types of the options, for type checkers, to which keywords are a TypedDict or nothing.

    `Settings` says what they do; a test holds the two together.
    """

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
    rng: int | np.random.Generator | None
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
        progress: called as progress(done, total) with rows; the total is estimated from the share of the source that
            is read, and inf where that is not known.
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
    rng: int | np.random.Generator | None = None
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
            raise ParameterError("threads", self.threads, "need at least one thread; without it all are used")
        if self.budget is not None and self.ledger is None:
            raise ParameterError("budget", self.budget, "needs the ledger that knows what was spent (--ledger)")
        if self.people is not None and self.ledger is None:
            raise ParameterError("people", self.people, "says whom the ledger charges; name it (--ledger)")
        if self.ledger is not None and self.rng is not None:
            raise ParameterError("ledger", str(self.ledger), "a seeded draw is not private and has no price")
        if self.block_rows < 1:
            raise ParameterError("block_rows", self.block_rows, "a block has at least one row")

    def tell(self, rows: int, *, share: float) -> None:
        """Tells `progress` that so many rows, this share of the source, are done; a share of 0 is an unknown one."""
        if self.progress is not None:
            self.progress(rows, rows / share if share else math.inf)

    @property
    def workers(self) -> int:
        """Threads to use on this machine."""
        return self.threads or usable_cores()
