"""`mezzotint report`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mezzotint.cli.common import AsJson, Overwrite, busy, output, print_json
from mezzotint.core.atomic import refuse_existing, replacing
from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import Mechanism

mechanisms: Any = LazyModule("mezzotint.report.mechanism")
collected: Any = LazyModule("mezzotint.report.collected")
pages: Any = LazyModule("mezzotint.report.page")
drawings: Any = LazyModule("mezzotint.report.png")

EXAMPLE = "mezzotint report m.json --out report.html"

_REPORTS = (".parquet", ".csv", ".gz")


def command(
    file: Annotated[Path, typer.Argument(help="Mechanism file (.json), or reports (.parquet, .csv, .csv.gz).")],
    out: Annotated[Path, typer.Option(help="Page to write (.html).")] = Path("report.html"),
    png: Annotated[Path | None, typer.Option(help="Folder for every figure as a PNG file.")] = None,
    column: Annotated[str | None, typer.Option(help="Field of codes, where reports have several.")] = None,
    level: Annotated[float, typer.Option(help="Confidence of each interval.")] = 0.95,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page: what a mechanism does, what it guarantees, how good it is; or what reports say.

    FILE is a mechanism file (.json), or a reports file (.parquet, .csv, .csv.gz) that carries its mechanism.
    """
    if not file.is_file():
        raise ParameterError("file", str(file), "no such file; make one with: mezzotint design --out m.json")
    refuse_existing(out, overwrite=overwrite)
    if png is not None and not png.is_dir():
        raise ParameterError("png", str(png), "no such folder; create it first")
    started = time.perf_counter()
    with busy("designing the rivals"):
        page = _page(file, column, level)
    drawn = [] if png is None else drawings.write_png(page, png, overwrite=overwrite)
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
    if as_json:
        print_json(facts)
        return
    size = f"{facts['bytes'] / 1e6:.1f} MB"
    lines = [page.summary, f"Written: {out} ({size}, needs no network)", *(f"Written: {path}" for path in drawn)]
    output().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _page(file: Path, column: str | None, level: float) -> Any:
    if file.suffix in _REPORTS:
        return collected.reports_page(file, column=column, level=level)
    if column is not None:
        raise ParameterError("column", column, "a mechanism file has no columns; leave it out")
    return mechanisms.mechanism_page(Mechanism.load(file), file=file.name)
