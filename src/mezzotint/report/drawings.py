"""Figures as PNG, PDF and SVG files of their own, drawn by matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import refuse_existing, replacing
from mezzotint.core.records import JsonObject
from mezzotint.report.contents import Curve, Figure, Page, Slider, Table
from mezzotint.report.svg import names_things

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
"""The most lines on top of another for which that one is widened: beyond, no width would show them all."""

DASHES = ("--", ":", "-.")
FEW = 40
"""The most points of a curve that are marked, so that overlapping lines can be distinguished."""


def height_of(figure: Figure) -> int:
    """Pixels: bars that stand for things take a line each."""
    if not names_things(figure):
        return HEIGHT
    return max(HEIGHT, 120 + LINE_HEIGHT * max(len(curve.x) for curve in figure.curves))


def write_png(page: Page, folder: Path, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Draws every figure, and every slider at its two ends and its middle, into a folder.

    Arguments:
        folder: an existing folder; files are named by the figures' keys.
        overwrite: whether files that are there may be replaced.
    Returns: the files written.
    Raises:
        ParameterError: no such folder, or a file is there already; then nothing is drawn.
    Example:
        >>> from pathlib import Path
        >>> page = mz.report.mechanism_page(mz.families.randomized_response(epsilon=1.0))
        >>> written = mz.report.write_png(page, Path("."))
        >>> {path.suffix for path in written}
        {'.png'}
    """
    if not folder.is_dir():
        raise ParameterError("png", str(folder), "no such folder; create it first")
    drawn = {folder / f"{slider.key}.png": _draw_slider(slider) for slider in page.sliders}
    for figure in page.figures:
        drawing = drawn[folder / f"{figure.key}.png"] = _drawing(
            6.4, 4.2 * height_of(figure) / HEIGHT
        )
        _draw_onto(drawing.subplots(), figure, _looks([figure]))
    for path in drawn:
        refuse_existing(path, overwrite=overwrite, parameter="png")
    for path, drawing in drawn.items():
        with replacing(path, overwrite=overwrite, parameter="png") as temporary:
            drawing.savefig(temporary, format="png", dpi=130)
    return tuple(drawn)


def sheet(figures: Sequence[Figure], *, title: str = "", table: Table | None = None) -> Drawing:
    """Figures side by side as one drawing, or a table where there are none.

    Arguments:
        figures: in reading order, three to a line. One legend below explains them: a name looks the same everywhere.
        title: above all of them; of a single figure it replaces the figure's own.
        table: drawn where there are no figures.
    Returns: a matplotlib figure.
    Example:
        >>> curve = mz.report.Curve(name="error", x=(1.0, 2.0), y=(4.0, 0.8))
        >>> figure = mz.report.Figure(key="error", title="Error", x_label="epsilon", y_label="MSE", curves=(curve,))
        >>> drawing = mz.report.sheet([figure])
        >>> drawing.savefig("error.png")
    """
    columns = 2 if len(figures) == 4 else min(3, max(1, len(figures)))
    lines = -(-max(1, len(figures)) // columns)
    # As wide as a page of text shows it without making words small.
    size = (
        ({1: 7.4, 2: 10.4, 3: 12.6}[columns], {1: 4.6, 2: 4.2, 3: 3.9}[columns] * lines)
        if figures
        else (16.0, 5.0)
    )
    drawing = _drawing(*size)
    drawing.set_dpi(130)
    drawing.suptitle(textwrap.fill(title, round(10 * size[0])))
    looks = _looks(figures)
    for place, figure in enumerate(figures, start=1):
        axes = drawing.add_subplot(lines, columns, place)
        _draw_onto(axes, figure, looks, legend=len(figures) == 1)
        if len(figures) == 1 and title:
            axes.set_title("")
    if len(figures) > 1 and len(looks) > 1:
        found: JsonObject = {}
        for axes in drawing.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                if label not in found or _width(handle) < _width(
                    found[label]
                ):  # as it is where nothing lies on it
                    found[label] = handle
        inside = {"ncols": min(len(found), 2 * columns), "frameon": False}
        drawing.legend(found.values(), found, loc="outside lower center", **inside)
    if not figures and table is not None:
        axes = drawing.add_subplot()
        axes.axis("off")
        cells = [[textwrap.fill(cell, 30) for cell in row] for row in table.rows]
        drawn = axes.table(cellText=cells, colLabels=table.headings, loc="center", cellLoc="left")
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(7)
        drawn.scale(1.0, max(text.count("\n") for row in cells for text in row) + 1.0)
    return drawing


def _width(handle: Artist) -> float:
    """The width of a legend's line; 0 for bars."""
    return getattr(handle, "get_linewidth", lambda: 0.0)()


def _drawing(width: float, height: float) -> Drawing:
    with brought_by("report"):
        from matplotlib import figure as drawings
    return drawings.Figure(figsize=(width, height), layout="constrained")


def _draw_slider(slider: Slider) -> Drawing:
    drawing = _drawing(10, 3.4)
    drawing.suptitle(slider.title)
    for axes, i in zip(
        drawing.subplots(1, 3, sharey=True), (0, len(slider.inputs) // 2, -1), strict=True
    ):
        axes.bar(slider.levels, slider.frames[i], width=slider.width, color=COLOURS[0])
        axes.axvline(slider.inputs[i], color=COLOURS[1], linestyle=":")
        axes.set_title(f"input {slider.inputs[i]:.4g}", fontsize="medium")
        axes.set_xlabel("decoded report (data units)")
    drawing.axes[0].set_ylabel("probability")
    return drawing


def _looks(figures: Sequence[Figure]) -> dict[str, JsonObject]:
    """Colour, line and marker of every name, in order of appearance: bounds are grey and dashed."""
    found: dict[str, JsonObject] = {}
    grey = 0
    for curve in (curve for figure in figures for curve in figure.curves):
        if curve.name in found:
            continue
        place = len(found) - grey
        if curve.style == "dashed":
            found[curve.name] = {
                "color": GREY,
                "linestyle": DASHES[grey % len(DASHES)],
                "marker": "",
            }
            grey += 1
        else:
            look = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
            found[curve.name] = {**look, "linestyle": "-" if place < len(COLOURS) else "-."}
    return found


def _draw_onto(
    axes: Axes, figure: Figure, looks: dict[str, JsonObject], *, legend: bool = True
) -> None:
    lying = names_things(figure)
    for place, curve in enumerate(figure.curves):
        look = dict(looks[curve.name])
        if len(curve.x) > FEW:
            look["marker"] = ""
        above = (
            0
            if lying
            else sum(_coincide(curve, other, figure) for other in figure.curves[place + 1 :])
        )
        _draw_curve(axes, curve, look, min(above, MOST_ABOVE), lying=lying)
    axes.set_title(figure.title, fontsize="medium")
    axes.set_xlabel(figure.y_label if lying else figure.x_label)
    axes.set_ylabel(figure.x_label if lying else figure.y_label)
    if lying:
        axes.invert_yaxis()
    else:
        axes.set_xscale("log" if figure.log_x else "linear")
        axes.set_yscale("log" if figure.log_y else "linear")
    axes.grid(alpha=0.3)
    if legend and len(figure.curves) > 1:
        axes.legend(fontsize="small")


def _coincide(first: Curve, second: Curve, figure: Figure) -> bool:
    """Whether two lines lie within a fiftieth of the plot's height of each other, everywhere."""
    if "bars" in (first.style, second.style) or first.x != second.x:
        return False
    scale = np.log if figure.log_y else np.asarray
    heights = [scale(np.array(curve.y, dtype=np.float64)) for curve in figure.curves]
    span = max(float(np.nanmax(one)) for one in heights) - min(
        float(np.nanmin(one)) for one in heights
    )
    gap = scale(np.array(first.y, dtype=np.float64)) - scale(np.array(second.y, dtype=np.float64))
    return bool(np.nanmax(np.abs(gap)) <= span / 50)


def _draw_curve(axes: Axes, curve: Curve, look: JsonObject, above: int, *, lying: bool) -> None:
    """A line under `above` others that coincide with it is so much wider, and its markers are rings around theirs.

    `lying` are bars that stand for things, from top to bottom.
    """
    if lying and curve.style == "bars":
        axes.barh(curve.x, curve.y, color=look["color"], label=curve.name)
    elif lying:
        axes.plot(curve.y, curve.x, "--", color=COLOURS[1], label=curve.name)
    elif curve.style == "bars":
        width = (
            0.8 * float(np.diff(np.array(curve.x, dtype=np.float64)).min())
            if len(curve.x) > 1
            else 0.8
        )
        axes.bar(curve.x, curve.y, color=look["color"], label=curve.name, width=width)
    else:
        ring: JsonObject = {"markerfacecolor": "none"} if above else {}
        wide = {
            "linewidth": 1.6 + 2.4 * above,
            "markersize": 4 + 4 * above,
            "alpha": 0.55 if above else 1.0,
        }
        axes.plot(curve.x, curve.y, label=curve.name, **look, **wide, **ring)
    if curve.low:
        ends = np.maximum((np.subtract(curve.y, curve.low), np.subtract(curve.high, curve.y)), 0.0)
        if lying:
            axes.errorbar(curve.y, curve.x, xerr=ends, fmt="none", ecolor="#333333", capsize=3)
        else:
            axes.errorbar(
                curve.x, curve.y, yerr=ends, fmt="none", ecolor=look["color"], capsize=3, alpha=0.7
            )
