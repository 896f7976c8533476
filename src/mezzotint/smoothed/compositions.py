"""Smoothed DP of any anonymous mechanism: delta of every histogram, the worst composition of laws.

Algorithm 1 of "Smoothed Differential Privacy" as it is meant: delta of every histogram against its
neighbours, then the largest expectation over all ways to give each record one of the distributions.
Chances are rationals as long as that is cheap and all inputs are; else floats, with one error bound
that is added once, at the end (docs/proofs/smoothed-expected.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.types import UNIT
from mezzotint.smoothed import logarithms
from mezzotint.smoothed.bumps import CompositionSearch
from mezzotint.smoothed.grids import (
    FLOATS,
    Arithmetic,
    Grid,
    best_composition,
    mixed,
)
from mezzotint.smoothed.many_types import Range, compare_splits, histogram_deltas
from mezzotint.smoothed.mechanisms import (
    Anonymous,
    Counts,
    Histogram,
    Threshold,
    Winner,
    histogram_count,
)
from mezzotint.smoothed.model import (
    LOG_TEN,
    Distribution,
    Loss,
    Sample,
    Status,
    log_of,
    read_rational,
)
from mezzotint.smoothed.profiles import histogram_profile
from mezzotint.smoothed.sampled_laws import Setting, laws_of, sampled_rows

EXACT_OPERATIONS = 1_500_000
"""Operations on rationals, a microsecond or two each, up to which results are exact."""
FLOAT_OPERATIONS = 4_000_000_000
"""Operations on floats, beyond which the question is refused."""
MAX_CELLS = 20_000_000
"""Histograms, beyond which the question is refused."""

PAIR_ERROR = 1e-9
"""Error of a delta from the pair formulas of the histogram."""
ACCURACY = 1e-6
"""Relative width below which a value in floats counts as closed."""


# delta of every histogram


def delta_grid(
    rows: Grid,
    records: int,
    loss: Loss,
    arithmetic: Arithmetic,
) -> Grid:
    """delta(h) of every histogram; 0 off the simplex.

    The largest divergence from a neighbour, in either direction.
    """
    axes = rows.ndim - 1
    ratio = arithmetic.number(loss.ratio)
    deltas = arithmetic.zeros(*rows.shape[:-1])
    record_counts = np.indices(rows.shape[:-1]).sum(axis=0)
    is_histogram = record_counts <= records
    for giver, taker in itertools.permutations(range(axes + 1), 2):
        original, neighbour = _neighbours(giver, taker, axes, records)
        laws = rows[original]
        neighbour_laws = rows[neighbour]
        forward = arithmetic.positive(laws - ratio * neighbour_laws)
        backward = arithmetic.positive(neighbour_laws - ratio * laws)
        are_histograms = is_histogram[original] & is_histogram[neighbour]
        forward_sums, backward_sums = forward.sum(axis=-1), backward.sum(axis=-1)
        worse = np.maximum(forward_sums, backward_sums)
        nothing = arithmetic.number(0)
        divergences = np.where(are_histograms, worse, nothing)
        deltas[original] = np.maximum(deltas[original], divergences)
    return deltas


def _neighbours(
    giver: int,
    taker: int,
    axes: int,
    records: int,
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Slices of h and of h - e_giver + e_taker, for all h for which both indices exist."""
    original = [slice(None)] * axes
    neighbour = [slice(None)] * axes
    if giver < axes:
        original[giver] = slice(1, None)
        neighbour[giver] = slice(0, records)
    if taker < axes:
        original[taker] = slice(0, records)
        neighbour[taker] = slice(1, None)
    return tuple(original), tuple(neighbour)


def _noise_of(mechanism: Anonymous) -> Fraction | None:
    """The noise on a histogram."""
    assert isinstance(mechanism, Histogram)
    if mechanism.noise_ratio is None:
        return None
    return read_rational("noise_ratio", mechanism.noise_ratio)


# The worst composition


def adversary_bound(
    deltas: Grid,
    records: int,
    vertices: Sequence[Distribution],
) -> float:
    """An upper bound of every composition.

    An adversary who sees earlier records before choosing the next distribution.
    """
    expectations = deltas
    for total in range(records, 0, -1):
        by_vertex: list[Grid] = []
        for vertex in vertices:
            by_vertex.append(mixed(expectations, total, vertex, FLOATS))
        expectations = np.max(by_vertex, axis=0)
    return float(expectations.ravel()[0])


def improved_composition(
    deltas: Grid,
    records: int,
    vertices: Sequence[Distribution],
) -> tuple[float, Counts]:
    """A good composition: the pure ones and the even one, the best of them improved.

    By exchanging ever fewer records.
    """
    values: dict[Counts, float] = {}

    def value(composition: Counts) -> float:
        if composition not in values:
            values[composition] = _expectation(deltas, records, vertices, composition)
        return values[composition]

    compositions = simple_compositions(records, len(vertices))
    chosen = max(compositions, key=value)
    exchange_size = max(1, records // 4)
    while exchange_size >= 1:
        exchanged: list[Counts] = []
        for giver, taker in itertools.permutations(range(len(vertices)), 2):
            if chosen[giver] >= exchange_size:
                counts = list(chosen)
                counts[giver] -= exchange_size
                counts[taker] += exchange_size
                exchanged.append(tuple(counts))
        better = max(exchanged, key=value, default=chosen)
        if value(better) > value(chosen):
            chosen = better
        else:
            exchange_size //= 2
    return value(chosen), chosen


def simple_compositions(records: int, vertices: int) -> list[Counts]:
    """All records of one distribution, for each of them, and as many of each."""
    compositions: list[Counts] = []
    for chosen in range(vertices):
        counts = [0] * vertices
        counts[chosen] = records
        compositions.append(tuple(counts))
    even_count = records // vertices
    other_counts = (even_count,) * (vertices - 1)
    even = (records - sum(other_counts), *other_counts)
    return list(dict.fromkeys([*compositions, even]))


def _expectation(
    deltas: Grid,
    records: int,
    vertices: Sequence[Distribution],
    composition: Counts,
) -> float:
    """E[delta] when so many records are drawn from each distribution, in turn: each mixing step
    averages over one record's type and leaves a grid of one record less.
    """
    expectations = deltas
    remaining = records
    for vertex, count in zip(vertices, composition, strict=True):
        for _ in range(count):
            expectations = mixed(expectations, remaining, vertex, FLOATS)
            remaining -= 1
    return float(expectations.ravel()[0])


# Putting it together


# Two types, in logarithms

MAX_RECORDS = 20_000
"""Two types: all compositions are compared up to this many records, n^2 steps."""
MAX_THRESHOLD_RECORDS = 2_000_000
"""Thresholds and majorities: bump by bump beyond, up to this many."""
LOG_ERROR = 2.0**-30
"""Bound on the error of log delta of one histogram in logarithms: of its terms, where no difference
is nearly zero."""


def log_increments(
    least: int,
    records: int,
    sampled: int,
) -> npt.NDArray[np.float64]:
    """(n,) log of p(k+1) - p(k) by the count k of the first type.

    p(k) is the chance that a sample without replacement has `least` of these records at least. One
    record more matters if it is drawn and `least` - 1 of the other T - 1 draws are of that type.
    """
    counts = np.arange(records, dtype=np.float64)
    log_chances = np.full(records, -math.inf)
    if not 1 <= least <= sampled:
        return log_chances
    other_draws = least - 1
    has_drawn = counts >= other_draws
    has_others = records - 1 - counts >= sampled - 1 - other_draws
    is_possible = has_drawn & has_others
    for count in np.flatnonzero(is_possible).tolist():
        log_chances[count] = logarithms.log_hypergeometric(
            float(other_draws),
            float(count),
            float(records - 1 - count),
            float(sampled - 1),
        )
    return log_chances + math.log(sampled / records)


def threshold_deltas(
    least: int,
    sample: Sample,
    loss: Loss,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(n + 1,) log delta by the count of the first type, from below and from above.

    For sampling without replacement. The one step up from k is told with P - E Q:
    p(k+1) - E p(k) = step - (E - 1) p(k), and the same for the other output downwards. p is the sum
    of the steps before, 1 - p that of the steps after: no cancellation but in the last difference,
    whose two terms are moved apart and together by `LOG_ERROR` for the two results.
    """
    steps = log_increments(least, sample.records, sample.sampled)
    impossible = np.array([-math.inf])
    sums_from_below = np.logaddexp.accumulate(steps)
    reversed_sums = np.logaddexp.accumulate(steps[::-1])
    sums_from_above = reversed_sums[::-1]
    log_below = np.concatenate([impossible, sums_from_below])
    log_above = np.concatenate([sums_from_above, impossible])
    excess_ratio = float(loss.ratio - 1)
    log_factor = log_of(excess_ratio)
    deltas: list[npt.NDArray[np.float64]] = []
    for log_error in (-LOG_ERROR, LOG_ERROR):
        raised_steps = steps + log_error
        upwards = _log_difference(raised_steps, log_below[:-1] + log_factor - log_error)
        downwards = _log_difference(raised_steps, log_above[1:] + log_factor - log_error)
        step_deltas = np.maximum(upwards, downwards)
        to_below = np.concatenate([impossible, step_deltas])
        to_above = np.concatenate([step_deltas, impossible])
        deltas.append(np.maximum(to_below, to_above))
    lower, upper = deltas
    return lower, upper


def _log_difference(
    first: npt.NDArray[np.float64],
    second: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """log of max(0, e^first - e^second)."""
    log_differences = np.full(first.size, -math.inf)
    larger = first > second
    gap = second[larger] - first[larger]
    log_shares = np.log(-np.expm1(gap))
    log_differences[larger] = first[larger] + log_shares
    return log_differences


def _least_of(mechanism: Anonymous, sampled: int) -> int | None:
    """The threshold that a mechanism on two types is, or None."""
    if isinstance(mechanism, Threshold):
        return mechanism.least
    if isinstance(mechanism, Winner) and mechanism.rule == "plurality":
        return (sampled + 1) // 2
    return None


def search_two_types(setting: Setting, vertices: Sequence[Distribution]) -> Range | None:
    """Two types and one or two distributions at many records, in logarithms.

    The sampling histogram with any sampler, and thresholds and majorities of a sample without
    replacement; None for others.
    """
    records = setting.records
    record_limit = MAX_RECORDS
    if setting.mechanism != Histogram():
        record_limit = MAX_THRESHOLD_RECORDS
    if setting.types != 2 or len(vertices) > 2 or records > record_limit:
        return None
    log_bounds = _log_deltas(setting)
    if log_bounds is None:
        return None
    lower, upper = log_bounds
    first_vertex, last_vertex = vertices[0], vertices[-1]
    ends = (first_vertex[0], last_vertex[0])
    if records > MAX_RECORDS:
        return _search_bumps(lower, upper, ends, len(vertices))
    lower_search = compare_splits(lower, 0.0, ends)
    upper_search = compare_splits(upper, 0.0, ends)
    is_closed = upper_search.log_upper - lower_search.log_lower <= ACCURACY
    return Range(
        log_value=lower_search.log_value,
        log_lower=lower_search.log_lower,
        log_upper=min(0.0, upper_search.log_upper),
        split=lower_search.split if len(vertices) == 2 else (records,),
        method="all splits",
        status="closed" if is_closed else "bracketed",
        reason=f"All {records + 1} compositions, in logarithms.",
        log_worst=float(upper.max()),
    )


def _search_bumps(
    lower: npt.NDArray[np.float64],
    upper: npt.NDArray[np.float64],
    ends: tuple[Fraction, Fraction],
    vertices: int,
) -> Range | None:
    """Compositions bump by bump; None where delta has too many."""
    search = CompositionSearch(lower=lower, upper=upper, shares=ends)
    log_upper = search.run()
    if log_upper is None:
        return None
    records = upper.size - 1
    composition: tuple[int, ...] = (search.split, records - search.split)
    if vertices == 1:
        composition = (records,)
    status: Status = "bracketed"
    if log_upper - search.best <= ACCURACY:
        status = "closed"
    return Range(
        log_value=search.best,
        log_lower=search.best,
        log_upper=min(0.0, log_upper),
        split=composition,
        method="bumps",
        status=status,
        reason=f"{len(search.uppers)} bumps of delta, each of which has one best composition.",
        checked=search.evaluations,
        log_worst=min(0.0, float(upper.max())),
    )


def _log_deltas(
    setting: Setting,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """log delta by the count of the first of two types, from below and from above."""
    sample = setting.sample
    if sample is None:
        return None
    least = _least_of(setting.mechanism, sample.sampled)
    if least is not None and sample.sampling == "without_replacement":
        return threshold_deltas(least, sample, setting.loss)
    if setting.mechanism != Histogram():
        return None
    lower: list[float] = []
    upper: list[float] = []
    for count in range(setting.records + 1):
        counts = (count, setting.records - count)
        profile = histogram_profile(counts, sample, setting.loss)
        lower.append(profile.log10_delta)
        upper.append(profile.log10_upper)
    return LOG_TEN * np.array(lower), LOG_TEN * np.array(upper)


def operations(
    setting: Setting,
    outputs: int,
    vertices: int,
) -> tuple[int, int]:
    """Operations, roughly, for the deltas, and for all compositions."""
    records = setting.records
    types = setting.types
    histograms = histogram_count(records, types)
    step_count = 0
    if setting.sampling == "without_replacement":
        step_count = records - setting.totals[0]
    elif setting.sampling == "with_replacement":
        step_count = histogram_count(setting.totals[-1], types)
    elif setting.sampling == "poisson":
        step_count = types * (records + 1)
    neighbour_count = types * (types - 1)
    chance_operations = step_count * types + 2 * neighbour_count
    delta_operations = histograms * outputs * chance_operations
    composition_count = histogram_count(records, vertices)
    return delta_operations, composition_count * histograms * (types + 1) // types


def _outputs(setting: Setting) -> int:
    """How many outputs a full histogram has; few for other mechanisms."""
    if not isinstance(setting.mechanism, Histogram):
        return 4
    return sum(histogram_count(total, setting.types) for total in setting.totals)


def search_compositions(setting: Setting, vertices: Sequence[Distribution]) -> Range:
    """The largest expected delta of a mechanism over all compositions.

    Exact, in floats with a bound, or bracketed.

    Raises:
        ParameterError: too many records or types; a law that is none; noise with another sampler.
    """
    records = setting.records
    outputs = _outputs(setting)
    delta_operations, composition_operations = operations(setting, outputs, len(vertices))
    affordable = delta_operations + composition_operations <= EXACT_OPERATIONS
    if not affordable:
        by_logarithms = search_two_types(setting, vertices)
        if by_logarithms is not None:
            return by_logarithms
    is_pairwise = _is_pairwise(setting, delta_operations)
    histograms = histogram_count(records, setting.types)
    if histograms > MAX_CELLS or (delta_operations > FLOAT_OPERATIONS and not is_pairwise):
        remedy = f"{setting.types} types have {histograms:,} histograms; use fewer records"
        raise ParameterError("n", records, remedy)
    arithmetic = FLOATS
    if is_pairwise:
        assert setting.sample is not None
        noise = _noise_of(setting.mechanism)
        # Upper bounds: the logarithm of a noisy delta that rounds to 0 has no error to add.
        _, deltas, _ = histogram_deltas(setting.sample, setting.loss, setting.types, noise)
        delta_error = PAIR_ERROR
    else:
        laws = laws_of(setting)
        arithmetic = Arithmetic(is_exact=laws.is_exact and affordable)
        rows = sampled_rows(setting, laws, arithmetic)
        deltas = delta_grid(rows, records, setting.loss, arithmetic)
        delta_error = 0.0
        if not arithmetic.is_exact:
            delta_error = float_error(setting, len(laws.outputs), laws.largest_miss)
    log_worst = _log_fraction(arithmetic.fraction(deltas.max()))
    if composition_operations > FLOAT_OPERATIONS // 4:
        largest_mean, composition = improved_composition(deltas, records, vertices)
        upper_bound = adversary_bound(deltas, records, vertices)
        bracketed = _bracketed(
            value=largest_mean, upper=upper_bound, error=delta_error, counts=composition
        )
        return replace(bracketed, log_worst=log_worst)
    largest_mean, composition = best_composition(deltas, records, vertices, arithmetic)
    exact_mean = arithmetic.fraction(largest_mean) if arithmetic.is_exact else None
    closed_range = _closed(
        value=float(largest_mean), error=delta_error, counts=composition, exact=exact_mean
    )
    return replace(closed_range, log_worst=log_worst)


def _is_pairwise(setting: Setting, work: int) -> bool:
    """Whether delta comes from the pair formulas of the histogram.

    With noise, and where outputs are many.

    Raises:
        ParameterError: a histogram without a sampler, or noise with another than without
            replacement.
    """
    mechanism = setting.mechanism
    if not isinstance(mechanism, Histogram):
        return False
    if setting.sample is None:
        raise ParameterError("sampling", None, "the histogram needs a sampler: without, delta is 1")
    if mechanism.noise_ratio is None:
        return work > EXACT_OPERATIONS
    if setting.sampling != "without_replacement":
        noise = float(read_rational("noise_ratio", mechanism.noise_ratio))
        remedy = "is defined for sampling without replacement only"
        raise ParameterError("noise_ratio", noise, remedy)
    return True


def float_error(setting: Setting, outputs: int, largest_miss: float = 0.0) -> float:
    """How far delta of a histogram, and its expectation, may be off in floats.

    Absolute, for chances are at most 1. A chance is a sum of positive terms over at most n steps of
    `types` + 2 roundings each, or of the sampler's terms; a delta is a sum of `outputs` differences
    P - E Q; an expectation has n more steps, or a product with a multinomial. Where chances miss 1
    by `largest_miss`, the laws meant differ from those stated by as much in total: a divergence by
    1 + E times that, as do its averages.
    """
    types = setting.types
    sampler_terms = histogram_count(setting.totals[-1], types)
    added_terms = sampler_terms + outputs + 16
    rounding_count = setting.records * (types + 2) + added_terms
    largest_ratio = Fraction(10**12)
    ratio = float(min(setting.loss.ratio, largest_ratio))
    return (2 * UNIT * rounding_count + largest_miss) * (2 + ratio)


def _closed(
    value: float,
    error: float,
    counts: Counts,
    exact: Fraction | None,
) -> Range:
    """The range of a value that enumeration found: exact rationals where `exact` is given, else
    floats within `error`, closed where that is small beside the value.
    """
    if exact is not None:
        log_value = _log_fraction(exact)
        return Range(
            log_value=log_value,
            log_lower=log_value,
            log_upper=log_value,
            split=counts,
            method="exact",
            reason="Every histogram and every composition, in rationals.",
            exact=exact,
        )
    is_closed = error <= ACCURACY * value
    return Range(
        log_value=log_of(value),
        log_lower=log_of(value - error),
        log_upper=log_of(min(1.0, value + error)),
        split=counts,
        method="enumeration",
        status="closed" if is_closed else "bracketed",
        reason="Every histogram and every composition, in floats with a bound of their error.",
    )


def _bracketed(
    value: float,
    upper: float,
    error: float,
    counts: Counts,
) -> Range:
    """The range between a composition's value and an upper bound of all, each within `error`."""
    return Range(
        log_value=log_of(value),
        log_lower=log_of(value - error),
        log_upper=log_of(min(1.0, upper + error)),
        split=counts,
        method="bracket",
        status="bracketed",
        reason="Between a good composition and an adversary who sees each record before the next "
        "is drawn.",
    )


def _log_fraction(value: Fraction) -> float:
    if value == 0:
        return -math.inf
    return math.log(value.numerator) - math.log(value.denominator)
