"""Single reports, as reporters send them one by one, added into counts."""

from __future__ import annotations

import json
import os
import secrets
from typing import Any, cast, final

import numpy as np

from mezzotint.collect.counts import CodeCounts
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, Line
from mezzotint.core.mechanism import Mechanism

FORMAT = "mezzotint-report"
VERSION = 1
MAX_BYTES = 1024
"""No report is longer."""

LOG_FORMAT = "mezzotint-report-log"


@final
class Counter:
    """Adds single reports (an HTTP body, a Kafka value, a line of JSON) into counts that `estimate` reads.

    Arguments:
        mechanisms: the tables that reports may come from; reports name theirs by its hash.
        log: a file in which every accepted report is noted; a counter of the same log and tables goes on where it
            stopped, and any number of processes may share it. None keeps counts in memory.

    Raises:
        ParameterError: no mechanism, or one given twice.
        FileFormatError, StorageError: a log of other tables, a damaged one, or one that cannot be written.

    Guarantees:
        With a log a report is on disk when `add` returns, and is counted exactly once.
        Nothing but table and code is kept: neither when a report came nor from whom.
        The counts of one log carry one run's name, so that saved counts of it are never added to each other.

    Edge cases: whether a report was drawn as the table says, or drawn from a seed, shows in no single report: `seeded`
        is None in the counts. Whoever sends twice counts twice: admit each reporter once, by what you know of them.

    Example:
        counter = collect.Counter(mechanism)
        counter.add(body)
        collect.estimate(counter.counts())
    """

    def __init__(self, *mechanisms: Mechanism, log: str | os.PathLike[str] | None = None) -> None:
        self._tables = {mechanism.sha256: mechanism for mechanism in mechanisms}
        if not mechanisms or len(self._tables) != len(mechanisms):
            raise ParameterError("mechanisms", f"{len(mechanisms)} given", "give at least one table, each once")
        self._counts = {name: np.zeros(table.levels.size, dtype=np.int64) for name, table in self._tables.items()}
        self._run: str | None = None
        header = {"format": LOG_FORMAT, "version": VERSION, "tables": sorted(self._tables)}
        self._log = AppendLog(log, header=header, take=self._take, what="log of reports")
        with self._log.transaction() as append:
            if self._run is None:
                append({"run": secrets.token_hex(16)})

    def add(self, *reports: bytes | str) -> None:
        """Counts reports, all or none of them.

        Arguments:
            reports: each the JSON object {"format": "mezzotint-report", "version": 1, "sha256", "code"}.

        Raises:
            FileFormatError: something that is no report, or one of another table. What it holds is not repeated.
            StorageError: the log cannot be written.
        """
        lines = [self._line(report) for report in reports]
        with self._log.transaction() as append:
            append(*lines)

    def counts(self, mechanism: Mechanism | None = None) -> CodeCounts:
        """The counts so far, with those of other processes on the same log.

        Arguments:
            mechanism: of which table; None where there is one only.
        """
        if mechanism is None and len(self._tables) > 1:
            raise ParameterError("mechanism", "none given", f"name one of the {len(self._tables)} tables")
        table = next(iter(self._tables.values())) if mechanism is None else mechanism
        if table.sha256 not in self._tables:
            raise ParameterError("mechanism", table.name, "no report of this table is counted here")
        self._log.refresh()
        runs = frozenset([cast(str, self._run)])
        return CodeCounts(mechanism=table, counts=self._counts[table.sha256], runs=runs)

    def _line(self, report: bytes | str) -> Line:
        try:
            found: Any = json.loads(report) if len(report) <= MAX_BYTES else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or set(found) != {"format", "version", "sha256", "code"}:
            raise FileFormatError("report: not the JSON object that reporters send (docs/file-format.md)")
        if found["format"] != FORMAT or type(found["version"]) is not int or found["version"] != VERSION:
            raise FileFormatError(f'report: not of format "{FORMAT}", version {VERSION}')
        table = self._tables.get(found["sha256"]) if isinstance(found["sha256"], str) else None
        if table is None:
            raise FileFormatError("report: of a table that is not collected here; let reporters fetch it anew")
        code = found["code"]
        if type(code) is not int or not 0 <= code < table.levels.size or not table.weights[:, code].any():
            raise FileFormatError("report: its code is none of its table's")
        return {"sha256": table.sha256, "code": code}

    def _take(self, line: Line) -> None:
        if "run" in line:
            self._run = str(line["run"])
        else:
            self._counts[line["sha256"]][line["code"]] += 1
