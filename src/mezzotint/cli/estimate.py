"""`mezzotint estimate`."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import Address, AsJson, Confidence, Options, Overwrite, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, number
from mezzotint.core.table import OTHER

EXAMPLE = "mezzotint estimate reports.parquet --histogram --quantiles --json"

_USUAL = {"method": "asymptotic", "engine": "local"}


def command(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Reports of one mechanism: files, folders, globs, counts (.json); - reads CSV from stdin."
        ),
    ],
    column: Annotated[
        list[str] | None, option("Column of codes, if several; two are estimated jointly.")
    ] = None,
    mechanism: Annotated[
        Path | None, option("Mechanism file, for codes whose file does not carry one.")
    ] = None,
    level: Confidence = 0.95,
    method: Annotated[
        str, option("Intervals: asymptotic, or safe (wider, valid at any number of reports).")
    ] = _USUAL["method"],
    histogram: Annotated[
        bool, option("Also estimate the shares of equal bins.", "--histogram")
    ] = False,
    bins: Annotated[int, option("Number of bins of the histogram.")] = 10,
    quantiles: Annotated[
        bool, option("Also estimate quantiles, with intervals.", "--quantiles")
    ] = False,
    probabilities: Annotated[
        str, option("Probabilities of the quantiles.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    save_counts: Annotated[
        Path | None, option("Also write the counts per code (.json), to add to others.")
    ] = None,
    engine: Annotated[str, option("local, or ray: count on a Ray cluster.")] = _USUAL["engine"],
    address: Address = None,
    simultaneous: Annotated[
        bool, option("Make all intervals hold simultaneously at --level.", "--simultaneous")
    ] = False,
    allow_seeded: Annotated[
        bool, option("Accept seeded reports, which are NOT PRIVATE.", "--allow-seeded")
    ] = False,
    by: Annotated[
        str | None, option("Public column kept with --keep: one estimate for each of its values.")
    ] = None,
    against: Annotated[
        str | None, option("With --by: also estimate each group's difference from this one.")
    ] = None,
    same_people: Annotated[
        bool, option("--against: the groups hold the same people.", "--same-people")
    ] = False,
    weights: Annotated[
        str | None, option("Public column of weights: 1 / probability of inclusion.")
    ] = None,
    sizes: Annotated[
        str | None, option("--by: sizes of the strata of a population, as in a=100,b=250.")
    ] = None,
    domain: Annotated[
        Path | None,
        option("List given to privatize --domain: estimate its most frequent categories."),
    ] = None,
    top: Annotated[
        int | None, option("With --domain: number of categories to list; default: 20.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Estimate the mean behind private reports, with a confidence interval; also variance, histogram and quantiles.

    SOURCES are reports of one mechanism: files (.parquet, .csv, .csv.gz), folders, or counts that --save-counts wrote.
    """
    options = dict(locals())
    _check(options)
    common.refuse_outputs(".json", overwrite=overwrite, save_counts=save_counts)
    if domain is not None:
        _hitters(options)
    elif column is not None and len(column) > 1:
        _together(sources, column, options)
    else:
        table = None if mechanism is None else common.load_mechanism(mechanism)
        of: Options = {"column": column[0] if column else None, "mechanism": table}
        (_one_column if by is None and weights is None else _by_groups)(of, options)


def _check(options: Options) -> None:
    """Refuses options that estimates by groups, with weights, of large domains or of two columns would ignore."""
    by, weights, domain, columns = (
        options["by"],
        options["weights"],
        options["domain"],
        options["column"] or [],
    )
    for name in ("against", "sizes"):
        if options[name] is not None and by is None:
            raise ParameterError(name, options[name], "needs groups; name their column with --by")
    if options["top"] is not None and domain is None:
        raise ParameterError("top", options["top"], "this option needs --domain")
    grouped = by is not None or weights is not None
    if domain is None and len(columns) < 2 and not grouped:
        return
    alone = {
        name: options[name]
        for name in ("histogram", "quantiles", "simultaneous", "save_counts", "address")
    }
    alone |= {name: options[name] for name, usual in _USUAL.items() if options[name] != usual}
    alone |= {} if grouped else {"mechanism": options["mechanism"]}
    beside = "--domain" if domain else "--by" if by else "--weights" if weights else "two columns"
    common.refuse_given(
        alone, f"does not go with {beside}; estimate one column or one group by itself"
    )
    if domain is None and len(columns) > 1 and grouped:
        raise ParameterError(
            "column", ", ".join(columns), "give one column at a time with --by or --weights"
        )


def _one_column(of: Options, options: Options) -> None:
    """Prints the mean or the frequencies, and the other estimates requested."""
    from mezzotint.collect.counts import SAME_PEOPLE

    counts = _counts(options["sources"], **of, engine=options["engine"], address=options["address"])
    if counts.memoised > 1:
        common.warn(SAME_PEOPLE)
    if options["save_counts"] is not None:
        mz.collect.save_counts(counts, options["save_counts"], overwrite=options["overwrite"])
    asked = {name: options[name] for name in ("level", "method", "simultaneous", "allow_seeded")}
    asked |= {"histogram": options["bins"]} if options["histogram"] else {}
    if options["quantiles"]:
        asked["quantiles"] = common.parse_numbers(
            options["probabilities"], parameter="probabilities"
        )
    result = mz.collect.estimate(counts, **asked)
    common.show(result.as_dict(), options["as_json"], lambda: _picture(result, counts.mechanism))


def _counts(sources: list[str], **options: Any) -> mz.collect.CodeCounts:
    """The counts of all sources together."""
    with common.progress("counting", unit="rows") as tell:
        parts = [
            mz.collect.load_counts(source)
            if source.endswith(".json")
            else mz.collect.read_counts(source, progress=tell, **options)
            for source in sources
        ]
    return reduce(lambda one, other: one.merge(other), parts)


def _frequencies(result: mz.collect.Frequencies, title: str) -> Group:
    shares = zip(result.categories, result.shares, strict=True)
    rows = (
        (Text(name), *(f"{end:.4f}" for end in (one.value, one.low, one.high)))
        for name, one in shares
    )
    table = common.TerminalTable(
        ("category", "share", *common.ends(result.level)), rows, title=title
    )
    below = any(share.value < 0 for share in result.shares)
    words = (
        "Estimates are unbiased, so sums and averages of them are right too. The share of a rare category may be "
        "estimated below 0; read that as near 0."
    )
    return Group(table, *([Text(words)] if below else []))


def _picture(result: mz.collect.Estimate | mz.collect.Frequencies, mechanism: Mechanism) -> Group:
    title = f"{result.n:,} reports, {common.cost_of(result.claim, result.seeded)}"
    if isinstance(result, mz.collect.Frequencies):
        return _frequencies(result, title)
    named = {"mean": result.mean, "variance": result.input_variance}
    if result.quantiles is not None:
        found = zip(result.quantiles.probabilities, result.quantiles.values, strict=True)
        named |= {f"quantile {probability:g}": value for probability, value in found}
    rows = []
    for label, interval in named.items():
        left = (
            ""
            if interval.identified is None
            else " .. ".join(number(end, 4) for end in interval.identified)
        )
        rows.append(
            (label, number(interval.value), number(interval.low), number(interval.high), left)
        )
    if result.histogram is not None:
        bins = result.histogram
        for i, share in enumerate(bins.share):
            label = f"share in {bins.edges[i]:.4g} .. {bins.edges[i + 1]:.4g}"
            left = f"{bins.identified_low[i]:.4f} .. {bins.identified_high[i]:.4f}"
            rows.append((label, f"{share:.4f}", f"{bins.low[i]:.4f}", f"{bins.high[i]:.4f}", left))
    columns = (
        "of the clipped inputs",
        "estimate",
        *common.ends(result.level),
        "left open by the table",
    )
    words = [
        _split(result),
        *_blame(result, mechanism),
        *(f"Note: {note}" for note in result.notes),
    ]
    return Group(common.TerminalTable(columns, rows, title=title), Text("\n".join(words)))


def _blame(result: mz.collect.Estimate, table: Mechanism) -> list[str]:
    """Remarks where the table, not the number of reports, makes intervals wide."""
    bins, quantiles, scale = result.histogram, result.quantiles, table.upper - table.lower
    words: list[str] = []
    mean = result.mean
    if (
        mean.identified is not None
        and mean.identified[1] - mean.identified[0] >= (mean.high - mean.low) / 4
    ):
        words.append(
            f"The mean is only as good as the table: its bias may reach {number(table.max_bias, 3)}, which more "
            "reports do not reduce and the standard error leaves out. For means: mezzotint design --loss mse"
        )
    asked: list[tuple[str, int, float, float]] = []
    if bins is not None:
        left_open = float((bins.identified_high - bins.identified_low).sum())
        asked.append(("shares", bins.share.size, float((bins.high - bins.low).sum()), left_open))
    if quantiles is not None:
        size = scale * len(quantiles.values)
        wide = sum(value.high - value.low for value in quantiles.values) / size
        known = (value.identified or (value.value, value.value) for value in quantiles.values)
        left_open = sum(high - low for low, high in known) / size
        asked.append(("quantiles", _CELLS, wide, left_open))
    for what, cells, wide, left_open in asked:
        if wide >= _WIDE and left_open >= wide / 2:
            cost = 1.0 if result.epsilon is None else result.epsilon
            return [
                *words,
                f"More reports of this table would hardly narrow these {what}: the table itself leaves them open. "
                "For a table made for them (docs/collect.md, a table for a histogram): "
                f"{common.table_for_shares(cost, table.lower, table.upper, bins=cells)}",
            ]
    return words


_WIDE = 0.2
"""Total width of the shares, or mean width of the quantiles relative to the range, that is worth a remark."""
_CELLS = 16
"""Cells of the table suggested for quantiles."""


def _split(result: mz.collect.Estimate) -> str:
    sampling, privacy = result.sampling_error, result.privacy_error
    return (
        f"Standard error of the mean {number(result.standard_error, 4)}: sampling of the rows contributes "
        f"{number(sampling.value, 4)} ({number(sampling.low, 4)} to {number(sampling.high, 4)}), privacy "
        f"{number(privacy.value, 4)} ({number(privacy.low, 4)} to {number(privacy.high, 4)}); their squares add up."
    )


# By groups and with weights -------------------------------------------------------------------------------------------


def _by_groups(of: Options, options: Options) -> None:
    """Prints means or frequencies of every group, differences from one of them, strata and totals."""
    by, weights, against, level = (options[name] for name in ("by", "weights", "against", "level"))
    found = _grouped(
        options["sources"], by=by, weights=weights, allow_seeded=options["allow_seeded"], **of
    )
    if against is not None and against not in found:
        raise ParameterError(
            "against", against, f"no such group; use one of: {', '.join(list(found)[:20])}"
        )
    memoised = any(group.memoised for group in found.values())
    counts = reduce(lambda one, other: one.merge(other), (group.counts for group in found.values()))
    claim = None if counts.seeded else mz.privacy.report_claim(counts.mechanism)
    facts: JsonObject = {
        "level": level,
        "by": by,
        "weights": weights,
        "memoised": memoised,
        **_priced(claim),
    }
    parts = {name: mz.collect.parts_of(group, level=level) for name, group in found.items()}
    facts["groups"] = [
        {"group": name, "n": group.counts.n, "seeded": group.counts.seeded,
         **_named({what: part.interval for what, part in parts[name].items()})}
        for name, group in found.items()
    ]  # fmt: skip
    if against is not None:
        facts["against"], other, same = against, parts[against], memoised or options["same_people"]
        less = {
            name: {
                what: mz.collect.difference(one[what], other[what], same_people=same)
                for what in one
            }
            for name, one in parts.items()
            if name != against
        }
        facts["differences"] = [{"group": name, **_named(gaps)} for name, gaps in less.items()]
    if options["sizes"] is not None:
        shares = _sizes(options["sizes"])
        facts["population"] = _named({
            what: mz.collect.stratified({name: part[what] for name, part in parts.items()}, shares)
            for what in next(iter(parts.values()))
        })  # fmt: skip
    drawn = all(group.weights.sum() >= group.counts.n for group in found.values())
    if weights is not None and drawn and all("mean" in part for part in parts.values()):
        for entry, group in zip(facts["groups"], found.values(), strict=True):
            entry["total"] = mz.collect.total(group, level=level).as_dict()
    series: dict[str, mz.privacy.Claim] = {}
    if memoised:
        # Whatever the column is, such a person has at most as many rows as there are groups.
        fresh = mz.privacy.Release(mechanism=counts.mechanism, rounds=max(1, len(found)), delta=0.0)
        both = {"memoised": replace(fresh, distinct=fresh.rounds), "fresh": fresh}
        series = {what: mz.privacy.account(one) for what, one in both.items()}
        whom = f"a person with at most one row in each {'group' if by is None else by} ({max(1, len(found))} of them)"
        facts["series"] = {"of": whom, **{what: claim.as_dict() for what, claim in series.items()}}
    cost = common.cost_of(claim, counts.seeded)
    common.show(
        facts, options["as_json"], lambda: _pictures(facts, series.get("memoised"), cost=cost)
    )


def _grouped(
    sources: list[str], *, allow_seeded: bool, **options: Any
) -> dict[str, mz.collect.Group]:
    """The groups of all sources together."""
    from mezzotint.collect.counts import refuse_seeded

    found: dict[str, mz.collect.Group] = {}
    with common.busy("counting"):
        for source in sources:
            try:
                groups = mz.collect.read_groups(source, **options)
            except ParameterError as error:
                asked = next(
                    (name for name in ("by", "weights") if options.get(name) == error.value),
                    "column",
                )
                raise ParameterError(
                    asked if error.parameter == "column" else error.parameter,
                    error.value,
                    error.remedy,
                ) from error
            for name, group in groups.items():
                found[name] = found[name].merge(group) if name in found else group
    for group in found.values():
        refuse_seeded(group.counts.seeded, allowed=allow_seeded)
    return found


def _hitters(options: Options) -> None:
    """Prints the most frequent categories of a large domain."""
    sources, column, top, level = (options[name] for name in ("sources", "column", "top", "level"))
    top = 20 if top is None else top
    if len(sources) > 1 or len(column or ()) > 1:
        raise ParameterError(
            "sources", ", ".join(sources), "hashed reports are read from one column of one source"
        )
    names = (*common.read_lines(options["domain"], parameter="domain"), OTHER)
    with common.busy("counting"):
        try:
            counts = mz.collect.read_hashed(
                sources[0],
                domain=lambda table: mz.families.HashedDomain(categories=names, mechanism=table),
                column=column[0] if column else None,
            )
        except ParameterError as error:  # of the column of hashes, which nobody names
            if error.parameter != "column" or not str(error.value).endswith("_hash"):
                raise
            remedy = "not made with --domain; leave out --domain"
            raise ParameterError("sources", sources[0], remedy) from None
    found = mz.collect.heavy_hitters(
        counts, top=top, level=level, allow_seeded=options["allow_seeded"]
    )
    title = f"{found.n:,} reports of {found.domain:,} categories, {common.cost_of(found.claim, found.seeded)}"
    columns = ("category", "share", *(f"{end}, all at once" for end in common.ends(level)), "")
    rows = []
    for name, share, sure in zip(found.categories, found.shares, found.certain, strict=True):
        shown = (f"{value:.5f}" for value in (share.value, share.low, share.high))
        rows.append((Text(name), *shown, f"surely among the first {top}" if sure else ""))
    table = common.TerminalTable(columns, rows, left=("category", ""), title=title)
    others = Text(f"No other category has a share above {found.unlisted_at_most:.5f}.")
    common.show(found.as_dict(), options["as_json"], lambda: Group(table, others))


def _priced(claim: mz.privacy.Claim | None) -> JsonObject:
    """The JSON fields about the cost of one report; none where it was drawn from a seed."""
    return {} if claim is None else {"epsilon": claim.epsilon, **claim.standing}


def _named(known: dict[str, mz.collect.Interval]) -> JsonObject:
    shown = {what: interval.as_dict() for what, interval in known.items()}
    return (
        shown
        if set(shown) == {"mean"}
        else {"frequencies": [{"category": k, **v} for k, v in shown.items()]}
    )


def _sizes(text: str) -> dict[str, float]:
    try:
        return {
            name: float(size) for name, size in (pair.rsplit("=", 1) for pair in text.split(","))
        }
    except ValueError:
        raise ParameterError("sizes", text, "give the size of each group: a=100,b=250") from None


def _pictures(facts: JsonObject, series: mz.privacy.Claim | None, *, cost: str) -> Group:
    n = sum(entry["n"] for entry in facts["groups"])
    by, weighted = (
        f" by {facts['by']}" if facts["by"] else "",
        ", weighted" if facts["weights"] else "",
    )
    title = f"{n:,} reports{by}{weighted}, {cost}"
    less = [
        {**entry, "group": f"{entry['group']} less {facts['against']}"}
        for entry in facts.get("differences", ())
    ]
    whole = [{"group": "population", **facts["population"]}] if "population" in facts else []
    table = _group_table(title, [facts["groups"], less, whole], level=facts["level"])
    if series is None:
        return Group(table)
    words = (
        "Memoised reports: a person's equal values repeat the same report in every group, so errors of differences "
        f"add up, and averages over groups are no sharper than one group. For {facts['series']['of']}: {series}"
    )
    return Group(table, Text(words))


def _group_table(
    title: str, sections: list[list[JsonObject]], *, level: float
) -> common.TerminalTable:
    """One table with one set of headings; a line below each section."""
    columns = ("group", "reports", "of", "estimate", *common.ends(level))
    rows: list[tuple[RenderableType, ...] | None] = []
    for entries in sections:
        for entry in entries:
            lines = (
                [("mean", entry["mean"])]
                if "mean" in entry
                else [(f["category"], f) for f in entry["frequencies"]]
            )
            lines += [("total", entry["total"])] if "total" in entry else []
            for i, (what, found) in enumerate(lines):
                first = (
                    (Text(entry["group"]), f"{entry['n']:,}" if "n" in entry else "")
                    if i == 0
                    else ("", "")
                )
                rows.append(
                    (
                        *first,
                        Text(what),
                        *(number(found[end], 5) for end in ("value", "low", "high")),
                    )
                )
        rows += [None] if entries else []
    return common.TerminalTable(columns, rows, left=("group", "of"), title=title)


# Two columns -------------------------------------------------------------------------------------------------------


def _together(sources: list[str], columns: list[str], options: Options) -> None:
    """Prints the joint estimates of two columns of the same records, according to their kinds."""
    if len(sources) != 1 or len(columns) != 2:
        raise ParameterError("column", ", ".join(columns), "name two columns of one source")
    pairs = mz.collect.read_pairs(sources[0], columns=(columns[0], columns[1]))
    known, level = {name: options[name] for name in ("level", "allow_seeded")}, options["level"]
    kinds = [table.categories is not None for table in (pairs.first, pairs.second)]
    if kinds == [False, True]:
        remedy = (
            "name the column of categories first: the mean of the other is estimated within each"
        )
        raise ParameterError("column", ", ".join(columns), remedy)
    if kinds == [False, False]:
        found = mz.collect.relation(pairs, **known)
        slope = {} if found.slope is None else {"slope": found.slope}
        rows = [
            ("covariance", "", found.covariance),
            *((name, "", one) for name, one in slope.items()),
        ]
    elif kinds == [True, True]:
        rows = [(*names, one) for names, one in mz.collect.two_way(pairs, **known).items()]
    else:
        rows = [
            (name, "mean", one) for name, one in mz.collect.means_within(pairs, **known).items()
        ]
    tables = dict(zip(columns, (pairs.first, pairs.second), strict=True))
    claim = None if pairs.seeded else mz.privacy.report_claim(tables)
    entries = [
        {columns[0]: one, columns[1]: other, **found.as_dict()} for one, other, found in rows
    ]
    facts = {"n": pairs.n, "level": level, "seeded": pairs.seeded, **_priced(claim)}
    title = f"{pairs.n:,} records, {common.cost_of(claim, pairs.seeded)}"
    cells = [
        (Text(one), Text(other), *(number(end, 5) for end in (f.value, f.low, f.high)))
        for one, other, f in rows
    ]
    table = common.TerminalTable(
        (*columns, "estimate", *common.ends(level)), cells, left=columns, title=title
    )
    common.show({**facts, "together": entries}, options["as_json"], lambda: table)
