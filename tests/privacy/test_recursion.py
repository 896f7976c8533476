"""Worst sequences: which pairs are gone through, what thinning costs, and when it is too much."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint import families
from mezzotint.core.mechanism import TOTAL, Mechanism
from mezzotint.privacy import local as recursion
from mezzotint.privacy.local import dominating_atoms, undominated, worst_sequence_epsilon
from reference.privacy import hockey_stick, rows_of
from strategies import random_table, tables
from tolerances import FEW, MANY


@given(tables(max_rows=4, max_levels=4), st.sampled_from([0.0, 0.05, 0.5, 1.5, 4.0]))
def test_pairs_left_out_are_never_the_worst(mechanism: Mechanism, epsilon: float) -> None:
    rows = rows_of(mechanism.weights)
    kept = [
        [(row * TOTAL).astype(np.int64) for row in pair] for pair in undominated(mechanism.weights)
    ]
    worst = max(hockey_stick(a, b, epsilon) for a in rows for b in rows)
    among = max((hockey_stick(*rows_of(np.array(pair)), epsilon) for pair in kept), default=0)
    assert abs(worst - among) < FEW


@pytest.mark.parametrize(
    "mechanism",
    [
        families.randomized_response(epsilon=1.0),
        families.k_randomized_response(levels=3, epsilon=0.7),
    ],
    ids=["randomized-response", "k-randomized-response"],
)
def test_where_one_pair_dominates_the_envelope_is_that_pair(mechanism: Mechanism) -> None:
    ((first, second),) = undominated(mechanism.weights)
    atoms = dominating_atoms(mechanism)
    losses = np.unique(np.round(np.log(first / second), 12))
    np.testing.assert_allclose(np.sort(atoms.losses), losses, rtol=0, atol=MANY)
    largest = np.log(first / second) > 1e-9
    assert atoms.masses[atoms.losses > 1e-9].sum() == pytest.approx(first[largest].sum(), rel=FEW)


@given(st.integers(0, 500))
@settings(max_examples=15)
def test_thinning_costs_little_and_only_overstates(seed: int) -> None:
    weights = random_table(seed, rows=2, levels=4, spread=1.5).weights
    results: list[float | None] = []
    for points in (256, 1024, 2**16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recursion, "_POINTS", points)
            results.append(worst_sequence_epsilon(weights, coordinates=2, rounds=3, delta=1e-5))
    coarse, middle, fine = (float(value or 0.0) for value in results)
    # Thinning to so many points moves losses by their spacing: some 10 / 1024 squared, and 10 / 256.
    assert fine - FEW <= middle <= fine + 1e-4
    assert middle - 1e-4 <= coarse <= fine + 1e-2  # likewise


def test_what_is_too_much_is_left_to_others() -> None:
    many = random_table(0, rows=9, levels=3).weights
    assert worst_sequence_epsilon(many, coordinates=1, rounds=1, delta=1e-3) is None
    few = random_table(0, rows=2, levels=3).weights
    assert worst_sequence_epsilon(few, coordinates=10**6, rounds=1, delta=1e-3) is None
    assert worst_sequence_epsilon(few, coordinates=1, rounds=10**9, delta=1e-3) is None


def test_equal_rows_and_escaping_mass() -> None:
    same = np.array([[5, TOTAL - 5], [5, TOTAL - 5]])
    assert worst_sequence_epsilon(same, coordinates=2, rounds=2, delta=1e-9) == 0.0
    escaping = np.array([[TOTAL // 2, TOTAL // 2], [TOTAL, 0]])
    assert worst_sequence_epsilon(escaping, coordinates=1, rounds=1, delta=0.4) == math.inf
    assert worst_sequence_epsilon(escaping, coordinates=1, rounds=1, delta=0.6) == 0.0
