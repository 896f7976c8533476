"""Privacy profiles: how much is lost and how probably.

A profile is a measure on losses s and on infinity. It stands for the curve
    delta(epsilon) = infinite + sum_s mass_s max(0, 1 - e**(epsilon - s)),
and it *covers* a set of pairs of output distributions when no pair's hockey-stick divergence
exceeds this curve, at any real epsilon. If it covers the pairs of every single release, its
compositions cover all of them together, adaptively chosen releases included (Zhu, Dong and Wang
2022, Theorem 10). Masses need not add up to 1: an excess only overstates.

Everything is computed in plain floats. Losses are rounded up where they are made. What masses may
be off by is one number beside them, `error`; it is added where a delta or an epsilon is read, and
nowhere else (docs/proofs/rounding.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import exp, expm1, floor, fsum, inf, log, log1p, sqrt
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.types import TOTAL, UNIT, FloatArray, IntArray
from mezzotint.privacy.hulls import symmetric_hull, tradeoff_corners
from mezzotint.privacy.sums.convolution import sum_pmf

ROUNDED = 2.0**-48
"""Relative error of masses that a few operations made; losses are raised by so much of their size
(R1)."""

COARSEST = 2.0**-10
"""Profiles with a larger error are not read: epsilon is inf."""

LARGEST = 700.0
"""Losses whose exponentials are floats; curves of larger ones are read at a single epsilon, or
overstated."""

MAX_POINTS = 2**20
"""Most losses of a grid before and after composition, roughly."""

TAIL = 1e-20
"""Mass that a composition may cut off, unless delta is smaller still; all of it is added to
delta."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Losses, their masses, and what floats may be off by.

    Arguments:
        losses: (n,) finite, nats, increasing.
        masses: (n,) >= 0, under the first distribution of a pair.
        infinite: mass of the infinite loss, which is certain disclosure.
        error: with (1 + error) times these masses the profile covers what it is about.

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> profile = mz.privacy.Profile.of_rows(table.weights)
        >>> 0.4 < profile.delta(0.0) < 0.5, 0.9 < profile.epsilon(1e-3) < 1.0
        (True, True)
    """

    losses: FloatArray
    masses: FloatArray
    infinite: float = 0.0
    error: float = ROUNDED

    @staticmethod
    def of_rows(weights: IntArray) -> Profile:
        """The profile of one report, worst over all pairs of rows.

        Of the pair that dominates them all (T7).

        Arguments:
            weights: (K, m) integer rows that sum to 2**32.

        Guarantees: up to the rounding of logarithms the least curve that covers all pairs of inputs
            of the table.
        """
        alarms, misses = tradeoff_corners(weights)
        # Corners are running sums of the pair: a step to the right is mass of the second, a step
        # down of the first.
        first = -np.diff(misses)
        second = np.diff(alarms)
        possible = first > 0
        first = first[possible]
        second = second[possible]
        differences = np.abs(first - second)
        excess = differences / np.minimum(first, second)
        sizes = np.log1p(excess)
        losses = np.where(first >= second, sizes, -sizes)
        certain_detections = TOTAL - int(misses[0])
        return Profile(
            losses=_raised(losses[::-1]),
            masses=first[::-1] / float(TOTAL),
            infinite=certain_detections / TOTAL,
        )

    @staticmethod
    def of_pair(
        first: FloatArray,
        second: FloatArray,
        *,
        outside: float,
        error: float,
    ) -> Profile:
        """The losses above 0 of one ordered pair: enough for its curve at epsilon >= 0.

        Arguments:
            first, second: (n,) masses of the same outputs, each right to a relative `error`.
            outside: mass of the first distribution on other outputs; it counts as certain
                disclosure.

        Guarantees: what both distributions are off by counts at an epsilon as what the first alone
            is, doubled (R2).
        """
        upper_masses = first * (1 + 4 * error + ROUNDED)
        likelier = upper_masses > second
        first = first[likelier]
        second = second[likelier]
        disclosing = second == 0
        infinite = outside + float(first[disclosing].sum())
        first = first[~disclosing]
        second = second[~disclosing]
        return _ordered(
            losses=np.log(first / second),
            masses=first,
            infinite=infinite,
            error=2 * error + ROUNDED,
        )

    @staticmethod
    def of_curve(epsilons: FloatArray, deltas: FloatArray) -> Profile:
        """The symmetric pair of distributions whose curve is the lower hull of upper bounds on one.

        Arguments:
            epsilons: (g,) increasing from 0, at most `LARGEST`.
            deltas: (g,) upper bounds, at these epsilons, on the largest divergence over neighbours,
                both directions.

        Guarantees: the hull is found in rationals. Chords bound the true curve, which is convex in
            e**epsilon.
        """
        # The floats exp(epsilon) are the exact ratios; their logarithms lie within 2 UNIT of
        # epsilon.
        least_so_far = np.minimum.accumulate(deltas)
        decreasing = np.minimum(least_so_far, 1.0)
        ratios = list(map(Fraction, map(exp, epsilons.tolist())))
        bounds = list(map(Fraction, decreasing.tolist()))
        vertices, mirror_slope = symmetric_hull(ratios, bounds)
        slopes = [mirror_slope]
        for start, end in pairwise(vertices):
            fall = bounds[end] - bounds[start]
            run = ratios[end] - ratios[start]
            slopes.append(fall / run)
        slopes.append(Fraction(0))
        # h(c) = sum_{j: c_j > c} (1 - c / c_j) p_j + p_inf: its slope jumps by p_j / c_j at c_j. By
        # symmetry that is also the mass at the mirrored loss. What remains of 1 has loss 0.
        mirrored = [after - before for before, after in pairwise(slopes)]
        jumps = zip(mirrored, vertices, strict=True)
        masses = [jump * ratios[vertex] for jump, vertex in jumps]
        last_vertex = vertices[-1]
        infinite = bounds[last_vertex]
        first_vertex = vertices[0]
        if ratios[first_vertex] == 1:
            del vertices[0], masses[0], mirrored[0]
        total = sum([*masses, *mirrored], infinite)
        remaining = max(Fraction(0), 1 - total)
        mirrored.reverse()
        float_masses = list(map(float, [*mirrored, remaining, *masses]))
        positive_losses = epsilons[vertices]
        negative_losses = -positive_losses[::-1]
        losses = np.concatenate([negative_losses, [0.0], positive_losses])
        return Profile(
            losses=_raised(losses),
            masses=np.array(float_masses),
            infinite=float(infinite),
        )

    @property
    def largest_size(self) -> float:
        """The largest absolute value of a finite loss, be it a gain or a loss."""
        sizes = np.abs(self.losses)
        return float(sizes.max(initial=0.0))

    @property
    def deviation(self) -> float:
        """Standard deviation of the finite losses."""
        total = float(self.masses.sum())
        if total == 0:
            return 0.0
        mean = float(self.masses @ self.losses) / total
        squares = (self.losses - mean) ** 2
        variance = float(self.masses @ squares) / total
        return sqrt(variance)

    # Reading: the only place where errors count

    @property
    def _slack(self) -> float:
        """The error of the masses, and of sums over them (R3)."""
        terms = self.masses.size + 64
        return (1 + COARSEST) * self.error + 4 * terms * UNIT

    def deltas(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Upper bounds on the curve at any real epsilons, the error added.

        Constant beyond `LARGEST`.
        """
        points = np.asarray(epsilons, dtype=np.float64)
        if self.error > COARSEST:
            return np.ones_like(points)
        slack = self._slack
        lowering = slack * (1 + np.abs(points))
        shifted = np.minimum(points - lowering, LARGEST)
        first_larger = np.searchsorted(self.losses, shifted, side="right")
        first_sums = _sums_from(self.masses)[first_larger]
        second_sums = _sums_from(self._second_masses)[first_larger]
        upper_first = first_sums * (1 + slack)
        curve = upper_first - np.exp(shifted) * second_sums
        certain = self.infinite * (1 + slack)
        bounds = np.maximum(curve, 0.0) + certain
        return np.minimum(bounds, 1.0)

    @property
    def _second_masses(self) -> FloatArray:
        """(n,) masses of the same outputs under the second distribution of a pair."""
        exponents = np.minimum(-self.losses, LARGEST)
        return self.masses * np.exp(exponents)

    def delta(self, epsilon: float) -> float:
        """An upper bound on the curve at epsilon, the error added."""
        if self.error > COARSEST:
            return 1.0
        slack = self._slack
        lowered = epsilon - slack * (1 + abs(epsilon))
        curve = self._above(lowered) + self.infinite
        return min(curve * (1 + slack), 1.0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at which the curve is at most delta, the error added.

        inf if there is none.
        """
        slack = self._slack
        target = delta / (1 + slack) - self.infinite
        if self.error > COARSEST or target < 0:
            return inf
        if self._above(-slack) <= target:
            return 0.0
        losses = self.losses
        # The first loss at which the curve has come down to the target: at the last one it is 0.
        too_small = self._first_larger(-slack) - 1
        sufficient = losses.size - 1
        while sufficient - too_small > 1:
            middle = (too_small + sufficient) // 2
            middle_delta = self._above(losses[middle])
            if middle_delta <= target:
                sufficient = middle
            else:
                too_small = middle
        # Between two losses the curve is A - e**epsilon B.
        next_loss = float(losses[sufficient])
        larger_losses = losses[sufficient:]
        larger_masses = self.masses[sufficient:]
        likelihoods = np.exp(next_loss - larger_losses)
        second_mass = float(larger_masses @ likelihoods)
        allowance = target - self._above(next_loss)
        solution = -slack
        if too_small >= 0:
            previous_loss = float(losses[too_small])
            solution = max(solution, previous_loss)
        if allowance < second_mass:
            log_remainder = log1p(-allowance / second_mass)
            solution = max(solution, next_loss + log_remainder)
        return solution + slack * (1 + abs(solution))

    @property
    def corners(self) -> tuple[FloatArray, FloatArray]:
        """(c,) false-alarm rates from 0 to 1, and the greatest detection rate of any attack at each.

        Detection is concave, and linear between two corners.
        Source: Dong, Roth and Su 2022, Proposition 2.5.
        """
        # Of the tests that reject where the loss is large, the strictest first.
        strictest_alarms = self._second_masses[::-1]
        strictest_detections = self.masses[::-1]
        alarm_sums = np.cumsum(strictest_alarms)
        detection_sums = np.cumsum(strictest_detections)
        alarms = np.append(0.0, alarm_sums)
        detections = np.append(0.0, detection_sums) + self.infinite
        has_other_outputs = alarms[-1] < 1 - self._slack  # the second distribution
        if has_other_outputs:
            alarms = np.append(alarms, 1.0)
            detections = np.append(detections, detections[-1])
        alarms[-1] = 1.0
        return alarms, np.minimum(detections, 1.0)

    def power(self, false_alarm: float) -> float:
        """Largest probability that an attack detects the other input at this false-alarm rate.

        The error is added.

        Raises:
            ParameterError: false_alarm outside [0, 1] or NaN.

        Guarantees: at most e**epsilon * false_alarm + delta(epsilon) for every epsilon, up to the
            error.
        """
        if not 0 <= false_alarm <= 1:
            raise ParameterError("false_alarm", false_alarm, "a probability lies between 0 and 1")
        alarms, detections = self.corners
        detection = float(np.interp(false_alarm, alarms, detections))
        return min(1.0, detection * (1 + self._slack))

    def _above(self, epsilon: float) -> float:
        """The curve of the finite losses by its definition: positive terms, free of cancellation."""
        first_larger = self._first_larger(epsilon)
        larger_losses = self.losses[first_larger:]
        larger_masses = self.masses[first_larger:]
        shares = -np.expm1(epsilon - larger_losses)
        return float(larger_masses @ shares)

    def _first_larger(self, epsilon: float) -> int:
        """The index of the first loss above epsilon."""
        return int(np.searchsorted(self.losses, epsilon, side="right"))

    # Taking part at random

    def sampled(
        self,
        rate: float,
        *,
        seen: bool,
        neighboring: str,
    ) -> list[Profile]:
        """The same releases if they happen with a probability only; the worst profile counts.

        Arguments:
            rate: in (0, 1]; below 1 where a record is added or removed in secret.
            seen: whether everybody sees who took part.
            neighboring: "replace_one", or in secret also "add_or_remove_one".
        """
        if seen:
            return [self._seen(rate)]
        if neighboring == "replace_one":
            return [self._replaced(rate)]
        if rate >= 1:
            raise ParameterError(
                "sampling_rate",
                rate,
                "a record that takes part for certain is not hidden; need < 1",
            )
        return [self._added(rate), self._removed(rate)]

    def _seen(self, rate: float) -> Profile:
        """HS_c(r P + (1 - r) a || r Q + (1 - r) a) = r HS_c(P || Q) + (1 - r) max(0, 1 - c).

        a is "absent".
        """
        return _ordered(
            losses=np.append(self.losses, 0.0),
            masses=np.append(self.masses * rate, 1 - rate),
            infinite=self.infinite * rate,
            error=self.error + ROUNDED,
        )

    def _replaced(self, rate: float) -> Profile:
        """A record takes part with secret probability `rate`; neighbours replace it by another
        record.

        With A the output without the record, the pairs are (1 - r) A + r P against (1 - r) A + r Q.
        Advanced joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2): for c >= 1 and c' = 1
        + r (c - 1), HS_c'(..) = r HS_c(P || (1 - b) A + b Q) with b = c'/c, at most r h(c) as (P,
        A) and (P, Q) are both covered. For c' < 1 the mirrored pair is used: HS_c(P || Q) = 1 - c +
        c HS_{1/c}(Q || P).
        """
        positive = self.losses > 0
        losses = self.losses[positive]
        masses = self.masses[positive]
        # r h(1 + (c' - 1)/r) has its kinks at c' = 1 + r (e**s - 1) with the same second masses
        # e**-s mass.
        mixed_losses = _mixed_losses(losses, rate)
        likelihoods = np.exp(-losses)  # of the second distribution against the first
        mixture = rate + (1 - rate) * likelihoods
        first = masses * mixture
        second = masses * likelihoods
        infinite = self.infinite * rate
        error = self.error + ROUNDED
        finite_masses = np.concatenate([first, second])
        total = fsum([*finite_masses.tolist(), infinite])
        remaining = max(0.0, 1.0 - total)
        size = 1 + self.largest_size
        upper_losses = _raised(mixed_losses, size)
        upper_mirrored = _raised(-mixed_losses, size)
        return _ordered(
            losses=np.concatenate([upper_losses, upper_mirrored, [0.0]]),
            masses=np.append(finite_masses, remaining + error),
            infinite=infinite,
            error=error,
        )

    def _added(self, rate: float) -> Profile:
        """The record is there in the first output and absent in the second.

        HS_c((1 - r) Q + r P || Q) = r HS_{1 + (c - 1)/r}(P || Q) for c >= 1 - r, and 1 - c below.
        """
        second = self._second_masses
        error = self.error + ROUNDED
        second_mass = fsum(second.tolist())
        missing = max(0.0, 1.0 - second_mass) + error
        absent_loss = log1p(-rate)
        losses = np.append(_mixed_losses(self.losses, rate), absent_loss)
        mixed_masses = rate * self.masses + (1 - rate) * second
        return _ordered(
            losses=_raised(losses, 1 + self.largest_size),
            masses=np.append(mixed_masses, (1 - rate) * missing),
            infinite=self.infinite * rate,
            error=error,
        )

    def _removed(self, rate: float) -> Profile:
        """The record is absent in the first output and there in the second.

        HS_c(Q || (1 - r) Q + r P) = sum over losses s of Q against P of
            mass_s max(0, 1 - c (1 - r + r e**-s)).
        A profile covers its pair in both orders, so P and Q may change places; r < 1.
        """
        ceiling = -log1p(-rate)
        mixed_losses = -_mixed_losses(-self.losses, rate)
        capped = np.minimum(mixed_losses, ceiling)
        losses = np.append(capped, ceiling)
        masses = np.append(self.masses, self.infinite)
        return _ordered(
            losses=_raised(losses, 1 + self.largest_size),
            masses=masses,
            infinite=0.0,
            error=self.error + ROUNDED,
        )

    # Composition

    def compose(
        self,
        count: int,
        tolerance: float,
        *,
        tail: float = TAIL,
    ) -> Profile | None:
        """`count` releases together, each covered by this profile.

        Arguments:
            tolerance: what the grid of losses may cost in all, nats.
            tail: mass that may be cut off; it is added to delta.

        Returns: their profile; None where a few times `MAX_POINTS` do not hold it.
        """
        if count < 1:
            raise ParameterError("releases", count, "need at least one release")
        if count == 1 or not self.masses.any():
            return self._repeated(count)
        trimmed = self._trimmed(tail / count)
        step = grid_step(trimmed, count, tolerance)
        if window(trimmed, count) > 4 * MAX_POINTS * step:
            return None
        single = trimmed._on_grid(step)
        return single._power(count, step, tail)

    def _repeated(self, count: int) -> Profile:
        """This profile `count` times, where no finite loss has mass or it is taken once."""
        if count == 1:
            return self
        infinite = 1.0
        if self.infinite < 1:
            log_finite = count * log1p(-self.infinite)
            infinite = -expm1(log_finite)
        return replace(self, infinite=infinite, error=count * self.error)

    def _trimmed(self, tail: float) -> Profile:
        """The same without the rarest extremes.

        At most `tail` of mass at each end moves to a larger loss. Grids are as wide as the largest
        loss; what hardly ever happens shall not decide how fine they can be.
        """
        upper_tails = _sums_from(self.masses)[:-1]
        lower_tails = np.cumsum(self.masses)
        end = int(np.searchsorted(-upper_tails, -tail, side="left"))
        first = int(np.searchsorted(lower_tails, tail, side="right"))
        if end <= first:
            return self
        least_loss = self.losses[first]
        largest_masses = self.masses[end:]
        upper_tail = float(largest_masses.sum())
        summation_error = self.masses.size * UNIT
        return replace(
            self,
            losses=np.maximum(self.losses[:end], least_loss),
            masses=self.masses[:end],
            infinite=self.infinite + upper_tail,
            error=self.error + summation_error,
        )

    def _on_grid(self, step: float) -> Profile:
        """Connect-the-dots: every atom goes to its two grid neighbours.

        Both distributions keep their masses. The curve is linear in e**epsilon between grid points and
        meets the convex curve of the atoms there: it is at or above it.
        Source: Doroshenko et al. 2022, atom by atom, which avoids its cancellation.
        """
        losses = _raised(self.losses)
        multiples = np.floor(losses / step)
        remainders = losses - multiples * step
        distances = np.clip(remainders, 0.0, step)
        real_shares = np.expm1(-distances) / expm1(-step)
        upper_shares = np.minimum(real_shares, 1.0)
        lower_shares = 1 - upper_shares
        indices = multiples.astype(np.int64)
        start = int(indices.min())
        positions = indices - start
        largest_position = int(positions.max())
        masses = np.zeros(largest_position + 2)
        lower_masses = self.masses * lower_shares
        upper_masses = self.masses * upper_shares
        np.add.at(masses, positions, lower_masses)
        np.add.at(masses, positions + 1, upper_masses)
        atom_counts = np.bincount(positions)
        additions = 2 * int(atom_counts.max())
        return Profile(
            losses=_grid(start, masses.size, step),
            masses=masses,
            infinite=self.infinite,
            error=self.error + ROUNDED + additions * UNIT,
        )

    def _power(
        self,
        count: int,
        step: float,
        tail: float,
    ) -> Profile:
        """The sum of `count` independent losses on the grid of this step."""
        total = fsum(self.masses.tolist())
        shares = self.masses / total
        summed = sum_pmf([shares], [[count]], tail=tail, from_above=True)
        # Every term of (total + infinite)**count but total**count has an infinite loss in it.
        log_scale = count * log(total)
        scale = exp(min(LARGEST, log_scale))
        growth = count * log1p(self.infinite / total)
        certain = scale * expm1(min(1.0, growth))
        if growth > 1:
            log_all = count * log(total + self.infinite)
            certain = exp(log_all) - scale
        (pmf,) = summed.pmf
        (window_start,) = summed.start.tolist()
        (outside,) = summed.outside.tolist()
        positive = np.flatnonzero(pmf)
        start = 0
        end = 1
        if positive.size:
            start = int(positive[0])
            end = int(positive[-1]) + 1
        smallest_loss = float(self.losses[0])
        smallest = round(smallest_loss / step)  # in steps, of one release
        first = smallest * count + window_start + start
        masses = pmf[start:end] * scale
        cut_mass = scale * outside
        return Profile(
            losses=_grid(first, masses.size, step),
            masses=masses,
            infinite=cut_mass + certain,
            error=count * (self.error + ROUNDED) + summed.error,
        )


def _grid(first: int, size: int, step: float) -> FloatArray:
    """(size,) consecutive multiples of a step."""
    multiples = first + np.arange(size, dtype=np.float64)
    return multiples * step


def _raised(losses: FloatArray, size: float | FloatArray = 1.0) -> FloatArray:
    """Losses, and what they may be off by.

    A few units of their own size, and of the `size` they were made from.
    """
    total_size = size + np.abs(losses)
    return losses + ROUNDED * total_size


def _ordered(
    losses: FloatArray,
    masses: FloatArray,
    infinite: float,
    error: float,
) -> Profile:
    """The profile of losses in any order, nats, with their masses; `error` is relative, of each
    mass.
    """
    order = np.argsort(losses)
    return Profile(
        losses=losses[order],
        masses=masses[order],
        infinite=infinite,
        error=error,
    )


def _sums_from(values: FloatArray) -> FloatArray:
    """(n + 1,) sums of the entries from each place on; 0 at the end."""
    last_first = values[::-1]
    sums = np.cumsum(last_first)
    return np.append(sums[::-1], 0.0)


def _mixed_losses(losses: FloatArray, rate: float) -> FloatArray:
    """log(1 + rate (e**s - 1)) without overflow."""
    clipped = np.clip(losses, -1.0, 1.0)
    near_zero = np.log1p(rate * np.expm1(clipped))
    positive = np.maximum(losses, 0.0)
    # For s > 0: s + log(rate + (1 - rate) e**-s).
    present = rate * np.exp(losses - positive)
    absent = (1 - rate) * np.exp(-positive)
    elsewhere = positive + np.log(present + absent)
    is_large = np.abs(losses) > 1.0
    return np.where(is_large, elsewhere, near_zero)


def window(profile: Profile, count: int) -> float:
    """How wide the losses of `count` releases together are, but for their rarest extremes, nats."""
    largest = profile.largest_size
    deviation = profile.deviation * sqrt(count)
    likely = 24 * deviation + 40 * largest
    return min(2 * count * largest, likely)


def grid_step(profile: Profile, count: int, tolerance: float) -> float:
    """A step for `count`-fold composition, as fine as memory allows.

    No finer than `tolerance` (nats, in all) asks for. The largest loss is a multiple of it, so that
    the extreme releases stand on the grid exactly.
    """
    largest = profile.largest_size
    if largest == 0:
        return 1.0
    # Moving an atom to its two grid neighbours adds at most step**2 / 8 to its mean and step**2 / 4
    # to its variance. In all that is count step**2 / 8 and, some 8 deviations out, sqrt(count)
    # step**2 / deviation more.
    deviation = max(profile.deviation, largest / 1e6)
    drift = count / 8 + sqrt(count) / deviation
    coarsest = min(sqrt(tolerance / drift), largest / 64)
    widest = max(window(profile, count), 2 * largest)
    finest = widest / MAX_POINTS
    step_count = floor(largest / max(coarsest, finest))
    return largest / max(1, step_count)
