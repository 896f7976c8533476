"""Every way from a list of values to codes, each with a table so precise that a code tells its input."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq

from mezzotint import Mechanism, collect, families
from mezzotint.core.errors import MezzotintError

EPSILON = 60.0
"""A wrong code has a chance below 1e-25."""

Answer = list[int | None] | str
"""The codes, None for a missing value; or "refused"."""

REFUSED = "refused"


def table(*categories: Any, **special: bool) -> Mechanism:
    return families.categorical(
        categories=list(categories), epsilon=EPSILON, method="krr", **special
    )


LAST_STEP = 7


def steps() -> Mechanism:
    """A table of numbers in [0, 8] whose codes are their integer parts."""
    response = families.k_randomized_response(lower=0, upper=1, levels=8, epsilon=EPSILON)
    knots = np.repeat(np.arange(9.0), 2)[1:-1]
    return Mechanism(
        knots=knots, levels=np.arange(8) + 0.5, weights=np.repeat(response.weights, 2, axis=0)
    )


TABLES: dict[str, Mechanism] = {
    "numbers": steps(),
    "text": table("a", "b", other=True),
    "integers": table(1, 2, 3, other=True),
    "integers, all listed": table(0, 1, 2, 3),
    "booleans": table(True, False, other=True),
    "mixed": table("1", "2", "unknown", "true", other=True, missing=True),
    "empty text": table("", "a", "NA", other=True),
}

NAN = float("nan")
DAY = datetime.date(2026, 10, 5)
LISTS: dict[str, list[Any]] = {
    "integers": [1, 2, 3, 7],
    "whole floats": [1.0, 2.0, 3.0],
    "negative zero": [-0.0, 1.0],
    "fractions": [1.5, 2.0],
    "infinity": [math.inf, 1.0],
    "beyond exact integers": [2.0**53, 1.0],
    "decimals": [decimal.Decimal("2.00"), decimal.Decimal("1.00")],
    "decimal fractions": [decimal.Decimal("2.50"), decimal.Decimal("1.00")],
    "decimals beyond floats": [decimal.Decimal("2.00000000000000000001")],
    "booleans": [True, False],
    "text": ["a", "b", "c"],
    "spelled integers": ["1", "2", "3"],
    "spelled floats": ["1.0", "2.0", "3.00"],
    "spelled booleans": ["True", "FALSE", "true"],
    "spaces": [" 1", "2 ", " a "],
    "markers": ["NA", "a", "1"],
    "special names": ["(other)", "(missing)", "a"],
    "empty text": ["", "a"],
    "missing text": [None, "a"],
    "missing integers": [None, 1, 2],
    "missing floats": [NAN, None, 1.0],
    "missing booleans": [None, True],
    "nothing but missing": [None, None],
    "dates": [DAY],
    "timestamps": [datetime.datetime(2026, 10, 5, 12)],
    "durations": [datetime.timedelta(seconds=3)],
    "binary": [b"a"],
    "lists": [["a"], ["b"]],
}

# The slow twin ---------------------------------------------------------------------------------------------------


def expected(values: list[Any], mechanism: Mechanism) -> Answer:
    """What the page of values (docs/collect.md) says of each value by itself."""
    answers = [_expected(value, mechanism) for value in values]
    return REFUSED if REFUSED in answers else answers


def _expected(value: Any, mechanism: Mechanism) -> Any:
    names = mechanism.categories
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return names.index("(missing)") if names is not None and "(missing)" in names else None
    if not isinstance(value, bool | int | float | decimal.Decimal | str):
        return REFUSED
    if names is None:
        if isinstance(value, bool | str):
            return REFUSED
        return int(min(LAST_STEP, max(0, value)))
    listed = [name for name in names if name[:1] != "("]
    spellings = _spellings(value)
    if spellings is None:
        return REFUSED
    for spelling in spellings:
        if spelling in listed:
            return names.index(spelling)
    if not spellings[-1]:
        return names.index("(missing)") if "(missing)" in names else None
    return names.index("(other)") if "(other)" in names else REFUSED


def _spellings(value: Any) -> list[str] | None:
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, int):
        return [str(value)]
    if isinstance(value, float | decimal.Decimal):
        whole = math.isfinite(value) and value == int(value)
        exact = isinstance(value, decimal.Decimal) or abs(value) < 2**53
        return [str(int(value))] if whole and exact else None
    trimmed = value.strip()
    spellings = [value, trimmed]
    if trimmed.lower() in ("true", "false"):
        spellings.append(trimmed.lower())
    digits, point, zeros = trimmed.partition(".")
    if digits.lstrip("-").isdigit() and (not point or set(zeros) == {"0"}):
        spellings.append(str(int(digits)))
    return spellings


# Ways ------------------------------------------------------------------------------------------------------------


def answer(way: Callable[[list[Any], Mechanism, Path], Answer], *arguments: Any) -> Answer:
    """The codes of a way in, or "refused" where it says by name that it does not take the values."""
    try:
        return way(*arguments)
    except MezzotintError:
        return REFUSED


def arrow_of(values: list[Any]) -> pa.Array:
    return pa.array(values)


def _plain(codes: Any) -> Answer:
    return [None if code is None or code != code else int(code) for code in codes]


def from_file(path: Path, mechanism: Mechanism) -> Answer:
    """Codes of the rows that are reported; missing ones, told by a kept column, are None."""
    out = path.with_name("reports.parquet")
    collect.privatize(
        path, out, column="x", mechanism=mechanism, keep=["row"], missing="drop", overwrite=True
    )
    found = pq.read_table(out)
    codes = dict(zip(map(int, found["row"].to_pylist()), found["x_code"].to_pylist(), strict=True))
    return [codes.get(row) for row in range(rows_of(path))]


def rows_of(path: Path) -> int:
    return int(path.with_name("rows").read_text())


def written(write: Callable[[pa.Table, Path], Any], name: str) -> Any:
    def way(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
        array = values if isinstance(values, pa.Array) else arrow_of(values)
        rows = pa.array(range(len(array)))
        (folder / "rows").write_text(str(len(array)))
        write(pa.table({"x": array, "row": rows}), folder / name)
        return from_file(folder / name, mechanism)

    return way


def write_csv(content: pa.Table, path: Path) -> None:
    columns = content.to_pydict()
    pairs = zip(columns["x"], columns["row"], strict=True)
    lines = [f'"{_cell(x)}",{row}\n' for x, row in pairs]
    path.write_text("x,row\n" + "".join(lines), encoding="utf-8")


def write_json(content: pa.Table, path: Path) -> None:
    rows = content.to_pylist()
    path.write_text("".join(json.dumps(row, default=float) + "\n" for row in rows))


def by_arrow(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    return _plain(collect.arrow_codes(arrow_of(values), mechanism, missing="keep").to_pylist())


def by_chunks(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    array = arrow_of(values)
    chunks = pa.chunked_array([array[:1], array[1:]], type=array.type)
    return _plain(collect.arrow_codes(chunks, mechanism, missing="keep").to_pylist())


def by_dictionary(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    array = arrow_of(values)
    if pa.types.is_nested(array.type) or pa.types.is_null(array.type):
        return by_arrow(values, mechanism, folder)
    encoded = array.dictionary_encode()
    return _plain(collect.arrow_codes(encoded, mechanism, missing="keep").to_pylist())


def by_runs(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    import pyarrow.compute as pc

    array = arrow_of(values)
    if pa.types.is_nested(array.type) or pa.types.is_null(array.type):
        return by_arrow(values, mechanism, folder)
    encoded = pc.run_end_encode(array)  # type: ignore[attr-defined]
    return _plain(collect.arrow_codes(encoded, mechanism, missing="keep").to_pylist())


def by_pandas(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    import pandas

    series = pandas.Series(values, dtype=object)
    return _plain(collect.arrow_codes(series, mechanism, missing="keep").to_pylist())


def by_polars(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    import polars

    try:
        frame = polars.DataFrame({"x": polars.Series(values, strict=True)})
        codes = frame.select(collect.polars_codes("x", mechanism, missing="keep"))["x"].to_list()
    except polars.exceptions.ComputeError:
        return REFUSED
    return _plain(codes)


def by_duckdb(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    import duckdb

    relation = pa.table({"x": arrow_of(values)})
    connection = duckdb.connect()
    connection.register("relation", relation)
    collect.register_duckdb_function(connection, "codes", mechanism, missing="keep")
    try:
        rows = connection.execute("SELECT codes(x) FROM relation").fetchall()
    except duckdb.Error:
        return REFUSED
    return _plain(row[0] for row in rows)


def by_list(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    return _plain(mechanism.privatize(values))


def by_memo(values: list[Any], mechanism: Mechanism, folder: Path) -> Answer:
    users = list(range(len(values)))
    return _plain(collect.memoised(values, users, mechanism=mechanism, key=bytes(32), column="x"))


WAYS: dict[str, Any] = {
    "Parquet": written(pq.write_table, "x.parquet"),
    "Arrow IPC": written(feather.write_feather, "x.arrow"),
    "ORC": written(orc.write_table, "x.orc"),
    "JSON lines": written(write_json, "x.jsonl"),
    "CSV": written(write_csv, "x.csv"),
    "arrow_codes": by_arrow,
    "arrow_codes, chunks": by_chunks,
    "arrow_codes, dictionary": by_dictionary,
    "arrow_codes, run-end encoded": by_runs,
    "pandas": by_pandas,
    "Polars": by_polars,
    "DuckDB": by_duckdb,
    "Mechanism.privatize": by_list,
    "memoised": by_memo,
}

EVERY_VALUE = {"Mechanism.privatize", "memoised"}
"""Ways that give a code for every value, and so refuse missing ones."""

FILES = {"Parquet", "Arrow IPC", "ORC", "JSON lines", "CSV"}
"""Ways that refuse a source without any report."""

UNSPELLED = {
    ("ORC", "nothing but missing"),
    ("JSON lines", "dates"), ("JSON lines", "timestamps"), ("JSON lines", "durations"),
    ("JSON lines", "binary"), ("JSON lines", "decimals beyond floats"), ("ORC", "durations"),
}  # fmt: skip
"""What a format has no spelling for."""

CASTS = {"integers", "whole floats", "negative zero", "decimals", "booleans", "missing integers", "missing floats",
         "missing booleans"}  # fmt: skip
"""Lists that DuckDB does not turn into text by itself: its functions take the declared type alone."""


def law(way: str, name: str, mechanism: Mechanism) -> Answer | None:
    """The answer that one way must give to one list; None where it cannot be asked."""
    values = LISTS[name]
    if (way, name) == ("Mechanism.privatize", "lists"):
        return None  # they are arrays of two dimensions, and so is the answer
    if (way, name) in UNSPELLED:
        return None
    if way == "CSV":
        answer = _of_cells([_cell(value) for value in values], mechanism)
    elif way == "DuckDB" and mechanism.categories is not None and name in CASTS:
        return REFUSED
    else:
        answer = expected(values, mechanism)
    if isinstance(answer, str):
        return answer
    if way in FILES and all(code is None for code in answer):
        return REFUSED
    if way in EVERY_VALUE and None in answer:
        return REFUSED
    return answer


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _of_cells(cells: list[str], mechanism: Mechanism) -> Answer:
    """The same for text that stands for values: numbers are parsed, markers are missing unless they are categories."""
    return expected([_of_cell(cell, mechanism) for cell in cells], mechanism)


def _of_cell(cell: str, mechanism: Mechanism) -> Any:
    listed = mechanism.categories or ()
    if cell not in listed and cell.strip() in ("", "nan", "NA"):
        return None
    if mechanism.categories is not None:
        return cell
    try:
        return float(cell)
    except ValueError:
        return cell


# The matrix of docs/tables/values.md -------------------------------------------------------------------------------


def matrix() -> str:
    """Ways in x value kinds, as the law has them: where a way answers otherwise than the value by itself."""
    kinds_by_row: dict[tuple[str, str], list[str]] = {}
    for way in WAYS:
        for name in LISTS:
            mark = _mark(way, name)
            if mark != "=":
                kinds_by_row.setdefault((way, mark), []).append(name)
    ways_by_row: dict[tuple[str, str], list[str]] = {}
    for (way, mark), kinds in kinds_by_row.items():
        ways_by_row.setdefault((mark, ", ".join(kinds)), []).append(way)
    rows = [["ways in", "there", "kinds of values"], ["---"] * 3]
    rows += [[", ".join(ways), mark, kinds] for (mark, kinds), ways in ways_by_row.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _mark(way: str, name: str) -> str:
    """ "=" where a way answers like the values by themselves, for every table; otherwise what it does."""
    answers = {table: law(way, name, mechanism) for table, mechanism in TABLES.items()}
    wanted = {table: expected(LISTS[name], mechanism) for table, mechanism in TABLES.items()}
    if None in answers.values():
        return "absent"
    if answers == wanted:
        return "="
    differing = [answers[table] for table in TABLES if answers[table] != wanted[table]]
    return "refused" if set(map(str, differing)) == {REFUSED} else "text"
