"""Large domains: a public random hash of a category into few cells, and k-ary response of the cell.

A report is the number of the hash, which says nothing about the value, and a code. The hashes are
those of the affine scheme: divide by a power of x in the field of 2**b elements, and drop the last
bits. Any two categories share a cell under equally many of them, so that frequencies are unbiased,
and how many reports support each category is a convolution over the powers: all categories are
counted at once, in no more time than it takes to sort.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_epsilon
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import IntArray, Seed
from mezzotint.families.categories import categorical, domain_names, support_variance
from mezzotint.families.finite_fields import powers_of_x, primitive

MAX_DOMAIN = (1 << 18) - 1
"""Categories of a hashed domain."""

MAX_COUNTS = 1 << 24
"""Hashes times cells."""

MAX_CELL_BITS = 10

LARGEST_HASHED_EPSILON = 30.0
"""Beyond it the number of cells is the largest one."""


@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class HashedDomain:
    """A public list of categories, and how they are reported: made by `hashed`.

    Arguments:
        categories: names; their order is part of the scheme.
        mechanism: the table of the cells. Its categories name the list they belong to.

    Example:
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=2.0)
        >>> domain.mechanism.bits, len(domain.categories)
        (3, 1000)
    """

    categories: tuple[str, ...]
    mechanism: Mechanism

    def __post_init__(self) -> None:
        cell_names = self.mechanism.categories or ()
        is_power_of_two = len(cell_names) & (len(cell_names) - 1) == 0
        if not is_power_of_two or cell_names != _cell_names(self.categories, len(cell_names)):
            remedy = "are not those of this table, or in another order; give those of the table"
            raise ParameterError("categories", f"{len(self.categories)} names", remedy)

    @property
    def bits(self) -> int:
        """Of the field: categories are its elements from 1 on."""
        return max(2, len(self.categories).bit_length())

    @property
    def cells(self) -> int:
        """Under each hash."""
        return self.mechanism.knots.size

    @property
    def hashes(self) -> int:
        """How many there are."""
        return (1 << self.bits) - 1

    @cached_property
    def _powers(self) -> IntArray:
        return np.array(powers_of_x(primitive(self.bits), self.bits))

    @cached_property
    def _logarithms(self) -> IntArray:
        """(k,) the power of x that stands for each category."""
        element_count = self.hashes + 1
        logarithms = np.zeros(element_count, dtype=np.int64)
        logarithms[self._powers] = np.arange(self.hashes)
        return logarithms[1 : len(self.categories) + 1]

    @cached_property
    def _cell_of_power(self) -> IntArray:
        """(hashes,) the cell of every power of x."""
        dropped_bits = self.bits - self.cells.bit_length() + 1
        return self._powers >> dropped_bits

    def cell(self, positions: IntArray, hashes: IntArray) -> IntArray:
        """(n,) the cells of categories, by their positions in the list, each under a hash of its
        own.
        """
        powers_of_pairs = self._logarithms[positions] - hashes
        return self._cell_of_power[powers_of_pairs % self.hashes]

    def privatize(
        self,
        values: npt.ArrayLike,
        *,
        rng: Seed = None,
    ) -> tuple[IntArray, IntArray]:
        """One report per value.

        Arguments:
            values: (n,) categories, as a list, an array or a series; None is missing.
            rng: None for the cryptographic generator; a seed or numpy Generator is reproducible and
                NOT private.
        Returns: (n,) codes and (n,) hashes, both parts of the report.
        Raises:
            ParameterError: a value that is not a category.
        """
        from mezzotint.core.sampler import privatize
        from mezzotint.core.values import inputs

        listed = inputs(values, self.categories, parameter="values")
        if listed.present is not None:
            first_missing = int(np.argmin(listed.present))
            raise ParameterError("values", f"value {first_missing}", "is missing; drop such values")
        positions = listed.values.astype(np.int64)
        generator = np.random.default_rng(rng) if isinstance(rng, int | np.integer) else rng
        if generator is None:
            numbers = [secrets.randbelow(self.hashes) for _ in positions]
            hashes = np.array(numbers, dtype=np.int64)
        else:
            hashes = generator.integers(0, self.hashes, positions.size)
        cells = self.cell(positions, hashes)
        cell_inputs = cells.astype(np.float64)
        codes, _ = privatize(self.mechanism, cell_inputs, rng=generator)
        return codes.astype(np.int64), hashes

    def supports(self, counts: npt.NDArray[np.int64]) -> IntArray:
        """(k,) how many reports name a cell that the category is in.

        Arguments:
            counts: (hashes, cells) reports.
        """
        total = np.zeros(self.hashes // 2 + 1, dtype=np.complex128)
        for cell in range(self.cells):
            is_in_cell = (self._cell_of_power == cell).astype(np.float64)
            count_spectrum = np.fft.rfft(counts[:, cell])
            total += count_spectrum * np.fft.rfft(is_in_cell)
        convolution = np.fft.irfft(total, n=self.hashes)
        support_counts = np.rint(convolution).astype(np.int64)
        return support_counts[self._logarithms]

    @property
    def chances(self) -> tuple[float, float]:
        """That a report supports its own category, and that it supports any given other one."""
        same_cell, other_cell = self.mechanism.probabilities[0, :2].tolist()
        return same_cell, _other_support(self.bits, self.cells, same_cell, other_cell)


def hashed(
    *,
    categories: Sequence[str | int | bool],
    epsilon: float,
    other: bool = False,
    missing: bool = False,
) -> HashedDomain:
    """Reports about a large public domain, whose most frequent categories `collect.heavy_hitters`
    finds.

    Arguments:
        categories: 2 to 262143 names, known beforehand: a list read off private data is a release
            of its own.
        epsilon: pure epsilon requested, > 0 and finite; that of the table of cells is at most this.
        other, missing: as in `categorical`.
    Returns: what `collect.privatize` takes for a mechanism.
    Raises: ParameterError, naming the parameter.
    Guarantees: a report is a number drawn without looking at the value, and one report of
        `mechanism` about the cell that the value has under it: for every number the table's
        certificate holds. The number of cells is the power of 2 near e**epsilon + 1 at which a rare
        category's frequency varies least.
    Source: Wang, Blocki, Li, Jha 2017 (local hashing).
    Example:
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=2.0)
        >>> domain.mechanism.epsilon <= 2.0
        True
    """
    names = domain_names(
        categories,
        other=other,
        missing=missing,
        most=MAX_DOMAIN,
    )
    capped_epsilon = min(check_epsilon(epsilon), LARGEST_HASHED_EPSILON)
    odds = math.exp(capped_epsilon)
    bits = max(2, len(names).bit_length())

    def variance(cell_bits: int) -> float:
        """Of a rare category's frequency."""
        cell_count = 2**cell_bits
        same_cell = odds / (odds + cell_count - 1)
        other_cell = (1 - same_cell) / (cell_count - 1)
        other_support = _other_support(bits, cell_count, same_cell, other_cell)
        return support_variance(math.inf, same_cell, other_support)

    fitting_bits = (MAX_COUNTS >> bits).bit_length() - 1
    most_bits = max(1, min(bits - 1, fitting_bits, MAX_CELL_BITS))
    cell_bits = min(range(1, most_bits + 1), key=variance)
    cell_count = 1 << cell_bits
    cells = _cell_names(names, cell_count)
    table = categorical(
        categories=cells,
        epsilon=epsilon,
        method="krr",
    )
    return HashedDomain(categories=tuple(names), mechanism=table)


def _other_support(
    bits: int,
    cells: int,
    same_cell: float,
    other_cell: float,
) -> float:
    """The chance that a report supports another category, from those of its own and other cells."""
    collision = (2**bits // cells - 1) / (2**bits - 1)
    return collision * same_cell + (1 - collision) * other_cell


def is_of_cells(table: Mechanism) -> bool:
    """Whether the categories of a table are the cells of a large domain, not values themselves."""
    names = table.categories or ("",)
    return all(_CELL_NAME.fullmatch(name) for name in names)


_CELL_NAME = re.compile("[0-9a-f]{16}/[0-9]+")


def _cell_names(categories: Sequence[str], cell_count: int) -> tuple[str, ...]:
    """Names of the cells, which name the list: another list is refused where reports are
    counted.
    """
    digest = hashlib.sha256()
    for name in categories:
        encoded = name.encode()
        length = len(encoded).to_bytes(8, "big")
        digest.update(length + encoded)
    prefix = digest.hexdigest()[:16]
    return tuple(f"{prefix}/{cell}" for cell in range(cell_count))
