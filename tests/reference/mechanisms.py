"""Mechanisms for tests: one of every family, and random tables of every shape."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from mezzotint import families
from mezzotint.core.mechanism import TOTAL, IntArray, Mechanism

_BINS = [-2.0, -0.5, 0.5, 2.0]

FAMILIES: dict[str, Callable[[], Mechanism]] = {
    "rqm-4": lambda: families.rqm(lower=-1, upper=1, levels=4, extension=1.6, q=0.22),
    "rqm-16": lambda: families.rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.42),
    "rqm-shifted": lambda: families.rqm(lower=20, upper=695, levels=8, extension=400.0, q=0.3),
    "erm": lambda: families.erm(lower=-1, upper=1, bins=_BINS, gamma=0.5),
    "selection": lambda: families.selection(
        lower=-1, upper=1, bins=_BINS, left=[[1.0], [0.4, 0.6], [0.2, 0.3, 0.5]], right=None
    ),
    "biased-selection": lambda: families.biased_selection(
        lower=-1, upper=1, bins=_BINS, left=[[1.0], [0.4, 0.6], [0.2, 0.3, 0.5]], gamma=1.0, knots=9
    ),
    "pbm": lambda: families.pbm(lower=-1, upper=1, trials=7, theta=0.25, knots=17),
    "randomized-response": lambda: families.randomized_response(lower=-1, upper=1, epsilon=1.0),
    "k-randomized-response": lambda: families.k_randomized_response(lower=0, upper=5, levels=6, epsilon=2.0),
    "stochastic-rounding": lambda: families.stochastic_rounding(lower=-1, upper=1, levels=5),
    "discrete-gaussian": lambda: families.discrete_gaussian(sigma=2.0).mechanism(lower=-3, upper=3),
    "discrete-laplace": lambda: families.discrete_laplace(scale=1.0).mechanism(lower=0, upper=4),
    "skellam": lambda: families.skellam(variance=3.0).mechanism(lower=0, upper=2),
}
"""One of every family, built when asked for."""

BIASED = {"biased-selection"}
"""Families that do not claim row means equal to the knots."""


def random_weights(rng: np.random.Generator, rows: int, levels: int, spread: float, zeros: float = 0.0) -> IntArray:
    """Integer rows that sum to 2**32; log-weights vary by `spread` between rows, a share of the entries is 0."""
    base = rng.exponential(size=levels) + 1e-3
    shares = base * np.exp(spread * rng.uniform(-0.5, 0.5, size=(rows, levels)))
    shares[rng.random((rows, levels)) < zeros] = 0.0
    shares[:, 0] += shares.sum(axis=1) == 0
    weights = np.floor(shares / shares.sum(axis=1, keepdims=True) * (TOTAL - levels)).astype(np.int64)
    weights += shares > 0
    richest = weights.argmax(axis=1)
    weights[np.arange(rows), richest] += TOTAL - weights.sum(axis=1)
    return weights


def random_table(seed: int, *, rows: int, levels: int, spread: float = 2.0, zeros: float = 0.0) -> Mechanism:
    """A table with random knots, levels and weights."""
    rng = np.random.default_rng(seed)
    return Mechanism(
        knots=np.sort(rng.uniform(-3, 3, rows)),
        levels=np.cumsum(rng.uniform(0.1, 1.0, levels)) - levels / 4,
        weights=random_weights(rng, rows, levels, spread, zeros),
        name=f"random {seed}",
    )


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 5, max_levels: int = 6, zeros: bool = True) -> Mechanism:
    """Hypothesis strategy: random tables, nearly constant ones and such with zeros among them."""
    return random_table(
        draw(st.integers(0, 2**20)),
        rows=draw(st.integers(2, max_rows)),
        levels=draw(st.integers(2, max_levels)),
        spread=draw(st.sampled_from([0.0, 1e-6, 0.01, 1.0, 4.0, 20.0])),
        zeros=draw(st.sampled_from([0.0, 0.0, 0.3])) if zeros else 0.0,
    )


def is_bounded(mechanism: Mechanism) -> bool:
    """True when every used level has mass in every row."""
    return math.isfinite(mechanism.epsilon)
