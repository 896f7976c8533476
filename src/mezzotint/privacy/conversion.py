"""Ledgers that charge people by name, written as ledgers of compact segments."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from mezzotint.core.errors import ParameterError
from mezzotint.core.files import draft_name, publish, sync_folder
from mezzotint.core.records import Progress
from mezzotint.privacy.charges import GLOBAL, Charge, Entry
from mezzotint.privacy.ledger import Ledger
from mezzotint.privacy.people_store import people_folder


def convert_ledger(
    old: Ledger,
    path: str | os.PathLike[str],
    *,
    key: bytes,
    progress: Progress | None = None,
) -> Ledger:
    """A new ledger of segments that charges everybody what one of people by name does; nothing is
    lost.

    Arguments:
        old: it is read, and stays as it is.
        path: of the new one.
        key: under which ids are hashed.
        progress: called as progress(charges, total).

    Returns: the new ledger. People of one run and one price become one line.

    Guarantees: the file `path` appears with all charges or not at all: a part of them would be a
        ledger that forgot the others.

    Raises:
        ParameterError: a path that exists; a charge of a person with a delta or an infinite
        epsilon.

    Example:
        >>> old = mz.privacy.Ledger("old.jsonl")
        >>> for person in ("ann", "bob"):
        ...     _ = old.charge(mz.privacy.Charge(identity=f"May of {person}", client=person, epsilon=1.0, delta=0.0))
        >>> new = mz.privacy.convert_ledger(old, "new.ledger", key=bytes(32))
        >>> new.persons, new.person_spent("ann", key=bytes(32)).epsilon
        (2, 1.0)
    """
    target = Path(path)
    for taken in (target, people_folder(target)):
        if taken.exists():
            raise ParameterError("path", str(taken), "exists already; name a new file")
    entries = old.charges
    for entry in entries:
        _check_convertible(entry.release)
    draft = draft_name(target)
    try:
        _write(entries, Ledger(draft), key=key, progress=progress)
        _publish(draft, target)
    finally:
        draft.unlink(missing_ok=True)
        shutil.rmtree(people_folder(draft), ignore_errors=True)
    return Ledger(target)


def _publish(draft: Path, target: Path) -> None:
    """Gives a complete ledger its name; the file comes last, since it is what makes a ledger."""
    taken = ParameterError("path", str(target), "exists already; name a new file")
    people = people_folder(draft)
    has_people = people.exists()
    try:
        if has_people:
            _rename_new(people, people_folder(target), taken)
            sync_folder(target.parent)  # a power cut must not keep the file's name alone
        if not publish(draft, target):
            raise taken
    finally:
        if has_people and not people.exists() and not _has_name(draft, target):
            # They would lock the ledger that has, or takes, the name.
            people_folder(target).rename(people)


def _has_name(draft: Path, target: Path) -> bool:
    """Whether the draft has its name, be it that this is not durable yet."""
    return target.exists() and (not draft.exists() or target.samefile(draft))


def _rename_new(folder: Path, name: Path, taken: ParameterError) -> None:
    """Renames a folder; raises `taken` where the name has another one."""
    try:
        folder.rename(name)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise taken from None
        raise


def _write(entries: Sequence[Entry], new: Ledger, *, key: bytes, progress: Progress | None) -> None:
    """Charges all that was charged to a new ledger, which nobody else uses."""
    clients_by_run: dict[_Run, list[str]] = {}
    for entry in entries:
        release = entry.release
        if release.client == GLOBAL:
            charged = new.charge(release)
            if entry.withdrawn:
                new.withdraw(charged, reason=entry.withdrawn)
        else:
            clients_by_run.setdefault(_Run.of(entry), []).append(release.client)
    converted_count = 0
    for run, clients in clients_by_run.items():
        with new.counting(key) as counter:
            counter.add(clients)
            line = new.charge_people(counter, run.row_charge)
        if run.withdrawn:
            new.withdraw(line, reason=run.withdrawn)
        converted_count += len(clients)
        if progress is not None:
            progress(converted_count, len(entries))


def _check_convertible(release: Charge) -> None:
    """Raises ParameterError for a charge of a person that segments cannot hold."""
    if release.client == GLOBAL:
        return
    if math.isinf(release.epsilon) or release.delta > 0:
        remedy = "people are charged pure, finite epsilons; this ledger stays as it is"
        raise ParameterError("ledger", release.identity, remedy)


@final
@dataclass(frozen=True, kw_only=True)
class _Run:
    """What the charges of the people of one run have in common: they become one line.

    Arguments:
        identity, description, fingerprint, epsilon: as of `Charge`; the identity without the name.
        attempt, withdrawn: as of `Entry`.
    """

    identity: str
    description: str
    fingerprint: str
    epsilon: float
    attempt: int
    withdrawn: str

    @staticmethod
    def of(entry: Entry) -> _Run:
        """The run of a person's charge."""
        release = entry.release
        return _Run(
            identity=release.identity.removesuffix(f" of {release.client}"),
            description=release.description,
            fingerprint=release.fingerprint,
            epsilon=release.epsilon,
            attempt=entry.attempt,
            withdrawn=entry.withdrawn,
        )

    @property
    def row_charge(self) -> Charge:
        """The charge of one row, under the name and the fingerprint of its run: the same bits are
        not charged again.
        """
        return Charge(
            identity=self.identity,
            client=GLOBAL,
            epsilon=self.epsilon,
            delta=0.0,
            description=self.description,
            fingerprint=self.fingerprint,
        )
