"""Every figure of a page as a PNG file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.files import refuse_existing, replacing
from mezzotint.core.lazy import LazyModule
from mezzotint.report.content import Curve, Figure, Page, Slider, Table
from mezzotint.report.plots import COLOURS, GREY, HEIGHT, height_of, names_things

drawings: Any = LazyModule("matplotlib.figure", extra="report")


def write_png(page: Page, folder: Path, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Draws every figure, and every slider at its two ends and its middle, into a folder.

    Arguments:
        folder: an existing folder; files are named by the figures' keys.
        overwrite: whether files that are there may be replaced.

    Raises:
        ParameterError: no such folder, or a file is there already; then nothing is drawn.
    """
    if not folder.is_dir():
        raise ParameterError("png", str(folder), "no such folder; create it first")
    drawn = {folder / f"{slider.key}.png": _draw_slider(slider) for slider in page.sliders}
    drawn |= {folder / f"{figure.key}.png": _draw_figure(figure) for figure in page.figures}
    for path in drawn:
        refuse_existing(path, overwrite=overwrite, parameter="png")
    for path, drawing in drawn.items():
        with replacing(path, overwrite=overwrite, parameter="png") as temporary:
            drawing.savefig(temporary, format="png", dpi=130)
    return tuple(drawn)


def draw_sheet(figures: Sequence[Figure], path: str | Path, *, title: str = "", table: Table | None = None) -> None:
    """Draws figures side by side into one PNG file, or a table where there are none.

    Arguments:
        figures: in reading order, three to a line.
        path: the file; its folder exists.
        title: above all of them.
        table: drawn where there are no figures.
    """
    columns = min(3, max(1, len(figures)))
    lines = -(-max(1, len(figures)) // columns)
    size = (6.2 * columns, 4.4 * lines) if figures else (16.0, 5.0)
    sheet = drawings.Figure(figsize=size, layout="constrained")
    sheet.suptitle(title)
    for place, figure in enumerate(figures, start=1):
        _draw_onto(sheet.add_subplot(lines, columns, place), figure)
    if not figures and table is not None:
        axes = sheet.add_subplot()
        axes.axis("off")
        cells = [[textwrap.fill(cell, 30) for cell in row] for row in table.rows]
        drawn = axes.table(cellText=cells, colLabels=table.headings, loc="center", cellLoc="left")
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(7)
        drawn.scale(1.0, max(text.count("\n") for row in cells for text in row) + 1.0)
    sheet.savefig(path, format="png", dpi=110)


def _draw_slider(slider: Slider) -> Any:
    drawing = drawings.Figure(figsize=(10, 3.4), layout="constrained")
    drawing.suptitle(slider.title)
    gap = float(np.diff(slider.levels).min())
    width = max(0.8 * gap, (slider.levels[-1] - slider.levels[0]) / 150)
    for axes, i in zip(drawing.subplots(1, 3, sharey=True), (0, len(slider.inputs) // 2, -1), strict=True):
        axes.bar(slider.levels, slider.frames[i], width=width, color=COLOURS[0])
        axes.axvline(slider.inputs[i], color=COLOURS[1], linestyle=":")
        axes.set_title(f"input {slider.inputs[i]:.4g}", fontsize="medium")
        axes.set_xlabel("decoded report (data units)")
    drawing.axes[0].set_ylabel("probability")
    return drawing


def _draw_figure(figure: Figure) -> Any:
    drawing = drawings.Figure(figsize=(6.4, 4.2 * height_of(figure) / HEIGHT), layout="constrained")
    _draw_onto(drawing.subplots(), figure)
    return drawing


def _draw_onto(axes: Any, figure: Figure) -> None:
    lying = names_things(figure)
    for place, curve in enumerate(figure.curves):
        colour = GREY if curve.style == "dashed" else COLOURS[place % len(COLOURS)]
        (_draw_lying if lying else _draw_curve)(axes, curve, colour)
    axes.set_title(figure.title)
    axes.set_xlabel(figure.y_label if lying else figure.x_label)
    axes.set_ylabel(figure.x_label if lying else figure.y_label)
    if lying:
        axes.invert_yaxis()
    else:
        axes.set_xscale("log" if figure.log_x else "linear")
        axes.set_yscale("log" if figure.log_y else "linear")
    axes.grid(alpha=0.3)
    if len(figure.curves) > 1:
        axes.legend(fontsize="small")


def _ends(curve: Curve) -> Any:
    ends = (np.subtract(curve.y, curve.low), np.subtract(curve.high, curve.y))
    return np.maximum(ends, 0.0)


def _draw_curve(axes: Any, curve: Curve, colour: str) -> None:
    if curve.style == "bars":
        axes.bar(curve.x, curve.y, color=colour, label=curve.name, width=_bar_width(curve))
    else:
        axes.plot(curve.x, curve.y, "--" if curve.style == "dashed" else "-", color=colour, label=curve.name)
    if curve.low:
        axes.errorbar(curve.x, curve.y, yerr=_ends(curve), fmt="none", ecolor="#333333", capsize=3)


def _bar_width(curve: Curve) -> float:
    positions = np.array(curve.x, dtype=np.float64)
    return 0.8 * float(np.diff(positions).min()) if positions.size > 1 else 0.8


def _draw_lying(axes: Any, curve: Curve, colour: str) -> None:
    """Bars that stand for things, from top to bottom."""
    if curve.style == "bars":
        axes.barh(curve.x, curve.y, color=colour, label=curve.name)
    else:
        axes.plot(curve.y, curve.x, "--", color=COLOURS[1], label=curve.name)
    if curve.low:
        axes.errorbar(curve.y, curve.x, xerr=_ends(curve), fmt="none", ecolor="#333333", capsize=3)
