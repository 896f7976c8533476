"""What starting costs: the processor time of `mezzotint --help` and of imports, against what they stand on.

Every contestant is a process of its own; they take turns, and the least of several repetitions counts.
The rival is a Python that imports numpy and typer and does nothing.

Run: python benchmarks/starting.py [--repetitions R]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

from rich.console import Console
from rich.table import Table

RIVAL = "import numpy, typer"
ROOMS = (
    "families",
    "privacy",
    "design",
    "collect",
    "vectors",
    "smoothed",
    "report",
    "training",
    "federated",
)
CONTESTANTS = {
    RIVAL: RIVAL,
    "mezzotint --help": "import sys; sys.argv = ['mezzotint', '--help']; from mezzotint.cli import main; main()",
    "import mezzotint": "import mezzotint",
    "import scipy.stats": "import scipy.stats",
    **{f"import mezzotint.{room}": f"import mezzotint.{room}" for room in ROOMS},
}


def processor_seconds(code: str) -> float:
    """What a fresh Python that runs this code takes of all cores together, its own starting included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=7)
    repetitions = parser.parse_args().repetitions
    least = dict.fromkeys(CONTESTANTS, float("inf"))
    for _ in range(repetitions):
        for name, code in CONTESTANTS.items():
            least[name] = min(least[name], processor_seconds(code))
    table = Table("what", "processor seconds", f"against `{RIVAL}`", title="starting")
    for name, seconds in least.items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / least[RIVAL]:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
