"""Comparisons in the accountants of sums at equality, and slow twins of their small parts."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.core.types import TOTAL
from mezzotint.privacy.hulls import hull, symmetric_hull
from mezzotint.privacy.profile import Profile
from mezzotint.privacy.sums.blanket import Blanket, Component, two_point
from mezzotint.privacy.sums.convolution import sum_pmf
from mezzotint.privacy.sums.cost import (
    MAX_EPSILON,
    Envelope,
    central_epsilon,
    dominating_profile,
)
from mezzotint.privacy.sums.noise import NoiseMixture, no_noise, pair_profile, screen
from tolerances import FEW, MANY


def test_hulls_hold_no_points_on_chords() -> None:
    line = [Fraction(1), Fraction(1, 2), Fraction(0)]
    bent = [Fraction(1), Fraction(3, 5), Fraction(0)]
    ratios = [Fraction(1), Fraction(2), Fraction(3)]
    assert hull(ratios, line) == hull(ratios, bent) == [0, 2]
    assert hull(ratios, [Fraction(1), Fraction(2, 5), Fraction(0)]) == [0, 1, 2]
    # From (1, 1/2), whose mirror image it is itself, to (3, 0) the slope is the symmetric one, -1/4.
    assert symmetric_hull(ratios[::2], [Fraction(1, 2), Fraction(0)]) == ([0, 1], Fraction(-1, 4))


FIRST, SECOND = np.array([0.4, 0.3, 0.2]), np.array([0.1, 0.15, 0.19])


def test_the_divergence_of_a_pair_is_a_sum_over_its_outputs() -> None:
    grid = np.linspace(0.0, 2.0, 41)
    pair = Profile.of_pair(FIRST, SECOND, outside=1e-3, error=0.0)
    slow = [
        sum(max(p - math.exp(e) * q, 0.0) for p, q in zip(FIRST, SECOND, strict=True)) + 1e-3
        for e in grid
    ]
    assert (pair.deltas(grid) >= np.array(slow)).all()
    np.testing.assert_allclose(pair.deltas(grid), slow, rtol=MANY)
    assert pair.epsilon(1e-4) == math.inf


def test_envelopes_hold_nothing_from_the_pure_epsilon_on() -> None:
    rows = np.array([[0.8, 0.2], [0.2, 0.8]])
    envelope = Envelope.of([no_noise()], rows, math.log(4))
    assert (envelope.epsilons[-1], envelope.deltas[-1]) == (math.log(4), 0.0)
    assert pair_profile(no_noise(), *rows).epsilon(0.4) == pytest.approx(math.log(2), rel=MANY)
    assert pair_profile(no_noise(), *rows).epsilon(0.61) == 0.0
    both = envelope.smaller(Envelope(epsilons=np.array([0.0, 1.0]), deltas=np.array([0.3, 0.25])))
    at = dict(zip(both.epsilons.tolist(), both.deltas.tolist(), strict=True))
    assert at[0.0] == pytest.approx(0.3, rel=FEW)
    assert at[1.0] == pytest.approx(0.25, rel=FEW)
    assert at[math.log(4)] == 0.0


ROWS = np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25], [0.1, 0.2, 0.7]])
COIN = NoiseMixture(
    probability=np.array([0.5, 0.5]),
    pmf=np.array([[0.5, 0.5], [1.0, 0.0]]),
    outside=1e-4,
    error=0.0,
)


def _slow(i: int, j: int, epsilon: float) -> float:
    total = COIN.outside
    for chance, noise in zip(COIN.probability, COIN.pmf, strict=True):
        p, q = np.convolve(ROWS[i], noise), np.convolve(ROWS[j], noise)
        total += float(chance * np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
    return total


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_every_ordered_pair_is_screened(epsilon: float) -> None:
    ours = screen(COIN, ROWS, epsilon)
    for i, j in np.ndindex(ours.shape):
        if i != j:
            slow = _slow(i, j, epsilon)
            assert slow * (1 - FEW) <= ours[i, j] <= slow * (1 + MANY)
            assert pair_profile(COIN, ROWS[i], ROWS[j]).deltas(np.array([epsilon]))[
                0
            ] == pytest.approx(slow, rel=MANY)
        else:
            assert ours[i, j] == 0


def test_shapes_and_counts_at_the_edge() -> None:
    sure = sum_pmf([np.ones(1)], [[3]])
    assert (sure.start.tolist(), sure.outside.tolist()) == ([0], [0.0])
    assert sure.pmf[0, 0] == pytest.approx(1, rel=sure.error)
    sum_pmf([np.array([0.5, 0.5 + 2.0**-40])], [[1]])
    with pytest.raises(ParameterError, match="shapes"):
        sum_pmf([np.array([0.5, 0.5 + 2.0**-39])], [[1]])


def test_disclosure_stays_at_every_epsilon() -> None:
    impossible = np.array([[TOTAL // 2, TOTAL // 2, 0], [0, TOTAL // 2, TOTAL // 2]])
    profile = dominating_profile(impossible, clients=1)
    assert profile.delta(MAX_EPSILON) == pytest.approx(0.5, rel=MANY)
    assert profile.infinite >= 0.5 * (1 - MANY)
    bounded = np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
    assert float(dominating_profile(bounded, clients=1).delta(math.log(3) * (1 + MANY))) == 0.0


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
    curve = dominating_profile(BOUNDED, clients=300, delta=1e-6)
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
    there = dominating_profile(BOUNDED, clients=40)
    absent = dominating_profile(BOUNDED, clients=40, silent=0)
    # Seen without others, silence never shows 1: that output is certain disclosure with 3/4.
    assert float(dominating_profile(BOUNDED, clients=1, silent=0).delta(500.0)) >= 0.75
    assert float(absent.delta(0.0)) > float(there.delta(0.0))
