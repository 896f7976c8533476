"""Arrow memory seen as numpy arrays and back: offsets, nulls, emptiness, and what is not imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from mezzotint.core.values import arrow, numbers, plain, validity

CELLS = st.lists(st.none() | st.integers(-1000, 1000) | st.just(float("nan")), max_size=40)


@given(cells=CELLS, start=st.integers(0, 20), narrow=st.booleans())
def test_present_values_and_where_they_stand(
    cells: list[float | None], start: int, narrow: bool
) -> None:
    array = pa.array(cells, pa.float32() if narrow else pa.float64()).slice(start)
    here = [None if cell is None or cell != cell else float(cell) for cell in cells[start:]]
    values, present = numbers(array)
    assert values.tolist() == [cell for cell in here if cell is not None]
    if present is None:
        assert None not in here
    else:
        assert present.tolist() == [cell is not None for cell in here]
        assert None in here
    assert validity(array).tolist() == [cell is not None for cell in cells[start:]]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.nulls(3, pa.float64()), []),
        (pa.nulls(3, pa.float64()).slice(1), []),
        (pa.array([1, None, 3], pa.int16()), [1, 3]),
        (pa.array([1.0, None, 3.0]).dictionary_encode().slice(1), [3]),
        (pa.array([], pa.int8()), []),
        (pa.chunked_array([[1.0], [2.0]]).combine_chunks(), [1, 2]),
    ],
    ids=str,
)
def test_numbers_of_odd_arrays(array: pa.Array, expected: list[float]) -> None:
    assert numbers(array)[0].tolist() == expected


@given(codes=st.lists(st.integers(0, 255), max_size=40), data=st.data(), wide=st.booleans())
def test_codes_become_arrow_arrays_and_come_back(
    codes: list[int], data: st.DataObject, wide: bool
) -> None:
    values = np.array(codes, dtype=np.uint16 if wide else np.uint8)
    present = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(codes), max_size=len(codes))), dtype=bool
    )
    assert arrow(values).to_pylist() == codes
    assert plain(arrow(values)).tolist() == codes
    assert arrow(values, present).to_pylist() == [
        c if p else None for c, p in zip(codes, present, strict=True)
    ]
    assert arrow(present).to_pylist() == present.tolist()


LIGHT = """
import sys
from mezzotint import collect, families
m = families.randomized_response(lower=0, upper=1, epsilon=1.0)
options = {"missing": "drop", **OPTIONS}
collect.privatize(sys.argv[1], sys.argv[2], column="x", mechanism=m, **options)
assert collect.read_counts(sys.argv[2]).n == 2
print(sorted({"pandas", "polars", "ray", "torch"} & set(sys.modules)))
"""


@pytest.mark.parametrize("charged", [False, True])
def test_nothing_heavy_is_imported_on_the_way(tmp_path: Path, charged: bool) -> None:
    """The ids are short, so that they are compared with words that mean a missing one."""
    table = pa.table({"x": [0.5, None, 1.0], "id": ["a", "b", "c"]})
    pq.write_table(table, tmp_path / "in.parquet")
    options = {"ledger": str(tmp_path / "l.jsonl"), "charge_by": "id"} if charged else {}
    command = [
        sys.executable,
        "-c",
        LIGHT.replace("OPTIONS", repr(options)),
        str(tmp_path / "in.parquet"),
        str(tmp_path / "out.parquet"),
    ]
    assert (
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "[]"
    )
