"""The notebooks are whole, run in an empty folder, and two hold the outputs of one execution."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from mezzotint.cli.tables import TABLE_ENDINGS

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))

EXECUTED = {"estimating", "waves"}
"""Their outputs are stored, for who reads them without running them."""


def test_there_is_one_for_each_job() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "auditing",
        "collecting",
        "designing",
        "estimating",
        "federating",
        "training",
        "waves",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_empty_or_executed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.cells[0].source.startswith("# ")
    assert any("assert " in cell.source for cell in code)
    if path.stem not in EXECUTED:
        assert all(not cell.outputs and cell.execution_count is None for cell in code)
        return
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert {output.output_type for output in outputs} <= {"stream", "execute_result"}
    assert not any(
        prefix in str(outputs) for prefix in ("/tmp", "/home", "/root", "/work", "Error")
    )


def test_the_week_of_an_engineer_is_of_its_stated_size() -> None:
    source = (NOTEBOOKS[0].parent / "waves.ipynb").read_text(encoding="utf-8")
    assert "RIDES, RIDERS, WEEKS, DAYS = 2_000_000, 150_000, 3, 7" in source
    assert "20 bytes a rider and wave" in source


def test_tables_of_estimates_have_endings_that_are_written() -> None:
    pages = [
        *NOTEBOOKS,
        *NOTEBOOKS[0].parents[1].glob("*.md"),
        NOTEBOOKS[0].parents[2] / "README.md",
    ]
    command = re.compile(r"mezzotint estimate[^`\n]* --out \w+(\.\w+)")
    endings = [one for page in pages for one in command.findall(page.read_text(encoding="utf-8"))]
    assert endings
    assert set(endings) <= set(TABLE_ENDINGS)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    if path.stem == "training":
        pytest.importorskip("opacus", reason="the extra `torch` is not installed")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=dict(os.environ))
    printed = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    assert any(output.output_type == "stream" and output.name == "stdout" for output in printed)
    assert not any(output.output_type == "error" for output in printed)
