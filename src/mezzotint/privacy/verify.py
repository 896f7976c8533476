"""An independent check of a mechanism file: everything derived again, in rationals, from the text.

This module shares no code with the rest of the package on purpose: it reads the JSON itself, applies the rules of a
table itself, and encloses the logarithm itself. It imports the standard library alone. What it says rests on these
lines and on Python's integers; about ranked codebooks it asks the kernel (`privacy.ranks`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast, final

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

_TOTAL = 2**32
_FILE_KEYS = ("format", "version", "name", "knots", "levels", "weights", "sha256", "certificate")
_CERTIFICATE_KEYS = (
    "epsilon",
    "numerator",
    "denominator",
    "level",
    "row_high",
    "row_low",
    "max_bias",
    "sha256",
    "neighboring",
    "unit",
)


@final
@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """What an independent reading of a mechanism found.

    Arguments:
        epsilon_upper: pure epsilon of one report, the least float at or above it; inf when unbounded or unknown.
        max_bias: sup over inputs of |E[decoded] - input|, exact, data units; None when the table cannot be read, and
            for ranked codebooks, whose bias is over seeds.
        sha256: hash of the table as read; empty when it cannot be read.
        problems: what is wrong, one sentence each; empty when everything agrees.
    """

    epsilon_upper: float
    max_bias: Fraction | None
    sha256: str
    problems: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """True when the table is one and every claim made about it holds."""
        return not self.problems

    def __str__(self) -> str:
        if self.problems:
            return "NOT VALID: " + "; ".join(self.problems)
        return (
            f"valid: epsilon <= {self.epsilon_upper!r} per report (computed in rationals, to an observer of every "
            f"single report; replace-one), table {self.sha256[:12]}"
        )


class _UnreadableError(ValueError):
    """The text holds no table: nothing further can be derived."""


@dataclass(frozen=True, kw_only=True)
class _Table:
    knots: list[float]
    levels: list[float]
    weights: list[list[int]]
    categories: list[object] | None


# Reading -------------------------------------------------------------------------------------------------------


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _UnreadableError("a key stands twice, so two readers could see two tables")
    return document


def _no_constant(text: str) -> object:
    raise _UnreadableError(f"{text} is not a number that a table can hold")


def _read(path: str | os.PathLike[str]) -> Mapping[str, object]:
    file = Path(path)
    if not file.is_file():
        raise _UnreadableError(f"no such file: {file}")
    try:
        text = file.read_bytes().decode("utf-8")
        document: object = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise _UnreadableError("not a text file") from None
    except json.JSONDecodeError as error:
        raise _UnreadableError(f"not whole JSON ({error}); truncated or edited") from None
    if not isinstance(document, dict):
        raise _UnreadableError("the file holds no JSON object")
    return cast("dict[str, object]", document)


def _from_object(mechanism: Mechanism) -> Mapping[str, object]:
    """The document that the object stands for, with the claims its own fast path makes."""
    return {
        "format": "mezzotint-mechanism",
        "version": 1,
        "name": mechanism.name,
        "knots": mechanism.knots.tolist(),
        "levels": mechanism.levels.tolist(),
        "weights": mechanism.weights.tolist(),
        **({} if mechanism.categories is None else {"categories": list(mechanism.categories)}),
        "sha256": mechanism.sha256,
        "certificate": mechanism.certificate().as_dict(),
    }


def _sequence(value: object, key: str) -> list[object]:
    if not isinstance(value, list):
        raise _UnreadableError(f"{key} is not a list")
    return cast("list[object]", value)


def _numbers(value: object, key: str) -> list[float]:
    numbers: list[float] = []
    for entry in _sequence(value, key):
        if isinstance(entry, bool) or not isinstance(entry, (int, float)):
            raise _UnreadableError(f"{key} holds something that is not a number")
        number = float(entry) + 0.0  # turns -0.0 into 0.0, as the canonical form has it
        if not math.isfinite(number):
            raise _UnreadableError(f"{key} holds a number beyond float64")
        numbers.append(number)
    return numbers


def _integers(value: object) -> list[int]:
    row = _sequence(value, "a row of weights")
    if any(type(entry) is not int for entry in row):
        raise _UnreadableError("weights holds something that is not an integer")
    return cast("list[int]", row)


def _require_header(document: Mapping[str, object]) -> None:
    if document.get("format") != "mezzotint-mechanism":
        raise _UnreadableError('"format" is not "mezzotint-mechanism"; this is some other file')
    version = document.get("version")
    if type(version) is not int or version != 1:
        raise _UnreadableError(f"version {version!r} is not one this check knows (1)")


def _header_problems(document: Mapping[str, object]) -> list[str]:
    _require_header(document)
    odd = sorted((set(document) - {"categories"}) ^ set(_FILE_KEYS))
    problems = [f"keys missing or unknown: {', '.join(odd)}"] if odd else []
    if not isinstance(document.get("name"), str):
        problems.append("name is not text")
    return problems


# The rules of a table ------------------------------------------------------------------------------------------


def _table(document: Mapping[str, object]) -> _Table:
    knots = _numbers(document.get("knots"), "knots")
    levels = _numbers(document.get("levels"), "levels")
    weights = [_integers(row) for row in _sequence(document.get("weights"), "weights")]
    if len(knots) < 2 or len(levels) < 2:
        raise _UnreadableError("fewer than 2 knots or 2 levels")
    if len(weights) != len(knots) or any(len(row) != len(levels) for row in weights):
        raise _UnreadableError("weights needs one row per knot and one column per level")
    categories = _sequence(document["categories"], "categories") if "categories" in document else None
    return _Table(knots=knots, levels=levels, weights=weights, categories=categories)


def _table_problems(table: _Table) -> list[str]:
    problems: list[str] = []
    knots, levels = table.knots, table.levels
    if any(a > b for a, b in pairwise(knots)):
        problems.append("knots are not sorted")
    if knots[0] == knots[1] or knots[-1] == knots[-2]:
        problems.append("a jump at the first or last knot")
    if any(a == b for a, b in zip(knots, knots[2:], strict=False)):
        problems.append("a knot stands more than twice")
    if any(a >= b for a, b in pairwise(levels)):
        problems.append("levels do not increase strictly")
    if len(levels) > 2**16:
        problems.append("more levels than 16-bit codes")
    if table.categories is not None:
        if not all(isinstance(one, str) for one in table.categories):
            problems.append("categories holds something that is not text")
        elif len(set(table.categories)) != len(table.categories):
            problems.append("a category stands twice")
        if knots != list(range(len(table.categories))):
            problems.append("knots are not the numbers of the categories")
    for index, row in enumerate(table.weights):
        if min(row) < 0:
            problems.append(f"row {index} has a negative weight")
        if sum(row) != _TOTAL:
            problems.append(f"row {index} sums to {sum(row)}, not 2**32")
    return problems


def _canonical_hash(table: _Table) -> str:
    ordered: dict[str, object] = {"knots": table.knots, "levels": table.levels, "weights": table.weights}
    if table.categories is not None:
        ordered["categories"] = table.categories
    return hashlib.sha256(json.dumps(ordered, separators=(",", ":")).encode("ascii")).hexdigest()


# What follows from a table -------------------------------------------------------------------------------------


def _worst_ratio(table: _Table) -> Fraction | None:
    """max over levels with mass of max/min over rows; None when a used level has a zero (no bound)."""
    worst = Fraction(1)
    for level in range(len(table.levels)):
        column = [row[level] for row in table.weights]
        if max(column) == 0:
            continue
        if min(column) == 0:
            return None
        worst = max(worst, Fraction(max(column), min(column)))
    return worst


def _max_bias(table: _Table) -> Fraction:
    """The mean is linear between knots, so its largest distance from the input is at one of them."""
    levels = [Fraction(level) for level in table.levels]
    scale = math.lcm(*(level.denominator for level in levels))
    integers = [int(level * scale) for level in levels]
    means = (Fraction(sum(w * b for w, b in zip(row, integers, strict=True)), _TOTAL * scale) for row in table.weights)
    return max(abs(mean - Fraction(knot)) for mean, knot in zip(means, table.knots, strict=True))


def _atanh_series(z: Fraction, bits: int) -> tuple[int, int]:
    """Integers around 2**bits * atanh(z), 0 <= z <= 1/3, from z + z**3/3 + z**5/5 + ..., rounded outwards."""
    low = high = 0
    power_low, power_high = math.floor(z * 2**bits), math.ceil(z * 2**bits)
    square, order = z * z, 1
    while power_high > 1:
        low, high = low + power_low // order, high - (-power_high // order)
        power_low, power_high = math.floor(power_low * square), math.ceil(power_high * square)
        order += 2
    # The tail is at most power/order * (1 + 1/9 + 1/81 + ...) < 2 * power, and power is at most 1 here.
    return low, high + 2


def enclose_log(ratio: Fraction, bits: int = 160) -> tuple[Fraction, Fraction]:
    """Rationals low <= log(ratio) <= high, about 2**-bits * 2**10 apart.

    Arguments:
        ratio: a rational at or above 1.
        bits: binary places of the fixed-point arithmetic.

    Guarantees: rigorous: integers rounded outwards throughout; (0, 0) for ratio 1.
    Source: log y = 2 atanh((y - 1)/(y + 1)); log of a power of two times y in [1, 2) is k log 2 + log y.
    """
    if ratio == 1:
        return Fraction(0), Fraction(0)
    doublings = max(0, ratio.numerator.bit_length() - ratio.denominator.bit_length() - 1)
    while ratio >= 2 ** (doublings + 1):
        doublings += 1
    y = ratio / 2**doublings
    low, high = _atanh_series((y - 1) / (y + 1), bits)
    two_low, two_high = _atanh_series(Fraction(1, 3), bits)
    unit = Fraction(2, 2**bits)
    return unit * (low + doublings * two_low), unit * (high + doublings * two_high)


def _least_float_above(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


# What the file claims --------------------------------------------------------------------------------------------


def _epsilon_problems(claimed: object, ratio: Fraction | None) -> list[str]:
    if ratio is None:
        return [] if claimed == "inf" else [f"claims epsilon {claimed!r}, but it is unbounded"]
    if isinstance(claimed, bool) or not isinstance(claimed, (int, float)) or not math.isfinite(claimed):
        return [f"claims epsilon {claimed!r}, which is not a number"]
    high = enclose_log(ratio)[1]
    if Fraction(claimed) < high:
        return [f"claims epsilon {claimed!r}, less than the true {_least_float_above(high)!r}"]
    if Fraction(claimed) > high * (1 + Fraction(1, 2**48)):
        return [f"claims epsilon {claimed!r}, not the {_least_float_above(high)!r} of its table"]
    return []


def _entry(table: _Table, row: object, level: object) -> int | None:
    if type(row) is not int or type(level) is not int:
        return None
    inside = 0 <= row < len(table.weights) and 0 <= level < len(table.levels)
    return table.weights[row][level] if inside else None


def _certificate_problems(
    claims: object, table: _Table, ratio: Fraction | None, bias: Fraction, digest: str
) -> list[str]:
    if not isinstance(claims, dict):
        return ["the certificate is not a JSON object"]
    certificate = cast("dict[str, object]", claims)
    odd = sorted(set(certificate) ^ set(_CERTIFICATE_KEYS))
    if odd:
        return [f"certificate keys missing or unknown: {', '.join(odd)}"]
    problems = [f"certificate {text}" for text in _epsilon_problems(certificate["epsilon"], ratio)]
    top, bottom = certificate["numerator"], certificate["denominator"]
    if type(top) is not int or type(bottom) is not int or top <= 0 or bottom < 0:
        problems.append("certificate numerator and denominator are not weights")
    elif (Fraction(top, bottom) if bottom else None) != ratio:
        problems.append(f"certificate claims the ratio {top}/{bottom}, which is not the table's largest")
    if _entry(table, certificate["row_high"], certificate["level"]) != top:
        problems.append("certificate numerator does not stand where it says")
    if _entry(table, certificate["row_low"], certificate["level"]) != bottom:
        problems.append("certificate denominator does not stand where it says")
    if certificate["max_bias"] != f"{bias.numerator}/{bias.denominator}":
        problems.append(f"certificate claims max_bias {certificate['max_bias']!r}, the table's is {bias}")
    if certificate["sha256"] != digest:
        problems.append("certificate is about another table (sha256 differs)")
    if certificate["neighboring"] != "replace_one" or certificate["unit"] != "report":
        problems.append("certificate names another neighbouring relation or unit than replace_one and report")
    return problems


def _derive_ranks(document: Mapping[str, object]) -> VerificationReport:
    from mezzotint.privacy.ranks import check_ranks

    ratio, digest, problems = check_ranks(document)
    if ratio is None:
        return VerificationReport(epsilon_upper=math.inf, max_bias=None, sha256=digest, problems=tuple(problems))
    certificate = document.get("certificate")
    if isinstance(certificate, dict):
        claimed = cast("dict[str, object]", certificate).get("epsilon")
        problems += [f"certificate {text}" for text in _epsilon_problems(claimed, ratio)]
    epsilon = _least_float_above(enclose_log(ratio)[1])
    return VerificationReport(epsilon_upper=epsilon, max_bias=None, sha256=digest, problems=tuple(problems))


def _derive(document: Mapping[str, object]) -> VerificationReport:
    if document.get("kind") == "ranks":
        _require_header(document)
        return _derive_ranks(document)
    problems = _header_problems(document)
    table = _table(document)
    rules = _table_problems(table)
    digest = _canonical_hash(table)
    if document.get("sha256") != digest:
        problems.append("sha256 is not that of the table: it was edited or damaged")
    if rules:
        return VerificationReport(epsilon_upper=math.inf, max_bias=None, sha256=digest, problems=(*problems, *rules))
    ratio, bias = _worst_ratio(table), _max_bias(table)
    problems += _certificate_problems(document.get("certificate"), table, ratio, bias, digest)
    epsilon = math.inf if ratio is None else _least_float_above(enclose_log(ratio)[1])
    return VerificationReport(epsilon_upper=epsilon, max_bias=bias, sha256=digest, problems=tuple(problems))


def _refused(problem: str) -> VerificationReport:
    return VerificationReport(epsilon_upper=math.inf, max_bias=None, sha256="", problems=(problem,))


def verify(mechanism: Mechanism | str | os.PathLike[str]) -> VerificationReport:
    """Derives everything about a mechanism again in rationals, and compares it with what the file or object claims.

    Arguments:
        mechanism: a mechanism file's path, or a `Mechanism`.

    Returns: a report; `.valid` is False and `.problems` says why when anything at all is wrong.

    Guarantees:
        Raises nothing, whatever the file holds.
        `epsilon_upper` is the least float64 at or above the exact pure epsilon (the logarithm is enclosed).
        Any change of the table, its hash or its certificate is a problem; only a changed name, and an epsilon
            overstated by less than a relative 2**-48, are not.

    Edge cases: missing, truncated, foreign, other version, NaN, numbers beyond float64, duplicate keys: problems.
    Source: T2 to T4 (docs/proofs/tables.md).
    """
    try:
        if isinstance(mechanism, (str, os.PathLike)):
            return _derive(_read(mechanism))
        return _derive(_from_object(mechanism))
    except _UnreadableError as error:
        return _refused(str(error))
    except (OSError, RecursionError, MemoryError) as error:
        return _refused(f"cannot be read ({type(error).__name__}: {error})")
    except (ValueError, OverflowError, AttributeError, TypeError) as error:
        return _refused(f"holds no mechanism ({type(error).__name__}: {error})")
