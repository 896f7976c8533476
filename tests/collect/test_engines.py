"""Reports of series, and by a DuckDB function."""

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


def test_series_of_pandas_and_polars_are_values() -> None:
    pandas = pytest.importorskip("pandas")
    for series in (pandas.Series(BITS, index=list("abcde")), pl.Series(BITS)):
        codes = collect.arrow_codes(series, CLEAR)
        assert (codes.to_pylist(), str(codes.type)) == ([0, 1, 1, 0, 1], "uint8")
    with pytest.raises(ParameterError, match="value 1 is missing"):
        collect.arrow_codes(pandas.Series([0.0, None]), CLEAR)
    kept = collect.arrow_codes(pandas.Series([0.0, None]), WIDE, missing="keep")
    assert str(kept.type) == "uint16"
    assert kept.is_null().to_pylist() == [False, True]


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
