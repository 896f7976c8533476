"""The explorer: its numbers against the library, its commands run, its server refuses strangers, its page in Chromium."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import chromium, colours, console, requests, resize, until, violations
from mezzotint import collect, families
from mezzotint.cli import run
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above
from mezzotint.report.choices import Situation, choices, distribution, errors, table, widths
from tolerances import FEW

APP = Path(__file__).parents[2] / "src" / "mezzotint" / "report" / "assets" / "explorer.py"
MOST_LINES = 200
SITUATION = Situation(epsilon=1.0, bits=1, lower=0.0, upper=10.0, people=1000)
PROGRAM = "from mezzotint.cli import main; main()"


def test_choices_are_ranked_and_planned_by_the_library() -> None:
    chosen = choices(SITUATION)
    # Unbiased ones first; errors that differ by rounding alone are equal.
    places = [(choice.max_bias > 1e-5, float(f"{choice.mse:.6g}")) for choice in chosen]
    assert places == sorted(places)
    assert places[-1][0]
    assert len({choice.name for choice in chosen}) == len(chosen) > 5
    assert all(choice.mechanism.epsilon <= 1.0 for choice in chosen)
    response = families.randomized_response(lower=0, upper=10, epsilon=1.0)
    (one_bit,) = [choice for choice in chosen if choice.name == "one-bit randomized response"]
    # The closed form of one bit: (span / 2)^2 (coth(epsilon / 2)^2 - 1 / 3).
    assert one_bit.mse == pytest.approx(25 * (1 / math.tanh(0.5) ** 2 - 1 / 3), rel=1e-8)
    planned = collect.plan("mean", epsilon=1.0, people=1000, mechanism=response, lower=0, upper=10)
    assert one_bit.half_width == pytest.approx(planned.half_width, rel=FEW)


def test_every_command_makes_its_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for choice in choices(SITUATION):
        Path("m.json").unlink(missing_ok=True)
        assert run(shlex.split(choice.command)[1:]) == 0
        assert Mechanism.load("m.json").mse() == pytest.approx(choice.mse, rel=1e-6)  # solvers'


def test_figures_show_what_the_table_says() -> None:
    chosen = choices(SITUATION)
    assert errors(chosen).curves[0].y == tuple(choice.mse for choice in chosen)
    assert [row[0] for row in table(chosen).rows] == [choice.name for choice in chosen]
    (curve,) = widths(chosen[0], SITUATION).curves
    by_people = dict(zip(curve.x, curve.y, strict=True))
    assert by_people[1000.0] == pytest.approx(chosen[0].half_width, rel=FEW)
    assert list(curve.y) == sorted(curve.y, reverse=True)
    for bars in distribution(chosen[0]).curves:
        assert sum(bars.y) == pytest.approx(1.0, rel=FEW)


def test_bad_situations_are_refused() -> None:
    with pytest.raises(ParameterError, match="FILE:COLUMN"):
        choices(Situation(epsilon=1.0, bits=1, lower=0.0, upper=1.0, people=10, prior="x"))
    with pytest.raises(ParameterError, match="upper"):
        choices(Situation(epsilon=1.0, bits=1, lower=1.0, upper=0.0, people=10))


def test_the_app_is_short() -> None:
    assert len(APP.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_without_marimo_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["explore", "--no-browser"]) == 2
    assert "[explore]" in capsys.readouterr().err


# Served ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a running explorer, token included."""
    pytest.importorskip("marimo", reason="marimo is not installed")
    command = [sys.executable, "-c", PROGRAM, "explore", "--no-browser", "--json"]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        until(lambda: _status(url.partition("?")[0]) is not None)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.communicate(timeout=30)


def _status(url: str) -> int | None:
    """Of an answer, redirections not followed; None where nobody answers."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    try:
        with urllib.request.build_opener(Stay).open(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.mark.slow
def test_strangers_are_sent_to_the_login(address: str) -> None:
    bare = address.partition("?")[0]
    assert bare.startswith("http://127.0.0.1:")
    assert _status(bare) == 303
    assert _status(f"{bare}?access_token=guess") == 303
    assert _status(f"{bare}api/status") in (401, 403)


@pytest.mark.slow
def test_the_page_answers_and_loads_nothing_from_elsewhere(address: str) -> None:
    with chromium() as session:
        requests(session), console(session)
        resize(session, 1280)
        session.get(address)
        text = "return document.body.innerText"
        until(lambda: "mezzotint design --family" in session.execute_script(text), seconds=120)
        shown = session.execute_script(text)
        assert "Which mechanism should I use?" in shown
        best = choices(Situation(epsilon=1.0, bits=2, lower=-1.0, upper=1.0, people=10_000))[0]
        assert best.name in shown
        assert above(best.half_width, 4) in shown
        drawn = "return document.querySelectorAll('.figure > svg').length"
        until(lambda: session.execute_script(drawn) == 3)
        own = address.partition("/?")[0]
        elsewhere = [url for url in requests(session) if not url.startswith((own, f"ws{own[4:]}"))]
        assert elsewhere == []
        background = "return getComputedStyle(document.body).backgroundColor"
        light = session.execute_script(background)
        for scheme in ("light", "dark"):
            colours(session, scheme)
            until(
                lambda same=scheme == "light": (session.execute_script(background) == light) == same
            )
            ours = [each for each in violations(session) if "figure" in each or "<table" in each]
            assert ours == []


@pytest.mark.slow
def test_the_page_can_be_exported(tmp_path: Path) -> None:
    pytest.importorskip("marimo", reason="marimo is not installed")
    out = tmp_path / "explorer.html"
    assert run(["explore", "--export", str(out), "--json"]) == 0
    assert "the least mean squared error without bias is that of" in out.read_text(encoding="utf-8")
    assert run(["explore", "--export", str(out)]) == 2  # it is there
