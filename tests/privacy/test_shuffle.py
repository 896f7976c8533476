"""Shuffle bounds against the reference table and against enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.families import randomized_response, rqm
from mezzotint.privacy.loss import pure_epsilon
from mezzotint.privacy.shuffle import blanket_epsilon, clones_epsilon, published_clones_epsilon
from reference.sums import random_rows


def exact_shuffle_delta(weights: np.ndarray, clients: int, epsilon: float) -> float:
    """Worst delta over all data sets of the others and pairs of rows; outputs are multisets of reports (floats)."""
    table = weights / 2.0**32
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(len(table)), clients - 1):
        for a, b in itertools.permutations(range(len(table)), 2):
            first, second = Counter(), Counter()
            for reports in itertools.product(range(table.shape[1]), repeat=clients):
                shared = math.prod(table[row, report] for row, report in zip(others, reports[1:], strict=True))
                first[tuple(sorted(reports))] += shared * table[a, reports[0]]
                second[tuple(sorted(reports))] += shared * table[b, reports[0]]
            worst = max(worst, sum(max(0.0, p - math.exp(epsilon) * second[key]) for key, p in first.items()))
    return worst


@pytest.mark.parametrize("seed", range(8))
def test_never_below_the_exact_shuffle(seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, rows=2, levels=int(rng.integers(2, 4)))
    for clients, target in ((3, 0.05), (5, 0.01)):
        bound = blanket_epsilon(rows, clients=clients, delta=target)
        if math.isfinite(bound):
            assert exact_shuffle_delta(rows, clients, bound) <= target * (1 + 1e-9)
        local = pure_epsilon(rows)
        if math.isfinite(local):
            assert exact_shuffle_delta(rows, clients, clones_epsilon(local, clients=clients, delta=target)) <= target


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
    assert published_clones_epsilon(table.epsilon, clients=clients, delta=1e-6) == pytest.approx(clones, rel=6e-3)
    assert clones_epsilon(table.epsilon, clients=clients, delta=1e-6) >= clones * (1 - 6e-3)
    assert blanket_epsilon(table.weights, clients=clients, delta=1e-6) == pytest.approx(blanket, rel=6e-3)


@pytest.mark.parametrize(("epsilon", "clients", "value"), [(0.5, 40, 0.344), (0.5, 10**3, 0.0627), (1.0, 40, 0.855)])
def test_clones_of_randomized_response(epsilon, clients, value):
    assert published_clones_epsilon(epsilon, clients=clients, delta=1e-6) == pytest.approx(value, rel=3e-3)


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
