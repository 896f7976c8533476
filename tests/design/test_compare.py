"""Comparisons: rivals of the literature by their variances, and mechanisms of one's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mezzotint import Mechanism, ParameterError, design, families
from mezzotint.design.comparison import BASELINES
from mezzotint.design.continuous import CONTINUOUS, variance
from tolerances import FEW, MANY, SOLVED


def piecewise_moments(epsilon: float, u: float) -> tuple[float, float]:
    """Mean and variance of the piecewise mechanism from its density, piece by piece (Wang et al. 2019, Algorithm 2)."""
    root = math.exp(epsilon / 2)
    far = (root + 1) / (root - 1)
    left = (far + 1) / 2 * u - (far - 1) / 2
    right = left + far - 1
    high = (math.exp(epsilon) - root) / (2 * root + 2)
    pieces = (
        (-far, left, high / math.exp(epsilon)),
        (left, right, high),
        (right, far, high / math.exp(epsilon)),
    )
    mean = sum(weight * (b**2 - a**2) / 2 for a, b, weight in pieces)
    second = sum(weight * (b**3 - a**3) / 3 for a, b, weight in pieces)
    return mean, second - mean**2


@pytest.mark.parametrize("epsilon", [0.7, 2.0])
@pytest.mark.parametrize("u", [0.0, 0.4, 1.0])
def test_the_piecewise_variance_is_that_of_its_density(epsilon: float, u: float) -> None:
    mean, spread = piecewise_moments(epsilon, u)
    known = variance("piecewise", epsilon)
    assert mean == pytest.approx(u, abs=MANY)
    assert known.constant + known.square * u**2 == pytest.approx(
        spread, rel=1e-8
    )  # the twin's quadrature


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_the_staircase_variance_is_the_least_over_its_shapes(epsilon: float) -> None:
    # Steps of width gamma and 1 - gamma times the sensitivity 2, falling by e**-epsilon each (Geng and Viswanath).
    b = math.exp(-epsilon)

    def spread(gamma: float) -> float:
        height = (1 - b) / (4 * (gamma + b * (1 - gamma)))
        total = 0.0
        for k in range(200):
            a, c, d = 2 * k, 2 * (k + gamma), 2 * (k + 1)
            total += 2 * height * b**k * ((c**3 - a**3) / 3 + b * (d**3 - c**3) / 3)
        return total

    least = min(spread(gamma) for gamma in np.linspace(1e-3, 1, 2001))
    # The twin's grid, where the variance is flat.
    assert variance("staircase", epsilon).constant == pytest.approx(least, rel=1e-5)


def test_hybrid_duchi_laplace_and_gaussian() -> None:
    assert variance("hybrid", 1.0).square == pytest.approx(0.0, abs=FEW)
    assert variance("hybrid", 0.5) == variance("duchi", 0.5).__class__(
        constant=1 / math.tanh(0.25) ** 2, square=-1.0
    )
    assert variance("laplace", 2.0).constant == 2.0
    one_bit = families.randomized_response(lower=2.0, upper=6.0, epsilon=1.0)
    duchi = variance("duchi", 1.0)
    assert duchi.mse(lower=2.0, upper=6.0) == pytest.approx(one_bit.mse(), rel=SOLVED)
    assert duchi.mse(lower=2.0, upper=6.0, prior=[4.0]) == pytest.approx(
        duchi.worst(lower=2.0, upper=6.0), rel=FEW
    )
    # The classical bound sigma = 2 sqrt(2 ln(1.25 / delta)) / epsilon is above the exact one.
    assert 4.0 < variance("gaussian", 1.0).constant < 8 * math.log(1.25e6)
    with pytest.raises(ParameterError):
        variance("duchi", 0.0)
    with pytest.raises(ParameterError):
        variance("cauchy", 1.0)


def test_all_rivals_are_above_the_best_table_of_any_size() -> None:
    rows = design.compare(epsilon=1.0, levels=3, families=("optimal", *BASELINES))
    assert {row.family for row in rows} == {"optimal", *BASELINES}
    for row in rows:
        assert row.mse is not None
        assert row.worst is not None
        assert row.above_limit is not None
        assert row.above_limit >= 0 or row.note == "biased"
        assert row.worst >= row.mse * (1 - MANY)
        assert (row.mechanism is None) == (row.family in CONTINUOUS)


def test_mechanisms_and_functions_of_ones_own() -> None:
    mine = families.rqm(lower=-1, upper=1, levels=4, extension=2.0, q=0.4)

    def response(strength: float) -> Mechanism:
        return families.randomized_response(lower=-1, upper=1, epsilon=min(strength, 20.0))

    def fading(q: float) -> Mechanism:  # epsilon falls with the number
        return families.randomized_response(lower=-1, upper=1, epsilon=min(1 / q, 20.0))

    rows = {
        row.family: row for row in design.compare(epsilon=1.0, families=(mine, response, fading))
    }
    assert rows[mine.name].mechanism is mine
    for name in ("response", "fading"):
        assert rows[name].epsilon == pytest.approx(1.0, rel=SOLVED)
        assert rows[name].epsilon <= 1.0
    assert design.calibrate(response, epsilon=0.5).mechanism.epsilon == pytest.approx(
        0.5, rel=SOLVED
    )
    points = design.tradeoff(epsilons=[1.0], bits=[1], families=[response, mine])
    assert [point.get("family") for point in points] == [None, "response"] + [mine.name] * (
        mine.epsilon <= 1.0
    )
    with pytest.raises(ParameterError, match="families"):
        design.compare(families=(3,))  # pyright: ignore


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_a_family_that_overflows_far_from_epsilon_is_compared(epsilon: float) -> None:
    def overflowing(number: float) -> Mechanism:
        high = math.exp(number)  # OverflowError from 710 on
        share = round(high / (1 + high) * 2**32)
        row = [share, 2**32 - share]
        return Mechanism(knots=[-1, 1], levels=[-2, 2], weights=[row[::-1], row])

    def undefined(number: float) -> Mechanism:  # math domain error beyond 1; epsilon falls
        return overflowing(epsilon * 1.5 * math.sqrt(1 - number / (2 * epsilon + 2)))

    rows = design.compare(epsilon=epsilon, bits=1, families=(overflowing, undefined))
    for row in rows:
        assert row.mechanism is not None, row.note
        assert epsilon * (1 - SOLVED) <= row.mechanism.epsilon <= epsilon


def test_a_family_that_knows_no_number_nearby_is_said_to_be_so() -> None:
    def never(number: float) -> Mechanism:
        raise ZeroDivisionError

    (row,) = design.compare(families=(never,))
    assert row.mechanism is None
    assert "no number" in row.note
    with pytest.raises(KeyError):  # a fault of the function is not hidden
        design.compare(families=(lambda number: {}[number],))


def test_a_family_is_asked_no_farther_than_the_first_crossing() -> None:
    asked: list[float] = []

    def response(number: float) -> Mechanism:
        asked.append(number)
        return families.randomized_response(epsilon=number / 3)

    table = design.calibrate(response, epsilon=1.0).mechanism
    assert table.epsilon == pytest.approx(1.0, rel=SOLVED)
    assert max(asked) <= 4.0
    assert min(asked) >= 0.25


def test_tables_of_another_range_are_not_compared() -> None:
    other = families.randomized_response(lower=0, upper=1, epsilon=1.0)
    (row,) = design.compare(families=(other,))
    assert row.mechanism is None
    assert "[0, 1]" in row.note
    for family in (
        other,
        lambda epsilon: families.randomized_response(lower=0, upper=1, epsilon=min(epsilon, 20.0)),
    ):
        with pytest.raises(ParameterError, match=r"families=.*\[0, 1\]"):
            design.tradeoff(epsilons=[1.0], bits=[1], families=[family])


@pytest.mark.parametrize(
    "options",
    [
        {"bits": 2},
        {"bits": "23"},
        {"bits": []},
        {"epsilons": 1.0},
        {"families": 3},
        {"families": "rqm"},
        {"bits": [2.5]},
    ],
    ids=["number", "text", "none", "epsilon", "family", "name", "half"],
)
def test_grids_that_are_none_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError) as caught:
        design.tradeoff(**{"epsilons": [1.0], "bits": [1], **options})
    assert caught.value.parameter.partition("[")[0] == next(iter(options))
    if "families" in options:
        with pytest.raises(ParameterError, match="families"):
            design.compare(**options)


def test_progress_counts_rows_and_ties_stand_as_they_were_asked_for() -> None:
    told: list[tuple[float, float]] = []
    rows = design.compare(
        epsilon=1.0,
        bits=1,
        families=["optimal", "rqm", "mvu", "laplace"],
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(done, 4) for done in (1, 2, 3, 4)]
    losses = [float(f"{row.mse or 0.0:.6g}") for row in rows]
    assert losses == sorted(losses)
    assert rows[0].family == "optimal"
    table = families.randomized_response(epsilon=1.0)
    twins = design.compare(epsilon=1.0, bits=1, families=["randomized_response", table])
    assert [row.family for row in twins] == ["randomized_response", table.name]
