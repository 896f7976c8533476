"""The theorems of docs/proofs/kernel.md against enumeration, written from their statements and without the kernel."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
from hypothesis import given, settings, strategies as st

from strategies import examples

Law = list[Fraction]
FACTORS = [
    Fraction(1, 4),
    Fraction(1, 2),
    Fraction(9, 10),
    Fraction(1),
    Fraction(3, 2),
    Fraction(3),
]


def _law(generator: np.random.Generator, size: int, total: int = 60) -> Law:
    return [
        Fraction(int(v), total)
        for v in generator.multinomial(total, generator.dirichlet(np.full(size, 0.6)))
    ]


def _excess(first: Law, second: Law, c: Fraction) -> Fraction:
    return sum(
        (max(p - c * q, Fraction(0)) for p, q in zip(first, second, strict=True)), Fraction(0)
    )


def _sum_of(first: Law, second: Law) -> Law:
    return np.convolve(np.array(first), np.array(second)).tolist()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(20), deadline=None)
def test_k1_missing_noise_costs_at_most_its_mass_above_and_below_one(seed: int) -> None:
    generator = np.random.default_rng(seed)
    p, q, noise = (_law(generator, size) for size in (3, 3, 4))
    kept = [mass * int(generator.integers(0, 5)) / 4 for mass in noise]
    lost = sum(noise) - sum(kept)
    for c in FACTORS:
        whole = _excess(_sum_of(p, noise), _sum_of(q, noise), c)
        assert whole <= _excess(_sum_of(p, kept), _sum_of(q, kept), c) + lost * _excess(p, q, c)
        assert whole <= _excess(_sum_of(p, kept), _sum_of(q, kept), c) + lost


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(14), deadline=None)
def test_k2_losses_raised_and_masses_lost_stay_above_adaptive_composition(seed: int) -> None:
    """The second report's pair depends on the first report; both pairs are below one curve, that of the atoms."""
    generator = np.random.default_rng(seed)
    pairs = [(_law(generator, 3), _law(generator, 3)) for _ in range(3)]
    # Atoms (e^loss, mass) of a dominating pair: the worst excess at these points, as theorem E builds it; exact here.
    points = sorted(
        {p / q for one in pairs for p, q in zip(*one, strict=True) if p and q} | {Fraction(1)}
    )
    atoms, infinite = _envelope(points, [max(_excess(*one, c) for one in pairs) for c in points])
    kept = [(c * Fraction(11, 10), mass * Fraction(9, 10)) for c, mass in atoms]
    lost = 1 - sum(mass for _, mass in kept)
    for c in FACTORS:
        product_of = 1 - (1 - lost) ** 2
        for (a, m), (b, n) in product(kept, repeat=2):
            product_of += m * n * max(1 - c / (a * b), Fraction(0))
        exact = sum((mass for _, mass in atoms), infinite)
        assert exact == 1
        for first in pairs:
            # After report i the adversary picks the pair that is worst at what is left of c.
            adaptive = Fraction(0)
            for p, q in zip(*first, strict=True):
                left = [
                    _excess([p * x for x in one[0]], [c * q * x for x in one[1]], Fraction(1))
                    for one in pairs
                ]
                adaptive += max(left)
            assert adaptive <= product_of


def _envelope(points: Law, values: Law) -> tuple[list[tuple[Fraction, Fraction]], Fraction]:
    """Atoms (point, mass) and infinite mass of the largest convex function below (0, 1) and the running minima.

    Brute force: at a point it is the least over all chords between two of the given points.
    """
    low = [min([*values[: k + 1], Fraction(1)]) for k in range(len(values))]
    given_points = [(Fraction(0), Fraction(1)), *zip(points, low, strict=True)]

    def at(x: Fraction) -> Fraction:
        chords = [
            u + (v - u) * (x - a) / (b - a)
            for (a, u), (b, v) in combinations(given_points, 2)
            if a <= x <= b
        ]
        return min([*chords, *(u for a, u in given_points if a == x)])

    places = [a for a, _ in given_points]
    heights = [at(x) for x in places]
    slopes = [
        (v - u) / (b - a)
        for a, b, u, v in zip(places, places[1:], heights, heights[1:], strict=False)
    ]
    slopes.append(Fraction(0))
    return [
        (x, x * (t - s)) for x, s, t in zip(places[1:], slopes, slopes[1:], strict=False)
    ], heights[-1]


@given(seed=st.integers(0, 2**32 - 1), looseness=st.sampled_from([0, 1, 5]))
@settings(max_examples=examples(20), deadline=None)
def test_e_the_envelope_of_any_upper_values_is_a_pair_above_the_curve(
    seed: int, looseness: int
) -> None:
    generator = np.random.default_rng(seed)
    pairs = [(_law(generator, 4), _law(generator, 4)) for _ in range(2)]
    points = sorted({Fraction(int(v), 8) for v in generator.integers(1, 40, 6)})

    def curve(c: Fraction) -> Fraction:
        return max(_excess(p, q, c) for p, q in pairs)

    values = [curve(c) + Fraction(looseness * int(generator.integers(0, 20)), 100) for c in points]
    atoms, infinite = _envelope(points, values)
    assert all(mass >= 0 for _, mass in atoms)
    assert sum(mass for _, mass in atoms) + infinite == 1
    assert sum(mass / c for c, mass in atoms) <= 1
    for c in [*points, *FACTORS, Fraction(1, 100), Fraction(50)]:
        above = infinite + sum(mass * max(1 - c / place, Fraction(0)) for place, mass in atoms)
        assert above >= curve(c)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(14), deadline=None)
def test_ladders_hold_for_counts_of_any_joint_law(seed: int) -> None:
    """Two kinds of noise, counts as dependent as can be; the observer may see the counts, which helps him."""
    generator = np.random.default_rng(seed)
    shapes = [_law(generator, 2), _law(generator, 3)]
    p, q = _law(generator, 3), _law(generator, 3)
    most = 3
    counts = list(product(range(most + 1), repeat=2))
    joint = dict(zip(counts, _law(generator, len(counts), 200), strict=True))

    def left(count: tuple[int, ...], c: Fraction) -> Fraction:
        first, second = p, q
        for shape, times in zip(shapes, count, strict=True):
            for _ in range(times):
                first, second = _sum_of(first, shape), _sum_of(second, shape)
        return _excess(first, second, c)

    corners = [tuple(int(v) for v in generator.integers(0, most + 1, 2))]
    for _ in range(3):
        corners.append(tuple(int(generator.integers(0, edge + 1)) for edge in corners[-1]))
    missed, bound = [Fraction(1)], Fraction(0)
    for corner in corners:
        tails = [sum(m for n, m in joint.items() if n[k] < corner[k]) for k in range(2)]
        missed.append(min(missed[-1], sum(tails)))
    for c in FACTORS:
        exact = sum(mass * left(count, c) for count, mass in joint.items())
        bound = missed[-1] + sum(
            (missed[z] - missed[z + 1]) * left(corners[z], c) for z in range(len(corners))
        )
        assert exact <= bound


def test_the_two_instances_that_refute_slopes_taken_for_masses() -> None:
    """Upper bounds need not be convex: slopes of the bound itself give a negative mass, the envelope's do not."""
    points, values = (
        [Fraction(1, 2), Fraction(1), Fraction(2)],
        [Fraction(6, 10), Fraction(4, 10), Fraction(35, 100)],
    )
    higher = [Fraction(6, 10), Fraction(58, 100), Fraction(1, 10)]
    for bound in (values, higher):
        atoms, infinite = _envelope(points, bound)
        assert all(mass >= 0 for _, mass in atoms)
        assert sum(mass for _, mass in atoms) + infinite == 1
    slopes = [
        (v - u) / (b - a)
        for a, b, u, v in zip(points, points[1:], higher, higher[1:], strict=False)
    ]
    assert slopes[1] < slopes[0], "as slopes these would be a negative mass"
