"""Smoothed delta for three or more types: exact by enumeration when small, else a rigorous bracket or sampling."""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzotint.smoothed import kernels
from mezzotint.smoothed.model import LOG_TEN, Distribution, Loss, Sample, split
from mezzotint.smoothed.profiles import histogram_profile, log_pair
from mezzotint.smoothed.two_types import log_tail, search

#: Enumeration is chosen when its cells (histograms, times steps over all compositions) stay below this.
MAX_ENUMERATION = 40_000_000
#: ... and when the rarest counts form at most this many pairs to evaluate.
MAX_PAIRS = 4000
#: Blocks of counts that the upper bracket is refined to at most.
MAX_BLOCKS = 96


@dataclass(frozen=True, kw_only=True)
class Range:
    """Natural logarithms of the best value found and of rigorous bounds, with the composition that gave it."""

    log_value: float
    log_lower: float
    log_upper: float
    split: tuple[int, ...]


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as an ordered sum of `parts` counts."""
    if parts == 1:
        yield (total,)
        return
    for head in range(total + 1):
        for tail in compositions(total - head, parts - 1):
            yield (head, *tail)


def enumerable(records: int, vertices: tuple[Distribution, ...]) -> bool:
    """Whether every histogram and every composition can be enumerated in seconds."""
    types = len(vertices[0])
    cells = (records + 1) ** (types - 1)
    steps = math.comb(records + len(vertices) - 1, len(vertices) - 1) * records * types
    return cells * steps <= MAX_ENUMERATION * 10 and (records // types + 1) * (records // 2 + 1) <= MAX_PAIRS


def enumerate_all(sample: Sample, loss: Loss, vertices: tuple[Distribution, ...]) -> Range:
    """The exact maximum over all compositions of n records among the vertices.

    V(h) starts as delta(h) on histograms of n records; one more record of distribution p turns it into
    sum_i p_i V(h + e_i) on histograms of one record less.
    """
    n, types = sample.records, len(vertices[0])
    values, error = _delta_grid(sample, loss, types)
    best, where = -1.0, (0,) * len(vertices)
    stack: list[tuple[np.ndarray, int, tuple[int, ...]]] = [(values, n, ())]
    while stack:
        grid, left, chosen = stack.pop()
        vertex = len(chosen)
        if vertex == len(vertices) - 1:
            value = float(_mixed(grid, left, left, vertices[vertex]).ravel()[0])
            if value > best:
                best, where = value, (*chosen, left)
            continue
        for count in range(left + 1):
            stack.append((grid, left - count, (*chosen, count)))
            grid = _mixed(grid, left - count, min(1, left - count), vertices[vertex])
    slack = error + 2.0**-52 * (n * (types + 2) + 8)
    value = math.log(best)
    return Range(log_value=value, log_lower=value - slack, log_upper=min(0.0, value + slack), split=where)


def _mixed(grid: np.ndarray, total: int, steps: int, vertex: Distribution) -> np.ndarray:
    # Axis i of the grid is the count of type i; the last type has what is left.
    chances = [float(p) for p in vertex]
    for done in range(steps):
        size = total - done
        inner = tuple(slice(0, size) for _ in range(grid.ndim))
        result = chances[-1] * grid[inner]
        for axis in range(grid.ndim):
            moved = tuple(slice(int(i == axis), size + int(i == axis)) for i in range(grid.ndim))
            result += chances[axis] * grid[moved]
        grid = result
    return grid


def _delta_grid(sample: Sample, loss: Loss, types: int) -> tuple[np.ndarray, float]:
    n = sample.records
    grid = np.zeros((n + 1,) * (types - 1))
    error = 0.0

    @functools.cache
    def rarest(rare: int, common: int) -> tuple[float, float]:
        # Any histogram with these two smallest counts has the same delta.
        record = histogram_profile((rare, common, n - rare - common), sample, loss)
        return 10.0**record.log10_delta, (record.log10_upper - record.log10_delta) * LOG_TEN + 1e-15

    for head in itertools.product(range(n + 1), repeat=types - 1):
        if sum(head) <= n:
            rare, common = sorted((*head, n - sum(head)))[:2]
            grid[head], bound = rarest(rare, common)
            error = max(error, bound)
    return grid, error


def bracket(sample: Sample, loss: Loss, vertices: tuple[Distribution, ...]) -> Range:
    """Rigorous bounds of the maximum over all compositions, at any number of records.

    From below: merging all types but i is post-processing, so the two-type problem of type i is a lower bound.
    From above: unless two types both have fewer than b records, the rarest count h and b bound delta(H) by
    g(h), the largest of the four D at the counts h and max(h, b), because D falls with both counts. So
    E[delta] <= sum_i E[g(H_i); H_i <= n/m] + eta sum_{i<j} Pr[H_i + H_j <= 2 b - 2]. Each term falls as the
    counts in it grow, and they are stochastically smallest when every record has the smallest chance of them.
    """
    types = len(vertices[0])
    lower, value, where = -math.inf, -math.inf, 0
    for i in range(types):
        shares = [vertex[i] for vertex in vertices]
        found = search(sample, loss, tuple(dict.fromkeys((min(shares), max(shares)))), "certificate")
        if found.log_value > value:
            value, where = found.log_value, shares.index(min(shares))
        lower = max(lower, found.log_lower)
    second, crowded = _second_count(sample, vertices, lower - 14.0)
    parts = [
        RareType(
            sample=sample, loss=loss, share=min(vertex[i] for vertex in vertices), types=types, second=second
        ).log_bound(lower)
        for i in range(types)
    ]
    upper = min(float(np.logaddexp.reduce(np.array([*parts, crowded]))) + 1e-12, _log_rate(sample))
    chosen = tuple(sample.records if i == where else 0 for i in range(len(vertices)))
    return Range(log_value=max(value, lower), log_lower=lower, log_upper=max(upper, lower), split=chosen)


def _log_rate(sample: Sample) -> float:
    return math.log1p(-sample.lost / sample.records) + 1e-15


def _second_count(sample: Sample, vertices: tuple[Distribution, ...], goal: float) -> tuple[int, float]:
    # The largest b for which two types below b records are negligible, and the bound of that contribution.
    n = sample.records
    pairs = [
        min(vertex[i] + vertex[j] for vertex in vertices) for i, j in itertools.combinations(range(len(vertices[0])), 2)
    ]

    def crowded(b: int) -> float:
        tails = [log_tail(2 * b - 2, n, share, above=False) for share in pairs]
        return _log_rate(sample) + float(np.logaddexp.reduce(np.array(tails)))

    good = bisect.bisect_left(range(1, n // 2 + 1), True, key=lambda b: crowded(b) > goal)
    return good, crowded(good)


@dataclass(frozen=True, kw_only=True)
class RareType:
    """The part of the upper bracket in which one type of the smallest share `share` is the rarest."""

    sample: Sample
    loss: Loss
    share: Fraction
    types: int
    second: int

    def log_bound(self, lower: float) -> float:
        """log E[g(K); K <= n/m] for K ~ Bin(n, share), from above.

        g is taken at the left end of blocks, halved where that overstates most, until the bound is within a
        percent or negligible against `lower`.
        """
        n, top = self.sample.records, self.sample.records // self.types
        cache: dict[int, float] = {}
        if self.share in (0, 1):
            return self._log_g(0, cache) if self.share == 0 else -math.inf
        low, high = _mass_window(n, self.share, top)
        s = np.arange(low, high + 1, dtype=np.float64)
        masses = kernels.binomials(s, float(n), split(self.share))[0]
        outside = [_log_rate(self.sample) + log_tail(low - 1, n, self.share, above=False)]
        if high < top:
            outside.append(self._log_g(high + 1, cache) + log_tail(high + 1, n, self.share, above=True))

        def block(first: int, last: int) -> tuple[float, float, int, int]:
            mass = float(np.logaddexp.reduce(masses[first - low : last - low + 1]))
            left, right = self._log_g(first, cache), self._log_g(last, cache)
            excess = left + math.log(max(1e-300, -math.expm1(min(0.0, right - left))))
            return -(mass + excess), mass + left, first, last

        heap = [block(low, high)]
        while len(heap) < MAX_BLOCKS:
            total = float(np.logaddexp.reduce(np.array([item[1] for item in heap])))
            largest, _, first, last = heap[0]
            if first == last or -largest <= total - 9.0 or total <= lower - 14.0:
                break
            heapq.heappop(heap)
            middle = (first + last) // 2
            heapq.heappush(heap, block(first, middle))
            heapq.heappush(heap, block(middle + 1, last))
        return float(np.logaddexp.reduce(np.array([item[1] for item in heap] + outside))) + 1e-9

    def _log_g(self, h: int, cache: dict[int, float]) -> float:
        if h <= 1:
            return _log_rate(self.sample)
        if h not in cache:
            other = max(h, self.second)
            orders = {(h, other + 1), (h + 1, other), (other, h + 1), (other + 1, h)}
            values = [log_pair(first, second, self.sample, self.loss, binary=False) for first, second in orders]
            cache[h] = min(_log_rate(self.sample), max(value + error for value, error in values))
        return cache[h]


def _mass_window(n: int, share: Fraction, top: int) -> tuple[int, int]:
    # From where even the rate times the lower tail is hopeless to beyond the bulk, in at most a few million counts.
    mean, deviation = float(n * share), math.sqrt(float(n * share * (1 - share)))
    reach = 60.0 * deviation + 60.0
    low = max(0, min(math.floor(mean - reach), top))
    return low, min(top, max(low, math.ceil(mean + 12.0 * deviation + 60.0)))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A Monte Carlo mean of exact values, with its confidence interval (natural logarithms)."""

    log_value: float
    log_low: float
    log_high: float


def monte_carlo(
    sample: Sample,
    loss: Loss,
    vertices: tuple[Distribution, ...],
    split_at: tuple[int, ...],
    *,
    draws: int,
    seed: int,
    z: float,
) -> Estimate:
    """E[delta(H)] for one composition from exact delta(H) at random histograms.

    Rare histograms dominate the mean, so for a composition of one vertex half of the draws come from a
    distribution tilted to where the two-type problem of the rarest type has its largest term; the weights,
    true over mixture, are at most 2. The interval is the central limit theorem's.
    """
    rng = np.random.default_rng(seed)
    active = [i for i, count in enumerate(split_at) if count > 0]
    tilt = _tilted(sample, loss, vertices[active[0]]) if len(active) == 1 else None
    logs = np.empty(draws)
    for draw in range(draws):
        if tilt is not None and draw % 2 == 1:
            chances = tilt[1]
            histogram = rng.multinomial(sample.records, chances)
        else:
            histogram = np.zeros(len(vertices[0]), dtype=np.int64)
            for i in active:
                chances = np.array([float(p) for p in vertices[i]])
                histogram += rng.multinomial(split_at[i], chances / chances.sum())
        log_weight = 0.0
        if tilt is not None:
            log_weight = -float(np.logaddexp(0.0, _log_tilt(histogram, tilt)) - math.log(2.0))
        record = histogram_profile(tuple(int(h) for h in histogram), sample, loss)
        logs[draw] = log_weight + record.log10_delta * LOG_TEN
    return summary(logs, z)


def _tilted(sample: Sample, loss: Loss, vertex: Distribution) -> tuple[np.ndarray, np.ndarray] | None:
    # The rarest type's share moves to the largest term of Bin(j) delta(j); the others keep their proportions.
    rare = min(range(len(vertex)), key=lambda i: vertex[i])
    if vertex[rare] == 0:
        return None
    n = sample.records
    low, high = _mass_window(n, vertex[rare], n // 2)
    grid = np.unique(np.linspace(low, high, 400).round())
    values = kernels.binomials(grid, float(n), split(vertex[rare]))[0]
    heights = [log_pair(max(2, int(j)), n + 1 - max(2, int(j)), sample, loss, binary=True)[0] for j in grid]
    peak = max(0.5, float(grid[int(np.argmax(values + np.array(heights)))])) / n
    true = np.array([float(p) for p in vertex])
    chances = true * (1.0 - peak) / (1.0 - true[rare])
    chances[rare] = peak
    return true / true.sum(), chances / chances.sum()


def _log_tilt(histogram: np.ndarray, tilt: tuple[np.ndarray, np.ndarray]) -> float:
    present = histogram > 0
    return float((histogram[present] * np.log(tilt[1][present] / tilt[0][present])).sum())


def summary(logs: np.ndarray, z: float) -> Estimate:
    """The mean of exp(logs) and its interval of z standard errors, as logarithms."""
    peak = float(logs.max())
    if peak == -math.inf:
        return Estimate(log_value=peak, log_low=peak, log_high=peak)
    scaled = np.exp(logs - peak)
    mean = float(scaled.mean())
    half = z * float(scaled.std(ddof=1)) / math.sqrt(logs.size)
    return Estimate(
        log_value=peak + math.log(mean),
        log_low=peak + math.log(mean - half) if half < mean else -math.inf,
        log_high=peak + math.log(mean + half),
    )
