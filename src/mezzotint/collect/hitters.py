"""The most frequent categories of a large domain, from hashed reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, final

import numpy as np
import numpy.typing as npt

from mezzotint.collect.counts import (
    Counts,
    OpenReports,
    claim_of,
    codes_in,
    counts_of,
    open_reports,
    refuse_seeded,
)
from mezzotint.collect.intervals import (
    Interval,
    check_confidence,
    clopper_pearson,
    within,
)
from mezzotint.collect.reports import code_field, hash_field
from mezzotint.collect.source import Block
from mezzotint.core.arguments import check_indices, check_instance
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import AnyPath, IntArray
from mezzotint.privacy.claim import Claim, Claimed

if TYPE_CHECKING:
    from mezzotint.families.hashing import HashedDomain


@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class HashedCounts(Counts):
    """Counts of reports by hash and code.

    Arguments:
        domain: of `families.hashed`.
        counts: (hashes, cells).
        seeded, provenance: as in `Counts`.

    Example:
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=4.0)
        >>> mz.collect.HashedCounts.from_reports([0, 1, 1], [5, 3, 9], domain=domain).n
        3
    """

    domain: HashedDomain

    def __post_init__(self) -> None:
        from mezzotint.families.hashing import HashedDomain  # slow to load

        check_instance("domain", self.domain, HashedDomain)
        super().__post_init__()

    @property
    def tables(self) -> tuple[Mechanism, ...]:
        return (self.domain.mechanism,)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.domain.hashes, *super().shape

    def merge(self, other: Self) -> Self:
        """As in `Counts`; raises ParameterError for two lists, too."""
        if other.domain.categories != self.domain.categories:
            remedy = "reports of different domains cannot be added; estimate them apart"
            raise ParameterError("domain", other.domain.mechanism.name, remedy)
        return super().merge(other)

    @classmethod
    def from_reports(
        cls,
        codes: npt.ArrayLike,
        hashes: npt.ArrayLike,
        *,
        domain: HashedDomain,
        seeded: bool | None = None,
    ) -> Self:
        """Counts reports, (n,) codes with their hashes; raises ParameterError for any that cannot
        be.
        """
        level_count = domain.mechanism.levels.size
        code_columns = domain.mechanism.check_codes(codes)
        hash_rows = check_indices("hashes", hashes, domain.hashes)
        if hash_rows.shape != code_columns.shape:
            raise ParameterError("hashes", hash_rows.shape, "need as many hashes as codes")
        counts = np.bincount(
            hash_rows * level_count + code_columns,
            minlength=domain.hashes * level_count,
        )
        return cls(
            domain=domain,
            counts=counts.reshape(domain.hashes, level_count),
            seeded=seeded,
        )


def read_hashed(
    source: AnyPath,
    *,
    domain: HashedDomain | Callable[[Mechanism], HashedDomain],
    column: str | None = None,
) -> HashedCounts:
    """Counts the hashed reports of a file or data set.

    Arguments:
        source: as `read_counts`.
        domain: with which they were made, or made again from the same list in the same order; or
            what makes it from the table that the reports carry.
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
    mechanism: Mechanism | None = None
    if not callable(domain):
        mechanism = domain.mechanism

    def count(block: Block) -> HashedCounts:
        nonlocal domain, mechanism
        with open_reports(block, columns=[column], mechanism=mechanism) as reports:
            if callable(domain):
                domain = domain(reports.tables[0])
                mechanism = domain.mechanism
            return replace(_counted(reports, domain), provenance=reports.provenance)

    return counts_of(source, count, column=column)


def _counted(reports: OpenReports, domain: HashedDomain) -> HashedCounts:
    """The counts of one block."""
    seeded = reports.seeded
    hashes = hash_field(reports.fields[0].removesuffix(code_field("")))
    total = HashedCounts.from_reports([], [], domain=domain, seeded=seeded)
    for (codes,), record_batch in reports.batches(numeric=[hashes]):
        rows = codes_in(record_batch, hashes, domain.hashes)
        total = total.merge(HashedCounts.from_reports(codes, rows, domain=domain, seeded=seeded))
    return total


@final
@dataclass(frozen=True, kw_only=True)
class HeavyHitters(Claimed):
    """The most frequent categories, by their reports. All statements hold at once with confidence
    `confidence`.

    Arguments:
        n: reports.
        confidence: of all of it together.
        categories: those of the greatest estimated shares, greatest first.
        shares: their shares; points are unbiased.
        certain: whether each surely belongs to the most frequent categories, as many as are listed:
            its share is surely above that of everything unlisted.
        unlisted_at_most: no other category has a greater share.
        domain: categories in the list.
        claim: of one report; None when the reports were drawn from a seed.
        seeded, notes: as in `Frequencies`.

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
    notes: tuple[str, ...] = ()

    @property
    def heavy_hitters(self) -> list[JsonObject]:
        """Each category with its share and whether it is certain."""
        listed = zip(self.categories, self.shares, self.certain, strict=True)
        return [
            {"category": category, **share.as_dict(), "certain": is_certain}
            for category, share, is_certain in listed
        ]

    def _rows(self) -> list[JsonObject]:
        return self.heavy_hitters


def heavy_hitters(
    counts: HashedCounts,
    *,
    top: int = 20,
    confidence: float = 0.95,
    allow_seeded: bool = False,
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

    Guarantees: reports support a category independently of each other, so that their number is
        binomial. Every category of the domain has Clopper and Pearson's interval at level 1 - (1 -
        level) / (size of the domain): all hold at once, at every n, whatever the shares are. Every
        category above `unlisted_at_most` is listed.
    Source: docs/proofs/estimation.md, E9; Clopper and Pearson 1934.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("in.csv").write_text("word\\n" + "w7\\n" * 5_000)
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=4.0)
        >>> written = mz.collect.privatize("in.csv", "out.csv", column="word", mechanism=domain)
        >>> counts = mz.collect.read_hashed("out.csv", domain=domain)
        >>> mz.collect.heavy_hitters(counts, top=1).categories
        ('w7',)
    """
    confidence = check_confidence(confidence)
    refuse_seeded(counts.seeded, allowed=allow_seeded)
    if top < 1 or counts.n == 0:
        remedy = f"need at least one category to list, and reports: there are {counts.n}"
        raise ParameterError("top", top, remedy)
    domain = counts.domain
    supports = counts.domain.supports(counts.counts)
    order = np.argsort(-supports, kind="stable")[: top + 1]
    intervals = _shares_of(supports[order], counts, tail=(1 - confidence) / supports.size / 2)
    shares = intervals[:top]
    unlisted = 0.0
    if supports.size > top:
        unlisted = intervals[-1].high
    return HeavyHitters(
        n=counts.n,
        confidence=confidence,
        categories=tuple(domain.categories[index] for index in order[:top]),
        shares=tuple(shares),
        certain=tuple(share.low > unlisted for share in shares),
        unlisted_at_most=unlisted,
        domain=supports.size,
        claim=claim_of(domain.mechanism, seeded=counts.seeded),
        seeded=counts.seeded,
        notes=counts.provenance.notes,
    )


def _shares_of(supports: IntArray, counts: HashedCounts, *, tail: float) -> list[Interval]:
    """The shares of categories that so many reports support, each end with one-sided error
    `tail`.
    """
    listed_chance, other_chance = counts.domain.chances
    signal = listed_chance - other_chance
    values = (supports / counts.n - other_chance) / signal
    chances = np.stack(clopper_pearson(supports, counts.n, tail))
    lows, highs = np.clip((chances - other_chance) / signal, 0, 1)
    estimates = zip(values.tolist(), lows.tolist(), highs.tolist(), strict=True)
    return [
        within(share_estimate, lower_end, upper_end)
        for share_estimate, lower_end, upper_end in estimates
    ]
