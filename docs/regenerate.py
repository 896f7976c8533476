"""Stores what the gallery shows: numbers and figure of every reproduction, recomputed.

`python docs/regenerate.py` takes half an hour for all; `python docs/regenerate.py optm-table1 rqm-figure8` does those
alone; `--draw` draws the stored curves again. What needs data that is not shipped (MEZZOTINT_MNIST, MEZZOTINT_FEMNIST,
MEZZOTINT_CIFAR) stays as it is where these are not set.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image

from mezzotint import __version__
from mezzotint.cli.pages import _reproductions
from mezzotint.core.errors import MezzotintError
from mezzotint.core.records import plain
from mezzotint.papers.reproduction import Reproduction, Series

RESULTS = Path(__file__).resolve().parent / "results"
COLOURS = 128


def store(name: str, reproduction: Any) -> None:
    """Computes one and writes NAME.json and NAME.png."""
    begin = time.perf_counter()
    try:
        result = reproduction()
    except MezzotintError as error:  # data that is not there
        print(f"{name}: nothing to store; {error}")
        return
    took = round(time.perf_counter() - begin)
    computed = f"{time.strftime('%Y-%m-%d', time.gmtime())} by version {__version__}"
    facts = {"name": name, **asdict(result), "seconds": took, "computed": computed}
    if not facts["rows"]:
        print(f"{name}: nothing to store; {facts['note']}")
        return
    (RESULTS / f"{name}.json").write_text(_lines(plain(facts)), encoding="utf-8")
    draw(name)
    print(f"{name}: {facts['seconds']} s", flush=True)


def _lines(facts: dict[str, Any]) -> str:
    """JSON with a line for each row and each curve."""
    parts = []
    for key, value in facts.items():
        inner = (
            ",\n  ".join(map(json.dumps, value)) if isinstance(value, list) else json.dumps(value)
        )
        parts.append(f' "{key}": ' + (f"[\n  {inner}\n ]" if isinstance(value, list) else inner))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def stored(name: str) -> Reproduction:
    """What was stored under this name."""
    facts = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    series = tuple(
        Series(
            **{
                key: tuple(map(_number, value)) if isinstance(value, list) else value
                for key, value in one.items()
            }
        )
        for one in facts["series"]
    )
    given = {key: facts[key] for key in ("title", "note", "x_label", "log_x")}
    each = {
        key: tuple(facts[key]) if isinstance(facts[key], list) else facts[key]
        for key in ("y_label", "log_y")
    }
    return Reproduction(**given, **each, rows=tuple(facts["rows"]), series=series)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)  # infinities are words in these files


def draw(name: str) -> None:
    """NAME.png from what is stored, if it has curves."""
    result, figure = stored(name), RESULTS / f"{name}.png"
    if result.series:
        result.png(figure)
        # Lines on white need few colours: a quarter of the bytes.
        Image.open(figure).convert("RGB").quantize(COLOURS).save(figure, optimize=True)


def main() -> None:
    """Stores the named ones, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--draw", action="store_true", help="draw what is stored again")
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    known = _reproductions()
    for name in given.names or sorted(known):
        if not given.draw:
            store(name, known[name])
        elif (RESULTS / f"{name}.json").is_file():
            draw(name)


if __name__ == "__main__":
    main()
