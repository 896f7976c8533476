"""Down to delta = 1e-12: claims against sums of 60 digits, in the local view and of secure sums."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import numpy as np
import pytest

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from mezzotint.privacy import account
from mezzotint.privacy.accounting import WORTHLESS
from mezzotint.privacy.sums.blanket import as_probabilities
from mezzotint.privacy.sums.candidates import candidate_blankets
from mezzotint.privacy.sums.cost import central_epsilon
from mezzotint.privacy.sums.noise import blanket_noise, pair_profile
from tolerances import FEW

DELTAS = [1e-6, 1e-9, 1e-12]
RARE = TOTAL // 5
ROW = np.array([TOTAL - RARE - TOTAL // 4, RARE, TOTAL // 4])
SYMMETRIC = Mechanism(knots=[-1, 1], levels=[-1, 0, 1], weights=np.stack([ROW, ROW[::-1]]))


def trinomial_delta(row: np.ndarray, count: int, epsilon: float) -> mpmath.mpf:
    """Hockey-stick divergence of `count` reports of a row from as many of its mirror image, by all counts of levels."""
    p, r, q = (mpmath.mpf(int(weight)) / TOTAL for weight in row)
    ratio, total = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(0)
    for i in range(count + 1):
        for j in range(count + 1 - i):
            ways = mpmath.binomial(count, i) * mpmath.binomial(count - i, j) * r ** (count - i - j)
            total += max(ways * (p**i * q**j - ratio * q**i * p**j), mpmath.mpf(0))
    return total


@pytest.mark.parametrize("delta", DELTAS)
def test_forty_reports_seen(delta: float) -> None:
    # Mirrored rows: the pair and its swap have one curve, so every sequence of inputs is as bad as one of them.
    claim = account(SYMMETRIC, dimension=4, rounds=10, delta=delta)
    assert trinomial_delta(ROW, 40, claim.epsilon) <= delta
    # Pure where a delta would lower epsilon by less than a thousandth.
    assert trinomial_delta(ROW, 40, claim.epsilon * (1 - WORTHLESS) - 1e-3) > delta


def binomial_delta(p: mpmath.mpf, clients: int, high: int, epsilon: float) -> mpmath.mpf:
    """Exact delta of one sum of bits: `high` of the others answer 1 with probability 1 - p, the rest with p."""
    kinds = ((clients - 1 - high, p), (high, 1 - p))
    pmf = [mpmath.mpf(1)]
    for times, chance in kinds:
        shape = [
            mpmath.binomial(times, k) * chance**k * (1 - chance) ** (times - k)
            for k in range(times + 1)
        ]
        longer = [mpmath.mpf(0)] * (len(pmf) + times)
        for i, a in enumerate(pmf):
            for j, b in enumerate(shape):
                longer[i + j] += a * b
        pmf = longer
    padded = [mpmath.mpf(0), *pmf, mpmath.mpf(0)]
    ratio, worst = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(0)
    for first, second in ((p, 1 - p), (1 - p, p)):
        gains = (
            (1 - first) * b + first * a - ratio * ((1 - second) * b + second * a)
            for a, b in pairwise(padded)
        )
        worst = max(worst, mpmath.fsum(gain for gain in gains if gain > 0))
    return worst


@pytest.mark.parametrize("delta", DELTAS)
def test_a_sum_of_bits_against_every_data_set(delta: float) -> None:
    clients = 30
    rows = np.array([[3 * TOTAL // 4, TOTAL // 4], [TOTAL // 4, 3 * TOTAL // 4]])
    bound = central_epsilon(rows, clients=clients, delta=delta).epsilon
    p = mpmath.mpf(1) / 4
    worst = max(binomial_delta(p, clients, high, bound) for high in range(clients))
    assert worst <= delta
    near = max(binomial_delta(p, clients, high, 0.85 * bound) for high in range(clients))
    assert near > delta, "more than a sixth above the exact epsilon"


def test_the_bound_itself_is_computed_to_a_thousandth() -> None:
    # E_N of the hockey-stick divergence after N fair coins, N binomial: Theorem S' for bits.
    clients = 120
    rows = np.array([[3 * TOTAL // 4, TOTAL // 4], [TOTAL // 4, 3 * TOTAL // 4]])
    coins = candidate_blankets(rows)[0]
    assert coins.masses[0] == pytest.approx(0.5, rel=FEW)
    noise = blanket_noise(coins, clients - 1, budget=10**4, tail=1e-20)
    loss = pair_profile(noise, *as_probabilities(rows))
    epsilons = np.array([0.1, 0.4, 0.7, 0.8, 0.9])
    ours = loss.deltas(epsilons)
    p, half = mpmath.mpf(1) / 4, mpmath.mpf(1) / 2
    for epsilon, value in zip(epsilons.tolist(), ours.tolist(), strict=True):
        ratio, exact = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(0)
        for drawn in range(clients):
            chance = mpmath.binomial(clients - 1, drawn) * half ** (clients - 1)
            coin = [
                mpmath.mpf(0),
                *(mpmath.binomial(drawn, k) * half**drawn for k in range(drawn + 1)),
                mpmath.mpf(0),
            ]
            gains = ((1 - p) * b + p * a - ratio * (p * b + (1 - p) * a) for a, b in pairwise(coin))
            exact += chance * mpmath.fsum(gain for gain in gains if gain > 0)
        # A curve's chords lie above it by up to a thousandth; below 1e-18 it is not followed.
        assert exact <= value <= exact * (1 + mpmath.mpf(10) ** -3) + mpmath.mpf(10) ** -18, (
            epsilon,
            float(exact),
        )
    assert ours[0] > 1e-3
    assert 1e-18 < ours[-1] < 1e-12  # so that small deltas were seen
