"""The one generator of random tables: skewed rows, zero weights, worst rows inside, jumps; seeded or by Hypothesis."""

from __future__ import annotations

import os

import numpy as np
from hypothesis import strategies as st

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, IntArray

EXAMPLES = int(os.environ.get("EXAMPLES", "1"))


def examples(count: int) -> int:
    """How many examples a slow law tries: these in `make test`, EXAMPLES times as many in `make test-all`."""
    return count * EXAMPLES


SPREADS = (0.0, 1e-6, 0.01, 1.0, 4.0, 20.0)
SPACINGS = ("even", "uneven", "clustered")


def random_weights(
    rng: np.random.Generator, rows: int, levels: int, spread: float, zeros: float = 0.0
) -> IntArray:
    """Integer rows that sum to 2**32; log-weights vary by `spread` between rows, a share of the entries is 0."""
    base = rng.exponential(size=levels) + 1e-3
    shares = base * np.exp(spread * rng.uniform(-0.5, 0.5, size=(rows, levels)))
    shares[rng.random((rows, levels)) < zeros] = 0.0
    shares[:, 0] += shares.sum(axis=1) == 0
    weights = np.floor(shares / shares.sum(axis=1, keepdims=True) * (TOTAL - levels)).astype(
        np.int64
    )
    weights += shares > 0
    richest = weights.argmax(axis=1)
    weights[np.arange(rows), richest] += TOTAL - weights.sum(axis=1)
    return weights


def random_knots(
    generator: np.random.Generator, segments: int, spacing: str, jumps: float
) -> np.ndarray:
    """Sorted knots of `segments` segments; a share `jumps` of the inner ones stand twice."""
    lower = float(generator.choice([-1.0, 0.0, -3.7, 20.0, 1e6]))
    width = float(generator.choice([1.0, 2.0, 675.0, 1e-3]))
    if spacing == "even":
        knots = lower + width * np.arange(segments + 1) / segments
    elif spacing == "uneven":
        knots = np.concatenate(
            [[lower], np.sort(lower + width * generator.random(segments - 1)), [lower + width]]
        )
    else:  # clustered: most knots in a millionth of the range
        inner = lower + width * (0.3 + 1e-6 * np.sort(generator.random(segments - 1)))
        knots = np.concatenate([[lower], inner, [lower + width]])
    knots = np.unique(knots)
    twice = generator.random(knots.size) < jumps
    twice[[0, -1]] = False
    return np.repeat(knots, 1 + twice)


def random_table(
    seed: int, *, rows: int, levels: int, spread: float = 2.0, zeros: float = 0.0
) -> Mechanism:
    """A table with random knots without jumps, random levels and weights."""
    rng = np.random.default_rng(seed)
    return Mechanism(
        knots=np.sort(rng.uniform(-3, 3, rows)),
        levels=np.cumsum(rng.uniform(0.1, 1.0, levels)) - levels / 4,
        weights=random_weights(rng, rows, levels, spread, zeros),
        name=f"random {seed}",
    )


@st.composite
def mechanisms(
    draw: st.DrawFn,
    *,
    max_levels: int = 300,
    max_segments: int = 40,
    spacings: tuple[str, ...] = SPACINGS,
    zeros: bool = True,
) -> Mechanism:
    """Tables of every kind: nearly constant to extreme rows, some entries without mass, worst rows inside, jumps."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.one_of(st.integers(2, min(17, max_levels)), st.integers(2, max_levels)))
    segments = draw(st.integers(1, max_segments))
    knots = random_knots(
        generator, segments, draw(st.sampled_from(spacings)), draw(st.sampled_from([0.0, 0.5, 1.0]))
    )
    spread = draw(st.sampled_from(SPREADS))
    sparse = draw(st.sampled_from([0.0, 0.0, 0.3, 0.9])) if zeros else 0.0
    weights = random_weights(generator, knots.size, levels, spread, sparse)
    if knots.size > 2 and draw(
        st.booleans()
    ):  # the worst row lies inside: all others are nearly alike
        inside = int(generator.integers(1, knots.size - 1))
        mild = random_weights(generator, knots.size, levels, spread / 8)
        weights = np.where(np.arange(knots.size)[:, None] == inside, weights, mild)
    values = np.cumsum(generator.random(levels) + 0.01) + knots[0]
    return Mechanism(knots=knots, levels=values, weights=weights, name="random")


def tables(
    max_rows: int = 5, max_levels: int = 6, zeros: bool = True
) -> st.SearchStrategy[Mechanism]:
    """Small ones, for twins that go through everything. At most `max_rows` different rows."""
    small = mechanisms(
        max_levels=max_levels, max_segments=max_rows - 1, spacings=("even", "uneven"), zeros=zeros
    )
    return small.filter(lambda mechanism: mechanism.knots.size <= max_rows)
