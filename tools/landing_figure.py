"""The figure on the first page: what a report of a few bits loses at each epsilon, and what its rivals lose.

`python tools/landing_figure.py` computes the points (minutes) and draws; `--draw` draws the stored points again. The
points stand in `docs/assets/privacy-error.json`, the figure beside them as SVG, for light and for dark pages, wide and
as narrow as a telephone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import ticker
from matplotlib.figure import Figure

import mezzotint as mz
from mezzotint.core.files import replacing

ASSETS = Path(__file__).resolve().parents[1] / "docs" / "assets"
POINTS = ASSETS / "privacy-error.json"
EPSILONS = (0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
BITS = (1, 2, 3)
RIVAL_BITS = 2
RIVALS = {
    "k_randomized_response": "k-ary randomized response",
    "pbm": "Poisson binomial (PBM)",
    "rqm": "randomized quantization (RQM)",
    "mvu": "minimum variance unbiased (MVU)",
    "laplace": "Laplace noise, not quantized",
}
TITLE = "Error at the same privacy, over the least possible"
INK = {"light": ("#1a1a1a", "#d0d0d0"), "dark": ("#e8e8e8", "#4a4d55")}
"""Text and grid, by the page's scheme."""
OURS = {"light": ("#9ecae1", "#4292c6", "#084594"), "dark": ("#2f6fa8", "#63aee0", "#c6e2f7")}
"""1, 2 and 3 bits: the more bits, the more contrast with the page."""
THEIRS = {
    "light": ("#b35806", "#8c510a", "#7b3294", "#1b7837", "#6b6b6b"),
    "dark": ("#fdae61", "#dfc27d", "#d6a8e8", "#7fd19b", "#a8a8a8"),
}
MARKERS = "vs^Do"
TICKS = (1, 1.5, 2, 3, 5, 10, 20, 50)


def points() -> list[dict[str, Any]]:
    """One record per curve and epsilon: `curve`, `epsilon`, `mse`; no `mse` where a family has no member."""
    found: list[dict[str, Any]] = []
    for row in mz.design.tradeoff(epsilons=EPSILONS, bits=BITS):
        found.append(
            {"curve": f"optimal, {row['bits']:g}", "epsilon": row["epsilon"], "mse": row["mse"]}
        )
        if row["bits"] == BITS[0]:
            found.append({"curve": "limit", "epsilon": row["epsilon"], "mse": row["limit"]})
    for epsilon in EPSILONS:
        rows = mz.design.compare(epsilon=epsilon, bits=RIVAL_BITS, families=list(RIVALS))
        found += [{"curve": row.family, "epsilon": epsilon, "mse": row.mse} for row in rows]
    return found


def draw(found: list[dict[str, Any]], scheme: str, *, narrow: bool = False) -> Figure:
    """The figure for one colour scheme; a narrow one has its names below the curves."""
    ink, grid = INK[scheme]
    figure = Figure(figsize=(4.6, 6.2) if narrow else (8.6, 4.4), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.subplots()
    axes.set_facecolor("none")

    least = {row["epsilon"]: row["mse"] for row in found if row["curve"] == "limit"}

    def curve(name: str) -> tuple[list[float], list[float]]:
        known = sorted(
            (row["epsilon"], row["mse"]) for row in found if row["curve"] == name and row["mse"]
        )
        return [epsilon for epsilon, _ in known], [mse / least[epsilon] for epsilon, mse in known]

    for place, bits in enumerate(BITS):
        words = f"mezzotint, {bits} bit{'s' if bits > 1 else ''}"
        axes.plot(
            *curve(f"optimal, {bits}"),
            color=OURS[scheme][place],
            linewidth=2.6,
            label=words,
            zorder=3,
        )
    axes.plot(
        *curve("limit"),
        color=ink,
        linestyle="--",
        linewidth=1.4,
        label="the bound: no number of bits gets below",
    )
    for place, (family, words) in enumerate(RIVALS.items()):
        size = "" if family == "laplace" else f", {RIVAL_BITS} bits"
        look = {
            "color": THEIRS[scheme][place],
            "marker": MARKERS[place],
            "markersize": 4,
            "linewidth": 1,
        }
        axes.plot(*curve(family), label=words + size, **look)
    axes.set_yscale("log")
    axes.set_ylim(0.9, 60)
    axes.set_yticks(TICKS, [f"{tick:g}x" for tick in TICKS])
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("pure epsilon of one report (more private to the left)")
    axes.set_ylabel("mean squared error / lower bound")
    axes.set_title(TITLE.replace(", ", ",\n") if narrow else TITLE, loc="left", color=ink)
    axes.grid(color=grid, linewidth=0.6)
    place = "outside lower center" if narrow else "outside right center"
    legend = figure.legend(loc=place, frameon=False, fontsize="small")
    for text in (axes.xaxis.label, axes.yaxis.label, *legend.get_texts()):
        text.set_color(ink)
    axes.tick_params(which="both", colors=ink)
    for spine in axes.spines.values():
        spine.set_color(grid)
    return figure


def write(found: list[dict[str, Any]]) -> None:
    """The SVG files; the same points give the same bytes."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "mezzotint", "font.family": "sans-serif"}
    with mpl.rc_context(settings):
        for scheme, narrow in itertools.product(INK, (False, True)):
            path = ASSETS / f"privacy-error-{scheme}{'-narrow' if narrow else ''}.svg"
            with replacing(path, overwrite=True) as temporary:
                draw(found, scheme, narrow=narrow).savefig(
                    temporary, format="svg", metadata={"Date": None, "Title": TITLE}
                )
                text = Path(temporary).read_text(encoding="utf-8")
                Path(temporary).write_text(
                    re.sub(r" +$", "", text, flags=re.MULTILINE), encoding="utf-8"
                )


def main() -> None:
    """Computes unless told to draw alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw the stored points again")
    if not parser.parse_args().draw:
        with replacing(POINTS, overwrite=True) as temporary:
            Path(temporary).write_text(json.dumps(points(), indent=0) + "\n", encoding="utf-8")
    write(json.loads(POINTS.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
