"""`mezzotint reproduce`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Overwrite, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.records import JsonObject, number

if TYPE_CHECKING:
    from mezzotint.papers.reproduction import Reproduction

EXAMPLE = "mezzotint reproduce optm-table1 --json"


def command(
    name: Annotated[str, typer.Argument(help="What to reproduce; `list` prints all names.")],
    png: Annotated[Path | None, option("Also plot it to this PNG file.")] = None,
    html: Annotated[Path | None, option("Also write it as a page to this file.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Recompute a published table or figure: the paper's value, ours, the difference, and why they differ.

    `mezzotint reproduce list` prints all names.
    """
    known = _reproductions()
    if name == "list":
        common.show({"names": sorted(known)}, as_json, lambda: "\n".join(sorted(known)))
        return
    name = f"optm-{name}" if f"optm-{name}" in known else name  # what these were called before there were other papers
    if name not in known:
        raise ParameterError("name", name, f"use one of: {', '.join(sorted(known)) or 'none are built in'}")
    if "progress" in inspect.signature(known[name]).parameters:
        with common.progress(name) as tell:
            result = known[name](progress=tell)
    else:
        with common.busy(f"reproducing {name}"):
            result = known[name]()
    _draw(result, "png", png, overwrite)
    _draw(result, "html", html, overwrite)
    facts = result.as_dict()
    standing = {"name": name, "certified": False, "observer": "as in the paper"}
    common.show({**standing, **facts}, as_json, lambda: _picture(facts))


def _reproductions() -> JsonObject:
    """Every entry of a REPRODUCTIONS dictionary in a module of `mezzotint.papers`."""
    room = importlib.import_module("mezzotint.papers")
    found: JsonObject = {}
    for module in pkgutil.iter_modules(room.__path__, prefix="mezzotint.papers."):
        found |= getattr(importlib.import_module(module.name), "REPRODUCTIONS", {})
    return found


def _draw(result: Reproduction, kind: str, path: Path | None, overwrite: bool) -> None:
    if path is None:
        return
    facts = result.as_dict()
    if not facts["rows"]:
        raise ParameterError(kind, str(path), f"there is nothing to draw: {facts['note']}")
    with replacing(path, overwrite=overwrite, parameter=kind) as temporary:
        getattr(result, kind)(temporary)


def _picture(facts: JsonObject) -> Group:
    rows = facts.get("rows", [])
    # Remarks would squeeze the numbers: they stand below the table, each once.
    names = list(dict.fromkeys(key for row in rows for key in row if key != "note"))
    remarks: dict[str, list[str]] = {}
    for row in rows:
        if row.get("note"):
            first = [_cell(row.get(name)) for name in names[:2]]
            remarks.setdefault(str(row["note"]), []).append(" ".join(first))
    words = [name for name in names if not any(isinstance(row.get(name), float) for row in rows)]
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    table = common.table(names, cells, left=words, title=str(facts.get("title", "")), keys=2)
    below = [f"{', '.join(whose)}: {remark}." for remark, whose in remarks.items()]
    basis = "Epsilon and delta: the paper's as printed, ours computed; to the observer that the paper has in mind."
    return Group(table, Text("\n".join([str(facts.get("note", "")), *below, basis])))


def _cell(value: object) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)
