"""Batches of values in, batches of codes out: the middle of `Source -> Encoder -> Sink`."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.dates import CALENDAR_PARTS, CLOCK_PARTS, output_name, parse_derived
from mezzotint.collect.memo import Memo
from mezzotint.collect.reports import code_field, hash_field
from mezzotint.collect.source import Batch, Wanted
from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.sampler import BLOCK, ElementWords, fresh_key, key_from
from mezzotint.core.table import MISSING
from mezzotint.core.types import Codes, Seed, Words
from mezzotint.core.values import Inputs, arrow, inputs, stripped, stripped_type

Present = npt.NDArray[np.bool_]
Values = npt.NDArray[np.floating]

BYTE_CODES = 256
"""Tables of at most so many levels have codes of one byte."""

RUN_DIGITS = 32
"""Hexadecimal digits of the name of a run."""


class Hashing(Protocol):
    """The parts of a `families.HashedDomain` that a run needs, each described there."""

    @property
    def categories(self) -> tuple[str, ...]: ...

    @property
    def mechanism(self) -> Mechanism: ...

    @property
    def hashes(self) -> int: ...

    @property
    def chances(self) -> tuple[float, float]: ...

    def cell(
        self, positions: npt.NDArray[np.int64], hashes: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]: ...

    def supports(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...


@final
@dataclass(kw_only=True)
class Tally:
    """Running counts of one run: rows read, rows written, and clipped inputs by column. Raw data's: not private."""

    rows: int = 0
    reports: int = 0
    beyond: int = 0
    below: Counter[str] = field(default_factory=Counter)
    above: Counter[str] = field(default_factory=Counter)
    unlisted: Counter[str] = field(default_factory=Counter)
    respelled: Counter[str] = field(default_factory=Counter)

    @property
    def missing(self) -> int:
        """Rows left out as a value was missing."""
        return self.rows - self.reports - self.beyond

    def empty_error(self, column: str, where: str) -> ParameterError:
        """The error to raise where no report was made."""
        reason = f"all {self.missing} values are missing" if self.missing else "it has no rows"
        return ParameterError(
            "column", column, f"is empty: {reason} in {where}; name another column or source"
        )

    def clip(self, column: str, below: int, above: int) -> None:
        """Adds the clipped inputs of one batch."""
        self.below[column] += below
        self.above[column] += above

    def spell(self, column: str, listed: Inputs) -> None:
        """Adds the values of one batch that no category names, and those that name one in another spelling."""
        self.unlisted[column] += listed.unlisted
        self.respelled[column] += listed.respelled

    def add(self, other: Tally) -> None:
        """Adds the counts of another part of the run."""
        self.rows += other.rows
        self.reports += other.reports
        self.beyond += other.beyond
        for name in ("below", "above", "unlisted", "respelled"):
            getattr(self, name).update(getattr(other, name))

    def as_dict(self) -> JsonObject:
        """Plain values for a file's metadata."""
        clipped: JsonObject = {"below": self.below, "above": self.above}
        if len(self.below) == 1:
            clipped = {name: counts.total() for name, counts in clipped.items()}
        return {**clipped, "missing": self.missing, "rows": self.rows}


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Encoder:
    """Turns values into codes; what is not said here is said by `Settings`.

    Arguments:
        mechanisms: column -> its table, in the order of the output.
        keys: one keystream key of 32 bytes per column. Row i of the run takes word i of each, unless there is a `memo`.
        hashed: column of a large domain -> its hashes; the column's table is that of the cells.
        seeded: True when the keys are reproducible and the reports therefore NOT private.

    Raises:
        ParameterError: no columns, an unknown option, or a kept column that would undo the privacy.
    """

    mechanisms: Mapping[str, Mechanism]
    keys: tuple[bytes, ...]
    keep: tuple[str, ...] = ()
    missing: str = "error"
    on_out_of_range: str = "clip"
    memo: Memo | None = None
    hashed: Mapping[str, Hashing] = field(default_factory=dict)
    seeded: bool = False

    @classmethod
    def of(
        cls,
        mechanisms: Mapping[str, Mechanism | Hashing],
        *,
        keep: Sequence[str] = (),
        missing: Literal["error", "drop"] = "error",
        on_out_of_range: Literal["clip", "error"] = "clip",
        memo: Memo | None = None,
        rng: Seed = None,
    ) -> Self:
        """The encoder of a new run, with keys of its own, from the operating system unless there is an `rng`."""
        generator = rng
        if isinstance(rng, (int, np.integer)):
            generator = np.random.default_rng(check_count("rng", rng, least=0))
        tables: dict[str, Mechanism] = {}
        hashed: dict[str, Hashing] = {}
        for column, mechanism in mechanisms.items():
            if isinstance(mechanism, Mechanism):
                tables[column] = mechanism
            else:
                hashed[column] = mechanism
                tables[column] = mechanism.mechanism
        return cls(
            mechanisms=tables,
            hashed=hashed,
            keys=tuple(key_from(generator) for _ in tables),
            keep=tuple(keep),
            missing=missing,
            on_out_of_range=on_out_of_range,
            memo=memo,
            seeded=rng is not None,
        )

    def __post_init__(self) -> None:
        if not self.mechanisms:
            raise ParameterError("mechanisms", "none", "name at least one column and its mechanism")
        check_choice("missing", self.missing, ("error", "drop"))
        check_choice("on_out_of_range", self.on_out_of_range, ("clip", "error"))
        for column in self.mechanisms:
            self._refuse_beside(column)
        fields = [code_field(column) for column in self.mechanisms]
        if len(set(fields)) != len(fields):
            remedy = "two columns take one field of the reports; rename one"
            raise ParameterError("column", ", ".join(self.mechanisms), remedy)
        if len({output_name(column) for column in self.keep}) != len(self.keep):
            raise ParameterError("keep", ", ".join(self.keep), "names a column twice; name it once")
        if self.memo is not None:
            self._check_memo(self.memo.users)

    def _refuse_beside(self, column: str) -> None:
        """Raises ParameterError for kept columns that would undo the privacy of a column, or take its field's name."""
        if column in self.keep:
            remedy = "keeping the raw column would reveal what its reports protect; leave it out"
            raise ParameterError("keep", column, remedy)
        private = parse_derived(column)
        for kept_column in self.keep:
            if output_name(kept_column) in (code_field(column), hash_field(column)):
                remedy = "the reports take this name; rename that column first"
                raise ParameterError("keep", kept_column, remedy)
            public = parse_derived(kept_column)
            stored = kept_column if public is None else public.column
            if private is None or stored != private.column:
                continue
            harmless = public is not None and public.part in CALENDAR_PARTS
            if not (harmless and private.part in CLOCK_PARTS):
                remedy = f"would reveal {column}, which its reports protect; leave it out"
                raise ParameterError("keep", kept_column, remedy)

    def _check_memo(self, users: str) -> None:
        if self.hashed:
            remedy = "hashed reports are not memoised: every report draws a new hash; leave out one of them"
            raise ParameterError("memo", users, remedy)
        if users in self.mechanisms:
            remedy = "is privatized itself; name the column of user ids"
            raise ParameterError("users", users, remedy)
        if self.seeded:
            remedy = "memoised reports take their randomness from the memo key; leave it out"
            raise ParameterError("rng", "a seed", remedy)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to privatize."""
        return tuple(self.mechanisms)

    @property
    def wanted(self) -> Wanted:
        """The columns to read."""
        others = dict.fromkeys(self.keep, "keep")
        if self.memo is not None:
            others.setdefault(self.memo.users, "users")
        labels = [name for name, table in self.mechanisms.items() if table.categories is not None]
        tables = self.hashed or self.mechanisms
        return Wanted(
            columns=self.columns,
            labels=tuple(labels),
            others=others,
            reports_missing=any(MISSING in (table.categories or ()) for table in tables.values()),
        )

    def schema(self, kinds: Mapping[str, pa.DataType]) -> pa.Schema:
        """Arrow schema of the output, given the types of the other columns."""
        fields: list[pa.Field] = []
        for column, mechanism in self.mechanisms.items():
            narrow = mechanism.levels.size <= BYTE_CODES
            fields.append(pa.field(code_field(column), pa.uint8() if narrow else pa.uint16()))
        fields += [pa.field(hash_field(column), pa.uint32()) for column in self.hashed]
        for column in self.keep:
            fields.append(pa.field(output_name(column), stripped_type(kinds[column])))
        return pa.schema(fields)

    def for_block(self, index: int) -> Encoder:
        """The encoder of one block by itself, whose rows count from 0.

        Guarantees: without a seed the keys are the operating system's, drawn here and now: no two calls share one, in
            whatever process they happen. With a seed they follow from its keys and the index alone.
        """
        if not self.seeded:
            return replace(self, keys=tuple(fresh_key() for _ in self.keys))
        purpose = b"mezzotint block %d " % index
        keys = tuple(hashlib.sha256(purpose + key).digest() for key in self.keys)
        return replace(self, keys=keys)

    def without_keys(self) -> Encoder:
        """The same for other processes, whose blocks draw keys of their own; a seed's keys stay."""
        return self if self.seeded else replace(self, keys=(b"",) * len(self.keys))

    def new_run(self) -> str:
        """A name for one run: of a seed's runs always the same, as their reports are; else a fresh one."""
        if not self.seeded:
            return secrets.token_hex(RUN_DIGITS // 2)
        return hashlib.sha256(b"mezzotint run" + b"".join(self.keys)).hexdigest()[:RUN_DIGITS]

    def check(self, batch: Batch) -> None:
        """Refuses what `encode` refuses, and draws nothing.

        Raises:
            ParameterError: as `encode`.
        """
        listed, present = self._listed(batch)
        if self.on_out_of_range != "error":
            return
        for column, column_inputs in listed.items():
            values = _values_of(column_inputs, present)
            _refuse_outside(values, present, column, self.mechanisms[column], batch)

    def encode(self, batch: Batch, tally: Tally) -> pa.RecordBatch:
        """The batch with codes in place of the values, counted in the tally.

        Raises:
            ParameterError: a missing value under "error", or a value out of range under "error", naming its row.
        """
        listed, present = self._listed(batch)
        if batch.selected is not None:
            tally.beyond += batch.selected.size - int(batch.selected.sum())
        codes: list[pa.Array] = []
        hashes: list[pa.Array] = []
        for key, (column, column_inputs) in zip(self.keys, listed.items(), strict=True):
            tally.spell(column, column_inputs)
            values = _values_of(column_inputs, present)
            if column in self.hashed:
                domain = self.hashed[column]
                row_hashes = _drawn_hashes(key, domain.hashes, batch, present)
                values = domain.cell(values.astype(np.int64), row_hashes).astype(np.float64)
                hashes.append(arrow(row_hashes.astype(np.uint32)))
            codes.append(self._codes(column, key, values, batch, present, tally))
        others = [stripped(batch.values.column(name)) for name in self.keep]
        if present is not None:
            mask = arrow(present)
            others = [array.filter(mask) for array in others]
        tally.rows += batch.rows
        tally.reports += len(codes[0])
        names = [*map(code_field, self.columns), *map(hash_field, self.hashed)]
        names += map(output_name, self.keep)
        return pa.RecordBatch.from_arrays([*codes, *hashes, *others], names=names)

    def _listed(self, batch: Batch) -> tuple[dict[str, Inputs], Present | None]:
        """The inputs of each column, and the rows that become reports; None for all."""
        listed = {column: self._inputs(batch, column) for column in self.mechanisms}
        present = self._present(batch, listed)
        if batch.selected is not None:
            present = batch.selected if present is None else present & batch.selected
        return listed, present

    def _inputs(self, batch: Batch, column: str) -> Inputs:
        """The inputs of one column of a batch."""
        table = self.hashed.get(column, self.mechanisms[column])
        return inputs(
            batch.values.column(column),
            table.categories,
            markers=batch.markers,
            parameter="column",
            name=column,
            row=batch.row_words,
        )

    def _present(self, batch: Batch, listed: Mapping[str, Inputs]) -> Present | None:
        """A mask of the rows that have all their values; None when all do."""
        masks = {column: column_inputs.present for column, column_inputs in listed.items()}
        incomplete = {column: mask for column, mask in masks.items() if mask is not None}
        if not incomplete:
            return None
        if self.missing == "error":
            column, mask = next(iter(incomplete.items()))
            row = batch.row_words(int(np.argmin(mask)))
            remedy = 'missing="drop" (--missing drop) leaves such rows out'
            raise ParameterError("column", column, f"{row} is missing; {remedy}")
        first, *others = incomplete.values()
        for mask in others:
            first = first & mask
        return first

    def _codes(
        self,
        column: str,
        key: bytes,
        values: Values,
        batch: Batch,
        present: Present | None,
        tally: Tally,
    ) -> pa.Array:
        """The codes of the present values of one column."""
        mechanism = self.mechanisms[column]
        if self.on_out_of_range == "error":
            _refuse_outside(values, present, column, mechanism, batch)
        if self.memo is None:
            words = keystream_words(key, batch.first)
        else:  # one value, one report, whatever type a file stores it in
            values = values.astype(np.float64)
            users = batch.values.column(self.memo.users)
            words = self.memo.words(users, values, present, column, mechanism)
        codes, below, above = draw(mechanism, values, words=words, rows=batch.rows, present=present)
        tally.clip(column, below, above)
        return arrow(codes)


def _values_of(found: Inputs, present: Present | None) -> Values:
    """The values of the rows that become reports, of those that are present in their column."""
    if present is None or present is found.present:
        return found.values
    return found.values[present if found.present is None else present[found.present]]


def _drawn_hashes(
    key: bytes, hashes: int, batch: Batch, present: Present | None
) -> npt.NDArray[np.int64]:
    """The hash of each present row: from a keystream of its own, and from nothing in the row."""
    fill = keystream_words(hashlib.sha256(b"mezzotint hashes" + key).digest(), batch.first)
    words = np.empty(batch.rows, dtype=np.uint64)
    for begin in range(0, batch.rows, BLOCK):
        fill(words[begin : begin + BLOCK])
    uniforms = (words >> np.uint64(11)) * 2.0**-53  # the 53 bits that a float64 holds
    row_hashes = (uniforms * hashes).astype(np.int64)
    return row_hashes if present is None else row_hashes[present]


NextWords = Callable[[Words], None]
"""Overwrites its argument, at most BLOCK words, with the next words of a batch: one per row, missing or not."""


def keystream_words(key: bytes, first: int) -> NextWords:
    """The words of the rows from number `first` on, under one key."""
    return ElementWords(key, first).fill


def draw(
    mechanism: Mechanism,
    values: Values,
    *,
    words: NextWords,
    rows: int,
    present: Present | None = None,
) -> tuple[Codes, int, int]:
    """The codes of one column of a batch of rows, and the inputs clipped below and above.

    Arguments:
        values: float32 or float64 without NaN, one per present row.
        present: (rows,) which rows have a value; None for all.

    Guarantees: however rows are cut into batches, a row gets the same code from the same word.
    """
    from mezzotint.core.kernels import compile_lookup  # heavy: numba

    lookup = compile_lookup(mechanism, values.dtype)
    codes = np.empty(values.size, dtype=lookup.code_dtype)
    buffer = np.empty(min(BLOCK, max(1, rows)), dtype=np.uint64)
    below = above = position = 0
    for begin in range(0, rows, BLOCK):
        block_words = buffer[: min(BLOCK, rows - begin)]
        words(block_words)
        if present is not None:
            block_words = block_words[present[begin : begin + block_words.size]]
        block = slice(position, position + block_words.size)
        under, over, _ = lookup.draw(values[block], block_words, codes[block])
        below, above, position = below + under, above + over, position + block_words.size
    return codes, int(below), int(above)


def _refuse_outside(
    values: Values, present: Present | None, column: str, mechanism: Mechanism, batch: Batch
) -> None:
    outside = np.flatnonzero((values < mechanism.lower) | (values > mechanism.upper))
    if not outside.size:
        return
    row = int(outside[0])
    if present is not None:
        row = int(np.flatnonzero(present)[row])
    limits = f"[{mechanism.lower:g}, {mechanism.upper:g}]"
    remedy = f"lies outside {limits}; widen the mechanism's range or clip"
    raise ParameterError("column", column, f"{batch.row_words(row)} {remedy}")
