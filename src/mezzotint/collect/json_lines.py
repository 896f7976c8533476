"""JSON lines as columns: Arrow parses a block under an explicit schema; what it refuses is read
line by line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from mezzotint.collect.columns import (
    BLOCK_BYTES,
    TextFile,
    TextReader,
    Uses,
    reading,
    reason_of,
)
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.values import NOT_WHOLE

NAMES_BYTES = 1 << 19
"""Bytes of lines whose keys are the columns of a file."""


PARSED_BYTES = 1 << 20
"""Bytes that Arrow parses at a time: in longer stretches it takes a third longer."""

EXACT = 2**53
"""Floats of smaller magnitude hold every integer exactly."""


class _Number(str):
    """A number of JSON, as it is spelled."""

    __slots__ = ()


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


@final
class JsonReader(TextReader):
    """A file of one JSON object per line. Numbers to privatize are numbers; all other values are
    read as text.

    The columns are the keys of the first lines (`NAMES_BYTES`).
    """

    def __init__(self, file: TextFile) -> None:
        self.name = file.name
        self.rows = 0
        self._stream = file.stream
        with reading(file.name):
            self._first = self._block()
            first_lines = self._first[: self._first.rfind(b"\n", 0, NAMES_BYTES) + 1]
            names = self._keys(first_lines or self._first)
        super().__init__(file, names, None)

    def _keys(self, lines: bytes) -> list[str]:
        """The keys of these lines, in the order in which they occur."""
        try:
            return list(pajson.read_json(pa.BufferReader(lines)).schema.names)
        except pa.ArrowInvalid:
            keys: dict[str, None] = {}
            for record in self._objects(lines):
                keys.update(dict.fromkeys(record))
            return list(keys)

    def _block(self) -> bytes:
        """The next bytes up to and with a line end: no string of JSON holds one. Empty at the end
        of the file.
        """
        pieces: list[bytes] = []
        while data := self._stream.read(BLOCK_BYTES):
            pieces.append(data)
            if b"\n" in data:
                pieces.append(self._stream.readline())
                break
        return b"".join(pieces)

    def _batches(self, uses: Uses) -> Iterator[pa.RecordBatch]:
        from mezzotint.collect.lexer import (
            count_lines,
        )  # heavy: numba

        types = {"number": pa.float64()}
        schema = pa.schema(
            [(column, types.get(role, pa.string())) for column, role in uses.items()]
        )
        block = self._first
        self._first = b""
        while block:
            lines = count_lines(np.frombuffer(block, dtype=np.uint8))
            if lines:
                arrow_table = self._parsed(block, schema)
                if arrow_table is None or arrow_table.num_rows != lines:
                    arrow_table = self._by_line(block, schema, uses)
                yield from arrow_table.to_batches()
            block = self._block()

    def _parsed(self, block: bytes, schema: pa.Schema) -> pa.Table | None:
        """The columns as Arrow reads them; None where it cannot, or they hold text that is not
        UTF-8.
        """
        try:
            arrow_table = pajson.read_json(
                pa.BufferReader(block),
                read_options=pajson.ReadOptions(use_threads=False, block_size=PARSED_BYTES),
                parse_options=pajson.ParseOptions(
                    explicit_schema=schema,
                    unexpected_field_behavior="ignore",
                ),
            )
            arrow_table.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return arrow_table

    def _by_line(self, block: bytes, schema: pa.Schema, uses: Uses) -> pa.Table:
        """The columns line by line, as Python reads JSON; errors name the row and the kind of
        what it holds.
        """
        columns: dict[str, list[Any]] = {column: [] for column in schema.names}
        for index, record in enumerate(self._objects(block)):
            for column, role in uses.items():
                value = record.get(column)
                if role == "number":
                    columns[column].append(self._number(value, column, index))
                else:
                    columns[column].append(self._text(value, column, index, role == "label"))
        return pa.table(columns, schema=schema)

    def _objects(self, block: bytes) -> Iterator[dict[str, Any]]:
        """The object of each line; raises FileFormatError for a line that holds none."""
        hooks: dict[str, Any] = {
            "object_pairs_hook": _distinct,
            "parse_constant": _Number,
            "parse_int": _Number,
            "parse_float": _Number,
        }
        lines = [line for line in block.split(b"\n") if line.strip()]
        for index, line in enumerate(lines):
            row_number = self.rows + index + 1
            try:
                record = json.loads(line, **hooks)
            except (ValueError, RecursionError) as error:
                message = f"data row {row_number:,} is not JSON in UTF-8 ({reason_of(error)})"
                raise FileFormatError(f"{self.name}: {message}") from None
            if not isinstance(record, dict):
                raise FileFormatError(f"{self.name}: data row {row_number:,} is not a JSON object")
            yield record

    def _number(self, value: Any, column: str, index: int) -> float | None:
        if value is None:
            return None
        if not isinstance(value, _Number):
            raise self._refused(column, index, f"holds {_kind(value)}, not a number")
        return float(value)

    def _text(self, value: Any, column: str, index: int, is_label: bool) -> str | None:
        """A value as text: itself, `true` or `false`, digits of a category; null is None.
        Objects and lists are refused.
        """
        if value is None:
            return None
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, dict | list):
            raise self._refused(column, index, f"holds {_kind(value)}, not text")
        if is_label and isinstance(value, _Number):
            return self._digits(value, column, index)
        return str(value)

    def _digits(self, spelled: str, column: str, index: int) -> str | None:
        """The spelling of a number that names a category: its digits; NaN is missing."""
        number = float(spelled)
        if math.isnan(number):
            return None
        if spelled.lstrip("-").isdigit():
            return spelled
        if not number.is_integer() or abs(number) >= EXACT:
            raise self._refused(column, index, NOT_WHOLE)
        return str(int(number))

    def _refused(self, column: str, index: int, words: str) -> ParameterError:
        return ParameterError(
            "column",
            column,
            f"{self.row_words(index)} {words}",
        )


def _kind(value: Any) -> str:
    names = {bool: "true or false", dict: "an object", list: "a list"}
    return names.get(type(value), "text")
