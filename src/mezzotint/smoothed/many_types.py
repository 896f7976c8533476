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
from mezzotint.smoothed.mechanisms import histogram_count
from mezzotint.smoothed.model import LOG_TEN, Distribution, Loss, Sample, Status, split
from mezzotint.smoothed.profiles import histogram_profile, log_pair

MAX_WINDOW = 20_000_000
"""Counts evaluated one by one; beyond this the sum would take minutes."""
MAX_ALL_SPLITS = 4096
"""All splits are compared exactly up to this many records when the certificate does not close."""

MAX_COMPARED = 5 * MAX_ALL_SPLITS
"""And up to this many where it is asked for."""
MAX_MOVED = 64
"""Compositions evaluated from either end before the search gives up and reports a bracket."""
_CLOSE = 1e-11
"""Bounds of a logarithm that are this near are closed."""
_TARGET = 35.0
"""By how much, as a logarithm, the counts outside the window lie below the largest term."""

_MOST_EDGES = 2049
"""Of the blocks of counts among which the window's last count is sought."""

_RELEVANT = 14.0
"""Terms this far below a bound, as logarithms, do not matter to it."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """The best expectation found and rigorous bounds of the maximum over all compositions.

    Arguments:
        log_value, log_lower, log_upper: natural logarithms.
        split: counts the records that follow each vertex.
        method, reason, status: as in `Expected`.
        checked: compositions of two types evaluated exactly.
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
    count: int,
    records: int,
    share: Fraction,
    *,
    above: bool,
) -> float:
    """Upper bound of log Pr[Bin(records, share) >= count] (above) or Pr[.. <= count].

    Geometric beyond the mode, else 0.
    """
    mean = records * share
    if above:
        impossible = count > records
        before_mode = count <= mean + 1
        following = count + 1
    else:
        impossible = count < 0
        before_mode = count >= mean - 1
        following = count - 1
    if impossible:
        return -math.inf
    if before_mode:
        return 0.0
    if share in (0, 1):
        return -math.inf
    counts = np.array([float(count), float(following)])
    log_mass, log_following = log_masses(counts, records, share).tolist()
    upper_mass = log_mass + logarithms.stated_error(log_mass, 0.0)
    if following < 0 or following > records:
        return min(0.0, upper_mass)
    log_fall = min((log_following - log_mass) + 1e-9, -1e-300)
    log_gap = math.log(-math.expm1(log_fall))
    return min(0.0, upper_mass - log_gap)


def landscape(
    sample: Sample,
    loss: Loss,
    share: Fraction,
    pad: int,
) -> Landscape:
    """The landscape that suffices where every type has a chance of `share` at least.

    `share` <= 1/2; `pad` records may be moved.
    """
    records = sample.records
    log_rate = _log_rate(sample)
    peak, peak_value = _peak(sample, loss, share)
    log_negligible = peak_value - _TARGET
    log_small = 0.0
    if pad > 0:
        log_small = peak_value
    window_end, log_middle = _high_end(sample, loss, share, peak, log_negligible, log_small)
    window_start = _low_end(records, share, peak, log_negligible - log_rate)
    if window_end - window_start > MAX_WINDOW:
        remedy = f"needs delta at {window_end - window_start} counts; use asymptotic_rate for this many records"
        raise ParameterError("n", records, remedy)
    lost = float(sample.lost)
    log_deltas = logarithms.log_delta_window(
        window_start, window_end, float(records), lost, loss.parts
    )
    errors = logarithms.stated_errors(log_deltas, lost)
    upper = np.minimum(log_deltas + errors, log_rate)
    falling = _largest_from(upper)
    majorant = np.maximum(falling, log_middle)
    log_middle = min(log_middle, log_rate)
    columns = (
        (log_deltas - errors, -math.inf, -math.inf),
        (upper, log_rate, log_middle),
        (majorant, log_rate, log_middle),
    )
    return Landscape(
        records=records,
        pieces=_assemble(records, window_start, window_end, columns, pad),
        log_rate=log_rate,
        log_middle=log_middle,
        pad=pad,
    )


def _assemble(
    records: int,
    window_start: int,
    window_end: int,
    columns: tuple[tuple[np.ndarray, float, float], ...],
    pad: int,
) -> tuple[Piece, ...]:
    """The window of counts and its mirror image; one piece where they meet.

    Each column comes with what holds before the window and after it.
    """
    if window_end + pad + 1 < records - window_end - pad:
        halves: list[np.ndarray] = []
        for column, before, after in columns:
            left_padding = np.full(pad, before)
            right_padding = np.full(pad, after)
            parts = (left_padding, column, right_padding)
            halves.append(np.concatenate(parts))
        mirrored = tuple(half[::-1].copy() for half in halves)
        second_start = records - window_end - pad
        first = Piece(start=window_start - pad, columns=tuple(halves))
        second = Piece(start=second_start, columns=mirrored)
        return first, second
    # The middle is filled with its bound. With n even and the window reaching n / 2, that count
    # belongs to both sides (gap = -1).
    middle_size = records - 2 * window_end - 1
    joined: list[np.ndarray] = []
    for column, before, after in columns:
        padding = np.full(pad, before)
        middle = np.full(max(0, middle_size), after)
        reversed_column = column[::-1]
        mirrored_column = reversed_column[max(0, -middle_size) :]
        parts = (padding, column, middle, mirrored_column, padding)
        joined.append(np.concatenate(parts))
    return (Piece(start=window_start - pad, columns=tuple(joined)),)


def _largest_from(values: np.ndarray) -> np.ndarray:
    """The largest value from each position on."""
    reversed_values = np.maximum.accumulate(values[::-1])
    return reversed_values[::-1]


def log_masses(counts: np.ndarray, records: int, share: Fraction) -> np.ndarray:
    """The logarithms of Bin(records, share) at these counts."""
    return logarithms.binomials(counts, float(records), split(share))


def log_of_sum(logs: Sequence[float] | np.ndarray) -> float:
    """The logarithm of the sum of numbers that are given by theirs."""
    return float(np.logaddexp.reduce(np.asarray(logs)))


def _peak(sample: Sample, loss: Loss, share: Fraction) -> tuple[int, float]:
    # Where Bin(j) delta(j) is largest, roughly; its value is a lower bound of the expectation in
    # any case.
    records = float(sample.records)
    first_count = 0
    last_count = sample.records // 2
    while True:
        even_counts = np.linspace(first_count, last_count, 33)
        counts = np.unique(even_counts.round())
        masses = log_masses(counts, sample.records, share)
        lost = float(sample.lost)
        deltas = logarithms.log_deltas(counts, records, lost, loss.parts)
        products = masses + deltas
        largest = int(np.argmax(products))
        if last_count - first_count <= 32:
            return int(counts[largest]), float(products[largest])
        first_count = int(counts[max(0, largest - 1)])
        last_index = min(counts.size - 1, largest + 1)
        last_count = int(counts[last_index])


def _high_end(
    sample: Sample,
    loss: Loss,
    share: Fraction,
    peak: int,
    log_negligible: float,
    log_small: float,
) -> tuple[int, float]:
    """The last count of the window, and a bound of log delta from there to the middle.

    Beyond the window the bound times the mass must be negligible and, for the other compositions,
    the bound itself small.
    """
    records = sample.records
    middle_count = (records + 2) // 2
    edge_count = min(_MOST_EDGES, middle_count)
    even_edges = np.linspace(1, middle_count, edge_count)
    whole_edges = np.unique(even_edges.astype(np.int64))
    edges = whole_edges.astype(np.float64)
    if edges.size < 2:
        return records // 2, -math.inf
    lost = float(sample.lost)
    block_bounds = logarithms.block_bounds(edges, float(records), lost, loss.parts)
    beyond: list[float] = _largest_from(block_bounds).tolist()
    starts: list[int] = whole_edges[:-1].tolist()

    def is_negligible(block: int) -> bool:
        # The bounds fall along the edges, and so does the mass beyond them.
        if starts[block] <= peak:
            return False
        start = starts[block]
        log_mass = log_tail(start, records, share, above=True)
        return beyond[block] + log_mass <= log_negligible

    def is_small(block: int) -> bool:
        return beyond[block] <= log_small

    blocks = range(len(starts))
    first_negligible = bisect.bisect_left(blocks, True, key=is_negligible)
    first_small = bisect.bisect_left(blocks, True, key=is_small)
    # If the bound never becomes small the other compositions have to do with the first.
    for block in (max(first_negligible, first_small), first_negligible):
        reaches_middle = block >= len(starts) or starts[block] >= records // 2
        if not reaches_middle:
            return starts[block] - 1, beyond[block]
    return records // 2, -math.inf


def _low_end(
    records: int,
    share: Fraction,
    peak: int,
    log_negligible: float,
) -> int:
    """The largest count below which the binomial mass is under exp(goal)."""

    def matters(count: int) -> bool:
        log_mass = log_tail(count - 1, records, share, above=False)
        return log_mass > log_negligible

    first_that_matters = bisect.bisect_left(range(peak), True, key=matters)
    return max(0, first_that_matters - 1)


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
    deltas, delta_error = _delta_grid(sample, loss, types)
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


def _delta_grid(
    sample: Sample,
    loss: Loss,
    types: int,
) -> tuple[np.ndarray, float]:
    """delta of every histogram, and a bound on the errors of their logarithms."""
    records = sample.records
    deltas = np.zeros((records + 1,) * (types - 1))
    largest_error = 0.0

    @functools.cache
    def rarest(rare: int, common: int) -> tuple[float, float]:
        # Any histogram with these two smallest counts has the same delta.
        counts = (rare, common, records - rare - common)
        profile = histogram_profile(counts, sample, loss)
        log_error = (profile.log10_upper - profile.log10_delta) * LOG_TEN + 1e-15
        return 10.0**profile.log10_delta, log_error

    for counts in itertools.product(range(records + 1), repeat=types - 1):
        remaining = records - sum(counts)
        if remaining >= 0:
            rare, common, *_ = sorted((*counts, remaining))
            deltas[counts], log_error = rarest(rare, common)
            largest_error = max(largest_error, log_error)
    return deltas, largest_error


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
    log_upper = min(log_of_sum(bounds) + 1e-12, _log_rate(sample))
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


def _log_rate(sample: Sample) -> float:
    return math.log1p(-sample.lost / sample.records) + 1e-15


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
        both = 2 * count - 2
        tails = [log_tail(both, records, share, above=False) for share in shares]
        return _log_rate(sample) + log_of_sum(tails)

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
    log_bounds = [_log_rate(sample) + below_first]
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
        return _log_rate(sample)
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
    return min(_log_rate(sample), largest + error)


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
