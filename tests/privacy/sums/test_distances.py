"""Vectors under an L2 bound: distances, excesses and losses between inputs against exact twins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from mezzotint import Mechanism
from mezzotint.core.types import TOTAL
from mezzotint.privacy.sums import geometry
from mezzotint.privacy.sums.compiled import gather
from mezzotint.privacy.sums.geometry import (
    _mean_quotients,
    loss_profile,
    pure_epsilon_l2,
    quadratic_renyi,
    squared_distance,
)
from mezzotint.privacy.sums.noise import no_noise
from strategies import random_table
from tolerances import FEW, MANY, UNIT


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(50):
        yield


def quotient(u: float, ends: tuple[float, float], alpha: float) -> float:
    """h(t u) / t^2 at its largest between two distances."""
    cell = np.array([u])
    return float(_mean_quotients(np.ones(1), cell, cell, np.array(ends), alpha)[0])


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


def _largest_quotient(low: float, high: float, start: float, stop: float, alpha: float) -> float:
    """h(t u) / t^2 at its largest on a grid of ratios and distances."""
    ratios = np.linspace(low, high, 31)[:, None]
    distances = np.linspace(start, stop, 801)
    shifts = ratios * distances
    excess = np.maximum(1 + shifts, 0) ** alpha - 1 - alpha * shifts
    return float((excess / distances**2).max())


def test_a_bin_is_bounded_over_all_of_its_ratios_and_distances() -> None:
    """Both ends of the ratios, both ends of a bin, and humps count: at every order."""
    generator = np.random.default_rng(6)
    for _ in range(300):
        low, high = np.sort(generator.uniform(-4, 3, 2)).tolist()
        start, stop = np.sort(generator.uniform(0.1, 2, 2)).tolist()
        alpha = float(generator.choice([1.1, 1.5, 1.9, 2.0, 3.0, 8.0]))
        weight = float(generator.uniform(0.1, 1))
        bound = _mean_quotients(
            np.array([weight]), np.array([low]), np.array([high]), np.array([start, stop]), alpha
        )
        exact = weight * _largest_quotient(low, high, start, stop, alpha)
        assert exact <= bound[0] * (1 + MANY)
        # The grid misses a hump by half a step, of which the loss is the square.
        assert bound[0] <= exact * (1 + 1e-4)


def test_gathered_weights_keep_their_mean_between_two_points_of_the_grid() -> None:
    generator = np.random.default_rng(8)
    unit, parts, octaves = 2.0**-10, 4, 12
    steps = [2**octave * (1 + part / parts) for octave in range(octaves) for part in range(parts)]
    points = unit * np.array([0.0, *steps])
    weights = generator.choice([0.0, 0.25, 1.5], 200)
    high = generator.uniform(-1, 1, 200) * 2.0 ** generator.integers(-14, 1, 200)
    low = high - generator.uniform(0, 1, 200)
    totals = np.zeros((2, points.size))
    gather(weights, low, high, unit, parts, totals)
    expected = np.zeros_like(totals)
    for weight, *sides in zip(weights, high, -low, strict=True):
        for side, ratio in enumerate(sides):
            if ratio > 0:
                below = int(np.searchsorted(points, ratio, side="right")) - 1
                share = (ratio - points[below]) / (points[below + 1] - points[below])
                expected[side, below] += weight * (1 - share)
                expected[side, below + 1] += weight * share
    np.testing.assert_allclose(totals, expected, rtol=MANY, atol=FEW)


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


POSITION_ERROR = mpmath.mpf(9) / 8 / 2**32
"""S1 (docs/proofs/sampling.md): share of its segment by which an input moves at most."""


def _tables(seeds: Iterable[int]) -> Iterable[tuple[np.random.Generator, Mechanism]]:
    for seed in seeds:
        yield np.random.default_rng(seed), random_table(seed, rows=4, levels=3)


def test_distances_are_rounded_up() -> None:
    for generator, mechanism in _tables(range(60)):
        knots = [Fraction(knot) for knot in mechanism.knots.tolist()]
        width, span = max(b - a for a, b in pairwise(knots)), knots[-1] - knots[0]
        for coordinates in generator.integers(1, 1000, 3).tolist():
            norm = float(generator.uniform(0.01, 3) * float(span))
            widest = mpmath.mpf(width.numerator) / width.denominator
            root = mpmath.sqrt(coordinates) * widest * POSITION_ERROR
            least = (2 * (norm * (1 + 128 * mpmath.mpf(UNIT)) + root)) ** 2
            box = coordinates * (mpmath.mpf(span.numerator) / span.denominator) ** 2
            exact = min(least, box)
            assert (
                exact
                <= squared_distance(mechanism, coordinates=coordinates, clip_norm=norm)
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
                Fraction(squared_distance(mechanism, coordinates=coordinates, clip_norm=norm))
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
            ours = Fraction(pure_epsilon_l2(mechanism, coordinates=coordinates, clip_norm=norm))
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
        for k, row in enumerate(geometry._least_distances(floats).tolist()):
            nearest = exact[max(k - 1, 0)], exact[min(k + 1, parts)]
            for j, ours in enumerate(row):
                gap = max(exact[j] - nearest[1], nearest[0] - exact[j + 1], Fraction(0))
                assert gap - Fraction(1, 10**12) <= Fraction(ours) <= gap
