"""Noise that other clients add, and what pairs of rows lose under it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import final

import numpy as np

from mezzotint.core.types import UNIT, FloatArray
from mezzotint.privacy.profile import Profile
from mezzotint.privacy.sums.blanket import Blanket, row_means
from mezzotint.privacy.sums.convolution import SumPmf, sum_pmf
from mezzotint.privacy.sums.counts import CountBounds, multinomial_cells

_COMPILED = 2**15
"""Probabilities from which on compiled loops are worth their compiler's import."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseMixture:
    """A mixture of noise pmfs; the adversary sees which one was drawn.

    Arguments:
        probability: (cells,) at or above the weights.
        pmf: (cells, width) entries that are right to a relative `error`, or 0.
        outside: mass of any kind, which counts as certain disclosure.
        error: relative, of the entries.
    """

    probability: FloatArray
    pmf: FloatArray
    outside: float
    error: float

    def slack(self, terms: int) -> float:
        """Relative error of sums of so many products of entries (R3).

        And of differences of such sums at an epsilon.
        """
        return 4 * self.error + 4 * (terms + 64) * UNIT


def no_noise() -> NoiseMixture:
    """No noise at all: what is seen is the one report itself."""
    return NoiseMixture(
        probability=np.ones(1),
        pmf=np.ones((1, 1)),
        outside=0.0,
        error=0.0,
    )


def blanket_noise(
    blanket: Blanket,
    clients: int,
    *,
    budget: int = 64,
    tail: float = 1e-17,
) -> NoiseMixture:
    """The noise of `clients` honest other clients under a blanket that fits the table.

    Arguments:
        budget: about how many cells the count vector is bundled into; more are tighter and slower.
        tail: mass that may be cut off; all of it is added to delta.
    """
    cells = multinomial_cells(clients, blanket.masses, blanket.variances, budget=budget, tail=tail)
    sums = sum_pmf(blanket.shapes, cells.counts, tail=1e-3 * tail)
    return mixture(cells, sums)


def mixture(
    cells: CountBounds,
    sums: SumPmf,
    part: slice = slice(None),
) -> NoiseMixture:
    """Noise of which so many draws of each component are known.

    Arguments:
        part: the rows of `sums` that are about these cells.
    """
    outside = float(cells.probability @ sums.outside[part])
    return NoiseMixture(
        probability=cells.probability,
        pmf=sums.pmf[part],
        outside=cells.lost + outside,
        error=sums.error,
    )


def spread(pmfs: FloatArray, row: FloatArray) -> FloatArray:
    """Each pmf convolved with a row: (cells, width + span)."""
    cell_count, width = pmfs.shape
    result = np.zeros((cell_count, width + row.size - 1))
    if pmfs.size >= _COMPILED:
        from mezzotint.privacy.sums import compiled as kernels

        kernels.spread(pmfs, row, result)
        return result
    for shift in np.flatnonzero(row).tolist():
        shifted = result[:, shift : shift + width]
        shifted += row[shift] * pmfs
    return result


def pair_profile(
    noise: NoiseMixture,
    first: FloatArray,
    second: FloatArray,
) -> Profile:
    """Losses of row `first` against row `second` (probabilities on 0..span) under `noise`."""
    weights = noise.probability[:, None]
    upper = spread(noise.pmf, first) * weights
    lower = spread(noise.pmf, second) * weights
    summation_error = (first.size + 8) * UNIT
    return Profile.of_pair(
        upper.ravel(),
        lower.ravel(),
        outside=noise.outside,
        error=noise.error + summation_error,
    )


def pairs_by_gap(rows: FloatArray) -> list[tuple[int, int]]:
    """Ordered pairs of different rows, the largest difference of means first."""
    means = row_means(rows).tolist()

    def negative_gap(pair: tuple[int, int]) -> float:
        first, second = pair
        return -abs(means[first] - means[second])

    pairs = permutations(range(len(means)), 2)
    return sorted(pairs, key=negative_gap)


def widest_epsilon(noise: NoiseMixture, rows: FloatArray, delta: float) -> float:
    """The least epsilon at `delta` that serves the two rows furthest apart, whichever is first."""
    epsilon = 0.0
    for first, second in pairs_by_gap(rows)[:2]:
        profile = pair_profile(noise, rows[first], rows[second])
        epsilon = max(epsilon, profile.epsilon(delta))
    return epsilon


def screen(noise: NoiseMixture, rows: FloatArray, epsilon: float) -> FloatArray:
    """(rows, rows) upper bounds on the divergence of every ordered pair at one epsilon."""
    slack = noise.slack(noise.pmf.size)
    factor = math.exp(epsilon - slack * (1 + epsilon))
    noisy = [spread(noise.pmf, row) for row in rows]
    row_count = len(noisy)
    result = np.zeros((row_count, row_count))
    for second, below in enumerate(noisy):
        lower = below * factor
        for first, upper in enumerate(noisy):
            if first != second:
                excess = _excess(upper, lower)
                gain = float(noise.probability @ excess)
                result[first, second] = (gain + noise.outside) * (1 + slack)
    return result


def _excess(upper: FloatArray, lower: FloatArray) -> FloatArray:
    """(cells,) sums of what is above `lower`."""
    if lower.size < _COMPILED:
        return np.maximum(upper - lower, 0.0).sum(axis=1)
    from mezzotint.privacy.sums import compiled as kernels

    result = np.zeros(lower.shape[0])
    kernels.excess(upper, lower, result)
    return result
