"""A public lot: each person is asked one of several questions, whatever their values are.

Pure epsilons about one person add up. Where everybody answers one question, drawn by lot, one
report carries the budget of all: better than a part of it for each below certain epsilons
(docs/proofs/estimation.md, E11 and E13).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.columns import Dialect
from mezzotint.collect.listing import SourceFile
from mezzotint.collect.people import hashed_ids, ids_of, refuse_stream
from mezzotint.collect.source import Selection, Source, Wanted
from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import Record
from mezzotint.core.values import arrow_array, identities
from mezzotint.privacy.people import IdHash

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
    asked = [np.zeros(0, dtype=bool)]
    for batch in source.batches():
        starts.setdefault(batch.file.name, batch.first)
        asked.append(_drawn(ids_of(batch, lot.people, parameter="lot"), lot) == lot.question)
    is_asked = np.concatenate(asked)
    asked_bits = np.packbits(is_asked, bitorder="little")
    if within is None:
        return Selection(
            bits=asked_bits,
            starts=starts,
            rows=is_asked.size,
            kept=int(is_asked.sum()),
            shift=None,
            asked=asked_bits,
        )
    kept_bits = asked_bits & within.bits
    kept_count = int(np.unpackbits(kept_bits).sum())
    return replace(within, bits=kept_bits, kept=kept_count, asked=asked_bits)
