"""Ledgers that charge people by name, written as ledgers of compact segments."""

from __future__ import annotations

import math
import os
from pathlib import Path

from mezzotint.core.errors import ParameterError
from mezzotint.core.records import Progress
from mezzotint.privacy.charges import GLOBAL, Charge
from mezzotint.privacy.ledger import Ledger


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
    if Path(path).exists():
        raise ParameterError("path", os.fspath(path), "exists already; name a new file")
    entries = old.charges
    for entry in entries:
        personal = entry.release.client != GLOBAL
        if personal and (math.isinf(entry.release.epsilon) or entry.release.delta > 0):
            remedy = "people are charged pure, finite epsilons; this ledger stays as it is"
            raise ParameterError("ledger", entry.release.identity, remedy)
    new = Ledger(path)
    together: dict[tuple[str, str, str, float, int, str], list[str]] = {}
    for entry in entries:
        release = entry.release
        if release.client == GLOBAL:
            charged = new.charge(release)
            if entry.withdrawn:
                new.withdraw(charged, reason=entry.withdrawn)
            continue
        identity = release.identity.removesuffix(f" of {release.client}")
        group = (
            identity,
            release.description,
            release.fingerprint,
            release.epsilon,
            entry.attempt,
            entry.withdrawn,
        )
        together.setdefault(group, []).append(release.client)
    done = 0
    for (identity, description, fingerprint, epsilon, _, reason), people in together.items():
        claim = Charge(
            identity=identity,
            client=GLOBAL,
            epsilon=epsilon,
            delta=0.0,
            description=description,
            fingerprint=fingerprint,
        )
        with new.counting(key) as counter:
            counter.add(people)
            line = new.charge_people(counter, claim)
        if reason:
            new.withdraw(line, reason=reason)
        done += len(people)
        if progress is not None:
            progress(done, len(entries))
    return new
