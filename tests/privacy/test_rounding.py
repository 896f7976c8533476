"""Each accountant's stated error (docs/proofs/rounding.md) against 60 digits: 1,000 random cases, deltas to 1e-30.

Below the truth is never allowed. Above it, an accountant may be off by what the page states and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, UNIT, FloatArray
from mezzotint.privacy.divergences import rdp_public_sampling, rdp_to_epsilon
from mezzotint.privacy.profile import ROUNDED, Profile
from mezzotint.privacy.sums.convolution import sum_pmf
from mezzotint.privacy.sums.geometry import pure_epsilon_l2, quadratic_renyi, squared_distance
from mezzotint.privacy.sums.noise import NoiseMixture, no_noise, pair_profile, screen
from mezzotint.privacy.tradeoffs import (
    RELATIVE_ERROR,
    gaussian_epsilon,
    gaussian_shift,
    hockey_stick,
)
from strategies import random_table
from tolerances import FEW

CASES = 1000
Pair = list[tuple[mpmath.mpf, mpmath.mpf]]
"""Masses of the outputs under two distributions."""


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


QUICK = 100
"""Cases of the three that take a minute; all of them are marked slow."""


def _generators(name: str, cases: int = CASES) -> Iterator[np.random.Generator]:
    return (np.random.default_rng([len(name), case]) for case in range(cases))


def _delta(generator: np.random.Generator) -> float:
    return float(10 ** generator.uniform(-30, -0.3))


def _divergence(pair: Pair, epsilon: float | mpmath.mpf) -> mpmath.mpf:
    ratio = mpmath.exp(mpf(epsilon))
    return mpmath.fsum(p - ratio * q for p, q in pair if p > ratio * q)


def _row(generator: np.random.Generator, levels: int) -> list[int]:
    """Integer weights that sum to 2**32, of very different sizes."""
    shares = np.exp(generator.uniform(-12, 0, levels))
    row = np.floor(shares / shares.sum() * TOTAL).astype(np.int64)
    row[int(row.argmax())] += TOTAL - int(row.sum())
    return row.tolist()


def _exact(row: list[int]) -> list[mpmath.mpf]:
    return [mpf(weight) / TOTAL for weight in row]


def _judge(pairs: list[Pair], epsilon: float, delta: float, error: float) -> None:
    """Not below the truth, and above it by a relative `error` of losses and of delta at most."""
    if math.isinf(epsilon):
        worst = max(_divergence(pair, 10**4) for pair in pairs)
        assert worst > delta * (1 - mpf(error))
        return
    assert max(_divergence(pair, epsilon) for pair in pairs) <= delta
    if epsilon > error:
        lower = epsilon - error * (1 + epsilon)
        assert max(_divergence(pair, lower) for pair in pairs) > delta * (1 - mpf(error))


# Reports that are seen ---------------------------------------------------------------------------------------------


def test_one_report() -> None:
    for generator in _generators("one report"):
        levels, delta = int(generator.integers(2, 7)), _delta(generator)
        rows = [_row(generator, levels), _row(generator, levels)]
        profile = Profile.of_rows(np.array(rows))
        first, second = map(_exact, rows)
        pairs = [list(zip(first, second, strict=True)), list(zip(second, first, strict=True))]
        # 4 (2^-48 + 70 UNIT), twice: of the masses, and of losses that were raised.
        _judge(pairs, profile.epsilon(delta), delta, 64 * ROUNDED)
        epsilon = float(generator.uniform(0, 12))
        exact = max(_divergence(pair, epsilon) for pair in pairs)
        assert exact <= profile.delta(epsilon) <= exact * (1 + 64 * ROUNDED) + _lost(pairs, epsilon)
        assert exact <= float(profile.deltas(epsilon)) <= exact + _lost(pairs, epsilon)


def _lost(pairs: list[Pair], epsilon: float) -> mpmath.mpf:
    """What deltas move by where losses are off by 64 ROUNDED of their size: the mass beyond epsilon times that."""
    beyond = [
        sum(p for p, q in pair if p > q * mpmath.exp(epsilon) * (1 - mpf(2) ** -30))
        for pair in pairs
    ]
    return max(beyond) * 128 * ROUNDED * (1 + mpf(epsilon))


@pytest.mark.parametrize("relation", ["seen", "replace_one", "add_or_remove_one"])
def test_releases_that_happen_with_a_probability(relation: str) -> None:
    for generator in _generators(relation):
        rate, epsilon = float(10 ** generator.uniform(-6, -1e-3)), float(generator.uniform(0, 4))
        rows = [_row(generator, 3), _row(generator, 3)]
        first, second = map(_exact, rows)
        single = Profile.of_rows(np.array(rows))
        worlds = single.sampled(rate, seen=relation == "seen", neighboring=relation)
        ours = max(world.delta(epsilon) for world in worlds)
        share = mpf(rate)
        if relation == "seen":
            pairs = [[(share * p, share * q) for p, q in zip(first, second, strict=True)]]
        else:
            mixed = [share * p + (1 - share) * q for p, q in zip(first, second, strict=True)]
            pairs = [
                list(zip(mixed, second, strict=True)), list(zip(second, mixed, strict=True))
            ]  # fmt: skip
        swapped = [[(q, p) for p, q in pair] for pair in pairs]
        exact = max(_divergence(pair, epsilon) for pair in (*pairs, *swapped))
        assert exact <= ours
        if relation == "seen":
            both = [*pairs, *swapped]
            assert ours <= exact * (1 + 64 * ROUNDED) + _lost(both, epsilon)


@pytest.mark.parametrize("cases", [QUICK, pytest.param(CASES, marks=pytest.mark.slow)])
def test_compositions_on_their_grid(cases: int) -> None:
    """Losses s, 0 and -s, which stand on the grid: k of them are a trinomial sum."""
    for generator in _generators("compositions", cases):
        count, loss = int(generator.integers(2, 25)), float(generator.uniform(0.01, 2))
        weight = mpf(float(generator.uniform(0.01, 1)))
        high = weight / (1 + mpmath.exp(-mpf(loss)))
        masses = [weight - high, 1 - weight, high]
        single = Profile(
            losses=np.array([-loss, 0.0, loss]), masses=np.array([float(mass) for mass in masses])
        )
        sums = _powers(masses, count)
        delta = _delta(generator)
        together = single.compose(count, 1e-3, tail=1e-6 * delta)
        assert together is not None
        epsilon = min(together.epsilon(delta), count * loss)
        exact = _of_losses(sums, loss, count, epsilon)
        assert exact <= delta or epsilon == count * loss
        # Probabilities are rounded up by little between peaks; cut tails are 1e-6 of delta, at both ends.
        lower = epsilon * (1 - 1e-5) - 1e-5
        # An epsilon smaller by 1e-5 changes delta by at least a few 1e-5 of itself.
        assert lower <= 0 or _of_losses(sums, loss, count, lower) > delta * (1 - mpf(10) ** -4)


def _powers(masses: list[mpmath.mpf], count: int) -> list[mpmath.mpf]:
    """Masses of the sum of `count` draws from -1, 0, 1."""
    low, middle, high = masses
    found = [mpf(0)] * (2 * count + 1)
    for ups in range(count + 1):
        for downs in range(count + 1 - ups):
            ways = mpmath.binomial(count, ups) * mpmath.binomial(count - ups, downs)
            found[count + ups - downs] += (
                ways * high**ups * low**downs * middle ** (count - ups - downs)
            )
    return found


def _of_losses(sums: list[mpmath.mpf], loss: float, count: int, epsilon: float) -> mpmath.mpf:
    gains = (
        mass * (1 - mpmath.exp(mpf(epsilon) - (place - count) * mpf(loss)))
        for place, mass in enumerate(sums)
    )
    return mpmath.fsum(gain for gain in gains if gain > 0)


# Secure sums -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cases", [QUICK, pytest.param(CASES, marks=pytest.mark.slow)])
def test_probabilities_of_sums(cases: int) -> None:
    for generator in _generators("probabilities", cases):
        count = int(10 ** generator.uniform(0, 6))
        chance = float(generator.uniform(0.01, 0.99))
        shape = np.array([1 - chance, chance])
        tail = float(10 ** generator.uniform(-40, -6))
        for above in (False, True):
            summed = sum_pmf([shape], [[count]], tail=tail, from_above=above)
            first, pmf = int(summed.start[0]), summed.pmf[0]
            places = generator.integers(0, pmf.size, 8)
            for place in np.unique([*places, int(pmf.argmax())]).tolist():
                exact = _binomial(count, mpf(chance), first + place)
                ours = mpf(float(pmf[place]))
                assert exact <= ours * (1 + mpf(summed.error)) or (ours == 0 and not above)
                assert above or ours <= exact * (1 + mpf(summed.error))
            assert float(pmf.sum()) + float(summed.outside[0]) >= 1 - summed.error - FEW


def _binomial(count: int, chance: mpmath.mpf, drawn: int) -> mpmath.mpf:
    if not 0 <= drawn <= count:
        return mpf(0)
    # The shape's floats sum to 1 up to a unit.
    other = mpf(float(1 - float(chance)))
    return mpmath.binomial(count, drawn) * chance**drawn * other ** (count - drawn)


def test_pairs_of_rows_under_the_noise_of_coins() -> None:
    for generator in _generators("pairs"):
        count, delta = int(generator.integers(1, 200)), _delta(generator)
        summed = sum_pmf([np.array([0.5, 0.5])], [[count]], tail=1e-6 * delta)
        noise = NoiseMixture(
            probability=np.ones(1), pmf=summed.pmf, outside=float(summed.outside[0]),
            error=summed.error,
        )  # fmt: skip
        rows = [_row(generator, 2), _row(generator, 2)]
        first, second = map(_exact, rows)
        coins = [mpf(0), *(_binomial(count, mpf(0.5), k) for k in range(count + 1)), mpf(0)]
        pair = [
            (first[0] * here + first[1] * before, second[0] * here + second[1] * before)
            for before, here in pairwise(coins)
        ]
        table: FloatArray = np.array(rows) / float(TOTAL)
        epsilon = pair_profile(noise, table[0], table[1]).epsilon(delta)
        # Eight times the error of the noise, and 2e-6 of delta for its tails.
        _judge([pair], epsilon, delta, max(8 * summed.error, 1e-5))
        at = float(generator.uniform(0, 1))
        assert _divergence(pair, at) <= mpf(float(screen(noise, table, at)[0, 1]))


@pytest.mark.parametrize("cases", [QUICK, pytest.param(CASES, marks=pytest.mark.slow)])
def test_renyi_constants_of_two_rows(cases: int) -> None:
    for generator in _generators("constants", cases):
        rows = [_row(generator, 2), _row(generator, 2)]
        mechanism = Mechanism(knots=np.arange(2.0), levels=np.arange(2.0), weights=np.array(rows))
        alpha, count = float(generator.uniform(1.1, 9)), int(generator.integers(0, 6))
        noise = no_noise()
        if count:
            summed = sum_pmf([np.array([0.5, 0.5])], [[count]])
            noise = NoiseMixture(
                probability=np.ones(1), pmf=summed.pmf, outside=float(summed.outside[0]),
                error=summed.error,
            )  # fmt: skip
        kappa = quadratic_renyi(mechanism, noise, alpha)
        coins = [mpf(0), *(_binomial(count, mpf(0.5), k) for k in range(count + 1)), mpf(0)]
        low, high = sorted(generator.random(2).tolist())
        inputs = [
            [(1 - mpf(x)) * p + mpf(x) * q for p, q in zip(*map(_exact, rows), strict=True)]
            for x in (low, high)
        ]
        sums = [[row[0] * b + row[1] * a for a, b in pairwise(coins)] for row in inputs]
        order, square = mpf(alpha), (mpf(high) - mpf(low)) ** 2
        for first, second in (sums, sums[::-1]):
            powers = (p**order * q ** (1 - order) for p, q in zip(first, second, strict=True))
            divergence = mpmath.log(mpmath.fsum(powers)) / (order - 1)
            assert divergence <= mpf(kappa) * square


# Formulas ----------------------------------------------------------------------------------------------------------


def test_gaussians() -> None:
    for generator in _generators("gaussians"):
        mu, delta = float(10 ** generator.uniform(-3, 1.5)), _delta(generator)
        epsilon = gaussian_epsilon(mu, delta)
        exact = _gaussian_delta(mpf(mu), mpf(epsilon))
        assert exact <= delta
        if epsilon > 0:
            lower = mpf(epsilon) * (1 - mpf(10) ** -9)
            # Where the two terms cancel, 2e-12 of the larger one is what RELATIVE_ERROR takes.
            lost = 4 * RELATIVE_ERROR * mpmath.ncdf(mpf(mu) / 2 - lower / mu)
            assert _gaussian_delta(mpf(mu), lower) + lost > delta
        shift = gaussian_shift(epsilon, delta)
        assert _gaussian_delta(mpf(shift), mpf(epsilon)) <= delta


def test_gaussians_far_apart() -> None:
    for generator in _generators("far apart", 300):
        mu, distance = float(10 ** generator.uniform(1, 6)), float(generator.uniform(-8, 12))
        epsilon = mu * (mu / 2 + distance)
        if epsilon <= 0:
            continue
        exact = _gaussian_delta(mpf(mu), mpf(epsilon))
        (ours,) = hockey_stick(mu, np.array([epsilon])).tolist()
        assert exact <= ours
        # Where the half-line begins is off by a few roundings of the shift, and the logarithm of
        # either mass by that times its distance to the mean.
        lost = 32 * mpf(UNIT) * mpf(mu) * (abs(distance) + 1) + 4 * mpf(RELATIVE_ERROR)
        assert ours <= exact + lost * mpmath.ncdf(-mpf(distance))
        delta = _delta(generator)
        sufficient = gaussian_epsilon(mu, delta)
        assert _gaussian_delta(mpf(mu), mpf(sufficient)) <= delta
        assert _gaussian_delta(mpf(mu), mpf(sufficient) * (1 - mpf(10) ** -9)) > delta


def _gaussian_delta(mu: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    below = mpmath.erfc((epsilon / mu - mu / 2) / mpmath.sqrt(2)) / 2
    return below - mpmath.exp(epsilon) * mpmath.erfc((epsilon / mu + mu / 2) / mpmath.sqrt(2)) / 2


def test_renyi_divergences() -> None:
    for generator in _generators("divergences"):
        alpha, delta = float(1 + 10 ** generator.uniform(-3, 5)), _delta(generator)
        divergence, order = float(generator.uniform(0.5, 8)), mpf(alpha)
        exact = divergence + mpmath.log1p(-1 / order) - mpmath.log(delta * order) / (order - 1)
        ours = rdp_to_epsilon(divergence, alpha, delta)
        assert exact <= ours <= max(exact, 0) * (1 + mpf(FEW)) + FEW
        rate = float(10 ** generator.uniform(-40, 0))
        power = (order - 1) * divergence
        seen = mpmath.log1p(rate * mpmath.expm1(power)) / (order - 1)
        ours = rdp_public_sampling(divergence, alpha, rate)
        assert seen <= ours
        assert power >= 700 or ours <= seen * (1 + FEW)


def test_pure_losses_of_vectors() -> None:
    for case, generator in enumerate(_generators("vectors")):
        if case >= 100:  # a table takes as long as a thousand of the other cases
            break
        mechanism = random_table(case, rows=3, levels=3)
        coordinates = int(generator.integers(1, 20))
        span = mechanism.upper - mechanism.lower
        norm = float(generator.uniform(0.05, 1)) * span
        ours = pure_epsilon_l2(mechanism, coordinates=coordinates, clip_norm=norm)
        square = squared_distance(mechanism, coordinates=coordinates, clip_norm=norm)
        # One coordinate moves by all that the norm and the range allow, from each knot.
        reach = min(math.sqrt(square), span)
        for knot in mechanism.knots.tolist():
            other = min(knot + reach, mechanism.upper)
            for a, b in ((knot, other), (other, knot)):
                p, q = mechanism.pmf(np.array([a, b]))
                ratio = max(x / y for x, y in zip(p.tolist(), q.tolist(), strict=True) if y > 0)
                assert math.log(ratio) <= ours + FEW
