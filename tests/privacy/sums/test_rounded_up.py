"""What bounds on sums allow for roundings, against exact twins: random inputs, and ones whose roundings all add up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate, pairwise

import mpmath
import numpy as np
import pytest

from mezzotint import Mechanism
from mezzotint.core.types import TOTAL, FloatArray
from mezzotint.privacy.distribution import HockeyStick
from mezzotint.privacy.sums import cover, geometry
from mezzotint.privacy.sums.blanket import (
    NoiseMixture,
    PairLoss,
    no_noise,
    pair_loss,
    positive_loss_atoms,
    screen,
)
from mezzotint.privacy.sums.geometry import (
    _mean_quotients,
    loss_profile,
    pair_quotients,
    pure_epsilon_l2,
    quadratic_renyi,
    squared_distance,
)
from strategies import random_table
from tolerances import FEW, UNIT

LOST, GAINED = 0.999 * UNIT, 1.001 * UNIT
"""Added to 1 or a little more, one after the other: every sum rounds down by nearly UNIT, or up by nearly UNIT."""


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(50):
        yield


def quotient(u: float, ends: tuple[float, float], alpha: float) -> float:
    """h(t u) / t^2 at its largest between two distances."""
    cell = np.array([u])
    return float(_mean_quotients(np.ones(1), cell, cell, np.array(ends), alpha)[0])


def _row(first: float, rest: float, size: int) -> FloatArray:
    return np.append(first, np.full(size - 1, first * rest))


def _flat(width: int) -> NoiseMixture:
    """Not a pmf, but under it a sum of a row's entries stands at every place: what is added is easily seen."""
    ones = np.ones((1, width))
    return NoiseMixture(probability=np.ones(1), low=ones, high=ones, outside=0.0)


def _summed(row: FloatArray, width: int) -> list[Fraction]:
    """What the flat noise of this width makes of a row, exactly."""
    before = [Fraction(0), *accumulate(map(Fraction, row.tolist()))]
    return [
        before[min(k + 1, row.size)] - before[max(k + 1 - width, 0)]
        for k in range(row.size + width - 1)
    ]


def _convolved(noise: Iterable[float], row: FloatArray) -> list[Fraction]:
    pmf, exact = [Fraction(x) for x in noise], [Fraction(x) for x in row.tolist()]
    found = [Fraction(0)] * (len(pmf) + len(exact) - 1)
    for i, x in enumerate(exact):
        for j, y in enumerate(pmf if x else []):
            found[i + j] += x * y
    return found


# Pairs of rows under a noise ------------------------------------------------------------------------------------------


def test_masses_of_what_is_likelier_are_moved_against_us() -> None:
    generator = np.random.default_rng(1)
    for _ in range(10):
        pmfs = generator.random((2, 5))
        noise = NoiseMixture(probability=generator.random(2), low=pmfs, high=pmfs, outside=0.0)
        first = generator.random(4)
        second = first * generator.uniform(0.2, 0.5, 4)
        upper, lower = positive_loss_atoms(noise, first, second)
        assert geometry.spread(pmfs, first).shape == (2, 8)
        weights = [Fraction(chance) for chance in noise.probability.tolist()]
        for ours, row, sign in ((upper, first, 1), (lower, second, -1)):
            exact = [
                w * x
                for w, pmf in zip(weights, pmfs.tolist(), strict=True)
                for x in _convolved(pmf, row)
            ]
            for mass, true in zip(ours.tolist(), exact, strict=True):
                assert 0 <= sign * (Fraction(mass) - true) <= true * Fraction(FEW)


def test_losses_of_what_is_seen_are_rounded_up() -> None:
    generator = np.random.default_rng(2)
    for weight in np.exp2(generator.uniform(0, 31, 200)).astype(np.int64).tolist():
        first, second = (
            np.array([TOTAL - weight, weight]) / TOTAL,
            np.array([weight, TOTAL - weight]) / TOTAL,
        )
        pair = pair_loss(no_noise(), first, second)
        exact = mpmath.log(mpmath.mpf(max(first)) / mpmath.mpf(min(first)))
        (loss,) = pair.losses.tolist()
        assert exact <= loss <= exact * (1 + FEW) + FEW


def test_divergences_of_sums_that_round_against_us() -> None:
    count = 1000
    first, second = _row(1.0, LOST, count), _row(0.5, GAINED, count)
    pair = PairLoss(losses=np.full(count, math.log(2)), first=first, second=second, outside=0.0)
    exact = sum(map(Fraction, first.tolist())) - sum(map(Fraction, second.tolist()))
    (ours,) = pair.deltas(np.zeros(1)).tolist()
    assert exact <= Fraction(ours) <= exact * Fraction(1 + FEW)


def test_screened_divergences_of_sums_that_round_against_us() -> None:
    size = 50
    rows = np.stack([_row(1 + 2.0**-44, LOST, size), _row(1.0, GAINED, size)])
    noise = _flat(3 * size)
    both = [_summed(row, 3 * size) for row in rows]
    exact = sum(max(p - q, Fraction(0)) for p, q in zip(*both, strict=True))
    assert exact <= Fraction(float(screen(noise, rows, 0.0)[0, 1])) <= 2 * exact


def test_screened_divergences_of_very_many_cells() -> None:
    # As many chances as a processor adds side by side are 1, so that all that follows is lost in each of its sums.
    cells = 8000
    chances = np.append(np.ones(64), np.full(cells - 64, LOST))
    noise = NoiseMixture(
        probability=chances, low=np.ones((cells, 1)), high=np.ones((cells, 1)), outside=0.0
    )
    ours = screen(noise, np.eye(2), 0.0)[0, 1]
    assert sum(map(Fraction, chances.tolist())) <= Fraction(float(ours))


def test_epsilons_of_single_outputs_are_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    for _ in range(40):
        limit, upper = generator.uniform(0.5, 4, 2).tolist()
        lower = upper * math.exp(-limit / 2 - 1e-4)
        # The search asks at limit / 2 first, where the divergence is a hair above delta.
        delta = math.nextafter(float(upper - lower * mpmath.exp(mpmath.mpf(limit) / 2)), 0)
        monkeypatch.setattr(
            cover,
            "positive_loss_atoms",
            lambda *_, u=upper, v=lower: (np.array([u]), np.array([v])),
        )
        epsilon = cover._pair_epsilon(no_noise(), np.ones(1), np.ones(1), delta, limit)
        assert upper - lower * mpmath.exp(mpmath.mpf(epsilon)) <= delta
        assert epsilon <= limit / 2 + 1e-3  # the search stops at 2e-4 of epsilons of up to 2


def test_epsilons_of_sums_that_round_against_us(monkeypatch: pytest.MonkeyPatch) -> None:
    upper = _row(1.0, LOST, 7)
    monkeypatch.setattr(cover, "positive_loss_atoms", lambda *_: (upper, np.zeros(7)))
    # The sum, a hair above delta, is 1 in floats. No epsilon serves outputs that only one row has.
    assert cover._pair_epsilon(no_noise(), upper, upper, 1 + 4 * UNIT, math.inf) == math.inf
    assert cover._pair_epsilon(no_noise(), upper, upper, 1 + 100 * UNIT, math.inf) == 0.0


@pytest.mark.parametrize("seed", range(8))
def test_losses_of_a_curve_have_no_smaller_curve(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Far apart: what one mass lacks, no other one makes good.
    epsilons = np.append(0.0, 40 * np.arange(1.0, 6.0) + generator.random(5))
    deltas = np.append(0.4, 0.4 * np.exp(-np.cumsum(generator.uniform(1.0, 3.0, 5))))
    curve = HockeyStick(epsilons=epsilons, deltas=deltas)
    atoms = curve.atoms()
    pairs = [
        (mpmath.mpf(m), mpmath.mpf(loss))
        for m, loss in zip(atoms.masses, atoms.losses, strict=True)
    ]
    for epsilon, delta in zip(curve.epsilons.tolist(), curve.deltas.tolist(), strict=True):
        ratio = mpmath.mpf(math.exp(epsilon))  # the exact ratio that the curve's points stand for
        own = atoms.infinite + mpmath.fsum(
            max(m * (1 - ratio * mpmath.exp(-loss)), 0) for m, loss in pairs
        )
        assert delta <= own <= delta * (1 + FEW)
    # The slope jumps by mass over ratio.
    ratios = [Fraction(math.exp(epsilon)) for epsilon in curve.epsilons.tolist()]
    points = list(zip(ratios, map(Fraction, curve.deltas.tolist()), strict=True))
    slopes = [*((d - b) / (c - a) for (a, b), (c, d) in pairwise(points)), Fraction(0)]
    jumps = zip(
        ratios[1:], pairwise(slopes), atoms.masses[-len(ratios) + 1 :].tolist(), strict=True
    )
    for ratio, (before, after), mass in jumps:
        assert (
            ratio * (after - before)
            <= Fraction(mass)
            <= ratio * (after - before) * Fraction(1 + FEW)
        )
    close = HockeyStick(
        epsilons=np.sort(generator.random(40)) * np.arange(40), deltas=0.4 * 0.9 ** np.arange(40.0)
    )
    tight = close.atoms()
    for loss in tight.losses[tight.losses > 1e-9].tolist():
        nearest = float(close.epsilons[np.abs(close.epsilons - loss).argmin()])
        exact = mpmath.log(mpmath.mpf(math.exp(nearest)))
        assert exact <= loss <= exact * (1 + FEW) + FEW


# Vectors under an L2 bound --------------------------------------------------------------------------------------------


def test_slopes_over_rows_of_sums_that_round_against_us() -> None:
    size = 100
    noise, gained, lost = _flat(3 * size), _row(1.0, GAINED, size), _row(1.0, LOST, size)
    below, steps = _summed(gained, 3 * size), _summed(lost, 3 * size)
    smear = geometry._Smear(noise)
    _, _, highest = geometry._noisy(smear, gained, lost)
    _, lowest, _ = geometry._noisy(smear, gained, -lost)
    for p, g, high, low in zip(below, steps, highest[0].tolist(), lowest[0].tolist(), strict=True):
        assert Fraction(low) <= -g / p
        assert g / p <= Fraction(high) <= g / p * Fraction(1 + FEW)
    weights, _, _ = geometry._noisy(smear, lost, gained)
    assert all(Fraction(w) >= p for w, p in zip(weights[0].tolist(), steps, strict=True))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_slopes_of_both_signs_round_against_us_on_both_sides(sign: float) -> None:
    # Rising and falling entries in turn: what rises loses all that it gains, what falls gains.
    size = 60
    noise, row = _flat(3 * size), _row(1.0, GAINED, size)
    slope = np.zeros(size)
    slope[::2], slope[1::2] = _row(1.5, LOST, size // 2), -_row(1.0, GAINED, size // 2)
    _, lowest, highest = geometry._noisy(geometry._Smear(noise), row, sign * slope)
    exact = zip(_summed(slope, 3 * size), _summed(row, 3 * size), strict=True)
    for place, (g, p) in enumerate(exact):
        if g > 0:
            ours = highest if sign > 0 else -lowest
            assert Fraction(float(ours[0, place])) >= g / p


def test_caps_and_limits_of_ratios_are_rounded_up() -> None:
    generator = np.random.default_rng(4)
    for _ in range(60):
        row, slope = generator.random(3), generator.uniform(-1, 1, 3)
        exact = max(
            abs(Fraction(g)) / Fraction(p)
            for g, p in zip(slope.tolist(), row.tolist(), strict=True)
        )
        assert exact <= Fraction(geometry._ratio_cap(row, slope)) <= exact * Fraction(1 + FEW)
        u, alpha = float(generator.uniform(-2, 2)), float(generator.uniform(1.01, 30))
        curvature = Fraction(alpha) * (Fraction(alpha) - 1) / 2
        limit = quotient(u, (0.0, 0.0), alpha)
        exact = curvature * Fraction(u) ** 2
        assert exact <= Fraction(limit) <= exact * Fraction(1 + FEW)
        # At order 2 the excess is the square itself.
        tiny = u * 1e-4
        square = quotient(tiny, (1.0, 1.0), 2.0)
        assert Fraction(tiny) ** 2 <= Fraction(square) <= Fraction(tiny) ** 2 * Fraction(1 + FEW)
        low = 1 + alpha / 40  # below 2: there are humps
        hump = quotient(-1.0 - abs(u), (1e-3, 10.0), low)
        exact = (Fraction(-1.0 - abs(u)) * Fraction(low) / 2) ** 2
        assert exact <= Fraction(hump) <= exact * Fraction(1 + FEW)


def test_excess_at_thousands_of_points() -> None:
    generator = np.random.default_rng(5)
    for alpha in (1.01, 1.5, 2.0, 2.5, 7.0, 64.0):
        ratios = np.concatenate(
            [generator.uniform(-1.5, 4, 100), 10 ** generator.uniform(-3, 0, 100)]
        )
        for u in ratios.tolist():
            ours = quotient(u, (1.0, 1.0), alpha)
            exact = mpmath.mpf(max(1 + mpmath.mpf(u), 0)) ** alpha - 1 - mpmath.mpf(alpha) * u
            assert exact <= ours <= exact * (1 + 1e-2) + FEW * (1 + abs(u)) ** alpha


def test_quotients_of_very_many_cells() -> None:
    cells = 16000
    chances = np.append(np.ones(64), np.full(cells - 64, LOST))
    noise = NoiseMixture(
        probability=chances, low=np.ones((cells, 1)), high=np.ones((cells, 1)), outside=0.0
    )
    (ours,) = pair_quotients(
        noise, np.ones(1), np.array([0.5]), np.array([0.0, 1e-5]), 2.0
    ).tolist()
    exact = sum(map(Fraction, chances.tolist())) / 4
    assert exact <= Fraction(ours) <= exact * Fraction(1 + 1e-11)


def _tables(seeds: Iterable[int]) -> Iterable[tuple[np.random.Generator, Mechanism]]:
    for seed in seeds:
        yield np.random.default_rng(seed), random_table(seed, rows=4, levels=3)


def test_distances_are_rounded_up() -> None:
    for generator, mechanism in _tables(range(60)):
        knots = [Fraction(knot) for knot in mechanism.knots.tolist()]
        width, span = max(b - a for a, b in pairwise(knots)), knots[-1] - knots[0]
        for coordinates in generator.integers(1, 1000, 3).tolist():
            norm = float(generator.uniform(0.01, 3) * float(span))
            root = (
                mpmath.sqrt(coordinates) * (mpmath.mpf(width.numerator) / width.denominator) / 2**32
            )
            least = (2 * (norm * (1 + 128 * mpmath.mpf(UNIT)) + root)) ** 2
            box = coordinates * (mpmath.mpf(span.numerator) / span.denominator) ** 2
            exact = min(least, box)
            assert (
                exact
                <= squared_distance(mechanism, coordinates=coordinates, l2_norm=norm)
                <= exact * (1 + FEW)
            )


def test_constants_are_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = Mechanism(
        knots=np.arange(2.0),
        levels=np.arange(2.0),
        weights=np.array([[3 * 2**30, 2**30], [2**30, 3 * 2**30]]),
    )
    generator = np.random.default_rng(6)
    for _ in range(40):
        place, alpha = int(generator.integers(0, 24)), float(generator.uniform(1.01, 20))
        quotient, start = (
            float(generator.uniform(0.1, 10)),
            float(np.append(0.0, np.geomspace(1 / 32, 1, 24))[place]),
        )

        def quotients(*given, quotient: float = quotient, start: float = start, **_):
            ends = given[3]
            return np.where((ends[:-1] <= start) & (start < ends[1:]), quotient, 0.0)

        monkeypatch.setattr(geometry, "pair_quotients", quotients)
        monkeypatch.setattr(
            geometry._Pairs, "bounds", lambda self, _: np.where(self.counts, math.inf, 0.0)
        )
        ours = quadratic_renyi(mechanism, no_noise(), alpha)
        left = mpmath.mpf(start)
        exact = (mpmath.log1p(left**2 * quotient) / left**2 if left else quotient) / (
            mpmath.mpf(alpha) - 1
        )
        assert exact <= ours <= exact * (1 + FEW)


def _exact_ratio(mechanism: Mechanism) -> Fraction:
    rows = mechanism.weights.tolist()
    return max(
        Fraction(p, q) for row in rows for other in rows for p, q in zip(row, other, strict=True)
    )


def test_losses_between_knots_are_rounded_up() -> None:
    for _, mechanism in _tables(range(60)):
        ratio = _exact_ratio(mechanism)
        exact = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        ours = geometry._loss_within(mechanism, 2 * (mechanism.upper - mechanism.lower))
        assert exact <= ours <= exact + FEW


@pytest.mark.parametrize("mirrored", [False, True])
def test_losses_at_a_distance_between_places_in_steep_segments(mirrored: bool) -> None:
    """Two segments of 128 ulps, so far apart that the last knot is the distance from the middle of the first."""
    generator = np.random.default_rng(7)
    weights = np.array([[0.03, 0.97], [0.03, 0.97], [0.04, 0.96], [0.04, 0.96], [0.5, 0.5]])
    weights = np.round(weights * TOTAL).astype(np.int64)
    for _ in range(40):
        end, distance = float(generator.uniform(1e6, 2e6)), float(generator.uniform(1e5, 5e5))
        middle, half = end - distance, 64 * float(np.spacing(end))
        knots = np.array([0.0, middle - half, middle + half, end - 2 * half, end])
        mechanism = Mechanism(
            knots=-knots[::-1] if mirrored else knots,
            levels=np.arange(2.0),
            weights=weights[::-1] if mirrored else weights,
        )
        share = (Fraction(end) - Fraction(distance) - Fraction(knots[1])) / (
            Fraction(knots[2]) - Fraction(knots[1])
        )
        low, high, last = (Fraction(int(weight), TOTAL) for weight in weights[[0, 2, 4], 0])
        exact = last / (low + share * (high - low))
        ours = geometry._loss_within(mechanism, distance)
        assert mpmath.log(mpmath.mpf(exact.numerator) / exact.denominator) <= ours
        # A dozen ulps further away at most: a tenth of the segment.
        assert ours <= math.log(float(last / (low + (share - Fraction(1, 10)) * (high - low))))


def test_pure_losses_of_vectors_are_rounded_up() -> None:
    for generator, mechanism in _tables(range(6)):
        distances, losses = loss_profile(mechanism)
        lefts = [Fraction(0), *map(Fraction, distances[:-1].tolist())]
        points = [
            (left**2, Fraction(loss)) for left, loss in zip(lefts, losses.tolist(), strict=True)
        ]
        for coordinates in generator.integers(1, 50, 2).tolist():
            norm = float(generator.uniform(0.1, 2) * (mechanism.upper - mechanism.lower))
            at = (
                Fraction(squared_distance(mechanism, coordinates=coordinates, l2_norm=norm))
                / coordinates
            )
            chords = (
                v + (w - v) * (at - x) / (y - x)
                for x, v in points
                if x <= at
                for y, w in points
                if y > at and w > v
            )
            exact = coordinates * max([*chords, *(v for x, v in points if x <= at)])
            ours = Fraction(pure_epsilon_l2(mechanism, coordinates=coordinates, l2_norm=norm))
            assert exact <= ours <= exact * Fraction(1 + FEW)


def test_differences_of_interpolated_knots_are_not_overstated() -> None:
    generator = np.random.default_rng(8)
    for _ in range(20):
        a, b, parts = (
            float(generator.uniform(-1, 0)),
            float(generator.uniform(1, 2)),
            int(generator.integers(3, 30)),
        )
        floats = np.append(a + (b - a) * np.arange(parts) / parts, b)
        exact = [Fraction(a) + (Fraction(b) - Fraction(a)) * i / parts for i in range(parts + 1)]
        for k, row in enumerate(geometry._reach(floats).tolist()):
            nearest = exact[max(k - 1, 0)], exact[min(k + 1, parts)]
            for j, ours in enumerate(row):
                gap = max(exact[j] - nearest[1], nearest[0] - exact[j + 1], Fraction(0))
                assert gap - Fraction(1, 10**12) <= Fraction(ours) <= gap
