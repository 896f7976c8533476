"""Privacy loss distributions on a grid, and hockey-stick curves: built from exact atoms, rounded against us, composed.

A loss distribution puts mass on losses s (and on infinity) and speaks for the curve
    delta(epsilon) = infinite + sum_s mass_s max(0, 1 - e**(epsilon - s)).
It *covers* a set of pairs of output distributions when no pair's hockey-stick divergence exceeds this curve, at any
real epsilon. If it covers the pairs of every single release, its convolutions cover all of them together, adaptively
chosen releases included (Zhu, Dong and Wang 2022, Theorem 10). Masses need not add up to 1: an excess only overstates.

Random participation: loss distributions of sampled releases from those of certain ones. The covered set is symmetric:
with every pair (P, Q) it holds (Q, P). Let h be the covering curve as a function of c = e**epsilon,
h(c) >= sup HS_c(P || Q). And Renyi divergences of such releases, turned into an epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TypeVar, final

import numpy as np
import numpy.typing as npt
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.arguments import check_delta
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import float_above
from mezzotint.core.search import bracket
from mezzotint.core.types import UNIT, FloatArray
from mezzotint.privacy.sums.convolution import sum_bounds

Number = TypeVar("Number", int, float, Fraction)

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

    def window(self, count: int) -> float:
        """How wide the losses of `count` releases together are, but for their rarest extremes."""
        likely = 24 * self.deviation * math.sqrt(count) + 40 * self.largest
        return min(2 * count * self.largest, likely)

    def trimmed(self, tail: float) -> Atoms:
        """The same without the rarest extremes: at most `tail` of mass at each end moves to a larger loss.

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
        return Atoms(
            losses=kept,
            masses=masses[:last],
            infinite=infinite if last < masses.size else self.infinite,
        )


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
    least = max(atoms.window(count), 2 * largest) / MAX_POINTS
    return largest / max(1, math.floor(largest / max(wanted, least)))


def _power_above(base: float, count: int) -> float:
    """base**count for base > 0, rounded up; a relative (8 + |log base|) 8 count UNIT at most above."""
    exponent = count * math.log(base)
    return math.exp(min(700.0, exponent + (abs(exponent) + count + 1) * 4 * UNIT))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class LossDistribution:
    """Masses on the losses (start + i) * step, and on infinity.

    The step is in nats, the start the first loss over the step, the masses (n,) numbers >= 0.
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
        return Atoms(
            losses=losses + np.abs(losses) * 2 * UNIT,
            masses=self.masses[used],
            infinite=self.infinite,
        )

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
        masses = single[kept] * (scale * (1 + 4 * UNIT))
        return LossDistribution(
            step=self.step, start=first + int(used[0]), masses=masses, infinite=infinite
        )

    def _at_grid(self) -> FloatArray:
        """(n,) the curve at the losses of the grid, rounded up."""
        # D_j = sum_{s > j} mass_s (1 - e**((j - s) step)) obeys D_j = (1 - r) A_j + r D_{j+1}, r = e**-step and A_j the
        # mass beyond j: sums of positive terms, so that relative errors stay below (4 n + 16) UNIT.
        beyond = np.append(np.cumsum(self.masses[::-1])[::-1][1:], 0.0)
        terms = (-math.expm1(-self.step) * beyond)[::-1]
        sums = np.asarray(
            scipy.signal.lfilter([1.0], [1.0, -math.exp(-self.step)], terms), dtype=np.float64
        )[::-1]
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
        share = np.where(
            left < 0,
            np.exp(np.minimum(place, 0.0) * self.step),
            np.expm1(into) / math.expm1(self.step),
        )
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
        high = (
            (self.start + (int(grid[0]) if grid.size else self.masses.size))
            * self.step
            * (1 + 4 * UNIT)
        )
        low = max(0.0, high - 2 * self.step) if grid.size and grid[0] > 0 else 0.0
        return bracket(lambda epsilon: self._one(epsilon) <= delta, high, low, steps=60)[0]

    def _one(self, epsilon: float) -> float:
        """The curve at one epsilon by its definition, rounded up."""
        first = max(0, math.floor(epsilon / self.step) - self.start)
        losses = (np.arange(first, self.masses.size) + float(self.start)) * self.step
        losses += np.abs(losses) * 2 * UNIT
        gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
        return (
            float(self.masses[first:] @ gains) * (1 + (self.masses.size + 16) * UNIT)
            + self.infinite
        )


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


def composed(atoms: Atoms, count: int, tolerance: float) -> LossDistribution | None:
    """The `count`-fold composition of what the atoms cover, on a grid that costs at most about `tolerance` nats.

    None where a few times `MAX_POINTS` do not hold it: the grid would be coarser than a loss.
    """
    used = atoms.trimmed(TAIL / count)
    step = grid_step(used, count, tolerance)
    return (
        None if used.window(count) > 4 * MAX_POINTS * step else on_grid(used, step).compose(count)
    )


_UP = 8 * UNIT


def revealed(atoms: Atoms, rate: float) -> Atoms:
    """Takes part with probability `rate`, and everyone sees whether: the pairs become rate P + (1 - rate) [absent].

    HS_c(rate P + (1 - rate) a || rate Q + (1 - rate) a) = rate HS_c(P || Q) + (1 - rate) max(0, 1 - c) exactly.
    """
    return Atoms(
        losses=np.append(atoms.losses, 0.0),
        masses=np.append(atoms.masses * (rate * (1 + _UP)), (1 - rate) * (1 + _UP)),
        infinite=atoms.infinite * rate * (1 + _UP),
    )


def _tilted_loss(losses: FloatArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """log(1 + rate (e**s - 1)) without overflow, and what it may be off by."""
    # log1p enlarges relative errors 1.8 times at most down to -1.
    near = np.log1p(rate * np.expm1(np.clip(losses, -1.0, 1.0)))
    high = np.maximum(losses, 0.0)
    # For s > 0: s + log(rate + (1 - rate) e**-s). The logarithm errs by (4 + s) UNIT, the sum by as much again.
    far = high + np.log(rate * np.exp(losses - high) + (1 - rate) * np.exp(-high))
    is_far = np.abs(losses) > 1.0
    found = np.where(is_far, far, near)
    return found, np.where(is_far, (16 + 4 * high) * UNIT, 0.0) + np.abs(found) * _UP


def poisson_replace_one(atoms: Atoms, rate: float) -> Atoms:
    """A record takes part with secret probability `rate`; neighbours replace it by another record.

    With A the output without the record, the pairs are (1 - rate) A + rate P against (1 - rate) A + rate Q. Advanced
    joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2): for c >= 1 and c' = 1 + rate (c - 1),
    HS_c'(..) = rate HS_c(P || (1 - b) A + b Q) with b = c'/c, at most rate h(c) as (P, A) and (P, Q) are both covered.
    For c' < 1 the mirrored pair is used: HS_c(P || Q) = 1 - c + c HS_{1/c}(Q || P).
    """
    positive = atoms.losses > 0
    losses, masses = atoms.losses[positive], atoms.masses[positive]
    # rate h(1 + (c' - 1)/rate) has its kinks at c' = 1 + rate (e**s - 1) with the same second masses e**-s mass.
    moved, error = _tilted_loss(losses, rate)
    second = masses * np.exp(-losses) * (1 + _UP)
    first = masses * (rate + (1 - rate) * np.exp(-losses)) * (1 + _UP)
    infinite = atoms.infinite * rate * (1 + _UP)
    rest = 1.0 - math.fsum([*first.tolist(), *second.tolist(), infinite])
    return Atoms(
        losses=np.concatenate([moved + error, error - moved, [0.0]]),
        masses=np.concatenate([first, second, [max(0.0, rest) + UNIT]]),
        infinite=infinite,
    )


def poisson_add(atoms: Atoms, rate: float) -> Atoms:
    """Secret participation; the record is there in the first output and absent in the second.

    HS_c((1 - rate) Q + rate P || Q) = rate HS_{1 + (c - 1)/rate}(P || Q) for c >= 1 - rate, and 1 - c below.
    """
    second = atoms.masses * np.exp(-np.minimum(atoms.losses, 700.0))
    missing = max(
        0.0, 1.0 - math.fsum(second.tolist())
    )  # off by a unit, which all masses' allowances together exceed
    moved, error = _tilted_loss(atoms.losses, rate)
    return Atoms(
        losses=np.append(moved + error, math.log1p(-rate) * (1 - _UP)),
        masses=np.append(
            (rate * atoms.masses + (1 - rate) * second) * (1 + _UP),
            (1 - rate) * missing * (1 + _UP),
        ),
        infinite=atoms.infinite * rate * (1 + _UP),
    )


def poisson_remove(atoms: Atoms, rate: float) -> Atoms:
    """Secret participation; the record is absent in the first output and there in the second.

    HS_c(Q || (1 - rate) Q + rate P) = sum over atoms s of Q against P of mass_s max(0, 1 - c (1 - rate + rate e**-s)).
    """
    most = -math.log1p(-rate) * (1 + _UP)
    moved, error = _tilted_loss(-atoms.losses, rate)
    return Atoms(
        losses=np.append(np.minimum(error - moved, most), most),
        masses=np.append(atoms.masses, atoms.infinite),
        infinite=0.0,
    )


def rdp_to_epsilon(divergence: float, alpha: float, delta: float) -> float:
    """Epsilon at `delta` > 0, rounded up, where the Renyi divergence of order `alpha` > 1 is at most `divergence`.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12.
    """
    left, odds = math.log1p(-1 / alpha), math.log(delta) + math.log(alpha)
    # Near order 1 the roundings of 1 / alpha and of the logarithms count 1 / (alpha - 1) times.
    size = abs(divergence) + abs(left) + (abs(math.log(delta)) + math.log(alpha) + 1) / (alpha - 1)
    return max(0.0, divergence + left - odds / (alpha - 1) + size * 8 * UNIT)


def rdp_public_sampling(divergence: float, alpha: float, rate: float) -> float:
    """Renyi divergence of a release that happens with probability `rate`, visibly; rounded up.

    An absence that everybody sees has likelihood ratio 1: log(1 - rate + rate e**((alpha - 1) D)) / (alpha - 1).
    """
    # Rounded up itself: where rate * e**power is about 1, its error counts `power` times.
    power = (alpha - 1) * divergence * (1 + 4 * UNIT)
    if rate == 1 or power >= 700:
        return divergence
    return math.log1p(rate * math.expm1(power)) / (alpha - 1) * (1 + 16 * UNIT)


_LIFT = 1 + 2.0**-40
"""Factor that covers the few roundings of an interpolation, and more."""


MAX_EPSILON = 600.0
"""Curves end here: e**epsilon must stay a float. A larger finite epsilon is reported as inf."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HockeyStick:
    """Upper bounds on sup over neighbours of the hockey-stick divergence, both directions, for epsilon >= 0.

    (g,) epsilons increase from 0, the last may be inf; (g,) deltas are the bounds there. The true curve is convex in
    e**epsilon, so chords between grid points bound it, and so does the lower convex hull of the points, which is kept.
    """

    epsilons: FloatArray
    deltas: FloatArray

    def __post_init__(self) -> None:
        epsilons = np.array(self.epsilons, dtype=np.float64)
        deltas = np.minimum(np.array(self.deltas, dtype=np.float64), 1.0)
        if (
            epsilons.ndim != 1
            or epsilons.size < 1
            or epsilons.shape != deltas.shape
            or epsilons[0] != 0
        ):
            raise ParameterError(
                "epsilons", epsilons.shape, "need a 1-D grid from 0 with one delta per point"
            )
        if (np.diff(epsilons) <= 0).any() or not (deltas >= 0).all():
            raise ParameterError(
                "epsilons", "grid", "the grid increases and deltas are probabilities"
            )
        if bool((epsilons[np.isfinite(epsilons)] > MAX_EPSILON).any()):
            raise ParameterError(
                "epsilons", float(epsilons[-1]), f"at most {MAX_EPSILON}, or inf as the last"
            )
        kept = _lower_hull(np.expm1(epsilons), np.minimum.accumulate(deltas))
        for name, values in (
            ("epsilons", epsilons[kept]),
            ("deltas", np.minimum.accumulate(deltas)[kept]),
        ):
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
            chords = (
                np.interp(np.expm1(reach), np.expm1(self.epsilons[finite]), self.deltas[finite])
                * _LIFT
            )
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
        return min(math.log1p(left + share * (right - left)) * _LIFT, float(self.epsilons[j]))

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


def hull(x: Sequence[Number], y: Sequence[Number]) -> list[int]:
    """Indices of the lower convex hull of points in the order of x, in the numbers' own arithmetic.

    Of points with the same x the last one counts, which must be the lowest.
    """
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) >= 2:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        if kept and x[kept[-1]] == x[i]:
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
    # Neighbouring grid points may share one float exponential: the later, smaller bound stands for both.
    kept = hull(ratios, deltas)
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
    if math.isinf(x[-1]):
        return np.array([*hull(x[:-1].tolist(), y[:-1].tolist()), x.size - 1], dtype=np.intp)
    kept = np.arange(x.size)
    for _ in range(_PASSES):
        # What lies on or above the chord of its neighbours is not a vertex; where nothing does, all are.
        across, up = np.diff(x[kept]), np.diff(y[kept])
        convex = up[:-1] * across[1:] < up[1:] * across[:-1]
        if convex.all():
            return kept
        kept = kept[np.concatenate([[True], convex, [True]])]
    return kept[hull(x[kept].tolist(), y[kept].tolist())]
