"""Shuffle bounds against the reference table and against enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from laws.registry import judges
from mezzotint import ParameterError
from mezzotint.core.loss import pure_epsilon
from mezzotint.families import randomized_response, rqm
from mezzotint.privacy import account
from mezzotint.privacy.shuffled import clones_epsilon
from mezzotint.vectors import own_seeds, ranked_codebook
from mezzotint.vectors.rank_table import rank_table
from reference.shuffle_bounds import blanket_epsilon, published_clones_epsilon
from reference.sums import random_rows
from tolerances import FEW, MANY


def exact_shuffle_delta(weights: np.ndarray, clients: int, epsilon: float) -> float:
    """Worst delta over all data sets of the others and pairs of rows; outputs are multisets of reports (floats)."""
    table = weights / 2.0**32
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(len(table)), clients - 1):
        for a, b in itertools.permutations(range(len(table)), 2):
            first, second = Counter(), Counter()
            for reports in itertools.product(range(table.shape[1]), repeat=clients):
                shared = math.prod(
                    table[row, report] for row, report in zip(others, reports[1:], strict=True)
                )
                first[tuple(sorted(reports))] += shared * table[a, reports[0]]
                second[tuple(sorted(reports))] += shared * table[b, reports[0]]
            worst = max(
                worst,
                sum(max(0.0, p - math.exp(epsilon) * second[key]) for key, p in first.items()),
            )
    return worst


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))]
)
def test_never_below_the_exact_shuffle(seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, rows=2, levels=int(rng.integers(2, 4)))
    for clients, target in ((3, 0.05), (5, 0.01)):
        bound = blanket_epsilon(rows, clients=clients, delta=target)
        if math.isfinite(bound):
            assert exact_shuffle_delta(rows, clients, bound) <= target * (1 + MANY)
        local = pure_epsilon(rows)
        if math.isfinite(local):
            assert (
                exact_shuffle_delta(
                    rows, clients, clones_epsilon(local, clients=clients, delta=target)
                )
                <= target
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "clients", "clones", "blanket"),
    [
        (16, 40, 5.47, 5.47),
        (16, 10**3, 5.47, 3.11),
        (16, 10**5, 0.267, 0.214),
        (16, 10**6, 0.0774, 0.0622),
        (4, 40, 1.80, 1.69),
        (4, 10**3, 0.339, 0.287),
        (4, 10**5, 0.0283, 0.0241),
    ],
)
def test_reference_table(levels, clients, clones, blanket):
    table = rqm(lower=-1, upper=1, levels=levels, extension=1.0, q=0.42)
    # Three printed digits.
    assert published_clones_epsilon(table.epsilon, clients=clients, delta=1e-6) == pytest.approx(
        clones, rel=6e-3
    )
    assert clones_epsilon(table.epsilon, clients=clients, delta=1e-6) >= clones * (
        1 - 6e-3
    )  # three printed digits
    # Three printed digits.
    assert blanket_epsilon(table.weights, clients=clients, delta=1e-6) == pytest.approx(
        blanket, rel=6e-3
    )


@pytest.mark.parametrize(
    ("epsilon", "clients", "value"), [(0.5, 40, 0.344), (0.5, 10**3, 0.0627), (1.0, 40, 0.855)]
)
def test_clones_of_randomized_response(epsilon, clients, value):
    # Three printed digits.
    assert published_clones_epsilon(epsilon, clients=clients, delta=1e-6) == pytest.approx(
        value, rel=3e-3
    )


def test_edges():
    table = randomized_response(lower=-1, upper=1, epsilon=1.0)
    assert clones_epsilon(1.0, clients=1, delta=1e-6) == 1.0
    assert clones_epsilon(1.0, clients=50, delta=0.0) == 1.0
    assert clones_epsilon(0.0, clients=50, delta=1e-6) == 0.0
    assert blanket_epsilon(table.weights, clients=1, delta=1e-6) == table.epsilon
    no_common = np.array([[2**32, 0], [0, 2**32]])
    assert math.isinf(blanket_epsilon(no_common, clients=100, delta=1e-6))
    with pytest.raises(ParameterError, match="epsilon"):
        clones_epsilon(math.inf, clients=10, delta=1e-6)
    with pytest.raises(ParameterError, match="clients"):
        clones_epsilon(1.0, clients=0, delta=1e-6)


# The claim --------------------------------------------------------------------------------------------------------


def orders(codewords: int, top: int, epsilon: float) -> np.ndarray:
    """Every row that an order of the codewords can give, once."""
    row = rank_table(codewords=codewords, top=top, epsilon=epsilon).rows()[0]
    return np.unique(
        [row[list(order)] for order in itertools.permutations(range(codewords))], axis=0
    )


@judges("privacy.shuffled.account_shuffled")
@pytest.mark.parametrize(
    ("codewords", "top", "local", "clients"),
    [
        (3, 1, 1.0, 2),
        (3, 1, 1.0, 4),
        (4, 2, 2.0, 3),
        (4, 1, 0.5, 4),
        (4, 1, 4.0, 3),
        (2, 1, 3.0, 6),
    ],
)
def test_shuffled_ranked_reports_lose_at_most_what_is_claimed(codewords, top, local, clients):
    """All data sets of the others, all pairs of orders of one client."""
    rows = orders(codewords, top, local)
    table = rank_table(codewords=codewords, top=top, epsilon=local)
    for target in (0.2, 0.05, 0.01):
        claim = account(table.dominating, trust="shuffler", clients=clients, delta=target)
        assert exact_shuffle_delta(rows, clients, claim.epsilon) <= target
        assert claim.epsilon <= local


def test_shuffled_pairs_of_seed_and_index_lose_at_most_what_is_claimed():
    """Two equally likely seeds: an input is an order under each, a report the pair of seed and index."""
    row = orders(3, 1, 1.0)
    pairs = np.array([np.concatenate([one, other]) / 2 for one in row for other in row])
    table = rank_table(codewords=3, top=1, epsilon=1.0)
    for target in (0.1, 0.02):
        claim = account(table.dominating, trust="shuffler", clients=2, delta=target)
        assert exact_shuffle_delta(pairs, 2, claim.epsilon) <= target


def test_the_reduction_to_two_top_sets_is_false_and_is_not_what_is_claimed():
    rows = orders(3, 1, 1.0)
    exact = exact_shuffle_delta(rows, 2, 0.9)
    assert exact == pytest.approx(0.0316, abs=5e-5)  # four printed decimals
    table = rank_table(codewords=3, top=1, epsilon=1.0)
    assert account(table.dominating, trust="shuffler", clients=2, delta=exact * 0.999).epsilon > 0.9


def test_claims_of_a_shuffle():
    scheme = ranked_codebook(100, 4.0, 8)
    claim = scheme.claim(trust="shuffler", clients=10_000, delta=1e-6)
    assert (claim.observer, claim.trust, claim.honest_clients) == ("shuffled", "shuffler", 10_000)
    assert claim.epsilon == pytest.approx(
        clones_epsilon(scheme.epsilon, clients=10_000, delta=1e-6), rel=MANY
    )
    assert "shuffler" in str(claim)
    # Rounds add up with parts of delta, and cost never more than the reports by themselves.
    two = scheme.claim(trust="shuffler", clients=10_000, delta=1e-6, rounds=2)
    one = scheme.claim(trust="shuffler", clients=10_000, delta=5e-7)
    assert two.epsilon == pytest.approx(2 * one.epsilon, rel=MANY)
    assert scheme.claim(trust="shuffler", clients=3, delta=1e-6).epsilon <= scheme.epsilon * (
        1 + FEW
    )
    assert scheme.claim(trust="shuffler", clients=9, delta=0.0).epsilon <= scheme.epsilon * (
        1 + FEW
    )
    fewer = scheme.claim(trust="shuffler", clients=10_000, corrupted=9_000, delta=1e-6)
    assert fewer.honest_clients == 1000
    assert fewer.epsilon > claim.epsilon
    # Of few clients in many rounds the claim is that of a local observer, below the sum of rounds.
    table = randomized_response(lower=-1, upper=1, epsilon=1.0)
    many_rounds = {"rounds": 200, "delta": 1e-6}
    seen = account(table, trust="local", **many_rounds)
    hidden = account(table, trust="shuffler", clients=3, **many_rounds)
    assert hidden.epsilon == seen.epsilon < 200 * table.epsilon
    seeds = own_seeds(50)
    assert len(set(seeds)) == 50
    vectors = np.random.default_rng(1).normal(size=(50, 100))
    assert scheme.mean(scheme.encode(vectors, seeds), seeds).shape == (100,)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"clients": None}, "clients"), ({"sampling_rate": 0.5}, "sampling_rate"), ({"l2_norm": 1.0}, "clip_norm"),
        ({"neighboring": "add_or_remove_one"}, "neighboring"), ({"clip_norm": 1.0}, "clip_norm"),
        ({"corrupted": 10}, "corrupted"), ({"rounds": 0}, "rounds"), ({"delta": 1.0}, "delta"),
    ],
)  # fmt: skip
def test_what_no_shuffle_is_claimed_for_is_refused(wrong, word):
    table = randomized_response(lower=-1, upper=1, epsilon=1.0)
    with pytest.raises(ParameterError, match=word):
        account(table, **({"trust": "shuffler", "clients": 10} | wrong))
