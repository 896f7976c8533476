"""How long the pages are: words of all of them together, words of a sentence, words of a paragraph.

Words are counted as `wc -w` does: whatever stands between blanks, on every page of `docs`, in README, CONTRIBUTING
and SECURITY, code, tables and the bars between their cells included. CHANGELOG.md is history, LICENCES.md is generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDES = sorted((*DOCS.glob("*.md"), *DOCS.glob("api/*.md")))
"""Every page but the proofs; tables that code writes or a test reads are in docs/tables."""

PROOFS = sorted(DOCS.glob("proofs/*.md"))
OUTSIDE_DOCS = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
MOST_WORDS = 60_000
MOST_WORDS_OF_PROOFS = 30_500
SENTENCE, PARAGRAPH = 35, 120

CODE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"`[^`]+`|\$\$.+?\$\$|\$[^$]+\$|\\\(.+?\\\)|\\\[.+?\\\]", re.DOTALL)
ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +", re.MULTILINE)
END = re.compile(r"[.!?]['\")*]*(?=\s|$)")


def paragraphs(page: str) -> Iterator[str]:
    """Prose of a page: no code, tables, headings, formulas; each item of a list stands for itself."""
    text = CODE.sub("\n", page)
    text = re.sub(r"(?m)^ *(\||#|!\[|:::|<!--).*$|^    .*$", "\n", text)
    text = re.sub(r"\]\([^)]*\)|\]\[[\w.]+\]", "]", text)
    text = FORMULA.sub("code", text)
    for block in re.split(r"\n\s*\n", text):
        for paragraph in ITEM.split(block):
            if paragraph.strip():
                yield " ".join(paragraph.split())


def sentences(paragraph: str) -> list[str]:
    """Its sentences."""
    return [part.strip() for part in END.split(paragraph) if part.strip()]


def words(text: str) -> int:
    """Words: what has a letter or digit, so that a column's separator is none."""
    return len(re.findall(r"\S*\w\S*", text))


def test_paragraphs_and_sentences_are_found() -> None:
    page = "# Title\n\nOne `a b` two. Three (f. 4) five:\n\n- six\n  seven\n- eight\n\n```py\nx\n```\n| a | b |\n"
    found = list(paragraphs(page))
    assert found == ["One code two. Three (f. 4) five:", "six seven", "eight"]
    assert sentences(found[0]) == ["One code two", "Three (f", "4) five:"]
    assert words("one - two | 3") == 3


def length(pages: Iterable[Path]) -> int:
    """Words of pages, as `wc -w` counts them."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def test_everything_between_blanks_is_counted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n\n| a | b |\n|---|--:|\n\n```py\nx = 1\n```\n", encoding="utf-8")
    assert length([page]) == 3 + 5 + 1 + 1 + 3 + 1


def test_the_pages_are_at_most_so_long() -> None:
    proofs = sorted(DOCS.rglob("proofs/*.md"))
    assert len(proofs) > 10
    assert length(proofs) <= MOST_WORDS_OF_PROOFS
    assert length([*DOCS.rglob("*.md"), *OUTSIDE_DOCS]) <= MOST_WORDS, "say each thing once"


@pytest.mark.parametrize(
    "path", [*GUIDES, *PROOFS], ids=lambda path: path.relative_to(DOCS).as_posix()
)
def test_sentences_and_paragraphs_are_short(path: Path) -> None:
    found = list(paragraphs(path.read_text(encoding="utf-8")))
    assert [text for text in found if words(text) > PARAGRAPH] == []
    assert [part for text in found for part in sentences(text) if words(part) > SENTENCE] == []
