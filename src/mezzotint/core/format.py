"""The mechanism file: JSON with a schema version, the table, its hash, and the certificate its maker claims."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from typing import Any, NoReturn, TypeGuard, cast

import numpy as np

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.mechanism import FloatArray, IntArray, Mechanism
from mezzotint.core.records import Json, JsonObject

FORMAT = "mezzotint-mechanism"
TABLE_FORMAT = "mezzotint-table"
"""The same document without certificate and name (which may speak of a claim, too): for
reports that were drawn from a seed, which no certificate is about."""

VERSION = 1
_KEYS = {"format", "version", "name", "knots", "levels", "weights", "sha256", "certificate"}
_PLACE = frozenset({"numerator", "denominator", "level", "row_high", "row_low"})


def dumps(mechanism: Mechanism, *, certified: bool = True) -> str:
    """The file's text. Numbers are shortest round-trip decimals, so reading gives the same bits back.

    Arguments:
        certified: False leaves certificate and name out, and every word about privacy with them (`TABLE_FORMAT`).
    """
    document: JsonObject = {
        "format": FORMAT if certified else TABLE_FORMAT,
        "version": VERSION,
        **({"name": mechanism.name} if certified else {}),
        "knots": mechanism.knots.tolist(),
        "levels": mechanism.levels.tolist(),
        "weights": mechanism.weights.tolist(),
        **({} if mechanism.categories is None else {"categories": list(mechanism.categories)}),
        "sha256": mechanism.sha256,
    }
    if certified:
        document["certificate"] = mechanism.certificate().as_dict()
    return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"


def _no_duplicates(pairs: list[tuple[str, Json]]) -> JsonObject:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise FileFormatError("mechanism file: a key stands twice; two readers could see two tables")
    return document


def _refuse_constant(text: str) -> NoReturn:
    raise FileFormatError(f"mechanism file: {text} is not a number that a table can hold")


def parse_object(text: str, *, wanted: str = FORMAT) -> JsonObject:
    """The document as plain values: whole JSON of a format of ours and of this version, of whatever kind.

    Raises:
        FileFormatError: not JSON, not ours, another version, a key that stands twice.
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
    if not isinstance(document, dict) or cast("JsonObject", document).get("format") != wanted:
        raise FileFormatError(f'mechanism file: "format" must be "{wanted}"; this is some other file')
    document = cast("JsonObject", document)
    version = document.get("version")
    if type(version) is not int or version != VERSION:  # True and 1.0 equal 1
        raise FileFormatError(
            f"mechanism file: version={version!r}: this release reads version {VERSION}; "
            "upgrade mezzotint or write the file again"
        )
    return document


def parse(text: str, *, certified: bool = True) -> JsonObject:
    """The document of a table as plain values, schema checked, table not yet.

    Arguments:
        certified: False for a `TABLE_FORMAT` document, which has no certificate.

    Raises:
        FileFormatError: as `parse_object`; missing or unknown keys.
    """
    wanted, keys = (FORMAT, _KEYS) if certified else (TABLE_FORMAT, _KEYS - {"name", "certificate"})
    document = parse_object(text, wanted=wanted)
    if document.get("kind") == "ranks":
        raise FileFormatError("mechanism file: a ranked codebook; load it with mezzotint.vectors.RankedCodebook.load")
    if set(document) - {"categories"} != keys:
        odd = sorted((set(document) - {"categories"}) ^ keys)
        raise FileFormatError(f"mechanism file: keys missing or unknown: {', '.join(odd)}")
    return document


def _list(value: Json, key: str) -> list[Json]:
    if not isinstance(value, list):
        raise FileFormatError(f"mechanism file: {key} must be a list")
    return value


def _integer_rows(value: Json) -> IntArray:
    rows = [_list(row, "each row of weights") for row in _list(value, "weights")]
    if not all(type(weight) is int and 0 <= weight <= 2**32 for row in rows for weight in row):
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
        raise FileFormatError(f"mechanism file: a number of {key} is too large for a float") from None


# The certificate ---------------------------------------------------------------------------------------------------


def _same_ratio(claims: JsonObject, truth: JsonObject) -> bool:
    top, bottom = claims["numerator"], claims["denominator"]
    if type(top) is not int or type(bottom) is not int or top <= 0 or bottom < 0:
        return False
    return top * truth["denominator"] == truth["numerator"] * bottom


def _stands(claims: JsonObject, weights: list[list[int]]) -> bool:
    """Whether numerator and denominator stand in the table where the certificate says."""
    level, rows = claims["level"], (claims["row_high"], claims["row_low"])
    if not all(type(row) is int and 0 <= row < len(weights) for row in rows):
        return False
    if type(level) is not int or not 0 <= level < len(weights[0]):
        return False
    return [weights[row][level] for row in rows] == [claims["numerator"], claims["denominator"]]


def _is_number(value: Json) -> TypeGuard[float]:
    return type(value) in (int, float)


def _same_epsilon(stated: Json, true: Json) -> bool:
    """A finite epsilon may overstate by what logarithms of other libraries differ; it never understates."""
    if not _is_number(stated) or not _is_number(true) or not abs(stated) < float("inf"):
        return False
    return Fraction(true) <= Fraction(stated) <= Fraction(true) * (1 + Fraction(1, 2**48))


def _check_certificate(stated: Json, mechanism: Mechanism) -> None:
    """Refuses a certificate that is not that of its table: what `privacy.verify` accepts, and nothing else."""
    truth = mechanism.certificate().as_dict()
    if not isinstance(stated, dict):
        raise FileFormatError("mechanism file: certificate is not a JSON object; take the file as its maker wrote it")
    claims = cast("JsonObject", stated)
    if set(claims) != set(truth):
        odd = ", ".join(sorted(set(claims) ^ set(truth)))
        raise FileFormatError(f"mechanism file: certificate: keys missing or unknown: {odd}")
    # Where several levels share the largest ratio, a maker may name any of them.
    free = _PLACE if _same_ratio(claims, truth) and _stands(claims, mechanism.weights.tolist()) else frozenset[str]()
    for key, true in truth.items():
        same = type(claims[key]) is type(true) and claims[key] == true
        if not same and key not in free and not (key == "epsilon" and _same_epsilon(claims[key], true)):
            raise FileFormatError(
                f"mechanism file: certificate says {key}={claims[key]!r}, its table says {true!r}: it was edited or "
                "forged; take the file as its maker wrote it, or build the mechanism from its table and save it anew"
            )


def loads(text: str, *, certified: bool = True) -> dict[str, Any]:
    """The arguments of `Mechanism` that the text holds; hash and certificate derived anew and compared.

    Arguments:
        certified: as `parse`.

    Raises:
        FileFormatError: as `parse`, a table that is none, or a hash or certificate that is not the table's.
    """
    document = parse(text, certified=certified)
    if certified and not isinstance(document["name"], str):
        raise FileFormatError("mechanism file: name must be text")
    arguments: dict[str, Any] = {
        "knots": _reals(document["knots"], "knots"),
        "levels": _reals(document["levels"], "levels"),
        "weights": _integer_rows(document["weights"]),
        **({"name": document["name"]} if certified else {}),
    }
    if "categories" in document:
        arguments["categories"] = tuple(_list(document["categories"], "categories"))
    try:
        mechanism = Mechanism(**arguments)
    except (ParameterError, TypeError) as error:
        raise FileFormatError(f"mechanism file: {error}") from None
    if mechanism.sha256 != document["sha256"]:
        raise FileFormatError("mechanism file: the table is not the one its sha256 names; it was edited or damaged")
    if certified:
        _check_certificate(document["certificate"], mechanism)
    return arguments


def write_text(path: str | os.PathLike[str], text: str, *, overwrite: bool = False) -> None:
    """Writes text atomically; refuses an existing file unless `overwrite`."""
    with replacing(path, overwrite=overwrite, parameter="path") as temporary:
        temporary.write_text(text, encoding="utf-8")
