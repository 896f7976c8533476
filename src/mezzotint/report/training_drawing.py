"""Drawing of training histories and of the training reproductions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mezzotint.core.lazy import LazyModule

if TYPE_CHECKING:
    from mezzotint.report.training import Reproduction

figures: Any = LazyModule("matplotlib.figure")


def draw_history(history: Sequence[Any], path: str | Path) -> None:
    """Test and training accuracy against epsilon spent (against steps where nothing is private), as PNG."""
    private = all(progress.epsilon is not None for progress in history)
    x = [progress.epsilon if private else progress.step for progress in history]
    figure = figures.Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(x, [100 * progress.test_accuracy for progress in history], "o-", markersize=3, label="test")
    axes.plot(x, [100 * progress.train_accuracy for progress in history], "--", label="training (not for release)")
    axes.set_xlabel("epsilon spent" if private else "steps")
    axes.set_ylabel("accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, format="png", dpi=110)


def draw_png(reproduction: Reproduction, path: str | Path) -> None:
    """One small plot per panel; the rows as text where there are no curves."""
    panels = list(dict.fromkeys(curve.panel for curve in reproduction.series))
    width = 6.4 * max(1, len(panels)) if panels else 13.0
    figure = figures.Figure(figsize=(width, 4.6), layout="constrained")
    figure.suptitle(reproduction.title)
    if not panels:
        _draw_rows(reproduction, figure.add_subplot())
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        axes.set_title(panel)
        for curve in (one for one in reproduction.series if one.panel == panel):
            axes.plot(curve.x, curve.y, "o-", markersize=3, label=curve.name)
        axes.set_xlabel(reproduction.x_label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, format="png", dpi=110)


def _draw_rows(reproduction: Reproduction, axes: Any) -> None:
    names = list(reproduction.rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in reproduction.rows]
    axes.axis("off")
    table = axes.table(cellText=cells, colLabels=names, loc="center", cellLoc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(7)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
