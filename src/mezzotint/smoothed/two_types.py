"""Smoothed delta for two types: certified search over how many records follow which end of an interval.

E(k) = E[delta(K)] with K = Bin(k, p) + Bin(n - k, q). If delta is replaced by a majorant U that falls to the
middle and rises after it (V-shaped), E(k) becomes quasi-convex in k (docs/proofs/smoothed-expected.md). So once
E^U(k) is at most the best exact E found, for one k counted from each end, every k between is settled as well.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import kernels
from mezzotint.smoothed.model import Loss, Sample, split

#: Counts evaluated one by one; beyond this the sum would take minutes.
MAX_WINDOW = 20_000_000
#: All splits are compared exactly up to this many records when the certificate does not close.
MAX_ALL_SPLITS = 4096
#: Compositions evaluated from either end before the search gives up and reports a bracket.
MAX_MOVED = 64
_CLOSE = 1e-12
_TARGET = 35.0


@dataclass(frozen=True, kw_only=True)
class Search:
    """Natural logarithms: the best expectation found, and a bound on all of them.

    Arguments:
        log_value: the best exact E(k), rounding apart.
        log_lower, log_upper: rigorous bounds of the maximum.
        split: records that follow the first end, in the best composition found.
        closed: whether every composition is settled up to rounding.
        method: "single vertex", "certificate" or "all splits".
        checked: how many compositions were evaluated exactly.
    """

    log_value: float
    log_lower: float
    log_upper: float
    split: int
    closed: bool
    method: str
    checked: int


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Logarithms at consecutive counts from `start`; each column bounds delta in its own way.

    Arguments:
        lower: delta where it was evaluated, up to rounding downwards; -inf elsewhere.
        upper: the same rounded upwards, and the majorant elsewhere.
        majorant: V-shaped.
    """

    start: int
    lower: np.ndarray
    upper: np.ndarray
    majorant: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """delta over the counts that matter, with a V-shaped majorant over all counts.

    Arguments:
        records: n.
        pieces: windows of counts, left to right: two mirrored ones, or one.
        log_rate: the majorant outside the pieces, log eta.
        log_middle: the majorant between two pieces.
        pad: how many records may be moved before the pieces are used up.
    """

    records: int
    pieces: tuple[Piece, ...]
    log_rate: float
    log_middle: float
    pad: int


def log_tail(x: int, n: int, p: Fraction, *, above: bool) -> float:
    """Upper bound of log Pr[Bin(n, p) >= x] (above) or Pr[Bin(n, p) <= x]: geometric beyond the mode, else 0."""
    if (x > n) if above else (x < 0):
        return -math.inf
    if (x <= n * p + 1) if above else (x >= n * p - 1):
        return 0.0
    neighbour = x + 1 if above else x - 1
    if p in (0, 1):
        return -math.inf
    values, errors = kernels.binomials(np.array([float(x), float(neighbour)]), float(n), split(p))
    bound = float(values[0]) + float(errors[0])
    if neighbour < 0 or neighbour > n:
        return min(0.0, bound)
    fall = min(float(values[1] - values[0]) + 1e-9, -1e-300)
    return min(0.0, bound - math.log(-math.expm1(fall)))


def landscape(sample: Sample, loss: Loss, share: Fraction, pad: int) -> Landscape:
    """The landscape that suffices for records of share `share` (of either type) and milder ones.

    Arguments:
        share: the smallest chance of a type among the ends, at most 1/2.
        pad: extra counts on either side, for compositions of up to `pad` moved records.
    """
    n = sample.records
    size, lost, ratio = float(n), float(sample.lost), loss.parts
    log_rate = math.log1p(-sample.lost / n) + 1e-15
    peak, height = _peak(sample, loss, share)
    goal = height - _TARGET
    high, log_middle = _high_end(sample, loss, share, peak, goal, height if pad > 0 else 0.0)
    low = _low_end(n, share, peak, goal - log_rate)
    if high - low > MAX_WINDOW:
        raise ParameterError("n", n, f"needs delta at {high - low} counts; use asymptotic_rate for so many records")
    values, errors = kernels.log_delta_window(low, high, size, lost, ratio)
    upper = np.minimum(values + errors, log_rate)
    majorant = np.maximum(np.maximum.accumulate(upper[::-1])[::-1], log_middle)
    log_middle = min(log_middle, log_rate)
    columns = ((values - errors, -math.inf, -math.inf), (upper, log_rate, log_middle), (majorant, log_rate, log_middle))
    pieces = _assemble(n, low, high, columns, pad)
    return Landscape(records=n, pieces=pieces, log_rate=log_rate, log_middle=log_middle, pad=pad)


def _assemble(
    n: int, low: int, high: int, columns: tuple[tuple[np.ndarray, float, float], ...], pad: int
) -> tuple[Piece, ...]:
    # Each column comes with what holds before the window and after it; the other side mirrors it.
    halves = [np.concatenate((np.full(pad, before), column, np.full(pad, after))) for column, before, after in columns]
    if high + pad + 1 < n - high - pad:
        starts = (low - pad, n - high - pad)
        return tuple(
            Piece(start=start, lower=lower, upper=upper, majorant=majorant)
            for start, (lower, upper, majorant) in zip(
                starts, (halves, [half[::-1].copy() for half in halves]), strict=True
            )
        )
    # The two windows meet: one piece over both, the middle filled with its bound.
    gap = n - 2 * high - 1
    whole = []
    for column, before, after in columns:
        side = np.concatenate((np.full(pad, before), column))
        # With n even and the window reaching n / 2, that count belongs to both sides (gap = -1).
        mirrored = np.concatenate((column[::-1][max(0, -gap) :], np.full(pad, before)))
        whole.append(np.concatenate((side, np.full(max(0, gap), after), mirrored)))
    return (Piece(start=low - pad, lower=whole[0], upper=whole[1], majorant=whole[2]),)


def _peak(sample: Sample, loss: Loss, share: Fraction) -> tuple[int, float]:
    # Where Bin(j) delta(j) is largest, roughly; its value is a lower bound of the expectation in any case.
    n = sample.records
    low, high = 0, n // 2
    while True:
        grid = np.unique(np.linspace(low, high, 33).round())
        values = kernels.binomials(grid, float(n), split(share))[0]
        values = values + kernels.log_deltas(grid, float(n), float(sample.lost), loss.parts)
        best = int(np.argmax(values))
        if high - low <= 32:
            return int(grid[best]), float(values[best])
        low, high = int(grid[max(0, best - 1)]), int(grid[min(grid.size - 1, best + 1)])


def _high_end(sample: Sample, loss: Loss, share: Fraction, peak: int, goal: float, level: float) -> tuple[int, float]:
    # The last count of the window, and a bound of log delta at every count from there to the middle. Beyond the
    # window the bound times the mass must be negligible and, for the other compositions, the bound itself small.
    n = sample.records
    edges = np.unique(np.linspace(1, (n + 2) // 2, min(2049, (n + 2) // 2)).astype(np.int64)).astype(np.float64)
    if edges.size < 2:
        return n // 2, -math.inf
    blocks = kernels.block_bounds(edges, float(n), float(sample.lost), loss.parts)
    beyond = np.maximum.accumulate(blocks[::-1])[::-1]
    starts = edges[:-1].astype(np.int64)

    def negligible(i: int) -> bool:
        # The bounds fall along the edges, and so does the mass beyond them.
        return starts[i] > peak and float(beyond[i]) + log_tail(int(starts[i]), n, share, above=True) <= goal

    far = bisect.bisect_left(range(starts.size), True, key=negligible)
    small = bisect.bisect_left(range(starts.size), True, key=lambda i: bool(beyond[i] <= level))
    # If the bound never becomes small the other compositions have to do with the first.
    for i in (max(far, small), far):
        if i < starts.size and starts[i] < n // 2:
            return int(starts[i]) - 1, float(beyond[i])
    return n // 2, -math.inf


def _low_end(n: int, share: Fraction, peak: int, goal: float) -> int:
    # The largest count below which the binomial mass is under exp(goal).
    inside = bisect.bisect_left(range(peak), True, key=lambda count: log_tail(count - 1, n, share, above=False) > goal)
    return max(0, inside - 1)


def evaluate(
    scape: Landscape, columns: list[np.ndarray], moved: int, share: Fraction, *, outside: bool
) -> tuple[float, float]:
    """log E over n - moved records of `share`, with `moved` others mixed into the columns already.

    Arguments:
        columns: one per piece, after `moved` mixing steps.
        outside: whether to add bounds for everything outside the pieces.
    Returns:
        The logarithm and a bound of its rounding error.
    """
    n = scape.records - moved
    inner = [
        kernels.log_expectation(column, piece.start, n, split(share))
        for piece, column in zip(scape.pieces, columns, strict=True)
    ]
    parts = [value for value, _ in inner]
    if outside:
        first, last = scape.pieces[0].start, scape.pieces[-1].start + len(columns[-1])
        parts.append(scape.log_rate + log_tail(first - 1, n, share, above=False))
        parts.append(scape.log_rate + log_tail(last, n, share, above=True))
        if len(scape.pieces) == 2:
            left, right = first + len(columns[0]), scape.pieces[1].start - 1
            mass = min(log_tail(left, n, share, above=True), log_tail(right, n, share, above=False))
            parts.append(scape.log_middle + mass)
    total = float(np.logaddexp.reduce(np.array(parts)))
    if total == -math.inf:
        return total, 0.0
    # A piece's relative error counts by the piece's share of the total.
    error = math.fsum(bound * math.exp(value - total) for value, bound in inner)
    # Terms that matter have |log delta| <= |total| + 80; a mixing step adds a few roundings of that.
    return total, error + (4.0 + moved) * 2.0**-50 * (80.0 + abs(total))


def search(sample: Sample, loss: Loss, ends: tuple[Fraction, ...], method: str) -> Search:
    """The largest expectation over all splits of n records between the ends.

    Arguments:
        sample, loss: sampling without replacement with at least one record lost.
        ends: one or two shares of the first type, in [0, 1].
        method: "auto", "certificate" (no fallback) or "all_splits".
    """
    n = sample.records
    if method == "all_splits" and len(ends) == 2:
        return _all_splits(sample, loss, ends)
    lopsided = min(min(p, 1 - p) for p in ends)
    if len(ends) == 1:
        scape = landscape(sample, loss, lopsided, 0)
        value, error = evaluate(scape, [piece.lower for piece in scape.pieces], 0, ends[0], outside=False)
        upper, slack = evaluate(scape, [piece.upper for piece in scape.pieces], 0, ends[0], outside=True)
        return Search(
            log_value=value,
            log_lower=value - error,
            log_upper=upper + slack,
            split=n,
            closed=True,
            method="single vertex",
            checked=1,
        )
    found = _certificate(landscape(sample, loss, lopsided, min(n, MAX_MOVED)), ends)
    if not found.closed and method == "auto" and n <= MAX_ALL_SPLITS:
        return _all_splits(sample, loss, ends)
    return found


def _certificate(scape: Landscape, ends: tuple[Fraction, ...]) -> Search:
    n = scape.records
    best, best_error, split_at, checked = -math.inf, 0.0, 0, 0
    uppers, ceilings = [-math.inf], []
    # The lopsided end first: it is nearly always the optimum, and a high best closes the other side at once.
    for end in sorted((0, 1), key=lambda i: min(ends[i], 1 - ends[i])):
        columns = [(piece.lower, piece.upper, piece.majorant) for piece in scape.pieces]
        moved, ceiling, excess = 0, 0.0, 0.0
        for moved in range(scape.pad + 1):
            if moved > 0:
                step = split(ends[1 - end])
                columns = [tuple(kernels.mix_step(one, step) for one in column) for column in columns]
            value, error = evaluate(scape, [column[0] for column in columns], moved, ends[end], outside=False)
            upper, slack = evaluate(scape, [column[1] for column in columns], moved, ends[end], outside=True)
            ceiling, excess = evaluate(scape, [column[2] for column in columns], moved, ends[end], outside=True)
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
    return Search(
        log_value=best,
        log_lower=best - best_error,
        log_upper=upper,
        split=split_at,
        closed=closed,
        method="certificate",
        checked=checked,
    )


def _all_splits(sample: Sample, loss: Loss, ends: tuple[Fraction, ...]) -> Search:
    # V(j) = E[delta(j + Bin(k, p))] by one mixing step per k, then n - k records of the other end: O(n^2).
    n = sample.records
    if n > MAX_ALL_SPLITS * 5:
        raise ParameterError("n", n, f"comparing all splits needs n <= {MAX_ALL_SPLITS * 5}; use the certificate")
    values, errors = kernels.log_delta_window(0, n, float(n), float(sample.lost), loss.parts)
    best, best_error, split_at, upper = -math.inf, 0.0, 0, -math.inf
    inner = float(errors.max())
    for moved in range(n + 1):
        if moved > 0:
            values = kernels.mix_step(values, split(ends[0]))
        value, error = kernels.log_expectation(values, 0, n - moved, split(ends[1]))
        error += inner + (4.0 + moved) * 2.0**-50 * (80.0 + abs(value))
        upper = max(upper, value + error)
        if value > best:
            best, best_error, split_at = value, error, moved
    return Search(
        log_value=best,
        log_lower=best - best_error,
        log_upper=upper,
        split=split_at,
        closed=True,
        method="all splits",
        checked=n + 1,
    )
