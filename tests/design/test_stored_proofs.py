"""Theorems on two and more bits at epsilon 1: stored proofs, re-checked by the kernel in exact arithmetic."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from mezzotint import design, kernel
from reference.kernel import resealed

FOLDER = Path(__file__).parent / "proofs"
BOUNDS = {
    2: ("4.342", 4.34936),
    3: ("4.0393", 4.04944),
    4: ("3.968", 3.98797),
    5: ("3.9069", 3.92654),
}
BOUNDS |= {6: ("3.8846", 3.91689), 64: ("3.8846", 3.8860)}
"""By number of levels: no unbiased mechanism of pure epsilon 1 has a smaller MSE, inputs uniform in
[-1, 1]; and the MSE of a table that there is, of 64 levels at most."""


def stored(levels: int) -> str:
    return gzip.decompress((FOLDER / f"epsilon-1-levels-{levels}.json.gz").read_bytes()).decode()


LARGE = [pytest.param(levels, marks=pytest.mark.slow) for levels in (4, 5)]


@pytest.mark.parametrize("levels", [2, 3, 6, 64, *LARGE])
def test_the_kernel_accepts_the_stored_proofs(levels: int) -> None:
    document = json.loads(stored(levels))
    statement = document["statement"]
    assert (statement["kind"], statement["levels"], Fraction(statement["epsilon"])) == (
        "lower_bound",
        levels,
        1,
    )
    bound, attained = BOUNDS[levels]
    assert Fraction(bound) <= Fraction(statement["value"]) <= attained
    assert kernel.check(*kernel.read_claim(stored(levels))).certified
    # What a table attains is above every true bound: the same cuts cannot prove more than that.
    document["statement"]["value"] = str(attained * 1.001)
    with pytest.raises(kernel.Refused, match="another claim"):
        kernel.check(*kernel.read_claim(json.dumps(document)))
    if levels > 3:
        return  # the search that ends in a refusal is long
    said, proof = kernel.read_claim(stored(levels))
    stronger = replace(said, statement=document["statement"])
    with pytest.raises(kernel.Refused, match="cut"):
        kernel.check(stronger, resealed(stronger, proof))


def test_more_levels_are_strictly_better_at_epsilon_1() -> None:
    """Tables of m + 1 levels beat what m levels are proven not to reach, for m = 2, 3, 4."""
    for levels in (2, 3, 4):
        proven = Fraction(json.loads(stored(levels))["statement"]["value"])
        assert design.optimal(1.0, levels=levels + 1).loss < proven


def test_two_bits_are_within_3_percent_of_any_64_levels() -> None:
    """The theorem of the README: a stored proof, and the integers of a table."""
    proven = Fraction(json.loads(stored(64))["statement"]["value"])
    assert Fraction(design.optimal(1.0, levels=4).loss) <= Fraction(1027, 1000) * proven
