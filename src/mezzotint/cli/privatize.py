"""`mezzotint privatize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from mezzotint import collect
from mezzotint.cli.common import AsJson, Overwrite, load_mechanism, notices, output, print_json, progress, warn
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism

EXAMPLE = "mezzotint privatize in.parquet --column x --mechanism m.json --out reports.parquet"


def command(
    source: Annotated[str, typer.Argument(help=".parquet, .csv or .csv.gz; - reads CSV from standard input.")],
    column: Annotated[list[str], typer.Option(help="Column of numbers to privatize; may be repeated.")],
    mechanism: Annotated[
        list[Path], typer.Option(help="Mechanism file (.json): one for all columns, or one per --column, in order.")
    ],
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
    tables = _tables(column, mechanism)
    if seed is not None:
        warn("a seeded draw is reproducible and NOT PRIVATE; use it for tests only")
    options: dict[str, Any] = {
        "keep": keep or (),
        "missing": cast(Literal["error", "drop"], missing),
        "on_out_of_range": cast(Literal["clip", "error"], on_out_of_range),
        "record_counts": record_counts,
        "overwrite": overwrite,
        "rng": seed,
    }
    with progress("privatizing") as tell:
        if len(tables) == 1:
            (only,) = tables
            result = collect.privatize(source, out, column=only, mechanism=tables[only], progress=tell, **options)
        else:
            result = collect.privatize_columns(source, out, mechanisms=tables, progress=tell, **options)
    if as_json:
        print_json(result.as_dict())
    elif isinstance(result, collect.PrivatizeResult):
        _summary(result)
    else:
        _columns_summary(result)


def _tables(columns: list[str], files: list[Path]) -> dict[str, Mechanism]:
    """Column -> its mechanism."""
    if len(set(columns)) != len(columns):
        raise ParameterError("column", ", ".join(columns), "names a column twice; each report costs its epsilon")
    if len(files) not in (1, len(columns)):
        remedy = "give one --mechanism for all columns, or one for each --column, in the same order"
        raise ParameterError("mechanism", f"{len(files)} files for {len(columns)} columns", remedy)
    loaded = [load_mechanism(path) for path in files]
    return dict(zip(columns, loaded * len(columns) if len(loaded) == 1 else loaded, strict=True))


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


def _columns_summary(result: Any) -> None:
    console = notices() if result.out == "-" else output()
    rate = result.reports / max(result.seconds, 1e-9)
    parts = "" if result.resumed == 0 else f"; {result.resumed} of {result.blocks} parts were there from an earlier run"
    clipped = "; ".join(f"{one.column} {one.below:,} below, {one.above:,} above" for one in result.columns)
    lines = (
        f"{result.reports:,} rows of {sum(one.bits for one in result.columns)} bits "
        f"written to {result.out} ({result.seconds:.2f} s, {rate:,.0f} rows/s){parts}",
        f"claim: {result.claim}",
        f"clipped: {clipped}; rows dropped as missing: {result.missing:,}",
        f"({collect.RAW_COUNTS_REMARK})",
    )
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
