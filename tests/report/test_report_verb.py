"""`mezzotint report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mezzotint.cli import run
from mezzotint.families import randomized_response


@pytest.fixture
def mechanism_file(tmp_path: Path) -> Path:
    path = tmp_path / "m.json"
    randomized_response(lower=0, upper=1, epsilon=1.0).save(path)
    return path


def test_writes_a_page_and_says_so(
    mechanism_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, png = tmp_path / "report.html", tmp_path / "png"
    png.mkdir()
    asked = ["report", str(mechanism_file), "--out", str(out)]
    assert run([*asked, "--png", str(png), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bytes"] == out.stat().st_size < 150_000
    assert sorted(facts["png"]) == sorted(map(str, png.iterdir()))
    assert {Path(path).stem for path in facts["png"]} == set(facts["figures"])
    assert run(asked) == 2
    assert "exists already" in capsys.readouterr().err
    assert run([*asked, "--overwrite"]) == 0
    assert "needs no network" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["none.json"], "FILE=none.json: no such file"),
        (["m.json", "--column", "x"], "column=x"),
        (["m.json", "--png", "nowhere"], "png=nowhere"),
        (["broken.json"], "not valid JSON"),
        (["broken.csv"], "broken.csv"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    words: list[str],
    complaint: str,
    mechanism_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = mechanism_file.parent
    monkeypatch.chdir(folder)
    (folder / "broken.json").write_text("{", encoding="utf-8")
    (folder / "broken.csv").write_text("x\n1\n", encoding="utf-8")
    assert run(["report", *words]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert not (folder / "report.html").exists()
