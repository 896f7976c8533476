"""`mezzotint estimate --by` and `--weights`: every group, differences, strata and totals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.estimate_options import EstimateOptions, write_rows
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
        **estimates.as_dict(),
        "by": by or None,
        "weights": options.weights,
        "memoised": memoised,
    }
    write_rows(estimates._rows(), options)
    sentences: list[str] = []
    if memoised:
        sentences.append(_add_series(json_fields, groups, by))
    reports = sum(group.counts.n for group in groups.values())
    title = f"{reports:,} reports"
    if by:
        title += f" by {by}"
    if options.weights:
        title += ", weighted"
    title += f", {common.cost_of(estimates.claim, estimates.seeded)}"
    console.show(json_fields, options.as_json, lambda: [_table(estimates, title), *sentences])


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


def _add_series(json_fields: JsonObject, groups: Mapping[str, mz.collect.Group], by: str) -> str:
    """The claim of memoised reports over all groups, which the facts get too, as a sentence."""
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
    return (
        "Memoised reports: a person's equal values repeat the same report in every group, so "
        "errors of differences add up, and averages over groups are no sharper than one group. For "
        f"{person}: {memoised_claim}"
    )


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


def _table(estimates: GroupEstimates, title: str) -> tables.TerminalTable:
    """A row for each answer; groups, differences and the population are set apart by a line."""
    columns = ("group", "reports", "of", "estimate", *interval_headings(estimates.confidence))
    table_rows: list[tuple[str, ...] | None] = []
    about, group = "group", ""
    for answer in estimates.answers:
        if answer.about != about:
            table_rows.append(None)
        first = ("", "")
        if (answer.about, answer.group) != (about, group):
            first = (answer.group, "" if answer.n is None else f"{answer.n:,}")
        about, group = answer.about, answer.group
        numbers = [number(end, 5) for end in answer.interval.ends.values()]
        table_rows.append((*first, answer.quantity, *numbers))
    return tables.TerminalTable(columns, table_rows, left=("group", "of"), title=title)
