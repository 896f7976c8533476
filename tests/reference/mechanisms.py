"""Mechanisms for tests: one of every family. Random tables are made by `strategies`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mezzotint import families, papers
from mezzotint.core.mechanism import Mechanism

_BINS = [-2.0, -0.5, 0.5, 2.0]

FAMILIES: dict[str, Callable[[], Mechanism]] = {
    "rqm-4": lambda: families.rqm(lower=-1, upper=1, levels=4, extension=1.6, q=0.22),
    "rqm-16": lambda: families.rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.42),
    "rqm-shifted": lambda: families.rqm(lower=20, upper=695, levels=8, extension=400.0, q=0.3),
    "erm": lambda: families.erm(lower=-1, upper=1, bins=_BINS, gamma=0.5),
    "selection": lambda: families.selection(
        lower=-1, upper=1, bins=_BINS, left=[[1.0], [0.4, 0.6], [0.2, 0.3, 0.5]], right=None
    ),
    "biased-selection": lambda: papers.biased_selection(
        lower=-1, upper=1, bins=_BINS, left=[[1.0], [0.4, 0.6], [0.2, 0.3, 0.5]], gamma=1.0, knots=9
    ),
    "pbm": lambda: families.pbm(lower=-1, upper=1, trials=7, theta=0.25, knots=17),
    "randomized-response": lambda: families.randomized_response(lower=-1, upper=1, epsilon=1.0),
    "k-randomized-response": lambda: families.k_randomized_response(
        lower=0, upper=5, levels=6, epsilon=2.0
    ),
    "stochastic-rounding": lambda: families.stochastic_rounding(lower=-1, upper=1, levels=5),
    "discrete-gaussian": lambda: families.discrete_gaussian(sigma=2.0).mechanism(lower=-3, upper=3),
    "discrete-laplace": lambda: families.discrete_laplace(scale=1.0).mechanism(lower=0, upper=4),
    "skellam": lambda: families.skellam(variance=3.0).mechanism(lower=0, upper=2),
}
"""One of every family, built when asked for."""

BIASED = {"biased-selection"}
"""Families that do not claim row means equal to the knots."""


def stepped(cells: int, epsilon: float) -> Mechanism:
    """k-ary response of the cell that an input lies in: a table whose rows jump at the cells' edges."""
    response = families.k_randomized_response(lower=0, upper=1, levels=cells, epsilon=epsilon)
    edges = np.linspace(0, 1, cells + 1)
    return Mechanism(
        knots=np.repeat(edges, 2)[1:-1],
        levels=(edges[1:] + edges[:-1]) / 2,
        weights=np.repeat(response.weights, 2, axis=0),
        name=f"stepped {cells}, {epsilon:g}",
    )


def is_bounded(mechanism: Mechanism) -> bool:
    """True when every used level has mass in every row."""
    return math.isfinite(mechanism.epsilon)
