"""Laws of designs: the mirrored problem and the problem in other units have the mirrored and rescaled optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from laws.registry import judges
from mezzotint import design
from strategies import examples

# The solver's duality gap, relative (docs/proofs/design.md, "Bounds"), and the rounding of weights to 2^-32.
GAP = 2e-6


@judges("design.optimum.optimal", "design.limits.limit")
@settings(max_examples=examples(2))
@given(
    epsilon=st.sampled_from([0.5, 1.0, 3.0]),
    inner=st.lists(st.integers(-7, 7), min_size=1, max_size=2, unique=True),
    reach=st.tuples(st.integers(6, 20), st.integers(6, 20)),
)
def test_designs_follow_directions_and_units(
    epsilon: float, inner: list[int], reach: tuple[int, int]
) -> None:
    """Lopsided levels: each outer level reaches beyond what two levels of this epsilon need, by another amount."""
    least = 1 + 2 / math.expm1(epsilon)
    levels = np.array(
        [-least - reach[0] / 8, *sorted(value / 8 for value in inner), least + reach[1] / 8]
    )
    found = design.optimal(epsilon, levels=levels)
    back = design.optimal(epsilon, levels=-levels[::-1])
    wide = design.optimal(epsilon, lower=-7, upper=1, levels=4 * levels - 3)
    for image, unit in ((back, 1.0), (wide, 16.0)):
        assert image.loss / unit == pytest.approx(found.loss, rel=GAP)
        assert image.lower_bound / unit <= found.loss * (1 + GAP)
        assert image.mechanism.epsilon <= epsilon
    bound = design.limit(epsilon).lower_bound
    assert bound <= found.loss * (1 + GAP)  # over all levels


@judges("design.optimum.optimal")
def test_searched_levels_follow_a_mirrored_prior() -> None:
    """A skewed sample and its mirror image: neither design may beat the other's bound over all levels."""
    sample = np.array([-1.0, -0.9, -0.9, -0.5, 0.2, 0.8])
    here, there = (design.optimal(1.0, levels=3, prior=one) for one in (sample, -sample))
    assert here.lower_bound <= there.loss * (1 + GAP)
    assert there.lower_bound <= here.loss * (1 + GAP)
    # The search is local: its losses agree to what a design promises, a thousandth.
    assert here.loss == pytest.approx(there.loss, rel=1e-3)
