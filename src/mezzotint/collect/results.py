"""The options of a run, its charges to the ledger, and its results."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypedDict, final

import numpy as np
import pyarrow.compute as pc

from mezzotint.collect.columns import BLOCK_ROWS, Dialect
from mezzotint.collect.drawing import Memo, Plan, Tally, load_memo_key, write_key
from mezzotint.collect.listing import SourceFile, open_binary
from mezzotint.collect.people import Selection, people_in, select_rows
from mezzotint.collect.reports import code_field
from mezzotint.collect.sink import draft_of
from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import BudgetError, ParameterError
from mezzotint.core.files import publish
from mezzotint.core.records import JsonObject, Progress, Record, above, below
from mezzotint.core.sampler import fresh_key, usable_cores
from mezzotint.privacy import Ledger
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.charges import Charge, upwards
from mezzotint.privacy.claim import Claim, Claimed


class Options(TypedDict, total=False):
    """The fields of `Settings` as keywords, for type checkers; a test holds the two together.

    Example:
        >>> options: mz.collect.Options = {"missing": "drop", "threads": 2}
    """

    keep: Sequence[str]
    missing: Literal["error", "drop"]
    on_out_of_range: Literal["clip", "error"]
    record_counts: bool
    overwrite: bool
    resume: bool
    memo: Memo | None
    engine: Literal["local", "ray"]
    address: str | None
    threads: int | None
    block_rows: int
    rng: int | np.random.Generator | None
    progress: Progress | None
    ledger: str | os.PathLike[str] | Ledger | None
    budget: float | None
    charge_by: str | None
    at_most: int | None
    per: str | None
    delimiter: str | None
    missing_values: Sequence[str] | None
    decimal: str
    backslash_is_text: bool


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """How `privatize` and `privatize_columns` work.

    Arguments:
        keep: other columns to copy, also those spelled by folders (`day=7/`). They are published as they are.
        missing: what to do about a null or NaN in any column: "error", or "drop" its row. It is never filled in.
        on_out_of_range: "clip", or "error".
        record_counts: put the clipped and missing counts into the file's metadata (Parquet only; not private).
        overwrite: False refuses an existing `out`. Folders are never overwritten.
        resume: go on with the unfinished run in the folder `out`; a new run where there is none.
        memo: same user and value, same report (`Memo`); None for a fresh draw per row.
        engine: "local", or "ray": a Ray cluster works on the blocks, and `out` is a folder that all its machines see.
        address: of the Ray cluster; None for the one that this process is connected to, or that RAY_ADDRESS names, else
            one started on this machine and stopped at the end.
        threads: at most this many on this machine; None for as many as the process may use.
        block_rows: least rows of a part of a folder, where its file has as many; row groups are never cut.
        rng: None for the cryptographic generator; a seed or numpy Generator is reproducible and NOT private.
        progress: called as progress(done, total) with rows; the total is estimated from the share of the source that
            is read, and inf where that is not known.
        ledger: file of a `privacy.Ledger`, or one: the claim is charged to everybody before reports can be read. A
            folder's run is charged once, however often it is resumed; privatizing the data again is another charge.
        budget: epsilon that everybody's charges in the ledger may not exceed together; None for no limit.
        charge_by: column of ids: the ledger charges each person for the rows that are theirs, instead of everybody for
            one. It is read before anything is drawn, and not copied; keep the ledger's key as safe as the ids.
        at_most: keep at most this many rows of each person (in each period), chosen by a keyed permutation
            of row numbers that is fresh in every run; None for all. People are charged for the rows kept.
            The claim is about replacing values: numbers, order and ids of rows are public. A file that is
            sorted by a private value voids it. Estimates are then about the rows kept.
        per: column of the period that `at_most` is meant for.
        delimiter, missing_values, decimal, backslash_is_text: how text files are spelled; see `columns.Dialect`.

    Raises:
        ParameterError: an option that cannot be.

    Example:
        >>> mz.collect.Settings(missing="drop", threads=2).workers
        2
    """

    keep: Sequence[str] = ()
    missing: Literal["error", "drop"] = "error"
    on_out_of_range: Literal["clip", "error"] = "clip"
    record_counts: bool = False
    overwrite: bool = False
    resume: bool = False
    memo: Memo | None = None
    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    threads: int | None = None
    block_rows: int = BLOCK_ROWS
    rng: int | np.random.Generator | None = None
    progress: Progress | None = None
    ledger: str | os.PathLike[str] | Ledger | None = None
    budget: float | None = None
    charge_by: str | None = None
    at_most: int | None = None
    per: str | None = None
    delimiter: str | None = None
    missing_values: Sequence[str] | None = None
    decimal: str = "."
    backslash_is_text: bool = False

    def __post_init__(self) -> None:
        assert self.dialect is not None  # which checks its parts
        check_choice("engine", self.engine, ("local", "ray"))
        if self.address is not None and self.engine != "ray":
            raise ParameterError("address", self.address, 'needs engine="ray" (--engine ray)')
        if self.threads is not None and self.threads < 1:
            raise ParameterError(
                "threads", self.threads, "need at least one thread; without it all are used"
            )
        if self.budget is not None and self.ledger is None:
            raise ParameterError("budget", self.budget, "needs a ledger; name it (--ledger)")
        if self.charge_by is not None and self.ledger is None:
            raise ParameterError("charge_by", self.charge_by, "needs a ledger; name it (--ledger)")
        if self.at_most is not None and (self.charge_by is None or self.at_most < 1):
            raise ParameterError(
                "at_most", self.at_most, "needs charge_by (--charge-by), and is at least 1"
            )
        if self.per is not None and self.at_most is None:
            raise ParameterError("per", self.per, "needs at_most (--at-most)")
        if self.ledger is not None and self.rng is not None:
            raise ParameterError(
                "ledger", str(self.ledger), "a seeded draw cannot be charged; leave one out"
            )
        if self.block_rows < 1:
            raise ParameterError("block_rows", self.block_rows, "a block has at least one row")

    def tell(self, rows: int, *, share: float) -> None:
        """Tells `progress` how many rows, and what share of the source, are done; a share of 0 means unknown."""
        if self.progress is not None:
            self.progress(rows, rows / share if share else math.inf)

    @property
    def dialect(self) -> Dialect:
        """How text files are spelled."""
        markers = None if self.missing_values is None else tuple(self.missing_values)
        return Dialect(
            delimiter=self.delimiter,
            missing_values=markers,
            decimal=self.decimal,
            backslash_is_text=self.backslash_is_text,
        )

    @property
    def workers(self) -> int:
        """Threads to use on this machine."""
        return self.threads or usable_cores()


compute: Any = pc  # its functions are made at import time, unseen by type checkers


def fingerprint(chosen: Settings, files: Sequence[SourceFile]) -> str | None:
    """Names the content of a source, the same in all runs of one ledger; None for standard input, and without a ledger.

    A hash of private data that anybody can compute gives them away: whoever knows all rows but one can try its values.
    So it is keyed, by 32 random bytes in the file beside the ledger that ends in ".key", made when it is missing.
    """
    ledger = None if chosen.ledger is None else _ledger(chosen)
    if ledger is None or ledger.path is None or any(file.path == "-" for file in files):
        return None
    key = ledger_key(ledger)
    digests: list[bytes] = []
    for file in files:
        with open_binary(file.path) as stream:
            digests.append(hashlib.file_digest(stream, "sha256").digest())  # type: ignore[arg-type]
    content = b"".join(sorted(digests))
    return hmac.new(key, b"mezzotint source " + content, hashlib.sha256).hexdigest()[:32]


SOURCE = "; source "
"""Before the fingerprint of its source in the description of a charge."""


def key_path(path: str | os.PathLike[str]) -> Path:
    """The file of a ledger's secret: beside the ledger itself, where links to it lead."""
    return Path(f"{Path(path).resolve()}.key")


def ledger_key(ledger: Ledger, *, create: bool = True) -> bytes:
    """The secret beside a ledger, for fingerprints of sources and hashes of people.

    It is made where the ledger holds nothing that another one made. A ledger that was moved without it would take
    everybody for new, and rows that were reported before for new ones.

    Arguments:
        ledger: on disk.
        create: False to refuse in every case where it is missing.

    Raises:
        ParameterError: it is missing, and was used or is not to be made.
    """
    assert ledger.path is not None
    place = key_path(ledger.path)
    if not place.exists():
        # In this order: another run may make it meanwhile, and charge.
        used = bool(ledger.people) or any(
            SOURCE in charge.release.description for charge in ledger.charges
        )
        if (used or not create) and not place.exists():
            remedy = f"its key {place} is missing; copy it from where the ledger was, with the folder of its people"
            raise ParameterError("ledger", str(ledger.path), remedy)
        _publish_key(place, fresh_key())
    return load_memo_key(place)


def inherited_key(old: Ledger, path: Path) -> bytes:
    """The secret of a ledger that will be written anew at a path: that of the old one where it has one."""
    assert old.path is not None
    place, before = key_path(path), key_path(old.path)
    if not place.exists():
        _publish_key(place, load_memo_key(before) if before.exists() else fresh_key())
    return load_memo_key(place)


def _publish_key(place: Path, key: bytes) -> None:
    with draft_of(place) as draft:
        write_key(draft, key)
        publish(draft, place)  # whole, and of several runs that begin at once one makes it


def _ledger(chosen: Settings) -> Ledger:
    assert chosen.ledger is not None
    return chosen.ledger if isinstance(chosen.ledger, Ledger) else Ledger(chosen.ledger)


@final
@dataclass(frozen=True, kw_only=True)
class Charged:
    """A ledger's record of the charge for a run.

    Arguments:
        path: its file; None in memory.
        people: how many were charged for rows that are theirs; None where everybody was, for one.
        epsilon: the most that anybody was charged.
        attempt: 1, or more where the same run was charged before.
        spent: the most that anybody has been charged in all, afterwards.
        left: what is left of the budget to them, rounded down; None without a budget.
    """

    path: str | None
    people: int | None
    epsilon: float
    attempt: int
    spent: float
    left: float | None


def check_budget(work: Plan, chosen: Settings) -> None:
    """Raises BudgetError where the claim of one record does not fit the budget: before anything is read or made.

    Only `charge` decides: others may charge meanwhile, and a person may have several records.
    """
    if chosen.ledger is None or chosen.budget is None:
        return
    claim, budget = report_claim(work.mechanisms), chosen.budget
    exceeds = claim.epsilon > budget
    ledger = chosen.ledger
    if chosen.charge_by is None and (isinstance(ledger, Ledger) or Path(ledger).exists()):
        release = Charge.of(claim, identity="privatize", description="", fingerprint="")
        exceeds = exceeds or _ledger(chosen).would_exceed(budget, 0.0, release=release)
    if exceeds:
        raise BudgetError(
            f"this run, epsilon {above(claim.epsilon)}, exceeds the budget of {below(budget)} that all charges share; "
            "nothing was read, charged or written"
        )


def selection(chosen: Settings, files: Sequence[SourceFile], run: str) -> Selection | None:
    """The rows that a run keeps, the same whenever it is resumed; None for all."""
    if chosen.at_most is None or chosen.charge_by is None:
        return None
    return select_rows(
        files,
        person=chosen.charge_by,
        period=chosen.per,
        at_most=chosen.at_most,
        key=hashlib.sha256(b"mezzotint selection " + run.encode()).digest(),
        dialect=chosen.dialect,
    )


def charge_people(
    chosen: Settings,
    files: Sequence[SourceFile],
    priced: Charge,
    *,
    budget: float,
    selected: Selection | None,
) -> Charged:
    """Charges each person for their rows; raises BudgetError where somebody's do not fit."""
    assert chosen.charge_by is not None
    ledger = _ledger(chosen)
    if ledger.path is None:
        raise ParameterError("ledger", None, "people are charged in a ledger on disk; name a file")
    with ledger.counting(ledger_key(ledger)) as counter:
        counted = people_in(files, chosen.charge_by, dialect=chosen.dialect, selected=selected)
        for ids, counts in counted:
            counter.add(ids, counts)
        line = ledger.charge_people(counter, priced, budget=budget)
    worst = ledger.worst()
    return Charged(
        path=str(ledger.path),
        people=line.persons,
        epsilon=upwards(line.most * Fraction(line.epsilon)),
        attempt=sum(other.identity == line.identity for other in ledger.people),
        spent=worst.epsilon,
        left=None if chosen.budget is None else worst.left(budget),
    )


def charge(
    work: Plan,
    chosen: Settings,
    *,
    files: Sequence[SourceFile],
    run: str,
    source: str | None,
    once: bool = False,
    selected: Selection | None = None,
) -> Charged | None:
    """Charges a run to the ledger of its settings, BEFORE anything is written; None where there is none.

    Arguments:
        once: the run's parts are the same bits whenever it is resumed: it pays once.
        selected: the rows that are kept; None for all.

    Raises:
        BudgetError: the claim does not fit the budget; nothing was charged or written.
        ParameterError: a row without the id of a person.
    """
    if chosen.ledger is None:
        return None
    ledger = _ledger(chosen)
    bits = hashlib.sha256(b"mezzotint run " + run.encode()).hexdigest() if once else ""
    claim, identity = report_claim(work.mechanisms), f"privatize {run}"
    about = str(claim) if source is None else f"{claim}{SOURCE}{source}"
    priced = Charge.of(claim, identity=identity, description=about, fingerprint=bits)
    budget = math.inf if chosen.budget is None else chosen.budget
    if chosen.charge_by is not None:
        return charge_people(chosen, files, priced, budget=budget, selected=selected)
    # Without a budget an infinite epsilon may be charged, too.
    unlimited = chosen.budget is None
    entry = ledger.charge(priced) if unlimited else ledger.reserve(priced, budget=(budget, 0.0))
    worst = ledger.worst()
    return Charged(
        path=None if ledger.path is None else str(ledger.path),
        people=None,
        epsilon=entry.release.epsilon,
        attempt=entry.attempt,
        spent=worst.epsilon,
        left=None if chosen.budget is None else worst.left(chosen.budget),
    )


RAW_COUNTS_REMARK = (
    "these counts were computed on the raw data and are not private; do not publish them"
)


class Seen(Claimed):
    """Base of the results of runs, shown with the remark that the raw counts need."""

    beside = ("remark",)
    remark = RAW_COUNTS_REMARK


@final
@dataclass(frozen=True, kw_only=True)
class ColumnResult(Record):
    """The outcome of one column.

    Arguments:
        column, field: the input column, and the field of the output that holds its codes.
        below, above: inputs clipped to lower and upper. Counted on raw data: not private.
        unlisted, respelled: values that no category names, reported as `(other)`; and values that name a category in
            another spelling. Counted on raw data: not private.
        epsilon: pure epsilon of one report, rounded up; None when the draw was seeded.
        bits: bits of one report.
        sha256: hash of the table used.

    Example:
        >>> mz.collect.ColumnResult(column="x", field="x_code", below=0, above=3, bits=1, sha256="2f...").above
        3
    """

    column: str
    field: str
    below: int
    above: int
    unlisted: int = 0
    respelled: int = 0
    epsilon: float | None = None
    bits: int
    sha256: str


@final
@dataclass(frozen=True, kw_only=True)
class ColumnsResult(Seen):
    """The outcome of a run over several columns: what was written and what was seen.

    Arguments:
        out: the file or folder written.
        columns: one entry per column.
        claim: what one record pays for all its reports, however often the run was interrupted; None when the draw was
            seeded.
        reports: rows in the output.
        missing: rows dropped because a value was missing. Counted on raw data; who is missing is visible.
        seeded: True when the draw was reproducible and therefore NOT private.
        seconds: wall time.
        blocks, resumed: parts of a folder, and how many of them were there before this run began; `missing` and the
            clipped inputs of those are not counted here.
        beyond: rows dropped as their person has more than `at_most`. Counted on raw data: not private.
        shift: how far the kept rows are from all, in total variation: times the range it bounds the
            difference of their means. Not private; None without `at_most`.
        charged: what the ledger was charged; None without one, and where a finished run had nothing left to do.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x,y\\n" + "1,0\\n0,1\\n" * 50)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> result = mz.collect.privatize_columns("in.csv", "out.csv", mechanisms={"x": table, "y": table})
        >>> result.reports, round(result.claim.epsilon, 6)
        (100, 4.0)
    """

    out: str
    columns: tuple[ColumnResult, ...]
    claim: Claim | None
    reports: int
    missing: int
    seeded: bool
    seconds: float
    blocks: int = 1
    resumed: int = 0
    beyond: int = 0
    shift: float | None = None
    charged: Charged | None = None

    def _rows(self) -> list[JsonObject]:
        return [column.as_dict() for column in self.columns]


@final
@dataclass(frozen=True, kw_only=True)
class PrivatizeResult(Seen):
    """The outcome of `privatize`: what was written and what was seen.

    Arguments:
        column, field, below, above, unlisted, respelled, bits, sha256: as in `ColumnResult`.
        out, reports, missing, claim, seeded, seconds, blocks, resumed, beyond, shift, charged: as in
            `ColumnsResult`.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("x\\n" + "1\\n0\\n\\n" * 50)
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=2.0)
        >>> result = mz.collect.privatize("in.csv", "out.csv", column="x", mechanism=table, missing="drop")
        >>> result.reports, result.missing, round(result.claim.epsilon, 6)
        (100, 50, 2.0)
    """

    column: str
    field: str
    out: str
    reports: int
    below: int
    above: int
    unlisted: int = 0
    respelled: int = 0
    missing: int
    claim: Claim | None
    bits: int
    sha256: str
    seeded: bool
    seconds: float
    blocks: int = 1
    resumed: int = 0
    beyond: int = 0
    shift: float | None = None
    charged: Charged | None = None


def result_of(
    work: Plan, tally: Tally, *, out: str | os.PathLike[str], started: float
) -> ColumnsResult:
    """The result of a run that wrote all its output at once."""
    claim, seeded = report_claim(work.mechanisms), work.seeded
    columns = tuple(
        ColumnResult(
            column=column,
            field=code_field(column),
            below=tally.below.get(column, 0),
            above=tally.above.get(column, 0),
            unlisted=tally.unlisted.get(column, 0),
            respelled=tally.respelled.get(column, 0),
            epsilon=None if seeded else epsilon,
            bits=work.mechanisms[column].bits,
            sha256=work.mechanisms[column].sha256,
        )
        for column, epsilon in claim.parts
    )
    return ColumnsResult(
        out=os.fspath(out),
        columns=columns,
        claim=None if seeded else claim,
        reports=tally.reports,
        missing=tally.missing,
        beyond=tally.beyond,
        seeded=seeded,
        seconds=time.perf_counter() - started,
    )


def of_one_column(result: ColumnsResult) -> PrivatizeResult:
    """The same, for a run over one column."""
    known = asdict(result.columns[0]) | {
        one.name: getattr(result, one.name) for one in fields(result)
    }
    return PrivatizeResult(**{one.name: known[one.name] for one in fields(PrivatizeResult)})
