"""`mezzotint compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Lower, Options, Overwrite, PriorOption, Upper, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.records import JsonObject, number

TRADEOFF = (0.5, 1.0, 1.5, 2.5, 4.0)
"""Epsilons of the trade-off, relative to --epsilon."""

GREATEST_EPSILON = 8.0
"""Beyond this, there is hardly any noise left to trade."""

EXAMPLE = "mezzotint compare --epsilon 1 --bits 2 --json"

_COLUMNS = ("mse", "mae", "worst", "cdf", "max_bias", "bits", "epsilon", "above_limit", "note")


def command(
    epsilon: Annotated[float, option("Pure epsilon of one report, the same for every mechanism.")],
    bits: Annotated[int | None, option("Bits per report: 2**bits levels.")] = None,
    levels: Annotated[
        str | None, option("Number of levels, or the levels themselves, instead of --bits.")
    ] = None,
    lower: Lower = -1.0,
    upper: Upper = 1.0,
    prior: PriorOption = None,
    png: Annotated[
        Path | None, option("Also plot MSE against epsilon for 1, 2 and 3 bits to this PNG file.")
    ] = None,
    data: Annotated[Path | None, option("Also write the plotted numbers to this CSV file.")] = None,
    every: Annotated[
        bool, option("Include further mechanisms, some with continuous outputs.", "--all")
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare mechanisms at the same certified epsilon and number of bits."""
    common.refuse_outputs(".png", overwrite=overwrite, png=png)
    common.refuse_outputs(".csv", overwrite=overwrite, data=data)
    if bits is not None and levels is not None:
        raise ParameterError("bits", bits, "give --bits or --levels, not both")
    size: JsonObject = (
        {"levels": common.parse_levels(levels)}
        if levels is not None
        else {"bits": 2 if bits is None else bits}
    )
    sample = common.read_prior(prior, lower, upper)
    problem: Options = {"epsilon": epsilon, "lower": lower, "upper": upper, "prior": sample}
    with common.busy("loading the solvers"):
        from mezzotint.design.optimum import BASELINES, FAMILIES

        families = (*FAMILIES, *(BASELINES if every else ()))
    with common.progress("designing", len(families)) as tell:
        rows = mz.design.compare(families=families, progress=tell, **problem, **size)
    facts = [row.as_dict() for row in rows]
    points = []
    if png is not None or data is not None:
        points = _tradeoff(
            png, data, overwrite, epsilon=epsilon, lower=lower, upper=upper, prior=sample
        )
    drawn = {"tradeoff": points} if points else {}
    asked = {"epsilon_asked": epsilon, "lower": lower, "upper": upper, **size}
    common.show(
        {**asked, "mechanisms": facts, **drawn},
        as_json,
        lambda: [_table(facts, epsilon, lower, upper), _MEANING],
    )


def _table(
    facts: list[JsonObject], epsilon: float, lower: float, upper: float
) -> common.TerminalTable:
    stated = [row for row in facts if row["epsilon"] is not None]
    certified = any(row["certified"] for row in stated)
    for row in stated:
        if certified and not row["certified"]:
            row["note"] = "; ".join(filter(None, (row["note"], "epsilon computed")))
    title = f"epsilon at most {epsilon:g} ({mz.privacy.basis(certified=certified)}), inputs in [{lower:g}, {upper:g}]"
    columns = ("mechanism", *(name.replace("above_limit", "% above limit") for name in _COLUMNS))
    rows = (
        (row["family"], *(number(row[name]) for name in _COLUMNS[:-1]), row["note"])
        for row in facts
    )
    return common.TerminalTable(columns, rows, left=("mechanism", "note"), title=title)


_MEANING = (
    "Errors of one report, in data units (squared for mse and worst). mse and mae: averages over inputs; worst: mse at "
    "the worst input; cdf: error of the distribution function times the root of the number of reports; max_bias: "
    "largest bias at any input; % above limit: mse above the limit for unbiased mechanisms of that epsilon with any "
    "number of bits."
)


def _tradeoff(
    png: Path | None, data: Path | None, overwrite: bool, *, epsilon: float, **problem: Any
) -> list[JsonObject]:
    """Plots and writes MSE against epsilon around the one requested; returns the points."""
    epsilons = [
        epsilon * factor for factor in TRADEOFF if epsilon * factor <= GREATEST_EPSILON
    ] or [epsilon]
    with common.progress("trade-off") as tell:
        rows = mz.design.tradeoff(epsilons=epsilons, bits=(1, 2, 3), progress=tell, **problem)
    if png is not None:
        with replacing(png, overwrite=overwrite, parameter="png") as temporary:
            title = f"MSE against epsilon, inputs on [{problem['lower']:g}, {problem['upper']:g}]"
            mz.report.sheet([mz.report.tradeoff_figure(rows)], title=title).savefig(
                temporary, format="png"
            )
    if data is not None:
        names = list(rows[0])
        lines = [",".join(names), *(",".join(repr(row[name]) for name in names) for row in rows)]
        with replacing(data, overwrite=overwrite, parameter="data") as temporary:
            Path(temporary).write_text("\n".join(lines) + "\n")
    return rows
