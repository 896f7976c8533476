"""Drawing of the design reproductions: curves in panels, or rows as text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mezzotint.core.lazy import LazyModule

if TYPE_CHECKING:
    from mezzotint.report.tables import Reproduction

figures: Any = LazyModule("matplotlib.figure")

_COLUMNS = 3


def draw_png(reproduction: Reproduction, path: str | Path) -> None:
    """The curves, one plot per panel; the rows as a table of text where there are none."""
    panels = list(dict.fromkeys(curve.panel for curve in reproduction.curves))
    columns = min(_COLUMNS, max(1, len(panels)))
    lines = math.ceil(max(1, len(panels)) / columns)
    size = (6.0 * columns, 4.4 * lines) if panels else (16.0, 5.0)
    figure = figures.Figure(figsize=size, layout="constrained")
    figure.suptitle(reproduction.title)
    if not panels:
        _draw_rows(reproduction, figure.add_subplot())
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(lines, columns, place)
        axes.set_title(panel)
        for curve in reproduction.curves:
            if curve.panel == panel:
                axes.errorbar(curve.x, curve.y, yerr=curve.spread or None, label=curve.name, capsize=2)
        axes.set_yscale(reproduction.y_scale)
        axes.set_xlabel(reproduction.x_label)
        axes.set_ylabel(reproduction.y_label)
        axes.legend()
    figure.savefig(path, format="png", dpi=110)


def _draw_rows(reproduction: Reproduction, axes: Any) -> None:
    axes.axis("off")
    names = [name for name in reproduction.rows[0] if name != "note"]
    cells = [[_text(row[name]) for name in names] for row in reproduction.rows]
    drawn = axes.table(cellText=cells, colLabels=names, loc="center")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
