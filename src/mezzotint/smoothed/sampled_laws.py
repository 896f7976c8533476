"""The law of an anonymous mechanism's output on every histogram, before and after its records are
sampled.

Chances are rationals as long as that is cheap and all inputs are; else floats
(docs/proofs/smoothed-expected.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational as ExactNumber
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed.grids import Arithmetic, Grid, below, one_more
from mezzotint.smoothed.mechanisms import (
    Anonymous,
    Counts,
    Histogram,
    Table,
    histograms_of,
)
from mezzotint.smoothed.model import Loss, Sample, Sampling, read_rational

SUM_ERROR = 1e-9
"""How far chances given as floats may miss 1 together."""


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
        largest_miss: by how much the chances of a histogram miss 1, at most; 0 for rationals.
    """

    rows: dict[Counts, list[Any]]
    outputs: tuple[Hashable, ...]
    is_exact: bool
    largest_miss: float


def laws_of(setting: Setting) -> Laws:
    """The law of the mechanism on every histogram that may reach it.

    Raises:
        ParameterError: chances below 0 or that do not sum to 1, with the histogram.
    """
    raw = _raw_laws(setting)
    all_outputs = itertools.chain.from_iterable(raw.values())
    outputs = tuple(dict.fromkeys(all_outputs))
    all_chances = itertools.chain.from_iterable(law.values() for law in raw.values())
    is_exact = all(map(_is_exact, all_chances))
    rows: dict[Counts, list[Any]] = {}
    for counts, law in raw.items():
        chances = [law.get(output, 0) for output in outputs]
        rows[counts] = _checked(counts, chances, is_exact)
    largest_miss = 0.0
    if not is_exact:
        largest_miss = max(abs(math.fsum(chances) - 1.0) for chances in rows.values())
    return Laws(rows=rows, outputs=outputs, is_exact=is_exact, largest_miss=largest_miss)


def _raw_laws(setting: Setting) -> dict[Counts, Mapping[Hashable, Any]]:
    """The law of the output at each histogram that a sample may be, as the mechanism states it."""
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
    """The chances at one histogram: rationals that sum to 1 where they are exact, else floats that
    do within `SUM_ERROR`.
    """
    if is_exact:
        tolerance = 0.0
        numbers: list[Any] = [read_rational("mechanism", chance) for chance in chances]
    else:
        tolerance = SUM_ERROR
        numbers = [float(chance) for chance in chances]
    are_chances = all(0 <= chance < math.inf for chance in numbers)
    if not are_chances or abs(sum(numbers) - 1) > tolerance:
        remedy = "needs chances >= 0 that sum to 1 at each histogram"
        raise ParameterError("mechanism", f"{counts}: {chances}", remedy)
    return numbers


def _empty_grid(
    setting: Setting,
    laws: Laws,
    total: int,
    arithmetic: Arithmetic,
) -> Grid:
    """(total+1, .., total+1, r) zeros: of each output for every histogram of so many records."""
    axes = (total + 1,) * (setting.types - 1)
    return arithmetic.zeros(*axes, len(laws.outputs))


def sampled_rows(setting: Setting, laws: Laws, arithmetic: Arithmetic) -> Grid:
    """(n+1, .., n+1, r) chances of each output for every histogram of n records, sampled."""
    if setting.sampling == "poisson":
        return _poisson(setting, laws, arithmetic)
    if setting.sampling == "with_replacement":
        return _with_replacement(setting, laws, arithmetic)
    total = setting.totals[-1]
    grid = _empty_grid(setting, laws, total, arithmetic)
    for counts, row in laws.rows.items():
        grid[counts[:-1]] = arithmetic.numbers(row)
    for larger in range(total + 1, setting.records + 1):
        grid = _one_lost(grid, larger, arithmetic)
    return grid


def _one_lost(grid: Grid, total: int, arithmetic: Arithmetic) -> Grid:
    """f_t(h) = sum_a (h_a / t) f_(t-1)(h - e_a): of one record more, one at random is lost."""
    axes = grid.ndim - 1
    axis_lengths = (total + 1,) * axes
    larger_grid = arithmetic.zeros(*axis_lengths, grid.shape[-1])
    counts = np.indices((total,) * axes)
    unchanged = below(total, axes)
    last_counts = total - counts.sum(axis=0)
    last_shares = _shares(last_counts, total, arithmetic)
    weighted = grid * last_shares[..., None]
    larger_grid[unchanged] = larger_grid[unchanged] + weighted
    for axis in range(axes):
        shifted = one_more(total, axes, axis)
        shares = _shares(counts[axis] + 1, total, arithmetic)
        weighted = grid * shares[..., None]
        larger_grid[shifted] = larger_grid[shifted] + weighted
    return larger_grid


def _shares(
    counts: npt.NDArray[np.int64],
    total: int,
    arithmetic: Arithmetic,
) -> Grid:
    shares = arithmetic.numbers(Fraction(count, total) for count in range(total + 1))
    number_type = float
    if arithmetic.is_exact:
        number_type = object
    share_table = np.array(shares, dtype=number_type)
    return share_table[np.clip(counts, 0, total)]


def _with_replacement(
    setting: Setting,
    laws: Laws,
    arithmetic: Arithmetic,
) -> Grid:
    """f(h) = sum_s multinomial(s; T, h / n) law(s)."""
    records = setting.records
    shares = arithmetic.numbers(Fraction(count, records) for count in range(records + 1))
    exponents = range(setting.totals[0] + 1)
    powers = [[share**power for power in exponents] for share in shares]
    rows: dict[Counts, list[Any]] = {}
    for counts, row in laws.rows.items():
        order_count = _multinomial(counts)
        rows[counts] = arithmetic.numbers(chance * order_count for chance in row)
    grid = _empty_grid(setting, laws, records, arithmetic)
    for histogram in histograms_of(records, setting.types):
        nothing = arithmetic.number(0)
        chances = [nothing] * len(laws.outputs)
        for counts, row in rows.items():
            weight = arithmetic.number(1)
            for count, draws in zip(histogram, counts, strict=True):
                weight = weight * powers[count][draws]
            if weight == 0:
                continue
            for output, chance in enumerate(row):
                chances[output] = chances[output] + weight * chance
        grid[histogram[:-1]] = chances
    return grid


def _multinomial(counts: Counts) -> int:
    orders = 1
    total = 0
    for count in counts:
        total += count
        orders *= math.comb(total, count)
    return orders


def _poisson(setting: Setting, laws: Laws, arithmetic: Arithmetic) -> Grid:
    """Binomial thinning along one type after another; here every type has an axis of its own."""
    axis_length = setting.records + 1
    types = setting.types
    assert setting.sample is not None, "a sampler without a sample"
    sampling_rate = setting.sample.rate
    axis_lengths = (axis_length,) * types
    grid = arithmetic.zeros(*axis_lengths, len(laws.outputs))
    for counts, row in laws.rows.items():
        grid[counts] = arithmetic.numbers(row)
    thinning = arithmetic.zeros(axis_length, axis_length)
    for count in range(axis_length):
        for sampled in range(count + 1):
            lost = count - sampled
            order_chance = sampling_rate**sampled * (1 - sampling_rate) ** lost
            chance = math.comb(count, sampled) * order_chance
            thinning[count, sampled] = arithmetic.number(chance)
    for axis in range(types):
        thinned = np.tensordot(thinning, grid, axes=(1, axis))
        grid = np.moveaxis(thinned, 0, axis)
    simplex = _empty_grid(setting, laws, setting.records, arithmetic)
    for histogram in histograms_of(setting.records, types):
        simplex[histogram[:-1]] = grid[histogram]
    return simplex
