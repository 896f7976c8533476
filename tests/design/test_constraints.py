"""The test of two levels by its definition: both probabilities of every two inputs, in rationals or by sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mezzotint.design.constraints import Constraint, PairConstraint, Rows, make_constraint

BOTTOM, TOP = -1.5, 1.5


def _least(constraint: Constraint, means: np.ndarray) -> float:
    """The least epsilon of two levels at these means, pair by pair."""
    above = [(Fraction(mean) - Fraction(BOTTOM)) / 3 for mean in means.tolist()]
    losses = [0.0]
    for first_mean, first in zip(means, above, strict=True):
        for second_mean, second in zip(means, above, strict=True):
            pairs = ((first, second), (1 - first, 1 - second))
            if first_mean == second_mean:
                continue
            loss = max(math.log(p / q) for p, q in pairs)
            if hasattr(constraint, "order"):
                order = constraint.order
                moment = sum(float(q) * float(p / q) ** order for p, q in pairs)
                loss = math.log(moment) / (order - 1)
            if hasattr(constraint, "delta"):
                loss = max(
                    math.log((p - Fraction(constraint.delta)) / q)
                    for p, q in pairs
                    if p > Fraction(constraint.delta)
                )
            if constraint.by_distance:
                gap = abs(first_mean - second_mean)
                loss /= gap**2 if constraint.needs_knots else gap
            losses.append(loss)
    return max(losses)


GUARANTEES = [{}, {"delta": 0.05}, {"alpha": 4.0}, {"metric": "squared"}]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_two_levels_hold_from_the_least_epsilon_on(guarantee: dict[str, object]) -> None:
    means = np.linspace(-1.0, 1.0, 5)
    least = _least(make_constraint(epsilon=1.0, **guarantee), means)  # type: ignore[arg-type]
    for factor, expected in ((1 + 1e-9, True), (1 - 1e-9, False)):
        constraint = make_constraint(epsilon=least * factor, **guarantee)  # type: ignore[arg-type]
        assert constraint.holds(BOTTOM, TOP, means) is expected


def test_two_levels_hold_the_absolute_metric_between_knots_too() -> None:
    """The chance is linear: near the end its logarithm is steepest, beyond every difference of knots."""
    means = np.array([-1.0, 1.0])
    least_chance = 0.5 / 3
    steepest = 1 / 3 / least_chance
    assert _least(make_constraint(epsilon=1.0, metric="absolute"), means) < steepest
    for factor, expected in ((1 + 1e-9, True), (1 - 1e-9, False)):
        constraint = make_constraint(epsilon=steepest * factor, metric="absolute")
        assert constraint.holds(BOTTOM, TOP, means) is expected


@pytest.mark.parametrize("guarantee", [*GUARANTEES, {"metric": "absolute"}])
def test_levels_that_do_not_reach_beyond_the_inputs_hold_no_ratio(
    guarantee: dict[str, object],
) -> None:
    means = np.linspace(-1.0, 1.0, 5)
    constraint = make_constraint(epsilon=20.0, **guarantee)  # type: ignore[arg-type]
    with np.errstate(divide="ignore", invalid="ignore"):
        holds = constraint.holds(-1.0, 1.0, means)
    assert not holds


@pytest.mark.parametrize("guarantee", [{"delta": 0.05}, {"alpha": 4.0}, {"metric": "squared"}])
def test_what_holds_for_two_levels_has_no_excess_as_rows(guarantee: dict[str, object]) -> None:
    """Two of the statements of one inequality agree on which side of it a table lies."""
    knots = np.linspace(-1.0, 1.0, 5)
    above = (knots - BOTTOM) / (TOP - BOTTOM)
    rows = Rows(knots=knots, levels=np.array([BOTTOM, TOP]), spare_rounding=False)
    values = np.stack([1 - above, above], axis=1)
    least = _least(make_constraint(epsilon=1.0, **guarantee), knots)  # type: ignore[arg-type]
    for factor, sign in ((1 + 1e-6, -1), (1 - 1e-6, 1)):
        constraint = make_constraint(epsilon=least * factor, **guarantee)  # type: ignore[arg-type]
        assert isinstance(constraint, PairConstraint)
        excess = constraint.excess(rows, values, constraint.epsilon)
        off_diagonal = excess[~np.eye(5, dtype=bool)]
        assert np.sign(off_diagonal.max()) == sign
