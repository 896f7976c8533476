"""`mezzotint privatize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import Address, AsJson, Options, Overwrite, ProofOption, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, below

EXAMPLE = "mezzotint privatize in.parquet --column x --mechanism m.json --out reports.parquet"


def command(
    source: Annotated[
        str,
        typer.Argument(
            help="A file, a folder of files, a quoted glob or s3://bucket/...; - reads CSV from stdin."
        ),
    ],
    column: Annotated[list[str], option("Column to privatize; may be repeated.", "--column")],
    out: Annotated[
        str,
        option(
            ".parquet, .csv or .csv.gz; - writes CSV to stdout; NAME/ writes a folder of parts."
        ),
    ],
    mechanism: Annotated[
        list[Path] | None,
        option("Mechanism file (.json): one for all, or one per --column.", "--mechanism"),
    ] = None,
    domain: Annotated[
        Path | None,
        option(
            "Public list of categories, one per line; needs --epsilon and replaces --mechanism."
        ),
    ] = None,
    epsilon: Annotated[
        float | None, option("With --domain: privacy budget per report, never exceeded.")
    ] = None,
    keep: Annotated[
        list[str] | None, option("Column to copy unchanged, WITHOUT protection; may be repeated.")
    ] = None,
    missing: Annotated[str, option("Missing values: error, or drop those rows.")] = "error",
    on_out_of_range: Annotated[str, option("Values out of range: clip, or error.")] = "clip",
    record_counts: Annotated[
        bool,
        option(
            "Store the counts of clipped and missing values in the file; they are NOT PRIVATE.",
            "--record-counts",
        ),
    ] = False,
    resume: Annotated[
        bool, option("Resume the unfinished run in OUT; it is charged once.", "--resume")
    ] = False,
    engine: Annotated[
        str, option("local, or ray: run on a Ray cluster, into a shared folder.")
    ] = "local",
    address: Address = None,
    threads: Annotated[int | None, option("Maximum number of threads; default: all cores.")] = None,
    memoise_by: Annotated[
        str | None,
        option(
            "Column of user ids: equal values of a user give the same report in every round.",
            metavar="COLUMN",
        ),
    ] = None,
    key_file: Annotated[
        Path | None, option("Secret key of memoised reports, the same in every round.")
    ] = None,
    new_key: Annotated[bool, option("Create the key file first.", "--new-key")] = False,
    ledger: Annotated[
        Path | None, option("Ledger file, charged before reports can be read.", "--ledger")
    ] = None,
    budget: Annotated[
        float | None,
        option("Limit on the epsilon charged to the ledger; status 2 rather than exceed it."),
    ] = None,
    charge_by: Annotated[
        str | None, option("Person ids: charge each person for their own rows.", metavar="COLUMN")
    ] = None,
    at_most: Annotated[
        int | None,
        option(
            "With --charge-by: keep at most this many rows of each person, drawn by their numbers alone."
        ),
    ] = None,
    per: Annotated[
        str | None, option("With --at-most: column of the period in which it is meant.")
    ] = None,
    delimiter: Annotated[
        str | None,
        option(
            "CSV: character between cells; default: the most frequent of , tab ; | in the header."
        ),
    ] = None,
    missing_values: Annotated[
        str | None,
        option(r"CSV: cells that mean missing, as 'NA,\N,.'; default: those of pandas."),
    ] = None,
    decimal: Annotated[str, option("CSV: decimal mark of numbers: . or ,")] = ".",
    backslash_is_text: Annotated[
        bool,
        option("CSV: accept a backslash before a quote inside quotes.", "--backslash-is-text"),
    ] = False,
    proof: ProofOption = None,
    seed: Annotated[
        int | None, option("Reproducible draw, NOT PRIVATE: who knows the seed recovers inputs.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Privatize columns of any length: one report per row, in constant memory; the output is complete or absent.

    SOURCE is a file (Parquet, CSV, Arrow, ORC or JSON lines, by its extension), a folder of files, a Delta table, a
    quoted glob, or an address in an object store (s3://bucket/folder); - reads CSV from standard input.
    A folder of parts (--out NAME/) can be resumed after an interruption and written by a cluster.
    """
    given = dict(locals())
    if as_json and out == "-":
        raise ParameterError(
            "out", out, "standard output cannot carry both reports and JSON; name a file"
        )
    if budget is not None and not budget >= 0:
        raise ParameterError("budget", budget, "need an epsilon >= 0")
    if epsilon is not None and domain is None:
        raise ParameterError(
            "epsilon",
            epsilon,
            "this option needs --domain; the epsilon of --mechanism is in its file",
        )
    tables = (
        _tables(column, mechanism or [])
        if domain is None
        else _hashed(column, mechanism, domain, epsilon)
    )
    if proof is not None and seed is not None:
        raise ParameterError(
            "proof",
            str(proof),
            "a seeded draw is not private, so there is nothing to prove; omit --seed",
        )
    common.refuse_outputs(".json", overwrite=overwrite, proof=proof)
    if seed is not None:
        common.warn("a seeded draw is reproducible and NOT PRIVATE; use it for tests only")
    options: Options = {
        name: value for name, value in given.items() if name in mz.collect.Options.__annotations__
    }
    options |= {
        "keep": keep or (),
        "memo": _memo(memoise_by, key_file, new_key),
        "delimiter": "\t" if delimiter == "\\t" else delimiter,
        "missing_values": None if missing_values is None else missing_values.split(","),
        "rng": seed,
    }
    with common.progress("privatizing", unit="rows") as tell:
        how: Options = {**options, "progress": tell}
        if len(tables) == 1:
            ((only, table),) = tables.items()
            result: Result = mz.collect.privatize(source, out, column=only, mechanism=table, **how)
        else:
            result = mz.collect.privatize_columns(source, out, mechanisms=tables, **how)
    if proof is not None:
        drawn = {
            name: one if isinstance(one, Mechanism) else one.mechanism
            for name, one in tables.items()
        }
        whole = next(iter(drawn.values())) if len(drawn) == 1 else drawn
        common.write_proof(
            mz.privacy.Release(mechanism=whole, delta=0.0), proof, overwrite=overwrite
        )
    on = common.notices() if out == "-" else None
    numeric = {
        name
        for name, one in tables.items()
        if isinstance(one, Mechanism) and one.categories is None
    }
    common.show(result.as_dict(), as_json, lambda: "\n".join(_lines(result, numeric)), on=on)


def _hashed(
    columns: list[str], files: list[Path] | None, domain: Path, epsilon: float | None
) -> JsonObject:
    """The column -> its hashed domain."""
    if files or len(columns) != 1:
        raise ParameterError("domain", str(domain), "replaces --mechanism and takes one --column")
    if epsilon is None:
        raise ParameterError("epsilon", None, "give the privacy budget per report: --epsilon 1")
    names = common.read_lines(domain, parameter="domain")
    return {columns[0]: mz.families.hashed(categories=names, epsilon=epsilon, other=True)}


def _tables(columns: list[str], files: list[Path]) -> JsonObject:
    """Column -> its mechanism."""
    if not files:
        raise ParameterError("mechanism", None, "name the mechanism file (--mechanism m.json)")
    if len(set(columns)) != len(columns):
        raise ParameterError("column", ", ".join(columns), "a column is named twice; name it once")
    if len(files) not in (1, len(columns)):
        remedy = "give one --mechanism for all columns, or one for each --column, in the same order"
        told = f"{len(files)} files for {len(columns)} column{'s' * (len(columns) != 1)}; {remedy}"
        raise ParameterError("mechanism", ", ".join(map(str, files)), told)
    loaded = [common.load_mechanism(path) for path in files]
    return dict(zip(columns, loaded * len(columns) if len(loaded) == 1 else loaded, strict=True))


def _memo(users: str | None, key_file: Path | None, new_key: bool) -> mz.collect.Memo | None:
    if users is None:
        if key_file is not None or new_key:
            raise ParameterError(
                "key_file",
                str(key_file or "not given"),
                "applies to memoised reports only; name the column of users with --memoise-by",
            )
        return None
    if key_file is None:
        raise ParameterError(
            "memoise_by",
            users,
            "needs the secret key that all rounds share: --key-file FILE [--new-key]",
        )
    key = mz.collect.new_memo_key(key_file) if new_key else mz.collect.load_memo_key(key_file)
    return mz.collect.Memo(users=users, key=key)


Result: TypeAlias = "mz.collect.PrivatizeResult | mz.collect.ColumnsResult"


def _lines(result: Result, numeric: set[str]) -> list[str]:
    """What is printed; only values of numeric columns can be clipped."""
    rate = f"{result.reports / max(result.seconds, 1e-9):,.0f}"
    written = f"written to {result.out} ({result.seconds:.2f} s, {rate}"
    if isinstance(result, mz.collect.PrivatizeResult):
        cost = common.each(result.claim)
        lines = [f"{result.reports:,} reports of {common.bits(result.bits)}, {cost}, {written}/s)"]
        columns = [("", result)] * bool(numeric)
    else:
        lines = [
            f"{result.reports:,} rows of {sum(one.bits for one in result.columns)} bits {written} rows/s)"
        ]
        lines.append(f"claim: {result.claim or common.SEEDED}")
        columns = [(f"{one.column} ", one) for one in result.columns if one.column in numeric]
    if result.resumed:
        lines.append(
            f"{result.resumed} of {result.blocks} parts existed already; the counts below leave them out"
        )
    lines += _charged(result)
    lines += _limited(result)
    clipped = "; ".join(f"{name}{one.below:,} below, {one.above:,} above" for name, one in columns)
    spelled = [(f"{one.column} ", one) for one in getattr(result, "columns", ())] or [("", result)]
    seen = [f"clipped: {clipped}"] * bool(clipped) + [f"dropped as missing: {result.missing:,}"]
    for words, counts in (("not on the list", "unlisted"), ("spelled otherwise", "respelled")):
        listed = [
            f"{name}{getattr(one, counts):,}" for name, one in spelled if getattr(one, counts)
        ]
        seen += [f"{words}: {', '.join(listed)}"] * bool(listed)
    return [*lines, "; ".join(seen), f"({mz.collect.RAW_COUNTS_REMARK})"]


def _limited(result: Result) -> list[str]:
    """What a limit on the rows of a person dropped, and what that means for means."""
    if result.shift is None:
        return []
    return [
        f"kept within the limit of each person: {result.reports:,}; dropped beyond it: {result.beyond:,}. Estimates are "
        f"about the rows kept: their mean may be off that of all rows by at most {above(result.shift, 3)} of the range "
        "(of this data, not private)"
    ]


def _charged(result: Result) -> list[str]:
    """The charge recorded in the ledger, and the remaining budget."""
    charged = result.charged
    if charged is None:
        return []
    whom = (
        "everyone"
        if charged.people is None
        else f"{charged.people:,} people for their rows, each at most"
    )
    again = f" (attempt {charged.attempt} at this run)" if charged.attempt > 1 else ""
    basis = "" if result.claim is None else f" ({result.claim.basis})"
    whose = (
        "record" if charged.people is None else "person"
    )  # ids alone tell which rows are one person's
    left = "" if charged.left is None else f", which leaves {below(charged.left)} of the budget"
    return [
        f"ledger: charged {whom} epsilon {above(charged.epsilon)}{basis}{again}; "
        f"the largest total of any {whose} is now {above(charged.spent)}{left}"
    ]
