"""A hockey-stick curve known from above: delta(epsilon) at grid points, chords between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_delta
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import UNIT, float_above
from mezzotint.core.mechanism import FloatArray
from mezzotint.privacy.distribution import Atoms

_UP = 1 + 2.0**-40
"""Factor that covers the few roundings of an interpolation, and more."""


MAX_EPSILON = 600.0
"""Curves end here: e**epsilon must stay a float. A larger finite epsilon is reported as inf."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HockeyStick:
    """Upper bounds on sup over neighbours of the hockey-stick divergence, both directions, for epsilon >= 0.

    Arguments:
        epsilons: (g,) increasing, the first 0; the last may be inf.
        deltas: (g,) in [0, 1]; upper bounds at the grid points.

    Guarantees:
        The true curve is convex in e**epsilon, so chords between grid points bound it, and so does the lower convex
        hull of the points, which is what is kept.
    """

    epsilons: FloatArray
    deltas: FloatArray

    def __post_init__(self) -> None:
        epsilons = np.array(self.epsilons, dtype=np.float64)
        deltas = np.minimum(np.array(self.deltas, dtype=np.float64), 1.0)
        if epsilons.ndim != 1 or epsilons.size < 1 or epsilons.shape != deltas.shape or epsilons[0] != 0:
            raise ParameterError("epsilons", epsilons.shape, "need a 1-D grid from 0 with one delta per point")
        if (np.diff(epsilons) <= 0).any() or not (deltas >= 0).all():
            raise ParameterError("epsilons", "grid", "the grid increases and deltas are probabilities")
        if bool((epsilons[np.isfinite(epsilons)] > MAX_EPSILON).any()):
            raise ParameterError("epsilons", float(epsilons[-1]), f"at most {MAX_EPSILON}, or inf as the last")
        kept = _lower_hull(np.expm1(epsilons), np.minimum.accumulate(deltas))
        for name, values in (("epsilons", epsilons[kept]), ("deltas", np.minimum.accumulate(deltas)[kept])):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    def delta(self, epsilon: float | FloatArray) -> FloatArray:
        """Upper bound on delta at one or many epsilon >= 0; beyond the grid the last bound stays."""
        wanted = np.asarray(epsilon, dtype=np.float64)
        if np.isnan(wanted).any() or (wanted < 0).any():
            raise ParameterError("epsilon", float(wanted.min()), "need numbers >= 0")
        finite = np.isfinite(self.epsilons)
        reach = np.minimum(wanted, MAX_EPSILON)
        with np.errstate(over="ignore"):
            chords = np.interp(np.expm1(reach), np.expm1(self.epsilons[finite]), self.deltas[finite]) * _UP
        return np.minimum(np.where(np.isinf(wanted), self.deltas[-1], chords), 1.0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at which the bound is at most `delta`, rounded up; inf when there is none."""
        target = check_delta(delta)
        if self.deltas[0] <= target:
            return 0.0
        good = np.flatnonzero(self.deltas <= target)
        if good.size == 0:
            return math.inf
        j = int(good[0])
        if math.isinf(self.epsilons[j]):
            return math.inf
        left, right = math.expm1(self.epsilons[j - 1]), math.expm1(self.epsilons[j])
        share = (self.deltas[j - 1] - target) / (self.deltas[j - 1] - self.deltas[j])
        return min(math.log1p(left + share * (right - left)) * _UP, float(self.epsilons[j]))

    def best(self, other: HockeyStick) -> HockeyStick:
        """The smaller of two bounds that both hold."""
        grid = np.union1d(self.epsilons, other.epsilons)
        return HockeyStick(epsilons=grid, deltas=np.minimum(self.delta(grid), other.delta(grid)))

    def atoms(self) -> Atoms:
        """The symmetric pair of distributions with exactly this curve, as losses to compose or to sample from.

        Guarantees: in exact rationals but for masses rounded up by an ulp and losses by 4 ulp of 1 and one ulp.
        """
        finite = np.isfinite(self.epsilons)
        # The floats exp(epsilon) are the exact ratios; their logarithms lie within 2 UNIT of epsilon.
        ratios = [Fraction(math.exp(epsilon)) for epsilon in self.epsilons[finite].tolist()]
        deltas = [Fraction(delta) for delta in self.deltas[finite].tolist()]
        kept, first = _symmetric_hull(ratios, deltas)
        chords = [(deltas[b] - deltas[a]) / (ratios[b] - ratios[a]) for a, b in pairwise(kept)]
        slopes = [first, *chords, Fraction(0)]
        # h(c) = sum_{j: c_j > c} (1 - c / c_j) p_j + p_inf: its slope jumps by p_j / c_j at c_j. By symmetry that is
        # also the mass at the mirrored loss. What is left of 1 has loss 0.
        jumps = [after - before for before, after in pairwise(slopes)]
        masses = [jump * ratios[i] for jump, i in zip(jumps, kept, strict=True)]
        infinite = deltas[kept[-1]]
        if ratios[kept[0]] == 1:
            kept, masses, jumps = kept[1:], masses[1:], jumps[1:]
        rest = max(Fraction(0), 1 - infinite - sum(masses, Fraction(0)) - sum(jumps, Fraction(0)))
        losses = self.epsilons[finite][kept]
        # From a loss of 8 on the sum alone may round back to where it was.
        above = np.nextafter(np.concatenate([-losses[::-1], [0.0], losses]) + 8 * UNIT, np.inf)
        return Atoms(
            losses=above,
            masses=np.array([float_above(mass) for mass in [*jumps[::-1], rest, *masses]]),
            infinite=float(infinite),  # one of the floats `deltas`
        )


def _exact_hull(ratios: list[Fraction], deltas: list[Fraction]) -> list[int]:
    """Indices of the lower convex hull in exact rationals."""
    kept: list[int] = []
    for i in range(len(ratios)):
        while len(kept) >= 2:
            a, b = kept[-2], kept[-1]
            left = (deltas[b] - deltas[a]) * (ratios[i] - ratios[a])
            if left < (deltas[i] - deltas[a]) * (ratios[b] - ratios[a]):
                break
            kept.pop()
        # Neighbouring grid points may share one float exponential: the later, smaller bound stands for both.
        if kept and ratios[kept[-1]] == ratios[i]:
            kept[-1] = i
        else:
            kept.append(i)
    return kept


def _symmetric_hull(ratios: list[Fraction], deltas: list[Fraction]) -> tuple[list[int], Fraction]:
    """Indices of the lower hull of the curve together with its mirror image, and the slope before the first of them.

    With every pair its swap is covered, so the bound holds below c = 1 as 1 - c + c h(1/c). The true curve is convex
    throughout: where the two branches meet in a concave kink, the chord between them bounds it too. (Probabilities that
    are the same in both worlds, but for rounding, would otherwise count as losses of both signs.)
    """
    kept = _exact_hull(ratios, deltas)
    while True:
        c, u = ratios[kept[0]], deltas[kept[0]]
        # From (1/c, 1 - 1/c + u/c) to (c, u).
        across = -(1 - u) / (1 + c)
        if len(kept) == 1 or across <= (deltas[kept[1]] - u) / (ratios[kept[1]] - c):
            return kept, across
        kept.pop(0)


_PASSES = 30
"""Passes over all points that may leave a hull, before it is found point by point."""


def _lower_hull(x: FloatArray, y: FloatArray) -> npt.NDArray[np.intp]:
    """Indices of the lower convex hull of points with increasing x (an infinite last x is kept as it is)."""
    kept = np.arange(x.size)
    for _ in range(_PASSES):
        # What lies on or above the chord of its neighbours is no vertex; where nothing does, all are.
        across, up = np.diff(x[kept]), np.diff(y[kept])
        convex = up[:-1] * across[1:] < up[1:] * across[:-1] if math.isfinite(x[-1]) else np.zeros(0, dtype=bool)
        if convex.size == 0 or not math.isfinite(x[-1]):
            break
        if convex.all():
            return kept
        kept = kept[np.concatenate([[True], convex, [True]])]
    return kept[_scanned_hull(x[kept], y[kept])]


def _scanned_hull(x: FloatArray, y: FloatArray) -> npt.NDArray[np.intp]:
    """`_lower_hull`, point by point."""
    hull: list[int] = []
    for i in range(x.size):
        if math.isinf(x[i]):
            hull.append(i)
            break
        while len(hull) >= 2:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.array(hull, dtype=np.intp)
