"""What the README and the pages tell a reader to type runs as printed."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from mezzotint.cli import run

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "src" / "mezzotint" / "datasets" / "flights" / "air_time.parquet"
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


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
        for line in text.splitlines():
            if line.startswith("$ mezzotint "):
                status = run(shlex.split(line.removeprefix("$ mezzotint "), comments=True))
                assert status == 0, f"{line}\n{capsys.readouterr().err}"
