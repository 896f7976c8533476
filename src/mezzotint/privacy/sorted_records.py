"""Sorted records of people: the hash of an id, and an amount, in files and in memory.

Files are read and written one range of the hashes at a time, so that memory hardly grows with the
number of people. Hashes are keyed, hence evenly spread, and a range is found by their first bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.core.types import BoolArray, ByteArray, IndexArray, IntArray, Words

_HASH = [("high", ">u8"), ("low", ">u8")]

RECORD = np.dtype([*_HASH, ("rows", "<u4")])

TOTAL = np.dtype([*_HASH, ("units", "<u8")])

MOST_RANGES = 256

RANGE_RECORDS = 1 << 18
"""Merges work on one range of the hashes at a time, so that memory hardly grows with the people."""

WRITTEN_RECORDS = 1 << 14
"""Records that are put together at once: the processor's cache holds them until they are
written.
"""

Hashes = Words
"""(n,) one half of every hash."""

Kind = np.dtype[Any]
"""`RECORD` or `TOTAL`."""

Records = npt.NDArray[Any]
"""Of `RECORD` or `TOTAL`, sorted by hash."""

Columns = tuple[Hashes, Hashes, Words]
"""Both halves of every hash, and the rows or units of each."""


def bytes_of(high: Hashes, low: Hashes) -> ByteArray:
    halves = np.stack([high, low], axis=1)
    big_endian = halves.astype(">u8")
    hash_bytes = big_endian.view(np.uint8)
    return hash_bytes.reshape(len(high), 16)


def sums_by_hash(
    high: Hashes,
    low: Hashes,
    amounts: Words,
) -> Columns:
    """Sorted by hash, equal ones added up."""
    order = _order(high)
    sorted_high = high[order]
    sorted_low = low[order]
    same_half = ~_changes(sorted_high)
    if not same_half.any():
        return sorted_high, sorted_low, amounts[order]
    other_half_differs = _changes(sorted_low)
    if (same_half & other_half_differs).any():  # of two people: nearly never
        order = np.lexsort((low, high))
        sorted_high = high[order]
        sorted_low = low[order]
        other_half_differs = _changes(sorted_low)
    is_new = np.ones(high.size, dtype=bool)
    is_new[1:] = ~same_half | other_half_differs
    first_positions = np.flatnonzero(is_new)
    sums = np.add.reduceat(amounts[order], first_positions)
    return sorted_high[first_positions], sorted_low[first_positions], sums


def _changes(values: Hashes) -> BoolArray:
    """(n - 1,) whether each entry differs from the one before it."""
    return values[1:] != values[:-1]


def _order(high: Hashes) -> IndexArray:
    """Positions of hashes in ascending order; of equal ones in any.

    Each hash is sorted with its position in place of its last bits, because numbers are sorted
    several times as fast as positions. Where two hashes differ in those bits alone, which is rare,
    the positions are sorted.
    """
    hash_count = high.size
    position_bits = max(1, hash_count).bit_length()
    largest_position = (1 << position_bits) - 1
    position_mask = np.uint64(largest_position)
    positioned = high & ~position_mask
    positioned |= np.arange(hash_count, dtype=np.uint64)
    positioned.sort()
    positioned &= position_mask
    positions = positioned.view(np.int64)
    sorted_hashes = high[positions]
    is_misplaced = sorted_hashes[1:] < sorted_hashes[:-1]
    if is_misplaced.any():
        return np.argsort(high)
    return positions


def merged_sums(parts: Sequence[Columns]) -> Columns:
    """Sorted columns of distinct hashes as one, equal hashes added up."""
    from mezzotint.privacy.merging import merge  # heavy: numba

    merged_parts = list(parts)
    while len(merged_parts) > 1:
        firsts = merged_parts[::2]
        seconds = merged_parts[1::2]
        merged_parts = firsts[len(seconds) :]  # the last of an odd number
        for first, second in zip(firsts, seconds, strict=False):
            most_records = first[0].size + second[0].size
            columns = _empty_columns(most_records)
            count = merge(*first, *second, *columns)
            merged_parts.append(_slice_of(columns, slice(count)))
    return merged_parts[0]


def _empty_columns(record_count: int) -> Columns:
    """Columns to be written to."""
    high = np.empty(record_count, dtype=np.uint64)
    low = np.empty_like(high)
    amounts = np.empty_like(high)
    return high, low, amounts


def _slice_of(columns: Columns, span: slice) -> Columns:
    high, low, amounts = columns
    return high[span], low[span], amounts[span]


def mapped_records(path: Path, kind: Kind) -> Records:
    """The records of a file, read when they are needed."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r")


def records_of(columns: Columns, kind: Kind) -> Records:
    high, _low, _amounts = columns
    records = np.empty(high.size, dtype=kind)
    _fill(records, columns)
    return records


def _fields(records: Records) -> tuple[str, ...]:
    assert records.dtype.names is not None
    return records.dtype.names


def _fill(records: Records, columns: Columns) -> None:
    for field, column in zip(_fields(records), columns, strict=True):
        records[field] = column


def pieces_of(columns: Columns, kind: Kind) -> Iterator[memoryview]:
    """The bytes of records; each piece is valid until the next."""
    high, _low, _amounts = columns
    record_count = high.size
    records = np.empty(min(record_count, WRITTEN_RECORDS), dtype=kind)
    for first_record in range(0, record_count, WRITTEN_RECORDS):
        filled_records = records[: record_count - first_record]
        span = slice(first_record, first_record + len(filled_records))
        _fill(filled_records, _slice_of(columns, span))
        yield filled_records.view(np.uint8).data


def columns_of(files: Sequence[Records]) -> Columns:
    """The columns of records, one file after the other, whatever their amounts are."""
    record_count = sum(map(len, files))
    high, low, amounts = _empty_columns(record_count)
    first_record = 0
    for records in files:
        span = slice(first_record, first_record + len(records))
        _high, _low, amount = _fields(records)
        high[span] = records["high"]
        low[span] = records["low"]
        amounts[span] = records[amount]
        first_record = span.stop
    return high, low, amounts


def ranges_of(files: Sequence[Records]) -> Iterator[list[Records]]:
    """The records of sorted files, one range of the hashes at a time: by their first bytes."""
    record_count = sum(map(len, files))
    range_count = 1
    while range_count < MOST_RANGES and record_count > range_count * RANGE_RECORDS:
        range_count *= 2
    first_byte_count = MOST_RANGES // range_count
    edges = np.arange(first_byte_count, MOST_RANGES, first_byte_count)
    cuts_by_file = [_cuts(records, edges) for records in files]
    for index in range(range_count):
        slices: list[Records] = []
        for records, cuts in zip(files, cuts_by_file, strict=True):
            start, stop = cuts[index : index + 2]
            slices.append(_read(records, start, stop))
        yield slices


def _read(records: Records, start: int, stop: int) -> Records:
    """Some of all records of a file: read, as pages of mapped files count as memory of the process,
    which would grow with the files.
    """
    if not isinstance(records, np.memmap):
        return records[start:stop]
    assert records.filename is not None
    kind = records.dtype
    return np.fromfile(
        records.filename,
        dtype=kind,
        count=stop - start,
        offset=start * kind.itemsize,
    )


def _cuts(records: Records, edges: IntArray) -> list[int]:
    """Where a sorted file begins, where the first byte of its hashes reaches each edge, its end."""
    first_bytes = np.empty(len(records), dtype=np.uint8)
    for start in range(0, len(records), RANGE_RECORDS):
        stop = start + RANGE_RECORDS
        first_bytes[start:stop] = _first_bytes(_read(records, start, stop))
    byte_edges = edges.astype(np.uint8)
    inner_cuts = np.searchsorted(first_bytes, byte_edges)
    return [0, *inner_cuts.tolist(), len(records)]


def _first_bytes(records: Records) -> ByteArray:
    """(n,) the first byte of each record, which is the highest of its hash."""
    kind = records.dtype
    assert kind in (RECORD, TOTAL), "the hash comes first"
    all_bytes = np.asarray(records).view(np.uint8)
    record_bytes = all_bytes.reshape(len(records), kind.itemsize)
    return record_bytes[:, 0]


def position_of(records: Records, high: int) -> int:
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


def _positions(
    sorted_high: Hashes, sorted_low: Hashes, high: Hashes, low: Hashes
) -> tuple[IndexArray, BoolArray]:
    """Where each hash stands among sorted ones, or would stand, and whether it is among them."""
    positions = np.searchsorted(sorted_high, high)
    is_present = np.zeros(high.size, dtype=bool)
    pending = np.flatnonzero(positions < sorted_high.size)
    while pending.size:
        # Of records with the same upper half, one after the other is compared.
        candidate_halves = sorted_high[positions[pending]]
        pending = pending[candidate_halves == high[pending]]
        candidates = sorted_low[positions[pending]]
        wanted = low[pending]
        matched = pending[candidates == wanted]
        is_present[matched] = True
        pending = pending[candidates < wanted]
        positions[pending] += 1
        is_inside = positions[pending] < sorted_high.size
        pending = pending[is_inside]
    return positions, is_present


def lookup(
    totals: Records,
    high: Hashes,
    low: Hashes,
) -> Words:
    """Units of each of these hashes in sorted totals; 0 where it is not among them."""
    total_high, total_low, total_units = columns_of([totals])
    positions, is_present = _positions(total_high, total_low, high, low)
    units = np.zeros(high.size, dtype=np.uint64)
    present_positions = positions[is_present]
    units[is_present] = total_units[present_positions]
    return units


def largest_totals(units: Words, count: int) -> list[int]:
    """Positions of the largest totals, so many or all, the largest first."""
    if not units.size:
        return []
    first = max(0, units.size - count)
    largest = np.argpartition(units, first)[first:]
    ascending = np.argsort(units[largest])
    descending = ascending[::-1]
    return largest[descending].tolist()
