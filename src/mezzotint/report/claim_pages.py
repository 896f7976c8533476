"""Pages of claim files and of ranked codebooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import mezzotint as mz
from mezzotint.core.errors import FileFormatError
from mezzotint.core.files import read_text
from mezzotint.core.records import Json, JsonObject, counted, number
from mezzotint.report.contents import Page, Section, Table


def claim_page(source: Path) -> Page:
    """The report of a claim file: whether its proof holds, and what it says."""
    from mezzotint.kernel.checker import verdict_on

    claim_text = read_text(source)
    status, verdict, claim = verdict_on(claim_text)
    if status == 2 or claim is None:
        raise FileFormatError(f"{source.name}: {verdict}")
    proof = mz.kernel.read_claim(claim_text)[1]
    release = cast(JsonObject, claim.document()["release"] or {})
    statement = dict(sorted(claim.statement.items(), key=lambda item: item[0] == "delta"))
    claim_fields = {**statement, **release}
    paragraphs = (
        "The numbers are as the file has them. The assumptions are what the proof does not show.",
    )
    return Page(
        title=f"Claim in {source.name}",
        summary=f"{verdict}.",
        sections=(
            _facts("What is claimed", _in_words(claim_fields), paragraphs),
            _check(source, f"proof: {proof.get('kind')}"),
        ),
        attachment=(source.name, claim_text),
    )


MOST_SHOWN = 100
"""Entries of a list that a page shows, such as the integers of the levels of wide noise."""

CLAIM_WORDS = {
    "kind": "kind of statement",
    "neighboring": "neighbouring relation",
    "observer": "to an observer of",
    "trust": "trusted",
    "unit": "about",
    "lattice": "integers that the levels stand for",
    "assumptions": "relies on",
    "dp": "differential privacy",
    "replace_one": "replacing all data of one unit",
    "add_or_remove_one": "adding or removing all data of one unit",
    "reports": "every single report",
    "secure_sum": "secure sums alone",
    "local": "only the device that draws a report",
}
"""Names and values of a claim file -> how its page says them."""


def _in_words(rows: JsonObject) -> dict[str, str]:
    """A claim's fields as words; others as the file spells them, without underscores."""
    worded_fields: dict[str, str] = {}
    for field_name, field_value in rows.items():
        field_words = CLAIM_WORDS.get(field_name, field_name.replace("_", " "))
        worded_fields[field_words] = _phrase(field_value)
    return worded_fields


def _phrase(value: Json) -> str:
    if isinstance(value, Mapping):
        if "sha256" in value and "coordinates" in value:
            coordinate_count = cast("int", value["coordinates"])
            coordinates = counted(coordinate_count, "coordinate")
            digest = str(value["sha256"])
            return f"{coordinates} from table {digest[:12]}"
        return ", ".join(
            f"{key_name.replace('_', ' ')} {_phrase(inner_value)}"
            for key_name, inner_value in value.items()
        )
    if isinstance(value, (list, tuple)):
        shown_entries = "; ".join(_phrase(inner_value) for inner_value in value[:MOST_SHOWN])
        if len(value) <= MOST_SHOWN:
            return shown_entries
        return f"{shown_entries}; and so on, {len(value)} in all, the last one {_phrase(value[-1])}"
    if isinstance(value, str):
        return CLAIM_WORDS.get(value, value.replace("_", " "))
    return str(value)


def ranked_page(source: Path) -> Page:
    """The report of a ranked codebook."""
    codebook = mz.vectors.RankedCodebook.load(source)
    codebook_facts = {
        "vectors": f"{codebook.dimension} coordinates, L2 norm at most {codebook.clip_norm:g}",
        "bits per vector": codebook.bits,
        "codewords": codebook.table.codewords,
        "mean squared error of a report (squared units of the vectors)": number(codebook.mse),
        "times the error of PrivUnitG": number(codebook.mse / codebook.optimum, 4),
    }
    return Page(
        title=codebook.name,
        summary=f"{codebook}.",
        sections=(
            _facts("What it does", codebook_facts),
            _check(source, f"claim: {codebook.claim()}"),
        ),
        attachment=(source.name, source.read_text(encoding="utf-8")),
    )


def _facts(title: str, rows: JsonObject, words: tuple[str, ...] = ()) -> Section:
    return Section(title=title, words=words, table=Table.of(rows))


def _check(source: Path, words: str) -> Section:
    return Section(title="How to verify it", words=(words,), code=f"mezzotint verify {source.name}")
