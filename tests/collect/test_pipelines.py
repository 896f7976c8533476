"""Reports inside pipelines of the user's own: Arrow arrays, Arrow's compute engine, Polars."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

from mezzotint import collect, families
from mezzotint.collect import pipelines
from mezzotint.core.errors import ParameterError

ONE = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)
WIDE = families.stochastic_rounding(lower=-1, upper=1, levels=300)
VALUES = np.random.default_rng(4).uniform(-1.2, 1.2, 1000)


def seeded_codes(values: np.ndarray, seed: int) -> list[int]:
    return ONE.privatize(values, np.random.default_rng(seed)).tolist()


def fits(codes: np.ndarray, values: np.ndarray) -> bool:
    """Whether counts agree with the table at these inputs; false alarm at most 1e-6."""
    expected = ONE.pmf(np.clip(values, -1, 1)).sum(axis=0)
    statistic = ((np.bincount(codes, minlength=4) - expected) ** 2 / expected).sum()
    return float(statistic) < stats.chi2.isf(1e-6, 3)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(VALUES),
        pa.array(VALUES.astype(np.float32)),
        pa.array([1, 0, -1, 7], pa.int16()),
        pa.array([decimal.Decimal("0.50"), decimal.Decimal("-1.00")]),
        pa.array([], pa.float64()),
    ],
    ids=lambda array: f"{array.type}-{len(array)}",
)
def test_arrow_arrays(values: pa.Array) -> None:
    plain = np.array([float(value) for value in values.to_pylist()], dtype=np.float64)
    if values.type == pa.float32():
        plain = plain.astype(np.float32)
    codes = collect.arrow_codes(values, ONE, rng=3)
    assert codes.type == pa.uint8()
    assert codes.to_pylist() == seeded_codes(plain, 3)


def test_chunks_have_streams_of_their_own() -> None:
    chunked = pa.chunked_array([np.zeros(200), np.zeros(200), np.array([], dtype=float)])
    codes = collect.arrow_codes(chunked, ONE, rng=3)
    assert isinstance(codes, pa.ChunkedArray)
    assert [len(chunk) for chunk in codes.chunks] == [200, 200, 0]
    assert codes.chunk(0).to_pylist() != codes.chunk(1).to_pylist()
    assert codes.chunk(0).to_pylist() == seeded_codes(np.zeros(200), 3)


def test_missing_values_are_named_or_stay_missing() -> None:
    values = pa.array([0.5, None, float("nan"), -0.5])
    with pytest.raises(ParameterError, match="values=missing: value 1 is missing"):
        collect.arrow_codes(values, ONE)
    codes = collect.arrow_codes(values, ONE, missing="keep", rng=1)
    assert codes.is_null().to_pylist() == [False, True, True, False]
    assert codes.drop_null().to_pylist() == seeded_codes(np.array([0.5, -0.5]), 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": pa.array(["a"])}, "not numbers"),
        ({"values": pa.array([2.0]), "on_out_of_range": "error"}, "outside"),
        ({"missing": "drop"}, "missing=drop"),
        ({"on_out_of_range": "wrap"}, "on_out_of_range=wrap"),
        ({"rng": -1}, "rng=-1"),
        ({"rng": "x"}, "rng=str"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], words: str) -> None:
    options = {"values": pa.array([0.5]), "mechanism": ONE, **change}
    with pytest.raises(ParameterError, match=words):
        collect.arrow_codes(options.pop("values"), options.pop("mechanism"), **options)


QUERIES: dict[str, Callable[[pl.DataFrame, pl.Expr], pl.DataFrame]] = {
    "eager": lambda frame, reports: frame.select(reports),
    "lazy": lambda frame, reports: frame.lazy().select(reports).collect(),
    "streaming": lambda frame, reports: frame.lazy().select(reports).collect(engine="streaming"),
}


@pytest.mark.parametrize("query", list(QUERIES))
def test_polars_queries(query: str) -> None:
    values = np.tile(VALUES, 500)
    frame = pl.DataFrame({"x": values})
    codes = QUERIES[query](frame, collect.polars_codes("x", ONE).alias("r"))["r"]
    assert codes.dtype == pl.UInt8
    assert fits(codes.to_numpy(), values)
    drawn = codes.to_numpy().reshape(500, -1)
    assert len({row.tobytes() for row in drawn}) == 500  # batches do not repeat a stream


def test_polars_expressions_compose() -> None:
    frame = pl.DataFrame({"x": VALUES, "g": np.arange(VALUES.size) % 3})
    seeded = frame.select(collect.polars_codes(pl.col("x") * 1.0, ONE, rng=3))
    assert seeded["x"].to_list() == seeded_codes(VALUES, 3)
    grouped = frame.group_by("g").agg(collect.polars_codes("x", ONE).mean().alias("m"))
    assert grouped.height == 3
    assert frame.select(collect.polars_codes("x", WIDE)).dtypes == [pl.UInt16]
    filtered = (
        frame.lazy()
        .with_columns(collect.polars_codes("x", ONE).alias("r"))
        .filter(pl.col("r") > 1)
        .collect()
    )
    assert filtered["r"].min() > 1


def test_polars_keeps_nulls_or_names_them() -> None:
    frame = pl.DataFrame({"x": [0.5, None, float("nan")]})
    kept = frame.select(collect.polars_codes("x", ONE, missing="keep"))["x"]
    assert kept.is_null().to_list() == [False, True, True]
    with pytest.raises(pl.exceptions.ComputeError, match="value 1 is missing"):
        frame.select(collect.polars_codes("x", ONE))
    empty = pl.DataFrame({"x": [None, None]}).select(collect.polars_codes("x", ONE, missing="keep"))
    assert empty["x"].null_count() == 2


def test_every_collection_is_a_fresh_draw() -> None:
    query = pl.LazyFrame({"x": np.zeros(200)}).select(collect.polars_codes("x", ONE))
    assert query.collect()["x"].to_list() != query.collect()["x"].to_list()


def test_arrow_memory_is_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = pipelines.privatize

    def spy(mechanism: Any, values: Any, **options: Any) -> Any:
        seen.append(values.__array_interface__["data"][0])
        return real(mechanism, values, **options)

    monkeypatch.setattr(pipelines, "privatize", spy)
    values = pa.array(VALUES)
    collect.arrow_codes(values, ONE)
    series = pl.Series("x", VALUES)
    pl.DataFrame([series]).select(collect.polars_codes("x", ONE))
    assert seen[0] == values.buffers()[1].address
    assert seen[1] == series.to_arrow().buffers()[1].address
