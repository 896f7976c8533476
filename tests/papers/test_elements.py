"""The table of elements in the gallery: every name in it is there, and what is not verified has a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mezzotint
from mezzotint.papers import catalogue

TABLE = Path(__file__).parents[2] / "docs" / "tables" / "elements.md"
HOMES = ("", "smoothed.", "smoothed.mechanisms.")
"""Where a short name is looked for."""


def elements() -> list[tuple[str, str, str, str]]:
    """(paper, element, where, state) of each row; a row without a state is verified."""
    rows: list[tuple[str, str, str, str]] = []
    for section in TABLE.read_text(encoding="utf-8").split("### ")[1:]:
        paper = section.partition(",")[0]
        lines = [line for line in section.splitlines() if line.startswith("|")]
        for line in lines[2:]:
            element, where, state = (cell.strip() for cell in line.strip("|").split("|"))
            rows.append((paper, element, where, state or "verified"))
    return rows


def is_there(name: str) -> bool:
    """Whether a name is a reproduction or leads to an object of this package."""
    if name in catalogue.figures():
        return True
    for home in HOMES:
        found: object = mezzotint
        try:
            for word in f"{home}{name}".split("."):
                found = getattr(found, word)
        except AttributeError:
            continue
        return True
    return False


@pytest.mark.parametrize("row", elements(), ids=lambda row: f"{row[0]} {row[1]}")
def test_an_element_is_where_the_table_says(row: tuple[str, str, str, str]) -> None:
    _, element, where, state = row
    names = [re.sub(r"\(.*", "", name) for name in re.findall(r"`([^`]+)`", where)]
    names = [name for name in names if "=" not in name]
    verdict, _, reason = state.partition(":")
    assert verdict.startswith(("verified", "partial", "declined", "no result")), element
    if verdict.startswith("verified"):
        assert names
    else:
        assert len(reason.strip()) > 15
    for name in names:
        assert is_there(name), name


NUMBERED = {
    "OPTM": {
        *(f"table{number}" for number in range(1, 10)),
        *(f"figure{number}" for number in ("1", "2", "3", "4a", "4b", "4c", "4d")),
    },
    "RQM": {f"figure{number}" for number in range(1, 12)},
    "RQP-SGD": {"table1", "figure1", "figure2"},
    "Smoothed DP": {"table1", "table2", "table3", *(f"figure{number}" for number in range(1, 6))},
}
"""What the papers number."""

FIRST_WORDS = {"OPTM": "optm", "RQM": "rqm", "RQP-SGD": "rqp", "Smoothed DP": "smoothed"}
BESIDE_THE_PAPERS = {"tradeoff", "rqm-pairs", "rqm-tradeoff", "rqp-bits", "smoothed-theorem5"}


def numbered(element: str) -> list[str]:
    """Tables and figures that a row is about: "Tables 1, 2; Figures 3 to 5" are five."""
    items: list[str] = []
    for kind, numbers in re.findall(r"(Table|Figure)s? ((?:\d+[a-d]?(?:, | to )?)+)", element):
        for part in numbers.strip(", ").split(", "):
            first, _, last = part.partition(" to ")
            span = range(int(first), int(last) + 1) if last else [first]
            items += [f"{kind.lower()}{number}" for number in span]
    return items


def test_numbers_of_tables_and_figures_are_read() -> None:
    listed = numbered("Tables 1, 2; Figures 3, 5 to 7, in both readings")
    assert listed == ["table1", "table2", "figure3", "figure5", "figure6", "figure7"]
    assert numbered("Figures 4c, 4d") == ["figure4c", "figure4d"]


def test_every_table_and_figure_of_the_papers_is_reproduced_or_has_a_reason() -> None:
    listed: dict[str, list[str]] = {paper: [] for paper in NUMBERED}
    shown: set[str] = set()
    for paper, element, _, state in elements():
        items = numbered(element) if re.match("Tables?|Figures?", element) else []
        listed[paper] += items
        if state.startswith("no result"):
            continue
        for item in items:
            pattern = re.compile(rf"{FIRST_WORDS[paper]}-{item}(-\w+)?")
            names = {name for name in catalogue.figures() if pattern.fullmatch(name)}
            assert names, (paper, item)
            shown |= names
    for paper, items in listed.items():
        assert len(items) == len(set(items)), paper
        assert set(items) == NUMBERED[paper]
    assert set(catalogue.figures()) - shown == BESIDE_THE_PAPERS
