"""`mezzotint estimate --by` and `--weights`: every group, differences, strata and totals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.estimate_options import EstimateOptions, price, write_rows
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject, number
from mezzotint.report.contents import interval_headings

if TYPE_CHECKING:
    from mezzotint.collect.answers import GroupEstimates


def show(options: EstimateOptions) -> None:
    """Prints means or frequencies of every group, shares and quantiles, differences, strata and
    totals.
    """
    groups = _read(options)
    sizes = None
    if options.sizes is not None:
        sizes = _sizes(options.sizes)
    estimates = mz.collect.estimate_groups(
        groups,
        confidence=options.confidence,
        simultaneous=options.simultaneous,
        against=options.against,
        same_people=options.same_people,
        sizes=sizes,
        totals=_have_totals(groups, options),
        allow_seeded=options.allow_seeded,
        **options.questions,
    )
    memoised = any(group.counts.provenance.memoised for group in groups.values())
    console.warn_each(estimates.notes)
    by = ", ".join(options.by or ())
    json_fields: JsonObject = {
        "confidence": options.confidence,
        "simultaneous": options.simultaneous,
        "by": by or None,
        "weights": options.weights,
        "memoised": memoised,
        "notes": estimates.notes,
        **price(estimates.claim),
        **_by_group(estimates, groups, options),
    }
    write_rows(estimates._rows(), options)
    series = None
    if memoised:
        series = _add_series(json_fields, groups, by)
    cost = common.cost_of(estimates.claim, estimates.seeded)
    console.show(json_fields, options.as_json, lambda: _picture(json_fields, series, cost=cost))


def _by_group(
    estimates: GroupEstimates, groups: Mapping[str, mz.collect.Group], options: EstimateOptions
) -> JsonObject:
    """The estimates of groups, of differences from one of them, and of the population of strata."""
    intervals: dict[tuple[str, str], dict[str, mz.collect.Interval]] = {}
    for answer in estimates.answers:
        of_group = intervals.setdefault((answer.about, answer.group), {})
        of_group[answer.quantity] = answer.interval
    named = _by_categories
    if next(iter(groups.values())).counts.mechanism.categories is None:
        named = _by_quantities
    json_fields: JsonObject = {"groups": []}
    for group_name, group in groups.items():
        entry = {"group": group_name, "n": group.counts.n, "seeded": group.counts.seeded}
        json_fields["groups"].append({**entry, **named(intervals["group", group_name])})
    if options.against is not None:
        json_fields["against"] = options.against
        json_fields["differences"] = []
        for group_name in groups:
            if group_name != options.against:
                gaps = intervals["difference", f"{group_name} less {options.against}"]
                difference = named(gaps)
                json_fields["differences"].append({"group": group_name, **difference})
    if options.sizes is not None:
        json_fields["population"] = named(intervals["population", "population"])
    return json_fields


def _by_categories(intervals: Mapping[str, mz.collect.Interval]) -> JsonObject:
    """The frequencies of one group, whatever its categories are called."""
    frequencies: list[JsonObject] = []
    for category, share in intervals.items():
        frequencies.append({"category": category, **share.as_dict()})
    return {"frequencies": frequencies}


def _by_quantities(intervals: Mapping[str, mz.collect.Interval]) -> JsonObject:
    """The mean of one group, its total, and what else was asked of it."""
    named: JsonObject = {}
    answers: list[JsonObject] = []
    for quantity, interval in intervals.items():
        if quantity in ("mean", "total"):
            named[quantity] = interval.as_dict()
        else:
            answers.append({"quantity": quantity, **interval.as_dict()})
    if answers:
        named["answers"] = answers
    return named


def _have_totals(groups: Mapping[str, mz.collect.Group], options: EstimateOptions) -> bool:
    """Whether totals are estimated: of numbers, with weights that are 1 / probability of
    inclusion.
    """
    if options.weights is None:
        return False
    return all(
        group.counts.mechanism.categories is None and group.weights.sum() >= group.counts.n
        for group in groups.values()
    )


def _add_series(
    json_fields: JsonObject, groups: Mapping[str, mz.collect.Group], by: str
) -> mz.privacy.Claim:
    """The claim of memoised reports over all groups, which the facts get too."""
    table = next(iter(groups.values())).counts.mechanism
    # Whatever the column is, such a person has at most as many rows as there are groups.
    count = max(1, len(groups))
    fresh = mz.privacy.Release(mechanism=table, rounds=count, delta=0.0)
    memoised_claim = mz.privacy.account(replace(fresh, distinct=count))
    person = f"a person with at most one row in each {by or 'group'} ({count} of them)"
    json_fields["series"] = {
        "of": person,
        "memoised": memoised_claim.as_dict(),
        "fresh": mz.privacy.account(fresh).as_dict(),
    }
    return memoised_claim


def _read(options: EstimateOptions) -> dict[str, mz.collect.Group]:
    """The groups of all sources together."""
    from mezzotint.collect.counts import refuse_seeded

    table = options.table
    merged: dict[str, mz.collect.Group] = {}
    with progress.busy("counting"):
        for source in options.sources:
            try:
                groups = mz.collect.read_groups(
                    source,
                    by=options.by or [],
                    weights=options.weights,
                    column=options.first_column,
                    mechanism=table,
                )
            except ParameterError as error:
                raise _named_as_typed(error, options) from error
            for group_name, group in groups.items():
                if group_name in merged:
                    group = merged[group_name].merge(group)
                merged[group_name] = group
    for group in merged.values():
        refuse_seeded(group.counts.seeded, allowed=options.allow_seeded)
    return merged


def _named_as_typed(error: ParameterError, options: EstimateOptions) -> ParameterError:
    """An error about a column, named by the option that holds the column."""
    parameter = error.parameter
    if parameter == "column" and error.value == options.weights:
        parameter = "weights"
    elif parameter == "column" and error.value in (options.by or ()):
        parameter = "by"
    return ParameterError(parameter, error.value, error.remedy)


_SIZE = re.compile("(?P<group>.*?)=(?P<size>[^,=]+)(?:,|$)", re.DOTALL)
"""A group and its size, up to the next one."""


def _sizes(text: str) -> dict[str, float]:
    """The size of each group, whose name may hold a comma, as those of several columns do."""
    sizes: dict[str, float] = {}
    remedy = "give the size of each group once: a=100,b=250"
    position = 0
    while position < len(text):
        entry = _SIZE.match(text, position)
        if entry is None or entry["group"] in sizes:
            raise ParameterError("sizes", text, remedy)
        try:
            sizes[entry["group"]] = float(entry["size"])
        except ValueError:
            raise ParameterError("sizes", text, remedy) from None
        position = entry.end()
    return sizes


def _picture(json_fields: JsonObject, series: mz.privacy.Claim | None, *, cost: str) -> Group:
    reports = sum(entry["n"] for entry in json_fields["groups"])
    title = f"{reports:,} reports"
    if json_fields["by"]:
        title += f" by {json_fields['by']}"
    if json_fields["weights"]:
        title += ", weighted"
    title += f", {cost}"
    sections = [json_fields["groups"]]
    if "differences" in json_fields:
        against = json_fields["against"]
        named = [
            {**entry, "group": f"{entry['group']} less {against}"}
            for entry in json_fields["differences"]
        ]
        sections.append(named)
    if "population" in json_fields:
        sections.append([{"group": "population", **json_fields["population"]}])
    table = _group_table(title, sections, confidence=json_fields["confidence"])
    if series is None:
        return Group(table)
    sentences = (
        "Memoised reports: a person's equal values repeat the same report in every group, so "
        "errors of differences add up, and averages over groups are no sharper than one group. For "
        f"{json_fields['series']['of']}: {series}"
    )
    return Group(table, Text(sentences))


def _group_table(
    title: str, sections: list[list[JsonObject]], *, confidence: float
) -> tables.TerminalTable:
    """One table with one set of headings; a line below each section."""
    columns = ("group", "reports", "of", "estimate", *interval_headings(confidence))
    table_rows: list[tuple[str | Text, ...] | None] = []
    for entries in sections:
        for entry in entries:
            table_rows += _group_rows(entry)
        if entries:
            table_rows.append(None)
    return tables.TerminalTable(columns, table_rows, left=("group", "of"), title=title)


def _group_rows(entry: JsonObject) -> list[tuple[str | Text, ...]]:
    """A row for each estimate of a group; the first names the group and counts its reports."""
    estimates = [(share["category"], share) for share in entry.get("frequencies", ())]
    if "mean" in entry:
        estimates.append(("mean", entry["mean"]))
    estimates += [(answer["quantity"], answer) for answer in entry.get("answers", ())]
    if "total" in entry:
        estimates.append(("total", entry["total"]))
    reports = ""
    if "n" in entry:
        reports = f"{entry['n']:,}"
    table_rows: list[tuple[str | Text, ...]] = []
    for quantity, interval in estimates:
        first: tuple[str | Text, str] = ("", "")
        if not table_rows:
            first = (Text(entry["group"]), reports)
        numbers = [number(interval[end], 5) for end in ("value", "low", "high")]
        table_rows.append((*first, Text(quantity), *numbers))
    return table_rows
