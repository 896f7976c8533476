"""What a run returns."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import final

from mezzotint.collect.charging import Charged
from mezzotint.collect.drawing import Plan, Tally
from mezzotint.collect.reports import code_field
from mezzotint.core.records import Record
from mezzotint.privacy.claim import Claim, Claimed
from mezzotint.privacy.prove import report_claim

RAW_COUNTS_REMARK = "these counts were computed on the raw data and are not private; do not publish them"


class Seen(Claimed):
    """Base of what a run wrote and saw: it is shown with the remark that the raw counts need."""

    beside = ("remark",)
    remark = RAW_COUNTS_REMARK


@final
@dataclass(frozen=True, kw_only=True)
class ColumnResult(Record):
    """What became of one column.

    Arguments:
        column, field: the input column, and the field of the output that holds its codes.
        below, above: inputs clipped to lower and upper. Counted on raw data: not private.
        epsilon: pure epsilon of one report, rounded up; None when the draw was seeded.
        bits: bits of one report.
        sha256: hash of the table used.
    """

    column: str
    field: str
    below: int
    above: int
    epsilon: float | None = None
    bits: int
    sha256: str


@final
@dataclass(frozen=True, kw_only=True)
class ColumnsResult(Seen):
    """What a run over several columns wrote, and what it saw.

    Arguments:
        out: the file or folder written.
        columns: one entry per column.
        claim: what one record pays for all its reports, however often the run was interrupted; None when the draw was
            seeded.
        reports: rows in the output.
        missing: rows dropped because a value was missing. Counted on raw data; who is missing is visible.
        seeded: True when the draw was reproducible and therefore NOT private.
        seconds: wall time.
        blocks, resumed: parts of a folder, and how many of them were there before this run began; `missing` and the
            clipped inputs of those are not counted here.
        charged: what the ledger was charged; None without one, and where a finished run had nothing left to do.
    """

    out: str
    columns: tuple[ColumnResult, ...]
    claim: Claim | None
    reports: int
    missing: int
    seeded: bool
    seconds: float
    blocks: int = 1
    resumed: int = 0
    charged: Charged | None = None


@final
@dataclass(frozen=True, kw_only=True)
class PrivatizeResult(Seen):
    """What `privatize` wrote, and what it saw.

    Arguments:
        column, field: the input column, and the field of the output that holds its codes.
        out: the file or folder written.
        reports: rows in the output, one report each.
        below, above: inputs clipped to lower and upper. Counted on raw data: not private.
        missing: rows dropped because the value was missing. Counted on raw data; who is missing is visible to whoever
            sees the number of reports.
        claim: what one record pays; None when the draw was seeded.
        bits: bits of one report.
        sha256: hash of the table used.
        seeded: True when the draw was reproducible and therefore NOT private.
        seconds: wall time.
        blocks, resumed, charged: as in `ColumnsResult`.
    """

    column: str
    field: str
    out: str
    reports: int
    below: int
    above: int
    missing: int
    claim: Claim | None
    bits: int
    sha256: str
    seeded: bool
    seconds: float
    blocks: int = 1
    resumed: int = 0
    charged: Charged | None = None


def result_of(work: Plan, tally: Tally, *, out: str | os.PathLike[str], seconds: float) -> ColumnsResult:
    """The result of a run that wrote all its output at once."""
    claim = report_claim(work.mechanisms)
    seeded = work.seeded
    columns = tuple(
        ColumnResult(
            column=column,
            field=code_field(column),
            below=tally.below.get(column, 0),
            above=tally.above.get(column, 0),
            epsilon=None if seeded else epsilon,
            bits=work.mechanisms[column].bits,
            sha256=work.mechanisms[column].sha256,
        )
        for column, epsilon in claim.parts
    )
    return ColumnsResult(
        out=os.fspath(out),
        columns=columns,
        claim=None if seeded else claim,
        reports=tally.reports,
        missing=tally.missing,
        seeded=seeded,
        seconds=seconds,
    )


def of_one_column(result: ColumnsResult) -> PrivatizeResult:
    """The same, for a run over one column."""
    one = asdict(result.columns[0])
    del one["epsilon"]
    shared = ("out", "claim", "reports", "missing", "seeded", "seconds", "blocks", "resumed", "charged")
    return PrivatizeResult(**one, **{name: getattr(result, name) for name in shared})
