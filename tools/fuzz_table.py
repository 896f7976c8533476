"""Writes the table of the fuzzer's cases into docs/faq.md: `python tools/fuzz_table.py`."""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hostile.damaged import NUMBERS, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "faq.md"
BEGIN, END = "<!-- cases, by tools/fuzz_table.py -->\n\n", "\n<!-- end of cases -->"


def main() -> None:
    """Replaces what stands between the marks."""
    text = PAGE.read_text(encoding="utf-8")
    fresh = BEGIN + table(chain(*NUMBERS.values())) + END
    written, count = re.subn(
        re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: fresh, text, flags=re.DOTALL
    )
    if count != 1:
        sys.exit(f"{PAGE.name} has {count} places for the table, not 1")
    PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
