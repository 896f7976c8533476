"""The page of any file that mezzotint writes: its content decides which, not its name."""

from __future__ import annotations

from pathlib import Path

from mezzotint.core.document import FORMAT
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import parse_object, read_object
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import AnyPath
from mezzotint.kernel.claim import FORMAT as CLAIM_FORMAT
from mezzotint.report.contents import Page
from mezzotint.report.federated_pages import LEDGER, REPORT, SETTINGS, federated_page
from mezzotint.report.mechanism_pages import mechanism_page
from mezzotint.report.reports_pages import reports_page
from mezzotint.report.smoothed_pages import smoothed_page
from mezzotint.report.training_pages import training_page

REPORTS = (".parquet", ".csv", ".gz")
LOGS = (".jsonl", ".log")
TRAINING_LOG = "log.jsonl"
"""In the folder of a training run."""

RUN_LEDGER = "mezzotint-federated-ledger"
"""The format of the ledger of a federated run."""

RANKS = "ranks"
"""The kind of a codebook's file."""

LONGEST_HEADER = 1 << 16
"""Bytes that the first line of a ledger may have."""


def page_of(source: AnyPath, *, column: str | None = None, confidence: float = 0.95) -> Page:
    """The report of a file or folder.

    Arguments:
        source: a mechanism (.json); reports (.parquet, .csv,
            .csv.gz), a folder of them or their saved counts (.json); a training log (.jsonl); the
            folder of a training or federated run, or the latter's report.json; what a verb of `mezzotint smoothed`
            printed with --json (.json).
        column: the field of codes, where reports have several.
        confidence: of each interval, for reports.
    Returns: the page, for `html_page` or `write_png`.
    Raises:
        ParameterError: a column of a file without columns.
        FileFormatError: an unknown kind of file, or a damaged one.
    Example:
        >>> mz.families.randomized_response(epsilon=1.0).save("m.json")
        >>> len(mz.report.page_of("m.json").sections) > 2
        True
    """
    source = Path(source)
    training_log = source / TRAINING_LOG
    if training_log.is_file() and column is None:
        return training_page(training_log)
    if source.is_file() and _logged_format(source) not in ("", RUN_LEDGER):
        remedy = f"is a ledger, which has no page; mezzotint ledger {source.name} shows it"
        raise FileFormatError(f"{source.name}: {remedy}")
    if source.is_dir() and not _holds_run(source):
        return reports_page(source, column=column, confidence=confidence)
    if source.is_file() and source.suffix in REPORTS:
        return reports_page(source, column=column, confidence=confidence)
    if column is not None:
        raise ParameterError("column", column, "only reports have columns; leave it out")
    if source.is_dir() or source.name == LEDGER:
        return federated_page(source if source.is_dir() else source.parent)
    if source.suffix in LOGS:
        return training_page(source)
    try:
        document = read_object(source)
    except FileFormatError:
        if source.suffix == ".json":
            raise
        document = {}
    keys = set(document)
    if {"ledger", "accuracy"} <= keys:
        return federated_page(source)
    if "counts" in keys:
        return reports_page(source, confidence=confidence)
    if "verb" in keys:
        return smoothed_page(source)
    describing_verbs = "mezzotint verify checks it"
    if document.get("kind") == RANKS:
        describing_verbs = "mezzotint show describes it, mezzotint verify checks it"
    if document.get("kind") == RANKS or document.get("format") == CLAIM_FORMAT:
        raise FileFormatError(f"{source.name}: has no page; {describing_verbs}")
    if document.get("format") != FORMAT:
        raise FileFormatError(f"{source.name}: not a file with a page; see mezzotint report --help")
    return mechanism_page(Mechanism.load(source), file=source.name)


def _holds_run(folder: Path) -> bool:
    """Whether a folder is that of a federated run; a ledger of the same name may be another's."""
    if (folder / REPORT).exists() or (folder / SETTINGS).exists():
        return True
    return (folder / LEDGER).is_file() and _logged_format(folder / LEDGER) == RUN_LEDGER


def _logged_format(path: Path) -> str:
    """The format that the first line of a log names; empty for any other file."""
    with path.open("rb") as file:
        first_line = file.readline(LONGEST_HEADER)
    try:
        header = parse_object(first_line, name=path.name)
    except FileFormatError:
        return ""
    return str(header.get("format", "")) if "chain" in header else ""
