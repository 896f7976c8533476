"""What charging people costs, against the run that is charged, as a user starts it: the verb over a file.

Every run is a process of its own, in pairs: without a ledger, then charged by person, wave after wave. CPU seconds of
both are compared, imports and compiled code that is loaded included. The least that a charge can cost is measured
beside them: the run without a ledger, that then reads the ids and hashes the file, and does nothing with them.

Run: python benchmarks/ledger.py [--people 1e5,1e6,1e7] [--waves 2] [--csv-up-to 1e6] [--folder DIR] [--store]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from mezzotint import families

WIDTH = 12
"""Columns of a file as people have them; one is privatized, one holds ids."""

NAME = "Charging people beside the run"
MEASURED = (
    "`benchmarks/ledger.py`: CPU seconds of `privatize` in a process of its own, start included, over a file of 12 "
    "columns with one row a person, without and with `--ledger --charge-by`, on a shared machine; a first wave, and a "
    "second one of the same people. Charges of less than 0.2 s are not told from the noise of two processes. Floor: the "
    "run without a ledger that, afterwards, reads the ids of a Parquet file and hashes it (SHA-256) and does no more: "
    "what any ledger costs that reads ids and names its source."
)
RESOLVED = 0.2
"""CPU seconds between two processes that are told from noise."""

HEADINGS = [
    "people",
    "file",
    "wave",
    "run, CPU s",
    "charged run, CPU s",
    "ratio",
    "floor, CPU s",
    "ratio to the floor",
    "million people charged a CPU second",
    "bytes a person and wave",
]

VERB = "from mezzotint.cli import main; main()"
FLOOR = """
import hashlib, sys
from mezzotint.cli import main
from mezzotint.collect.listing import find_files
from mezzotint.collect.source import Source, Wanted
source = sys.argv[2]
try:
    main()
except SystemExit as end:
    assert not end.code
for batch in Source(files=tuple(find_files(source)), wanted=Wanted(others={"person": "people"})).batches():
    pass
with open(source, "rb") as file:
    hashlib.file_digest(file, "sha256")
"""
"""The verb, then what a ledger needs of the source."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """CPU seconds of a run without a ledger, of the same run charged by person, and of the floor."""

    plain: float
    charged: float
    floor: float | None
    wave: int

    @property
    def charge(self) -> float:
        return self.charged - self.plain


def write(path: Path, people: int) -> None:
    """A row a person, in random order, with columns that nobody asks for."""
    rng = np.random.default_rng(1)
    columns: dict[str, object] = {
        "person": [f"user{number:08d}" for number in rng.permutation(people)],
        "x": rng.random(people).round(6),
    }
    columns |= {f"c{index}": rng.integers(0, 10**6, people) for index in range(WIDTH - 2)}
    table = pa.table(columns)
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)


def cpu(folder: Path, source: Path, *options: str, program: str = VERB) -> float:
    """CPU seconds of one run of the verb, in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["privatize", source.name, "--column", "x", "--mechanism", "m.json", *options]
    words += ["--out", "r.parquet", "--overwrite", "--threads", "1"]
    subprocess.run(
        [sys.executable, "-c", program, *words], cwd=folder, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pairs(folder: Path, source: Path, waves: int) -> list[Pair]:
    """The same file, wave after wave, charged to one ledger."""
    found = []
    for wave in range(1, waves + 1):
        plain = min(cpu(folder, source) for _ in range(2))
        charged = cpu(folder, source, "--ledger", "ledger.jsonl", "--charge-by", "person")
        floor = None
        if (
            source.suffix == ".parquet"
        ):  # text is not read once more: the ids stand beside the values
            floor = cpu(folder, source, program=FLOOR)
        found.append(Pair(plain=plain, charged=charged, floor=floor, wave=wave))
    return found


def bytes_per_person(folder: Path, people: int, waves: int) -> float:
    """Bytes of the segments and the log, a person and wave; totals, once for all waves, come on top."""
    segments = sum(path.stat().st_size for path in folder.glob("ledger.jsonl.people/*.segment"))
    return (segments + (folder / "ledger.jsonl").stat().st_size) / people / waves


def measured(folder: Path, people: int, ending: str, waves: int) -> list[list[str]]:
    """A row of cells for each wave of a file of so many people; the files are removed."""
    source = folder / f"in.{ending}"
    write(source, people)
    found = pairs(folder, source, waves)
    size = f"{bytes_per_person(folder, people, waves):.1f}"
    source.unlink()
    (folder / "ledger.jsonl").unlink()
    shutil.rmtree(folder / "ledger.jsonl.people")
    os.unlink(folder / "ledger.jsonl.key")
    return [
        [
            f"{people:,}",
            ending,
            str(pair.wave),
            f"{pair.plain:.2f}",
            f"{pair.charged:.2f}",
            f"{pair.charged / pair.plain:.2f}",
            f"{pair.floor:.2f}" if pair.floor else "-",
            f"{pair.charged / pair.floor:.2f}" if pair.floor else "-",
            f"{people / pair.charge / 1e6:.1f}" if pair.charge > RESOLVED else "-",
            size,
        ]
        for pair in found
    ]


def store(headings: list[str], rows: list[list[str]]) -> None:
    """Writes the table into the file from which the pages take it."""
    path = Path(__file__).parent / "results" / "tables.json"
    tables = json.loads(path.read_text(encoding="utf-8"))
    tables[NAME] = {"measured": MEASURED, "headings": headings, "rows": rows}
    path.write_text(json.dumps(tables, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", default="1e5,1e6,1e7")
    parser.add_argument("--waves", type=int, default=2)
    parser.add_argument("--csv-up-to", type=float, default=1e6)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--store", action="store_true", help="keep the table for the pages")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=asked.folder))
    rows: list[list[str]] = []
    try:
        families.randomized_response(lower=0, upper=1, epsilon=0.5).save(folder / "m.json")
        write(folder / "ten.parquet", 10)
        for _ in range(2):  # the first one compiles
            cpu(folder, folder / "ten.parquet", "--ledger", "ten.jsonl", "--charge-by", "person")
        idle = cpu(folder, folder / "ten.parquet")
        for people in (int(float(number)) for number in asked.people.split(",")):
            for ending in ("csv", "parquet"):
                if ending == "parquet" or people <= asked.csv_up_to:
                    rows += measured(folder, people, ending, asked.waves)
    finally:
        shutil.rmtree(folder)
    table = Table(*HEADINGS)
    for row in rows:
        table.add_row(*row)
    console = Console(width=110)
    console.print(f"a run of ten rows takes {idle:.2f} CPU s")
    console.print(table)
    if asked.store:
        store(HEADINGS, rows)


if __name__ == "__main__":
    main()
