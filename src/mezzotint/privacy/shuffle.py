"""What shuffled reports reveal: a claim that holds for every randomizer with this pure epsilon.

A shuffler hands over the multiset of reports; a sum is a post-processing of it. The variation-ratio bound is not used:
it claims too little in some cases.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mezzotint.core.arguments import check_delta, check_others
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import UNIT
from mezzotint.core.mechanism import TOTAL
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.local import account_local
from mezzotint.privacy.release import Release
from mezzotint.privacy.sums.blanket import Blanket, Component, dyad
from mezzotint.privacy.sums.central import blanket_noise, pair_loss

_BUDGET = 32


def clones_epsilon(epsilon: float, *, clients: int, delta: float, corrupted: int = 0) -> float:
    """Central epsilon of shuffled reports of any pure `epsilon`-DP randomizer, rounded up.

    Arguments:
        epsilon: pure epsilon of one report, finite.
        clients: reports in the shuffle.
        delta: in [0, 1).
        corrupted: clients without honest randomness.

    Guarantees: the numerical bound itself (a mixture of binomials), not its closed-form relaxation; never above
        `epsilon`.
    Source: Feldman, McMillan and Talwar 2021, Hiding Among the Clones: every other client is, with probability
        e**-epsilon, a fair coin between the two reports of the protected one (docs/proofs/sums.md, "Shuffled reports").
    """
    return _coin_epsilon(epsilon, math.exp(-epsilon), clients=clients, delta=delta, corrupted=corrupted)


def account_shuffled(run: Release) -> Claim:
    """The cost of `dimension` reports a round to whoever sees each round's reports in random order alone.

    A client's reports of a round may be shuffled as one or each by itself.

    Guarantees: rests on the pure epsilon of a client's reports in a round and on nothing else of the table; so it
        holds for every mechanism with this epsilon. Rounds add up, each with an equal part of delta.
    """
    one = replace(run, rounds=1).pure
    # What is seen follows from the reports themselves: their claim holds as well.
    local = account_local(run)
    bounds = {local.method: local.epsilon}
    if run.delta > 0 and math.isfinite(one):
        clients, share = int(run.clients or 1), run.delta / run.rounds * (1 - 4 * UNIT)
        each = clones_epsilon(one, clients=clients, delta=share, corrupted=run.corrupted)
        bounds["clones"] = run.rounds * each * (1 + 4 * UNIT)
    return run.claim(bounds, honest_clients=1 + run.others)


def _coin_epsilon(epsilon: float, chance: float, *, clients: int, delta: float, corrupted: int) -> float:
    """Central epsilon when each other client is a fair coin with probability `chance`."""
    others, target = check_others(clients, corrupted), check_delta(delta)
    if not 0 <= epsilon < math.inf:
        raise ParameterError("epsilon", epsilon, "need a finite pure epsilon >= 0")
    mass = math.floor(chance * (1 - 8 * UNIT) * TOTAL)
    if target == 0 or others == 0 or mass == 0 or epsilon == 0:
        return epsilon
    coins = Component(shape=dyad(1), shifts=np.array([[mass]]))
    noise = blanket_noise(Blanket(components=(coins,), name="clones"), others, budget=_BUDGET, tail=1e-4 * target)
    small = 1 / (1 + math.exp(epsilon))
    first, second = np.array([small, 1 - small]), np.array([1 - small, small])
    return min(epsilon, pair_loss(noise, first, second).epsilon(target, epsilon))
