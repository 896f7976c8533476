"""`mezzotint report`, `explore` and `reproduce`: pages about the user's results, and the papers'."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Confidence, Overwrite, option
from mezzotint.core import not_installed
from mezzotint.core.errors import MissingExtraError, ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.records import JsonObject, number

if TYPE_CHECKING:
    from mezzotint.papers.reproduction import Reproduction

REPORT = "mezzotint report m.json --out report.html"
EXPLORE = "mezzotint explore --no-browser"
REPRODUCE = "mezzotint reproduce optm-table1 --json"


def report(
    file: Annotated[
        Path,
        typer.Argument(
            help="Mechanism, claim, reports, training log, federated run or smoothed result."
        ),
    ],
    out: Annotated[Path, option("Page to write (.html).")] = Path("report.html"),
    png: Annotated[
        Path | None, option("Existing folder in which to save every figure as a PNG file.")
    ] = None,
    column: Annotated[str | None, option("Column of codes, if the reports have several.")] = None,
    level: Confidence = 0.95,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained page about a mechanism and its guarantees, or about the results of reports or runs.

    FILE is a mechanism, ranked codebook or claim file (.json), reports (.parquet, .csv, .csv.gz, a folder
    of them, or saved counts), a training log (.jsonl), the folder of a federated
    run, or the --json output of a mezzotint smoothed command.
    """
    from mezzotint.report import any_file as files
    from mezzotint.report import page as pages

    if not file.exists():
        raise ParameterError("file", str(file), "no such file; check the path")
    common.refuse_outputs(".html", overwrite=overwrite, out=out)
    if png is not None and not png.is_dir():
        raise ParameterError("png", str(png), "no such folder; create it first")
    started = time.perf_counter()
    with common.busy("computing the page"):
        page = files.page_of(file, column=column, level=level)
    drawn = [] if png is None else pages.write_png(page, png, overwrite=overwrite)
    with replacing(out, overwrite=overwrite) as temporary:
        temporary.write_text(pages.html_page(page), encoding="utf-8")
    facts = {
        "out": str(out),
        "bytes": out.stat().st_size,
        "title": page.title,
        "summary": page.summary,
        "figures": [figure.key for figure in (*page.sliders, *page.figures)],
        "png": [str(path) for path in drawn],
        "seconds": time.perf_counter() - started,
    }
    size = f"{facts['bytes'] / 1e6:.1f} MB"
    lines = [
        page.summary,
        f"Written: {out} ({size}, needs no network)",
        *(f"Written: {path}" for path in drawn),
    ]
    common.show(facts, as_json, lambda: "\n".join(lines))


def explore(
    port: Annotated[int, option("Port on the loopback address; 0 picks a free port.")] = 0,
    no_browser: Annotated[bool, option("Only print the address.", "--no-browser")] = False,
    prior: Annotated[
        str | None,
        option(
            "Public column distributed like the inputs, preselected on the page.",
            metavar="FILE:COLUMN",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Open a local page that helps you choose a mechanism; only this machine can reach it.

    The printed address contains a random token, and requests without it are refused. Press Ctrl-C to stop.
    """
    if importlib.util.find_spec("dash") is None:
        raise MissingExtraError(not_installed("dash", "explore"))
    if not 0 <= port < 2**16:
        raise ParameterError("port", port, "use 0 (any free port) or 1024 to 65535")
    if prior is not None:
        common.warn(common.PRIOR_WARNING)
    from mezzotint.report import dashboard

    page = dashboard.LocalServer(dashboard.make_app(prior=prior or "").server, port=port)
    text = f"Serving on this machine only; open {page.url}\nPress Ctrl-C to stop."
    common.show({"url": page.url, "port": page.port}, as_json, lambda: text)
    sys.stdout.flush()
    if not no_browser:
        import webbrowser

        webbrowser.open(page.url)
    page.run()


def reproduce(
    name: Annotated[
        str, typer.Argument(help="What to reproduce; `list` prints all names and what they are.")
    ],
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
    known = _reproductions()
    if name == "list":
        lines = (
            f"{key:<24}{(inspect.getdoc(known[key]) or '').partition(chr(10))[0]}"
            for key in sorted(known)
        )
        common.show({"names": sorted(known)}, as_json, lambda: "\n".join(lines))
        return
    name = (
        f"optm-{name}" if f"optm-{name}" in known else name
    )  # what these were called before there were other papers
    if name not in known:
        raise ParameterError(
            "name", name, f"use one of: {', '.join(sorted(known)) or 'none are built in'}"
        )
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
    table = common.TerminalTable(
        names, cells, left=words, title=str(facts.get("title", "")), keys=2
    )
    below = [f"{', '.join(whose)}: {remark}." for remark, whose in remarks.items()]
    basis = "Epsilon and delta: the paper's as printed, ours computed; to the observer that the paper has in mind."
    return Group(table, Text("\n".join([str(facts.get("note", "")), *below, basis])))


def _cell(value: object) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)
