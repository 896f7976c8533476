"""`mezzotint privatize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import mezzotint as mz
from mezzotint.cli.common import (
    SEEDED,
    Address,
    AsJson,
    Options,
    Overwrite,
    ProofOption,
    bits,
    each,
    load_mechanism,
    notices,
    output,
    print_json,
    progress,
    read_lines,
    refuse_outputs,
    say,
    warn,
    write_proof,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, below

EXAMPLE = "mezzotint privatize in.parquet --column x --mechanism m.json --out reports.parquet"

Source = Annotated[
    str, typer.Argument(help="A file, a folder of files, a quoted glob or s3://bucket/...; - reads CSV from stdin.")
]
Columns = Annotated[list[str], typer.Option("--column", help="Column of numbers to privatize; may be repeated.")]
Mechanisms = Annotated[
    list[Path] | None,
    typer.Option("--mechanism", help="Mechanism file (.json): one for all columns, or one per --column, in order."),
]
Domain = Annotated[
    Path | None,
    typer.Option(
        help="Public list of a large domain's categories, one per line, instead of --mechanism; needs --epsilon."
    ),
]
Epsilon = Annotated[float | None, typer.Option(help="With --domain: privacy budget per report, never exceeded.")]
Out = Annotated[
    str, typer.Option(help=".parquet, .csv or .csv.gz; - writes CSV to stdout; NAME/ writes a folder of parts.")
]
Keep = Annotated[list[str] | None, typer.Option(help="Column to copy unprotected; may be repeated.")]
Missing = Annotated[str, typer.Option(help="Missing values: error, or drop those rows.")]
OutOfRange = Annotated[str, typer.Option(help="Values out of range: clip, or error.")]
RecordCounts = Annotated[
    bool,
    typer.Option(
        "--record-counts", help="Store the counts of clipped and missing values in the file; they are NOT PRIVATE."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume the unfinished run in the folder OUT; its claim is charged only once.")
]
Engine = Annotated[
    str, typer.Option(help="local, or ray: run on a Ray cluster, writing to a folder that all machines share.")
]
Threads = Annotated[int | None, typer.Option(help="Maximum number of threads; default: all cores.")]
MemoiseBy = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column of user ids: equal values of a user give the same report in every round."
    ),
]
KeyFile = Annotated[Path | None, typer.Option(help="Secret key of the memoised reports; the same file in every round.")]
NewKey = Annotated[bool, typer.Option("--new-key", help="Create the key file first.")]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="Ledger file: the claim is charged before anything is written.")
]
Budget = Annotated[
    float | None,
    typer.Option(
        help="Limit on the total epsilon charged to the ledger; a run that would exceed it exits with status 2."
    ),
]
ChargeBy = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of person ids: the ledger charges each person for their own rows."),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Reproducible draw for tests. NOT PRIVATE: anyone who knows the seed can recover the inputs."),
]


def command(
    source: Source,
    column: Columns,
    out: Out,
    mechanism: Mechanisms = None,
    domain: Domain = None,
    epsilon: Epsilon = None,
    keep: Keep = None,
    missing: Missing = "error",
    on_out_of_range: OutOfRange = "clip",
    record_counts: RecordCounts = False,
    resume: Resume = False,
    engine: Engine = "local",
    address: Address = None,
    threads: Threads = None,
    memoise_by: MemoiseBy = None,
    key_file: KeyFile = None,
    new_key: NewKey = False,
    ledger: LedgerFile = None,
    budget: Budget = None,
    charge_by: ChargeBy = None,
    proof: ProofOption = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Privatize columns of any length: one report per row, in constant memory; the output is complete or absent.

    SOURCE is a file (Parquet, CSV, Arrow, ORC or JSON lines, by its extension), a folder of files, a Delta table, a
    quoted glob, or an address in an object store (s3://bucket/folder); - reads CSV from standard input.
    A folder of parts (--out NAME/) can be resumed after an interruption and written by a cluster.
    """
    if as_json and out == "-":
        raise ParameterError("out", out, "standard output cannot carry both reports and JSON; name a file")
    tables = _tables(column, mechanism or []) if domain is None else _hashed(column, mechanism, domain, epsilon)
    if proof is not None and seed is not None:
        raise ParameterError(
            "proof", str(proof), "a seeded draw is not private, so there is nothing to prove; omit --seed"
        )
    refuse_outputs(overwrite=overwrite, proof=proof)
    if seed is not None:
        warn("a seeded draw is reproducible and NOT PRIVATE; use it for tests only")
    options: Options = {
        "keep": keep or (),
        "missing": missing,
        "on_out_of_range": on_out_of_range,
        "record_counts": record_counts,
        "resume": resume,
        "engine": engine,
        "address": address,
        "threads": threads,
        "memo": _memo(memoise_by, key_file, new_key),
        "overwrite": overwrite,
        "ledger": ledger,
        "budget": budget,
        "people": charge_by,
        "rng": seed,
    }
    result = _privatized(source, out, tables, options)
    if proof is not None:
        _prove(tables, proof, overwrite=overwrite)
    if as_json:
        print_json(result.as_dict())
    else:
        _print(result)


def _privatized(
    source: str, out: str, tables: JsonObject, options: Options
) -> mz.collect.PrivatizeResult | mz.collect.ColumnsResult:
    with progress("privatizing", unit="rows") as tell:
        if len(tables) == 1:
            (only,) = tables
            return mz.collect.privatize(source, out, column=only, mechanism=tables[only], progress=tell, **options)
        return mz.collect.privatize_columns(source, out, mechanisms=tables, progress=tell, **options)


def _prove(tables: JsonObject, proof: Path, *, overwrite: bool) -> None:
    proven = {name: one if isinstance(one, Mechanism) else one.mechanism for name, one in tables.items()}
    only = next(iter(proven.values())) if len(proven) == 1 else proven
    write_proof(mz.privacy.Release(mechanism=only, delta=0.0), proof, overwrite=overwrite)


def _hashed(columns: list[str], files: list[Path] | None, domain: Path, epsilon: float | None) -> JsonObject:
    """The column -> its hashed domain."""
    if files or len(columns) != 1:
        raise ParameterError("domain", str(domain), "replaces --mechanism and takes one --column")
    if epsilon is None:
        raise ParameterError("epsilon", None, "give the privacy budget per report: --epsilon 1")
    names = read_lines(domain, parameter="domain")
    return {columns[0]: mz.families.hashed(categories=names, epsilon=epsilon, other=True)}


def _tables(columns: list[str], files: list[Path]) -> JsonObject:
    """Column -> its mechanism."""
    if not files:
        raise ParameterError("mechanism", None, "name the mechanism file (--mechanism m.json)")
    if len(set(columns)) != len(columns):
        raise ParameterError("column", ", ".join(columns), "a column is named twice; name it once")
    if len(files) not in (1, len(columns)):
        remedy = "give one --mechanism for all columns, or one for each --column, in the same order"
        raise ParameterError("mechanism", f"{len(files)} files for {len(columns)} columns", remedy)
    loaded = [load_mechanism(path) for path in files]
    return dict(zip(columns, loaded * len(columns) if len(loaded) == 1 else loaded, strict=True))


def _memo(users: str | None, key_file: Path | None, new_key: bool) -> mz.collect.Memo | None:
    if users is None:
        if key_file is not None or new_key:
            raise ParameterError(
                "key_file",
                str(key_file or "not given"),
                "is only for memoised reports; name the column of users with --memoise-by",
            )
        return None
    if key_file is None:
        raise ParameterError(
            "memoise_by", users, "needs the secret key that all rounds share: --key-file FILE [--new-key]"
        )
    key = mz.collect.new_memo_key(key_file) if new_key else mz.collect.load_memo_key(key_file)
    return mz.collect.Memo(users=users, key=key)


def _print(result: mz.collect.PrivatizeResult | mz.collect.ColumnsResult) -> None:
    lines = _one(result) if isinstance(result, mz.collect.PrivatizeResult) else _several(result)
    if result.resumed:
        lines.append(f"{result.resumed} of {result.blocks} parts existed already; the counts below leave them out")
    lines += _charged(result)
    lines += [_clipped(result), f"({mz.collect.RAW_COUNTS_REMARK})"]
    say("\n".join(lines), on=notices() if result.out == "-" else output())


def _one(result: mz.collect.PrivatizeResult) -> list[str]:
    rate = result.reports / max(result.seconds, 1e-9)
    what = f"{result.reports:,} reports of {bits(result.bits)}, {each(result.claim)}, "
    return [f"{what}written to {result.out} ({result.seconds:.2f} s, {rate:,.0f}/s)"]


def _several(result: mz.collect.ColumnsResult) -> list[str]:
    rate = result.reports / max(result.seconds, 1e-9)
    what = f"{result.reports:,} rows of {sum(one.bits for one in result.columns)} bits "
    return [
        f"{what}written to {result.out} ({result.seconds:.2f} s, {rate:,.0f} rows/s)",
        f"claim: {result.claim or SEEDED}",
    ]


def _charged(result: mz.collect.PrivatizeResult | mz.collect.ColumnsResult) -> list[str]:
    """What the ledger was charged and what remains."""
    charged = result.charged
    if charged is None:
        return []
    whom = "everyone" if charged.people is None else f"{charged.people:,} people for their rows, each at most"
    again = f" (attempt {charged.attempt} at this run)" if charged.attempt > 1 else ""
    basis = "" if result.claim is None else f" ({result.claim.basis})"
    whose = "no record's" if charged.people is None else "nobody's"  # ids alone tell which rows are one person's
    left = "" if charged.left is None else f"; {below(charged.left)} of the budget is left to whom spent most"
    return [
        f"ledger: charged {whom} epsilon {above(charged.epsilon)}{basis}{again}; "
        f"{whose} charges come to more than {above(charged.spent)} in all{left}"
    ]


def _clipped(result: mz.collect.PrivatizeResult | mz.collect.ColumnsResult) -> str:
    if isinstance(result, mz.collect.PrivatizeResult):
        counts = f"{result.below:,} below, {result.above:,} above"
    else:
        counts = "; ".join(f"{one.column} {one.below:,} below, {one.above:,} above" for one in result.columns)
    return f"clipped: {counts}; dropped as missing: {result.missing:,}"
