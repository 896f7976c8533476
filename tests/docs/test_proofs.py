"""The pages of proofs: how long they may be (their sentences and paragraphs: `test_words.py`)."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))

MOST_WORDS = 29_000
"""Of all pages of proofs together, split at blanks, formulas and tables counted: the outside count."""


def test_proofs_stay_as_short_as_they_are() -> None:
    assert PAGES
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES)
    assert words <= MOST_WORDS
