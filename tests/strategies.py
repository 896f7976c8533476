"""Hypothesis strategies shared by the tests: random valid tables."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mezzotint import Mechanism

TOTAL = 2**32


def random_weights(generator: np.random.Generator, rows: int, levels: int, zeros: float) -> np.ndarray:
    """(rows, levels) integer rows summing to 2**32: skewed, about a share `zeros` of them without mass."""
    shares = generator.dirichlet(np.full(levels, 0.5), rows) * (generator.random((rows, levels)) >= zeros)
    shares[np.arange(rows), generator.integers(0, levels, rows)] += 1e-3
    weights = np.floor(shares / shares.sum(axis=1, keepdims=True) * (TOTAL - levels)).astype(np.int64)
    weights[np.arange(rows), np.argmax(weights, axis=1)] += TOTAL - weights.sum(axis=1)
    return weights


def random_knots(generator: np.random.Generator, segments: int, spacing: str, jumps: float) -> np.ndarray:
    """Sorted knots of `segments` segments; a share `jumps` of the inner ones stand twice."""
    lower = float(generator.choice([-1.0, 0.0, -3.7, 20.0, 1e6]))
    width = float(generator.choice([1.0, 2.0, 675.0, 1e-3]))
    if spacing == "even":
        knots = lower + width * np.arange(segments + 1) / segments
    elif spacing == "uneven":
        knots = np.concatenate([[lower], np.sort(lower + width * generator.random(segments - 1)), [lower + width]])
    else:  # clustered: most knots in a millionth of the range
        inner = lower + width * (0.3 + 1e-6 * np.sort(generator.random(segments - 1)))
        knots = np.concatenate([[lower], inner, [lower + width]])
    knots = np.unique(knots)
    twice = generator.random(knots.size) < jumps
    twice[[0, -1]] = False
    return np.repeat(knots, 1 + twice)


@st.composite
def mechanisms(
    draw: st.DrawFn,
    *,
    max_levels: int = 300,
    max_segments: int = 40,
    spacings: tuple[str, ...] = ("even", "uneven", "clustered"),
) -> Mechanism:
    """Valid tables: even, uneven, clustered knots, with and without jumps; few and many levels, some without mass."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.one_of(st.integers(2, min(17, max_levels)), st.integers(2, max_levels)))
    segments = draw(st.integers(1, max_segments))
    knots = random_knots(generator, segments, draw(st.sampled_from(spacings)), draw(st.sampled_from([0.0, 0.5, 1.0])))
    weights = random_weights(generator, knots.size, levels, draw(st.sampled_from([0.0, 0.0, 0.3, 0.9])))
    values = np.cumsum(generator.random(levels) + 0.01) + knots[0]
    return Mechanism(knots=knots, levels=values, weights=weights, name="random")
