"""The pages of proofs: how long they and their paragraphs may be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))

MOST_WORDS = 35_000
"""Of all pages of proofs together, formulas and tables counted; what was reached, rounded up."""

MOST_IN_A_PARAGRAPH = 125
"""Words of a paragraph or list item, each formula and each piece of code counting as one."""

FORMULA = re.compile(r"\$\$.+?\$\$|\$.+?\$|\\\(.+?\\\)|\\\[.+?\\\]|`[^`]+`", re.DOTALL)


def paragraphs(page: Path) -> Iterator[str]:
    """Of a page, without its tables."""
    text = FORMULA.sub("F", page.read_text(encoding="utf-8"))
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*] |\d\. )", text):
        if not block.startswith("|"):
            yield block


def test_proofs_stay_as_short_as_they_are() -> None:
    assert PAGES
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES)
    assert words <= MOST_WORDS


def test_paragraphs_can_be_read_in_one_go() -> None:
    long = [
        (page.name, block[:60])
        for page in PAGES
        for block in paragraphs(page)
        if len(block.split()) > MOST_IN_A_PARAGRAPH
    ]
    assert long == []
