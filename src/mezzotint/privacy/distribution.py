"""Privacy loss distributions on a grid: built from exact atoms, rounded against us, composed with proven errors.

A loss distribution puts mass on losses s (and on infinity) and speaks for the curve
    delta(epsilon) = infinite + sum_s mass_s max(0, 1 - e**(epsilon - s)).
It *covers* a set of pairs of output distributions when no pair's hockey-stick divergence exceeds this curve, at any
real epsilon. If it covers the pairs of every single release, its convolutions cover all of them together, adaptively
chosen releases included (Zhu, Dong and Wang 2022, Theorem 10). Masses need not add up to 1: an excess only overstates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import UNIT
from mezzotint.core.mechanism import FloatArray
from mezzotint.core.search import bracket
from mezzotint.privacy.sums.convolution import sum_bounds

MAX_POINTS = 2**20
"""Most grid points of a loss distribution before and after composition, roughly."""

TAIL = 1e-20
"""Mass that a composition may cut off; all of it is added to delta."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Atoms:
    """Exact losses, not on a grid: what a loss distribution is built from.

    Arguments:
        losses: (n,) finite losses, nats, each at or above the true one.
        masses: (n,) masses >= 0, each at or above the true one.
        infinite: mass of the infinite loss (certain disclosure).
    """

    losses: FloatArray
    masses: FloatArray
    infinite: float

    @property
    def largest(self) -> float:
        """Largest size of a finite loss."""
        return float(np.abs(self.losses).max(initial=0.0))

    @property
    def deviation(self) -> float:
        """Standard deviation of the finite losses."""
        total = float(self.masses.sum())
        if total == 0:
            return 0.0
        mean = float(self.masses @ self.losses) / total
        return math.sqrt(float(self.masses @ (self.losses - mean) ** 2) / total)

    def trimmed(self, tail: float) -> Atoms:
        """The same without its rarest extremes: a mass of at most `tail` at each end is moved to a larger loss.

        Grids are as wide as the largest loss; what hardly ever happens shall not decide how fine they can be.
        """
        order = np.argsort(self.losses)
        losses, masses = self.losses[order], self.masses[order]
        last = int(np.searchsorted(-np.cumsum(masses[::-1])[::-1], -tail, side="left"))
        first = int(np.searchsorted(np.cumsum(masses), tail, side="right"))
        if last <= first:
            return self
        infinite = (self.infinite + float(masses[last:].sum())) * (1 + (masses.size + 2) * UNIT)
        kept = np.maximum(losses[:last], losses[first])
        return Atoms(losses=kept, masses=masses[:last], infinite=infinite if last < masses.size else self.infinite)


def grid_step(atoms: Atoms, count: int, tolerance: float) -> float:
    """A step for `count`-fold composition, as fine as memory allows, no finer than `tolerance` (nats, in all) asks for.

    The largest loss is a multiple of it, so that the extreme releases stand on the grid exactly.
    """
    largest, deviation = atoms.largest, atoms.deviation
    if largest == 0:
        return 1.0
    # Moving an atom to its two grid neighbours adds at most step**2 / 8 to its mean and step**2 / 4 to its variance.
    # In all that is count step**2 / 8 and, some 8 deviations out, sqrt(count) step**2 / deviation more.
    drift = count / 8 + math.sqrt(count) / max(deviation, largest / 1e6)
    wanted = min(math.sqrt(tolerance / drift), largest / 64)
    window = min(2 * count * largest, 24 * deviation * math.sqrt(count) + 40 * largest)
    least = max(window, 2 * largest) / MAX_POINTS
    return largest / max(1, math.floor(largest / max(wanted, least)))


def _power_above(base: float, count: int) -> float:
    """base**count for base > 0, rounded up; a relative (8 + |log base|) 8 count UNIT at most above."""
    exponent = count * math.log(base)
    return math.exp(min(700.0, exponent + (abs(exponent) + count + 1) * 4 * UNIT))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class LossDistribution:
    """Masses on the losses (start + i) * step, and on infinity.

    Arguments:
        step: grid step, nats, > 0.
        start: integer, the first loss over the step.
        masses: (n,) masses >= 0.
        infinite: mass of the infinite loss.
    """

    step: float
    start: int
    masses: FloatArray
    infinite: float

    def __post_init__(self) -> None:
        masses = np.array(self.masses, dtype=np.float64)
        masses.setflags(write=False)
        object.__setattr__(self, "masses", masses)

    def atoms(self) -> Atoms:
        """The same masses as free-standing atoms, those without mass left out."""
        used = np.flatnonzero(self.masses)
        losses = (used + float(self.start)) * self.step
        return Atoms(losses=losses + np.abs(losses) * 2 * UNIT, masses=self.masses[used], infinite=self.infinite)

    def compose(self, count: int) -> LossDistribution:
        """The sum of `count` independent losses; covers `count` releases, each covered by this one.

        Guarantees: the new curve is at or above the exact convolution's: transform errors and cut tails are added.
        """
        if count < 1:
            raise ParameterError("releases", count, "need at least one release")
        total = float(self.masses.sum()) * (1 + (self.masses.size + 4) * UNIT)
        if count == 1 or total == 0:
            return self
        if self.masses.size == 1:
            single, first, outside = np.ones(1), self.start * count, 0.0
        else:
            bounds = sum_bounds([self.masses / self.masses.sum()], [[count]], tail=TAIL)
            single, first = bounds.high[0], self.start * count + int(bounds.start[0])
            outside = float(bounds.outside[0])
        # Every term of (total + infinite)**count but total**count has an infinite loss in it.
        scale, growth = _power_above(total, count), count * math.log1p(self.infinite / total)
        if growth < 1:
            infinite = scale * (outside + math.expm1(growth) * (1 + 32 * UNIT))
        else:
            infinite = scale * outside + _power_above(total + self.infinite, count)
            infinite -= scale * (1 - 32 * UNIT - (8 + abs(math.log(total))) * 16 * count * UNIT)
        used = np.flatnonzero(single)
        kept = slice(int(used[0]), int(used[-1]) + 1)
        return LossDistribution(
            step=self.step,
            start=first + int(used[0]),
            masses=single[kept] * (scale * (1 + 4 * UNIT)),
            infinite=infinite,
        )

    def _at_grid(self) -> FloatArray:
        """(n,) the curve at the losses of the grid, rounded up."""
        # D_j = sum_{s > j} mass_s (1 - e**((j - s) step)) obeys D_j = (1 - r) A_j + r D_{j+1}, r = e**-step and A_j the
        # mass beyond j: sums of positive terms, so that relative errors stay below (4 n + 16) UNIT.
        beyond = np.append(np.cumsum(self.masses[::-1])[::-1][1:], 0.0)
        terms = (-math.expm1(-self.step) * beyond)[::-1]
        sums = np.asarray(scipy.signal.lfilter([1.0], [1.0, -math.exp(-self.step)], terms), dtype=np.float64)[::-1]
        return sums * (1 + (4 * self.masses.size + 16) * UNIT) + self.infinite

    def delta(self, epsilon: float) -> float:
        """The curve at epsilon, rounded up, at most 1."""
        return min(1.0, float(self.deltas(np.array([epsilon]))[0]))

    def deltas(self, epsilons: npt.ArrayLike) -> FloatArray:
        """The curve at any real epsilons, rounded up (not capped at 1)."""
        wanted = np.asarray(epsilons, dtype=np.float64)
        total = float(self.masses.sum()) * (1 + (self.masses.size + 4) * UNIT)
        values = np.concatenate([[total + self.infinite], self._at_grid(), [self.infinite]])
        steps = wanted / self.step
        place = steps - self.start - np.abs(steps) * 4 * UNIT  # a place too low only overstates
        left = np.clip(np.floor(place), -1, self.masses.size - 1).astype(np.int64)
        # Linear in e**epsilon between grid losses; below the grid the left end is e**epsilon = 0.
        into = np.clip(place - left, 0.0, 1.0) * self.step
        share = np.where(left < 0, np.exp(np.minimum(place, 0.0) * self.step), np.expm1(into) / math.expm1(self.step))
        share = np.clip(share * (1 - 2.0**-40), 0.0, 1.0)
        return (values[left + 1] + share * (values[left + 2] - values[left + 1])) * (1 + 8 * UNIT)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at which the curve is at most delta, rounded up; inf if none."""
        if self.infinite > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        grid = np.flatnonzero(self._at_grid() <= delta)
        # The last grid loss has only the infinite mass beyond it; rounding may keep it above delta by an ulp.
        high = (self.start + (int(grid[0]) if grid.size else self.masses.size)) * self.step * (1 + 4 * UNIT)
        low = max(0.0, high - 2 * self.step) if grid.size and grid[0] > 0 else 0.0
        return bracket(lambda epsilon: self._one(epsilon) <= delta, high, low, steps=60)[0]

    def _one(self, epsilon: float) -> float:
        """The curve at one epsilon by its definition, rounded up."""
        first = max(0, math.floor(epsilon / self.step) - self.start)
        losses = (np.arange(first, self.masses.size) + float(self.start)) * self.step
        losses += np.abs(losses) * 2 * UNIT
        gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
        return float(self.masses[first:] @ gains) * (1 + (self.masses.size + 16) * UNIT) + self.infinite


def on_grid(atoms: Atoms, step: float) -> LossDistribution:
    """Connect-the-dots: every atom goes to its two grid neighbours so that both distributions keep their masses.

    The curve is linear in e**epsilon between grid points and meets the atoms' convex curve there: it is at or above it.
    Source: Doroshenko et al. 2022 (Connect the Dots), atom by atom, which avoids its cancellation.
    """
    if atoms.losses.size == 0:
        return LossDistribution(step=step, start=0, masses=np.zeros(1), infinite=atoms.infinite)
    below = np.floor(atoms.losses / step)
    into = np.clip(atoms.losses - below * step, 0.0, step)
    share = np.expm1(-into) / math.expm1(-step)
    # The distance into the cell errs by 4 UNIT |loss|: the share that goes up is raised by more than that.
    share = np.minimum(1.0, share + 8 * UNIT * np.abs(atoms.losses) / step)
    index = below.astype(np.int64)
    start = int(index.min())
    masses = np.zeros(int(index.max()) - start + 2)
    np.add.at(masses, index - start, atoms.masses * (1 - share))
    np.add.at(masses, index - start + 1, atoms.masses * share)
    # The share itself errs by 5 UNIT, products by 2. Masses of one cell are added one by one: each sum may lose a UNIT.
    grow = 1 + (8 + 2 * int(np.bincount(index - start).max())) * UNIT
    return LossDistribution(step=step, start=start, masses=masses * grow, infinite=atoms.infinite)


def composed(atoms: Atoms, count: int, tolerance: float) -> LossDistribution:
    """The `count`-fold composition of what the atoms cover, on a grid that costs at most about `tolerance` nats."""
    used = atoms.trimmed(TAIL / count)
    return on_grid(used, grid_step(used, count, tolerance)).compose(count)


def fits(atoms: Atoms, count: int, tolerance: float) -> bool:
    """Whether `composed` stays within a few times `MAX_POINTS`; beyond that the grid would be coarser than a loss."""
    used = atoms.trimmed(TAIL / count)
    step = grid_step(used, count, tolerance)
    window = min(2 * count * used.largest, 24 * used.deviation * math.sqrt(count) + 40 * used.largest)
    return window <= 4 * MAX_POINTS * step
