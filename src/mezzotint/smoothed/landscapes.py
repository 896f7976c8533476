"""delta of the sampling histogram over the counts of one of two types that matter, with a majorant
over all counts.

The majorant falls to the middle and rises after it (V-shaped): see `many_types`.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import logarithms
from mezzotint.smoothed.model import Loss, Sample, split

MAX_WINDOW = 20_000_000
"""Counts evaluated one by one; beyond this the sum would take minutes."""
_TARGET = 35.0
"""By how much, as a logarithm, the counts outside the window lie below the largest term."""

_MOST_EDGES = 2049
"""Of the blocks of counts among which the window's last count is sought."""


def log_rate_of(sample: Sample) -> float:
    """The logarithm of the share of records that is sampled, rounded up: no delta is larger."""
    return math.log1p(-sample.lost / sample.records) + 1e-15


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
    log_rate = log_rate_of(sample)
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
