"""Reports as counts per code: all that an estimate needs, and what any number of machines can add up.

Single reports, as reporters send them one by one, added into counts.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.columns import ColumnReader
from mezzotint.collect.folders import MANIFEST, STATE
from mezzotint.collect.listing import SourceFile, find_files
from mezzotint.collect.reports import Description, embedded, extracted, read_description, run_of
from mezzotint.collect.settings import Settings
from mezzotint.collect.source import Block, blocks_of, open_columns
from mezzotint.collect.workers import each_block
from mezzotint.core.errors import FileFormatError, ParameterError, wrong_kind
from mezzotint.core.files import AppendLog, read_object, write_text
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Json, JsonObject, Progress, Record, Records
from mezzotint.core.values import numbers, plain

COUNTS_FORMAT = "mezzotint-counts"
VERSION = 1
SAME_PEOPLE = (
    "reports of several runs are counted as if of different people; "
    "the intervals hold only if nobody is in two of them"
)
"""What is said of `CodeCounts.releases` > 1."""

_OF_A_RUN = re.compile("/| where ")
"""Behind the name of a run: its part, or the group that was taken out of it."""


@final
@dataclass(frozen=True, kw_only=True)
class CodeRow(Record):
    """The reports of one code."""

    code: int
    level: float
    reports: int


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CodeCounts:
    """How often each code was reported under one mechanism: a sufficient statistic of the reports.

    Arguments:
        mechanism: the table that made the reports.
        counts: (m,) integers >= 0, reports per code.
        seeded: whether any of the draws was reproducible and therefore NOT private; None where that is unknown, as for
            bare codes and for files written before they said so.
        runs: names of the reports counted, as far as their files say (`Description.run`): they are never added to
            themselves.
        sources: pairs of what they are about (`Description.source`) and the run that drew them: two runs about the same
            rows are never added either, as their errors agree.
        memoised: from how many files (or folders of one run) of memoised reports: they name no run, so that nobody
            can tell whether the same people are in two of them; estimates count them as different people, and say so.

    Raises:
        ParameterError: another shape, negative or non-integer counts.

    Guarantees: `a.merge(b)` of two parts equals the counts of the whole, exactly.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> counts = mz.collect.CodeCounts.from_codes(mechanism.privatize([4.0] * 10_000, rng=0), mechanism=mechanism)
        >>> counts.n, counts.counts.size
        (10000, 4)
    """

    mechanism: Mechanism
    counts: npt.NDArray[np.int64]
    seeded: bool | None = None
    runs: frozenset[str] = frozenset()
    sources: frozenset[tuple[str, str]] = frozenset()
    memoised: int = 0

    def __post_init__(self) -> None:
        raw = np.asarray(self.counts)
        if raw.dtype.kind not in "iu" or raw.shape != self.mechanism.levels.shape:
            need = f"need {self.mechanism.levels.size} integers, one per level"
            raise wrong_kind("counts", raw, "iu", need)
        if (raw < 0).any():
            raise ParameterError(
                "counts", int(raw.min()), "a count cannot be negative; count reports per code"
            )
        owned = raw.astype(np.int64, copy=True)
        owned.setflags(write=False)
        object.__setattr__(self, "counts", owned)

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.counts.sum())

    @property
    def run_names(self) -> frozenset[str]:
        """The runs that drew the reports, as far as their files say: of parts and groups, the run they are of."""
        return frozenset(_OF_A_RUN.split(run)[0] for run in self.runs)

    @property
    def releases(self) -> int:
        """From how many runs the reports are, as far as files say. People may be in several of them."""
        return len(self.run_names) + self.memoised

    def to_frame(self) -> Any:
        """A pandas data frame with a row per code: the code, what it stands for, and its reports.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return self._table().to_frame()

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return self._table()._repr_html_()

    def _table(self) -> Records[CodeRow]:
        rows = zip(self.mechanism.levels.tolist(), self.counts.tolist(), strict=True)
        return Records(
            CodeRow(code=code, level=level, reports=reports)
            for code, (level, reports) in enumerate(rows)
        )

    @classmethod
    def from_codes(
        cls, codes: npt.ArrayLike, *, mechanism: Mechanism, seeded: bool | None = None
    ) -> Self:
        """Counts the codes of an array of any shape; raises ParameterError for a code that names no level."""
        array = mechanism.check_codes(codes)
        size = mechanism.levels.size
        return cls(
            mechanism=mechanism, counts=np.bincount(array.ravel(), minlength=size), seeded=seeded
        )

    def merge(self, other: Self) -> Self:
        """The counts of both; raises ParameterError when the mechanisms differ, or reports would count twice."""
        if other.mechanism != self.mechanism:
            raise ParameterError(
                "mechanism",
                other.mechanism.name,
                "reports of different tables cannot be added; estimate them apart",
            )
        twice = sorted(self.runs & other.runs)
        if twice:
            remedy = "given twice; its reports would count twice, and intervals would be too narrow; give each run once"
            raise ParameterError("counts", f"run {twice[0]}", remedy)
        refuse_two_runs(self.sources | other.sources, parameter="counts")
        return replace(
            self,
            counts=self.counts + other.counts,
            seeded=seeded_together(self.seeded, other.seeded),
            runs=self.runs | other.runs,
            sources=self.sources | other.sources,
            memoised=self.memoised + other.memoised,
        )

    def as_dict(self) -> JsonObject:
        """Plain values for JSON: all that another machine needs to add these counts to its own."""
        origin: JsonObject = {} if self.seeded is None else {"seeded": self.seeded}
        if self.runs:
            origin["runs"] = sorted(self.runs)
        if self.sources:
            origin["sources"] = sorted(map(list, self.sources))
        if self.memoised:
            origin["memoised"] = self.memoised
        return {
            **embedded(self.mechanism, seeded=self.seeded),
            "counts": self.counts.tolist(),
            **origin,
        }

    @classmethod
    def from_dict(cls, values: JsonObject) -> Self:
        """The counts that `as_dict` described; raises FileFormatError for anything else."""
        seeded, runs, sources = (
            values.get("seeded"),
            values.get("runs", []),
            values.get("sources", []),
        )
        memoised = values.get("memoised", 0)
        keys = {"table" if seeded else "mechanism", "counts"}
        pairs = isinstance(sources, list) and all(
            isinstance(entry, list) and len(entry) == 2 for entry in sources
        )
        named = (
            [*runs, *(name for entry in sources for name in entry)]
            if pairs and isinstance(runs, list)
            else [None]
        )
        if (
            set(values) - {"seeded", "runs", "sources", "memoised"} != keys
            or type(memoised) is not int
            or memoised < 0
            or not (seeded is None or isinstance(seeded, bool))
            or not all(isinstance(name, str) for name in named)
        ):
            raise FileFormatError("counts: need the keys that CodeCounts.as_dict writes")
        return cls(
            mechanism=extracted(values, seeded=seeded),
            counts=np.asarray(values["counts"]),
            seeded=seeded,
            runs=frozenset(runs),
            sources=frozenset((source, run) for source, run in sources),
            memoised=memoised,
        )


def save_counts(
    counts: CodeCounts, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Writes counts to a .json file, whole or not at all.

    Arguments:
        counts: to write.
        path: a .json file.
        overwrite: replace a file that is there.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> counts = mz.collect.CodeCounts.from_codes(mechanism.privatize([4.0] * 10_000, rng=0), mechanism=mechanism)
        >>> mz.collect.save_counts(counts, "counts.json")
        >>> bool((mz.collect.load_counts("counts.json").counts == counts.counts).all())
        True
    """
    if not os.fspath(path).endswith(".json"):
        raise ParameterError("save_counts", os.fspath(path), "name a .json file")
    text = json.dumps({"format": COUNTS_FORMAT, "version": VERSION, **counts.as_dict()})
    write_text(path, text + "\n", overwrite=overwrite, parameter="save_counts")


def load_counts(path: str | os.PathLike[str]) -> CodeCounts:
    """Reads what `save_counts` wrote; raises ParameterError for no file, FileFormatError for another one.

    Arguments:
        path: a .json file.

    Returns: the counts.

    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
        >>> counts = mz.collect.CodeCounts.from_codes(mechanism.privatize([4.0] * 10_000, rng=0), mechanism=mechanism)
        >>> mz.collect.save_counts(counts, "counts.json")
        >>> mz.collect.load_counts("counts.json").n
        10000
    """
    if not Path(path).is_file():
        raise ParameterError("source", os.fspath(path), "no such file; check the path")
    values = read_object(path)
    if values.pop("format", None) != COUNTS_FORMAT or values.pop("version", 0) != VERSION:
        raise FileFormatError(
            f'{os.fspath(path)}: not a file of counts ("{COUNTS_FORMAT}", version {VERSION}); name reports, or counts '
            "that save_counts or --save-counts wrote"
        )
    try:
        return CodeCounts.from_dict(values)
    except FileFormatError as error:
        raise FileFormatError(f"{os.fspath(path)}: {error}") from None


def read_counts(
    source: str | os.PathLike[str],
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
        source: a reports file (.parquet, .csv, .csv.gz, or "-" for CSV on standard input), a folder, or a glob.
        column: the field that holds the codes; None where the file describes exactly one.
        mechanism: for files of bare codes without a description; `column` is needed then. A file that does
            describe the field must agree.
        engine, address, threads: as in `Settings`. Counts add up exactly, whoever counts.
        progress: as in `Settings`.

    Returns: the counts, of all reports in the source.

    Raises:
        ParameterError: no such column, an empty one, a mechanism that is not the file's, files of different tables, or
            a folder whose run is unfinished.
        FileFormatError: a missing or edited description, invalid codes, or a folder that lacks parts.

    Example:
        >>> table = mz.families.randomized_response(lower=20, upper=700, epsilon=1.0)
        >>> with mz.datasets.flights() as path:
        ...     written = mz.collect.privatize(path, "out.csv", column="air_time", mechanism=table, missing="drop")
        >>> mz.collect.read_counts("out.csv").n
        327346
    """
    chosen = Settings(engine=engine, address=address, threads=threads, progress=progress)
    counter = BlockCounter(column=column, mechanism=mechanism)
    total, runs, about = total_of(
        source, counter.count, CodeCounts.merge, column=column, chosen=chosen
    )
    # One run's folder is one release, in however many parts.
    memoised = total.memoised if expected_reports(source) is None else min(total.memoised, 1)
    return replace(total, runs=runs, sources=about, memoised=memoised)


T = TypeVar("T")


def total_of(
    source: str | os.PathLike[str],
    count: Callable[[Block], T],
    merge: Callable[[T, T], T],
    *,
    column: str | None,
    rows: Callable[[T], int] = attrgetter("n"),
    chosen: Settings = Settings(threads=1),  # noqa: B008  # it is frozen
) -> tuple[T, frozenset[str], frozenset[tuple[str, str]]]:
    """The counts of all blocks of a source merged, and its `runs_of`.

    Raises:
        ParameterError: a source without reports; two of its files hold the same ones, or reports about the same rows.
        FileFormatError: a folder that lacks some of them.
    """
    expected, files = expected_reports(source), find_files(source)
    if files[0].path == "-":
        chosen = replace(chosen, threads=1)
    blocks, total, done = blocks_of(files), None, 0
    with closing(each_block(count, blocks, chosen)) as parts:
        for i, counted in enumerate(parts, start=1):
            total, done = counted if total is None else merge(total, counted), done + rows(counted)
            chosen.report_progress(done, share=i / len(blocks))
    if total is None or not done:
        raise ParameterError(
            "column", column or "codes", f"is empty: {os.fspath(source)} holds no reports"
        )
    if expected is not None and done != expected:
        raise FileFormatError(
            f"{os.fspath(source)}: its parts hold {done} reports, its manifest says {expected}"
        )
    return total, *runs_of(files)


def seeded_together(*each: bool | None) -> bool | None:
    """Whether reports that are counted together were drawn from a seed: if any were; None where some do not say."""
    return True if True in each else None if None in each else False


def refuse_seeded(seeded: bool | None, *, allowed: bool) -> None:
    """Raises ParameterError for reports that are not private, unless they are allowed."""
    if seeded and not allowed:
        remedy = "they are NOT private; for tests, use allow_seeded=True (--allow-seeded)"
        raise ParameterError("counts", "reports drawn from a seed", remedy)


def runs_of(files: Sequence[SourceFile]) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """The `runs` and the `sources` of the reports in files, as far as they say; raises ParameterError for any twice."""
    file_of_run: dict[str, str] = {}
    sources: set[tuple[str, str]] = set()
    for file in files:
        if file.path == "-":
            continue
        with open_columns(file.path) as reader:
            run, source = run_of(reader.description)
        if run is None:
            continue
        if file_of_run.setdefault(run, file.name) != file.name:
            remedy = f"{file_of_run[run]} and {file.name} hold the same reports, which would count twice; give one of them"
            raise ParameterError("source", run, remedy)
        if source is not None:
            sources.add((source, run.partition("/")[0]))
    refuse_two_runs(sources, parameter="source")
    return frozenset(file_of_run), frozenset(sources)


def refuse_two_runs(sources: Collection[tuple[str, str]], *, parameter: str) -> None:
    """Raises ParameterError where one source, by the pairs' first, was privatized by several runs, by their second."""
    first: dict[str, str] = {}
    for source, run in sorted(sources):
        if first.setdefault(source, run) != run:
            remedy = "privatized the same rows twice; together their intervals would be too narrow; estimate each run alone"
            raise ParameterError(parameter, f"runs {first[source]} and {run}", remedy)


def expected_reports(source: str | os.PathLike[str]) -> int | None:
    """How many reports a folder that we made must hold."""
    folder = Path(source)
    if not folder.is_dir():
        return None
    if (folder / MANIFEST).is_file():
        try:
            return int(read_object(folder / MANIFEST)["reports"])
        except (ValueError, TypeError, KeyError):
            raise FileFormatError(
                f"{folder / MANIFEST}: is damaged; the parts beside it may still be whole"
            ) from None
    if (folder / STATE).is_file():
        remedy = "holds an unfinished run; continue it with: mezzotint privatize --resume"
        raise ParameterError("source", str(folder), remedy)
    return None


@final
@dataclass(frozen=True, kw_only=True)
class BlockCounter:
    """The work order of a process that counts reports: the arguments of `read_counts`."""

    column: str | None
    mechanism: Mechanism | None

    def count(self, block: Block) -> CodeCounts:
        """The counts of one block."""
        with open_columns(block.file.path) as reader:
            field, described = self.field(reader)
            table, seeded = described.tables[field], described.seeded
            total, rows = np.zeros(table.levels.size, dtype=np.int64), block.offset
            for batch in reader.batches(numeric=[field], groups=block.groups):
                codes = codes_in(batch.column(0), table.levels.size, field, rows)
                total += np.bincount(codes, minlength=table.levels.size)
                rows += batch.num_rows
        first = block.groups is None or block.groups[0] == 0  # every file counts once
        return CodeCounts(
            mechanism=table,
            counts=total,
            seeded=seeded,
            memoised=int(first and bool(described.memoised)),
        )

    def field(self, reader: ColumnReader) -> tuple[str, Description]:
        """The field of codes, and a description in which its table stands."""
        described = Description(tables={}, seeded=None, memoised=None)
        if reader.description is not None or self.mechanism is None:
            described = read_description(reader.description, name=reader.name)
        if self.column is None and len(described.tables) != 1:
            listed = ", ".join(described.tables) or "none described"
            raise ParameterError(
                "column", "none given", f"name the field that holds the codes; candidates: {listed}"
            )
        field = next(iter(described.tables)) if self.column is None else self.column
        table = described.tables.get(field, self.mechanism)
        if table is None:
            listed, meant = ", ".join(described.tables), f"{field}_code"
            listed += f"; did you mean {meant}?" if meant in described.tables else ""
            raise ParameterError(
                "column", field, f"no such column of codes; the file has: {listed}"
            )
        if self.mechanism is not None and self.mechanism != table:
            raise ParameterError(
                "mechanism",
                self.mechanism.name,
                f"{reader.name} was made by another table: {table!r}",
            )
        reader.require(field)
        return field, replace(described, tables={**described.tables, field: table})


def codes_in(array: pa.Array, size: int, field: str, before: int) -> npt.NDArray[np.integer]:
    """The codes of a column of reports, checked to be below `size`; `before` rows of its file stand before it."""
    if array.type in (pa.uint8(), pa.uint16()) and not array.null_count:
        codes = plain(array)
        if codes.size == 0 or int(codes.max()) < size:
            return codes
    values, present = numbers(array)
    if present is not None:
        row = before + int(np.argmin(present)) + 1
        raise FileFormatError(
            f"{field}: report {row} is missing; a reports file has one code per row"
        )
    bad = (values < 0) | (values >= size) | (values != np.floor(values))
    if bad.any():
        row = before + int(np.argmax(bad)) + 1
        value = float(values[np.argmax(bad)])
        raise FileFormatError(
            f"{field}: report {row} is {value:g}; codes are integers from 0 to {size - 1}"
        )
    return values.astype(np.int64)


FORMAT = "mezzotint-report"
LOG_VERSION = 1
MAX_BYTES = 1024
"""No report is longer."""

LOG_FORMAT = "mezzotint-report-log"


@final
class Counter:
    """Adds single reports (an HTTP body, a Kafka value, a line of JSON) into counts that `estimate` reads.

    Arguments:
        mechanisms: the tables that reports may come from; reports name theirs by its hash.
        log: a file in which every accepted report is noted; a counter of the same log and tables goes on where it
            stopped, and any number of processes may share it. None keeps counts in memory.

    Raises:
        ParameterError: no mechanism, or one given twice.
        FileFormatError, StorageError: a log of other tables, a damaged one, or one that cannot be written.

    Guarantees:
        With a log a report is on disk when `add` returns, and is counted exactly once.
        Nothing but table and code is kept: neither when a report came nor from whom.
        The counts of one log carry one run's name, so that saved counts of it are never added to each other.

    Edge cases: whether a report was drawn as the table says, or drawn from a seed, shows in no single report: `seeded`
        is None in the counts. Whoever sends twice counts twice: admit each reporter once, by what you know of them.

    Example:
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> counter = mz.collect.Counter(mechanism)
        >>> report = {"format": "mezzotint-report", "version": 1, "sha256": mechanism.sha256, "code": 1}
        >>> counter.add(json.dumps(report))
        >>> counter.counts().n
        1
    """

    def __init__(self, *mechanisms: Mechanism, log: str | os.PathLike[str] | None = None) -> None:
        self._tables = {mechanism.sha256: mechanism for mechanism in mechanisms}
        if not mechanisms or len(self._tables) != len(mechanisms):
            raise ParameterError(
                "mechanisms", f"{len(mechanisms)} given", "give at least one table, each once"
            )
        self._counts = {
            name: np.zeros(table.levels.size, dtype=np.int64)
            for name, table in self._tables.items()
        }
        self._run: str | None = None
        header = {"format": LOG_FORMAT, "version": LOG_VERSION, "tables": sorted(self._tables)}
        self._log = AppendLog(log, header=header, take=self._take, what="log of reports")
        with self._log.transaction() as append:
            if self._run is None:
                append({"run": secrets.token_hex(16)})

    def add(self, *reports: bytes | str) -> None:
        """Counts reports, all or none of them.

        Arguments:
            reports: each the JSON object {"format": "mezzotint-report", "version": 1, "sha256", "code"}.

        Raises:
            FileFormatError: something that is not a report, or one of another table. What it holds is not repeated.
            StorageError: the log cannot be written.
        """
        lines = [self._line(report) for report in reports]
        with self._log.transaction() as append:
            append(*lines)

    def counts(self, mechanism: Mechanism | None = None) -> CodeCounts:
        """The counts so far, with those of other processes on the same log.

        Arguments:
            mechanism: of which table; None where there is one only.
        """
        if mechanism is None and len(self._tables) > 1:
            raise ParameterError(
                "mechanism", "none given", f"name one of the {len(self._tables)} tables"
            )
        table = next(iter(self._tables.values())) if mechanism is None else mechanism
        if table.sha256 not in self._tables:
            raise ParameterError(
                "mechanism", table.name, "none of its reports is counted here; name another"
            )
        self._log.refresh()
        runs = frozenset([cast(str, self._run)])
        return CodeCounts(mechanism=table, counts=self._counts[table.sha256], runs=runs)

    def _line(self, report: bytes | str) -> JsonObject:
        try:
            document: Json = json.loads(report) if len(report) <= MAX_BYTES else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or set(document) != {
            "format",
            "version",
            "sha256",
            "code",
        }:
            raise FileFormatError(
                "report: not the JSON object that reporters send (docs/file-format.md)"
            )
        if (
            document["format"] != FORMAT
            or type(document["version"]) is not int
            or document["version"] != LOG_VERSION
        ):
            raise FileFormatError(f'report: not of format "{FORMAT}", version {LOG_VERSION}')
        table = (
            self._tables.get(document["sha256"]) if isinstance(document["sha256"], str) else None
        )
        if table is None:
            raise FileFormatError(
                "report: of a table that is not collected here; let reporters fetch it again"
            )
        code = document["code"]
        if (
            type(code) is not int
            or not 0 <= code < table.levels.size
            or not table.weights[:, code].any()
        ):
            raise FileFormatError("report: its code is not in its table")
        return {"sha256": table.sha256, "code": code}

    def _take(self, line: JsonObject) -> None:
        if "run" in line:
            self._run = str(line["run"])
        else:
            self._counts[line["sha256"]][line["code"]] += 1
