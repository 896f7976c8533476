"""The lexer of CSV against Python's `csv`, its verdict against every cut, and the faults that it names."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from mezzotint.collect.columns import COMMENT, CsvReader, Dialect, TextFile
from mezzotint.collect.lexer import Records, count_lines, read_header
from mezzotint.core.errors import FileFormatError, ParameterError

PIECES = ["a", "b", ",", ",", '"', '"', "\n", "\n", "\r\n", "\r", "\\", "\0", "\ufeff", " "]
FILES = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def csv_reader(data: bytes, **dialect: Any) -> CsvReader:
    stream: Any = io.BytesIO(data)
    return CsvReader(TextFile(name="f.csv", stream=stream), dialect=Dialect(**dialect))


def header_of(data: bytes) -> tuple[io.BytesIO, Any]:
    stream = io.BytesIO(data)
    return stream, read_header(stream, name="f.csv", comment=COMMENT, delimiter=None, prefer="")


def lexed(data: bytes, block_bytes: int) -> tuple[list[bytes], int] | str:
    """The records in blocks, or the message; blocks joined, for they depend on the cut."""
    try:
        stream, header = header_of(data)
        records = Records(
            stream, header, name="f.csv", backslash_is_text=False, block_bytes=block_bytes
        )
        blocks = list(records.blocks())
    except FileFormatError as error:
        return str(error)
    return [b"".join(block for block, _ in blocks)], sum(count for _, count in blocks)


@given(body=FILES, columns=st.integers(1, 3))
@settings(max_examples=400)
@example(body='"a\n', columns=1)
@example(body="a\r", columns=1)
@example(body='a"b\n', columns=1)
@example(body="\n", columns=1)
def test_the_verdict_does_not_depend_on_the_cut(body: str, columns: int) -> None:
    data = (",".join("xyz"[:columns]) + "\n" + body).encode()
    whole = lexed(data, 1 << 20)
    for block_bytes in (1, 2, 3, 5, 7):
        cut = lexed(data, block_bytes)
        # Two faults in a file: a mark in a block that is whole may be seen before a fault behind it, or after.
        if isinstance(whole, str) or isinstance(cut, str):
            assert isinstance(whole, str)
            assert isinstance(cut, str)
        else:
            assert cut == whole


@given(body=FILES, columns=st.integers(1, 3))
@settings(max_examples=400)
def test_accepted_cells_are_those_of_the_csv_module(body: str, columns: int) -> None:
    names = "xyz"[:columns]
    data = (",".join(names) + "\n" + body).encode()
    if isinstance(lexed(data, 1 << 20), str):
        return
    text = io.StringIO(body, newline="")
    wanted = [row for row in csv.reader(text, strict=True) if row or columns == 1]
    wanted = [row or [""] for row in wanted]
    reader = csv_reader(data)
    batches = list(reader.batches(dict.fromkeys(names, "text")))
    found = [list(row.values()) for batch in batches for row in batch.to_pylist()]
    assert found == wanted
    assert reader.rows == len(wanted)


def read(data: str, column: str = "age", **dialect: Any) -> list[Any]:
    reader = csv_reader(data.encode(), **dialect)
    reader.require(column)
    batches = list(reader.batches({column: "number"}))
    return [cell for batch in batches for cell in batch.column(0).to_pylist()]


def test_a_quote_that_never_closes_takes_no_row_with_it() -> None:
    rows = "".join(f"{i % 100},fine\n" for i in range(1000))
    with pytest.raises(FileFormatError, match=r"f\.csv: the quote that opens in data row 1 never"):
        read('age,comment\n5,"oops\n' + rows)
    with pytest.raises(FileFormatError, match=r"data row 1,001 never closes"):
        read("age,comment\n" + rows + '5,"oops')


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("1,2\n3\n", "data row 2 cannot be read: it has another number of fields"),
        ("1,2\n3,4,5\n", "data row 2 .*another number"),
        ('1,"a"b\n', "data row 1 .*text follows a closing quote"),
        ("1,2\r3,4\n", "data row 1 .*carriage return"),
        ("1,2\n3,4\r", "data row 2 ends within a line end"),
        ("1,2\n3,\0\n", "data row 2 .*NUL"),
        ('1,"\0"\n', "data row 1 .*NUL"),
        ('1,"a\\"b"\n', "data row 1 .*backslash"),
        ("1,2\n\ufeffage,comment\n", "byte order mark"),
    ],
)
def test_faults_name_the_row(body: str, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        read("age,comment\n" + body)


def test_a_backslash_is_text_on_request() -> None:
    data = 'age,comment\n1,"C:\\dir\\"\n2,b\n'
    with pytest.raises(FileFormatError, match="backslash-is-text"):
        read(data)
    assert read(data, backslash_is_text=True) == [1, 2]


@pytest.mark.parametrize(
    ("header", "delimiter", "names"),
    [
        ("a,b", ",", ("a", "b")), ("a;b", ";", ("a", "b")), ("a\tb", "\t", ("a", "b")), ("a|b", "|", ("a", "b")),
        ('"name, first";age;city', ";", ("name, first", "age", "city")),
        ("name, first;age;city", ";", ("name, first", "age", "city")),
        ("\ufeffage", ",", ("age",)), ('"a\nb",c', ",", ("a\nb", "c")), ('5" pipe,b', ",", ('5" pipe', "b")),
        ("y,y,y#1", ",", ("y", "y", "y#1")),
    ],
)  # fmt: skip
def test_headers(header: str, delimiter: str, names: tuple[str, ...]) -> None:
    found = header_of((header + "\n1\n").encode())[1]
    assert (found.delimiter, found.names) == (delimiter, names)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", FileFormatError, "is empty"), (b"\n1\n", FileFormatError, "is empty"),
        (b'"a,b\n1,2\n', FileFormatError, "opens in the header"),
        (b"\xff\xfea\x00\n\x00", FileFormatError, "not UTF-8"), (b"a\x00,b\n", FileFormatError, "NUL"),
        (b"a,b\r1,2\r3,4", FileFormatError, "carriage return"), (b'"a"x,b\n1,2\n', FileFormatError, "not well-formed"),
        (b"a,b;c\n1\n", ParameterError, "--delimiter"),
    ],
)  # fmt: skip
def test_headers_that_are_refused(data: bytes, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        header_of(data)


def test_columns_are_named_by_their_position() -> None:
    data = "id,y,y,y#1,0,2\n" + "1,2,3,4,5,6\n" * 3
    for name, value in {"id": 1.0, "y#1": 4.0, "0": 5.0, "2": 6.0}.items():
        assert read(data, name) == [value] * 3
    with pytest.raises(ParameterError, match="more than once"):
        read(data, "y")


def test_line_ends_in_quotes_survive_every_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [f"a{'b' * (i % 7)}\r\nc\n{i}" for i in range(200)]
    data = ("t,x\r\n" + "".join(f'"{cell}",1\r\n' for cell in cells)).encode()
    for block_bytes in (1, 2, 3, 17, 64, 1 << 20):
        monkeypatch.setattr("mezzotint.collect.columns.BLOCK_BYTES", block_bytes)
        reader = csv_reader(data)
        batches = list(reader.batches({"t": "text"}))
        assert [cell for batch in batches for cell in batch.column(0).to_pylist()] == cells


def test_numbers_in_other_spellings() -> None:
    assert read("age\n 1\n2 \n 3e2 \nNA\n\n4\n") == [1, 2, 300, None, None, 4]
    assert read("age\n1,5\n2,25\n", delimiter=";", decimal=",") == [1.5, 2.25]
    assert read("age;b\n1,5;x\n2;y\n ;z\n", decimal=",") == [1.5, 2, None]
    with pytest.raises(ParameterError, match=r"data row 2 holds text, not a number"):
        read("age;b\n1,5;x\n1.234,5;y\n", decimal=",")
    with pytest.raises(
        ParameterError, match="data row 3 holds a mark of a missing value that --missing-values"
    ):
        read("age,b\n.,x\n-9,y\nNA,z\n", missing_values=(".", "-9"))
    assert read("age,b\n.,x\n-9,y\n\\N,z\n1,u\n", missing_values=(".", "-9", "\\N")) == [
        None, None, None, 1,
    ]  # fmt: skip


def test_text_that_is_not_utf_8_is_named() -> None:
    data = "c,x\ngrün,1\n".encode("latin-1")
    reader = csv_reader(data)
    with pytest.raises(FileFormatError, match=r"f\.csv: column c, data row 1 is not UTF-8.*iconv"):
        list(reader.batches({"c": "text"}))


@given(body=FILES)
@settings(max_examples=200)
def test_lines_that_are_not_blank_are_counted(body: str) -> None:
    data = body.encode()
    filled = [line for line in data.split(b"\n") if any(byte > ord(" ") for byte in line)]
    assert count_lines(np.frombuffer(data, dtype=np.uint8)) == len(filled)


@pytest.mark.parametrize("options", [{"delimiter": ",,"}, {"delimiter": '"'}, {"decimal": ";"},
                                     {"delimiter": ",", "decimal": ","}])  # fmt: skip
def test_dialects_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Dialect(**options)


def test_long_records_and_empty_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzotint.collect.columns.BLOCK_BYTES", 8)
    long = "x" * 1000
    assert read(f'age,c\n\n\n\n\n\n\n\n1,"{long}"\n\n\n\n\n\n\n\n\n2,y') == [1, 2]
    monkeypatch.setattr("mezzotint.collect.lexer.MAX_RECORD", 500)
    with pytest.raises(FileFormatError, match="data row 1 is longer"):
        read(f'age,c\n1,"{long}"\n')
    assert np.isfinite(read("age,c\n1,2\n")).all()
