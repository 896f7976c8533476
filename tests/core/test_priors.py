"""Moments of priors against closed forms, where mass lies close to the ends of pieces."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from mezzotint import ParameterError, design
from mezzotint.core.laws import law_of
from mezzotint.core.priors import ORDERS, SamplePrior, as_prior

EXACT = 1e-12
"""Sixty halvings leave a few thousand pieces, each within 1e-14 of the range's power."""


def _steps(edges: np.ndarray, masses: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """(pieces, ORDERS) moments from each piece's left end of a density of steps, by antiderivatives in fractions."""
    result = np.zeros((pieces.size - 1, ORDERS))
    ends, cuts = [[Fraction(float(x)) for x in values] for values in (edges, pieces)]
    for j, (left, right) in enumerate(itertools.pairwise(cuts)):
        for (a, b), mass in zip(itertools.pairwise(ends), masses, strict=True):
            low, high = max(a, left) - left, min(b, right) - left
            if high > low:
                density = Fraction(float(mass)) / (b - a)
                result[j] += [float(density * (high**k - low**k) / k) for k in range(1, ORDERS + 1)]
    return result


@given(st.floats(-0.9999, 0.99), st.floats(1e-5, 1e-2), st.floats(0.01, 0.99), st.booleans())
def test_mass_near_the_end_of_a_piece_is_seen(
    place: float, width: float, mass: float, mirrored: bool
) -> None:
    edges = np.array([-1.0, place, place + min(width, (1 - place) / 2), 1.0])
    masses = np.diff(edges) * (1 - mass)
    masses[1] += mass
    if mirrored:
        edges, masses = -edges[::-1], masses[::-1]
    masses = masses / masses.sum()
    prior = as_prior(stats.rv_histogram((masses, edges), density=False), lower=-1.0, upper=1.0)
    for pieces in (np.array([-1.0, 1.0]), np.linspace(-1, 1, 4), np.array([-1.0, 0.3, 1.0])):
        found, wanted = prior.moments(pieces), _steps(edges, masses, pieces)
        assert np.abs(found - wanted).max() <= EXACT * 2.0**ORDERS


@pytest.mark.parametrize("width", [2.0**-7, 2.0**-13, 2.0**-26])
def test_narrow_uniforms_are_seen_wherever_they_lie(width: float) -> None:
    for place in (
        np.array([-65530, -32701, 0, 16403, 64800]) / 65536
    ):  # dyadic: ends and widths are exact
        prior = as_prior(stats.uniform(place, width), lower=-1.0, upper=1.0)
        edges = np.array([place, place + width])
        pieces = np.linspace(-1, 1, 5)
        found, wanted = prior.moments(pieces), _steps(edges, np.ones(1), pieces)
        assert np.abs(found - wanted).max() <= EXACT * 2.0**ORDERS


def _point_by_point(prior: SamplePrior, edges: np.ndarray) -> np.ndarray:
    """Moments of a sample as they are defined: a loop over its points."""
    result = np.zeros((edges.size - 1, ORDERS))
    for x, mass in zip(prior.points.tolist(), prior.masses.tolist(), strict=True):
        piece = max(i for i in range(edges.size - 1) if edges[i] <= x)
        result[piece] += [mass * (x - edges[piece]) ** k for k in range(ORDERS)]
    return result


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 5000])
def test_moments_of_a_sample_block_by_block_are_those_point_by_point(count: int) -> None:
    random = np.random.default_rng(count)
    spread = random.uniform(20, 700, count)
    near = 300 + 1e-9 * random.standard_normal(count)
    for values in (
        spread,
        near,
        np.round(spread),
        np.clip(1000 * random.standard_normal(count), 20, 700),
    ):
        prior = as_prior(values, lower=20.0, upper=700.0)
        assert isinstance(prior, SamplePrior)
        inner = np.unique(np.concatenate([prior.points[::100], random.uniform(21, 699, 3)]))
        for edges in (
            [20.0, 700.0],
            [20.0, *inner[(inner > 20) & (inner < 700)], 700.0],
            np.linspace(20, 700, 40),
        ):
            found, wanted = (
                prior.moments(np.asarray(edges)),
                _point_by_point(prior, np.asarray(edges)),
            )
            # Sums of terms that are all at least 0, each of a few roundings: relative errors only.
            assert (np.abs(found - wanted) <= 1e-12 * wanted).all()


def test_a_sample_counts_each_value_once_and_those_outside_at_the_ends() -> None:
    prior = as_prior([9.0, 0.25, -5.0, 0.25, np.inf], lower=0.0, upper=1.0)
    assert isinstance(prior, SamplePrior)
    assert prior.points.tolist() == [0.0, 0.25, 1.0]
    assert prior.masses.tolist() == [0.2, 0.4, 0.4]


@pytest.mark.parametrize(
    ("prior", "low", "high"),
    [
        (None, 0.0, 0.0),
        (stats.norm(1.5, 1.0), stats.norm.cdf(-2.5), stats.norm.sf(0.5)),
        (np.linspace(-1.5, 2.5, 9001), 0.125, 0.125),
        ([-9.0, -1.0, 0.3, 0.3, 2.0], 0.4, 0.2),
    ],
    ids=["uniform", "normal", "many points", "few points"],
)
def test_a_law_has_the_moments_of_its_prior_and_its_mass_at_the_ends(
    prior: Any, low: float, high: float
) -> None:
    lower, upper = -1.0, 2.0
    read_prior = as_prior(prior, lower=lower, upper=upper)
    law = law_of(read_prior, lower, upper)
    mass, first, second = read_prior.moments(np.array([lower, upper]))[0, :3]
    half_range = (upper - lower) / 2
    centred = (
        mass,
        first / half_range - mass,
        second / half_range**2 - 2 * first / half_range + mass,
    )
    # Cells, and the spread of points, are narrower than 2e-3 of half the range.
    np.testing.assert_allclose(law.totals, centred, atol=2e-3)
    near_ends = law.integrals(np.array([-1 + 1e-9, 1 - 1e-9]))[:, 0]
    # What a cell at an end holds besides the atom.
    np.testing.assert_allclose(near_ends, [low, 1 - high], atol=2e-3)


@pytest.mark.parametrize(
    "prior",
    [stats.norm(np.nan, 1), stats.norm(0, np.nan), stats.poisson(-1)],
    ids=["mean", "deviation", "rate"],
)
def test_distributions_of_impossible_parameters_are_named(prior: Any) -> None:
    with pytest.raises(ParameterError, match="check its parameters"):
        as_prior(prior, lower=-1.0, upper=1.0)


@pytest.mark.parametrize("half", [1e100, 1e-100])
def test_ranges_whose_fourth_power_is_no_float_are_named(half: float) -> None:
    with pytest.raises(ParameterError, match="rescale"):
        as_prior(None, lower=-half, upper=half)
    with pytest.raises(ParameterError, match="rescale"):
        design.calibrate("rqm", epsilon=1.0, lower=-half, upper=half)
