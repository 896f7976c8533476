"""How many clients drew each component: a multinomial vector, bundled into cells that bound it from below.

A hockey-stick divergence can only fall when a client adds more noise (data processing), so replacing the count
vector of a cell by the cell's lower corner gives an upper bound. Two ways to bundle: boxes follow every component on
its own, a ladder follows the worst of several. Boxes are closer for few components, ladders far cheaper for many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.core.search import bracket

_LOOSE = 1e-11
"""Added to every binomial distribution function, relative: scipy's are right to about 1e-13."""


_CORE = 3.5
"""Standard deviations around the mean that are divided finely."""

_FINE = 4.0
"""Standard deviations of a ladder's fine steps."""

_STEPS = 12
"""Steps of a ladder that stands on boxes; finer ones gain nothing."""


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


def _interval_mass(trials: IntArray, chance: float, edges: IntArray, last: npt.NDArray[np.bool_]) -> FloatArray:
    """Upper bounds on P(edges[i] <= N < edges[i+1]), N binomial of trials[i]; `last` intervals are open above."""
    below = np.asarray(scipy.stats.binom.cdf(edges - 1, trials, chance))
    above = np.asarray(scipy.stats.binom.sf(edges - 1, trials, chance))
    below_next = np.where(last, 1.0, np.append(below[1:], 1.0))
    above_next = np.where(last, 0.0, np.append(above[1:], 0.0))
    # Whichever tail is the smaller one loses less to cancellation.
    left = below_next - below + _LOOSE * below_next
    right = above - above_next + _LOOSE * above
    return np.clip(np.minimum(left, right), 0.0, 1.0)


def interval_edges(trials: int, chance: float, spacing: float, reach: float) -> IntArray:
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


def interval_spacings(clients: int, masses: FloatArray, variances: FloatArray, budget: int) -> FloatArray:
    """Interval widths in standard deviations, such that each component wastes equally much variance."""
    if masses.size == 0:
        return np.zeros(0)
    deviation = np.sqrt(clients * masses * (1 - masses)) + 1e-9
    waste = np.maximum(variances, 1e-9) * deviation

    def cells(spacing: FloatArray) -> float:
        # About `_CORE` + 2 standard deviations are divided, never finer than single counts, and two rare intervals.
        parts = np.minimum((_CORE + 2) / spacing, 1.2 * (_CORE + 2) * deviation + 1) + 2
        return float(np.prod(np.where(spacing >= 2 * _CORE, 1.0, parts)))

    low, high = 1e-3 * float(waste.min()), 1e4 * float(waste.max())
    return bracket(lambda level: cells(level / waste) <= budget, high, low, geometric=True)[0] / waste


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

    Guarantees: the true counts can be coupled to lie above the corner of the cell drawn with `probability`.
    """
    count = masses.size
    # All in boxes; the two that matter most in boxes, the others on a ladder; all on a ladder.
    ways = {count, 0} if count < 4 else {2, 0}
    order = np.argsort(-masses * variances)
    found = [_bundled(clients, masses[order], variances[order], boxes, budget, tail) for boxes in sorted(ways)]
    best = min(found, key=lambda cells: _waste(cells, variances[order]))
    counts = np.empty_like(best.counts)
    counts[:, order] = best.counts
    return Cells(counts=counts, probability=best.probability, lost=best.lost)


def _waste(cells: Cells, variances: FloatArray) -> float:
    """What the cells cost, roughly: epsilon squared goes with the mean of 1 / variance."""
    kept = cells.counts @ variances
    return float(cells.probability @ (1 / np.maximum(kept, 0.05 * float(kept.max()) + 1e-9)))


def _bundled(clients: int, masses: FloatArray, variances: FloatArray, boxes: int, budget: int, tail: float) -> Cells:
    """The first `boxes` components in boxes, one after the other, the rest on ladders that stand on them.

    Lower corners are drawn one component after the other, each given the largest counts the earlier ones may have.
    """
    laddered = masses.size > boxes
    spacing = interval_spacings(
        max(clients, 1), masses[:boxes], variances[:boxes], budget // _STEPS if laddered else budget
    )
    reach = 1.05 * math.sqrt(2 * math.log(1 / tail))
    counts = np.zeros((1, 0), dtype=np.int64)
    probability = np.ones(1)
    taken = np.zeros(1, dtype=np.int64)
    lost = used = 0.0
    for position, mass in enumerate(masses[:boxes].tolist()):
        chance = min(1.0, mass / max(1.0 - used, mass))
        trials = np.maximum(clients - taken, 0)
        found = [interval_edges(count, chance, float(spacing[position]), reach) for count in trials.tolist()]
        edges, owner = np.concatenate(found), np.repeat(np.arange(trials.size), [part.size for part in found])
        last = np.append(owner[1:] != owner[:-1], True)
        probability = _interval_mass(trials[owner], chance, edges, last) * probability[owner]
        counts = np.column_stack([counts[owner], edges])
        # Given counts below an interval's end, the later components have at least the trials that remain then.
        taken = taken[owner] + np.where(last, trials[owner], np.append(edges[1:] - 1, 0))
        keep = _keep(probability, tail / (2 * masses.size))
        lost += float(probability[~keep].sum())
        counts, probability, taken = counts[keep], probability[keep], taken[keep]
        used += mass
    below = Cells(counts=counts, probability=probability, lost=lost * (1 + 1e-9))
    if not laddered:
        return below
    rest = np.minimum(1.0, masses[boxes:] / max(1.0 - used, float(masses[boxes:].sum())))
    steps = _STEPS if boxes else min(max(budget, _STEPS), 4 * _STEPS)
    return _climbed(below, np.maximum(clients - taken, 0), rest, variances[boxes:], steps, tail)


def _climbed(
    below: Cells, trials: IntArray, chances: FloatArray, variances: FloatArray, steps: int, tail: float
) -> Cells:
    """A ladder of further components on every cell, given the draws that are left there."""
    counts: list[IntArray] = []
    probability: list[FloatArray] = []
    lost = below.lost
    for corner, weight, left in zip(below.counts, below.probability.tolist(), trials.tolist(), strict=True):
        ladder = ladder_cells(np.full(chances.size, left), chances, variances, steps=steps, tail=tail)
        counts.append(np.column_stack([np.tile(corner, (ladder.probability.size, 1)), ladder.counts]))
        probability.append(ladder.probability * weight)
        lost += ladder.lost * weight
    return Cells(counts=np.concatenate(counts), probability=np.concatenate(probability), lost=lost * (1 + 1e-9))


def ladder_cells(
    clients: IntArray, chances: FloatArray, variances: FloatArray, *, steps: int = 24, tail: float = 1e-17
) -> Cells:
    """Cells whose corners lie on one curve: N_l >= mean_l - s_l(z) deviation_l for ALL l, z growing step by step.

    Arguments:
        clients: (L,) draws that component l may come from; components may share draws or not.
        chances: (L,) probability of component l in one of its draws.
        variances: (L,) how much each component matters.
        steps: about how many cells, >= 4.
        tail: mass beyond the last step; it is `lost`.

    Guarantees: the true counts can be coupled to lie above the corner of the cell drawn with `probability`, however
        the components depend on each other: that some count misses its corner has at most the sum of the chances of
        each, and divergences grow from step to step, so the largest such chances are the worst case.
    """
    mean = clients * chances
    deviation = np.sqrt(mean * (1 - chances))
    waste = np.maximum(variances * deviation, 1e-300)
    # Least variance is lost, at a given sum of misses, where densities at the corners go with what a step wastes.
    apart = 2 * np.log(np.minimum(waste.max() / waste, 1e12))
    reach = 1.05 * math.sqrt(2 * math.log(clients.size / tail))
    fine = max(3, steps * 3 // 4)
    line = np.concatenate([np.linspace(0, _FINE, fine), np.linspace(_FINE, reach, max(2, steps - fine + 1))[1:]])
    corners = np.maximum(np.ceil(mean - np.sqrt(line[:, None] ** 2 + apart) * deviation), 0).astype(np.int64)
    below = np.asarray(scipy.stats.binom.cdf(corners - 1, clients, chances)) * (1 + _LOOSE)
    missed = np.minimum.accumulate(np.minimum(below.sum(axis=1) * (1 + _LOOSE), 1.0))
    probability = np.maximum(np.append(1.0, missed[:-1]) - missed, 0.0) * (1 + 1e-15)
    kept = probability > 0
    return Cells(counts=corners[kept], probability=probability[kept], lost=float(missed[-1]))


def _keep(probability: FloatArray, tail: float) -> np.ndarray:
    """All but the least likely cells, which together hold at most `tail`."""
    order = np.argsort(probability)
    dropped = order[np.cumsum(probability[order]) <= tail]
    keep = np.ones(probability.size, dtype=bool)
    keep[dropped] = False
    return keep
