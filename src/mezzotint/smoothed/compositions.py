"""Smoothed DP of any anonymous mechanism: delta of every histogram, the worst composition of laws.

Algorithm 1 of "Smoothed Differential Privacy" as it is meant: delta of every histogram against its
neighbours, then the largest expectation over all ways to give each record one of the distributions.
Chances are rationals as long as that is cheap and all inputs are; else floats, with one error bound
that is added once, at the end (docs/proofs/smoothed-expected.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational as ExactNumber
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import logarithms
from mezzotint.smoothed.bumps import CompositionSearch
from mezzotint.smoothed.grids import (
    FLOATS,
    Arithmetic,
    Grid,
    below,
    best_composition,
    mixed,
    one_more,
)
from mezzotint.smoothed.many_types import Range, compare_splits
from mezzotint.smoothed.mechanisms import (
    Anonymous,
    Counts,
    Histogram,
    Table,
    Threshold,
    Winner,
    histograms_of,
)
from mezzotint.smoothed.model import (
    LOG_TEN,
    Distribution,
    Loss,
    Sample,
    Sampling,
    Status,
    log_of,
    read_rational,
)
from mezzotint.smoothed.noisy_profiles import noisy_profile
from mezzotint.smoothed.profiles import histogram_profile

EXACT_OPERATIONS = 1_500_000
"""Operations on rationals, a microsecond or two each, up to which results are exact."""
FLOAT_OPERATIONS = 4_000_000_000
"""Operations on floats, beyond which the question is refused."""
MAX_CELLS = 20_000_000
"""Histograms, beyond which the question is refused."""
UNIT = 2.0**-53

PAIR_ERROR = 1e-9
"""Error of a delta from the pair formulas of the histogram."""
ACCURACY = 1e-6
"""Relative width below which a value in floats counts as closed."""
SUM_ERROR = 1e-9
"""How far chances given as floats may miss 1 together."""


# The law of every histogram


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """The mechanism on so many records of so many types, behind a sampler or not, at a loss."""

    mechanism: Anonymous
    records: int
    types: int
    loss: Loss
    sample: Sample | None

    @property
    def totals(self) -> tuple[int, ...]:
        """How many records the law itself is asked about."""
        if self.sample is None:
            return (self.records,)
        if self.sample.sampling == "poisson":
            return tuple(range(self.records + 1))
        return (self.sample.sampled,)

    @property
    def sampling(self) -> Sampling | None:
        """How records reach it."""
        return None if self.sample is None else self.sample.sampling


@final
@dataclass(frozen=True, kw_only=True)
class Laws:
    """Chances of each output for every histogram.

    Arguments:
        rows: histogram -> chances, one for each output; outputs: their names.
        is_exact: whether all chances are rationals.
    """

    rows: dict[Counts, list[Any]]
    outputs: tuple[Hashable, ...]
    is_exact: bool


def laws_of(setting: Setting) -> Laws:
    """The law of the mechanism on every histogram that may reach it.

    Raises:
        ParameterError: chances below 0 or that do not sum to 1, with the histogram.
    """
    raw = _raw_laws(setting)
    outputs = tuple(dict.fromkeys(output for law in raw.values() for output in law))
    is_exact = all(_is_exact(chance) for law in raw.values() for chance in law.values())
    rows: dict[Counts, list[Any]] = {}
    for counts, law in raw.items():
        chances = [law.get(output, 0) for output in outputs]
        rows[counts] = _checked(counts, chances, is_exact)
    return Laws(rows=rows, outputs=outputs, is_exact=is_exact)


def _raw_laws(setting: Setting) -> dict[Counts, Mapping[Hashable, Any]]:
    mechanism = setting.mechanism
    laws: dict[Counts, Mapping[Hashable, Any]] = {}
    for total in setting.totals:
        if isinstance(mechanism, Table):
            laws |= mechanism.laws(total, setting.types)
            continue
        for counts in histograms_of(total, setting.types):
            if isinstance(mechanism, Histogram):
                laws[counts] = {counts: 1}
            else:
                laws[counts] = mechanism.law(counts)
    return laws


def _is_exact(chance: Any) -> bool:
    return isinstance(chance, str | ExactNumber | bool | np.integer)


def _checked(counts: Counts, chances: list[Any], is_exact: bool) -> list[Any]:
    row: list[Any] = [
        read_rational("mechanism", chance) if is_exact else float(chance) for chance in chances
    ]
    tolerance = 0 if is_exact else SUM_ERROR
    valid = all(0 <= chance < math.inf for chance in row)
    if not valid or abs(sum(row) - 1) > tolerance:
        remedy = "needs chances >= 0 that sum to 1 at each histogram"
        raise ParameterError("mechanism", f"{counts}: {chances}", remedy)
    return row


def sampled_rows(setting: Setting, laws: Laws, arithmetic: Arithmetic) -> Grid:
    """(n+1, .., n+1, r) chances of each output for every histogram of n records, sampled."""
    if setting.sampling == "poisson":
        return _poisson(setting, laws, arithmetic)
    if setting.sampling == "with_replacement":
        return _with_replacement(setting, laws, arithmetic)
    total = setting.totals[-1]
    grid = arithmetic.zeros(*[total + 1] * (setting.types - 1), len(laws.outputs))
    for counts, row in laws.rows.items():
        grid[counts[:-1]] = [arithmetic.number(chance) for chance in row]
    for larger in range(total + 1, setting.records + 1):
        grid = _one_lost(grid, larger, arithmetic)
    return grid


def _one_lost(grid: Grid, total: int, arithmetic: Arithmetic) -> Grid:
    """f_t(h) = sum_a (h_a / t) f_(t-1)(h - e_a): of one record more, one at random is lost."""
    axes = grid.ndim - 1
    result = arithmetic.zeros(*[total + 1] * axes, grid.shape[-1])
    counts = np.indices((total,) * axes)
    inner = below(total, axes)
    last = total - counts.sum(axis=0)
    result[inner] = result[inner] + grid * _shares(last, total, arithmetic)[..., None]
    for axis in range(axes):
        moved = one_more(total, axes, axis)
        share = _shares(counts[axis] + 1, total, arithmetic)
        result[moved] = result[moved] + grid * share[..., None]
    return result


def _shares(
    counts: npt.NDArray[np.int64],
    total: int,
    arithmetic: Arithmetic,
) -> Grid:
    shares = [arithmetic.number(Fraction(count, total)) for count in range(total + 1)]
    table = np.array(shares, dtype=object if arithmetic.is_exact else float)
    return table[np.clip(counts, 0, total)]


def _with_replacement(
    setting: Setting,
    laws: Laws,
    arithmetic: Arithmetic,
) -> Grid:
    """f(h) = sum_s multinomial(s; T, h / n) law(s)."""
    records = setting.records
    shares = [arithmetic.number(Fraction(count, records)) for count in range(records + 1)]
    powers = [[share**power for power in range(setting.totals[0] + 1)] for share in shares]
    rows: dict[Counts, list[Any]] = {}
    for counts, row in laws.rows.items():
        orders = _multinomial(counts)
        rows[counts] = [arithmetic.number(chance * orders) for chance in row]
    result = arithmetic.zeros(*[records + 1] * (setting.types - 1), len(laws.outputs))
    for histogram in histograms_of(records, setting.types):
        total = [arithmetic.number(0)] * len(laws.outputs)
        for counts, row in rows.items():
            weight = arithmetic.number(1)
            for count, draws in zip(histogram, counts, strict=True):
                weight = weight * powers[count][draws]
            if weight != 0:
                total = [value + weight * chance for value, chance in zip(total, row, strict=True)]
        result[histogram[:-1]] = total
    return result


def _multinomial(counts: Counts) -> int:
    orders = 1
    total = 0
    for count in counts:
        total += count
        orders *= math.comb(total, count)
    return orders


def _poisson(setting: Setting, laws: Laws, arithmetic: Arithmetic) -> Grid:
    """Binomial thinning along one type after another; here every type has an axis of its own."""
    size = setting.records + 1
    types = setting.types
    rate = Fraction(1) if setting.sample is None else setting.sample.rate
    grid = arithmetic.zeros(*[size] * types, len(laws.outputs))
    for counts, row in laws.rows.items():
        grid[counts] = [arithmetic.number(chance) for chance in row]
    thinning = arithmetic.zeros(size, size)
    for count in range(size):
        for sampled in range(count + 1):
            chance = math.comb(count, sampled) * rate**sampled * (1 - rate) ** (count - sampled)
            thinning[count, sampled] = arithmetic.number(chance)
    for axis in range(types):
        grid = np.moveaxis(np.tensordot(thinning, grid, axes=(1, axis)), 0, axis)
    result = arithmetic.zeros(*[size] * (types - 1), len(laws.outputs))
    for histogram in histograms_of(setting.records, types):
        result[histogram[:-1]] = grid[histogram]
    return result


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
    result = arithmetic.zeros(*rows.shape[:-1])
    valid = np.indices(rows.shape[:-1]).sum(axis=0) <= records
    for giver, taker in itertools.permutations(range(axes + 1), 2):
        original, neighbour = _neighbours(giver, taker, axes, records)
        forward = arithmetic.positive(rows[original] - ratio * rows[neighbour]).sum(axis=-1)
        backward = arithmetic.positive(rows[neighbour] - ratio * rows[original]).sum(axis=-1)
        worse = np.maximum(forward, backward)
        worse = np.where(valid[original] & valid[neighbour], worse, arithmetic.number(0))
        result[original] = np.maximum(result[original], worse)
    return result


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


def _histogram_deltas(setting: Setting) -> Grid:
    """delta(h) of the sampling histogram in floats, from the pair formulas.

    By the two rarest types where that suffices.
    """
    records = setting.records
    mechanism = setting.mechanism
    sample = setting.sample
    assert sample is not None
    assert isinstance(mechanism, Histogram)
    grid = np.zeros([records + 1] * (setting.types - 1))
    deltas: dict[Counts, float] = {}
    for histogram in histograms_of(records, setting.types):
        key = tuple(sorted(histogram))
        if mechanism.noise_ratio is None and setting.types > 2:
            key = (key[0], key[1], records - key[0] - key[1])
        if key not in deltas:
            if mechanism.noise_ratio is None:
                profile = histogram_profile(key, sample, setting.loss)
            else:
                noise = read_rational("noise_ratio", mechanism.noise_ratio)
                profile = noisy_profile(key, sample, setting.loss, noise)
            deltas[key] = min(1.0, 10.0**profile.log10_upper)
        grid[histogram[:-1]] = deltas[key]
    return grid


# The worst composition


def adversary_bound(
    deltas: Grid,
    records: int,
    vertices: Sequence[Distribution],
) -> float:
    """An upper bound of every composition.

    An adversary who sees earlier records before choosing the next distribution.
    """
    grid = deltas
    for total in range(records, 0, -1):
        grid = np.max([mixed(grid, total, vertex, FLOATS) for vertex in vertices], axis=0)
    return float(grid.ravel()[0])


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

    best = max(simple_compositions(records, len(vertices)), key=value)
    step = max(1, records // 4)
    while step >= 1:
        exchanged: list[Counts] = []
        for giver, taker in itertools.permutations(range(len(vertices)), 2):
            if best[giver] >= step:
                counts = list(best)
                counts[giver] -= step
                counts[taker] += step
                exchanged.append(tuple(counts))
        better = max(exchanged, key=value, default=best)
        if value(better) > value(best):
            best = better
        else:
            step //= 2
    return value(best), best


def simple_compositions(records: int, vertices: int) -> list[Counts]:
    """All records of one distribution, for each of them, and as many of each."""
    compositions: list[Counts] = []
    for chosen in range(vertices):
        counts = [0] * vertices
        counts[chosen] = records
        compositions.append(tuple(counts))
    share = records // vertices
    even = (records - share * (vertices - 1),) + (share,) * (vertices - 1)
    return list(dict.fromkeys([*compositions, even]))


def _expectation(
    deltas: Grid,
    records: int,
    vertices: Sequence[Distribution],
    composition: Counts,
) -> float:
    grid = deltas
    remaining = records
    for vertex, count in zip(vertices, composition, strict=True):
        for _ in range(count):
            grid = mixed(grid, remaining, vertex, FLOATS)
            remaining -= 1
    return float(grid.ravel()[0])


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
    result = np.full(records, -math.inf)
    if not 1 <= least <= sampled:
        return result
    others = least - 1
    fits = (counts >= others) & (records - 1 - counts >= sampled - 1 - others)
    for count in np.flatnonzero(fits).tolist():
        result[count] = logarithms.log_hypergeometric(
            float(others),
            float(count),
            float(records - 1 - count),
            float(sampled - 1),
        )
    return result + math.log(sampled / records)


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
    start = np.array([-math.inf])
    log_below = np.concatenate([start, np.logaddexp.accumulate(steps)])
    log_above = np.concatenate([np.logaddexp.accumulate(steps[::-1])[::-1], start])
    excess_ratio = float(loss.ratio - 1)
    log_factor = log_of(excess_ratio)
    deltas: list[npt.NDArray[np.float64]] = []
    for error in (-LOG_ERROR, LOG_ERROR):
        upwards = _log_difference(steps + error, log_below[:-1] + log_factor - error)
        downwards = _log_difference(steps + error, log_above[1:] + log_factor - error)
        step = np.maximum(upwards, downwards)
        deltas.append(np.maximum(np.concatenate([start, step]), np.concatenate([step, start])))
    return deltas[0], deltas[1]


def _log_difference(
    first: npt.NDArray[np.float64],
    second: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """log of max(0, e^first - e^second)."""
    result = np.full(first.size, -math.inf)
    larger = first > second
    gap = second[larger] - first[larger]
    result[larger] = first[larger] + np.log(-np.expm1(gap))
    return result


def _least_of(mechanism: Anonymous, sampled: int) -> int | None:
    """The threshold that a mechanism on two types is, or None."""
    if isinstance(mechanism, Threshold):
        return mechanism.least
    if isinstance(mechanism, Winner) and mechanism.rule == "plurality":
        return (sampled + 1) // 2
    return None


def search_two_types(setting: Setting, vertices: Sequence[Distribution]) -> Found | None:
    """Two types and one or two distributions at many records, in logarithms.

    The sampling histogram with any sampler, and thresholds and majorities of a sample without
    replacement; None for others.
    """
    records = setting.records
    most = MAX_RECORDS
    if setting.mechanism != Histogram():
        most = MAX_THRESHOLD_RECORDS
    if setting.types != 2 or len(vertices) > 2 or records > most:
        return None
    bounds = _log_deltas(setting)
    if bounds is None:
        return None
    lower, upper = bounds
    ends = (vertices[0][0], vertices[-1][0])
    if records > MAX_RECORDS:
        return _search_bumps(lower, upper, ends, len(vertices))
    best = compare_splits(lower, 0.0, ends)
    bound = compare_splits(upper, 0.0, ends)
    is_closed = bound.log_upper - best.log_lower <= ACCURACY
    search_range = Range(
        log_value=best.log_value,
        log_lower=best.log_lower,
        log_upper=min(0.0, bound.log_upper),
        split=best.split if len(vertices) == 2 else (records,),
        method="all splits",
        status="closed" if is_closed else "bracketed",
        reason=f"All {records + 1} compositions, in logarithms.",
    )
    return Found(range=search_range, log_worst=float(upper.max()))


def _search_bumps(
    lower: npt.NDArray[np.float64],
    upper: npt.NDArray[np.float64],
    ends: tuple[Fraction, Fraction],
    vertices: int,
) -> Found | None:
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
    search_range = Range(
        log_value=search.best,
        log_lower=search.best,
        log_upper=min(0.0, log_upper),
        split=composition,
        method="bumps",
        status=status,
        reason=f"{len(search.uppers)} bumps of delta, each of which has one best composition.",
        checked=search.evaluations,
    )
    return Found(range=search_range, log_worst=min(0.0, float(upper.max())))


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
        profile = histogram_profile((count, setting.records - count), sample, setting.loss)
        lower.append(profile.log10_delta)
        upper.append(profile.log10_upper)
    return LOG_TEN * np.array(lower), LOG_TEN * np.array(upper)


@final
@dataclass(frozen=True, kw_only=True)
class Found:
    """A search of compositions.

    Arguments:
        range: of the largest expectation.
        log_worst: the worst delta over all databases.
        exact: the value, where it is a rational.
    """

    range: Range
    log_worst: float
    exact: Fraction | None = None


def operations(
    setting: Setting,
    outputs: int,
    vertices: int,
) -> tuple[int, int]:
    """Operations, roughly, for the deltas, and for all compositions."""
    records = setting.records
    types = setting.types
    histograms = math.comb(records + types - 1, types - 1)
    steps = 0
    if setting.sampling == "without_replacement":
        steps = records - setting.totals[0]
    elif setting.sampling == "with_replacement":
        steps = math.comb(setting.totals[-1] + types - 1, types - 1)
    elif setting.sampling == "poisson":
        steps = types * (records + 1)
    deltas = histograms * outputs * (steps * types + 2 * types * (types - 1))
    splits = math.comb(records + vertices - 1, vertices - 1)
    return deltas, splits * histograms * (types + 1) // types


def _outputs(setting: Setting) -> int:
    """How many outputs a full histogram has; few for other mechanisms."""
    if not isinstance(setting.mechanism, Histogram):
        return 4
    others = setting.types - 1
    return sum(math.comb(total + others, others) for total in setting.totals)


def search_compositions(setting: Setting, vertices: Sequence[Distribution]) -> Found:
    """The largest expected delta of a mechanism over all compositions.

    Exact, in floats with a bound, or bracketed.

    Raises:
        ParameterError: too many records or types; a law that is none; noise with another sampler.
    """
    records = setting.records
    work, compositions = operations(setting, _outputs(setting), len(vertices))
    affordable = work + compositions <= EXACT_OPERATIONS
    if not affordable:
        by_logarithms = search_two_types(setting, vertices)
        if by_logarithms is not None:
            return by_logarithms
    is_pairwise = _is_pairwise(setting, work)
    cells = math.comb(records + setting.types - 1, setting.types - 1)
    if cells > MAX_CELLS or (work > FLOAT_OPERATIONS and not is_pairwise):
        remedy = f"{setting.types} types have {cells:,} histograms; use fewer records"
        raise ParameterError("n", records, remedy)
    arithmetic = FLOATS
    if is_pairwise:
        deltas = _histogram_deltas(setting)
        error = PAIR_ERROR
    else:
        laws = laws_of(setting)
        arithmetic = Arithmetic(is_exact=laws.is_exact and affordable)
        rows = sampled_rows(setting, laws, arithmetic)
        deltas = delta_grid(rows, records, setting.loss, arithmetic)
        error = 0.0 if arithmetic.is_exact else float_error(setting, len(laws.outputs))
    worst = _log_fraction(arithmetic.fraction(deltas.max()))
    if compositions > FLOAT_OPERATIONS // 4:
        value, counts = improved_composition(deltas, records, vertices)
        upper = adversary_bound(deltas, records, vertices)
        return Found(range=_bracketed(value, upper, error, counts), log_worst=worst)
    value, counts = best_composition(deltas, records, vertices, arithmetic)
    exact = arithmetic.fraction(value) if arithmetic.is_exact else None
    closed = _closed(float(value), error, counts, exact)
    return Found(range=closed, log_worst=worst, exact=exact)


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


def float_error(setting: Setting, outputs: int) -> float:
    """How far delta of a histogram, and its expectation, may be off in floats.

    Absolute, for chances are at most 1. A chance is a sum of positive terms over at most n steps of
    `types` + 2 roundings each, or of the sampler's terms; a delta is a sum of `outputs` differences
    P - E Q; an expectation has n more steps, or a product with a multinomial.
    """
    types = setting.types
    sampler_terms = math.comb(setting.totals[-1] + types - 1, types - 1)
    steps = setting.records * (types + 2) + sampler_terms + outputs + 16
    return 2 * UNIT * steps * (2 + float(min(setting.loss.ratio, Fraction(10**12))))


def _closed(
    value: float,
    error: float,
    counts: Counts,
    exact: Fraction | None,
) -> Range:
    if exact is not None:
        log = _log_fraction(exact)
        return Range(
            log_value=log,
            log_lower=log,
            log_upper=log,
            split=counts,
            method="exact",
            reason="Every histogram and every composition, in rationals.",
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
