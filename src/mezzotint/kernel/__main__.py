"""`python -m mezzotint.kernel FILE...`: checks claim files where only python-flint is installed."""

from __future__ import annotations

import sys

from mezzotint.kernel.checker import verdict
from mezzotint.kernel.units import shown


def main(arguments: list[str]) -> int:
    """Print one line per file with its verdict; return the worst status."""
    if not arguments:
        sys.exit("name the claim files to check: python -m mezzotint.kernel FILE...")
    worst = 0
    for name in arguments:
        status, sentence, _ = verdict(name)
        print(f"{shown(name)}: {sentence}")
        worst = max(worst, status)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
