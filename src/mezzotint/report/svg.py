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

TEXT_SIZE, NARROW_TEXT_SIZE, SMALL_TEXT_SIZE = 12, 14, 10
"""Of texts, of texts in narrow windows, and of names in two lines: `assets/figures.css` sets them."""

LABEL_BASELINE = 13
"""From the left edge to the baseline of the vertical axis's label, which is read upwards."""

TICK_GAP = 6
"""Between an axis, or lying bars, and the numbers or names left of it."""

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
        """Of a finite value, at the nearer end where it lies outside.

        So bars on a logarithmic axis, which begin at 0, begin at its low end.
        """
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            axis_share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            axis_share = (value - self.low) / (self.high - self.low)
        return self.start + axis_share * (self.end - self.start)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Values with their labels."""
        if self.logarithmic:
            return self._logarithmic_ticks()
        tick_step = _round_step((self.high - self.low) / TICKS)
        first_index = math.ceil(self.low / tick_step - 1e-9)
        last_index = math.floor(self.high / tick_step + 1e-9)
        return [
            (tick_index * tick_step, _label(tick_index * tick_step))
            for tick_index in range(first_index, last_index + 1)
        ]

    def _logarithmic_ticks(self) -> list[tuple[float, str]]:
        decades = math.log10(self.high / self.low)
        mantissas = (1.0, 2.0, 5.0) if decades < FEW_DECADES else (1.0,)
        decade_interval = max(1, math.ceil(decades / 8))
        labelled_ticks = []
        for exponent in range(
            math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1
        ):
            if exponent % decade_interval:
                continue
            for mantissa in mantissas:
                tick_value = mantissa * 10.0**exponent
                if self.low * (1 - 1e-9) <= tick_value <= self.high * (1 + 1e-9):
                    tick_label = _power(exponent) if len(mantissas) == 1 else _label(tick_value)
                    labelled_ticks.append((tick_value, tick_label))
        return labelled_ticks


def _round_step(raw: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below."""
    power_of_ten = 10.0 ** math.floor(math.log10(raw))
    for factor in (1.0, 2.0, 5.0):
        if factor * power_of_ten >= raw * (1 - 1e-9):
            return factor * power_of_ten
    return 10.0 * power_of_ten


def _label(value: float) -> str:
    numeral = f"{value:.6g}"
    mantissa, exponential, exponent = numeral.partition("e")
    if not exponential:
        return numeral
    power_of_ten = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return power_of_ten if mantissa == "1" else f"{mantissa}·{power_of_ten}"


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def _axis(values: Iterable[float], *, start: float, end: float, logarithmic: bool) -> Axis:
    """An axis that shows these values with some space beyond them."""
    visible_values = [
        value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)
    ]
    if not visible_values:
        visible_values = [1.0]
    low_end, high_end = min(visible_values), max(visible_values)
    if logarithmic:
        low_end, high_end = low_end / 1.15, high_end * 1.15
    else:
        margin_width = 0.04 * (high_end - low_end) or 0.5 * (abs(high_end) or 1.0)
        low_end, high_end = low_end - margin_width, high_end + margin_width
    return Axis(low=low_end, high=high_end, start=start, end=end, logarithmic=logarithmic)


def figure_html(figure: Figure) -> str:
    """A figure with its title and its legend above it."""
    draw_figure = _lying if figure.names_things else _standing
    description = text_of(_described(figure))
    elements = [f'<figure class="figure" id="{text_of(figure.key)}">']
    elements.append(f"<figcaption>{text_of(figure.title)}</figcaption>")
    if len(figure.curves) > 1:
        elements.append(_legend(figure))
    elements.append(draw_figure(figure, description))
    elements.append("</figure>")
    return "".join(elements)


def _described(figure: Figure) -> str:
    """What a reader who does not see the figure is told."""
    curve_names = ", ".join(curve.name for curve in figure.curves)
    vertical_label = figure.y_label or "value"
    horizontal_label = figure.x_label or "names"
    return f"{figure.title}. {vertical_label} against {horizontal_label}: {curve_names}"


def _legend(figure: Figure) -> str:
    list_items = []
    for curve_index, curve in enumerate(figure.curves):
        swatch_shape = '<line x1="0" y1="6" x2="22" y2="6"/>'
        if curve.style == "bars":
            swatch_shape = '<rect x="4" y="0" width="14" height="12"/>'
        attributes = (
            f'class="{_class(curve, curve_index)}" width="22" height="12" aria-hidden="true"'
        )
        swatch_icon = f"<svg {attributes}>{swatch_shape}</svg>"
        list_items.append(f"<li>{swatch_icon}{text_of(curve.name)}</li>")
    return f'<ul class="legend">{"".join(list_items)}</ul>'


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
    horizontal_axis, vertical_axis = _axes(figure)
    elements = [
        _grid(horizontal_axis, vertical_axis),
        _labels(figure.x_label, figure.y_label, HEIGHT),
    ]
    for curve_index, curve in enumerate(figure.curves):
        if curve.style == "bars":
            elements.append(_bars(figure, curve_index, horizontal_axis, vertical_axis))
        else:
            elements.append(_line(curve, curve_index, horizontal_axis, vertical_axis))
        elements.append(_whiskers(curve, horizontal_axis, vertical_axis))
    return _svg(HEIGHT, label, elements)


def _axes(figure: Figure) -> tuple[Axis, Axis]:
    horizontal_values: list[float] = []
    vertical_values: list[float] = []
    for curve in figure.curves:
        positions = cast("tuple[float, ...]", curve.x)
        horizontal_values += positions
        vertical_values += (*curve.y, *curve.low, *curve.high)
        if curve.style == "bars":
            vertical_values.append(0.0)
            half_space = curve.space / 2
            horizontal_values += (
                min(positions, default=0.0) - half_space,
                max(positions, default=1.0) + half_space,
            )
    horizontal_axis = _axis(
        horizontal_values, start=MARGIN_LEFT, end=WIDTH - MARGIN_RIGHT, logarithmic=figure.log_x
    )
    vertical_axis = _axis(
        vertical_values, start=HEIGHT - MARGIN_BOTTOM, end=MARGIN_TOP, logarithmic=figure.log_y
    )
    return horizontal_axis, vertical_axis


def _grid(horizontal_axis: Axis, vertical_axis: Axis) -> str:
    grid_elements = [_grid_across(horizontal_axis, vertical_axis.start)]
    for tick_value, tick_label in vertical_axis.ticks:
        tick_height = vertical_axis.position(tick_value)
        grid_elements.append(
            f'<path d="M{horizontal_axis.start:g} {tick_height:.1f}H{horizontal_axis.end:g}"/>'
        )
        grid_elements.append(
            f'<text x="{horizontal_axis.start - TICK_GAP:g}" y="{tick_height + 4:.1f}" '
            f'text-anchor="end">'
            f"{tick_label}</text>"
        )
    return f'<g class="grid">{"".join(grid_elements)}</g>'


def _labels(x_label: str, y_label: str, height: float) -> str:
    center = (MARGIN_LEFT + WIDTH - MARGIN_RIGHT) / 2
    axis_middle = (MARGIN_TOP + height - MARGIN_BOTTOM) / 2
    horizontal_attributes = f'x="{center:g}" y="{height - 6:g}"'
    vertical_attributes = f'transform="translate({LABEL_BASELINE} {axis_middle:g}) rotate(-90)"'
    return (
        f'<text class="axis" {horizontal_attributes} text-anchor="middle">{text_of(x_label)}</text>'
        f'<text class="axis" {vertical_attributes} text-anchor="middle">{text_of(y_label)}</text>'
    )


def _line(curve: Curve, index: int, horizontal_axis: Axis, vertical_axis: Axis) -> str:
    shown_points = []
    for position, height in zip(cast("tuple[float, ...]", curve.x), curve.y, strict=True):
        if horizontal_axis.shows(position) and vertical_axis.shows(height):
            shown_points.append((position, height))
    coordinates = [
        f"{horizontal_axis.position(position):.1f} {vertical_axis.position(height):.1f}"
        for position, height in shown_points
    ]
    if not coordinates:
        return ""
    path_element = f'<path d="M{"L".join(coordinates)}"/>'
    hover_interval = max(1, -(-len(shown_points) // MOST_HOVERS))
    hover_circles = []
    for position, height in shown_points[::hover_interval]:
        center_x = horizontal_axis.position(position)
        center_y = vertical_axis.position(height)
        circle_tag = f'<circle cx="{center_x:.1f}" cy="{center_y:.1f}" r="5">'
        hover_circles.append(f"{circle_tag}<title>{position:.6g}: {height:.6g}</title></circle>")
    return f'<g class="{_class(curve, index)}">{path_element}{"".join(hover_circles)}</g>'


def _bars(figure: Figure, index: int, horizontal_axis: Axis, vertical_axis: Axis) -> str:
    """Bars of the curve with this index."""
    curve = figure.curves[index]
    left_ends, bar_width = figure.bars(curve)
    zero_height = vertical_axis.position(0.0)
    bar_elements = []
    positions = cast("tuple[float, ...]", curve.x)
    for position, left_end, height in zip(positions, left_ends, curve.y, strict=True):
        bar_start, bar_end = (
            horizontal_axis.position(left_end),
            horizontal_axis.position(left_end + bar_width),
        )
        bar_top = vertical_axis.position(height)
        vertical_box = (
            f'y="{min(bar_top, zero_height):.1f}" height="{abs(zero_height - bar_top):.1f}"'
        )
        bar_elements.append(
            f'<rect x="{bar_start:.1f}" width="{max(bar_end - bar_start, 1.0):.1f}" {vertical_box}>'
            f"<title>{position:.6g}: {height:.6g}</title></rect>"
        )
    return f'<g class="{_class(curve, index)}">{"".join(bar_elements)}</g>'


def _whiskers(curve: Curve, horizontal_axis: Axis, vertical_axis: Axis) -> str:
    """The intervals around heights."""
    if not curve.low:
        return ""
    intervals = zip(cast("tuple[float, ...]", curve.x), curve.low, curve.high, strict=True)
    path_steps = []
    for position, low_end, high_end in intervals:
        if (
            horizontal_axis.shows(position)
            and vertical_axis.shows(low_end)
            and vertical_axis.shows(high_end)
        ):
            center, bottom_height, top_height = (
                horizontal_axis.position(position),
                vertical_axis.position(low_end),
                vertical_axis.position(high_end),
            )
            cap_steps = (
                f"M{center - 3:.1f} {bottom_height:.1f}h6M{center - 3:.1f} {top_height:.1f}h6"
            )
            path_steps.append(f"M{center:.1f} {bottom_height:.1f}V{top_height:.1f}{cap_steps}")
    return f'<path class="whisker" d="{"".join(path_steps)}"/>' if path_steps else ""


# Bars that stand for things ----------------------------------------------------------------------


def _lying(figure: Figure, label: str) -> str:
    bar_names = list(
        dict.fromkeys(str(position) for curve in figure.curves for position in curve.x)
    )
    bottom_edge = MARGIN_TOP + ROW_HEIGHT * len(bar_names)
    shown_values = [0.0]
    for curve in figure.curves:
        shown_values += (*curve.y, *curve.low, *curve.high)
    horizontal_axis = _axis(
        shown_values, start=NAME_WIDTH, end=WIDTH - MARGIN_RIGHT, logarithmic=False
    )
    row_centers = {
        bar_name: MARGIN_TOP + ROW_HEIGHT * (row_index + 0.5)
        for row_index, bar_name in enumerate(bar_names)
    }
    elements = [_names(row_centers), _grid_across(horizontal_axis, bottom_edge)]
    for curve_index, curve in enumerate(figure.curves):
        elements.append(_lying_curve(curve, curve_index, horizontal_axis, row_centers))
    axis_center = (NAME_WIDTH + WIDTH - MARGIN_RIGHT) / 2
    label_tag = (
        f'<text class="axis" x="{axis_center:g}" y="{bottom_edge + 36:g}" text-anchor="middle">'
    )
    elements.append(f"{label_tag}{text_of(figure.y_label)}</text>")
    return _svg(bottom_edge + MARGIN_BOTTOM, label, elements)


def _names(row_centers: dict[str, float]) -> str:
    text_elements = []
    for bar_name, row_center in row_centers.items():
        name_lines = textwrap.wrap(escaped(bar_name), NAME_LETTERS) or [""]
        line_height = SMALL_TEXT_SIZE + 1
        first_baseline = row_center + TEXT_SIZE / 3 - line_height / 2 * (len(name_lines) - 1)
        for line_index, name_line in enumerate(name_lines):
            class_attribute = ' class="small"' if len(name_lines) > 1 else ""
            text_elements.append(
                f'<text x="{NAME_WIDTH - TICK_GAP}" '
                f'y="{first_baseline + line_height * line_index:.1f}" '
                f'text-anchor="end"{class_attribute}>'
                f"{html.escape(name_line)}</text>"
            )
    return f'<g class="grid">{"".join(text_elements)}</g>'


def _grid_across(horizontal_axis: Axis, bottom: float) -> str:
    grid_elements = []
    for tick_value, tick_label in horizontal_axis.ticks:
        tick_position = horizontal_axis.position(tick_value)
        grid_elements.append(f'<path d="M{tick_position:.1f} {MARGIN_TOP}V{bottom:g}"/>')
        grid_elements.append(
            f'<text x="{tick_position:.1f}" y="{bottom + 16:g}" text-anchor="middle">'
            f"{tick_label}</text>"
        )
    return f'<g class="grid">{"".join(grid_elements)}</g>'


def _lying_curve(
    curve: Curve, index: int, horizontal_axis: Axis, row_centers: dict[str, float]
) -> str:
    """Bars from zero; a bound as one line down the rows."""
    zero_position = horizontal_axis.position(0.0)
    shape_elements = []
    for position, height in zip(curve.x, curve.y, strict=True):
        row_center, bar_end = row_centers[str(position)], horizontal_axis.position(height)
        if curve.style == "bars":
            bar_start, bar_width = (
                min(zero_position, bar_end),
                max(abs(bar_end - zero_position), 1.0),
            )
            title_element = f"<title>{text_of(position)}: {height:.6g}</title>"
            box_attributes = (
                f'x="{bar_start:.1f}" y="{row_center - 8:.1f}" width="{bar_width:.1f}" height="16"'
            )
            shape_elements.append(f"<rect {box_attributes}>{title_element}</rect>")
        else:
            shape_elements.append(
                f'<path d="M{bar_end:.1f} {row_center - ROW_HEIGHT / 2:.1f}v{ROW_HEIGHT}"/>'
            )
    for position, low_end, high_end in zip(curve.x, curve.low, curve.high, strict=False):
        row_center = row_centers[str(position)]
        left_position = horizontal_axis.position(low_end)
        right_position = horizontal_axis.position(high_end)
        path_steps = f"M{left_position:.1f} {row_center:.1f}H{right_position:.1f}"
        shape_elements.append(f'<path class="whisker" d="{path_steps}"/>')
    return f'<g class="{_class(curve, index)}">{"".join(shape_elements)}</g>'


# The slider --------------------------------------------------------------------------------------


def slider_html(slider: Slider) -> str:
    """Bars at the middle input, a handle below them, and what it says; a script moves the bars."""
    horizontal_axis, vertical_axis = _slider_axes(slider)
    start_index = len(slider.inputs) // 2
    slider_key, slider_title = text_of(slider.key), text_of(slider.title)
    elements = [
        _grid(horizontal_axis, vertical_axis),
        _labels("decoded report (data units)", "probability", HEIGHT),
    ]
    bar_elements = []
    for level, probability in zip(slider.levels, slider.frames[start_index], strict=True):
        left_end = horizontal_axis.position(level - slider.width / 2)
        bar_width = max(horizontal_axis.position(level + slider.width / 2) - left_end, 1.0)
        bar_top = vertical_axis.position(probability)
        bar_height = vertical_axis.start - bar_top
        horizontal_box = f'x="{left_end:.1f}" width="{bar_width:.1f}"'
        bar_elements.append(f'<rect {horizontal_box} y="{bar_top:.1f}" height="{bar_height:.1f}"/>')
    input_position = horizontal_axis.position(slider.inputs[start_index])
    elements.append(f'<g class="bars k0">{"".join(bar_elements)}</g>')
    elements.append(
        f'<path class="input" '
        f'd="M{input_position:.1f} {vertical_axis.start:g}V{vertical_axis.end:g}"/>'
    )
    last_index = len(slider.inputs) - 1
    return (
        f'<div class="slider" id="{slider_key}"><figure class="figure">'
        f"<figcaption>{slider_title}</figcaption>"
        f"{_svg(HEIGHT, slider_title, elements)}</figure>"
        f'<input type="range" id="{slider_key}-input" '
        f'min="0" max="{last_index}" value="{start_index}" '
        f'aria-label="input" aria-describedby="{slider_key}-says">'
        f'<p id="{slider_key}-says" aria-live="polite"></p></div>'
    )


def _slider_axes(slider: Slider) -> tuple[Axis, Axis]:
    half_width = slider.width / 2
    horizontal_values = (
        slider.levels[0] - half_width,
        slider.levels[-1] + half_width,
        *slider.inputs,
    )
    horizontal_axis = _axis(
        horizontal_values, start=MARGIN_LEFT, end=WIDTH - MARGIN_RIGHT, logarithmic=False
    )
    highest = max(max(frame) for frame in slider.frames)
    vertical_axis = Axis(low=0.0, high=1.05 * highest, start=HEIGHT - MARGIN_BOTTOM, end=MARGIN_TOP)
    return horizontal_axis, vertical_axis


def slider_data(slider: Slider) -> dict[str, object]:
    """What the page's script needs to move the bars.

    Returns: positions of inputs, probabilities in millionths, moments and the scale.
    """
    horizontal_axis, vertical_axis = _slider_axes(slider)
    return {
        "inputs": slider.inputs,
        "places": [
            round(horizontal_axis.position(input_value), 1) for input_value in slider.inputs
        ],
        "frames": [_millionths(frame) for frame in slider.frames],
        "means": slider.means,
        "deviations": slider.deviations,
        "bottom": vertical_axis.start,
        "unit": (vertical_axis.start - vertical_axis.end) / (vertical_axis.high * PER_MILLION),
    }


def _millionths(probabilities: Sequence[float]) -> list[int]:
    return [round(PER_MILLION * probability) for probability in probabilities]
