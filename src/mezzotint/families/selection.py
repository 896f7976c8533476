"""The pair-selection family: pick a bin on each side of the input at random, round to one of the two, unbiased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import table
from mezzotint.families import inputs
from mezzotint.families.inputs import FloatArray, Values

Choices = Sequence[Values]
"""Selection probabilities, one row per number of bins on that side: [[q_1(1)], [q_2(1), q_2(2)], ...]."""

_SUM_TOLERANCE = 1e-6


def checked_choices(parameter: str, rows: Any, bins: int) -> list[FloatArray]:
    """The m - 1 selection distributions of one side, each divided by its sum.

    Raises:
        ParameterError: not m - 1 rows, row j without j entries, a negative or non-finite entry, a sum off 1 by 1e-6.
    """
    if isinstance(rows, str | bytes) or not hasattr(rows, "__len__") or len(rows) != bins - 1:
        size = len(rows) if hasattr(rows, "__len__") else rows
        raise ParameterError(parameter, size, f"need {bins - 1} rows for {bins} bins: row j has j probabilities")
    result: list[FloatArray] = []
    for j, values in enumerate(rows, start=1):
        try:
            row = np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ParameterError(parameter, values, f"row {j} must hold {j} numbers") from None
        if row.shape != (j,):
            raise ParameterError(parameter, row.tolist(), f"row {j} must hold exactly {j} probabilities")
        if not np.isfinite(row).all() or (row < 0).any():
            raise ParameterError(parameter, row.tolist(), f"row {j} must hold finite probabilities >= 0")
        if abs(row.sum() - 1) > _SUM_TOLERANCE:
            raise ParameterError(parameter, row.tolist(), f"row {j} must sum to 1; divide it by {row.sum():.9g}")
        result.append(row / row.sum())
    return result


def cells(bins: FloatArray, *, lower: float, upper: float) -> list[tuple[int, float, float]]:
    """The cells between neighbouring bins that meet [lower, upper]: (bins to the left, left end, right end)."""
    first = int(np.searchsorted(bins, lower, side="right"))
    last = int(np.searchsorted(bins, upper, side="left"))
    return [(j, max(float(bins[j - 1]), lower), min(float(bins[j]), upper)) for j in range(first, last + 1)]


def pair_rows(
    bins: FloatArray, left: Sequence[FloatArray], right: Sequence[FloatArray], *, lower: float, upper: float
) -> tuple[FloatArray, FloatArray]:
    """Knots (2 per cell) and their pmfs in float64, before any rounding to integers.

    Arguments:
        bins: (m,) increasing, covering [lower, upper].
        left, right: entry n - 1 is the (..., n) distribution over the n bins on that side, counted from the outermost;
            leading axes carry a batch, and lead the rows (..., knots, m) as well.

    Guarantees: sums of non-negative terms only, so that each probability has full relative accuracy.
    """
    knots: list[float] = []
    rows: list[FloatArray] = []
    for j, start, stop in cells(bins, lower=lower, upper=upper):
        # p(x, l) = q_j(l) sum_r q_{m-j}(m+1-r) (B_r - x)/(B_r - B_l), and p(x, r) likewise (eq. 4): linear in x on
        # the cell, so its two ends say all. The right end is the limit from the left: the jump is the next cell's.
        near, far = left[j - 1], right[bins.size - j - 1][..., ::-1]
        width = bins[None, j:] - bins[:j, None]
        for x in (start, stop):
            down = (bins[j:] - x) / width
            up = (x - bins[:j, None]) / width
            knots.append(x)
            rows.append(np.concatenate([near * (far @ down.T), far * (near @ up)], axis=-1))
    return np.array(knots), np.stack(rows, axis=-2)


def selection(
    *, lower: float = -1.0, upper: float = 1.0, bins: Values, left: Choices, right: Choices | None = None
) -> Mechanism:
    """Any pair-selection mechanism: RQM, ERM and OPTM are special cases.

    For x in [B_j, B_{j+1}) a left bin B_l (l <= j) is drawn with probability `left[j-1][l-1]`, a right bin B_r
    (r > j) with probability `right[m-j-1][m-r]`; the report is B_r with probability (x - B_l) / (B_r - B_l), else B_l.

    Arguments:
        lower, upper: input range, data units.
        bins: (m,) output levels, data units, increasing, any spacing, reaching from lower or below to upper or above.
        left: m - 1 rows [[q_1(1)], [q_2(1), q_2(2)], ...]; row j sums to 1; entry i is the outermost but i - 1.
        right: the same for the right side, entries counted from the outermost right bin; None mirrors `left`.

    Raises:
        ParameterError: bins that do not increase or cover the range; rows of wrong length, sign or sum.

    Guarantees:
        Unbiased at every input up to the integer rounding (`max_bias` states it exactly).
        Equals the published mechanism everywhere below `upper` (where a bin on `upper` would jump, the limit holds).
    Edge cases: a bin outside the range at which no row puts mass keeps probability 0; an outermost bin equal to
        lower or upper makes epsilon inf.

    Source: Cai, Zhang, Khalili 2024, Algorithm 1 and eq. (4); Section 4.2 for two separate sides.
    """
    low, high = inputs.bounded_range(lower, upper)
    levels = inputs.covering("bins", bins, lower=low, upper=high)
    near = checked_choices("left", left, levels.size)
    far = near if right is None else checked_choices("right", right, levels.size)
    knots, rows = pair_rows(levels, near, far, lower=low, upper=high)
    return table(knots=knots, levels=levels, probabilities=rows, name=f"pair selection({levels.size} bins)")


def biased_selection(
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    bins: Values,
    left: Choices,
    right: Choices | None = None,
    gamma: float,
    knots: int = 65,
) -> Mechanism:
    """The biased variant: between the two drawn bins the exponential mechanism on distance decides.

    Of B_l and B_r the report is B_l with probability proportional to exp(-gamma |x - B_l| / (2 (upper - lower))):
    the score is minus the distance, and upper - lower is its sensitivity. That is not linear in x, so the table
    interpolates it between knots. Every row is a row of the mechanism itself: no loss grows by interpolating.

    Arguments:
        lower, upper, bins, left, right: as in `selection`.
        gamma: parameter of the exponential mechanism, finite; 0 tosses a fair coin, larger prefers the nearer bin.
        knots: evenly spaced inputs, >= 2, that join the bins as knots.

    Raises:
        ParameterError: as `selection`; gamma not finite; knots below 2.

    Guarantees:
        The bias is what `max_bias` says: it is not zero, and no design hides it.

    Source: Cai, Zhang, Khalili 2024, Section 5 (biased quantization).
    """
    low, high = inputs.bounded_range(lower, upper)
    levels = inputs.covering("bins", bins, lower=low, upper=high)
    near = checked_choices("left", left, levels.size)
    far = near if right is None else checked_choices("right", right, levels.size)
    rate = inputs.finite("gamma", gamma) / (2 * (high - low))
    grid = np.linspace(low, high, inputs.count("knots", knots, least=2))

    points: list[FloatArray] = []
    rows: list[FloatArray] = []
    for j, start, stop in cells(levels, lower=low, upper=high):
        inner = grid[(grid > start) & (grid < stop)]
        x = np.concatenate([[start], inner, [stop]])
        points.append(x)
        rows.append(_exponential_rows(levels, x, j, near[j - 1], far[levels.size - j - 1][::-1], rate))
    return table(
        knots=np.concatenate(points),
        levels=levels,
        probabilities=np.concatenate(rows),
        name=f"biased pair selection({levels.size} bins, gamma={gamma:g})",
        unbiased=False,
    )


def _exponential_rows(
    bins: FloatArray, x: FloatArray, j: int, near: FloatArray, far: FloatArray, rate: float
) -> FloatArray:
    """(len(x), m) pmfs on the cell with j bins to its left."""
    # log odds of the right bin: rate * ((x - B_l) - (B_r - x)); tanh keeps the logistic function from overflowing.
    odds = rate * (2 * x[:, None, None] - bins[None, :j, None] - bins[None, None, j:])
    up = (1 + np.tanh(odds / 2)) / 2
    down = (1 - np.tanh(odds / 2)) / 2
    to_left: npt.NDArray[np.float64] = near * np.einsum("xlr,r->xl", down, far)
    to_right = far * np.einsum("xlr,l->xr", up, near)
    return np.concatenate([to_left, to_right], axis=1)
