"""The worst composition of two distributions at many records, where delta rises and falls several times.

delta is cut at its valleys into bumps, each rising and then falling. With k of n records from the first distribution, the
expectation of a bump rises and then falls in k as well: its differences are those of the bump averaged by a totally
positive kernel, which adds no change of sign (docs/proofs/smoothed-expected.md). So each bump has one best k, found by
bisection; the sum of all is bounded on an interval of k by each bump's best there, and intervals are halved until the
bound meets the best value, the last ones composition by composition.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import cast, final

import numpy as np
from scipy import optimize
from scipy.special import expit, logit

from mezzotint.core.types import FloatArray
from mezzotint.smoothed import logarithms

TAIL_EXPONENT = 60.0
"""Counts that are left out have at most 2 e^-60 of the tilted chance, for each of two binomials."""
EVALUATION_ERROR = 1e-9
"""Bound on the error of a logarithm of an expectation: of its terms 1e-11 each, of shares that are rounded to floats, and
of the tilt, a product of up to n times 50, rounded once."""
LARGEST_TILT = 50.0
BLOCK = 64
"""Compositions that are evaluated one by one."""
MOST_BUMPS = 8
MOST_INTERVALS = 400
TARGET = 4e-7
"""How near the bound of an interval comes to the best value before it is left."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Bump:
    """log delta at consecutive counts of the first type from `start`: it rises, then falls."""

    start: int
    values: FloatArray

    @cached_property
    def counts(self) -> FloatArray:
        """The counts, as floats."""
        stop = self.start + self.values.size
        return np.arange(self.start, stop, dtype=np.float64)


def _pair(share: float, complement: float) -> tuple[float, float]:
    """A chance as a sum of two floats, from which its complement is exact."""
    if share <= complement:
        return share, 0.0
    high = 1.0 - complement
    return high, (1.0 - high) - complement


def _bumps(values: FloatArray, cuts: Sequence[slice]) -> list[Bump]:
    return [Bump(start=cut.start, values=values[cut]) for cut in cuts]


def cuts_of(values: FloatArray) -> list[slice]:
    """The stretches of finite values between two valleys."""
    is_finite = np.isfinite(values).astype(np.int8)
    is_boundary = np.diff(is_finite, prepend=0, append=0)
    run_edges = np.flatnonzero(is_boundary)
    slices: list[slice] = []
    runs = run_edges.reshape(-1, 2)
    for start, stop in runs.tolist():
        rises = np.diff(values[start:stop])
        signs = np.sign(rises)
        changes = np.flatnonzero(signs)
        falls_before = signs[changes[:-1]] < 0
        rises_after = signs[changes[1:]] > 0
        is_valley = falls_before & rises_after
        valleys = start + 1 + changes[:-1][is_valley]
        bump_edges = [start, *valleys.tolist(), stop]
        slices += [slice(left, right) for left, right in pairwise(bump_edges)]
    return slices


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """The count of the first type among n records, some of which follow one share of it and the others another.

    Arguments:
        records: n.
        shares: of the first type, in the two distributions.
    """

    records: int
    shares: tuple[float, float]

    @cached_property
    def _log_odds(self) -> FloatArray:
        return logit(np.array(self.shares))

    def _sizes(self, first: int) -> FloatArray:
        """(2,) records that follow each share."""
        return np.array([first, self.records - first], dtype=np.float64)

    def _moments(self, tilt: float, first: int) -> tuple[float, float]:
        """Mean and variance of the count under a tilt."""
        odds = self._log_odds + tilt
        means = self._sizes(first) * expit(odds)
        return float(means.sum()), float(means @ expit(-odds))

    def _log_moment(self, tilt: float, first: int) -> float:
        """log E e^(tilt K)."""
        growth = math.expm1(tilt)
        log_moments = np.log1p(np.array(self.shares) * growth)
        return float(self._sizes(first) @ log_moments)

    def _tilt(self, bump: Bump, first: int) -> float:
        """The tilt under which the mean is where chance times delta is largest."""
        tilt = 0.0
        for _ in range(20):
            mean, variance = self._moments(tilt, first)
            variance = max(variance, 1.0)
            deviations = bump.counts - mean
            log_chances = deviations**2 / (2 * variance)
            log_terms = bump.values - tilt * bump.counts - log_chances
            largest = int(np.argmax(log_terms))
            peak = bump.counts[largest]
            if abs(peak - mean) <= math.sqrt(variance):
                return tilt
            tilt = self._tilt_to(float(peak), first)
        return tilt

    def _tilt_to(self, count: float, first: int) -> float:
        """The tilt under which the mean is this count, or half a record from an end: the next count matters, too."""
        highest_mean = self.records - 0.5
        count = min(max(count, 0.5), highest_mean)

        def excess(tilt: float) -> float:
            return self._moments(tilt, first)[0] - count

        if excess(LARGEST_TILT) <= 0:
            return LARGEST_TILT
        if excess(-LARGEST_TILT) >= 0:
            return -LARGEST_TILT
        root = optimize.brentq(excess, -LARGEST_TILT, LARGEST_TILT, xtol=1e-9)
        return cast(float, root)

    def _law(self, tilt: float, sizes: tuple[int, int]) -> tuple[int, FloatArray]:
        """First count and chances of the tilted sum of two binomials, up to tails of 4 e^-60."""
        start = 0
        chances_of_sum = np.ones(1)
        for size, odds in zip(sizes, (self._log_odds + tilt).tolist(), strict=True):
            share, complement = float(expit(odds)), float(expit(-odds))
            # Bernstein: a distance s with s^2 = 2 x (v + s / 3) is exceeded with chance at most 2 e^-x.
            reach = TAIL_EXPONENT / 3
            mean = size * share
            variance = mean * complement
            variance_share = 2 * TAIL_EXPONENT * variance
            margin = reach + math.sqrt(reach**2 + variance_share)
            lowest, highest = math.floor(mean - margin), math.ceil(mean + margin)
            first_count = max(0, lowest)
            last_count = min(size, highest)
            counts = np.arange(first_count, last_count + 1, dtype=np.float64)
            log_chances = logarithms.binomials(counts, float(size), _pair(share, complement))
            chances = np.exp(log_chances)
            chances_of_sum = np.convolve(chances_of_sum, chances)
            start += first_count
        return start, chances_of_sum

    def log_means(self, bump: Bump, first: int, last: int) -> FloatArray:
        """(2, last - first + 1) bounds of log E delta(K) from below and above, K from a bump, for each composition."""
        tails = 8 * math.exp(-TAIL_EXPONENT)
        tilt = self._tilt(bump, (first + last) // 2)
        weights = bump.values - tilt * bump.counts
        peak = float(weights.max())
        sizes = (first, self.records - last)
        base_start, base_chances = self._law(tilt, sizes)
        width = last - first
        bounds = np.zeros((2, width + 1))
        for moved in range(width + 1):
            kernel_sizes = (moved, width - moved)
            kernel_start, kernel = self._law(tilt, kernel_sizes)
            chances = np.convolve(base_chances, kernel)
            start = base_start + kernel_start
            overlap_start = max(start, bump.start)
            bump_end = bump.start + bump.values.size
            common_end = min(start + chances.size, bump_end)
            overlap_end = max(overlap_start, common_end)
            weights_start = overlap_start - bump.start
            overlap_weights = weights[weights_start : overlap_end - bump.start]
            overlap_chances = chances[overlap_start - start : overlap_end - start]
            scaled_weights = np.exp(overlap_weights - peak)
            scaled_mean = float(overlap_chances @ scaled_weights)
            scale = self._log_moment(tilt, first + moved) + peak
            with np.errstate(divide="ignore"):
                bounds[0, moved] = scale + np.log(scaled_mean)
                # Four tails of the base and four of the kernel, where delta is at most at its peak.
                upper_mean = scaled_mean + tails
                bounds[1, moved] = scale + np.log(upper_mean)
        bounds[0] -= EVALUATION_ERROR
        bounds[1] += EVALUATION_ERROR
        return bounds


@final
@dataclass(kw_only=True, eq=False)
class CompositionSearch:
    """The largest expectation over all compositions.

    Arguments:
        lower, upper: (n + 1,) log delta by the count of the first type, from below and above.
        shares: of the first type, in the two distributions.
    """

    lower: FloatArray
    upper: FloatArray
    shares: tuple[Fraction, Fraction]
    evaluations: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        first, second = self.shares
        records = self.upper.size - 1
        float_shares = (float(first), float(second))
        self.mixture = Mixture(records=records, shares=float_shares)
        cuts = cuts_of(self.upper)
        self.uppers = _bumps(self.upper, cuts)
        self.lowers = _bumps(self.lower, cuts)
        self.best = -math.inf
        self.split = 0
        self._bounds: dict[tuple[int, int], float] = {}

    def _values(
        self,
        bumps: Sequence[Bump],
        row: int,
        first: int,
        last: int,
    ) -> FloatArray:
        """Bounds of log E delta(K) over all bumps."""
        self.evaluations += len(bumps)
        bounds = [self.mixture.log_means(bump, first, last) for bump in bumps]
        means = [pair[row] for pair in bounds]
        return np.logaddexp.reduce(means, axis=0)

    def _try(self, first: int, last: int) -> None:
        """Compares the best value with these compositions."""
        values = self._values(bumps=self.lowers, row=0, first=first, last=last)
        position = int(np.argmax(values))
        if values[position] > self.best:
            self.best = float(values[position])
            self.split = first + position

    def _mode(self, bump: Bump) -> int:
        """The composition at which a bump's expectation is largest."""
        low_split = 0
        high_split = self.mixture.records
        if self.shares[0] == self.shares[1]:
            return low_split
        while low_split < high_split:
            middle = (low_split + high_split) // 2
            _, upper_means = self.mixture.log_means(bump, middle, middle + 1)
            self.evaluations += 1
            if upper_means[1] > upper_means[0]:
                low_split = middle + 1
            else:
                high_split = middle
        return low_split

    def _bound(self, modes: Sequence[int], first: int, last: int) -> float:
        """Upper bound over the compositions first .. last: each bump at its best there."""
        terms: list[float] = []
        for number, mode in enumerate(modes):
            nearest = min(max(mode, first), last)
            if (number, nearest) not in self._bounds:
                self.evaluations += 1
                bump = self.uppers[number]
                _, upper_means = self.mixture.log_means(bump, nearest, nearest)
                self._bounds[number, nearest] = float(upper_means[0])
            terms.append(self._bounds[number, nearest])
        return float(np.logaddexp.reduce(terms))

    def run(self) -> float | None:
        """The upper bound; `best` and `split` are the best value and composition. None: too many bumps."""
        if not self.uppers:
            return -math.inf
        if len(self.uppers) > MOST_BUMPS:
            return None
        modes = [self._mode(bump) for bump in self.uppers]
        for mode in dict.fromkeys(modes):
            self._try(mode, mode)
        log_upper = -math.inf
        heap: list[tuple[float, int, int]] = []

        def push(first: int, last: int) -> None:
            bound = self._bound(modes, first, last)
            heapq.heappush(heap, (-bound, first, last))

        push(min(modes), max(modes))
        for _ in range(MOST_INTERVALS):
            if not heap:
                break
            log_bound = -heap[0][0]
            if log_bound <= self.best + TARGET:
                break
            _, first, last = heapq.heappop(heap)
            if last - first <= BLOCK:
                self._try(first, last)
                upper_values = self._values(bumps=self.uppers, row=1, first=first, last=last)
                largest_value = float(upper_values.max())
                log_upper = max(log_upper, largest_value)
                continue
            middle = (first + last) // 2
            self._try(middle, middle)
            push(first, middle)
            push(middle + 1, last)
        if heap:
            log_upper = max(log_upper, -heap[0][0])
        return log_upper
