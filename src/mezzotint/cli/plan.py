"""`mezzotint plan`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, below, confidence_percent, number

if TYPE_CHECKING:
    from mezzotint.collect.plans import Plan

EXAMPLE = (
    "mezzotint plan --estimand share --above 140 --epsilon 1 --lower 20 --upper 700 --people 40000"
)

FIGURE_ENDINGS = (".png", ".svg", ".pdf")

CURVES = (0.5, 1.0, 2.0, 4.0)
"""Epsilons of the figure, relative to that of the plan."""

POINTS = 9
"""Numbers of people of each curve, over two decades around that of the plan."""

Estimand = Literal[
    "mean", "share", "frequency", "quantile", "difference", "slope", "total", "cell", "hitters"
]
Family = Literal["rqm", "erm", "pbm", "randomized_response", "k_randomized_response"]

QUESTION, SIZE = "Question", "Two of people, epsilon and half width"
PEOPLE, REPORTS = "What is known of the people", "Reports"


@final
@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of the verb."""

    estimand: Annotated[Estimand, option("What to estimate:", panel=QUESTION)] = "mean"
    above: Annotated[float | None, option("share: of the inputs above this.", panel=QUESTION)] = (
        None
    )
    probability: Annotated[float | None, option("quantile: in (0, 1).", panel=QUESTION)] = None
    categories: Annotated[
        str | None, option("Number of categories; cell: of both columns, 4,3.", panel=QUESTION)
    ] = None
    confidence: Annotated[
        float, option("Confidence of the interval, in (0, 1).", panel=QUESTION)
    ] = 0.95
    simultaneous: Annotated[
        bool, option("Of all categories or cells at once.", "--simultaneous", panel=QUESTION)
    ] = False
    epsilon: Annotated[
        float | None, option("Budget of a person over all columns and waves.", panel=SIZE)
    ] = None
    people: Annotated[int | None, option("People who give reports.", panel=SIZE)] = None
    half_width: Annotated[
        float | None, option("Half width of the interval, in its unit.", panel=SIZE)
    ] = None
    effect: Annotated[float | None, option("difference: the one to be seen.", panel=SIZE)] = None
    power: Annotated[float | None, option("difference: chance to see it.", panel=SIZE)] = None
    share: Annotated[
        float | None, option("Anticipated share; by default the hardest.", panel=PEOPLE)
    ] = None
    inputs: Annotated[
        str | None,
        option(
            "Public column like the inputs; by default the hardest.",
            metavar="FILE:COLUMN",
            panel=PEOPLE,
        ),
    ] = None
    second: Annotated[
        str | None,
        option("That of the second group or column.", metavar="FILE:COLUMN", panel=PEOPLE),
    ] = None
    first_share: Annotated[float, option("difference: share of the first group.", panel=PEOPLE)] = (
        0.5
    )
    population: Annotated[
        int | None, option("total: people of whom a sample is asked.", panel=PEOPLE)
    ] = None
    lower: common.Lower = 0.0
    upper: common.Upper = 1.0
    levels: Annotated[
        int | None, option("Levels of the table, 2 or 4; quantile: cells, 4.", panel=REPORTS)
    ] = None
    mechanism: Annotated[
        Path | None, option("Table to use; its epsilon is a report's.", panel=REPORTS)
    ] = None
    family: Annotated[
        Family | None, option("Kind of table, in place of the best:", panel=REPORTS)
    ] = None
    columns: Annotated[int, option("Questions about a person in a wave.", panel=REPORTS)] = 1
    waves: Annotated[int, option("Waves of the same people.", panel=REPORTS)] = 1
    distinct: Annotated[
        int | None, option("Most values of a person over the waves, memoised.", panel=REPORTS)
    ] = None
    figure: Annotated[
        Path | None, option("Plot half widths against people (.png, .svg, .pdf).", panel=OUTPUT)
    ] = None
    out: Annotated[Path | None, option("Write the table of a report (.json).", panel=OUTPUT)] = None
    overwrite: Overwrite = False
    as_json: AsJson = False


def command(options: PlanOptions) -> None:
    """Plan before collecting: people, epsilon or half width, from the other two."""
    common.refuse_outputs(*FIGURE_ENDINGS, overwrite=options.overwrite, figure=options.figure)
    common.refuse_outputs(".json", overwrite=options.overwrite, out=options.out)
    if options.mechanism is not None and options.family is not None:
        raise ParameterError("family", options.family, "give --mechanism or --family, not both")
    if options.out is not None and options.estimand == "hitters":
        remedy = "privatize --domain makes the table of heavy hitters; leave it out"
        raise ParameterError("out", str(options.out), remedy)
    if options.family is not None and options.categories is not None:
        remedy = (
            "families are tables of numbers, and categories have one of their own; leave it out"
        )
        raise ParameterError("family", options.family, remedy)
    planned = _planned(options)
    if options.out is not None:
        planned.mechanism.save(options.out, overwrite=options.overwrite)
    table_file = options.mechanism or options.out
    next_command = next_step(planned, mechanism=table_file, family=options.family)
    if options.figure is not None:
        _draw(planned, options.figure, overwrite=options.overwrite)
    claim = mz.privacy.report_claim(planned.mechanism)
    json_fields = {**planned.as_dict(), **claim.standing, "command": next_command}
    console.show(
        json_fields,
        options.as_json,
        lambda: [_picture(planned, claim.basis), *_words(planned, next_command)],
    )


PASSED_ON = (
    *("epsilon", "people", "half_width", "effect", "power", "confidence", "simultaneous"),
    *("lower", "upper", "levels", "above", "probability", "share", "first_share"),
    *("population", "columns", "waves", "distinct"),
)
"""Options that the library takes as they are."""


def _planned(options: PlanOptions) -> Plan:
    """The plan, by the library."""
    table = _table(options)
    with progress.busy("planning") as report_progress:
        return mz.collect.plan(
            options.estimand,
            mechanism=table,
            categories=_counts(options.categories),
            inputs=common.read_public(options.inputs, parameter="inputs"),
            second=common.read_public(options.second, parameter="second"),
            **common.picked(options, *PASSED_ON),
            progress=lambda people, epsilon: report_progress(
                f"{people:,} people, epsilon {epsilon:.4g}"
            ),
        )


def _counts(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(count) for count in text.split(","))
    except ValueError:
        raise ParameterError(
            "categories", text, "give numbers of categories, as in 10 or 4,3"
        ) from None


def _table(options: PlanOptions) -> Mechanism | Callable[[float], Mechanism] | None:
    """The table that was named, or what makes one for an epsilon; None for the best."""
    family = options.family
    if options.mechanism is not None:
        return common.load_mechanism(options.mechanism)
    if family is None:
        return None
    levels = options.levels
    if family == "randomized_response":
        levels = None

    def calibrated(epsilon: float) -> Mechanism:
        return mz.design.calibrate(
            family, epsilon=epsilon, levels=levels, lower=options.lower, upper=options.upper
        ).mechanism

    return calibrated


def next_step(planned: Plan, *, mechanism: Path | None, family: str | None) -> str:
    """The command that comes after the plan: it uses the table of a report, or makes it."""
    question = planned.question
    epsilon = f"--epsilon {below(planned.report_epsilon)}"
    if planned.estimand == "hitters":
        return (
            f"mezzotint privatize data.csv --column NAME --domain names.txt {epsilon} --out "
            "reports.csv"
        )
    if mechanism is not None:
        file = shlex.quote(str(mechanism))
        return f"mezzotint privatize data.csv --column NAME --mechanism {file} --out reports.csv"
    span = f"--lower={question.lower:.12g} --upper={question.upper:.12g}"
    if planned.estimand in ("frequency", "cell"):
        design_commands: list[str] = []
        for column, count in enumerate(question.categories, start=1):
            names = ",".join(f"NAME{position}" for position in range(1, min(3, count) + 1))
            if count > 3:
                names += ",..."
            file = "m.json" if len(question.categories) == 1 else f"m{column}.json"
            design_commands.append(f"mezzotint design {epsilon} --categories {names} --out {file}")
        return " && ".join(design_commands)
    levels = question.levels
    if family is not None:
        design_command = f"mezzotint design --family {family} {epsilon} {span}"
        if family != "randomized_response":
            design_command += f" --levels {levels}"
        return f"{design_command} --out m.json"
    if planned.estimand == "share":
        options = f"--estimand share --above {question.above:.12g} --people {planned.people}"
        return f"mezzotint plan {options} {epsilon} {span} --out m.json"
    if planned.estimand == "quantile":
        sizes = f"--knots {levels + 1} --levels {2 * levels}"
        return f"mezzotint design --loss cdf {epsilon} {span} {sizes} --out m.json"
    return f"mezzotint design {epsilon} {span} --levels {levels} --out m.json"


def _picture(planned: Plan, basis: str) -> tables.TerminalTable:
    people = f"{planned.people:,} people"
    if planned.people == 1:
        people = "1 person"
    title = f"{planned.estimand}: {people}, epsilon {above(planned.epsilon)} each in all ({basis})"
    columns = ("way of asking", "epsilon of a report", "people per question", "half width")
    table_rows = [
        (
            option.strategy,
            above(option.report_epsilon),
            f"{math.floor(option.people):,}",
            above(option.half_width),
        )
        for option in planned.options
    ]
    return tables.TerminalTable(columns, table_rows, left=("way of asking",), title=title)


def _spread(planned: Plan) -> str:
    """How realised half widths lie around the planned one."""
    if planned.estimand == "quantile":
        return "realised ones move in steps of the table's cells, mostly at or below it"
    return "half of the realised ones are wider, one in twenty by 1 to 10 %"


def _words(planned: Plan, next_command: str) -> list[str]:
    sentences = [
        f"Half width of the {confidence_percent(planned.confidence)} interval, predicted by the "
        f"estimator on expected counts for {planned.assumption}: {_spread(planned)}."
    ]
    if planned.identified:
        sentences.append(
            f"Of it {above(planned.identified)} is left open by the table, however many people are "
            "asked."
        )
    if planned.power is not None:
        sentences.append(
            f"Power to see a difference of {number(planned.effect)}: {planned.power:.3f}."
        )
    ways = {option.strategy for option in planned.options}
    if "lot" in ways:
        sentences.append(
            "A lot gives each person one question, drawn publicly by person, not by row (mezzotint "
            "privatize --lot ID --question 1/W --lot-name NAME); pairs of answers of one person "
            "are lost."
        )
    if "memoised" in ways:
        sentences.append(
            "Memoised reports hold for people whose values change at the same times; enforce the "
            "number of distinct values, and note that a ledger charges every run."
        )
    return [*sentences, f"Next: {next_command}"]


def _draw(planned: Plan, path: Path, *, overwrite: bool) -> None:
    """Half widths against people, a curve for each epsilon of a report."""
    import numpy as np

    from mezzotint.collect.plans import half_widths

    answering = planned.options[0].people
    people = np.unique(np.geomspace(max(1.0, answering / 10), answering * 10, POINTS).round())
    factors = CURVES
    if isinstance(planned.question.tables, Mechanism):
        factors = (1.0,)
    curves = []
    with progress.bar("half widths", len(factors)) as report_progress:
        for count, factor in enumerate(factors, start=1):
            epsilon = planned.report_epsilon * factor
            widths = half_widths(planned.question, epsilon, people)
            curves.append(mz.report.Curve.of(f"epsilon {epsilon:.3g}", people, widths))
            report_progress(count, len(factors))
    half_width_figure = mz.report.Figure.of(
        "plan",
        f"Half width of the {confidence_percent(planned.confidence)} interval: {planned.estimand}",
        ("people per question", "half width"),
        *curves,
        log="xy",
    )
    common.write_drawing(
        mz.report.sheet([half_width_figure]), path, overwrite=overwrite, parameter="figure"
    )
