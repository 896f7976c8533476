"""The mechanism file: JSON with a schema version, the table, its hash, and the certificate its maker claims."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.mechanism import Mechanism

FORMAT = "mezzotint-mechanism"
VERSION = 1
_KEYS = {"format", "version", "name", "knots", "levels", "weights", "sha256", "certificate"}


def dumps(mechanism: Mechanism) -> str:
    """The file's text. Numbers are shortest round-trip decimals, so reading gives the same bits back."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "name": mechanism.name,
        "knots": mechanism.knots.tolist(),
        "levels": mechanism.levels.tolist(),
        "weights": mechanism.weights.tolist(),
        "sha256": mechanism.sha256,
        "certificate": mechanism.certificate().as_dict(),
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise FileFormatError("mechanism file: a key stands twice; two readers could see two tables")
    return document


def _refuse_constant(text: str) -> Any:
    raise FileFormatError(f"mechanism file: {text} is not a number that a table can hold")


def parse(text: str) -> dict[str, Any]:
    """The document as plain values, schema checked, table not yet.

    Raises:
        FileFormatError: not JSON, not ours, another version, missing or unknown keys.
    """
    try:
        document = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise FileFormatError(
            f"mechanism file: not whole JSON ({error}); it may be truncated, write it again"
        ) from None
    except RecursionError:
        raise FileFormatError("mechanism file: nested too deeply to be a mechanism") from None
    except FileFormatError:
        raise
    except ValueError as error:  # Python refuses to read integers of thousands of digits
        raise FileFormatError(f"mechanism file: holds what no table can hold ({error})") from None
    if not isinstance(document, dict) or cast("dict[str, Any]", document).get("format") != FORMAT:
        raise FileFormatError(f'mechanism file: "format" must be "{FORMAT}"; this is some other file')
    document = cast("dict[str, Any]", document)
    version = document.get("version")
    if type(version) is not int or version != VERSION:  # True and 1.0 equal 1
        raise FileFormatError(
            f"mechanism file: version={version!r}: this release reads version {VERSION}; "
            "upgrade mezzotint or write the file again"
        )
    if set(document) != _KEYS:
        odd = sorted(set(document) ^ _KEYS)
        raise FileFormatError(f"mechanism file: keys missing or unknown: {', '.join(odd)}")
    return document


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise FileFormatError(f"mechanism file: {key} must be a list")
    return cast("list[Any]", value)


def _integer_rows(value: Any) -> Any:
    rows = [_list(row, "each row of weights") for row in _list(value, "weights")]
    if not all(type(weight) is int and 0 <= weight <= 2**32 for row in rows for weight in row):
        raise FileFormatError("mechanism file: every weight must be an integer from 0 to 2**32")
    if len({len(row) for row in rows}) > 1:
        raise FileFormatError("mechanism file: rows of weights differ in length")
    return np.array(rows, dtype=np.int64)


def _reals(values: Any, key: str) -> Any:
    numbers = _list(values, key)
    if not all(type(number) in (int, float) for number in numbers):
        raise FileFormatError(f"mechanism file: {key} must be a list of numbers")
    try:
        return np.array(numbers, dtype=np.float64)
    except OverflowError:
        raise FileFormatError(f"mechanism file: a number of {key} is too large for a float") from None


def loads(text: str) -> dict[str, Any]:
    """The arguments of `Mechanism` that the text holds, hash checked.

    Raises:
        FileFormatError: as `parse`, a table that is none, or a hash that is not the table's.
    """
    document = parse(text)
    if not isinstance(document["name"], str):
        raise FileFormatError("mechanism file: name must be text")
    arguments: dict[str, Any] = {
        "knots": _reals(document["knots"], "knots"),
        "levels": _reals(document["levels"], "levels"),
        "weights": _integer_rows(document["weights"]),
        "name": document["name"],
    }
    try:
        mechanism = Mechanism(**arguments)
    except ParameterError as error:
        raise FileFormatError(f"mechanism file: {error}") from None
    if mechanism.sha256 != document["sha256"]:
        raise FileFormatError("mechanism file: the table is not the one its sha256 names; it was edited or damaged")
    return arguments


def write_text(path: str | os.PathLike[str], text: str, *, overwrite: bool = False) -> None:
    """Writes text atomically; refuses an existing file unless `overwrite`."""
    with replacing(path, overwrite=overwrite, parameter="path") as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: str | os.PathLike[str]) -> str:
    """The file's text; FileFormatError when it is missing, a folder or not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: not a text file, so no mechanism file") from None
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read ({error.strerror}); check the path") from None
