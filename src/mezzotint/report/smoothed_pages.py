"""Pages of what `mezzotint smoothed ... --json` printed: curves anew, all of them upper bounds."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import mezzotint as mz
from mezzotint.core.errors import FileFormatError, MezzotintError
from mezzotint.core.files import read_object
from mezzotint.core.records import JsonObject, above, confidence_percent, log10_shown, number
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
        stored_facts = read_object(source)
        page_maker = PAGES[stored_facts["verb"]]
    except (ValueError, KeyError, TypeError):
        remedy = "make one with: mezzotint smoothed profile ... --json > profile.json"
        raise FileFormatError(
            f"{source.name}: not a result of mezzotint smoothed; {remedy}"
        ) from None
    try:
        return page_maker(stored_facts)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, MezzotintError):
            raise
        raise FileFormatError(f"{source.name}: lacks or garbles {error}; it was edited") from None


def _number(value: float | str | None) -> float:
    """JSON lacks infinities: they are written as words."""
    return -math.inf if value is None else float(value)


def power(log10: float | str | None, *, rounded: Callable[[float], int] = math.ceil) -> str:
    """10 to a power that may be far below the smallest float, the exponent rounded up; or, as the
    lower end of an interval, by `math.floor`.
    """
    exponent = _number(log10)
    if exponent == -math.inf:
        return "0"
    shown_exponent = rounded(exponent * 100) / 100
    return "1" if shown_exponent >= 0 else f"10^{shown_exponent:g}"


def _rate(asked: JsonObject) -> str:
    drawing_words = "drawn without replacement"
    if asked.get("replacement"):
        drawing_words = "drawn with replacement"
    if "loss_rate" not in asked:
        return f"{asked['sampled']:,} of them {drawing_words}"
    if asked.get("poisson"):
        drawing_words = "each lost or kept independently"
    return f"a share of {asked['loss_rate']} of them lost, the rest {drawing_words}"


T = TypeVar("T")


def _curves(values: Mapping[float, object], records: int, **fields: str) -> list[Curve]:
    """Curves of fields of the results over their positions, and the level 1/n.

    Arguments:
        values: position -> result.
        records: n.
        fields: field of a result -> the curve's name on the page.
    """
    curves = []
    for field_name, curve_name in fields.items():
        heights = [getattr(result, field_name) for result in values.values()]
        curves.append(Curve.of(curve_name, values, heights))
    one_record_level = [-math.log10(records)] * len(values)
    curves.append(Curve.of("1/n", values, one_record_level, "dashed"))
    return curves


def _evaluated(xs: list[float], compute: Callable[[float], T]) -> dict[float, T]:
    """Results at as many of the positions as fit into the time, spread over all of them.

    The first is always there.
    """
    begin_time = time.perf_counter()
    results = {xs[0]: compute(xs[0])}
    seconds_each = max(time.perf_counter() - begin_time, 1e-6)
    affordable = int(np.clip(SECONDS / seconds_each, 1, len(xs) - 1))
    for grid_index in np.unique(np.linspace(1, len(xs) - 1, affordable).round().astype(int)):
        results[xs[grid_index]] = compute(xs[grid_index])
    return dict(sorted(results.items()))


def _facts_table(facts: JsonObject) -> Table:
    cells: dict[str, str] = {}
    for name, value in facts.items():
        is_absent = value in (None, []) and not name.startswith("log10")
        if name not in ELSEWHERE and not is_absent:
            cells[name] = shown(name, value)
    return Table.of(cells)


def shown(name: str, value: Any) -> str:
    """A value of a result; bounds and epsilons hold as printed."""
    if name.startswith("log10"):
        return log10_shown(name, _number(value))
    if name == "epsilon":
        return above(float(value), 8)
    if isinstance(value, float):
        return number(value, 8)
    return str(value)


def election_cell(name: str, value: Any) -> str:
    """A value of an election's row, whose counts are long."""
    if isinstance(value, int):
        return f"{value:,}"
    return shown(name, value)


# One database ------------------------------------------------------------------------------------


def _asked(facts: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The options that were given, and those of them that say how records are sampled."""
    chosen_options = {
        option_name: option_value
        for option_name, option_value in facts["asked"].items()
        if option_value is not None
    }
    # Files of before name draws and a seed beside methods that make none.
    if chosen_options.get("method", "monte_carlo") != "monte_carlo":
        chosen_options.pop("draws", None)
        chosen_options.pop("seed", None)
    return chosen_options, {
        option_name: chosen_options[option_name]
        for option_name in _SAMPLING
        if option_name in chosen_options
    }


def _profile_page(facts: JsonObject) -> Page:
    chosen_options, sampling_options = _asked(facts)
    epsilon, records = float(facts["epsilon"]), int(facts["records"])
    epsilon_grid = [epsilon * grid_step / 10 for grid_step in range(1, 26)]
    results_by_epsilon = _evaluated(
        sorted({*epsilon_grid, epsilon}),
        lambda grid_epsilon: mz.smoothed.profile(
            chosen_options["counts"], epsilon=grid_epsilon, **sampling_options
        ),
    )
    curve_names = {
        "log10_upper": "this database, upper bound",
        "log10_worst_case": "worst database",
    }
    curves = _curves(results_by_epsilon, records, **curve_names)
    profile_figure = Figure.of(
        "profile", "Privacy profile of this database", ("epsilon", _DELTA), *curves
    )
    summary = (
        f"{records:,} records, {_rate(chosen_options)}: delta at most "
        f"{power(facts['log10_upper'])} at "
        f"epsilon {above(epsilon)} ({basis('model')}), where the worst database has "
        f"{power(facts['log10_worst_case'])}."
    )
    return _page_of(
        facts,
        chosen_options,
        title="Smoothed privacy of one database",
        summary=summary,
        heading="What publishing reveals",
        meaning=_MEANING,
        figures=(profile_figure,),
    )


_MEANING = (
    "delta is the share of outcomes, weighted by chance, in which the published counts would say "
    "more about one record than epsilon allows. It is of this database: the worst database, which "
    "ordinary differential privacy is about, is far more revealing. A delta well below 1/n is "
    "taken for private; nothing here protects a database that happens to be unusual."
)


def _utility_page(facts: JsonObject) -> Page:
    chosen_options, sampling_options = _asked(facts)
    chosen_threshold = float(mz.smoothed.read_rational("threshold", chosen_options["threshold"]))
    greatest_threshold = min(0.99, 0.5 + 3 * max(chosen_threshold - 0.5, 0.01))
    threshold_grid = sorted(
        {chosen_threshold, *np.linspace(0.5, greatest_threshold, 16).round(6).tolist()}
    )
    results_by_threshold = _evaluated(
        threshold_grid,
        lambda grid_threshold: mz.smoothed.utility(
            chosen_options["counts"], threshold=grid_threshold, **sampling_options
        ),
    )
    curves = _curves(
        results_by_threshold, int(facts["records"]), log10_upper="this database, upper bound"
    )
    axis_labels = ("accuracy that a guess must exceed", "log10 of the utility")
    utility_figure = Figure.of(
        "utility", "What an adversary gains who knows all other records", axis_labels, *curves
    )
    summary = (
        f"{int(facts['records']):,} records, {_rate(chosen_options)}: utility at most "
        f"{power(facts['log10_upper'])} beyond an accuracy of {chosen_threshold:g}."
    )
    return _page_of(
        facts,
        chosen_options,
        title="The adversary's utility",
        summary=summary,
        heading="What an adversary gains",
        meaning="Utility 1 would be certainty about one record in every outcome; 0, no gain at all.",
        figures=(utility_figure,),
    )


# A model of databases ----------------------------------------------------------------------------


def _sampling_words(facts: JsonObject, chosen_options: JsonObject) -> str:
    """How many of the records are seen, and by whom."""
    observation_words = "published"
    if facts["verb"] == "own":
        observation_words = f"seen by {chosen_options['mechanism']}"
    if chosen_options.get("sampling") == "poisson":  # of which no number is known beforehand
        return f"each lost with chance {chosen_options['loss_rate']} or {observation_words}"
    return f"{facts['sampled']:,} of them {observation_words}"


def _expected_page(facts: JsonObject) -> Page:
    chosen_options = {
        option_name: option_value
        for option_name, option_value in _asked(facts)[0].items()
        if option_name != "ratio"
    }
    epsilon, records = float(facts["epsilon"]), int(facts["records"])
    figures: tuple[Figure, ...] = ()
    if facts["verb"] == "expected" and float(facts["seconds"]) < SECONDS / 4:
        epsilon_grid = sorted({epsilon, *(epsilon * grid_step / 4 for grid_step in range(1, 9))})
        results_by_epsilon = _evaluated(
            epsilon_grid,
            lambda grid_epsilon: mz.smoothed.expected(
                **{**chosen_options, "epsilon": grid_epsilon}
            ),
        )
        curve_names = {"log10_upper": "smoothed, upper bound", "log10_worst_case": "worst database"}
        curves = _curves(results_by_epsilon, records, **curve_names)
        figures = (Figure.of("profile", "Smoothed privacy profile", ("epsilon", _DELTA), *curves),)
    delta_text = f"at most {power(facts['log10_upper'])}"
    if facts["confidence"] is not None:
        confidence, low_exponent, high_exponent = (
            float(option_value) for option_value in facts["confidence"]
        )
        interval = (
            f"{confidence_percent(confidence)} interval "
            f"{power(low_exponent, rounded=math.floor)} to {power(high_exponent)}; no guarantee"
        )
        delta_text = f"{power(facts['log10_delta'])} ({interval})"
    sampling_words = _sampling_words(facts, chosen_options)
    summary = (
        f"{records:,} records that follow the model, {sampling_words}: "
        f"expected delta {delta_text} at epsilon {above(epsilon)} ({basis('model')}); the worst "
        f"database has {power(facts['log10_worst_case'])}."
    )
    return _page_of(
        facts,
        chosen_options | {"epsilon": epsilon},
        title="Smoothed differential privacy",
        summary=summary,
        heading="What the model implies",
        meaning="The guarantee is an average over databases that the model draws. It holds as far "
        "as the model does.",
        figures=figures,
    )


# Elections ---------------------------------------------------------------------------------------


def _elections_page(facts: JsonObject) -> Page:
    election_rows = facts["elections"]
    heights = [max(_number(election_row["log10_upper"]), LEAST) for election_row in election_rows]
    delta_bars = Curve.of(
        "delta", [str(election_row["election"]) for election_row in election_rows], heights, "bars"
    )
    axis_labels = ("", f"log10 of delta (cut at {LEAST:g})")
    elections_figure = Figure.of(
        "elections", "delta of every election, upper bounds", axis_labels, delta_bars
    )
    column_names = ("election", "records", "log10_upper", "log10_utility", "log10_worst_case")
    shown_columns = tuple(
        column_name for column_name in column_names if column_name in election_rows[0]
    )
    table_cells = tuple(
        tuple(
            election_cell(column_name, election_row[column_name]) for column_name in shown_columns
        )
        for election_row in election_rows
    )
    worst_election = max(
        election_rows, key=lambda election_row: _number(election_row["log10_upper"])
    )
    loss_rate = facts["loss_rate"]
    epsilon_text = f"epsilon {facts['epsilon']}"
    if facts.get("ratio"):
        epsilon_text = f"e^epsilon = {facts['ratio']}"
    summary = (
        f"{len(election_rows)} elections, a share of {loss_rate} of the votes lost at random: "
        f"delta at most {power(worst_election['log10_upper'])} at {epsilon_text} "
        f"({worst_election['election']}; {basis('model')})."
    )
    revealed_section = Section(
        title="What the published counts reveal",
        words=(_MEANING,),
        figures=(elections_figure,),
        table=Table(
            headings=tuple(column_name.replace("_", " ") for column_name in shown_columns),
            rows=table_cells,
        ),
    )
    return Page(
        title="Smoothed privacy of elections", summary=summary, sections=(revealed_section,)
    )


# How to verify -----------------------------------------------------------------------------------


def _page_of(
    facts: JsonObject,
    asked: JsonObject,
    *,
    title: str,
    summary: str,
    heading: str,
    meaning: str,
    figures: tuple[Figure, ...],
) -> Page:
    """The page of one result: what it means, its facts, and the line that gives it again."""
    result = Section(
        title=heading,
        words=(str(facts["reason"]), meaning),
        figures=figures,
        table=_facts_table(facts),
    )
    arguments = {name: repr(value) for name, value in asked.items() if value is not False}
    if "distributions" in asked:
        arguments["distributions"] = "[...]"
    argument_text = ", ".join(f"{name}={value}" for name, value in arguments.items())
    function = {"gradients": "expected_gradients"}.get(facts["verb"], facts["verb"])
    instruction = f">>> import mezzotint as mz\n>>> mz.smoothed.{function}({argument_text})"
    if facts["verb"] == "own":  # a function in a file has no name in an expression
        instruction = _command(_asked(facts)[0])
    check = Section(
        title="How to verify it",
        words=(
            "The values are exact sums of rationals, or bounds of them. This gives them again:",
        ),
        code=instruction,
    )
    return Page(title=title, summary=summary, sections=(result, check))


def _command(asked: JsonObject) -> str:
    """The command line that gives a result again."""
    command_words = ["mezzotint", "smoothed", "own"]
    for option_name, option_value in asked.items():
        command_words.append(f"--{option_name.replace('_', '-')}")
        command_words.append(shlex.quote(_typed(option_value)))
    return " ".join(command_words)


def _typed(value: Any) -> str:
    """A value as it is typed: lists by commas, lists of lists by semicolons."""
    if not isinstance(value, list):
        return str(value)
    separator = ";" if isinstance(value[0], list) else ","
    return separator.join(map(_typed, value))


PAGES: dict[str, Callable[[JsonObject], Page]] = {
    "profile": _profile_page,
    "utility": _utility_page,
    "expected": _expected_page,
    "own": _expected_page,
    "gradients": _expected_page,
    "elections": _elections_page,
}
