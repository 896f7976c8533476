"""An independent check of files: mechanisms by deriving their numbers again, claims by their proofs.

What it says about a mechanism rests on these lines, which apply the rules of a table and its
epsilon, and on the kernel, which reads JSON strictly, takes the largest ratio and encloses the
logarithm. Nothing else of the package has a part in it. What it says about a claim is the kernel's
verdict.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final

import flint

from mezzotint.kernel.checker import verdict_on
from mezzotint.kernel.claim import FORMAT, ExactClaim, words
from mezzotint.kernel.one import ranks_ratio
from mezzotint.kernel.real import ceil_scaled, log_fraction
from mezzotint.kernel.table import read_table, worst_ratio
from mezzotint.kernel.units import (
    BITS,
    TOTAL,
    WHOLE,
    Fields,
    Refused,
    Unreadable,
    canonical,
    printed,
    read_json,
    sha256,
    shown,
)

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

Document: TypeAlias = dict[str, Any]

UNREADABLE = 2
"""The kernel's status of what it could not read."""

CLAIM_FILES = (
    "a claim stands in a mechanism file (mezzotint design --out) or in what --proof of privatize, "
    "account, train or federate wrote"
)
"""Which files can be checked."""

_LARGEST = 1 << 26
"""Largest size, in bytes, of a file that is checked: twice what 1,024 categories need."""

_NAME = "mezzotint-mechanism"
_FILE_KEYS = ["format", "version", "name", "knots", "levels", "weights", "sha256", "certificate"]
_RATIO_KEYS = ["epsilon", "numerator", "denominator"]
_SUBJECT_KEYS = ["sha256", "neighboring", "unit"]


@final
@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """The findings of an independent reading of a mechanism or of a claim.

    Arguments:
        epsilon_upper: pure epsilon of one report, the least float at or above it; of a claim its
            epsilon. inf when unbounded or unknown, or when the claim promises no privacy (a lower
            bound of designs).
        max_bias: sup over inputs of |E[decoded] - input|, exact, data units; None when the table
            cannot be read, for categories, ranked codebooks, whose bias is over seeds, and claims.
        sha256: hash of the table or claim as read; empty when it cannot be read.
        problems: what is wrong, one sentence each; empty when everything agrees.
        subject: "mechanism" or "claim": what the file is about.
        claim: of a claim file that can be read, for `claim.delta`, `claim.observer`, ...; certified
            when it is valid.
        unreadable: whether the file could not be read at all, or is of no kind known here, so that
            nothing in it was checked.

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
    unreadable: bool = False

    @property
    def valid(self) -> bool:
        """True when the table is valid and every claim about it holds; when the kernel accepts a
        claim's proof."""
        return not self.problems

    @property
    def facts(self) -> dict[str, object]:
        """What was found, one column each."""
        return {
            "valid": self.valid,
            "subject": self.subject,
            "epsilon_upper": self.epsilon_upper,
            "sha256": self.sha256,
            "problems": "; ".join(self.problems),
        }

    def to_frame(self) -> Any:
        """A pandas data frame of one row."""
        import pandas  # pyright: ignore[reportMissingTypeStubs]

        return pandas.DataFrame([self.facts])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        import html

        rows = (
            f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>"
            for name, value in self.facts.items()
        )
        return f"<table>{''.join(rows)}</table>"

    def __str__(self) -> str:
        if self.problems:
            of_no_kind = self.unreadable and self.subject == "mechanism"
            verdict = "UNREADABLE: " if of_no_kind else "NOT VALID: "
            return verdict + "; ".join(self.problems)
        if self.claim is not None:
            return words(self.claim)
        standing = "certified in rationals, to an observer of every single report; replace_one"
        if math.isinf(self.epsilon_upper):
            return (
                f"valid table without a pure epsilon: nothing private is claimed of a report "
                f"({standing}), table {self.sha256[:12]}"
            )
        return (
            f"valid: epsilon <= {_twelve(self.epsilon_upper)} per report ({standing}), "
            f"table {self.sha256[:12]}"
        )


def _twelve(value: float) -> str:
    """Twelve digits of it, never less.

    As the rest of the package shows it, by code of this module's own.
    """
    upwards = Context(prec=12, rounding=ROUND_CEILING)
    digits = upwards.create_decimal(repr(value))
    return f"{float(digits):.12g}"


def _broken(*rules: tuple[bool, str]) -> list[str]:
    """What is said of the rules that do not hold."""
    return [text for holds, text in rules if not holds]


def _odd_keys(value: object, keys: list[str], subject: str = "") -> list[str]:
    """The faults of a JSON object that must have these keys, and no others."""
    if not isinstance(value, dict):
        return [f"{subject}is not a JSON object"]
    present_keys = {*cast("Document", value)}
    odd_keys = sorted(present_keys ^ {*keys})
    if odd_keys:
        listed = ", ".join(map(_key, odd_keys[:20]))
        return [f"{subject}keys missing or unknown: {listed}"]
    return []


def _key(text: str) -> str:
    """A key of a file without what could make a sentence of it, wherever a terminal breaks it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "?", text)[:40]


def _plain(text: str) -> str:
    """A text of a file as it is where it is printable ASCII, else escaped, and cut to 200
    characters: it may be read in a terminal."""
    return printed(text, 200)


def _text(path: str | os.PathLike[str]) -> str:
    file = Path(path)
    if not file.is_file():
        raise Unreadable(f"no such file: {shown(os.fsdecode(path))}")
    with file.open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise Unreadable(f"longer than {_LARGEST} bytes")
    return content.decode("utf-8")


# The rules of a table


def _numbers(fields: Fields, key: str) -> list[float]:
    """Floats, -0.0 as 0.0: so the canonical form has it."""
    numbers: list[float] = []
    for entry in fields.items(key):
        if type(entry) not in (int, float) or not math.isfinite(entry):
            raise Unreadable(f"{key} holds something that is not a number of float64")
        numbers.append(entry + 0.0)
    return numbers


def _table(document: Document) -> Document:
    """What the hash is about, in the order of the canonical text."""
    fields = Fields(document, "the file")
    table: Document = {
        "knots": _numbers(fields, "knots"),
        "levels": _numbers(fields, "levels"),
        "weights": fields.lists("weights"),
    }
    if fields.has("categories"):
        table["categories"] = fields.items("categories")
    return table


def _table_problems(table: Document) -> list[str]:
    """The broken rules, but for those about weights, which `read_table` knows."""
    knots: list[float] = table["knots"]
    levels: list[float] = table["levels"]
    names: list[object] = table.get("categories", [])
    are_numbered = "categories" not in table or knots == [*range(len(names))]
    are_text = all(isinstance(name, str) for name in names)
    are_distinct = not are_text or len({*names}) == len(names)
    are_several = len(knots) >= 2 and len(levels) >= 2
    are_sorted = all(before <= after for before, after in pairwise(knots))
    are_increasing = all(low < high for low, high in pairwise(levels))
    return _broken(
        (are_several, "fewer than 2 knots or 2 levels"),
        (are_sorted, "knots are not sorted"),
        (not _jumps_at_an_end(knots), "a jump at the first or last knot"),
        (not _stands_thrice(knots), "a knot stands more than twice"),
        (are_increasing, "levels do not increase strictly"),
        (are_text, "categories holds something that is not text"),
        (are_distinct, "a category occurs twice"),
        (are_numbered, "knots are not the numbers of the categories"),
    )


def _jumps_at_an_end(knots: list[float]) -> bool:
    return len({*knots[:2]}) != 2 or len({*knots[-2:]}) != 2


def _stands_thrice(knots: list[float]) -> bool:
    return any(first == third for first, third in zip(knots, knots[2:], strict=False))


# What follows from a table


def _max_bias(table: Document) -> Fraction:
    """Of the mean, which is linear between knots: its largest distance is at one of them."""
    levels = [Fraction(level) for level in table["levels"]]
    scale = math.lcm(*(level.denominator for level in levels))
    integers = [int(level * scale) for level in levels]
    biases: list[Fraction] = []
    for knot, row in zip(table["knots"], table["weights"], strict=True):
        integer_mean = sum(map(int.__mul__, row, integers))
        mean = Fraction(integer_mean, TOTAL * scale)
        biases.append(abs(mean - Fraction(knot)))
    return max(biases)


def log_above(ratio: Fraction) -> Fraction:
    """A rational at or above log(ratio), by less than 2**-158; 0 at 1."""
    with flint.ctx.workprec(BITS + 96):
        return Fraction(ceil_scaled(log_fraction(ratio), BITS), WHOLE)


def _least_float_above(value: Fraction) -> float:
    nearest = float(value)
    if Fraction(nearest) >= value:
        return nearest
    return math.nextafter(nearest, math.inf)


def _report(
    problems: list[str],
    digest: str = "",
    ratio: Fraction | None = None,
    bias: Fraction | None = None,
) -> VerificationReport:
    """The report about a file of integers: without a `ratio` it has no pure epsilon."""
    epsilon = math.inf if ratio is None else _least_float_above(log_above(ratio))
    return VerificationReport(
        epsilon_upper=epsilon,
        max_bias=bias,
        sha256=digest,
        problems=tuple(problems),
    )


# What the file claims


_OVERSTATEMENT = Fraction(1, 2**48)
"""What an epsilon may exceed the true one by, relative to it."""


def _epsilon_problems(claimed: object, ratio: Fraction | None) -> list[str]:
    """What is wrong with a claimed epsilon: below the logarithm of the true ratio, or above it by
    more than rounding; "inf" where there is none.
    """
    statement = f"certificate claims epsilon {shown(claimed)}, "
    if ratio is None:
        return _broken((claimed == "inf", f"{statement}but it is unbounded"))
    number = isinstance(claimed, (int, float)) and not isinstance(claimed, bool)
    if not number or not math.isfinite(cast("float", claimed)):
        return [f"{statement}which is not a number"]
    truth = log_above(ratio)
    epsilon = Fraction(cast("float", claimed))
    exact = repr(_least_float_above(truth))
    return _broken(
        (epsilon >= truth, f"{statement}less than the true {exact}"),
        (epsilon <= truth * (1 + _OVERSTATEMENT), f"{statement}not the {exact} of its table"),
    )


def _subject_problems(document: Document, digest: str) -> list[str]:
    certificate = document["certificate"]
    subject = certificate["neighboring"] == "replace_one" and certificate["unit"] == "report"
    other_subject = (
        "certificate names another neighbouring relation or unit than replace_one and report"
    )
    return _broken(
        (certificate["sha256"] == digest, "certificate is about another table (sha256 differs)"),
        (subject, other_subject),
    )


def _header_problems(
    document: Document,
    keys: list[str],
    digest: str,
) -> list[str]:
    intact = document.get("sha256") == digest
    return _odd_keys(document, keys) + _broken(
        (isinstance(document.get("name"), str), "name is not text"),
        (intact, "sha256 is not that of the table: it was edited or damaged"),
    )


# Files of kind "ranks"
#
# A report of such a mechanism is the index of a codeword. Whatever the codewords are, an input only
# puts them into an order; the probability of the codeword at place p of the order is weight p / T,
# the same for all inputs. So in every column of the table over all inputs stand only members of one
# list of weights, and the largest ratio is known.

SEED_RULE = (
    "seeds are public and handed out, never chosen by the client; one answer per seed; "
    "asked again, the same answer"
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
        table: {"M", "k", "T", "w_hi", "w_lo", "r"}: the first k of M codewords have weight w_hi,
            the next r have w_lo + 1, the others w_lo; "null", if there: [n, N], the weights of the
            null output beside ranked codewords, and in the row of a zero vector, where all
            codewords have w_lo. T is 2**32.
    """
    try:
        ratio = ranks_ratio(table)
    except (Refused, Unreadable) as error:
        return None, [f"table: {error}"]
    total = cast("dict[str, object]", table)["T"]
    if total != TOTAL:
        return None, [f"table: T is {shown(total)}, not {TOTAL}"]
    return ratio, []


def _codebook_problems(codebook: Document) -> list[str]:
    """What is wrong with a ranked codebook's own fields."""
    kind = codebook["kind"] in ("S", "X", "G", "GX")
    norms = codebook["norms"] in ("unit", "slack", "null")
    texts = isinstance(codebook["clip_norm"], str) and isinstance(codebook["beacon"], str)
    subspace = codebook["subspace"] is None or _integer(codebook["subspace"]) >= 1
    stream = _integer(codebook["stream"]) == 1
    return _broken(
        (kind, "codebook kind is not S, X, G or GX"),
        (norms, 'codebook norms is not "unit", "slack" or "null"'),
        (_integer(codebook["dimension"]) >= 1, "codebook dimension is not a positive integer"),
        (subspace, "codebook subspace is neither null nor a positive integer"),
        (texts, "codebook clip_norm and beacon are not text"),
        (stream, "codebook stream is not a version that this check knows (1)"),
    )


def check_ranks(document: Document) -> tuple[Fraction | None, str, list[str]]:
    """Re-derives what a file of kind "ranks" claims, but for the logarithm.

    Returns: (e**epsilon of a whole report, or None; hash as read; problems).

    Guarantees: no problem only if the rows sum to 2**32, the ratio of the certificate is the
        largest that any two inputs can have at one output of one index, and the hash covers table,
        codebook and seed rule.
    Source: Theorem V (docs/proofs/vectors.md).
    """
    digest = canonical_hash(document)
    problems = _header_problems(document, _RANKS_KEYS, digest)
    if document.get("seed_rule") != SEED_RULE:
        problems.append("the seed rule is not the one that the claim supposes")
    codebook = document.get("codebook")
    codebook_problems = _odd_keys(codebook, _CODEBOOK_KEYS, "codebook ")
    problems += codebook_problems or _codebook_problems(cast("Document", codebook))
    ratio, table_problems = table_ratio(document.get("table"))
    problems += table_problems
    indices = _integer(document.get("indices"))
    if not 1 <= indices <= MOST_INDICES:
        problems.append(f"indices is not between 1 and {MOST_INDICES}")
        return None, digest, problems
    if ratio is None:
        return None, digest, problems
    problems += _ranks_certificate_problems(document, digest, ratio, indices)
    return ratio**indices, digest, problems


def _ranks_certificate_problems(
    document: Document,
    digest: str,
    ratio: Fraction,
    indices: int,
) -> list[str]:
    """What is wrong with a certificate about ranks: its fields, the largest ratio of weights, and
    the number of indices that a report names.
    """
    certificate = document.get("certificate")
    keys = [*_RATIO_KEYS, "indices", *_SUBJECT_KEYS]
    odd_keys = _odd_keys(certificate, keys, "certificate ")
    if odd_keys:
        return odd_keys
    claims = cast("Document", certificate)
    high = _integer(claims["numerator"])
    low = _integer(claims["denominator"])
    named = low >= 1 and Fraction(high, low) == ratio
    same_indices = _integer(claims["indices"]) == indices
    return _subject_problems(document, digest) + _broken(
        (named, "certificate does not name the largest ratio of weights"),
        (same_indices, "certificate is about another number of indices"),
    )


# The whole


def _derive(text: str) -> VerificationReport:
    document = cast("Document", read_json(text, real=float))
    is_object = isinstance(cast("object", document), dict)
    if not is_object or document.get("format") != _NAME:
        raise Unreadable(f'"format" is not "{_NAME}"; this is some other file')
    version = document.get("version")
    if type(version) is not int or version != 1:
        raise Unreadable(f"version {shown(version)} is not one this check knows (1)")
    if document.get("kind") == "ranks":
        return _derive_ranks(document)
    return _derive_table(document)


def _derive_ranks(document: Document) -> VerificationReport:
    certificate = document.get("certificate")
    ratio, digest, problems = check_ranks(document)
    if ratio is not None and isinstance(certificate, dict):
        problems += _epsilon_problems(cast("Document", certificate).get("epsilon"), ratio)
    return _report(problems, digest, ratio)


def _derive_table(document: Document) -> VerificationReport:
    """What a mechanism file's integers prove, and how its certificate differs from that."""
    table = _table(document)
    text = json.dumps(table, separators=(",", ":"))
    digest = sha256(text)
    keys = list(_FILE_KEYS)
    if "categories" in table:
        keys.append("categories")
    problems = _header_problems(document, keys, digest)
    broken_rules = _table_problems(table)
    ratio = None
    try:
        ratio = worst_ratio(read_table(text)[1])
    except Refused as error:
        broken_rules.append(str(error))
    if broken_rules:
        return _report(problems + broken_rules, digest)
    # Levels of categories are indices.
    bias = None if "categories" in table else _max_bias(table)
    certificate = document.get("certificate")
    odd_keys = _odd_keys(certificate, ["epsilon"], "certificate ")
    if odd_keys:
        problems += odd_keys
    else:
        problems += _epsilon_problems(cast("Document", certificate)["epsilon"], ratio)
    return _report(problems, digest, ratio, bias)


def _judge(text: str, seconds: int) -> VerificationReport:
    """The kernel's verdict on a claim file; an epsilon of inf where it is not accepted."""
    status, sentence, claim = verdict_on(text, seconds)
    epsilon = math.inf
    if status == 0 and claim is not None and claim.release is not None:
        epsilon = _least_float_above(claim.epsilon)
    return VerificationReport(
        epsilon_upper=epsilon,
        max_bias=None,
        sha256="" if claim is None else claim.sha256,
        problems=(sentence,) if status else (),
        subject="claim",
        claim=claim,
        unreadable=status == UNREADABLE,
    )


def _unreadable(problem: str) -> VerificationReport:
    return replace(_report([problem]), unreadable=True)


_LONGEST_CHECK = 10**9
"""Seconds, where a check has no limit."""


def verify(
    mechanism: Mechanism | str | os.PathLike[str], *, seconds: float = 60
) -> VerificationReport:
    """Derives everything about a mechanism again in rationals; or checks a claim by its proof.

    Arguments:
        mechanism: a mechanism file's path, a claim file's path, or a `Mechanism`.
        seconds: processor time that checking a claim may take; parts of a second are rounded up,
            and inf sets no limit.

    Returns: a report; `.valid` is False and `.problems` says why when anything at all is wrong.

    Guarantees:
        Raises nothing, whatever the file holds.
        `epsilon_upper` is the least float64 at or above the exact pure epsilon (the logarithm is
        enclosed). Any change of the table, its hash or its epsilon is a problem; only a changed
            name, and an epsilon overstated by less than a relative 2**-48, are not.
        A valid claim is one that `mezzotint.kernel.check` has accepted in this call.

    Edge cases: missing, truncated, foreign, other version, NaN, numbers beyond float64, duplicate
        keys, more than 64 MiB, of a claim 16 MiB: problems. A check that does not finish is one as
        well.
    Source: T2 to T4 (docs/proofs/tables.md); docs/proofs/kernel.md.

    >>> from mezzotint import families
    >>> verify(families.randomized_response(lower=-1, upper=1, epsilon=1.0)).valid
    True
    """
    text = ""
    try:
        if not isinstance(mechanism, (str, os.PathLike)):
            return _derive(mechanism.to_json())
        text = _text(mechanism)
        if f'"{FORMAT}"' in text:
            whole_seconds = math.ceil(min(seconds, _LONGEST_CHECK))
            return _judge(text, whole_seconds)
        return _derive(text)
    except Unreadable as error:
        problem = str(error)
        is_damaged = text.lstrip().startswith("{") and _NAME in text
        if text and not is_damaged:  # of another kind
            problem = f"{problem}; {CLAIM_FILES}"
        return _unreadable(problem)
    except (OSError, RecursionError, MemoryError) as error:
        return _unreadable(f"cannot be read ({type(error).__name__}: {_plain(str(error))})")
    except UnicodeDecodeError:
        return _unreadable(f"is no text, so neither a mechanism nor a claim; {CLAIM_FILES}")
    except (ValueError, OverflowError, AttributeError, TypeError) as error:
        return _unreadable(f"holds no mechanism ({type(error).__name__}: {_plain(str(error))})")
