"""Integer tables, from which reports are drawn. Statements: T1 to T3 (docs/proofs/tables.md).

Privacy concerns the rows: each is a distribution over levels, and inputs between knots mix two of
them. Knots, levels and categories relate rows to data; they are part of the hashed text, and
nothing here depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, final

from mezzotint.kernel.claim import ExactRelease
from mezzotint.kernel.units import (
    TOTAL,
    Fields,
    increases,
    read_json,
    require,
    require_memory,
    sha256,
    tick,
)

MAX_LATTICE = 2**14
"""Integers that represent levels in sums lie below this."""


@final
@dataclass(frozen=True)
class Table:
    """Rows that are distributions over the same levels, in units of 1/TOTAL: checked here."""

    rows: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        require(len(self.rows) > 0, "table", "there is no row")
        for index, row in enumerate(self.rows):
            require(
                len(row) == len(self.rows[0]), "table", f"row {index} has not one weight per level"
            )
            require(
                all(weight >= 0 for weight in row),
                "table",
                f"row {index} is negative",
            )
            row_sum = sum(row)
            require(
                row_sum == TOTAL,
                "table",
                f"row {index} does not sum to 2**32",
                row_sum,
                TOTAL,
            )

    @property
    def columns(self) -> list[tuple[int, ...]]:
        """The weights of each level, by row."""
        return list(zip(*self.rows, strict=True))

    @property
    def distinct(self) -> Table:
        """Without repeated rows, in the order in which they first stand."""
        return Table(list(dict.fromkeys(tuple(row) for row in self.rows)))


Tables: TypeAlias = dict[str, Table]
"""By the SHA-256 of their texts."""


def read_table(text: str) -> tuple[str, Table]:
    """The hash of a table's text, and its distinct rows, without levels that no row uses."""
    fields = Fields(read_json(text, real=str), "a table")
    knots = fields.items("knots")
    levels = fields.items("levels", 2**16)
    weights = fields.lists("weights")
    if fields.has("categories"):
        fields.items("categories")
    fields.done()
    require(len(knots) == len(weights) >= 2, "table", "not one row per knot")
    require(
        len(weights[0]) == len(levels),
        "table",
        "row 0 has not one weight per level",
    )
    used_columns = [column for column in Table(weights).columns if any(column)]
    rows = list(zip(*used_columns, strict=True))
    return sha256(text), Table(rows).distinct


def find_table(tables: Tables, digest: str) -> Table:
    """The table with this hash."""
    require(
        digest in tables,
        "tables",
        "the proof holds no table with this hash",
        digest,
    )
    return tables[digest]


def single_table(release: ExactRelease, tables: Tables) -> Table:
    """The table of a release that draws from one only."""
    digest = release.only_table[0]
    return find_table(tables, digest)


def require_lattice(lattice: Sequence[int], table: Table) -> None:
    """Refuse integers that do not stand for the levels of a table, one each, increasing from 0."""
    require(
        lattice[:1] == (0,) and len(lattice) == len(table.columns),
        "lattice",
        "not one integer per level, from 0 on",
    )
    require(
        increases(lattice) and lattice[-1] < MAX_LATTICE,
        "lattice",
        "the integers do not increase up to 2**14",
    )


def summed_table(release: ExactRelease, tables: Tables) -> Table:
    """The table of a release that adds up integers, by integer instead of by level."""
    table = single_table(release, tables)
    lattice = release.lattice
    require_lattice(lattice, table)
    size = lattice[-1] + 1
    require_memory(len(table.rows) * size, TOTAL.bit_length())
    spread_rows: list[list[int]] = []
    for row in table.rows:
        tick()
        weights = dict(zip(lattice, row, strict=True))
        spread_rows.append([weights.get(integer, 0) for integer in range(size)])
    return Table(spread_rows)


def worst_ratio(table: Table) -> Fraction | None:
    """The largest ratio of two weights of a level (T3); None if one of two weights is 0."""
    largest = Fraction(1)
    for column in table.columns:
        if not any(column):
            continue
        if not all(column):
            return None
        largest = max(largest, Fraction(max(column), min(column)))
    return largest
