"""How many clients drew each component: a multinomial vector, bundled into cells that bound it from below.

A hockey-stick divergence can only fall when a client adds more noise (data processing), so replacing the count
vector of a cell by the cell's lower corner gives an upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import FloatArray, IntArray

stats: Any = LazyModule("scipy.stats")

_LOOSE = 1e-11
"""Added to every binomial distribution function, relative: scipy's are right to about 1e-13."""


_CORE = 3.5
"""Standard deviations around the mean that are divided finely."""


@final
@dataclass(frozen=True, kw_only=True)
class Cells:
    """Lower corners of count vectors and upper bounds on their probabilities.

    Arguments:
        counts: (cells, L) integers.
        probability: (cells,) upper bounds; they may add up to slightly more than 1.
        lost: upper bound on the probability of everything left out; it counts as certain disclosure.
    """

    counts: IntArray
    probability: FloatArray
    lost: float


def _interval_mass(trials: int, chance: float, edges: IntArray) -> FloatArray:
    """Upper bounds on P(edges[i] <= N < edges[i+1]), N binomial; the last interval is open above."""
    below = np.asarray(stats.binom.cdf(edges - 1, trials, chance))
    above = np.asarray(stats.binom.sf(edges - 1, trials, chance))
    below_next = np.append(below[1:], 1.0)
    above_next = np.append(above[1:], 0.0)
    # Whichever tail is the smaller one loses less to cancellation.
    left = below_next - below + _LOOSE * below_next
    right = above - above_next + _LOOSE * above
    return np.clip(np.minimum(left, right), 0.0, 1.0)


def _edges(trials: int, chance: float, spacing: float, reach: float) -> IntArray:
    """Lower ends of intervals of counts, the first 0: fine around the mean, coarse where little mass is.

    A spacing beyond `_CORE` standard deviations makes one interval of everything within reach.
    """
    mean, deviation = trials * chance, math.sqrt(trials * chance * (1 - chance))
    top = mean + reach * deviation + 10
    if spacing >= 2 * _CORE:
        inner = np.array([mean - reach * deviation, top])
    else:
        # Counts below the core are rare but cost most: at least two more intervals there, one above.
        coarse = 2 * spacing if spacing < 0.5 else (reach - _CORE) / 2
        rare = np.arange(mean - reach * deviation, mean - _CORE * deviation, max(1.0, coarse * deviation))
        core = np.arange(mean - _CORE * deviation, mean + 2 * deviation + 1, max(1.0, spacing * deviation))
        inner = np.concatenate([rare, core, [mean + _CORE * deviation + 1, top]])
    edges = np.concatenate([[0], np.ceil(np.maximum(inner, 0.0))])
    return np.unique(edges[edges <= trials]).astype(np.int64)


def _spacings(clients: int, masses: FloatArray, variances: FloatArray, budget: int) -> FloatArray:
    """Interval widths in standard deviations, such that each component wastes equally much variance."""
    deviation = np.sqrt(clients * masses * (1 - masses)) + 1e-9
    waste = np.maximum(variances, 1e-9) * deviation

    def cells(spacing: FloatArray) -> float:
        # About `_CORE` + 2 standard deviations are divided, never finer than single counts, and two rare intervals.
        parts = np.minimum((_CORE + 2) / spacing, 1.2 * (_CORE + 2) * deviation + 1) + 2
        return float(np.prod(np.where(spacing >= 2 * _CORE, 1.0, parts)))

    low, high = 1e-3 * float(waste.min()), 1e4 * float(waste.max())
    for _ in range(60):
        level = math.sqrt(low * high)
        low, high = (level, high) if cells(level / waste) > budget else (low, level)
    return high / waste


def multinomial_cells(
    clients: int, masses: FloatArray, variances: FloatArray, *, budget: int = 64, tail: float = 1e-17
) -> Cells:
    """Cells of the counts of `clients` draws, component l with probability masses[l] (the rest is none of them).

    Arguments:
        clients: number of draws, >= 0.
        masses: (L,) probabilities, sum <= 1.
        variances: (L,) how much each component matters.
        budget: about how many cells to use.
        tail: cells are dropped while all they hold is below this; it is added to `lost`.

    Guarantees: the true counts can be coupled to lie above the corner of the cell drawn with `probability` (lower
        corners are drawn one component after the other, each given the largest counts the earlier ones may have).
    """
    reach = 1.05 * math.sqrt(2 * math.log(1 / tail))
    spacing = _spacings(max(clients, 1), masses, variances, budget)
    counts = np.zeros((1, 0), dtype=np.int64)
    probability = np.ones(1)
    taken = np.zeros(1, dtype=np.int64)
    lost, used = 0.0, 0.0
    for position, mass in enumerate(masses.tolist()):
        chance = min(1.0, mass / max(1.0 - used, mass))
        parts: list[tuple[IntArray, FloatArray, IntArray]] = []
        for corner, weight, spent in zip(counts, probability.tolist(), taken.tolist(), strict=True):
            trials = max(clients - spent, 0)
            edges = _edges(trials, chance, float(spacing[position]), reach)
            chances = _interval_mass(trials, chance, edges) * weight
            # Given counts below an interval's end, the later components have at least the trials that remain then.
            ends = np.append(edges[1:] - 1, trials) + spent
            parts.append((np.column_stack([np.tile(corner, (edges.size, 1)), edges]), chances, ends))
        counts = np.concatenate([part[0] for part in parts])
        probability = np.concatenate([part[1] for part in parts])
        taken = np.concatenate([part[2] for part in parts])
        keep = _keep(probability, tail / (2 * masses.size))
        lost += float(probability[~keep].sum())
        counts, probability, taken = counts[keep], probability[keep], taken[keep]
        used += mass
    return Cells(counts=counts, probability=probability, lost=lost * (1 + 1e-9))


def _keep(probability: FloatArray, tail: float) -> np.ndarray:
    """All but the least likely cells, which together hold at most `tail`."""
    order = np.argsort(probability)
    dropped = order[np.cumsum(probability[order]) <= tail]
    keep = np.ones(probability.size, dtype=bool)
    keep[dropped] = False
    return keep
