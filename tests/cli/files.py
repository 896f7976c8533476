"""Files that many tests of verbs read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mezzotint import families


def save_mechanism(folder: Path) -> Path:
    path = folder / "m.json"
    families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4).save(path)
    return path


def save_column(folder: Path) -> Path:
    path = folder / "in.parquet"
    values = np.random.default_rng(1).uniform(0, 10, 1000)
    pq.write_table(pa.table({"id": range(1000), "x": values, "word": ["w"] * 1000}), path)
    return path
