"""Mechanism files of kind "ranks", checked in integers by the kernel's rule, and their claims.

A report of such a mechanism is the index of a codeword. Whatever the codewords are, an input only puts them into an
order; the probability of the codeword at place p of the order is weight p / T, the same for all inputs. So in every
column of the table over all inputs stand only members of one list of weights, and the largest ratio is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import cast

from mezzotint import kernel
from mezzotint.core.records import JsonObject
from mezzotint.kernel.one import ranks_ratio
from mezzotint.kernel.units import canonical, sha256
from mezzotint.privacy.propose import Outcome, accepted, sealed

TOTAL = 2**32
SEED_RULE = (
    "seeds are public and handed out, never chosen by the client; one answer per seed; asked again, the same answer"
)
"""What the claim supposes about seeds; part of the file and of its hash."""

FILE_KEYS = ("format", "version", "kind", "name", "table", "indices", "codebook", "seed_rule", "sha256", "certificate")
BODY_KEYS = ("table", "indices", "codebook", "seed_rule")
CODEBOOK_KEYS = ("kind", "dimension", "subspace", "norms", "clip_norm", "beacon", "stream")
CERTIFICATE_KEYS = ("epsilon", "numerator", "denominator", "indices", "sha256", "neighboring", "unit")
MOST_INDICES = 64


def canonical_hash(document: Mapping[str, object]) -> str:
    """SHA-256 of what the claim is about: table, indices, codebook and seed rule."""
    return sha256(canonical({key: document.get(key) for key in BODY_KEYS}))


def _integer(value: object) -> int:
    # True is an int to Python, and no weight.
    return value if type(value) is int else -1


def _keys_problem(value: object, keys: tuple[str, ...], where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where} is not a JSON object"]
    odd = sorted(set(cast("dict[str, object]", value)) ^ set(keys))
    return [f"{where} keys missing or unknown: {', '.join(odd)}"] if odd else []


def table_ratio(table: object) -> tuple[Fraction | None, list[str]]:
    """The largest ratio of two weights that one output can have, and what is wrong with the table.

    Arguments:
        table: {"M", "k", "T", "w_hi", "w_lo", "r"}: the first k of M codewords have weight w_hi, the next r have
            w_lo + 1, the others w_lo; "null", if there: [n, N], the weights of the null output beside ranked codewords,
            and in the row of a zero vector, where all codewords have w_lo. T is 2**32.
    """
    try:
        ratio = ranks_ratio(table)
    except (kernel.Refused, kernel.Unreadable) as error:
        return None, [f"table: {error}"]
    total = cast("dict[str, object]", table)["T"]
    return (ratio, []) if total == TOTAL else (None, [f"table: T is {total}, not {TOTAL}"])


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
    problems += _codebook_problems(document.get("codebook"))
    ratio, wrong = table_ratio(document.get("table"))
    indices = _integer(document.get("indices"))
    if not 1 <= indices <= MOST_INDICES:
        wrong.append(f"indices is not between 1 and {MOST_INDICES}")
    if ratio is None or wrong:
        return None, digest, [*problems, *wrong]
    certificate = document.get("certificate")
    problems += _keys_problem(certificate, CERTIFICATE_KEYS, "certificate") or _certificate_problems(
        cast("dict[str, object]", certificate), ratio, indices, digest
    )
    return ratio**indices, digest, problems


def _certificate_problems(claims: Mapping[str, object], ratio: Fraction, indices: int, digest: str) -> list[str]:
    problems: list[str] = []
    high, low = _integer(claims["numerator"]), _integer(claims["denominator"])
    if low < 1 or Fraction(high, low) != ratio:
        problems.append("certificate does not name the largest ratio of weights")
    if _integer(claims["indices"]) != indices:
        problems.append("certificate is about another number of indices")
    if claims["sha256"] != digest:
        problems.append("certificate is about another table (sha256 differs)")
    if claims["neighboring"] != "replace_one" or claims["unit"] != "report":
        problems.append("certificate names another neighbouring relation or unit than replace_one and report")
    return problems


def propose_ranks(table: JsonObject, *, epsilon: float, indices: int, rounds: int) -> Outcome:
    """The pure claim of reports of so many indices in so many rounds, with its proof, as the kernel accepts it.

    Arguments:
        table: as in `table_ratio`.
        epsilon: of all of it.
    """
    entry = dict(table)
    release = kernel.ExactRelease(observer="reports", tables=((sha256(canonical(entry)), indices),), rounds=rounds)
    return accepted(release, epsilon, 0.0, lambda claim: sealed(claim, "ratio", ranks=[entry]))
