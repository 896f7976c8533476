"""What commands print, under the commands: `python tools/outputs.py README.md` runs them anew and writes what they say.

Only commands with lines below them get new ones. A line `OUT` asks for them where there are none yet; `...` stands for
lines left out, and stays.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from unittest import mock

from mezzotint.cli import run

PROMPT = "$ "
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
UNSTEADY = re.compile(r"\d+(\.\d+)? s\b|[\d,]+/s\b|\b[0-9a-f]{12}\b")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(,\d{3})*(\.\d+)?(e[-+]?\d+)?")
WIDTH = "80"
"""Columns of the terminal that pages show."""
RANDOM = ("privatize", "estimate", "demo")
"""Verbs whose numbers are drawn anew each time."""


def commands(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith(PROMPT):
            found.append((line.removeprefix(PROMPT), []))
        elif found:
            found[-1][1].append(line)
    return found


def printed(command: str) -> tuple[int, list[str]]:
    """Exit status and lines of standard output of a mezzotint command, run here and now."""
    said = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": WIDTH}), contextlib.redirect_stdout(said):
        words = shlex.split(command.removeprefix("mezzotint "), comments=True)
        redirected = words[-2:-1] == [">"]
        status = run(words[:-2] if redirected else words)
    if redirected:
        Path(words[-1]).write_text(said.getvalue(), encoding="utf-8")
    return status, [line.rstrip() for line in said.getvalue().splitlines()]


def compare(command: str, below: list[str], said: list[str]) -> str:
    """What of the lines below a command it does not say; empty where it says all of them.

    Words must be the same. Numbers may differ by a thousandth, as solvers do from CPU to CPU; numbers that are drawn,
    times, hashes, and where lines break, do not count.
    """
    words, numbers = _split(said)
    for part in re.split(r"(?m)^\.\.\.$", "\n".join(below)):
        wanted, values = _split(part.splitlines())
        place = words.find(wanted)
        if place < 0:
            return wanted
        before = words[:place].count("#")
        for value, fresh in zip(values, numbers[before : before + len(values)], strict=True):
            if command.split()[1] not in RANDOM and not math.isclose(
                value, fresh, rel_tol=1e-3, abs_tol=1e-9
            ):
                return f"{value:g} (now {fresh:g})"
    return ""


def _split(lines: list[str]) -> tuple[str, list[float]]:
    """Words with # for every number, and the numbers."""
    text = UNSTEADY.sub("*", " ".join(lines))
    numbers = [float(match[0].replace(",", "").rstrip(".")) for match in NUMBER.finditer(text)]
    return re.sub(r"[\s\u2500-\u257f]+", " ", NUMBER.sub("#", text)).strip(), numbers


def rewrite(page: Path) -> None:
    """Runs a page's blocks in their order, in an empty folder, and puts the outputs in their place."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {}
    parts, end = [], 0
    for match in BLOCK.finditer(text):
        body = match[2]
        if match[1] == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(body, page.name, "exec"), names)
        elif "$ mezzotint " in body:
            lines = []
            for command, below in commands(body):
                status, fresh = printed(command) if command.startswith("mezzotint ") else (0, below)
                if status:
                    raise SystemExit(f"{command}: exit status {status}")
                lines += [PROMPT + command, *(fresh if below else ())]
            body = "\n".join(lines) + "\n"
        parts += [text[end : match.start(2)], body]
        end = match.end(2)
    page.write_text("".join(parts) + text[end:], encoding="utf-8")


def main(pages: list[str]) -> None:
    """Rewrites the pages named."""
    paths = [Path(page).resolve() for page in pages]
    for path in paths:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            rewrite(path)


if __name__ == "__main__":
    main(sys.argv[1:])
