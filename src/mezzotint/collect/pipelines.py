"""Reports inside the user's own pipelines: Arrow arrays and series, Polars queries, DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
)

import numpy as np
import pyarrow as pa

from mezzotint.core import brought_by
from mezzotint.core.arguments import check_choice, check_options
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import key_from, privatize
from mezzotint.core.types import Seed
from mezzotint.core.values import arrow, inputs_of

if TYPE_CHECKING:
    import polars

Values: TypeAlias = "pa.Array | pa.ChunkedArray"

CODE_TYPES = {8: "UTINYINT", 16: "USMALLINT"}
"""Bits of codes -> the type that DuckDB has for them."""


def arrow_codes(values: Any, mechanism: Mechanism, **options: Any) -> Values:
    """One report per value of an Arrow array, or of a series of pandas or Polars; floats are read
    where they lie.

    Arguments:
        values: integers, floats or decimals in data units; text, integers or booleans for a table
            of categories.
        mechanism: the table.
        missing: what to do about a null or NaN: "error" (the default), or "keep" it as a null,
            visible to all.
        on_out_of_range: "clip" (the default), or "error".
        rng: None (the default) for the cryptographic generator; a seed or Generator is reproducible
            and NOT private.

    Returns: codes of the same length, as an Arrow array (chunked where the values are); uint8 up to
        256 levels, else uint16.

    Raises:
        ParameterError: not numbers, a missing value under "error", out of range under "error", an
            unknown option.

    Guarantees: every call and every chunk draws from a keystream of its own.

    Example:
        >>> import pyarrow as pa
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> len(mz.collect.arrow_codes(pa.array([0.2, 0.7]), mechanism))
        2
    """
    check_options(options, _coder)
    return _coder(mechanism, **options)(values)


def _coded_bits(mechanism: Mechanism) -> int:
    """Bits of the integers that hold the codes."""
    return 8 if mechanism.levels.size <= 256 else 16


def _coder(
    mechanism: Mechanism,
    *,
    missing: Literal["error", "keep"] = "error",
    on_out_of_range: Literal["clip", "error"] = "clip",
    rng: Seed = None,
) -> Callable[[Any], Values]:
    """`arrow_codes` with its options, which are checked at once, for the values to come."""
    check_choice("missing", missing, ("error", "keep"))
    check_choice("on_out_of_range", on_out_of_range, ("clip", "error"))
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        key_from(int(rng))  # refuses a negative one
        rng = np.random.default_rng(rng)  # of which each chunk takes a key
    code_type = {8: pa.uint8(), 16: pa.uint16()}[_coded_bits(mechanism)]

    def codes(values: Any) -> Values:
        if isinstance(values, pa.ChunkedArray):
            return pa.chunked_array(map(codes, values.chunks), type=code_type)
        listed = inputs_of(mechanism, values, parameter="values")
        present = listed.present
        if present is not None and missing == "error":
            index = int(np.argmin(present))
            remedy = 'drop missing values first, or keep them as nulls with missing="keep"'
            raise ParameterError(
                "values",
                "missing",
                f"value {index} is missing; {remedy}",
            )
        present_codes, _ = privatize(
            mechanism,
            listed.values,
            rng=rng,
            on_out_of_range=on_out_of_range,
        )
        if present is None:
            return arrow(present_codes)
        every_code = np.zeros(present.size, dtype=present_codes.dtype)
        every_code[present] = present_codes
        return arrow(every_code, present)

    return codes


def polars_codes(
    column: str | polars.Expr,
    mechanism: Mechanism,
    **options: Any,
) -> polars.Expr:
    """A Polars expression that turns a column into reports, for eager, lazy and streaming queries.

    Arguments:
        column: a column's name, or any expression of numbers.
        mechanism, options: as `arrow_codes`.

    Returns: a `polars.Expr` of type UInt8 or UInt16, of the column's own name; rename it with
        `.alias`.

    Raises:
        ParameterError: an unknown option. The query raises `polars.exceptions.ComputeError` around
            other errors.

    Guarantees: every batch of every run of the query draws from a keystream of its own.
    Edge cases: collecting a lazy query twice draws twice: each costs the mechanism's epsilon. Write
        the reports once and read those. Of one expression used twice in a query, Polars decides
        whether it is computed twice.

    Example:
        >>> import polars as pl
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> pl.DataFrame({"x": [0.2, 0.7]}).select(mz.collect.polars_codes("x", mechanism)).shape
        (2, 1)
    """
    with brought_by("polars"):
        import polars

    check_options(options, _coder)
    coder = _coder(mechanism, **options)
    code_type = {8: polars.UInt8, 16: polars.UInt16}[_coded_bits(mechanism)]
    expression = column
    if isinstance(expression, str):
        expression = polars.col(expression)

    def batch(series: polars.Series) -> polars.Series:
        try:
            return polars.Series(series.name, coder(series))
        except ParameterError as error:
            # Polars makes errors anew from their text alone, which ours do not allow.
            raise polars.exceptions.ComputeError(str(error)) from None

    return expression.map_batches(batch, return_dtype=code_type, is_elementwise=True)


def register_duckdb_function(
    connection: Any,
    name: str,
    mechanism: Mechanism,
    **options: Any,
) -> str:
    """Makes `arrow_codes` a function of a DuckDB connection: `SELECT privatize_age(age) FROM
    people`.

    Arguments:
        connection: from `duckdb.connect`.
        name: of the function. It takes one DOUBLE, or one VARCHAR for a table of categories.
        mechanism, options: as `arrow_codes`, without `rng`; "keep" gives NULL for NULL.

    Returns: the name.

    Raises:
        ParameterError: a name that is taken, or an unknown option.

    Guarantees: the function is declared to have side effects: DuckDB neither folds nor shares its
        calls, and every batch draws from a keystream of its own.
    Edge cases: running a query, or reading a view, twice draws twice: each costs the mechanism's
        epsilon. Write reports once (`CREATE TABLE reports AS SELECT ...`) and read those.

    Example:
        >>> import duckdb
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> connection = duckdb.connect()
        >>> name = mz.collect.register_duckdb_function(connection, "privatize_share", mechanism)
        >>> len(connection.sql(f"SELECT {name}(x) FROM (VALUES (0.2), (0.7)) AS t(x)").fetchall())
        2
    """
    import duckdb

    check_options(options, _coder, rng="queries draw from the cryptographic generator")
    coder = _coder(mechanism, rng=None, **options)
    value_type = "VARCHAR"
    if mechanism.categories is None:
        value_type = "DOUBLE"
    code_type = CODE_TYPES[_coded_bits(mechanism)]
    declared: dict[str, Any] = {
        "type": "arrow",
        "null_handling": "special",
        "side_effects": True,
    }
    try:
        connection.create_function(name, coder, [value_type], code_type, **declared)
    except duckdb.Error:
        remedy = "DuckDB has a function of this name already; choose another"
        raise ParameterError("name", name, remedy) from None
    return name
