"""Frequencies of categories from reports, with intervals.

The most frequent categories of a large domain, from hashed reports, with a statement about all of it at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np
import numpy.typing as npt
from scipy import special

from mezzotint.collect.columns import numbers, open_columns
from mezzotint.collect.counts import (
    BlockCounter,
    CodeCounts,
    check_whole,
    codes_in,
    expected_reports,
    refuse_seeded,
    runs_of,
    seeded_together,
)
from mezzotint.collect.drawing import Hashing
from mezzotint.collect.mean import Interval, Method, Spread, bernstein, check_level, score_interval
from mezzotint.collect.reports import code_field, hash_field
from mezzotint.collect.sources import blocks_of, find_files
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.privacy.claim import Claim, Claimed
from mezzotint.privacy.prove import report_claim


@final
@dataclass(frozen=True, kw_only=True)
class Frequencies(Claimed):
    """Which share of the inputs was of each category.

    Arguments:
        n: reports.
        level: confidence of every interval, or of all together.
        method: as in `Estimate`.
        simultaneous: whether it is that of all together (Bonferroni).
        categories: names.
        shares: one interval per category. Points are unbiased, so that they may lie below 0 or above 1; they sum to 1.
        claim: of one report; None when the reports were drawn from a seed, which are not private.
        seeded: whether they were; None where their files do not say.
        sha256: hash of the table.
    """

    beside = ("frequencies",)

    n: int
    level: float
    method: Method
    simultaneous: bool
    categories: tuple[str, ...] = field(repr=False)
    shares: tuple[Interval, ...] = field(repr=False)
    claim: Claim | None = field(repr=False)
    seeded: bool | None
    sha256: str

    @property
    def frequencies(self) -> list[JsonObject]:
        """Each category with its share."""
        return [{"category": name, **share.as_dict()} for name, share in zip(self.categories, self.shares, strict=True)]


def frequencies(counts: CodeCounts, *, level: float, method: Method, simultaneous: bool) -> Frequencies:
    """The frequencies behind reports of a table for categories; see `estimate`.

    Each is the mean of a decoder that is unbiased for its category's indicator: a number per report, so that the score
    interval of means serves here too.

    Raises:
        ParameterError: a table whose rows are linearly dependent.
    """
    mechanism = counts.mechanism
    names = mechanism.categories or ()
    each = 1 - (1 - level) / len(names) if simultaneous else level
    shares = []
    for decoder in mechanism.frequency_decoders.T:
        mean = float(counts.counts @ decoder) / counts.n
        spread = Spread(pmf=mechanism.probabilities, values=decoder)
        if method == "safe":
            width = bernstein(spread, n=counts.n, level=each)
            low, high = mean - width, mean + width
        else:
            low, high = score_interval(counts.counts, spread, mean=mean, level=each)
        shares.append(Interval(value=mean, low=min(mean, max(low, 0.0)), high=max(mean, min(high, 1.0))))
    return Frequencies(
        n=counts.n,
        level=level,
        method=method,
        simultaneous=simultaneous,
        categories=names,
        shares=tuple(shares),
        claim=None if counts.seeded else report_claim(mechanism),
        seeded=counts.seeded,
        sha256=mechanism.sha256,
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HashedCounts:
    """How often each code was reported under each hash.

    Arguments:
        domain: of `families.hashed`.
        counts: (hashes, cells).
        seeded: as in `CodeCounts`.
    """

    domain: Hashing
    counts: npt.NDArray[np.int64]
    seeded: bool | None = None

    @classmethod
    def from_reports(
        cls, codes: npt.ArrayLike, hashes: npt.ArrayLike, *, domain: Hashing, seeded: bool | None = None
    ) -> Self:
        """Counts reports, (n,) codes with their hashes; raises ParameterError for any that cannot be."""
        cells = domain.mechanism.levels.size
        one, other = (np.asarray(part, dtype=np.int64) for part in (codes, hashes))
        for name, part, size in (("codes", one, cells), ("hashes", other, domain.hashes)):
            if one.shape != other.shape or (part.size and not 0 <= part.min() <= part.max() < size):
                raise ParameterError(name, part.shape, f"need integers below {size}, as many codes as hashes")
        counts = np.bincount(other * cells + one, minlength=domain.hashes * cells)
        return cls(domain=domain, counts=counts.reshape(domain.hashes, cells), seeded=seeded)

    @property
    def n(self) -> int:
        """Reports."""
        return int(self.counts.sum())


def read_hashed(
    source: str | os.PathLike[str], *, domain: Hashing | Callable[[Mechanism], Hashing], column: str | None = None
) -> HashedCounts:
    """Counts the hashed reports of a file or data set.

    Arguments:
        source: as `read_counts`.
        domain: with which they were made, or made again from the same list in the same order; or what makes it from the
            table that the reports carry.
        column: the field of codes; None where the file describes exactly one.

    Raises:
        ParameterError, FileFormatError: as `read_counts`; reports about another list.
    """
    files, expected = find_files(source), expected_reports(source)
    wanted = None if callable(domain) else domain.mechanism
    counter, total, seeded = BlockCounter(column=column, mechanism=wanted), None, list[bool | None]()
    for block in blocks_of(files):
        with open_columns(block.file.path) as reader:
            field, described = counter.field(reader)
            if callable(domain):
                domain = domain(described.tables[field])
                counter = BlockCounter(column=field, mechanism=domain.mechanism)
            beside = hash_field(field.removesuffix(code_field("")))
            reader.require(beside)
            rows = block.offset
            seeded.append(described.seeded)
            for batch in reader.batches(numeric=[field, beside], groups=block.groups):
                codes = codes_in(batch.column(0), domain.mechanism.levels.size, field, rows)
                hashes, present = numbers(batch.column(1))
                if present is not None:
                    raise FileFormatError(f"{beside}: report {rows + int(np.argmin(present)) + 1} is missing")
                part = HashedCounts.from_reports(codes, hashes, domain=domain).counts
                total = part if total is None else np.add(total, part, out=total)
                rows += batch.num_rows
    check_whole(source, 0 if total is None else int(total.sum()), expected=expected, column=column)
    assert total is not None
    assert not callable(domain)
    runs_of(files)  # refuses the same reports twice
    return HashedCounts(domain=domain, counts=total, seeded=seeded_together(*seeded))


@final
@dataclass(frozen=True, kw_only=True)
class HeavyHitters(Claimed):
    """The most frequent categories, as far as reports tell. All statements hold at once with confidence `level`.

    Arguments:
        n: reports.
        level: confidence of all of it together.
        categories: those of the greatest estimated shares, greatest first.
        shares: their shares; points are unbiased.
        certain: whether each is surely among the so many most frequent of the domain, as its share is surely above that
            of everything that is not listed.
        unlisted_at_most: no other category has a greater share.
        domain: categories in the list.
        claim: of one report; None when the reports were drawn from a seed.
        seeded: as in `Frequencies`.
    """

    beside = ("heavy_hitters", "simultaneous")
    simultaneous = True

    n: int
    level: float
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
        return [{"category": name, **share.as_dict(), "certain": sure} for name, share, sure in listed]


def heavy_hitters(
    counts: HashedCounts, *, top: int = 20, level: float = 0.95, allow_seeded: bool = False
) -> HeavyHitters:
    """The categories of a large domain that are reported most.

    Arguments:
        counts: `read_hashed`, or `HashedCounts.from_reports`.
        top: how many to list, >= 1.
        level: confidence of all statements together, in (0, 1).
        allow_seeded: as in `estimate`.

    Raises:
        ParameterError: no reports, seeded ones unless allowed, or a number that cannot be.

    Guarantees: reports support a category independently of each other, so that their number is binomial. Every category
        of the domain has Clopper and Pearson's interval at level 1 - (1 - level) / (size of the domain): all hold at
        once with confidence `level`, at every n, whatever the shares are. Every category above `unlisted_at_most` is
        listed.
    Source: docs/proofs/estimation.md, E9; Clopper and Pearson 1934.
    """
    check_level(level)
    domain, n = counts.domain, counts.n
    refuse_seeded(counts.seeded, allowed=allow_seeded)
    if top < 1 or n == 0:
        raise ParameterError("top", top, f"need at least one category to list, and reports: there are {n}")
    supports = domain.supports(counts.counts)
    order = np.argsort(-supports, kind="stable")
    listed, tail = order[:top], (1 - level) / supports.size / 2
    own, others = domain.chances

    def share(chance: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return (np.asarray(chance, dtype=np.float64) - others) / (own - others)

    seen = supports[order[: top + 1]].astype(np.float64)
    low = np.where(seen > 0, special.betaincinv(np.maximum(seen, 1), n - seen + 1, tail), 0.0)
    high = np.where(seen < n, special.betaincinv(seen + 1, np.maximum(n - seen, 1), 1 - tail), 1.0)
    ends = np.clip(share([low, high]), 0, 1)
    unlisted = float(ends[1, -1]) if supports.size > top else 0.0
    shares = tuple(
        Interval(value=value, low=min(value, least), high=max(value, most))
        for value, least, most in zip(share(seen / n)[:top].tolist(), *ends[:, :top].tolist(), strict=True)
    )
    return HeavyHitters(
        n=n,
        level=level,
        categories=tuple(domain.categories[i] for i in listed),
        shares=shares,
        certain=tuple(one.low > unlisted for one in shares),
        unlisted_at_most=unlisted,
        domain=supports.size,
        claim=None if counts.seeded else report_claim(domain.mechanism),
        seeded=counts.seeded,
    )
