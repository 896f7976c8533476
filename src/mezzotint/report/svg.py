"""Figures as SVG inside HTML.

Colours come from the page's style, so that one figure serves light and dark pages.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast, final

from mezzotint.core.records import escaped
from mezzotint.report.contents import Curve, Figure, Slider

WIDTH = 480
"""Units of a figure's width: about pixels where two figures stand side by side."""

HEIGHT = 300
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 82, 14, 10, 42
"""The left one holds a label and numbers of six digits, as large as narrow windows show them."""

ROW_HEIGHT = 24
"""Of a bar that stands for a thing, whose name takes a line or two."""

NAME_WIDTH = 150
"""Left of lying bars, for their names."""

NAME_LETTERS = 22
"""Letters of a name on one line."""

COLOURS = 6
"""Colours of the style sheet that curves take in turn."""

MOST_HOVERS = 41
"""Points of a curve that show their numbers under the pointer."""

TICKS = 5
"""Roughly so many intervals between the ticks of a linear axis."""

FEW_DECADES = 2.0
"""Logarithmic axes that span less have ticks at 2 and 5 as well."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

PER_MILLION = 1_000_000
"""Probabilities of a slider stand in the page as millionths."""


def text_of(words: object) -> str:
    """Text of others, as it can stand in a page."""
    return html.escape(escaped(str(words)), quote=True)


@final
@dataclass(frozen=True, kw_only=True)
class Axis:
    """The map from values to positions along one axis.

    Arguments:
        low, high: the values at its ends, in data units.
        start, end: their positions, in units of the figure.
        logarithmic: whether equal ratios are equally long.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __post_init__(self) -> None:
        assert self.low < self.high
        assert self.low > 0 or not self.logarithmic

    def shows(self, value: float) -> bool:
        """Whether a value has a position: it is finite, and positive on a logarithmic axis."""
        return math.isfinite(value) and (value > 0 or not self.logarithmic)

    def position(self, value: float) -> float:
        """Of a value that `shows` accepts, at the nearer end where it lies outside."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Values with their labels."""
        if self.logarithmic:
            return self._logarithmic_ticks()
        step = _round_step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [(index * step, _label(index * step)) for index in range(first, last + 1)]

    def _logarithmic_ticks(self) -> list[tuple[float, str]]:
        decades = math.log10(self.high / self.low)
        factors = (1.0, 2.0, 5.0) if decades < FEW_DECADES else (1.0,)
        every = max(1, math.ceil(decades / 8))
        ticks = []
        for exponent in range(
            math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1
        ):
            if exponent % every:
                continue
            for factor in factors:
                value = factor * 10.0**exponent
                if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9):
                    label = _power(exponent) if len(factors) == 1 else _label(value)
                    ticks.append((value, label))
        return ticks


def _round_step(raw: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(raw))
    for factor in (1.0, 2.0, 5.0):
        if factor * power >= raw * (1 - 1e-9):
            return factor * power
    return 10.0 * power


def _label(value: float) -> str:
    text = f"{value:.6g}"
    mantissa, exponential, exponent = text.partition("e")
    if not exponential:
        return text
    power = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return power if mantissa == "1" else f"{mantissa}·{power}"


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def _axis(values: Iterable[float], *, start: float, end: float, logarithmic: bool) -> Axis:
    """An axis that shows these values with some space beyond them."""
    shown = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
    if not shown:
        shown = [1.0]
    low, high = min(shown), max(shown)
    if logarithmic:
        low, high = low / 1.15, high * 1.15
    else:
        space = 0.04 * (high - low) or 0.5 * (abs(high) or 1.0)
        low, high = low - space, high + space
    return Axis(low=low, high=high, start=start, end=end, logarithmic=logarithmic)


def figure_html(figure: Figure) -> str:
    """A figure with its title and its legend above it."""
    draw = _lying if figure.names_things else _standing
    label = text_of(_described(figure))
    parts = [f'<figure class="figure" id="{text_of(figure.key)}">']
    parts.append(f"<figcaption>{text_of(figure.title)}</figcaption>")
    if len(figure.curves) > 1:
        parts.append(_legend(figure))
    parts.append(draw(figure, label))
    parts.append("</figure>")
    return "".join(parts)


def _described(figure: Figure) -> str:
    """What a reader who does not see the figure is told."""
    curves = ", ".join(curve.name for curve in figure.curves)
    return (
        f"{figure.title}. {figure.y_label or 'value'} against {figure.x_label or 'names'}: {curves}"
    )


def _legend(figure: Figure) -> str:
    items = []
    for index, curve in enumerate(figure.curves):
        swatch = '<line x1="0" y1="6" x2="22" y2="6"/>'
        if curve.style == "bars":
            swatch = '<rect x="4" y="0" width="14" height="12"/>'
        attributes = f'class="{_class(curve, index)}" width="22" height="12" aria-hidden="true"'
        icon = f"<svg {attributes}>{swatch}</svg>"
        items.append(f"<li>{icon}{text_of(curve.name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _class(curve: Curve, index: int) -> str:
    """The classes of a curve in the style sheet."""
    if curve.style == "dashed":
        return "bound"
    return f"{'bars' if curve.style == 'bars' else 'curve'} k{index % COLOURS}"


def _svg(height: float, label: str, inner: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">'
        f"{''.join(inner)}</svg>"
    )


# Curves and bars over numbers --------------------------------------------------------------------


def _standing(figure: Figure, label: str) -> str:
    along, up = _axes(figure)
    inner = [_grid(along, up), _labels(figure.x_label, figure.y_label, HEIGHT)]
    for index, curve in enumerate(figure.curves):
        if curve.style == "bars":
            inner.append(_bars(figure, index, along, up))
        else:
            inner.append(_line(curve, index, along, up))
        inner.append(_whiskers(curve, along, up))
    return _svg(HEIGHT, label, inner)


def _axes(figure: Figure) -> tuple[Axis, Axis]:
    xs: list[float] = []
    ys: list[float] = []
    for curve in figure.curves:
        positions = cast("tuple[float, ...]", curve.x)
        xs += positions
        ys += (*curve.y, *curve.low, *curve.high)
        if curve.style == "bars":
            ys.append(0.0)
            half = curve.space / 2
            xs += (min(positions, default=0.0) - half, max(positions, default=1.0) + half)
    along = _axis(xs, start=MARGIN_LEFT, end=WIDTH - MARGIN_RIGHT, logarithmic=figure.log_x)
    up = _axis(ys, start=HEIGHT - MARGIN_BOTTOM, end=MARGIN_TOP, logarithmic=figure.log_y)
    return along, up


def _grid(along: Axis, up: Axis) -> str:
    lines = []
    for value, text in along.ticks:
        x = along.position(value)
        lines.append(f'<path d="M{x:.1f} {up.start:g}V{up.end:g}"/>')
        lines.append(f'<text x="{x:.1f}" y="{up.start + 16:g}" text-anchor="middle">{text}</text>')
    for value, text in up.ticks:
        y = up.position(value)
        lines.append(f'<path d="M{along.start:g} {y:.1f}H{along.end:g}"/>')
        lines.append(
            f'<text x="{along.start - 6:g}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )
    return f'<g class="grid">{"".join(lines)}</g>'


def _labels(x_label: str, y_label: str, height: float) -> str:
    middle = (MARGIN_LEFT + WIDTH - MARGIN_RIGHT) / 2
    across = (MARGIN_TOP + height - MARGIN_BOTTOM) / 2
    below = f'x="{middle:g}" y="{height - 6:g}"'
    beside = f'transform="translate(13 {across:g}) rotate(-90)"'
    return (
        f'<text class="axis" {below} text-anchor="middle">{text_of(x_label)}</text>'
        f'<text class="axis" {beside} text-anchor="middle">{text_of(y_label)}</text>'
    )


def _line(curve: Curve, index: int, along: Axis, up: Axis) -> str:
    points = []
    for x, y in zip(cast("tuple[float, ...]", curve.x), curve.y, strict=True):
        if along.shows(x) and up.shows(y):
            points.append((x, y))
    positions = [f"{along.position(x):.1f} {up.position(y):.1f}" for x, y in points]
    if not positions:
        return ""
    path = f'<path d="M{"L".join(positions)}"/>'
    every = max(1, -(-len(points) // MOST_HOVERS))
    hovers = []
    for x, y in points[::every]:
        circle = f'<circle cx="{along.position(x):.1f}" cy="{up.position(y):.1f}" r="5">'
        hovers.append(f"{circle}<title>{x:.6g}: {y:.6g}</title></circle>")
    return f'<g class="{_class(curve, index)}">{path}{"".join(hovers)}</g>'


def _bars(figure: Figure, index: int, along: Axis, up: Axis) -> str:
    """Bars of the curve with this index."""
    curve = figure.curves[index]
    left_ends, width = figure.bars(curve)
    floor = up.position(0.0)
    bars = []
    positions = cast("tuple[float, ...]", curve.x)
    for x, left, y in zip(positions, left_ends, curve.y, strict=True):
        start, end = along.position(left), along.position(left + width)
        top = up.position(y)
        box = f'y="{min(top, floor):.1f}" height="{abs(floor - top):.1f}"'
        bars.append(
            f'<rect x="{start:.1f}" width="{max(end - start, 1.0):.1f}" {box}>'
            f"<title>{x:.6g}: {y:.6g}</title></rect>"
        )
    return f'<g class="{_class(curve, index)}">{"".join(bars)}</g>'


def _whiskers(curve: Curve, along: Axis, up: Axis) -> str:
    """The intervals around heights."""
    if not curve.low:
        return ""
    ends = zip(cast("tuple[float, ...]", curve.x), curve.low, curve.high, strict=True)
    paths = []
    for x, low, high in ends:
        if along.shows(x) and up.shows(low) and up.shows(high):
            at, bottom, top = along.position(x), up.position(low), up.position(high)
            caps = f"M{at - 3:.1f} {bottom:.1f}h6M{at - 3:.1f} {top:.1f}h6"
            paths.append(f"M{at:.1f} {bottom:.1f}V{top:.1f}{caps}")
    return f'<path class="whisker" d="{"".join(paths)}"/>' if paths else ""


# Bars that stand for things ----------------------------------------------------------------------


def _lying(figure: Figure, label: str) -> str:
    names = list(dict.fromkeys(str(x) for curve in figure.curves for x in curve.x))
    bottom = MARGIN_TOP + ROW_HEIGHT * len(names)
    values = [0.0]
    for curve in figure.curves:
        values += (*curve.y, *curve.low, *curve.high)
    along = _axis(values, start=NAME_WIDTH, end=WIDTH - MARGIN_RIGHT, logarithmic=False)
    middle = {name: MARGIN_TOP + ROW_HEIGHT * (row + 0.5) for row, name in enumerate(names)}
    inner = [_names(middle), _grid_across(along, bottom)]
    for index, curve in enumerate(figure.curves):
        inner.append(_lying_curve(curve, index, along, middle))
    center = (NAME_WIDTH + WIDTH - MARGIN_RIGHT) / 2
    words = f'<text class="axis" x="{center:g}" y="{bottom + 36:g}" text-anchor="middle">'
    inner.append(f"{words}{text_of(figure.y_label)}</text>")
    return _svg(bottom + MARGIN_BOTTOM, label, inner)


def _names(middle: dict[str, float]) -> str:
    texts = []
    for name, y in middle.items():
        lines = textwrap.wrap(escaped(name), NAME_LETTERS) or [""]
        first = y + 4 - 5.5 * (len(lines) - 1)
        for index, line in enumerate(lines):
            size = ' font-size="10"' if len(lines) > 1 else ""
            texts.append(
                f'<text x="{NAME_WIDTH - 6}" y="{first + 11 * index:.1f}" text-anchor="end"{size}>'
                f"{html.escape(line)}</text>"
            )
    return f'<g class="grid">{"".join(texts)}</g>'


def _grid_across(along: Axis, bottom: float) -> str:
    lines = []
    for value, text in along.ticks:
        x = along.position(value)
        lines.append(f'<path d="M{x:.1f} {MARGIN_TOP}V{bottom:g}"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 16:g}" text-anchor="middle">{text}</text>')
    return f'<g class="grid">{"".join(lines)}</g>'


def _lying_curve(curve: Curve, index: int, along: Axis, middle: dict[str, float]) -> str:
    """Bars from zero; a bound as one line down the rows."""
    zero = along.position(0.0)
    shapes = []
    for x, y in zip(curve.x, curve.y, strict=True):
        at, end = middle[str(x)], along.position(y)
        if curve.style == "bars":
            start, width = min(zero, end), max(abs(end - zero), 1.0)
            title = f"<title>{text_of(x)}: {y:.6g}</title>"
            box = f'x="{start:.1f}" y="{at - 8:.1f}" width="{width:.1f}" height="16"'
            shapes.append(f"<rect {box}>{title}</rect>")
        else:
            shapes.append(f'<path d="M{end:.1f} {at - ROW_HEIGHT / 2:.1f}v{ROW_HEIGHT}"/>')
    for x, low, high in zip(curve.x, curve.low, curve.high, strict=False):
        at = middle[str(x)]
        path = f"M{along.position(low):.1f} {at:.1f}H{along.position(high):.1f}"
        shapes.append(f'<path class="whisker" d="{path}"/>')
    return f'<g class="{_class(curve, index)}">{"".join(shapes)}</g>'


# The slider --------------------------------------------------------------------------------------


def slider_html(slider: Slider) -> str:
    """Bars at the middle input, a handle below them, and what it says; a script moves the bars."""
    along, up = _slider_axes(slider)
    start = len(slider.inputs) // 2
    key, title = text_of(slider.key), text_of(slider.title)
    inner = [_grid(along, up), _labels("decoded report (data units)", "probability", HEIGHT)]
    bars = []
    for level, probability in zip(slider.levels, slider.frames[start], strict=True):
        left = along.position(level - slider.width / 2)
        width = max(along.position(level + slider.width / 2) - left, 1.0)
        top = up.position(probability)
        height = up.start - top
        across = f'x="{left:.1f}" width="{width:.1f}"'
        bars.append(f'<rect {across} y="{top:.1f}" height="{height:.1f}"/>')
    at = along.position(slider.inputs[start])
    inner.append(f'<g class="bars k0">{"".join(bars)}</g>')
    inner.append(f'<path class="input" d="M{at:.1f} {up.start:g}V{up.end:g}"/>')
    last = len(slider.inputs) - 1
    return (
        f'<div class="slider" id="{key}"><figure class="figure"><figcaption>{title}</figcaption>'
        f"{_svg(HEIGHT, title, inner)}</figure>"
        f'<input type="range" id="{key}-input" min="0" max="{last}" value="{start}" '
        f'aria-label="input" aria-describedby="{key}-says">'
        f'<p id="{key}-says" aria-live="polite"></p></div>'
    )


def _slider_axes(slider: Slider) -> tuple[Axis, Axis]:
    half = slider.width / 2
    ends = (slider.levels[0] - half, slider.levels[-1] + half, *slider.inputs)
    along = _axis(ends, start=MARGIN_LEFT, end=WIDTH - MARGIN_RIGHT, logarithmic=False)
    highest = max(max(frame) for frame in slider.frames)
    up = Axis(low=0.0, high=1.05 * highest, start=HEIGHT - MARGIN_BOTTOM, end=MARGIN_TOP)
    return along, up


def slider_data(slider: Slider) -> dict[str, object]:
    """What the page's script needs to move the bars.

    Returns: positions of inputs, probabilities in millionths, moments and the scale.
    """
    along, up = _slider_axes(slider)
    return {
        "inputs": slider.inputs,
        "places": [round(along.position(value), 1) for value in slider.inputs],
        "frames": [_millionths(frame) for frame in slider.frames],
        "means": slider.means,
        "deviations": slider.deviations,
        "bottom": up.start,
        "unit": (up.start - up.end) / (up.high * PER_MILLION),
    }


def _millionths(chances: Sequence[float]) -> list[int]:
    return [round(PER_MILLION * chance) for chance in chances]
