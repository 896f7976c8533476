"""Mechanisms to choose from: every family at one epsilon and size, and how to make each."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, final

import mezzotint as mz
from mezzotint.collect.plans import half_widths
from mezzotint.collect.questions import USUAL_CONFIDENCE, Question
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Record, above, confidence_percent, number
from mezzotint.report.contents import Curve, Figure, Table
from mezzotint.report.mechanism_pages import NAMES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LOSSES = {"optm": "mae"}
"""Families that minimise another loss than the mean squared error."""

_PERCENTAGE = confidence_percent(USUAL_CONFIDENCE)
"""Of the intervals on the page."""


@final
@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is known before collecting.

    Arguments:
        epsilon, bits: of one report.
        lower, upper: range of the inputs, data units.
        people: who give one report each.
        prior: FILE:COLUMN of public data that inputs are like, or "" for uniform.

    Example:
        >>> from mezzotint.report.choices import Situation
        >>> Situation(epsilon=1.0, bits=1, lower=0.0, upper=10.0, people=1000).prior
        ''
    """

    epsilon: float
    bits: int
    lower: float
    upper: float
    people: int
    prior: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Choice(Record):
    """A mechanism for a situation.

    Arguments:
        name: of its family.
        mse, mae, max_bias: of one report, under the situation's prior; data units, squared for the
            first.
        half_width: of the interval of the mean at `USUAL_CONFIDENCE`, in data units, at the inputs
            for which it is widest.
        command: the line that makes it.
        mechanism: the table.
    """

    name: str
    mse: float
    mae: float
    max_bias: float
    half_width: float
    command: str
    mechanism: Mechanism


@lru_cache(maxsize=64)
def choices(situation: Situation) -> tuple[Choice, ...]:
    """Every family calibrated to the same certified epsilon, unbiased ones first, least mean
    squared error first.

    Raises:
        ParameterError: a value out of its range; a prior that is no FILE:COLUMN.

    Example:
        >>> from mezzotint.report.choices import Situation, choices
        >>> found = choices(Situation(epsilon=1.0, bits=1, lower=0.0, upper=10.0, people=1000))
        >>> found[0].half_width < 1.0
        True
    """
    prior = None
    if situation.prior:
        prior = public_sample(situation.prior, "prior")
    compared_rows = mz.design.compare(
        epsilon=situation.epsilon,
        bits=situation.bits,
        lower=situation.lower,
        upper=situation.upper,
        prior=prior,
    )
    calibrated_choices = []
    for compared_row in compared_rows:
        if compared_row.mechanism is None or compared_row.mse is None or compared_row.mae is None:
            continue
        calibrated_choices.append(
            Choice(
                name=NAMES[compared_row.family],
                mse=compared_row.mse,
                mae=compared_row.mae,
                max_bias=compared_row.mechanism.max_bias,
                half_width=_half_width(compared_row.mechanism, situation),
                command=_command(compared_row.family, situation),
                mechanism=compared_row.mechanism,
            )
        )
    return tuple(calibrated_choices)


def public_sample(named: str, parameter: str) -> npt.NDArray[np.floating]:
    """The numbers of a column that is named as FILE:COLUMN.

    Raises:
        ParameterError: of this parameter, whatever is wrong with file or column.
    """
    path, _separator, column = named.rpartition(":")
    if not path or not column:
        raise ParameterError(parameter, named, "give FILE:COLUMN, as in public.parquet:age")
    try:
        return mz.collect.read_values(path, column=column)
    except ParameterError as error:
        raise ParameterError(parameter, named, error.remedy) from None


def _half_width(mechanism: Mechanism, situation: Situation) -> float:
    """As `collect.plan` predicts it."""
    mean_question = Question(
        estimand="mean", tables=mechanism, lower=situation.lower, upper=situation.upper
    )
    return float(half_widths(mean_question, mechanism.epsilon, [situation.people])[0])


def _command(family: str, situation: Situation) -> str:
    command_words = [
        "mezzotint",
        "design",
        "--family",
        family,
        "--epsilon",
        repr(situation.epsilon),
    ]
    if family != "randomized_response":
        command_words += ["--levels", str(2**situation.bits)]
    command_words += [f"--lower={situation.lower!r}", f"--upper={situation.upper!r}"]
    if family in LOSSES:
        command_words += ["--loss", LOSSES[family]]
    if situation.prior:
        command_words += ["--prior", situation.prior]
    return shlex.join([*command_words, "--out", "m.json"])


def table(chosen: tuple[Choice, ...]) -> Table:
    """The choices with their errors and half widths."""
    headings = (
        "mechanism",
        "MSE (squared data units)",
        "MAE (data units)",
        "greatest bias (data units)",
        f"{_PERCENTAGE} half width of the mean (data units)",
    )
    table_rows = []
    for choice in chosen:
        error_cells = (number(choice.mse), number(choice.mae), number(choice.max_bias, 2))
        table_rows.append((choice.name, *error_cells, above(choice.half_width, 4)))
    return Table(headings=headings, rows=tuple(table_rows), own=0)


def errors(chosen: tuple[Choice, ...]) -> Figure:
    """Mean squared errors side by side."""
    mechanism_names = [choice.name for choice in chosen]
    error_bars = Curve.of(
        "mean squared error", mechanism_names, [choice.mse for choice in chosen], "bars"
    )
    return Figure.of("errors", "Error of one report", ("", "MSE (squared data units)"), error_bars)


def widths(choice: Choice, situation: Situation) -> Figure:
    """Half width of the interval of the mean against the number of people, for one choice."""
    people_counts = [
        max(10, round(situation.people * 10 ** (grid_step / 8))) for grid_step in range(-12, 13)
    ]
    mean_question = Question(
        estimand="mean", tables=choice.mechanism, lower=situation.lower, upper=situation.upper
    )
    interval_widths = half_widths(mean_question, choice.mechanism.epsilon, people_counts).tolist()
    width_curve = Curve.of(choice.name, people_counts, interval_widths)
    figure_title = f"Half width of the {_PERCENTAGE} interval of the mean: {choice.name}"
    return Figure.of(
        "widths", figure_title, ("people", "half width (data units)"), width_curve, log="xy"
    )


def distribution(choice: Choice) -> Figure:
    """Probabilities of the levels at both ends and in the middle of the range."""
    mechanism = choice.mechanism
    middle_input = (mechanism.lower + mechanism.upper) / 2
    level_values = mechanism.levels.tolist()
    probability_bars = [
        Curve.of(
            f"input {input_value:.4g}", level_values, mechanism.pmf(input_value).tolist(), "bars"
        )
        for input_value in (mechanism.lower, middle_input, mechanism.upper)
    ]
    figure_title = f"Distribution of a report: {choice.name}"
    axis_labels = ("decoded report (data units)", "probability")
    return Figure.of("distribution", figure_title, axis_labels, *probability_bars)
