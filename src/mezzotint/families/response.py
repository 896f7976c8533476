"""Randomized response on k values (k = 2: one bit), and plain stochastic rounding."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.arguments import Values, check_epsilon, check_range, grid_or_values
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import TOTAL, Mechanism
from mezzotint.core.rounding import ratio_below, table

_LARGEST = 64 * math.log(2)


def k_randomized_response(
    *, lower: float = -1.0, upper: float = 1.0, levels: int | Values = 4, epsilon: float
) -> Mechanism:
    """k-ary randomized response: dither the input onto k points, report that point or, at random, another one.

    Arguments:
        lower, upper: input range, data units.
        levels: k >= 2 evenly spaced points from lower to upper, or the k points themselves, increasing, the first
            equal to lower and the last to upper. The decoded levels follow from them and lie further out.
        epsilon: pure epsilon asked for, > 0 and finite.

    Raises:
        ParameterError: naming the parameter; also an epsilon so small that 2**32 units cannot show it.

    Guarantees:
        The certified epsilon is at most `epsilon`, and within 2**-31 * k * (e**epsilon + k) of it while below 22.
        Unbiased up to the rounding of the levels to floats.
    Edge cases: epsilon above log(2**32): the rarest report keeps one unit and the certified epsilon stays below.

    Source: Kairouz, Oh, Viswanath 2014 (k-ary randomized response), debiased for a numeric mean.
    """
    low, high = check_range(lower, upper)
    points = grid_or_values("levels", levels, lower=low, upper=high)
    if points[0] != low or points[-1] != high:
        raise ParameterError("levels", points.tolist(), f"must run from lower={low:g} to upper={high:g} exactly")
    # No ratio of two weights exceeds 2**32: beyond that nothing changes, and e**epsilon need not be a float.
    asked = min(check_epsilon(epsilon), _LARGEST)
    rare, often = _units(points.size, asked)

    # A report is j with probability r, the own point i with p = r + s. Debiasing needs levels v with
    # r * sum(v) + s * v_i = b_i for every i; summed over i this gives sum(v) = sum(b), as k r + s = 1. The units
    # are chosen first and the levels from them, so that rounding leaves no bias.
    s = (often - rare) / TOTAL
    centre = float(points.mean())
    rows = np.full((points.size, points.size), rare / TOTAL)
    np.fill_diagonal(rows, often / TOTAL)
    return table(
        knots=points,
        levels=centre + (points - centre) / s,
        probabilities=rows,
        name=f"{points.size}-ary randomized response(epsilon={epsilon:g})",
        epsilon=asked,
    )


def _units(k: int, epsilon: float) -> tuple[int, int]:
    """Units of 2**-32 of every other point and of the own point: the largest ratio that is at most e**epsilon."""
    ratio = ratio_below(epsilon)
    rare = max(1, math.ceil(TOTAL / (ratio + k - 1)))
    often = TOTAL - (k - 1) * rare
    if often <= rare:
        raise ParameterError("epsilon", epsilon, f"too small for {k} points in units of 2**-32; ask for a larger one")
    return rare, often


def randomized_response(*, lower: float = -1.0, upper: float = 1.0, epsilon: float) -> Mechanism:
    """Unbiased one-bit response: two levels at (e**epsilon + 1) / (e**epsilon - 1) half ranges from the middle.

    Arguments:
        lower, upper: input range, data units.
        epsilon: pure epsilon asked for, > 0 and finite; the certified one is at most this.

    Raises, Guarantees, Edge cases: as `k_randomized_response` with two points.

    Source: Warner 1965; Duchi, Jordan, Wainwright 2018 for a bounded mean.
    """
    return k_randomized_response(lower=lower, upper=upper, levels=2, epsilon=epsilon)


def stochastic_rounding(*, lower: float = -1.0, upper: float = 1.0, levels: int | Values = 4) -> Mechanism:
    """Plain stochastic rounding to the two nearest levels: unbiased, and not private.

    Arguments:
        lower, upper: input range, data units.
        levels: that many evenly spaced levels from lower to upper, or the levels themselves, increasing, reaching
            from lower or below to upper or above.

    Raises:
        ParameterError: naming the parameter.

    Guarantees:
        epsilon is inf whenever some level cannot be reported from every input.
    Edge cases: two levels strictly outside [lower, upper] are randomized response, with a finite epsilon; a level
        that no input can report stays, with probability 0.
    """
    low, high = check_range(lower, upper)
    outputs = grid_or_values("levels", levels, lower=low, upper=high)
    inner = outputs[(outputs > low) & (outputs < high)]
    knots = np.concatenate([[low], inner, [high]])
    left = np.clip(np.searchsorted(outputs, knots, side="right") - 1, 0, outputs.size - 2)
    up = (knots - outputs[left]) / (outputs[left + 1] - outputs[left])
    rows = np.zeros((knots.size, outputs.size))
    rows[np.arange(knots.size), left] = 1 - up
    rows[np.arange(knots.size), left + 1] = up
    return table(knots=knots, levels=outputs, probabilities=rows, name=f"stochastic rounding to {outputs.size} levels")
