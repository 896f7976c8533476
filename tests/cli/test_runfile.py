"""Changes of a run file on the command line: what they replace, and what they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli.runfile import read_document
from mezzotint.cli.train_run import EXAMPLE_RUN, FORMAT
from mezzotint.core.errors import ParameterError


def changed(folder: Path, *changes: str) -> dict[str, Any]:
    """The example's tables after changes."""
    path = folder / "train.toml"
    path.write_text(EXAMPLE_RUN, encoding="utf-8")
    return read_document(path, changes, FORMAT)


def test_data_of_ones_own_take_the_place_of_the_examples(tmp_path: Path) -> None:
    """A set by its name and a file exclude each other; the example names a set."""
    document = changed(tmp_path, "data.file=mine.csv", "data.label=ill")
    assert document["data"] == {"file": "mine.csv", "label": "ill"}
    document = changed(tmp_path, "data.file=mine.csv", "data.folder=images")
    assert document["data"] == {"folder": "images"}
    assert changed(tmp_path, "data=breast-cancer")["data"] == {"name": "breast-cancer"}


def test_a_table_takes_the_place_of_a_whole_table(tmp_path: Path) -> None:
    document = changed(tmp_path, 'data={file="mine.csv", label="ill"}', "budget={delta=0.001}")
    assert document["data"] == {"file": "mine.csv", "label": "ill"}
    assert document["budget"] == {"delta": 0.001}
    assert document["run"]["steps"] == 100  # as the example has it


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("budget={delta=.001}", "is no table of TOML"),
        ("budget=3", r"name a key of this table: budget\.key=value"),
    ],
)
def test_what_is_no_table_does_not_replace_one(tmp_path: Path, change: str, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        changed(tmp_path, change)
