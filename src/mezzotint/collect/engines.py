"""Reports inside other engines: methods of Polars expressions and pandas series, a DuckDB function, scikit-learn."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.pipelines import MissingValues, OutOfRange, arrow_codes, polars_codes
from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import Mechanism

NAME = "mezzotint"

duckdb: Any = LazyModule("duckdb")


def register_polars(name: str = NAME) -> None:
    """Gives Polars expressions a namespace: `pl.col("x").mezzotint.privatize(mechanism)`; see `polars_codes`."""

    class Namespace:
        def __init__(self, expression: Any) -> None:
            self._expression = expression

        def privatize(self, mechanism: Mechanism, **options: Any) -> Any:
            """`polars_codes` of the expression."""
            return polars_codes(self._expression, mechanism, **options)

    importlib.import_module("polars").api.register_expr_namespace(name)(Namespace)


def register_pandas(name: str = NAME) -> None:
    """Gives pandas series an accessor: `frame["x"].mezzotint.privatize(mechanism)`, a series of codes.

    Options are those of `arrow_codes`. Missing values that are kept become <NA>, of pandas' nullable integers.
    """
    pandas = importlib.import_module("pandas")

    class Accessor:
        def __init__(self, series: Any) -> None:
            self._series = series

        def privatize(self, mechanism: Mechanism, **options: Any) -> Any:
            """Codes of the series' values, under its own index and name."""
            codes = arrow_codes(pa.array(self._series, from_pandas=True), mechanism, **options)
            kind = "UInt8" if mechanism.levels.size <= 256 else "UInt16"
            kept = kind if codes.null_count else kind.lower()
            return pandas.Series(codes.to_pylist(), index=self._series.index, name=self._series.name, dtype=kept)

    pandas.api.extensions.register_series_accessor(name)(Accessor)


def register_duckdb_function(
    connection: Any,
    name: str,
    mechanism: Mechanism,
    *,
    missing: MissingValues = "error",
    on_out_of_range: OutOfRange = "clip",
) -> str:
    """Makes `arrow_codes` a function of a DuckDB connection: `SELECT privatize_age(age) FROM people`.

    Arguments:
        connection: from `duckdb.connect`.
        name: of the function. It takes one DOUBLE.
        mechanism, missing, on_out_of_range: as `arrow_codes`; "keep" gives NULL for NULL.

    Returns: the name.

    Raises:
        ParameterError: a name that is taken.

    Guarantees: the function is declared to have side effects: DuckDB neither folds nor shares its calls, and every
        batch draws from a keystream of its own.
    Edge cases: running a query, or reading a view, twice draws twice: each costs the mechanism's epsilon. Write reports
        once (`CREATE TABLE reports AS SELECT ...`) and read those.
    """

    def function(values: Any) -> Any:
        return arrow_codes(values, mechanism, missing=missing, on_out_of_range=on_out_of_range)

    kind = "UTINYINT" if mechanism.levels.size <= 256 else "USMALLINT"
    try:
        connection.create_function(
            name, function, ["DOUBLE"], kind, type="arrow", null_handling="special", side_effects=True
        )
    except duckdb.Error:
        raise ParameterError("name", name, "DuckDB has a function of this name already; choose another") from None
    return name


def transformer(mechanisms: Mapping[Any, Mechanism] | Sequence[Mechanism], *, decoded: bool = True) -> Any:
    """A scikit-learn transformer that replaces every column by reports about it.

    Arguments:
        mechanisms: a table per column, in order, or by column name.
        decoded: reports as the numbers that their codes stand for (unbiased), else the codes.

    Returns: an estimator with `fit`, `transform` and `fit_transform`.

    Guarantees: `fit` learns nothing. Every `transform` draws anew: each costs the sum of the columns' epsilons per row.
    Edge cases: a pipeline that is fitted and then applied to the same rows transforms, and charges, them twice.
    """
    base = importlib.import_module("sklearn.base")
    tables = list(mechanisms.values()) if isinstance(mechanisms, Mapping) else list(mechanisms)
    names = list(mechanisms) if isinstance(mechanisms, Mapping) else None

    @final
    class Privatizer(base.OneToOneFeatureMixin, base.TransformerMixin, base.BaseEstimator):
        def __init__(self) -> None: ...

        def fit(self, X: Any, y: Any = None) -> Self:
            del y
            self.n_features_in_ = _columns(X, tables, names).shape[1]
            if hasattr(X, "columns"):
                self.feature_names_in_ = np.asarray(X.columns, dtype=object)
            return self

        def transform(self, X: Any) -> npt.NDArray[Any]:
            values = _columns(X, tables, names)
            codes = [table.privatize(values[:, i]) for i, table in enumerate(tables)]
            parts = [table.decode(one) for table, one in zip(tables, codes, strict=True)] if decoded else codes
            return np.stack(parts, axis=1)

        def __sklearn_is_fitted__(self) -> bool:
            return True

    return Privatizer()


def _columns(given: Any, tables: Sequence[Mechanism], names: Sequence[Any] | None) -> npt.NDArray[Any]:
    if names is not None and list(getattr(given, "columns", [])) != names:
        raise ParameterError("X", "columns", f"need exactly these, in this order: {', '.join(map(str, names))}")
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(tables):
        raise ParameterError("X", values.shape, f"need (rows, {len(tables)}), a column per table")
    return values
