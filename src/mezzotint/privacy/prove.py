"""A claim about a whole release with a proof that the kernel has accepted."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mezzotint import kernel
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.privacy.account import account
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.propose import Outcome, propose_local, sealed
from mezzotint.privacy.sums.propose import propose_sum

_SECONDS = 10
"""That a statement about one report may take to check before it is called computed."""


def prove(
    mechanism: Mechanism,
    *,
    coordinates: int = 1,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    sampling: str = "revealed",
    neighboring: str = "replace_one",
    view: str = "local",
    clients: int | None = None,
    corrupted: int = 0,
    delta: float = 1e-6,
    seconds: int = 60,
) -> Outcome:
    """What `account` finds, raised by a little, with a proof that `mezzotint.kernel.check` has accepted.

    Arguments:
        mechanism, coordinates, rounds, sampling_rate, sampling, neighboring, view, clients, corrupted, delta: as in
            `account`, which is asked first.
        seconds: processor time for each check.

    Returns: `.claim` (certified), `.proof`, `.text` (the claim file); without a proof `.claim` is computed and
        `.reason` says why.

    Raises:
        ParameterError: as `account`; and for secret participation in sums, about which no kind of proof says anything.

    Guarantees: a claim with a proof has passed `mezzotint.kernel.check` in this process.
    Source: docs/proofs/kernel.md.
    """
    if view == "shuffled":
        raise ParameterError("view", view, "claims about shuffled reports have no proof yet; ask account for them")
    found = account(
        mechanism, coordinates=coordinates, rounds=rounds, sampling_rate=sampling_rate, sampling=sampling,
        neighboring=neighboring, view=view, clients=clients, corrupted=corrupted, delta=delta,
    )  # fmt: skip
    mechanism = nameless(mechanism)
    if view == "local":
        return propose_local(
            mechanism, epsilon=found.epsilon, delta=delta, coordinates=coordinates, rounds=rounds,
            sampling=found.sampling, rate=sampling_rate, neighboring=neighboring, seconds=seconds,
        )  # fmt: skip
    if found.sampling not in ("none", "revealed"):
        raise ParameterError("sampling", sampling, "sums with secret participation have no proof yet; use account")
    return propose_sum(
        mechanism, epsilon=found.epsilon, delta=delta, clients=int(clients or 1), corrupted=corrupted,
        coordinates=coordinates, rounds=rounds, sampling=found.sampling, rate=sampling_rate, seconds=seconds,
    )  # fmt: skip


def nameless(mechanism: Mechanism) -> Mechanism:
    """The table without the names of its categories, which the kernel does not read: claims are about the numbers."""
    if mechanism.categories is None:
        return mechanism
    return Mechanism(knots=mechanism.knots, levels=mechanism.levels, weights=mechanism.weights, name=mechanism.name)


@functools.lru_cache(maxsize=32)
def check_reports(mechanisms: tuple[Mechanism, ...], *, epsilon: float) -> kernel.Claim | None:
    """The pure claim of one report from each table together, checked by the kernel; None where it is not accepted."""
    tables = [nameless(mechanism) for mechanism in mechanisms]
    drawn = tuple((digest, count) for digest, count in Counter(table.sha256 for table in tables).items())
    texts = {table.sha256: table.canonical() for table in tables}
    return _checked(drawn, {"kind": "dp", "epsilon": repr(float(epsilon)), "delta": "0"}, "ratio", texts.values())


def check_report(mechanism: Mechanism, proof: str, *, order: float | None = None, **stated: Any) -> kernel.Claim | None:
    """What the kernel makes of a statement about one report of a table; None when it does not accept it in time.

    Arguments:
        proof: the kind: "ratio" (pure), "delta" or "renyi".
        order: of a Renyi statement.
        stated: the statement's numbers, epsilon and delta; taken at their shortest decimals.
    """
    table = nameless(mechanism)
    exact = {name: repr(float(value)) for name, value in stated.items()}
    ordered = {} if order is None else {"order": repr(float(order))}
    statement = {"kind": "dp" if order is None else "renyi", **exact, **ordered}
    return _checked(((table.sha256, 1),), statement, proof, [table.canonical()], **ordered)


def _checked(
    drawn: tuple[tuple[str, int], ...], statement: dict[str, Any], proof: str, texts: Iterable[str], **content: Any
) -> kernel.Claim | None:
    claim = kernel.Claim(release=kernel.Release(observer="reports", tables=drawn), statement=statement)
    try:
        return kernel.check(claim, sealed(claim, proof, tables=texts, **content), seconds=_SECONDS)
    except (kernel.Refused, kernel.Unreadable, kernel.Unfinished):
        return None


def report_claim(mechanism: Mechanism) -> Claim:
    """What one report costs: the table's pure epsilon, certified where the kernel accepts it.

    Guarantees: `.epsilon == mechanism.epsilon`.
    """
    found = account(mechanism, delta=0.0)
    return replace(found, checked=check_reports((mechanism,), epsilon=found.epsilon))
