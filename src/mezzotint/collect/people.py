"""Who gave which rows: rows of each person counted, and at most K of them kept in each period.

A row's priority is AES of its number alone. A private value in it, even hashed, would make which rows are
kept a function of the values, and cost an infinite epsilon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.collect.columns import Dialect, open_file
from mezzotint.collect.listing import SourceFile
from mezzotint.core.errors import ParameterError
from mezzotint.core.table import MISSING
from mezzotint.privacy.people import IdHash

compute: Any = pc  # its functions are made at import time, unseen by type checkers


BUCKETS = 64
"""Files that rows are spilled to, by the hash of their person and period; one is sorted at a time."""

PLACE = np.dtype([("group", "<u8"), ("priority", "<u8"), ("row", "<u8")])

_MIX = np.uint64(0x9E3779B97F4A7C15)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """The rows of a data set that are kept, at most K for each person and period.

    Arguments:
        bits: a bit per row, in the order of the files.
        starts: path of a file -> the number of its first row.
        rows, kept: rows in all, and kept. Counted on raw data: not private.
        shift: total variation between the rows and those kept, in [0, 1]: times the range of a column it
            bounds how far the mean of the kept rows may be from that of all, on average. Not private.
    """

    bits: npt.NDArray[np.uint8]
    starts: Mapping[str, int]
    rows: int
    kept: int
    shift: float

    def mask(self, path: str, row: int, count: int) -> npt.NDArray[np.bool_]:
        """Which of these rows of a file, from a row on, are kept."""
        first = self.starts[path] + row
        start, stop = first // 8, (first + count + 7) // 8
        bits = np.unpackbits(self.bits[start:stop], bitorder="little")
        return bits[first - 8 * start :][:count].astype(bool)


def select_rows(
    files: Sequence[SourceFile],
    *,
    person: str,
    period: str | None,
    at_most: int,
    key: bytes,
    dialect: Dialect,
) -> Selection:
    """Keeps the `at_most` rows of least priority of each person, in each period where one is named.

    Arguments:
        person, period: columns; a missing period is a period of its own.
        key: of the priorities, fresh for every run; it may be public afterwards.

    Raises:
        ParameterError: a row without an id, or standard input, which is read once.

    Guarantees: given ids, periods and row numbers, which are public here, the selection does not depend on
        any other value. Memory is a bit per row and the largest of 64 buckets; a collision of two hashes
        merges two people, and keeps fewer rows.
    Source: docs/proofs/estimation.md, E12.
    """
    hashes, cipher = (
        IdHash(key),
        Cipher(algorithms.AES(key), modes.ECB()),
    )  # a permutation of row numbers
    starts: dict[str, int] = {}
    rows = 0
    with TemporaryDirectory() as folder, ExitStack() as stack:
        buckets = [stack.enter_context(open(f"{folder}/{i}", "wb")) for i in range(BUCKETS)]
        for file in files:
            _refuse_stream(file, person)
            starts[str(file.path)] = rows
            for batch in _columns_of(file, {person: "people", **_named(period)}, dialect):
                groups = _hashed(batch.column(person), hashes, file, rows - starts[str(file.path)])
                if period is not None:
                    groups = groups + _MIX * _hashed_periods(batch.column(period), hashes)
                numbers = np.arange(rows, rows + batch.num_rows, dtype=np.uint64)
                _spill(buckets, groups, _priorities(numbers, cipher), numbers)
                rows += batch.num_rows
        for bucket in buckets:
            bucket.flush()
        kept = np.zeros(rows, dtype=bool)
        sizes: dict[int, int] = {}
        for i in range(BUCKETS):
            places = np.fromfile(f"{folder}/{i}", dtype=PLACE)
            counts = _keep(places, at_most, kept)
            for size, many in zip(*np.unique(counts, return_counts=True), strict=True):
                sizes[int(size)] = sizes.get(int(size), 0) + int(many)
    return Selection(
        bits=np.packbits(kept, bitorder="little"),
        starts=starts,
        rows=rows,
        kept=int(kept.sum()),
        shift=total_variation(sizes, at_most),
    )


def total_variation(sizes: Mapping[int, int], at_most: int) -> float:
    """Between all rows and at most K of each group, from how many groups have how many rows.

    Example:
        >>> from mezzotint.collect.people import total_variation
        >>> total_variation({1: 1, 3: 1}, 1)
        0.25
    """
    rows = sum(size * many for size, many in sizes.items())
    kept = sum(min(size, at_most) * many for size, many in sizes.items())
    if rows == 0:
        return 0.0
    return 0.5 * sum(
        many * abs(size / rows - min(size, at_most) / kept) for size, many in sizes.items()
    )


def _named(period: str | None) -> dict[str, str]:
    return {} if period is None else {period: "per"}


def _refuse_stream(file: SourceFile, column: str) -> None:
    if file.path == "-":
        remedy = "is read before the rows are; name a file, not standard input"
        raise ParameterError("charge_by", column, remedy)


def _columns_of(
    file: SourceFile, extra: Mapping[str, str], dialect: Dialect
) -> Iterator[pa.RecordBatch]:
    with open_file(file, numeric=(), extra=extra, dialect=dialect) as opened:
        yield from opened.batches()


def _hashed(
    column: pa.Array, hashes: IdHash, file: SourceFile, before: int
) -> npt.NDArray[np.uint64]:
    """A hash of the person of each row; raises ParameterError for a row without one."""
    text = compute.cast(column, pa.string())
    if text.null_count:
        row = before + int(np.argmin(np.asarray(text.is_valid()))) + 1
        raise ParameterError("charge_by", row, f"data row {row} of {file.name} has no id")
    coded = text.dictionary_encode()
    words = np.ascontiguousarray(hashes.of_arrow(coded.dictionary)).view("<u8")[:, 0]
    return words[np.asarray(coded.indices)]


def _hashed_periods(column: pa.Array, hashes: IdHash) -> npt.NDArray[np.uint64]:
    text = compute.fill_null(compute.cast(column, pa.string()), MISSING)
    coded = text.dictionary_encode()
    words = np.ascontiguousarray(hashes.of_arrow(coded.dictionary)).view("<u8")[:, 0]
    return words[np.asarray(coded.indices)]


def _priorities(numbers: npt.NDArray[np.uint64], cipher: Any) -> npt.NDArray[np.uint64]:
    """AES of each row number."""
    blocks = np.zeros((numbers.size, 2), dtype="<u8")
    blocks[:, 0] = numbers
    encrypted = cipher.encryptor().update(blocks.tobytes())
    return np.frombuffer(encrypted, dtype="<u8")[::2]


def _spill(
    buckets: Sequence[Any],
    groups: npt.NDArray[np.uint64],
    priorities: npt.NDArray[np.uint64],
    numbers: npt.NDArray[np.uint64],
) -> None:
    places = np.empty(numbers.size, dtype=PLACE)
    places["group"], places["priority"], places["row"] = groups, priorities, numbers
    which = (groups >> np.uint64(58)).astype(np.intp)
    order = np.argsort(which, kind="stable")
    cuts = np.searchsorted(which[order], np.arange(BUCKETS + 1))
    for i, bucket in enumerate(buckets):
        part = order[cuts[i] : cuts[i + 1]]
        if part.size:
            bucket.write(places[part].tobytes())


def _keep(
    places: npt.NDArray[Any], at_most: int, kept: npt.NDArray[np.bool_]
) -> npt.NDArray[np.intp]:
    """Marks the rows of least priority of each group; the groups' sizes."""
    if not places.size:
        return np.zeros(0, dtype=np.intp)
    order = np.lexsort((places["row"], places["priority"], places["group"]))
    groups = places["group"][order]
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    sizes = np.diff(np.append(starts, groups.size))
    ranks = np.arange(groups.size) - np.repeat(starts, sizes)
    kept[places["row"][order][ranks < at_most]] = True
    return sizes


def people_in(
    files: Sequence[SourceFile],
    column: str,
    *,
    dialect: Dialect,
    selected: Selection | None = None,
) -> Iterator[tuple[pa.Array, np.ndarray[Any, np.dtype[np.uint64]]]]:
    """The people of each batch of a data set, each once, with their rows.

    Arguments:
        column: of ids, also one spelled by folders.
        dialect: how text files are spelled.
        selected: the rows that count; None for all.

    Raises:
        ParameterError: a row without an id, or standard input, which is read once.
    """
    for file in files:
        _refuse_stream(file, column)
        rows = 0
        for batch in _columns_of(file, {column: "people"}, dialect):
            text = compute.cast(batch.column(0), pa.string())
            if text.null_count:
                first = rows + int(np.argmin(np.asarray(text.is_valid()))) + 1
                raise ParameterError(
                    "charge_by", column, f"data row {first} of {file.name} has no id"
                )
            if selected is not None:
                text = text.filter(pa.array(selected.mask(str(file.path), rows, batch.num_rows)))
            coded = text.dictionary_encode()
            size = len(coded.dictionary)
            counts = np.bincount(np.asarray(coded.indices), minlength=size).astype(np.uint64)
            yield coded.dictionary, counts
            rows += batch.num_rows
