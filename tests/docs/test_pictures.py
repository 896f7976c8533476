"""The pictures of the gallery and of the first page: titles inside, words apart, curves that can be told apart."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modules import load

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
DRAWN = sorted(path.stem for path in RESULTS.glob("*.png"))
APART = 3.0
"""Pixels between two curves somewhere, or between the widths of two that lie on each other."""

regenerate = load(ROOT / "docs" / "regenerate.py")
landing = load(ROOT / "tools" / "landing_figure.py")


def _texts(drawing: Any) -> list[tuple[str, Any]]:
    """Every word that is drawn, and its box in pixels."""
    agg, text = (
        pytest.importorskip("matplotlib.backends.backend_agg"),
        pytest.importorskip("matplotlib.text"),
    )
    canvas = agg.FigureCanvasAgg(drawing)
    canvas.draw()
    hidden = _hidden_ticks(drawing)
    return [
        (one.get_text(), one.get_window_extent(canvas.get_renderer()))
        for one in drawing.findobj(text.Text)
        if one.get_visible() and one.get_text().strip() and id(one) not in hidden
    ]


def _hidden_ticks(drawing: Any) -> set[int]:
    """Labels of ticks beyond the axes' ends, which matplotlib keeps and does not draw."""
    return {
        id(label)
        for axes in drawing.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }


def _faults_of_words(drawing: Any) -> list[str]:
    canvas = drawing.bbox
    found = _texts(drawing)
    faults = [
        f"{words!r} leaves the canvas"
        for words, box in found
        if box.x0 < canvas.x0 or box.y0 < canvas.y0 or box.x1 > canvas.x1 or box.y1 > canvas.y1
    ]
    for (first, a), (second, b) in itertools.combinations(found, 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if wide > 1 and high > 1:
            faults.append(f"{first!r} overlaps {second!r}")
    return faults


def _look(line: Any) -> tuple[str, str, str]:
    return (str(line.get_color()), str(line.get_linestyle()), str(line.get_marker()))


def _faults_of_curves(drawing: Any) -> list[str]:
    faults = []
    for axes in drawing.axes:
        lines = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
        for first, second in itertools.combinations(lines, 2):
            names = f"{axes.get_title()}: {first.get_label()} and {second.get_label()}"
            if _look(first) == _look(second):
                faults.append(f"{names} look the same")
            a, b = (axes.transData.transform(line.get_xydata()) for line in (first, second))
            low, high = max(a[0, 0], b[0, 0]), min(a[-1, 0], b[-1, 0])
            at = np.linspace(low, high, 200)
            gap = np.nanmax(np.abs(np.interp(at, *a.T) - np.interp(at, *b.T)))
            points = drawing.dpi / 72
            if gap < APART and abs(first.get_linewidth() - second.get_linewidth()) * points < APART:
                faults.append(f"{names} lie on each other")
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_of_the_gallery_can_be_read(name: str) -> None:
    result = regenerate.stored(name)
    drawing = result.drawing()
    titles = [drawing.get_suptitle(), *(axes.get_title() for axes in drawing.axes)]
    assert titles[0].replace("\n", " ") == result.title
    assert len(set(titles)) == len(titles) or titles[1:] == [""]
    assert _faults_of_words(drawing) == []
    faults = _faults_of_curves(drawing)
    if "cannot tell the mechanisms apart" in result.note:  # and shows a setting that can
        last = drawing.axes[-1].get_title()
        faults = [
            fault for fault in faults if "lie on each other" not in fault or fault.startswith(last)
        ]
    assert faults == []
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in drawing.axes)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_figure_of_the_first_page_can_be_read(scheme: str, narrow: bool) -> None:
    drawing = landing.draw(
        json.loads(landing.POINTS.read_text(encoding="utf-8")), scheme, narrow=narrow
    )
    assert [axes.get_title(loc="left").replace("\n", " ") for axes in drawing.axes] == [
        landing.TITLE
    ]
    assert _faults_of_words(drawing) == []
    assert _faults_of_curves(drawing) == []


def test_pictures_that_cannot_be_read_are_found() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    drawing = figure.Figure(figsize=(3, 3))
    axes = drawing.add_subplot()
    axes.set_title("a title that is much too long for a canvas of three inches" * 2)
    axes.text(0.5, 0.5, "one word")
    axes.text(0.52, 0.5, "another word")
    axes.plot([0, 1], [0, 1], color="red", label="first")
    axes.plot([0, 1], [0, 1.001], color="red", label="second")
    assert any("leaves" in fault for fault in _faults_of_words(drawing))
    assert any("overlaps" in fault for fault in _faults_of_words(drawing))
    assert [fault.split(": ")[1] for fault in _faults_of_curves(drawing)] == [
        "first and second look the same",
        "first and second lie on each other",
    ]
