"""`python -m mezzotint.kernel FILE...`: checks claim files where only python-flint is installed."""

from __future__ import annotations

import sys

from mezzotint.kernel.checker import verdict
from mezzotint.kernel.units import shown


def main(arguments: list[str]) -> int:
    """Print one line per file with its verdict; return the worst status."""
    if not arguments:
        sys.exit("name the claim files to check: python -m mezzotint.kernel FILE...")
    worst_status = 0
    for file_name in arguments:
        result = verdict(file_name)
        print(f"{shown(file_name)}: {result.sentence}")
        worst_status = max(worst_status, result.status)
    return worst_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
