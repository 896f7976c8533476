"""Reports inside the user's own pipelines: Arrow, Polars, pandas, DuckDB, scikit-learn."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, Unpack, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.core import brought_by
from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import key_from, privatize
from mezzotint.core.types import NumberArray, Seed
from mezzotint.core.values import arrow, arrow_array, inputs_of

if TYPE_CHECKING:
    import pandas
    import polars

Values: TypeAlias = "pa.Array | pa.ChunkedArray"


class CodeHandling(TypedDict, total=False):
    """How `arrow_codes` treats missing values and those out of range."""

    missing: Literal["error", "keep"]
    on_out_of_range: Literal["clip", "error"]


class CodeOptions(CodeHandling, total=False):
    """The options of `arrow_codes` beside the values and the table."""

    rng: Seed


def arrow_codes(values: Values, mechanism: Mechanism, **options: Unpack[CodeOptions]) -> Values:
    """One report per value of an Arrow array; floats are read where they lie.

    Arguments:
        values: integers, floats or decimals in data units; text, integers or booleans for a table of categories.
        mechanism: the table.
        missing: what to do about a null or NaN: "error" (the default), or "keep" it as a null, visible to all.
        on_out_of_range: "clip" (the default), or "error".
        rng: None (the default) for the cryptographic generator; a seed or Generator is reproducible and NOT private.

    Returns: codes of the same length and kind (array or chunked array); uint8 up to 256 levels, else uint16.

    Raises:
        ParameterError: not numbers, a missing value under "error", out of range under "error", an unknown option.

    Guarantees: every call and every chunk draws from a keystream of its own.

    Example:
        >>> import pyarrow as pa
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> len(mz.collect.arrow_codes(pa.array([0.2, 0.7]), mechanism))
        2
    """
    return _coder(mechanism, **options)(values)


def _width(mechanism: Mechanism) -> int:
    """Bits of the integers that hold the codes."""
    return 8 if mechanism.levels.size <= 256 else 16


def _coder(
    mechanism: Mechanism,
    *,
    missing: Literal["error", "keep"] = "error",
    on_out_of_range: Literal["clip", "error"] = "clip",
    rng: Seed = None,
) -> Callable[[Values], Values]:
    """`arrow_codes` with its options, which are checked at once, for the values to come."""
    check_choice("missing", missing, ("error", "keep"))
    check_choice("on_out_of_range", on_out_of_range, ("clip", "error"))
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        key_from(int(rng))  # refuses a negative one
        rng = np.random.default_rng(rng)  # of which each chunk takes a key

    def codes(values: Values) -> Values:
        if isinstance(values, pa.ChunkedArray):
            kind = pa.uint8() if _width(mechanism) == 8 else pa.uint16()
            return pa.chunked_array(map(codes, values.chunks), type=kind)
        listed = inputs_of(mechanism, values, parameter="values")
        present = listed.present
        if present is not None and missing == "error":
            remedy = 'drop missing values first, or keep them as nulls with missing="keep"'
            raise ParameterError(
                "values", "missing", f"value {int(np.argmin(present))} is missing; {remedy}"
            )
        present_codes, _ = privatize(
            mechanism, listed.values, rng=rng, on_out_of_range=on_out_of_range
        )
        if present is None:
            return arrow(present_codes)
        every_code = np.zeros(present.size, dtype=present_codes.dtype)
        every_code[present] = present_codes
        return arrow(every_code, present)

    return codes


def register_arrow_function(
    name: str, mechanism: Mechanism, **options: Unpack[CodeHandling]
) -> str:
    """Makes `arrow_codes` a function of Arrow's compute engine, for `pyarrow.compute.call_function` and data sets.

    Arguments:
        name: a new name among Arrow's functions, e.g. "privatize_age". It takes one argument: float64, or string for
            a table of categories.
        mechanism, options: as `arrow_codes`, without `rng`.

    Returns: the name.

    Raises:
        ParameterError: a name that is taken, or an unknown option.

    Example:
        >>> import pyarrow as pa
        >>> import pyarrow.compute as pc
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> name = mz.collect.register_arrow_function("privatize_share", mechanism)
        >>> len(pc.call_function(name, [pa.array([0.2, 0.7])]))
        2
    """

    coder = _coder(mechanism, rng=None, **options)

    def function(_: object, values: pa.Array | pa.Scalar) -> Values | pa.Scalar:
        return coder(pa.array([values]))[0] if isinstance(values, pa.Scalar) else coder(values)

    doc = {
        "summary": f"private reports by {mechanism.name}",
        "description": "a fresh draw per value and call",
    }
    kind = pa.uint8() if _width(mechanism) == 8 else pa.uint16()
    try:
        taken = pa.float64() if mechanism.categories is None else pa.string()
        pc.register_scalar_function(function, name, doc, {"values": taken}, kind)
    except (pa.ArrowKeyError, KeyError):
        raise ParameterError(
            "name", name, "Arrow has a function of this name already; choose another"
        ) from None
    return name


def polars_codes(
    column: str | polars.Expr, mechanism: Mechanism, **options: Unpack[CodeOptions]
) -> polars.Expr:
    """A Polars expression that turns a column into reports, for eager, lazy and streaming queries.

    Arguments:
        column: a column's name, or any expression of numbers.
        mechanism, options: as `arrow_codes`.

    Returns: a `polars.Expr` of type UInt8 or UInt16, of the column's own name; rename it with `.alias`.

    Raises:
        ParameterError: an unknown option. The query raises `polars.exceptions.ComputeError` around other errors.

    Guarantees: every batch of every run of the query draws from a keystream of its own.
    Edge cases: collecting a lazy query twice draws twice: each costs the mechanism's epsilon. Write the reports once
        and read those. Of one expression used twice in a query, Polars decides whether it is computed twice.

    Example:
        >>> import polars as pl
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> pl.DataFrame({"x": [0.2, 0.7]}).select(mz.collect.polars_codes("x", mechanism)).shape
        (2, 1)
    """
    with brought_by("polars"):
        import polars

    expression = polars.col(column) if isinstance(column, str) else column
    coder = _coder(mechanism, **options)

    def batch(series: polars.Series) -> polars.Series:
        try:
            return polars.Series(series.name, coder(series.to_arrow()))
        except (
            ParameterError
        ) as error:  # Polars makes errors anew from their text alone, which ours do not allow
            raise polars.exceptions.ComputeError(str(error)) from None

    kind = getattr(polars, f"UInt{_width(mechanism)}")
    return expression.map_batches(batch, return_dtype=kind, is_elementwise=True)


NAME = "mezzotint"


def register_polars(name: str = NAME) -> None:
    """Gives Polars expressions a namespace: `pl.col("x").mezzotint.privatize(mechanism)`; see `polars_codes`.

    Arguments:
        name: of the namespace.

    Example:
        >>> import polars as pl
        >>> mz.collect.register_polars()
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> pl.DataFrame({"x": [0.2, 0.7]}).select(pl.col("x").mezzotint.privatize(mechanism)).shape
        (2, 1)
    """

    class Namespace:
        def __init__(self, expression: polars.Expr) -> None:
            self._expression = expression

        def privatize(self, mechanism: Mechanism, **options: Unpack[CodeOptions]) -> polars.Expr:
            """`polars_codes` of the expression."""
            return polars_codes(self._expression, mechanism, **options)

    library = importlib.import_module("polars")
    if not _is_ours(getattr(library.Expr, name, None)):
        library.api.register_expr_namespace(name)(Namespace)


def _is_ours(registered: object) -> bool:
    """Whether an earlier call made it: libraries warn of what is replaced."""
    return getattr(registered, "__module__", None) == __name__


def register_pandas(name: str = NAME) -> None:
    """Gives pandas series an accessor: `frame["x"].mezzotint.privatize(mechanism)`, a series of codes.

    Options are those of `arrow_codes`. Missing values that are kept become <NA>, of pandas' nullable integers.

    Arguments:
        name: of the accessor.

    Example:
        >>> import pandas as pd
        >>> mz.collect.register_pandas()
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> pd.DataFrame({"x": [0.2, 0.7]})["x"].mezzotint.privatize(mechanism).shape
        (2,)
    """
    import pandas

    class Accessor:
        def __init__(self, series: pandas.Series) -> None:
            self._series = series

        def privatize(self, mechanism: Mechanism, **options: Unpack[CodeOptions]) -> pandas.Series:
            """Codes of the series' values, under its own index and name."""
            codes = arrow_codes(arrow_array(self._series, parameter="values"), mechanism, **options)
            dtype = f"{'UInt' if codes.null_count else 'uint'}{_width(mechanism)}"
            return pandas.Series(
                codes.to_pylist(), index=self._series.index, name=self._series.name, dtype=dtype
            )

    if not _is_ours(getattr(pandas.Series, name, None)):
        pandas.api.extensions.register_series_accessor(name)(Accessor)


def register_duckdb_function(
    connection: Any, name: str, mechanism: Mechanism, **options: Unpack[CodeHandling]
) -> str:
    """Makes `arrow_codes` a function of a DuckDB connection: `SELECT privatize_age(age) FROM people`.

    Arguments:
        connection: from `duckdb.connect`.
        name: of the function. It takes one DOUBLE, or one VARCHAR for a table of categories.
        mechanism, options: as `arrow_codes`, without `rng`; "keep" gives NULL for NULL.

    Returns: the name.

    Raises:
        ParameterError: a name that is taken, or an unknown option.

    Guarantees: the function is declared to have side effects: DuckDB neither folds nor shares its calls, and every
        batch draws from a keystream of its own.
    Edge cases: running a query, or reading a view, twice draws twice: each costs the mechanism's epsilon. Write reports
        once (`CREATE TABLE reports AS SELECT ...`) and read those.

    Example:
        >>> import duckdb
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> connection = duckdb.connect()
        >>> name = mz.collect.register_duckdb_function(connection, "privatize_share", mechanism)
        >>> len(connection.sql(f"SELECT {name}(x) FROM (VALUES (0.2), (0.7)) AS t(x)").fetchall())
        2
    """
    import duckdb

    coder = _coder(mechanism, rng=None, **options)
    kind = "UTINYINT" if _width(mechanism) == 8 else "USMALLINT"
    how: dict[str, Any] = {"type": "arrow", "null_handling": "special", "side_effects": True}
    try:
        taken = "DOUBLE" if mechanism.categories is None else "VARCHAR"
        connection.create_function(name, coder, [taken], kind, **how)
    except duckdb.Error:
        raise ParameterError(
            "name", name, "DuckDB has a function of this name already; choose another"
        ) from None
    return name


def transformer(
    mechanisms: Mapping[Hashable, Mechanism] | Sequence[Mechanism], *, decoded: bool = True
) -> Any:
    """A scikit-learn transformer that replaces every column by reports about it.

    Arguments:
        mechanisms: a table per column, in order, or by column name.
        decoded: reports as the numbers that their codes stand for (unbiased), else the codes.

    Returns: an estimator with `fit`, `transform` and `fit_transform`.

    Guarantees: `fit` learns nothing. Every `transform` draws anew: each costs the sum of the columns' epsilons per row.
    Edge cases: a pipeline that is fitted and then applied to the same rows transforms, and charges, them twice.

    Example:
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> mz.collect.transformer([mechanism, mechanism]).fit_transform(np.array([[0.2, 0.7], [0.1, 0.9]])).shape
        (2, 2)
    """
    base = importlib.import_module("sklearn.base")
    tables = list(mechanisms.values()) if isinstance(mechanisms, Mapping) else list(mechanisms)
    names = list(mechanisms) if isinstance(mechanisms, Mapping) else None

    @final
    class Privatizer(base.OneToOneFeatureMixin, base.TransformerMixin, base.BaseEstimator):
        def __init__(self) -> None: ...

        def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
            del y
            self.n_features_in_ = len(_columns(X, tables, names))
            if (columns := getattr(X, "columns", None)) is not None:
                self.feature_names_in_ = np.asarray(columns, dtype=object)
            return self

        def transform(self, X: npt.ArrayLike) -> NumberArray:
            columns = _columns(X, tables, names)
            arrays = zip(tables, columns, strict=True)
            codes = [_present_codes(table, column) for table, column in arrays]
            parts = (
                [
                    table.decode(column_codes)
                    for table, column_codes in zip(tables, codes, strict=True)
                ]
                if decoded
                else codes
            )
            return np.stack(parts, axis=1)

        def __sklearn_is_fitted__(self) -> bool:
            return True

    return Privatizer()


def _present_codes(table: Mechanism, column: Any) -> NumberArray:
    """One code per value of a column, which has no missing ones."""
    listed = inputs_of(table, column, parameter="X")
    if listed.present is not None:
        first = int(np.argmin(listed.present))
        raise ParameterError("X", f"value {first}", "is missing; drop or fill in such rows first")
    return privatize(table, listed.values)[0]


def _columns(
    given: Any, tables: Sequence[Mechanism], names: Sequence[Hashable] | None
) -> Sequence[Any]:
    """The columns of a frame or of a two-dimensional array, one for each table."""
    headings = list(getattr(given, "columns", []))
    if names is not None and headings != names:
        wanted = ", ".join(map(str, names))
        raise ParameterError("X", "columns", f"need exactly these, in this order: {wanted}")
    shape = np.shape(given)
    if len(shape) != 2 or shape[1] != len(tables):
        raise ParameterError("X", shape, f"need (rows, {len(tables)}), a column per table")
    if hasattr(given, "iloc"):
        return [given.iloc[:, i] for i in range(len(tables))]
    if hasattr(given, "to_series"):  # a Polars frame
        return [given.to_series(i) for i in range(len(tables))]
    array = np.asarray(given)
    return [array[:, i] for i in range(len(tables))]
