"""Biased pair selection (Cai, Zhang, Khalili 2024, Section 5): a research variant that no design
uses.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import Values, check_count, check_finite
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import table
from mezzotint.core.types import MAX_LEVELS, FloatArray
from mezzotint.families.numeric import Choices, cells, check_selection


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

    Of B_l and B_r the report is B_l with probability proportional to exp(-gamma |x - B_l| / (2
    (upper - lower))): the score is minus the distance, and upper - lower is its sensitivity. That
    is not linear in x, so the table interpolates it between knots. Every row is a row of the
    mechanism itself: no loss grows by interpolating.

    Arguments:
        lower, upper, bins, left, right: as in `selection`.
        gamma: parameter of the exponential mechanism, finite; 0 tosses a fair coin, larger prefers
            the nearer bin.
        knots: evenly spaced inputs, >= 2, that join the bins as knots.
    Returns: the table; its bias is `max_bias`.
    Raises:
        ParameterError: as `selection`; gamma not finite; knots below 2.
    Guarantees: The bias is what `max_bias` says: it is not zero, and no design hides it.
    Source: Cai, Zhang, Khalili 2024, Section 5 (biased quantization).
    Example:
        >>> mechanism = mz.papers.biased_selection(bins=[-2, -1, 1, 2], left=[[1], [0.5, 0.5], [0,
        ...     0, 1]], gamma=1.0)
        >>> mechanism.max_bias > 0.01
        True
    """
    low, high, levels, near, far = check_selection(lower, upper, bins, left, right)
    rate = check_finite("gamma", gamma) / (2 * (high - low))
    grid = np.linspace(low, high, check_count("knots", knots, least=2, most=MAX_LEVELS))

    points: list[FloatArray] = []
    rows: list[FloatArray] = []
    for j, start, stop in cells(levels, lower=low, upper=high):
        inner = grid[(grid > start) & (grid < stop)]
        x = np.concatenate([[start], inner, [stop]])
        points.append(x)
        rows.append(
            _exponential_rows(levels, x, j, near[j - 1], far[levels.size - j - 1][::-1], rate)
        )
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
    # log odds of the right bin: rate * ((x - B_l) - (B_r - x)); tanh keeps the logistic function
    # from overflowing.
    odds = rate * (2 * x[:, None, None] - bins[None, :j, None] - bins[None, None, j:])
    up = (1 + np.tanh(odds / 2)) / 2
    down = (1 - np.tanh(odds / 2)) / 2
    to_left: npt.NDArray[np.float64] = near * np.einsum("xlr,r->xl", down, far)
    to_right = far * np.einsum("xlr,l->xr", up, near)
    return np.concatenate([to_left, to_right], axis=1)
