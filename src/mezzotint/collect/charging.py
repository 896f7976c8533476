"""The charge of a run to a ledger: for everybody alike, or for each person by the rows that are theirs."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import final

from mezzotint.collect.encoder import Encoder
from mezzotint.collect.listing import SourceFile, open_binary
from mezzotint.collect.memo import load_memo_key, write_key
from mezzotint.collect.people import asked_rows, people_in, people_of, select_rows
from mezzotint.collect.settings import Settings
from mezzotint.collect.sink import draft_of, is_unnamed
from mezzotint.collect.source import Batch, Selection, Source, Wanted
from mezzotint.core.errors import BudgetError, ParameterError
from mezzotint.core.files import publish, resolved
from mezzotint.core.records import above, below, exactly
from mezzotint.core.sampler import fresh_key
from mezzotint.core.types import AnyPath
from mezzotint.privacy import Ledger
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.charges import Charge, Entry, upwards
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.people import LEAST_USEFUL, PeopleLine, PersonCounter
from mezzotint.privacy.people_store import people_folder

SOURCE = "; source "
"""Before the fingerprint of its source in the description of a charge."""


def ledger_of(settings: Settings) -> Ledger:
    """The ledger that is charged; there must be one."""
    assert settings.ledger is not None
    return settings.ledger if isinstance(settings.ledger, Ledger) else Ledger(settings.ledger)


def ledger_path(settings: Settings) -> Path | None:
    """The file of the ledger, which is not opened: it may be what fails. None without one."""
    ledger = settings.ledger
    path = ledger.path if isinstance(ledger, Ledger) else ledger
    return None if path is None else Path(path).absolute()


# The secret of a ledger ------------------------------------------------------------------------------------------


def fingerprint(settings: Settings, files: Sequence[SourceFile]) -> str | None:
    """Names the content of a source, the same in all runs of one ledger; None for standard input, and without a ledger.

    A hash of private data that anybody can compute gives them away: whoever knows all rows but one can try its values.
    So it is keyed, by 32 random bytes in the file beside the ledger that ends in ".key", made when it is missing.
    """
    if settings.ledger is None or any(file.path == "-" for file in files):
        return None
    ledger = ledger_of(settings)
    if ledger.path is None:
        return None
    key = ledger_key(ledger)
    digests: list[bytes] = []
    for file in files:
        with open_binary(file.path) as stream:
            digests.append(hashlib.file_digest(stream, "sha256").digest())  # type: ignore[arg-type]
    content = b"".join(sorted(digests))
    return hmac.new(key, b"mezzotint source " + content, hashlib.sha256).hexdigest()[:32]


def key_path(path: str | os.PathLike[str]) -> Path:
    """The file of a ledger's secret: beside the ledger itself, where links to it lead."""
    return Path(f"{resolved(path, parameter='ledger')}.key")


def refuse_ledger_as_output(out: str | os.PathLike[str], settings: Settings) -> None:
    """Raises ParameterError where the reports would be written to the ledger, or to what is its."""
    path = ledger_path(settings)
    if path is None or os.fspath(out) == "-":
        return
    target = resolved(out, parameter="out")
    for place in (resolved(path, parameter="ledger"), key_path(path), people_folder(path)):
        if target.is_relative_to(place):
            remedy = "is the ledger, or belongs to it; name another place"
            raise ParameterError("out", os.fspath(out), remedy)


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
    path = key_path(ledger.path)
    if not path.exists():
        # In this order: another run may make it meanwhile, and charge.
        sources = [SOURCE in charge.release.description for charge in ledger.charges]
        used = bool(ledger.people) or any(sources)
        if (used or not create) and not path.exists():
            remedy = (
                f"its key {path} is missing; copy it from where the ledger was, with the folder of "
                "its people"
            )
            raise ParameterError("ledger", str(ledger.path), remedy)
        _publish_key(path, fresh_key())
    return load_memo_key(path)


def inherited_key(old: Ledger, path: Path) -> bytes:
    """The secret of a ledger that will be written anew at a path: that of the old one where it has one."""
    assert old.path is not None
    target = key_path(path)
    before = key_path(old.path)
    if not target.exists():
        _publish_key(target, load_memo_key(before) if before.exists() else fresh_key())
    return load_memo_key(target)


def _publish_key(path: Path, key: bytes) -> None:
    with draft_of(path) as draft:
        write_key(draft, key)
        publish(draft, path)  # whole, and of several runs that begin at once one makes it


# Charges ---------------------------------------------------------------------------------------------------------


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


def check_budget(encoder: Encoder, settings: Settings) -> None:
    """Raises BudgetError where the claim of one row does not fit the budget: before anything is read or made.

    Only `RunCharge.pay` decides: others may charge meanwhile, and a person may have several records.
    """
    ledger = settings.ledger
    budget = settings.budget
    if ledger is None or budget is None:
        return
    claim = report_claim(encoder.mechanisms)
    exceeds = claim.epsilon > budget
    spent_epsilon = 0.0
    if settings.charge_by is None and (isinstance(ledger, Ledger) or Path(ledger).exists()):
        release = Charge.of(claim, identity="privatize", description="", fingerprint="")
        exceeds |= ledger_of(settings).would_exceed(budget, 0.0, release=release)
        spent_epsilon = ledger_of(settings).worst().epsilon
    if exceeds:
        raise BudgetError(_overspending(claim.epsilon, budget=budget, spent=spent_epsilon))


def _overspending(epsilon: float, *, budget: float, spent: float) -> str:
    """Why a run does not fit the budget of a row, and what would help."""
    needed = above(math.nextafter(epsilon + spent, math.inf))
    if spent == 0:
        needed = above(epsilon)
    remedy = f"allow {needed} (--budget {needed})"
    if math.isinf(epsilon + spent):
        remedy = "no budget holds an unbounded epsilon"
    remaining = budget
    if spent > 0:
        remaining = math.nextafter(budget - spent, -math.inf)
    if remaining >= LEAST_USEFUL:
        remaining_text = below(remaining)
        table = (
            f"draw from a table of epsilon {remaining_text} (mezzotint design --epsilon "
            f"{remaining_text})"
        )
        remedy = f"{table}, or {remedy}"
    if spent > 0:
        remedy = f"{remedy}; for rows of other people keep another ledger"
    return (
        f"this run costs each row epsilon {above(epsilon)}, and {above(spent)} of the budget of "
        f"{exactly(budget)} is spent; nothing was read, charged or written: {remedy}"
    )


def run_identity(run: str) -> str:
    """Under which a ledger charges a run."""
    return f"privatize {run}"


def charged_source(settings: Settings, run: str) -> str | None:
    """The fingerprint of the source that a run was charged for, empty where its charge has none;
    None where it was not charged.
    """
    path = ledger_path(settings)
    if settings.ledger is None or (path is not None and not path.exists()):
        return None
    ledger = ledger_of(settings)
    charges = [entry.release for entry in ledger.charges if not entry.withdrawn]
    lines = [line for line in ledger.people if not line.withdrawn]
    for charge in (*charges, *lines):
        if charge.identity == run_identity(run):
            _, _, source_print = charge.description.partition(SOURCE)
            return source_print
    return None


@contextmanager
def counting(ledger: Ledger) -> Iterator[PersonCounter]:
    """A counter of a ledger's people; ParameterError for a ledger in memory."""
    if ledger.path is None:
        remedy = "people are charged in a ledger on disk; name a file"
        raise ParameterError("ledger", None, remedy)
    with ledger.counting(ledger_key(ledger)) as counter:
        yield counter


def counts_along(encoder: Encoder, settings: Settings, source: Source, out: Path | None) -> bool:
    """Whether the ids of people are read in one pass with the values.

    They are where one file is written whose draft has no name: nobody can read a report of it
    before all people are counted and charged, and none is left if they are not. Elsewhere people
    are charged before the first report is written, so that their ids are read before the values.
    """
    column = settings.charge_by
    if column is None or source.is_stream or out is None:
        return False
    return column not in encoder.columns and is_unnamed(out)


def people_along(batches: Iterator[Batch], counter: PersonCounter, column: str) -> Iterator[Batch]:
    """The same batches, whose people are counted as they pass."""
    for batch in batches:
        counter.add(people_of(batch, column))
        yield batch


def selection_of(settings: Settings, source: Source, run: str) -> Selection | None:
    """The rows that a run keeps, the same whenever it is resumed; None for all."""
    selection = None
    if settings.at_most is not None and settings.charge_by is not None:
        selection = select_rows(
            source.files,
            person=settings.charge_by,
            period=settings.per,
            at_most=settings.at_most,
            key=hashlib.sha256(b"mezzotint selection " + run.encode()).digest(),
            dialect=source.dialect,
        )
    if settings.lot is not None:
        selection = asked_rows(source.files, settings.lot, dialect=source.dialect, within=selection)
    return selection


@final
@dataclass(frozen=True, kw_only=True)
class RunCharge:
    """What a run costs, and who pays for it.

    Arguments:
        claim: about one record.
        settings: which ledger, what budget, and whether people pay for their own rows.
        source: whose rows are charged.
        run: its name.
        fingerprint: of the source; None where it has none.
        checked: refuses rows, which are read for it together with the ids, before people are charged: for
            runs that write parts as they read, which pay once, however often they are resumed. None
            where all rows were read before.
        counter: of the people of all rows, where the run counted them as it read their values; None
            to read their ids first.
    """

    claim: Claim
    settings: Settings
    source: Source
    run: str
    fingerprint: str | None
    checked: Encoder | None = None
    counter: PersonCounter | None = None

    @property
    def release(self) -> Charge:
        """The price of one record, as ledgers write it."""
        bits = b"mezzotint run " + self.run.encode()
        about = "" if self.fingerprint is None else f"{SOURCE}{self.fingerprint}"
        return Charge.of(
            self.claim,
            identity=run_identity(self.run),
            description=f"{self.claim}{about}",
            fingerprint=hashlib.sha256(bits).hexdigest() if self.checked is not None else "",
        )

    def refuse_other_rows(self) -> None:
        """Raises ParameterError where the run was charged for other rows, in files of the same
        names, sizes and times.
        """
        before = charged_source(self.settings, self.run)
        if before and self.fingerprint and before != self.fingerprint:
            remedy = "hold other rows than when the run was charged; restore them, or begin another"
            raise ParameterError(
                "source",
                "the files",
                remedy,
            )

    def pay(self) -> Entry | PeopleLine | None:
        """Charges the run, BEFORE anything of it can be read; None where there is no ledger.

        Raises:
            BudgetError: the claim does not fit the budget; nothing was charged or written.
            ParameterError: a row without the id of a person.
        """
        if self.settings.ledger is None:
            return None
        ledger = ledger_of(self.settings)
        if self.settings.charge_by is not None:
            return self._charge_people(ledger, self.settings.charge_by)
        return self._charge_everybody(ledger)

    def _charge_everybody(self, ledger: Ledger) -> Entry:
        """Charges one record to everybody; without a budget an infinite epsilon may be charged, too."""
        if self.settings.budget is None:
            return ledger.charge(self.release)
        return ledger.reserve(self.release, budget=(self.settings.budget, 0.0))

    def _charge_people(self, ledger: Ledger, column: str) -> PeopleLine:
        """Charges each person for their rows; raises BudgetError where somebody's do not fit."""
        if self.counter is not None:
            return self._charge_counted(ledger, self.counter)
        with counting(ledger) as counter:
            self._count(counter, column)
            return self._charge_counted(ledger, counter)

    def _charge_counted(self, ledger: Ledger, counter: PersonCounter) -> PeopleLine:
        budget = math.inf if self.settings.budget is None else self.settings.budget
        return ledger.charge_people(counter, self.release, budget=budget)

    def _count(self, counter: PersonCounter, column: str) -> None:
        """Counts the people of all rows, before any value is drawn for."""
        wanted = Wanted(others={column: "people"})
        if self.checked is not None:
            wanted = replace(self.checked.wanted, others={column: "people"})
        rows = 0
        for batch, ids in people_in(replace(self.source, wanted=wanted), column):
            if self.checked is not None:
                self.checked.check(batch)
            counter.add(ids)
            rows += batch.rows
            self.settings.report_progress(rows, share=batch.done)

    def receipt(self, entry: Entry | PeopleLine) -> Charged:
        """The ledger's record of what `pay` charged."""
        ledger = ledger_of(self.settings)
        if isinstance(entry, PeopleLine):
            attempts = [earlier.identity == entry.identity for earlier in ledger.people]
            attempt = sum(attempts)
            epsilon = upwards(entry.most * Fraction(entry.epsilon))
        else:
            attempt = entry.attempt
            epsilon = entry.release.epsilon
        worst = ledger.worst()
        budget = self.settings.budget
        return Charged(
            path=None if ledger.path is None else str(ledger.path),
            people=entry.persons if isinstance(entry, PeopleLine) else None,
            epsilon=epsilon,
            attempt=attempt,
            spent=worst.epsilon,
            left=None if budget is None else worst.left(budget),
        )


@final
@dataclass(kw_only=True)
class Payment:
    """The payment of a run, made once, whichever of its threads asks first.

    Attributes:
        entry: of the ledger; None before the run is charged, and where there is no ledger.
        published: the file that holds all reports of the run; None before.
    """

    entry: Entry | PeopleLine | None = None
    published: AnyPath | None = None
    _made: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def make(self, charge: RunCharge) -> None:
        """Charges the run unless it was."""
        with self._lock:
            if not self._made:
                self.entry = charge.pay()
                self._made = True

    def receipt(self, charge: RunCharge) -> Charged | None:
        """What was charged, now or before; None where there is no ledger."""
        self.make(charge)
        return None if self.entry is None else charge.receipt(self.entry)

    @contextmanager
    def remembered(self, settings: Settings) -> Iterator[None]:
        """Adds to whatever ends a run into one file early that it was charged, where it was."""
        try:
            yield
        except BaseException as error:
            if self.entry is not None:
                path = ledger_path(settings) or "its ledger"
                remedy = "to run it again draws other reports, and is charged again"
                if self.published is not None:
                    remedy = f"{os.fspath(self.published)} holds its reports, whole"
                error.add_note(f"the run is charged to {path} all the same; {remedy}")
            raise
