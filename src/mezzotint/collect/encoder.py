"""Batches of values in, batches of codes out: the middle of `Source -> Encoder -> Sink`."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Self, final

import numpy as np
import pyarrow as pa

from mezzotint.collect.dates import (
    CALENDAR_PARTS,
    CLOCK_PARTS,
    output_name,
    parse_derived,
)
from mezzotint.collect.memo import Memo, memo_words
from mezzotint.collect.reports import code_field, hash_field
from mezzotint.collect.settings import Settings
from mezzotint.collect.source import Batch, Wanted
from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import (
    ElementWords,
    fresh_key,
    key_from,
)
from mezzotint.core.table import MISSING
from mezzotint.core.types import BoolArray, Codes, Floats, IntArray, Words
from mezzotint.core.values import (
    Inputs,
    arrow,
    inputs,
    stripped,
    stripped_type,
)

if TYPE_CHECKING:
    from mezzotint.families.hashing import HashedDomain

BYTE_CODES = 256
"""Tables of at most so many levels have codes of one byte."""


RUN_DIGITS = 32
"""Hexadecimal digits of the name of a run."""


COUNTED = ("below", "above", "unlisted", "respelled")
"""Values of a column that are counted: outside the range on either side, in no category, and in a
category by another spelling.
"""


@final
@dataclass(kw_only=True)
class Tally:
    """Running counts of one run: rows read, rows written, and values by column. Raw data's: not
    private.

    Arguments:
        rows, reports: read, and written.
        unasked: rows of people whom the lot of the run asks another question.
        beyond: other rows of people who have more of them than the run keeps.
        columns: column and one of `COUNTED` -> how many of its values are that.
    """

    rows: int = 0
    reports: int = 0
    unasked: int = 0
    beyond: int = 0
    columns: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def missing(self) -> int:
        """Rows left out as a value was missing."""
        return self.rows - self.reports - self.unasked - self.beyond

    def empty_error(self, column: str, where: str) -> ParameterError:
        """The error to raise where no report was made."""
        reason = "it has no rows"
        if self.missing:
            reason = f"all {self.missing} values are missing"
        elif self.unasked:
            reason = f"the lot asks another question of the people of all {self.unasked} rows"
        remedy = f"is empty: {reason} in {where}; name another column or source"
        return ParameterError("column", column, remedy)

    def note(self, column: str, **values: int) -> None:
        """Adds values of one batch."""
        for kind, count in values.items():
            self.columns[column, kind] += count

    def add(self, other: Tally) -> None:
        """Adds the counts of another part of the run."""
        self.rows += other.rows
        self.reports += other.reports
        self.unasked += other.unasked
        self.beyond += other.beyond
        self.columns.update(other.columns)


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Encoder:
    """Turns values into codes; what is not said here is said by `Settings`.

    Arguments:
        mechanisms: column -> its table, in the order of the output.
        keys: one keystream key of 32 bytes per column. Row i of the run takes word i of each,
            unless there is a `memo`.
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
    hashed: Mapping[str, HashedDomain] = field(default_factory=dict)
    seeded: bool = False

    @classmethod
    def of(
        cls,
        mechanisms: Mapping[str, Mechanism | HashedDomain],
        settings: Settings,
    ) -> Self:
        """The encoder of a new run, with keys of its own, from the operating system unless there is
        an `rng`.
        """
        generator = settings.rng
        if isinstance(generator, (int, np.integer)):
            generator = np.random.default_rng(check_count("rng", generator, least=0))
        tables: dict[str, Mechanism] = {}
        hashed: dict[str, HashedDomain] = {}
        for column, mechanism in mechanisms.items():
            if isinstance(mechanism, Mechanism):
                tables[column] = mechanism
            else:
                hashed[column] = mechanism
                tables[column] = mechanism.mechanism
        encoder = cls(
            mechanisms=tables,
            hashed=hashed,
            keys=tuple(key_from(generator) for _ in tables),
            keep=tuple(settings.keep),
            missing=settings.missing,
            on_out_of_range=settings.on_out_of_range,
            memo=settings.memo,
            seeded=settings.rng is not None,
        )
        encoder._check_public(settings)
        return encoder

    def _check_public(self, settings: Settings) -> None:
        """Raises ParameterError for ids and periods, which count as public, that are read off a
        private column.
        """
        public = {"charge_by": settings.charge_by, "per": settings.per}
        if settings.lot is not None:
            public["lot"] = settings.lot.people
        if self.memo is not None:
            public["users"] = self.memo.users
        remedy = "is privatized itself, and would be taken for public; name another column"
        for parameter, public_column in public.items():
            for column in self.mechanisms:
                if public_column is not None and _reveals(public_column, column):
                    raise ParameterError(parameter, public_column, remedy)

    def __post_init__(self) -> None:
        if not self.mechanisms:
            raise ParameterError(
                "mechanisms",
                "none",
                "name at least one column and its mechanism",
            )
        for column in self.mechanisms:
            self._refuse_beside(column)
        if _repeats(map(code_field, self.mechanisms)):
            remedy = "two columns take one field of the reports; rename one"
            raise ParameterError("column", ", ".join(self.mechanisms), remedy)
        if _repeats(map(output_name, self.keep)):
            raise ParameterError(
                "keep",
                ", ".join(self.keep),
                "names a column twice; name it once",
            )
        if self.memo is not None:
            self._check_memo(self.memo.users)

    def _refuse_beside(self, column: str) -> None:
        """Raises ParameterError for kept columns that would undo the privacy of a column, or take
        its field's name.
        """
        for kept_column in self.keep:
            if output_name(kept_column) in (
                code_field(column),
                hash_field(column),
            ):
                remedy = "the reports take this name; rename that column first"
                raise ParameterError("keep", kept_column, remedy)
            if _reveals(kept_column, column):
                remedy = f"would reveal {column}, which its reports protect; leave it out"
                raise ParameterError("keep", kept_column, remedy)

    def _check_memo(self, users: str) -> None:
        """Raises ParameterError for a memo together with hashes or seeds."""
        if self.hashed:
            problem = "hashed reports are not memoised: every report draws a new hash"
            remedy = f"{problem}; leave out one of them"
            raise ParameterError("memo", users, remedy)
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
        labels = [
            column_name
            for column_name, mechanism in self.mechanisms.items()
            if mechanism.categories is not None
        ]
        tables = self.hashed or self.mechanisms
        return Wanted(
            columns=self.columns,
            labels=tuple(labels),
            others=others,
            reports_missing=any(
                MISSING in (mechanism.categories or ()) for mechanism in tables.values()
            ),
        )

    def schema(self, kinds: Mapping[str, pa.DataType]) -> pa.Schema:
        """Arrow schema of the output, given the types of the other columns."""
        types: dict[str, pa.DataType] = {}
        for column, mechanism in self.mechanisms.items():
            types[code_field(column)] = pa.uint16()
            if mechanism.levels.size <= BYTE_CODES:
                types[code_field(column)] = pa.uint8()
        for column in self.hashed:
            types[hash_field(column)] = pa.uint32()
        for column in self.keep:
            types[output_name(column)] = stripped_type(kinds[column])
        return pa.schema(list(types.items()))

    def for_block(self, index: int) -> Encoder:
        """The encoder of one block by itself, whose rows count from 0.

        Guarantees: without a seed the keys are the operating system's, drawn here and now: no two
            calls share one, in whatever process they happen. With a seed they follow from its keys
            and the index alone.
        """
        if not self.seeded:
            return replace(self, keys=tuple(fresh_key() for _ in self.keys))
        purpose = b"mezzotint block %d " % index
        keys = tuple(hashlib.sha256(purpose + column_key).digest() for column_key in self.keys)
        return replace(self, keys=keys)

    def without_keys(self) -> Encoder:
        """The same for other processes, whose blocks draw keys of their own; a seed's keys stay."""
        return self if self.seeded else replace(self, keys=(b"",) * len(self.keys))

    def new_run(self) -> str:
        """A name for one run: of a seed's runs always the same, as their reports are; else a fresh
        one.
        """
        if not self.seeded:
            return secrets.token_hex(RUN_DIGITS // 2)
        return hashlib.sha256(b"mezzotint run" + b"".join(self.keys)).hexdigest()[:RUN_DIGITS]

    def check(self, batch: Batch) -> None:
        """Refuses what `encode` refuses, and draws nothing.

        Raises:
            ParameterError: as `encode`.
        """
        inputs_by_column, present = self._listed(batch)
        if self.on_out_of_range != "error":
            return
        for column, listed in inputs_by_column.items():
            values = _values_of(listed, present)
            _refuse_outside(values, present, column, self.mechanisms[column], batch)

    def encode(self, batch: Batch, tally: Tally) -> pa.RecordBatch:
        """The batch with codes in place of the values, counted in the tally.

        Raises:
            ParameterError: a missing value under "error", or a value out of range under "error",
                naming its row.
        """
        inputs_by_column, present = self._listed(batch)
        if batch.selected is not None:
            tally.unasked += batch.unasked
            tally.beyond += batch.rows - batch.unasked - int(batch.selected.sum())
        codes: dict[str, pa.Array] = {}
        hashes: dict[str, pa.Array] = {}
        others: dict[str, pa.Array] = {}
        for column_key, (column, listed) in zip(self.keys, inputs_by_column.items(), strict=True):
            tally.note(
                column,
                unlisted=listed.unlisted,
                respelled=listed.respelled,
            )
            values = _values_of(listed, present)
            if column in self.hashed:
                domain = self.hashed[column]
                row_hashes = _drawn_hashes(column_key, domain.hashes, batch, present)
                values = domain.cell(values.astype(np.int64), row_hashes).astype(np.float64)
                hashes[hash_field(column)] = arrow(row_hashes.astype(np.uint32))
            coded = self._codes(column, column_key, values, batch, present, tally)
            codes[code_field(column)] = coded
        for column in self.keep:
            array = stripped(batch.values.column(column))
            if present is not None:
                array = array.filter(arrow(present))
            others[output_name(column)] = array
        tally.rows += batch.rows
        tally.reports += batch.rows if present is None else int(present.sum())
        return pa.record_batch(codes | hashes | others)

    def _listed(self, batch: Batch) -> tuple[dict[str, Inputs], BoolArray | None]:
        """The inputs of each column, and the rows that become reports; None for all."""
        inputs_by_column: dict[str, Inputs] = {}
        masks: list[BoolArray] = []
        for column, mechanism in self.mechanisms.items():
            listed = inputs(
                batch.values.column(column),
                self.hashed.get(column, mechanism).categories,
                markers=batch.markers,
                parameter="column",
                name=column,
                row=batch.row_words,
            )
            inputs_by_column[column] = listed
            if listed.present is None:
                continue
            if self.missing == "error":
                row_number = batch.row_words(int(np.argmin(listed.present)))
                remedy = 'missing="drop" (--missing drop) leaves such rows out'
                raise ParameterError("column", column, f"{row_number} is missing; {remedy}")
            masks.append(listed.present)
        if batch.selected is not None:
            masks.append(batch.selected)
        if not masks:
            return inputs_by_column, None
        # Of one mask it is the very one that its values were taken by.
        return inputs_by_column, reduce(np.logical_and, masks)

    def _codes(
        self,
        column: str,
        key: bytes,
        values: Floats,
        batch: Batch,
        present: BoolArray | None,
        tally: Tally,
    ) -> pa.Array:
        """The codes of the present values of one column."""
        mechanism = self.mechanisms[column]
        if self.on_out_of_range == "error":
            _refuse_outside(values, present, column, mechanism, batch)
        if self.memo is None:
            random_words = keystream_words(key, batch, present)
        else:  # one value, one report, whatever type a file stores it in
            values = values.astype(np.float64)
            users = batch.values.column(self.memo.users)
            if present is not None:
                users = users.filter(arrow(present))
            random_words = memo_words(
                users, values, key=self.memo.key, column=column, mechanism=mechanism
            )
        codes, below, above = draw(mechanism, values, random_words)
        tally.note(column, below=below, above=above)
        return arrow(codes)


def _repeats(names: Iterable[str]) -> bool:
    """Whether a name occurs twice."""
    listed = list(names)
    return len(set(listed)) < len(listed)


def _reveals(kept_column: str, column: str) -> bool:
    """Whether a column that is kept says something of a private one: itself, and every part of the
    same times but the day of a time of day.
    """
    if kept_column == column:
        return True
    private = parse_derived(column)
    public = parse_derived(kept_column)
    if private is None:
        return public is not None and public.column == column
    if public is None:
        return kept_column == private.column
    if public.column != private.column:
        return False
    return public.part not in CALENDAR_PARTS or private.part not in CLOCK_PARTS


def _values_of(listed: Inputs, present: BoolArray | None) -> Floats:
    """The values of the rows that become reports, of those that are present in their column."""
    if present is None or present is listed.present:
        return listed.values
    if listed.present is None:
        return listed.values[present]
    return listed.values[present[listed.present]]


def _drawn_hashes(key: bytes, hashes: int, batch: Batch, present: BoolArray | None) -> IntArray:
    """The hash of each present row: from a keystream of its own, and from nothing in the row."""
    own_key = hashlib.sha256(b"mezzotint hashes" + key).digest()
    random_words = keystream_words(own_key, batch, present)
    uniforms = (random_words >> np.uint64(11)) * 2.0**-53  # the 53 bits that a float64 holds
    return (uniforms * hashes).astype(np.int64)


def keystream_words(key: bytes, batch: Batch, present: BoolArray | None) -> Words:
    """The words of the present rows of a batch under one key: row i of the run takes word i,
    whichever rows are missing.
    """
    random_words = np.empty(batch.rows, dtype=np.uint64)
    ElementWords(key, batch.first).fill(random_words)
    return random_words if present is None else random_words[present]


def draw(mechanism: Mechanism, values: Floats, words: Words) -> tuple[Codes, int, int]:
    """The codes of float32 or float64 values without NaN, a word each, and how many were clipped
    below and above.
    """
    from mezzotint.core.kernels import compile_lookup  # heavy: numba

    lookup = compile_lookup(mechanism, values.dtype)
    codes = np.empty(values.size, dtype=lookup.code_dtype)
    below, above, _ = lookup.draw(values, words, codes)
    return codes, int(below), int(above)


def _refuse_outside(
    values: Floats,
    present: BoolArray | None,
    column: str,
    mechanism: Mechanism,
    batch: Batch,
) -> None:
    """Raises ParameterError, by its row and without the value, for the first of the present
    values outside the range.
    """
    outside = np.flatnonzero((values < mechanism.lower) | (values > mechanism.upper))
    if not outside.size:
        return
    row_number = int(outside[0])
    if present is not None:
        row_number = int(np.flatnonzero(present)[row_number])
    limits = f"[{mechanism.lower:g}, {mechanism.upper:g}]"
    remedy = f"lies outside {limits}; widen the mechanism's range or clip"
    raise ParameterError("column", column, f"{batch.row_words(row_number)} {remedy}")
