"""The ledger of a run, its checkpoints, and what a budget buys."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, parse_object, read_arrays, replacing
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject, counted
from mezzotint.core.types import AnyPath, FloatArray
from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.server_optimizers import State
from mezzotint.privacy.claim import Claim

_FORMAT = "mezzotint-federated-ledger"


@final
@dataclass
class _LoggedRound:
    """A round in the log."""

    asked: tuple[str, ...] = ()
    fewest: int = 0
    turn: tuple[str, ...] | None = None
    released: tuple[str, ...] | None = None
    averaged: int | None = None
    failed: str | None = None

    @property
    def charged(self) -> tuple[str, ...]:
        """The clients charged: those in the sum, or all who were asked if that is not known."""
        if self.failed is not None:
            return ()
        if self.released is None:
            return self.asked
        return self.released

    @property
    def summands(self) -> int:
        """The number of its summands, or the least possible one."""
        if self.averaged is not None:
            return self.averaged
        if self.released is None:
            return min(self.fewest, len(self.asked))
        return len(self.released)

    @property
    def outcome(self) -> str:
        if self.released is not None:
            return "released"
        if self.failed is not None:
            return f"failed: {self.failed}"
        if not self.asked:
            return "not announced"
        return "interrupted"


@final
@checked
class RunLedger:
    """Rounds of one run, in a log that several processes may share: see
    `mezzotint.core.files.AppendLog`.

    A round is announced with the clients asked before they mask anything, and closed with the
    clients whose integers are in the sum, or as failed. An announced round that was never closed (a
    crash) is charged to all who were asked, as a sum of the fewest possible clients.

    Arguments:
        path: file, created if absent; None keeps the ledger in memory.
        facts: of the run (session, table); a file with other facts is refused.

    Raises:
        FileFormatError: a file of another run, or damaged other than by a crash.
        StorageError: it cannot be written or locked.

    Guarantees:
        Announcing or closing a round returns after its line is on disk.
        A round's number is given once, across processes and crashes.
        Every answer includes what other processes have written.

    Example:
        >>> ledger = mz.federated.RunLedger(None, {"session": "demo"})
        >>> type(ledger).__name__
        'RunLedger'
    """

    def __init__(self, path: AnyPath | None, facts: JsonObject) -> None:
        self.path: Path | None = None
        if path is not None:
            self.path = Path(path)
        self.facts = dict(facts)
        self._rounds: dict[int, _LoggedRound] = {}
        self._own: set[int] = set()
        header = {"format": _FORMAT, "version": 2, **self.facts}
        self._log = AppendLog(path, header=header, take=self._take, what="ledger")

    @property
    def repairs(self) -> tuple[str, ...]:
        """Damage by crashes that this object found in the file, and its repairs."""
        return tuple(self._log.repairs)

    # Writing --------------------------------------------------------------------------------------

    def start(self) -> int:
        """Number the next round, before any client is asked; the number is never given again."""
        with self._log.transaction() as append:
            number = max(self._rounds, default=0) + 1
            append({"round": number, "asked": [], "minimum": 0})
            self._own.add(number)
        return number

    def take_turn(self, number: int, clients: Iterable[str]) -> None:
        """Record whose turn it is in a round that this object started, whether or not they then
        take part.
        """
        names = _ordered(clients)
        with self._log.transaction() as append:
            self._started(number)
            append({"round": number, "turn": names})

    def ask(
        self,
        number: int,
        clients: Iterable[str],
        *,
        minimum: int,
        most_rounds: int | None = None,
    ) -> None:
        """Announce the clients asked in a round that this object started, before they mask
        anything.

        Arguments:
            number: from `start`.
            clients: all who may end up in the sum.
            minimum: fewest summands with which the protocol goes on.
            most_rounds: rounds that any client may be charged for, this one included; None sets no
                limit.

        Raises:
            BudgetError: somebody would be charged for more; nothing is announced.
            ParameterError: a round of another process, or one that is over; a minimum or a limit
                that is not a count.
        """
        asked_clients = _ordered(clients)
        fewest_summands = check_count("minimum", minimum)
        if most_rounds is not None:
            check_count("most_rounds", most_rounds, least=0)
        with self._log.transaction() as append:
            if self._started(number).asked:
                raise ParameterError("round", number, "was announced already, and clients asked")
            charges = self._charged()
            costliest = max(asked_clients, key=charges.__getitem__, default="")
            charged_rounds = charges[costliest]
            if most_rounds is not None and charged_rounds >= most_rounds:
                raise BudgetError(
                    f"client {costliest!r} was charged for {counted(charged_rounds, 'round')}; one more would exceed the "
                    f"budget of {most_rounds}: nothing was announced"
                )
            append({"round": number, "asked": asked_clients, "minimum": fewest_summands})

    def close(self, number: int, survivors: Iterable[str], *, averaged: int | None = None) -> None:
        """Close a round whose sum is known, and charge the clients in it.

        Arguments:
            number: from `start`.
            survivors: those who are charged.
            averaged: how many of them are in the round's mean, if that is not all; 0 if it came to
                none.
        """
        summed_clients = _ordered(survivors)
        with self._log.transaction() as append:
            logged = self._started(number)
            if not set(summed_clients) <= set(logged.asked):
                raise ParameterError(
                    "survivors", ", ".join(summed_clients), "one of them was not asked"
                )
            line: JsonObject = {"round": number, "released": summed_clients}
            if averaged is not None:
                line["averaged"] = averaged
            append(line)

    def fail(self, number: int, reason: str) -> None:
        """Close a round that ended before anything could be unmasked: nothing was released, nobody
        is charged.
        """
        with self._log.transaction() as append:
            self._started(number)
            append({"round": number, "failed": reason})

    def _started(self, number: int) -> _LoggedRound:
        """An open round that this object started; ParameterError for any other."""
        if number not in self._own:
            raise ParameterError(
                "round", number, "was not started by this process; take a number from start()"
            )
        logged = self._rounds[number]
        if logged.released is not None or logged.failed is not None:
            raise ParameterError("round", number, "is over")
        return logged

    # Reading --------------------------------------------------------------------------------------

    def _charged(self) -> Counter[str]:
        """client -> number of rounds charged to it, 0 for others."""
        charges: Counter[str] = Counter()
        for logged in self._rounds.values():
            charges.update(logged.charged)
        return charges

    def _known(self) -> dict[int, _LoggedRound]:
        """All rounds, including those of other processes."""
        self._log.refresh()
        return self._rounds

    @property
    def charges(self) -> dict[str, int]:
        """client -> number of rounds charged to it."""
        self._log.refresh()
        charges = self._charged()
        return dict(sorted(charges.items()))

    @property
    def turns(self) -> dict[int, tuple[str, ...]]:
        """round -> whose turn it was, or if that was not recorded, who was asked."""
        turns: dict[int, tuple[str, ...]] = {}
        for number, logged in sorted(self._known().items()):
            turns[number] = logged.asked
            if logged.turn is not None:
                turns[number] = logged.turn
        return turns

    @property
    def rounds(self) -> dict[int, str]:
        """round -> "released", "failed: ...", "interrupted", or "not announced": no client was asked
        for its data.
        """
        return {number: logged.outcome for number, logged in self._known().items()}

    @property
    def smallest_sum(self) -> int:
        """Fewest summands of any sum or mean that was released, or may have been by an interrupted
        round; 0 before any.
        """
        sizes: list[int] = []
        for logged in self._known().values():
            may_be_released = logged.asked and logged.failed is None
            if may_be_released and logged.averaged != 0:
                sizes.append(logged.summands)
        return min(sizes, default=0)

    def claims(self, encoding: Encoding, sums: Sums) -> dict[str, Claim]:
        """Claims for the client charged most: "local" (about each report) and "central".

        Arguments:
            encoding: of the sums.
            sums: whose size, corrupted clients and delta count; their rounds and clients are those
                of the ledger.

        Empty before the first round, and for encodings without noise. A server of secure sums knows
        who took part, so no amplification by sampling is claimed; a client is charged for the
        rounds that it was in.
        """
        rounds = max(self.charges.values(), default=0)
        if not rounds:
            return {}
        # Each of them with as few summands as the smallest.
        clients = max(sums.corrupted + 1, self.smallest_sum)
        return encoding.claims(replace(sums, clients=clients, rounds=rounds))

    def as_dict(self) -> JsonObject:
        """Plain values for JSON."""
        outcome = {str(number): text for number, text in self.rounds.items()}
        return {
            **self.facts,
            "rounds": outcome,
            "charges": self.charges,
            "smallest_sum": self.smallest_sum,
        }

    # File -----------------------------------------------------------------------------------------

    def _take(self, line: JsonObject) -> None:
        logged = self._rounds.setdefault(int(line["round"]), _LoggedRound())
        if "turn" in line:
            logged.turn = _names(line["turn"])
        elif "asked" in line:
            clients = _names(line["asked"])
            logged.fewest = int(line["minimum"])
            logged.asked = clients
        elif "released" in line:
            logged.released = _names(line["released"])
            if "averaged" in line:
                logged.averaged = int(line["averaged"])
        else:
            logged.failed = str(line["failed"])


def _ordered(clients: Iterable[str]) -> tuple[str, ...]:
    """The clients, each once."""
    return tuple(sorted(set(clients)))


def _names(listed: Iterable[object]) -> tuple[str, ...]:
    clients = tuple(str(client) for client in listed)
    if clients != tuple(listed):
        raise TypeError("clients are named by strings")
    return clients


NAME = "model.npz"
_STATE = "optimizer."


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A model after `done` training rounds, and the state from which its run resumes.

    `session` names the run; `told` is the report so far.
    """

    parameters: FloatArray
    done: int
    session: bytes
    optimizer: State = field(default_factory=dict[str, FloatArray])
    told: JsonObject = field(default_factory=dict[str, Any])

    def save(self, folder: Path) -> None:
        """Replace the folder's checkpoint; a crash leaves the old one or the new one."""
        report = json.dumps(self.told).encode()
        arrays: dict[str, Any] = {
            "parameters": self.parameters,
            "done": np.int64(self.done),
            "session": np.frombuffer(self.session, dtype=np.uint8),
            "told": np.frombuffer(report, dtype=np.uint8),
        }
        for vector_name, vector in self.optimizer.items():
            arrays[_STATE + vector_name] = vector
        path = folder / NAME
        with replacing(path, overwrite=True) as temporary, temporary.open("wb") as handle:
            np.savez(handle, **arrays)

    @classmethod
    def load(cls, folder: Path) -> Checkpoint:
        """The folder's checkpoint; FileFormatError if absent or damaged."""
        path = folder / NAME
        if not path.is_file():
            raise FileFormatError(
                f"{folder}: contains no run to resume; name the --out folder of an earlier run"
            )
        arrays = read_arrays(path, name=str(path))
        vectors: dict[str, FloatArray] = {}
        for array_name, vector in arrays.items():
            if array_name.startswith(_STATE):
                vectors[array_name.removeprefix(_STATE)] = vector
        try:
            return cls(
                parameters=arrays["parameters"],
                done=int(arrays["done"]),
                session=arrays["session"].tobytes(),
                optimizer=vectors,
                told=_told_of(arrays),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise FileFormatError(f"{path}: no checkpoint to resume from ({error})") from None


def _told_of(arrays: Mapping[str, FloatArray]) -> JsonObject:
    """The report in a checkpoint, whose losses may be infinite; nothing before there was one."""
    if "told" not in arrays:
        return {}
    report = arrays["told"]
    return parse_object(report.tobytes(), name=NAME, finite=False)
