"""The report of what `mezzotint smoothed ... --json` printed: a database, a model of databases, or elections."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

import mezzotint as mz
from mezzotint.core.errors import FileFormatError, MezzotintError
from mezzotint.core.files import read_object
from mezzotint.core.records import JsonObject, number
from mezzotint.privacy.claim import basis
from mezzotint.report.page import Curve, Figure, Page, Section, Table

SECONDS = 20.0
"""Points of a curve that is not free are computed for about so long."""

LEAST = -400.0
"""Bars of smaller powers of ten are cut: some deltas are exactly 0."""

_DELTA = "log10 of delta"

_SAMPLING = ("loss_rate", "sampled", "replacement", "poisson", "noise_ratio")


def smoothed_page(source: Path) -> Page:
    """The report of a smoothed result.

    Arguments:
        source: the JSON object that a verb of `mezzotint smoothed` printed.

    Raises:
        FileFormatError: anything else.

    Guarantees: curves are computed anew from what was asked; the bounds shown are upper bounds.
    """
    try:
        facts = read_object(source)
        make = PAGES[facts["verb"]]
    except (ValueError, KeyError, TypeError):
        remedy = "make one with: mezzotint smoothed profile ... --json > profile.json"
        raise FileFormatError(f"{source.name}: no result of mezzotint smoothed; {remedy}") from None
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
    how = "drawn with replacement" if asked.get("replacement") else "drawn without replacement"
    if "loss_rate" not in asked:
        return f"{asked['sampled']:,} of them {how}"
    how = "each lost or kept independently" if asked.get("poisson") else how
    return f"a share of {asked['loss_rate']} of them lost, the rest {how}"


def _curve(name: str, points: list[tuple[float, float]], style: Literal["line", "dashed", "bars"] = "line") -> Curve:
    kept = [(x, y) for x, y in points if math.isfinite(y)]
    return Curve(name=name, x=tuple(x for x, _ in kept), y=tuple(y for _, y in kept), style=style)


def _level(name: str, xs: list[float], height: float) -> Curve:
    return _curve(name, [(x, height) for x in xs], "dashed")


T = TypeVar("T")


def _evaluated(xs: list[float], compute: Callable[[float], T]) -> dict[float, T]:
    """Results at as many of the positions as fit into the time, spread over all of them; the first always."""
    begin, found = time.perf_counter(), {xs[0]: compute(xs[0])}
    each = max(time.perf_counter() - begin, 1e-6)
    affordable = int(np.clip(SECONDS / each, 1, len(xs) - 1))
    for place in np.unique(np.linspace(1, len(xs) - 1, affordable).round().astype(int)):
        found[xs[place]] = compute(xs[place])
    return dict(sorted(found.items()))


def _facts_table(facts: JsonObject) -> Table:
    rows = tuple(
        (name.replace("_", " "), number(value) if isinstance(value, float) else str(value))
        for name, value in facts.items()
        if name not in ("asked", "verb", "reason") and value not in (None, [])
    )
    return Table(headings=("what", "value"), rows=rows)


# One database ------------------------------------------------------------------------------------------------


def _profile_page(facts: JsonObject) -> Page:
    asked = {name: value for name, value in facts["asked"].items() if value is not None}
    epsilon, records = float(facts["epsilon"]), int(facts["records"])
    fixed = {name: asked[name] for name in _SAMPLING if name in asked}
    grid = [epsilon * k / 10 for k in range(1, 26)]
    values = _evaluated(sorted({*grid, epsilon}), lambda at: mz.smoothed.profile(asked["counts"], epsilon=at, **fixed))
    xs = list(values)
    figure = Figure(
        key="profile",
        title="Privacy profile of this database",
        x_label="epsilon",
        y_label=_DELTA,
        curves=(
            _curve("this database, upper bound", [(x, one.log10_upper) for x, one in values.items()]),
            _curve("worst database", [(x, one.log10_worst_case) for x, one in values.items()]),
            _level("1/n", xs, -math.log10(records)),
        ),
    )
    summary = (
        f"{records:,} records, {_rate(asked)}: delta at most {power(facts['log10_upper'])} at epsilon "
        f"{number(epsilon)} ({basis('model')}), where the worst database has {power(facts['log10_worst_case'])}."
    )
    words = (str(facts["reason"]), _MEANING)
    about = Section(title="What publishing reveals", words=words, figures=(figure,), table=_facts_table(facts))
    return Page(title="Smoothed privacy of one database", summary=summary, sections=(about, _verify("profile", asked)))


_MEANING = (
    "delta is the share of outcomes, weighted by chance, in which the published counts would say more about one record "
    "than epsilon allows. It is of this database: the worst database, which ordinary differential privacy is about, "
    "is far more revealing. A delta well below 1/n is taken for private; nothing here protects a database that "
    "happens to be unusual."
)


def _utility_page(facts: JsonObject) -> Page:
    asked = {name: value for name, value in facts["asked"].items() if value is not None}
    fixed = {name: asked[name] for name in _SAMPLING if name in asked}
    chosen = float(mz.smoothed.read_rational("threshold", asked["threshold"]))
    top = min(0.99, 0.5 + 3 * max(chosen - 0.5, 0.01))
    grid = sorted({chosen, *np.linspace(0.5, top, 16).round(6).tolist()})
    values = _evaluated(grid, lambda at: mz.smoothed.utility(asked["counts"], threshold=at, **fixed))
    figure = Figure(
        key="utility",
        title="What an adversary gains who knows all other records",
        x_label="accuracy that a guess must exceed",
        y_label="log10 of the utility",
        curves=(
            _curve("this database, upper bound", [(x, one.log10_upper) for x, one in values.items()]),
            _level("1/n", list(values), -math.log10(int(facts["records"]))),
        ),
    )
    summary = (
        f"{int(facts['records']):,} records, {_rate(asked)}: utility at most {power(facts['log10_upper'])} "
        f"beyond an accuracy of {chosen:g}."
    )
    words = (str(facts["reason"]), "Utility 1 would be certainty about one record in every outcome; 0, no gain at all.")
    about = Section(title="What an adversary gains", words=words, figures=(figure,), table=_facts_table(facts))
    return Page(title="The adversary's utility", summary=summary, sections=(about, _verify("utility", asked)))


# A model of databases ----------------------------------------------------------------------------------------


def _expected_page(facts: JsonObject) -> Page:
    asked = {name: value for name, value in facts["asked"].items() if value is not None and name != "ratio"}
    epsilon, records = float(facts["epsilon"]), int(facts["records"])
    figures: tuple[Figure, ...] = ()
    if facts["verb"] == "expected" and float(facts["seconds"]) < SECONDS / 4:
        grid = sorted({epsilon, *(epsilon * k / 4 for k in range(1, 9))})
        values = _evaluated(grid, lambda at: mz.smoothed.expected(**{**asked, "epsilon": at}))
        curves = (
            _curve("smoothed, upper bound", [(x, one.log10_upper) for x, one in values.items()]),
            _curve("worst database", [(x, one.log10_worst_case) for x, one in values.items()]),
            _level("1/n", list(values), -math.log10(records)),
        )
        figures = (
            Figure(key="profile", title="Smoothed privacy profile", x_label="epsilon", y_label=_DELTA, curves=curves),
        )
    bound = f"at most {power(facts['log10_upper'])}"
    if facts["confidence"] is not None:
        level, low, high = (float(value) for value in facts["confidence"])
        bound = f"{power(facts['log10_delta'])} ({level:.0%} interval {power(low)} to {power(high)}; no guarantee)"
    summary = (
        f"{records:,} records that follow the model, {facts['sampled']:,} of them published: expected delta {bound} at "
        f"epsilon {number(epsilon)} ({basis('model')}); the worst database has {power(facts['log10_worst_case'])}."
    )
    words = (
        str(facts["reason"]),
        "The guarantee is an average over databases that the model draws. It holds as far as the model does.",
    )
    about = Section(title="What the model implies", words=words, figures=figures, table=_facts_table(facts))
    sections = (about, _verify(facts["verb"], asked | {"epsilon": epsilon}))
    return Page(title="Smoothed differential privacy", summary=summary, sections=sections)


# Elections ---------------------------------------------------------------------------------------------------


def _elections_page(facts: JsonObject) -> Page:
    rows = facts["elections"]
    names = tuple(str(row["election"]) for row in rows)
    heights = tuple(max(_number(row["log10_upper"]), LEAST) for row in rows)
    figure = Figure(
        key="elections",
        title="delta of every election, upper bounds",
        x_label="",
        y_label=f"log10 of delta (cut at {LEAST:g})",
        curves=(Curve(name="delta", x=names, y=heights, style="bars"),),
    )
    heads = ("election", "records", "log10_upper", "log10_utility", "log10_worst_case")
    shown = tuple(name for name in heads if name in rows[0])
    cells = tuple(tuple(_cell(name, row[name]) for name in shown) for row in rows)
    worst = max(rows, key=lambda row: _number(row["log10_upper"]))
    share = facts["loss_rate"]
    at = f"e^epsilon = {facts['ratio']}" if facts.get("ratio") else f"epsilon {facts['epsilon']}"
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
    return str(value) if name == "election" else number(_number(value), 8)


# How to verify -----------------------------------------------------------------------------------------------


def _verify(verb: str, asked: JsonObject) -> Section:
    words = ("The values are exact sums of rationals, or bounds of them. This gives them again:",)
    plain = {name: value for name, value in asked.items() if value is not False}
    call = ", ".join(f"{name}={value!r}" for name, value in plain.items() if name != "distributions")
    name = {"gradients": "expected_gradients"}.get(verb, verb)
    more = ", distributions=[...]" if "distributions" in asked else ""
    return Section(
        title="How to verify it", words=words, code=f">>> import mezzotint as mz\n>>> mz.smoothed.{name}({call}{more})"
    )


PAGES: dict[str, Callable[[JsonObject], Page]] = {
    "profile": _profile_page,
    "utility": _utility_page,
    "expected": _expected_page,
    "gradients": _expected_page,
    "elections": _elections_page,
}
