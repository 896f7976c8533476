"""Sums over records of quantized coordinates, with the words they are drawn by."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.entropy import BLOCK, Keystream, fast_start, key_from
from mezzotint.core.lookup import compile_lookup
from mezzotint.core.mechanism import IntArray, Mechanism
from mezzotint.core.threads import in_threads, usable_cores
from mezzotint.training.quantized.grid import find_grid
from mezzotint.training.quantized.kernels import add_codes, add_drawn, form

Rows = npt.NDArray[np.float32]

PART = 1 << 21
"""Elements that one thread works through (some 3 ms); which they are does not depend on how many threads there are."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients:
    """The gradients of n records in one parameter tensor, as outer products.

    A record's gradient is gains[:, None] * rows, flat. Of a dense layer's weight, these are what the layer sends back
    and what it was given; they need not be multiplied out. Any gradients are outer products with a single 1.

    Arguments:
        rows: (n, width) contiguous float32.
        gains: (n, repeat) contiguous float32.
    """

    rows: Rows
    gains: Rows

    @property
    def coordinates(self) -> int:
        """Coordinates of one record's gradient."""
        return self.rows.shape[1] * self.gains.shape[1]


@final
class RecordSums:
    """Draws a code for every coordinate of every record from a table and adds up what the codes stand for.

    Arguments:
        table: the mechanism.
        integers: (m,) integers >= 0, what each level adds; None counts levels instead.

    Guarantees:
        A coordinate's code is the one that its own word of the cryptographic keystream leads to, as in
        `table.privatize`: of the same probabilities, in exact integers.
        Sums are exact. The same seed gives the same sums, whatever the number of threads.
    """

    def __init__(self, table: Mechanism, integers: IntArray | None) -> None:
        self.table = table
        self.levels = table.levels.size if integers is None else 0
        self.largest = 1 if integers is None else int(integers.max())
        plain = integers is None or np.array_equal(integers, np.arange(integers.size))
        self.integers = np.empty(0, dtype=np.int32) if plain else np.asarray(integers, dtype=np.int32)
        self.grid, self.lookup = find_grid(table), compile_lookup(table, np.dtype(np.float32))
        # Lent to a part while it is worked on, then taken back: fresh pages at every step cost more than their use.
        self._memory: list[_Memory] = []

    def __call__(self, gradients: Sequence[Gradients], factors: Rows, rng: Any = None) -> tuple[IntArray, int]:
        """The sums over the records of their gradients.

        Arguments:
            gradients: the records' gradients of each parameter tensor.
            factors: (n,) float32: a record's coordinates times its factor are in the table's units. What then lies
                outside its range is clipped.
            rng: None (private), a seed or a numpy Generator, as in `Mechanism.privatize`.

        Returns: (D,) int64 sums or (D, m) counts for the D coordinates of all tensors, in order; and the number of
            NaNs: with any, the sums mean nothing.

        Edge cases: no records or no coordinates give zeros.
        """
        key = key_from(rng)
        narrow = np.int32 if len(factors) * self.largest < 2**31 else np.int64
        columns = [0, *itertools.accumulate(gradient.coordinates for gradient in gradients)]
        shape = (columns[-1], max(1, self.levels))

        def work(number: int, part: list[_Piece]) -> tuple[npt.NDArray[Any], int]:
            memory = self._borrow()
            stream, totals, nans = Keystream(key, fast_start(number)), np.zeros(shape, dtype=narrow), 0
            for piece in part:
                mine = totals[columns[piece.tensor] : columns[piece.tensor + 1]].reshape(-1)
                nans += self._draw(gradients[piece.tensor], factors, piece, stream, memory, mine)
            self._memory.append(memory)
            return totals, nans

        parts = _parts([len(factors) * gradient.coordinates for gradient in gradients])
        found = in_threads([partial(work, number, part) for number, part in enumerate(parts)], threads=usable_cores())
        sums = np.zeros(shape, dtype=np.int64)
        for totals, _ in found:
            sums += totals
        return sums if self.levels else sums[:, 0], sum(nans for _, nans in found)

    def _borrow(self) -> _Memory:
        try:
            return self._memory.pop()
        except IndexError:
            return _Memory(self.lookup.code_dtype)

    def _draw(
        self,
        gradients: Gradients,
        factors: Rows,
        piece: _Piece,
        stream: Keystream,
        memory: _Memory,
        totals: npt.NDArray[Any],
    ) -> int:
        """Draws for the elements of a piece, a word each, and adds to the totals; the number of NaNs."""
        given, into, nans = (gradients.rows, gradients.gains, factors), (totals, self.integers, self.levels), 0
        for begin in range(piece.begin, piece.end, BLOCK):
            end = min(begin + BLOCK, piece.end)
            words = memory.words[: end - begin]
            stream.fill(words)
            if self.grid is not None:
                nans += add_drawn(*given, begin, end, words, *into, *self.grid.arguments)
            else:
                inputs, codes = memory.inputs[: words.size], memory.codes[: words.size]
                form(*given, begin, inputs)
                nans += self.lookup.draw(inputs, words, codes)[2]
                add_codes(codes, begin, gradients.coordinates, *into)
        return nans


@final
@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Elements begin to end - 1 of all records' gradients of the tensor of a number."""

    tensor: int
    begin: int
    end: int


@final
class _Memory:
    """What a part is worked on with: words, inputs, codes."""

    def __init__(self, code_dtype: np.dtype[Any]) -> None:
        self.words = np.empty(BLOCK, dtype=np.uint64)
        self.inputs, self.codes = np.empty(BLOCK, dtype=np.float32), np.empty(BLOCK, dtype=code_dtype)


def _parts(sizes: list[int]) -> list[list[_Piece]]:
    """Pieces of at most PART elements, as many to a part as fit; in order."""
    parts: list[list[_Piece]] = []
    room = 0
    for tensor, size in enumerate(sizes):
        for begin in range(0, size, PART):
            piece = _Piece(tensor=tensor, begin=begin, end=min(size, begin + PART))
            if piece.end - begin > room:
                parts.append([])
                room = PART
            parts[-1].append(piece)
            room -= piece.end - begin
    return parts
