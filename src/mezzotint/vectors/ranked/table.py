"""A table over ranks: the integers that a ranked codebook's privacy rests on, and nothing but integers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.loss import exp_below
from mezzotint.core.mechanism import TOTAL, IntArray, Mechanism
from mezzotint.privacy.ranks import table_ratio


@final
@dataclass(frozen=True, kw_only=True)
class RankTable:
    """Weights of the places of an order, in units of 2**-32.

    Arguments:
        codewords: M >= 2, the places.
        top: k; the first k places have weight `high`.
        high, raised, low: the `raised` places after them have `low` + 1, all others `low`.
        null: weights of the null output, which stands for the zero vector: (in the row above, in the row of a zero
            vector, where all codewords have `low`). None: there is no such output.

    Raises:
        ParameterError: integers that break a rule of `privacy.ranks.table_ratio`.

    Guarantees: whatever orders two inputs give the codewords, an output's probabilities differ at most by the factor
        `ratio`, exactly; two opposite orders reach it.
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
            raise ParameterError("table", f"{self.as_dict()}", "; ".join(problems))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, under the names of docs/file-format.md."""
        names = {"M": self.codewords, "k": self.top, "T": TOTAL, "w_hi": self.high, "w_lo": self.low, "r": self.raised}
        return names if self.null is None else {**names, "null": list(self.null)}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> RankTable:
        """The table that `as_dict` wrote."""
        null = table.get("null")
        return cls(
            codewords=table["M"],
            top=table["k"],
            high=table["w_hi"],
            raised=table["r"],
            low=table["w_lo"],
            null=None if null is None else (null[0], null[1]),
        )

    @property
    def outputs(self) -> int:
        """Different reports: codewords, and the null output if there is one."""
        return self.codewords + (self.null is not None)

    @cached_property
    def ratio(self) -> Fraction:
        """e**epsilon of one index, exactly."""
        ratio = table_ratio(self.as_dict())[0]
        assert ratio is not None  # checked when the table was made
        return ratio

    def rows(self) -> IntArray:
        """(1 or 2, outputs) weights by place, the null output last: of a unit vector, and of the zero vector."""
        ranked = np.full(self.codewords, self.low, dtype=np.int64)
        ranked[: self.top] = self.high
        ranked[self.top : self.top + self.raised] += 1
        if self.null is None:
            return ranked[None, :]
        level = np.full(self.codewords, self.low, dtype=np.int64)
        return np.array([[*ranked, self.null[0]], [*level, self.null[1]]], dtype=np.int64)

    @cached_property
    def dominating(self) -> Mechanism:
        """A small table that loses as much as this one, for every measure of loss that grows with hockey-sticks.

        Its rows are an order, (with a null output) the zero vector's row, and the opposite order; outputs that have the
        same weights in all rows are merged. Levels and knots mean nothing.
        """
        rows = self.rows()
        opposite = rows[:1].copy()
        opposite[:, : self.codewords] = np.flip(opposite[:, : self.codewords])
        table = np.vstack([rows, opposite])
        merged: dict[tuple[int, ...], IntArray] = {}
        for column in table.T:
            kind = tuple(column.tolist())
            merged[kind] = merged.get(kind, np.zeros(len(kind), dtype=np.int64)) + column
        weights = np.array(list(merged.values()), dtype=np.int64).T
        return Mechanism(
            knots=np.arange(weights.shape[0], dtype=np.float64),
            levels=np.arange(weights.shape[1], dtype=np.float64),
            weights=weights,
            name="worst orders",
        )


def rank_table(*, codewords: int, top: int, epsilon: float | Fraction, null: bool = False) -> RankTable:
    """The table whose top k places have e**epsilon times the weight of the others, rounded so that it is never more.

    Arguments:
        codewords: M >= 2.
        top: k, 1 to M / 2.
        epsilon: > 0, of one index.
        null: with an output for the zero vector.

    Raises:
        InfeasibleError: 2**-32 is too coarse for so large an epsilon.

    Guarantees: log(`ratio`) <= epsilon; without a null output short of it by less than a relative M / 2**32 e**epsilon.
    Source: extreme points of the linear program over tables of ranks (docs/proofs/vectors.md).
    """
    if not 1 <= top <= codewords // 2:
        raise ParameterError("top", top, f"between 1 and codewords // 2 = {codewords // 2}")
    ratio = _exp_below(epsilon)
    rest = codewords - top
    if null:
        # (k E + M - k - M / E) t = 1 - 1 / E makes the null output's two weights differ by the factor E as well.
        low = -(-TOTAL * (1 - 1 / ratio) // (top * ratio + rest - codewords / ratio))
        large = TOTAL - codewords * low
        small = -(-large // ratio)
    else:
        low, large, small = -(-TOTAL // (top * ratio + rest)), 0, 0
    low, small = int(low), int(small)
    left = TOTAL - small - rest * low
    high = min(int(ratio * low), left // top)
    raised = left - top * high
    if low < 1 or high < low or not 0 <= raised <= rest or (null and not 1 <= small <= large):
        raise InfeasibleError(
            f"epsilon={float(epsilon):g}: weights of 2**-32 are too coarse for {codewords} codewords; use fewer bits"
        )
    return RankTable(
        codewords=codewords, top=top, high=high, raised=raised, low=low, null=(small, int(large)) if null else None
    )


def _exp_below(epsilon: float | Fraction) -> Fraction:
    """A rational at or below e**epsilon."""
    nearest = float(epsilon)
    # A float at or below a rational that is none.
    return exp_below(nearest if Fraction(nearest) <= epsilon else np.nextafter(nearest, 0.0))
