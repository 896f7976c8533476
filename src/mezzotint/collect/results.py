"""The results of runs."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Self, final

from mezzotint.collect.charging import Charged
from mezzotint.collect.encoder import COUNTED, Encoder, Tally
from mezzotint.collect.people import Lot
from mezzotint.collect.reports import code_field
from mezzotint.core.records import JsonObject, Record
from mezzotint.core.types import AnyPath
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.claim import Claim, Claimed

RAW_COUNTS_REMARK = (
    "these counts were computed on the raw data and are not private; do not publish them"
)


@final
@dataclass(frozen=True, kw_only=True)
class ColumnResult(Record):
    """The outcome of one column.

    Arguments:
        column, field: the input column, and the field of the output that holds its codes.
        below, above: inputs clipped to lower and upper. Counted on raw data: not private.
        unlisted, respelled: values that no category names, reported as `(other)`; and values that
            name a category in another spelling. Counted on raw data: not private.
        epsilon: pure epsilon of one report, rounded up; None when the draw was seeded.
        bits: bits of one report.
        sha256: hash of the table used.

    Example:
        >>> names = {"column": "x", "field": "x_code", "sha256": "2f..."}
        >>> mz.collect.ColumnResult(below=0, above=3, bits=1, **names).above
        3
    """

    column: str
    field: str
    below: int
    above: int
    unlisted: int = 0
    respelled: int = 0
    epsilon: float | None = None
    bits: int
    sha256: str


@final
@dataclass(frozen=True, kw_only=True)
class PrivatizeResult(Claimed):
    """The outcome of a run: what was written and what was seen.

    Arguments:
        out: the file or folder written.
        columns: one entry per column.
        claim: what one record pays for all its reports, however often the run was interrupted; None
            when the draw was seeded.
        reports: rows in the output.
        missing: rows dropped because a value was missing. Counted on raw data; who is missing is
            visible.
        seeded: True when the draw was reproducible and therefore NOT private.
        seconds: wall time.
        blocks, resumed: parts of a folder, and how many of them were there before this run began;
            `missing` and the clipped inputs of those are not counted here.
        unasked: rows dropped as `lot` asks their person another question. Counted on raw data: not
            private.
        beyond: other rows dropped as their person has more than `at_most`. Counted on raw data: not
            private.
        shift: how far the kept rows are from all, in total variation: times the range it bounds the
            difference of their means. Not private; None without `at_most`.
        lot: the question, and whom it asks; None for everybody.
        charged: what the ledger was charged; None without one, and where a finished run had nothing
            left to do.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x\\n" + "1\\n0\\n\\n" * 50)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> result = mz.collect.privatize(
        ...     "in.csv", "out.csv", column="x", mechanism=table, missing="drop"
        ... )
        >>> result.reports, result.missing, round(result.claim.epsilon, 6)
        (100, 50, 2.0)
    """

    beside = ("remark",)
    remark = RAW_COUNTS_REMARK

    out: str
    columns: tuple[ColumnResult, ...]
    reports: int
    missing: int
    claim: Claim | None
    seeded: bool
    seconds: float
    blocks: int = 1
    resumed: int = 0
    unasked: int = 0
    beyond: int = 0
    shift: float | None = None
    lot: Lot | None = None
    charged: Charged | None = None

    @classmethod
    def of(
        cls, encoder: Encoder, tally: Tally, *, out: AnyPath, started: float, **facts: Any
    ) -> Self:
        """The result of a run; `facts` are fields of it that only the run knows."""
        claim: Claim | None = report_claim(encoder.mechanisms)
        columns: list[ColumnResult] = []
        for column, epsilon in claim.parts:
            mechanism = encoder.mechanisms[column]
            columns.append(
                ColumnResult(
                    column=column,
                    field=code_field(column),
                    epsilon=None if encoder.seeded else epsilon,
                    bits=mechanism.bits,
                    sha256=mechanism.sha256,
                    **{count: tally.columns[column, count] for count in COUNTED},
                )
            )
        if encoder.seeded:
            claim = None
        seen: JsonObject = {
            "reports": tally.reports,
            "missing": tally.missing,
            "unasked": tally.unasked,
            "beyond": tally.beyond,
        }
        return cls(
            out=os.fspath(out),
            columns=tuple(columns),
            claim=claim,
            seeded=encoder.seeded,
            seconds=time.perf_counter() - started,
            **(seen | facts),
        )

    def _rows(self) -> list[JsonObject]:
        return [column.as_dict() for column in self.columns]
