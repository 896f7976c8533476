"""Tables: their rules, their hash and their worst ratio (docs/proofs/tables.md).

Knots and levels are IEEE doubles in the file. `double` reads each; from there on it is a rational.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import cast, final

from mezzotint.kernel.units import TOTAL, Decimal, Refused, Unreadable, integers, read_json, sha256


def double(token: object) -> tuple[Fraction, str]:
    """The rational that a number in a table stands for, and its one text. No other line of the kernel knows floats."""
    if type(token) is not int and not isinstance(token, Decimal):
        raise Unreadable(f"a table holds {str(token)[:40]!r}, which is not a number")
    try:
        value = float(token) + 0.0  # turns -0.0 into 0.0, as the canonical form has it
        return Fraction(value), repr(value)
    except (OverflowError, ValueError):
        raise Unreadable("a table holds a number beyond float64") from None


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """An integer table as read.

    Arguments:
        knots, levels: exact, data units.
        weights: one row per knot, one column per level.
        sha256: of the canonical text.
    """

    knots: tuple[Fraction, ...]
    levels: tuple[Fraction, ...]
    weights: tuple[tuple[int, ...], ...]
    sha256: str

    @property
    def rows(self) -> list[tuple[int, ...]]:
        """Distinct rows in the order in which they first stand, without columns that no row uses."""
        used = [i for i, column in enumerate(zip(*self.weights, strict=True)) if any(column)]
        return list(dict.fromkeys(tuple(row[i] for i in used) for row in self.weights))

    def problems(self) -> list[str]:
        """The rules of a table that it breaks."""
        knots, levels = self.knots, self.levels
        found = ["knots are not sorted"] if any(not (a <= b) for a, b in pairwise(knots)) else []
        if knots[0] == knots[1] or knots[-1] == knots[-2]:
            found.append("a jump at the first or last knot")
        if any(a == b for a, b in zip(knots, knots[2:], strict=False)):
            found.append("a knot stands more than twice")
        if any(not (a < b) for a, b in pairwise(levels)):
            found.append("levels do not increase strictly")
        if not (len(levels) <= 2**16):
            found.append("more levels than 16-bit codes")
        for index, row in enumerate(self.weights):
            if any(not (weight >= 0) for weight in row):
                found.append(f"row {index} has a negative weight")
            if sum(row) != TOTAL:
                found.append(f"row {index} sums to {sum(row)}, not 2**32")
        return found


def worst_ratio(rows: list[tuple[int, ...]]) -> Fraction | None:
    """The largest ratio of two entries of a column (T3); None when a column that is used holds a zero."""
    worst = Fraction(1)
    for column in zip(*rows, strict=True):
        if not any(column):
            continue
        if min(column) == 0:
            return None
        worst = max(worst, Fraction(max(column), min(column)))
    return worst


def _canonical(knots: list[str], levels: list[str], weights: list[list[int]]) -> str:
    rows = ",".join(f"[{','.join(map(str, row))}]" for row in weights)
    return f'{{"knots":[{",".join(knots)}],"levels":[{",".join(levels)}],"weights":[{rows}]}}'


def _from_document(document: Mapping[str, object]) -> tuple[Table, str]:
    columns: list[tuple[tuple[Fraction, ...], list[str]]] = []
    for key in ("knots", "levels"):
        tokens = document.get(key)
        if not isinstance(tokens, list):
            raise Unreadable(f"{key} is not a list")
        read = [double(token) for token in cast("list[object]", tokens)]
        columns.append((tuple(value for value, _ in read), [text for _, text in read]))
    rows = document.get("weights")
    if not isinstance(rows, list):
        raise Unreadable("weights is not a list")
    weights = [integers(row, "a row of weights", -(2**64)) for row in cast("list[object]", rows)]
    (knots, knot_texts), (levels, level_texts) = columns
    if len(knots) < 2 or len(levels) < 2:
        raise Unreadable("fewer than 2 knots or 2 levels")
    if len(weights) != len(knots) or any(len(row) != len(levels) for row in weights):
        raise Unreadable("weights needs one row per knot and one column per level")
    text = _canonical(knot_texts, level_texts, weights)
    table = Table(knots=knots, levels=levels, weights=tuple(map(tuple, weights)), sha256=sha256(text))
    return table, text


def read_table(text: str) -> Table:
    """The table whose canonical text this is, down to the byte.

    Raises:
        Unreadable: another text.
        Refused: it breaks a rule of tables.
    """
    document = read_json(text, decimals=True)
    if not isinstance(document, dict) or set(cast("dict[str, object]", document)) != {"knots", "levels", "weights"}:
        raise Unreadable("a table holds knots, levels and weights, and nothing else")
    table, again = _from_document(cast("dict[str, object]", document))
    if again != text:
        raise Unreadable("a table is not in its canonical form")
    if problems := table.problems():
        raise Refused("table", problems[0])
    return table
