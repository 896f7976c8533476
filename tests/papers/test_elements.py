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
    """(paper, element, where, state) of each row."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(paper, element, where, state) for paper, element, where, state in cells]


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
    assert verdict.startswith(("verified", "partial", "declined")), element
    if verdict.startswith("verified"):
        assert names
    else:
        assert len(reason.strip()) > 15
    for name in names:
        assert is_there(name), name
