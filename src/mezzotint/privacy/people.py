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
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.core.errors import FileFormatError, ParameterError, StorageError
from mezzotint.core.files import PRIVATE_FILE, sync_folder
from mezzotint.core.types import IndexArray, Words

UNITS = 1 << 48
"""Parts of an epsilon in which people are charged; prices are rounded up, budgets down."""

MAX_UNITS = (1 << 63) - 1
"""No total exceeds this: epsilon 32,768."""

RECORD = np.dtype([("high", ">u8"), ("low", ">u8"), ("rows", "<u4")])
TOTAL = np.dtype([("high", ">u8"), ("low", ">u8"), ("units", "<u8")])
MOST_RANGES = 256
RANGE_RECORDS = 1 << 18
"""Merges work on one range of the hashes at a time, so that memory hardly grows with the people."""

RUN = 1 << 20
"""People that are sorted in memory at once."""

SHORT_ID = 15
"""Bytes of an id that fits into one block with its length."""

_BLOCK = 16
_LONG_MARK = 0xFF
"""Stands where short ids have their length."""

_LETTERS_OF_LENGTH = np.where(
    np.arange(SHORT_ID) < np.arange(SHORT_ID + 1)[:, None], np.uint8(0xFF), np.uint8(0)
)
"""(16, 15) a mask of the letters of an id of each length."""

_ASCII_END = 0x80
"""Bytes below are letters of ASCII, which every normal form leaves as they are."""

MAX_ROWS = (1 << 32) - 1
"""Of one person in one run."""

Hashes = Words
"""(n,) one half of every hash."""

Bytes = npt.NDArray[np.uint8]
Booleans = npt.NDArray[np.bool_]
Records = npt.NDArray[Any]
"""Of `RECORD` or `TOTAL`, sorted by hash."""


def units_of(epsilon: float | Fraction) -> int:
    """A price in units, rounded up."""
    return math.ceil(Fraction(epsilon) * UNITS)


def budget_units(epsilon: float) -> int:
    """A budget in units, rounded down; what units can hold where there is none."""
    if math.isinf(epsilon):
        return MAX_UNITS
    return min(MAX_UNITS, math.floor(Fraction(epsilon) * UNITS))


# Hashes of ids


@final
class IdHash:
    """Hashes ids under a key: AES of one block; of long ids the block is their keyed BLAKE2.

    Example:
        >>> from mezzotint.privacy.people import IdHash
        >>> hashed = IdHash(bytes(32)).of(["ann", "bob"])
        >>> IdHash(bytes(32)).names(hashed)
        ['ann', 'bob']
    """

    def __init__(self, key: bytes) -> None:
        derived = hmac.new(key, b"mezzotint people", hashlib.sha256).digest()
        self._key = derived
        self._cipher = Cipher(algorithms.AES(derived), modes.ECB())  # one block each, a permutation
        self.check = hmac.new(derived, b"check", hashlib.sha256).hexdigest()[:16]

    def of(self, ids: Sequence[str]) -> Bytes:
        """(n, 16) hashes of ids in Unicode's normal form C."""
        import pyarrow as pa

        return self.of_arrow(pa.array(ids, pa.string()))

    def of_arrow(self, ids: Any) -> Bytes:
        """The same, of an Arrow array of text without missing values."""
        text, offsets = _utf8(ids)
        lengths = np.diff(offsets)
        blocks = np.zeros((lengths.size, _BLOCK), dtype=np.uint8)
        blocks[:, 0] = np.where(lengths <= SHORT_ID, lengths, _LONG_MARK)
        longest = int(lengths.max(initial=0))
        if longest <= SHORT_ID and (lengths == longest).all():
            blocks[:, 1 : 1 + longest] = text.reshape(lengths.size, longest)
        else:
            padded = np.append(text, np.zeros(SHORT_ID, dtype=np.uint8))
            windows = np.lib.stride_tricks.sliding_window_view(padded, SHORT_ID)
            masks = _LETTERS_OF_LENGTH[np.minimum(lengths, SHORT_ID)]
            blocks[:, 1:] = windows[offsets[:-1]] & masks
        for index in np.flatnonzero(lengths > SHORT_ID).tolist():
            start = offsets[index]
            end = offsets[index + 1]
            digest = self._digest(text[start:end].tobytes())
            blocks[index, 1:] = np.frombuffer(digest, dtype=np.uint8)
        encrypted = self._cipher.encryptor().update(blocks.tobytes())
        return np.frombuffer(encrypted, dtype=np.uint8).reshape(-1, _BLOCK)

    def _digest(self, long_id: bytes) -> bytes:
        """What stands in the block of an id that does not fit into it."""
        return hashlib.blake2b(long_id, key=self._key, digest_size=SHORT_ID).digest()

    def names(self, hashed: Bytes) -> list[str]:
        """The ids of hashes; of long ones, which no key gives back, "#" and the hash."""
        encrypted = np.ascontiguousarray(hashed).tobytes()
        decrypted = self._cipher.decryptor().update(encrypted)
        names: list[str] = []
        for start in range(0, len(decrypted), _BLOCK):
            length = decrypted[start]
            if length <= SHORT_ID:
                letters = decrypted[start + 1 : start + 1 + length]
                names.append(letters.decode("utf-8", "replace"))
            else:
                names.append("#" + encrypted[start : start + _BLOCK].hex())
        return names


def _utf8(ids: Any) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """The bytes of an Arrow array of text in Unicode's normal form C, and where each id begins."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    spelled = compute.cast(ids, pa.large_string())
    text, offsets = _buffers_of(spelled)
    if (text >= _ASCII_END).any():
        return _buffers_of(compute.utf8_normalize(spelled, form="NFC"))
    return text, offsets


def _buffers_of(array: Any) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """The bytes of an array of large strings, and the (n + 1,) places where its texts begin and end."""
    count = len(array)
    if not count:
        return np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    _, raw_offsets, raw_text = array.buffers()
    all_offsets = np.frombuffer(raw_offsets, dtype=np.int64)
    all_text = np.frombuffer(raw_text or b"", dtype=np.uint8)
    offsets = all_offsets[array.offset : array.offset + count + 1]
    text = all_text[offsets[0] : offsets[-1]]
    return text, offsets - offsets[0]


def _words(hashed: Bytes) -> tuple[Hashes, Hashes]:
    pairs = np.ascontiguousarray(hashed).view(">u8").astype(np.uint64)
    return pairs[:, 0], pairs[:, 1]


def _bytes_of(high: Hashes, low: Hashes) -> Bytes:
    pairs = np.stack([high, low], axis=1).astype(">u8")
    return pairs.view(np.uint8).reshape(len(high), 16)


def _combined(
    high: Hashes,
    low: Hashes,
    amounts: Words,
) -> tuple[Hashes, Hashes, Words]:
    """Sorted by hash, equal ones added up."""
    order = np.argsort(high)
    sorted_high = high[order]
    sorted_low = low[order]
    same_half = sorted_high[1:] == sorted_high[:-1]
    other_half_differs = sorted_low[1:] != sorted_low[:-1]
    if (same_half & other_half_differs).any():  # of two people: nearly never
        order = np.lexsort((low, high))
        sorted_high = high[order]
        sorted_low = low[order]
        other_half_differs = sorted_low[1:] != sorted_low[:-1]
    amounts = amounts[order]
    if not same_half.any():
        return sorted_high, sorted_low, amounts
    is_new = np.ones(high.size, dtype=bool)
    is_new[1:] = ~same_half | other_half_differs
    starts = np.flatnonzero(is_new)
    sums = np.add.reduceat(amounts, starts)
    return sorted_high[starts], sorted_low[starts], sums


def _mapped(path: Path, kind: np.dtype[Any]) -> Records:
    """The records of a file, read when they are needed."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r")


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
        return _mapped(self.path, RECORD)


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
        self._waiting: list[tuple[Hashes, Hashes, Words]] = []
        self._size = 0
        self._descriptor = -1

    def __enter__(self) -> PersonCounter:
        exclusive = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            self._descriptor = os.open(self.partial, exclusive, PRIVATE_FILE)
        except OSError as error:
            raise _unwritable(self.partial, error) from None
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # until it is renamed or left: it is in use
        return self

    def __exit__(self, *_: object) -> None:
        for path in (*self._runs, self.partial):
            path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def add(self, ids: Any, counts: Words | None = None) -> None:
        """Add rows: ids as a list or an Arrow array of text, each once or with its number of rows."""
        hashes_of = self.hashes.of if isinstance(ids, list) else self.hashes.of_arrow
        high, low = _words(hashes_of(cast("Any", ids)))
        rows = np.ones(high.size, dtype=np.uint64)
        if counts is not None:
            rows = counts.astype(np.uint64)
        self._waiting.append((high, low, rows))
        self._size += high.size
        if self._size >= RUN:
            self._spill()

    def _spill(self) -> None:
        columns = [np.concatenate(column) for column in zip(*self._waiting, strict=True)]
        high, low, rows = _combined(*columns)
        path = self.folder / f"{self.token}.{len(self._runs)}.partial"
        self._runs.append(path)
        records = _records(high, low, rows, TOTAL, "units")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE)
            with open(descriptor, "wb") as file:
                file.write(records.view(np.uint8).data)
        except OSError as error:
            raise _unwritable(path, error) from None
        self._waiting = []
        self._size = 0

    def finish(self) -> Segment:
        """Write the segment under a name that nobody reads yet, and sync it."""
        if self._waiting:
            self._spill()
        runs = [_mapped(path, TOTAL) for path in self._runs]
        digest = hashlib.sha256()
        person_count = 0
        row_count = 0
        most_rows = 0
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                for records in _ranges(runs):
                    high, low, rows = _combined(*_joined(records, "units"))
                    most_rows = max(most_rows, int(rows.max(initial=0)))
                    if most_rows > MAX_ROWS:
                        raise ParameterError("people", most_rows, "rows of one person are too many")
                    combined = _records(high, low, rows, RECORD, "rows")
                    encoded = combined.view(np.uint8).data
                    file.write(encoded)
                    digest.update(encoded)
                    person_count += rows.size
                    row_count += int(rows.sum())
            os.fsync(self._descriptor)
        except OSError as error:
            raise _unwritable(self.partial, error) from None
        return Segment(
            path=self.partial,
            persons=person_count,
            rows=row_count,
            most=most_rows,
            sha256=digest.hexdigest(),
        )


def _unwritable(path: Path, error: OSError) -> StorageError:
    consequence = "nothing was charged and nothing may be released"
    reason = f"cannot be written ({error.strerror}); {consequence}"
    return StorageError("ledger", str(path), reason)


def _emptied(path: Path) -> int:
    """Descriptor of a file that is written anew, readable by its owner alone."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)


def _records(
    high: Hashes,
    low: Hashes,
    amounts: Words,
    kind: np.dtype[Any],
    name: str,
) -> Records:
    records = np.empty(high.size, dtype=kind)
    records["high"] = high
    records["low"] = low
    records[name] = amounts
    return records


def _joined(
    files: Sequence[Records],
    name: str,
) -> tuple[Hashes, Hashes, Words]:
    """The columns of records, one file after the other: of the hashes, and of this name."""

    def column_of(field: str) -> Words:
        columns = [np.zeros(0, dtype=np.uint64)]
        for records in files:
            columns.append(records[field].astype(np.uint64))
        return np.concatenate(columns)

    return column_of("high"), column_of("low"), column_of(name)


def _ranges(files: Sequence[Records]) -> Iterator[list[Records]]:
    """The records of sorted files, one range of the hashes at a time: by their first bytes."""
    record_count = sum(map(len, files))
    range_count = 1
    while range_count < MOST_RANGES and record_count > range_count * RANGE_RECORDS:
        range_count *= 2
    edges = np.arange(1, range_count) * (MOST_RANGES // range_count)
    cuts_by_file = [_cuts(records, edges) for records in files]
    for index in range(range_count):
        slices: list[Records] = []
        for records, cuts in zip(files, cuts_by_file, strict=True):
            slices.append(records[cuts[index] : cuts[index + 1]])
        yield slices


def _cuts(records: Records, edges: npt.NDArray[np.int_]) -> list[int]:
    """Where a sorted file begins, where the first byte of its hashes reaches each edge, its end."""
    first_bytes = np.ascontiguousarray(_first_bytes(records))
    inner_cuts = np.searchsorted(first_bytes, edges.astype(np.uint8))
    return [0, *inner_cuts.tolist(), len(records)]


def _first_bytes(records: Records) -> Bytes:
    """(n,) the first byte of each record, which is the highest of its hash."""
    assert records.dtype.fields is not None
    assert records.dtype.fields["high"] == (np.dtype(">u8"), 0), "the hash comes first"
    octets = np.asarray(records).view(np.uint8)
    return octets.reshape(len(records), records.dtype.itemsize)[:, 0]


def _position(records: Records, high: int) -> int:
    """Where half a hash would stand.

    By halving, as a column of a mapped file would be copied whole.
    """
    start = 0
    end = len(records)
    while start < end:
        middle = (start + end) // 2
        if int(records["high"][middle]) < high:
            start = middle + 1
        else:
            end = middle
    return start


# Totals


@final
class PeopleStore:
    """The folder beside a ledger that holds its segments and totals; every method runs under the
    ledger's lock.

    Arguments:
        folder: made when it is first needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Makes the folder, readable by its owner alone."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.folder, error) from None

    def segment(self, token: str) -> Path:
        """The file of a run."""
        return self.folder / f"{token}.segment"

    def check(self, lines: dict[str, PeopleLine]) -> None:
        """Set aside segments that no line names, remove what nobody writes any more, and miss none.

        Raises:
            FileFormatError: a line whose segment is missing or of another size.
        """
        if not self.folder.is_dir():
            if lines:
                raise FileFormatError(f"{self.folder}: is missing; restore it with its ledger")
            return
        for path in sorted(self.folder.iterdir()):
            token = path.name.partition(".")[0]
            if path.suffix == ".segment" and token not in lines:
                path.rename(path.with_suffix(".orphan"))
            elif path.suffix == ".partial" and _forsaken(self.folder / f"{token}.partial"):
                path.unlink(missing_ok=True)
            elif path.name.startswith("draft-") or path.suffix == ".adopted":
                path.unlink(missing_ok=True)  # who wrote it held the lock that is ours now
        for token, line in lines.items():
            path = self.segment(token)
            if not path.is_file():
                raise FileFormatError(f"{path}: is missing; restore it with its ledger")
            if path.stat().st_size != line.persons * RECORD.itemsize:
                raise FileFormatError(f"{path}: has another size; restore it with its ledger")

    def totals(self, lines: Sequence[PeopleLine]) -> Records:
        """(persons,) hash and units of everybody, over all lines that count.

        Rolled forward or made again.

        Raises:
            FileFormatError: totals of lines that the ledger does not have, or a segment that was
                changed.
        """
        line_count = 0
        current: Records = np.zeros(0, dtype=TOTAL)
        tokens = [line.token for line in lines]
        for path in self._totals_files():
            _, digits, token = path.name.split("-")
            covered = int(digits)
            if token_in(tokens, covered, token):
                if covered > line_count:
                    line_count = covered
                    current = _mapped(path, TOTAL)
            elif token in tokens:
                path.unlink(missing_ok=True)
            else:
                message = "is ahead of its ledger, which lost lines; restore the ledger"
                raise FileFormatError(f"{path}: {message}")
        for line in lines[line_count:]:
            line_count += 1
            self._verify(line)
            name = totals_name(line_count, line.token)
            excess = self.charged(
                current,
                self.records(line),
                name=name,
                units=line.units,
                limit=MAX_UNITS,
            )
            if excess is not None:  # of merged ledgers alone: a charge is refused beforehand
                message = f"merged charges of one person exceed epsilon {MAX_UNITS // UNITS:,}"
                raise FileFormatError(f"{self.folder}: {message}; keep the ledgers apart")
            current = self.adopt_totals(name)
        return current

    def _totals_files(self) -> list[Path]:
        return sorted(self.folder.glob("totals-*"))

    def _verify(self, line: PeopleLine) -> None:
        with self.segment(line.token).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != line.sha256:
            raise FileFormatError(f"{self.segment(line.token)}: was changed; restore it")

    def charged(
        self,
        totals: Records,
        records: Records,
        *,
        name: str,
        units: int,
        limit: int,
    ) -> Excess | None:
        """Drafts totals with a segment charged, under a name that nobody reads until `adopt_totals`.

        Arguments:
            records: of the segment.
            name: that the totals will have.
            units: price of a row.
            limit: units that nobody's total may exceed.

        Returns: a person whom their rows would bring above the limit; None where all fit.
        """
        draft = self.folder / f"draft-{name}"
        try:
            with open(_emptied(draft), "wb") as file:
                for earlier, segment in _ranges([totals, records]):
                    outcome = _with_charges(earlier, segment, units=units, limit=limit)
                    if isinstance(outcome, Excess):
                        draft.unlink()
                        return outcome
                    file.write(outcome.view(np.uint8).data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritable(draft, error) from None
        return None

    def adopt_totals(self, name: str) -> Records:
        """Replaces the earlier totals by a draft, after the line of the log that they end with."""
        path = self.folder / name
        try:
            os.replace(self.folder / f"draft-{name}", path)
        except OSError as error:
            raise _unwritable(path, error) from None
        for earlier in self._totals_files():
            if earlier != path:
                earlier.unlink(missing_ok=True)
        return _mapped(path, TOTAL)

    def records(self, line: PeopleLine) -> Records:
        """The records of a run."""
        return _mapped(self.segment(line.token), RECORD)

    def listed(self, line: PeopleLine) -> Iterator[tuple[Bytes, int]]:
        """The hash and the rows of each person of a run."""
        for (records,) in _ranges([self.records(line)]):
            high, low, rows = _joined([records], "rows")
            yield from zip(_bytes_of(high, low), rows.tolist(), strict=True)

    def holds(
        self,
        line: PeopleLine,
        high: int,
        low: int,
    ) -> bool:
        """Whether a run charged this person."""
        records = self.records(line)
        position = _position(records, high)
        while position < len(records) and int(records["high"][position]) == high:
            if int(records["low"][position]) == low:
                return True
            position += 1
        return False

    def shared(self, lines: Sequence[PeopleLine]) -> int:
        """How many people are in more than one of these runs."""
        shared_count = 0
        for segments in _ranges([self.records(line) for line in lines]):
            high, low, _ = _joined(segments, "rows")
            order = np.lexsort((low, high))
            high = high[order]
            low = low[order]
            is_repeated = np.zeros(high.size + 1, dtype=bool)
            is_repeated[1:-1] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
            is_first_repetition = is_repeated[1:] & ~is_repeated[:-1]
            shared_count += int(is_first_repetition.sum())
        return shared_count

    def commit(self, segment: Segment, token: str) -> None:
        """Gives a segment its name; the line that counts it comes next."""
        try:
            os.rename(segment.path, self.segment(token))
            sync_folder(self.folder)
        except OSError as error:
            raise _unwritable(self.segment(token), error) from None

    def adopt(self, path: Path, token: str) -> None:
        """Copy a segment of another ledger under this name; the line that counts it comes next."""
        draft = self.folder / f"{token}.adopted"
        try:
            with path.open("rb") as source, open(_emptied(draft), "wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())
            os.rename(draft, self.segment(token))
            sync_folder(self.folder)
        except OSError as error:
            raise _unwritable(self.segment(token), error) from None

    def forget_totals(self) -> None:
        """Remove totals, to be made again from segments."""
        for path in self._totals_files():
            path.unlink(missing_ok=True)


@final
@dataclass(frozen=True, kw_only=True)
class Excess:
    """A person whose rows do not fit.

    Arguments:
        hashed: (16,) the hash.
        units: charged to them so far.
    """

    hashed: Bytes
    units: int


def _with_charges(
    totals: Records,
    segment: Records,
    *,
    units: int,
    limit: int,
) -> Records | Excess:
    """Totals of some people with those of a segment, each row of which costs so many units."""
    total_high, total_low, amounts = _joined([totals], "units")
    high, low, rows = _joined([segment], "rows")
    positions, is_present = _positions(total_high, total_low, high, low)
    charged_units = np.zeros(high.size, dtype=np.uint64)
    charged_units[is_present] = amounts[positions[is_present]]
    remaining_units = np.uint64(limit) - np.minimum(charged_units, np.uint64(limit))
    exceeds = (charged_units > limit) | (rows > remaining_units // np.uint64(units))
    if exceeds.any():
        person = int(np.argmax(exceeds))
        hashed = _bytes_of(high[person : person + 1], low[person : person + 1])[0]
        return Excess(hashed=hashed, units=int(charged_units[person]))
    charges = rows * np.uint64(units)  # does not wrap: at most what remained
    amounts[positions[is_present]] += charges[is_present]
    newcomers = np.flatnonzero(~is_present)
    inserted = positions[newcomers] + np.arange(newcomers.size)
    is_earlier = np.ones(totals.size + newcomers.size, dtype=bool)
    is_earlier[inserted] = False
    merged = np.empty(is_earlier.size, dtype=TOTAL)
    columns = {
        "high": (total_high, high),
        "low": (total_low, low),
        "units": (amounts, charges),
    }
    for field, (present, added) in columns.items():
        merged[field][is_earlier] = present
        merged[field][inserted] = added[newcomers]
    return merged


def totals_name(count: int, token: str) -> str:
    """The file of totals over so many lines, of which that one is the last."""
    return f"totals-{count}-{token}"


def token_in(tokens: Sequence[str], count: int, token: str) -> bool:
    """Whether the first lines, so many, end with that token."""
    return 0 < count <= len(tokens) and tokens[count - 1] == token


def lookup(
    totals: Records,
    high: Hashes,
    low: Hashes,
) -> Words:
    """Units of each of these hashes in sorted totals; 0 where it is not among them."""
    total_high, total_low, total_units = _joined([totals], "units")
    positions, is_present = _positions(total_high, total_low, high, low)
    units = np.zeros(high.size, dtype=np.uint64)
    units[is_present] = total_units[positions[is_present]]
    return units


def largest_totals(units: Words, count: int) -> list[int]:
    """Positions of the largest totals, so many or all, the largest first."""
    if not units.size:
        return []
    first = units.size - min(count, units.size)
    largest = np.argpartition(units, first)[first:]
    ascending = np.argsort(units[largest])
    return largest[ascending[::-1]].tolist()


def _positions(
    sorted_high: Hashes, sorted_low: Hashes, high: Hashes, low: Hashes
) -> tuple[IndexArray, Booleans]:
    """Where each hash stands among sorted ones, or would stand, and whether it is among them."""
    positions = np.searchsorted(sorted_high, high)
    is_present = np.zeros(high.size, dtype=bool)
    pending = np.flatnonzero(positions < sorted_high.size)
    while pending.size:
        # Of records with the same upper half, one after the other is compared.
        has_same_half = sorted_high[positions[pending]] == high[pending]
        pending = pending[has_same_half]
        candidates = sorted_low[positions[pending]]
        wanted = low[pending]
        is_present[pending[candidates == wanted]] = True
        pending = pending[candidates < wanted]
        positions[pending] += 1
        pending = pending[positions[pending] < sorted_high.size]
    return positions, is_present


def _forsaken(partial: Path) -> bool:
    """Whether no process holds the lock of a segment that is being written."""
    try:
        descriptor = os.open(partial, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


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
