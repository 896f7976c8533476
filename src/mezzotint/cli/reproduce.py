"""`mezzotint reproduce`: the papers' tables and figures, recomputed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import RenderableType

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, argument, option
from mezzotint.core.files import replacing
from mezzotint.core.records import number

if TYPE_CHECKING:
    from mezzotint.papers.reproduction import Reproduction

RUNS = "Runs with data"

KEY_COLUMNS = 2
"""First columns of a reproduction, which identify a row."""

EXAMPLE = "mezzotint reproduce rqm-figure4 --data femnist.npz --model cnn --rounds 2000 --seeds 3"

_BASIS = (
    "Epsilon and delta: the paper's as printed, ours computed; to the observer that the paper has "
    "in mind."
)


def command(
    name: Annotated[str, argument("A table or figure; `list` prints all of them.")],
    data: Annotated[
        str | None, option("Folder or file of the data set that it needs.", panel=RUNS)
    ] = None,
    model: Annotated[
        Literal["softmax", "small-cnn", "cnn"] | None, option("Model:", panel=RUNS)
    ] = None,
    rounds: Annotated[int | None, option("Rounds of a run.", panel=RUNS)] = None,
    seeds: Annotated[int | None, option("Seeds, from 0.", panel=RUNS)] = None,
    quick: Annotated[
        bool, option("Fewer rounds and seeds, to see that it works.", "--quick", panel=RUNS)
    ] = False,
    keep: Annotated[
        Path | None, option("Keep finished runs (.jsonl), and go on from it.", panel=RUNS)
    ] = None,
    device: Annotated[Literal["cpu", "cuda"] | None, option("Where it trains:", panel=RUNS)] = None,
    png: Annotated[Path | None, option("Plot it (.png).", panel=OUTPUT)] = None,
    html: Annotated[Path | None, option("Write it as a page (.html).", panel=OUTPUT)] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Recompute a published table or figure: the paper's value, ours, the difference, and why they
    differ.

    Data: MNIST's four idx files (rqp-table1, rqp-figure2, rqp-bits, optm-figure4d, rqm-tradeoff);
    FEMNIST by writer as an npz, LEAF's folder, or MNIST's files in its place (rqm-figure4 to 6);
    CIFAR's pickles or the images of its package (rqm-figure11).
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
        "quick": quick or None,
        "keep": keep,
        "device": device,
    }
    kept_bytes = _size(keep)
    result = _computed(name, options)
    if kept_bytes and _size(keep) == kept_bytes:
        console.note(f"every run was in {keep} already, finished: none was made")
    _draw(result, "png", png, overwrite)
    _draw(result, "html", html, overwrite)
    json_fields = result.as_dict()
    standing = {"name": name, "certified": False, "observer": "as in the paper"}
    console.show({**standing, **json_fields}, as_json, lambda: _picture(result))


def _size(file: Path | None) -> int:
    """Bytes of a file; 0 where there is none."""
    if file is None or not file.is_file():
        return 0
    return file.stat().st_size


def _list(as_json: bool) -> None:
    names = list(mz.papers.catalogue.figures())
    listing = "\n".join(_line(figure_name) for figure_name in names)
    console.show({"names": names}, as_json, lambda: listing)


def _line(name: str) -> str:
    """A line of the list: what is reproduced, and the options that change how."""
    line = f"{name:<24}{mz.papers.catalogue.summary(name)}"
    figure = mz.papers.catalogue.figures()[name]
    accepted = [f"--{option_name}" for option_name in figure.options if option_name != "progress"]
    if not accepted:
        return line
    return f"{line} Takes {', '.join(accepted)}."


def _computed(name: str, options: dict[str, Any]) -> Reproduction:
    figure = mz.papers.catalogue.figures().get(name)
    if figure is None or "progress" not in figure.options:
        with progress.busy(f"reproducing {name}"):
            return mz.papers.catalogue.reproduce(name, **options)
    bar: AbstractContextManager[Any] = progress.bar(name)
    with bar as report_progress:
        return mz.papers.catalogue.reproduce(name, progress=report_progress, **options)


def _draw(result: Reproduction, kind: str, path: Path | None, overwrite: bool) -> None:
    if path is None:
        return
    with replacing(path, overwrite=overwrite, parameter=kind) as temporary:
        if kind == "png":
            result.png(temporary)
        else:
            result.html(temporary)


def _picture(result: Reproduction) -> list[RenderableType]:
    columns = list(result.columns)
    left: list[str] = []
    for heading in columns:
        if not any(isinstance(row.get(heading), float) for row in result.rows):
            left.append(heading)
    table_rows = [[_cell(row.get(heading)) for heading in columns] for row in result.rows]
    table = tables.TerminalTable(
        columns, table_rows, left=left, title=result.title, keys=KEY_COLUMNS
    )
    return [table, result.note, _BASIS]


def _cell(value: object) -> str:
    if value is None or isinstance(value, float):
        return number(value)
    return str(value)
