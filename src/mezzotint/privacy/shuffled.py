"""What shuffled reports reveal, claimed for every randomizer with this pure epsilon.

A shuffler hands over the multiset of reports; a sum is a post-processing of it. The variation-ratio
bound is not used: it claims too little in some cases.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mezzotint.core.arguments import check_delta, check_others
from mezzotint.core.errors import ParameterError
from mezzotint.core.types import TOTAL, UNIT
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.local import account_local
from mezzotint.privacy.sums.blanket import Blanket, Component, two_point
from mezzotint.privacy.sums.noise import blanket_noise, pair_profile

_CELLS = 32
"""Cells of the number of clients who act as coins."""


def clones_epsilon(
    epsilon: float,
    *,
    clients: int,
    delta: float,
    corrupted: int = 0,
) -> float:
    """Central epsilon of shuffled reports of any pure `epsilon`-DP randomizer, rounded up.

    Arguments:
        epsilon: pure epsilon of one report, finite.
        clients: reports in the shuffle.
        delta: in [0, 1).
        corrupted: clients without honest randomness.

    Guarantees: the numerical bound itself, not its closed-form relaxation; never above `epsilon`.
    Source: Feldman, McMillan and Talwar 2021, Hiding Among the Clones: every other client is, with
        probability e**-epsilon, a fair coin between the two reports of the protected one
        (docs/proofs/sums.md, "Shuffled reports").
    """
    return _coin_epsilon(
        epsilon,
        math.exp(-epsilon),
        clients=clients,
        delta=delta,
        corrupted=corrupted,
    )


def account_shuffled(run: Release) -> Claim:
    """The cost of `dimension` shuffled reports a round: only their random order is seen.

    Together or each by itself. It rests on the pure epsilon of a client's reports in a round and on
    nothing else of the table. Rounds add up, each with an equal part of delta.
    """
    # What is seen follows from the reports themselves: their claim holds as well.
    local = account_local(run)
    epsilons = {local.method: local.epsilon, **dict(local.alternatives)}
    round_epsilon = replace(run, rounds=1).pure
    if run.delta > 0 and math.isfinite(round_epsilon):
        amplified = clones_epsilon(
            round_epsilon,
            clients=int(run.clients or 1),
            delta=run.delta / run.rounds * (1 - 4 * UNIT),
            corrupted=run.corrupted,
        )
        epsilons["clones"] = run.rounds * amplified * (1 + 4 * UNIT)
    return run.claim(epsilons, honest_clients=1 + run.others)


def _coin_epsilon(
    epsilon: float,
    chance: float,
    *,
    clients: int,
    delta: float,
    corrupted: int,
) -> float:
    """Central epsilon when each other client is a fair coin with probability `chance`."""
    others = check_others(clients, corrupted)
    delta = check_delta(delta)
    if not 0 <= epsilon < math.inf:
        raise ParameterError("epsilon", epsilon, "need a finite pure epsilon >= 0")
    coin_mass = math.floor(chance * (1 - 8 * UNIT) * TOTAL)
    if 0 in (delta, others, coin_mass, epsilon):
        return epsilon
    coins = Component(shape=two_point(1), shifts=np.array([[coin_mass]]))
    blanket = Blanket(components=(coins,), name="clones")
    noise = blanket_noise(blanket, others, budget=_CELLS, tail=1e-4 * delta)
    rarer_share = 1 / (1 + math.exp(epsilon))
    first = np.array([rarer_share, 1 - rarer_share])
    second = np.array([1 - rarer_share, rarer_share])
    profile = pair_profile(noise, first, second)
    return min(epsilon, profile.epsilon(delta))
