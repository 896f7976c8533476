"""How long the pages are: words of all of them together, words of a sentence, words of a paragraph.

The words of the documentation are counted once, and strictly: everything that is written for readers
(guides, proofs, README, CONTRIBUTING, SECURITY, tables), as it is shown, split at spaces, so that each
sign of a formula counts that stands alone. Apart stand blocks of code, which are run; the names of
targets of links; the two tables that code writes; and pages that the site generates (the API, the
help of the verbs, measurements, the gallery). CHANGELOG.md is history, LICENCES.md is generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDES = sorted((*DOCS.glob("*.md"), *DOCS.glob("api/*.md")))
"""Every page but the proofs; tables that code writes or a test reads are in docs/tables."""

PROOFS = sorted(DOCS.glob("proofs/*.md"))
WRITTEN_BY_CODE = {"values", "damaged"}
"""Tables: by `tests/ways.py` and `tools/fuzz_table.py`."""
READ = [
    *GUIDES,
    *PROOFS,
    *(path for path in sorted(DOCS.glob("tables/*.md")) if path.stem not in WRITTEN_BY_CODE),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
]
MOST_WORDS = 60_000
MOST_WORDS_OF_PROOFS = 29_000
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


def shown(page: str) -> str:
    """A page as it is shown, without its blocks of code, marks of Markdown and targets of links."""
    text = CODE.sub("\n", page)
    text = re.sub(r"<!--.*?-->|</?[a-z][^>]*>", "", text, flags=re.DOTALL)
    text = re.sub(r"(?m)^\s*\|[\s|:-]*-{3,}[\s|:-]*$", "", text)
    text = re.sub(r"\]\([^)\s]*\)|\]\[[^\]]*\]", "]", text.replace("|", " "))
    return re.sub(r"(?m)^#+ |^ *(?:[-*>]|\d+\.) ", "", text)


def words(text: str) -> int:
    """Words: what has a letter or digit, so that a column's separator is none."""
    return len(re.findall(r"\S*\w\S*", text))


def test_paragraphs_and_sentences_are_found() -> None:
    page = "# Title\n\nOne `a b` two. Three (f. 4) five:\n\n- six\n  seven\n- eight\n\n```py\nx\n```\n| a | b |\n"
    found = list(paragraphs(page))
    assert found == ["One code two. Three (f. 4) five:", "six seven", "eight"]
    assert sentences(found[0]) == ["One code two", "Three (f", "4) five:"]
    assert words("one - two | 3") == 3


def test_what_is_shown_is_counted() -> None:
    page = "# A title\n\n- one [two](there.md)\n\n| a | b |\n|---|--:|\n| 1 | = |\n\n```py\nx = 1\n```\n2. end\n"
    assert shown(page).split() == ["A", "title", "one", "[two]", "a", "b", "1", "=", "end"]


def test_the_pages_are_at_most_so_long() -> None:
    lengths = {path: len(shown(path.read_text(encoding="utf-8")).split()) for path in READ}
    assert all(lengths.values())
    assert sum(lengths[path] for path in PROOFS) <= MOST_WORDS_OF_PROOFS
    assert sum(lengths.values()) <= MOST_WORDS, "say each thing once"


@pytest.mark.parametrize(
    "path", [*GUIDES, *PROOFS], ids=lambda path: path.relative_to(DOCS).as_posix()
)
def test_sentences_and_paragraphs_are_short(path: Path) -> None:
    found = list(paragraphs(path.read_text(encoding="utf-8")))
    assert [text for text in found if words(text) > PARAGRAPH] == []
    assert [part for text in found for part in sentences(text) if words(part) > SENTENCE] == []
