"""Integer noise that clients add before a secure sum: the exact n-fold convolution, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from mezzotint.core.arguments import check_probability
from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.loss import UNIT
from mezzotint.core.mechanism import TOTAL, FloatArray
from mezzotint.core.search import bracket
from mezzotint.families.noise import IntegerNoise
from mezzotint.privacy.sums.convolution import sum_bounds

kernels: Any = LazyModule("mezzotint.vectors.kernels")

MAX_SHIFT = 4096
"""Largest change of one coordinate, lattice steps, that is gone through."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SummedNoise:
    """Bounds on the pmf of the sum of many clients' noise, on consecutive integers.

    Arguments:
        low, high: (w,) bounds on the probabilities.
        outside: mass outside the window.
        symmetric: whether the pmf is its own mirror image, so that one direction of a shift speaks for both.
    """

    low: FloatArray
    high: FloatArray
    outside: float
    symmetric: bool = False

    def _sides(self, shift: int) -> list[_Side]:
        # P and Q, the pmf and its copy moved by the shift, wherever the window knows both.
        ends = [(slice(shift, None), slice(None, -shift)), (slice(None, -shift), slice(shift, None))]
        return [
            _Side(
                high=self.high[own], low=self.low[own], copy_high=self.high[copy], copy_low=self.low[copy],
                beyond=float((self.high[:shift] if own.start else self.high[-shift:]).sum()) + self.outside,
                copy_beyond=float((self.high[-shift:] if own.start else self.high[:shift]).sum()) + self.outside,
            )
            for own, copy in ends[: 1 if self.symmetric else 2]
        ]  # fmt: skip

    def quadratic_renyi(self, alpha: float, *, shift: int, lost: float) -> tuple[float, float]:
        """kappa and a mass: D_alpha of the noise from itself shifted by s is at most kappa s^2 for all |s| <= shift.

        Arguments:
            alpha: order > 1.
            shift: largest |s|, lattice steps.
            lost: mass that may be cut off; the Renyi divergence is of what is left, the cut mass belongs to delta.

        Returns: (kappa, mass actually cut off per coordinate), both rounded up; kappa is inf when more would be lost.

        Guarantees: exact convolution; no approximation of the sum by a named distribution.
        Source: docs/proofs/vectors.md, "Noise".
        """
        if not 1 < alpha < math.inf:
            raise ParameterError("alpha", alpha, "a finite Renyi order above 1")
        kappa, cut = 0.0, 0.0
        for s in range(1, _checked_shift(shift) + 1):
            if s >= self.low.size:
                return math.inf, 1.0
            for side in self._sides(s):
                power, rest = side.power(alpha)
                if rest > lost:
                    return math.inf, rest
                kappa, cut = max(kappa, power / (alpha - 1) / s**2), max(cut, rest)
        return kappa * (1 + 8 * UNIT), cut * (1 + 64 * UNIT)

    def epsilon(self, delta: float, *, shift: int) -> float:
        """Least epsilon at which no shift by at most `shift` has a hockey-stick divergence above `delta`; rounded up.

        Guarantees: of the exact convolution, worst over all shifts and both directions.
        Edge cases: inf when ends of the support tell inputs apart with more than `delta`.
        """
        check_probability("delta", delta)
        epsilon = 0.0
        # The widest shift first: usually it is the worst, and the others are only looked at.
        for s in range(_checked_shift(shift), 0, -1):
            if s >= self.low.size:
                return math.inf
            for side in self._sides(s):
                if side.delta(epsilon) > delta:
                    epsilon = side.epsilon(delta, epsilon)
        return epsilon


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """A pmf P and its shifted copy Q on the places where the window knows both; what lies beyond has bounded mass."""

    high: FloatArray
    low: FloatArray
    copy_high: FloatArray
    copy_low: FloatArray
    beyond: float
    copy_beyond: float

    def power(self, alpha: float) -> tuple[float, float]:
        """Upper bounds on log sum P^alpha Q^(1 - alpha) where Q > 0 is known, and on the mass of P elsewhere."""
        known = self.copy_low > 0
        rest, copy_rest = self.beyond, self.copy_beyond
        high, low, copy_high, copy_low = self.high, self.low, self.copy_high, self.copy_low
        if not known.all():
            rest += float(high[~known].sum())
            copy_rest += float(copy_high[~known].sum())
            high, low, copy_high, copy_low = (part[known] for part in (high, low, copy_high, copy_low))
        if high.size == 0:
            return math.inf, 1.0
        # With u = P / Q - 1 and h(u) = (1 + u)^alpha - 1 - alpha u the sum over the known places K is
        #   Q(K) + alpha (P(K) - Q(K)) + sum Q h(u) <= 1 + (alpha - 1) Q(not K) + sum Q h(u),
        # free of cancellation; h is convex with h(0) = 0, so an end of the interval that u is known to lie in is worst.
        parts = [np.ascontiguousarray(part) for part in (high, low, copy_high, copy_low)]
        total = _mean_excess(parts, alpha) * (1 + (high.size + 64) * UNIT)
        return math.log1p(total + (alpha - 1) * copy_rest * (1 + 64 * UNIT)) * (1 + 8 * UNIT), rest

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence of P from Q, rounded up."""
        gains = self.high - math.exp(min(epsilon, 700.0)) * (1 - 4 * UNIT) * self.copy_low
        return float(np.maximum(gains, 0.0).sum()) * (1 + (gains.size + 8) * UNIT) + self.beyond

    def epsilon(self, delta: float, least: float) -> float:
        """Least epsilon >= `least` with divergence at most delta, rounded up; inf when there is none below 600."""
        low, high = least, max(1.0, 2 * least)
        while self.delta(high) > delta:
            if high > 600:
                return math.inf
            low, high = high, 2 * high
        return bracket(lambda epsilon: self.delta(epsilon) <= delta, high, low, tolerance=1e-7)[0]


def _mean_excess(parts: list[FloatArray], alpha: float) -> float:
    """sum Q h(u) rounded up but for the summation."""
    small = 0.5 / (alpha + 1)
    # Taylor with Lagrange's remainder for small u: the fourth derivative is at most its larger end's, and its size is
    # taken. The bracket a + b u + c u^2 lies within a factor of 2 of a, so relative errors stay below 64 UNIT.
    second, third = alpha * (alpha - 1) / 2, alpha * (alpha - 1) * (alpha - 2) / 6
    fourth = abs(third * (alpha - 3)) / 4 * math.exp(abs(alpha - 4) * -math.log1p(-small))
    return float(kernels.mean_excess(*parts, alpha, small, second * (1 + 64 * UNIT), third, fourth, UNIT))


def _checked_shift(shift: int) -> int:
    if not 1 <= shift <= MAX_SHIFT:
        remedy = f"one client may move a coordinate by 1 to {MAX_SHIFT} steps; take a coarser granularity"
        raise ParameterError("shift", shift, remedy)
    return int(shift)


def summed_noise(noise: IntegerNoise, clients: int) -> SummedNoise:
    """The noise of `clients` honest clients together, exact but for error bounds that are kept.

    Raises:
        ParameterError: clients < 1.
    """
    if isinstance(clients, bool) or int(clients) != clients or clients < 1:
        raise ParameterError("clients", clients, "need at least one client who adds honest noise")
    bounds = sum_bounds([noise.weights / float(TOTAL)], [[int(clients)]], tail=1e-22)
    symmetric = bool(np.array_equal(noise.weights, noise.weights[::-1]))
    return SummedNoise(low=bounds.low[0], high=bounds.high[0], outside=float(bounds.outside[0]), symmetric=symmetric)


def tail_probability(noise: IntegerNoise, clients: int, distance: float) -> float:
    """Bound on the probability that the noise of `clients` together is more than `distance` steps from its mean.

    Arguments:
        distance: lattice steps.

    Guarantees: Chernoff's bound for the weights as drawn, both tails; never below the truth but for rounding.
    Edge cases: 0 from the end of the sum's support on, 1 for negative distances.
    """
    if distance < 0:
        return 1.0
    odds = noise.weights / float(TOTAL)
    centred = noise.offsets - float(odds @ noise.offsets)
    if distance >= clients * float(np.abs(centred).max()) * (1 + 2.0**-40):
        return 0.0
    variance = float(odds @ centred**2)
    best = 0.0
    # The best tilt for a Gaussian, and around it.
    for tilt in (distance / (clients * variance) * np.geomspace(0.25, 4, 25)).tolist():
        cumulant = max(_log_mean_exp(tilt * centred, odds), _log_mean_exp(-tilt * centred, odds))
        best = min(best, clients * cumulant - tilt * distance)
    return min(1.0, 2 * math.exp(best))


def tail_distance(noise: IntegerNoise, clients: int, probability: float) -> float:
    """A distance, steps, that the noise of `clients` exceeds with at most `probability`: Chernoff, inverted."""
    odds = noise.weights / float(TOTAL)
    centred = noise.offsets - float(odds @ noise.offsets)
    widest = clients * float(np.abs(centred).max())
    if widest == 0:
        return 0.0
    needed = math.log(2 / probability)
    tilt = math.sqrt(2 * needed / (clients * float(odds @ centred**2)))
    found: list[float] = []
    for theta in (tilt * np.geomspace(0.25, 2, 10)).tolist():
        cumulant = max(_log_mean_exp(theta * centred, odds), _log_mean_exp(-theta * centred, odds))
        found.append((clients * cumulant + needed) / theta)
    return min(widest, *found)


def _log_mean_exp(exponents: FloatArray, odds: FloatArray) -> float:
    top = float(exponents.max())
    return top + math.log(float(odds @ np.exp(exponents - top)))
