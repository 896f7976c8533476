"""What a page holds, as plain data: sections of words, tables, figures and a slider. Drawing is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True, kw_only=True)
class Curve:
    """One curve, or one set of bars, of a figure.

    Arguments:
        name: its legend.
        x: positions, numbers; or words, for bars that stand for things.
        y: heights, one per position.
        low, high: the ends of an interval around each height, or empty.
        style: "line", "dashed" or "bars".
    """

    name: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    style: Literal["line", "dashed", "bars"] = "line"


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """Curves over one pair of axes.

    Arguments:
        key: short name, used for file names; title: what is drawn.
        x_label, y_label: the axes with their units; log_x, log_y: logarithmic ones.
    """

    key: str
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Slider:
    """The distribution of the report at a movable input.

    Arguments:
        key, title: as for `Figure`.
        inputs: (S,) data units; levels: (m,) decoded reports, data units.
        frames: (S, m) probability of each level at each input.
        means, deviations: (S,) of the decoded report, data units.
    """

    key: str
    title: str
    inputs: tuple[float, ...]
    levels: tuple[float, ...]
    frames: tuple[tuple[float, ...], ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells of text under headings; `own` is the row that the page is about."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    own: int | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, and under it paragraphs, then a slider, figures, a table, and lines to type."""

    title: str
    words: tuple[str, ...] = ()
    slider: Slider | None = None
    figures: tuple[Figure, ...] = ()
    table: Table | None = None
    code: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole report.

    Arguments:
        title, summary: what it is about, the one sentence to take away.
        sections: in reading order.
        attachment: (file name, text) that a reader can save from the page, or None.
    """

    title: str
    summary: str
    sections: tuple[Section, ...]
    attachment: tuple[str, str] | None = None

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures in reading order."""
        return tuple(figure for section in self.sections for figure in section.figures)

    @property
    def sliders(self) -> tuple[Slider, ...]:
        """All sliders in reading order."""
        return tuple(section.slider for section in self.sections if section.slider is not None)
