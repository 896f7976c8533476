"""Cases of the other clients' inputs: they hold every data set, and their bound is never below the truth."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from laws.registry import judges
from mezzotint.core.loss import pure_epsilon
from mezzotint.families import randomized_response, rqm
from mezzotint.privacy.sums import lattice_rows
from mezzotint.privacy.sums.cost import central_epsilon, dominating_profile
from mezzotint.privacy.sums.cover import MAX_ROWS, Cover, RowGroup, case_noises, cover, find_groups
from reference.sums import crowd_delta, exact_delta, random_rows, sum_pmf
from reference.witness import find_witness
from tolerances import FEW, MANY


def data_sets(clients: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """All ways to give each of `kinds` rows a number of clients."""
    if kinds == 1:
        yield (clients,)
        return
    for first in range(clients + 1):
        for rest in data_sets(clients - first, kinds - 1):
            yield (first, *rest)


def holds(groups: tuple[RowGroup, ...], case: np.ndarray, data: tuple[int, ...]) -> bool:
    """Whether clients with these rows can be sorted into the groups as the case says (Hall's condition on a tree)."""
    for group in groups:
        inside = [i for i, other in enumerate(groups) if set(other.members) <= set(group.members)]
        if int(case[inside].sum()) > sum(data[k] for k in group.members):
            return False
    return int(case.sum()) == sum(data)


def check_cases(found: Cover, others: int, kinds: int) -> None:
    for data in data_sets(others, kinds):
        assert any(holds(found.groups, case, data) for case in found.cases), data


@judges("privacy.sums.cover.cover", "privacy.sums.cover.Cover.noises")
@pytest.mark.parametrize("seed", range(10))
def test_cases_hold_every_data_set_and_never_undercut_the_truth(seed):
    rng = np.random.default_rng(seed)
    rows, clients = random_rows(rng), int(rng.integers(2, 7))
    rows = np.unique(rows, axis=0)
    for target in (1e-2, 1e-4):
        found = cover(rows, others=clients - 1, delta=target, limit=pure_epsilon(rows))
        if found is None:
            # Some data set leaves a level that only one input reaches: no epsilon serves it.
            assert math.isinf(pure_epsilon(rows))
            continue
        check_cases(found, clients - 1, len(rows))
        assert exact_delta(rows, clients, found.epsilon) <= target * (1 + FEW)


@pytest.mark.slow
def test_never_below_the_exact_worst_case_on_200_tables():
    checked = 0
    for seed in range(200):
        rng = np.random.default_rng(5000 + seed)
        rows, clients = np.unique(random_rows(rng), axis=0), int(rng.integers(2, 7))
        delta = 1e-3
        found = cover(rows, others=clients - 1, delta=delta, limit=pure_epsilon(rows))
        if found is not None:
            check_cases(found, clients - 1, len(rows))
            assert exact_delta(rows, clients, found.epsilon) <= delta * (1 + FEW), seed
            checked += 1
    assert checked > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_crowds_are_never_below_the_exact_worst_case(seed):
    """Here ladders, blocks and many cases are at work, and every data set can still be tried."""
    rng = np.random.default_rng(seed)
    kinds = 2 + seed % 2
    rows = np.unique(random_rows(rng, rows=kinds, levels=int(rng.integers(2, 5))), axis=0)
    clients = int(rng.integers(50, 400) if kinds == 2 else rng.integers(20, 60))
    for target in (1e-2, 1e-5):
        bound = central_epsilon(rows, clients=clients, delta=target).epsilon
        if math.isfinite(bound):
            # Sums of binomial tails in floats, whose logarithms reach 500.
            assert crowd_delta(rows, clients, bound) <= target * (1 + 1e-6)
    curve = dominating_profile(rows, clients=clients, delta=1e-6)
    for epsilon in (0.05, 0.3):
        assert (
            float(curve.delta(epsilon)) >= crowd_delta(rows, clients, epsilon) * (1 - 1e-6) - FEW
        )  # as above


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_a_tree_of_blankets_that_fit(seed):
    rows = np.unique(random_rows(np.random.default_rng(seed), rows=5, levels=4), axis=0)
    root = find_groups(rows)
    assert root is not None
    assert root.members == tuple(range(5))
    for group in root.all_groups():
        assert group.blanket is None or group.blanket.is_valid_for(rows[list(group.members)])
        if group.parts:
            assert tuple(sorted(group.parts[0].members + group.parts[1].members)) == group.members
        else:
            # Of a client whose row is known all randomness counts.
            assert group.blanket is not None
            assert group.blanket.masses.tolist() == [1.0]


def test_tables_of_many_rows_or_one_have_no_groups():
    rows, _ = lattice_rows(rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.42))
    assert len(rows) > MAX_ROWS
    assert find_groups(rows) is None
    assert cover(rows, others=10, delta=1e-6, limit=pure_epsilon(rows)) is None
    assert find_groups(rows[:1]) is None


@judges("privacy.sums.cover.case_noises")
def test_the_noise_of_a_data_set_is_its_convolution():
    rows, _ = lattice_rows(rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42))
    root = find_groups(rows)
    assert root is not None
    groups = tuple(root.all_groups())
    counts = (3, 0, 5, 2)
    case = np.array([[counts[group.members[0]] if not group.parts else 0 for group in groups]])
    (noise,) = case_noises(groups, case, 1e-12)
    exact = sum_pmf([rows[k] / 2.0**32 for k, count in enumerate(counts) for _ in range(count)])
    assert noise.probability.tolist() == pytest.approx([1.0], rel=FEW)
    assert (noise.pmf[0] <= exact * (1 + noise.error + FEW)).all()
    assert (noise.pmf[0] >= exact * (1 - FEW)).all()
    assert noise.pmf[0] == pytest.approx(exact, rel=MANY)


def test_nobody_in_any_group_is_silence():
    rows = np.array([[2**31, 2**31], [2**30, 3 * 2**30]])
    root = find_groups(rows)
    assert root is not None
    (noise,) = case_noises(tuple(root.all_groups()), np.zeros((1, 3), dtype=np.int64), 1e-9)
    assert noise.pmf.tolist() == [[1.0]]


# Exact values of randomized response at delta = 1e-6 by types of the others (sums note, 5.6), as printed there.
RESPONSE = [
    (0.5, 40, 0.337),
    (0.5, 10**3, 0.0573),
    (0.5, 10**5, 0.0046),
    (1, 40, 0.843),
    (1, 10**3, 0.128),
]


@pytest.mark.parametrize(
    ("epsilon", "clients", "exact"),
    [
        *RESPONSE[::2],
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (*RESPONSE[1::2], (1, 10**5, 0.0102))
        ),
    ],
)
def test_randomized_response_is_known_almost_exactly(epsilon, clients, exact):
    rows, _ = lattice_rows(randomized_response(lower=-1, upper=1, epsilon=epsilon))
    bound = central_epsilon(rows, clients=clients, delta=1e-6)
    witness = find_witness(rows, clients=clients, delta=1e-6)
    assert bound.epsilon <= exact + 5e-4 * 10 ** np.floor(
        np.log10(exact) + 1
    )  # half a unit of the last printed digit
    assert witness.epsilon <= bound.epsilon <= 1.005 * witness.epsilon
    curve = dominating_profile(rows, clients=clients, delta=1e-6)
    assert witness.epsilon <= curve.epsilon(1e-6) <= 1.006 * witness.epsilon


EVEN = [(2.0, 10**3, 0.353), (2.0, 10**5, 0.0267), (4.0, 10**3, 1.41), (4.0, 10**5, 0.0997)]


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "clients", "reference"), EVEN)
def test_even_tables_are_at_or_below_the_reference(epsilon, clients, reference):
    sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
    try:
        from sums import even_optimum
    finally:
        sys.path.pop(0)
    rows, _ = lattice_rows(even_optimum(epsilon))
    assert central_epsilon(rows, clients=clients, delta=1e-6).epsilon <= reference
