"""The recipe for Spark, run as the page prints it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import collect, families

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"

pytestmark = pytest.mark.slow


def recipe() -> str:
    (text,) = re.findall(
        r"```py\n(.*?mapInArrow.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return text


def test_the_recipe_of_the_page(tmp_path: Path) -> None:
    """Every row has one report, of its own value, and a report costs what its table says."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("there is no Java on this machine, which Spark needs")
    mechanism = families.randomized_response(
        lower=0, upper=60, epsilon=30.0
    )  # codes tell their inputs
    mechanism.save(tmp_path / "minutes.json")
    minutes = np.repeat([0.0, 60.0, 60.0], 1000)
    table = pa.table({"minutes": minutes, "day": np.arange(3000) % 7})
    pq.write_table(table, tmp_path / "visits.parquet", row_group_size=500)
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    found = subprocess.run(
        [sys.executable, "-c", recipe()],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    counts = collect.read_counts(tmp_path / "reports", column="minutes_code", mechanism=mechanism)
    assert counts.counts.tolist() == [1000, 2000]
    rows = pq.read_table(tmp_path / "reports")
    assert sorted(rows.schema.names) == ["day", "minutes_code"]
    pairs = set(zip(*(rows[name].to_pylist() for name in ("day", "minutes_code")), strict=True))
    assert pairs == {(day, code) for day in range(7) for code in (0, 1)}
