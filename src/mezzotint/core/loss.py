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

_EXP_ALLOWANCE = Fraction(1, 2**50)
"""8 units of roundoff; `math.exp` errs by less than 2 of them, relative."""

_CERTAIN_ORDER = 2.0**60
"""From this order on the Renyi divergence is within 2**-55 of its limit, which it never exceeds."""

_SMALL_EXPONENT = 1.0
_MEDIUM_EXPONENT = 300.0
"""Limits of (order - 1) times the largest log ratio for the three ways to sum powers."""

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
    checked_weights = check_weights(weights)
    largest_weights = checked_weights.max(axis=0)
    smallest_weights = checked_weights.min(axis=0)
    level = _worst_level(largest_weights, smallest_weights)
    level_weights: list[int] = checked_weights[:, level].tolist()
    largest = max(level_weights)
    smallest = min(level_weights)
    return WorstRatio(
        numerator=largest,
        denominator=smallest,
        level=level,
        row_high=level_weights.index(largest),
        row_low=level_weights.index(smallest),
    )


def _worst_level(largest: IntArray, smallest: IntArray) -> int:
    """The level at which largest / smallest is largest; the first wins a tie."""
    is_reported = largest > 0
    unbounded = np.flatnonzero(is_reported & (smallest == 0))
    if unbounded.size:
        position = np.argmax(largest[unbounded])
        return int(unbounded[position])
    reported = np.flatnonzero(is_reported)
    ratios = largest[reported] / smallest[reported]
    # Rounding keeps order: the quotient that is exactly the largest is among the largest floats.
    is_candidate = ratios == ratios.max()
    candidates: list[int] = reported[is_candidate].tolist()

    def exact_ratio(level: int) -> Fraction:
        return Fraction(int(largest[level]), int(smallest[level]))

    return max(candidates, key=exact_ratio)


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

    ratio = Fraction(numerator, denominator)
    with flint.ctx.workprec(2 * _LOG_BITS):
        scaled_logarithm = ceil_scaled(log_fraction(ratio), _LOG_BITS)
    return float_above(Fraction(scaled_logarithm, 2**_LOG_BITS))


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
    capped_epsilon = min(epsilon, _ABOVE_EVERY_RATIO)
    nearest = Fraction(math.exp(capped_epsilon))
    floored = nearest * (1 - _EXP_ALLOWANCE)
    # e**epsilon >= 1 holds anyway.
    return max(Fraction(1), floored)


def float_above(value: Fraction) -> float:
    """The least float64 at or above a rational."""
    nearest = float(value)
    if Fraction(nearest) >= value:
        return nearest
    return math.nextafter(nearest, math.inf)


def check_epsilon(epsilon: float) -> float:
    """The number itself; ParameterError for NaN and below 0."""
    remedy = "need a number >= 0 (inf is allowed)"
    return as_real("epsilon", epsilon, lambda value: value >= 0, remedy)


def _exact_hockey_stick(
    first: list[int],
    second: list[int],
    ratio: Fraction,
) -> int:
    """denominator(ratio) * sum_i max(first - ratio * second, 0), in integers."""
    denominator = ratio.denominator
    factor = ratio.numerator
    excess = 0
    for first_weight, second_weight in zip(first, second, strict=True):
        difference = denominator * first_weight - factor * second_weight
        excess += max(difference, 0)
    return excess


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
    distinct_rows = check_weights(weights)
    epsilon = check_epsilon(epsilon)
    limit = pure_epsilon(distinct_rows)
    if math.isfinite(limit) and epsilon >= limit:
        return 0.0
    # Rows that occur twice (jumps, plateaus) would only repeat pairs.
    distinct_rows = np.unique(distinct_rows, axis=0)
    ratio = exp_below(epsilon)
    float_rows = distinct_rows.astype(np.float64)
    row_count = len(float_rows)
    screened = np.empty((row_count, row_count))
    for second_index, second_row in enumerate(float_rows):
        differences = float_rows - float(ratio) * second_row
        gains = np.maximum(differences, 0.0)
        screened[:, second_index] = gains.sum(axis=1)
    margin = screening_margin(distinct_rows.shape[1])
    largest_excess = float(screened.max())
    nearly_worst = np.argwhere(screened >= largest_excess - margin)
    exact_excess = 0
    for row_pair in nearly_worst[:_EXACT_PAIRS]:
        first_row, second_row = distinct_rows[row_pair].tolist()
        excess = _exact_hockey_stick(first_row, second_row, ratio)
        exact_excess = max(exact_excess, excess)
    upper_bound = Fraction(exact_excess, ratio.denominator * TOTAL)
    if len(nearly_worst) > _EXACT_PAIRS:
        screened_units = Fraction(largest_excess + margin)
        upper_bound = max(upper_bound, screened_units / TOTAL)
    return min(1.0, float_above(upper_bound))


def screening_margin(term_count: int) -> float:
    """How far sums of so many terms max(W_a - ratio * W_b, 0), in floats, are from their order.

    A positive term has ratio * W_b <= W_a up to rounding, so its error is at most 4 * UNIT * W_a;
    the terms add up to at most 2**32 and summing m of them adds m * UNIT: together (m + 4) * UNIT
    * 2**32. Twice that separates pairs.
    """
    return (term_count + 8) * 2 * UNIT * TOTAL


def _log_weights(table: IntArray) -> FloatArray:
    """log(W / smallest positive weight of the column), 0 for 0, relative error below 16 * UNIT."""
    positive = np.where(table > 0, table, TOTAL)
    smallest = positive.min(axis=0)
    excess = np.maximum(table - smallest, 0)
    return np.log1p(excess / smallest)


def _renyi_small(
    rows: FloatArray,
    logs: FloatArray,
    beta: float,
) -> FloatArray:
    """Renyi divergences of all pairs where |beta| * epsilon <= 1: through expm1, without a
    singularity at beta = 0.
    """
    # With x = (P_a/c)^beta - 1 and y = (P_b/c)^-beta - 1 for a column constant c,
    # sum P_a^(1+beta) P_b^(-beta) - 1 = sum P_a (x + (1 + x) y); both sums are divided by beta
    # before they are added.
    if beta == 0:
        entropies = (rows * logs).sum(axis=1)
        return entropies[:, None] - rows @ logs.T
    first_power = np.expm1(beta * logs)
    second_power = np.expm1(-beta * logs)
    first_terms = rows * first_power / beta
    first_sum = first_terms.sum(axis=1)
    scaled_power = second_power / beta
    powers = rows * (1 + first_power)
    mixed_sum = powers @ scaled_power.T
    power_excess = beta * (first_sum[:, None] + mixed_sum)
    with np.errstate(divide="ignore"):
        return np.log1p(np.maximum(power_excess, -1.0)) / beta


def _renyi_medium(
    rows: FloatArray,
    logs: FloatArray,
    beta: float,
) -> FloatArray:
    """Divergences where 1 < |beta| * epsilon <= 300: one matrix product of powers, which do not
    overflow.
    """
    first_powers = rows * np.exp(beta * logs)
    second_powers = np.exp(-beta * logs)
    powers = first_powers @ second_powers.T
    with np.errstate(divide="ignore"):
        return np.log(powers) / beta


def _renyi_large(
    rows: FloatArray,
    logs: FloatArray,
    beta: float,
) -> FloatArray:
    """Divergences of large orders (beta > 0): log-sum-exp, one second row at a time.

    An entry without mass has an exponent below 0; one with mass, above 0.
    """
    row_count = len(rows)
    divergences = np.empty((row_count, row_count))
    for second_index, second_logs in enumerate(logs):
        exponents = beta * (logs - second_logs)
        largest = exponents.max(axis=1)
        scaled_powers = np.exp(exponents - largest[:, None])
        scaled_sum = (rows * scaled_powers).sum(axis=1)
        divergences[:, second_index] = (largest + np.log(scaled_sum)) / beta
    return divergences


def _renyi_below_one(weights: IntArray, alpha: float) -> FloatArray:
    """(rows, rows) divergences of an order below 1, rounded up.

    Such an order is finite where one row has mass and the other has none, and large when little is
    common to both: it is log(S) / (alpha - 1) with S = sum over common levels of P_a^alpha P_b^(1 -
    alpha), so that S must be bounded from below, relative to itself. Two such bounds, the better of
    which counts: S summed as it stands, and S - 1.
    """
    # Logarithms are at most 23 and err by a roundoff of that, as do exponents: `error` covers them
    # and the sum. Other errors take less than half of it (512 roundoffs at least): the last
    # operations are paid as well.
    row_count, level_count = weights.shape
    error = 4 * (level_count + 128) * UNIT
    divergences = np.zeros((row_count, row_count))
    with np.errstate(divide="ignore"):
        for second_index in range(row_count):
            log_sum = _log_power_sum(weights, second_index, alpha)
            direct_bound = (log_sum - error) / (alpha - 1.0)
            least_excess = _least_power_excess(weights, second_index, alpha, error)
            excess = np.clip(least_excess, -1.0, 0.0)
            by_excess = np.log1p(excess) / (alpha - 1.0)
            divergences[:, second_index] = np.minimum(direct_bound, by_excess)
    np.fill_diagonal(divergences, 0.0)
    return divergences


def _log_power_sum(
    weights: IntArray,
    second: int,
    alpha: float,
) -> FloatArray:
    """(rows,) log(S): log of sum over common levels of P_a^alpha P_b^(1 - alpha)."""
    beta = alpha - 1.0
    logs = np.log(weights / float(TOTAL))
    has_mass = weights > 0
    is_common = has_mass & has_mass[second]
    first_logs = np.where(is_common, logs, 0.0)
    second_logs = np.where(is_common, logs[second], 0.0)
    log_powers = alpha * first_logs - beta * second_logs
    exponents = np.where(is_common, log_powers, -np.inf)
    power_sums = np.exp(exponents).sum(axis=1)
    return np.log(power_sums)


def _least_power_excess(
    weights: IntArray,
    second: int,
    alpha: float,
    error: float,
) -> FloatArray:
    """(rows,) S - 1, rounded down: the sum over common levels of P_a (e^(beta L) - 1), less what
    P_a has elsewhere.

    L = log(P_a / P_b), from exact differences. expm1 passes relative errors of its argument on, 24
    times at most.
    """
    shares = weights / float(TOTAL)
    second_weights = weights[second]
    smaller = np.minimum(weights, second_weights)
    is_common = smaller > 0
    distances = np.abs(weights - second_weights)
    difference = np.where(is_common, distances, 0)
    divisors = np.maximum(smaller, 1)
    distance = np.log1p(difference / divisors)
    is_larger = weights > second_weights
    log_ratios = np.where(is_larger, distance, -distance)
    common_terms = shares * np.expm1((alpha - 1.0) * log_ratios)
    terms = np.where(is_common, common_terms, -shares)
    magnitudes = np.abs(terms).sum(axis=1)
    return terms.sum(axis=1) - error * magnitudes


def check_order(alpha: float) -> float:
    """The number itself; ParameterError unless it lies in (0, inf]."""
    remedy = "a Renyi order lies in (0, inf]; 1 is Kullback-Leibler, inf pure epsilon"
    return as_real("alpha", alpha, lambda order: order > 0, remedy)


def renyi_pairs(weights: IntArray, alpha: float) -> FloatArray:
    """(rows, rows) Renyi divergences of finite order `alpha` of row a from row b, each rounded up;
    see `renyi`.
    """
    checked_weights = check_weights(weights)
    order = check_order(alpha)
    if order < 1:
        return _renyi_below_one(checked_weights, order)
    is_reported = checked_weights.any(axis=0)
    reported = checked_weights[:, is_reported]
    row_shares = reported / float(TOTAL)
    log_weights = _log_weights(reported)
    spread = float(log_weights.max())
    exponent = (order - 1.0) * spread
    # A zero under mass makes orders >= 1 infinite. Those pairs are written last.
    has_mass = (reported > 0).astype(np.float64)
    has_none = 1 - has_mass
    is_unbounded = (has_mass @ has_none.T) > 0
    divergences_of = _renyi_large
    if exponent <= _SMALL_EXPONENT:
        divergences_of = _renyi_small
    elif exponent <= _MEDIUM_EXPONENT:
        divergences_of = _renyi_medium
    divergences = divergences_of(row_shares, log_weights, order - 1.0)
    # Error: logarithms err by 16 UNIT * spread, powers by 4 ulp more, sums of m terms by m UNIT
    # relative. For an exponent <= 1 all terms are below 9 * spread and the final log1p multiplies
    # errors by at most 3: (27 m + 900) UNIT * spread. For an exponent > 1 the log turns the
    # relative
    # error (m + 40) UNIT + 32 UNIT * exponent into an absolute one over beta, and 1/beta < spread.
    # Rounding alpha - 1 moves the value by less than 2 UNIT * spread.
    term_count = row_shares.shape[1] + 100
    error = 48 * term_count * UNIT * spread
    upper_bounds = np.maximum(divergences, 0.0) + error
    upper_bounds[is_unbounded] = np.inf
    np.fill_diagonal(upper_bounds, 0.0)
    return upper_bounds


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
    is_unbounded = math.isinf(limit) and order >= 1
    if limit == 0 or order >= _CERTAIN_ORDER or is_unbounded:
        return limit
    distinct_rows = np.unique(check_weights(weights), axis=0)
    divergences = renyi_pairs(distinct_rows, order)
    return min(limit, float(divergences.max()))


@final
@dataclass(frozen=True, kw_only=True)
class Certificate(WorstRatio):
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
        values: JsonObject = {"epsilon": plain(self.epsilon)}
        for name, value in vars(self).items():
            values[name] = plain(value)
        return values

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
