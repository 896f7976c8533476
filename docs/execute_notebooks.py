"""Executes notebooks in an empty folder and stores what they print.

`python docs/execute_notebooks.py waves estimating` needs nbclient and ipykernel. Times and machine-dependent
metadata are left out. Reports are drawn anew in every execution: outputs differ within their intervals.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

NOTEBOOKS = Path(__file__).resolve().parent / "notebooks"
TIMEOUT = 600
"""Seconds for a cell."""


def execute(path: Path) -> None:
    """Executes a notebook and writes it back with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = nbclient.NotebookClient(
            notebook, timeout=TIMEOUT, resources=resources, coalesce_streams=True
        )
        client.execute(env=dict(os.environ))
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            for output in cell.get("outputs", []):
                refuse_paths(path, output, folder)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)


def refuse_paths(path: Path, output: Any, folder: str) -> None:
    """Raises ValueError for a warning or a path of this machine among outputs."""
    text = str(output)
    if output.output_type == "stream" and output.name != "stdout":
        raise ValueError(f"{path.name} prints a warning: {text}")
    if folder in text or str(Path.home()) in text:
        raise ValueError(f"{path.name} prints a path of this machine: {text}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        execute(NOTEBOOKS / f"{name}.ipynb")
