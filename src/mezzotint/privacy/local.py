"""What many reports cost together when each of them is seen.

By pure composition and by the privacy loss distribution. One pair of distributions dominates all
pairs of rows (T7), so that its losses, composed, bound every sequence of inputs, adaptively chosen
ones included. For a lopsided table no single sequence may be as bad in every respect: its claim
may lie well above the worst of them (docs/proofs/privacy-composition.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.profile import TAIL, Profile

PLD = "privacy loss distribution"
PURE = "pure composition"

PRECISION = 1e-4
"""Share of epsilon (at least 1e-4 nats) that the grid of losses may cost."""

_CUT = 1e-6
"""Share of delta that tails may cost which a composition cuts off."""


def _rough_epsilon(run: Release) -> float:
    """Roughly the epsilon of the release, as if losses were as large as can be, of either sign.

    Claims nothing.
    Source: the mean and the tail of Kairouz, Oh and Viswanath 2015.
    """
    epsilon = run.table.epsilon
    count = run.releases * run.sampling_rate
    if run.participation == "poisson":
        epsilon = replace(run, rounds=1).pure
        count = run.rounds
    if math.isinf(epsilon):
        return 1.0
    mean_loss = count * epsilon * math.tanh(epsilon / 2)
    log_tail = math.log(1 / run.delta)
    deviation = epsilon * math.sqrt(2 * count * log_tail)
    return min(count * epsilon, mean_loss + deviation)


def composed_epsilon(
    profile: Profile,
    run: Release,
    delta: float,
    tolerances: Sequence[float],
) -> float:
    """Epsilon of a whole release each report of which the profile covers.

    inf where no grid holds it.

    Arguments:
        delta: what remains of the release's own.
        tolerances: that grids may cost in all (nats), the best first; others are for what memory
            does not hold so.
    """
    tail = min(TAIL, _CUT * delta)

    def composed(single: Profile, count: int) -> float:
        for tolerance in tolerances:
            together = single.compose(count, tolerance, tail=tail)
            if together is not None:
                return together.epsilon(delta)
        return math.inf

    if run.participation == "none":
        return composed(profile, run.releases)
    expected_rounds = run.sampling_rate * run.rounds
    round_tolerance = tolerances[0] / max(1.0, expected_rounds)
    one_round = profile.compose(run.dimension, round_tolerance, tail=tail / run.rounds)
    if one_round is None:
        return math.inf
    # Of sums: absent or replaced, the outputs differ by one replaced report (or silence), and all
    # pairs are covered.
    visible = run.participation == "public"
    directions = one_round.sampled(run.chance, seen=visible, neighboring=run.neighboring)
    return max(composed(direction, run.rounds) for direction in directions)


def account_local(run: Release, *, precision: float = PRECISION) -> Claim:
    """The cost of dimension x rounds reports of one client, each of them seen.

    Arguments:
        precision: share of epsilon that the grid of losses may cost.
    """
    epsilons = {PURE: run.pure}
    if run.delta > 0:
        tolerance = precision * max(1.0, _rough_epsilon(run))
        profile = Profile.of_rows(run.table.weights)
        epsilons[PLD] = composed_epsilon(
            profile=profile, run=run, delta=run.delta, tolerances=[tolerance]
        )
    return run.claim(epsilons)
