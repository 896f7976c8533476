"""What a terminal shows and a pipe does not: spinners, bars with rate and time left, pictures of distributions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import run
from mezzotint.cli.console import say
from mezzotint.cli.tables import sparkline
from mezzotint.families import randomized_response

pty = pytest.importorskip("pty", reason="pseudo-terminals are a thing of Unix")

Invoke = Callable[..., Any]
VERB = [sys.executable, "-c", "from mezzotint.cli import main; main()"]
DESIGN = [*VERB, "design", "--epsilon", "1", "--levels", "2"]
STEPS = """
import time
from mezzotint.cli.progress import bar, busy
with bar("walking", 4) as tell:
    for done in range(1, 5):
        time.sleep(0.15)
        tell(done, 4)
with busy("thinking"):
    time.sleep(0.3)
"""


def _on_a_terminal(command: list[str]) -> tuple[str, str]:
    """Standard output through a pipe, standard error as a terminal of 100 columns gets it."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment)
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # Linux's way to say that the other side is gone
            break
        if not part:
            break
        shown += part
    os.close(leader)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.decode(), shown.decode()


def test_long_work_shows_a_bar_with_rate_and_time_left() -> None:
    out, shown = _on_a_terminal([sys.executable, "-c", STEPS])
    assert out == ""
    assert "walking" in shown
    assert re.search(r"[1-4]/4", shown)
    assert re.search(r"\d/s", shown)
    assert re.search(r"0:00:\d\d.*0:00:\d\d", shown)  # time taken, time left
    assert "thinking" in shown


def test_a_design_spins_on_a_terminal_and_is_silent_in_a_pipe() -> None:
    out, shown = _on_a_terminal([*DESIGN, "--json"])
    assert "designing optimal" in shown
    assert out.count("\n") == 1
    piped = subprocess.run(
        [*DESIGN, "--json"], capture_output=True, text=True, timeout=60, check=True
    )
    assert piped.stderr == ""
    assert piped.stdout.startswith("{")


def test_a_library_that_is_not_there_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        def load(path: object) -> None:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

        monkeypatch.setattr("mezzotint.core.mechanism.Mechanism.load", load)

    (tmp_path / "m.json").write_text("{}", encoding="utf-8")
    missing("flwr.app")
    assert run(["show", str(tmp_path / "m.json")]) == 2
    assert (
        "flwr is not installed; in the checkout of mezzotint: pip install '.[flower]'"
        in capsys.readouterr().err
    )
    missing("numpy")  # not an extra: nothing to hide
    with pytest.raises(ModuleNotFoundError):
        run(["show", str(tmp_path / "m.json")])


def test_a_sparkline_has_one_character_per_level() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == " ▅█"
    assert sparkline([0.25, 0.25]) == "██"
    assert sparkline([1e-9, 1.0])[0] == "▁"


def test_show_draws_the_distributions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    randomized_response(lower=0, upper=1, epsilon=1.0).save(tmp_path / "m.json")
    assert run(["show", str(tmp_path / "m.json"), "--at=0,0.5,1"]) == 0
    out = capsys.readouterr().out
    # p = e / (1 + e) = 0.7311 at one end, halves in the middle: the smaller bar is 3 of 8 eighths high.
    for row in ("█▃", "██", "▃█"):
        assert row in out
    assert "0.7311" in out


@pytest.mark.parametrize(
    ("begun", "offered"),
    [("mezzotint rep", ["report", "reproduce"]), ("mezzotint expl", ["explore"])],
)
def test_completion_offers_the_verbs(begun: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": begun, "COMP_CWORD": "1", "_MEZZOTINT_COMPLETE": "complete_bash"}
    ran = subprocess.run(
        VERB, env={**os.environ, **words}, capture_output=True, text=True, timeout=60, check=False
    )
    assert sorted(ran.stdout.split()) == offered


def _mezzotint(
    *arguments: object, closed: bool = False, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """The program in a process of its own, with its standard output closed if wanted."""
    code = "import sys; from mezzotint.cli import main; sys.argv[0] = 'mezzotint'; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    if closed:
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    dropped = ("LC_", "LANG", "PYTHONIO", "PYTHONUTF8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return subprocess.run(
        command, env=kept | environment, capture_output=True, timeout=120, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "latin-1", "C"],
)
def test_show_speaks_every_encoding(environment: dict[str, str], mechanism_file: Path) -> None:
    done = _mezzotint("show", mechanism_file, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert b"@" in done.stdout  # the tallest bar, where there are no blocks to draw with
    wrong = _mezzotint("show", "no-such-\u00fc.json", **environment)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(b"mezzotint: FILE=no-such-")
    assert b"Traceback" not in wrong.stderr


@pytest.mark.slow
def test_a_closed_output_is_named(mechanism_file: Path) -> None:
    done = _mezzotint("verify", mechanism_file, closed=True)
    assert done.returncode == 2
    assert done.stderr.startswith(b"mezzotint: standard output is closed;")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["m\x00.json", "\x00", "ü\ud800.json"])
def test_impossible_names_are_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", name]) == 2
    assert "holds a character that no name can have" in capsys.readouterr().err


def test_a_prior_beyond_the_range_is_told(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age\n34\n61\n0.5\n")
    asked = (
        "design",
        "--epsilon",
        1,
        "--levels",
        2,
        "--prior",
        f"{tmp_path / 'people.csv'}:age",
        "--out",
        tmp_path / "m.json",
    )
    outcome = invoke(*asked)
    assert outcome.status == 0
    assert "2 of the prior's 3 values lie outside --lower -1 .. --upper 1" in outcome.err
    assert "outside" not in invoke(*asked, "--upper", 100, "--overwrite").err


def test_elections_say_at_which_epsilon(invoke: Invoke) -> None:
    assert "e^epsilon = 51/49, loss rate 0.002" in " ".join(
        invoke("smoothed", "elections").out.split()
    )
    assert "epsilon 0.1," in " ".join(invoke("smoothed", "elections", "--epsilon", 0.1).out.split())


EIGHTY = """
design --epsilon 1 --levels 2 --out d.json
design --epsilon 1 --categories a,b,c
show m.json
verify m.json
account m.json --dimension 10 --rounds 30
privatize in.parquet --column x --mechanism m.json --out r.parquet --ledger l.jsonl --budget 9
estimate r.parquet --histogram --quantiles
compare --epsilon 1 --bits 1
ledger l.jsonl --budget 9
advise --clients-per-round 50 --epsilon 4 --dimension 10 --observer reports
reproduce list
report m.json --out o.html
smoothed elections
smoothed profile --counts 10,12 --loss-rate 0.1 --epsilon 1
""".strip().splitlines()


def test_eighty_columns_are_enough(
    invoke: Invoke, mechanism_file: Path, column_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is longer, but for one word (a path) that is; no word is cut, and no number."""
    monkeypatch.chdir(mechanism_file.parent)
    monkeypatch.setenv("COLUMNS", "80")
    for words in EIGHTY:
        outcome = invoke(*words.split())
        assert outcome.status == 0, outcome
        assert outcome.out.strip(), words
        for line in outcome.out.splitlines():
            assert len(line) <= 80 or len(line.split()) == 1, f"{words}: {line}"
            assert "\u2026" not in line, f"{words}: {line}"


def test_sentences_wrap_between_words_on_a_screen_and_nowhere_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a sentence of words that goes on, and a path " + "/x" * 30 + " at the end\n\nof it"
    say(text)
    assert capsys.readouterr().out == text + "\n"
    monkeypatch.setenv("COLUMNS", "20")
    say(text)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= 20 or line == "/x" * 30 for line in lines)


def test_names_from_files_move_no_cursor_and_need_no_encoding(
    invoke: Invoke, mechanism_file: Path
) -> None:
    """Terminal escapes, a lone surrogate, and what the printing library would take for markup."""
    document = json.loads(mechanism_file.read_text())
    document["name"] = "a\x1b[2Jb\ud800[red]c[/]"
    mechanism_file.write_text(json.dumps(document))
    outcome = invoke("show", mechanism_file)
    assert outcome.status == 0
    assert "\x1b" not in outcome.out
    assert r"a\x1b[2Jb\ud800[red]c[/]" in outcome.out


def test_tables_fit_eighty_columns_in_a_pipe(
    invoke: Invoke, mechanism_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = [
        line
        for line in invoke("compare", "--epsilon", 1, "--bits", 1).out.splitlines()
        if "│" in line
    ]
    assert rows
    assert max(map(len, rows)) <= 80
