"""A table over ranks: the integers that a ranked codebook's privacy rests on, and nothing but integers.

Order statistics of normal numbers, which say how close the closest of M random directions are.

Everything is a one-dimensional integral over a beta-binomial tail; nothing is simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import final

import numpy as np
import scipy

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.loss import exp_below
from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray, Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.privacy.verify import table_ratio


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
        ParameterError: integers that break a rule of `privacy.verify.table_ratio`.

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

    def as_dict(self) -> JsonObject:
        """Plain values for JSON, under the names of docs/file-format.md."""
        names = {"M": self.codewords, "k": self.top, "T": TOTAL, "w_hi": self.high, "w_lo": self.low, "r": self.raised}
        return names if self.null is None else {**names, "null": list(self.null)}

    @classmethod
    def from_dict(cls, table: JsonObject) -> RankTable:
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


_FARTHEST = 9.0
"""Beyond it lies a normal number with probability 2e-19."""

_NODES = 96
"""Gauss-Legendre nodes of each of the parts that an integral is cut into."""


@lru_cache(maxsize=1)
def _rule() -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def _grid(low: float, high: float, centre: float, spread: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [low, high], with two parts of their own where the integrand has its step."""
    cuts = sorted({low, high, *(min(max(centre + c * spread, low), high) for c in (-9.0, 0.0, 9.0))})
    nodes, weights = _rule()
    parts = [(0.5 * (b - a), 0.5 * (a + b)) for a, b in pairwise(cuts)]
    return (
        np.concatenate([middle + half * nodes for half, middle in parts]),
        np.concatenate([half * weights for half, _ in parts]),
    )


@lru_cache(maxsize=4096)
def top_normal(count: int, top: int) -> tuple[float, float]:
    """Expected sum, and expected sum of squares, of the `top` largest of `count` independent N(0, 1) numbers.

    Arguments:
        count: M >= 1.
        top: k, from 0 to M.

    Returns: (S_k(M), S2_k(M)), relative error about 1e-12.

    Source: the sum's integrand is M x phi(x) P(fewer than k of the other M - 1 are larger).
    """
    if top in (0, count):
        return 0.0, float(top)
    share = top / count
    centre = float(-scipy.special.ndtri(share))
    spread = math.sqrt(share * (1 - share) / count) / _density(centre)
    x, weights = _grid(-_FARTHEST, _FARTHEST, centre, spread)
    mass = count * weights * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    mass *= scipy.special.betainc(count - top, top, scipy.special.ndtr(x))
    return float(mass @ x), float(mass @ (x * x))


@lru_cache(maxsize=4096)
def top_folded(count: int, top: int) -> tuple[float, float]:
    """As `top_normal`, of the `top` largest of +-g_1 .. +-g_h, where `count` = 2 h.

    Arguments:
        count: M = 2 h, even.
        top: k, from 0 to M. For k <= h these are the largest absolute values.
    """
    half = count // 2
    if top > half:
        # The sum of all is 0, that of all squares 2 h: what is not on top mirrors what is.
        first, second = top_folded(count, count - top)
        return first, count - second
    if top == 0:
        return 0.0, 0.0
    if top == half:
        return half * math.sqrt(2 / math.pi), float(half)
    share = top / half
    centre = float(scipy.special.ndtri(1 - share / 2))
    spread = math.sqrt(share * (1 - share) / half) / (2 * _density(centre))
    x, weights = _grid(0.0, _FARTHEST, centre, spread)
    mass = half * weights * 2 * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    mass *= scipy.special.betainc(half - top, top, scipy.special.erf(x / math.sqrt(2)))
    return float(mass @ x), float(mass @ (x * x))


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def mean_norm(dimension: int) -> float:
    """Expected L2 norm of a vector of so many independent N(0, 1) numbers: sqrt(d - 1/2) up to O(d**-1.5)."""
    if dimension > 10**6:
        # sqrt(2) Gamma((d+1)/2) / Gamma(d/2) = sqrt(d) (1 - 1/(4 d) + 1/(32 d^2) + ...); the next term is below 1e-18.
        return math.sqrt(dimension) * (1 - 1 / (4 * dimension) + 1 / (32 * dimension**2))
    return math.sqrt(2) * math.exp(math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2))


@lru_cache(maxsize=256)
def gaussian_constant(epsilon: float) -> tuple[float, float]:
    """The error constant of PrivUnitG, the yardstick: E|error|^2 of a unit vector is A d, but for a constant.

    Arguments:
        epsilon: > 0, of the whole vector.

    Returns: (A, q): the least A over the share q of directions that count as close.

    Source: Asi, Feldman and Talwar 2022, section 4; the limit of ranked codebooks for many codewords.
    """

    # q e^eps / (1 - q) is searched on a log grid, then by golden section: A is unimodal in log q.
    def constant(log_share: float) -> float:
        share = math.exp(log_share)
        density = _density(float(-scipy.special.ndtri(share)))
        # (q e^eps + 1 - q) / (e^eps - 1), without overflow.
        ratio = (share + (1 - share) * math.exp(-epsilon)) / -math.expm1(-epsilon)
        return (ratio / density) ** 2

    low, high = -min(epsilon, 600.0) - 4.0, math.log(0.5)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if constant(left) < constant(right) else (left, high)
    best = (low + high) / 2
    return constant(best), math.exp(best)


def gaussian_error(dimension: int, epsilon: float) -> float:
    """Mean squared error of PrivUnitG for a unit vector, with the share that makes `gaussian_constant` least.

    Its inner product with the vector has the mean m = A**-0.5 and the mean square 1 + m Phi^-1(1 - q), before division
    by m; the other coordinates are N(0, 1).
    """
    constant, share = gaussian_constant(epsilon)
    square = 1 + float(-scipy.special.ndtri(share)) / math.sqrt(constant)
    return constant * (dimension - 1 + square) - 1
