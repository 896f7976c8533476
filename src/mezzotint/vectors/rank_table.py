"""Integer weights over ranks: the table that the epsilon of a ranked codebook rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.loss import exp_below
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import TOTAL, IntArray
from mezzotint.privacy.verification import table_ratio

_FILE_NAMES = {"codewords": "M", "top": "k", "high": "w_hi", "low": "w_lo", "raised": "r"}
"""Names of these fields in files (docs/file-format.md)."""


@final
@dataclass(frozen=True, kw_only=True)
class RankTable:
    """Weights of the places of an order, in units of 2**-32.

    Arguments:
        codewords: M >= 2, the places.
        top: k; the first k places have weight `high`.
        high, raised, low: the `raised` places after them have `low` + 1, all others `low`.
        null: weights of the null output, for the zero vector: (in the row above, in the row of a
            zero vector, where all codewords have `low`). None: no such output.

    Raises:
        ParameterError: integers that break a rule of `privacy.verification.table_ratio`.

    Guarantees: in any two orders of the codewords an output's probabilities differ at most by the
        factor `ratio`, exactly; two opposite orders reach it.
    Source: Theorem V (docs/proofs/vectors.md).
    """

    codewords: int
    top: int
    high: int
    raised: int
    low: int
    null: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        problems = table_ratio(self.as_dict())[1]
        if problems:
            description = str(self.as_dict())
            raise ParameterError("table", description, "; ".join(problems))

    def as_dict(self) -> JsonObject:
        """Plain values for JSON, under the names of docs/file-format.md."""
        values: JsonObject = {short: getattr(self, name) for name, short in _FILE_NAMES.items()}
        values["T"] = TOTAL
        if self.null is not None:
            values["null"] = list(self.null)
        return values

    @classmethod
    def from_dict(cls, table: JsonObject) -> RankTable:
        """The table that `as_dict` wrote."""
        fields = {name: table[short] for name, short in _FILE_NAMES.items()}
        null_weights = table.get("null")
        if null_weights is None:
            return cls(**fields)
        return cls(**fields, null=(null_weights[0], null_weights[1]))

    @property
    def outputs(self) -> int:
        """The number of different outputs: codewords, and the null output if there is one."""
        return self.codewords + (self.null is not None)

    @cached_property
    def ratio(self) -> Fraction:
        """e**epsilon of one index, exactly."""
        ratio = table_ratio(self.as_dict())[0]
        assert ratio is not None  # checked when the table was made
        return ratio

    def rows(self) -> IntArray:
        """(1 or 2, outputs) weights by place, the null output last.

        The first row is of a unit vector, the second of the zero vector.
        """
        ranked = np.full(self.codewords, self.low, dtype=np.int64)
        ranked[: self.top] = self.high
        ranked[self.top : self.top + self.raised] += 1
        if self.null is None:
            return ranked[None, :]
        rows = np.full((2, self.outputs), self.low, dtype=np.int64)
        rows[0, : self.codewords] = ranked
        rows[:, self.codewords] = self.null
        return rows

    @cached_property
    def dominating(self) -> Mechanism:
        """A small table that loses as much as this one, for every measure of loss that grows with
        hockey-sticks.

        Its rows are an order, (with a null output) the zero vector's row, and the opposite order;
        outputs with equal weights in all rows are merged. Levels and knots are arbitrary.
        """
        rows = self.rows()
        opposite = rows[:1].copy()
        codeword_columns = opposite[:, : self.codewords]
        opposite[:, : self.codewords] = np.flip(codeword_columns)
        merged: dict[tuple[int, ...], IntArray] = {}
        for column in np.vstack([rows, opposite]).T:
            key = tuple(column.tolist())
            no_weight = np.zeros_like(column)
            merged[key] = merged.get(key, no_weight) + column
        weights = np.array(list(merged.values()), dtype=np.int64).T
        knots = np.arange(weights.shape[0], dtype=np.float64)
        levels = np.arange(weights.shape[1], dtype=np.float64)
        return Mechanism(
            knots=knots,
            levels=levels,
            weights=weights,
            name="worst orders",
        )


def rank_table(
    *,
    codewords: int,
    top: int,
    epsilon: float | Fraction,
    null: bool = False,
) -> RankTable:
    """The table whose top k places have e**epsilon times the weight of the others, rounded so that
    it is never more.

    With `null`, there is an output for the zero vector. InfeasibleError if 2**-32 is too coarse for
    the epsilon.
    Guarantees: log(`ratio`) <= epsilon; without a null output short of it by less than a relative M
        / 2**32 e**epsilon.
    Source: extreme points of the linear program over tables of ranks (docs/proofs/vectors.md).
    """
    if not 1 <= top <= codewords // 2:
        raise ParameterError("top", top, f"between 1 and codewords // 2 = {codewords // 2}")
    ratio = _exp_below(epsilon)
    other_count = codewords - top
    null_large = 0
    null_small = 0
    if null:
        # (k E + M - k - M / E) t = 1 - 1 / E makes the null output's two weights differ by the
        # factor E as well.
        low_weight = math.ceil(
            TOTAL * (1 - 1 / ratio) / (top * ratio + other_count - codewords / ratio)
        )
        null_large = TOTAL - codewords * low_weight
        null_small = math.ceil(null_large / ratio)
    else:
        low_weight = math.ceil(TOTAL / (top * ratio + other_count))
    top_weight = TOTAL - null_small - other_count * low_weight
    high_weight = min(math.floor(ratio * low_weight), top_weight // top)
    raised_count = top_weight - top * high_weight
    is_table = 1 <= low_weight <= high_weight and 0 <= raised_count <= other_count
    if not is_table or (null and not 1 <= null_small <= null_large):
        raise InfeasibleError(
            f"epsilon={float(epsilon):g}: weights of 2**-32 are too coarse for {codewords} "
            "codewords; use fewer bits"
        )
    return RankTable(
        codewords=codewords,
        top=top,
        high=high_weight,
        raised=raised_count,
        low=low_weight,
        null=(null_small, null_large) if null else None,
    )


def _exp_below(epsilon: float | Fraction) -> Fraction:
    """A rational at or below e**epsilon."""
    exponent = float(epsilon)
    if Fraction(exponent) > epsilon:
        exponent = float(np.nextafter(exponent, 0.0))
    return exp_below(exponent)
