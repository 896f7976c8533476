"""`python -m mezzotint.kernel FILE...`: checks claim files where only python-flint is installed."""

from __future__ import annotations

import sys
from pathlib import Path

from mezzotint.kernel.checker import verdict
from mezzotint.kernel.units import shown


def main(arguments: list[str]) -> int:
    """Print one line per file with its verdict; return the worst status."""
    if not arguments:
        sys.exit("name the claim files to check: python -m mezzotint.kernel FILE...")
    worst = 0
    for name in arguments:
        try:
            status, sentence, _ = verdict(Path(name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            status, sentence = 2, f"UNREADABLE: {shown(error)}"
        print(f"{shown(name)}: {sentence}")
        worst = max(worst, status)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
