"""Record batches of values in, record batches of codes out: the work that files, folders and clusters share.

Memoised reports: the same value of the same user gives the same report, in every round and process. The word that one
is drawn from is a keyed pseudorandom function of the user's id and the value, not the next one of a keystream. What
that buys, and what it does not, is stated by `privacy.account(Release(..., distinct=...))`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.collect.columns import ColumnReader
from mezzotint.collect.dates import CALENDAR_PARTS, CLOCK_PARTS, output_name, parse_derived
from mezzotint.collect.reports import code_field, describe, hash_field
from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import refuse_existing, sync_folder
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.sampler import (
    BLOCK,
    KEY_BYTES,
    ElementWords,
    codes_from_words,
    fresh_key,
    key_from,
)
from mezzotint.core.table import MISSING
from mezzotint.core.types import Codes, Seed, Words
from mezzotint.core.values import Inputs, arrow, arrow_array, inputs, stripped, stripped_type

compute: Any = pc  # its functions are made at import time, unseen by type checkers

BLOCK_BYTES = 16
SHORT = BLOCK_BYTES - 1
"""Ids of up to 15 bytes stand in an AES block as they are, after their length; longer ones as a keyed hash."""

_LONG = 0xFF


@final
@dataclass(frozen=True, kw_only=True)
class Memo:
    """The memoisation of a run's reports.

    Arguments:
        users: column of user ids: integers or text, none missing. The integer 7 and the text "7" are one user.
        key: 32 secret bytes, the same in every round. Whoever has the key and a report learns the value.

    Raises:
        ParameterError: a key of another length.

    Example:
        >>> key = mz.collect.new_memo_key("secret.key")
        >>> memo = mz.collect.Memo(users="user", key=key)
        >>> memo.users
        'user'
    """

    users: str
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES:
            remedy = f"a key has {KEY_BYTES} bytes; make one with mezzotint.collect.new_memo_key"
            raise ParameterError("key", f"{len(self.key)} bytes", remedy)

    def words(
        self,
        users: pa.Array,
        values: npt.NDArray[np.floating],
        present: npt.NDArray[np.bool_] | None,
        column: str,
        mechanism: Mechanism,
    ) -> Callable[[Words], None]:
        """The words of the rows of a batch, in turn, as `NextWords`, of one id per row and a value per present row."""
        kept = users if present is None else users.filter(arrow(present))
        words = np.zeros(len(users), dtype=np.uint64)
        words[... if present is None else present] = memo_words(
            kept, values, key=self.key, column=column, mechanism=mechanism
        )
        done = 0

        def fill(buffer: Words) -> None:
            nonlocal done
            buffer[:] = words[done : done + buffer.size]
            done += buffer.size

        return fill


def memoised(
    values: npt.ArrayLike | pa.Array,
    users: npt.ArrayLike | pa.Array,
    *,
    mechanism: Mechanism,
    key: bytes,
    column: str,
) -> Codes:
    """One memoised report per value.

    Arguments:
        values: (n,) numbers in data units, or categories of the table; none missing.
        users: (n,) integers or text.
        mechanism: the table.
        key: 32 secret bytes, kept from round to round.
        column: name of the quantity; another name gives unrelated reports of the same values.

    Returns: (n,) codes, uint8 up to 256 levels, else uint16.

    Raises:
        ParameterError: missing values or ids, ids of another type, different lengths, a key of another length.

    Guarantees:
        The code depends on user, clipped value, column, table and key alone: not on process, order, or day.
        Over the choice of the key, codes of different (user, value) pairs are drawn from the table independently, up to
        the pseudorandomness of AES-256.

    Edge cases: inputs beyond [lower, upper] are the same value as the end they are clipped to; -0.0 is 0.

    Example:
        >>> key = mz.collect.new_memo_key("secret.key")
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> first = mz.collect.memoised([0.2, 0.2], ["ann", "bob"], mechanism=mechanism, key=key, column="x")
        >>> again = mz.collect.memoised([0.2, 0.2], ["ann", "bob"], mechanism=mechanism, key=key, column="x")
        >>> bool((first == again).all())
        True
    """
    Memo(users=column, key=key)  # checks the key
    listed = inputs(values, mechanism.categories, parameter="values")
    if listed.present is not None:
        raise ParameterError("values", "missing", "drop missing values first")
    # The word comes from the input, a category's position: one category, one report, however it is spelled.
    ids = arrow_array(users, parameter="users")
    words = memo_words(ids, listed.values, key=key, column=column, mechanism=mechanism)
    return codes_from_words(mechanism, listed.values.astype(np.float64), words)


# Let E be AES-256 under a key of this column and table. With B1 a block made injectively of the id (but for long ids,
# which collide with the chance of a 120-bit hash) and B2 the 8 bytes of the value, the word is half of
# E(E(B1) xor B2): CBC-MAC on messages of two blocks always, a pseudorandom function (Bellare, Kilian, Rogaway 2000).
def memo_words(
    users: pa.Array,
    values: npt.NDArray[np.floating],
    *,
    key: bytes,
    column: str,
    mechanism: Mechanism,
) -> Words:
    """(n,) uint64, one per pair of user and value; see `memoised`."""
    if len(users) != values.size:
        raise ParameterError("users", f"{len(users)} ids", f"need one per value, {values.size}")
    purpose = b"mezzotint memo\0" + bytes.fromhex(mechanism.sha256) + column.encode()
    derived = hmac.digest(key, purpose, "sha256")
    clipped = (
        np.clip(values.astype(np.float64), mechanism.lower, mechanism.upper) + 0.0
    )  # -0.0 becomes 0.0
    encryptor = Cipher(algorithms.AES(derived), modes.ECB()).encryptor()
    state = (
        np.frombuffer(encryptor.update(_id_blocks(users, derived).tobytes()), dtype="<u8")
        .reshape(-1, 2)
        .copy()
    )
    state[:, 0] ^= clipped.astype("<f8").view("<u8")
    return np.frombuffer(encryptor.update(state.tobytes()), dtype="<u8")[::2].astype(np.uint64)


def _id_blocks(users: pa.Array, key: bytes) -> npt.NDArray[np.uint8]:
    """(n, 16) bytes: length and text of short ids, a keyed hash of long ones."""
    text = _as_text(users)
    offsets = np.frombuffer(
        text.buffers()[1], dtype=np.int64, count=len(text) + 1, offset=8 * text.offset
    )
    data = np.frombuffer(text.buffers()[2] or b"", dtype=np.uint8)
    sizes = np.diff(offsets)
    blocks = np.zeros((len(text), BLOCK_BYTES), dtype=np.uint8)
    blocks[:, 0] = np.minimum(sizes, _LONG)
    for j in range(min(SHORT, int(sizes.max(initial=0)))):
        here = np.flatnonzero((sizes > j) & (sizes <= SHORT))
        blocks[here, j + 1] = data[offsets[:-1][here] + j]
    for i in np.flatnonzero(sizes > SHORT):
        blocks[i, 0] = _LONG
        hashed = hashlib.blake2b(
            data[offsets[i] : offsets[i + 1]].tobytes(), key=key, digest_size=SHORT
        )
        blocks[i, 1:] = np.frombuffer(hashed.digest(), dtype=np.uint8)
    return blocks


def _as_text(users: pa.Array) -> pa.Array:
    users = stripped(users)
    kind = users.type
    if pa.types.is_null(kind) or users.null_count:
        raise ParameterError(
            "users", "missing", "every row needs a user id; drop rows without one first"
        )
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise ParameterError("users", str(kind), "user ids are integers or text")
    return compute.cast(users, pa.large_string())


# Keys --------------------------------------------------------------------------------------------------------


def new_memo_key(path: str | os.PathLike[str]) -> bytes:
    """Makes a key, writes it to a new file that its owner alone may read, and returns it.

    Arguments:
        path: of a file that does not exist yet.

    Returns: 32 bytes.

    Example:
        >>> len(mz.collect.new_memo_key("secret.key"))
        32
    """
    key = fresh_key()
    write_key(path, key)
    return key


def write_key(path: str | os.PathLike[str], key: bytes) -> None:
    """Writes a key to a new file that its owner alone may read."""
    target = refuse_existing(path, parameter="key_file")
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as handle:
        handle.write(key.hex() + "\n")
        handle.flush()
        os.fsync(handle.fileno())
    sync_folder(target.parent)  # reports that a lost key drew cannot be drawn again


def load_memo_key(path: str | os.PathLike[str]) -> bytes:
    """Reads a key file.

    Arguments:
        path: of the key file.

    Returns: 32 bytes.

    Raises:
        ParameterError: no such file, or one that other users of the machine may read.
        FileFormatError: no key in it.

    Example:
        >>> key = mz.collect.new_memo_key("secret.key")
        >>> mz.collect.load_memo_key("secret.key") == key
        True
    """
    target = Path(path)
    if not target.is_file():
        remedy = "no such file; make one with mezzotint.collect.new_memo_key, or --new-key"
        raise ParameterError("key_file", str(target), remedy)
    if os.name == "posix" and target.stat().st_mode & 0o077:
        raise ParameterError(
            "key_file", str(target), "others may read this secret; run chmod 600 on it"
        )
    try:
        key = bytes.fromhex(target.read_text(encoding="ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise FileFormatError(
            f"{target}: holds no memo key; it has {2 * KEY_BYTES} hexadecimal digits on one line"
        )
    return key


Present = npt.NDArray[np.bool_]
Values = npt.NDArray[np.floating]


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

    def nothing(self, column: str, where: str) -> ParameterError:
        """The error to raise where no report was made."""
        why = f"all {self.missing} values are missing" if self.missing else "it has no rows"
        return ParameterError(
            "column", column, f"is empty: {why} in {where}; name another column or source"
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
class Plan:
    """How rows become reports; what is not said here is said by `Settings`.

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

    def __post_init__(self) -> None:
        if not self.mechanisms:
            raise ParameterError("mechanisms", "none", "name at least one column and its mechanism")
        check_choice("missing", self.missing, ("error", "drop"))
        check_choice("on_out_of_range", self.on_out_of_range, ("clip", "error"))
        for column in self.mechanisms:
            if column in self.keep:
                raise ParameterError(
                    "keep",
                    column,
                    "keeping the raw column would reveal what its reports protect; leave it out",
                )
            self._refuse_beside(column)
        if self.hashed and self.memo is not None:
            remedy = "hashed reports are not memoised: every report draws a new hash; leave out one of them"
            raise ParameterError("memo", self.memo.users, remedy)
        fields = [code_field(column) for column in self.mechanisms]
        if len(set(fields)) != len(fields):
            remedy = "two columns take one field of the reports; rename one"
            raise ParameterError("column", ", ".join(self.mechanisms), remedy)
        if len({output_name(column) for column in self.keep}) != len(self.keep):
            raise ParameterError("keep", ", ".join(self.keep), "names a column twice; name it once")
        if self.memo is not None and self.memo.users in self.mechanisms:
            raise ParameterError(
                "users", self.memo.users, "is privatized itself; name the column of user ids"
            )
        if self.memo is not None and self.seeded:
            raise ParameterError(
                "rng",
                "a seed",
                "memoised reports take their randomness from the memo key; leave it out",
            )

    def _refuse_beside(self, column: str) -> None:
        """Raises ParameterError for kept columns that would undo the privacy of a column, or take its field's name."""
        mine = parse_derived(column)
        for kept in self.keep:
            if output_name(kept) in (code_field(column), hash_field(column)):
                remedy = "the reports take this name; rename that column first"
                raise ParameterError("keep", kept, remedy)
            theirs = parse_derived(kept)
            base = kept if theirs is None else theirs.column
            if mine is None or base != mine.column:
                continue
            if theirs is None or theirs.part not in CALENDAR_PARTS or mine.part not in CLOCK_PARTS:
                remedy = f"would reveal {column}, which its reports protect; leave it out"
                raise ParameterError("keep", kept, remedy)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to privatize."""
        return tuple(self.mechanisms)

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of them that hold categories."""
        return tuple(
            column
            for column, mechanism in self.mechanisms.items()
            if mechanism.categories is not None
        )

    @property
    def extra(self) -> dict[str, str]:
        """Other columns to read -> the parameter that names them."""
        users = (
            {} if self.memo is None or self.memo.users in self.keep else {self.memo.users: "users"}
        )
        return {**dict.fromkeys(self.keep, "keep"), **users}

    def new_run(self) -> str:
        """A name for one run of this plan: of a seed's runs always the same, as their reports are; else a fresh one."""
        seeds = b"".join(self.keys)
        name = (
            hashlib.sha256(b"mezzotint run" + seeds).hexdigest()
            if self.seeded
            else secrets.token_hex(32)
        )
        return name[:32]

    def describe(self, run: str, source: str | None) -> str:
        """The description of a file of this run. Memoised reports have no run: the same value gives the same report."""
        memoised = self.memo is not None
        named = {} if memoised else {"run": run, "source": source}
        return describe(self.mechanisms, seeded=self.seeded, memoised=memoised, **named)

    def schema(self, kinds: Sequence[pa.DataType]) -> pa.Schema:
        """Arrow schema of the output, given the types of the extra columns."""
        fields = [
            pa.field(
                code_field(column), pa.uint8() if mechanism.levels.size <= 256 else pa.uint16()
            )
            for column, mechanism in self.mechanisms.items()
        ]
        fields += [pa.field(hash_field(column), pa.uint32()) for column in self.hashed]
        extra = zip(self.extra, kinds, strict=True)
        return pa.schema(
            [
                *fields,
                *(
                    pa.field(output_name(name), stripped_type(kind))
                    for name, kind in extra
                    if name in self.keep
                ),
            ]
        )

    def for_block(self, index: int) -> Plan:
        """The plan of one block by itself, whose rows count from 0.

        Guarantees: without a seed the keys are the operating system's, drawn here and now: no two calls share one, in
            whatever process they happen. With a seed they follow from its keys and the index alone.
        """
        if not self.seeded:
            return replace(self, keys=tuple(fresh_key() for _ in self.keys))
        place = b"mezzotint block %d " % index
        return replace(self, keys=tuple(hashlib.sha256(place + key).digest() for key in self.keys))

    def encode(
        self,
        batch: pa.RecordBatch,
        *,
        first: int,
        tally: Tally,
        offset: int = 0,
        where: str = "",
        markers: frozenset[str] = frozenset(),
        kept: npt.NDArray[np.bool_] | None = None,
    ) -> pa.RecordBatch:
        """One batch of the columns, then of `extra`, with codes in place of the values, counted in the tally.

        Arguments:
            first: index of its first row in the run: which words it takes.
            offset: index of its first row in its file, minus `first`: so that messages name the row within the file.
            where: which file, for messages.
            markers: texts that mean a missing value, unless they are categories.
            kept: (n,) rows that may become reports; None for all.

        Raises:
            ParameterError: a missing value under "error", or a value out of range under "error", naming its row.
        """
        place = _Place(before=first + offset, where=where)
        split = [self._inputs(batch.column(i), i, place, markers) for i in range(len(self.columns))]
        present = self._present([listed.present for listed in split], place)
        if kept is not None:
            present = kept if present is None else present & kept
            tally.beyond += kept.size - int(kept.sum())
        fields, hashes = [], []
        for i, (column, listed) in enumerate(zip(self.columns, split, strict=True)):
            tally.spell(column, listed)
            values, mask = listed.values, listed.present
            if present is not None and mask is not present:
                values = values[present if mask is None else present[mask]]
            if self.memo is not None:  # one value, one report, whatever type a file stores it in
                values = values.astype(np.float64)
            mechanism = self.mechanisms[column]
            if column in self.hashed:
                domain = self.hashed[column]
                drawn = self._hashes(i, domain.hashes, first, batch.num_rows, present)
                values = domain.cell(values.astype(np.int64), drawn).astype(np.float64)
                hashes.append(arrow(drawn.astype(np.uint32)))
            if self.on_out_of_range == "error":
                _refuse_outside(values, present, column, mechanism, place)
            words = self._words(i, batch, first, present, values)
            codes, below, above = draw(
                mechanism, values, words=words, rows=batch.num_rows, present=present
            )
            tally.clip(column, below, above)
            fields.append(arrow(codes))
        others = [stripped(batch.column(name)) for name in self.keep]
        if present is not None:
            mask = arrow(present)
            others = [array.filter(mask) for array in others]
        tally.rows += batch.num_rows
        tally.reports += len(fields[0])
        names = [
            *map(code_field, self.columns),
            *map(hash_field, self.hashed),
            *map(output_name, self.keep),
        ]
        return pa.RecordBatch.from_arrays([*fields, *hashes, *others], names=names)

    def check_end(self, reader: ColumnReader) -> None:
        """Raises FileFormatError where the empty line at the end of a file would be a report of nobody."""
        tables = self.hashed or self.mechanisms
        if reader.blank_end and any(MISSING in (each.categories or ()) for each in tables.values()):
            remedy = "ends in an empty line, which would count as a missing value; remove that line"
            raise FileFormatError(f"{reader.name}: {remedy}")

    def _inputs(self, array: pa.Array, i: int, place: _Place, markers: frozenset[str]) -> Inputs:
        """The inputs of one column of a batch."""
        column = self.columns[i]
        categories = self.hashed.get(column, self.mechanisms[column]).categories
        names: dict[str, Any] = {"parameter": "column", "name": column, "row": place.row}
        return inputs(array, categories, markers=markers, **names)

    def _hashes(
        self, i: int, many: int, first: int, rows: int, present: Present | None
    ) -> npt.NDArray[np.int64]:
        """The hash of each present row: from a keystream of its own, and from nothing in the row."""
        key = hashlib.sha256(b"mezzotint hashes" + self.keys[i]).digest()
        words, fill = np.empty(rows, dtype=np.uint64), keystream_words(key, first)
        for begin in range(0, rows, BLOCK):
            fill(words[begin : begin + BLOCK])
        drawn = ((words >> np.uint64(11)) * 2.0**-53 * many).astype(np.int64)
        return drawn if present is None else drawn[present]

    def _words(
        self, i: int, batch: pa.RecordBatch, first: int, present: Present | None, values: Values
    ) -> NextWords:
        if self.memo is None:
            return keystream_words(self.keys[i], first)
        column = self.columns[i]
        return self.memo.words(
            batch.column(self.memo.users), values, present, column, self.mechanisms[column]
        )

    def _present(self, masks: Sequence[Present | None], place: _Place) -> Present | None:
        """A mask of the rows that have all their values; None when all do."""
        found = [mask for mask in masks if mask is not None]
        if not found:
            return None
        if self.missing == "error":
            column, mask = next(
                (c, m) for c, m in zip(self.columns, masks, strict=True) if m is not None
            )
            remedy = 'missing="drop" (--missing drop) leaves such rows out'
            raise ParameterError(
                "column", column, f"{place.row(int(np.argmin(mask)))} is missing; {remedy}"
            )
        return found[0] if len(found) == 1 else np.logical_and.reduce(found)


def plan(
    mechanisms: Mapping[str, Mechanism | Hashing],
    *,
    keep: Sequence[str] = (),
    missing: Literal["error", "drop"] = "error",
    on_out_of_range: Literal["clip", "error"] = "clip",
    memo: Memo | None = None,
    rng: Seed = None,
) -> Plan:
    """The plan of a new run, with keys of its own, drawn from the operating system unless there is an `rng`."""
    seeded = isinstance(rng, (int, np.integer))
    generator = np.random.default_rng(check_count("rng", rng, least=0)) if seeded else rng
    hashed = {column: one for column, one in mechanisms.items() if not isinstance(one, Mechanism)}
    return Plan(
        mechanisms={
            name: one if isinstance(one, Mechanism) else one.mechanism
            for name, one in mechanisms.items()
        },
        hashed=hashed,
        keys=tuple(key_from(generator) for _ in mechanisms),
        keep=tuple(keep),
        missing=missing,
        on_out_of_range=on_out_of_range,
        memo=memo,
        seeded=rng is not None,
    )


# Drawing -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class _Place:
    """The place of a batch, for messages: rows of its file before it, and the file's name."""

    before: int
    where: str

    def row(self, index: int) -> str:
        return f"data row {self.before + index + 1}{self.where}"


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
    below = above = done = 0
    for begin in range(0, rows, BLOCK):
        drawn = buffer[: min(BLOCK, rows - begin)]
        words(drawn)
        if present is not None:
            drawn = drawn[present[begin : begin + drawn.size]]
        part = slice(done, done + drawn.size)
        under, over, _ = lookup.draw(values[part], drawn, codes[part])
        below, above, done = below + under, above + over, done + drawn.size
    return codes, int(below), int(above)


def _refuse_outside(
    values: Values, present: Present | None, column: str, mechanism: Mechanism, place: _Place
) -> None:
    outside = np.flatnonzero((values < mechanism.lower) | (values > mechanism.upper))
    if outside.size:
        row = int(outside[0]) if present is None else int(np.flatnonzero(present)[outside[0]])
        limits = f"[{mechanism.lower:g}, {mechanism.upper:g}]"
        remedy = f"{place.row(row)} lies outside {limits}; widen the mechanism's range or clip"
        raise ParameterError("column", column, remedy)
