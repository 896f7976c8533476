"""A column of float64 in Parquet made private, against reading and writing the same file, and Ray against this machine;
and the same numbers with kept text out of CSV and JSON lines, against Parquet.

Every contestant runs in a process of its own, so that its peak memory is its own; they take turns, and the best of
several repetitions counts. Files are made in a temporary folder and removed.

Run: python benchmarks/collect.py [--rows N] [--repetitions R] [--ray] [--folder DIR] [--beside SRC]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from mezzotint import collect
from mezzotint.core.errors import ParameterError

GROUP = 1_000_000
BYTES_PER_ROW = 120
"""Disk space asked for: the file, its copy, and the reports."""

START = """
import json, shutil, sys, time
from pathlib import Path
source, out = sys.argv[1:3]
def finish(seconds, counts=None):
    # ru_maxrss begins with what the process that started this one had; VmHWM, which Linux alone tells, does not.
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 2**10
    print(json.dumps({"seconds": seconds, "peak": peak, "counts": counts}))
"""

OURS = """
from mezzotint import collect, families
m = families.rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.4)
m.privatize([0.0] * 10)
collect.privatize  # imports what it needs
started = time.perf_counter()
collect.privatize(source, out, column="x", mechanism=m, OPTIONS)
seconds = time.perf_counter() - started
finish(seconds, collect.read_counts(out).counts.tolist())
"""

COUNT = """
from mezzotint import collect
collect.read_counts
started = time.perf_counter()
counts = collect.read_counts(source, OPTIONS)
finish(time.perf_counter() - started, counts.counts.tolist())
"""

TEXT = """
from mezzotint import collect, families
m = families.rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.4)
m.privatize([0.0] * 10)
collect.privatize
started = time.process_time()
rows = collect.privatize(source, out, column="x", mechanism=m, keep=["name"], threads=1).reports
finish(time.process_time() - started, [rows])
"""

PYARROW_STREAM = """
import pyarrow as pa, pyarrow.parquet as pq
pa.set_cpu_count(THREADS)
started = time.perf_counter()
with pq.ParquetFile(source) as file, pq.ParquetWriter(out, file.schema_arrow) as writer:
    for i in range(file.num_row_groups):
        writer.write_table(file.read_row_group(i))
finish(time.perf_counter() - started)
"""

PYARROW_DATASET = """
import pyarrow as pa, pyarrow.dataset as ds
pa.set_cpu_count(THREADS)
started = time.perf_counter()
ds.write_dataset(ds.dataset(source), out, format="parquet")
finish(time.perf_counter() - started)
"""

POLARS = """
import os
os.environ["POLARS_MAX_THREADS"] = "THREADS"
import polars as pl
started = time.perf_counter()
pl.scan_parquet(source).sink_parquet(out)
finish(time.perf_counter() - started)
"""


def contestants(with_ray: bool) -> dict[str, tuple[str, str]]:
    """Name -> (code, name of the output)."""
    entries: dict[str, tuple[str, str]] = {}
    for threads in (1, 2):
        label = f"{threads} thread" + "s" * (threads > 1)
        for name, code, out in (
            ("pyarrow read+write, row groups", PYARROW_STREAM, "o.parquet"),
            ("pyarrow read+write, data set", PYARROW_DATASET, "o"),
            ("polars read+write, streaming", POLARS, "o.parquet"),
        ):
            entries[f"{name}, {label}"] = (code.replace("THREADS", str(threads)), out)
        ours = OURS.replace("OPTIONS", f"threads={threads}")
        entries[f"mezzotint into one file, {label}"] = (ours, "o.parquet")
        entries[f"mezzotint into a folder, {label}"] = (ours, "o")
    if with_ray:
        entries["mezzotint on Ray, 2 cores, Ray's start included"] = (
            OURS.replace("OPTIONS", 'engine="ray"'),
            "o",
        )
    return entries


def make(path: Path, rows: int) -> None:
    """Normal numbers, a row group per million."""
    generator = np.random.default_rng(1)
    with pq.ParquetWriter(path, pa.schema({"x": pa.float64()})) as writer:
        for first in range(0, rows, GROUP):
            writer.write_table(pa.table({"x": generator.normal(0, 0.5, min(GROUP, rows - first))}))


def once(code: str, source: Path, out: Path, sources: Path | None = None) -> dict[str, float]:
    """One run in a fresh process, of this state of the program or of other sources; its output is left in place."""
    if out.is_dir():
        shutil.rmtree(out)
    out.unlink(missing_ok=True)
    environment = {**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    if sources is not None:
        environment["PYTHONPATH"] = str(sources)
    command = [sys.executable, "-c", START + code, str(source), str(out)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(ran.stdout.splitlines()[-1])


def measure(
    folder: Path, source: Path, with_ray: bool, repetitions: int
) -> dict[str, dict[str, float]]:
    """Best seconds and greatest peak memory of each."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(repetitions):
        for name, (code, out) in contestants(with_ray).items():
            found = once(code, source, folder / out)
            known = best.setdefault(name, {"seconds": float("inf"), "peak": 0.0})
            known["seconds"] = min(known["seconds"], found["seconds"])
            known["peak"] = max(known["peak"], found["peak"])
            for path in (folder / "o", folder / "o.parquet"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return best


def show(best: dict[str, dict[str, float]], rows: int) -> Table:
    """Rows per second, peak memory, and speed against the faster plain read+write with as many threads."""
    table = Table(title=f"{rows:,} rows of float64 in Parquet")
    for heading in ("", "seconds", "million rows/s", "peak MB", "of plain read+write"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, found in best.items():
        threads = "1 thread" if name.endswith("1 thread") else "2 threads"
        plain = min(
            one["seconds"]
            for other, one in best.items()
            if "read+write" in other and other.endswith(threads)
        )
        ratio = f"{plain / found['seconds']:.0%}" if name.startswith("mezzotint") else ""
        rate = rows / found["seconds"] / 1e6
        table.add_row(name, f"{found['seconds']:.2f}", f"{rate:.1f}", f"{found['peak']:.0f}", ratio)
    return table


def make_text(path: Path, rows: int) -> None:
    """The same numbers and a name, as CSV or JSON lines by the ending of the path."""
    values = np.random.default_rng(1).normal(0, 0.5, rows).tolist()
    pattern = '%r,"n%d"\n' if path.suffix == ".csv" else '{"x": %r, "name": "n%d"}\n'
    with path.open("w", encoding="utf-8") as stream:
        if path.suffix == ".csv":
            stream.write("x,name\n")
        stream.writelines(pattern % (value, index % 5) for index, value in enumerate(values))


def show_text(folder: Path, rows: int, repetitions: int, beside: Path | None) -> Table:
    """CPU seconds of a number and kept text out of each format, by one thread, against Parquet, and against those of
    other sources, which take turns.
    """
    table = Table(title=f"{rows:,} rows of a number and kept text, one thread")
    headings = ["", "CPU seconds", "million rows/s", "peak MB", "of Parquet"]
    if beside is not None:
        headings.append("speed beside the other state")
    for heading in headings:
        table.add_column(heading, justify="left" if not heading else "right")
    sources = [folder / f"text.{ending}" for ending in ("parquet", "csv", "jsonl")]
    for path in sources[1:]:
        make_text(path, rows)
    names = [f"n{index % 5}" for index in range(rows)]
    values = np.random.default_rng(1).normal(0, 0.5, rows)
    pq.write_table(pa.table({"x": values, "name": names}), sources[0], row_group_size=GROUP)
    first = 0.0
    for path in sources:
        runs: list[dict[str, float]] = []
        others: list[float] = []
        for _ in range(repetitions):
            runs.append(once(TEXT, path, folder / "o.parquet"))
            if beside is not None:
                others.append(once(TEXT, path, folder / "o.parquet", beside)["seconds"])
        best = min(run["seconds"] for run in runs)
        first = first or best
        rate, peak = rows / best / 1e6, max(run["peak"] for run in runs)
        cells = [path.suffix, f"{best:.2f}", f"{rate:.1f}", f"{peak:.0f}", f"{first / best:.0%}"]
        if others:
            cells.append(f"{min(others) / best:.2f}")
        table.add_row(*cells)
    return table


def merge(folder: Path, source: Path, with_ray: bool) -> str:
    """Counts of the parts, of the whole, and from the cluster, over the same reports."""
    whole = once(OURS.replace("OPTIONS", "threads=2"), source, folder / "merge")["counts"]
    parts = [
        collect.read_counts(path) for path in sorted((folder / "merge").glob("part-*.parquet"))
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    same = merged.counts.tolist() == whole
    text = f"counts of {len(parts)} parts, merged, against the folder's: {'equal' if same else 'DIFFERENT'}"
    if with_ray:
        remote = once(COUNT.replace("OPTIONS", 'engine="ray"'), folder / "merge", folder / "none")[
            "counts"
        ]
        text += f"; counted on Ray: {'equal' if remote == whole else 'DIFFERENT'}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--ray", action="store_true", help="also on a Ray cluster of this machine")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where the temporary folder is made"
    )
    parser.add_argument(
        "--beside", type=Path, default=None, help="src folder of another state, for text"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mezzotint-", dir=options.folder) as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < options.rows * BYTES_PER_ROW:
            raise ParameterError(
                "rows",
                options.rows,
                f"need {options.rows * BYTES_PER_ROW:,} free bytes in {folder}",
            )
        source = folder / "in.parquet"
        make(source, options.rows)
        best = measure(folder, source, options.ray, options.repetitions)
        console = Console(width=110)
        console.print(show(best, options.rows))
        console.print(merge(folder, source, options.ray))
        console.print(show_text(folder, options.rows, options.repetitions, options.beside))


if __name__ == "__main__":
    main()
