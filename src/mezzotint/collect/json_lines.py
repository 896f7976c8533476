"""JSON lines as columns: Arrow parses a block under an explicit schema; what it refuses is read line by line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO, final

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from mezzotint.collect.columns import (
    BLOCK_BYTES,
    ColumnReader,
    Uses,
    reading,
    reason_of,
    refuse_groups,
    share_read,
)
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.values import NOT_WHOLE

NAMES_BYTES = 1 << 19
"""Bytes of lines whose keys are the columns of a file."""

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
class JsonReader(ColumnReader):
    """A file of one JSON object per line. Numbers to privatize are numbers; all other values are read as text.

    The columns are the keys of the first lines (`NAMES_BYTES`).
    """

    def __init__(
        self, *, name: str, stream: BinaryIO, raw: BinaryIO | None = None, size: int = 0
    ) -> None:
        self.name, self.rows = name, 0
        self._stream, self._raw, self._size = stream, raw, size
        with reading(name):
            self._first = self._block()
            first_lines = self._first[: self._first.rfind(b"\n", 0, NAMES_BYTES) + 1]
            names = self._keys(first_lines or self._first)
        super().__init__(name, pa.schema([pa.field(key, pa.string()) for key in names]))

    def require_numbers(self, column: str) -> None:
        del column  # each value is looked at

    def _keys(self, lines: bytes) -> list[str]:
        """The keys of these lines, in the order in which they occur."""
        try:
            return list(pajson.read_json(pa.BufferReader(lines)).schema.names)
        except pa.ArrowInvalid:
            keys: dict[str, None] = {}
            for row in self._objects(lines):
                keys.update(dict.fromkeys(row))
            return list(keys)

    def _block(self) -> bytes:
        """The next bytes up to and with a line end: no string of JSON holds one. Empty at the end of the file."""
        pieces: list[bytes] = []
        while data := self._stream.read(BLOCK_BYTES):
            pieces.append(data)
            if b"\n" in data:
                pieces.append(self._stream.readline())
                break
        return b"".join(pieces)

    def _batches(self, uses: Uses, groups: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        from mezzotint.collect.lexer import count_lines  # heavy: numba

        refuse_groups(self.name, groups)
        fields = [pa.field(column, pa.float64()) for column in uses.numeric]
        fields += [pa.field(column, pa.string()) for column in uses.keep]
        schema, block = pa.schema(fields), self._first
        self._first = b""
        while block:
            lines = count_lines(np.frombuffer(block, dtype=np.uint8))
            table = self._parsed(block, schema)
            if lines and (table is None or table.num_rows != lines):
                table = self._by_line(block, schema, uses)
            if lines:
                assert table is not None, "read line by line"
                yield from table.combine_chunks().to_batches()
            block = self._block()

    def _parsed(self, block: bytes, schema: pa.Schema) -> pa.Table | None:
        """The columns as Arrow reads them; None where it cannot, or they hold text that is not UTF-8."""
        try:
            table = pajson.read_json(
                pa.BufferReader(block),
                read_options=pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pajson.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore"
                ),
            )
            table.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return table

    def _by_line(self, block: bytes, schema: pa.Schema, uses: Uses) -> pa.Table:
        columns: dict[str, list[Any]] = {column: [] for column in schema.names}
        for index, row in enumerate(self._objects(block)):
            for column in uses.numeric:
                columns[column].append(self._number(row.get(column), column, index))
            for column in uses.keep:
                value = row.get(column)
                columns[column].append(self._text(value, column, index, column in uses.labels))
        return pa.table(columns, schema=schema)

    def _objects(self, block: bytes) -> Iterator[dict[str, Any]]:
        """The object of each line; raises FileFormatError for a line that holds none."""
        hooks: dict[str, Any] = {"parse_int": _Number, "parse_float": _Number}
        index = 0
        for line in block.split(b"\n"):
            if not line.strip():
                continue
            try:
                row = json.loads(line, object_pairs_hook=_distinct, parse_constant=_Number, **hooks)
            except (ValueError, RecursionError) as error:
                raise self._fault(index, f"is not JSON in UTF-8 ({reason_of(error)})") from None
            if not isinstance(row, dict):
                raise self._fault(index, "is not a JSON object")
            yield row
            index += 1

    def _number(self, value: Any, column: str, index: int) -> float | None:
        if value is None:
            return None
        if not isinstance(value, _Number):
            raise self._refused(column, index, f"holds {_kind(value)}, not a number")
        return float(value)

    def _text(self, value: Any, column: str, index: int, label: bool) -> str | None:
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, dict | list):
            raise self._refused(column, index, f"holds {_kind(value)}, not text")
        if label and isinstance(value, _Number):
            return self._digits(value, column, index)
        return str(value)

    def _digits(self, value: str, column: str, index: int) -> str | None:
        """The spelling of a number that names a category: its digits; NaN is missing."""
        number = float(value)
        if math.isnan(number):
            return None
        if value.lstrip("-").isdigit():
            return value
        if not number.is_integer() or abs(number) >= EXACT:
            raise self._refused(column, index, NOT_WHOLE)
        return str(int(number))

    def _refused(self, column: str, index: int, words: str) -> ParameterError:
        return ParameterError("column", column, f"{self.row_words(index)} {words}")

    def _fault(self, index: int, words: str) -> FileFormatError:
        return FileFormatError(f"{self.name}: data row {self.rows + index + 1:,} {words}")

    def done(self) -> float:
        return share_read(self._raw, self._size)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    return {dict: "an object", list: "a list"}.get(type(value), "text")
