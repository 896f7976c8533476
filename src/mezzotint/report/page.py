"""What a page holds, as plain data; the page as one HTML file that needs no network; and its figures as PNG files."""

from __future__ import annotations

import html
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, final

import numpy as np

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import refuse_existing, replacing
from mezzotint.core.records import Json, JsonObject

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


Style: TypeAlias = Literal["line", "dashed", "bars"]


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

    @classmethod
    def of(
        cls,
        name: str,
        x: Iterable[float] | Iterable[str],
        y: Iterable[float],
        style: Style = "line",
    ) -> Curve:
        """The points that are finite."""
        kept = [
            (a if isinstance(a, str) else float(a), float(b))
            for a, b in zip(x, y, strict=True)
            if math.isfinite(b) and (isinstance(a, str) or math.isfinite(a))
        ]
        places = cast("tuple[float, ...]", tuple(a for a, _ in kept))
        return cls(name=name, x=places, y=tuple(b for _, b in kept), style=style)


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """Curves over one pair of axes.

    Arguments:
        key: short name, used for file names; title: what is drawn.
        x_label, y_label: the axes with their units; log_x, log_y: logarithmic ones.

    Example:
        >>> curve = mz.report.Curve(name="error", x=(1.0, 2.0), y=(4.0, 0.8))
        >>> figure = mz.report.Figure(key="error", title="Error", x_label="epsilon", y_label="MSE", curves=(curve,))
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
        """From the labels of both axes and the curves; `log` names the logarithmic axes: "x", "y" or "xy"."""
        along, up = axes
        return cls(
            key=key,
            title=title,
            x_label=along,
            y_label=up,
            curves=curves,
            log_x="x" in log,
            log_y="y" in log,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Slider:
    """The distribution of one report, drawn for the input to which the reader moves a slider; data units throughout.

    Arguments:
        key: its name on the page and in files; title: its heading.
        inputs: (S,) places of the slider.
        levels: (m,) positions of the bars.
        frames: (S,) probabilities of the m levels, one tuple for each input.
        means, deviations: (S,) mean and standard deviation of the report at each input.

    Example:
        >>> from mezzotint.report.page import Slider
        >>> frames = ((0.75, 0.25), (0.25, 0.75))
        >>> slider = Slider(
        ...     key="bit", title="One bit", inputs=(-0.5, 0.5), levels=(-1.0, 1.0), frames=frames, means=(-0.5, 0.5),
        ...     deviations=(0.75**0.5, 0.75**0.5),
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
        return max(
            0.8 * float(np.diff(self.levels).min()), (self.levels[-1] - self.levels[0]) / 150
        )


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells of text under headings; `own` is the row that the page is about.

    Arguments:
        headings: (k,) words.
        rows: (n,) rows of k cells.
        own: index of the row that the page is about, or None.

    Example:
        >>> table = mz.report.Table(headings=("epsilon", "error"), rows=(("1", "4.0"), ("2", "0.8")), own=1)
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
        rows = tuple((name.replace("_", " "), show(value)) for name, value in facts.items())
        return cls(headings=(what, "value"), rows=rows)


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


COLOURS = ("#3277c0", "#b5481b", "#3c7a3b", "#7a4b94", "#8a6d1d", "#39808a")
GREY = "#777777"
HEIGHT = 360
_FONT = {"family": "system-ui, sans-serif", "size": 13}


def _layout(title: str, x: JsonObject, y: JsonObject) -> JsonObject:
    grid = {"gridcolor": "#e4e4e4", "zerolinecolor": "#cccccc", "automargin": True}
    return {
        "title": {
            "text": title,
            "font": {"size": 15},
            "x": 0.01,
            "xanchor": "left",
            "y": 0.97,
            "yanchor": "top",
        },
        "xaxis": {**grid, **x},
        "yaxis": {**grid, **y},
        "font": _FONT,
        "height": HEIGHT,
        "margin": {"l": 55, "r": 12, "t": 72, "b": 48},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        "hovermode": "closest",
    }


def figure_json(figure: Figure) -> JsonObject:
    """`data` and `layout` of a figure. Bars that stand for things lie: their names need the room."""
    data = [_trace(curve, place) for place, curve in enumerate(figure.curves)]
    linear, logarithmic = (
        {"type": "linear", "exponentformat": "e"},
        {"type": "log", "dtick": 1, "exponentformat": "power"},
    )
    along = {"title": {"text": figure.x_label}, **(logarithmic if figure.log_x else linear)}
    up = {"title": {"text": figure.y_label}, **(logarithmic if figure.log_y else linear)}
    if names_things(figure):
        for trace in data:
            trace["x"], trace["y"] = (
                trace["y"],
                ["<br>".join(textwrap.wrap(name, 18)) for name in trace["x"]],
            )
            if trace["type"] == "scatter":
                trace["line"]["color"] = COLOURS[1]
            else:
                trace["orientation"] = "h"
                if "error_y" in trace:
                    trace["error_x"] = trace.pop("error_y")
        along, up = (
            up,
            {"title": {"text": figure.x_label}, "type": "category", "autorange": "reversed"},
        )
        up["tickfont"] = {"size": 11}
    layout = _layout(figure.title, along, up)
    layout["showlegend"] = len(figure.curves) > 1
    layout["height"] = height_of(figure)
    if layout["showlegend"]:  # one name a line below the title, as where the window is narrow
        layout["margin"]["t"] = max(layout["margin"]["t"], 34 + 19 * len(figure.curves))
    return {"data": data, "layout": layout}


def height_of(figure: Figure) -> int:
    """Pixels: bars that stand for things take a line each."""
    return (
        max(HEIGHT, 120 + 22 * max(len(curve.x) for curve in figure.curves))
        if names_things(figure)
        else HEIGHT
    )


def names_things(figure: Figure) -> bool:
    """True when positions are words."""
    return any(isinstance(x, str) for curve in figure.curves for x in curve.x[:1])


def _trace(curve: Curve, place: int) -> JsonObject:
    colour = GREY if curve.style == "dashed" else COLOURS[place % len(COLOURS)]
    trace: JsonObject = {"x": list(curve.x), "y": list(curve.y), "name": curve.name}
    if curve.low:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "color": GREY,  # seen on light and on dark pages
            "array": [high - y for y, high in zip(curve.y, curve.high, strict=True)],
            "arrayminus": [y - low for y, low in zip(curve.y, curve.low, strict=True)],
        }
    if curve.style == "bars":
        return {**trace, "type": "bar", "marker": {"color": colour}}
    line = {"color": colour, "dash": "dash" if curve.style == "dashed" else "solid", "width": 2}
    return {**trace, "type": "scatter", "mode": "lines", "line": line}


def slider_json(slider: Slider) -> JsonObject:
    """`data` and `layout` of the slider's bars at its middle input, and the rest that its script needs."""
    middle = len(slider.inputs) // 2
    bars = {
        "x": list(slider.levels),
        "y": list(slider.frames[middle]),
        "type": "bar",
        "name": "probability",
        "marker": {"color": COLOURS[0]},
        "width": slider.width,
        "hovertemplate": "level %{x:.5g}: %{y:.6g}<extra></extra>",
    }
    top = max(max(frame) for frame in slider.frames)
    layout = _layout(
        slider.title,
        {"title": {"text": "decoded report (data units)"}},
        {"title": {"text": "probability"}, "range": [0, 1.05 * top]},
    )
    layout["showlegend"] = False
    layout["margin"]["t"] = 44
    ends = {"x0": slider.inputs[middle], "x1": slider.inputs[middle], "y0": 0, "y1": 1}
    line = {"color": COLOURS[1], "width": 2, "dash": "dot"}
    layout["shapes"] = [{"type": "line", "yref": "paper", **ends, "line": line}]
    moved = {name: getattr(slider, name) for name in ("inputs", "frames", "means", "deviations")}
    return {"data": [bars], "layout": layout, **moved, "start": middle}


# What the browser may do is in the page itself: no connection to anywhere, so that nothing about the data or its
# reader can leave, and a forgotten link to a library would fail in the tests.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"


def html_page(page: Page) -> str:
    """The page as text; it contains everything it needs, and its policy forbids it to load anything.

    Arguments:
        page: the report.

    Returns: HTML.

    Example:
        >>> page = mz.report.mechanism_page(mz.families.randomized_response(epsilon=1.0))
        >>> mz.report.html_page(page).rstrip().endswith("</html>")
        True
    """
    figures: JsonObject = {slider.key: slider_json(slider) for slider in page.sliders}
    figures |= {figure.key: figure_json(figure) for figure in page.figures}
    title, summary = html.escape(page.title), html.escape(page.summary)
    style, library, script = map(asset, ("page.css", "plotly-basic.min.js", "page.js"))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head><body><main>',
            f'<h1>{title}</h1><p class="summary">{summary}</p>',
            *(_section(section) for section in page.sections),
            *([] if page.attachment is None else [_attachment(*page.attachment)]),
            "</main><footer>Made by mezzotint. This page is one file and loads nothing; figures are drawn by plotly.js "
            "(MIT licence), which it contains.</footer>",
            f'<script type="application/json" id="figures">{embedded(figures)}</script>',
            f"<script>{library}</script><script>{script}</script></body></html>",
        ]
    )


def embedded(value: Json) -> str:
    """JSON that can stand inside a script element, whatever texts it holds; numbers to 9 digits."""
    text = json.dumps(_rounded(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Json) -> Json:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def asset(name: str) -> str:
    """The text of a style sheet or script that goes into pages."""
    return resources.files("mezzotint.report").joinpath("assets", name).read_text(encoding="utf-8")


def _section(section: Section) -> str:
    parts = [f"<section><h2>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(words)}</p>" for words in section.words]
    if section.slider is not None:
        key, last = section.slider.key, len(section.slider.inputs) - 1
        parts.append(
            f'<div class="slider"><div class="figure" id="{key}" {_named(section.slider.title)}></div>'
            f'<input type="range" id="{key}-input" min="0" max="{last}" value="{last // 2}" aria-label="input" '
            f'aria-describedby="{key}-says"><p id="{key}-says" aria-live="polite"></p></div>'
        )
    if section.figures:
        inner = "".join(
            f'<div class="figure" id="{figure.key}" {_named(figure.title)} style="height: {height_of(figure)}px"></div>'
            for figure in section.figures
        )
        parts.append(f'<div class="figures">{inner}</div>')
    if section.table is not None:
        parts.append(_table(section.table))
    if section.code:
        parts.append(f"<pre>{html.escape(section.code)}</pre>")
    return "\n".join([*parts, "</section>"])


def _named(title: str) -> str:
    """A chart's accessible name."""
    return f'role="img" aria-label="{html.escape(title, quote=True)}"'


def _table(table: Table) -> str:
    """Columns of numbers stand at the right."""
    columns = zip(*table.rows, strict=True)
    looks = [' class="number"' if all(map(_NUMBER.fullmatch, column)) else "" for column in columns]
    looks = looks or [""] * len(table.headings)
    heads = zip(looks, table.headings, strict=True)
    head = "".join(f'<th scope="col"{look}>{html.escape(heading)}</th>' for look, heading in heads)
    rows = (
        "".join(
            f"<td{look}>{html.escape(cell)}</td>" for look, cell in zip(looks, row, strict=True)
        )
        for row in table.rows
    )
    own = ' class="own" aria-current="true"'
    body = "".join(f"<tr{own if i == table.own else ''}>{row}</tr>" for i, row in enumerate(rows))
    about = html.escape(", ".join(table.headings), quote=True)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{about}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?( ?%)?|inf|-|")


def _attachment(name: str, text: str) -> str:
    shown = html.escape(name, quote=True)
    return (
        f'<p><a id="save" download="{shown}" href="#">Save {shown}</a>: the file, as it is in this page.</p>'
        f'<script type="application/json" id="attachment">{embedded(text)}</script>'
    )


MARKERS = "os^DvP"
MOST_ABOVE = 2
"""The most lines on top of another for which that one is widened: beyond, no width would show them all."""

DASHES = ("--", ":", "-.")
FEW = 40
"""The most points of a curve that are marked, so that overlapping lines can be distinguished."""


def write_png(page: Page, folder: Path, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Draws every figure, and every slider at its two ends and its middle, into a folder.

    Arguments:
        folder: an existing folder; files are named by the figures' keys.
        overwrite: whether files that are there may be replaced.
    Returns: the files written.
    Raises:
        ParameterError: no such folder, or a file is there already; then nothing is drawn.
    Example:
        >>> from pathlib import Path
        >>> page = mz.report.mechanism_page(mz.families.randomized_response(epsilon=1.0))
        >>> written = mz.report.write_png(page, Path("."))
        >>> {path.suffix for path in written}
        {'.png'}
    """
    if not folder.is_dir():
        raise ParameterError("png", str(folder), "no such folder; create it first")
    drawn = {folder / f"{slider.key}.png": _draw_slider(slider) for slider in page.sliders}
    for figure in page.figures:
        drawing = drawn[folder / f"{figure.key}.png"] = _drawing(
            6.4, 4.2 * height_of(figure) / HEIGHT
        )
        _draw_onto(drawing.subplots(), figure, _looks([figure]))
    for path in drawn:
        refuse_existing(path, overwrite=overwrite, parameter="png")
    for path, drawing in drawn.items():
        with replacing(path, overwrite=overwrite, parameter="png") as temporary:
            drawing.savefig(temporary, format="png", dpi=130)
    return tuple(drawn)


def sheet(figures: Sequence[Figure], *, title: str = "", table: Table | None = None) -> Drawing:
    """Figures side by side as one drawing, or a table where there are none.

    Arguments:
        figures: in reading order, three to a line. One legend below explains them: a name looks the same everywhere.
        title: above all of them; of a single figure it replaces the figure's own.
        table: drawn where there are no figures.
    Returns: a matplotlib figure.
    Example:
        >>> curve = mz.report.Curve(name="error", x=(1.0, 2.0), y=(4.0, 0.8))
        >>> figure = mz.report.Figure(key="error", title="Error", x_label="epsilon", y_label="MSE", curves=(curve,))
        >>> drawing = mz.report.sheet([figure])
        >>> drawing.savefig("error.png")
    """
    columns = 2 if len(figures) == 4 else min(3, max(1, len(figures)))
    lines = -(-max(1, len(figures)) // columns)
    # As wide as a page of text shows it without making words small.
    size = (
        ({1: 7.4, 2: 10.4, 3: 12.6}[columns], {1: 4.6, 2: 4.2, 3: 3.9}[columns] * lines)
        if figures
        else (16.0, 5.0)
    )
    drawing = _drawing(*size)
    drawing.set_dpi(130)
    drawing.suptitle(textwrap.fill(title, round(10 * size[0])))
    looks = _looks(figures)
    for place, figure in enumerate(figures, start=1):
        axes = drawing.add_subplot(lines, columns, place)
        _draw_onto(axes, figure, looks, legend=len(figures) == 1)
        if len(figures) == 1 and title:
            axes.set_title("")
    if len(figures) > 1 and len(looks) > 1:
        found: JsonObject = {}
        for axes in drawing.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                if label not in found or _width(handle) < _width(
                    found[label]
                ):  # as it is where nothing lies on it
                    found[label] = handle
        inside = {"ncols": min(len(found), 2 * columns), "frameon": False}
        drawing.legend(found.values(), found, loc="outside lower center", **inside)
    if not figures and table is not None:
        axes = drawing.add_subplot()
        axes.axis("off")
        cells = [[textwrap.fill(cell, 30) for cell in row] for row in table.rows]
        drawn = axes.table(cellText=cells, colLabels=table.headings, loc="center", cellLoc="left")
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(7)
        drawn.scale(1.0, max(text.count("\n") for row in cells for text in row) + 1.0)
    return drawing


def _width(handle: Artist) -> float:
    """The width of a legend's line; 0 for bars."""
    return getattr(handle, "get_linewidth", lambda: 0.0)()


def _drawing(width: float, height: float) -> Drawing:
    with brought_by("report"):
        from matplotlib import figure as drawings
    return drawings.Figure(figsize=(width, height), layout="constrained")


def _draw_slider(slider: Slider) -> Drawing:
    drawing = _drawing(10, 3.4)
    drawing.suptitle(slider.title)
    for axes, i in zip(
        drawing.subplots(1, 3, sharey=True), (0, len(slider.inputs) // 2, -1), strict=True
    ):
        axes.bar(slider.levels, slider.frames[i], width=slider.width, color=COLOURS[0])
        axes.axvline(slider.inputs[i], color=COLOURS[1], linestyle=":")
        axes.set_title(f"input {slider.inputs[i]:.4g}", fontsize="medium")
        axes.set_xlabel("decoded report (data units)")
    drawing.axes[0].set_ylabel("probability")
    return drawing


def _looks(figures: Sequence[Figure]) -> dict[str, JsonObject]:
    """Colour, line and marker of every name, in order of appearance: bounds are grey and dashed."""
    found: dict[str, JsonObject] = {}
    grey = 0
    for curve in (curve for figure in figures for curve in figure.curves):
        if curve.name in found:
            continue
        place = len(found) - grey
        if curve.style == "dashed":
            found[curve.name] = {
                "color": GREY,
                "linestyle": DASHES[grey % len(DASHES)],
                "marker": "",
            }
            grey += 1
        else:
            look = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
            found[curve.name] = {**look, "linestyle": "-" if place < len(COLOURS) else "-."}
    return found


def _draw_onto(
    axes: Axes, figure: Figure, looks: dict[str, JsonObject], *, legend: bool = True
) -> None:
    lying = names_things(figure)
    for place, curve in enumerate(figure.curves):
        look = dict(looks[curve.name])
        if len(curve.x) > FEW:
            look["marker"] = ""
        above = (
            0
            if lying
            else sum(_coincide(curve, other, figure) for other in figure.curves[place + 1 :])
        )
        _draw_curve(axes, curve, look, min(above, MOST_ABOVE), lying=lying)
    axes.set_title(figure.title, fontsize="medium")
    axes.set_xlabel(figure.y_label if lying else figure.x_label)
    axes.set_ylabel(figure.x_label if lying else figure.y_label)
    if lying:
        axes.invert_yaxis()
    else:
        axes.set_xscale("log" if figure.log_x else "linear")
        axes.set_yscale("log" if figure.log_y else "linear")
    axes.grid(alpha=0.3)
    if legend and len(figure.curves) > 1:
        axes.legend(fontsize="small")


def _coincide(first: Curve, second: Curve, figure: Figure) -> bool:
    """Whether two lines lie within a fiftieth of the plot's height of each other, everywhere."""
    if "bars" in (first.style, second.style) or first.x != second.x:
        return False
    scale = np.log if figure.log_y else np.asarray
    heights = [scale(np.array(curve.y, dtype=np.float64)) for curve in figure.curves]
    span = max(float(np.nanmax(one)) for one in heights) - min(
        float(np.nanmin(one)) for one in heights
    )
    gap = scale(np.array(first.y, dtype=np.float64)) - scale(np.array(second.y, dtype=np.float64))
    return bool(np.nanmax(np.abs(gap)) <= span / 50)


def _draw_curve(axes: Axes, curve: Curve, look: JsonObject, above: int, *, lying: bool) -> None:
    """A line under `above` others that coincide with it is so much wider, and its markers are rings around theirs.

    `lying` are bars that stand for things, from top to bottom.
    """
    if lying and curve.style == "bars":
        axes.barh(curve.x, curve.y, color=look["color"], label=curve.name)
    elif lying:
        axes.plot(curve.y, curve.x, "--", color=COLOURS[1], label=curve.name)
    elif curve.style == "bars":
        width = (
            0.8 * float(np.diff(np.array(curve.x, dtype=np.float64)).min())
            if len(curve.x) > 1
            else 0.8
        )
        axes.bar(curve.x, curve.y, color=look["color"], label=curve.name, width=width)
    else:
        ring: JsonObject = {"markerfacecolor": "none"} if above else {}
        wide = {
            "linewidth": 1.6 + 2.4 * above,
            "markersize": 4 + 4 * above,
            "alpha": 0.55 if above else 1.0,
        }
        axes.plot(curve.x, curve.y, label=curve.name, **look, **wide, **ring)
    if curve.low:
        ends = np.maximum((np.subtract(curve.y, curve.low), np.subtract(curve.high, curve.y)), 0.0)
        if lying:
            axes.errorbar(curve.y, curve.x, xerr=ends, fmt="none", ecolor="#333333", capsize=3)
        else:
            axes.errorbar(
                curve.x, curve.y, yerr=ends, fmt="none", ecolor=look["color"], capsize=3, alpha=0.7
            )
