"""The law of values: whatever brings a value, it stands for the same input, or is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import ways


@pytest.mark.parametrize("table", ways.TABLES)
@pytest.mark.parametrize("way", ways.WAYS)
def test_each_way_in_means_the_same(way: str, table: str, tmp_path: Path) -> None:
    mechanism = ways.TABLES[table]
    wanted = {name: ways.law(way, name, mechanism) for name in ways.LISTS}
    given = {
        name: None
        if wanted[name] is None
        else ways.answer(ways.WAYS[way], values, mechanism, tmp_path)
        for name, values in ways.LISTS.items()
    }
    assert given == wanted


def test_the_matrix_of_the_documentation_is_that_of_the_law() -> None:
    stored = Path(__file__).parents[2] / "docs" / "tables" / "values.md"
    assert stored.read_text(encoding="utf-8") == ways.matrix() + "\n", (
        "write there what ways.matrix() gives"
    )
