"""Options of `mezzotint estimate`, and what every kind of estimate writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, final

from mezzotint.cli import common, tables
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, argument, option
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Json, JsonObject

WHAT, INTERVALS, REPORTS = "What to estimate", "Intervals", "Reports"
GROUPS, DOMAIN, WORK = "Groups and weights", "Large domains", "Work"


@final
@dataclass(frozen=True, kw_only=True)
class EstimateOptions:
    """Options of the verb."""

    sources: Annotated[
        list[str], argument("Files, folders, globs, counts (.json); - is stdin (CSV).")
    ]
    histogram: Annotated[
        str | None, option("Shares of bins: their number [10], or edges.", panel=WHAT)
    ] = None
    quantiles: Annotated[
        str | None, option("Of these probabilities, or of five without any.", panel=WHAT)
    ] = None
    above: Annotated[
        str | None, option("Shares of inputs above these values: 140,300.", panel=WHAT)
    ] = None
    confidence: Annotated[
        float, option("Confidence of an interval, in (0, 1).", panel=INTERVALS)
    ] = 0.95
    method: Annotated[
        Literal["asymptotic", "safe"], option("Validity; safe at any number:", panel=INTERVALS)
    ] = "asymptotic"
    simultaneous: Annotated[
        bool, option("Make all intervals hold at once.", "--simultaneous", panel=INTERVALS)
    ] = False
    column: Annotated[
        list[str] | None, option("Column, or its codes; two are estimated jointly.", panel=REPORTS)
    ] = None
    mechanism: Annotated[
        Path | None, option("For codes whose file does not carry one.", panel=REPORTS)
    ] = None
    allow_seeded: Annotated[
        bool, option("Accept seeded reports: NOT PRIVATE.", "--allow-seeded", panel=REPORTS)
    ] = False
    by: Annotated[
        list[str] | None, option("Kept column: one estimate a value; repeatable.", panel=GROUPS)
    ] = None
    against: Annotated[
        str | None, option("Also the difference of each group from this.", panel=GROUPS)
    ] = None
    same_people: Annotated[
        bool, option("Groups compared are of the same people.", "--same-people", panel=GROUPS)
    ] = False
    weights: Annotated[
        str | None, option("Kept column: 1 / probability of inclusion.", panel=GROUPS)
    ] = None
    sizes: Annotated[
        str | None, option("Sizes of the strata, as in a=100,b=250.", panel=GROUPS)
    ] = None
    domain: Annotated[
        Path | None, option("List of privatize --domain: the most frequent.", panel=DOMAIN)
    ] = None
    top: Annotated[int | None, option("How many of them; by default 20.", panel=DOMAIN)] = None
    ledger: Annotated[
        Path | None,
        option("Ledger of the runs: what people spent, who is in several.", panel=REPORTS),
    ] = None
    engine: Annotated[Literal["local", "ray"], option("Where it runs:", panel=WORK)] = "local"
    address: Annotated[
        str | None, option("Of a Ray cluster; by default this machine.", panel=WORK)
    ] = None
    save_counts: Annotated[
        Path | None, option("Write the counts per code (.json).", panel=OUTPUT)
    ] = None
    out: Annotated[Path | None, option("Write a table (.csv, .parquet, .md).", panel=OUTPUT)] = None
    overwrite: Overwrite = False
    as_json: AsJson = False

    @property
    def grouped(self) -> bool:
        """Whether reports are estimated by groups, or with weights."""
        return bool(self.by) or self.weights is not None

    @property
    def columns(self) -> list[str]:
        """Columns of codes that are named."""
        return self.column or []

    @property
    def first_column(self) -> str | None:
        """The column of codes; None for the only one."""
        if not self.columns:
            return None
        return self.columns[0]

    @property
    def table(self) -> Mechanism | None:
        """The table that was named; None for that of each file."""
        if self.mechanism is None:
            return None
        return common.load_mechanism(self.mechanism)

    @property
    def questions(self) -> JsonObject:
        """Shares and quantiles that were asked for, as the library takes them."""
        questions: JsonObject = {}
        if self.histogram is not None:
            edges = common.parse_numbers(self.histogram, parameter="histogram")
            questions["histogram"] = edges
            if len(edges) == 1 and edges[0] == round(edges[0]):
                questions["histogram"] = int(edges[0])
        if self.quantiles is not None:
            questions["quantiles"] = common.parse_numbers(self.quantiles, parameter="quantiles")
        if self.above is not None:
            questions["above"] = common.parse_numbers(self.above, parameter="above")
        return questions


def write_rows(rows: Sequence[Json], options: EstimateOptions) -> None:
    """Write the estimates as a table, where that was asked for."""
    if options.out is not None:
        tables.write_table(rows, options.out, overwrite=options.overwrite, parameter="out")
