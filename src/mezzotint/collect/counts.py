"""Reports as counts per code: all that an estimate needs, and what any number of machines can add
up.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, final

import numpy as np
import numpy.typing as npt

from mezzotint.collect.coded import ONE_THREAD, open_reports, total_of
from mezzotint.collect.provenance import UNKNOWN, Provenance
from mezzotint.collect.reports import (
    embedded,
    embedded_key,
    extracted,
)
from mezzotint.collect.settings import Settings
from mezzotint.collect.source import Block
from mezzotint.core.errors import (
    FileFormatError,
    ParameterError,
    as_array,
    wrong_kind,
)
from mezzotint.core.files import read_object, write_text
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Progress, Record
from mezzotint.core.types import AnyPath, IntArray
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.claim import Claim

COUNTS_FORMAT = "mezzotint-counts"
VERSION = 1
_OPTIONAL_KEYS = {"seeded", "runs", "sources", "memoised", "several_rows"}


COUNTS_REMARK = (
    "saved counts are of one column: they do not say what a complete row of the reports costs, nor "
    "how many rows a person gave; the reports and the ledger do"
)
"""What is said beside estimates from them."""


MOST_REPORTS = 2**53
"""Sums of so many are exact, as integers and as floats."""


def check_counts(values: npt.ArrayLike, shape: tuple[int, ...], remedy: str) -> IntArray:
    """A copy of the counts that nobody can change; ParameterError unless they are integers from 0
    on, in an array of this shape, whose sum is exact.
    """
    counts = as_array("counts", values, remedy)
    if counts.dtype.kind not in "iu" or counts.shape != shape:
        raise wrong_kind("counts", counts, "iu", remedy)
    if (counts < 0).any():
        raise ParameterError("counts", int(counts.min()), "a count cannot be negative")
    if int(counts.max()) > MOST_REPORTS // counts.size:
        total = sum(counts.ravel().tolist())  # in integers of any size
        if total > MOST_REPORTS:
            raise ParameterError("counts", total, f"more than {MOST_REPORTS:,} reports in all")
    owned = counts.astype(np.int64, copy=True)
    owned.setflags(write=False)
    return owned


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts(ABC):
    """How often each outcome was reported; what two sources say adds up.

    Arguments:
        counts: integers >= 0, reports per outcome.
        seeded: whether any of the draws was reproducible and therefore NOT private; None where that
            is unknown, as for bare codes and for files written before they said so.
        provenance: which runs drew the reports, as far as their files say.
    """

    counts: IntArray
    seeded: bool | None = None
    provenance: Provenance = UNKNOWN

    def __post_init__(self) -> None:
        shape = self.shape
        remedy = f"need {math.prod(shape)} integers from 0 on, one per outcome of a report: {shape}"
        object.__setattr__(self, "counts", check_counts(self.counts, shape, remedy))

    @property
    @abstractmethod
    def tables(self) -> tuple[Mechanism, ...]:
        """The tables that drew the reports."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the counts: the codes of each table."""
        return tuple(table.levels.size for table in self.tables)

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.counts.sum())

    def merge(self, other: Self) -> Self:
        """The counts of both; raises ParameterError when other tables drew them, or reports would
        count twice.
        """
        if self.tables != other.tables:
            remedy = "reports of different tables cannot be added; estimate them apart"
            raise ParameterError("mechanism", other.tables[0].name, remedy)
        return replace(
            self,
            counts=self.counts + other.counts,
            seeded=seeded_together([self.seeded, other.seeded]),
            provenance=self.provenance.merge(other.provenance),
        )


Counted = TypeVar("Counted", bound=Counts)


def counts_of(
    source: AnyPath,
    count: Callable[[Block], Counted],
    *,
    column: str | None,
    settings: Settings = ONE_THREAD,
) -> Counted:
    """The counts of all reports of a source, from those of each block; as `total_of`."""
    total = total_of(source, count, column=column, settings=settings)
    return replace(total.counted, provenance=total.provenance)


@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class CodeCounts(Counts, Record):
    """How often each code was reported under one mechanism: a sufficient statistic of the reports.

    Arguments:
        mechanism: the table that made the reports.
        counts: (m,) integers >= 0, reports per code.
        seeded, provenance: as in `Counts`.

    Raises:
        ParameterError: another shape, negative or non-integer counts.

    Guarantees: `a.merge(b)` of two parts equals the counts of the whole, exactly.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> counts.n, counts.counts.size
        (10000, 4)
    """

    mechanism: Mechanism

    @property
    def tables(self) -> tuple[Mechanism, ...]:
        return (self.mechanism,)

    @classmethod
    def from_codes(
        cls,
        codes: npt.ArrayLike,
        *,
        mechanism: Mechanism,
        seeded: bool | None = None,
    ) -> Self:
        """Counts the codes of an array of any shape; raises ParameterError for a code that names no
        level.
        """
        checked = mechanism.check_codes(codes)
        counts = np.bincount(checked.ravel(), minlength=mechanism.levels.size)
        return cls(mechanism=mechanism, counts=counts, seeded=seeded)

    def as_dict(self) -> JsonObject:
        """Plain values for JSON: all that another machine needs to add these counts to its own."""
        document: JsonObject = {
            **embedded(self.mechanism, seeded=self.seeded),
            "counts": self.counts.tolist(),
        }
        if self.seeded is not None:
            document["seeded"] = self.seeded
        provenance = self.provenance
        if provenance.runs:
            document["runs"] = sorted(provenance.runs)
        if provenance.sources:
            document["sources"] = sorted(map(list, provenance.sources))
        if provenance.memoised:
            document["memoised"] = provenance.memoised
        if provenance.several_rows:
            document["several_rows"] = True
        return document

    @classmethod
    def from_dict(cls, values: JsonObject) -> Self:
        """The counts that `as_dict` described; raises FileFormatError for anything else."""
        seeded = values.get("seeded")
        memoised = values.get("memoised", 0)
        several_rows = values.get("several_rows", False)
        runs = values.get("runs", [])
        sources = values.get("sources", [])
        well_formed = (
            values.keys() - _OPTIONAL_KEYS == {embedded_key(seeded), "counts"}
            and isinstance(seeded, bool | None)
            and type(memoised) is int
            and memoised >= 0
            and isinstance(several_rows, bool)
            and _is_texts(runs)
            and isinstance(sources, list)
            and all(_is_texts(pair) and len(pair) == 2 for pair in sources)
        )
        if not well_formed:
            raise FileFormatError("counts: need the keys that CodeCounts.as_dict writes")
        return cls(
            mechanism=extracted(values, seeded=seeded),
            counts=np.asarray(values["counts"]),
            seeded=seeded,
            provenance=Provenance(
                runs=frozenset(runs),
                sources=frozenset((source, run_name) for source, run_name in sources),
                memoised=memoised,
                several_rows=several_rows,
            ),
        )

    def _rows(self) -> list[JsonObject]:
        entries: list[JsonObject] = []
        levels = self.mechanism.levels.tolist()
        for code, reports in enumerate(self.counts.tolist()):
            entries.append(
                {
                    "code": code,
                    "level": levels[code],
                    "reports": reports,
                }
            )
        return entries

    def _told(self) -> JsonObject:
        mechanism = self.mechanism
        return {
            "reports": self.n,
            "of each code": self.counts.tolist(),
            "table": mechanism.name,
        }


def _is_texts(value: Any) -> bool:
    """Whether a value of JSON is a list of texts."""
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def save_counts(
    counts: CodeCounts,
    path: AnyPath,
    *,
    overwrite: bool = False,
) -> None:
    """Writes counts to a .json file, whole or not at all.

    Arguments:
        counts: to write.
        path: a .json file.
        overwrite: replace a file that is there.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> mz.collect.save_counts(counts, "counts.json")
        >>> bool((mz.collect.load_counts("counts.json").counts == counts.counts).all())
        True
    """
    if not os.fspath(path).endswith(".json"):
        raise ParameterError("save_counts", os.fspath(path), "name a .json file")
    document = json.dumps(
        {
            "format": COUNTS_FORMAT,
            "version": VERSION,
            **counts.as_dict(),
        }
    )
    write_text(
        path,
        document + "\n",
        overwrite=overwrite,
        parameter="save_counts",
    )


def load_counts(path: AnyPath) -> CodeCounts:
    """Reads what `save_counts` wrote; raises ParameterError for no file, FileFormatError for
    another one.

    Arguments:
        path: a .json file.

    Returns: the counts.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> codes = mechanism.privatize([4.0] * 10_000, rng=0)
        >>> counts = mz.collect.CodeCounts.from_codes(codes, mechanism=mechanism)
        >>> mz.collect.save_counts(counts, "counts.json")
        >>> mz.collect.load_counts("counts.json").n
        10000
    """
    file_name = os.fspath(path)
    if not Path(path).is_file():
        raise ParameterError("source", file_name, "no such file; check the path")
    document = read_object(path)
    if document.pop("format", None) != COUNTS_FORMAT or document.pop("version", 0) != VERSION:
        problem = f'not a file of counts ("{COUNTS_FORMAT}", version {VERSION})'
        remedy = "name reports, or counts that save_counts or --save-counts wrote"
        raise FileFormatError(f"{file_name}: {problem}; {remedy}")
    try:
        return CodeCounts.from_dict(document)
    except (FileFormatError, ParameterError) as error:
        raise FileFormatError(f"{file_name}: {error}") from None


def read_counts(
    source: AnyPath,
    *,
    column: str | None = None,
    mechanism: Mechanism | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CodeCounts:
    """Counts the reports of a file or data set, in constant memory.

    Arguments:
        source: a reports file (.parquet, .csv, .csv.gz, or "-" for CSV on standard input), a
            folder, or a glob.
        column: the field that holds the codes; None where the file describes exactly one.
        mechanism: for files of bare codes without a description; `column` is needed then. A file
            that does describe the field must agree.
        engine, address, threads: as in `Settings`. Counts add up exactly, whoever counts.
        progress: as in `Settings`.

    Returns: the counts, of all reports in the source.

    Raises:
        ParameterError: no such column, an empty one, a mechanism that is not the file's, files of
            different tables, or a folder whose run is unfinished.
        FileFormatError: a missing or edited description, invalid codes, or a folder that lacks
            parts.

    Example:
        >>> table = mz.families.randomized_response(lower=20, upper=700, epsilon=1.0)
        >>> with mz.datasets.flights() as path:
        ...     written = mz.collect.privatize(
        ...         path, "out.csv", column="air_time", mechanism=table, missing="drop"
        ...     )
        >>> mz.collect.read_counts("out.csv").n
        327346
    """
    settings = Settings(
        engine=engine,
        address=address,
        threads=threads,
        progress=progress,
    )
    count = partial(_count_block, column=column, mechanism=mechanism)
    return counts_of(source, count, column=column, settings=settings)


def _count_block(block: Block, *, column: str | None, mechanism: Mechanism | None) -> CodeCounts:
    """The counts of one block."""
    with open_reports(block, columns=[column], mechanism=mechanism) as reports:
        (code_table,) = reports.tables
        counts = np.zeros(code_table.levels.size, dtype=np.int64)
        for codes, _ in reports.batches():
            counts += np.bincount(codes[0], minlength=counts.size)
    return CodeCounts(
        mechanism=code_table,
        counts=counts,
        seeded=reports.seeded,
        provenance=reports.provenance,
    )


def seeded_together(flags: Iterable[bool | None]) -> bool | None:
    """Whether reports that are counted together were drawn from a seed: if any were; None where
    some do not say.
    """
    distinct = set(flags)
    for answer in (True, None):
        if answer in distinct:
            return answer
    return False


def claim_of(mechanism: Mechanism, *, seeded: bool | None) -> Claim | None:
    """The claim of one report; None where it was drawn from a seed, and is not private."""
    if seeded:
        return None
    return report_claim(mechanism)


def refuse_seeded(seeded: bool | None, *, allowed: bool) -> None:
    """Raises ParameterError for reports that are not private, unless they are allowed."""
    if seeded and not allowed:
        remedy = "they are NOT private; for tests, use allow_seeded=True (--allow-seeded)"
        raise ParameterError("counts", "reports drawn from a seed", remedy)
