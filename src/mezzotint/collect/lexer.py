"""The records of CSV: where each ends, and whether every one of them is whole.

A parser that is handed blocks must not be trusted to notice a quote that never closes, or a field
that spans two blocks. So the raw bytes go through a lexer first: it counts the records, cuts the
blocks between them, and names the row of any fault. The grammar is that of RFC 4180, with any line
end and any of four delimiters.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, final

import numpy as np

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.kernels import compiled
from mezzotint.core.types import ByteArray, IntArray

DELIMITERS = ",\t;|"


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


MAX_HEADER = 1 << 28
"""Bytes: the first line may hold a table of 65536 levels, not a complete file without line ends."""


MAX_RECORD = 1 << 28
"""Bytes of the longest record."""


LF, CR, QUOTE, BACKSLASH, NUL, SPACE = 10, 13, 34, 92, 0, 32
START, PLAIN, QUOTED, CLOSED = 0, 1, 2, 3
"""States: at the start of a field, in it, between its quotes, behind its closing quote."""

(
    STATE,
    AFTER_CR,
    DELIMITER_COUNT,
    RECORD_BYTES,
    RECORDS,
    END,
    FAULT,
    QUOTE_ROW,
    PREVIOUS,
) = range(9)
"""Entries of the lexer's memory. END is the index behind the last complete record of a block."""

STRAY_CR, FIELD_COUNT, AFTER_QUOTE, NUL_BYTE, BACKSLASH_QUOTE = range(1, 6)
FAULTS = {
    STRAY_CR: "a carriage return outside quotes is not the end of a line; "
    "write the file with usual line ends",
    FIELD_COUNT: "it has another number of fields than the header",
    AFTER_QUOTE: "text follows a closing quote; double the quotes inside a quoted cell",
    NUL_BYTE: "it holds a NUL byte; is this a CSV file in UTF-8?",
    BACKSLASH_QUOTE: "a backslash stands before a quote inside quotes, "
    'which two dialects read differently; write "" for a quote or say that it is text '
    "(--backslash-is-text)",
}


@compiled
def _in_quotes(byte: int, previous: int, refuse_backslash: bool) -> tuple[int, int]:
    """The next state and the fault, 0 for none, of a byte between quotes."""
    if byte == QUOTE:
        if refuse_backslash and previous == BACKSLASH:
            return QUOTED, BACKSLASH_QUOTE
        return CLOSED, 0
    if byte == NUL:
        return QUOTED, NUL_BYTE
    return QUOTED, 0


@compiled
def scan(
    data: ByteArray,
    memory: IntArray,
    delimiter: int,
    columns: int,
    refuse_backslash: bool,
) -> None:
    """Run the lexer over the next block; the memory carries its state from block to block."""
    state = memory[STATE]
    after_cr = memory[AFTER_CR]
    previous = memory[PREVIOUS]
    delimiters = memory[DELIMITER_COUNT]
    record_bytes = memory[RECORD_BYTES]
    record_end = problem = np.int64(0)
    for index in range(data.size):
        byte = data[index]
        if state == QUOTED:
            record_bytes += 1
            state, problem = _in_quotes(byte, previous, refuse_backslash)
        elif after_cr and byte != LF:
            problem = STRAY_CR
        elif byte == LF:
            is_record = record_bytes > 0 or columns == 1
            if is_record and delimiters + 1 != columns:
                problem = FIELD_COUNT
                break
            memory[RECORDS] += is_record
            state = START
            after_cr = 0
            delimiters = 0
            record_bytes = 0
            record_end = index + 1
        elif byte == CR:
            after_cr = 1
        elif byte == delimiter:
            state = START
            delimiters += 1
            record_bytes += 1
        elif byte == QUOTE and state != PLAIN:
            if state == START:
                memory[QUOTE_ROW] = memory[RECORDS] + 1
            state = QUOTED
            record_bytes += 1
        elif state == CLOSED:
            problem = AFTER_QUOTE
        elif byte == NUL:
            problem = NUL_BYTE
        else:
            state = PLAIN
            record_bytes += 1
        if problem:
            break
        previous = byte
    memory[STATE] = state
    memory[AFTER_CR] = after_cr
    memory[PREVIOUS] = previous
    memory[DELIMITER_COUNT] = delimiters
    memory[RECORD_BYTES] = record_bytes
    memory[END] = record_end
    memory[FAULT] = problem


@compiled
def _count_filled(data: ByteArray) -> int:
    """Lines that are not blank, byte by byte."""
    lines = 0
    is_filled = False
    for byte in data:
        if byte == LF:
            lines += is_filled
            is_filled = False
        elif byte > SPACE:
            is_filled = True
    return lines + is_filled


@compiled
def count_lines(data: ByteArray) -> int:
    """Lines that are not blank; the last one needs no line end.

    Where no line begins with a blank, their ends are counted: a loop that the compiler vectorises.
    """
    ends = doubtful = 0
    for index in range(data.size - 1):
        is_end = data[index] == LF
        ends += is_end
        doubtful += is_end & (data[index + 1] <= SPACE)
    if data.size > 0 and data[0] > SPACE and doubtful == 0:
        return ends + 1
    return _count_filled(data)


@final
@dataclass(frozen=True, kw_only=True)
class Header:
    """The first record of a CSV file.

    Arguments:
        names: of the columns.
        delimiter: one character.
        comment: the first line where it begins with the mark of reports, without that mark; None
            for other files.
    """

    names: tuple[str, ...]
    delimiter: str
    comment: bytes | None


def read_header(
    stream: BinaryIO,
    *,
    name: str,
    comment: bytes,
    delimiter: str | None,
    prefer: str,
) -> Header:
    """Read the header of a stream, up to and with its line end.

    Arguments:
        comment: how the first line of reports begins.
        delimiter: None for the most frequent one outside quotes.
        prefer: the delimiter that counts when it occurs at all; "" for none.

    Raises:
        FileFormatError: no header, or one that is not UTF-8.
        ParameterError: two delimiters that are equally frequent.
    """
    line = _line(stream, name)
    described = None
    if line.startswith(comment):
        described = line.removeprefix(comment)
        line = _line(stream, name)
    while _outside_quotes(line.removeprefix(BYTE_ORDER_MARK).decode("latin-1"))[1]:
        next_line = _line(stream, name)
        if not next_line:
            raise FileFormatError(f"{name}: a quote that opens in the header never closes")
        line += next_line
    header_text = _header_text(line, name)
    separator = delimiter or _delimiter(header_text, prefer)
    try:
        names = next(
            csv.reader([header_text], delimiter=separator, strict=True),
            [],
        )
    except csv.Error as error:
        raise FileFormatError(f"{name}: the header is not well-formed CSV ({error})") from None
    return Header(names=tuple(names), delimiter=separator, comment=described)


def _header_text(line: bytes, name: str) -> str:
    """The text of the header; raises FileFormatError for bytes that are none, or hold nothing."""
    try:
        header_text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        message = "the header is not UTF-8; convert the file, as with iconv -t UTF-8"
        raise FileFormatError(f"{name}: {message}") from None
    if not header_text.strip():
        raise FileFormatError(f"{name}: is empty; a CSV file starts with a line of column names")
    if "\0" in header_text or "\r" in header_text.removesuffix("\n").removesuffix("\r"):
        message = "the header holds a NUL byte or a bare carriage return"
        raise FileFormatError(f"{name}: {message}; write the file as UTF-8 with usual line ends")
    return header_text


def _line(stream: BinaryIO, name: str) -> bytes:
    line = stream.readline(MAX_HEADER)
    if len(line) >= MAX_HEADER:
        raise FileFormatError(f"{name}: its first line does not end; is this a CSV file?")
    return line


def _outside_quotes(text: str) -> tuple[str, bool]:
    """The text outside quoted fields, and whether it ends inside one."""
    outside: list[str] = []
    quoted = False
    at_start = True
    for letter in text:
        if letter == '"' and (quoted or at_start):
            quoted, at_start = (
                not quoted,
                not quoted,
            )  # a doubled quote closes and opens again
        elif not quoted:
            outside.append(letter)
            at_start = letter in DELIMITERS or letter in "\r\n"
    return "".join(outside), quoted


def _delimiter(text: str, prefer: str) -> str:
    """The most frequent delimiter of a header outside quotes; a comma where it has none."""
    outside, _ = _outside_quotes(text)
    if prefer and prefer in outside:
        return prefer
    frequent = Counter(mark for mark in outside if mark in DELIMITERS).most_common(2)
    if not frequent:
        return ","
    (mark, count), *others = frequent
    if others and others[0][1] == count:
        marks = f"{max(mark, others[0][0])!r} and {min(mark, others[0][0])!r}"
        remedy = f"is not given, and the header has equally many {marks}; name one (--delimiter)"
        raise ParameterError("delimiter", None, remedy)
    return mark


@final
class Records:
    """Blocks of complete records of a CSV stream, behind its header.

    Arguments:
        backslash_is_text: read a backslash before a quote as any other character, not refuse it.

    Guarantees: every record has as many fields as the header; the verdict and the counts do not
        depend on the sizes of the blocks that are read.
    """

    def __init__(
        self,
        stream: Any,
        header: Header,
        *,
        name: str,
        backslash_is_text: bool,
        block_bytes: int,
    ) -> None:
        self._stream = stream
        self._name = name
        self._block_bytes = block_bytes
        self._delimiter = ord(header.delimiter)
        self._columns = len(header.names)
        self._refuse_backslash = not backslash_is_text
        self._memory = np.zeros(PREVIOUS + 1, dtype=np.int64)
        self.blank_end = False

    @property
    def count(self) -> int:
        """Complete records so far."""
        return int(self._memory[RECORDS])

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """(bytes, records) of each block in turn.

        Raises:
            FileFormatError: a record that is not whole, by its row.
        """
        pending = b""
        while data := self._stream.read(self._block_bytes):
            before = self.count
            self._scan(data)
            record_end = int(self._memory[END])
            if record_end:
                block = b"".join((pending, memoryview(data)[:record_end]))
                pending = data[record_end:]
                yield self._checked(block), self.count - before
            else:
                pending += data
                if len(pending) > MAX_RECORD:
                    raise self._fault(f"is longer than {MAX_RECORD >> 20} MB")
        yield from self._last(pending)

    def _last(self, pending: bytes) -> Iterator[tuple[bytes, int]]:
        """The last record, whose line need not end."""
        if self._memory[STATE] == QUOTED:
            row_number = int(self._memory[QUOTE_ROW])
            message = f"the quote that opens in data row {row_number:,} never closes"
            raise FileFormatError(f"{self._name}: {message}; the file is cut or damaged")
        if self._memory[AFTER_CR]:
            raise self._fault("ends within a line end; the file is cut")
        if pending:
            before = self.count
            self._scan(b"\n")
            yield self._checked(pending), self.count - before

    def _scan(self, data: bytes) -> None:
        """Run the lexer over bytes that follow those before; FileFormatError names the row of
        a fault.
        """
        raw = np.frombuffer(data, dtype=np.uint8)
        scan(
            raw,
            self._memory,
            self._delimiter,
            self._columns,
            self._refuse_backslash,
        )
        problem = int(self._memory[FAULT])
        if problem:
            raise self._fault(f"cannot be read: {FAULTS[problem]}")

    def _fault(self, words: str) -> FileFormatError:
        return FileFormatError(f"{self._name}: data row {self.count + 1:,} {words}")

    def _checked(self, block: bytes) -> bytes:
        """The block, without a byte order mark in it; notes whether it ends in an empty line."""
        # Parsers drop a byte order mark at the start of what they are given, wherever that was cut.
        if block.startswith(BYTE_ORDER_MARK) or b"\n" + BYTE_ORDER_MARK in block:
            message = f"a byte order mark stands at or before data row {self.count:,}"
            remedy = "two files were joined, remove the second one's header and mark"
            raise FileFormatError(f"{self._name}: {message}; {remedy}")
        self.blank_end = self._columns == 1 and block.endswith((b"\n\n", b"\n\r\n"))
        return block
