"""What a page holds, as plain data, and the page as one HTML file that needs no network.

Sections of words, tables, figures and a slider; figures are drawn by a bundled plotly.js.
"""

from __future__ import annotations

import html
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Literal, TypeAlias, cast, final

from mezzotint.core.records import Json, JsonObject

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
    """

    name: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    style: Style = "line"

    @classmethod
    def of(cls, name: str, x: Iterable[float] | Iterable[str], y: Iterable[float], style: Style = "line") -> Curve:
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
    """

    key: str
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = False

    @classmethod
    def of(cls, key: str, title: str, axes: tuple[str, str], *curves: Curve, log: str = "") -> Figure:
        """From the labels of both axes and the curves; `log` names the logarithmic axes: "x", "y" or "xy"."""
        along, up = axes
        return cls(key=key, title=title, x_label=along, y_label=up, curves=curves, log_x="x" in log, log_y="y" in log)


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

    @classmethod
    def of(cls, facts: Mapping[str, object], what: str = "what", show: Callable[[object], str] = str) -> Table:
        """Of names and values."""
        rows = tuple((name.replace("_", " "), show(value)) for name, value in facts.items())
        return cls(headings=(what, "value"), rows=rows)


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


COLOURS = ("#3277c0", "#b5481b", "#3c7a3b", "#7a4b94", "#8a6d1d", "#39808a")
GREY = "#777777"
HEIGHT = 360
_FONT = {"family": "system-ui, sans-serif", "size": 13}


def _layout(title: str, x: JsonObject, y: JsonObject) -> JsonObject:
    grid = {"gridcolor": "#e4e4e4", "zerolinecolor": "#cccccc", "automargin": True}
    return {
        "title": {"text": title, "font": {"size": 15}, "x": 0.01, "xanchor": "left", "y": 0.97, "yanchor": "top"},
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
    data = [trace for place, curve in enumerate(figure.curves) for trace in _traces(curve, place)]
    along = {"title": {"text": figure.x_label}, **_scale(figure.log_x)}
    up = {"title": {"text": figure.y_label}, **_scale(figure.log_y)}
    if names_things(figure):
        for trace in data:
            trace["x"], trace["y"] = trace["y"], [_wrapped(name) for name in trace["x"]]
            if trace["type"] == "scatter":
                trace["line"]["color"] = COLOURS[1]
            else:
                trace["orientation"] = "h"
                if "error_y" in trace:
                    trace["error_x"] = trace.pop("error_y")
        along, up = up, {"title": {"text": figure.x_label}, "type": "category", "autorange": "reversed"}
        up["tickfont"] = {"size": 11}
    layout = _layout(figure.title, along, up)
    layout["showlegend"] = len(figure.curves) > 1
    layout["height"] = height_of(figure)
    if layout["showlegend"]:  # one name a line below the title, as where the window is narrow
        layout["margin"]["t"] = max(layout["margin"]["t"], 34 + 19 * len(figure.curves))
    return {"data": data, "layout": layout}


def height_of(figure: Figure) -> int:
    """Pixels: bars that stand for things take a line each."""
    return max(HEIGHT, 120 + 22 * max(len(curve.x) for curve in figure.curves)) if names_things(figure) else HEIGHT


def names_things(figure: Figure) -> bool:
    """True when positions are words."""
    return any(isinstance(x, str) for curve in figure.curves for x in curve.x[:1])


def _wrapped(name: str) -> str:
    return "<br>".join(textwrap.wrap(name, 18))


def _scale(logarithmic: bool) -> JsonObject:
    return {"type": "log", "dtick": 1} if logarithmic else {"type": "linear", "exponentformat": "e"}


def _traces(curve: Curve, place: int) -> list[JsonObject]:
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
        return [{**trace, "type": "bar", "marker": {"color": colour}}]
    dash = "dash" if curve.style == "dashed" else "solid"
    return [{**trace, "type": "scatter", "mode": "lines", "line": {"color": colour, "dash": dash, "width": 2}}]


def slider_json(slider: Slider) -> JsonObject:
    """`data` and `layout` of the slider's bars at its middle input, and the rest that its script needs."""
    middle = len(slider.inputs) // 2
    gaps = [right - left for left, right in zip(slider.levels, slider.levels[1:], strict=False)]
    spread = slider.levels[-1] - slider.levels[0]
    width = max(0.8 * min(gaps), spread / 150)
    bars = {
        "x": list(slider.levels),
        "y": list(slider.frames[middle]),
        "type": "bar",
        "name": "probability",
        "marker": {"color": COLOURS[0]},
        "width": width,
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
    layout["shapes"] = [mark(slider.inputs[middle])]
    return {
        "data": [bars],
        "layout": layout,
        "inputs": list(slider.inputs),
        "frames": [list(frame) for frame in slider.frames],
        "means": list(slider.means),
        "deviations": list(slider.deviations),
        "start": middle,
    }


def mark(x: float) -> JsonObject:
    """A vertical line at an input."""
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": COLOURS[1], "width": 2, "dash": "dot"},
    }


# What the browser may do is in the page itself: no connection to anywhere, so that nothing about the data or its
# reader can leave, and a forgotten link to a library would fail in the tests.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)

STYLE = """
:root { color-scheme: light dark; --ink: #222; --page: #fff; --quiet: #595959; --line: #ddd; --code: #f5f5f5;
  --link: #1f5fa8; --own: #eaf1f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e4; --page: #17191d; --quiet: #b0b0b0; --line: #3d4148;
  --code: #22252b; --link: #8fb9ea; --own: #1e2c3d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 0 16px 64px; font: 16px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--page); }
a { color: var(--link); }
h1 { margin: 28px 0 4px; font-size: 1.7rem; overflow-wrap: anywhere; }
h2 { margin: 40px 0 8px; font-size: 1.25rem; border-bottom: 1px solid var(--line); }
p { max-width: 75ch; overflow-wrap: anywhere; }
.summary { font-size: 1.1rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 12px; }
.figure { min-width: 0; } .slider .figure { height: 360px; }
.slider input { width: 100%; }
.scroll { overflow-x: auto; margin-top: 14px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.93rem; }
th, td { padding: 4px 14px 4px 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
td:first-child { min-width: 8em; }
.number { text-align: right; }
.own td { background: var(--own); font-weight: 600; }
pre { background: var(--code); padding: 12px; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.9rem; }
footer { margin-top: 48px; color: var(--quiet); font-size: 0.85rem; }
"""

SCRIPT = """
const figures = JSON.parse(document.getElementById('figures').textContent);
const quiet = {responsive: true, displayModeBar: false};
const drawn = [];
const dark = window.matchMedia('(prefers-color-scheme: dark)');
const colours = () => {
  const grid = dark.matches ? '#3d4148' : '#e4e4e4';
  const zero = dark.matches ? '#5c616b' : '#cccccc';
  return {paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    'font.color': dark.matches ? '#e4e4e4' : '#222222', 'xaxis.gridcolor': grid, 'yaxis.gridcolor': grid,
    'xaxis.zerolinecolor': zero, 'yaxis.zerolinecolor': zero};
};
dark.addEventListener('change', () => {
  for (const key of Object.keys(figures)) Plotly.relayout(document.getElementById(key), colours());
});
for (const [key, one] of Object.entries(figures)) {
  const place = document.getElementById(key);
  drawn.push(Plotly.newPlot(place, one.data, one.layout, quiet).then(() => Plotly.relayout(place, colours())));
  if (!one.frames) continue;
  const handle = document.getElementById(key + '-input');
  const says = document.getElementById(key + '-says');
  const show = () => {
    const i = Number(handle.value);
    const x = one.inputs[i];
    Plotly.update(place, {y: [one.frames[i]]}, {'shapes[0].x0': x, 'shapes[0].x1': x});
    says.textContent = 'input ' + x.toPrecision(4) + ': mean of the decoded report ' + one.means[i].toPrecision(4) +
      ', standard deviation ' + one.deviations[i].toPrecision(4);
  };
  handle.addEventListener('input', show);
  show();
}
Promise.all(drawn).then(() => {
  document.getElementById('js-plotly-tester')?.setAttribute('aria-hidden', 'true');  // plotly measures texts in it
  document.body.dataset.ready = 'yes';
});
const attached = document.getElementById('attachment');
if (attached) {
  const link = document.getElementById('save');
  link.href = URL.createObjectURL(new Blob([JSON.parse(attached.textContent)], {type: 'application/json'}));
}
"""


def html_page(page: Page) -> str:
    """The whole page as text; it holds everything it needs and its policy forbids it to load anything."""
    figures: JsonObject = {slider.key: slider_json(slider) for slider in page.sliders}
    figures |= {figure.key: figure_json(figure) for figure in page.figures}
    title, summary = html.escape(page.title), html.escape(page.summary)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<link rel="icon" href="data:,"><title>{title}</title><style>{STYLE}</style></head><body><main>',
            f'<h1>{title}</h1><p class="summary">{summary}</p>',
            *(_section(section) for section in page.sections),
            _attachment(page),
            "</main><footer>Made by mezzotint. This page is one file and loads nothing; figures are drawn by plotly.js "
            "(MIT licence), which it contains.</footer>",
            f'<script type="application/json" id="figures">{embedded(figures)}</script>',
            f"<script>{_library()}</script><script>{SCRIPT}</script></body></html>",
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


def _library() -> str:
    return resources.files("mezzotint.report").joinpath("assets", "plotly-basic.min.js").read_text(encoding="utf-8")


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
    numeric = [all(map(_is_number, column)) for column in zip(*table.rows, strict=True)]
    looks = [' class="number"' if right else "" for right in numeric] or [""] * len(table.headings)
    heads = zip(looks, table.headings, strict=True)
    head = "".join(f'<th scope="col"{look}>{html.escape(heading)}</th>' for look, heading in heads)
    rows = (
        "".join(f"<td{look}>{html.escape(cell)}</td>" for look, cell in zip(looks, row, strict=True))
        for row in table.rows
    )
    own = ' class="own" aria-current="true"'
    body = "".join(f"<tr{own if i == table.own else ''}>{row}</tr>" for i, row in enumerate(rows))
    about = html.escape(", ".join(table.headings), quote=True)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{about}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[-+]?[\d,.]+(e[-+]?\d+)?( ?%)?|inf|-|", cell) is not None


def _attachment(page: Page) -> str:
    if page.attachment is None:
        return ""
    name, text = page.attachment
    shown = html.escape(name, quote=True)
    return (
        f'<p><a id="save" download="{shown}" href="#">Save {shown}</a>: the mechanism file, as it is in this page.</p>'
        f'<script type="application/json" id="attachment">{embedded(text)}</script>'
    )
