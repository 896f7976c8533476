"""Mechanisms to choose from: every family at one epsilon and size, and how to make each."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, final

import mezzotint as mz
from mezzotint.collect.plans import Question as Estimate
from mezzotint.collect.plans import half_widths
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Record, above, number
from mezzotint.report.contents import Curve, Figure, Table
from mezzotint.report.mechanism_pages import NAMES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LOSSES = {"optm": "mae"}
"""Families that minimise another loss than the mean squared error."""


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
        half_width: of the 95 % interval of the mean, in data units, at the inputs for which it is
            widest.
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
    """Every family calibrated to the same certified epsilon, least mean squared error first.

    Raises:
        ParameterError: a value out of its range; a prior that is no FILE:COLUMN.

    Example:
        >>> from mezzotint.report.choices import Situation, choices
        >>> found = choices(Situation(epsilon=1.0, bits=1, lower=0.0, upper=10.0, people=1000))
        >>> found[0].half_width < 1.0
        True
    """
    rows = mz.design.compare(
        epsilon=situation.epsilon,
        bits=situation.bits,
        lower=situation.lower,
        upper=situation.upper,
        prior=_sample(situation.prior),
    )
    chosen = []
    for row in rows:
        if row.mechanism is None or row.mse is None or row.mae is None:
            continue
        chosen.append(
            Choice(
                name=NAMES[row.family],
                mse=row.mse,
                mae=row.mae,
                max_bias=row.mechanism.max_bias,
                half_width=_half_width(row.mechanism, situation),
                command=_command(row.family, situation),
                mechanism=row.mechanism,
            )
        )
    return tuple(chosen)


def _sample(prior: str) -> npt.NDArray[np.floating] | None:
    if not prior:
        return None
    path, _, column = prior.rpartition(":")
    if not path or not column:
        raise ParameterError("prior", prior, "give FILE:COLUMN, as in public.parquet:age")
    return mz.collect.read_values(path, column=column)


def _half_width(mechanism: Mechanism, situation: Situation) -> float:
    """As `collect.plan` predicts it."""
    mean = Estimate(estimand="mean", tables=mechanism, lower=situation.lower, upper=situation.upper)
    return float(half_widths(mean, mechanism.epsilon, [situation.people])[0])


def _command(family: str, situation: Situation) -> str:
    words = ["mezzotint", "design", "--family", family, "--epsilon", repr(situation.epsilon)]
    if family != "randomized_response":
        words += ["--levels", str(2**situation.bits)]
    words += [f"--lower={situation.lower!r}", f"--upper={situation.upper!r}"]
    if family in LOSSES:
        words += ["--loss", LOSSES[family]]
    if situation.prior:
        words += ["--prior", situation.prior]
    return shlex.join([*words, "--out", "m.json"])


def table(chosen: tuple[Choice, ...]) -> Table:
    """The choices with their errors and half widths."""
    headings = (
        "mechanism",
        "MSE (squared data units)",
        "MAE (data units)",
        "greatest bias (data units)",
        "95 % half width of the mean (data units)",
    )
    rows = []
    for choice in chosen:
        errors = (number(choice.mse), number(choice.mae), number(choice.max_bias, 2))
        rows.append((choice.name, *errors, above(choice.half_width, 4)))
    return Table(headings=headings, rows=tuple(rows), own=0)


def errors(chosen: tuple[Choice, ...]) -> Figure:
    """Mean squared errors side by side."""
    names = [choice.name for choice in chosen]
    bars = Curve.of("mean squared error", names, [choice.mse for choice in chosen], "bars")
    return Figure.of("errors", "Error of one report", ("", "MSE (squared data units)"), bars)


def widths(choice: Choice, situation: Situation) -> Figure:
    """Half width of the interval of the mean against the number of people, for one choice."""
    people = [max(10, round(situation.people * 10 ** (step / 8))) for step in range(-12, 13)]
    mean = Estimate(
        estimand="mean", tables=choice.mechanism, lower=situation.lower, upper=situation.upper
    )
    widths = half_widths(mean, choice.mechanism.epsilon, people).tolist()
    curve = Curve.of(choice.name, people, widths)
    title = f"Half width of the 95 % interval of the mean: {choice.name}"
    return Figure.of("widths", title, ("people", "half width (data units)"), curve, log="xy")


def distribution(choice: Choice) -> Figure:
    """Probabilities of the levels at both ends and in the middle of the range."""
    mechanism = choice.mechanism
    middle = (mechanism.lower + mechanism.upper) / 2
    levels = mechanism.levels.tolist()
    bars = [
        Curve.of(f"input {at:.4g}", levels, mechanism.pmf(at).tolist(), "bars")
        for at in (mechanism.lower, middle, mechanism.upper)
    ]
    title = f"Distribution of a report: {choice.name}"
    axes = ("decoded report (data units)", "probability")
    return Figure.of("distribution", title, axes, *bars)
