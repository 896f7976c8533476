"""The exact check of a mechanism file of kind "ranks": integers and text alone, from the standard library.

A report of such a mechanism is the index of a codeword. Whatever the codewords are, an input only puts them into an
order; the probability of the codeword at place p of the order is weight p / total, the same for all inputs. So in every
column of the table over all inputs stand only members of one list of weights, and the largest ratio is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import cast

TOTAL = 2**32
SEED_RULE = (
    "seeds are public and handed out, never chosen by the client; one answer per seed; asked again, the same answer"
)
"""What the claim supposes about seeds; part of the file and of its hash."""

FILE_KEYS = (
    "format",
    "version",
    "kind",
    "name",
    "table",
    "indices",
    "codebook",
    "seed_rule",
    "sha256",
    "certificate",
)
BODY_KEYS = ("table", "indices", "codebook", "seed_rule")
TABLE_KEYS = ("total", "codewords", "top", "high", "raised", "low", "null")
CODEBOOK_KEYS = ("kind", "dimension", "subspace", "norms", "clip_norm", "beacon", "stream")
CERTIFICATE_KEYS = ("epsilon", "numerator", "denominator", "indices", "sha256", "neighboring", "unit")
MOST_INDICES = 64


def canonical_hash(document: Mapping[str, object]) -> str:
    """SHA-256 of what the claim is about: sorted keys, no spaces."""
    body = {key: document.get(key) for key in BODY_KEYS}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _integer(value: object) -> int:
    # True is an int to Python, and no weight.
    return value if type(value) is int else -1


def _keys_problem(value: object, keys: tuple[str, ...], where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where} is not a JSON object"]
    odd = sorted(set(cast("dict[str, object]", value)) ^ set(keys))
    return [f"{where} keys missing or unknown: {', '.join(odd)}"] if odd else []


def worst_ratios(table: Mapping[str, object]) -> tuple[tuple[int, int], list[str]]:
    """The largest ratio of two weights of one output, as (high, low), and the problems of the table.

    Two rows: the ranked one (`top` codewords have `high`, the next `raised` have `low` + 1, the others `low`), and,
    when "null" = [small, large] is there, that of a zero vector (all codewords `low`). The null output has `small` in
    the first and `large` in the second. Both rows sum to 2**32, and an input picks one of them at random.
    """
    total, count, top = (_integer(table.get(key)) for key in ("total", "codewords", "top"))
    high, raised, low = (_integer(table.get(key)) for key in ("high", "raised", "low"))
    null = table.get("null")
    problems: list[str] = []
    if total != TOTAL:
        problems.append(f"total is not {TOTAL}")
    if not 1 <= top < count:
        problems.append("top is not between 1 and the number of codewords")
    if not 0 <= raised <= count - top:
        problems.append("raised is not between 0 and the number of codewords that are not on top")
    if not (low >= 1 and high >= low + (1 if raised > 0 else 0)):
        problems.append("weights are not integers with high >= low >= 1")
    small = large = 0
    if null is not None:
        pair = cast("list[object]", null) if isinstance(null, list) else []
        small, large = (_integer(value) for value in pair) if len(pair) == 2 else (-1, -1)
        if not 1 <= small <= large:
            problems.append("null is not a pair of integers with 1 <= small <= large")
        elif count * low + large != TOTAL:
            problems.append(f"the row of a zero vector does not sum to {TOTAL}")
    if not problems and top * high + raised * (low + 1) + (count - top - raised) * low + small != TOTAL:
        problems.append(f"the row of ranks does not sum to {TOTAL}")
    if problems:
        return (1, 0), problems
    if null is not None and large * low > high * small:
        return (large, small), []
    return (high, low), []


def _codebook_problems(value: object) -> list[str]:
    problems = _keys_problem(value, CODEBOOK_KEYS, "codebook")
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
    odd = sorted(set(document) ^ set(FILE_KEYS))
    problems = [f"keys missing or unknown: {', '.join(odd)}"] if odd else []
    if not isinstance(document.get("name"), str):
        problems.append("name is not text")
    digest = canonical_hash(document)
    if document.get("sha256") != digest:
        problems.append("sha256 is not that of the table: it was edited or damaged")
    if document.get("seed_rule") != SEED_RULE:
        problems.append("the seed rule is not the one that the claim supposes")
    table = document.get("table")
    indices = _integer(document.get("indices"))
    shape = _keys_problem(table, TABLE_KEYS, "table")
    if not 1 <= indices <= MOST_INDICES:
        shape.append(f"indices is not between 1 and {MOST_INDICES}")
    if shape:
        return None, digest, [*problems, *shape]
    problems += _codebook_problems(document.get("codebook"))
    (high, low), wrong = worst_ratios(cast("dict[str, object]", table))
    if wrong:
        return None, digest, [*problems, *wrong]
    certificate = document.get("certificate")
    odd_keys = _keys_problem(certificate, CERTIFICATE_KEYS, "certificate")
    if odd_keys:
        return Fraction(high, low) ** indices, digest, [*problems, *odd_keys]
    claims = cast("dict[str, object]", certificate)
    if (claims["numerator"], claims["denominator"]) != (high, low) or type(claims["numerator"]) is not int:
        problems.append("certificate does not name the largest ratio of weights")
    if _integer(claims["indices"]) != indices:
        problems.append("certificate is about another number of indices")
    if claims["sha256"] != digest:
        problems.append("certificate is about another table (sha256 differs)")
    if claims["neighboring"] != "replace_one" or claims["unit"] != "report":
        problems.append("certificate names another neighbouring relation or unit than replace_one and report")
    return Fraction(high, low) ** indices, digest, problems
