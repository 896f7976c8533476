"""`mezzotint estimate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from mezzotint.core.records import Json, JsonObject, above, number
from mezzotint.core.table import OTHER

EXAMPLE = "mezzotint estimate reports.parquet --histogram --quantiles --json"

OPTIONAL_VALUES = {"histogram": "10", "quantiles": "0.05,0.25,0.5,0.75,0.95"}
"""Options that may stand without a value, and what they mean then."""

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
    confidence: Confidence = 0.95,
    method: Annotated[
        str, option("Intervals: asymptotic, or safe (wider, valid at any number of reports).")
    ] = _USUAL["method"],
    histogram: Annotated[
        str | None,
        option(
            "Also estimate the shares of bins: their number, or their edges; 10 where nothing follows."
        ),
    ] = None,
    quantiles: Annotated[
        str | None,
        option(
            "Also estimate quantiles of these probabilities; 0.05,0.25,0.5,0.75,0.95 where nothing follows."
        ),
    ] = None,
    above: Annotated[
        str | None, option("Also estimate the shares of inputs above these values, as in 140,300.")
    ] = None,
    save_counts: Annotated[
        Path | None, option("Also write the counts per code (.json), to add to others.")
    ] = None,
    engine: Annotated[str, option("local, or ray: count on a Ray cluster.")] = _USUAL["engine"],
    address: Address = None,
    simultaneous: Annotated[
        bool, option("Make all intervals hold at once with --confidence.", "--simultaneous")
    ] = False,
    allow_seeded: Annotated[
        bool, option("Accept seeded reports, which are NOT PRIVATE.", "--allow-seeded")
    ] = False,
    by: Annotated[
        list[str] | None,
        option(
            "Public column kept with --keep: one estimate per value; repeatable, for cross tables."
        ),
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
    out: Annotated[
        Path | None, option("Also write the estimates as a table (.csv, .parquet, .md, .html).")
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
    common.refuse_outputs(*common.TABLE_ENDINGS, overwrite=overwrite, out=out)
    if domain is not None:
        _hitters(options)
    elif column is not None and len(column) > 1:
        _together(sources, column, options)
    else:
        table = None if mechanism is None else common.load_mechanism(mechanism)
        of: Options = {"column": column[0] if column else None, "mechanism": table}
        if by or weights:
            _row_claim(sources)
            _by_groups(of, options)
        else:
            _one_column(of, options)


def _check(options: Options) -> None:
    """Refuses options that estimates by groups, with weights, of large domains or of two columns would ignore."""
    by, weights, domain, columns = (
        options["by"],
        options["weights"],
        options["domain"],
        options["column"] or [],
    )
    for name in ("against", "sizes"):
        if options[name] is not None and not by:
            raise ParameterError(name, options[name], "needs groups; name their column with --by")
    if options["top"] is not None and domain is None:
        raise ParameterError("top", options["top"], "this option needs --domain")
    grouped = bool(by) or weights is not None
    if domain is None and len(columns) < 2 and not grouped:
        return
    names = ["save_counts", "address"]
    if not grouped:
        names += ["histogram", "quantiles", "above"]
    if domain is not None:
        names.append("simultaneous")  # its statements hold at once anyway
    alone = {name: options[name] for name in names}
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
    asked = {
        name: options[name] for name in ("confidence", "method", "simultaneous", "allow_seeded")
    }
    result = mz.collect.estimate(counts, **asked, **_requested(options))
    _write(result._rows(), options)
    row = _row_claim(options["sources"])
    facts = result.as_dict()
    if row is not None:
        facts["epsilon_of_row"] = row.epsilon
    common.show(facts, options["as_json"], lambda: _picture(result, counts.mechanism))


def _row_claim(sources: list[str]) -> mz.privacy.Claim | None:
    """The claim about a complete row, said beside the estimate of one of its columns."""
    from mezzotint.collect.reports import row_claim

    claims = [row_claim(source) for source in sources if not source.endswith(".json")]
    whole = max(
        (claim for claim in claims if claim is not None),
        key=lambda claim: claim.epsilon,
        default=None,
    )
    if whole is not None:
        common.note(
            f"a complete row of these reports, all columns together, costs epsilon {above(whole.epsilon)}; "
            "what a person was charged in all is in the ledger (mezzotint ledger FILE)"
        )
    return whole


def _requested(options: Options) -> Options:
    """Shares and quantiles that were asked for."""
    asked: Options = {}
    if options["histogram"] is not None:
        edges = common.parse_numbers(options["histogram"], parameter="histogram")
        single = len(edges) == 1 and edges[0] == round(edges[0])
        asked["histogram"] = int(edges[0]) if single else edges
    for name in ("quantiles", "above"):
        if options[name] is not None:
            asked[name] = common.parse_numbers(options[name], parameter=name)
    return asked


def _write(rows: Sequence[Json], options: Options) -> None:
    """Writes the estimates as a table, where that was asked for."""
    if options["out"] is not None:
        common.write_table(rows, options["out"], overwrite=options["overwrite"], parameter="out")


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
        ("category", "share", *common.ends(result.confidence)), rows, title=title
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
    if result.shares_above is not None:
        found = zip(result.shares_above.thresholds, result.shares_above.values, strict=True)
        named |= {f"share above {threshold:g}": value for threshold, value in found}
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
        *common.ends(result.confidence),
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
    """Prints means or frequencies of every group, shares and quantiles, differences, strata and totals."""
    weights, confidence = options["weights"], options["confidence"]
    by: list[str] = list(options["by"] or ())
    groups = _grouped(
        options["sources"], by=by, weights=weights, allow_seeded=options["allow_seeded"], **of
    )
    sizes = None if options["sizes"] is None else _sizes(options["sizes"])
    found = mz.collect.estimate_groups(
        groups,
        confidence=confidence,
        simultaneous=options["simultaneous"],
        against=options["against"],
        same_people=options["same_people"],
        sizes=sizes,
        allow_seeded=options["allow_seeded"],
        **_requested(options),
    )
    memoised = any(group.memoised for group in groups.values())
    facts: JsonObject = {
        "confidence": confidence,
        "simultaneous": options["simultaneous"],
        "by": ", ".join(by) or None,
        "weights": weights,
        "memoised": memoised,
        **_priced(found.claim),
        "groups": [],
    }
    by_group: dict[str, dict[str, mz.collect.Interval]] = {}
    for answer in found.answers:
        by_group.setdefault(answer.group, {})[answer.quantity] = answer.interval
    for name, group in groups.items():
        entry = {"group": name, "n": group.counts.n, "seeded": group.counts.seeded}
        facts["groups"].append({**entry, **_named(by_group[name])})
    if options["against"] is not None:
        against = facts["against"] = options["against"]
        facts["differences"] = [
            {"group": name, **_named(by_group[f"{name} less {against}"])}
            for name in groups
            if name != against
        ]
    if sizes is not None:
        facts["population"] = _named(by_group["population"])
    rows = found._rows()
    drawn = all(group.weights.sum() >= group.counts.n for group in groups.values())
    if weights is not None and drawn and groups_have_means(groups):
        for entry, group in zip(facts["groups"], groups.values(), strict=True):
            total = mz.collect.total(group, confidence=confidence)
            entry["total"] = total.as_dict()
            ends = {"value": total.value, "low": total.low, "high": total.high}
            rows.append(
                {"group": entry["group"], "reports": entry["n"], "quantity": "total", **ends}
            )
    _write(rows, options)
    series = _series(groups, facts, by) if memoised else None
    cost = common.cost_of(found.claim, found.seeded)
    common.show(facts, options["as_json"], lambda: _pictures(facts, series, cost=cost))


def groups_have_means(groups: Mapping[str, mz.collect.Group]) -> bool:
    """Whether the groups are of numbers."""
    return all(group.counts.mechanism.categories is None for group in groups.values())


def _series(
    groups: Mapping[str, mz.collect.Group], facts: JsonObject, by: list[str]
) -> mz.privacy.Claim:
    """The claim of memoised reports over all groups, which the facts get too."""
    table = next(iter(groups.values())).counts.mechanism
    # Whatever the column is, such a person has at most as many rows as there are groups.
    fresh = mz.privacy.Release(mechanism=table, rounds=max(1, len(groups)), delta=0.0)
    both = {"memoised": replace(fresh, distinct=fresh.rounds), "fresh": fresh}
    series = {what: mz.privacy.account(one) for what, one in both.items()}
    each = ", ".join(by) or "group"
    whom = f"a person with at most one row in each {each} ({max(1, len(groups))} of them)"
    facts["series"] = {"of": whom, **{what: claim.as_dict() for what, claim in series.items()}}
    return series["memoised"]


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
                asked = "column"
                if error.value == options.get("weights"):
                    asked = "weights"
                elif error.value in (options.get("by") or ()):
                    asked = "by"
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
    sources, column, top, confidence = (
        options[name] for name in ("sources", "column", "top", "confidence")
    )
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
        counts, top=top, confidence=confidence, allow_seeded=options["allow_seeded"]
    )
    title = f"{found.n:,} reports of {found.domain:,} categories, {common.cost_of(found.claim, found.seeded)}"
    columns = ("category", "share", *(f"{end}, all at once" for end in common.ends(confidence)), "")
    rows = []
    for name, share, sure in zip(found.categories, found.shares, found.certain, strict=True):
        shown = (f"{value:.5f}" for value in (share.value, share.low, share.high))
        rows.append((Text(name), *shown, f"surely among the first {top}" if sure else ""))
    table = common.TerminalTable(columns, rows, left=("category", ""), title=title)
    others = Text(f"No other category has a share above {found.unlisted_at_most:.5f}.")
    _write(found._rows(), options)
    common.show(found.as_dict(), options["as_json"], lambda: Group(table, others))


def _priced(claim: mz.privacy.Claim | None) -> JsonObject:
    """The JSON fields about the cost of one report; none where it was drawn from a seed."""
    return {} if claim is None else {"epsilon": claim.epsilon, **claim.standing}


def _named(known: dict[str, mz.collect.Interval]) -> JsonObject:
    shown = {what: interval.as_dict() for what, interval in known.items()}
    if "mean" not in shown:
        return {"frequencies": [{"category": what, **ends} for what, ends in shown.items()]}
    more = [{"quantity": what, **ends} for what, ends in shown.items() if what != "mean"]
    return {"mean": shown["mean"], **({"answers": more} if more else {})}


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
    table = _group_table(title, [facts["groups"], less, whole], confidence=facts["confidence"])
    if series is None:
        return Group(table)
    words = (
        "Memoised reports: a person's equal values repeat the same report in every group, so errors of differences "
        f"add up, and averages over groups are no sharper than one group. For {facts['series']['of']}: {series}"
    )
    return Group(table, Text(words))


def _group_table(
    title: str, sections: list[list[JsonObject]], *, confidence: float
) -> common.TerminalTable:
    """One table with one set of headings; a line below each section."""
    columns = ("group", "reports", "of", "estimate", *common.ends(confidence))
    rows: list[tuple[RenderableType, ...] | None] = []
    for entries in sections:
        for entry in entries:
            lines = [(one["category"], one) for one in entry.get("frequencies", ())]
            lines += [("mean", entry["mean"])] if "mean" in entry else []
            lines += [(one["quantity"], one) for one in entry.get("answers", ())]
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
    known, confidence = (
        {name: options[name] for name in ("confidence", "allow_seeded")},
        options["confidence"],
    )
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
        known["simultaneous"] = options["simultaneous"]
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
    facts = {"n": pairs.n, "confidence": confidence, "seeded": pairs.seeded, **_priced(claim)}
    title = f"{pairs.n:,} records, {common.cost_of(claim, pairs.seeded)}"
    cells = [
        (Text(one), Text(other), *(number(end, 5) for end in (f.value, f.low, f.high)))
        for one, other, f in rows
    ]
    table = common.TerminalTable(
        (*columns, "estimate", *common.ends(confidence)), cells, left=columns, title=title
    )
    _write(entries, options)
    common.show({**facts, "together": entries}, options["as_json"], lambda: table)
