"""Given the floors of an optimal unbiased table, its rows are windows: this gives the knots where they bend."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_APART = 1e-7
"""Knots nearer than this (units of half the range) are one: the loss they could gain is of the order of its square."""


def breakpoints(floors: FloatArray, levels: FloatArray, epsilon: float) -> FloatArray:
    """Inputs in (-1, 1) at which the best rows with these floors bend, centred units.

    Arguments:
        floors: (m,) smallest probability of each level over all inputs.
        levels: (m,) increasing, centred units.
        epsilon: pure epsilon: no probability exceeds e**epsilon times its floor.

    Guarantees: for any loss convex in the reported level, some optimal table with these floors is linear between
        consecutive breakpoints (docs/proofs/design.md, "Windows").
    """
    # Each row is its floors plus extra mass (e**epsilon - 1) * floor on a contiguous window of levels. In coordinates
    # of cumulative extra mass the window is [a, a + spare]; its mean is linear in a until an end passes a level.
    room = math.expm1(epsilon) * np.where(floors > 1e-11, floors, 0.0)
    spare = 1 - float(floors.sum())
    total = np.concatenate([[0.0], np.cumsum(room)])
    moment = np.concatenate([[0.0], np.cumsum(room * levels)])
    starts = np.unique(np.clip(np.concatenate([total, total - spare]), 0.0, max(0.0, total[-1] - spare)))
    filled = np.interp(starts + spare, total, moment) - np.interp(starts, total, moment)
    means = float(floors @ levels) + filled
    return means[(means > -1) & (means < 1)]


def merged(knots: npt.ArrayLike, *, symmetric: bool) -> FloatArray:
    """Sorted knots from -1 to 1 without near-duplicates, exactly symmetric if asked."""
    inner = np.sort(np.ravel(np.asarray(knots, dtype=np.float64)))
    inner = inner[(inner > -1 + _APART) & (inner < 1 - _APART)]
    if inner.size:
        inner = inner[np.concatenate([[True], np.diff(inner) > _APART])]
    if symmetric:
        positive = np.sort(np.concatenate([inner[inner > 0], -inner[inner < 0]]))
        if positive.size:
            positive = positive[np.concatenate([[True], np.diff(positive) > _APART])]
        positive = positive[positive > _APART]
        middle = [0.0] if (np.abs(inner) <= _APART).any() else []
        inner = np.concatenate([-positive[::-1], middle, positive])
    return np.concatenate([[-1.0], inner, [1.0]])


def around(knots: FloatArray, step: float, *, symmetric: bool, sides: int) -> FloatArray:
    """The knots and `sides` neighbours on each side of each, up to `step` away."""
    offsets = step * np.arange(-sides, sides + 1) / max(1, sides)
    return merged(knots[:, None] + offsets, symmetric=symmetric)
