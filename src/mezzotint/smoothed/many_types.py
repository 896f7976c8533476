"""Smoothed delta of the sampling histogram: a certified search over compositions of distributions.

For two types, over how many records follow which end of an interval. E(k) = E[delta(K)] with
K = Bin(k, p) + Bin(n - k, q). If delta is replaced by a majorant U that falls to the middle and
rises after it (V-shaped), E(k) becomes quasi-convex in k (docs/proofs/smoothed-expected.md). So
once E^U(k) is at most the best exact E found, for one k counted from each end, every k between is
settled as well.

For three or more types: exact by enumeration when small, else a rigorous bracket or sampling.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import logarithms
from mezzotint.smoothed.grids import FLOATS, best_composition
from mezzotint.smoothed.landscapes import (
    Landscape,
    landscape,
    log_masses,
    log_rate_of,
    log_tail,
)
from mezzotint.smoothed.mechanisms import Counts, histogram_count, histograms_of
from mezzotint.smoothed.model import LOG_TEN, Distribution, Loss, Sample, Status, split
from mezzotint.smoothed.noisy_profiles import noisy_profile
from mezzotint.smoothed.profiles import histogram_profile, log_pair

MAX_ALL_SPLITS = 4096
"""All splits are compared exactly up to this many records when the certificate does not close."""

MAX_COMPARED = 5 * MAX_ALL_SPLITS
"""And up to this many where it is asked for."""
MAX_MOVED = 64
"""Compositions evaluated from either end before the search gives up and reports a bracket."""
_CLOSE = 1e-11
"""Bounds of a logarithm that are this near are closed."""
_RELEVANT = 14.0
"""Terms this far below a bound, as logarithms, do not matter to it."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """The best expectation found and rigorous bounds of the maximum over all compositions.

    Arguments:
        log_value, log_lower, log_upper: natural logarithms.
        split: counts the records that follow each vertex.
        method, reason, status, exact: as in `Expected`.
        checked: compositions of two types evaluated exactly.
        log_worst: the worst delta over all databases; None where the sampler alone decides it.
    """

    log_value: float
    log_lower: float
    log_upper: float
    split: tuple[int, ...]
    method: str
    reason: str
    status: Status = "closed"
    checked: int = 1
    exact: Fraction | None = None
    log_worst: float | None = None


def log_of_sum(logs: Sequence[float] | np.ndarray) -> float:
    """The logarithm of the sum of numbers that are given by theirs."""
    return float(np.logaddexp.reduce(np.asarray(logs)))


def expectation_error(log_value: float, moved: int) -> float:
    """A bound on the error of an expectation's logarithm, beyond that of the values it averages.

    Terms that matter have logarithms of at most |log_value| + 80; each mixing step adds a few
    roundings of that.
    """
    if log_value == -math.inf:
        return 0.0
    largest_logarithm = 80.0 + abs(log_value)
    weights = logarithms.stated_error(largest_logarithm, 0.0)
    return weights + (4.0 + moved) * 2.0**-50 * largest_logarithm


def evaluate(
    scape: Landscape,
    columns: list[np.ndarray],
    moved: int,
    share: Fraction,
    *,
    outside: bool,
) -> tuple[float, float]:
    """log E over n - moved records of `share`, and a bound of its rounding error.

    The other records are in the columns, of which there is one per piece; `outside` adds bounds for
    everything outside the pieces.
    """
    records = scape.records - moved
    pair = split(share)
    terms: list[float] = []
    for piece, column in zip(scape.pieces, columns, strict=True):
        log_part = logarithms.log_expectation(column, piece.start, records, pair)
        terms.append(log_part)
    if outside:
        window_start = scape.pieces[0].start
        last_piece = scape.pieces[-1]
        window_end = last_piece.start + len(columns[-1])
        before_window = log_tail(window_start - 1, records, share, above=False)
        after_window = log_tail(window_end, records, share, above=True)
        terms.append(scape.log_rate + before_window)
        terms.append(scape.log_rate + after_window)
        if len(scape.pieces) == 2:
            first_end = window_start + len(columns[0])
            second_start = scape.pieces[1].start
            after_first = log_tail(first_end, records, share, above=True)
            before_second = log_tail(second_start - 1, records, share, above=False)
            terms.append(scape.log_middle + min(after_first, before_second))
    log_sum = log_of_sum(terms)
    return log_sum, expectation_error(log_sum, moved)


def search(
    sample: Sample,
    loss: Loss,
    ends: tuple[Fraction, ...],
    method: str,
) -> Range:
    """The largest expectation over all splits of n records between the ends.

    One or two shares of the first type. Records are sampled without replacement, at least one is
    lost; "certificate" is "auto" without its fallback.
    """
    if len(ends) == 1:
        return _single_vertex(sample, loss, ends[0])
    if method == "all_splits":
        return _all_splits(sample, loss, ends)
    records = sample.records
    smaller_shares = [min(share, 1 - share) for share in ends]
    smallest_share = min(smaller_shares)
    pad = min(records, MAX_MOVED)
    scape = landscape(sample=sample, loss=loss, share=smallest_share, pad=pad)
    certificate = _certificate(scape, ends)
    if certificate.status != "closed" and method == "auto" and records <= MAX_ALL_SPLITS:
        return _all_splits(sample, loss, ends)
    return certificate


def _single_vertex(sample: Sample, loss: Loss, share: Fraction) -> Range:
    """The range where all records have one distribution; `share` is that of the first of two types."""
    least_share = min(share, 1 - share)
    scape = landscape(sample=sample, loss=loss, share=least_share, pad=0)
    lower_columns = [piece.columns[0] for piece in scape.pieces]
    upper_columns = [piece.columns[1] for piece in scape.pieces]
    value, error = evaluate(scape=scape, columns=lower_columns, moved=0, share=share, outside=False)
    bound, bound_error = evaluate(
        scape=scape, columns=upper_columns, moved=0, share=share, outside=True
    )
    return Range(
        log_value=value,
        log_lower=value - error,
        log_upper=bound + bound_error,
        split=(sample.records,),
        method="single vertex",
        reason="One distribution: delta summed over the counts that matter, the rest bounded.",
    )


def _certificate(scape: Landscape, ends: tuple[Fraction, ...]) -> Range:
    """The range over all compositions of two distributions: those near either end are evaluated
    until a majorant settles the others, or the evaluated ones run out.
    """
    records = scape.records
    best = _Best()
    # The lopsided end first: it is nearly always the optimum, and a high best closes the other side
    # at once.
    least_shares = [min(share, 1 - share) for share in ends]
    for end in sorted((0, 1), key=least_shares.__getitem__):
        _search_from(scape, ends, end, best)
    # A composition whose bound stayed loose (its records lie outside the window) leaves a bracket.
    log_upper = min(scape.log_rate, best.upper)
    status: Status = "bracketed"
    verb = "bounds"
    closeness = max(_CLOSE, 4.0 * best.error)
    if log_upper - best.value <= closeness:
        status = "closed"
        verb = "settles"
    return Range(
        log_value=best.value,
        log_lower=best.value - best.error,
        log_upper=log_upper,
        split=(best.first, records - best.first),
        status=status,
        method="certificate",
        checked=best.checked,
        reason=f"{best.checked} of {records + 1} compositions evaluated; "
        f"a quasi-convex majorant {verb} the others.",
    )


@dataclass(kw_only=True)
class _Best:
    """The best composition so far.

    Arguments:
        value, error: of its expectation's logarithm.
        first: records of the first end.
        upper: bounds every composition that was evaluated or settled.
        checked: compositions that were evaluated.
    """

    value: float = -math.inf
    error: float = 0.0
    first: int = 0
    upper: float = -math.inf
    checked: int = 0


def _search_from(
    scape: Landscape,
    ends: tuple[Fraction, ...],
    end: int,
    best: _Best,
) -> None:
    """Move records away from one end, one after the other, until the majorant settles the others."""
    moved_share = split(ends[1 - end])
    all_columns = [piece.columns for piece in scape.pieces]
    columns_by_kind = list(map(list, zip(*all_columns, strict=True)))
    for moved in range(scape.pad + 1):
        if moved > 0:
            for columns in columns_by_kind:
                columns[:] = [logarithms.mix_step(column, moved_share) for column in columns]
        lower, upper, majorant = columns_by_kind
        value, error = evaluate(
            scape=scape, columns=lower, moved=moved, share=ends[end], outside=False
        )
        upper_bound, upper_error = evaluate(
            scape=scape, columns=upper, moved=moved, share=ends[end], outside=True
        )
        ceiling, ceiling_error = evaluate(
            scape=scape, columns=majorant, moved=moved, share=ends[end], outside=True
        )
        best.checked += 1
        best.upper = max(best.upper, upper_bound + upper_error)
        if value > best.value:
            best.value = value
            best.error = error
            best.first = scape.records - moved
            if end == 1:
                best.first = moved
        if moved >= scape.records - moved:
            # Past the middle every composition was evaluated from one end or the other.
            return
        if ceiling + ceiling_error <= best.value + _CLOSE or moved == scape.pad:
            best.upper = max(best.upper, ceiling + ceiling_error)
            return


def _all_splits(
    sample: Sample,
    loss: Loss,
    ends: tuple[Fraction, ...],
) -> Range:
    # V(j) = E[delta(j + Bin(k, p))] by one mixing step per k, then n - k records of the other end:
    # O(n^2).
    records = sample.records
    lost = float(sample.lost)
    if records > MAX_COMPARED:
        remedy = f"comparing all splits needs n <= {MAX_COMPARED}; use the certificate"
        raise ParameterError("n", records, remedy)
    total = float(records)
    log_deltas = logarithms.log_delta_window(0, records, total, lost, loss.parts)
    errors = logarithms.stated_errors(log_deltas, lost)
    return compare_splits(log_deltas, float(errors.max()), ends)


def compare_splits(
    values: np.ndarray,
    inner: float,
    ends: tuple[Fraction, ...],
) -> Range:
    """The largest expectation of exp(values[K]) over all splits of n records between two shares.

    Arguments:
        values: (n + 1,) log delta by the count of the first type.
        inner: bound on the error of each.
        ends: the two shares of the first type.
    """
    records = values.size - 1
    best = _Best(checked=records + 1)
    for moved in range(records + 1):
        if moved > 0:
            values = logarithms.mix_step(values, split(ends[0]))
        share = split(ends[1])
        log_mean = logarithms.log_expectation(values, 0, records - moved, share)
        error = inner + expectation_error(log_mean, moved)
        best.upper = max(best.upper, log_mean + error)
        if log_mean > best.value:
            best.value = log_mean
            best.error = error
            best.first = moved
    return Range(
        log_value=best.value,
        log_lower=best.value - best.error,
        log_upper=best.upper,
        split=(best.first, records - best.first),
        method="all splits",
        checked=best.checked,
        reason=f"All {best.checked} compositions evaluated.",
    )


MAX_ENUMERATION = 400_000_000
"""Enumeration is chosen when its cells (histograms, times steps over all compositions) stay below
this."""
MAX_PAIRS = 4000
"""And when the rarest counts form at most this many pairs to evaluate."""
MAX_BLOCKS = 96
"""Blocks of counts that the upper bracket is refined to at most."""


def enumerable(records: int, vertices: tuple[Distribution, ...]) -> bool:
    """Whether every histogram and every composition can be enumerated in seconds."""
    types = len(vertices[0])
    cell_count = (records + 1) ** (types - 1)
    splits = histogram_count(records, len(vertices))
    rare_counts, common_counts = records // types + 1, records // 2 + 1
    pairs = rare_counts * common_counts
    return cell_count * splits * records * types <= MAX_ENUMERATION and pairs <= MAX_PAIRS


def enumerate_all(
    sample: Sample,
    loss: Loss,
    vertices: tuple[Distribution, ...],
) -> Range:
    """The exact maximum over all compositions of n records among the vertices."""
    types = len(vertices[0])
    deltas, _, delta_error = histogram_deltas(sample, loss, types)
    largest_mean, composition = best_composition(
        deltas=deltas, records=sample.records, vertices=vertices, arithmetic=FLOATS
    )
    # One step for each record, then a sum with a multinomial law of as many.
    roundings = sample.records * (types + 2) + 8
    error = delta_error + 2.0**-51 * roundings
    log_value = math.log(float(largest_mean))
    return Range(
        log_value=log_value,
        log_lower=log_value - error,
        log_upper=min(0.0, log_value + error),
        split=composition,
        method="enumeration",
        reason="Every histogram and every composition evaluated.",
    )


def histogram_deltas(
    sample: Sample,
    loss: Loss,
    types: int,
    noise: Fraction | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """delta of every histogram, their upper bounds, and a bound on the errors of their logarithms.

    Of three or more types, any histogram with the same two smallest counts has the same delta,
    but for noise, of which each type receives its own.
    """
    records = sample.records
    deltas = np.zeros((records + 1,) * (types - 1))
    upper_bounds = np.zeros_like(deltas)
    largest_error = 0.0

    @functools.cache
    def delta_of(counts: Counts) -> tuple[float, float, float]:
        if noise is None:
            profile = histogram_profile(counts, sample, loss)
        else:
            profile = noisy_profile(counts, sample, loss, noise)
        log_error = (profile.log10_upper - profile.log10_delta) * LOG_TEN + 1e-15
        return 10.0**profile.log10_delta, min(1.0, 10.0**profile.log10_upper), log_error

    for histogram in histograms_of(records, types):
        counts = tuple(sorted(histogram))
        if noise is None and types > 2:
            rare, common, *_ = counts
            counts = (rare, common, records - rare - common)
        cell = histogram[:-1]
        deltas[cell], upper_bounds[cell], log_error = delta_of(counts)
        largest_error = max(largest_error, log_error)
    return deltas, upper_bounds, largest_error


def bracket(
    sample: Sample,
    loss: Loss,
    vertices: tuple[Distribution, ...],
) -> Range:
    """Rigorous bounds of the maximum over all compositions, at any number of records.

    From below: merging all types but i is post-processing, so the two-type problem of type i is a
    lower bound. From above: unless two types both have fewer than b records, the rarest count h and
    b bound delta(H) by g(h), the largest of the four D at the counts h and max(h, b), because D
    falls with both counts. So E[delta] <= sum_i E[g(H_i); H_i <= n/m] + eta sum_{i<j} Pr[H_i + H_j
    <= 2 b - 2]. Each term falls as the counts in it grow, and they are stochastically smallest when
    every record has the smallest chance of them.
    """
    types = len(vertices[0])
    log_lower = -math.inf
    log_value = -math.inf
    worst_vertex = 0
    for index in range(types):
        shares = [vertex[index] for vertex in vertices]
        extremes = (min(shares), max(shares))
        ends = tuple(dict.fromkeys(extremes))
        merged = search(sample, loss, ends, "certificate")
        if merged.log_value > log_value:
            log_value = merged.log_value
            worst_vertex = shares.index(min(shares))
        log_lower = max(log_lower, merged.log_lower)
    second, crowded = _second_count(sample, vertices, log_lower - _RELEVANT)
    bounds = [crowded]
    for index in range(types):
        least_share = min(vertex[index] for vertex in vertices)
        bounds.append(
            log_rarest_bound(
                sample=sample,
                loss=loss,
                share=least_share,
                top=sample.records // types,
                second=second,
                lower=log_lower,
            )
        )
    log_upper = min(log_of_sum(bounds) + 1e-12, log_rate_of(sample))
    composition = [0] * len(vertices)
    composition[worst_vertex] = sample.records
    return Range(
        log_value=max(log_value, log_lower),
        log_lower=log_lower,
        log_upper=max(log_upper, log_lower),
        split=tuple(composition),
        status="bracketed",
        method="bracket",
        reason="Between the worst two-type problem and the sum over types of the rarest-type "
        "bound.",
    )


def _second_count(
    sample: Sample,
    vertices: tuple[Distribution, ...],
    goal: float,
) -> tuple[int, float]:
    """The largest b for which two types below b records are negligible, and their contribution."""
    records = sample.records
    shares: list[Fraction] = []
    pairs = itertools.combinations(range(len(vertices[0])), 2)
    for first, second in pairs:
        pair_shares = [vertex[first] + vertex[second] for vertex in vertices]
        shares.append(min(pair_shares))

    def crowded(count: int) -> float:
        pair_count = 2 * count - 2
        tails = [log_tail(pair_count, records, share, above=False) for share in shares]
        return log_rate_of(sample) + log_of_sum(tails)

    counts = range(1, records // 2 + 1)

    def is_crowded(count: int) -> bool:
        return crowded(count) > goal

    largest = bisect.bisect_left(counts, True, key=is_crowded)
    return largest, crowded(largest)


def log_rarest_bound(
    sample: Sample,
    loss: Loss,
    share: Fraction,
    top: int,
    second: int,
    lower: float,
) -> float:
    """log E[g(K); K <= top] for K ~ Bin(n, share), from above.

    The part of `bracket` in which this type is the rarest. g is taken at the left end of blocks,
    halved where that overstates most, until that matters little.
    """
    rarest_of = functools.partial(_log_rarest, sample, loss, second)
    log_g = functools.cache(rarest_of)
    if share == 0:
        return log_g(0)
    if share == 1:
        return -math.inf
    records = sample.records
    first_count, last_count = mass_window(records, share, top)
    counts = np.arange(first_count, last_count + 1, dtype=np.float64)
    masses = log_masses(counts, records, share)
    below_first = log_tail(first_count - 1, records, share, above=False)
    log_bounds = [log_rate_of(sample) + below_first]
    if last_count < top:
        log_mass = log_tail(last_count + 1, records, share, above=True)
        log_bounds.append(log_g(last_count + 1) + log_mass)

    def block(first: int, last: int) -> tuple[float, float, int, int]:
        """(-overstatement, bound, first, last), the former two as logarithms."""
        block_masses = masses[first - first_count : last - first_count + 1]
        mass = log_of_sum(block_masses)
        log_first = log_g(first)
        bound = mass + log_first
        log_fall = min(0.0, log_g(last) - log_first)
        fall_share = -math.expm1(log_fall)
        overstatement = bound + math.log(max(1e-300, fall_share))
        return -overstatement, bound, first, last

    heap = [block(first_count, last_count)]
    while len(heap) < MAX_BLOCKS:
        log_total = log_of_sum([bound for _, bound, _, _ in heap])
        overstatement, _, first, last = heap[0]
        matters_little = -overstatement <= log_total - 9.0 or log_total <= lower - _RELEVANT
        if first == last or matters_little:
            break
        heapq.heappop(heap)
        middle = (first + last) // 2
        heapq.heappush(heap, block(first, middle))
        heapq.heappush(heap, block(middle + 1, last))
    log_bounds += [bound for _, bound, _, _ in heap]
    return log_of_sum(log_bounds) + 1e-9


def _log_rarest(
    sample: Sample,
    loss: Loss,
    second: int,
    count: int,
) -> float:
    """log g(count) of `bracket`, from above, where all other types have `second` records or more."""
    if count <= 1:
        return log_rate_of(sample)
    common = max(count, second)
    orders = {
        (count, common + 1),
        (count + 1, common),
        (common, count + 1),
        (common + 1, count),
    }
    log_pairs = [log_pair(*order, sample, loss, binary=False) for order in orders]
    largest = max(log_pairs)
    lost = float(sample.lost)
    error = 2 * logarithms.stated_error(largest, lost)
    return min(log_rate_of(sample), largest + error)


def mass_window(records: int, share: Fraction, top: int) -> tuple[int, int]:
    """The first and the last count up to `top` that matter, of Bin(records, share).

    From where even the rate times the lower tail is hopeless to beyond the bulk, in at most a few
    million counts.
    """
    mean = float(records * share)
    variance = float(records * share * (1 - share))
    deviation = math.sqrt(variance)
    hopeless = math.floor(mean - 60.0 * deviation - 60.0)
    beyond_bulk = math.ceil(mean + 12.0 * deviation + 60.0)
    window_start = max(0, min(hopeless, top))
    window_end = max(window_start, beyond_bulk)
    return window_start, min(top, window_end)
