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

    text = read_text(source)
    status, verdict, claim = verdict_on(text)
    if status == 2 or claim is None:
        raise FileFormatError(f"{source.name}: {verdict}")
    proof = mz.kernel.read_claim(text)[1]
    release = cast(JsonObject, claim.document()["release"] or {})
    statement = dict(sorted(claim.statement.items(), key=lambda item: item[0] == "delta"))
    rows = {**statement, **release}
    words = (
        "The numbers are as the file has them. The assumptions are what the proof does not show.",
    )
    return Page(
        title=f"Claim in {source.name}",
        summary=f"{verdict}.",
        sections=(
            _facts("What is claimed", _in_words(rows), words),
            _check(source, f"proof: {proof.get('kind')}"),
        ),
        attachment=(source.name, text),
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
    fields: dict[str, str] = {}
    for name, value in rows.items():
        words = CLAIM_WORDS.get(name, name.replace("_", " "))
        fields[words] = _phrase(value)
    return fields


def _phrase(value: Json) -> str:
    if isinstance(value, Mapping):
        if "sha256" in value and "coordinates" in value:
            count = cast("int", value["coordinates"])
            coordinates = counted(count, "coordinate")
            digest = str(value["sha256"])
            return f"{coordinates} from table {digest[:12]}"
        return ", ".join(
            f"{name.replace('_', ' ')} {_phrase(inner)}" for name, inner in value.items()
        )
    if isinstance(value, (list, tuple)):
        shown = "; ".join(_phrase(inner) for inner in value[:MOST_SHOWN])
        if len(value) <= MOST_SHOWN:
            return shown
        return f"{shown}; and so on, {len(value)} in all, the last one {_phrase(value[-1])}"
    if isinstance(value, str):
        return CLAIM_WORDS.get(value, value.replace("_", " "))
    return str(value)


def ranked_page(source: Path) -> Page:
    """The report of a ranked codebook."""
    scheme = mz.vectors.RankedCodebook.load(source)
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
        sections=(_facts("What it does", rows), _check(source, f"claim: {scheme.claim()}")),
        attachment=(source.name, source.read_text(encoding="utf-8")),
    )


def _facts(title: str, rows: JsonObject, words: tuple[str, ...] = ()) -> Section:
    return Section(title=title, words=words, table=Table.of(rows))


def _check(source: Path, words: str) -> Section:
    return Section(title="How to verify it", words=(words,), code=f"mezzotint verify {source.name}")
