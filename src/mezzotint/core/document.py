"""The mechanism file: JSON with a schema version, the table, its hash and the epsilon its author
states.

Readers derive everything else from the table (docs/file-format.md). A stated epsilon only helps
people who read the
file: the reader compares it with the table's and refuses the file if they differ.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeGuard, cast, final

import numpy as np

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import parse_json
from mezzotint.core.records import Json, JsonObject, plain
from mezzotint.core.table import Table
from mezzotint.core.types import TOTAL, FloatArray, IntArray

FORMAT = "mezzotint-mechanism"

TABLE_FORMAT = "mezzotint-table"
"""The format without certificate and name, which may mention a claim: for reports drawn from a
seed.
"""

VERSION = 1

_TABLE_KEYS = frozenset({"format", "version", "knots", "levels", "weights", "sha256"})
_MECHANISM_KEYS = _TABLE_KEYS | {"name", "certificate"}

_OVERSTATED = Fraction(1, 2**48)
"""Relative excess of a stated epsilon that is accepted: by so much logarithms of other libraries
may differ.
"""


@final
@dataclass(frozen=True, kw_only=True)
class Document:
    """The content of a mechanism file.

    Arguments:
        table: the table, checked, with the hash that the file names.
        name: its free text; None in the format of a bare table.
        epsilon: as stated, not yet compared with the table's; None in the format of a bare table.
    """

    table: Table
    name: str | None = None
    epsilon: Json = None


def write_table(table: Table) -> str:
    """Return the text of a bare table (`TABLE_FORMAT`), without any word about privacy."""
    return _line({"format": TABLE_FORMAT, "version": VERSION}, table, {})


def write_mechanism(
    table: Table,
    *,
    name: str,
    epsilon: float,
) -> str:
    """Return the file's text. Numbers are shortest round-trip decimals, so reading gives the same
    bits back.
    """
    head = {"format": FORMAT, "version": VERSION, "name": name}
    return _line(head, table, {"certificate": {"epsilon": plain(epsilon)}})


def _line(
    head: JsonObject,
    table: Table,
    tail: JsonObject,
) -> str:
    document = {**head, **table.content(), "sha256": table.sha256, **tail}
    return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"


def read_table(text: str | bytes) -> Table:
    """Return the table that `write_table` wrote; FileFormatError for anything else."""
    return _checked_table(parse_document(text, wanted=TABLE_FORMAT), _TABLE_KEYS)


def read_mechanism(text: str | bytes) -> Document:
    """Read what `write_mechanism` wrote; the caller compares the stated epsilon with the table's
    own.

    Raises:
        FileFormatError: as `parse_document`; keys missing or unknown, an invalid table, or another
            table's hash.
    """
    document = parse_document(text)
    if document.get("kind") == "ranks":
        raise FileFormatError(
            "mechanism file: a ranked codebook; load it with mezzotint.vectors.RankedCodebook.load"
        )
    table = _checked_table(document, _MECHANISM_KEYS)
    if not isinstance(document["name"], str):
        raise FileFormatError("mechanism file: name must be text")
    return Document(
        table=table,
        name=document["name"],
        epsilon=_stated_epsilon(document["certificate"]),
    )


def _stated_epsilon(certificate: Json) -> Json:
    if isinstance(certificate, dict):
        statement = cast("JsonObject", certificate)
        if statement.keys() == {"epsilon"}:
            return statement["epsilon"]
    raise FileFormatError(
        'mechanism file: certificate must be an object with the key "epsilon" alone; '
        "write the file again"
    )


def check_stated_epsilon(stated: Json, derived: float) -> None:
    """Raise FileFormatError unless a stated epsilon is the derived one; it may overstate by a
    relative 2**-48.

    Arguments:
        stated: the file's value: a number, or "inf".
        derived: of the table, rounded up; inf if unbounded.
    """
    if math.isinf(derived):
        agrees = stated == "inf"
    elif _is_number(stated) and math.isfinite(stated):
        exact = Fraction(derived)
        agrees = exact <= Fraction(stated) <= exact * (1 + _OVERSTATED)
    else:
        agrees = False
    if not agrees:
        raise FileFormatError(
            f"mechanism file: the certificate says epsilon={stated!r}, but the table gives "
            f"{plain(derived)!r}: the file was edited or forged; go back to the original, or "
            "rebuild the mechanism from its table and save it"
        )


def parse_document(text: str | bytes, *, wanted: str = FORMAT) -> JsonObject:
    """Parse a document as plain values: complete JSON in the wanted format and of this version.

    Raises:
        FileFormatError: not JSON, another format or version, a key that occurs twice.
    """
    document = parse_json(text, name="mechanism file")
    if not isinstance(document, dict) or cast("JsonObject", document).get("format") != wanted:
        raise FileFormatError(
            f'mechanism file: "format" must be "{wanted}"; this is some other file'
        )
    document = cast("JsonObject", document)
    version = document.get("version")
    if type(version) is not int or version != VERSION:  # True and 1.0 equal 1
        raise FileFormatError(
            f"mechanism file: version={version!r}: this release reads version {VERSION}; "
            "upgrade mezzotint or write the file again"
        )
    return document


def _checked_table(document: JsonObject, keys: frozenset[str]) -> Table:
    unexpected = sorted((set(document) - {"categories"}) ^ keys)
    if unexpected:
        raise FileFormatError(f"mechanism file: keys missing or unknown: {', '.join(unexpected)}")
    arrays: dict[str, Any] = {
        "knots": _reals(document["knots"], "knots"),
        "levels": _reals(document["levels"], "levels"),
        "weights": _integer_rows(document["weights"]),
    }
    if "categories" in document:
        arrays["categories"] = tuple(_list(document["categories"], "categories"))
    try:
        table = Table(**arrays)
    except (ParameterError, TypeError) as error:
        raise FileFormatError(f"mechanism file: {error}") from None
    if table.sha256 != document["sha256"]:
        raise FileFormatError(
            "mechanism file: the table is not the one its sha256 names; it was edited or damaged"
        )
    return table


def _is_number(value: Json) -> TypeGuard[float]:
    return type(value) in (int, float)


def _list(value: Json, key: str) -> list[Json]:
    if not isinstance(value, list):
        raise FileFormatError(f"mechanism file: {key} must be a list")
    return value


def _integer_rows(value: Json) -> IntArray:
    rows = [_list(row, "each row of weights") for row in _list(value, "weights")]
    for row in rows:
        if not all(type(weight) is int and 0 <= weight <= TOTAL for weight in row):
            raise FileFormatError("mechanism file: every weight must be an integer from 0 to 2**32")
    if len({len(row) for row in rows}) > 1:
        raise FileFormatError("mechanism file: rows of weights differ in length")
    return np.array(rows, dtype=np.int64)


def _reals(values: Json, key: str) -> FloatArray:
    numbers = _list(values, key)
    if not all(_is_number(number) for number in numbers):
        raise FileFormatError(f"mechanism file: {key} must be a list of numbers")
    try:
        return np.array(numbers, dtype=np.float64)
    except OverflowError:
        raise FileFormatError(
            f"mechanism file: a number of {key} is too large for a float"
        ) from None
