"""Clipping and rotation."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import ParameterError
from mezzotint.vectors import Rotation, clip
from reference.vectors import hadamard
from tolerances import FEW

ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}


@given(
    vector=st.lists(st.floats(-1e8, 1e8), min_size=1, max_size=30),
    bound=st.floats(1e-3, 1e6),
    norm=st.sampled_from(["linf", "l2", "l1"]),
)
def test_clipped_vectors_lie_in_the_ball_and_stay_when_inside(vector, bound, norm):
    clipped = clip(vector, norm=norm, bound=bound)
    size = np.abs(clipped).max() if norm == "linf" else np.linalg.norm(clipped, ORDERS[norm])
    assert size <= bound * (1 + FEW)
    inside = np.array(vector) * (0.5 * bound / max(np.abs(vector).sum(), 1e-300))
    assert clip(inside, norm=norm, bound=bound) == pytest.approx(inside, rel=FEW)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("bound", [1e300, 1.0, 1e-87, 1e-161, 1e-170, 1e-305, 1e-310, 7 * 5e-324])
def test_the_norm_is_at_most_the_bound_in_exact_arithmetic_at_any_scale(norm, bound):
    for scale in (1e-150, 1.0, 1e85, 1e160, 1e161, 1e200, 5e307):
        for row in ([1.0, 2.0, 3.0], [1.0, 1.0, 0.7], [-2.0, 1.0], [3.0, 1e-200, -1.0], [1.0]):
            given = np.array(row) * scale
            clipped = clip(given, norm=norm, bound=bound)
            order = ORDERS[norm]
            size, whole = (
                sum(abs(Fraction(float(part))) ** order for part in parts)
                for parts in (clipped, given)
            )
            most = Fraction(bound) ** order
            assert size <= most
            assert (np.sign(clipped) * np.sign(given) >= 0).all()
            if whole > most and bound > 1e-300:
                assert size >= most * (1 - Fraction(1, 10**12))  # a hundred margins of four ulp


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_clipping_is_the_projection_so_a_contraction(norm):
    rng = np.random.default_rng(1)
    for _ in range(200):
        x, y = rng.normal(size=(2, 6)) * 3
        a, b = clip(x, norm=norm, bound=1.0), clip(y, norm=norm, bound=1.0)
        assert np.linalg.norm(a - b) <= np.linalg.norm(x - y) * (1 + FEW)
        assert (x - a) @ (b - a) <= 1e-9  # obtuse angle: `a` is the nearest point of the ball


def test_clipping_edges():
    assert clip([], norm="l2", bound=1.0).size == 0
    assert clip([0.0, 0.0], norm="l1", bound=1.0).tolist() == [0.0, 0.0]
    assert np.linalg.norm(clip([1e300, 1e300], norm="l2", bound=1.0)) <= 1.0 + FEW
    assert clip(np.ones((2, 3, 4)), norm="l2", bound=1.0).shape == (2, 3, 4)
    assert clip(5.0, norm="l1", bound=1.0) == pytest.approx(1.0, rel=FEW)
    assert clip([1e300, 1e-300], norm="l1", bound=1e-200).tolist() == [
        pytest.approx(1e-200, rel=FEW),
        0.0,
    ]
    assert clip([1e-300, 1e-300], norm="l2", bound=1e-300) == pytest.approx(
        [2**-0.5 * 1e-300] * 2, rel=FEW
    )
    assert clip([3.0, 4.0], norm="l2", bound=1e308).tolist() == [3.0, 4.0]
    bad: list[tuple[Any, str]] = [
        (([np.nan, 1.0], "l2", 1.0), "entry 0"),
        (([1.0, np.inf], "l1", 1.0), "entry 1"),
        (([1.0], "l2", 0.0), "bound"),
        (([1.0], "linf", math.nan), "bound"),
        (([1.0], "l1", "1"), "bound"),
        ((["a"], "l1", 1.0), "vector"),
        (([1.0], "l3", 1.0), "norm"),
    ]
    for arguments, match in bad:
        with pytest.raises(ParameterError, match=match):
            clip(arguments[0], norm=arguments[1], bound=arguments[2])


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 8, 100, 1000])
def test_rotations_are_orthonormal_and_undone(dimension):
    """Against dense matrices; the signs are read off the first row of each transform, which is constant."""
    rotation = Rotation(dimension=dimension, seed=7)
    size = rotation.block
    assert size <= dimension < 2 * size
    x = np.random.default_rng(0).normal(size=(3, dimension))
    kept = x.copy()
    y = rotation.apply(x)
    np.testing.assert_array_equal(x, kept)
    assert y.shape == (3, dimension)
    assert np.linalg.norm(y, axis=1) == pytest.approx(np.linalg.norm(x, axis=1), rel=FEW)
    assert rotation.undo(y) == pytest.approx(x, rel=FEW)
    if dimension <= 100:
        whole = np.eye(dimension)
        for part, signs in rotation._transforms():
            step = np.eye(dimension)
            step[part, part] = hadamard(size) * signs
            whole = step @ whole
        assert y == pytest.approx(x @ whole.T, rel=FEW)


@pytest.mark.parametrize("dimension", [513, 700, 1023])
def test_overlapping_transforms_spread_every_vector(dimension):
    """Vectors that live in one block alone, in the overlap, at the ends, and everywhere."""
    size = Rotation(dimension=dimension, seed=0).block
    spike, tail, ones = np.zeros(dimension), np.zeros(dimension), np.ones(dimension)
    spike[-1] = 1.0
    tail[size:] = 1.0
    middle = np.eye(dimension)[dimension - size]
    for vector in (np.eye(dimension)[0], middle, spike, tail, ones):
        unit = vector / np.linalg.norm(vector)
        sizes = [
            np.abs(Rotation(dimension=dimension, seed=seed).apply(unit)).max() for seed in range(40)
        ]
        # Hoeffding: beyond 6.5 / sqrt(block) with probability below 1023 * 40 * 2 exp(-21) < 1e-4 in all.
        assert max(sizes) <= 6.5 / math.sqrt(size)


def test_a_spike_is_spread_evenly_and_seeds_differ():
    spike = np.zeros(1024)
    spike[3] = 1.0
    assert np.abs(Rotation(dimension=1024, seed=1).apply(spike)) == pytest.approx(
        np.full(1024, 1 / 32), rel=FEW
    )
    dense = np.random.default_rng(0).normal(size=1024)
    one, other = (Rotation(dimension=1024, seed=seed).apply(dense) for seed in (1, 2))
    assert np.abs(one - other).max() > 0.5
    with pytest.raises(ParameterError, match="dimension"):
        Rotation(dimension=0, seed=1)
    for arguments, match in (
        ({"dimension": 2.5}, "dimension"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
    ):
        with pytest.raises(ParameterError, match=match):
            Rotation(**{"dimension": 4, "seed": 1, **arguments})
    with pytest.raises(ParameterError, match="coordinates"):
        Rotation(dimension=4, seed=1).apply(np.ones(5))


def test_signs_are_the_stable_raw_bits_of_the_seed():
    # numpy promises raw words of a bit generator for all releases, and no more: servers and clients may differ in them.
    words = np.random.Philox(np.random.SeedSequence(9)).random_raw(2)
    bits = [int(words[i // 64]) >> (i % 64) & 1 for i in range(128)]
    signs = Rotation(dimension=128, seed=9).apply(np.eye(128))[:, 0] * math.sqrt(128)
    assert signs == pytest.approx([2.0 * bit - 1 for bit in bits], rel=FEW)


def test_rotated_coordinates_of_any_vector_are_small():
    for vector in (np.eye(512)[7], np.full(512, 512**-0.5), np.repeat([0.5, 0.0], [4, 508])):
        sizes = [
            np.abs(Rotation(dimension=512, seed=seed).apply(vector)).max() for seed in range(50)
        ]
        # Hoeffding: beyond 6 / sqrt(512) with probability below 512 * 50 * 2 exp(-18) < 1e-3 in all.
        assert max(sizes) <= 6 / math.sqrt(512)
