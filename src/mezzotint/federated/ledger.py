"""What a federated run has released, round by round: on disk before it happens, so that no crash can forget it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final

from mezzotint.core.errors import FileFormatError
from mezzotint.federated.encoding import Encoding
from mezzotint.privacy.claim import Claim

_FORMAT = "mezzotint-federated-ledger"


@final
class RunLedger:
    """Rounds of one run, append-only, one JSON object a line.

    A round is announced with the clients asked before they mask anything, and closed with the clients whose integers
    are in the sum, or as failed. An announced round that was never closed (a crash) is charged to all who were asked.

    Arguments:
        path: file, made when absent; None keeps the ledger in memory.
        facts: what the run is (session, table); a file that says otherwise is refused.

    Raises:
        FileFormatError: a file of another run, or damaged anywhere but in its last line.

    Guarantees: `begin` and `close` return after the line is on disk.
    """

    def __init__(self, path: Path | None, facts: Mapping[str, Any]) -> None:
        self.path = path
        self.facts = dict(facts)
        self._asked: dict[int, tuple[str, ...]] = {}
        self._released: dict[int, tuple[str, ...]] = {}
        self._failed: dict[int, str] = {}
        if path is not None and path.exists() and path.stat().st_size:
            self._read(path)
        else:
            self._append({"format": _FORMAT, "version": 1, **self.facts})

    # Writing -------------------------------------------------------------------------------------------------------

    @property
    def next_round(self) -> int:
        """The number of the next round; an interrupted round's number is not used again."""
        return max(self._asked, default=0) + 1

    def begin(self, number: int, clients: Iterable[str]) -> None:
        """Announces a round, or who is asked in it once that is known."""
        asked = tuple(sorted(clients))
        self._append({"round": number, "asked": asked})
        self._asked[number] = asked

    def close(self, number: int, survivors: Iterable[str]) -> None:
        """The round's sum is known: charged to those in it."""
        names = tuple(sorted(survivors))
        self._append({"round": number, "released": names})
        self._released[number] = names

    def fail(self, number: int, reason: str) -> None:
        """The round ended before anything could be unmasked: nothing was released, nobody is charged."""
        self._append({"round": number, "failed": reason})
        self._failed[number] = reason

    # Reading -------------------------------------------------------------------------------------------------------

    @property
    def charges(self) -> dict[str, int]:
        """client -> rounds that it is charged for."""
        counted: Counter[str] = Counter()
        for number, asked in self._asked.items():
            if number not in self._failed:
                counted.update(self._released.get(number, asked))
        return dict(sorted(counted.items()))

    @property
    def rounds(self) -> dict[int, str]:
        """round -> "released", "failed: ..." or "interrupted"."""
        return {
            number: "released"
            if number in self._released
            else f"failed: {self._failed[number]}"
            if number in self._failed
            else "interrupted"
            for number in self._asked
        }

    @property
    def smallest_sum(self) -> int:
        """Fewest summands of any sum released (of those asked, where a round was interrupted); 0 before the first."""
        sizes = [len(self._released.get(n, asked)) for n, asked in self._asked.items() if n not in self._failed]
        return min((size for size in sizes if size), default=0)

    def claims(self, encoding: Encoding, *, size: int, delta: float, corrupted: int = 0) -> dict[str, Claim]:
        """What the client that took part most often is charged: "local" (its reports seen alone) and "central".

        Empty before the first round, and for encodings without noise. A server of secure sums knows who took part,
        so no amplification by sampling is claimed; a client pays for the rounds it was in.
        """
        most = max(self.charges.values(), default=0)
        if most == 0:
            return {}
        clients = max(corrupted + 1, self.smallest_sum)
        return encoding.claims(rounds=most, clients=clients, size=size, delta=delta, corrupted=corrupted)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        outcome = {str(number): text for number, text in self.rounds.items()}
        return {**self.facts, "rounds": outcome, "charges": self.charges, "smallest_sum": self.smallest_sum}

    # File ----------------------------------------------------------------------------------------------------------

    def _append(self, line: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        with self.path.open("ab") as handle:
            handle.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            handle.flush()
            os.fsync(handle.fileno())

    def _read(self, path: Path) -> None:
        raw = path.read_bytes()
        whole, separator, torn = raw.rpartition(b"\n")
        if torn:
            # A line cut by a crash: what it would have announced did not happen yet, what it would have closed stays
            # charged to all who were asked.
            with path.open("r+b") as handle:
                handle.truncate(len(whole) + len(separator))
                os.fsync(handle.fileno())
        try:
            lines = [json.loads(text) for text in whole.split(b"\n")]
            header = {"format": _FORMAT, "version": 1, **self.facts}
            if lines[0] != json.loads(json.dumps(header)):
                raise FileFormatError(f"ledger {path.name}: of another run, table or version; name another folder")
            for line in lines[1:]:
                self._take(line)
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, FileFormatError):
                raise
            raise FileFormatError(f"ledger {path.name}: damaged ({error})") from None

    def _take(self, line: dict[str, Any]) -> None:
        number = int(line["round"])
        if "asked" in line:
            self._asked[number] = tuple(line["asked"])
        elif "released" in line:
            self._released[number] = tuple(line["released"])
        else:
            self._failed[number] = str(line["failed"])
