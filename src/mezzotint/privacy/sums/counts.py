"""How many clients drew each component, bundled into cells that bound the count vector from below.

The counts are a multinomial vector. A hockey-stick divergence can only fall when a client adds more
noise (data processing), so replacing the count vector of a cell by its lower corner gives an upper
bound. Boxes follow every component on its own, a ladder the worst of several: boxes are closer for
few components, ladders far cheaper for many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.search import bracket
from mezzotint.core.types import BoolArray, FloatArray, IntArray

_BINOMIAL_ERROR = 1e-11
"""Added to every binomial distribution function, relative: scipy's are right to about 1e-13."""


_CORE = 3.5
"""Standard deviations around the mean that are divided finely."""

_LADDER_CORE = 4.0
"""Standard deviations of a ladder's fine steps."""

_REACH_MARGIN = 1.05
"""By which tails are cut further out than a Gaussian's."""

_STEPS = 12
"""Steps of a ladder that stands on boxes; finer ones gain nothing."""

_MANY_COMPONENTS = 4
"""From this many components on two are divided into boxes, and the others stand on ladders."""

_LOST_ROUNDING = 1 + 1e-9
"""Covers the roundings of sums of lost masses."""

_LEAST_WASTE = 1e-9
_LARGEST_WASTE_RATIO = 1e12
_LEAST_VARIANCE_SHARE = 0.05


@final
@dataclass(frozen=True, kw_only=True)
class CountBounds:
    """Cells of count vectors.

    Arguments:
        counts: (cells, L) lower corners.
        probability: (cells,) upper bounds, which may add up to slightly more than 1.
        lost: upper bound on what is left out; it counts as certain disclosure.
    """

    counts: IntArray
    probability: FloatArray
    lost: float


def _interval_mass(
    trials: IntArray,
    chance: float,
    edges: IntArray,
    last: BoolArray,
) -> FloatArray:
    """Upper bounds on P(edges[i] <= N < edges[i+1]), N binomial of trials[i].

    `last` intervals are open above.
    """
    binomial = scipy.stats.binom
    below: FloatArray = binomial.cdf(edges - 1, trials, chance)
    above: FloatArray = binomial.sf(edges - 1, trials, chance)
    below_next = np.append(below[1:], 1.0)
    above_next = np.append(above[1:], 0.0)
    below_next[last] = 1.0
    above_next[last] = 0.0
    # Whichever tail is the smaller one loses less to cancellation.
    from_below = below_next - below + _BINOMIAL_ERROR * below_next
    from_above = above - above_next + _BINOMIAL_ERROR * above
    upper_bounds = np.minimum(from_below, from_above)
    return np.clip(upper_bounds, 0.0, 1.0)


def interval_edges(
    trials: int,
    chance: float,
    spacing: float,
    reach: float,
) -> IntArray:
    """Lower ends of intervals of counts, the first 0.

    They are fine around the mean and coarse where little mass is. A spacing beyond `_CORE` standard
    deviations on either side makes one interval of everything within reach.
    """
    mean = trials * chance
    deviation = math.sqrt(mean * (1 - chance))
    bottom = mean - reach * deviation
    top = mean + reach * deviation + 10
    if spacing >= 2 * _CORE:
        inner_edges = np.array([bottom, top])
    else:
        core_start = mean - _CORE * deviation
        core_end = mean + _CORE * deviation + 1
        # Counts below the core are rare but cost most: at least two more intervals there, one
        # above.
        coarse_spacing = (reach - _CORE) / 2
        if spacing < 0.5:
            coarse_spacing = 2 * spacing
        rare_step = max(1.0, coarse_spacing * deviation)
        fine_step = max(1.0, spacing * deviation)
        fine_end = mean + 2 * deviation + 1
        rare_edges = np.arange(bottom, core_start, rare_step)
        fine_edges = np.arange(core_start, fine_end, fine_step)
        inner_edges = np.concatenate([rare_edges, fine_edges, [core_end, top]])
    nonnegative_edges = np.maximum(inner_edges, 0.0)
    edges = np.append(0.0, np.ceil(nonnegative_edges))
    possible_edges = np.unique(edges[edges <= trials])
    return possible_edges.astype(np.int64)


def interval_spacings(
    clients: int,
    masses: FloatArray,
    variances: FloatArray,
    budget: int,
) -> FloatArray:
    """Interval widths, standard deviations, such that components waste equally much variance."""
    if masses.size == 0:
        return np.zeros(0)
    deviations = np.sqrt(clients * masses * (1 - masses)) + 1e-9
    wastes = np.maximum(variances, _LEAST_WASTE) * deviations
    divided_width = _CORE + 2

    def cell_count(spacings: FloatArray) -> float:
        # Never finer than single counts, and two rare intervals.
        single_counts = 1.2 * divided_width * deviations + 1
        intervals = np.minimum(divided_width / spacings, single_counts) + 2
        interval_counts = np.where(spacings >= 2 * _CORE, 1.0, intervals)
        return float(np.prod(interval_counts))

    def is_affordable(common_waste: float) -> bool:
        return cell_count(common_waste / wastes) <= budget

    finest = 1e-3 * float(wastes.min())
    coarsest = 1e4 * float(wastes.max())
    common_waste, _ = bracket(is_affordable, coarsest, finest, geometric=True)
    return common_waste / wastes


def boxed_components(count: int) -> int:
    """How many of so many components are divided into boxes: all of few, else the two first."""
    if count < _MANY_COMPONENTS:
        return count
    return 2


def multinomial_cells(
    clients: int,
    masses: FloatArray,
    variances: FloatArray,
    *,
    budget: int = 64,
    tail: float = 1e-17,
) -> CountBounds:
    """Cells of the counts of `clients` draws, component l with probability masses[l] (the rest is
    none of them).

    Arguments:
        variances: (L,) how much each component matters.
        budget: about how many cells to use.
        tail: cells are dropped while all they hold is below this; it is added to `lost`.

    Guarantees: the true counts can be coupled to lie above the corner of the cell drawn with
        `probability`.
    """
    # All in boxes; the two that matter most in boxes, the others on a ladder; all on a ladder.
    order = np.argsort(-masses * variances)
    masses = masses[order]
    variances = variances[order]
    ways: list[CountBounds] = []
    for boxed in sorted({0, boxed_components(masses.size)}):
        cells = _bundled(clients, masses, variances, boxed, budget, tail)
        ways.append(cells)
    best = min(ways, key=lambda cells: _waste(cells, variances))
    counts = np.empty_like(best.counts)
    counts[:, order] = best.counts
    return CountBounds(counts=counts, probability=best.probability, lost=best.lost)


def _waste(cells: CountBounds, variances: FloatArray) -> float:
    """The approximate cost of the cells: epsilon squared goes with the mean of 1 / variance."""
    variance = cells.counts @ variances
    floor = _LEAST_VARIANCE_SHARE * float(variance.max()) + 1e-9
    costs = 1 / np.maximum(variance, floor)
    return float(cells.probability @ costs)


def _bundled(
    clients: int,
    masses: FloatArray,
    variances: FloatArray,
    boxed: int,
    budget: int,
    tail: float,
) -> CountBounds:
    """The first `boxed` components in boxes, the others on ladders that stand on them."""
    has_ladders = masses.size > boxed
    boxed_masses = masses[:boxed]
    box_budget = budget
    if has_ladders:
        box_budget = budget // _STEPS
    spacings = interval_spacings(max(clients, 1), boxed_masses, variances[:boxed], box_budget)
    boxes = _Boxes.undivided(clients)
    dropped = tail / (2 * masses.size)
    reach = _REACH_MARGIN * math.sqrt(2 * math.log(1 / tail))
    components = zip(boxed_masses.tolist(), spacings.tolist(), strict=True)
    for mass, spacing in components:
        boxes = boxes.divided(mass, spacing, reach, dropped)
    if not has_ladders:
        return boxes.bounds
    ladder_masses = masses[boxed:]
    available_mass = max(1.0 - boxes.used, float(ladder_masses.sum()))
    chances = np.minimum(1.0, ladder_masses / available_mass)
    steps = _STEPS
    if boxed == 0:
        steps = min(max(budget, _STEPS), 4 * _STEPS)
    return _climbed(boxes.bounds, boxes.trials, chances, variances[boxed:], steps, tail)


@final
@dataclass(frozen=True, kw_only=True)
class _Boxes:
    """Cells of the first components, one after the other.

    Lower corners are drawn one component after the other, each given the largest counts the earlier
    ones may have.

    Arguments:
        counts, probability: of the cells, as in `CountBounds`.
        trials: (cells,) draws that remain at least for later components.
        used: mass of the components so far.
        lost: as in `CountBounds`, but for its roundings.
    """

    counts: IntArray
    probability: FloatArray
    trials: IntArray
    used: float
    lost: float

    @staticmethod
    def undivided(clients: int) -> _Boxes:
        return _Boxes(
            counts=np.zeros((1, 0), dtype=np.int64),
            probability=np.ones(1),
            trials=np.array([max(clients, 0)]),
            used=0.0,
            lost=0.0,
        )

    @property
    def bounds(self) -> CountBounds:
        return CountBounds(
            counts=self.counts,
            probability=self.probability,
            lost=self.lost * _LOST_ROUNDING,
        )

    def divided(
        self,
        mass: float,
        spacing: float,
        reach: float,
        dropped: float,
    ) -> _Boxes:
        """Each cell divided by the counts of one more component of this mass.

        Arguments:
            spacing, reach: of `interval_edges`.
            dropped: mass of the least likely cells, which are dropped.
        """
        chance = min(1.0, mass / max(1.0 - self.used, mass))
        edges_by_cell: list[IntArray] = []
        for trials in self.trials.tolist():
            edges_by_cell.append(interval_edges(trials, chance, spacing, reach))
        edges = np.concatenate(edges_by_cell)
        sizes = [cell_edges.size for cell_edges in edges_by_cell]
        cells = np.arange(self.trials.size)
        owners = np.repeat(cells, sizes)
        is_last = np.append(np.diff(owners) > 0, True)
        trials = self.trials[owners]
        interval_masses = _interval_mass(trials, chance, edges, is_last)
        probability = interval_masses * self.probability[owners]
        # Given counts below an interval's end, the later components have at least the trials that
        # remain then.
        interval_ends = np.append(edges[1:] - 1, 0)
        largest_counts = np.where(is_last, trials, interval_ends)
        remaining_trials = np.maximum(trials - largest_counts, 0)
        counts = np.column_stack([self.counts[owners], edges])
        likely = _likely(probability, dropped)
        dropped_masses = probability[~likely]
        return _Boxes(
            counts=counts[likely],
            probability=probability[likely],
            trials=remaining_trials[likely],
            used=self.used + mass,
            lost=self.lost + float(dropped_masses.sum()),
        )


def _climbed(
    boxes: CountBounds,
    trials: IntArray,
    chances: FloatArray,
    variances: FloatArray,
    steps: int,
    tail: float,
) -> CountBounds:
    """A ladder of further components on every cell, given the draws that remain there."""
    counts: list[IntArray] = []
    probability: list[FloatArray] = []
    lost = boxes.lost
    cells = zip(boxes.counts, boxes.probability.tolist(), trials.tolist(), strict=True)
    for corner, weight, draws in cells:
        clients = np.full(chances.size, draws)
        ladder = monotone_corners(clients, chances, variances, steps=steps, tail=tail)
        below = np.tile(corner, (ladder.probability.size, 1))
        counts.append(np.column_stack([below, ladder.counts]))
        probability.append(ladder.probability * weight)
        lost += ladder.lost * weight
    return CountBounds(
        counts=np.concatenate(counts),
        probability=np.concatenate(probability),
        lost=lost * _LOST_ROUNDING,
    )


def monotone_corners(
    clients: IntArray,
    chances: FloatArray,
    variances: FloatArray,
    *,
    steps: int = 24,
    tail: float = 1e-17,
) -> CountBounds:
    """Cells whose corners lie on one curve.

    N_l >= mean_l - s_l(z) deviation_l for ALL l, z growing step by step.

    Arguments:
        clients: (L,) draws that component l may come from; components may share draws or not.
        chances: (L,) probability of component l in one of its draws.
        variances: (L,) how much each component matters.
        steps: about how many cells, >= 4.
        tail: mass beyond the last step; it is `lost`.

    Guarantees: the true counts can be coupled to lie above the corner of the cell drawn with
        `probability`, however the components depend on each other: that some count misses its
        corner has at most the sum of the chances of each, and divergences grow from step to step,
        so the largest such chances are the worst case.
    """
    means = clients * chances
    deviations = np.sqrt(means * (1 - chances))
    wastes = np.maximum(variances * deviations, 1e-300)
    # Least variance is lost, at a given sum of misses, where densities at the corners go with what
    # a step wastes.
    waste_ratios = np.minimum(wastes.max() / wastes, _LARGEST_WASTE_RATIO)
    offsets = 2 * np.log(waste_ratios)
    reach = _REACH_MARGIN * math.sqrt(2 * math.log(clients.size / tail))
    fine_steps = max(3, steps * 3 // 4)
    fine_curve = np.linspace(0, _LADDER_CORE, fine_steps)
    coarse_curve = np.linspace(_LADDER_CORE, reach, max(2, steps - fine_steps + 1))
    curve = np.concatenate([fine_curve, coarse_curve[1:]])
    squares = curve**2
    distances = np.sqrt(squares[:, None] + offsets)
    corners = np.ceil(means - distances * deviations)
    counts = np.maximum(corners, 0).astype(np.int64)
    below: FloatArray = scipy.stats.binom.cdf(counts - 1, clients, chances)
    component_misses = below * (1 + _BINOMIAL_ERROR)
    misses = component_misses.sum(axis=1) * (1 + _BINOMIAL_ERROR)
    missed = np.minimum.accumulate(np.minimum(misses, 1.0))
    missed_before = np.append(1.0, missed[:-1])
    probability = np.maximum(missed_before - missed, 0.0) * (1 + 1e-15)
    is_possible = probability > 0
    return CountBounds(
        counts=counts[is_possible],
        probability=probability[is_possible],
        lost=float(missed[-1]),
    )


def _likely(probability: FloatArray, tail: float) -> BoolArray:
    """All but the least likely cells, which together hold at most `tail`."""
    order = np.argsort(probability)
    sums = np.cumsum(probability[order])
    dropped = order[sums <= tail]
    likely = np.ones(probability.size, dtype=bool)
    likely[dropped] = False
    return likely
