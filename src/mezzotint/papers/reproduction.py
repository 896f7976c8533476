"""A published table or figure beside our numbers: one record, drawn by the room that draws everything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from mezzotint import report
from mezzotint.core.records import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@final
@dataclass(frozen=True, kw_only=True)
class Series:
    """One curve of a figure.

    Arguments:
        panel: the plot it belongs to; name: its legend.
        x, y: positions and heights, as many of each.
        low, high: ends of an interval around each height, or empty.
    """

    panel: str
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A published table or figure beside our numbers.

    Arguments:
        title, note: what it is, and what to know when comparing.
        rows: one mapping per line.
        series: what to draw; x_label, y_label: the axes; log_x, log_y: logarithmic ones. What belongs to the vertical
            axis may be given for each panel. Where values lie below the range of floats, heights are their log10 and
            the label says so.
    """

    title: str
    note: str
    rows: tuple[JsonObject, ...]
    series: tuple[Series, ...] = ()
    x_label: str = ""
    y_label: str | tuple[str, ...] = ""
    log_x: bool = False
    log_y: bool | tuple[bool, ...] = False

    def as_dict(self) -> JsonObject:
        """Title, note and rows as plain values."""
        return {"title": self.title, "note": self.note, "rows": [dict(row) for row in self.rows]}

    def page(self) -> report.Page:
        """Figures and rows as a page."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        cells = tuple(tuple(_cell(row.get(name)) for name in names) for row in self.rows)
        table = report.Table(headings=tuple(names), rows=cells)
        return report.Page(
            title=self.title,
            summary=self.note,
            sections=(report.Section(title="Recomputed", figures=self._figures(), table=table),),
        )

    def drawing(self) -> Figure:
        """All panels, or the rows where there are no curves, as a matplotlib figure."""
        page = self.page()
        return report.sheet(page.figures, title=self.title, table=page.sections[0].table)

    def png(self, path: str | Path) -> None:
        """Draws it into a PNG file."""
        self.drawing().savefig(path, format="png")

    def html(self, path: str | Path) -> None:
        """Writes an HTML page that needs no network."""
        Path(path).write_text(report.html_page(self.page()), encoding="utf-8")

    def _figures(self) -> tuple[report.Figure, ...]:
        panels: dict[str, list[report.Curve]] = {}
        for series in self.series:
            # An interval that reaches down to nothing is drawn down to the lowest point.
            floor = min(
                (value for value in (*series.y, *series.low) if math.isfinite(value)), default=0.0
            )
            panels.setdefault(series.panel, []).append(
                report.Curve(
                    name=series.name,
                    x=series.x,
                    y=series.y,
                    low=tuple(max(value, floor) for value in series.low),
                    high=series.high,
                    style="dashed" if series.name in ("DP", "1/n", "limit") else "line",
                )
            )
        return tuple(
            report.Figure(
                key=f"panel-{place + 1}",
                title=name,
                x_label=self.x_label,
                y_label=self.y_label if isinstance(self.y_label, str) else self.y_label[place],
                curves=tuple(curves),
                log_x=self.log_x,
                log_y=self.log_y if isinstance(self.log_y, bool) else self.log_y[place],
            )
            for place, (name, curves) in enumerate(panels.items())
        )


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
