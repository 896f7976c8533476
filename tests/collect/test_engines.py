"""Reports by Polars namespace, pandas accessor, DuckDB function and scikit-learn transformer."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from mezzotint import collect, families
from mezzotint.core.errors import ParameterError

CLEAR = families.randomized_response(lower=0, upper=1, epsilon=30.0)
"""So large an epsilon that a code tells its input."""
NOISY = families.randomized_response(lower=0, upper=1, epsilon=0.5)
WIDE = families.stochastic_rounding(lower=0, upper=1, levels=300)
BITS = [0.0, 1.0, 1.0, 0.0, 1.0]


def test_a_namespace_of_polars_expressions() -> None:
    collect.register_polars()
    collect.register_polars()  # again, as a cell of a notebook does: without a warning
    frame = pl.DataFrame({"x": BITS})
    column: object = pl.col("x")
    found = frame.lazy().select(column.mezzotint.privatize(CLEAR)).collect()["x"]  # type: ignore[attr-defined]
    assert found.to_list() == [0, 1, 1, 0, 1]
    assert found.dtype == pl.UInt8


def test_an_accessor_of_pandas_series() -> None:
    pandas = pytest.importorskip("pandas")
    collect.register_pandas()
    collect.register_pandas()
    series = pandas.Series(BITS, index=list("abcde"), name="x")
    found = series.mezzotint.privatize(CLEAR)
    assert (found.tolist(), list(found.index), found.name, str(found.dtype)) == (
        [0, 1, 1, 0, 1], list("abcde"), "x", "uint8",
    )  # fmt: skip
    with pytest.raises(ParameterError, match="value 1 is missing"):
        pandas.Series([0.0, None]).mezzotint.privatize(CLEAR)
    kept = pandas.Series([0.0, None]).mezzotint.privatize(WIDE, missing="keep")
    assert str(kept.dtype) == "UInt16"
    assert kept.isna().tolist() == [False, True]


def test_a_function_of_duckdb() -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        assert collect.register_duckdb_function(connection, "privatize_x", CLEAR) == "privatize_x"
        collect.register_duckdb_function(connection, "kept", CLEAR, missing="keep")
        collect.register_duckdb_function(connection, "noisy", NOISY)
        with pytest.raises(ParameterError, match="already"):
            collect.register_duckdb_function(connection, "kept", CLEAR)
        connection.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (0, 0.0), (1, 1.0), (2, 1.0), (3, 0.0)) v(i, x)"
        )
        assert connection.execute("SELECT privatize_x(x) FROM t ORDER BY i").fetchall() == [
            (0,),
            (1,),
            (1,),
            (0,),
        ]
        assert connection.execute("SELECT kept(NULL::DOUBLE), kept(1)").fetchall() == [(None, 1)]
        with pytest.raises(duckdb.Error, match="missing"):
            connection.execute("SELECT privatize_x(NULL::DOUBLE)").fetchall()
        # A constant input is neither folded into one draw nor shared between two calls.
        rows = connection.execute("SELECT noisy(0.5) a, noisy(0.5) b FROM range(4000)").fetchnumpy()
        assert {float(np.mean(rows[name])) for name in "ab"} & {0.0, 1.0} == set()
        assert abs(np.mean(rows["a"]) - 0.5) < 5 * 0.5 / np.sqrt(4000)
        assert 0.4 < np.mean(rows["a"] == rows["b"]) < 0.6


def test_a_transformer_of_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    given = np.stack([BITS, 1 - np.array(BITS)], axis=1)
    codes = collect.transformer([CLEAR, CLEAR], decoded=False).fit_transform(given)
    assert codes.tolist() == given.tolist()
    pipeline = make_pipeline(collect.transformer([CLEAR, NOISY]), StandardScaler())
    assert pipeline.fit_transform(given).shape == (5, 2)
    many = np.full((20_000, 1), 0.25)
    reports = collect.transformer([NOISY]).fit_transform(many)
    assert abs(reports.mean() - 0.25) < 5 * np.sqrt(float(NOISY.variance(0.25)) / 20_000)
    with pytest.raises(ParameterError, match="a column per table"):
        collect.transformer([CLEAR]).fit(given)
    pandas = pytest.importorskip("pandas")
    named = collect.transformer({"a": CLEAR, "b": CLEAR}, decoded=False)
    frame = pandas.DataFrame(given, columns=["a", "b"])
    assert named.fit(frame).get_feature_names_out().tolist() == ["a", "b"]
    with pytest.raises(ParameterError, match="need exactly these"):
        named.transform(frame[["b", "a"]])
