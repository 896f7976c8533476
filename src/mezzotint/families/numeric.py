"""Closed forms for numbers: a pair of levels selected around the input (RQM, ERM), or coins counted
(PBM).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, xlog1py, xlogy

from mezzotint.core.arguments import (
    SCALES,
    Values,
    check_count,
    check_covering,
    check_finite,
    check_range,
    check_rules,
    check_table_size,
)
from mezzotint.core.errors import InfeasibleError, ParameterError, as_reals, refuse_nan
from mezzotint.core.kinds import checked
from mezzotint.core.loss import check_epsilon, check_order
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import SUM_TOLERANCE, table
from mezzotint.core.types import MAX_LEVELS, FloatArray

Choices = Sequence[Values]
"""Selection probabilities, one row per number of bins on that side: [[q_1(1)], [q_2(1), q_2(2)],
...].
"""


def checked_choices(
    parameter: str,
    rows: Sequence[npt.ArrayLike],
    bins: int,
) -> list[FloatArray]:
    """The m - 1 selection distributions of one side, each divided by its sum.

    Raises:
        ParameterError: not m - 1 rows, row j without j entries, a negative or non-finite entry, a
            sum off 1 by 1e-6.
    """
    if isinstance(rows, str | bytes) or not hasattr(rows, "__len__"):
        raise _wrong_row_count(parameter, rows, bins)
    if len(rows) != bins - 1:
        raise _wrong_row_count(parameter, len(rows), bins)
    distributions: list[FloatArray] = []
    for length, values in enumerate(rows, start=1):
        row = as_reals(parameter, values, f"row {length} must hold {length} numbers")
        are_probabilities = np.isfinite(row).all() and (row >= 0).all()
        excess = abs(row.sum() - 1)
        rules = (
            (row.shape == (length,), f"must hold exactly {length} probabilities"),
            (are_probabilities, "must hold finite probabilities >= 0"),
            (excess <= SUM_TOLERANCE, f"must sum to 1; divide it by {row.sum():.9g}"),
        )
        for holds, remedy in rules:
            if not holds:
                raise ParameterError(parameter, row.tolist(), f"row {length} {remedy}")
        distributions.append(row / row.sum())
    return distributions


def _wrong_row_count(
    parameter: str,
    value: object,
    bins: int,
) -> ParameterError:
    remedy = f"need {bins - 1} rows for {bins} bins: row j has j probabilities"
    return ParameterError(parameter, value, remedy)


class Cell(NamedTuple):
    """The part between two neighbouring bins of the input range."""

    bins_below: int
    start: float
    stop: float


def cells(
    bins: FloatArray,
    *,
    lower: float,
    upper: float,
) -> list[Cell]:
    """The cells between neighbouring bins that meet [lower, upper]."""
    first = int(np.searchsorted(bins, lower, side="right"))
    last = int(np.searchsorted(bins, upper, side="left"))
    inner_cells: list[Cell] = []
    for count in range(first, last + 1):
        start = max(float(bins[count - 1]), lower)
        stop = min(float(bins[count]), upper)
        inner_cells.append(Cell(count, start, stop))
    return inner_cells


def pair_rows(
    bins: FloatArray,
    left: Sequence[FloatArray],
    right: Sequence[FloatArray],
    *,
    lower: float,
    upper: float,
) -> tuple[FloatArray, FloatArray]:
    """Knots (2 per cell) and their pmfs in float64, before any rounding to integers.

    Arguments:
        bins: (m,) increasing, covering [lower, upper].
        left, right: entry n - 1 is the (..., n) distribution over the n bins on that side, counted
            from the outermost; leading axes carry a batch, and lead the rows (..., knots, m) as
            well.
    Guarantees: sums of non-negative terms only, so that each probability has full relative
    accuracy.
    """
    knots: list[float] = []
    rows: list[FloatArray] = []
    for bins_below, start, stop in cells(bins, lower=lower, upper=upper):
        # p(x, l) = q_j(l) sum_r q_{m-j}(m+1-r) (B_r - x)/(B_r - B_l), and p(x, r) likewise (eq. 4):
        # linear in x on the cell, so its two ends say all. The right end is the limit from the
        # left: the jump is the next cell's.
        left_choice = left[bins_below - 1]
        bins_above = bins.size - bins_below
        right_choice = right[bins_above - 1][..., ::-1]
        left_bins = bins[:bins_below, None]
        right_bins = bins[bins_below:]
        distances = right_bins - left_bins
        for x in (start, stop):
            left_share = (right_bins - x) / distances
            right_share = (x - left_bins) / distances
            left_pmf = left_choice * (right_choice @ left_share.T)
            right_pmf = right_choice * (left_choice @ right_share)
            knots.append(x)
            rows.append(np.concatenate([left_pmf, right_pmf], axis=-1))
    return np.array(knots), np.stack(rows, axis=-2)


MOST_PAIRS = 2**32
"""Of bins, over all cells: pair selections are computed pair by pair, so many in seconds."""


def check_pairs(
    name: str,
    bins: FloatArray,
    *,
    lower: float,
    upper: float,
) -> None:
    """Raises ParameterError for bins whose pair selection would take too long, or too much room."""
    check_table_size(name, bins.size, rows=bins.size, levels=bins.size)
    counts = np.arange(1, bins.size, dtype=np.float64)
    is_met = (bins[1:] >= lower) & (bins[:-1] <= upper)
    pair_count = float(np.sum(counts * (bins.size - counts), where=is_met))
    if 2 * pair_count > MOST_PAIRS:
        remedy = f"makes {2 * pair_count:.3g} pairs of bins, more than {MOST_PAIRS:.3g}; use fewer"
        raise ParameterError(name, bins.size, remedy)


class PairSelection(NamedTuple):
    """A checked pair selection: the range, the bins, and the choices of both sides."""

    lower: float
    upper: float
    bins: FloatArray
    left: list[FloatArray]
    right: list[FloatArray]


def check_selection(
    lower: float,
    upper: float,
    bins: Values,
    left: Choices,
    right: Choices | None,
) -> PairSelection:
    """The range, the bins and the choices of both sides; ParameterError for the first bad one."""
    low, high = check_range(lower, upper)
    levels = check_covering("bins", bins, lower=low, upper=high)
    check_pairs("bins", levels, lower=low, upper=high)
    left_choices = checked_choices("left", left, levels.size)
    right_choices = left_choices
    if right is not None:
        right_choices = checked_choices("right", right, levels.size)
    return PairSelection(low, high, levels, left_choices, right_choices)


def selection(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    bins: Values,
    left: Choices,
    right: Choices | None = None,
) -> Mechanism:
    """Any pair-selection mechanism: RQM, ERM and OPTM are special cases.

    For x in [B_j, B_{j+1}) a left bin B_l (l <= j) is drawn with probability `left[j-1][l-1]`, a
    right bin B_r (r > j) with probability `right[m-j-1][m-r]`; the report is B_r with probability
    (x - B_l) / (B_r - B_l), else B_l.

    Arguments:
        lower, upper: input range, data units.
        bins: (m,) output levels, data units, increasing, any spacing, reaching from lower or below
            to upper or above.
        left: m - 1 rows [[q_1(1)], [q_2(1), q_2(2)], ...]; row j sums to 1; entry i is the
            outermost but i - 1.
        right: the same for the right side, entries counted from the outermost right bin; None
            mirrors `left`.
    Returns: the table, unbiased.
    Raises:
        ParameterError: bins that do not increase or cover the range; rows of wrong length, sign or
            sum.
    Guarantees:
        Unbiased at every input up to the integer rounding (`max_bias` states it exactly).
        Equals the published mechanism everywhere below `upper` (where a bin on `upper` would jump,
        the limit holds).
    Edge cases: a bin outside the range at which no row puts mass keeps probability 0; an outermost
        bin equal to lower or upper makes epsilon inf.
    Source: Cai, Zhang, Khalili 2024, Algorithm 1 and eq. (4); Section 4.2 for two separate sides.
    Example:
        >>> mechanism = mz.families.selection(bins=[-2, -1, 1, 2], left=[[1], [0.5, 0.5], [0.2, 0.3,
        ...     0.5]])
        >>> round(mechanism.epsilon, 3)
        1.792
    """
    pairs = check_selection(lower, upper, bins, left, right)
    knots, rows = pair_rows(
        pairs.bins,
        pairs.left,
        pairs.right,
        lower=pairs.lower,
        upper=pairs.upper,
    )
    name = f"pair selection({pairs.bins.size} bins)"
    return table(
        knots=knots,
        levels=pairs.bins,
        probabilities=rows,
        name=name,
    )


_SNAP_TOLERANCE = 1e-13
"""Share of the span of the bins within which a bin lies on an end of the range."""


def rqm_bins(
    *,
    lower: float,
    upper: float,
    levels: int,
    extension: float,
) -> FloatArray:
    """(levels,) evenly spaced from lower - extension to upper + extension, data units."""
    bins = np.linspace(lower - extension, upper + extension, levels)
    # A bin that belongs on an end of the range may miss it by a rounding error, and would then open
    # a cell between itself and the end that the exact mechanism does not have.
    tolerance = _SNAP_TOLERANCE * (bins[-1] - bins[0])
    for end in (lower, upper):
        bins[np.abs(bins - end) <= tolerance] = end
    return bins


def rqm_choices(levels: int, q: float | FloatArray) -> list[FloatArray]:
    """Selection probabilities (..., j) for j = 1 .. levels - 1 bins on a side, outermost first; q
    of shape (...).
    """
    keep = np.asarray(q, dtype=np.float64)[..., None]
    outermost = np.ones_like(keep)
    choices: list[FloatArray] = []
    for bin_count in range(1, levels):
        # The nearest kept bin on a side is the i-th from outside: it is kept (q, the outermost
        # always), and the j - i nearer ones are not.
        inner_bins = np.repeat(keep, bin_count - 1, axis=-1)
        is_kept = np.concatenate([outermost, inner_bins], axis=-1)
        nearer_count = np.arange(bin_count - 1, -1, -1.0)
        chance_dropped = (1 - keep) ** nearer_count
        choices.append(is_kept * chance_dropped)
    return choices


def rqm_rows(
    *,
    lower: float,
    upper: float,
    levels: int,
    extension: float,
    q: float | FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bins, knots and float64 pmfs (..., knots, levels) of `rqm` before rounding to integers;
    unchecked arguments.
    """
    bins = rqm_bins(
        lower=lower,
        upper=upper,
        levels=levels,
        extension=extension,
    )
    choices = rqm_choices(levels, q)
    knots, rows = pair_rows(bins, choices, choices, lower=lower, upper=upper)
    return bins, knots, rows


def rqm(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: int = 16,
    extension: float = 1.0,
    q: float = 0.42,
) -> Mechanism:
    """The Randomized Quantization Mechanism: keep each inner bin with probability q, round between
    kept neighbours.

    Arguments:
        lower, upper: input range, data units (the paper's -c and c).
        levels: number m of evenly spaced bins, outermost included, >= 2.
        extension: how far the bins reach beyond the range on each side, data units (the paper's
            Delta), >= 0.
        q: probability that an inner bin is kept, in [0, 1].
    Returns: the table, unbiased.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Guarantees:
        The rows are Lemma 5.3's pmf at both one-sided limits of every bin, rounded to integers.
        Unbiased up to `max_bias`.
    Edge cases: q=0 is randomized response on the two outermost bins; q=1 is stochastic rounding;
        extension=0 has epsilon inf. Where a probability is below 2**-32 the table gives it one
        unit, and epsilon is that table's.
    Source: Youn, Hu, Ziani, Abernethy 2023, Algorithm 2 and Lemma 5.3.
    Example:
        >>> mechanism = mz.families.rqm(lower=0, upper=10, levels=16, extension=5.0, q=0.42)
        >>> round(mechanism.epsilon, 3), mechanism.bits
        (5.47, 4)
        >>> codes = mechanism.privatize([1.0, 5.0, 9.0])
        >>> mechanism.decode(codes).shape
        (3,)
    """
    low, high, bin_count, reach = check_grid(lower, upper, levels, extension)
    keep = check_finite("q", q)
    if not 0 <= keep <= 1:
        raise ParameterError("q", keep, "is a probability; choose it in [0, 1]")
    grid = rqm_bins(lower=low, upper=high, levels=bin_count, extension=reach)
    check_pairs("levels", grid, lower=low, upper=high)
    bins, knots, rows = rqm_rows(
        lower=low,
        upper=high,
        levels=bin_count,
        extension=reach,
        q=keep,
    )
    name = f"RQM(levels={bin_count}, extension={reach:g}, q={keep:g})"
    return table(
        knots=knots,
        levels=bins,
        probabilities=rows,
        name=name,
    )


def erm_choices(
    bins: FloatArray,
    gamma: float | FloatArray,
) -> list[FloatArray]:
    """q_j(i) proportional to exp(gamma (B_i - B_j) / (2 (B_j - B_1))) (eq. 2), j = 1 .. m-1, each
    (..., j).
    """
    decay = np.asarray(gamma, dtype=np.float64)[..., None]
    choices = [np.ones_like(decay)]
    for bin_count in range(2, bins.size):
        nearest = bins[bin_count - 1]
        distances = bins[:bin_count] - nearest
        span = 2 * (nearest - bins[0])
        exponent = decay * distances / span
        largest = exponent.max(axis=-1, keepdims=True)
        weights = np.exp(exponent - largest)
        weight_sums = weights.sum(axis=-1, keepdims=True)
        choices.append(weights / weight_sums)
    return choices


def erm_rows(
    bins: FloatArray,
    *,
    lower: float,
    upper: float,
    gamma: float | FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Knots and float64 pmfs (..., knots, m) of `erm` before rounding to integers; unchecked
    arguments.
    """
    # The right side measures distances from B_{j+1} up: the left side's rule on the mirrored bins.
    left_choices = erm_choices(bins, gamma)
    right_choices = erm_choices(-bins[::-1], gamma)
    return pair_rows(
        bins,
        left_choices,
        right_choices,
        lower=lower,
        upper=upper,
    )


def erm(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    bins: Values,
    gamma: float = 1.0,
) -> Mechanism:
    """The Exponential Randomized Mechanism: each side's bin is drawn with a weight that decays with
    its distance.

    Arguments:
        lower, upper: input range, data units.
        bins: (m,) output levels, data units, increasing, reaching from lower or below to upper or
            above. The paper's are symmetric; others work by the same rule on each side.
        gamma: decay, finite; 0 draws evenly, negative prefers far bins (needed for small epsilon).
    Returns: the table, unbiased.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Guarantees: Unbiased up to `max_bias`. `epsilon` is exact, also where Theorem 1 fails.
    Edge cases: an outermost bin equal to lower or upper makes epsilon inf.
    Source: Cai, Zhang, Khalili 2024, Section 3.3, eq. (2).
    Example:
        >>> mechanism = mz.families.erm(bins=[-1.5, -0.5, 0.5, 1.5], gamma=1.0)
        >>> round(mechanism.epsilon, 3), mechanism.bits
        (2.755, 2)
    """
    low, high = check_range(lower, upper)
    levels = check_covering("bins", bins, lower=low, upper=high)
    decay = check_finite("gamma", gamma)
    check_pairs("bins", levels, lower=low, upper=high)
    knots, rows = erm_rows(
        levels,
        lower=low,
        upper=high,
        gamma=decay,
    )
    return table(
        knots=knots,
        levels=levels,
        probabilities=rows,
        name=f"ERM({levels.size} bins, gamma={decay:g})",
    )


class BinGrid(NamedTuple):
    """Evenly spaced bins: the input range, how many, and how far they reach beyond it."""

    lower: float
    upper: float
    bin_count: int
    extension: float


def check_grid(
    lower: float,
    upper: float,
    levels: int,
    extension: float,
) -> BinGrid:
    """The checked range, number and reach of evenly spaced bins."""
    low, high = check_range(lower, upper)
    bin_count = check_count("levels", levels, least=2, most=MAX_LEVELS)
    reach = check_finite("extension", extension)
    largest = SCALES[1]
    if not 0 <= reach <= largest:
        remedy = f"from 0, so that bins cover the input range, to {largest:g}"
        raise ParameterError("extension", reach, remedy)
    return BinGrid(low, high, bin_count, reach)


_SLACK = 2.0**-40
"""Relative amount by which losses computed in floats are raised: far above their rounding error
(about 2**-48).
"""

_LOW_ORDER_SLACK = 2.0**-49
"""Over an order below 1: two terms differ by a factor 1 - order, which takes that much of their
relative accuracy.
"""


@final
@checked
@dataclass(frozen=True, kw_only=True)
class PoissonBinomial:
    """The raw mechanism on one value: Z ~ Binomial(trials, 1/2 + theta u) for u = (x - middle) /
    half range.

    Not a table: its pmf is a polynomial in x. It is described here exactly, to compare with; what
    this package draws from is the table of `pbm`.

    Arguments:
        lower, upper: input range, data units.
        trials: number n of coin tosses; the report is one of n + 1 levels.
        theta: slope of the coin's bias, in (0, 1/2].
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Guarantees: Losses are the exact worst cases over all pairs of inputs (docs/proofs/families.md),
    rounded up.
    Edge cases: theta = 1/2 makes an end of the range deterministic: epsilon is inf.
    Source: Chen, Ozgur, Kairouz 2022, Algorithm 2 (their m is `trials`).
    Example:
        >>> mechanism = mz.families.pbm_exact(trials=15, theta=0.25)
        >>> round(mechanism.epsilon, 4)
        16.4792
    """

    lower: float = -1.0
    upper: float = 1.0
    trials: int = 15
    theta: float = 0.25

    def __post_init__(self) -> None:
        check_range(self.lower, self.upper)
        check_count("trials", self.trials, most=MAX_LEVELS - 1)
        remedy = "choose it in [1e-50, 1/2]: 1/2 + theta is the largest coin bias"
        check_rules(self, ("theta", SCALES[0] <= self.theta <= 0.5, remedy))

    @property
    def _half(self) -> float:
        return (self.upper - self.lower) / 2

    @property
    def levels(self) -> FloatArray:
        """(trials + 1,) decoded outputs, data units: evenly spaced, middle + half range * (z / n -
        1/2) / theta.
        """
        heads = np.arange(self.trials + 1.0)
        steps: FloatArray = (heads - self.trials / 2) / (self.trials * self.theta)
        return self.lower + self._half * (1 + steps)

    def _scaled(self, x: npt.ArrayLike) -> FloatArray:
        """Inputs, clipped, on [-1, 1]."""
        values = as_reals("x", x, "need real numbers")
        refuse_nan("x", values)
        distances = np.clip(values, self.lower, self.upper) - self.lower
        return distances / self._half - 1

    def pmf(self, x: npt.ArrayLike) -> FloatArray:
        """(..., trials + 1) float64 probabilities at inputs x, clipped to the range."""
        trials = self.trials
        heads = np.arange(trials + 1)
        bias = 0.5 + self.theta * self._scaled(x)
        bias = bias[..., None]
        tails = trials - heads
        log_orders = gammaln(heads + 1)
        log_binomial = gammaln(trials + 1) - log_orders - gammaln(tails + 1)
        log_powers = xlogy(heads, bias) + xlog1py(tails, -bias)
        probabilities = np.exp(log_binomial + log_powers)
        row_sums = probabilities.sum(axis=-1, keepdims=True)
        return probabilities / row_sums

    def mean(self, x: npt.ArrayLike) -> FloatArray:
        """Expected decoded report: the clipped input, exactly."""
        scaled = self._scaled(x)
        return self.lower + self._half * (1 + scaled)

    def mse(self, x: npt.ArrayLike) -> FloatArray:
        """Mean squared error at inputs x, squared data units: (c**2 - 4 theta**2 x**2) / (4 n
        theta**2), c = half.
        """
        scaled = self._scaled(x)
        slope = 4 * self.theta**2
        error_share = 1 - slope * scaled**2
        return self._half**2 * error_share / (slope * self.trials)

    @property
    def _toss(self) -> float:
        """log((1/2 + theta) / (1/2 - theta)): pure epsilon of one toss between the two ends of the
        range.
        """
        if self.theta < 0.5:
            return 2 * math.atanh(2 * self.theta)
        return math.inf

    @property
    def epsilon(self) -> float:
        """Exact pure epsilon, n log((1/2 + theta) / (1/2 - theta)); rounded up."""
        return self.trials * self._toss * (1 + _SLACK)

    def renyi(self, alpha: float) -> float:
        """Worst-case Renyi divergence of order alpha in (0, inf], nats; rounded up.

        Raises:
            ParameterError: an order that is not positive, or NaN.
        """
        order = check_order(alpha)
        if math.isinf(order) or math.isinf(self._toss):
            # With theta = 1/2 the two ends have disjoint reports.
            return self.epsilon
        # n tosses add up.
        divergence = self.trials * self._toss_renyi(order)
        slack = _SLACK + _LOW_ORDER_SLACK / order
        return min(divergence * (1 + slack), self.epsilon)

    def _toss_renyi(self, order: float) -> float:
        """Renyi divergence of one toss between the two ends of the range.

        It is log(high**a low**(1-a) + low**a high**(1-a)) / (a - 1) = log(high e**t + low e**-t) /
        (a - 1) with t = (a - 1) log(high/low); high e**t + low e**-t - 1 = 2 sinh(t/2)**2 + 2 theta
        sinh(t), which does not cancel at small t.
        """
        high = 0.5 + self.theta
        low = 0.5 - self.theta
        exponent = (order - 1) * self._toss
        if exponent == 0:
            return 2 * self.theta * self._toss
        if abs(exponent) < 1:
            even_part = 2 * math.sinh(exponent / 2) ** 2
            excess = even_part + 2 * self.theta * math.sinh(exponent)
            return math.log1p(excess) / (order - 1)
        log_high = math.log(high) + exponent
        log_moment = np.logaddexp(log_high, math.log(low) - exponent)
        return float(log_moment) / (order - 1)

    def delta(self, epsilon: float) -> float:
        """Worst-case hockey-stick divergence at `epsilon` >= 0; rounded up.

        Raises:
            ParameterError: a negative epsilon, or NaN.
        """
        epsilon = check_epsilon(epsilon)
        if epsilon >= self.epsilon:
            return 0.0
        if self.theta == 0.5:
            # The two ends have disjoint reports.
            return 1.0
        # Report z has the log ratio (2 z - n) toss between the two ends, and P - e**eps Q = P (1 -
        # e**(eps - ratio)).
        heads = np.arange(self.trials + 1)
        log_ratios = (2 * heads - self.trials) * self._toss * (1 + _SLACK)
        exponents = np.minimum(epsilon - log_ratios, 0.0)
        gains = -np.expm1(exponents)
        excess = self.pmf(self.upper) * gains
        # The logarithm of a probability above 1e-300 adds terms below n log n and 700: their
        # rounding is its error.
        rounding_error = 2.0**-48 * (1024 + 16 * self.trials)
        return min(1.0, float(excess.sum()) * (1 + rounding_error))


pbm_exact = PoissonBinomial
"""`PoissonBinomial` by a name like that of `pbm`: the raw mechanism, which is not a table, for
comparison.

Example:
    >>> raw, table = mz.families.pbm_exact(trials=15, theta=0.25), mz.families.pbm(trials=15,
    ...     theta=0.25)
    >>> abs(raw.epsilon - table.epsilon) < 1e-6
    True
"""


def pbm(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    trials: int = 15,
    theta: float = 0.25,
    knots: int = 65,
) -> Mechanism:
    """The Poisson binomial mechanism as a table: its exact pmf at evenly spaced knots, mixed in
    between.

    Arguments:
        lower, upper: input range, data units.
        trials: number n of tosses; n + 1 levels (2**b - 1 tosses fill b bits).
        theta: slope of the coin's bias, in (0, 1/2].
        knots: evenly spaced inputs at which the pmf is exact, >= 2.
    Returns: the table, unbiased.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Guarantees:
        Unbiased up to `max_bias`: the raw mean is linear in x, so mixing keeps it.
        No loss exceeds the raw mechanism's (its rows are among it), up to rounding to integers.
        The variance exceeds the raw one by at most (1 - 1/n) (h/2)**2, h the distance of knots.
    Edge cases: theta = 1/2 has epsilon inf. A probability below 2**-32 becomes one unit.
    Source: Chen, Ozgur, Kairouz 2022; the interpolation is docs/proofs/families.md.
    Example:
        >>> mechanism = mz.families.pbm(trials=15, theta=0.25)
        >>> mechanism.levels.size, round(mechanism.epsilon, 3)
        (16, 16.479)
    """
    raw = pbm_exact(
        lower=lower,
        upper=upper,
        trials=trials,
        theta=theta,
    )
    knot_count = check_count("knots", knots, least=2, most=MAX_LEVELS)
    check_table_size("knots", knot_count, rows=knot_count, levels=raw.trials + 1)
    inputs = np.linspace(raw.lower, raw.upper, knot_count)
    name = f"PBM(trials={raw.trials}, theta={raw.theta:g}, knots={knot_count})"
    try:
        return table(
            knots=inputs,
            levels=raw.levels,
            probabilities=raw.pmf(inputs),
            name=name,
        )
    except InfeasibleError:
        remedy = "too many improbable levels: a unit of 2**-32 for each moves the means; use fewer"
        raise ParameterError("trials", raw.trials, remedy) from None
