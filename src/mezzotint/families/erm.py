"""ERM, the exponential randomized mechanism: pair selection by distance."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import table
from mezzotint.families import inputs
from mezzotint.families.inputs import FloatArray, Values
from mezzotint.families.selection import pair_rows


def erm_choices(bins: FloatArray, gamma: float | FloatArray) -> list[FloatArray]:
    """q_j(i) proportional to exp(gamma (B_i - B_j) / (2 (B_j - B_1))) (eq. 2), j = 1 .. m-1, each (..., j)."""
    decay = np.asarray(gamma, dtype=np.float64)[..., None]
    choices = [np.ones_like(decay)]
    for j in range(2, bins.size):
        exponent = decay * (bins[:j] - bins[j - 1]) / (2 * (bins[j - 1] - bins[0]))
        weights = np.exp(exponent - exponent.max(axis=-1, keepdims=True))
        choices.append(weights / weights.sum(axis=-1, keepdims=True))
    return choices


def erm_rows(
    bins: FloatArray, *, lower: float, upper: float, gamma: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Knots and float64 pmfs (..., knots, m) of `erm` before rounding to integers; unchecked arguments."""
    # The right side measures distances from B_{j+1} up: the left side's rule on the mirrored bins.
    left, right = erm_choices(bins, gamma), erm_choices(-bins[::-1], gamma)
    return pair_rows(bins, left, right, lower=lower, upper=upper)


def erm(*, lower: float = -1.0, upper: float = 1.0, bins: Values, gamma: float = 1.0) -> Mechanism:
    """The Exponential Randomized Mechanism: each side's bin is drawn with a weight that decays with its distance.

    Arguments:
        lower, upper: input range, data units.
        bins: (m,) output levels, data units, increasing, reaching from lower or below to upper or above. The paper's
            are symmetric; others work by the same rule on each side.
        gamma: decay, finite; 0 draws evenly, negative prefers far bins (needed for small epsilon).

    Raises:
        ParameterError: naming the parameter, its value and the remedy.

    Guarantees:
        Unbiased up to `max_bias`. `epsilon` is exact, also where Theorem 1 fails.
    Edge cases: an outermost bin equal to lower or upper makes epsilon inf.

    Source: Cai, Zhang, Khalili 2024, Section 3.3, eq. (2).
    """
    low, high = inputs.bounded_range(lower, upper)
    levels = inputs.covering("bins", bins, lower=low, upper=high)
    decay = inputs.finite("gamma", gamma)
    knots, rows = erm_rows(levels, lower=low, upper=high, gamma=decay)
    return table(knots=knots, levels=levels, probabilities=rows, name=f"ERM({levels.size} bins, gamma={decay:g})")


def published_erm_epsilon(*, lower: float, upper: float, levels: int, extension: float, gamma: float) -> float:
    """Theorem 1's claim for ERM on an even grid: gamma + log(2 m (c + Delta) / c). NOT a bound in general.

    It fails for small extensions: m=4, gamma=0.1, Delta=c/4 has exact epsilon 3.222 against the claimed 2.403. In
    the cases checked it held for Delta >= c. `erm(...).epsilon` is exact; nothing in this package relies on this.

    Arguments:
        lower, upper: input range, data units; c is half its width.
        levels: number m of evenly spaced bins from lower - extension to upper + extension.
        extension: the paper's Delta, data units, >= 0.
        gamma: as in `erm`.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.

    Source: Cai, Zhang, Khalili 2024, Theorem 1.
    """
    low, high, size, reach, decay = _grid(lower, upper, levels, extension, gamma)
    half = (high - low) / 2
    return decay + math.log(2 * size * (half + reach) / half)


def published_erm_error(*, lower: float, upper: float, levels: int, extension: float, gamma: float) -> float:
    """Theorem 2's bound on ERM's mean absolute error: (4/gamma) log(m) (c + Delta) + (2c + 2 Delta)/(m - 1).

    Arguments: as `published_erm_epsilon`; gamma > 0. Data units.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.

    Source: Cai, Zhang, Khalili 2024, Theorem 2.
    """
    low, high, size, reach, decay = _grid(lower, upper, levels, extension, gamma)
    if decay <= 0:
        raise ParameterError("gamma", decay, "Theorem 2 needs gamma > 0")
    half_width = (high - low) / 2 + reach
    return 4 / decay * math.log(size) * half_width + 2 * half_width / (size - 1)


def _grid(
    lower: float, upper: float, levels: int, extension: float, gamma: float
) -> tuple[float, float, int, float, float]:
    low, high = inputs.bounded_range(lower, upper)
    size = inputs.count("levels", levels, least=2)
    reach, decay = inputs.finite("extension", extension), inputs.finite("gamma", gamma)
    if reach < 0:
        raise ParameterError("extension", reach, "must be 0 or more; the bins have to cover the input range")
    return low, high, size, reach, decay
