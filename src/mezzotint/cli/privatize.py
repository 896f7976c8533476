"""`mezzotint privatize`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, final

import mezzotint as mz
from mezzotint.cli import common, console, progress
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, ProofOption, argument, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, below, counted

if TYPE_CHECKING:  # imports SciPy, which help does without
    from mezzotint.collect.results import PrivatizeResult

EXAMPLE = "mezzotint privatize in.parquet --column x --mechanism m.json --out reports.parquet"

MECHANISM, VALUES, PEOPLE = "Reports", "Values of the source", "People and budget"
MEMOISED, WORK = "Memoised reports", "Work"

Tables: TypeAlias = "Mapping[str, Mechanism | mz.families.HashedDomain]"
"""Column -> its table, or its hashed domain."""

Tallies: TypeAlias = "list[tuple[str, mz.collect.ColumnResult]]"
"""A label of each column, and its result."""


@final
@dataclass(frozen=True, kw_only=True)
class PrivatizeOptions:
    """Options of the verb."""

    source: Annotated[
        str, argument("File, folder, quoted glob or s3://bucket/...; - is stdin (CSV).")
    ]
    column: Annotated[
        list[str], option("Column to privatize; repeatable.", "--column", panel=MECHANISM)
    ]
    out: Annotated[str, option(".parquet, .csv, .csv.gz, - (CSV), NAME/ (parts).", panel=OUTPUT)]
    mechanism: Annotated[
        list[Path] | None,
        option("Mechanism file: one, or one per --column.", "--mechanism", panel=MECHANISM),
    ] = None
    domain: Annotated[
        Path | None,
        option("Instead: list of categories, one a line.", panel=MECHANISM),
    ] = None
    epsilon: Annotated[
        float | None, option("With --domain: of a report, never exceeded.", panel=MECHANISM)
    ] = None
    keep: Annotated[
        list[str] | None,
        option("Column to copy WITHOUT protection; repeatable.", panel=MECHANISM),
    ] = None
    missing: Annotated[Literal["error", "drop"], option("Missing values:", panel=VALUES)] = "error"
    on_out_of_range: Annotated[
        Literal["clip", "error"], option("Values out of range:", panel=VALUES)
    ] = "clip"
    delimiter: Annotated[
        str | None, option("CSV: between cells; by default the most frequent.", panel=VALUES)
    ] = None
    missing_values: Annotated[
        str | None, option("CSV: missing, as NA,. ; by default pandas'.", panel=VALUES)
    ] = None
    decimal: Annotated[Literal[".", ","], option("CSV: decimal mark:", panel=VALUES)] = "."
    backslash_is_text: Annotated[
        bool,
        option("CSV: a backslash may precede a quote.", "--backslash-is-text", panel=VALUES),
    ] = False
    ledger: Annotated[
        Path | None,
        option("Ledger, charged before reports are drawn.", "--ledger", panel=PEOPLE),
    ] = None
    budget: Annotated[
        float | None, option("Epsilon of a person that none may exceed.", panel=PEOPLE)
    ] = None
    charge_by: Annotated[
        str | None,
        option("Person ids: charge each for own rows.", metavar="COLUMN", panel=PEOPLE),
    ] = None
    at_most: Annotated[
        int | None, option("Keep at most this many rows of a person.", panel=PEOPLE)
    ] = None
    per: Annotated[str | None, option("Period of --at-most.", metavar="COLUMN", panel=PEOPLE)] = (
        None
    )
    lot: Annotated[
        str | None,
        option("Person ids: a public lot asks each one question.", metavar="COLUMN", panel=PEOPLE),
    ] = None
    question: Annotated[
        str | None, option("Of --lot: which one this is, as 2/4.", panel=PEOPLE)
    ] = None
    lot_name: Annotated[
        str | None, option("Of --lot: the survey, the same for all questions.", panel=PEOPLE)
    ] = None
    memoise_by: Annotated[
        str | None,
        option("User ids: equal values, the same report.", metavar="COLUMN", panel=MEMOISED),
    ] = None
    key_file: Annotated[
        Path | None, option("Secret key, the same in every round.", panel=MEMOISED)
    ] = None
    new_key: Annotated[bool, option("Create the key file first.", "--new-key", panel=MEMOISED)] = (
        False
    )
    resume: Annotated[bool, option("Resume the unfinished run in OUT.", "--resume", panel=WORK)] = (
        False
    )
    engine: Annotated[Literal["local", "ray"], option("Where it runs:", panel=WORK)] = "local"
    address: Annotated[
        str | None, option("Of a Ray cluster; by default this machine.", panel=WORK)
    ] = None
    threads: Annotated[int | None, option("Most threads; by default all cores.", panel=WORK)] = None
    seed: Annotated[int | None, option("Reproducible draw, NOT PRIVATE.", panel=WORK)] = None
    proof: ProofOption = None
    overwrite: Overwrite = False
    as_json: AsJson = False


def command(options: PrivatizeOptions) -> None:
    """Privatize columns: one report per row, in constant memory; the output is complete or absent.

    A folder of parts (--out NAME/) can be resumed after an interruption and written by a cluster.
    """
    _refuse_mixtures(options)
    tables = _tables_of(options)
    if options.proof is not None and options.seed is not None:
        remedy = "a seeded draw is not private, so there is nothing to prove; omit --seed"
        raise ParameterError("proof", str(options.proof), remedy)
    common.refuse_outputs(".json", overwrite=options.overwrite, proof=options.proof)
    if options.seed is not None:
        console.warn("a seeded draw is reproducible and NOT PRIVATE; use it for tests only")
    result = _privatized(options, tables)
    if options.proof is not None:
        _prove(tables, options.proof, overwrite=options.overwrite)
    on = None
    if options.out == "-":
        on = console.notices()
    numeric = _numeric_columns(tables)
    console.show(
        result.as_dict(), options.as_json, lambda: "\n".join(_lines(result, numeric)), on=on
    )


def _refuse_mixtures(options: PrivatizeOptions) -> None:
    """Refuse options that cannot be, or lack another one."""
    if options.as_json and options.out == "-":
        remedy = "standard output cannot carry both reports and JSON; name a file"
        raise ParameterError("out", options.out, remedy)
    if options.budget is not None and not options.budget >= 0:
        raise ParameterError("budget", options.budget, "need an epsilon >= 0")
    if options.epsilon is not None and options.domain is None:
        remedy = "this option needs --domain; the epsilon of --mechanism is in its file"
        raise ParameterError("epsilon", options.epsilon, remedy)


def _tables_of(options: PrivatizeOptions) -> Tables:
    if options.domain is None:
        return _tables(options.column, options.mechanism or [])
    return _hashed(options.column, options.mechanism, options.domain, options.epsilon)


def _privatized(options: PrivatizeOptions, tables: Tables) -> PrivatizeResult:
    """Draw the reports."""
    delimiter = options.delimiter
    if delimiter == "\\t":
        delimiter = "\t"
    missing_values = None
    if options.missing_values is not None:
        missing_values = options.missing_values.split(",")
    settings = common.picked(
        options,
        *("missing", "on_out_of_range", "decimal", "backslash_is_text"),
        *("ledger", "budget", "charge_by", "at_most", "per"),
        *("overwrite", "resume", "engine", "address", "threads"),
    )
    settings |= {
        "keep": options.keep or (),
        "memo": _memo(options.memoise_by, options.key_file, options.new_key),
        "rng": options.seed,
        "lot": _lot(options),
        "delimiter": delimiter,
        "missing_values": missing_values,
    }
    with progress.bar("privatizing", unit="rows") as report_progress:
        settings["progress"] = report_progress
        return mz.collect.privatize_columns(
            options.source, options.out, mechanisms=tables, **settings
        )


def _prove(tables: Tables, proof: Path, *, overwrite: bool) -> None:
    """Write the claim about a row with its proof."""
    tables_drawn: dict[str, Mechanism] = {}
    for column, table in tables.items():
        if isinstance(table, Mechanism):
            tables_drawn[column] = table
        else:
            tables_drawn[column] = table.mechanism
    released: Mechanism | dict[str, Mechanism] = tables_drawn
    if len(tables_drawn) == 1:
        (released,) = tables_drawn.values()
    release = mz.privacy.Release(mechanism=released, delta=0.0)
    common.write_proof(release, proof, overwrite=overwrite)


def _numeric_columns(tables: Tables) -> set[str]:
    """Columns of numbers, which alone can be clipped."""
    numeric = set()
    for column, table in tables.items():
        if isinstance(table, Mechanism) and table.categories is None:
            numeric.add(column)
    return numeric


def _hashed(
    columns: list[str], files: list[Path] | None, domain: Path, epsilon: float | None
) -> Tables:
    """The column -> its hashed domain."""
    if files or len(columns) != 1:
        raise ParameterError("domain", str(domain), "replaces --mechanism and takes one --column")
    if epsilon is None:
        raise ParameterError("epsilon", None, "give the epsilon of a report: --epsilon 1")
    names = common.read_lines(domain, parameter="domain")
    return {columns[0]: mz.families.hashed(categories=names, epsilon=epsilon, other=True)}


def _tables(columns: list[str], files: list[Path]) -> Tables:
    """Column -> its mechanism."""
    if not files:
        raise ParameterError("mechanism", None, "name the mechanism file (--mechanism m.json)")
    if len(set(columns)) != len(columns):
        raise ParameterError("column", ", ".join(columns), "a column is named twice; name it once")
    if len(files) not in (1, len(columns)):
        remedy = "give one --mechanism for all columns, or one for each --column, in the same order"
        counts = f"{len(files)} files for {len(columns)} column{'s' * (len(columns) != 1)}"
        raise ParameterError("mechanism", ", ".join(map(str, files)), f"{counts}; {remedy}")
    loaded = [common.load_mechanism(path) for path in files]
    if len(loaded) == 1:
        loaded *= len(columns)
    return dict(zip(columns, loaded, strict=True))


def _lot(options: PrivatizeOptions) -> mz.collect.Lot | None:
    """The question of this run and its lot."""
    lot_options = {"question": options.question, "lot_name": options.lot_name}
    if options.lot is None:
        for parameter, lot_option in lot_options.items():
            if lot_option is not None:
                raise ParameterError(parameter, lot_option, "needs the column of people (--lot)")
        return None
    for parameter, lot_option in lot_options.items():
        if lot_option is None:
            remedy = "a lot needs --question 1/4 and --lot-name NAME, the same for all questions"
            raise ParameterError(parameter, lot_option, remedy)
    question, _slash, questions = (options.question or "").partition("/")
    if not (question.isdecimal() and questions.isdecimal()):
        raise ParameterError("question", options.question, "write which of how many, as 2/4")
    return mz.collect.Lot(
        people=options.lot,
        question=int(question),
        questions=int(questions),
        name=options.lot_name or "",
    )


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


def _lines(result: PrivatizeResult, numeric: set[str]) -> list[str]:
    """What is printed; only values of numeric columns can be clipped."""
    if result.resumed and result.resumed == result.blocks:
        return [
            f"the run in {result.out} is finished: all {result.blocks} parts with their "
            f"{result.reports:,} reports existed already, and nothing was drawn or charged"
        ]
    rate = f"{result.reports / max(result.seconds, 1e-9):,.0f}"
    written = f"written to {result.out} ({result.seconds:.2f} s, {rate}"
    bits = sum(column.bits for column in result.columns)
    if len(result.columns) == 1:
        cost = common.each(result.claim)
        sentences = [f"{result.reports:,} reports of {counted(bits, 'bit')}, {cost}, {written}/s)"]
        tallies = [("", result.columns[0])]
    else:
        sentences = [f"{result.reports:,} rows of {bits} bits {written} rows/s)"]
        sentences.append(f"claim: {result.claim or common.SEEDED}")
        tallies = [(f"{column.column} ", column) for column in result.columns]
    clippable = [(label, tally) for label, tally in tallies if tally.column in numeric]
    if result.resumed:
        sentences.append(
            f"{result.resumed} of {result.blocks} parts existed already; the counts below leave "
            "them out"
        )
    sentences += _charged(result)
    sentences += _limited(result)
    sentences.append("; ".join(_rows_unlike_others(result, tallies, clippable)))
    sentences.append(f"({mz.collect.RAW_COUNTS_REMARK})")
    return sentences


def _rows_unlike_others(result: PrivatizeResult, tallies: Tallies, clippable: Tallies) -> list[str]:
    """Values that were clipped, dropped, taken for others, or read in another spelling."""
    counted = []
    if clippable:
        clipped = [
            f"{label}{tally.below:,} below, {tally.above:,} above" for label, tally in clippable
        ]
        counted.append(f"clipped: {'; '.join(clipped)}")
    counted.append(f"dropped as missing: {result.missing:,}")
    for description, field in (("not on the list", "unlisted"), ("spelled otherwise", "respelled")):
        counts = [(label, getattr(tally, field)) for label, tally in tallies]
        listed = [f"{label}{count:,}" for label, count in counts if count]
        if listed:
            counted.append(f"{description}: {', '.join(listed)}")
    return counted


def _limited(result: PrivatizeResult) -> list[str]:
    """What a lot, or a limit on the rows of a person, dropped, and what that means for means."""
    sentences = []
    if result.lot is not None:
        sentences.append(
            f"{result.lot}: dropped {result.unasked:,} rows of people whom it asks another question"
        )
    if result.shift is None:
        return sentences
    kept_rows = result.reports + result.missing
    return [
        *sentences,
        f"kept within the limit of each person: {kept_rows:,}; dropped beyond it: "
        f"{result.beyond:,}. Estimates are about the rows kept: their mean may be off that of all "
        f"rows by at most {above(result.shift, 3)} of the range (of this data, not private)",
    ]


def _charged(result: PrivatizeResult) -> list[str]:
    """The charge recorded in the ledger, and the remaining budget."""
    charged = result.charged
    if charged is None:
        return []
    payers, payer = "everyone", "row"
    if charged.people is not None:  # ids alone tell which rows are one person's
        payers = f"{charged.people:,} people for their rows, each at most"
        payer = "person"
    price = f"epsilon {above(charged.epsilon)}"
    if result.claim is not None:
        price += f" ({result.claim.basis})"
    if charged.attempt > 1:
        price += f" (attempt {charged.attempt} at this run)"
    total = above(charged.spent)
    if charged.left is not None:
        total += f", which leaves {below(charged.left)} of the budget"
    return [f"ledger: charged {payers} {price}; the largest total of any {payer} is now {total}"]
