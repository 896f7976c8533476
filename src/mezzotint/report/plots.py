"""Figures as plotly's JSON: traces and layout, nothing computed."""

from __future__ import annotations

import textwrap

from mezzotint.core.records import JsonObject
from mezzotint.report.content import Curve, Figure, Slider

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
