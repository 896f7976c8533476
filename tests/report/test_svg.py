"""Figures as SVG: positions against the axes' arithmetic, ticks, names, and what cannot be drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from typing import get_args

import pytest

from mezzotint.core.errors import ParameterError
from mezzotint.report.contents import Curve, Figure, Slider, Style
from mezzotint.report.svg import (
    HEIGHT,
    LABEL_BASELINE,
    MARGIN_BOTTOM,
    MARGIN_LEFT,
    MARGIN_RIGHT,
    MARGIN_TOP,
    NARROW_TEXT_SIZE,
    PER_MILLION,
    ROW_HEIGHT,
    SMALL_TEXT_SIZE,
    TEXT_SIZE,
    TICK_GAP,
    WIDTH,
    Axis,
    figure_html,
    slider_data,
    slider_html,
)
from tolerances import FEW


def _parsed(text: str) -> ElementTree.Element:
    """The figure as a tree: what is no well-formed XML raises."""
    return ElementTree.fromstring(text)


def _curve(*ys: float, name: str = "curve", **fields: object) -> Curve:
    return Curve(name=name, x=tuple(range(len(ys))), y=ys, **fields)  # type: ignore[arg-type]


def test_every_style_has_a_look_of_its_own_and_no_other_is_drawn() -> None:
    classes: set[str] = set()
    for style in get_args(Style):
        curves = _curve(1.0, 2.0, style=style), _curve(1.0, 2.0, name="other")
        root = _parsed(figure_html(Figure.of("key", "title", ("x", "y"), *curves)))
        swatch = root.find(".//li/svg")
        assert swatch is not None
        drawn_class = swatch.attrib["class"]
        assert root.find(f".//g[@class='{drawn_class}']") is not None
        classes.add(drawn_class)
    assert len(classes) == len(get_args(Style))
    with pytest.raises(ParameterError, match="style"):
        _curve(1.0, style="areas")
    with pytest.raises(ParameterError, match="style"):
        Curve.of("curve", [1.0], [2.0], "areas")  # type: ignore[arg-type]


def test_bars_on_a_logarithmic_axis_begin_at_its_low_end() -> None:
    axis = Axis(low=1.0, high=100.0, start=258.0, end=10.0, logarithmic=True)
    assert axis.position(0.0) == axis.position(1.0) == 258.0


def test_an_axis_is_linear_or_logarithmic() -> None:
    linear = Axis(low=-1.0, high=3.0, start=100.0, end=300.0)
    assert linear.position(1.0) == 200.0
    assert linear.position(-1.0) == 100.0
    logarithmic = Axis(low=1.0, high=10_000.0, start=0.0, end=400.0, logarithmic=True)
    assert logarithmic.position(100.0) == pytest.approx(200.0, rel=FEW)
    assert not logarithmic.shows(0.0)
    assert logarithmic.position(1e9) == 400.0


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (Axis(low=0.0, high=1.0, start=0.0, end=1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (Axis(low=-3.0, high=7.0, start=0.0, end=1.0), ["-2", "0", "2", "4", "6"]),
        (Axis(low=0.0, high=2e6, start=0.0, end=1.0), ["0", "500000", "10⁶", "1.5·10⁶", "2·10⁶"]),
        (
            Axis(low=1e-8, high=1e-3, start=0.0, end=1.0, logarithmic=True),
            ["10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³"],
        ),
        (
            Axis(low=1.0, high=20.0, start=0.0, end=1.0, logarithmic=True),
            ["1", "2", "5", "10", "20"],
        ),
    ],
)
def test_ticks_are_round(axis: Axis, labels: list[str]) -> None:
    assert [label for _, label in axis.ticks] == labels


def test_a_curve_goes_from_corner_to_corner() -> None:
    figure = Figure.of("k", "title", ("x", "y"), _curve(0.0, 5.0, 10.0))
    tree = _parsed(figure_html(figure))
    path = next(each for each in tree.iter("g") if each.get("class") == "curve k0").find("path")
    assert path is not None
    numbers = [float(number) for number in re.findall(r"[\d.]+", str(path.get("d")))]
    xs, ys = numbers[::2], numbers[1::2]
    # 4 % of space at both ends; evenly spaced between them.
    inner = (WIDTH - MARGIN_LEFT - MARGIN_RIGHT) * 0.04 / 1.08
    assert xs[0] == pytest.approx(MARGIN_LEFT + inner, abs=0.06)  # a tenth of a unit is printed
    assert xs[2] == pytest.approx(WIDTH - MARGIN_RIGHT - inner, abs=0.06)
    assert xs[1] == pytest.approx((xs[0] + xs[2]) / 2, abs=0.11)  # a tenth of a unit is printed
    assert MARGIN_TOP < ys[2] < ys[1] < ys[0] < HEIGHT - MARGIN_BOTTOM


def test_numbers_are_shown_under_the_pointer() -> None:
    figure = Figure.of("k", "title", ("x", "y"), _curve(0.0, 0.123456789))
    titles = [each.text for each in _parsed(figure_html(figure)).iter("title")]
    assert titles == ["0: 0", "1: 0.123457"]


def test_bars_of_several_sets_stand_side_by_side_on_zero() -> None:
    sets = [_curve(1.0, 2.0, name=name, style="bars") for name in ("a", "b")]
    tree = _parsed(figure_html(Figure.of("k", "title", ("x", "y"), *sets)))
    bars = [each for each in tree.iter("rect") if each.get("x") and each.find("title") is not None]
    assert len(bars) == 4
    feet = {round(float(bar.get("y", 0)) + float(bar.get("height", 0)), 1) for bar in bars}
    assert len(feet) == 1
    first, second = bars[0], bars[2]
    end = float(first.get("x", 0)) + float(first.get("width", 0))
    assert end == pytest.approx(
        float(second.get("x", 0)), abs=0.11
    )  # two ends, a tenth of a unit each
    names = [each.tail for each in tree.iter("svg") if each.get("aria-hidden")]
    assert names == ["a", "b"]


def test_bars_that_stand_for_things_lie_below_each_other() -> None:
    words = Curve(name="errors", x=("one", "two & three"), y=(3.0, 1.0), style="bars")
    bound = Curve(name="bound", x=("one", "two & three"), y=(1.0, 1.0), style="dashed")
    tree = _parsed(figure_html(Figure.of("k", "title", ("", "MSE"), words, bound)))
    bars = [each for each in tree.iter("rect") if each.find("title") is not None]
    assert float(bars[0].get("y", 0)) < float(bars[1].get("y", 0))
    widths = [float(bar.get("width", 0)) for bar in bars]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)  # lengths are printed to a tenth
    assert "two & three" in [each.text for each in tree.iter("text")]


def test_what_a_logarithm_lacks_is_left_out() -> None:
    figure = Figure.of("k", "title", ("x", "y"), _curve(0.0, 1.0, 10.0), log="y")
    tree = _parsed(figure_html(figure))
    assert len(list(tree.iter("circle"))) == 2
    empty = Figure.of("k", "title", ("x", "y"), _curve(0.0), log="y")
    assert not list(_parsed(figure_html(empty)).iter("circle"))


def test_text_of_others_is_escaped() -> None:
    figure = Figure.of("k", "<b>", ("x", "y"), _curve(1.0, name='"\x1b'), _curve(2.0, name="b"))
    text = figure_html(figure)
    assert "<b>" not in text
    assert "\x1b" not in text
    _parsed(text)


def test_a_slider_carries_its_frames_in_millionths() -> None:
    frames = ((0.75, 0.25), (0.5, 0.5), (0.25, 0.75))
    slider = Slider(
        key="bit",
        title="One bit",
        inputs=(-0.5, 0.0, 0.5),
        levels=(-1.0, 1.0),
        frames=frames,
        means=(-0.5, 0.0, 0.5),
        deviations=(0.75**0.5, 1.0, 0.75**0.5),
    )
    data = slider_data(slider)
    assert data["frames"] == [[int(PER_MILLION * p) for p in frame] for frame in frames]
    text = re.search(r"<svg.*</svg>", slider_html(slider))
    assert text is not None
    tree = _parsed(text[0])
    bars = [float(each.get("height", 0)) for each in tree.iter("rect")]
    assert bars == pytest.approx([data["unit"] * 500_000] * 2, abs=0.06)  # type: ignore[operator]


PRESENTATION = {"fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "opacity"}
"""Attributes of SVG that any rule of a style sheet overrides."""


def test_no_attribute_says_what_the_style_sheet_decides() -> None:
    """A font size written as an attribute was never used: the sheet's rule for all text won."""
    bars = Curve(
        name="bars", x=("a name that takes more than one line", "b"), y=(1.0, 2.0), style="bars"
    )
    wide = Figure(key="wide", title="t", x_label="", y_label="y", curves=(bars,))
    plain = Figure(
        key="plain", title="t", x_label="x", y_label="y", curves=(_curve(1.0, 2.0, 3.0),)
    )
    pages = [figure_html(figure) for figure in (wide, plain)]
    written = set(re.findall(r' ([a-z-]+)="', "".join(pages)))
    assert not written & PRESENTATION
    assert any('class="small"' in page for page in pages)
    assert ".small {" in (files("mezzotint.report") / "assets" / "figures.css").read_text()


DIGIT = 0.6
"""Width of a digit over the size of its text, in common fonts."""


def test_the_left_margin_holds_a_label_and_six_digits_at_every_size_of_the_style_sheet() -> None:
    sheet = (files("mezzotint.report") / "assets" / "figures.css").read_text()
    assert f".figure text {{ fill: var(--figure-ink); font-size: {TEXT_SIZE}px; }}" in sheet
    assert f".figure text.small {{ font-size: {SMALL_TEXT_SIZE}px; }}" in sheet
    assert f".figure text:not(.small) {{ font-size: {NARROW_TEXT_SIZE}px; }}" in sheet
    largest = max(TEXT_SIZE, NARROW_TEXT_SIZE)
    # A quarter of the size lies below the baseline of the label.
    assert LABEL_BASELINE + largest / 4 + 6 * DIGIT * largest + TICK_GAP <= MARGIN_LEFT
    assert 2 * (SMALL_TEXT_SIZE + 1) <= ROW_HEIGHT
