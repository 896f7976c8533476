"""Stores what the gallery shows: numbers, figure and provenance of every reproduction, recomputed.

`python docs/regenerate.py --mnist DIR --femnist FILE --cifar10 DIR` does all that these data allow; names after it do
those alone; `--draw` draws the stored curves again; `--errata` writes the gallery's tables of errata; `--stale`
lists results whose sources changed since; `--confirm` recomputes their parts and notes the sources of today.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image

from mezzotint.core.errors import MezzotintError
from mezzotint.core.records import plain
from mezzotint.papers import catalogue, errata
from mezzotint.papers.reproduction import Reproduction, Series

DOCS = Path(__file__).resolve().parent
sys.path.append(str(DOCS))
provenance = importlib.import_module("provenance")
RESULTS = DOCS / "results"
COLOURS = 128
SETTINGS: dict[str, dict[str, Any]] = {
    "rqm-figure4": {"rounds": 60, "seeds": 2},
    "rqm-figure5": {"rounds": 60, "seeds": 2},
    "rqm-figure6": {"rounds": 60, "seeds": 2},
    "rqm-figure11": {"rounds": 20, "seeds": 2},
    "rqm-tradeoff": {"seeds": 5},
}
"""What is stored of long experiments: what fits a small machine."""
ERRATA = DOCS / "tables" / "errata.md"


def store(name: str, data: str | None, options: dict[str, Any]) -> None:
    """Computes one and writes NAME.json and NAME.png."""
    begun = time.perf_counter()
    accepted = catalogue.figures()[name].options
    given = {key: value for key, value in options.items() if key in accepted}
    given |= SETTINGS.get(name, {})
    if "data" in accepted:
        given["data"] = data
    try:
        result = catalogue.reproduce(name, **given)
    except MezzotintError as error:  # data that is not there
        print(f"{name}: nothing to store; {error}", flush=True)
        return
    seconds = time.perf_counter() - begun
    facts = {"name": name, **asdict(result)}
    parts = sorted(catalogue.parts(name, data), key=lambda part: part.seconds)
    with provenance.traced() as trace:
        for part in parts[:3]:
            differences = part.differences(plain(facts["rows"]))
            if differences:
                raise SystemExit(f"{name}: computed twice, not the same: {differences[0]}")
    facts["made"] = provenance.record(trace, given, seconds)
    (RESULTS / f"{name}.json").write_text(_lines(plain(facts)), encoding="utf-8")
    draw(name)
    print(f"{name}: {seconds:.0f} s", flush=True)


def _lines(facts: dict[str, Any]) -> str:
    """JSON with a line for each row and each curve."""
    parts = []
    for key, value in facts.items():
        text = json.dumps(value)
        if isinstance(value, list):
            inner = ",\n  ".join(map(json.dumps, value))
            text = f"[\n  {inner}\n ]"
        parts.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def stored(name: str) -> Reproduction:
    """What was stored under this name."""
    facts = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    series = tuple(Series(**_tuples(curve)) for curve in facts["series"])
    axes = {key: facts[key] for key in ("x_label", "y_label", "log_x", "log_y")}
    for key, value in axes.items():
        if isinstance(value, list):
            axes[key] = tuple(value)
    words = {"title": facts["title"], "note": facts["note"]}
    return Reproduction(**words, **axes, rows=tuple(facts["rows"]), series=series)


def _tuples(curve: dict[str, Any]) -> dict[str, Any]:
    result = dict(curve)
    for key, value in curve.items():
        if isinstance(value, list):
            result[key] = tuple(map(_number, value))
    return result


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)  # infinities are words in these files


def draw(name: str) -> None:
    """NAME.png from what is stored, if it has curves."""
    result, figure = stored(name), RESULTS / f"{name}.png"
    if result.series:
        result.png(figure)
        # Lines on white need few colours: a quarter of the bytes.
        Image.open(figure).convert("RGB").quantize(COLOURS).save(figure, optimize=True)


def write_errata() -> None:
    """Writes the tables of errata, which the gallery shows at its end."""
    template = ERRATA.with_suffix(".template").read_text(encoding="utf-8")
    ERRATA.write_text(errata.filled(template), encoding="utf-8")


def confirm(name: str, data: str | None) -> None:
    """Recomputes every part of a stored result whose sources changed; where all agree, notes the sources of today."""
    path = RESULTS / f"{name}.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    changed = provenance.changed_sources(facts["made"])
    if not changed:
        return
    with provenance.traced() as trace:
        for part in catalogue.parts(name, data):
            differences = part.differences(facts["rows"])
            if differences:
                raise SystemExit(f"{name}: not what is stored: {differences[0]}")
    made = provenance.record(trace, {}, 0.0)
    facts["made"]["sources"], facts["made"]["confirmed"] = made["sources"], made["computed"]
    path.write_text(_lines(facts), encoding="utf-8")
    print(f"{name}: holds, although {', '.join(changed)} changed", flush=True)


def stale() -> None:
    """Prints the results whose sources do something else today."""
    for path in sorted(RESULTS.glob("*.json")):
        made = json.loads(path.read_text(encoding="utf-8")).get("made")
        changed = (
            ("its provenance is missing",) if made is None else provenance.changed_sources(made)
        )
        if changed:
            print(f"{path.stem}: {', '.join(changed)}")


def main() -> None:
    """Stores the named ones, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--draw", action="store_true", help="draw what is stored again")
    parser.add_argument(
        "--errata", action="store_true", help="write the gallery's tables of errata"
    )
    parser.add_argument(
        "--confirm", action="store_true", help="recompute the parts of stale results, and note it"
    )
    parser.add_argument("--stale", action="store_true", help="list results whose sources changed")
    parser.add_argument("--keep", type=Path, help="file of finished runs (.jsonl)")
    figures = catalogue.figures()
    for name in sorted({figure.data for figure in figures.values() if figure.data}):
        parser.add_argument(f"--{name}", help="where this data set lies")
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if arguments.errata:
        write_errata()
        return
    if arguments.stale:
        stale()
        return
    for name in arguments.names or list(figures):
        data = getattr(arguments, figures[name].data, None)
        if arguments.confirm:
            confirm(name, data)
        elif not arguments.draw:
            store(name, data, {"keep": arguments.keep})
        elif (RESULTS / f"{name}.json").is_file():
            draw(name)


if __name__ == "__main__":
    main()
