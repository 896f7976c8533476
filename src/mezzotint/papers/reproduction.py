"""A published table or figure beside our numbers: one record, drawn by the room that draws everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from mezzotint import report
from mezzotint.core.records import JsonObject, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RUNS = "runs"
"""The column that holds the value of each run of a row, in the order of their seeds; stored, not shown."""


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

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what the rows say, without the values of single runs."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return tuple(name for name in names if name != RUNS)

    def as_dict(self) -> JsonObject:
        """Title, note and rows as plain values."""
        return {"title": self.title, "note": self.note, "rows": [dict(row) for row in self.rows]}

    def page(self) -> report.Page:
        """Figures and rows as a page."""
        cells = tuple(tuple(_cell(row.get(name)) for name in self.columns) for row in self.rows)
        table = report.Table(headings=self.columns, rows=cells)
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
        whole = replace(self, series=tuple(part for one in self.series for part in _pieces(one)))
        Path(path).write_text(report.html_page(whole.page()), encoding="utf-8")

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
                    style="dashed" if _is_reference(series.name) else "line",
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


@final
@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a reproduction that is recomputed by itself, to see whether what is stored still holds.

    Arguments:
        key: its name among the parts.
        seconds: what it costs, roughly.
        rows: computes rows, or parts of rows, of the reproduction. Each belongs to the one stored row that has the same
            words and whole numbers; where it has `RUNS`, these are the first runs of that row.
        relative, absolute: how far a number may lie from the stored one: rounding, a solver's gap, one test record.
    """

    key: str
    seconds: float
    rows: Callable[[], Sequence[JsonObject]]
    relative: float = 1e-9
    absolute: float = 0.0

    def differences(self, stored: Sequence[JsonObject]) -> tuple[str, ...]:
        """What is computed now and is not what is stored, in words; nothing where all agrees."""
        problems: list[str] = []
        for row in self.rows():
            match = [other for other in stored if self._same(row, other)]
            if len(match) != 1:
                problems.append(f"{self.key}: {len(match)} stored rows agree with {row}")
        return tuple(problems)

    def _same(self, row: JsonObject, other: JsonObject) -> bool:
        # Where single runs are compared, all else says which row it is.
        slack = 0.0 if RUNS in row else self.absolute
        for name, value in row.items():
            allowed = self.absolute if name == RUNS else slack
            if name not in other or not self._agree(value, other[name], allowed):
                return False
        return True

    def _agree(self, value: object, stored: object, allowed: float) -> bool:
        if isinstance(value, list | tuple):
            if not isinstance(stored, list | tuple) or len(stored) < len(value):
                return False
            pairs = zip(value, stored, strict=False)
            return all(self._agree(one, other, allowed) for one, other in pairs)
        if isinstance(value, float) and math.isfinite(value) and isinstance(stored, int | float):
            return math.isclose(value, stored, rel_tol=self.relative, abs_tol=allowed)
        return plain(value) == stored


def _pieces(series: Series) -> tuple[Series, ...]:
    """A broken line, whose gaps are no numbers, as several; any other as it is."""
    gaps = [place for place, value in enumerate(series.x) if math.isnan(value)]
    if not gaps:
        return (series,)
    starts, ends = [0, *(gap + 1 for gap in gaps)], [*gaps, len(series.x)]
    return tuple(
        replace(series, name=f"{series.name}, {number}", x=series.x[a:b], y=series.y[a:b])
        for number, (a, b) in enumerate(zip(starts, ends, strict=True), start=1)
    )


def _is_reference(name: str) -> bool:
    """Whether a curve is drawn beside the results: a fit, a limit, another notion."""
    return name in ("DP", "1/n", "limit") or name.startswith("fit in ")


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
