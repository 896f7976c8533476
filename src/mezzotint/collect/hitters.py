"""The most frequent categories of a large domain, from hashed reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np
import numpy.typing as npt

from mezzotint.collect.counts import (
    BlockCounter,
    codes_in,
    refuse_seeded,
    seeded_together,
    total_of,
)
from mezzotint.collect.encoder import Hashing
from mezzotint.collect.intervals import Interval, check_confidence, clopper_pearson, within
from mezzotint.collect.reports import code_field, hash_field
from mezzotint.collect.source import Block, open_columns
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.values import numbers
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.claim import Claim, Claimed


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HashedCounts:
    """Counts of reports by hash and code.

    Arguments:
        domain: of `families.hashed`.
        counts: (hashes, cells).
        seeded: as in `CodeCounts`.

    Example:
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=4.0)
        >>> mz.collect.HashedCounts.from_reports([0, 1, 1], [5, 3, 9], domain=domain).n
        3
    """

    domain: Hashing
    counts: npt.NDArray[np.int64]
    seeded: bool | None = None

    @classmethod
    def from_reports(
        cls,
        codes: npt.ArrayLike,
        hashes: npt.ArrayLike,
        *,
        domain: Hashing,
        seeded: bool | None = None,
    ) -> Self:
        """Counts reports, (n,) codes with their hashes; raises ParameterError for any that cannot be."""
        cells = domain.mechanism.levels.size
        reports = {"codes": np.asarray(codes, dtype=np.int64)}
        reports["hashes"] = np.asarray(hashes, dtype=np.int64)
        same_shape = reports["codes"].shape == reports["hashes"].shape
        for name, size in (("codes", cells), ("hashes", domain.hashes)):
            array = reports[name]
            listed = not array.size or 0 <= array.min() <= array.max() < size
            if not same_shape or not listed:
                remedy = f"need integers below {size}, as many codes as hashes"
                raise ParameterError(name, array.shape, remedy)
        places = reports["hashes"] * cells + reports["codes"]
        counts = np.bincount(places, minlength=domain.hashes * cells)
        return cls(domain=domain, counts=counts.reshape(domain.hashes, cells), seeded=seeded)

    @property
    def n(self) -> int:
        """Reports."""
        return int(self.counts.sum())

    def merge(self, other: HashedCounts) -> HashedCounts:
        """The counts of both, of one domain."""
        seeded = seeded_together(self.seeded, other.seeded)
        return HashedCounts(domain=self.domain, counts=self.counts + other.counts, seeded=seeded)


def read_hashed(
    source: str | os.PathLike[str],
    *,
    domain: Hashing | Callable[[Mechanism], Hashing],
    column: str | None = None,
) -> HashedCounts:
    """Counts the hashed reports of a file or data set.

    Arguments:
        source: as `read_counts`.
        domain: with which they were made, or made again from the same list in the same order; or what makes it from the
            table that the reports carry.
        column: the field of codes; None where the file describes exactly one.

    Returns: the counts by hash and code.

    Raises:
        ParameterError, FileFormatError: as `read_counts`; reports about another list.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("word\\n" + "w7\\n" * 5_000)
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=4.0)
        >>> written = mz.collect.privatize("in.csv", "out.csv", column="word", mechanism=domain)
        >>> mz.collect.read_hashed("out.csv", domain=domain).n
        5000
    """
    counter = BlockCounter(column=column, mechanism=None if callable(domain) else domain.mechanism)

    def count(block: Block) -> HashedCounts:
        nonlocal domain, counter
        with open_columns(block.file.path) as reader:
            field, described = counter.field(reader)
            hashed_domain = domain(described.tables[field]) if callable(domain) else domain
            domain, counter = (
                hashed_domain,
                BlockCounter(column=field, mechanism=hashed_domain.mechanism),
            )
            beside, rows = hash_field(field.removesuffix(code_field(""))), block.offset
            reader.require(beside)
            total = HashedCounts.from_reports([], [], domain=hashed_domain).counts
            for batch in reader.batches(numeric=[field, beside], groups=block.groups):
                codes = codes_in(batch.column(0), hashed_domain.mechanism.levels.size, field, rows)
                hashes, present = numbers(batch.column(1))
                if present is not None:
                    raise FileFormatError(
                        f"{beside}: report {rows + int(np.argmin(present)) + 1} is missing"
                    )
                total += HashedCounts.from_reports(codes, hashes, domain=hashed_domain).counts
                rows += batch.num_rows
        return HashedCounts(domain=hashed_domain, counts=total, seeded=described.seeded)

    return total_of(source, count, HashedCounts.merge, column=column)[0]


@final
@dataclass(frozen=True, kw_only=True)
class HeavyHitters(Claimed):
    """The most frequent categories, by their reports. All statements hold at once with confidence `confidence`.

    Arguments:
        n: reports.
        confidence: of all of it together.
        categories: those of the greatest estimated shares, greatest first.
        shares: their shares; points are unbiased.
        certain: whether each surely belongs to the most frequent categories, as many as are listed: its share is surely
            above that of everything unlisted.
        unlisted_at_most: no other category has a greater share.
        domain: categories in the list.
        claim: of one report; None when the reports were drawn from a seed.
        seeded: as in `Frequencies`.

    Example:
        >>> domain = mz.families.hashed(categories=["yes", "no"], epsilon=4.0)
        >>> counts = mz.collect.HashedCounts.from_reports([0, 1] * 500, [0, 1] * 500, domain=domain)
        >>> len(mz.collect.heavy_hitters(counts, top=1).certain)
        1
    """

    beside = ("heavy_hitters", "simultaneous")
    simultaneous = True

    n: int
    confidence: float
    categories: tuple[str, ...] = field(repr=False)
    shares: tuple[Interval, ...] = field(repr=False)
    certain: tuple[bool, ...] = field(repr=False)
    unlisted_at_most: float
    domain: int
    claim: Claim | None = field(repr=False)
    seeded: bool | None

    @property
    def heavy_hitters(self) -> list[JsonObject]:
        """Each category with its share and whether it is certain."""
        listed = zip(self.categories, self.shares, self.certain, strict=True)
        return [
            {"category": name, **share.as_dict(), "certain": sure} for name, share, sure in listed
        ]

    def _rows(self) -> list[JsonObject]:
        return self.heavy_hitters


def heavy_hitters(
    counts: HashedCounts, *, top: int = 20, confidence: float = 0.95, allow_seeded: bool = False
) -> HeavyHitters:
    """The categories of a large domain that are reported most.

    Arguments:
        counts: `read_hashed`, or `HashedCounts.from_reports`.
        top: how many to list, >= 1.
        confidence: of all statements together, in (0, 1).
        allow_seeded: as in `estimate`.

    Returns: the categories found, by falling share.

    Raises:
        ParameterError: no reports, seeded ones unless allowed, or a number that cannot be.

    Guarantees: reports support a category independently of each other, so that their number is binomial. Every category
        of the domain has Clopper and Pearson's interval at level 1 - (1 - level) / (size of the domain): all hold at
        once with confidence `confidence`, at every n, whatever the shares are. Every category above `unlisted_at_most` is
        listed.
    Source: docs/proofs/estimation.md, E9; Clopper and Pearson 1934.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("word\\n" + "w7\\n" * 5_000)
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=4.0)
        >>> written = mz.collect.privatize("in.csv", "out.csv", column="word", mechanism=domain)
        >>> mz.collect.heavy_hitters(mz.collect.read_hashed("out.csv", domain=domain), top=1).categories
        ('w7',)
    """
    confidence = check_confidence(confidence)
    domain, n = counts.domain, counts.n
    refuse_seeded(counts.seeded, allowed=allow_seeded)
    if top < 1 or n == 0:
        raise ParameterError(
            "top", top, f"need at least one category to list, and reports: there are {n}"
        )
    supports = domain.supports(counts.counts)
    order = np.argsort(-supports, kind="stable")
    listed, tail = order[:top], (1 - confidence) / supports.size / 2
    listed_chance, other_chance = domain.chances

    def share(chance: npt.ArrayLike) -> npt.NDArray[np.float64]:
        chances = np.asarray(chance, dtype=np.float64)
        return (chances - other_chance) / (listed_chance - other_chance)

    seen = supports[order[: top + 1]].astype(np.float64)
    ends = np.clip(share(clopper_pearson(seen, n, tail)), 0, 1)
    unlisted = float(ends[1, -1]) if supports.size > top else 0.0
    shares = tuple(
        within(value, lower, upper)
        for value, lower, upper in zip(
            share(seen / n)[:top].tolist(), *ends[:, :top].tolist(), strict=True
        )
    )
    return HeavyHitters(
        n=n,
        confidence=confidence,
        categories=tuple(domain.categories[i] for i in listed),
        shares=shares,
        certain=tuple(interval.low > unlisted for interval in shares),
        unlisted_at_most=unlisted,
        domain=supports.size,
        claim=None if counts.seeded else report_claim(domain.mechanism),
        seeded=counts.seeded,
    )
