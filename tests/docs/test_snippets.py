"""What the README and the pages tell a reader to type runs as printed, and prints what stands below it."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "src" / "mezzotint" / "datasets" / "flights" / "air_time.parquet"
PAGES = [
    "README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
_spec = importlib.util.spec_from_file_location("tools_outputs", ROOT / "tools" / "outputs.py")
assert _spec is not None
assert _spec.loader is not None
outputs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(outputs)


def _blocks(page: str) -> list[tuple[str, str]]:
    return outputs.BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def test_there_are_pages_with_blocks() -> None:
    kinds = [kind for page in PAGES for kind, _ in _blocks(page)]
    assert kinds.count("python") >= 8
    assert kinds.count("console") >= 4
    assert _blocks("README.md")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(page)])
def test_blocks_run_in_their_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(FLIGHTS, tmp_path / "flights.parquet")
    names: dict[str, object] = {}
    for kind, text in _blocks(page):
        if kind == "python":
            exec(compile(text, page, "exec"), names)
            continue
        for command, below in outputs.commands(text):
            if command.startswith("mezzotint "):
                status, lines = outputs.printed(command)
                assert status == 0, f"{command}\n{capsys.readouterr().err}"
                assert not below or outputs.compare(command, below, lines) == "", command


def test_outputs_are_compared_word_for_word() -> None:
    block = "$ mezzotint verify m.json\nvalid: 0.5  1\n$ mezzotint show m.json\n"
    (first, below), (second, nothing) = outputs.commands(block)
    assert (first, below) == ("mezzotint verify m.json", ["valid: 0.5  1"])
    assert (second, nothing) == ("mezzotint show m.json", [])
    said = [
        "\u2502 valid: 0.50002   1 \u2502",
        "in 3.2 s, 1,000,000/s, table 2bc1a880bb86",
        "and more",
    ]
    assert outputs.compare(first, below, said) == ""
    assert outputs.compare(first, ["valid: 0.6 1"], said) == "0.6 (now 0.50002)"
    assert outputs.compare("mezzotint estimate r.parquet", ["valid: 0.6 1"], said) == ""
    assert outputs.compare(first, ["invalid: 0.5 1"], said) == "invalid: # #"
    assert outputs.compare(first, ["in 9.1 s, 2/s, table 000000000000 and", "more"], said) == ""
    assert outputs.compare(first, ["valid: 0.5 1", "...", "and more"], said) == ""
    assert outputs.compare(first, ["and more", "...", "and less"], said) == "and less"


WRITTEN = re.compile(r"(?:--(?:out|proof|log|save-counts|ledger|key-file) |\.save\(\")([\w./-]+)")


def test_no_two_pages_write_the_same_file() -> None:
    """A reader types several pages into one folder: what the README left there must not stop the quick start."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for kind, text in _blocks(page):
            lines = (
                [command for command, _ in outputs.commands(text)]
                if kind == "console"
                else text.splitlines()
            )
            for name in WRITTEN.findall("\n".join(lines)):
                found.setdefault(name, set()).add(page)
    assert {"flights.json", "air-time.json"} <= set(found)
    assert {name: pages for name, pages in found.items() if len(pages) > 1} == {}
