"""Wherever a proof leans on a symmetry, it names the test that would fail if the symmetry were not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROOFS = sorted((ROOT / "docs" / "proofs").glob("*.md"))
PHRASE = re.compile(
    r"without (?:any )?(?:loss|restriction)|\bw\.?l\.?o\.?g\b|symmetr|mirror|suffices|(?:may|can|we) assume|vice versa"
    r"|interchang|los(?:es?|ing) no choice|is it enough|it is enough",
    re.IGNORECASE,
)
LAW = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[[^`\]]*\])?`")


def leaning(proof: Path) -> list[str]:
    """Paragraphs and list items that lean on a symmetry."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*[-*] )", proof.read_text(encoding="utf-8"))
    return [block for block in blocks if PHRASE.search(block)]


@pytest.mark.parametrize("proof", PROOFS, ids=lambda path: path.stem)
def test_every_assumed_symmetry_names_its_law(proof: Path) -> None:
    for block in leaning(proof):
        laws = LAW.findall(block)
        assert laws, f"{proof.name} leans on a symmetry and names no law:\n{block}"
        for file, name in laws:
            path = ROOT / file
            assert path.is_file(), file
            assert re.search(rf"^def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE), (
                f"{file}::{name}"
            )


def test_the_phrases_are_found() -> None:
    assert sum(len(leaning(proof)) for proof in PROOFS) >= 8
    for words in (
        "Without loss of generality, x' < x.",
        "w.l.o.g. a > b",
        "By symmetry the rest follows.",
        "We may assume a > b.",
    ):
        assert PHRASE.search(words)
