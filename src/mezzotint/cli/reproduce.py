"""`mezzotint reproduce`: the papers' tables and figures, recomputed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Overwrite, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.records import number

if TYPE_CHECKING:
    from mezzotint.papers.reproduction import Reproduction

REPRODUCE = "mezzotint reproduce rqm-figure4 --data femnist.npz --model cnn --rounds 2000 --seeds 3"

_BASIS = "Epsilon and delta: the paper's as printed, ours computed; to the observer that the paper has in mind."


def reproduce(
    name: Annotated[
        str, typer.Argument(help="What to reproduce; `list` prints all names and what they are.")
    ],
    data: Annotated[
        str | None,
        option(
            "Where the data lie: MNIST's four idx files (rqp-table1, rqp-figure2, rqp-bits, optm-figure4d, "
            "rqm-tradeoff), FEMNIST by writer as an npz or LEAF's folder, or MNIST's files in its place (rqm-figure4 to "
            "6), CIFAR's pickles or the images of its package (rqm-figure11)."
        ),
    ] = None,
    model: Annotated[
        str | None, option("Model of a federated run: softmax, small-cnn or cnn.")
    ] = None,
    rounds: Annotated[int | None, option("Rounds of a federated run.")] = None,
    seeds: Annotated[int | None, option("Seeds of a federated run, from 0.")] = None,
    quick: Annotated[
        bool, option("A smaller run: fewer rounds and seeds, to see that it works.", "--quick")
    ] = False,
    keep: Annotated[
        Path | None,
        option("File that keeps finished runs (.jsonl); started again, it goes on from there."),
    ] = None,
    device: Annotated[str | None, option("Where a federated run trains: cpu or cuda.")] = None,
    png: Annotated[Path | None, option("Also plot it to this PNG file.")] = None,
    html: Annotated[Path | None, option("Also write it as a page to this file.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Recompute a published table or figure: the paper's value, ours, the difference, and why they differ.

    `mezzotint reproduce list` prints all names and what they are.
    """
    common.refuse_outputs(".png", overwrite=overwrite, png=png)
    common.refuse_outputs(".html", overwrite=overwrite, html=html)
    if name == "list":
        _list(as_json)
        return
    options: dict[str, Any] = {
        "data": data,
        "model": model,
        "rounds": rounds,
        "seeds": seeds,
        "quick": True if quick else None,
        "keep": keep,
        "device": device,
    }
    result = _computed(name, options)
    _draw(result, "png", png, overwrite)
    _draw(result, "html", html, overwrite)
    facts = result.as_dict()
    standing = {"name": name, "certified": False, "observer": "as in the paper"}
    common.show({**standing, **facts}, as_json, lambda: _picture(result))


def _list(as_json: bool) -> None:
    names = list(mz.papers.catalogue.reproductions())
    text = "\n".join(f"{name:<24}{mz.papers.catalogue.summary(name)}" for name in names)
    common.show({"names": names}, as_json, lambda: text)


def _computed(name: str, options: dict[str, Any]) -> Reproduction:
    if name not in mz.papers.catalogue.reproductions():
        raise ParameterError(
            "name", name, f"use one of: {', '.join(mz.papers.catalogue.reproductions())}"
        )
    if "progress" not in mz.papers.catalogue.accepted(name):
        with common.busy(f"reproducing {name}"):
            return mz.papers.catalogue.reproduce(name, **options)
    bar: AbstractContextManager[Any] = common.progress(name)
    with bar as tell:
        return mz.papers.catalogue.reproduce(name, progress=tell, **options)


def _draw(result: Reproduction, kind: str, path: Path | None, overwrite: bool) -> None:
    if path is None:
        return
    with replacing(path, overwrite=overwrite, parameter=kind) as temporary:
        if kind == "png":
            result.png(temporary)
        else:
            result.html(temporary)


def _picture(result: Reproduction) -> Group:
    """The rows as a table; remarks would squeeze the numbers, so they stand below, each once."""
    rows = result.rows
    names = [name for name in result.columns if name != "note"]
    remarks: dict[str, list[str]] = {}
    for row in rows:
        if row.get("note"):
            first = [_cell(row.get(name)) for name in names[:2]]
            remarks.setdefault(str(row["note"]), []).append(" ".join(first))
    words = [name for name in names if not any(isinstance(row.get(name), float) for row in rows)]
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    table = common.TerminalTable(names, cells, left=words, title=result.title, keys=2)
    below = [f"{', '.join(whose)}: {remark}." for remark, whose in remarks.items()]
    return Group(table, Text("\n".join([result.note, *below, _BASIS])))


def _cell(value: object) -> str:
    if value is None or isinstance(value, float):
        return number(value)
    return str(value)
