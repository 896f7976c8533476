"""The options of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from mezzotint.collect.columns import Dialect
from mezzotint.collect.memo import Memo
from mezzotint.collect.people import Lot
from mezzotint.collect.source import BLOCK_ROWS
from mezzotint.core.arguments import check_limit
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import Progress
from mezzotint.core.sampler import usable_cores
from mezzotint.core.types import AnyPath
from mezzotint.privacy import Ledger


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Settings:
    """How `privatize` and `privatize_columns` work.

    Arguments:
        keep: other columns to copy, also those spelled by folders (`day=7/`). They are published as
            they are.
        missing: what to do about a null or NaN in any column: "error", or "drop" its row. It is
            never filled in.
        on_out_of_range: "clip", or "error".
        overwrite: False refuses an existing `out`. Folders are never overwritten.
        resume: go on with the unfinished run in the folder `out`; a new run where there is none.
        memo: same user and value, same report (`Memo`); None for a fresh draw per row.
        engine: "local", or "ray": a Ray cluster works on the blocks, and `out` is a folder that all
            its machines see.
        address: of the Ray cluster; None for the one that this process is connected to, or that
            RAY_ADDRESS names, else one started on this machine and stopped at the end.
        threads: at most this many on this machine; None for as many as the process may use.
        block_rows: least rows of a part of a folder, where its file has as many; row groups are
            never cut.
        rng: None for the cryptographic generator; a seed or numpy Generator is reproducible and NOT
            private.
        progress: called as progress(done, total) with rows; the total is estimated from the share
            of the source that is read, and inf where that is not known.
        ledger: file of a `privacy.Ledger`, or one: the claim is charged to everybody before reports
            can be read. A folder's run is charged once, however often it is resumed; privatizing
            the data again is another charge.
        budget: epsilon that everybody's charges in the ledger may not exceed together; None for no
            limit.
        charge_by: column of ids: the ledger charges each person for the rows that are theirs,
            instead of everybody for one. It is read before anything is drawn, and not copied; keep
            the ledger's key as safe as the ids.
        at_most: keep at most this many rows of each person (in each period), chosen by a keyed
            permutation of row numbers that is fresh in every run; None for all. People are charged
            for the rows kept. The claim is about replacing values: numbers, order and ids of rows
            are public. A file that is sorted by a private value voids it. Estimates are then about
            the rows kept.
        per: column of the period that `at_most` is meant for.
        lot: the question of this run, and the public lot that says whom it asks (`Lot`); None to ask
            everybody. The rows of all others are dropped, and cost them nothing: with a ledger it
            needs `charge_by`. Run each question of a lot once.
        delimiter, missing_values, decimal, backslash_is_text: how text files are spelled; see
            `columns.Dialect`.

    Raises:
        ParameterError: an option that cannot be.

    Example:
        >>> mz.collect.Settings(missing="drop", threads=2).workers
        2
    """

    keep: Sequence[str] = ()
    missing: Literal["error", "drop"] = "error"
    on_out_of_range: Literal["clip", "error"] = "clip"
    overwrite: bool = False
    resume: bool = False
    memo: Memo | None = None
    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    threads: int | None = None
    block_rows: int = BLOCK_ROWS
    rng: int | np.random.Generator | None = None
    progress: Progress | None = None
    ledger: AnyPath | Ledger | None = None
    budget: float | None = None
    charge_by: str | None = None
    at_most: int | None = None
    per: str | None = None
    lot: Lot | None = None
    delimiter: str | None = None
    missing_values: Sequence[str] | None = None
    decimal: str = "."
    backslash_is_text: bool = False

    def __post_init__(self) -> None:
        assert self.dialect is not None  # which checks its parts
        if self.address is not None and self.engine != "ray":
            raise ParameterError(
                "address",
                self.address,
                'needs engine="ray" (--engine ray)',
            )
        if self.threads is not None and self.threads < 1:
            remedy = "need at least one thread; without it all are used"
            raise ParameterError("threads", self.threads, remedy)
        if self.block_rows < 1:
            raise ParameterError(
                "block_rows",
                self.block_rows,
                "a block has at least one row",
            )
        self._check_charges()

    def _check_charges(self) -> None:
        """Raises ParameterError for options about charges that lack another one, or exclude
        each other.
        """
        for option in ("budget", "charge_by"):
            value = getattr(self, option)
            if value is not None and self.ledger is None:
                raise ParameterError(option, value, "needs a ledger; name it (--ledger)")
        if self.budget is not None:
            check_limit("budget", self.budget, "need an epsilon >= 0")
        if self.lot is not None and self.ledger is not None and self.charge_by is None:
            ids = self.lot.people
            remedy = (
                "would be charged to everybody; name the people, who pay for their question alone: "
                f"charge_by={ids!r} (--charge-by {ids})"
            )
            raise ParameterError("lot", ids, remedy)
        if self.at_most is not None and (self.charge_by is None or self.at_most < 1):
            remedy = "needs charge_by (--charge-by), and is at least 1"
            raise ParameterError("at_most", self.at_most, remedy)
        if self.per is not None and self.at_most is None:
            raise ParameterError("per", self.per, "needs at_most (--at-most)")
        if self.ledger is not None and self.rng is not None:
            remedy = "a seeded draw cannot be charged; leave one out"
            raise ParameterError("ledger", str(self.ledger), remedy)

    def report_progress(self, rows: int, *, share: float) -> None:
        """Tells `progress` how many rows, and what share of the source, are done; a share of 0
        means unknown.
        """
        total = math.inf
        if share:
            total = rows / share
        if self.progress is not None:
            self.progress(rows, total)

    @property
    def dialect(self) -> Dialect:
        """How text files are spelled."""
        markers = self.missing_values
        return Dialect(
            delimiter=self.delimiter,
            missing_values=None if markers is None else tuple(markers),
            decimal=self.decimal,
            backslash_is_text=self.backslash_is_text,
        )

    @property
    def workers(self) -> int:
        """Threads to use on this machine."""
        return self.threads or usable_cores()
