"""`python -m mezzotint.kernel FILE...`: what somebody with python-flint alone runs."""

from __future__ import annotations

import sys
from pathlib import Path

from mezzotint.kernel.check import check, read_claim
from mezzotint.kernel.units import MAX_TEXT, Refused, Unfinished, Unreadable
from mezzotint.kernel.words import words


def verdict(text: str, seconds: int = 60) -> tuple[int, str]:
    """Exit status and sentence for a file's text: 0 certified, 1 refused or not finished, 2 unreadable."""
    try:
        return 0, words(check(*read_claim(text), seconds=seconds))
    except Unreadable as error:
        return 2, f"UNREADABLE: {error}"
    except (Refused, Unfinished) as error:
        return 1, f"REFUSED at {error}" if isinstance(error, Refused) else f"NOT CHECKED: {error}"


def main(arguments: list[str]) -> int:
    """Every file's verdict, a line each; the worst status."""
    worst = 0
    for name in arguments:
        try:
            raw = Path(name).read_bytes()
            status, sentence = verdict(raw.decode("utf-8")) if len(raw) <= MAX_TEXT else (2, "UNREADABLE: too large")
        except (OSError, UnicodeDecodeError) as error:
            status, sentence = 2, f"UNREADABLE: {error}"
        print(f"{name}: {sentence}")
        worst = max(worst, status)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
