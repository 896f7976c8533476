"""Runs killed at any moment and continued: rows, bytes and claim of one uninterrupted run."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import collect, families
from mezzotint.collect.folders import MANIFEST, STATE

ONE = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


KILLED = """
import sys
from mezzotint import collect, families
one = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)
rng = None if sys.argv[3] == "private" else 7
print("ready", flush=True)
collect.privatize(
    sys.argv[1], sys.argv[2], column="x", mechanism=one, keep=["id"], block_rows=1, rng=rng, resume=True
)
"""


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    rows, path = 100_000, tmp_path / "long.parquet"
    columns = {"x": np.random.default_rng(1).uniform(-1, 1, rows), "id": np.arange(rows)}
    pq.write_table(pa.table(columns), path, row_group_size=500)
    return path


def kill_after(seconds: float, *arguments: object) -> bool:
    """Whether the process was still at work when it was killed."""
    command = [sys.executable, "-c", KILLED, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        running = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    return running


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["seeded", "private"])
def test_killed_at_twenty_random_moments(long_file: Path, tmp_path: Path, stream: str) -> None:
    rng: Callable[[], Any] = (lambda: 7) if stream == "seeded" else (lambda: None)
    options: dict[str, Any] = {"column": "x", "mechanism": ONE, "keep": ["id"], "block_rows": 1}
    started = time.perf_counter()
    whole = collect.privatize(long_file, tmp_path / "whole", rng=rng(), **options)
    usual, moments = time.perf_counter() - started, random.Random(1)
    kills = at_work = 0
    seen: dict[str, bytes] = {}
    while kills < 20:
        out = tmp_path / f"cut{kills}"
        running = kill_after(moments.uniform(0, usual), long_file, out, stream)
        kills, at_work = kills + 1, at_work + running
        if not (out / STATE).exists() and (out / MANIFEST).exists():
            result_reports = collect.read_counts(out).n
        else:
            seen = (
                {path.name: path.read_bytes() for path in out.glob("part-*")}
                if out.exists()
                else {}
            )
            result = collect.privatize(long_file, out, rng=rng(), resume=True, **options)
            result_reports = result.reports
            assert result.epsilon == whole.epsilon
            assert all((out / name).read_bytes() == data for name, data in seen.items())
        assert result_reports == whole.reports
        if stream == "seeded":
            assert contents(out) == contents(tmp_path / "whole")
        else:
            ids = pq.ParquetDataset(out).read(columns=["id"])["id"].to_numpy()
            assert ids.tolist() == list(range(whole.reports))
        claims = [
            json.loads((folder / MANIFEST).read_text()).get("claim")
            for folder in (out, tmp_path / "whole")
        ]
        assert claims[0] == claims[1]
        assert (claims[0] is None) == (stream == "seeded")
        shutil.rmtree(out)
    assert at_work >= 10


@pytest.mark.slow
def test_one_run_killed_again_and_again(long_file: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "column": "x",
        "mechanism": ONE,
        "keep": ["id"],
        "block_rows": 1,
        "rng": 7,
    }
    collect.privatize(long_file, tmp_path / "whole", **options)
    moments, out, kills = random.Random(2), tmp_path / "cut", 0
    while kills < 20 and not (out / MANIFEST).exists():
        kill_after(moments.uniform(0, 0.1), long_file, out, "seeded")
        kills += 1
    if not (out / MANIFEST).exists() or (out / STATE).exists():
        collect.privatize(long_file, out, resume=True, **options)
    assert kills >= 3
    assert contents(out) == contents(tmp_path / "whole")


INTERRUPTED = """
import signal, sys
import mezzotint.collect.runs
from mezzotint.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
main()
"""


def interrupted(seconds: float | None, *arguments: object) -> tuple[int, float]:
    """Exit status of a command that Ctrl-C ends after some time, if given, and how long it worked, a minute at most.

    While Python ends it leaves signals to the system: that status is -2 here, and 130 in a shell like any other.
    """
    command = [sys.executable, "-c", INTERRUPTED, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = time.perf_counter()
        if seconds is not None:
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    status = 130 if process.returncode == -signal.SIGINT else process.returncode
    return status, time.perf_counter() - started


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_interrupted_at_random_moments(tmp_path: Path, kind: str) -> None:
    """Of a run in several threads nothing half-written is left, and no thread that keeps it from ending."""
    rows = 200_000
    (tmp_path / "in").mkdir()
    for part, ids in enumerate(np.split(np.arange(rows), 10)):
        pq.write_table(
            pa.table({"x": np.sin(ids), "id": ids}),
            tmp_path / "in" / f"{part}.parquet",
            row_group_size=5000,
        )
    ONE.save(tmp_path / "m.json")
    out = tmp_path / ("out.parquet" if kind == "file" else "out")
    words = [
        "privatize",
        tmp_path / "in",
        "--column",
        "x",
        "--mechanism",
        tmp_path / "m.json",
        "--keep",
        "id",
    ]
    words += ["--threads", 4, "--out", out]
    status, usual = interrupted(None, *words)
    assert status == 0
    moments, ended = random.Random(4), list[int]()
    for _ in range(5):
        for path in (out, *tmp_path.glob(".*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        ended.append(interrupted(moments.uniform(0, usual), *words)[0])
        assert ended[-1] in (0, 130)
        assert {path.name for path in tmp_path.iterdir()} <= {"in", "m.json", out.name}
        if out.is_dir():
            assert not list(out.glob(".*.partial"))
            assert interrupted(None, *words, "--resume")[0] == 0
        if out.exists():
            assert pq.ParquetDataset(out).read(columns=["id"])["id"].to_pylist() == list(
                range(rows)
            )
    assert 130 in ended
