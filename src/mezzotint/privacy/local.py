"""What many reports cost together when each of them is seen: pure composition and the privacy loss distribution.

One pair of distributions dominates all pairs of rows (T7), so that its losses, composed, bound every sequence of inputs,
adaptively chosen ones included. For a lopsided table no single sequence may be as bad in every respect; what that
overstates is at most a few percent (docs/proofs/privacy-composition.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, UNIT
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.distribution import (
    Atoms,
    composed,
    poisson_add,
    poisson_remove,
    poisson_replace_one,
    revealed,
)
from mezzotint.privacy.tradeoffs import tradeoff

PLD = "privacy loss distribution"
PURE = "pure composition"

PRECISION = 1e-4
"""Share of epsilon (at least 1e-4 nats) that the grid of losses may cost."""


def dominating_atoms(mechanism: Mechanism) -> Atoms:
    """Losses of one report: of the pair of distributions that dominates all pairs of rows (T7), in exact integers.

    The corners of the trade-off curve are running sums of that pair: a step to the right is mass of the second
    distribution, a step down is mass of the first.
    """
    curve = tradeoff(mechanism)
    first, second = -np.diff(curve.misses), np.diff(curve.false_alarms)
    used = first > 0
    first, second = first[used], second[used]
    size = np.log1p(np.abs(first - second) / np.minimum(first, second))
    losses = np.where(first >= second, size * (1 + 16 * UNIT), -size * (1 - 16 * UNIT))
    return Atoms(
        losses=losses, masses=first / float(TOTAL), infinite=(TOTAL - int(curve.misses[0])) / TOTAL
    )


def _round_epsilon(run: Release) -> float:
    """Pure epsilon of one round."""
    single = run.dimension * run.table.epsilon * (1 + 4 * UNIT)
    if run.participation != "poisson" or single > 700:
        return single
    # Amplification of pure epsilon: e**epsilon - 1 shrinks by the rate (both neighbouring relations).
    return min(single, math.log1p(run.sampling_rate * math.expm1(single)) * (1 + 16 * UNIT))


def _pure(run: Release) -> float:
    if run.participation != "poisson":
        return run.pure
    return run.rounds * _round_epsilon(run) * (1 + 4 * UNIT)


def _rough_epsilon(run: Release) -> float:
    """Roughly the epsilon of the release, as if losses were as large as can be and of either sign; claims nothing.

    Source: the mean and the tail of Kairouz, Oh and Viswanath 2015.
    """
    single, count = run.table.epsilon, run.releases * run.sampling_rate
    if run.participation == "poisson":
        single, count = _round_epsilon(run), run.rounds
    if math.isinf(single):
        return 1.0
    spread = single * math.sqrt(2 * count * math.log(1 / run.delta))
    return min(count * single, count * single * math.tanh(single / 2) + spread)


def composed_epsilon(
    atoms: Atoms, run: Release, delta: float, tolerances: Sequence[float]
) -> float:
    """Epsilon of a whole release each report of which the atoms cover; inf where no grid holds it.

    Arguments:
        delta: what is left of the release's own.
        tolerances: that grids may cost in all (nats), the best first; others are for what memory does not hold so.
    """

    def many(single: Atoms, count: int) -> float:
        for tolerance in tolerances:
            together = composed(single, count, tolerance)
            if together is not None:
                return together.epsilon(delta)
        return math.inf

    if run.participation == "none":
        return many(atoms, run.releases)
    one_round = composed(
        atoms, run.dimension, tolerances[0] / max(1.0, run.sampling_rate * run.rounds)
    )
    if one_round is None:
        return math.inf
    # Of sums: absent or replaced, the outputs differ by one replaced report (or silence), and all pairs are covered.
    sampled: list[Callable[[Atoms, float], Atoms]] = [poisson_replace_one]
    if run.participation == "public":
        sampled = [revealed]
    elif run.neighboring == "add_or_remove_one":
        sampled = [poisson_add, poisson_remove]
    return max(many(change(one_round.atoms(), run.sampling_rate), run.rounds) for change in sampled)


def account_local(run: Release) -> Claim:
    """The cost of dimension x rounds reports of one client, each of them seen."""
    bounds = {PURE: _pure(run)}
    if run.delta > 0:
        tolerance = PRECISION * max(1.0, _rough_epsilon(run))
        bounds[PLD] = composed_epsilon(dominating_atoms(run.table), run, run.delta, [tolerance])
    return run.claim(bounds)
