"""Comparisons in the accountants of sums at equality, and slow twins of their small parts."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.core.types import TOTAL
from mezzotint.privacy.distribution import (
    MAX_EPSILON,
    HockeyStick,
    _lower_hull,
    _symmetric_hull,
    hull,
)
from mezzotint.privacy.sums.blanket import (
    Blanket,
    Component,
    NoiseMixture,
    PairLoss,
    no_noise,
    pair_loss,
    screen,
    two_point,
)
from mezzotint.privacy.sums.convolution import sum_bounds
from mezzotint.privacy.sums.cost import central_epsilon, dominating_curve
from mezzotint.privacy.sums.cover import _pair_epsilon
from tolerances import FEW, MANY


def _curve(epsilons: list[float], deltas: list[float]) -> HockeyStick:
    return HockeyStick(epsilons=np.array(epsilons), deltas=np.array(deltas))


def test_grids_of_curves() -> None:
    assert float(_curve([0.0], [0.25]).delta(3.0)) == pytest.approx(0.25, rel=FEW)
    assert _curve([0.0, MAX_EPSILON], [0.5, 0.0]).epsilon(0.0) == MAX_EPSILON
    for epsilons in ([0.0, 1.0, 1.0], [0.0, math.nextafter(MAX_EPSILON, math.inf), math.inf]):
        with pytest.raises(ParameterError):
            _curve(epsilons, [0.5, 0.25, 0.0])
    with pytest.raises(ParameterError):
        _curve([], [])


def test_bounds_that_are_just_met_cost_no_more() -> None:
    curve = _curve([0.0, 1.0, 2.0, math.inf], [0.5, 0.25, 0.125, 0.0625])
    for epsilon, delta in zip(curve.epsilons.tolist(), curve.deltas.tolist(), strict=True):
        assert curve.epsilon(delta) == epsilon
    assert curve.epsilon(0.0) == math.inf
    assert curve.delta(math.inf) == 0.0625


def test_hulls_hold_no_points_on_chords() -> None:
    line = [Fraction(1), Fraction(1, 2), Fraction(0)]
    bent = [Fraction(1), Fraction(3, 5), Fraction(0)]
    ratios = [Fraction(1), Fraction(2), Fraction(3)]
    assert hull(ratios, line) == hull(ratios, bent) == [0, 2]
    assert hull(ratios, [Fraction(1), Fraction(2, 5), Fraction(0)]) == [0, 1, 2]
    assert _lower_hull(np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.5, 0.0])).tolist() == [0, 2]
    # From (1, 1/2), whose mirror image it is itself, to (3, 0) the slope is the symmetric one, -1/4.
    assert _symmetric_hull(ratios[::2], [Fraction(1, 2), Fraction(0)]) == ([0, 1], Fraction(-1, 4))


@pytest.mark.parametrize(
    ("epsilons", "deltas"),
    [
        ([0.0, 0.5, 1.0], [0.3, 0.1, 0.05]),
        ([0.0, 0.5, 1.0], [0.9, 0.5, 0.25]),
        ([0.0, 1.0], [0.25, 0.0]),
    ],
)
def test_the_pair_of_a_curve_has_that_curve(epsilons: list[float], deltas: list[float]) -> None:
    curve = _curve(epsilons, deltas)
    atoms = curve.atoms()
    assert float(atoms.masses.sum()) + atoms.infinite == pytest.approx(1.0, rel=FEW)
    assert (atoms.masses >= 0).all()
    for epsilon in np.linspace(0.0, 1.2, 25).tolist():
        own = atoms.infinite + float(
            atoms.masses @ np.maximum(-np.expm1(epsilon - atoms.losses), 0.0)
        )
        # The mirrored curve is covered too: where the two meet in a concave kink, a chord is below the curve given.
        assert own <= float(curve.delta(epsilon)) + 1e-12
        if epsilon >= 1.0 or deltas[0] < 0.5:
            assert own >= float(curve.delta(epsilon)) - 10 * FEW
    # Symmetric: with every loss its negative, at e**-loss times its mass.
    for loss, mass in zip(atoms.losses.tolist(), atoms.masses.tolist(), strict=True):
        mirrored = mass * math.exp(-loss)
        assert any(abs(mirrored - other) < FEW for other in atoms.masses.tolist())


def test_a_concave_kink_at_one_is_bridged_by_a_chord() -> None:
    # (e, 1/4) and its mirror image (1/e, 1 - 3/4/e): the chord between them is below the points at 0 and 1/2.
    atoms = _curve([0.0, 0.5, 1.0], [0.9, 0.5, 0.25]).atoms()
    for epsilon in (0.0, 0.25, 0.5, 0.75):
        own = atoms.infinite + float(
            atoms.masses @ np.maximum(-np.expm1(epsilon - atoms.losses), 0.0)
        )
        chord = 0.25 + 0.75 * (math.e - math.exp(epsilon)) / (math.e + 1)
        assert chord <= own <= chord + FEW


FIRST, SECOND = np.array([0.4, 0.3, 0.2]), np.array([0.1, 0.15, 0.19])


def _pair(outside: float = 0.0) -> PairLoss:
    return PairLoss(losses=np.log(FIRST / SECOND), first=FIRST, second=SECOND, outside=outside)


def test_the_divergence_of_a_pair_is_a_sum_over_its_atoms() -> None:
    grid = np.linspace(0.0, 2.0, 41)
    slow = [
        sum(max(p - math.exp(e) * q, 0.0) for p, q in zip(FIRST, SECOND, strict=True)) + 1e-3
        for e in grid
    ]
    ours = _pair(1e-3).deltas(grid)
    assert (ours >= np.array(slow)).all()
    np.testing.assert_allclose(ours, slow, rtol=FEW)


def test_from_the_pure_epsilon_on_nothing_is_left() -> None:
    limit = math.log(4)
    pair = PairLoss(
        losses=np.array([limit * (1 + 1e-15)]),
        first=np.array([0.8]),
        second=np.array([0.2]),
        outside=0.0,
    )
    assert pair.curve(limit).delta(limit) == 0.0
    assert pair.epsilon(0.0, limit) == limit
    # One atom: 0.8 - 0.2 e**epsilon.
    assert math.log(2) <= pair.epsilon(0.4, limit) <= math.log(2) * (1 + 1e-9)
    assert pair.epsilon(0.61, limit) == 0.0
    assert _pair(1e-3).epsilon(1e-4, math.inf) == math.inf


ROWS = np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25], [0.1, 0.2, 0.7]])
COIN = NoiseMixture(
    probability=np.array([0.5, 0.5]), low=np.array([[0.5, 0.5], [1.0, 0.0]]), high=np.array([[0.5, 0.5], [1.0, 0.0]]),
    outside=1e-4,
)  # fmt: skip


def _slow(i: int, j: int, epsilon: float) -> float:
    total = COIN.outside
    for chance, noise in zip(COIN.probability, COIN.low, strict=True):
        p, q = np.convolve(ROWS[i], noise), np.convolve(ROWS[j], noise)
        total += float(chance * np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
    return total


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_every_ordered_pair_is_screened(epsilon: float) -> None:
    ours = screen(COIN, ROWS, epsilon)
    for i, j in np.ndindex(ours.shape):
        if i != j:
            slow = _slow(i, j, epsilon)
            assert slow <= ours[i, j] <= slow * (1 + FEW)
            assert pair_loss(COIN, ROWS[i], ROWS[j]).deltas(np.array([epsilon]))[
                0
            ] == pytest.approx(slow, rel=FEW)
        else:
            assert ours[i, j] == 0


def test_epsilons_of_smooth_curves_are_refined() -> None:
    # 40 fair coins: a curve without long chords. What deltas say at one point is exact up to rounding.
    bounds = sum_bounds([np.array([0.5, 0.5])], [[40]])
    noise = NoiseMixture(probability=np.ones(1), low=bounds.low, high=bounds.high, outside=0.0)
    pair = pair_loss(noise, np.array([0.75, 0.25]), np.array([0.25, 0.75]))
    for delta in (1e-2, 1e-4):
        epsilon = pair.epsilon(delta, math.log(3))
        assert pair.deltas(np.array([epsilon]))[0] <= delta
        assert pair.deltas(np.array([epsilon * (1 - 1e-6)]))[0] > delta


def test_shapes_and_counts_at_the_edge() -> None:
    sure = sum_bounds([np.ones(1)], [[3]])
    assert (sure.start.tolist(), sure.outside.tolist()) == ([0], [0.0])
    assert sure.low[0, 0] <= 1 <= sure.high[0, 0]
    sum_bounds([np.array([0.5, 0.5 + 2.0**-40])], [[1]])
    with pytest.raises(ParameterError, match="shapes"):
        sum_bounds([np.array([0.5, 0.5 + 2.0**-39])], [[1]])


def test_disclosure_stays_at_every_epsilon() -> None:
    impossible = np.array([[TOTAL // 2, TOTAL // 2, 0], [0, TOTAL // 2, TOTAL // 2]])
    curve = dominating_curve(impossible, clients=1)
    assert float(curve.delta(MAX_EPSILON)) == pytest.approx(0.5, rel=MANY)
    assert float(curve.delta(math.inf)) >= 0.5 * (1 - FEW)
    bounded = np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
    assert float(dominating_curve(bounded, clients=1).delta(math.log(3) * (1 + 1e-12))) == 0.0


def test_searched_epsilons_of_pairs() -> None:
    first, second = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    # 0.75 - 0.25 e**epsilon.
    found = _pair_epsilon(no_noise(), first, second, 0.25, math.log(3))
    # The search stops at 2e-4 of the epsilon.
    assert math.log(2) <= found <= math.log(2) * (1 + 3e-4)
    assert _pair_epsilon(no_noise(), first, second, 0.51, math.log(3)) == 0.0
    assert (
        _pair_epsilon(no_noise(), np.array([0.5, 0.5]), np.array([1.0, 0.0]), 0.25, math.inf)
        == math.inf
    )


BOUNDED = np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])


def test_other_clients_help_where_there_are_any() -> None:
    crowd = central_epsilon(BOUNDED, clients=300, delta=1e-6)
    assert crowd.epsilon < 0.6 * math.log(3)
    assert crowd.method != "one report"
    assert (crowd.blanket is None) != (crowd.cover is None)
    alone = central_epsilon(BOUNDED, clients=300, corrupted=299, delta=1e-6)
    assert (alone.method, alone.blanket) == ("one report", None)
    assert math.log(3 - 4e-6) <= alone.epsilon <= math.log(3)
    assert central_epsilon(BOUNDED, clients=300, delta=0.0).epsilon == pytest.approx(
        math.log(3), rel=FEW
    )
    curve = dominating_curve(BOUNDED, clients=300, delta=1e-6)
    # A curve is known at points between which it is a chord; the crowd's epsilon is searched for by itself.
    assert curve.epsilon(1e-6) == pytest.approx(crowd.epsilon, rel=1e-2)


def test_noise_of_even_widths_alone_leaks_the_parity() -> None:
    def coins(*widths: int) -> Blanket:
        shifts = np.array([[1]])
        return Blanket(
            components=tuple(Component(shape=two_point(width), shifts=shifts) for width in widths),
            name="coins",
        )

    assert coins(2).leaks
    assert coins(2, 4).leaks
    assert not coins(1).leaks
    assert not coins(2, 3).leaks


def test_an_absent_client_is_one_more_row() -> None:
    there = dominating_curve(BOUNDED, clients=40)
    absent = dominating_curve(BOUNDED, clients=40, silent=0)
    # Seen without others, silence never shows 1: that output is certain disclosure with 3/4.
    assert float(dominating_curve(BOUNDED, clients=1, silent=0).delta(math.inf)) >= 0.75
    assert float(absent.delta(0.0)) > float(there.delta(0.0))
