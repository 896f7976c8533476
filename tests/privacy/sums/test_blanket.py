"""Blankets hold in exact integers, whatever a solver said; bundled counts are bounded from below."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import prod

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.families import rqm
from mezzotint.privacy.sums import lattice_rows
from mezzotint.privacy.sums.blanket import (
    Blanket,
    Component,
    common_blanket,
    shape_blanket,
    two_point,
)
from mezzotint.privacy.sums.candidates import (
    block_blanket,
    candidate_blankets,
    solve_dyads,
    summed_rows,
)
from mezzotint.privacy.sums.counts import CountBounds, monotone_corners, multinomial_cells
from reference.sums import TOTAL, random_rows
from tolerances import FEW


def fits_slowly(blanket: Blanket, rows: np.ndarray) -> bool:
    """The blanket's inequality by its definition, in rationals."""
    for k, row in enumerate(rows):
        spent = [Fraction(0)] * len(row)
        for component in blanket.components:
            whole = int(component.shape.sum())
            for shift, mass in enumerate(component.shifts[k].tolist()):
                for i, weight in enumerate(component.shape.tolist()):
                    if mass * weight:
                        spent[shift + i] += Fraction(mass * weight, whole)
        if any(used > int(weight) for used, weight in zip(spent, row, strict=True)):
            return False
    return True


@pytest.mark.parametrize("seed", range(25))
def test_every_candidate_fits_in_rationals(seed):
    rows = random_rows(np.random.default_rng(seed))
    for blanket in candidate_blankets(rows):
        assert fits_slowly(blanket, rows)
        assert blanket.is_valid_for(rows)
        for component in blanket.components:
            assert (component.shifts.sum(axis=1) == component.mass).all()


def test_coins_chosen_one_by_one_each_add_most_to_those_before():
    rows, _ = lattice_rows(rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.42))
    by_name = {blanket.name: blanket for blanket in candidate_blankets(rows)}
    blanket = by_name["fair coins, 4 chosen one by one"]
    widths = [component.shape.size - 1 for component in blanket.components]
    assert len(set(widths)) == 4
    for count in range(1, 5):
        before = widths[: count - 1]
        kept: dict[int, float] = {}
        for width in set(range(1, 16)) - set(before):
            grown = solve_dyads(rows, [*before, width])
            assert grown is not None
            kept[width] = grown.variance
        # Rounding to integers loses less than this.
        assert kept[widths[count - 1]] >= max(kept.values()) * (1 - 1e-6)
    # Here they keep more than the four that are worth most among all coins.
    assert blanket.variance > by_name["fair coins, 4"].variance


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_sums_of_rows_are_those_of_all_outcomes_rounded_down(clients):
    rows = random_rows(np.random.default_rng(clients), levels=3)
    sums = summed_rows(rows, clients)
    chosen = list(combinations_with_replacement(range(len(rows)), clients))
    assert sums.shape == (len(chosen), 2 * clients + 1)
    for indices, summed in zip(chosen, sums.tolist(), strict=True):
        exact = [Fraction(0)] * len(summed)
        for values in product(range(3), repeat=clients):
            exact[sum(values)] += prod(
                Fraction(int(rows[index, value]), TOTAL)
                for index, value in zip(indices, values, strict=True)
            )
        assert summed == [int(probability * TOTAL) for probability in exact]


@pytest.mark.parametrize("clients", [2, 4])
def test_what_a_block_of_clients_adds_fits_under_all_their_sums(clients):
    rows = random_rows(np.random.default_rng(clients), levels=3)
    blanket = block_blanket(rows, clients)
    assert blanket is not None
    assert fits_slowly(blanket, summed_rows(rows, clients))
    alone = solve_dyads(rows, [1, 2])
    assert alone is not None
    # The sum of two coins is a mixture of coins: nothing is lost of what clients add alone but masses below 1e-6.
    assert blanket.variance >= clients * alone.variance * (1 - 1e-4)
    assert block_blanket(np.array([[TOTAL, 0], [0, TOTAL]]), clients) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_solver_that_overshoots_cannot_spoil_a_blanket(seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, levels=4)
    widths = [1, 2, 3]
    lies = [
        rng.random((rows.shape[0], 4 - width)) * rng.choice([1e-9, 0.3, 50.0]) for width in widths
    ]
    lies[0][0, 0] = np.nan
    blanket = shape_blanket(rows, [two_point(width) for width in widths], lies, name="lies")
    assert blanket is None or fits_slowly(blanket, rows)


def test_one_unit_too_much_is_noticed():
    rows = np.array([[TOTAL // 2, TOTAL // 2], [TOTAL // 4, 3 * TOTAL // 4]])
    good = solve_dyads(rows, [1])
    assert good is not None
    assert good.masses[0] == pytest.approx(0.5, rel=FEW)
    assert good.is_valid_for(rows)
    more = Component(shape=two_point(1), shifts=good.components[0].shifts + 1)
    assert not Blanket(components=(more,), name="one unit too much").is_valid_for(rows)
    off = Component(shape=two_point(2), shifts=np.ones((2, 1), dtype=np.int64))
    assert not Blanket(components=(off,), name="beyond the end").is_valid_for(rows)
    other = Component(shape=two_point(1), shifts=np.ones((3, 1), dtype=np.int64))
    assert not Blanket(components=(other,), name="another table").is_valid_for(rows)


def test_common_mass_is_the_blanket_of_theorem_s():
    rows = np.array([[1, 2, TOTAL - 3], [3, 1, TOTAL - 4]])
    blanket = common_blanket(rows)
    assert blanket is not None
    assert blanket.components[0].shape.tolist() == [1, 1, TOTAL - 4]
    assert common_blanket(np.array([[TOTAL, 0], [0, TOTAL]])) is None


def test_components_that_are_none_are_refused():
    with pytest.raises(ParameterError, match="same mass"):
        Component(shape=two_point(1), shifts=np.array([[1], [2]]))
    with pytest.raises(ParameterError, match="shape"):
        Component(shape=np.zeros(2, dtype=np.int64), shifts=np.array([[1]]))


@pytest.mark.parametrize("clients", [0, 1, 5, 40, 1000])
@pytest.mark.parametrize("budget", [1, 20, 500])
@pytest.mark.parametrize("masses", [(0.3,), (0.3, 0.05, 0.4), (0.02, 0.3, 0.05, 0.4, 0.1)])
def test_cells_lie_below_the_true_counts(clients, budget, masses):
    variances = np.array([1.0, 9.0, 0.25, 2.0, 4.0])[: len(masses)]
    cells = multinomial_cells(clients, np.array(masses), variances, budget=budget, tail=1e-9)
    draws = np.random.default_rng(0).multinomial(clients, [*masses, 1 - sum(masses)], size=20_000)[
        :, : len(masses)
    ]
    check_dominance(cells, draws)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("steps", [4, 30])
def test_a_ladder_lies_below_counts_that_depend_on_each_other_or_not(shared, steps):
    clients, masses, variances = (
        np.array([200, 200, 200]),
        np.array([0.3, 0.05, 0.6]),
        np.array([1.0, 9.0, 0.25]),
    )
    rng = np.random.default_rng(0)
    together = rng.multinomial(200, [*masses, 1 - masses.sum()], size=20_000)[:, :3]
    apart = np.column_stack([rng.binomial(200, mass, size=20_000) for mass in masses])
    check_dominance(
        monotone_corners(clients, masses, variances, steps=steps, tail=1e-9),
        together if shared else apart,
    )


def test_a_ladder_keeps_more_variance_than_boxes_when_components_are_many():
    masses, variances = np.full(12, 0.05), np.arange(1.0, 13.0)
    cells = monotone_corners(np.full(12, 10**5), masses, variances, steps=16, tail=1e-9)
    kept = cells.probability @ (cells.counts @ variances)
    # 5000 draws each deviate by 1.4 %; the worst of twelve lies about 1.7 deviations below its mean.
    assert 0.96 < kept / (10**5 * masses @ variances) < 0.99
    assert (
        cells.lost < 1e-8
    )  # 1e-9 for the tail, and up to as much again for each of a few directions


def check_dominance(cells: CountBounds, draws: np.ndarray) -> None:
    assert cells.probability.sum() + cells.lost >= 1 - FEW
    assert (
        cells.probability.sum() <= 1 + 1e-7
    )  # every cell is rounded up, by less than 1e-7 together
    # Stochastic dominance shows in every upper orthant: P(corner >= k) <= P(N >= k).
    for k in draws[:40]:
        cell_share = cells.probability[(cells.counts >= k).all(axis=1)].sum()
        true_share = (draws >= k).all(axis=1).mean()
        # 20,000 draws: five standard errors, false alarm below 1e-5 in all.
        assert cell_share <= true_share + 5 * np.sqrt(max(true_share, 1e-4) / 20_000)
