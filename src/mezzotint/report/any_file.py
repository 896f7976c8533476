"""Any file that mezzotint writes, as a page: what is in it decides, not its name."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import mezzotint as mz
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_object, read_text
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, number
from mezzotint.kernel.claim import FORMAT as CLAIM
from mezzotint.report.collected import reports_page
from mezzotint.report.mechanism_pages import mechanism_page
from mezzotint.report.page import Page, Section, Table
from mezzotint.report.run_pages import federated_page, training_page
from mezzotint.report.smoothed_pages import smoothed_page


def claim_page(source: Path) -> Page:
    """The report of a claim file: whether its proof holds, and what it says.

    Raises:
        FileFormatError: no claim file.
    """
    from mezzotint.kernel.check import verdict as verdict_on

    text = read_text(source)
    status, verdict, claim = verdict_on(text)
    if status == 2 or claim is None:
        raise FileFormatError(f"{source.name}: {verdict}")
    proof = mz.kernel.read_claim(text)[1]
    release = cast(JsonObject, claim.document()["release"] or {})
    rows = {**claim.statement, **{name: value for name, value in release.items() if name != "lattice"}}
    words = ("The numbers stand as they are in the file. The assumptions are what the proof does not show.",)
    return Page(
        title=f"Claim in {source.name}",
        summary=f"{verdict}.",
        sections=(_facts("What is claimed", rows, words), _check(source, {"proof": proof.get("kind")})),
        attachment=(source.name, text),
    )


def ranked_page(source: Path) -> Page:
    """The report of a ranked codebook."""
    scheme = mz.vectors.RankedCodebook.load(source)
    claim = scheme.claim()
    rows = {
        "vectors": f"{scheme.dimension} coordinates, L2 norm at most {scheme.clip_norm:g}",
        "bits per vector": scheme.bits,
        "codewords": scheme.table.codewords,
        "mean squared error of a report (squared units of the vectors)": number(scheme.mse),
        "times the error of PrivUnitG": number(scheme.mse / scheme.optimum, 4),
    }
    return Page(
        title=scheme.name,
        summary=f"{scheme}.",
        sections=(_facts("What it does", rows, ()), _check(source, {"claim": claim})),
        attachment=(source.name, source.read_text(encoding="utf-8")),
    )


def _facts(title: str, rows: JsonObject, words: tuple[str, ...]) -> Section:
    cells = tuple((name.replace("_", " "), str(value)) for name, value in rows.items())
    return Section(title=title, words=words, table=Table(headings=("what", "value"), rows=cells))


def _check(source: Path, facts: JsonObject) -> Section:
    words = tuple(f"{name}: {value}" for name, value in facts.items())
    return Section(title="How to verify it", words=words, code=f"mezzotint verify {source.name}")


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
