"""Single reports, as reporters send them one by one, added into counts."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import cast, final

import numpy as np

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.provenance import Provenance
from mezzotint.core.arguments import check_instance
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, parse_object
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import AnyPath

FORMAT = "mezzotint-report"
LOG_FORMAT = "mezzotint-report-log"
VERSION = 1
REPORT_KEYS = {"format", "version", "sha256", "code"}
MAX_BYTES = 1024
"""No report is longer."""


@final
class Counter:
    """Adds single reports (an HTTP body, a Kafka value, a line of JSON) into counts that `estimate`
    reads.

    Arguments:
        mechanisms: the tables that reports may come from; reports name theirs by its hash.
        log: a file in which every accepted report is noted; a counter of the same log and tables
            goes on where it stopped, and any number of processes may share it. None keeps counts in
            memory.

    Raises:
        ParameterError: no mechanism, or one given twice.
        FileFormatError, StorageError: a log of other tables, a damaged one, or one that cannot be
            written.

    Guarantees:
        With a log a report is on disk when `add` returns, and is counted exactly once.
        Nothing but table and code is kept: neither when a report came nor from whom.
        The counts of one log carry one run's name, so that saved counts of it are never added to
        each other.

    Edge cases: whether a report was drawn as the table says, or drawn from a seed, shows in no
        single report: `seeded` is None in the counts. Whoever sends twice counts twice: admit each
        reporter once, by what you know of them.

    Example:
        >>> import json
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> counter = mz.collect.Counter(mechanism)
        >>> report = {"format": "mezzotint-report", "version": 1, "code": 1}
        >>> report["sha256"] = mechanism.sha256
        >>> counter.add(json.dumps(report))
        >>> counter.counts().n
        1
    """

    def __init__(
        self,
        *mechanisms: Mechanism,
        log: AnyPath | None = None,
    ) -> None:
        for mechanism in mechanisms:
            check_instance("mechanisms", mechanism, Mechanism)
        self._tables = {mechanism.sha256: mechanism for mechanism in mechanisms}
        if not mechanisms or len(self._tables) != len(mechanisms):
            remedy = "give at least one table, each once"
            raise ParameterError("mechanisms", f"{len(mechanisms)} given", remedy)
        self._counts = {
            sha256: np.zeros(mechanism_of_hash.levels.size, dtype=np.int64)
            for sha256, mechanism_of_hash in self._tables.items()
        }
        self._run: str | None = None
        header = {
            "format": LOG_FORMAT,
            "version": VERSION,
            "tables": sorted(self._tables),
        }
        self._log = AppendLog(log, header=header, take=self._take, what="log of reports")
        with self._log.transaction() as append:
            if self._run is None:
                append({"run": secrets.token_hex(16)})

    def add(self, *reports: bytes | str) -> None:
        """Counts reports, all or none of them.

        Arguments:
            reports: each the JSON object {"format": "mezzotint-report", "version": 1, "sha256",
                "code"}.

        Raises:
            FileFormatError: something that is not a report, or one of another table. What it holds
                is not repeated.
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
            remedy = f"name one of the {len(self._tables)} tables"
            raise ParameterError("mechanism", None, remedy)
        counted_table = next(iter(self._tables.values()))
        if mechanism is not None:
            counted_table = check_instance("mechanism", mechanism, Mechanism)
        if counted_table.sha256 not in self._tables:
            remedy = "none of its reports is counted here; name another"
            raise ParameterError("mechanism", counted_table.name, remedy)
        self._log.refresh()
        provenance = Provenance(runs=frozenset([cast(str, self._run)]))
        return CodeCounts(
            mechanism=counted_table,
            counts=self._counts[counted_table.sha256],
            provenance=provenance,
        )

    def _line(self, report: bytes | str) -> JsonObject:
        """The line of the log for a report; raises FileFormatError for anything else."""
        document = _document(report)
        sha256 = document["sha256"]
        code = document["code"]
        mechanism_of_hash = self._tables.get(str(sha256))
        if mechanism_of_hash is None:
            remedy = "of a table that is not collected here; let reporters fetch it again"
            raise FileFormatError(f"report: {remedy}")
        in_table = type(code) is int and 0 <= code < mechanism_of_hash.levels.size
        if not in_table or not mechanism_of_hash.weights[:, code].any():
            raise FileFormatError("report: its code is not in its table")
        return {"sha256": sha256, "code": code}

    def _take(self, line: JsonObject) -> None:
        if "run" in line:
            self._run = str(line["run"])
        else:
            self._counts[line["sha256"]][line["code"]] += 1


def _document(report: bytes | str) -> JsonObject:
    """The JSON object of a report, of this format and version."""
    document: JsonObject = {}
    if isinstance(cast("object", report), bytes | str) and len(report) <= MAX_BYTES:
        with suppress(FileFormatError):
            document = parse_object(report, name="report")
    if document.keys() != REPORT_KEYS:
        message = "not the JSON object that reporters send (docs/file-format.md)"
        raise FileFormatError(f"report: {message}")
    version = document["version"]
    if document["format"] != FORMAT or type(version) is not int or version != VERSION:
        raise FileFormatError(f'report: not of format "{FORMAT}", version {VERSION}')
    return document
