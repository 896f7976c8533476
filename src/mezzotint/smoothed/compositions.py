"""Smoothed DP of any anonymous mechanism: delta of every histogram, and the worst composition of
distributions.

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

import flint
import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import logarithms
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
from mezzotint.smoothed.model import LOG_TEN, Distribution, Loss, Sample, Sampling, read_rational
from mezzotint.smoothed.profiles import histogram_profile, noisy_profile

Grid = npt.NDArray[Any]
"""Numbers by histogram: axis i is the count of type i, the last type has what is left; floats, or
exact rationals."""

EXACT_OPERATIONS = 1_500_000
"""Operations on rationals, a microsecond or two each, up to which results are exact."""
FLOAT_OPERATIONS = 4_000_000_000
"""Operations on floats, beyond which the question is refused."""
MOST_CELLS = 20_000_000
UNIT = 2.0**-53
ACCURACY = 1e-6
"""Relative width below which a value in floats counts as closed."""
SUM_ERROR = 1e-9
"""How far chances given as floats may miss 1 together."""


# The law of every histogram


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is asked: the mechanism on so many records of so many types, behind a sampler or not, at
    a loss."""

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
    """The law of the mechanism on every histogram that may reach it, checked: chances >= 0 that sum
    to 1.

    Raises:
        ParameterError: a law that is none, with the histogram.
    """
    mechanism = setting.mechanism
    raw: dict[Counts, Mapping[Hashable, Any]] = {}
    for total in setting.totals:
        if isinstance(mechanism, Table):
            raw |= mechanism.laws(total, setting.types)
            continue
        for counts in histograms_of(total, setting.types):
            raw[counts] = {counts: 1} if isinstance(mechanism, Histogram) else mechanism.law(counts)
    outputs = tuple(dict.fromkeys(output for law in raw.values() for output in law))
    is_exact = all(_is_exact(chance) for law in raw.values() for chance in law.values())
    rows = {
        counts: _checked(counts, [law.get(output, 0) for output in outputs], is_exact)
        for counts, law in raw.items()
    }
    return Laws(
        rows=rows,
        outputs=outputs,
        is_exact=is_exact,
    )


def _is_exact(chance: Any) -> bool:
    return isinstance(chance, str | ExactNumber | bool | np.integer)


def _checked(counts: Counts, chances: list[Any], is_exact: bool) -> list[Any]:
    if is_exact:
        row: list[Any] = [read_rational("mechanism", chance) for chance in chances]
    else:
        row = [float(chance) for chance in chances]
    total = sum(row)
    tolerance = 0 if is_exact else SUM_ERROR
    is_law = all(0 <= chance < math.inf for chance in row) and abs(total - 1) <= tolerance
    if not is_law:
        raise ParameterError(
            "mechanism",
            f"{counts}: {chances}",
            "needs chances >= 0 that sum to 1 at each histogram",
        )
    return row


@final
class Arithmetic:
    """Rationals or floats, by the same operations on arrays."""

    def __init__(self, is_exact: bool) -> None:
        self.is_exact = is_exact

    def number(self, value: Fraction | float | int) -> Any:
        """One number."""
        if not self.is_exact:
            return float(value)
        exact = Fraction(value)
        return flint.fmpq(exact.numerator, exact.denominator)

    def zeros(self, *shape: int) -> Grid:
        """An array of zeros."""
        if not self.is_exact:
            return np.zeros(shape)
        grid = np.empty(shape, dtype=object)
        grid[...] = flint.fmpq(0)
        return grid

    def fraction(self, value: Any) -> Fraction:
        """The number as a Fraction."""
        if not self.is_exact:
            return Fraction(float(value))
        return Fraction(int(value.p), int(value.q))

    def positive(self, grid: Grid) -> Grid:
        """Entries above 0, others 0."""
        return np.maximum(grid, self.number(0))


def sampled_rows(setting: Setting, laws: Laws, arithmetic: Arithmetic) -> Grid:
    """(n+1, .., n+1, r) chances of each output for every histogram of n records, after the
    sampler."""
    n, types = setting.records, setting.types
    width = len(laws.outputs)
    start = arithmetic.zeros(*[setting.totals[-1] + 1] * (types - 1), width)
    if setting.sampling != "poisson":
        for counts, row in laws.rows.items():
            start[counts[:-1]] = [arithmetic.number(chance) for chance in row]
        if setting.sample is None:
            return start
        if setting.sampling == "without_replacement":
            for total in range(setting.sample.sampled + 1, n + 1):
                start = _one_more(start, total, arithmetic)
            return start
        return _with_replacement(setting, laws, arithmetic)
    return _poisson(setting, laws, arithmetic)


def _one_more(grid: Grid, total: int, arithmetic: Arithmetic) -> Grid:
    """f_t(h) = sum_a (h_a / t) f_(t-1)(h - e_a): one record more, of which one at random is
    lost."""
    axes, width = grid.ndim - 1, grid.shape[-1]
    result = arithmetic.zeros(*[total + 1] * axes, width)
    counts = np.indices((total,) * axes)
    inner = tuple(slice(0, total) for _ in range(axes))
    last = total - counts.sum(axis=0)
    result[inner] = result[inner] + grid * _shares(last, total, arithmetic)[..., None]
    for axis in range(axes):
        moved = tuple(slice(int(i == axis), total + int(i == axis)) for i in range(axes))
        share = _shares(counts[axis] + 1, total, arithmetic)
        result[moved] = result[moved] + grid * share[..., None]
    return result


def _shares(counts: npt.NDArray[np.int64], total: int, arithmetic: Arithmetic) -> Grid:
    table = np.array(
        [arithmetic.number(Fraction(count, total)) for count in range(total + 1)],
        dtype=object if arithmetic.is_exact else float,
    )
    return table[np.clip(counts, 0, total)]


def _with_replacement(setting: Setting, laws: Laws, arithmetic: Arithmetic) -> Grid:
    """f(h) = sum_s multinomial(s; T, h / n) law(s)."""
    n, types, draws = setting.records, setting.types, setting.totals[0]
    result = arithmetic.zeros(*[n + 1] * (types - 1), len(laws.outputs))
    shares = [arithmetic.number(Fraction(count, n)) for count in range(n + 1)]
    powers = [[share**power for power in range(draws + 1)] for share in shares]
    ways = {counts: _multinomial(counts) for counts in laws.rows}
    rows = {
        counts: [arithmetic.number(chance * ways[counts]) for chance in row]
        for counts, row in laws.rows.items()
    }
    for histogram in histograms_of(n, types):
        total = [arithmetic.number(0)] * len(laws.outputs)
        for counts, row in rows.items():
            weight = arithmetic.number(1)
            for count, drawn in zip(histogram, counts, strict=True):
                weight = weight * powers[count][drawn]
            if weight != 0:
                total = [value + weight * chance for value, chance in zip(total, row, strict=True)]
        result[histogram[:-1]] = total
    return result


def _multinomial(counts: Counts) -> int:
    ways, total = 1, 0
    for count in counts:
        total += count
        ways *= math.comb(total, count)
    return ways


def _poisson(setting: Setting, laws: Laws, arithmetic: Arithmetic) -> Grid:
    """Binomial thinning along one type after another; here every type has an axis of its own."""
    n, types = setting.records, setting.types
    rate = setting.sample.rate if setting.sample is not None else Fraction(1)
    grid = arithmetic.zeros(*[n + 1] * types, len(laws.outputs))
    for counts, row in laws.rows.items():
        grid[counts] = [arithmetic.number(chance) for chance in row]
    thin = arithmetic.zeros(n + 1, n + 1)
    for count, kept in itertools.product(range(n + 1), repeat=2):
        if kept <= count:
            chance = math.comb(count, kept) * rate**kept * (1 - rate) ** (count - kept)
            thin[count, kept] = arithmetic.number(chance)
    for axis in range(types):
        grid = np.moveaxis(np.tensordot(thin, grid, axes=(1, axis)), 0, axis)
    result = arithmetic.zeros(*[n + 1] * (types - 1), len(laws.outputs))
    for histogram in histograms_of(n, types):
        result[histogram[:-1]] = grid[histogram]
    return result


# delta of every histogram


def delta_grid(
    rows: Grid,
    records: int,
    loss: Loss,
    arithmetic: Arithmetic,
) -> Grid:
    """delta(h) of every histogram: the largest divergence from a neighbour, in either direction; 0
    off the simplex."""
    axes = rows.ndim - 1
    ratio = arithmetic.number(loss.ratio)
    result = arithmetic.zeros(*rows.shape[:-1])
    valid = np.indices(rows.shape[:-1]).sum(axis=0) <= records
    for giver, taker in itertools.permutations(range(axes + 1), 2):
        here, there = _neighbours(giver, taker, axes, records)
        both = valid[here] & valid[there]
        excess = rows[here] - ratio * rows[there]
        forward = arithmetic.positive(excess).sum(axis=-1)
        back = arithmetic.positive(rows[there] - ratio * rows[here]).sum(axis=-1)
        worse = np.where(both, np.maximum(forward, back), arithmetic.number(0))
        result[here] = np.maximum(result[here], worse)
    return result


def _neighbours(
    giver: int,
    taker: int,
    axes: int,
    records: int,
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Slices of h and of h - e_giver + e_taker, for all h for which both indices exist."""
    here, there = [slice(None)] * axes, [slice(None)] * axes
    if giver < axes:
        here[giver], there[giver] = slice(1, None), slice(0, records)
    if taker < axes:
        here[taker], there[taker] = slice(0, records), slice(1, None)
    return tuple(here), tuple(there)


def _histogram_deltas(setting: Setting) -> Grid:
    """delta(h) of the sampling histogram in floats, from the pair formulas; by the two rarest types
    where that suffices."""
    n, types = setting.records, setting.types
    assert setting.sample is not None
    noise = setting.mechanism.noise_ratio if isinstance(setting.mechanism, Histogram) else None
    grid, known = np.zeros([n + 1] * (types - 1)), dict[Counts, float]()
    for histogram in histograms_of(n, types):
        key = tuple(sorted(histogram))
        if noise is None and types > 2:
            key = (key[0], key[1], n - key[0] - key[1])
        if key not in known:
            if noise is None:
                profile = histogram_profile(key, setting.sample, setting.loss)
            else:
                ratio = read_rational("noise_ratio", noise)
                profile = noisy_profile(key, setting.sample, setting.loss, ratio)
            known[key] = min(1.0, 10.0**profile.log10_upper)
        grid[histogram[:-1]] = known[key]
    return grid


# The worst composition


def mixed(
    grid: Grid,
    total: int,
    vertex: Distribution,
    arithmetic: Arithmetic,
) -> Grid:
    """sum_i p_i g(h + e_i) on histograms of one record less: one more record follows the
    distribution."""
    chances = [arithmetic.number(chance) for chance in vertex]
    inner = tuple(slice(0, total) for _ in range(grid.ndim))
    result = chances[-1] * grid[inner]
    for axis in range(grid.ndim):
        moved = tuple(slice(int(i == axis), total + int(i == axis)) for i in range(grid.ndim))
        result = result + chances[axis] * grid[moved]
    return result


def weights_of(vertex: Distribution, records: int, arithmetic: Arithmetic) -> list[Grid]:
    """The multinomial law of 0, 1, .., n records of a distribution, each as a grid."""
    axes = len(vertex) - 1
    chances = [arithmetic.number(chance) for chance in vertex]
    grid = arithmetic.zeros(*[1] * axes)
    grid[(0,) * axes] = arithmetic.number(1)
    grids = [grid]
    for total in range(1, records + 1):
        larger = arithmetic.zeros(*[total + 1] * axes)
        inner = tuple(slice(0, total) for _ in range(axes))
        larger[inner] = larger[inner] + chances[-1] * grid
        for axis in range(axes):
            moved = tuple(slice(int(i == axis), total + int(i == axis)) for i in range(axes))
            larger[moved] = larger[moved] + chances[axis] * grid
        grid = larger
        grids.append(grid)
    return grids


def best_composition(
    deltas: Grid,
    records: int,
    vertices: Sequence[Distribution],
    arithmetic: Arithmetic,
) -> tuple[Any, Counts]:
    """The largest expectation over all compositions, and the first composition that has it."""
    last = weights_of(vertices[-1], records, arithmetic)
    best: Any = arithmetic.number(-1)
    where: Counts = ()
    stack: list[tuple[Grid, int, Counts]] = [(deltas, records, ())]
    while stack:
        grid, left, chosen = stack.pop()
        if len(chosen) == len(vertices) - 1:
            value = (grid * last[left]).sum()
            if value > best:
                best, where = value, (*chosen, left)
            continue
        for count in range(left + 1):
            stack.append((grid, left - count, (*chosen, count)))
            if count < left:
                grid = mixed(grid, left - count, vertices[len(chosen)], arithmetic)
    return best, where


def adversary_bound(deltas: Grid, records: int, vertices: Sequence[Distribution]) -> float:
    """An upper bound of every composition: an adversary who sees earlier records before choosing
    the next distribution."""
    arithmetic = Arithmetic(is_exact=False)
    grid = deltas
    for total in range(records, 0, -1):
        grid = np.max([mixed(grid, total, vertex, arithmetic) for vertex in vertices], axis=0)
    return float(grid.ravel()[0])


def improved_composition(
    deltas: Grid, records: int, vertices: Sequence[Distribution]
) -> tuple[float, Counts]:
    """A good composition: the pure ones and the even one, the best of them improved by exchanging
    ever fewer records."""
    arithmetic = Arithmetic(is_exact=False)
    size = len(vertices)
    share = records // size
    starts = [tuple(records if i == j else 0 for i in range(size)) for j in range(size)]
    starts.append((records - share * (size - 1),) + (share,) * (size - 1))
    known: dict[Counts, float] = {}

    def value(split: Counts) -> float:
        if split not in known:
            grid, left = deltas, records
            for vertex, count in zip(vertices, split, strict=True):
                for _ in range(count):
                    grid = mixed(grid, left, vertex, arithmetic)
                    left -= 1
            known[split] = float(grid.ravel()[0])
        return known[split]

    best = max(starts, key=value)
    step = max(1, records // 4)
    while step >= 1:
        moves = [
            tuple(c - step * (i == a) + step * (i == b) for i, c in enumerate(best))
            for a, b in itertools.permutations(range(size), 2)
            if best[a] >= step
        ]
        better = max(moves, key=value, default=best)
        if value(better) > value(best):
            best = better
        else:
            step //= 2
    return value(best), best


# Putting it together


# Two types, in logarithms

MOST_RECORDS = 20_000
"""Two types: all compositions are compared up to this many records, n^2 steps."""
LOG_ERROR = 2.0**-30
"""Bound on the error of log delta of one histogram in logarithms: of its terms, where no difference
is nearly zero."""


def log_increments(least: int, records: int, sampled: int) -> npt.NDArray[np.float64]:
    """(n,) log of p(k+1) - p(k), p(k) the chance that a sample without replacement has `least` of k
    records at least.

    One record more of the first type matters if it is drawn and `least` - 1 of the other T - 1
    draws are of that type.
    """
    counts = np.arange(records, dtype=np.float64)
    result = np.full(records, -math.inf)
    if not 1 <= least <= sampled:
        return result
    others = least - 1
    fits = (counts >= others) & (records - 1 - counts >= sampled - 1 - others)
    for place in np.flatnonzero(fits).tolist():
        result[place] = logarithms.log_hypergeometric(
            float(others), float(place), float(records - 1 - place), float(sampled - 1)
        )
    return result + math.log(sampled / records)


def threshold_deltas(
    least: int, sample: Sample, loss: Loss
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(n + 1,) log delta by the count of the first type, from below and from above, for sampling
    without replacement.

    The one step up from k is told with P - E Q: p(k+1) - E p(k) = step - (E - 1) p(k), and the same
    for the other output downwards. p is the sum of the steps before, 1 - p that of the steps after:
    no cancellation but in the last difference, whose two terms are moved apart and together by
    `LOG_ERROR` for the two results.
    """
    steps = log_increments(least, sample.records, sample.sampled)
    start = np.array([-math.inf])
    below = np.concatenate([start, np.logaddexp.accumulate(steps)])
    above = np.concatenate([np.logaddexp.accumulate(steps[::-1])[::-1], start])
    spread = float(loss.ratio - 1)
    factor = math.log(spread) if spread > 0 else -math.inf
    found: list[npt.NDArray[np.float64]] = []
    for slack in (-LOG_ERROR, LOG_ERROR):
        up = _log_difference(steps + slack, below[:-1] + factor - slack)
        down = _log_difference(steps + slack, above[1:] + factor - slack)
        step = np.maximum(up, down)
        found.append(np.maximum(np.concatenate([start, step]), np.concatenate([step, start])))
    return found[0], found[1]


def _log_difference(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]
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
    """Two types and one or two distributions at many records, in logarithms; None where that is not
    so.

    The sampling histogram with any sampler, and thresholds and majorities of a sample without
    replacement.
    """
    sample, n = setting.sample, setting.records
    if setting.types != 2 or sample is None or len(vertices) > 2 or n > MOST_RECORDS:
        return None
    least = _least_of(setting.mechanism, sample.sampled)
    if least is not None and sample.sampling == "without_replacement":
        lower, upper = threshold_deltas(least, sample, setting.loss)
    elif setting.mechanism == Histogram():
        profiles = [histogram_profile((k, n - k), sample, setting.loss) for k in range(n + 1)]
        lower = LOG_TEN * np.array([profile.log10_delta for profile in profiles])
        upper = LOG_TEN * np.array([profile.log10_upper for profile in profiles])
    else:
        return None
    shares = tuple(vertex[0] for vertex in vertices)
    ends = shares if len(shares) == 2 else shares * 2
    best, bound = compare_splits(lower, 0.0, ends), compare_splits(upper, 0.0, ends)
    is_closed = bound.log_upper - best.log_lower <= ACCURACY
    split_at = best.split if len(vertices) == 2 else (n,)
    found = Range(
        log_value=best.log_value,
        log_lower=best.log_lower,
        log_upper=min(0.0, bound.log_upper),
        split=split_at,
        method="all splits",
        status="closed" if is_closed else "bracketed",
        reason=f"All {n + 1} compositions, in logarithms.",
    )
    return Found(range=found, log_worst=float(upper.max()))


@final
@dataclass(frozen=True, kw_only=True)
class Found:
    """A search of compositions: its range, the worst delta over all databases, and the exact value
    where there is one."""

    range: Range
    log_worst: float
    exact: Fraction | None = None


def operations(setting: Setting, outputs: int, vertices: int) -> tuple[int, int]:
    """Operations, roughly, for the deltas, and for all compositions."""
    n, types = setting.records, setting.types
    cells = math.comb(n + types - 1, types - 1)
    steps = {
        None: 0,
        "without_replacement": n - setting.totals[0],
        "with_replacement": math.comb(setting.totals[-1] + types - 1, types - 1),
        "poisson": types * (n + 1),
    }[setting.sampling]
    deltas = cells * outputs * (steps * types + 2 * types * (types - 1))
    compositions = math.comb(n + vertices - 1, vertices - 1) * cells * (types + 1) // types
    return deltas, compositions


def _outputs(setting: Setting) -> int:
    """How many outputs a full histogram has; few for other mechanisms."""
    if isinstance(setting.mechanism, Histogram):
        return sum(math.comb(t + setting.types - 1, setting.types - 1) for t in setting.totals)
    return 4


def search_compositions(setting: Setting, vertices: Sequence[Distribution]) -> Found:
    """The largest expected delta of a mechanism over all compositions: exact, in floats with a
    bound, or bracketed.

    Raises:
        ParameterError: too many records or types; a law that is none; noise with another sampler.
    """
    work, compositions = operations(setting, _outputs(setting), len(vertices))
    cells = math.comb(setting.records + setting.types - 1, setting.types - 1)
    if work + compositions > EXACT_OPERATIONS:
        found = search_two_types(setting, vertices)
        if found is not None:
            return found
    is_pairwise = _is_pairwise(setting, work)
    if cells > MOST_CELLS or (work > FLOAT_OPERATIONS and not is_pairwise):
        raise ParameterError(
            "n",
            setting.records,
            f"{setting.types} types have {cells:,} histograms; use fewer records",
        )
    if is_pairwise:
        deltas, error, arithmetic = _histogram_deltas(setting), 1e-9, Arithmetic(is_exact=False)
    else:
        laws = laws_of(setting)
        is_exact = laws.is_exact and work + compositions <= EXACT_OPERATIONS
        arithmetic = Arithmetic(is_exact)
        rows = sampled_rows(setting, laws, arithmetic)
        deltas = delta_grid(rows, setting.records, setting.loss, arithmetic)
        error = 0.0 if is_exact else float_error(setting, len(laws.outputs))
    worst = _log_fraction(arithmetic.fraction(deltas.max()))
    if compositions <= FLOAT_OPERATIONS // 4:
        value, where = best_composition(deltas, setting.records, vertices, arithmetic)
        exact = arithmetic.fraction(value) if arithmetic.is_exact else None
        return Found(
            range=_closed(float(value), error, where, exact),
            log_worst=worst,
            exact=exact,
        )
    value, where = improved_composition(deltas, setting.records, vertices)
    upper = adversary_bound(deltas, setting.records, vertices)
    return Found(range=_bracketed(value, upper, error, where), log_worst=worst)


def _is_pairwise(setting: Setting, work: int) -> bool:
    """Whether delta comes from the pair formulas of the histogram: with noise, and where outputs
    are many.

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
        raise ParameterError(
            "noise_ratio",
            float(read_rational("noise_ratio", mechanism.noise_ratio)),
            "is defined for sampling without replacement only",
        )
    return True


def float_error(setting: Setting, outputs: int) -> float:
    """How far delta of a histogram, and its expectation, may be off in floats; absolute, for
    chances are at most 1.

    A chance is a sum of positive terms over at most n steps of `types` + 2 roundings each, or of
    the sampler's terms; a delta is a sum of `outputs` differences P - E Q; an expectation has n
    more steps, or a product with a multinomial.
    """
    n, types = setting.records, setting.types
    steps = n * (types + 2) + math.comb(setting.totals[-1] + types - 1, types - 1) + outputs + 16
    return 2 * UNIT * steps * (2 + float(min(setting.loss.ratio, Fraction(10**12))))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _closed(
    value: float,
    error: float,
    where: Counts,
    exact: Fraction | None,
) -> Range:
    if exact is not None:
        log = _log_fraction(exact)
        return Range(
            log_value=log,
            log_lower=log,
            log_upper=log,
            split=where,
            method="exact",
            reason="Every histogram and every composition, in rationals.",
        )
    is_closed = error <= ACCURACY * value
    return Range(
        log_value=_log(value),
        log_lower=_log(value - error),
        log_upper=_log(min(1.0, value + error)),
        split=where,
        method="enumeration",
        status="closed" if is_closed else "bracketed",
        reason="Every histogram and every composition, in floats with a bound of their error.",
    )


def _bracketed(
    value: float,
    upper: float,
    error: float,
    where: Counts,
) -> Range:
    return Range(
        log_value=_log(value),
        log_lower=_log(value - error),
        log_upper=_log(min(1.0, upper + error)),
        split=where,
        method="bracket",
        status="bracketed",
        reason="Between a good composition and an adversary who sees each record before the next is drawn.",
    )


def _log_fraction(value: Fraction) -> float:
    if value == 0:
        return -math.inf
    return math.log(value.numerator) - math.log(value.denominator)
