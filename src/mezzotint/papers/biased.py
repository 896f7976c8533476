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
    (upper - lower))): the score is minus the distance, of sensitivity upper - lower. That is not
    linear in x: the table interpolates it between knots, by which no loss grows.

    Arguments:
        lower, upper, bins, left, right: as in `selection`.
        gamma: parameter of the exponential mechanism, finite; 0 tosses a fair coin, larger prefers
            the nearer bin.
        knots: evenly spaced inputs, >= 2, that join the bins as knots.
    Returns: the table; its bias is `max_bias`.
    Raises:
        ParameterError: as `selection`; gamma not finite; knots below 2.
    Guarantees: the bias, which is not zero, is what `max_bias` says.
    Source: Cai, Zhang, Khalili 2024, Section 5 (biased quantization).
    Example:
        >>> mechanism = mz.papers.biased_selection(bins=[-2, -1, 1, 2], left=[[1], [0.5, 0.5], [0,
        ...     0, 1]], gamma=1.0)
        >>> mechanism.max_bias > 0.01
        True
    """
    lower_end, upper_end, bin_values, left_choices, right_choices = check_selection(
        lower, upper, bins, left, right
    )
    decay_rate = check_finite("gamma", gamma) / (2 * (upper_end - lower_end))
    knot_count = check_count("knots", knots, least=2, most=MAX_LEVELS)
    even_inputs = np.linspace(lower_end, upper_end, knot_count)

    knot_groups: list[FloatArray] = []
    row_groups: list[FloatArray] = []
    for bins_left, cell_start, cell_end in cells(bin_values, lower=lower_end, upper=upper_end):
        inner_inputs = even_inputs[(even_inputs > cell_start) & (even_inputs < cell_end)]
        cell_inputs = np.concatenate([[cell_start], inner_inputs, [cell_end]])
        knot_groups.append(cell_inputs)
        bins_right = bin_values.size - bins_left
        pair = (left_choices[bins_left - 1], right_choices[bins_right - 1][::-1])
        row_groups.append(_exponential_rows(bin_values, cell_inputs, bins_left, *pair, decay_rate))
    return table(
        knots=np.concatenate(knot_groups),
        levels=bin_values,
        probabilities=np.concatenate(row_groups),
        name=f"biased pair selection({bin_values.size} bins, gamma={gamma:g})",
        unbiased=False,
    )


def _exponential_rows(
    bins: FloatArray, x: FloatArray, j: int, near: FloatArray, far: FloatArray, rate: float
) -> FloatArray:
    """(len(x), m) pmfs on the cell with j bins to its left."""
    # log odds of the right bin: rate * ((x - B_l) - (B_r - x)); tanh keeps the logistic function
    # from overflowing.
    bins_below, bins_above = bins[None, :j, None], bins[None, None, j:]
    log_odds = rate * (2 * x[:, None, None] - bins_below - bins_above)
    preference = np.tanh(log_odds / 2)
    right_shares = (1 + preference) / 2
    left_shares = (1 - preference) / 2
    to_left: npt.NDArray[np.float64] = near * np.einsum("xlr,r->xl", left_shares, far)
    to_right = far * np.einsum("xlr,l->xr", right_shares, near)
    return np.concatenate([to_left, to_right], axis=1)
