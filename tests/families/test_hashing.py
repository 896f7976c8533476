"""Hashes of large domains: balance, counting of all categories at once, certificates, and refusals."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from mezzotint import ParameterError, families
from mezzotint.core.table import MISSING, OTHER
from mezzotint.families.finite_fields import powers_of_x, primitive
from mezzotint.privacy import verify
from tolerances import FEW, GRAIN


def names(k: int) -> list[str]:
    return [f"w{i}" for i in range(k)]


@pytest.mark.parametrize("bits", [2, 5, 9])
def test_powers_of_x_are_all_elements_but_zero(bits: int) -> None:
    assert sorted(powers_of_x(primitive(bits), bits)) == list(range(1, 2**bits))


@pytest.mark.parametrize(("k", "epsilon"), [(2, 1.0), (100, 0.5), (300, 2.0), (500, 4.0)])
def test_any_two_categories_share_a_cell_under_equally_many_hashes(k: int, epsilon: float) -> None:
    domain = families.hashed(categories=names(k), epsilon=epsilon)
    every = np.arange(domain.hashes)
    cells = np.array([domain.cell(np.full(domain.hashes, i), every) for i in range(k)])
    assert cells.min() >= 0
    assert cells.max() < domain.cells
    together = (cells[:, None] == cells[None, : min(k, 20)]).sum(axis=2)
    own = together == domain.hashes
    assert own.sum() == min(k, 20)
    (common,) = np.unique(together[~own])
    # Which is what the chances say, with those of the table.
    right, wrong = domain.mechanism.probabilities[0, :2]
    share = common / domain.hashes
    assert domain.chances == pytest.approx((right, share * right + (1 - share) * wrong), rel=FEW)


def test_supports_against_counting_one_by_one() -> None:
    domain = families.hashed(categories=names(300), epsilon=2.0)
    counts = np.random.default_rng(1).integers(0, 10**6, size=(domain.hashes, domain.cells))
    every = np.arange(domain.hashes)
    slow = [counts[every, domain.cell(np.full(domain.hashes, i), every)].sum() for i in range(300)]
    assert domain.supports(counts).tolist() == slow


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_certificate_and_the_variance_of_the_formula(epsilon: float) -> None:
    """A rare category's variance is within 6 % of that of the best number of cells, which need be no power of 2."""
    domain = families.hashed(categories=names(5000), epsilon=epsilon)
    assert verify(domain.mechanism).valid
    # A unit of 2^-32 over the probability of a wrong cell, 2^-13 at least: 2e-6, and of both rows.
    assert epsilon - 2**14 * GRAIN <= domain.mechanism.epsilon <= epsilon
    right, wrong = domain.chances
    odds = math.exp(epsilon)
    best = min((1 / g) * (1 - 1 / g) / (odds / (odds + g - 1) - 1 / g) ** 2 for g in range(2, 200))
    assert wrong * (1 - wrong) / (right - wrong) ** 2 <= 1.06 * best


def test_reports_are_unbiased_in_every_combination_of_value_and_hash() -> None:
    domain = families.hashed(categories=["a", 7, True], epsilon=1.0, other=True, missing=True)
    assert domain.categories == ("a", "7", "true", OTHER, MISSING)
    codes, hashes = domain.privatize(["a", "7", "true", "unknown", None] * 4000, rng=1)
    counts = np.bincount(hashes * domain.cells + codes, minlength=domain.hashes * domain.cells)
    right, wrong = domain.chances
    shares = (domain.supports(counts.reshape(domain.hashes, -1)) / codes.size - wrong) / (
        right - wrong
    )
    # Five standard deviations: false alarms with chance 3e-6.
    assert shares == pytest.approx(0.2, abs=5 * math.sqrt(0.25 / codes.size) / (right - wrong))
    fresh = domain.privatize(["a"] * 8)
    assert all(part.shape == (8,) for part in fresh)
    assert pickle.loads(pickle.dumps(domain)).categories == domain.categories


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"categories": ["a"]}, "need 2 to 262143"),
        ({"categories": ["a", "a"]}, "need 2 to 262143 different"),
        ({"categories": ["a", OTHER]}, "a meaning of its own"),
        ({"epsilon": 0}, "epsilon"),
    ],
)
def test_domains_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        families.hashed(**{"categories": ["a", "b"], "epsilon": 1.0, **changes})  # type: ignore[arg-type]


def test_another_list_is_refused_and_so_is_an_unknown_value() -> None:
    domain = families.hashed(categories=names(10), epsilon=1.0)
    with pytest.raises(ParameterError, match="another order"):
        families.HashedDomain(
            categories=tuple(reversed(domain.categories)), mechanism=domain.mechanism
        )
    with pytest.raises(ParameterError, match="value 1 holds a value that is no category"):
        domain.privatize(["w1", "x"])
