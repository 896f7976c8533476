"""`mezzotint estimate`: the mean or the frequencies of one column; two columns; a large domain."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

import mezzotint as mz
from mezzotint.cli import common, console, estimate_groups, progress, tables
from mezzotint.cli.estimate_options import EstimateOptions, write_rows
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, below, number
from mezzotint.core.table import OTHER
from mezzotint.report.contents import interval_headings

if TYPE_CHECKING:
    from mezzotint.collect.pairs import PairCounts
    from mezzotint.collect.reports import Limit

EXAMPLE = "mezzotint estimate reports.parquet --histogram --quantiles --json"

OPTIONAL_VALUES = {"--histogram": "10", "--quantiles": "0.05,0.25,0.5,0.75,0.95"}
"""Options that may stand without a value, and what they mean then."""

COUNTS_ENDING = ".json"
"""Of the names of saved counts."""

TOP = 20
"""Categories of a large domain that are listed where no number is given."""

WIDE = 0.2
"""Total width of the shares, or mean width of the quantiles relative to the range, that is worth a
remark.
"""

CELLS = 16
"""Cells of the table suggested for quantiles."""


def command(options: EstimateOptions) -> None:
    """Estimate the mean behind private reports, with an interval; also variance, histogram and
    quantiles.
    """
    _refuse_mixtures(options)
    common.refuse_outputs(".json", overwrite=options.overwrite, save_counts=options.save_counts)
    common.refuse_outputs(*tables.TABLE_ENDINGS, overwrite=options.overwrite, out=options.out)
    if options.domain is not None:
        _show_frequent(options, options.domain)
    elif len(options.columns) > 1:
        _show_two_columns(options)
    elif options.grouped:
        note_row_claim(options.sources)
        estimate_groups.show(options)
    else:
        _show_one_column(options)


def _refuse_mixtures(options: EstimateOptions) -> None:
    """Refuse options that estimates by groups, with weights, of large domains or of two columns
    would ignore.
    """
    for option_name, value in (("against", options.against), ("sizes", options.sizes)):
        if value is not None and not options.by:
            raise ParameterError(option_name, value, "needs groups; name their column with --by")
    if options.top is not None and options.domain is None:
        raise ParameterError("top", options.top, "this option needs --domain")
    pair = len(options.columns) > 1
    if options.domain is None and not pair and not options.grouped:
        return
    ignored: JsonObject = {"save_counts": options.save_counts, "address": options.address}
    ignored["ledger"] = options.ledger
    ignored["method"] = options.method != "asymptotic" and options.method
    ignored["engine"] = options.engine != "local" and options.engine
    if not options.grouped:
        ignored |= {"histogram": options.histogram, "quantiles": options.quantiles}
        ignored |= {"above": options.above, "mechanism": options.mechanism}
    if options.domain is not None:
        ignored["simultaneous"] = options.simultaneous  # its statements hold at once anyway
    remedy = f"does not go with {_beside(options)}; estimate one column or one group by itself"
    common.refuse_given(ignored, remedy)
    if options.domain is None and pair and options.grouped:
        raise ParameterError(
            "column", ", ".join(options.columns), "give one column at a time with --by or --weights"
        )


def _beside(options: EstimateOptions) -> str:
    """What others do not go with, as it is typed."""
    if options.domain is not None:
        return "--domain"
    if options.by:
        return "--by"
    if options.weights:
        return "--weights"
    return "two columns"


# One column --------------------------------------------------------------------------------------


def _show_one_column(options: EstimateOptions) -> None:
    """Prints the mean or the frequencies, and the other estimates requested."""
    from mezzotint.collect.provenance import SAME_PEOPLE

    counts = _counts(options)
    spending = None
    if options.ledger is not None:
        spending = _spending(counts, options.ledger)
    all_different = spending is not None and spending.shared == 0
    if options.save_counts is not None:
        mz.collect.save_counts(counts, options.save_counts, overwrite=options.overwrite)
    result = mz.collect.estimate(
        counts,
        confidence=options.confidence,
        method=options.method,
        simultaneous=options.simultaneous,
        allow_seeded=options.allow_seeded,
        **options.questions,
    )
    if all_different:
        others = tuple(note for note in result.notes if note != SAME_PEOPLE)
        result = replace(result, notes=others)
    console.warn_each(result.notes)
    write_rows(result._rows(), options)
    row_claim = note_row_claim(options.sources)
    json_fields = result.as_dict()
    if row_claim is not None:
        json_fields["epsilon_of_row"] = row_claim.epsilon
    if spending is not None:
        json_fields["epsilon_of_most_charged_person"] = spending.most
        json_fields["people_in_several_runs"] = spending.shared
    console.show(json_fields, options.as_json, lambda: _picture(result, counts.mechanism))


def _spending(counts: mz.collect.CodeCounts, ledger: Path) -> mz.collect.Spending:
    """What the ledger of the runs says of their people, told beside the estimate."""
    if not ledger.is_file():
        raise ParameterError("ledger", str(ledger), "no such file; check the path")
    spending = mz.collect.spending_of(counts, ledger)
    for note in spending.notes:
        console.note(note)
    return spending


def _report_files(sources: list[str]) -> list[str]:
    """Sources that are reports, not saved counts."""
    return [source for source in sources if not source.endswith(COUNTS_ENDING)]


def _note_limits(sources: list[str]) -> None:
    """Says whether rows or people are estimated, where people were charged for their own rows."""
    from mezzotint.collect.reports import limits_of

    limits: set[Limit] = set()
    for source in _report_files(sources):
        limits.update(limits_of(source))
    for limit in sorted(limits, key=str):
        console.note(limit.note)


def note_row_claim(sources: list[str]) -> mz.privacy.Claim | None:
    """The claim about a complete row, told beside the estimate of one of its columns."""
    from mezzotint.collect.counts import COUNTS_REMARK
    from mezzotint.collect.reports import row_claim

    _note_limits(sources)
    if len(_report_files(sources)) < len(sources):
        console.note(COUNTS_REMARK)
    claims = []
    for source in _report_files(sources):
        claim = row_claim(source)
        if claim is not None:
            claims.append(claim)
    if not claims:
        return None
    costliest = max(claims, key=lambda claim: claim.epsilon)
    console.note(
        "a complete row of these reports, all columns together, costs epsilon "
        f"{above(costliest.epsilon)}; what a person was charged in all is in the ledger (mezzotint "
        "ledger FILE)"
    )
    return costliest


def _counts(options: EstimateOptions) -> mz.collect.CodeCounts:
    """The counts of all sources together."""
    table = options.table
    counted = []
    with progress.bar("counting", unit="rows") as report_progress:
        for source in options.sources:
            if source.endswith(COUNTS_ENDING):
                counted.append(mz.collect.load_counts(source))
                continue
            counted.append(
                mz.collect.read_counts(
                    source,
                    column=options.first_column,
                    mechanism=table,
                    engine=options.engine,
                    address=options.address,
                    progress=report_progress,
                )
            )
    return reduce(lambda counts, more: counts.merge(more), counted)


def _picture(
    result: mz.collect.Estimate | mz.collect.Frequencies, mechanism: Mechanism
) -> list[RenderableType]:
    title = f"{result.n:,} reports, {common.cost_of(result.claim, result.seeded)}"
    if isinstance(result, mz.collect.Frequencies):
        return _frequencies(result, title)
    table_rows = []
    for quantity, interval in result.intervals.items():
        left_open = ""
        if interval.identified is not None:
            ends = dict.fromkeys(number(end, 4) for end in interval.identified)
            if len(ends) > 1:
                left_open = " .. ".join(ends)
        numbers = [number(end) for end in interval.ends.values()]
        table_rows.append((quantity, *numbers, left_open))
    columns = (
        "of the clipped inputs",
        "estimate",
        *interval_headings(result.confidence),
        "left open by the table",
    )
    table = tables.TerminalTable(columns, table_rows, title=title)
    return [table, _split(result), *_blame(result, mechanism)]


def _frequencies(result: mz.collect.Frequencies, title: str) -> list[RenderableType]:
    table_rows = []
    for category, share in zip(result.categories, result.shares, strict=True):
        table_rows.append((category, f"{share.value:.4f}", *_ends(share)))
    columns = ("category", "share", *interval_headings(result.confidence))
    table = tables.TerminalTable(columns, table_rows, title=title)
    if all(share.value >= 0 for share in result.shares):
        return [table]
    return [
        table,
        "Estimates are unbiased, so sums and averages of them are right too. The share of a rare "
        "category may be estimated below 0; read that as near 0.",
    ]


def _blame(result: mz.collect.Estimate, table: Mechanism) -> list[str]:
    """Remarks where the table, not the number of reports, makes intervals wide."""
    sentences: list[str] = []
    mean = result.mean
    interval_width = mean.high - mean.low
    if mean.identified is not None:
        identified_width = mean.identified[1] - mean.identified[0]
        if identified_width >= interval_width / 4:
            sentences.append(
                "The mean is only as good as the table: its bias may reach "
                f"{number(table.max_bias, 3)}, which more reports do not reduce and the standard "
                "error leaves out. For means: mezzotint design --loss mse"
            )
    for estimands, cells, width, left_open in _widths(result, table):
        if width < WIDE or left_open < width / 2:
            continue
        epsilon = 1.0
        if result.epsilon is not None:
            epsilon = result.epsilon
        better = common.table_for_shares(epsilon, table.lower, table.upper, bins=cells)
        sentences.append(
            f"More reports of this table would hardly narrow these {estimands}: the table itself "
            "leaves them open. For a table made for them (docs/collect.md, a table for a "
            f"histogram): {better}"
        )
        break
    return sentences


def _widths(result: mz.collect.Estimate, table: Mechanism) -> list[tuple[str, int, float, float]]:
    """What was asked, cells of a table for it, width of its intervals, and the part that the table
    leaves open.
    """
    bins, quantiles = result.histogram, result.quantiles
    widths: list[tuple[str, int, float, float]] = []
    if bins is not None:
        left_open = float((bins.identified_high - bins.identified_low).sum())
        widths.append(("shares", bins.share.size, float((bins.high - bins.low).sum()), left_open))
    if quantiles is not None:
        span = (table.upper - table.lower) * len(quantiles)
        width = sum(value.high - value.low for value in quantiles.values()) / span
        left_open = 0.0
        for value in quantiles.values():
            low, high = value.identified or (value.value, value.value)
            left_open += (high - low) / span
        widths.append(("quantiles", CELLS, width, left_open))
    return widths


def _split(result: mz.collect.Estimate) -> str:
    sampling, privacy = result.sampling_error, result.privacy_error
    return (
        f"Standard error of the mean {number(result.standard_error, 4)}: sampling of the rows "
        f"contributes {number(sampling.value, 4)} ({number(sampling.low, 4)} to "
        f"{number(sampling.high, 4)}), privacy {number(privacy.value, 4)} "
        f"({number(privacy.low, 4)} to {number(privacy.high, 4)}); their squares add up."
    )


# Large domains -----------------------------------------------------------------------------------


def _show_frequent(options: EstimateOptions, domain: Path) -> None:
    """Prints the most frequent categories of a large domain."""
    top = TOP
    if options.top is not None:
        top = options.top
    counts = _hashed_counts(options, domain)
    frequent = mz.collect.heavy_hitters(
        counts, top=top, confidence=options.confidence, allow_seeded=options.allow_seeded
    )
    cost = common.cost_of(frequent.claim, frequent.seeded)
    title = f"{frequent.n:,} reports of {frequent.domain:,} categories, {cost}"
    ends = [f"{end}, all at once" for end in interval_headings(options.confidence)]
    columns = ("category", "share", *ends, "")
    table_rows = []
    for category, share, certain in zip(
        frequent.categories, frequent.shares, frequent.certain, strict=True
    ):
        remark = ""
        if certain:
            remark = f"surely among the first {top}"
        interval = (f"{share.value:.5f}", *_ends(share))
        table_rows.append((category, *interval, remark))
    table = tables.TerminalTable(columns, table_rows, left=("category", ""), title=title)
    others = f"No other category has a share above {above(frequent.unlisted_at_most)}."
    write_rows(frequent._rows(), options)
    _note_limits(options.sources)
    console.warn_each(frequent.notes)
    console.show(frequent.as_dict(), options.as_json, lambda: [table, others])


def _ends(share: mz.collect.Interval) -> tuple[str, str]:
    """Both ends of a share, rounded outwards: they hold as printed."""
    return below(share.low, 5), above(share.high, 5)


def _hashed_counts(options: EstimateOptions, domain: Path) -> Any:
    """The counts of hashed reports, of the categories in a list."""
    sources = options.sources
    if len(sources) > 1 or len(options.columns) > 1:
        remedy = "hashed reports are read from one column of one source"
        raise ParameterError("sources", ", ".join(sources), remedy)
    names = (*common.read_lines(domain, parameter="domain"), OTHER)

    def hashed(table: Mechanism) -> mz.families.HashedDomain:
        return mz.families.HashedDomain(categories=names, mechanism=table)

    with progress.busy("counting"):
        try:
            return mz.collect.read_hashed(sources[0], domain=hashed, column=options.first_column)
        except ParameterError as error:  # of the column of hashes, which nobody names
            if error.parameter != "column" or not str(error.value).endswith("_hash"):
                raise
            remedy = "not made with --domain; leave out --domain"
            raise ParameterError("sources", sources[0], remedy) from None


# Two columns -------------------------------------------------------------------------------------


def _show_two_columns(options: EstimateOptions) -> None:
    """Prints the joint estimates of two columns of the same records, according to their kinds."""
    sources, columns = options.sources, options.columns
    if len(sources) != 1 or len(columns) != 2:
        raise ParameterError("column", ", ".join(columns), "name two columns of one source")
    pairs = mz.collect.read_pairs(sources[0], columns=(columns[0], columns[1]))
    table_rows = _joint_rows(pairs, options)
    tables_by_column = dict(zip(columns, (pairs.first, pairs.second), strict=True))
    claim = None
    if not pairs.seeded:
        claim = mz.privacy.report_claim(tables_by_column)
    entries: list[JsonObject] = []
    cells = []
    for first, second, interval in table_rows:
        entries.append({columns[0]: first, columns[1]: second, **interval.as_dict()})
        numbers = [number(end, 5) for end in (interval.value, interval.low, interval.high)]
        cells.append((first, second, *numbers))
    title = f"{pairs.n:,} records, {common.cost_of(claim, pairs.seeded)}"
    headings = (*columns, "estimate", *interval_headings(options.confidence))
    table = tables.TerminalTable(headings, cells, left=columns, title=title)
    write_rows(entries, options)
    note_row_claim(sources)
    console.warn_each(pairs.provenance.notes)
    json_fields: JsonObject = {
        "n": pairs.n,
        "confidence": options.confidence,
        "simultaneous": options.simultaneous,
        "seeded": pairs.seeded,
        "notes": pairs.provenance.notes,
    }
    if claim is not None:
        json_fields |= {"epsilon": claim.epsilon, **claim.standing}
    console.show({**json_fields, "together": entries}, options.as_json, lambda: table)


def _joint_rows(
    pairs: PairCounts, options: EstimateOptions
) -> list[tuple[str, str, mz.collect.Interval]]:
    """What each estimate is of, in two words, and its interval."""
    shared_options: JsonObject = {
        "confidence": options.confidence,
        "simultaneous": options.simultaneous,
        "allow_seeded": options.allow_seeded,
    }
    first_is_categorical = pairs.first.categories is not None
    second_is_categorical = pairs.second.categories is not None
    if first_is_categorical != second_is_categorical:
        remedy = "two columns are both of numbers, or both of categories"
        raise ParameterError("column", ", ".join(options.columns), remedy)
    if second_is_categorical:
        shares = mz.collect.two_way(pairs, **shared_options)
        return [(*names, share) for names, share in shares.items()]
    relation = mz.collect.relation(pairs, **shared_options)
    table_rows = [("covariance", "", relation.covariance)]
    if relation.slope is not None:
        table_rows.append(("slope", "", relation.slope))
    return table_rows
