"""Figures as PNG, PDF and SVG files of their own, drawn by matplotlib.

What a figure shows is decided by its record alone (`contents`), for these files and for pages.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import refuse_existing, replacing
from mezzotint.core.records import escaped
from mezzotint.core.types import AnyPath, FloatArray
from mezzotint.report.contents import Curve, Figure, Page, Slider, Table

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

COLOURS = ("#3277c0", "#b5481b", "#3c7a3b", "#7a4b94", "#8a6d1d", "#39808a")
"""As the pages' style sheet has them for light pages."""

GREY = "#777777"
HEIGHT = 360
LINE_HEIGHT = 22
"""Pixels of a bar that stands for a thing."""

MARKERS = "os^DvP"

MOST_ABOVE = 2
"""The most lines on top of another for which that one is widened: beyond, no width shows all."""

DASHES = ("--", ":", "-.")

MOST_MARKED = 40
"""The most points of a curve that are marked, so that overlapping lines can be distinguished."""

SHEET_WIDTHS = {1: 7.4, 2: 10.4, 3: 12.6}
"""Inches by the number of columns: as wide as a page shows a sheet without making words small."""

LINE_HEIGHTS = {1: 4.6, 2: 4.2, 3: 3.9}
"""Inches of a line of figures, by the number of columns."""

TABLE_SIZE = (16.0, 5.0)
"""Inches of a sheet that is a table."""

LETTERS_PER_INCH = 10
"""Of a title; longer ones are wrapped."""

CELL_LETTERS = 30
"""Letters on a line of a table's cell."""

RESOLUTION = 130
"""Dots per inch."""

COINCIDENCE = 1 / 50
"""Of the plot's height: lines that are nowhere farther apart look like one."""


@final
@dataclass(frozen=True, kw_only=True)
class Look:
    """Colour, line and marker of a curve, in matplotlib's words."""

    color: str
    linestyle: str
    marker: str


def height_of(figure: Figure) -> int:
    """Pixels: bars that stand for things take a line each."""
    if not figure.names_things:
        return HEIGHT
    return max(HEIGHT, 120 + LINE_HEIGHT * max(len(curve.x) for curve in figure.curves))


def write_png(page: Page, folder: AnyPath, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Draws every figure, and every slider at its two ends and its middle, into a folder.

    Arguments:
        folder: an existing folder; files are named by the figures' keys.
        overwrite: whether files that are there may be replaced.
    Returns: the files written.
    Raises:
        ParameterError: no such folder, or a file is there already; then nothing is drawn.
    Example:
        >>> page = mz.report.mechanism_page(mz.families.randomized_response(epsilon=1.0))
        >>> written = mz.report.write_png(page, ".")
        >>> {path.suffix for path in written}
        {'.png'}
    """
    png_folder = Path(folder)
    if not png_folder.is_dir():
        raise ParameterError("png", str(folder), "no such folder; create it first")
    drawings = {png_folder / f"{slider.key}.png": _draw_slider(slider) for slider in page.sliders}
    for figure in map(_printable, page.figures):
        drawing = _drawing(6.4, 4.2 * height_of(figure) / HEIGHT)
        _draw_onto(drawing.subplots(), figure, _looks([figure]))
        drawings[png_folder / f"{figure.key}.png"] = drawing
    for png_file in drawings:
        refuse_existing(png_file, overwrite=overwrite, parameter="png")
    for png_file, drawing in drawings.items():
        with replacing(png_file, overwrite=overwrite, parameter="png") as temporary:
            drawing.savefig(temporary, format="png", dpi=RESOLUTION)
    return tuple(drawings)


def sheet(figures: Sequence[Figure], *, title: str = "", table: Table | None = None) -> Drawing:
    """Figures side by side as one drawing, or a table where there are none.

    Arguments:
        figures: in reading order, three to a line. One legend below explains them: a name looks
            the same everywhere.
        title: above all of them; of a single figure it replaces the figure's own.
        table: drawn where there are no figures.
    Returns: a matplotlib figure.
    Example:
        >>> curve = mz.report.Curve(name="error", x=(1.0, 2.0), y=(4.0, 0.8))
        >>> axes = {"x_label": "epsilon", "y_label": "MSE"}
        >>> figure = mz.report.Figure(key="error", title="Error", **axes, curves=(curve,))
        >>> drawing = mz.report.sheet([figure])
        >>> drawing.savefig("error.png")
    """
    if figures:
        return _sheet_of_figures([_printable(figure) for figure in figures], _words(title))
    drawing = _drawing(*TABLE_SIZE, title=_words(title))
    if table is not None:
        _draw_table(drawing, table)
    return drawing


def _printable(figure: Figure) -> Figure:
    """The figure with words of others as matplotlib prints them."""
    curves = []
    for curve in figure.curves:
        positions = tuple(
            _words(position) if isinstance(position, str) else position for position in curve.x
        )
        curves.append(replace(curve, name=_words(curve.name), x=cast("tuple[str, ...]", positions)))
    return replace(
        figure,
        title=_words(figure.title),
        x_label=_words(figure.x_label),
        y_label=_words(figure.y_label),
        curves=tuple(curves),
    )


def _words(text: str) -> str:
    """Text of others: it neither moves the terminal of whoever reads it nor begins a formula."""
    return escaped(text).replace("$", r"\$")


def _sheet_of_figures(figures: Sequence[Figure], title: str) -> Drawing:
    column_count = _columns(len(figures))
    row_count = -(-len(figures) // column_count)
    drawing = _drawing(
        SHEET_WIDTHS[column_count], LINE_HEIGHTS[column_count] * row_count, title=title
    )
    looks_by_name = _looks(figures)
    is_alone = len(figures) == 1
    for position, figure in enumerate(figures, start=1):
        figure_axes = drawing.add_subplot(row_count, column_count, position)
        _draw_onto(figure_axes, figure, looks_by_name, legend=is_alone)
        if is_alone and title:
            figure_axes.set_title("")
    if not is_alone and len(looks_by_name) > 1:
        _draw_shared_legend(drawing, most_columns=2 * column_count)
    return drawing


def _columns(figures: int) -> int:
    if figures == 4:
        return 2
    return min(3, figures)


def _draw_shared_legend(drawing: Drawing, *, most_columns: int) -> None:
    """One legend for all axes; each name as it looks where no line lies on top of it."""
    legend_handles: dict[str, Any] = {}
    for figure_axes in drawing.axes:
        for legend_handle, curve_name in zip(*figure_axes.get_legend_handles_labels(), strict=True):
            earlier_handle = legend_handles.get(curve_name)
            if earlier_handle is None or _line_width(legend_handle) < _line_width(earlier_handle):
                legend_handles[curve_name] = legend_handle
    drawing.legend(
        legend_handles.values(),
        legend_handles,
        loc="outside lower center",
        ncols=min(len(legend_handles), most_columns),
        frameon=False,
    )


def _line_width(handle: Artist) -> float:
    """Returns the width of a legend's line; 0 for bars."""
    return getattr(handle, "get_linewidth", lambda: 0.0)()


def _draw_table(drawing: Drawing, table: Table) -> None:
    sheet_axes = drawing.add_subplot()
    sheet_axes.axis("off")
    wrapped_cells = [
        [textwrap.fill(_words(table_cell), CELL_LETTERS) for table_cell in table_row]
        for table_row in table.rows
    ]
    drawn_table = sheet_axes.table(
        cellText=wrapped_cells, colLabels=table.headings, loc="center", cellLoc="left"
    )
    drawn_table.auto_set_font_size(False)
    drawn_table.set_fontsize(7)
    line_count = 1 + max(
        table_cell.count("\n") for table_row in wrapped_cells for table_cell in table_row
    )
    drawn_table.scale(1.0, float(line_count))


def _drawing(width: float, height: float, *, title: str | None = None) -> Drawing:
    """Makes an empty drawing; one with a title, even an empty one, is a sheet."""
    with brought_by("report"):
        from matplotlib import figure as drawings
    drawing = drawings.Figure(figsize=(width, height), layout="constrained")
    if title is not None:
        drawing.set_dpi(RESOLUTION)
        drawing.suptitle(textwrap.fill(title, round(LETTERS_PER_INCH * width)))
    return drawing


def _draw_slider(slider: Slider) -> Drawing:
    drawing = _drawing(10, 3.4)
    drawing.suptitle(slider.title)
    input_indices = (0, len(slider.inputs) // 2, -1)
    for stop_axes, input_index in zip(
        drawing.subplots(1, 3, sharey=True), input_indices, strict=True
    ):
        stop_axes.bar(
            slider.levels, slider.frames[input_index], width=slider.width, color=COLOURS[0]
        )
        stop_axes.axvline(slider.inputs[input_index], color=COLOURS[1], linestyle=":")
        stop_axes.set_title(f"input {slider.inputs[input_index]:.4g}", fontsize="medium")
        stop_axes.set_xlabel("decoded report (data units)")
    drawing.axes[0].set_ylabel("probability")
    return drawing


def _looks(figures: Sequence[Figure]) -> dict[str, Look]:
    """The look of every name, in order of appearance: bounds are grey and dashed."""
    looks_by_name: dict[str, Look] = {}
    bound_count = 0
    for figure in figures:
        for curve in figure.curves:
            if curve.name in looks_by_name:
                continue
            if curve.style == "dashed":
                dash_style = DASHES[bound_count % len(DASHES)]
                looks_by_name[curve.name] = Look(color=GREY, linestyle=dash_style, marker="")
                bound_count += 1
            else:
                looks_by_name[curve.name] = _look_of_curve(len(looks_by_name) - bound_count)
    return looks_by_name


def _look_of_curve(index: int) -> Look:
    """The look of the curve with this index among those that are no bounds."""
    second_turn = index >= len(COLOURS)
    return Look(
        color=COLOURS[index % len(COLOURS)],
        linestyle="-." if second_turn else "-",
        marker=MARKERS[index % len(MARKERS)],
    )


def _draw_onto(axes: Axes, figure: Figure, looks: dict[str, Look], *, legend: bool = True) -> None:
    if figure.names_things:
        _draw_lying(axes, figure, looks)
    else:
        _draw_standing(axes, figure, looks)
    axes.set_title(figure.title, fontsize="medium")
    axes.grid(alpha=0.3)
    if legend and len(figure.curves) > 1:
        axes.legend(fontsize="small")


def _draw_lying(axes: Axes, figure: Figure, looks: dict[str, Look]) -> None:
    """Draws bars that stand for things, from top to bottom."""
    for curve in figure.curves:
        if curve.style == "bars":
            bar_color = looks[curve.name].color
            axes.barh(curve.x, curve.y, color=bar_color, label=curve.name)
        else:
            axes.plot(curve.y, curve.x, "--", color=COLOURS[1], label=curve.name)
        if curve.low:
            interval_lengths = _interval_lengths(curve)
            axes.errorbar(
                curve.y, curve.x, xerr=interval_lengths, fmt="none", ecolor="#333333", capsize=3
            )
    axes.set_xlabel(figure.y_label)
    axes.set_ylabel(figure.x_label)
    axes.invert_yaxis()


def _draw_standing(axes: Axes, figure: Figure, looks: dict[str, Look]) -> None:
    """Draws lines and bars over numbers."""
    for curve_index, curve in enumerate(figure.curves):
        curve_look = looks[curve.name]
        if len(curve.x) > MOST_MARKED:
            curve_look = replace(curve_look, marker="")
        if curve.style == "bars":
            left_ends, bar_width = figure.bars(curve)
            bar_options: Any = {"width": bar_width, "align": "edge", "color": curve_look.color}
            axes.bar(left_ends, curve.y, label=curve.name, **bar_options)
        else:
            line_count = sum(
                _coincide(curve, later_curve, figure)
                for later_curve in figure.curves[curve_index + 1 :]
            )
            _draw_line(axes, curve, curve_look, min(line_count, MOST_ABOVE))
        if curve.low:
            interval_lengths = _interval_lengths(curve)
            mark_options: Any = {
                "fmt": "none",
                "ecolor": curve_look.color,
                "capsize": 3,
                "alpha": 0.7,
            }
            axes.errorbar(curve.x, curve.y, yerr=interval_lengths, **mark_options)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.set_xscale("log" if figure.log_x else "linear")
    axes.set_yscale("log" if figure.log_y else "linear")


def _draw_line(axes: Axes, curve: Curve, look: Look, above: int) -> None:
    """Draws a line under `above` others that coincide with it: wider, with rings as markers."""
    options: Any = {
        "color": look.color,
        "linestyle": look.linestyle,
        "marker": look.marker,
        "linewidth": 1.6 + 2.4 * above,
        "markersize": 4 + 4 * above,
    }
    if above:
        options |= {"alpha": 0.55, "markerfacecolor": "none"}
    axes.plot(curve.x, curve.y, label=curve.name, **options)


def _interval_lengths(curve: Curve) -> FloatArray:
    """(2, n) how far intervals reach below and above their heights."""
    lengths_below = np.subtract(curve.y, curve.low)
    lengths_above = np.subtract(curve.high, curve.y)
    return np.maximum((lengths_below, lengths_above), 0.0)


def _coincide(first: Curve, second: Curve, figure: Figure) -> bool:
    """Whether two lines lie within `COINCIDENCE` of the plot's height of each other everywhere."""
    if "bars" in (first.style, second.style) or first.x != second.x:
        return False
    heights = [_drawn_heights(curve, figure) for curve in figure.curves]
    greatest_height = max(float(np.nanmax(drawn_heights)) for drawn_heights in heights)
    least_height = min(float(np.nanmin(drawn_heights)) for drawn_heights in heights)
    distance = np.abs(_drawn_heights(first, figure) - _drawn_heights(second, figure))
    return bool(np.nanmax(distance) <= COINCIDENCE * (greatest_height - least_height))


def _drawn_heights(curve: Curve, figure: Figure) -> FloatArray:
    heights = np.array(curve.y, dtype=np.float64)
    return np.log(heights) if figure.log_y else heights
