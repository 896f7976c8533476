"""Integer tables, from which reports are drawn. Statements: T1 to T3 (docs/proofs/tables.md).

Privacy concerns the rows: each is a distribution over levels, and inputs between knots mix two of them. Knots, levels
and categories relate rows to data; they are part of the hashed text, and nothing here depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from mezzotint.kernel.claim import ExactRelease
from mezzotint.kernel.units import TOTAL, Fields, read_json, require, sha256

Rows: TypeAlias = Sequence[Sequence[int]]
"""Distinct rows in the order in which they first stand, without columns that no row uses."""
Tables: TypeAlias = dict[str, Rows]
"""By the SHA-256 of their texts."""


def read_table(text: str) -> tuple[str, Rows]:
    """The hash of a table's text, and its rows: one per knot, 2**32 distributed over the levels in each."""
    fields = Fields(read_json(text, real=str), "a table")
    knots, levels, weights = (
        fields.items("knots"),
        fields.items("levels", 2**16),
        fields.lists("weights"),
    )
    if fields.has("categories"):
        fields.items("categories")
    fields.done()
    require(len(knots) == len(weights) >= 2, "table", "not one row per knot")
    for index, row in enumerate(weights):
        require(len(row) == len(levels), "table", f"row {index} has not one weight per level")
        require(sum(row) == TOTAL, "table", f"row {index} does not sum to 2**32", sum(row), TOTAL)
    used = [level for level, column in enumerate(zip(*weights, strict=True)) if any(column)]
    return sha256(text), list(dict.fromkeys(tuple(row[level] for level in used) for row in weights))


def table_rows(tables: Tables, digest: str) -> Rows:
    """The rows of the table with this hash."""
    require(digest in tables, "tables", "the proof holds no table with this hash", digest)
    return tables[digest]


def single_table(release: ExactRelease, tables: Tables) -> Rows:
    """The rows of a release that draws from one table only."""
    require(len(release.tables) == 1, "tables", "this proof is about one table")
    return table_rows(tables, release.tables[0][0])


def summed_rows(release: ExactRelease, tables: Tables) -> list[list[int]]:
    """The rows of a release that adds up integers, by integer."""
    rows, lattice = single_table(release, tables), release.lattice
    require(
        lattice[:1] == (0,) and len(lattice) == len(rows[0]),
        "lattice",
        "not one integer per level, from 0 on",
    )
    require(
        all(a < b < 2**14 for a, b in pairwise(lattice)),
        "lattice",
        "the integers do not increase up to 2**14",
    )
    weights = [dict(zip(lattice, row, strict=True)) for row in rows]
    return [[row.get(place, 0) for place in range(lattice[-1] + 1)] for row in weights]


def worst_ratio(rows: Rows) -> Fraction | None:
    """The largest ratio of two entries of a column (T3); None if a column in use contains a zero."""
    columns = list(zip(*rows, strict=True))
    return (
        max(Fraction(max(column), min(column)) for column in columns)
        if all(map(all, columns))
        else None
    )
