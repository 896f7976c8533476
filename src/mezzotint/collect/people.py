"""Who gave which rows: rows of each person counted, and at most K of them kept in each period.

A row's priority is AES of its number alone. A private value in it, even hashed, would make which rows are
kept a function of the values, and cost an infinite epsilon.

A public lot asks each person one of several questions, whatever their values are. Pure epsilons about
one person add up: where everybody answers one question, drawn by lot, one report carries the budget
of all, which is better than a part of it for each below certain epsilons (docs/proofs/estimation.md,
E11 and E13).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.collect.columns import Dialect
from mezzotint.collect.listing import SourceFile
from mezzotint.collect.source import Batch, Selection, Source, Wanted
from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import Record
from mezzotint.core.table import MISSING
from mezzotint.core.types import ByteArray
from mezzotint.core.values import arrow, arrow_array, identities, plain, stripped
from mezzotint.privacy.people import IdHash

compute: Any = pc  # its functions are made at import time, unseen by type checkers


BUCKET_BITS = 6
BUCKETS = 1 << BUCKET_BITS
"""Files that rows are spilled to, by the hash of their person and period; one is sorted at a time."""

NUMBERED = np.dtype([("group", "<u8"), ("priority", "<u8"), ("row", "<u8")])

_MIX = np.uint64(0x9E3779B97F4A7C15)


def select_rows(
    files: tuple[SourceFile, ...],
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
    hashes = IdHash(key)
    cipher = Cipher(algorithms.AES(key), modes.ECB())  # a permutation of row numbers
    others = {person: "people"}
    if period is not None:
        others[period] = "per"
    source = Source(files=files, wanted=Wanted(others=others), dialect=dialect)
    refuse_stream(source, "charge_by", person)
    starts: dict[str, int] = {}
    rows = 0
    with TemporaryDirectory() as folder, ExitStack() as stack:
        buckets = [stack.enter_context(open(f"{folder}/{i}", "wb")) for i in range(BUCKETS)]
        for batch in source.batches():
            starts.setdefault(batch.file.name, batch.first)
            groups = hashed_ids(ids_of(batch, person), hashes)
            if period is not None:
                groups = groups + _MIX * hashed_ids(_periods(batch, period), hashes)
            numbers = np.arange(batch.first, batch.first + batch.rows, dtype=np.uint64)
            _spill(buckets, groups, _priorities(numbers, cipher), numbers)
            rows = batch.first + batch.rows
        for bucket in buckets:
            bucket.flush()
        bits = np.zeros((rows + 7) // 8, dtype=np.uint8)
        sizes: Counter[int] = Counter()
        for index in range(BUCKETS):
            numbered = np.fromfile(f"{folder}/{index}", dtype=NUMBERED)
            sizes.update(_select(numbered, at_most, bits).tolist())
    return Selection(
        bits=bits,
        starts=starts,
        shift=total_variation(sizes, at_most),
    )


def total_variation(sizes: Mapping[int, int], at_most: int) -> float:
    """Between all rows and at most K of each group, from how many groups have how many rows.

    Example:
        >>> from mezzotint.collect.people import total_variation
        >>> total_variation({1: 1, 3: 1}, 1)
        0.25
    """
    rows = sum(size * groups for size, groups in sizes.items())
    kept_rows = sum(min(size, at_most) * groups for size, groups in sizes.items())
    if rows == 0:
        return 0.0
    distance = 0.0
    for size, groups in sizes.items():
        distance += groups * abs(size / rows - min(size, at_most) / kept_rows)
    return distance / 2


def refuse_stream(source: Source, parameter: str, column: str) -> None:
    """Raises ParameterError for ids on standard input, which is read once."""
    if source.is_stream:
        remedy = "is read before the rows are; name a file, not standard input"
        raise ParameterError(parameter, column, remedy)


def ids_of(batch: Batch, column: str, *, parameter: str = "charge_by") -> pa.Array:
    """The person of each row, as `identities` says; raises ParameterError for a row without one."""

    def refuse(index: int | None, words: str) -> ParameterError:
        if index is not None:
            words = f"data row {batch.row + index + 1} of {batch.file.name} {words}"
        return ParameterError(parameter, column, words)

    return identities(batch.values.column(column), refuse, markers=batch.markers)


def _periods(batch: Batch, column: str) -> pa.Array:
    """The period of each row, as text; a missing one is a period of its own."""
    periods = stripped(batch.values.column(column))
    if pa.types.is_nested(periods.type) or pa.types.is_binary(periods.type):
        remedy = f"holds {periods.type}; a period is a number, text or a date"
        raise ParameterError("per", column, remedy)
    return compute.fill_null(compute.cast(periods, pa.string()), MISSING)


def hashed_ids(entries: pa.Array, hashes: IdHash) -> npt.NDArray[np.uint64]:
    """(n,) a hash of each entry as text, computed once for each distinct one."""
    coded = entries.dictionary_encode()
    distinct = compute.cast(coded.dictionary, pa.string())
    words = np.ascontiguousarray(hashes.of_arrow(distinct)).view("<u8")[:, 0]
    return words[plain(coded.indices)]


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
    numbered = np.rec.fromarrays([groups, priorities, numbers], dtype=NUMBERED)
    bucket_of_row = groups >> np.uint64(64 - BUCKET_BITS)
    for index, bucket in enumerate(buckets):
        bucket.write(numbered[bucket_of_row == index].tobytes())


def _select(numbered: npt.NDArray[Any], at_most: int, bits: ByteArray) -> npt.NDArray[np.intp]:
    """Sets the bits of the rows of least priority of each group; the groups' sizes."""
    keys = (numbered["row"], numbered["priority"], numbered["group"])
    order = np.lexsort(keys)
    ordered = numbered[order]
    _, starts, sizes = np.unique(ordered["group"], return_index=True, return_counts=True)
    ranks = np.arange(ordered.size) - np.repeat(starts, sizes)
    rows = ordered["row"][ranks < at_most].astype(np.int64)
    np.bitwise_or.at(bits, rows // 8, np.uint8(1) << (rows % 8).astype(np.uint8))
    return sizes


def people_in(source: Source, column: str) -> Iterator[tuple[Batch, pa.Array]]:
    """Each batch of a source, and the person of each of its rows that counts, as text.

    Arguments:
        source: of a column of ids, also one spelled by folders.
        column: its name.

    Raises:
        ParameterError: a row without an id, or standard input, which is read once.
    """
    refuse_stream(source, "charge_by", column)
    for batch in source.batches():
        yield batch, people_of(batch, column)


def people_of(batch: Batch, column: str) -> pa.Array:
    """The person of each row of a batch that counts, as text; ParameterError for a row without
    one.
    """
    ids = ids_of(batch, column)
    if batch.selected is not None:
        ids = ids.filter(arrow(batch.selected))
    return compute.cast(ids, pa.string())


# A public lot -----------------------------------------------------------------------------------

MOST_QUESTIONS = 1 << 20
"""A remainder of 64 bits by so few is uniform but for 2^-44."""


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Lot(Record):
    """The question of a run, and the public lot that says whom it asks.

    Arguments:
        people: column of ids.
        question: the one that this run asks, from 1 on.
        questions: how many there are: one run each, under the same name.
        name: of the survey. Another one draws another lot: fix it before anybody sees a value.

    Raises:
        ParameterError: a question that is none of them.

    Example:
        >>> lot = mz.collect.Lot(people="id", question=2, questions=4, name="spring")
        >>> lot.question, lot.questions
        (2, 4)
    """

    # Fields are keys of the records of folders of a run, which refuse a run with others.
    people: str
    question: int
    questions: int
    name: str

    def __post_init__(self) -> None:
        check_count("questions", self.questions, least=1)
        if self.questions > MOST_QUESTIONS:
            raise ParameterError("questions", self.questions, f"use at most {MOST_QUESTIONS:,}")
        check_count("question", self.question, least=1)
        if self.question > self.questions:
            remedy = f"is none of {self.questions}; number them from 1"
            raise ParameterError("question", self.question, remedy)
        if not self.name:
            remedy = "name the survey, the same for all its questions"
            raise ParameterError("name", self.name, remedy)

    def __str__(self) -> str:
        return f"question {self.question} of {self.questions}, by the lot {self.name!r}"


def question_of(
    ids: npt.ArrayLike | pa.Array, *, questions: int, name: str
) -> npt.NDArray[np.int64]:
    """The question that each person is asked, from 1 on: for whoever asks on devices, or checks a
    lot.

    Arguments:
        ids: (n,) text or integers; the integer 7 and the text "7" are one person.
        questions: how many there are.
        name: of the survey.

    Returns: (n,) numbers from 1 to `questions`.

    Raises:
        ParameterError: a person without an id.

    Guarantees: a function of id, number of questions and name alone, uniform over the questions
        and independent over persons as far as AES-256 is pseudorandom: the first 64 bits, little
        endian, of the hash that a ledger of people under the key SHA-256("mezzotint lot " + name)
        would take, modulo the number of questions, and 1.

    Example:
        >>> drawn = mz.collect.question_of(["ann", "bob", "eve"], questions=2, name="spring")
        >>> bool(((1 <= drawn) & (drawn <= 2)).all())
        True
    """
    lot = Lot(people="ids", question=1, questions=questions, name=name)

    def refuse(index: int | None, words: str) -> ParameterError:
        value = "given"
        if index is not None:
            value, words = "missing", f"person {index + 1} {words}"
        return ParameterError("ids", value, words)

    return _drawn(identities(arrow_array(ids, parameter="ids"), refuse), lot)


def _drawn(ids: pa.Array, lot: Lot) -> npt.NDArray[np.int64]:
    """(n,) the question of each person."""
    key = hashlib.sha256(b"mezzotint lot " + lot.name.encode()).digest()
    remainders = hashed_ids(ids, IdHash(key)) % np.uint64(lot.questions)
    return remainders.astype(np.int64) + 1


def asked_rows(
    files: tuple[SourceFile, ...],
    lot: Lot,
    *,
    dialect: Dialect,
    within: Selection | None,
) -> Selection:
    """The rows of the persons whom the lot asks the question of a run.

    Arguments:
        within: rows that are kept for other reasons, which the lot thins out; None for all.

    Raises:
        ParameterError: a row without an id, or standard input, which is read once.

    Guarantees: given ids, which are public here, the selection depends on no other value.
    """
    source = Source(files=files, wanted=Wanted(others={lot.people: "lot"}), dialect=dialect)
    refuse_stream(source, "lot", lot.people)
    starts: dict[str, int] = {}
    packed: list[ByteArray] = []
    pending = np.zeros(0, dtype=bool)  # fewer rows than make a byte
    for batch in source.batches():
        starts.setdefault(batch.file.name, batch.first)
        questions = _drawn(ids_of(batch, lot.people, parameter="lot"), lot)
        pending = np.append(pending, questions == lot.question)
        whole_bytes = pending.size // 8
        packed_rows = 8 * whole_bytes
        packed.append(np.packbits(pending[:packed_rows], bitorder="little"))
        pending = pending[packed_rows:]
    asked_bits = np.concatenate([*packed, np.packbits(pending, bitorder="little")])
    selection = within or Selection(bits=asked_bits, starts=starts, shift=None)
    return replace(selection, bits=asked_bits & selection.bits, asked=asked_bits)
