"""`mezzotint report`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Confidence, Overwrite, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import refuse_existing, replacing

EXAMPLE = "mezzotint report m.json --out report.html"


def command(
    file: Annotated[
        Path, typer.Argument(help="Mechanism, claim, reports, training log, federated run or smoothed result.")
    ],
    out: Annotated[Path, option("Page to write (.html).")] = Path("report.html"),
    png: Annotated[Path | None, option("Existing folder in which to save every figure as a PNG file.")] = None,
    column: Annotated[str | None, option("Column of codes, if the reports have several.")] = None,
    level: Confidence = 0.95,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained page about a mechanism and its guarantees, or about what reports or runs show and cost.

    FILE is a mechanism, ranked codebook or claim file (.json), reports (.parquet, .csv, .csv.gz, a folder
    of them, or saved counts), a training log (.jsonl), the folder of a federated
    run, or the --json output of a mezzotint smoothed command.
    """
    from mezzotint.report import any_file as files
    from mezzotint.report import page as pages

    if not file.exists():
        raise ParameterError("file", str(file), "no such file; make one with: mezzotint design --out m.json")
    refuse_existing(out, overwrite=overwrite)
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
    lines = [page.summary, f"Written: {out} ({size}, needs no network)", *(f"Written: {path}" for path in drawn)]
    common.show(facts, as_json, lambda: "\n".join(lines))
