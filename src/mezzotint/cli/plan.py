"""`mezzotint plan`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Confidence, Overwrite, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, below, number

if TYPE_CHECKING:
    from mezzotint.collect.plans import Estimand, Plan

EXAMPLE = (
    "mezzotint plan --estimand share --above 140 --epsilon 1 --lower 20 --upper 700 --people 40000"
)

FIGURE_ENDINGS = (".png", ".svg", ".pdf")

CURVES = (0.5, 1.0, 2.0, 4.0)
"""Epsilons of the figure, relative to that of the plan."""

POINTS = 9
"""Numbers of people of each curve, over two decades around that of the plan."""

Sample = Annotated[
    str | None,
    option(
        "Public column distributed like the inputs; default: the inputs of the widest interval.",
        metavar="FILE:COLUMN",
    ),
]


def command(
    estimand: Annotated[
        str,
        option(
            "mean, share, frequency, quantile, difference, slope, total, cell or hitters.",
        ),
    ] = "mean",
    epsilon: Annotated[
        float | None, option("Budget of one person over all columns and waves.")
    ] = None,
    people: Annotated[int | None, option("People who give reports.")] = None,
    half_width: Annotated[
        float | None, option("Half the width that the interval may have, in its unit.")
    ] = None,
    effect: Annotated[
        float | None, option("Difference that is to be seen, for --estimand difference.")
    ] = None,
    power: Annotated[float | None, option("Chance to see the --effect.")] = None,
    confidence: Confidence = 0.95,
    simultaneous: Annotated[
        bool,
        option("Make the confidence that of all categories or cells at once.", "--simultaneous"),
    ] = False,
    lower: common.Lower = 0.0,
    upper: common.Upper = 1.0,
    levels: Annotated[int, option("Levels of the best table; cells of that for quantiles.")] = 4,
    categories: Annotated[
        str | None, option("Number of categories; of both columns of a cell, as in 4,3.")
    ] = None,
    above: Annotated[float | None, option("Value above which the share is meant.")] = None,
    probability: Annotated[float | None, option("Of the quantile, in (0, 1).")] = None,
    share: Annotated[
        float | None,
        option("Anticipated share, frequency or cell; default: that of the widest interval."),
    ] = None,
    inputs: Sample = None,
    second: Annotated[
        str | None,
        option(
            "Public column of the second group, or of the second column of the same records.",
            metavar="FILE:COLUMN",
        ),
    ] = None,
    first_share: Annotated[float, option("Share of the people in the first of two groups.")] = 0.5,
    population: Annotated[
        int | None, option("People of whom a sample is asked, for --estimand total.")
    ] = None,
    mechanism: Annotated[
        Path | None, option("Mechanism file instead of the best table; its epsilon is a report's.")
    ] = None,
    family: Annotated[
        str | None, option("Family instead of the best table, as in mezzotint design --family.")
    ] = None,
    columns: Annotated[int, option("Questions of this kind about one person in a wave.")] = 1,
    waves: Annotated[int, option("Repeated waves of the same people.")] = 1,
    distinct: Annotated[
        int | None,
        option("Most distinct values of one person over the waves, where reports are memoised."),
    ] = None,
    figure: Annotated[
        Path | None,
        option("Also plot half widths against people for several epsilons (.png, .svg, .pdf)."),
    ] = None,
    out: Annotated[
        Path | None, option("Also write the table of a report to this mechanism file (.json).")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Plan before collecting: people, epsilon or half width, from the other two."""
    common.refuse_outputs(*FIGURE_ENDINGS, overwrite=overwrite, figure=figure)
    common.refuse_outputs(".json", overwrite=overwrite, out=out)
    if mechanism is not None and family is not None:
        raise ParameterError("family", family, "give --mechanism or --family, not both")
    table = _table(mechanism, family, lower=lower, upper=upper, levels=levels)
    with common.busy("planning"):
        planned = mz.collect.plan(
            _estimand(estimand),
            epsilon=epsilon,
            people=people,
            half_width=half_width,
            effect=effect,
            power=power,
            confidence=confidence,
            simultaneous=simultaneous,
            mechanism=table,
            lower=lower,
            upper=upper,
            levels=levels,
            categories=_counts(categories),
            above=above,
            probability=probability,
            share=share,
            inputs=common.read_public(inputs, parameter="inputs"),
            second=common.read_public(second, parameter="second"),
            first_share=first_share,
            population=population,
            columns=columns,
            waves=waves,
            distinct=distinct,
        )
    if out is not None:
        planned.mechanism.save(out, overwrite=overwrite)
    next_command = next_step(planned, mechanism=mechanism or out, family=family)
    if figure is not None:
        _draw(planned, figure, overwrite=overwrite)
    claim = mz.privacy.report_claim(planned.mechanism)
    facts = {**planned.as_dict(), **claim.standing, "command": next_command}
    common.show(
        facts, as_json, lambda: [_picture(planned, claim.basis), *_words(planned, next_command)]
    )


def _estimand(name: str) -> Estimand:
    return cast("Estimand", name)  # the plan refuses what is none


def _counts(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(
            "categories", text, "give numbers of categories, as in 10 or 4,3"
        ) from None


def _table(
    mechanism: Path | None, family: str | None, *, lower: float, upper: float, levels: int
) -> Mechanism | Callable[[float], Mechanism] | None:
    if mechanism is not None:
        return common.load_mechanism(mechanism)
    if family is None:
        return None
    size = None if family == "randomized_response" else levels

    def made(epsilon: float) -> Mechanism:
        return mz.design.calibrate(
            family, epsilon=epsilon, levels=size, lower=lower, upper=upper
        ).mechanism

    return made


def next_step(planned: Plan, *, mechanism: Path | None, family: str | None) -> str:
    """The command that comes after the plan: it uses the table of a report, or makes it."""
    question = planned.question
    epsilon = f"--epsilon {below(planned.report_epsilon)}"
    if planned.estimand == "hitters":
        return f"mezzotint privatize data.csv --column NAME --domain names.txt {epsilon} --out reports.csv"
    if mechanism is not None:
        file = shlex.quote(str(mechanism))
        return f"mezzotint privatize data.csv --column NAME --mechanism {file} --out reports.csv"
    span = f"--lower={question.lower:.12g} --upper={question.upper:.12g}"
    if planned.estimand in ("frequency", "cell"):
        count = question.categories[0]
        names = ",".join(f"NAME{place + 1}" for place in range(min(3, count)))
        more = ",..." if count > 3 else ""
        return f"mezzotint design {epsilon} --categories {names}{more} --out m.json"
    if planned.estimand == "share":
        asked = f"--estimand share --above {question.above:.12g} --people {planned.people}"
        return f"mezzotint plan {asked} {epsilon} {span} --out m.json"
    levels = question.levels
    if planned.estimand == "quantile":
        sizes = f"--knots {levels + 1} --levels {2 * levels}"
        return f"mezzotint design --loss cdf {epsilon} {span} {sizes} --out m.json"
    chosen = "" if family is None else f" --family {family}"
    return f"mezzotint design{chosen} {epsilon} {span} --levels {levels} --out m.json"


def _picture(planned: Plan, basis: str) -> common.TerminalTable:
    title = f"{planned.estimand}: {planned.people:,} people, epsilon {above(planned.epsilon)} each in all ({basis})"
    columns = ("way of asking", "epsilon of a report", "people per question", "half width")
    rows = [
        (
            option.strategy,
            number(option.report_epsilon),
            f"{option.people:,.0f}",
            number(option.half_width),
        )
        for option in planned.options
    ]
    return common.TerminalTable(columns, rows, left=("way of asking",), title=title)


def _words(planned: Plan, next_command: str) -> list[str]:
    words = [
        f"Half width at {100 * planned.confidence:g} % confidence, predicted by the estimator on expected counts for "
        f"{planned.assumption}: half of the realised ones are wider, one in twenty by 1 to 10 %."
    ]
    if planned.identified:
        words.append(
            f"Of it {number(planned.identified)} is left open by the table, however many people are asked."
        )
    if planned.power is not None:
        words.append(f"Power to see a difference of {number(planned.effect)}: {planned.power:.3f}.")
    ways = {option.strategy for option in planned.options}
    if "lot" in ways:
        words.append(
            "A lot gives each person one question, drawn publicly by person, not by row; pairs of answers of one "
            "person are lost."
        )
    if "memoised" in ways:
        words.append(
            "Memoised reports hold for people whose values change at the same times; enforce the number of distinct "
            "values, and note that a ledger charges every run."
        )
    return [*words, f"Next: {next_command}"]


def _draw(planned: Plan, path: Path, *, overwrite: bool) -> None:
    """Half widths against people, a curve for each epsilon of a report."""
    import numpy as np

    from mezzotint.collect.plans import half_widths

    answering = planned.options[0].people
    people = np.unique(np.geomspace(max(1.0, answering / 10), answering * 10, POINTS).round())
    fixed = isinstance(planned.question.tables, Mechanism)
    curves = []
    for factor in CURVES[1:2] if fixed else CURVES:
        epsilon = planned.report_epsilon * factor
        widths = half_widths(planned.question, epsilon, people)
        curves.append(mz.report.Curve.of(f"epsilon {epsilon:.3g}", people, widths))
    drawn = mz.report.Figure.of(
        "plan",
        f"Half width of the {100 * planned.confidence:g} % interval: {planned.estimand}",
        ("people per question", "half width"),
        *curves,
        log="xy",
    )
    common.write_drawing(mz.report.sheet([drawn]), path, overwrite=overwrite, parameter="figure")
