"""An independent check of files: a mechanism's numbers derived again from the text, a claim's proof checked.

What it says about a mechanism rests on these lines, which apply the rules of a table and of its certificate, and on the
kernel, which reads JSON strictly, takes the largest ratio and encloses the logarithm. Nothing else of the package has a
part in it. What it says about a claim is the kernel's verdict.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast, final

import flint

from mezzotint.kernel.check import verdict
from mezzotint.kernel.claim import FORMAT, ExactClaim, words
from mezzotint.kernel.one import ranks_ratio
from mezzotint.kernel.real import ceil_scaled, log_fraction
from mezzotint.kernel.table import read_table, worst_ratio
from mezzotint.kernel.units import BITS, TOTAL, WHOLE, Refused, Unreadable, canonical, read_json, sha256

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

_FILE_KEYS = ["format", "version", "name", "knots", "levels", "weights", "sha256", "certificate"]
_RATIO_KEYS, _SUBJECT_KEYS = ["epsilon", "numerator", "denominator"], ["sha256", "neighboring", "unit"]
_CERTIFICATE_KEYS = [*_RATIO_KEYS, "level", "row_high", "row_low", "max_bias", *_SUBJECT_KEYS]


@final
@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """The findings of an independent reading of a mechanism or of a claim.

    Arguments:
        epsilon_upper: pure epsilon of one report, the least float at or above it; of a claim its epsilon. inf when
            unbounded or unknown, or when the claim promises no privacy (a lower bound of designs).
        max_bias: sup over inputs of |E[decoded] - input|, exact, data units; None when the table cannot be read, for
            ranked codebooks, whose bias is over seeds, and for claims.
        sha256: hash of the table or claim as read; empty when it cannot be read.
        problems: what is wrong, one sentence each; empty when everything agrees.
        subject: "mechanism" or "claim": what the file is about.
        claim: of a claim file that can be read, for `claim.delta`, `claim.observer`, ...; certified when it is valid.

    Example:
        >>> mz.families.randomized_response(epsilon=1.0).save("m.json")
        >>> report = mz.privacy.verify("m.json")
        >>> report.valid, report.problems
        (True, ())
    """

    epsilon_upper: float
    max_bias: Fraction | None
    sha256: str
    problems: tuple[str, ...]
    subject: str = "mechanism"
    claim: ExactClaim | None = None

    @property
    def valid(self) -> bool:
        """True when the table is one and every claim made about it holds; when the kernel accepts a claim's proof."""
        return not self.problems

    def __str__(self) -> str:
        if self.problems:
            return "NOT VALID: " + "; ".join(self.problems)
        if self.claim is not None:
            return words(self.claim)
        return (
            f"valid: epsilon <= {_twelve(self.epsilon_upper)} per report (computed in rationals, to an observer of "
            f"every single report; replace_one), table {self.sha256[:12]}"
        )


@dataclass(frozen=True, kw_only=True)
class _Table:
    knots: list[float]
    levels: list[float]
    weights: list[list[int]]
    categories: list[object] | None


def _twelve(value: float) -> str:
    """Twelve digits of it, never less: as the rest of the package shows it, by code of this module's own."""
    if math.isinf(value):
        return "unbounded"
    return f"{float(Context(prec=12, rounding=ROUND_CEILING).create_decimal(repr(value))):.12g}"


# Reading -------------------------------------------------------------------------------------------------------


def _text(path: str | os.PathLike[str]) -> str:
    file = Path(path)
    if not file.is_file():
        raise Unreadable(f"no such file: {file}")
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("not a text file") from None


def _object(text: str) -> Mapping[str, object]:
    document = read_json(text, real=float)
    if not isinstance(document, dict):
        raise Unreadable("the file holds no JSON object")
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
        raise Unreadable(f"{key} is not a list")
    return cast("list[object]", value)


def _numbers(value: object, key: str) -> list[float]:
    numbers: list[float] = []
    for entry in _sequence(value, key):
        if isinstance(entry, bool) or not isinstance(entry, (int, float)):
            raise Unreadable(f"{key} holds something that is not a number")
        number = float(entry) + 0.0  # turns -0.0 into 0.0, as the canonical form has it
        if not math.isfinite(number):
            raise Unreadable(f"{key} holds a number beyond float64")
        numbers.append(number)
    return numbers


def _integers(value: object) -> list[int]:
    row = _sequence(value, "a row of weights")
    if any(type(entry) is not int for entry in row):
        raise Unreadable("weights holds something that is not an integer")
    return cast("list[int]", row)


def _require_header(document: Mapping[str, object]) -> None:
    if document.get("format") != "mezzotint-mechanism":
        raise Unreadable('"format" is not "mezzotint-mechanism"; this is some other file')
    version = document.get("version")
    if type(version) is not int or version != 1:
        raise Unreadable(f"version {version!r} is not one this check knows (1)")


def _header_problems(found: set[str], document: Mapping[str, object], keys: list[str]) -> list[str]:
    problems = _odd_keys(found, keys, "")
    return problems if isinstance(document.get("name"), str) else [*problems, "name is not text"]


def _odd_keys(found: object, keys: list[str], where: str) -> list[str]:
    """The faults of a JSON object that must have these keys, and no others."""
    if not isinstance(found, (dict, set)):
        return [f"{where}is not a JSON object"]
    odd = sorted({*cast("set[str]", found)} ^ {*keys})
    return [f"{where}keys missing or unknown: {', '.join(odd)}"] if odd else []


# The rules of a table ------------------------------------------------------------------------------------------


def _table(document: Mapping[str, object]) -> _Table:
    knots = _numbers(document.get("knots"), "knots")
    levels = _numbers(document.get("levels"), "levels")
    weights = [_integers(row) for row in _sequence(document.get("weights"), "weights")]
    if len(knots) < 2 or len(levels) < 2:
        raise Unreadable("fewer than 2 knots or 2 levels")
    if len(weights) != len(knots) or any(len(row) != len(levels) for row in weights):
        raise Unreadable("weights needs one row per knot and one column per level")
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
            problems.append("a category occurs twice")
        if knots != list(range(len(table.categories))):
            problems.append("knots are not the numbers of the categories")
    for index, row in enumerate(table.weights):
        if min(row) < 0:
            problems.append(f"row {index} has a negative weight")
        if sum(row) != TOTAL:
            problems.append(f"row {index} sums to {sum(row)}, not 2**32")
    return problems


def _canonical(table: _Table) -> str:
    ordered: dict[str, object] = {"knots": table.knots, "levels": table.levels, "weights": table.weights}
    if table.categories is not None:
        ordered["categories"] = table.categories
    return json.dumps(ordered, separators=(",", ":"))


# What follows from a table -------------------------------------------------------------------------------------


def _max_bias(table: _Table) -> Fraction:
    """The mean is linear between knots, so its largest distance from the input is at one of them."""
    levels = [Fraction(level) for level in table.levels]
    scale = math.lcm(*(level.denominator for level in levels))
    integers = [int(level * scale) for level in levels]
    means = (Fraction(sum(w * b for w, b in zip(row, integers, strict=True)), TOTAL * scale) for row in table.weights)
    return max(abs(mean - Fraction(knot)) for mean, knot in zip(means, table.knots, strict=True))


def log_above(ratio: Fraction) -> Fraction:
    """A rational at or above log(ratio), by less than 2**-158; 0 at 1."""
    with flint.ctx.workprec(BITS + 96):
        return Fraction(ceil_scaled(log_fraction(ratio), BITS), WHOLE)


def _least_float_above(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


# What the file claims --------------------------------------------------------------------------------------------


def _epsilon_problems(claimed: object, ratio: Fraction | None) -> list[str]:
    if ratio is None:
        return [] if claimed == "inf" else [f"claims epsilon {claimed!r}, but it is unbounded"]
    if isinstance(claimed, bool) or not isinstance(claimed, (int, float)) or not math.isfinite(claimed):
        return [f"claims epsilon {claimed!r}, which is not a number"]
    high = log_above(ratio)
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
    odd = _odd_keys(claims, _CERTIFICATE_KEYS, "certificate ")
    if odd:
        return odd
    certificate = cast("dict[str, object]", claims)
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
    return problems + _subject_problems(certificate, digest)


def _subject_problems(certificate: Mapping[str, object], digest: str) -> list[str]:
    problems = [] if certificate["sha256"] == digest else ["certificate is about another table (sha256 differs)"]
    if certificate["neighboring"] != "replace_one" or certificate["unit"] != "report":
        problems.append("certificate names another neighbouring relation or unit than replace_one and report")
    return problems


# Files of kind "ranks" -----------------------------------------------------------------------------------------
#
# A report of such a mechanism is the index of a codeword. Whatever the codewords are, an input only puts them into an
# order; the probability of the codeword at place p of the order is weight p / T, the same for all inputs. So in every
# column of the table over all inputs stand only members of one list of weights, and the largest ratio is known.

SEED_RULE = (
    "seeds are public and handed out, never chosen by the client; one answer per seed; asked again, the same answer"
)
"""What the claim supposes about seeds; part of the file and of its hash."""

_RANKS_BODY = ["table", "indices", "codebook", "seed_rule"]
_RANKS_KEYS = ["format", "version", "kind", "name", *_RANKS_BODY, "sha256", "certificate"]
_CODEBOOK_KEYS = ["kind", "dimension", "subspace", "norms", "clip_norm", "beacon", "stream"]
MOST_INDICES = 64


def canonical_hash(document: Mapping[str, object]) -> str:
    """SHA-256 of what the claim is about: table, indices, codebook and seed rule."""
    return sha256(canonical({key: document.get(key) for key in _RANKS_BODY}))


def _integer(value: object) -> int:
    # True is an int to Python, and no weight.
    return value if type(value) is int else -1


def table_ratio(table: object) -> tuple[Fraction | None, list[str]]:
    """The largest ratio of two weights that one output can have, and what is wrong with the table.

    Arguments:
        table: {"M", "k", "T", "w_hi", "w_lo", "r"}: the first k of M codewords have weight w_hi, the next r have
            w_lo + 1, the others w_lo; "null", if there: [n, N], the weights of the null output beside ranked codewords,
            and in the row of a zero vector, where all codewords have w_lo. T is 2**32.
    """
    try:
        ratio = ranks_ratio(table)
    except (Refused, Unreadable) as error:
        return None, [f"table: {error}"]
    total = cast("dict[str, object]", table)["T"]
    return (ratio, []) if total == TOTAL else (None, [f"table: T is {total}, not {TOTAL}"])


def _codebook_problems(value: object) -> list[str]:
    problems = _odd_keys(value, _CODEBOOK_KEYS, "codebook ")
    if problems:
        return problems
    codebook = cast("dict[str, object]", value)
    if codebook["kind"] not in ("S", "X", "G", "GX"):
        problems.append("codebook kind is not S, X, G or GX")
    if codebook["norms"] not in ("unit", "slack", "null"):
        problems.append('codebook norms is not "unit", "slack" or "null"')
    if _integer(codebook["dimension"]) < 1:
        problems.append("codebook dimension is not a positive integer")
    if codebook["subspace"] is not None and _integer(codebook["subspace"]) < 1:
        problems.append("codebook subspace is neither null nor a positive integer")
    if not isinstance(codebook["clip_norm"], str) or not isinstance(codebook["beacon"], str):
        problems.append("codebook clip_norm and beacon are not text")
    if _integer(codebook["stream"]) != 1:
        problems.append("codebook stream is not a version that this check knows (1)")
    return problems


def check_ranks(document: Mapping[str, object]) -> tuple[Fraction | None, str, list[str]]:
    """Re-derives what a file of kind "ranks" claims, but for the logarithm.

    Returns: (e**epsilon of a whole report, or None; hash as read; problems).

    Guarantees: no problem only if the rows sum to 2**32, the ratio of the certificate is the largest that any two
        inputs can have at one output of one index, and the hash covers table, codebook and seed rule.
    Source: Theorem V (docs/proofs/vectors.md).
    """
    problems = _header_problems({*document}, document, _RANKS_KEYS)
    digest = canonical_hash(document)
    if document.get("sha256") != digest:
        problems.append("sha256 is not that of the table: it was edited or damaged")
    if document.get("seed_rule") != SEED_RULE:
        problems.append("the seed rule is not the one that the claim supposes")
    problems += _codebook_problems(document.get("codebook"))
    ratio, wrong = table_ratio(document.get("table"))
    indices = _integer(document.get("indices"))
    if not 1 <= indices <= MOST_INDICES:
        wrong.append(f"indices is not between 1 and {MOST_INDICES}")
    if ratio is None or wrong:
        return None, digest, [*problems, *wrong]
    certificate = document.get("certificate")
    problems += _odd_keys(
        certificate, [*_RATIO_KEYS, "indices", *_SUBJECT_KEYS], "certificate "
    ) or _ranks_certificate_problems(cast("dict[str, object]", certificate), ratio, indices, digest)
    return ratio**indices, digest, problems


def _ranks_certificate_problems(claims: Mapping[str, object], ratio: Fraction, indices: int, digest: str) -> list[str]:
    problems: list[str] = []
    high, low = _integer(claims["numerator"]), _integer(claims["denominator"])
    if low < 1 or Fraction(high, low) != ratio:
        problems.append("certificate does not name the largest ratio of weights")
    if _integer(claims["indices"]) != indices:
        problems.append("certificate is about another number of indices")
    return problems + _subject_problems(claims, digest)


def _derive_ranks(document: Mapping[str, object]) -> VerificationReport:
    ratio, digest, problems = check_ranks(document)
    if ratio is None:
        return VerificationReport(epsilon_upper=math.inf, max_bias=None, sha256=digest, problems=tuple(problems))
    certificate = document.get("certificate")
    if isinstance(certificate, dict):
        claimed = cast("dict[str, object]", certificate).get("epsilon")
        problems += [f"certificate {text}" for text in _epsilon_problems(claimed, ratio)]
    epsilon = _least_float_above(log_above(ratio))
    return VerificationReport(epsilon_upper=epsilon, max_bias=None, sha256=digest, problems=tuple(problems))


# The whole ------------------------------------------------------------------------------------------------------------


def _derive(document: Mapping[str, object]) -> VerificationReport:
    _require_header(document)
    if document.get("kind") == "ranks":
        return _derive_ranks(document)
    problems = _header_problems({*document} - {"categories"}, document, _FILE_KEYS)
    table = _table(document)
    rules = _table_problems(table)
    text = _canonical(table)
    digest = sha256(text)
    if document.get("sha256") != digest:
        problems.append("sha256 is not that of the table: it was edited or damaged")
    if rules:
        return VerificationReport(epsilon_upper=math.inf, max_bias=None, sha256=digest, problems=(*problems, *rules))
    ratio, bias = worst_ratio(read_table(text)[1]), _max_bias(table)
    problems += _certificate_problems(document.get("certificate"), table, ratio, bias, digest)
    epsilon = math.inf if ratio is None else _least_float_above(log_above(ratio))
    return VerificationReport(epsilon_upper=epsilon, max_bias=bias, sha256=digest, problems=tuple(problems))


def _refused(problem: str) -> VerificationReport:
    return VerificationReport(epsilon_upper=math.inf, max_bias=None, sha256="", problems=(problem,))


def _judge(text: str, seconds: int) -> VerificationReport:
    status, sentence, claim = verdict(text, seconds)
    bounded = status == 0 and claim is not None and claim.release is not None
    return VerificationReport(
        epsilon_upper=_least_float_above(claim.epsilon) if claim is not None and bounded else math.inf, max_bias=None,
        sha256=claim.sha256 if claim is not None else "", problems=(sentence,) if status else (), subject="claim",
        claim=claim,
    )  # fmt: skip


def verify(mechanism: Mechanism | str | os.PathLike[str], *, seconds: int = 60) -> VerificationReport:
    """Derives everything about a mechanism again in rationals; or checks a claim by its proof.

    Arguments:
        mechanism: a mechanism file's path, a claim file's path, or a `Mechanism`.
        seconds: processor time that checking a claim may take.

    Returns: a report; `.valid` is False and `.problems` says why when anything at all is wrong.

    Guarantees:
        Raises nothing, whatever the file holds.
        `epsilon_upper` is the least float64 at or above the exact pure epsilon (the logarithm is enclosed).
        Any change of the table, its hash or its certificate is a problem; only a changed name, and an epsilon
            overstated by less than a relative 2**-48, are not.
        A valid claim is one that `mezzotint.kernel.check` has accepted in this call.

    Edge cases: missing, truncated, foreign, other version, NaN, numbers beyond float64, duplicate keys, more than
        16 MiB: problems. A check that does not finish is one as well.
    Source: T2 to T4 (docs/proofs/tables.md); docs/proofs/kernel.md.

    >>> from mezzotint import families
    >>> verify(families.randomized_response(lower=-1, upper=1, epsilon=1.0)).valid
    True
    """
    try:
        if isinstance(mechanism, (str, os.PathLike)):
            text = _text(mechanism)
            return _judge(text, seconds) if f'"{FORMAT}"' in text else _derive(_object(text))
        return _derive(_from_object(mechanism))
    except Unreadable as error:
        return _refused(str(error))
    except (OSError, RecursionError, MemoryError) as error:
        return _refused(f"cannot be read ({type(error).__name__}: {error})")
    except (ValueError, OverflowError, AttributeError, TypeError) as error:
        return _refused(f"holds no mechanism ({type(error).__name__}: {error})")
