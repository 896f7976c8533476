"""The records of CSV: where each ends, and whether every one of them is whole.

A parser that is handed blocks must not be trusted to notice a quote that never closes, or a field that spans two
blocks. So the raw bytes go through a lexer first: it counts the records, cuts the blocks between them, and names the
row of any fault. The grammar is that of RFC 4180, with any line end and any of four delimiters.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any, BinaryIO, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.kernels import compiled

DELIMITERS = ",\t;|"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_HEADER = 1 << 28
"""Bytes: the first line may hold a table of 65536 levels, not a complete file without line ends."""

MAX_RECORD = 1 << 28
"""Bytes of the longest record."""

LF, CR, QUOTE, BACKSLASH, NUL, SPACE = 10, 13, 34, 92, 0, 32
START, PLAIN, QUOTED, CLOSED = 0, 1, 2, 3
"""States: at the start of a field, in it, between its quotes, behind its closing quote."""

STATE, AFTER_CR, DELIMITER_COUNT, RECORD_BYTES, RECORDS, END, FAULT, QUOTE_ROW, PREVIOUS = range(9)
"""Entries of the lexer's memory. END is the index behind the last complete record of a block."""

FAULTS = {
    1: "a carriage return outside quotes is not the end of a line; write the file with usual line ends",
    2: "it has another number of fields than the header",
    3: "text follows a closing quote; double the quotes inside a quoted cell",
    4: "it holds a NUL byte; is this a CSV file in UTF-8?",
    5: 'a backslash stands before a quote inside quotes, which two dialects read differently; write "" for a quote '
    "or say that it is text (--backslash-is-text)",
}


@compiled
def scan(
    data: npt.NDArray[np.uint8],
    memory: npt.NDArray[np.int64],
    delimiter: int,
    columns: int,
    refuse_backslash: bool,
) -> None:
    """Run the lexer over the next block; the memory carries its state from block to block."""
    state, after_cr = memory[STATE], memory[AFTER_CR]
    delimiters, size = memory[DELIMITER_COUNT], memory[RECORD_BYTES]
    records, quote_row = memory[RECORDS], memory[QUOTE_ROW]
    previous = memory[PREVIOUS]
    end = np.int64(0)
    fault = np.int64(0)
    for index in range(data.size):
        byte = data[index]
        if state == QUOTED:
            size += 1
            if byte == QUOTE:
                if refuse_backslash and previous == BACKSLASH:
                    fault = 5
                    break
                state = CLOSED
            elif byte == NUL:
                fault = 4
                break
            previous = byte
            continue
        previous = byte
        if after_cr and byte != LF:
            fault = 1
            break
        if byte == LF:
            if size > 0 or columns == 1:
                if delimiters + 1 != columns:
                    fault = 2
                    break
                records += 1
            state, after_cr, delimiters, size = START, 0, 0, 0
            end = index + 1
        elif byte == CR:
            after_cr = 1
        elif byte == delimiter:
            delimiters += 1
            size += 1
            state = START
        elif byte == QUOTE and state != PLAIN:
            if state == START:
                quote_row = records + 1
            state = QUOTED
            size += 1
        elif state == CLOSED:
            fault = 3
            break
        elif byte == NUL:
            fault = 4
            break
        else:
            state = PLAIN
            size += 1
    memory[STATE], memory[AFTER_CR] = state, after_cr
    memory[DELIMITER_COUNT], memory[RECORD_BYTES] = delimiters, size
    memory[RECORDS], memory[QUOTE_ROW] = records, quote_row
    memory[END], memory[FAULT], memory[PREVIOUS] = end, fault, previous


@compiled
def count_lines(data: npt.NDArray[np.uint8]) -> int:
    """Lines that are not blank; the last one needs no line end."""
    lines, filled = 0, False
    for byte in data:
        if byte == LF:
            lines += filled
            filled = False
        elif byte > SPACE:
            filled = True
    return lines + filled


@final
@dataclass(frozen=True, kw_only=True)
class Header:
    """The first record of a CSV file.

    Arguments:
        names: of the columns.
        delimiter: one character.
        comment: the first line where it begins with the mark of reports, without that mark; None for other files.
    """

    names: tuple[str, ...]
    delimiter: str
    comment: bytes | None


def read_header(
    stream: BinaryIO, *, name: str, comment: bytes, delimiter: str | None, prefer: str
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
    line, described = _line(stream, name), None
    if line.startswith(comment):
        described = line[len(comment) :]
        line = _line(stream, name)
    while _ends_inside_quotes(line):
        more = _line(stream, name)
        if not more:
            raise FileFormatError(f"{name}: a quote that opens in the header never closes")
        line += more
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileFormatError(
            f"{name}: the header is not UTF-8; convert the file, as with iconv -t UTF-8"
        ) from None
    if not text.strip():
        raise FileFormatError(f"{name}: is empty; a CSV file starts with a line of column names")
    if "\0" in text or "\r" in text.removesuffix("\n").removesuffix("\r"):
        raise FileFormatError(
            f"{name}: the header holds a NUL byte or a bare carriage return; write the file as "
            "UTF-8 with usual line ends"
        )
    chosen = delimiter or _delimiter(text, prefer)
    try:
        names = next(csv.reader([text], delimiter=chosen, strict=True), [])
    except csv.Error as error:
        raise FileFormatError(f"{name}: the header is not well-formed CSV ({error})") from None
    return Header(names=tuple(names), delimiter=chosen, comment=described)


def _line(stream: BinaryIO, name: str) -> bytes:
    line = stream.readline(MAX_HEADER)
    if len(line) >= MAX_HEADER:
        raise FileFormatError(f"{name}: its first line does not end; is this a CSV file?")
    return line


def _outside_quotes(text: str) -> tuple[str, bool]:
    """The text outside quoted fields, and whether it ends inside one."""
    outside: list[str] = []
    quoted, at_start = False, True
    for letter in text:
        if letter == '"' and (quoted or at_start):
            quoted, at_start = not quoted, not quoted  # a doubled quote closes and opens again
        elif not quoted:
            outside.append(letter)
            at_start = letter in DELIMITERS or letter in "\r\n"
    return "".join(outside), quoted


def _ends_inside_quotes(line: bytes) -> bool:
    return _outside_quotes(line.removeprefix(BYTE_ORDER_MARK).decode("latin-1"))[1]


def _delimiter(text: str, prefer: str) -> str:
    """The most frequent delimiter of a header outside quotes; a comma where it has none."""
    outside = _outside_quotes(text)[0]
    if prefer and prefer in outside:
        return prefer
    counts = sorted(((outside.count(mark), mark) for mark in DELIMITERS), reverse=True)
    if not counts[0][0]:
        return ","
    if counts[0][0] == counts[1][0]:
        marks = f"{counts[0][1]!r} and {counts[1][1]!r}"
        remedy = f"is not given, and the header has equally many {marks}; name one (--delimiter)"
        raise ParameterError("delimiter", None, remedy)
    return counts[0][1]


@final
class Records:
    """Blocks of complete records of a CSV stream, behind its header.

    Arguments:
        backslash_is_text: read a backslash before a quote as any other character, not refuse it.

    Guarantees: every record has as many fields as the header; the verdict and the counts do not depend on the sizes of
        the blocks that are read.
    """

    def __init__(
        self, stream: Any, header: Header, *, name: str, backslash_is_text: bool, block_bytes: int
    ) -> None:
        self._stream, self._name, self._block_bytes = stream, name, block_bytes
        self._delimiter, self._columns = ord(header.delimiter), len(header.names)
        self._refuse_backslash = not backslash_is_text
        self._memory = np.zeros(9, dtype=np.int64)
        self.blank_end = False

    @property
    def count(self) -> int:
        """Complete records so far."""
        return int(self._memory[RECORDS])

    def blocks(self) -> Any:
        """(bytes, records) of each block in turn.

        Raises:
            FileFormatError: a record that is not whole, by its row.
        """
        pending = b""
        while data := self._stream.read(self._block_bytes):
            before = self.count
            self._scan(data)
            end = int(self._memory[END])
            block = b"".join((pending, memoryview(data)[:end]))
            pending = data[end:] if end else pending + data
            if end:
                yield self._checked(block), self.count - before
            elif len(pending) > MAX_RECORD:
                raise self._fault(f"is longer than {MAX_RECORD >> 20} MB")
        yield from self._last(pending)

    def _last(self, rest: bytes) -> Any:
        if self._memory[STATE] == QUOTED:
            row = int(self._memory[QUOTE_ROW])
            words = (
                f"the quote that opens in data row {row:,} never closes; the file is cut or damaged"
            )
            raise FileFormatError(f"{self._name}: {words}")
        if self._memory[AFTER_CR]:
            raise self._fault("ends within a line end; the file is cut")
        if rest:
            before = self.count
            self._scan(b"\n")
            yield self._checked(rest), self.count - before

    def _scan(self, data: bytes) -> None:
        raw = np.frombuffer(data, dtype=np.uint8)
        scan(raw, self._memory, self._delimiter, self._columns, self._refuse_backslash)
        if self._memory[FAULT]:
            raise self._fault(f"cannot be read: {FAULTS[int(self._memory[FAULT])]}")

    def _fault(self, words: str) -> FileFormatError:
        return FileFormatError(f"{self._name}: data row {self.count + 1:,} {words}")

    def _checked(self, block: bytes) -> bytes:
        # Parsers drop a byte order mark at the start of what they are given, wherever that was cut.
        if block.startswith(BYTE_ORDER_MARK) or b"\n" + BYTE_ORDER_MARK in block:
            row = self.count
            raise FileFormatError(
                f"{self._name}: a byte order mark stands at or before data row {row:,}; two files "
                "were joined, remove the second one's header and mark"
            )
        self.blank_end = self._columns == 1 and block.endswith((b"\n\n", b"\n\r\n"))
        return block
