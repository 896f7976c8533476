"""An independent check of files: a mechanism's numbers derived again from the text, a claim's proof
checked.

What it says about a mechanism rests on these lines, which apply the rules of a table and its
epsilon, and on the kernel, which reads JSON strictly, takes the largest ratio and encloses the
logarithm. Nothing else of the package has a part in it. What it says about a claim is the kernel's
verdict.
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
    read_json,
    sha256,
)

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

Document: TypeAlias = dict[str, Any]

_FILE_KEYS = ["format", "version", "name", "knots", "levels", "weights", "sha256", "certificate"]
_RATIO_KEYS, _SUBJECT_KEYS = (
    ["epsilon", "numerator", "denominator"],
    ["sha256", "neighboring", "unit"],
)


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
            return "NOT VALID: " + "; ".join(self.problems)
        if self.claim is not None:
            return words(self.claim)
        return (
            f"valid: epsilon <= {_twelve(self.epsilon_upper)} per report (computed in rationals, to an observer of "
            f"every single report; replace_one), table {self.sha256[:12]}"
        )


def _twelve(value: float) -> str:
    """Twelve digits of it, never less: as the rest of the package shows it, by code of this
    module's own."""
    if math.isinf(value):
        return "unbounded"
    return f"{float(Context(prec=12, rounding=ROUND_CEILING).create_decimal(repr(value))):.12g}"


def _broken(*rules: tuple[bool, str]) -> list[str]:
    """What is said of the rules that do not hold."""
    return [text for holds, text in rules if not holds]


def _odd_keys(found: object, keys: list[str], where: str = "") -> list[str]:
    """The faults of a JSON object that must have these keys, and no others."""
    if not isinstance(found, dict):
        return [f"{where}is not a JSON object"]
    odd = sorted({*cast("Document", found)} ^ {*keys})
    return [f"{where}keys missing or unknown: {', '.join(odd)}"] if odd else []


def _text(path: str | os.PathLike[str]) -> str:
    file = Path(path)
    if not file.is_file():
        raise Unreadable(f"no such file: {file}")
    return file.read_bytes().decode("utf-8")


# The rules of a table


def _numbers(fields: Fields, key: str) -> list[float]:
    """Floats, -0.0 as 0.0: so the canonical form has it."""
    numbers = [
        entry + 0.0 if type(entry) in (int, float) else math.nan for entry in fields.items(key)
    ]
    if not all(map(math.isfinite, numbers)):
        raise Unreadable(f"{key} holds something that is not a number of float64")
    return numbers


def _table(document: Document) -> Document:
    """What the hash is about, in the order of the canonical text."""
    fields = Fields(document, "the file")
    table: Document = {key: _numbers(fields, key) for key in ("knots", "levels")}
    table["weights"] = fields.lists("weights")
    return table | ({"categories": fields.items("categories")} if fields.has("categories") else {})


def _table_problems(table: Document) -> list[str]:
    """The broken rules, but for those about weights, which `read_table` knows."""
    knots, levels, names = table["knots"], table["levels"], table.get("categories", [])
    text = all(isinstance(one, str) for one in names)
    return _broken(
        (len(knots) >= 2 and len(levels) >= 2, "fewer than 2 knots or 2 levels"),
        (all(a <= b for a, b in pairwise(knots)), "knots are not sorted"),
        (len({*knots[:2]}) == len({*knots[-2:]}) == 2, "a jump at the first or last knot"),
        (
            all(a != b for a, b in zip(knots, knots[2:], strict=False)),
            "a knot stands more than twice",
        ),
        (all(a < b for a, b in pairwise(levels)), "levels do not increase strictly"),
        (text, "categories holds something that is not text"),
        (not text or len({*names}) == len(names), "a category occurs twice"),
        (
            "categories" not in table or knots == [*range(len(names))],
            "knots are not the numbers of the categories",
        ),
    )


# What follows from a table


def _max_bias(table: Document) -> Fraction:
    """The mean is linear between knots, so its largest distance from the input is at one of
    them."""
    levels = [Fraction(level) for level in table["levels"]]
    scale = math.lcm(*(level.denominator for level in levels))
    integers = [int(level * scale) for level in levels]
    means = (
        Fraction(sum(map(int.__mul__, row, integers)), TOTAL * scale) for row in table["weights"]
    )
    return max(abs(mean - Fraction(knot)) for mean, knot in zip(means, table["knots"], strict=True))


def log_above(ratio: Fraction) -> Fraction:
    """A rational at or above log(ratio), by less than 2**-158; 0 at 1."""
    with flint.ctx.workprec(BITS + 96):
        return Fraction(ceil_scaled(log_fraction(ratio), BITS), WHOLE)


def _least_float_above(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _report(
    problems: list[str],
    digest: str = "",
    ratio: Fraction | None = None,
    bias: Fraction | None = None,
) -> VerificationReport:
    epsilon = math.inf if ratio is None else _least_float_above(log_above(ratio))
    return VerificationReport(
        epsilon_upper=epsilon,
        max_bias=bias,
        sha256=digest,
        problems=tuple(problems),
    )


# What the file claims


def _epsilon_problems(claimed: object, ratio: Fraction | None) -> list[str]:
    said = f"certificate claims epsilon {claimed!r}, "
    if ratio is None:
        return _broken((claimed == "inf", f"{said}but it is unbounded"))
    if (
        isinstance(claimed, bool)
        or not isinstance(claimed, (int, float))
        or not math.isfinite(claimed)
    ):
        return [f"{said}which is not a number"]
    high, epsilon = log_above(ratio), Fraction(claimed)
    shown = repr(_least_float_above(high))
    return _broken(
        (epsilon >= high, f"{said}less than the true {shown}"),
        (epsilon <= high * (1 + Fraction(1, 2**48)), f"{said}not the {shown} of its table"),
    )


def _subject_problems(document: Document, digest: str) -> list[str]:
    certificate = document["certificate"]
    subject = certificate["neighboring"] == "replace_one" and certificate["unit"] == "report"
    return _broken(
        (certificate["sha256"] == digest, "certificate is about another table (sha256 differs)"),
        (
            subject,
            "certificate names another neighbouring relation or unit than replace_one and report",
        ),
    )


def _header_problems(document: Document, keys: list[str], digest: str) -> list[str]:
    return _odd_keys(document, keys) + _broken(
        (isinstance(document.get("name"), str), "name is not text"),
        (
            document.get("sha256") == digest,
            "sha256 is not that of the table: it was edited or damaged",
        ),
    )


# Files of kind "ranks"
#
# A report of such a mechanism is the index of a codeword. Whatever the codewords are, an input only
# puts them into an order; the probability of the codeword at place p of the order is weight p / T,
# the same for all inputs. So in every column of the table over all inputs stand only members of one
# list of weights, and the largest ratio is known.

SEED_RULE = "seeds are public and handed out, never chosen by the client; one answer per seed; asked again, the same answer"
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
    return (ratio, []) if total == TOTAL else (None, [f"table: T is {total}, not {TOTAL}"])


def _codebook_problems(codebook: Document) -> list[str]:
    texts = isinstance(codebook["clip_norm"], str) and isinstance(codebook["beacon"], str)
    subspace = codebook["subspace"] is None or _integer(codebook["subspace"]) >= 1
    return _broken(
        (codebook["kind"] in ("S", "X", "G", "GX"), "codebook kind is not S, X, G or GX"),
        (
            codebook["norms"] in ("unit", "slack", "null"),
            'codebook norms is not "unit", "slack" or "null"',
        ),
        (_integer(codebook["dimension"]) >= 1, "codebook dimension is not a positive integer"),
        (subspace, "codebook subspace is neither null nor a positive integer"),
        (texts, "codebook clip_norm and beacon are not text"),
        (
            _integer(codebook["stream"]) == 1,
            "codebook stream is not a version that this check knows (1)",
        ),
    )


def check_ranks(document: Document) -> tuple[Fraction | None, str, list[str]]:
    """Re-derives what a file of kind "ranks" claims, but for the logarithm.

    Returns: (e**epsilon of a whole report, or None; hash as read; problems).

    Guarantees: no problem only if the rows sum to 2**32, the ratio of the certificate is the
        largest that any two inputs can have at one output of one index, and the hash covers table,
        codebook and seed rule.
    Source: Theorem V (docs/proofs/vectors.md).
    """
    digest, codebook, certificate = (
        canonical_hash(document),
        document.get("codebook"),
        document.get("certificate"),
    )
    problems = _header_problems(document, _RANKS_KEYS, digest)
    seeded = document.get("seed_rule") == SEED_RULE
    problems += _broken((seeded, "the seed rule is not the one that the claim supposes"))
    problems += _odd_keys(codebook, _CODEBOOK_KEYS, "codebook ") or _codebook_problems(
        cast("Document", codebook)
    )
    ratio, wrong = table_ratio(document.get("table"))
    indices = _integer(document.get("indices"))
    wrong += _broken((1 <= indices <= MOST_INDICES, f"indices is not between 1 and {MOST_INDICES}"))
    if ratio is None or wrong:
        return None, digest, [*problems, *wrong]
    odd = _odd_keys(certificate, [*_RATIO_KEYS, "indices", *_SUBJECT_KEYS], "certificate ")
    if not odd:
        claims = cast("Document", certificate)
        high, low = _integer(claims["numerator"]), _integer(claims["denominator"])
        odd = _subject_problems(document, digest) + _broken(
            (
                low >= 1 and Fraction(high, low) == ratio,
                "certificate does not name the largest ratio of weights",
            ),
            (
                _integer(claims["indices"]) == indices,
                "certificate is about another number of indices",
            ),
        )
    return ratio**indices, digest, problems + odd


# The whole


def _derive(text: str) -> VerificationReport:
    document = cast("Document", read_json(text, real=float))
    if (
        not isinstance(cast("object", document), dict)
        or document.get("format") != "mezzotint-mechanism"
    ):
        raise Unreadable('"format" is not "mezzotint-mechanism"; this is some other file')
    version, certificate = document.get("version"), document.get("certificate")
    if type(version) is not int or version != 1:
        raise Unreadable(f"version {version!r} is not one this check knows (1)")
    if document.get("kind") == "ranks":
        ratio, digest, problems = check_ranks(document)
        if ratio is not None and isinstance(certificate, dict):
            problems += _epsilon_problems(cast("Document", certificate).get("epsilon"), ratio)
        return _report(problems, digest, ratio)
    table = _table(document)
    canon = json.dumps(table, separators=(",", ":"))
    digest = sha256(canon)
    named = ["categories"] if "categories" in table else []
    problems, rules = (
        _header_problems(document, [*_FILE_KEYS, *named], digest),
        _table_problems(table),
    )
    try:
        ratio = worst_ratio(read_table(canon)[1])
    except Refused as error:
        rules.append(str(error))
        ratio = None
    if rules:
        return _report(problems + rules, digest)
    bias = None if named else _max_bias(table)  # levels of categories are indices
    problems += _odd_keys(certificate, ["epsilon"], "certificate ") or _epsilon_problems(
        cast("Document", certificate)["epsilon"], ratio
    )
    return _report(problems, digest, ratio, bias)


def _judge(text: str, seconds: int) -> VerificationReport:
    status, sentence, claim = verdict_on(text, seconds)
    bounded = status == 0 and claim is not None and claim.release is not None
    return VerificationReport(
        epsilon_upper=_least_float_above(claim.epsilon)
        if claim is not None and bounded
        else math.inf,
        max_bias=None,
        sha256=claim.sha256 if claim is not None else "",
        problems=(sentence,) if status else (),
        subject="claim",
        claim=claim,
    )


def verify(
    mechanism: Mechanism | str | os.PathLike[str], *, seconds: int = 60
) -> VerificationReport:
    """Derives everything about a mechanism again in rationals; or checks a claim by its proof.

    Arguments:
        mechanism: a mechanism file's path, a claim file's path, or a `Mechanism`.
        seconds: processor time that checking a claim may take.

    Returns: a report; `.valid` is False and `.problems` says why when anything at all is wrong.

    Guarantees:
        Raises nothing, whatever the file holds.
        `epsilon_upper` is the least float64 at or above the exact pure epsilon (the logarithm is
        enclosed). Any change of the table, its hash or its epsilon is a problem; only a changed
            name, and an epsilon overstated by less than a relative 2**-48, are not.
        A valid claim is one that `mezzotint.kernel.check` has accepted in this call.

    Edge cases: missing, truncated, foreign, other version, NaN, numbers beyond float64, duplicate
        keys, more than 16 MiB: problems. A check that does not finish is one as well.
    Source: T2 to T4 (docs/proofs/tables.md); docs/proofs/kernel.md.

    >>> from mezzotint import families
    >>> verify(families.randomized_response(lower=-1, upper=1, epsilon=1.0)).valid
    True
    """
    try:
        if not isinstance(mechanism, (str, os.PathLike)):
            return _derive(mechanism.to_json())
        text = _text(mechanism)
        return _judge(text, seconds) if f'"{FORMAT}"' in text else _derive(text)
    except Unreadable as error:
        return _report([str(error)])
    except (OSError, RecursionError, MemoryError) as error:
        return _report([f"cannot be read ({type(error).__name__}: {error})"])
    except (ValueError, OverflowError, AttributeError, TypeError) as error:
        return _report([f"holds no mechanism ({type(error).__name__}: {error})"])
