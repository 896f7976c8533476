"""The written page in a headless Chromium: silent console, nothing loaded, a slider that moves the plot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import chromium, colours, console, requests, resize, until, violations
from mezzotint.cli import run
from mezzotint.families import rqm
from tolerances import printed

MOVE = """
const handle = document.getElementById('pmf-input');
handle.value = arguments[0];
handle.dispatchEvent(new Event('input'));
"""


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, session: Any) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4).save(folder / "m.json")
    assert run(["report", str(folder / "m.json"), "--out", str(folder / "report.html")]) == 0
    return folder / "report.html"


def _load(session: Any, page: Path) -> None:
    """Loads the page, until everything is drawn."""
    session.get(page.as_uri())
    until(lambda: session.execute_script("return document.body.dataset.ready") == "yes")


@pytest.mark.parametrize("width", [1280, 400])
def test_loads_quietly_and_alone(session: Any, written: Path, width: int) -> None:
    requests(session), console(session)
    resize(session, width)
    _load(session, written)
    assert console(session) == []
    assert set(requests(session)) == {written.as_uri()}
    assert session.execute_script("return document.documentElement.scrollWidth") <= width
    drawn = session.execute_script("return document.querySelectorAll('.figure > svg').length")
    assert drawn == 7  # six figures and the slider's


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_read_it(session: Any, written: Path, scheme: str) -> None:
    colours(session, scheme)
    resize(session, 1280)
    _load(session, written)
    try:
        assert violations(session) == []
        page = "return getComputedStyle(document.body).backgroundColor"
        ink = "return getComputedStyle(document.querySelector('.figure text')).fill"
        assert (session.execute_script(page) == "rgb(255, 255, 255)") == (scheme == "light")
        expected = {"light": "rgb(34, 34, 34)", "dark": "rgb(228, 228, 228)"}
        assert session.execute_script(ink) == expected[scheme]
    finally:
        colours(session, "light")


def test_the_slider_changes_the_plot(session: Any, written: Path) -> None:
    session.get(written.as_uri())
    until(lambda: session.execute_script("return document.body.dataset.ready") == "yes")
    read = (
        "return [[...document.querySelectorAll('#pmf .bars rect')].map(bar => bar.height.baseVal.value), "
        "document.getElementById('pmf-says').textContent]"
    )
    seen = {}
    for place in (0, 50, 100):
        session.execute_script(MOVE, place)
        seen[place] = session.execute_script(read)
    text = session.execute_script("return document.getElementById('sliders').textContent")
    slider = json.loads(text)["pmf"]
    for place, (heights, _) in seen.items():
        expected = [slider["unit"] * millionths for millionths in slider["frames"][place]]
        # The browser keeps lengths as 32-bit floats.
        assert heights == pytest.approx(expected, rel=printed(6))
    assert seen[0][0] == pytest.approx(seen[100][0][::-1], rel=printed(4))  # RQM is symmetric
    assert seen[0][0] != seen[100][0]
    assert seen[0][1].startswith("input -1.000")
    assert seen[100][1].startswith("input 1.000")
    # The line at the input moved, too.
    session.execute_script(MOVE, 0)
    path = "return document.querySelector('#pmf .input').getAttribute('d')"
    left = session.execute_script(path)
    session.execute_script(MOVE, 100)
    assert session.execute_script(path) != left


def test_the_mechanism_can_be_saved_from_the_page(session: Any, written: Path) -> None:
    session.get(written.as_uri())
    text = session.execute_async_script(
        "const done = arguments[0]; done(JSON.parse(document.getElementById('attachment').textContent));"
    )
    assert text.strip() == (written.parent / "m.json").read_text(encoding="utf-8").strip()
    assert session.execute_script("return document.getElementById('save').href").startswith("blob:")


@pytest.mark.parametrize(
    "verb", ["elections --set states", "profile --counts 400,600 --loss-rate 0.1 --epsilon 0.5"]
)
@pytest.mark.parametrize("width", [1280, 400])
def test_pages_of_other_files_load_as_well(
    session: Any, verb: str, width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["smoothed", *verb.split(), "--json"]) == 0
    (tmp_path / "s.json").write_text(capsys.readouterr().out, encoding="utf-8")
    page = tmp_path / "s.html"
    assert run(["report", str(tmp_path / "s.json"), "--out", str(page)]) == 0
    requests(session), console(session)
    resize(session, width)
    _load(session, page)
    assert console(session) == []
    assert set(requests(session)) == {page.as_uri()}
    assert session.execute_script("return document.documentElement.scrollWidth") <= width
    # Nothing overlaps: the table begins below the figure, however many bars that has.
    below = "return document.querySelector('.figure').getBoundingClientRect().bottom <= "
    assert session.execute_script(
        below + "document.querySelector('table').getBoundingClientRect().top + 1"
    )
