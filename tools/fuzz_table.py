"""Writes the table of the fuzzer's cases that docs/faq.md shows: `python tools/fuzz_table.py`."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hostile.damaged import NUMBERS, table

TABLE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "damaged.md"


def main() -> None:
    """Writes the file anew."""
    TABLE.write_text(table(chain(*NUMBERS.values())), encoding="utf-8")


if __name__ == "__main__":
    main()
