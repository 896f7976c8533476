"""`mezzotint report` and `explore`: pages about the user's results."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from pathlib import Path
from typing import Annotated

from mezzotint.cli import common, console, progress
from mezzotint.cli.options import OUTPUT, AsJson, Confidence, Overwrite, argument, option
from mezzotint.core import not_installed
from mezzotint.core.errors import MissingExtraError, ParameterError
from mezzotint.core.files import replacing

REPORT = "mezzotint report m.json --out report.html"
EXPLORE = "mezzotint explore --no-browser"


def report(
    file: Annotated[Path, argument("Any file or folder that another verb wrote; see below.")],
    out: Annotated[Path, option("Page to write (.html).", panel=OUTPUT)] = Path("report.html"),
    png: Annotated[
        Path | None, option("Existing folder for every figure as PNG.", panel=OUTPUT)
    ] = None,
    column: Annotated[str | None, option("Column of codes, where there are several.")] = None,
    confidence: Confidence = 0.95,
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
    with progress.busy("computing the page"):
        page = files.page_of(file, column=column, confidence=confidence)
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
    console.show(facts, as_json, lambda: "\n".join(lines))


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
        console.warn(common.PRIOR_WARNING)
    from mezzotint.report import dashboard

    page = dashboard.LocalServer(dashboard.make_app(prior=prior or "").server, port=port)
    text = f"Serving on this machine only; open {page.url}\nPress Ctrl-C to stop."
    console.show({"url": page.url, "port": page.port}, as_json, lambda: text)
    sys.stdout.flush()
    if not no_browser:
        import webbrowser

        webbrowser.open(page.url)
    page.run()
