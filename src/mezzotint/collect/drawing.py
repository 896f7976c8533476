"""Record batches of values in, record batches of codes out: the work that files, folders and clusters share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.collect.columns import numbers
from mezzotint.collect.reports import code_field
from mezzotint.core.entropy import BLOCK, Keystream, key_from
from mezzotint.core.errors import ParameterError
from mezzotint.core.lookup import compile_lookup
from mezzotint.core.mechanism import Mechanism

Present = npt.NDArray[np.bool_]


@final
@dataclass(kw_only=True)
class Tally:
    """Running counts of one run. Computed on raw data: not private.

    Arguments:
        rows: rows read.
        reports: rows written.
        below, above: clipped inputs by column.
    """

    rows: int = 0
    reports: int = 0
    below: dict[str, int] = field(default_factory=dict)
    above: dict[str, int] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Rows left out."""
        return self.rows - self.reports

    def clip(self, column: str, below: int, above: int) -> None:
        """Adds the clipped inputs of one batch."""
        self.below[column] = self.below.get(column, 0) + below
        self.above[column] = self.above.get(column, 0) + above

    def add(self, other: Tally) -> None:
        """Adds the counts of another part of the run."""
        self.rows += other.rows
        self.reports += other.reports
        for column in other.below:
            self.clip(column, other.below[column], other.above[column])

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a file's metadata."""
        counts: dict[str, Any] = {"missing": self.missing, "rows": self.rows}
        if len(self.below) == 1:
            (column,) = self.below
            return {"below": self.below[column], "above": self.above[column], **counts}
        return {"below": self.below, "above": self.above, **counts}


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """How rows become reports.

    Arguments:
        mechanisms: column -> its table, in the order of the output.
        keys: one keystream key of 32 bytes per column. Row i of the run takes word i of each.
        keep: other columns to copy.
        missing: "error" or "drop".
        on_out_of_range: "clip" or "error".
        seeded: True when the keys are reproducible and the reports therefore NOT private.

    Raises:
        ParameterError: no columns, an unknown option, or a kept column that would undo the privacy.
    """

    mechanisms: Mapping[str, Mechanism]
    keys: tuple[bytes, ...]
    keep: tuple[str, ...] = ()
    missing: str = "error"
    on_out_of_range: str = "clip"
    seeded: bool = False

    def __post_init__(self) -> None:
        if not self.mechanisms:
            raise ParameterError("mechanisms", "none", "name at least one column and its mechanism")
        if self.missing not in ("error", "drop"):
            raise ParameterError("missing", self.missing, 'use "error" or "drop"')
        if self.on_out_of_range not in ("clip", "error"):
            raise ParameterError("on_out_of_range", self.on_out_of_range, 'use "clip" or "error"')
        for column in self.mechanisms:
            if column in self.keep:
                raise ParameterError("keep", column, "the raw column beside its reports would undo them; leave it out")
            if code_field(column) in self.keep:
                raise ParameterError("keep", code_field(column), "the reports take this name; rename that column first")
        if len(set(self.keep)) != len(self.keep):
            raise ParameterError("keep", ", ".join(self.keep), "names a column twice")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to privatize."""
        return tuple(self.mechanisms)

    def coded(self, batch: pa.RecordBatch, *, first: int, tally: Tally, offset: int = 0) -> pa.RecordBatch:
        """One batch of the columns, then of `keep`, with codes in place of the values.

        Arguments:
            batch: the values.
            first: index of its first row in the run: which words it takes.
            tally: counts to add to.
            offset: rows before this file, so that messages name the row within the file.

        Raises:
            ParameterError: a missing value under "error", or a value out of range under "error", naming its row.
        """
        split = [numbers(batch.column(i)) for i in range(len(self.columns))]
        present = self._present([mask for _, mask in split], first - offset)
        fields = []
        for column, key, (values, mask) in zip(self.columns, self.keys, split, strict=True):
            if present is not None and mask is not present:
                values = values[present if mask is None else present[mask]]
            mechanism = self.mechanisms[column]
            if self.on_out_of_range == "error":
                _refuse_outside(values, present, column, mechanism, first - offset)
            codes, below, above = draw(mechanism, values, key=key, first=first, rows=batch.num_rows, present=present)
            tally.clip(column, below, above)
            fields.append(pa.array(codes))
        others = batch.select(batch.schema.names[len(self.columns) :])
        if present is not None:
            others = others.filter(pa.array(present))
        tally.rows += batch.num_rows
        tally.reports += len(fields[0])
        names = [*(code_field(column) for column in self.columns), *others.schema.names]
        return pa.RecordBatch.from_arrays([*fields, *others.columns], names=names)

    def _present(self, masks: Sequence[Present | None], before: int) -> Present | None:
        """Which rows have all their values; None when all do."""
        found = [mask for mask in masks if mask is not None]
        if not found:
            return None
        if self.missing == "error":
            column, mask = next((c, m) for c, m in zip(self.columns, masks, strict=True) if m is not None)
            remedy = 'missing="drop" (--missing drop) leaves such rows out'
            raise ParameterError("column", column, f"data row {before + int(np.argmin(mask)) + 1} is missing; {remedy}")
        return found[0] if len(found) == 1 else np.logical_and.reduce(found)


def plan(
    mechanisms: Mapping[str, Mechanism],
    *,
    keep: Sequence[str] = (),
    missing: Literal["error", "drop"] = "error",
    on_out_of_range: Literal["clip", "error"] = "clip",
    rng: Any = None,
) -> Plan:
    """The plan of a new run, with keys of its own.

    Arguments:
        rng: None for keys of the operating system; a seed or numpy Generator is reproducible and NOT private.
    """
    generator = np.random.default_rng(rng) if isinstance(rng, (int, np.integer)) else rng
    return Plan(
        mechanisms=dict(mechanisms),
        keys=tuple(key_from(generator) for _ in mechanisms),
        keep=tuple(keep),
        missing=missing,
        on_out_of_range=on_out_of_range,
        seeded=rng is not None,
    )


def draw(
    mechanism: Mechanism,
    values: npt.NDArray[np.floating],
    *,
    key: bytes,
    first: int,
    rows: int,
    present: Present | None = None,
) -> tuple[npt.NDArray[Any], int, int]:
    """The codes of one column of rows `first` to `first + rows`, and the inputs clipped below and above.

    Arguments:
        mechanism: the table.
        values: float32 or float64 without NaN, one per present row.
        key: of the keystream; row i takes word i, present or not.
        present: (rows,) which rows have a value; None for all.

    Guarantees: however rows are cut into batches, a row gets the same code from the same key.
    """
    lookup = compile_lookup(mechanism, values.dtype)
    codes = np.empty(values.size, dtype=lookup.code_dtype)
    buffer = np.empty(min(BLOCK, max(1, rows)), dtype=np.uint64)
    stream = Keystream(key, first - first % 2)
    if first % 2:  # a stream starts on an even word: the one before our first is passed over
        stream.fill(buffer[:1])
    below = above = done = 0
    for begin in range(0, rows, BLOCK):
        words = buffer[: min(BLOCK, rows - begin)]
        stream.fill(words)
        if present is not None:
            words = words[present[begin : begin + words.size]]
        part = slice(done, done + words.size)
        under, over, _ = lookup.draw(values[part], words, codes[part])
        below, above, done = below + under, above + over, done + words.size
    return codes, int(below), int(above)


def _refuse_outside(
    values: npt.NDArray[np.floating],
    present: Present | None,
    column: str,
    mechanism: Mechanism,
    before: int,
) -> None:
    outside = np.flatnonzero((values < mechanism.lower) | (values > mechanism.upper))
    if outside.size:
        place = int(outside[0]) if present is None else int(np.flatnonzero(present)[outside[0]])
        raise ParameterError(
            "column",
            column,
            f"data row {before + place + 1} holds {float(values[outside[0]]):g}, outside "
            f"[{mechanism.lower:g}, {mechanism.upper:g}]; widen the mechanism's range or clip",
        )
