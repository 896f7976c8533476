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
        return np.arange(self.start, self.start + self.values.size, dtype=np.float64)


@final
@dataclass(frozen=True, kw_only=True)
class TiltedShare:
    """A chance by its logarithmic odds; so it and its complement have full relative accuracy."""

    odds: float

    @property
    def value(self) -> float:
        """The chance."""
        return float(expit(self.odds))

    @property
    def complement(self) -> float:
        """One minus the chance."""
        return float(expit(-self.odds))

    @property
    def pair(self) -> tuple[float, float]:
        """The chance as a sum of two floats, from which the complement is exact."""
        if self.odds <= 0:
            return self.value, 0.0
        high = 1.0 - self.complement
        return high, (1.0 - high) - self.complement


def cuts_of(values: FloatArray) -> list[slice]:
    """The stretches of finite values between two valleys."""
    finite = np.isfinite(values)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], finite, [False]]).astype(np.int8)))
    cuts: list[slice] = []
    for start, stop in edges.reshape(-1, 2).tolist():
        signs = np.sign(np.diff(values[start:stop]))
        moves = np.flatnonzero(signs)
        is_valley = (signs[moves[:-1]] < 0) & (signs[moves[1:]] > 0)
        valleys = (start + 1 + moves[:-1][is_valley]).tolist()
        bounds = [start, *valleys, stop]
        cuts += [slice(a, b) for a, b in pairwise(bounds)]
    return cuts


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

    def _sizes(self, first: int) -> tuple[int, int]:
        return first, self.records - first

    def _tilted(self, tilt: float) -> tuple[TiltedShare, TiltedShare]:
        first, second = (TiltedShare(odds=float(logit(share)) + tilt) for share in self.shares)
        return first, second

    def _mean(self, tilt: float, first: int) -> float:
        pairs = zip(self._sizes(first), self._tilted(tilt), strict=True)
        return sum(size * share.value for size, share in pairs)

    def _variance(self, tilt: float, first: int) -> float:
        pairs = zip(self._sizes(first), self._tilted(tilt), strict=True)
        return sum(size * share.value * share.complement for size, share in pairs)

    def _log_moment(self, tilt: float, first: int) -> float:
        """log E e^(tilt K)."""
        pairs = zip(self._sizes(first), self.shares, strict=True)
        return sum(size * math.log1p(share * math.expm1(tilt)) for size, share in pairs)

    def _tilt(self, bump: Bump, first: int) -> float:
        """The tilt under which the mean is where chance times delta is largest."""
        tilt = 0.0
        for _ in range(20):
            mean = self._mean(tilt, first)
            variance = max(self._variance(tilt, first), 1.0)
            distances = (bump.counts - mean) ** 2 / (2 * variance)
            peak = bump.counts[int(np.argmax(bump.values - tilt * bump.counts - distances))]
            if abs(peak - mean) <= math.sqrt(variance):
                return tilt
            tilt = self._tilt_to(float(peak), first)
        return tilt

    def _tilt_to(self, count: float, first: int) -> float:
        """The tilt under which the mean is this count, or half a record from an end: the next count matters, too."""
        count = min(max(count, 0.5), self.records - 0.5)
        if self._mean(LARGEST_TILT, first) <= count:
            return LARGEST_TILT
        if self._mean(-LARGEST_TILT, first) >= count:
            return -LARGEST_TILT

        def excess(tilt: float) -> float:
            return self._mean(tilt, first) - count

        root = optimize.brentq(excess, -LARGEST_TILT, LARGEST_TILT, xtol=1e-9)
        return cast(float, root)

    def _law(self, tilt: float, sizes: tuple[int, int]) -> tuple[int, FloatArray]:
        """First count and chances of the tilted sum of two binomials, up to tails of 4 e^-60."""
        start = 0
        law = np.ones(1)
        for size, share in zip(sizes, self._tilted(tilt), strict=True):
            # Bernstein: a distance s with s^2 = 2 x (v + s / 3) is exceeded with chance at most 2 e^-x.
            reach = TAIL_EXPONENT / 3
            mean = size * share.value
            margin = reach + math.sqrt(reach**2 + 2 * TAIL_EXPONENT * mean * share.complement)
            low = max(0, math.floor(mean - margin))
            high = min(size, math.ceil(mean + margin))
            counts = np.arange(low, high + 1, dtype=np.float64)
            chances = np.exp(logarithms.binomials(counts, float(size), share.pair))
            law = np.convolve(law, chances)
            start += low
        return start, law

    def log_means(self, bump: Bump, first: int, last: int) -> FloatArray:
        """(2, last - first + 1) bounds of log E delta(K) from below and above, K from a bump, for each composition."""
        tilt = self._tilt(bump, (first + last) // 2)
        weights = bump.values - tilt * bump.counts
        peak = float(weights.max())
        base_start, base = self._law(tilt, (first, self.records - last))
        width = last - first
        result = np.zeros((2, width + 1))
        for extra in range(width + 1):
            extra_start, kernel = self._law(tilt, (extra, width - extra))
            chances = np.convolve(base, kernel)
            start = base_start + extra_start
            low = max(start, bump.start)
            high = max(low, min(start + chances.size, bump.start + bump.values.size))
            inside = np.exp(weights[low - bump.start : high - bump.start] - peak)
            total = float(chances[low - start : high - start] @ inside)
            scale = self._log_moment(tilt, first + extra) + peak
            with np.errstate(divide="ignore"):
                result[0, extra] = scale + np.log(total)
                # Four tails of the base and four of the kernel, where delta is at most at its peak.
                result[1, extra] = scale + np.log(total + 8 * math.exp(-TAIL_EXPONENT))
        result[0] -= EVALUATION_ERROR
        result[1] += EVALUATION_ERROR
        return result


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
        self.mixture = Mixture(records=self.upper.size - 1, shares=(float(first), float(second)))
        cuts = cuts_of(self.upper)
        self.uppers = [Bump(start=cut.start, values=self.upper[cut]) for cut in cuts]
        self.lowers = [Bump(start=cut.start, values=self.lower[cut]) for cut in cuts]
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
        means = [self.mixture.log_means(bump, first, last)[row] for bump in bumps]
        return np.logaddexp.reduce(means, axis=0)

    def _try(self, first: int, last: int) -> None:
        """Compares the best value with these compositions."""
        values = self._values(self.lowers, 0, first, last)
        position = int(np.argmax(values))
        if values[position] > self.best:
            self.best, self.split = float(values[position]), first + position

    def _mode(self, bump: Bump) -> int:
        """The composition at which a bump's expectation is largest."""
        low, high = 0, self.mixture.records
        if self.shares[0] == self.shares[1]:
            return low
        while low < high:
            middle = (low + high) // 2
            here, following = self.mixture.log_means(bump, middle, middle + 1)[1]
            self.evaluations += 1
            if following > here:
                low = middle + 1
            else:
                high = middle
        return low

    def _bound(self, modes: Sequence[int], first: int, last: int) -> float:
        """Upper bound over the compositions first .. last: each bump at its best there."""
        terms: list[float] = []
        for number, mode in enumerate(modes):
            nearest = min(max(mode, first), last)
            if (number, nearest) not in self._bounds:
                self.evaluations += 1
                mean = self.mixture.log_means(self.uppers[number], nearest, nearest)
                self._bounds[number, nearest] = float(mean[1, 0])
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
        first, last = min(modes), max(modes)
        closed = -math.inf
        heap = [(-self._bound(modes, first, last), first, last)]
        for _ in range(MOST_INTERVALS):
            if not heap or -heap[0][0] <= self.best + TARGET:
                break
            _, first, last = heapq.heappop(heap)
            if last - first <= BLOCK:
                self._try(first, last)
                highest = self._values(self.uppers, 1, first, last).max()
                closed = max(closed, float(highest))
                continue
            middle = (first + last) // 2
            self._try(middle, middle)
            for a, b in ((first, middle), (middle + 1, last)):
                heapq.heappush(heap, (-self._bound(modes, a, b), a, b))
        if heap:
            closed = max(closed, -heap[0][0])
        return closed
