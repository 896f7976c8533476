"""Drawing of the smoothed reproductions. Values are log10 and reach 1e-5000, so axes show exponents by themselves."""

from __future__ import annotations

import html
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mezzotint.core.lazy import LazyModule

if TYPE_CHECKING:
    from mezzotint.report.smoothed import Reproduction, Series

figures: Any = LazyModule("matplotlib.figure")
tickers: Any = LazyModule("matplotlib.ticker")
graphs: Any = LazyModule("plotly.graph_objects")
subplots: Any = LazyModule("plotly.subplots")

_COLUMNS = 3


def _panels(reproduction: Reproduction) -> dict[str, list[Series]]:
    panels: dict[str, list[Series]] = {}
    for series in reproduction.series:
        panels.setdefault(series.panel, []).append(series)
    return panels


def draw_png(reproduction: Reproduction, path: str | Path) -> None:
    """The curves, one small plot per panel, or the rows as text where there are none."""
    panels = _panels(reproduction)
    columns = min(_COLUMNS, max(1, len(panels)))
    lines = math.ceil(max(1, len(panels)) / columns)
    size = (6.4 * columns, 4.4 * lines) if panels else (13.0, 5.0)
    figure = figures.Figure(figsize=size, layout="constrained")
    figure.suptitle(reproduction.title)
    if not panels:
        _draw_rows(reproduction, figure.add_subplot())
    for place, (name, curves) in enumerate(panels.items(), start=1):
        _draw_panel(reproduction, name, curves, figure.add_subplot(lines, columns, place))
    figure.savefig(path, format="png", dpi=110)


def _draw_panel(reproduction: Reproduction, name: str, curves: list[Series], axes: Any) -> None:
    axes.set_title(name)
    for curve in curves:
        dashed = curve.name in ("DP", "1/n")
        drawn = axes.plot(curve.x, curve.log10_y, "--" if dashed else "o-", markersize=3, label=curve.name)
        if curve.low:
            floor = min(value for value in (*curve.log10_y, *curve.low) if value > -math.inf)
            lower = [max(value, floor) for value in curve.low]
            axes.fill_between(curve.x, lower, curve.high, alpha=0.2, color=drawn[0].get_color())
    if reproduction.log_x:
        # Exponents over several orders of magnitude themselves.
        axes.set_yscale("symlog", linthresh=1.0)
        axes.set_xscale("log")
    axes.yaxis.set_major_formatter(tickers.FuncFormatter(lambda value, _: f"$10^{{{value:g}}}$"))
    axes.set_xlabel(reproduction.x_label)
    axes.set_ylabel("delta")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)


def _draw_rows(reproduction: Reproduction, axes: Any) -> None:
    names = list(reproduction.rows[0])
    cells = [[textwrap.fill(_cell(row[name]), 30) for name in names] for row in reproduction.rows]
    axes.axis("off")
    table = axes.table(cellText=cells, colLabels=names, loc="center", cellLoc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    table.scale(1.0, 5.0)


def draw_html(reproduction: Reproduction, path: str | Path) -> None:
    """An interactive page: the curves and the rows; it loads nothing from the network."""
    panels = _panels(reproduction)
    plot = ""
    if panels:
        columns = min(_COLUMNS, len(panels))
        lines = math.ceil(len(panels) / columns)
        figure = subplots.make_subplots(rows=lines, cols=columns, subplot_titles=list(panels))
        for place, curves in enumerate(panels.values()):
            where = {"row": place // columns + 1, "col": place % columns + 1}
            for curve in curves:
                dash = "dash" if curve.name in ("DP", "1/n") else "solid"
                name = f"{curve.panel}: {curve.name}" if curve.panel else curve.name
                figure.add_trace(
                    graphs.Scatter(x=curve.x, y=curve.log10_y, mode="lines+markers", name=name, line={"dash": dash}),
                    **where,
                )
            figure.update_xaxes(title=reproduction.x_label, type="log" if reproduction.log_x else "linear", **where)
            figure.update_yaxes(title="delta", tickprefix="10^", **where)
        figure.update_layout(height=480 * lines, title=reproduction.title)
        plot = figure.to_html(full_html=False, include_plotlyjs=True)
    Path(path).write_text(_page(reproduction, plot), encoding="utf-8")


def _page(reproduction: Reproduction, plot: str) -> str:
    names = list(reproduction.rows[0])
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in names) + "</tr>"
        for row in reproduction.rows
    )
    title, note = html.escape(reproduction.title), html.escape(reproduction.note)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><h1>{title}</h1><p>{note}</p>{plot}<table border='1'><tr>{head}</tr>{body}</table></body></html>"
    )


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
