"""Privacy loss of one report: pure, (epsilon, delta) and Renyi, worst over all pairs of inputs; the
certificate.

Every output distribution of a table is a mixture of two rows, and the divergences here are
quasi-convex in the pair
of distributions: the worst pair of inputs is a pair of rows (docs/proofs/tables.md, T2). So a
maximum over rows is the supremum over the continuum of inputs. The certificate is the largest ratio
as two integers, and their indices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, final

import numpy as np

from mezzotint.core.errors import as_real
from mezzotint.core.records import JsonObject, plain
from mezzotint.core.table import check_weights
from mezzotint.core.types import TOTAL, UNIT, FloatArray, IntArray

_ABOVE_EVERY_RATIO = 40.0
"""e**40 exceeds 2**32, hence every finite ratio of two weights."""

_EXACT_PAIRS = 256
"""At most this many nearly worst row pairs are recomputed in exact integers."""


@dataclass(frozen=True, kw_only=True)
class WorstRatio:
    """The largest ratio of two weights of one level: numerator / denominator (denominator 0:
    unbounded).
    """

    numerator: int
    denominator: int
    level: int
    row_high: int
    row_low: int


def worst_ratio(weights: IntArray) -> WorstRatio:
    """Find the largest ratio max_k W[k,i] / min_k W[k,i], in exact integers; the first level wins a
    tie.

    Levels without mass in any row are dropped: they are never reported. A constant table gives 1/1.
    """
    table = check_weights(weights)
    high, low = table.max(axis=0), table.min(axis=0)
    unbounded = np.flatnonzero((high > 0) & (low == 0))
    if unbounded.size:
        level = int(unbounded[np.argmax(high[unbounded])])
    else:
        used = np.flatnonzero(high > 0)
        ratios = high[used] / low[used]
        # Rounding keeps order: the quotient that is exactly the largest is among the largest
        # floats.
        near: list[int] = used[ratios == ratios.max()].tolist()
        exact = [Fraction(int(high[i]), int(low[i])) for i in near]
        level = near[exact.index(max(exact))]
    return WorstRatio(
        numerator=int(high[level]),
        denominator=int(low[level]),
        level=level,
        row_high=int(np.argmax(table[:, level])),
        row_low=int(np.argmin(table[:, level])),
    )


_LOG_BITS = 128
"""Logarithms of ratios are enclosed to 2**-128 before they are rounded up to a float."""


def log_ratio(numerator: int, denominator: int) -> float:
    """Return log(numerator / denominator), rounded up to the next float; inf over 0.

    Arguments:
        numerator, denominator: integers with 0 <= denominator <= numerator <= 2**32, numerator > 0.

    Guarantees: never below the exact value, less than one unit in the last place above it, and
        the same float on every machine; 0.0 exactly where the integers are equal.

    >>> log_ratio(1, 1), log_ratio(3, 1), log_ratio(1, 0)
    (0.0, 1.0986122886681098, inf)
    """
    if denominator == 0:
        return math.inf
    import flint

    from mezzotint.kernel.real import ceil_scaled, log_fraction

    with flint.ctx.workprec(2 * _LOG_BITS):
        scaled = ceil_scaled(log_fraction(Fraction(numerator, denominator)), _LOG_BITS)
    return float_above(Fraction(scaled, 2**_LOG_BITS))


def pure_epsilon(weights: IntArray) -> float:
    """Pure epsilon of one report: log of the largest ratio of two weights of one level, rounded up.

    Arguments:
        weights: (rows, m) integers >= 0, every row sums to 2**32.

    Returns: nats; inf where a level is possible from one row and impossible from another.

    Raises:
        ParameterError: weights that do not form a table.

    Guarantees:
        Never below the exact value, less than one unit in the last place above it.
        0.0 exactly when all rows are equal.

    Edge cases: a level used by some rows only: inf. A level without any mass: ignored.
    Source: T3 (docs/proofs/tables.md).

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> mz.privacy.pure_epsilon(table.weights) == table.epsilon
        True
    """
    worst = worst_ratio(weights)
    return log_ratio(worst.numerator, worst.denominator)


def exp_below(epsilon: float) -> Fraction:
    """A dyadic rational at or below e**epsilon (relative distance at most 2**-49), 1 exactly at 0;
    epsilon >= 0.

    Above 40 it stays at e**40, which is more than any finite ratio of weights.
    """
    # exp errs by less than one ulp = 2 * UNIT relative; 8 * UNIT are given away. e**epsilon >= 1
    # holds anyway.
    return max(
        Fraction(1), Fraction(math.exp(min(epsilon, _ABOVE_EVERY_RATIO))) * (1 - Fraction(1, 2**50))
    )


def float_above(value: Fraction) -> float:
    """The least float64 at or above a rational."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def check_epsilon(epsilon: float) -> float:
    """The number itself; ParameterError for NaN and below 0."""
    return as_real(
        "epsilon", epsilon, lambda value: value >= 0, "need a number >= 0 (inf is allowed)"
    )


def _exact_hockey_stick(first: list[int], second: list[int], ratio: Fraction) -> int:
    """denominator(ratio) * sum_i max(first - ratio * second, 0), in integers."""
    scale, factor = ratio.denominator, ratio.numerator
    return sum(max(scale * p - factor * q, 0) for p, q in zip(first, second, strict=True))


def delta(weights: IntArray, epsilon: float) -> float:
    """Worst-case hockey-stick divergence max_{a,b} sum_i max(P_a,i - e**epsilon P_b,i, 0) over row
    pairs, rounded up.

    Arguments:
        weights: (rows, m) integers >= 0, every row sums to 2**32.
        epsilon: >= 0, inf allowed.

    Returns: a probability.

    Raises:
        ParameterError: epsilon negative or NaN, weights that do not form a table.

    Guarantees:
        Never below the exact value; above it by at most e**epsilon * 2**-49 relative to the second
        row's mass, plus (m + 8) * 2**-52 when more than 256 pairs tie.
        0.0 exactly at epsilon >= pure_epsilon, if that is finite; total variation distance,
        exactly, at epsilon = 0.

    Edge cases: epsilon = inf is the limit: the largest mass that one row puts where another has
    none.
    Source: T2 (docs/proofs/tables.md).

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> mz.privacy.delta(table.weights, 1.0), round(mz.privacy.delta(table.weights, 0.0), 4)
        (0.0, 0.4621)
    """
    table = check_weights(weights)
    value = check_epsilon(epsilon)
    limit = pure_epsilon(table)
    if math.isfinite(limit) and value >= limit:
        return 0.0
    # Rows that occur twice (jumps, plateaus) would only repeat pairs.
    table = np.unique(table, axis=0)
    ratio = exp_below(value)
    rows = table.astype(np.float64)
    screened = np.stack(
        [np.maximum(rows - float(ratio) * row, 0.0).sum(axis=1) for row in rows], axis=1
    )
    # A positive term has ratio * W_b <= W_a up to rounding, so its error is at most 4 * UNIT * W_a;
    # the terms add up to at most 2**32 and summing m of them adds m * UNIT: together (m + 4) * UNIT
    # * 2**32. Twice that separates pairs.
    margin = (table.shape[1] + 8) * 2 * UNIT * TOTAL
    near = np.argwhere(screened >= screened.max() - margin)
    exact = max(
        _exact_hockey_stick(table[a].tolist(), table[b].tolist(), ratio)
        for a, b in near[:_EXACT_PAIRS].tolist()
    )
    bound = Fraction(exact, ratio.denominator * TOTAL)
    if len(near) > _EXACT_PAIRS:
        bound = max(bound, Fraction(float(screened.max()) + margin) / TOTAL)
    return min(1.0, float_above(bound))


def _log_weights(table: IntArray) -> FloatArray:
    """log(W / smallest positive weight of the column), 0 for 0, relative error below 16 * UNIT."""
    smallest = np.where(table > 0, table, TOTAL).min(axis=0)
    return np.log1p(np.maximum(table - smallest, 0) / smallest)


def _renyi_small(rows: FloatArray, logs: FloatArray, beta: float) -> FloatArray:
    """Renyi divergences of all pairs where |beta| * epsilon <= 1: through expm1, without a
    singularity at beta = 0.
    """
    # With x = (P_a/c)^beta - 1 and y = (P_b/c)^-beta - 1 for a column constant c,
    # sum P_a^(1+beta) P_b^(-beta) - 1 = sum P_a (x + (1 + x) y); both sums are divided by beta
    # before they are added.
    if beta == 0:
        return (rows * logs).sum(axis=1)[:, None] - rows @ logs.T
    x, y = np.expm1(beta * logs), np.expm1(-beta * logs)
    tilted = (rows * x / beta).sum(axis=1)[:, None] + (rows * (1 + x)) @ (y / beta).T
    with np.errstate(divide="ignore"):
        return np.log1p(np.maximum(beta * tilted, -1.0)) / beta


def _renyi_medium(rows: FloatArray, logs: FloatArray, beta: float) -> FloatArray:
    """Divergences where 1 < |beta| * epsilon <= 300: one matrix product of powers, which do not
    overflow.
    """
    powers = (rows * np.exp(beta * logs)) @ np.exp(-beta * logs).T
    with np.errstate(divide="ignore"):
        return np.log(powers) / beta


def _renyi_large(rows: FloatArray, logs: FloatArray, beta: float) -> FloatArray:
    """Divergences of large orders (beta > 0): log-sum-exp, one second row at a time.

    An entry without mass has an exponent below 0; one with mass, above 0.
    """
    result = np.empty((rows.shape[0], rows.shape[0]))
    for b, log_row in enumerate(logs):
        exponents = beta * (logs - log_row)
        top = exponents.max(axis=1)
        result[:, b] = (top + np.log((rows * np.exp(exponents - top[:, None])).sum(axis=1))) / beta
    return result


def _renyi_below_one(weights: IntArray, alpha: float) -> FloatArray:
    """(rows, rows) divergences of an order below 1, rounded up.

    Such an order is finite where one row has mass and the other has none, and large when little is
    common to both: it is log(S) / (alpha - 1) with S = sum over common levels of P_a^alpha P_b^(1 -
    alpha), so that S must be bounded from below, relative to itself. Two such bounds, the better of
    which counts: S summed as it stands, and S - 1.
    """
    beta = alpha - 1.0
    unit = 4 * (weights.shape[1] + 128) * UNIT
    result = np.zeros((weights.shape[0], weights.shape[0]))
    shares = weights / float(TOTAL)
    with np.errstate(divide="ignore"):
        logs = np.log(shares)
    for b in range(weights.shape[0]):
        near, far = np.minimum(weights, weights[b]), np.abs(weights - weights[b])
        common = near > 0
        # S: logarithms are at most 23 and err by UNIT of that, as do exponents: `unit` covers them
        # and the sum.
        powers = np.where(
            common,
            alpha * np.where(common, logs, 0.0) - beta * np.where(common, logs[b], 0.0),
            -np.inf,
        )
        with np.errstate(divide="ignore"):
            direct = (np.log(np.exp(powers).sum(axis=1)) - unit) / beta
        # S - 1 = sum over common levels of P_a (e^(beta L) - 1), less what P_a has elsewhere; L =
        # log(P_a / P_b), from exact differences. expm1 passes relative errors of its argument on,
        # 24 times at most.
        sizes = np.log1p(np.where(common, far, 0) / np.maximum(near, 1))
        terms = np.where(
            common, shares * np.expm1(beta * np.where(weights > weights[b], sizes, -sizes)), -shares
        )
        lowest = terms.sum(axis=1) - unit * np.abs(terms).sum(axis=1)
        with np.errstate(divide="ignore"):
            small = np.log1p(np.clip(lowest, -1.0, 0.0)) / beta
        # Errors above take less than half of `unit`, 512 UNIT at least: the last operations are
        # paid as well.
        result[:, b] = np.minimum(direct, small)
    np.fill_diagonal(result, 0.0)
    return result


def check_order(alpha: float) -> float:
    """The number itself; ParameterError unless it lies in (0, inf]."""
    remedy = "a Renyi order lies in (0, inf]; 1 is Kullback-Leibler, inf pure epsilon"
    return as_real("alpha", alpha, lambda order: order > 0, remedy)


def renyi_pairs(weights: IntArray, alpha: float) -> FloatArray:
    """(rows, rows) Renyi divergences of finite order `alpha` of row a from row b, each rounded up;
    see `renyi`.
    """
    table = check_weights(weights)
    order = check_order(alpha)
    if order < 1:
        return _renyi_below_one(table, order)
    used = table[:, table.max(axis=0) > 0]
    rows, logs = used / float(TOTAL), _log_weights(used)
    spread = float(logs.max())
    beta = order - 1.0
    size = beta * spread
    # A zero under mass makes orders >= 1 infinite. Those pairs are written last.
    escapes = ((used > 0).astype(np.float64) @ (used == 0).astype(np.float64).T) > 0
    method = _renyi_small if size <= 1 else _renyi_medium if size <= 300 else _renyi_large
    divergences = method(rows, logs, beta)
    # Error: logarithms err by 16 UNIT * spread, powers by 4 ulp more, sums of m terms by m UNIT
    # relative. For size <= 1 all terms are below 9 * spread and the final log1p multiplies errors
    # by at most 3: (27 m + 900) UNIT * spread. For size > 1 the log turns the relative error (m +
    # 40) UNIT + 32 UNIT * size into an absolute one over beta, and 1/beta < spread. Rounding alpha
    # - 1 moves the value by less than 2 UNIT * spread.
    error = 48 * (rows.shape[1] + 100) * UNIT * spread
    result = np.maximum(divergences, 0.0) + error
    result[escapes] = np.inf
    np.fill_diagonal(result, 0.0)
    return result


def renyi(weights: IntArray, alpha: float) -> float:
    """Worst-case Renyi divergence of order `alpha` over all ordered row pairs, nats, rounded up.

    Arguments:
        weights: (rows, m) integers >= 0, every row sums to 2**32.
        alpha: the order, in (0, inf]; 1 is Kullback-Leibler, inf is pure epsilon.

    Returns: nats; inf as for `pure_epsilon`, for alpha > 1.

    Raises:
        ParameterError: alpha zero, negative or NaN; weights that do not form a table.

    Guarantees:
        Never below the exact value; above it by at most 128 * (m + 128) * 2**-53 times the largest
        log-ratio of two positive weights of a level, plus, below order 1, as many relative to the
        value. Never above pure_epsilon; 0.0 exactly when all rows are equal.

    Edge cases: a level used by some rows only: inf from order 1 on; below 1 finite unless two rows
    are disjoint.
    Source: T2 (docs/proofs/tables.md); van Erven and Harremoes 2014 (quasi-convexity, Theorem 13).

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> mz.privacy.renyi(table.weights, 2.0) < table.epsilon
        True
    """
    order = check_order(alpha)
    limit = pure_epsilon(weights)
    # From order 2**60 on the divergence is within 2**-55 of its limit, which it never exceeds.
    if limit == 0 or order >= 2.0**60 or (math.isinf(limit) and order >= 1):
        return limit
    table = np.unique(check_weights(weights), axis=0)
    return min(limit, float(renyi_pairs(table, order).max()))


@final
@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The privacy loss of one report of one table, in integers that anyone can look up in the
    table.

    Arguments:
        numerator, denominator: the largest and smallest weight (units of 2**-32) of the worst
            level; their ratio is e**epsilon. A denominator of 0 says that epsilon is unbounded.
        level, row_high, row_low: their indices in the table, from 0.
        max_bias: sup over inputs of |E[decoded report] - input| as a rational, data units; None for
            a table over categories, whose levels are indices.
        sha256: hash of the table that the claim is about.
        neighboring: "replace_one": one input against any other input.
        unit: "report": one report of one value.

    Guarantees: `epsilon` is the exact pure epsilon rounded up; `mezzotint.privacy.verify` checks it
    independently.
    Source: T3 and T4 (docs/proofs/tables.md).

    Example:
        >>> certificate = mz.families.randomized_response(epsilon=1.0).certificate()
        >>> round(certificate.numerator / certificate.denominator, 4)  # e
        2.7183
    """

    numerator: int
    denominator: int
    level: int
    row_high: int
    row_low: int
    max_bias: Fraction | None
    sha256: str
    neighboring: Literal["replace_one"] = "replace_one"
    unit: Literal["report"] = "report"

    @property
    def epsilon(self) -> float:
        """log(numerator / denominator), rounded up; inf over 0."""
        return log_ratio(self.numerator, self.denominator)

    def as_dict(self) -> JsonObject:
        """Return plain values for JSON: integers as integers, max_bias as "a/b", an unbounded
        epsilon as "inf".
        """
        values: JsonObject = {"epsilon": self.epsilon, **vars(self)}
        return {name: plain(value) for name, value in values.items()}

    def __str__(self) -> str:
        return f"One report of table {self.sha256[:12]}{self._privacy()}{self._accuracy()}."

    def _privacy(self) -> str:
        if self.denominator == 0:
            return (
                f" has no pure epsilon: level {self.level} has mass in row {self.row_high} and "
                f"none in row {self.row_low}"
            )
        return (
            ", to an observer of every single report, satisfies pure differential privacy with "
            f"epsilon = log({self.numerator}/{self.denominator}), exactly, which is at most "
            f"{self.epsilon!r}, for replacing its input by any other (level {self.level}, rows "
            f"{self.row_high} and {self.row_low}); further reports about the same person add up"
        )

    def _accuracy(self) -> str:
        if self.max_bias is None:
            return ""
        return f"; its mean is off by at most {float_above(self.max_bias):.3g} data units"
