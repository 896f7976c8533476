"""The folder beside a ledger that holds the segments of its people, and the totals made of them.

Segments are part of the ledger; totals are derived from them, and made again where they are
missing, cut, or of other lines than those that count.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import final

import numpy as np

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import PRIVATE_FILE, resolved, sync_folder
from mezzotint.core.types import ByteArray
from mezzotint.privacy.people import (
    MAX_UNITS,
    UNITS,
    Excess,
    PeopleLine,
    Segment,
    unwritable,
    with_charges,
)
from mezzotint.privacy.sorted_records import (
    RECORD,
    TOTAL,
    Records,
    bytes_of,
    columns_of,
    mapped_records,
    pieces_of,
    position_of,
    ranges_of,
    sums_by_hash,
)

DIGITS = 16
"""Hexadecimal digits of a digest in the name of a file."""


def _emptied(path: Path) -> int:
    """Descriptor of a file that is written anew, readable by its owner alone."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)


def people_folder(path: str | os.PathLike[str]) -> Path:
    """Where the people of a ledger are: beside the ledger itself, where links to it lead.

    Raises:
        ParameterError: the file system takes no name as long as that.
    """
    folder = Path(f"{resolved(path, parameter='path')}.people")
    if folder.parent.is_dir():
        most = os.pathconf(folder.parent, "PC_NAME_MAX")  # below 1 where nothing is said
        excess = len(os.fsencode(folder.name)) - most
        if excess > 0 and most > 0:
            remedy = f"files beside it would have too long a name; shorten its by {excess} bytes"
            raise ParameterError("path", os.fspath(path), remedy)
    return folder


@final
class PeopleStore:
    """The folder beside a ledger that holds its segments and totals; every method runs under the
    ledger's lock.

    Arguments:
        folder: made when it is first needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._whole: set[str] = set()
        """Files of totals whose content was compared with their names."""

    def prepare(self) -> None:
        """Makes the folder, readable by its owner alone."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self.folder.parent)
        except OSError as error:
            raise unwritable(self.folder, error) from None

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
        try:
            for path in sorted(self.folder.iterdir()):
                self._tidy(path, lines)
        except OSError as error:
            raise unwritable(self.folder, error) from None
        for token, line in lines.items():
            path = self.segment(token)
            if not path.is_file():
                raise FileFormatError(f"{path}: is missing; restore it with its ledger")
            if path.stat().st_size != line.persons * RECORD.itemsize:
                raise FileFormatError(f"{path}: has another size; restore it with its ledger")

    def _tidy(self, path: Path, lines: dict[str, PeopleLine]) -> None:
        """Sets a file aside, removes it or leaves it, as `check` says."""
        token = path.name.partition(".")[0]
        if path.suffix == ".segment" and token not in lines:
            path.rename(path.with_suffix(".orphan"))
        elif path.suffix == ".orphan" and token in lines:
            # Set aside while an older copy of the ledger stood here.
            path.rename(path.with_suffix(".segment"))
        elif path.suffix == ".partial" and _forsaken(self.folder / f"{token}.partial"):
            path.unlink(missing_ok=True)
        elif path.name.startswith("draft-") or path.suffix == ".adopted":
            path.unlink(missing_ok=True)  # who wrote it held the lock that is ours now

    def totals(self, lines: Sequence[PeopleLine], tokens_of_ledger: Set[str]) -> Records:
        """(persons,) hash and units of everybody, over all lines that count.

        Rolled forward or made again.

        Arguments:
            lines: those that count.
            tokens_of_ledger: of all lines, withdrawn ones too.

        Raises:
            FileFormatError: totals of lines that the ledger does not have, or a segment that was
                changed.
        """
        line_count = 0
        current: Records = np.zeros(0, dtype=TOTAL)
        tokens = [line.token for line in lines]
        for path in self._totals_files():
            _prefix, count, token, *_digest = path.name.split("-")
            if token not in tokens_of_ledger:
                message = "is ahead of its ledger, which lost lines; restore the ledger"
                raise FileFormatError(f"{path}: {message}")
            if not token_in(tokens, int(count), token) or not self._is_whole(path):
                self._remove(path)
            elif int(count) > line_count:
                line_count = int(count)
                current = mapped_records(path, TOTAL)
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

    def _is_whole(self, path: Path) -> bool:
        """Whether totals are what was written: others would forget what people have spent. Those of
        before, whose names have no digest, are made again.
        """
        if path.name not in self._whole:
            if not path.name.endswith(f"-{_digest(path)[:DIGITS]}"):
                return False
            self._whole.add(path.name)
        return True

    def _verify(self, line: PeopleLine) -> None:
        if _digest(self.segment(line.token)) != line.sha256:
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

        Returns: a person whom their rows would bring above the limit, and what would help all such
            people; None where all fit.
        """
        draft = self.folder / f"draft-{name}"
        excess = None
        try:
            with open(_emptied(draft), "wb") as file:
                for earlier, segment in ranges_of([totals, records]):
                    outcome = with_charges(earlier, segment, units=units, limit=limit)
                    if isinstance(outcome, Excess):
                        excess = outcome.beside(excess)
                    elif excess is None:
                        for piece in pieces_of(outcome, TOTAL):
                            file.write(piece)
                if excess is not None:
                    draft.unlink()
                    return excess
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(draft, error) from None
        return None

    def adopt_totals(self, name: str) -> Records:
        """Replaces the earlier totals by a draft, after the line of the log that they end with.

        Raises:
            StorageError: the draft cannot be renamed, or the earlier totals not removed.
        """
        draft = self.folder / f"draft-{name}"
        try:
            path = draft.rename(self.folder / f"{name}-{_digest(draft)[:DIGITS]}")
        except OSError as error:
            raise unwritable(draft, error) from None
        for earlier in self._totals_files():
            if earlier != path:
                self._remove(earlier)
        self._whole.add(path.name)
        return mapped_records(path, TOTAL)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(path, error) from None

    def records(self, line: PeopleLine) -> Records:
        """The records of a run."""
        return mapped_records(self.segment(line.token), RECORD)

    def listed(self, line: PeopleLine) -> Iterator[tuple[ByteArray, int]]:
        """The hash and the rows of each person of a run."""
        for (records,) in ranges_of([self.records(line)]):
            high, low, rows = columns_of([records])
            yield from zip(bytes_of(high, low), rows.tolist(), strict=True)

    def holds(
        self,
        line: PeopleLine,
        high: int,
        low: int,
    ) -> bool:
        """Whether a run charged this person."""
        records = self.records(line)
        position = position_of(records, high)
        while position < len(records) and int(records["high"][position]) == high:
            if int(records["low"][position]) == low:
                return True
            position += 1
        return False

    def shared(self, lines: Sequence[PeopleLine]) -> int:
        """How many people are in more than one of these runs."""
        shared_count = 0
        for segments in ranges_of([self.records(line) for line in lines]):
            high, low, rows = columns_of(segments)
            # Rows become how often each person is there: once in each segment.
            segment_counts = sums_by_hash(high, low, np.ones_like(rows))[2]
            shared_count += int((segment_counts > 1).sum())
        return shared_count

    def commit(self, segment: Segment, token: str) -> None:
        """Gives a segment its name; the line that counts it comes next."""
        try:
            os.rename(segment.path, self.segment(token))
            sync_folder(self.folder)
        except OSError as error:
            raise unwritable(self.segment(token), error) from None

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
            raise unwritable(self.segment(token), error) from None

    def forget_totals(self) -> None:
        """Remove totals, to be made again from segments."""
        for path in self._totals_files():
            self._remove(path)


def totals_name(count: int, token: str) -> str:
    """The file of totals over so many lines, of which that one is the last; a digest of its content
    follows when it is written.
    """
    return f"totals-{count}-{token}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def token_in(tokens: Sequence[str], count: int, token: str) -> bool:
    """Whether the first lines, so many, end with that token."""
    return 0 < count <= len(tokens) and tokens[count - 1] == token


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
