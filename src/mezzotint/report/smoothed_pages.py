"""Pages of what `mezzotint smoothed ... --json` printed: curves anew, all of them upper bounds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

import mezzotint as mz
from mezzotint.core.errors import FileFormatError, MezzotintError
from mezzotint.core.files import read_object
from mezzotint.core.records import JsonObject, above, confidence_percent, number
from mezzotint.privacy.claim import basis
from mezzotint.report.contents import Curve, Figure, Page, Section, Table

SECONDS = 20.0
"""Points of a curve that is not free are computed for about so long."""

LEAST = -400.0
"""Bars of smaller powers of ten are cut: some deltas are exactly 0."""

_DELTA = "log10 of delta"

ELSEWHERE = ("asked", "verb", "reason")
"""Facts that are not in a page's table of facts."""

_SAMPLING = ("loss_rate", "sampled", "replacement", "poisson", "noise_ratio")


def smoothed_page(source: Path) -> Page:
    """The report of what a verb of `mezzotint smoothed` printed as JSON.

    Curves are computed anew; all are upper bounds.
    """
    try:
        facts = read_object(source)
        make = PAGES[facts["verb"]]
    except (ValueError, KeyError, TypeError):
        remedy = "make one with: mezzotint smoothed profile ... --json > profile.json"
        raise FileFormatError(
            f"{source.name}: not a result of mezzotint smoothed; {remedy}"
        ) from None
    try:
        return make(facts)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, MezzotintError):
            raise
        raise FileFormatError(f"{source.name}: lacks or garbles {error}; it was edited") from None


def _number(value: float | str | None) -> float:
    """JSON lacks infinities: they are written as words."""
    return -math.inf if value is None else float(value)


def power(log10: float | str | None) -> str:
    """10 to a power that may be far below the smallest float, the exponent rounded up."""
    exponent = _number(log10)
    if exponent == -math.inf:
        return "0"
    shown = math.ceil(exponent * 100) / 100
    return "1" if shown >= 0 else f"10^{shown:g}"


def _rate(asked: JsonObject) -> str:
    how = "drawn without replacement"
    if asked.get("replacement"):
        how = "drawn with replacement"
    if "loss_rate" not in asked:
        return f"{asked['sampled']:,} of them {how}"
    if asked.get("poisson"):
        how = "each lost or kept independently"
    return f"a share of {asked['loss_rate']} of them lost, the rest {how}"


T = TypeVar("T")


def _curves(values: Mapping[float, object], records: int, **fields: str) -> list[Curve]:
    """Curves of fields of the results over their positions, and the level 1/n.

    Arguments:
        values: position -> result.
        records: n.
        fields: field of a result -> the curve's name on the page.
    """
    curves = []
    for field, label in fields.items():
        heights = [getattr(result, field) for result in values.values()]
        curves.append(Curve.of(label, values, heights))
    level = [-math.log10(records)] * len(values)
    curves.append(Curve.of("1/n", values, level, "dashed"))
    return curves


def _evaluated(xs: list[float], compute: Callable[[float], T]) -> dict[float, T]:
    """Results at as many of the positions as fit into the time, spread over all of them.

    The first is always there.
    """
    begin = time.perf_counter()
    results = {xs[0]: compute(xs[0])}
    seconds_each = max(time.perf_counter() - begin, 1e-6)
    affordable = int(np.clip(SECONDS / seconds_each, 1, len(xs) - 1))
    for index in np.unique(np.linspace(1, len(xs) - 1, affordable).round().astype(int)):
        results[xs[index]] = compute(xs[index])
    return dict(sorted(results.items()))


def _facts_table(facts: JsonObject) -> Table:
    shown: JsonObject = {}
    for name, value in facts.items():
        if name not in ELSEWHERE and value not in (None, []):
            shown[name] = value
    return Table.of(shown, show=_shown)


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


# One database ------------------------------------------------------------------------------------


def _asked(facts: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The options that were given, and those of them that say how records are sampled."""
    asked = {name: value for name, value in facts["asked"].items() if value is not None}
    return asked, {name: asked[name] for name in _SAMPLING if name in asked}


def _profile_page(facts: JsonObject) -> Page:
    asked, fixed = _asked(facts)
    epsilon, records = float(facts["epsilon"]), int(facts["records"])
    grid = [epsilon * k / 10 for k in range(1, 26)]
    values = _evaluated(
        sorted({*grid, epsilon}),
        lambda at: mz.smoothed.profile(asked["counts"], epsilon=at, **fixed),
    )
    names = {"log10_upper": "this database, upper bound", "log10_worst_case": "worst database"}
    curves = _curves(values, records, **names)
    figure = Figure.of("profile", "Privacy profile of this database", ("epsilon", _DELTA), *curves)
    summary = (
        f"{records:,} records, {_rate(asked)}: delta at most {power(facts['log10_upper'])} at "
        f"epsilon {above(epsilon)} ({basis('model')}), where the worst database has "
        f"{power(facts['log10_worst_case'])}."
    )
    words = (str(facts["reason"]), _MEANING)
    about = Section(
        title="What publishing reveals", words=words, figures=(figure,), table=_facts_table(facts)
    )
    return Page(
        title="Smoothed privacy of one database",
        summary=summary,
        sections=(about, _verify("profile", asked)),
    )


_MEANING = (
    "delta is the share of outcomes, weighted by chance, in which the published counts would say "
    "more about one record than epsilon allows. It is of this database: the worst database, which "
    "ordinary differential privacy is about, is far more revealing. A delta well below 1/n is "
    "taken for private; nothing here protects a database that happens to be unusual."
)


def _utility_page(facts: JsonObject) -> Page:
    asked, fixed = _asked(facts)
    chosen = float(mz.smoothed.read_rational("threshold", asked["threshold"]))
    top = min(0.99, 0.5 + 3 * max(chosen - 0.5, 0.01))
    grid = sorted({chosen, *np.linspace(0.5, top, 16).round(6).tolist()})
    values = _evaluated(
        grid, lambda at: mz.smoothed.utility(asked["counts"], threshold=at, **fixed)
    )
    curves = _curves(values, int(facts["records"]), log10_upper="this database, upper bound")
    axes = ("accuracy that a guess must exceed", "log10 of the utility")
    figure = Figure.of(
        "utility", "What an adversary gains who knows all other records", axes, *curves
    )
    summary = (
        f"{int(facts['records']):,} records, {_rate(asked)}: utility at most "
        f"{power(facts['log10_upper'])} beyond an accuracy of {chosen:g}."
    )
    words = (
        str(facts["reason"]),
        "Utility 1 would be certainty about one record in every outcome; 0, no gain at all.",
    )
    about = Section(
        title="What an adversary gains", words=words, figures=(figure,), table=_facts_table(facts)
    )
    return Page(
        title="The adversary's utility",
        summary=summary,
        sections=(about, _verify("utility", asked)),
    )


# A model of databases ----------------------------------------------------------------------------


def _expected_page(facts: JsonObject) -> Page:
    asked = {name: value for name, value in _asked(facts)[0].items() if name != "ratio"}
    epsilon, records = float(facts["epsilon"]), int(facts["records"])
    figures: tuple[Figure, ...] = ()
    if facts["verb"] == "expected" and float(facts["seconds"]) < SECONDS / 4:
        grid = sorted({epsilon, *(epsilon * k / 4 for k in range(1, 9))})
        values = _evaluated(grid, lambda at: mz.smoothed.expected(**{**asked, "epsilon": at}))
        names = {"log10_upper": "smoothed, upper bound", "log10_worst_case": "worst database"}
        curves = _curves(values, records, **names)
        figures = (Figure.of("profile", "Smoothed privacy profile", ("epsilon", _DELTA), *curves),)
    bound = f"at most {power(facts['log10_upper'])}"
    if facts["confidence"] is not None:
        level, low, high = (float(value) for value in facts["confidence"])
        interval = (
            f"{confidence_percent(level)} interval {power(low)} to {power(high)}; no guarantee"
        )
        bound = f"{power(facts['log10_delta'])} ({interval})"
    summary = (
        f"{records:,} records that follow the model, {facts['sampled']:,} of them published: "
        f"expected delta {bound} at epsilon {above(epsilon)} ({basis('model')}); the worst "
        f"database has {power(facts['log10_worst_case'])}."
    )
    words = (
        str(facts["reason"]),
        "The guarantee is an average over databases that the model draws. It holds as far as the "
        "model does.",
    )
    about = Section(
        title="What the model implies", words=words, figures=figures, table=_facts_table(facts)
    )
    sections = (about, _verify(facts["verb"], asked | {"epsilon": epsilon}))
    return Page(title="Smoothed differential privacy", summary=summary, sections=sections)


# Elections ---------------------------------------------------------------------------------------


def _elections_page(facts: JsonObject) -> Page:
    rows = facts["elections"]
    heights = [max(_number(row["log10_upper"]), LEAST) for row in rows]
    bars = Curve.of("delta", [str(row["election"]) for row in rows], heights, "bars")
    axes = ("", f"log10 of delta (cut at {LEAST:g})")
    figure = Figure.of("elections", "delta of every election, upper bounds", axes, bars)
    heads = ("election", "records", "log10_upper", "log10_utility", "log10_worst_case")
    shown = tuple(name for name in heads if name in rows[0])
    cells = tuple(tuple(_cell(name, row[name]) for name in shown) for row in rows)
    worst = max(rows, key=lambda row: _number(row["log10_upper"]))
    share = facts["loss_rate"]
    at = f"epsilon {facts['epsilon']}"
    if facts.get("ratio"):
        at = f"e^epsilon = {facts['ratio']}"
    summary = (
        f"{len(rows)} elections, a share of {share} of the votes lost at random: delta at most "
        f"{power(worst['log10_upper'])} at {at} ({worst['election']}; {basis('model')})."
    )
    about = Section(
        title="What the published counts reveal",
        words=(_MEANING,),
        figures=(figure,),
        table=Table(headings=tuple(name.replace("_", " ") for name in shown), rows=cells),
    )
    return Page(title="Smoothed privacy of elections", summary=summary, sections=(about,))


def _cell(name: str, value: float | str | None) -> str:
    if name == "records":
        return f"{value:,}"
    if name == "election":
        return str(value)
    return number(_number(value), 8)


# How to verify -----------------------------------------------------------------------------------


def _verify(verb: str, asked: JsonObject) -> Section:
    words = ("The values are exact sums of rationals, or bounds of them. This gives them again:",)
    arguments = {name: repr(value) for name, value in asked.items() if value is not False}
    if "distributions" in asked:
        arguments["distributions"] = "[...]"
    call = ", ".join(f"{name}={value}" for name, value in arguments.items())
    function = {"gradients": "expected_gradients"}.get(verb, verb)
    code = f">>> import mezzotint as mz\n>>> mz.smoothed.{function}({call})"
    return Section(title="How to verify it", words=words, code=code)


PAGES: dict[str, Callable[[JsonObject], Page]] = {
    "profile": _profile_page,
    "utility": _utility_page,
    "expected": _expected_page,
    "gradients": _expected_page,
    "elections": _elections_page,
}
