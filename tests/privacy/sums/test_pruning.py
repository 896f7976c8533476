"""Pruned cases: as cheap as asked for, with an epsilon that the kernel confirms, and none left out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mezzotint.families import rqm
from mezzotint.privacy.sums import lattice_rows
from mezzotint.privacy.sums.blanket import additive_blanket, common_blanket
from mezzotint.privacy.sums.cover import Cover, cover, division
from mezzotint.privacy.sums.pruning import Divided, PrunedCase, Pruning, Undivided, on_ladder

OTHERS, DELTA, TAIL = 4000, 1e-6, 1e-10
STEPS = (4, 8, 16)
ROWS, _ = lattice_rows(rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42))


def price(corners: int, components: int) -> float:
    return corners + 0.5 * components


@pytest.fixture(scope="module")
def cases() -> Cover:
    found = cover(ROWS, others=OTHERS, delta=DELTA, limit=10.0)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def pruning(cases: Cover) -> Pruning:
    return Pruning(ROWS, cases, delta=DELTA, tail=TAIL, steps=STEPS, price=price)


def root(cases: Cover) -> np.ndarray:
    everyone = np.zeros(len(cases.groups), dtype=np.int64)
    everyone[0] = OTHERS
    return everyone


def undivided_cases(pruned: PrunedCase) -> Iterator[Undivided]:
    if isinstance(pruned, Undivided):
        yield pruned
        return
    for smaller in pruned.cases:
        yield from undivided_cases(smaller)


def uniform(pruning: Pruning, cases: Cover, case: np.ndarray, steps: int) -> list[Undivided]:
    """Every case as the search divided it, all on ladders of so many steps."""
    if any((case == leaf).all() for leaf in cases.cases):
        return [pruning._undivided(case, steps)]
    found: list[Undivided] = []
    for smaller in division(cases.groups, case).cases:
        found += uniform(pruning, cases, smaller, steps)
    return found


def test_no_uniform_ladder_on_all_cases_is_cheaper(pruning: Pruning, cases: Cover) -> None:
    for steps in STEPS:
        undivided = uniform(pruning, cases, root(cases), steps)
        limit = max(case.epsilon for case in undivided)
        pruned = pruning.cheapest(root(cases), limit)
        assert pruned is not None
        assert pruned.seconds <= sum(case.seconds for case in undivided)
        assert pruned.epsilon <= limit
    # Nor one ladder on the case of all clients.
    alone = pruning._undivided(root(cases), STEPS[-1])
    pruned = pruning.cheapest(root(cases), alone.epsilon)
    assert pruned is not None
    assert pruned.seconds <= alone.seconds


def test_what_is_said_of_cases_is_that_of_their_parts(pruning: Pruning, cases: Cover) -> None:
    seconds = np.inf
    for share in (0.0, 0.01, 0.03, 0.1):
        limit = (1 + share) * cases.epsilon
        pruned = pruning.cheapest(root(cases), limit)
        assert pruned is not None
        parts = list(undivided_cases(pruned))
        # Sums of at most a few hundred floats.
        assert pruned.seconds == pytest.approx(sum(part.seconds for part in parts), rel=1e-12)
        assert pruned.epsilon == max(part.epsilon for part in parts) <= limit
        assert pruned.seconds <= seconds
        seconds = pruned.seconds
        waiting: list[tuple[PrunedCase, np.ndarray]] = [(pruned, root(cases))]
        while waiting:
            part, case = waiting.pop()
            if isinstance(part, Divided):
                divided = division(cases.groups, case)
                assert part.division.cuts == divided.cuts
                waiting += zip(part.cases, divided.cases, strict=True)
            else:
                assert price(len(part.corners), part.corners.shape[1]) == part.seconds


def test_the_least_epsilon_that_is_affordable_is_chosen(pruning: Pruning, cases: Cover) -> None:
    best = pruning.cheapest(root(cases), cases.epsilon)
    assert best is not None
    assert pruning.affordable(root(cases), best.seconds, 0.0) is not None
    epsilon = cases.epsilon
    for seconds in (best.seconds, 0.7 * best.seconds, 0.4 * best.seconds):
        pruned = pruning.affordable(root(cases), seconds, 0.0)
        assert pruned is not None
        assert pruned.seconds <= seconds
        if seconds < best.seconds:
            # What the interval's halvings leave in doubt is 4e-4.
            lower = pruning.cheapest(root(cases), pruned.epsilon - 4e-4 * cases.epsilon)
            assert lower is None or lower.seconds > seconds
            assert pruned.epsilon > cases.epsilon
        assert pruned.epsilon >= epsilon * (1 - 1e-2)
        epsilon = pruned.epsilon
    # Smaller epsilons than the search's, from finer ladders.
    finer = pruning.affordable(root(cases), np.inf, -0.05)
    assert finer is not None
    assert finer.epsilon < cases.epsilon
    assert pruning.affordable(root(cases), 1.0, 0.0) is None
    assert pruning.cheapest(root(cases), 0.5 * cases.epsilon) is None


def test_clients_whose_row_is_known_draw_its_blanket_for_certain() -> None:
    sure, shared = additive_blanket(ROWS[:1]), common_blanket(ROWS)
    assert sure is not None
    assert shared is not None
    components = [*sure.components, *shared.components]
    ladder = on_ladder(
        ROWS, components, np.array([7, 30]), delta=DELTA, tail=TAIL, steps=8, price=price
    )
    assert set(ladder.corners[:, 0]) == {7}
    assert 0 < ladder.corners[:, 1].max() < 30
    silent = on_ladder(
        ROWS, [], np.zeros(0, dtype=np.int64), delta=DELTA, tail=TAIL, steps=8, price=price
    )
    assert silent.corners.tolist() == [[]]
    assert silent.epsilon > ladder.epsilon
