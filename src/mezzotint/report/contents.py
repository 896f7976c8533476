"""Data of a page: sections of paragraphs, figures, sliders, tables and lines to type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, final, get_args

import numpy as np

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import confidence_percent

Style: TypeAlias = Literal["line", "dashed", "bars"]
"""How a curve is drawn: by `svg`, whose classes figures.css styles, and by `drawings`.

Both draw it standing, over numbers, and lying, over words, and in legends: a new style needs each.
"""


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

    Raises:
        ParameterError: another style, or not one height (and interval) for each position.

    Example:
        >>> curve = mz.report.Curve(name="error", x=(1.0, 2.0), y=(4.0, 0.8))
        >>> curve.style
        'line'
    """

    name: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    style: Style = "line"

    def __post_init__(self) -> None:
        check_choice("style", self.style, get_args(Style))
        for name in ("y", "low", "high"):
            count = len(getattr(self, name))
            is_left_out = name != "y" and count == 0 and not self.low and not self.high
            if count != len(self.x) and not is_left_out:
                raise ParameterError(name, count, f"need one for each of {len(self.x)} positions")

    @classmethod
    def of(
        cls,
        name: str,
        x: Iterable[float] | Iterable[str],
        y: Iterable[float],
        style: Style = "line",
    ) -> Curve:
        """The points that are finite."""
        positions: list[float | str] = []
        heights: list[float] = []
        for position, height in zip(x, y, strict=True):
            is_named = isinstance(position, str)
            if not math.isfinite(height) or not (is_named or math.isfinite(position)):
                continue
            positions.append(position if is_named else float(position))
            heights.append(float(height))
        finite_positions = cast("tuple[float, ...]", tuple(positions))
        return cls(name=name, x=finite_positions, y=tuple(heights), style=style)

    @property
    def space(self) -> float:
        """Of the bars at one position, data units: most of the least distance between two."""
        ordered = sorted(cast("tuple[float, ...]", self.x))
        distances = [
            right_position - left_position
            for left_position, right_position in itertools.pairwise(ordered)
        ]
        return 0.8 * min((distance for distance in distances if distance > 0), default=1.0)


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """Curves over one pair of axes.

    Arguments:
        key: short name, used for file names; title: what is drawn.
        x_label, y_label: the axes with their units; log_x, log_y: logarithmic ones.

    Example:
        >>> curve = mz.report.Curve(name="error", x=(1.0, 2.0), y=(4.0, 0.8))
        >>> axes = {"x_label": "epsilon", "y_label": "MSE"}
        >>> figure = mz.report.Figure(key="error", title="Error", **axes, curves=(curve,))
        >>> len(figure.curves)
        1
    """

    key: str
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = False

    @classmethod
    def of(
        cls, key: str, title: str, axes: tuple[str, str], *curves: Curve, log: str = ""
    ) -> Figure:
        """From the labels of both axes and the curves.

        `log` names the logarithmic axes: "x", "y" or "xy".
        """
        horizontal_label, vertical_label = axes
        return cls(
            key=key,
            title=title,
            x_label=horizontal_label,
            y_label=vertical_label,
            curves=curves,
            log_x="x" in log,
            log_y="y" in log,
        )

    @property
    def names_things(self) -> bool:
        """Whether positions are words: bars then lie, as names need the space."""
        return any(
            isinstance(first_position, str)
            for curve in self.curves
            for first_position in curve.x[:1]
        )

    def bars(self, curve: Curve) -> tuple[tuple[float, ...], float]:
        """Left ends and width of a curve's bars, data units: sets of bars share the space of a
        position.
        """
        bar_sets = [bar_set for bar_set in self.curves if bar_set.style == "bars"]
        bar_width = curve.space / len(bar_sets)
        set_offset = bar_sets.index(curve) * bar_width - curve.space / 2
        positions = cast("tuple[float, ...]", curve.x)
        return tuple(position + set_offset for position in positions), bar_width


@final
@dataclass(frozen=True, kw_only=True)
class Slider:
    """The distribution of one report at the input to which the reader moves a slider.

    Data units throughout.

    Arguments:
        key: its name on the page and in files; title: its heading.
        inputs: (S,) places of the slider.
        levels: (m,) positions of the bars.
        frames: (S,) probabilities of the m levels, one tuple for each input.
        means, deviations: (S,) mean and standard deviation of the report at each input.

    Example:
        >>> from mezzotint.report.contents import Slider
        >>> frames = ((0.75, 0.25), (0.25, 0.75))
        >>> slider = Slider(
        ...     key="bit", title="One bit", inputs=(-0.5, 0.5), levels=(-1.0, 1.0), frames=frames,
        ...     means=(-0.5, 0.5), deviations=(0.75**0.5, 0.75**0.5),
        ... )
        >>> slider.width
        1.6
    """

    key: str
    title: str
    inputs: tuple[float, ...]
    levels: tuple[float, ...]
    frames: tuple[tuple[float, ...], ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    @property
    def width(self) -> float:
        """Of a bar, wide enough to be seen."""
        most_of_a_gap = 0.8 * float(np.diff(self.levels).min())
        visible = (self.levels[-1] - self.levels[0]) / 150
        return max(most_of_a_gap, visible)


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells of text under headings; `own` is the row that the page is about.

    Arguments:
        headings: (k,) words.
        rows: (n,) rows of k cells.
        own: index of the row that the page is about, or None.

    Example:
        >>> rows = (("1", "4.0"), ("2", "0.8"))
        >>> table = mz.report.Table(headings=("epsilon", "error"), rows=rows, own=1)
        >>> len(table.rows)
        2
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    own: int | None = None

    @classmethod
    def of(
        cls, facts: Mapping[str, object], what: str = "what", show: Callable[[object], str] = str
    ) -> Table:
        """Of names and values."""
        table_rows = tuple(
            (fact_name.replace("_", " "), show(fact_value))
            for fact_name, fact_value in facts.items()
        )
        return cls(headings=(what, "value"), rows=table_rows)


def interval_headings(confidence: float) -> tuple[str, str]:
    """Headings of a table for the two ends of an interval."""
    percentage = confidence_percent(confidence)
    return f"{percentage} low", f"{percentage} high"


def nearest_percent(share: float) -> str:
    """An accuracy as a percentage, rounded to nearest: only privacy numbers are rounded up."""
    return f"{100 * share:.4g} %"


@final
@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, and under it paragraphs, then a slider, figures, a table, and lines to type.

    Arguments:
        title: the heading.
        words: paragraphs.
        slider, figures, table, code: what stands below, in this order.

    Example:
        >>> section = mz.report.Section(title="Facts", words=("All is well.",))
        >>> section.figures
        ()
    """

    title: str
    words: tuple[str, ...] = ()
    slider: Slider | None = None
    figures: tuple[Figure, ...] = ()
    table: Table | None = None
    code: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Page:
    """A report.

    Arguments:
        title, summary: what it is about, the one sentence to take away.
        sections: in reading order.
        attachment: (file name, text) that a reader can save from the page, or None.

    Example:
        >>> section = mz.report.Section(title="Facts", words=("All is well.",))
        >>> page = mz.report.Page(title="Report", summary="One fact.", sections=(section,))
        >>> "All is well." in mz.report.html_page(page)
        True
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
