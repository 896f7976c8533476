"""What a client has paid for secure sums in all its life: whatever session, app or server asked."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import final

from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError
from mezzotint.core.files import AppendLog
from mezzotint.core.records import JsonObject
from mezzotint.federated.descriptions import packed, unpacked
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.secagg.errors import ReplayedRound

_FORMAT = "mezzotint-lifetime-ledger"

Kind = tuple[str, int, int, int]
"""Binding of the encoding, summands, corrupted ones among them, parameters: sums alike compose exactly."""

Place = tuple[str, int, str]
"""Session, number and plan of a round."""


@final
class LifetimeLedger:
    """Sums that a client was in, on disk before its masked input leaves, in a file that processes may share.

    Sums of one kind (encoding, fewest summands, corrupted ones, size) are composed by the encoding's own accountant;
    kinds are added up, each at its share of delta. A charge is worst case: a sum of the plan's minimum, in which
    corrupted clients add no noise. It is never taken back.

    Arguments:
        path: file, made when absent.
        identity: of the client, hexadecimal; a file of another client is refused.

    Raises:
        FileFormatError: a file of another client, or damaged anywhere but in what a crash can cut.
        StorageError: it cannot be written or locked.

    Guarantees: `charge` returns after the charge is on disk; when it raises, nothing may be sent.
    """

    def __init__(self, path: Path, *, identity: str) -> None:
        self._counted: dict[Kind, set[Place]] = {}
        self._encodings: dict[str, bytes] = {}
        self._plans: set[str] = set()
        header = {"format": _FORMAT, "version": 1, "identity": identity}
        self._log = AppendLog(path, header=header, take=self._take, what="ledger")

    def charge(
        self,
        encoding: Encoding,
        *,
        plan: bytes,
        clients: int,
        corrupted: int,
        size: int,
        budget: float,
        delta: float,
        session: bytes = b"",
        number: int = 1,
    ) -> float:
        """Charges one more sum, before anything of it is sent.

        Arguments:
            encoding: of the sum.
            plan: its digest, for the record.
            clients, corrupted: fewest summands, and how many of them may add no noise.
            size: numbers of the client that are summed: parameters of the model, or metrics.
            budget, delta: the total epsilon that may not be exceeded (inf: any), and its delta.
            session, number: of the round, whose place among the session's decides what an update that is spread over
                several sums costs; without a session the sum stands alone.

        Returns: epsilon of all sums, this one included; inf without a budget, for then it is only noted.

        Raises:
            BudgetError: the total would exceed the budget; nothing is charged.
            ReplayedRound: a sum of this plan, or of another plan of this round, is on the ledger: an answer twice may
                open both secrets, and a share of an update is told once.
            ParameterError: a budget, but nothing is claimed of this encoding, or an earlier one, against its server.
            FileFormatError: a budget, and sums on the ledger whose encoding this version cannot read.
        """
        encoding = encoding.accounted
        kind = (encoding.binding.hex(), clients, corrupted, size)
        with self._log.transaction() as append:
            if plan.hex() in self._plans:
                raise ReplayedRound("sum", "this round was answered before, perhaps by another process")
            line: JsonObject = {"plan": plan.hex(), "purpose": encoding.purpose, "kind": list(kind)}
            if session:
                line |= {"session": session.hex(), "number": number}
            counted = {one: set(rounds) for one, rounds in self._counted.items()}
            place, known = _place(line), counted.setdefault(kind, set())
            if session and any(place[:2] == one[:2] for places in counted.values() for one in places):
                raise ReplayedRound("sum", "this round was answered before, under another plan")
            known.add(place)
            encodings = self._encodings | {kind[0]: packed(encoding)}
            total = math.inf if math.isinf(budget) else _total(counted, encodings, delta)
            if total > budget:
                raise BudgetError(f"epsilon {total:g} in all its sums would exceed the budget of {budget:g}")
            if kind[0] not in self._encodings:
                line["encoding"] = encodings[kind[0]].hex()
            append(line)
        return total

    def spent(self, delta: float) -> float:
        """Epsilon of all sums so far."""
        self._log.refresh()
        return _total(self._counted, self._encodings, delta)

    @property
    def sums(self) -> int:
        """How many there were."""
        self._log.refresh()
        return sum(map(len, self._counted.values()))

    def _take(self, line: JsonObject) -> None:
        self._plans.add(str(line["plan"]))
        binding, clients, corrupted, size = line["kind"]
        kind = (str(binding), int(clients), int(corrupted), int(size))
        self._counted.setdefault(kind, set()).add(_place(line))
        if "encoding" in line:
            self._encodings[str(binding)] = bytes.fromhex(line["encoding"])


def _place(line: JsonObject) -> Place:
    return str(line.get("session", line["plan"])), int(line.get("number", 1)), str(line["plan"])


def _charged(encoding: Encoding, places: Collection[Place]) -> int:
    """As many rounds as are paid for, of all sessions together."""
    sessions: dict[str, list[int]] = {}
    for session, number, _ in places:
        sessions.setdefault(session, []).append(number)
    return sum(map(encoding.charged, sessions.values()))


def _total(counted: Mapping[Kind, Collection[Place]], encodings: dict[str, bytes], delta: float) -> float:
    share = math.nextafter(delta / len(counted), 0.0) if len(counted) > 1 else delta
    each = [
        _epsilon(_known(encodings[binding]), places, clients, corrupted, size, share)
        for (binding, clients, corrupted, size), places in counted.items()
    ]
    return math.nextafter(math.fsum(each), math.inf) if len(each) > 1 else sum(each)


def _known(described: bytes) -> Encoding:
    try:
        return unpacked(described)
    except (FileFormatError, ParameterError) as error:
        remedy = (
            "what those sums cost cannot be added up here, and none is forgotten: let the version that wrote them "
            "print LifetimeLedger(path, identity=...).spent(delta / 2), take that off the policy's budget, halve its "
            "delta, and only then put the file away, so that a new one begins"
        )
        raise FileFormatError(
            f"ledger: it holds sums of an encoding that this version cannot read ({error}); {remedy}"
        ) from None


def _epsilon(
    encoding: Encoding, places: Collection[Place], clients: int, corrupted: int, size: int, delta: float
) -> float:
    rounds = _charged(encoding, places)
    claims = encoding.claims(rounds=rounds, clients=clients, size=size, delta=delta, corrupted=corrupted)
    if "local" not in claims:  # no noise of the clients' own
        raise ParameterError("encoding", encoding.sha256, "nothing is claimed of its sums against their server")
    return claims["central"].epsilon
