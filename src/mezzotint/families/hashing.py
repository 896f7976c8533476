"""Large domains: a public random hash of a category into few cells, and k-ary response of the cell.

A report is the number of the hash, which says nothing about the value, and a code. The hashes are those of the affine
scheme of `categorical`: divide by a power of x in the field of 2**b elements, and drop the last bits. Any two
categories share a cell under equally many of them, so that frequencies are unbiased, and how many reports support each
category is a convolution over the powers: all categories are counted at once, in no more time than it takes to sort.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_epsilon
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import MISSING, OTHER, IntArray, Mechanism, category_name
from mezzotint.core.sampler import privatize
from mezzotint.families.categorical import categorical, domain_names, primitive

MAX_DOMAIN = (1 << 18) - 1
MAX_COUNTS = 1 << 24
"""Hashes times cells."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HashedDomain:
    """A public list of categories, and how they are reported: made by `hashed`.

    Arguments:
        categories: names; their order is part of the scheme.
        mechanism: the table of the cells. Its categories name the list they belong to.
    """

    categories: tuple[str, ...]
    mechanism: Mechanism

    def __post_init__(self) -> None:
        cells = self.mechanism.categories or ()
        if cells != _cells(self.categories, len(cells)) or len(cells) & (len(cells) - 1):
            raise ParameterError(
                "categories", f"{len(self.categories)} names", "are not those of this table, or in another order"
            )

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
        return powers(self.bits)

    @cached_property
    def _logarithms(self) -> IntArray:
        """(k,) the power of x that stands for each category."""
        logarithms = np.zeros(self.hashes + 1, dtype=np.int64)
        logarithms[self._powers] = np.arange(self.hashes)
        return logarithms[1 : len(self.categories) + 1]

    @cached_property
    def _kept(self) -> IntArray:
        """(hashes,) the cell of every power of x."""
        return self._powers >> (self.bits - self.cells.bit_length() + 1)

    def cell(self, positions: IntArray, hashes: IntArray) -> IntArray:
        """(n,) the cells of categories, by their positions in the list, each under a hash of its own."""
        return self._kept[(self._logarithms[positions] - hashes) % self.hashes]

    def privatize(self, values: Sequence[str | int | bool | None], *, rng: Any = None) -> tuple[IntArray, IntArray]:
        """One report per value.

        Arguments:
            values: (n,) categories; None is missing.
            rng: None for the cryptographic generator; a seed or numpy Generator is reproducible and NOT private.

        Returns: (n,) codes and (n,) hashes, both parts of the report.

        Raises:
            ParameterError: a value that is no category.
        """
        places = {name: i for i, name in enumerate(self.categories)}
        found = [places.get(MISSING if one is None else category_name(one), places.get(OTHER, -1)) for one in values]
        if -1 in found:
            raise ParameterError(
                "values", f"value {found.index(-1)}", "is no category; build the domain with other=True"
            )
        generator = np.random.default_rng(rng) if isinstance(rng, int | np.integer) else rng
        hashes = (
            np.array([secrets.randbelow(self.hashes) for _ in found], dtype=np.int64)
            if generator is None
            else generator.integers(0, self.hashes, len(found))
        )
        cells = self.cell(np.array(found, dtype=np.int64), hashes)
        codes, _ = privatize(self.mechanism, cells.astype(np.float64), rng=generator)
        return codes.astype(np.int64), hashes

    def supports(self, counts: npt.NDArray[np.int64]) -> IntArray:
        """(k,) how many reports name a cell that the category is in.

        Arguments:
            counts: (hashes, cells) reports.
        """
        total = np.zeros(self.hashes // 2 + 1, dtype=np.complex128)
        for cell in range(self.cells):
            total += np.fft.rfft(counts[:, cell]) * np.fft.rfft((self._kept == cell).astype(np.float64))
        return np.rint(np.fft.irfft(total, n=self.hashes)).astype(np.int64)[self._logarithms]

    @property
    def chances(self) -> tuple[float, float]:
        """That a report supports its own category, and that it supports any given other one."""
        own, other = (float(self.mechanism.probabilities[0, i]) for i in (0, 1))
        together = ((1 << self.bits) // self.cells - 1) / self.hashes
        return own, together * own + (1 - together) * other


def hashed(
    *, categories: Sequence[str | int | bool], epsilon: float, other: bool = False, missing: bool = False
) -> HashedDomain:
    """Reports about a large public domain, whose most frequent categories `collect.heavy_hitters` finds.

    Arguments:
        categories: 2 to 262143 names, known beforehand: a list read off private data is a release of its own.
        epsilon: pure epsilon asked for, > 0 and finite; that of the table of cells is at most this.
        other, missing: as in `categorical`.

    Returns: what `collect.privatize` takes for a mechanism.

    Raises:
        ParameterError: naming the parameter.

    Guarantees: a report is a number drawn without looking at the value, and one report of `mechanism` about the cell
        that the value has under it: for every number the table's certificate holds. The number of cells is the power of
        2 near e**epsilon + 1 at which a rare category's frequency varies least.

    Source: Wang, Blocki, Li, Jha 2017 (local hashing).
    """
    names = domain_names(categories, other=other, missing=missing, most=MAX_DOMAIN)
    odds = math.exp(min(check_epsilon(epsilon), 30.0))
    bits = max(2, len(names).bit_length())

    def variance(d: int) -> float:
        own, together = odds / (odds + 2**d - 1), (2 ** (bits - d) - 1) / (2**bits - 1)
        support = together * own + (1 - together) * (1 - own) / (2**d - 1)
        return support * (1 - support) / (own - support) ** 2

    most = max(1, min(bits - 1, (MAX_COUNTS >> bits).bit_length() - 1, 10))
    cells = 1 << min(range(1, most + 1), key=variance)
    table = categorical(categories=_cells(tuple(names), cells), epsilon=epsilon, method="krr")
    return HashedDomain(categories=tuple(names), mechanism=table)


def _cells(categories: Sequence[str], cells: int) -> tuple[str, ...]:
    """Names of the cells, which name the list: another list is refused where reports are counted."""
    of_each = hashlib.sha256()
    for name in categories:
        of_each.update(len(raw := name.encode()).to_bytes(8, "big") + raw)
    return tuple(f"{of_each.hexdigest()[:16]}/{i}" for i in range(cells))


def powers(bits: int) -> IntArray:
    """(2**bits - 1,) the powers of x in the field of 2**bits elements, as bits of polynomials."""
    rule, value, found = primitive(bits), 1, []
    for _ in range((1 << bits) - 1):
        found.append(value)
        value = value << 1 ^ (rule if value >> (bits - 1) else 0)
    return np.array(found, dtype=np.int64)
