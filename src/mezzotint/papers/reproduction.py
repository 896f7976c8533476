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
        chosen_count = usual if requested is None else requested
        return min(chosen_count, quick_count) if self.quick else chosen_count


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
        gap_positions = [
            position for position, coordinate in enumerate(self.x) if math.isnan(coordinate)
        ]
        if not gap_positions:
            return (self,)
        piece_starts = [0, *(gap_position + 1 for gap_position in gap_positions)]
        piece_ends = [*gap_positions, len(self.x)]
        return tuple(
            replace(
                self,
                name=f"{self.name}, {piece_number}",
                x=self.x[piece_start:piece_end],
                y=self.y[piece_start:piece_end],
            )
            for piece_number, (piece_start, piece_end) in enumerate(
                zip(piece_starts, piece_ends, strict=True), start=1
            )
        )

    def curve(self) -> report.Curve:
        """What is drawn; an interval that reaches down to nothing ends at the lowest point."""
        finite_heights = filter(math.isfinite, (*self.y, *self.low))
        lowest_height = min(finite_heights, default=0.0)
        return report.Curve(
            name=self.name,
            x=self.x,
            y=self.y,
            low=tuple(max(interval_end, lowest_height) for interval_end in self.low),
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
) -> tuple[Series, ...]:
    """A curve through the rows of each panel and name, in order of appearance.

    Arguments:
        rows: of a reproduction; those without a number in the column `y` are left out.
        x, y: columns.
        name, panel: patterns that a row's columns fill in, as "epsilon = {epsilon:g}".
        error: column of what is drawn on both sides of y.
    """
    rows_by_curve: dict[tuple[str, str], list[JsonObject]] = {}
    for figure_row in rows:
        if figure_row[y] is not None:
            panel_and_name = (panel.format_map(figure_row), name.format_map(figure_row))
            rows_by_curve.setdefault(panel_and_name, []).append(figure_row)

    def column(members: Sequence[JsonObject], header: str) -> tuple[float, ...]:
        return tuple(float(figure_row[header]) for figure_row in members)

    drawn_curves: list[Series] = []
    for (panel_name, curve_name), members in rows_by_curve.items():
        heights = column(members, y)
        drawn_curve = Series(
            panel=panel_name,
            name=curve_name,
            x=column(members, x),
            y=heights,
        )
        if error:
            heights_and_errors = tuple(zip(heights, column(members, error), strict=True))
            lower_ends = tuple(height - spread for height, spread in heights_and_errors)
            upper_ends = tuple(height + spread for height, spread in heights_and_errors)
            drawn_curve = replace(drawn_curve, low=lower_ends, high=upper_ends)
        drawn_curves.append(drawn_curve)
    return tuple(drawn_curves)


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
        column_names = dict.fromkeys(
            column_name for figure_row in self.rows for column_name in figure_row
        )
        return tuple(column_name for column_name in column_names if column_name != RUNS)

    def as_dict(self) -> JsonObject:
        """Title, note and rows as plain values."""
        return {
            "title": self.title,
            "note": self.note,
            "rows": [dict(figure_row) for figure_row in self.rows],
        }

    def page(self) -> report.Page:
        """Figures and rows as a page."""
        table_cells = tuple(
            tuple(_cell(figure_row.get(column_name)) for column_name in self.columns)
            for figure_row in self.rows
        )
        page_table = report.Table(headings=self.columns, rows=table_cells)
        section = report.Section(
            title="Recomputed",
            figures=self._figures(),
            table=page_table,
        )
        return report.Page(title=self.title, summary=self.note, sections=(section,))

    def drawing(self) -> Drawing:
        """All panels, or the rows where there are no curves, as a matplotlib figure."""
        report_page = self.page()
        return report.sheet(
            report_page.figures, title=self.title, table=report_page.sections[0].table
        )

    def png(self, path: str | Path) -> None:
        """Draws it into a PNG file."""
        self.drawing().savefig(path, format="png")

    def html(self, path: str | Path) -> None:
        """Writes an HTML page that needs no network."""
        unbroken_series = tuple(
            unbroken for drawn_series in self.series for unbroken in drawn_series.pieces()
        )
        report_page = replace(self, series=unbroken_series).page()
        Path(path).write_text(report.html_page(report_page), encoding="utf-8")

    def _figures(self) -> tuple[report.Figure, ...]:
        curves_by_panel: dict[str, list[report.Curve]] = {}
        for drawn_series in self.series:
            curves_by_panel.setdefault(drawn_series.panel, []).append(drawn_series.curve())
        return tuple(
            report.Figure(
                key=f"panel-{position + 1}",
                title=panel_name,
                x_label=_of_panel(self.x_label, position),
                y_label=_of_panel(self.y_label, position),
                curves=tuple(curves_by_panel[panel_name]),
                log_x=_of_panel(self.log_x, position),
                log_y=_of_panel(self.log_y, position),
            )
            for position, panel_name in enumerate(curves_by_panel)
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
        for computed_row in self.rows():
            agreeing_rows = sum(self._agrees(computed_row, candidate) for candidate in stored)
            if agreeing_rows != 1:
                problems.append(
                    f"{self.key}: {agreeing_rows} stored rows agree with {computed_row}"
                )
        return tuple(problems)

    def _agrees(self, row: JsonObject, stored: JsonObject) -> bool:
        for column_name, computed_value in row.items():
            # Where single runs are compared, all other columns say which row it is.
            allowed = self.absolute if column_name == RUNS or RUNS not in row else 0.0
            if column_name not in stored or not self._is_near(
                computed_value, stored[column_name], allowed
            ):
                return False
        return True

    def _is_near(self, value: object, stored: object, allowed: float) -> bool:
        if isinstance(value, list | tuple):
            computed_values = cast("Sequence[object]", value)
            if not isinstance(stored, list | tuple):
                return False
            stored_values = cast("Sequence[object]", stored)[: len(computed_values)]
            if len(stored_values) < len(computed_values):
                return False
            value_pairs = zip(computed_values, stored_values, strict=True)
            return all(
                self._is_near(computed_number, earlier, allowed)
                for computed_number, earlier in value_pairs
            )
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
        whole_figure = Part(
            key="all",
            seconds=3.0,
            rows=lambda: self.run(Run()).rows,
            relative=1e-6,
        )
        return (whole_figure,)
