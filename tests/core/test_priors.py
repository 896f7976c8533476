"""Moments of priors against closed forms, where mass lies close to the ends of pieces."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mezzotint.core.priors import ORDERS, as_prior

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
def test_mass_near_the_end_of_a_piece_is_seen(place: float, width: float, mass: float, mirrored: bool) -> None:
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
    for place in np.array([-65530, -32701, 0, 16403, 64800]) / 65536:  # dyadic: ends and widths are exact
        prior = as_prior(stats.uniform(place, width), lower=-1.0, upper=1.0)
        edges = np.array([place, place + width])
        pieces = np.linspace(-1, 1, 5)
        found, wanted = prior.moments(pieces), _steps(edges, np.ones(1), pieces)
        assert np.abs(found - wanted).max() <= EXACT * 2.0**ORDERS
