"""The search for levels: reference values, symmetric competitors, mirror images, other priors and losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mezzotint import design
from mezzotint.core.laws import law_of
from mezzotint.core.priors import UniformPrior
from mezzotint.core.search import descend
from mezzotint.design.levels import Space, _starts

REFERENCE = {
    0.5: (16.33746, 16.21151, 16.08751, 16.06361, 16.04095, 16.03236, 16.02400),
    1.0: (4.34936, 4.04944, 3.98797, 3.92654, 3.91689, 3.90606, 3.90322),
    2.0: (1.39073, 0.85590, 0.82866, 0.81204, 0.79750, 0.79179, 0.78879),
    4.0: (0.74269, 0.23401, 0.14852, 0.12555, 0.11938, 0.11721, 0.11506),
}
"""MSE, uniform inputs on [-1, 1], 2 to 8 levels: the best of several long searches."""

SYMMETRIC = {0.5: 16.088, 1.0: 4.0429, 2.0: 0.8289, 4.0: 0.1487}
"""Four levels that mirror each other, by another method, to the digits given."""


QUICK = [(0.5, 2), (0.5, 8), (1.0, 4), (1.0, 5), (2.0, 3), (2.0, 6), (4.0, 4), (4.0, 7)]
REST = [(e, m) for e in REFERENCE for m in range(2, 9) if (e, m) not in QUICK]


@pytest.mark.parametrize(
    ("epsilon", "count"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in REST)]
)
def test_searched_levels_against_reference_values(epsilon: float, count: int) -> None:
    result = design.optimal(epsilon, levels=count)
    # What one search may be worse than several long ones.
    assert result.loss <= REFERENCE[epsilon][count - 2] * (1 + 3e-4)
    assert result.mechanism.levels.size == count
    assert result.gap is not None
    assert result.gap <= 1e-5 * result.loss  # of the table on the levels found
    assert result.mechanism.epsilon <= epsilon
    assert result.iterations <= 60  # rounds, each of a program; at most 19 were seen
    if count == 4:  # as above
        assert result.loss <= SYMMETRIC[epsilon] * (1 + 3e-4)


def test_four_levels_at_epsilon_1_are_not_symmetric() -> None:
    result = design.optimal(1.0, levels=4)
    assert result.loss == pytest.approx(
        3.98797, abs=5e-5
    )  # five printed decimals, found by a longer search
    levels = result.mechanism.levels
    assert np.abs(levels + levels[::-1]).max() > 0.1


@pytest.mark.parametrize(
    ("epsilon", "count", "value"), [(1.0, 3, 4.2062), (1.0, 4, 4.1435), (2.0, 4, 0.91166)]
)
def test_minimax_levels_beat_those_of_the_average(epsilon: float, count: int, value: float) -> None:
    result = design.optimal(epsilon, levels=count, loss="minimax")
    assert result.loss <= value * (1 + 3e-4)  # as above
    average = design.optimal(epsilon, levels=count).mechanism.levels
    assert result.loss < design.optimal(epsilon, levels=average, loss="minimax").loss


SKEWED = np.random.default_rng(1).uniform(-1, 1, 19)


@pytest.mark.parametrize(
    "prior", [stats.norm(0.4, 0.3), np.linspace(-0.9, 0.2, 30), SKEWED, SKEWED - SKEWED.mean()]
)
def test_mirrored_problems_have_the_same_value(prior: Any) -> None:
    mirrored = stats.norm(-0.4, 0.3) if not isinstance(prior, np.ndarray) else -prior
    for loss, options in (("mse", {}), ("mae", {"max_level": 3.0})):
        one = design.optimal(1.0, levels=4, prior=prior, loss=loss, **options)
        other = design.optimal(1.0, levels=4, prior=mirrored, loss=loss, **options)
        # Integers differ by a unit here and there; a float of a distribution function is no mirror image to 1e-16.
        assert one.loss == pytest.approx(other.loss, rel=1e-7)


def test_an_asymmetric_prior_is_used() -> None:
    prior = stats.norm(0.6, 0.1)
    found = design.optimal(1.0, levels=4, prior=prior)
    uniform = design.optimal(
        1.0, levels=design.optimal(1.0, levels=4).mechanism.levels, prior=prior
    )
    assert found.loss < 0.95 * uniform.loss


@pytest.mark.parametrize("loss", ["mse", "mae", "minimax"])
def test_derivatives_of_the_search_against_differences(loss: str) -> None:
    space = Space(
        count=5,
        law=law_of(UniformPrior(), -1, 1),
        ratio=math.e,
        loss=loss,
        largest=30.0,
        sharpness=100.0,
    )
    rng = np.random.default_rng(1)
    points = _starts(5, math.e, rng)[:8] + 0.1 * rng.normal(size=(8, 10))
    _, slopes = space(points)
    step = 1e-6
    for k, unit in enumerate(np.eye(10)):
        plain = (space(points + step * unit)[0] - space(points - step * unit)[0]) / (2 * step)
        # Peaks move from piece to piece: a kink within a step of one of the points is possible, at a few of them.
        # Differences over 1e-6 of values near 1 err by 1e-10, and by the second derivative times 1e-12.
        assert np.median(np.abs(slopes[:, k] - plain)) <= 1e-5


def test_many_searches_at_once_find_the_minimum_of_a_quadratic() -> None:
    scales = np.array([1.0, 10.0, 100.0])

    def objective(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (scales * (x - 3) ** 2).sum(axis=1), 2 * scales * (x - 3)

    values, points = descend(objective, np.random.default_rng(0).normal(size=(6, 3)), 60)
    np.testing.assert_allclose(
        points, 3.0, atol=1e-4
    )  # a minimum's place is known to the root of its value
    assert values.max() < 1e-6  # the descent's own stop


def test_a_descent_is_the_same_alone_and_beside_others() -> None:
    """Alone, one length after another is tried; side by side, several at once."""

    def objective(
        x: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # a curved valley, each coordinate's and the next's
        across, along = x[:, 1] - x[:, 0] ** 2, 1 - x[:, 0]
        slopes = np.stack([-400 * x[:, 0] * across - 2 * along, 200 * across], axis=1)
        return 100 * across**2 + along**2, slopes

    starts = np.random.default_rng(1).normal(size=(9, 2))
    together = descend(objective, starts, 25)
    for k, start in enumerate(starts):
        for found, alone in zip(together, descend(objective, start[None], 25), strict=True):
            # Sums over a batch may be taken in another order: 25 steps carry the last digit on.
            np.testing.assert_allclose(found[k], alone[0], rtol=1e-6, atol=1e-9)
