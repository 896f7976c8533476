"""What a run costs whom, by the ledger; and which source it was about, for those who keep the ledger."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.collect import places
from mezzotint.collect.drawing import Plan
from mezzotint.collect.memo import load_memo_key, new_memo_key
from mezzotint.collect.settings import Settings
from mezzotint.collect.sources import SourceFile, open_file
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import publish
from mezzotint.privacy import Ledger
from mezzotint.privacy.ledger import Charge, Entry
from mezzotint.privacy.prove import report_claim

compute: Any = pc  # its functions are made at import time, unseen by type checkers


def fingerprint(chosen: Settings, files: Sequence[SourceFile]) -> str | None:
    """Names the content of a source, the same in all runs of one ledger; None without a ledger in a file.

    A hash of private data that anybody can compute gives them away: who knows all rows but one tries its values. So it
    is keyed, by 32 random bytes in the file beside the ledger that ends in ".key", which is made when it is missing.

    Arguments:
        chosen: the options of the run.
        files: the source; standard input has no fingerprint. Their names and their order do not matter.

    Raises:
        ParameterError, FileFormatError: a key that others may read, or that is none.
    """
    path = None if chosen.ledger is None else _ledger(chosen).path
    if path is None or any(file.path == "-" for file in files):
        return None
    key = _key(Path(f"{path}.key"))
    content = b"".join(sorted(_digest(file.path) for file in files))
    return hmac.new(key, b"mezzotint source " + content, hashlib.sha256).hexdigest()[:32]


def _key(place: Path) -> bytes:
    if not place.exists():
        draft = place.with_name(f".{place.name}.{secrets.token_hex(6)}.partial")
        try:
            new_memo_key(draft)
            publish(draft, place)  # whole, and of several runs that begin at once one makes it
        finally:
            draft.unlink(missing_ok=True)
    return load_memo_key(place)


def _digest(name: str) -> bytes:
    with places.open_binary(name) as stream:
        return hashlib.file_digest(stream, "sha256").digest()  # type: ignore[arg-type]


def _ledger(chosen: Settings) -> Ledger:
    assert chosen.ledger is not None
    return chosen.ledger if isinstance(chosen.ledger, Ledger) else Ledger(chosen.ledger)


@final
@dataclass(frozen=True, kw_only=True)
class Charged:
    """What a ledger says of a run that it was charged for.

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


def charge(
    work: Plan, chosen: Settings, *, files: Sequence[SourceFile], run: str, source: str | None, once: bool = False
) -> Charged | None:
    """Charges a run to the ledger of its settings, BEFORE anything is written; None where there is none.

    Arguments:
        files: the source.
        run: its name.
        source: its `fingerprint`, which the charge notes.
        once: the run's parts are the same bits whenever it is resumed: it pays once.

    Raises:
        BudgetError: the claim does not fit the budget; nothing was charged or written.
        ParameterError: a row without the id of a person.
    """
    if chosen.ledger is None:
        return None
    ledger = _ledger(chosen)
    bits = hashlib.sha256(b"mezzotint run " + run.encode()).hexdigest() if once else ""
    claim, identity = report_claim(work.mechanisms), f"privatize {run}"
    about = str(claim) if source is None else f"{claim}; source {source}"
    priced = Charge.of(claim, identity=identity, description=about, fingerprint=bits)
    releases = [priced]
    if chosen.people is not None:
        # Reports of one person's rows add up; the product is rounded up.
        releases = [
            replace(
                priced,
                identity=f"{identity} of {person}",
                client=person,
                epsilon=priced.epsilon if rows == 1 else math.nextafter(rows * priced.epsilon, math.inf),
            )
            for person, rows in rows_of_people(files, chosen.people).items()
        ]
    budget = math.inf if chosen.budget is None else chosen.budget
    if chosen.budget is None and len(releases) == 1:
        entries = (ledger.charge(releases[0]),)
    else:
        entries = ledger.reserve_all(releases, budget=(budget, 0.0))
    return _charged(ledger, entries, chosen)


def _charged(ledger: Ledger, entries: Sequence[Entry], chosen: Settings) -> Charged:
    worst = ledger.worst()
    return Charged(
        path=None if ledger.path is None else str(ledger.path),
        people=None if chosen.people is None else len(entries),
        epsilon=max((entry.release.epsilon for entry in entries), default=0.0),
        attempt=max((entry.attempt for entry in entries), default=1),
        spent=worst.epsilon,
        left=None if chosen.budget is None else worst.left(chosen.budget),
    )


def rows_of_people(files: Sequence[SourceFile], column: str) -> dict[str, int]:
    """How many rows of a data set each person has, by the ids of a column; raises ParameterError for a missing one."""
    found: Counter[str] = Counter()
    for file in files:
        if file.path == "-":
            raise ParameterError("people", column, "is read before the rows are; name a file, not standard input")
        rows = 0
        with open_file(file, numeric=(), extra={column: "people"}) as opened:
            for batch in opened.batches():
                counted = compute.value_counts(compute.cast(batch.column(0), pa.string()))
                for one in counted.to_pylist():
                    if one["values"] is None:
                        raise ParameterError("people", column, f"has no id in {file.name}, after data row {rows}")
                    found[one["values"]] += one["counts"]
                rows += batch.num_rows
    return dict(found)
