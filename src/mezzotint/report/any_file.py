"""Any file that mezzotint writes, as a page: what is in it decides, not its name."""

from __future__ import annotations

from pathlib import Path

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_object
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.kernel.claim import FORMAT as CLAIM
from mezzotint.report.claims import claim_page, ranked_page
from mezzotint.report.collected import reports_page
from mezzotint.report.content import Page
from mezzotint.report.federated_pages import federated_page
from mezzotint.report.logs import training_page
from mezzotint.report.mechanism_pages import mechanism_page
from mezzotint.report.smoothed_pages import smoothed_page

REPORTS = (".parquet", ".csv", ".gz")
LOGS = (".jsonl", ".log")
LEDGER = "ledger.jsonl"
RUN = (LEDGER, "report.json", "settings.json")
"""What tells the folder of a federated run from a folder of reports."""


def page_of(source: Path, *, column: str | None = None, level: float = 0.95) -> Page:
    """The report of a file or folder.

    Arguments:
        source: a mechanism, ranked codebook or claim file (.json); reports (.parquet, .csv, .csv.gz), a folder of them
            or their saved counts (.json); a training log (.jsonl); the folder of a federated run, or its report.json;
            what a verb of `mezzotint smoothed` printed with --json (.json).
        column: the field of codes, where reports have several.
        level: confidence of each interval, for reports.

    Raises:
        ParameterError: a column where there are none. FileFormatError: a file of no such kind, or a damaged one.
    """
    if source.is_dir() and not any((source / name).exists() for name in RUN):
        return reports_page(source, column=column, level=level)
    if source.is_file() and source.suffix in REPORTS:
        return reports_page(source, column=column, level=level)
    if column is not None:
        raise ParameterError("column", column, "only reports have columns; leave it out")
    if source.is_dir() or source.name == LEDGER:
        return federated_page(source if source.is_dir() else source.parent)
    if source.suffix in LOGS:
        return training_page(source)
    document = _document(source)
    if document.get("format") == CLAIM:
        return claim_page(source)
    if document.get("kind") == "ranks":
        return ranked_page(source)
    keys = set(document)
    if {"ledger", "accuracy"} <= keys:
        return federated_page(source)
    if "counts" in keys:
        return reports_page(source, level=level)
    if "verb" in keys:
        return smoothed_page(source)
    return mechanism_page(Mechanism.load(source), file=source.name)


def _document(source: Path) -> JsonObject:
    """A file's JSON object; empty where it is anything else, which the reader of mechanisms then names."""
    try:
        return read_object(source)
    except FileFormatError:
        return {}
