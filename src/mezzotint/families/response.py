"""Randomized response on k values (k = 2: one bit), and plain stochastic rounding."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.arguments import Values, check_epsilon, check_range, grid_or_values
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import TOTAL, FloatArray, Mechanism
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


def square_wave(*, lower: float = -1.0, upper: float = 1.0, outputs: int = 32, epsilon: float) -> Mechanism:
    """The square wave: a report near the input is e**epsilon times as probable as one far from it.

    For distributions, not for means: reports reach beyond the range by half a window and are not decoded to the input.
    `collect.estimate` gives histograms and quantiles from them as from any table.

    Arguments:
        lower, upper: input range, data units.
        outputs: equal bins, 2 to 4096, into which the continuous output is cut.
        epsilon: pure epsilon asked for, > 0 and finite; the certified one is at most this.
    Raises:
        ParameterError: naming the parameter; also an epsilon so small that 2**32 units cannot show it.
    Guarantees: between the knots, at which the window meets an edge of a bin, the pmf is that of the continuous
        mechanism's bins, up to integer rounding.
    Edge cases: where the window is narrower than two bins none lies inside it, and the certified epsilon is smaller.
    Source: Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020, "Estimating numerical distributions under local differential
        privacy".
    """
    low, high = check_range(lower, upper)
    asked = check_epsilon(epsilon)
    if not 2 <= outputs <= 4096:
        raise ParameterError("outputs", outputs, "need 2 to 4096 bins")
    bins, knots, rows = _wave(asked, outputs)
    # Rounding takes up to a unit from each probability and gives them all to the greatest one of its row.
    spare = (2 / float(rows.min()) + outputs / float(rows.max(axis=1).min())) / TOTAL
    if spare > asked / 8:
        raise ParameterError("epsilon", epsilon, f"is too small for {outputs} outputs in units of 2**-32")
    bins, knots, rows = _wave(asked - spare, outputs)
    weights = np.floor(rows * TOTAL).astype(np.int64)
    weights[np.arange(len(weights)), rows.argmax(axis=1)] += TOTAL - weights.sum(axis=1)
    return Mechanism(
        knots=low + knots * (high - low),
        levels=low + (bins[1:] + bins[:-1]) / 2 * (high - low),
        weights=weights,
        name=f"square wave of {outputs} outputs(epsilon={epsilon:g})",
    )


def _wave(epsilon: float, outputs: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Edges of the bins, knots, and pmf at the knots, inputs on [0, 1]."""
    odds = math.exp(epsilon)
    # Half the window, by the paper's choice; its limit is 1/2 at epsilon 0.
    gain = odds - 1 - epsilon
    half = (epsilon * odds - odds + 1) / (2 * odds * gain) if epsilon > 1e-3 else 0.5
    near, far = odds / (2 * half * odds + 1), 1 / (2 * half * odds + 1)
    bins = np.linspace(-half, 1 + half, outputs + 1)
    knots = np.unique(np.clip(np.concatenate([bins - half, bins + half, [0.0, 1.0]]), 0, 1))
    knots = knots[np.append(np.diff(knots) > 1e-9, True)]
    knots[0] = 0.0
    inside = np.minimum(bins[1:], knots[:, None] + half) - np.maximum(bins[:-1], knots[:, None] - half)
    rows = far * (bins[1] - bins[0]) + (near - far) * np.maximum(inside, 0)
    return bins, knots, rows / rows.sum(axis=1, keepdims=True)
