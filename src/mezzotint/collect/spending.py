"""A ledger's word on the people behind reports: their charges in all, and who is in several runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import final

from mezzotint.collect.charging import run_identity
from mezzotint.collect.counts import CodeCounts
from mezzotint.core.records import Record, above
from mezzotint.privacy import Ledger


@final
@dataclass(frozen=True, kw_only=True)
class Spending(Record):
    """The people behind reports, as the ledger of their runs knows them.

    Arguments:
        most: epsilon that the most charged person of the ledger was charged in all, rounded up.
        shared: how many people gave reports to more than one of the runs; None where the ledger did
            not charge people for their own rows in each of them.

    Example:
        >>> mz.collect.Spending(most=3.5, shared=0).notes
        ('the most charged person of the ledger was charged epsilon 3.5 in all',)
    """

    most: float
    shared: int | None

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on each."""
        total = (
            f"the most charged person of the ledger was charged epsilon {above(self.most)} in all"
        )
        if not self.shared:
            return (total,)
        shared = (
            f"{self.shared:,} people are in more than one of these runs and are counted as "
            "different people; estimate each run by itself"
        )
        return total, shared


def spending_of(counts: CodeCounts, ledger: Ledger | str | os.PathLike[str]) -> Spending:
    """What the ledger of the runs behind counts says of their people.

    Arguments:
        counts: of `read_counts`.
        ledger: that the runs were charged to, or its file.

    Returns: the most that anybody was charged, and how many people are in several of the runs.

    Raises:
        FileFormatError: no ledger, or a damaged one.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x,id\\n" + "1,ann\\n0,bob\\n" * 2)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=0.5)
        >>> for week in ("a.csv", "b.csv"):
        ...     options = {"ledger": f"{week}.jsonl", "charge_by": "id"}
        ...     written = mz.collect.privatize(
        ...         "in.csv", week, column="x", mechanism=table, **options
        ...     )
        >>> mz.collect.spending_of(mz.collect.read_counts("a.csv"), "a.csv.jsonl").shared
        0
    """
    charged = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    identities = {run_identity(run) for run in counts.provenance.run_names}
    shared = (
        None if counts.provenance.memoised or not identities else charged.shared_people(identities)
    )
    return Spending(most=charged.worst().epsilon, shared=shared)
