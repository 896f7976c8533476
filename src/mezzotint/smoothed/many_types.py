"""Smoothed delta for two types: certified search over how many records follow which end of an
interval.

E(k) = E[delta(K)] with K = Bin(k, p) + Bin(n - k, q). If delta is replaced by a majorant U that
falls to the middle and rises after it (V-shaped), E(k) becomes quasi-convex in k
(docs/proofs/smoothed-expected.md). So once E^U(k) is at most the best exact E found, for one k
counted from each end, every k between is settled as well.

Smoothed delta for three or more types: exact by enumeration when small, else a rigorous bracket or
sampling.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import logarithms
from mezzotint.smoothed.model import LOG_TEN, Distribution, Loss, Sample, Status, split
from mezzotint.smoothed.profiles import histogram_profile, log_pair

#: Counts evaluated one by one; beyond this the sum would take minutes.
MAX_WINDOW = 20_000_000
#: All splits are compared exactly up to this many records when the certificate does not close.
MAX_ALL_SPLITS = 4096
#: Compositions evaluated from either end before the search gives up and reports a bracket.
MAX_MOVED = 64
_CLOSE = 1e-11
_TARGET = 35.0


@dataclass(frozen=True, kw_only=True)
class Range:
    """The best expectation found and rigorous bounds of the maximum over all compositions, as
    natural logarithms.

    `split` counts the records that follow each vertex; `checked`, the compositions of two types
    evaluated exactly.
    """

    log_value: float
    log_lower: float
    log_upper: float
    split: tuple[int, ...]
    method: str
    reason: str
    status: Status = "closed"
    checked: int = 1


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Logarithms at consecutive counts from `start`; each column bounds delta in its own way.

    The first is delta where it was evaluated, up to rounding downwards, and -inf elsewhere; the
    second the same rounded upwards, and the majorant elsewhere; the third the majorant, which is
    V-shaped.
    """

    start: int
    columns: tuple[np.ndarray, ...]


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """delta over the counts that matter, with a V-shaped majorant over all counts.

    The pieces are two mirrored windows of counts, or one; `log_rate` is the majorant outside them,
    `log_middle` between them. At most `pad` records may be moved.
    """

    records: int
    pieces: tuple[Piece, ...]
    log_rate: float
    log_middle: float
    pad: int


def log_tail(
    x: int,
    n: int,
    p: Fraction,
    *,
    above: bool,
) -> float:
    """Upper bound of log Pr[Bin(n, p) >= x] (above) or Pr[Bin(n, p) <= x]: geometric beyond the
    mode, else 0."""
    if (x > n) if above else (x < 0):
        return -math.inf
    if (x <= n * p + 1) if above else (x >= n * p - 1):
        return 0.0
    neighbour = x + 1 if above else x - 1
    if p in (0, 1):
        return -math.inf
    values = logarithms.binomials(np.array([float(x), float(neighbour)]), float(n), split(p))
    bound = float(values[0]) + logarithms.stated_error(float(values[0]), 0.0)
    if neighbour < 0 or neighbour > n:
        return min(0.0, bound)
    fall = min(float(values[1] - values[0]) + 1e-9, -1e-300)
    return min(0.0, bound - math.log(-math.expm1(fall)))


def landscape(
    sample: Sample,
    loss: Loss,
    share: Fraction,
    pad: int,
) -> Landscape:
    """The landscape that suffices where every type has a chance of `share` <= 1/2 at least, for
    `pad` moved records."""
    n = sample.records
    size, lost, ratio = float(n), float(sample.lost), loss.parts
    log_rate = _log_rate(sample)
    peak, height = _peak(sample, loss, share)
    goal = height - _TARGET
    high, log_middle = _high_end(sample, loss, share, peak, goal, height if pad > 0 else 0.0)
    low = _low_end(n, share, peak, goal - log_rate)
    if high - low > MAX_WINDOW:
        raise ParameterError(
            "n", n, f"needs delta at {high - low} counts; use asymptotic_rate for this many records"
        )
    values = logarithms.log_delta_window(low, high, size, lost, ratio)
    errors = logarithms.stated_errors(values, lost)
    upper = np.minimum(values + errors, log_rate)
    majorant = np.maximum(np.maximum.accumulate(upper[::-1])[::-1], log_middle)
    log_middle = min(log_middle, log_rate)
    columns = (
        (values - errors, -math.inf, -math.inf),
        (upper, log_rate, log_middle),
        (majorant, log_rate, log_middle),
    )
    pieces = _assemble(n, low, high, columns, pad)
    return Landscape(
        records=n,
        pieces=pieces,
        log_rate=log_rate,
        log_middle=log_middle,
        pad=pad,
    )


def _assemble(
    n: int,
    low: int,
    high: int,
    columns: tuple[tuple[np.ndarray, float, float], ...],
    pad: int,
) -> tuple[Piece, ...]:
    # Each column comes with what holds before the window and after it; the other side mirrors it.
    halves = [
        np.concatenate((np.full(pad, before), column, np.full(pad, after)))
        for column, before, after in columns
    ]
    if high + pad + 1 < n - high - pad:
        mirrored = tuple(half[::-1].copy() for half in halves)
        return Piece(start=low - pad, columns=tuple(halves)), Piece(
            start=n - high - pad, columns=mirrored
        )
    # The two windows meet: one piece over both, the middle filled with its bound.
    gap = n - 2 * high - 1
    whole = []
    for column, before, after in columns:
        side = np.concatenate((np.full(pad, before), column))
        # With n even and the window reaching n / 2, that count belongs to both sides (gap = -1).
        mirrored = np.concatenate((column[::-1][max(0, -gap) :], np.full(pad, before)))
        whole.append(np.concatenate((side, np.full(max(0, gap), after), mirrored)))
    return (Piece(start=low - pad, columns=tuple(whole)),)


def _peak(sample: Sample, loss: Loss, share: Fraction) -> tuple[int, float]:
    # Where Bin(j) delta(j) is largest, roughly; its value is a lower bound of the expectation in
    # any case.
    n = sample.records
    low, high = 0, n // 2
    while True:
        grid = np.unique(np.linspace(low, high, 33).round())
        values = logarithms.binomials(grid, float(n), split(share))
        values = values + logarithms.log_deltas(grid, float(n), float(sample.lost), loss.parts)
        best = int(np.argmax(values))
        if high - low <= 32:
            return int(grid[best]), float(values[best])
        low, high = int(grid[max(0, best - 1)]), int(grid[min(grid.size - 1, best + 1)])


def _high_end(
    sample: Sample,
    loss: Loss,
    share: Fraction,
    peak: int,
    goal: float,
    level: float,
) -> tuple[int, float]:
    # The last count of the window, and a bound of log delta at every count from there to the
    # middle. Beyond the window the bound times the mass must be negligible and, for the other
    # compositions, the bound itself small.
    n = sample.records
    edges = np.unique(
        np.linspace(1, (n + 2) // 2, min(2049, (n + 2) // 2)).astype(np.int64)
    ).astype(np.float64)
    if edges.size < 2:
        return n // 2, -math.inf
    blocks = logarithms.block_bounds(edges, float(n), float(sample.lost), loss.parts)
    beyond = np.maximum.accumulate(blocks[::-1])[::-1]
    starts = edges[:-1].astype(np.int64)

    def negligible(i: int) -> bool:
        # The bounds fall along the edges, and so does the mass beyond them.
        return (
            starts[i] > peak
            and float(beyond[i]) + log_tail(int(starts[i]), n, share, above=True) <= goal
        )

    far = bisect.bisect_left(range(starts.size), True, key=negligible)
    small = bisect.bisect_left(range(starts.size), True, key=lambda i: bool(beyond[i] <= level))
    # If the bound never becomes small the other compositions have to do with the first.
    for i in (max(far, small), far):
        if i < starts.size and starts[i] < n // 2:
            return int(starts[i]) - 1, float(beyond[i])
    return n // 2, -math.inf


def _low_end(
    n: int,
    share: Fraction,
    peak: int,
    goal: float,
) -> int:
    # The largest count below which the binomial mass is under exp(goal).
    inside = bisect.bisect_left(
        range(peak), True, key=lambda count: log_tail(count - 1, n, share, above=False) > goal
    )
    return max(0, inside - 1)


def expectation_error(log_value: float, moved: int) -> float:
    """A bound on the error of an expectation's logarithm, beyond that of the values it averages.

    Terms that matter have logarithms of at most |log_value| + 80; each mixing step adds a few
    roundings of that.
    """
    if log_value == -math.inf:
        return 0.0
    weights = logarithms.stated_error(abs(log_value) + 80.0, 0.0)
    return weights + (4.0 + moved) * 2.0**-50 * (80.0 + abs(log_value))


def evaluate(
    scape: Landscape,
    columns: list[np.ndarray],
    moved: int,
    share: Fraction,
    *,
    outside: bool,
) -> tuple[float, float]:
    """log E over n - moved records of `share`, the others being in the columns, and a bound of its
    rounding error.

    There is one column per piece; `outside` adds bounds for everything outside the pieces.
    """
    n = scape.records - moved
    parts = [
        logarithms.log_expectation(column, piece.start, n, split(share))
        for piece, column in zip(scape.pieces, columns, strict=True)
    ]
    if outside:
        first, last = scape.pieces[0].start, scape.pieces[-1].start + len(columns[-1])
        parts.append(scape.log_rate + log_tail(first - 1, n, share, above=False))
        parts.append(scape.log_rate + log_tail(last, n, share, above=True))
        if len(scape.pieces) == 2:
            left, right = first + len(columns[0]), scape.pieces[1].start - 1
            mass = min(log_tail(left, n, share, above=True), log_tail(right, n, share, above=False))
            parts.append(scape.log_middle + mass)
    total = float(np.logaddexp.reduce(np.array(parts)))
    return total, expectation_error(total, moved)


def search(
    sample: Sample,
    loss: Loss,
    ends: tuple[Fraction, ...],
    method: str,
) -> Range:
    """The largest expectation over all splits of n records between the ends: one or two shares of
    the first type.

    Records are sampled without replacement, at least one is lost; "certificate" is "auto" without
    its fallback.
    """
    n = sample.records
    if method == "all_splits" and len(ends) == 2:
        return _all_splits(sample, loss, ends)
    lopsided = min(min(p, 1 - p) for p in ends)
    if len(ends) == 1:
        scape = landscape(sample, loss, lopsided, 0)
        (value, error), (upper, slack) = (
            evaluate(scape, [piece.columns[i] for piece in scape.pieces], 0, ends[0], outside=i > 0)
            for i in (0, 1)
        )
        reason = "One distribution: delta summed over the counts that matter, the rest bounded."
        return Range(
            log_value=value,
            log_lower=value - error,
            log_upper=upper + slack,
            split=(n,),
            method="single vertex",
            reason=reason,
        )
    found = _certificate(landscape(sample, loss, lopsided, min(n, MAX_MOVED)), ends)
    if found.status != "closed" and method == "auto" and n <= MAX_ALL_SPLITS:
        return _all_splits(sample, loss, ends)
    return found


def _certificate(scape: Landscape, ends: tuple[Fraction, ...]) -> Range:
    n = scape.records
    best, best_error, split_at, checked = -math.inf, 0.0, 0, 0
    uppers, ceilings = [-math.inf], []
    # The lopsided end first: it is nearly always the optimum, and a high best closes the other side
    # at once.
    for end in sorted((0, 1), key=lambda i: min(ends[i], 1 - ends[i])):
        columns = [piece.columns for piece in scape.pieces]
        moved, ceiling, excess = 0, 0.0, 0.0
        for moved in range(scape.pad + 1):
            if moved > 0:
                step = split(ends[1 - end])
                columns = [
                    tuple(logarithms.mix_step(one, step) for one in column) for column in columns
                ]
            (value, error), (upper, slack), (ceiling, excess) = (
                evaluate(scape, list(column), moved, ends[end], outside=outside)
                for column, outside in zip(
                    zip(*columns, strict=True), (False, True, True), strict=True
                )
            )
            checked += 1
            uppers.append(upper + slack)
            if value > best:
                best, best_error, split_at = value, error, (moved if end == 1 else n - moved)
            settled = ceiling + excess <= best + _CLOSE or moved >= n - moved
            if settled:
                break
        # Past the middle every composition was evaluated from one end or the other.
        ceilings.append(-math.inf if moved >= n - moved else ceiling + excess)
    # A composition whose bound stayed loose (its records lie outside the window) leaves a bracket.
    upper = min(scape.log_rate, max(*uppers, *ceilings))
    closed = upper - best <= max(_CLOSE, 4.0 * best_error)
    verb = "settles" if closed else "bounds"
    return Range(
        log_value=best,
        log_lower=best - best_error,
        log_upper=upper,
        split=(split_at, n - split_at),
        status="closed" if closed else "bracketed",
        method="certificate",
        checked=checked,
        reason=f"{checked} of {n + 1} compositions evaluated; a quasi-convex majorant {verb} the others.",
    )


def _all_splits(sample: Sample, loss: Loss, ends: tuple[Fraction, ...]) -> Range:
    # V(j) = E[delta(j + Bin(k, p))] by one mixing step per k, then n - k records of the other end:
    # O(n^2).
    n = sample.records
    if n > MAX_ALL_SPLITS * 5:
        raise ParameterError(
            "n", n, f"comparing all splits needs n <= {MAX_ALL_SPLITS * 5}; use the certificate"
        )
    values = logarithms.log_delta_window(0, n, float(n), float(sample.lost), loss.parts)
    errors = logarithms.stated_errors(values, float(sample.lost))
    return compare_splits(values, float(errors.max()), ends)


def compare_splits(values: np.ndarray, inner: float, ends: tuple[Fraction, ...]) -> Range:
    """The largest expectation of exp(values[K]) over all splits of n records between two shares of
    the first type.

    Arguments:
        values: (n + 1,) log delta by the count of the first type; inner: bound on the error of
            each.
        ends: the two shares.
    """
    n = values.size - 1
    best, best_error, split_at, upper = -math.inf, 0.0, 0, -math.inf
    for moved in range(n + 1):
        if moved > 0:
            values = logarithms.mix_step(values, split(ends[0]))
        value = logarithms.log_expectation(values, 0, n - moved, split(ends[1]))
        error = inner + expectation_error(value, moved)
        upper = max(upper, value + error)
        if value > best:
            best, best_error, split_at = value, error, moved
    return Range(
        log_value=best,
        log_lower=best - best_error,
        log_upper=upper,
        split=(split_at, n - split_at),
        method="all splits",
        checked=n + 1,
        reason=f"All {n + 1} compositions evaluated.",
    )


#: Enumeration is chosen when its cells (histograms, times steps over all compositions) stay below this.
MAX_ENUMERATION = 40_000_000
#: ... and when the rarest counts form at most this many pairs to evaluate.
MAX_PAIRS = 4000
#: Blocks of counts that the upper bracket is refined to at most.
MAX_BLOCKS = 96


def enumerable(records: int, vertices: tuple[Distribution, ...]) -> bool:
    """Whether every histogram and every composition can be enumerated in seconds."""
    types = len(vertices[0])
    cells = (records + 1) ** (types - 1)
    steps = math.comb(records + len(vertices) - 1, len(vertices) - 1) * records * types
    return (
        cells * steps <= MAX_ENUMERATION * 10
        and (records // types + 1) * (records // 2 + 1) <= MAX_PAIRS
    )


def enumerate_all(sample: Sample, loss: Loss, vertices: tuple[Distribution, ...]) -> Range:
    """The exact maximum over all compositions of n records among the vertices.

    V(h) starts as delta(h) on histograms of n records; one more record of distribution p turns it
    into sum_i p_i V(h + e_i) on histograms of one record less.
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
    return Range(
        log_value=value,
        log_lower=value - slack,
        log_upper=min(0.0, value + slack),
        split=where,
        method="enumeration",
        reason="Every histogram and every composition evaluated.",
    )


def _mixed(
    grid: np.ndarray,
    total: int,
    steps: int,
    vertex: Distribution,
) -> np.ndarray:
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

    From below: merging all types but i is post-processing, so the two-type problem of type i is a
    lower bound. From above: unless two types both have fewer than b records, the rarest count h and
    b bound delta(H) by g(h), the largest of the four D at the counts h and max(h, b), because D
    falls with both counts. So E[delta] <= sum_i E[g(H_i); H_i <= n/m] + eta sum_{i<j} Pr[H_i + H_j
    <= 2 b - 2]. Each term falls as the counts in it grow, and they are stochastically smallest when
    every record has the smallest chance of them.
    """
    types = len(vertices[0])
    lower, value, where = -math.inf, -math.inf, 0
    for i in range(types):
        shares = [vertex[i] for vertex in vertices]
        found = search(
            sample, loss, tuple(dict.fromkeys((min(shares), max(shares)))), "certificate"
        )
        if found.log_value > value:
            value, where = found.log_value, shares.index(min(shares))
        lower = max(lower, found.log_lower)
    second, crowded = _second_count(sample, vertices, lower - 14.0)
    shares = [min(vertex[i] for vertex in vertices) for i in range(types)]
    parts = [
        log_rarest_bound(sample, loss, share, sample.records // types, second, lower)
        for share in shares
    ]
    upper = min(float(np.logaddexp.reduce(np.array([*parts, crowded]))) + 1e-12, _log_rate(sample))
    chosen = tuple(sample.records if i == where else 0 for i in range(len(vertices)))
    return Range(
        log_value=max(value, lower),
        log_lower=lower,
        log_upper=max(upper, lower),
        split=chosen,
        status="bracketed",
        method="bracket",
        reason="Between the worst two-type problem and the sum over types of the rarest-type bound.",
    )


def _log_rate(sample: Sample) -> float:
    return math.log1p(-sample.lost / sample.records) + 1e-15


def _second_count(
    sample: Sample, vertices: tuple[Distribution, ...], goal: float
) -> tuple[int, float]:
    # The largest b for which two types below b records are negligible, and the bound of that
    # contribution.
    n = sample.records
    pairs = [
        min(vertex[i] + vertex[j] for vertex in vertices)
        for i, j in itertools.combinations(range(len(vertices[0])), 2)
    ]

    def crowded(b: int) -> float:
        tails = [log_tail(2 * b - 2, n, share, above=False) for share in pairs]
        return _log_rate(sample) + float(np.logaddexp.reduce(np.array(tails)))

    good = bisect.bisect_left(range(1, n // 2 + 1), True, key=lambda b: crowded(b) > goal)
    return good, crowded(good)


def log_rarest_bound(
    sample: Sample,
    loss: Loss,
    share: Fraction,
    top: int,
    second: int,
    lower: float,
) -> float:
    """log E[g(K); K <= top] for K ~ Bin(n, share), from above: the part of `bracket` in which this
    type is the rarest.

    g is taken at the left end of blocks, halved where that overstates most, until that matters
    little.
    """

    @functools.cache
    def log_g(h: int) -> float:
        if h <= 1:
            return _log_rate(sample)
        other = max(h, second)
        orders = {(h, other + 1), (h + 1, other), (other, h + 1), (other + 1, h)}
        largest = max(log_pair(*order, sample, loss, binary=False) for order in orders)
        error = 2 * logarithms.stated_error(largest, float(sample.lost))
        return min(_log_rate(sample), largest + error)

    if share in (0, 1):
        return log_g(0) if share == 0 else -math.inf
    n = sample.records
    low, high = _mass_window(n, share, top)
    counts = np.arange(low, high + 1, dtype=np.float64)
    masses = logarithms.binomials(counts, float(n), split(share))
    outside = [_log_rate(sample) + log_tail(low - 1, n, share, above=False)]
    if high < top:
        outside.append(log_g(high + 1) + log_tail(high + 1, n, share, above=True))

    def block(first: int, last: int) -> tuple[float, float, int, int]:
        mass = float(np.logaddexp.reduce(masses[first - low : last - low + 1]))
        left, right = log_g(first), log_g(last)
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


def _mass_window(n: int, share: Fraction, top: int) -> tuple[int, int]:
    # From where even the rate times the lower tail is hopeless to beyond the bulk, in at most a few
    # million counts.
    mean, deviation = float(n * share), math.sqrt(float(n * share * (1 - share)))
    reach = 60.0 * deviation + 60.0
    low = max(0, min(math.floor(mean - reach), top))
    return low, min(top, max(low, math.ceil(mean + 12.0 * deviation + 60.0)))


@dataclass(frozen=True, kw_only=True)
class SampledMean:
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
) -> SampledMean:
    """E[delta(H)] for one composition from exact delta(H) at random histograms.

    Rare histograms dominate the mean, so for a composition of one vertex half of the draws come
    from a distribution tilted to where the two-type problem of the rarest type has its largest
    term; the weights, true over mixture, are at most 2. The interval is the central limit
    theorem's.
    """
    rng = np.random.default_rng(check_count("seed", seed, least=0))
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


def _tilted(
    sample: Sample, loss: Loss, vertex: Distribution
) -> tuple[np.ndarray, np.ndarray] | None:
    # The rarest type's share moves to the largest term of Bin(j) delta(j); the others keep their
    # proportions.
    rare = min(range(len(vertex)), key=lambda i: vertex[i])
    if vertex[rare] == 0:
        return None
    n = sample.records
    low, high = _mass_window(n, vertex[rare], n // 2)
    grid = np.unique(np.linspace(low, high, 400).round())
    values = logarithms.binomials(grid, float(n), split(vertex[rare]))
    heights = [
        log_pair(max(2, int(j)), n + 1 - max(2, int(j)), sample, loss, binary=True) for j in grid
    ]
    peak = max(0.5, float(grid[int(np.argmax(values + np.array(heights)))])) / n
    true = np.array([float(p) for p in vertex])
    chances = true * (1.0 - peak) / (1.0 - true[rare])
    chances[rare] = peak
    return true / true.sum(), chances / chances.sum()


def _log_tilt(histogram: np.ndarray, tilt: tuple[np.ndarray, np.ndarray]) -> float:
    present = histogram > 0
    return float((histogram[present] * np.log(tilt[1][present] / tilt[0][present])).sum())


def summary(logs: np.ndarray, z: float) -> SampledMean:
    """The mean of exp(logs) and its interval of z standard errors, as logarithms."""
    peak = float(logs.max())
    if peak == -math.inf:
        return SampledMean(
            log_value=peak,
            log_low=peak,
            log_high=peak,
        )
    scaled = np.exp(logs - peak)
    mean = float(scaled.mean())
    half = z * float(scaled.std(ddof=1)) / math.sqrt(logs.size)
    return SampledMean(
        log_value=peak + math.log(mean),
        log_low=peak + math.log(mean - half) if half < mean else -math.inf,
        log_high=peak + math.log(mean + half),
    )
