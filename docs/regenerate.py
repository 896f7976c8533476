"""Stores what the gallery shows: numbers and figure of every reproduction, recomputed.

`python docs/regenerate.py` takes half an hour for all; `python docs/regenerate.py table1 table2` does those alone. What
needs data that is not shipped (MEZZOTINT_MNIST, MEZZOTINT_FEMNIST) stays as it is where these are not set.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image

from mezzotint.cli.reproduce import _reproductions
from mezzotint.core.errors import MezzotintError
from mezzotint.core.records import plain

RESULTS = Path(__file__).resolve().parent / "results"
COLOURS = 48


def store(name: str, reproduction: Any) -> None:
    """Computes one and writes NAME.json and NAME.png."""
    begin = time.perf_counter()
    try:
        result = reproduction()
    except MezzotintError as error:  # data that is not there
        print(f"{name}: nothing to store; {error}")
        return
    facts = {"name": name, **result.as_dict(), "seconds": round(time.perf_counter() - begin)}
    if not facts["rows"]:
        print(f"{name}: nothing to store; {facts['note']}")
        return
    figure = RESULTS / f"{name}.png"
    if result.series:
        result.png(figure)
        # Lines on white need few colours: a quarter of the bytes.
        Image.open(figure).convert("RGB").quantize(COLOURS).save(figure, optimize=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(plain(facts), indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {facts['seconds']} s")


def main(names: list[str]) -> None:
    """Stores the named ones, or all."""
    RESULTS.mkdir(exist_ok=True)
    known = _reproductions()
    for name in names or sorted(known):
        store(name, known[name])


if __name__ == "__main__":
    main(sys.argv[1:])
