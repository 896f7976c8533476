"""Files of kind "ranks" at the edges of what is allowed, and one step beyond."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mezzotint.privacy import verify
from mezzotint.privacy.verification import MOST_INDICES, SEED_RULE, canonical_hash, check_ranks
from tolerances import LOG_UP

TABLE = {"M": 2, "k": 1, "T": 2**32, "w_hi": 3 * 2**30, "w_lo": 2**30, "r": 0}
CODEBOOK = {
    "kind": "G", "dimension": 1, "subspace": None, "norms": "unit", "clip_norm": "1.0", "beacon": "", "stream": 1,
}  # fmt: skip


def sealed(**changes: Any) -> dict[str, Any]:
    """The least file there can be, with changes, its hashes put right."""
    document: dict[str, Any] = {
        "format": "mezzotint-mechanism", "version": 1, "kind": "ranks", "name": "", "table": TABLE, "indices": 1,
        "codebook": CODEBOOK, "seed_rule": SEED_RULE, **changes,
    }  # fmt: skip
    document["sha256"] = canonical_hash(document)
    certificate = {
        "epsilon": 1.1, "numerator": 3, "denominator": 1, "indices": document["indices"], "sha256": document["sha256"],
        "neighboring": "replace_one", "unit": "report",
    }  # fmt: skip
    return {**document, "certificate": certificate}


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"indices": 2}, {"indices": MOST_INDICES}, {"codebook": {**CODEBOOK, "subspace": 1}},
        {"codebook": {**CODEBOOK, "subspace": 7, "dimension": 9, "kind": "X", "norms": "slack"}},
    ],
)  # fmt: skip
def test_least_and_largest_numbers_are_allowed(changes: dict[str, Any]) -> None:
    document = sealed(**changes)
    assert check_ranks(document) == (Fraction(3) ** document["indices"], document["sha256"], [])


@pytest.mark.parametrize("indices", [0, MOST_INDICES + 1, -1, True, "1", None])
def test_numbers_of_indices_beyond_are_refused(indices: Any) -> None:
    ratio, _, problems = check_ranks(sealed(indices=indices))
    assert ratio is None
    assert problems[-1] == "indices is not between 1 and 64"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("kind", "Z", "kind is not"), ("norms", "none", "norms is not"), ("dimension", 0, "dimension is not"),
        ("dimension", True, "dimension is not"), ("subspace", 0, "subspace is neither"), ("stream", 2, "stream is not"),
        ("clip_norm", 1.0, "clip_norm and beacon"), ("beacon", None, "clip_norm and beacon"),
    ],
)  # fmt: skip
def test_codebooks_beyond_are_refused(field: str, value: Any, problem: str) -> None:
    (found,) = check_ranks(sealed(codebook={**CODEBOOK, field: value}))[2]
    assert problem in found


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("denominator", 0, "largest ratio"), ("numerator", 4, "largest ratio"), ("denominator", True, "largest ratio"),
        ("indices", 2, "number of indices"), ("sha256", "0", "another table"), ("unit", "record", "neighbouring"),
        ("neighboring", "add_or_remove_one", "neighbouring"),
    ],
)  # fmt: skip
def test_certificates_of_something_else_are_refused(field: str, value: Any, problem: str) -> None:
    document = copy.deepcopy(sealed())
    document["certificate"][field] = value
    (found,) = check_ranks(document)[2]
    assert problem in found


@pytest.mark.parametrize(
    ("field", "value", "problem"), [("sha256", "0", "edited"), ("seed_rule", "any", "seed rule")]
)
def test_what_is_not_as_hashed_is_refused(field: str, value: Any, problem: str) -> None:
    problems = check_ranks({**sealed(), field: value})[2]
    assert any(problem in one for one in problems)


@pytest.mark.parametrize(("least", "ratio"), [(2**29, Fraction(4)), (3 * 2**29, Fraction(3, 2))])
def test_the_null_output_counts_where_it_is_the_worse(least: int, ratio: Fraction) -> None:
    null = {**TABLE, "w_hi": 2**32 - 2**30 - least, "null": [least, 2**31]}
    assert check_ranks(sealed(table=null))[0] == ratio


def test_weights_that_are_no_table_over_ranks_are_refused() -> None:
    ratio, _, problems = check_ranks(sealed(table={**TABLE, "w_hi": 3 * 2**30 + 1}))
    assert ratio is None
    assert "the weights do not sum" in problems[0]
    doubled = {
        name: 2 * value if name in ("T", "w_hi", "w_lo") else value for name, value in TABLE.items()
    }
    assert "T is 8589934592, not 4294967296" in check_ranks(sealed(table=doubled))[2][0]


def test_files_are_verified_by_their_integers(tmp_path: Path) -> None:
    path = tmp_path / "ranks.json"
    good = sealed()
    good["certificate"]["epsilon"] = math.nextafter(math.log(3), 2)
    path.write_text(json.dumps(good))
    report = verify(path)
    assert report.valid, report.problems
    assert math.log(3) <= report.epsilon_upper <= math.log(3) * (1 + LOG_UP)
    for other, problem in (
        (1.0, "less than the true"),
        (1.1, "not the 1.09861"),
        ("inf", "not a number"),
    ):
        good["certificate"]["epsilon"] = other
        path.write_text(json.dumps(good))
        (found,) = verify(path).problems
        assert problem in found
    path.write_text(json.dumps(sealed(indices=0)))
    refused = verify(path)
    assert not refused.valid
    assert refused.epsilon_upper == math.inf
