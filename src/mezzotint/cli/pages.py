"""`mezzotint report` and `explore`: pages about the user's results."""

from __future__ import annotations

import importlib.resources
import importlib.util
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import mezzotint as mz
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
    """Write a self-contained page about a mechanism and its guarantees, or about the results of
    reports or runs.

    FILE is a mechanism (.json), reports (.parquet, .csv, .csv.gz, a folder of
    them, or saved counts), a training log (.jsonl), the folder of a training or federated run, or
    the --json output of a mezzotint smoothed command.
    """
    if not file.exists():
        raise ParameterError("file", str(file), "no such file; check the path")
    common.refuse_outputs(".html", overwrite=overwrite, out=out)
    if png is not None and not png.is_dir():
        raise ParameterError("png", str(png), "no such folder; create it first")
    started = time.perf_counter()
    with progress.busy("computing the page"):
        page = mz.report.page_of(file, column=column, confidence=confidence)
    png_files: tuple[Path, ...] = ()
    if png is not None:
        png_files = mz.report.write_png(page, png, overwrite=overwrite)
    with replacing(out, overwrite=overwrite) as temporary:
        temporary.write_text(mz.report.html_page(page), encoding="utf-8")
    json_fields = {
        "out": str(out),
        "bytes": out.stat().st_size,
        "title": page.title,
        "summary": page.summary,
        "figures": [figure.key for figure in (*page.sliders, *page.figures)],
        "png": [str(path) for path in png_files],
        "seconds": time.perf_counter() - started,
    }
    size = f"{json_fields['bytes'] / 1e3:,.0f} kB"
    sentences = [
        page.summary,
        f"Written: {out} ({size}, needs no network)",
        *(f"Written: {path}" for path in png_files),
    ]
    console.show(json_fields, as_json, lambda: "\n".join(sentences))


def explore(
    port: Annotated[int, option("Port on this machine; 0: any free one.")] = 0,
    no_browser: Annotated[bool, option("Only print the address.", "--no-browser")] = False,
    prior: Annotated[
        str | None, option("Public column like the inputs, preselected.", metavar="FILE:COLUMN")
    ] = None,
    export: Annotated[
        Path | None, option("Write the page with its first answer (.html), and end.", panel=OUTPUT)
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Open a page that helps you choose a mechanism; only this machine can reach it. Ctrl-C stops
    it.

    The printed address contains a random token, and requests without it are refused.
    """
    if importlib.util.find_spec("marimo") is None:
        raise MissingExtraError(not_installed("marimo", "explore"))
    if not 0 <= port < 2**16:
        raise ParameterError("port", port, "use 0 (any free port) or 1024 to 65535")
    common.refuse_outputs(".html", overwrite=overwrite, export=export)
    if prior is not None:
        console.warn(common.PRIOR_WARNING)
    arguments: list[str] = []
    if prior is not None:
        arguments = ["--", "--prior", prior]
    with _explorer_app() as app:
        if export is not None:
            _export_explorer(app, arguments, export, overwrite=overwrite)
            console.show({"out": str(export)}, as_json, lambda: f"Written: {export}")
            return
        port = port or _free_port()
        token = secrets.token_urlsafe(32)
        url = f"http://{LOOPBACK}:{port}/?access_token={token}"
        text = f"Serving on this machine only; open {url}\nPress Ctrl-C to stop."
        console.show({"url": url, "port": port}, as_json, lambda: text)
        sys.stdout.flush()
        _serve_explorer(app, arguments, port=port, token=token, show=not no_browser)


LOOPBACK = "127.0.0.1"


@contextmanager
def _explorer_app() -> Iterator[Path]:
    """A copy of the app: marimo keeps what a session showed in a folder beside it."""
    app = importlib.resources.files("mezzotint.report").joinpath("assets", "explorer.py")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "explorer.py"
        copy.write_text(app.read_text(encoding="utf-8"), encoding="utf-8")
        yield copy


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        return listener.getsockname()[1]


def _serve_explorer(app: Path, arguments: list[str], *, port: int, token: str, show: bool) -> None:
    """Run marimo's server until it is interrupted; the token reaches it unseen by other users."""
    command_words = [sys.executable, "-m", "marimo", "--quiet", "run", str(app), "--host", LOOPBACK]
    command_words += ["--port", str(port), "--token", "--token-password-file", "-"]
    if not show:
        command_words.append("--headless")
    with subprocess.Popen([*command_words, *arguments], stdin=subprocess.PIPE) as server:
        assert server.stdin is not None
        server.stdin.write(token.encode())
        server.stdin.close()
        try:
            status = server.wait()
        finally:
            server.terminate()
    if status:
        raise typer.Exit(status)


def _export_explorer(app: Path, arguments: list[str], out: Path, *, overwrite: bool) -> None:
    """Write the page as marimo has it after its first run."""
    with replacing(out, overwrite=overwrite, parameter="export") as temporary:
        command_words = [sys.executable, "-m", "marimo", "--quiet", "export", "html", str(app)]
        command_words += ["--no-include-code", "--force", "--output", str(temporary)]
        subprocess.run([*command_words, *arguments], check=True, stdin=subprocess.DEVNULL)
