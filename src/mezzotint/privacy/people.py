"""Charges of millions of people: sorted segments of hashed ids, one line of a ledger for each run.

A run's segment holds a record of 20 bytes for each person: a keyed hash of the id, and the number
of rows. It is written before the lock is taken and renamed inside it; the line of the log that
names it is the commit. Totals are derived from segments and replaced whole. What a crash leaves is
a segment without a line, which is set aside, or totals that are behind, which are rolled forward.

A collision of two hashes adds two people up: it overstates. The key decrypts ids of up to 15 bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.core.errors import ParameterError, StorageError
from mezzotint.core.files import PRIVATE_FILE
from mezzotint.core.records import above, below, counted
from mezzotint.core.types import ByteArray, Words
from mezzotint.privacy.sorted_records import (
    RECORD,
    TOTAL,
    Columns,
    Hashes,
    Records,
    bytes_of,
    columns_of,
    lookup,
    mapped_records,
    merged_sums,
    pieces_of,
    ranges_of,
    records_of,
    sums_by_hash,
)

UNITS = 1 << 48
"""Parts of an epsilon in which people are charged; prices are rounded up, budgets down."""

MAX_UNITS = (1 << 63) - 1
"""No total exceeds this: epsilon 32,768."""


RUN = 1 << 20
"""People that are sorted in memory at once."""


SHORT_ID = 15
"""Bytes of an id that fits into one block with its length."""

_BLOCK = 16
_LONG_MARK = 0xFF
"""Stands where short ids have their length."""

_LENGTHS = np.arange(SHORT_ID + 1)[:, None]
_LETTERS_OF_LENGTH = np.where(np.arange(SHORT_ID) < _LENGTHS, np.uint8(0xFF), np.uint8(0))
"""(16, 15) a mask of the letters of an id of each length."""

_ASCII_END = 0x80
"""Bytes below are letters of ASCII, which every normal form leaves as they are."""

MAX_ROWS = (1 << 32) - 1
"""Of one person in one run."""


def units_of(epsilon: float | Fraction) -> int:
    """A price in units, rounded up."""
    return math.ceil(Fraction(epsilon) * UNITS)


def budget_units(epsilon: float) -> int:
    """A budget in units, rounded down; what units can hold where there is none."""
    if math.isinf(epsilon):
        return MAX_UNITS
    units = math.floor(Fraction(epsilon) * UNITS)
    return min(MAX_UNITS, units)


# Hashes of ids


@final
class IdHash:
    """Hashes ids under a key: AES of one block; of long ids the block is their keyed BLAKE2.

    Arguments:
        key: secret; another purpose makes unrelated hashes of it.

    Example:
        >>> from mezzotint.privacy.people import IdHash
        >>> hashed = IdHash(bytes(32)).of(["ann", "bob"])
        >>> IdHash(bytes(32)).names(hashed)
        ['ann', 'bob']
    """

    def __init__(self, key: bytes, *, purpose: bytes = b"mezzotint people") -> None:
        derived = hmac.new(key, purpose, hashlib.sha256).digest()
        key_check = hmac.new(derived, b"check", hashlib.sha256)
        self._key = derived
        self._cipher = Cipher(algorithms.AES(derived), modes.ECB())  # one block each, a permutation
        self.check = key_check.hexdigest()[:16]

    def of(self, ids: Sequence[str]) -> ByteArray:
        """(n, 16) hashes of ids in Unicode's normal form C."""
        import pyarrow as pa

        from mezzotint.core.values import texts_of

        return self.of_arrow(texts_of(ids, pa.large_string()))

    def of_arrow(self, ids: Any) -> ByteArray:
        """The same, of an Arrow array of text without missing values."""
        text, offsets = _utf8(ids)
        lengths = np.diff(offsets)
        blocks = np.zeros((lengths.size, _BLOCK), dtype=np.uint8)
        blocks[:, 0] = np.where(lengths <= SHORT_ID, lengths, _LONG_MARK)
        longest = int(lengths.max(initial=0))
        if longest <= SHORT_ID and (lengths == longest).all():
            blocks[:, 1 : 1 + longest] = text.reshape(lengths.size, longest)
        else:
            padding = np.zeros(SHORT_ID, dtype=np.uint8)
            padded = np.append(text, padding)
            windows = np.lib.stride_tricks.sliding_window_view(padded, SHORT_ID)
            short_lengths = np.minimum(lengths, SHORT_ID)
            masks = _LETTERS_OF_LENGTH[short_lengths]
            blocks[:, 1:] = windows[offsets[:-1]] & masks
        for index in np.flatnonzero(lengths > SHORT_ID).tolist():
            start = offsets[index]
            end = offsets[index + 1]
            long_id = text[start:end].tobytes()
            digest = self._digest(long_id)
            blocks[index, 1:] = np.frombuffer(digest, dtype=np.uint8)
        return self.encrypted(blocks)

    def encrypted(self, blocks: npt.NDArray[Any]) -> ByteArray:
        """(n, 16) AES of blocks of 16 bytes."""
        encrypted_bytes = self._cipher.encryptor().update(blocks.tobytes())
        return np.frombuffer(encrypted_bytes, dtype=np.uint8).reshape(-1, _BLOCK)

    def _digest(self, long_id: bytes) -> bytes:
        """What stands in the block of an id that does not fit into it."""
        keyed_hash = hashlib.blake2b(long_id, key=self._key, digest_size=SHORT_ID)
        return keyed_hash.digest()

    def names(self, hashed: ByteArray) -> list[str]:
        """The ids of hashes; of long ones, which no key gives back, "#" and the hash."""
        encrypted = np.ascontiguousarray(hashed).tobytes()
        decrypted = self._cipher.decryptor().update(encrypted)
        names: list[str] = []
        for start in range(0, len(decrypted), _BLOCK):
            length = decrypted[start]
            if length <= SHORT_ID:
                letters = decrypted[start + 1 :][:length]
                names.append(letters.decode("utf-8", "replace"))
            else:
                block = encrypted[start:][:_BLOCK]
                names.append(f"#{block.hex()}")
        return names


def _utf8(ids: Any) -> tuple[ByteArray, npt.NDArray[np.int64]]:
    """The bytes of an Arrow array of text in Unicode's normal form C, and where each id begins."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    spelled = compute.cast(ids, pa.large_string())
    text, offsets = _buffers_of(spelled)
    if (text >= _ASCII_END).any():
        return _buffers_of(compute.utf8_normalize(spelled, form="NFC"))
    return text, offsets


def _buffers_of(array: Any) -> tuple[ByteArray, npt.NDArray[np.int64]]:
    """The bytes of an array of large strings, and the (n + 1,) places where its texts begin."""
    count = len(array)
    if not count:
        return np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    _validity, raw_offsets, raw_text = array.buffers()
    all_offsets = np.frombuffer(raw_offsets, dtype=np.int64)
    all_text = np.frombuffer(raw_text or b"", dtype=np.uint8)
    offsets = all_offsets[array.offset :][: count + 1]
    first_offset = offsets[0]
    text = all_text[first_offset : offsets[-1]]
    return text, offsets - first_offset


# Segments


@final
@dataclass(frozen=True, kw_only=True)
class Segment:
    """A run's people, in a file: sorted by hash.

    Arguments:
        path: of the file.
        persons, rows, most: how many, of how many rows in all, and the most of one person.
        sha256: of its bytes.
    """

    path: Path
    persons: int
    rows: int
    most: int
    sha256: str

    @property
    def records(self) -> Records:
        """The records, mapped."""
        return mapped_records(self.path, RECORD)


@final
class PersonCounter:
    """Counts the rows of people, and writes a segment; memory does not grow with their number.

    Arguments:
        folder: of the ledger's segments; temporary files go there too.
        hashes: of ids.

    Example:
        >>> from mezzotint.privacy.people import IdHash, PersonCounter
        >>> with PersonCounter(Path("."), IdHash(bytes(32))) as counter:
        ...     counter.add(["ann", "bob", "ann"])
        ...     segment = counter.finish()
        >>> segment.persons, segment.rows, segment.most
        (2, 3, 2)
    """

    def __init__(self, folder: Path, hashes: IdHash) -> None:
        self.folder = folder
        self.hashes = hashes
        self.token = secrets.token_hex(8)
        self.partial = folder / f"{self.token}.partial"
        self._runs: list[Path] = []
        self._waiting: list[tuple[ByteArray, Words | None]] = []
        self._size = 0
        self._descriptor = -1

    def __enter__(self) -> PersonCounter:
        exclusive = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            self._descriptor = os.open(self.partial, exclusive, PRIVATE_FILE)
            # Until it is renamed or left: it is in use.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise unwritable(self.partial, error) from None
        return self

    def __exit__(self, *_: object) -> None:
        for path in (*self._runs, self.partial):
            with suppress(OSError):  # whoever opens the ledger next removes it; the charge stands
                path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def add(self, ids: Any, counts: Words | None = None) -> None:
        """Add rows: ids as a list or Arrow array of text, each once or with its number of rows."""
        if self._size >= RUN:
            self._spill()
        if isinstance(ids, list):
            hashed = self.hashes.of(cast("list[str]", ids))
        else:
            hashed = self.hashes.of_arrow(ids)
        self._waiting.append((hashed, counts))
        self._size += len(hashed)

    def _sorted(self) -> tuple[Hashes, Hashes, Words]:
        """The people that wait, whose hashes are given up."""
        high = np.empty(self._size, dtype=np.uint64)
        low = np.empty_like(high)
        rows = np.ones_like(high)
        start = 0
        for hashed, counts in self._waiting:
            span = slice(start, start + len(hashed))
            halves = hashed.view(">u8")
            high[span] = halves[:, 0]
            low[span] = halves[:, 1]
            if counts is not None:
                rows[span] = counts
            start = span.stop
        self._waiting = []
        self._size = 0
        return sums_by_hash(high, low, rows)

    def _spill(self) -> None:
        path = self.folder / f"{self.token}.{len(self._runs)}.partial"
        self._runs.append(path)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE)
            with open(descriptor, "wb") as file:
                for records in pieces_of(self._sorted(), TOTAL):
                    file.write(records)
        except OSError as error:
            raise unwritable(path, error) from None

    def _people(self) -> Iterator[tuple[Hashes, Hashes, Words]]:
        """Everybody, sorted by hash, one range of the hashes at a time."""
        last_run = self._sorted()
        if not self._runs:
            yield last_run
            return
        runs = [mapped_records(path, TOTAL) for path in self._runs]
        runs.append(records_of(last_run, TOTAL))
        for records in ranges_of(runs):
            run_columns = [columns_of([run_records]) for run_records in records]
            yield merged_sums(run_columns)

    def finish(self) -> Segment:
        """Write the segment under a name that nobody reads yet, and sync it."""
        digest = hashlib.sha256()
        person_count = 0
        row_count = 0
        most_rows = 0
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                for high, low, rows in self._people():
                    most_rows = max(most_rows, int(rows.max(initial=0)))
                    if most_rows > MAX_ROWS:
                        raise ParameterError("people", most_rows, "rows of one person are too many")
                    for records in pieces_of((high, low, rows), RECORD):
                        file.write(records)
                        digest.update(records)
                    person_count += rows.size
                    row_count += int(rows.sum())
            os.fsync(self._descriptor)
        except OSError as error:
            raise unwritable(self.partial, error) from None
        return Segment(
            path=self.partial,
            persons=person_count,
            rows=row_count,
            most=most_rows,
            sha256=digest.hexdigest(),
        )


def unwritable(path: Path, error: OSError) -> StorageError:
    """The refusal where a file of people cannot be written, before anything is charged."""
    consequence = "nothing was charged and nothing may be released"
    reason = f"cannot be written ({error.strerror}); {consequence}"
    return StorageError("ledger", str(path), reason)


LEAST_USEFUL = 1e-3
"""Least epsilon of a report that a remedy names."""


EXPORT = "mezzotint ledger FILE --export people.jsonl lists them with what they spent"
"""How to find the people to whom too little is left, for messages."""


@final
@dataclass(frozen=True, kw_only=True)
class Excess:
    """A person whose rows do not fit, and what would fit all such people.

    Arguments:
        hashed: (16,) the hash.
        units: charged to them so far.
        remaining: least units that are left to such a person.
        rows: most rows that each of them can pay for.
        needed: units that would hold all rows of each.
    """

    hashed: ByteArray
    units: int
    remaining: int
    rows: int
    needed: int

    def beside(self, earlier: Excess | None) -> Excess:
        """The earlier person, with what would fit these people too."""
        if earlier is None:
            return self
        return replace(
            earlier,
            remaining=min(earlier.remaining, self.remaining),
            rows=min(earlier.rows, self.rows),
            needed=max(earlier.needed, self.needed),
        )

    def remedy(self, *, common: int) -> str:
        """What would let a run pass whose people cannot pay for their rows.

        Arguments:
            common: units that were charged to everyone.
        """
        needed = above(float(Fraction(self.needed + common, UNITS)))
        allowance = f"allow everybody {needed} (--budget {needed})"
        if self.rows:
            rows = counted(self.rows, "row")
            option = f"--at-most {self.rows}, without --per"
            return f"Keep at most {rows} of each person in all ({option}), or {allowance}"
        remaining = below(float(Fraction(self.remaining, UNITS)))
        if float(remaining) < LEAST_USEFUL:
            return f"Nothing is left to some people: leave them out ({EXPORT}), or {allowance}"
        return (
            f"Not even one row of some people fits, to whom {remaining} is left: draw from a "
            f"table of that epsilon (mezzotint design --epsilon {remaining}) with --at-most 1, "
            f"leave them out ({EXPORT}), or {allowance}"
        )


def with_charges(
    totals: Records,
    segment: Records,
    *,
    units: int,
    limit: int,
) -> Columns | Excess:
    """Totals of some people with those of a segment, each row of which costs so many units."""
    assert limit <= MAX_UNITS, "two amounts within it do not wrap"
    earlier = columns_of([totals])
    high, low, row_charges = columns_of([segment])
    highest_price = int(row_charges.max(initial=0)) * units
    amounts_fit = highest_price <= limit and _largest_amount(earlier) <= limit
    excess = None
    if not amounts_fit:  # somebody exceeds the limit, perhaps others than those of the segment
        excess = _excess(totals, segment, units=units, limit=limit)
    if excess is not None:
        return excess
    row_charges *= np.uint64(min(units, MAX_UNITS + 1))  # a higher price exceeds every limit
    charged_columns = merged_sums([earlier, (high, low, row_charges)])
    if amounts_fit and _largest_amount(charged_columns) <= limit:
        return charged_columns
    return _excess(totals, segment, units=units, limit=limit) or charged_columns


def _largest_amount(columns: Columns) -> int:
    """Of anybody; 0 of nobody."""
    return int(columns[2].max(initial=0))


def _excess(
    totals: Records,
    segment: Records,
    *,
    units: int,
    limit: int,
) -> Excess | None:
    """A person of a segment whose rows do not fit; None where there is none."""
    high, low, rows = columns_of([segment])
    charged_units = lookup(totals, high, low)
    word_limit = np.uint64(limit)
    remaining_units = word_limit - np.minimum(charged_units, word_limit)
    exceeds = charged_units > limit
    if units:
        price = np.uint64(min(units, MAX_UNITS + 1))
        exceeds |= rows > remaining_units // price
    if not exceeds.any():
        return None
    person = int(np.argmax(exceeds))
    remaining = int(remaining_units[exceeds].min())
    # Exact, where words of 64 bits could wrap.
    totals_needed: list[int] = []
    charged_amounts: list[int] = charged_units[exceeds].tolist()
    row_counts: list[int] = rows[exceeds].tolist()
    for charged, row_count in zip(charged_amounts, row_counts, strict=True):
        totals_needed.append(charged + row_count * units)
    return Excess(
        hashed=bytes_of(high[person : person + 1], low[person : person + 1])[0],
        units=int(charged_units[person]),
        remaining=remaining,
        rows=remaining // max(1, units),
        needed=max(totals_needed),
    )


@final
@dataclass(frozen=True, kw_only=True)
class PeopleLine:
    """The line of a ledger about a run that charged people.

    Arguments:
        token: names the charge and its segment.
        identity, description, fingerprint: as in `Charge`.
        epsilon: of one row.
        persons, rows, most: of the segment.
        sha256, key: of the segment, and of the key that made its hashes.
        withdrawn: why it costs nothing after all; empty for a charge that counts.
    """

    # Fields are keys of the lines of ledgers: with another field, none that is on disk could be
    # read.
    token: str
    identity: str
    description: str
    fingerprint: str
    epsilon: float
    persons: int
    rows: int
    most: int
    sha256: str
    key: str
    withdrawn: str = ""

    @property
    def units(self) -> int:
        """The price of a row."""
        return units_of(self.epsilon)
