"""`mezzotint privatize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from mezzotint import collect
from mezzotint.cli.common import AsJson, Overwrite, load_mechanism, notices, output, print_json, progress, warn
from mezzotint.core.errors import ParameterError

EXAMPLE = "mezzotint privatize in.parquet --column x --mechanism m.json --out reports.parquet"


def command(
    source: Annotated[str, typer.Argument(help=".parquet, .csv or .csv.gz; - reads CSV from standard input.")],
    column: Annotated[str, typer.Option(help="Column of numbers to privatize.")],
    mechanism: Annotated[Path, typer.Option(help="Mechanism file (.json).")],
    out: Annotated[str, typer.Option(help=".parquet, .csv or .csv.gz; - writes CSV to standard output.")],
    keep: Annotated[
        list[str] | None, typer.Option(help="Another column to copy, unprotected; may be repeated.")
    ] = None,
    missing: Annotated[str, typer.Option(help="error, or drop: leave rows without a value out.")] = "error",
    on_out_of_range: Annotated[str, typer.Option(help="clip, or error.")] = "clip",
    record_counts: Annotated[
        bool, typer.Option("--record-counts", help="Put the clipped and missing counts into the file; not private.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Reproducible draw for tests. NOT PRIVATE: whoever knows the seed knows the inputs."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Privatize a column of any length: one report per row, constant memory, an output that is whole or absent.

    SOURCE is a .parquet, .csv or .csv.gz file; - reads CSV from standard input.
    """
    if as_json and out == "-":
        raise ParameterError("out", out, "standard output cannot carry both reports and JSON; name a file")
    table = load_mechanism(mechanism)
    if seed is not None:
        warn("a seeded draw is reproducible and NOT PRIVATE; use it for tests only")
    with progress("privatizing") as tell:
        result = collect.privatize(
            source,
            out,
            column=column,
            mechanism=table,
            keep=keep or (),
            missing=cast(Literal["error", "drop"], missing),
            on_out_of_range=cast(Literal["clip", "error"], on_out_of_range),
            record_counts=record_counts,
            overwrite=overwrite,
            rng=seed,
            progress=tell,
        )
    if as_json:
        print_json(result.as_dict())
    else:
        _summary(result)


def _summary(result: Any) -> None:
    console = notices() if result.out == "-" else output()
    rate = result.reports / max(result.seconds, 1e-9)
    lines = (
        f"{result.reports:,} reports of {result.bits} bits, epsilon {result.epsilon:.6g} each, "
        f"written to {result.out} ({result.seconds:.2f} s, {rate:,.0f}/s)",
        f"clipped: {result.below:,} below, {result.above:,} above; dropped as missing: {result.missing:,}",
        f"({collect.RAW_COUNTS_REMARK})",
    )
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
