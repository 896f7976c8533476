"""A published table or figure beside our numbers: what is computed, how it is drawn, how it is
checked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast, final

from mezzotint import report
from mezzotint.core.records import JsonObject, Progress, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

RUNS = "runs"
"""The column with the value of each run of a row, in the order of their seeds; stored, not
shown.
"""

FIT, ORDER_FIT, WORST_CASE, LIMIT = "fit in n", "fit in sqrt(n) log n", "DP", "limit"
REFERENCES = (FIT, ORDER_FIT, WORST_CASE, LIMIT, "1/n")
"""Names of curves that are drawn beside the results, grey and broken."""

QUICK_ROUNDS, QUICK_SEEDS = 20, 2
"""At most so many rounds and seeds where an experiment is only to be seen to work."""

SettingT = TypeVar("SettingT", str, bool)


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """What the user says about an experiment.

    Arguments:
        data: where its data lie.
        model: "softmax", "small-cnn" or "cnn".
        rounds, seeds: None takes what the experiment has.
        quick: a smaller run.
        keep: file of finished runs.
        device: "cpu" or "cuda".
        progress: called as progress(done, total) after each round or run.
    """

    data: str | None = None
    model: str = "softmax"
    rounds: int | None = None
    seeds: int | None = None
    quick: bool = False
    keep: Path | None = None
    device: str = "cpu"
    progress: Progress | None = None

    def rounds_or(self, usual: int) -> int:
        """The rounds of an experiment whose usual number is given."""
        return self._limited(self.rounds, usual, QUICK_ROUNDS)

    def seeds_or(self, usual: int) -> int:
        """The seeds of an experiment whose usual number is given."""
        return self._limited(self.seeds, usual, QUICK_SEEDS)

    def _limited(
        self,
        requested: int | None,
        usual: int,
        quick_count: int,
    ) -> int:
        count = usual if requested is None else requested
        return min(count, quick_count) if self.quick else count


@final
@dataclass(frozen=True, kw_only=True)
class Series:
    """One curve of a figure.

    Arguments:
        panel: the plot that it belongs to.
        name: its legend.
        x, y: positions and heights, as many of each; NaN breaks the line.
        low, high: ends of an interval around each height, or empty.
    """

    panel: str
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def pieces(self) -> tuple[Series, ...]:
        """A broken line as several, any other as it is."""
        gaps = [position for position, value in enumerate(self.x) if math.isnan(value)]
        if not gaps:
            return (self,)
        starts = [0, *(gap + 1 for gap in gaps)]
        stops = [*gaps, len(self.x)]
        return tuple(
            replace(self, name=f"{self.name}, {number}", x=self.x[a:b], y=self.y[a:b])
            for number, (a, b) in enumerate(zip(starts, stops, strict=True), start=1)
        )

    def curve(self) -> report.Curve:
        """What is drawn; an interval that reaches down to nothing ends at the lowest point."""
        finite = filter(math.isfinite, (*self.y, *self.low))
        floor = min(finite, default=0.0)
        return report.Curve(
            name=self.name,
            x=self.x,
            y=self.y,
            low=tuple(max(value, floor) for value in self.low),
            high=self.high,
            style="dashed" if self.name in REFERENCES else "line",
        )


def curves(
    rows: Sequence[JsonObject],
    x: str,
    y: str,
    *,
    name: str,
    panel: str = "",
    error: str = "",
    ends: tuple[str, str] | None = None,
) -> tuple[Series, ...]:
    """A curve through the rows of each panel and name, in order of appearance.

    Arguments:
        rows: of a reproduction; those without a number in the column `y` are left out.
        x, y: columns.
        name, panel: patterns that a row's columns fill in, as "epsilon = {epsilon:g}".
        error: column of what is drawn on both sides of y.
        ends: columns of the two ends of an interval instead.
    """
    groups: dict[tuple[str, str], list[JsonObject]] = {}
    for row in rows:
        if row[y] is not None:
            key = (panel.format_map(row), name.format_map(row))
            groups.setdefault(key, []).append(row)

    def column(members: Sequence[JsonObject], header: str) -> tuple[float, ...]:
        return tuple(float(row[header]) for row in members)

    result: list[Series] = []
    for (panel_name, curve_name), members in groups.items():
        heights = column(members, y)
        series = Series(
            panel=panel_name,
            name=curve_name,
            x=column(members, x),
            y=heights,
        )
        if error:
            pairs = tuple(zip(heights, column(members, error), strict=True))
            low = tuple(height - spread for height, spread in pairs)
            high = tuple(height + spread for height, spread in pairs)
            series = replace(series, low=low, high=high)
        elif ends is not None:
            series = replace(series, low=column(members, ends[0]), high=column(members, ends[1]))
        result.append(series)
    return tuple(result)


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A published table or figure beside our numbers.

    Arguments:
        title, note: what it is, and what to know when comparing.
        rows: one mapping per line.
        series: what to draw.
        x_label, y_label, log_x, log_y: the axes, of all panels or of each. Where values lie below
            the range of floats, heights are their log10 and the label says so.
    """

    title: str
    note: str
    rows: tuple[JsonObject, ...]
    series: tuple[Series, ...] = ()
    x_label: str | tuple[str, ...] = ""
    y_label: str | tuple[str, ...] = ""
    log_x: bool | tuple[bool, ...] = False
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
        section = report.Section(
            title="Recomputed",
            figures=self._figures(),
            table=table,
        )
        return report.Page(title=self.title, summary=self.note, sections=(section,))

    def drawing(self) -> Drawing:
        """All panels, or the rows where there are no curves, as a matplotlib figure."""
        page = self.page()
        return report.sheet(page.figures, title=self.title, table=page.sections[0].table)

    def png(self, path: str | Path) -> None:
        """Draws it into a PNG file."""
        self.drawing().savefig(path, format="png")

    def html(self, path: str | Path) -> None:
        """Writes an HTML page that needs no network."""
        pieces = tuple(piece for series in self.series for piece in series.pieces())
        page = replace(self, series=pieces).page()
        Path(path).write_text(report.html_page(page), encoding="utf-8")

    def _figures(self) -> tuple[report.Figure, ...]:
        panels: dict[str, list[report.Curve]] = {}
        for series in self.series:
            panels.setdefault(series.panel, []).append(series.curve())
        return tuple(
            report.Figure(
                key=f"panel-{position + 1}",
                title=name,
                x_label=_of_panel(self.x_label, position),
                y_label=_of_panel(self.y_label, position),
                curves=tuple(panels[name]),
                log_x=_of_panel(self.log_x, position),
                log_y=_of_panel(self.log_y, position),
            )
            for position, name in enumerate(panels)
        )


def _of_panel(setting: SettingT | tuple[SettingT, ...], position: int) -> SettingT:
    if isinstance(setting, tuple):
        return setting[position]
    return setting


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return str(value)


@final
@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a reproduction that is recomputed by itself, to see whether what is stored still
    holds.

    Arguments:
        key: its name among the parts.
        seconds: what it costs, roughly.
        rows: computes rows, or columns of rows, of the reproduction. Each belongs to the one stored
            row that has the same words and whole numbers; where it has `RUNS`, these are the first
            runs of that row.
        relative, absolute: how far a number may lie from the stored one: rounding, a solver's gap,
            one test record.
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
            count = sum(self._agrees(row, candidate) for candidate in stored)
            if count != 1:
                problems.append(f"{self.key}: {count} stored rows agree with {row}")
        return tuple(problems)

    def _agrees(self, row: JsonObject, stored: JsonObject) -> bool:
        for name, value in row.items():
            # Where single runs are compared, all other columns say which row it is.
            allowed = self.absolute if name == RUNS or RUNS not in row else 0.0
            if name not in stored or not self._is_near(value, stored[name], allowed):
                return False
        return True

    def _is_near(self, value: object, stored: object, allowed: float) -> bool:
        if isinstance(value, list | tuple):
            values = cast("Sequence[object]", value)
            if not isinstance(stored, list | tuple):
                return False
            first = cast("Sequence[object]", stored)[: len(values)]
            if len(first) < len(values):
                return False
            pairs = zip(values, first, strict=True)
            return all(self._is_near(number, earlier, allowed) for number, earlier in pairs)
        if isinstance(value, float) and math.isfinite(value) and isinstance(stored, int | float):
            return math.isclose(value, stored, rel_tol=self.relative, abs_tol=allowed)
        return plain(value) == stored


def row_part(
    key: str,
    seconds: float,
    compute: Callable[[], JsonObject],
) -> Part:
    """A part that is one row."""
    return Part(key=key, seconds=seconds, rows=lambda: [compute()])


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """A table or figure that can be recomputed.

    Arguments:
        name: on the command line.
        compute: called with a `Run` where it takes options, else with nothing; its first line
            describes it.
        options: fields of `Run` that it heeds.
        data: what its option `data` names: "mnist" (four idx files), "femnist" (by writer) or
            "cifar10".
        parts: from where the data lie, or None, to what is checked; without it the whole is.
    """

    name: str
    compute: Callable[..., Reproduction]
    options: tuple[str, ...] = ()
    data: str = ""
    parts: Callable[[str | None], tuple[Part, ...]] | None = None

    def run(self, run: Run) -> Reproduction:
        """Recomputes it."""
        if self.options:
            return self.compute(run)
        return self.compute()

    def checked_parts(self, data: str | None) -> tuple[Part, ...]:
        """The parts, or the whole where that is as cheap."""
        if self.parts is not None:
            return self.parts(data)
        whole = Part(
            key="all",
            seconds=3.0,
            rows=lambda: self.run(Run()).rows,
            relative=1e-6,
        )
        return (whole,)
