"""Tables that put a real weight onto one of 2**bits levels: nearest, stochastic, or with random replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import TOTAL, IntArray, Mechanism
from mezzotint.training.rqp.contraction import check_bits, check_q, contraction, table_contraction

Rounding = Literal["nearest", "stochastic"]
ROUNDINGS = ("nearest", "stochastic")
MAX_BITS = 8


@final
@dataclass(frozen=True, kw_only=True)
class Projection:
    """What happens to the weights after every noisy step.

    Arguments:
        table: draws a code for a weight. Weights are divided by the bound of their tensor first, so the table's
            range is [-1, 1] unless bounds are given in its own units.
        kappa: share of the noise's privacy loss that survives the table (Theorem A or B); 1 for mere rounding.
        rounding: how a weight comes onto the levels before codes are replaced; "table" for a user's own.
        q: probability to keep a code; 1 for no replacement.

    Guarantees: whatever the table, a step costs no more than its noise (kappa <= 1).
    """

    table: Mechanism
    kappa: float
    rounding: str
    q: float = 1.0

    @property
    def bits(self) -> int:
        """Bits of one weight."""
        return self.table.bits

    @cached_property
    def half_cell(self) -> float:
        """Half the widest distance of neighbouring levels, in units of the bound."""
        return float(np.diff(self.table.levels).max()) / 2

    @property
    def replacement(self) -> float:
        """Probability that a code is drawn afresh, evenly from all levels: lambda = L (1-q) / (L-1)."""
        levels = self.table.levels.size
        return levels * (1 - self.q) / (levels - 1)


def _replacing_rows(levels: int, q: float) -> tuple[IntArray, float]:
    """Integer rows of keep-or-replace, and the q they give: at most the one asked for."""
    # Rounding the replacement up keeps the table at least as private as the formula.
    other = math.ceil((1 - q) / (levels - 1) * TOTAL)
    keep = TOTAL - other * (levels - 1)
    rows = np.full((levels, levels), other, dtype=np.int64)
    np.fill_diagonal(rows, keep)
    return rows, keep / TOTAL


def projection(*, bits: int = 4, rounding: Rounding = "stochastic", q: float = 1.0) -> Projection:
    """Even levels on [-1, 1], rounded to, then kept with probability q or replaced by one of the others.

    Arguments:
        bits: bits of one weight, 1 to 8.
        rounding: "stochastic" (one of the two neighbours, unbiased) or "nearest" (the paper's).
        q: in [1/2**bits, 1]; 1 is mere rounding, which costs and buys no privacy.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.

    Guarantees:
        Stochastic with q=1 is unbiased within [-1, 1]. The table's own q is at most the one asked for, by less than
        2**-24, and its contraction at most `contraction(q, bits)`.
    Source: RQP-SGD paper, Algorithm 1 (nearest); docs/training.md for stochastic rounding.
    """
    levels = check_bits(bits)
    if bits > MAX_BITS:
        raise ParameterError("bits", bits, f"weights take 1 to {MAX_BITS} bits")
    if rounding not in ROUNDINGS:
        raise ParameterError("rounding", rounding, 'use "stochastic" or "nearest"')
    keep = check_q(q, levels)
    values = np.linspace(-1.0, 1.0, levels)
    rows, kept = _replacing_rows(levels, keep)
    name = f"{rounding} to {levels} levels" + (f", kept with probability {keep:g}" if keep < 1 else "")
    if rounding == "stochastic":
        table = Mechanism(knots=values, levels=values, weights=rows, name=name)
    else:
        # A jump halfway between neighbours: its first row is the lower level, its second the upper one.
        middles = np.repeat((values[1:] + values[:-1]) / 2, 2)
        knots = np.concatenate([[-1.0], middles, [1.0]])
        table = Mechanism(knots=knots, levels=values, weights=np.repeat(rows, 2, axis=0), name=name)
    return Projection(table=table, kappa=contraction(keep, bits), rounding=rounding, q=kept)


def projection_from(table: Mechanism) -> Projection:
    """Any table as a projection; its contraction is bounded by Theorem B.

    Arguments:
        table: a `Mechanism` of at most 256 levels; give the bounds of weights in units of its range.

    Raises:
        ParameterError: more than 256 levels.
    """
    if table.levels.size > 2**MAX_BITS:
        raise ParameterError("table", table.levels.size, f"weights take at most {2**MAX_BITS} levels")
    return Projection(table=table, kappa=table_contraction(table), rounding="table")
