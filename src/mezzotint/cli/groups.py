"""What `mezzotint estimate` says by groups, with weights, and of two columns together."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

import mezzotint as mz
from mezzotint.cli.common import Fitted, busy, cost_of, ends, headed, number, read_lines, show
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import OTHER, Mechanism
from mezzotint.core.records import JsonObject


def by_groups(
    sources: list[str],
    *,
    by: str | None,
    weights: str | None,
    against: str | None,
    sizes: str | None,
    same_people: bool,
    level: float,
    allow_seeded: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Prints means or frequencies of every group, differences from one of them, strata and totals."""
    found = _counted(sources, by=by, weights=weights, allow_seeded=allow_seeded, **options)
    if against is not None and against not in found:
        raise ParameterError("against", against, f"is no group; there are: {', '.join(list(found)[:20])}")
    memoised = any(group.memoised for group in found.values())
    counts = reduce(lambda one, other: one.merge(other), (group.counts for group in found.values()))
    claim = None if counts.seeded else mz.privacy.report_claim(counts.mechanism)
    facts: JsonObject = {"level": level, "by": by, "weights": weights, "memoised": memoised, **_priced(claim)}
    parts = {name: mz.collect.parts_of(group, level=level) for name, group in found.items()}
    facts["groups"] = [
        {"group": name, "n": group.counts.n, "seeded": group.counts.seeded,
         **_named({what: part.interval for what, part in parts[name].items()})}
        for name, group in found.items()
    ]  # fmt: skip
    if against is not None:
        facts["against"] = against
        facts["differences"] = [
            {"group": name, **_named(_differences(parts[name], parts[against], memoised or same_people))}
            for name in parts if name != against
        ]  # fmt: skip
    if sizes is not None:
        shares = _sizes(sizes)
        facts["population"] = _named({
            what: mz.collect.stratified({name: part[what] for name, part in parts.items()}, shares)
            for what in next(iter(parts.values()))
        })  # fmt: skip
    if weights is not None and all("mean" in part for part in parts.values()) and all(map(_asked, found.values())):
        for entry, group in zip(facts["groups"], found.values(), strict=True):
            entry["total"] = mz.collect.total(group, level=level).as_dict()
    series = _series(counts.mechanism, max(1, len(found))) if memoised else {}
    if memoised:
        whom = f"a person with at most one row in each {'group' if by is None else by} ({max(1, len(found))} of them)"
        facts["series"] = {"of": whom, **{what: claim.as_dict() for what, claim in series.items()}}
    show(facts, as_json, lambda: _pictures(facts, series.get("memoised"), cost=cost_of(claim, counts.seeded)))


def _counted(
    sources: list[str], *, by: str | None, weights: str | None, allow_seeded: bool, **options: Any
) -> dict[str, mz.collect.Group]:
    """The groups of all sources together."""
    from mezzotint.collect.counts import refuse_seeded

    found: dict[str, mz.collect.Group] = {}
    with busy("counting"):
        for source in sources:
            for name, group in mz.collect.read_groups(source, by=by, weights=weights, **options).items():
                found[name] = found[name].merge(group) if name in found else group
    for group in found.values():
        refuse_seeded(group.counts.seeded, allowed=allow_seeded)
    return found


def _series(mechanism: Mechanism, rounds: int) -> dict[str, mz.privacy.Claim]:
    """What a person pays with at most one row in each group, memoised and drawn afresh.

    Whatever the column is, dates or not: who has at most one row in each group has no more than there are groups.
    """
    fresh = mz.privacy.Release(mechanism=mechanism, rounds=rounds, delta=0.0)
    return {"memoised": mz.privacy.account(replace(fresh, distinct=rounds)), "fresh": mz.privacy.account(fresh)}


def hitters(
    sources: list[str],
    *,
    domain: Path,
    column: list[str] | None,
    top: int,
    level: float,
    allow_seeded: bool,
    as_json: bool,
) -> None:
    """Prints the most frequent categories of a large domain."""
    if len(sources) > 1 or len(column or ()) > 1:
        raise ParameterError("sources", ", ".join(sources), "hashed reports are read from one source, one column")
    names = (*read_lines(domain, parameter="domain"), OTHER)
    with busy("counting"):
        counts = mz.collect.read_hashed(
            sources[0],
            domain=lambda table: mz.families.HashedDomain(categories=names, mechanism=table),
            column=column[0] if column else None,
        )
    found = mz.collect.heavy_hitters(counts, top=top, level=level, allow_seeded=allow_seeded)
    title = f"{found.n:,} reports of {found.domain:,} categories, {cost_of(found.claim, found.seeded)}"
    columns = ("category", "share", *(f"{end}, all at once" for end in ends(level)), "")
    table = headed(columns, left=("category", ""), title=title)
    for name, share, sure in zip(found.categories, found.shares, found.certain, strict=True):
        shown = (f"{value:.5f}" for value in (share.value, share.low, share.high))
        table.add_row(Text(name), *shown, f"surely among the first {top}" if sure else "")
    others = Text(f"No other category has a share above {found.unlisted_at_most:.5f}.")
    show(found.as_dict(), as_json, lambda: Group(Fitted(table), others))


def _priced(claim: mz.privacy.Claim | None) -> JsonObject:
    """What stands in JSON about the cost of one report; nothing where it was drawn from a seed."""
    return {} if claim is None else {"epsilon": claim.epsilon, **claim.standing}


def _asked(group: mz.collect.Group) -> bool:
    return bool(group.weights.sum() >= group.counts.n)


def _named(known: dict[str, mz.collect.Interval]) -> JsonObject:
    shown = {what: interval.as_dict() for what, interval in known.items()}
    return shown if set(shown) == {"mean"} else {"frequencies": [{"category": k, **v} for k, v in shown.items()]}


def _differences(one: JsonObject, other: JsonObject, same_people: bool) -> dict[str, mz.collect.Interval]:
    return {what: mz.collect.difference(one[what], other[what], same_people=same_people) for what in one}


def _sizes(text: str) -> dict[str, float]:
    try:
        return {name: float(size) for name, size in (pair.rsplit("=", 1) for pair in text.split(","))}
    except ValueError:
        raise ParameterError("sizes", text, "give the size of each group: a=100,b=250") from None


def _pictures(facts: JsonObject, series: mz.privacy.Claim | None, *, cost: str) -> Group:
    n = sum(entry["n"] for entry in facts["groups"])
    title = (
        f"{n:,} reports" + (f" by {facts['by']}" if facts["by"] else "") + (", weighted" if facts["weights"] else "")
    )
    less = [{**entry, "group": f"{entry['group']} less {facts['against']}"} for entry in facts.get("differences", ())]
    whole = [{"group": "population", **facts["population"]}] if "population" in facts else []
    title += f", {cost}"
    shown: list[RenderableType] = [_table(title, [facts["groups"], less, whole], level=facts["level"])]
    if series is not None:
        shown.append(
            Text(
                "Memoised reports: equal values of a person repeat one report, in all groups: errors of differences "
                "add up, and averages over groups are no sharper than one group. Of "
                f"{facts['series']['of']}: {series}"
            )
        )
    return Group(*shown)


def _table(title: str, sections: list[list[JsonObject]], *, level: float) -> Fitted:
    """One table, so that its headings stand once; a line below each section."""
    columns = ("group", "reports", "of", "estimate", *ends(level))
    table = headed(columns, left=("group", "of"), title=title)
    for entries in sections:
        for entry in entries:
            lines = [("mean", entry["mean"])] if "mean" in entry else [(f["category"], f) for f in entry["frequencies"]]
            lines += [("total", entry["total"])] if "total" in entry else []
            for i, (what, found) in enumerate(lines):
                first = (Text(entry["group"]), f"{entry['n']:,}" if "n" in entry else "") if i == 0 else ("", "")
                table.add_row(*first, Text(what), *(number(found[end], 5) for end in ("value", "low", "high")))
        if entries:
            table.add_section()
    return Fitted(table)


# Two columns -------------------------------------------------------------------------------------------------------


def together(sources: list[str], *, columns: list[str], level: float, allow_seeded: bool, as_json: bool) -> None:
    """Prints what two columns of the same records say together: by their kinds."""
    if len(sources) != 1 or len(columns) != 2:
        raise ParameterError("column", ", ".join(columns), "two columns of one source are estimated together")
    pairs = mz.collect.read_pairs(sources[0], columns=(columns[0], columns[1]))
    options = {"level": level, "allow_seeded": allow_seeded}
    kinds = [table.categories is not None for table in (pairs.first, pairs.second)]
    if kinds == [False, True]:
        remedy = "name the column of categories first: the mean of the other is estimated within each"
        raise ParameterError("column", ", ".join(columns), remedy)
    if kinds == [False, False]:
        found = mz.collect.relation(pairs, **options)
        slope = {} if found.slope is None else {"slope": found.slope}
        rows = [("covariance", "", found.covariance), *((name, "", one) for name, one in slope.items())]
    elif kinds == [True, True]:
        rows = [(*names, one) for names, one in mz.collect.two_way(pairs, **options).items()]
    else:
        rows = [(name, "mean", one) for name, one in mz.collect.means_within(pairs, **options).items()]
    tables = dict(zip(columns, (pairs.first, pairs.second), strict=True))
    claim = None if pairs.seeded else mz.privacy.report_claim(tables)
    entries = [{columns[0]: one, columns[1]: other, **found.as_dict()} for one, other, found in rows]
    facts = {"n": pairs.n, "level": level, "seeded": pairs.seeded, **_priced(claim)}
    title = f"{pairs.n:,} records, {cost_of(claim, pairs.seeded)}"
    table = headed((*columns, "estimate", *ends(level)), left=columns, title=title)
    for one, other, found in rows:
        table.add_row(Text(one), Text(other), *(number(end, 5) for end in (found.value, found.low, found.high)))
    show({**facts, "together": entries}, as_json, lambda: Fitted(table))
