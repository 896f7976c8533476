"""`mezzotint compare`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from mezzotint import design
from mezzotint.cli.common import (
    AsJson,
    Lower,
    PriorOption,
    Upper,
    number,
    output,
    parse_levels,
    print_json,
    read_prior,
    steps,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule

comparison: Any = LazyModule("mezzotint.design.compare")

EXAMPLE = "mezzotint compare --epsilon 1 --bits 2 --json"

_COLUMNS = ("mse", "mae", "max_bias", "bits", "epsilon", "above_limit", "note")


def command(
    epsilon: Annotated[float, typer.Option(help="Pure epsilon of one report that every mechanism is held to.")],
    bits: Annotated[int | None, typer.Option(help="Bits of one report: 2**bits levels.")] = None,
    levels: Annotated[
        str | None, typer.Option(help="Number of levels, or the levels themselves, instead of --bits.")
    ] = None,
    lower: Lower = -1.0,
    upper: Upper = 1.0,
    prior: PriorOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare all mechanisms calibrated to the same certified epsilon and size."""
    if bits is not None and levels is not None:
        raise ParameterError("bits", bits, "give --bits or --levels, not both")
    size: dict[str, Any] = {"levels": parse_levels(levels)} if levels is not None else {"bits": bits or 2}
    sample = read_prior(prior)
    with steps("designing", len(comparison.FAMILIES)) as done:
        rows = design.compare(
            epsilon=epsilon, lower=lower, upper=upper, prior=sample, on_row=lambda row: done(), **size
        )
    facts = [row.as_dict() for row in rows]
    if as_json:
        print_json({"epsilon": epsilon, "lower": lower, "upper": upper, **size, "mechanisms": facts})
        return
    table = Table(title=f"epsilon at most {epsilon:g}, inputs in [{lower:g}, {upper:g}]", title_justify="left")
    table.add_column("mechanism")
    for name in _COLUMNS:
        table.add_column(name.replace("above_limit", "% above limit"), justify="left" if name == "note" else "right")
    for row in facts:
        numbers = [number(row[name]) for name in _COLUMNS[:-1]]
        table.add_row(row["family"], *numbers, row["note"])
    output().print(table)
