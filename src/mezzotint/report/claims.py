"""Pages of a claim file and of a ranked codebook."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import mezzotint as mz
from mezzotint.core.errors import FileFormatError
from mezzotint.core.files import read_text
from mezzotint.core.records import JsonObject, number
from mezzotint.report.content import Page, Section, Table


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
