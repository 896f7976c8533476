"""`mezzotint compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.common import Lower, PriorOption, Upper
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, option
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Json, JsonObject, above, number

DEFAULT_BITS = 2

TRADEOFF = (0.5, 1.0, 1.5, 2.5, 4.0)
"""Epsilons of the trade-off, relative to --epsilon."""

GREATEST_EPSILON = 8.0
"""Beyond this, there is hardly any noise left to trade."""

EXAMPLE = "mezzotint compare --epsilon 1 --bits 2 --json"

COMPARED = "What is compared"

DATA_COLUMNS = ("family", "epsilon", "bits", "mse", "mae", "limit")

FIGURE_ENDINGS = (".png", ".svg", ".pdf")

PRECISION = 0.05
"""Half width of a 95 % interval of the mean, over the range: what people are counted for."""

_COLUMNS = (
    "mse",
    "mae",
    "worst",
    "cdf",
    "max_bias",
    "bits",
    "epsilon",
    "above_limit",
    "people",
    "note",
)


def command(
    epsilon: Annotated[float, option("Pure epsilon of a report, for all.", panel=COMPARED)],
    bits: Annotated[int | None, option("Of a report: 2**bits levels.", panel=COMPARED)] = None,
    levels: Annotated[
        str | None, option("Their number, or the levels; or --bits.", panel=COMPARED)
    ] = None,
    lower: Lower = -1.0,
    upper: Upper = 1.0,
    prior: PriorOption = None,
    mechanism: Annotated[
        list[Path] | None, option("Mechanism file to compare; repeatable.", panel=COMPARED)
    ] = None,
    every: Annotated[
        bool, option("Add mechanisms with continuous outputs.", "--all", panel=COMPARED)
    ] = False,
    figure: Annotated[
        Path | None,
        option("Plot MSE against epsilon (.png, .svg, .pdf).", "--figure", panel=OUTPUT),
    ] = None,
    data: Annotated[Path | None, option("Write the plotted numbers (.csv).", panel=OUTPUT)] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare mechanisms at the same certified epsilon and number of bits."""
    common.refuse_outputs(*FIGURE_ENDINGS, overwrite=overwrite, figure=figure)
    common.refuse_outputs(".csv", overwrite=overwrite, data=data)
    if bits is not None and levels is not None:
        raise ParameterError("bits", bits, "give --bits or --levels, not both")
    size: JsonObject = {"bits": DEFAULT_BITS}
    if bits is not None:
        size = {"bits": bits}
    if levels is not None:
        size = {"levels": common.parse_levels(levels)}
    sample = common.read_prior(prior, lower, upper)
    problem: JsonObject = {"epsilon": epsilon, "lower": lower, "upper": upper, "prior": sample}
    families = _families(mechanism or (), every=every)
    with progress.bar("designing", len(families)) as report_progress:
        comparisons = mz.design.compare(
            families=families, progress=report_progress, **problem, **size
        )
    json_fields = [_facts(comparison, epsilon, lower, upper) for comparison in comparisons]
    points = []
    if figure is not None or data is not None:
        points = _points(comparisons, epsilon=epsilon, lower=lower, upper=upper, prior=sample)
    if figure is not None:
        _draw(points, figure, overwrite=overwrite, lower=lower, upper=upper)
    if data is not None:
        rows = [{column: point.get(column) for column in DATA_COLUMNS} for point in points]
        tables.write_table(rows, data, overwrite=overwrite, parameter="data")
    results = {"epsilon_asked": epsilon, "lower": lower, "upper": upper, **size}
    results["mechanisms"] = json_fields
    if points:
        results["tradeoff"] = points
    console.show(
        results,
        as_json,
        lambda: [_table(json_fields, epsilon, lower, upper), _MEANING],
    )


def _families(files: Sequence[Path], *, every: bool) -> list[str | Mechanism]:
    """What is compared: families by name, and tables from files."""
    with progress.busy("loading the solvers"):
        from mezzotint.design.comparison import BASELINES, FAMILIES

    families: list[str | Mechanism] = [*FAMILIES]
    if every:
        families += BASELINES
    names = [file.name for file in files]
    if len(set(names)) < len(names):
        names = [str(file) for file in files]
    for file, name in zip(files, names, strict=True):
        # By its file: a design of one's own has the name of its family, which is compared too.
        table = common.load_mechanism(file)
        families.append(Mechanism.of(table, name=name))
    return families


def _facts(comparison: mz.design.Row, epsilon: float, lower: float, upper: float) -> JsonObject:
    """What is printed of a row; one of a larger epsilon than was asked for says so."""
    json_fields: JsonObject = {**comparison.as_dict(), "people": _people(comparison, lower, upper)}
    if json_fields["epsilon"] is not None and float(json_fields["epsilon"]) > epsilon:
        _add_remark(json_fields, "its epsilon is above the one asked for")
    return json_fields


def _add_remark(comparison: JsonObject, remark: str) -> None:
    """Put a remark behind the row's note."""
    if comparison["note"]:
        remark = f"{comparison['note']}; {remark}"
    comparison["note"] = remark


def _table(
    json_fields: list[JsonObject], epsilon: float, lower: float, upper: float
) -> tables.TerminalTable:
    stated = [comparison for comparison in json_fields if comparison["epsilon"] is not None]
    certified = any(comparison["certified"] for comparison in stated)
    for comparison in stated:
        if certified and not comparison["certified"]:
            _add_remark(comparison, "epsilon computed")
    exceeding = any(float(comparison["epsilon"]) > epsilon for comparison in stated)
    exception = ""
    if exceeding:
        exception = ", but where a note says otherwise"
    basis = mz.privacy.basis(certified=certified)
    title = f"epsilon at most {epsilon:g}{exception} ({basis}), inputs in [{lower:g}, {upper:g}]"
    columns = (
        "mechanism",
        *(column_name.replace("above_limit", "% above limit") for column_name in _COLUMNS),
    )
    table_rows = []
    for comparison in json_fields:
        # Infinities are text in facts, as JSON has none.
        cells = [_cell(column, comparison[column]) for column in _COLUMNS[:-1]]
        table_rows.append((comparison["family"], *cells, comparison["note"]))
    return tables.TerminalTable(columns, table_rows, left=("mechanism", "note"), title=title)


def _cell(column: str, value: Json) -> str:
    """A number; infinities are text in rows, as JSON has none."""
    if value is None:
        return number(None)
    if column == "epsilon":
        return above(float(cast(str | float, value)))
    return number(float(cast(str | float, value)))


_MEANING = (
    "Errors of one report, in data units (squared for mse and worst). mse and mae: averages over "
    "inputs; worst: mse at the worst input; cdf: error of the distribution function times the root "
    "of the number of reports; max_bias: largest bias at any input; people: for a 95 % interval of "
    "the mean of +-5 % of the range, whatever the inputs. The worst inputs lie half at each end, "
    "and their spread widens the reports of every table but those of one bit, so the least mse may "
    "take more people than one bit: mezzotint plan --inputs counts people for inputs like yours. % "
    "above limit: mse above the limit for unbiased mechanisms of the epsilon asked for, of a file "
    "of the epsilon in its row, with any number of bits."
)


def _people(comparison: mz.design.Row, lower: float, upper: float) -> int | None:
    """People for an interval of the mean of +-PRECISION of the range; None where no number is
    enough.
    """
    if comparison.mechanism is None:
        return None
    try:
        return mz.collect.people_for(comparison.mechanism, PRECISION * (upper - lower))
    except InfeasibleError:
        return None


def _points(
    comparisons: Sequence[mz.design.Row], *, epsilon: float, **problem: Any
) -> list[JsonObject]:
    """MSE against epsilon around the one requested, and of what was compared at its own epsilon."""
    epsilons = [epsilon * factor for factor in TRADEOFF if epsilon * factor <= GREATEST_EPSILON]
    with progress.bar("trade-off") as report_progress:
        points = mz.design.tradeoff(
            epsilons=epsilons or [epsilon], bits=(1, 2, 3), progress=report_progress, **problem
        )
    compared = [
        {
            "family": comparison.family,
            "epsilon": comparison.epsilon,
            "bits": comparison.bits,
            "mse": comparison.mse,
            "mae": comparison.mae,
        }
        for comparison in comparisons
        if comparison.mse is not None and comparison.epsilon is not None
    ]
    return [*points, *compared]


def _draw(
    points: list[JsonObject], path: Path, *, overwrite: bool, lower: float, upper: float
) -> None:
    title = f"MSE against epsilon, inputs on [{lower:g}, {upper:g}]"
    drawing = mz.report.sheet([mz.report.tradeoff_figure(points)], title=title)
    common.write_drawing(drawing, path, overwrite=overwrite, parameter="figure")
