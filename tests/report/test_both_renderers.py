"""One description of a figure: pages and files show the same words, places and colours."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import numpy.typing as npt
import pytest

from mezzotint.core.records import escaped
from mezzotint.report import sheet
from mezzotint.report.contents import Curve, Figure
from mezzotint.report.page_html import asset
from mezzotint.report.svg import figure_html

pytest.importorskip("matplotlib", reason="drawings are an extra")

ODD = "cost $a_{$ <b> \x1b[2J"
"""A formula that does not parse, a mark of HTML and an escape of terminals."""

STANDING = Figure.of(
    "standing",
    f"Title of {ODD}",
    ("number n", f"height {ODD}"),
    Curve(name="first", x=(1.0, 2.0, 4.0), y=(3.0, 5.0, 1.0), style="bars"),
    Curve(name=f"second {ODD}", x=(1.0, 2.0, 4.0), y=(2.0, 1.0, 4.0), style="bars"),
    Curve(
        name="line", x=(1.0, 3.0, 4.0), y=(1.0, 4.0, 2.0), low=(0.5, 3.0, 1.0), high=(2.0, 5.0, 3.0)
    ),
    Curve(name="bound", x=(1.0, 4.0), y=(2.5, 2.5), style="dashed"),
)
LYING = Figure.of(
    "lying",
    "Things",
    ("", "value"),
    Curve(name="values", x=("a", ODD, "c"), y=(3.0, 1.0, 2.0), style="bars"),
    Curve(name="limit", x=("a", ODD, "c"), y=(1.5, 1.5, 1.5), style="dashed"),
)
CURVED = Figure.of(
    "curved",
    "Logarithms",
    ("n", "width"),
    Curve(name="one", x=(1.0, 10.0, 1000.0), y=(1.0, 0.3, 0.01)),
    Curve(name="two", x=(1.0, 10.0, 1000.0), y=(0.5, 0.2, 0.02)),
    log="xy",
)


def _drawn(figure: Figure) -> object:
    """The axes of the file, after it was written."""
    drawing = sheet([figure])
    drawing.savefig(io.BytesIO(), format="png")
    (axes,) = drawing.axes
    return axes


def _page(figure: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(figure_html(figure))


@pytest.mark.parametrize("figure", [STANDING, LYING, CURVED], ids=lambda figure: figure.key)
def test_both_show_the_same_words(figure: Figure) -> None:
    axes = _drawn(figure)
    legend = {text.get_text() for text in axes.get_legend().get_texts()}
    labels = {axes.get_title(), axes.get_xlabel(), axes.get_ylabel()} | legend
    if figure.names_things:
        labels |= {label.get_text() for label in axes.get_yticklabels()}
    in_file = {text.replace("\\$", "$") for text in labels} - {""}
    in_page = {"".join(element.itertext()).strip() for element in _page(figure).iter()}
    assert in_file <= in_page
    things = [x for x in figure.curves[0].x if isinstance(x, str)]
    words = [figure.title, figure.y_label, *(curve.name for curve in figure.curves), *things]
    assert {escaped(text) for text in words} <= in_file


def _between(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Places from 0 to 1, in the direction of the first two: the same in any linear units."""
    array = np.asarray(values, dtype=np.float64).ravel()
    array = array * np.sign(array[1] - array[0])
    return (array - array.min()) / np.ptp(array)


PRINTED = 0.002
"""Places on pages have one digit behind the point: errors of .05 at both ends of at least 100 units."""


def test_bars_stand_at_the_same_places() -> None:
    axes = _drawn(STANDING)
    in_file = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    in_page = [
        (float(bar.get("x", 0)), float(bar.get("x", 0)) + float(bar.get("width", 0)))
        for bar in _page(STANDING).iter("rect")
        if bar.find("title") is not None
    ]
    assert len(in_file) == len(in_page) == 6
    assert _between(in_page) == pytest.approx(_between(in_file), abs=PRINTED)
    heights = [float(bar.get("height", 0)) for bar in _page(STANDING).iter("rect")]
    heights = heights[-6:]
    assert _between(heights) == pytest.approx(
        _between([bar.get_height() for bar in axes.patches]), abs=PRINTED
    )


def test_lines_go_through_the_same_places() -> None:
    axes = _drawn(CURVED)
    paths = [
        element.find("path").get("d")
        for element in _page(CURVED).iter("g")
        if str(element.get("class")).startswith("curve")
    ]
    assert len(paths) == len(axes.lines) == 2
    for path, line in zip(paths, axes.lines, strict=True):
        places = np.array(re.findall(r"-?[\d.]+", path), dtype=np.float64).reshape(-1, 2)
        assert _between(places[:, 0]) == pytest.approx(
            _between(np.log(line.get_xdata())), abs=PRINTED
        )
        assert _between(places[:, 1]) == pytest.approx(
            _between(np.log(line.get_ydata())), abs=PRINTED
        )


def test_both_have_the_same_colours() -> None:
    from mezzotint.report.drawings import COLOURS
    from mezzotint.report.svg import COLOURS as COUNT

    light = asset("figures.css").partition("@media")[0]
    assert re.findall(r"--k\d: (#\w{6})", light) == list(COLOURS)
    assert len(COLOURS) == COUNT
