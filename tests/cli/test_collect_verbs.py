"""`privatize` and `estimate` on several columns and on folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import families


@pytest.fixture
def two_columns(tmp_path: Path, mechanism_file: Path) -> tuple[Path, Path, Path]:
    """A file of two columns, and a mechanism file for each."""
    values = np.random.default_rng(1).uniform(0, 10, (2, 1000))
    pq.write_table(pa.table({"x": values[0], "y": values[1]}), tmp_path / "two.parquet", row_group_size=300)
    families.randomized_response(lower=0, upper=10, epsilon=0.5).save(tmp_path / "n.json")
    return tmp_path / "two.parquet", mechanism_file, tmp_path / "n.json"


def test_several_columns_state_the_claim_of_a_record(
    invoke: Callable[..., Any], two_columns: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    source, one, two = two_columns
    arguments = ["--column", "x", "--column", "y", "--mechanism", one, "--mechanism", two, "--out"]
    ran = invoke("privatize", source, *arguments, tmp_path / "o.parquet")
    assert ran.status == 0
    assert "per record (x " in ran.out
    ran = invoke("privatize", source, *arguments, tmp_path / "p.parquet", "--json")
    claim = ran.json["claim"]
    assert claim["epsilon"] >= sum(claim["columns"].values()) * (1 - 1e-15)
    assert ran.json["reports"] == 1000
    ran = invoke("estimate", tmp_path / "o.parquet", "--column", "y_code", "--json")
    assert ran.json["n"] == 1000
    for changed, word in ((["--column", "x"], "twice"), (["--mechanism", one], "3 files for 2 columns")):
        ran = invoke("privatize", source, *changed, *arguments, tmp_path / "q.parquet")
        assert ran.status != 0
        assert word in ran.err
